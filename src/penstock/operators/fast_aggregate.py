"""Group-by aggregates over numbers, for millions of rows a second.

Supported: count, sum, avg, min and max with FILTER, over the types of ``supports``; everything else is the general
operator's. Values are those of ``aggregates.compute``; what ``kernels.aggregate`` says of sums of doubles holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels import aggregate as kernel
from penstock.kernels import queues
from penstock.kernels.batch import Rows, count_failures
from penstock.kernels.buffers import column, floats, gather, halves, integers, ordered, restore, validity
from penstock.kernels.expressions import compile_project
from penstock.kernels.intern import Interner
from penstock.model.delta import Delta, Instant, Ints, Step
from penstock.model.types import Kind
from penstock.operators.base import StateSize
from penstock.operators.group_pieces import GroupPieces, groups_from, groups_table, rows_of
from penstock.operators.queue_pieces import QueuePieces
from penstock.operators.state import Loaded, Saved, together, with_meta
from penstock.operators.tables import whole
from penstock.plan.nodes import Aggregate, AggregateCall, Node, Window
from penstock.plan.steps import below_steps
from penstock.plan.window import Unbounded
from penstock.scalar import Context
from penstock.scalar.expr import Column, Expr
from penstock.scalar.failing import can_fail

_ORDERED = (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL)
_ONLY = np.zeros(1, np.int64)
"""The code of the one group without keys."""
_MOST = 60
"""Values given out for one node; which of them are NULL are the bits of one number."""
_KEY_DIGITS = 18
"""Digits up to which a DECIMAL is a 64-bit integer."""
_SUM_DIGITS = 28
"""Digits up to which the sum of ten thousand million DECIMALs has 128 bits."""
_AT_ONCE = 1 << 16
"""Changes after which room for queued values is looked at again."""


def supports(node: Aggregate, *, fifo: bool) -> bool:
    """Whether ``FastAggregate`` can compute the node; ``fifo``: rows of a group leave in the order they entered."""
    wide = sum(call.type.kind is Kind.DECIMAL for call in node.aggregates)
    if len(node.aggregates) + wide > _MOST:
        return False
    return all(_supported(call, fifo or _only_grows(node.input)) for call in node.aggregates)


def _supported(call: AggregateCall, fifo: bool) -> bool:
    if call.function in ("min", "max"):
        # DISTINCT makes no difference to them.
        return fifo and (call.args[0].type.kind in _ORDERED or _is_decimal(call, _KEY_DIGITS))
    if call.distinct:
        return False
    if call.function == "count":
        return len(call.args) <= 1
    if call.function not in ("sum", "avg"):
        return False
    dtype = call.args[0].type
    if dtype.is_integer or dtype.is_float or (call.function == "sum" and dtype.kind is Kind.INTERVAL):
        return True
    return _is_decimal(call, _SUM_DIGITS)


def _is_decimal(call: AggregateCall, digits: int) -> bool:
    dtype = call.args[0].type
    return dtype.kind is Kind.DECIMAL and (dtype.precision or 0) <= digits


def _only_grows(node: Node) -> bool:
    node = below_steps(node)
    return isinstance(node, Window) and isinstance(node.spec, Unbounded)


@dataclass(frozen=True)
class _Argument:
    """What is accumulated: places of the value and of the FILTER among the computed columns, or None."""

    kind: int
    value: int | None
    where: int | None
    greatest: bool = False


class FastAggregate:
    """One row for each group of rows.

    Needs: whole instants; with ``fifo``, rows that leave each group in the order in which they entered it (min and max
    need that, or rows that never leave). Promises: at each instant, for every group whose row has changed, the old row
    leaving (unless ``emit_leaving`` is off) and the new one entering; without keys there is a row from the beginning.
    A group's moment and priority are the greatest of its rows' where rows leave in order, or never; otherwise the
    moment is that of the row that entered last and the priority the highest since the group began. When only these
    change, nothing is said.
    Bounded by the groups there are, and for min and max by the rows that can still be the first of their group; forgets
    a group when its last row leaves.
    """

    def __init__(
        self,
        node: Aggregate,
        functions: Mapping[str, Callable[..., object]],
        errors: Context,
        *,
        fifo: bool,
        emit_leaving: bool = True,
    ) -> None:
        self.schema = node.schema
        self._errors = errors
        self._emit_leaving = emit_leaving
        self._queued = kernel.QUEUED if fifo and not _only_grows(node.input) else kernel.BEST
        self._calls = node.aggregates
        self._keys = len(node.keys)
        self._exprs: list[Expr] = list(node.keys)
        self._arguments: list[_Argument] = []
        outs = [self._out(call) for call in node.aggregates]
        # Where the high halves are of the values that have two.
        self._highs: dict[int, int] = {}
        for i, (op, arg) in enumerate(outs[:]):
            if op in (kernel.GIVE_WIDE_SUM, kernel.GIVE_WIDE_AVERAGE):
                self._highs[i] = len(outs)
                outs.append((op + 1, arg))
        self._compared = len(outs)
        self._ops = np.array([op for op, _ in outs], np.int64)
        self._args = np.array([arg for _, arg in outs], np.int64)
        self._givers = [_giver(call, op) for call, (op, _) in zip(node.aggregates, outs, strict=False)]
        self._sources = [e.index if isinstance(e, Column) else None for e in self._exprs]
        self._compute = None
        if None in self._sources:
            self._compute = compile_project([e for e in self._exprs if not isinstance(e, Column)], functions)
        self._can_fail = any(can_fail(e) for e in self._exprs)
        self._interner = Interner([k.type for k in node.keys])
        self._priorities: bool | None = None
        self._kinds: Ints = np.empty(0, np.int64)
        self._places: Ints = np.empty(0, np.int64)
        self._ints: npt.NDArray[np.int64] = np.empty((0, 0), np.int64)
        self._sums: npt.NDArray[np.float64] = np.empty((0, 0), np.float64)
        self._queue_keys: Ints = np.empty(0, np.int64)
        self._queue_numbers: Ints = np.empty(0, np.int64)
        self._queue_links = np.empty((0, 2), np.int32)
        self._state = kernel.new_state()
        self._pieces = GroupPieces()
        self._queues = QueuePieces()

    def _out(self, call: AggregateCall) -> tuple[int, int]:
        """What the kernel gives out for a call, and of which argument."""
        where = None if call.where is None else self._place(call.where)
        if call.function == "count":
            if not call.args and where is None:
                return kernel.GIVE_ROWS, 0
            value = self._place(call.args[0]) if call.args else None
            return kernel.GIVE_COUNT, self._argument(_Argument(kernel.COUNTED, value, where))
        value = self._place(call.args[0])
        if call.function in ("min", "max"):
            chosen = _Argument(self._queued, value, where, call.function == "max")
            return kernel.GIVE_FIRST, self._argument(chosen)
        if call.args[0].type.is_float:
            op = kernel.GIVE_DOUBLE_SUM if call.function == "sum" else kernel.GIVE_DOUBLE_AVERAGE
            return op, self._argument(_Argument(kernel.DOUBLE, value, where))
        if call.args[0].type.kind is Kind.DECIMAL:
            op = kernel.GIVE_WIDE_SUM if call.function == "sum" else kernel.GIVE_WIDE_AVERAGE
            return op, self._argument(_Argument(kernel.WIDE, value, where))
        op = kernel.GIVE_SUM if call.function == "sum" else kernel.GIVE_AVERAGE
        return op, self._argument(_Argument(kernel.INTEGER, value, where))

    def _place(self, expr: Expr) -> int:
        if expr not in self._exprs[self._keys :]:
            self._exprs.append(expr)
        return self._exprs.index(expr, self._keys)

    def _argument(self, argument: _Argument) -> int:
        if argument not in self._arguments:
            self._arguments.append(argument)
        return self._arguments.index(argument)

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        (delta,) = inputs
        n = len(delta.ts)
        if self._priorities is None and (n or not self._keys):
            self._prepare(delta.priority is not None)
        if n == 0 and (self._keys or self._state[kernel.MARKS]):
            return _nothing(self, delta)
        columns = self._columns(delta, step)
        keys = columns[: self._keys]
        codes = self._interner.encode(keys, n)
        self._reserve(self._interner.capacity)
        self._pieces.touch(codes if self._keys else _ONLY, self._interner.capacity)
        data, highs, valid = self._data(delta, columns)
        most = n * (2 if self._emit_leaving else 1) + 1
        outs = len(self._ops)
        head, signs = np.empty((5, most), np.int64), np.empty(most, np.int8)
        values, nulls = np.empty((outs, most), np.int64), np.empty((outs, most), np.uint8)
        touched, touched_by, emptied = np.empty((3, n + 1), np.int64)
        state = self._state
        state[: kernel.FREE] = (0, state[kernel.MARKS], 0, 0, 0)
        for start, stop in self._parts(delta):
            self._reserve_queues(stop - start)
            kernel.run(
                start, stop, self._keys > 0, self._emit_leaving, self._compared, delta.ts, delta.sub, delta.sign, codes,
                delta.moment_ts, delta.moment_sub, data, highs, data.view(np.float64), valid, self._kinds, self._places,
                self._ops, self._args, self._ints, self._sums, self._queue_keys, self._queue_numbers, self._queue_links,
                touched, touched_by, emptied, head, signs, values, nulls, state,
            )  # fmt: skip
        if state[kernel.EMPTIED]:
            gone = np.unique(emptied[: state[kernel.EMPTIED]])
            self._pieces.release(gone)
            left = self._ints[gone, kernel.ROWS] == 0
            self._interner.release(gone[left])
            self._pieces.touch(gone[~left] if self._keys else _ONLY, self._interner.capacity)
        if state[kernel.FAILURES]:
            count_failures(self._errors, int(state[kernel.FAILURES]), "sum: out of range of its type")
        return self._delta(keys, head, signs, values, nulls)

    def _prepare(self, priorities: bool) -> None:
        """Shape the state, once it is known whether rows have priorities."""
        self._priorities = priorities
        if priorities:
            self._ops = np.append(self._ops, kernel.GIVE_FIRST)
            self._args = np.append(self._args, len(self._arguments))
            self._arguments.append(_Argument(self._queued, None, None, greatest=True))
        self._kinds = np.array([a.kind for a in self._arguments], np.int64)
        self._has_queues = any(a.kind >= kernel.QUEUED for a in self._arguments)
        widths = [kernel.WIDTHS[kind] for kind in self._kinds]
        self._places = np.cumsum([kernel.FIXED + len(self._ops), *widths])
        self._args = self._places[self._args]
        # Rows begin where lines of the cache do.
        width = -(-(int(self._places[-1]) + kernel.RARE) // 8) * 8
        self._ints = np.zeros((0, width), np.int64)

    def _reserve(self, groups: int) -> None:
        have = len(self._ints)
        if groups > have:
            more = max(groups, 2 * have, 16) - have
            fresh = np.zeros((more, self._ints.shape[1]), np.int64)
            fresh[:, kernel.MOMENT_TS] = np.iinfo(np.int64).min
            self._ints = np.concatenate([self._ints, fresh])
            self._sums = self._ints.view(np.float64)

    def _reserve_queues(self, rows: int) -> None:
        """Room for every value of the next ``rows`` changes."""
        if not self._has_queues:
            return
        queues = int(np.count_nonzero(self._kinds >= kernel.QUEUED))
        have, needed = len(self._queue_keys), int(self._state[kernel.FRESH]) + rows * queues
        if needed > have:
            more = max(needed, have + have // 2, 64) - have
            self._queue_keys = np.concatenate([self._queue_keys, np.zeros(more, np.int64)])
            self._queue_numbers = np.concatenate([self._queue_numbers, np.zeros(more, np.int64)])
            self._queue_links = np.concatenate([self._queue_links, np.zeros((more, 2), np.int32)])

    def _parts(self, delta: Delta) -> list[tuple[int, int]]:
        """Ranges of whole instants, short where queues need room."""
        n = len(delta.ts)
        if n <= _AT_ONCE or not self._has_queues:
            return [(0, n)]
        starts = np.concatenate([[True], (np.diff(delta.ts) != 0) | (np.diff(delta.sub) != 0)])
        (begins,) = np.nonzero(starts)
        cuts = begins[np.searchsorted(begins, np.arange(_AT_ONCE, n, _AT_ONCE), "right") - 1]
        bounds = np.unique(np.concatenate([[0], cuts, [n]])).tolist()
        return list(pairwise(bounds))

    def _columns(self, delta: Delta, step: Step) -> list[pa.Array]:
        """The keys, arguments and filters."""
        if self._compute is None:
            return [delta.columns[i] for i in self._sources if i is not None]
        if step.window is not None:
            self._errors.window = step.window
        counted = delta.sign > 0 if self._can_fail else None
        n = len(delta.ts)
        if n == 0:
            return [pa.array([], e.type.arrow) for e in self._exprs]
        with np.errstate(all="ignore"):
            computed = iter(self._compute.arrays(Rows(delta.columns, n, self._errors, counted)))
        return [next(computed) if i is None else delta.columns[i] for i in self._sources]

    def _data(
        self, delta: Delta, columns: Sequence[pa.Array]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """A row of numbers for each argument, the high halves of those that have two, and where they count."""
        n = len(delta.ts)
        data = np.empty((len(self._arguments), n), np.int64)
        highs = np.empty((len(self._arguments) if self._highs else 0, n), np.int64)
        valid = np.ones((len(self._arguments), n), np.bool_)
        for i, argument in enumerate(self._arguments):
            if argument.where is not None:
                valid[i] = columns[argument.where].fill_null(False).to_numpy(zero_copy_only=False)
            if argument.value is None:
                if argument.kind >= kernel.QUEUED:
                    data[i] = 0 if delta.priority is None else delta.priority
                    np.invert(data[i], out=data[i])
                continue
            array = columns[argument.value]
            known = validity(array)
            if known is not None:
                valid[i] &= known
            if argument.kind == kernel.INTEGER:
                data[i] = integers(array)
            elif argument.kind == kernel.WIDE:
                data[i], highs[i] = halves(array).T
            elif argument.kind == kernel.DOUBLE:
                data[i] = floats(array).view(np.int64)
            elif argument.kind >= kernel.QUEUED:
                data[i] = ordered(array)
                if argument.greatest:
                    np.invert(data[i], out=data[i])
        return data, highs, valid

    def _delta(
        self, keys: Sequence[pa.Array], head: npt.NDArray[np.int64], signs: npt.NDArray[np.int8],
        values: npt.NDArray[np.int64], nulls: npt.NDArray[np.uint8],
    ) -> Delta:  # fmt: skip
        n = int(self._state[kernel.OUT])
        if 2 * n + 1024 < len(signs):
            # What was reserved for more is not kept alive.
            head, signs, values, nulls = head[:, :n].copy(), signs[:n].copy(), values[:, :n].copy(), nulls[:, :n].copy()
        columns: list[pa.Array] = []
        if keys:
            columns = [gather(k, head[0, :n]) for k in keys]
        nulled = int(self._state[kernel.NULLED])
        for o, give in enumerate(self._givers):
            given = values[o, :n] if o not in self._highs else values[[o, self._highs[o]], :n].T
            columns.append(give(given, nulls[o, :n] if nulled >> o & 1 else None))
        priority = None
        if self._priorities:
            # Over nothing it is 0.
            priority = np.where(nulls[-1, :n] > 0, 0, ~values[-1, :n])
        ts, sub, moment_ts, moment_sub = head[1, :n], head[2, :n], head[3, :n], head[4, :n]
        return Delta(self.schema, tuple(columns), ts, sub, signs[:n], moment_ts, moment_sub, priority)

    def content(self, instant: Instant) -> Delta:
        """The rows of all groups, in any order, as if they entered at an instant."""
        codes = self._live() if self._priorities is not None else _ONLY[:0]
        n, outs = len(codes), len(self._ops)
        groups = self._ints[codes]
        columns: list[pa.Array] = list(self._interner.decode(codes)) if self._keys else []
        for o, give in enumerate(self._givers):
            if not n:
                columns.append(pa.array([], self.schema[self._keys + o].type.arrow))
                continue
            nulls = (groups[:, kernel.NULLS] >> o & 1).astype(np.uint8)
            places = o if o not in self._highs else [o, self._highs[o]]
            given = np.ascontiguousarray(groups[:, kernel.FIXED :][:, places])
            columns.append(give(given, nulls if nulls.any() else None))
        moments = np.empty((2, n), np.int64)
        priority = None
        if n:
            given = int(self._places[-1]) + np.array([kernel.GIVEN_TS, kernel.GIVEN_SUB])
            moments = np.ascontiguousarray(groups[:, given].T)
            if self._priorities:
                unknown = groups[:, kernel.NULLS] >> (outs - 1) & 1
                priority = np.where(unknown > 0, 0, ~groups[:, kernel.FIXED + outs - 1])
        ts, sub = np.full(n, instant[0], np.int64), np.full(n, instant[1], np.int64)
        return Delta(self.schema, tuple(columns), ts, sub, np.ones(n, np.int8), moments[0], moments[1], priority)

    def save(self) -> Saved:
        changed = self._pieces.number(self._live)
        groups = self._interner.live if self._keys else int(self._state[kernel.MARKS] > 0)
        best, values = self._where(kernel.BEST).tolist(), self._queue_keys

        def table(codes: Ints) -> pa.Table:
            return groups_table(codes, self._interner.decode(codes), self._ints, best, values)

        def all_groups() -> tuple[Ints, Ints]:
            live = self._live()
            return live, self._pieces.ids(live)

        parts = {"groups": self._pieces.save(changed, groups, table)}
        places = self._where(kernel.QUEUED)
        if len(places):
            new = changed, self._pieces.ids(changed)
            nodes = self._queue_keys, self._queue_numbers, self._queue_links
            used = int(self._state[kernel.FRESH])
            parts["queues"] = self._queues.save(new, all_groups, places, self._ints, nodes, used)
        return with_meta(together(**parts), marks=int(self._state[kernel.MARKS]), priorities=self._priorities)

    def load(self, state: Loaded) -> None:
        self._state[kernel.MARKS] = state.meta["marks"]
        ids, table = self._pieces.load(state.part("groups"))
        if state.meta["priorities"] is None:
            return
        self._prepare(state.meta["priorities"])
        codes = _ONLY[:0]
        places = self._where(kernel.QUEUED)
        if table is not None:
            codes = self._interner.encode([whole(table.column(f"k{i}")) for i in range(self._keys)], len(ids))
            self._reserve(self._interner.capacity)
            self._pieces.loaded(ids, codes)
            best = groups_from(table, codes, self._ints, self._where(kernel.BEST).tolist())
            nothing = np.full((len(best), 2), kernel.NO_NODE, np.int32)
            self._queue_keys, self._queue_numbers, self._queue_links = best, np.zeros(len(best), np.int64), nothing
        if len(places):
            left = self._ints[codes, self._ints.shape[1] - kernel.RARE + kernel.LEFT]
            nodes = self._queues.load(state.part("queues"), ids, codes, left, places, self._ints)
            self._queue_keys, self._queue_numbers, self._queue_links = nodes
        self._state[kernel.FRESH] = len(self._queue_keys)

    def _live(self) -> Ints:
        """The codes of all groups."""
        if not self._keys:
            return _ONLY[: 1 if self._state[kernel.MARKS] else 0]
        if not len(self._ints):
            return _ONLY[:0]
        (live,) = np.nonzero(self._ints[: self._interner.capacity, kernel.ROWS] > 0)
        return live

    def catch_up(self, state: Loaded) -> None:
        if self._priorities is None:
            # There was no row.
            self.load(state)
            return
        self._state[kernel.MARKS] = state.meta["marks"]
        queued, best = self._where(kernel.QUEUED), self._where(kernel.BEST)
        gone, ids, table = self._pieces.catch_up(state.part("groups"))
        if len(gone):
            queues.clear(gone, np.concatenate([queued, best]), self._ints, self._queue_links, self._state)
            self._ints[gone] = 0
            self._ints[gone, kernel.MOMENT_TS] = np.iinfo(np.int64).min
            self._interner.release(gone)
        codes = _ONLY[:0]
        if table is not None:
            codes = self._interner.encode([whole(table.column(f"k{i}")) for i in range(self._keys)], len(ids))
            self._reserve(self._interner.capacity)
            self._pieces.loaded(ids, codes)
            self._reserve_queues(len(codes))
            queues.settle(
                codes, rows_of(table).copy(), queued, best, self._ints, self._queue_keys, self._queue_numbers,
                self._queue_links, self._state,
            )  # fmt: skip
        if len(queued):
            log, group = self._queues.catch_up(state.part("queues"), ids, len(queued))
            self._reserve_queues(log.shape[1])
            owner, number, value, _ = log
            nodes = queues.enter(
                codes[group], queued[owner % len(queued)], number, value, self._ints, self._queue_keys,
                self._queue_numbers, self._queue_links, self._state,
            )  # fmt: skip
            self._queues.caught_up(log, nodes, len(self._queue_keys))

    def _where(self, kind: int) -> Ints:
        """Where the arguments of a kind begin in the numbers of a group."""
        (arguments,) = np.nonzero(self._kinds == kind)
        return self._places[arguments]

    def size(self) -> StateSize:
        groups = self._ints.nbytes + self._interner.nbytes
        queues = self._queue_keys.nbytes + self._queue_numbers.nbytes + self._queue_links.nbytes
        return StateSize(self._interner.live, groups + queues)


def _nothing(operator: FastAggregate, delta: Delta) -> Delta:
    columns = tuple(pa.array([], f.type.arrow) for f in operator.schema)
    none = delta.ts[:0]
    return Delta(operator.schema, columns, none, none, delta.sign[:0], none, none)


_Giver = Callable[[Ints, "npt.NDArray[np.uint8] | None"], pa.Array]


def _giver(call: AggregateCall, op: int) -> _Giver:
    """What the kernel gives out for a call, as a column of the call's type."""
    arrow = call.type.arrow
    if op in (kernel.GIVE_AVERAGE, kernel.GIVE_DOUBLE_SUM, kernel.GIVE_DOUBLE_AVERAGE):
        return lambda values, nulls: column(values.view(np.float64), nulls, arrow)
    if op != kernel.GIVE_FIRST:
        return lambda values, nulls: column(values, nulls, arrow)
    turn = np.int64(-1 if call.function == "max" else 0)
    if call.type.kind is Kind.DECIMAL:
        return lambda values, nulls: column(np.stack([values ^ turn, (values ^ turn) >> 63], axis=1), nulls, arrow)
    if call.type.is_float:
        width = np.float32 if call.type.kind is Kind.REAL else np.float64
        return lambda values, nulls: column(restore(values ^ turn).astype(width, copy=False), nulls, arrow)
    if call.type.kind in (Kind.INT, Kind.DATE):
        return lambda values, nulls: column((values ^ turn).astype(np.int32), nulls, arrow)
    return lambda values, nulls: column(values ^ turn, nulls, arrow)
