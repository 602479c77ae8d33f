"""No rewrite changes an answer: the same multiset of (instant, op, row) as the plan as written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st
from tests.budget import examples
from tests.plan.golden_cases import CASES
from tests.plan.plans import R, call, col, count_by, num, over, query
from tests.strategies import Inputs, inputs, queries

from penstock.model.change import Change
from penstock.plan.alternatives import alternatives
from penstock.plan.nodes import Filter, Query
from penstock.plan.optimize import optimize
from penstock.plan.rules import RULES, Rule
from penstock.reference.evaluator import Element, evaluate
from penstock.scalar import Context, hashable

FEW = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


def answers(query: Query, given: Inputs) -> Counter[Hashable]:
    """What a query answers, without the order of delivery."""
    context = Context(functions={"f": lambda k: k is not None and k % 2 == 0})
    found = evaluate(query, given.streams, given.relations, context)
    return Counter((a.ts, a.op, hashable(a.row)) for a in found)


def handmade() -> Inputs:
    """Enough rows that every golden plan has answers, with ties, NULLs and gaps longer than the windows."""
    times = [0, 1, 1, 4, 5, 9, 9, 12, 30, 31, 31, 45]
    keys = [7, 2, None, 7, 6, 7, 2, 9, 7, 6, None, 2]
    r = [Element(t, (k, "ab"[i % 2], i / 4), i) for i, (t, k) in enumerate(zip(times, keys, strict=True))]
    s = [Element(t + 1, (k, i % 4), i) for i, (t, k) in enumerate(zip(times, reversed(keys), strict=True))]
    u = [Element(t, (i % 4, k), i) for i, (t, k) in enumerate(zip(times, keys, strict=True))]
    t = [Change(None, 1, (7, "p"), 0), Change(4, 1, (2, "q"), 1, 1), Change(9, -1, (7, "p"), 2, 2)]
    return Inputs({"r": r, "s": s, "u": u}, {"t": t})


GOLDEN = [(name, title, plan) for name, cases in CASES.items() for title, plan in cases()]


@pytest.mark.parametrize("plan", [p for *_, p in GOLDEN], ids=[f"{n}: {t}" for n, t, _ in GOLDEN])
def test_handmade_plans_keep_their_answers(plan: Query) -> None:
    data = handmade()
    for output in ("istream", "dstream", "rstream", "changes") if plan.output != "windows" else ("windows",):
        for masters in {(), plan.masters}:
            variant = replace(plan, output=output, masters=masters)
            expected = answers(variant, data)
            for rule in dict.fromkeys(RULES):
                rewritten = rule(variant)
                assert rewritten == variant or answers(rewritten, data) == expected, rule
            assert answers(optimize(variant), data) == expected


def test_the_first_instant_is_not_delayed() -> None:
    """A global count is answered when the first row comes, whether or not the row passes the filter."""
    plan = query(count_by(Filter(over(R), call(">", col(R, "k"), num(5)))), "changes")
    data = Inputs({"r": [Element(3, (1, "a", None), 0), Element(4, (6, "a", None), 1)]}, {})
    assert answers(optimize(plan), data) == answers(plan, data)
    assert (3, "+", (0,)) in answers(plan, data)


@FEW
@given(query=queries(), data=inputs())
def test_optimising_keeps_the_answers(query: Query, data: Inputs) -> None:
    rewritten = optimize(query)
    expected = answers(query, data)
    target(float(len(expected)))
    assert rewritten.schema == query.schema
    assert answers(rewritten, data) == expected


@pytest.mark.parametrize("rule", dict.fromkeys(RULES))
@settings(FEW, max_examples=examples(60))
@given(query=queries(), data=inputs())
def test_every_rule_alone_keeps_the_answers(rule: Rule, query: Query, data: Inputs) -> None:
    rewritten = rule(query)
    assert rewritten.schema == query.schema
    assert rewritten == query or answers(rewritten, data) == answers(query, data)


@settings(FEW, max_examples=examples(60))
@given(query=queries(), data=inputs(most=5), seed=st.integers(0, 11))
def test_alternatives_give_the_same_answers(query: Query, data: Inputs, seed: int) -> None:
    expected = answers(query, data)
    for i, alternative in enumerate(alternatives(query, limit=24)):
        if i % 3 == seed % 3:
            assert answers(alternative.query, data) == expected, alternative.description


@settings(FEW, max_examples=examples(60))
@given(query=queries())
def test_optimising_twice_keeps_the_plan_valid(query: Query) -> None:
    once = optimize(query)
    assert optimize(once).schema == query.schema
