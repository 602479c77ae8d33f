"""Hypothesis strategies: random inputs, and random plans over them built directly from nodes.

Streams ``r(k INT, x STRING, d DOUBLE)`` and ``s(k INT, y INT)`` and the relations ``t(k INT, z STRING)`` and
``w(k INT, n INT)`` are always there; values are few, so that keys meet, and include NULL, NaN and both zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from penstock.model.change import Change
from penstock.model.schema import Field, Schema
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, array
from penstock.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    Join,
    Node,
    Prioritise,
    Project,
    Query,
    QueryStream,
    RelationScan,
    SemiJoin,
    SetOp,
    SortKey,
    StreamScan,
    TopN,
    Window,
    bounded_window,
    sources,
    walk,
)
from penstock.plan.window import (
    Generic,
    Now,
    PartitionRows,
    Range,
    Rows,
    Session,
    Unbounded,
    WindowSpec,
)
from penstock.reference.evaluator import Element
from penstock.scalar.expr import FALSE, TRUE, Call, Case, Cast, Column, Expr, Literal, WindowBound
from penstock.scalar.expr import walk as walk_expr

Draw = Callable[[st.SearchStrategy[Any]], Any]

R = StreamScan("r", (Field("k", INT), Field("x", STRING), Field("d", DOUBLE)), 0, "ticks")
S = StreamScan("s", (Field("k", INT), Field("y", INT)), 1, "ticks")
T = RelationScan("t", (Field("k", INT), Field("z", STRING)), 2)
W = RelationScan("w", (Field("k", INT), Field("n", INT)), 3)

_VALUES: dict[DataType, st.SearchStrategy[object]] = {
    INT: st.sampled_from([1, 2, 1, 2, 3, 0, None]),
    STRING: st.sampled_from(["a", "b", "a", "b", "ä", None]),
    DOUBLE: st.sampled_from([1.5, 0.0, 1.5, -0.0, float("nan"), float("inf"), None]),
    BIGINT: st.sampled_from([1, 2, 4, None]),
    BOOLEAN: st.sampled_from([None, True, False]),
}


@dataclass(frozen=True)
class Inputs:
    """What arrives: the streams' elements by name, and the relations' changes."""

    streams: dict[str, list[Element]]
    relations: dict[str, list[Change]]


@st.composite
def inputs(draw: Draw, *, most: int = 7) -> Inputs:
    """Streams with ties and gaps, and relations that change now and then."""
    streams = {}
    for scan in (R, S):
        fewest = draw(st.sampled_from([0, 3, most - 1]))
        times = sorted(draw(st.lists(st.integers(0, 14), min_size=fewest, max_size=most)))
        streams[scan.stream] = [Element(ts, _row(draw, scan.schema), i) for i, ts in enumerate(times)]
    return Inputs(streams, {scan.relation: _changes(draw, scan.schema) for scan in (T, W)})


def _changes(draw: Draw, schema: Schema) -> list[Change]:
    changes: list[Change] = []
    held: list[tuple[object, ...]] = []
    starts = draw(st.sampled_from([3, 2, 0]))
    for i in range(starts):
        held.append(_row(draw, schema))
        changes.append(Change(None, 1, held[-1], i))
    for i, ts in enumerate(sorted(draw(st.lists(st.integers(0, 14), max_size=3)))):
        if held and draw(st.booleans()):
            changes.append(Change(ts, -1, held.pop(0), starts + i, i))
        else:
            held.append(_row(draw, schema))
            changes.append(Change(ts, 1, held[-1], starts + i, i))
    return changes


def _row(draw: Draw, schema: Schema) -> tuple[object, ...]:
    return tuple(draw(_VALUES[f.type]) for f in schema)


class _Plans:
    """One random plan being drawn; ``bounded`` is the window spec of a query answered at windows' ends."""

    def __init__(self, draw: Draw, bounded: WindowSpec | None) -> None:
        self.draw = draw
        self.bounded = bounded
        self.sessions = 0
        self.nested = 0

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def chance(self, percent: int) -> bool:
        return bool(self.draw(st.integers(1, 100)) <= percent)

    def any_of(self, *choices: Expr) -> Expr:
        chosen: Expr = self.pick(*choices)
        return chosen

    # Expressions.

    def column(self, schema: Schema, dtype: DataType) -> Expr | None:
        found = [Column(i, f.type, f.name) for i, f in enumerate(schema) if f.type == dtype]
        return self.pick(*found) if found else None

    def expr(self, schema: Schema, dtype: DataType, depth: int = 1) -> Expr:
        column = self.column(schema, dtype)
        if column is not None and (depth == 0 or self.chance(60)):
            return column
        if depth == 0 or dtype not in _VALUES or self.chance(40):
            return Literal(self.draw(_VALUES[dtype]) if dtype in _VALUES else None, dtype)
        if dtype == BOOLEAN:
            return self.condition(schema, depth - 1)
        kind = self.pick("math", "case", "coalesce", "cast")
        if kind == "math" and dtype in (INT, BIGINT, DOUBLE):
            function = self.pick("+", "-", "*") if dtype != DOUBLE else self.pick("+", "/")
            return Call(function, (self.expr(schema, dtype, 0), self.expr(schema, dtype, 0)), dtype)
        if kind == "case":
            branch = (self.condition(schema, 0), self.expr(schema, dtype, 0))
            return Case((branch,), self.expr(schema, dtype, 0), dtype)
        if kind == "cast" and dtype in (STRING, BIGINT):
            return Cast(self.expr(schema, self.pick(INT, DOUBLE), 0), dtype)
        return Call("coalesce", (self.expr(schema, dtype, 0), self.expr(schema, dtype, 0)), dtype)

    def condition(self, schema: Schema, depth: int = 2) -> Expr:
        kinds = ["compare"] * 8 + ["null", "in", "in", "constant", "column"]
        kinds += ["and", "or", "or", "or", "not", "not"] * (depth > 0)
        kind = self.pick(*kinds)
        if kind in ("and", "or"):
            sides = (self.condition(schema, depth - 1), self.condition(schema, depth - 1))
            return Call(kind, sides, BOOLEAN)
        if kind == "not":
            return Call("not", (self.condition(schema, depth - 1),), BOOLEAN)
        if kind == "constant":
            return self.any_of(TRUE, TRUE, TRUE, FALSE, Literal(None, BOOLEAN))
        if kind == "column":
            mark = self.column(schema, BOOLEAN)
            if mark is not None:
                return self.any_of(mark, Call("not", (mark,), BOOLEAN))
        dtype = self.pick(*{f.type for f in schema if f.type in _VALUES} or {INT})
        if kind == "null":
            test = Call("is_null", (self.expr(schema, dtype, 0),), BOOLEAN)
            return self.any_of(test, Call("not", (test,), BOOLEAN), Call("not", (test,), BOOLEAN))
        if kind == "in":
            items = (self.expr((), dtype, 0), self.expr((), dtype, 0))
            return Call("in", (self.expr(schema, dtype, 0), *items), BOOLEAN)
        function = self.pick("=", "<>", "<>", "<", ">=", ">=")
        return Call(function, (self.expr(schema, dtype, 1), self.expr(schema, dtype, 1)), BOOLEAN)

    def equality(self, left: Schema, right: Schema) -> tuple[Expr, Expr] | None:
        pairs = [
            (Column(i, a.type, a.name), Column(j, b.type, b.name))
            for i, a in enumerate(left)
            for j, b in enumerate(right)
            if a.type == b.type and a.type in _VALUES
        ]
        return self.pick(*pairs) if pairs else None

    # Streams and windows.

    def stream(self, depth: int) -> Node:
        node: Node = self.pick(R, R, S, S)
        if depth > 0 and self.chance(20):
            query = self.draw(queries(depth=1, nested=True))
            self.nested += 1
            node = QueryStream(f"q{self.nested}", query, 10 + self.nested)
        if self.chance(20):
            node = Filter(node, self.condition(node.schema, 1))
        return node

    def spec(self, schema: Schema) -> WindowSpec:
        keys = [i for i, f in enumerate(schema) if f.type in _VALUES]
        if self.bounded is not None and self.chance(75):
            if not isinstance(self.bounded, Session):
                return self.bounded
            if not self.sessions:
                self.sessions += 1
                return Session(self.bounded.gap, (self.pick(*keys),) if keys and self.chance(50) else ())
        kind = self.pick("unbounded", "now", "rows", "partition", "range", "range", "slide")
        size = self.draw(st.integers(1, 6))
        match kind:
            case "now":
                return Now()
            case "rows":
                return Rows(self.draw(st.integers(1, 3)), self.pick(1, 1, 2, 3))
            case "partition" if keys:
                chosen = self.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True))
                return PartitionRows(tuple(chosen), self.draw(st.integers(1, 2)))
            case "range":
                return Range(size)
            case "slide":
                return Range(size, self.draw(st.integers(1, 4)))
        return Unbounded()

    def window(self, depth: int) -> Node:
        if self.chance(20):
            relation: Node = self.pick(T, T, W)
            return relation
        stream = self.stream(depth)
        return Window(stream, self.spec(stream.schema))

    # Relations.

    def relation(self, depth: int) -> Node:
        if depth == 0:
            return self.window(depth)
        kind = self.pick(
            "window", "filter", "filter", "project", "project", "join", "join", "chain", "semi", "semi",
            "aggregate", "distinct", "set", "top", "priority",
        )  # fmt: skip
        match kind:
            case "filter":
                below = self.relation(depth - 1 if self.chance(70) else depth)
                return Filter(below, self.condition(below.schema))
            case "project":
                return self.project(self.relation(depth - 1))
            case "join":
                return self.join(self.relation(depth - 1), self.relation(depth - 1))
            case "chain":
                below = self.window(depth)
                for _ in range(self.pick(1, 2)):
                    below = self.join(below, self.window(0), kind="inner")
                return Filter(below, self.condition(below.schema)) if self.chance(60) else below
            case "semi":
                return self.semi_join(depth)
            case "aggregate":
                return self.aggregate(self.relation(depth - 1))
            case "distinct":
                return Distinct(self.relation(depth - 1))
            case "priority":
                below = self.relation(depth - 1)
                return Prioritise(below, self.expr(below.schema, INT))
            case "set":
                return self.set_operation(depth)
            case "top":
                below = self.relation(depth - 1)
                keys = tuple(
                    SortKey(Column(i, f.type, f.name), self.chance(50), self.chance(50))
                    for i, f in enumerate(below.schema[:2])
                    if f.type in _VALUES
                )
                return TopN(below, keys, self.pick(1, 2, 3), self.pick(0, 0, 1))
        return self.window(depth)

    def project(self, below: Node) -> Node:
        exprs: list[Expr] = []
        for i in range(self.draw(st.integers(1, 3))):
            if self.chance(60):
                position = self.draw(st.integers(0, len(below.schema) - 1))
                field = below.schema[position]
                exprs.append(Column(position, field.type, field.name))
            else:
                exprs.append(self.expr(below.schema, self.pick(INT, STRING, DOUBLE), i % 2))
        if self.bounded is not None and self.chance(30):
            exprs.append(WindowBound(self.pick("start", "end"), BIGINT))
        return Project(below, tuple(exprs), tuple(f"c{i}" for i in range(len(exprs))))

    def join(self, left: Node, right: Node, kind: str = "") -> Node:
        kind = kind or self.pick("inner", "inner", "left", "right", "full")
        both = left.schema + right.schema
        pair = self.equality(left.schema, right.schema) if self.chance(70) else None
        residual = self.condition(both) if self.chance(25) else None
        if pair is not None and self.chance(50):
            moved = Column(len(left.schema) + pair[1].index, pair[1].type, pair[1].name)  # type: ignore[union-attr]
            condition = Call("=", (pair[0], moved), BOOLEAN)
            if residual is not None:
                condition = Call("and", (condition, residual), BOOLEAN)
            return Join(kind, left, right, (), condition)  # type: ignore[arg-type]
        return Join(kind, left, right, () if pair is None else (pair,), residual)  # type: ignore[arg-type]

    def semi_join(self, depth: int) -> Node:
        left, right = self.relation(depth - 1), self.relation(depth - 1)
        kind = self.pick("semi", "anti", "mark", "mark")
        both = left.schema + right.schema
        pair = self.equality(left.schema, right.schema)
        keys = (pair,) if pair is not None and self.chance(30) else ()
        residual = self.condition(both) if self.chance(30) else None
        compare: Expr | None = None
        if pair is not None and self.chance(60):
            moved = Column(len(left.schema) + pair[1].index, pair[1].type, pair[1].name)  # type: ignore[union-attr]
            compare = Call("=", (pair[0], moved), BOOLEAN)
        node: Node = SemiJoin(kind, left, right, keys, residual, compare)
        if kind == "mark" and self.chance(70):
            mark = Column(len(left.schema), BOOLEAN, "mark")
            condition: Expr = self.pick(mark, Call("not", (mark,), BOOLEAN))
            if self.chance(40):
                condition = Call("and", (condition, self.condition(node.schema, 1)), BOOLEAN)
            node = Filter(node, condition)
            if self.chance(60):
                fields = left.schema
                exprs = tuple(Column(i, f.type, f.name) for i, f in enumerate(fields))
                node = Project(node, exprs, tuple(f.name for f in fields))
        return node

    def aggregate(self, below: Node) -> Node:
        usable = [i for i, f in enumerate(below.schema) if f.type in _VALUES]
        chosen = self.draw(st.lists(st.sampled_from(usable), max_size=2, unique=True)) if usable else []
        keys = tuple(Column(i, below.schema[i].type, below.schema[i].name) for i in chosen)
        calls = [self.call(below.schema) for _ in range(self.draw(st.integers(0 if keys else 1, 2)))]
        names = tuple(f"g{i}" for i in range(len(keys) + len(calls)))
        return Aggregate(below, keys, tuple(calls), names)

    def call(self, schema: Schema) -> AggregateCall:
        function = self.pick("count*", "count", "sum", "min", "max", "first", "last", "collect", "avg")
        where = self.condition(schema, 0) if self.chance(20) else None
        if function == "count*":
            return AggregateCall("count", (), BIGINT, False, where)
        dtype = self.pick(INT, DOUBLE) if function in ("sum", "avg") else self.pick(INT, STRING, DOUBLE)
        results = {"count": BIGINT, "avg": DOUBLE, "collect": array(dtype)}
        result = results.get(function, dtype)
        if function == "sum":
            result = BIGINT if dtype == INT else DOUBLE
        distinct = function in ("count", "sum", "collect") and self.chance(20)
        return AggregateCall(function, (self.expr(schema, dtype),), result, distinct, where)

    def set_operation(self, depth: int) -> Node:
        types = [self.pick(INT, STRING) for _ in range(self.pick(1, 2))]
        sides = []
        for _ in range(2):
            below = self.relation(depth - 1)
            exprs = tuple(self.expr(below.schema, t, 0) for t in types)
            sides.append(Project(below, exprs, tuple(f"u{i}" for i in range(len(exprs)))))
        return SetOp(self.pick("union", "union", "except", "intersect"), self.chance(50), *sides)


