"""Filters worked on together: every member gives what it gives by itself."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.kernels import filter_index, filter_lookup
from penstock.model.delta import MAX_TS, Arrivals, Delta, Step
from penstock.model.errors import QueryFailed
from penstock.model.schema import Field, Schema
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    REAL,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
)
from penstock.model.values import to_arrow, to_python
from penstock.operators import filter_group
from penstock.operators.filter_group import FilterGroup, Outcome
from penstock.operators.stateless import FilterProject
from penstock.plan.nodes import Filter, Node, Project, StreamScan
from penstock.scalar import Context
from penstock.scalar.expr import FALSE, TRUE, Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound
from tests.budget import examples

STEP = Step((MAX_TS, 0))
MONEY = decimal(10, 2)
BIG = 2**63 - 1
VALUES: dict[DataType, list[object]] = {
    INT: [None, 0, 1, 2, 3, -1, 2**31 - 1, -(2**31)],
    BIGINT: [None, 0, 1, 2, 3, BIG, -BIG - 1, 10**12],
    REAL: [None, 0.0, -0.0, 1.5, 0.1, math.nan, math.inf, -math.inf],
    DOUBLE: [None, 0.0, -0.0, 1.5, 0.1, math.nan, math.inf, -math.inf],
    STRING: [None, "", "a", "b", "ä", "a much longer text"],
    BINARY: [None, b"", b"a", b"\0"],
    MONEY: [None, Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("99999999.99")],
    BOOLEAN: [None, True, False],
    DATE: [None, 0, 1, -1],
    TIMESTAMP: [None, 0, 1, 10**15],
    INTERVAL: [None, 0, 1, -5],
}
COMPARISONS = ("=", "=", "=", "<>", "<", "<=", ">", ">=")


def unlucky(value: float | None) -> bool:
    """A user's function that fails on some rows."""
    if value == 1.5:
        raise ValueError("unlucky")
    return value is not None and value > 0


FUNCTIONS = {"unlucky": unlucky}


