"""What the general operators are made of: the ordered bag, rows that say their end, the gate, the first answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.delta import BEGINNING, MAX_TS, NEVER, Delta, Instant, Step
from penstock.model.errors import PlanError
from penstock.model.schema import Field
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE
from penstock.operators import ordered, waiting
from penstock.operators.aggregate import GeneralAggregate
from penstock.operators.emit import Emit
from penstock.operators.gate import MasterGate
from penstock.operators.join import GeneralJoin
from penstock.operators.ordered import SortedBag, value_of
from penstock.operators.rows import Output, Row, rows_of
from penstock.plan.nodes import Aggregate, AggregateCall, Join, Project, Query, RelationScan, SortKey, TopN
from penstock.plan.order import delivery_keys
from penstock.reference.aggregates import compute
from penstock.reference.windows import Row as ReferenceRow
from penstock.reference.windows import value_key
from penstock.scalar import Context, order_key
from penstock.scalar.expr import Call, Column
from tests.budget import examples
from tests.operators.general import delta_of, lines, pieces

ONE = (Field("a", BIGINT),)
LEFT, RIGHT = RelationScan("l", ONE, 0), RelationScan("r", ONE, 1)
A, B = Column(0, BIGINT), Column(1, BIGINT)

# The ordered bag.


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aaarlg"), st.integers(0, 20)), max_size=80))
def test_a_sorted_bag_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "_LEAST", 2)
        patch.setattr(ordered, "_MOST", 4)
        bag: SortedBag[int] = SortedBag()
        truth: list[int] = []
        for action, number in steps:
            if action == "a":
                bag.add(number)
                truth = sorted([*truth, number])
            elif action == "r" and number in truth:
                bag.remove(number)
                truth.remove(number)
            elif action == "l" and truth:
                assert bag.pop_least() == truth.pop(0)
            elif action == "g" and truth:
                assert bag.pop_greatest() == truth.pop()
            assert list(bag) == truth
            assert len(bag) == len(truth)
            assert [bag[i] for i in range(len(bag))] == truth
            assert list(bag.from_(number)) == [n for n in truth if n >= number]
            assert list(bag.before(number)) == [n for n in truth if n < number]
        assert list(SortedBag(truth)) == truth
        with pytest.raises(KeyError):
            bag.remove(99)
        with pytest.raises(IndexError):
            bag[len(truth)]


@pytest.mark.parametrize("value", [None, 1, 1.5, "ä", float("nan"), (1, None, float("nan")), True])
def test_an_order_key_can_be_undone(value: object) -> None:
    assert value_key([value_of(order_key(value))]) == value_key([value])


# Rows that say when they end.

Coming = tuple[int, int, int, int]
"""Side, ts, value, how long it stays."""


def _ending(rows: list[tuple[Instant, Row]]) -> Delta:
    output = Output(ONE)
    for instant, row in rows:
        output.add(instant, (), [row])
    return output.delta(ends=True)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 2), st.integers(1, 5)), max_size=12),
    st.lists(st.integers(0, 12), max_size=6),
    st.sampled_from(["=", "<", "<>"]),
)
def test_rows_that_say_their_end(coming: list[Coming], cuts: list[int], function: str) -> None:
    coming = sorted(coming, key=lambda c: c[1])
    keys = ((A, A),) if function == "=" else ()
    residual = None if keys else Call(function, (A, B), BOOLEAN)
    join = GeneralJoin(Join("inner", LEFT, RIGHT, keys, residual), {}, Context())
    test = {"=": int.__eq__, "<": int.__lt__, "<>": int.__ne__}[function]
    rows = [Row((v,), (ts, i), 0, MAX_TS if stay == 5 else ts + stay) for i, (_, ts, v, stay) in enumerate(coming)]
    expected: Counter[object] = Counter()
    for i, (side, ts, _, _) in enumerate(coming):
        for j, (other, _, _, _) in enumerate(coming[:i]):
            a, b = (i, j) if side == 0 else (j, i)
            if side != other and rows[j].end > ts and test(rows[a].values[0], rows[b].values[0]):  # type: ignore[arg-type]
                expected[(ts, i), rows[a].values + rows[b].values, (ts, i), min(rows[a].end, rows[b].end)] += 1
    found: Counter[object] = Counter()
    for start, stop in pieces(len(coming), cuts) if coming else []:
        inputs = [_ending([(rows[i].moment, rows[i]) for i in range(start, stop) if coming[i][0] == s]) for s in (0, 1)]
        frontier = rows[stop].moment if stop < len(rows) else (20, 0)
        delta = join.process(inputs, Step(frontier))
        assert delta.end is not None
        assert (delta.sign > 0).all()
        at = zip(delta.ts.tolist(), delta.sub.tolist(), strict=True)
        found.update((i, r.values, r.moment, r.end) for i, r in zip(at, rows_of(delta), strict=True))
        assert join.size().rows == sum(r.end > frontier[0] for r in rows[:stop])
    assert found == expected


def test_a_row_that_leaves_takes_only_living_pairs_with_it() -> None:
    join = GeneralJoin(Join("inner", LEFT, RIGHT, ((A, A),)), {}, Context())
    left = _ending([((1, 1), Row((7,), (1, 1), 0, 5)), ((1, 2), Row((7,), (1, 2), 0, 9))])
    other = _row(0, 7, 2)
    right = delta_of(ONE, [((2, 1), 1, other), ((6, 0), -1, other)])
    delta = join.process([left, right], Step(NEVER))
    assert delta.end is not None
    found = list(zip(delta.ts.tolist(), delta.sign.tolist(), delta.end.tolist(), strict=True))
    assert found == [(2, 1, 5), (2, 1, 9), (6, -1, 9)]
    assert join.size().rows == 0


# The gate.


def _row(number: int, value: int, ts: int) -> ReferenceRow:
    return ReferenceRow(number, (value,), (ts, 0, number), 0)


def _at(instants: list[Instant]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([t for t, _ in instants], np.int64), np.array([s for _, s in instants], np.int64)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=25),
    st.lists(st.integers(0, 25), max_size=8),
    st.sampled_from([0, 3]),
)
def test_the_gate_passes_net_changes(steps: list[tuple[bool, int, bool]], cuts: list[int], sloth: int) -> None:
    """Each step: whether it is a master instant, how many rows leave, whether two enter (of one moment) or one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "_SLOTH", sloth)
        under_test = MasterGate(ONE)
        there: list[ReferenceRow] = []
        passed: Counter[Hashable] = Counter()
        changes: list[list[tuple[Instant, int, ReferenceRow]]] = []
        masters: list[Instant] = []
        expected: Counter[object] = Counter()
        for i, (master, leaving, twice) in enumerate(steps):
            instant = (i // 3, i % 3)
            gone, there = there[:leaving], there[leaving:]
            new = [ReferenceRow((i, n), (n,), (i, 0, i), 0) for n in range(2 if twice else 1)]
            there += new
            changes.append([(instant, -1, r) for r in gone] + [(instant, 1, r) for r in new])
            if master:
                masters.append(instant)
                now: Counter[Hashable] = Counter(r.id for r in there)
                expected.update({(instant, -1, key): 1 for key in passed - now})
                expected.update({(instant, 1, key): 1 for key in now - passed})
                passed = now
        found: Counter[object] = Counter()
        for start, stop in pieces(len(steps), cuts) if steps else []:
            rows = [c for change in changes[start:stop] for c in change]
            due = [m for m in masters if (start // 3, start % 3) <= m < (stop // 3, stop % 3)]
            delta = under_test.process([delta_of(ONE, rows)], Step(NEVER, _at(due)))
            order = list(zip(delta.ts.tolist(), delta.sub.tolist(), delta.sign.tolist(), strict=True))
            assert order == sorted(order)
            for (ts, sub, sign), row in zip(order, rows_of(delta), strict=True):
                found[(ts, sub), sign, (row.moment[0], row.values[0])] += 1
        assert found == expected


def test_what_is_there_from_the_beginning_passes_the_gate() -> None:
    delta = delta_of(ONE, [(BEGINNING, 1, _row(0, 7, BEGINNING[0]))])
    passed = MasterGate(ONE).process([delta], Step((5, 0), _at([])))
    assert lines(passed) == [(BEGINNING, 1, (7,))]


def test_waiting_changes_are_counted() -> None:
    under_test = MasterGate(ONE)
    under_test.process([delta_of(ONE, [((1, 1), 1, _row(0, 7, 1))])], Step((5, 0), _at([])))
    assert under_test.size().rows == 1
    assert under_test.size().bytes > 0


# The first answer.


def _query(output: str) -> Query:
    return Query(LEFT, output, (), "ticks")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("changes", [((3, 1), 1, (1,)), ((3, 1), 1, (3,)), ((4, 0), -1, (1,))]),
        ("istream", [((3, 1), 1, (1,)), ((3, 1), 1, (3,))]),
        ("dstream", [((4, 0), 1, (1,))]),
        ("rstream", [((3, 1), 1, (1,)), ((3, 1), 1, (3,)), ((4, 0), 1, (3,)), ((5, 0), 1, (3,))]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_the_beginning_is_part_of_the_first_answer(output: str, expected: list[object], at_once: bool) -> None:
    one, two, three = _row(0, 1, BEGINNING[0]), _row(1, 2, BEGINNING[0]), _row(2, 3, 3)
    start = [(BEGINNING, 1, one), (BEGINNING, 1, two)]
    later = [((3, 1), -1, two), ((3, 1), 1, three), ((4, 0), -1, one)]
    instants: list[Instant] = [(3, 1), (4, 0), (5, 0)]
    emit = Emit(_query(output), ordered=True)
    if at_once:
        found = lines(emit.process([delta_of(ONE, start + later)], Step(NEVER), _at(instants)))
    else:
        assert not len(emit.process([delta_of(ONE, start)], Step((0, 0)), _at([])))
        assert emit.size().rows == 2
        found = lines(emit.process([delta_of(ONE, later[:2])], Step((4, 0)), _at(instants[:1])))
        found += lines(emit.process([delta_of(ONE, later[2:])], Step((5, 0)), _at(instants[1:2])))
        found += lines(emit.process([delta_of(ONE, [])], Step(NEVER), _at(instants[2:])))
    assert found == expected


def test_windows_are_not_answered_by_changes() -> None:
    with pytest.raises(PlanError, match="window by window"):
        Emit(_query("windows"))


def test_order_by_orders_what_is_delivered() -> None:
    two = RelationScan("l", (Field("a", BIGINT), Field("b", BIGINT)), 0)
    top = TopN(two, (SortKey(Column(1, BIGINT), descending=True), SortKey(Column(0, BIGINT))), None)
    both = Query(Project(top, (Column(1, BIGINT), Column(0, BIGINT)), ("b", "a")), "istream", (), "ticks")
    keys = delivery_keys(both)
    assert [(k.expr, k.descending) for k in keys] == [(Column(0, BIGINT), True), (Column(1, BIGINT), False)]
    one = Query(Project(top, (Column(1, BIGINT),), ("b",)), "istream", (), "ticks")
    assert [k.expr for k in delivery_keys(one)] == [Column(0, BIGINT)]
    assert delivery_keys(_query("istream")) == ()
    rows = [ReferenceRow(i, (i % 2, i), (1, 0, i), 0) for i in range(4)]
    delta = delta_of(both.schema, [((1, 1), 1, r) for r in rows])
    found = Emit(both, keys=keys).process([delta], Step(NEVER), _at([(1, 1)]))
    assert [r.values for r in rows_of(found)] == [(1, 1), (1, 3), (0, 0), (0, 2)]


# Aggregates.


def test_sums_leave_no_trace() -> None:
    """A huge value that came and went does not disturb what is left."""
    scan = RelationScan("l", (Field("d", DOUBLE),), 0)
    calls = [AggregateCall(f, (Column(0, DOUBLE),), DOUBLE) for f in ("sum", "avg", "variance", "stddev_pop")]
    node = Aggregate(scan, (), tuple(calls), ("s", "a", "v", "d"))
    aggregate = GeneralAggregate(node, {}, Context())
    rows = [ReferenceRow(i, (v,), (i, 0, i), 0) for i, v in enumerate([0.1, 1e308, 1e308, float("inf"), 0.3])]
    changes: list[tuple[Instant, int, ReferenceRow]] = [((i, 1), 1, r) for i, r in enumerate(rows)]
    changes += [((10 + i, 0), -1, r) for i, r in enumerate(rows[1:4])]
    result = rows_of(aggregate.process([delta_of(scan.schema, changes)], Step(NEVER)))
    left = [(r.moment, r.values) for r in (rows[0], rows[4])]
    assert result[-1].values == tuple(compute(call, left) for call in calls)


def test_a_group_without_members_is_forgotten() -> None:
    node = Aggregate(LEFT, (A,), (AggregateCall("max", (A,), BIGINT),), ("a", "m"))
    aggregate = GeneralAggregate(node, {}, Context())
    row = _row(0, 7, 1)
    aggregate.process([delta_of(ONE, [((1, 1), 1, row)])], Step((2, 0)))
    assert aggregate.size().rows == 2
    aggregate.process([delta_of(ONE, [((2, 0), -1, row)])], Step((3, 0)))
    assert aggregate.size().rows == 0


def test_a_failure_counts_once() -> None:
    """When a row leaves, what failed on it is not counted again."""
    node = Aggregate(LEFT, (), (AggregateCall("sum", (Call("div", (A, A), BIGINT),), BIGINT),), ("s",))
    errors = Context()
    aggregate = GeneralAggregate(node, {}, errors)
    row = _row(0, 0, 1)
    aggregate.process([delta_of(ONE, [((1, 1), 1, row), ((2, 0), -1, row)])], Step(NEVER))
    assert errors.failures == 1
