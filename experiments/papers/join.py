"""003 5.4.2.3: a hash join fed at different rates; and joining overlapping windows with and without reuse.

The first experiment runs on the database: an equi-join of two sliding windows, a worker for each operator, which
rests while nothing waits (strategy ``flow``). Elements come as in five windows of 20,000 that overlap by a tenth,
pushed by 100; the thesis' 100 to 8,000 elements in a second and flooding are 230 times as many here. The second
compares the two ways of ``experiments.overlap_join`` by themselves, for overlaps of 10 to 75 %.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.support.common import (
    Claim,
    Say,
    batches,
    clock,
    database,
    figure,
    lines,
    mean,
    median,
    quiet,
    rounds,
    save,
    wait_until,
)

from experiments.overlap_join import OverlapJoin
from penstock.model.types import BIGINT
from penstock.plan.window import Generic

TITLE = "003 5.4.2.3: hash join"
RATES = (100, 150, 200, 400, 800, 1_600, 3_000, 8_000, math.inf)
"""Elements in a second from each stream, in the thesis; the last is as fast as can be."""
FASTER = 230
OVERLAPS = (0.1, 0.25, 0.5, 0.75)
WINDOWS = 5
ROWS = 100
MATCHES = 10
"""Rows of the other stream in the window that a row meets, in the second experiment."""
_TUPLES = 20_000
_BUDGET = 60.0


@dataclass(frozen=True)
class Fed:
    """Medians at one rate: seconds in all, average seconds from arrival to result, and the most elements that waited
    in a buffer. ``rate``: as in the thesis."""

    rate: float
    seconds: float
    latency: float
    waiting: float


@dataclass(frozen=True)
class Overlapped:
    """Medians for one overlap: processor seconds for all windows and, on average, for one to be answered when its last
    element comes; rows and pairs remembered at most; rows that were put into a table and looked up."""

    overlap: float
    reuse: bool
    seconds: float
    response: float
    remembered: int
    work: int


@dataclass(frozen=True)
class Joins:
    """Both experiments."""

    tuples: int
    fed: tuple[Fed, ...]
    overlapped: tuple[Overlapped, ...]

    def ways(self, reuse: bool) -> list[Overlapped]:
        return [o for o in self.overlapped if o.reuse is reuse]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 54) -> Joins:
    """The rates take turns with the same elements, then the overlaps."""
    tuples = max(500, round(_TUPLES * min(scale, 1.0) / ROWS) * ROWS)
    count = round((tuples + (WINDOWS - 1) * tuples * 0.9) / ROWS) * ROWS
    chance = np.random.default_rng(seed)
    keys = chance.integers(0, tuples, count), chance.integers(0, tuples, count)
    found: dict[float, list[tuple[float, float, int]]] = {}
    for i in rounds(_BUDGET * scale, 3):
        for rate in RATES:
            say(f"round {i + 1}: {rate:,} elements in a second")
            found.setdefault(rate, []).append(_feed(keys, tuples, rate * FASTER))
    fed = [Fed(rate, *(median(column) for column in zip(*own, strict=True))) for rate, own in found.items()]
    _overlap(_keys(chance, 2_500, 50), 500, 0.5, True)  # compiles what is compiled
    measured: dict[tuple[float, bool], list[Overlapped]] = {}
    made = _keys(chance, WINDOWS * tuples, tuples // MATCHES)
    for i in rounds(_BUDGET / 3 * scale, 5):
        for overlap in OVERLAPS:
            for reuse in (False, True):
                say(f"round {i + 1}: overlap {overlap:.0%}, {'with' if reuse else 'without'} reuse")
                measured.setdefault((overlap, reuse), []).append(_overlap(made, tuples, overlap, reuse))
    overlapped = [
        Overlapped(*key, median([o.seconds for o in own]), median([o.response for o in own]), own[0].remembered,
                   own[0].work)
        for key, own in measured.items()
    ]  # fmt: skip
    return Joins(tuples, tuple(fed), tuple(overlapped))


def _keys(chance: np.random.Generator, count: int, different: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Each key equally often in every window, in an order of its own."""
    parts = range(-(-count // different))
    return tuple(np.concatenate([chance.permutation(different) for _ in parts])[:count] for _ in range(2))


def _feed(keys: tuple[np.ndarray[Any, Any], ...], tuples: int, rate: float) -> tuple[float, float, int]:
    with database("l", "r") as db:
        query = db.query(f"SELECT ISTREAM l.v FROM l [RANGE {tuples}], r [RANGE {tuples}] WHERE l.v = r.v")
        db.configure(threading="operator", strategy="flow")
        left, right = (batches(column, ROWS, 0) for column in keys)
        latencies: list[tuple[float, int]] = []
        arrived: list[float] = []

        def answered(table: pa.Table) -> None:
            moments = np.asarray(arrived)[table["ts"].to_numpy().astype(np.int64) // ROWS]
            latencies.append((float((clock() - moments).sum()), len(moments)))

        query.subscribe(answered)
        begun = clock()
        for i, (one, other) in enumerate(zip(left, right, strict=True)):
            wait_until(begun + i * ROWS / rate)
            arrived.append(clock())
            db.push("l", one)
            db.push("r", other)
        for name, column in zip("lr", keys, strict=True):
            db.heartbeat(name, len(column))
        db.settle()
        seconds = clock() - begun
        waiting = max(e.buffer.peak for e in db.graph().edges if e.buffer is not None)
    total, count = (sum(column) for column in zip(*latencies, strict=True))
    return seconds, total / count, waiting


def _overlap(
    keys: tuple[np.ndarray[Any, Any], ...], tuples: int, overlap: float, reuse: bool, step: int = 1_000
) -> Overlapped:
    hop = round(tuples * (1 - overlap))
    count = tuples + (WINDOWS - 1) * hop
    join = OverlapJoin(Generic("tuples", 1, tuples, hop, hop, count), [BIGINT], reuse=reuse)
    seconds, windows = 0.0, 0
    for i in range(0, count, step):
        upto = min(i + step, count)
        ts = np.arange(i, upto, dtype=np.int64)
        left, right = ((ts, [pa.array(column[i:upto])]) for column in keys)
        begun = time.process_time()
        answered = join.process(left, right)
        if answered:
            seconds += time.process_time() - begun
            windows += len(answered)
    assert windows == WINDOWS, f"{windows} windows of {WINDOWS}"
    work = join.work
    return Overlapped(overlap, reuse, seconds, seconds / windows, work.peak_rows + work.peak_pairs, work.rows)


def check(results: Joins) -> list[Claim]:
    """What the thesis observes, of both experiments."""
    fed, (slow, *_, fast) = results.fed, results.fed
    times = ", ".join(f"{_rate(f.rate)}: {f.seconds:.2f} s" for f in fed)
    last = [f.seconds for f in fed[-3:]]
    differ = (max(last) - min(last)) / slow.seconds
    without, reused = results.ways(False), results.ways(True)
    constant = max(o.seconds for o in without) / min(o.seconds for o in without)

    def shown(name: str, factor: float, unit: str) -> str:
        return "; ".join(
            f"{a.overlap:.0%}: {factor * getattr(a, name):,.3g} without, {factor * getattr(b, name):,.3g} {unit} with"
            for a, b in zip(without, reused, strict=True)
        )

    return [
        Claim("the total time falls as the rate rises", fast.seconds < 0.8 * slow.seconds, times),
        Claim(
            "from some rate on the total time stays the same",
            differ < 0.25,
            f"the last three differ by {differ:.0%} of the time at the lowest rate",
        ),
        Claim(
            "the average latency rises with the rate",
            fast.latency > 2 * slow.latency,
            f"{1e3 * slow.latency:.1f} ms at {_rate(slow.rate)}, {1e3 * fast.latency:.1f} ms when flooded",
        ),
        Claim(
            "more elements wait in buffers as the rate rises",
            fast.waiting > 2 * slow.waiting,
            f"at most {slow.waiting:,.0f} at {_rate(slow.rate)}, {fast.waiting:,.0f} when flooded",
        ),
        Claim(
            "without reuse the total time does not depend on the overlap", constant < 1.4, f"{constant:.2f} times"
        ),
        Claim(
            "with reuse the total time falls as the overlap grows",
            reused[-1].seconds < reused[0].seconds,
            shown("seconds", 1e3, "ms"),
        ),
        Claim(
            "with reuse less work is done at every overlap",
            all(b.work < a.work for a, b in zip(without, reused, strict=True)),
            shown("work", 1, "rows"),
        ),
        Claim(
            "with reuse a window is answered sooner",
            mean([b.response for b in reused]) < mean([a.response for a in without]),
            shown("response", 1e3, "ms"),
        ),
        Claim(
            "with reuse more is remembered, the more the windows overlap",
            all(b.remembered > a.remembered for a, b in zip(without, reused, strict=True))
            and all(b.remembered > a.remembered for a, b in itertools.pairwise(reused)),
            shown("remembered", 1, "rows and pairs"),
        ),
    ]


def _rate(rate: float) -> str:
    return "flooded" if math.isinf(rate) else f"{rate * FASTER:,.0f}/s"


def draw(results: Joins, folder: Path) -> list[Path]:
    """Figures 5.9 to 5.14."""
    fed, paths = results.fed, []
    places = range(len(fed))
    for number, field, factor, label in (
        ("09", "seconds", 1.0, "total time [s]"),
        ("10", "latency", 1e3, "average latency of results [ms]"),
        ("11", "waiting", 1.0, "most elements in a buffer"),
    ):
        made, (ax,) = figure(f"{TITLE} fed at different rates\n{WINDOWS} windows of {results.tuples:,} elements, "
                             f"overlap 10 % (cf. Figure 5.{int(number)})")  # fmt: skip
        ax.plot(places, [factor * getattr(f, field) for f in fed], marker="o", label="join of sliding windows")
        ax.set_xticks(places, ["flooded" if math.isinf(f.rate) else f"{f.rate * FASTER / 1000:,.0f}k" for f in fed])
        ax.set_xlabel("elements per second from each stream")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.legend()
        paths.append(save(made, folder / f"003-figure-5.{number}-{field}.png"))
    for number, field, factor, label in (
        ("12", "seconds", 1e3, "processor time for all windows [ms]"),
        ("13", "response", 1e3, "processor time until a window is answered [ms]"),
        ("14", "remembered", 1.0, "rows and pairs remembered at most"),
    ):
        made, (ax,) = figure(f"{TITLE} with and without reuse\n{WINDOWS} windows of {results.tuples:,} elements "
                             f"(cf. Figure 5.{number})")  # fmt: skip
        lines(ax, {
            name: ([100 * o.overlap for o in own], [factor * getattr(o, field) for o in own])
            for name, own in (("without reuse", results.ways(False)), ("with reuse", results.ways(True)))
        })  # fmt: skip
        ax.set_xlabel("overlap of windows [%]")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
        paths.append(save(made, folder / f"003-figure-5.{number}-{field}.png"))
    return paths
