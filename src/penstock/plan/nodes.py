"""Nodes of the logical plan: typed, frozen, comparable.

A plan is a tree. Below a ``Window`` are streams (a source, perhaps filtered or projected); above it are
relations that change over time; ``Query`` at the root turns the relation into answers. A query used as a
stream inside another one (a derived stream, ``(SELECT ISTREAM …) [ROWS 5]``) is a ``QueryStream``: it is
evaluated on its own and its answers are elements like any others.

The schema of every node is a tuple of fields; names are for people and for the output, references go by
position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeGuard, TypeVar, cast
from typing import Literal as OneOf

from penstock.model.schema import Clock, Field, Schema
from penstock.model.types import BIGINT, BOOLEAN, DataType
from penstock.plan.window import WindowSpec, is_bounded
from penstock.scalar.expr import Call, Expr, UserCall, conjuncts, remap
from penstock.scalar.expr import walk as parts

JoinKind = OneOf["inner", "left", "right", "full"]
SemiKind = OneOf["semi", "anti", "mark"]
SetKind = OneOf["union", "except", "intersect"]
Output = OneOf["istream", "dstream", "rstream", "changes", "windows"]


@dataclass(frozen=True)
class StreamScan:
    """The elements of a declared stream. ``position`` is its place in the catalog (the total order)."""

    stream: str
    schema: Schema
    position: int
    clock: Clock

    @property
    def name(self) -> str:
        """What it reads."""
        return self.stream


@dataclass(frozen=True)
class RelationScan:
    """The rows of a stored relation, as they are at each instant."""

    relation: str
    schema: Schema
    position: int

    @property
    def name(self) -> str:
        """What it reads."""
        return self.relation


@dataclass(frozen=True)
class QueryStream:
    """The answers of a query as a stream of elements. ``name`` is the derived stream's, or the alias."""

    name: str
    query: Query
    position: int

    @property
    def schema(self) -> Schema:
        return self.query.schema

    @property
    def clock(self) -> Clock:
        return self.query.clock


@dataclass(frozen=True)
class Window:
    """Stream to relation. ``retractions``: somebody above needs to know when rows leave. ``reuse``: a bounded window is
    computed from the one before, where that is possible, not from nothing.

    States are saved under names that have the ``repr`` of plans in them, so that is what it was before ``reuse``.
    """

    input: Node
    spec: WindowSpec
    retractions: bool = True
    reuse: bool = field(default=True, repr=False)

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Filter:
    """The rows for which the predicate is TRUE."""

    input: Node
    predicate: Expr

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Project:
    """One computed row for each row."""

    input: Node
    exprs: tuple[Expr, ...]
    names: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        return tuple(Field(n, e.type) for n, e in zip(self.names, self.exprs, strict=True))


JOIN_PRIORITIES = ("max", "min", "sum")
PRIORITIES: Schema = (Field("left_priority", BIGINT), Field("right_priority", BIGINT))
"""What an expression reads that gives the priority of a pair."""


@dataclass(frozen=True)
class PairPriority:
    """The priority of a pair as an expression over ``PRIORITIES``. It calls no function of the user's."""

    by: Expr

    @property
    def turned(self) -> PairPriority:
        """The same of pairs that have the sides the other way round."""
        return PairPriority(remap(self.by, lambda i: 1 - i))


@dataclass(frozen=True)
class Join:
    """Pairs of rows for which all keys are equal and the residual is TRUE.

    ``keys``: (expression over the left row, expression over the right row), compared with SQL's ``=``.
    ``residual``: over the left row followed by the right row. Outer kinds pad with NULL. ``priority``: that of a pair,
    by those of its rows, one of ``JOIN_PRIORITIES`` or an expression.
    """

    kind: JoinKind
    left: Node
    right: Node
    keys: tuple[tuple[Expr, Expr], ...] = ()
    residual: Expr | None = None
    priority: str | PairPriority = "max"

    @property
    def schema(self) -> Schema:
        return self.left.schema + self.right.schema

    @property
    def turned(self) -> Join:
        """The join of the same rows that has the sides the other way round."""
        kinds: dict[JoinKind, JoinKind] = {"left": "right", "right": "left"}
        left, right = len(self.left.schema), len(self.right.schema)
        residual = self.residual
        if residual is not None:
            residual = remap(residual, lambda i: i + right if i < left else i - left)
        keys = tuple((b, a) for a, b in self.keys)
        priority = self.priority.turned if isinstance(self.priority, PairPriority) else self.priority
        return Join(kinds.get(self.kind, self.kind), self.right, self.left, keys, residual, priority)


