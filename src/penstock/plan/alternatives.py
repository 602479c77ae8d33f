"""Equivalent plans of one query, with their estimated costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, permutations

from penstock.plan.cost import Cost, estimate
from penstock.plan.nodes import Node, Query
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
from penstock.plan.rules.hash_keys import nested_loops
from penstock.plan.rules.order_joins import Chain, on_chains, put_together
from penstock.plan.scope import each_query


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


def join_orders(query: Query) -> Iterator[tuple[str, Query]]:
    """The query with each chain of inner joins in every other left-deep order (commuted and associated)."""
    widest = max((len(c.inputs) for c in _chains(query)), default=0)
    for length in range(2, widest + 1):
        for order in permutations(range(length)):
            plan = each_query(query, partial(_reordered, order=order))
            yield ", ".join(str(i + 1) for i in order), plan


def _chains(query: Query) -> list[Chain]:
    found: list[Chain] = []

    def see(node: Node, chain: Chain) -> Node:
        found.append(chain)
        return node

    each_query(query, lambda q: replace(q, input=on_chains(q.input, see)))
    return found


def _reordered(query: Query, order: tuple[int, ...]) -> Query:
    def change(node: Node, chain: Chain) -> Node:
        return put_together(chain, order) if len(chain.inputs) == len(order) else node

    return replace(query, input=on_chains(query.input, change))
