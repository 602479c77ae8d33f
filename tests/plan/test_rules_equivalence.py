"""No rewrite changes an answer: the same multiset of (instant, op, row) as the plan as written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st
from tests.strategies import Inputs, inputs, queries

from penstock.plan.alternatives import alternatives
from penstock.plan.nodes import Query
from penstock.plan.optimize import optimize
from penstock.plan.rules import RULES, Rule
from penstock.reference import evaluate
from penstock.scalar import hashable

FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def answers(query: Query, given: Inputs) -> Counter[Hashable]:
    """What a query answers, without the order of delivery."""
    found = evaluate(query, given.streams, given.relations)
    return Counter((a.ts, a.op, hashable(a.row)) for a in found)


@FEW
@given(query=queries(), data=inputs())
def test_optimising_keeps_the_answers(query: Query, data: Inputs) -> None:
    rewritten = optimize(query)
    expected = answers(query, data)
    target(float(len(expected)))
    assert rewritten.schema == query.schema
    assert answers(rewritten, data) == expected


@pytest.mark.parametrize("rule", dict.fromkeys(RULES))
@settings(FEW, max_examples=60)
@given(query=queries(), data=inputs())
def test_every_rule_alone_keeps_the_answers(rule: Rule, query: Query, data: Inputs) -> None:
    rewritten = rule(query)
    assert rewritten.schema == query.schema
    assert answers(rewritten, data) == answers(query, data)


@settings(FEW, max_examples=60)
@given(query=queries(), data=inputs(most=5), seed=st.integers(0, 11))
def test_alternatives_give_the_same_answers(query: Query, data: Inputs, seed: int) -> None:
    expected = answers(query, data)
    for i, alternative in enumerate(alternatives(query, limit=24)):
        if i % 3 == seed % 3:
            assert answers(alternative.query, data) == expected, alternative.description


@settings(FEW, max_examples=60)
@given(query=queries())
def test_optimising_twice_keeps_the_plan_valid(query: Query) -> None:
    once = optimize(query)
    assert optimize(once).schema == query.schema
