"""What a client that is logged in says, and what it hears: statements, prepared ones, portals, cursors, COPY."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa

from penstock.model.names import counted
from penstock.server.holding import Hold
from penstock.server.postgres import copying, errors, messages, statements, types
from penstock.server.postgres.catalog import Asking, Catalog, Seen
from penstock.server.postgres.errors import Refused
from penstock.server.postgres.inference import types_in_select
from penstock.server.postgres.messages import Body, Bound, Malformed, Parsed
from penstock.server.postgres.parameters import NAMES, Parameters
from penstock.server.postgres.sources import Following, Held, Source, positioned, with_position
from penstock.server.postgres.statements import Other, Statement
from penstock.server.postgres.values import decode
from penstock.server.service import Outcome, Page, Service, Session
from penstock.server.statements import pieces

T = TypeVar("T")
_BATCH = 500
"""Rows that are encoded at once, before other connections get their turn."""
_MOST_PREPARED = 1_000
_MOST_PORTALS = 100
_READING = frozenset({"SELECT", "WITH", "VALUES", "EXPLAIN", "SHOW", "DESCRIBE", "TABLE", "FROM"})
"""Statements that change nothing, so that one may be given up while it runs."""


class Client(Protocol):
    """The other end: what a dialogue needs of its connection."""

    number: int

    def send(self, data: bytes) -> None:
        """Gather what goes to the client."""

    async def spill(self) -> None:
        """Write if enough has been gathered."""

    async def flush(self) -> None:
        """Write what was gathered."""

    async def message(self) -> tuple[bytes, Body]:
        """The next message."""

    async def call(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """Call the service in the pool."""

    async def reading(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """Call it with a ``stop``, which is set as soon as the client cancels it or goes."""

    async def unless_cancelled(self, work: Awaitable[T]) -> T:
        """The result of the work, or an error as soon as the client cancels it or goes."""


@dataclass
class Prepared:
    """A statement with the types of its parameters and of its rows (None: it has none)."""

    text: str
    statement: Statement | None
    oids: list[int] = field(default_factory=list)
    schema: pa.Schema | None = None
    hold: Hold | None = None


@dataclass
class Portal:
    """A statement with its values, or a cursor; it runs when its rows are first asked for."""

    statement: Statement | None
    values: list[object]
    formats: tuple[int, ...]
    schema: pa.Schema | None
    text: str
    source: Source | None = None
    tag: str | None = None
    declared: bool = False
    hold: Hold | None = None


@dataclass(frozen=True)
class Answer:
    """What a statement gave: a tag, and rows where it has some."""

    tag: str
    source: Source | None = None


class Dialogue:
    """The state of one login. Bounded by: ``_MOST_PREPARED`` statements, ``_MOST_PORTALS`` portals and cursors; their
    texts, values and rows count for ``Settings.user_memory``."""

    def __init__(
        self, connection: Client, service: Service, catalog: Catalog, session: Session, parameters: Parameters,
        database: str,
    ) -> None:  # fmt: skip
        self._connection, self._call = connection, connection.call
        self._service, self._session, self._parameters = service, session, parameters
        self._catalog, self._database = catalog, database
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._seen = Seen()
        self._written = 0
        self.status = b"I"
        self.text = ""
        """What the client has sent, in which positions of errors count."""

    def end(self) -> None:
        """The client is gone: nothing is held for it any more."""
        self._portals.clear()
        self._prepared.clear()

    def fail(self) -> None:
        """A statement has failed: in a transaction, nothing runs until its end."""
        if self.status == b"T":
            self.status = b"E"

    # -- the simple protocol --------------------------------------------------------------------------

    async def simple(self, text: str) -> None:
        """Run the statements of a text, one after the other."""
        self.text = text
        self._check_length(text)
        self._prepared.pop("", None)
        found = pieces(text)
        if not found:
            self._connection.send(messages.EMPTY_QUERY)
        for piece in found:
            answer = await self._run(statements.read(piece, NAMES), [])
            if answer.source is not None:
                self._connection.send(_description(answer.source.schema, ()))
                count = await self._rows(answer.source, (), None)
                self._complete(answer.tag, count)
            else:
                self._complete(answer.tag, None)

    # -- the extended protocol ------------------------------------------------------------------------

    async def parse(self, message: Parsed) -> None:
        """Make a prepared statement."""
        self.text = message.text
        self._check_length(message.text)
        found = pieces(message.text)
        if len(found) > 1:
            raise Refused("42601", "cannot insert multiple commands into a prepared statement")
        if message.name:
            if message.name in self._prepared:
                raise Refused("42P05", f'prepared statement "{message.name}" already exists')
            if len(self._prepared) >= _MOST_PREPARED:
                raise Refused("53400", f"a connection has at most {_MOST_PREPARED} prepared statements", "DEALLOCATE")
        made = Prepared(message.text, None)
        if found:
            statement = statements.read(found[0], NAMES)
            self._check_transaction(statement)
            made = await self._describe_statement(message.text, statement, message.types)
        made.hold = self._held(len(message.text))
        self._prepared[message.name] = made
        self._connection.send(messages.PARSE_COMPLETE)

    async def _describe_statement(self, text: str, statement: Statement, given: Sequence[int]) -> Prepared:
        wanted: list[int] = []
        schema: pa.Schema | None = None
        match statement:
            case statements.ShowParameter(name):
                schema = self._shown(name).schema
            case statements.Fetch(name, moves=False):
                schema = self._portal(name).schema
            case Other(inner):
                wanted, schema = await self._described(inner, given)
            case statements.Declare(_, inner) | statements.CopyOut(inner):
                wanted, _ = await self._described(inner, given)
        oids = [g or w for g, w in zip(given, wanted, strict=False)] + list(given[len(wanted) :]) + wanted[len(given) :]
        return Prepared(text, statement, oids, schema)

    async def _described(self, text: str, given: Sequence[int]) -> tuple[list[int], pa.Schema | None]:
        """The types of parameters and rows of a statement that the service or the catalog runs."""
        known = await self._connection.reading(self._catalog.ask, self._asking(), text, None, given)
        if known is not None:
            return known.parameters, known.schema
        dtypes, schema = await self._connection.reading(self._service.describe, self._session, text)
        if pieces(text)[0].words[0] == "SUBSCRIBE" and schema is not None:
            schema = with_position(schema)
        oids = [0 if dtype is None else types.of_cql(dtype)[0] for dtype in dtypes]
        if 0 in oids and schema is not None:
            tables = await self._call(self._service.tables, self._session)
            inferred = types_in_select(text, given, tables)
            oids = [oid or other for oid, other in zip(oids, inferred, strict=False)] + oids[len(inferred) :]
        return [oid or 25 for oid in oids], schema

    async def bind(self, message: Bound) -> None:
        """Make a portal: a prepared statement with values."""
        prepared = self._find_prepared(message.statement)
        self.text = prepared.text
        if len(message.values) != len(prepared.oids):
            raise Refused(
                "08P01", f"bind message supplies {len(message.values)} parameters, but prepared statement "
                f'"{message.statement}" requires {len(prepared.oids)}',
            )  # fmt: skip
        if message.portal:
            if message.portal in self._portals:
                raise Refused("42P03", f'portal "{message.portal}" already exists')
            self._check_portals()
        formats = messages.spread(message.formats, len(message.values))
        values = [
            None if data is None else decode(data, oid, form, f"parameter ${i}")
            for i, (data, oid, form) in enumerate(zip(message.values, prepared.oids, formats, strict=True), 1)
        ]
        if prepared.schema is not None:
            messages.spread(message.results, len(prepared.schema))
        self._portals[message.portal] = Portal(
            prepared.statement, values, message.results, prepared.schema, prepared.text,
            hold=self._held(sum(len(data) for data in message.values if data is not None)),
        )  # fmt: skip
        self._connection.send(messages.BIND_COMPLETE)

    async def describe(self, what: bytes, name: str) -> None:
        """Say what a statement takes and gives, or what a portal gives."""
        formats: tuple[int, ...] = ()
        if what == b"S":
            prepared = self._find_prepared(name)
            self._connection.send(messages.parameter_description(prepared.oids))
            schema = prepared.schema
        elif what == b"P":
            portal = self._portal(name)
            schema, formats = portal.schema, portal.formats
        else:
            raise Malformed(f"Describe knows S and P, not {what!r}")
        self._connection.send(messages.NO_DATA if schema is None else _description(schema, formats))

    async def execute(self, name: str, most: int) -> None:
        """Run a portal, or go on with its rows."""
        portal = self._portal(name)
        self.text = portal.text
        if portal.statement is None and not portal.declared:
            self._connection.send(messages.EMPTY_QUERY)
            return
        if portal.source is None and portal.tag is None:
            assert portal.statement is not None
            answer = await self._run(portal.statement, portal.values)
            portal.source, portal.tag = answer.source, answer.tag
            if portal.source is not None and portal.schema is not None:
                _check_same(portal.schema, portal.source.schema)
        if portal.source is None:
            self._complete(portal.tag or "", None)
            return
        count, more = await self._some_rows(portal.source, portal.formats, most if most > 0 else None)
        if more:
            self._connection.send(messages.PORTAL_SUSPENDED)
        else:
            self._complete(portal.tag or "SELECT", count)

    def close(self, what: bytes, name: str) -> None:
        """Forget a statement or a portal; one that is not there is no error."""
        if what not in (b"S", b"P"):
            raise Malformed(f"Close knows S and P, not {what!r}")
        if what == b"S":
            self._prepared.pop(name, None)
        else:
            self._portals.pop(name, None)
        self._connection.send(messages.CLOSE_COMPLETE)

    def sync(self) -> None:
        """The end of what belongs together: outside a transaction portals end with it, cursors do not."""
        if self.status == b"I":
            self._portals = {n: p for n, p in self._portals.items() if p.declared}

    # -- running --------------------------------------------------------------------------------------

    async def _run(self, statement: Statement, values: Sequence[object]) -> Answer:
        self._check_transaction(statement)
        match statement:
            case statements.Transaction():
                return self._transaction(statement)
            case statements.SetParameter(name, value, tag):
                self._set(name, value)
                return Answer(tag)
            case statements.ShowParameter(name):
                return Answer("SHOW", Held(self._shown(name)))
            case statements.Declare():
                return await self._declare(statement, values)
            case statements.Fetch():
                return await self._fetch(statement)
            case statements.Close(cursor):
                return self._close_cursor(cursor)
            case statements.Deallocate(prepared, tag):
                return self._deallocate(prepared, tag)
            case statements.CopyIn():
                return await self._copy_in(statement)
            case statements.CopyOut():
                return await self._copy_out(statement, values)
            case Other(text):
                return await self._other(text, values)

    async def _other(self, text: str, values: Sequence[object]) -> Answer:
        """What the catalog answers, or the service."""
        known = await self._connection.reading(self._catalog.ask, self._asking(), text, values, ())
        if known is not None:
            for name, value in known.settings:
                self._set(name, value)
            assert known.table is not None
            return Answer(f"SELECT {known.table.num_rows}", Held(known.table, self._held(known.table.nbytes)))
        reading = pieces(text)[0].words[0] in _READING
        seconds = self._parameters.timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        call = self._connection.reading if reading else self._call
        outcomes = await call(self._service.execute, self._session, text, tuple(values), deadline=deadline)
        outcome = outcomes[-1]
        self._note(outcome)
        if outcome.subscribe is not None:
            feed = await self._call(self._service.feed, self._session, outcome.subscribe.query)
            waiting = self._connection.unless_cancelled
            return Answer("SUBSCRIBE", Following(feed, outcome.subscribe.position, self._call, waiting))
        if outcome.table is not None:
            return Answer(outcome.tag, Held(outcome.table, outcome.hold))
        if not reading:
            self._written += 1
            self._seen.forget()
        return Answer(outcome.tag)

    def _note(self, outcome: Outcome) -> None:
        if outcome.note:
            self._connection.send(messages.notice(b"N", errors.notice(outcome.note)))

    def _complete(self, tag: str, rows: int | None) -> None:
        first = tag.split(" ")[0]
        if rows is not None and first in ("SELECT", "FETCH", "SUBSCRIBE"):
            tag = f"{first} {rows}"
        self._connection.send(messages.command_complete(tag))

    async def _rows(self, source: Source, formats: Sequence[int], most: int | None) -> int:
        count = 0
        while True:
            sent, more = await self._some_rows(source, formats, most)
            count += sent
            if not more:
                return count

    async def _some_rows(self, source: Source, formats: Sequence[int], most: int | None) -> tuple[int, bool]:
        """Send rows, at most ``most``; how many went, and whether more may come. A subscription is waited for."""
        spread = messages.spread(formats, len(source.schema))
        count, more = 0, True
        while more and (most is None or count < most):
            table, more = await source.fetch(_BATCH if most is None else min(_BATCH, most - count), None)
            encoded = types.encode(table, spread, self._parameters.zone)
            for row in messages.data_rows(encoded, table.num_rows):
                self._connection.send(row)
            count += table.num_rows
            if isinstance(source, Following):
                await self._connection.flush()
                if most is not None:
                    break  # what is there now; the client asks again
            else:
                await self._connection.spill()
        return count, more

    # -- transactions and parameters ------------------------------------------------------------------

    def _check_transaction(self, statement: Statement) -> None:
        if self.status == b"E" and not isinstance(statement, statements.Transaction):
            raise Refused("25P02", "current transaction is aborted, commands ignored until end of transaction block")

    def _transaction(self, statement: statements.Transaction) -> Answer:
        """There are no transactions: every statement stays done. BEGIN and COMMIT are accepted because clients send
        them."""
        match statement.kind:
            case "begin":
                if self.status != b"I":
                    self._warn("there is already a transaction in progress")
                else:
                    self._written = 0
                self.status = b"T" if self.status == b"I" else self.status
            case "savepoint":
                if self.status == b"E":
                    raise Refused(
                        "25P02", "current transaction is aborted, commands ignored until end of transaction block"
                    )
            case "back":
                self.status = b"T"
                self._warn_of_written()
            case "commit" | "rollback":
                failed = self.status == b"E"
                if statement.kind == "rollback" or failed:
                    self._warn_of_written()
                if self.status == b"I":
                    self._warn("there is no transaction in progress")
                self.status = b"I"
                self._portals.clear()
                return Answer("ROLLBACK" if failed else statement.tag)
        return Answer(statement.tag)

    def _warn_of_written(self) -> None:
        if self._written and self.status != b"I":
            said = f"{counted(self._written, 'statement')} since BEGIN {'stays' if self._written == 1 else 'stay'} done"
            self._warn(f"there are no transactions here: {said}")

    def _warn(self, message: str) -> None:
        self._connection.send(messages.notice(b"N", errors.notice(message, warning=True)))

    def _set(self, name: str, value: str | None) -> None:
        self._seen.forget()
        for changed, now in self._parameters.set(name, value):
            self._connection.send(messages.parameter_status(changed, now))

    def _shown(self, name: str) -> pa.Table:
        if name == "all":
            return self._parameters.table()
        return pa.table({name: pa.array([self._parameters.get(name)], pa.string())})

    # -- cursors --------------------------------------------------------------------------------------

    async def _declare(self, statement: statements.Declare, values: Sequence[object]) -> Answer:
        if statement.name in self._portals:
            raise Refused("42P03", f'cursor "{statement.name}" already exists')
        self._check_portals()
        answer = await self._other(statement.text, values)
        if answer.source is None:
            raise Refused("42601", "a cursor is for SELECT or SUBSCRIBE")
        self._portals[statement.name] = Portal(
            None, [], (1,) if statement.binary else (), answer.source.schema, self.text, answer.source,
            answer.tag, declared=True,
        )  # fmt: skip
        return Answer("DECLARE CURSOR")

    async def _fetch(self, statement: statements.Fetch) -> Answer:
        portal = self._portal(statement.name)
        if portal.source is None:
            raise Refused("24000", f'cursor "{statement.name}" has no rows')
        table, _ = await portal.source.fetch(statement.count, statement.seconds)
        if statement.moves:
            return Answer(f"MOVE {table.num_rows}")
        own = isinstance(portal.source, Following)  # other rows are those of the cursor, which has counted them
        return Answer(f"FETCH {table.num_rows}", Held(table, self._held(table.nbytes) if own else None))

    def _close_cursor(self, name: str | None) -> Answer:
        if name is None:
            self._portals.clear()
            return Answer("CLOSE CURSOR ALL")
        self._portal(name)
        del self._portals[name]
        return Answer("CLOSE CURSOR")

    def _deallocate(self, name: str | None, tag: str) -> Answer:
        if name is None:
            self._prepared.clear()
            if tag == "DISCARD ALL":
                self._portals.clear()
                self._set("all", None)
        elif self._prepared.pop(name, None) is None:
            raise Refused("26000", f'prepared statement "{name}" does not exist')
        return Answer(tag)

    # -- COPY -----------------------------------------------------------------------------------------

    async def _copy_in(self, statement: statements.CopyIn) -> Answer:
        schema = await self._call(self._columns_of, statement)
        self._connection.send(messages.copy_response(b"G", int(statement.options.format == "binary"), len(schema)))
        await self._connection.flush()
        data, most, hold = bytearray(), self._service.settings.body, self._held(0)
        while True:
            letter, body = await self._connection.message()
            if letter == b"d":
                hold.grow(len(body.data))
                data += body.data
                if len(data) > most:
                    raise Refused("54000", f"COPY takes at most {most} bytes at once", "send the rows in parts")
            elif letter == b"c":
                break
            elif letter == b"f":
                raise Refused("57014", f"COPY from stdin failed: {body.text()}")
            elif letter not in (b"H", b"S"):
                raise Malformed(f"rows were expected, not {letter!r}")
        pushed = await self._call(self._push, statement, schema, bytes(data))
        self._written += 1
        return Answer(f"COPY {pushed}")

    def _columns_of(self, statement: statements.CopyIn) -> pa.Schema:
        """The columns that rows come for. In the pool."""
        known = {r.name: r.schema for r in self._service.relations(self._session)}
        schema = known.get(statement.name) or self._service.stream(self._session, statement.name).schema
        chosen = statement.columns or tuple(schema.names)
        for name in chosen:
            if name not in schema.names:
                hint = ", ".join(f"`{n}`" for n in schema.names)
                raise Refused("42703", f'column "{name}" of "{statement.name}" does not exist', f"there are {hint}")
        if len(set(chosen)) < len(chosen):
            raise Refused("42701", "a column stands twice in COPY")
        return pa.schema([schema.field(name) for name in chosen])

    def _push(self, statement: statements.CopyIn, schema: pa.Schema, data: bytes) -> int:
        """Rows into a stream; what became of them is told. In the pool."""
        table = copying.to_table(data, schema, statement.options, statement.name, self._service.settings.rows)
        if statement.columns:
            whole = self._columns_of(statements.CopyIn(statement.name, (), statement.options))
            held = dict(zip(table.column_names, table.columns, strict=True))
            arrays = [held.get(f.name, pa.nulls(table.num_rows, f.type)) for f in whole]
            table = pa.Table.from_arrays(arrays, schema=whole)
        if not table.num_rows:
            return 0
        pushed = self._service.push(self._session, statement.name, table)
        notes = [(pushed.apart, "did not fit and went apart"), (pushed.late, "came too late and are in no answer")]
        for count, said in notes:
            if count:
                self._connection.send(messages.notice(b"N", errors.notice(f"{counted(count, 'row')} {said}")))
        return pushed.rows

    async def _copy_out(self, statement: statements.CopyOut, values: Sequence[object]) -> Answer:
        answer = await self._other(statement.text, values)
        source, options = answer.source, statement.options
        if source is None:
            raise Refused("42601", "COPY … TO is for SELECT or SUBSCRIBE")
        form = int(options.format == "binary")
        self._connection.send(messages.copy_response(b"H", form, len(source.schema)))
        self._send_data(copying.begin(source.schema, options))
        count = await (self._follow(source, options) if isinstance(source, Following) else self._copy(source, options))
        self._send_data(copying.end(options))
        self._connection.send(messages.COPY_DONE)
        return Answer(f"COPY {count}")

    async def _copy(self, source: Source, options: statements.CopyOptions) -> int:
        count, more = 0, True
        while more:
            table, more = await source.fetch(_BATCH, None)
            self._connection.send(_copy_data(table, options))
            await self._connection.spill()
            count += table.num_rows
        return count

    async def _follow(self, source: Following, options: statements.CopyOptions) -> int:
        """Results as they come, until the query ends or the client cancels. Readers of one query share their bytes."""
        count = 0

        def encoded(table: pa.Table, start: int) -> bytes:
            return _copy_data(positioned(table, start), options)

        def encode(page: Page) -> bytes:
            return page.encoded(f"postgres {options}", encoded)

        await self._connection.flush()
        while (page := await source.page(None)) is not None:
            self._connection.send(encode(page))
            await self._connection.flush()
            count += len(page)
        return count

    def _send_data(self, data: bytes) -> None:
        if data:
            self._connection.send(messages.message(b"d", data))

    # -- helpers --------------------------------------------------------------------------------------

    def _held(self, size: int) -> Hold:
        """Memory that the client uses as long as it has what this belongs to."""
        return self._service.holding.hold(self._session.user, size)

    def _asking(self) -> Asking:
        return Asking(
            self._service, self._session, self._database, self._parameters.all(), self._connection.number, self._seen
        )

    def _find_prepared(self, name: str) -> Prepared:
        found = self._prepared.get(name)
        if found is None:
            said = (
                f'prepared statement "{name}" does not exist' if name else "unnamed prepared statement does not exist"
            )
            raise Refused("26000", said)
        return found

    def _portal(self, name: str) -> Portal:
        found = self._portals.get(name)
        if found is None:
            raise Refused("34000", f'cursor "{name}" does not exist' if name else "portal does not exist")
        return found

    def _check_portals(self) -> None:
        if len(self._portals) >= _MOST_PORTALS:
            raise Refused("53400", f"a connection has at most {_MOST_PORTALS} cursors at a time", "CLOSE some")

    def _check_length(self, text: str) -> None:
        most = self._service.settings.statement
        if len(text) > most:
            raise Refused("54000", f"a statement has at most {most} characters, this has {len(text)}")


def _description(schema: pa.Schema, formats: Sequence[int]) -> bytes:
    columns = types.columns(schema)
    return messages.row_description(columns, messages.spread(formats, len(columns)))


def _copy_data(table: pa.Table, options: statements.CopyOptions) -> bytes:
    return b"".join(messages.message(b"d", row) for row in copying.rows_out(table, options))


def _check_same(told: pa.Schema, found: pa.Schema) -> None:
    """The client decodes by what it was told when it prepared the statement."""
    if [c.oid for c in types.columns(told)] != [c.oid for c in types.columns(found)]:
        raise Refused("0A000", "cached plan must not change result type", "prepare the statement again")
