"""Each general operator against the relation that its node describes at every instant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.delta import BEGINNING
from penstock.model.schema import Field
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, INTERVAL, STRING, DataType, array, decimal
from penstock.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Join,
    Node,
    Project,
    RelationScan,
    SemiJoin,
    SetOp,
    SortKey,
    TopN,
)
from penstock.reference.relations import Snapshot
from penstock.reference.windows import Row, value_key
from penstock.scalar import Context
from penstock.scalar.expr import Call, Column, Expr, Literal
from tests.budget import examples
from tests.operators.general import (
    History,
    Line,
    leaves_as_they_entered,
    lines,
    moment_of,
    run,
)

MONEY = decimal(6, 2)
_COLUMNS = (
    Field("k", INT),
    Field("x", STRING),
    Field("d", DOUBLE),
    Field("m", MONEY),
    Field("i", INTERVAL),
    Field("n", BIGINT),
)
LEFT = RelationScan("left", _COLUMNS, 0)
RIGHT = RelationScan("right", _COLUMNS, 1)
_VALUES: dict[DataType, st.SearchStrategy[object]] = {
    INT: st.sampled_from([1, 2, 1, 2, 3, None]),
    STRING: st.sampled_from(["a", "b", "", "ä", None]),
    DOUBLE: st.sampled_from([1.5, 0.1, 0.0, -0.0, 1e300, -1e300, 5e-324, 1.7e308, math.nan, math.inf, -math.inf, None]),
    MONEY: st.sampled_from([Decimal("1.25"), Decimal("-0.01"), Decimal("9999.99"), None]),
    INTERVAL: st.sampled_from([0, 7, -3, None]),
    BIGINT: st.sampled_from([1, -5, 2**62, -(2**62), None]),
}  # fmt: skip
Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def histories(draw: Draw, *, most: int = 9) -> History:
    """Rows come and go on both sides, some of them at once, some from the beginning; values are few."""
    history = History({id(LEFT): LEFT.schema, id(RIGHT): RIGHT.schema})
    now: dict[int, list[Row]] = {id(LEFT): [], id(RIGHT): []}
    rows = st.tuples(*(_VALUES[f.type] for f in _COLUMNS))
    pool = draw(st.lists(rows, min_size=1, max_size=4))
    arrival = 0
    ts, sub = BEGINNING
    for step in range(draw(st.integers(1, most))):
        if step:
            if draw(st.booleans()):
                sub += 1
            else:
                ts, sub = max(ts, 0) + draw(st.integers(1, 3)), 0
            ts = max(ts, 0)
        for scan in (LEFT, RIGHT):
            held = now[id(scan)]
            # By place, so that a row from anywhere may leave as easily as the oldest.
            places = draw(st.lists(st.integers(0, len(held) - 1), max_size=2)) if held and step else []
            held = [r for i, r in enumerate(held) if i not in places]
            for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
                arrival += 1
                values = draw(st.sampled_from(pool)) if draw(st.booleans()) else draw(rows)
                held = [*held, Row((scan.position, arrival), values, (ts, scan.position, arrival), arrival % 3)]
            now[id(scan)] = held
        history.instants.append((ts, sub))
        history.contents.append(dict(now))
    return history


def _reference(node: Node, history: History) -> tuple[list[Line], list[Counter[Hashable]]]:
    """The changes by identity at each instant, and the values with their moments after it."""
    before: dict[Hashable, Row] = {}
    changes: list[Line] = []
    contents: list[Counter[Hashable]] = []
    for instant, content in zip(history.instants, history.contents, strict=True):
        snapshot = Snapshot(lambda leaf, now=content: list(now[id(leaf)]), Context(), set())  # type: ignore[misc]
        now = {r.id: r for r in snapshot.rows(node)}
        changes += [(instant, -1, value_key(r.values)) for key, r in before.items() if key not in now]
        changes += [(instant, 1, value_key(r.values)) for key, r in now.items() if key not in before]
        contents.append(Counter((value_key(r.values), _moment(r)) for r in now.values()))
        before = now
    return changes, contents


def _moment(row: Row) -> object:
    return BEGINNING if row.moment[1] < 0 else moment_of(row)


def _check(node: Node, history: History, cuts: list[int]) -> None:
    expected, contents = _reference(node, history)
    deltas, tree = run(node, history, cuts)
    assert Counter(line for d in deltas for line in lines(d)) == Counter(expected)
    leaves_as_they_entered(deltas)
    rows = sum(len(held) for held in history.contents[-1].values())
    assert tree.size().rows <= 2 * rows + 3

    deltas, _ = run(node, history, cuts, moments=True)
    there = leaves_as_they_entered(deltas)
    for instant, content in zip(history.instants, contents, strict=True):
        assert there(instant) == content


def _checked(nodes: st.SearchStrategy[Node]) -> Callable[[], None]:
    @settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(nodes, histories(), st.lists(st.integers(0, 9), max_size=9))
    def check(node: Node, history: History, cuts: list[int]) -> None:
        _check(node, history, cuts)

    return check


def col(name: str, offset: int = 0) -> Column:
    index = next(i for i, f in enumerate(_COLUMNS) if f.name == name)
    return Column(index + offset, _COLUMNS[index].type, name)


WIDTH = len(_COLUMNS)


def _compare(function: str, left: Expr, right: Expr) -> Expr:
    return Call(function, (left, right), BOOLEAN)


_KEYS = st.sampled_from(
    [
        (),
        ((col("k"), col("k")),),
        ((col("d"), col("d")),),
        ((col("x"), col("x")), (col("m"), col("m"))),
        ((Call("+", (col("k"), Literal(1, INT)), INT), col("k")),),
    ]
)


@st.composite
def _inequalities(draw: Draw) -> Expr:
    name = draw(st.sampled_from(["k", "x", "d", "m", "n"]))
    sides = col(name), col(name, WIDTH)
    if draw(st.booleans()):
        sides = sides[1], sides[0]
    return _compare(draw(st.sampled_from(["<", "<=", ">", ">=", "<>", "="])), *sides)


@st.composite
def _residuals(draw: Draw) -> Expr | None:
    kind = draw(st.sampled_from(["none", "one", "two", "or", "left"]))
    match kind:
        case "none":
            return None
        case "one":
            return draw(_inequalities())  # type: ignore[no-any-return]
        case "left":
            return _compare("<", Call("/", (col("d"), col("d")), DOUBLE), Literal(2.0, DOUBLE))
    return Call("and" if kind == "two" else "or", (draw(_inequalities()), draw(_inequalities())), BOOLEAN)


def _joins(kind: str) -> st.SearchStrategy[Node]:
    return st.builds(lambda keys, residual: Join(kind, LEFT, RIGHT, keys, residual), _KEYS, _residuals())  # type: ignore[arg-type]


test_inner_join = _checked(_joins("inner"))
test_left_join = _checked(_joins("left"))
test_right_join = _checked(_joins("right"))
test_full_join = _checked(_joins("full"))


@st.composite
def _semi_joins(draw: Draw) -> Node:
    compare = None
    if draw(st.booleans()):
        name = draw(st.sampled_from(["k", "d", "x"]))
        compare = _compare("=", col(name), col(name, WIDTH))
        if draw(st.sampled_from([False, False, True])):
            compare = draw(_inequalities())
        if draw(st.sampled_from([False, False, True])):
            compare = Call("and", (compare, _compare("=", col("k"), col("k", WIDTH))), BOOLEAN)
    residual = draw(_residuals()) if draw(st.sampled_from([False, False, True])) else None
    kind = draw(st.sampled_from(["semi", "anti", "mark"]))
    return SemiJoin(kind, LEFT, RIGHT, draw(_KEYS), residual, compare)


test_semi_join = _checked(_semi_joins())
test_in_by_counting = _checked(
    st.builds(
        lambda kind, keys, name: SemiJoin(kind, LEFT, RIGHT, keys, None, _compare("=", col(name), col(name, WIDTH))),
        st.sampled_from(["anti", "mark"]),
        st.sampled_from([(), ((col("x"), col("x")),)]),
        st.sampled_from(["k", "i"]),
    )
)

_SPREADS = ("variance", "var_pop", "stddev", "stddev_pop")


@st.composite
def _calls(draw: Draw) -> AggregateCall:
    function = draw(
        st.sampled_from(["count", "sum", "avg", "min", "max", "first", "last", "collect", "quantile", *_SPREADS])
    )
    distinct = draw(st.booleans())
    where = _compare("<>", col("k"), Literal(2, INT)) if draw(st.sampled_from([False, False, True])) else None
    if function == "count" and draw(st.booleans()):
        return AggregateCall("count", (col("x"), col("k")) if distinct else (), BIGINT, distinct, where)
    if function in _SPREADS:
        return AggregateCall(function, (col("d"),), DOUBLE, distinct, where)
    if function == "quantile":
        fraction = Literal(draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])), DOUBLE)
        return AggregateCall(function, (col("d"), fraction), DOUBLE, distinct, where)
    if function in ("sum", "avg"):
        arg = col(draw(st.sampled_from(["k", "d", "d", "m", "i", "n"])))
        results: dict[DataType, DataType] = {DOUBLE: DOUBLE, MONEY: decimal(16, 2), INTERVAL: INTERVAL}
        result = results.get(arg.type, BIGINT)
        if function == "avg":
            result = {MONEY: decimal(10, 6), INTERVAL: INTERVAL}.get(arg.type, DOUBLE)
        return AggregateCall(function, (arg,), result, distinct, where)
    arg = col(draw(st.sampled_from(["k", "x", "d", "m"])))
    chosen = {"count": BIGINT, "collect": array(arg.type)}
    return AggregateCall(function, (arg,), chosen.get(function, arg.type), distinct, where)


@st.composite
def _aggregates(draw: Draw) -> Node:
    keys = tuple(col(n) for n in draw(st.sampled_from(["", "", "k", "d", "kx"])))
    calls = tuple(draw(st.lists(_calls(), min_size=0 if keys else 1, max_size=3)))
    return Aggregate(LEFT, keys, calls, tuple(f"c{i}" for i in range(len(keys) + len(calls))))


test_aggregate = _checked(_aggregates())


def _narrow(node: Node, names: str) -> Project:
    return Project(node, tuple(col(n) for n in names), tuple(names))


_NAMES = st.sampled_from(["k", "x", "kd"])
test_distinct = _checked(st.builds(lambda names: Distinct(_narrow(LEFT, names)), _NAMES))
test_set_operation = _checked(
    st.builds(
        lambda kind, every, names: SetOp(kind, every, _narrow(LEFT, names), _narrow(RIGHT, names)),
        st.sampled_from(["union", "except", "intersect"]),
        st.booleans(),
        _NAMES,
    )
)


@st.composite
def _tops(draw: Draw) -> Node:
    names = draw(_NAMES)
    below = _narrow(LEFT, names)
    keys = []
    for i, field in enumerate(below.schema[: draw(st.integers(0, 2))]):
        keys.append(SortKey(Column(i, field.type), draw(st.booleans()), draw(st.booleans())))
    limit = draw(st.sampled_from([None, 0, 1, 2, 3]))
    return TopN(below, tuple(keys), limit, draw(st.sampled_from([0, 0, 1, 3])))


test_top = _checked(_tops())
test_top_after_an_offset = _checked(
    st.builds(
        lambda descending, limit, offset: TopN(
            _narrow(LEFT, "nk"), (SortKey(Column(0, BIGINT), descending),), limit, offset
        ),
        st.booleans(),
        st.sampled_from([1, 2, None]),
        st.sampled_from([1, 2]),
    )
)


