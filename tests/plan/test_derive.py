from __future__ import annotations

import pytest
from tests.plan.plans import R, S, T, call, col, count_by, eq, num, over, project, query, unbounded

from penstock.model.types import BIGINT, INT
from penstock.plan.derive import is_monotonic, is_silent, needs_retractions, partitioning
from penstock.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    Join,
    Node,
    Project,
    Query,
    QueryStream,
    SemiJoin,
    SetOp,
    SortKey,
    TopN,
)
from penstock.plan.window import Generic, PartitionRows, Range, Rows, Session
from penstock.scalar.expr import Call, Column

KEYS = ((col(R, "k"), col(S, "k")),)
HOT = call(">", col(R, "k"), num(5))
SLIDING, EVER = over(R), unbounded(R)
COUNT = Aggregate(EVER, (), (AggregateCall("count", (), BIGINT),), ("n",))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (EVER, True),
        (SLIDING, False),
        (over(R, Rows(3)), False),
        (T, False),
        (Filter(EVER, HOT), True),
        (project(EVER, "x"), True),
        (Distinct(EVER), True),
        (Join("inner", EVER, unbounded(S)), True),
        (Join("inner", EVER, over(S)), False),
        (Join("left", EVER, unbounded(S)), False),
        (Join("inner", EVER, T), False),
        (SemiJoin("semi", EVER, unbounded(S)), True),
        (SemiJoin("semi", EVER, over(S)), False),
        (SemiJoin("anti", EVER, unbounded(S)), False),
        (SemiJoin("mark", EVER, unbounded(S)), False),
        (SetOp("union", True, EVER, EVER), True),
        (SetOp("union", False, EVER, EVER), True),
        (SetOp("except", False, EVER, EVER), False),
        (COUNT, False),
        (count_by(EVER, "k"), False),
        (TopN(EVER, (SortKey(col(R, "k")),), 3), False),
        (unbounded(QueryStream("q", query(SLIDING), 10)), True),
    ],
)
def test_monotonic(node: Node, expected: bool) -> None:
    assert is_monotonic(node) is expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (SLIDING, True),
        (T, False),
        (COUNT, False),
        (count_by(EVER, "k"), True),
        (Join("inner", SLIDING, T), True),
        (Join("left", SLIDING, T), True),
        (Join("right", SLIDING, T), False),
        (Join("full", SLIDING, over(S)), True),
        (SemiJoin("semi", T, over(S)), True),
        (SemiJoin("anti", T, over(S)), False),
        (SemiJoin("anti", SLIDING, T), True),
        (SetOp("union", True, over(S), project(T, "k", "k")), False),
        (SetOp("except", True, over(S), project(T, "k", "k")), True),
        (SetOp("intersect", True, project(T, "k", "k"), over(S)), True),
    ],
)
def test_silent_while_windows_are_empty(node: Node, expected: bool) -> None:
    assert is_silent(node) is expected


def test_retractions_by_window() -> None:
    join = Join("inner", over(R), over(S, Rows(2)), KEYS)
    assert needs_retractions(query(join)) == (False, True)
    assert needs_retractions(query(join, "istream", "r")) == (True, True)
    assert needs_retractions(query(count_by(unbounded(R), "k"), "changes")) == (False,)
    both = SetOp("union", True, over(S), over(S, Rows(1)))
    assert needs_retractions(query(both)) == (False, False)


def keys(plan: Query) -> dict[str, tuple[int, ...]]:
    found = partitioning(plan).keys
    assert found is not None, partitioning(plan).reason
    return {k.source: k.columns for k in found}


def reason(plan: Query) -> str:
    found = partitioning(plan)
    assert found.keys is None
    return found.reason


def test_rows_that_never_meet_may_go_anywhere() -> None:
    found = partitioning(query(Filter(project(over(R), "x", "k"), call(">", Column(1, INT), num(1)))))
    assert found.anywhere
    assert found.keys is not None
    assert [k.columns for k in found.keys] == [()]


