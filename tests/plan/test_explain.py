from __future__ import annotations

import re
from decimal import Decimal

import pytest
from tests.plan.plans import R, S, call, col, count_by, eq, num, over, project, query

from penstock.model.schema import Field
from penstock.model.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, STRING, TIMESTAMP, array, decimal
from penstock.plan.explain import explain_json, explain_mermaid, explain_text, show_expr
from penstock.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    Join,
    Query,
    QueryStream,
    SetOp,
    SortKey,
    StreamScan,
    TopN,
    Window,
)
from penstock.plan.optimize import optimize
from penstock.plan.show import show_window
from penstock.plan.window import Generic, Now, PartitionRows, Range, Rows, Session, Unbounded, WindowSpec
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound

A, B = Column(0, INT, "a"), Column(1, INT, "b")
AB = (Field("a", INT), Field("b b", INT))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (eq(A, B), 'a = "b b"'),
        (call("and", call("or", eq(A, num(1)), eq(A, num(2))), eq(B, num(3))), '(a = 1 OR a = 2) AND "b b" = 3'),
        (call("or", call("and", eq(A, num(1)), eq(A, num(2))), eq(A, num(3))), "a = 1 AND a = 2 OR a = 3"),
        (call("not", call("and", eq(A, num(1)), eq(A, num(2)))), "NOT (a = 1 AND a = 2)"),
        (Call("*", (Call("+", (A, num(1)), INT), num(2)), INT), "(a + 1) * 2"),
        (Call("-", (A, Call("-", (num(1), num(2)), INT)), INT), "a - (1 - 2)"),
        (Call("neg", (Call("neg", (A,), INT),), INT), "-(-a)"),
        (call("is_null", A), "a IS NULL"),
        (call("not", call("is_null", A)), "NOT a IS NULL"),
        (call("in", A, num(1), num(2)), "a IN (1, 2)"),
        (call("like", Literal("x", STRING), Literal("a%", STRING)), "'x' LIKE 'a%' ESCAPE ''"),
        (call("like", Literal("x", STRING), Literal("a%", STRING), Literal("\\", STRING)), "'x' LIKE 'a%'"),
        (call("ilike", Literal("x", STRING), Literal("a%", STRING), Literal("!", STRING)), "'x' ILIKE 'a%' ESCAPE '!'"),
        (call("is_not_distinct", A, num(1)), "a IS NOT DISTINCT FROM 1"),
        (Case(((eq(A, num(1)), num(2)),), num(3), INT), "CASE WHEN a = 1 THEN 2 ELSE 3 END"),
        (Cast(A, decimal(5, 2)), "CAST(a AS DECIMAL(5, 2))"),
        (Cast(A, STRING, safe=True), "TRY_CAST(a AS STRING)"),
        (UserCall("my_f", (A,), INT), "my_f(a)"),
        (WindowBound("start", BIGINT), "window_start"),
        (Literal("it's", STRING), "'it''s'"),
        (Literal(None, STRING), "NULL"),
        (Literal(True, BOOLEAN), "TRUE"),
        (Literal(1.5, DOUBLE), "1.5"),
        (Literal(Decimal("1.50"), decimal(5, 2)), "1.50"),
        (Literal(b"\x01\xff", BINARY), "X'01FF'"),
        (Literal(1, DATE), "DATE '1970-01-02'"),
        (Literal(1_500_000, TIMESTAMP), "TIMESTAMP '1970-01-01 00:00:01.500000'"),
        (Literal(120_000_000, INTERVAL), "2 MINUTES"),
        (Literal((1, None), array(INT)), "ARRAY[1, NULL]"),
    ],
)
def test_expressions_read_as_cql(expr: Expr, text: str) -> None:
    assert show_expr(expr, AB) == text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (Unbounded(), "[RANGE UNBOUNDED]"),
        (Now(), "[NOW]"),
        (Rows(5, 2), "[ROWS 5 SLIDE 2]"),
        (PartitionRows((1, 0), 3), "[PARTITION BY x, k ROWS 3]"),
        (Range(90_000_000, 1_000_000), "[RANGE 90 SECONDS SLIDE 1 SECOND]"),
        (Session(60_000_000, (0,)), "[PARTITION BY k SESSION GAP 1 MINUTE]"),
        (Generic("time", 0, 3_600_000_000, 3_600_000_000, 3_600_000_000, None, True), "[TUMBLING 1 HOUR]"),
        (Generic("time", 0, 2_000, 1_000, 1_000, None, True), "[HOPPING 2 MILLISECONDS EVERY 1 MILLISECOND]"),
        (Generic("tuples", 1, 100, 50, 50, 1000),
         "[BEGIN WINDOW 1 TUPLES END WINDOW 100 TUPLES HOP SIZE (50, 50) END QUERY 1000 TUPLES]"),
    ],
)  # fmt: skip
def test_windows_read_as_cql(spec: WindowSpec, text: str) -> None:
    assert show_window(spec, [f.name for f in R.schema], "timestamp") == text


