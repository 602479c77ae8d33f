"""Running the statements of a text for a client: those of a server here, a plain SELECT by ``adhoc``, all others by the
database."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from penstock.cql import ast
from penstock.cql.declarations import located, place_of
from penstock.cql.expressions import identifier
from penstock.cql.text import parse
from penstock.database.database import Database, core_of
from penstock.database.results import Result
from penstock.model import tracing
from penstock.model.errors import BindError, CatalogError, PenstockError, suggest
from penstock.model.names import counted
from penstock.model.types import DataType
from penstock.server import statements as st
from penstock.server.gate import Gate
from penstock.server.session import Outcome, Session, Start, Subscribe, Subscription
from penstock.server.stop import Patience, Stop

if TYPE_CHECKING:
    from penstock.server.service import Service

_PLAIN = {"SELECT", "WITH", "VALUES", "FROM", "TABLE"}
"""What a statement begins with that is answered once."""
_LONGEST = 2_000
"""Characters of a statement in the audit log."""
_CHANGES = (
    ast.CreateStream, ast.CreateRelation, ast.CreateView, ast.CreateQuery, ast.DropObject, ast.StopQuery,
    ast.AlterQuery, ast.SuspendQuery, ast.ResumeQuery,
)  # fmt: skip
"""Statements that go one after the other, and into the audit log."""
_TWO = {"CREATE", "DROP", "ALTER", "STOP", "SUSPEND", "RESUME", "SHOW"}
"""Words that say what a statement does only with the next one."""
_SECOND = {
    "STREAM", "STREAMS", "RELATION", "RELATIONS", "VIEW", "VIEWS", "QUERY", "QUERIES", "FUNCTIONS", "USER", "ROLE",
    "TOKEN", "SUBSCRIPTION", *st.SHOWN,
}  # fmt: skip
_FIRST = {
    *_TWO, *_PLAIN, "INSERT", "UPDATE", "DELETE", "DESCRIBE", "EXPLAIN", "SUBSCRIBE", "CONFIRM", "GRANT", "REVOKE",
}  # fmt: skip
_LISTS = {"STREAMS": "stream", "RELATIONS": "relation", "VIEWS": "view", "QUERIES": "query"}


class Selects(Protocol):
    """What ``adhoc.AdHoc`` is here."""

    def select(
        self, sql: str, tables: Mapping[str, Callable[[], pa.Table]], parameters: Sequence[object] = (),
        deadline: float | None = None, stop: Stop | None = None, room: Callable[[int], None] = ...,
    ) -> pa.Table: ...  # fmt: skip

    def describe(
        self, sql: str, tables: Mapping[str, Callable[[], pa.Table]], stop: Stop | None = None
    ) -> tuple[list[DataType | None], pa.Schema]: ...

    def close(self) -> None: ...


class Executing:
    """See above."""

    def __init__(self, service: Service, db: Database, gate: Gate) -> None:
        self._service, self._db, self._core, self._gate = service, db, core_of(db), gate
        self._starting = threading.Lock()
        self._adhoc: Selects | None = None

    def close(self) -> None:
        with self._starting:
            if self._adhoc is not None:
                self._adhoc.close()

    def run(
        self, session: Session, text: str, parameters: Sequence[object], deadline: float | None = None,
        stop: Stop | None = None,
    ) -> list[Outcome]:  # fmt: skip
        found = st.pieces(text)
        if parameters and len(found) > 1:
            raise BindError("only one statement can have parameters", hint="send the statements one by one")
        return [self._traced(session, piece, parameters, deadline, stop) for piece in found]

    def _traced(
        self, session: Session, piece: st.Piece, parameters: Sequence[object], deadline: float | None,
        stop: Stop | None,
    ) -> Outcome:  # fmt: skip
        with tracing.span("statement", kind=_kind(piece), user=session.user, protocol=session.protocol):
            return self._one(session, piece, parameters, deadline, stop)

    def _one(
        self, session: Session, piece: st.Piece, parameters: Sequence[object], deadline: float | None,
        stop: Stop | None,
    ) -> Outcome:  # fmt: skip
        if _is_plain(piece):
            return self._select(session, piece, parameters, deadline, stop)
        if parameters:
            (piece,) = st.pieces(st.spliced(piece.whole, parameters))
        try:
            own = st.server_statement(piece)
            return self._cql(session, piece) if own is None else self._own(session, own)
        except PenstockError as error:
            if error.position is not None:
                error.text = piece.whole  # not the one with everything else blank
            raise

    # -- a plain SELECT -------------------------------------------------------------------------------

    def _select(
        self, session: Session, piece: st.Piece, parameters: Sequence[object], deadline: float | None,
        stop: Stop | None,
    ) -> Outcome:  # fmt: skip
        patience = Patience.of(self._service.settings.adhoc_seconds, stop)
        if deadline is not None and deadline < patience.deadline:
            patience = Patience(deadline, max(0.0, deadline - time.monotonic()), stop)
        hold = self._service.holding.hold(session.user)
        try:
            table = self._selects().select(
                piece.in_place, self._service.moment(session, piece.text, patience), tuple(parameters),
                patience.deadline, stop, hold.grow,
            )  # fmt: skip
        except BaseException:
            hold.release()  # at once: the error may live on
            raise
        return Outcome(f"SELECT {table.num_rows}", counted(table.num_rows, "row"), table, hold=hold)

    def _selects(self) -> Selects:
        with self._starting:
            if self._adhoc is None:
                settings = self._service.settings
                try:
                    made = importlib.import_module("penstock.server.adhoc").AdHoc
                except ModuleNotFoundError as missing:
                    raise CatalogError(
                        f"a plain SELECT needs {missing.name}", hint="pip install 'penstock[server]'"
                    ) from None
                self._adhoc = made(
                    memory=f"{max(1, settings.adhoc_memory // 1_000_000)}MB", seconds=settings.adhoc_seconds,
                    zone=self._db.zone,
                )  # fmt: skip
            assert self._adhoc is not None
            return self._adhoc

    # -- CQL ------------------------------------------------------------------------------------------

    def _cql(self, session: Session, piece: st.Piece) -> Outcome:
        text = piece.in_place
        (statement,) = parse(text)
        tree = statement.tree
        with ExitStack() as stack:
            if isinstance(tree, _CHANGES):
                stack.enter_context(self._service.declaring())
            if self._gate.passes_over(session, tree):
                kind = tree.args["kind"]
                return Outcome(f"DROP {kind.upper()}", f"there was no {kind.lower()} {identifier(tree.this)}")
            made = located(text, tree, lambda: self._gate.check_statement(session, tree))
            with self._service.defining(session, made):
                result = self._db.execute(text)
            if isinstance(tree, _CHANGES):
                self._service.audit.write(session, "statement", text=piece.text[:_LONGEST])
            if isinstance(tree, ast.StopQuery | ast.DropObject):
                self._service.gone()
        return self._outcome(session, tree, result)

    def _outcome(self, session: Session, tree: exp.Expr, result: Result) -> Outcome:
        table = result.table
        if isinstance(tree, ast.ShowObjects) and table is not None:
            table = self._seen(session, tree, table)
        note = result.note
        message = result.message
        if isinstance(tree, ast.ShowObjects) and tree.args["kind"] in _LISTS and table is not None:
            kind = _LISTS[tree.args["kind"]]
            message = counted(table.num_rows, kind, "queries" if kind == "query" else None)
        query = None if result.query is None else result.query.name
        return Outcome(_tag(tree, result), message, table, query, note)

    def _seen(self, session: Session, tree: exp.Expr, table: pa.Table) -> pa.Table:
        """What SHOW lists, without what the user may not see."""
        kind = _LISTS.get(tree.args["kind"])
        if kind is None or self._gate.administers(session):
            return table
        names = table.column(0).to_pylist()
        over = {n for n in self._core.over if self._gate.owns(session, "stopped", n)} if kind == "query" else set()
        there = self._gate.there(kind)
        keep = [self._gate.sees(session, kind, n) if n in there else n in over for n in names]
        table = table.filter(pa.array(keep, pa.bool_()))
        if "text" in table.column_names:
            known = [self._knows(session, kind, n) for n in table.column(0).to_pylist()]
            at = table.column_names.index("text")
            hidden = pc.if_else(pa.array(known, pa.bool_()), table.column(at), pa.scalar(""))
            table = table.set_column(at, "text", hidden)
        return table

    def _knows(self, session: Session, kind: str, name: str) -> bool:
        if kind == "query":
            found = self._core.queries.get(name)
            return found is None or self._gate.knows(session, found)
        view = self._core.catalog.views.get(name)
        return view is None or self._gate.owns(session, "view", name) or self._gate.reads_all(session, view.reads)

    # -- what only a server knows ---------------------------------------------------------------------

    def _own(self, session: Session, statement: st.Statement) -> Outcome:
        service = self._service
        match statement:
            case st.SubscribeTo(query, start, name):
                return self._subscribe(session, query, start, name)
            case st.CreateSubscription(name, query, start):
                made = service.create_subscription(session, name, query, start)
                said = f"subscription {made.name} to {made.query} begins at {made.position}"
                return Outcome("CREATE SUBSCRIPTION", said)
            case st.DropSubscription(name):
                service.drop_subscription(session, name)
                return Outcome("DROP SUBSCRIPTION", f"subscription {name} dropped")
            case st.Confirm(name, position):
                service.confirm(session, name, position)
                return Outcome("CONFIRM", f"subscription {name} has all before {position}")
            case st.ShowServer():
                return self._show(session, statement.what)
            case st.AlterUser(name) if name == session.user:
                return self._administer(session, statement)  # everybody may change its own password
        self._gate.check_administers(session, "manage users, roles, tokens and grants")
        return self._administer(session, statement)

    def _subscribe(self, session: Session, query: str, start: Start | None, name: str | None) -> Outcome:
        feed = self._service.feed(session, query)
        if name is None:
            position = self._service.position(feed, start)
        else:
            named = self._service.subscription(session, name, query=query, start="now" if start is None else start)
            position = named.position
        return Outcome("SUBSCRIBE", f"results of {feed.query} from {position}",
                       subscribe=Subscribe(feed.query, position, name))  # fmt: skip

    def _administer(self, session: Session, statement: st.Statement) -> Outcome:
        access, audit = self._service.access, self._service.audit
        match statement:
            case st.CreateUser(name, password, roles):
                access.create_user(name, password, roles)
                how = "" if password is not None else f"; CREATE TOKEN … FOR {name} or a password lets it in"
                done = Outcome("CREATE USER", f"user {name} created{how}")
            case st.AlterUser(name, password):
                access.set_password(name, password)
                done = Outcome("ALTER USER", f"user {name} has {'no' if password is None else 'another'} password")
            case st.CreateRole(name):
                access.create_role(name)
                done = Outcome("CREATE ROLE", f"role {name} created")
            case st.DropWho(kind, name):
                access.drop(kind, name)
                done = Outcome(f"DROP {kind.upper()}", f"{kind} {name} dropped")
            case st.GrantRight(grant, revoke):
                if not revoke:
                    self._check_there(grant.kind, grant.name)
                (access.revoke if revoke else access.grant)(grant)
                done = Outcome("REVOKE" if revoke else "GRANT",
                               f"{grant} {'revoked from' if revoke else 'granted to'} {grant.to}")  # fmt: skip
            case st.GrantRole(role, user, revoke):
                access.put_in_role(user, role, out=revoke)
                done = Outcome("REVOKE ROLE" if revoke else "GRANT ROLE",
                               f"{user} is {'no longer' if revoke else 'now'} in role {role}")  # fmt: skip
            case st.CreateToken(name, user, lifetime):
                token = access.create_token(name, user, lifetime)
                said, note = f"token {name} of {user} created", "this is the only time that it is shown"
                done = Outcome("CREATE TOKEN", said, pa.table({"token": [token]}), note=note)
            case st.DropToken(name):
                access.drop_token(name)
                done = Outcome("DROP TOKEN", f"token {name} dropped")
            case _:
                raise AssertionError(statement)
        audit.write(session, done.tag.lower(), said=done.message)
        return done

    def _check_there(self, kind: str | None, name: str | None) -> None:
        if kind is not None and name is not None and name not in self._gate.there(kind):
            raise CatalogError(f"no {kind} `{name}`", hint=suggest(name, self._gate.there(kind)))

    def _show(self, session: Session, what: str) -> Outcome:
        service, state = self._service, self._service.access.state
        match what:
            case "sessions":
                table = sessions_table(service.sessions(session))
            case "subscriptions":
                table = subscriptions_table(service.subscriptions(session))
            case _:
                every = self._gate.administers(session)
                mine = state.users.get(session.user)
                me = {session.user, *(() if mine is None else mine.roles)}
                table = _WHO[what](state, None if every else me)
        return Outcome("SHOW", counted(table.num_rows, what.removesuffix("s")), table)

    # -- describing -----------------------------------------------------------------------------------

    def describe(
        self, session: Session, text: str, stop: Stop | None = None
    ) -> tuple[list[DataType | None], pa.Schema | None]:
        found = st.pieces(text)
        if not found:
            return [], None
        if len(found) > 1:
            raise BindError("one statement can be described at a time")
        piece = found[0]
        count = st.parameter_count(text)
        if _is_plain(piece):
            moment = self._service.moment(session, text)
            empty = {name: schema.empty_table for name, schema in moment.schemas().items()}
            return self._selects().describe(piece.in_place, empty, stop)
        nothing: list[DataType | None] = [None] * count
        (filled,) = st.pieces(st.spliced(text, [None] * count))
        own = None
        if not count or piece.words[0] not in ("SUBSCRIBE", "CONFIRM"):
            own = st.server_statement(filled)
        match own:
            case st.SubscribeTo(query):
                return nothing, self._service.feed(session, query).schema
            case st.CreateToken():
                return nothing, pa.schema([("token", pa.string())])
            case st.ShowServer():
                table = self._show(session, own.what).table
                return nothing, None if table is None else table.schema
            case None:
                return self._describe_cql(session, piece, filled, nothing)
        return nothing, None

    def _describe_cql(
        self, session: Session, piece: st.Piece, filled: st.Piece, types: list[DataType | None]
    ) -> tuple[list[DataType | None], pa.Schema | None]:
        (statement,) = parse(filled.in_place)
        tree = statement.tree
        match tree:
            case ast.ShowObjects() | ast.DescribeObject() | ast.Explain():  # which change nothing
                table = self._cql(session, filled).table
                return types, None if table is None else table.schema
            case ast.InsertInto():
                return self._parameters(session, tree, piece, types), None
        return types, None

    def _parameters(
        self, session: Session, tree: exp.Expr, piece: st.Piece, types: list[DataType | None]
    ) -> list[DataType | None]:
        """The types of parameters in VALUES: those of the columns that they go into."""
        kind, name = self._gate.find(session, identifier(tree.this), "stream", "relation", right="write")
        catalog = self._core.catalog
        schema = catalog.streams[name].schema if kind == "stream" else catalog.relations[name].schema
        columns = tree.args.get("columns") or []
        places = [place_of(c, schema, f"{kind} `{name}`") for c in columns] or list(range(len(schema)))
        depth = column = asked = 0
        begun = False
        for token in piece.tokens:
            begun = begun or token.upper == "VALUES"
            if token.sort == "parameter":
                asked += token.value == "?"
                number = (asked if token.value == "?" else int(token.value[1:])) - 1
                if begun and depth == 1 and column < len(places):
                    types[number] = schema[places[column]].type
            if not begun or token.sort != "mark":
                continue
            if token.value == "(":
                depth, column = depth + 1, 0 if depth == 0 else column
            elif token.value == ")":
                depth -= 1
            elif token.value == "," and depth == 1:
                column += 1
        return types


def _kind(piece: st.Piece) -> str:
    """What a statement does, in words of the language. Other words are not in spans: one may be a password."""
    first, second = (*piece.words, "")[:2]
    if first not in _FIRST:
        return "other"
    return f"{first} {second}" if first in _TWO and second in _SECOND else first


def _is_plain(piece: st.Piece) -> bool:
    first = next((t for t in piece.tokens if t.value != "("), piece.tokens[0])
    return first.upper in _PLAIN


def _tag(tree: exp.Expr, result: Result) -> str:
    match tree:
        case ast.InsertInto():
            return f"INSERT 0 {result.count or 0}"
        case ast.UpdateRelation():
            return f"UPDATE {result.count or 0}"
        case ast.DeleteFrom():
            return f"DELETE {result.count or 0}"
        case ast.DropObject():
            return f"DROP {tree.args['kind'].upper()}"
    return _TAGS[type(tree)]


_TAGS: Mapping[type[exp.Expr], str] = {
    ast.CreateStream: "CREATE STREAM", ast.CreateRelation: "CREATE RELATION", ast.CreateView: "CREATE VIEW",
    ast.CreateQuery: "CREATE QUERY", ast.StopQuery: "STOP QUERY", ast.AlterQuery: "ALTER QUERY",
    ast.SuspendQuery: "SUSPEND QUERY", ast.ResumeQuery: "RESUME QUERY", ast.ShowObjects: "SHOW",
    ast.DescribeObject: "DESCRIBE", ast.Explain: "EXPLAIN",
}  # fmt: skip


# -- tables of the server ---------------------------------------------------------------------------------

_text, _int, _bool, _time = pa.string(), pa.int64(), pa.bool_(), pa.timestamp("us", "UTC")
_SESSIONS = pa.schema([
    ("id", _text), ("user", _text), ("protocol", _text), ("remote", _text), ("admin", _bool), ("token", _text),
    ("since", _time), ("expires", _time),
])  # fmt: skip
_SUBSCRIPTIONS = pa.schema([
    ("name", _text), ("query", _text), ("position", _int), ("lag", _int), ("gone", _int), ("owner", _text),
])  # fmt: skip


def sessions_table(found: Sequence[Session]) -> pa.Table:
    return _rows(found, _SESSIONS)


def subscriptions_table(found: Sequence[Subscription]) -> pa.Table:
    return _rows(found, _SUBSCRIPTIONS)


def _rows(found: Sequence[Any], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array([getattr(each, f.name) for each in found], f.type) for f in schema], schema=schema)


def _users(state: Any, only: set[str] | None) -> pa.Table:
    users = [(n, u) for n, u in sorted(state.users.items()) if only is None or n in only]
    return pa.table({
        "user": pa.array([n for n, _ in users], _text),
        "roles": pa.array([", ".join(u.roles) for _, u in users], _text),
        "password": pa.array([u.password is not None for _, u in users], _bool),
    })  # fmt: skip


def _roles(state: Any, only: set[str] | None) -> pa.Table:
    roles = [r for r in sorted(state.roles) if only is None or r in only]
    members = [", ".join(n for n, u in sorted(state.users.items()) if r in u.roles and (only is None or n in only))
               for r in roles]  # fmt: skip
    return pa.table({"role": pa.array(roles, _text), "users": pa.array(members, _text)})


def _grants(state: Any, only: set[str] | None) -> pa.Table:
    grants = [g for g in sorted(state.grants, key=lambda g: (g.to, str(g))) if only is None or g.to in only]
    return pa.table({
        "to": pa.array([g.to for g in grants], _text), "right": pa.array([g.right for g in grants], _text),
        "kind": pa.array([g.kind for g in grants], _text), "name": pa.array([g.name for g in grants], _text),
    })  # fmt: skip


def _tokens(state: Any, only: set[str] | None) -> pa.Table:
    tokens = [(n, t) for n, t in sorted(state.tokens.items()) if only is None or t.user in only]
    return pa.table({
        "token": pa.array([n for n, _ in tokens], _text), "user": pa.array([t.user for _, t in tokens], _text),
        "created": pa.array([t.created for _, t in tokens], _time),
        "expires": pa.array([t.expires for _, t in tokens], _time),
    })  # fmt: skip


_WHO: Mapping[str, Callable[[Any, set[str] | None], pa.Table]] = {
    "users": _users, "roles": _roles, "grants": _grants, "tokens": _tokens,
}  # fmt: skip
