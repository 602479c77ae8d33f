"""The fast aggregate against ``aggregates.compute`` over the rows of each group, however the changes are cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate import _decimal_average, _quotient
from penstock.model.delta import BEGINNING, Delta, Instant, Step, arrival_sub, empty
from penstock.model.errors import QueryFailed
from penstock.model.schema import Field
from penstock.model.types import (
    BIGINT,
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
from penstock.operators.fast_aggregate import FastAggregate, supports
from penstock.plan.nodes import Aggregate, AggregateCall, StreamScan, Window
from penstock.plan.window import Range, Unbounded, WindowSpec
from penstock.reference.aggregates import compute
from penstock.scalar import Context, evaluate, hashable
from penstock.scalar.expr import Call, Column, Expr
from tests.budget import examples

Draw = Callable[[st.SearchStrategy[Any]], Any]
Values = tuple[object, ...]

MONEY, WIDE = decimal(10, 2), decimal(28, 3)
SCHEMA = tuple(
    Field(n, t)
    for n, t in (
        ("k", INT), ("x", STRING), ("d", DOUBLE), ("r", REAL), ("b", BIGINT), ("f", BOOLEAN), ("t", TIMESTAMP),
        ("c", DATE), ("i", INTERVAL), ("m", MONEY), ("w", WIDE),
    )
)  # fmt: skip
K, X, D, R, B, F, T, C, V, M, W = (Column(i, f.type) for i, f in enumerate(SCHEMA))
_SMALL = st.sampled_from([1, 2, 3, -1, None])
_DOUBLES = st.sampled_from([1.5, 0.1, 0.2, 0.0, -0.0, 1e16, -1e16, math.nan, math.inf, -math.inf, None])
_VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    INT: _SMALL,
    STRING: st.sampled_from(["a", "b", "ä", None]),
    DOUBLE: _DOUBLES,
    REAL: st.sampled_from([1.5, 0.25, -0.0, math.nan, math.inf, None]),
    BIGINT: st.sampled_from([1, 5, -7, 2**63 - 1, 2**62 + 1, -(2**63), None]),
    BOOLEAN: st.sampled_from([True, False, None]),
    TIMESTAMP: _SMALL,
    DATE: _SMALL,
    INTERVAL: st.sampled_from([1, 10, 2**62, None]),
    MONEY: st.sampled_from([*map(Decimal, ("0.00", "0.01", "-0.05", "12.30", "99999999.99", "-99999999.99")), None]),
    WIDE: st.sampled_from(
        [*map(Decimal, ("0.000", "0.001", "-0.001", f"{'9' * 25}.999", f"-{'9' * 25}.999", "18446744073709551.616"))]
    ) | st.none(),
}
KEYS: list[tuple[Expr, ...]] = [(), (K,), (X,), (D,), (K, X), (F, D, X), (Call("%", (B, K), BIGINT),)]


def _calls(*, ordered: bool) -> list[AggregateCall]:
    calls = [AggregateCall("count", (), BIGINT), AggregateCall("count", (), BIGINT, where=F)]
    calls += [AggregateCall("count", (e,), BIGINT) for e in (X, D)]
    sums = ((D, DOUBLE), (R, DOUBLE), (B, BIGINT), (K, BIGINT), (V, INTERVAL))
    calls += [AggregateCall("sum", (e,), t) for e, t in sums]
    calls += [AggregateCall("avg", (e,), DOUBLE) for e in (D, R, B, K)]
    calls += [AggregateCall("sum", (M,), decimal(20, 2)), AggregateCall("sum", (W,), decimal(38, 3), where=F)]
    calls += [AggregateCall("avg", (M,), decimal(14, 6), where=F), AggregateCall("avg", (W,), decimal(32, 7))]
    calls += [AggregateCall("sum", (D,), DOUBLE, where=F), AggregateCall("sum", (Call("+", (B, B), BIGINT),), BIGINT)]
    if ordered:
        calls += [AggregateCall(f, (e,), e.type, where=w) for f in ("min", "max") for e in (K, D, R, B, F, T, C, V, M)
                  for w in (None, F)]  # fmt: skip
        calls += [AggregateCall("max", (D,), DOUBLE, distinct=True)]
    return calls


def node(keys: tuple[Expr, ...], calls: Sequence[AggregateCall], spec: WindowSpec | None = None) -> Aggregate:
    names = tuple(f"c{i}" for i in range(len(keys) + len(calls)))
    return Aggregate(Window(StreamScan("s", SCHEMA, 0, "ticks"), spec or Range(5)), keys, tuple(calls), names)


@dataclass(eq=False)
class Member:
    values: Values
    moment: Instant
    priority: int


def key(values: Sequence[object]) -> object:
    """Equal for equal rows, and printed alike: there is one zero."""
    return hashable(tuple(v + 0.0 if isinstance(v, float) else v for v in values))


Event = tuple[Instant, int, Member]


@st.composite
def events(draw: Draw, order: str) -> list[Event]:
    """Changes by instant. ``order``: rows leave as they entered ("fifo"), anyhow ("any") or not at all ("never")."""
    result: list[Event] = []
    inside: list[Member] = []
    for number in range(draw(st.integers(0, 14))):
        at = (number // 3, int(arrival_sub(0, number)) if draw(st.integers(0, 3)) else 0)
        if result and at <= result[-1][0]:
            at = (number // 3, int(arrival_sub(0, number)))
        gone = 0 if order == "never" else draw(st.integers(0, min(len(inside), 3)))
        for _ in range(gone):
            which = 0 if order == "fifo" else draw(st.integers(0, len(inside) - 1))
            result.append((at, -1, inside.pop(which)))
        for extra in range(draw(st.sampled_from([1, 1, 1, 0, 2]))):
            values = tuple(draw(_VALUES[f.type]) for f in SCHEMA)
            inside.append(Member(values, (at[0], int(arrival_sub(1, 10 * number + extra))), draw(st.integers(0, 3))))
            result.append((at, 1, inside[-1]))
    while order != "never" and inside and draw(st.booleans()):
        result.append(((100 - len(inside), 0), -1, inside.pop(0)))
    return result


def delta(some: Sequence[Event], priority: bool) -> Delta:
    if not some:
        return empty(SCHEMA)
    columns = tuple(to_arrow([e[2].values[i] for e in some], f.type) for i, f in enumerate(SCHEMA))

    def line(values: Sequence[int]) -> Any:
        return np.array(values, np.int64)

    return Delta(
        SCHEMA, columns, line([e[0][0] for e in some]), line([e[0][1] for e in some]),
        np.array([e[1] for e in some], np.int8), line([e[2].moment[0] for e in some]),
        line([e[2].moment[1] for e in some]), line([e[2].priority for e in some]) if priority else None,
    )  # fmt: skip


Change = tuple[Instant, int, Any]


def expected(aggregate: Aggregate, some: Sequence[Event]) -> list[Change]:
    """The groups from scratch at every instant, compared with the instant before."""
    members: list[Member] = []
    changes: list[Change] = []
    context = Context()

    def snapshot() -> dict[object, Values]:
        groups: dict[object, tuple[Values, list[Member]]] = {}
        if not aggregate.keys:
            groups[()] = ((), [])
        for m in members:
            keys = tuple(evaluate(k, m.values, context) for k in aggregate.keys)
            groups.setdefault(hashable(keys), (keys, []))[1].append(m)
        found: dict[object, Values] = {}
        for keys, rows in groups.values():
            values = list(keys)
            for call in aggregate.aggregates:
                chosen = [m for m in rows if call.where is None or evaluate(call.where, m.values, context) is True]
                args = [(m.moment, tuple(evaluate(a, m.values, context) for a in call.args)) for m in chosen]
                values.append(compute(call, args, context))
            found[key(values)] = tuple(values)
        return found

    before: dict[object, Values] = {}
    instants = sorted({e[0] for e in some} | (set() if aggregate.keys else {BEGINNING}))
    for at in instants:
        for _, sign, member in (e for e in some if e[0] == at):
            members.append(member) if sign > 0 else members.remove(member)
        now = snapshot()
        changes += [(at, -1, row) for row in before if row not in now]
        changes += [(at, 1, row) for row in now if row not in before]
        before = now
    return changes


def listed(out: Delta) -> list[Change]:
    columns = [to_python(c, f.type) for c, f in zip(out.columns, out.schema, strict=True)]
    return [
        ((int(out.ts[i]), int(out.sub[i])), int(out.sign[i]), key([c[i] for c in columns]))
        for i in range(len(out))
    ]


def run(operator: FastAggregate, some: Sequence[Event], cuts: Sequence[int], priority: bool = False) -> list[Delta]:
    """Output for the changes cut at these places, moved to the next instant."""
    inside = {c for c in cuts if 0 < c < len(some) and some[c][0] != some[c - 1][0]}
    bounds = [0, *sorted(inside), len(some)]
    outs = []
    for a, b in pairwise(bounds):
        frontier = some[b][0] if b < len(some) else (1000, 0)
        outs.append(operator.process([delta(some[a:b], priority)], Step(frontier)))
    return outs


def flat(outs: Sequence[Delta]) -> list[Change]:
    return [change for out in outs for change in listed(out)]


@pytest.mark.parametrize("order", ["fifo", "any", "never"])
@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: " ".join(str(k.type) for k in keys) or "none")
@settings(deadline=None, max_examples=examples(40))
@given(data=st.data())
def test_same_as_compute_however_cut(order: str, keys: tuple[Expr, ...], data: st.DataObject) -> None:
    some = data.draw(events(order))
    calls = data.draw(st.lists(st.sampled_from(_calls(ordered=order != "any")), min_size=1, max_size=5))
    aggregate = node(keys, calls, Unbounded() if order == "never" else None)
    assert supports(aggregate, fifo=order == "fifo")
    truth = expected(aggregate, some)
    for cuts in (data.draw(st.lists(st.integers(0, len(some)), max_size=4)), [], range(len(some))):
        outs = run(FastAggregate(aggregate, {}, Context(), fifo=order == "fifo"), some, cuts)
        changes = flat(outs)
        assert [c[:2] for c in changes] == sorted(c[:2] for c in changes)
        assert sorted(changes, key=repr) == sorted(truth, key=repr)
        quiet = FastAggregate(aggregate, {}, Context(), fifo=order == "fifo", emit_leaving=False)
        assert sorted(flat(run(quiet, some, cuts)), key=repr) == sorted((c for c in truth if c[1] > 0), key=repr)


@settings(deadline=None, max_examples=examples(40))
@given(some=events("fifo"))
def test_moment_and_priority_are_the_greatest_of_the_rows(some: list[Event]) -> None:
    aggregate = node((K,), [AggregateCall("count", (), BIGINT)])
    for out in run(FastAggregate(aggregate, {}, Context(), fifo=True), some, [], priority=True):
        assert out.priority is not None or not len(out)
        inside: dict[Instant, list[Member]] = {}
        members: list[Member] = []
        for at, sign, member in some:
            members.append(member) if sign > 0 else members.remove(member)
            inside[at] = list(members)
        keys = to_python(out.columns[0], INT)
        for i in range(len(out)):
            if out.sign[i] > 0 and out.priority is not None:
                rows = [m for m in inside[(int(out.ts[i]), int(out.sub[i]))] if m.values[0] == keys[i]]
                assert (int(out.moment_ts[i]), int(out.moment_sub[i])) == max(m.moment for m in rows)
                assert int(out.priority[i]) == max(m.priority for m in rows)


def test_first_row_without_keys_is_there_from_the_beginning() -> None:
    operator = FastAggregate(node((), [AggregateCall("sum", (D,), DOUBLE)]), {}, Context(), fifo=True)
    assert listed(operator.process([empty(SCHEMA)], Step((5, 0)))) == [(BEGINNING, 1, (None,))]
    assert len(operator.process([empty(SCHEMA)], Step((6, 0)))) == 0


def test_overflow_is_null_and_counted_and_comes_back() -> None:
    context = Context()
    operator = FastAggregate(node((), [AggregateCall("sum", (B,), BIGINT)]), {}, context, fifo=True)
    rows = [Member((1, "a", 1.0, 1.0, b, True, 1, 1, 1, None, None), (i, 1), 0) for i, b in enumerate([2**63 - 1, 5])]
    some = [((1, 1), 1, rows[0]), ((2, 1), 1, rows[1]), ((3, 0), -1, rows[0])]
    values = [c[2][0] for c in flat(run(operator, some, [])) if c[1] > 0]
    assert values == [None, 2**63 - 1, None, 5]
    assert context.failures == 1
    strict = FastAggregate(node((), [AggregateCall("sum", (B,), BIGINT)]), {}, Context(strict=True), fifo=True)
    with pytest.raises(QueryFailed):
        run(strict, some, [])


@pytest.mark.parametrize(
    ("call", "fifo"),
    [
        (AggregateCall("min", (D,), DOUBLE), False),
        (AggregateCall("min", (X,), STRING), True),
        (AggregateCall("sum", (D,), DOUBLE, distinct=True), True),
        (AggregateCall("stddev", (D,), DOUBLE), True),
        (AggregateCall("avg", (V,), INTERVAL), True),
        (AggregateCall("last", (D,), DOUBLE), True),
        (AggregateCall("min", (W,), WIDE), True),
        (AggregateCall("sum", (Column(0, decimal(29, 0)),), decimal(38, 0)), True),
    ],
)
def test_what_is_left_to_the_general_operator(call: AggregateCall, fifo: bool) -> None:
    assert not supports(node((K,), [call]), fifo=fifo)


@settings(deadline=None)
@given(st.integers(-(2**100), 2**100) | st.integers(-(2**56), 2**56), st.integers(1, 2**40) | st.integers(1, 9))
def test_average_of_integers_is_rounded_once(total: int, n: int) -> None:
    unsigned = total & (2**64 - 1)
    low = unsigned - 2**64 if unsigned >= 2**63 else unsigned
    assert _quotient(total >> 64, low, n) == float(Fraction(total, n))


@settings(deadline=None)
@given(st.integers(-(10**38), 10**38) | st.integers(-(2**56), 2**56), st.integers(1, 2**40) | st.integers(1, 9))
def test_average_of_decimals_is_rounded_half_away_from_zero(total: int, n: int) -> None:
    total //= 10_000  # the average has four more digits
    unsigned = total & (2**64 - 1)
    low, high = _decimal_average(total >> 64, unsigned - 2**64 if unsigned >= 2**63 else unsigned, n)
    sign, size = (-1 if total < 0 else 1), abs(total) * 10_000
    assert (high << 64) + (low & (2**64 - 1)) == sign * ((2 * size + n) // (2 * n))


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from([1.0, 1e-8, 1e12]))
def test_sliding_sums_of_doubles_are_exactly_rounded(seed: int, size: int, scale: float) -> None:
    numbers = np.random.default_rng(seed).normal(size=200) * scale
    aggregate = Aggregate(
        Window(StreamScan("s", (Field("d", DOUBLE),), 0, "ticks"), Range(5)), (),
        (AggregateCall("sum", (Column(0, DOUBLE),), DOUBLE),), ("s",),
    )  # fmt: skip
    operator = FastAggregate(aggregate, {}, Context(), fifo=True, emit_leaving=False)
    n = len(numbers)
    places = np.concatenate([np.arange(n), np.arange(n - size if n > size else 0)])
    at = np.concatenate([np.arange(n) * 2 + 1, np.arange(n - size if n > size else 0) * 2 + 2 * size])
    order = np.argsort(at, kind="stable")
    sign = np.concatenate([np.ones(n, np.int8), np.full(len(at) - n, -1, np.int8)])[order]
    zeros = np.zeros(len(at), np.int64)
    changes = Delta(
        aggregate.input.schema, (pa.array(numbers[places[order]]),), at[order], zeros, sign, at[order], zeros
    )
    out = operator.process([changes], Step((10**6, 0)))
    found = dict(zip(out.ts.tolist(), out.columns[0].to_pylist(), strict=True))
    for i in range(n):
        assert found[2 * i + 1] == math.fsum(numbers[max(0, i - size + 1) : i + 1])


def _pushed(operator: FastAggregate, keys: Any, sign: int, first: int) -> None:
    n = len(keys)
    columns = (keys, pa.array(np.arange(first, first + n, dtype=np.float64)))
    schema = (Field("k", BIGINT), Field("v", DOUBLE))
    ts, sub = np.full(n, first), np.arange(n) + 1
    operator.process([Delta(schema, columns, ts, sub, np.full(n, sign, np.int8), ts, sub)], Step((first + 1, 0)))


@pytest.mark.parametrize("text", [False, True])
def test_groups_are_forgotten(text: bool) -> None:
    """Ever new keys, a thousand at a time: what is kept does not grow, and queues do not either."""
    k, v = Column(0, STRING if text else BIGINT), Column(1, DOUBLE)
    scan = StreamScan("s", (Field("k", k.type), Field("v", DOUBLE)), 0, "ticks")
    calls = (AggregateCall("min", (v,), DOUBLE), AggregateCall("sum", (v,), DOUBLE))
    keys_of: tuple[Expr, ...] = (k,) if text else (k, Call("+", (k, k), BIGINT))
    aggregate = Aggregate(Window(scan, Range(5)), keys_of, calls, ("k", "l", "a", "b")[-2 - len(keys_of) :])
    operator = FastAggregate(aggregate, {}, Context(), fifo=True)
    sizes = []
    for turn in range(30):
        keys = pa.array(np.arange(turn * 1000, turn * 1000 + 1000))
        keys = keys.cast(pa.string()) if text else keys
        _pushed(operator, keys, 1, 2 * turn)
        assert operator.size().rows == 1000
        sizes.append(operator.size().bytes)
        _pushed(operator, keys, -1, 2 * turn + 1)
        assert operator.size().rows == 0
    assert sizes[-1] <= 1.1 * sizes[2]


def test_queues_over_many_rows_at_once() -> None:
    """More rows than are looked at together, in order, so that every value waits in the queue."""
    n, size = 200_000, 50_000
    values = np.arange(n, dtype=np.float64)
    at = np.concatenate([np.arange(n) * 2 + 1, np.arange(n - size) * 2 + 2 * size])
    order = np.argsort(at, kind="stable")
    number = np.concatenate([np.arange(n), np.arange(n - size)])[order]
    sign = np.concatenate([np.ones(n, np.int8), np.full(n - size, -1, np.int8)])[order]
    schema = (Field("k", BIGINT), Field("v", DOUBLE))
    calls = tuple(AggregateCall(f, (Column(1, DOUBLE),), DOUBLE) for f in ("min", "max"))
    aggregate = Aggregate(Window(StreamScan("s", schema, 0, "ticks"), Range(5)), (), calls, ("a", "b"))
    operator = FastAggregate(aggregate, {}, Context(), fifo=True, emit_leaving=False)
    zeros = np.zeros(len(at), np.int64)
    columns = (pa.array(number), pa.array(values[number]))
    out = operator.process([Delta(schema, columns, at[order], zeros, sign, at[order], zeros)], Step((10**7, 0)))
    least = dict(zip(out.ts.tolist(), out.columns[0].to_pylist(), strict=True))
    greatest = dict(zip(out.ts.tolist(), out.columns[1].to_pylist(), strict=True))
    assert all(least[2 * i + 1] == max(0, i - size + 1) and greatest[2 * i + 1] == i for i in range(n))
    assert operator.size().bytes < 24 * 4 * n
