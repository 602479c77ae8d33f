"""The vertices between sources and answers."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from penstock.graph.early import Aside, is_prioritised, unranked
from penstock.graph.message import BEGIN, Data, Mark, Message, before, chosen, cut, joined_data
from penstock.graph.ports import Port
from penstock.graph.sources import Relation, Source
from penstock.graph.vertices import OperatorVertex
from penstock.model.delta import BEGINNING, Arrivals, Delta, Instant, Ints, Step, concat, empty, joined
from penstock.model.schema import Schema
from penstock.operators.base import Operator, StateSize, WindowOperator
from penstock.operators.distinct import GeneralSetOp
from penstock.operators.early_join import EarlyJoin
from penstock.operators.emit import Emit
from penstock.operators.fast_join import FastJoin, in_order
from penstock.operators.gate import MasterGate
from penstock.operators.join import GeneralJoin
from penstock.operators.priority import SetPriority
from penstock.operators.smart import SmartWindow
from penstock.operators.state import LoadedState, Saved, State, with_meta
from penstock.operators.stateless import FilterProject
from penstock.operators.stored import StoredWindow
from penstock.operators.window import PassingWindow
from penstock.operators.window_store import WindowStore
from penstock.plan.nodes import PairPriority
from penstock.plan.window import Now, Range, Unbounded, WindowSpec

if TYPE_CHECKING:
    from penstock.graph.composed import Tail

Instants = tuple[Ints, Ints]
_clock = time.perf_counter_ns
_FIRST = (0, 0)
_NONE: Instants = (np.empty(0, np.int64), np.empty(0, np.int64))
AHEAD = 256
"""At most this many ordinary rows of an input are in a join ahead of the other input; more wait. Each row of the other
input is compared with those of its key, also where they come too late to be its partners, and a batch that is worked on
alone costs more than two that are merged."""


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

    def let_go(self) -> None:
        super().let_go()
        self.tail = None

    @property
    def nothing(self) -> Data:
        return self._none

    @property
    def works_early(self) -> bool:
        return True

    @property
    def overtakable(self) -> bool:
        return self.elements or self.inputs[0].source.overtakable

    def work_early(self, port: int, data: Data) -> Data:
        return self.work([data], BEGIN)

    def work_foretold(self, port: int, data: Data) -> Data | None:
        return self.work([data], BEGIN) if self.foretells else None

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        data = inputs[0]
        if isinstance(data, Arrivals):
            return self.chain.process_arrivals(data)
        return self.chain.process([data], Step(mark.frontier))


@runtime_checkable
class HoldsRows(Protocol):
    """An operator that holds rows of its inputs."""

    def rows(self, side: int) -> int:
        """How many of an input."""


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

    @property
    def works_early(self) -> bool:
        return isinstance(self.window, PassingWindow)

    @property
    def overtakable(self) -> bool:
        return isinstance(self.window, PassingWindow)

    def work_early(self, port: int, data: Data) -> Data:
        return self.work([data], BEGIN)

    @property
    def by_time(self) -> bool:
        """Whether it holds rows that enter when they come, and nothing else happens then."""
        spec = self.spec
        ends_by_time = isinstance(spec, Now | Unbounded) or (isinstance(spec, Range) and spec.slide is None)
        return ends_by_time and not self.works_early

    def take_early(self, port: int, data: Data) -> None:
        super().take_early(port, data)
        if self.foretells and self.state != "stopped":
            ones, ts, sub = np.ones(len(data.ts), np.int8), data.ts, data.sub
            self.send_early(Delta(self.schema, data.columns, ts, sub, ones, ts, sub, data.priority))

    def saved(self) -> int:
        """A window whose rows say when they leave holds none of them: the join above it does, for both. Reckoned with
        8 bytes for each value and for the instant.
        """
        if not isinstance(self.window, PassingWindow) or not self.window.tells_ends or not self.stats.elements_out:
            return 0
        held = [e.target.stage.rows(e.port) for e in self.outputs
                if isinstance(e.target, Staged) and isinstance(e.target.stage, HoldsRows)]  # fmt: skip
        return max(held, default=0) * 8 * (len(self.schema) + 2)

    def use(self, store: WindowStore) -> None:
        """Hold rows where other windows over the same input do; there are none yet."""
        if isinstance(self.window, StoredWindow):
            self.window.use(store)

    def release(self) -> None:
        """Nobody needs the rows any more."""
        if isinstance(self.window, StoredWindow):
            self.window.release()

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        (arrivals,) = inputs
        assert isinstance(arrivals, Arrivals)
        return self.window.process(arrivals, Step(mark.frontier))


class SmartWindowed(Windowed):
    """Stream to relation, as it is whenever a master element arrives. Inputs: the stream, then the master streams."""

    def __init__(
        self, label: str, window: SmartWindow, spec: WindowSpec, schema: Schema, streams: Sequence[Schema]
    ) -> None:
        super().__init__(label, window, spec, schema)
        self.smart = window
        self.ports = [Port(s, elements=True) for s in streams]

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        arrivals, *masters = inputs
        assert isinstance(arrivals, Arrivals)
        return self.smart.process(arrivals, Step(mark.frontier, arrived(masters)))

    def is_like(self, other: SmartWindowed) -> bool:
        """Whether both give the same from now on; they are equally far."""
        if self.aside is not None or other.aside is not None or not self.smart.is_like(other.smart):
            return False
        return all(p.waits_like(q) for p, q in zip(self.ports or (), other.ports or (), strict=True))


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
        return self.gate.process([delta], Step(mark.frontier, arrived(masters)))


class Staged(OperatorVertex):
    """A relational operator over changes. ``inner``: it is an inner join.

    A join of rows that say when they leave does not wait for the input that is behind: it gives the pairs of
    prioritised rows at once, and where ``eager`` those of all rows, as long as there are not many.
    """

    def __init__(
        self, kind: str, name: str, label: str, stage: Operator, inputs: Sequence[Port], *, inner: bool = False
    ) -> None:
        super().__init__(kind, label, ())
        self.name = name
        self.stage, self.inner = stage, inner
        self.ports = list(inputs) if len(inputs) > 1 else None
        self.early: EarlyJoin | None = None
        """Of a join: rows that came before their place."""
        self._prioritises = isinstance(stage, SetPriority)
        node = getattr(stage, "node", None)
        self.sets_priority = self._prioritises or isinstance(getattr(node, "priority", None), PairPriority)
        self.joins = isinstance(stage, FastJoin) and stage.ends
        """Whether it joins rows that say when they leave."""
        self.eager = False
        """Whether some query takes the results of a join as they come, in any order."""
        self._unites = isinstance(stage, GeneralSetOp) and stage.passes

    @property
    def nothing(self) -> Delta:
        return empty(self.schema)

    @property
    def operator(self) -> Operator:
        return self.stage

    @property
    def works_early(self) -> bool:
        return self.joins or self.overtakable

    @property
    def overtakable(self) -> bool:
        return self.joins or (self.passes and all(e.source.overtakable for e in self.inputs))

    @property
    def looks_up(self) -> int | None:
        """Of a join of a stream with a stored relation: the input that the stream's rows come in at."""
        if not isinstance(self.stage, GeneralJoin):
            return None
        left, right = (_relation(edge.source) is not None for edge in self.inputs)
        port = 1 if left else 0
        return port if left != right and self.stage.answers_alone(port) else None

    @cached_property
    def meets(self) -> Sequence[int]:
        """Of an inner join: the inputs whose rows it joins with what is made of other streams alone."""
        if self.joins or not self.inner or not isinstance(self.stage, FastJoin | GeneralJoin):
            return ()
        read = [_read(edge.source) for edge in self.inputs]
        alone = [not any(isinstance(vertex, Relation) for vertex in some) for some in read]
        return [port for port in (0, 1) if alone[1 - port] and not read[0] & read[1]]

    @property
    def answers_foretold(self) -> bool:
        """Whether it gives results before their place that come again at it."""
        return self.looks_up is not None or bool(self.meets)

    @property
    def looks_across(self) -> bool:
        return self.foretells and bool(self.meets)

    def work_foretold(self, port: int, data: Data) -> Data | None:
        if not self.foretells:
            return None
        assert isinstance(data, Delta)
        if port == self.looks_up:
            return self._looked_up(port, data)
        return self._met(port, in_order(data)) if port in self.meets else None

    def take_early(self, port: int, data: Data) -> None:
        super().take_early(port, data)
        if self.foretells and self.state != "stopped" and not self.inputs[port].source.foretells:
            self._take_foretold(port, data)

    def _looked_up(self, port: int, rows: Delta) -> Delta | None:
        """The pairs of rows of a stream with the relation at their instants, if it has not changed since those of the
        last rows in order; and it will not: changes come after what the streams have reached, as long as one of them is
        open."""
        assert isinstance(self.stage, GeneralJoin)
        assert self.ports is not None
        relation = _relation(self.inputs[1 - port].source)
        if relation is None or self.ports[1 - port].waiting or relation.latest >= self.mark.frontier:
            return None
        certain = np.flatnonzero(rows.ts <= relation.certain)
        return self.stage.foretold(port, rows.take(certain)) if len(certain) else None

    def _met(self, port: int, rows: Delta) -> Delta | None:
        """The pairs of rows with those that the other input has at their instants, as far as these are known."""
        assert isinstance(self.stage, FastJoin | GeneralJoin)
        assert self.ports is not None
        other = self.ports[1 - port]
        known = cut(rows, 0, before(rows, other.mark.frontier))
        assert isinstance(known, Delta)
        if not len(known) or sum(map(len, other.waiting)) > AHEAD:
            return None
        found: list[Delta] = []
        # What waits is made of changes that are not in the join yet: those before a row have been made at its instant.
        waits = joined_data(other.waiting) if other.waiting else None
        assert waits is None or isinstance(waits, Delta)
        for start, stop, due in _by_what_waits(known, waits):
            some = known.slice(start, stop)
            pairs = self.stage.foretold(port, some)
            if waits is not None and due:
                pairs = self._changed(port, some, pairs, waits.slice(0, due))
            found.append(pairs)
        return concat(found)

    def _changed(self, port: int, rows: Delta, pairs: Delta, changes: Delta) -> Delta:
        """The pairs of rows after changes of the other input."""
        assert isinstance(self.stage, FastJoin | GeneralJoin)
        assert self.errors is not None
        parts = [pairs]
        for sign in (1, -1):
            beside = GeneralJoin(self.stage.node, self.stage.functions, self.errors)
            some = changes.take(np.flatnonzero(changes.sign == sign))
            beside.known(1 - port, replace(some, sign=np.ones(len(some), np.int8)))
            parts.append(beside.foretold(port, rows))
        came, went = concat(parts[:2]), parts[2]
        gone = Counter(map(repr, _rows(went)))
        stay = []
        for i, row in enumerate(map(repr, _rows(came))):
            if gone[row]:
                gone[row] -= 1
            else:
                stay.append(i)
        return in_order(came.take(np.array(stay, np.int64)))

    @property
    def passes(self) -> bool:
        """Whether each row that enters is a result by itself."""
        return self._unites or self._prioritises

    def take(self, port: int, message: Message) -> None:
        if not self.joins or not len(message.data.ts):
            super().take(port, message)
            return
        message, ahead, is_in_order = self._parted(port, message)
        if ahead is not None and not is_in_order:
            self.take_early(port, ahead)
        super().take(port, message)
        if ahead is not None and is_in_order:
            self._enter_ahead(port, ahead)

    def _parted(self, port: int, message: Message) -> tuple[Message, Delta | None, bool]:
        """A message without the rows that need not wait for the other input, these rows, and whether they are all that
        follow the others of their input."""
        assert self.ports is not None
        assert isinstance(self.stage, FastJoin)
        own, other = self.ports[port], self.ports[1 - port]
        data, mark = message.data, message.mark
        assert isinstance(data, Delta)
        count, first = len(data.ts), before(data, other.mark.frontier)
        if first == count:
            return message, None, False
        ahead = cut(data, first, count)
        assert isinstance(ahead, Delta)
        room = AHEAD - self.stage.ahead(port, other.mark.frontier)
        if self.eager and not own.waiting and len(ahead) <= room:
            return Message(cut(data, 0, first), mark), ahead, True
        if not is_prioritised(ahead):
            return message, None, False
        assert data.priority is not None
        overtakes = data.priority > 0
        overtakes[:first] = False
        rest = chosen(data, np.flatnonzero(~overtakes))
        return Message(rest, mark), data.take(np.flatnonzero(overtakes)), False

    def _enter_ahead(self, port: int, rows: Delta) -> None:
        """Work on rows of an input that the other one has not reached."""
        if self.state == "stopped":
            return
        assert isinstance(self.stage, FastJoin)
        assert self.ports is not None
        self.touched = True
        began = _clock()
        try:
            out = self.stage.enter_ahead(port, rows, self.ports[1 - port].mark.frontier[0])
            if self.early is not None:
                met = self.early.pass_by(port, rows, hold=not self.eager)
                out = in_order(concat([out, met])) if len(out) and len(met) else out if len(out) else met
        except Exception as error:
            self.failed(error, [rows])
            return
        self.stats.busy += _clock() - began
        if len(out.ts):
            self.send_early(out)

    def work_early(self, port: int, data: Data) -> Data:
        assert isinstance(data, Delta)
        if self._prioritises:
            return self._prioritised(data)
        if not isinstance(self.stage, FastJoin):
            return data.with_columns(self.schema, data.columns)
        if self.early is None:
            self.early = EarlyJoin(self.stage)
        return self.early.arrive(port, data, hold=not self.eager)

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        out = self.stage.process(inputs, Step(mark.frontier))  # type: ignore[arg-type]
        if self.joins and len(out.ts) and (due := before(out, mark.frontier)) < len(out.ts):
            self.send_early(out.slice(due, len(out.ts)))
            out = out.slice(0, due)
        if self.early is not None:
            left, right = inputs
            assert isinstance(left, Delta)
            assert isinstance(right, Delta)
            out, ahead = self.early.meet(out, left, right, mark.frontier, hold=not self.eager)
            if len(ahead):
                self.send_early(ahead)
            if not self.early:
                self.early = None
        return out

    def _prioritised(self, data: Delta) -> Delta:
        """Rows that have no priority any more have to wait for their place."""
        assert isinstance(self.stage, SetPriority)
        ranked = self.stage.ranks(data, Step(BEGINNING)) > 0
        if not ranked.all():
            if self.aside is None:
                self.aside = Aside()
            self.aside.add(0, data.take(np.flatnonzero(~ranked)))
            data = data.take(np.flatnonzero(ranked))
        return self.stage.process([data], Step(BEGINNING))

    def measured(self) -> StateSize:
        early = self.early  # may be gone the next moment
        return super().measured() if early is None else super().measured() + early.size()

    def saved_early(self) -> State:
        state = super().saved_early()
        return state if self.early is None else {**state, "early": self.early.save()}

    def load_early(self, state: LoadedState) -> None:
        super().load_early(state)
        self.early = None
        if "early" in state:
            assert isinstance(self.stage, FastJoin)
            assert self.ports is not None
            left, right = self.ports
            self.early = EarlyJoin(self.stage)
            self.early.load(state["early"], (left.schema, right.schema))


