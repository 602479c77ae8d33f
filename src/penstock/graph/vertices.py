"""What every operator of the graph has in common: it takes messages, works when its inputs allow it, and sends on.

    Source ─ Stateless ─ Windowed ─ (Gated) ─ Staged … ─ Emitting ─ Entry (a stream again) or Sink (a query)
    Relation ┘                                Bounded ┘

What a vertex remembers is what its operator remembers and, with several inputs, what waits in its ports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from penstock.graph.early import Aside
from penstock.graph.message import BEGIN, Data, Mark, Message, least
from penstock.graph.ports import Port
from penstock.graph.statistics import Statistics
from penstock.graph.vertex import Edge, State
from penstock.model.delta import NEVER
from penstock.model.errors import CheckpointError
from penstock.model.schema import Schema
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.state import LoadedState, is_stateful
from penstock.operators.state import State as SavedState
from penstock.operators.window_store import WindowStore
from penstock.scalar import Context

_clock = time.perf_counter_ns
_TRIES = 4


@runtime_checkable
class Sized(Protocol):
    """Something that remembers rows."""

    def size(self) -> StateSize:
        """How much."""


class Watcher(Protocol):
    """Who hears of what goes wrong in a vertex."""

    def failed(self, vertex: OperatorVertex, error: Exception, inputs: Sequence[Data]) -> None:
        """An operator raised while working on these inputs."""


class Together(Protocol):
    """Successors of one vertex that are worked on together."""

    def take(self, message: Message) -> None:
        """Let each work on a message, and send on what follows."""


class OperatorVertex:
    """A vertex around an operator. ``ports`` are there only where there are several inputs.

    ``stateless``: it gives the same for the same rows whatever came before, so anybody may be attached to it at any
    time. ``start``: how much each source below had given when it was made; two vertices of one key and one start
    have the same state.
    """

    stateless = False
    sets_priority = False
    """Whether its rows have priorities that those that came in did not have."""
    elements = False
    """Whether it sends elements of a stream, not changes of a relation."""
    foretells = False
    """Whether what it sends early comes again at its place: who can answer from it does, all others let it go."""

    def __init__(self, kind: str, label: str, schema: Schema) -> None:
        self.id = -1
        self.kind, self.label, self.schema = kind, label, schema
        self.name = kind
        self.key: Hashable = None
        self.digest = ""
        """What ``graph.saving`` knows it by: made once, since it is long in the making."""
        self.start: Mapping[str, int] = {}
        self.priority = 5
        self.state: State = "ready"
        self.stats = Statistics()
        self.inputs: list[Edge] = []
        self.outputs: list[Edge] = []
        self.users: set[str] = set()
        self.errors: Context | None = None
        self.ports: list[Port] | None = None
        self.mark: Mark = BEGIN
        """Up to where this has worked."""
        self.sent: Mark = BEGIN
        """How far successors have been told to be."""
        self.watcher: Watcher | None = None
        self.observers: list[Callable[[OperatorVertex], object]] = []
        """Called once when nothing more will come from here, by whoever runs this; then forgotten."""
        self._size = NOTHING
        self.touched = False
        """Whether it has had or made any rows yet."""
        self.quiet = False
        """Nobody below needs to hear how far this is unless there are rows."""
        self.direct: list[tuple[Callable[[int, Message], None], int]] = []
        """Successors that are called: nothing stands in between."""
        self.alone: list[Edge] = self.outputs
        """Those to which an edge leads that has something to say."""
        self.together: Together | None = None
        """Those that work together."""
        self.aside: Aside | None = None
        """Rows that came before their place and must wait for it."""
        self.store: WindowStore | None = None
        """Where windows over this hold their rows."""

    def let_go(self) -> None:
        """Nobody uses this any more: know nobody. So what it remembers is freed at once, not with the next cycles that
        Python collects, which may be many queries later."""
        self.inputs, self.direct, self.alone, self.together = [], [], [], None

    # -- work ---------------------------------------------------------------------------------------

    def take(self, port: int, message: Message) -> None:
        if self.state == "stopped":
            return
        if self.aside is not None:
            message = self.whole(port, message)
        stats = self.stats
        data, mark = message.data, message.mark
        count = len(data.ts)
        inputs: Sequence[Data]
        stats.began = began = _clock()
        stats.calls += 1
        if count:
            self.touched = True
            if began > stats.due:
                stats.fade(began)
            stats.elements_in += count
            stats.until = began
        if self.ports is None:
            inputs = (data,)
        else:
            self.ports[port].add(message)
            mark = least([p.mark for p in self.ports])
            if mark.frontier <= self.mark.frontier and not (count and mark.frontier == NEVER):
                return
            inputs = [p.release(mark.frontier) for p in self.ports]
        try:
            out = self.work(inputs, mark)
        except Exception as error:
            self.failed(error, inputs)
            return
        stats.busy += _clock() - began
        self.send(out, mark)

    def take_early(self, port: int, data: Data) -> None:
        """Work on prioritised rows before their place in the order, if that makes no difference, else keep them until
        their place is reached."""
        if self.state == "stopped":
            return
        if self.inputs[port].source.foretells:
            self._take_foretold(port, data)
            return
        self.touched = True
        if not self.works_early:
            if self.aside is None:
                self.aside = Aside()
            self.aside.add(port, data)
            return
        stats = self.stats
        stats.began = began = _clock()
        stats.calls += 1
        if began > stats.due:
            stats.fade(began)
        stats.elements_in += len(data.ts)
        stats.until = began
        try:
            out = self.work_early(port, data)
        except Exception as error:
            self.failed(error, [data])
            return
        stats.busy += _clock() - began
        if len(out.ts):
            self.send_early(out)

    def _take_foretold(self, port: int, data: Data) -> None:
        """Work on rows that come again at their place; failures count then."""
        errors = self.errors
        before = None if errors is None else (errors.failures, errors.last_failure)
        try:
            out = self.work_foretold(port, data)
        except Exception as error:
            self.failed(error, [data])
            return
        if errors is not None and before is not None:
            errors.failures, errors.last_failure = before
        if out is not None and len(out.ts):
            self.send_early(out)

    def work_foretold(self, port: int, data: Data) -> Data | None:
        """What follows from rows that come again at their place; None: that is known then."""
        return None

    @property
    def works_early(self) -> bool:
        """Whether it makes no difference to work on rows before their place: each stands for itself."""
        return False

    @property
    def looks_across(self) -> bool:
        """Whether it answers rows before their place from what has come in at another input."""
        return False

    @property
    def overtakable(self) -> bool:
        """Whether what it sends may be handed on before its place: rows only enter, and none ever leaves."""
        return False

    def work_early(self, port: int, data: Data) -> Data:
        """What follows from rows before their place."""
        raise NotImplementedError

    def send_early(self, out: Data) -> None:
        """Hand on results that are before their place."""
        self.touched = True
        self.stats.elements_out += len(out.ts)
        for edge in self.outputs:
            edge.send_early(out)

    def whole(self, port: int, message: Message) -> Message:
        """A message with those of the rows that came early whose place is in it."""
        assert self.aside is not None
        message = self.aside.restored(port, message)
        if not self.aside:
            self.aside = None
        return message

    def failed(self, error: Exception, inputs: Sequence[Data]) -> None:
        """The operator raised: it does not work any more."""
        self.state = "stopped"
        assert self.watcher is not None, "a vertex works in a graph"
        self.watcher.failed(self, error, inputs)

    def work(self, inputs: Sequence[Data], mark: Mark) -> Data:
        """What follows from everything before the mark's frontier; may be called with no rows at all."""
        raise NotImplementedError

    def send(self, out: Data, mark: Mark) -> None:
        """Hand results over to all successors."""
        self.mark = self.sent = mark
        count = len(out.ts)
        if count:
            self.touched = True
            self.stats.elements_out += count
        if count or not self.quiet or mark.frontier == NEVER:
            message = Message(out, mark)
            for take, port in self.direct:
                take(port, message)
            for edge in self.alone:
                edge.send(message)
            if self.together is not None:
                self.together.take(message)
        if mark.frontier == NEVER and self.observers:
            observers, self.observers = self.observers, []
            for observer in observers:
                observer(self)

    def flush(self) -> None:
        """Tell successors how far this is, also those that need not know; they do what they can with that."""
        message = Message(self.nothing, self.sent)
        for edge in self.outputs:
            edge.send(message)

    @property
    def nothing(self) -> Data:
        """A result without rows."""
        raise NotImplementedError

    # -- state --------------------------------------------------------------------------------------

    @property
    def operator(self) -> object:
        """What remembers something, if anything does."""
        return None

    def size(self) -> StateSize:
        """What is remembered. Anybody may ask; while the vertex is at work, it may be what it was a moment ago."""
        for _ in range(_TRIES):
            try:
                self._size = self.measured()
                break
            except RuntimeError:  # it changed while it was looked at
                continue
        return self._size

    def measured(self) -> StateSize:
        """What is remembered, looked up."""
        operator = self.operator
        total: StateSize = operator.size() if isinstance(operator, Sized) else NOTHING
        for port in self.ports or ():
            total += port.size()
        aside = self.aside  # may be gone the next moment
        return total if aside is None else total + aside.size()

    def saved(self) -> int:
        """Bytes that are not held twice because this works as one with its neighbour."""
        return 0

    def save(self) -> SavedState:
        """What is remembered, by part."""
        state: SavedState = {}
        operator = self.operator
        if is_stateful(operator):
            state["operator"] = operator.save()
        for i, port in enumerate(self.ports or ()):
            state[f"port {i}"] = port.save()
        return state | self.saved_early()

    def load(self, state: LoadedState) -> None:
        operator = self.operator
        if is_stateful(operator):
            if "operator" not in state:
                raise CheckpointError(
                    f"the saved state has nothing of {self.kind} `{self.label}`: another version of Penstock saved it",
                    hint="start the query anew",
                )
            operator.load(state["operator"])
        for i, port in enumerate(self.ports or ()):
            port.load(state[f"port {i}"])
        self.load_early(state)
        self._marked()

    def catch_up(self, state: LoadedState) -> None:
        operator = self.operator
        if is_stateful(operator):
            operator.catch_up(state["operator"])
        for i, port in enumerate(self.ports or ()):
            port.catch_up(state[f"port {i}"])
        self.load_early(state)
        self._marked()

    def saved_early(self) -> SavedState:
        """The rows that came before their place; nothing is said where there are none."""
        return {} if self.aside is None else self.aside.save()

    def load_early(self, state: LoadedState) -> None:
        """Take over what ``saved_early`` gave. They are few, so all are read, also where the rest catches up."""
        sources = {e.port: e.source for e in self.inputs}
        schemas = {port: s.schema for port, s in sources.items() if isinstance(s, OperatorVertex)}
        self.aside = Aside.loaded(schemas, state)

    def _marked(self) -> None:
        if self.ports is not None:
            self.mark = self.sent = least([p.mark for p in self.ports])

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}: {self.label}>"
