"""A hint is true: what it suggests is accepted, and gives the same where it says so."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pytest
from pyspark.sql import functions as spark_functions

import penstock
from penstock import Database, functions
from penstock.cql.words import INSTEAD, WINDOWS
from penstock.database.database import core_of
from penstock.database.play import play
from penstock.functions import foreign
from penstock.model.errors import typo

DECLARED = """
CREATE STREAM s (t BIGINT, k BIGINT, g STRING, v DOUBLE, x DOUBLE, "when" BIGINT, "end" BIGINT, "from" BIGINT,
                 "case" BIGINT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, w DOUBLE, x DOUBLE) TIMESTAMP BY t SLACK 2;
CREATE STREAM tt (at TIMESTAMP, room STRING, temperature DOUBLE) TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, name STRING, floor INT) KEY (room);
CREATE RELATION n (i INT, k BIGINT);
INSERT INTO n VALUES (1, 1);
CREATE QUERY running AS SELECT k, v FROM s;
"""
# Each: what is refused, the hint, and what it suggests, one or more.
HINTS = [
    block.split("\n")
    for block in (Path(__file__).parent / "hints.txt").read_text(encoding="utf-8").strip().split("\n\n")
]
SOURCES = Path(penstock.__file__).parent
# Where no text leads: internal checks behind what the parser refuses already, and calls from Python alone.
UNREACHED = {
    "no type", "an INTERVAL needs a constant number", ": names have one part", "VALUES is not a stream",
    "PARTITION BY does not go with", "a query is needed, not a statement", "no stream `",
    "cannot be used since it was stored",
    # Reached by calls of Python, not by a text; tests of those calls try them.
    "no format `", "this is no declaration", "cannot be the name of a function", "args is a list of types",
    "cannot be called",
    "there is a built-in function",
}  # fmt: skip


@pytest.fixture
def db() -> Iterator[Database]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARED)
        db.create_function("double_it", lambda x: 2 * x, args=["DOUBLE"], returns="DOUBLE")
        yield db


def refused(db: Database, text: str) -> penstock.PenstockError:
    with pytest.raises(penstock.PenstockError) as caught:
        db.execute(text)
    return caught.value


@pytest.mark.parametrize("block", HINTS, ids=[block[0] for block in HINTS])
def test_what_a_hint_suggests_is_accepted(block: list[str], db: Database) -> None:
    text, hint, *suggested = block
    assert refused(db, text).hint == hint
    for other in suggested:
        with penstock.connect(engine="reference") as fresh:
            fresh.execute(DECLARED)
            fresh.create_function("double_it", lambda x: 2 * x, args=["DOUBLE"], returns="DOUBLE")
            fresh.execute(other.removeprefix("=> "))


def test_every_word_with_something_instead_is_tried() -> None:
    hints = " ".join(block[1] for block in HINTS)
    assert [word for word, hint in INSTEAD.items() if hint not in hints] == []
    assert [word for word, window in WINDOWS.items() if window not in hints] == []


def sites() -> dict[tuple[str, int], str]:
    """Where the sources of the language give a hint: the file and line, and the beginning of what is said."""
    found: dict[tuple[str, int], str] = {}
    paths = [*(SOURCES / "cql").glob("*.py"), *(SOURCES / "functions").glob("*.py")]
    for path in [*paths, SOURCES / "database/statements.py", SOURCES / "database/show.py", SOURCES / "catalog.py"]:
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(statement, ast.Raise | ast.Return):
                continue
            for call in ast.walk(statement):
                if isinstance(call, ast.Call) and any(k.arg == "hint" for k in call.keywords):
                    found[str(path), statement.lineno] = ast.unparse(call)
    return found


def test_every_place_that_gives_a_hint_is_tried(db: Database) -> None:
    """What stands in ``HINTS`` reaches every hint of the language, so none is there that nobody has tried."""
    left = sites()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        left.pop((frame.f_code.co_filename, frame.f_lineno), None)
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(str(SOURCES)) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        for text, *_ in HINTS:
            with pytest.raises(penstock.PenstockError):
                db.execute(text)
    finally:
        sys.settrace(before)
    untried = {said for said in left.values() if not any(known in said for known in UNREACHED)}
    assert untried == set()


# -- no hint where nothing is equivalent -------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(v) OVER (ORDER BY t ROWS 10 PRECEDING) FROM s",
        "SELECT row_number() OVER () FROM s",
        "SELECT arg_max(k, v) FROM s",
        "SELECT bit_and(k) FROM s",
        "SELECT to_char(at, 'YYYY') FROM tt",
        "SELECT date_bin('5 minutes', at, at) FROM tt",
        "SELECT mode() WITHIN GROUP (ORDER BY v) FROM s",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v DESC) FROM s",
        "SELECT string_agg(DISTINCT g, ', ') FROM s",
        "SELECT nvl2(k) FROM s",
        "SELECT k FROM s QUALIFY k > 1",
        "SELECT k FROM s TABLESAMPLE (10 PERCENT)",
        "SELECT k FROM CUMULATE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
        "SELECT k FROM s [5 FORTNIGHTS]",
        "SELECT FROM s",
    ],
)
def test_no_hint_rather_than_a_wrong_one(text: str, db: Database) -> None:
    assert refused(db, text).hint is None


def test_only_slips_of_the_keyboard_are_put_right() -> None:
    known = ["temperature", "rooms", "max", "length", "chr", "bool_and", "date_sub", "FROM"]
    slips = {"temprature": "temperature", "tmeperature": "temperature", "TEMPERATURES": "temperature", "room": "rooms",
             "mxa": "max", "lenght": "length", "form": "FROM"}  # fmt: skip
    for name, meant in slips.items():
        assert typo(name, known) == meant
    for name in ("arg_max", "bit_and", "to_char", "date_bin", "mode", "min", "x", "", "depth", "emperature"):
        assert typo(name, known) is None


def test_functions_that_others_have_are_no_slips(db: Database) -> None:
    """Whatever DuckDB calls a function is not taken for another one of ours."""
    with duckdb.connect() as duck:
        rows = duck.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    names = {name for (name,) in rows if name.isidentifier() and not functions.is_scalar(name)}
    for name in sorted(name for name in names if not functions.is_aggregate(name)):
        assert "did you mean" not in (refused(db, f'SELECT "{name}"(k) FROM s').hint or ""), name


# -- what says that it is the same is the same --------------------------------------------------------------

VALUES = """
CREATE RELATION v (n BIGINT, x BIGINT, y BIGINT, f DOUBLE, text STRING, c BOOLEAN, at TIMESTAMP);
INSERT INTO v VALUES
  (1, 7, 3, 0.5, 'ab', TRUE, TIMESTAMP '2024-05-03 12:34:56.789'),
  (2, -7, 3, 2.0, 'äbc', FALSE, TIMESTAMP '1969-12-31 23:59:59.5'),
  (3, NULL, 0, NULL, NULL, NULL, NULL);
