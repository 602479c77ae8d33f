"""A process with databases to which nothing comes, one for each way of threading.

    python -m tests.durable.idle DIRECTORY SECONDS

Each has had rows, queries and results, and has saved its state by itself. Then the process waits for SECONDS. It prints
as JSON which files were written meanwhile, and which part of a core all its threads took.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import penstock
from penstock.database.database import core_of
from penstock.hosts.durable import keeper
from tests.durable.disks import host_of

WAYS = ("direct", "graph", "operator", "hybrid")
_SAVE = 0.05
_DEADLINE = 60.0
_DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t SLACK 5;
CREATE STREAM kept (t BIGINT, k BIGINT) TIMESTAMP BY t WITH (retain = 50);
CREATE STREAM stamped (k BIGINT);
CREATE RELATION r (k BIGINT, v BIGINT) KEY (k);
CREATE QUERY one AS SELECT k, count(*) AS n FROM s [RANGE 10] GROUP BY k;
CREATE QUERY two AS SELECT ISTREAM s.k AS k, r.v AS v FROM s [NOW], r WHERE s.k = r.k;
CREATE QUERY three AS SELECT count(*) AS n FROM stamped [RANGE 1 SECOND];
CREATE STREAM silent (t BIGINT, k BIGINT) TIMESTAMP BY t WITH (idle = '50 ms');
CREATE QUERY four AS SELECT ISTREAM silent.k AS k FROM silent [ROWS 1], s [ROWS 1] MASTER s;
"""


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """When each file was written last, and what it has."""
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def is_saved(db: penstock.Database) -> bool:
    """Whether the saver has nothing more to do, and nothing waits for the clock."""
    kept = host_of(db)._kept
    assert kept is not None
    saved = kept.keeper.store.saved == kept.keeper.store.number and not kept.keeper.changed.is_set()
    return saved and core_of(db).left() == math.inf


def main(folder: Path, seconds: float) -> None:
    keeper.SECONDS = _SAVE  # the wait is much longer than that
    with ExitStack() as stack:
        databases = [stack.enter_context(penstock.connect(folder / way, engine="local")) for way in WAYS]
        for db, way in zip(databases, WAYS, strict=True):
            db.execute(_DECLARE)
            db.configure(threading=way)
            db.execute("INSERT INTO r VALUES (1, 1)")
            db.push("s", [(i, i % 3) for i in range(100)])
            db.push("kept", [(i, i % 3) for i in range(100)])
            db.push("stamped", [(1,)])
            db.push("silent", [(1, 1)])
            db.queries["one"].subscribe(lambda table: None)
            db.settle()
        until = time.monotonic() + _DEADLINE
        while not all(map(is_saved, databases)) and time.monotonic() < until:
            time.sleep(_SAVE)
        before, used = contents(folder), time.process_time()
        threading.Event().wait(seconds)
        used = time.process_time() - used
        after = contents(folder)
        saved = all(map(is_saved, databases))
        written = sorted({path for path, _ in before.items() ^ after.items()})
        threads = threading.active_count()
        print(json.dumps({"saved": saved, "written": written, "share": used / seconds, "threads": threads}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
