"""A program that is killed and started again: a database on disk, rows pushed, answers written to files.

    python -m tests.spark.killed_live ROOT COUNT

Pushes ``COUNT`` batches of rows, going on after those that were taken before; meanwhile queries change parts. When all
is answered it leaves ``ROOT/done``.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa

import penstock
from penstock.database.database import core_of
from penstock.io.writers import Resumable
from tests.generated.language import Row

SIZE = 20
DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 5;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
"""
QUERIES = {
    "joined": "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 40] a LEFT JOIN r [RANGE 30] b ON a.k = b.k",
    "last": "SELECT ISTREAM k, count(*) AS n, max(v) AS most FROM s [ROWS 7] GROUP BY k",
    "named": "SELECT ISTREAM name, s.v FROM s [NOW], names WHERE s.k = names.k",
    "hops": "SELECT k, sum(v) AS total FROM r [HOPPING 50 EVERY 20] GROUP BY k",
}


def batch(name: str, i: int) -> list[Row]:
    """The rows of a push; those of s are out of order now and then, and some are late."""
    chosen = random.Random(f"{name} {i}")
    back = 7 if name == "s" else 0
    return [
        (3 * (SIZE * i + j) - chosen.randint(0, back), chosen.randrange(5), chosen.randrange(100)) for j in range(SIZE)
    ]


def main(root: Path, count: int) -> None:
    with penstock.connect(root / "db", engine="spark", master="local[2,4]", batch_rows=3 * SIZE, trigger=0) as db:
        for text in DECLARE.split(";")[:-1]:
            if text.split()[2] not in {*db.catalog.streams, *db.catalog.relations}:
                db.execute(text)
        if not core_of(db).relations["names"].rows:
            db.push("names", [(0, "zero"), (1, "one"), (2, "two")])
        for name, text in QUERIES.items():
            if name not in db.queries:
                assert not db.stream("s").given, "queries are there before rows are"
                db.execute(f"CREATE QUERY {name} AS {text} WITH (priority = {len(db.queries)})")
        files = {n: Resumable(root / f"{n}.csv", "csv", q.schema, db.note().get(n, 0)) for n, q in db.queries.items()}

        def write(name: str, wait: bool) -> None:
            def written(table: pa.Table) -> dict[str, object]:
                files[name].write(table)
                return {name: files[name].length}

            db.queries[name].transfer(written, wait=wait)

        for i in range(count):
            for stream in ("s", "r"):
                if db.stream(stream).given <= SIZE * i:
                    db.push(stream, batch(stream, i))
            for name in files:
                write(name, wait=i % 8 == 7)
            if i % 5 == 3:
                db.configure(threading=("operator", "direct", "hybrid")[i // 5 % 3])
        for stream in ("s", "r"):
            db.close_stream(stream)
        for name in files:
            write(name, wait=True)
    (root / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
