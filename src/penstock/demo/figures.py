"""What is measured of each query while the demo runs."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Now = Callable[[], float]
LATEST = 12
"""Answers of a query that are kept to be shown."""
_SHORTEST, _STEP, _BUCKETS = 1e-6, 1.05, 420
"""Latencies are counted in buckets from a microsecond to some minutes, each 5 percent longer than the one before."""
_RATE = 3.0
"""Seconds over which rows and answers a second are counted."""


class Latencies:
    """How long answers took, as counts in buckets. Bounded by: the buckets, however many answers there are."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._longest = 0.0

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, seconds: Floats) -> None:
        """So many answers more, with the seconds each of them took."""
        if len(seconds):
            found = np.log(np.maximum(seconds, _SHORTEST) / _SHORTEST) / math.log(_STEP)
            np.add.at(self._counts, np.minimum(found.astype(np.int64), _BUCKETS - 1), 1)
            self._longest = max(self._longest, float(seconds.max()))

    def quantile(self, share: float) -> float | None:
        """So long, or less, did this share of the answers take; None without answers. About: within 5 percent."""
        total = len(self)
        if not total:
            return None
        bucket = int(np.searchsorted(self._counts.cumsum(), max(1, math.ceil(share * total))))
        return float(min(_SHORTEST * _STEP ** (bucket + 0.5), self._longest))

    @property
    def longest(self) -> float | None:
        """The longest of all, exactly; None without answers."""
        return self._longest if len(self) else None


class Rate:
    """How many a second, over the last seconds. Bounded by: the notes of that time."""

    def __init__(self) -> None:
        self._notes: deque[tuple[float, int]] = deque()
        self.total = 0

    def note(self, now: float, more: int) -> None:
        """So many more."""
        self.total += more
        self._notes.append((now, more))
        self._forget(now)

    def a_second(self, now: float, since: float) -> float:
        """Of the time since ``since``, if that is shorter."""
        self._forget(now)
        return sum(n for _, n in self._notes) / max(min(_RATE, now - since), 0.25)

    def _forget(self, now: float) -> None:
        while self._notes and self._notes[0][0] < now - _RATE:
            self._notes.popleft()


class Pushes:
    """When rows were pushed: of each stream, up to which instant (without it) at what time. Bounded by: the pushes of a
    run."""

    def __init__(self, streams: Iterable[str]) -> None:
        self._upto: dict[str, list[int]] = {stream: [] for stream in streams}
        self._at: dict[str, list[float]] = {stream: [] for stream in self._upto}

    def note(self, stream: str, upto: int, now: float) -> None:
        """A push, just before it is made, brings all rows with instants below ``upto`` that have not come yet."""
        self._at[stream].append(now)
        self._upto[stream].append(upto)

    def latest(self, streams: Iterable[str], ts: Ints) -> Floats:
        """When the last push was made that an answer with this instant needed: of each stream that its query reads, the
        one that passed the instant. A stream that has not passed it was not needed: a prioritised row does not wait. If
        none has, it was the newest push."""
        found = np.full(len(ts), -math.inf)
        newest = -math.inf
        for stream in streams:
            upto = np.array(self._upto[stream], np.int64)
            at = np.append(self._at[stream][: len(upto)], -math.inf)
            found = np.maximum(found, at[np.searchsorted(upto, ts, side="right")])
            newest = max(newest, float(at.max()))
        return np.where(np.isneginf(found), newest, found)


@dataclass(frozen=True)
class Compared:
    """The answers to the rows of a burst: those to alarms and those to others, in seconds. ``neighbours``: the
    ordinary answers next to the alarms in the burst, the median of how long they took."""

    rows: int
    alarms: int
    others: int
    answered: int
    alarms_answered: int
    alarm_longest: float | None
    other_longest: float | None
    neighbours: float | None

    @property
    def done(self) -> bool:
        """Whether all answers are there."""
        return self.answered == self.alarms + self.others


