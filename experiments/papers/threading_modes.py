"""001 §6.4: the time that five selections take with direct calls, a thread for each operator, and one thread for all.

A selection is a sub-query that answers a stream, so that the optimiser leaves the five apart; each is a filter, a
window, an emit and a stream of its own. Elements are pushed by 100, as fast as the database takes them, which is less
than the paper's 500,000 in a second. GTS and OTS work message by message, without trains, as the paper's do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from benchmarks.support.common import mean as average

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
_SIZES = (100_000, 150_000, 200_000)
_BUDGET = 75.0


@dataclass(frozen=True)
class Point:
    """Medians over the rounds: seconds until all is answered, and processor time that went into it."""

    way: str
    elements: int
    seconds: float
    cpu: float


@dataclass(frozen=True)
class Times:
    """All points. ``others``: processors that other processes kept busy meanwhile; None if that is not known."""

    rounds: int
    rows: int
    others: float | None
    points: tuple[Point, ...]

    def of(self, way: str) -> list[Point]:
        return [p for p in self.points if p.way == way]


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
    count, others = 0, Others()
    for i in rounds(_BUDGET * scale, 5):
        for m in sizes:
            for name, settings in WAYS.items():
                say(f"round {i + 1}: {m:,} elements, {name}")
                measured.setdefault((name, m), []).append(_measure(settings, values[:m]))
        count = i + 1
    points = [
        Point(name, m, median([s for s, _ in found]), median([c for _, c in found]))
        for (name, m), found in measured.items()
    ]
    return Times(count, ROWS, others.processors, tuple(points))


def _measure(settings: Mapping[str, Any], values: np.ndarray[Any, Any]) -> tuple[float, float]:
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
        query.fetch()
    return taken


def check(results: Times) -> list[Claim]:
    """DI < OTS < GTS; Chain and FIFO alike. By elapsed time, or by processor time where others disturbed it."""
    elapsed = {name: average([p.seconds / p.elements for p in results.of(name)]) for name in WAYS}
    cpu = {name: average([p.cpu / p.elements for p in results.of(name)]) for name in WAYS}
    used = {name: cpu[name] / elapsed[name] for name in WAYS}
    speed, kind = (cpu, "of processors") if disturbed(results.others) else (elapsed, "elapsed")
    gts = min(speed["GTS Chain"], speed["GTS FIFO"])

    def micro(*names: str) -> str:
        return ", ".join(f"{name} {1e6 * speed[name]:.2f}" for name in names) + f" µs {kind} per element"

    def lost(ots: str) -> str:
        text = micro(ots, "GTS Chain", "GTS FIFO")
        if speed[ots] < gts:
            return text
        more = cpu[ots] / min(cpu["GTS Chain"], cpu["GTS FIFO"])
        return (
            f"{text}; OTS kept {used[ots]:.2f} processors busy, since threads of one interpreter run Python in turn, "
            f"and took {more:.2f} times the processor time"
        )

    far = max(speed["GTS Chain"], speed["GTS FIFO"]) / gts
    return [
        Claim(
            "DI takes less time than OTS",
            speed["DI"] < speed["OTS"],
            f"{micro('DI', 'OTS')}; DI kept {used['DI']:.2f} processors busy, OTS {used['OTS']:.2f}",
        ),
        Claim("DI takes less time than GTS", speed["DI"] < gts, micro("DI", "GTS Chain", "GTS FIFO")),
        Claim("OTS takes less time than GTS", speed["OTS"] < gts, lost("OTS")),
        Claim("GTS takes nearly the same time with Chain as with FIFO", far < 1.25, f"{far:.2f} times"),
        Claim(
            "the time grows in proportion to the elements, for DI",
            _proportional([(p.cpu if disturbed(results.others) else p.seconds) / p.elements for p in results.of("DI")]),
            ", ".join(f"{p.elements:,}: {p.seconds:.2f} s" for p in results.of("DI")),
        ),
    ]


def _proportional(each: Sequence[float]) -> bool:
    return max(each) < 1.5 * min(each)


def draw(results: Times, folder: Path) -> list[Path]:
    """Figure 7."""
    made, (elapsed, cpu) = figure(
        f"{TITLE}\npushed by {results.rows} rows; medians of {results.rounds} rounds (cf. Figure 7)", 2, width=11
    )
    for ax, name, label in ((elapsed, "seconds", "time until all is answered [s]"), (cpu, "cpu", "processor time [s]")):
        lines(ax, {
            way: ([p.elements for p in results.of(way)], [getattr(p, name) for p in results.of(way)]) for way in WAYS
        })  # fmt: skip
        ax.set_xlabel("elements")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}k")
    return [save(made, folder / "001-figure-07-time.png")]
