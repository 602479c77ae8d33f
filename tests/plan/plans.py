"""Short ways to write plans in tests: ``col(S, "k")``, ``eq(a, b)``, ``istream(…)``."""

from __future__ import annotations

from penstock.model.schema import Field, Schema
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING
from penstock.plan.nodes import Aggregate, AggregateCall, Node, Output, Project, Query, RelationScan, StreamScan, Window
from penstock.plan.window import Range, Unbounded, WindowSpec
from penstock.scalar.expr import Call, Column, Expr, Literal

R = StreamScan("r", (Field("k", INT), Field("x", STRING), Field("d", DOUBLE)), 0, "ticks")
S = StreamScan("s", (Field("k", INT), Field("y", INT)), 1, "ticks")
U = StreamScan("u", (Field("y", INT), Field("w", INT)), 3, "ticks")
T = RelationScan("t", (Field("k", INT), Field("z", STRING)), 2)


def col(schema: Schema | Node, name: str, skip: int = 0) -> Column:
    """The column of that name, the first after ``skip`` positions."""
    fields = schema if isinstance(schema, tuple) else schema.schema
    index = next(i for i, f in enumerate(fields) if i >= skip and f.name == name)
    return Column(index, fields[index].type, name)


def num(value: int) -> Literal:
    return Literal(value, INT)


def call(function: str, *args: Expr) -> Call:
    return Call(function, args, BOOLEAN)


def eq(a: Expr, b: Expr) -> Call:
    return call("=", a, b)


def over(node: Node, spec: WindowSpec | None = None) -> Window:
    return Window(node, Range(10) if spec is None else spec)


def unbounded(node: Node) -> Window:
    return Window(node, Unbounded())


def project(node: Node, *names: str) -> Project:
    return Project(node, tuple(col(node, n) for n in names), names)


def count_by(node: Node, *names: str) -> Aggregate:
    """count(*) for each of the named columns."""
    keys = tuple(col(node, n) for n in names)
    return Aggregate(node, keys, (AggregateCall("count", (), BIGINT),), (*names, "n"))


def query(node: Node, output: Output = "istream", *masters: str) -> Query:
    return Query(node, output, masters, "ticks")
