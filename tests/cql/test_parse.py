"""What statements parse to, where their parts stand, and what is said about mistakes."""

from __future__ import annotations

import pytest
from sqlglot import exp

from penstock.cql import ast
from penstock.cql.ast import FunctionCall, function_call
from penstock.cql.text import parse, position_of
from penstock.model.errors import CqlSyntaxError, Position


def tree_of(text: str) -> exp.Expr:
    (statement,) = parse(text)
    return statement.tree


def window_of(window: str) -> ast.StreamWindow:
    table = tree_of(f"SELECT a FROM s {window}").args["from_"].this
    found = table.args["stream_window"]
    assert isinstance(found, ast.StreamWindow)
    return found


def expression_of(text: str) -> exp.Expr:
    found = tree_of(f"SELECT {text} FROM s").expressions[0]
    assert isinstance(found, exp.Expr)
    return found


def minutes(number: str) -> exp.Interval:
    return exp.Interval(this=exp.Literal.string(number), unit=exp.var("MINUTE"))


# Scripts


@pytest.mark.parametrize("text", ["", "  \n", ";", ";;", "-- nothing\n", "/* a */ ; -- b"])
def test_an_empty_script_has_no_statements(text: str) -> None:
    assert parse(text) == []


def test_statements_are_separated_by_semicolons() -> None:
    text = "SHOW STREAMS; -- the first\n\nSTOP QUERY q;\nSELECT ';' FROM s"
    first, second, third = parse(text)
    assert isinstance(first.tree, ast.ShowObjects)
    assert isinstance(second.tree, ast.StopQuery)
    assert isinstance(third.tree, exp.Select)
    assert {first.text, second.text, third.text} == {text}
    assert position_of(second.tree) == Position(3, 1, 4)
    assert position_of(second.tree.this) == Position(3, 12, 1)
    assert position_of(third.tree.args["from_"]) == Position(4, 17, 1)


# Queries


@pytest.mark.parametrize("emit", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_the_word_form_of_relation_to_stream(emit: str) -> None:
    for text in (f"SELECT {emit} DISTINCT a FROM s", f"select {emit.lower()} distinct a FROM s"):
        select = tree_of(text)
        assert select.args["operation_modifiers"] == [exp.var(emit)]
        assert select.args["distinct"] is not None
        assert select.expressions == [exp.column("a")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT istream.x FROM istream",
        'SELECT "istream" FROM s',
        "SELECT istream, a FROM s",
        "SELECT istream = 1 FROM s",
    ],
)
def test_a_column_may_be_called_istream(text: str) -> None:
    select = tree_of(text)
    assert not select.args.get("operation_modifiers")
    assert select.find(exp.Column) is not None


def test_the_function_form_of_relation_to_stream() -> None:
    statement = tree_of("ISTREAM(SELECT a FROM s) MASTER s")
    assert isinstance(statement, ast.Emit)
    assert statement.args["kind"] == "ISTREAM"
    assert isinstance(statement.this, exp.Select)
    assert statement.args["master"] == ast.Master(expressions=[exp.to_identifier("s")])

    source = tree_of("SELECT a FROM ISTREAM(SELECT a FROM s) [ROWS 3] AS x").args["from_"].this
    assert isinstance(source, exp.Subquery)
    assert isinstance(source.this, ast.Emit)
    assert source.args["stream_window"].args["kind"] == "rows"
    assert source.alias == "x"

    union = tree_of("ISTREAM(SELECT a FROM s) UNION (RSTREAM(SELECT a FROM t))")
    assert isinstance(union, exp.Union)
    assert isinstance(union.this, ast.Emit)
    assert isinstance(union.expression, exp.Subquery)
    assert isinstance(union.expression.this, ast.Emit)

    membership = tree_of("SELECT a FROM s WHERE a IN (ISTREAM(SELECT b FROM t))").find(exp.In)
    assert membership is not None
    assert isinstance(membership.args["query"], exp.Subquery)
    assert isinstance(membership.args["query"].this, ast.Emit)

    exists = tree_of("SELECT a FROM s WHERE EXISTS (ISTREAM(SELECT b FROM t))").find(exp.Exists)
    assert exists is not None
    assert isinstance(exists.this, ast.Emit)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s MASTER s, t",
        "SELECT a FROM s [ROWS 2] MASTER s, t",
        "SELECT a FROM s x MASTER s, t",
        "SELECT a FROM s, (SELECT 1) MASTER s, t",
        "SELECT a FROM ISTREAM(SELECT a FROM s) MASTER s, t",
        "SELECT a FROM s WHERE a = b MASTER s, t",
        "SELECT a FROM s GROUP BY a HAVING a > 1 ORDER BY a LIMIT 1 OFFSET 2 MASTER s, t",
        "SELECT a FROM s UNION SELECT b FROM t MASTER s, t",
        "SELECT a FROM s UNION (SELECT b FROM t) MASTER s, t",
        "RSTREAM(SELECT a FROM s) MASTER s, t",
        "(SELECT a FROM s) MASTER s, t",
        "WITH q AS (SELECT a FROM s) SELECT a FROM q MASTER s, t",
    ],
)
def test_master_belongs_to_the_query_around(text: str) -> None:
    query = tree_of(text)
    assert query.args["master"] == ast.Master(expressions=[exp.to_identifier("s"), exp.to_identifier("t")])
    assert len(list(query.find_all(ast.Master))) == 1


