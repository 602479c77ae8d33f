"""What has been declared: streams, relations, views, functions.

Streams and relations have a *position*, the order of their creation, which is part of the total order of
elements. Streams, relations and views share one name space. A definition is immutable; adding one either
succeeds whole or leaves the catalog as it was. The catalog holds one entry for each declaration and forgets
it on DROP.

Owns: what has been declared, and the order of creation. Must not know: data, engines. Enter at: ``Catalog``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from penstock.model.amounts import Bound
from penstock.model.errors import CatalogError, suggest
from penstock.model.schema import Clock, Schema
from penstock.model.types import DataType
from penstock.plan.nodes import Query, QueryStream, RelationScan, StreamScan
from penstock.scalar.expr import Expr
from penstock.scalar.zones import UTC

if TYPE_CHECKING:
    from penstock.rows.apart import OnError, Unknown
    from penstock.rows.times import TimeForm


EVERYTHING = 2**62
"""More ticks than there can be between two rows."""


HistoryIn = Literal["memory", "disk"]
"""Where a stream has the rows that it retains: all in memory, or the newest there and the others on disk."""


@dataclass(frozen=True)
class Unread:
    """Columns of the data behind a name that CQL has no types for, with the types that they have there.

    ``hint``: what to write in order to read them.
    """

    columns: Mapping[str, str]
    hint: str

    def __str__(self) -> str:
        return ", ".join(f"`{name}` ({dtype})" for name, dtype in self.columns.items())


@dataclass(frozen=True)
class SparkSource:
    """Where Spark reads the rows of a stream. ``options``: those of the format, in order. ``columns``: what Spark makes
    of them, in its SQL, if not all columns by name. ``trigger``: seconds from one micro-batch to the next at least."""

    format: str
    options: tuple[tuple[str, str], ...] = ()
    columns: str | None = None
    trigger: float = 0.25

    def __str__(self) -> str:
        return f"spark ({self.format})"


@dataclass(frozen=True)
class StreamDef:
    """A stream: declared with columns, or derived from a query.

    ``retain``: for how many ticks rows are kept for queries to come, ``EVERYTHING``: all; ``history``: where they are.
    ``buffer``: how much of what waits of its rows may be in memory. ``drops``: where there is no room, the oldest rows
    are dropped. ``time``: how times are written in what comes in, if not as usual. ``on_error``: what becomes of a row
    that does not fit; ``unknown``: of a field that is not declared, by default refused in rows and ignored in files.
    ``source``: where its rows come from, if nobody pushes them. ``idle``: after how many ticks on the database's clock
    without anything coming a stream with ``timestamp_by`` moves on with that clock; 0: never.
    """

    name: str
    schema: Schema
    position: int
    clock: Clock
    timestamp_by: str | None = None
    slack: int = 0
    priority: Expr | None = None
    retain: int = 0
    buffer: Bound | None = None
    drops: bool = False
    history: HistoryIn = "memory"
    time: TimeForm | None = None
    on_error: OnError = "refuse"
    unknown: Unknown | None = None
    source: SparkSource | None = None
    query: Query | None = None
    reads: frozenset[str] = frozenset()
    text: str = ""
    unread: Unread | None = None
    idle: int = 0

    @property
    def zone(self) -> str:
        """The time zone of times in what comes in that name none."""
        return UTC if self.time is None else self.time.zone

    @property
    def derived(self) -> bool:
        return self.query is not None

    @property
    def scan(self) -> StreamScan | QueryStream:
        """The plan leaf that reads this stream."""
        if self.query is not None:
            return QueryStream(self.name, self.query, self.position)
        return StreamScan(self.name, self.schema, self.position, self.clock)


@dataclass(frozen=True)
class RelationDef:
    """A stored relation; ``key`` are positions of the columns that identify a row, if declared."""

    name: str
    schema: Schema
    position: int
    key: tuple[int, ...] = ()
    text: str = ""
    unread: Unread | None = None

    @property
    def scan(self) -> RelationScan:
        return RelationScan(self.name, self.schema, self.position)


@dataclass(frozen=True)
class ViewDef:
    """A named query text, bound anew where it is used."""

    name: str
    tree: exp.Expr
    schema: Schema
    reads: frozenset[str]
    text: str = ""


@dataclass(frozen=True)
class FunctionDef:
    """A Python function that queries may call."""

    name: str
    args: tuple[DataType, ...]
    returns: DataType
    call: Callable[..., object] = field(compare=False)


Functions = Mapping[str, tuple[Callable[..., object], Sequence[str], str]]
"""Functions by the name that queries call them by: each with the types of its arguments, and of what it returns."""


@dataclass
class Catalog:
    """All definitions of one database. ``zone``: by whose clocks what is bound from now on is meant."""

    zone: str = UTC
    _streams: dict[str, StreamDef] = field(default_factory=dict)
    _relations: dict[str, RelationDef] = field(default_factory=dict)
    _views: dict[str, ViewDef] = field(default_factory=dict)
    _functions: dict[str, FunctionDef] = field(default_factory=dict)
    _refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Streams and views whose stored text cannot be bound any more: their kind, and why. They can only be dropped."""
    _next_position: int = 0
    given_times: bool = False
    """Whether an instant of a relation has been given as a time, or is one of a TIMESTAMP clock."""
    _whole: Catalog | None = None
    """Of a catalog that has only what a user may read: the one with everything."""

    @property
    def clock(self) -> Clock:
        """The kind of clock of what reads no stream: ticks where everything counts ticks that the user has declared."""
        kinds = {s.clock for s in self._streams.values() if not s.derived}
        return "timestamp" if self.given_times or "timestamp" in kinds else "ticks"

    @property
    def streams(self) -> Mapping[str, StreamDef]:
        return MappingProxyType(self._streams)

    @property
    def relations(self) -> Mapping[str, RelationDef]:
        return MappingProxyType(self._relations)

    @property
    def views(self) -> Mapping[str, ViewDef]:
        return MappingProxyType(self._views)

    @property
    def functions(self) -> Mapping[str, FunctionDef]:
        return MappingProxyType(self._functions)

    @property
    def next_position(self) -> int:
        """The position that the next stream or relation gets; positions are never given twice."""
        return self._next_position

    def skip_positions(self, next: int) -> None:
        """Give no position before this one any more."""
        self._next_position = next

    @property
    def whole(self) -> Catalog:
        """What views are bound with, whoever uses them: everything that is declared."""
        return self if self._whole is None else self._whole

    def seen_by(self, may_read: Callable[[str, str], bool]) -> Catalog:
        """Another catalog with those streams, relations and views alone, by kind and name, that a user may read: names
        that are bound with it, and hints of its errors, are of these."""

        def seen(kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
            return {name: found for name, found in table.items() if may_read(kind, name)}

        return Catalog(
            self.zone, seen("stream", self._streams), seen("relation", self._relations), seen("view", self._views),
            self._functions, {n: r for n, r in self._refused.items() if may_read(r[0], n)}, self._next_position,
            self.given_times, self.whole,
        )  # fmt: skip

    def names(self) -> Iterator[str]:
        """Every name that can stand in FROM."""
        yield from self._streams
        yield from self._relations
        yield from self._views

    def kind_of(self, name: str) -> str | None:
        """``stream``, ``relation`` or ``view``; None for an unknown name."""
        tables = (("stream", self._streams), ("relation", self._relations), ("view", self._views))
        refused = self._refused.get(name, (None, ""))[0]
        return next((kind for kind, table in tables if name in table), refused)

    def check_free(self, name: str) -> None:
        """Refuse a name that something in FROM's name space has already."""
        if kind := self.kind_of(name):
            raise CatalogError(f"there is a {kind} `{name}` already", hint="DROP it first or use another name")

    def add(self, definition: StreamDef | RelationDef | ViewDef) -> None:
        """Add a definition under its free name."""
        self.check_free(definition.name)
        match definition:
            case StreamDef():
                self._streams[definition.name] = definition
            case RelationDef():
                self._relations[definition.name] = definition
            case ViewDef():
                self._views[definition.name] = definition
        if not isinstance(definition, ViewDef):
            self._next_position = max(self._next_position, definition.position) + 1

    def replace_view(self, definition: ViewDef) -> None:
        """Add a view, which is the last one, also if there was a view of that name."""
        if self.kind_of(definition.name) != "view":
            self.check_free(definition.name)
        self._refused.pop(definition.name, None)
        self._views.pop(definition.name, None)
        self._views[definition.name] = definition

    def restore_views(self, before: Mapping[str, ViewDef]) -> None:
        """Have the views again that were there before."""
        self._views = dict(before)

    def refuse(self, name: str, kind: str, why: str) -> None:
        """Have a name of which nothing can be used, and say why when somebody tries."""
        self._refused[name] = kind, why

    def restore_function(self, name: str, before: FunctionDef | None) -> None:
        """Have the function again that was there before, or none."""
        if before is None:
            self._functions.pop(name, None)
        else:
            self._functions[name] = before

    def add_function(self, definition: FunctionDef) -> None:
        """Add a function, replacing one of the same name."""
        self._functions[definition.name] = definition

    def check_there(self, name: str) -> None:
        """Refuse a name that nothing has."""
        if self.kind_of(name) is None:
            raise self.unknown(name)

    def remove(self, name: str) -> None:
        """Forget a stream, relation or view."""
        for table in (self._streams, self._relations, self._views, self._refused):
            if table.pop(name, None) is not None:
                return
        raise self.unknown(name)

    def stream(self, name: str) -> StreamDef:
        """The stream of that name, or an error naming what exists."""
        if found := self._streams.get(name):
            return found
        raise CatalogError(f"no stream `{name}`", hint=suggest(name, self._streams))

    def relation(self, name: str) -> RelationDef:
        """The relation of that name, or an error naming what exists."""
        if found := self._relations.get(name):
            return found
        raise CatalogError(f"no relation `{name}`", hint=suggest(name, self._relations))

    def scan_of(self, name: str) -> StreamScan | QueryStream | RelationScan | None:
        """The plan leaf that reads a stream or relation, by its name in any case; None if nothing has it."""
        for spelt in (name, name.lower()):
            if (found := self._streams.get(spelt) or self._relations.get(spelt)) is not None:
                return found.scan
        return None

    def unknown(self, name: str) -> CatalogError:
        """The error for a name that nothing has, or nothing that can be used."""
        if name in self._refused:
            kind, why = self._refused[name]
            again = f"DROP {kind.upper()} {name} and create it anew"
            return CatalogError(f"{kind} `{name}` cannot be used since it was stored: {why}", hint=again)
        return CatalogError(f"no stream, relation or view `{name}`", hint=suggest(name, self.names()))


OnLag = Literal["suspend", "stop"]
Start = Literal["now", "retained"]
"""With which rows of its streams a query begins: those that come, or before them those that all of them retain. Where
it is not said, those that they retain, if they do."""


@dataclass(frozen=True)
class QueryOptions:
    """``WITH (…)`` of a query. ``lag``: how far it may fall behind, as a text; ``on_lag``: what becomes of it then.
    ``results``: what is kept for readers that have not had it. ``optimise``: its plan is chosen, not run as it was
    submitted; ``reuse``: whether overlapping windows are computed from the one before, None where that is chosen."""

    priority: int = 5
    latency: int | None = None
    strict: bool = False
    start: Start | None = None
    lag: str | None = None
    on_lag: OnLag | None = None
    results: Bound | None = None
    optimise: bool = True
    reuse: bool | None = None


ALTERABLE = ("priority", "latency", "lag", "on_lag", "results")
"""What of it may change while the query runs."""


def retain_example(clock: Clock) -> str:
    """A way to say for how long a stream keeps its rows."""
    return "WITH (retain = 1000)" if clock == "ticks" else "WITH (retain = '1 hour')"
