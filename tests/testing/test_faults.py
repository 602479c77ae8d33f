"""Failures that a test asks for."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.testing import Consumer, Script, answers, assert_state, connect, crash_copy, failing, fails_on, full_disk
from penstock.testing.faults import Raised
from tests.spark.direct import directly

DECLARE = "CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t"


@pytest.fixture
def spark_alone() -> Iterator[None]:
    """Databases on Spark whose tasks run in this process."""
    with directly():
        yield


def test_a_function_that_fails_on_some_rows(engine: str) -> None:
    with connect(engine=engine) as db:
        db.execute(DECLARE)
        db.create_function("twice", fails_on(lambda a: 2 * a, {13}), args=["BIGINT"], returns="BIGINT")
        bad, good = db.query("SELECT twice(a) AS b FROM s", name="bad"), db.query("SELECT a FROM s")
        db.push("s", [(1, 1)])
        db.push("s", [(2, 13), (3, 3)])
        assert len(answers(good)) == 3
        assert answers(bad)[0] == (1, "+", 2)
        assert bad.status == "failed"
        assert "injected failure" in (bad.trouble or "")


def test_a_function_that_says_when_and_how() -> None:
    picky = fails_on(max, lambda a, b: a > b, ValueError("greater"))
    assert picky(1, 2) == 2
    with pytest.raises(ValueError, match="greater"):
        picky(2, 1)


def calls_of(error: BaseException | None) -> int:
    """Through how many calls an exception says that it came."""
    assert error is not None
    return len(traceback.extract_tb(error.__traceback__))


@pytest.mark.parametrize("error", [None, ValueError, ValueError("the same one")], ids=str)
def test_an_error_does_not_remember_when_it_was_raised_before(error: Raised | None) -> None:
    bad, consumer = fails_on(float, {1}, error), Consumer(lambda n: True, error)
    script = Script(DECLARE).fail(error or ValueError)
    for fails in (lambda: bad(1), lambda: consumer(pa.table({})), lambda: list(failing([1], after=0, error=error))):
        raised = []
        for _ in range(3):
            with pytest.raises((RuntimeError, ValueError, ConnectionError)) as caught:
                fails()  # type: ignore[no-untyped-call]
            raised.append((caught.value, calls_of(caught.value)))
        assert len({calls for _, calls in raised}) == 1
        assert len({id(e) for e, _ in raised}) == (1 if isinstance(error, ValueError) else 3)
    lengths = set()
    for _ in range(3):
        with script.open() as db, pytest.raises(ValueError, match=r"^(the same one)?$") as played:
            script.play(db)
        lengths.add(calls_of(played.value))
    assert len(lengths) == 1


def test_a_subscriber_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    consumer = Consumer(fails={2})
    with connect() as db:
        db.execute(DECLARE)
        db.query("SELECT a FROM s").subscribe(consumer)
        with caplog.at_level(logging.ERROR, "penstock"):
            for i in range(3):
                db.push("s", [(i, i)])
    assert [row["a"] for row in consumer.rows] == [0, 2]
    assert consumer.calls == 3
    assert "a subscriber raised" in caplog.text


def test_somebody_who_cannot_take_answers_has_them_later() -> None:
    consumer = Consumer(lambda n: n < 3, OSError("no room"))
    with connect() as db:
        db.execute(DECLARE)
        q = db.query("SELECT a FROM s")
        db.push("s", [(1, 1)])
        for _ in range(2):
            with pytest.raises(OSError, match="no room"):
                q.transfer(consumer)
        db.push("s", [(2, 2)])
        assert q.transfer(consumer) == 2
    assert [row["a"] for row in consumer.rows] == [1, 2]


def test_a_full_disk_for_rows_that_wait() -> None:
    with full_disk() as disk, connect(memory="1 KB", when_full="raise") as db:
        db.execute(DECLARE)
        q = db.query("SELECT a FROM s")
        resting = next(o.id for o in db.graph().operators if o.kind == "query")
        db.suspend(resting)
        rows = [(i, i) for i in range(200)]
        player = Script().rows("s", rows).player(db, batch=10)
        with pytest.raises(penstock.BufferFullError, match="No space left"):
            player.rest()
        taken = db.stream("s").given
        assert 0 < taken < 200
        db.resume(resting)
        assert [a for _, _, a in answers(q)] == list(range(taken))
        disk.room = 10**6
        db.suspend(resting)
        player.rest()
        assert disk.room < 10**6
        db.resume(resting)
        assert [a for _, _, a in answers(q)] == list(range(taken, 200))


@pytest.mark.usefixtures("spark_alone")
def test_a_full_disk_for_logs(tmp_path: Path) -> None:
    with connect(tmp_path / "db", engine="spark") as db:
        db.execute(DECLARE)
        q = db.query("SELECT a FROM s")
        db.push("s", [(1, 1)])
        with full_disk(), pytest.raises(penstock.StorageError, match="nothing of this has been taken"):
            db.push("s", [(2, 2)])
        db.push("s", [(3, 3)])
        assert [a for _, _, a in answers(q)] == [1, 3]


@pytest.mark.usefixtures("spark_alone")
def test_a_database_that_was_killed(tmp_path: Path) -> None:
    script = Script(DECLARE).rows("s", [(i, i) for i in range(10)])
    with script.open("spark", path=tmp_path / "db") as db:
        db.query("SELECT sum(a) AS total FROM s [ROWS 3]", name="sums")
        player = script.play(db, until=4)
        killed = crash_copy(db, tmp_path / "killed")
        player.rest()
        expected = answers(db.queries["sums"])
    with connect(killed, engine="spark") as again:
        assert again.stream("s").given == 5
        again.push("s", [(i, i) for i in range(5, 10)])
        assert answers(again.queries["sums"]) == expected
        with pytest.raises(penstock.InputError, match=re.escape(f"{killed} is there already")):
            crash_copy(again, killed)
        assert_state(again.queries["sums"], [24])


def test_a_local_database_that_was_killed(tmp_path: Path) -> None:
    script = Script(DECLARE).rows("s", [(i, i) for i in range(10)])
    with script.open("local", path=tmp_path / "db") as db:
        db.query("SELECT sum(a) AS total FROM s [ROWS 3]", name="sums")
        player = script.play(db, until=4)
        killed = crash_copy(db, tmp_path / "killed")
        with full_disk(), pytest.raises(penstock.StorageError, match="cannot be written"):
            db.push("s", [(5, 5)])
        player.rest()
        expected = answers(db.queries["sums"])
    with connect(killed) as again:
        assert again.stream("s").given == 5
        again.push("s", [(i, i) for i in range(5, 10)])
        assert answers(again.queries["sums"]) == expected


def test_only_what_has_a_directory_is_copied(tmp_path: Path) -> None:
    with connect() as db, pytest.raises(penstock.StateError, match="no directory"):
        crash_copy(db, tmp_path / "x")
