"""Queries by themselves: a graph with a fixed set of queries, fed and run by whoever holds it.

This is what a Spark worker runs for its share: everything in the thread that calls, no buffer inside, and state that
can be saved and loaded. The queries begin together, so they share all that is equal in them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

from penstock.graph import saving
from penstock.graph.ends import Bounded
from penstock.graph.graph import Graph, Past
from penstock.graph.masters import SMART
from penstock.graph.vertices import OperatorVertex
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.delta import Delta
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, Saved, State, below, under
from penstock.plan.nodes import Query
from penstock.scalar import Context

Functions = Mapping[str, Callable[..., object]]
Counts = tuple[int, int, int, int]


class Programs:
    """Several queries by name, and the queries they read as streams. ``masters``: see ``Graph.add``."""

    def __init__(
        self, queries: Mapping[str, Query], functions: Functions, *, strict: bool = False, masters: str = SMART
    ) -> None:
        # With fewer queries there must be the same vertices for those that are left, whoever came first.
        self._graph = Graph(mirrors=False)
        self._functions, self._strict, self._masters = functions, strict, masters
        self._sinks = {
            name: self._graph.add(name, query, functions, strict=strict, masters=masters)
            for name, query in queries.items()
        }
        self._counted = dict.fromkeys(queries, 0)
        self._failures: dict[str, tuple[int, str | None]] = dict.fromkeys(queries, (0, None))
        self._changed()

    def _changed(self) -> None:
        self._graph.wire()
        # Without functions, what a vertex does can be said in a way that other processes understand.
        self._paths = {} if self._functions else _paths(self._graph)
        self._vertices = tuple(self._graph.vertices.values())

    def add(self, name: str, query: Query, progress: Mapping[str, float]) -> None:
        """Another query, while the others have been given nothing but how far streams are; so is this one."""
        past = Past(progress=dict(progress))
        self._sinks[name] = self._graph.add(
            name, query, self._functions, strict=self._strict, past=past, masters=self._masters
        )
        self._counted[name], self._failures[name] = 0, (0, None)
        self._changed()

    # -- in -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """What has been given so far was there when the queries were registered; what follows is news."""
        self._graph.begin()

    def push(self, stream: str, batch: Batch) -> None:
        """Elements of a declared stream, in order."""
        self._graph.push(stream, batch)

    def push_early(self, stream: str, batch: Batch, reached: float = math.inf) -> None:
        """Prioritised elements of a declared stream, none of which is before what has been pushed. When what is between
        has been pushed, ``reach`` is to be called with them, or they are pushed in their turn, too. ``reached``: see
        ``Source.push_early``."""
        self._graph.push_early(stream, batch, reached)

    def reach(self, stream: str, batch: Batch) -> None:
        """Everything before these elements, which were pushed early, has been pushed."""
        self._graph.reach(stream, batch)

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes of a relation, in order."""
        self._graph.change(relation, changes)

    def difference(self, relation: str, rows: Sequence[tuple[object, ...]]) -> list[tuple[int, tuple[object, ...]]]:
        """Signs and rows of the changes after which a relation has these rows; after a save, a load, or at first."""
        return self._graph.difference(relation, rows)

    def progress(self, stream: str, at: float) -> None:
        """No more elements of a declared stream before ``at``; ``CHANGES``: see ``Graph.progress``."""
        self._graph.progress(stream, at)

    def flush(self, stream: str) -> None:
        """Let operators work on what was pushed into a stream, as far as they can; ``run`` does so for all streams."""
        self._graph.flush(stream)

    # -- out ----------------------------------------------------------------------------------------

    def run(self) -> dict[str, list[Delta] | Exception]:
        """Do all that progress allows; gives the answers of each query, as batches of rows with their instant and sign,
        or why it failed."""
        self._graph.flush()
        return {name: sink.error or sink.taken() for name, sink in self._sinks.items()}

    def remove(self, name: str) -> None:
        """Go on without a query."""
        self._graph.remove(name)
        del self._sinks[name], self._counted[name], self._failures[name]
        self._changed()

    def busy(self, name: str) -> float:
        """Seconds that the operators of a query have worked; several queries share those of an operator of theirs."""
        return sum(v.stats.busy / len(v.users) for v in self._graph.members[name].vertices) / 1e9

    def counted(self, name: str) -> list[Counts]:
        """What the operators of a query have counted, in the order in which a graph makes them: calls, elements in and
        out, busy nanoseconds."""
        found = (v.stats for v in self._graph.members[name].vertices)
        return [(s.calls, s.elements_in, s.elements_out, s.busy) for s in found]

    def size_of(self, name: str) -> dict[str, StateSize]:
        """What is remembered for a query, by operator."""
        return sizes(self._graph.members[name].vertices)

    def in_windows(self) -> int:
        """At most how many rows are in bounded windows that have not ended: rows are dropped by whole batches."""
        return sum(v.size().rows for v in self._vertices if isinstance(v, Bounded))

    def ended(self, name: str) -> bool:
        """Whether no answer of a query can come any more."""
        return self._sinks[name].ended

    def failures(self, name: str) -> tuple[int, str | None]:
        """How many values of a query became NULL because computing them failed, and what the last of them was."""
        counted = self._graph.failures(name)
        if counted != self._counted[name]:
            before, last = self._failures[name]
            last = self._graph.last_failure(name) or last
            self._failures[name] = (before + counted - self._counted[name], last)
            self._counted[name] = counted
        return self._failures[name]

    # -- state --------------------------------------------------------------------------------------

    def save(self) -> State:
        """All that is remembered; see ``operators.state``."""
        state: State = {}
        for vertex in self._vertices:
            state |= under(self._path(vertex), vertex.save())
        queries = {name: [*self.failures(name), self.ended(name)] for name in self._sinks}
        state["program"] = Saved({"queries": queries})
        return state

    def load(self, state: LoadedState) -> None:
        """Go on, fresh, from what programs of the same queries saved; without functions, also of more queries."""
        for vertex in self._vertices:
            vertex.load(below(self._path(vertex), state))
        self._load_meta(state)

    def catch_up(self, state: LoadedState) -> None:
        """Go on from a later state; nothing has been done here since this saved, or loaded, one that it goes on from.

        Costs what has changed in between; afterwards this is as one that has loaded the state. If it fails, it is of no
        use any more.
        """
        for vertex in self._vertices:
            vertex.catch_up(below(self._path(vertex), state))
        self._load_meta(state)

    def own(self, state: LoadedState) -> LoadedState:
        """What ``load`` reads of a state that several queries share."""
        paths = {self._path(vertex) for vertex in self._vertices}
        return {path: found for path, found in state.items() if path == "program" or path.partition("/")[0] in paths}

    def _path(self, vertex: OperatorVertex) -> str:
        """Where the state of a vertex is found: by what it does, or by its number."""
        return f"{self._paths.get(vertex.id, vertex.id)} {vertex.kind}"

    def _load_meta(self, state: LoadedState) -> None:
        saved = state["program"].meta["queries"]
        for name in self._sinks:
            failures, last, ended = saved[name]
            # Operators have computed keys of their rows again; what failed had been counted.
            self._counted[name] = self._graph.failures(name)
            self._failures[name] = (failures, last)
            if ended:
                self._sinks[name].end()

    def size(self) -> dict[str, StateSize]:
        """What is remembered, by operator."""
        return sizes(self._vertices)


