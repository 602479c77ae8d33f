"""The semantics as code: slow, obvious, row by row.

An ``Evaluator`` takes the elements of all inputs of a query in the total order. At each instant it computes
the whole relation that the plan describes from the contents of the windows, from scratch, and compares it by
identity with the relation at the instant before; the difference is the answer.

Stream to relation is in ``reference_windows``, relation to relation in ``reference_relations``; here are the
total order, progress, instants, and relation to stream.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf

from penstock.model.change import CHANGES, Change, Dating
from penstock.model.errors import InputError, PlanError
from penstock.plan.empty import passes_empty
from penstock.plan.nodes import (
    Node,
    Query,
    QueryStream,
    RelationScan,
    Source,
    Stream,
    Window,
    bounded_window,
    is_stream,
    reads_streams,
    sources,
    stream_scans,
    streams,
    windows,
)
from penstock.plan.order import is_ordered
from penstock.plan.window import is_bounded
from penstock.reference.relations import Snapshot, value_order
from penstock.reference.windows import BEGINNING, Answerable, Row, Sliding, TimeWindows, bounded, sliding, value_key
from penstock.scalar import Context

INFINITY = math.inf
"""The progress of a closed stream."""


@dataclass(frozen=True)
class Element:
    """A row of a stream."""

    ts: int
    row: tuple[object, ...]
    arrival: int
    priority: int = 0


@dataclass(frozen=True)
class Answer:
    """A row that enters (``+``) or leaves (``-``) the answer; of a stream, an element (``+``)."""

    ts: int
    op: OneOf["+", "-"]
    row: tuple[object, ...]
    priority: int
    cause: tuple[int, int] | None = field(default=None, compare=False)
    """Position and arrival of what arrived at its instant; None if it happens by time alone."""


class _Input:
    """What a query reads: a queue of what has come and not been taken, and how far it is."""

    def __init__(self, source: Source, reader: Evaluator) -> None:
        self.source = source
        self.reader = reader
        self.position = source.position
        self.name = source.name
        self.is_stream = is_stream(source)
        self.nested: Evaluator | None = None
        if isinstance(source, QueryStream):
            self.nested = Evaluator(source.query, reader.context, as_stream=True, within=reader)
        self.queue: deque[Element | Change] = deque()
        self._progress: float = -INFINITY
        self.reached: float = -INFINITY
        self.answers = 0

    @property
    def head(self) -> tuple[int, int]:
        """Place of the queue's first in the total order."""
        ts = self.queue[0].ts
        assert ts is not None
        return ts, self.position

    @property
    def progress(self) -> float:
        """Nothing before this instant will come. A relation waits for nobody, and nobody waits for it."""
        return self._progress if self.is_stream else self.reader.horizon

    @property
    def closed(self) -> bool:
        return self.progress == INFINITY

    def push(self, element: Element) -> None:
        self.queue.append(element)
        self.advance(element.ts)

    def advance(self, at: float) -> None:
        self._progress = max(self._progress, at)
        if at < INFINITY:
            self.reached = max(self.reached, at)

    def pull(self) -> None:
        """Take over what the query behind a ``QueryStream`` has answered and completed."""
        if self.nested is None:
            return
        for answer in self.nested.run():
            self.push(Element(answer.ts, answer.row, self.answers, answer.priority))
            self.answers += 1
        self.reached = max(self.reached, self.nested.reached)
        self._progress = max(self._progress, self.nested.completed)


