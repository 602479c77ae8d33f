"""What a window on a stream is, as data. ``docs/concepts/semantics.md`` says what each means.

Sizes are in ticks (microseconds) or in rows. *Sliding* windows are relations that rows enter and leave;
*bounded* windows (``Generic``, ``Session``) have a start and an end, and the query is answered once for
each window, when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf


@dataclass(frozen=True)
class Unbounded:
    """``[RANGE UNBOUNDED]``: rows enter and never leave."""


@dataclass(frozen=True)
class Now:
    """``[NOW]``: a row leaves one tick after it came."""


@dataclass(frozen=True)
class Rows:
    """``[ROWS size SLIDE slide]``: the last rows; with a slide, as they were at every slide-th arrival."""

    size: int
    slide: int = 1


@dataclass(frozen=True)
class PartitionRows:
    """``[PARTITION BY keys ROWS size]``: the last rows of each key; keys are positions in the stream."""

    keys: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Range:
    """``[RANGE size SLIDE slide]``: rows of the last ``size`` ticks.

    With a slide the content changes at multiples of the slide only; at such an instant b, before the
    arrivals at b, it becomes the rows with b - size <= ts < b.
    """

    size: int
    slide: int | None = None


@dataclass(frozen=True)
class Generic:
    """Windows number i = 0, 1, …: from ``begin + i*hop_low`` to ``end + i*hop_high``, up to ``end_query``.

    ``time``: instants in ticks, half open. ``tuples``: row numbers from 1, both ends included.
    ``from_first`` (TUMBLING, HOPPING): begin and end are those of the window that would start at tick 0; window 0
    is the earliest one that contains the first row.
    """

    unit: OneOf["time", "tuples"]
    begin: int
    end: int
    hop_low: int
    hop_high: int
    end_query: int | None = None
    from_first: bool = False


@dataclass(frozen=True)
class Session:
    """``[PARTITION BY keys SESSION GAP gap]``: rows closer than ``gap`` to their predecessor belong together."""

    gap: int
    keys: tuple[int, ...] = ()


WindowSpec = Unbounded | Now | Rows | PartitionRows | Range | Generic | Session


def is_bounded(spec: WindowSpec) -> bool:
    """True for windows that are answered once, at their end."""
    return isinstance(spec, Generic | Session)


def bounds(spec: Generic, i: int) -> tuple[int, int]:
    """Where window i begins and ends."""
    return spec.begin + i * spec.hop_low, spec.end + i * spec.hop_high


def is_reverse(spec: Generic) -> bool:
    """True for windows that go back over what has been seen."""
    return spec.hop_high < 0 or (spec.hop_high == 0 and spec.hop_low < 0)


def exists(spec: Generic, i: int) -> bool:
    """Whether window i is to be answered; the first that is not ends the query."""
    start, end = bounds(spec, i)
    if spec.hop_low == spec.hop_high == 0 and i > 0:
        return False
    if start > end or (start == end and spec.unit == "time"):
        return False
    if spec.end_query is None:
        return True
    return start >= spec.end_query if is_reverse(spec) else end <= spec.end_query


def answered_at(spec: Generic, i: int) -> int:
    """The greatest end of windows 0 to i: the instant, or the row number, at which window i is answered."""
    return spec.end if spec.hop_high <= 0 else bounds(spec, i)[1]
