from __future__ import annotations

import copy
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.plan.plans import R, S, call, col, count_by, eq, num, over, project, query
from tests.strategies import queries

from penstock import functions, scalar
from penstock.model.errors import PlanError
from penstock.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    DataType,
    array,
    decimal,
)
from penstock.plan import meanings
from penstock.plan.explain import explain_json
from penstock.plan.nodes import Filter, Join, Project, Query, QueryStream, SetOp
from penstock.plan.optimize import optimize
from penstock.plan.serial import from_json, to_json
from penstock.plan.window import Generic, PartitionRows, Range, Rows, Session
from penstock.scalar.expr import Call, Cast, Column, Expr, Literal, UserCall


def through_text(obj: dict[str, Any]) -> Any:
    return json.loads(json.dumps(obj, allow_nan=False))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(queries())
def test_round_trip(plan: Query) -> None:
    for each in (plan, optimize(plan)):
        again = from_json(through_text(to_json(each)))
        assert to_json(again) == to_json(each)
        # NaN is not equal to itself, so plans with one are compared by their JSON only.
        assert "NaN" in json.dumps(to_json(each)) or again == each


def literals() -> st.SearchStrategy[Literal]:
    def of(dtype: DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Literal]:
        return (st.none() | values).map(lambda v: Literal(v, dtype))

    ticks = st.integers(-(2**63), 2**63 - 1)
    return st.one_of(
        of(BOOLEAN, st.booleans()),
        of(INT, st.integers(-(2**31), 2**31 - 1)),
        of(DOUBLE, st.floats()),
        of(STRING, st.text(st.characters(codec="utf-8"))),
        of(BINARY, st.binary()),
        of(DATE, st.integers(-100000, 100000)),
        of(TIMESTAMP, ticks),
        of(INTERVAL, ticks),
        of(decimal(20, 4), st.decimals(-(10**15), 10**15, places=4)),
        of(array(DOUBLE), st.lists(st.none() | st.floats()).map(tuple)),
        of(array(array(STRING)), st.lists(st.lists(st.text(max_size=3)).map(tuple)).map(tuple)),
    )


def same(a: object, b: object) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


@given(literals())
def test_literals_are_lossless(literal: Literal) -> None:
    plan = query(Project(over(R), (literal,), ("v",)))
    again = from_json(through_text(to_json(plan))).input
    assert isinstance(again, Project)
    found = again.exprs[0]
    assert isinstance(found, Literal)
    assert found.type == literal.type
    assert same(found.value, literal.value)


def test_readable_shape() -> None:
    plan = query(Filter(over(S, Rows(2)), call(">", col(S, "k"), num(5))))
    assert to_json(plan) == {
        "penstock_plan": 1,
        "query": {
            "node": "Query",
            "output": "istream",
            "masters": [],
            "clock": "ticks",
            "input": {
                "node": "Filter",
                "predicate": {
                    "expr": "Call",
                    "function": ">",
                    "args": [
                        {"expr": "Column", "index": 0, "type": "INT", "name": "k"},
                        {"expr": "Literal", "value": 5, "type": "INT"},
                    ],
                    "type": "BOOLEAN",
                },
                "input": {
                    "node": "Window",
                    "spec": {"window": "Rows", "size": 2, "slide": 1},
                    "retractions": True,
                    "input": {
                        "node": "StreamScan",
                        "stream": "s",
                        "schema": [{"name": "k", "type": "INT"}, {"name": "y", "type": "INT"}],
                        "position": 1,
                        "clock": "ticks",
                    },
                },
            },
        },
    }


@pytest.mark.parametrize(
    "spec", [Range(10, 5), PartitionRows((1, 0), 3), Session(5, (1,)), Generic("time", 0, 10, 10, 10, 30)]
)
def test_windows_round_trip(spec: Any) -> None:
    output = "windows" if isinstance(spec, Session | Generic) else "istream"
    plan = query(over(R, spec), output)  # type: ignore[arg-type]
    assert from_json(through_text(to_json(plan))) == plan


def test_explained_json_is_a_plan() -> None:
    plan = query(over(R))
    assert from_json(through_text(explain_json(plan))) == plan


def test_user_calls_casts_and_sub_queries() -> None:
    exprs: tuple[Expr, ...] = (UserCall("f", (col(R, "k"),), STRING), Cast(col(R, "d"), INT, safe=True))
    nested = QueryStream("q", query(Project(over(R), exprs, ("a", "b"))), 10)
    plan = query(over(nested), "changes", "q")
    assert from_json(through_text(to_json(plan))) == plan


