"""A database, as its users hold it: declare streams, register queries, push rows, fetch results."""

from __future__ import annotations

import copy
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa

from penstock.catalog import Catalog, QueryOptions, Start
from penstock.cql.declarations import function_def, options_tree, plan_of_text, planned_text, with_options
from penstock.cql.expressions import identifier
from penstock.cql.plan_objects import plan_of_object
from penstock.cql.text import parse
from penstock.database.core import Core
from penstock.database.declare import declaration
from penstock.database.play import play, relation_file
from penstock.database.query import Query, holds
from penstock.database.results import Result
from penstock.database.statements import explained_plan, explained_query, run_statements
from penstock.graph.view import GraphView
from penstock.hosts.durable.writer import written_by
from penstock.hosts.meter import latencies
from penstock.hosts.options import Keeping, LocalOptions, SparkOptions, check_engine, default_engine
from penstock.hosts.registered import Registered
from penstock.ingest.keys import checked_key
from penstock.ingest.relations import At
from penstock.model import shown
from penstock.model.batch import Instant
from penstock.model.errors import BindError, CatalogError, InputError, PenstockError, suggest
from penstock.model.names import counted
from penstock.model.types import DataType
from penstock.model.values import with_zone
from penstock.rows.times import to_instant
from penstock.scalar.zones import UTC
from penstock.storage.objects import Root, root_of


def wall_clock() -> int:
    return time.time_ns() // 1_000


@dataclass(frozen=True)
class StreamStatus:
    """How far a stream is, and what it has been given; instants in ticks, infinite where there is none."""

    progress: Instant
    """Up to where it is complete; infinite when closed."""
    newest: Instant
    """The greatest instant of its rows; minus infinity before the first."""
    given: int
    """How many rows it has been given."""
    late: int
    """How many of them came too late."""
    lateness: int
    """By how many ticks the latest of them did, since the database was opened: so much more SLACK takes them all."""
    apart: int
    """How many did not fit and were kept apart."""
    source: str | None = None
    """Of a stream with a source (FROM spark): ``running``, or why it is not."""


class _Missing(CatalogError, KeyError):
    """There is no such query."""


