"""Processes of Spark that end while a database goes on: Python workers that a query kills, and Java."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.database.database import core_of
from penstock.hosts.options import SparkOptions
from penstock.hosts.spark.parts import part as parts
from penstock.hosts.spark.parts.cluster import Cluster
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.runner import SparkRunner
from penstock.hosts.spark.parts.task import Report, Trouble
from penstock.hosts.spark.parts.working import task_of
from penstock.hosts.spark.running import is_dead, is_to_blame
from tests.conftest import ON_CLUSTER, ROOT
from tests.spark.direct import directly, host_of
from tests.spark.test_micro_batches import Manual

S = "CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t"


def deadly(v: float) -> float:
    import os
    import signal

    if v == 3.0:
        os.kill(os.getpid(), signal.SIGKILL)
    return v


def test_a_query_that_ends_its_process_is_stopped_and_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.connect(tmp_path, engine="spark", shards=2, trigger=0) as db:
        db.execute(S)
        db.create_function("deadly", deadly, args=["DOUBLE"], returns="DOUBLE")
        good = db.query("SELECT ISTREAM sum(v) AS total FROM s [ROWS 2]", name="good")
        bad = db.query("SELECT deadly(v) AS v FROM s", name="bad")
        other = db.query("SELECT v FROM s WHERE v > 1", name="other")
        for i in (1, 2):
            db.push("s", [(i, float(i))])
        db.settle()
        db.push("s", [(3, 3.0)])
        while bad.status == "running":
            with contextlib.suppress(penstock.EngineError):  # each attempt that ends a process is told
                db.settle()
        db.push("s", [(4, 4.0)])
        assert good.fetch().column("total").to_pylist() == [1.0, 3.0, 5.0, 7.0]
        assert other.fetch().column("v").to_pylist() == [2.0, 3.0, 4.0]
        assert bad.fetch().column("v").to_pylist() == [1.0, 2.0]
        with pytest.raises(penstock.QueryFailed, match="query `bad`"):
            bad.fetch()
    with penstock.connect(tmp_path, engine="spark", functions=True, trigger=0) as db:
        assert db.queries["bad"].status == "failed"
        db.push("s", [(5, 5.0)])
        assert db.queries["good"].fetch().column("total").to_pylist() == [9.0]


# -- who is to blame ----------------------------------------------------------------------------------

_ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, "
    "most recent failure: Lost task 0.3 in stage 3.0 (TID 7) (127.0.0.1 executor 1): "
)
CRASHED = f"{_ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
KILLED = (
    f"{_ABORTED}ExecutorLostFailure (executor 1 exited caused by one of the running tasks) "
    "Reason: Command exited with code 137"
)
PREEMPTED = f"{_ABORTED}ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: preempted"


class Deaths:
    """Micro-batches of a database that are made by hand, some of which end a process, as Spark tells it."""

    def __init__(self, db: penstock.Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.db, self._host = db, host_of(db)
        self.lives = True
        """Whether Spark does other tasks then."""
        self._cluster = Cluster(SparkOptions())
        self._cluster._host = self._host
        monkeypatch.setattr(self._cluster, "_lives", lambda: self.lives)

    def part_of(self, name: str) -> Part:
        runner = core_of(self.db).queries[name].runner
        assert isinstance(runner, SparkRunner)
        assert runner.part is not None
        return runner.part

    def attempt(self, part: Part, death: str | None = None) -> None:
        part.wake(hurry=True)
        tasks = [task_of(content) for content in part.contents(part.next_offset(part.offset))]
        if death is not None:
            self._cluster.attempt_failed(part, RuntimeError(death))
            return
        assert isinstance(self._host.cluster, Manual)
        assert part.record(self._host.cluster.run(part, tasks))

    def states(self) -> list[str]:
        return [query.status for query in self.db.queries.values()]


@pytest.fixture
def deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deaths]:
    with directly(Manual), penstock.connect(tmp_path, engine="spark", trigger=0) as db:
        db.execute(S)
        for name in "ab":
            db.query(f"SELECT v FROM s WHERE v > {ord(name)}", name=name)
        db.push("s", [(1, 1.0)])
        yield Deaths(db, monkeypatch)


def test_what_spark_says_of_processes_that_end() -> None:
    errors = [RuntimeError(text) for text in (CRASHED, KILLED, PREEMPTED, "no luck")]
    assert list(map(is_dead, errors)) == [True, True, True, False]
    assert list(map(is_to_blame, errors)) == [True, True, False, False]


@pytest.mark.parametrize("death", [pytest.param(CRASHED, id="worker"), pytest.param(KILLED, id="executor")])
def test_a_query_that_alone_ends_its_process_while_others_live_fails(deaths: Deaths, death: str) -> None:
    for _ in range(2):
        deaths.attempt(deaths.part_of("a"), death)
    assert deaths.part_of("a") is not deaths.part_of("b")
    deaths.attempt(deaths.part_of("b"))
    for _ in range(3):
        deaths.attempt(deaths.part_of("a"), death)
        assert deaths.states() == ["running", "running"]
    deaths.attempt(deaths.part_of("a"), death)
    assert deaths.states() == ["failed", "running"]


def test_a_query_is_not_to_blame_for_what_happened_before_its_part_was_divided(deaths: Deaths) -> None:
    first = deaths.part_of("a")
    for _ in range(2):
        deaths.attempt(first, CRASHED)
    assert [first, len(first.queries)] == [deaths.part_of("a"), 1]
    for name in "ab":
        for _ in range(3):
            deaths.attempt(deaths.part_of(name), CRASHED)
        deaths.attempt(deaths.part_of(name))
    deaths.db.push("s", [(2, 1000.0)])
    for name in "ab":
        for _ in range(3):
            deaths.attempt(deaths.part_of(name), CRASHED)
        deaths.attempt(deaths.part_of(name))
        assert deaths.db.queries[name].fetch(wait=False).column("v").to_pylist() == [1000.0]
    assert deaths.states() == ["running", "running"]


def test_lost_machines_are_nobodys_fault(deaths: Deaths) -> None:
    for _ in range(10):
        deaths.attempt(deaths.part_of("a"), PREEMPTED)
    assert deaths.part_of("a") is deaths.part_of("b")
    assert deaths.states() == ["running", "running"]


def test_where_spark_loses_processes_whatever_they_do_no_query_is_to_blame(deaths: Deaths) -> None:
    deaths.lives = False
    for _ in range(10):
        deaths.attempt(deaths.part_of("a"), CRASHED)
    assert deaths.part_of("a") is deaths.part_of("b")
    deaths.db.queries["b"].stop()
    for i in range(20):
        deaths.lives = i % 4 < 3
        deaths.attempt(deaths.part_of("a"), CRASHED)
    assert deaths.db.queries["a"].status == "running"


_JAVA = """
    import os, signal, sys
    import penstock
    with penstock.connect(sys.argv[1], engine="spark", master="local[1]", trigger=0) as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        q = db.query("SELECT ISTREAM sum(v) AS total FROM s [ROWS 2]")
        for i in range(6):
            db.push("s", [(i, i)])
            if i % 2:
                print(q.fetch().column("total").to_pylist(), flush=True)
            if i == 3:
                from pyspark import SparkContext
                os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
