"""What the choice of a plan is worth: orders of joins, and overlapping windows from the one before or from nothing.

    python -m benchmarks.plans [--quick] [--scale X] [--rounds N]

*Orders*: a join of three streams, of which one is fast and one slow, in every order (``optimise = FALSE``), as the
rules order it when nothing is known, and as it is ordered when rows have come before the query is registered.
*Windows*: windows that overlap more and more, with ``reuse = TRUE``, with ``reuse = FALSE``, and as it is chosen.

Ways take turns, each time in another order, and the processor's time counts. The best way is the one with the least
median; others are compared with it round by round, and the median of these ratios counts. The bar: what is chosen
takes at most 1.1 times as long as the best way.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress

BAR = 1.1
CHOSEN = "chosen"
STREAMS = {"a": 1, "b": 4, "c": 200}
"""Ticks from one row to the next."""
THREE = (
    "SELECT a.v, b.v AS w, c.v AS x FROM a [RANGE 2000], b [RANGE 2000], c [RANGE 2000] WHERE a.k = b.k AND b.j = c.j"
)
WINDOW, COUNT = 4_000, 12
"""Rows of a window of each stream, and how many of them."""
OVERLAPS = (0, 10, 25, 50, 75, 90, 95)
SIZES = {40: 600, 400: 60, 40_000: 4}
"""Other sizes of windows, with their count: what a window costs by itself matters where it is small."""
SIZED, AT = ("few pairs", "join, groups", "groups"), (10, 25, 50, 75)
"""What they are tried with."""
SHAPES = {
    "join": "SELECT a.k, a.v, b.v AS w FROM a {0}, b {0} WHERE a.k = b.k",
    "few pairs": "SELECT a.k, a.v, b.v AS w FROM a {0}, b {0} WHERE a.k = b.k AND a.j = b.j",
    "join, groups": "SELECT a.j, count(*) AS n, avg(b.v) AS m FROM a {0}, b {0} WHERE a.k = b.k GROUP BY a.j",
    "groups": "SELECT k, count(*) AS n, avg(v) AS m FROM a {0} GROUP BY k",
    "distinct": "SELECT DISTINCT j FROM a {0}",
    "first 10": "SELECT k, v FROM a {0} ORDER BY v DESC LIMIT 10",
}
Way = Callable[[penstock.Database], penstock.Query]


def tables(ticks: int, steps: Mapping[str, int], keys: int) -> dict[str, pa.Table]:
    chance = np.random.default_rng(1)
    found = {}
    for name, step in steps.items():
        t = np.arange(0, ticks, step)
        columns: dict[str, Any] = {"t": t, "k": chance.integers(0, keys, len(t)), "j": chance.integers(0, 300, len(t))}
        found[name] = pa.table({**columns, "v": chance.random(len(t))})
    return found


def declared() -> penstock.Database:
    db = penstock.connect(engine="local")
    for name in STREAMS:
        db.execute(f"CREATE STREAM {name} (t BIGINT, k BIGINT, j BIGINT, v DOUBLE) TIMESTAMP BY t")
    return db


def worked(way: Way, data: Mapping[str, pa.Table], known: int, ticks: int, piece: int) -> tuple[float, int]:
    """Seconds of the processor for the rows after those that are ``known`` before the query; and its answers."""

    def push(since: int, upto: int) -> None:
        for name, table in data.items():
            first, last = np.searchsorted(table.column("t").to_numpy(), [since, upto])
            db.push(name, table.slice(first, last - first))

    answers = 0
    with declared() as db:
        push(0, known)
        query = way(db)
        gc.collect()  # of the way before
        began = time.process_time()
        for since in range(known, ticks, piece):
            push(since, min(ticks, since + piece))
            answers += len(query.fetch())
        return time.process_time() - began, answers


@dataclass(frozen=True)
class Compared:
    """The seconds of each way, round by round."""

    seconds: Mapping[str, Sequence[float]]

    @property
    def best(self) -> str:
        return min((name for name in self.seconds if name != CHOSEN), key=self.median)

    def median(self, way: str) -> float:
        return statistics.median(self.seconds[way])

    def ratio(self, way: str) -> float:
        """How many times as long as the best one it takes."""
        both = zip(self.seconds[way], self.seconds[self.best], strict=True)
        return statistics.median(mine / other for mine, other in both)

    def said(self) -> str:
        return ", ".join(f"{name} {self.median(name):.3f} s" for name in self.seconds)


def compared(
    ways: Mapping[str, Way], data: Mapping[str, pa.Table], known: int, ticks: int, rounds: int, what: str
) -> Compared:
    """The ways in turn, after a turn that does not count."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(rounds + 1):
        progress(f"{what}: turn {i} of {rounds}")
        answers = set()
        for name in random.Random(i).sample(list(ways), len(ways)):
            seconds, count = worked(ways[name], data, known, ticks, 1_000)
            answers.add(count)
            found[name].append(seconds)
        assert len(answers) == 1, f"{what}: ways differ: {answers}"
    return Compared({name: seconds[1:] for name, seconds in found.items()})


def by_plan(plan: object) -> Way:
    return lambda db: db.query(plan=plan, optimise=False)


def orders(report: Report, rounds: int, ticks: int) -> None:
    with declared() as db:
        found = json.loads(db.explain(THREE, "json", alternatives=True))
    plans = {each["description"]: each["plan"] for each in found["alternatives"]}
    ways: dict[str, Way] = {
        name: by_plan(plan) for name, plan in plans.items() if name.startswith(("optimised", "joins in the order"))
    }
    ways[CHOSEN] = lambda db: db.query(THREE)
    measured = compared(ways, tables(ticks, STREAMS, 300), ticks // 4, ticks, rounds, "orders")
    for name in plans.keys() & ways.keys():
        shown = name if name != "optimised" else "as the rules order it when nothing is known"
        report.add(f"plans: {shown}, against the best", measured.ratio(name))
    report.add(
        "plans: chosen order of joins against the best", measured.ratio(CHOSEN), BAR, below=True, note=measured.said()
    )


def windows(
    report: Report, rounds: int, size: int, count: int, shapes: Iterable[str] = SHAPES,
    overlaps: Iterable[int] = OVERLAPS,
) -> None:
    data = tables((count + 2) * size, {"a": 1, "b": 1}, 5_000)
    for shape in shapes:
        for overlap in overlaps:
            hop = size - size * overlap // 100
            query = SHAPES[shape].format(f"[HOPPING {size} EVERY {hop}]")
            ways: dict[str, Way] = {
                name: lambda db, query=query, reuse=reuse: db.query(query, reuse=reuse)  # type: ignore[misc]
                for name, reuse in (("from the one before", True), ("from nothing", False), (CHOSEN, None))
            }
            what = f"{shape}, {size:,} rows, {overlap} % overlap"
            measured = compared(ways, data, size, 2 * size + count * hop, rounds, what)
            report.add(
                f"plans: {what}: chosen against the better way", measured.ratio(CHOSEN), BAR, below=True,
                note=measured.said(),
            )  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    report = Report("plans")
    rounds = args.rounds or amount(args, 9, 1)
    orders(report, rounds, amount(args, 16_000, 4_000))
    windows(report, rounds, WINDOW, amount(args, COUNT, 3))
    for size, count in SIZES.items():
        windows(report, rounds, size, amount(args, count, 3), SIZED, AT)
    report.finish()


if __name__ == "__main__":
    main()
