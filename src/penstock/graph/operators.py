"""The vertices between sources and answers."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from penstock.delta import BEGINNING, NEVER, Arrivals, Delta, Ints, Step, concat, empty
from penstock.graph.bounded import BoundedBody, Feed
from penstock.graph.message import Data, Mark, Message
from penstock.graph.ports import Port
from penstock.graph.vertices import OperatorVertex
from penstock.operators.arrivals import joined
from penstock.operators.base import Operator, StateSize, WindowOperator
from penstock.operators.emit import Emit
from penstock.operators.filter_group import FilterGroup
from penstock.operators.gate import MasterGate
from penstock.operators.state import LoadedState, State, below, under, with_meta
from penstock.operators.stateless import FilterProject
from penstock.operators.window import PassingWindow
from penstock.plan.nodes import Schema
from penstock.plan.window import WindowSpec

Instants = tuple[Ints, Ints]
_clock = time.perf_counter_ns
_ONES = np.ones(1 << 16, np.int8)
_NONE: Instants = (np.empty(0, np.int64), np.empty(0, np.int64))


class Stateless(OperatorVertex):
    """Filters and projections, over elements or over changes."""

    stateless = True

    def __init__(self, label: str, chain: FilterProject, *, elements: bool, filters: bool) -> None:
        super().__init__("filter" if filters else "project", label, chain.schema)
        self.name = "FilterProject"
        self.chain = chain
        self.elements = elements
        self._none: Data = joined(chain.schema, []) if elements else empty(chain.schema)
        self.tail: Tail | None = None
        """What follows, where that is short."""

    @property
    def nothing(self) -> Data:
        return self._none

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        data = inputs[0]
        if isinstance(data, Arrivals):
            return self.chain.process_arrivals(data)
        return self.chain.process([data], Step(mark.frontier))


class Filters:
    """Filters and projections over one vertex's results, worked on together: see ``FilterGroup``."""

    def __init__(self, schema: Schema) -> None:
        self._group = FilterGroup(schema)
        self._members: dict[int, Stateless] = {}

    def become(self, members: Mapping[int, Stateless]) -> None:
        """Be a group of just these, by number."""
        for id in self._members.keys() - members.keys():
            self._group.remove(id)
            del self._members[id]
        for id in members.keys() - self._members.keys():
            self._group.add(id, members[id].chain)
            self._members[id] = members[id]

    def take(self, message: Message) -> None:
        data, mark = message.data, message.mark
        began = _clock()
        results = self._group.process(data, Step(mark.frontier))
        count, share = len(data), (_clock() - began) // len(results)
        closing = mark.frontier == NEVER
        for id, out in results:
            member = self._members[id]
            if member.state == "stopped":
                continue
            stats = member.stats
            stats.calls += 1
            stats.elements_in += count
            stats.busy += share
            stats.until = began
            if isinstance(out, Exception):
                member.failed(out, [data])
            elif member.tail is not None and not closing:
                if len(out):
                    stats.elements_out += len(out)
                    member.tail.take(out, mark)
            elif len(out) or not member.quiet or closing:
                member.send(out, mark)


class Windowed(OperatorVertex):
    """Stream to relation. No row that came before this was made is later than ``born``."""

    def __init__(
        self, label: str, window: WindowOperator, spec: WindowSpec, schema: Schema, *, born: float = -math.inf
    ) -> None:
        super().__init__("window", label, schema)
        self.name = "Window"
        self.window, self.spec, self.born = window, spec, born
        self.stateless = isinstance(window, PassingWindow)
        self.passes = isinstance(window, PassingWindow) and not window.tells_ends

    @property
    def nothing(self) -> Delta:
        return empty(self.schema)

    @property
    def operator(self) -> WindowOperator:
        return self.window

    def saved(self) -> int:
        """A window whose rows say when they leave holds none of them: the join above it does, for both. Reckoned with
        8 bytes for each value and for the instant.
        """
        if not isinstance(self.window, PassingWindow) or not self.window.tells_ends or not self.stats.elements_out:
            return 0
        held = [e.target.stage.rows(e.port) for e in self.outputs
                if isinstance(e.target, Staged) and isinstance(e.target.stage, HoldsRows)]  # fmt: skip
        return max(held, default=0) * 8 * (len(self.schema) + 2)

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        (arrivals,) = inputs
        assert isinstance(arrivals, Arrivals)
        return self.window.process(arrivals, Step(mark.frontier))


@runtime_checkable
class HoldsRows(Protocol):
    """An operator that holds rows of its inputs."""

    def rows(self, side: int) -> int:
        """How many of an input."""


class Tail:
    """A window that keeps nothing, the emission of its rows as they are, and queries, called as one operator."""

    def __init__(self, window: Windowed, emitting: Emitting, sinks: Sequence[Sink]) -> None:
        self._window, self._emitting, self._sinks = window, emitting, sinks

    def take(self, data: Data, mark: Mark) -> None:
        """Elements become answers. Time is counted for whoever calls."""
        assert isinstance(data, Arrivals)
        ts, sub, count = data.ts, data.sub, len(data.ts)
        sign = _ONES[:count] if count <= len(_ONES) else np.ones(count, np.int8)
        delta = Delta(data.schema, data.columns, ts, sub, sign, ts, sub, data.priority)
        for vertex in (self._window, self._emitting):
            vertex.mark = vertex.sent = mark
            stats = vertex.stats
            stats.calls += 1
            stats.elements_in += count
            stats.elements_out += count
        message = Message(delta, mark)
        for sink in self._sinks:
            sink.take(0, message)


