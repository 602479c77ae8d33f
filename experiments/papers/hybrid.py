"""001 §6.6: a cheap projection and selection, then a selection that takes long; GTS by Chain and FIFO against HMTS.

Elements come in two bursts and steadily in between, as in the paper: of 70,000, a seventh at once, two sevenths in
half the time, two at once, two in the other half. The 160 s of the paper are 3 s at scale 1. Elements are pushed by
100; between bursts they come at random, as the paper's do (Poisson arrivals).

With the costs that the paper gives, all work fits into the time of arrivals, so nobody could finish as late as its
GTS does (260 s). Here the projection keeps a thread busy for 0.6 of that time and the long selection for 0.9, by
waiting without the interpreter's lock: too much for one thread, not for two. Claims are about the order of finishing
and of memory.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from benchmarks.support.common import (
    Others,
    Say,
    batches,
    clock,
    database,
    figure,
    mean,
    median,
    quiet,
    rounds,
    save,
    wait_until,
)

from experiments.papers.judging import (
    ELAPSED,
    LATENCY,
    WAITING,
    Claim,
    alike,
    below,
    least,
    multiset,
    poisson,
    same_answers,
)

if TYPE_CHECKING:
    from penstock.database.database import Database

TITLE = "001 §6.6: HMTS in comparison to GTS"
ROWS = 100
WAYS: Mapping[str, Mapping[str, Any]] = {
    "GTS Chain": {"threading": "graph", "strategy": "chain"},
    "GTS FIFO": {"threading": "graph", "strategy": "fifo"},
    "HMTS": {"threading": "hybrid", "strategy": "fifo", "workers": 2},
}
_LASTS = 3.0
_ELEMENTS = 70_000
_PASS = 9e-4
_CHEAP, _LONG = 0.6, 0.9
"""The parts of the time of arrivals for which the projection and the long selection keep a thread busy."""
_SAMPLES = 150
_BUDGET = 85.0


@dataclass(frozen=True)
class Curve:
    """One run: (seconds, elements that wait), (seconds, results so far), and when all was done."""

    way: str
    memory: tuple[tuple[float, int], ...]
    results: tuple[tuple[float, int], ...]
    finished: float

    def waiting(self, lasts: float) -> float:
        """Elements that wait, on average over the time of arrivals."""
        seen = [n for at, n in self.memory if at <= lasts]
        return mean(seen) if seen else 0.0

    @property
    def answered(self) -> float:
        """When a result comes, on average."""
        before, total = 0, 0.0
        for at, count in self.results:
            total += at * (count - before)
            before = count
        return total / max(before, 1)


@dataclass(frozen=True)
class Curves:
    """All runs. ``lasts``: seconds of arrivals. ``others``: for each round, processors that other processes kept busy.
    ``answers``: of each way."""

    elements: int
    lasts: float
    others: tuple[float | None, ...]
    curves: tuple[Curve, ...]
    answers: tuple[Counter[Hashable], ...]

    def of(self, way: str) -> list[Curve]:
        return [c for c in self.curves if c.way == way]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 66) -> Curves:
    """The ways take turns with the same elements."""
    lasts = _LASTS * scale
    elements = max(14 * ROWS, round(_ELEMENTS * min(scale, 1.0) / (7 * ROWS)) * 7 * ROWS)
    values = _values(seed, elements)
    curves: list[Curve] = []
    answers: dict[str, Counter[Hashable]] = {}
    others: list[float | None] = []
    for i in rounds(_BUDGET * scale, 5, least(scale)):
        busy = Others()
        arrivals = arrival_times(elements, lasts, seed + i)
        for name, settings in WAYS.items():
            say(f"round {i + 1}: {name}")
            curve, answers[name] = _measure(name, settings, values, arrivals, lasts)
            curves.append(curve)
        others.append(busy.processors)
    return Curves(elements, lasts, tuple(others), tuple(curves), tuple(answers.values()))


def _values(seed: int, elements: int) -> np.ndarray[Any, Any]:
    """9 in 10,000 are below 9,000 and reach the long selection, evenly spread, so that every seed has the same work.
    The last 2,000 of 70,000 do not, as the paper says of its own."""
    chance = np.random.default_rng(seed)
    values = chance.integers(9_000, 10_000_000, elements)
    rare = round(elements * _PASS)
    spread = np.linspace(0, elements * 68 / 70, rare, endpoint=False).astype(np.int64)
    values[spread] = chance.integers(1, 9_000, rare)
    return values


def arrival_times(elements: int, lasts: float, seed: int) -> list[float]:
    """When each batch comes, in seconds."""
    seventh, chance = elements // 7 // ROWS, np.random.default_rng(seed)

    def steadily() -> list[float]:
        times = poisson(chance, 2 * seventh, 1.0)
        return [lasts / 2 * t / times[-1] for t in times]

    return [0.0] * seventh + steadily() + [lasts / 2] * (2 * seventh) + [lasts / 2 + t for t in steadily()]


def _measure(
    name: str, settings: Mapping[str, Any], values: np.ndarray[Any, Any], arrivals: list[float], lasts: float
) -> tuple[Curve, Counter[Hashable]]:
    elements = len(values)
    count = max(1, round(elements * _PASS))
    cheap, long = _CHEAP * lasts / (elements / ROWS), _LONG * lasts / count
    with database("s") as db:
        _functions(db, cheap, long)
        query = db.query(
            "SELECT ISTREAM p FROM (SELECT ISTREAM p FROM (SELECT ISTREAM projected(v, ts) AS p FROM s) WHERE p < 9000)"
            " WHERE complex(p)"
        )
        # What operators cost is known before the first burst, to Chain and to the placement.
        before = max(ROWS, int(1 / _PASS) // ROWS * ROWS)
        warm = np.full(before, 9_999_999)
        warm[-1] = 1
        for table in batches(warm, ROWS, -before):
            db.push("s", table)
        query.fetch()
        db.configure(**settings)
        curve = _run(name, db, batches(values, ROWS), arrivals, lasts)
        return curve, multiset(query.fetch())


def _functions(db: Database, cheap: float, long: float) -> None:
    def projected(value: int, ts: int) -> int:
        if ts % ROWS == 0:  # the cost of 100 elements at once: nobody can wait for microseconds
            time.sleep(cheap)
        return value

    def complicated(value: int) -> bool:
        time.sleep(long)
        return value % 10 < 3

    db.create_function("projected", projected, args=["BIGINT", "BIGINT"], returns="BIGINT")
    db.create_function("complex", complicated, args=["BIGINT"], returns="BOOLEAN")


def _run(name: str, db: Database, tables: list[pa.Table], arrivals: list[float], lasts: float) -> Curve:
    (query,) = db.queries.values()
    results: list[tuple[float, int]] = [(0.0, 0)]
    memory: list[tuple[float, int]] = []
    done = threading.Event()
    begun = clock()

    def answered(table: pa.Table) -> None:
        results.append((clock() - begun, results[-1][1] + table.num_rows))

    def sample() -> None:
        while not done.wait(lasts / _SAMPLES):
            waiting = sum(e.buffer.elements for e in db.graph().edges if e.buffer is not None)
            memory.append((clock() - begun, waiting))

    query.subscribe(answered)
    sampler = threading.Thread(target=sample, name="sampler")
    sampler.start()
    try:
        for table, at in zip(tables, arrivals, strict=True):
            wait_until(begun + at)
            db.push("s", table)
        db.settle()
        finished = clock() - begun
    finally:
        done.set()
        sampler.join()
    return Curve(name, tuple(memory), tuple(results), finished)


def check(results: Curves) -> list[Claim]:
    """The order of finishing, of memory, and of the results."""
    others = results.others
    finished = {name: [c.finished for c in results.of(name)] for name in WAYS}
    waits = {name: [c.waiting(results.lasts) for c in results.of(name)] for name in WAYS}
    answered = {name: [c.answered for c in results.of(name)] for name in WAYS}

    def seconds(of: Mapping[str, list[float]], *names: str) -> str:
        return ", ".join(f"{name} {median(of[name]):.2f} s" for name in names)

    def waiting(*names: str) -> str:
        return ", ".join(f"{name} {median(waits[name]):,.0f}" for name in names) + " elements wait on average"

    chain, fifo, hmts = WAYS
    both = [min(own) for own in zip(finished[chain], finished[fifo], strict=True)]
    earlier = [min(own) for own in zip(answered[chain], answered[fifo], strict=True)]
    return [
        same_answers(
            "all ways have the same answers",
            results.answers,
            f"{len(results.answers)} ways, {sum(results.answers[0].values()):,} answers",
        ),
        alike(
            "Chain and FIFO take nearly the same time in all",
            ELAPSED,
            [finished[chain], finished[fifo]],
            1.1,
            others,
            seconds(finished, chain, fifo),
        ),
        below("Chain uses less memory than FIFO", WAITING, waits[chain], waits[fifo], others, waiting(chain, fifo)),
        below(
            "FIFO answers earlier than Chain",
            LATENCY,
            answered[fifo],
            answered[chain],
            others,
            seconds(answered, fifo, chain),
        ),
        below(
            "HMTS finishes first",
            ELAPSED,
            finished[hmts],
            both,
            others,
            f"{seconds(finished, *WAYS)}; arrivals last {results.lasts:.2f} s",
        ),
        below(
            "HMTS uses no more memory than Chain, within 10 %",
            WAITING,
            waits[hmts],
            waits[chain],
            others,
            waiting(hmts, chain),
            factor=1.1,
        ),
        below("HMTS answers earlier than both", LATENCY, answered[hmts], earlier, others, seconds(answered, *WAYS)),
    ]


def draw(results: Curves, folder: Path) -> list[Path]:
    """Figures 9 and 10: the run of each way whose finishing time is the median."""
    made = []
    for number, what, label in (
        ("09", "memory", "elements that wait in buffers"),
        ("10", "results", "results so far"),
    ):
        drawn, (ax,) = figure(
            f"{TITLE}: {what}\n{results.elements:,} elements in two bursts and steadily in between "
            f"(cf. Figure {int(number)})"
        )
        for name in WAYS:
            runs = sorted(results.of(name), key=lambda c: c.finished)
            curve = runs[len(runs) // 2]
            x, y = zip(*getattr(curve, what), strict=True)
            (line,) = ax.plot(x, y, drawstyle="steps-post" if what == "results" else "default", label=name)
            ax.axvline(curve.finished, color=line.get_color(), linestyle=":", linewidth=1)
        ax.axvline(results.lasts, color="grey", linestyle="--", linewidth=1, label="end of arrivals")
        ax.set_xlabel("time [s]; dotted: all done")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.legend()
        made.append(save(drawn, folder / f"001-figure-{number}-{what}.png"))
    return made
