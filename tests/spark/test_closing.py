"""Inputs that end: what waited for more rows is answered, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock.spark as ps
from penstock.hosts.spark import lives
from penstock.model.errors import CheckpointError, InputError
from tests.budget import paired
from tests.spark.frames import Folder, frame, multiset
from tests.spark.test_streaming import JOIN, SCHEMA, TIMES, cut, made, run, written

SESSIONS = "SELECT k, count(*) AS n FROM s [PARTITION BY k SESSION GAP 5] GROUP BY k"
TUMBLING = "SELECT k, sum(v) AS total FROM s [TUMBLING 20] GROUP BY k"
CHANGES = "SELECT k, v FROM s [RANGE 9]"


@pytest.mark.parametrize(
    ("query", "how"), paired([JOIN, SESSIONS, TUMBLING, CHANGES], [(1, 0), (3, 4), (1, 4), (3, 0)])
)
def test_with_the_answers_after_the_end_there_are_those_of_a_table(
    spark: SparkSession, tmp_path: Path, query: str, how: tuple[int, int]
) -> None:
    shards, slack = how
    rows = {"s": made(21, 40), "r": made(22, 40)} if query == JOIN else {"s": made(21, 40)}
    folders = {name: Folder(tmp_path / name, SCHEMA) for name in rows}
    for name, folder in folders.items():
        for part in cut(rows[name], 3):
            folder.add(part)
    times = {name: TIMES[name] for name in rows}
    frames = {name: folder.stream(spark, 1) for name, folder in folders.items()}
    out = ps.sql(spark, query, shards=shards, slack=slack, timestamps=times, streams=frames)
    run(out, tmp_path)
    before = written(spark, tmp_path)
    with started(out, tmp_path) as again:
        assert ps.await_end(again, close=True)
        assert ps.await_end(again, close=True), "closing twice is closing once"
    found = written(spark, tmp_path)
    assert found.total() > before.total()
    whole = {name: frame(spark, SCHEMA, some) for name, some in rows.items()}
    assert found == multiset(ps.sql(spark, query, timestamps=times, streams=whole))
    for folder in folders.values():
        folder.add([(1_000, 1, 1)])
    with pytest.raises(CheckpointError, match=r"this query were closed with micro-batch \d+.*; use another che"):
        run(out, tmp_path)
    assert written(spark, tmp_path) == found


@contextmanager
def started(out: DataFrame, path: Path) -> Iterator[StreamingQuery]:
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(path / "out"))
    try:
        yield query
    finally:
        query.stop()


def test_rows_that_come_while_the_inputs_are_closed_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes dies after the word about it: the next run does what is left, and nothing that came later."""
    folder = Folder(tmp_path / "s", SCHEMA)
    folder.add([(1, 1, 1), (2, 1, 1)])
    out = ps.sql(spark, TUMBLING, timestamps={"s": "t"}, s=folder.stream(spark, 1))
    with started(out, tmp_path) as query, monkeypatch.context() as patch:
        assert isinstance(query, lives.Started)
        patch.setattr(query, "again", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ps.await_end(query, close=True)
    folder.add([(3, 1, 1)])
    with (
        started(out, tmp_path) as query,
        pytest.raises(CheckpointError, match="rows have come after the inputs of this query were closed with micro-b"),
    ):
        ps.await_end(query)
    assert written(spark, tmp_path) == Counter([(20, "+", 1, 2)])
    with pytest.raises(CheckpointError, match="were closed with micro-batch 1, and the last answers given"):
        run(out, tmp_path)


def test_a_pipeline_gives_its_outputs_what_is_left(spark: SparkSession, tmp_path: Path) -> None:
    folder, rows = Folder(tmp_path / "s", SCHEMA), made(23, 30)
    for part in cut(rows, 2):
        folder.add(part)
    queries = {"sessions": SESSIONS, "sums": TUMBLING}
    pipeline = ps.pipeline(spark, queries, timestamps={"s": "t"}, s=folder.stream(spark, 1))
    outputs = {name: str(tmp_path / name) for name in queries}
    running = pipeline.start(outputs, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    assert ps.await_end(running, close=True)
    assert not ps.waiting(running)
    for name, query in queries.items():
        table = frame(spark, SCHEMA, rows)
        found = spark.read.parquet(outputs[name]).drop("batch")
        assert multiset(found) == multiset(ps.sql(spark, query, timestamps={"s": "t"}, s=table))


def test_what_waits_is_said(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folders = {name: Folder(tmp_path / name, SCHEMA) for name in ("s", "r")}
    folders["s"].add([(1, 1, 1), (2, 2, 2), (30, 1, 3), (31, 1, 4)])
    folders["r"].add([(1, 1, 1), (2, 1, 1)])
    frames = {name: folder.stream(spark, 1) for name, folder in folders.items()}

    found: list[ps.Waiting] = []

    def said(text: str, checkpoint: str, **streams: DataFrame) -> list[str]:
        times, slack = dict.fromkeys(streams, "t"), {name: 1 for name in streams if name == "s"}
        out = ps.sql(spark, text, shards=2, slack=slack, timestamps=times, streams=streams)
        writer = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert ps.await_end(query)
        found.append(ps.waiting(query))
        return [line for line in capfd.readouterr().err.splitlines() if "wait" in line]

    advice = "; if no more rows come, ps.await_end(query, close=True) gives the answers"
    assert said(JOIN, "a", **frames) == [
        "penstock: there wait 1 row of `s` for its slack; other streams for rows of `r`" + advice
    ]
    assert said(TUMBLING, "b", s=frames["s"]) == [
        "penstock: there wait 1 row of `s` for its slack; at most 3 rows for the end of windows"
        + advice
    ]
    assert said("SELECT v FROM r", "c", r=frames["r"]) == []
    assert found == [ps.Waiting({"s": 1}, 0, ("r",)), ps.Waiting({"s": 1}, 3, ()), ps.Waiting({}, 0, ())]


def test_what_cannot_be_closed(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    out = ps.sql(spark, TUMBLING, timestamps={"s": "t"}, s=folder.stream(spark, 1))
    with started(out, tmp_path) as query:
        assert ps.await_end(query, close=True), "there was nothing"
    folder.add(made(24, 10))
    plain = folder.stream(spark, 1).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "plain"))
    with pytest.raises(InputError, match=r"this query was not started by the writer of answers; start it with answers"):
        ps.await_end(plain.trigger(availableNow=True).start(), close=True)
    with pytest.raises(InputError, match="this query has no checkpoint location, so it cannot be closed; give it one"):
        ps.await_end(out.writeStream.format("noop").trigger(availableNow=True).start(), close=True)
    # Spark has begun a micro-batch, and was stopped before its end.
    with started(out, tmp_path) as query:
        query.awaitTermination()
        offsets = tmp_path / "checkpoint" / "offsets"
        (offsets / "1").write_bytes((offsets / "0").read_bytes())
        with pytest.raises(CheckpointError, match="micro-batch 1 has begun and not ended; start the query again"):
            ps.await_end(query, close=True)
