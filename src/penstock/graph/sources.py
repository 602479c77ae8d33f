"""Where rows come into the graph: declared streams, the answers of queries, stored relations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.message import Data, Mark, Message, least
from penstock.graph.ports import Port
from penstock.graph.relations import RelationInput
from penstock.graph.vertices import OperatorVertex
from penstock.model.batch import Batch
from penstock.model.change import Change, Dating
from penstock.model.delta import MIN_TS, NEVER, Arrivals, Delta, Instant, arrival_sub, empty, joined
from penstock.model.schema import Schema
from penstock.operators.base import StateSize
from penstock.operators.rows import size_of
from penstock.operators.state import LoadedState, Saved, State
from penstock.operators.tables import from_number, number


def bound(progress: float, position: int, next_arrival: int) -> Instant:
    """No element of a stream with an instant before this can still come."""
    if progress == math.inf:
        return NEVER
    if progress == -math.inf:
        return (MIN_TS, 0)
    return int(progress), int(arrival_sub(position, next_arrival))


class Stream(OperatorVertex):
    """Elements with their place in the total order, and how far they are. Remembers numbers only."""

    stateless = True
    elements = True

    def __init__(self, kind: str, label: str, schema: Schema, position: int) -> None:
        super().__init__(kind, label, schema)
        self.position = position
        self.progress: float = -math.inf
        self.newest: float = -math.inf
        self._next_arrival = 0
        self._none = joined(schema, [])

    @property
    def nothing(self) -> Arrivals:
        return self._none

    @property
    def overtakable(self) -> bool:
        return True

    @property
    def bound(self) -> Instant:
        """No element with an instant before this will be sent any more."""
        return bound(self.progress, self.position, self._next_arrival)

    @property
    def certain(self) -> float:
        """Up to there no relation changes any more: changes come after what a stream has reached."""
        return self.progress

    def advance(self, at: float) -> None:
        """No more elements before ``at``."""
        if at > self.progress:
            self.progress = at
        if self.newest < at < math.inf:
            self.newest = at

    def numbered(
        self,
        columns: Sequence[pa.Array],
        ts: npt.NDArray[np.int64],
        arrival: npt.NDArray[np.int64],
        priority: npt.NDArray[np.int64] | None,
    ) -> Arrivals:
        """Elements in order, at their instants."""
        last = int(arrival[0] if len(arrival) == 1 else arrival.max())
        self._next_arrival = max(self._next_arrival, last + 1)
        self.advance(int(ts[-1]))
        return Arrivals(self.schema, tuple(columns), ts, arrival_sub(self.position, arrival), priority)

    def said(self) -> Mark:
        """How far it is."""
        return Mark(self.bound, self.progress, self.newest)

    def save(self) -> State:
        meta = {"progress": number(self.progress), "newest": number(self.newest), "next": self._next_arrival}
        return {"stream": Saved(meta)}

    def load(self, state: LoadedState) -> None:
        meta = state["stream"].meta
        self.progress, self.newest = from_number(meta["progress"]), from_number(meta["newest"])
        self._next_arrival = meta["next"]
        self.mark = self.said()

    def catch_up(self, state: LoadedState) -> None:
        self.load(state)


Place = tuple[float, float, int, int, Mark, Mark, frozenset[int]]


class Source(Stream):
    """A declared stream. What is pushed goes on at the next ``flush``, in the thread that calls it.

    ``given`` counts elements ever pushed. ``early``: the arrival numbers of elements that went on before their place
    and have not been pushed since. Bounded by the prioritised elements that wait for slack, or in the log of engine
    ``spark``.
    """

    def __init__(self, stream: str, schema: Schema, position: int) -> None:
        super().__init__("source", f"stream {stream}", schema, position)
        self.stream = stream
        self.given = 0
        self.early: frozenset[int] = frozenset()
        self._logged: float = -math.inf
        self._waiting: list[Arrivals] = []

    @property
    def certain(self) -> float:
        return max(self.progress, self._logged)

    def push(
        self,
        columns: Sequence[pa.Array],
        ts: npt.NDArray[np.int64],
        arrival: npt.NDArray[np.int64],
        priority: npt.NDArray[np.int64] | None,
    ) -> None:
        """Elements in order; those that went on early have only reached their place."""
        if not len(ts):
            return
        if self.early and priority is not None:
            had = self._had(arrival)
            if had.any():
                self.early -= frozenset(arrival[had].tolist())
                self._next_arrival = max(self._next_arrival, int(arrival[had].max()) + 1)
                self.advance(int(ts[-1]))
                new = np.flatnonzero(~had)
                if not len(new):
                    return
                columns = [column.take(pa.array(new)) for column in columns]
                ts, arrival, priority = ts[new], arrival[new], priority[new]
        self.given += len(ts)
        self._waiting.append(self.numbered(columns, ts, arrival, priority))

    def _had(self, arrival: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the elements went on early."""
        return np.isin(arrival, np.fromiter(self.early, np.int64, len(self.early)))

    def of_early(self, batch: Batch) -> Batch:
        """Those of the elements that went on early."""
        return batch.take(np.flatnonzero(self._had(batch.arrival)))

    def push_early(self, batch: Batch, reached: float = -math.inf) -> None:
        """Prioritised elements before their place, which go on at once, but for those that have. They say nothing of
        how far the stream is. ``reached``: elsewhere it has come that far, and all changes of relations up to there
        have been given."""
        if len(batch):
            self._logged = max(self._logged, min(reached, float(batch.ts.max())))
        if self.early:
            batch = batch.take(np.flatnonzero(~self._had(batch.arrival)))
        if not len(batch):
            return
        self.given += len(batch)
        self.early |= frozenset(batch.arrival.tolist())
        self.stats.elements_in += len(batch)
        sub = arrival_sub(self.position, batch.arrival)
        self.send_early(Arrivals(self.schema, whole_columns(batch), batch.ts, sub, batch.priority))

    def place(self) -> Place:
        """Where it is, to go back to if what comes next is interrupted before any operator has it."""
        return self.progress, self.newest, self._next_arrival, self.given, self.mark, self.sent, self.early

    def go_back(self, place: Place) -> None:
        """Be as it was; nothing that it has sent since has reached anybody."""
        self.progress, self.newest, self._next_arrival, self.given, self.mark, self.sent, self.early = place
        self._waiting = []

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        mark = self.said()
        if not waiting and mark.frontier == self.mark.frontier and mark.newest == self.mark.newest:
            return
        data = joined(self.schema, waiting) if waiting else self._none
        stats = self.stats
        stats.calls += 1
        if waiting:
            stats.elements_in += len(data)
        self.send(data, mark)

    def save(self) -> State:
        assert not self._waiting, "what was pushed is sent on before a save"
        saved = super().save()["stream"]
        return {"stream": Saved({**saved.meta, "early": sorted(self.early)} if self.early else saved.meta)}

    def load(self, state: LoadedState) -> None:
        super().load(state)
        self.early = frozenset(state["stream"].meta.get("early", ()))

    def reach(self, batches: Sequence[Batch]) -> None:
        """Elements up to the last of these have been dealt with elsewhere."""
        for batch in batches:
            if len(batch):
                self._next_arrival = max(self._next_arrival, int(batch.arrival.max()) + 1)
                self.early -= frozenset(batch.arrival.tolist())


