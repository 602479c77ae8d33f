"""The window join against the reference, against pairs counted one by one, and for what it remembers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.delta import MAX_TS, NEVER, Delta, Step, arrival_sub, concat
from penstock.model.schema import Field, Schema
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, array, decimal
from penstock.model.values import to_arrow, to_python
from penstock.operators import fast_join
from penstock.operators.fast_join import FastJoin, supports
from penstock.operators.state import Loaded
from penstock.plan.nodes import Join, JoinKind, Node, Query, StreamScan, Window
from penstock.plan.window import Now, Range, Rows, Unbounded, WindowSpec
from penstock.reference.evaluator import Element, evaluate
from penstock.scalar import Context, hashable
from penstock.scalar.expr import Call, Column, Expr, Literal, UserCall
from tests.budget import examples

LEFT: Schema = (
    Field("k", INT), Field("s", STRING), Field("d", DOUBLE), Field("b", BOOLEAN), Field("m", decimal(20, 2)),
)  # fmt: skip
RIGHT: Schema = (Field("k", INT), Field("s", STRING), Field("d", DOUBLE), Field("n", BIGINT))

VALUES: dict[object, st.SearchStrategy[object]] = {
    INT: st.sampled_from([1, 2, 3, None]),
    BIGINT: st.sampled_from([0, 1, 2, 2**62, None]),
    STRING: st.sampled_from(["", "a", "bb", "ünïcode", None]),
    DOUBLE: st.sampled_from([0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, None]),
    BOOLEAN: st.sampled_from([True, False, None]),
    decimal(20, 2): st.sampled_from([Decimal("1.50"), Decimal("-3.00"), None]),
}


def elements(schema: Schema) -> st.SearchStrategy[list[Element]]:
    row = st.tuples(st.integers(0, 3), *(VALUES[f.type] for f in schema))

    def to_elements(rows: list[tuple[int, *tuple[object, ...]]]) -> list[Element]:
        at, made = 0, []
        for arrival, (gap, *values) in enumerate(rows):
            at += gap
            made.append(Element(at, tuple(values), arrival, arrival % 3))
        return made

    return st.lists(row, max_size=25).map(to_elements)


SPECS = st.sampled_from([Now(), Unbounded(), Range(1), Range(4), Range(9), Range(6, 3), Range(2, 5)])
FIFO_SPECS = st.one_of(SPECS, st.sampled_from([Rows(1), Rows(3), Rows(8)]))


@dataclass
class Row:
    """A row of a window: when it enters, when it leaves, and what it is."""

    enters: tuple[int, int]
    leaves: tuple[int, int]
    moment: tuple[int, int]
    values: tuple[object, ...]
    priority: int


def contents(stream: Sequence[Element], spec: WindowSpec, rank: int) -> list[Row]:
    rows = []
    for i, e in enumerate(stream):
        moment = (e.ts, int(arrival_sub(rank, i)))
        enters, leaves = moment, (MAX_TS, 0)
        match spec:
            case Now():
                leaves = (e.ts + 1, 0)
            case Range(size, None):
                leaves = (e.ts + size, 0)
            case Range(size, int(slide)):
                enters, leaves = ((e.ts // slide + 1) * slide, 0), (((e.ts + size) // slide + 1) * slide, 0)
            case Rows(size) if i + size < len(stream):
                leaves = (stream[i + size].ts, int(arrival_sub(rank, i + size)))
        if enters < leaves:
            rows.append(Row(enters, leaves, moment, e.row, e.priority))
    return rows


def make(schema: Schema, rows: Sequence[tuple[tuple[int, int], int, Row]], *, ends: bool) -> Delta:
    rows = sorted(rows, key=lambda r: (r[0], r[1]))

    def numbers(read: Callable[[tuple[tuple[int, int], int, Row]], int]) -> npt.NDArray[np.int64]:
        return np.array([read(r) for r in rows], np.int64)

    return Delta(
        schema,
        tuple(to_arrow([r.values[i] for _, _, r in rows], f.type) for i, f in enumerate(schema)),
        numbers(lambda r: r[0][0]),
        numbers(lambda r: r[0][1]),
        numbers(lambda r: r[1]).astype(np.int8),
        numbers(lambda r: r[2].moment[0]),
        numbers(lambda r: r[2].moment[1]),
        numbers(lambda r: r[2].priority) if any(r.priority for _, _, r in rows) else None,
        numbers(lambda r: r[2].leaves[0]) if ends else None,
    )


def changes(schema: Schema, rows: Sequence[Row], *, ends: bool) -> Delta:
    found = [(r.enters, 1, r) for r in rows]
    if not ends:
        found += [(r.leaves, -1, r) for r in rows if r.leaves[0] < MAX_TS]
    return make(schema, found, ends=ends)


def pieces(delta: Delta, cuts: Sequence[tuple[int, int]]) -> list[Delta]:
    """The delta cut before each instant; one part more than there are cuts."""
    at = [sum(1 for x in zip(delta.ts, delta.sub, strict=True) if x < cut) for cut in cuts]
    return [delta.slice(a, b) for a, b in zip([0, *at], [*at, len(delta)], strict=True)]


def feed(join: FastJoin, left: Delta, right: Delta, cuts: Sequence[tuple[int, int]]) -> list[Delta]:
    frontiers = [*cuts, NEVER]
    parts = zip(pieces(left, cuts), pieces(right, cuts), frontiers, strict=True)
    return [join.process([a, b], Step(frontier)) for a, b, frontier in parts]


def all_cuts(*deltas: Delta) -> list[tuple[int, int]]:
    return sorted({(int(t), int(s)) for d in deltas for t, s in zip(d.ts, d.sub, strict=True)})


def check_laws(delta: Delta) -> None:
    keys = list(zip(delta.ts.tolist(), delta.sub.tolist(), delta.sign.tolist(), strict=True))
    assert keys == sorted(keys)
    assert len(delta.columns) == len(delta.schema)
    for column, field in zip(delta.columns, delta.schema, strict=True):
        assert column.type == field.type.arrow
        column.validate(full=True)


def rows_of(deltas: Sequence[Delta]) -> Counter[tuple[Any, ...]]:
    """Everything that a change says, counted."""
    found: Counter[tuple[Any, ...]] = Counter()
    for d in deltas:
        check_laws(d)
        values = zip(*(to_python(c, f.type) for c, f in zip(d.columns, d.schema, strict=True)), strict=True)
        numbers: list[npt.NDArray[Any]] = [d.ts, d.sub, d.sign, d.moment_ts, d.moment_sub]
        numbers.append(np.zeros(len(d), np.int64) if d.priority is None else d.priority)
        numbers.append(np.zeros(len(d), np.int64) if d.end is None else d.end)
        for row, *rest in zip(values, *(n.tolist() for n in numbers), strict=True):
            found[(hashable(row), *rest)] += 1
    return found


def answers(deltas: Sequence[Delta]) -> Counter[tuple[Any, ...]]:
    """What the reference says of them too."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in rows_of(deltas).items():
        found[(row[1], row[3], row[0])] += count
    return found


