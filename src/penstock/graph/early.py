"""Rows that are handed on before their place in the order (004).

An *early* row is a prioritised one that overtook others, or a result of a join one of whose inputs is behind. It
comes without a mark: it says nothing about what else will come. An operator that needs the order keeps it aside until
a mark passes its instant, and then has it at its place.

An early row always comes before any mark that is beyond its instant: in a buffer it is ahead of the message it was
part of, and whoever is called gets it first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from penstock.graph.message import Data, Message, before, chosen, cut, joined_data
from penstock.model.delta import Ints
from penstock.model.schema import Schema
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.saved_rows import SavedRows
from penstock.operators.state import LoadedState, State

_PATH = "aside "
Early = tuple[int, Data]
"""A priority, and rows that have it (or, where priorities are not told apart, the highest of theirs)."""
LEVELS = 16
"""Into no more than so many parts rows are taken apart."""


def is_prioritised(data: Data) -> bool:
    """Whether some row has a priority."""
    return data.priority is not None and bool(data.priority.any())


def unranked(data: Data) -> Ints:
    """The places of the rows without priority."""
    return np.arange(len(data)) if data.priority is None else np.flatnonzero(data.priority == 0)


def parted(message: Message, *, by_level: bool) -> tuple[list[Early], Message]:
    """The prioritised rows of a message, highest first, and the message without them. ``by_level``: rows of
    different priorities apart."""
    data = message.data
    priority = data.priority
    assert priority is not None
    ordinary = priority == 0
    rest = Message(chosen(data, np.flatnonzero(ordinary)), message.mark)
    ahead = chosen(data, np.flatnonzero(~ordinary)) if ordinary.any() else data
    return parted_early(ahead) if by_level else [(int(priority.max()), ahead)], rest


def parted_early(data: Data) -> list[Early]:
    """Prioritised rows by priority, highest first. Where there are many priorities those next to each other go
    together: what is gained by telling them apart would be lost by working on each by itself."""
    priority = data.priority
    assert priority is not None
    if (priority == priority[0]).all():
        return [(int(priority[0]), data)]
    order = np.argsort(-priority, kind="stable")
    ranked = chosen(data, order)
    ranks = priority[order]
    cuts = np.flatnonzero(ranks[1:] != ranks[:-1]) + 1
    if len(cuts) >= LEVELS:
        wanted = np.arange(1, LEVELS) * len(ranks) // LEVELS
        cuts = np.unique(cuts[np.minimum(np.searchsorted(cuts, wanted), len(cuts) - 1)])
    bounds = [0, *cuts.tolist(), len(ranks)]
    return [(int(ranks[start]), cut(ranked, start, stop)) for start, stop in pairwise(bounds)]


def in_order(parts: Sequence[Data]) -> Data:
    """Rows that enter, of one sender, by instant."""
    together = joined_data(parts)
    if len(parts) == 1 and _is_ordered(together):
        return together
    return chosen(together, np.lexsort((together.sub, together.ts)))


def _is_ordered(data: Data) -> bool:
    ts, sub = data.ts, data.sub
    return bool(((ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (sub[1:] >= sub[:-1]))).all())


class Aside:
    """Early rows that wait for their place, by input.

    Bounded by the prioritised rows that are ahead of what their sender has said; forgotten when a mark passes them.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, SavedRows] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, port: int, data: Data) -> None:
        """Rows came early at an input."""
        waiting = self._waiting.get(port)
        if waiting is None:
            waiting = self._waiting[port] = SavedRows()
        waiting.add(data)

    def restored(self, port: int, message: Message) -> Message:
        """A message of an input with the rows that have their place in it."""
        waiting = self._waiting.get(port)
        if waiting is None:
            return message
        rows = waiting.whole()
        if not _is_ordered(rows):
            rows = in_order([rows])
            waiting.become(rows)
        due = before(rows, message.mark.frontier)
        if not due:
            return message
        due_rows = cut(rows, 0, due)
        waiting.drop(due)
        if not len(waiting):
            del self._waiting[port]
        return Message(in_order([message.data, due_rows]) if len(message.data) else due_rows, message.mark)

    def size(self) -> StateSize:
        total = NOTHING
        for waiting in self._waiting.values():
            for data in waiting.parts:
                total += StateSize(len(data), sum(c.nbytes for c in data.columns) + 33 * len(data))
        return total

    def save(self) -> State:
        """The rows, by input."""
        return {f"{_PATH}{port}": waiting.save() for port, waiting in self._waiting.items()}

    @classmethod
    def loaded(cls, schemas: Mapping[int, Schema], state: LoadedState) -> Aside | None:
        """What was saved; None if no rows waited."""
        found = cls()
        for port, schema in schemas.items():
            saved = state.get(f"{_PATH}{port}")
            if saved is not None:
                found._waiting[port] = SavedRows.loaded(schema, saved)
        return found if found else None