class Drawn:
    """Expressions over a schema, as hypothesis draws them."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def column(self, schema: Schema) -> Column:
        index = self.draw(st.integers(0, len(schema) - 1))
        return Column(index, schema[index].type, schema[index].name)

    def literal(self, dtype: DataType) -> Literal:
        if dtype == INT and self.draw(st.integers(0, 3)) == 0:
            dtype = BIGINT
        return Literal(self.pick(VALUES[dtype]), dtype)

    def compared(self, schema: Schema) -> Expr:
        column = self.column(schema)
        sides: tuple[Expr, Expr] = (column, self.literal(column.type))
        if self.draw(st.integers(0, 4)) == 0:
            sides = sides[1], sides[0]
        return Call(self.pick(COMPARISONS), sides, BOOLEAN)

    def quotient(self, schema: Schema) -> Expr:
        """Something that fails where a column is 0."""
        numbers = [Column(i, f.type) for i, f in enumerate(schema) if f.type == DOUBLE]
        if not numbers:
            return FALSE
        return Call("<", (Call("/", (Literal(1.0, DOUBLE), self.pick(numbers)), DOUBLE), Literal(1.0, DOUBLE)), BOOLEAN)

    def condition(self, schema: Schema, depth: int = 2) -> Expr:
        kind = self.draw(st.integers(0, 19))
        if kind <= 5 or (depth == 0 and kind >= 14):
            return self.compared(schema)
        column = self.column(schema)
        match kind:
            case 6 | 7 | 8:
                items = [self.literal(column.type) for _ in range(self.draw(st.integers(1, 8)))]
                return Call("in", (column, *items), BOOLEAN)
            case 9:
                marks = [Column(i, BOOLEAN) for i, f in enumerate(schema) if f.type == BOOLEAN]
                mark: Expr = self.pick(marks) if marks else TRUE
                return mark if self.draw(st.booleans()) else Call("not", (mark,), BOOLEAN)
            case 10:
                return Call("is_null", (column,), BOOLEAN)
            case 11:
                return self.quotient(schema)
            case 12:
                doubles = [Column(i, DOUBLE) for i, f in enumerate(schema) if f.type == DOUBLE]
                return UserCall("unlucky", (self.pick(doubles),), BOOLEAN) if doubles else TRUE
            case 13:
                return Literal(self.pick((True, True, False, None)), BOOLEAN)
            case 14:
                return Call("not", (self.condition(schema, depth - 1),), BOOLEAN)
            case 15 | 16:
                values = (self.literal(column.type), self.literal(column.type))
                return Call("or", tuple(Call("=", (column, v), BOOLEAN) for v in values), BOOLEAN)
            case 17:
                return Call("or", (self.condition(schema, depth - 1), self.condition(schema, depth - 1)), BOOLEAN)
        return Call("and", (self.condition(schema, depth - 1), self.condition(schema, depth - 1)), BOOLEAN)

    def computed(self, schema: Schema) -> Expr:
        column = self.column(schema)
        match self.draw(st.integers(0, 8)):
            case 0:
                return self.literal(column.type)
            case 1:
                return Cast(column, STRING) if column.type != BINARY else column
            case 2:
                return Case(((self.condition(schema, 0), column),), Literal(None, column.type), column.type)
            case 3:
                return self.quotient(schema)
            case 4:
                return self.condition(schema, 1)
        return column

    def chain(self, scan: StreamScan) -> list[Filter | Project]:
        node: Node = scan
        steps: list[Filter | Project] = []
        for i in range(self.pick((1, 1, 1, 2, 2, 3, 4))):
            step: Filter | Project
            if i == 0 and self.draw(st.integers(0, 9)) < 6:
                parts = [self.compared(scan.schema) for _ in range(self.pick((1, 1, 2, 2, 3, 4)))]
                step = Filter(node, reduce(lambda a, b: Call("and", (a, b), BOOLEAN), parts))
            elif self.draw(st.integers(0, 4)) < (4 if i == 0 else 2):
                step = Filter(node, self.condition(node.schema))
            else:
                exprs = tuple(self.computed(node.schema) for _ in range(self.draw(st.integers(1, 3))))
                step = Project(node, exprs, tuple(f"c{n}" for n in range(len(exprs))))
            steps.append(step)
            node = step
        return steps

    def batch(self, schema: Schema, rows: int) -> Delta | Arrivals:
        """Rows, of which some leave, with everything that a batch can carry; sometimes part of a longer one."""
        skipped = self.draw(st.integers(0, 3))
        count = rows + skipped
        columns = []
        for field in schema:
            few = self.draw(st.lists(st.sampled_from(VALUES[field.type]), min_size=1, max_size=5))
            seed = self.draw(st.integers(0, 1000))
            chosen = np.random.default_rng(seed).integers(0, len(few), count).tolist()
            columns.append(to_arrow([few[i] for i in chosen], field.type).slice(skipped))
        ts = np.arange(rows) // 2
        sub = np.arange(rows) % 2
        priority = self.pick((None, np.arange(rows) * 10))
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            return Arrivals(schema, tuple(columns), ts, sub, priority)
        same = kind == 1
        sign = np.where(np.arange(rows) % 3 == 0, -1, 1).astype(np.int8) if kind == 3 else np.ones(rows, np.int8)
        return Delta(
            schema, tuple(columns), ts, sub, sign, ts if same else ts + 5, sub if same else sub + 7, priority,
            self.pick((None, ts + 50)),
        )  # fmt: skip


@st.composite
def schemas(draw: Any) -> Schema:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    return tuple(Field(f"f{i}", t) for i, t in enumerate(types))


def outcome(operator: FilterProject, data: Delta | Arrivals, step: Step) -> Outcome:
    try:
        return operator.process([data], step) if isinstance(data, Delta) else operator.process_arrivals(data)
    except QueryFailed as problem:
        return problem


def assert_same(found: Outcome, expected: Outcome) -> None:
    assert type(found) is type(expected)
    if isinstance(found, Exception):
        assert str(found) == str(expected)
        return
    assert not isinstance(expected, Exception)
    assert found.schema == expected.schema
    for ours, theirs, field in zip(found.columns, expected.columns, found.schema, strict=True):
        ours.validate(full=True)
        assert ours.type == field.type.arrow
        assert repr(to_python(ours, field.type)) == repr(to_python(theirs, field.type))
    names = ["ts", "sub", "priority"]
    if isinstance(found, Delta):
        names += ["sign", "moment_ts", "moment_sub", "end"]
    for name in names:
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            assert ours.tolist() == theirs.tolist(), name
            assert ours.dtype == theirs.dtype, name


class Both:
    """Members in a group, and each by itself."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.group = FilterGroup(schema)
        self.alone: dict[int, tuple[FilterProject, Context, Context]] = {}

    def add(self, key: int, steps: list[Filter | Project], strict: bool = False) -> None:
        errors, own = Context(strict=strict), Context(strict=strict)
        self.group.add(key, FilterProject(steps, self.schema, FUNCTIONS, errors))
        self.alone[key] = FilterProject(steps, self.schema, FUNCTIONS, own), errors, own

    def remove(self, key: int) -> None:
        self.group.remove(key)
        del self.alone[key]

    def check(self, data: Delta | Arrivals, step: Step = STEP) -> list[Outcome]:
        results = self.group.process(data, step)
        assert [key for key, _ in results] == list(self.alone)
        for key, found in results:
            operator, errors, own = self.alone[key]
            assert_same(found, outcome(operator, data, step))
            assert (errors.failures, errors.last_failure) == (own.failures, own.last_failure)
        return [found for _, found in results]