def expected(node: Node, streams: dict[str, list[Element]], output: str) -> Counter[tuple[Any, ...]]:
    query = Query(node, output, clock="ticks")  # type: ignore[arg-type]
    return Counter((a.ts, 1 if a.op == "+" else -1, hashable(a.row)) for a in evaluate(query, streams))


def c(index: int) -> Column:
    return Column(index, (LEFT + RIGHT)[index].type)


def compare(function: str, a: Expr, b: Expr) -> Call:
    return Call(function, (a, b), BOOLEAN)


K, S, D, N, L = (Column(0, INT), Column(0, INT)), (Column(1, STRING), Column(1, STRING)), None, c(8), len(LEFT)
DOUBLES = (Column(2, DOUBLE), Column(2, DOUBLE))
ODD = (Call("+", (Column(0, INT), Literal(1, INT)), INT), Column(0, INT))
CONDITIONS: list[tuple[tuple[tuple[Expr, Expr], ...], Expr | None]] = [
    ((K,), None),
    ((S,), None),
    ((DOUBLES,), None),
    ((K, S), None),
    ((ODD,), None),
    ((K,), compare("<", c(2), c(L + 2))),
    ((S,), compare("and", compare("<=", c(0), c(L)), Call("is_null", (c(3),), BOOLEAN))),
    ((), None),
    ((), compare("=", c(1), c(L + 1))),
    ((), compare("<", c(2), c(L + 2))),
    ((), compare("<=", c(L + 2), c(2))),
    ((), compare(">", c(0), c(L))),
    ((), compare(">=", c(L), c(0))),
    ((), compare("and", compare("<>", c(1), c(L + 1)), compare(">=", c(2), c(L + 2)))),
]


