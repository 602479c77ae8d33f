"""One query by itself: a graph with a single query, fed and run by whoever holds it.

This is what a Spark worker runs for its share of a query: everything in the thread that calls, no buffer inside, and
state that can be saved and loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.delta import Delta
from penstock.graph.graph import Graph
from penstock.graph.operators import Bounded
from penstock.graph.vertices import OperatorVertex
from penstock.ingest import Batch
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, Saved, State, below, under
from penstock.plan.nodes import Query
from penstock.reference import Change
from penstock.scalar import Context

_NAME = "query"


class Program:
    """One query and the queries it reads as streams. Failures are counted in ``errors``."""

    def __init__(self, query: Query, functions: Mapping[str, Callable[..., object]], errors: Context) -> None:
        self.query = query
        self._errors = errors
        self._graph = Graph()
        self._sink = self._graph.add(_NAME, query, functions, strict=errors.strict)
        self._graph.wire()
        self._vertices = self._graph.members[_NAME].vertices
        self._counted = 0

    # -- in -----------------------------------------------------------------------------------------

    def push(self, stream: str, batch: Batch) -> None:
        """Elements of a declared stream, in order."""
        self._graph.push(stream, batch)

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes of a relation, in order."""
        self._graph.change(relation, changes)

    def progress(self, stream: str, at: float) -> None:
        """No more elements of a declared stream before ``at``."""
        self._graph.progress(stream, at)

    # -- out ----------------------------------------------------------------------------------------

    def run(self) -> list[Delta]:
        """Do all that progress allows; gives the answers, as batches of rows with their instant and sign."""
        self._graph.flush()
        self._count()
        if self._sink.error is not None:
            raise self._sink.error
        return self._sink.taken()

    @property
    def ended(self) -> bool:
        """No answer can come any more."""
        return self._sink.ended

    def _count(self) -> None:
        failures = self._graph.failures(_NAME)
        if failures != self._counted:
            self._errors.failures += failures - self._counted
            self._errors.last_failure = self._graph.last_failure(_NAME) or self._errors.last_failure
            self._counted = failures

    # -- state --------------------------------------------------------------------------------------

    def save(self) -> State:
        """All that is remembered; see ``operators.state``."""
        state: State = {}
        for vertex in self._vertices:
            state |= under(f"{vertex.id} {vertex.kind}", vertex.save())
        mark = {"failures": self._errors.failures, "last_failure": self._errors.last_failure, "ended": self.ended}
        state["program"] = Saved(mark)
        return state

    def load(self, state: LoadedState) -> None:
        """Go on, in a fresh program, from what a program of the same query saved."""
        for vertex in self._vertices:
            vertex.load(below(f"{vertex.id} {vertex.kind}", state))
        self._load_meta(state)

    def catch_up(self, state: LoadedState) -> None:
        """Go on from a later state; this program has done nothing since it saved, or loaded, one that it goes on from.

        Costs what has changed in between; afterwards the program is as one that has loaded the state. If it fails, the
        program is of no use.
        """
        for vertex in self._vertices:
            vertex.catch_up(below(f"{vertex.id} {vertex.kind}", state))
        self._load_meta(state)

    def _load_meta(self, state: LoadedState) -> None:
        meta = state["program"].meta
        # Operators have computed keys of their rows again; what failed had been counted.
        self._counted = self._graph.failures(_NAME)
        self._errors.failures, self._errors.last_failure = meta["failures"], meta["last_failure"]
        if meta["ended"]:
            self._sink.end()

    def size(self) -> dict[str, StateSize]:
        """What is remembered, by operator."""
        return sizes(self._vertices)


def sizes(vertices: Sequence[OperatorVertex]) -> dict[str, StateSize]:
    """What vertices remember, by name."""
    found: dict[str, StateSize] = {}
    for vertex in vertices:
        if vertex.operator is not None or isinstance(vertex, Bounded):
            found[f"{vertex.id}:{vertex.name}"] = vertex.size()
    return found
