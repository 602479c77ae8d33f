"""Which row is which, as columns.

Whether a row of the result at one instant is a row of the result at another is a matter of identity, not of values:
of a window's row it is the element it came with, of a joined row those of both sides, of a group its values. An
engine that looks at the changes of each instant needs no more than that. To compare the results of two instants between
which a lot has happened (MASTER, where windows pass everything on), the identity must be seen: ``identified`` adds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from penstock.model.delta import Delta, Step
from penstock.model.schema import Field, Schema
from penstock.model.types import BIGINT
from penstock.operators.base import NOTHING, StateSize
from penstock.plan.nodes import Filter, Join, Node, Prioritise, Project, RelationScan, SemiJoin, SetOp, TopN, Window
from penstock.scalar.expr import Column, Expr, Literal, remap

MOMENT: Schema = (Field("moment_ts", BIGINT), Field("moment_sub", BIGINT))
"""The instant of the element that a row came with, as columns."""


class Identity:
    """Adds each row's moment as two columns. Remembers nothing."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        (delta,) = inputs
        return delta.with_columns(
            self._schema, [*delta.columns, pa.array(delta.moment_ts), pa.array(delta.moment_sub)]
        )

    def size(self) -> StateSize:
        return NOTHING


@dataclass(frozen=True)
class IdentifiedWindow(Window):
    """A window whose rows have ``MOMENT`` behind their columns."""

    label: ClassVar[str] = "which row is which"

    @property
    def schema(self) -> Schema:
        return self.input.schema + MOMENT

    @property
    def plain(self) -> Window:
        return Window(self.input, self.spec, self.retractions)

    def operator(self) -> Identity:
        return Identity(self.schema)


@dataclass(frozen=True)
class IdentifiedScan(RelationScan):
    """A relation whose last columns are ``MOMENT``."""

    label: ClassVar[str] = "which row is which"

    @property
    def plain(self) -> RelationScan:
        return RelationScan(self.relation, self.schema[: -len(MOMENT)], self.position)

    def operator(self) -> Identity:
        return Identity(self.schema)


@dataclass(frozen=True)
class Identified:
    """A plan with more columns than another: where those of the other are, and those that are the row's identity.

    Rows that are equal in all of these are one row, or as good as it.
    """

    node: Node
    columns: tuple[int, ...]
    key: tuple[int, ...]

    def moved(self, expr: Expr) -> Expr:
        """An expression over the other plan's columns."""
        return remap(expr, self.columns.__getitem__)

    def column(self, index: int) -> Column:
        """A column of this plan."""
        field = self.node.schema[index]
        return Column(index, field.type, field.name)


def identified(node: Node) -> Identified:
    """The plan with the identity of its rows."""
    width = len(node.schema)
    match node:
        case Window():
            window = IdentifiedWindow(node.input, node.spec, node.retractions)
            return Identified(window, tuple(range(width)), (width, width + 1))
        case RelationScan():
            # Rows that one statement put in have a moment in common.
            scan = IdentifiedScan(node.relation, node.schema + MOMENT, node.position)
            return Identified(scan, tuple(range(width)), tuple(range(width + 2)))
        case Filter():
            below = identified(node.input)
            return replace(below, node=Filter(below.node, below.moved(node.predicate)))
        case Prioritise():
            below = identified(node.input)
            return replace(below, node=Prioritise(below.node, below.moved(node.by)))
        case Project():
            below = identified(node.input)
            return _projected(below, [below.moved(e) for e in node.exprs], node.names)
        case Join():
            return _joined(node)
        case SemiJoin():
            return _semi_joined(node)
        case SetOp(kind="union", all=True):
            return _united(node)
        case TopN(limit=None, offset=0):
            below = identified(node.input)
            keys = tuple(replace(k, expr=below.moved(k.expr)) for k in node.keys)
            return replace(below, node=TopN(below.node, keys, None))
    # Groups, distinct rows and the like are their values.
    return Identified(node, tuple(range(width)), tuple(range(width)))


def _projected(below: Identified, exprs: Sequence[Expr], names: Sequence[str]) -> Identified:
    """Columns computed from others, and the identity."""
    key = [below.column(k) for k in below.key]
    width = len(exprs)
    project = Project(below.node, (*exprs, *key), (*names, *(c.name for c in key)))
    return Identified(project, tuple(range(width)), tuple(range(width, width + len(key))))


def _joined(node: Join) -> Identified:
    left, right = identified(node.left), identified(node.right)
    if node.kind in ("left", "full"):
        right = _not_null(right)
    if node.kind in ("right", "full"):
        left = _not_null(left)
    width = len(left.node.schema)
    columns = (*left.columns, *(width + c for c in right.columns))
    keys = tuple((left.moved(a), right.moved(b)) for a, b in node.keys)
    residual = None if node.residual is None else remap(node.residual, columns.__getitem__)
    joined = replace(node, left=left.node, right=right.node, keys=keys, residual=residual)
    return Identified(joined, columns, (*left.key, *(width + k for k in right.key)))


def _not_null(side: Identified) -> Identified:
    """With an identity that is not NULL in all columns, so that a row is not taken for none."""
    exprs = [side.column(i) for i in range(len(side.node.schema))]
    names = [e.name for e in exprs]
    there = len(exprs)
    project = Project(side.node, (*exprs, Literal(1, BIGINT)), (*names, "there"))
    return Identified(project, side.columns, (*side.key, there))


def _semi_joined(node: SemiJoin) -> Identified:
    left = identified(node.left)
    before, width = len(node.left.schema), len(left.node.schema)

    def moved(index: int) -> int:
        return left.columns[index] if index < before else width + index - before

    keys = tuple((left.moved(a), b) for a, b in node.keys)
    residual = None if node.residual is None else remap(node.residual, moved)
    compare = None if node.compare is None else remap(node.compare, moved)
    joined = replace(node, left=left.node, keys=keys, residual=residual, compare=compare)
    if node.kind == "mark":
        return Identified(joined, (*left.columns, width), (*left.key, width))
    return Identified(joined, left.columns, left.key)


def _united(node: SetOp) -> Identified:
    sides = identified(node.left), identified(node.right)
    types = [[side.node.schema[k].type for k in side.key] for side in sides]
    parts: list[Node] = []
    for number, side in enumerate(sides):
        exprs: list[Expr] = [side.column(c) for c in side.columns]
        exprs.append(Literal(number, BIGINT))
        for of, own in enumerate(types):
            exprs += [side.column(k) for k in side.key] if of == number else [Literal(None, t) for t in own]
        names = [*(f.name for f in node.schema), *(f"id{i}" for i in range(len(exprs) - len(node.schema)))]
        parts.append(Project(side.node, tuple(exprs), tuple(names)))
    width = len(node.schema)
    total = len(parts[0].schema)
    return Identified(SetOp("union", True, *parts), tuple(range(width)), tuple(range(width, total)))