def join_of(condition: int, left: WindowSpec, right: WindowSpec) -> Join:
    keys, residual = CONDITIONS[condition]
    r = Window(StreamScan("r", LEFT, 0, "ticks"), left)
    s = Window(StreamScan("s", RIGHT, 1, "ticks"), right)
    return Join("inner", r, s, keys, residual)


conditions = st.integers(0, len(CONDITIONS) - 1)


@settings(deadline=None, max_examples=examples(200))
@given(conditions, FIFO_SPECS, FIFO_SPECS, elements(LEFT), elements(RIGHT), st.data())
def test_changes_as_in_the_reference(
    condition: int, left: WindowSpec, right: WindowSpec, r: list[Element], s: list[Element], data: st.DataObject
) -> None:
    node = join_of(condition, left, right)
    a = changes(LEFT, contents(r, left, 0), ends=False)
    b = changes(RIGHT, contents(s, right, 1), ends=False)
    join = FastJoin(node, {}, Context(), emit_leaving=True, ends=False)
    whole = feed(join, a, b, [])
    truth = expected(node, {"r": r, "s": s}, "changes")
    assert answers(whole) == truth

    cuts = sorted(set(data.draw(st.lists(st.sampled_from(all_cuts(a, b)), max_size=6)))) if len(a) + len(b) else []
    for these in (cuts, all_cuts(a, b)):
        split = FastJoin(node, {}, Context(), emit_leaving=True, ends=False)
        assert rows_of(feed(split, a, b, these)) == rows_of(whole)
        stays = sum(1 for x in contents(r, left, 0) + contents(s, right, 1) if x.leaves[0] == MAX_TS)
        assert split.size().rows == stays

    silent = FastJoin(node, {}, Context(), emit_leaving=False, ends=False)
    assert rows_of(feed(silent, a, b, cuts)) == Counter({k: v for k, v in rows_of(whole).items() if k[3] > 0})


@settings(deadline=None, max_examples=examples(200))
@given(conditions, SPECS, SPECS, elements(LEFT), elements(RIGHT), st.data())
def test_ends_as_in_the_reference(
    condition: int, left: WindowSpec, right: WindowSpec, r: list[Element], s: list[Element], data: st.DataObject
) -> None:
    node = join_of(condition, left, right)
    a = changes(LEFT, contents(r, left, 0), ends=True)
    b = changes(RIGHT, contents(s, right, 1), ends=True)
    whole = feed(FastJoin(node, {}, Context(), emit_leaving=False, ends=True), a, b, [])
    assert answers(whole) == expected(node, {"r": r, "s": s}, "istream")
    cuts = sorted(set(data.draw(st.lists(st.sampled_from(all_cuts(a, b)), max_size=6)))) if len(a) + len(b) else []
    for these in (cuts, all_cuts(a, b)):
        split = FastJoin(node, {}, Context(), emit_leaving=False, ends=True)
        assert rows_of(feed(split, a, b, these)) == rows_of(whole)
        assert split.size().rows == 0


@st.composite
def lasting(draw: st.DrawFn, schema: Schema, rank: int) -> list[Row]:
    """Rows whose ends are in any order, as those of another join."""
    rows = []
    for i, e in enumerate(draw(elements(schema))):
        moment = (e.ts, int(arrival_sub(rank, i)))
        end = draw(st.sampled_from([e.ts + 1, e.ts + 2, e.ts + 5, e.ts + 12, MAX_TS]))
        rows.append(Row(moment, (end, 0), moment, e.row, e.priority))
    return rows


@settings(deadline=None, max_examples=examples(200))
@given(conditions, lasting(LEFT, 0), lasting(RIGHT, 1), st.booleans(), st.sampled_from([3, 8_192]))
def test_ends_in_any_order(condition: int, left: list[Row], right: list[Row], single: bool, piece: int) -> None:
    node = join_of(condition, Unbounded(), Unbounded())
    truth: Counter[tuple[Any, ...]] = Counter()
    context = Context()
    for a in left:
        for b in right:
            at = max(a.enters, b.enters)
            if min(a.leaves, b.leaves) > at and _matches(node, a.values, b.values, context):
                end = min(a.leaves, b.leaves)[0]
                row = hashable(a.values + b.values)
                truth[(row, *at, 1, *max(a.moment, b.moment), max(a.priority, b.priority), end)] += 1
    x, y = changes(LEFT, left, ends=True), changes(RIGHT, right, ends=True)
    join = FastJoin(node, {}, Context(), emit_leaving=False, ends=True)
    before, fast_join._PIECE = fast_join._PIECE, piece
    try:
        assert rows_of(feed(join, x, y, all_cuts(x, y) if single else [])) == truth
    finally:
        fast_join._PIECE = before
    assert join.size().rows == 0
    if join._keys is not None:
        assert join._keys._interner.live == 0