def test_a_quoted_master_is_an_alias() -> None:
    query = tree_of('SELECT a FROM s "MASTER"')
    assert "master" not in query.args
    assert query.args["from_"].this.alias == "MASTER"


def test_clauses_of_the_last_operand_belong_to_the_set_operation() -> None:
    union = tree_of("SELECT a FROM s UNION ALL SELECT b FROM t ORDER BY 1 LIMIT 2")
    assert isinstance(union, exp.Union)
    assert union.args["distinct"] is False
    assert union.args["order"]
    assert union.args["limit"]
    assert not union.expression.args.get("order")


def test_joins() -> None:
    text = "SELECT a FROM s, t JOIN u ON s.a = u.a LEFT OUTER JOIN v USING (a, b) CROSS JOIN w"
    comma, inner, left, cross = tree_of(text).args["joins"]
    assert (comma.side, comma.kind, comma.args.get("on")) == ("", "", None)
    assert isinstance(inner.args["on"], exp.EQ)
    assert left.side == "LEFT"
    assert [c.name for c in left.args["using"]] == ["a", "b"]
    assert cross.kind == "CROSS"


def test_names_keep_case_quotes_and_alphabets() -> None:
    select = tree_of('SELECT "Foo", Température AS 温度, date FROM "My Stream"')
    foo, alias, date = select.expressions
    assert (foo.this.name, foo.this.quoted) == ("Foo", True)
    assert (alias.this.name, alias.alias, alias.this.this.quoted) == ("Température", "温度", False)
    assert date.name == "date"
    assert select.args["from_"].this.this == exp.to_identifier("My Stream", quoted=True)


# Windows


