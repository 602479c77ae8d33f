"""Which of the rows that were given are which of those that were wanted."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from penstock.testing.expected import Row

Numbers = tuple[float, ...]
"""The finite floating-point numbers of a row, which may be a little off."""


@dataclass(frozen=True)
class Tolerance:
    """How far floating-point numbers may be apart: as a part of the greater one, or absolutely."""

    relative: float = 1e-9
    absolute: float = 1e-12

    def same(self, a: Numbers, b: Numbers) -> bool:
        """Nearly equal, all of them."""
        relative, absolute = self.relative, self.absolute
        return all(math.isclose(x, y, rel_tol=relative, abs_tol=absolute) for x, y in zip(a, b, strict=True))

    def reach(self, number: float) -> float:
        """Numbers further away than this are not the same."""
        if self.relative >= 1:
            return math.inf
        return max(self.relative * abs(number) / (1 - self.relative), self.absolute) * (1 + 1e-9)


def frozen(values: tuple[object, ...]) -> tuple[Hashable, Numbers]:
    """Values as something to look up: equal for equal values, where NaN equals NaN and NULL equals NULL.

    First all that must be equal, then the finite floating-point numbers.
    """
    numbers: list[float] = []
    return _frozen(values, numbers), tuple(numbers)


def _frozen(value: object, numbers: list[float]) -> Hashable:
    if isinstance(value, tuple):
        return tuple(_frozen(v, numbers) for v in value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return ("number", str(value))
        numbers.append(value)
        return ("number", "")
    assert isinstance(value, Hashable)
    return value


def unmatched(
    got: Sequence[Row], wanted: Sequence[Row], tolerance: Tolerance, *, has_ts: bool
) -> tuple[list[Row], list[Row]]:
    """The rows of ``wanted`` that are missing, and those of ``got`` that nobody wanted: as few as can be.

    ``has_ts``: instants matter. Who does not say whether rows enter or leave means rows that enter.
    """
    groups: dict[Hashable, _Group] = defaultdict(_Group)
    for i, row in enumerate(got):
        rest, numbers = frozen(row.values)
        groups[row.ts if has_ts else None, row.op or "+", rest].got.append((numbers, i))
    for i, row in enumerate(wanted):
        rest, numbers = frozen(row.values)
        groups[row.ts if has_ts else None, row.op or "+", rest].wanted.append((numbers, i))
    missing, unexpected = list[int](), list[int]()
    for group in groups.values():
        fewer, more = group.left(tolerance)
        missing += fewer
        unexpected += more
    return [wanted[i] for i in sorted(missing)], [got[i] for i in sorted(unexpected)]


class _Group:
    """Rows that differ in floating-point numbers at most, each with its place."""

    def __init__(self) -> None:
        self.got: list[tuple[Numbers, int]] = []
        self.wanted: list[tuple[Numbers, int]] = []

    def left(self, tolerance: Tolerance) -> tuple[list[int], list[int]]:
        """The places of rows that have no partner: of those wanted, of those given."""
        equal: dict[Numbers, list[int]] = defaultdict(list)
        for i, (numbers, _) in enumerate(self.got):
            equal[numbers].append(i)
        partner: dict[int, int] = {}
        """Of a row that was given, the one that was wanted."""
        alone = []
        for i, (numbers, _) in enumerate(self.wanted):
            if equal.get(numbers):
                partner[equal[numbers].pop(0)] = i
            else:
                alone.append(i)
        if alone and len(partner) < len(self.got):
            alone = _Near(self.got, self.wanted, tolerance).match(partner, alone)
        others = [place for i, (_, place) in enumerate(self.got) if i not in partner]
        return [self.wanted[i][1] for i in alone], others


class _Near:
    """Finds partners among rows whose numbers are nearly the same."""

    def __init__(
        self, got: Sequence[tuple[Numbers, int]], wanted: Sequence[tuple[Numbers, int]], tolerance: Tolerance
    ) -> None:
        self._got, self._wanted, self._tolerance = got, wanted, tolerance
        width = len(got[0][0])
        self._by = max(range(width), key=lambda i: len({numbers[i] for numbers, _ in got}))
        """The number that tells most rows apart: candidates are looked up by it."""
        self._sorted = sorted(range(len(got)), key=lambda i: got[i][0][self._by])
        self._keys = [got[i][0][self._by] for i in self._sorted]

    def match(self, partner: dict[int, int], alone: list[int]) -> list[int]:
        """Adds to ``partner``; gives the rows wanted that still have none, as few as can be."""
        rest = []
        for wanted in sorted(alone, key=lambda i: self._wanted[i][0][self._by]):
            found = next((got for got in self._candidates(wanted) if got not in partner), None)
            if found is None:
                rest.append(wanted)
            else:
                partner[found] = wanted
        hopeless: set[int] = set()
        """Given rows from which nothing free can be reached; a search that fails makes them so for good."""
        return [wanted for wanted in rest if not self._make_room(wanted, partner, hopeless)]

    def _candidates(self, wanted: int) -> Iterator[int]:
        numbers = self._wanted[wanted][0]
        number, reach = numbers[self._by], self._tolerance.reach(numbers[self._by])
        for at in range(bisect_left(self._keys, number - reach), bisect_right(self._keys, number + reach)):
            got = self._sorted[at]
            if self._tolerance.same(self._got[got][0], numbers):
                yield got

    def _make_room(self, wanted: int, partner: dict[int, int], hopeless: set[int]) -> bool:
        """Let rows that have a partner take another, so that this one has one too."""
        came_from: dict[int, int] = {}
        home: dict[int, int] = {}
        waiting = [wanted]
        while waiting:
            here = waiting.pop()
            for got in self._candidates(here):
                if got in came_from or got in hopeless:
                    continue
                came_from[got] = here
                if got in partner:
                    home[partner[got]] = got
                    waiting.append(partner[got])
                    continue
                while (taker := came_from[got]) != wanted:  # back along the way, each leaves its partner to another
                    partner[got], got = taker, home[taker]
                partner[got] = wanted
                return True
        hopeless.update(came_from)
        return False
