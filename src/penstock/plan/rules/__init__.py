"""Rewrites of plans: plain functions from query to query that never change an answer.

Each has a module of its own and a golden file in ``tests/plan/golden``. ``RULES`` is their order; a rule may
appear twice where a later one gives it new work.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.plan.nodes import Query
from penstock.plan.rules.fold_constants import fold_constants
from penstock.plan.rules.hash_keys import hash_keys
from penstock.plan.rules.mark_retractions import mark_retractions
from penstock.plan.rules.merge_filters import merge_filters, split_filters
from penstock.plan.rules.merge_projects import merge_projects
from penstock.plan.rules.order_joins import order_joins
from penstock.plan.rules.prune_columns import prune_columns
from penstock.plan.rules.push_filters import push_filters
from penstock.plan.rules.semi_joins import semi_joins

Rule = Callable[[Query], Query]

RULES: tuple[Rule, ...] = (
    fold_constants,
    split_filters,
    push_filters,
    semi_joins,
    merge_projects,
    hash_keys,
    order_joins,
    prune_columns,
    merge_projects,
    merge_filters,
    mark_retractions,
)

__all__ = [
    "RULES",
    "Rule",
    "fold_constants",
    "hash_keys",
    "mark_retractions",
    "merge_filters",
    "merge_projects",
    "order_joins",
    "prune_columns",
    "push_filters",
    "semi_joins",
    "split_filters",
]
