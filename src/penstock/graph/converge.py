"""Operators that have become the same are made one.

A query that comes while data flows gets a window of its own, since an older one has rows that it must not see. Once all
such rows have left, the two windows hold the same and will for ever: then one of them is enough, and what stands
above them may follow. That is done for what rows alone identify: windows, inner joins, filters and projections. Of
groups and distinct rows it matters when they last changed, which older ones remember differently.

Bounded by the vertices of the graph.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from penstock.graph.operators import SmartWindowed, Staged, Stateless, Windowed
from penstock.graph.vertex import Edge, Vertex
from penstock.graph.vertices import OperatorVertex
from penstock.model.delta import Instant
from penstock.plan.window import Now, Range, Rows

if TYPE_CHECKING:
    from penstock.graph.graph import Graph


class Twins:
    """Vertices of one key: the one that is found under it, and older or younger ones of another state."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.pairs: list[tuple[OperatorVertex, OperatorVertex]] = []
        self.since: dict[int, Instant] = {}
        """From when on a vertex is what its twin is, where that is known."""

    def __len__(self) -> int:
        return len(self.pairs)

    def add(self, older: OperatorVertex, younger: OperatorVertex) -> None:
        """Two vertices of one key; the younger one has not seen what the older one had."""
        if _may_converge(older):
            self.pairs.append((older, younger))

    def converged(self) -> int:
        """Make one of each pair that has become the same; gives how many have. Nothing may be under way."""
        done = 0
        while True:
            self.since = {id: at for id, at in self.since.items() if id in self._graph.vertices}
            pair = next((p for p in self.pairs if self._same(*p)), None)
            self.pairs = [p for p in self.pairs if p is not pair and self._lives(*p)]
            if pair is None:
                return done
            older, younger = pair
            self._unite(older, younger)
            others = [tuple(older if v is younger else v for v in p) for p in self.pairs]
            self.pairs = [(a, b) for a, b in others if a is not b]
            done += 1

    def _lives(self, *vertices: OperatorVertex) -> bool:
        return all(v.state != "stopped" and v.id in self._graph.vertices for v in vertices)

    def _same(self, older: OperatorVertex, younger: OperatorVertex) -> bool:
        if not self._lives(older, younger):
            return False
        if isinstance(younger, Stateless):
            return True
        if older.mark.frontier != younger.mark.frontier:
            return False
        if isinstance(younger, SmartWindowed):
            return isinstance(older, SmartWindowed) and older.is_like(younger)
        if isinstance(younger, Windowed):
            match younger.spec:
                case Range(size, None):
                    return younger.mark.frontier[0] > younger.born + size
                case Now():
                    return younger.mark.frontier[0] > younger.born + 1
                case Rows(size, 1):
                    return younger.stats.elements_in >= size
            return False
        since = self.since.get(younger.id)
        return since is not None and younger.mark.frontier > since

    def _unite(self, older: OperatorVertex, younger: OperatorVertex) -> None:
        """Let everybody who is fed by the younger be fed by the older."""
        graph = self._graph
        since = younger.mark.frontier
        for name in younger.users:
            member = graph.members[name]
            counted = 0
            if older.errors is not None and younger.errors is not None:
                counted = older.errors.failures - younger.errors.failures
            member.before.setdefault(older.id, counted + member.before.pop(younger.id))
            member.vertices = tuple(dict.fromkeys(older if v is younger else v for v in member.vertices))
        older.users |= younger.users
        older.priority = max(older.priority, younger.priority)
        moved, younger.outputs[:] = list(younger.outputs), []
        for edge in moved:
            edge.source = older
            older.outputs.append(edge)
        graph.forget(younger)
        graph.keep(older)
        for edge in moved:
            self._follow(edge, younger.id, older.id, since)

    def _follow(self, edge: Edge, younger: int, older: int, since: Instant) -> None:
        """A vertex has another one below it now, and may so be like one that is there."""
        target = edge.target
        assert isinstance(target, OperatorVertex)
        if target.key is None:
            return
        self.since[target.id] = max(self.since.get(target.id, since), since)
        twin = self._graph.rekey(target, _with(target.key, younger, older))
        if twin is not None:
            self.add(twin, target)


def _may_converge(vertex: OperatorVertex) -> bool:
    match vertex:
        case Windowed(spec=Range(slide=None) | Now() | Rows(slide=1)) | Stateless():
            return True
        case Staged(name="FastJoin" | "Join"):
            return vertex.inner and all(_forgets(e.source) for e in vertex.inputs)
    return False


def _forgets(vertex: Vertex) -> bool:
    """Whether rows from before a certain time are not in what a vertex gives any more; then its older twin, if it has
    one, becomes the same. A window that keeps nothing may be one that never lets go of rows."""
    match vertex:
        case Stateless():
            return _forgets(vertex.inputs[0].source)
        case Windowed():
            return not vertex.stateless and _may_converge(vertex)
        case Staged():
            return _may_converge(vertex)
    return False


def _with(key: Hashable, old: int, new: int) -> Hashable:
    """The key of a vertex over another input."""
    assert isinstance(key, tuple)
    what, inputs = key
    return (what, tuple(new if i == old else i for i in inputs))
