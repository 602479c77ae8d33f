"""Whether a query over bounded windows may keep the state of its operators from one window to the next.

It may where windows overlap and only move forward, and nothing that is remembered depends on the window's bounds.
"""

from __future__ import annotations

from penstock.model.types import BIGINT
from penstock.plan.nodes import (
    Aggregate,
    Node,
    Prioritise,
    Project,
    Query,
    bounded_window,
    bounded_windows,
    expressions,
    walk,
    with_inputs,
)
from penstock.plan.steps import is_step, steps_of
from penstock.plan.window import Generic
from penstock.scalar import expr as ex
from penstock.scalar.expr import Column, Literal, WindowBound


def may_reuse(query: Query) -> bool:
    """Whether each window can be computed from the one before."""
    spec = bounded_window(query)
    if not isinstance(spec, Generic) or spec.hop_low < 0 or spec.hop_high <= 0:
        return False
    return spec.hop_low < spec.end - spec.begin and not _reads_bounds(steps_of(without_bound_keys(query.input))[1])


def reuses(query: Query) -> bool:
    """Whether each window is computed from the one before."""
    return all(window.reuse for window in bounded_windows(query)) and may_reuse(query)


def without_bound_keys(node: Node) -> Node:
    """``GROUP BY window_start``: within a window that is a constant, so the bound moves above the groups."""
    if is_step(node) or isinstance(node, Prioritise):
        return with_inputs(node, (without_bound_keys(node.input),))
    if not isinstance(node, Aggregate) or not any(isinstance(k, WindowBound) for k in node.keys):
        return node
    keys = tuple(Literal(0, BIGINT) if isinstance(k, WindowBound) else k for k in node.keys)
    grouped = Aggregate(node.input, keys, node.aggregates, node.names)
    exprs = tuple(
        node.keys[i] if i < len(keys) and isinstance(node.keys[i], WindowBound) else Column(i, f.type, f.name)
        for i, f in enumerate(grouped.schema)
    )
    return Project(grouped, exprs, node.names)


def _reads_bounds(node: Node) -> bool:
    nodes = walk(node, into_queries=False)
    return any(isinstance(e, WindowBound) for n in nodes for part in expressions(n) for e in ex.walk(part))