class Emitting(OperatorVertex):
    """Relation to stream. Inputs: the changes; then what tells the instants of evaluation where they matter: the
    master streams, or the leaves of the plan.
    """

    def __init__(
        self, label: str, emit: Emit, changes: Port, instants: Sequence[Port], *, masters: bool, streams: bool
    ) -> None:
        super().__init__("emit", label, emit.schema)
        self.name = "emit"
        self.emit = emit
        self.ports = [changes, *instants] if instants else None
        self._masters, self._streams = masters, streams
        self._begun = False
        self.as_it_is = self.ports is None and not masters and emit.passes
        """Whether what enters is the answer."""
        self._none = empty(emit.schema)
        self._given: frozenset[Instant] = frozenset()
        """The instants whose answers have been given before their place. Bounded by the prioritised rows that wait for
        it below."""

    @property
    def answers_foretold(self) -> bool:
        """Whether the rows of an element are its answer, whatever was there before."""
        return not self._masters and self.emit.passes and self.emit.output == "istream"

    def work_foretold(self, port: int, data: Data) -> Data | None:
        if port or not self.answers_foretold or (self.ports is not None and self.emit.needs_instants):
            return None  # the rows of the beginning, if there are any, are not known yet
        instants = list(zip(data.ts.tolist(), data.sub.tolist(), strict=True))
        late = {instants[i] for i in unranked(data)}  # what has no priority waits for its place, and all with it
        self._given |= frozenset(instants) - late
        return self.work_early(port, chosen(data, np.flatnonzero([at not in late for at in instants])))

    def saved_early(self) -> State:
        state = super().saved_early()
        if self._given:
            state = {**state, "given": Saved({"instants": [[*instant] for instant in sorted(self._given)]})}
        return state

    def load_early(self, state: LoadedState) -> None:
        super().load_early(state)
        given = state["given"].meta["instants"] if "given" in state else []
        self._given = frozenset((ts, sub) for ts, sub in given)

    @property
    def nothing(self) -> Delta:
        return self._none

    @property
    def operator(self) -> Emit:
        return self.emit

    @property
    def works_early(self) -> bool:
        return self.as_it_is

    @property
    def overtakable(self) -> bool:
        source = self.inputs[0].source
        return (self.as_it_is and source.overtakable) or (source.foretells and self.answers_foretold)

    def work_early(self, port: int, data: Data) -> Data:
        assert isinstance(data, Delta)
        return replace(data, schema=self.schema, end=None)

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        delta = inputs[0]
        assert isinstance(delta, Delta)
        instants = _NONE
        if self._masters:
            instants = arrived(inputs[1:])
        elif self.emit.needs_instants:
            told = inputs[1:] if self.ports is not None else inputs
            parts = [(d.ts, d.sub) for d in told]
            if not self._streams and not self._begun and mark.frontier > _FIRST:
                # What reads no stream is evaluated at 0, whatever happens.
                parts.append((np.zeros(1, np.int64), np.zeros(1, np.int64)))
                self._begun = True
            instants = sorted_instants(parts)
        out = self.emit.process([delta], Step(mark.frontier), instants)
        return self._not_given(out, mark) if self._given else out

    def _not_given(self, out: Delta, mark: Mark) -> Delta:
        """Answers without those that have been given before their place."""
        given = self._given
        self._given = frozenset(instant for instant in given if instant >= mark.frontier)
        new = [at not in given for at in zip(out.ts.tolist(), out.sub.tolist(), strict=True)]
        return out if all(new) else out.take(np.flatnonzero(new))

    def save(self) -> State:
        state = super().save()
        return {**state, "operator": with_meta(state["operator"], stepped=self._begun)}

    def load(self, state: LoadedState) -> None:
        super().load(state)
        self._begun = state["operator"].meta["stepped"]

    def catch_up(self, state: LoadedState) -> None:
        super().catch_up(state)
        self._begun = state["operator"].meta["stepped"]


