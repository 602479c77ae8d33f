"""Spark's UI: where it listens, and what it says of our jobs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
import penstock.spark as ps
from penstock.hosts.spark.described import described, following, taking
from penstock.hosts.spark.session import LOOPBACK, listening

TEXT = "SELECT v\n  FROM s [ROWS 3] WHERE v < 9"
LINE = "SELECT v FROM s [ROWS 3] WHERE v < 9"


def asked(spark: SparkSession, what: str) -> Any:
    url = spark.sparkContext.uiWebUrl
    assert url is not None
    port = url.rsplit(":", 1)[1]
    path = f"http://{LOOPBACK}:{port}/api/v1/applications/{spark.sparkContext.applicationId}/{what}"
    with urllib.request.urlopen(path) as answer:
        return json.load(answer)


def descriptions(spark: SparkSession, since: int) -> list[str]:
    """Of the jobs from a number on. Spark tells its UI of jobs a little after they end."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return [job.get("description", "").split("\n")[0] for job in asked(spark, "jobs") if job["jobId"] >= since]


def next_job(spark: SparkSession) -> int:
    spark.sparkContext.setJobDescription("a job of the test")
    spark.range(1).count()
    spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return 1 + max(int(job["jobId"]) for job in asked(spark, "jobs"))


def test_it_listens_on_this_machine_only_and_is_for_looking(spark: SparkSession) -> None:
    url = spark.sparkContext.uiWebUrl
    assert url is not None
    port = f":{int(url.rsplit(':', 1)[1]):04X}"
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path("/proc/net", kind).read_text().splitlines()]
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(port)]
    assert listening
    assert all(address.removesuffix(port).endswith("0100007F") for address in listening)
    assert "SPARK_LOCAL_IP" not in os.environ
    assert spark.sparkContext.getConf().get("spark.ui.killEnabled") == "false"


def test_jobs_of_a_database_say_its_queries_and_what_the_last_micro_batch_took(spark: SparkSession) -> None:
    def took() -> list[str]:
        return [taking(made["rows"], made["answers"], made["seconds"]) for made in db.metrics().to_pylist()]

    since = next_job(spark)
    with penstock.connect(engine="spark") as db:
        db.execute("CREATE STREAM s (t BIGINT, v INT) TIMESTAMP BY t")
        db.query(TEXT, name="low")
        db.push("s", [(1, 2)])
        text = f"low: {LINE}"
        assert set(descriptions(spark, since)) == {text, *(f"low · {last} · {text}" for last in took()[:-1])}
        db.query("SELECT max(v) AS most FROM s", name="most")
        since = next_job(spark)
        db.push("s", [(2, 2), (3, 4)])
        text = f"{text}; most: SELECT max(v) AS most FROM s"
        said, before = set(descriptions(spark, since)), took()
        assert f"low, most · {before[-2]} · {text}" in said
        assert said <= {f"low, most · {last} · {text}" for last in before}


def test_parts_of_a_database_are_streaming_queries(spark: SparkSession, tmp_path: Path) -> None:
    def running() -> set[str | None]:
        return {query.name for query in spark.streams.active}

    before = running()
    with penstock.connect(tmp_path / "mine", engine="spark", shards=2) as db:
        db.execute("CREATE STREAM s (t BIGINT, v INT) TIMESTAMP BY t")
        q = db.query(TEXT, name="low")
        db.execute("CREATE QUERY high AS SELECT v FROM s WITH (priority = 9)")
        db.push("s", [(1, 2)])
        assert running() - before == {"mine part 0: low", "mine part 1: high"}
        (part,) = [query for query in spark.streams.active if query.name == "mine part 0: low"]
        assert part.lastProgress is not None
        db.queries["high"].stop()
        while "mine part 1: high" in running():
            part.awaitTermination(1)
        db.push("s", [(2, 3)])
        assert q.fetch().column("v").to_pylist() == [2, 3]
    assert running() == before
    assert not (tmp_path / "mine" / "spark").exists(), "what Spark wrote down is not needed any more"


def test_jobs_over_tables_say_the_query(spark: SparkSession, tmp_path: Path) -> None:
    out = ps.sql(spark, TEXT, s=spark.sql("SELECT 1L AS ts, 2 AS v"))
    for action in (out.collect, out.toPandas, out.toArrow, out.count, lambda: out.write.parquet(str(tmp_path / "out"))):
        since = next_job(spark)
        action()
        assert set(descriptions(spark, since)) == {f"query: {LINE}"}
        assert spark.sparkContext.getLocalProperty("spark.job.description") is None
    for derived in (out.select("v"), out.orderBy("v").limit(3), out.where("v > 0").withColumn("w", out.v).distinct()):
        since = next_job(spark)
        derived.collect()
        derived.count()
        assert set(descriptions(spark, since)) == {f"query: {LINE}"}
    since = next_job(spark)
    spark.sparkContext.setJobDescription("mine")
    out.collect()
    spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert set(descriptions(spark, since)) == {"mine"}
    assert f"query: {LINE}(" in out.where("v > 1")._jdf.queryExecution().toString()


