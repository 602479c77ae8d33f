"""What hosts may ask of the database that they run queries for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from penstock.catalog import Catalog, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.hosts.history import History
from penstock.hosts.host import Answers
from penstock.hosts.registered import Over, Registered
from penstock.ingest.instants import Instants
from penstock.ingest.keys import Key
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput, Written
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.errors import PenstockError
from penstock.model.schema import Clock
from penstock.plan.nodes import Query as Plan


class Core(Protocol):
    """The database behind its facade. Everything but ``lock`` is touched under the lock, which is taken before that of
    a query's results."""

    lock: threading.RLock
    stopwatch: Callable[[], float]
    """Seconds, to measure how long something takes."""
    catalog: Catalog
    query_count: int
    """How many queries have been given a name by the database."""

    relations: dict[str, RelationStore]
    """The rows of stored relations."""
    history: dict[str, History]
    """Rows that streams retain."""
    instants: Instants
    """When changes of relations happen."""

    @property
    def is_inside(self) -> bool:
        """Whether a function that a query calls has called."""

    @property
    def inputs(self) -> Mapping[str, StreamInput]:
        """Where rows of declared streams come in."""

    @property
    def queries(self) -> Mapping[str, Registered]:
        """The registered queries by name, those that have ended included, until they are stopped."""

    @property
    def over(self) -> dict[str, Over]:
        """Queries that were stopped and are still listed."""

    def readers(self, stream: str) -> list[Registered]:
        """The running queries that rows of a stream are for."""

    def now(self) -> int | None:
        """What the clock says, if a stream is stamped by it. Without the lock."""

    def take_written(self, name: str, definition: StreamDef, written: Written, now: int | None, key: Key) -> None:
        """Take rows that are in files, unless the stream has what has this key, or is another one. ``Overtaken`` if
        some of them are late. Without the lock."""

    def advance(self, query: Registered) -> None:
        """Take over what a query's runner has."""

    def deliver(self, query: Registered, answers: Answers) -> None:
        """A query has given something new."""

    def lacking(self, stream: str, first: Instant, last: Instant) -> None:
        """Rows of a stream between two instants have been dropped: the running queries that read it lack them."""

    def fail(self, query: Registered, error: PenstockError) -> None:
        """A query cannot go on."""

    def end(self, query: Registered) -> None:
        """A query has given its last results."""

    def apart(self) -> dict[str, int]:
        """How many rows of which streams did not fit and were kept apart."""

    def put(self, definition: StreamDef | RelationDef | ViewDef) -> None:
        """Declare something."""

    def restore(self, query: Registered) -> None:
        """Take in a query that was registered before a restart."""

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

    def start(self, query: Registered) -> None:
        """Let a query begin, with what there is for it from before."""

    def stop(self, query: Registered, over: Over | None = None) -> None:
        """End a query and free its name. ``over``: what was known of it when it ended, before a restart. Without the
        lock."""

    def alter_again(self, name: str, options: QueryOptions, suspended: bool) -> None:
        """A query was given other options, suspended or resumed before a restart."""

    def drop(self, name: str) -> None:
        """Forget a stream, relation or view that nothing uses."""

    def again(self, name: str, take: Callable[[StreamInput], Batch]) -> None:
        """Take in what a stream was given before a restart: it has been found right then."""

    def changed_again(
        self, name: str, changes: Sequence[Change], clock: Clock | None, times: bool, key: Key | None
    ) -> None:
        """Take in changes that were made to a relation before a restart."""

    def running(self) -> Iterable[Registered]:
        """The queries that go on."""
