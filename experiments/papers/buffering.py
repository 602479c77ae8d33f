"""003 5.2.6: a join over five windows, with buffers from unbounded down to a fraction of what waits in them.

As many elements of two streams as five windows have come while the join rests, then it works them off: so what
exceeds the buffer of a stream is on disk, whoever is faster. The thesis' windows of 5,000 and its buffers are twice as
large here, to have something to measure; the smallest buffer is one more than the thesis has: everything is on disk.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.support.common import Others, Say, batches, clock, figure, lines, mean, median, quiet, rounds, save

import penstock
from experiments.papers.judging import (
    COUNT,
    ELAPSED,
    LATENCY,
    PROCESSOR,
    Claim,
    below,
    judged,
    least,
    multiset,
    same_answers,
)

TITLE = "003 5.2.6: buffers of different size"
SIZES = (None, 30_000, 20_000, 15_000, 10_000, 0)
"""Elements that a buffer has in memory, of the thesis' nine sizes; None: all."""
LARGER = 2
WINDOWS = 5
WINDOW = 5_000
ROWS = 100
_BUDGET = 50.0


@dataclass(frozen=True)
class Point:
    """One size of the buffers, with a value for each round: seconds in all, processor seconds of that, average seconds
    from arrival to result; and elements on disk when all had come."""

    size: int | None
    seconds: tuple[float, ...]
    processor: tuple[float, ...]
    latency: tuple[float, ...]
    spilled: int


@dataclass(frozen=True)
class Buffering:
    """What was measured; ``elements`` came from each stream. ``others``: for each round, processors that other
    processes kept busy. ``answers``: with each size."""

    elements: int
    others: tuple[float | None, ...]
    points: tuple[Point, ...]
    answers: tuple[Counter[Hashable], ...]


