"""What queries mean at each instant: order, identity, operators, progress."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.reference.handmade import (
    ask,
    at,
    call,
    group,
    initially,
    join,
    lines,
    lit,
    pick,
    plus,
    query,
    relation,
    rows,
    select,
    stream,
    where,
    window,
)

from penstock.model.change import Change
from penstock.model.errors import InputError, PlanError
from penstock.model.types import BIGINT, DOUBLE
from penstock.plan.nodes import Distinct, Project, Query, QueryStream, SemiJoin, SetOp, SortKey, TopN
from penstock.plan.window import Generic, Now, PartitionRows, Range, Rows, Session, Unbounded
from penstock.reference.evaluator import INFINITY, Answer, Element, Evaluator, evaluate
from penstock.scalar import Context
from penstock.scalar.expr import Call, Column

S = stream("s", "a")
TWO = rows((1, 10), (2, 20))


# Windows and the relation-to-stream operators.


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("changes", [(1, "+", 10), (2, "+", 20), (3, "-", 10), (3, "+", 30)]),
        ("istream", plus((1, 10), (2, 20), (3, 30))),
        ("dstream", plus((3, 10))),
    ],
)
def test_count_window(output: str, expected: object) -> None:
    assert ask(query(window(S, Rows(2)), output), s=rows((1, 10), (2, 20), (3, 30))) == expected


def test_now_leaves_one_tick_later() -> None:
    expected = [(1, "+", 10), (2, "-", 10), (2, "+", 20), (3, "-", 20)]
    assert ask(query(window(S, Now())), s=TWO) == expected
    # Expiry at 2 and arrival at 2 are two instants: the first one already takes the row out.
    counted = query(group(window(S, Now()), "", "count"), "istream")
    assert ask(counted, s=TWO) == plus((1, 1), (2, 0), (2, 1), (3, 0))


def test_filter_over_an_unbounded_stream() -> None:
    assert ask(query(where(window(S, Unbounded()), "a", ">", 10), "istream"), s=TWO) == plus((2, 20))


def test_rstream_is_the_whole_answer_at_every_master_instant() -> None:
    assert ask(query(window(S, Rows(2)), "rstream", "s"), s=TWO) == plus((1, 10), (2, 10), (2, 20))


def test_rstream_without_master_is_evaluated_when_rows_leave_too() -> None:
    assert ask(query(window(S, Range(3)), "rstream"), s=TWO) == plus((1, 10), (2, 10), (2, 20), (4, 20))


def test_filter_above_a_count_window() -> None:
    plan = where(window(S, Rows(1)), "a", ">", 5)
    data = rows((1, 1), (2, 9), (3, 2))
    assert ask(query(plan, "istream"), s=data) == plus((2, 9))
    assert ask(query(plan, "dstream"), s=data) == plus((3, 9))


def test_filter_below_a_count_window_decides_what_counts() -> None:
    plan = window(where(S, "a", ">", 5), Rows(1))
    data = rows((1, 1), (2, 9), (3, 2))
    assert ask(query(plan, "istream"), s=data) == plus((2, 9))
    assert ask(query(plan, "dstream"), s=data) == []


def test_partitioned_count_window() -> None:
    s = stream("s", "k v")
    plan = query(window(s, PartitionRows((0,), 1)))
    data = rows((1, 1, 10), (2, 2, 20), (3, 1, 11), (4, None, 1), (5, None, 2))
    assert ask(plan, s=data) == [
        (1, "+", 1, 10), (2, "+", 2, 20), (3, "-", 1, 10), (3, "+", 1, 11),
        (4, "+", None, 1), (5, "-", None, 1), (5, "+", None, 2),
    ]  # fmt: skip


# Order of instants.


def _join_r_s(r_window: object, s_window: object, columns: str = "k") -> Project:
    r = window(stream("r", "k x:STRING", 0), r_window)  # type: ignore[arg-type]
    s = window(stream("s", "k y:STRING", 1), s_window)  # type: ignore[arg-type]
    return select(join("inner", r, s, columns), "x", "y")


def test_expiry_comes_before_arrival() -> None:
    plan = query(_join_r_s(Range(10), Range(10)), "istream")
    data = rows((8, 1, "b"), (11, 1, "c"), (12, 1, "d"))
    assert ask(plan, r=rows((1, 1, "a")), s=data) == plus((8, "a", "b"))


@pytest.mark.parametrize(("r_at", "s_at", "expected"), [(0, 1, [(5, 2, 7)]), (1, 0, [(5, 1, 7), (5, 2, 7)])])
def test_equal_timestamps_go_by_position_then_arrival(
    r_at: int, s_at: int, expected: list[tuple[int, ...]]
) -> None:
    r, s = window(stream("r", "x", r_at), Rows(1)), window(stream("s", "y", s_at), Rows(1))
    plan = query(join("inner", r, s), "istream")
    assert ask(plan, r=rows((5, 1), (5, 2)), s=rows((5, 7))) == plus(*expected)


def test_two_sources_at_one_position_are_refused() -> None:
    r, s = window(stream("r", "x", 0), Rows(1)), window(stream("s", "y", 0), Rows(1))
    with pytest.raises(PlanError, match="`r` and another source both have position 0"):
        Evaluator(query(join("inner", r, s)))


def test_two_streams_with_equal_timestamps_wait_for_each_other() -> None:
    r, s = window(stream("r", "x", 0), Rows(1)), window(stream("s", "y", 1), Rows(1))
    evaluator = Evaluator(query(SetOp("union", True, r, s), "istream"))
    evaluator.push("s", rows((5, 7)))
    evaluator.progress("s", 6)
    assert evaluator.run() == []
    evaluator.progress("r", 5)
    # r comes first in the catalog and may still bring something at 5.
    assert evaluator.run() == []
    evaluator.push("r", rows((5, 1)))
    assert lines(evaluator.run()) == plus((5, 1))
    evaluator.progress("r", 6)
    assert lines(evaluator.run()) == plus((5, 7))
    # s comes after r, so what r brings at 6 need not wait for s to pass 6.
    evaluator.push("r", [Element(6, (2,), 1)])
    assert lines(evaluator.run()) == plus((6, 2))


def test_time_alone_needs_the_progress_of_all_inputs() -> None:
    r, s = window(stream("r", "x", 0), Range(10)), window(stream("s", "y", 1), Rows(1))
    evaluator = Evaluator(query(SetOp("union", True, r, s), "dstream"))
    evaluator.push("r", rows((1, 1)))
    evaluator.progress("s", 1)
    assert evaluator.run() == []
    evaluator.progress("r", 11)
    evaluator.progress("s", 10)
    assert evaluator.run() == []
    evaluator.progress("s", 11)
    assert lines(evaluator.run()) == plus((11, 1))


def test_ended_when_all_streams_are_closed_and_windows_are_empty() -> None:
    evaluator = Evaluator(query(window(S, Range(5))))
    evaluator.push("s", TWO)
    evaluator.run()
    assert not evaluator.ended
    evaluator.progress("s", INFINITY)
    assert lines(evaluator.run()) == [(6, "-", 10), (7, "-", 20)]
    assert evaluator.ended


# Group-by and aggregates.


def test_group_by_puts_the_old_row_out_and_the_new_row_in() -> None:
    s = stream("s", "g:STRING v")
    plan = query(group(window(s, Unbounded()), "g", "sum v"))
    data = rows((1, "a", 1), (2, "b", 5), (3, "a", 2), (4, "a", 0))
    assert ask(plan, s=data) == [(1, "+", "a", 1), (2, "+", "b", 5), (3, "-", "a", 1), (3, "+", "a", 3)]


def test_global_aggregate_has_a_row_over_nothing() -> None:
    s = stream("s", "v")
    plan = group(window(s, Range(10)), "", "avg v")
    data = rows((0, 10), (5, 20))
    assert ask(query(plan, "istream"), s=data) == plus((0, 10.0), (5, 15.0), (10, 20.0), (15, None))
    assert ask(query(plan, "istream", "s"), s=data) == plus((0, 10.0), (5, 15.0))


def test_grouped_aggregate_has_no_row_over_nothing() -> None:
    s = stream("s", "g v")
    plan = group(window(s, Range(10)), "g", "avg v")
    data = rows((0, 1, 10), (5, 1, 20))
    assert ask(query(plan, "istream"), s=data) == plus((0, 1, 10.0), (5, 1, 15.0), (10, 1, 20.0))
    assert ask(query(plan, "dstream"), s=data) == plus((5, 1, 10.0), (10, 1, 15.0), (15, 1, 20.0))


def test_null_and_nan_are_groups() -> None:
    s = stream("s", "g:DOUBLE")
    plan = query(group(window(s, Unbounded()), "g", "count"))
    answers = evaluate(
        plan, {"s": rows((1, None), (2, math.nan), (3, None), (4, math.nan), (5, 0.0), (6, -0.0))}
    )
    assert [(a.ts, a.op, a.row[1]) for a in answers] == [
        (1, "+", 1), (2, "+", 1), (3, "-", 1), (3, "+", 2), (4, "-", 1), (4, "+", 2),
        (5, "+", 1), (6, "-", 1), (6, "+", 2),
    ]  # fmt: skip


def test_first_and_last_go_by_moment() -> None:
    r, s = window(stream("r", "x", 0), Unbounded()), window(stream("s", "x", 1), Unbounded())
    plan = query(group(SetOp("union", True, s, r), "", "first x", "last x"), "istream")
    assert ask(plan, r=rows((5, 1)), s=rows((5, 2), (6, 3))) == plus((5, 1, 1), (5, 1, 2), (6, 1, 3))


# Master streams.


@pytest.mark.parametrize(
    ("masters", "expected"),
    [(("stream2",), [(2, 5, 2), (6, 6, 1)]), ((), [(2, 5, 2), (3, 5, 3), (6, 6, 1)])],
)
def test_master_stream(masters: tuple[str, ...], expected: list[tuple[int, ...]]) -> None:
    one = window(stream("stream1", "x y", 0), Rows(2))
    two = window(stream("stream2", "x", 1), Rows(2))
    plan = query(pick(join("inner", one, two, "x"), 0, 1), "istream", *masters)
    data = rows((1, 5, 2), (3, 5, 3), (4, 6, 1), (5, 7, 4))
    assert ask(plan, stream1=data, stream2=rows((2, 5), (6, 6))) == plus(*expected)


def test_master_sees_expiry_and_compares_with_the_previous_master_instant() -> None:
    r, m = window(stream("r", "x", 0), Range(10)), window(stream("m", "y", 1), Rows(1))
    plan = query(pick(join("inner", r, m), 0), "changes", "m")
    # 7 comes and goes between two master instants; the new row of m makes every pair new.
    data = rows((1, 5), (12, 7), (30, 8))
    assert ask(plan, r=data, m=rows((2, 0), (25, 0), (31, 0))) == [(2, "+", 5), (25, "-", 5), (31, "+", 8)]


def test_an_arrival_on_a_master_is_an_instant_even_if_it_is_filtered_out() -> None:
    r = window(stream("r", "x", 0), Unbounded())
    m = window(where(stream("m", "x", 1), "x", ">", 100), Unbounded())
    plan = query(SetOp("union", True, r, m), "istream", "m")
    assert ask(plan, r=rows((1, 5), (2, 6)), m=rows((3, 0))) == plus((3, 5), (3, 6))


# Joins.


def test_left_join() -> None:
    r, s = window(stream("r", "k", 0), Range(10)), window(stream("s", "k y:STRING", 1), Range(5))
    plan = query(pick(join("left", r, s, "k"), 0, 2))
    assert ask(plan, r=rows((1, 1)), s=rows((4, 1, "b"))) == [
        (1, "+", 1, None), (4, "-", 1, None), (4, "+", 1, "b"),
        (9, "-", 1, "b"), (9, "+", 1, None), (11, "-", 1, None),
    ]  # fmt: skip


def test_full_join_and_right_join() -> None:
    r, s = window(stream("r", "k x", 0), Unbounded()), window(stream("s", "k y", 1), Unbounded())
    data = {"r": rows((1, 1, 10), (2, 2, 20)), "s": rows((3, 2, 200), (4, 3, 300), (5, None, 0))}
    expected = [
        (1, "+", 1, 10, None, None), (2, "+", 2, 20, None, None),
        (3, "-", 2, 20, None, None), (3, "+", 2, 20, 2, 200),
        (4, "+", None, None, 3, 300), (5, "+", None, None, None, 0),
    ]  # fmt: skip
    assert ask(query(join("full", r, s, "k")), **data) == expected
    assert ask(query(join("right", r, s, "k")), **data) == [e for e in expected if e[4:] != (None, None)]


def test_residual_decides_what_matches_in_an_outer_join() -> None:
    r, s = window(stream("r", "k x", 0), Unbounded()), window(stream("s", "k y", 1), Unbounded())
    residual = call("<", Column(1, BIGINT), Column(3, BIGINT))
    plan = query(join("left", r, s, "k", residual))
    assert ask(plan, r=rows((1, 1, 10)), s=rows((2, 1, 5), (3, 1, None), (4, 1, 50))) == [
        (1, "+", 1, 10, None, None), (4, "-", 1, 10, None, None), (4, "+", 1, 10, 1, 50),
    ]  # fmt: skip


def test_join_keys_follow_sql_equality() -> None:
    r, s = window(stream("r", "k:DOUBLE", 0), Unbounded()), window(stream("s", "k:DOUBLE", 1), Unbounded())
    plan = query(join("inner", r, s, "k"), "istream")
    answers = evaluate(
        plan, {"r": rows((1, None), (1, math.nan), (1, 0.0)), "s": rows((2, None), (3, math.nan), (4, -0.0))}
    )
    assert [a.ts for a in answers] == [3, 4]


def test_self_join_takes_each_row_on_both_sides_at_once() -> None:
    plan = query(join("inner", window(S, Rows(1)), window(S, Rows(2))), "istream")
    assert ask(plan, s=TWO) == plus((1, 10, 10), (2, 20, 10), (2, 20, 20))


# IN and EXISTS.

LEFT = window(stream("r", "x", 0), Unbounded())
RIGHT = window(stream("s", "y", 1), Unbounded())
X_IS_Y = call("=", Column(0, BIGINT), Column(1, BIGINT))


@pytest.mark.parametrize(
    ("right", "marks"),
    [
        ([], {1: False, None: False}),
        ([1], {1: True, None: None}),
        ([2], {1: False, None: None}),
        ([2, None], {1: None, None: None}),
        ([1, None], {1: True, None: None}),
    ],
)
def test_marks_are_three_valued(right: list[int | None], marks: dict[int | None, bool | None]) -> None:
    data = {"s": rows(*((1, y) for y in right)), "r": rows((2, 1), (2, None))}

    def last(kind: str) -> dict[object, object]:
        plan = query(SemiJoin(kind, LEFT, RIGHT, compare=X_IS_Y), "rstream", "r")  # type: ignore[arg-type]
        return {line[2]: line[-1] for line in ask(plan, **data) if line[0] == 2}

    assert last("mark") == marks
    assert set(last("semi")) == {x for x, mark in marks.items() if mark is True}
    assert set(last("anti")) == {x for x, mark in marks.items() if mark is False}


def test_exists_by_keys_keeps_the_identity_of_the_left_row() -> None:
    semi = SemiJoin("semi", LEFT, RIGHT, ((Column(0, BIGINT), Column(0, BIGINT)),))
    assert ask(query(semi, "istream"), r=rows((1, 5)), s=rows((2, 5), (3, 5))) == plus((2, 5))
    anti = replace(semi, kind="anti")
    assert ask(query(anti), r=rows((1, 5), (1, None)), s=rows((2, 5), (3, 5))) == [
        (1, "+", 5), (1, "+", None), (2, "-", 5),
    ]  # fmt: skip


def test_a_changed_mark_is_a_changed_row() -> None:
    mark = SemiJoin("mark", LEFT, RIGHT, compare=X_IS_Y)
    assert ask(query(mark), r=rows((1, 5)), s=rows((2, 4), (3, None), (4, 5))) == [
        (1, "+", 5, False), (3, "-", 5, False), (3, "+", 5, None), (4, "-", 5, None), (4, "+", 5, True),
    ]  # fmt: skip


# Distinct, set operations, top n.


def test_identity_and_distinct() -> None:
    data = rows((1, 10), (2, 10))
    assert ask(query(window(S, Rows(1)), "istream"), s=data) == plus((1, 10), (2, 10))
    assert ask(query(Distinct(window(S, Rows(2))), "istream"), s=data) == plus((1, 10))


R_A, S_A = window(stream("r", "a", 0), Rows(3)), window(stream("s", "a", 1), Rows(3))


@pytest.mark.parametrize(
    ("kind", "every", "expected"),
    [
        ("union", True, [(1, "+", 1), (2, "+", 1), (3, "+", 2), (4, "+", 1), (5, "+", 3)]),
        ("union", False, [(1, "+", 1), (3, "+", 2), (5, "+", 3)]),
        ("except", True, [(1, "+", 1), (2, "+", 1), (3, "+", 2), (4, "-", 1)]),
        ("except", False, [(1, "+", 1), (3, "+", 2), (4, "-", 1)]),
        ("intersect", True, [(4, "+", 1)]),
        ("intersect", False, [(4, "+", 1)]),
    ],
)
def test_set_operations(kind: str, every: bool, expected: object) -> None:
    plan = query(SetOp(kind, every, R_A, S_A))  # type: ignore[arg-type]
    assert ask(plan, r=rows((1, 1), (2, 1), (3, 2)), s=rows((4, 1), (5, 3))) == expected


def test_intersect_all_counts_copies() -> None:
    plan = query(SetOp("intersect", True, R_A, S_A))
    data = rows((1, 1), (2, 1), (3, None))
    assert ask(plan, r=data, s=rows((4, 1), (5, None), (6, 1), (7, 1))) == [
        (4, "+", 1),
        (5, "+", None),
        (6, "+", 1),
    ]


def test_top_n_with_ties() -> None:
    s = stream("s", "a v")
    top = TopN(window(s, Unbounded()), (SortKey(Column(1, BIGINT), descending=True, nulls_first=False),), 2)
    data = rows((1, 7, 5), (2, 9, 5), (3, 8, 5), (4, 8, 5), (5, 1, 6), (6, 0, None))
    # Ties go by the row's values; an equal copy of a row that is out of the top stays out.
    assert ask(query(top), s=data) == [
        (1, "+", 7, 5), (2, "+", 9, 5), (3, "-", 9, 5), (3, "+", 8, 5), (5, "-", 8, 5), (5, "+", 1, 6),
    ]  # fmt: skip


def test_top_n_identity_is_value_and_copy() -> None:
    top = TopN(window(S, Rows(2)), (SortKey(Column(0, BIGINT)),), 2)
    # The first 10 leaves as the third comes: the top is the same two values.
    assert ask(query(top), s=rows((1, 10), (2, 10), (3, 10))) == [(1, "+", 10), (2, "+", 10)]


def test_top_n_offset_and_nulls() -> None:
    key = SortKey(Column(0, BIGINT))
    data = rows((1, None), (1, 2), (1, 1))
    assert ask(query(TopN(window(S, Unbounded()), (key,), 1, 1), "rstream"), s=data)[-1] == (1, "+", 1)
    last = replace(key, nulls_first=False)
    assert ask(query(TopN(window(S, Unbounded()), (last,), 1, 2), "rstream"), s=data)[-1] == (1, "+", None)


def test_order_without_limit_only_orders_delivery() -> None:
    ordered = TopN(window(S, Range(2)), (SortKey(Column(0, BIGINT), descending=True),), None)
    data = rows((1, 1), (2, 3), (2, 2), (2, 2))
    assert ask(query(ordered, "rstream", "s"), s=data)[-4:] == plus((2, 3), (2, 2), (2, 2), (2, 1))
    assert ask(
        query(TopN(window(S, Rows(1)), ordered.keys, None), "istream"), s=rows((1, 4), (2, 4))
    ) == plus((1, 4), (2, 4))


def test_rows_of_one_instant_are_in_value_order_removals_first() -> None:
    plan = query(window(S, Range(10, 10)))
    data = rows((1, 3), (2, None), (3, 1), (11, 9), (12, 8))
    assert ask(plan, s=data) == [
        (10, "+", None), (10, "+", 1), (10, "+", 3),
        (20, "-", None), (20, "-", 1), (20, "-", 3), (20, "+", 8), (20, "+", 9),
        (30, "-", 8), (30, "-", 9),
    ]  # fmt: skip


# Relations.

ITEMS = relation("items", "k price")


def test_relation_changes_are_instants() -> None:
    s = window(stream("s", "k", 0), Rows(1))
    plan = query(pick(join("inner", s, ITEMS, "k"), 0, 2))
    changes = initially((1, 100)) + at(3, ("-", 1, 100), ("+", 1, 110)) + at(4, ("+", 2, 7))
    assert ask(plan, {"items": changes}, s=rows((2, 1), (5, 2))) == [
        (2, "+", 1, 100), (3, "-", 1, 100), (3, "+", 1, 110), (5, "-", 1, 110), (5, "+", 2, 7),
    ]  # fmt: skip


def test_relation_takes_part_in_the_total_order_by_position() -> None:
    change = at(2, ("+", 1, 100))
    for position, expected in (
        (0, plus((2, 1, 100))),
        (9, [(2, "+", 1, None), (2, "-", 1, None), (2, "+", 1, 100)]),
    ):
        s, items = window(stream("s", "k", 5), Rows(1)), relation("items", "k price", position)
        plan = query(pick(join("left", s, items, "k"), 0, 2))
        assert ask(plan, {"items": change}, s=rows((2, 1))) == expected


def test_rows_from_the_beginning_cause_no_instant() -> None:
    s = window(stream("s", "k", 0), Rows(1))
    plan = query(group(SetOp("union", True, s, select(ITEMS, "k")), "", "count"))
    assert ask(plan, {"items": initially((1, 1), (2, 2))}, s=rows((7, 1))) == [(7, "+", 3)]


def test_query_over_relations_alone_is_evaluated_at_once() -> None:
    plan = query(group(ITEMS, "", "count"))
    changes = initially((1, 1), (2, 2)) + at(5, ("-", 1, 1)) + at(6, ("+", 1, 1), ("-", 2, 2))
    assert ask(plan, {"items": changes}) == [(0, "+", 2), (5, "-", 2), (5, "+", 1)]
    assert not Evaluator(plan).ended


def test_groups_of_changes_at_one_ts_are_instants_of_their_own() -> None:
    plan = query(select(ITEMS, "price"), "rstream")
    changes = [
        Change(5, 1, (1, 1), 0, group=0),
        Change(5, 1, (1, 2), 1, group=0),
        Change(5, 1, (1, 3), 2, group=1),
    ]
    assert ask(plan, {"items": changes}) == plus((5, 1), (5, 2), (5, 1), (5, 2), (5, 3))


def test_the_oldest_equal_row_is_taken_out() -> None:
    evaluator = Evaluator(query(group(ITEMS, "", "first k", "count")))
    evaluator.change("items", [Change(1, 1, (1, 7), 0), Change(2, 1, (1, 7), 1), Change(3, -1, (1, 7), 2)])
    assert lines(evaluator.run())[-1] == (3, "+", 1, 1)
    evaluator.change("items", [Change(4, -1, (9, 9), 3)])
    with pytest.raises(InputError, match=r"relation `items` has no row \(9, 9\) to take out at 4"):
        evaluator.run()


# Queries as streams.


def _sub_query(node: object, output: str, position: int = 20, name: str = "q") -> QueryStream:
    return QueryStream(name, query(node, output), position)  # type: ignore[arg-type]


def test_count_window_over_the_answers_of_a_query() -> None:
    inner = _sub_query(group(window(stream("s", "g v"), Unbounded()), "g", "sum v"), "istream")
    plan = query(window(inner, Rows(2)))
    assert ask(plan, s=rows((1, 1, 1), (2, 2, 5), (3, 1, 2))) == [
        (1, "+", 1, 1), (2, "+", 2, 5), (3, "-", 1, 1), (3, "+", 1, 3),
    ]  # fmt: skip


def test_answers_of_one_instant_arrive_one_after_the_other_in_value_order() -> None:
    ordered = TopN(window(S, Range(10, 10)), (SortKey(Column(0, BIGINT), descending=True),), None)
    plan = query(window(_sub_query(ordered, "istream"), Rows(1)), "istream")
    counted = query(
        group(window(_sub_query(ordered, "istream"), Unbounded()), "", "count", "last a"), "istream"
    )
    data = rows((1, 3), (2, 1), (3, 2))
    assert ask(plan, s=data) == plus((10, 1), (10, 2), (10, 3))
    assert ask(counted, s=data) == plus((10, 1, 1), (10, 2, 2), (10, 3, 3))


def test_the_same_stream_at_both_levels() -> None:
    totals = _sub_query(group(window(S, Unbounded()), "", "sum a"), "istream")
    plan = query(join("inner", window(S, Rows(1)), window(totals, Rows(1))), "istream")
    # The new total arrives after the row itself: first 20 with the old total, then with the new one.
    assert ask(plan, s=TWO) == plus((1, 10, 10), (2, 20, 10), (2, 20, 30))


def test_a_query_stream_may_be_a_master_and_is_as_far_as_its_inputs() -> None:
    inner = _sub_query(where(window(S, Unbounded()), "a", ">", 10), "istream", name="big")
    evaluator = Evaluator(
        query(SetOp("union", True, window(S, Unbounded()), window(inner, Unbounded())), "istream", "big")
    )
    evaluator.push("s", TWO)
    assert evaluator.run() == []
    evaluator.progress("s", 3)
    assert lines(evaluator.run()) == plus((2, 10), (2, 20), (2, 20))


def test_stream_of_departures_runs_on_after_its_input_is_closed() -> None:
    gone = _sub_query(window(S, Range(10)), "dstream")
    assert ask(query(window(gone, Range(3))), s=TWO) == [
        (11, "+", 10), (12, "+", 20), (14, "-", 10), (15, "-", 20),
    ]  # fmt: skip


def test_a_query_over_relations_as_a_stream_goes_on() -> None:
    evaluator = Evaluator(query(window(_sub_query(ITEMS, "istream"), Rows(1))))
    evaluator.change("items", initially((1, 1)))
    assert lines(evaluator.run()) == [(0, "+", 1, 1)]
    assert not evaluator.ended
    evaluator.change("items", at(5, ("+", 2, 2)))
    assert lines(evaluator.run()) == [(5, "-", 1, 1), (5, "+", 2, 2)]


# Priorities, failures.


def test_priority_of_an_answer_is_the_highest_of_what_it_is_made_of() -> None:
    r, s = window(stream("r", "k x", 0), Unbounded()), window(stream("s", "k y", 1), Range(5))
    plan = query(group(join("left", r, s, "k"), "k", "count y"))
    answers = evaluate(plan, {"r": [Element(1, (1, 0), 0, 2)], "s": [Element(2, (1, 0), 0, 7)]})
    assert answers == [
        Answer(1, "+", (1, 0), 2), Answer(2, "-", (1, 0), 2), Answer(2, "+", (1, 1), 7),
        Answer(7, "-", (1, 1), 7), Answer(7, "+", (1, 0), 2),
    ]  # fmt: skip


def test_priorities_change_no_answer() -> None:
    r, s = window(stream("r", "k v", 0), Range(4)), window(stream("s", "k v", 1), Rows(2))
    plan = query(group(join("full", r, s, "k"), "k", "count", "last v"))
    data = {"r": rows((1, 1, 1), (2, 2, 2), (4, 1, 3)), "s": rows((2, 1, 1), (3, 2, 2), (5, 3, 3))}
    urgent = {n: [replace(e, priority=9 - e.arrival) for e in elements] for n, elements in data.items()}
    assert lines(evaluate(plan, urgent)) == ask(plan, **data)


def test_a_failure_is_counted_once_for_its_row() -> None:
    context = Context()
    ratio = Call("/", (lit(1), Column(0, BIGINT)), DOUBLE)
    plan = query(Project(window(S, Unbounded()), (ratio,), ("x",)), "istream")
    answers = evaluate(plan, {"s": rows((1, 0), (2, 1), (3, 0), (4, 2))}, context=context)
    assert lines(answers) == plus((1, None), (2, 1.0), (3, None), (4, 0.5))
    assert context.failures == 2


# However the input is cut into calls, the answers are the same.

R2, S2 = stream("r", "k v", 0), stream("s", "k v", 1)
HALF_OVERLAPPING = Generic("time", 0, 10, 5, 5)
HOPPING = Generic("time", 0, 4, 2, 2, None, True)
PAIRS = Generic("tuples", 1, 2, 1, 1)
DEPARTED = _sub_query(where(window(R2, Range(8)), "k", "=", 0), "dstream")
COUNTS = _sub_query(group(window(R2, HALF_OVERLAPPING), "k", "count"), "windows")
THREE_COUNTS = _sub_query(group(window(R2, Generic("time", 0, 3, 3, 3, 9)), "", "count"), "windows")
PLANS: dict[str, Query] = {
    "rows": query(window(R2, Rows(3, 2))),
    "range join": query(join("full", window(R2, Range(7)), window(S2, Range(4, 2)), "k")),
    "master": query(join("inner", window(R2, Rows(2)), window(S2, Range(5)), "k"), "changes", "s"),
    "groups": query(
        group(SetOp("union", True, window(R2, Range(6)), window(S2, Now())), "k", "sum v", "last v")
    ),
    "top": query(TopN(window(R2, Range(9)), (SortKey(Column(1, BIGINT)),), 2), "dstream"),
    "generic": query(group(window(where(R2, "k", "=", 1), HALF_OVERLAPPING), "", "count"), "windows"),
    "from first": query(
        group(join("left", window(R2, HOPPING), window(S2, Range(5)), "k"), "", "count"), "windows"
    ),
    "two generic": query(
        group(join("full", window(R2, HALF_OVERLAPPING), window(S2, HALF_OVERLAPPING), "k"), "", "count"),
        "windows",
    ),
    "tuples": query(join("inner", window(R2, PAIRS), window(S2, PAIRS), "k"), "windows"),
    "session": query(join("left", window(R2, Session(4, (0,))), window(S2, Unbounded()), "k"), "windows"),
    "windows of departures": query(
        group(window(DEPARTED, Generic("time", 0, 6, 0, 6)), "", "count", "max v"), "windows"
    ),
    "rows of windows": query(join("left", window(S2, Range(5)), window(COUNTS, Rows(2)), "k")),
    "windows of windows": query(
        group(window(THREE_COUNTS, Generic("time", 0, 4, 4, 4)), "", "count"), "windows"
    ),
}


@st.composite
def _elements(draw: st.DrawFn) -> list[Element]:
    gaps = draw(st.lists(st.integers(0, 5), max_size=7))
    values = st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 3))
    ts, found = 0, []
    for i, gap in enumerate(gaps):
        ts += gap
        found.append(Element(ts, draw(values), i))
    return found


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=examples(40), deadline=None)
@given(r=_elements(), s=_elements(), data=st.data())
def test_cutting_the_input_changes_nothing(
    name: str, r: list[Element], s: list[Element], data: st.DataObject
) -> None:
    whole = evaluate(PLANS[name], {"r": r, "s": s})
    evaluator = Evaluator(PLANS[name])
    left = {"r": list(r), "s": list(s)}
    answers = []
    while left:
        source = data.draw(st.sampled_from(sorted(left)))
        count = data.draw(st.integers(1, 3))
        now, left[source] = left[source][:count], left[source][count:]
        evaluator.push(source, now)
        if now:
            evaluator.progress(source, now[-1].ts)
        if not left[source]:
            evaluator.progress(source, INFINITY)
            del left[source]
        answers += evaluator.run()
    assert answers == whole
    assert evaluator.ended
