"""Printing a parsed statement and parsing that again gives an equal tree."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from sqlglot import exp
from tests.budget import examples

from penstock.cql.text import format_statement, parse
from penstock.model.errors import CqlSyntaxError

QUERIES = [
    "SELECT 1",
    "SELECT * FROM s",
    "SELECT s.*, 1 AS one FROM s",
    "SELECT ISTREAM a, v FROM s [ROWS 2] WHERE v > 1",
    "SELECT DSTREAM DISTINCT a FROM s",
    "SELECT DISTINCT RSTREAM a FROM s",
    "SELECT ISTREAM * FROM s",
    "SELECT ISTREAM -a FROM s",
    "SELECT ISTREAM (a + 1) * 2 AS b FROM s",
    "select istream count(*) from s",
    "SELECT istream.x FROM istream",
    "SELECT istream, dstream AS d FROM s",
    "SELECT istream * 2 FROM s",
    'SELECT "istream" FROM "ISTREAM"',
    "ISTREAM(SELECT a FROM s)",
    "RSTREAM(SELECT a FROM s UNION SELECT a FROM r) MASTER s, r",
    "DSTREAM(WITH q AS (SELECT a FROM s) SELECT a FROM q)",
    "SELECT a FROM ISTREAM(SELECT a FROM s [NOW]) [ROWS 3] AS x",
    "SELECT a FROM ISTREAM(SELECT a FROM s) x [ROWS 3] MASTER s",
    "SELECT a FROM (ISTREAM(SELECT a FROM s) MASTER s) AS x",
    "SELECT a FROM s MASTER s",
    "SELECT a FROM s PRIORITY BY a + 1",
    "SELECT a FROM s UNION ALL SELECT a FROM r PRIORITY BY a MASTER s",
    "SELECT a priority FROM s priority PRIORITY BY priority.a > 2 MASTER s",
    "SELECT a, count(*) FROM s GROUP BY a ORDER BY a LIMIT 3 PRIORITY BY a MASTER s",
    "SELECT x FROM (SELECT a AS x FROM s PRIORITY BY a) AS y",
    "SELECT a FROM s [ROWS 2] MASTER s",
    "SELECT a FROM s x MASTER x, t",
    'SELECT a FROM s "master" [NOW] MASTER s',
    "SELECT a FROM s WHERE a > 1 GROUP BY a HAVING count(*) > 1 ORDER BY a DESC LIMIT 3 OFFSET 1 MASTER s",
    "SELECT a FROM s UNION ALL SELECT b FROM t ORDER BY a LIMIT 1 MASTER s",
    "SELECT a FROM s UNION SELECT b FROM t EXCEPT ALL SELECT c FROM u",
    "SELECT a FROM s UNION SELECT b FROM t INTERSECT SELECT c FROM u",
    "(SELECT a FROM s LIMIT 2) UNION (SELECT b FROM t MASTER t) MASTER s",
    "ISTREAM(SELECT a FROM s) UNION ALL ISTREAM(SELECT b FROM t)",
    "(ISTREAM(SELECT a FROM s)) EXCEPT (SELECT b FROM t)",
    "WITH q AS (SELECT a FROM s [ROWS 2]), r AS (SELECT 1 AS b) SELECT a, b FROM q, r MASTER s",
    "WITH q AS (SELECT a FROM s) SELECT a FROM q UNION SELECT a FROM q",
    "WITH q AS (SELECT a FROM s) ISTREAM(SELECT a FROM q)",
    "SELECT a FROM (SELECT a FROM s) [RANGE 5 SECONDS] AS x (b)",
    "SELECT a FROM ((SELECT a FROM s) UNION (SELECT b FROM t)) AS x",
    "SELECT a FROM s, t, u WHERE s.a = t.a",
    "SELECT a FROM s JOIN t ON s.a = t.a LEFT JOIN u ON t.a < u.a OR u.b IS NULL",
    "SELECT a FROM s [ROWS 1] FULL OUTER JOIN t [NOW] y ON s.a = y.a RIGHT JOIN v USING (a, b) CROSS JOIN w",
    "SELECT a FROM s INNER JOIN (SELECT b FROM t) AS x ON a = b",
    "SELECT a FROM s WHERE a IN (SELECT b FROM t [ROWS 5]) AND NOT EXISTS (SELECT 1 FROM u WHERE u.a = s.a)",
    "SELECT a FROM s WHERE a IN (ISTREAM(SELECT b FROM t)) OR EXISTS(ISTREAM(SELECT 1 FROM t))",
    "SELECT a FROM s WHERE a NOT IN (1, 2, 3) AND b NOT IN ('x')",
    "SELECT a FROM s WHERE a IN ((SELECT b FROM t) UNION (SELECT c FROM u))",
    "SELECT a FROM s WHERE a > (SELECT max(b) FROM t)",
    "SELECT a FROM s WHERE (a NOT IN (1) = b) = (b = a NOT LIKE 'x')",
    "SELECT a FROM s WHERE a BETWEEN 1 AND 2 + 3 AND b NOT BETWEEN -1 AND 1",
    "SELECT a FROM s WHERE a LIKE 'x!%%' ESCAPE '!' OR a NOT ILIKE '%y' OR NOT a LIKE b",
    "SELECT a FROM s WHERE a IS NULL OR b IS NOT NULL OR c IS TRUE OR d IS NOT FALSE",
    "SELECT a FROM s WHERE a IS DISTINCT FROM b AND c IS NOT DISTINCT FROM d",
    "SELECT a + b * c - d / e % f, a DIV 2 * 3, -a, - -1, +2, a || 'x' || b FROM s",
    "SELECT (a + b) * c, NOT a AND NOT (b OR c), a <> b, a != b FROM s",
    "SELECT CASE WHEN a > 1 THEN 'x' WHEN a > 0 THEN 'y' ELSE 'z' END AS k, CASE a WHEN 1 THEN 2 END FROM s",
    "SELECT CAST(a AS BIGINT), a::DOUBLE, TRY_CAST(a AS DECIMAL(10, 2)), a::STRING::INT FROM s",
    "SELECT CAST(a AS INTERVAL), TIMESTAMP '2024-01-01'::STRING FROM s",
    "SELECT count(*), count(DISTINCT a, b), sum(ALL a), avg(a) FILTER (WHERE a > 0) FROM s",
    'SELECT Coalesce(a, 0), nullif(a, b), left(a, 3), right(a, 1), date(a), "My Fn"(a), f() FROM s',
    "SELECT EXTRACT(hour FROM at), extract('minute', at), date_trunc('hour', at) FROM s",
    "SELECT TRIM(LEADING '0' FROM a), trim(BOTH FROM a || b), trim('x' FROM a), trim(a), trim(both), both FROM s",
    "SELECT first(a), last(a), replace(a, 'x', 'y'), if(a, 1, 2), mod(a, 2), trim(a), concat(a, b) FROM s",
    "SELECT TIMESTAMP '2024-01-01 00:00:00', DATE '2024-01-01' FROM s",
    "SELECT TRUE, FALSE, NULL, 1.5, 1e3, .5, 'it''s' FROM s",
    "SELECT at + INTERVAL '1' MONTH, at - INTERVAL 2 YEARS, INTERVAL '1.5 hours', INTERVAL '-3' DAY FROM s",
    "SELECT INTERVAL '1 hour 30 minutes', -INTERVAL 5 ms, a - -INTERVAL '1' SECOND FROM s",
    "SELECT date, timestamp, interval, filter, master, rows, range, begin, stream, query FROM s",
    "SELECT range.rows AS window, t.date now FROM range, t",
    'SELECT "Foo", "sel""ect" AS "select", é, 温度 AS température FROM "My Stream" [ROWS 1] AS "X"',
    "SELECT a[1], collect(b)[0] FROM s",
    "SELECT a FROM s ORDER BY a, b DESC, c ASC NULLS LAST, d DESC NULLS FIRST LIMIT 10",
    "SELECT window_start, count(*) AS n FROM s [TUMBLING 1 HOUR] GROUP BY window_start",
]

WINDOWS = [
    "[ROWS 2]",
    "[ROWS 10 SLIDE 5]",
    "[ROWS 10, SLIDE 5]",
    "[ROWS UNBOUNDED]",
    "[RANGE UNBOUNDED]",
    "[UNBOUNDED]",
    "[NOW]",
    "[PARTITION BY a ROWS 3]",
    "[PARTITION BY a, s.b ROWS 3 SLIDE 2]",
    "[PARTITION BY a, ROWS 3]",
    "[RANGE 10]",
    "[RANGE -10]",
    "[RANGE 10 MINUTES]",
    "[RANGE 1.5 SECONDS SLIDE 100 ms]",
    "[RANGE INTERVAL '10' MINUTE SLIDE INTERVAL 5 MINUTES]",
    "[RANGE INTERVAL '10 minutes']",
    "[RANGE '10 minutes']",
    "[RANGE '1 hour 30 min']",
    "[RANGE -'10 minutes']",
    "[TUMBLING 1 HOUR]",
    "[HOPPING 1 HOUR EVERY 10 MINUTES]",
    "[SESSION GAP 30 sec]",
    "[PARTITION BY k SESSION GAP 30]",
    "[BEGIN WINDOW 0 END WINDOW 10 HOP SIZE (10, 10) END QUERY 30]",
    "[BEGIN WINDOW 0, END WINDOW 10, HOP SIZE (0, 10), END QUERY 30]",
    "[BEGIN WINDOW 1 TUPLE END WINDOW 2 TUPLES HOP SIZE (2 TUPLES, 2 TUPLES)]",
    "[BEGIN WINDOW 0 END WINDOW 10]",
    "[BEGIN WINDOW 20 END WINDOW 30 HOP SIZE (-10, -10) END QUERY 0]",
    "[BEGIN WINDOW TIMESTAMP '2024-01-01 10:00:00' END WINDOW TIMESTAMP '2024-01-01 10:00:00' + 1 HOUR"
    " HOP SIZE (1 HOUR, -INTERVAL '1' HOUR) END QUERY TIMESTAMP '2024-01-01 22:00:00']",
]

STATEMENTS = [
    "CREATE STREAM s (a BIGINT, v DOUBLE, at TIMESTAMP) TIMESTAMP BY at",
    "CREATE STREAM IF NOT EXISTS s (a INT NOT NULL, b INTEGER, c BOOLEAN, d REAL, e FLOAT,"
    " f DOUBLE PRECISION, g DECIMAL(10, 2), h NUMERIC(5), i STRING, j VARCHAR, k TEXT,"
    " l BINARY, m BYTES, n DATE, o INTERVAL, p DECIMAL)"
    " TIMESTAMP BY n SLACK 5 SECONDS PRIORITY BY CASE WHEN a > 1 THEN 9 ELSE 0 END"
    " WITH (buffer = 100, policy = 'spill', latency = 100 ms)",
    "CREATE STREAM s (at BIGINT) TIMESTAMP BY at SLACK 2",
    "CREATE STREAM s (date DATE, timestamp TIMESTAMP) PRIORITY BY a + 1",
    "CREATE STREAM d AS SELECT ISTREAM a FROM s [NOW]",
    "CREATE STREAM d AS ISTREAM(SELECT a FROM s) MASTER s",
    "CREATE VIEW v AS SELECT a FROM s",
    "CREATE OR REPLACE VIEW v AS (SELECT a FROM s) UNION SELECT b FROM t",
    "CREATE RELATION r (k BIGINT, name STRING) KEY (k)",
    "CREATE RELATION IF NOT EXISTS r (k BIGINT, n STRING) KEY (k, n) WITH (x = true)",
    "CREATE QUERY q AS SELECT a FROM s INTO t WITH (priority = 3, latency = '100 ms')",
    "CREATE QUERY q AS SELECT a FROM s [ROWS 2] MASTER s INTO t",
    "CREATE QUERY IF NOT EXISTS q AS SELECT a FROM s",
    "CREATE QUERY q AS WITH x AS (SELECT a FROM s) SELECT a FROM x WITH (priority = 0)",
    "STOP QUERY q",
    "ALTER QUERY q SET (priority = 9, latency = NULL, lag = '100 rows')",
    "SUSPEND QUERY q",
    "RESUME QUERY q",
    "DROP STREAM s",
    "DROP RELATION IF EXISTS r",
    "DROP VIEW v",
    'DROP QUERY "Q 1"',
    "SHOW STREAMS",
    "show relations",
    "SHOW QUERIES",
    "show all queries",
    "SHOW VIEWS",
    "SHOW FUNCTIONS",
    "DESCRIBE s",
    "DESC stream",
    "DESCRIBE STREAM s",
    "DESC FUNCTION f",
    "DESCRIBE function",
    "CREATE QUERY q AS PLAN '{\"penstock_plan\": 1, \"it''s\": \"\\\\n\"}' INTO t WITH (priority = 3)",
    "EXPLAIN SELECT a FROM s",
    "EXPLAIN (FORMAT JSON) SELECT a FROM s UNION SELECT b FROM t",
    "EXPLAIN (FORMAT MERMAID) q",
    "EXPLAIN (FORMAT TEXT) ISTREAM(SELECT a FROM s)",
    "EXPLAIN (SELECT a FROM s)",
    "INSERT INTO s VALUES (1, 'x', NULL), (2, 'y', -1.5)",
    "INSERT INTO r (k, name) VALUES (1, upper('a')) AT TIMESTAMP '2024-01-01'",
    "INSERT INTO r VALUES (1) AT 5 + 2",
    "UPDATE r SET name = 'x', k = k + 1 WHERE k = 1 AND name IS NULL AT 7",
    "UPDATE r SET name = 'x'",
    "DELETE FROM r WHERE k IN (1, 2) AT 9",
    "DELETE FROM r",
]


def tree_of(text: str) -> exp.Expr:
    (statement,) = parse(text)
    return statement.tree


def assert_round_trip(text: str) -> None:
    tree = tree_of(text)
    before = repr(tree)
    printed = format_statement(tree)
    assert tree_of(printed) == tree, printed
    assert repr(tree_of(printed)) == before
    assert format_statement(tree_of(printed)) == printed
    assert repr(tree) == before, "printing changed the tree"


@pytest.mark.parametrize("text", QUERIES)
def test_queries(text: str) -> None:
    assert_round_trip(text)


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements(text: str) -> None:
    assert_round_trip(text)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("source", ["s", "(SELECT a FROM t)", "ISTREAM(SELECT a FROM t)"])
def test_windows(window: str, source: str) -> None:
    assert_round_trip(f"SELECT a FROM {source} {window} AS x")
    assert tree_of(f"SELECT a FROM {source} x {window}") == tree_of(f"SELECT a FROM {source} {window} AS x")


def test_comments_stay() -> None:
    text = "-- all of them\nSELECT a -- the first\nFROM s /* a /* nested */ one */ WHERE a > 1 -- end"
    printed = format_statement(tree_of(text))
    assert tree_of(printed) == tree_of(text)
    assert all(comment in printed for comment in ("/* all of them */", "/* the first */", "/* end */"))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("select distinct istream A from S x", "SELECT ISTREAM DISTINCT A FROM S AS x"),
        ("SELECT a FROM s x [ RANGE '90 min' ]", "SELECT a FROM s [RANGE 90 MINUTES] AS x"),
        ("SELECT a FROM s [ROWS UNBOUNDED]", "SELECT a FROM s [UNBOUNDED]"),
        (
            "SELECT a FROM s [BEGIN WINDOW 1, END WINDOW 2 TUPLES]",
            "SELECT a FROM s [BEGIN WINDOW 1 TUPLES END WINDOW 2 TUPLES]",
        ),
        (
            "SELECT a FROM s WHERE NOT a IN (1) AND NOT b IS NULL",
            "SELECT a FROM s WHERE a NOT IN (1) AND b IS NOT NULL",
        ),
        ("SELECT a div 2, a != b FROM s", "SELECT a DIV 2, a <> b FROM s"),
        ("SELECT a FROM s LEFT OUTER JOIN t USING(a)", "SELECT a FROM s LEFT JOIN t USING (a)"),
        ("SELECT extract('HOUR', at) FROM s", "SELECT EXTRACT(hour FROM at) FROM s"),
        ("SELECT CAST('2024-01-01' AS DATE), Max(a) FROM s", "SELECT DATE '2024-01-01', Max(a) FROM s"),
        ("CREATE STREAM s (a FLOAT, b VARCHAR, c BYTES)", "CREATE STREAM s (a REAL, b STRING, c BINARY)"),
    ],
)
def test_one_way_to_write_it(text: str, printed: str) -> None:
    assert format_statement(tree_of(text)) == printed


NAMES = st.sampled_from(["a", "b", "Temp", "date", "rows", "master", "istream", '"A b"', '"from"', "é", "温度"])
SOURCES = st.sampled_from(["s", "t", "Rooms", '"S 1"', "range", "query"])
NUMBERS = st.one_of(st.integers(0, 10**6).map(str), st.sampled_from(["1.5", "0.25", "1e3", ".5"]))
STRINGS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5).map(
    lambda s: "'" + s.replace("'", "''") + "'"
)
UNITS = st.sampled_from(["us", "ms", "s", "sec", "SECONDS", "minute", "MIN", "h", "hours", "d", "days", "week"])
DURATIONS = st.one_of(
    st.integers(1, 999).map(str),
    st.builds("{} {}".format, st.sampled_from(["1", "10", "1.5"]), UNITS),
    st.builds("INTERVAL '{}' {}".format, st.integers(1, 99), UNITS),
    st.builds("'{} {}'".format, st.integers(-9, 99), UNITS),
)
COLUMNS = st.one_of(NAMES, st.builds("{}.{}".format, SOURCES, NAMES))


def operations(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = ["+", "-", "*", "/", "%", "DIV", "||", "=", "<>", "<", ">=", "AND", "OR", "LIKE", "NOT ILIKE",
              "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]  # fmt: skip
    return st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(binary), inner),
        st.builds("({})".format, inner),
        st.builds("{} {}".format, st.sampled_from(["NOT", "-", "+"]), inner),
        st.builds("{} {}".format, inner, st.sampled_from(["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE"])),
        st.builds("{} {} ({}, {})".format, inner, st.sampled_from(["IN", "NOT IN"]), inner, inner),
        st.builds("({}) {} ({}) AND ({})".format, inner, st.sampled_from(["BETWEEN", "NOT BETWEEN"]), inner, inner),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, inner, inner, inner),
        st.builds("CASE {} WHEN {} THEN {} END".format, inner, inner, inner),
        st.builds("CAST({} AS {})".format, inner, st.sampled_from(["INT", "STRING", "DECIMAL(9, 2)"])),
        st.builds("({})::DOUBLE".format, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["f", "Coalesce", "left", "date", "concat"]), inner, inner),
        st.builds("sum(DISTINCT {}) FILTER (WHERE {})".format, inner, inner),
        st.builds("EXTRACT(hour FROM {})".format, inner),
    )


EXPRESSIONS = st.recursive(
    st.one_of(
        COLUMNS,
        NUMBERS,
        STRINGS,
        st.sampled_from(["NULL", "TRUE", "FALSE", "count(*)", "TIMESTAMP '2024-01-01'", "INTERVAL '1' MONTH"]),
    ),
    operations,
    max_leaves=8,
)
BOUNDS = st.one_of(
    st.integers(-99, 99).map(str), st.builds("TIMESTAMP '2024-01-01' + {} HOURS".format, st.integers(0, 9))
)
STREAM_WINDOWS = st.one_of(
    st.sampled_from(["", "[NOW]", "[UNBOUNDED]", "[RANGE UNBOUNDED]"]),
    st.builds("[ROWS {}]".format, st.integers(0, 99)),
    st.builds("[ROWS {} SLIDE {}]".format, st.integers(1, 9), st.integers(1, 9)),
    st.builds("[PARTITION BY {}, {} ROWS {}]".format, NAMES, COLUMNS, st.integers(1, 9)),
    st.builds("[RANGE {}]".format, DURATIONS),
    st.builds("[RANGE {} SLIDE {}]".format, DURATIONS, DURATIONS),
    st.builds("[TUMBLING {}]".format, DURATIONS),
    st.builds("[HOPPING {} EVERY {}]".format, DURATIONS, DURATIONS),
    st.builds("[SESSION GAP {}]".format, DURATIONS),
    st.builds("[BEGIN WINDOW {} END WINDOW {}{}]".format, BOUNDS, BOUNDS, st.sampled_from(["", " TUPLES"])),
    st.builds("[BEGIN WINDOW {}, END WINDOW {} HOP SIZE ({}, {}) END QUERY {}]".format, *[BOUNDS] * 5),
)


@st.composite
def queries(draw: st.DrawFn, depth: int = 1) -> str:
    kind = draw(st.sampled_from(["select"] * 4 + ["emit", "set", "with"])) if depth else "select"
    if kind == "emit":
        emit = draw(st.sampled_from(["ISTREAM", "dstream", "RSTREAM"]))
        return f"{emit}({draw(queries(depth - 1))}){draw(st.sampled_from(['', ' MASTER s, t']))}"
    if kind == "set":
        operation = draw(st.sampled_from(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "INTERSECT ALL"]))
        left, right = draw(queries(depth - 1)), draw(queries(depth - 1))
        return f"({left}) {operation} ({right}){draw(st.sampled_from(['', ' ORDER BY a LIMIT 2', ' MASTER s']))}"
    if kind == "with":
        return f"WITH q AS ({draw(queries(depth - 1))}) {draw(select(depth))}"
    return draw(select(depth))


@st.composite
def select(draw: st.DrawFn, depth: int) -> str:
    emit = draw(st.sampled_from(["", "ISTREAM ", "DSTREAM ", "RSTREAM ", "DISTINCT ", "ISTREAM DISTINCT "]))
    columns = draw(st.lists(EXPRESSIONS, min_size=1, max_size=3))
    text = f"SELECT {emit}" + ", ".join(f"({c}) AS c{i}" for i, c in enumerate(columns))
    text += f" FROM {draw(source(depth))}"
    join = draw(st.sampled_from(["", ", ", " CROSS JOIN ", " JOIN ", " LEFT JOIN ", " FULL OUTER JOIN "]))
    if join:
        text += join + draw(source(depth))
        text += f" ON {draw(EXPRESSIONS)}" if join not in (", ", " CROSS JOIN ") else ""
    conditions = draw(st.lists(EXPRESSIONS, max_size=2))
    if depth and draw(st.integers(0, 4)) == 0:
        conditions.append(f"a NOT IN ({draw(queries(depth - 1))})")
    if conditions:
        text += f" WHERE {' AND '.join(conditions)}"
    if draw(st.booleans()):
        text += f" GROUP BY {draw(EXPRESSIONS)} HAVING {draw(EXPRESSIONS)}"
    if draw(st.booleans()):
        order = draw(st.sampled_from(["", " ASC", " DESC", " NULLS LAST", " DESC NULLS FIRST"]))
        text += f" ORDER BY {draw(EXPRESSIONS)}{order} LIMIT {draw(st.integers(0, 9))}"
    return text + draw(st.sampled_from(["", " MASTER s", ' MASTER s, "T"']))


@st.composite
def source(draw: st.DrawFn, depth: int) -> str:
    window = draw(STREAM_WINDOWS)
    alias = draw(st.sampled_from(["", "x", "AS x", 'AS "X y"']))
    inner = draw(SOURCES)
    if depth and draw(st.integers(0, 3)) == 0:
        inner = f"({draw(queries(depth - 1))})"
    elif depth and draw(st.integers(0, 3)) == 0:
        inner = f"ISTREAM({draw(queries(depth - 1))})"
    return " ".join([inner, alias, window] if draw(st.booleans()) else [inner, window, alias])


def assert_round_trip_if_cql(text: str) -> None:
    """Precedence makes some generated texts no CQL, like ``a IN (1) / 2``."""
    try:
        parse(text)
    except CqlSyntaxError:
        reject()
    assert_round_trip(text)


@settings(max_examples=examples(200), deadline=None)
@given(EXPRESSIONS)
def test_any_expression(text: str) -> None:
    assert_round_trip_if_cql(f"SELECT {text} AS x FROM s WHERE {text}")


@settings(max_examples=examples(60), deadline=None)
@given(queries())
def test_any_query(text: str) -> None:
    assert_round_trip_if_cql(f"CREATE QUERY q AS {text} INTO t WITH (priority = 1)")
