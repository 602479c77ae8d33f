"""The calls of Flight: who asks, what is asked for, what goes out.

Tickets and handles of prepared statements hold what they stand for: the server remembers nothing between two calls but
who is logged in. So a client that comes back after a restart of the server goes on with what it has.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from penstock.model.errors import CatalogError, InputError, LimitExceeded, LoginFailed, PenstockError, QueryFailed
from penstock.server.feeds import Feed
from penstock.server.flight import catalog, wire
from penstock.server.flight.errors import ending, told
from penstock.server.holding import Hold
from penstock.server.service import Service
from penstock.server.session import Outcome, Session, Subscribe
from penstock.server.stop import Stop
from penstock.server.texts import check_names, json_of
from penstock.server.throttle import Throttled
from penstock.storage.packing import packed, unpacked

_PAGE = 10_000
"""Results in one batch of an endless stream."""
_CHUNK = 50_000
"""Rows in one batch of a table."""
_WAIT = 0.5
"""Seconds after which an endless stream looks whether its client is still there."""
_LARGEST, _LONGEST = 100_000, 60
"""Results of one page, and seconds that it may wait for the first."""
_READERS = 500
"""Endless streams, and pages that wait, at a time: each has a thread of gRPC."""
_READING = {"SELECT", "WITH", "VALUES", "FROM", "TABLE", "SHOW", "DESCRIBE", "EXPLAIN"}
"""What a statement begins with that can be run when its rows are fetched."""
_SAID = pa.schema([pa.field("tag", pa.string()), pa.field("message", pa.string())])
"""What a statement without rows of its own gives."""
_BEARER, _BASIC = "bearer ", "basic "
_HANDSHAKE = "handshake"
"""The address of every client that shakes hands."""
_LATER = "basic."
"""What a bearer begins with that is a user and a password, to be looked at with the first call."""
_KEY = "penstock-key"
"""The header that makes an ingest idempotent: producer/sequence."""


@dataclass
class _Login:
    """A credential that was right."""

    session: Session
    used: float


class Auth(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the credential of a call. A handshake with a user and a password gives a bearer token of its own.

    Bounded by the service's bound of sessions; a login that nobody uses for ``idle`` seconds is forgotten.
    """

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._lock = threading.Lock()
        self._logins: dict[bytes, _Login] = {}

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> Credential:
        given = next(iter(headers.get("authorization", [])), "")
        keys = headers.get(_KEY, [])
        found = Credential(str(given), str(keys[0]) if keys else None)
        with told():
            if info.method == flight.FlightMethod.HANDSHAKE:
                found.granted = self._handshake(found.given)
            elif info.method == flight.FlightMethod.GET_SCHEMA:
                # Of this call alone pyarrow shows clients where in the code an error comes from: not to strangers.
                self._known(found.given, "")
        return found

    def _handshake(self, given: str) -> str:
        if not given.lower().startswith(_BASIC):
            raise LoginFailed("log in with a user and a password, or with a token", hint="authorization: Basic …")
        try:
            session = self._room(lambda: self._basic(given, _HANDSHAKE))
        except Throttled:
            # gRPC does not tell who shakes hands. The first call does, and is looked at in the place of this.
            return _LATER + given[len(_BASIC) :].strip()
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._logins[_digest(f"Bearer {made}")] = _Login(session, time.monotonic())
        return made

    def _basic(self, given: str, remote: str) -> Session:
        try:
            coded = given[len(_BASIC) :].strip()
            coded += "=" * (-len(coded) % 4)  # Go's client leaves the padding out
            user, _, password = base64.b64decode(coded, validate=True).decode().partition(":")
        except ValueError:
            raise LoginFailed("the credential is not in base64") from None
        return self._service.login(user, password, protocol="flight", remote=remote)

    def session(self, context: flight.ServerCallContext) -> Session:
        """Who calls; LoginFailed."""
        return self._known(context.get_middleware("auth").given, context.peer())

    def _known(self, given: str, remote: str) -> Session:
        if not given:
            raise LoginFailed("log in with a user and a password, or with a token", hint="authorization: Bearer …")
        digest = _digest(given)
        with self._lock:
            known = self._logins.get(digest)
        if known is not None:
            try:
                self._service.check(known.session)
                known.used = time.monotonic()
                return known.session
            except PenstockError:
                self._forget(digest)
        if given[len(_BEARER) :].startswith(_LATER):
            given = f"Basic {given[len(_BEARER) + len(_LATER) :]}"
        lower = given.lower()
        if lower.startswith(_BEARER):
            token = given[len(_BEARER) :].strip()
            session = self._room(lambda: self._service.login_token(token, protocol="flight", remote=remote))
        elif lower.startswith(_BASIC):
            session = self._room(lambda: self._basic(given, remote))
        else:
            raise LoginFailed("the credential is neither Bearer nor Basic")
        with self._lock:
            known = self._logins.setdefault(digest, _Login(session, time.monotonic()))
        if known.session is not session:  # another call with the same credential was first
            self._service.logout(session)
        return known.session

    def _room(self, login: Callable[[], Session]) -> Session:
        """Log in; where there is no room for a session, the one goes that was used least lately."""
        self._sweep()
        try:
            return login()
        except Throttled:
            raise
        except LimitExceeded:
            with self._lock:
                oldest = min(self._logins, key=lambda digest: self._logins[digest].used, default=None)
            if oldest is None:
                raise
            self._forget(oldest)
            return login()

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._service.settings.idle
        with self._lock:
            gone = [digest for digest, login in self._logins.items() if login.used < oldest]
        for digest in gone:
            self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        with self._lock:
            login = self._logins.pop(digest, None)
        if login is not None:
            self._service.logout(login.session)

    def close(self) -> None:
        with self._lock:
            known = list(self._logins)
        for digest in known:
            self._forget(digest)


