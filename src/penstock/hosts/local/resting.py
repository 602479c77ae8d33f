"""Operators that rest: those that users let rest, and those of suspended queries."""

from __future__ import annotations

from penstock.graph.graph import Graph
from penstock.graph.sources import Source, Ticks
from penstock.graph.vertices import OperatorVertex
from penstock.hosts.core import Core
from penstock.hosts.local.lags import front
from penstock.model.errors import StateError
from penstock.runtime.run import Runtime


class Resting:
    """Bounded by the operators of the graph. Which queries are suspended, they know themselves."""

    def __init__(self, core: Core, graph: Graph, runtime: Runtime) -> None:
        self._core, self._graph, self._runtime = core, graph, runtime
        self._operators: set[int] = set()

    def add(self, operator: OperatorVertex) -> None:
        """A user lets an operator rest."""
        said = f"operator {operator.id} ({operator.label}) is"
        if isinstance(operator, Source | Ticks):
            raise StateError(f"{said} where rows come in", hint="suspend one that it feeds")
        if operator.state == "stopped" or self._runtime.is_held(operator):
            raise StateError(f"{said} {'stopped' if operator.state == 'stopped' else 'suspended already'}")
        self._operators.add(operator.id)

    def remove(self, operator: OperatorVertex) -> None:
        """A user lets it go on."""
        said = f"operator {operator.id} ({operator.label}) is"
        if operator.id not in self._operators:
            if self._runtime.is_held(operator):
                (name,) = operator.users
                raise StateError(f"{said} suspended with query `{name}`", hint=f"RESUME QUERY {name}")
            state = "stopped for good" if operator.state == "stopped" else "not suspended"
            raise StateError(f"{said} {state}", hint="only suspended ones resume")
        self._operators.discard(operator.id)

    def clear(self) -> None:
        """Let all go on that users let rest."""
        self._operators.clear()

    def held(self) -> set[int]:
        """The numbers of all that are to rest: of a suspended query those where rows come to what only it needs."""
        self._operators &= self._graph.vertices.keys()
        found = set(self._operators)
        for name, member in self._graph.members.items():
            if self._core.queries[name].suspended:
                found |= front(member, name)
        return found