def test_join_keys_decide_both_sides() -> None:
    assert keys(query(Join("inner", over(R), over(S), KEYS))) == {"r": (0,), "s": (0,)}
    assert keys(query(Join("full", over(R), over(S), KEYS), "changes")) == {"r": (0,), "s": (0,)}


def test_a_chain_of_joins_shares_one_key() -> None:
    first = Join("inner", over(R), over(S), KEYS)
    chain = Join("inner", first, T, ((col(first, "k", 3), col(T, "k")),))
    assert keys(query(chain)) == {"r": (0,), "s": (0,), "t": (0,)}


def test_a_padded_side_carries_no_key_upwards() -> None:
    left = Join("left", over(R), over(S), KEYS)
    assert keys(query(count_by(left, "k"))) == {"r": (0,), "s": (0,)}
    by_padded = Aggregate(left, (col(left, "k", 3),), (), ("k",))
    assert "GROUP BY" in reason(query(by_padded))


def test_group_keys_through_projections() -> None:
    renamed = Project(over(R), (col(R, "x"), col(R, "k")), ("a", "b"))
    assert keys(query(count_by(renamed, "b"))) == {"r": (0,)}
    computed = Project(over(R), (Call("+", (col(R, "k"), num(1)), INT),), ("a",))
    assert "plain column" in reason(query(count_by(computed, "a")))


def test_in_partitions_by_its_comparison_but_not_in_does_not() -> None:
    compare = eq(col(R, "k"), Column(3, INT, "k"))
    assert keys(query(SemiJoin("semi", over(R), over(S), compare=compare))) == {"r": (0,), "s": (0,)}
    assert "IN or EXISTS" in reason(query(SemiJoin("anti", over(R), over(S), compare=compare)))


def test_partition_rows_and_sessions_by_their_keys() -> None:
    assert keys(query(over(R, PartitionRows((1, 0), 5)))) == {"r": (0, 1)}
    assert keys(query(over(R, Session(5, (1,))), "windows")) == {"r": (1,)}
    assert "SESSION" in reason(query(over(R, Session(5)), "windows"))
    assert "do not decide" in reason(query(over(project_of_sum(), PartitionRows((0,), 1))))


def project_of_sum() -> Node:
    return Project(R, (Call("+", (col(R, "k"), num(1)), INT),), ("a",))


def test_distinct_and_set_operations_by_their_columns() -> None:
    assert keys(query(Distinct(project(over(R), "k", "x")))) == {"r": (0, 1)}
    sides = SetOp("except", False, project(over(R), "k"), project(over(S), "k"))
    assert keys(query(sides)) == {"r": (0,), "s": (0,)}


def test_sub_queries_are_split_with_the_query() -> None:
    nested = QueryStream("q", query(count_by(over(R), "k")), 10)
    assert keys(query(over(nested, PartitionRows((0,), 2)))) == {"r": (0,)}
    assert "whole stream" in reason(query(over(nested, Rows(2))))


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (query(over(R, Rows(100))), "ROWS 100 counts the rows of the whole stream"),
        (query(count_by(over(R))), "without GROUP BY"),
        (query(TopN(over(R), (), 3)), "LIMIT 3"),
        (query(Join("inner", over(R), over(S))), "no equality"),
        (query(over(R), "istream", "r"), "MASTER"),
        (query(over(R), "rstream"), "RSTREAM"),
        (query(over(R, Generic("tuples", 1, 2, 2, 2)), "windows"), "TUPLES"),
        (query(Join("inner", over(R, Session(5, (0,))), over(S), KEYS), "windows"), "other inputs"),
        (query(Join("right", over(R), T, ((col(R, "k"), col(T, "k")),)), "changes"), "stored relation"),
    ],
)
def test_why_there_is_no_partitioning(plan: Query, text: str) -> None:
    assert text in reason(plan)


def test_masters_are_fine_where_every_row_answers_for_itself() -> None:
    assert partitioning(query(unbounded(R), "istream", "r")).anywhere
    assert partitioning(query(over(R, Range(5)), "istream", "r")).keys is None
