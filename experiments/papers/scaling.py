"""001 §6.5: DI against OTS with one to 200 queries, each of five selections.

The queries differ so that they share nothing but the stream: equal ones would be one query here, and conditions that
compare a column with a constant would be looked up together. 200 of them are 4,600 operators, with OTS as many threads.
The same databases switch between both ways while they run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.support.common import (
    Others,
    Say,
    batches,
    clock,
    database,
    figure,
    lines,
    median,
    quiet,
    rounds,
    save,
)

from experiments.papers.judging import ELAPSED, PROCESSOR, Claim, Metric, below, judged, least, multiset, same_answers
from experiments.papers.threading_modes import WAYS, selections

if TYPE_CHECKING:
    from penstock.database.database import Database

TITLE = "001 §6.5: DI against OTS with more and more queries"
ROWS = 100
QUERIES = (1, 10, 50, 200)
COMPARED = ("DI", "OTS")
_ELEMENTS = 500
_BUDGET = 60.0


@dataclass(frozen=True)
class Point:
    """For each round: seconds, elapsed and of processors, until all queries have answered all elements."""

    queries: int
    way: str
    threads: int
    seconds: tuple[float, ...]
    cpu: tuple[float, ...]


@dataclass(frozen=True)
class Scaling:
    """All points. ``others``: for each round, processors that other processes kept busy. ``answers``: of each way, in
    the last round with the most queries."""

    elements: int
    others: tuple[float | None, ...]
    points: tuple[Point, ...]
    answers: tuple[Counter[Hashable], ...]

    def of(self, way: str) -> list[Point]:
        return [p for p in self.points if p.way == way]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 65) -> Scaling:
    """Each number of queries in a database of its own; both ways take turns."""
    elements = max(ROWS, round(_ELEMENTS * scale / ROWS) * ROWS)
    counts = [max(1, round(n * min(scale, 1.0))) for n in QUERIES]
    counts = [1, *(n for n, before in zip(counts[1:], counts, strict=False) if n > before)]
    values = np.random.default_rng(seed).integers(0, 1_000_000, elements)
    threads: dict[tuple[int, str], int] = {}
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    answers: dict[str, Counter[Hashable]] = {}
    others: list[float | None] = []
    with ExitStack() as open_ones:
        databases: dict[int, Database] = {}
        for n in counts:
            say(f"{n} queries: registering")
            databases[n] = open_ones.enter_context(database("s"))
            for i in range(n):
                databases[n].query(selections(i), name=f"q{i}")
        first = 0
        for i in rounds(_BUDGET * scale, 9, least(scale)):
            busy = Others()
            for n, db in databases.items():
                for way in COMPARED:
                    say(f"{n} queries, round {i + 1}: {way}")
                    db.configure(**WAYS[way])
                    while way == "DI" and db.graph().workers:
                        time.sleep(0.01)  # threads of before come to their end
                    threads[n, way] = db.graph().workers
                    found.setdefault((n, way), []).append(_measure(db, values, first))
                    answers[way] = Counter()
                    for query in db.queries.values():
                        answers[way] += multiset(query.fetch().select(["v"]))
                    first += elements
                db.configure(threading="direct")
            others.append(busy.processors)
    points = [
        Point(n, way, threads[n, way], *(tuple(column) for column in zip(*own, strict=True)))
        for (n, way), own in found.items()
    ]
    return Scaling(elements, tuple(others), tuple(points), tuple(answers.values()))


def _measure(db: Database, values: np.ndarray[Any, Any], first: int) -> tuple[float, float]:
    tables = batches(values, ROWS, first)
    begun, cpu = clock(), time.process_time()
    for table in tables:
        db.push("s", table)
    db.settle()
    return clock() - begun, time.process_time() - cpu


def check(results: Scaling) -> list[Claim]:
    """The gap grows with the queries, in seconds and as a ratio: round by round, the most against the fewest, and at
    least eight of ten steps."""
    most = results.of("DI")[-1].queries
    fewest = results.of("DI")[0].queries
    return [
        same_answers(
            "both ways have the same answers",
            results.answers,
            f"{most} queries, {sum(results.answers[0].values()):,} answers",
        ),
        *_claims(results, ELAPSED, "seconds", fewest, most),
        *_claims(results, PROCESSOR, "cpu", fewest, most),
    ]


def _claims(results: Scaling, metric: Metric, field: str, fewest: int, most: int) -> list[Claim]:
    di, ots = ([getattr(p, field) for p in results.of(way)] for way in COMPARED)
    gaps = [[b - a for a, b in zip(*own, strict=True)] for own in zip(di, ots, strict=True)]
    ratios = [[b / a for a, b in zip(*own, strict=True)] for own in zip(di, ots, strict=True)]
    counts = [p.queries for p in results.of("DI")]
    grows = [_grows(own) for own in zip(*gaps, strict=True)]
    more, what = ("", "time") if metric is ELAPSED else ("(not the paper's) ", "processor time")
    return [
        below(f"{more}DI takes less {what} than OTS with {most} queries", metric, di[-1], ots[-1], results.others),
        judged(
            f"{more}the gap in {what} between DI and OTS grows from {fewest} to {most} queries",
            metric,
            grows,
            results.others,
            ", ".join(f"{n}: {median(g):+.3f} s" for n, g in zip(counts, gaps, strict=True)),
        ),
        below(
            f"{more}OTS loses more by ratio of {what} with {most} queries than with {fewest}",
            metric,
            ratios[0],
            ratios[-1],
            results.others,
            ", ".join(f"{n}: {median(r):.2f} times" for n, r in zip(counts, ratios, strict=True)),
        ),
    ]


def _grows(gaps: tuple[float, ...]) -> bool:
    steps = [b > a for i, a in enumerate(gaps) for b in gaps[i + 1 :]]
    return gaps[-1] > gaps[0] and sum(steps) >= 0.8 * len(steps)


def draw(results: Scaling, folder: Path) -> list[Path]:
    """Figure 8, and the ratio beside it."""
    made, (times, ratio) = figure(
        f"{TITLE}\n{results.elements:,} elements, pushed by {ROWS} rows (cf. Figure 8)", 2, width=11
    )
    queries = [p.queries for p in results.of("DI")]
    for field, label in (("seconds", ""), ("cpu", ", processor time")):
        of = {way: [median(getattr(p, field)) for p in results.of(way)] for way in COMPARED}
        lines(times, {f"{way}{label}": (queries, own) for way, own in of.items()})
        lines(ratio, {f"OTS / DI{label}": (queries, [b / a for a, b in zip(*of.values(), strict=True)])})
    times.set_ylabel("time until all is answered [s]")
    ratio.set_ylabel("time of OTS in times of DI")
    for ax in (times, ratio):
        ax.set_xlabel("queries")
        ax.set_ylim(bottom=0)
    return [save(made, folder / "001-figure-08-queries.png")]
