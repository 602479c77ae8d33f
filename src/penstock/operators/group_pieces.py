"""Saving the groups of ``FastAggregate``, which are rows of arrays indexed by the codes of their keys.

A group is one entry: its key and its numbers; its queues are elsewhere. Codes are used again and are others after
loading, so entries have ids of their own, which groups get when they are first saved. A group that was empty in between
is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels import aggregate as kernel
from penstock.model.delta import Ints
from penstock.operators.pieces import KeyedPieces
from penstock.operators.state import Loaded, Saved, with_meta
from penstock.operators.tables import whole

_NO_ID = -1


class GroupPieces:
    """Which groups have changed since the last save; nothing is noted before the first."""

    def __init__(self) -> None:
        self._pieces = KeyedPieces()
        self._ids: Ints = np.empty(0, np.int64)
        self._codes = _Codes()
        self._dirty: npt.NDArray[np.bool_] | None = None
        self._gone: list[Ints] = []
        self._next = 0

    def _cover(self, groups: int) -> None:
        more = groups - len(self._ids)
        if more > 0:
            more = max(more, len(self._ids))
            self._ids = np.concatenate([self._ids, np.full(more, _NO_ID, np.int64)])
            if self._dirty is not None:
                self._dirty = np.concatenate([self._dirty, np.zeros(more, np.bool_)])

    def touch(self, codes: Ints, groups: int) -> None:
        """Groups with these codes, all below ``groups``, are others now."""
        if self._dirty is not None:
            self._cover(groups)
            self._dirty[codes] = True

    def release(self, codes: Ints) -> None:
        """Groups are no more."""
        if self._dirty is not None:
            ids = self._ids[codes]
            self._gone.append(ids[ids != _NO_ID])
            self._ids[codes] = _NO_ID
            self._dirty[codes] = False

    def number(self, live: Callable[[], Ints]) -> Ints:
        """Give the groups that have changed ids, and say which they are; ``live`` gives the codes of all groups."""
        if self._dirty is not None:
            (changed,) = np.nonzero(self._dirty)
            self._dirty[changed] = False
        else:
            changed = live()
            self._cover(int(changed.max()) + 1 if len(changed) else 0)
            self._dirty = np.zeros(len(self._ids), np.bool_)
        fresh = changed[self._ids[changed] == _NO_ID]
        ids = np.arange(self._next, self._next + len(fresh))
        self._ids[fresh] = ids
        self._codes.add(ids, fresh, self._ids)
        self._next += len(fresh)
        return changed

    def ids(self, codes: Ints) -> Ints:
        """The ids of groups that have been numbered."""
        return self._ids[codes]

    def save(self, changed: Ints, live: int, groups: Callable[[Ints], pa.Table]) -> Saved:
        """``changed`` is what ``number`` gave, ``groups`` gives a row for each of these codes."""
        gone = np.concatenate([np.empty(0, np.int64), *self._gone])
        self._gone = []

        codes = changed[np.argsort(self._ids[changed])]

        def table(ids: Ints) -> pa.Table:
            if len(ids) == len(codes) and np.array_equal(self._ids[codes], ids):
                return groups(codes)
            return groups(self._codes.find(ids))

        return with_meta(self._pieces.save(self._ids[changed], gone, live, table), next=self._next)

    def load(self, state: Loaded) -> tuple[Ints, pa.Table | None]:
        """The ids and the table of all groups; ``loaded`` must be told of their codes."""
        self._next = state.meta["next"]
        return self._pieces.load(state)

    def catch_up(self, state: Loaded) -> tuple[Ints, Ints, pa.Table | None]:
        """The codes of groups that are no more, and ids and table of those that are new or others, for ``loaded``."""
        self._next = state.meta["next"]
        gone, ids, table = self._pieces.catch_up(state, lambda: self._codes.ids(self._ids))
        codes = self._codes.find(gone)
        codes = codes[codes >= 0]
        self._ids[codes] = _NO_ID
        return codes, ids, table

    def loaded(self, ids: Ints, codes: Ints) -> None:
        """The codes that the groups with these ids have now."""
        self._cover(int(codes.max()) + 1 if len(codes) else 0)
        fresh = self._ids[codes] != ids
        self._ids[codes] = ids
        self._codes.add(ids[fresh], codes[fresh], self._ids)
        self._dirty = np.zeros(len(self._ids), np.bool_)


class _Codes:
    """The codes of ids, which are added in ascending order; at most twice as many as there are groups, and a few."""

    def __init__(self) -> None:
        self._pairs = np.empty((2, 64), np.int64)
        self._count = 0

    def add(self, ids: Ints, codes: Ints, id_of: Ints) -> None:
        """``id_of`` gives the id that a code has now: pairs that are not so any more may be forgotten."""
        needed = self._count + len(ids)
        if needed > self._pairs.shape[1]:
            known = self._pairs[:, : self._count]
            known = known[:, id_of[known[1]] == known[0]]
            self._count = known.shape[1]
            needed = self._count + len(ids)
            self._pairs = np.empty((2, 2 * needed), np.int64)
            self._pairs[:, : self._count] = known
        self._pairs[:, self._count : needed] = ids, codes
        self._count = needed

    def find(self, ids: Ints) -> Ints:
        """The codes of these ids, -1 where one was never added."""
        known, codes = self._pairs[:, : self._count]
        if not len(known):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return np.where(known[at] == ids, codes[at], -1)

    def ids(self, id_of: Ints) -> Ints:
        """The ids of all groups there are."""
        known, codes = self._pairs[:, : self._count]
        found: Ints = known[id_of[codes] == known]
        return found


def groups_table(
    codes: Ints, keys: Sequence[pa.Array], integers: npt.NDArray[np.int64], best: Sequence[int], values: Ints
) -> pa.Table:
    """A row for each of these groups.

    ``best``: the places in ``integers`` of arguments whose queue is one node, the value of which is in ``values``.
    """
    arrays = {f"k{i}": key for i, key in enumerate(keys)}
    rows = integers[codes]
    for at in best:
        known = rows[:, at + kernel.COUNT] > 0
        rows[known, at + kernel.HEAD] = values[rows[known, at + kernel.HEAD]]
    arrays["ints"] = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    return pa.table(arrays)


def groups_from(table: pa.Table, codes: Ints, integers: npt.NDArray[np.int64], best: Sequence[int]) -> Ints:
    """Put groups into the arrays at these codes; gives the values of the nodes of ``best``."""
    rows = rows_of(table)
    integers[codes] = rows
    values: list[Ints] = [np.empty(0, np.int64)]
    used = 0
    for at in best:
        known = rows[:, at + kernel.COUNT] > 0
        values.append(rows[known, at + kernel.HEAD])
        places = np.arange(used, used + len(values[-1]))
        integers[codes[known], at + kernel.HEAD] = integers[codes[known], at + kernel.TAIL] = places
        used += len(places)
    return np.concatenate(values)


def rows_of(table: pa.Table) -> npt.NDArray[np.int64]:
    """The numbers of groups as ``groups_table`` put them in: a row for each."""
    column = whole(table.column("ints"))
    rows: npt.NDArray[np.int64] = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return rows
