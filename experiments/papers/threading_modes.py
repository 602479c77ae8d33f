"""001 §6.4: the time that five selections take with direct calls, a thread for each operator, and one thread for all.

A selection is a sub-query that answers a stream, so that the optimiser leaves the five apart; each is a filter, a
window, an emit and a stream of its own. Elements are pushed by 100, as fast as the database takes them, which is less
than the paper's 500,000 in a second. GTS and OTS work message by message, without trains, as the paper's do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

from experiments.papers.judging import ELAPSED, PROCESSOR, Claim, alike, below, least, multiset, same_answers

TITLE = "001 §6.4: five selections by DI, OTS and GTS"
SELECTIVITIES = (0.998, 0.996, 0.994, 0.992, 0.990)
ROWS = 100
WAYS: Mapping[str, Mapping[str, Any]] = {
    "DI": {"threading": "direct"},
    "OTS": {"threading": "operator", "strategy": "fifo"},
    "GTS Chain": {"threading": "graph", "strategy": "chain"},
    "GTS FIFO": {"threading": "graph", "strategy": "fifo"},
    "OTS in trains": {"threading": "operator", "strategy": "fifo+"},
}
_SIZES = (50_000, 100_000)
_BUDGET = 60.0


@dataclass(frozen=True)
class Point:
    """A value for each round: seconds until all is answered, and processor time that went into it."""

    way: str
    elements: int
    seconds: tuple[float, ...]
    cpu: tuple[float, ...]


@dataclass(frozen=True)
class Times:
    """All points. ``others``: for each round, processors that other processes kept busy meanwhile; None if that is not
    known. ``answers``: of each way, to the same elements."""

    rows: int
    others: tuple[float | None, ...]
    points: tuple[Point, ...]
    answers: tuple[Counter[Hashable], ...]

    def of(self, way: str) -> list[Point]:
        return [p for p in self.points if p.way == way]

    def each(self, way: str, field: str) -> list[float]:
        """For each round, seconds for an element, over all sizes."""
        own = self.of(way)
        elements = sum(p.elements for p in own)
        return [sum(values) / elements for values in zip(*(getattr(p, field) for p in own), strict=True)]


def selections(number: int = 0) -> str:
    """The query. Different numbers give queries that have nothing in common but the stream."""
    text = "s"
    for selectivity in SELECTIVITIES:
        limit = round(1000 * selectivity)
        text = f"(SELECT ISTREAM v FROM {text} WHERE (v * {limit + 1} + {number}) % 1000 < {limit})"
    return f"SELECT ISTREAM v FROM {text}"


def run(scale: float = 1.0, say: Say = quiet, seed: int = 64) -> Times:
    """All ways take turns with the same elements, in rounds."""
    sizes = [max(ROWS, round(m * scale / ROWS) * ROWS) for m in _SIZES]
    values = np.random.default_rng(seed).integers(0, 1_000_000, max(sizes))
    measured: dict[tuple[str, int], list[tuple[float, float]]] = {}
    answers: dict[str, Counter[Hashable]] = {}
    others: list[float | None] = []
    for i in rounds(_BUDGET * scale, 9, least(scale)):
        busy = Others()
        for m in sizes:
            for name, settings in WAYS.items():
                say(f"round {i + 1}: {m:,} elements, {name}")
                *taken, answers[name] = _measure(settings, values[:m])
                measured.setdefault((name, m), []).append((taken[0], taken[1]))
        others.append(busy.processors)
    points = [
        Point(name, m, tuple(s for s, _ in found), tuple(c for _, c in found)) for (name, m), found in measured.items()
    ]
    return Times(ROWS, tuple(others), tuple(points), tuple(answers.values()))


def _measure(settings: Mapping[str, Any], values: np.ndarray[Any, Any]) -> tuple[float, float, Counter[Hashable]]:
    with database("s") as db:
        query = db.query(selections())
        warm, *tables = batches(np.concatenate([values[:ROWS], values]), ROWS)
        db.push("s", warm)
        db.configure(**settings)
        db.settle()
        begun, cpu = clock(), time.process_time()
        for table in tables:
            db.push("s", table)
        db.settle()
        taken = clock() - begun, time.process_time() - cpu
        return *taken, multiset(query.fetch())


def check(results: Times) -> list[Claim]:
    """DI < OTS < GTS in elapsed time; Chain and FIFO alike. Of processor time what this project adds."""
    others = results.others
    elapsed = {name: results.each(name, "seconds") for name in WAYS}
    cpu = {name: results.each(name, "cpu") for name in WAYS}
    gts = [min(own) for own in zip(elapsed["GTS Chain"], elapsed["GTS FIFO"], strict=True)]
    cheapest = [min(own) for own in zip(cpu["GTS Chain"], cpu["GTS FIFO"], strict=True)]

    def micro(times: Mapping[str, list[float]], *names: str) -> str:
        return ", ".join(f"{name} {1e6 * median(times[name]):.2f}" for name in names) + " µs for an element"

    grows = [[s / p.elements for s in p.seconds] for p in results.of("DI")]
    return [
        same_answers(
            "all ways have the same answers",
            results.answers,
            f"{len(results.answers)} ways, {sum(results.answers[0].values()):,} answers",
        ),
        below(
            "DI takes less time than OTS", ELAPSED, elapsed["DI"], elapsed["OTS"], others, micro(elapsed, "DI", "OTS")
        ),
        below(
            "DI takes less time than GTS",
            ELAPSED,
            elapsed["DI"],
            gts,
            others,
            micro(elapsed, "DI", "GTS Chain", "GTS FIFO"),
        ),
        below(
            "OTS takes less time than GTS",
            ELAPSED,
            elapsed["OTS"],
            gts,
            others,
            micro(elapsed, "OTS", "GTS Chain", "GTS FIFO"),
        ),
        alike(
            "GTS takes nearly the same time with Chain as with FIFO",
            ELAPSED,
            [elapsed["GTS Chain"], elapsed["GTS FIFO"]],
            1.25,
            others,
        ),
        alike(
            "the time grows in proportion to the elements, for DI",
            ELAPSED,
            grows,
            1.5,
            others,
            ", ".join(f"{p.elements:,}: {median(p.seconds):.2f} s" for p in results.of("DI")),
        ),
        below(
            "(not the paper's) DI needs less of processors than OTS",
            PROCESSOR,
            cpu["DI"],
            cpu["OTS"],
            others,
            micro(cpu, "DI", "OTS"),
        ),
        below(
            "(not the paper's) DI needs less of processors than GTS",
            PROCESSOR,
            cpu["DI"],
            cheapest,
            others,
            micro(cpu, "DI", "GTS Chain", "GTS FIFO"),
        ),
        below(
            "(not the paper's) OTS in trains needs less of processors than OTS",
            PROCESSOR,
            cpu["OTS in trains"],
            cpu["OTS"],
            others,
            micro(cpu, "OTS in trains", "OTS"),
        ),
    ]


def draw(results: Times, folder: Path) -> list[Path]:
    """Figure 7."""
    made, (elapsed, cpu) = figure(
        f"{TITLE}\npushed by {results.rows} rows; medians of {len(results.others)} rounds (cf. Figure 7)", 2, width=11
    )
    for ax, name, label in ((elapsed, "seconds", "time until all is answered [s]"), (cpu, "cpu", "processor time [s]")):
        lines(
            ax,
            {
                way: ([p.elements for p in results.of(way)], [median(getattr(p, name)) for p in results.of(way)])
                for way in WAYS
            },
        )
        ax.set_xlabel("elements")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}k")
    return [save(made, folder / "001-figure-07-time.png")]
