from __future__ import annotations

import pytest
from tests.plan.plans import R, S, U, call, col, eq, num, over, project, query, unbounded

from penstock.plan.alternatives import alternatives
from penstock.plan.cost import estimate, selectivity, window_rows
from penstock.plan.nodes import Filter, Join
from penstock.plan.optimize import optimize
from penstock.plan.rules.hash_keys import nested_loops
from penstock.plan.window import Generic, Range, Rows, Unbounded, WindowSpec
from penstock.scalar.expr import FALSE, TRUE

CHAIN = Join("inner", Join("inner", unbounded(R), over(S)), over(U, Rows(1)))
PLAN = query(
    project(
        Filter(
            CHAIN,
            call(
                "and",
                call("and", eq(col(CHAIN, "k"), col(CHAIN, "k", 3)), eq(col(CHAIN, "y"), col(CHAIN, "y", 5))),
                call(">", col(CHAIN, "w"), num(3)),
            ),
        ),
        "x",
        "w",
    )
)


@pytest.mark.parametrize(
    ("spec", "rows"),
    [(Rows(7), 7), (Range(2_000_000), 200), (Unbounded(), 360_000), (Generic("tuples", 1, 50, 50, 50), 50)],
)
def test_rows_in_a_window(spec: WindowSpec, rows: float) -> None:
    assert window_rows(spec, 100.0) == rows


def test_selectivity_stays_between_none_and_all() -> None:
    test = eq(col(R, "k"), num(1))
    assert selectivity(TRUE) == 1
    assert selectivity(FALSE) == 0
    assert 0 < selectivity(call("and", test, test)) < selectivity(test) < selectivity(call("or", test, test)) < 1
    assert selectivity(call("not", test)) == pytest.approx(1 - selectivity(test))


def test_rates_of_sources_count() -> None:
    plan = query(over(R))
    assert estimate(plan, {"r": 10.0}).work < estimate(plan).work < estimate(plan, {"r": 1e6}).work


def test_optimising_is_estimated_to_pay() -> None:
    assert estimate(optimize(PLAN)).total < estimate(PLAN).total / 10


def test_hash_keys_are_cheaper_than_nested_loops() -> None:
    best = optimize(PLAN)
    assert estimate(best).work < estimate(nested_loops(best)).work


def test_alternatives_are_different_and_described() -> None:
    found = list(alternatives(PLAN, limit=None))
    assert found[0].query == PLAN
    assert found[0].description == "as written"
    assert found[1].query == optimize(PLAN)
    assert len({a.query for a in found}) == len(found)
    assert len([a for a in found if a.description.startswith("joins in the order")]) >= 3
    assert {"filters stay where they are", "nested loops instead of hash keys"} <= {a.description for a in found}


def test_alternatives_by_cost_and_limit() -> None:
    costs = [a.cost.total for a in alternatives(PLAN, by_cost=True)]
    assert costs == sorted(costs)
    assert len(list(alternatives(PLAN, limit=3))) == 3
    assert len(list(alternatives(query(over(R)), limit=None))) >= 1