def tail_of(vertex: Stateless) -> Tail | None:
    """What follows a filter, if it is as short as a ``Tail``."""
    if not vertex.elements or len(vertex.outputs) != 1:
        return None
    window = vertex.outputs[0].target
    if not isinstance(window, Windowed) or not window.passes or len(window.outputs) != 1:
        return None
    emitting = window.outputs[0].target
    if not isinstance(emitting, Emitting) or not emitting.as_it_is:
        return None
    sinks = [e.target for e in emitting.outputs if isinstance(e.target, Sink)]
    edges = (*vertex.outputs, *window.outputs, *emitting.outputs)
    if len(sinks) != len(emitting.outputs) or any(e.buffer is not None or e.since is not None for e in edges):
        return None
    return Tail(window, emitting, sinks)


class Gated(OperatorVertex):
    """Changes held back until a master element arrives. Inputs: the changes, then the master streams."""

    def __init__(self, schema: Schema, masters: Sequence[Schema]) -> None:
        super().__init__("gate", "until a master arrives", schema)
        self.gate = MasterGate(schema)
        self.ports = [Port(schema, elements=False), *(Port(s, elements=True) for s in masters)]

    @property
    def nothing(self) -> Delta:
        return empty(self.schema)

    @property
    def operator(self) -> MasterGate:
        return self.gate

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        delta, *masters = inputs
        assert isinstance(delta, Delta)
        arrived = [(m.ts, m.sub) for m in masters]
        return self.gate.process([delta], Step(mark.frontier, sorted_instants(arrived, strictly_ordered=True)))


class Staged(OperatorVertex):
    """A relational operator over changes. ``inner``: it is an inner join."""

    def __init__(
        self, kind: str, name: str, label: str, stage: Operator, inputs: Sequence[Port], *, inner: bool = False
    ) -> None:
        super().__init__(kind, label, ())
        self.name = name
        self.stage, self.inner = stage, inner
        self.ports = list(inputs) if len(inputs) > 1 else None

    @property
    def nothing(self) -> Delta:
        return empty(self.schema)

    @property
    def operator(self) -> Operator:
        return self.stage

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        return self.stage.process(inputs, Step(mark.frontier))  # type: ignore[arg-type]


class Emitting(OperatorVertex):
    """Relation to stream. Inputs: the changes; then what tells the instants of evaluation where they matter: the
    master streams, or the leaves of the plan."""

    def __init__(self, label: str, emit: Emit, instants: Sequence[Port], *, masters: bool, streams: bool) -> None:
        super().__init__("emit", label, emit.schema)
        self.name = "emit"
        self.emit = emit
        self.ports = [Port(emit.schema, elements=False), *instants] if instants else None
        self._masters, self._streams = masters, streams
        self._begun = False
        self.as_it_is = self.ports is None and not masters and emit.passes
        """Whether what enters is the answer."""
        self._none = empty(emit.schema)

    @property
    def nothing(self) -> Delta:
        return self._none

    @property
    def operator(self) -> Emit:
        return self.emit

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        delta = inputs[0]
        assert isinstance(delta, Delta)
        instants = _NONE
        if self._masters:
            instants = sorted_instants([(d.ts, d.sub) for d in inputs[1:]], strictly_ordered=True)
        elif self.emit.needs_instants:
            told = inputs[1:] if self.ports is not None else inputs
            instants = sorted_instants([(d.ts, d.sub) for d in told])
            if not self._begun and not self._streams:
                instants = (np.zeros(1, np.int64), np.zeros(1, np.int64))
        self._begun = True
        return self.emit.process([delta], Step(mark.frontier), instants)

    def save(self) -> State:
        state = super().save()
        return {**state, "operator": with_meta(state["operator"], stepped=self._begun)}

    def load(self, state: LoadedState) -> None:
        super().load(state)
        self._begun = state["operator"].meta["stepped"]

    def catch_up(self, state: LoadedState) -> None:
        super().catch_up(state)
        self._begun = state["operator"].meta["stepped"]


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


class Sink(OperatorVertex):
    """A registered query: answers that its reader has not been handed yet.

    Bounded by how often the database takes them, which is at least once a push. ``told`` is called when there is
    something new, by whoever runs this vertex.
    """

    def __init__(self, query: str, schema: Schema, told: Callable[[Sink], object] | None = None) -> None:
        super().__init__("query", query, schema)
        self.query = query
        self.answers: deque[Delta] = deque()
        self.error: Exception | None = None
        self.told = told

    @property
    def nothing(self) -> Delta:
        return empty(self.schema)

    def take(self, port: int, message: Message) -> None:
        if self.state == "stopped":
            return
        delta = message.data
        assert isinstance(delta, Delta)
        stats = self.stats
        stats.calls += 1
        if len(delta):
            stats.elements_in += len(delta)
            stats.elements_out += len(delta)
            self.answers.append(delta)
        self.mark = message.mark
        if self.told is not None and (len(delta) or self.mark.closed):
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


_LAST = (NEVER[0] - 1, 0)
"""A frontier behind everything for somebody who may still be asked, but will have no answer before that."""


def sorted_instants(parts: Sequence[Instants], *, strictly_ordered: bool = False) -> Instants:
    """The distinct instants of several lists, in order, without the beginning."""
    if len(parts) == 1 and strictly_ordered:
        return parts[0]
    ts = np.concatenate([p[0] for p in parts]) if parts else _NONE[0]
    sub = np.concatenate([p[1] for p in parts]) if parts else _NONE[1]
    if not len(ts):
        return _NONE
    order = np.lexsort((sub, ts))
    ts, sub = ts[order], sub[order]
    keep = np.ones(len(ts), bool)
    keep[1:] = (ts[1:] != ts[:-1]) | (sub[1:] != sub[:-1])
    keep &= ts != BEGINNING[0]
    return ts[keep], sub[keep]
