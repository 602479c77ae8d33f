"""What notebooks show is well-formed, escaped, and takes no answers away."""

from __future__ import annotations

import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

import penstock
from penstock.database.database import Database, core_of
from penstock.notebook import html
from penstock.testing import Clock, fails_on
from tests.spark.direct import directly

EVIL = "<script>alert('ü & \"x\"')</script>\x07"


def parsed(text: str) -> ET.Element:
    """The text as XML, which is stricter than HTML; nothing in it is fetched or run."""
    tree = ET.fromstring(f"<all>{text}</all>")
    for element in tree.iter():
        name = element.tag.rpartition("}")[2]
        assert name not in ("script", "link", "iframe", "img", "object")
        for key, value in element.attrib.items():
            assert not key.startswith("on")
            assert "url(" not in value
            assert key not in ("href", "src")
    return tree


def words(text: str) -> str:
    """What can be read in it, blanks made one."""
    return " ".join(" ".join(parsed(text).itertext()).split())


@pytest.fixture
def db() -> Iterator[Database]:
    with penstock.connect(engine="local", clock=Clock("2024-05-01")) as db:
        db.execute(f"""
            CREATE STREAM "{EVIL.strip()[:7]}" (t BIGINT, "a<b" STRING) TIMESTAMP BY t;
            CREATE STREAM s (at TIMESTAMP, v DOUBLE) TIMESTAMP BY at;
            CREATE STREAM arrived (v DOUBLE);
            CREATE RELATION names (k STRING);
            CREATE VIEW big AS SELECT v FROM s [RANGE 5 MINUTES] WHERE v > 5;
            INSERT INTO names VALUES ('<i>');
        """)
        yield db


def test_a_database(db: Database) -> None:
    db.query('SELECT "a<b" FROM "<script" [ROWS 3]', name="<b>q</b>")
    db.execute("CREATE STREAM derived AS SELECT ISTREAM v FROM s")
    db.push("s", [("2024-05-01 10:00:00", 1.0), ("2024-05-01 09:00:00", 1.0)])
    db.push("arrived", [(1.0,)])
    db.push("<script", [(1, "x"), (2, "y")])
    db.close_stream("<script")
    said = words(db._repr_html_())
    assert "database on engine local · open" in said
    assert "<script t BIGINT, a<b STRING t 2 0 the end" in said
    assert "s at TIMESTAMP, v DOUBLE at 2 1 2024-05-01 10:00:00" in said
    assert "arrived v DOUBLE arrival 1 0 2024-05-01 00:00:00" in said
    assert "derived v DOUBLE a query" in said
    assert "names k STRING 1" in said
    assert "big v DOUBLE" in said
    assert '<b>q</b> ended 2 2 SELECT "a<b"' in said
    db.close()
    assert "closed" in words(db._repr_html_())


def test_what_others_declare_meanwhile_comes_before_or_after(db: Database) -> None:
    made: list[str] = []
    showing = threading.Thread(target=lambda: made.append(db._repr_html_()))
    with core_of(db).lock:
        showing.start()
        showing.join(0.2)  # until it waits for the lock, wherever that is
        db.execute("CREATE STREAM another (t BIGINT) TIMESTAMP BY t")
        db.query("SELECT v FROM s", name="late")
    showing.join(30)
    (said,) = map(words, made)
    assert "another t BIGINT" in said
    assert "late running" in said


def test_an_empty_database() -> None:
    with penstock.connect(engine="reference") as db:
        assert words(db._repr_html_()) == "database on engine reference · open nothing is declared yet"


@pytest.mark.parametrize("host", ["reference", "local", "spark"])
def test_a_query_keeps_its_answers(host: str) -> None:
    with directly(), penstock.connect(engine=host) as db:
        db.execute("CREATE STREAM s (t BIGINT, a STRING) TIMESTAMP BY t")
        q = db.query("SELECT a FROM s [ROWS 2] -- <!-- 'x'", name="<q>")
        assert "0 answers; 0 of them not fetched yet; remembers" in words(q._repr_html_())
        for i in range(20):
            db.push("s", [(i, EVIL if i == 19 else None)])
        assert q.waiting == q.answered == 38
        said = words(q._repr_html_())
        assert "query <q> · running" in said
        assert "SELECT a FROM s [ ROWS 2] -- <!-- 'x'" in said
        assert "<script>alert('ü & \"x\"')</script>\ufffd" in said
        assert "the last 10 of 38 answers that wait" in said
        assert q.peek(3).num_rows == 3
        assert q.peek(1_000).num_rows == 38
        assert q.fetch().num_rows == 38
        assert (q.waiting, q.peek().num_rows) == (0, 0)
        q.stop()
        assert "stopped" in words(q._repr_html_())


def test_a_query_of_a_database_that_is_closed() -> None:
    with directly(), penstock.connect(engine="spark") as db:
        db.execute("CREATE STREAM s (t BIGINT, a STRING) TIMESTAMP BY t")
        q = db.query("SELECT a FROM s")
        db.push("s", [(1, "x")])
        db.settle()
        assert "1 + x" in words(q._repr_html_())
        db.close()
        assert "1 + x" in words(q._repr_html_())


