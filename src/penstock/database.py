"""A database: a catalog, the streams' inputs, the relations' rows and the running queries.

One lock guards it all; queries work in the thread that pushes. It holds what the catalog declares, the running
queries, and of the data only what ``ingest`` and ``relations`` say they hold, plus the history that streams
with ``WITH (retain = …)`` ask for, which is forgotten as the stream moves on.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from sqlglot import exp

from penstock import functions
from penstock.catalog import Catalog, FunctionDef, RelationDef, StreamDef, ViewDef
from penstock.cql.expressions import identifier
from penstock.cql.queries import bind_query
from penstock.cql.text import parse
from penstock.declare import declaration
from penstock.errors import (
    BindError,
    CatalogError,
    InputError,
    PenstockError,
    PlanError,
    StateError,
    suggest,
)
from penstock.flood import check_beginning, check_change, check_past, check_rows
from penstock.graph.view import GraphView, MemoryView
from penstock.hosts import LocalOptions, QuerySettings, SparkOptions, check_engine, default_engine, host
from penstock.ingest import Batch, Instant, StreamInput, concat
from penstock.instants import Instants
from penstock.io.times import TimeForm
from penstock.names import unique_names
from penstock.plan.explain import explain_json, explain_mermaid, explain_text
from penstock.plan.explanation import Explanation
from penstock.plan.nodes import Query as Plan
from penstock.plan.nodes import RelationScan, Schema, StreamScan, walk
from penstock.plan.optimize import optimize
from penstock.plan.order import carrying_order
from penstock.plan.serial import from_json
from penstock.query import Before, Due, Query, QueryOptions, Start, check_start, retain_example
from penstock.reference import CHANGES, Change
from penstock.relations import At, RelationStore, When
from penstock.scalar.zones import UTC
from penstock.scalar.zones import checked as checked_zone
from penstock.types import DataType
from penstock.values import to_instant, with_zone

if TYPE_CHECKING:
    from penstock.results import Result


_log = logging.getLogger("penstock")


_LOOK = 0.01
"""Seconds after which somebody who waits for room looks again: those who make it know nothing of the lock."""


def _wall_clock() -> int:
    return time.time_ns() // 1_000


class Database:
    """Declare streams, register queries, push rows, fetch answers. Usable from several threads."""

    def __init__(
        self,
        engine: str | None = None,
        *,
        path: str | Path | None = None,
        clock: Callable[[], int] = _wall_clock,
        options: SparkOptions | None = None,
        local: LocalOptions | None = None,
        zone: str | None = None,
    ) -> None:
        self.engine = engine = engine or default_engine()
        check_engine(engine)
        self.catalog = Catalog(UTC if zone is None else checked_zone(zone, InputError))
        self.clock = clock
        self._lock = threading.RLock()
        self._inputs: dict[str, StreamInput] = {}
        self._relations: dict[str, RelationStore] = {}
        self._history: dict[str, list[Batch]] = {}
        self._queries: dict[str, Query] = {}
        self._instants = Instants(self.catalog, self._inputs, self._relations, self._queries)
        self._query_count = 0
        self._closed = False
        self._guarded = _Guarded(self)
        self._room = threading.Condition(self._lock)
        """For those who wait until rows can be taken."""
        self._calling = 0
        """How many calls of subscribers are under way; they hold the lock."""
        self._host = host(
            engine, self, None if path is None else Path(path), options or SparkOptions(), local or LocalOptions()
        )
        if zone is None:
            self.catalog.zone = self._host.zone()
        self._host.open()

    @property
    def zone(self) -> str:
        """The time zone by whose clocks queries are meant that are registered, and in which answers are shown."""
        return self.catalog.zone

    # -- statements and queries ---------------------------------------------------------------------

    def execute(self, text: str) -> Result:
        """Run the statements of a text; gives the result of the last one."""
        results = self.run_script(text)
        if not results:
            raise BindError("there is no statement in the text")
        return results[-1]

    def run_script(self, text: str) -> list[Result]:
        """Run the statements of a text one after the other; gives the result of each.

        The first that fails ends the script; the ones before it stay done.
        """
        from penstock.statements import run_script

        with self._guarded, self._lock:
            self._check_open()
            return run_script(self, text)

    def query(
        self, text: str | None = None, *, name: str | None = None, plan: object = None, start: Start | None = None
    ) -> Query:
        """Register a continuous query, from CQL or from a plan object (a plan, or its JSON form).

        It begins with the rows that its streams retain. ``start``: with ``retained`` a stream that retains none is
        refused; with ``now`` the query sees only rows that come.
        """
        from penstock.statements import plan_of_text

        with self._guarded, self._lock:
            self._check_open()
            if (text is None) == (plan is None):
                raise BindError("give either the text of a query or a plan")
            options = QueryOptions(start=None if start is None else check_start(start, "start"))
            if text is not None:
                bound, reads = plan_of_text(self, text)
                return self.register(bound, reads, name=name, options=options, text=text.strip())
            bound = plan if isinstance(plan, Plan) else from_json(_parsed(plan))
            self._check_plan(bound)
            reads = frozenset(
                n.stream if isinstance(n, StreamScan) else n.relation
                for n in walk(bound)
                if isinstance(n, StreamScan | RelationScan)
            )
            return self.register(bound, reads, name=name, options=options)

    def register(
        self,
        plan: Plan,
        reads: frozenset[str],
        *,
        name: str | None = None,
        options: QueryOptions | None = None,
        text: str = "",
    ) -> Query:
        """Start a bound plan as a query."""
        options = options or QueryOptions()
        if name is None:
            self._query_count += 1
            while f"q{self._query_count}" in self._queries:
                self._query_count += 1
            name = f"q{self._query_count}"
        if name in self._queries:
            raise CatalogError(f"there is a query `{name}` already", hint="STOP QUERY it, or use another name")
        if options.start == "retained":
            self._check_retained(plan)
        optimized = optimize(carrying_order(plan))
        schema = answer_schema(optimized)
        functions = {n: f.call for n, f in self.catalog.functions.items()}
        run = self._host.runner(optimized, schema, QuerySettings(functions, options.strict))
        query = Query(self, name, optimized, schema, run, reads, options, text)
        self._instants.check(query)
        check_past(query, self._inputs, self._history)
        query._before = self._rows_before(query)
        self._queries[name] = query
        try:
            self._feed_past(query)
            self._host.begin(query)
        except PenstockError:
            del self._queries[name]
            raise
        self.notify(query._advance())
        return query

    @property
    def queries(self) -> Mapping[str, Query]:
        """The registered queries by name, those that have ended included, until they are stopped."""
        return MappingProxyType(self._queries)

    def stop_query(self, name: str) -> None:
        """Stop a query and forget its name."""
        self._find_query(name).stop()

    def explain(self, query: str, format: str = "text") -> str:
        """The plan of a registered query, or of a query text, as text, JSON or Mermaid."""
        from penstock.statements import plan_of_text

        with self._lock:
            if query in self._queries:
                return self._explained(self._queries[query].plan, format, self._queries[query])
            if query.strip().isidentifier():
                raise CatalogError(f"no query `{query}`", hint=suggest(query, self._queries))
            return self._explained(optimize(carrying_order(plan_of_text(self, query)[0])), format)

    def explain_tree(self, tree: exp.Expr, format: str) -> str:
        """The plan of a parsed query."""
        return self._explained(optimize(carrying_order(bind_query(tree, self.catalog)[0])), format)

    def declare(
        self,
        name: str,
        data: object,
        *,
        timestamp: str | None = None,
        slack: str | None = None,
        key: str | Sequence[str] = (),
        load: bool = False,
    ) -> str:
        """Declare a stream, or with a ``key`` a relation, with the columns of data that are there; the CQL of it.

        ``data``: the path of a file, or a table of pandas, polars or Arrow. ``timestamp``: the column that orders the
        rows, by default a column of times. ``slack``: how far rows may be out of order, such as ``5 seconds``, by
        default as far as these are. ``load``: bring the rows too. A stream then retains all its rows, so that queries
        to come see them, and is complete up to the newest of them; more may be pushed. Rows of a relation are there
        from the beginning.
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        found = declaration(name, data, timestamp=timestamp, slack=slack, key=keys, retain=load)
        self.execute(found.statement)
        if load:
            declared = identifier(parse(found.statement)[0].tree.this)
            try:
                self._load(declared, data)
            except PenstockError:
                with self._lock:
                    self.drop(declared)
                raise
        return str(found)

    def _load(self, name: str, data: object) -> None:
        """Bring the rows of a file or table into what has just been declared for them."""
        from penstock.play import play, relation_file

        path = Path(data) if isinstance(data, str | Path) else None
        if name in self.catalog.relations:
            rows = data if path is None else relation_file(self, name, path)
            with self._guarded, self._lock:
                # Nobody has read it yet, so they can be there from the beginning.
                self.change_relation(name, lambda store, when: store.load(rows, replace(when, at=None)), None)
            return
        if path is None:
            self.push(name, data)
        else:
            play(self, {name: path}, close=False)
        if math.isfinite(newest := self.newest(name)):
            self.heartbeat(name, int(newest))

    def create_function(
        self, name: str, function: Callable[..., object], *, args: Sequence[str | DataType], returns: str | DataType
    ) -> None:
        """Let queries call a Python function; types as CQL names them, for example ``["BIGINT", "STRING"]``."""
        from penstock.statements import parse_type

        if isinstance(args, str):
            raise CatalogError(f"args is a list of types, not {args!r}", hint=f"write args=[{args!r}]")
        if not callable(function):
            raise CatalogError(f"{function!r} cannot be called", hint="give a Python function")
        if not name.isidentifier():
            raise CatalogError(f"`{name}` cannot be the name of a function", hint="use letters, digits and _")
        if name.lower() in functions.SCALARS or functions.is_aggregate(name.lower()):
            raise CatalogError(f"there is a built-in function `{name.lower()}`", hint="use another name")
        types = tuple(a if isinstance(a, DataType) else parse_type(a) for a in args)
        result = returns if isinstance(returns, DataType) else parse_type(returns)
        with self._lock:
            definition = FunctionDef(name.lower(), types, result, function)
            before = self.catalog.functions.get(definition.name)
            self.catalog.add_function(definition)
            self._declared(definition, lambda: self.catalog.restore_function(definition.name, before))

    # -- data ---------------------------------------------------------------------------------------

    def push(self, name: str, rows: object, *, at: object = None) -> None:
        """Rows into a stream, or into a relation (there perhaps ``at`` an instant). All of them, or none.

        What becomes of rows that do not fit a stream is said in its declaration: ``WITH (on_error = …)``. Where rows
        wait in buffers and there is no room for more, it waits for it; with ``when_full="raise"``, and where nobody
        would make room, it raises ``BufferFullError``.
        """
        with self._lock:
            self._check_open()
            if name not in self.catalog.relations and name.lower() in self.catalog.relations:
                name = name.lower()
            target = self._relations.get(name) or self._input(name)
        if isinstance(target, StreamInput) and at is not None:
            raise InputError(f"stream `{name}` takes its instants from its rows, not from `at`")
        time_form = None if self.zone == UTC else TimeForm("", self.zone)
        said = None if at is None else At(to_instant(at, self.zone), isinstance(at, str | date))
        # Without the lock: rows may be made while they are read, by code that takes its time or wants the lock too.
        read = target.read(rows, time_form) if isinstance(target, RelationStore) else target.read(rows)
        with self._guarded, self._lock:
            self._check_open()
            if isinstance(target, RelationStore):
                self.change_relation(name, lambda store, when: store.load(read, when, time_form), said)
                return
            source = self._input(name)
            while not self._host.admits(source, read.table, alone=self._calling > 0):
                if self._calling:
                    time.sleep(_LOOK)  # a subscriber pushes: nobody else is to come in between
                else:
                    self._room.wait(_LOOK)  # others have the lock meanwhile
                source = self._input(name)
            if source.definition is not target.definition:  # somebody has declared it anew meanwhile
                read = source.read(rows)
            self._deliver(source, partial(source.push, read), stamps=len(read) > 0)
        if read.stopped is not None:
            raise read.stopped

    def heartbeat(self, name: str, at: object) -> None:
        """Progress without data: no more rows before ``at`` will come (ticks, datetime, or ISO text)."""
        with self._lock:
            zone = self._input(name).definition.zone
        instant = to_instant(at, zone)
        with self._guarded, self._lock:
            self._check_open()
            source = self._input(name)
            self._deliver(source, partial(source.heartbeat, instant))

    def tick(self) -> None:
        """Let streams that are stamped on arrival move on with the clock, though nothing arrives.

        ``push``, ``fetch`` and waiting in an iteration do so too; subscribers of queries that time alone can change
        need somebody to call this.
        """
        with self._guarded, self._lock:
            if not self._closed:
                self._stamp_idle(None)

    def settle(self) -> None:
        """Return when everything pushed so far has been worked on. ``fetch`` does that by itself."""
        self._host.settle()

    @property
    def notes(self) -> dict[str, Any]:
        """What has been noted with the database: see ``note`` and ``Query.transfer``."""
        with self._lock:
            return self._host.notes()

    def note(self, **notes: object) -> None:
        """Note something (JSON) with the database, to be found after the next start; only with a directory."""
        with self._lock:
            self._check_open()
            self._host.note(notes)

    def metrics(self) -> pa.Table:
        """On Spark: what the last micro-batches took, one row for each. On the local engine: what waits in buffers, one
        row for each, and what streams have dropped. ``apart``: how many rows did not fit a stream."""
        with self._lock:
            return self._host.metrics()

    def configure(self, *, query: str | None = None, **settings: Any) -> None:
        """Work in another way from now on; answers stay the same, when they come may change.

        ``threading``, ``strategy``, ``workers``, ``quantum`` …: see docs/concepts/runtime.md. ``query``: only for what
        this query alone needs.
        """
        with self._guarded, self._lock:
            self._check_open()
            self._host.configure(settings if query is None else {**settings, "query": query})
            self._room.notify_all()
        self._host.configured()

    def graph(self) -> GraphView:
        """The operators of all queries, how they are connected and run, and what was measured of them so far."""
        with self._lock:
            self._check_open()
            return self._host.view()

    def memory(self) -> MemoryView:
        """What the windows of all queries hold, by stream and by query."""
        with self._lock:
            self._check_open()
            return self._host.memory()

    def suspend(self, operator: int) -> None:
        """Let an operator (its number in ``graph()``) rest; what comes waits in front of it until ``resume``."""
        with self._lock:
            self._check_open()
            self._host.suspend(operator)

    def resume(self, operator: int) -> None:
        """Let a suspended operator go on."""
        with self._guarded, self._lock:
            self._check_open()
            self._host.resume(operator)
            self._room.notify_all()

    def close_stream(self, name: str) -> None:
        """No more rows will come: the stream's progress is infinite. Closing twice is closing once."""
        with self._guarded, self._lock:
            self._check_open()
            source = self._input(name)
            if not source.closed:
                self._deliver(source, source.close)

    def progress(self, name: str) -> Instant:
        """Up to where a stream is complete, in ticks; infinite when closed."""
        with self._lock:
            return self._input(name).progress

    def newest(self, name: str) -> Instant:
        """The greatest instant of a stream's rows, in ticks; minus infinity before the first."""
        with self._lock:
            return self._input(name).newest_row

    def given(self, name: str) -> int:
        """How many rows a stream has been given so far, or changes a relation."""
        with self._lock:
            if name in self._relations:
                return self._relations[name].changes
            return self._input(name).arrivals

    def _row_check(self, name: str) -> Callable[[pa.Table], None]:
        """What raises BadRow for rows of the declared types that a stream or relation does not take: for readers of
        files."""
        with self._lock:
            return (self._relations.get(name) or self._input(name)).check

    def late(self, name: str) -> pa.Table:
        """The rows that came too late for a stream, since the last call."""
        with self._lock:
            source = self._input(name)
            rows = source.take_late()
            self._host.late_taken(source)
            # Written as texts, they must say their zone where the stream would read them in another one.
            plain = self.zone == source.definition.zone == UTC
            return rows if plain else rows.cast(with_zone(rows.schema, self.zone))

    def late_count(self, name: str) -> int:
        """How many rows came too late for a stream so far."""
        with self._lock:
            return self._input(name).late.count

    def apart(self, name: str) -> pa.Table:
        """The rows that do not fit a stream ``WITH (on_error = 'apart')``, since the last call: ``place``, ``column``,
        ``reason``, and the ``row`` itself, in JSON where it is a row at all."""
        with self._lock:
            source = self._input(name)
            rows = source.take_apart()
            self._host.apart_taken(source)
            return rows

    def apart_count(self, name: str) -> int:
        """How many rows did not fit a stream so far and were kept apart."""
        with self._lock:
            return self._input(name).apart.count

    def lateness(self, name: str) -> int:
        """By how many ticks the latest of a stream's late rows came too late, since the database was opened: with so
        much more SLACK none would have."""
        with self._lock:
            return self._input(name).lateness

    def change_relation(
        self,
        name: str,
        change: Callable[[RelationStore, When], list[Change]],
        at: At | None,
    ) -> int:
        """Apply a change to a relation at an instant; without one, right after all instants that have been named."""
        self.catalog.relation(name)
        store = self._relations[name]
        readers = [q for q in self._instants.readers(name) if q.status == "running"]
        when = self._instants.when(name, at)
        alone = [q for q in readers if not q.inputs and q._every_window]
        before = store.copy() if self._host.may_refuse or alone else None
        changes = change(store, when)
        store.times = store.times or (at is not None and at.time)
        try:
            for query in alone:
                dating = replace(query.dating)
                dating.dated(changes)
                check_change(query, {**self._relations, name: before or store}, dating.last)
            self._host.change(store, changes, readers)
        except PenstockError:
            if before is not None:
                self._relations[name] = before
            raise
        self.catalog.given_times = self.catalog.given_times or store.timed
        self._instants.changed(name, changes)
        store.forget(self._instants.passed(self._instants.clock_of(name)))
        self._host.work(readers)
        return len(changes)

    # -- life ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop working and forget everything that is not on disk; a database with a directory can be opened again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._room.notify_all()
        # Without the lock: work may be under way that needs it.
        self._host.close()
        with self._lock:
            for query in list(self._queries.values()):
                query.stop()
            self._inputs.clear()
            self._history.clear()
            self._relations.clear()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Nothing can be done with it any more."""
        return self._closed

    def _repr_html_(self) -> str:
        from penstock.notebook import html

        return html.database(self)

    def __repr__(self) -> str:
        parts = f"{len(self.catalog.streams)} streams, {len(self._queries)} queries"
        return f"<Database on {self.engine}: {parts}{', closed' if self._closed else ''}>"

    # -- for statements -------------------------------------------------------------------------------

    def add_stream(self, definition: StreamDef) -> None:
        """Declare a stream; one that is not derived gets an input."""
        self.catalog.add(definition)
        self._declared(definition, lambda: self.catalog.remove(definition.name))
        if not definition.derived:
            self._inputs[definition.name] = StreamInput(definition, self.clock)
            if definition.retain:
                self._history[definition.name] = []

    def add_relation(self, store: RelationStore) -> None:
        """Declare a relation."""
        self.catalog.add(store.definition)
        self._declared(store.definition, lambda: self.catalog.remove(store.definition.name))
        self._relations[store.definition.name] = store

    def replace_view(self, view: ViewDef) -> None:
        """Declare a view, in the place of one of the same name."""
        before = self.catalog.views.get(view.name)
        self.catalog.replace_view(view)
        self._declared(
            view, lambda: self.catalog.replace_view(before) if before else self.catalog.remove(view.name)
        )

    def _declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef, undo: Callable[[], None]) -> None:
        """Let the host know; if it cannot take it, nothing has been declared."""
        try:
            self._host.declared(definition)
        except PenstockError:
            undo()
            raise

    def drop(self, name: str) -> None:
        """Forget a stream, relation or view that nothing uses."""
        users = [f"query `{q.name}`" for q in self._queries.values() if name in q.reads and q.status == "running"]
        users += [f"stream `{s.name}`" for s in self.catalog.streams.values() if name in s.reads]
        users += [f"view `{v.name}`" for v in self.catalog.views.values() if name in v.reads]
        if users:
            raise CatalogError(f"`{name}` is used by {', '.join(users)}", hint="stop or drop those first")
        self.catalog.remove(name)
        self._host.dropped(name)
        self._instants.dropping(name)
        for table in (self._inputs, self._relations, self._history):
            table.pop(name, None)

    def relation_rows(self, name: str) -> list[tuple[object, ...]]:
        """The rows of a relation after its last change."""
        self.catalog.relation(name)
        return list(self._relations[name].rows)

    def _explained(self, plan: Plan, format: str, query: Query | None = None) -> str:
        match format.lower():
            case "text":
                zone = "" if self.zone == UTC else "zone: functions name theirs; TIMESTAMP '…' in a plan is in UTC"
                parts = (explain_text(plan), zone, self._host.explain(plan, query))
                return Explanation("\n".join(filter(None, parts)))
            case "json":
                return json.dumps(explain_json(plan), indent=2, ensure_ascii=False)
            case "mermaid":
                return explain_mermaid(plan)
        raise BindError(f"no format `{format}`", hint="there are text, json, mermaid")

    # -- inside -----------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the database is closed", hint="connect again")

    def _check_plan(self, plan: Plan) -> None:
        """A plan object must fit what is declared."""
        for node in walk(plan):
            if isinstance(node, StreamScan):
                known = self.catalog.stream(node.stream)
                if not _same_columns(known.schema, node.schema) or known.derived or known.clock != node.clock:
                    raise CatalogError(f"the plan reads stream `{node.stream}` with other columns than it has")
            elif isinstance(node, RelationScan) and not _same_columns(
                self.catalog.relation(node.relation).schema, node.schema
            ):
                raise CatalogError(f"the plan reads relation `{node.relation}` with other columns than it has")

    def _find_query(self, name: str) -> Query:
        if name not in self._queries:
            raise CatalogError(f"no query `{name}`", hint=suggest(name, self._queries) or "none is registered")
        return self._queries[name]

    def _forget_query(self, query: Query) -> None:
        if self._queries.pop(query.name, None) is not None:
            self._host.stopped(query)

    def _input(self, name: str) -> StreamInput:
        self._check_open()
        found = self._inputs.get(name) or self._inputs.get(name.lower())
        if found is not None:
            return found
        definition = self.catalog.stream(name)
        raise InputError(f"stream `{definition.name}` is derived from a query, so nothing can be put into it")

    def _stamp_idle(self, source: StreamInput | None) -> None:
        """Streams stamped on arrival move on with the clock: what comes later is stamped later."""
        for other in self._inputs.values():
            if other is source or other.definition.timestamp_by is not None or other.closed:
                continue
            if other.progress > -math.inf or source is not None:
                self._deliver(other, partial(other.heartbeat, self.clock()))

    def _deliver(self, source: StreamInput, take: Callable[[], Batch], *, stamps: bool = False) -> None:
        """Hand rows and progress of a stream to the queries that read it, and let them work. All, or nothing.

        ``stamps``: rows have come, so streams that are stamped on arrival move on with the clock before them; what is
        refused, or has no rows, says nothing of the time.
        """
        name = source.definition.name
        readers = [q for q in self._queries.values() if q.status == "running" and name in q.inputs]
        windowed = [q for q in readers if q._every_window]
        before = copy.copy(source) if self._host.may_refuse or windowed else None
        batch = take()
        try:
            for query in windowed:
                assert before is not None
                check_rows(query, before, source, batch)
            if stamps:
                self._stamp_idle(source)
            self._host.deliver(source, batch, readers)
        except PenstockError:
            if before is not None:
                source.__dict__.update(before.__dict__)
            raise
        if name in self._history:
            self._remember(source, batch)
        self._host.work(readers)

    def notify(self, due: Sequence[Due]) -> None:
        """Make calls that are due, holding the lock."""
        self._calling += 1
        try:
            for call in due:
                try:
                    call()
                except Exception:
                    # The rows have been taken; whoever pushed them cannot do anything about a subscriber.
                    _log.exception("a subscriber raised; it stays subscribed")
        finally:
            self._calling -= 1

    def _remember(self, source: StreamInput, batch: Batch) -> None:
        name = source.definition.name
        kept = [b for b in (*self._history[name], batch) if len(b)]
        if kept and math.isfinite(source.progress):
            oldest = int(source.progress) - source.definition.retain
            kept = [b for b in kept if int(b.ts[-1]) >= oldest]
            if kept and int(kept[0].ts[0]) < oldest:
                kept[0] = kept[0].take(np.flatnonzero(kept[0].ts >= oldest))
        self._history[name] = [concat(kept)] if len(kept) > 64 else kept

    def _feed_past(self, query: Query) -> None:
        """Give a new query the relations as they are, the history that streams retain, and their progress."""
        past: dict[str, list[Change]] = {}
        for name in query.relations:
            store = self._relations[name]
            clock = query.plan.clock if query.inputs else self._instants.clock_of(name)
            store.forget(self._instants.passed(clock))
            # A query without streams is evaluated at 0: what happened before is there from the beginning.
            past[name] = store.initial(0 if not query.inputs else -math.inf)
        if not query.inputs:
            check_beginning(query, chain.from_iterable(past.values()))
        for name, changes in past.items():
            query._runner.change(name, changes)
            query.dating.dated(changes)
        if not query.inputs:
            query.dating.begun, query.dating.earlier = True, self._instants.counted
            query._runner.progress(CHANGES, query.dating.earlier)
        for name in query.inputs:
            for batch in self._history.get(name, []) if query.options.start != "now" else ():
                query._runner.push(name, batch)
            source = self._inputs[name]
            if source.progress > -math.inf:
                query._runner.progress(name, source.progress)

    def _check_retained(self, plan: Plan) -> None:
        for node in walk(plan):
            if isinstance(node, StreamScan) and not self.catalog.stream(node.stream).retain:
                raise BindError(
                    f"stream `{node.stream}` retains no rows that the query could start with",
                    hint=f"declare it {retain_example(node.clock)}",
                )

    def _rows_before(self, query: Query) -> dict[str, Before]:
        """The rows that streams have had and do not retain; of those that wait for slack the query will hear."""
        if query.options.start == "now":
            return {}
        found: dict[str, Before] = {}
        for name in sorted(query.inputs):
            source = self._inputs[name]
            rows = source.arrivals - source.late.count - source.apart.count - source.waiting
            if rows and not source.definition.retain:
                found[name] = Before(rows, source.arrivals)
        return found


class _Guarded(threading.local):
    """Around sections that hold the lock of a database: its host hears when the outermost of a thread is over.

    The lock itself is taken by ``with``, which an interrupt (Ctrl-C) cannot part from giving it back.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth and not self._database._lock._is_owned():  # type: ignore[attr-defined]
            self._depth = 0  # an interrupt has come in between
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        try:
            self._database._host.after()
        except PenstockError:
            if kind is None:
                raise


