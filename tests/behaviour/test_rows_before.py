"""Rows that came before a query: told where it happens, and the ways to have them."""

from __future__ import annotations

import io
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import penstock
from penstock.catalog import Start
from penstock.cli.main import main
from penstock.cli.shell import Shell
from penstock.database.database import core_of
from tests.notebook.shells import Cells, shell
from tests.spark.direct import directly

STREAM = "CREATE STREAM s (t BIGINT, v INT) TIMESTAMP BY t"
SELECT = "SELECT v FROM s"
SAID = "stream `s` had 2 rows before the query, which are not in its answer; register the query before rows are pushed"


def _readings() -> pd.DataFrame:
    times = pd.to_datetime(["2024-05-01 10:00:00", "2024-05-01 10:00:05", "2024-05-01 10:00:03"])
    return pd.DataFrame({"at": times, "device": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})


# -- what is told ------------------------------------------------------------------------------------------


def test_the_note_of_a_query(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        assert db.query(SELECT).note is None, "nothing has come"
        db.push("s", [(1, 1), (2, 2)])
        note = db.query(SELECT).note
        assert note is not None
        assert note.startswith(SAID)
        assert "WITH (retain = 1000)" in note
        assert db.query(SELECT, start="now").note is None, "that is what was asked for"
        db.execute("CREATE STREAM d AS SELECT ISTREAM v FROM s")
        assert db.query("SELECT v FROM d").note == note
        assert str(db.execute(SELECT)) == f"query {list(db.queries)[-1]} started\n{note}"


def test_the_note_agrees_with_the_number_of_rows_and_streams() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(f"{STREAM}; {STREAM.replace(' s ', ' r ')}")
        db.push("s", [(1, 1)])
        note = str(db.query(SELECT).note)
        assert note.startswith("stream `s` had 1 row before the query, which is not in its answer; ")
        assert "declare the stream WITH" in note
        assert note.endswith("WITH (retain = 1000) keeps those of the last 1000 ticks")
        db.push("r", [(1, 1)])
        note = str(db.query("SELECT s.v FROM s [ROWS 1], r [ROWS 1]").note)
        assert "had 1 row and stream `" in note
        assert "before the query, which are not in its answer; " in note
        assert "declare the streams WITH" in note


def test_rows_that_wait_for_slack_or_are_late_are_not_missed() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v INT) TIMESTAMP BY t SLACK 10")
        db.push("s", [(50, 1), (55, 2)])
        query = db.query(SELECT)
        assert query.note is None
        db.heartbeat("s", 60)
        assert query.fetch()["v"].to_pylist() == [1, 2]
        db.push("s", [(1, 3)])
        assert db.stream("s").late == 1
        note = db.query(SELECT).note
        assert note is not None
        assert note.startswith(SAID)


def test_what_the_remedy_says_helps() -> None:
    with penstock.connect(engine="local") as db:
        for name, retain in (("s", 1000), ("whole", "'all'")):
            db.execute(f"CREATE STREAM {name} (t BIGINT, v INT) TIMESTAMP BY t WITH (retain = {retain})")
            db.push(name, [(1, 1), (2, 2)])
            query = db.query(f"SELECT v FROM {name}")
            assert query.note is None
            assert query.fetch()["v"].to_pylist() == [1, 2]
        db.execute("CREATE STREAM r (at TIMESTAMP) TIMESTAMP BY at")
        db.push("r", [(datetime(2024, 5, 1),)])
        note = db.query("SELECT at FROM r").note
        assert note is not None
        assert "WITH (retain = '1 hour')" in note
        db.execute("CREATE STREAM r2 (at TIMESTAMP) TIMESTAMP BY at WITH (retain = '1 hour')")


def test_the_shell() -> None:
    out = io.StringIO()
    with penstock.connect(engine="local") as db:
        typed = Shell(db, out)
        typed.feed(f"{STREAM}; INSERT INTO s VALUES (1, 1), (2, 2);")
        assert "before the query" not in out.getvalue()
        typed.feed(f"{SELECT};")
        assert f"query q1 started\n{SAID}" in out.getvalue()
        typed.feed(f"CREATE QUERY named AS {SELECT};")
        assert f"query named started\n{SAID}" in out.getvalue()


