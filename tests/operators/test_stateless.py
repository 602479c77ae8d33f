"""Filters and projections over changes and arrivals: the reference's rows, split anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.delta import MAX_TS, Arrivals, Delta, Step, concat
from penstock.model.errors import QueryFailed
from penstock.model.schema import Field
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING
from penstock.model.values import to_arrow, to_python
from penstock.operators.base import NOTHING
from penstock.operators.stateless import FilterProject
from penstock.plan.nodes import Filter, Node, Project, StreamScan
from penstock.scalar import Context, evaluate
from penstock.scalar.expr import Call, Cast, Column, Expr, Literal, WindowBound
from tests import strategies
from tests.budget import examples

SCAN = strategies.R
STEP = Step((MAX_TS, 0))
K, X, D = (Column(i, f.type, f.name) for i, f in enumerate(SCAN.schema))
QUOTIENT = Call("/", (Literal(1.0, DOUBLE), D), DOUBLE)

Row = tuple[object, ...]


@st.composite
def chains(draw: Any) -> list[Filter | Project]:
    """Filters and projections, bottom to top, of which some can fail."""
    plans = strategies._Plans(draw, None)
    node: Node = SCAN
    steps: list[Filter | Project] = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            predicate = plans.condition(node.schema)
            doubles = [i for i, f in enumerate(node.schema) if f.type == DOUBLE]
            if doubles and draw(st.integers(0, 2)) == 0:
                quotient = Call("/", (Literal(1.0, DOUBLE), Column(doubles[0], DOUBLE)), DOUBLE)
                predicate = Call("or", (predicate, Call("<", (quotient, Literal(1.0, DOUBLE)), BOOLEAN)), BOOLEAN)
            step: Filter | Project = Filter(node, predicate)
        else:
            made = plans.project(node)
            assert isinstance(made, Project)
            step = made
        steps.append(step)
        node = step
    return steps


@st.composite
def changes(draw: Any) -> tuple[Delta, list[Row]]:
    """Rows that enter, and later leave in part; sorted by instant, and with everything a change carries."""
    count = draw(st.integers(0, 8))
    rows = [strategies._row(draw, SCAN.schema) for _ in range(count)]
    leave = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    entries = [(i, i, 1) for i in range(count)] + [(100 + i, i, -1) for i in range(count) if leave[i]]
    values = [rows[i] for _, i, _ in entries]
    moments = np.array([i for _, i, _ in entries], np.int64)
    ts = np.array([t for t, _, _ in entries], np.int64)
    columns = tuple(to_arrow([v[c] for v in values], f.type) for c, f in enumerate(SCAN.schema))
    delta = Delta(
        SCAN.schema, columns, ts, ts + 1, np.array([s for _, _, s in entries], np.int8), moments, moments + 1,
        draw(st.sampled_from((None, moments * 10))), draw(st.sampled_from((None, ts + 50))),
    )  # fmt: skip
    return delta, values


def truth(steps: list[Filter | Project], values: list[Row], signs: list[int]) -> tuple[list[tuple[int, Row]], int]:
    """Places and rows of what passes, and the failures of rows that enter."""
    counting, silent = Context(), Context()
    passed: list[tuple[int, Row]] = []
    for place, (value, sign) in enumerate(zip(values, signs, strict=True)):
        row, context = value, counting if sign > 0 else silent
        for step in steps:
            if isinstance(step, Project):
                row = tuple([evaluate(e, row, context) for e in step.exprs])
            elif evaluate(step.predicate, row, context) is not True:
                break
        else:
            passed.append((place, row))
    return passed, counting.failures


def rows_of(result: Delta | Arrivals) -> list[str]:
    columns = [to_python(c, f.type) for c, f in zip(result.columns, result.schema, strict=True)]
    return [repr(r) for r in zip(*columns, strict=True)]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(chains(), changes(), st.data())
def test_like_the_reference_and_split_anywhere(
    steps: list[Filter | Project], given: tuple[Delta, list[Row]], data: st.DataObject
) -> None:
    delta, values = given
    passed, failures = truth(steps, values, delta.sign.tolist())
    places = np.array([p for p, _ in passed], np.int64)
    errors = Context()
    operator = FilterProject(steps, SCAN.schema, {}, errors)
    result = operator.process([delta], STEP)
    assert result.schema == steps[-1].schema
    assert rows_of(result) == [repr(r) for _, r in passed]
    for column, field in zip(result.columns, result.schema, strict=True):
        column.validate(full=True)
        assert column.type == field.type.arrow
    for name in ("ts", "sub", "sign", "moment_ts", "moment_sub", "priority", "end"):
        before, after = getattr(delta, name), getattr(result, name)
        assert (after is None) == (before is None)
        if before is not None:
            assert after.tolist() == before[places].tolist(), name
    assert errors.failures == failures
    cut = data.draw(st.integers(0, len(delta)))
    pieces = [operator.process([d], STEP) for d in (delta.slice(0, cut), delta.slice(cut, len(delta)))]
    assert rows_of(concat(pieces)) == rows_of(result)
    assert errors.failures == 2 * failures
    assert operator.size() == NOTHING


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(chains(), changes())
def test_arrivals(steps: list[Filter | Project], given: tuple[Delta, list[Row]]) -> None:
    delta, values = given
    passed, failures = truth(steps, values, [1] * len(values))
    places = np.array([p for p, _ in passed], np.int64)
    errors = Context()
    arrivals = Arrivals(SCAN.schema, delta.columns, delta.ts, delta.sub, delta.priority)
    result = FilterProject(steps, SCAN.schema, {}, errors).process_arrivals(arrivals)
    assert rows_of(result) == [repr(r) for _, r in passed]
    assert result.ts.tolist() == delta.ts[places].tolist()
    assert result.sub.tolist() == delta.sub[places].tolist()
    if delta.priority is not None:
        assert result.priority is not None
        assert result.priority.tolist() == delta.priority[places].tolist()
    assert errors.failures == failures


def delta_of(doubles: list[float | None], signs: list[int] | None = None) -> Delta:
    count = len(doubles)
    ts = np.arange(count)
    columns = (pa.array([1] * count, pa.int32()), pa.array(["a"] * count), pa.array(doubles, pa.float64()))
    return Delta(SCAN.schema, columns, ts, ts, np.array(signs or [1] * count, np.int8), ts, ts)


def test_a_filter_that_can_fail_sees_only_what_passed_before_it() -> None:
    first = Filter(SCAN, Call("<>", (D, Literal(0.0, DOUBLE)), BOOLEAN))
    second = Filter(first, Call(">", (QUOTIENT, Literal(0.4, DOUBLE)), BOOLEAN))
    errors = Context()
    result = FilterProject([first, second], SCAN.schema, {}, errors).process([delta_of([0.0, 2.0, 4.0])], STEP)
    assert result.ts.tolist() == [1]
    assert errors.failures == 0


def test_a_projection_sees_only_survivors() -> None:
    kept = Filter(SCAN, Call("<>", (D, Literal(0.0, DOUBLE)), BOOLEAN))
    steps: list[Filter | Project] = [kept, Project(kept, (QUOTIENT,), ("q",))]
    errors = Context()
    result = FilterProject(steps, SCAN.schema, {}, errors).process([delta_of([0.0, 2.0])], STEP)
    assert result.columns[0].to_pylist() == [0.5]
    assert errors.failures == 0


def test_what_a_filter_computes_twice_is_not_what_the_projection_above_it_computes_twice() -> None:
    """All rows pass, so both see the same ones."""
    more, less = Call("+", (D, Literal(1.0, DOUBLE)), DOUBLE), Call("-", (D, Literal(1.0, DOUBLE)), DOUBLE)
    ends = (Call("<", (more, Literal(100.0, DOUBLE)), BOOLEAN), Call(">", (more, Literal(1000.0, DOUBLE)), BOOLEAN))
    passing = Filter(SCAN, Call("or", ends, BOOLEAN))
    steps: list[Filter | Project] = [passing, Project(passing, (Call("*", (less, less), DOUBLE),), ("square",))]
    result = FilterProject(steps, SCAN.schema, {}, Context()).process([delta_of([3.0, 5.0])], STEP)
    assert result.columns[0].to_pylist() == [4.0, 16.0]


def test_a_row_that_leaves_does_not_count_again() -> None:
    errors = Context(strict=False)
    operator = FilterProject([Project(SCAN, (QUOTIENT,), ("q",))], SCAN.schema, {}, errors)
    result = operator.process([delta_of([0.0, 0.0], [-1, 1])], STEP)
    assert result.columns[0].to_pylist() == [None, None]
    assert errors.failures == 1


def test_strict_raises() -> None:
    operator = FilterProject([Project(SCAN, (QUOTIENT,), ("q",))], SCAN.schema, {}, Context(strict=True))
    with pytest.raises(QueryFailed, match="division by zero"):
        operator.process([delta_of([1.0, 0.0])], STEP)


def test_bounds_of_the_window_being_answered() -> None:
    steps = [Project(SCAN, (WindowBound("start", BIGINT), WindowBound("end", BIGINT)), ("s", "e"))]
    operator = FilterProject(steps, SCAN.schema, {}, Context())
    result = operator.process([delta_of([1.0, 2.0])], Step((MAX_TS, 0), window=(3, 9)))
    assert [c.to_pylist() for c in result.columns] == [[3, 3], [9, 9]]


def test_many_rows_keep_their_order() -> None:
    """Enough rows that they are gathered by place rather than by mask."""
    count = 5000
    schema = (Field("a", INT), Field("t", STRING), Field("b", BOOLEAN))
    scan = StreamScan("m", schema, 0, "ticks")
    a = np.arange(count, dtype=np.int32)
    columns = (pa.array(a), pa.array([str(i) for i in a]), pa.array([None if i % 5 == 0 else i % 2 == 0 for i in a]))
    ts = np.arange(count)
    delta = Delta(schema, columns, ts, ts, np.where(a % 3 == 0, -1, 1).astype(np.int8), ts + 1, ts + 2)
    for divisor, most in ((10, False), (10, True)):
        test = Call("=", (Call("%", (Column(0, INT), Literal(divisor, INT)), INT), Literal(0, INT)), BOOLEAN)
        predicate: Expr = Call("not", (test,), BOOLEAN) if most else test
        kept = Filter(scan, predicate)
        exprs = (Column(1, STRING), Cast(Column(0, INT), DOUBLE), Column(2, BOOLEAN))
        result = FilterProject([kept, Project(kept, exprs, ("t", "a", "b"))], schema, {}, Context()).process(
            [delta], STEP
        )
        expected = [i for i in range(count) if (i % divisor == 0) != most]
        assert result.columns[0].to_pylist() == [str(i) for i in expected]
        assert result.columns[1].to_pylist() == [float(i) for i in expected]
        assert result.columns[2].to_pylist() == [None if i % 5 == 0 else i % 2 == 0 for i in expected]
        assert result.sign.tolist() == [-1 if i % 3 == 0 else 1 for i in expected]
        assert result.moment_sub.tolist() == [i + 2 for i in expected]
