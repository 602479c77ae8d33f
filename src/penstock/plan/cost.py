"""A simple cost model: good enough to tell plans of one query apart, not to predict the clock.

Of every node it estimates the changes it emits in a second and the rows it holds at a time; a plan's cost
adds up the rows kept as state and the steps taken per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.types import TICKS_PER_SECOND
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
    Prioritise,
    Project,
    Query,
    QueryStream,
    RelationScan,
    SemiJoin,
    SetOp,
    StreamScan,
    TopN,
    Window,
)
from penstock.plan.window import (
    Generic,
    Now,
    PartitionRows,
    Range,
    Rows,
    Session,
    Unbounded,
    WindowSpec,
)
from penstock.scalar.expr import Call, Expr, Literal, conjuncts

DEFAULT_RATE = 1_000.0
RELATION_ROWS = 1_000.0
HORIZON_SECONDS = 3_600.0
"""How long a query is taken to run: what UNBOUNDED and landmark windows collect."""
KEY_VALUES = 100.0
"""Distinct values of a key: of a join, a group or a partition."""
_SELECTIVITY = {
    "=": 0.1, "is_not_distinct": 0.1, "<>": 0.9, "<": 0.33, "<=": 0.33, ">": 0.33, ">=": 0.33,
    "is_null": 0.05, "like": 0.25,
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """``rate``: rows or changes emitted per second; ``state_rows``: rows kept; ``work``: steps per second."""

    rate: float
    state_rows: float
    work: float

    @property
    def total(self) -> float:
        """One number to compare plans by; a row kept costs far less than a step."""
        return self.work + 0.01 * self.state_rows


@dataclass(frozen=True)
class Estimate:
    """Of one node, with everything below it: ``rows`` is the size of its relation."""

    rate: float
    rows: float
    state_rows: float
    work: float


def estimate(query: Query, rates: Mapping[str, float] | None = None) -> Cost:
    """The cost of a query; ``rates`` gives rows per second by name of stream (rows, of a relation)."""
    found = estimate_node(query, rates)
    return Cost(found.rate, found.state_rows, found.work)


def estimate_node(node: Node, rates: Mapping[str, float] | None = None) -> Estimate:
    """What flows out of a node, and what it and all below cost."""
    rates = rates or {}
    match node:
        case StreamScan(stream, _, _, _):
            rate = rates.get(stream, DEFAULT_RATE)
            return Estimate(rate, rate * HORIZON_SECONDS, 0.0, rate)
        case RelationScan(relation, _, _):
            rows = rates.get(relation, RELATION_ROWS)
            return Estimate(0.1, rows, 0.0, 0.1)
        case QueryStream():
            return estimate_node(node.query, rates)
        case Query(below, output, _, _):
            e = estimate_node(below, rates)
            rate = e.rate * e.rows if output == "rstream" else e.rate
            return Estimate(rate, rate * HORIZON_SECONDS, e.state_rows, e.work + rate)
        case Window(below, spec, retractions):
            e = estimate_node(below, rates)
            rows, leaving = window_rows(spec, e.rate), not isinstance(spec, Unbounded) and retractions
            width = len(node.schema)
            rate = e.rate * (2 if leaving else 1)
            # Wide rows take more room, so that a plan that drops columns early is the cheaper one.
            return Estimate(rate, rows, e.state_rows + rows * (1 + width / 8), e.work + rate)
        case Filter(below, predicate):
            e = estimate_node(below, rates)
            s = selectivity(predicate)
            parts = max(1, len(conjuncts(predicate)))
            return Estimate(e.rate * s, e.rows * s, e.state_rows, e.work + e.rate * (1 + 0.01 * parts))
        case Prioritise(below, _) | Project(below, _, _):
            e = estimate_node(below, rates)
            return Estimate(e.rate, e.rows, e.state_rows, e.work + 0.5 * e.rate)
        case Join() | SemiJoin():
            return _join(node, rates)
        case Aggregate(below, keys, _, _):
            e = estimate_node(below, rates)
            groups = min(max(e.rows, 1.0), KEY_VALUES ** len(keys))
            return Estimate(2 * e.rate, groups, e.state_rows + groups, e.work + 2 * e.rate)
        case Distinct(below):
            e = estimate_node(below, rates)
            return Estimate(e.rate * 0.5, e.rows * 0.5, e.state_rows + e.rows * 0.5, e.work + e.rate)
        case SetOp(kind, all_, left, right):
            a, b = estimate_node(left, rates), estimate_node(right, rates)
            kept = 0.0 if kind == "union" and all_ else a.rows + b.rows
            rows = a.rows + b.rows if kind == "union" else a.rows * 0.5
            rate = a.rate + b.rate
            return Estimate(rate, rows, a.state_rows + b.state_rows + kept, a.work + b.work + rate)
        case TopN(below, _, limit, _):
            e = estimate_node(below, rates)
            rows = e.rows if limit is None else min(e.rows, float(limit))
            return Estimate(e.rate, rows, e.state_rows + e.rows, e.work + 2 * e.rate)


def _join(node: Join | SemiJoin, rates: Mapping[str, float]) -> Estimate:
    a, b = estimate_node(node.left, rates), estimate_node(node.right, rates)
    by_key = KEY_VALUES ** -len(node.keys)
    matched = by_key * (selectivity(node.residual) if node.residual is not None else 1.0)
    candidates = (a.rate * b.rows + b.rate * a.rows) * by_key
    state = a.state_rows + b.state_rows + a.rows + b.rows
    work = a.work + b.work + a.rate + b.rate + candidates
    if isinstance(node, SemiJoin):
        share = 1.0 if node.kind == "mark" else 0.5
        return Estimate((a.rate + b.rate) * share, a.rows * share, state, work)
    rate = (a.rate * b.rows + b.rate * a.rows) * matched
    rows = a.rows * b.rows * matched
    if node.kind in ("left", "full"):
        rows, rate = max(rows, a.rows), max(rate, a.rate)
    if node.kind in ("right", "full"):
        rows, rate = max(rows, b.rows), max(rate, b.rate)
    return Estimate(rate, rows, state, work + rate)


def window_rows(spec: WindowSpec, rate: float) -> float:
    """The rows a window holds when this many enter per second."""
    match spec:
        case Unbounded():
            return rate * HORIZON_SECONDS
        case Now():
            return max(1.0, rate / TICKS_PER_SECOND)
        case Rows(size, _):
            return float(size)
        case PartitionRows(keys, size):
            return float(size) * KEY_VALUES ** len(keys)
        case Range(size, _):
            return max(1.0, rate * size / TICKS_PER_SECOND)
        case Session(gap, _):
            return max(1.0, rate * 2 * gap / TICKS_PER_SECOND)
        case Generic(unit, begin, end, low, high, _, _):
            if unit == "tuples":
                return float(max(1, end - begin + 1))
            seconds = (end - begin) / TICKS_PER_SECOND if low == high else HORIZON_SECONDS / 2
            return max(1.0, rate * seconds)


def selectivity(condition: Expr) -> float:
    """The share of rows for which a condition is taken to be TRUE."""
    match condition:
        case Literal(value, _):
            return 1.0 if value is True else 0.0
        case Call("and", args, _):
            result = 1.0
            for arg in args:
                result *= selectivity(arg)
            return result
        case Call("or", args, _):
            rest = 1.0
            for arg in args:
                rest *= 1.0 - selectivity(arg)
            return 1.0 - rest
        case Call("not", (arg,), _):
            return 1.0 - selectivity(arg)
        case Call("in", args, _):
            return min(0.5, 0.1 * (len(args) - 1))
        case Call(name, _, _):
            return _SELECTIVITY.get(name, 0.5)
    return 0.5
