"""What is measured of an operator while it runs: counts for good, and averages that fade.

Cost, selectivity and interarrival time are averages in which what happened one ``HALF_LIFE`` before the last elements
counts half as much as what has just happened. They fade by time, not by rows: a burst of rows is as short as it is, and
an operator to which nothing comes keeps what was measured of it last.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

HALF_LIFE = 5.0
"""Seconds."""
_NS = 1e-9
_Sums = tuple[float, float, float, float]
"""Of elements in, elements out, busy nanoseconds and nanoseconds that passed."""
_EVERY = int(HALF_LIFE / 16 / _NS)
"""Nanoseconds whose elements have the same weight."""


class Statistics:
    """Counts of one operator. The thread that runs the operator writes them, any thread reads them: a reader may see
    numbers of which one is a call ahead of the other.

    Who counts elements at a time calls ``fade`` before, once that time is past ``due``.

    Bounded: a fixed handful of numbers.
    """

    __slots__ = (
        "_faded", "began", "busy", "calls", "due", "elements_in", "elements_out", "since", "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.calls = 0
        self.elements_in = 0
        self.elements_out = 0
        self.busy = 0  # nanoseconds inside the operator, successors not counted
        self.since = time.perf_counter_ns()  # when counting began
        self.until = self.since  # when the last elements came
        self.began = 0  # when it was called last
        self.due = self.since + _EVERY
        self._faded: tuple[_Sums, tuple[int, int, int, int]] = ((0.0, 0.0, 0.0, 0.0), (0, 0, 0, self.since))
        """Sums that fade; and the elements in and out, busy nanoseconds and time of the last elements in them."""

    def fade(self, now: int) -> None:
        """Let what has been counted so far fade from here on."""
        self._faded = self._sums(), (self.elements_in, self.elements_out, self.busy, self.until)
        self.due = now + _EVERY

    def _sums(self) -> _Sums:
        (old_in, old_out, old_busy, old_passed), (came, left, busy, until) = self._faded
        passed = self.until - until
        kept = 0.5 ** max(0.0, passed * _NS / HALF_LIFE)
        return (
            old_in * kept + self.elements_in - came, old_out * kept + self.elements_out - left,
            old_busy * kept + self.busy - busy, old_passed * kept + passed,
        )  # fmt: skip

    def add(self, calls: int, came: int, left: int, busy: int, now: int) -> None:
        """What another process has counted."""
        if came and now > self.due:
            self.fade(now)
        self.calls += calls
        self.elements_in += came
        self.elements_out += left
        self.busy += busy
        if came:
            self.until = now

    def save(self) -> list[int | float]:
        """What was counted, and for how long; then the faded sums."""
        return [self.calls, self.elements_in, self.elements_out, self.busy, self.until - self.since, *self._sums()]

    def load(self, saved: Sequence[int | float]) -> None:
        """Go on from there, as if counting had been going on until now. Versions before 0.2 saved no faded sums."""
        calls, came, left, busy, lasted, *recent = saved
        self.calls, self.elements_in, self.elements_out, self.busy = int(calls), int(came), int(left), int(busy)
        self.since = self.until - int(lasted)
        if recent:
            sums = recent[0], recent[1], recent[2], recent[3]
            self._faded = sums, (self.elements_in, self.elements_out, self.busy, self.until)
        else:
            self._faded = (0.0, 0.0, 0.0, 0.0), (0, 0, 0, self.since)

    @property
    def selectivity(self) -> float | None:
        """Elements out for one in; None before the first."""
        came, left, _, _ = self._sums()
        return left / came if came > 0 else None

    @property
    def cost(self) -> float | None:
        """c(v): seconds for one element."""
        came, _, busy, _ = self._sums()
        return busy / came * _NS if came > 0 else None

    @property
    def interarrival(self) -> float | None:
        """d(v): seconds from one element to the next, those since the last one included; None where arrivals are
        counted but not timed."""
        came, _, _, passed = self._sums()
        if came <= 0 or passed <= 0:
            return None
        return (passed + max(0, time.perf_counter_ns() - self.until)) / came * _NS
