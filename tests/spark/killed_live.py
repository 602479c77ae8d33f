"""A program that is killed and started again: a database on disk, rows pushed, answers written to files.

    python -m tests.spark.killed_live ROOT COUNT

Pushes ``COUNT`` batches of rows, going on after those that were taken before, and puts as many files where Spark reads
the rows of another stream; meanwhile queries change parts. When all is answered it leaves ``ROOT/done``.
Spark's master is ``PENSTOCK_MASTER``, or this machine. The database is ``KILLED_DB``, or ``ROOT/db``.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from penstock.database.database import core_of
from penstock.io.writers import CsvText, Resumable
from tests.generated.language import Row
from tests.spark.standalone import SETTINGS

SIZE = 20
DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 5;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM f (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 5;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
"""
FED = "FROM spark (format = 'parquet', path = '{}', maxFilesPerTrigger = 1, trigger = '1 ms')"
QUERIES = {
    "joined": "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 40] a LEFT JOIN r [RANGE 30] b ON a.k = b.k",
    "last": "SELECT ISTREAM k, count(*) AS n, max(v) AS most FROM s [ROWS 7] GROUP BY k",
    "named": "SELECT ISTREAM name, s.v FROM s [NOW], names WHERE s.k = names.k",
    "hops": "SELECT k, sum(v) AS total FROM r [HOPPING 50 EVERY 20] GROUP BY k",
    "wide": "SELECT ISTREAM repeat('x', 5000) AS x, v FROM r",
    "fed": "SELECT f.k, f.v AS x, r.v AS y FROM f [RANGE 30] JOIN r [RANGE 30] ON f.k = r.k",
    "read": "SELECT ISTREAM v, count(*) AS n FROM f [RANGE 20] GROUP BY v",
}


def batch(name: str, i: int) -> list[Row]:
    """The rows of a push; those of s are out of order now and then, and some are late."""
    chosen = random.Random(f"{name} {i}")
    back = 0 if name == "r" else 7
    return [
        (3 * (SIZE * i + j) - chosen.randint(0, back), chosen.randrange(5), chosen.randrange(100)) for j in range(SIZE)
    ]


def in_order(i: int) -> list[Row]:
    """The rows of a file: what comes at once comes in order."""
    return sorted(batch("f", i), key=lambda row: int(str(row[0])))


def put_file(folder: Path, i: int) -> None:
    """A file for Spark, with the rows of a batch; it appears in one step, and is there once."""
    path, hidden = folder / f"{i:05d}.parquet", folder / f".{i:05d}"
    if path.exists():
        return
    columns = zip(*batch("f", i), strict=True)
    pq.write_table(pa.table({name: pa.array(column) for name, column in zip("tkv", columns, strict=True)}), hidden)
    os.utime(hidden, (1_700_000_000 + 10 * i,) * 2)  # Spark reads files by age, to the second in places
    hidden.rename(path)


def main(root: Path, count: int) -> None:
    (root / "files").mkdir(exist_ok=True)
    master = os.environ.get("PENSTOCK_MASTER", "local[2,4]")
    place = os.environ.get("KILLED_DB", root / "db")
    reads = "KILLED_DB" not in os.environ  # what Spark has read it notes in a directory
    with penstock.connect(
        place, engine="spark", master=master, spark=SETTINGS, shards=2, batch_rows=3 * SIZE, trigger=0
    ) as db:
        for text in DECLARE.split(";")[:-1]:
            if text.split()[2] not in {*db.catalog.streams, *db.catalog.relations}:
                db.execute(f"{text} {FED.format(root / 'files')}" if "STREAM f" in text and reads else text)
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

            until = time.monotonic() + 300  # on a busy machine Spark gives up on workers that take ten seconds to start
            while time.monotonic() < until:
                try:
                    db.queries[name].transfer(written, wait=wait)
                    return
                except penstock.EngineError as error:  # what goes wrong meanwhile is told, and mended
                    print(error, flush=True)
            raise AssertionError("it is not mended")

        for i in range(count):
            for stream in ("s", "r"):
                if db.stream(stream).given <= SIZE * i:
                    db.push(stream, batch(stream, i))
            if reads:
                put_file(root / "files", i)
            elif db.stream("f").given <= SIZE * i:
                db.push("f", in_order(i))
            for name in files:
                write(name, wait=i % 8 == 7)
            if i % 4 == 2:
                core_of(db).host.abilities().save()
            if i % 5 == 3:
                db.configure(threading=("operator", "direct", "hybrid")[i // 5 % 3])
        while db.stream("f").given < SIZE * count:
            time.sleep(0.01)
        for stream in ("s", "r", "f"):
            db.close_stream(stream)
        for name in files:
            write(name, wait=True)
    (root / "done").touch()


def check(root: Path, count: int) -> None:
    """Everything is answered once, as the reference answers it."""
    for name, (query, answers) in _reference(count).items():
        text = CsvText(query.schema)
        lines = (root / f"{name}.csv").read_text().splitlines()
        assert Counter(lines) == Counter((text.head() + text.body(answers)).splitlines()), name


def wanted(count: int) -> dict[str, Counter[str]]:
    """What the queries answer."""
    return {name: Counter(map(repr, answers.to_pylist())) for name, (_, answers) in _reference(count).items()}


def _reference(count: int) -> dict[str, tuple[penstock.Query, pa.Table]]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        db.push("names", [(0, "zero"), (1, "one"), (2, "two")])
        queries = {name: db.query(text) for name, text in QUERIES.items()}
        for j in range(count):
            for stream in ("s", "r"):
                db.push(stream, batch(stream, j))
            db.push("f", in_order(j))
        for stream in ("s", "r", "f"):
            db.close_stream(stream)
        return {name: (query, query.fetch()) for name, query in queries.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
