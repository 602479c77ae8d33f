"""Inner join of two windows: by keys, by an inequality, or of all with all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels import join as kernel
from penstock.kernels import ordered
from penstock.kernels.buffers import ordered as sortable
from penstock.kernels.buffers import validity
from penstock.kernels.ring import storable
from penstock.model.delta import BEGINNING, MAX_TS, MIN_TS, Delta, Instant, Ints, Step, concat, empty
from penstock.model.types import DataType, Kind
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.join_columns import ColumnsOf, Condition, Errors, Functions
from penstock.operators.join_keys import JoinKeys, kept_by_key
from penstock.operators.join_ring import JoinRing
from penstock.operators.priority import combined
from penstock.operators.state import Loaded, Saved, together, with_meta
from penstock.plan.nodes import Join
from penstock.plan.scope import has_window_bound, shift, side_of
from penstock.scalar.expr import Call, Expr, conjunction, conjuncts, is_pure

_OPERATORS = {
    "<": ordered.LESS,
    "<=": ordered.LESS_EQUAL,
    ">": ordered.GREATER,
    ">=": ordered.GREATER_EQUAL,
}
_SEEN_FROM_RIGHT = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PIECE = 8_192
"""Rows of an input that go through the walk at a time: the ring must hold them besides the rows of the window."""
_MOST_PAIRS = 1 << 17


def supports(node: Join, left_fifo: bool, right_fifo: bool, *, ends: bool = False) -> bool:
    """Whether ``FastJoin`` can do it: an inner join of rows that leave in the order they entered, or say their end.

    A residual with a user's function is left to the operator that evaluates it row by row.
    """
    return (
        node.kind == "inner"
        and (ends or (left_fifo and right_fifo))
        and (node.residual is None or is_pure(node.residual))
        and all(a.type == b.type for a, b in node.keys)
        and all(storable(f.type) for f in node.schema)
    )


class FastJoin:
    """Pairs of rows of two inputs whose keys are equal and for which the residual is TRUE.

    Needs: clean deltas in order. ``ends``: rows say when they leave, by ``Delta.end``, which is later than they enter,
    and no rows that leave are part of the inputs. Otherwise rows leave in the order in which they entered, each side
    for itself.

    Promises: each pair once, at the instant of its later row, with the later moment and the higher priority of the
    two; with ``ends`` it ends with the first of them. ``emit_leaving``: each pair again when the first of its rows
    leaves. Failures in the residual count when a pair is made, not when it leaves.

    Partners are found by hashing on the keys; without keys by order, if the residual compares numbers or times of
    both sides by an inequality; otherwise all rows are. A step costs as much as it has rows (times a logarithm, where
    partners are found by order) and pairs, counting those that the rest of the residual rejects.

    With ``ends`` rows of one side may come in order for their side, but ahead of the other: ``enter_ahead``. Until the
    frontier has passed the last of them, pairs come at the instant of their later row, which may be beyond the
    frontier.

    Bounded by the rows alive on both sides. A row is forgotten when it leaves or the frontier reaches its end; with
    ends that are not in the order of entering, when the rows before it have ended too, or there are more ended rows
    than others. A key is forgotten with its last row.
    """

    def __init__(self, node: Join, functions: Functions, errors: Errors, *, emit_leaving: bool, ends: bool) -> None:
        self.node = node
        self.functions, self.errors = functions, errors
        self.ends = ends
        """Whether rows say when they leave."""
        self.emit_leaving = emit_leaving
        split = len(node.left.schema)
        self._how, self._operator = kernel.CROSS, ordered.LESS
        self._keys: JoinKeys | None = None
        left: list[Expr] = [a for a, _ in node.keys]
        right: list[Expr] = [b for _, b in node.keys]
        residual = node.residual
        if node.keys:
            self._how = kernel.HASH
            self._keys = JoinKeys([a.type for a in left])
        elif (found := _inequality(node.residual, split)) is not None:
            self._how = kernel.ORDER
            function, a, b, residual = found
            self._operator, left, right = _OPERATORS[function], [a], [b]
        by_key = (kept_by_key(left), kept_by_key(right)) if node.keys else ({}, {})
        self._rings = (
            JoinRing(node.left.schema, self._how, kernel.LEFT_HEAD, self._keys, by_key[0]),
            JoinRing(node.right.schema, self._how, kernel.RIGHT_HEAD, self._keys, by_key[1]),
        )
        self._exprs = (
            ColumnsOf(left, functions, errors),
            ColumnsOf(right, functions, errors),
        )
        self._residual = None if residual is None else Condition(residual, functions, errors)
        self._room = 256
        self._near = kernel.near()
        self._now = MIN_TS
        self._reach: Instant | None = None
        """The instant of the last row that came ahead of the other side, while the frontier has not passed it."""
        nothing = empty(node.schema)
        self.nothing = replace(nothing, end=nothing.ts) if ends else nothing

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        left, right = inputs
        pairs = [part for piece in _pieces(left, right) for part in self._walk(*piece, step)]
        self._forget(step.frontier[0])
        out = concat(pairs) if pairs else self.nothing
        if self._reach is not None:
            if self._reach < step.frontier:
                self._reach = None
            out = in_order(out)
        return out

    def enter_ahead(self, side: int, rows: Delta, until: int) -> Delta:
        """Rows of one side that are ahead of the other, which has reached the time ``until``; gives their pairs with
        rows that are there. Rows of the other side meet them when they come."""
        last = int(rows.ts[-1]), int(rows.sub[-1])
        self._reach = last if self._reach is None else max(self._reach, last)
        step = Step(BEGINNING)
        nothing = rows.slice(0, 0)
        pairs: list[Delta] = []
        for start in range(0, len(rows), _PIECE):
            piece = rows.slice(start, min(start + _PIECE, len(rows)))
            left, right = (piece, nothing) if side == 0 else (nothing, piece)
            pairs += self._walk(left, right, step, until=until)
        return in_order(concat(pairs)) if pairs else self.nothing

    def ahead(self, side: int, instant: Instant) -> int:
        """How many rows of a side are not before an instant."""
        return 0 if self._reach is None else self._rings[side].newer(instant)

    def found_by(self, side: int, rows: Delta, step: Step) -> Sequence[pa.Array]:
        """By what partners of rows of a side are found."""
        return () if self._how == kernel.CROSS else self._exprs[side](rows, step)

    def partners(self, side: int, columns: Sequence[pa.Array], rows: Delta) -> Iterator[tuple[Ints, Delta]]:
        """Which of the rows of one side, that are none of this join's, have partners among those held of the other, and
        the partners; where rows say when they leave, only those that are there at the time of the row. ``columns`` are
        what they are found by; a residual has not been looked at.
        """
        how, operator = self._how, self._operator if side == 0 else ordered.MIRRORED[self._operator]
        code, value = np.zeros(len(rows), np.int32), np.empty(0, np.int64)
        if self._keys is not None:
            code = self._keys.lookup(columns, len(rows)).astype(np.int32)
        elif how == kernel.ORDER:
            value, usable = sortable(columns[0]), validity(columns[0])
            if usable is not None:
                code = usable.astype(np.int32) - 1
        ring = self._rings[1 - side]
        cursor, room = kernel.cursor(), 256
        cursor[kernel.STATUS] = kernel.FULL
        while cursor[kernel.STATUS] != kernel.DONE:
            mine, theirs = np.empty(room, np.int32), np.empty(room, np.int32)
            kernel.peek(
                how, operator, code, value, _plain(rows.ts), ring.side, ring.known,
                (kernel.RIGHT_HEAD, kernel.LEFT_HEAD)[side], cursor, mine, theirs,
            )  # fmt: skip
            written = int(cursor[kernel.WRITTEN])
            if not written or room < _MOST_PAIRS:
                room *= 4
            if written:
                yield mine[:written].astype(np.int64), ring.rows(theirs[:written])

    def foretold(self, side: int, rows: Delta) -> Delta:
        """What rows of a side would give if they entered now, each at its own instant. Nothing is changed."""
        step = Step(BEGINNING)
        found = [self.nothing]
        for mine, theirs in self.partners(side, self.found_by(side, rows, step), rows):
            own = rows.take(mine)
            left, right = (own, theirs) if side == 0 else (theirs, own)
            columns = left.columns + right.columns
            passed = None
            if self._residual is not None:
                passed = self._residual([columns[i] for i in self._residual.reads], own.sign, step)
            priority = combined(self.node.priority, left.priority, right.priority, len(own))
            pairs = Delta(self.node.schema, columns, own.ts, own.sub, own.sign, own.ts, own.sub, priority)
            found.append(pairs if passed is None else pairs.take(passed))
        return in_order(concat(found))

    def size(self) -> StateSize:
        keys = NOTHING if self._keys is None else StateSize(0, self._keys.nbytes)
        return self._rings[0].size() + self._rings[1].size() + keys

    def rows(self, side: int) -> int:
        """Rows of the left (0) or right (1) input that are held."""
        return self._rings[side].size().rows

    def save(self) -> Saved:
        left, right = self._rings
        keys = 0 if self._keys is None else self._keys.count
        saved = with_meta(together(left=left.save(), right=right.save()), now=self._now, keys=keys)
        return saved if self._reach is None else with_meta(saved, reach=[*self._reach])

    def load(self, state: Loaded) -> None:
        if self._keys is not None:
            self._keys.reserve(state.meta["keys"])
        for which, name in enumerate(("left", "right")):
            self._enter(which, self._rings[which].load(state.part(name)))
        self._know(state)

    def catch_up(self, state: Loaded) -> None:
        cursor = kernel.cursor()
        left, right = self._rings
        new = left.catch_up(state.part("left"), cursor), right.catch_up(state.part("right"), cursor)
        # Before all time nothing has ended: what saves number is what there is, until the next step.
        self._now = MIN_TS
        for which in (0, 1):
            self._enter(which, new[which])
        self._release(cursor)
        for ring in self._rings:
            ring.trim(self._now)
        if self._keys is not None:
            self._keys.trim()
        self._know(state)

    def _know(self, state: Loaded) -> None:
        self._now = state.meta["now"]
        reach = state.meta.get("reach")
        self._reach = None if reach is None else (reach[0], reach[1])

    def _enter(self, which: int, saved: Iterable[Delta]) -> None:
        """Rows that have been saved are there again."""
        for rows in saved:
            self._append(which, rows, Step(BEGINNING), everything=True)
            self._rings[which].enter(len(rows))

    def _walk(self, left: Delta, right: Delta, step: Step, until: int | None = None) -> Iterator[Delta]:
        """Take changes in, and give the pairs they make and break. ``until``: they are of one side and ahead of the
        other, which has reached this time."""
        one, other = self._rings
        lefts, rights = self._append(0, left, step), self._append(1, right, step)
        mirrored = ordered.MIRRORED[self._operator]
        # Nothing is made of what comes later, so a row that is its own moment is the later one of its pairs.
        later_is_now = not self.emit_leaving and _is_its_moment(left) and _is_its_moment(right)
        bounds = (MAX_TS, MAX_TS)
        if until is not None:
            bounds = (until, MAX_TS) if len(left) else (MAX_TS, until)
        cursor = kernel.cursor()
        status = kernel.FULL
        while status != kernel.DONE:
            out = kernel.room(self._room)
            cursor[kernel.WRITTEN] = 0
            while True:
                kernel.walk(
                    self._how, self._operator, mirrored, self.emit_leaving, one.side, other.side, one.known,
                    lefts, rights, cursor, out, self._near, *bounds,
                )  # fmt: skip
                status = cursor[kernel.STATUS]
                if status != kernel.SHORT_OF_BLOCKS:
                    break
                for ring in self._rings:
                    ring.grow_tree()
            written = int(cursor[kernel.WRITTEN])
            if status == kernel.FULL and (written == 0 or self._room < _MOST_PAIRS):
                self._room *= 4
            if written:
                yield from self._pairs(out, written, step, later_is_now)
        if max(self._room, 1024) > 8 * written:
            self._room = max(256, self._room // 2)
        for side in (lefts, rights) if until is None else ():
            if len(side.ts):
                self._now = max(self._now, int(side.ts[-1]))
        self._release(cursor)

    def _append(self, which: int, delta: Delta, step: Step, *, everything: bool = False) -> kernel.Changes:
        """Put the rows that enter into the ring, and say when they and others come and go.

        ``everything``: also rows that will never have partners.
        """
        entering = delta
        if not self.ends and len(delta) and delta.sign.min() < 0:
            entering = delta.take(np.flatnonzero(delta.sign > 0))
        found_by: Ints | None = None
        usable: npt.NDArray[np.bool_] | None = None
        if self._how != kernel.CROSS and len(entering):
            columns = self._exprs[which](entering, step)
            if self._keys is not None:
                found_by = self._keys.encode(columns, len(entering))
                usable = None if found_by.min() >= 0 else found_by >= 0
            else:
                found_by, usable = sortable(columns[0]), validity(columns[0])
            if self.ends and usable is not None and not everything:
                # Nobody will say that these rows leave, and they have no partners.
                delta = entering = entering.take(np.flatnonzero(usable))
                found_by, usable = found_by[usable], None
        self._rings[which].append(entering, found_by, usable, self._now)
        return kernel.Changes(_plain(delta.ts), _plain(delta.sub), _plain(delta.sign))

    def _pairs(self, out: kernel.Pairs, count: int, step: Step, later_is_now: bool) -> Iterator[Delta]:
        """The rows of the pairs, where the residual is TRUE. ``later_is_now``: their moment is their instant."""
        out = kernel.some(out, slice(count))
        one, other = self._rings
        if self._reach is not None:
            moments = one.moment_ts, one.moment_sub, other.moment_ts, other.moment_sub
            ts, sub = kernel.latest(out.left, out.right, *moments)
            out = kernel.Pairs(ts, sub, out.sign, out.left, out.right)
            met = np.flatnonzero(ts < kernel.first_end(one.side, other.side, out.left, out.right))
            if len(met) < len(ts):
                if not len(met):
                    return
                out = kernel.some(out, met)
        if self._residual is not None:
            reads = self._residual.reads
            read = self._columns(out, reads)
            chosen = self._residual(read, out.sign, step)
            if chosen is not None:
                if not len(chosen):
                    return
                out = kernel.some(out, chosen)
        ts, sub = out.ts, out.sub
        if not later_is_now:
            moments = one.moment_ts, one.moment_sub, other.moment_ts, other.moment_sub
            ts, sub = kernel.latest(out.left, out.right, *moments)
        priority = combined(self.node.priority, one.priority(out.left), other.priority(out.right), len(ts))
        columns = self._columns(out, range(one.width + other.width))
        end = kernel.first_end(one.side, other.side, out.left, out.right) if self.ends else None
        yield Delta(self.node.schema, tuple(columns), out.ts, out.sub, out.sign, ts, sub, priority, end)

    def _columns(self, out: kernel.Pairs, which: Iterable[int]) -> list[pa.Array]:
        """Columns of the pairs; what the key says is the same on both sides and read once."""
        one, other = self._rings
        of_key: dict[int, pa.Array] = {}
        found: list[pa.Array] = []
        for i in which:
            ring, slots, place = (one, out.left, i) if i < one.width else (other, out.right, i - one.width)
            key = ring.kept_by_key.get(place)
            if key is None:
                found.append(ring.read(slots, place))
                continue
            if key not in of_key:
                of_key[key] = ring.read(slots, place)
            found.append(of_key[key])
        return found

    def _forget(self, now: int) -> None:
        one, other = self._rings
        if self.ends:
            self._now = max(self._now, now)
            cursor = kernel.cursor()
            kernel.expire(self._how, one.side, one.known, kernel.LEFT_HEAD, now, cursor)
            kernel.expire(self._how, other.side, other.known, kernel.RIGHT_HEAD, now, cursor)
            self._release(cursor)
        for ring in self._rings:
            ring.trim(self._now)
        if self._keys is not None:
            self._keys.trim()

    def _release(self, cursor: Ints) -> None:
        """Forget those keys that have no rows left."""
        if self._keys is not None:
            dropped = [codes for ring in self._rings for codes in ring.dropped]
            for ring in self._rings:
                ring.dropped.clear()
            self._keys.release(cursor, dropped)


def in_order(delta: Delta) -> Delta:
    """The same changes by instant."""
    ts, sub = delta.ts, delta.sub
    if ((ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (sub[1:] >= sub[:-1]))).all():
        return delta
    return delta.take(np.lexsort((sub, ts)))


def _is_its_moment(delta: Delta) -> bool:
    """Whether each row that enters does so at the instant of the last element that made it."""
    if delta.ts is delta.moment_ts and delta.sub is delta.moment_sub:
        return True
    same = (delta.ts == delta.moment_ts) & (delta.sub == delta.moment_sub)
    return bool((same | (delta.sign < 0)).all())


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of one memory layout, so that the walk is compiled once."""
    return array if array.flags.carray else array.copy()


