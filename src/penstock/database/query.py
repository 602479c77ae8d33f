"""A registered query, as its user holds it."""

from __future__ import annotations

import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa

from penstock.catalog import QueryOptions, retain_example
from penstock.cql.declarations import altered_options, options_tree
from penstock.database.core import Core
from penstock.graph.latency import Latency
from penstock.hosts.incomplete import Incomplete, flagged, with_flag
from penstock.hosts.registered import Before, Registered, Status
from penstock.hosts.results import DEFAULT
from penstock.hosts.standing import Standing
from penstock.hosts.subscribers import Subscription
from penstock.model import shown
from penstock.model.errors import PenstockError, StateError, StorageError
from penstock.model.names import counted
from penstock.model.values import with_zone
from penstock.model.waiting import Look
from penstock.operators.base import StateSize
from penstock.plan.explain import explain_text
from penstock.plan.explanation import Explanation
from penstock.plan.nodes import Query as Plan
from penstock.plan.order import is_ranking
from penstock.scalar.zones import UTC

_LOOK = 100_000
"""Results that may be put together to show where a query stands, anew for each look."""

T = TypeVar("T")


class Query:
    """A continuous query: fetch its results, iterate over them, or subscribe to them.

    Results have positions, from 0. ``fetch`` and iterations are one reader, each subscription is another, and none
    takes anything from the others. What a reader has not had is kept up to a bound, 512 MB or ``WITH (results = …)``.
    """

    def __init__(self, core: Core, registered: Registered) -> None:
        self._core, self._registered = core, registered
        schema, plan = registered.schema, registered.plan
        visible = pa.schema(list(schema)[: len(schema) - plan.hidden])
        self.schema = visible if core.zone == UTC else with_zone(visible, core.zone)
        self._reading = threading.Lock()
        """One at a time reads as ``default``."""
        self._reader: int | None = None
        self._warned = False

    @property
    def name(self) -> str:
        """Its name in the database."""
        return self._registered.name

    @property
    def plan(self) -> Plan:
        """What is evaluated."""
        return self._registered.plan

    @property
    def text(self) -> str:
        """The CQL that it was registered with; empty for a plan object."""
        return self._registered.text

    @property
    def options(self) -> QueryOptions:
        """What stands in ``WITH (…)``."""
        return self._registered.options

    @property
    def reads(self) -> frozenset[str]:
        """The names that its text reads: streams, relations, views."""
        return self._registered.reads

    @property
    def inputs(self) -> frozenset[str]:
        """The declared streams that rows must be pushed into for this query."""
        return self._registered.inputs

    @property
    def relations(self) -> frozenset[str]:
        """The stored relations that the query reads."""
        return self._registered.relations

    @property
    def status(self) -> Status:
        """Whether it runs or is suspended, or how it ended."""
        return self._registered.shown_status

    @property
    def error(self) -> PenstockError | None:
        """What stopped a query that failed."""
        return self._registered.error

    @property
    def answered(self) -> int:
        """How many results it has given: the position of the next one."""
        return self._registered.answered

    @property
    def latency(self) -> Latency:
        """How long its results took from the call that made them certain until they could be read, and how long they
        had waited for that; see ``Latency``."""
        return self._registered.meter.latency

    @property
    def failures(self) -> int:
        """How many values became NULL because computing them failed (division by zero, a bad cast …)."""
        return self._registered.runner.failures

    @property
    def last_failure(self) -> str | None:
        """What the last of the failures was; of a query that failed, what stopped it."""
        return self._registered.runner.last_failure if self.error is None else self.error.message

    @property
    def trouble(self) -> str | None:
        """What stopped a query that failed: what was wrong, in which operator, on which element, and the traceback. Of
        one that goes on, what a subscriber raised last."""
        if self.error is None:
            return self._registered.subscribers.trouble
        return "\n".join([str(self.error), *getattr(self.error, "__notes__", ())])

    @property
    def state(self) -> Mapping[str, StateSize]:
        """What the query remembers (rows, bytes), by operator."""
        return self._registered.runner.sizes()

    # -- results ------------------------------------------------------------------------------------

    def fetch(self, *, wait: bool = True) -> pa.Table:
        """The results since the last fetch: ts, op, then the columns.

        Waits until what was pushed before has been worked on; with ``wait=False`` it takes what is there. Raises
        ``QueryFailed`` once all results before the failure have been fetched.
        """
        results = self._taken(self._shown, wait=wait)
        self._warn_of_rows_before(results)
        return results

    def current(self, *, until: int | None = None) -> pa.Table:
        """The rows of the answer as it stands now, without ts and op: what all its changes come to.

        With ORDER BY they are in that order, with LIMIT alone in the order of their values. No reader misses anything
        for it. ``until``: without changes after this instant, in ticks, as far as they are still kept for a reader.
        """
        query = self._registered
        self._core.tick(query)
        self._core.host.settle(query)
        with query.lock:
            if query.status == "failed" and query.error is not None and not query.results.waiting():
                raise query.error
        rows = self._standing(query.results.current(until), until)
        self._warn_of_rows_before(rows)
        return rows

    def _standing(self, found: Standing, until: int | None) -> pa.Table:
        wanted = pa.schema(list(self.schema)[2:])
        return flagged(found.table().rename_columns(wanted.names).cast(wanted), self._lacking(until))

    @property
    def incomplete(self) -> tuple[Incomplete, ...]:
        """What its results may lack: from which instant to which, and why; nothing if they lack nothing.

        A batch of results says so too: ``penstock.incomplete`` is ``true`` in the metadata of its schema.
        """
        self._core.host.abilities().note_dropped()
        return self._registered.results.marks.all

    def _lacking(self, until: int | None) -> list[Incomplete]:
        """Those of them that the answer as it stands has to do with, or as it stood at an instant."""
        query = self._registered
        now = min((s.named for n in query.inputs if (s := self._core.inputs.get(n)) is not None), default=math.inf)
        return [mark for mark in self.incomplete if mark.covers(now if until is None else min(now, until))]

    @property
    def note(self) -> str | None:
        """What people should know: rows that came before the query and are not in its answer, and options that the
        engine cannot meet."""
        return "; ".join(filter(None, (self._before, self._core.host.remark(self._registered)))) or None

    @property
    def _before(self) -> str | None:
        before = self._registered.before
        if not before:
            return None
        had = " and ".join(f"stream `{name}` had {counted(b.rows, 'row')}" for name, b in before.items())
        are = "is" if sum(b.rows for b in before.values()) == 1 else "are"
        return f"{had} before the query, which {are} not in its answer; {self._remedy}"

    @property
    def _remedy(self) -> str:
        """What helps if rows from before a query are wanted."""
        streams = "stream" if len(self._registered.before or ()) == 1 else "streams"
        last = "those of the last 1000 ticks" if self.plan.clock == "ticks" else "those of the last hour"
        return (
            f"register the query before rows are pushed, or declare the {streams} WITH (retain = 'all'), which keeps "
            f"them for queries to come; {retain_example(self.plan.clock)} keeps {last}"
        )

    def _warn_of_rows_before(self, given: pa.Table) -> None:
        """Warn once a user who pushed first and asked then, and is given nothing.

        As Python does with deprecations, it is told only to code in ``__main__``: a script, a notebook, a prompt.
        """
        before = self._registered.before
        if given.num_rows or self._warned or not before or self.answered:
            return
        if any(self._has_come(name, b) for name, b in before.items()):
            return
        self._warned = True
        if sys._getframe(2).f_globals.get("__name__") == "__main__":
            names = " and ".join(f"`{name}`" for name in before)
            warnings.warn(
                f"rows that were pushed into {names} before a query are not in its answer; {self._remedy}", stacklevel=3
            )

    def _has_come(self, name: str, before: Before) -> bool:
        """Whether a stream has had rows since the query began, or is gone."""
        source = self._core.inputs.get(name)
        return source is None or source.arrivals > before.arrivals

    def transfer(self, write: Callable[[pa.Table], Mapping[str, object] | None], *, wait: bool = True) -> int:
        """Like ``fetch``, but the results count as delivered when ``write`` has returned; gives their number.

        Of a database with a directory: if the process dies before that, they come again after the next start. What
        ``write`` returns (JSON) is noted in the same step, to be found in ``Database.note()``: for example how long the
        file is now, so that what was written after the last such step can be cut off.
        """
        notes: list[Mapping[str, object] | None] = [None]

        def writing(table: pa.Table) -> int:
            if table.num_rows:
                notes[0] = write(self._shown(table))
            return int(table.num_rows)

        return self._taken(writing, wait=wait, notes=notes)

    def _taken(
        self, use: Callable[[pa.Table], T], *, wait: bool, notes: list[Mapping[str, object] | None] | None = None
    ) -> T:
        """Read as ``default``; ``use`` is given the results with hidden columns, without any lock."""
        query = self._registered
        self._core.tick(query, wait=wait)
        if wait:
            self._core.host.settle(query)
        with self._one_reader():
            with query.lock:
                found = query.results.read(DEFAULT)
                if not found[0] and query.status == "failed" and query.error is not None:
                    raise query.error
            try:
                table = query.results.table(found)
                used = use(table)
            except BaseException:
                query.results.give_up(DEFAULT)
                raise
            try:
                query.results.confirm(DEFAULT, found[2], notes=notes[0] if notes else None, table=table)
            except StorageError:
                # Written down, but not forced to the disk: they may count as delivered when the directory is opened
                # again, so the caller gets them now. The next call says that the disk has failed.
                if notes is not None or not found[0] or not query.results.has_confirmed(DEFAULT, found[2]):
                    raise
        return used

    @contextmanager
    def _one_reader(self) -> Iterator[None]:
        """One at a time reads as ``default``."""
        if self._reader == threading.get_ident():
            raise StateError(
                f"results of `{self.name}` are being written by this thread, so it cannot fetch others meanwhile",
                hint="fetch when `write` has returned",
            )
        if not self._reading.acquire(blocking=not self._core.is_inside):
            raise StateError(
                f"results of `{self.name}` are being read by another thread, for which a function cannot wait",
                hint="subscribe to the query, or fetch outside of the function",
            )
        try:
            self._reader = threading.get_ident()
            yield
        finally:
            self._reader = None
            self._reading.release()

    def _shown(self, table: pa.Table) -> pa.Table:
        """Results as their reader gets them: without hidden columns, and in the zone of the database."""
        shown = table.select(self.schema.names) if self.plan.hidden else table
        if shown.schema.equals(self.schema):
            return shown
        return with_flag(shown.cast(self.schema), table.schema.metadata)

    def __iter__(self) -> Iterator[pa.Table]:
        """Batches of results as they come; ends with the query. Waits while other threads push."""
        query = self._registered
        while True:
            self._until(lambda: query.results.waiting() > 0)
            with self._one_reader():
                with query.lock:
                    found = query.results.read(DEFAULT, one=True)
                    if not found[0]:
                        if query.status == "failed" and query.error is not None:
                            raise query.error
                        if query.status != "running":
                            return
                        continue  # another thread has had it
                table = query.results.table(found)
                query.results.confirm(DEFAULT, found[2], table=table)
            yield self._shown(table)

    def _until(self, there: Callable[[], bool], seconds: float | None = None) -> bool:
        """Return when something is there or the query is over; False when so many seconds have passed."""
        query, core = self._registered, self._core
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            with query.lock:
                if there() or query.status != "running":
                    return True
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                core.check_outside()  # a function would wait for itself
                query.changed.wait(left)

    def subscribe(self, callback: Callable[[pa.Table], object], *, position: int | None = None) -> Subscription:
        """Call back with every batch of results from now on, or from a position that is still there.

        It is called without any lock: in the thread that pushes, before ``push`` returns, or where an engine has
        threads in one of this query's own. Batches come in order, one at a time. It may push, query and stop; what it
        raises is in ``trouble``. ``cancel()`` of what this gives ends it.
        """
        subscription = self._registered.subscribers.add(callback, position, self._shown)
        if position is not None:
            self._core.catch_up(self._registered)
        return subscription

    @property
    def retained(self) -> tuple[int, int]:
        """The position of the oldest result that can still be read, and that of the next one."""
        with self._registered.lock:
            return self._registered.results.first, self._registered.results.next

    def read(self, position: int, most: int = 10_000) -> pa.Table:
        """The results from a position on that are there, at most ``most``; no reader misses anything for it.

        Raises ``ResultsGone`` if the first of them is not retained any more: its ``first`` says which is.
        """
        return self._shown(self._registered.results.at(position, most))

    def alter(self, **options: object) -> None:
        """Change options while the query runs, as ``ALTER QUERY … SET (…)`` does: ``priority``, ``latency``, ``lag``,
        ``on_lag``, ``results``. None takes one back. Answers stay the same."""
        self._core.alter(self._registered, partial(altered_options, options_tree(options)))

    def suspend(self) -> None:
        """Let the query rest: what comes waits for it, on disk if there is no room, until ``resume``. Other queries go
        on. It stays suspended when a database with a directory is opened again."""
        self._core.rest(self._registered, suspended=True)

    def resume(self) -> None:
        """Let a suspended query go on where it is."""
        self._core.rest(self._registered, suspended=False)

    def stop(self) -> None:
        """End the query. Results that wait can still be fetched."""
        self._core.stop(self._registered)

    @property
    def waiting(self) -> int:
        """How many results have not been fetched yet."""
        with self._registered.lock:
            return self._registered.results.waiting()

    def peek(self, rows: int = 10) -> pa.Table:
        """The last results that wait, at most so many. They are not taken: ``fetch`` gives them still."""
        return self._shown(self._registered.results.last(rows))

    def wait(self, seconds: float) -> bool:
        """Return when there are new results or the query has ended, at the latest after so many seconds; False then."""
        before = self.answered
        return self._until(lambda: self.answered > before, seconds)

    def ranking(self) -> pa.Table | None:
        """What ``current`` gives of ORDER BY … LIMIT, for a look.

        None for other queries, and where many results wait for a reader.
        """
        query = self._registered
        with query.lock:
            if not is_ranking(self.plan) or query.results.waiting() > _LOOK:
                return None
        return self.current()

    def watch(self, seconds: float = 10.0, *, interval: float = 0.5) -> None:
        """In a notebook: show the query and its latest results, and keep that up to date for so many seconds.

        An interrupt ends it. Results are not taken; see ``penstock.notebook.watch``.
        """
        shown.watch(self, seconds, interval)

    def explain(self) -> str:
        """The plan as text."""
        return Explanation(explain_text(self.plan))

    _repr_html_ = shown.as_html
    _repr_pretty_ = shown.as_text

    def __repr__(self) -> str:
        return f"<Query {self.name}: {self.status}, {self.answered} answers>"

    def __str__(self) -> str:
        return repr(self) if self.note is None or self.answered else f"{self!r}\n{self.note}"