def test_text_has_the_tree_and_the_facts() -> None:
    join = Join("inner", over(R), over(S, Rows(2)), ((col(R, "k"), col(S, "k")),))
    assert explain_text(optimize(query(Filter(join, call(">", col(join, "y"), num(3)))))) == (
        "Query istream\n"
        "└─ Join inner on r.k = s.k\n"
        "   ├─ Window [RANGE 10] without retractions\n"
        "   │  └─ Stream r(k, x, d)\n"
        "   └─ Filter y > 3\n"
        "      └─ Window [ROWS 2]\n"
        "         └─ Stream s(k, y)\n"
        "\n"
        "instants: every change of a window or relation\n"
        "output: rows that enter the answer\n"
        "partitioning: none, so one shard: ROWS 2 counts the rows of the whole stream\n"
        "retractions: needed from s [ROWS 2]"
    )


def test_text_names_keys_masters_and_costs() -> None:
    text = explain_text(query(count_by(over(R), "k"), "changes"), costs=True)
    assert "partitioning: r by k" in text
    assert "output: rows that enter (+) and leave (-) the answer" in text
    assert re.search(r"Stream r\(k, x, d\)  \(~1,000/s, .* rows\)", text)
    assert text.splitlines()[-1].startswith("cost: ")
    assert "instants: arrivals on r" in explain_text(query(over(R), "istream", "r"))
    assert "instants: the end of each window" in explain_text(query(over(R, Session(5)), "windows"))


def test_every_node_has_a_line() -> None:
    calls = (AggregateCall("sum", (col(R, "k"),), BIGINT, distinct=True, where=call(">", col(R, "k"), num(1))),)
    total = Aggregate(over(R), (col(R, "x"),), calls, ("x", "t"))
    top = TopN(total, (SortKey(Column(1, BIGINT), True, True), SortKey(Column(0, STRING))), 3, 1)
    text = explain_text(query(Distinct(top), "changes"))
    assert "Aggregate sum(DISTINCT k) FILTER (WHERE k > 1) AS t by x" in text
    assert "TopN 3 offset 1 by t DESC NULLS FIRST, x" in text
    assert "Distinct" in text
    assert "Union all" in explain_text(query(SetOp("union", True, over(S), over(S))))


def test_equal_names_are_told_apart() -> None:
    selfjoin = Join("inner", over(S), over(S), ((col(S, "k"), col(S, "k")),))
    assert "Join inner on s.k#0 = s.k#2" in explain_text(query(selfjoin))


def test_json_annotations() -> None:
    notes = explain_json(query(count_by(over(R), "k")))["annotations"]
    assert notes["partitioning"] == {
        "keys": [{"source": "r", "columns": [0]}], "reason": None, "anywhere": False,
    }  # fmt: skip
    assert notes["monotonic"] is False
    assert notes["cost"]["rate"] > 0


def test_mermaid_escapes_labels() -> None:
    odd = StreamScan('we"ird] 〈näme〉 <b>', (Field("a|b", STRING),), 0, "ticks")
    plan = Query(Filter(Window(odd, Rows(2)), eq(Column(0, STRING), Literal('"];', STRING))), "istream")
    text = explain_mermaid(plan)
    lines = text.splitlines()
    assert lines[0] == "flowchart TD"
    labels = re.findall(r'^    n\d+(?:\[\(|\[)"(.*)"(?:\)\]|\])$', text, flags=re.M)
    assert len(labels) == 4
    for label in labels:
        assert not set(re.sub(r"#\d+;", "", label)) & set('"[]<>|;#(){}')
    assert "#34;" in labels[0]
    assert "näme" in labels[0]
    assert lines[-1] == "    n2 --> n3"


def test_mermaid_draws_sub_queries() -> None:
    nested = QueryStream("q", query(project(over(R), "x")), 10)
    assert explain_mermaid(query(over(nested))).count("-->") == 6