class Credential(flight.ServerMiddleware):  # type: ignore[misc]
    """What a call has shown, and what it is given back."""

    def __init__(self, given: str, key: str | None) -> None:
        super().__init__()
        self.given, self.key = given, key
        self.granted: str | None = None

    def sending_headers(self) -> dict[str, str]:
        return {} if self.granted is None else {"authorization": f"Bearer {self.granted}"}


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """The handshake itself carries nothing: the header does."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> str:
        return ""


@dataclass
class _Endless:
    """Streams under way, by their names, so that they can be ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    streams: dict[str, tuple[str, threading.Event]] = field(default_factory=dict)


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """One server of Flight SQL over one service."""

    def __init__(
        self, service: Service, location: str, certificates: Sequence[tuple[bytes, bytes]] | None = None
    ) -> None:
        self._service = service
        self._auth = Auth(service)
        self._endless = _Endless()
        self._ending, self._over = threading.Event(), threading.Event()
        super().__init__(
            location, auth_handler=Handshake(), middleware={"auth": self._auth}, tls_certificates=certificates
        )

    def end(self) -> None:
        """Endless streams end; other calls finish."""
        self._ending.set()

    def give_up(self) -> None:
        """Plain SELECTs that run end."""
        self._over.set()

    def close(self) -> None:
        self._auth.close()

    def _stop(self, context: flight.ServerCallContext) -> Stop:
        """Ends a plain SELECT when its client has cancelled the call, or has gone."""
        return Stop(lambda: self._over.is_set() or context.is_cancelled())

    # -- information ----------------------------------------------------------------------------------

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The queries that the user may read; of each what stands, or what is retained."""
        with told():
            session = self._auth.session(context)
            names = [q.name for q in self._service.queries(session, ended=False)]
            stop = self._stop(context)
            found = [self._path_info(session, flight.FlightDescriptor.for_path(name), stop) for name in names]
        yield from found

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with told():
            return self._info(self._auth.session(context), descriptor, self._stop(context))

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        with told():
            session = self._auth.session(context)
            if descriptor.descriptor_type == flight.DescriptorType.PATH:
                return flight.SchemaResult(self._path_info(session, descriptor, self._stop(context)).schema)
            name, found = wire.command(descriptor.command)
            about = catalog.answer(self._service, session, name, found)
            if about is not None:
                return flight.SchemaResult(about[0])
            text = _prepared(found)["text"] if name == "CommandPreparedStatementQuery" else wire.as_text(found, 1)
            schema = self._service.describe(session, str(text), stop=self._stop(context))[1]
            return flight.SchemaResult(_SAID if schema is None else schema)

    def _info(self, session: Session, descriptor: flight.FlightDescriptor, stop: Stop) -> flight.FlightInfo:
        if descriptor.descriptor_type == flight.DescriptorType.PATH:
            return self._path_info(session, descriptor, stop)
        name, found = wire.command(descriptor.command)
        about = catalog.answer(self._service, session, name, found)
        if about is not None:
            return _flight_info(about[0], descriptor, descriptor.command)
        match name:
            case "CommandStatementQuery":
                return self._statement(session, descriptor, self._text(wire.as_text(found, 1)), [], stop)
            case "CommandPreparedStatementQuery":
                prepared = _prepared(found)
                text, rows = self._text(prepared["text"]), _unpacked(prepared.get("rows"))
                return self._statement(session, descriptor, text, rows, stop, prepared=True)
        raise InputError(f"{name} is not answered here", hint="statements are sent as CommandStatementQuery")

    def _path_info(self, session: Session, descriptor: flight.FlightDescriptor, stop: Stop) -> flight.FlightInfo:
        """What a name stands for: a query that has a current result, or the rows of a relation."""
        text = "SELECT * FROM " + ".".join(_quoted(part) for part in _path(descriptor))
        return self._statement(session, descriptor, text, [], stop)

    def _text(self, text: object) -> str:
        if not isinstance(text, str):
            raise InputError("the command has no statement")
        longest = self._service.settings.statement
        if len(text) > longest:
            raise LimitExceeded(f"the statement has {len(text)} characters, at most {longest} are read")
        return text

    def _statement(
        self,
        session: Session,
        descriptor: flight.FlightDescriptor,
        text: str,
        rows: list[list[object]],
        stop: Stop,
        *,
        prepared: bool = False,
    ) -> flight.FlightInfo:
        """A statement that reads is run when its rows are fetched, every other one now, and once."""
        if _begins(text) in _READING:
            ticket = _ticket({"run": text, "rows": _packed_rows(rows)})
            if prepared:  # its client has a schema, which values of parameters may have changed
                return _flight_info(None, descriptor, ticket)
            schema = self._service.describe(session, text, stop=stop)[1]
            return _flight_info(_SAID if schema is None else schema, descriptor, ticket)
        outcomes = [o for row in rows or [[]] for o in self._service.execute(session, text, row, stop=stop)]
        last = outcomes[-1] if outcomes else Outcome("", "")
        if last.subscribe is not None:
            return self._endless_info(session, descriptor, last.subscribe)
        table = _said(outcomes) if last.table is None else last.table
        return _flight_info(table.schema, descriptor, _ticket({"table": _coded(table)}), table.num_rows)

    def _endless_info(
        self, session: Session, descriptor: flight.FlightDescriptor, subscribe: Subscribe
    ) -> flight.FlightInfo:
        feed = self._service.feed(session, subscribe.query)
        stream = secrets.token_hex(8)
        ticket = {"changes": subscribe.query, "from": subscribe.position, "stream": stream}
        return _flight_info(_positioned(feed.schema, subscribe.position, stream), descriptor, _ticket(ticket))

    # -- rows out -------------------------------------------------------------------------------------

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with told():
            session = self._auth.session(context)
            asked = self._asked(session, ticket.ticket)
            if isinstance(asked, pa.Table):
                return self._table(session, asked)
            match asked:
                case {"table": str(data)}:
                    return self._table(session, _read_ipc(data))
                case {"run": str(text), **more}:
                    rows = _unpacked(more.get("rows"))
                    return self._run(context, session, self._text(text), rows)
                case {"current": str(query)}:
                    return self._table(session, self._service.current(session, query, stop=self._stop(context)))
                case {"page": str(query), **more}:
                    return self._page(context, session, query, more)
                case {"changes": str(query), **more}:
                    return self._changes(context, session, query, more)
            raise InputError(
                "the ticket is not one of this server", hint='{"current": "query"}, {"page": …} or {"changes": "query"}'
            )

    def _asked(self, session: Session, ticket: bytes) -> pa.Table | dict[str, Any]:
        if ticket[:1] == b"{":
            return _json(ticket)
        name, found = wire.command(ticket)
        if name == "TicketStatementQuery":
            return _json(wire.as_bytes(found, 1) or b"")
        about = catalog.answer(self._service, session, name, found)
        if about is None:
            raise InputError(f"{name} is not a ticket")
        return about[1]()

    def _run(
        self, context: flight.ServerCallContext, session: Session, text: str, rows: list[list[object]]
    ) -> flight.FlightDataStream:
        tables, holds = [], []
        stop = self._stop(context)
        for row in rows or [[]]:
            outcomes = self._service.execute(session, text, row, stop=stop)
            tables.append(_said(outcomes) if not outcomes or outcomes[-1].table is None else outcomes[-1].table)
            holds += [outcome.hold for outcome in outcomes[-1:]]
        found = pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]
        return _sent(found, holds)

    def _table(self, session: Session, table: pa.Table) -> flight.FlightDataStream:
        return _sent(table, [self._service.holding.hold(session.user, table.nbytes)])

    def _page(
        self, context: flight.ServerCallContext, session: Session, query: str, more: Mapping[Any, Any]
    ) -> flight.FlightDataStream:
        """Results that are there, after waiting for the first of them; what they are stands in the schema."""
        feed = self._service.feed(session, query)
        asked, limit, wait = more.get("from", "start"), more.get("limit", _PAGE), more.get("wait", 0)
        if type(limit) is not int or not 0 < limit <= _LARGEST or type(wait) is not int or not 0 <= wait <= _LONGEST:
            raise InputError(f"`limit` is from 1 to {_LARGEST:,}, `wait` from 0 to {_LONGEST} seconds")
        position = {"start": feed.first, "now": feed.next}.get(asked) if isinstance(asked, str) else asked
        if type(position) is not int or position < 0:
            raise InputError("`from` is a position, `start` or `now`")
        if wait and not feed.wait_blocking(position, 0):
            self._await(context, session, feed, position, time.monotonic() + wait)
        page = feed.read(position, limit, fresh=True)
        said = json.dumps({"start": page.start, "next": page.stop, "first": feed.first, "ended": feed.ended})
        metadata = {**(page.table.schema.metadata or {}), b"penstock.page": said.encode()}
        return self._table(session, page.table.replace_schema_metadata(metadata))

    def _await(
        self, context: flight.ServerCallContext, session: Session, feed: Feed, position: int, end: float
    ) -> None:
        name = secrets.token_hex(8)
        self._begin(session, name)
        try:
            while (left := end - time.monotonic()) > 0 and not context.is_cancelled():
                if self._ending.is_set():
                    raise ending()
                if feed.wait_blocking(position, min(_WAIT, left)):
                    return
        finally:
            with self._endless.lock:
                self._endless.streams.pop(name, None)

    def _changes(
        self, context: flight.ServerCallContext, session: Session, query: str, more: Mapping[Any, Any]
    ) -> flight.FlightDataStream:
        feed = self._service.feed(session, query)
        position = more.get("from", feed.next)
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise InputError("`from` is a position: a whole number")
        name = str(more.get("stream") or secrets.token_hex(8))
        schema = _positioned(feed.schema, position, name)
        return flight.GeneratorStream(schema, self._pages(context, session, feed, schema, position, name))

    def _pages(
        self,
        context: flight.ServerCallContext,
        session: Session,
        feed: Feed,
        schema: pa.Schema,
        position: int,
        name: str,
    ) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """Pages of results as they come, each with the position behind it; until the client or the query ends."""
        ended = self._begin(session, name)
        try:
            with told():
                while not context.is_cancelled() and not ended.is_set():
                    if self._ending.is_set():
                        raise ending()
                    page = feed.read(position, _PAGE)
                    if page.stop > position:
                        position = page.stop
                        said = json.dumps({"position": position}).encode()
                        for batch in page.table.combine_chunks().to_batches():
                            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema), said
                    elif feed.ended is not None and position >= feed.next:
                        if feed.ended.startswith("failed"):
                            raise QueryFailed(f"query {feed.query} {feed.ended}")
                        return
                    else:
                        feed.wait_blocking(position, _WAIT)
        finally:
            with self._endless.lock:
                self._endless.streams.pop(name, None)

    def _begin(self, session: Session, name: str) -> threading.Event:
        with told(), self._endless.lock:
            if len(self._endless.streams) >= _READERS:
                raise LimitExceeded(f"{_READERS} endless streams are open", hint="read pages over HTTP")
            if name in self._endless.streams:
                raise InputError("this ticket is being read already")
            ended = threading.Event()
            self._endless.streams[name] = (session.id, ended)
            return ended

    # -- rows in --------------------------------------------------------------------------------------

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with told():
            session = self._auth.session(context)
            if descriptor.descriptor_type == flight.DescriptorType.PATH:
                self._push(session, _one_name(descriptor), reader, writer)
                return
            name, found = wire.command(descriptor.command)
            match name:
                case "CommandStatementUpdate":
                    text, stop = self._text(wire.as_text(found, 1)), self._stop(context)
                    outcomes = self._service.execute(session, text, stop=stop)
                    _tell(writer, wire.message(f1=_count(outcomes)))
                case "CommandPreparedStatementUpdate":
                    prepared = _prepared(found)
                    rows = self._bound(session, reader) or _unpacked(prepared.get("rows")) or [[]]
                    text, stop, count = self._text(prepared["text"]), self._stop(context), 0
                    for row in rows:
                        count += _count(self._service.execute(session, text, row, stop=stop))
                    _tell(writer, wire.message(f1=count))
                case "CommandPreparedStatementQuery":
                    prepared = _prepared(found)
                    handle = _handle({"text": prepared["text"], "rows": _packed_rows(self._bound(session, reader))})
                    _tell(writer, wire.message(f1=handle))
                case "CommandStatementIngest":
                    key = context.get_middleware("auth").key
                    _tell(writer, wire.message(f1=self._ingest(session, wire.Ingest.of(found), reader, key)))
                case _:
                    raise InputError(f"{name} takes no rows")

    def _bound(self, session: Session, reader: flight.MetadataRecordBatchReader) -> list[list[object]]:
        """Values of parameters: a row for each run of the statement."""
        hold = self._service.holding.hold(session.user)
        return [list(row.values()) for chunk in self._batches(reader, hold) for row in chunk.data.to_pylist()]

    def _batches(self, reader: flight.MetadataRecordBatchReader, hold: Hold) -> Iterator[flight.FlightStreamChunk]:
        """The batches of a client, which count for ``hold``."""
        limits = self._service.settings
        check_names(reader.schema)
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            except flight.FlightError:
                raise
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"the batch is not one of Arrow: {error}") from None
            if chunk.data is None:
                continue
            try:
                chunk.data.validate(full=True)
            except pa.ArrowInvalid as error:
                raise InputError(f"the batch is not one of Arrow: {error}") from None
            if chunk.data.num_rows > limits.rows or chunk.data.nbytes > limits.body:
                what = f"a batch has {chunk.data.num_rows:,} rows in {chunk.data.nbytes:,} bytes"
                raise LimitExceeded(f"{what}, at most {limits.rows:,} rows in {limits.body:,} bytes are taken")
            hold.grow(chunk.data.nbytes)
            yield chunk

    def _push(
        self, session: Session, name: str, reader: flight.MetadataRecordBatchReader, writer: flight.FlightMetadataWriter
    ) -> None:
        """Batches into a stream or relation, each all or none, each acknowledged when it is durable."""
        hold = self._service.holding.hold(session.user)
        for chunk in self._batches(reader, hold):
            said = _json(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
            key = _key(said["key"]) if said.get("key") is not None else None
            pushed = self._service.push(session, name, pa.table(chunk.data), at=said.get("at"), key=key)
            done = {"rows": pushed.rows, "apart": pushed.apart, "late": pushed.late}
            _tell(writer, json.dumps(done).encode())
            hold.release()

    def _ingest(
        self, session: Session, ingest: wire.Ingest, reader: flight.MetadataRecordBatchReader, key: str | None
    ) -> int:
        name = ingest.table
        if ingest.temporary:
            raise InputError("there are no temporary streams or relations")
        if ingest.schema not in (None, "", catalog.SCHEMA):
            raise CatalogError(f"nothing can be put into schema `{ingest.schema}`")
        if ingest.if_exists == 3:
            raise InputError("an ingest does not replace", hint="DROP STREAM and CREATE STREAM, then mode='append'")
        known = {s.name for s in self._service.streams(session)} | {r.name for r in self._service.relations(session)}
        if name not in known:
            if not ingest.create:
                self._service.stream(session, name)  # says that there is none, and what there is
            check_names(reader.schema)
            text = f"CREATE STREAM {_quoted(name)} ({_columns(reader.schema)})"
            self._service.execute(session, text)
        elif ingest.if_exists == 1:
            raise CatalogError(f"`{name}` is there already", hint="mode='append' adds rows to it")
        hold = self._service.holding.hold(session.user)
        if key is not None:
            gathered, rows = [], 0
            for chunk in self._batches(reader, hold):
                gathered.append(chunk.data)
                rows += chunk.data.num_rows
                if rows > self._service.settings.rows:
                    raise LimitExceeded(f"with a key, at most {self._service.settings.rows:,} rows go in at once")
            table = pa.Table.from_batches(gathered, reader.schema)
            return self._service.push(session, name, table, key=_key(key.rsplit("/", 1))).rows
        count = 0
        for chunk in self._batches(reader, hold):
            try:
                count += self._service.push(session, name, pa.table(chunk.data)).rows
                hold.release()
            except PenstockError as error:
                if count:
                    error.message += f" ({count:,} rows of earlier batches have been taken)"
                raise
        return count

    # -- actions --------------------------------------------------------------------------------------

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [
            ("health", "Whether the server is ready, as JSON; needs no credential"),
            ("confirm", 'JSON {"name", "position"}: the named subscription has all before the position'),
            ("cancel", 'JSON {"stream"}: end an endless stream of this session'),
            ("CreatePreparedStatement", "Flight SQL"),
            ("ClosePreparedStatement", "Flight SQL"),
        ]

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:
        with told():
            body = action.body.to_pybytes()
            if action.type == "health":
                found = self._service.health()
                said = {"ready": found.ready, "status": found.status, "version": found.version}
                return iter([flight.Result(json.dumps(said).encode())])
            session = self._auth.session(context)
            return iter([flight.Result(r) for r in self._act(session, action.type, body, self._stop(context))])

    def _act(self, session: Session, kind: str, body: bytes, stop: Stop) -> list[bytes]:
        match kind:
            case "confirm":
                said = _json(body)
                name, position = said.get("name"), said.get("position")
                if not isinstance(name, str) or not isinstance(position, int) or isinstance(position, bool):
                    raise InputError('confirm takes {"name": …, "position": …}')
                self._service.confirm(session, name, position)
                return []
            case "cancel":
                with self._endless.lock:
                    owner, ended = self._endless.streams.get(str(_json(body).get("stream")), ("", threading.Event()))
                if owner == session.id:
                    ended.set()
                return []
            case "CreatePreparedStatement":
                name, found = wire.command(body)
                text = self._text(wire.as_text(found, 1))
                types, schema = self._service.describe(session, text, stop=stop)
                wanted = pa.schema([(f"${i}", pa.null() if t is None else t.arrow) for i, t in enumerate(types, 1)])
                made = wire.message(
                    f1=_handle({"text": text}),
                    f2=None if schema is None else schema.serialize().to_pybytes(),
                    f3=wanted.serialize().to_pybytes() if types else None,
                )
                return [wire.packed("ActionCreatePreparedStatementResult", made)]
            case "ClosePreparedStatement":
                wire.command(body)
                return []
        raise InputError(f"no action `{kind}`", hint="list_actions names them")


def _digest(given: str) -> bytes:
    return hashlib.sha256(given.encode(errors="surrogatepass")).digest()


def _begins(text: str) -> str:
    """The first word of a statement, behind comments and parentheses."""
    rest = text.lstrip(" \t\r\n(")
    while rest.startswith(("--", "/*")):
        end = "\n" if rest.startswith("--") else "*/"
        _, found, rest = rest.partition(end)
        rest = rest.lstrip(" \t\r\n(") if found else ""
    return rest.split(None, 1)[0].upper().rstrip(";(") if rest else ""


def _flight_info(
    schema: pa.Schema | None, descriptor: flight.FlightDescriptor, ticket: bytes, rows: int = -1
) -> flight.FlightInfo:
    return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], rows, -1)


def _sent(table: pa.Table, holds: Sequence[Hold | None]) -> flight.FlightDataStream:
    """A table on its way; the memory that it counts for is held until the client has taken it, or is gone."""

    def batches(held: Sequence[Hold | None]) -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=_CHUNK)

    return flight.GeneratorStream(table.schema, batches(holds))


def _tell(writer: flight.FlightMetadataWriter, said: bytes) -> None:
    """Answer a batch. What it was is done, also where its client has gone and does not hear of it."""
    try:
        writer.write(said)
    except flight.FlightError:
        raise
    except (pa.ArrowException, OSError):
        raise flight.FlightCancelledError("the client has gone") from None


def _ticket(said: dict[str, Any]) -> bytes:
    return wire.packed("TicketStatementQuery", wire.message(f1=json.dumps(said).encode()))


def _handle(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode()


def _prepared(found: wire.Fields) -> dict[str, Any]:
    said = _json(wire.as_bytes(found, 1) or b"")
    if not isinstance(said.get("text"), str):
        raise InputError("the prepared statement is not one of this server")
    return said


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json_of(data)
    except (ValueError, RecursionError):
        raise InputError("a ticket, handle or message is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("a ticket, handle or message is not a JSON object")
    return found


def _coded(table: pa.Table) -> str:
    return base64.b64encode(packed(table)).decode()


def _read_ipc(data: str) -> pa.Table:
    try:
        found = unpacked(base64.b64decode(data, validate=True))
        found.validate(full=True)  # a client may have written it
        check_names(found.schema)
        return found
    except (ValueError, pa.ArrowException, OSError):
        raise InputError("the ticket is not one of this server") from None


def _packed_rows(rows: list[list[object]]) -> str | None:
    """Values of parameters, as Arrow, so that each keeps its type: a column for each parameter of each row."""
    if not rows:
        return None
    names = [f"{r}.{i}" for r, row in enumerate(rows) for i in range(len(row))]
    return _coded(pa.table([pa.array([v]) for row in rows for v in row], names=names)) if names else None


def _unpacked(data: object) -> list[list[object]]:
    if data is None:
        return []
    if not isinstance(data, str):
        raise InputError("the ticket is not one of this server")
    table = _read_ipc(data)
    rows: dict[str, list[object]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        rows.setdefault(name.partition(".")[0], []).extend(column.to_pylist()[:1])
    return list(rows.values())


def _said(outcomes: list[Outcome]) -> pa.Table:
    return pa.table([[o.tag for o in outcomes], [o.message for o in outcomes]], schema=_SAID)


def _count(outcomes: list[Outcome]) -> int:
    """Rows that statements have changed: the number in ``INSERT 0 3``."""
    last = [o.tag.rsplit(" ", 1)[-1] for o in outcomes]
    return sum(int(n) for n in last if n.isdigit())


def _positioned(schema: pa.Schema, position: int, stream: str) -> pa.Schema:
    return schema.with_metadata(
        {**(schema.metadata or {}), b"penstock.position": str(position).encode(), b"penstock.stream": stream.encode()}
    )


def _one_name(descriptor: flight.FlightDescriptor) -> str:
    if len(descriptor.path) != 1:
        raise InputError("the path names one stream or relation")
    return _path(descriptor)[0]


def _path(descriptor: flight.FlightDescriptor) -> list[str]:
    try:
        return [part.decode() for part in descriptor.path]
    except UnicodeDecodeError:
        raise InputError("the path is not in UTF-8") from None


def _key(given: object) -> tuple[str, int]:
    """A producer and a sequence."""
    match given:
        case [str(producer), int(sequence)] if producer and sequence >= 0:
            return producer, sequence
        case [str(producer), str(sequence)] if producer and sequence.isdecimal():
            return producer, int(sequence)
    raise InputError("a key is a producer and a sequence", hint='["me", 7], or in a header me/7')


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns(schema: pa.Schema) -> str:
    from penstock.model.types import from_arrow

    types = [from_arrow(f.type) for f in schema]
    if (bad := next((f for f, t in zip(schema, types, strict=True) if t is None), None)) is not None:
        raise InputError(f"column `{bad.name}` of type {bad.type} has no type in CQL")
    return ", ".join(f"{_quoted(f.name)} {t}" for f, t in zip(schema, types, strict=True))