def _matches(node: Join, left: tuple[object, ...], right: tuple[object, ...], context: Context) -> bool:
    from penstock.scalar import evaluate as value

    keys = [compare("=", a, _on_right(b)) for a, b in node.keys]
    parts = keys if node.residual is None else [*keys, node.residual]
    return all(value(p, left + right, context) is True for p in parts)


def _on_right(expr: Expr) -> Expr:
    from penstock.scalar.expr import remap

    return remap(expr, lambda i: i + L)


@settings(deadline=None, max_examples=examples(60))
@given(elements(LEFT), elements(RIGHT), elements(RIGHT))
def test_a_join_of_joins(r: list[Element], s: list[Element], t: list[Element]) -> None:
    inner = join_of(0, Range(5), Range(9))
    scan = StreamScan("t", RIGHT, 2, "ticks")
    outer = Join("inner", inner, Window(scan, Range(4)), ((Column(L, INT), Column(0, INT)),))
    lower = FastJoin(inner, {}, Context(), emit_leaving=False, ends=True)
    upper = FastJoin(outer, {}, Context(), emit_leaving=False, ends=True)
    a = changes(LEFT, contents(r, Range(5), 0), ends=True)
    b = changes(RIGHT, contents(s, Range(9), 1), ends=True)
    d = changes(RIGHT, contents(t, Range(4), 2), ends=True)
    cuts = all_cuts(a, b, d)
    middle = feed(lower, a, b, cuts)
    found = [upper.process([m, p], Step(f)) for m, p, f in zip(middle, pieces(d, cuts), [*cuts, NEVER], strict=True)]
    assert answers(found) == expected(outer, {"r": r, "s": s, "t": t}, "istream")
    assert upper.size().rows == 0


@settings(deadline=None, max_examples=examples(60))
@given(elements(RIGHT), FIFO_SPECS, FIFO_SPECS)
def test_a_stream_joined_with_itself(s: list[Element], one: WindowSpec, other: WindowSpec) -> None:
    scan = StreamScan("s", RIGHT, 0, "ticks")
    node = Join("inner", Window(scan, one), Window(scan, other), ((Column(0, INT), Column(0, INT)),))
    join = FastJoin(node, {}, Context(), emit_leaving=True, ends=False)
    a, b = (changes(RIGHT, contents(s, spec, 0), ends=False) for spec in (one, other))
    assert answers(feed(join, a, b, [])) == expected(node, {"s": s}, "changes")


def test_failures_count_when_a_pair_is_made() -> None:
    divides = Call("/", (Literal(1, BIGINT), N), DOUBLE)
    node = replace(join_of(0, Rows(1), Unbounded()), residual=compare(">", divides, Literal(0.0, DOUBLE)))
    r = [Element(t, (1, "a", 1.0, True, None), t) for t in range(3)]
    s = [Element(0, (1, "a", 1.0, 0), 0), Element(0, (1, "a", 1.0, 2), 1)]
    errors = Context()
    join = FastJoin(node, {}, errors, emit_leaving=True, ends=False)
    a = changes(LEFT, contents(r, Rows(1), 0), ends=False)
    b = changes(RIGHT, contents(s, Unbounded(), 1), ends=False)
    found = feed(join, a, b, [])
    assert answers(found) == expected(node, {"r": r, "s": s}, "changes")
    assert errors.failures == 3


def test_what_is_supported() -> None:
    node = join_of(0, Range(5), Range(5))
    assert supports(node, True, True)
    assert not supports(node, True, False)
    assert supports(node, False, False, ends=True)
    kinds: list[JoinKind] = ["left", "right", "full"]
    assert not any(supports(replace(node, kind=kind), True, True) for kind in kinds)
    call = UserCall("f", (c(0),), BOOLEAN)
    assert not supports(replace(node, residual=call), True, True)
    arrays = Window(StreamScan("s", (Field("k", INT), Field("a", array(INT))), 1, "ticks"), Range(5))
    assert not supports(replace(node, right=arrays), True, True)


