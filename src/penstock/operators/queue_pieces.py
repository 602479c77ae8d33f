"""Saving the queues of ``FastAggregate``: of each queue only what has entered it since the last save.

The pieces are a log of nodes: whose they are (id of the group and which queue), their number in the group, their
value and in which save they came. Nothing says when a node goes: its group is no more, or rows with later numbers have
left the group, or a later node of its queue is not greater; loading finds that out. Everything is written again once
the log is more than twice as long as there are nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels import queues as kernel
from penstock.model.delta import Ints
from penstock.operators.pieces import merged
from penstock.operators.state import Loaded, Piece, Saved

Nodes = tuple[Ints, Ints, npt.NDArray[np.int32]]
"""Values, numbers and links (to the next and the one before) of the nodes of all queues."""
_NOBODY = -1


@dataclass
class _Part:
    name: str
    epoch: int  # of the first save whose nodes it has
    rows: int


class QueuePieces:
    """The log, and what was saved of each node; a node that is used again is known by not being what was saved."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._epoch = 0
        self._saved = np.full((4, 0), _NOBODY, np.int64)  # owner, number, value, epoch

    def save(
        self, changed: tuple[Ints, Ints], live: Callable[[], tuple[Ints, Ints]], places: Ints,
        integers: npt.NDArray[np.int64], nodes: Nodes, used: int,
    ) -> Saved:  # fmt: skip
        """``changed``: codes and ids of groups, ``live`` gives those of all; nodes below ``used`` may be in use."""
        self._cover(len(nodes[0]))
        self._epoch += 1
        tables: dict[str, pa.Table] = {}
        found = self._new(changed, places, integers, nodes)
        parts = self._parts
        if len(found):
            parts = [*parts, _Part("", self._epoch, len(found))]
            count = merged([p.rows for p in parts])
            first = parts[-count].epoch
            if sum(p.rows for p in parts) > 2 * used + 64:
                found = self._all(live(), places, integers, nodes)
                count, first = len(parts), 0
            elif count > 1:
                # Among them may be nodes that are free now and have not been used again.
                (found,) = np.nonzero(self._saved[3] >= first)
            parts = [*parts[:-count], _Part(f"{self._epoch}", first, len(found))]
            tables[parts[-1].name] = self._table(found)
        self._parts = parts
        meta = {"epoch": self._epoch, "epochs": [p.epoch for p in parts], "rows": [p.rows for p in parts]}
        return Saved(meta, tuple(Piece(p.name, tables.get(p.name)) for p in parts))

    def _cover(self, nodes: int) -> None:
        more = nodes - self._saved.shape[1]
        if more > 0:
            self._saved = np.concatenate([self._saved, np.full((4, more), _NOBODY, np.int64)], axis=1)

    def _all(self, groups: tuple[Ints, Ints], places: Ints, integers: npt.NDArray[np.int64], nodes: Nodes) -> Ints:
        """All nodes, each with the save in which it came."""
        before = self._saved.copy()
        self._saved[:] = _NOBODY
        found = self._new(groups, places, integers, nodes)
        old = found[(before[:2, found] == self._saved[:2, found]).all(axis=0)]
        self._saved[3, old] = before[3, old]
        return found

    def _new(
        self, groups: tuple[Ints, Ints], places: Ints, integers: npt.NDArray[np.int64], nodes: Nodes
    ) -> Ints:
        owner, number, value, epoch = self._saved
        codes, ids = groups
        found: Ints = kernel.unsaved(
            codes, ids, places, integers, nodes[0], nodes[1], nodes[2], owner, number, value
        )
        epoch[found] = self._epoch
        return found

    def _table(self, nodes: Ints) -> pa.Table:
        return pa.table(dict(zip(_COLUMNS, self._saved[:, nodes], strict=True)))

    def load(
        self, state: Loaded, ids: Ints, codes: Ints, left: Ints, places: Ints, integers: npt.NDArray[np.int64]
    ) -> Nodes:
        """``left``: how many rows have left each of the groups, whose ids ascend."""
        self._epoch = state.meta["epoch"]
        columns: list[npt.NDArray[np.int64]] = [np.empty((4, 0), np.int64)]
        groups: list[Ints] = [np.empty(0, np.int64)]
        for (name, table), epoch in zip(state.tables.items(), state.meta["epochs"], strict=True):
            self._parts.append(_Part(name, epoch, table.num_rows))
            if len(ids):
                # Most of a log is of no use any more.
                group = _places(_whose(table, len(places)), ids)
                (alive,) = np.nonzero((group >= 0) & (table.column("number").to_numpy() >= left[group]))
                columns.append(_log(table, alive))
                groups.append(group[alive])
        log, group = np.concatenate(columns, axis=1), np.concatenate(groups)
        order = np.lexsort((log[1], log[0]))
        log = np.ascontiguousarray(log[:, order])
        owner, number, value, _ = log
        links = np.empty((len(order), 2), np.int32)
        kept = kernel.queue_up(owner, number, value, codes[group[order]], places, integers, links)
        self._saved = np.ascontiguousarray(log[:, kept])
        return value[kept], number[kept], links[: len(kept)].copy()

    def catch_up(self, state: Loaded, ids: Ints, places: int) -> tuple[npt.NDArray[np.int64], Ints]:
        """The nodes that came since the last save or load, in order of owner and number, as ``caught_up`` wants them.

        Of each also which of the groups with these ids, all that have changed, it belongs to.
        """
        before, known = self._epoch, {p.name for p in self._parts}
        self._epoch, self._parts = state.meta["epoch"], []
        columns: list[npt.NDArray[np.int64]] = [np.empty((4, 0), np.int64)]
        sizes = dict(zip(state.tables, state.meta["rows"], strict=True))
        for (name, rows), epoch in zip(sizes.items(), state.meta["epochs"], strict=True):
            self._parts.append(_Part(name, epoch, rows))
            if name not in known:
                table = state.tables[name]
                columns.append(_log(table, np.flatnonzero(table.column("epoch").to_numpy() > before)))
        log = np.concatenate(columns, axis=1)
        group = _places(log[0] // places, ids)
        (found,) = np.nonzero(group >= 0)
        found = found[np.lexsort((log[1, found], log[0, found]))]
        return np.ascontiguousarray(log[:, found]), group[found]

    def caught_up(self, log: npt.NDArray[np.int64], nodes: Ints, length: int) -> None:
        """Which nodes, all below ``length``, hold what ``catch_up`` gave; -1 for those that are useless by now."""
        self._cover(length)
        used = nodes >= 0
        self._saved[:, nodes[used]] = log[:, used]


_COLUMNS = ("owner", "number", "value", "epoch")


def _log(table: pa.Table, rows: Ints) -> npt.NDArray[np.int64]:
    return np.stack([table.column(c).to_numpy()[rows] for c in _COLUMNS])


def _whose(table: pa.Table, queues: int) -> Ints:
    """The ids of the groups that nodes belong to."""
    owner: Ints = table.column("owner").to_numpy()
    return owner if queues == 1 else owner // queues


def _places(wanted: Ints, ids: Ints) -> Ints:
    """Where each id stands among those that ascend, -1 if it does not."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    low, span = int(ids[0]), int(ids[-1] - ids[0]) + 1
    if span > 8 * len(ids) + len(wanted):
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        return np.where(ids[at] == wanted, at, -1)
    table = np.full(span + 1, -1, np.int64)
    table[ids - low] = np.arange(len(ids))
    inside = (wanted >= low) & (wanted < low + span)
    found: Ints = table[np.where(inside, wanted - low, span)]
    return found