@dataclass(frozen=True)
class SemiJoin:
    """Left rows by whether right rows match: the meaning of EXISTS and IN.

    A right row is a candidate when all ``keys`` are equal and ``residual`` is TRUE. ``compare`` (over left
    then right) is IN's own comparison, which may be unknown; without it a candidate is a match.
    The mark is TRUE if some candidate compares TRUE, else NULL if some compares NULL, else FALSE.
    semi keeps rows marked TRUE, anti those marked FALSE, mark keeps all and appends the mark.
    """

    kind: SemiKind
    left: Node
    right: Node
    keys: tuple[tuple[Expr, Expr], ...] = ()
    residual: Expr | None = None
    compare: Expr | None = None

    @property
    def schema(self) -> Schema:
        if self.kind == "mark":
            return (*self.left.schema, Field("mark", BOOLEAN))
        return self.left.schema


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function over a group: count (no args: ``count(*)``), sum, avg, min, max, stddev,
    stddev_pop, variance, var_pop, first, last, quantile (value, fraction), collect."""

    function: str
    args: tuple[Expr, ...]
    type: DataType
    distinct: bool = False
    where: Expr | None = None


@dataclass(frozen=True)
class Aggregate:
    """One row for each group: keys, then aggregates. Without keys there is exactly one row."""

    input: Node
    keys: tuple[Expr, ...]
    aggregates: tuple[AggregateCall, ...]
    names: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        types = [e.type for e in self.keys] + [a.type for a in self.aggregates]
        return tuple(Field(n, t) for n, t in zip(self.names, types, strict=True))


@dataclass(frozen=True)
class Distinct:
    """One row for each distinct row."""

    input: Node

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Prioritise:
    """The same rows with other priorities: those that ``by`` gives, cut off behind the point; 0 for NULL and below."""

    input: Node
    by: Expr

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class SetOp:
    """UNION, EXCEPT, INTERSECT, with ``all`` on bags. Both sides have the same types."""

    kind: SetKind
    all: bool
    left: Node
    right: Node

    @property
    def schema(self) -> Schema:
        return self.left.schema


@dataclass(frozen=True)
class SortKey:
    """One key of an ordering."""

    expr: Expr
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class TopN:
    """The first ``limit`` rows after ``offset`` in the order of the keys, ties by the row's values."""

    input: Node
    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Query:
    """The root: how the relation becomes answers.

    ``windows``: the answer of each bounded window at its end. ``masters``: names of the streams (``StreamScan.stream``,
    ``QueryStream.name``) whose arrivals are the only instants of evaluation; empty means all instants. ``hidden``: so
    many of the last columns are not shown; they are there for the order of the rows. ``ordered``: an answer without
    priority is delivered after all that are earlier in time.
    """

    input: Node
    output: Output
    masters: tuple[str, ...] = ()
    clock: Clock = "timestamp"
    hidden: int = 0
    ordered: bool = False

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def shown(self) -> Schema:
        """The columns of the answers as users see them."""
        return self.schema[: len(self.schema) - self.hidden]


Node = (
    StreamScan | RelationScan | QueryStream | Window | Filter | Project | Join | SemiJoin
    | Aggregate | Distinct | Prioritise | SetOp | TopN | Query
)  # fmt: skip
NODE_TYPES: tuple[type, ...] = Node.__args__
_FIELD_NAMES = {kind: tuple(f.name for f in fields(kind)) for kind in NODE_TYPES}
"""Plans are walked often, and ``fields`` looks at every field of a class anew."""


Source = StreamScan | RelationScan | QueryStream
Stream = StreamScan | QueryStream
N = TypeVar("N", bound=Node)
T = TypeVar("T")


def inputs(node: Node) -> tuple[Node, ...]:
    """The direct inputs of a node; a ``QueryStream`` has its query."""
    return tuple([getattr(node, name) for name in _input_names(node)])


def with_inputs(node: N, new: tuple[Node, ...]) -> N:
    """The same node over other inputs, given in the order of ``inputs``."""
    return _replaced(node, dict(zip(_input_names(node), new, strict=True)))


def _input_names(node: Node) -> list[str]:
    return [name for name in _FIELD_NAMES[type(node)] if isinstance(getattr(node, name), NODE_TYPES)]


def map_inputs(node: N, change: Callable[[Node], Node], *, into_queries: bool = True) -> N:
    """The same node with each input changed; ``into_queries=False`` leaves a ``QueryStream`` as it is."""
    if isinstance(node, QueryStream) and not into_queries:
        return node
    return with_inputs(node, tuple(change(child) for child in inputs(node)))


def _replaced(part: T, values: dict[str, Any]) -> T:
    """The same dataclass with other values of some fields; itself, if they are no others."""
    changed = {name: value for name, value in values.items() if getattr(part, name) is not value}
    found: T = replace(cast("Any", part), **changed) if changed else part
    return found


def walk(node: Node, *, into_queries: bool = True) -> Iterator[Node]:
    """The node and everything below it, parents first; ``into_queries=False`` stops at ``QueryStream``."""
    yield node
    if isinstance(node, QueryStream) and not into_queries:
        return
    for child in inputs(node):
        yield from walk(child, into_queries=into_queries)


