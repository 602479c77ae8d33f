"""The answer as it stands is in the order that the query asks for, wherever it is shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cli.shell import Shell
from penstock.testing import snapshot
from tests.budget import examples
from tests.spark.direct import directly

STREAM = "CREATE STREAM s (t BIGINT, k STRING, v DOUBLE, w INT) TIMESTAMP BY t"
ROWS = [(1, "c", 2.0, 1), (2, "a", None, 5), (3, "b", 2.0, 3), (4, None, 9.0, 3), (5, "d", float("nan"), 0)]

QUERIES = {
    "SELECT k FROM s ORDER BY v DESC LIMIT 3": ["d", None, "b"],
    "SELECT k FROM s ORDER BY v LIMIT 3": ["a", "b", "c"],
    "SELECT k FROM s ORDER BY v NULLS LAST LIMIT 3": ["b", "c", None],
    "SELECT k FROM s ORDER BY v DESC NULLS FIRST LIMIT 2": ["a", "d"],
    "SELECT k FROM s ORDER BY k LIMIT 2": [None, "a"],
    "SELECT k FROM s ORDER BY w DESC, k DESC LIMIT 3 OFFSET 1": ["b", None, "c"],
    "SELECT k FROM s ORDER BY -w LIMIT 3": ["a", None, "b"],
    "SELECT k FROM s [ROWS 3] ORDER BY w % 3, k DESC LIMIT 2": ["d", "b"],
    "SELECT k FROM s GROUP BY k ORDER BY sum(w) DESC LIMIT 2": ["a", None],
    "SELECT k FROM s LIMIT 2": [None, "a"],
    "SELECT k FROM s ORDER BY w": ["d", "c", None, "b", "a"],
    "SELECT k FROM s [ROWS 2] ORDER BY w": ["d", None],
    "SELECT k FROM s WHERE w > 2 UNION ALL SELECT k FROM s WHERE w < 1 ORDER BY 1 DESC LIMIT 3": ["d", "b", "a"],
    "(SELECT k FROM s ORDER BY k DESC) LIMIT 1": ["d"],
    "(SELECT k FROM s ORDER BY w DESC, k) LIMIT 2": ["a", None],
    "(SELECT k FROM s ORDER BY k DESC LIMIT 3) OFFSET 1": ["c", "b"],
    "(((SELECT k FROM s ORDER BY k DESC OFFSET 1) LIMIT 3) OFFSET 1) LIMIT 5": ["b", "a"],
    "(SELECT k FROM s ORDER BY k DESC LIMIT 2) OFFSET 2": [],
    "(SELECT k FROM s UNION SELECT k FROM s ORDER BY 1 DESC) LIMIT 1": ["d"],
    "(SELECT k FROM s ORDER BY k DESC LIMIT 2) ORDER BY k LIMIT 1": ["c"],
    "SELECT k FROM (SELECT k FROM s ORDER BY k DESC) LIMIT 1": [None],
    "WITH q AS (SELECT k FROM s ORDER BY k DESC) SELECT k FROM q LIMIT 1": [None],
}  # fmt: skip


@pytest.mark.parametrize("text", QUERIES)
def test_current(engine: str, text: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        at_once, by_row = db.query(text), db.query(text)
        for row in ROWS:
            db.push("s", [row])
            by_row.current()
        assert at_once.current()["k"].to_pylist() == QUERIES[text]
        assert by_row.current()["k"].to_pylist() == QUERIES[text]


def test_a_relation_by_a_column_that_is_not_selected(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE RELATION r (id INT, name STRING) KEY (id)")
        db.execute("INSERT INTO r VALUES (1, 'x'), (3, 'z'), (2, 'y')")
        query = db.query("SELECT name FROM r ORDER BY id DESC LIMIT 2")
        assert query.current()["name"].to_pylist() == ["z", "y"]
        db.execute("UPDATE r SET name = 'best' WHERE id = 3")
        assert query.current()["name"].to_pylist() == ["best", "y"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b", "B", ""]),
            st.sampled_from([None, float("nan"), -1.0, 0.0, 2.5]),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.sampled_from(["k", "v", "w", "v * w", "upper(k)"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(["", " DESC", " NULLS LAST", " DESC NULLS FIRST"]), min_size=3, max_size=3),
    st.sampled_from(["k", "w", "k, v"]),
    st.sampled_from([" LIMIT 3", " LIMIT 4 OFFSET 1", ""]),
)
@settings(max_examples=examples(60))
def test_it_is_the_order_of_the_reference(
    rows: list[tuple[object, ...]], keys: list[str], ways: list[str], columns: str, limit: str
) -> None:
    """RSTREAM gives the whole relation at each instant, in order."""
    order = ", ".join(key + way for key, way in zip(keys, ways, strict=False))
    text = f"{columns} FROM s [ROWS 8] ORDER BY {order}{limit}"
    found = {}
    for engine in ("reference", "local"):
        with penstock.connect(engine=engine) as db:
            db.execute(STREAM)
            query, whole = db.query(f"SELECT {text}"), db.query(f"SELECT RSTREAM {text}")
            db.push("s", [(t, *row) for t, row in enumerate(rows)])
            found[engine] = repr(query.current().to_pylist())
            last = [row for row in whole.fetch().to_pylist() if row.pop("ts") == len(rows) - 1 and row.pop("op")]
            found[f"{engine}, whole"] = repr(last)
    assert len(set(found.values())) == 1, found


def test_what_orders_is_shown_nowhere(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        ways = [db.query("SELECT k FROM s ORDER BY v DESC, -w LIMIT 2", name=f"q{i}") for i in range(5)]
        given: list[list[str]] = []
        ways[0].subscribe(lambda table: given.append(table.column_names))
        db.push("s", ROWS)
        db.settle()
        names = ["ts", "op", "k"]
        assert ways[0].schema.names == ways[1].fetch().column_names == ways[2].peek().column_names == names
        ways[3].transfer(lambda table: given.append(table.column_names))
        assert next(iter(ways[4])).column_names == names
        assert given
        assert all(one == names for one in given)
        described = db.execute("DESCRIBE q0").table
        assert described is not None
        assert described["column"].to_pylist() == ["k"]


def test_plans_with_hidden_columns_can_be_written_and_read() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        plan = db.explain("SELECT k FROM s ORDER BY v DESC LIMIT 2", "json")
        query = db.query(plan=plan)
        db.push("s", ROWS)
        assert query.current().to_pylist() == [{"k": "d"}, {"k": None}]
        with pytest.raises(penstock.PlanError, match="`hidden` is 2 of 2 columns; at least one is shown"):
            db.query(plan=plan.replace('"hidden": 1', '"hidden": 2'))


def test_after_a_restart(tmp_path: Path) -> None:
    with directly():
        with penstock.connect(tmp_path, engine="spark") as db:
            db.execute(STREAM)
            db.query("SELECT k FROM s ORDER BY w DESC LIMIT 3", name="top")
            db.push("s", ROWS)
        with penstock.connect(tmp_path, engine="spark") as db:
            db.push("s", [(6, "z", 0.0, 4)])
            assert db.queries["top"].schema.names == ["ts", "op", "k"]
            assert db.queries["top"].current()["k"].to_pylist() == ["a", "z", None]


def test_snapshots() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        query = db.query("SELECT k FROM s ORDER BY w DESC LIMIT 3")
        db.push("s", ROWS)
        assert snapshot(query) == [("a",), (None,), ("b",)]
        assert snapshot(query, at=1) == [("c",)]


def test_final(tmp_path: Path) -> None:
    data = tmp_path / "s.csv"
    data.write_text("t,k,w\n" + "".join(f"{t},{k},{w}\n" for t, k, w in [(1, "a", 5), (2, "b", 9), (3, "c", 7)]))
    query = "SELECT k FROM s ORDER BY w DESC LIMIT 2"
    done = CliRunner().invoke(app, ["query", query, str(data), "--final", "--format", "csv", "--timestamp", "t"])
    assert done.stdout == "k\nb\nc\n"


def test_the_shell_shows_it_as_it_stands() -> None:
    out = io.StringIO()
    with penstock.connect(engine="local") as db:
        shell = Shell(db, out)
        shell.feed(f"{STREAM};")
        shell.feed("SELECT k FROM s ORDER BY w DESC LIMIT 2;")
        shell.feed("SELECT k FROM s WHERE w > 4;")
        db.push("s", ROWS)
        out.truncate(0)
        shell.feed("INSERT INTO s VALUES (6, 'z', 0.0, 4);")
        words = out.getvalue().lstrip("\0").replace("-", "").split()
        assert " ".join(words) == "1 row into s q1, as it stands k a z q2 ts op k 2 + a"
        out.truncate(0)
        shell.feed("INSERT INTO s VALUES (7, 'y', 0.0, 1);")
        assert out.getvalue().lstrip("\0") == "1 row into s\n"


def test_notebooks_show_it_as_it_stands() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        query = db.query("SELECT k FROM s ORDER BY w DESC LIMIT 2")
        db.push("s", [(1, "first", 0.0, 1), (2, "best", 0.0, 9), (3, "good", 0.0, 5)])
        shown = query._repr_html_()
        assert "the answer as it stands, in its order" in shown
        assert "first" not in shown
        assert shown.index(">best<") < shown.index(">good<")
        assert query.waiting == 4, "nothing is taken"
        query.fetch()
        db.push("s", [(4, "new", 0.0, 7)])
        shown = query._repr_html_()
        assert shown.index(">best<") < shown.index(">new<"), "also after others have been fetched"
        assert ">good<" not in shown