def many(n: int, schema: Schema, rank: int, keys: int, size: int, seed: int = 0) -> Delta:
    """n rows, one per tick, in a window of ``size`` ticks."""
    random = np.random.default_rng(seed + rank)
    ts = np.arange(n, dtype=np.int64)
    sub = arrival_sub(rank, ts)
    columns = []
    for field in schema:
        if field.type == STRING:
            columns.append(pa.array([f"text {i}" for i in random.integers(0, keys, n)]))
        else:
            columns.append(pa.array(random.integers(0, keys, n), field.type.arrow))
    return Delta(schema, tuple(columns), ts, sub, np.ones(n, np.int8), ts, sub, None, ts + size)


WIDE: Schema = (Field("k", BIGINT), Field("x", BIGINT), Field("y", DOUBLE), Field("z", STRING))


@pytest.mark.parametrize("residual", [None, compare("<", Column(0, BIGINT), Column(4, BIGINT))])
def test_memory_is_a_small_multiple_of_the_columns(residual: Expr | None) -> None:
    r = Window(StreamScan("r", WIDE, 0, "ticks"), Range(20_000))
    s = Window(StreamScan("s", WIDE, 1, "ticks"), Range(20_000))
    key = (Column(0, BIGINT), Column(0, BIGINT))
    never = compare("<", Literal(1, INT), Literal(0, INT))
    node = Join("inner", r, s, (key,))
    if residual is not None:
        node = Join("inner", r, s, (), compare("and", residual, never))
    n = 30_000 if residual is None else 3_000
    join = FastJoin(node, {}, Context(), emit_leaving=False, ends=True)
    a, b = many(n, WIDE, 0, 5_000, 20_000), many(n, WIDE, 1, 5_000, 20_000)
    for i in range(0, n, 500):
        join.process([a.slice(i, i + 500), b.slice(i, i + 500)], Step((i + 500, 0)))
    alive = min(n, 20_000)
    assert abs(join.size().rows - 2 * alive) <= 2
    # Besides the payload, a row's moment (ts, sub) is part of what comes out.
    kept = sum(c.slice(n - alive).nbytes for d in (a, b) for c in d.columns) + 2 * 16 * alive
    assert join.size().bytes <= 2.5 * kept
    join.process([a.slice(n, n), b.slice(n, n)], Step(NEVER))
    assert join.size().rows == 0
    assert join.size().bytes < 40_000


def test_a_row_that_matches_more_than_there_is_room_for() -> None:
    r, s = (Window(StreamScan(x, WIDE, i, "ticks"), Unbounded()) for i, x in enumerate("rs"))
    node = Join("inner", r, s)
    join = FastJoin(node, {}, Context(), emit_leaving=False, ends=True)
    a, b = many(3_000, WIDE, 0, 10, 10**9), many(40, WIDE, 1, 10, 10**9)
    b = replace(b, ts=b.ts + 5_000, moment_ts=b.moment_ts + 5_000)
    out = join.process([a, b], Step((6_000, 0)))
    assert len(out) == 120_000
    check_laws(out)


def test_state_is_bounded_by_the_window() -> None:
    r, s = (Window(StreamScan(x, WIDE, i, "ticks"), Range(100)) for i, x in enumerate("rs"))
    node = Join("inner", r, s, ((Column(0, BIGINT), Column(0, BIGINT)),))
    join = FastJoin(node, {}, Context(), emit_leaving=False, ends=True)
    a, b = many(50_000, WIDE, 0, 20, 100), many(50_000, WIDE, 1, 20, 100)
    for i in range(0, 50_000, 1_000):
        join.process([a.slice(i, i + 1_000), b.slice(i, i + 1_000)], Step((i + 1_000, 0)))
        assert join.size().rows <= 2 * 101
        assert join.size().bytes < 100 * 1_000


