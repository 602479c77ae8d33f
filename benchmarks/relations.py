"""INSERT, UPDATE and DELETE of one row of a stored relation, which must not cost more where it has more rows.

    python -m benchmarks.relations [--quick] [--scale X] [--rows N …] [--statements N]

Relations of several sizes get the same statements on the local engine: with and without KEY, read by no query, and by
one that joins a stream with the relation; then the time of the row of the stream that brings the change into the query
is part of it. The median of all statements of a kind counts, in processor time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress

BAR = 3.0
"""So many times longer than in the smallest relation may a statement take in the largest."""
_KINDS: dict[str, Callable[[int, int], str]] = {
    "insert": lambda size, i: f"INSERT INTO r VALUES ({size + i}, 1)",
    "update by key": lambda size, i: f"UPDATE r SET v = 7 WHERE k = {i}",
    "delete by key": lambda size, i: f"DELETE FROM r WHERE k = {i}",
}


def micros(size: int, statements: int, key: str, reading: bool) -> dict[str, float]:
    """The median of each kind of statement on a relation of a size."""
    with penstock.connect(engine="local") as db:
        db.execute(f"CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t; CREATE RELATION r (k INT, v INT){key}")
        db.push("r", pa.table({"k": np.arange(size, dtype=np.int32), "v": np.zeros(size, np.int32)}))
        query = db.query("SELECT ISTREAM s.k, v FROM s [NOW] JOIN r ON s.k = r.k") if reading else None
        found: dict[str, float] = {}
        at = 0
        db.push("s", [(at, -1)])
        gc.collect()
        for kind, text in _KINDS.items():
            times = []
            for i in range(statements + 5):
                at += 10
                said = text(size, i)
                start = time.process_time()
                db.execute(said)
                if reading:
                    db.push("s", [(at, i)])
                times.append(time.process_time() - start)
            # The first ones make indexes and compile.
            found[kind] = statistics.median(times[5:]) * 1e6
        if query is not None:
            values = query.fetch().column("v").to_pylist()
            if values != [0] * (statements + 5) + [7] * (statements + 5):
                raise SystemExit("the answers are wrong")
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--statements", type=int)
    args = parser.parse_args()
    sizes = args.rows or [1_000, amount(args, 100_000, 2_000), amount(args, 1_000_000, 4_000)]
    statements = args.statements or amount(args, 200, 20)
    report = Report("relations")
    for key in (" KEY (k)", ""):
        for reading in (False, True):
            case = f"{'with' if key else 'without'} KEY, {'a query reads it' if reading else 'nobody reads it'}"
            found = {}
            for size in sizes:
                progress(f"{case}: {size:,} rows")
                found[size] = micros(size, statements, key, reading)
            for kind in _KINDS:
                for size in sizes:
                    report.add(f"{kind}, {case}: µs with {size:,} rows", found[size][kind])
                ratio = found[sizes[-1]][kind] / found[sizes[0]][kind]
                report.add(f"{kind}, {case}: {sizes[-1]:,} rows against {sizes[0]:,}", ratio, BAR, below=True)
    report.finish()


if __name__ == "__main__":
    main()
