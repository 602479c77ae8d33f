"""What a plan may wait for: other inputs, and instants at which something happens by time alone.

It is decided from the plan, so it is the same on every engine. It may say too much: a row that a filter has dropped is
waited for all the same. It never says too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.plan.empty import passes_empty
from penstock.plan.nodes import Query, Window, declared_scans, inputs, sources, streams, walk, windows
from penstock.plan.window import Generic, Now, Range, Session

Ticks = float
"""A whole number of them, or infinite."""


@dataclass(frozen=True)
class Leaves:
    """Something may happen from ``least`` to ``most`` ticks after a row of these streams, or a change of these
    relations: it leaves a window, or ends a session."""

    of: frozenset[str]
    least: int
    most: Ticks


@dataclass(frozen=True)
class Ends:
    """Something happens at ``first`` and every ``every`` ticks after it, until ``last``: windows slide or end.

    As long as the newest row or change of these is no older than ``lasts``. ``from_first``: before ``first`` too, but
    not before there is a row. Without ``every``: at ``first`` alone.
    """

    of: frozenset[str]
    first: int
    every: int
    lasts: Ticks
    last: Ticks = math.inf
    from_first: bool = True

    def after(self, at: Ticks) -> Ticks:
        """The next such instant after another one; infinite if there is none."""
        if self.every and (self.from_first or at >= self.first):
            found: Ticks = self.first + ((int(at) - self.first) // self.every + 1) * self.every
        else:
            found = self.first if at < self.first else math.inf
        return found if found <= self.last else math.inf


@dataclass(frozen=True)
class Waits:
    """``ordered``: elements may have to wait for other inputs. ``nested``: answers of queries are elements of others,
    which wait until all streams are beyond them."""

    ordered: bool
    nested: bool
    leaves: tuple[Leaves, ...]
    ends: tuple[Ends, ...]


def waits(query: Query) -> Waits:
    """What a query may wait for."""
    inner = [node for node in walk(query) if isinstance(node, Query)]
    nested = len(inner) > 1
    leaves: list[Leaves] = []
    ends: list[Ends] = []
    for part in inner:
        for window in windows(part):
            found = _happens(part, window)
            if isinstance(found, Leaves):
                leaves.append(found if not nested else Leaves(found.of, 1, found.most + 1))
            elif found is not None:
                ends.append(found)
                if nested:
                    leaves.append(Leaves(found.of, 1, found.lasts + 1))
    ordered = any(len({source.position for source in sources(part)}) > 1 for part in inner)
    return Waits(ordered or nested, nested, tuple(dict.fromkeys(leaves)), tuple(dict.fromkeys(ends)))


def _happens(query: Query, window: Window) -> Leaves | Ends | None:
    """What a window does by time alone that its query answers."""
    below = frozenset(scan.name for scan in declared_scans(window))
    before = _lasting(window)
    leaving = window.retractions and not query.masters
    match window.spec:
        case Range(size, None) if leaving:
            return Leaves(below, 1 if before else size, before + size)
        case Now() if leaving:
            return Leaves(below, 1, before + 1)
        case Range(size, int(slide)) if not query.masters:
            return Ends(below, 0, slide, before + slide + (size if leaving else 0))
        case Session(gap, _):
            return Leaves(below, 1 if before else gap, before + gap)
        case Generic("time", begin, end, _, hop, last, from_first) if hop > 0:
            lasts = before + end - begin if passes_empty(query) else math.inf
            return Ends(below, end, hop, lasts, math.inf if last is None else last, from_first)
        case Generic("time", _, end):
            return Ends(below, end, 0, math.inf, from_first=False)
    return None


def _lasting(window: Window) -> Ticks:
    """For how long after a row of a declared stream elements may still come into a window, by time alone."""
    longest: Ticks = 0
    for stream in streams(window):
        for query in (node for node in inputs(stream) if isinstance(node, Query)):
            for inner in windows(query):
                found = _happens(query, inner)
                lasts = found.most if isinstance(found, Leaves) else found.lasts if found else _lasting(inner)
                longest = max(longest, lasts)
    return longest
