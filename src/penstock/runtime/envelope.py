"""The lower envelope of a path of operators, by which Chain decides who works first.

One element that enters a path is drawn as a curve: across, the seconds that were spent on it; down, what is left of
it. An operator of cost c and selectivity s takes the point (t, r) to (t + c·r, r·s), since it works on the r elements
that are left and lets r·s of them through. From a point, the steepest line to a later point says how fast memory can
be released at best if one goes on from there; all operators up to that point are one segment and work at that
steepness. The lines together are the lower envelope: each is less steep than the one before.

What is at the edges:

- a cost of zero makes a line vertical: steepness is infinite where something is released, minus infinity where the
  operators only add, and zero where nothing changes; an operator that costs nothing and changes nothing goes with
  the ones before it;
- a selectivity above one releases less than nothing: the operator goes with what follows it if that is steeper, as
  it always is where more is released later, else its steepness is negative;
- after a selectivity of zero nothing is left, so the operators behind it cost nothing and release nothing: they go
  with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MOST = 1e100
"""More elements than that are not told apart, so that products stay finite."""


@dataclass(frozen=True)
class Segment:
    """The operators ``start`` to ``stop`` - 1 of a path, and the size that they release per second."""

    start: int
    stop: int
    steepness: float


def lower_envelope(costs: Sequence[float], selectivities: Sequence[float]) -> list[Segment]:
    """The segments of a path, from its first operator to its last.

    ``costs`` are seconds for each element that reaches the operator, ``selectivities`` elements out for one in.
    Both are finite and not negative. Takes time in proportion to the length of the path.

    >>> lower_envelope([1.0, 1.0, 1.0], [1.0, 0.5, 1.0])
    [Segment(start=0, stop=2, steepness=0.25), Segment(start=2, stop=3, steepness=0.0)]
    """
    if len(costs) != len(selectivities):
        raise ValueError(f"{len(costs)} costs but {len(selectivities)} selectivities; each operator has one of each")
    if not all(math.isfinite(n) and n >= 0 for n in (*costs, *selectivities)):
        raise ValueError("costs and selectivities must be finite and not negative")
    points = [(0.0, 1.0)]
    for cost, selectivity in zip(costs, selectivities, strict=True):
        spent, left = points[-1]
        points.append((min(spent + cost * left, _MOST), min(left * selectivity, _MOST)))
    segments: list[Segment] = []
    for i in range(len(costs)):
        start, steep = i, _line(points[i], points[i + 1])
        while segments and (segments[-1].steepness <= steep or points[start] == points[i + 1]):
            start = segments.pop().start
            steep = _line(points[start], points[i + 1])
        segments.append(Segment(start, i + 1, steep))
    return segments


def _line(before: tuple[float, float], after: tuple[float, float]) -> float:
    return steepness(after[0] - before[0], before[1] - after[1])


def steepness(seconds: float, released: float) -> float:
    """What is released per second, also where it takes no time."""
    if seconds > 0:
        return released / seconds
    return math.copysign(math.inf, released) if released else 0.0