class Intake(OperatorVertex):
    """Where a stream is handed over from whoever pushes to those that work: one buffer, however many read it."""

    stateless = True
    elements = True

    def __init__(self, source: Source) -> None:
        super().__init__("intake", source.label, source.schema)
        self.source = source

    @property
    def nothing(self) -> Arrivals:
        return self.source.nothing

    @property
    def works_early(self) -> bool:
        return True

    @property
    def overtakable(self) -> bool:
        return True

    def work_early(self, port: int, data: Data) -> Data:
        return data

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        return inputs[0]


class Entry(Stream):
    """The answers of a query as elements of a stream. They are numbered in their order, so early ones must wait."""

    def __init__(self, label: str, schema: Schema, position: int) -> None:
        super().__init__("stream", label, schema, position)
        self._answered = 0

    # The numbers it gives depend on all that came before.
    stateless = False

    def take(self, port: int, message: Message) -> None:
        if self.state == "stopped":
            return
        if self.aside is not None:
            message = self.whole(port, message)
        delta, mark = message.data, message.mark
        assert isinstance(delta, Delta)
        self.stats.calls += 1
        out = self._none
        if len(delta):
            self.stats.elements_in += len(delta)
            arrival = np.arange(self._answered, self._answered + len(delta), dtype=np.int64)
            self._answered += len(delta)
            out = self.numbered(delta.columns, delta.ts, arrival, delta.priority)
        self.newest = max(self.newest, mark.newest)
        if mark.progress > self.progress:
            self.progress = mark.progress
        self.send(out, self.said())

    def save(self) -> State:
        saved = super().save()["stream"]
        return {"stream": Saved({**saved.meta, "answered": self._answered}), **self.saved_early()}

    def load(self, state: LoadedState) -> None:
        super().load(state)
        self._answered = state["stream"].meta["answered"]
        self.load_early(state)


class Beat(OperatorVertex):
    """What lets those go on who read relations alone: nothing but how far they are."""

    stateless = False

    @property
    def nothing(self) -> Delta:
        return empty(())

    def reach(self, progress: float, newest: float) -> None:
        """All changes before ``progress`` have been handed over; what happens by time alone happens at it, too."""
        frontier = bound(progress, -1, 1)
        if frontier > self.mark.frontier or newest > self.mark.newest:
            self.send(self.nothing, Mark(frontier, progress, newest))


