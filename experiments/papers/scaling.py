"""001 §6.5: DI against OTS with one to 200 queries, each of five selections.

The queries differ so that they share nothing but the stream: equal ones would be one query here, and conditions that
compare a column with a constant would be looked up together. 200 of them are 4,600 operators, with OTS as many threads.
The same database switches between both ways while it runs.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.support.common import (
    Claim,
    Others,
    Say,
    batches,
    clock,
    database,
    disturbed,
    figure,
    lines,
    median,
    quiet,
    rounds,
    save,
)

from experiments.papers.threading_modes import WAYS, selections

if TYPE_CHECKING:
    from penstock.database.database import Database

TITLE = "001 §6.5: DI against OTS with more and more queries"
ROWS = 100
QUERIES = (1, 10, 50, 100, 200)
COMPARED = ("DI", "OTS")
_ELEMENTS = 2_000
_BUDGET = 75.0


@dataclass(frozen=True)
class Point:
    """Medians: seconds, elapsed and of processors, until all queries have answered all elements."""

    queries: int
    way: str
    threads: int
    seconds: float
    cpu: float
    rounds: int


@dataclass(frozen=True)
class Scaling:
    """All points."""

    elements: int
    others: float | None
    points: tuple[Point, ...]

    def of(self, way: str) -> list[Point]:
        return [p for p in self.points if p.way == way]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 65) -> Scaling:
    """Each number of queries in a database of its own; both ways take turns."""
    elements = max(ROWS, round(_ELEMENTS * scale / ROWS) * ROWS)
    counts = [max(1, round(n * min(scale, 1.0))) for n in QUERIES]
    counts = [1, *(n for n, before in zip(counts[1:], counts, strict=False) if n > before)]
    values = np.random.default_rng(seed).integers(0, 1_000_000, elements)
    points = []
    others = Others()
    for n in counts:
        say(f"{n} queries: registering")
        with database("s") as db:
            queries = [db.query(selections(i)) for i in range(n)]
            found: dict[str, list[tuple[float, float]]] = {way: [] for way in COMPARED}
            threads = dict.fromkeys(COMPARED, 0)
            first, done = 0, 0
            for i in rounds(_BUDGET * scale * n / sum(counts), max(3, 40 // n)):
                for way in COMPARED:
                    say(f"{n} queries, round {i + 1}: {way}")
                    db.configure(**WAYS[way])
                    while way == "DI" and db.graph().workers:
                        time.sleep(0.01)  # threads of before come to their end
                    threads[way] = db.graph().workers
                    found[way].append(_measure(db, values, first))
                    first += elements
                    for query in queries:
                        query.fetch()
                done = i + 1
            for way in COMPARED:
                seconds, cpu = (median(column) for column in zip(*found[way], strict=True))
                points.append(Point(n, way, threads[way], seconds, cpu, done))
    return Scaling(elements, others.processors, tuple(points))


def _measure(db: Database, values: np.ndarray[Any, Any], first: int) -> tuple[float, float]:
    tables = batches(values, ROWS, first)
    begun, cpu = clock(), time.process_time()
    for table in tables:
        db.push("s", table)
    db.settle()
    return clock() - begun, time.process_time() - cpu


def check(results: Scaling) -> list[Claim]:
    """The gap grows, in seconds and as a ratio; one step back of many does not count against it. By processor time
    where other processes disturbed the elapsed one."""
    gaps = _pairs(results)
    last, first = gaps[-1], gaps[0]
    kind = "of processors" if disturbed(results.others) else "elapsed"
    shown = ", ".join(f"{n}: {ots - di:+.3f} s" for n, di, ots in gaps) + f" {kind}"
    pairs = [b[2] - b[1] > a[2] - a[1] for a, b in itertools.combinations(gaps, 2)]
    grows = last[2] - last[1] > first[2] - first[1] and sum(pairs) >= 0.8 * len(pairs)
    ratios = [ots / di for _, di, ots in gaps]
    return [
        Claim(f"DI takes less time than OTS with {last[0]} queries", last[1] < last[2], f"{ratios[-1]:.2f} times"),
        Claim(f"the gap between DI and OTS grows from {first[0]} to {last[0]} queries", grows, shown),
        Claim(
            f"OTS loses more by ratio with {last[0]} queries than with {first[0]}",
            ratios[-1] > ratios[0],
            ", ".join(f"{n}: {r:.2f} times" for (n, _, _), r in zip(gaps, ratios, strict=True)),
        ),
    ]


def _pairs(results: Scaling) -> list[tuple[int, float, float]]:
    by = {(p.queries, p.way): p.cpu if disturbed(results.others) else p.seconds for p in results.points}
    return [(n, by[n, "DI"], by[n, "OTS"]) for n in sorted({p.queries for p in results.points})]


def draw(results: Scaling, folder: Path) -> list[Path]:
    """Figure 8, and the ratio beside it."""
    made, (times, ratio) = figure(
        f"{TITLE}\n{results.elements:,} elements, pushed by {ROWS} rows (cf. Figure 8)", 2, width=11
    )
    queries = [p.queries for p in results.of("DI")]
    series = {way: (queries, [p.seconds for p in results.of(way)]) for way in COMPARED}
    lines(times, series | {f"{way}, processor time": (queries, [p.cpu for p in results.of(way)]) for way in COMPARED})
    times.set_ylabel("time until all is answered [s]")
    gaps = _pairs(results)
    lines(ratio, {"OTS / DI": ([n for n, _, _ in gaps], [ots / di for _, di, ots in gaps])})
    ratio.set_ylabel(f"{'processor' if disturbed(results.others) else 'elapsed'} time of OTS in times of DI")
    for ax in (times, ratio):
        ax.set_xlabel("queries")
        ax.set_ylim(bottom=0)
    return [save(made, folder / "001-figure-08-queries.png")]
