"""What makes two parts of plans the same: equal up to names, the order of conjuncts, and which side of a comparison
stands first.

Keys compare equal only where the parts give the same rows on the same input, and count the same failures. Inputs of a
node are not part of its key. A part that can fail keeps its order: what fails first is what is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields

from penstock.model.schema import Schema
from penstock.model.types import DataType
from penstock.plan.nodes import NODE_TYPES, AggregateCall, Join, Node, PairPriority, SortKey
from penstock.plan.steps import RowStep, columns_of, condition_of
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound, conjuncts
from penstock.scalar.failing import can_fail

Functions = Mapping[str, Callable[..., object]]


class Named(dict[str, Callable[..., object]]):
    """Functions by the name that queries call them by. ``versions`` tells a function from others that have had its
    name, in every process; a function that is not in it is told by which object it is, in this process alone.
    """

    def __init__(self, functions: Functions, versions: Mapping[str, str]) -> None:
        super().__init__(functions)
        self.versions = versions


def function(name: str, functions: Functions) -> Hashable:
    """A key of a function of the user's."""
    version = functions.versions.get(name) if isinstance(functions, Named) else None
    return id(functions.get(name)) if version is None else version


_MIRRORED = {">": "<", ">=": "<="}
_EITHER_WAY = {"=", "<>", "is_not_distinct"}


def expression(expr: Expr, functions: Functions) -> Hashable:
    """A key of an expression over its input's columns."""
    match expr:
        case Column(index, _):
            return index
        case Literal(value, dtype):
            # 0.0 and -0.0, 1 and TRUE are equal to Python; NaN is not equal to itself.
            return ("literal", type(value).__name__, repr(value), dtype)
        case Call(called, args, dtype):
            keys = [expression(a, functions) for a in args]
            if len(keys) == 2 and not can_fail(expr):
                if called in _MIRRORED:
                    called, keys = _MIRRORED[called], keys[::-1]
                elif called in _EITHER_WAY:
                    keys = ordered(keys)
            return (called, dtype, *keys)
        case UserCall(name, args, dtype):
            return ("user", name, function(name, functions), dtype, *(expression(a, functions) for a in args))
        case Case(branches, otherwise, dtype):
            parts = [e for branch in branches for e in branch]
            return ("case", dtype, *(expression(e, functions) for e in (*parts, otherwise)))
        case Cast(arg, dtype, safe, zone):
            return ("cast", dtype, safe, zone, expression(arg, functions))
        case WindowBound(which, _):
            return ("bound", which)


def ordered(keys: Sequence[Hashable]) -> list[Hashable]:
    """Keys in an order that depends on nothing but themselves."""
    return sorted(keys, key=repr)


def condition(exprs: Sequence[Expr | None], functions: Functions) -> Hashable:
    """A key of several conditions that must all hold."""
    parts = [part for e in exprs for part in conjuncts(e)]
    keys = [expression(part, functions) for part in parts]
    return tuple(keys if any(can_fail(p) for p in parts) else dict.fromkeys(ordered(keys)))


def chain(steps: Sequence[RowStep], schema: Schema, functions: Functions) -> tuple[Hashable, ...]:
    """A key of filters and projections, bottom to top; empty where they leave every row as it is."""
    keys: list[Hashable] = []
    filters: list[Expr | None] = []
    width = len(schema)

    def flush() -> None:
        if filters:
            keys.append(("filter", condition(filters, functions)))
            filters.clear()

    for step in steps:
        predicate = condition_of(step)
        if predicate is not None:
            if any(can_fail(c) for c in conjuncts(predicate)):
                flush()
            filters.append(predicate)
            continue
        columns = tuple(expression(e, functions) for e in columns_of(step))
        if columns == tuple(range(width)):
            continue  # only names
        flush()
        width = len(columns)
        keys.append(("project", columns))
    flush()
    return tuple(keys)


def join(node: Join, functions: Functions) -> Hashable:
    """A key of a join."""
    pairs = [(expression(a, functions), expression(b, functions)) for a, b in node.keys]
    keys: Sequence[Hashable] = pairs if any(can_fail(e) for pair in node.keys for e in pair) else ordered(pairs)
    priority: Hashable = node.priority
    if isinstance(node.priority, PairPriority):
        priority = expression(node.priority.by, functions)
    return (node.kind, tuple(keys), condition([node.residual], functions), priority)


def node(node: Node, functions: Functions) -> Hashable:
    """A key of what a node does to its inputs: all that it says besides them and names."""

    def key(part: object) -> Hashable:
        if isinstance(part, Expr):
            return condition([part], functions)
        if isinstance(part, tuple):
            return tuple(map(key, part))
        if isinstance(part, AggregateCall | SortKey):
            return of_fields(part)
        assert part is None or isinstance(part, str | int | DataType), part
        return part

    def of_fields(part: Node | AggregateCall | SortKey) -> Hashable:
        values = {f.name: getattr(part, f.name) for f in fields(part) if f.name != "names"}
        return tuple(key(value) for value in values.values() if not isinstance(value, NODE_TYPES))

    return of_fields(node)