def run(scale: float = 1.0, say: Say = quiet) -> Buffering:
    """All sizes of buffers, in turn, as often as there is time for."""
    factor = max(LARGER * scale, 0.1)
    window = max(round(WINDOW * factor), 50)
    chance = np.random.default_rng(526)
    streams = {name: chance.integers(0, window // 2, WINDOWS * window) for name in ("a", "b")}
    found: dict[int | None, Point] = {}
    answers: dict[int | None, Counter[Hashable]] = {}
    others: list[float | None] = []
    _measured(None, factor, window, {name: values[:window] for name, values in streams.items()})  # what is compiled is
    for i in rounds(_BUDGET * scale, 7, least(scale)):
        busy = Others()
        for size in SIZES:
            say(f"round {i + 1}: buffers of {'any size' if size is None else f'{round(size * factor):,} elements'}")
            point, given = _measured(size, factor, window, streams)
            if size not in answers:
                answers[size] = multiset(given)
            found[size] = _added(found[size], point) if size in found else point
        others.append(busy.processors)
    return Buffering(WINDOWS * window, tuple(others), tuple(found.values()), tuple(answers.values()))


def _added(before: Point, now: Point) -> Point:
    """With one more round."""
    return replace(
        before,
        seconds=before.seconds + now.seconds,
        processor=before.processor + now.processor,
        latency=before.latency + now.latency,
    )


def _measured(
    size: int | None, factor: float, window: int, streams: dict[str, np.ndarray[Any, Any]]
) -> tuple[Point, pa.Table]:
    came = np.zeros(len(streams["a"]))
    waited: list[float] = []

    def arrived(table: pa.Table) -> None:
        waited.append(float(clock() - came[table["ts"].to_numpy()].mean()))

    with penstock.connect(engine="local") as db:
        bound = "" if size is None else f" WITH (buffer = '{round(size * factor)} rows')"
        for name in streams:
            db.execute(f"CREATE STREAM {name} (ts BIGINT, v BIGINT) TIMESTAMP BY ts{bound}")
        query = db.query(
            f"SELECT ISTREAM a.v AS v FROM a [RANGE {window}], b [RANGE {window}] "
            "WHERE a.v = b.v AND a.v % 2 = 0 AND b.v % 2 = 0"
        )
        query.subscribe(arrived)
        db.configure(threading="hybrid", workers=1)
        intakes = [o.id for o in db.graph().operators if o.kind == "intake"]
        tables = {name: batches(values, ROWS) for name, values in streams.items()}
        for number in intakes:
            db.suspend(number)
        begun, busy = clock(), time.process_time()
        for i, pair in enumerate(zip(*tables.values(), strict=True)):
            for name, table in zip(streams, pair, strict=True):
                db.push(name, table)
            came[i * ROWS : (i + 1) * ROWS] = clock()
        spilled = sum(e.buffer.spilled for e in db.graph().edges if e.buffer is not None)
        for number in intakes:
            db.resume(number)
        db.settle()
        took, processor = clock() - begun, time.process_time() - busy
        point = Point(size, (took,), (processor,), (mean(waited or [0.0]),), spilled)
        return point, query.fetch()


def check(results: Buffering) -> list[Claim]:
    """What is claimed, whether it holds here, and the numbers."""
    points, others = results.points, results.others
    free, bound = ([p for p in points if bool(p.spilled) is on_disk] for on_disk in (False, True))

    def average(some: list[Point], field: str) -> list[float]:
        return [mean(values) for values in zip(*(getattr(p, field) for p in some), strict=True)]

    def shown(field: str) -> str:
        return ", ".join(f"{_size(p.size)}: {median(getattr(p, field)):.3f}" for p in points) + " s"

    return [
        same_answers(
            "every size has the same answers",
            results.answers,
            f"{sum(results.answers[0].values()):,} answers of {2 * results.elements:,} elements",
        ),
        judged(
            "as the buffer is contracted, more and more elements go to disk",
            COUNT,
            [[p.spilled for p in points] == sorted(p.spilled for p in points)],
            (),
            ", ".join(f"{_size(p.size)}: {p.spilled:,}" for p in points),
        ),
        below(
            "the total processing time increases",
            ELAPSED,
            average(free, "seconds"),
            average(bound, "seconds"),
            others,
            f"in memory against partly on disk; {shown('seconds')}",
        ),
        below(
            "the total processing time increases most with everything on disk",
            ELAPSED,
            average(free, "seconds"),
            average(bound[-1:], "seconds"),
            others,
            "in memory against all on disk",
        ),
        below(
            "the latency of an element increases",
            LATENCY,
            average(free, "latency"),
            average(bound, "latency"),
            others,
            f"in memory against partly on disk; {shown('latency')}",
        ),
        below(
            "(not the thesis') more of processors is needed",
            PROCESSOR,
            average(free, "processor"),
            average(bound, "processor"),
            others,
            f"in memory against partly on disk; {shown('processor')}",
        ),
    ]


def _size(size: int | None) -> str:
    return "unbounded" if size is None else f"{size:,}"


def draw(results: Buffering, folder: Path) -> list[Path]:
    """Figure 5.6: time and latency by the size of the buffer."""
    made, (total, latency) = figure(f"{TITLE} (cf. Figure 5.6)", 2, width=11, height=4.5)
    places = list(range(len(results.points)))
    seconds = ([float(i) for i in places], [median(p.seconds) for p in results.points])
    lines(total, {"elapsed": seconds, "processor": (seconds[0], [median(p.processor) for p in results.points])})
    total.set_ylabel("total time [s]")
    lines(latency, {"from arrival to result": (seconds[0], [1e3 * median(p.latency) for p in results.points])})
    latency.set_ylabel("average latency [ms]")
    for ax in (total, latency):
        ax.set_xticks(places, [_size(p.size) for p in results.points], rotation=45, fontsize=8)
        ax.set_xlabel(f"buffer [elements of {results.elements:,}, times {LARGER} at scale 1]")
        ax.set_ylim(bottom=0)
    return [save(made, folder / "003-figure-5-6-buffers.png")]
