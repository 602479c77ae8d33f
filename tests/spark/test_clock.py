"""Streams move on with the clock on Spark: a master's arrival is answered by itself, and a restart answers the same."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

import penstock
from penstock.database.database import core_of
from penstock.hosts.spark.parts import part
from penstock.hosts.spark.parts.host import SparkHost
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.runner import SparkRunner
from penstock.hosts.spark.parts.talk import Offset
from penstock.testing import Clock, answers
from tests.budget import examples
from tests.generated.clocks import BEGIN, Life, do, lived, lives
from tests.generated.clocks import answers as results
from tests.generated.lives import begin_anew
from tests.spark.direct import directly, host_of

_LONG = 300.0
TWO = "CREATE STREAM stocks (k BIGINT, price BIGINT); CREATE STREAM news (k BIGINT)"
ASK = "SELECT ISTREAM price FROM stocks [RANGE 1 HOUR], news [NOW] WHERE stocks.k = news.k MASTER news"


def test_a_master_s_arrival_is_answered_within_two_micro_batches(spark: SparkSession) -> None:
    heard = threading.Event()
    found: list[object] = []

    def hear(table: pa.Table) -> None:
        found.extend(table["price"].to_pylist())
        heard.set()

    with penstock.connect(engine="spark", trigger=0.0) as db:
        db.execute(TWO)
        db.query(ASK, name="q").subscribe(hear)
        db.push("stocks", [(1, 10), (2, 20)])
        db.settle()
        before = db.metrics().num_rows
        db.push("news", [(2,)])
        assert heard.wait(_LONG)
        assert found == [20]
        assert db.metrics().num_rows - before <= 2


def test_an_idle_database_writes_nothing_while_readers_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the window is empty, neither the clock nor readers, Spark's or the user's, change anything."""
    asked, confirmed = threading.Semaphore(0), threading.Condition()
    upto: dict[str, int] = {}
    heard: list[int] = []
    next_offset, delivered = Part.next_offset, SparkHost.delivered

    def asks(one: Part, start: Offset) -> Offset:
        found = next_offset(one, start)
        if found == start:
            asked.release()
        return found

    def confirms(host: SparkHost, runner: SparkRunner, last: int, notes: None = None) -> None:
        delivered(host, runner, last, notes)
        with confirmed:
            upto[runner.id] = last
            confirmed.notify_all()

    def hear(answers: pa.Table) -> None:
        with confirmed:
            heard.extend(answers.column("k").to_pylist())
            confirmed.notify_all()

    monkeypatch.setattr(Part, "next_offset", asks)
    monkeypatch.setattr(SparkHost, "delivered", confirms)
    monkeypatch.setattr(part, "_PATIENCE", 0.01)
    clock = Clock("2024-01-01")
    with directly(), penstock.connect(tmp_path / "db", engine="spark", clock=clock, trigger=0.0) as db:
        db.execute("CREATE STREAM s (k BIGINT)")
        counts = db.query("SELECT count(*) AS n FROM s [RANGE 1 SECOND]", name="counts")
        every = db.query("SELECT k FROM s", name="every")
        reader = threading.Thread(target=lambda: [None for _ in counts], daemon=True)
        reader.start()
        every.subscribe(hear)
        for i in range(3):
            db.push("s", [(i,)])
            clock.advance("400 ms")
        clock.advance("1 s")
        db.settle()
        host, core = host_of(db), core_of(db)
        with confirmed:
            assert confirmed.wait_for(lambda: [*upto.values()] == [core.queries["counts"].answered], _LONG)
            assert confirmed.wait_for(lambda: heard == [0, 1, 2], _LONG)
        host.save()

        def state() -> tuple[int, int, dict[str, tuple[int, int]]]:
            files = ((path, path.stat()) for path in (tmp_path / "db").rglob("*") if path.is_file())
            found = {str(path): (stat.st_mtime_ns, stat.st_size) for path, stat in files}
            return host.kept.keeper.store.number, db.metrics().num_rows, found

        before = state()
        while asked.acquire(blocking=False):
            pass
        for _ in range(20):
            clock.advance("10 s")
            assert counts.fetch().num_rows == 0
            assert asked.acquire(timeout=_LONG), "the source of the streaming query asks for more"
        assert state() == before
        counts.stop()
        reader.join(_LONG)


def test_what_the_clock_moved_is_there_after_a_restart(tmp_path: Path) -> None:
    clock = Clock("2024-01-01")
    with directly():
        with penstock.connect(tmp_path, engine="spark", clock=clock, trigger=0.0) as db:
            db.execute(TWO)
            db.query(ASK, name="q")
            db.push("stocks", [(1, 10)])
            db.push("news", [(1,)])
            clock.advance(5)
            progress = db.stream("stocks").progress
            assert progress == clock()
        with penstock.connect(tmp_path, engine="spark", clock=clock, trigger=0.0) as db:
            assert db.stream("stocks").progress == progress
            assert [row[2] for row in answers(db.queries["q"])] == [10]


def restarted(life: Life, engine: str, path: str | None) -> dict[str, Counter[object]]:
    """A life with restarts in it, of a database with a directory; one without lives on, and is idle from there."""
    clock = Clock(BEGIN)
    db = penstock.connect(path, engine=engine, clock=clock)
    try:
        for text in life.declare:
            db.execute(text)
        for number, step in enumerate(life.steps):
            do(db, clock, step)
            if number % 4 == 3:
                if path is None:
                    begin_anew(db)
                else:
                    db.close()
                    db = penstock.connect(path, engine=engine, clock=clock)
        for name, stream in db.catalog.streams.items():
            if not stream.derived:
                db.close_stream(name)
        return results(db)
    finally:
        db.close()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(life=lives())
def test_lives_with_restarts_equal_the_reference(life: Life) -> None:
    wanted = restarted(life, "reference", None)
    with directly(), tempfile.TemporaryDirectory() as path:
        assert restarted(life, "spark", path) == wanted, str(life)
    with tempfile.TemporaryDirectory() as path:
        assert restarted(life, "local", path) == wanted, str(life)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(life=lives())
def test_lives_equal_the_reference(life: Life) -> None:
    with directly():
        assert lived(life, "spark") == lived(life, "reference"), str(life)
