"""Saving the groups of ``FastAggregate``, which are rows of arrays indexed by the codes of their keys.

A group is one entry: its key, its numbers, and the queues of its arguments as lists. Codes are used again
and are others after loading, so entries have ids of their own, which groups get when they are first saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.delta import Ints
from penstock.kernels import aggregate as kernel
from penstock.operators.pieces import KeyedPieces
from penstock.operators.state import Loaded, Saved, with_meta
from penstock.operators.tables import whole

Nodes = tuple[Ints, Ints, npt.NDArray[np.int32]]
"""Values, numbers and links (to the next and the one before) of the nodes of all queues."""

_NO_ID = -1


class GroupPieces:
    """Which groups have changed since the last save; nothing is noted before the first."""

    def __init__(self) -> None:
        self._pieces = KeyedPieces()
        self._ids: Ints = np.empty(0, np.int64)
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

    def save(self, live: Ints, groups: Callable[[Ints], pa.Table]) -> Saved:
        """``live``: the codes of all groups there are; ``groups`` gives a row for each of these codes."""
        self._cover(int(live.max()) + 1 if len(live) else 0)
        changed = live
        if self._dirty is not None:
            (changed,) = np.nonzero(self._dirty)
            self._dirty[changed] = False
        else:
            self._dirty = np.zeros(len(self._ids), np.bool_)
        fresh = changed[self._ids[changed] == _NO_ID]
        self._ids[fresh] = np.arange(self._next, self._next + len(fresh))
        self._next += len(fresh)
        gone = np.concatenate([np.empty(0, np.int64), *self._gone])
        self._gone = []

        def table(ids: Ints) -> pa.Table:
            order = np.argsort(self._ids)
            return groups(order[np.searchsorted(self._ids[order], ids)])

        return with_meta(self._pieces.save(self._ids[changed], gone, len(live), table), next=self._next)

    def load(self, state: Loaded) -> tuple[Ints, pa.Table | None]:
        """The ids and the table of all groups; ``loaded`` must be told of their codes."""
        self._next = state.meta["next"]
        return self._pieces.load(state)

    def loaded(self, ids: Ints, codes: Ints) -> None:
        """The codes that the groups with these ids have now."""
        self._cover(int(codes.max()) + 1 if len(codes) else 0)
        self._ids[codes] = ids
        self._dirty = np.zeros(len(self._ids), np.bool_)


def groups_table(
    codes: Ints,
    keys: Sequence[pa.Array],
    integers: npt.NDArray[np.int64],
    queues: Sequence[int],
    nodes: Nodes,
) -> pa.Table:
    """A row for each of these groups; ``queues`` are the places in ``integers`` of arguments that have one."""
    arrays = {f"k{i}": key for i, key in enumerate(keys)}
    rows = integers[codes]
    arrays["ints"] = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    for i, at in enumerate(queues):
        offsets, values, numbers = kernel.queued(codes, at, integers, *nodes)
        arrays[f"values {i}"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        arrays[f"numbers {i}"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers))
    return pa.table(arrays)


def groups_from(table: pa.Table, codes: Ints, integers: npt.NDArray[np.int64], queues: Sequence[int]) -> Nodes:
    """Put groups into the arrays at these codes; gives the nodes of their queues."""
    rows = whole(table.column("ints"))
    integers[codes] = _flat(rows).reshape(len(rows), integers.shape[1])
    values: list[Ints] = []
    numbers: list[Ints] = []
    links: list[npt.NDArray[np.int32]] = []
    first = 0
    for i, at in enumerate(queues):
        of_groups = whole(table.column(f"values {i}"))
        starts, stops = of_groups.offsets.to_numpy()[:-1], of_groups.offsets.to_numpy()[1:]
        values.append(_flat(of_groups))
        numbers.append(_flat(whole(table.column(f"numbers {i}"))))
        n = len(values[-1])
        base = int(starts[0]) if len(starts) else 0
        places = np.arange(first, first + n, dtype=np.int32)
        linked = np.stack([places + 1, places - 1], axis=1)
        used = stops > starts
        heads, tails = starts[used] - base, stops[used] - base - 1
        linked[tails, 0] = kernel.NO_NODE
        linked[heads, 1] = kernel.NO_NODE
        integers[codes[used], at + kernel.HEAD] = heads + first
        integers[codes[used], at + kernel.TAIL] = tails + first
        links.append(linked)
        first += n
    if not queues:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 2), np.int32)
    return np.concatenate(values), np.concatenate(numbers), np.concatenate(links)


def _flat(lists: pa.Array) -> Ints:
    return lists.flatten().to_numpy()  # type: ignore[no-any-return]