def test_a_query_that_failed(db: Database) -> None:
    db.create_function("bad", fails_on(float, lambda v: True, ValueError("<oh>")), args=["DOUBLE"], returns="DOUBLE")
    q = db.query("SELECT bad(v) AS x FROM s")
    null = db.query("SELECT CAST(concat('x', CAST(v AS STRING)) AS BIGINT) AS x FROM s")
    db.push("s", [("2024-05-01 10:00:00", 0.0)])
    assert "ValueError: <oh>" in words(q._repr_html_())
    assert "1 value NULL because computing failed" in words(null._repr_html_())


def test_plans(db: Database) -> None:
    text = db.explain("SELECT s.v FROM s [ROWS 3], names WHERE names.k = '<x>'")
    assert isinstance(text, str)
    tree = parsed(text._repr_html_())  # type: ignore[attr-defined]
    assert len(tree.findall(".//li")) == len(text.partition("\n\n")[0].splitlines())
    said = words(text._repr_html_())  # type: ignore[attr-defined]
    assert said.startswith("Query changes")
    assert "Window [ROWS 3]" in said
    assert "'<x>'" in said
    assert "instants every change of a window or relation" in said
    q = db.query("SELECT v FROM s")
    assert words(q.explain()._repr_html_()).startswith("Query istream")  # type: ignore[attr-defined]
    assert words(html.plan("<no tree>")) == "<no tree>"
    assert type(db.explain("SELECT v FROM s", format="json")) is str


def test_graphs_and_memory(db: Database) -> None:
    db.query('SELECT count(*) AS n FROM "<script" [ROWS 3]', name="<i>")
    db.push("<script", [(1, "x")])
    svg = parsed(db.graph()._repr_html_()).find(".//{http://www.w3.org/2000/svg}svg")
    assert svg is not None
    said = words(db.graph().memory._repr_html_())
    assert "windows hold" in said
    assert re.search(r"<script 1 \d+ B \d+ Window \[ROWS 3\] 1 \d+ B <i>", said)
    with penstock.connect(engine="local") as nothing:
        assert words(nothing.graph().memory._repr_html_()) == "windows hold 0 B"


def test_results(db: Database) -> None:
    assert words(db.execute("CREATE STREAM x (a BIGINT)")._repr_html_()) == "stream x created"
    assert words(db.execute("SHOW RELATIONS")._repr_html_()).startswith("relation columns rows names k STRING 1")
    assert "query q1 · running" in words(db.execute("SELECT v FROM s")._repr_html_())
    assert words(db.execute("EXPLAIN q1")._repr_html_()).startswith("Query istream")
    assert str(db.execute("SHOW VIEWS")).startswith("view  text")


def test_tables() -> None:
    table = pa.table({"ts": range(100), "op": ["+", "-"] * 50, EVIL: [None, EVIL] * 50, "n": [{"a": 1}] * 100})
    said = words(html.table(table))
    assert said.endswith("100 rows, 4 columns")
    assert "… 80 more" in said
    assert said.count("NULL") == 10
    assert "0 + NULL" in said
    assert "99 - <script>" in said
    assert words(html.table(table.slice(0, 0))).endswith("0 rows, 4 columns")
    assert len(html.text("x" * 10_000)) < 3_000
    assert len(html.cql("x" * 10_000)) < 3_000


def test_dataframes_of_answers() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("""CREATE STREAM w (at TIMESTAMP, b BOOLEAN, i INT, j BIGINT, r REAL, v DOUBLE, d DECIMAL(8, 2),
                      y DATE, n INTERVAL, x BINARY, s STRING) TIMESTAMP BY at""")
        q = db.query("SELECT at, b, i, j, r, v, d, y, n, x, s, collect(j) AS c FROM w [ROWS 1] "
                     "GROUP BY at, b, i, j, r, v, d, y, n, x, s")  # fmt: skip
        types = {
            "ts": "datetime64[us]", "op": "object", "at": "datetime64[us]", "b": "bool", "i": "int32", "j": "int64",
            "r": "float32", "v": "float64", "d": "object", "y": "object", "n": "timedelta64[us]", "x": "object",
            "s": "object", "c": "object",
        }  # fmt: skip
        assert {name: str(t) for name, t in q.fetch().to_pandas().dtypes.items()} == types
        row = ("2024-05-01 10:00:00", True, 1, 2, 1.5, 2.5, Decimal("3.10"), "2024-05-01", "00:00:05", b"a", "b")
        db.push("w", [row])
        frame = q.fetch().to_pandas()
        assert {name: str(t) for name, t in frame.dtypes.items()} == types
        assert frame.loc[0, "n"] == pd.Timedelta(seconds=5)
        assert frame.loc[0, "d"] == Decimal("3.10")
        assert list(frame.loc[0, "c"]) == [2]
        db.push("w", [(row[0], *[None] * 10)])
        frame = q.fetch().to_pandas().query("op == '+'")
        assert frame.drop(columns=["ts", "op", "at", "c"]).isna().all(axis=None)