def _inequality(residual: Expr | None, split: int) -> tuple[str, Expr, Expr, Expr | None] | None:
    """(comparison, of the left row, of the right row, what else must be TRUE), if a part can be probed by order."""
    parts = conjuncts(residual)
    for i, part in enumerate(parts):
        if not (isinstance(part, Call) and part.function in _OPERATORS):
            continue
        a, b = part.args
        sides = side_of(a, split), side_of(b, split)
        if not (_has_order(a.type) and a.type == b.type) or has_window_bound(part):
            continue
        rest = conjunction(parts[:i] + parts[i + 1 :])
        if sides == ("left", "right"):
            return part.function, a, shift(b, -split), rest
        if sides == ("right", "left"):
            return _SEEN_FROM_RIGHT[part.function], b, shift(a, -split), rest
    return None


def _has_order(dtype: DataType) -> bool:
    return dtype.is_integer or dtype.is_float or dtype.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.INTERVAL)


def _pieces(left: Delta, right: Delta) -> Iterator[tuple[Delta, Delta]]:
    """Both inputs cut at the same instants, into parts of at most ``_PIECE`` rows of each, or one instant."""
    i = j = 0
    n, m = len(left), len(right)
    while i < n or j < m:
        stop_i, stop_j = n, m
        if n - i > _PIECE or m - j > _PIECE:
            cuts = [(int(d.ts[k]), int(d.sub[k])) for d, k in ((left, i + _PIECE), (right, j + _PIECE)) if k < len(d)]
            stop_i, stop_j = _first_from(left, i, min(cuts)), _first_from(right, j, min(cuts))
            if (stop_i, stop_j) == (i, j):
                stop_i = _first_from(left, i, (min(cuts)[0], min(cuts)[1] + 1))
                stop_j = _first_from(right, j, (min(cuts)[0], min(cuts)[1] + 1))
        yield (
            left if (i, stop_i) == (0, n) else left.slice(i, stop_i),
            right if (j, stop_j) == (0, m) else right.slice(j, stop_j),
        )
        i, j = stop_i, stop_j


def _first_from(delta: Delta, start: int, instant: Instant) -> int:
    """The first row, from ``start`` on, that is not before the instant."""
    ts, sub = instant
    low = start + int(np.searchsorted(delta.ts[start:], ts, "left"))
    high = start + int(np.searchsorted(delta.ts[start:], ts, "right"))
    return low + int(np.searchsorted(delta.sub[low:high], sub, "left"))