def transform(node: Node, change: Callable[[Node], Node], *, into_queries: bool = True) -> Node:
    """Apply ``change`` to every node, inputs first; ``into_queries=False`` does not look into a ``QueryStream``."""

    def below(child: Node) -> Node:
        return transform(child, change, into_queries=into_queries)

    return change(map_inputs(node, below, into_queries=into_queries))


def expressions(node: Node) -> list[Expr]:
    """All expressions of a node itself, in the order of its fields."""
    found: list[Expr] = []

    def see(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    map_expressions(node, see)
    return found


def map_expressions(node: N, change: Callable[[Expr], Expr]) -> N:
    """The same node with ``change`` applied to each of its own expressions."""

    def changed(part: Any) -> Any:
        if isinstance(part, Expr):
            return change(part)
        if isinstance(part, tuple):
            new = tuple(map(changed, part))
            return part if all(a is b for a, b in zip(part, new, strict=True)) else new
        if isinstance(part, AggregateCall | SortKey):
            return of_fields(part)
        return part

    def of_fields(part: T) -> T:
        return _replaced(part, {f.name: changed(getattr(part, f.name)) for f in fields(cast("Any", part))})

    return of_fields(node)


def conditions(node: Join | SemiJoin) -> list[Expr]:
    """What a pair of rows must fulfil, over the left row followed by the right row."""
    split = len(node.left.schema)
    keys: list[Expr] = [Call("=", (a, remap(b, lambda i: i + split)), BOOLEAN) for a, b in node.keys]
    return keys + conjuncts(node.residual)


def is_stream(node: Node) -> TypeGuard[Stream]:
    """Whether a node is a stream itself, declared or of another query's answers."""
    return isinstance(node, Stream)


def sources(node: Node) -> list[Source]:
    """What a query itself reads, in the order of the text; inside a ``QueryStream`` is not looked at."""
    return [n for n in walk(node, into_queries=False) if isinstance(n, Source)]


def streams(node: Node) -> list[Stream]:
    """The streams among the sources of a query."""
    return [n for n in sources(node) if is_stream(n)]


def stream_scans(node: Node, *, into_queries: bool = True) -> list[StreamScan]:
    """The declared streams that a plan reads."""
    return [n for n in walk(node, into_queries=into_queries) if isinstance(n, StreamScan)]


def relation_scans(node: Node, *, into_queries: bool = True) -> list[RelationScan]:
    """The stored relations that a plan reads."""
    return [n for n in walk(node, into_queries=into_queries) if isinstance(n, RelationScan)]


def declared_scans(node: Node) -> list[StreamScan | RelationScan]:
    """All that a plan reads which users have declared."""
    return [n for n in walk(node) if isinstance(n, StreamScan | RelationScan)]


def reads_streams(query: Query) -> bool:
    """Whether a query reads a declared stream, itself or in a query that it reads; else it reads relations alone."""
    return bool(stream_scans(query))


def windows(node: Node, *, into_queries: bool = False) -> list[Window]:
    """The windows of a query itself."""
    return [n for n in walk(node, into_queries=into_queries) if isinstance(n, Window)]


def bounded_windows(node: Node, *, into_queries: bool = False) -> list[Window]:
    """Those of the windows that are answered at their ends."""
    return [window for window in windows(node, into_queries=into_queries) if is_bounded(window.spec)]


def bounded_window(query: Query) -> WindowSpec | None:
    """The bounded window whose ends are the query's instants, if it has one."""
    return next((window.spec for window in bounded_windows(query)), None)


def functions_called(query: Query) -> set[str]:
    """The names of the Python functions of the user that a query calls anywhere."""
    calls = (part for node in walk(query) for expr in expressions(node) for part in parts(expr))
    return {part.function for part in calls if isinstance(part, UserCall)}


def has_join_priority(query: Query) -> bool:
    """Whether the priority of some pair is not the usual function of those of its rows."""
    return any(isinstance(node, Join) and node.priority != "max" for node in walk(query))


def with_join_priority(query: Query, how: str | PairPriority) -> Query:
    """The same query, in which the priority of a pair is this function of those of its rows."""

    def changed(node: Node) -> Node:
        return replace(node, priority=how) if isinstance(node, Join) and node.priority != how else node

    found = transform(query, changed)
    assert isinstance(found, Query)
    return found


def with_reuse(query: Query, reuse: bool) -> Query:
    """The same query, and the queries that it reads, with bounded windows computed this way where they may be."""

    def changed(node: Node) -> Node:
        if isinstance(node, Window) and is_bounded(node.spec) and node.reuse != reuse:
            return replace(node, reuse=reuse)
        return node

    found = transform(query, changed)
    assert isinstance(found, Query)
    return found
