"""How long results take, as histograms of a fixed size.

A bucket is an eighth of a power of two wide: from 1 µs to 4.9 hours a percentile is at most 6 % off. What is shorter is
in the first bucket, what is longer in the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEAST = 1e-6
"""Seconds: shorter times are not told apart."""
_PARTS = 8
_OCTAVES = 34
BUCKETS = 1 + _PARTS * _OCTAVES


class Histogram:
    """Times by bucket, each with a weight. Bounded: ``BUCKETS`` numbers."""

    __slots__ = ("weights",)

    def __init__(self, weights: Floats | None = None) -> None:
        self.weights = np.zeros(BUCKETS) if weights is None else weights

    def add(self, seconds: Floats, weights: Floats) -> None:
        """Times, and the weight of each."""
        self.weights += np.bincount(buckets(seconds), weights, BUCKETS)

    def fade(self, part: float) -> None:
        """Let what is there weigh this part of what it weighs."""
        self.weights *= part

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.weights + other.weights)

    def quantile(self, part: float) -> float | None:
        """A time than which this part of the weight is not greater, in seconds: the middle of its bucket; None if there
        is nothing."""
        upto = np.cumsum(self.weights)
        if not upto[-1] > 0:
            return None
        bucket = int(np.searchsorted(upto, part * upto[-1] * (1 - 1e-12), "left"))
        return middle(min(bucket, BUCKETS - 1))


def buckets(seconds: Floats) -> npt.NDArray[np.int64]:
    """The bucket of each time."""
    parts, powers = np.frexp(np.maximum(seconds, 0.0) / LEAST)  # parts from 0.5 to 1
    found: npt.NDArray[np.int64] = (powers - 1) * _PARTS + ((parts - 0.5) * 2 * _PARTS).astype(np.int64) + 1
    return np.clip(found, 0, BUCKETS - 1)


def middle(bucket: int) -> float:
    """The time that stands for a bucket: none of the first one, the geometric middle of another."""
    if bucket == 0:
        return 0.0
    octave, part = divmod(bucket - 1, _PARTS)
    low, high = 1 + part / _PARTS, 1 + (part + 1) / _PARTS
    return float(LEAST * 2**octave * np.sqrt(low * high))


@dataclass(frozen=True)
class Latency:
    """What was measured of a query's results. Times in seconds; None where there is no result yet.

    ``count``: results since the database was opened. ``p50``, ``p99``: half of the results, 99 of 100, could be read
    no later than this after the push, heartbeat or tick that made them certain; ``max``: the longest ever.
    ``waiting_p50``, ``waiting_p99``: the time before that, from the push of a result's own row to the call that made it
    certain, in which it waited for slack or other streams. Percentiles are of the last minutes: a result weighs half as
    much for each minute between it and the newest. ``priorities``: the same by priority of the results' rows; 0 is
    none, 15 stands for 15 and above.
    """

    count: int = 0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None
    waiting_p50: float | None = None
    waiting_p99: float | None = None
    priorities: Mapping[int, Latency] = field(default_factory=dict)
