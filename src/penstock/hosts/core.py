"""What hosts may ask of the database that they run queries for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from penstock.catalog import Catalog, RelationDef, StreamDef, ViewDef
from penstock.hosts.host import Answers
from penstock.hosts.registered import Registered
from penstock.ingest.instants import Instants
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.errors import PenstockError


class Core(Protocol):
    """The database behind its facade. Everything but ``lock`` is touched under the lock, which is taken before that of
    a query's results."""

    lock: threading.RLock
    catalog: Catalog
    query_count: int
    """How many queries have been given a name by the database."""

    relations: dict[str, RelationStore]
    """The rows of stored relations."""
    history: dict[str, list[Batch]]
    """Rows that streams retain."""
    instants: Instants
    """When changes of relations happen."""

    @property
    def inputs(self) -> Mapping[str, StreamInput]:
        """Where rows of declared streams come in."""

    @property
    def queries(self) -> Mapping[str, Registered]:
        """The registered queries by name, those that have ended included, until they are stopped."""

    def readers(self, stream: str) -> list[Registered]:
        """The running queries that rows of a stream are for."""

    def advance(self, query: Registered) -> None:
        """Take over what a query's runner has."""

    def deliver(self, query: Registered, answers: Answers) -> None:
        """A query has given something new."""

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

    def running(self) -> Iterable[Registered]:
        """The queries that go on."""