"""
N = None
START = datetime(2024, 5, 3, 12, 0)
# Calls of other systems' functions with their results over the rows of ``v``, by the documentation of that system.
SCALAR: dict[str, list[object]] = {
    "isnull(x)": [False, False, True],
    "isnotnull(x + 1)": [True, True, False],
    "nvl2(x, y, 9)": [3, 3, 9],
    "iif(c, x, y)": [7, 3, 0],
    "nullifzero(y)": [3, 3, N],
    "zeroifnull(x)": [7, -7, 0],
    "equal_null(x, -7)": [False, True, False],
    "e()": [2.718281828459045] * 3,
    "sinh(f)": [0.5210953054937474, 3.626860407847019, N],
    "cosh(f)": [1.1276259652063807, 3.7621956910836314, N],
    "cot(f)": [1.830487721712452, -0.45765755436028577, N],
    "negative(x)": [-7, 7, N],
    "pmod(x, y)": [1, 2, N],
    "try_divide(x, y)": [7 / 3, -7 / 3, N],
    "bit_length(text)": [16, 32, N],
    "space(y)": ["   ", "   ", ""],
    "prefix(text, 'ä')": [False, True, N],
    "string(x)": ["7", "-7", N],
    "int(f)": [0, 2, N],
    "bigint(f)": [0, 2, N],
    "float(f)": [0.5, 2.0, N],
    "double(x)": [7.0, -7.0, N],
    "boolean(y)": [True, True, False],
    "CAST(date(at) AS STRING)": ["2024-05-03", "1969-12-31", N],
    "timestamp('2024-05-03 12:00:00')": [START] * 3,
    "try_to_timestamp('2024-05-03 12:00:00')": [START] * 3,
    "weekday(at)": [4, 2, N],
    "datetrunc('hour', at)": [START, datetime(1969, 12, 31, 23), N],
    "unix_timestamp(at)": [1714739696, -1, N],
    "to_unix_timestamp(at)": [1714739696, -1, N],
    "epoch_ms(at)": [1714739696789, -500, N],
    "epoch_us(at)": [1714739696789000, -500000, N],
    "epoch_ns(at)": [1714739696789000000, -500000000, N],
    **{
        f"TIMESTAMP '2024-05-03 12:00:00' + to_{unit}s(0)": [START] * 3
        for unit in ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")
    },
    "extract(epoch FROM to_minutes(y + 1))": [240.0, 240.0, 60.0],
}
AGGREGATE: dict[str, object] = {
    "approx_count_distinct(y)": 2,
    "approx_quantile(y, 0.5)": 3.0,
    "percentile_approx(y, 0.5)": 3.0,
    "approx_percentile(y, 0.5)": 3.0,
    "any_value(c)": False,
    "arbitrary(c)": False,
    "some(c)": True,
    "sumif(x, c)": 7,
    "avgif(f, NOT c)": 2.0,
    "minif(x, y > 0)": -7,
    "maxif(x, y > 0)": 7,
    "std(x)": 9.899494936611665,
    "collect_set(text)": ["ab", "äbc"],
    "string_agg(text, '; ')": "ab; äbc",
    "group_concat(text, '; ')": "ab; äbc",
    "listagg(text, '; ')": "ab; äbc",
    "list_extract(collect(x), 2)": -7,
    "array_extract(collect(x), 2)": -7,
    "array_has(collect(x), -7)": True,
    "list_has(collect(x), -6)": False,
}


def nearly(value: object) -> object:
    return pytest.approx(value) if isinstance(value, float) else value


def rewritten(db: Database, select: str) -> str:
    """The text with what the hint says in place of the call that is refused."""
    error = refused(db, select)
    assert error.hint is not None
    assert error.hint.startswith("write ")
    assert error.position is not None
    start = error.position.column - 1
    depth, end = 0, select.index("(", start)
    while True:
        depth += {"(": 1, ")": -1}.get(select[end], 0)
        end += 1
        if not depth:
            break
    return select[:start] + error.hint.removeprefix("write ") + select[end:]


def answer(db: Database, select: str) -> list[object]:
    rows = db.query(rewritten(db, select)).fetch().to_pylist()
    return [row["a"] for row in sorted(rows, key=lambda row: row.get("n") or 0)]


@pytest.mark.parametrize(("call", "expected"), SCALAR.items(), ids=list(SCALAR))
def test_what_stands_for_a_function_gives_its_values(call: str, expected: list[object], db: Database) -> None:
    db.execute(VALUES)
    assert answer(db, f"SELECT n, {call} AS a FROM v") == [nearly(value) for value in expected]


@pytest.mark.parametrize(("call", "expected"), AGGREGATE.items(), ids=list(AGGREGATE))
def test_what_stands_for_an_aggregate_gives_its_value(call: str, expected: object, db: Database) -> None:
    db.execute(VALUES)
    assert answer(db, f"SELECT {call} AS a FROM v") == [nearly(expected)]


def test_every_function_with_something_instead_is_tried() -> None:
    calls = " ".join([*SCALAR, *AGGREGATE, *(block[0].lower() for block in HINTS), *WINDOW_FUNCTIONS])
    theirs = [*foreign.INSTEAD, *foreign.WINDOWS]
    there = [n for n in theirs if not functions.is_scalar(n) and not functions.is_aggregate(n)]
    assert [name for name in there if f"{name}(" not in calls] == []


WINDOW_FUNCTIONS = {
    "tumble(at, INTERVAL '10' MINUTE)": "TUMBLING INTERVAL '10' MINUTE",
    "window(at, '10 minutes')": "TUMBLING '10 minutes'",
    "hop(at, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)": "HOPPING INTERVAL '10' MINUTE EVERY INTERVAL '5' MINUTE",
    "session_window(at, '5 minutes')": "SESSION GAP '5 minutes'",
    "tumble_start(at, INTERVAL '10' MINUTE)": "TUMBLING INTERVAL '10' MINUTE",
    "tumble_end(at, INTERVAL '10' MINUTE)": "TUMBLING INTERVAL '10' MINUTE",
    "hop_start(at, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)":
        "HOPPING INTERVAL '10' MINUTE EVERY INTERVAL '5' MINUTE",
    "hop_end(at, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)": "HOPPING INTERVAL '10' MINUTE EVERY INTERVAL '5' MINUTE",
    "session_start(at, INTERVAL '10' MINUTE)": "SESSION GAP INTERVAL '10' MINUTE",
    "session_end(at, INTERVAL '10' MINUTE)": "SESSION GAP INTERVAL '10' MINUTE",
}  # fmt: skip


@pytest.mark.parametrize(("call", "window"), WINDOW_FUNCTIONS.items(), ids=list(WINDOW_FUNCTIONS))
def test_a_window_function_is_a_window_here(call: str, window: str, db: Database) -> None:
    name = call.partition("(")[0]
    bound = f"window_{name.rpartition('_')[2]}" if name.endswith(("_start", "_end")) else None
    also = "" if bound is None else f"{bound}, and "
    for source, behind in {
        "tt": f"FROM tt [{window}]",
        "tt AS q": f"[{window}] behind the stream in FROM",
        "tt, rooms": f"[{window}] behind the stream in FROM",
    }.items():
        assert refused(db, f"SELECT count(*) FROM {source} GROUP BY {call}").hint == f"write {also}{behind}"
    db.query(f"SELECT {bound or 'window_start'}, count(*) FROM tt [{window}] GROUP BY {bound or 'window_start'}")
    if bound is not None:
        assert refused(db, f"SELECT {call} FROM tt [{window}]").hint == f"write {bound}"
        db.query(f"SELECT {bound} FROM tt [{window}]")


@pytest.mark.parametrize("window", ["TUMBLE(tt, at, INTERVAL '5' MINUTE)", 'TUMBLE("tt", at, INTERVAL \'5\' MINUTE)'])
def test_a_window_as_a_function_names_its_stream(window: str, db: Database) -> None:
    source = window[7:].partition(",")[0]
    assert refused(db, f"SELECT room FROM {window}").hint == f"write {source} [TUMBLING INTERVAL '5' MINUTE]"
    db.query(f"SELECT room FROM {source} [TUMBLING INTERVAL '5' MINUTE]")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("unix_timestamp(room)", "write unix_seconds(CAST(room AS TIMESTAMP))"),
        ("to_unix_timestamp(room)", "write unix_seconds(CAST(room AS TIMESTAMP))"),
        ("epoch_ms(room)", "write unix_millis(CAST(room AS TIMESTAMP))"),
        ("epoch_ns(room)", "write (to_ticks(CAST(room AS TIMESTAMP)) * 1000)"),
        ("datetrunc('hour', room)", "write date_trunc('hour', CAST(room AS TIMESTAMP))"),
        ("sinh(room)", None),
        ("negative(room)", None),
        ("zeroifnull(room)", None),
        ("to_seconds(room)", None),
        ("unix_timestamp(nothing)", None),
        ("room[1]", None),
        ("bool_xor(TRUE)", None),
        ("col(room)", None),
        ("expr(room)", None),
    ],
)
def test_what_stands_for_a_function_takes_these_arguments(call: str, hint: str | None, db: Database) -> None:
    assert refused(db, f"SELECT {call} FROM tt").hint == hint
    if hint is not None:
        db.query(f"SELECT {hint.removeprefix('write ')} FROM tt")


def test_functions_of_pyspark_are_no_slips(db: Database) -> None:
    names = {name.lower() for name in dir(spark_functions) if callable(getattr(spark_functions, name))}
    ours = [*functions.names(), *functions.AGGREGATES]
    others = [n for n in names if not (functions.is_scalar(n) or functions.is_aggregate(n) or functions.is_foreign(n))]
    assert {name: meant for name in others if (meant := typo(name, ours))} == {}


def test_windows_as_functions_give_the_windows_of_flink(db: Database) -> None:
    """HOP takes the slide before the size."""
    hop = "HOP(TABLE tt, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)"
    window = (refused(db, f"SELECT count(*) FROM {hop}").hint or "").removeprefix("write ")
    query = db.query(f"SELECT window_start AS ws, count(*) AS n FROM {window} GROUP BY window_start")
    db.push("tt", [(datetime(2024, 1, 1, 10, 2), "a", 1.0), (datetime(2024, 1, 1, 10, 7), "a", 1.0)])
    db.close_stream("tt")
    found = [(row["ws"].minute, row["n"]) for row in query.fetch().to_pylist()]
    assert found == [(55, 1), (0, 2), (5, 1)]


def test_months_and_days_are_added_together(db: Database) -> None:
    db.execute(VALUES)
    query = db.query(
        "SELECT TIMESTAMP '2024-01-31 00:00:00' + INTERVAL '1 month 2 days' AS a, "
        "TIMESTAMP '2024-03-31 12:00:00' - INTERVAL '1 year 1 month 1 hour' AS b, "
        "TIMESTAMP '2024-03-31 12:00:00' + INTERVAL '-1 month' AS c FROM v WHERE n = 1"
    )
    (row,) = query.fetch().to_pylist()
    assert row["a"] == datetime(2024, 3, 2)
    assert row["b"] == datetime(2023, 2, 28, 11)
    assert row["c"] == datetime(2024, 2, 29, 12)


@pytest.mark.parametrize(
    ("line", "unit"),
    [("1700000000", "seconds"), ("1700000000000", "millis"), ("1700000000000000", "micros"), ("31.12.2024", None)],
)
def test_a_file_of_a_relation_gets_no_hint_about_options_of_streams(
    line: str, unit: str | None, db: Database, tmp_path: Path
) -> None:
    db.execute("CREATE RELATION e (at TIMESTAMP)")
    path = tmp_path / "e.csv"
    path.write_text(f"at\n{line}\n")
    with pytest.raises(penstock.InputError) as caught:
        play(core_of(db), {"e": path})
    assert caught.value.hint is not None
    assert "WITH" not in caught.value.hint
    if unit is not None:
        assert caught.value.hint.startswith(f"declare the column as BIGINT; timestamp_{unit}(…) makes times")
        db.execute("CREATE RELATION whole (at BIGINT)")
        query = db.query(f"SELECT timestamp_{unit}(at) AS at FROM whole")
        play(core_of(db), {"whole": path})
        assert query.fetch()["at"].to_pylist() == [datetime(2023, 11, 14, 22, 13, 20)]
