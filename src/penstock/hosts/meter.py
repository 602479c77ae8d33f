"""The latency of a query's results: when they were delivered, less when the call was that made them certain.

A result is delivered when it is in the query's ``Results``, where readers find it; subscribers are called right after.
Its instant says which call made it certain: the one with which the last of the query's streams passed the instant
(``ingest.stamps``). Where the thread that gives rows works on them, too, that is the call under way.

What is delivered is noted down as it is; it goes into histograms some hundred batches later, or when someone looks.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.graph.latency import Floats, Histogram, Latency
from penstock.ingest.stamps import Places, Stamps
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

    count: int
    ts: Ints
    sub: Ints | None
    priority: Ints | None


def sampled(ts: Ints, sub: Ints | None, priority: Ints | None) -> Sample:
    """A sample of results. It keeps no large arrays alive."""
    step = -(-len(ts) // SAMPLE)
    return Sample(
        len(ts), ts[::step].copy(), None if sub is None else sub[::step].copy(),
        None if priority is None else np.clip(priority[::step], 0, HIGHEST),
    )  # fmt: skip


def meter_of(read: Sequence[StreamInput], since: float) -> Meter:
    """That of a query which reads these streams, from this time on."""
    streams = {source.definition.position: source.stamps for source in read}
    return Meter(streams, plain=len(streams) < 2 and not any(s.definition.slack for s in read), since=since)


class Meter:
    """Of one query. Bounded: two histograms for each of at most ``HIGHEST`` + 1 priorities, and ``FULL`` notes.

    ``streams``: the calls of the streams that it reads, by position. ``plain``: no result ever waits, since there is
    one stream at most and that has no slack. ``changes``: of a query without streams, when a relation of its was
    changed last.

    One thread at a time notes, any thread looks.
    """

    def __init__(self, streams: Mapping[int, Stamps], *, plain: bool, since: float) -> None:
        self._streams, self.plain, self._since = streams, plain, since
        self.changes = since
        self.quick = array("d")
        """Of batches that never waited and have no priority: when they were delivered, the time of the call, results.
        ``fold`` is to be called when there are ``QUICK`` numbers."""
        self._notes: list[tuple[float, float | None, Sample]] = []
        self._lock = threading.Lock()
        """Guards the rest."""
        self._counts: dict[int, float] = {}
        self._longest: dict[int, float] = {}
        self._latencies: dict[int, Histogram] = {}
        self._waits: dict[int, Histogram] = {}
        self._at = since

    def note(self, delivered: float, certain: float | None, sample: Sample) -> None:
        """Results have been delivered. ``certain``: when the call was that made them certain, if that is known."""
        self._notes.append((delivered, certain, sample))
        if len(self._notes) >= FULL:
            self.fold()

    def fold(self) -> None:
        """Put what was noted down into histograms."""
        with self._lock:
            quick = np.frombuffer(self.quick[:], np.float64).reshape(-1, _FIELDS)
            del self.quick[: quick.size]
            if len(quick):
                took = quick[:, 0] - quick[:, 1]
                self._add(quick[:, 0], took, np.zeros(len(quick)), quick[:, 2], np.zeros(len(quick), np.int64))
            notes = self._notes[:]
            del self._notes[: len(notes)]
            if notes:
                self._fold(notes)

    def _fold(self, notes: list[tuple[float, float | None, Sample]]) -> None:
        sizes = [len(sample.ts) for _, _, sample in notes]
        ts = np.concatenate([sample.ts for _, _, sample in notes])
        sub = np.concatenate([np.zeros(len(s.ts), np.int64) if s.sub is None else s.sub for _, _, s in notes])
        priority = np.concatenate(
            [np.zeros(len(s.ts), np.int64) if s.priority is None else s.priority for _, _, s in notes]
        )
        delivered = np.repeat([at for at, _, _ in notes], sizes)
        known = np.repeat([np.nan if certain is None else certain for _, certain, _ in notes], sizes)
        count = np.repeat([sample.count / len(sample.ts) for _, _, sample in notes], sizes)
        own, certain = self._times(ts, sub)
        certain = np.where(np.isnan(known), certain, known)
        certain = np.minimum(np.maximum(certain, self._since), delivered)
        own = np.minimum(np.maximum(np.where(np.isnan(own), certain, own), self._since), certain)
        self._add(delivered, delivered - certain, certain - own, count, priority)

    def _times(self, ts: Ints, sub: Ints) -> tuple[Floats, Floats]:
        """When the row of each result was pushed, and the call was that made it certain; NaN where that is not known.

        A result that is no row's own (rows left a window, a window ended) has no push: it waits from when all streams
        have named its instant. A stream that has not passed the instant was not waited for.
        """
        position, arrival = arrived(sub)
        own, named, certain = (np.full(len(ts), np.nan) for _ in range(3))
        for place, stamps in self._streams.items():
            calls = stamps.look()
            mine = position == place
            with_row = calls.with_arrival(arrival)
            at, beyond = calls.passing(ts, beyond=False), calls.passing(ts, beyond=True)
            passing: Places = np.where((position > place) & np.isin(position, list(self._streams)), beyond, at)
            passing = np.where(mine, np.maximum(at, with_row), passing)
            certain = np.fmax(certain, calls.times(passing))
            own = np.where(mine, calls.times(with_row), own)
            named = np.fmax(named, calls.times(calls.naming(ts)))
        if not self._streams:
            certain = np.full(len(ts), self.changes)
        return np.where(np.isin(position, list(self._streams)), own, named), certain

    def _add(self, delivered: Floats, took: Floats, waited: Floats, count: Floats, priority: Ints) -> None:
        newest = float(delivered.max())
        if newest > self._at:
            part = 0.5 ** ((newest - self._at) / HALF_LIFE)
            for histogram in (*self._latencies.values(), *self._waits.values()):
                histogram.fade(part)
            self._at = newest
        weights = count * 0.5 ** ((self._at - delivered) / HALF_LIFE)
        for level in np.unique(priority).tolist():
            chosen = priority == level
            self._counts[level] = self._counts.get(level, 0.0) + float(count[chosen].sum())
            self._longest[level] = max(self._longest.get(level, 0.0), float(took[chosen].max()))
            self._latencies.setdefault(level, Histogram()).add(took[chosen], weights[chosen])
            self._waits.setdefault(level, Histogram()).add(waited[chosen], weights[chosen])

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
