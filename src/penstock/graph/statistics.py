"""What is measured of an operator while it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence


class Statistics:
    """Counts of one operator. Written by whoever runs the operator, read by anybody: a reader may see numbers of
    which one is a call ahead of the other.

    Bounded: a fixed handful of numbers.
    """

    __slots__ = ("began", "busy", "calls", "elements_in", "elements_out", "since", "until")

    def __init__(self) -> None:
        self.calls = 0
        self.elements_in = 0
        self.elements_out = 0
        self.busy = 0  # nanoseconds inside the operator, successors not counted
        self.since = time.perf_counter_ns()  # when counting began
        self.until = self.since  # when the last elements came
        self.began = 0  # when it was called last

    def save(self) -> list[int]:
        """What was counted, and for how long."""
        return [self.calls, self.elements_in, self.elements_out, self.busy, self.until - self.since]

    def load(self, saved: Sequence[int]) -> None:
        """Go on from there, as if counting had been going on until now."""
        self.calls, self.elements_in, self.elements_out, self.busy, lasted = saved
        self.since = self.until - lasted

    @property
    def selectivity(self) -> float | None:
        """Elements out for one in; None before the first."""
        return self.elements_out / self.elements_in if self.elements_in else None

    @property
    def cost(self) -> float | None:
        """c(v): seconds for one element."""
        return self.busy / self.elements_in / 1e9 if self.elements_in else None

    @property
    def interarrival(self) -> float | None:
        """d(v): seconds from one element to the next; None where arrivals are counted but not timed."""
        timed = self.elements_in and self.until > self.since
        return (self.until - self.since) / self.elements_in / 1e9 if timed else None
