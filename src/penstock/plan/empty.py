"""Windows without rows: which have no answer, so that engines may pass over them, and how many may end at once."""

from __future__ import annotations

from collections.abc import Iterator

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
    StreamScan,
    TopN,
    Window,
    bounded_window,
    walk,
)
from penstock.plan.window import Generic, is_bounded

MOST = 1_000_000
"""Windows that a row, heartbeat or change may end where each of them is answered."""
TOO_MANY = 10 * MOST
"""Windows in one step of an engine, which may have many rows, at which a query fails."""


def passes_empty(query: Query) -> bool:
    """Whether windows without rows have no answer and can be found without looking at each: GROUP BY and the like."""
    spec = bounded_window(query)
    regular = isinstance(spec, Generic) and spec.unit == "time" and spec.hop_low == spec.hop_high > 0
    return regular and _is_empty(query.input)


def _is_empty(node: Node) -> bool:
    """Whether nothing comes of it while bounded windows have no rows."""
    match node:
        case Window(_, spec):
            return is_bounded(spec)
        case Filter() | Project() | Prioritise() | Distinct() | TopN():
            return _is_empty(node.input)
        case Aggregate():
            return bool(node.keys) and _is_empty(node.input)
        case Join(kind, left, right):
            sides = _is_empty(left), _is_empty(right)
            return {"inner": any(sides), "left": sides[0], "right": sides[1]}.get(kind, all(sides))
        case SemiJoin(kind, left, right):
            return _is_empty(left) or (kind == "semi" and _is_empty(right))
        case SetOp(kind, _, left, right):
            sides = _is_empty(left), _is_empty(right)
            return {"intersect": any(sides), "except": sides[0]}.get(kind, all(sides))
    return False


def every_window(query: Query) -> Iterator[tuple[Generic, frozenset[str]]]:
    """The windows of time, here and inside, of which each is answered, and the declared streams that end them."""
    for node in walk(query):
        if isinstance(node, Query):
            spec = bounded_window(node)
            if isinstance(spec, Generic) and spec.unit == "time" and spec.hop_high > 0 and not passes_empty(node):
                windows = [n for n in walk(node, into_queries=False) if isinstance(n, Window) and is_bounded(n.spec)]
                over = frozenset(name for window in windows for name in _streams(window))
                yield spec, over or _streams(query)


def _streams(node: Node) -> frozenset[str]:
    return frozenset(n.stream for n in walk(node) if isinstance(n, StreamScan))
