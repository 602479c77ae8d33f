"""What makes two parts of plans the same: equal up to names, the order of conjuncts, and which side of a comparison
stands first.

Keys compare equal only where the parts give the same rows on the same input, and count the same failures. Inputs of a
node are not part of its key. A part that can fail keeps its order: what fails first is what is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from penstock.kernels.expressions import can_fail
from penstock.model.schema import Schema
from penstock.plan.nodes import Aggregate, Distinct, Join, JoinKind, Node, Prioritise, SemiJoin, SetOp, TopN
from penstock.plan.steps import RowStep, columns_of, condition_of, is_step
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound, conjuncts, remap

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
_OTHER_KIND: Mapping[JoinKind, JoinKind] = {"left": "right", "right": "left"}


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
    return (node.kind, tuple(keys), condition([node.residual], functions), node.priority)


def mirrored(node: Join) -> Join:
    """The join that has the sides the other way round."""
    left, right = len(node.left.schema), len(node.right.schema)
    residual = None
    if node.residual is not None:
        residual = remap(node.residual, lambda i: i + right if i < left else i - left)
    keys = tuple((b, a) for a, b in node.keys)
    return Join(_OTHER_KIND.get(node.kind, node.kind), node.right, node.left, keys, residual, node.priority)


def node(node: Node, functions: Functions) -> Hashable:
    """A key of what a node does to its inputs."""
    if is_step(node):
        return chain([node], node.input.schema, functions)
    match node:
        case Join():
            return join(node, functions)
        case SemiJoin():
            pairs = tuple((expression(a, functions), expression(b, functions)) for a, b in node.keys)
            compare = None if node.compare is None else expression(node.compare, functions)
            return (node.kind, pairs, condition([node.residual], functions), compare)
        case Aggregate():
            calls = tuple(
                (c.function, tuple(expression(a, functions) for a in c.args), c.type, c.distinct,
                 None if c.where is None else expression(c.where, functions))
                for c in node.aggregates
            )  # fmt: skip
            return (tuple(expression(k, functions) for k in node.keys), calls)
        case Distinct():
            return ()
        case Prioritise():
            return expression(node.by, functions)
        case SetOp():
            return (node.kind, node.all)
        case TopN():
            keys = tuple((expression(k.expr, functions), k.descending, k.nulls_first) for k in node.keys)
            return (keys, node.limit, node.offset)
    raise TypeError(f"{type(node).__name__} has no key of its own")
