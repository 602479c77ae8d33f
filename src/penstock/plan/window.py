"""What a window on a stream is, as data. ``docs/semantics.md`` says what each means.

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
