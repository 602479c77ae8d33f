"""Everything that a client can ask for, checked against who asks. Protocols call nothing else.

All methods may be called from any thread and may wait; asyncio loops call them in a pool. What a user may not read is
not there for it: errors and hints name only what it may.

Declarations go one after the other (``_declaring``): who owns a thing is written down before it is there, so a server
that is killed in between has at most an owner of nothing, which the next start forgets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.cql import ast
from penstock.cql.declarations import plan_of_text
from penstock.cql.plan_objects import plan_of_object
from penstock.cql.text import parse
from penstock.database.database import Database, core_of, query_of
from penstock.database.query import Query, prepare, standing
from penstock.database.results import counts_aside
from penstock.hosts.registered import Registered
from penstock.model import tracing
from penstock.model.errors import (
    AccessDenied,
    BindError,
    CatalogError,
    LimitExceeded,
    LoginFailed,
    PenstockError,
    StateError,
    suggest,
)
from penstock.model.types import DataType
from penstock.model.version import VERSION
from penstock.server import access as who
from penstock.server.access import Access
from penstock.server.audit import FILE as AUDIT
from penstock.server.audit import REFUSED, Audit
from penstock.server.executing import Executing, sessions_table, subscriptions_table
from penstock.server.feeds import Feed, Page, SharedFeed
from penstock.server.gate import Gate
from penstock.server.holding import Holding
from penstock.server.looking import SYS, Looking, is_table
from penstock.server.moment import Moment
from penstock.server.scram import Verifier
from penstock.server.session import (
    About,
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
from penstock.server.sessions import Sessions
from penstock.server.settings import Settings
from penstock.server.stop import Patience, Stop
from penstock.server.subscriptions import Named, Subscriptions
from penstock.server.texts import RowsFormat, rows_of
from penstock.server.throttle import Throttle

__all__ = ["Feed", "Outcome", "Page", "Service", "Session", "Subscription"]


_NAME = 63
"""Characters of a name that nobody has vouched for, in the audit log."""
_AT_ONCE = 4
"""Passwords that are looked at together."""


def _wall_clock() -> int:
    return time.time_ns() // 1_000


class Service:
    """One database for all clients. Bounded by ``Settings``: sessions, named subscriptions, what is held for
    clients; a feed for each query."""

    def __init__(
        self, db: Database, settings: Settings | None = None, *, directory: Path | None = None,
        clock: Callable[[], int] = _wall_clock,
    ) -> None:  # fmt: skip
        """``directory``: where the audit log is; without one it goes to the logger. ``clock``: microseconds since 1970,
        for tokens and sessions."""
        self.settings = settings or Settings()
        self.status: Literal["starting", "ready", "stopping"] = "ready"
        self.ports: dict[str, int] = {}
        """Where the other protocols listen."""
        self._db, self._core, self._clock = db, core_of(db), clock
        notes = db.note()
        self.access = Access(lambda: notes.get(who.NOTE), lambda made: self._note({who.NOTE: made}), clock)
        self._subscriptions = Subscriptions(notes, self._note, self.settings.subscriptions)
        self._sessions = Sessions(self.settings.sessions, self.settings.idle, clock)
        self.audit = Audit(None if directory is None else directory / AUDIT, self.settings.audit, clock)
        self._refused = Audit(None if directory is None else directory / REFUSED, self.settings.audit, clock)
        self._throttle = Throttle(clock)
        self._verifying = threading.BoundedSemaphore(_AT_ONCE)
        """A wrong password counts when it has been looked at: so ``_AT_ONCE`` more than the throttle allows may be."""
        self.holding = Holding(self.settings.held_memory, self.settings.user_memory)
        self._gate = Gate(self.access, self._core)
        self._looking = Looking(db, self._gate, self._subscribed)
        self._declaring = threading.RLock()
        """Declarations go one after the other; its holder takes the database's lock, and no one the other way."""
        self._feeding = threading.Lock()
        self._feeds: dict[str, SharedFeed] = {}
        """One for each registered query that a client has read; it goes with the query."""
        self._executing = Executing(self, db, self._gate)
        self._forget_what_is_gone()

    def _note(self, notes: Mapping[str, Any]) -> None:
        self._db.note(**notes)

    def _forget_what_is_gone(self) -> None:
        """What a server that was killed left behind: owners and grants of things that are not there, subscriptions to
        queries that are not."""
        there = {(kind, name) for kind in ("stream", "relation", "view", "query") for name in self._gate.there(kind)}
        there |= {("stopped", name) for name in self._core.over}
        refused = {(kind, name) for kind, name in self.access.named() if self._core.catalog.kind_of(name) == kind}
        self.access.forget(self.access.named() - there - refused)
        self._subscriptions.drop(*(s.name for s in self._subscriptions.all if s.query not in self._core.queries))

    def close(self) -> None:
        """Readers look once more, and nothing is written any more. The database stays open."""
        with self._feeding:
            feeds, self._feeds = list(self._feeds.values()), {}
        for feed in feeds:
            feed.close()
        self._executing.close()
        self.audit.close()
        self._refused.close()

    # -- who it is ------------------------------------------------------------------------------------

    def login_token(self, token: str, *, protocol: Protocol, remote: str) -> Session:
        """A session for who has this token; LoginFailed. Of ``http``, the same one for the same token and address."""
        with self._login(None, protocol, remote):
            user, name, expires = self.access.of_token(token)
        return self._session(user, protocol, remote, name, expires)

    def login(self, user: str, password: str, *, protocol: Protocol, remote: str) -> Session:
        """A session for a user and its password, or one of its tokens; LoginFailed, Throttled."""
        token = self.access.token_as_password(user, password)
        if token is None:
            with self._verifying, self._login(user, protocol, remote):
                self._throttle.check(user, remote)
                self.access.check_password(user, password)
        return self._session(user, protocol, remote, *(token or (None, None)))

    def scram(self, user: str, *, remote: str) -> list[Verifier]:
        """What a SCRAM exchange needs: one of these is to be shown; they have one salt. For a user that is not there,
        one that no password fits. Throttled."""
        self._throttle.check(user, remote)
        return self.access.scram(user)

    def login_verified(self, user: str, shown: Verifier | None, *, protocol: Protocol, remote: str) -> Session:
        """A session for a user after a SCRAM exchange, which has shown one of the verifiers; None: none of them."""
        with self._verifying, self._login(user, protocol, remote):
            self._throttle.check(user, remote)
            if shown is None:
                raise LoginFailed("the user or the password is wrong")
            name = self.access.verified(user, shown)
            expires = None if name is None else self.access.state.tokens[name].expires
        return self._session(user, protocol, remote, name, expires)

    def logout(self, session: Session) -> None:
        """The client is gone."""
        self._sessions.close(session)

    @contextmanager
    def _login(self, user: str | None, protocol: Protocol, remote: str) -> Iterator[None]:
        try:
            yield
        except AccessDenied as error:
            # A wrong token does not count: nobody guesses one.
            unseen = 0 if user is None else self._throttle.failed(user, remote)
            facts = {"unseen before": unseen} if unseen else {}
            self._refused.write(
                (user or "")[:_NAME], "login refused", protocol=protocol, remote=remote, why=error.message, **facts
            )
            raise

    def _session(self, user: str, protocol: Protocol, remote: str, token: str | None, expires: int | None) -> Session:
        return self._sessions.open(
            user, protocol, remote, admin=self.access.administers(user), token=token,
            token_id=self.access.credential(user, token), expires=expires,
        )  # fmt: skip

    def check(self, session: Session) -> None:
        """Refuse a session that is over: its user is gone, its token expired or withdrawn. Every method does that."""
        self._gate.check(session)

    @contextmanager
    def asked(self, session: Session, *given: str) -> Iterator[None]:
        """What a client asks for is done inside: refusals are written down, and errors name only what it may know.
        ``given``: what the client has said."""
        self._gate.check(session)
        try:
            yield
        except PenstockError as error:
            if isinstance(error, AccessDenied):
                self._refused.write(session, "denied", why=error.message)
            raise self._gate.told(session, error, *given) from None

    # -- statements -----------------------------------------------------------------------------------

    def execute(
        self, session: Session, text: str, parameters: Sequence[object] = (), *, deadline: float | None = None,
        stop: Stop | None = None,
    ) -> list[Outcome]:  # fmt: skip
        """Run the statements of a text in order; the first that fails ends it, those before it stay done.

        ``parameters``: of ``$1`` … or ``?``. ``deadline``: of ``time.monotonic``, for a plain SELECT, which
        ``stop`` ends at once; no other statement is left half done.
        """
        self._check_length(text)
        with self.asked(session, text):
            return self._executing.run(session, text, parameters, deadline, stop)

    def describe(
        self, session: Session, text: str, *, stop: Stop | None = None
    ) -> tuple[list[DataType | None], pa.Schema | None]:
        """The types of the parameters of one statement (None: any) and the schema of its result (None: it has none),
        without running it."""
        self._check_length(text)
        with self.asked(session, text):
            return self._executing.describe(session, text, stop)

    def _check_length(self, text: str) -> None:
        if len(text) > self.settings.statement:
            allowed = f"the setting `statement` allows {self.settings.statement:,}"
            raise LimitExceeded(f"the text has {len(text):,} characters", hint=allowed)

    # -- rows -----------------------------------------------------------------------------------------

    def push(
        self, session: Session, name: str, rows: object, *, at: object = None, key: tuple[str, int] | None = None
    ) -> Pushed:
        """Rows into a stream or a relation, all or none; ``key``: a producer and a sequence, for repeats."""
        with self.asked(session, name), tracing.span("push", user=session.user, protocol=session.protocol):
            found = self._gate.find(session, name, "stream", "relation", right="write")[1]
            given = rows if isinstance(rows, pa.Table | pa.RecordBatch | Sequence) else list(rows)  # type: ignore[call-overload]
            if len(given) > self.settings.rows:
                raise LimitExceeded(
                    f"{len(given):,} rows at once", hint=f"the setting `rows` allows {self.settings.rows:,}"
                )
            return self._push(found, given, len(given), at, _key_of(session, key))

    def push_text(
        self, session: Session, name: str, format: RowsFormat, data: bytes, *, at: object = None,
        key: tuple[str, int] | None = None,
    ) -> Pushed:  # fmt: skip
        """The same for rows in JSON, JSON lines, CSV or as an Arrow IPC stream: they are read as they are declared."""
        with self.asked(session, name), tracing.span("push", user=session.user, protocol=session.protocol):
            found = self._gate.find(session, name, "stream", "relation", right="write")[1]
            rows = rows_of(self._core, found, format, data, self.settings.rows)
            return self._push(found, rows, len(rows), at, _key_of(session, key))

    def _push(self, name: str, rows: object, count: int, at: object, key: tuple[str, int] | None) -> Pushed:
        before = counts_aside(self._core, name) if name in self._core.inputs else (0, 0)
        with tracing.span("evaluation" if self._db.engine == "local" else "log", into=name, rows=count):
            self._db.push(name, rows, at=at, key=key)
        now = counts_aside(self._core, name) if name in self._core.inputs else (0, 0)
        # Other clients may push at the same time: these are at most all of this one's.
        apart, late = (min(count, n - b) for n, b in zip(now, before, strict=True))
        return Pushed(count - apart, apart, late)

    def heartbeat(self, session: Session, name: str, at: object) -> None:
        """No more rows of a stream before an instant."""
        with self.asked(session, name):
            self._db.heartbeat(self._gate.find(session, name, "stream", right="write")[1], at)

    def close_stream(self, session: Session, name: str) -> None:
        """No more rows of a stream at all."""
        with self.asked(session, name):
            found = self._gate.find(session, name, "stream", right="write")[1]
            self._db.close_stream(found)
            self.audit.write(session, "close stream", name=found)

    def late(self, session: Session, name: str) -> pa.Table:
        """Take the rows that came too late for a stream, since the last call: its owner may."""
        with self.asked(session, name):
            return self._db.late(self._gate.find(session, name, "stream", right=None)[1])

    def apart(self, session: Session, name: str) -> pa.Table:
        """Take the rows that did not fit a stream, since the last call: its owner may."""
        with self.asked(session, name):
            return self._db.apart(self._gate.find(session, name, "stream", right=None)[1])

    # -- queries --------------------------------------------------------------------------------------

    def create_query(
        self, session: Session, *, text: str | None = None, plan: object = None, name: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> QueryInfo:  # fmt: skip
        """Register a continuous query, from CQL or from a plan (its JSON form)."""
        self._check_length(text or "")
        given = (text or "", name or "", "" if plan is None else str(plan))
        with self.asked(session, *given), self._declaring:
            self._gate.check_defines(session)
            if text is not None and (found := parse(text)) and isinstance(found[0].tree, ast.CreateQuery):
                return self._create_by_statement(session, text)
            seen, bound = self._gate.catalog(session), None
            if text is not None:
                plan_of_text(seen, text)
            elif plan is not None:
                bound = plan_of_object(plan, seen)[0]  # and no other: names mean what they mean to this user
            said = dict(options or {})
            if taken := said.keys() & {"text", "name", "plan"}:
                raise BindError(f"no option `{min(taken)}`", hint="`name` and `plan` stand beside the options")
            defining = self.defining(session, [] if name is None else [("query", name)])
            span = tracing.span("statement", kind="CREATE QUERY", user=session.user, protocol=session.protocol)
            with defining, span:
                made = self._db.query(text, plan=bound, name=name, **said)  # type: ignore[arg-type]
            if name is None:
                self.access.own({("query", made.name): session.user})
            self.audit.write(session, "create query", name=made.name, text=text if plan is None else "a plan")
            return self._looking.query(session, made.name)

    def _create_by_statement(self, session: Session, text: str) -> QueryInfo:
        """``CREATE QUERY …`` where a query is expected."""
        outcome = self._executing.run(session, text, ())[-1]
        if outcome.query is None:
            raise StateError("the text registers no query")
        return self.query(session, outcome.query)

    @contextmanager
    def declaring(self) -> Iterator[None]:
        """One declaration at a time."""
        with self._declaring:
            yield

    @contextmanager
    def defining(self, session: Session, things: Sequence[tuple[str, str]]) -> Iterator[None]:
        """Things are defined inside: who asks owns them from before, so nobody ever sees them without an owner."""
        known = self._core.catalog.kind_of
        new = [(k, n) for k, n in things if n not in self._gate.there(k) and (k == "query" or known(n) is None)]
        if new:
            self.access.own(dict.fromkeys(new, session.user))
        try:
            yield
        except BaseException:
            self.access.forget({(k, n) for k, n in new if n not in self._gate.there(k)})
            raise

    def gone(self) -> None:
        """Things have been dropped or stopped: what belonged to them goes."""
        there = self._core.queries
        for name in [n for k, n in self.access.named() if k == "query" and n not in there]:
            self.access.stopped(name, [*self._core.over])
        kinds = self.access.named() - {(k, n) for k, n in self.access.named() if k in ("query", "stopped")}
        self.access.forget({(k, n) for k, n in kinds if self._core.catalog.kind_of(n) != k})
        self._subscriptions.drop(*(s.name for s in self._subscriptions.all if s.query not in there))
        with self._feeding:
            for name in [name for name in self._feeds if name not in there]:
                del self._feeds[name]  # readers that have it read to the end

    def query(self, session: Session, name: str) -> QueryInfo:
        """A query, also one that was stopped and is still listed; CatalogError."""
        with self.asked(session, name):
            if name not in self._core.queries and name in self._looking.over(session):
                return self._looking.query(session, name)
            return self._looking.query(session, self._gate.find(session, name, "query")[1])

    def queries(self, session: Session, *, ended: bool = True) -> list[QueryInfo]:
        """All that the user may read; ``ended``: also those that were stopped."""
        with self.asked(session):
            names = [*self._gate.seen(session, "query"), *(self._looking.over(session) if ended else ())]
            return [self._looking.query(session, name) for name in names]

    def alter(self, session: Session, name: str, options: Mapping[str, object]) -> QueryInfo:
        """Change options while the query runs; None takes one back."""
        return self._change(session, name, "alter query", lambda query: query.alter(**options), options=dict(options))

    def suspend(self, session: Session, name: str) -> QueryInfo:
        return self._change(session, name, "suspend query", Query.suspend)

    def resume(self, session: Session, name: str) -> QueryInfo:
        return self._change(session, name, "resume query", Query.resume)

    def stop(self, session: Session, name: str) -> QueryInfo:
        """End a query; gives how it ended."""
        return self._change(session, name, "stop query", Query.stop)

    def _change(
        self, session: Session, name: str, what: str, change: Callable[[Query], None], **facts: object
    ) -> QueryInfo:
        with self.asked(session, name), self._declaring:
            _, found = self._gate.find(session, name, "query", right=None)
            change(self._held(found))
            self.audit.write(session, what, name=found, **facts)
            if what == "stop query":
                self.gone()
            return self._looking.query(session, found)

    def _held(self, name: str) -> Query:
        held = query_of(self._db, name)
        if held is None:
            raise CatalogError(f"no query `{name}`", hint="it has just been stopped")
        return held

    def current(self, session: Session, query: str, *, stop: Stop | None = None) -> pa.Table:
        """The result as it stands; StateError for a query whose results are a stream, unless all are retained and none
        was ever taken back. It waits for what was pushed before as a plain SELECT does."""
        with self.asked(session, query):
            held = self._held(self._gate.find(session, query, "query")[1])
            if held.error is not None:
                raise held.error
            if is_table(held.plan):
                prepare(held, Patience.of(self.settings.adhoc_seconds, stop).for_query(held.name))
                if held.error is not None:
                    raise held.error
                return standing(held)()
            first, next = held.retained
            if held.plan.output != "istream" or first > 0:
                raise StateError(
                    f"the results of `{held.name}` are a stream. There is no result that stands",
                    hint=f"SUBSCRIBE {held.name}, or SELECT * FROM {held.name} for what is retained",
                )
            return held.read(0, next).drop_columns(["ts", "op"])

    def feed(self, session: Session, query: str) -> Feed:
        """The results of a query; ``read`` checks that the user still may."""
        with self.asked(session, query):
            return self._feed(session, query)

    def _feed(self, session: Session, query: str) -> Feed:
        name = self._gate.find(session, query, "query")[1]
        held, found = self._held(name), self._core.queries.get(name)
        with self._feeding:
            shared = self._feeds.get(name)
            if shared is None or shared.query is not held:
                shared = self._feeds[name] = SharedFeed(held)
        return Feed(shared, lambda: self._check_reads(session, name, found))

    def _check_reads(self, session: Session, name: str, query: Registered | None) -> None:
        """Refuse a reader that may not read any more; who was reading a query when it ended may go on."""
        self._gate.check(session)
        if self._core.queries.get(name) is query and not self._gate.may(session, "read", "query", name):
            raise AccessDenied(f"user `{session.user}` may not read query `{name}` any more")

    # -- named subscriptions --------------------------------------------------------------------------

    def _subscribed(self, query: str) -> int:
        return sum(s.query == query for s in self._subscriptions.all)

    def subscription(
        self, session: Session, name: str, *, query: str | None = None, start: Start = "now"
    ) -> Subscription:
        """The named subscription; where there is none, one is made for ``query`` that begins at ``start``."""
        with self.asked(session, name, query or ""):
            found = self._subscriptions.get(name)
            if found is not None:
                found = self._own(session, name)
                if query is not None and self._gate.find(session, query, "query")[1] != found.query:
                    hint = "DROP SUBSCRIPTION it, or use another name"
                    raise CatalogError(f"subscription `{name}` is for query `{found.query}`", hint=hint)
                return self._shown(session, found)
            if query is None:
                raise self._no_subscription(session, name)
            return self._shown(session, self._subscribe(session, name, query, start))

    def create_subscription(self, session: Session, name: str, query: str, start: Start) -> Subscription:
        """A new one; CatalogError where there is one of this name."""
        with self.asked(session, name, query):
            return self._shown(session, self._subscribe(session, name, query, start))

    def _subscribe(self, session: Session, name: str, query: str, start: Start) -> Named:
        who.check_name(name)
        feed = self._feed(session, query)
        position = self.position(feed, start)
        with self._declaring:  # the query cannot be stopped meanwhile
            self._gate.find(session, feed.query, "query")
            made = self._subscriptions.create(name, feed.query, session.user, position)
        self.audit.write(session, "create subscription", name=name, query=feed.query)
        return made

    @staticmethod
    def position(feed: Feed, start: Start | None) -> int:
        """Where a reader begins."""
        match start:
            case "start":
                return feed.first
            case int():
                feed.read(start, 1)  # says which are there, if this one is not
                return start
        return feed.next

    def subscriptions(self, session: Session) -> list[Subscription]:
        """Those of the user; all for who administers."""
        with self.asked(session):
            every = self._gate.administers(session)
            return [self._shown(session, s) for s in self._subscriptions.all if every or s.owner == session.user]

    def _shown(self, session: Session, named: Named) -> Subscription:
        if not self._gate.may(session, "read", "query", named.query):  # so it does not hear how far the query is
            return Subscription(named.name, named.query, named.position, named.owner)
        held = query_of(self._db, named.query)
        first, next = (named.position, named.position) if held is None else held.retained
        return Subscription(
            named.name, named.query, named.position, named.owner, max(0, next - named.position),
            max(0, first - named.position),
        )  # fmt: skip

    def _own(self, session: Session, name: str) -> Named:
        found = self._subscriptions.get(name)
        if found is None or not (found.owner == session.user or self._gate.administers(session)):
            raise self._no_subscription(session, name)
        return found

    def _no_subscription(self, session: Session, name: str) -> CatalogError:
        own = [s.name for s in self._subscriptions.all if s.owner == session.user or self._gate.administers(session)]
        return CatalogError(f"no subscription `{name}`", hint=suggest(name, own) or "CREATE SUBSCRIPTION makes one")

    def confirm(self, session: Session, name: str, position: int) -> None:
        """The client has every result before a position. It is durable when this returns."""
        with self.asked(session, name):
            found = self._own(session, name)
            self._gate.find(session, found.query, "query")
            next = self._held(found.query).answered
            if position > next:
                raise StateError(
                    f"query `{found.query}` has given {next} results, position {position} is not there yet",
                    hint="confirm the position after the last result that was received",
                )
            self._subscriptions.confirm(name, position)

    def drop_subscription(self, session: Session, name: str) -> None:
        with self.asked(session, name):
            self._subscriptions.drop(self._own(session, name).name)
            self.audit.write(session, "drop subscription", name=name)

    # -- looking around -------------------------------------------------------------------------------

    def streams(self, session: Session) -> list[StreamInfo]:
        with self.asked(session):
            return [self._looking.stream(session, name) for name in self._gate.seen(session, "stream")]

    def stream(self, session: Session, name: str) -> StreamInfo:
        """A stream that the user may read or write to; CatalogError."""
        with self.asked(session, name):
            return self._looking.stream(session, self._gate.seen_as(session, name, "stream"))

    def relations(self, session: Session) -> list[RelationInfo]:
        with self.asked(session):
            return [self._looking.relation(session, name) for name in self._gate.seen(session, "relation")]

    def relation(self, session: Session, name: str) -> RelationInfo:
        with self.asked(session, name):
            return self._looking.relation(session, self._gate.seen_as(session, name, "relation"))

    def rows(self, session: Session, relation: str) -> pa.Table:
        """What a relation holds now."""
        with self.asked(session, relation):
            name = self._gate.find(session, relation, "relation")[1]
            with self._core.lock:
                return self._looking.relation_rows(name)

    def views(self, session: Session) -> list[ViewInfo]:
        with self.asked(session):
            return [self._looking.view(session, name) for name in self._gate.seen(session, "view")]

    def explain(self, session: Session, query: str, format: str = "text") -> str:
        """The plan of a registered query, or of a query text: text, json or mermaid."""
        self._check_length(query)
        with self.asked(session, query):
            if query.strip().isidentifier():
                name = self._gate.find(session, query.strip(), "query")[1]
                self._gate.check_knows(session, name)
                return str(self._db.explain(name, format))
            plan_of_text(self._gate.catalog(session), query)
            return str(self._db.explain(query, format))

    def graph(self, session: Session, format: Literal["json", "svg", "mermaid", "text"] = "json") -> str:
        """The operators of the queries whose plans the user may see."""
        with self.asked(session):
            view = self._looking.graph(session)
            match format:
                case "svg":
                    return view.svg()
                case "mermaid":
                    return view.mermaid()
                case "text":
                    return view.text()
            return view.json()

    def metrics(self, session: Session, of: Literal["work", "queries"] = "work") -> pa.Table:
        """What was measured: of the work, for who administers; of the queries that the user may read."""
        with self.asked(session):
            if of == "work":
                self._gate.check_administers(session, "see what the engine does")
                return self._db.metrics("work")
            found = self._db.metrics("queries")
            seen = {*self._gate.seen(session, "query")}
            return found.filter(pa.array([name in seen for name in found.column("query").to_pylist()], pa.bool_()))

    def configure(self, session: Session, /, *, query: str | None = None, **settings: Any) -> None:
        """Work in another way from now on; for who administers."""
        with self.asked(session):
            self._gate.check_administers(session, "configure the engine")
            self._db.configure(query=query, **settings)
            self.audit.write(session, "configure", query=query, **settings)

    def create_function(self, session: Session, name: str, source: str, *, args: Sequence[str], returns: str) -> None:
        """Let queries call the Python function of this name in a source text: only if the settings allow it, and for
        who administers."""
        with self.asked(session):
            self._gate.check_administers(session, "bring Python functions")
            if not self.settings.functions:
                raise AccessDenied(
                    "this server runs no Python functions of clients", hint="the setting `functions` allows it"
                )
            self.audit.write(session, "create function", name=name, source=source)
            names: dict[str, Any] = {}
            exec(compile(source, f"<function {name}>", "exec"), names)
            if not callable(names.get(name)):
                raise CatalogError(f"the source has no function `{name}`")
            self._db.create_function(name, names[name], args=list(args), returns=returns)

    def sys_table(self, session: Session, name: str) -> pa.Table:
        """``streams``, ``relations``, ``queries``, ``operators``, ``buffers``, ``parts``, ``sessions``, ``batches``,
        ``late``, ``failed``, ``subscriptions``: what ``sys.name`` is in a plain SELECT."""
        with self.asked(session):
            return self._sys(session, name)()

    def _sys(self, session: Session, name: str) -> Callable[[], pa.Table]:
        """What makes the table as it is now."""
        match name:
            case "sessions":
                return partial(sessions_table, self.sessions(session))
            case "subscriptions":
                return partial(subscriptions_table, self.subscriptions(session))
        return self._looking.sys_table(session, name)

    def moment(self, session: Session, text: str, patience: Patience | None = None) -> Moment:
        """What a plain SELECT may read."""
        sys = partial(self._sys, session)
        return Moment(self._db, self._gate, self._looking, session, text, sys, SYS, patience)

    def tables(self, session: Session) -> Mapping[str, pa.Schema]:
        """All that a plain SELECT may read, with its columns; those of ``sys`` as ``sys.name``."""
        with self.asked(session):
            return self.moment(session, "").schemas()

    def sessions(self, session: Session) -> list[Session]:
        """All for who administers, else the user's own."""
        with self.asked(session):
            every = self._gate.administers(session)
            return [s for s in self._sessions.all if every or s.user == session.user]

    def about(self) -> About:
        """For who has a session: the engine, and the zone that times are meant in."""
        return About(self._db.engine, self._db.zone)

    def settle(self, session: Session, query: str | None = None, *, stop: Stop | None = None) -> None:
        """Return when what was pushed before has been worked on, for one query or for all, or ``stop`` is set."""

        def look() -> None:
            if stop is not None and stop.is_set:
                raise StateError("nobody waits any more: the client has gone, or the server ends")

        with self.asked(session, query or ""):
            if query is None:
                self._core.tick(look=look)
                self._core.settle(look=look)
            else:
                prepare(self._held(self._gate.find(session, query, "query")[1]), look)

    def health(self) -> Health:
        """Needs no session."""
        ready = self.status == "ready" and not self._db.closed
        return Health(ready, VERSION, self.status)


def _key_of(session: Session, key: tuple[str, int] | None) -> tuple[str, int] | None:
    """Producers of two users are two, whatever they are called."""
    return None if key is None else (f"{session.user}/{key[0]}", key[1])