def _read(vertex: object) -> set[OperatorVertex]:
    """The streams and relations that the rows of a vertex are made of."""
    if isinstance(vertex, Source | Relation):
        return {vertex}
    assert isinstance(vertex, OperatorVertex)
    return {found for edge in vertex.inputs for found in _read(edge.source)}


def _rows(delta: Delta) -> Iterator[tuple[object, ...]]:
    return zip(delta.ts.tolist(), delta.sub.tolist(), *(c.to_pylist() for c in delta.columns), strict=True)


def _by_what_waits(rows: Delta, waits: Delta | None) -> Iterator[tuple[int, int, int]]:
    """Rows, from place to place, that come after the same number of changes."""
    if waits is None:
        yield 0, len(rows), 0
        return
    due = [before(waits, instant) for instant in zip(rows.ts.tolist(), rows.sub.tolist(), strict=True)]
    start = 0
    for stop in range(1, len(due) + 1):
        if stop == len(due) or due[stop] != due[start]:
            yield start, stop, due[start]
            start = stop


def _relation(vertex: object) -> Relation | None:
    """The stored relation whose rows a vertex gives, filtered perhaps."""
    while isinstance(vertex, Stateless):
        vertex = vertex.inputs[0].source
    return vertex if isinstance(vertex, Relation) else None


def arrived(masters: Sequence[Data]) -> Instants:
    """The instants of master elements."""
    return sorted_instants([(m.ts, m.sub) for m in masters], strictly_ordered=True)


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
