"""What one side of a window join remembers: its rows in a ring, and the way to find partners among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels import join as kernel
from penstock.kernels import ordered
from penstock.kernels.ring import RingColumn, column, kept, put
from penstock.model.delta import MAX_TS, MIN_TS, Delta, Instant, Ints
from penstock.model.schema import Schema
from penstock.operators.base import StateSize
from penstock.operators.join_keys import JoinKeys
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded, Saved
from penstock.operators.tables import columns_of, has, ints, table_of

_SMALLEST = 64
_NO_SLOTS = np.empty(0, np.int32)
_NO_INTS = np.empty(0, np.int64)
_NO_TREE = ordered.create(0)


class JoinRing:
    """The rows of one side, oldest first.

    A row keeps its payload except what its key says, its moment, the code of its key or the value it is ordered by, and
    its end where it has one: not at all while no row ever ends or all stay equally long, as in one window. Bounded by
    the rows alive, and with ends that are not in the order of entering by twice those. The ring grows by an eighth, and
    shrinks when three quarters are unused.
    """

    def __init__(
        self, schema: Schema, how: int, side: int, keys: JoinKeys | None, kept_by_key: Mapping[int, int]
    ) -> None:
        """``side`` is ``kernel.LEFT_HEAD`` or ``RIGHT_HEAD``. ``kept_by_key``: which columns are columns of the key."""
        self._how = how
        self._me = side
        self._keys, self.kept_by_key = keys, kept_by_key
        self.width = len(schema)
        self._columns: list[RingColumn | None] = [
            None if i in kept_by_key else column(f.type, _SMALLEST) for i, f in enumerate(schema)
        ]
        self.moment_ts = np.empty(_SMALLEST, np.int64)
        self.moment_sub = np.empty(_SMALLEST, np.int64)
        self._priority: Ints | None = None
        self._last_end = MIN_TS
        self._schema = schema
        self._stop = 0  # the number behind that of the newest row; numbers are for saving
        self._pieces = RowPieces()
        self.dropped: list[kernel.Slots] = []
        """Codes of rows that were forgotten though they were not the oldest."""
        hashed, by_order = how == kernel.HASH, how == kernel.ORDER
        self._meta = np.array([0, 0, _SMALLEST, kernel.NO_ENDS, 0, 1], np.int64)
        self.side = kernel.Side(
            np.zeros(_SMALLEST, np.int32),
            np.empty(_SMALLEST, np.int32) if hashed else _NO_SLOTS,
            _NO_INTS,
            np.empty(_SMALLEST, np.int64) if by_order else _NO_INTS,
            self._meta,
            ordered.create(2) if by_order else _NO_TREE,
        )

    def __len__(self) -> int:
        return int(self._meta[kernel.COUNT])

    @property
    def capacity(self) -> int:
        return int(self._meta[kernel.CAPACITY])

    @property
    def known(self) -> kernel.Keys:
        """What is known of the keys."""
        return kernel.NO_KEYS if self._keys is None else self._keys.known

    def size(self) -> StateSize:
        arrays: list[npt.NDArray[Any]] = [
            self.moment_ts,
            self.moment_sub,
            self.side.code,
            self.side.following,
            self.side.value,
        ]
        if self._meta[kernel.ENDS] == kernel.STORED:
            arrays.append(self.side.ends)
        if self._priority is not None:
            arrays.append(self._priority)
        found = sum(a.nbytes for a in arrays) + ordered.nbytes(self.side.tree)
        return StateSize(len(self), found + sum(c.nbytes for c in self._columns if c is not None))

    def newer(self, instant: Instant) -> int:
        """How many rows are not before an instant."""
        count, tail = len(self), int(self._meta[kernel.TAIL])
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            slot = (tail + middle) % self.capacity
            if (self.moment_ts[slot], self.moment_sub[slot]) < instant:
                low = middle + 1
            else:
                high = middle
        return count - low

    # Rows come in.

    def append(self, rows: Delta, found_by: Ints | None, usable: npt.NDArray[np.bool_] | None, now: int) -> None:
        """Put rows behind the newest one; they enter one by one as the walk comes to them.

        ``found_by``: codes of keys, or values to order by; None where all rows are partners. ``usable``: which of
        the values are not NULL. ``now``: rows that have ended by then may be forgotten.
        """
        n = len(rows)
        if n == 0:
            return
        priority = rows.priority
        self._reserve(n, now)
        at = int(self._meta[kernel.TAIL] + self._meta[kernel.COUNT]) % self.capacity
        for stored, array in zip(self._columns, rows.columns, strict=True):
            if stored is not None:
                stored.write(at, array)
        if rows.end is not None:
            self._put_ends(at, rows.moment_ts, rows.end)
        put(self.moment_ts, at, rows.moment_ts)
        put(self.moment_sub, at, rows.moment_sub)
        if priority is not None and self._priority is None:
            self._priority = np.zeros(self.capacity, np.int64)
        if self._priority is not None:
            put(self._priority, at, np.zeros(n, np.int64) if priority is None else priority)
        if self._how == kernel.HASH:
            assert found_by is not None
            put(self.side.code, at, found_by)
        elif self._how == kernel.ORDER:
            assert found_by is not None
            put(self.side.value, at, found_by)
            put(self.side.code, at, np.zeros(n, np.int32) if usable is None else usable.astype(np.int32) - 1)
        self._stop += n

    def _put_ends(self, at: int, ts: Ints, end: Ints) -> None:
        """Remember ends as ``kernel.NEVER``, ``SHIFTED`` against the moment or ``STORED``, the first that fits."""
        meta = self._meta
        if len(self) == 0:
            meta[kernel.ENDS], meta[kernel.IN_ORDER], self._last_end = kernel.NO_ENDS, 1, MIN_TS
        shift = 0
        if (end == MAX_TS).all():
            kind = kernel.NEVER
        else:
            stays = end - ts
            shift = int(stays[0])
            kind = kernel.SHIFTED if (stays == shift).all() else kernel.STORED
        before = meta[kernel.ENDS]
        if before == kernel.NO_ENDS:
            meta[kernel.ENDS], meta[kernel.SHIFT] = kind, shift
        elif before != kind or (kind == kernel.SHIFTED and meta[kernel.SHIFT] != shift):
            kind = kernel.STORED
        if kind == kernel.STORED:
            self._store_ends()
            put(self.side.ends, at, end)
        elif kind == kernel.SHIFTED and self.side.ends is not self.moment_ts:
            self.side = self.side._replace(ends=self.moment_ts)
        if end[0] < self._last_end or (end[1:] < end[:-1]).any():
            meta[kernel.IN_ORDER] = 0
        self._last_end = max(self._last_end, int(end.max()))

    def _store_ends(self) -> None:
        meta = self._meta
        if meta[kernel.ENDS] == kernel.STORED and len(self.side.ends) and self.side.ends is not self.moment_ts:
            return
        if meta[kernel.ENDS] == kernel.SHIFTED:
            ends = self.moment_ts + meta[kernel.SHIFT]
        else:
            ends = np.full(self.capacity, MAX_TS, np.int64)
        meta[kernel.ENDS] = kernel.STORED
        self.side = self.side._replace(ends=ends)

    # Room.

    def _reserve(self, n: int, now: int) -> None:
        """Room for n more rows, and one slot that stays free."""
        if len(self) + n < self.capacity:
            return
        alive = len(self) if self._meta[kernel.IN_ORDER] else self._keep(now, None)
        if alive + n >= self.capacity or 3 * alive > 2 * self.capacity:
            self._keep(now, max(alive + n + 1 + alive // 8, _SMALLEST))

    def trim(self, now: int) -> None:
        """Give back what the rows that left do not need any more."""
        count = len(self)
        for stored in self._columns:
            if stored is not None:
                stored.forget(int(self._meta[kernel.TAIL]))
        if self.capacity > _SMALLEST and 4 * count < self.capacity:
            self._keep(now, max(count + 1 + count // 8, _SMALLEST))
        tree = self.side.tree
        if tree.meta[ordered.FREE] > 8 + 2 * tree.meta[ordered.COUNT]:
            self.grow_tree()

    def grow_tree(self) -> None:
        """Room for a sixteenth more blocks than are in use."""
        used = int(self.side.tree.meta[ordered.COUNT])
        self.side = self.side._replace(tree=ordered.resized(self.side.tree, used + used // 16 + 2))

    def read(self, slots: kernel.Slots, column: int) -> pa.Array:
        """A column of the payload of these rows, the keys of which have not been released since the last walk."""
        stored = self._columns[column]
        if stored is not None:
            return stored.read(slots)
        codes = self.side.code.take(slots)
        if not self._meta[kernel.IN_ORDER]:
            codes = np.where(codes <= kernel.LOST, kernel.LOST - codes, codes)
        return self._of_key(codes, column)

    def _of_key(self, codes: kernel.Slots, column: int) -> pa.Array:
        assert self._keys is not None
        return self._keys.column(codes, self.kept_by_key[column])

    def priority(self, slots: kernel.Slots) -> Ints | None:
        """The priorities of these rows, if any row has one."""
        return None if self._priority is None else self._priority.take(slots)

    def rows(self, slots: kernel.Slots) -> Delta:
        """These rows, as they came in: each at its moment."""
        ts, sub = self.moment_ts.take(slots), self.moment_sub.take(slots)
        columns = tuple([self.read(slots, i) for i in range(self.width)])
        sign = np.ones(len(slots), np.int8)
        return Delta(self._schema, columns, ts, sub, sign, ts, sub, self.priority(slots), self._ends(slots))

    # Saving.

    def save(self) -> Saved:
        """All rows that have been put in have entered."""
        return self._pieces.save(self._stop - len(self), self._stop, self._table)

    def _table(self, start: int, stop: int) -> pa.Table:
        place = int(self._meta[kernel.TAIL]) + len(self) - self._stop
        slots = (np.arange(place + start, place + stop) % self.capacity).astype(np.int32)
        end = self._ends(slots)
        codes = np.maximum(self.side.code[slots], -1)
        columns = [self._of_key(codes, i) if c is None else c.read(slots) for i, c in enumerate(self._columns)]
        moments = {"moment_ts": self.moment_ts[slots], "moment_sub": self.moment_sub[slots]}
        return table_of(self._schema, columns, **moments, priority=self.priority(slots), end=end)

    def _ends(self, slots: kernel.Slots) -> Ints | None:
        meta = self._meta
        if meta[kernel.ENDS] == kernel.NEVER:
            return np.full(len(slots), MAX_TS, np.int64)
        if meta[kernel.ENDS] == kernel.NO_ENDS:
            return None
        shift = meta[kernel.SHIFT] if meta[kernel.ENDS] == kernel.SHIFTED else 0
        return np.asarray(self.side.ends[slots] + shift)

    def load(self, state: Loaded) -> list[Delta]:
        """Rows to ``append``; those of each delta must be, and have ``enter``-ed, before the next."""
        self._stop, head, tables = self._pieces.load(state)
        if head - self._stop >= self.capacity:
            rows = head - self._stop
            self._keep(MIN_TS, rows + 1 + rows // 8)
        return [self._delta(table) for table in tables]

    def catch_up(self, state: Loaded, cursor: Ints) -> list[Delta]:
        """Rows that have left go, and their keys wait in the cursor; what came since is given as by ``load``."""
        gone, tables = self._pieces.catch_up(state, self._stop - len(self), self._stop)
        kernel.leave(self._how, self.side, self.known, self._me, gone, cursor)
        self._stop = state.meta["tail"] + len(self)
        return [self._delta(table) for table in tables]

    def _delta(self, table: pa.Table) -> Delta:
        ts, sub = ints(table, "moment_ts"), ints(table, "moment_sub")
        priority = ints(table, "priority") if has(table, "priority") else None
        end = ints(table, "end") if has(table, "end") else None
        sign = np.ones(len(ts), np.int8)
        return Delta(self._schema, columns_of(self._schema, table), ts, sub, sign, ts, sub, priority, end)

    def enter(self, count: int) -> None:
        """So many rows that were put in are there without having looked for partners."""
        before = len(self)
        kernel.enter_all(self.side, self.known, self._me, count, kernel.cursor())
        if self._how != kernel.ORDER:
            return
        if count < before // 8:
            while (before := kernel.put_in_order(self.side, before)) < len(self):
                self.grow_tree()
            return
        slots = ((self._meta[kernel.TAIL] + np.arange(len(self))) % self.capacity).astype(np.int32)
        usable = slots[self.side.code[slots] >= 0]
        self.side = self.side._replace(tree=ordered.load(self.side.value[usable], usable))

    # Making room.

    def _keep(self, now: int, capacity: int | None) -> int:
        """Put the rows that are alive together, in a ring of this capacity (None: the same). How many they are."""
        meta, side = self._meta, self.side
        moved = kernel.moved_slots(side, now, bool(meta[kernel.IN_ORDER]))
        alive = np.flatnonzero(moved >= 0)
        slots = np.empty(len(alive), np.int32)
        slots[moved[alive]] = alive
        count = len(slots)
        if count < len(self):
            self._stop += count
        capacity = self.capacity if capacity is None else capacity
        for stored in self._columns:
            if stored is not None:
                stored.keep(slots, capacity)
        ends = kept(side.ends, slots, capacity) if meta[kernel.ENDS] == kernel.STORED else _NO_INTS
        self.moment_ts = kept(self.moment_ts, slots, capacity)
        self.moment_sub = kept(self.moment_sub, slots, capacity)
        if self._priority is not None:
            self._priority = kept(self._priority, slots, capacity)
        if meta[kernel.ENDS] == kernel.SHIFTED:
            ends = self.moment_ts
        code = kept(side.code, slots, capacity) if self._how != kernel.CROSS else np.zeros(capacity, np.int32)
        following = np.empty(capacity, np.int32) if self._how == kernel.HASH else _NO_SLOTS
        value, tree = side.value, side.tree
        if self._how == kernel.ORDER:
            value = kept(value, slots, capacity)
            if meta[kernel.IN_ORDER]:
                ordered.renumber(tree, moved)
            else:
                usable = np.flatnonzero(code[:count] >= 0).astype(np.int32)
                tree = ordered.load(value[usable], usable)
        self.side = side._replace(code=code, following=following, ends=ends, value=value, tree=tree)
        if self._how == kernel.HASH:
            if not meta[kernel.IN_ORDER]:
                ended = side.code[kernel.ended_slots(side, now)]
                self.dropped.append(ended[ended >= 0])
            kernel.chain(code, self.known, self._me, count, following)
        meta[kernel.TAIL], meta[kernel.COUNT], meta[kernel.CAPACITY] = 0, count, capacity
        if meta[kernel.ENDS] == kernel.STORED:
            meta[kernel.IN_ORDER] = int((ends[1:count] >= ends[: max(count - 1, 0)]).all())
        return count
