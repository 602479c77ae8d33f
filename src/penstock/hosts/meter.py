"""The latency of a query's results: when they were delivered, less when the call was that made them certain.

A result is delivered when it is in the query's ``Results``, where readers find it; subscribers are called right after.
Its instant says which call made it certain: the one with which the last of the query's streams passed the instant
(``ingest.stamps``). Where the thread that gives rows works on them, too, that is the call under way.

What is delivered is noted down as it is; it goes into histograms some hundred batches later, or when someone looks.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.graph.latency import Floats, Histogram, Latency
from penstock.ingest.stamps import Stamps
from penstock.ingest.streams import StreamInput
from penstock.model.delta import Ints, arrived

HALF_LIFE = 60.0
"""Seconds after which a result counts half as much in percentiles."""
HIGHEST = 15
"""Higher priorities are counted as this one."""
SAMPLE = 64
"""Of a batch of more results as many are looked at, evenly spread."""
FULL = 512
"""Batches that are noted down before they go into histograms."""
_FIELDS = 3
QUICK = _FIELDS * FULL


class Sample(NamedTuple):
    """The instants and priorities of results; of many, of some of them. ``sub`` and ``priority`` are None where they
    are not known, or all are 0."""

    results: int
    ts: Ints
    sub: Ints | None
    priority: Ints | None


def sampled(ts: Ints, sub: Ints | None, priority: Ints | None) -> Sample:
    """A sample of results. It keeps no large arrays alive."""
    count = len(ts)
    step = 1 if count <= SAMPLE else -(-count // SAMPLE)
    if step > 1 or ts.base is not None or (sub is not None and sub.base is not None):
        ts = ts[::step].copy()
        sub = None if sub is None else sub[::step].copy()
        priority = None if priority is None else priority[::step].copy()
    return Sample(count, ts, sub, priority)


Note = tuple[float, float | None, Sample]
"""When results were delivered, when the call was that made them certain, if that is known, and the results."""


def meter_of(read: Sequence[StreamInput], since: float) -> Meter:
    """That of a query which reads these streams, from this time on."""
    streams = {source.definition.position: source.stamps for source in read}
    meter = Meter(streams, since)
    if len(streams) > 1 or any(source.definition.slack for source in read):
        meter.look_up()
    return meter


class Meter:
    """Of one query. Bounded: two histograms for each of at most ``HIGHEST`` + 1 priorities, and ``FULL`` notes.

    ``streams``: the calls of the streams that it reads, by position. ``plain``: no result ever waits, since there is
    one stream at most and that has no slack, and the thread that gives rows works on them. ``changes``: of a query
    without streams, when a relation of its was changed last.

    One thread at a time notes, any thread looks.
    """

    def __init__(self, streams: Mapping[int, Stamps], since: float) -> None:
        self._streams, self._since = streams, since
        self.plain = True
        self.changes = since
        self.quick: list[float] = []
        """Of batches that never waited and have no priority: when they were delivered, the time of the call, results.
        ``fold`` is to be called when there are ``QUICK`` numbers."""
        self._notes: list[Note] = []
        self._lock = threading.Lock()
        """Guards the rest."""
        self._counts: dict[int, float] = {}
        self._longest: dict[int, float] = {}
        self._latencies: dict[int, Histogram] = {}
        self._waits: dict[int, Histogram] = {}
        self._at = since

    def look_up(self) -> None:
        """From now on calls are looked up, so streams are to remember them."""
        self.plain = False
        for stamps in self._streams.values():
            stamps.wanted = True

    def note(self, delivered: float, certain: float | None, sample: Sample) -> None:
        """Results have been delivered. ``certain``: when the call was that made them certain, if that is known."""
        self._notes.append((delivered, certain, sample))
        if len(self._notes) >= FULL:
            self.fold()

    def fold(self) -> None:
        """Put what was noted down into histograms."""
        with self._lock:
            quick = np.array(self.quick[:]).reshape(-1, _FIELDS)
            del self.quick[: quick.size]
            if len(quick):
                nothing = np.zeros(len(quick))
                self._add(quick[:, 0], quick[:, 0] - quick[:, 1], nothing, quick[:, 2], None)
            notes = self._notes[:]
            del self._notes[: len(notes)]
            if notes:
                self._fold(notes)

    def _fold(self, notes: Sequence[Note]) -> None:
        samples = [sample for _, _, sample in notes]
        sizes = [len(sample.ts) for sample in samples]
        ts = np.concatenate([sample.ts for sample in samples])
        sub, priority = _joined([s.sub for s in samples], sizes), _joined([s.priority for s in samples], sizes)
        facts = np.array([(at, np.nan if known is None else known, s.results / len(s.ts)) for at, known, s in notes])
        delivered, known, count = (facts if len(ts) == len(notes) else np.repeat(facts, sizes, 0)).T
        own, certain = self._times(ts, np.zeros(len(ts), np.int64) if sub is None else sub)
        certain = np.where(np.isnan(known), certain, known)
        early = ~(certain <= delivered) & ~np.isnan(own)  # a prioritised row did not wait: its push was enough
        certain = np.where(early, own, certain)
        certain = np.minimum(np.maximum(certain, self._since), delivered)
        own = np.fmin(np.maximum(own, self._since), certain)
        timed = ~np.isnan(certain)  # of the others, the call was before a restart
        if not timed.all():
            delivered, certain, own, count = delivered[timed], certain[timed], own[timed], count[timed]
            priority = None if priority is None else priority[timed]
        if len(delivered):
            self._add(delivered, delivered - certain, certain - own, count, priority)

    def _times(self, ts: Ints, sub: Ints) -> tuple[Floats, Floats]:
        """When the row of each result was pushed, and the call was that made it certain; NaN where that is not known.

        A result that is no row's own (rows left a window, a window ended) has no push: it waits from when all streams
        have named its instant. A stream that has not passed the instant was not waited for.
        """
        if not self._streams:
            changed = np.full(len(ts), self.changes)
            return changed, changed
        position, arrival = arrived(sub)
        own, named, certain = (np.full(len(ts), np.nan) for _ in range(3))
        known = np.zeros(len(ts), bool)
        for place in self._streams:
            known |= position == place
        for place, stamps in self._streams.items():
            calls = stamps.look()
            mine = position == place
            with_row, at = calls.with_arrival(arrival), calls.passing(ts, beyond=False)
            passing = np.where(known & (position > place), calls.passing(ts, beyond=True), at)
            passing = np.where(mine, np.maximum(at, with_row), passing)
            certain = np.fmax(certain, calls.times(passing))
            own = np.where(mine, calls.times(with_row), own)
            named = np.fmax(named, calls.times(calls.naming(ts)))
        return np.where(known, own, named), certain

    def _add(self, delivered: Floats, took: Floats, waited: Floats, count: Floats, priority: Ints | None) -> None:
        newest = float(delivered.max())
        if newest > self._at:
            part = 0.5 ** ((newest - self._at) / HALF_LIFE)
            for histogram in (*self._latencies.values(), *self._waits.values()):
                histogram.fade(part)
            self._at = newest
        weights = count * 0.5 ** ((self._at - delivered) / HALF_LIFE)
        if priority is None:
            self._add_level(0, took, waited, count, weights)
            return
        levels = np.clip(priority, 0, HIGHEST)
        for level in np.unique(levels).tolist():
            chosen = levels == level
            self._add_level(level, took[chosen], waited[chosen], count[chosen], weights[chosen])

    def _add_level(self, level: int, took: Floats, waited: Floats, count: Floats, weights: Floats) -> None:
        self._counts[level] = self._counts.get(level, 0.0) + float(count.sum())
        self._longest[level] = max(self._longest.get(level, 0.0), float(took.max()))
        for histograms, seconds in ((self._latencies, took), (self._waits, waited)):
            if level not in histograms:
                histograms[level] = Histogram()
            histograms[level].add(seconds, weights)

    @property
    def latency(self) -> Latency:
        """All of it, for people and programs."""
        self.fold()
        with self._lock:
            levels = {
                level: _summary(count, self._longest[level], self._latencies[level], self._waits[level])
                for level, count in sorted(self._counts.items())
            }
            if not levels:
                return Latency()
            if len(levels) == 1:
                whole = next(iter(levels.values()))
            else:
                took, waited = Histogram(), Histogram()
                for level in levels:
                    took, waited = took + self._latencies[level], waited + self._waits[level]
                whole = _summary(sum(self._counts.values()), max(self._longest.values()), took, waited)
        return Latency(whole.count, whole.p50, whole.p99, whole.max, whole.waiting_p50, whole.waiting_p99, levels)


def _summary(count: float, longest: float, took: Histogram, waited: Histogram) -> Latency:
    p50, p99 = (_most(took.quantile(part), longest) for part in (0.5, 0.99))
    return Latency(round(count), p50, p99, longest, waited.quantile(0.5), waited.quantile(0.99))


def _joined(parts: Sequence[Ints | None], sizes: Sequence[int]) -> Ints | None:
    """Numbers one after the other, 0 where there are none; None where there are none at all."""
    if all(part is None for part in parts):
        return None
    return np.concatenate(
        [np.zeros(size, np.int64) if part is None else part for part, size in zip(parts, sizes, strict=True)]
    )


_LATENCIES = pa.schema([
    ("query", pa.string()), ("priority", pa.int64()), ("count", pa.int64()), ("p50", pa.float64()),
    ("p99", pa.float64()), ("max", pa.float64()), ("waiting_p50", pa.float64()), ("waiting_p99", pa.float64()),
])  # fmt: skip


def latencies(queries: Mapping[str, Meter]) -> pa.Table:
    """A row for each query, and one for each priority of its results."""
    rows = [
        {"query": name, "priority": level} | {f.name: getattr(one, f.name) for f in list(_LATENCIES)[2:]}
        for name, meter in queries.items()
        for latency in [meter.latency]
        for level, one in [(None, latency), *latency.priorities.items()]
    ]
    return pa.Table.from_pylist(rows, _LATENCIES)


def _most(seconds: float | None, longest: float) -> float | None:
    return None if seconds is None else min(seconds, longest)
