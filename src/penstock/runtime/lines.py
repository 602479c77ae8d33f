"""The lines of a runtime: one for each operator that sends into buffers."""

from __future__ import annotations

from collections.abc import Callable

from penstock.graph.vertex import Vertex
from penstock.model.amounts import Bound
from penstock.runtime.storage.line import Line
from penstock.runtime.storage.storage import Storage

Bounded = tuple[str, Bound | None, bool]
"""The name of a stream, its own bound, and whether the oldest is dropped where there is no room."""
BoundOf = Callable[[Vertex], Bounded | None]


class Lines:
    """Lines that are still used are kept when buffers are put elsewhere; the others are forgotten.

    ``bound_of``: the stream whose rows an operator sends as they came, if it does, and how what waits is bounded.
    """

    def __init__(self, storage: Storage, bound_of: BoundOf | None) -> None:
        self._storage, self._bound_of = storage, bound_of
        self._before: dict[int, Line] = {}
        self._lines: dict[int, Line] = {}
        self._entrances: dict[int, list[Line]] = {}

    def begin(self) -> None:
        """Buffers are about to be put elsewhere."""
        self._before, self._lines, self._entrances = self._lines, {}, {}

    def end(self) -> None:
        """They have been."""
        for gone in self._before.keys() - self._lines.keys():
            self._storage.forget(self._before[gone])
        self._before = {}

    def of(self, vertex: Vertex) -> Line:
        """What holds what an operator sends into buffers."""
        line = self._lines.get(vertex.id)
        if line is not None:
            return line
        line = self._before.get(vertex.id)
        stream, bound, dropping = (self._bound_of and self._bound_of(vertex)) or (None, None, False)
        if line is None:
            label = f"operator {vertex.id} ({vertex.label})" if stream is None else f"stream `{stream}`"
            line = self._storage.line(label, stream)
        if (line.bound, line.dropping) != (bound, dropping):
            self._storage.bind(line, bound, dropping)
        self._lines[vertex.id] = line
        return line

    def known(self, vertex: Vertex) -> Line | None:
        """What holds what an operator sends, if there is a buffer behind it."""
        return self._lines.get(vertex.id)

    def entrance(self, source: Vertex, pushed: Callable[[Vertex], bool]) -> list[Line]:
        """The lines into which the thread that pushes puts what a source is given; it runs what is ``pushed``."""
        found = self._entrances.get(source.id)
        if found is None:
            found, todo, seen = [], [source], set[int]()
            while todo:
                vertex = todo.pop()
                if vertex.id not in seen and pushed(vertex):
                    seen.add(vertex.id)
                    if vertex.id in self._lines:
                        found.append(self._lines[vertex.id])
                    todo += [edge.target for edge in vertex.outputs if edge.buffer is None]
            self._entrances[source.id] = found
        return found