class Evaluator:
    """One registered query, fed with elements, changes and progress; ``run`` gives what they make certain.

    ``as_stream``: the answers become elements of a stream, so those of one instant are in value order even
    where the query orders its delivery. ``within``: who reads them.
    """

    def __init__(
        self,
        query: Query,
        context: Context | None = None,
        *,
        as_stream: bool = False,
        within: Evaluator | None = None,
    ) -> None:
        self.query = query
        self.context = Context() if context is None else context
        # A relation is never closed: what reads nothing else, also inside sub-queries, never ends.
        self.reads_streams = reads_streams(query)
        self._within = within
        self._inputs: dict[int, _Input] = {}
        for source in sources(query):
            known = self._inputs.setdefault(source.position, _Input(source, self))
            if known.source != source:
                raise PlanError(
                    f"`{known.name}` and another source both have position {source.position}",
                    hint="each source of a query has its own position in the total order",
                )
        self._streams = [i for i in self._inputs.values() if i.is_stream]
        self._relations: dict[int, list[Row]] = {p: [] for p, i in self._inputs.items() if not i.is_stream}

        self._windows = {id(window): window for window in windows(query)}
        self._sliding: dict[int, Sliding] = {
            slot: sliding(n.spec) for slot, n in self._windows.items() if not is_bounded(n.spec)
        }
        spec = bounded_window(query)
        slots = [slot for slot in self._windows if slot not in self._sliding]
        self._bounded = None if spec is None else bounded(spec, slots)
        self._passes_empty = passes_empty(query)
        # The inputs that say when there can be no more instants of evaluation.
        deciding = {_source(self._windows[slot]).position for slot in slots}
        self._deciding = [self._inputs[p] for p in deciding] if deciding else self._streams

        self._keeps_order = is_ordered(query) and not as_stream
        self._before: dict[Hashable, Row] = {}
        self._counted: set[Hashable] = set()
        self._answers: list[Answer] = []
        self._last_window: float = -INFINITY
        # What reads no stream is evaluated at 0, whatever happens.
        self._first: int | None = None if self._streams else 0
        self._cause: tuple[int, int] | None = None
        self._dating = Dating()

    # What comes in.

    def push(self, source: str, elements: Iterable[Element]) -> None:
        """Elements of a stream, in the order (ts, arrival)."""
        elements = tuple(elements)
        for i in self._streams:
            if i.nested is not None:
                i.nested.push(source, elements)
            elif i.name == source:
                for element in elements:
                    i.push(element)

    def change(self, relation: str, changes: Iterable[Change]) -> None:
        """Changes of a relation, in the order of their instants; all changes of an instant come together."""
        if self.reads_streams and self.settled == INFINITY:
            return  # nothing more is answered
        changes = tuple(changes)
        if not self.reads_streams and self._within is None:
            changes = tuple(self._dating.dated(changes))
        for i in self._inputs.values():
            if i.nested is not None:
                i.nested.change(relation, changes)
            elif i.name == relation and not i.is_stream:
                for change in changes:
                    if change.ts is None:
                        self._apply(i, change)
                    else:
                        i.queue.append(change)

    def progress(self, source: str, at: float) -> None:
        """No more elements of this stream with a ts before ``at`` will come; ``INFINITY`` closes it."""
        if source == CHANGES:
            self._dating.earlier = int(at)
        for i in self._streams:
            if i.nested is not None:
                i.nested.progress(source, at)
            elif i.name == source:
                i.advance(at)

    # What comes out.

    def run(self) -> list[Answer]:
        """Process everything that progress allows, in the total order; the new answers."""
        self._answers = []
        for i in self._streams:
            i.pull()
        self._dating.begun = True
        while self._step():
            pass
        return self._answers

    @property
    def ended(self) -> bool:
        """No answer can come any more: END QUERY is reached, or the streams are closed and used up."""
        if self._bounded is None:
            upcoming = self._next_time()
        elif self._bounded.ended:
            return True
        else:
            upcoming = self._bounded.next_time(self._closed_at())
        used_up = all(i.closed and not i.queue for i in self._deciding)
        return self.reads_streams and used_up and upcoming is None

    @property
    def settled(self) -> float:
        """The least progress of the declared streams that are read here or inside sub-queries."""
        streams = [i for i in self._streams if i.nested is None or i.nested.reads_streams]
        return min((i.progress if i.nested is None else i.nested.settled for i in streams), default=INFINITY)

    @property
    def horizon(self) -> float:
        """No change of a relation before this instant will come.

        Of a query that reads streams they are never waited for: they come after all that it has answered. A query
        without streams inside another is as far as that one's streams; else all up to the last change has happened.
        """
        if self.reads_streams:
            return INFINITY
        if self._within is None:
            return self._dating.last + 1
        return self._within.settled + 1 if self._within.reads_streams else self._within.horizon

    @property
    def named(self) -> float:
        """The furthest instant that the streams here or inside sub-queries have named; without any, that changes of
        relations have."""
        if not self.reads_streams:
            return self._dating.last if self._within is None else self._within.named
        streams = [i for i in self._streams if i.nested is None or i.nested.reads_streams]
        return max(i.reached if i.nested is None else i.nested.named for i in streams)

    @property
    def completed(self) -> float:
        """How far the answers are: none before this instant will come."""
        return INFINITY if self.ended else min(i.progress for i in self._inputs.values())

    @property
    def reached(self) -> float:
        """The furthest instant that progress has named or a window has ended at.

        Closing names no instant: a closed stream has reached what it had before. However the calls on
        different inputs interleave, ``completed`` was never beyond this before it became infinite.
        """
        named = max((i.reached for i in self._deciding), default=self.named)
        if self._bounded is None:
            return named
        return self._last_window if self._bounded.ended else max(named, self._last_window)

    def _closed_at(self) -> float | None:
        """What the inputs of bounded windows had reached, once all of them are closed."""
        return max(i.reached for i in self._deciding) if all(i.closed for i in self._deciding) else None

    def _next_time(self) -> int | None:
        """When something happens next by time alone."""
        times = [w.next_time() for w in self._sliding.values()] + [self._first]
        if self._bounded is not None:
            times.append(self._bounded.next_time(self._closed_at()))
        return min((t for t in times if t is not None), default=None)

    def _step(self) -> bool:
        """The next instant of the total order, if progress allows it; time goes before arrivals."""
        if self._bounded is not None and self._bounded.ended:
            return False
        inputs = self._inputs.values()
        first = min((i for i in inputs if i.queue), key=lambda i: i.head, default=None)
        if isinstance(self._bounded, TimeWindows) and self._passes_empty:
            known = min(i.progress for i in inputs)
            self._bounded.pass_empty(known if first is None else min(known, first.head[0]), self._closed_at())
        now = self._next_time()
        if now is not None and (first is None or now <= first.head[0]):
            if any(i.progress < now for i in inputs):
                return False
            changes = [w.pass_time(now) for w in self._sliding.values()] + [now == self._first]
            self._first = None if now == self._first else self._first
            self._cause = None
            self._instant(now, any(changes), None)
            return True
        if first is None:
            return False
        now, position = first.head
        if not first.is_stream and now >= first.progress:
            return False  # another change of this instant may come
        for other in inputs:
            if other.position < position and not other.progress > now:
                return False
            if other.position > position and not other.progress >= now:
                return False
        self._cause = position, first.queue[0].arrival
        changed = self._arrive(first) if first.is_stream else self._change(first)
        self._instant(now, changed, first)
        return True

    def _arrive(self, source: _Input) -> bool:
        """The first element of a stream's queue enters the windows over it. True if a content changed."""
        element = source.queue.popleft()
        assert isinstance(element, Element)
        moment = (element.ts, source.position, element.arrival)
        arrived = Row((source.position, element.arrival), element.row, moment, element.priority)
        changed = False
        for slot, window in self._windows.items():
            if _source(window).position == source.position:
                for row in Snapshot(lambda _: [arrived], self.context, self._counted).rows(window.input):
                    if slot in self._sliding:
                        changed |= self._sliding[slot].take(row)
                    elif self._bounded is not None:
                        self._bounded.take(slot, row)
        return changed

    def _change(self, source: _Input) -> bool:
        """The changes of one instant at the head of a relation's queue. True if they leave a trace."""
        before = list(self._relations[source.position])
        first = source.queue[0]
        assert isinstance(first, Change)
        while source.queue:
            change = source.queue[0]
            assert isinstance(change, Change)
            if (change.ts, change.group) != (first.ts, first.group):
                break
            self._apply(source, change)
            source.queue.popleft()
        return before != self._relations[source.position]

    def _apply(self, source: _Input, change: Change) -> None:
        rows = self._relations[source.position]
        if change.sign > 0:
            moment = (BEGINNING if change.ts is None else change.ts, source.position, change.arrival)
            rows.append(Row((source.position, change.arrival), change.row, moment, 0))
            return
        oldest = next((r for r in rows if value_key(r.values) == value_key(change.row)), None)
        if oldest is None:
            raise InputError(
                f"relation `{source.name}` has no row {change.row} to take out at {change.ts}",
                hint="a `-` change names all values of a row that is there",
            )
        rows.remove(oldest)

    def _instant(self, now: int, changed: bool, arrived: _Input | None) -> None:
        """Windows and relations are as they are now. Evaluate, if this is an instant of evaluation."""
        if self._bounded is not None:
            for window in self._bounded.due(now, self._closed_at()):
                self._answer(now, "+", self._relation(window))
                self._last_window = now
        elif self.query.masters:
            if arrived is not None and arrived.is_stream and arrived.name in self.query.masters:
                self._evaluate(now)
        elif changed:
            self._evaluate(now)

    def _relation(self, window: Answerable | None = None) -> list[Row]:
        """What the plan describes now; in ``window``, if the query is answered by bounded windows."""

        def leaf(node: Node) -> list[Row]:
            if isinstance(node, RelationScan):
                return self._relations[node.position]
            if window is not None and id(node) in window.rows:
                return window.rows[id(node)]
            return self._sliding[id(node)].rows

        self.context.window = None if window is None else (window.start, window.end)
        rows = Snapshot(leaf, self.context, self._counted).rows(self.query)
        self.context.window = None
        return rows

    def _evaluate(self, now: int) -> None:
        relation = {row.id: row for row in self._relation()}
        new = [row for identity, row in relation.items() if identity not in self._before]
        gone = [row for identity, row in self._before.items() if identity not in relation]
        self._before = relation
        match self.query.output:
            case "changes":
                self._answer(now, "-", sorted(gone, key=value_order))
                self._answer(now, "+", new)
            case "istream":
                self._answer(now, "+", new)
            case "dstream":
                self._answer(now, "+", gone)
            case "rstream" | "windows":
                self._answer(now, "+", list(relation.values()))

    def _answer(self, now: int, op: OneOf["+", "-"], rows: list[Row]) -> None:
        delivered = rows if self._keeps_order else sorted(rows, key=value_order)
        self._answers += [Answer(now, op, row.values, row.priority, self._cause) for row in delivered]


def _source(window: Window) -> Stream:
    """The stream below a window, which is at most filtered and projected in between."""
    (stream,) = streams(window)
    return stream


def evaluate(
    query: Query,
    streams: Mapping[str, Sequence[Element]],
    relations: Mapping[str, Sequence[Change]] | None = None,
    context: Context | None = None,
) -> list[Answer]:
    """All answers of a query over whole inputs: every stream is closed after its last element."""
    evaluator = Evaluator(query, context)
    for name, changes in (relations or {}).items():
        evaluator.change(name, changes)
    for name, elements in streams.items():
        evaluator.push(name, elements)
    for scan in stream_scans(query):
        evaluator.progress(scan.stream, INFINITY)
    return evaluator.run()
