"""Equivalent plans of one query, with their estimated costs, and which of them is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, permutations

from penstock.plan.cost import Cost, Costs, Figures
from penstock.plan.derive import partitioning
from penstock.plan.nodes import Node, Query, inputs, sources, walk, with_reuse
from penstock.plan.optimize import optimize
from penstock.plan.reuse import may_reuse
from penstock.plan.rules import (
    RULES,
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

WIDEST = 4
"""Joins of more inputs are not tried in all orders: the rule puts them into one."""
_LESS = 0.999
"""What another plan may cost at most of what the rules give, or it is not worth it."""


@dataclass(frozen=True)
class Alternative:
    """A plan that gives the same answers as the original. ``ruled``: all rules have been applied."""

    query: Query
    cost: Cost
    description: str
    ruled: bool = False


def chosen(
    query: Query, figures: Figures | None = None, reuse: bool | None = None, *, prioritised: bool = False
) -> Query:
    """The plan that is run: see ``choice``. ``reuse``: whether overlapping windows are computed from the one before, if
    that is not to be chosen."""
    known = figures or {}
    orders = bool(known) and not prioritised
    if not (_overlaps(query, reuse) or (orders and _has_orders(query))):
        plan = optimize(query)
        return plan if reuse is None else with_reuse(plan, reuse)
    costs = Costs(known)
    found = _different(_ruled(query, costs, reuse, orders=orders), costs, ruled=True)
    return choice(query, found, known, reuse, prioritised=prioritised)[0].query


def choice(
    query: Query,
    found: Iterable[Alternative],
    figures: Figures,
    reuse: bool | None = None,
    *,
    prioritised: bool = False,
) -> tuple[Alternative, str]:
    """Which of a query's alternatives is run, and why: what the rules make of it or, where overlapping windows or joins
    of three and more inputs leave them a choice, the cheapest of what they allow. By how much windows overlap is known
    before anything is measured, which order of joins is the cheapest is not. A query that can be split over shards
    stays so. ``prioritised``: rows may overtake, and in which joins they can depends on the order of joins, so that
    stays what the rules make of it."""
    usual, *others = (a for a in found if a.ruled)
    if not (_overlaps(query, reuse) or _has_orders(query)):
        return usual, "the rules leave no choice"
    if not figures or prioritised:
        same = with_reuse(usual.query, True)
        others = [a for a in others if with_reuse(a.query, True) == same]
    elif partitioning(usual.query).keys is not None:
        others = [a for a in others if partitioning(a.query).keys is not None]
    best = min(others, key=_total, default=usual)
    reason = "it costs the least" if figures else "nothing has been measured"
    if prioritised and _has_orders(query):
        reason = "rows may overtake, so the order of joins stays as the rules make it"
    return best if _total(best) < _LESS * _total(usual) else usual, reason


def alternatives(
    query: Query, costs: Costs | None = None, reuse: bool | None = None, limit: int | None = None
) -> list[Alternative]:
    """Different plans of the query: the original, what the rules make of it, and others. ``limit``: the most."""
    costs = costs or Costs()
    ruled = list(_different(_ruled(query, costs, reuse), costs, ruled=True))
    known = {a.query for a in ruled}
    others = _different((c for c in _unruled(query) if c[1] not in known), costs)
    first = [] if query in known else [Alternative(query, costs.of(query), "as written")]
    return list(islice(chain(first, ruled, (a for a in others if a.query != query)), limit))


def _total(alternative: Alternative) -> float:
    return alternative.cost.total


def _different(plans: Iterable[tuple[str, Query]], costs: Costs, *, ruled: bool = False) -> Iterator[Alternative]:
    seen: set[Query] = set()
    for description, plan in plans:
        if plan not in seen:
            seen.add(plan)
            yield Alternative(plan, costs.of(plan), description, ruled)


def _ruled(query: Query, costs: Costs, reuse: bool | None, *, orders: bool = True) -> Iterator[tuple[str, Query]]:
    """What the rules make of a query without any figures, and what else they allow."""
    further = join_orders(query, costs) if orders else ()
    for description, plan in chain([("optimised", optimize(query))], further):
        yield description, plan if reuse is None else with_reuse(plan, reuse)
        if reuse is not None:
            continue
        yield f"{description}, each window from nothing", with_reuse(plan, False)
        yield f"{description}, each window from the one before", with_reuse(plan, True)


def _unruled(query: Query) -> Iterator[tuple[str, Query]]:
    for rule, description in (
        (push_filters, "filters stay where they are"),
        (order_joins, "joins as written"),
        (prune_columns, "all columns kept"),
        (hash_keys, "no keys from conditions"),
        (mark_retractions, "retractions everywhere"),
    ):
        yield description, optimize(query, tuple(r for r in RULES if r is not rule))
    best = optimize(query)
    yield "nested loops instead of hash keys", nested_loops(best)
    yield "one filter for each condition", split_filters(best)
    yield "adjacent filters as one", merge_filters(query)


def join_orders(query: Query, costs: Costs | None = None) -> Iterator[tuple[str, Query]]:
    """The query after all rules, with each chain of inner joins in every left-deep order, where it does not matter
    which input is the first of all and which is the second; chains of many inputs in the order that the rule finds."""
    place = RULES.index(order_joins)
    before, after = optimize(query, RULES[:place]), RULES[place + 1 :]
    chains = {len(found.inputs): found for found in reversed(_chains(before))}
    for length, found in sorted(chains.items()):
        names = _names(found)
        if length > WIDEST:
            yield "joins, the smallest inputs first", optimize(order_joins(before, costs), after)
        elif length > 2:
            for order in permutations(range(length)):
                if order[0] < order[1]:
                    plan = each_query(before, partial(_reordered, order=order))
                    yield f"joins in the order {', '.join(names[i] for i in order)}", optimize(plan, after)


def _overlaps(query: Query, reuse: bool | None) -> bool:
    """Whether it is to be chosen how windows are computed."""
    return reuse is None and any(may_reuse(node) for node in walk(query) if isinstance(node, Query))


def _has_orders(query: Query) -> bool:
    """Whether joins could be in another order that costs something else."""
    if sum(len(inputs(node)) > 1 for node in walk(query)) < 2:
        return False
    return any(len(found.inputs) > 2 for found in _chains(optimize(query, RULES[: RULES.index(order_joins)])))


def _chains(query: Query) -> list[Chain]:
    """The chains whose order is free."""
    found: list[Chain] = []

    def see(node: Node, joined: Chain) -> Node:
        if not joined.can_fail:
            found.append(joined)
        return node

    each_query(query, lambda q: replace(q, input=on_chains(q.input, see)))
    return found


def _names(joined: Chain) -> list[str]:
    """What the inputs of a chain are called: by what they read, with their number where that is not enough."""
    read = [" and ".join(dict.fromkeys(source.name for source in sources(node))) for node in joined.inputs]
    return [name if read.count(name) == 1 else f"{name} ({i + 1})" for i, name in enumerate(read)]


def _reordered(query: Query, order: tuple[int, ...]) -> Query:
    def change(node: Node, joined: Chain) -> Node:
        return put_together(joined, order) if len(joined.inputs) == len(order) and not joined.can_fail else node

    return replace(query, input=on_chains(query.input, change))
