"""Bad input: what is said about it, and that the system is then as it was before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import penstock
from penstock import Database
from penstock.cli.main import main
from penstock.database.database import core_of

DECLARED = """
CREATE STREAM s (t BIGINT, k BIGINT, g STRING, v DOUBLE) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, w DOUBLE) TIMESTAMP BY t SLACK 2;
CREATE STREAM tt (at TIMESTAMP, room STRING, temperature DOUBLE) TIMESTAMP BY at;
CREATE STREAM typed (t BIGINT, i INT, d DECIMAL(5, 2), b BOOLEAN, day DATE, at TIMESTAMP, gap INTERVAL, y BINARY)
  TIMESTAMP BY t;
CREATE RELATION rooms (room STRING, name STRING) KEY (room);
CREATE VIEW big AS SELECT k, v FROM s WHERE v > 10;
CREATE STREAM hot AS SELECT ISTREAM k, v FROM s [RANGE 5] WHERE v > 100;
INSERT INTO rooms VALUES ('a', 'Kitchen'), ('b', 'Bath');
CREATE QUERY running AS SELECT k, v FROM s;
"""


def declared(engine: str) -> Database:
    """A database with something of everything, and a running query."""
    db = penstock.connect(engine=engine)
    db.execute(DECLARED)
    db.push("s", [(3, 1, "x", 1.0)])
    db.queries["running"].fetch()
    return db


def state(db: Database) -> object:
    """All that a failed statement or push could have changed."""
    catalog = db.catalog
    streams = [name for name, stream in catalog.streams.items() if not stream.derived]
    return (
        dict(catalog.streams), dict(catalog.relations), dict(catalog.views), catalog.next_position,
        {name: query.status for name, query in db.queries.items()},
        {name: core_of(db).relations[name].rows for name in catalog.relations},
        {name: (db.stream(name).progress, db.stream(name).late) for name in streams},
    )  # fmt: skip


def refused(db: Database, action: Callable[[], object]) -> penstock.PenstockError:
    """The error of an action; nothing has come of it, and the running query goes on."""
    before = state(db)
    with pytest.raises(penstock.PenstockError) as caught:
        action()
    assert state(db) == before
    running = db.queries["running"]
    assert running.fetch().num_rows == 0
    db.push("s", [(4, 9, "y", 9.0)])
    assert running.fetch().to_pylist() == [{"ts": 4, "op": "+", "k": 9, "v": 9.0}]
    return caught.value


# -- statements -----------------------------------------------------------------------------------------

# Each: a statement, carets under the place in it, the error's code and message.
STATEMENTS = [
    block.split("\n", 2)
    for block in (Path(__file__).parent / "bad_statements.txt").read_text(encoding="utf-8").strip().split("\n\n")
]


@pytest.mark.parametrize(("statement", "carets", "said"), STATEMENTS, ids=[s for s, _, _ in STATEMENTS])
def test_bad_statement(statement: str, carets: str, said: str, engine: str) -> None:
    db = declared(engine)
    error = refused(db, lambda: db.execute(statement))
    code, message = said.split(" ", 1)
    assert str(error) == f"line 1, column {carets.index('^') + 1}: {message}\n  {statement}\n  {carets}"
    assert error.code == code


def test_the_place_is_found_in_the_line_it_is_in(engine: str) -> None:
    db = declared(engine)
    error = refused(db, lambda: db.execute("SELECT k,\n\ttemprature\nFROM tt"))
    assert str(error).splitlines() == [
        "line 1, column 8: no column `k` in stream `tt`; there are `at`, `room`, `temperature`",
        "  SELECT k,",
        "         ^",
    ]
    error = refused(db := declared(engine), lambda: db.execute("SELECT room,\n\ttemprature\nFROM tt"))
    assert str(error).splitlines() == [
        "line 2, column 2: no column `temprature` in stream `tt`; did you mean `temperature`?",
        "  \ttemprature",
        "  \t^^^^^^^^^^",
    ]


def test_the_statements_before_the_one_that_fails_stay_done(engine: str) -> None:
    db = declared(engine)
    with pytest.raises(penstock.CatalogError):
        db.execute("CREATE STREAM one (a INT); CREATE STREAM one (a INT); CREATE STREAM two (a INT);")
    assert "one" in db.catalog.streams
    assert "two" not in db.catalog.streams


# -- calls ----------------------------------------------------------------------------------------------

CALLS: list[tuple[str, Callable[[Database], object], str]] = [
    ("no text", lambda db: db.query(), "give either the text of a query or a plan"),
    ("two queries", lambda db: db.query("SELECT k FROM s; SELECT k FROM s"),
     "one query is needed, the text has 2 statements"),
    ("a statement", lambda db: db.query("DROP STREAM s"),
     "line 1, column 1: a query is needed, not a statement; use execute for statements"),
    ("nothing", lambda db: db.execute("  -- nothing\n"), "there is no statement in the text"),
    ("a name twice", lambda db: db.query("SELECT k FROM s", name="running"),
     "there is a query `running` already; STOP QUERY it, or use another name"),
    ("an empty plan", lambda db: db.query(plan={}), "plan: field `penstock_plan` is missing"),
    ("no such format", lambda db: db.explain("running", "xml"), "no format `xml`; there are text, json, mermaid"),
    ("no such query", lambda db: db.queries["runing"].stop(), "no query `runing`; did you mean `running`?"),
    ("no such stream", lambda db: db.push("rom", [(1,)]), "no stream `rom`; there are `hot`, `r`, `s`, `tt`, `typed`"),
    ("a derived stream", lambda db: db.push("hot", [(1, 1.0)]),
     "stream `hot` is derived from a query, so nothing can be put into it"),
    ("at of a stream", lambda db: db.push("s", [(5, 1, "a", 1.0)], at=5),
     "stream `s` takes its instants from its rows, not from `at`"),
    ("no instant", lambda db: db.heartbeat("s", "soon"), "'soon' is not an instant; write it as 2024-05-01T10:00:00"),
    ("no instant either", lambda db: db.heartbeat("s", 1.5),
     "1.5 is not an instant; give ticks, a datetime, or ISO text"),
    ("nor this", lambda db: db.heartbeat("s", True), "True is not an instant; give ticks, a datetime, or ISO text"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_bad_call(call: Callable[[Database], object], said: str, engine: str) -> None:
    db = declared(engine)
    assert refused(db, lambda: call(db)).one_line == said


def test_no_such_engine() -> None:
    with pytest.raises(penstock.EngineError, match="no engine `fast`; there is `reference`"):
        penstock.connect(engine="fast")


def test_after_the_end(engine: str) -> None:
    db = declared(engine)
    db.close_stream("s")
    with pytest.raises(penstock.StateError, match="stream `s` is closed; rows cannot follow close_stream"):
        db.push("s", [(9, 1, "a", 1.0)])
    with pytest.raises(penstock.StateError, match="stream `s` is closed; its progress is infinite already"):
        db.heartbeat("s", 9)
    db.close()
    with pytest.raises(penstock.StateError, match="the database is closed; connect again"):
        db.execute("SHOW STREAMS")


# -- rows -----------------------------------------------------------------------------------------------

GOOD = (5, 1, "g", 2.5)
FITTING = (5, 1, Decimal("1.50"), True, date(2024, 1, 1), datetime(2024, 1, 1), "1 hour", b"x")


def _typed(place: int, value: object) -> list[tuple[object, ...]]:
    return [FITTING, (*FITTING[:place], value, *FITTING[place + 1 :])]


AWARE = datetime(2024, 1, 1, tzinfo=UTC)
ROWS: list[tuple[str, str, object, str]] = [
    ("arity", "s", [GOOD, (6, 2, "h")], "stream `s`, row 2: 3 values for 4 columns"),
    ("arity of one", "s", [GOOD, (6,)], "stream `s`, row 2: 1 value for 4 columns"),
    ("missing column", "s", [{"t": 5, "k": 1, "g": "a"}], "stream `s`, row 1: column `v` is missing; None means NULL"),
    ("unknown column", "s", [{"t": 5, "k": 1, "g": "a", "v": 1.0, "w": 1}],
     "stream `s`, row 1: no column `w`; there are `g`, `k`, `t`, `v`"),
    ("text for a number", "s", [GOOD, GOOD, (6, 2, "h", "warm")],
     "stream `s`, row 3, column `v`: 'warm' is not a DOUBLE"),
    ("fraction", "s", [(6, 2.5, "h", 1.0)],
     "stream `s`, row 1, column `k`: 2.5 is not a BIGINT; round it first, or declare the column as DOUBLE"),
    ("condition for a number", "s", [(6, True, "h", 1.0)], "stream `s`, row 1, column `k`: True is not a BIGINT"),
    ("number for a text", "s", [(6, 2, 3, 1.0)], "stream `s`, row 1, column `g`: 3 is not a STRING"),
    ("too large", "s", [(6, 2**63, "h", 1.0)], "stream `s`, row 1, column `k`: 9223372036854775808 is not a BIGINT"),
    ("NULL timestamp", "s", [GOOD, (None, 2, "h", 1.0)], "stream `s`, row 2: the timestamp `t` is NULL"),
    ("out of time", "s", [(2**62, 2, "h", 1.0)],
     "stream `s`, row 1: the timestamp 4611686018427387904 is out of range"),
    ("no rows", "s", 5, "stream `s`: cannot read rows from int; give a list of dicts or tuples, a pandas or polars "
     "DataFrame, or Arrow"),
    ("text", "s", "rows", "stream `s`: cannot read rows from str; give a list of dicts or tuples, a pandas or polars "
     "DataFrame, or Arrow"),
    ("a row alone", "s", (1, 2),
     "stream `s`, row 1: 1 is not a row; a row is a dict or a tuple; put a row by itself into a list"),
    ("no row", "s", [GOOD, 5], "stream `s`, row 2: 5 is not a row; a row is a dict or a tuple"),
    ("INT of a Decimal", "typed", _typed(1, Decimal("2.5")), "stream `typed`, row 2, column `i`: Decimal('2.5') is not "
     "an INT; round it first, or declare the column as DOUBLE"),
    ("INT of a float", "typed", _typed(1, -0.5),
     "stream `typed`, row 2, column `i`: -0.5 is not an INT; round it first, or declare the column as DOUBLE"),
    ("INT", "typed", _typed(1, 2**31), "stream `typed`, row 2, column `i`: 2147483648 is not an INT"),
    ("DECIMAL", "typed", _typed(2, Decimal("12345.6")),
     "stream `typed`, row 2, column `d`: Decimal('12345.6') is not a DECIMAL(5, 2)"),
    ("DECIMAL of a float", "typed", _typed(2, 1.5), "stream `typed`, row 2, column `d`: 1.5 is not a DECIMAL(5, 2)"),
    ("BOOLEAN", "typed", _typed(3, 1), "stream `typed`, row 2, column `b`: 1 is not a BOOLEAN"),
    ("DATE", "typed", _typed(4, "2024-13-01"), "stream `typed`, row 2, column `day`: '2024-13-01' is not a DATE"),
    ("TIMESTAMP", "typed", _typed(5, "noon"), "stream `typed`, row 2, column `at`: 'noon' is not a TIMESTAMP"),
    ("TIMESTAMP of a float", "typed", _typed(5, 3.5), "stream `typed`, row 2, column `at`: 3.5 is not a TIMESTAMP"),
    ("TIMESTAMP with a zone before", "typed", [*_typed(5, AWARE), _typed(5, "noon")[1]],
     "stream `typed`, row 3, column `at`: 'noon' is not a TIMESTAMP"),
    ("INTERVAL", "typed", _typed(6, "a while"), "stream `typed`, row 2, column `gap`: 'a while' is not an INTERVAL"),
    ("BINARY", "typed", _typed(7, 5), "stream `typed`, row 2, column `y`: 5 is not a BINARY"),
    ("Arrow type", "s", pa.table({"t": [5], "k": ["a"], "g": ["x"], "v": [1.0]}),
     "stream `s`: column `k` is string, declared as BIGINT"),
    ("Arrow column", "s", pa.table({"t": [5], "k": [1], "g": ["x"]}),
     "stream `s`: column `v` is missing; there are `g`, `k`, `t`"),
    ("Arrow value", "s", pa.table({"t": [5, 6], "k": [1, 2.5], "g": ["x", "y"], "v": [1.0, 1.0]}),
     "stream `s`, row 2, column `k`: 2.5 is not a BIGINT; round it first, or declare the column as DOUBLE"),
    ("Arrow NULL timestamp", "s", pa.table({"t": [5, None], "k": [1, 2], "g": ["x", "y"], "v": [1.0, 1.0]}),
     "stream `s`, row 2: the timestamp `t` is NULL"),
    ("pandas value", "s", pd.DataFrame({"t": [5, 6], "k": [1, 2.5], "g": ["x", "y"], "v": [1.0, 1.0]}),
     "stream `s`, row 2, column `k`: 2.5 is not a BIGINT; round it first, or declare the column as DOUBLE"),
    ("key", "rooms", [("c", "Attic"), ("a", "Hall")],
     "relation `rooms`, row 2: the key ('a') is there already; UPDATE or DELETE it"),
    ("op", "rooms", [{"room": "c", "name": "Attic", "op": "?"}],
     "relation `rooms`, row 1: op is '?'; it is '+' or '-'"),
    ("nothing to take out", "rooms", [{"room": "c", "name": "Attic", "op": "-", "ts": 9}],
     "relation `rooms`, row 1: there is no such row to take out: ('c', 'Attic')"),
    ("changes out of order", "rooms",
     [{"room": "c", "name": "Attic", "ts": 9}, {"room": "d", "name": "Cellar", "ts": 8}],
     "relation `rooms`, row 2: a change at 8 after one at 9; changes come in order of ts"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rows", "said"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_bad_rows_are_refused_with_the_whole_batch(name: str, rows: object, said: str, engine: str) -> None:
    db = declared(engine)
    error = refused(db, lambda: db.push(name, rows))
    assert str(error) == said
    assert isinstance(error, penstock.InputError)


def test_a_column_of_whole_numbers_takes_what_has_no_fraction(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE RELATION n (i INT, d DOUBLE); INSERT INTO n VALUES (2.0, 1.5), (CAST(-1.5 AS INT), 2.5)")
        db.push("n", [(3.0, 1.5), (Decimal("4.00"), 1.5)])
        assert [row[0] for row in core_of(db).relations["n"].rows] == [2, -1, 3, 4]
        for text in ("INSERT INTO n VALUES (1.5, 0)", "UPDATE n SET i = i / 2", "UPDATE n SET i = d"):
            with pytest.raises(penstock.PenstockError, match="is not a whole number"):
                db.execute(text)
        assert [row[0] for row in core_of(db).relations["n"].rows] == [2, -1, 3, 4]
        db.execute("UPDATE n SET i = d * 2")
        assert [row[0] for row in core_of(db).relations["n"].rows] == [3, 5, 3, 3]


def test_a_change_of_a_relation_that_comes_too_late(engine: str) -> None:
    db = declared(engine)
    reader = db.query("SELECT s.k, name FROM s [NOW], rooms WHERE g = room")
    error = refused(db, lambda: db.execute("DELETE FROM rooms AT 2"))
    assert error.one_line == (
        "line 1, column 13: relation `rooms`, row 1: a change at 2 comes too late; answers up to 3 have been given"
    )
    assert reader.status == "running"


def test_rows_from_the_beginning_can_be_changed_until_a_query_has_read_them(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE RELATION rooms (room STRING); INSERT INTO rooms VALUES ('a'), ('b');")
        db.execute("UPDATE rooms SET room = 'c' WHERE room = 'a'")
        db.execute("DELETE FROM rooms WHERE room = 'b'")
        db.execute("CREATE STREAM s (t BIGINT, g STRING) TIMESTAMP BY t")
        reader = db.query("SELECT ISTREAM room FROM s [NOW], rooms WHERE g = room")
        with pytest.raises(penstock.InputError) as caught:
            db.execute("DELETE FROM rooms")
        assert caught.value.one_line == (
            "line 1, column 13: relation `rooms`, row 1: it has been there from the beginning and a query reads it; "
            "say from when on it is gone, as in DELETE … AT 5"
        )
        db.execute("DELETE FROM rooms AT 5")
        db.push("s", [(1, "a"), (2, "b"), (3, "c"), (6, "c")])
        db.close_stream("s")
        assert reader.fetch().to_pylist() == [{"ts": 3, "op": "+", "room": "c"}]


def test_a_query_without_streams_follows_its_relation(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE RELATION n (a INT); INSERT INTO n VALUES (1)")
        query = db.query("SELECT sum(a) AS total FROM n")
        assert query.fetch()["total"].to_pylist() == [1]
        db.execute("INSERT INTO n VALUES (2), (3)")
        assert [(r["op"], r["total"]) for r in query.fetch().to_pylist()] == [("-", 1), ("+", 6)]


# -- late rows ------------------------------------------------------------------------------------------


def test_rows_behind_slack_are_late_not_an_error(engine: str) -> None:
    db = declared(engine)
    query = db.query("SELECT k FROM r")
    db.push("r", [(10, 1, 1.0), (8, 2, 1.0), (7, 3, 1.0)])
    db.close_stream("r")
    assert query.fetch()["k"].to_pylist() == [2, 1]
    assert db.stream("r").late == 1
    assert db.late("r").to_pylist() == [{"t": 7, "k": 3, "w": 1.0}]
    assert db.late("r").num_rows == 0
    assert db.stream("r").late == 1


# -- files, from the command line -------------------------------------------------------------------------

SCRIPT = """
CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t;
CREATE STREAM other (t BIGINT) TIMESTAMP BY t;
CREATE QUERY q AS SELECT ISTREAM v FROM s;
"""
FILES = [
    ("bad value", "s.csv", "t,v\n1,2\n2,warm\n", "{}, line 3, column `v`: 'warm' is not a DOUBLE"),
    ("too few fields", "s.csv", "t,v\n1,2\n3\n", "{}, line 3: 1 field where the header has 2"),
    ("too many fields", "s.csv", "t,v\n1,2,3\n", "{}, line 2: 3 fields where the header has 2"),
    ("open quote", "s.csv", 't,v\n1,2\n3,"4\n', "{}, line 3: a quote is opened and never closed"),
    ("NULL timestamp", "s.csv", "t,v\n1,2\n,3\n",
     "{}, line 3, column `t`: NULL may not stand in the column that orders the stream"),
    ("empty CSV", "s.csv", "", "{} is empty: a CSV file needs a header line"),
    ("missing column", "s.csv", "t,w\n1,2\n", "{}: no column `v`; the file has `t`, `w`"),
    ("broken JSON", "s.jsonl", '{"t": 1, "v": 2}\n{"t": 2, "v": \n',
     "{}, line 2, column 1: broken JSON: Expecting value; a JSON lines file has one object on each line"),
    ("no JSON object", "s.jsonl", "[1, 2]\n", "{}, line 1: an object is expected on each line, this is an array"),
    ("JSON value", "s.jsonl", '{"t": 1, "v": "warm"}\n', "{}, line 1, column `v`: 'warm' is not a DOUBLE"),
    ("no such format", "s.xyz", "t,v\n", "{} is in no format that its name tells; names end in .csv, .tsv, .json, "
     ".jsonl, .ndjson, .parquet or .arrow (texts also with .gz, .zst, .bz2)"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "said"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_bad_file(
    file: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    script, data, answers = tmp_path / "q.cql", tmp_path / file, tmp_path / "answers.csv"
    script.write_text(SCRIPT)
    data.write_text(text)
    command = ["run", str(script), "--input", f"s={data}", "--output", str(answers), "--engine", engine]
    assert main(command) == 2
    assert capsys.readouterr().err == f"penstock: error: {said.format(data)}\n"
    assert not answers.exists()


def test_files_without_rows_are_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str) -> None:
    script = tmp_path / "q.cql"
    script.write_text(SCRIPT)
    for name, text in (("s.csv", "t,v\n"), ("s.jsonl", "")):
        (tmp_path / name).write_text(text)
        command = ["run", str(script), "--input", f"s={tmp_path / name}", "--format", "csv", "--quiet"]
        assert main([*command, "--engine", engine]) == 0
        assert capsys.readouterr().out == "ts,op,v\n"


def test_missing_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "q.cql"
    script.write_text(SCRIPT)
    for given, said in [
        ([], "query `q` reads stream `s`; pass --input s=PATH"),
        (["--input", "s=nothing.csv"], "there is no file or folder nothing.csv"),
        (["--input", "ss=s.csv"], "there is no stream or relation `ss`; did you mean `s`?"),
        (["--input", "s"], "--input s is not NAME=PATH, such as --input sensors=sensors.csv"),
    ]:
        assert main(["run", str(script), *given]) == 2
        assert capsys.readouterr().err == f"penstock: error: {said}\n"


def test_bad_cql_in_a_file_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "q.cql"
    script.write_text(SCRIPT + "SELECT w FROM s;\n")
    assert main(["run", str(script)]) == 2
    assert capsys.readouterr().err == (
        f"penstock: error: {script}, line 5, column 8: no column `w` in stream `s`; there are `t`, `v`\n"
    )
