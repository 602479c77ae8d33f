"""A database on a server: the interface of ``penstock.Database``, over HTTP; tables go by Flight where it is there."""

from __future__ import annotations

import inspect
import json
import math
import secrets
import textwrap
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime
from datetime import time as dt_time
from decimal import Decimal
from pathlib import Path
from types import NoneType, TracebackType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from penstock.client.flight import Flight, Unreachable
from penstock.client.query import RemoteQuery
from penstock.client.transport import ARROW, Reply, Transport, path
from penstock.database.database import StreamStatus
from penstock.database.declare import declaration
from penstock.database.results import Result
from penstock.graph.view import GraphView
from penstock.ingest.keys import checked_key
from penstock.model.errors import BindError, CatalogError, InputError, suggest
from penstock.model.types import DataType
from penstock.plan.nodes import Query
from penstock.plan.serial import to_json
from penstock.rows.given import frame_as_table
from penstock.storage.packing import packed, unpacked

_PRODUCER = "client-"


class RemoteQueries(Mapping[str, RemoteQuery]):
    """The registered queries that the user may read, by name: as they are now."""

    def __init__(self, db: RemoteDatabase) -> None:
        self._db = db
        found = db.transport.get("/api/queries", ended="false").json()["queries"]
        self._names = [each["name"] for each in found]

    def __getitem__(self, name: str) -> RemoteQuery:
        if name not in self._names:
            raise KeyError(CatalogError(f"no query `{name}`", hint=suggest(str(name), self._names)).one_line)
        return self._db.held(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class RemoteDatabase:
    """Declare streams, register queries, push rows, fetch results, on a server. Usable from several threads.

    Every push has a key, so rows that were sent again because an answer was lost count once.
    """

    def __init__(
        self, url: str, *, token: str | None = None, user: str | None = None, password: str | None = None,
        ca: str | None = None, patience: float = 30.0,
    ) -> None:  # fmt: skip
        self.transport = Transport(url, token=token, user=user, password=password, ca=ca, patience=patience)
        self._about = self.transport.get("/api/me").json()
        self.flight = Flight(self._flight_address, self.transport.credential, ca, patience)
        self._producer = f"{_PRODUCER}{secrets.token_hex(12)}"
        self._sequence = 0
        self._guard = threading.Lock()
        """Guards the numbers of pushes and the queries that are held."""
        self._queries: dict[str, RemoteQuery] = {}
        """The queries that this client has asked for, by name: bounded by their number."""
        self._relations: dict[str, bool] = {}
        """Of the names that were pushed to, whether it is a relation."""

    def _flight_address(self) -> str | None:
        """Asked for when it is needed: a server that starts again may listen on another port."""
        port = self.transport.get("/api/me").json()["ports"]["flight"]
        scheme = "grpc+tls" if self.url.startswith("https") else "grpc"
        return None if port is None else f"{scheme}://{self.transport.host}:{port}"

    @property
    def engine(self) -> str:
        """The engine of the server."""
        return str(self._about["engine"])

    @property
    def zone(self) -> str:
        """The time zone by whose clocks queries are meant, and in which answers are shown."""
        return str(self._about["zone"])

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.transport.url

    def request(self, method: str, where: str, given: object = None) -> Reply:
        """Any request of the server's interface that is not sent twice; ``given`` as JSON."""
        body = b"" if given is None else json.dumps(given).encode()
        kind = {} if given is None else {"Content-Type": "application/json"}
        return self.transport.ask(method, where, body, kind)

    def held(self, name: str) -> RemoteQuery:
        """The query of this name, as one object for all who ask."""
        with self._guard:
            return self._queries.setdefault(name, RemoteQuery(self, name))

    # -- statements and queries -----------------------------------------------------------------------

    def execute(self, text: str, parameters: Sequence[object] = ()) -> Result:
        """Run the statements of a text one after the other; gives the result of the last one, which has those of all.

        A plain SELECT is answered once, over what stands now; ``CREATE QUERY`` makes a continuous one. ``parameters``:
        the values of ``$1``, ``$2`` … in it.
        """
        given = {"sql": text, "parameters": list(parameters)}
        outcomes = self.transport.post("/api/sql", given, tables="arrow").json()["results"]
        if not outcomes:
            raise BindError("there is no statement in the text")
        results = [self._result(each) for each in outcomes]
        return replace(results[-1], script=tuple(results))

    def _result(self, told: Mapping[str, Any]) -> Result:
        table = unpacked(b64decode(told["arrow"])) if "arrow" in told else None
        query: Any = self.held(told["query"]) if told.get("query") else None
        kind: Literal["done", "table", "query"] = "query" if query else "done" if table is None else "table"
        return Result(kind, told["message"], table=table, query=query, note=told.get("note"))

    def query(
        self, text: str | None = None, *, name: str | None = None, plan: object = None, **options: object
    ) -> RemoteQuery:
        """Register a continuous query, from CQL or from a plan object (a plan, or its JSON form), with the options that
        ``CREATE QUERY … WITH (…)`` takes."""
        if (text is None) == (plan is None):
            raise BindError("give either the text of a query or a plan")
        chosen = {key: value for key, value in options.items() if value is not None}
        given: dict[str, object] = {"name": name} if name is not None else {}
        given |= {"cql": text} if text is not None else {"plan": _plan_json(plan)}
        made = self.transport.post("/api/queries", {**given, "options": chosen} if chosen else given).json()
        with self._guard:
            found = self._queries[made["name"]] = RemoteQuery(self, made["name"])
        return found

    @property
    def queries(self) -> RemoteQueries:
        """The registered queries that the user may read, by name."""
        return RemoteQueries(self)

    def names(self) -> list[str]:
        """Of the streams, relations, queries and columns that the user may read."""
        found: dict[str, None] = {}
        for kind in ("streams", "relations", "queries"):
            for each in self.transport.get(path(kind)).json()[kind]:
                found |= dict.fromkeys([each["name"], *(column["name"] for column in each["columns"])])
        return list(found)

    def explain(self, query: str, format: str = "text", *, alternatives: bool = False) -> str:
        """The plan of a registered query, or of a query text, as text, JSON or Mermaid; or all plans that could be run
        instead."""
        if alternatives:
            table = self.execute(f"EXPLAIN (ALTERNATIVES, FORMAT {format}) {query}").table
            assert table is not None, "EXPLAIN gives one"
            return "\n".join(table.column("plan").to_pylist())
        if query.strip().isidentifier():
            return self.transport.get(path("queries", query.strip(), "explain"), format=format).body.decode()
        return self.transport.post("/api/explain", {"cql": query, "format": format}, again=True).body.decode()

    def declare(
        self, name: str, data: object, *, timestamp: str | None = None, slack: str | None = None,
        key: str | Sequence[str] = (), load: bool = False,
    ) -> str:  # fmt: skip
        """Declare a stream, or with a ``key`` a relation, with the columns of data that are here; the CQL of it. See
        ``penstock.Database.declare``; ``load`` takes tables, not files."""
        if load and isinstance(data, str | Path):
            raise InputError(f"{data} is a file, and `load` brings tables to a server", hint="read it into a table")
        keys = (key,) if isinstance(key, str) else tuple(key)
        found = declaration(name, data, timestamp=timestamp, slack=slack, key=keys, retain=load)
        self.execute(found.statement)
        if load:
            self.push(name, data)
        return str(found)

    def create_function(
        self, name: str, function: Callable[..., object], *, args: Sequence[str | DataType], returns: str | DataType
    ) -> None:
        """Let queries call a Python function, if the server allows it. Its source is sent, so it may use nothing that
        is defined outside of it."""
        try:
            source = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            raise InputError(f"the source of `{name}` cannot be found", hint="define it with def, in a file") from None
        if function.__name__ != name:
            source += f"\n{name} = {function.__name__}\n"
        given = {"name": name, "source": source, "args": list(map(str, args)), "returns": str(returns)}
        self.transport.post("/api/functions", given)

    # -- data -----------------------------------------------------------------------------------------

    def push(self, name: str, rows: object, *, at: object = None, key: tuple[str, int] | None = None) -> None:
        """Rows into a stream, or into a relation (there perhaps ``at`` an instant). All of them, or none.

        It returns when the server has them, as safe as its ``sync`` says. If the connection breaks meanwhile they are
        sent again, and count once. ``key``: a producer and a sequence of your own.
        """
        key = self._key() if key is None else checked_key(key)
        table = None if at is not None or isinstance(rows, list) else frame_as_table(rows)
        if table is not None:
            with suppress(Unreachable):
                self.flight.push(name, table, key)
                return
            rows = table
        where = "relations" if at is not None or self._is_relation(name) else "streams"
        body, kind = _body(rows, lambda: self._columns(where, name))
        instant = None if at is None else at.isoformat() if isinstance(at, date) else str(at)
        self._sent(where, name, body, kind, key, instant)

    def send(self, name: str, body: bytes, kind: str) -> None:
        """Rows as bytes of CSV, JSON lines or Arrow (``kind``: the media type), which the server reads."""
        self._sent("relations" if self._is_relation(name) else "streams", name, body, kind, self._key())

    def _key(self) -> tuple[str, int]:
        with self._guard:
            self._sequence += 1
            return self._producer, self._sequence

    def _sent(
        self, where: str, name: str, body: bytes, kind: str, key: tuple[str, int], at: str | None = None
    ) -> None:
        said = f"{key[0]}:{key[1]}".encode().decode("latin-1")  # headers are bytes, of which http.client makes latin-1
        headers = {"Content-Type": kind, "Idempotency-Key": said}
        self.transport.ask("POST", path(where, name, "rows"), body, headers, parameters={"at": at}, again=True)

    def _is_relation(self, name: str) -> bool:
        """Found out once for each name: what has been dropped and declared as the other kind needs a new client."""
        with self._guard:
            known = self._relations.get(name)
        if known is None:
            found = {each["name"] for each in self.transport.get("/api/relations").json()["relations"]}
            known = name in found or name.lower() in found
            with self._guard:
                self._relations[name] = known
        return known

    def _columns(self, kind: str, name: str) -> list[str]:
        return [each["name"] for each in self.transport.get(path(kind, name)).json()["columns"]]

    def heartbeat(self, name: str | None = None, at: object = None) -> None:
        """Progress without data: no more rows of a stream before ``at`` will come (ticks, datetime, or ISO text).

        Without a stream: let the streams that follow the clock move on with it. Where a query waits for that, the
        server does so by itself.
        """
        if name is None:
            self.transport.post("/api/settle", {}, again=True)
            return
        given = at if isinstance(at, int) else str(at)
        self.transport.post(path("streams", name, "heartbeat"), {"at": given}, again=True)

    def close_stream(self, name: str) -> None:
        """No more rows will come."""
        self.transport.post(path("streams", name, "close"), again=True)

    def stream(self, name: str) -> StreamStatus:
        """How far a stream is, and what it has been given."""
        told = self.transport.get(path("streams", name)).json()
        progress = math.inf if told["closed"] else _instant(told["progress"])
        return StreamStatus(
            progress, _instant(told["newest"]), told["given"], told["late"], told["lateness"], told["apart"],
            told["source"],
        )  # fmt: skip

    def late(self, name: str) -> pa.Table:
        """The rows that came too late for a stream, since the last call."""
        return self.transport.post(path("streams", name, "late"), format="arrow").table()

    def apart(self, name: str) -> pa.Table:
        """The rows that do not fit a stream ``WITH (on_error = 'apart')``, since the last call."""
        return self.transport.post(path("streams", name, "apart"), format="arrow").table()

    def settle(self) -> None:
        """Return when everything pushed so far has been worked on."""
        self.transport.post("/api/settle", {}, again=True)

    # -- how it is run --------------------------------------------------------------------------------

    def metrics(self, of: Literal["work", "queries"] = "work") -> pa.Table:
        """What was measured; see ``penstock.Database.metrics``."""
        return self.transport.get("/api/metrics", of=of, format="arrow").table()

    def configure(self, /, *, query: str | None = None, **settings: Any) -> None:
        """Work in another way from now on; for administrators."""
        if isinstance(queues := settings.get("queues"), Mapping):  # names in JSON are texts
            edges = ("-".join(map(str, edge)) if isinstance(edge, tuple) else edge for edge in queues)
            settings["queues"] = dict(zip(edges, queues.values(), strict=True))
        self.request("PATCH", "/api/settings", {"settings": settings} | ({} if query is None else {"query": query}))

    def graph(self) -> GraphView:
        """The operators of the queries that the user may see."""
        found: GraphView = _made(GraphView, self.transport.get("/api/graph", format="json").json())
        return found

    # -- life -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections. What is on the server goes on."""
        self.transport.close()
        self.flight.close()

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Database of {self.transport.url}, engine {self.engine}>"


def _json_value(value: object) -> str:
    """What JSON has not, as a server reads it; a TypeError if it would not."""
    if isinstance(value, datetime | date | dt_time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError


def _body(rows: object, names: Callable[[], Sequence[str]]) -> tuple[bytes, str]:
    """Rows as they are sent: tables as Arrow, others as JSON where it has all their values. ``names``: the columns."""
    table = None if isinstance(rows, list) else frame_as_table(rows)
    if table is None:
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            raise InputError(
                f"cannot read rows from {type(rows).__name__}",
                hint="give a list of dicts or tuples, a pandas or polars DataFrame, or Arrow",
            )
        found = [rows] if isinstance(rows, Mapping) else list(rows)
        try:
            return json.dumps(found, allow_nan=False, default=_json_value).encode(), "application/json"
        except (TypeError, ValueError):
            table = _as_table(found, names)
    return packed(table), ARROW


def _as_table(rows: Sequence[Any], names: Callable[[], Sequence[str]]) -> pa.Table:
    try:
        known = [row if isinstance(row, Mapping) else dict(zip(names(), row, strict=True)) for row in rows]
        columns = {name: pa.array([row.get(name) for row in known]) for name in {n: None for row in known for n in row}}
    except (pa.ArrowException, TypeError, ValueError) as error:
        hint = "give them as a table of Arrow, pandas or polars"
        raise InputError(f"rows cannot be sent: {error}", hint=hint) from None
    return pa.table(columns)


def _plan_json(plan: object) -> object:
    return to_json(plan) if isinstance(plan, Query) else plan


def _instant(given: int | None) -> float | int:
    return -math.inf if given is None else given


def _made(kind: Any, told: Any) -> Any:
    """A dataclass from the JSON of its fields."""
    if get_origin(kind) in (Union, UnionType):
        if told is None:
            return None
        return _made(next(each for each in get_args(kind) if each is not NoneType), told)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{f.name: _made(hints[f.name], told[f.name]) for f in fields(kind) if f.name in told})
    if get_origin(kind) is tuple:
        return tuple(_made(get_args(kind)[0], each) for each in told)
    if get_origin(kind) is not None and isinstance(told, Mapping):
        of_key, of_value = get_args(kind)
        return {of_key(key): _made(of_value, value) for key, value in told.items()}
    return told