class Queries(Mapping[str, Query]):
    """The registered queries by name, those that have ended included, until they are stopped: as they are now."""

    def __init__(self, found: Mapping[str, Query]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> Query:
        if name not in self._found:
            raise _Missing(f"no query `{name}`", hint=suggest(str(name), self._found) or "none is registered")
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _let_go(database: weakref.ref[Database], name: str) -> None:
    """A query is gone. The core knows the database weakly, so that one which nobody holds is freed at once."""
    if (db := database()) is not None:
        db._held.pop(name, None)


class Database:
    """Declare streams, register queries, push rows, fetch results. Usable from several threads."""

    def __init__(
        self,
        engine: str | None = None,
        *,
        path: str | Path | None = None,
        clock: Callable[[], int] = wall_clock,
        options: SparkOptions | None = None,
        local: LocalOptions | None = None,
        keeping: Keeping | None = None,
        zone: str | None = None,
    ) -> None:
        self.engine = engine or default_engine()
        check_engine(self.engine)
        options, keeping = options or SparkOptions(), keeping or Keeping()
        root = None if path is None else root_of(path)
        if root is not None:
            _take_over(self.engine, root, clock, options, keeping)
        self._core = Core(self.engine, root, clock, options, local or LocalOptions(), keeping, zone)
        self._held: dict[str, Query] = {}
        """What users hold of registered queries, so that each has one object. One that is stopped goes, and its results
        with it, if the user has let go of it too."""
        self._core.on_stopped = partial(_let_go, weakref.ref(self))
        self._holding = threading.Lock()
        """Guards that. Whoever has it takes no other lock."""
        self._core.follow(is_wall=clock is wall_clock)

    @property
    def zone(self) -> str:
        """The time zone by whose clocks queries are meant that are registered, and in which answers are shown."""
        return self._core.zone

    @property
    def catalog(self) -> Catalog:
        """What has been declared."""
        return self._core.catalog

    @property
    def clock(self) -> Callable[[], int]:
        """What gives the time, in microseconds, for streams stamped on arrival."""
        return self._core.clock

    # -- statements and queries ---------------------------------------------------------------------

    def execute(self, text: str) -> Result:
        """Run the statements of a text one after the other; gives the result of the last one, which has those of all.

        The first that fails ends it; the ones before it stay done.
        """
        results = run_statements(self._core, text, self._query)
        if not results:
            raise BindError("there is no statement in the text")
        return replace(results[-1], script=tuple(results))

    def query(
        self,
        text: str | None = None,
        *,
        name: str | None = None,
        plan: object = None,
        start: Start | None = None,
        **options: object,
    ) -> Query:
        """Register a continuous query, from CQL or from a plan object (a plan, or its JSON form).

        It begins with the rows that its streams retain. ``start``: with ``retained`` a stream that retains none is
        refused; with ``now`` the query sees only rows that come. ``priority``, ``latency`` …: the other options that
        ``CREATE QUERY … WITH (…)`` takes, as Python values.
        """
        if (text is None) == (plan is None):
            raise BindError("give either the text of a query or a plan")
        core = self._core
        given = {**options, "start": start}
        said = options_tree({k: v for k, v in given.items() if v is not None})
        with core.changing():
            if text is not None:
                bound, reads = plan_of_text(core.catalog, text)
            else:
                bound, reads = plan_of_object(plan, core.catalog)
            bound, how = with_options(bound, said, core.catalog)
            found = core.register(bound, reads, name=name, options=how, text="" if text is None else text.strip())
            return self._query(found)

    def _query(self, registered: Registered) -> Query:
        """What users hold of a registered query."""
        with self._holding:
            known = self._held.get(registered.name)
            if known is None or not holds(known, registered):
                known = self._held[registered.name] = Query(self._core, registered)
            return known

    @property
    def queries(self) -> Queries:
        """The registered queries by name, those that have ended included, until they are stopped."""
        return Queries({name: self._query(found) for name, found in self._core.queries.copy().items()})

    def explain(
        self, query: str | None = None, format: str = "text", *, plan: object = None, alternatives: bool = False
    ) -> str:
        """The plan of a registered query, of a query text, or of a plan object, as text, JSON or Mermaid.

        ``alternatives``: all plans that could be run instead, as text or JSON, with what each costs by what has been
        measured of streams and relations, and which of them is chosen.
        """
        if (query is None) == (plan is None):
            raise BindError("give either the name or the text of a query, or a plan")
        core = self._core
        with core.holding():
            if query is None:
                found, options = plan_of_object(plan, core.catalog)[0], QueryOptions()
            elif query in core.queries:
                return explained_query(core, core.queries[query], format, alternatives=alternatives)
            elif query.strip().isidentifier():
                raise CatalogError(f"no query `{query}`", hint=suggest(query, core.queries))
            else:
                found, options = planned_text(core.catalog, query)
            return explained_plan(core, found, options, format, alternatives=alternatives)

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
                with self._core.changing():
                    self._core.drop(declared)
                raise
        return str(found)

    def _load(self, name: str, data: object) -> None:
        """Bring the rows of a file or table into what has just been declared for them."""
        core = self._core
        path = Path(data) if isinstance(data, str | Path) else None
        if name in core.catalog.relations:
            rows = data if path is None else relation_file(core, name, path)
            with core.changing():
                # Nobody has read it yet, so they can be there from the beginning.
                core.change_relation(name, lambda store, when: store.load(rows, replace(when, at=None)), None)
            return
        if path is None:
            self.push(name, data)
        else:
            play(core, {name: path}, close=False)
        newest = self.stream(name).newest
        if abs(newest) < float("inf"):
            self.heartbeat(name, int(newest))

    def create_function(
        self, name: str, function: Callable[..., object], *, args: Sequence[str | DataType], returns: str | DataType
    ) -> None:
        """Let queries call a Python function; types as CQL names them, for example ``["BIGINT", "STRING"]``."""
        self._core.define(function_def(name, function, args, returns))

    # -- data ---------------------------------------------------------------------------------------

    def push(self, name: str, rows: object, *, at: object = None, key: tuple[str, int] | None = None) -> None:
        """Rows into a stream, or into a relation (there perhaps ``at`` an instant). All of them, or none.

        ``key``: a producer and a sequence, such as ``("sensor 7", 41)``. A push whose key has been taken already is
        acknowledged, and its rows are not taken again, also after a restart: so a producer that has no answer sends
        again. The newest 1,000 sequences of a producer are remembered, and the 10,000 producers that sent last.

        What becomes of rows that do not fit a stream is said in its declaration: ``WITH (on_error = …)``. Where rows
        wait in buffers and there is no room for more, it waits for it; with ``when_full="raise"``, and where nobody
        would make room, it raises ``BufferFullError``.
        """
        when = None if at is None else At(to_instant(at, self.zone), isinstance(at, str | date))
        self._core.push(name, rows, when, None if key is None else checked_key(key))

    def heartbeat(self, name: str | None = None, at: object = None) -> None:
        """Progress without data: no more rows of a stream before ``at`` will come (ticks, datetime, or ISO text).

        Without a stream: let those that follow the clock move on with it, though nothing arrives. Where a query waits
        for that, they do so by themselves.
        """
        if name is None:
            self._core.tick()
            return
        self._core.heartbeat(name, to_instant(at, self._core.input(name).definition.zone))

    def close_stream(self, name: str) -> None:
        """No more rows will come: the stream's progress is infinite. Closing twice is closing once."""
        self._core.close_stream(name)

    def stream(self, name: str) -> StreamStatus:
        """How far a stream is, and what it has been given."""
        source = self._core.input(name)  # what comes next makes another one
        fed = source.definition.source is not None
        return StreamStatus(
            source.progress, source.newest_row, source.arrivals, source.late.count, source.lateness, source.apart.count,
            self._core.host.abilities().source_status(source.definition.name) if fed else None,
        )  # fmt: skip

    def late(self, name: str) -> pa.Table:
        """The rows that came too late for a stream, since the last call."""
        core = self._core
        with core.changing():
            source = copy.copy(core.input(name))
            rows = source.take_late()
            core.host.late_taken(source)
            core.inputs[source.definition.name] = source  # not before the host has written it down
            # Written as texts, they must say their zone where the stream would read them in another one.
            plain = self.zone == source.definition.zone == UTC
            return rows if plain else rows.cast(with_zone(rows.schema, self.zone))

    def apart(self, name: str) -> pa.Table:
        """The rows that do not fit a stream ``WITH (on_error = 'apart')``, since the last call: ``place``, ``column``,
        ``reason``, and the ``row`` itself, in JSON where it is a row at all."""
        core = self._core
        with core.changing():
            source = copy.copy(core.input(name))
            rows = source.take_apart()
            core.host.apart_taken(source)
            core.inputs[source.definition.name] = source  # not before the host has written it down
            return rows

    def settle(self) -> None:
        """Return when everything pushed so far has been worked on and subscribers have been called. ``fetch`` does that
        by itself."""
        self._core.settle()

    # -- how it is run ------------------------------------------------------------------------------

    def note(self, **notes: object) -> dict[str, Any]:
        """Note something (JSON) with the database, to be found after the next start; only with a directory.

        Gives all that has been noted, also by ``Query.transfer``.
        """
        core = self._core
        with core.changing() if notes else core.holding():
            abilities = core.host.abilities()
            if notes:
                abilities.note(notes)
            return abilities.notes()

    def metrics(self, of: Literal["work", "queries"] = "work") -> pa.Table:
        """On Spark: what the last micro-batches took, one row for each. On the local engine: what waits in buffers, one
        row for each, and what streams have dropped. ``apart``: how many rows did not fit a stream.

        Of ``"queries"``, on every engine: the latency of each query's results (``Query.latency``), one row for all of
        them, where ``priority`` is NULL, and one for each priority.
        """
        if of not in ("work", "queries"):
            raise InputError(f"there are no metrics of {of!r}", hint="of='work', the default, or of='queries'")
        with self._core.holding():
            if of == "work":
                return self._core.host.metrics()
            return latencies({query.name: query.meter for query in self._core.queries.values()})

    def configure(self, /, *, query: str | None = None, **settings: Any) -> None:
        """Work in another way from now on; answers stay the same, when they come may change.

        ``threading``, ``strategy``, ``workers`` …: see docs/concepts/runtime.md. ``query``: only for what this query
        alone needs.
        """
        core = self._core
        with core.changing():
            abilities = core.host.abilities()
            abilities.configure(settings if query is None else {**settings, "query": query})
        abilities.configured()

    def graph(self) -> GraphView:
        """The operators of all queries, how they are connected and run, what was measured of them so far, and what
        their windows hold."""
        with self._core.holding():
            self._core.check_open()
            return self._core.host.abilities().view()

    def suspend(self, operator: int) -> None:
        """Let an operator (its number in ``graph()``) rest; what comes waits in front of it until ``resume``."""
        with self._core.changing():
            self._core.host.abilities().suspend(operator)

    def resume(self, operator: int) -> None:
        """Let a suspended operator go on."""
        with self._core.changing():
            self._core.host.abilities().resume(operator)

    # -- life ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop working and forget everything that is not on disk; a database with a directory can be opened again."""
        self._core.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Nothing can be done with it any more."""
        return self._core.closed

    _repr_html_ = shown.as_html

    def __repr__(self) -> str:
        streams = counted(len(self.catalog.streams), "stream")
        queries = counted(len(self._core.queries), "query", "queries")
        return f"<Database on {self.engine}: {streams}, {queries}{', closed' if self.closed else ''}>"


def run_script(db: Database, text: str) -> list[Result]:
    """Run the statements of a text, which may have none; gives the result of each."""
    return list(db.execute(text).script) if parse(text) else []


def core_of(db: Database) -> Core:
    """What is behind a database: for the parts of Penstock that stand beside it."""
    return db._core


def query_of(db: Database, name: str) -> Query | None:
    """What users hold of the registered query of this name, if there is one."""
    found = db._core.queries.get(name)
    return None if found is None else db._query(found)


def _take_over(
    engine: str, path: Root, clock: Callable[[], int], options: SparkOptions, keeping: Keeping
) -> None:
    """Let a directory that another engine has written be one that this engine opens."""
    writer = written_by(path) if engine in ("local", "spark") else None
    if writer is None or writer == engine:
        return
    before = Core(writer, path, clock, SparkOptions(inline=writer == "spark"), LocalOptions(), keeping, None)
    try:
        before.host.abilities().hand_over(options.shards or len(os.sched_getaffinity(0)))
    finally:
        before.close()
