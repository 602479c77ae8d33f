"""The database behind its facade: the lock, the streams' inputs, the relations' rows and the registered queries.

One lock guards what changes it: rows that come in, declarations, the queries that there are. Rows that are made while
they are read, callbacks and clocks run without it. Functions that queries call run with it where the host works in the
thread that pushes: other calls that change something wait for them, those who read results do not, since these have
locks of their own (``Registered``). Such a function cannot change the database that it works for: ``check_outside``.

A call that changes something takes the lock, does its part, gives the lock back and calls ``after``: the host begins to
work if it has not yet, and subscribers are called.

It holds what the catalog declares, the queries, and of the data only what ``ingest`` says it holds, plus the history
that streams with ``WITH (retain = …)`` ask for, which is forgotten as the stream moves on.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain

from penstock.catalog import Catalog, FunctionDef, QueryOptions, StreamDef
from penstock.database.altering import Altering
from penstock.database.beginning import Beginning
from penstock.database.declaring import Declaring
from penstock.database.gathering import Gathering, is_plain
from penstock.database.planning import planned
from penstock.database.ticking import Ticking
from penstock.hosts.history import History
from penstock.hosts.host import Answers, QuerySettings
from penstock.hosts.meter import meter_of
from penstock.hosts.opening import host
from penstock.hosts.options import Keeping, LocalOptions, SparkOptions
from penstock.hosts.registered import KEPT, Over, Registered, Status
from penstock.hosts.subscribers import Subscribers
from penstock.ingest.flood import check_beginning, check_change, check_rows
from penstock.ingest.instants import Instants
from penstock.ingest.keys import Key
from penstock.ingest.relations import At, RelationStore, When
from penstock.ingest.streams import StreamInput, Written
from penstock.model import tracing
from penstock.model.batch import Batch
from penstock.model.change import CHANGES, Change
from penstock.model.errors import (
    CatalogError,
    InputError,
    PenstockError,
    QueryFailed,
    StateError,
    StorageError,
    suggest,
)
from penstock.model.schema import Clock
from penstock.model.waiting import Look
from penstock.plan.answers import answer_schema
from penstock.plan.nodes import Query as Plan
from penstock.plan.nodes import stream_scans
from penstock.rows.apart import Rows
from penstock.rows.times import TimeForm
from penstock.scalar.zones import UTC
from penstock.scalar.zones import checked as checked_zone
from penstock.storage.objects import Root


class Core(Declaring, Ticking, Beginning, Altering):
    """See above. What hosts may ask of it is ``hosts.core.Core``."""

    def __init__(
        self,
        engine: str,
        path: Root | None,
        clock: Callable[[], int],
        options: SparkOptions,
        local: LocalOptions,
        keeping: Keeping,
        zone: str | None,
    ) -> None:
        self._kept = keeping.results
        self.catalog = Catalog(UTC if zone is None else checked_zone(zone, InputError))
        self.clock = clock
        self.stopwatch: Callable[[], float] = getattr(clock, "seconds", time.perf_counter)
        self.began: float | None = None
        """When the call began that has the lock, or had it last; None while what is on disk is taken up."""
        self.lock = threading.RLock()
        self.inputs: dict[str, StreamInput] = {}
        self.relations: dict[str, RelationStore] = {}
        self.history: dict[str, History] = {}
        self.queries: dict[str, Registered] = {}
        self.over: dict[str, Over] = {}
        """Queries that were stopped, the last ones last: at most ``KEPT``, and none whose name is taken again."""
        self.instants = Instants(self.catalog, self.inputs, self.relations, self.queries)
        self.query_count = 0
        self.closed = False
        Ticking.__init__(self)
        self._stamped: tuple[str, ...] = ()
        """The streams that are stamped on arrival; replaced as a whole, so it is read without the lock."""
        self._changer: int | None = None
        """The thread that has the lock to change something, and may be calling functions of users."""
        self._gathering = Gathering(self)
        self.on_stopped: Callable[[str], object] = lambda name: None
        """Called with the name of a query that is gone."""
        self._news: deque[Subscribers] = deque()
        """Subscribers that the threads which gave rows call when they have left the lock."""
        self.host = host(engine, self, path, options, local, keeping)
        if zone is None:
            self.catalog.zone = self.host.zone()
        self.host.open()

    @property
    def zone(self) -> str:
        """The time zone by whose clocks queries are meant that are registered."""
        return self.catalog.zone

    def check_open(self) -> None:
        """Refuse to do anything with a database that is closed."""
        if self.closed:
            raise StateError("the database is closed", hint="connect again")

    def after(self, *, waits: bool = True) -> None:
        """The lock has been given back: let the host work, and call subscribers. Never called with the lock."""
        self.host.after()
        self.call_subscribers(waits=waits)

    def call_subscribers(self, *, waits: bool = True) -> None:
        """Call the subscribers for whom there is something new. Never called with the lock. ``waits``: in this thread;
        else in one of each query's own."""
        while self._news:
            try:
                subscribers = self._news.popleft()
            except IndexError:  # another thread has
                return
            try:
                if waits or not subscribers.wake():
                    subscribers.call()
            except BaseException:
                self._news.append(subscribers)  # they may not have heard everything: they do with the next call
                raise

    @property
    def is_inside(self) -> bool:
        """Whether a function that a query calls has called."""
        return self._changer == threading.get_ident() or self.host.inside

    def check_outside(self) -> None:
        """Refuse what a function that a query calls must not do, since the operators are at work."""
        if self.is_inside:
            raise StateError(
                "a function that a query calls cannot do this to the database that is calling it",
                hint="subscribe to the query and do it in the callback: that is called when the rows have been taken, "
                "and may push, query and stop",
            )

    @contextmanager
    def changing(self, *, though_closed: bool = False) -> Iterator[None]:
        """With the lock; afterwards, also where it fails half-way, the host works and subscribers are called."""
        self.check_outside()
        began = self.stopwatch()
        try:
            with self.lock:
                if not though_closed:
                    self.check_open()
                self.began = began
                self._changer = threading.get_ident()
                try:
                    yield
                finally:
                    self._changer = None
        except BaseException:
            with suppress(PenstockError):
                self.after()
            raise
        self.after()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """With the lock, to look at what others must not change meanwhile."""
        self.check_outside()
        began = self.stopwatch()
        with self.lock:
            self._changer, self.began = threading.get_ident(), began
            try:
                yield
            finally:
                self._changer = None

    # -- what hosts say -------------------------------------------------------------------------------

    def readers(self, stream: str) -> list[Registered]:
        return [q for q in self.queries.values() if q.status == "running" and stream in q.inputs]

    def running(self) -> list[Registered]:
        return [q for q in self.queries.values() if q.status == "running"]

    def apart(self) -> dict[str, int]:
        return {name: source.apart.count for name, source in self.inputs.items() if source.apart.count}

    def advance(self, query: Registered) -> None:
        while query.status == "running":
            try:
                answers = query.runner.run()
            except Exception as error:
                self.fail(query, query.failure(error))
                return
            if answers is not None and len(answers):
                self.deliver(query, answers)
                if self.began is not None:
                    query.runner.measure(query.meter, answers, self.stopwatch(), self.began)
            if query.runner.ended:
                self.end(query)
            if answers is None:
                return

    def deliver(self, query: Registered, answers: Answers) -> None:
        results = query.results
        with query.lock:
            results.append(answers)
            self._tell(query)
        if results.due:
            results.add_up()

    def fail(self, query: Registered, error: PenstockError) -> None:
        self._over(query, "failed", error)

    def end(self, query: Registered) -> None:
        self._over(query, "ended")

    def _over(self, query: Registered, status: Status, error: PenstockError | None = None) -> None:
        with query.lock:
            query.error, query.status, query.ended = error, status, _now()
        query.runner.close()
        with query.lock:
            self._tell(query)

    def _tell(self, query: Registered) -> None:
        """Let readers know that there is something new. Under the lock of the query too."""
        query.changed.notify_all()
        for listener in query.listeners:
            listener()
        if not query.subscribers.all:
            return
        if self.host.on_its_own:
            query.subscribers.wake()
        else:
            self._news.append(query.subscribers)

    # -- queries --------------------------------------------------------------------------------------

    def register(
        self,
        plan: Plan,
        reads: frozenset[str],
        *,
        name: str | None = None,
        options: QueryOptions | None = None,
        text: str = "",
        into: StreamDef | None = None,
    ) -> Registered:
        """Start a bound plan as a query. ``into``: the derived stream that is declared with it."""
        options = options or QueryOptions()
        count, position = self.query_count, self.catalog.next_position
        if into is not None:
            self.catalog.add(into)
        try:
            return self._register(plan, reads, self._free_name() if name is None else name, options, text, into)
        except PenstockError:
            self.query_count = count  # the name is free again
            if into is not None:
                self.catalog.remove(into.name)
                self.catalog.skip_positions(position)
            raise

    def _register(
        self, plan: Plan, reads: frozenset[str], name: str, options: QueryOptions, text: str, into: StreamDef | None
    ) -> Registered:
        if name in self.queries:
            raise CatalogError(f"there is a query `{name}` already", hint="STOP QUERY it, or use another name")
        if options.start == "retained":
            self.check_retained(plan)
        functions = {n: f.call for n, f in self.catalog.functions.items()}
        with tracing.span("plan", query=name):
            query = self.made(name, planned(self, plan, options), functions, reads, options, text)
        query.into = into
        self.instants.check(query)
        self.check_past(query)
        self.start(query)
        return query

    def made(
        self,
        name: str,
        plan: Plan,
        functions: Mapping[str, Callable[..., object]],
        reads: frozenset[str],
        options: QueryOptions,
        text: str,
    ) -> Registered:
        """A query that is not running yet; its plan is what is evaluated."""
        schema = answer_schema(plan)
        runner = self.host.runner(plan, schema, QuerySettings(functions, options.strict))
        read = [self.inputs[scan.stream] for scan in stream_scans(plan)]
        meter = meter_of(read, self.stopwatch())
        return Registered(name, plan, schema, runner, reads, options, text, self.host.results_lock(), meter, self._kept)

    def start(self, query: Registered) -> None:
        """Let a query begin, with what there is for it from before."""
        name = query.name
        self.note_past(query)
        self.queries[name] = query
        try:
            self._feed_past(query)
            self.host.begin(query)
        except PenstockError:
            del self.queries[name]
            raise
        self.over.pop(name, None)
        self.host.work([query])
        self.poke([query])

    def restore(self, query: Registered) -> None:
        self.queries[query.name] = query

    def _free_name(self) -> str:
        self.query_count += 1
        while f"q{self.query_count}" in self.queries:
            self.query_count += 1
        return f"q{self.query_count}"

    def query(self, name: str) -> Registered:
        """The query of this name."""
        if name not in self.queries:
            hint = "it has been stopped; SHOW ALL QUERIES says when" if name in self.over else None
            hint = hint or suggest(name, self.queries) or "none is registered"
            raise CatalogError(f"no query `{name}`", hint=hint)
        return self.queries[name]

    def stop(self, query: Registered, over: Over | None = None) -> None:
        """End a query and free its name. ``over``: what was known of it when it ended, before a restart. Without the
        lock."""
        self.check_outside()
        if query.status == "running":
            self.host.finishing(query)
        with self.changing(though_closed=True):
            if self.queries.get(query.name) is query:
                query.over = query.at_end(_now()) if over is None else over
                self.host.leaving(query)
            if query.status == "running":
                self._over(query, "stopped")
            if self.queries.get(query.name) is query:
                del self.queries[query.name]
                self._list(query.over)
                self.on_stopped(query.name)
                self.host.stopped(query)
        query.subscribers.close()

    def _list(self, over: Over | None) -> None:
        if over is not None:
            self.over[over.name] = over
            while len(self.over) > KEPT:
                del self.over[next(iter(self.over))]

    def catch_up(self, query: Registered) -> None:
        """Tell subscribers who begin with results that are there. Without the lock."""
        with query.lock:
            if self.host.on_its_own and query.status == "running" and query.subscribers.wake():
                return
        if self.is_inside:
            self._news.append(query.subscribers)  # a function has subscribed: when the lock has been given back
        else:
            query.subscribers.call()

    def _feed_past(self, query: Registered) -> None:
        """Give a new query the relations as they are, the history that streams retain, and their progress."""
        past: dict[str, list[Change]] = {}
        for name in query.relations:
            store = self.relations[name]
            clock = query.plan.clock if query.inputs else self.instants.clock_of(name)
            store.forget(self.instants.passed(clock))
            # A query without streams is evaluated at 0: what happened before is there from the beginning.
            past[name] = store.initial(0 if not query.inputs else -math.inf)
        if not query.inputs:
            check_beginning(query, chain.from_iterable(past.values()))
        for name, changes in past.items():
            query.runner.change(name, changes)
            query.dating.dated(changes)
        if not query.inputs:
            query.dating.begun, query.dating.earlier = True, self.instants.counted
            query.runner.progress(CHANGES, query.dating.earlier)
        for name in query.inputs:
            if name in self.history and query.options.start != "now" and (rows := self.history[name].retained):
                query.runner.push(name, rows)
            source = self.inputs[name]
            if source.progress > -math.inf:
                query.runner.progress(name, source.progress)


    # -- rows -----------------------------------------------------------------------------------------

    def input(self, name: str) -> StreamInput:
        """Where rows of a stream come in."""
        self.check_open()
        found = self.inputs.get(name) or self.inputs.get(name.lower())
        if found is not None:
            return found
        definition = self.catalog.stream(name)
        raise InputError(f"stream `{definition.name}` is derived from a query, so nothing can be put into it")

    def given(self, name: str) -> int:
        """How many rows a stream has been given so far, or changes a relation. Without the lock."""
        store = self.relations.get(name)
        return self.input(name).arrivals if store is None else store.changes

    def push(self, name: str, rows: object, at: At | None = None, key: Key | None = None) -> None:
        """Rows into a stream, or into a relation; not if it has what has this key. Without the lock."""
        self.check_open()
        if key is not None:
            self.host.abilities().check_keys()
        target: StreamInput | RelationStore | None = self.inputs.get(name)
        if target is None:
            if name not in self.relations and name.lower() in self.relations:
                name = name.lower()
            target = self.relations.get(name) or self.input(name)
        if isinstance(target, StreamInput) and at is not None:
            raise InputError(f"stream `{name}` takes its instants from its rows, not from `at`")
        # Without the lock: rows may be made while they are read, by code that takes its time or wants the lock too.
        if isinstance(target, RelationStore):
            time_form = None if self.zone == UTC else TimeForm("", self.zone)
            table = target.read(rows, time_form)
            with self.changing():
                self.change_relation(name, lambda store, when: store.load(table, when, time_form), at, key)
            return
        definition = target.definition
        target.check_pushed()
        if (
            self.host.combines and key is None and definition.on_error == "refuse" and is_plain(rows)
            and self._gathering.push(definition.name, definition, rows)
        ):  # fmt: skip
            return
        read = target.read(rows)
        self._push(name, definition, read, rows, key)
        if read.stopped is not None:
            raise read.stopped

    def _push(self, name: str, definition: StreamDef, read: Rows, rows: object, key: Key | None) -> None:
        if not self._pushed(name, definition, read, rows, key):
            with self.host.room() as wait:
                while not self._pushed(name, definition, read, rows, key):
                    wait()

    def _pushed(self, name: str, definition: StreamDef, read: Rows, rows: object, key: Key | None) -> bool:
        now = self.now()
        with self.changing():
            return self.admit(name, definition, read, rows, now, key)

    def admit(
        self, name: str, definition: StreamDef, read: Rows, rows: object, now: int | None, key: Key | None = None
    ) -> bool:
        """Take rows, if there is room. Under the lock."""
        source = self.input(name)
        if key is not None and source.keys.has(key, source.where):
            return True
        if not self.host.admits(source, read.table):
            return False
        if source.definition is not definition:  # somebody has declared it anew meanwhile
            read = source.read(rows)
        self._take(source, partial(StreamInput.push, rows=read, now=now, key=key), stamps=len(read) > 0, now=now)
        return True

    def take_written(self, name: str, definition: StreamDef, written: Written, now: int | None, key: Key) -> None:
        """Take rows that are in files, unless the stream has what has this key, or is another one. Without the lock."""
        with self.changing():
            source = self.inputs.get(name)
            if source is None or source.definition is not definition or source.keys.has(key, source.where):
                return
            rows = sum(file.rows for file in written.files)
            self._take(source, partial(StreamInput.take, written=written, now=now, key=key), stamps=rows > 0, now=now)

    def heartbeat(self, name: str, at: int) -> None:
        """Progress of a stream without rows. Without the lock."""
        now = self.now()
        with self.changing():
            self._take(self.input(name), partial(StreamInput.heartbeat, at=at, now=now))

    def close_stream(self, name: str) -> None:
        """No more rows will come. Without the lock."""
        with self.changing():
            source = self.input(name)
            if not source.closed:
                self._take(source, StreamInput.close)

    def now(self) -> int | None:
        """What the clock says, if a stream moves on with it. It is the user's: it is asked without the lock."""
        return self.clock() if self._stamped or self._idle else None

    def stamp_idle(self, source: StreamInput, now: int | None) -> None:
        """Rows have come: other streams that are stamped on arrival move on with the clock, since what comes later is
        stamped later, or the same. One that is further already stays there: another thread may have asked the clock
        later and come first."""
        for name in self._stamped:
            other = self.inputs[name]
            if other is not source and not other.closed:
                self._take(other, partial(StreamInput.heartbeat, at=self.clock() if now is None else now))

    def _take(
        self,
        source: StreamInput,
        take: Callable[[StreamInput], Batch],
        *,
        stamps: bool = False,
        now: int | None = None,
    ) -> None:
        """Take rows or progress into a stream, and hand them to its readers. All, or nothing.

        ``stamps``: rows have come, so streams that are stamped on arrival move on with the clock, to ``now``; what is
        refused, or has no rows, says nothing of the time.

        What it comes to is found out aside. It counts when the host has it: whatever stops this before, an interrupt
        too, leaves the stream as it was.
        """
        name = source.definition.name
        readers = self.readers(name)
        new = copy.copy(source)
        batch = self._taken_in(new, take)
        for query in readers:
            if query.every_window:
                check_rows(query, source, new, batch)
        if self.began is not None and (source.stamps.wanted or self.host.on_its_own):
            new.stamp(self.began)
        try:
            self.host.deliver(new, batch, readers)
        except PenstockError:
            raise
        except BaseException as error:
            reached = self.host.reached(new, batch, readers)
            if reached == "some":
                # It was stopped half-way: some operators have the rows, some have not.
                self._taken(new, batch)
                self._broken(readers, error)
            elif reached == "all":
                self._taken(new, batch)
                self.host.work(readers)
            raise
        self._taken(new, batch)
        if stamps:
            with suppress(StorageError):  # the rows are in; the next call moves these streams
                self.stamp_idle(new, now)
        self.host.work(readers)

    def _taken_in(self, source: StreamInput, take: Callable[[StreamInput], Batch]) -> Batch:
        batch = take(source)
        return self.host.released(source) if source.spans else batch

    def _taken(self, source: StreamInput, batch: Batch) -> None:
        name = source.definition.name
        source.pass_on(batch)
        self.inputs[name] = source
        if name in self.history:
            self.history[name].add(batch, source.progress)
        if name in self._lags:
            self._came(source, batch)

    def again(self, name: str, take: Callable[[StreamInput], Batch]) -> None:
        """Take in what a stream was given before a restart: it has been found right then."""
        new = copy.copy(self.inputs[name])
        batch = self._taken_in(new, take)
        readers = self.readers(name)
        self.host.deliver(new, batch, readers)
        self._taken(new, batch)
        self.host.work(readers)

    def changed_again(
        self, name: str, changes: Sequence[Change], clock: Clock | None, times: bool, key: Key | None
    ) -> None:
        """Take in changes that were made to a relation before a restart."""
        store = self.relations[name].copy(key)
        store.replay(changes)
        store.clock, store.times = clock, times
        readers = [self.queries[q.name] for q in self.instants.readers(name)]
        readers = [q for q in readers if q.status == "running"]
        self.host.change(store, changes, readers)
        self._changed(name, store, changes, readers)

    def _broken(self, readers: Sequence[Registered], error: BaseException) -> None:
        for query in readers:
            if query.status == "running":
                way = "stop it and register it again"
                failure = QueryFailed(
                    f"query `{query.name}` was interrupted while it worked ({type(error).__name__})",
                    hint="some of its operators have the last rows and some do not: "
                    + (f"close the database and open it again, and it goes on; or {way}" if self.host.keeps else way),
                )
                query.interrupted = self.host.keeps
                self.fail(query, failure)

    def change_relation(
        self, name: str, change: Callable[[RelationStore, When], list[Change]], at: At | None, key: Key | None = None
    ) -> int:
        """Apply a change to a relation at an instant; without one, right after all instants that have been named."""
        self.catalog.relation(name)
        if key is not None and self.relations[name].keys.has(key, self.relations[name].where):
            return 0
        found = (self.queries[q.name] for q in self.instants.readers(name))
        readers = [q for q in found if q.status == "running"]
        when = self.instants.when(name, at)
        alone = [q for q in readers if not q.inputs and q.every_window]
        before = self.relations[name]
        store = before.copy(key)
        changes = change(store, when)
        store.times = store.times or (at is not None and at.time)
        for query in alone:
            dating = replace(query.dating)
            dating.dated(changes)
            check_change(query, {**self.relations, name: before}, dating.last)
        for query in readers:
            query.meter.changes = self.began or 0.0
        try:
            self.host.change(store, changes, readers)
        except PenstockError:
            raise
        except BaseException as error:
            if self.host.wrote:
                self.relations[name] = store
                self._broken(readers, error)
            raise
        self._changed(name, store, changes, readers)
        return len(changes)

    def _changed(
        self, name: str, store: RelationStore, changes: Sequence[Change], readers: Sequence[Registered]
    ) -> None:
        self.relations[name] = store
        self.catalog.given_times = self.catalog.given_times or store.timed
        self.instants.changed(name, changes)
        store.forget(self.instants.passed(self.instants.clock_of(name)))
        self.host.work(readers)
        self.poke(readers)

    # -- the end ----------------------------------------------------------------------------------

    def define(self, definition: FunctionDef) -> None:
        """Let queries call a function of the user's. Without the lock."""
        with self.changing():
            self.add_function(definition)

    def settle(self, query: Registered | None = None, look: Look | None = None) -> None:
        """Return when everything given so far has been worked on, and subscribers have been called. ``look`` may give
        up the former."""
        self.check_outside()
        self.host.settle(query, look)
        with self.lock:
            told = list(self.queries.values()) if query is None else [query]
        for each in told:
            each.subscribers.call(wait=True)

    def close(self) -> None:
        """Stop working and forget everything that is not on disk."""
        self.check_outside()
        with self.lock:
            if self.closed:
                return
            self.closed = True
            told = list(self.queries.values())
        # Without the lock: work may be under way that needs it. Subscribers hear what there is while it can be read.
        with ExitStack() as last:  # all of it happens, whatever a subscriber raises or a user interrupts
            last.callback(self._forget)
            if self._timer is not None:
                last.callback(self._timer.close)  # it may be waiting for what the host does
            last.callback(self.host.close)
            for query in reversed(told):
                last.callback(query.subscribers.close)

    def _forget(self) -> None:
        """The host is closed: nothing goes on."""
        with self.lock:
            for query in list(self.queries.values()):
                if query.status == "running":
                    self._over(query, "stopped")
                self.host.stopped(query)
            self.queries.clear()
            self._stamped = self._idle = ()
            self.inputs.clear()
            self.history.clear()
            self.relations.clear()
            if self._disk is not None:
                self._disk.close()


def _now() -> int:
    return time.time_ns() // 1_000
