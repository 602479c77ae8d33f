"""Where the graph ends: a sink for each query."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from penstock.graph.early import Aside, unranked
from penstock.graph.message import Data, Mark, Message
from penstock.graph.vertices import OperatorVertex
from penstock.model.delta import NEVER, Delta, empty
from penstock.model.schema import Schema


class Sink(OperatorVertex):
    """A registered query: answers that its reader has not been handed yet. ``ordered``: in the weak order of 004, in
    which an answer without priority comes after all that are earlier in time.

    Bounded by how often the database takes them, which is at least once a push. ``told`` is called when there is
    something new, by whoever runs this vertex.
    """

    def __init__(
        self, query: str, schema: Schema, told: Callable[[Sink], object] | None = None, *, ordered: bool = False
    ) -> None:
        super().__init__("query", query, schema)
        self.query = query
        self.answers: deque[Delta] = deque()
        self.error: Exception | None = None
        self.told = told
        self.ordered = ordered

    @property
    def nothing(self) -> Delta:
        return empty(self.schema)

    def take(self, port: int, message: Message) -> None:
        if self.state == "stopped":
            return
        if self.aside is not None:
            message = self.whole(port, message)
        delta = message.data
        assert isinstance(delta, Delta)
        stats = self.stats
        stats.calls += 1
        stats.began = time.perf_counter_ns()
        count = len(delta.ts)
        if count:
            stats.elements_in += count
            stats.elements_out += count
            self.answers.append(delta)
        self.mark = message.mark
        if self.told is not None and (count or self.mark.closed):
            self.told(self)

    def take_early(self, port: int, data: Data) -> None:
        """Answers that overtook others."""
        if self.state == "stopped":
            return
        assert isinstance(data, Delta)
        if self.ordered and len(waiting := unranked(data)):
            if self.aside is None:
                self.aside = Aside()
            self.aside.add(port, data.take(waiting))
            data = data.take(np.setdiff1d(np.arange(len(data)), waiting))
            if not len(data):
                return
        stats = self.stats
        stats.calls += 1
        stats.elements_in += len(data)
        stats.elements_out += len(data)
        self.answers.append(data)
        if self.told is not None:
            self.told(self)

    @property
    def ended(self) -> bool:
        return self.mark.closed

    def end(self) -> None:
        """No answer will come."""
        self.mark = Mark(NEVER, math.inf, self.mark.newest)

    def taken(self) -> list[Delta]:
        """The answers, which are not kept any more."""
        # Somebody else may be adding more.
        return [self.answers.popleft() for _ in range(len(self.answers))]

    def fail(self, error: Exception) -> None:
        """There will be no more answers."""
        self.state = "stopped"
        self.error = error
        if self.told is not None:
            self.told(self)
