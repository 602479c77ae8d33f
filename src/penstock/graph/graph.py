"""All queries of a database as one graph: adding, removing, feeding, and what becomes of failures.

The graph knows nothing of threads. Whoever changes it (``add``, ``remove``) sees to it that no vertex works meanwhile.

Bounded by the registered queries: a vertex goes with the last query that uses it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.graph.beginning import Beginning
from penstock.graph.compile import Compiler, Functions
from penstock.graph.composed import Filters, tail_of
from penstock.graph.converge import Twins
from penstock.graph.faults import located
from penstock.graph.masters import SMART
from penstock.graph.message import Data
from penstock.graph.operators import Emitting, Staged, Stateless, Windowed
from penstock.graph.sink import Sink
from penstock.graph.sources import Place, Relation, Source, Ticks, whole_columns
from penstock.graph.vertex import Edge
from penstock.graph.vertices import OperatorVertex
from penstock.model.batch import Batch
from penstock.model.change import CHANGES, Change
from penstock.plan.nodes import Query

_T = TypeVar("_T")
_GROUP = 4
"""So many filters over one input are worth an index."""


@dataclass
class Past:
    """What a query is given before the first element of its own: relations as they are, the elements that streams have
    retained, and how far they are. ``early``: prioritised elements that wait for slack; ``overtakes``: they need
    not."""

    changes: dict[str, Sequence[Change]] = field(default_factory=dict)
    rows: dict[str, Sequence[Batch]] = field(default_factory=dict)
    progress: dict[str, float] = field(default_factory=dict)
    early: dict[str, Batch] = field(default_factory=dict)
    overtakes: bool = True


@dataclass
class Member:
    """A query in the graph: its vertices, inputs first, and how many failures each had counted before it came.

    ``strict``, ``masters``: see ``Graph.add``.
    """

    sink: Sink
    vertices: tuple[OperatorVertex, ...]
    before: dict[int, int]
    strict: bool
    masters: str

    def is_current(self, graph: Graph) -> bool:
        """Whether its sources have been given nothing since it came."""
        return self.sink.start == graph.given_below(self.sink)


class Graph:
    """The vertices of all queries. ``told`` is called when a query has answers, has ended or has failed.

    ``mirrors``: a join may serve as one that has the sides the other way round.
    """

    def __init__(self, told: Callable[[Sink], object] | None = None, *, mirrors: bool = True) -> None:
        self.vertices: dict[int, OperatorVertex] = {}
        self.members: dict[str, Member] = {}
        self.buffered = False
        """Whether messages may be under way between vertices."""
        self.told = told
        self.mirrors = mirrors
        self._index: dict[Hashable, OperatorVertex] = {}
        self._shares = True
        """Whether the query that is being added may use vertices that are there."""
        self._sources: dict[str, list[Source]] = {}
        self._relations: dict[str, list[Relation]] = {}
        self._ticks: dict[str, list[Ticks]] = {}
        self.versions: dict[str, int] = {}
        self.ahead: dict[str, int] = {}
        """Of each relation, how many changes were still to come for the query that was added last."""
        self.twins = Twins(self)
        self.next = 0
        self._new: dict[int, OperatorVertex] = {}

    # -- queries ------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        query: Query,
        functions: Functions,
        *,
        strict: bool = False,
        priority: int = 5,
        past: Past | None = None,
        masters: str = SMART,
        apart: bool = False,
        shares: bool = True,
    ) -> Sink:
        """Merge a query in, and give its own vertices what was there before; ``wire`` is to be called afterwards.

        Without a past the query is to be given it as if it were news, before the first ``flush``. ``masters``:
        how a query with masters is run, one of ``MASTERS``. ``apart``: it is not given what others that come now are
        given, so they cannot share what remembers something. ``shares``: it may use vertices that are there; else
        they converge later.
        """
        assert name not in self.members, "names are unique in a database"
        self._new, self._shares = {}, shares
        for relation, changes in ({} if past is None else past.changes).items():
            ahead = sum(1 for change in changes if change.ts is not None)
            if self.ahead.setdefault(relation, ahead) != ahead:
                # What was to come for older queries has happened.
                self.ahead[relation] = ahead
                self.versions[relation] = self.versions.get(relation, 0) + 1
        compiler = Compiler(self, functions, strict, mirrors=self.mirrors, masters=masters)
        try:
            answers = compiler.answers(query)
            sink = Sink(name, query.schema, self.told, ordered=query.ordered)
            self.add_vertex(sink, [answers])
        except BaseException:
            for vertex in reversed(list(self._new.values())):
                self._drop(vertex)
            raise
        used = (*compiler.used.values(), sink)
        before = {v.id: 0 if v.errors is None or v.id in self._new else v.errors.failures for v in used}
        self.members[name] = Member(sink, used, before, strict, masters)
        for vertex in used:
            vertex.users.add(name)
        sink.priority = priority
        for vertex in compiler.used.values():
            self.prioritise(vertex)
        if past is not None:
            Beginning(self, self.members[name], self._new, past).begin()
        for vertex in self._new.values() if apart else ():
            vertex.touched = True
        self._new, self._shares = {}, True
        return sink

    def remove(self, name: str) -> list[OperatorVertex]:
        """Take a query out, with the vertices that nobody else needs; gives those. ``wire`` may be called later: nobody
        works on what is gone."""
        member = self.members.pop(name)
        gone: list[OperatorVertex] = []
        for vertex in reversed(member.vertices):
            vertex.users.discard(name)
            if not vertex.users:
                self.forget(vertex)
                gone.append(vertex)
            else:
                self.prioritise(vertex)
        return gone

    def needed(self, name: str) -> Sequence[OperatorVertex]:
        """The vertices that a query needs, inputs first; none if it is not there any more."""
        member = self.members.get(name)
        return () if member is None else member.vertices

    def failures(self, name: str) -> int:
        """How many values of a query became NULL because computing them failed."""
        member = self.members[name]
        return sum(v.errors.failures - member.before[v.id] for v in member.vertices if v.errors is not None)

    def last_failure(self, name: str) -> str | None:
        """What one of the last of them was."""
        member = self.members[name]
        for vertex in reversed(member.vertices):
            if vertex.errors is not None and vertex.errors.failures > member.before[vertex.id]:
                return vertex.errors.last_failure
        return None

    # -- feeding ------------------------------------------------------------------------------------

    def push(self, stream: str, batch: Batch) -> None:
        """Elements of a declared stream, in order; they go on at the next ``flush``."""
        for source in self._sources.get(stream, ()):
            source.push(whole_columns(batch), batch.ts, batch.arrival, batch.priority)

    def sources(self, stream: str) -> Sequence[Source]:
        """Where elements of a declared stream come in."""
        return self._sources.get(stream, ())

    def places(self, stream: str) -> list[Place]:
        """Where the sources of a stream are."""
        return [source.place() for source in self._sources.get(stream, ())]

    def push_early(self, stream: str, batch: Batch, reached: float = -math.inf) -> None:
        """Prioritised elements of a declared stream that are before their place; they go on at once. ``reached``: see
        ``Source.push_early``."""
        for source in self._sources.get(stream, ()):
            source.push_early(batch, reached)

    def reach(self, stream: str, batch: Batch) -> None:
        """The places of elements that were given early have been reached."""
        for source in self._sources.get(stream, ()):
            source.reach([batch])
            if len(batch):
                source.advance(int(batch.ts[-1]))

    def progress(self, stream: str, at: float) -> None:
        """No more elements of a declared stream before ``at``; ``CHANGES``: so many changes have no instant and were
        there before the queries."""
        if stream == CHANGES:
            for ticks in self._beginning():
                ticks.dating.earlier = int(at)
        for source in self._sources.get(stream, ()):
            source.advance(at)

    def begin(self) -> None:
        """All that was there before queries over relations alone has been given; what follows is news."""
        for ticks in self._beginning():
            ticks.dating.begun = True

    def _beginning(self) -> list[Ticks]:
        return [v for v in self.vertices.values() if isinstance(v, Ticks) and not v.dating.begun]

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes of a relation, in order."""
        self.versions[relation] = self.versions.get(relation, 0) + 1
        dated = {ticks.id: ticks.dating.dated(changes) for ticks in self._ticks.get(relation, ())}
        for vertex in self._relations.get(relation, ()):
            below = self.below(vertex)
            ticks = next((v for v in below if isinstance(v, Ticks)), None)
            if ticks is not None:
                vertex.hand_over(dated[ticks.id])
            elif any(isinstance(v, Source) and v.progress < math.inf for v in below):
                vertex.hand_over(changes)  # else all streams are closed, and nothing more is answered

    def difference(self, relation: str, rows: Sequence[tuple[object, ...]]) -> list[tuple[int, tuple[object, ...]]]:
        """Signs and rows of the changes after which a relation, whose readers all began with it, has these rows."""
        readers = self._relations.get(relation)
        return readers[0].input.difference(rows) if readers else []

    def flush(self, name: str | None = None) -> None:
        """Send on what was pushed into a stream, or what changed in a relation; without a name: everything."""
        for key in [*self._sources, *self._ticks] if name is None else [name]:
            for source in self._sources.get(key, ()):
                source.flush()
            for tick in self._ticks.get(key, ()):
                tick.flush()

    # -- vertices -----------------------------------------------------------------------------------

    def find(self, key: Hashable) -> OperatorVertex | None:
        vertex = self._index.get(key)
        if vertex is not None and not self._shares and vertex.id not in self._new:
            return None
        if vertex is None or vertex.state == "stopped":
            return None
        if vertex.stateless or vertex.id in self._new:
            return vertex
        return vertex if not vertex.touched and vertex.start == self.given_below(vertex) else None

    def add_vertex(self, vertex: OperatorVertex, inputs: Sequence[OperatorVertex]) -> None:
        """Put a vertex in, fed by others."""
        vertex.id = self.next
        self.next += 1
        self._new[vertex.id] = vertex
        self.attach(vertex, inputs)
        vertex.start = self.given_below(vertex)

    def attach(self, vertex: OperatorVertex, inputs: Sequence[OperatorVertex]) -> None:
        """Put a vertex in that has its number."""
        vertex.watcher = self
        self.vertices[vertex.id] = vertex
        for port, source in enumerate(inputs):
            edge = Edge(source, vertex, port)
            source.outputs.append(edge)
            vertex.inputs.append(edge)
        match vertex:
            case Source():
                self._sources.setdefault(vertex.stream, []).append(vertex)
            case Relation():
                self._relations.setdefault(vertex.relation, []).append(vertex)
            case Ticks():
                for relation in vertex.relations:
                    self._ticks.setdefault(relation, []).append(vertex)

    def put(self, vertex: OperatorVertex, key: Hashable, inputs: Sequence[OperatorVertex]) -> None:
        """Put a vertex in that others may find."""
        self.add_vertex(vertex, inputs)
        older = self.rekey(vertex, key)
        if older is not None:
            self.twins.add(older, vertex)

    def rekey(self, vertex: OperatorVertex, key: Hashable) -> OperatorVertex | None:
        """Let a vertex be found under a key; gives the one that was found there before, which still lives."""
        if self._index.get(vertex.key) is vertex:
            del self._index[vertex.key]
        before = self._index.get(key)
        vertex.key = key
        self._index[key] = vertex
        return before if before is not None and before is not vertex and before.state != "stopped" else None

    def keep(self, vertex: OperatorVertex) -> None:
        """Let a vertex be found under its key, if no other is."""
        self._index.setdefault(vertex.key, vertex)

    def is_kept(self, vertex: OperatorVertex) -> bool:
        """Whether it is this vertex that is found under its key."""
        return self._index.get(vertex.key) is vertex

    def lacks(self, key: Hashable) -> bool:
        """Nobody waits for a vertex."""
        return False

    def converge(self) -> bool:
        """Make one of operators that have become the same, while nothing is under way; gives whether there were any."""
        return bool(len(self.twins)) and self.twins.converged() > 0

    def forget(self, vertex: OperatorVertex) -> None:
        """A vertex that nobody uses any more."""
        vertex.state = "stopped"
        self._drop(vertex)

    def given_below(self, vertex: OperatorVertex) -> dict[str, int]:
        """How much has been given to the sources below a vertex."""
        given: dict[str, int] = {}
        for at in self.below(vertex):
            if isinstance(at, Source):
                given[f"stream {at.stream} {at.position}"] = at.given
            elif isinstance(at, Relation):
                given[f"relation {at.relation}"] = self.versions.get(at.relation, 0)
            elif isinstance(at, Ticks):
                given |= {f"relation {r}": self.versions.get(r, 0) for r in at.relations}
        return given

    def below(self, vertex: OperatorVertex) -> list[OperatorVertex]:
        """A vertex and all that feeds it."""
        found = {vertex.id: vertex}
        todo = [vertex]
        while todo:
            for edge in todo.pop().inputs:
                source = edge.source
                assert isinstance(source, OperatorVertex)
                if source.id not in found:
                    found[source.id] = source
                    todo.append(source)
        return list(found.values())

    def above(self, names: Collection[str]) -> list[OperatorVertex]:
        """Where these streams and relations come in, and all that they feed."""
        found: dict[int, OperatorVertex] = {}
        for vertex in self.in_order():
            match vertex:
                case Source():
                    begins = vertex.stream in names
                case Relation():
                    begins = vertex.relation in names
                case Ticks():
                    begins = not vertex.relations.isdisjoint(names)
                case _:
                    begins = False
            if begins or any(edge.source.id in found for edge in vertex.inputs):
                found[vertex.id] = vertex
        return list(found.values())

    def forget_relation(self, relation: str) -> None:
        """A relation, which no query reads, is no more."""
        self.versions.pop(relation, None)
        self.ahead.pop(relation, None)

    def _drop(self, vertex: OperatorVertex) -> None:
        del self.vertices[vertex.id]
        for edge in vertex.inputs:
            source = edge.source
            source.outputs.remove(edge)
            if isinstance(source, OperatorVertex) and (vertex.take, edge.port) in source.direct:
                source.direct.remove((vertex.take, edge.port))
        if self._index.get(vertex.key) is vertex:
            del self._index[vertex.key]
        match vertex:
            case Windowed():
                vertex.release()
            case Source():
                _without(self._sources, vertex.stream, vertex)
            case Relation():
                _without(self._relations, vertex.relation, vertex)
            case Ticks():
                for relation in vertex.relations:
                    _without(self._ticks, relation, vertex)
        vertex.let_go()

    def prioritise(self, vertex: OperatorVertex) -> None:
        """A vertex is as urgent as the most urgent query that needs it."""
        vertex.priority = max(self.members[user].sink.priority for user in vertex.users)

    def reprioritise(self, name: str, priority: int) -> None:
        """A query has another priority, and with it operators that it needs."""
        member = self.members[name]
        member.sink.priority = priority
        for vertex in member.vertices:
            self.prioritise(vertex)

    def overtaken(self, streams: Collection[str]) -> set[int]:
        """The vertices among whose results there may be prioritised rows that may be handed on before their place;
        ``streams`` are those that have priorities. Results of joins that do not wait count as such."""
        self._hurry()
        ranked: set[int] = set()
        for vertex in self.in_order():
            own = vertex.stream in streams if isinstance(vertex, Source) else vertex.sets_priority
            own = own or (isinstance(vertex, Staged) and vertex.eager)
            if own or any(e.source.id in ranked for e in vertex.inputs):
                ranked.add(vertex.id)
        return {id for id in ranked if self.vertices[id].overtakable or self.vertices[id].foretells}

    def in_order(self) -> list[OperatorVertex]:
        """All vertices, senders before receivers."""
        found: dict[int, OperatorVertex] = {}
        for vertex in self.vertices.values():
            _visit(vertex, found)
        return list(found.values())

    def _hurry(self) -> None:
        """See which joins need not wait: a query takes their results as they come, and nothing in between waits. And
        from which windows on rows are worked on before they are held: a query answers from that."""
        hurried: set[int] = set()
        answering: set[int] = set()
        order = self.in_order()
        for vertex in reversed(order):
            if _answers_foretold(vertex) and (
                isinstance(vertex, Emitting) or any(t.id in answering for t in _targets(vertex))
            ):
                answering.add(vertex.id)
            match vertex:
                case Sink():
                    hurries = not vertex.ordered
                case Stateless() | Emitting(as_it_is=True) | Staged(joins=True) | Staged(passes=True):
                    hurries = any(t.id in hurried for t in _targets(vertex))
                case _:
                    hurries = False
            if isinstance(vertex, Staged) and vertex.joins:
                vertex.eager = hurries
            elif hurries:
                hurried.add(vertex.id)
        for vertex in order:
            begins = isinstance(vertex, Windowed | Staged) or any(e.source.foretells for e in vertex.inputs)
            if begins and vertex.id in answering and not isinstance(vertex, Emitting):
                vertex.foretells = True  # for good: what it has sent may still wait in buffers

    def wire(self, ids: Collection[int] | None = None) -> None:
        """See, after a change of edges or their buffers, whom to call and how. ``ids``: of these alone; others are at
        work, and nothing has changed for them.

        Who need not be told how far its sender is when there are no rows; which joins need not wait; and which filters
        are worked on together.
        """
        self._hurry()
        quiet: dict[int, bool] = {}

        def indifferent(vertex: OperatorVertex) -> bool:
            known = quiet.get(vertex.id)
            if known is None:
                match vertex:
                    case Sink():
                        known = not vertex.ordered
                    case Stateless() | Emitting(as_it_is=True) | Windowed(stateless=True):
                        known = all(indifferent(t) for t in _targets(vertex))
                    case _:
                        known = False
                quiet[vertex.id] = known
            return known

        for vertex in [v for v in self.vertices.values() if ids is None or v.id in ids]:
            vertex.quiet = all(indifferent(t) for t in _targets(vertex))
            if isinstance(vertex, Stateless):
                vertex.tail = tail_of(vertex)
            self._group(vertex)

    def _group(self, vertex: OperatorVertex) -> None:
        members = {e.target.id: e.target for e in vertex.outputs if isinstance(e.target, Stateless) and _is_plain(e)}
        if len(members) < _GROUP:
            members = {}
        vertex.direct = [(e.target.take, e.port) for e in vertex.outputs if _is_plain(e) and e.target.id not in members]
        vertex.alone = [e for e in vertex.outputs if not _is_plain(e)]
        if not members:
            vertex.together = None
            return
        if not isinstance(vertex.together, Filters):
            vertex.together = Filters(vertex.schema)
        vertex.together.become(members)

    # -- failures -----------------------------------------------------------------------------------

    def failed(self, vertex: OperatorVertex, error: Exception, inputs: Sequence[Data]) -> None:
        """An operator raised: the queries that need it are over, all others go on."""
        found = located(error, vertex, inputs)
        for name in sorted(vertex.users):
            member = self.members.get(name)
            if member is not None:
                # Each query says it in its own words.
                own = copy.copy(found)
                own.__cause__, own.__notes__ = found.__cause__, list(found.__notes__)
                member.sink.fail(own)


def _answers_foretold(vertex: OperatorVertex) -> bool:
    """Whether rows that a window will hold may be worked on before their place."""
    match vertex:
        case Windowed():
            return vertex.by_time
        case Stateless():
            return not vertex.elements
        case Staged() | Emitting():
            return vertex.answers_foretold
    return False


def _is_plain(edge: Edge) -> bool:
    """Whether nothing stands between the two ends."""
    return edge.buffer is None and edge.since is None


def _targets(vertex: OperatorVertex) -> list[OperatorVertex]:
    return [e.target for e in vertex.outputs if isinstance(e.target, OperatorVertex)]


def _without(lists: dict[str, list[_T]], key: str, item: _T) -> None:
    lists[key].remove(item)
    if not lists[key]:
        del lists[key]


def _visit(vertex: OperatorVertex, found: dict[int, OperatorVertex]) -> None:
    """Put a vertex behind those that send to it. A closure that calls itself would be a cycle."""
    if vertex.id in found:
        return
    for edge in vertex.inputs:
        assert isinstance(edge.source, OperatorVertex)
        _visit(edge.source, found)
    found[vertex.id] = vertex
