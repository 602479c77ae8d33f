"""Rewriting a plan never changes an answer, for queries over the whole language."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.plan.alternatives import alternatives
from penstock.plan.nodes import Query
from penstock.plan.serial import from_json, to_json
from tests.budget import examples
from tests.generated.language import Case, cases
from tests.generated.running import answers

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def unchanged(query: Query) -> Query:
    return query


@settings(max_examples=examples(150), deadline=None, suppress_health_check=RELAXED)
@given(cases())
def test_the_optimiser_keeps_every_answer(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.database.core.optimize", unchanged)
        plain = answers(case, "reference")
    assert answers(case, "reference") == plain, str(case)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=RELAXED)
@given(cases())
def test_alternatives_and_the_json_form_keep_every_answer(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.database.core.optimize", unchanged)
        plain = answers(case, "reference")
        assert answers(case, "reference", plan=lambda p: from_json(to_json(p))) == plain, str(case)
        for i in range(4):

            def chosen(plan: Query, i: int = i) -> Query:
                found = list(alternatives(plan, limit=6))
                return found[min(i, len(found) - 1)].query

            assert answers(case, "reference", plan=chosen) == plain, str(case)

