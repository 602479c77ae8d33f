"""001 §6.3: a join in the threads of its sources takes fewer elements than they offer; decoupled, it takes all.

Two sources push single elements, together 4,000 in a second on average, at random (Poisson arrivals), into a symmetric
hash join (an equality) and a symmetric nested-loops join (a comparison) of sliding windows. One thread has both
sources, since threads of one interpreter would run in turn anyway. *Direct*: the join runs in that thread. *Hybrid*: a
buffer is between the sources and the join. What has been pushed when the time is over, the sources have been able to
deliver; the rest autonomous sources would have lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.support.common import (
    Others,
    Say,
    clock,
    database,
    figure,
    median,
    quiet,
    rounds,
    save,
    wait_until,
)

from experiments.papers.judging import PROCESSOR, RATE, Claim, below, judged, least, poisson

TITLE = "001 §6.3: the necessity of decoupling"
OFFERED = 4_000
"""Elements in a second, from both sources together."""
JOINS: Mapping[str, str] = {
    "hash": "SELECT ISTREAM l.v FROM l [RANGE {0}], r [RANGE {0}] WHERE l.v = r.v AND l.w < r.w",
    "nested loops": "SELECT ISTREAM l.v FROM l [RANGE {0}], r [RANGE {0}] WHERE l.v < r.v AND l.w < r.w",
}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "direct": {"threading": "direct"},
    "hybrid": {"threading": "hybrid", "workers": 1},
}
ALL = 0.95
"""A source that delivers so much of what it offers delivers all of it: the last elements may still be on their way."""
_LASTS = 1.0
_BUDGET = 40.0


@dataclass(frozen=True)
class Taken:
    """A join in one way, and for each round: elements in a second that were taken, elements that waited in buffers at
    the end, and processor seconds of the sources' thread for an element."""

    join: str
    way: str
    rate: tuple[float, ...]
    waiting: tuple[int, ...]
    processor: tuple[float, ...]


@dataclass(frozen=True)
class Decoupling:
    """All of it. ``others``: for each round, processors that other processes kept busy."""

    lasts: float
    others: tuple[float | None, ...]
    taken: tuple[Taken, ...]

    def of(self, join: str, way: str) -> Taken:
        return next(t for t in self.taken if (t.join, t.way) == (join, way))


def run(scale: float = 1.0, say: Say = quiet, seed: int = 63) -> Decoupling:
    """Both ways take turns with the same elements."""
    lasts = max(0.05, _LASTS * min(scale, 1.0))
    found: dict[tuple[str, str], list[tuple[float, int, float]]] = {}
    others: list[float | None] = []
    for i in rounds(_BUDGET * scale, 9, least(scale)):
        busy = Others()
        for join, text in JOINS.items():
            for way, settings in WAYS.items():
                say(f"round {i + 1}: {join} join, {way}")
                found.setdefault((join, way), []).append(_measure(text, settings, lasts, seed + i))
        others.append(busy.processors)
    taken = [Taken(*key, *zip(*own, strict=True)) for key, own in found.items()]
    return Decoupling(lasts, tuple(others), tuple(taken))


def _measure(text: str, settings: Mapping[str, Any], lasts: float, seed: int) -> tuple[float, int, float]:
    chance = np.random.default_rng(seed)
    window = round(lasts / 2 * 1e6)
    with database() as db:
        for name in "lr":
            db.execute(f"CREATE STREAM {name} (ts BIGINT, v BIGINT, w BIGINT) TIMESTAMP BY ts")
        db.query(text.format(window))
        db.configure(**settings)
        elements = sorted((e for name in "lr" for e in _elements(chance, lasts, name)), key=lambda e: e[0])
        taken, begun, busy = 0, clock() + 0.05, time.thread_time()
        for at, name, table in elements:
            wait_until(begun + at)
            db.push(name, table)
            if clock() - begun > lasts:
                break
            taken += 1
        processor = (time.thread_time() - busy) / max(taken, 1)
        waiting = sum(e.buffer.elements for e in db.graph().edges if e.buffer is not None)
    return taken / len(elements) * OFFERED, waiting, processor


def _elements(chance: np.random.Generator, lasts: float, name: str) -> list[tuple[float, str, pa.Table]]:
    """When each comes, scaled so that the last comes before the end, and the element: of ``l`` from a range ten times
    as wide as of ``r``, as in the paper."""
    count = round(OFFERED / 2 * lasts)
    times = poisson(chance, count, 1.0)
    times = [0.98 * lasts * t / times[-1] for t in times]
    values = chance.integers(0, 1_000 if name == "l" else 100, (count, 2)).tolist()
    return [
        (at, name, pa.table({"ts": [round(at * 1e6)], "v": [v], "w": [w]}))
        for at, (v, w) in zip(times, values, strict=True)
    ]


def check(results: Decoupling) -> list[Claim]:
    """Of each join: direct takes fewer than offered, hybrid all."""
    claims = []
    for join in JOINS:
        direct, hybrid = (results.of(join, way) for way in WAYS)
        offered = [float(OFFERED)] * len(results.others)
        shown = f"{median(direct.rate):,.0f} of {OFFERED:,} rows in a second"
        claims.append(
            below(
                f"the {join} join in the sources' thread cannot keep pace",
                RATE,
                direct.rate,
                offered,
                results.others,
                shown,
                factor=ALL,
            )
        )
        claims.append(
            judged(
                f"the {join} join behind buffers takes all that is offered",
                RATE,
                [r >= ALL * OFFERED for r in hybrid.rate],
                results.others,
                f"{median(hybrid.rate):,.0f} of {OFFERED:,} rows in a second, "
                f"{median(hybrid.waiting):,.0f} wait at the end",
            )
        )
        claims.append(
            below(
                f"the {join} join behind buffers takes more than in the sources' thread",
                RATE,
                direct.rate,
                hybrid.rate,
                results.others,
            )
        )
        claims.append(
            below(
                f"(not the paper's) behind buffers the {join} join needs less of its sources' thread",
                PROCESSOR,
                hybrid.processor,
                direct.processor,
                results.others,
                f"{1e6 * median(hybrid.processor):.0f} against {1e6 * median(direct.processor):.0f} µs for an element",
            )
        )
    return claims


def draw(results: Decoupling, folder: Path) -> list[Path]:
    """Figure 6 as the rate that is taken."""
    made, (ax,) = figure(f"{TITLE}\n{OFFERED:,} elements offered in a second (cf. Figure 6)")
    names = [f"{t.join},\n{t.way}" for t in results.taken]
    ax.bar(names, [median(t.rate) for t in results.taken], color="#4f81bd")
    ax.axhline(OFFERED, color="grey", linestyle="--", linewidth=1, label="offered")
    ax.set_ylabel("elements taken in a second")
    ax.legend()
    return [save(made, folder / "001-figure-06-decoupling.png")]
