"""What users see of a database: facts about streams, relations, views and queries, and the tables of ``sys``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.catalog import QueryOptions, RelationDef, StreamDef
from penstock.database import definitions
from penstock.database.core import Core
from penstock.database.database import Database, core_of, query_of
from penstock.graph.view import GraphView, MemoryView
from penstock.hosts.registered import Over
from penstock.model.amounts import Bound, written
from penstock.model.batch import Instant
from penstock.model.errors import CatalogError, EngineError
from penstock.model.names import unique_names
from penstock.model.schema import Schema
from penstock.model.values import to_arrow, with_zone
from penstock.plan.nodes import Query as Plan
from penstock.rows.apart import Kept
from penstock.rows.text import jsonable
from penstock.rows.values import python_value, said
from penstock.scalar.zones import UTC
from penstock.server.gate import Gate
from penstock.server.session import Column, QueryInfo, RelationInfo, Session, StreamInfo, ViewInfo

_TIME = pa.timestamp("us", "UTC")


def is_table(plan: Plan) -> bool:
    """Whether a query has a current result that a server keeps: its rows come and go. Other results are a stream, of
    which as much can be read as is retained."""
    return plan.output == "changes"


class Looking:
    """See above. ``subscriptions`` gives how many a query has."""

    def __init__(self, db: Database, gate: Gate, subscriptions: Callable[[str], int]) -> None:
        self._db, self._gate, self._subscriptions = db, gate, subscriptions
        self._core: Core = core_of(db)

    # -- what is declared -----------------------------------------------------------------------------

    def stream(self, session: Session, name: str) -> StreamInfo:
        found = self._core.catalog.streams[name]
        source = self._core.inputs.get(name)
        progress, newest = (-math.inf, -math.inf) if source is None else (source.progress, source.newest_row)
        known = self._gate.owns(session, "stream", name) or self._gate.reads_all(session, found.reads)
        fed = found.source is not None
        return StreamInfo(
            name, _columns(found.schema), found.derived, found.clock, found.timestamp_by, _ticks(progress),
            progress == math.inf, _ticks(newest), 0 if source is None else source.arrivals,
            0 if source is None else source.late.count, 0 if source is None else source.lateness,
            0 if source is None else source.apart.count,
            self._core.host.abilities().source_status(name) if fed else None,
            definitions.of_catalog(self._core, found) if known and found.text else None,
            self._owner("stream", name), self._gate.may(session, "write", "stream", name) and not found.derived,
            self._zoned(pa.schema([(f.name, f.type.arrow) for f in found.schema])),
        )  # fmt: skip

    def relation(self, session: Session, name: str) -> RelationInfo:
        found = self._core.catalog.relations[name]
        key = tuple(found.schema[i].name for i in found.key)
        return RelationInfo(
            name, _columns(found.schema), key, self._core.relations[name].size,
            definitions.of_catalog(self._core, found) if found.text else "", self._owner("relation", name),
            self._gate.may(session, "write", "relation", name), self.relation_schema(found),
        )  # fmt: skip

    def view(self, session: Session, name: str) -> ViewInfo:
        found = self._core.catalog.views[name]
        known = self._gate.owns(session, "view", name) or self._gate.reads_all(session, found.reads)
        text = definitions.of_catalog(self._core, found) if known else None
        return ViewInfo(name, _columns(found.schema), text, self._owner("view", name))

    def query(self, session: Session, name: str) -> QueryInfo:
        """A registered query; one that was stopped, if it is listed and was the user's."""
        held, found = query_of(self._db, name), self._core.queries.get(name)
        if held is None or found is None:
            return self._over(session, self._core.over[name])
        ended = found.at_end(0) if found.status != "running" else None
        knows, latency = self._gate.knows(session, found), found.meter.latency
        first, next = held.retained
        reads = [n for n in sorted(found.reads) if (k := self._core.catalog.kind_of(n)) is not None
                 and self._gate.may(session, "read", k, n)]  # fmt: skip
        return QueryInfo(
            name, held.status, _columns(found.plan.shown), found.text if knows else None, tuple(reads),
            _options(found.options), is_table(found.plan), first, next, None if ended is None else ended.ended,
            None if ended is None else ended.how, held.note if knows else None, held.failures,
            {"p50": latency.p50, "p99": latency.p99, "waiting_p99": latency.waiting_p99}, self._subscriptions(name),
            self._owner("query", name), self._gate.owns(session, "query", name), held.schema,
        )  # fmt: skip

    def _over(self, session: Session, over: Over) -> QueryInfo:
        return QueryInfo(
            over.name, over.status, (), over.text, (), {}, False, over.answers, over.answers, over.ended, over.how,
            None, 0, {}, 0, self._owner("stopped", over.name), False,
        )  # fmt: skip

    def over(self, session: Session) -> list[str]:
        """Queries that were stopped and that the user may know of: those that it had."""
        return [name for name in [*self._core.over] if self._gate.owns(session, "stopped", name)]

    def _owner(self, kind: str, name: str) -> str | None:
        return self._gate.owner(kind, name)

    # -- tables ---------------------------------------------------------------------------------------

    def _zoned(self, schema: pa.Schema) -> pa.Schema:
        return schema if self._core.zone == UTC else with_zone(schema, self._core.zone)

    def relation_schema(self, found: RelationDef) -> pa.Schema:
        return self._zoned(pa.schema([(f.name, f.type.arrow) for f in found.schema]))

    def relation_rows(self, name: str) -> pa.Table:
        """What a relation holds. Under the database's lock, or right after a look at it."""
        store = self._core.relations[name]
        rows, schema = store.rows, store.definition.schema
        arrays = [to_arrow([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
        plain = pa.Table.from_arrays(arrays, names=[f.name for f in schema])
        return plain.cast(self.relation_schema(store.definition))

    def stream_schema(self, found: StreamDef) -> pa.Schema:
        """Of what a stream retains: ts, op, then the columns."""
        clock: Any = pa.int64() if found.clock == "ticks" else pa.timestamp("us")
        names = unique_names([f.name for f in found.schema], taken=("ts", "op"), exact=[True] * len(found.schema))
        columns = [pa.field(n, f.type.arrow) for n, f in zip(names, found.schema, strict=True)]
        return self._zoned(pa.schema([pa.field("ts", clock), pa.field("op", pa.string()), *columns]))

    def stream_rows(self, name: str) -> Callable[[], pa.Table]:
        """What makes a table of what a stream retains now. Under the database's lock; what it gives may be called
        without."""
        schema = self.stream_schema(self._core.catalog.streams[name])
        history = self._core.history.get(name)
        if history is None:
            return lambda: schema.empty_table()
        retained = history.retained

        def table() -> pa.Table:
            parts = []
            for batch in retained:
                ts = pa.array(batch.ts).cast(schema.field(0).type)
                columns = [ts, pa.array(["+"] * len(batch), pa.string()), *batch.table.columns]
                parts.append(pa.Table.from_arrays(columns, names=schema.names).cast(schema))
            return pa.concat_tables([schema.empty_table(), *parts])

        return table

    # -- the graph ------------------------------------------------------------------------------------

    def graph(self, session: Session) -> GraphView:
        """The operators of the queries whose plans the user may see."""
        view = self._db.graph()
        if self._gate.administers(session):
            return view
        known = {q.name for q in [*self._core.queries.values()] if self._gate.knows(session, q)}

        def only(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(name for name in names if name in known)

        operators = tuple(replace(o, queries=q) for o in view.operators if (q := only(o.queries)))
        ids = {o.id for o in operators}
        partitions = (replace(p, operators=tuple(o for o in p.operators if o in ids)) for p in view.partitions)
        streams = tuple(s for s in view.memory.streams if self._gate.may(session, "read", "stream", s.stream))
        windows = (
            replace(s, windows=tuple(replace(w, queries=only(w.queries)) for w in s.windows if w.operator in ids))
            for s in streams
        )
        return replace(
            view, operators=operators, edges=tuple(e for e in view.edges if e.source in ids and e.target in ids),
            partitions=tuple(p for p in partitions if p.operators),
            queries=tuple(q for q in view.queries if q.name in known),
            memory=MemoryView(tuple(windows), tuple(q for q in view.memory.queries if q.name in known)),
            dropped=tuple(d for d in view.dropped if self._gate.may(session, "read", "stream", d.stream)),
        )  # fmt: skip

    # -- sys ------------------------------------------------------------------------------------------

    def sys_table(self, session: Session, name: str) -> Callable[[], pa.Table]:
        """What makes a table of ``sys`` as it is now, as far as the user may see it. It may be called without the
        database's lock."""
        if name in ("late", "failed"):  # of which there may be many rows
            sources = [(n, s) for n, s in [*self._core.inputs.items()] if self._gate.may(session, "read", "stream", n)]
            kept = {n: s.late if name == "late" else s.apart for n, s in sources}
            return partial(_late if name == "late" else _failed, kept)
        make = _SYS.get(name)
        if make is None:
            raise CatalogError(f"no table `sys.{name}`", hint="there are " + ", ".join(f"sys.{n}" for n in SYS))
        table = make(self, session)
        return lambda: table

    def streams_table(self, session: Session) -> pa.Table:
        found = [self.stream(session, name) for name in self._gate.seen(session, "stream")]
        rows = [
            {**_plain(s), "columns": _shown(s.columns), "progress_at": s.progress if s.clock == "timestamp" else None}
            for s in found
        ]
        return _table(rows, _STREAMS)

    def relations_table(self, session: Session) -> pa.Table:
        found = [self.relation(session, name) for name in self._gate.seen(session, "relation")]
        return _table([{**_plain(r), "columns": _shown(r.columns), "key": ", ".join(r.key)} for r in found], _RELATIONS)

    def queries_table(self, session: Session) -> pa.Table:
        names = [*self._gate.seen(session, "query"), *self.over(session)]
        found = [self.query(session, name) for name in names]
        return _table(
            [
                {**_plain(q), "columns": _shown(q.columns), "reads": ", ".join(q.reads),
                 "options": json.dumps(dict(q.options)), "progress": self._progress(session, q.name), **q.latency}
                for q in found
            ],
            _QUERIES,
        )  # fmt: skip

    def _progress(self, session: Session, name: str) -> int | None:
        """Up to where the inputs of a query are complete, in ticks."""
        query = self._core.queries.get(name)
        inputs = [] if query is None else [self._core.inputs.get(each) for each in query.inputs]
        return _ticks(min((source.progress for source in inputs if source is not None), default=-math.inf))

    def operators_table(self, session: Session) -> pa.Table:
        view = self._graph_or_nothing(session)
        return _table(
            [{**asdict(o), "queries": ", ".join(o.queries)} for o in (view.operators if view else ())], _OPERATORS
        )

    def buffers_table(self, session: Session) -> pa.Table:
        view = self._graph_or_nothing(session)
        edges = [e for e in (view.edges if view else ()) if e.buffer is not None]
        return _table(
            [{"source": e.source, "target": e.target, "port": e.port, **asdict(e.buffer)}
             for e in edges if e.buffer is not None], _BUFFERS,
        )  # fmt: skip

    def _graph_or_nothing(self, session: Session) -> GraphView | None:
        try:
            return self.graph(session)
        except EngineError:  # an engine without a graph
            return None

    def parts_table(self, session: Session) -> pa.Table:
        """The parts that queries have on Spark, for administrators."""
        if not self._gate.administers(session):
            return _PARTS.empty_table()
        with self._core.holding():
            found = self._core.host.abilities().part_views()
        return _table([{**vars(p), "queries": ", ".join(p.queries)} for p in found], _PARTS)

    def batches_table(self, session: Session) -> pa.Table:
        """What the engine says of its work, for administrators; on Spark one row for each micro-batch."""
        found = self._db.metrics("work")
        return found if self._gate.administers(session) else found.schema.empty_table()


def _late(kept: Mapping[str, Kept]) -> pa.Table:
    found = [(name, each.table) for name, each in kept.items()]
    return _table([{"stream": n, "row": _json(t, i)} for n, t in found for i in range(t.num_rows)], _LATE)


def _failed(kept: Mapping[str, Kept]) -> pa.Table:
    return _table([{"stream": n, **row} for n, each in kept.items() for row in each.table.to_pylist()], _FAILED)


def _columns(schema: Schema) -> tuple[Column, ...]:
    return tuple(Column(f.name, str(f.type)) for f in schema)


def _shown(columns: Sequence[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in columns)


def _plain(info: object) -> dict[str, Any]:
    return dict(vars(info))


def _ticks(instant: Instant) -> int | None:
    return None if math.isinf(instant) else int(instant)


def _json(table: pa.Table, row: int) -> str:
    values = {n: jsonable(python_value(table.column(i)[row]), said) for i, n in enumerate(table.column_names)}
    return json.dumps(values, ensure_ascii=False)


def _options(options: QueryOptions) -> dict[str, Any]:
    usual = vars(QueryOptions())
    return {
        name: written(value) if isinstance(value, Bound) else value
        for name, value in vars(options).items()
        if value != usual[name]
    }


def _table(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array([r.get(f.name) for r in rows], f.type) for f in schema], schema=schema)


_text, _int, _float, _bool = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_STREAMS = pa.schema([
    ("name", _text), ("columns", _text), ("derived", _bool), ("clock", _text), ("timestamp_by", _text),
    ("progress", _int), ("progress_at", _TIME), ("closed", _bool), ("newest", _int), ("given", _int), ("late", _int),
    ("apart", _int), ("source", _text), ("definition", _text), ("owner", _text), ("may_write", _bool),
])  # fmt: skip
_RELATIONS = pa.schema([
    ("name", _text), ("columns", _text), ("key", _text), ("rows", _int), ("definition", _text), ("owner", _text),
    ("may_write", _bool),
])  # fmt: skip
_QUERIES = pa.schema([
    ("name", _text), ("status", _text), ("columns", _text), ("text", _text), ("reads", _text), ("options", _text),
    ("stands", _bool), ("first", _int), ("next", _int), ("progress", _int), ("ended", _TIME), ("how", _text),
    ("note", _text), ("failures", _int), ("p50", _float), ("p99", _float), ("waiting_p99", _float),
    ("subscriptions", _int), ("owner", _text),
])  # fmt: skip
_OPERATORS = pa.schema([
    ("id", _int), ("kind", _text), ("label", _text), ("queries", _text), ("state", _text), ("priority", _int),
    ("partition", _int), ("calls", _int), ("elements_in", _int), ("elements_out", _int), ("selectivity", _float),
    ("cost", _float), ("interarrival", _float), ("rows", _int), ("bytes", _int),
])  # fmt: skip
_BUFFERS = pa.schema([
    ("source", _int), ("target", _int), ("port", _int), ("elements", _int), ("bytes", _int), ("peak", _int),
    ("passed", _int), ("overtook", _int), ("spilled", _int), ("spilled_bytes", _int), ("dropped", _int),
    ("lag", _float),
])  # fmt: skip
_PARTS = pa.schema([
    ("part", _int), ("queries", _text), ("priority", _int), ("batches", _int), ("rows", _int),
    ("rows_per_second", _float), ("answers_per_second", _float), ("seconds", _float), ("waiting", _int),
    ("waiting_rows", _int),
])  # fmt: skip
_LATE = pa.schema([("stream", _text), ("row", _text)])
_FAILED = pa.schema([("stream", _text), ("place", _text), ("column", _text), ("reason", _text), ("row", _text)])
_SYS: Mapping[str, Callable[[Looking, Session], pa.Table]] = {
    "streams": Looking.streams_table, "relations": Looking.relations_table, "queries": Looking.queries_table,
    "operators": Looking.operators_table, "buffers": Looking.buffers_table, "parts": Looking.parts_table,
    "batches": Looking.batches_table,
}  # fmt: skip
SYS = (*_SYS, "late", "failed", "sessions", "subscriptions")
"""All tables of ``sys``; the last two are the service's own."""
