"""The host of ``engine="local"``: one graph for all queries, run by the thread that pushes or by workers.

With ``threading="direct"``, the default, answers are there when ``push`` returns. Otherwise ``push`` returns when the
rows are in a buffer, workers do the rest, and a thread hands answers to queries and their subscribers; ``fetch`` waits
for what was pushed before.

Workers never take the database's lock, so whoever holds it may wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import CatalogError, InputError, suggest
from penstock.graph.graph import Graph, Past
from penstock.graph.operators import Sink
from penstock.graph.sources import Source, Ticks
from penstock.graph.vertices import OperatorVertex
from penstock.graph.view import GraphView
from penstock.hosts import QuerySettings
from penstock.hosts.inprocess import InProcess
from penstock.hosts.local.delivery import Delivery
from penstock.hosts.local.placing import Placing
from penstock.hosts.local.runner import GraphRunner
from penstock.hosts.local.view import graph_view
from penstock.ingest import Batch, StreamInput
from penstock.plan.nodes import Query as Plan
from penstock.reference import Change
from penstock.runtime.run import Runtime
from penstock.runtime.settings import Settings

if TYPE_CHECKING:
    from penstock.database import Database
    from penstock.query import Query
    from penstock.relations import RelationStore

_REPLACE = 1.0
"""Seconds after which measured costs may lead to another placement."""


class LocalHost(InProcess):
    """Runs the graph of one database. Its threads, if it has any, are stopped by ``close``."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.graph = Graph(self._told)
        self.runtime = Runtime()
        self._placing = Placing()
        self._delivery: Delivery | None = None
        self._next_placing = 0.0

    # -- queries ------------------------------------------------------------------------------------

    def runner(self, query: Plan, schema: pa.Schema, settings: QuerySettings) -> GraphRunner:
        return GraphRunner(self, query, schema, settings)

    def begin(self, query: Query) -> None:
        runner = query._runner
        assert isinstance(runner, GraphRunner), "this host made it"
        past, runner.past = runner.past, Past()
        with self.runtime.paused():
            runner.sink = self.graph.add(
                query.name, runner.plan, runner.settings.functions, strict=runner.settings.strict,
                priority=query.options.priority, past=past,
            )  # fmt: skip
            self._place()

    def end(self, runner: GraphRunner, sink: Sink) -> None:
        """A query is over: what only it needs is forgotten."""
        with self.runtime.paused():
            if not self._closed:
                self.graph.remove(sink.query)
                self._place()

    # -- data ---------------------------------------------------------------------------------------

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Query]) -> None:
        name = source.definition.name
        if len(batch):
            self.graph.push(name, batch)
        self.graph.progress(name, source.progress)
        self.graph.flush(name)

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Query]) -> None:
        name = relation.definition.name
        self.graph.change(name, changes)
        self.graph.flush(name)

    def work(self, queries: Sequence[Query]) -> None:
        if self._delivery is None:
            super().work(queries)
        elif self.runtime.settings.threading == "hybrid" and time.monotonic() > self._next_placing:
            self._place_again()

    def settle(self) -> None:
        self.runtime.settle()
        if self._delivery is not None:
            self._delivery.catch_up()

    def _told(self, sink: Sink) -> None:
        if self._delivery is not None:
            self._delivery.tell(sink.query)

    # -- how it is run ------------------------------------------------------------------------------

    def configure(self, settings: Mapping[str, Any]) -> None:
        changes = dict(settings)
        name = changes.pop("query", None)
        now = self.runtime.settings
        if name is not None:
            if name not in self._database.queries:
                hint = suggest(str(name), self._database.queries) or "none is registered"
                raise CatalogError(f"no query `{name}`", hint=hint)
            own = {**now.queries, str(name): {**now.queries.get(str(name), {}), **changes}}
            new = now.changed(queries=own)
        else:
            if "queries" in changes:
                raise InputError("`queries` is not set like this", hint="say query='name' and what is different for it")
            new = now.changed(**changes)
        threads = _has_threads(new)
        if threads and self._delivery is None:
            self._delivery = Delivery(self._database)
        self._place(new)
        if not threads and self._delivery is not None:
            self._delivery.catch_up()
            delivery, self._delivery = self._delivery, None
            delivery.close(wait=False)  # it may be waiting for the lock that is held here

    def _place(self, settings: Settings | None = None) -> None:
        """Run the graph as it is now, in the way that is set."""
        settings = settings or self.runtime.settings
        settings = _known(settings, self.graph)
        vertices = list(self.graph.vertices.values())
        pushing = [v for v in vertices if isinstance(v, Source | Ticks)]
        others = [v for v in vertices if not isinstance(v, Source | Ticks)]
        ways = {settings.threading, *(own.get("threading") for own in settings.queries.values())}
        partitions = self._placing.partitions(others, settings.placement) if "hybrid" in ways else {}
        own = {v.id: settings.of_queries(v.users) for v in others} if settings.queries else {}
        with self.runtime.paused():
            self.runtime.place(others, pushing, partitions, settings, own)
            buffered = _has_threads(settings) or self.runtime.holds
            if self.graph.buffered or buffered:
                self.graph.buffered = buffered
                self.graph.wire()
        self._next_placing = time.monotonic() + _REPLACE

    def _place_again(self) -> None:
        """Where measured costs have become others, so may the placement."""
        self._next_placing = time.monotonic() + _REPLACE
        others = [v for v in self.graph.vertices.values() if not isinstance(v, Source | Ticks)]
        if self._placing.changes(others, self.runtime.settings.placement):
            self._place()

    def operator(self, id: int) -> OperatorVertex:
        """The operator of this number."""
        found = self.graph.vertices.get(id)
        if found is None:
            raise CatalogError(f"there is no operator {id}", hint="db.graph() shows those that there are")
        return found

    def suspend(self, operator: int) -> None:
        with self.runtime.paused():
            self.runtime.suspend(self.operator(operator))
            self.graph.buffered = True
            self.graph.wire()

    def resume(self, operator: int) -> None:
        with self.runtime.paused():
            self.runtime.resume(self.operator(operator))
            self.graph.buffered = _has_threads(self.runtime.settings) or self.runtime.holds
            self.graph.wire()
        self.work([q for q in self._database.queries.values() if q.status == "running"])

    def view(self) -> GraphView:
        return graph_view(self.graph, self.runtime, self._database.queries)

    def close(self) -> None:
        self._closed = True
        self.runtime.close()
        if self._delivery is not None:
            self._delivery.close()


def _has_threads(settings: Settings) -> bool:
    return settings.threading != "direct" or any(
        own.get("threading", "direct") != "direct" for own in settings.queries.values()
    )


def _known(settings: Settings, graph: Graph) -> Settings:
    """Without what was set for queries that are gone."""
    left = {name: own for name, own in settings.queries.items() if name in graph.members}
    return settings if len(left) == len(settings.queries) else replace(settings, queries=left)

