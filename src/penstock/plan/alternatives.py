"""Equivalent plans of one query, with their estimated costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, permutations

from penstock.model.types import BOOLEAN
from penstock.plan.cost import Cost, estimate
from penstock.plan.nodes import Join, Node, Query, QueryStream, SemiJoin, inputs, with_inputs
from penstock.plan.optimize import optimize
from penstock.plan.rules import (
    RULES,
    Rule,
    hash_keys,
    mark_retractions,
    merge_filters,
    order_joins,
    prune_columns,
    push_filters,
    split_filters,
)
from penstock.plan.rules.order_joins import Chain, put_together, take_apart
from penstock.plan.scope import each_query, on_nodes, shift
from penstock.scalar.expr import Call, Expr, conjunction, conjuncts


@dataclass(frozen=True)
class Alternative:
    """A plan that gives the same answers as the original."""

    query: Query
    cost: Cost
    description: str


def alternatives(
    query: Query,
    limit: int | None = 20,
    *,
    by_cost: bool = False,
    rates: Mapping[str, float] | None = None,
) -> Iterator[Alternative]:
    """Different plans of the query, the original first; ``by_cost`` gives the cheapest first.

    ``limit`` is the most that are made; join orders, of which there may be very many, come last.
    """
    found = islice(_different(query, rates), limit)
    return iter(sorted(found, key=lambda a: a.cost.total)) if by_cost else found


def _different(query: Query, rates: Mapping[str, float] | None) -> Iterator[Alternative]:
    seen: set[Query] = set()
    for description, plan in _candidates(query):
        if plan not in seen:
            seen.add(plan)
            yield Alternative(plan, estimate(plan, rates), description)


def _candidates(query: Query) -> Iterator[tuple[str, Query]]:
    yield "as written", query
    best = optimize(query)
    yield "optimised", best
    for rule, description in (
        (push_filters, "filters stay where they are"),
        (order_joins, "joins as written"),
        (prune_columns, "all columns kept"),
        (hash_keys, "no keys from conditions"),
        (mark_retractions, "retractions everywhere"),
    ):
        yield description, optimize(query, _without(rule))
    yield "nested loops instead of hash keys", nested_loops(best)
    yield "one filter for each condition", split_filters(best)
    yield "adjacent filters as one", merge_filters(query)
    for order, plan in join_orders(best):
        yield f"joins in the order {order}", plan


def _without(left_out: Rule) -> Sequence[Rule]:
    return tuple(rule for rule in RULES if rule is not left_out)


def nested_loops(query: Query) -> Query:
    """Every key as a condition again, so that all pairs are compared."""

    def change(node: Node) -> Node:
        if not (isinstance(node, Join | SemiJoin) and node.keys):
            return node
        split = len(node.left.schema)
        parts: list[Expr] = [Call("=", (a, shift(b, split)), BOOLEAN) for a, b in node.keys]
        return replace(node, keys=(), residual=conjunction(parts + conjuncts(node.residual)))

    return on_nodes(query, change)


def join_orders(query: Query) -> Iterator[tuple[str, Query]]:
    """The query with each chain of inner joins in every other left-deep order (commuted and associated)."""
    widest = max((len(c.inputs) for c in _chains(query)), default=0)
    for length in range(2, widest + 1):
        for order in permutations(range(length)):
            plan = each_query(query, partial(_reordered, order=order))
            yield ", ".join(str(i + 1) for i in order), plan


def _chains(query: Query) -> list[Chain]:
    found: list[Chain] = []

    def see(q: Query) -> Query:
        def collect(chain: Chain) -> None:
            found.append(chain)

        _top_down(q.input, collect)
        return q

    each_query(query, see)
    return found


def _reordered(query: Query, order: tuple[int, ...]) -> Query:
    def change(chain: Chain) -> Node | None:
        return put_together(chain, order) if len(chain.inputs) == len(order) else None

    return replace(query, input=_top_down(query.input, change))


def _top_down(node: Node, change: Callable[[Chain], Node | None]) -> Node:
    """Offer every maximal chain of joins to ``change``; None keeps it."""
    if isinstance(node, QueryStream):
        return node
    chain = take_apart(node)
    if chain is None:
        return with_inputs(node, tuple(_top_down(child, change) for child in inputs(node)))
    rewritten = change(chain)
    return node if rewritten is None else rewritten