def _same_columns(declared: Schema, read: Schema) -> bool:
    """Whether a plan reads what is declared; case matters in no name, since columns go by place."""
    return [(f.name.lower(), f.type) for f in declared] == [(f.name.lower(), f.type) for f in read]


def _parsed(plan: object) -> object:
    """A plan object, also from its text."""
    if not isinstance(plan, str):
        return plan
    try:
        return json.loads(plan)
    except json.JSONDecodeError as error:
        raise PlanError(f"the plan is not JSON: {error}", hint="db.explain(…, format='json') gives one") from None


def answer_schema(plan: Plan) -> pa.Schema:
    """The Arrow schema of a query's answers: ts, op, then the columns, hidden ones too, under unique names."""
    clock: Any = pa.int64() if plan.clock == "ticks" else pa.timestamp("us")
    names = unique_names([f.name for f in plan.schema], taken=("ts", "op"), exact=[True] * len(plan.schema))
    columns = [pa.field(n, f.type.arrow) for n, f in zip(names, plan.schema, strict=True)]
    return pa.schema([pa.field("ts", clock), pa.field("op", pa.string()), *columns])


def connect(
    path: str | Path | None = None,
    *,
    engine: str | None = None,
    master: str | None = None,
    shards: int | None = None,
    trigger: float | Literal["push"] | None = None,
    batch_rows: int | None = None,
    sync: bool = False,
    spark: Mapping[str, str] | None = None,
    memory: int | str | None = "512 MB",
    disk: int | str | None = None,
    when_full: str = "block",
    spill: str | Path | None = None,
    clock: Callable[[], int] = _wall_clock,
    zone: str | None = None,
) -> Database:
    """A database. With a directory it is kept there, and goes on from there when it is opened again.

    ``engine``: ``spark`` (the default), ``local`` or ``reference``. Of ``spark`` alone: ``master`` is Spark's, by
    default ``local[*]``; ``shards``: how many ways queries with a key are split; ``trigger``: seconds in which
    rows are collected before a micro-batch begins (by default it begins at once), or ``push``: calls return when their
    answers are there; ``batch_rows``: at most so many rows in a micro-batch; ``sync``: what is acknowledged survives a
    power failure; ``spark``: more settings for Spark. Of ``local`` alone: ``memory``: how much of what waits in buffers
    may be in memory, and ``disk``: how much of it on disk (None: no limit); ``when_full``: ``block`` or ``raise``;
    ``spill``: where the files for that are made. ``clock`` gives the time in microseconds, for streams stamped on
    arrival. ``zone``: the time zone of functions such as ``hour``, of times in CQL that name no other, and in which
    answers are shown, such as ``Europe/Vienna``; by default that of the directory, or of the running Spark session, or
    UTC.
    """
    options = SparkOptions(master, shards, trigger, batch_rows, sync, spark or {})
    local = LocalOptions(memory, disk, when_full, spill)
    return Database(engine, path=path, clock=clock, options=options, local=local, zone=zone)
