"""003 5.4.2.3: a hash join fed at different rates; and joining overlapping windows with and without reuse.

Both run on the database, with the operators that queries use. The first is an equi-join of two sliding windows, a
worker for each operator, which rests while nothing waits (strategy ``flow``). Elements come as in five windows of
20,000 that overlap by a tenth, pushed by 100, at random (Poisson arrivals); the thesis' 100 to 8,000 elements in a
second and flooding are 230 times as many here. The second is an equi-join of bounded windows (``BEGIN WINDOW … HOP SIZE
…``) for overlaps of 10 to 75 %. *With reuse* the operators keep their state from window to window, *without* they begin
each window from nothing: ``penstock.graph.bounded`` has both.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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
    wait_until,
)

from experiments.papers.judging import (
    COUNT,
    ELAPSED,
    LATENCY,
    PROCESSOR,
    WAITING,
    Claim,
    alike,
    below,
    judged,
    least,
    multiset,
    poisson,
    same_answers,
)

TITLE = "003 5.4.2.3: hash join"
RATES = (100, 400, 1_600, 8_000, math.inf)
"""Elements in a second from each stream, of those in the thesis; the last is as fast as can be."""
FASTER = 230
OVERLAPS = (0.1, 0.25, 0.5, 0.75)
WINDOWS = 5
ROWS = 100
MATCHES = 4
"""Rows of the other stream in the window that a row meets, in the second experiment."""
_TUPLES = 20_000
_BOUNDED = 2_500
"""Tuples of a window, in the first and in the second experiment."""
_BUDGET = 45.0
_FIRST = "SELECT ISTREAM l.v FROM l [RANGE {0}], r [RANGE {0}] WHERE l.v = r.v"
_WINDOW = "[BEGIN WINDOW 1 TUPLE END WINDOW {0} TUPLE HOP SIZE ({1} TUPLES, {1} TUPLES) END QUERY {2} TUPLE]"
_SECOND = f"SELECT l.v, l.ts AS one, r.ts AS other FROM l {_WINDOW}, r {_WINDOW} WHERE l.v = r.v"


@dataclass(frozen=True)
class Fed:
    """One rate, as in the thesis, and for each round: seconds in all, average seconds from arrival to result, and the
    most elements that waited in a buffer."""

    rate: float
    seconds: tuple[float, ...]
    latency: tuple[float, ...]
    waiting: tuple[float, ...]


@dataclass(frozen=True)
class Overlapped:
    """One overlap, and for each round: processor seconds and elapsed seconds for all windows, and elapsed seconds for
    one to be answered when its last element comes, on average, and the most rows that the operators remember."""

    overlap: float
    reuse: bool
    processor: tuple[float, ...]
    seconds: tuple[float, ...]
    response: tuple[float, ...]
    remembered: tuple[int, ...]


@dataclass(frozen=True)
class Joins:
    """Both experiments. ``others``, ``others_overlapped``: for each round of them, processors that other processes kept
    busy. ``answers``: of each rate, and of each overlap without and with reuse."""

    tuples: int
    others: tuple[float | None, ...]
    fed: tuple[Fed, ...]
    others_overlapped: tuple[float | None, ...]
    overlapped: tuple[Overlapped, ...]
    answers: tuple[Counter[Hashable], ...]
    answers_overlapped: tuple[tuple[Counter[Hashable], Counter[Hashable]], ...]

    def ways(self, reuse: bool) -> list[Overlapped]:
        return [o for o in self.overlapped if o.reuse is reuse]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 54) -> Joins:
    """The rates take turns with the same elements, then the overlaps."""
    tuples = max(500, round(_TUPLES * min(scale, 1.0) / ROWS) * ROWS)
    count = round((tuples + (WINDOWS - 1) * tuples * 0.9) / ROWS) * ROWS
    chance = np.random.default_rng(seed)
    keys = chance.integers(0, tuples, count), chance.integers(0, tuples, count)
    found: dict[float, list[tuple[float, float, float]]] = {}
    answers: dict[float, Counter[Hashable]] = {}
    others: list[float | None] = []
    for i in rounds(_BUDGET * scale, 7, least(scale)):
        busy = Others()
        for rate in RATES:
            say(f"round {i + 1}: {rate:,} elements in a second")
            *measured, given = _feed(keys, tuples, rate * FASTER, seed + i)
            found.setdefault(rate, []).append((measured[0], measured[1], measured[2]))
            if rate not in answers:
                answers[rate] = multiset(given)
        others.append(busy.processors)
    fed = [Fed(rate, *zip(*own, strict=True)) for rate, own in found.items()]
    size = max(500, round(_BOUNDED * min(scale, 1.0) / ROWS) * ROWS)
    pairs = _keys(chance, WINDOWS * size, size // MATCHES)
    measured_ways: dict[tuple[float, bool], list[tuple[float, float, float, int]]] = {}
    given_ways: dict[tuple[float, bool], Counter[Hashable]] = {}
    others_overlapped: list[float | None] = []
    for i in rounds(_BUDGET / 2 * scale, 9, least(scale)):
        busy = Others()
        for way in itertools.product(OVERLAPS, (False, True)):
            say(f"round {i + 1}: overlap {way[0]:.0%}, {'with' if way[1] else 'without'} reuse")
            *own, given = _overlap(pairs, size, *way)
            measured_ways.setdefault(way, []).append((own[0], own[1], own[2], round(own[3])))
            if way not in given_ways:
                given_ways[way] = multiset(given)
        others_overlapped.append(busy.processors)
    overlapped = []
    for (overlap, reuse), made in measured_ways.items():
        processor, seconds, response, remembered = zip(*made, strict=True)
        overlapped.append(Overlapped(overlap, reuse, processor, seconds, response, remembered))
    return Joins(
        tuples,
        tuple(others),
        tuple(fed),
        tuple(others_overlapped),
        tuple(overlapped),
        tuple(answers.values()),
        tuple((given_ways[overlap, False], given_ways[overlap, True]) for overlap in OVERLAPS),
    )


def _keys(chance: np.random.Generator, count: int, different: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Each key equally often in every window, in an order of its own."""
    parts = range(-(-count // different))
    return tuple(np.concatenate([chance.permutation(different) for _ in parts])[:count] for _ in range(2))


def _feed(
    keys: tuple[np.ndarray[Any, Any], ...], tuples: int, rate: float, seed: int
) -> tuple[float, float, float, pa.Table]:
    with database("l", "r") as db:
        query = db.query(_FIRST.format(tuples))
        db.configure(threading="operator", strategy="flow")
        left, right = (batches(column, ROWS, 0) for column in keys)
        comes = poisson(np.random.default_rng(seed), len(left), rate / ROWS)
        latencies: list[tuple[float, int]] = []
        arrived: list[float] = []

        def answered(table: pa.Table) -> None:
            moments = np.asarray(arrived)[table["ts"].to_numpy().astype(np.int64) // ROWS]
            latencies.append((float((clock() - moments).sum()), len(moments)))

        query.subscribe(answered)
        begun = clock()
        for one, other, at in zip(left, right, comes, strict=True):
            wait_until(begun + at)
            arrived.append(clock())
            db.push("l", one)
            db.push("r", other)
        for name, column in zip("lr", keys, strict=True):
            db.heartbeat(name, len(column))
        db.settle()
        seconds = clock() - begun
        waiting = max(e.buffer.peak for e in db.graph().edges if e.buffer is not None)
        given = query.fetch()
    total, count = (sum(column) for column in zip(*latencies, strict=True))
    return seconds, total / count, float(waiting), given


def _overlap(
    keys: tuple[np.ndarray[Any, Any], ...], size: int, overlap: float, reuse: bool
) -> tuple[float, float, float, int, pa.Table]:
    hop = round(size * (1 - overlap))
    count = size + (WINDOWS - 1) * hop
    text = _SECOND.format(size, hop, count)
    with database("l", "r") as db:
        query = db.query(text, reuse=reuse)
        left, right = (batches(column[:count], ROWS) for column in keys)
        response, remembered, answered = 0.0, 0, 0
        begun, busy = clock(), time.process_time()
        for one, other in zip(left, right, strict=True):
            before = clock()
            db.push("l", one)
            db.push("r", other)
            if query.answered > answered:  # a window has ended
                response += (clock() - before) / WINDOWS
                remembered = max(remembered, sum(o.rows or 0 for o in db.graph().operators))
                answered = query.answered
        processor, seconds = time.process_time() - busy, clock() - begun
        return processor, seconds, response, remembered, query.fetch()


def check(results: Joins) -> list[Claim]:
    """What the thesis observes, of both experiments."""
    fed, (slow, *_, fast), others = results.fed, results.fed, results.others
    without, reused, overlapped = results.ways(False), results.ways(True), results.others_overlapped
    last = [[abs(a - b) for a, b in zip(f.seconds, fast.seconds, strict=True)] for f in fed[-2:]]
    stays = [max(own) < 0.25 * most for *own, most in zip(*last, slow.seconds, strict=True)]

    def rates(field: str, factor: float, unit: str) -> str:
        return ", ".join(f"{_rate(f.rate)}: {factor * median(getattr(f, field)):,.3g}{unit}" for f in fed)

    def shown(field: str, factor: float, unit: str) -> str:
        return "; ".join(
            f"{a.overlap:.0%}: {factor * median(getattr(a, field)):,.3g} without, "
            f"{factor * median(getattr(b, field)):,.3g} {unit} with"
            for a, b in zip(without, reused, strict=True)
        )

    def worse(field: str) -> list[float]:
        """For each round, the overlap at which reuse gains least."""
        return [
            max(b / a for a, b in zip(x, y, strict=True))
            for x, y in zip(
                zip(*(getattr(o, field) for o in without), strict=True),
                zip(*(getattr(o, field) for o in reused), strict=True),
                strict=True,
            )
        ]

    one = [1.0] * len(overlapped)
    return [
        same_answers(
            "every rate has the same answers",
            results.answers,
            f"{len(fed)} rates, {sum(results.answers[0].values()):,} answers",
        ),
        below(
            "the total time falls as the rate rises",
            ELAPSED,
            fast.seconds,
            slow.seconds,
            others,
            rates("seconds", 1, " s"),
            factor=0.8,
        ),
        judged(
            "from some rate on the total time stays the same",
            ELAPSED,
            stays,
            others,
            "the last two rates, by a quarter of the time at the lowest rate",
        ),
        below(
            "the average latency rises with the rate",
            LATENCY,
            slow.latency,
            fast.latency,
            others,
            rates("latency", 1e3, " ms"),
        ),
        below(
            "more elements wait in buffers as the rate rises",
            WAITING,
            slow.waiting,
            fast.waiting,
            others,
            rates("waiting", 1, ""),
        ),
        *(
            same_answers(
                f"with and without reuse there are the same answers, overlap {o.overlap:.0%}",
                own,
                f"{sum(own[0].values()):,} answers",
            )
            for o, own in zip(without, results.answers_overlapped, strict=True)
        ),
        alike(
            "without reuse the total time does not depend on the overlap",
            ELAPSED,
            [o.seconds for o in without],
            1.4,
            overlapped,
        ),
        below(
            "with reuse the total time falls as the overlap grows",
            ELAPSED,
            reused[-1].seconds,
            reused[0].seconds,
            overlapped,
            shown("seconds", 1e3, "ms"),
        ),
        below(
            "with reuse a window is answered sooner, at every overlap",
            LATENCY,
            worse("response"),
            one,
            overlapped,
            shown("response", 1e3, "ms"),
        ),
        judged(
            "with reuse more is remembered, at every overlap",
            COUNT,
            [min(b.remembered) > max(a.remembered) for a, b in zip(without, reused, strict=True)],
            (),
            shown("remembered", 1, "rows"),
        ),
        judged(
            "with reuse more is remembered the more the windows overlap",
            COUNT,
            [min(b.remembered) > max(a.remembered) for a, b in itertools.pairwise(reused)],
            (),
            shown("remembered", 1, "rows"),
        ),
        below(
            "(not the thesis') with reuse less of processors is needed at an overlap of 75 %",
            PROCESSOR,
            reused[-1].processor,
            without[-1].processor,
            overlapped,
            shown("processor", 1e3, "ms"),
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
        made, (ax,) = figure(
            f"{TITLE} fed at different rates\n{WINDOWS} windows of {results.tuples:,} elements, "
            f"overlap 10 % (cf. Figure 5.{int(number)})"
        )
        ax.plot(places, [factor * median(getattr(f, field)) for f in fed], marker="o", label="join of sliding windows")
        ax.set_xticks(places, ["flooded" if math.isinf(f.rate) else f"{f.rate * FASTER / 1000:,.0f}k" for f in fed])
        ax.set_xlabel("elements per second from each stream")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.legend()
        paths.append(save(made, folder / f"003-figure-5.{number}-{field}.png"))
    for number, field, factor, label in (
        ("12", "processor", 1e3, "processor time for all windows [ms]"),
        ("13", "response", 1e3, "time until a window is answered [ms]"),
        ("14", "remembered", 1.0, "rows remembered at most"),
    ):
        made, (ax,) = figure(
            f"{TITLE} with and without reuse\n{WINDOWS} windows of {results.tuples:,} elements (cf. Figure 5.{number})"
        )
        lines(
            ax,
            {
                name: ([100 * o.overlap for o in own], [factor * median(getattr(o, field)) for o in own])
                for name, own in (("without reuse", results.ways(False)), ("with reuse", results.ways(True)))
            },
        )
        ax.set_xlabel("overlap of windows [%]")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
        paths.append(save(made, folder / f"003-figure-5.{number}-{field}.png"))
    return paths
