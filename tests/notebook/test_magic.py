"""The magics, in a shell of IPython."""

from __future__ import annotations

import builtins
import subprocess
import sys
import threading
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import penstock
from penstock.database.query import Query
from penstock.notebook import watch
from tests.notebook.shells import Cells

DECLARE = "CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t;"


def test_a_cell_of_statements(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    given = cells.run(f"%%cql\n{DECLARE}\nCREATE VIEW v AS SELECT a FROM s [ROWS 3];\n\nSELECT sum(a) AS total FROM v")
    assert isinstance(given, Query)
    assert "a new database on engine local, in the variable `db`\nstream s created\nview v created\n" in (
        capsys.readouterr().out
    )
    db = cells.variables["db"]
    assert db.queries[given.name] is given
    cells.run("db.push('s', [(1, 10)])")
    assert cells.run("%cql SHOW QUERIES").table.num_rows == 1
    assert given.fetch()["total"].to_pylist() == [10]


def test_a_query_with_a_name_becomes_a_variable(cells: Cells) -> None:
    cells.run(f"%%cql --engine reference\n{DECLARE}")
    given = cells.run("%%cql --name hot\nSELECT a FROM s WHERE a > 5;\n-- that is all")
    assert given is cells.variables["hot"] is cells.variables["db"].queries["hot"]
    assert given.text.startswith("SELECT a FROM s")
    cells.run("%%cql --name hot\nSELECT a FROM s")
    assert isinstance(cells.error, penstock.CatalogError)
    cells.run("%%cql --replace --name=hot\nSELECT b FROM s")
    assert isinstance(cells.error, penstock.BindError)
    assert cells.variables["hot"] is given
    assert given.status == "running"
    again = cells.run("%cql --name hot --replace SELECT a + 1 AS b FROM s")
    assert cells.error is None
    assert again is cells.variables["hot"] is not given
    assert given.status == "stopped"


def test_an_engine_that_is_not_there(cells: Cells) -> None:
    cells.run("%cql --engine abacus SHOW STREAMS")
    assert "no engine `abacus`" in str(cells.error)
    assert "db" not in cells.variables


def test_another_database(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run("import penstock; other = penstock.connect(engine='local'); number = 7")
    cells.run(f"%cql --db other {DECLARE}")
    assert list(cells.variables["other"].catalog.streams) == ["s"]
    assert "db" not in cells.variables
    for line, told in (
        ("--db nobody SHOW STREAMS", "there is no variable `nobody`"),
        ("--db number SHOW STREAMS", "the variable `number` is no database"),
        ("--db other --engine spark SHOW STREAMS", "is on engine local"),
        ("--colour red SHOW STREAMS", "no option --colour"),
        ("--db", "--db needs a value"),
        ("--db other --name a-b SELECT a FROM s", "cannot be the name of a variable"),
        ("--db other", "there is no statement"),
        ("--db other --name class SELECT a FROM s", "cannot be the name of a variable"),
        ("--db other --name other SELECT a FROM s", "the variable `other` holds the database; give the query another"),
        ("--name other SELECT a FROM s", "the variable `other` holds the database"),
        ("--name db SELECT a FROM s", "the variable `db` holds the database"),
        ("--db other --replace SELECT a FROM s", "--replace needs the name of the query; write --name QUERY --replace"),
        ("--db other --name qq CREATE QUERY zz AS SELECT a FROM s", "`zz` in the text and `qq` in --name; write"),
    ):
        cells.run(f"%cql {line}")
        assert isinstance(cells.error, penstock.PenstockError)
        assert told in str(cells.error)
    assert "db" not in cells.variables
    assert list(cells.variables["other"].queries) == []


def test_a_statement_that_names_the_query_itself(cells: Cells) -> None:
    cells.run(f"%cql --engine local {DECLARE}")
    given = cells.run("%cql --name zz CREATE QUERY zz AS SELECT ISTREAM a FROM s INTO others WITH (priority = 3)")
    assert cells.error is None
    assert given is cells.variables["zz"] is cells.variables["db"].queries["zz"]
    assert given.options.priority == 3
    assert "others" in cells.variables["db"].catalog.streams


def test_errors_are_short_and_say_where(cells: Cells, capsys: pytest.CaptureFixture[str]) -> None:
    cells.run(f"%%cql\n{DECLARE}")
    capsys.readouterr()
    cells.run("%%cql\nSELECT a FROM s;\nSHOW STREAMS; SELECT aa FROM s")
    assert len(cells.shown) == 2  # what came before is done and shown
    assert "<b>q1</b>" in cells.shown[0]["data"]["text/html"]
    assert cells.shown[0]["data"]["text/plain"] == "query q1 started"
    said = capsys.readouterr()
    assert (said.out + said.err).strip().endswith(
        "BindError PS102: line 2, column 22: no column `aa` in stream `s`; did you mean `a`?\n"
        "  SHOW STREAMS; SELECT aa FROM s\n                       ^^"
    )
    assert "Traceback" not in said.out + said.err
    cells.run("%%cql\nDROP STREAM s;\nSELEC a FROM s")
    assert isinstance(cells.error, penstock.CqlSyntaxError)
    assert "s" in cells.variables["db"].catalog.streams  # nothing is done if the text is no CQL


def test_braces_and_dollars_are_left_alone(cells: Cells) -> None:
    cells.run("name = 'evil'")
    cells.run("%cql CREATE STREAM s (t BIGINT, a STRING) TIMESTAMP BY t")
    q = cells.run("%cql SELECT ISTREAM a FROM s WHERE a = '{name} $name'")
    cells.run("%cql INSERT INTO s VALUES (1, '{name} $name')")
    assert q.fetch()["a"].to_pylist() == ["{name} $name"]


def test_tables_are_shown_as_tables(cells: Cells) -> None:
    cells.run("import pyarrow as pa; from IPython.display import display; display(pa.table({'a': range(25)}))")
    (shown,) = cells.shown
    assert "<table" in shown["data"]["text/html"]
    assert shown["data"]["text/plain"].endswith("19\n… 5 more rows")
    cells.run("%unload_ext penstock")
    cells.run("display(pa.table({'a': [1]}))")
    assert "text/html" not in cells.shown[0]["data"]


def test_plain_texts(cells: Cells) -> None:
    cells.run(f"%cql {DECLARE}")
    q = cells.run("%cql --name q SELECT a FROM s [ROWS 2]")
    cells.run("display(db.explain('q')); display(db.graph()); display(db.graph().memory); display(q)")
    plain = [shown["data"]["text/plain"] for shown in cells.shown]
    assert plain[0].startswith("Query changes\n└─ ")
    assert plain[1].startswith("engine local")
    assert plain[2].startswith("windows hold")
    assert plain[3] == repr(q)


def test_importing_penstock_does_not_import_ipython() -> None:
    code = "import sys, penstock, penstock.testing, penstock.notebook; print('IPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# -- watching ---------------------------------------------------------------------------------------------


@pytest.fixture
def query(cells: Cells) -> Query:
    cells.run(f"%cql {DECLARE}")
    found = cells.run("%cql --name q SELECT a FROM s")
    assert isinstance(found, Query)
    return found


def test_watching_until_the_end(cells: Cells, query: Query) -> None:
    """Every push waits until the one before it has been shown."""
    db = cells.variables["db"]
    seen = threading.Event()

    def pushing() -> None:
        for i in range(3):
            assert seen.wait(30)
            seen.clear()
            db.push("s", [(i, 100 + i)])
        assert seen.wait(30)
        db.close_stream("s")

    thread = threading.Thread(target=pushing)
    thread.start()
    peek = query.peek

    def peeking(rows: int = 10) -> Any:
        seen.set()
        return peek(rows)

    query.peek = peeking  # type: ignore[method-assign]
    cells.run("q.watch(60, interval=0.001)")
    thread.join(30)
    assert cells.error is None
    pictures = [s["data"]["text/html"] for s in cells.shown]
    assert [bool(s.get("update")) for s in cells.shown] == [False, *[True] * (len(pictures) - 1)]
    assert "102" in pictures[-1]
    assert "ended" in pictures[-1]
    assert len(pictures) >= 4
    assert query.fetch().num_rows == 3


def test_watching_is_bounded(cells: Cells, query: Query) -> None:
    cells.run("from penstock.notebook import watch; watch(q, seconds=0); watch()")
    assert cells.error is None
    assert len(cells.shown) == 2
    assert query.wait(0.0) is False


def test_an_interrupt_ends_watching(cells: Cells, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(query, "wait", interrupted)
    cells.run("q.watch(60)")
    assert cells.error is None
    assert len(cells.shown) == 2


@pytest.mark.parametrize("interval", [0, -1, float("nan")])
def test_watching_makes_pauses(query: Query, interval: float) -> None:
    with pytest.raises(penstock.InputError, match=f"interval is {interval}; give the seconds"):
        watch(query, interval=interval)


def test_watching_needs_a_shell() -> None:
    InteractiveShell.clear_instance()
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        with pytest.raises(penstock.EngineError, match="a notebook or IPython, and this is neither; elsewhere use"):
            db.query("SELECT a FROM s").watch(1)


def test_watching_needs_ipython(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("IPython"):
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(penstock.EngineError, match="notebook"):
        watch(query)
