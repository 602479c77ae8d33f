"""Alarms under a backlog: filter → window join → project, on the local engine with workers.

    python -m benchmarks.alarms [--quick] [--scale X] [--rows N] [--alarms N]

A million ordinary readings wait in front of the query. Then alarms come in on the same stream, one after the other, and
are measured from ``push`` to the call of a subscriber. The same is done in mode ``normal``, where alarms wait like
everybody else. The answers of both must be the same multiset.
"""

from __future__ import annotations

import statistics
import threading
import time

import experiments  # noqa: F401 - modes to compare
import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress

MODES = ("strong", "direct", "weak", "strong1", "strong2", "normal")
DEVICES, CONTACTS = 2_000, 6
QUERY = """
ISTREAM (SELECT r.device, r.value, r.alarm, c.person
FROM readings [RANGE 1 SECOND] AS r, contacts [RANGE 1 HOUR] AS c
WHERE r.device = c.device AND r.value > 0.1)
"""
clock = time.perf_counter


def readings(rows: int) -> pa.Table:
    rng = np.random.default_rng(4)
    return pa.table(
        {
            "ts": 10_000_000 + np.arange(rows, dtype=np.int64),
            "device": rng.integers(0, DEVICES, rows),
            "value": rng.random(rows),
            "alarm": np.zeros(rows, np.int64),
        }
    )


class Watch:
    """When the first answer of each alarm came; the answers are kept to be counted later."""

    def __init__(self) -> None:
        self.came: dict[int, float] = {}
        self.answers: list[pa.Table] = []
        self.arrived = threading.Condition()

    def __call__(self, table: pa.Table) -> None:
        self.answers.append(table)
        alarm = table.column("alarm").to_numpy()
        if not alarm.any():
            return
        now = clock()
        with self.arrived:
            for number in np.unique(alarm[alarm > 0]).tolist():
                self.came.setdefault(number, now)
            self.arrived.notify_all()

    def wait(self, number: int, timeout: float) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: number in self.came, timeout)


def tally(table: pa.Table) -> tuple[int, int]:
    """How many answers, and a sum over what tells them apart, which does not depend on their order."""
    mixed = table.column("ts").cast(pa.int64()).to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for name in ("device", "alarm", "person"):
        mixed = (mixed ^ table.column(name).to_numpy().astype(np.uint64)) * np.uint64(0xC2B2AE3D27D4EB4F)
    return len(table), int(mixed.sum(dtype=np.uint64))


def measured(mode: str, rows: int, alarms: int) -> tuple[list[float], float, tuple[int, int]]:
    """Latencies in seconds of alarms that came while readings waited, the time all took, and a tally of the answers."""
    db = penstock.connect(engine="local")
    try:
        db.execute(
            "CREATE STREAM readings (ts BIGINT, device BIGINT, value DOUBLE, alarm BIGINT)"
            " TIMESTAMP BY ts PRIORITY BY alarm"
        )
        db.execute("CREATE STREAM contacts (ts BIGINT, device BIGINT, person BIGINT) TIMESTAMP BY ts")
        query = db.query(QUERY, name="calls")
        watch = Watch()
        query.subscribe(watch)
        db.configure(threading="graph", mode=mode)
        many = DEVICES * CONTACTS
        people = {"ts": np.arange(many), "device": np.arange(many) % DEVICES, "person": np.arange(many)}
        db.push("contacts", pa.table(people))
        db.heartbeat("contacts", 60_000_000)
        backlog = readings(rows)
        db.push("readings", backlog.slice(0, 1_000))
        db.settle()
        begun = clock()
        db.push("readings", backlog.slice(1_000))
        sent: dict[int, float] = {}
        for number in range(1, alarms + 1):
            row = {"ts": 10_000_000 + rows + number, "device": number % DEVICES, "value": 0.9, "alarm": number}
            waited = waiting(db)
            at = clock()
            db.push("readings", [row])
            if mode != "normal":
                watch.wait(number, 60)
            if waited:
                sent[number] = at
        db.settle()
        took = clock() - begun
        return [watch.came[number] - at for number, at in sent.items()], took, tally(pa.concat_tables(watch.answers))
    finally:
        db.close()


def waiting(db: penstock.Database) -> int:
    """Elements that wait somewhere."""
    return sum(edge.buffer.elements for edge in db.graph().edges if edge.buffer is not None)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--alarms", type=int)
    arguments = parser.parse_args()
    rows = arguments.rows or amount(arguments, 1_000_000, 50_000)
    alarms = arguments.alarms or (11 if arguments.quick else 41)
    measured("strong", 20_000, 3)  # compiles
    report = Report("alarms")
    medians, tallies = {}, {}
    for mode in MODES:
        progress(f"mode {mode}")
        latencies, took, tallies[mode] = measured(mode, rows, alarms)
        medians[mode] = statistics.median(latencies)
        worst = max(latencies) * 1e3
        report.add(
            f"{mode}: an alarm, ms (median)", medians[mode] * 1e3, 50.0 if mode == "strong" else None, below=True,
            note=f"longest {worst:,.1f} of {len(latencies)} under backlog; all {tallies[mode][0]:,} in {took:.2f} s",
        )  # fmt: skip
    report.add("normal / strong", medians["normal"] / medians["strong"], 50.0)
    same = all(tally == tallies["normal"] for tally in tallies.values())
    report.add("the same answers in every mode", float(same), 1.0)
    report.finish()


if __name__ == "__main__":
    main()
