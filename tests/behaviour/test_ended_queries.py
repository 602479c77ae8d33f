"""Queries that are over stay listed, with how and when they ended: those that were stopped up to a bound."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from penstock.hosts.registered import KEPT
from penstock.testing import crash_copy
from tests.spark.direct import directly

DECLARE = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t; CREATE STREAM e (t BIGINT) TIMESTAMP BY t"
FAILED = "PS301: query `fails`: function `refuse` raised ValueError: not 2, called with (2); "
kept = pytest.mark.parametrize("engine", ["local", "spark"], indirect=True)
"""Engines that keep a database in a directory."""


def refuse(value: int) -> int:
    raise ValueError(f"not {value}")


def listed(db: penstock.Database) -> dict[str, tuple[str, str, str, str]]:
    """All queries: status, answers, how, and when they ended."""
    table = db.execute("SHOW ALL QUERIES").table
    assert table is not None
    assert table.column_names[-3:] == ["text", "ended", "how"]
    return {row["query"]: (row["status"], row["answers"], row["how"], row["ended"]) for row in table.to_pylist()}


def ways(db: penstock.Database) -> dict[str, tuple[str, str, bool]]:
    """The same without the time, of which it is only told whether it is there."""
    return {name: (status, how[: len(FAILED)], bool(at)) for name, (status, _, how, at) in listed(db).items()}


def ended_in_every_way(db: penstock.Database) -> dict[str, penstock.Query]:
    """A query that runs, and others that were stopped, have ended and failed."""
    db.execute(DECLARE)
    db.create_function("refuse", refuse, args=["BIGINT"], returns="BIGINT")
    texts = {"runs": "v FROM s", "stopped": "v FROM s", "fails": "refuse(v) AS v FROM s", "ends": "t FROM e"}
    queries = {name: db.query(f"SELECT {text}", name=name) for name, text in texts.items()}
    db.push("s", [(1, 2)])
    db.push("e", [(1,)])
    db.close_stream("e")
    db.settle()
    db.execute("STOP QUERY stopped")
    return queries


WAYS = {
    "runs": ("running", "", False),
    "fails": ("failed", FAILED, True),
    "ends": ("ended", "no further answer can come", True),
    "stopped": ("stopped", "it was stopped", True),
}


def test_how_and_when_queries_ended(engine: str) -> None:
    before = time.time()
    with penstock.connect(engine=engine) as db:
        queries = ended_in_every_way(db)
        assert ways(db) == WAYS
        for status, _, _, at in listed(db).values():
            if status != "running":
                assert before - 1 <= datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() <= time.time() + 1
        # Others see what they saw: those that have not been stopped.
        assert set(db.queries) == {"runs", "fails", "ends"}
        shown = db.execute("SHOW QUERIES").table
        assert shown is not None
        assert shown["query"].to_pylist() == ["runs", "fails", "ends"]
        # The results that wait can still be read, and there are as many as it says.
        assert listed(db)["stopped"][1] == "1"
        assert queries["stopped"].fetch()["v"].to_pylist() == [2]
        with pytest.raises(penstock.CatalogError, match="no query `stopped`; it has been stopped; SHOW ALL QUERIES"):
            db.execute("STOP QUERY stopped")
        # What is stopped after it has ended, has ended.
        was = {name: how for name, how in listed(db).items() if name in ("ends", "fails")}
        queries["ends"].stop()
        db.execute("DROP QUERY fails")
        assert {name: listed(db)[name] for name in was} == was
        assert list(db.queries) == ["runs"]


def test_a_new_query_of_that_name_takes_its_place(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        ended_in_every_way(db)
        with pytest.raises(penstock.BindError):
            db.query("SELECT nothing FROM s", name="stopped")
        with pytest.raises(penstock.BindError):
            db.query("SELECT v FROM s", name="stopped", start="retained")
        assert ways(db) == WAYS
        db.query("SELECT v FROM s", name="stopped")
        assert ways(db) == {**WAYS, "stopped": WAYS["runs"]}


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(KEPT + 5)]
    with penstock.connect(tmp_path, engine="local") as db:
        db.execute(DECLARE)
        for name in names:
            db.query("SELECT v FROM s", name=name).stop()
        assert list(listed(db)) == names[5:]
    with penstock.connect(tmp_path, engine="local") as db:
        assert list(listed(db)) == names[5:]


@kept
def test_they_are_there_after_a_restart(engine: str, tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "db", engine=engine, functions=True) as db:
        ended_in_every_way(db)
        assert ways(db) == WAYS
        before = listed(db)
    with penstock.connect(tmp_path / "db", engine=engine, functions=True) as db:
        assert listed(db) == before
        db.queries["runs"].stop()
        db.query("SELECT v FROM s", name="stopped")
        killed = crash_copy(db, tmp_path / "killed")
        before = listed(db)
    with penstock.connect(killed, engine=engine, functions=True) as db:
        assert listed(db) == before
        assert ways(db) == {**WAYS, "runs": WAYS["stopped"], "stopped": WAYS["runs"]}


def test_an_end_that_only_the_log_knows_of_has_no_time(tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "db", engine="local", functions=True) as db:
        ended_in_every_way(db)
        killed = crash_copy(db, tmp_path / "killed")
        stopped = listed(db)["stopped"]
    with penstock.connect(killed, engine="local", functions=True) as db:
        unseen = {name: (status, how, seen and name == "stopped") for name, (status, how, seen) in WAYS.items()}
        assert ways(db) == unseen
        assert listed(db)["stopped"] == stopped


def test_the_other_engine_knows_them(tmp_path: Path) -> None:
    with penstock.connect(tmp_path, engine="local", functions=True) as db:
        ended_in_every_way(db)
        before = listed(db)
    with directly():
        for engine in ("spark", "local"):
            with penstock.connect(tmp_path, engine=engine, functions=True) as db:
                assert listed(db) == before


def test_a_query_that_cannot_be_stopped_is_not_listed_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.connect(tmp_path, engine="local") as db:
        db.execute(DECLARE)
        query = db.query("SELECT v FROM s", name="q")
        with monkeypatch.context() as patch:
            patch.setattr("penstock.storage.store.Store.record", _no_room)
            with pytest.raises(penstock.StorageError):
                query.stop()
        assert listed(db)["q"][0] == query.status == "running"


def _no_room(*given: object, **more: object) -> int:
    raise penstock.StorageError("the disk is full")
