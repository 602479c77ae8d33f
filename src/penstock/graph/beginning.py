"""What a query that is merged into a running graph is given: what was there before it, and no more.

Its new vertices get the relations as they are, the elements that streams have retained, and how far the streams are.
Elements reach them through older vertices that remember nothing, which work on them for the new query alone. Elements
that are still on their way have been pushed before the query came, and are kept from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.graph.faults import located
from penstock.graph.message import BEGIN, Data, Mark, Message
from penstock.graph.sources import Relation, Source, Ticks, whole_columns
from penstock.graph.vertices import OperatorVertex
from penstock.model.batch import Batch
from penstock.model.change import CHANGES
from penstock.model.delta import Arrivals, arrival_sub

if TYPE_CHECKING:
    from penstock.graph.graph import Graph, Member, Past


class Beginning:
    """Gives the new vertices of a query its past, and nobody else."""

    def __init__(self, graph: Graph, member: Member, new: Mapping[int, OperatorVertex], past: Past) -> None:
        self._graph, self._member, self._new, self._past = graph, member, new, past
        self._leading = self._found_leading()
        """The older vertices without state through which elements reach new ones."""

    def begin(self) -> None:
        """Do so."""
        new, member, past = self._new, self._member, self._past
        ticks: list[Ticks] = []
        for vertex in member.vertices:
            if isinstance(vertex, Relation) and vertex.id in new:
                vertex.hand_over(past.changes.get(vertex.relation, ()))
            elif isinstance(vertex, Ticks) and vertex.id in new:
                vertex.dating.earlier = int(past.progress.get(CHANGES, 0))
                for relation in vertex.relations:
                    vertex.dating.dated(past.changes.get(relation, ()))
                ticks.append(vertex)
        for vertex in member.vertices:
            if isinstance(vertex, Source):
                self._replay(vertex)
            elif vertex.id not in new and vertex.id not in self._leading and vertex.sent.frontier > BEGIN.frontier:
                for edge in vertex.outputs:
                    if edge.target.id in new:
                        edge.target.take(edge.port, Message(vertex.nothing, vertex.sent))
        for tick in ticks:
            tick.flush()

    def _found_leading(self) -> set[int]:
        leading: set[int] = set()
        for vertex in reversed(self._member.vertices):
            older = vertex.id not in self._new and _fed_by_source(vertex)
            if older and any(e.target.id in self._new or e.target.id in leading for e in vertex.outputs):
                leading.add(vertex.id)
        return leading

    def _replay(self, source: Source) -> None:
        past = self._past
        rows: Arrivals | None = None
        for batch in past.rows.get(source.stream, ()):  # read one by one: there may be more than fit into memory
            if not len(batch):
                continue
            before, rows = rows, _arrivals(source, batch)
            if before is not None:
                self._hand_on(source, _followed(before, rows))
            source.advance(int(rows.ts[-1]))
            if source.id in self._new:
                source.reach([batch])
        source.advance(past.progress.get(source.stream, source.progress))
        mark = source.said()
        if rows is not None or mark.frontier > BEGIN.frontier:
            source.mark = source.sent = mark
            self._hand_on(source, Message(source.nothing if rows is None else rows, mark))
        early = past.early.get(source.stream)
        if early is not None and source.id in self._new:
            if past.overtakes:
                source.push_early(early)
        elif early is not None and len(early := source.of_early(early)):
            self._hand_on_early(source, _arrivals(source, early))
        self._cut_off(source)

    def _hand_on_early(self, vertex: OperatorVertex, data: Data) -> None:
        """Elements that older queries have had before their place are given to the new one now."""
        for edge in vertex.outputs:
            target = edge.target
            assert isinstance(target, OperatorVertex)
            if target.id in self._new:
                target.take_early(edge.port, data)
            elif target.id in self._leading:
                out = self._quietly(target, Message(data, BEGIN))
                if out is not None and len(out):
                    self._hand_on_early(target, out)

    def _hand_on(self, vertex: OperatorVertex, message: Message) -> None:
        for edge in vertex.outputs:
            target = edge.target
            assert isinstance(target, OperatorVertex)
            if target.id in self._new:
                target.take(edge.port, message)
            elif target.id in self._leading:
                out = self._quietly(target, message)
                if out is not None:
                    self._hand_on(target, Message(out, message.mark))

    def _quietly(self, vertex: OperatorVertex, message: Message) -> Data | None:
        """What a vertex without state makes of earlier elements, which are news for the new query alone."""
        errors = vertex.errors
        before = 0 if errors is None else errors.failures
        try:
            out = vertex.work((message.data,), message.mark)
        except Exception as error:
            self._member.sink.fail(located(error, vertex, [message.data]))
            return None
        if errors is not None and errors.failures > before:
            for member in self._graph.members.values():
                if vertex.id in member.before and member is not self._member:
                    member.before[vertex.id] += errors.failures - before
        return out

    def _cut_off(self, source: Source) -> None:
        """Elements that are on their way from the source have been pushed before the new query came."""
        if not self._graph.buffered:
            return
        since = source.bound
        for vertex in (source, *(self._graph.vertices[i] for i in self._leading)):
            if vertex.id in self._new or (vertex is not source and source not in _origins(vertex)):
                continue
            for edge in vertex.outputs:
                if edge.target.id in self._new:
                    edge.since = since


def _arrivals(source: Source, batch: Batch) -> Arrivals:
    sub = arrival_sub(source.position, batch.arrival)
    return Arrivals(source.schema, whole_columns(batch), batch.ts, sub, batch.priority)


def _followed(rows: Arrivals, others: Arrivals) -> Message:
    """Rows of a stream behind which others follow."""
    time = int(others.ts[0])
    return Message(rows, Mark((time, int(others.sub[0])), time, time))


def _fed_by_source(vertex: OperatorVertex) -> bool:
    """Whether nothing between a declared stream and the end of this vertex remembers anything. Where something does,
    it has had nothing yet, or it would not be shared."""
    return vertex.stateless and all(
        v.stateless and (bool(v.inputs) or isinstance(v, Source)) for v in _origins(vertex)
    )


def _origins(vertex: OperatorVertex) -> Iterator[OperatorVertex]:
    """The vertices that an older vertex is fed by at its first input, all the way down."""
    while vertex.inputs:
        above = vertex.inputs[0].source
        assert isinstance(above, OperatorVertex)
        vertex = above
        yield vertex
