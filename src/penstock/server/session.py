"""What clients hold, and what they are told: sessions, outcomes of statements, and facts about what is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from penstock.server.holding import Hold

Protocol = Literal["http", "flight", "postgres", "python"]
Start = Literal["start", "now"] | int
"""Where a reader of results begins: with the oldest that is retained, with the next one, or at a position."""


@dataclass(frozen=True)
class Session:
    """A client that has said who it is; ``Service`` makes it and checks it with every call."""

    id: str
    user: str
    protocol: Protocol
    remote: str
    """The address of the client, for the list of sessions and the audit log."""
    admin: bool
    token: str | None = None
    """The name of the token that it logged in with; None: with a password."""
    token_id: str | None = None
    """Which one it was: another token of the same name has another."""
    expires: int | None = None
    """When that token expires, in microseconds since 1970."""
    since: int = 0
    """When it logged in, in microseconds since 1970."""


@dataclass(frozen=True)
class Subscribe:
    """``SUBSCRIBE``: the protocol goes on with ``Service.feed(session, query)``, from a position."""

    query: str
    position: int
    """The first result to send: FROM START and FROM NOW are positions by now."""
    name: str | None = None
    """The named subscription that this is, if it is one: ``Service.confirm`` moves it."""


@dataclass(frozen=True)
class Outcome:
    """What one statement gave."""

    tag: str
    """PostgreSQL's command tag: ``CREATE STREAM``, ``INSERT 0 3``, ``SELECT 2``, ``SUBSCRIBE`` …"""
    message: str
    """A line for people, as in the shell."""
    table: pa.Table | None = None
    query: str | None = None
    """The name of a query that was registered."""
    note: str | None = None
    """What people should know besides."""
    subscribe: Subscribe | None = None
    hold: Hold | None = None
    """The memory that the table counts for; it goes with the last reference to it."""


@dataclass(frozen=True)
class Pushed:
    """What became of rows that were pushed: taken (late ones included), kept apart, late."""

    rows: int
    apart: int = 0
    late: int = 0


@dataclass(frozen=True)
class Column:
    """A column, with its type as CQL writes it."""

    name: str
    type: str


@dataclass(frozen=True)
class StreamInfo:
    """A stream; instants in ticks, None where there is none (yet)."""

    name: str
    columns: tuple[Column, ...]
    derived: bool
    clock: str
    """``timestamp`` or ``ticks``."""
    timestamp_by: str | None
    progress: int | None
    """Up to where it is complete; None before anything came, and when it is closed."""
    closed: bool
    newest: int | None
    given: int
    late: int
    lateness: int
    """By how many ticks the latest row came too late."""
    apart: int
    source: str | None
    """Of a stream with a source (FROM spark): ``running``, or why it is not."""
    definition: str | None
    """The statement that declares it; None where it names what the user may not read."""
    owner: str | None
    may_write: bool
    schema: pa.Schema = field(repr=False, compare=False, default_factory=lambda: pa.schema([]))


@dataclass(frozen=True)
class RelationInfo:
    """A stored relation."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rows: int
    definition: str
    owner: str | None
    may_write: bool
    schema: pa.Schema = field(repr=False, compare=False, default_factory=lambda: pa.schema([]))


@dataclass(frozen=True)
class ViewInfo:
    """A named query text."""

    name: str
    columns: tuple[Column, ...]
    definition: str | None
    owner: str | None


@dataclass(frozen=True)
class QueryInfo:
    """A registered query, or one that was stopped and is still listed."""

    name: str
    status: str
    """``running``, ``suspended``, ``ended``, ``stopped`` or ``failed``."""
    columns: tuple[Column, ...]
    """Without ``ts`` and ``op``; empty for one that was stopped."""
    text: str | None
    """Its CQL; None where it names what the user may not read, empty for a plan object."""
    reads: tuple[str, ...]
    """What of the catalog it reads, as far as the user may know."""
    options: Mapping[str, Any]
    stands: bool
    """Whether it has a current result; else its results are a stream."""
    first: int
    """The position of the oldest result that is retained."""
    next: int
    """The position of the next result: as many have come."""
    ended: int | None
    """When it ended, in microseconds since 1970."""
    how: str | None
    """How it ended, for people."""
    note: str | None
    failures: int
    """Values that became NULL because computing them failed."""
    latency: Mapping[str, float | None]
    """``p50``, ``p99``, ``waiting_p99``, in seconds."""
    subscriptions: int
    owner: str | None
    may_change: bool
    """Whether the user may alter, suspend and stop it."""
    schema: pa.Schema | None = field(repr=False, compare=False, default=None)
    """Of its results: ts, op, then the columns."""


@dataclass(frozen=True)
class Subscription:
    """A named subscription: it survives its client and the server."""

    name: str
    query: str
    position: int
    """The first result that is not confirmed."""
    owner: str
    lag: int | None = None
    """Results that are there and not confirmed; None where the user may not read the query any more."""
    gone: int | None = None
    """Of these, results that are not retained any more: the reader is told with ResultsGone."""


@dataclass(frozen=True)
class About:
    """What every client may know of the database."""

    engine: str
    zone: str


@dataclass(frozen=True)
class Health:
    """What a client may know without a credential."""

    ready: bool
    """Whether the server takes requests: not while it starts or ends."""
    version: str
    status: str
    """``starting``, ``ready`` or ``stopping``."""
