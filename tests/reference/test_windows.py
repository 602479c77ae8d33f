"""Windows: when rows enter and leave, and when a bounded window is answered."""

from __future__ import annotations

import pytest
from tests.reference.handmade import (
    ask,
    bounds_of_window,
    group,
    initially,
    join,
    lines,
    pick,
    plus,
    query,
    relation,
    rows,
    select,
    start_of_window,
    stream,
    where,
    window,
)

from penstock.model.errors import PlanError
from penstock.plan.nodes import Query, QueryStream
from penstock.plan.window import Generic, Range, Rows, Session
from penstock.reference.evaluator import INFINITY, Element, Evaluator

S = stream("s", "v")
HOUR = 3600


def count_by(spec: Generic | Session) -> Query:
    """window_start, window_end, count(*) of each window."""
    return query(bounds_of_window(group(window(S, spec), "", "count")), "windows")


def at_times(*ts: int) -> list[Element]:
    return rows(*((t, t) for t in ts))


# Slides.


def test_range_with_slide_changes_at_multiples_of_the_slide_only() -> None:
    plan = query(window(S, Range(10, 5)))
    # At 5: ts in [-5, 5). The row at 5 itself waits for 10.
    assert ask(plan, s=at_times(1, 5, 12)) == [
        (5, "+", 1), (10, "+", 5), (15, "-", 1), (15, "+", 12), (20, "-", 5), (25, "-", 12),
    ]  # fmt: skip


def test_slide_longer_than_range_skips_rows_between() -> None:
    assert ask(query(window(S, Range(3, 10))), s=at_times(1, 8, 22)) == [(10, "+", 8), (20, "-", 8)]


def test_slide_that_changes_no_content_is_no_instant() -> None:
    plan = query(window(S, Range(10, 5)), "rstream")
    # At 10 the content is still the row at 1.
    assert ask(plan, s=at_times(1, 13)) == plus((5, 1), (15, 13))


def test_count_window_with_slide() -> None:
    plan = query(window(S, Rows(3, 2)))
    assert ask(plan, s=at_times(1, 2, 3, 4, 5)) == [
        (2, "+", 1), (2, "+", 2), (4, "-", 1), (4, "+", 3), (4, "+", 4),
    ]  # fmt: skip


def test_negative_timestamps_slide_too() -> None:
    assert ask(query(window(S, Range(5, 5)), "istream"), s=at_times(-7, -1)) == plus((-5, -7), (0, -1))


# Generic windows in time.


def test_disjoint_windows_and_landmark() -> None:
    data = at_times(1, 9, 10, 25)
    for low, expected in (
        (10, [(10, 0, 2), (20, 10, 1), (30, 20, 1)]),
        (0, [(10, 0, 2), (20, 0, 3), (30, 0, 4)]),
    ):
        plan = query(
            start_of_window(group(window(S, Generic("time", 0, 10, low, 10, 30)), "", "count")), "windows"
        )
        assert ask(plan, s=data) == plus(*expected)


def test_query_ends_at_end_query() -> None:
    evaluator = Evaluator(count_by(Generic("time", 0, 10, 10, 10, 30)))
    evaluator.push("s", at_times(1, 29))
    evaluator.run()
    assert not evaluator.ended
    evaluator.progress("s", 30)
    assert lines(evaluator.run()) == plus((30, 20, 30, 1))
    assert evaluator.ended
    evaluator.push("s", [Element(35, (1,), 9), Element(95, (1,), 10)])
    assert evaluator.run() == []


def test_window_that_ends_after_end_query_is_not_answered() -> None:
    assert ask(count_by(Generic("time", 0, 10, 10, 10, 25)), s=at_times(1, 24)) == plus(
        (10, 0, 10, 1), (20, 10, 20, 0)
    )


def test_empty_window_has_no_group() -> None:
    s = stream("s", "g v")
    plan = query(
        start_of_window(group(window(s, Generic("time", 0, 10, 10, 10, 30)), "g", "count")), "windows"
    )
    assert ask(plan, s=rows((1, 7, 0), (25, 7, 0))) == plus((10, 0, 7, 1), (30, 20, 7, 1))


def test_end_query_is_reached_without_rows() -> None:
    assert ask(count_by(Generic("time", 0, 10, 10, 10, 20)), s=[]) == plus((10, 0, 10, 0), (20, 10, 20, 0))