JOIN = query(Join("inner", over(R), over(S), ((col(R, "k"), col(S, "k")),), eq(col(R, "k"), num(1))))
FILTER = query(Filter(over(S), call(">", col(S, "k"), num(5))))
COUNT = query(count_by(over(R), "k"))
TUMBLING = query(over(R, Generic("time", 0, 10, 10, 10)), "windows")
UNION = query(SetOp("union", True, project(over(R), "k"), project(over(S), "k")))
GONE = object()


@pytest.mark.parametrize(
    ("plan", "path", "value", "message"),
    [
        (FILTER, "penstock_plan", 4, "plan.penstock_plan: version 4 is not known; this is version 3"),
        (FILTER, "extra", 1, "plan: unknown field `extra`"),
        (FILTER, "query.input.node", "Filtre", "query.input.node: `Filtre` is not one of `StreamScan`"),
        (FILTER, "query.input.predicat", 1, "query.input: unknown field `predicat`; did you mean `predicate`?"),
        (FILTER, "query.input.predicate", GONE, "query.input: field `predicate` is missing"),
        (FILTER, "query.input.predicate.args.0.index", 7,
         "query.input.predicate.args[0]: column 7 of 2; they count from 0"),
        (FILTER, "query.input.predicate.args.0.index", -1, "query.input.predicate.args[0]: column -1 of 2"),
        (FILTER, "query.input.predicate.args.0.type", "STRING",
         "query.input.predicate.args[0]: column 0 (`k`) has type INT, not STRING"),
        (FILTER, "query.input.predicate.args.0.type", "INTT",
         "query.input.predicate.args[0].type: unknown type `INTT`; did you mean `INT`?"),
        (FILTER, "query.input.predicate.args.1.value", "5",
         "query.input.predicate.args[1].value: '5' is not a literal of type INT"),
        (FILTER, "query.input.predicate.args.1.value", 2**31, "is not a literal of type INT"),
        (FILTER, "query.input.predicate.function", "coalesc",
         "query.input.predicate.function: unknown function `coalesc`; did you mean `coalesce`?"),
        (FILTER, "query.input.predicate.args", [], "query.input.predicate.args: `>` takes 2, not 0 arguments"),
        (FILTER, "query.input.predicate.type", "INT", "query.input.predicate: a condition has type BOOLEAN, not INT"),
        (FILTER, "query.input.input", {"node": "StreamScan", "stream": "s", "position": 0, "clock": "ticks",
                                       "schema": [{"name": "k", "type": "INT"}]},
         "query.input: a stream where a relation is expected; put a Window above it"),
        (FILTER, "query.input.input.spec.size", 0, "query.input.input.spec.size: 0 is too small"),
        (FILTER, "query.input.input.spec.size", -3, "at least 1"),
        (FILTER, "query.input.input.spec.size", True, "a whole number is expected, not True"),
        (FILTER, "query.input.input.spec.slide", 0, "query.input.input.spec.slide: 0 is too small"),
        (FILTER, "query.input.input.spec.window", "Rnage", "is not one of `Unbounded`"),
        (FILTER, "query.input.input.spec", {"window": "PartitionRows", "keys": [2], "size": 1},
         "query.input.input.spec.keys[0]: column 2 of 2"),
        (FILTER, "query.input.input.input.schema.0.type", "DECIMAL(40, 2)", "is not a DECIMAL of 1 to 38 digits"),
        (FILTER, "query.masters", ["z"], "query.masters[0]: no stream `z` in the query; there is `s`"),
        (FILTER, "query.output", "windows", "query.output: `windows` needs a bounded window"),
        (FILTER, "query.input", [], "query.input: an object is expected, not a list"),
        (TUMBLING, "query.output", "istream", "query.output: with a bounded window it has to be `windows`"),
        (TUMBLING, "query.masters", ["r"], "query.masters: a query with a bounded window has none"),
        (TUMBLING, "query.input.spec.end", -1, "query.input.spec.end: -1 is before the begin 0"),
        (JOIN, "query.input.keys.0.1.index", 2, "query.input.keys[0][1]: column 2 of 2"),
        (JOIN, "query.input.keys.0.0", {"expr": "Column", "index": 1, "type": "STRING"},
         "query.input.keys[0]: the sides of a key have types STRING and INT; cast one of them"),
        (JOIN, "query.input.kind", "outer", "query.input.kind: `outer` is not one of `inner`, `left`"),
        (COUNT, "query.input.names", ["k"], "query.input.names: 1 names for 2 columns"),
        (COUNT, "query.input.aggregates.0.function", "cuont", "`cuont` is not one of `count`"),
        (COUNT, "query.input.aggregates.0.function", "sum", "sum takes 1 arguments, not 0"),
        (UNION, "query.input.right.exprs.0", {"expr": "Literal", "value": "a", "type": "STRING"},
         "query.input: the sides of UNION have types (INT) and (STRING); they have to be the same"),
    ],
)  # fmt: skip
def test_bad_plans_say_where(plan: Query, path: str, value: object, message: str) -> None:
    obj = copy.deepcopy(to_json(plan))
    *way, last = path.split(".")
    place: Any = obj
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    if value is GONE:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    with pytest.raises(PlanError) as caught:
        from_json(obj)
    assert message in str(caught.value)