@pytest.mark.parametrize(
    ("window", "kind", "args"),
    [
        ("[ROWS 2]", "rows", {"size": exp.Literal.number(2)}),
        ("[ROWS 9 SLIDE 3]", "rows", {"size": exp.Literal.number(9), "slide": exp.Literal.number(3)}),
        ("[ROWS UNBOUNDED]", "unbounded", {}),
        ("[RANGE UNBOUNDED]", "unbounded", {}),
        ("[UNBOUNDED]", "unbounded", {}),
        ("[now]", "now", {}),
        ("[RANGE 10]", "range", {"size": exp.Literal.number(10)}),
        ("[RANGE -10]", "range", {"size": exp.Neg(this=exp.Literal.number(10))}),
        ("[RANGE 10 MINUTES]", "range", {"size": minutes("10")}),
        ("[RANGE 10min]", "range", {"size": minutes("10")}),
        ("[RANGE INTERVAL '10' MINUTE]", "range", {"size": minutes("10")}),
        ("[RANGE INTERVAL 10 MINUTES]", "range", {"size": minutes("10")}),
        ("[RANGE INTERVAL '10 minutes']", "range", {"size": minutes("10")}),
        ("[RANGE '10 minutes']", "range", {"size": minutes("10")}),
        ("[RANGE -10 MINUTES]", "range", {"size": exp.Neg(this=minutes("10"))}),
        ("[RANGE '-10 minutes']", "range", {"size": exp.Neg(this=minutes("10"))}),
        ("[RANGE 1.5 MINUTES SLIDE 1 min]", "range", {"size": minutes("1.5"), "slide": minutes("1")}),
        ("[TUMBLING 1 MINUTE]", "tumbling", {"size": minutes("1")}),
        ("[HOPPING 5 MINUTES EVERY 1 MINUTE]", "hopping", {"size": minutes("5"), "slide": minutes("1")}),
        ("[SESSION GAP 5 MINUTES]", "session", {"gap": minutes("5")}),
        (
            "[PARTITION BY k SESSION GAP 5]",
            "session",
            {"gap": exp.Literal.number(5), "partition_by": [exp.column("k")]},
        ),
        (
            "[PARTITION BY a, s.b ROWS 1]",
            "rows",
            {"size": exp.Literal.number(1), "partition_by": [exp.column("a"), exp.column("b", table="s")]},
        ),
    ],
)
def test_windows(window: str, kind: str, args: dict[str, object]) -> None:
    found = window_of(window)
    assert found.args["kind"] == kind
    assert {key: value for key, value in found.args.items() if value and key != "kind"} == args


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        ("microseconds", "MICROSECOND"), ("us", "MICROSECOND"), ("µs", "MICROSECOND"), ("ms", "MILLISECOND"),
        ("millisecond", "MILLISECOND"), ("s", "SECOND"), ("sec", "SECOND"), ("seconds", "SECOND"),
        ("min", "MINUTE"), ("h", "HOUR"), ("hours", "HOUR"), ("d", "DAY"), ("days", "DAY"), ("weeks", "WEEK"),
    ],
)  # fmt: skip
def test_units_of_time(written: str, unit: str) -> None:
    for text in (f"3 {written}", f"INTERVAL '3' {written}", f"'3 {written.upper()}'"):
        size = window_of(f"[RANGE {text}]").args["size"]
        assert size == exp.Interval(this=exp.Literal.string("3"), unit=exp.var(unit))


def test_generic_windows() -> None:
    args = window_of("[BEGIN WINDOW 0, END WINDOW 10 HOP SIZE (-5, 10), END QUERY 30]").args
    assert args["kind"] == "generic"
    assert (args["begin"], args["end"]) == (exp.Literal.number(0), exp.Literal.number(10))
    assert (args["hop_low"], args["hop_high"]) == (exp.Literal.number(-5), exp.Literal.number(10))
    assert args["end_query"] == exp.Literal.number(30)
    assert not args["tuples"]

    in_tuples = (
        "[BEGIN WINDOW 1 TUPLE END WINDOW 2]",
        "[BEGIN WINDOW 1 END WINDOW 2 TUPLES]",
        "[BEGIN WINDOW 1 END WINDOW 2 HOP SIZE (2, 2 TUPLES)]",
    )
    assert all(window_of(window).args["tuples"] is True for window in in_tuples)

    moments = window_of("[BEGIN WINDOW TIMESTAMP '2024-01-01' END WINDOW TIMESTAMP '2024-01-01' + 5 MINUTES]").args
    assert isinstance(moments["begin"], exp.Cast)
    assert moments["end"] == exp.Add(this=moments["begin"].copy(), expression=minutes("5"))


@pytest.mark.parametrize("source", ["s", "(SELECT a FROM s)", "ISTREAM(SELECT a FROM s)"])
def test_a_window_stands_before_or_behind_the_alias(source: str) -> None:
    before, behind = (tree_of(f"SELECT a FROM {source} {rest}") for rest in ("[ROWS 2] AS x", "x [ROWS 2]"))
    assert before == behind
    assert before.args["from_"].this.args["stream_window"].args["kind"] == "rows"
    assert before.args["from_"].this.alias == "x"


