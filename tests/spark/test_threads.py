"""Many threads at work on one database on Spark itself, for a minute and more: see ``tests.durable.threads``; and
queries that move faster than Spark starts streaming queries."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.hosts.spark.parts import cluster
from tests.conftest import ON_CLUSTER
from tests.durable.threads import work
from tests.spark.direct import host_of
from tests.spark.test_kills import KILLS


@pytest.mark.skipif(KILLS == 1 and not ON_CLUSTER, reason="it takes minutes: make kills and make cluster run it")
@pytest.mark.timeout(1200)
def test_many_threads_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    work(tmp_path, 900, pause=0.05, engine="spark", trigger=0)


def test_a_part_that_is_over_before_spark_can_start_it_is_not_started(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def free_name(spark: SparkSession, label: str) -> str:
        started.append(label)
        return label

    with penstock.connect(tmp_path, engine="spark", trigger=0) as db:
        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        queries = [db.query("SELECT t FROM s", name=f"q{i}") for i in range(2)]
        db.push("s", [(1,)])
        db.settle()
        monkeypatch.setattr(cluster, "free_name", free_name)
        with cluster._registering:
            db.configure(threading="operator")
            moved = [thread for thread in threading.enumerate() if thread.name.startswith("penstock-part-")]
            db.configure(threading="direct")
        for thread in moved:
            if thread.name not in (part.thread for part in host_of(db).parts):
                thread.join()
        assert not started
        db.push("s", [(2,)])
        assert [query.fetch().column("t").to_pylist() for query in queries] == [[1, 2]] * 2