def test_streaming_queries_have_the_name_and_text(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "in")
    spark.sql("SELECT 1L AS ts, 2 AS v").write.parquet(folder)
    stream = spark.readStream.schema("ts BIGINT, v INT").parquet(folder)
    since = next_job(spark)
    relation = spark.sql("SELECT 2 AS w")
    out = ps.sql(spark, "SELECT v, w FROM s, r", s=stream, r=relation)
    writer = out.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "one")).start()
    again = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "two")).start()
    assert query.name == "query: SELECT v, w FROM s, r"
    query.awaitTermination()
    again.processAllAvailable()
    again.stop()
    said = set(descriptions(spark, since))
    assert "relations of query: SELECT v, w FROM s, r" in said
    assert all("query: SELECT v, w FROM s, r" in text for text in said)

    writer = out.select("v").where("v > 0").writeStream.format("noop").trigger(availableNow=True)
    derived = writer.option("checkpointLocation", str(tmp_path / "derived")).start()
    assert derived.name == "query: SELECT v, w FROM s, r"
    derived.awaitTermination()

    texts = {"low": TEXT, "all": "SELECT v FROM s"}
    since = next_job(spark)
    pipeline = ps.pipeline(spark, texts, s=stream)
    outputs: dict[str, Any] = {"low": str(tmp_path / "low"), "all": lambda frame, number: frame.count()}
    started = pipeline.start(outputs, checkpoint=str(tmp_path / "three"), trigger={"availableNow": True})
    started.awaitTermination()
    assert started.name == f"low: {LINE}; all: SELECT v FROM s"
    assert set(descriptions(spark, since)) == {started.name}


def test_a_second_query_of_the_same_text_gets_another_name(spark: SparkSession, tmp_path: Path) -> None:
    out = ps.sql(spark, "SELECT value FROM s", s=spark.readStream.format("rate").load())
    started = [
        out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / str(i))).start() for i in range(2)
    ]
    for query in started:
        query.stop()
    assert [query.name for query in started] == ["query: SELECT value FROM s", "query: SELECT value FROM s (2)"]


def test_names_that_are_more_than_names_are_left_to_the_caller(spark: SparkSession, tmp_path: Path) -> None:
    out = ps.sql(spark, "SELECT value FROM s", s=spark.readStream.format("rate").load())
    with pytest.raises(Exception, match="queryName must be specified for memory sink"):
        out.writeStream.format("memory").start()
    named = out.writeStream.format("noop").queryName("mine").start()
    named.stop()
    assert named.name == "mine"
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        unnamed = out.writeStream.format("noop").start()
        unnamed.stop()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert unnamed.name is None


def test_many_queries_are_cut_short() -> None:
    said = described({f"q{i}": "SELECT v FROM s" for i in range(1_000)})
    assert said.startswith("q0: SELECT v FROM s; q1: SELECT v FROM s; ")
    assert said.endswith(" more")
    assert len(said) < 1_100
    assert len(described({"q": "SELECT " + "v, " * 1_000})) == 1_000
    assert described({"q": ""}) == "q"


def test_names_and_numbers_stand_where_lists_of_jobs_show_them() -> None:
    names = [f"q{i}" for i in range(1_000)]
    last = taking(12_000, 60, 0.5)
    assert last == "last: 12,000 rows in 500 ms, 24k rows/s, 120 answers/s"
    said = following(names, last, described(dict.fromkeys(names, "SELECT v FROM s")))
    assert said.startswith("q0, q1, q2, ")
    assert 0 < said.index(last) < 250
    assert len(said) == 1_000
    assert following(["q"], taking(1, 0, 2.0), "q: SELECT v FROM s") == (
        "q · last: 1 row in 2.00 s, 0 rows/s, 0 answers/s · q: SELECT v FROM s"
    )


def test_where_it_listens_for_each_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    loopback = {"SPARK_LOCAL_IP": LOOPBACK}
    for master in ("local", "local[*,4]", "local[2]", "local-cluster[2,1,1024]"):
        assert listening(master, {}) == ({}, loopback)
    # The driver must be found by its executors: it tells the address from which it reaches the master.
    shown = {**loopback, "SPARK_PUBLIC_DNS": "localhost"}
    assert listening("spark://127.0.0.1:7077", {}) == ({"spark.driver.host": "127.0.0.1"}, shown)
    own = {"spark.driver.host": "driver.example"}
    assert listening("spark://127.0.0.1", own) == (own, shown)
    off: tuple[dict[str, str], dict[str, str]] = ({"spark.ui.enabled": "false"}, {})
    assert listening("yarn", {}) == off
    assert listening("spark://no-such-host.invalid:7077", {}) == off
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    assert listening("local[2]", {}) == ({}, {})


_ONE = """
import sys, penstock.spark as ps
spark = ps.session("local[1]", settings={"spark.ui.port": sys.argv[1]})
print(spark.sparkContext.uiWebUrl, spark.range(3).count())
spark.stop()
"""


@pytest.mark.xdist_group("spark")
def test_a_port_that_is_taken_is_passed_over() -> None:
    source = str(Path(penstock.__file__).parents[1])
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", _ONE, str(port)], capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": source},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    url, count = done.stdout.split()
    assert url.startswith("http://")
    assert not url.endswith(f":{port}")
    assert count == "3"
