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
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Literal as OneOf
from typing import cast

from penstock.model.schema import MOMENT, Clock, Field, Schema
from penstock.model.types import BOOLEAN, DataType
from penstock.plan.window import WindowSpec, is_bounded
from penstock.scalar.expr import Expr, UserCall

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
    """The rows of a stored relation, as they are at each instant. ``moments``: the last two columns are ``MOMENT``."""

    relation: str
    schema: Schema
    position: int
    moments: bool = False

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
    """Stream to relation. ``retractions``: somebody above needs to know when rows leave.

    ``moments``: ``MOMENT`` follows the columns; not in plans that users see.
    """

    input: Node
    spec: WindowSpec
    retractions: bool = True
    moments: bool = False

    @property
    def schema(self) -> Schema:
        return self.input.schema + MOMENT if self.moments else self.input.schema


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


@dataclass(frozen=True)
class Join:
    """Pairs of rows for which all keys are equal and the residual is TRUE.

    ``keys``: (expression over the left row, expression over the right row), compared with SQL's ``=``.
    ``residual``: over the left row followed by the right row. Outer kinds pad with NULL. ``priority``: that of a pair,
    by those of its rows, one of ``JOIN_PRIORITIES``.
    """

    kind: JoinKind
    left: Node
    right: Node
    keys: tuple[tuple[Expr, Expr], ...] = ()
    residual: Expr | None = None
    priority: str = "max"

    @property
    def schema(self) -> Schema:
        return self.left.schema + self.right.schema


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
    many of the last columns are not shown; they are there for the order of the rows.
    """

    input: Node
    output: Output
    masters: tuple[str, ...] = ()
    clock: Clock = "timestamp"
    hidden: int = 0

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


def inputs(node: Node) -> tuple[Node, ...]:
    """The direct inputs of a node; a ``QueryStream`` has its query."""
    values = (getattr(node, f.name) for f in fields(node))
    return tuple(cast("Node", v) for v in values if isinstance(v, NODE_TYPES))


def with_inputs(node: Node, new: tuple[Node, ...]) -> Node:
    """The same node over other inputs, given in the order of ``inputs``."""
    names = [f.name for f in fields(node) if isinstance(getattr(node, f.name), NODE_TYPES)]
    changed = {n: v for n, v in zip(names, new, strict=True) if getattr(node, n) is not v}
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]


def walk(node: Node, *, into_queries: bool = True) -> Iterator[Node]:
    """The node and everything below it, parents first; ``into_queries=False`` stops at ``QueryStream``."""
    yield node
    if isinstance(node, QueryStream) and not into_queries:
        return
    for child in inputs(node):
        yield from walk(child, into_queries=into_queries)


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply ``change`` to every node, inputs first."""
    below = tuple(transform(child, change) for child in inputs(node))
    return change(with_inputs(node, below))


def sources(query: Query) -> list[StreamScan | RelationScan | QueryStream]:
    """What the query itself reads, in the order of the text; inside a ``QueryStream`` is not looked at."""
    found = walk(query, into_queries=False)
    return [n for n in found if isinstance(n, StreamScan | RelationScan | QueryStream)]


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


def bounded_window(query: Query) -> WindowSpec | None:
    """The bounded window whose ends are the query's instants, if it has one."""
    for node in walk(query, into_queries=False):
        if isinstance(node, Window) and is_bounded(node.spec):
            return node.spec
    return None


def calls_functions(query: Query) -> bool:
    """Whether a query calls Python functions of the user anywhere."""

    def found(part: object) -> bool:
        if isinstance(part, UserCall):
            return True
        if isinstance(part, tuple):
            return any(map(found, part))
        return is_dataclass(part) and any(found(getattr(part, f.name)) for f in fields(part))

    return found(query)


def with_join_priority(query: Query, how: str) -> Query:
    """The same query, in which the priority of a pair is this function of those of its rows."""

    def changed(node: Node) -> Node:
        node = with_inputs(node, tuple(changed(below) for below in inputs(node)))
        return replace(node, priority=how) if isinstance(node, Join) and node.priority != how else node

    found = changed(query)
    assert isinstance(found, Query)
    return found