@pytest.mark.parametrize("step", [7, 400])
@pytest.mark.parametrize("how", ["key", "order", "all"])
@pytest.mark.parametrize("stays", ["equally long", "any time"])
@pytest.mark.parametrize("restarts", [False, True])
def test_many_rows(how: str, stays: str, step: int, restarts: bool) -> None:
    """Long enough for rings to wrap, grow and shrink, for blocks to split and merge, for codes to be used again."""
    n = 600 if how == "all" else 3_000
    random = np.random.default_rng(7)
    sides = []
    for rank in (0, 1):
        delta = many(n, WIDE, rank, 200, 500)
        # Keys move on, so that old ones are released; a few rows stay very long and hold up the oldest place.
        keys = random.integers(0, 200, n) + np.arange(n) // 10
        lasts = (
            random.choice([1, 5, 50, 2_000], n, p=[0.5, 0.3, 0.19, 0.01]) if stays == "any time" else np.full(n, 700)
        )
        sides.append(replace(delta, columns=(pa.array(keys), *delta.columns[1:]), end=delta.ts + lasts))
    r, s = (Window(StreamScan(x, WIDE, i, "ticks"), Unbounded()) for i, x in enumerate("rs"))
    a, b = (np.asarray(d.columns[0]) for d in sides)
    match how:
        case "key":
            node, matches = Join("inner", r, s, ((Column(0, BIGINT), Column(0, BIGINT)),)), a[:, None] == b[None, :]
        case "order":
            # a + 150 <= b
            left = Call("+", (Column(0, BIGINT), Literal(150, BIGINT)), BIGINT)
            node = Join("inner", r, s, (), compare("<=", left, Column(4, BIGINT)))
            matches = a[:, None] + 150 <= b[None, :]
        case _:
            node, matches = Join("inner", r, s), np.ones((n, n), np.bool_)
    left_end, right_end = (np.asarray(d.end) for d in sides)
    at = np.maximum(np.arange(n)[:, None], np.arange(n)[None, :])
    ends = np.minimum(left_end[:, None], right_end[None, :])
    i, j = np.nonzero(matches & (ends > at))

    join = FastJoin(node, {}, Context(), emit_leaving=False, ends=True)
    parts = []
    tables: dict[str, pa.Table] = {}
    for t in range(0, n, step):
        stop = min(t + step, n)
        parts.append(join.process([d.slice(t, stop) for d in sides], Step((stop, 0))))
        if restarts and t // step % 3 == 0:
            saved = join.save()
            tables |= {p.name: p.table for p in saved.pieces if p.table is not None}
            tables = {p.name: tables[p.name] for p in saved.pieces}
            join = FastJoin(node, {}, Context(), emit_leaving=False, ends=True)
            join.load(Loaded(saved.meta, tables))
        alive = sum(int((np.asarray(d.end)[:stop] > stop).sum()) for d in sides)
        assert alive <= join.size().rows
        if stays == "equally long":
            assert join.size().rows == alive
        elif alive > 100:
            assert join.size().rows <= 4 * alive + 4 * step
    found = concat([p for p in parts if len(p)])
    check_laws(found)
    assert found.end is not None
    pairs = (found.moment_ts, found.end, np.asarray(found.columns[0]), np.asarray(found.columns[4]))
    truth = (at[i, j], ends[i, j], a[i], b[j])
    assert sorted(zip(*(p.tolist() for p in pairs), strict=True)) == sorted(
        zip(*(t.tolist() for t in truth), strict=True)
    )
    join.process([d.slice(n, n) for d in sides], Step(NEVER))
    assert join.size().rows == 0
    if join._keys is not None:
        assert join._keys._interner.live == 0


def test_a_key_is_released_once() -> None:
    """A row that ended behind a living one lost its key before the key was released, and is forgotten after that."""
    schema = (Field("k", BIGINT),)

    def rows(rank: int, *these: tuple[int, int, int]) -> Delta:
        """(ts, key, end) of each."""
        made = [Row((t, rank + 1), (end, 0), (t, rank + 1), (k,), 0) for t, k, end in these]
        return changes(schema, made, ends=True)

    r, s = (Window(StreamScan(x, schema, i, "ticks"), Unbounded()) for i, x in enumerate("rs"))
    join = FastJoin(
        Join("inner", r, s, ((Column(0, BIGINT), Column(0, BIGINT)),)), {}, Context(), emit_leaving=False, ends=True
    )
    none = rows(1)
    join.process([rows(0, (1, 1, 20), (2, 2, 10**6), (3, 1, 11)), none], Step((4, 0)))
    assert len(join.process([rows(0), rows(1, (15, 1, 16))], Step((16, 0)))) == 1
    for t in range(25, 200):
        join.process([rows(0, (t, 2, t + 1)), none], Step((t + 1, 0)))
    last = join.process([rows(0, (300, 10, 400), (301, 11, 400)), rows(1, (302, 10, 400))], Step((303, 0)))
    assert last.columns[0].to_pylist() == [10]
