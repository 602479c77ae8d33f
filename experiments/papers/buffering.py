"""003 5.2.6: a join over five windows, with buffers from unbounded down to a fraction of what waits in them.

As many elements of two streams as five windows have come while the join rests, then it works them off: so what
exceeds the buffer of a stream is on disk, whoever is faster. The thesis' windows of 5,000 and its buffers are ten
times as large here, to have something to measure; the smallest buffer is one more than the thesis has: everything is
on disk.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.support.common import Claim, Say, batches, clock, figure, lines, mean, median, quiet, rounds, save

import penstock

TITLE = "003 5.2.6: buffers of different size"
SIZES = (None, 35_000, 30_000, 25_000, 20_000, 18_000, 15_000, 12_000, 10_000, 0)
"""Elements that a buffer has in memory, as in the thesis; None: all."""
LARGER = 10
WINDOWS = 5
WINDOW = 5_000
ROWS = 100
_BUDGET = 15.0
_ROUNDS = 5


@dataclass(frozen=True)
class Point:
    """Medians for one size of the buffers: seconds in all, processor seconds of that, average seconds from arrival to
    result, elements on disk when all had come, and results."""

    size: int | None
    seconds: float
    processor: float
    latency: float
    spilled: int
    results: int


@dataclass(frozen=True)
class Buffering:
    """What was measured; ``elements`` came from each stream."""

    elements: int
    points: tuple[Point, ...]


def run(scale: float = 1.0, say: Say = quiet) -> Buffering:
    """Ten sizes of buffers, in turn, as often as there is time for."""
    factor = max(LARGER * scale, 0.1)
    window = max(round(WINDOW * factor), 50)
    chance = np.random.default_rng(526)
    streams = {name: chance.integers(0, window // 2, WINDOWS * window) for name in ("a", "b")}
    found: dict[int | None, list[Point]] = {size: [] for size in SIZES}
    _measured(None, factor, window, {name: values[:window] for name, values in streams.items()})  # what is compiled is
    for i in rounds(_BUDGET * scale, _ROUNDS):
        for size in SIZES:
            say(f"round {i + 1}: buffers of {'any size' if size is None else f'{round(size * factor):,} elements'}")
            found[size].append(_measured(size, factor, window, streams))
    return Buffering(WINDOWS * window, tuple(_middle(own) for own in found.values()))


def _measured(size: int | None, factor: float, window: int, streams: dict[str, np.ndarray[Any, Any]]) -> Point:
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
        return Point(size, clock() - begun, time.process_time() - busy, mean(waited or [0.0]), spilled, query.answered)


def _middle(points: list[Point]) -> Point:
    first = points[0]
    seconds, processor, latency = (median([getattr(p, n) for p in points]) for n in ("seconds", "processor", "latency"))
    return Point(first.size, seconds, processor, latency, first.spilled, first.results)


def check(results: Buffering) -> list[Claim]:
    """What is claimed, whether it holds here, and the numbers."""
    points = results.points
    free = [p for p in points if not p.spilled]
    bound = [p for p in points if p.spilled]
    least = bound[-1]
    memory, disk = mean([p.processor for p in free]), mean([p.processor for p in bound])
    early, late = mean([p.latency for p in free]), mean([p.latency for p in bound])
    return [
        Claim(
            "every size gives the same number of results",
            len({p.results for p in points}) == 1,
            f"{points[0].results:,} results of {2 * results.elements:,} elements",
        ),
        Claim(
            "as the buffer is contracted, more and more elements go to disk",
            [p.spilled for p in points] == sorted(p.spilled for p in points),
            ", ".join(f"{_size(p.size)}: {p.spilled:,}" for p in points),
        ),
        Claim(
            "the total processing time increases",
            memory < disk and memory < least.processor,
            f"{memory:.3f} s of processor time in memory, {disk:.3f} s with a part on disk, {least.processor:.3f} s "
            f"with everything; elapsed: {', '.join(f'{p.seconds:.2f}' for p in points)} s",
        ),
        Claim(
            "the latency of an element increases",
            early < late and early < least.latency,
            f"{1e3 * early:.0f} ms in memory, {1e3 * late:.0f} ms with a part on disk, {1e3 * least.latency:.0f} ms "
            "with everything",
        ),
    ]


def _size(size: int | None) -> str:
    return "unbounded" if size is None else f"{size:,}"


def draw(results: Buffering, folder: Path) -> list[Path]:
    """Figure 5.6: time and latency by the size of the buffer."""
    made, (total, latency) = figure(f"{TITLE} (cf. Figure 5.6)", 2, width=11, height=4.5)
    places = list(range(len(results.points)))
    seconds = ([float(i) for i in places], [p.seconds for p in results.points])
    lines(total, {"elapsed": seconds, "processor": (seconds[0], [p.processor for p in results.points])})
    total.set_ylabel("total time [s]")
    lines(latency, {"from arrival to result": (seconds[0], [1e3 * p.latency for p in results.points])})
    latency.set_ylabel("average latency [ms]")
    for ax in (total, latency):
        ax.set_xticks(places, [_size(p.size) for p in results.points], rotation=45, fontsize=8)
        ax.set_xlabel(f"buffer [elements of {results.elements:,}, times {LARGER} at scale 1]")
        ax.set_ylim(bottom=0)
    return [save(made, folder / "003-figure-5-6-buffers.png")]