"""


@pytest.mark.xdist_group("killed")
def test_java_that_is_killed_is_started_again(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_JAVA), str(tmp_path / "db")], env=environment, capture_output=True,
        text=True, timeout=280, check=False,
    )  # fmt: skip
    assert run.stdout.splitlines() == ["[0, 1]", "[3, 5]", "[7, 9]"], run.stderr
    assert run.returncode == 0, run.stderr


_STOPPED = """
import sys
import penstock
from pyspark import SparkContext
with penstock.connect(sys.argv[1], engine="spark", master="local[2]") as db:
    db.execute("CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t")
    q = db.query("SELECT count(*) AS n FROM s")
    db.push("s", [(1, 1)])
    found = q.fetch().to_pylist()
    context = SparkContext.getOrCreate()
    context._jsc.sc().stop() if sys.argv[2] == "java" else context.stop()
    db.push("s", [(2, 1)])
    for _ in range(20):
        try:
            found += q.fetch().to_pylist()
            break
        except penstock.EngineError as error:
            print(error, file=sys.stderr)
    print([row["n"] for row in found if row["op"] == "+"])
"""


@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("who", ["java", "python"] if ON_CLUSTER else ["python"])  # make cluster: both
def test_a_database_goes_on_after_spark_was_stopped(who: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STOPPED, str(tmp_path / "db"), who], capture_output=True, text=True, timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["[1, 2]"], done.stderr


def test_a_streaming_query_whose_tasks_cannot_be_read_is_started_again(spark: SparkSession, tmp_path: Path) -> None:
    """As if two streaming queries had written to the environment of one source at once: its map counts wrongly."""
    with penstock.connect(tmp_path / "db", engine="spark", trigger=0) as db:
        db.execute(S)
        query = db.query("SELECT v FROM s", name="q")
        db.push("s", [(1, 1.0)])
        assert query.fetch().column("v").to_pylist() == [1.0]
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        environment = manager.lookupDataSource("penstock").dataSourceCls().envVars()
        size = environment.getClass().getDeclaredField("size")
        size.setAccessible(True)
        size.setInt(environment, size.getInt(environment) + 1)
        db.push("s", [(2, 2.0)])
        failed = set[str]()
        found: list[float] = []
        while not found:
            try:
                found += query.fetch().column("v").to_pylist()
            except penstock.EngineError as error:
                failed.add(error.message)
        assert found == [2.0]
        assert any("OptionalDataException" in message for message in failed), failed


# -- what Spark takes for done, or asks still ---------------------------------------------------------


def fetched(query: penstock.Query, column: str) -> list[object]:
    """What a query answers, if it does; what goes wrong before is forgiven."""
    found: list[object] = []

    def ask() -> None:
        while not found:
            with contextlib.suppress(penstock.EngineError):
                found.extend(query.fetch().column(column).to_pylist())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(200)
    assert not asking.is_alive(), "it does not answer"
    return found


@pytest.mark.parametrize("dies", [True, False])
def test_a_micro_batch_that_spark_takes_for_done_is_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, dies: bool
) -> None:
    """Something failed as it does when Java dies, and Java has not died. Spark commits the offset all the same."""
    record, failed = Part.record, list[str]()

    def unlucky(part: Part, reports: Sequence[Report | Trouble]) -> bool:
        if reports and not failed:
            failed.append(part.label)
            raise ConnectionResetError("by peer")
        return record(part, reports)

    with penstock.connect(tmp_path / "db", engine="spark", trigger=0) as db:
        db.execute(S)
        query = db.query("SELECT v FROM s", name="q")
        db.settle()
        monkeypatch.setattr(Part, "record", unlucky)
        if dies:
            monkeypatch.setattr(Cluster, "_is_about_java", lambda self, error: True)
        db.push("s", [(1, 1.0)])
        assert fetched(query, "v") == [1.0]
        assert failed
        assert ("by peer" in caplog.text) != dies, "what is no death of Java is told as what it is"


def test_a_streaming_query_is_stopped_while_its_reader_waits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    due = Part._due

    def watched(part: Part) -> float:
        found = due(part)
        if found == math.inf:
            waits.set()
        return found

    monkeypatch.setattr(parts, "_PATIENCE", 1e5)
    monkeypatch.setattr(Part, "_due", watched)
    before = {query.id for query in spark.streams.active}
    with penstock.connect(tmp_path / "db", engine="spark", trigger=0) as db:
        db.execute(S)
        query = db.query("SELECT v FROM s", name="q")
        db.push("s", [(1, 1.0)])
        assert fetched(query, "v") == [1.0]
        checkpoints = host_of(db).checkpoints
        first = list(checkpoints.iterdir())
        waits.clear()
        assert waits.wait(60)
        (stream,) = (query for query in spark.streams.active if query.id not in before)
        stopping = threading.Thread(target=stream.stop, daemon=True)
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive(), "it waits for its reader"
        db.push("s", [(2, 2.0)])
        assert fetched(query, "v") == [2.0]
        second = list(checkpoints.iterdir())
        assert [len(first), len(second)] == [1, 1]
        assert first != second, "it has a checkpoint of its own, and the old one is removed"
        closing = threading.Thread(target=db.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive(), "closing waits for a reader"


_STOPPED_INSIDE = """
import sys, threading, time
from pathlib import Path
import penstock
from pyspark import SparkContext

