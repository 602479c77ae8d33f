"""Small operators for graphs that are run for their order alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

import experiments  # noqa: F401 - the pool
import numpy as np
import pyarrow as pa

from penstock.graph.message import BEGIN, Data, Mark, Message
from penstock.graph.statistics import Statistics
from penstock.graph.vertex import Edge, State
from penstock.model.delta import MAX_TS, NEVER, Arrivals, Instant
from penstock.model.schema import Field
from penstock.model.types import BIGINT
from penstock.operators.base import NOTHING, StateSize

SCHEMA = (Field("v", BIGINT),)
Row = tuple[int, int, int]
"""ts, sub, value."""


def message(rows: Sequence[Row], frontier: Instant | int | None = None, priority: int | None = None) -> Message:
    """Rows in order; the frontier is a time or an instant, or just behind the last row."""
    if frontier is None:
        frontier = (rows[-1][0], rows[-1][1] + 1)
    if isinstance(frontier, int):
        frontier = (frontier, 0)
    ts, sub, values = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    ranks = None if priority is None else np.full(len(rows), priority, np.int64)
    closed = frontier == NEVER
    mark = Mark(frontier, float("inf") if closed else float(frontier[0]), float(ts[-1]) if len(ts) else float("-inf"))
    return Message(Arrivals(SCHEMA, (pa.array(values),), ts, sub, ranks), mark)


def rows_of(message: Message) -> list[Row]:
    data = message.data
    return list(zip(data.ts.tolist(), data.sub.tolist(), data.columns[0].to_pylist(), strict=True))


def closing() -> Message:
    return message([], (MAX_TS, 0))


class Fake:
    """An operator that fails when two threads touch it at once, or when its inputs go back."""

    kind = name = "fake"
    overtakable = False
    foretells = False
    looks_across = False
    sets_priority = False

    def __init__(self, id: int, priority: int = 5) -> None:
        self.id, self.label, self.priority = id, f"{type(self).__name__} {id}", priority
        self.state: State = "ready"
        self.stats = Statistics()
        self.inputs: list[Edge] = []
        self.outputs: list[Edge] = []
        self.errors: list[str] = []
        self._touched = threading.Lock()
        self._known: dict[int, Instant] = {}

    def take(self, port: int, message: Message) -> None:
        if not self._touched.acquire(blocking=False):
            self.errors.append("two threads at once")
            return
        try:
            if message.first < self._known.get(port, BEGIN.frontier) or message.mark.frontier < message.first:
                self.errors.append(f"port {port} went back to {message.first}")
            self._known[port] = message.mark.frontier
            self.stats.calls += 1
            self.stats.elements_in += len(message)
            self.work(port, message)
        finally:
            self._touched.release()

    def take_early(self, port: int, data: Data) -> None:
        raise AssertionError("nothing overtakes here")

    def work(self, port: int, message: Message) -> None:
        raise NotImplementedError

    def send(self, message: Message) -> None:
        self.stats.elements_out += len(message)
        for edge in self.outputs:
            edge.send(message)

    def size(self) -> StateSize:
        return NOTHING

    def __repr__(self) -> str:
        return self.label


class Source(Fake):
    """Sends what is pushed."""


class Map(Fake):
    """Something else for each row, or nothing."""

    def __init__(self, id: int, function: Callable[[int], int | None] = lambda v: v, priority: int = 5) -> None:
        super().__init__(id, priority)
        self.function = function

    def work(self, port: int, message_: Message) -> None:
        rows = [(t, s, w) for t, s, v in rows_of(message_) if (w := self.function(v)) is not None]
        self.send(message(rows, message_.mark.frontier))


class Merge(Fake):
    """Rows of all inputs in order of instants, up to the least frontier."""

    def __init__(self, id: int) -> None:
        super().__init__(id)
        self.kept: list[tuple[int, int, int, int]] = []
        self.least = BEGIN.frontier
        self.order: list[int] = []  # the ports as they were called

    def work(self, port: int, message_: Message) -> None:
        self.order.append(port)
        self.kept += [(t, s, port, v) for t, s, v in rows_of(message_)]
        least = min(self._known.get(p, BEGIN.frontier) for p in range(len(self.inputs)))
        if least == self.least:
            return
        self.least = least
        self.kept.sort()
        ripe = [r for r in self.kept if r[:2] < least]
        self.kept = self.kept[len(ripe) :]
        self.send(message([(t, s, v * 3 + port) for t, s, port, v in ripe], least))


class Sink(Fake):
    """Remembers what came."""

    def __init__(self, id: int, call: Callable[[], object] | None = None) -> None:
        super().__init__(id)
        self.rows: dict[int, list[Row]] = {}
        self.call = call

    def work(self, port: int, message: Message) -> None:
        self.rows.setdefault(port, []).extend(rows_of(message))
        if self.call is not None:
            self.call()


def link(source: Fake, *targets: Fake) -> None:
    """An edge to the next free port of each."""
    for target in targets:
        edge = Edge(source, target, len(target.inputs))
        source.outputs.append(edge)
        target.inputs.append(edge)


def chain(*fakes: Fake) -> None:
    for a, b in itertools.pairwise(fakes):
        link(a, b)


def pipeline(call: Callable[[], object] | None = None) -> tuple[Source, list[Fake], Sink]:
    source, first, second, sink = Source(0), Map(1), Map(2), Sink(3, call)
    chain(source, first, second, sink)
    return source, [first, second, sink], sink


THREADED = [
    {"threading": "graph"},
    {"threading": "operator"},
    {"threading": "hybrid", "workers": 1},
    {"threading": "hybrid", "workers": 4},
    {"threading": "operator", "architecture": "pool", "workers": 2},
]
"""Settings under which there are threads."""
