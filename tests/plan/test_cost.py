from __future__ import annotations

import pytest
from tests.plan.plans import R, S, U, call, col, count_by, eq, num, over, project, query, unbounded

from penstock.model.types import BOOLEAN
from penstock.plan.alternatives import alternatives, chosen
from penstock.plan.cost import Costs, Figure, Measured, estimate, selectivity, window_rows
from penstock.plan.derive import partitioning
from penstock.plan.nodes import Filter, Join, walk
from penstock.plan.optimize import optimize
from penstock.plan.rules.hash_keys import nested_loops
from penstock.plan.window import Generic, Range, Rows, Unbounded, WindowSpec
from penstock.scalar.expr import FALSE, TRUE, UserCall

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
    slow, fast = {"r": Measured(rate=10.0)}, {"r": Measured(rate=1e6)}
    assert estimate(plan, slow).work < estimate(plan).work < estimate(plan, fast).work


def test_optimising_is_estimated_to_pay() -> None:
    assert estimate(optimize(PLAN)).total < estimate(PLAN).total / 10


def test_hash_keys_are_cheaper_than_nested_loops() -> None:
    best = optimize(PLAN)
    assert estimate(best).work < estimate(nested_loops(best)).work


def test_alternatives_are_different_and_described() -> None:
    found = alternatives(PLAN)
    assert found[0].query == PLAN
    assert found[0].description == "as written"
    assert found[1].query == optimize(PLAN)
    assert len({a.query for a in found}) == len(found)
    assert len([a for a in found if a.description.startswith("joins in the order")]) >= 3
    assert {"filters stay where they are", "nested loops instead of hash keys"} <= {a.description for a in found}


def test_no_more_alternatives_than_asked_for() -> None:
    assert len(alternatives(PLAN, limit=3)) == 3
    assert len(alternatives(query(over(R)))) >= 1


def rows(*values: tuple[object, ...]) -> Measured:
    return Measured(rate=100.0, sample=lambda: values)


def test_a_sample_says_how_many_rows_pass_and_which() -> None:
    test = call(">", col(R, "k"), num(5))
    plan = Filter(over(R), test)
    found = Costs({"r": rows(*[(i, "a", None) for i in range(100)])}).node(plan)
    assert found.rows / Costs({"r": Measured(rate=100.0)}).node(over(R)).rows == pytest.approx(0.945)
    assert found.sample is not None
    assert {row[0] for row in found.sample} == set(range(6, 100))
    assert found.figure == Figure("94 % of the rows pass", True)


def test_a_filter_that_no_row_of_the_sample_passes_is_not_free() -> None:
    found = Costs({"r": rows(*[(1, "a", None)] * 100)}).node(Filter(over(R), call(">", col(R, "k"), num(5))))
    assert 0 < found.rows < 0.01 * Costs({"r": Measured(rate=100.0)}).node(over(R)).rows


def test_samples_of_both_sides_say_how_many_pairs_match() -> None:
    join = Join("inner", over(R), over(S), ((col(R, "k"), col(S, "k")),))
    few = {"r": rows(*[(i % 4, "a", None) for i in range(64)]), "s": rows(*[(i % 4, i) for i in range(64)])}
    many = {"r": rows(*[(i, "a", None) for i in range(64)]), "s": rows(*[(i, i) for i in range(64)])}
    none = {"r": rows(*[(i, "a", None) for i in range(64)]), "s": rows(*[(i + 100, i) for i in range(64)])}
    by_figures = [Costs(f).node(join) for f in (few, many, none)]
    assert [e.figure.text for e in by_figures if e.figure] == [
        "1 of 4 pairs matches", "1 of 64 pairs matches", "1 of 8,192 pairs matches",
    ]  # fmt: skip
    assert by_figures[0].sample is not None
    assert all(row[0] == row[3] for row in by_figures[0].sample)


def test_null_keys_match_nothing() -> None:
    join = Join("inner", over(R), over(S), ((col(R, "k"), col(S, "k")),))
    nothing = {"r": rows(*[(None, "a", None)] * 64), "s": rows(*[(None, 1)] * 64)}
    found = Costs(nothing).node(join)
    assert found.figure == Figure("1 of 8,192 pairs matches", True)


def test_values_of_a_key_are_counted_in_the_sample() -> None:
    grouped = count_by(over(R, SECOND), "k")
    few = Costs({"r": rows(*[(i % 3, "a", None) for i in range(90)])}).node(grouped)
    assert few.rows == 3
    assert few.figure == Figure("3 values of the key", True)
    assert Costs().node(grouped).figure == Figure("100 values of the key", False)


def test_what_was_not_measured_is_called_a_default() -> None:
    join = Join("inner", over(R), Filter(over(S), call(">", col(S, "y"), num(1))), ((col(R, "k"), col(S, "k")),))
    known = {"r": rows(*[(i, "a", None) for i in range(64)])}
    costs = Costs(known)
    assert [(e.figure.measured) for n in walk(join) if (e := costs.node(n)).figure] == [False, True, False, False]


def test_functions_of_users_are_not_called() -> None:
    asked = Filter(over(R), UserCall("f", (col(R, "k"),), BOOLEAN))
    found = Costs({"r": rows(*[(i, "a", None) for i in range(64)])}).node(asked)
    assert found.figure is not None
    assert not found.figure.measured


SECOND = Range(1_000_000)
CHAIN_OF_THREE = Join("inner", Join("inner", over(R, SECOND), over(S, SECOND)), over(U, SECOND))
RATES = {"r": Measured(rate=1e6), "s": Measured(rate=1e5), "u": Measured(rate=1.0)}


def test_the_cheapest_order_is_chosen_where_something_was_measured() -> None:
    join = CHAIN_OF_THREE
    on = call("and", eq(col(join, "k"), col(join, "k", 3)), eq(col(join, "y"), col(join, "y", 5)))
    plan = query(Filter(join, on))
    assert chosen(plan) == optimize(plan)
    best = chosen(plan, RATES)
    found = alternatives(plan, Costs(RATES))
    assert estimate(best, RATES).total == min(a.cost.total for a in found) < estimate(optimize(plan), RATES).total / 2
    slow_first = chosen(plan, {"r": Measured(rate=1.0), "s": Measured(rate=1e5), "u": Measured(rate=1e6)})
    assert slow_first != best


def test_a_choice_does_not_cost_a_query_its_shards() -> None:
    """The cheapest order of these begins with inputs that no key connects, so that it could not be split."""
    join = CHAIN_OF_THREE
    on = call("and", eq(col(join, "k"), col(join, "k", 3)), eq(col(join, "k"), col(join, "w")))
    plan = query(Filter(join, on))
    assert partitioning(optimize(plan)).keys is not None
    for rates in ((1e6, 1.0, 1.0), (1.0, 1e6, 1.0), (1.0, 1.0, 1e6)):
        known = {name: Measured(rate=rate) for name, rate in zip("rsu", rates, strict=True)}
        assert partitioning(chosen(plan, known)).keys is not None
