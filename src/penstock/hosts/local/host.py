"""The host of ``engine="local"``: one graph for all queries, run by the thread that pushes or by workers.

With ``threading="direct"``, the default, answers are there when ``push`` returns. Otherwise ``push`` returns when the
rows are in a buffer, workers do the rest, and a thread hands answers to queries and their subscribers; ``fetch`` waits
for what was pushed before.

Workers never take the database's lock, so whoever holds it may wait for them; what would need it is refused to the
functions that they call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from penstock.catalog import FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.graph.graph import Graph, Past
from penstock.graph.operators import Emitting
from penstock.graph.saving import restore, save
from penstock.graph.sharing import demands, raised, worth_it
from penstock.graph.sink import Sink
from penstock.graph.sources import Place, Source, Ticks
from penstock.graph.vertex import Vertex
from penstock.graph.vertices import OperatorVertex
from penstock.graph.view import GraphView
from penstock.hosts.core import Core
from penstock.hosts.durable.kept import Kept
from penstock.hosts.host import Abilities, QuerySettings
from penstock.hosts.inprocess import InProcess
from penstock.hosts.local.delivery import Delivery
from penstock.hosts.local.lags import Lags, suspended
from penstock.hosts.local.placing import Placing, check_partitions
from penstock.hosts.local.resting import Resting
from penstock.hosts.local.room import Admission, runtime_of
from penstock.hosts.local.runner import GraphRunner, sharded, shards_of
from penstock.hosts.local.view import graph_view, metrics, stream_of
from penstock.hosts.local.waiting import Waiting, put_back
from penstock.hosts.options import Keeping, LocalOptions
from penstock.hosts.registered import Registered
from penstock.hosts.trimming import TRIMMING
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.errors import CatalogError, InputError, QueryFailed, SpillError, StorageError, suggest
from penstock.model.waiting import Look
from penstock.operators.state import LoadedState, Saved, State
from penstock.plan.nodes import Query as Plan
from penstock.plan.window import WindowSpec
from penstock.runtime.lines import Bounded
from penstock.runtime.settings import Settings, asked
from penstock.runtime.storage.storage import Storage
from penstock.storage.objects import Root
from penstock.storage.shards import PARTS
from penstock.storage.store import Item

Window = tuple[str, int, WindowSpec]
SLOTS = "slots"
"""Where a saved state says how many shards the directory has on Spark."""
CONVERGE_EVERY = 16
"""Pushes after which operators are looked at that may have become the same."""
_NOW = 2**63
"""After everything that is measured: nothing has been handed to the graph."""
_REPLACE = 1.0
"""Seconds after which measured costs may lead to another placement."""


class LocalHost(InProcess, Abilities):
    """Runs the graph of one database. Its threads, if it has any, are stopped by ``close``."""

    def __init__(
        self, core: Core, options: LocalOptions | None = None, path: Root | None = None, keeping: Keeping | None = None
    ) -> None:
        InProcess.__init__(self, core)
        self._kept = None if path is None else Kept(path, core, self, keeping or Keeping())
        self.zone_is_free = False
        """Whether nobody has said which time zone the database has: then it is that of its directory."""
        Abilities.__init__(self, "local")
        self.graph = Graph(self._told)
        self.runtime = runtime_of(options or LocalOptions(), self._failed, self._bound_of)
        self._admission = Admission(self.graph, self.runtime)
        self._lags = Lags(self.graph, self.runtime, self._fallen_behind, self._stop)
        self._waiting = Waiting()
        self._resting = Resting(core, self.graph, self.runtime)
        self._placing = Placing()
        self._runners: dict[str, GraphRunner] = {}
        self._delivery: Delivery | None = None
        self._next_placing = 0.0
        self._pushes = 0
        self._delivering: tuple[int, Sequence[Source], Sequence[Place], int] = (_NOW, (), (), 0)
        """When rows were handed to the graph last, and where their sources were before."""
        self._changed = False
        """Whether queries have come or gone since it was last seen who calls whom."""
        self._unplaced = False
        """Whether the runtime has not been told, since there is nothing for it to do."""
        self._slots = 0
        """How many shards the directory has on Spark, if it has been there."""
        self._freed = False
        """Whether much memory may be free that the process still has."""

    def abilities(self) -> LocalHost:
        return self

    def disk(self) -> Storage:
        return self.runtime.storage

    def note_dropped(self) -> None:
        if self.runtime.storage.gaps and not self.core.is_inside:
            with self.core.lock:
                self.tell_dropped()

    def tell_dropped(self) -> None:
        """Let queries know of rows that have been dropped, before they have later results. Under the lock."""
        for stream, (first, last) in self.runtime.storage.taken_gaps().items():
            if self._kept is not None and stream in self.core.inputs:
                self._kept.keeper.dropped_rows(self.core.inputs[stream], first, last)
            self.core.lacking(stream, first, last)

    @property
    def combines(self) -> bool:
        return self._kept is not None and self._kept.gathers and not self.graph.buffered

    @property
    def on_its_own(self) -> bool:
        return self._delivery is not None

    @property
    def inside(self) -> bool:
        return self._delivery is not None and self.runtime.inside

    def zone(self) -> str:
        self.zone_is_free = True
        return super().zone()

    def open(self) -> None:
        if self._kept is not None:
            self._kept.open()
            self.work(list(self.core.running()))  # what waited for operators that do not rest any more
            self._kept.begin()

    # -- queries ------------------------------------------------------------------------------------

    def runner(self, query: Plan, schema: pa.Schema, settings: QuerySettings) -> GraphRunner:
        if self._kept is not None:
            settings = self._kept.named(settings)
        return GraphRunner(self, query, schema, settings)

    def begin(self, query: Registered) -> None:
        runner = query.runner
        assert isinstance(runner, GraphRunner), "this host made it"
        runner.name = query.name
        if self._kept is not None:
            runner.number = self._kept.keeper.registered(query)
        runner.wants = demands(runner.plan, runner.settings.functions)
        others = [self.core.queries[name] for name, r in self._runners.items() if runner.may_share_with(r)]
        with self.runtime.paused(self.graph.above(set().union(*(q.inputs | q.relations for q in (query, *others))))):
            self._merge(runner, query)
            runner.had_past = bool(runner.past.rows or runner.past.changes)
            runner.past = Past()
            self._changed = True
            if own := _own(query.options):
                self.runtime.settings = self.runtime.settings.changed_for(query.name, own)
            if self.graph.buffered:
                self._tidy()  # before a worker works on what is gone

    def _merge(self, runner: GraphRunner, query: Registered) -> None:
        """Put a query into the graph, with windows that it shares with others where that saves memory."""
        shared: set[Window] = set()
        for want in runner.wants:
            others = [r for r in self._runners.values() if want.window in {d.window for d in r.wants}]
            if any(want.window in r.raised for r in others):
                shared.add(want.window)
                continue
            # Those that have had rows already keep what they have.
            free = [r for r in others if self._unused(r)]
            if worth_it(d for r in (*free, runner) for d in r.wants if d.window == want.window):
                shared.add(want.window)
                for other in free:
                    self._raise(other, {want.window})
        self._add(runner, query, shared)

    def _unused(self, runner: GraphRunner) -> bool:
        """Whether a query has been given nothing yet but how far its streams are."""
        sink = runner.sink
        if sink is None or runner.had_past:
            return False
        member = self.graph.members[sink.query]
        used = any(v.touched for v in member.vertices if v is sink or not v.stateless)
        return not used and member.is_current(self.graph) and not any(v.state == "suspended" for v in member.vertices)

    def _raise(self, runner: GraphRunner, windows: set[Window]) -> None:
        """Let a query that has had nothing yet share windows after all."""
        assert runner.sink is not None, "it runs"
        query = self.core.queries[runner.sink.query]
        self.graph.remove(query.name)
        runner.past = Past(progress={name: self.core.inputs[name].progress for name in query.inputs})
        self._add(runner, query, runner.raised | windows)
        runner.past = Past()

    def _add(self, runner: GraphRunner, query: Registered, windows: set[Window]) -> None:
        runner.raised = windows
        urgent = {name: self.core.inputs[name].urgent() for name in query.inputs}
        runner.past.early = {name: rows for name, rows in urgent.items() if rows is not None}
        runner.past.overtakes = self._overtakes
        runner.sink = self.graph.add(
            query.name, raised(runner.plan, windows), runner.settings.functions, strict=runner.settings.strict,
            priority=query.options.priority, past=runner.past, masters=self.runtime.settings.masters,
            # Rows that have gone ahead of their place may still be on their way through operators that are there.
            shares=not runner.past.early,
            apart=query.options.start == "now",
        )  # fmt: skip
        self._runners[query.name] = runner

    def end(self, runner: GraphRunner, sink: Sink) -> None:
        """A query is over: what only it needs is forgotten."""
        with self.runtime.paused(self.graph.needed(sink.query)):
            if not self.closed:
                self._runners.pop(sink.query, None)
                self.graph.remove(sink.query)
                self.runtime.settings = self.runtime.settings.only_of(self.graph.members, self.graph.vertices)
            self._changed = self._freed = True
            if self.graph.buffered and not self.closed:
                self._tidy()  # its threads end with it

    def finishing(self, query: Registered) -> None:
        self._settle({vertex.id for vertex in self.graph.needed(query.name)})

    def altering(self, query: Registered, options: QueryOptions, suspended: bool) -> None:
        if self._kept is not None:
            self._kept.keeper.altered(query, options, suspended)

    def altered(self, query: Registered, before: QueryOptions) -> None:
        options, name = query.options, query.name
        if name in self.graph.members:
            if options.priority != before.priority:
                self.graph.reprioritise(name, options.priority)
                self.runtime.reorder()
                if self.runtime.settings.has_partitions and self._placing.differs(*self._to_place()):
                    self._place()
            if _own(options) != _own(before):
                settings = self.runtime.settings
                own = {k: v for k, v in settings.queries.get(name, {}).items() if k not in _own(before)}
                self._adjust(replace(settings, queries={**settings.queries, name: {**own, **_own(options)}}))
            if not query.suspended and suspended(self.graph, self.runtime)[name]:
                self._lags.resumed({name})
            self._hold()
        self.work(list(self.core.running()))

    def _fallen_behind(self, name: str) -> None:
        query = self.core.queries[name]
        self.altering(query, query.options, True)
        query.suspended = True
        self._hold()

    # -- data ---------------------------------------------------------------------------------------

    def admits(self, source: StreamInput, rows: pa.Table) -> bool:
        if not self.graph.buffered:
            return True
        if self._changed:
            self._tidy()
        return self._admission.admits(source, rows)

    def room(self) -> AbstractContextManager[Callable[[], None]]:
        return self.runtime.watching()

    def released(self, source: StreamInput) -> Batch:
        return source.nothing if self._kept is None else self._kept.released(source)

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Registered]) -> None:
        self._delivering = (_NOW, (), (), 0)
        if self._kept is not None:
            self._kept.rows(source, batch)
        self._into_graph(source, batch)
        for shards in sharded(readers) if self._slots else ():
            if len(batch):
                shards.push(source.definition.name, batch)
            shards.progress(source.definition.name, source.progress)

    def _into_graph(self, source: StreamInput, batch: Batch) -> None:
        name = source.definition.name
        if self._changed:
            self._tidy()
        if self.graph.twins.pairs:
            self._pushes += 1
            if self._pushes % CONVERGE_EVERY == 0:
                self._converge()
        waiting = self.runtime.rows_in() if self.graph.buffered else 0
        self._delivering = time.perf_counter_ns(), self.graph.sources(name), self.graph.places(name), waiting
        if self._overtakes and (urgent := source.urgent_came()) is not None:
            self.graph.push_early(name, urgent)
        if len(batch.ts):
            self.graph.push(name, batch)
        self.graph.progress(name, source.progress)
        self.graph.flush(name)

    @property
    def _overtakes(self) -> bool:
        """Whether prioritised rows need not wait for slack."""
        return self.runtime.settings.mode != "normal"

    def reached(
        self, source: StreamInput, batch: Batch, readers: Sequence[Registered]
    ) -> Literal["none", "some", "all"]:
        began, sources, places, waiting = self._delivering
        if self._slots and any(sharded(readers)):
            return "some"
        if self.graph.buffered and self.runtime.rows_in() != waiting:
            return "some"
        members = [self.graph.members[query.name] for query in readers if query.name in self.graph.members]
        if any(v.stats.began >= began for member in members for v in member.vertices if _remembers(v)):
            return "some"
        for begun, place in zip(sources, places, strict=True):
            begun.go_back(place)
        if self._kept is None or not self._kept.is_written:
            return "none"
        self._into_graph(source, batch)  # it is written down, so it counts
        return "all"

    @property
    def wrote(self) -> bool:
        return self._kept is None or self._kept.is_written

    @property
    def keeps(self) -> bool:
        return self._kept is not None

    def _converge(self) -> None:
        """Operators of queries that came at different times may have become the same. One that is suspended keeps its
        number until it goes on."""
        ahead = any(source.urgent() is not None for source in self.core.inputs.values())
        if ahead or self.runtime.holds or not self.runtime.idle:
            return  # nobody has to pause for that
        with self.runtime.paused():
            if not self.runtime.idle:
                return
            if self.graph.converge():
                self._tidy()

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Registered]) -> None:
        name = relation.definition.name
        if self._kept is not None:
            self._kept.changes(relation, changes)
        if self._changed:
            self._tidy()
        self.graph.change(name, changes)
        self.graph.flush(name)
        for shards in sharded(readers) if self._slots else ():
            shards.change(name, changes)

    def work(self, queries: Sequence[Registered]) -> None:
        if self._delivery is None:
            self._advance(queries)
        else:
            for query in queries if self._slots else ():
                if any(sharded([query])) and not query.suspended:
                    self.core.advance(query)
            if self.runtime.settings.has_partitions and time.monotonic() > self._next_placing:
                self._place_again()
        if self.runtime.storage.gaps:
            self.tell_dropped()
        if self._lags.bounds and self.graph.buffered:
            self._lags.check()
        if self.graph.buffered:
            self.runtime.changed()  # it may be what others wait for

    def _advance(self, queries: Iterable[Registered]) -> None:
        for query in queries:
            if not (query.suspended and any(sharded([query]))):
                self.core.advance(query)

    def after(self) -> None:
        # What there was to do has been done, or workers do it.
        if self._kept is not None:
            self._kept.after()
        if self._freed:
            self._freed = False
            TRIMMING.trim()

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        if self._kept is not None:
            self._kept.keeper.declared(definition)

    def dropped(self, name: str) -> None:
        if self._kept is not None:
            self._kept.keeper.dropped(name)
        self.graph.forget_relation(name)
        self._admission.forget(name)

    def leaving(self, query: Registered) -> None:
        if self._kept is not None and not self.closed:
            self._kept.keeper.stopped(query)

    def late_taken(self, source: StreamInput) -> None:
        if self._kept is not None:
            self._kept.keeper.taken(source, "late")

    def apart_taken(self, source: StreamInput) -> None:
        if self._kept is not None:
            self._kept.keeper.taken(source, "apart")

    def delivered(
        self, runner: GraphRunner, upto: int, notes: Mapping[str, object] | None, rows: Sequence[int] | None
    ) -> None:
        """The reader of a query who is remembered has all results before a position. ``rows``: digests of the last."""
        if self._kept is not None:
            self._kept.keeper.delivered(runner.number, upto, notes, rows)

    def notes(self) -> dict[str, Any]:
        return {} if self._kept is None else self._kept.keeper.noted()

    def note(self, notes: Mapping[str, object]) -> None:
        if self._kept is not None:
            self._kept.keeper.note(notes)

    @property
    def kept(self) -> Kept | None:
        """The directory, if there is one."""
        return self._kept

    def save(self) -> None:
        """Save the state now. Without the lock."""
        if self._kept is not None:
            self._kept.saver.save()

    def taken(self) -> State:
        """What the operators remember, when nothing is under way. Under the lock."""
        self.runtime.settle()
        if self._delivery is not None:
            self._delivery.catch_up()
        if self._changed:
            self._tidy()
        self.tell_dropped()
        running = list(self.core.running())
        for query in running:
            self.core.advance(query)
        with self.runtime.paused():
            state = save(self.graph) | self._waiting.save(self.runtime)
        if self._slots:
            state[SLOTS] = Saved({"slots": self._slots})
        for shards in sharded(running):
            state |= shards.save()
        return state

    def hand_over(self, shards: int) -> None:
        assert self._kept is not None, "it has a directory"
        from penstock.hosts.handing import to_spark
        from penstock.hosts.spark.parts.definitions import check_stream

        with self.core.lock:
            for definition in self.core.catalog.streams.values():
                check_stream(definition, self._kept.root)  # before anything is another engine's
            self._resting.clear()
            self._hold(everything=True)  # the other engine begins where all is worked on
            self._kept.keeper.note({})  # so that it is another state than the one that is saved
        self._kept.saver.save()
        with self._kept.saver.still():
            to_spark(self._kept.keeper.store, self._kept.root, shards)

    def needed(self) -> int | None:
        """Nothing of the logs is read any more."""
        return None

    def again(self, item: Item) -> None:
        """An entry of engine ``spark``, before it handed over."""
        raise StorageError(
            f"entry {item.number} is of engine='spark', and the state that covers it is damaged",
            hint="restore the directory from a backup",
        )

    def restored(self, state: LoadedState, queries: Mapping[str, tuple[Registered, Mapping[str, Any]]]) -> None:
        """Go on with the queries of a graph that was saved."""
        if PARTS in state:
            assert self._kept is not None, "it has been read"
            raise StorageError(
                f"{self._kept.root}: the newest saved state that can be read is of engine='spark'",
                hint="open it with engine='spark', then with engine='local'",
            )
        plans: dict[str, tuple[Plan, Mapping[str, Callable[..., object]]]] = {}
        self._slots = state[SLOTS].meta["slots"] if SLOTS in state else 0
        for name, (query, record) in queries.items():
            runner = query.runner
            assert isinstance(runner, GraphRunner), "this host made it"
            runner.name, runner.number = name, record["runner"]["number"]
            runner.resume(record["failures"], ended=query.status == "ended")
            if query.status != "running":
                continue
            if "shards" in record["runner"]:
                runner.shards = shards_of(runner, record["runner"]["shards"], self._slots, state)
                continue
            runner.wants = demands(runner.plan, runner.settings.functions)
            runner.raised = {runner.wants[i].window for i in record["runner"]["raised"]}
            self._runners[name] = runner
            plans[name] = raised(runner.plan, runner.raised), runner.settings.functions
            if own := _own(query.options):
                self.runtime.settings = self.runtime.settings.changed_for(name, own)
        restore(self.graph, state, plans)
        for name, runner in self._runners.items():
            runner.sink, runner.had_past = self.graph.members[name].sink, True
            self.graph.reprioritise(name, self.core.queries[name].options.priority)
        self._changed = True
        if any(self.core.queries[name].suspended for name in self._runners):
            self._place()
        put_back(self.graph, state)

    def settle(self, query: Registered | None = None, look: Look | None = None) -> None:
        self._settle(look=look)

    def _settle(self, ids: Collection[int] | None = None, look: Look | None = None) -> None:
        """Wait for what was pushed so far to be worked on. ``ids``: see ``Runtime.settle``."""
        if self.inside:
            return  # it would wait for itself
        self.runtime.settle(ids, look)
        if (delivery := self._delivery) is not None:  # another thread may be changing it
            delivery.catch_up(look)

    def _told(self, sink: Sink) -> None:
        delivery = self._delivery
        if delivery is not None:
            delivery.tell(sink.query)

    def _bound_of(self, vertex: Vertex) -> Bounded | None:
        """The stream whose rows an operator sends as they came, and what it says of its buffer."""
        stream = stream_of(vertex)
        definition = None if stream is None else self.core.catalog.streams.get(stream)
        return None if definition is None else (definition.name, definition.buffer, definition.drops)

    def _failed(self, vertex: Vertex | None, error: Exception) -> None:
        """Called by a worker: what waited for an operator cannot be read."""
        if isinstance(error, SpillError) and isinstance(vertex, OperatorVertex):
            vertex.failed(error, ())

    def _stop(self, name: str, reason: QueryFailed) -> None:
        self.core.fail(self.core.queries[name], reason)

    # -- how it is run ------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """After queries came or went: see who calls whom, once for all of them."""
        self._changed = False
        if self.graph.buffered:
            self._place()
        else:
            self._unplaced = True  # nobody but the view needs to know
            self.runtime.let_go()
            self.graph.wire()

    def configure(self, settings: Mapping[str, Any]) -> None:
        changes = dict(settings)
        name = changes.pop("query", None)
        if name is not None and name not in self.core.queries:
            hint = suggest(str(name), self.core.queries) or "none is registered"
            raise CatalogError(f"no query `{name}`", hint=hint)
        changes = asked(changes)
        if "operator" in changes:
            self._configure_operator(changes.pop("operator"), changes)
            return
        now = self.runtime.settings
        wanted = now.changed(**changes) if name is None else now.changed_for(str(name), changes)
        if "partitions" in changes or "queues" in changes:
            self._see()
            check_partitions(wanted, self.graph)
        self._adjust(wanted)

    def _adjust(self, settings: Settings) -> None:
        """Run the graph with other settings, if possible while all workers go on."""
        settings = settings.only_of(self.graph.members, self.graph.vertices)
        if self.runtime.adjust(settings, self._settings_of(settings)):
            self._lags.become(settings, self.graph.members)
        else:
            self._freed = True  # with its threads
            self._place(settings)

    def _settings_of(self, settings: Settings) -> dict[int, Settings]:
        """The operators for which other settings hold than for all."""
        return settings.of_operators({v.id: v.users for v in self._others()})

    def _others(self) -> list[OperatorVertex]:
        """The operators but those where rows come in."""
        return [v for v in self.graph.vertices.values() if not isinstance(v, Source | Ticks)]

    def _configure_operator(self, id: object, changes: dict[str, Any]) -> None:
        mode = changes.pop("mode", None)
        if changes or mode is None or not isinstance(id, int):
            raise InputError(
                "for one operator only the `mode` of the buffers in front of it is set",
                hint="as in db.configure(mode='normal', experiments={'operator': 7}); db.graph() has the numbers",
            )
        self.runtime.settings.changed(mode=mode)  # checks it
        self._see()
        self.runtime.overtake(self.operator(id), mode)

    def _place(self, settings: Settings | None = None) -> None:
        """Run the graph as it is now, in the way that is set."""
        self._unplaced = False
        settings = settings or self.runtime.settings
        settings = settings.only_of(self.graph.members, self.graph.vertices)
        pushing = [v for v in self.graph.vertices.values() if isinstance(v, Source | Ticks)]
        others, own = self._others(), self._settings_of(settings)
        partitions = self._placing.partitions(others, settings, own) if settings.has_partitions else {}
        threads = settings.has_threads
        if threads and self._delivery is None:
            self._delivery = Delivery(self.core)
        prioritised = [name for name, stream in self.core.catalog.streams.items() if stream.priority is not None]
        overtaken, held = self.graph.overtaken(prioritised), self._resting.held()
        self.runtime.place(others, pushing, partitions, settings, own, overtaken, held, self._wire)
        self._lags.become(settings, self.graph.members)
        self._next_placing = time.monotonic() + _REPLACE
        if not threads and self._delivery is not None:
            delivery, self._delivery = self._delivery, None
            delivery.catch_up()
            delivery.close(wait=False)  # it may be waiting for the lock that is held here

    def _wire(self, ids: Collection[int]) -> None:
        """Buffers have come or gone."""
        buffered = self.runtime.settings.has_threads or self.runtime.holds
        if self.graph.buffered or buffered:
            self.graph.buffered = buffered
            self.graph.wire(ids)

    def _place_again(self) -> None:
        """Where measured costs have become others, so may the placement. Buffers without use go."""
        self._next_placing = time.monotonic() + _REPLACE
        if self._placing.changes(*self._to_place()) or self.runtime.has_spare:
            self._place()

    def _to_place(self) -> tuple[list[OperatorVertex], Settings, dict[int, Settings]]:
        settings = self.runtime.settings
        return self._others(), settings, self._settings_of(settings)

    def operator(self, id: int) -> OperatorVertex:
        """The operator of this number."""
        found = self.graph.vertices.get(id)
        if found is None:
            raise CatalogError(f"there is no operator {id}", hint="db.graph() shows those that there are")
        return found

    def suspend(self, operator: int) -> None:
        self._see()
        self._resting.add(self.operator(operator))
        self._hold()

    def resume(self, operator: int) -> None:
        found = self.operator(operator)
        self._resting.remove(found)
        self._lags.resumed(found.users)
        self._hold()
        self.work(list(self.core.running()))

    def _hold(self, *, everything: bool = False) -> None:
        """Let operators rest that are to, and no others. ``everything``: let all go on."""
        for query in self.core.running():
            query.meter.look_up()  # results that wait there are of calls before the one that lets them go on
        self._see()
        self.runtime.hold(set() if everything else self._resting.held(), self._moved)

    def _moved(self, ids: Collection[int]) -> None:
        """Buffers have come or gone in front of operators that rest or go on."""
        if self._delivery is None:
            self._advance(self.core.running())  # first: results that waited in a buffer count from their own calls
        self._wire(ids)

    def _see(self) -> None:
        """Let the runtime know the graph as it is."""
        if self._changed:
            self._tidy()
        if self._unplaced:
            self._place()

    def view(self) -> GraphView:
        self._see()
        return graph_view(self.graph, self.runtime, self.core.queries)

    def metrics(self) -> pa.Table:
        return metrics(self.graph, self.runtime, self.core.apart())

    def close(self) -> None:
        if self._kept is not None and not self.closed:
            self._kept.close()
        self.closed = True
        self.runtime.close()
        if self._delivery is not None:
            self._delivery.close()


def _remembers(vertex: OperatorVertex) -> bool:
    """Whether it makes a difference that an operator has worked."""
    return not vertex.stateless and not (isinstance(vertex, Emitting) and vertex.as_it_is)


def _own(options: QueryOptions) -> dict[str, Any]:
    """What a query says in WITH of how it is run."""
    latency = None if options.latency is None else max(1, options.latency) / 1_000_000
    said = {"latency": latency, "lag": options.lag, "on_lag": options.on_lag}
    return {name: value for name, value in said.items() if value is not None}
