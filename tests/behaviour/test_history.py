"""History is honest: windows over rows that are gone are refused or marked, rows may be retained on disk, and results
that lack dropped rows say so."""

from __future__ import annotations

import gc
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts import history
from penstock.hosts.local.host import LocalHost
from tests.spark.direct import directly

S = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
REVERSE = "SELECT count(*) AS n FROM s [BEGIN WINDOW 80 END WINDOW 100 HOP SIZE (-20, -20) END QUERY 0]"
TUMBLING = "SELECT count(*) AS n FROM s [TUMBLING 20]"


def rows(first: int, stop: int) -> list[tuple[int, int]]:
    return [(i, i) for i in range(first, stop)]


def flag(table: pa.Table) -> dict[str, str]:
    """What a table says of itself, without the prefix."""
    found = table.schema.metadata or {}
    return {key.decode().removeprefix("penstock.incomplete").lstrip("."): v.decode() for key, v in found.items()}


def intake(db: penstock.Database) -> int:
    return next(o.id for o in db.graph().operators if o.kind == "intake")


# -- rows that came before a query -------------------------------------------------------------------------


@pytest.mark.parametrize("retain", ["", " WITH (retain = 20)"])
def test_windows_that_go_back_to_rows_that_are_gone_are_refused(engine: str, retain: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(S + retain)
        db.push("s", rows(0, 100))
        with pytest.raises(penstock.BindError, match="the windows go back to 0, and stream `s` retains") as refused:
            db.query(REVERSE)
        assert f"its rows up to {78 if retain else 99} are not there any more" in refused.value.message
        assert not db.queries
        # What the hint says, done.
        declared = re.search(r"WITH \(retain = \d+\)", refused.value.hint or "")
        assert declared is not None
        db.execute(f"DROP STREAM s; {S} {declared[0]}")
        db.push("s", rows(0, 100))
        query = db.query(REVERSE)
        db.heartbeat("s", 100)
        table = query.fetch()
        assert table["n"].to_pylist() == [20] * 5
        assert (flag(table), query.incomplete) == ({}, ())


def test_windows_that_reach_no_further_than_what_is_retained_are_answered(engine: str) -> None:
    near = "SELECT count(*) AS n FROM s [BEGIN WINDOW 90 END WINDOW 100 HOP SIZE (-5, -5) END QUERY 80]"
    with penstock.connect(engine=engine) as db:
        db.execute(f"{S} WITH (retain = 20)")
        db.push("s", rows(0, 100))
        queries = [db.query(near), db.query("SELECT v FROM s [RANGE 50]")]
        with pytest.raises(penstock.BindError, match="is read from now on") as refused:
            db.query(near, start="now")
        assert (refused.value.hint or "").startswith("leave start = 'now' out")
        db.heartbeat("s", 100)
        assert queries[0].fetch()["n"].to_pylist() == [10, 10, 10]
        assert [q.incomplete for q in queries] == [(), ()]


def test_a_timestamp_clock_is_told_in_times() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at")
        db.push("s", [("2024-05-01 10:00:00",), ("2024-05-01 11:00:00",)])
        text = """SELECT count(*) AS n FROM s [BEGIN WINDOW '2024-05-01 11:00:00' END WINDOW '2024-05-01 12:00:00'
                  HOP SIZE (-1 HOUR, -1 HOUR) END QUERY '2024-05-01 09:00:00']"""
        with pytest.raises(penstock.BindError, match=r"go back to 2024-05-01 09:00:00\.0+ UTC") as refused:
            db.query(text)
        assert "WITH (retain = '2 hours')" in (refused.value.hint or "")
        db.execute("DROP STREAM s; CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at WITH (retain = '2 hours')")
        db.push("s", [("2024-05-01 10:00:00",), ("2024-05-01 11:00:00",)])
        query = db.query(text)
        db.close_stream("s")
        assert query.fetch()["n"].to_pylist() == [1, 1, 0]


def test_windows_that_began_before_the_query_are_marked(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(f"{S} WITH (retain = 5)")
        db.push("s", rows(0, 50))
        query = db.query(TUMBLING)
        sliding = db.query("SELECT count(*) AS n FROM s [RANGE 20]")
        db.push("s", rows(50, 81))
        db.settle()
        (mark,) = query.incomplete
        assert (mark.since, mark.until, mark.position) == (None, 60, None)
        assert "`s` that came before the query are not retained" in mark.reason
        table = query.fetch()
        assert list(zip(table["ts"].to_pylist(), table["n"].to_pylist(), strict=True)) == [(60, 16), (80, 20)]
        assert flag(table) == {"": "true", "reason": mark.reason, "until": "60"}
        assert table.column_names == ["ts", "op", "n"]
        db.push("s", rows(81, 101))
        db.settle()
        assert flag(query.fetch()) == {}
        assert sliding.incomplete == (), "what slides holds what the query has seen"
        shown = db.execute("SHOW QUERIES").table
        assert shown is not None
        assert shown["incomplete"].to_pylist() == [str(mark), ""]


def test_queries_are_shown_with_the_times_of_what_they_lack() -> None:
    with penstock.connect(engine="local", zone="Europe/Vienna") as db:
        db.execute("CREATE STREAM s (t TIMESTAMP, v INT) TIMESTAMP BY t")
        db.push("s", [("2024-05-01 10:00:10", 1)])
        query = db.query("SELECT count(*) AS n FROM s [TUMBLING 1 MINUTE]")
        result = db.execute("SHOW QUERIES")
        assert result.table is not None
        (shown,) = result.table["incomplete"].to_pylist()
        assert shown == f"results from the first one to 2024-05-01 10:01:00: {query.incomplete[0].reason}"


def test_how_far_back_rows_of_a_derived_stream_reach_may_not_be_known() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(f"{S} WITH (retain = 50); CREATE STREAM d AS SELECT ISTREAM sum(v) AS v FROM s [ROWS 3]")
        db.push("s", rows(0, 100))
        query = db.query(REVERSE.replace("FROM s", "FROM d").replace("END QUERY 0", "END QUERY 60"))
        db.heartbeat("s", 100)
        assert flag(query.fetch())["until"] == "100"


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_what_is_gone_and_what_is_marked_is_known_after_a_restart(engine: str, tmp_path: Path) -> None:
    with directly():
        with penstock.connect(tmp_path, engine=engine) as db:
            db.execute(f"{S}; CREATE STREAM kept (t BIGINT, v BIGINT) TIMESTAMP BY t WITH (retain = 20)")
            for name in ("s", "kept"):
                db.push(name, rows(0, 100))
            db.query(TUMBLING, name="first")
            before = db.queries["first"].incomplete
            assert [m.until for m in before] == [100]
        with penstock.connect(tmp_path, engine=engine) as db:
            for name in ("s", "kept"):
                with pytest.raises(penstock.BindError, match=f"up to {99 if name == 's' else 78} are not there"):
                    db.query(REVERSE.replace("FROM s", f"FROM {name}"))
            assert db.queries["first"].incomplete == before
            db.push("s", rows(100, 130))
            db.settle()
            assert flag(db.queries["first"].fetch()) == {}, "no row of that window came after the query"


# -- rows on disk ------------------------------------------------------------------------------------------


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MEMORY", 20_000)
    monkeypatch.setattr(history, "FILE", 8_000)


def on_disk(db: penstock.Database) -> int:
    return core_of(db).disk().disk_used


@pytest.mark.usefixtures("little")
def test_what_memory_does_not_keep_is_on_disk(engine: str) -> None:
    text = "SELECT count(*) AS n FROM s [BEGIN WINDOW 4000 END WINDOW 5000 HOP SIZE (-1000, -1000) END QUERY 0]"
    with penstock.connect(engine=engine) as db:
        db.execute(f"{S} WITH (retain = 'all', history = 'disk')")
        for i in range(0, 5_000, 100):
            db.push("s", rows(i, i + 100))
        assert on_disk(db) > 5_000 * 40 - 60_000
        files = core_of(db).disk().directory.path
        assert files is not None
        assert len(list(files.iterdir())) > 10
        query = db.query(text)
        db.heartbeat("s", 5_000)
        assert query.fetch()["n"].to_pylist() == [1_000] * 5
        query.stop()
        db.execute("DROP STREAM s")
        gc.collect()
        assert on_disk(db) == 0
    assert not files.exists()


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_rows_on_disk_are_forgotten_when_they_are_too_old(where: str) -> None:
    """What a query is given, and from where on it is told that rows are gone, does not depend on where they are."""
    with penstock.connect(engine="local") as db:
        db.execute(f"{S} WITH (retain = 1000, history = '{where}')")
        for i in range(0, 5_000, 70):
            db.push("s", [(2 * t, t) for t in range(i, i + 70)])
        newest = core_of(db).inputs["s"].newest_row
        query = db.query("SELECT v FROM s")
        found = query.fetch()["ts"].to_pylist()
        assert (found[0], found[-1], len(found)) == (newest - 1_000, newest, 501)
        assert core_of(db).history["s"].forgotten == newest - 1_002
        assert (on_disk(db) > 0) == (where == "disk")
        assert on_disk(db) < 60_000


@pytest.mark.usefixtures("little")
def test_what_cannot_be_written_stays_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    with penstock.connect(engine="local", disk="30 KB") as db:
        db.execute(f"{S} WITH (retain = 'all', history = 'disk')")
        for i in range(0, 5_000, 100):
            db.push("s", rows(i, i + 100))
        assert 0 < on_disk(db) <= 30_000
        assert sum("they stay in memory" in r.message for r in caplog.records) == 1
        assert db.query("SELECT v FROM s").fetch()["v"].to_pylist() == list(range(5_000))


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_rows_on_disk_are_there_after_a_restart(engine: str, tmp_path: Path) -> None:
    with directly():
        for start in (0, 2_000):
            with penstock.connect(tmp_path, engine=engine) as db:
                if not start:
                    db.execute(f"{S} WITH (retain = 3000, history = 'disk')")
                for i in range(start, start + 2_000, 100):
                    db.push("s", rows(i, i + 100))
                assert on_disk(db) > 0
        with penstock.connect(tmp_path, engine=engine) as db:
            assert on_disk(db) > 0, "they have been written again"
            query = db.query("SELECT v FROM s")
            db.settle()
            assert query.fetch()["v"].to_pylist() == list(range(999, 4_000))


def test_history_without_retain_means_nothing() -> None:
    with penstock.connect(engine="local") as db:
        with pytest.raises(penstock.BindError, match="`history` means nothing") as refused:
            db.execute(f"{S} WITH (history = 'disk')")
        assert refused.value.hint == "add it, for example WITH (retain = 1000, history = 'disk')"
        db.execute(f"{S} WITH (retain = 1000, history = 'disk')")


# -- rows that were dropped --------------------------------------------------------------------------------


def dropping(db: penstock.Database, bound: int = 3) -> None:
    db.execute(f"{S} WITH (buffer = '{bound} rows', overflow = 'drop oldest')")


@pytest.mark.parametrize(("text", "since", "until"), [
    ("SELECT v FROM s", 10, 96), ("SELECT count(*) AS n FROM s [RANGE 10]", 10, 106),
    ("SELECT count(*) AS n FROM s", 10, None), (TUMBLING, 10, 100), ("SELECT v FROM s [ROWS 5]", 10, None),
])  # fmt: skip
def test_results_that_dropped_rows_touch_are_marked(text: str, since: int, until: int | None) -> None:
    with penstock.connect(engine="local") as db:
        dropping(db)
        query = db.query(text)
        told: list[dict[str, str]] = []
        query.subscribe(lambda table: told.append(flag(table)))
        db.push("s", rows(0, 10))
        assert (flag(query.fetch()), query.incomplete) == ({}, ())
        operator = intake(db)
        db.suspend(operator)
        db.push("s", rows(10, 50))
        db.push("s", rows(50, 100))
        (mark,) = query.incomplete
        assert (mark.since, mark.until, mark.position) == (since, until, None)
        db.resume(operator)
        db.push("s", rows(100, 101))
        table = query.fetch()
        assert flag(table) == {
            "": "true", "reason": mark.reason, "since": str(since), **({} if until is None else {"until": str(until)})
        }  # fmt: skip
        (mark,) = query.incomplete
        assert mark.position == query.answered - table.num_rows
        assert "dropped" in mark.reason
        db.push("s", rows(150, 200))
        assert flag(query.fetch()) == ({} if until is not None else {**flag(table)})
        assert {} in told
        assert any(said.get("reason") == mark.reason for said in told)


def test_the_answer_as_it_stands_says_what_it_lacks() -> None:
    with penstock.connect(engine="local") as db:
        dropping(db)
        query = db.query("SELECT count(*) AS n FROM s [RANGE 10]")
        operator = intake(db)
        db.suspend(operator)
        db.push("s", rows(0, 20))
        db.resume(operator)
        assert flag(query.current())["until"] == "26"
        db.push("s", rows(30, 40))
        assert query.current()["n"].to_pylist() == [10]
        assert flag(query.current()) == {}


def test_workers_that_drop_rows_tell_who_reads() -> None:
    """Behind an intake rows wait too: there a worker drops them."""
    with penstock.connect(engine="local") as db:
        dropping(db)
        query = db.query("SELECT count(*) AS n FROM s [RANGE 10]", name="late")
        db.query("SELECT v FROM s WHERE v < 0", name="other")
        db.configure(threading="operator")
        window = next(o.id for o in db.graph().operators if o.kind == "window" and "late" in o.queries)
        db.suspend(window)
        for i in range(0, 100, 10):
            db.push("s", rows(i, i + 10))
        db.settle()
        db.resume(window)
        db.settle()
        host = core_of(db).host
        assert isinstance(host, LocalHost)
        assert host.runtime.storage.dropped_rows
        assert query.incomplete
        assert flag(query.fetch())["reason"] == query.incomplete[0].reason


@pytest.mark.parametrize("how", ["saved", "killed"])
def test_marks_of_dropped_rows_outlive_the_process(how: str, tmp_path: Path) -> None:
    path = tmp_path / "db"
    with penstock.connect(path, engine="local") as db:
        dropping(db)
        query = db.query("SELECT count(*) AS n FROM s [RANGE 10]", name="q")
        operator = intake(db)
        db.suspend(operator)
        db.push("s", rows(0, 50))
        if how == "killed":
            shutil.copytree(path, tmp_path / "copy")
        db.resume(operator)
        wanted: Any = query.incomplete
        assert [(m.since, m.until) for m in wanted] == [(0, 56)]
    where = path if how == "saved" else tmp_path / "copy"
    with penstock.connect(where, engine="local") as db:
        query = db.queries["q"]
        found = [(m.since, m.until, m.reason) for m in query.incomplete]
        assert found == [(m.since, m.until, m.reason) for m in wanted]
        db.push("s", rows(50, 58))
        assert flag(query.fetch())["since"] == "0"
