"""A plain SELECT: what it may name and call, its limits, its errors."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.model.errors import BindError, CatalogError, CqlSyntaxError, PenstockError, QueryFailed
from penstock.server.adhoc import AdHoc

SECRET = pa.table({"x": [1]})
"""A name that a replacement scan would find."""


def never() -> pa.Table:
    raise AssertionError("a table that is not named is not made")


TABLES: dict[str, Callable[[], pa.Table]] = {
    "s": lambda: pa.table(
        {
            "k": ["a", "b", None, "ß"],
            "x": pa.array([1, 2, None, -3], pa.int64()),
            "t": pa.array([0, 1, None, 86_400_000_000], pa.timestamp("us")),
        }
    ),
    "sys.queries": lambda: pa.table({"name": ["q"]}),
    "Größe": lambda: pa.table({"größe": [1], "a b": [2]}),
    "real": lambda: pa.table({"r": pa.array([0.1, None], pa.float32()), "i": [1, 2]}),
    "never": never,
}


@pytest.fixture(scope="module")
def adhoc() -> AdHoc:
    return AdHoc()


def rows(adhoc: AdHoc, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    table = adhoc.select(sql, TABLES, parameters)
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT x, k FROM s WHERE x > 1", [(2, "b")]),
        ("FROM s SELECT count(*)", [(4,)]),
        ("VALUES (1, 'a'), (2, NULL)", [(1, "a"), (2, None)]),
        ("SELECT 1 UNION ALL SELECT 2", [(1,), (2,)]),
        ("WITH a AS (SELECT x FROM s), b AS (SELECT x FROM a) SELECT max(x) FROM b", [(2,)]),
        ("WITH s AS (SELECT x FROM s WHERE x = 1) SELECT * FROM s", [(1,)]),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n",
         [(1,), (2,), (3,)]),
        ("SELECT name FROM sys.queries", [("q",)]),
        ("SELECT sys.queries.name, q.name FROM sys.queries, sys.queries AS q", [("q", "q")]),
        ('SELECT "größe", "a b" FROM "Größe"', [(1, 2)]),
        ("SELECT größe FROM größe", [(1,)]),
        ("SELECT S.X FROM S ORDER BY 1", [(None,), (-3,), (1,), (2,)]),
        ("SELECT x FROM s ORDER BY x DESC", [(2,), (1,), (-3,), (None,)]),
        ("SELECT upper(k) /* kein ' Ende */ FROM s -- copy s to 'x'\n WHERE k = 'ß' ;", [("SS",)]),
        ("SELECT k FROM s WHERE x = (SELECT max(x) FROM s)", [("b",)]),
        ("SELECT (SELECT max(x) FROM s) + 1", [(3,)]),
        ("SELECT i FROM range(2) AS r(i)", [(0,), (1,)]),
        ("SELECT row_number() OVER (ORDER BY x), sum(x) OVER (ORDER BY x) FROM s ORDER BY 1",
         [(1, None), (2, -3), (3, -2), (4, 0)]),
        ("SELECT sum(DISTINCT x) FILTER (WHERE x > 0) FROM s", [(3,)]),
        ("SELECT x FROM s WHERE t > '1970-01-01' AND x BETWEEN 0 AND 5", [(2,)]),
        ("SELECT date_trunc('day', max(t)), t - TIMESTAMP '1970-01-01' FROM s WHERE x < 0 GROUP BY t",
         [(datetime(1970, 1, 2), datetime(1970, 1, 2) - datetime(1970, 1, 1))]),
        ("SELECT t + INTERVAL '1.5' DAY FROM s WHERE x = 1", [(datetime(1970, 1, 2, 12),)]),
        ("SELECT CAST('nope' AS INT), 1 / 0, 9223372036854775807 + 1", [(None, None, None)]),
        ("SELECT r, r > 0.1, i + r FROM real WHERE r IS NOT NULL",
         [(0.10000000149011612, True, 1.1000000014901161)]),
    ],
)  # fmt: skip
def test_select(adhoc: AdHoc, sql: str, expected: list[tuple[object, ...]]) -> None:
    assert rows(adhoc, sql) == expected


def test_parameters_are_values(adhoc: AdHoc) -> None:
    assert rows(adhoc, "SELECT x, ? FROM s WHERE k = ?", "'; DROP", "a") == [(1, "'; DROP")]
    assert rows(adhoc, "SELECT $2, $1", 1, None) == [(None, 1)]
    with pytest.raises(BindError, match="2 parameters, got 1"):
        rows(adhoc, "SELECT $2", 1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('s')",
        "SELECT * FROM main.range(2)",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM \"/etc/passwd\"",
        "SELECT * FROM SECRET",
        "SELECT * FROM TABLES",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM duckdb_settings",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM \"table 0\"",
        "SELECT * FROM memory.main.s",
        "SELECT (SELECT 1 FROM '/etc/passwd')",
        "WITH a AS (SELECT * FROM read_csv('/etc/passwd')) SELECT 1",
        "SELECT 1 ORDER BY (SELECT 1 FROM read_csv('/etc/passwd'))",
        "SELECT 1 WHERE EXISTS (FROM read_csv('/etc/passwd'))",
        "SELECT x FROM s JOIN read_csv('/etc/passwd') ON true",
        "SELECT getenv('HOME')",
        "SELECT getvariable('x')",
        "SELECT current_setting('threads')",
        "SELECT read_blob('/etc/passwd')",
        "SELECT cql_text(1)",
        "SELECT main.upper('a')",
        "SELECT nextval('x')",
        "SELECT list_transform([1], lambda z: getenv('HOME'))",
        "SELECT CAST('s' AS regclass)",
        "COPY s TO '/tmp/x'",
        "COPY (SELECT 1) TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 9",
        "RESET threads",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "EXPORT DATABASE '/tmp/x'",
        "CREATE TABLE x AS SELECT 1",
        "CREATE MACRO upper(x) AS x",
        "INSERT INTO s VALUES (1)",
        "DELETE FROM s",
        "WITH x AS (INSERT INTO s VALUES (1) RETURNING 1) SELECT * FROM x",
        "DESCRIBE s",
        "SHOW TABLES",
        "SUMMARIZE s",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY s TO '/tmp/x'",
        "",
        "   -- nothing",
        "SELECT",
        "SELECT 'open",
        "\x00",
        "SELECT * FROM s USING SAMPLE 1",
        "SELECT * FROM s AT (VERSION => 1)",
        "SELECT first(x) FROM s",
        "SELECT upper(k) OVER () FROM s",
    ],
)  # fmt: skip
def test_only_select_of_given_tables(adhoc: AdHoc, sql: str) -> None:
    with pytest.raises(PenstockError) as caught:
        adhoc.select(sql, TABLES)
    assert not isinstance(caught.value, QueryFailed)
    assert "root:" not in str(caught.value)
    assert rows(adhoc, "SELECT count(*) FROM s") == [(4,)]


def test_duckdb_is_locked_also_without_our_checks(adhoc: AdHoc, tmp_path: Path) -> None:
    """Nothing outside is reached by what the checks might overlook."""
    base = adhoc._base
    for sql in ("SELECT * FROM read_csv('/etc/passwd')", "FROM '/etc/passwd'", f"COPY (SELECT 1) TO '{tmp_path}/x'",
                f"ATTACH '{tmp_path}/x.db'", "INSTALL httpfs", "SET threads = 9", "SET enable_external_access = true",
                "SET lock_configuration = false", "FROM SECRET", "LOAD httpfs"):  # fmt: skip
        with pytest.raises(Exception, match=r"."):
            base.execute(sql).fetchall()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sql", "error", "line", "column", "words"),
    [
        ("SELECT *\nFROM s [RANGE 5 MINUTES]", BindError, 2, 8, "CREATE QUERY"),
        ("SELECT '[ROWS 1]', x FROM s [ROWS 1]", BindError, 1, 29, "CREATE QUERY"),
        ("SELECT nix FROM s", BindError, 1, 8, "nix"),
        ("SELECT 'äöü', nüx FROM s", BindError, 1, 15, "nüx"),
        ("SELECT 1\nFROM nix", CatalogError, 2, 6, "nix"),
        ("SELECT 1 FROM sys.querie", CatalogError, 1, 15, "did you mean `sys.queries`?"),
        ("SELECT 'ß', uper(k) FROM s", BindError, 1, 13, "did you mean `upper`?"),
        ("SELECT x FROM s WHERE ORDER", CqlSyntaxError, 1, 23, "ORDER"),
        ("SELECT x // 2 FROM s", BindError, 1, 8, "CAST(trunc(a / b) AS BIGINT)"),
        ("SELECT CAST(x AS REAL) FROM s", BindError, 1, 8, "write DOUBLE"),
        ("SELECT r + r FROM real", BindError, 1, 10, "CAST(… AS DOUBLE)"),
        ("SELECT x FROM s WHERE t > '2024-1-1'", BindError, 1, 27, "TIMESTAMP '2024-1-1'"),
    ],
)
def test_errors_say_where(
    adhoc: AdHoc, sql: str, error: type[PenstockError], line: int, column: int, words: str
) -> None:
    with pytest.raises(error) as caught:
        adhoc.select(sql, TABLES)
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (line, column)
    assert words in str(caught.value)


def test_names_of_columns_are_those_of_the_text(adhoc: AdHoc) -> None:
    found = adhoc.select("SELECT upper(k), x + 1, CAST(x AS TEXT), count(*) AS n, sum(x) FROM s GROUP BY ALL", TABLES)
    assert found.column_names == ["upper", "(x + 1)", "x", "n", "sum"]


def test_a_name_that_duckdb_takes_for_a_keyword(adhoc: AdHoc) -> None:
    made = {"r": lambda: pa.table({"at": [1, 2], "v": ["at", "x"]})}
    found = adhoc.select("SELECT at, v -- at\nFROM r AS t WHERE t.at < 2 AND v = 'at' ORDER BY at", made)
    assert found.to_pylist() == [{"at": 1, "v": "at"}]
    with pytest.raises(BindError, match="nothing"):
        adhoc.select("SELECT at, nothing FROM r", made)


def test_types_are_those_of_cql(adhoc: AdHoc) -> None:
    found = adhoc.select("SELECT sum(x), count(*), avg(x), max(t) - min(t), now() FROM s", TABLES)
    assert [str(f.type) for f in found.schema] == ["int64", "int64", "double", "duration[us]", "timestamp[us]"]


def test_describe_does_not_run(adhoc: AdHoc) -> None:
    parameters, schema = adhoc.describe("SELECT k, x + ? AS y FROM s WHERE x = ?", TABLES)
    assert len(parameters) == 2
    assert schema.names == ["k", "y"]


def test_a_statement_ends_at_its_deadline(adhoc: AdHoc) -> None:
    endless = "SELECT count(*) FROM range(100000000) AS a, range(100000000) AS b WHERE a.range + b.range = -1"
    with pytest.raises(QueryFailed, match="did not end"):
        adhoc.select(endless, TABLES, (), time.monotonic() + 0.2)
    assert rows(adhoc, "SELECT count(*) FROM s") == [(4,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM " + "(SELECT * FROM " * 60_000 + "range(1)" + ")" * 60_000,
        "SELECT * FROM " + "(SELECT * FROM " * 3_000 + "range(1)" + ")" * 3_000,
        "SELECT " + "1 + " * 3_000 + "1",
        "SELECT " + "CASE WHEN true THEN " * 300 + "1" + " END" * 300,
        "SELECT " + "NOT " * 300 + "true",
        "SELECT a" + ".b" * 3_000,
        "SELECT 1" + "::INT" * 40,
        "SELECT 1 FROM " + " CROSS JOIN ".join(["range(1)"] * 3_000),
        "SELECT " + "[" * 90 + "]" * 90,
        "SELECT regexp_like(k, '(a+)+$') FROM s",
        "SELECT regexp_like(k, '(a|ab)*c') FROM s",
        "SELECT regexp_like(k, k) FROM s",
        "SELECT regexp_like(repeat('a', 5000), 'a*b*c+')",
        "SELECT regexp_like(k, '(') FROM s",
        "SELECT repeat(k || i, 16000000) FROM s, range(1000) AS r(i)",
        "SELECT lpad(k || i, 16000000) FROM s, range(1000) AS r(i)",
        "SELECT * FROM range(100000000)",
    ],
    ids=lambda sql: sql[:40],
)
def test_what_costs_too_much_is_refused(adhoc: AdHoc, sql: str) -> None:
    with pytest.raises(PenstockError):
        adhoc.select(sql, TABLES)


def test_like_does_not_go_back(adhoc: AdHoc) -> None:
    assert rows(adhoc, "SELECT repeat('a', 20000) LIKE '%a%a%a%a%a%a%a%b'") == [(False,)]


def test_mutated_statements_end_in_errors_of_ours(adhoc: AdHoc) -> None:
    chance = random.Random(11)
    seeds = [
        "SELECT k, sum(x) FROM s WHERE t > '2024-01-01' GROUP BY k ORDER BY 2 DESC LIMIT 3",
        "WITH a AS (SELECT upper(k) AS u, x FROM s) SELECT u, count(*) OVER () FROM a JOIN s ON s.x = a.x",
        "SELECT CAST(x AS VARCHAR) || k, date_trunc('day', t), CASE WHEN x IN (1, 2) THEN 'ä' END FROM s",
        "SELECT x FROM s UNION ALL SELECT round(2.5e0, 1) EXCEPT SELECT NULL",
        "VALUES (1, INTERVAL '1' DAY), (-2, INTERVAL '2 hours')",
    ]
    words = (
        [w for s in seeds for w in s.split()] + list("()[]{},;.'\"*%?$:-+") + ["NULL", "\0", "é", "1e999", "read_csv"]
    )
    for _ in range(300):
        parts = chance.choice(seeds).split()
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(parts))
            match chance.randrange(3):
                case 0:
                    parts[at] = chance.choice(words)
                case 1:
                    parts.insert(at, chance.choice(words))
                case _ if len(parts) > 1:
                    del parts[at]
        with contextlib.suppress(PenstockError):
            adhoc.select(" ".join(parts), TABLES)


def test_memory_is_bounded() -> None:
    small = AdHoc(memory="50MB")
    with pytest.raises(QueryFailed, match="memory"):
        small.select("SELECT string_agg(repeat('x', 1000), '') FROM range(1000000)", {})
    assert small.select("SELECT 1", {}).num_rows == 1


def test_many_threads(adhoc: AdHoc) -> None:
    """Functions that are made at first use are made once, and tables of one statement are not seen by another."""
    found: list[object] = []

    def ask(i: int) -> None:
        mine = {"mine": lambda: pa.table({"i": [i], "s": [f"ä{i}"]})}
        found.append(
            adhoc.select("SELECT i, lpad(s, 5, '-'), date_diff('year', now(), now()) FROM mine", mine).to_pylist()[0]
        )

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