# Expressions


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Upper(a)", FunctionCall("upper", [exp.column("a")])),
        ("f()", FunctionCall("f", [])),
        ("left(a, 1)", FunctionCall("left", [exp.column("a"), exp.Literal.number(1)])),
        ('"Fn"(a)', FunctionCall("fn", [exp.column("a")])),
        ("count(*)", FunctionCall("count", [], star=True)),
        ("COUNT(DISTINCT a, b)", FunctionCall("count", [exp.column("a"), exp.column("b")], distinct=True)),
        ("sum(ALL a)", FunctionCall("sum", [exp.column("a")])),
        ("sum(a) FILTER (WHERE b)", FunctionCall("sum", [exp.column("a")], filter=exp.column("b"))),
        ("extract(HOUR FROM a)", FunctionCall("extract", [exp.Literal.string("hour"), exp.column("a")])),
        ("if(a, b, c)", FunctionCall("if", [exp.column("a"), exp.column("b"), exp.column("c")])),
        ("date(a)", FunctionCall("date", [exp.column("a")])),
        ("a + f(b)", None),
        ("current_timestamp", None),
        ("CAST(a AS INT)", None),
    ],
)
def test_calls(text: str, call: FunctionCall | None) -> None:
    assert function_call(expression_of(text)) == call


def test_operators_bind_as_in_sql() -> None:
    assert expression_of("a DIV b * c") == exp.Mul(
        this=exp.IntDiv(this=exp.column("a"), expression=exp.column("b")), expression=exp.column("c")
    )
    assert expression_of("a + b % c") == exp.Add(
        this=exp.column("a"), expression=exp.Mod(this=exp.column("b"), expression=exp.column("c"))
    )
    assert isinstance(expression_of("NOT a = b OR c AND d"), exp.Or)
    assert expression_of("a NOT LIKE b") == exp.Not(this=exp.Like(this=exp.column("a"), expression=exp.column("b")))
    assert expression_of("a IS NOT NULL") == exp.Not(this=exp.Is(this=exp.column("a"), expression=exp.Null()))
    assert isinstance(expression_of("a IS NOT DISTINCT FROM b"), exp.NullSafeEQ)


def test_casts_and_typed_literals() -> None:
    for text in ("CAST(a AS DECIMAL(10, 2))", "a::DECIMAL(10, 2)", "a::NUMERIC(10, 2)"):
        cast = expression_of(text)
        assert isinstance(cast, exp.Cast)
        assert not isinstance(cast, exp.TryCast)
        assert cast.to.this is exp.DType.DECIMAL
        assert [p.name for p in cast.to.expressions] == ["10", "2"]
    assert isinstance(expression_of("TRY_CAST(a AS INT)"), exp.TryCast)
    outer = expression_of("TIMESTAMP '2024-01-01'::STRING")
    assert isinstance(outer, exp.Cast)
    assert outer.to.this is exp.DType.TEXT
    assert outer.this.to.this is exp.DType.TIMESTAMP


def test_intervals() -> None:
    month = exp.Interval(this=exp.Literal.string("1"), unit=exp.var("MONTH"))
    assert expression_of("INTERVAL '1' MONTH") == month
    assert expression_of("INTERVAL 1 months") == month
    assert expression_of("INTERVAL '-1 month'") == exp.Neg(this=month)
    assert expression_of("INTERVAL '1 hour 30 min'") == exp.Interval(this=exp.Literal.string("1 hour 30 min"))


# Statements


def test_create_stream() -> None:
    stream = tree_of(
        "CREATE STREAM IF NOT EXISTS s (a BIGINT NOT NULL, v FLOAT, at TIMESTAMP) TIMESTAMP BY at "
        "SLACK 2 MINUTES PRIORITY BY a + 1 WITH (buffer = 10)"
    )
    assert isinstance(stream, ast.CreateStream)
    assert stream.this == exp.to_identifier("s")
    assert [(c.name, c.args["kind"].this) for c in stream.args["columns"]] == [
        ("a", exp.DType.BIGINT),
        ("v", exp.DType.FLOAT),
        ("at", exp.DType.TIMESTAMP),
    ]
    assert len(stream.args["columns"][0].args["constraints"]) == 1
    assert stream.args["timestamp_by"] == exp.to_identifier("at")
    assert stream.args["slack"] == minutes("2")
    assert isinstance(stream.args["priority_by"], exp.Add)
    assert stream.args["options"] == [ast.Option(this=exp.to_identifier("buffer"), expression=exp.Literal.number(10))]
    assert stream.args["exists"] is True
    assert not stream.args.get("expression")