folder = Path(sys.argv[1])
begun, goes_on = str(folder / "begun"), str(folder / "goes on")

def waits(k: int) -> int:
    import time
    from pathlib import Path
    Path(begun).touch()
    while k == 2 and not Path(goes_on).exists():
        time.sleep(0.01)
    return k

with penstock.connect(folder / "db", engine="spark", master="local[2]", trigger=0) as db:
    db.execute("CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t")
    db.create_function("waits", waits, args=["BIGINT"], returns="BIGINT")
    q = db.query("SELECT waits(k) AS k FROM s")
    db.push("s", [(1, 1)])
    found = q.fetch().to_pylist()
    Path(begun).unlink()
    db.push("s", [(2, 2)])
    while not Path(begun).exists():
        time.sleep(0.01)
    SparkContext.getOrCreate().stop()
    Path(goes_on).touch()
    def fetch():
        while len(found) < 2:
            try:
                found.extend(q.fetch().to_pylist())
            except penstock.EngineError as error:
                print(error, file=sys.stderr)
    asking = threading.Thread(target=fetch, daemon=True)
    asking.start()
    asking.join(120)
    print([row["k"] for row in found])
"""


@pytest.mark.xdist_group("killed")
def test_a_database_goes_on_after_spark_was_stopped_inside_a_micro_batch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STOPPED_INSIDE, str(tmp_path)], capture_output=True, text=True, timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["[1, 2]"], done.stderr