@pytest.mark.parametrize("obj", [None, [], "plan", 3, {}, {"penstock_plan": 1}])
def test_no_plan_at_all(obj: object) -> None:
    with pytest.raises(PlanError):
        from_json(obj)


def test_decimal_and_binary_have_to_be_text() -> None:
    plan = query(Project(over(R), (Literal(Decimal("1.5"), decimal(5, 1)), Literal(b"\x00", BINARY)), ("a", "b")))
    obj = to_json(plan)
    assert [e["value"] for e in obj["query"]["input"]["exprs"]] == ["1.5", "AA=="]
    obj["query"]["input"]["exprs"][0]["value"] = 1.5
    with pytest.raises(PlanError, match=r"query\.input\.exprs\[0\]\.value: a string with a literal"):
        from_json(obj)


def test_a_stream_has_no_retractions() -> None:
    nested = QueryStream("q", query(over(R), "changes"), 10)
    with pytest.raises(PlanError, match="cannot be `changes`"):
        from_json(to_json(query(over(nested))))


def test_bounded_windows_of_a_query_are_one() -> None:
    two = Join("inner", over(R, Session(5)), over(S, Session(5)))
    with pytest.raises(PlanError, match="at most one Session window, not 2"):
        from_json(to_json(query(two, "windows")))
    different = Join("inner", over(R, Session(5)), over(S, Generic("time", 0, 5, 5, 5)))
    with pytest.raises(PlanError, match="have to be the same"):
        from_json(to_json(query(different, "windows")))


def test_column_and_call_survive() -> None:
    plan = query(Project(over(R), (Call("+", (Column(0, INT, "k"), num(1)), INT),), ("ä b",)))
    assert from_json(to_json(plan)) == plan


def computing(expr: Any) -> Query:
    return query(Project(over(S), (expr,), ("x",)))


def test_the_version_says_which_meanings_a_plan_needs() -> None:
    text = Literal("abc", STRING)
    for changed, unchanged in (
        (Call("substr", (text, col(S, "k")), STRING), Call("substr", (text, num(2)), STRING)),
        (Call("left", (text, num(-1)), STRING), Call("left", (text, num(1)), STRING)),
        (Call("regexp_like", (text, Literal("\\d", STRING)), BOOLEAN), Call("regexp_like", (text, text), BOOLEAN)),
        (Call("round", (Literal(1.5, DOUBLE), num(1)), DOUBLE), Call("round", (Literal(1.5, DOUBLE), num(0)), DOUBLE)),
    ):
        assert to_json(computing(unchanged))["penstock_plan"] == 1
        plan = to_json(computing(changed))
        assert plan["penstock_plan"] == 2
        assert from_json(plan) == computing(changed)
        plan["penstock_plan"] = 1
        with pytest.raises(PlanError, match=f"`{changed.function}` has another meaning than in version 1 of plans: "):
            from_json(plan)
        assert from_json(plan, whatever_it_meant=True) == computing(changed)


def test_calls_that_are_no_more_are_refused_by_name() -> None:
    old = Call("to_timestamp", (Literal("2024", STRING), Literal("%Y", STRING)), TIMESTAMP)
    plan = to_json(computing(old)) | {"penstock_plan": 1}
    with pytest.raises(PlanError, match=r"`to_timestamp` has another meaning .*: its patterns are Spark's"):
        from_json(plan)


def test_every_changed_meaning_is_that_of_a_function() -> None:
    names = [(change.since, n) for change in meanings.CHANGES for n in change.names]
    assert {n for _, n in names} <= set(functions.names())
    assert len(names) == len(set(names))
    calls = {c for change in meanings.CHANGES for c in change.calls}
    assert calls - scalar.BUILTINS == meanings.GONE
    assert max(change.since for change in meanings.CHANGES) == meanings.NUMBER