def test_create_from_queries() -> None:
    derived = tree_of("CREATE STREAM d AS ISTREAM(SELECT a FROM s)")
    assert isinstance(derived, ast.CreateStream)
    assert isinstance(derived.expression, ast.Emit)
    assert not derived.args.get("columns")
    view = tree_of("CREATE OR REPLACE VIEW v AS SELECT a FROM s")
    assert isinstance(view, ast.CreateView)
    assert view.args["replace"] is True
    query = tree_of("CREATE QUERY q AS SELECT a FROM s MASTER s INTO t WITH (priority = 3, latency = '100 ms')")
    assert isinstance(query, ast.CreateQuery)
    assert query.expression.args["master"]
    assert query.args["into"] == exp.to_identifier("t")
    assert [o.this.name for o in query.args["options"]] == ["priority", "latency"]
    assert not query.expression.args.get("into")


def test_relations_and_their_changes() -> None:
    relation = tree_of("CREATE RELATION r (k INT, name STRING) KEY (k)")
    assert isinstance(relation, ast.CreateRelation)
    assert relation.args["key"] == [exp.to_identifier("k")]
    insert = tree_of("INSERT INTO r (k, name) VALUES (1, 'a'), (2, NULL) AT 5")
    assert isinstance(insert, ast.InsertInto)
    assert [c.name for c in insert.args["columns"]] == ["k", "name"]
    assert [type(row) for row in insert.args["rows"]] == [exp.Tuple, exp.Tuple]
    assert insert.args["at"] == exp.Literal.number(5)
    assert tree_of("INSERT INTO r VALUES (1)").args["columns"] is None
    update = tree_of("UPDATE r SET name = 'b', k = k + 1 WHERE k = 1 AT 6")
    assert isinstance(update, ast.UpdateRelation)
    assert [a.this.name for a in update.args["assignments"]] == ["name", "k"]
    assert isinstance(update.args["where"], exp.EQ)
    assert update.args["at"] == exp.Literal.number(6)
    delete = tree_of("DELETE FROM r WHERE k > 1 AT TIMESTAMP '2024-01-01'")
    assert isinstance(delete, ast.DeleteFrom)
    assert isinstance(delete.args["where"], exp.GT)
    assert isinstance(delete.args["at"], exp.Cast)


def test_statements_about_objects() -> None:
    drop = tree_of("DROP RELATION IF EXISTS r")
    assert isinstance(drop, ast.DropObject)
    assert (drop.args["kind"], drop.args["exists"]) == ("RELATION", True)
    assert tree_of("show queries") == ast.ShowObjects(kind="QUERIES")
    assert tree_of("SHOW ALL QUERIES") == ast.ShowObjects(kind="QUERIES", all=True)
    assert tree_of("DESC FUNCTION f") == ast.DescribeObject(this=exp.to_identifier("f"), kind="FUNCTION")
    plan = tree_of("CREATE QUERY q AS PLAN '{}'")
    assert plan.expression == ast.PlanObject(this=exp.Literal.string("{}"))
    assert tree_of("DESC s") == tree_of("DESCRIBE s") == ast.DescribeObject(this=exp.to_identifier("s"))
    explain = tree_of("EXPLAIN (FORMAT JSON) SELECT a FROM s")
    assert isinstance(explain, ast.Explain)
    assert explain.args["format"] == "JSON"
    assert isinstance(explain.this, exp.Select)
    assert tree_of("EXPLAIN q") == ast.Explain(this=exp.to_identifier("q"), format="TEXT")


# Places and mistakes


def test_positions() -> None:
    text = "SELECT ISTREAM Upper(s.name),\n  'x' || 42\nFROM rooms [ROWS 2] AS s WHERE a IN (\n'two\nlines', b)"
    select = tree_of(text)
    call, concat = select.expressions
    table = select.args["from_"].this
    first, second = select.args["where"].this.expressions
    assert position_of(select) == Position(1, 1, 6)
    assert position_of(select.args["operation_modifiers"][0]) == Position(1, 8, 7)
    assert position_of(call) == Position(1, 16, 5)
    assert position_of(call.expressions[0].this) == Position(1, 24, 4)
    assert position_of(concat) == Position(2, 3, 3)
    assert position_of(concat.expression) == Position(2, 10, 2)
    assert position_of(table) == Position(3, 6, 5)
    assert position_of(table.args["stream_window"]) == Position(3, 12, 8)
    assert position_of(table.args["stream_window"].args["size"]) == Position(3, 18, 1)
    assert position_of(table.args["alias"]) == Position(3, 24, 1)
    assert position_of(first) == Position(4, 1, 4)
    assert position_of(second) == Position(5, 9, 1)
    assert position_of(exp.column("made")) is None