def _bounded_specs() -> st.SearchStrategy[WindowSpec]:
    return st.sampled_from(
        [
            Generic("time", 0, 4, 4, 4, None, True),
            Generic("time", 0, 6, 3, 3, None, True),
            Generic("time", 0, 5, 5, 5, 15),
            Generic("time", 2, 6, 0, 4, 18),
            Generic("tuples", 1, 2, 2, 2),
            Generic("tuples", 1, 3, 1, 1),
            Session(3),
        ]
    )


@st.composite
def queries(draw: Draw, *, depth: int = 3, nested: bool = False) -> Query:
    """A valid query over ``r``, ``s``, ``t`` and ``w``; ``nested`` ones are usable as a stream."""
    bounded = draw(_bounded_specs()) if draw(st.integers(1, 100)) <= 20 else None
    plans = _Plans(draw, bounded)
    root = plans.relation(depth)
    if not nested and plans.chance(40):
        root = plans.project(root)
    trial = Query(root, "istream", (), "ticks")
    if bounded_window(trial) is not None:
        return Query(root, "windows", (), "ticks")
    if plans.bounded is not None and _has_bound(root):
        root = Window(R, Unbounded())
        return Query(root, "istream", (), "ticks")
    outputs = ["istream", "dstream", "rstream"] + ["changes"] * (0 if nested else 3)
    output = plans.pick(*outputs)
    streams = [n for n in sources(trial) if not isinstance(n, RelationScan)]
    names = {n.stream if isinstance(n, StreamScan) else n.name for n in streams}
    masters: list[str] = []
    if names and plans.chance(25):
        masters = draw(st.lists(st.sampled_from(sorted(names)), min_size=1, unique=True))
    return Query(root, output, tuple(masters), "ticks")


def _has_bound(node: Node) -> bool:
    found = (n for n in walk(node, into_queries=False) if isinstance(n, Project))
    return any(isinstance(e, WindowBound) for n in found for x in n.exprs for e in walk_expr(x))
