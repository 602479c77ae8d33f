"""MASTER, naively: the plan works on every change, and what it gives is compared at master instants (002 §6).

Importing this module adds ``naive`` to ``penstock.graph.masters.MASTERS``. Windows pass on every change, all operators
work on everything, and the operator that makes answers compares the result with that of the last master instant. To
know which row is which, rows carry the moments at which they came.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from experiments.identify import identified
from penstock.graph.masters import MASTERS
from penstock.graph.message import Data, Mark
from penstock.graph.operators import Emitting, arrived
from penstock.graph.ports import Port
from penstock.kernels.gate import leaving_first, masters_before
from penstock.model.delta import Delta, Ints, Step, concat, empty
from penstock.model.schema import Field, Schema
from penstock.model.types import BIGINT
from penstock.model.values import to_python
from penstock.operators.base import StateSize
from penstock.operators.emit import Emit
from penstock.operators.evaluation import row_key_of
from penstock.operators.state import LoadedState, State
from penstock.operators.waiting import Waiting
from penstock.plan.nodes import Node


class Net(Waiting):
    """The net changes of a result between one master instant and the next, at that instant.

    Needs clean deltas of rows of ``schema`` and ``step.masters``. ``key``: the columns that say which row is which
    (``identify``); ``columns``: those to give. Of a row that leaves and comes again nothing is given. What was
    there from the beginning, and still is, comes at the first master instant.

    Bounded by the net changes since the last master instant, up to a factor.
    """

    def __init__(self, schema: Schema, columns: Sequence[int], key: Sequence[int]) -> None:
        super().__init__(schema)
        self.schema: Schema = tuple(schema[c] for c in columns)
        self._columns, self._key = columns, key

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        assert step.masters is not None
        (delta,) = inputs
        if len(delta):
            self._wait([*self._waiting, delta])
        master_ts, master_sub = step.masters
        if not len(master_ts):
            if self._length > self._limit:
                self._first += self._length
                whole = concat(self._waiting)
                self._wait([whole.take(self._net(whole, np.zeros(len(whole), np.int64)))])
                self._looked_through()
            return empty(self.schema)
        if not self._waiting:
            return empty(self.schema)
        return self._pass_on(concat(self._waiting), master_ts, master_sub)

    def _pass_on(self, waiting: Delta, master_ts: Ints, master_sub: Ints) -> Delta:
        target, _, _ = masters_before(
            waiting.ts, waiting.sub, waiting.sign, waiting.moment_ts, master_ts, master_sub
        )
        due = int(target.searchsorted(len(master_ts)))
        self._first += due
        self._wait([waiting.slice(due, len(waiting))] if due < len(waiting) else [])
        self._looked_through()
        target = target[:due]
        kept = leaving_first(target, waiting.sign, self._net(waiting.slice(0, due), target))
        target = target[kept]
        found = waiting.take(kept).at(master_ts[target], master_sub[target])
        return found.with_columns(self.schema, [found.columns[c] for c in self._columns])

    def _net(self, delta: Delta, target: Ints) -> Ints:
        """The places of the changes that are left of those of one row on the way to the same master instant."""
        n = len(delta)
        if n < 2:
            return np.arange(n)
        keys = [target, *(_ints(delta.columns[k], self._taken[k]) for k in self._key)]
        order = np.lexsort(keys[::-1])
        new = np.zeros(n, np.bool_)
        new[0] = True
        for key in keys:
            of_row = key[order]
            new[1:] |= of_row[1:] != of_row[:-1]
        starts = np.flatnonzero(new)
        if len(starts) == n:
            return np.arange(n)
        row = np.cumsum(new) - 1
        sign = delta.sign[order].astype(np.int64)
        net = np.add.reduceat(sign, starts)[row]
        # If it is more than before, the last that came are left; if it is less, the first that left.
        came = _running(sign > 0, starts, row)
        most = np.maximum.reduceat(came, starts)[row]
        left = _running(sign < 0, starts, row)
        kept = np.where(sign > 0, most - came < net, left <= -net)
        return np.sort(order[kept])


def _running(which: npt.NDArray[np.bool_], starts: Ints, row: Ints) -> Ints:
    """For each place, how many there have been of its row up to it."""
    counted = np.cumsum(which)
    before: Ints = counted[starts] - which[starts]
    result: Ints = counted - before[row]
    return result


def _ints(column: pa.Array, field: Field) -> Ints:
    """Numbers that are equal where the values are."""
    if field.type == BIGINT and not column.null_count:
        result: Ints = column.to_numpy()
        return result
    key = row_key_of((field,))
    numbers: dict[object, int] = {}
    values = [key((value,)) for value in to_python(column, field.type)]
    return np.array([numbers.setdefault(v, len(numbers)) for v in values], np.int64)


class Comparing(Emitting):
    """Relation to stream, of what ``net`` leaves of the changes."""

    def __init__(
        self, net: Net, label: str, emit: Emit, changes: Port, instants: Sequence[Port], *, masters: bool, streams: bool
    ) -> None:
        super().__init__(label, emit, changes, instants, masters=masters, streams=streams)
        self.net = net

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        delta, *masters = inputs
        assert isinstance(delta, Delta)
        return super().work([self.net.process([delta], Step(mark.frontier, arrived(masters))), *masters], mark)

    def measured(self) -> StateSize:
        return super().measured() + self.net.size()

    def save(self) -> State:
        return {**super().save(), "net": self.net.save()}

    def load(self, state: LoadedState) -> None:
        super().load(state)
        self.net.load(state["net"])

    def catch_up(self, state: LoadedState) -> None:
        super().catch_up(state)
        self.net.catch_up(state["net"])


class Naive:
    """How the compiler runs a query: its plan with the identity of rows, and a ``Comparing`` that makes the answers."""

    def __init__(self, node: Node) -> None:
        self._identified = identified(node)
        self.node = self._identified.node
        self.key: Hashable = (self._identified.columns, self._identified.key)

    def emitting(
        self, label: str, emit: Emit, changes: Port, instants: Sequence[Port], *, masters: bool, streams: bool
    ) -> Comparing:
        net = Net(changes.schema, self._identified.columns, self._identified.key)
        return Comparing(net, label, emit, changes, instants, masters=masters, streams=streams)


MASTERS["naive"] = Naive
