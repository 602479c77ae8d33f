"""Processes of Spark that end while a database goes on: Python workers that a query kills, and Java."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from tests.conftest import ON_CLUSTER, ROOT

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
