"""A process that pushes rows and writes down every acknowledgement, until somebody kills it.

    python -m tests.durable.child DIRECTORY COUNT SYNC

Answers go to the file ``DIRECTORY.csv``; how long it is, is noted with what was delivered. It saves all the time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import pyarrow as pa

import penstock
from penstock.hosts.durable import keeper
from penstock.storage.store import checked_sync

DECLARE = """
CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t;
CREATE QUERY every AS SELECT ISTREAM t, k FROM s [ROWS 1];
CREATE QUERY sums AS SELECT k, sum(t) AS total FROM s [ROWS 7] GROUP BY k;
"""


def row(i: int) -> tuple[int, int]:
    return i, i * i % 5


def main(path: Path, count: int, sync: str) -> None:
    keeper.SECONDS = 0.005
    with penstock.connect(path, engine="local", sync=checked_sync(sync)) as db:
        if not db.queries:
            db.execute(DECLARE)
        out = path.with_suffix(".csv")
        with out.open("ab") as file:
            file.truncate(db.note().get("length", 0))

            def write(table: pa.Table) -> dict[str, object]:
                return written(file, table)

            print("ready", flush=True)
            for i in range(db.stream("s").given, count):
                db.push("s", [row(i)])
                print(i, flush=True)
                if i % 3 == 0:
                    db.queries["every"].transfer(write)
                    print("taken", db.queries["every"].answered, flush=True)
        print("done", flush=True)


def written(file: IO[bytes], table: pa.Table) -> dict[str, object]:
    """Write answers to a file; gives what is to be noted with that."""
    for t, k in zip(table.column("t").to_pylist(), table.column("k").to_pylist(), strict=True):
        file.write(b"%d,%d\n" % (t, k))
    file.flush()
    return {"length": file.seek(0, 2)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