def run(data: st.DataObject, rows: st.SearchStrategy[int]) -> None:
    drawn = Drawn(data.draw)
    schema = data.draw(schemas())
    scan = StreamScan("s", schema, 0, "ticks")
    both, key = Both(schema), 0
    for _ in range(data.draw(st.integers(1, 3))):
        for _ in range(data.draw(st.integers(0, 5))):
            both.add(key, drawn.chain(scan), strict=data.draw(st.integers(0, 4)) == 0)
            key += 1
        for gone in data.draw(st.lists(st.sampled_from(list(both.alone)), unique=True)) if both.alone else ():
            if data.draw(st.booleans()):
                both.remove(gone)
        both.check(drawn.batch(schema, data.draw(rows)))


@settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_member_gives_what_it_gives_by_itself(data: st.DataObject) -> None:
    run(data, st.sampled_from((0, 1, 2, 10, 40)))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_also_in_blocks(data: st.DataObject) -> None:
    """As above, where few rows are already more than are looked at, or copied, together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_lookup, "BLOCK", 7)
        patch.setattr(filter_index, "BLOCK", 7)
        patch.setattr(filter_group, "_TOGETHER", 5)
        run(data, st.integers(0, 60))


SCHEMA: Schema = (Field("k", BIGINT), Field("v", DOUBLE), Field("g", STRING))
SCAN = StreamScan("s", SCHEMA, 0, "ticks")
K, V, G = (Column(i, f.type, f.name) for i, f in enumerate(SCHEMA))


def call(name: str, *args: Expr) -> Call:
    return Call(name, args, BOOLEAN)


def changes(count: int, seed: int = 1) -> Delta:
    random = np.random.default_rng(seed)
    k, v = random.integers(0, 50, count), random.random(count)
    v[random.random(count) < 0.01] = np.nan
    columns = (
        pa.array(k, mask=random.random(count) < 0.05),
        pa.array(v, mask=random.random(count) < 0.05),
        pa.array([f"g{i % 20}" for i in k.tolist()]),
    )
    ts = np.arange(count)
    return Delta(SCHEMA, columns, ts, ts + 1, np.where(ts % 7 == 0, -1, 1).astype(np.int8), ts, ts + 1)


@pytest.mark.parametrize("scale", [1, 1_000_003], ids=["near", "far"])
def test_many_members_with_constants_and_thresholds(scale: int) -> None:
    """Constants that lie near each other, and far apart; more rows than one block has."""
    delta = changes(3 * filter_lookup.BLOCK + 5)
    column = pa.compute.multiply(delta.columns[0], scale)
    delta = delta.with_columns(SCHEMA, (column, *delta.columns[1:]))
    both = Both(SCHEMA)
    for i in range(120):
        equal = call("=", K, Literal(i % 60 * scale, BIGINT))
        above = call(">", V, Literal(i / 120, DOUBLE))
        both.add(i, [Filter(SCAN, call("and", equal, above))])
    results = both.check(delta)
    assert sum(len(r) for r in results if isinstance(r, Delta)) > 10_000


def test_many_members_with_intervals_only() -> None:
    """More than have lists of their own for each segment."""
    both = Both(SCHEMA)
    for i in range(700):
        low, high = Literal(i / 700, DOUBLE), Literal((i + i % 9 * 50) / 700, DOUBLE)
        predicate = call(">=", V, low)
        if i % 3:
            predicate = call("and", predicate, call("<", V, high))
        both.add(i, [Filter(SCAN, predicate)])
    results = both.check(changes(1000))
    assert sum(len(r) for r in results if isinstance(r, Delta)) > 10_000


def test_the_ends_of_the_integers() -> None:
    both, names = Both(SCHEMA), (">", ">=", "<", "<=", "=")
    values = (-BIG - 1, -BIG, 0, 5, BIG - 1, BIG)
    for i, (name, value) in enumerate((n, v) for n in names for v in values):
        both.add(i, [Filter(SCAN, call(name, K, Literal(value, BIGINT)))])
    ts = np.arange(len(values))
    columns = (pa.array(values), pa.array(ts * 1.0), pa.array(["a"] * len(values)))
    results = both.check(Arrivals(SCHEMA, columns, ts, ts))
    assert [len(r) for r in results if isinstance(r, Arrivals)] == [
        *(5, 4, 3, 2, 1, 0), *(6, 5, 4, 3, 2, 1), *(0, 1, 2, 3, 4, 5), *(1, 2, 3, 4, 5, 6), *(1, 1, 1, 1, 1, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("equal", [False, True])
def test_several_limits_on_one_column(equal: bool) -> None:
    both = Both(SCHEMA)
    orders: list[list[tuple[str, float]]] = [
        [("<", 0.2), ("<", 0.8)], [("<", 0.8), ("<", 0.2)], [(">", 0.2), (">", 0.8)], [(">", 0.8), (">=", 0.2)],
        [(">", 0.2), ("<", 0.8), ("<=", 0.5)], [(">", 0.8), ("<", 0.2)], [("<", 0.2), (">", 0.8)],
    ]  # fmt: skip
    for i, limits in enumerate(orders):
        parts = [call("=", K, Literal(7, BIGINT))] if equal else []
        parts += [call(name, V, Literal(value, DOUBLE)) for name, value in limits]
        both.add(i, [Filter(SCAN, reduce(lambda a, b: call("and", a, b), parts))])
    results = both.check(changes(2000))
    assert [len(r) > 0 for r in results if isinstance(r, Delta)] == [True] * 5 + [False] * 2


def test_constants_are_texts_and_what_is_left_sees_only_their_rows() -> None:
    both = Both(SCHEMA)
    like = call("like", G, Literal("%1", STRING))
    for i in range(25):
        steps: list[Filter | Project] = [Filter(SCAN, call("and", call("=", G, Literal(f"g{i}", STRING)), like))]
        steps.append(Project(steps[0], (V, Call("*", (V, V), DOUBLE)), ("v", "w")))
        both.add(i, steps)
    results = both.check(changes(2000))
    assert [len(r) > 0 for r in results if isinstance(r, Delta)] == [i in (1, 11) for i in range(25)]


def test_a_member_that_raises_does_not_disturb_the_others() -> None:
    both = Both(SCHEMA)
    zero = Call("/", (V, Call("-", (V, V), DOUBLE)), DOUBLE)
    first = Filter(SCAN, call("=", K, Literal(1, BIGINT)))
    fails = Project(first, (zero,), ("z",))
    both.add(1, [first, fails], strict=True)
    both.add(2, [first])
    both.add(3, [first, fails])
    both.add(4, [Filter(SCAN, call("and", call("=", K, Literal(1, BIGINT)), call(">", zero, V)))], strict=True)
    both.add(5, [first, Project(first, (G,), ("g",))])
    for _ in range(2):
        results = both.check(changes(500))
        assert [isinstance(r, QueryFailed) for r in results] == [True, False, False, True, False]
        assert all(len(r) > 0 for r in results if isinstance(r, Delta))


def test_what_no_row_passes_shares_one_empty_result() -> None:
    both = Both(SCHEMA)
    both.add(1, [Filter(SCAN, call("=", K, Literal(1000, BIGINT)))])
    first, second = (both.check(changes(100, seed))[0] for seed in (1, 2))
    assert first is second


def test_parts_are_slices_of_one_copy() -> None:
    both = Both(SCHEMA)
    for i in range(3):
        both.add(i, [Filter(SCAN, call("=", K, Literal(i, BIGINT)))])
    results = [r for r in both.check(changes(1000)) if isinstance(r, Delta)]
    addresses = {r.columns[1].buffers()[1].address for r in results}
    assert len(addresses) == 1
    assert len({id(r.ts.base) for r in results}) == 1


def test_a_column_that_equals_a_constant_is_not_copied() -> None:
    """But one of floats is: zeros that are equal need not be the same."""
    schema: Schema = (Field("k", INT), Field("v", DOUBLE))
    scan = StreamScan("s", schema, 0, "ticks")
    both = Both(schema)
    equal = [call("=", Column(0, INT), Literal(1, BIGINT)), call("=", Column(1, DOUBLE), Literal(0.0, DOUBLE))]
    both.add(1, [Filter(scan, call("and", *equal))])
    ts = np.arange(3)
    batch = Arrivals(schema, (pa.array([1, 2, 1], pa.int32()), pa.array([0.0, 0.0, -0.0])), ts, ts)
    results = [r for _ in range(2) for r in both.check(batch) if isinstance(r, Arrivals)]
    assert [r.columns[1].to_pylist() for r in results] == [[0.0, -0.0]] * 2
    constant, copied = ({r.columns[i].buffers()[1].address for r in results} for i in range(2))
    assert (len(constant), len(copied)) == (1, 2)


def test_instants_that_stand_in_a_column_are_copied_once() -> None:
    ts = np.arange(10)
    schema: Schema = (Field("t", TIMESTAMP), Field("k", BIGINT))
    columns = (pa.array(ts).view(pa.timestamp("us")), pa.array(ts % 2))
    both = Both(schema)
    scan = StreamScan("s", schema, 0, "ticks")
    both.add(1, [Filter(scan, call("=", Column(1, BIGINT), Literal(1, BIGINT)))])
    instants = np.frombuffer(columns[0].buffers()[1], np.int64)
    (result,) = both.check(Arrivals(schema, columns, instants, ts))
    assert isinstance(result, Arrivals)
    assert result.columns[0].buffers()[1].address == result.ts.ctypes.data


def test_bounds_of_the_window_being_answered() -> None:
    both = Both(SCHEMA)
    first = Filter(SCAN, call("=", K, Literal(1, BIGINT)))
    both.add(1, [first, Project(first, (WindowBound("start", BIGINT), WindowBound("end", BIGINT)), ("s", "e"))])
    for window in ((3, 9), (9, 15)):
        (result,) = both.check(changes(300), Step((MAX_TS, 0), window=window))
        assert isinstance(result, Delta)
        assert set(zip(*[c.to_pylist() for c in result.columns], strict=True)) == {window}
