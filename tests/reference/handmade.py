"""Plans and inputs written by hand, briefly. Columns are BIGINT unless they say more: ``x:STRING``."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model import types
from penstock.model.change import Change
from penstock.model.schema import Field, Schema
from penstock.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Node,
    Project,
    Query,
    RelationScan,
    StreamScan,
    Window,
)
from penstock.plan.window import WindowSpec
from penstock.reference.evaluator import Answer, Element, evaluate
from penstock.scalar.expr import Call, Column, Expr, Literal, WindowBound


def _schema(columns: str) -> Schema:
    fields = []
    for column in columns.split():
        name, _, dtype = column.partition(":")
        fields.append(Field(name, getattr(types, dtype or "BIGINT")))
    return tuple(fields)


def stream(name: str, columns: str, position: int = 0) -> StreamScan:
    return StreamScan(name, _schema(columns), position, "ticks")


def relation(name: str, columns: str, position: int = 9) -> RelationScan:
    return RelationScan(name, _schema(columns), position)


def window(node: Node, spec: WindowSpec) -> Window:
    return Window(node, spec)


def col(node: Node, name: str) -> Column:
    names = [f.name for f in node.schema]
    i = names.index(name)
    return Column(i, node.schema[i].type, name)


def lit(value: object) -> Literal:
    return Literal(value, types.STRING if isinstance(value, str) else types.BIGINT)


def call(function: str, *args: Expr) -> Call:
    return Call(function, args, types.BOOLEAN)


def where(node: Node, name: str, op: str, value: object) -> Filter:
    return Filter(node, call(op, col(node, name), lit(value)))


def select(node: Node, *names: str) -> Project:
    return Project(node, tuple(col(node, n) for n in names), names)


def pick(node: Node, *positions: int) -> Project:
    exprs = tuple(Column(i, node.schema[i].type) for i in positions)
    return Project(node, exprs, tuple(f"c{i}" for i in positions))


def start_of_window(node: Node) -> Project:
    """window_start, then the columns of the node."""
    columns = (Column(i, f.type) for i, f in enumerate(node.schema))
    exprs: tuple[Expr, ...] = (WindowBound("start", types.BIGINT), *columns)
    return Project(node, exprs, ("window_start", *(f.name for f in node.schema)))


def bounds_of_window(node: Node) -> Project:
    columns = (Column(i, f.type) for i, f in enumerate(node.schema))
    start, end = WindowBound("start", types.BIGINT), WindowBound("end", types.BIGINT)
    exprs: tuple[Expr, ...] = (start, end, *columns)
    return Project(node, exprs, ("window_start", "window_end", *(f.name for f in node.schema)))


def join(kind: str, left: Node, right: Node, on: str = "", residual: Expr | None = None) -> Join:
    keys = tuple((col(left, name), col(right, name)) for name in on.split())
    return Join(kind, left, right, keys, residual)  # type: ignore[arg-type]


def group(node: Node, keys: str, *aggregates: str) -> Aggregate:
    """``group(s, "g", "sum v", "count")``."""
    calls = []
    for text in aggregates:
        function, *args = text.split()
        dtype = types.DOUBLE if function in ("avg", "quantile") else types.BIGINT
        calls.append(AggregateCall(function, tuple(col(node, a) for a in args), dtype))
    exprs = tuple(col(node, k) for k in keys.split())
    names = (*keys.split(), *(a.replace(" ", "_") for a in aggregates))
    return Aggregate(node, exprs, tuple(calls), names)


def query(node: Node, output: str = "changes", *masters: str) -> Query:
    return Query(node, output, masters, "ticks")  # type: ignore[arg-type]


def rows(*at: tuple[object, ...]) -> list[Element]:
    """Elements: each tuple is ts and then the values."""
    return [Element(t[0], tuple(t[1:]), i) for i, t in enumerate(at)]  # type: ignore[arg-type]


def at(ts: int, *signed: tuple[object, ...]) -> list[Change]:
    """Changes of one instant: each tuple is "+" or "-" and then the values."""
    first = ts * 100
    return [Change(ts, 1 if s[0] == "+" else -1, tuple(s[1:]), first + i) for i, s in enumerate(signed)]


def initially(*values: tuple[object, ...]) -> list[Change]:
    return [Change(None, 1, v, i) for i, v in enumerate(values)]


Line = tuple[object, ...]


def lines(answers: Sequence[Answer]) -> list[Line]:
    """Each answer as (ts, op, value, …)."""
    return [(a.ts, a.op, *a.row) for a in answers]


def ask(
    plan: Query, relations: dict[str, list[Change]] | None = None, /, **streams: list[Element]
) -> list[Line]:
    return lines(evaluate(plan, streams, relations))


def plus(*answers: tuple[object, ...]) -> list[Line]:
    """Lines that are all additions: each tuple is ts and then the values."""
    return [(a[0], "+", *a[1:]) for a in answers]