def holds(query: Query, registered: Registered) -> bool:
    """Whether it is what a user holds of this query."""
    return query._registered is registered


def listen(query: Query, callback: Callable[[], None]) -> Callable[[], None]:
    """Call back when there are new results, and when the query ends; what this gives ends it.

    It is called by the thread that has the news, under the query's lock, and must neither wait nor read.
    """
    registered = query._registered
    with registered.lock:
        registered.listeners = (*registered.listeners, callback)

    def cancel() -> None:
        with registered.lock:
            registered.listeners = tuple(each for each in registered.listeners if each != callback)

    return cancel


def standing(query: Query) -> Callable[[], pa.Table]:
    """What makes a table of the answer as it stands at this moment: for who holds the database's lock, to take several
    at one moment, and calls it when the lock is given back."""
    found = query._registered.results.current()
    return lambda: query._standing(found, None)


def prepare(query: Query, look: Look | None = None) -> None:
    """Let what was pushed before be worked on, before ``standing`` is called with the lock; ``look`` may give it up."""
    query._core.tick(query._registered, look=look)
    query._core.host.settle(query._registered, look)


def take(query: Query, *, wait: bool = True) -> pa.Table:
    """As ``fetch``, with the hidden columns that results are ordered by: for ``penstock.testing``."""
    return query._taken(lambda table: table, wait=wait)


def visible(query: Query, table: pa.Table) -> pa.Table:
    """What ``take`` gave, as ``fetch`` would have."""
    return query._shown(table)
