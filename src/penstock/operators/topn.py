"""ORDER BY with LIMIT and OFFSET."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

from penstock.model.delta import Delta, Instant, Step
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.evaluation import Errors, Evaluation, Functions, Values, order_keys, reader, row_key_of
from penstock.operators.ordered import Reversed, SortedBag
from penstock.operators.pieces import Tracked, Whole
from penstock.operators.rows import Changes, Output, Row, by_instant, size_of
from penstock.operators.shapes import row_of
from penstock.operators.state import Loaded, Saved, together
from penstock.plan.nodes import SortKey, TopN
from penstock.scalar import Context, order_key

Place = tuple[object, ...]
"""Where a row stands in an ordering."""


class _Item(NamedTuple):
    """A row in order; ``number`` differs, so nothing behind it is compared."""

    place: Place
    values: tuple[object, ...]
    moment: Instant
    number: int
    row: Row


def place_of(keys: Sequence[SortKey], context: Context) -> Callable[[Values], Place]:
    """What sorts rows as the keys say."""
    readers = [(reader(k.expr, context), k.descending, k.nulls_first) for k in keys]

    def of(values: Values) -> Place:
        place: list[object] = []
        for read, descending, nulls_first in readers:
            value = read(values)
            if value is None:
                place.append((0,) if nulls_first else (2,))
            elif descending:
                place.append((1, Reversed(order_key(value))))
            else:
                place.append((1, order_key(value)))
        return tuple(place)

    return of


def in_order(rows: Sequence[Row], place: Callable[[Values], Place] | None = None) -> list[Row]:
    """Rows by their place, equal ones by value, those by moment; without a place, by value."""
    places = [() if place is None else place(r.values) for r in rows]
    keyed = sorted((places[i], order_keys(r.values), r.moment, i) for i, r in enumerate(rows))
    return [rows[item[3]] for item in keyed]


class GeneralTopN:
    """The first rows in order, ties by value; see ``plan.nodes.TopN``.

    Needs a clean delta. Promises, for each instant, as many more or fewer copies of each value as the first rows have
    after it, in the order of the keys. Without LIMIT and OFFSET all rows pass with their identity, in that order.

    Rows are kept in three bags one after the other: those skipped, those shown and the rest. A row that comes or
    goes moves at most one row across each border.

    ``moments``: somebody above goes by the moments of this result; rows then keep theirs, and of equal rows the
    earlier ones are shown. Otherwise a row's moment is the instant at which it came to be shown.

    Bounded by the rows of the input, any of which may move up; a row is forgotten when it leaves.
    """

    def __init__(self, node: TopN, functions: Functions, errors: Errors, *, moments: bool = False) -> None:
        self.node = node
        self._moments = moments
        self._evaluation = Evaluation(functions, errors)
        self._place = place_of(node.keys, self._evaluation.entering)
        self._old_place = place_of(node.keys, self._evaluation.leaving)
        self._key = row_key_of(node.schema)
        self._items: dict[Hashable, list[_Item]] = {}
        self._shape = row_of(node.schema)
        self._rows: Tracked[Row] = Tracked(self._shape.table, self._shape.entries)
        self._pieces = Whole()
        self._version: object = object()  # another whenever rows come to be shown, or are no longer
        self._skipped: SortedBag[_Item] = SortedBag()
        self._shown: SortedBag[_Item] = SortedBag()
        self._rest: SortedBag[_Item] = SortedBag()
        self._emitted: dict[Hashable, list[Row]] = {}

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        self._evaluation.begin(step)
        output = Output(self.node.schema)
        all_rows = self.node.limit is None and not self.node.offset
        for instant, (changes,) in by_instant(inputs):
            if all_rows:
                leaving = in_order(changes.leaving, self._old_place)
                output.add(instant, leaving, in_order(changes.entering, self._place))
            else:
                output.add(instant, *self._change(instant, changes))
        return output.delta()

    def size(self) -> StateSize:
        rows = len(self._skipped) + len(self._shown) + len(self._rest)
        return size_of(rows, self.node.schema) if rows else NOTHING

    def save(self) -> Saved:
        emitted = [row for same in self._emitted.values() for row in same]
        shown = self._pieces.save(self._version, lambda: partial(self._shape.table, emitted))
        return together(rows=self._rows.save(), shown=shown)

    def load(self, state: Loaded) -> None:
        for number, row in self._rows.load(state.part("rows")):
            item = self._item(row, number)
            self._items.setdefault((self._key(row.values), row.moment), []).append(item)
        items = sorted((i for same in self._items.values() for i in same), key=lambda i: i[:4])
        skipped = self.node.offset or 0
        shown = len(items) if self.node.limit is None else skipped + self.node.limit
        self._skipped, self._shown = SortedBag(items[:skipped]), SortedBag(items[skipped:shown])
        self._rest = SortedBag(items[shown:])
        self._show(self._pieces.load(state.part("shown"), self._shape.entries))

    def catch_up(self, state: Loaded) -> None:
        def nothing(by: int, item: _Item) -> None:
            pass

        gone, came = self._rows.catch_up(state.part("rows"))
        for number, row in gone:
            same = self._items[(self._key(row.values), row.moment)]
            self._take_out(row, next(i for i, item in enumerate(same) if item.number == number), nothing)
        for number, row in came:
            self._put_in(self._item(row, number), nothing)
        emitted = self._pieces.catch_up(state.part("shown"), self._shape.entries)
        if emitted is not None:
            self._show(emitted)

    def _show(self, emitted: Sequence[Row]) -> None:
        """These rows, and no others, are shown."""
        self._version, self._emitted = emitted, {}
        for row in emitted:
            key = self._key(row.values)
            self._emitted.setdefault((key, row.moment) if self._moments else key, []).append(row)

    def _item(self, row: Row, number: int) -> _Item:
        return _Item(self._place(row.values), order_keys(row.values), row.moment, number, row)

    def _change(self, instant: Instant, changes: Changes) -> tuple[list[Row], list[Row]]:
        moved: dict[Hashable, list[tuple[int, _Item]]] = {}

        def note(by: int, item: _Item) -> None:
            key = self._key(item.row.values)
            moved.setdefault((key, item.moment) if self._moments else key, []).append((by, item))

        for row in changes.leaving:
            self._remove(row, note)
        for row in changes.entering:
            self._add(row, note)
        if moved:
            self._version = object()
        leaving: list[tuple[_Item, Row]] = []
        entering: list[tuple[_Item, Row]] = []
        for key, steps in moved.items():
            number = sum(by for by, _ in steps)
            shown = self._emitted.setdefault(key, [])
            item = steps[-1][1]
            for _ in range(-number):
                leaving.append((item, shown.pop()))
            for _ in range(number):
                priority = max(i.row.priority for _, i in steps)
                row = Row(item.row.values, item.moment if self._moments else instant, priority)
                shown.append(row)
                entering.append((item, row))
            if not shown:
                del self._emitted[key]
        # Items never tie, so rows are not compared.
        leaving.sort(key=lambda pair: pair[0][:4])
        entering.sort(key=lambda pair: pair[0][:4])
        return [row for _, row in leaving], [row for _, row in entering]

    def _add(self, row: Row, note: Callable[[int, _Item], None]) -> None:
        self._put_in(self._item(row, self._rows.add(row)), note)

    def _put_in(self, item: _Item, note: Callable[[int, _Item], None]) -> None:
        row = item.row
        self._items.setdefault((self._key(row.values), row.moment), []).append(item)
        if self.node.offset:
            self._skipped.add(item)
            if len(self._skipped) <= self.node.offset:
                return
            item = self._skipped.pop_greatest()
        note(1, item)
        self._shown.add(item)
        if self.node.limit is not None and len(self._shown) > self.node.limit:
            last = self._shown.pop_greatest()
            note(-1, last)
            self._rest.add(last)

    def _remove(self, row: Row, note: Callable[[int, _Item], None]) -> None:
        self._rows.remove(self._take_out(row, -1, note))

    def _take_out(self, row: Row, place: int, note: Callable[[int, _Item], None]) -> int:
        """The row at this place among its equals leaves the bags; its number."""
        same = self._items[(self._key(row.values), row.moment)]
        item = same.pop(place)
        if not same:
            del self._items[(self._key(row.values), row.moment)]
        if self._skipped and not self._skipped.greatest < item:
            self._skipped.remove(item)
            if self._shown:
                first = self._shown.pop_least()
                note(-1, first)
                self._skipped.add(first)
            elif self._rest:  # LIMIT 0
                self._skipped.add(self._rest.pop_least())
        elif self._shown and not self._shown.greatest < item:
            self._shown.remove(item)
            note(-1, item)
        else:
            self._rest.remove(item)
        if self._rest and self.node.limit is not None and len(self._shown) < self.node.limit:
            first = self._rest.pop_least()
            note(1, first)
            self._shown.add(first)
        return item.number

