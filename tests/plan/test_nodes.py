"""What is said of all nodes alike."""

from __future__ import annotations

from tests.plan.plans import R, S, T, call, col, eq, num, over

from penstock.model.types import BIGINT
from penstock.plan.nodes import (
    Aggregate,
    AggregateCall,
    Join,
    Node,
    SemiJoin,
    SortKey,
    TopN,
    conditions,
    expressions,
    map_expressions,
    map_inputs,
    sources,
    streams,
)
from penstock.scalar.expr import Expr, Literal

LEFT, RIGHT = over(R), over(S)
KEYS = ((col(R, "k"), col(S, "k")),)
ONE, TWO = eq(num(1), num(1)), eq(num(2), num(2))


def test_the_expressions_of_a_node_are_those_of_its_fields_and_parts() -> None:
    assert expressions(LEFT) == []
    assert expressions(SemiJoin("semi", LEFT, RIGHT, KEYS, ONE, TWO)) == [*KEYS[0], ONE, TWO]
    counted = AggregateCall("count", (num(3),), BIGINT, where=ONE)
    assert expressions(Aggregate(LEFT, (num(4),), (counted,), ("k", "n"))) == [num(4), num(3), ONE]
    assert expressions(TopN(LEFT, (SortKey(num(5), True),), 1)) == [num(5)]


def test_changing_expressions_changes_nothing_else() -> None:
    def nine(expr: Expr) -> Expr:
        return num(9) if isinstance(expr, Literal) else expr

    counted = AggregateCall("count", (num(3),), BIGINT, distinct=True)
    node = Aggregate(LEFT, (num(4),), (counted,), ("k", "n"))
    changed = map_expressions(node, nine)
    assert changed == Aggregate(
        LEFT, (num(9),), (AggregateCall("count", (num(9),), BIGINT, distinct=True),), ("k", "n")
    )
    assert map_expressions(changed, lambda e: e) is changed


def test_a_join_turned_twice_is_the_join() -> None:
    residual = call("<", col(R, "k"), num(7))
    join = Join("left", LEFT, RIGHT, KEYS, residual, "sum")
    assert (join.turned.kind, join.turned.left, join.turned.keys) == ("right", RIGHT, ((KEYS[0][1], KEYS[0][0]),))
    assert join.turned.turned == join
    assert len(conditions(join)) == 2
    assert conditions(join)[1] == residual


def test_streams_are_the_sources_that_are_no_relations() -> None:
    node: Node = Join("inner", LEFT, T)
    assert sources(node) == [R, T]
    assert streams(node) == [R]
    assert map_inputs(node, lambda child: child) is node