def test_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "q.cql"
    script.write_text(f"{STREAM}; INSERT INTO s VALUES (1, 1), (2, 2); CREATE QUERY q AS {SELECT};")
    assert main(["run", str(script), "--engine", "local"]) == 0
    assert f"penstock: query `q`: {SAID}" in capsys.readouterr().err
    script.write_text(f"{STREAM}; CREATE QUERY q AS {SELECT}; INSERT INTO s VALUES (1, 1), (2, 2);")
    assert main(["run", str(script), "--engine", "local", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_notebooks(capsys: pytest.CaptureFixture[str]) -> None:
    with shell() as cells:
        cells.run("%load_ext penstock")
        cells.run(f"%%cql --engine local\n{STREAM};\nINSERT INTO s VALUES (1, 1), (2, 2)")
        query = cells.run(f"%cql --name q {SELECT}")
        assert SAID in query._repr_html_().replace("&#x27;", "'")
        _shown_as_text(cells, query)
        with pytest.warns(UserWarning, match="rows that were pushed into `s` before a query are not in its answer"):
            cells.run("q.fetch()")
        cells.run("db.push('s', [(3, 3)])")
        assert SAID not in query._repr_html_()


def _shown_as_text(cells: Cells, query: object) -> None:
    cells.variables["query"] = query
    text = cells.run("get_ipython().display_formatter.format(query)[0]['text/plain']")
    assert text.startswith("<Query q: running, 0 answers>\nstream `s` had 2 rows before")


def _in_main(code: str, **names: Any) -> list[str]:
    """The warnings of code that stands in a script."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        exec(compile(code, "script.py", "exec"), {"__name__": "__main__", **names})
    assert all(w.filename == "script.py" for w in found)
    return [str(w.message) for w in found]


@pytest.mark.parametrize("how", ["fetch()", "current()"])
def test_a_warning_once(how: str, engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        db.push("s", [(1, 1), (2, 2)])
        query = db.query(SELECT)
        (said,) = _in_main(f"q.{how}\nq.{how}\nq.{how}", q=query)
        assert said.startswith("rows that were pushed into `s` before a query are not in its answer; register the")


def test_no_warning_where_nothing_is_wrong() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        assert _in_main("q.fetch()", q=db.query(SELECT)) == [], "nothing has come"
        db.push("s", [(1, 1), (2, 2)])
        first, none, library = db.query(SELECT), db.query("SELECT v FROM s WHERE v > 9"), db.query(SELECT)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert library.fetch().num_rows == 0, "this is no __main__"
        db.push("s", [(3, 3)])
        assert _in_main("q.fetch(); q.fetch()", q=first) == [], "there is an answer"
        assert _in_main("q.fetch()", q=none) == [], "rows have come since"


# -- what a stream retains ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("retain", "found"), [("10", 11), ("'10 us'", 11), ("'all'", 30), ("1", 2)])
def test_retain(engine: str, retain: str, found: int) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(f"{STREAM} WITH (retain = {retain})")
        db.push("s", [(t, t) for t in range(30)])
        query = db.query("SELECT count(*) AS n FROM s")
        assert query.current()["n"].to_pylist() == [found]
        db.push("s", [(30, 30)])
        assert query.current()["n"].to_pylist() == [found + 1]


@pytest.mark.parametrize(("stream", "retain", "said"), [
    ("(t BIGINT) TIMESTAMP BY t", "0", "is a number of ticks, or 'all'; write for example WITH (retain = 1000)"),
    ("(t BIGINT) TIMESTAMP BY t", "1.5", "`retain` is a number of ticks"),
    ("(t BIGINT) TIMESTAMP BY t", "'ten'", "'ten' is not a length of time"),
    ("(v INT)", "10", "`retain` is a length of time, or 'all'; write for example WITH (retain = '1 hour')"),
    ("(v INT)", "true", "`retain` is a length of time"),
])  # fmt: skip
def test_what_cannot_be_retained(stream: str, retain: str, said: str) -> None:
    with penstock.connect(engine="local") as db:
        with pytest.raises(penstock.BindError) as raised:
            db.execute(f"CREATE STREAM s {stream} WITH (retain = {retain})")
        assert said in str(raised.value)
        assert not db.catalog.streams


def test_start(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(f"{STREAM} WITH (retain = 10)")
        db.execute("CREATE STREAM gone (t BIGINT, v INT) TIMESTAMP BY t")
        db.push("s", [(1, 1), (2, 2)])
        queries = [db.query(SELECT, start=start) for start in (None, "retained", "now")]
        db.execute(f"CREATE QUERY late AS {SELECT} WITH (start = 'now')")
        db.execute(f"CREATE QUERY early AS {SELECT} WITH (start = 'retained')")
        queries += [db.queries["late"], db.queries["early"]]
        db.push("s", [(3, 3)])
        found = [query.fetch()["v"].to_pylist() for query in queries]
        assert found == [[1, 2, 3], [1, 2, 3], [3], [3], [1, 2, 3]]
        with pytest.raises(penstock.BindError, match="stream `gone` retains no rows that the query could start with"):
            db.execute("CREATE QUERY q AS SELECT s.v FROM s, gone INTO d WITH (start = 'retained')")
        assert "d" not in db.catalog.streams
        assert "q" not in db.queries
        with pytest.raises(penstock.BindError, match="`start` is 'now' or 'retained', not 'then'"):
            db.query(SELECT, start="then")  # type: ignore[arg-type]
        with pytest.raises(penstock.BindError, match="`start` is 'now' or 'retained', not '7'"):
            db.execute(f"CREATE QUERY q AS {SELECT} WITH (start = 7)")


@pytest.mark.parametrize("starts", [("now", "retained"), ("retained", "now")])
def test_queries_that_come_together_and_start_differently(starts: tuple[Start, Start]) -> None:
    """On Spark they are in one micro-batch, on the local engine nothing has come between them."""
    for options in ({"engine": "local"}, {"engine": "spark", "trigger": 0.05, "shards": 2}):
        with directly(), penstock.connect(**options) as db:
            db.execute(f"{STREAM} WITH (retain = 10)")
            db.push("s", [(1, 1), (2, 2)])
            with core_of(db).lock:
                counts = {
                    (start, text): db.query(text, start=start)
                    for text in ("SELECT v, count(*) AS n FROM s GROUP BY v", "SELECT sum(v) AS n FROM s [ROWS 2]")
                    for start in starts
                }
            db.push("s", [(3, 2)])
            found = {key: sorted(row["n"] for row in query.current().to_pylist()) for key, query in counts.items()}
            assert list(found.values()) == [
                [1, 2] if start == "retained" and "GROUP" in text
                else [4] if start == "retained"
                else [1] if "GROUP" in text
                else [2]
                for start, text in counts
            ]  # fmt: skip


@pytest.mark.parametrize("close", [False, True])
def test_what_is_retained_after_a_restart(tmp_path: Path, close: bool) -> None:
    with directly():
        with penstock.connect(tmp_path, engine="spark") as db:
            db.execute(f"{STREAM} WITH (retain = 5)")
            db.execute("CREATE STREAM everything (t BIGINT, v INT) TIMESTAMP BY t WITH (retain = 'all')")
            for name in ("s", "everything"):
                db.push(name, [(t, t) for t in range(0, 20, 2)])
                if close:
                    db.close_stream(name)
            before = [db.query(f"SELECT count(*) AS n FROM {name}").current() for name in ("s", "everything")]
        with penstock.connect(tmp_path, engine="spark") as db:
            after = [db.query(f"SELECT count(*) AS n FROM {name}").current() for name in ("s", "everything")]
        assert before == after
        assert [table["n"].to_pylist() for table in after] == [[3], [10]]


# -- declare with the rows --------------------------------------------------------------------------------------


def test_declared_with_its_rows(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        said = db.declare("readings", _readings(), load=True)
        assert said.endswith("TIMESTAMP BY at SLACK 2 SECONDS WITH (retain = 'all');\n")
        sums = db.query("SELECT device, sum(value) AS total FROM readings GROUP BY device ORDER BY device")
        assert sums.current().to_pylist() == [{"device": "a", "total": 4.0}, {"device": "b", "total": 2.0}]
        assert sums.note is None
        rooms = pd.DataFrame({"device": ["a", "b"], "room": ["hall", "attic"]})
        db.declare("rooms", rooms, key="device", load=True)
        joined = db.query("SELECT room, value FROM readings JOIN rooms USING (device) ORDER BY value")
        assert [tuple(row.values()) for row in joined.current().to_pylist()] == [
            ("hall", 1.0), ("attic", 2.0), ("hall", 3.0)
        ]  # fmt: skip
        db.push("readings", [(datetime(2024, 5, 1, 10, 1), "b", 5.0)])
        db.heartbeat("readings", datetime(2024, 5, 1, 11))
        assert sums.current()["total"].to_pylist() == [4.0, 7.0]
        assert db.query("SELECT count(*) AS n FROM readings").current()["n"].to_pylist() == [4]
        assert joined.current().num_rows == 4


def test_rows_of_files_and_other_tables(tmp_path: Path) -> None:
    frame = _readings()
    frame.to_csv(tmp_path / "readings.csv", index=False)
    frame.to_parquet(tmp_path / "readings.parquet")
    frame.assign(at=frame["at"].dt.strftime("%d.%m.%Y %H:%M:%S")).to_csv(tmp_path / "other.csv", index=False)
    for data in ("readings.csv", "readings.parquet", "other.csv", pl.from_pandas(frame)):
        with penstock.connect(engine="local") as db:
            db.declare("readings", tmp_path / data if isinstance(data, str) else data, load=True)
            db.declare("devices", tmp_path / "readings.csv", key=["device", "at"], load=True)
            assert db.query("SELECT sum(value) AS v FROM readings").current()["v"].to_pylist() == [6.0]
            assert db.query("SELECT count(*) AS n FROM devices").current()["n"].to_pylist() == [3]


def test_rows_that_cannot_be_loaded_leave_nothing(tmp_path: Path) -> None:
    twice = pd.DataFrame({"k": [1, 1], "v": [2, 3]})
    times = [f"2024-05-01 10:{t // 60:02}:{t % 60:02}" for t in range(3_600)] * 3
    (tmp_path / "x.csv").write_text("at,v\n" + "".join(f"{time},1\n" for time in sorted(times)) + ",2\n")
    with penstock.connect(engine="local") as db:
        with pytest.raises(penstock.InputError, match=r"the key .* is there already"):
            db.declare("r", twice, key="k", load=True)
        with pytest.raises(penstock.InputError, match="line 10802"):
            db.declare("s", tmp_path / "x.csv", load=True)
        assert not db.catalog.relations
        assert not db.catalog.streams
        db.declare("r", twice.drop_duplicates("k"), key="k", load=True)
        assert core_of(db).relations["r"].rows == [(1, 2)]


def test_loaded_rows_after_a_restart(tmp_path: Path) -> None:
    with directly():
        with penstock.connect(tmp_path, engine="spark") as db:
            db.declare("readings", _readings(), load=True)
            db.declare("rooms", pd.DataFrame({"device": ["a"], "room": ["hall"]}), key="device", load=True)
        with penstock.connect(tmp_path, engine="spark") as db:
            joined = db.query("SELECT room, value FROM readings JOIN rooms USING (device)")
            assert joined.current()["value"].to_pylist() == [1.0, 3.0]


# -- an index of times --------------------------------------------------------------------------------------------


def test_an_index_of_times_is_a_column(engine: str) -> None:
    frame = _readings().set_index("at").sort_index()
    with penstock.connect(engine=engine) as db:
        said = db.declare("readings", frame)
        assert said == "CREATE STREAM readings (at TIMESTAMP, device STRING, value DOUBLE) TIMESTAMP BY at;\n"
        query = db.query("SELECT at, value FROM readings")
        db.push("readings", frame)
        assert query.fetch()["at"].to_pylist() == sorted(map(pd.Timestamp.to_pydatetime, _readings()["at"]))


def test_an_index_without_a_name() -> None:
    frame = _readings().set_index("at").sort_index().rename_axis(None)
    with penstock.connect(engine="local") as db:
        assert "(time TIMESTAMP, device STRING" in db.declare("r", frame, load=True)
        assert db.query("SELECT time FROM r").current()["time"].to_pylist()[0] == datetime(2024, 5, 1, 10)
        assert "(timestamp TIMESTAMP, time BIGINT)" in db.declare("q", pd.DataFrame({"time": [1, 2, 3]}, frame.index))
        db.execute("CREATE STREAM own (device STRING, value DOUBLE, happened TIMESTAMP) TIMESTAMP BY happened")
        query = db.query("SELECT happened FROM own")
        db.push("own", frame)
        assert query.fetch().num_rows == 3, "it is the time that is missing"


def test_an_index_that_is_no_column() -> None:
    frame = _readings()
    with penstock.connect(engine="local") as db:
        assert "index" not in db.declare("r", frame.set_index("at", drop=False))
        assert [f.name for f in db.catalog.streams["r"].schema] == ["at", "device", "value"]
        query = db.query("SELECT value FROM r")
        db.push("r", frame.set_index(frame["at"] + pd.Timedelta(days=1)).rename_axis("other"))
        db.close_stream("r")
        assert query.fetch()["ts"].to_pylist()[0] == datetime(2024, 5, 1, 10), "there is a column for it"
        other = pd.DataFrame({"At": ["Graz"], "v": [1]}, pd.DatetimeIndex(["2024-05-01 12:00"], name="at"))
        told = db.declare("other", other, load=True)
        assert told.startswith("-- left out: the index `at`, because a column has its name; rename one of them\n")
        zoned = pd.DataFrame({"v": [1]}, pd.DatetimeIndex(["2024-05-01 12:00+02:00"], name="at"))
        db.declare("z", zoned, load=True)
        assert db.query("SELECT at FROM z").current()["at"].to_pylist() == [datetime(2024, 5, 1, 10)]