def test_hourly_from_10_to_22_gives_12_windows() -> None:
    spec = Generic("time", 10 * HOUR, 11 * HOUR, HOUR, HOUR, 22 * HOUR)
    answers = ask(count_by(spec), s=at_times(*range(9 * HOUR, 23 * HOUR, HOUR // 2)))
    assert answers == plus(*((h * HOUR, (h - 1) * HOUR, h * HOUR, 2) for h in range(11, 23)))
    assert len(answers) == 12


def test_hourly_landmark_from_9_to_17_gives_8_windows() -> None:
    spec = Generic("time", 9 * HOUR, 10 * HOUR, 0, HOUR, 17 * HOUR)
    answers = ask(count_by(spec), s=at_times(*range(9 * HOUR, 18 * HOUR, HOUR)))
    assert answers == plus(*((h * HOUR, 9 * HOUR, h * HOUR, h - 9) for h in range(10, 18)))
    assert answers[-1][3] - answers[-1][2] == 8 * HOUR  # type: ignore[operator]


def test_one_hour_window_every_10_minutes() -> None:
    tenth = HOUR // 6
    spec = Generic("time", 0, HOUR, tenth, tenth, 2 * HOUR)
    answers = ask(count_by(spec), s=at_times(*range(0, 2 * HOUR, tenth)))
    assert answers == plus(*((HOUR + i * tenth, i * tenth, HOUR + i * tenth, 6) for i in range(7)))


def test_snapshot_is_answered_once() -> None:
    assert ask(count_by(Generic("time", 5, 15, 0, 0)), s=at_times(1, 5, 14, 15, 40)) == plus((15, 5, 15, 2))


def test_reverse_windows_are_answered_together_when_the_first_ends() -> None:
    spec = Generic("time", 20, 30, -10, -10, 0)
    assert ask(count_by(spec), s=at_times(1, 12, 21, 29, 30, 99)) == plus(
        (30, 20, 30, 2), (30, 10, 20, 1), (30, 0, 10, 1)
    )


def test_reverse_landmark_grows_into_the_past() -> None:
    spec = Generic("time", 20, 30, -10, 0, 0)
    assert ask(count_by(spec), s=at_times(1, 12, 21, 29, 30)) == plus(
        (30, 20, 30, 2), (30, 10, 30, 3), (30, 0, 30, 4)
    )


def test_reverse_windows_that_shrink_to_nothing_need_no_end_query() -> None:
    assert ask(count_by(Generic("time", 0, 30, 0, -10)), s=at_times(5, 15, 25)) == plus(
        (30, 0, 30, 3), (30, 0, 20, 2), (30, 0, 10, 1)
    )


def test_reverse_windows_without_an_end_are_refused() -> None:
    with pytest.raises(PlanError, match=r"hop back by \(-10, -10\) go on forever; END QUERY would say"):
        Evaluator(count_by(Generic("time", 20, 30, -10, -10)))


def test_windows_whose_begin_catches_up_with_the_end_end_the_query() -> None:
    evaluator = Evaluator(count_by(Generic("time", 0, 10, 10, 5)))
    evaluator.push("s", at_times(1, 12, 40))
    assert lines(evaluator.run()) == plus((10, 0, 10, 1), (15, 10, 15, 1))
    assert evaluator.ended


@pytest.mark.parametrize(
    ("spec", "ends"),
    [
        (Generic("time", 0, 10, 10, 10), [10, 20, 30]),
        (Generic("time", 0, 10, 5, 5), [10, 15, 20, 25, 30, 35]),
        (Generic("time", 0, 10, 0, 10), [10, 20, 30]),
        (Generic("time", 0, 10, 0, 0), [10]),
        (Generic("time", 100, 110, 10, 10), []),
    ],
)
def test_closed_input_without_end_query(spec: Generic, ends: list[int]) -> None:
    assert [line[0] for line in ask(count_by(spec), s=at_times(1, 25))] == ends


def test_closed_input_without_rows_has_no_windows() -> None:
    evaluator = Evaluator(count_by(Generic("time", 0, 10, 10, 10)))
    evaluator.progress("s", INFINITY)
    assert evaluator.run() == []
    assert evaluator.ended


def test_what_progress_named_before_the_close_is_answered_whenever_it_is_processed() -> None:
    plan = query(
        group(
            join("inner", window(S, Generic("time", 0, 10, 10, 10)), window(stream("u", "w", 1), Rows(1))),
            "",
            "count",
        ),
        "windows",
    )
    for u_is_late in (False, True):
        evaluator = Evaluator(plan)
        if not u_is_late:
            evaluator.progress("u", INFINITY)
        evaluator.push("s", at_times(1))
        evaluator.progress("s", 35)
        answers = evaluator.run()
        evaluator.progress("s", INFINITY)
        evaluator.progress("u", INFINITY)
        answers += evaluator.run()
        assert lines(answers) == plus((10, 0), (20, 0), (30, 0))


def test_tumbling_starts_at_the_window_of_the_first_row_and_includes_empty_ones() -> None:
    spec = Generic("time", 0, 10, 10, 10, None, True)
    assert ask(count_by(spec), s=at_times(25, 47)) == plus((30, 20, 30, 1), (40, 30, 40, 0), (50, 40, 50, 1))


def test_hopping_starts_at_the_earliest_window_that_contains_the_first_row() -> None:
    spec = Generic("time", 0, 10, 5, 5, None, True)
    assert ask(count_by(spec), s=at_times(3)) == plus((5, -5, 5, 1), (10, 0, 10, 1))
    assert ask(count_by(spec), s=at_times(20)) == plus((25, 15, 25, 1), (30, 20, 30, 1))


def test_only_rows_that_reach_the_window_are_the_first() -> None:
    spec = Generic("time", 0, 10, 10, 10, None, True)
    plan = query(group(window(where(S, "v", ">", 20), spec), "", "count"), "windows")
    assert ask(plan, s=at_times(5, 25)) == plus((30, 1))


def test_tumbling_on_two_inputs_starts_with_the_first_row_of_either() -> None:
    spec = Generic("time", 0, 10, 10, 10, None, True)
    r, s = window(stream("r", "k x", 0), spec), window(stream("s", "k y", 1), spec)
    plan = query(bounds_of_window(group(join("inner", r, s, "k"), "", "count")), "windows")
    assert ask(plan, r=rows((11, 1, 0), (12, 1, 0)), s=rows((3, 1, 0), (19, 1, 0))) == plus(
        (10, 0, 10, 0), (20, 10, 20, 2)
    )


def test_windows_are_not_compared_with_each_other() -> None:
    assert ask(query(window(S, Generic("time", 0, 10, 0, 10, 20)), "windows"), s=at_times(1, 12)) == plus(
        (10, 1), (20, 1), (20, 12)
    )


def test_other_inputs_count_as_they_are_when_the_window_ends() -> None:
    r = window(stream("r", "k", 0), Generic("time", 0, 10, 10, 10, 20))
    s = window(stream("s", "k y", 1), Range(5))
    items = relation("items", "k price")
    plan = query(pick(join("left", join("left", r, s, "k"), items, "k"), 0, 2, 4), "windows")
    changes = initially((1, 100))
    # y = 50 came at 5 and leaves at 10, the instant of the window's end; 60 comes at 10, after it.
    data = {"r": rows((1, 1), (11, 1)), "s": rows((5, 1, 50), (10, 1, 60), (17, 1, 70))}
    assert ask(plan, {"items": changes}, **data) == plus((10, 1, None, 100), (20, 1, 70, 100))


# Generic windows in tuples.


def test_tuple_windows() -> None:
    plan = query(group(window(S, Generic("tuples", 1, 2, 2, 2)), "", "sum v"), "windows")
    assert ask(plan, s=at_times(1, 2, 3, 4, 5)) == plus((2, 3), (4, 7))


def test_windows_of_100_tuples() -> None:
    answers = ask(count_by(Generic("tuples", 1, 100, 100, 100)), s=at_times(*range(1000, 1350)))
    assert answers == plus((1099, 1, 100, 100), (1199, 101, 200, 100), (1299, 201, 300, 100))


def test_tuple_landmark_until_end_query() -> None:
    evaluator = Evaluator(count_by(Generic("tuples", 1, 2, 0, 2, 4)))
    evaluator.push("s", at_times(*range(1, 10)))
    assert lines(evaluator.run()) == plus((2, 1, 2, 2), (4, 1, 4, 4))
    assert evaluator.ended


def test_tuple_window_of_one_row() -> None:
    assert ask(count_by(Generic("tuples", 2, 2, 2, 2)), s=at_times(5, 6, 7, 8)) == plus(
        (6, 2, 2, 1), (8, 4, 4, 1)
    )


def test_reverse_tuple_windows() -> None:
    plan = query(group(window(S, Generic("tuples", 3, 4, -2, -2, 1)), "", "sum v"), "windows")
    assert ask(plan, s=at_times(10, 20, 30, 40, 50)) == plus((40, 70), (40, 30))


def test_tuple_windows_of_two_inputs_are_answered_when_both_are_complete() -> None:
    spec = Generic("tuples", 1, 2, 2, 2)
    r, s = window(stream("r", "x", 0), spec), window(stream("s", "y", 1), spec)
    plan = query(group(join("inner", r, s), "", "sum x", "sum y"), "windows")
    data = {"r": rows((1, 1), (2, 2), (3, 3), (4, 4)), "s": rows((5, 10), (6, 20), (7, 30))}
    assert ask(plan, **data) == plus((6, 6, 60))


def test_tuple_numbers_count_only_rows_that_reach_the_window() -> None:
    plan = query(group(window(where(S, "v", ">", 2), Generic("tuples", 1, 2, 2, 2)), "", "sum v"), "windows")
    assert ask(plan, s=at_times(1, 2, 3, 4)) == plus((4, 7))


# Sessions.


def test_session_ends_a_gap_after_its_last_row() -> None:
    # The row at 9 is within the gap of 4; the one at 14 is exactly a gap after 9 and starts anew.
    assert ask(count_by(Session(5)), s=at_times(1, 4, 8, 9, 14)) == plus((14, 1, 14, 4), (19, 14, 19, 1))


def test_sessions_of_keys() -> None:
    s = stream("s", "k v")
    plan = query(bounds_of_window(group(window(s, Session(5, (0,))), "k", "sum v")), "windows")
    data = rows((1, 2, 10), (1, 1, 20), (3, None, 1), (4, 2, 30), (4, None, 1), (30, 1, 1))
    assert ask(plan, s=data) == plus(
        (6, 1, 6, 1, 20), (9, 1, 9, 2, 40), (9, 3, 9, None, 2), (35, 30, 35, 1, 1)
    )


def test_sessions_that_end_together_go_by_start_then_key() -> None:
    s = stream("s", "k v")
    plan = query(select(window(s, Session(5, (0,))), "k", "v"), "windows")
    data = rows((1, 3, 1), (2, 2, 1), (2, 1, 1), (2, None, 1), (3, 1, 2), (3, 2, 0), (3, 3, 2), (3, None, 2))
    assert ask(plan, s=data) == plus(
        (8, 3, 1), (8, 3, 2), (8, None, 1), (8, None, 2), (8, 1, 1), (8, 1, 2), (8, 2, 0), (8, 2, 1)
    )


def test_session_joins_with_a_relation() -> None:
    s = window(stream("s", "k", 0), Session(5))
    plan = query(pick(join("inner", s, relation("items", "k price"), "k"), 0, 2), "windows")
    assert ask(plan, {"items": initially((1, 100))}, s=rows((1, 1), (2, 2), (3, 1))) == plus(
        (8, 1, 100), (8, 1, 100)
    )


# Windows on the answers of windows.


def test_answers_of_windows_as_a_stream() -> None:
    counts = QueryStream(
        "q", query(group(window(S, Generic("time", 0, 10, 10, 10)), "", "count"), "windows"), 20
    )
    plan = query(group(window(counts, Rows(2)), "", "sum count"), "istream")
    assert ask(plan, s=at_times(1, 2, 3, 11, 25, 26)) == plus((10, 3), (20, 4), (30, 3))


def test_a_query_stream_that_ended_is_closed() -> None:
    counts = QueryStream(
        "q", query(group(window(S, Generic("time", 0, 10, 10, 10, 20)), "", "count"), "windows"), 20
    )
    outer = query(group(window(counts, Generic("time", 0, 15, 15, 15)), "", "sum count"), "windows")
    evaluator = Evaluator(outer)
    evaluator.push("s", at_times(1, 2, 11, 25))
    # The inner query ends at 20, so no more can come into [15, 30).
    assert lines(evaluator.run()) == plus((15, 2), (30, 1))
    assert evaluator.ended
