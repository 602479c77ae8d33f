"""DISTINCT, and UNION, EXCEPT and INTERSECT: rows that are what their values are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence

import pyarrow as pa

from penstock.model.delta import Delta, Instant, Step, merge
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.evaluation import Errors, Functions, Values, row_key_of
from penstock.operators.ordered import SortedBag
from penstock.operators.pieces import Tracked
from penstock.operators.rows import Changes, Output, Row, by_instant, size_of
from penstock.operators.shapes import INT, MOMENT, ListOf, Record, values_of
from penstock.operators.state import Loaded, Saved
from penstock.plan.nodes import Distinct, SetOp


class _Copies:
    """The copies of one value on each side, and the rows that show it in the result.

    Where nobody goes by moments, only their number counts; else ``moments`` has those of each side.
    """

    __slots__ = ("counts", "id", "moments", "shown", "values")

    def __init__(self, values: Values, sides: int, moments: bool) -> None:
        self.values = values
        self.id = -1
        self.counts = [0] * sides
        self.moments: list[SortedBag[Instant]] = [SortedBag() for _ in range(sides)] if moments else []
        self.shown: list[Row] = []

    def change(self, side: int, row: Row, by: int) -> None:
        self.counts[side] += by
        if self.moments:
            (self.moments[side].add if by > 0 else self.moments[side].remove)(row.moment)

    def frozen(self) -> object:
        """What it is now; the rows that are shown have its values."""
        shown = tuple([(row.moment, row.priority) for row in self.shown])
        return self.values, tuple(self.counts), tuple(map(tuple, self.moments)), shown

    def take_over(self, other: _Copies) -> None:
        """Be what another one of the same value is."""
        self.counts, self.moments, self.shown = other.counts, other.moments, other.shown


class _ByValue(ABC):
    """Rows by value over one or more inputs; subclasses say how many copies are in the result.

    ``moments``: somebody above goes by the moments of this result. Each copy then has the moment of the rows it
    stands for, and is replaced where only that changes. Otherwise its moment is the instant at which it came.
    """

    def __init__(self, node: Distinct | SetOp, sides: int, moments: bool) -> None:
        self.node = node
        self._sides = sides
        self._moments = moments
        self._key = row_key_of(node.schema)
        self._copies: dict[Hashable, _Copies] = {}
        self._shape = Record(
            values_of(f.type for f in node.schema), Record(*[INT] * sides), Record(*[ListOf(MOMENT)] * sides * moments),
            ListOf(Record(MOMENT, INT)),
        )  # fmt: skip
        self._by_id = Tracked(self._shape.table, self._loaded, _Copies.frozen)

    @abstractmethod
    def number(self, counts: Sequence[int]) -> int:
        """How many copies the result has."""

    @abstractmethod
    def moments_of(self, moments: Sequence[SortedBag[Instant]], number: int) -> list[Instant]:
        """The moments of these copies, in order."""

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        output = Output(self.node.schema)
        for instant, changes in by_instant(inputs):
            leaving: list[Row] = []
            entering: list[Row] = []
            for key, priority in self._count(changes).items():
                copies = self._copies[key]
                number = self.number(copies.counts)
                if self._moments:
                    self._replace(copies, self.moments_of(copies.moments, number), priority, leaving, entering)
                else:
                    _resize(copies, number, Row(copies.values, instant, priority), leaving, entering)
                if not any(copies.counts):
                    self._by_id.remove(copies.id)
                    del self._copies[key]
            output.add(instant, leaving, entering)
        return output.delta()

    def size(self) -> StateSize:
        rows = sum(sum(c.counts) for c in self._copies.values()) if self._moments else len(self._copies)
        return size_of(rows, self.node.schema)

    def save(self) -> Saved:
        return self._by_id.save()

    def load(self, state: Loaded) -> None:
        for id, copies in self._by_id.load(state):
            copies.id = id
            self._copies[self._key(copies.values)] = copies

    def catch_up(self, state: Loaded) -> None:
        gone, came = self._by_id.catch_up(state, _Copies.take_over)
        for _, copies in gone:
            del self._copies[self._key(copies.values)]
        for id, copies in came:
            copies.id = id
            self._copies[self._key(copies.values)] = copies

    def _loaded(self, table: pa.Table) -> Iterator[_Copies]:
        for values, counts, moments, shown in self._shape.entries(table):
            copies = _Copies(values, self._sides, self._moments)
            copies.counts = list(counts)
            copies.moments = [SortedBag(of_side) for of_side in moments]
            copies.shown = [Row(values, moment, priority) for moment, priority in shown]
            yield copies

    def _count(self, changes: Sequence[Changes]) -> dict[Hashable, int]:
        """Take all changes of an instant in; the values they touch, with the highest priority."""
        touched: dict[Hashable, int] = {}
        for by in (-1, 1):
            for side, of_side in enumerate(changes):
                for row in of_side.leaving if by < 0 else of_side.entering:
                    key = self._key(row.values)
                    copies = self._copies.get(key)
                    if copies is None:
                        copies = self._copies[key] = _Copies(row.values, self._sides, self._moments)
                        copies.id = self._by_id.add(copies)
                    else:
                        self._by_id.change(copies.id)
                    copies.change(side, row, by)
                    touched[key] = max(touched.get(key, row.priority), row.priority)
        return touched

    def _replace(
        self, copies: _Copies, moments: list[Instant], priority: int, leaving: list[Row], entering: list[Row]
    ) -> None:
        """Show exactly the copies with these moments; both lists are in order."""
        old, kept, new = copies.shown, [], []
        i = 0
        for moment in moments:
            while i < len(old) and old[i].moment < moment:
                leaving.append(old[i])
                i += 1
            if i < len(old) and old[i].moment == moment:
                kept.append(old[i])
                i += 1
            else:
                new.append(Row(copies.values, moment, priority))
        leaving += old[i:]
        entering += new
        copies.shown = sorted(kept + new, key=lambda r: r.moment)


def _resize(copies: _Copies, number: int, row: Row, leaving: list[Row], entering: list[Row]) -> None:
    """Show so many copies; the last to come is the first to go."""
    while len(copies.shown) > number:
        leaving.append(copies.shown.pop())
    while len(copies.shown) < number:
        copies.shown.append(row)
        entering.append(row)


class GeneralDistinct(_ByValue):
    """One row for each distinct row: it enters with the first copy and leaves with the last.

    Needs a clean delta. Bounded by the distinct rows of the input (with ``moments``, by its rows).
    """

    def __init__(self, node: Distinct | SetOp, functions: Functions, errors: Errors, *, moments: bool = False) -> None:
        super().__init__(node, 1, moments)

    def number(self, counts: Sequence[int]) -> int:
        return 1 if counts[0] else 0

    def moments_of(self, moments: Sequence[SortedBag[Instant]], number: int) -> list[Instant]:
        return [moments[0].greatest] if number else []


class _ExceptOrIntersect(_ByValue):
    def __init__(self, node: SetOp, moments: bool) -> None:
        super().__init__(node, 2, moments)
        self._kind, self._all = node.kind, node.all

    def number(self, counts: Sequence[int]) -> int:
        left, right = counts
        if self._kind == "intersect":
            return min(left, right, left if self._all else 1)
        if self._all:
            return max(0, left - right)
        return 1 if left and not right else 0

    def moments_of(self, moments: Sequence[SortedBag[Instant]], number: int) -> list[Instant]:
        if not number:
            return []
        left, right = moments
        if not self._all:
            return [max(left.greatest, right.greatest) if self._kind == "intersect" else left.greatest]
        if self._kind == "intersect":
            return [max(pair) for pair in zip(left, right, strict=False)]
        return [moment for moment, _ in zip(left, range(number), strict=False)]


class GeneralSetOp:
    """UNION, EXCEPT and INTERSECT, with ALL on bags; see ``plan.nodes.SetOp``.

    Needs clean deltas of both inputs. UNION ALL passes rows on with their identity and remembers nothing. All others
    count the copies of each value on both sides, and show as many as there are now; a change costs as much as the
    copies it adds or takes away (EXCEPT ALL and INTERSECT ALL with ``moments``: as the copies of its value).

    Bounded by the distinct rows of both inputs (with ``moments``, by their rows).
    """

    def __init__(self, node: SetOp, functions: Functions, errors: Errors, *, moments: bool = False) -> None:
        self.node = node
        self._rows: _ByValue | None = None
        if node.kind != "union":
            self._rows = _ExceptOrIntersect(node, moments)
        elif not node.all:
            self._rows = GeneralDistinct(node, functions, errors, moments=moments)

    @property
    def passes(self) -> bool:
        """Whether rows are passed on as they are."""
        return self._rows is None

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        if self.node.kind == "union":
            schema = self.node.schema
            together = merge([d.with_columns(schema, d.columns) for d in inputs])
            return together if self._rows is None else self._rows.process([together], step)
        assert self._rows is not None
        return self._rows.process(inputs, step)

    def size(self) -> StateSize:
        return NOTHING if self._rows is None else self._rows.size()

    def save(self) -> Saved:
        return Saved() if self._rows is None else self._rows.save()

    def load(self, state: Loaded) -> None:
        if self._rows is not None:
            self._rows.load(state)

    def catch_up(self, state: Loaded) -> None:
        if self._rows is not None:
            self._rows.catch_up(state)
