"""Everything that a client can ask for, checked against who asks. Protocols call nothing else.

All methods may be called from any thread and may wait; asyncio loops call them in a pool. What a user may not read is
not there for it: errors and hints name only what it may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.database.database import Database
from penstock.model.types import DataType
from penstock.server.feeds import Feed, Page
from penstock.server.scram import Verifier
from penstock.server.session import (
    Health,
    Outcome,
    Protocol,
    Pushed,
    QueryInfo,
    RelationInfo,
    Session,
    Start,
    StreamInfo,
    Subscription,
    ViewInfo,
)
from penstock.server.settings import Settings

__all__ = ["Feed", "Outcome", "Page", "Service", "Session", "Subscription"]


class Service:
    """One database for all clients. Bounded by ``Settings``: sessions, named subscriptions; a feed for each query."""

    def __init__(
        self, db: Database, settings: Settings | None = None, *, directory: Path | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """``directory``: where the audit log is; without one it goes to the logger. ``clock``: microseconds since 1970,
        for tokens and sessions."""
        self.settings = settings or Settings()

    # -- who it is ------------------------------------------------------------------------------------

    def login_token(self, token: str, *, protocol: Protocol, remote: str) -> Session:
        """A session for who has this token; LoginFailed. Of ``http``, the same one for the same token and address."""
        raise NotImplementedError

    def login(self, user: str, password: str, *, protocol: Protocol, remote: str) -> Session:
        """A session for a user and its password, or one of its tokens; LoginFailed."""
        raise NotImplementedError

    def scram(self, user: str) -> Verifier:
        """What a SCRAM exchange needs; for a user that is not there, one that no password fits."""
        raise NotImplementedError

    def login_verified(self, user: str, *, protocol: Protocol, remote: str) -> Session:
        """A session for a user after a SCRAM exchange has succeeded."""
        raise NotImplementedError

    def logout(self, session: Session) -> None:
        """The client is gone."""
        raise NotImplementedError

    def check(self, session: Session) -> None:
        """Refuse a session that is over: logged out, its token expired or withdrawn. Every other method does that."""
        raise NotImplementedError

    # -- statements -----------------------------------------------------------------------------------

    def execute(
        self, session: Session, text: str, parameters: Sequence[object] = (), *, deadline: float | None = None
    ) -> list[Outcome]:
        """Run the statements of a text in order; the first that fails ends it, those before it stay done.

        ``parameters``: of ``$1`` … or ``?``. ``deadline``: seconds that a plain SELECT may take, at most the setting.
        """
        raise NotImplementedError

    def describe(self, session: Session, text: str) -> tuple[list[DataType | None], pa.Schema | None]:
        """The types of the parameters of one statement (None: any) and the schema of its result (None: it has none),
        without running it."""
        raise NotImplementedError

    # -- rows -----------------------------------------------------------------------------------------

    def push(
        self, session: Session, name: str, rows: object, *, at: object = None, key: tuple[str, int] | None = None
    ) -> Pushed:
        """Rows into a stream or a relation, all or none; ``key``: a producer and a sequence, for repeats."""
        raise NotImplementedError

    def heartbeat(self, session: Session, name: str, at: object) -> None:
        """No more rows of a stream before an instant."""
        raise NotImplementedError

    def close_stream(self, session: Session, name: str) -> None:
        """No more rows of a stream at all."""
        raise NotImplementedError

    def late(self, session: Session, name: str) -> pa.Table:
        """Take the rows that came too late for a stream, since the last call: who may write to it may."""
        raise NotImplementedError

    def apart(self, session: Session, name: str) -> pa.Table:
        """Take the rows that did not fit a stream, since the last call."""
        raise NotImplementedError

    # -- queries --------------------------------------------------------------------------------------

    def create_query(
        self, session: Session, *, text: str | None = None, plan: object = None, name: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> QueryInfo:  # fmt: skip
        """Register a continuous query, from CQL or from a plan (its JSON form)."""
        raise NotImplementedError

    def query(self, session: Session, name: str) -> QueryInfo:
        """A query, also one that was stopped and is still listed; CatalogError."""
        raise NotImplementedError

    def queries(self, session: Session, *, ended: bool = True) -> list[QueryInfo]:
        """All that the user may read; ``ended``: also those that were stopped."""
        raise NotImplementedError

    def alter(self, session: Session, name: str, options: Mapping[str, object]) -> QueryInfo:
        """Change options while the query runs; None takes one back."""
        raise NotImplementedError

    def suspend(self, session: Session, name: str) -> QueryInfo:
        raise NotImplementedError

    def resume(self, session: Session, name: str) -> QueryInfo:
        raise NotImplementedError

    def stop(self, session: Session, name: str) -> QueryInfo:
        """End a query; gives how it ended."""
        raise NotImplementedError

    def current(self, session: Session, query: str) -> pa.Table:
        """The result as it stands; StateError for a query whose results are a stream."""
        raise NotImplementedError

    def feed(self, session: Session, query: str) -> Feed:
        """The results of a query; ``read`` checks that the user still may."""
        raise NotImplementedError

    # -- named subscriptions --------------------------------------------------------------------------

    def subscription(
        self, session: Session, name: str, *, query: str | None = None, start: Start = "now"
    ) -> Subscription:
        """The named subscription; where there is none, one is made for ``query`` that begins at ``start``."""
        raise NotImplementedError

    def subscriptions(self, session: Session) -> list[Subscription]:
        """Those of the user; all for who administers."""
        raise NotImplementedError

    def confirm(self, session: Session, name: str, position: int) -> None:
        """The client has every result before a position. It is durable when this returns."""
        raise NotImplementedError

    def drop_subscription(self, session: Session, name: str) -> None:
        raise NotImplementedError

    # -- looking around -------------------------------------------------------------------------------

    def streams(self, session: Session) -> list[StreamInfo]:
        raise NotImplementedError

    def stream(self, session: Session, name: str) -> StreamInfo:
        """A stream that the user may read or write to; CatalogError."""
        raise NotImplementedError

    def relations(self, session: Session) -> list[RelationInfo]:
        raise NotImplementedError

    def relation(self, session: Session, name: str) -> RelationInfo:
        raise NotImplementedError

    def rows(self, session: Session, relation: str) -> pa.Table:
        """What a relation holds now."""
        raise NotImplementedError

    def views(self, session: Session) -> list[ViewInfo]:
        raise NotImplementedError

    def explain(self, session: Session, query: str, format: str = "text") -> str:
        """The plan of a registered query, or of a query text: text, json or mermaid."""
        raise NotImplementedError

    def graph(self, session: Session, format: Literal["json", "svg", "mermaid", "text"] = "json") -> str:
        """The operators of the queries that the user may read."""
        raise NotImplementedError

    def metrics(self, session: Session, of: Literal["work", "queries"] = "work") -> pa.Table:
        raise NotImplementedError

    def configure(self, session: Session, *, query: str | None = None, **settings: Any) -> None:
        """Work in another way from now on; for who administers."""
        raise NotImplementedError

    def create_function(
        self, session: Session, name: str, source: str, *, args: Sequence[str], returns: str
    ) -> None:
        """Let queries call the Python function of this name in a source text: only if the settings allow it, and for who
        administers."""
        raise NotImplementedError

    def sys_table(self, session: Session, name: str) -> pa.Table:
        """``streams``, ``relations``, ``queries``, ``operators``, ``buffers``, ``sessions``, ``batches``, ``late``,
        ``failed``, ``subscriptions``: what ``sys.name`` is in a plain SELECT."""
        raise NotImplementedError

    def tables(self, session: Session) -> Mapping[str, pa.Schema]:
        """All that a plain SELECT may read, with its columns; those of ``sys`` as ``sys.name``."""
        raise NotImplementedError

    def sessions(self, session: Session) -> list[Session]:
        """All for who administers, else the user's own."""
        raise NotImplementedError

    def health(self) -> Health:
        """Needs no session."""
        raise NotImplementedError
