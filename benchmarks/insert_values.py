"""INSERT … VALUES of many rows, against reading the same rows as CSV.

    python -m benchmarks.insert_values [--quick] [--scale X] [--rows N] [--rounds N]

The same rows go into a stream and into a relation, once as one INSERT statement with a row on each line and once from a
CSV file. Both sides take turns in one process; the least processor time of all turns counts, that of all threads.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import penstock
from benchmarks.support.report import Report, amount, options, progress
from penstock.database.database import core_of
from penstock.database.play import play

_COLUMNS = "(t BIGINT, at TIMESTAMP, room STRING, temperature DOUBLE, n INT, open BOOLEAN)"
_DECLARED = {"stream": f"CREATE STREAM s {_COLUMNS} TIMESTAMP BY t", "relation": f"CREATE RELATION s {_COLUMNS}"}


def rows(count: int) -> list[tuple[int, str, str, float, int, str]]:
    random = np.random.default_rng(1)
    degrees, numbers = random.uniform(0, 40, count).round(2).tolist(), random.integers(0, 1_000, count).tolist()
    return [
        (i, f"2024-05-{i % 28 + 1:02d} {i % 24:02d}:{i % 60:02d}:00", f"room {i % 50}", degrees[i], numbers[i],
         ("true", "false")[i % 2])
        for i in range(count)
    ]  # fmt: skip


def statement(values: list[tuple[int, str, str, float, int, str]]) -> str:
    lines = (f"({t}, '{at}', '{room}', {degrees}, {n}, {door})" for t, at, room, degrees, n, door in values)
    return "INSERT INTO s VALUES\n" + ",\n".join(lines)


def processor_seconds(declare: str, action: Callable[[penstock.Database], object], count: int) -> float:
    with penstock.connect(engine="local") as db:
        db.execute(declare)
        query = db.query("SELECT count(*) AS n FROM s")
        start = time.process_time()
        action(db)
        spent = time.process_time() - start
        db.settle()
        found = query.current().to_pylist()
    if found != [{"n": count}]:
        raise SystemExit(f"answers differ: {found}, there are {count} rows")
    return spent


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    count = args.rows or amount(args, 100_000)
    rounds = args.rounds or amount(args, 5, 1)
    report = Report("insert_values")
    values = rows(count)
    text = statement(values)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "s.csv")
        lines = (",".join(map(str, row)) for row in values)
        file.write_text("t,at,room,temperature,n,open\n" + "\n".join(lines) + "\n", encoding="utf-8")
        for kind, declare in _DECLARED.items():
            inserted, read = [], []
            for turn in range(rounds + 1):
                progress(f"{kind}: turn {turn} of {rounds}")
                inserted.append(processor_seconds(declare, lambda db: db.execute(text), count))
                read.append(processor_seconds(declare, lambda db: play(core_of(db), {"s": file}, close=False), count))
            # The first turn compiles kernels.
            ours, csv = min(inserted[1:]), min(read[1:])
            report.add(f"{kind}: INSERT of {count} rows, seconds of a processor", ours)
            report.add(f"{kind}: the same rows as CSV, seconds of a processor", csv)
            report.add(f"{kind}: INSERT … VALUES against CSV", ours / csv, 2, below=True)
    report.finish()


if __name__ == "__main__":
    main()