class Ticks(Beat):
    """The beat of queries that read no stream at all: each change of one of the relations is an instant."""

    def __init__(self, relations: frozenset[str]) -> None:
        super().__init__("ticks", "changes of " + ", ".join(sorted(relations)), ())
        self.relations = relations
        self.dating = Dating()

    def flush(self) -> None:
        self.dating.begun = self.touched = True
        self.reach(self.dating.last + 1, self.dating.last)

    def save(self) -> State:
        dating = self.dating
        return {"ticks": Saved({"begun": dating.begun, "last": dating.last, "earlier": dating.earlier})}

    def load(self, state: LoadedState) -> None:
        meta = state["ticks"].meta
        self.dating = Dating(meta["begun"], meta["earlier"], meta["last"])
        if self.dating.begun:
            progress = self.dating.last + 1
            self.mark = self.sent = Mark(bound(progress, -1, 1), progress, self.dating.last)

    def catch_up(self, state: LoadedState) -> None:
        self.load(state)


class Horizon(Beat):
    """The beat of what reads relations alone inside a query that reads streams: it is as far as all of these.

    Changes come after all that the streams have reached, so at that instant too none can come any more.
    """

    def __init__(self, streams: int) -> None:
        super().__init__("horizon", "as far as the streams", ())
        self.ports = [Port((), elements=True, counts=False) for _ in range(streams)]

    def take_early(self, port: int, data: Data) -> None:
        """Only how far the streams are matters."""

    def take(self, port: int, message: Message) -> None:
        if self.state == "stopped":
            return
        assert self.ports is not None
        self.stats.calls += 1
        self.ports[port].add(message)
        said = least([p.mark for p in self.ports])
        self.reach(said.progress + 1, said.newest)

    def _marked(self) -> None:
        super()._marked()
        progress = self.mark.progress + 1
        self.mark = self.sent = Mark(bound(progress, -1, 1), progress, self.mark.newest)


class Relation(OperatorVertex):
    """A stored relation as a query sees it: its changes, as far as the query's streams are.

    Changes are handed over by whoever makes them, before any later row of a stream; they are taken in when the streams
    pass their instants. ``version`` counts the changes ever handed over to vertices of this relation.
    """

    def __init__(self, relation: str, schema: Schema, position: int, clocks: int) -> None:
        super().__init__("relation", f"relation {relation}", schema)
        self.relation = relation
        self.position = position
        self.input = RelationInput(schema, position)
        self.incoming: deque[Sequence[Change]] = deque()
        self.ports = [Port((), elements=True, counts=False) for _ in range(clocks)]
        self._none = empty(schema)
        self.latest: Instant = (MIN_TS, 0)
        """That of the last change which was handed over."""

    @property
    def certain(self) -> float:
        """Up to there it does not change any more than it has: all streams that it is read with have come so far."""
        streams = (edge.source for edge in self.inputs)
        sources = (vertex.source if isinstance(vertex, Intake) else vertex for vertex in streams)
        return min((s.certain if isinstance(s, Stream) else -math.inf for s in sources), default=-math.inf)

    def hand_over(self, changes: Sequence[Change]) -> None:
        """Changes in order, by whoever makes them."""
        if changes:
            self.latest = max(self.latest, self.input.instant(changes[-1]))
        self.incoming.append(changes)

    def load(self, state: LoadedState) -> None:
        super().load(state)
        self.latest = self.input.last_waiting or (MIN_TS, 0)

    def catch_up(self, state: LoadedState) -> None:
        super().catch_up(state)
        self.latest = self.input.last_waiting or (MIN_TS, 0)

    @property
    def nothing(self) -> Delta:
        return self._none

    @property
    def operator(self) -> RelationInput:
        return self.input

    def take_early(self, port: int, data: Data) -> None:
        """Only how far the streams are matters."""

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        self._take_in()
        out = self.input.release(mark.frontier)
        self.stats.elements_in += len(out)
        return out

    def measured(self) -> StateSize:
        return super().measured() + size_of(sum(map(len, self.incoming)), self.schema)

    def _take_in(self) -> None:
        while self.incoming:
            self.input.push(self.incoming.popleft())

    def save(self) -> State:
        self._take_in()
        return super().save()


_FEW = 1024
"""Rows of which a second copy may stay in memory, where the table has them in several pieces."""


def whole_columns(batch: Batch) -> tuple[pa.Array, ...]:
    """The columns of a batch, each in one piece. Of a few rows they are looked up once."""
    found = batch.columns
    if found is None:
        # Not by to_batches: it lets go of the interpreter, and to get it back takes long where others are at work.
        found = tuple([c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in batch.table.columns])
        if len(batch.ts) <= _FEW:
            batch.columns = found
    return found
