"""Rewriting a plan never changes an answer, for queries over the whole language."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.plan.explain import explain_json
from penstock.plan.nodes import Query
from penstock.plan.optimize import optimize
from penstock.plan.order import carrying_order
from penstock.plan.serial import from_json, to_json
from tests.budget import examples
from tests.generated.language import Case, cases
from tests.generated.running import alternatives, answers

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=RELAXED)
@given(cases())
def test_the_optimiser_keeps_every_answer(case: Case) -> None:
    assert answers(case, "reference") == answers(case, "reference", optimise=False), str(case)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=RELAXED)
@given(cases())
def test_the_json_form_keeps_every_answer(case: Case) -> None:
    plain = answers(case, "reference", optimise=False)
    assert answers(case, "reference", plan=lambda p: from_json(to_json(p)), optimise=False) == plain, str(case)


@pytest.mark.parametrize("engine", ["reference", "local"])
@settings(max_examples=examples(40), deadline=None, suppress_health_check=RELAXED)
@given(case=cases())
def test_every_alternative_gives_every_answer(engine: str, case: Case) -> None:
    plain = answers(case, "reference", optimise=False)
    found = alternatives(case, engine)
    assert {"as written", "optimised"} & found.keys()
    for description, plan in found.items():
        assert answers(case, engine, plan=partial(_this, plan), optimise=False) == plain, f"{description}\n{case}"


def _this(plan: object, query: Query) -> object:
    return plan


def explained(query: Query) -> str:
    """What ``db.explain(…, format="json")`` gives."""
    return json.dumps(explain_json(optimize(carrying_order(query))))


def by_name(query: Query) -> object:
    """The same with scans that have nothing but their names, in another case."""
    return _by_name(json.loads(explained(query)))


def _by_name(value: Any) -> Any:
    if isinstance(value, list):
        return [_by_name(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _by_name(item) for key, item in reversed(value.items())}
    match value.get("node"):
        case "StreamScan":
            return {"node": "StreamScan", "stream": value["stream"].upper()}
        case "RelationScan":
            return {"node": "RelationScan", "relation": value["relation"].upper()}
        case "QueryStream":
            del made["position"]
        case "Query":
            del made["clock"]
    return made


@pytest.mark.parametrize("engine", ["reference", "local"])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=RELAXED)
@given(case=cases())
def test_what_explain_gives_can_be_submitted_again(engine: str, case: Case) -> None:
    plain = answers(case, engine)
    assert answers(case, engine, plan=explained) == plain, str(case)
    assert answers(case, engine, plan=by_name) == plain, str(case)