class GraphPrograms(Programs):
    """Queries that come from the graph of the local engine, with all that it remembers; saved as graphs are."""

    def __init__(self, state: LoadedState, queries: Mapping[str, tuple[Query, Functions]]) -> None:
        self._graph = Graph()
        saving.restore(self._graph, saving.only(state, {name: name for name in queries}), queries)
        self._sinks = {name: self._graph.members[name].sink for name in queries}
        self._counted = dict.fromkeys(queries, 0)
        self._failures = dict.fromkeys(queries, (0, None))
        self._changed()

    def _changed(self) -> None:
        self._graph.wire()
        self._vertices = tuple(self._graph.vertices.values())

    def save(self) -> State:
        return saving.save(self._graph)

    def load(self, state: LoadedState) -> None:
        raise NotImplementedError("it is made of what it loads")

    def catch_up(self, state: LoadedState) -> None:
        saving.catch_up(self._graph, saving.only(state, {name: name for name in self._sinks}))


class Program(Programs):
    """One query. Failures are counted in ``errors``."""

    def __init__(self, query: Query, functions: Functions, errors: Context) -> None:
        super().__init__({"": query}, functions, strict=errors.strict)
        self.query = query
        self._errors = errors

    def answers(self) -> list[Delta]:
        """Do all that progress allows, and give the answers."""
        found = self.run()[""]
        self._errors.failures, self._errors.last_failure = self.failures("")
        if isinstance(found, Exception):
            raise found
        return found

    @property
    def over(self) -> bool:
        """No answer can come any more."""
        return self.ended("")

    def _load_meta(self, state: LoadedState) -> None:
        super()._load_meta(state)
        self._errors.failures, self._errors.last_failure = self._failures[""]


def _paths(graph: Graph) -> dict[int, str]:
    """Names of vertices that depend on what they do and who feeds them, and not on what else there is."""
    paths: dict[int, str] = {}
    for vertex in graph.vertices.values():
        what = vertex.key[0] if isinstance(vertex.key, tuple) else vertex.label
        below = [paths[e.source.id] for e in vertex.inputs]
        paths[vertex.id] = hashlib.sha256(repr((what, below)).encode()).hexdigest()[:20]
    assert len(set(paths.values())) == len(paths), "vertices of one key are one vertex"
    return paths


def sizes(vertices: Sequence[OperatorVertex]) -> dict[str, StateSize]:
    """What vertices remember, by name."""
    found: dict[str, StateSize] = {}
    for vertex in vertices:
        if vertex.operator is not None or isinstance(vertex, Bounded):
            found[f"{vertex.id}:{vertex.name}"] = vertex.size()
    return found