@pytest.mark.parametrize(
    ("text", "line", "column", "length", "words"),
    [
        ("SELECT a FORM s", 1, 10, 4, "did you mean FROM?"),
        ("SELECT a\nFROM s\nWHER a > 1", 3, 1, 4, "did you mean WHERE?"),
        ("SELECT a, FROM s", 1, 11, 4, "after the comma, found `FROM`"),
        ("SELECT FROM s", 1, 8, 4, "expected the columns"),
        ("SELECT a FROM s WHERE a >", 1, 26, 1, "expected an expression, found the end of the statement"),
        ("SELECT a FROM s WHERE a = = 3", 1, 27, 1, "expected an expression, found `=`"),
        ("SELECT a FROM s WHERE b BETWEEN 1 OR 2", 1, 35, 2, "expected AND"),
        ("SELECT a FROM s [ROW 2]", 1, 18, 3, "expected ROWS, RANGE, NOW"),
        ("SELECT a FROM s [ROWS x]", 1, 23, 1, "expected a number of rows, found `x`"),
        ("SELECT a FROM s [ROWS 2", 1, 24, 1, "expected ], found the end"),
        ("SELECT a FROM s [RANGE]", 1, 23, 1, "expected a length of time"),
        ("SELECT a FROM s [RANGE 5 FORTNIGHTS]", 1, 26, 10, "not a unit of time; there are MICROSECONDS"),
        ("SELECT a FROM s [RANGE 'soon']", 1, 24, 6, "'soon' is not a length of time"),
        ("SELECT a FROM s [HOPPING 1 HOUR]", 1, 32, 1, "expected EVERY"),
        ("SELECT a FROM s [SESSION 5]", 1, 26, 1, "expected GAP"),
        ("SELECT a FROM s [PARTITION BY k RANGE 5]", 1, 33, 5, "expected ROWS or SESSION GAP"),
        ("SELECT a FROM s [BEGIN WINDOW 0 END 5]", 1, 37, 1, "expected WINDOW"),
        ("SELECT a FROM s [BEGIN WINDOW 0 END WINDOW 5 HOP SIZE 5]", 1, 55, 1, "HOP SIZE (10, 10)"),
        ("SELECT a FROM s [ROWS 2] [NOW]", 1, 26, 1, "a source has one window"),
        ("SELECT a FROM s ROWS 2", 1, 17, 4, "written in brackets; write [ROWS 2]\n"),
        ("SELECT a FROM s JOIN t", 1, 23, 1, "expected ON"),
        ("SELECT a FROM s LIMIT 1 WHERE a", 1, 25, 5, "WHERE is out of place; the order is WHERE, GROUP BY"),
        ("SELECT a FROM s LIMIT 1 UNION SELECT b FROM t", 1, 25, 5, "LIMIT before UNION"),
        ("SELECT a FROM s UNION", 1, 22, 1, "expected a query"),
        ("SELECT a FROM s MASTER", 1, 23, 1, "expected a stream"),
        ("SELECT a FROM s PRIORITY BY", 1, 28, 1, "expected an expression"),
        ("SELECT a FROM s PRIORITY BY a LIMIT 1", 1, 31, 5, "LIMIT is out of place"),
        ("SELECT ISTREAM DSTREAM a FROM s", 1, 16, 7, "only one of ISTREAM"),
        ("SELECT a FROM s WHERE istream(a)", 1, 23, 7, "write SELECT ISTREAM"),
        ("SELECT a FROM ISTREAM(s)", 1, 23, 1, "expected a query"),
        ("SELECT a AS select FROM s", 1, 13, 6, 'quoted to be a name: "select"'),
        ("SELECT a.b.c FROM s", 1, 8, 1, "`source.name`"),
        ("SELECT a FROM a.b", 1, 16, 1, "one part"),
        ("SELECT count(a FROM s", 1, 16, 4, "expected ), found `FROM`"),
        ("SELECT CASE WHEN a THEN 1 FROM s", 1, 27, 4, "expected WHEN, ELSE or END"),
        ("SELECT CAST(a AS NUMBER) FROM s", 1, 18, 6, "the types are BOOLEAN, INT, BIGINT"),
        ("SELECT 'a' 'b' FROM s", 1, 8, 3, "join them with ||"),
        ("SELECT INTERVAL '5' FROM s", 1, 21, 4, "expected a unit of time"),
        ("SELECT a FROM s WHERE a IN 5", 1, 28, 1, "after IN"),
        ("SELECT 'abc", 1, 8, 1, "this string is not closed; expected '"),
        ('SELECT a,\n "abc FROM s', 2, 2, 1, "this quoted name is not closed"),
        ("SELECT 1 -- it's\n/* x", 2, 1, 2, "this comment is not closed; expected */"),
        ("SELECT €x FROM s", 1, 8, 2, "is not a name"),
        ("CREATE TABLE t (a INT)", 1, 8, 5, "TABLE is not part of CQL; expected STREAM, RELATION"),
        ("CREATE STREAM s (a INTT)", 1, 20, 4, "expected a type, found `INTT`"),
        ("CREATE STREAM s (a INT", 1, 23, 1, "NOT NULL or ), found the end"),
        ("CREATE RELATION s (a INT PRIMARY KEY)", 1, 26, 7, "write KEY (…)"),
        ("CREATE STREAM s", 1, 16, 1, "or AS and a query"),
        ("CREATE OR REPLACE STREAM s (a INT)", 1, 19, 6, "only a view can be replaced"),
        ("SHOW TABLES", 1, 6, 6, "expected STREAMS, RELATIONS, QUERIES"),
        ("INSERT INTO s VALUES 1", 1, 22, 1, "expected ( and the values"),
        ("UPDATE r SET a", 1, 15, 1, "expected ="),
        ("STOP q", 1, 6, 1, "expected QUERY"),
        ("EXPLAIN (FORMAT XML) q", 1, 17, 3, "expected TEXT, JSON or MERMAID"),
        ("SHOW STREAMS;\nfoo bar", 2, 1, 3, "expected a statement (SELECT"),
        ("SELECT a FROM s; SELECT b FROM; SHOW STREAMS", 1, 31, 1, "expected a stream, relation, view"),
    ],
)
def test_mistakes(text: str, line: int, column: int, length: int, words: str) -> None:
    with pytest.raises(CqlSyntaxError) as caught:
        parse(text)
    assert caught.value.position == Position(line, column, length)
    assert caught.value.text == text
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT sum(a) OVER (ORDER BY b) FROM s", "OVER"),
        ("SELECT a FROM s PIVOT (sum(a) FOR b IN (1))", "PIVOT"),
        ("SELECT a FROM s, LATERAL (SELECT 1)", "LATERAL"),
        ("SELECT a FROM UNNEST(x)", "UNNEST"),
        ("SELECT a FROM s GROUP BY ROLLUP (a)", "ROLLUP"),
        ("SELECT a FROM s QUALIFY a > 1", "QUALIFY"),
        ("SELECT a FROM s TABLESAMPLE (5 ROWS)", "TABLESAMPLE"),
        ("SELECT DISTINCT ON (a) a FROM s", "DISTINCT ON"),
        ("WITH RECURSIVE q AS (SELECT 1) SELECT 1", "RECURSIVE"),
        ("MERGE INTO s", "MERGE"),
        ("DROP TABLE s", "TABLE"),
    ],
)
def test_what_other_systems_have_is_named(text: str, word: str) -> None:
    with pytest.raises(CqlSyntaxError, match=f"{word} is not part of CQL") as caught:
        parse(text)
    assert caught.value.position is not None


def test_an_error_is_drawn_under_its_line() -> None:
    with pytest.raises(CqlSyntaxError) as caught:
        parse("SELECT a\nFROM s [ROW 2]\nWHERE a > 1")
    message, source, caret = str(caught.value).splitlines()
    assert message.startswith("line 2, column 9: expected ROWS")
    assert source == "  FROM s [ROW 2]"
    assert caret == "          ^^^"


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    with pytest.raises(CqlSyntaxError, match="nested too deeply"):
        parse("SELECT " + "(" * 5000 + "1" + ")" * 5000)
