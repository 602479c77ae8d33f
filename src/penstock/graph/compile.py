"""From a query to vertices: those that the graph has already are taken, the others are made.

Vertices are found by a key: what they do, and which vertices feed them. Two queries that say the same below a certain
point, up to names and order of conjuncts, so arrive at the same vertex there.

A vertex that remembers something is shared only with queries that began when it did: a query sees the elements that
come after its registration, so an older window has rows that are not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Protocol

from penstock.graph.bounded import BoundedBody
from penstock.graph.ends import Bounded
from penstock.graph.masters import MASTERS, SMART, OtherWay
from penstock.graph.operators import Emitting, Gated, SmartWindowed, Staged, Stateless, Windowed
from penstock.graph.ports import Port
from penstock.graph.sources import Entry, Horizon, Intake, Relation, Source, Ticks
from penstock.graph.vertices import OperatorVertex
from penstock.operators import identity
from penstock.operators.build import Leaf, OwnLeaf, Stage, build, mirrored
from penstock.operators.emit import Emit
from penstock.operators.smart import SmartWindow
from penstock.operators.stateless import FilterProject
from penstock.operators.window_store import WindowStore
from penstock.plan.derive import begins_with_rows, passes_on
from penstock.plan.explain import show_node
from penstock.plan.nodes import (
    Join,
    Project,
    Query,
    QueryStream,
    RelationScan,
    StreamScan,
    bounded_window,
    functions_called,
    reads_streams,
    relation_scans,
    sources,
    stream_scans,
)
from penstock.plan.order import delivery_keys
from penstock.plan.reuse import may_reuse, reuses
from penstock.plan.steps import RowStep, leaves_rows_out, steps_of
from penstock.scalar import Context
from penstock.scalar.expr import Column

Functions = Mapping[str, Callable[..., object]]
_UNNAMED = 1 << 18
"""Streams that only a query has come after all that are declared; their positions begin here."""
_KINDS = {
    "FastJoin": "join", "FastAggregate": "aggregate", "FilterProject": "project", "TopN": "top",
}  # fmt: skip


class Vertices(Protocol):
    """Where vertices are looked for and put."""

    def find(self, key: Hashable) -> OperatorVertex | None:
        """A vertex with this key that a new query may use."""

    def lacks(self, key: Hashable) -> bool:
        """Whether there is to be a vertex with this key that nobody has made yet."""

    def put(self, vertex: OperatorVertex, key: Hashable, inputs: Sequence[OperatorVertex]) -> None:
        """Put a new vertex in, fed by others."""


class Compiler:
    """Compiles one query. ``used`` are the vertices that it needs, inputs before those they feed."""

    def __init__(
        self, graph: Vertices, functions: Functions, strict: bool, *, mirrors: bool = True, masters: str = SMART
    ) -> None:
        self._graph, self._functions, self._strict, self._mirrors = graph, functions, strict, mirrors
        self._other_way = MASTERS[masters]
        self.used: dict[int, OperatorVertex] = {}

    def answers(self, query: Query, *, as_stream: bool = False, beat: OperatorVertex | None = None) -> OperatorVertex:
        """The vertex that gives the answers of a query; ``as_stream``: in the order of elements; ``beat``: what lets it
        go on if it reads no stream, given by the query that it is in."""
        beat = self._beat(query, beat)
        streams = self._streams(query, beat)
        # What reads relations alone is as far as its beat says, which may be less than what it has been given.
        clocks = [*streams.values(), *([] if reads_streams(query) or beat is None else [beat])]
        if bounded_window(query) is not None:
            return self._bounded(query, streams, clocks, as_stream)
        istream = query.output == "istream"
        other = self._other_way(query.input) if query.masters and self._other_way is not None else None
        gated = bool(query.masters) and other is None
        tree = build(
            query.input if other is None else other.node, self._functions, self._errors,
            insertions_only=istream and other is None, gated=gated, smart=gated,
        )  # fmt: skip
        chosen = (streams[s.position] for s in sources(query) if s.position in streams and s.name in query.masters)
        masters: list[OperatorVertex] = list(dict.fromkeys(chosen))
        leaves: list[OperatorVertex] = []
        for leaf in tree.leaves:
            vertex = self._leaf(leaf, streams, clocks, masters)
            leaves.append(self._gate(vertex, masters) if gated and not leaf.smart else vertex)
        mode = tree.leaves[0].mode
        stages: list[OperatorVertex] = []
        for stage in tree.stages:
            below = [leaves[~i] if i < 0 else stages[i] for i in stage.inputs]
            stages.append(self._stage(stage, below, ends=mode == "ends"))
        root = leaves[~tree.root] if tree.root < 0 else stages[tree.root]
        return self._emit(query, root, leaves, masters, bool(streams), as_stream, other)

    # -- what is read -------------------------------------------------------------------------------

    def _beat(self, query: Query, outside: OperatorVertex | None) -> OperatorVertex | None:
        """What lets those parts of a query go on that read relations alone; None if there are none."""
        if not reads_streams(query):
            relations = frozenset(scan.relation for scan in relation_scans(query))
            return outside or self._use(("ticks", tuple(sorted(relations))), lambda: Ticks(relations))
        if all(reads_streams(s.query) for s in sources(query) if isinstance(s, QueryStream)):
            return None
        intakes = dict.fromkeys(map(self._intake, stream_scans(query)))
        return self._use(("horizon",), lambda: Horizon(len(intakes)), *intakes)

    def _intake(self, scan: StreamScan) -> OperatorVertex:
        key = ("stream", scan.stream, scan.position)
        source = self._use(key, partial(Source, scan.stream, scan.schema, scan.position))
        assert isinstance(source, Source)
        return self._use(("intake",), partial(Intake, source), source)

    def _streams(self, query: Query, beat: OperatorVertex | None) -> dict[int, OperatorVertex]:
        """The streams that a query reads, by their position in it."""
        scans = {s.position: s for s in sources(query)}
        declared = max((p for p, s in scans.items() if not isinstance(s, QueryStream)), default=-1)
        unnamed = sorted(p for p in scans if p > declared)
        order = {p: p for p in scans} | {p: _UNNAMED + i for i, p in enumerate(unnamed)}
        streams: dict[int, OperatorVertex] = {}
        for position, scan in scans.items():
            match scan:
                case StreamScan():
                    streams[position] = self._intake(scan)
                case QueryStream():
                    streams[position] = self._entry(scan, order[position], beat)
        return streams

    def _entry(self, scan: QueryStream, position: int, beat: OperatorVertex | None) -> OperatorVertex:
        answers = self.answers(scan.query, as_stream=True, beat=beat)
        label = f"stream {scan.name}"
        return self._use(("entry", position), lambda: Entry(label, scan.schema, position), answers)

    def _relation(self, scan: RelationScan, clocks: Sequence[OperatorVertex]) -> OperatorVertex:
        clocks = sorted(dict.fromkeys(clocks), key=lambda v: v.id)
        key = ("relation", scan.relation, scan.position)
        return self._use(
            key, lambda: Relation(scan.relation, scan.schema, scan.position, len(clocks)), *clocks
        )

    # -- operators ----------------------------------------------------------------------------------

    def _leaf(
        self,
        leaf: Leaf,
        streams: Mapping[int, OperatorVertex],
        clocks: Sequence[OperatorVertex],
        masters: Sequence[OperatorVertex],
    ) -> OperatorVertex:
        if isinstance(leaf.node, RelationScan):
            return self._relation(leaf.node, clocks)
        below: OperatorVertex = streams[leaf.position]
        if leaf.stateless is not None and leaf.chain_identity:
            below = self._chain(leaf.chain, leaf.chain_identity, leaf.stateless, leaf.errors, below, elements=True)
        window, operator = leaf.node, leaf.operator
        assert operator is not None, "bounded windows are elsewhere"
        stream = streams[leaf.position]
        newest = stream.source.newest if isinstance(stream, Intake) else stream.sent.newest

        def make() -> OperatorVertex:
            label = show_node(window)
            if isinstance(operator, SmartWindow):
                schemas = [v.schema for v in (below, *masters)]
                vertex: Windowed = SmartWindowed(f"{label}, smart", operator, window.spec, leaf.schema, schemas)
            else:
                vertex = Windowed(label, operator, window.spec, leaf.schema, born=newest)
            if below.store is None:
                below.store = WindowStore()
            vertex.use(below.store)
            return vertex

        if leaf.smart:
            return self._use(("smart window", window.spec), make, below, *masters)
        return self._use(("window", window.spec, leaf.mode), make, below)

    def _chain(
        self,
        chain: Sequence[RowStep],
        what: Hashable,
        operator: FilterProject,
        errors: Context | None,
        below: OperatorVertex,
        *,
        elements: bool,
    ) -> OperatorVertex:
        def make() -> OperatorVertex:
            label = ", ".join(show_node(step) for step in chain)
            filters = leaves_rows_out(chain)
            vertex = Stateless(label, operator, elements=elements, filters=filters)
            vertex.errors = errors
            return vertex

        return self._use(("chain", what, self._strict), make, below)

    def _gate(self, leaf: OperatorVertex, masters: Sequence[OperatorVertex]) -> OperatorVertex:
        return self._use(
            ("gate",), lambda: Gated(leaf.schema, [m.schema for m in masters]), leaf, *masters
        )

    def _stage(self, stage: Stage, below: Sequence[OperatorVertex], *, ends: bool) -> OperatorVertex:
        node = stage.node
        if isinstance(stage.operator, FilterProject):
            what = stage.identity[1]
            if not what:
                return below[0]
            return self._chain(steps_of(node)[0], what, stage.operator, stage.errors, below[0], elements=False)
        make = partial(_staged, stage, below, ends)
        if self._mirrors and stage.mirrored is not None and below[0] is not below[1]:
            swapped, what = stage.mirrored
            wanted, turned = (what, self._strict), below[::-1]
            if self._find(wanted, *turned) is not None or self._graph.lacks(_key(wanted, turned)):
                vertex = self._use(
                    wanted, lambda: _staged(mirrored(stage, self._functions, self._errors()), turned, ends), *turned
                )
                return self._turned(swapped, vertex)
        return self._use((stage.identity, self._strict), make, *below)

    def _turned(self, node: Join, vertex: OperatorVertex) -> OperatorVertex:
        """The columns of a join, its right side first."""
        columns = [Column(i, f.type, f.name) for i, f in enumerate(node.schema)]
        split = len(node.left.schema)
        exprs = (*columns[split:], *columns[:split])
        project = Project(node, exprs, tuple(c.name for c in exprs))
        errors = self._errors()
        operator = FilterProject([project], node.schema, self._functions, errors)
        what = identity.chain([project], node.schema, self._functions)
        return self._chain([project], what, operator, errors, vertex, elements=False)

    def _emit(
        self,
        query: Query,
        root: OperatorVertex,
        leaves: Sequence[OperatorVertex],
        masters: Sequence[OperatorVertex],
        streams: bool,
        as_stream: bool,
        other: OtherWay | None,
    ) -> OperatorVertex:
        keys = () if as_stream else delivery_keys(query)
        told: Sequence[OperatorVertex] = masters
        if not masters and (query.output == "rstream" or not streams or begins_with_rows(query)):
            told = list(dict.fromkeys(leaves))

        def make() -> OperatorVertex:
            emit = Emit(query, ordered=as_stream, keys=keys, functions=self._functions)
            ports = [Port(v.schema, elements=v.elements) for v in told]
            changes = Port(root.schema, elements=False)
            emitting = Emitting if other is None else other.emitting
            return emitting(show_node(query), emit, changes, ports, masters=bool(masters), streams=streams)

        order = tuple((identity.expression(k.expr, self._functions), k.descending, k.nulls_first) for k in keys)
        way = None if other is None else other.key
        key = ("emit", query.output, as_stream, order, bool(masters), streams, way)
        return self._use(key, make, root, *told)

    def _bounded(
        self,
        query: Query,
        streams: Mapping[int, OperatorVertex],
        clocks: Sequence[OperatorVertex],
        as_stream: bool,
    ) -> OperatorVertex:
        read: dict[int, OperatorVertex] = dict(streams)
        for scan in sources(query):
            if isinstance(scan, RelationScan):
                read[scan.position] = self._relation(scan, clocks)
        places = sorted(read)

        def make() -> OperatorVertex:
            errors = self._errors()
            body = BoundedBody(query, self._functions, errors, as_stream)
            ports = [(p, Port(read[p].schema, elements=read[p].elements)) for p in places]
            vertex = Bounded(show_node(query), body, ports, query.schema)
            vertex.errors = errors
            return vertex

        called = tuple((name, identity.function(name, self._functions)) for name in sorted(functions_called(query)))
        # Names of columns do not matter, but finding that out for a whole query is not worth it.
        key: tuple[Hashable, ...] = ("windows", repr(query), as_stream, called, self._strict)
        if may_reuse(query) and not reuses(query):
            key = (*key, "fresh")  # what is saved is not the same
        return self._use(key, make, *(read[p] for p in places))

    # -- the graph ----------------------------------------------------------------------------------

    def _errors(self) -> Context:
        return Context(functions=self._functions, strict=self._strict)

    def _find(self, key: Hashable, *inputs: OperatorVertex) -> OperatorVertex | None:
        return self._graph.find(_key(key, inputs))

    def _use(
        self, key: Hashable, make: Callable[[], OperatorVertex], *inputs: OperatorVertex
    ) -> OperatorVertex:
        vertex = self._find(key, *inputs)
        if vertex is None:
            vertex = make()
            self._graph.put(vertex, _key(key, inputs), inputs)
        self.used[vertex.id] = vertex
        return vertex


def _key(what: Hashable, inputs: Sequence[OperatorVertex]) -> Hashable:
    return (what, tuple(v.id for v in inputs))


def _staged(stage: Stage, below: Sequence[OperatorVertex], ends: bool) -> OperatorVertex:
    node = stage.node
    kind = _KINDS.get(stage.name, stage.name.lower())
    ports = [Port(b.schema, elements=False, ends=ends) for b in below]
    label = node.label if isinstance(node, OwnLeaf) else show_node(node)
    vertex = Staged(kind, stage.name, label, stage.operator, ports, inner=passes_on(node) == "pairs")
    vertex.schema, vertex.errors = node.schema, stage.errors
    return vertex