class Burst:
    """Compares the answers to the rows of a burst. Bounded by: those rows."""

    def __init__(self, start: int, end: int, rows: int, alarms: Ints, others: int) -> None:
        """Of the instants from ``start`` up to ``end``; ``alarms``: those of the alarms, ``others``: how many ordinary
        rows are answered."""
        self.start, self.end = start, end
        self._rows, self._alarms, self._others = rows, alarms, others
        self._ts: list[Ints] = []
        self._took: list[Floats] = []
        self._whole: Compared | None = None

    def add(self, ts: Ints, took: Floats) -> npt.NDArray[np.bool_]:
        """Answers, and how long they took; gives which of them belong to the burst."""
        inside = (ts >= self.start) & (ts < self.end)
        if inside.any():
            self._ts.append(ts[inside])
            self._took.append(took[inside])
        return inside

    def compared(self) -> Compared:
        """As far as answers have come."""
        if self._whole is not None:
            return self._whole
        ts = np.concatenate([*self._ts, np.zeros(0, np.int64)])
        took = np.concatenate([*self._took, np.zeros(0)])
        is_alarm = np.isin(ts, self._alarms)
        alarms, others = took[is_alarm], took[~is_alarm]
        near = None
        if len(others):
            apart = np.abs(ts[~is_alarm][None, :] - self._alarms[:, None])
            near = others[apart.argmin(axis=1)]
        found = Compared(
            self._rows, len(self._alarms), self._others, len(ts), len(alarms),
            float(alarms.max()) if len(alarms) else None,
            float(others.max()) if len(others) else None,
            None if near is None or not len(near) else float(np.median(near)),
        )  # fmt: skip
        if found.done:
            self._whole = found
        return found


class Meter:
    """Subscribes to a query, and counts. Called by threads of the database; others may look at any time.

    Bounded by: ``LATEST`` answers, and what ``Latencies`` and ``Rate`` hold. ``burst`` gets its share of the answers.
    """

    def __init__(self, now: Now, inputs: Sequence[str], pushes: Pushes) -> None:
        self._now, self._inputs, self._pushes = now, tuple(inputs), pushes
        self._lock = threading.Lock()
        self.burst: Burst | None = None
        self.heard = 0
        """Answers that have come, also those that do not count."""
        self.reset()

    def reset(self, first: int = 0) -> None:
        """Begin anew, with the answers from an instant on."""
        with self._lock:
            self._first = first
            self._latencies, self._rate = Latencies(), Rate()
            self._latest: pa.Table | None = None

    def __call__(self, answers: pa.Table) -> None:
        now, heard = self._now(), len(answers)
        ts = answers["ts"].cast(pa.int64()).to_numpy()
        if len(ts) and ts.min() < self._first:
            answers = answers.filter(pa.array(ts >= self._first))
            ts = ts[ts >= self._first]
        took = now - self._pushes.latest(self._inputs, ts)
        with self._lock:
            self.heard += heard
            self._rate.note(now, len(ts))
            newest = answers.slice(max(0, len(ts) - LATEST))
            shown = newest if self._latest is None else pa.concat_tables([self._latest, newest])
            self._latest = shown.take(np.arange(max(0, len(shown) - LATEST), len(shown)))
            if self.burst is not None:
                took = took[~self.burst.add(ts, took)]
            self._latencies.add(took)

    def read(self, since: float) -> Reading:
        """What has been counted."""
        now = self._now()
        with self._lock:
            return Reading(
                self._rate.total, self._rate.a_second(now, since),
                self._latencies.quantile(0.5), self._latencies.quantile(0.99), self._latest,
                None if self.burst is None else self.burst.compared(),
            )  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What a meter has counted: answers, answers a second, latencies in seconds, and the newest answers."""

    answers: int
    a_second: float
    p50: float | None
    p99: float | None
    latest: pa.Table | None
    burst: Compared | None
