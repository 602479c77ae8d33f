"""When what was given: for each push, heartbeat and tick of a stream the time, and how far the stream was then.

The time of an instant is looked up here when results are measured, so nothing has to travel with the rows: which push
had an element, and which one took the stream past an instant.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

FIELDS = 4
FULL = FIELDS * 1024
"""Numbers after which older calls are thinned out."""
_NEW = 256
"""Calls that are all kept."""
_STEP = 1 / 32
"""Of older calls one is kept for each such part of their age, so a time is wrong by so much of it at most."""
_MOST = 512


class Stamps:
    """The calls of one stream: ``log`` has of each the seconds of the database's stopwatch, how many rows had arrived,
    the greatest instant that was named, and the progress, after it. Numbers never fall.

    One thread at a time adds, any thread looks: to add to an array, to copy and to replace it are single steps of
    the interpreter. Bounded: of old calls the more are forgotten the older they are, at most ``FULL`` numbers stay.
    """

    __slots__ = ("log", "wanted")

    def __init__(self) -> None:
        self.log = array("d")
        self.wanted = False
        """Whether somebody looks calls up; else none needs to be added."""

    def thin(self) -> None:
        """Forget most of the older calls."""
        calls = self.look().calls
        new, old = calls[-_NEW:], calls[:-_NEW]
        age = new[-1, 0] - old[:, 0]
        with np.errstate(divide="ignore"):
            part = np.floor(np.log(np.maximum(age, 1e-9)) / _STEP)
        last = np.append(part[1:] != part[:-1], True)  # the last call of each part stands for all of it
        kept = np.concatenate([old[last], new])[-_MOST:]
        self.log = array("d", kept.tobytes())

    def look(self) -> Calls:
        """The calls as they are now."""
        return Calls(np.frombuffer(self.log[:], np.float64).reshape(-1, FIELDS))


class Calls:
    """What a stream was given so far."""

    def __init__(self, calls: Floats) -> None:
        self.calls = calls

    def __len__(self) -> int:
        return len(self.calls)

    def with_arrival(self, arrival: npt.NDArray[Any]) -> Places:
        """The calls that brought rows of these numbers; the number of calls where none did."""
        return np.searchsorted(self.calls[:, 1], arrival, "right")

    def naming(self, ts: npt.NDArray[Any]) -> Places:
        """The first calls after which these instants had been named."""
        return np.searchsorted(self.calls[:, 2], ts, "left")

    def passing(self, ts: npt.NDArray[Any], *, beyond: bool) -> Places:
        """The first calls after which the stream was at these instants, or ``beyond``."""
        return np.searchsorted(self.calls[:, 3], ts, "right" if beyond else "left")

    def times(self, places: Places) -> Floats:
        """When calls were; NaN where there is none."""
        known = np.append(self.calls[:, 0], np.nan)
        return known[places]
