"""GROUP BY: one row for each group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.model.delta import BEGINNING, Delta, Instant, Step
from penstock.operators.accumulators import Accumulator, accumulator, shape_of
from penstock.operators.base import StateSize
from penstock.operators.evaluation import (
    Errors,
    Evaluation,
    Functions,
    Values,
    reader,
    row_key_of,
    row_reader,
    value_key_of,
)
from penstock.operators.ordered import SortedBag
from penstock.operators.pieces import Tracked
from penstock.operators.rows import Changes, Output, Row, by_instant, size_of
from penstock.operators.shapes import INT, MOMENT, ListOf, OneOrNone, Record, values_of
from penstock.operators.state import Loaded, Saved, with_meta
from penstock.plan.nodes import Aggregate, AggregateCall
from penstock.scalar import Context, RowError
from penstock.scalar.numbers import fit

_Args = Callable[[Values], Values | None]


class _Group:
    """The members of a group, by what its aggregates remember of them. ``shown`` is its row in the result."""

    __slots__ = ("accumulators", "id", "keys", "members", "moments", "shown", "stale", "values")

    def __init__(self, keys: Values, calls: Sequence[AggregateCall]) -> None:
        self.keys = keys
        self.accumulators: list[Accumulator] = [accumulator(c) for c in calls]
        self.values: list[object] = [None] * len(calls)
        self.stale = [True] * len(calls)
        self.members = 0
        self.moments: SortedBag[Instant] = SortedBag()
        self.shown: Row | None = None
        self.id = -1

    def frozen(self) -> object:
        """What ``restore`` wants; between two steps nothing is stale. The row that is shown begins with the keys."""
        states = tuple([a.saved() for a in self.accumulators])
        row = self.shown
        shown = None if row is None else (row.values[len(self.keys) :], row.moment, row.priority)
        return self.keys, self.members, tuple(self.values), tuple(self.moments), shown, states

    def restore(self, saved: Any) -> None:
        _, self.members, values, moments, shown, states = saved
        self.values, self.moments = list(values), SortedBag(moments)
        self.stale = [False] * len(values)
        self.shown = None if shown is None else Row(self.keys + shown[0], *shown[1:])
        for inner, state in zip(self.accumulators, states, strict=True):
            inner.restore(state)

    def take_over(self, other: _Group) -> None:
        """Be what another one is; the keys and the id are the same."""
        self.members, self.moments, self.shown = other.members, other.moments, other.shown
        self.accumulators, self.values, self.stale = other.accumulators, other.values, other.stale


class GeneralAggregate:
    """Any aggregates over any keys; see ``plan.nodes.Aggregate``.

    Needs a clean delta. Promises for each instant at most one row that leaves and one that enters for each group:
    nothing where the group's values stay, only the row that leaves where the group loses its last member. Without keys
    the row over nothing enters at ``BEGINNING``, with the first call.

    ``moments``: somebody above goes by the moments of this result. A group's row then has the last moment of its
    members, and is replaced where only that changes. Otherwise its moment is the instant at which it came.

    Bounded by the groups that have members and, for aggregates that need the values themselves (min, max, quantile,
    first, last, collect, DISTINCT), by the members; a group is forgotten with its last member.
    """

    def __init__(self, node: Aggregate, functions: Functions, errors: Errors, *, moments: bool = False) -> None:
        self.node = node
        self._moments = moments
        self._evaluation = Evaluation(functions, errors)
        contexts = self._evaluation.leaving, self._evaluation.entering
        self._keys = [row_reader(node.keys, c) for c in contexts]
        self._args = [[_arguments(call, c) for call in node.aggregates] for c in contexts]
        self._key = value_key_of(k.type for k in node.keys)
        self._row_key = row_key_of(node.schema)
        self._groups: dict[Hashable, _Group] = {}
        values = values_of(c.type for c in node.aggregates)
        self._shape = Record(
            values_of(k.type for k in node.keys), INT, values, ListOf(MOMENT), OneOrNone(Record(values, MOMENT, INT)),
            Record(*map(shape_of, node.aggregates)),
        )  # fmt: skip
        self._all = Tracked(self._shape.table, self._loaded, _Group.frozen)
        self._members = 0
        self._begun = bool(node.keys)

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        self._evaluation.begin(step)
        output = Output(self.node.schema)
        for instant, (changes,) in by_instant(inputs):
            if not self._begun and instant != BEGINNING:
                self._begin(output)
            self._change(instant, changes, output)
        if not self._begun:
            self._begin(output)
        return output.delta()

    def size(self) -> StateSize:
        return size_of(len(self._groups), self.node.schema) + size_of(self._members, self.node.input.schema)

    def save(self) -> Saved:
        return with_meta(self._all.save(), begun=self._begun)

    def load(self, state: Loaded) -> None:
        self._begun = state.meta["begun"]
        for id, group in self._all.load(state):
            group.id = id
            self._members += group.members
            self._groups[self._key(group.keys)] = group

    def catch_up(self, state: Loaded) -> None:
        self._begun = state.meta["begun"]

        def update(group: _Group, saved: _Group) -> None:
            self._members += saved.members - group.members
            group.take_over(saved)

        gone, came = self._all.catch_up(state, update)
        for _, group in gone:
            self._members -= group.members
            del self._groups[self._key(group.keys)]
        for id, group in came:
            group.id = id
            self._members += group.members
            self._groups[self._key(group.keys)] = group

    def _loaded(self, table: pa.Table) -> Iterator[_Group]:
        for saved in self._shape.entries(table):
            group = _Group(saved[0], self.node.aggregates)
            group.restore(saved)
            yield group

    def _new(self, key: Hashable, keys: Values) -> _Group:
        group = self._groups[key] = _Group(keys, self.node.aggregates)
        group.id = self._all.add(group)
        return group

    def _begin(self, output: Output) -> None:
        self._change(BEGINNING, Changes((), ()), output)

    def _change(self, instant: Instant, changes: Changes, output: Output) -> None:
        touched: dict[Hashable, int] = {}
        if not self._begun:
            self._begun = True
            self._new((), ())
            touched[()] = 0
        for entering, rows in enumerate(changes):
            for row in rows:
                key = self._count(row, entering)
                touched[key] = max(touched.get(key, row.priority), row.priority)
        leaving: list[Row] = []
        new: list[Row] = []
        for key, priority in touched.items():
            self._show(key, instant, priority, leaving, new)
        output.add(instant, leaving, new)

    def _count(self, row: Row, entering: int) -> Hashable:
        """Take a row into its group, or out of it."""
        keys = self._keys[entering](row.values)
        key = self._key(keys)
        group = self._groups.get(key)
        if group is None:
            group = self._new(key, keys)
        else:
            self._all.change(group.id)
        by = 1 if entering else -1
        group.members += by
        self._members += by
        if self._moments:
            (group.moments.add if entering else group.moments.remove)(row.moment)
        for i, arguments in enumerate(self._args[entering]):
            args = arguments(row.values)
            if args is not None:
                group.stale[i] = True
                inner = group.accumulators[i]
                (inner.add if entering else inner.remove)(args, row.moment)
        return key

    def _show(self, key: Hashable, instant: Instant, priority: int, leaving: list[Row], entering: list[Row]) -> None:
        """Compare a group's row with what it was."""
        group = self._groups[key]
        old = group.shown
        if not group.members and self.node.keys:
            del self._groups[key]
            self._all.remove(group.id)
            if old is not None:
                leaving.append(old)
            return
        values = (*group.keys, *self._values(group))
        moment = instant
        if self._moments:
            moment = group.moments.greatest if group.moments else BEGINNING
        if old is not None:
            if self._row_key(old.values) == self._row_key(values) and not (self._moments and old.moment != moment):
                return
            leaving.append(old)
        group.shown = Row(values, moment, priority)
        entering.append(group.shown)

    def _values(self, group: _Group) -> list[object]:
        for i, stale in enumerate(group.stale):
            if stale:
                group.stale[i] = False
                call = self.node.aggregates[i]
                try:
                    group.values[i] = fit(group.accumulators[i].value(), call.type)
                except RowError as e:
                    group.values[i] = self._evaluation.entering.fail(f"{call.function}: {e}")
        return group.values


def _arguments(call: AggregateCall, context: Context) -> _Args:
    """The arguments of a call on a row; None where the row does not count."""
    where = None if call.where is None else reader(call.where, context)
    read = row_reader(call.args, context)
    ignores_nulls = call.function not in ("first", "last")

    def of(row: Values) -> Values | None:
        if where is not None and where(row) is not True:
            return None
        args = read(row)
        return None if ignores_nulls and None in args else args

    return of
