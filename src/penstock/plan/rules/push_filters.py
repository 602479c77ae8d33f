"""Move filters towards the sources, as far as the answers stay the same.

A filter passes a window only where each row's own timestamp decides its stay (UNBOUNDED, NOW, RANGE) or where
whole partitions are kept or dropped. It then also removes instants of evaluation, which must not be seen: so
never under RSTREAM without masters, nor where there is an answer while all windows are empty. Expressions
with a user's function are not moved, nor is anything moved past them. A condition that fails (and so is
NULL) on a row is evaluated for other rows than before: the count of failures may change, answers do not.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.derive import is_silent
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
    Prioritise,
    Project,
    Query,
    SemiJoin,
    SetOp,
    Window,
    expressions,
    transform,
)
from penstock.plan.scope import decides_by_value, each_query, has_window_bound, shift, side_of
from penstock.plan.window import Now, PartitionRows, Range, Unbounded
from penstock.scalar.expr import Expr, columns, conjunction, conjuncts, few_conjuncts, is_pure, substitute


def push_filters(query: Query) -> Query:
    """Sink every conjunct of every filter, and the one-sided conjuncts of joins.

    >>> from penstock.scalar.expr import Call, Column, Literal
    >>> from penstock.plan.nodes import Field, StreamScan
    >>> from penstock.model.types import BOOLEAN, INT
    >>> scan = StreamScan("s", (Field("a", INT),), 0, "ticks")
    >>> hot = Call(">", (Column(0, INT), Literal(5, INT)), BOOLEAN)
    >>> plan = Query(Filter(Window(scan, Range(10)), hot), "istream")
    >>> push_filters(plan).input == Window(Filter(scan, hot), Range(10))
    True
    """
    return each_query(query, _one)


def _one(query: Query) -> Query:
    if query.masters or query.output == "windows":
        past_windows = True
    else:
        past_windows = query.output != "rstream" and is_silent(query.input)

    def change(node: Node) -> Node:
        match node:
            case Filter(below, predicate) if is_pure(predicate):
                for part in few_conjuncts(predicate):
                    below = _sink(below, part, past_windows)
                return below
            case Join() if _is_pure_node(node):
                return _split_residual(node, past_windows)
            case SemiJoin() if _is_pure_node(node):
                return _split_candidates(node, past_windows)
        return node

    return replace(query, input=transform(query.input, change, into_queries=False))


def _sink(node: Node, part: Expr, past_windows: bool) -> Node:
    """The node's rows for which ``part`` is TRUE, filtered as early as possible."""
    here = Filter(node, part)
    if not _is_pure_node(node):
        return here
    match node:
        case Filter(below, _):
            sunk = _sink(below, part, past_windows)
            return here if sunk == Filter(below, part) else replace(node, input=sunk)
        case Project(below, exprs, _):
            return replace(node, input=_sink(below, substitute(part, exprs), past_windows))
        case Window(below, _, _):
            if past_windows and _may_pass(node, part):
                return replace(node, input=_sink(below, part, past_windows))
        case Join(kind, left, right, _, _):
            split = len(left.schema)
            side = side_of(part, split)
            if side == "left" and kind in ("inner", "left"):
                return replace(node, left=_sink(left, part, past_windows))
            if side == "right" and kind in ("inner", "right"):
                return replace(node, right=_sink(right, shift(part, -split), past_windows))
        case SemiJoin(_, left, _, _, _, _):
            if all(i < len(left.schema) for i in columns(part)):
                return replace(node, left=_sink(left, part, past_windows))
        case Aggregate(below, keys, _, _):
            read = columns(part)
            if read and all(i < len(keys) for i in read) and decides_by_value(part):
                return replace(node, input=_sink(below, substitute(part, keys), past_windows))
        case Prioritise(below, _):
            return replace(node, input=_sink(below, part, past_windows))
        case Distinct(below):
            if decides_by_value(part):
                return replace(node, input=_sink(below, part, past_windows))
        case SetOp(kind, all_, left, right):
            if (kind == "union" and all_) or decides_by_value(part):
                left, right = (_sink(side, part, past_windows) for side in (left, right))
                return replace(node, left=left, right=right)
    return here


def _may_pass(window: Window, part: Expr) -> bool:
    if has_window_bound(part):
        return False
    match window.spec:
        case Unbounded() | Now() | Range():
            return True
        case PartitionRows(keys, _):
            return columns(part) <= set(keys) and decides_by_value(part)
    return False


def _is_pure_node(node: Node) -> bool:
    return all(map(is_pure, expressions(node)))


def _split_residual(node: Join, past_windows: bool) -> Join:
    """A side whose rows are never padded out of a mismatch may be filtered before the join."""
    split = len(node.left.schema)
    left, right, kept = node.left, node.right, []
    for part in conjuncts(node.residual):
        side = side_of(part, split)
        if side == "left" and node.kind in ("inner", "right"):
            left = _sink(left, part, past_windows)
        elif side == "right" and node.kind in ("inner", "left"):
            right = _sink(right, shift(part, -split), past_windows)
        else:
            kept.append(part)
    return replace(node, left=left, right=right, residual=conjunction(kept))


def _split_candidates(node: SemiJoin, past_windows: bool) -> SemiJoin:
    split = len(node.left.schema)
    left, right, kept = node.left, node.right, []
    for part in conjuncts(node.residual):
        side = side_of(part, split)
        if side == "right":
            right = _sink(right, shift(part, -split), past_windows)
        elif side == "left" and node.kind == "semi":
            left = _sink(left, part, past_windows)
        else:
            kept.append(part)
    return replace(node, left=left, right=right, residual=conjunction(kept))
