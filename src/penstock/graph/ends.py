"""The vertex of a query that is answered at the ends of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.graph.bounded import BoundedBody, Feed
from penstock.graph.message import Data, Mark, Message
from penstock.graph.ports import Port
from penstock.graph.vertices import OperatorVertex
from penstock.model.delta import NEVER, Arrivals, Delta, concat, empty
from penstock.model.schema import Schema
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, State, below, under

_LAST = (NEVER[0] - 1, 0)
"""A frontier behind everything for somebody who may still be asked, but will have no answer before that."""


class Bounded(OperatorVertex):
    """A query over windows that are answered at their end, as one operator. An input for each of its sources, with its
    position in the catalog."""

    def __init__(self, label: str, body: BoundedBody, inputs: Sequence[tuple[int, Port]], schema: Schema) -> None:
        super().__init__("windows", label, schema)
        self.body = body
        self.ports = [port for _, port in inputs]
        self._positions = [position for position, _ in inputs]
        self._over = False

    @property
    def nothing(self) -> Delta:
        return empty(self.schema)

    def take(self, port: int, message: Message) -> None:
        if self._over:
            return
        super().take(port, message)
        if self.state != "stopped" and not self._over and self.ended:
            self.send(self.nothing, self.mark)

    def take_early(self, port: int, data: Data) -> None:
        if not self._over:
            super().take_early(port, data)

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        streams: dict[int, Arrivals] = {}
        relations: dict[int, Delta] = {}
        for position, data in zip(self._positions, inputs, strict=True):
            if isinstance(data, Arrivals):
                streams[position] = data
            else:
                relations[position] = data
        answers = self.body.step(Feed(mark.frontier, streams, relations, self._closed_at()))
        self.mark = mark
        if not answers:
            return self.nothing
        return answers[0] if len(answers) == 1 else concat(answers)

    def send(self, out: Data, mark: Mark) -> None:
        over = self.ended
        self._over = over
        frontier, progress = (NEVER, math.inf) if over else (mark.frontier, mark.progress)
        if frontier == NEVER and not over:
            frontier = _LAST
        super().send(out, Mark(frontier, progress, self._reached()))
        self.mark = mark

    def _deciding(self) -> list[Port]:
        """The inputs that say when there can be no more instants of evaluation."""
        assert self.ports is not None
        chosen = self.body.deciding
        found = zip(self._positions, self.ports, strict=True)
        return [p for position, p in found if position in chosen]

    def _closed_at(self) -> float | None:
        deciding = self._deciding()
        if deciding and all(p.mark.closed for p in deciding):
            return max(p.mark.newest for p in deciding)
        return None

    @property
    def ended(self) -> bool:
        """No answer can come any more."""
        if self.body.ended:
            return True
        deciding = self._deciding()
        if not deciding or not all(p.mark.closed for p in deciding):
            return False
        if self.mark.frontier == NEVER:
            return True
        # Inputs that only feed sliding windows may still be open when the bounded ones are done.
        return self.body.next_instant(self._closed_at()) is None and not any(p.waiting for p in deciding)

    def _reached(self) -> float:
        named = max((p.mark.newest for p in self._deciding()), default=-math.inf)
        last = self.body.last_window
        if last is None:
            return named
        return last if self.body.ended else max(named, last)

    def measured(self) -> StateSize:
        total = super().measured()
        for size in self.body.sizes().values():
            total += size
        return total

    def save(self) -> State:
        return {**super().save(), **under("body", self.body.save())}

    def load(self, state: LoadedState) -> None:
        super().load(state)
        self.body.load(below("body", state))
        self._over = self.ended

    def catch_up(self, state: LoadedState) -> None:
        super().catch_up(state)
        self.body.catch_up(below("body", state))
        self._over = self.ended
