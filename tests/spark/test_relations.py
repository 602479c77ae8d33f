"""Static DataFrames beside streams: read when a streaming query is started, and again while it runs."""

from __future__ import annotations

import io
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
import penstock.spark as ps
from penstock.model.errors import CheckpointError
from tests.budget import examples
from tests.generated.language import Row
from tests.generated.running import comparable
from tests.spark.frames import Folder, multiset
from tests.spark.simulated import Processes, Simulated, job_of
from tests.spark.test_streaming import SCHEMA, run, written

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION q (k BIGINT, name STRING);
"""
NAMED = "SELECT s.k, v, name FROM s [RANGE 10] JOIN q ON s.k = q.k"
LEFT = "SELECT s.k, count(q.name) AS n FROM s [RANGE 10] LEFT JOIN q ON s.k = q.k GROUP BY s.k"
AT_ONCE = "SELECT ISTREAM s.k, name FROM s [NOW] JOIN q ON s.k = q.k"
OTHER = "SELECT k, sum(v) AS total FROM r [RANGE 7] GROUP BY k"
ROWS: list[Row] = [(1, "one"), (1, "uno"), (2, "two"), (2, "two"), (3, None)]


def wanted(queries: Sequence[str], events: Sequence[tuple[str, int | None, list[Row]]]) -> Counter[object]:
    """What the queries give where `q` gets other rows at instants; None: before all others."""
    found: Counter[object] = Counter()
    has: Counter[Row] = Counter()
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        running: list[penstock.Query] = []
        for name, at, rows in events:
            if at is not None and not running:
                running = [db.query(query) for query in queries]
            if name != "q":
                db.push(name, rows)
                continue
            old, has = has, Counter(rows)
            changes = [{"op": "-", "k": k, "name": n} for k, n in (old - has).elements()]
            changes += [{"op": "+", "k": k, "name": n} for k, n in (has - old).elements()]
            if changes:
                db.push("q", [c if at is None else {"ts": at, **c} for c in changes])
        for q in running:
            found.update(tuple(comparable(v) for v in row.values()) for row in q.fetch().to_pylist())
    return found


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from([NAMED, LEFT, AT_ONCE]), st.sampled_from([1, 3]), st.data())
def test_runs_with_other_rows_in_a_relation(query: str, shards: int, data: st.DataObject) -> None:
    """The change is one tick after all that had come before the run, whichever process works and however often."""
    some_rows = st.lists(st.sampled_from(ROWS), max_size=5)
    job = job_of(DECLARE, {"query": query, "other": OTHER}, shards, bounded=False)
    processes, newest = Processes(), 0
    contents: dict[int | None, list[Row]] = {None: data.draw(some_rows)}
    events: list[tuple[str, int | None, list[Row]]] = [("q", None, contents[None])]
    found: Counter[object] = Counter()

    def start() -> None:
        """What a run had read that made no micro-batch is forgotten."""
        rows, at = data.draw(some_rows), newest + 1 if newest else None
        running.start({"q": rows})
        if at not in contents:
            contents[at] = []
            events.append(("q", at, contents[at]))
        contents[at][:] = rows

    with tempfile.TemporaryDirectory() as root:
        running = Simulated(job, {"q": contents[None]}, root=root)
        for batch in range(data.draw(st.integers(1, 7))):
            for _ in range(data.draw(st.integers(0, 2))):
                start()
            now: dict[str, list[Row]] = {}
            begun = newest or 1
            for name in ("s", "r"):
                times = list(accumulate(data.draw(st.lists(st.integers(0, 4), max_size=4)), initial=begun))[1:]
                now[name] = [(t, i % 4, t % 3) for i, t in enumerate(times)]
                newest = max([newest, *times])
                events.append((name, newest, now[name]))
            with processes.chosen(data.draw(st.integers(0, 2))):
                answered = running.step(now, batch)
            if data.draw(st.integers(0, 2)) == 0:  # the run is killed, and another one repeats the micro-batch
                start()
                with processes.chosen(data.draw(st.integers(0, 3))):
                    assert running.step(now, batch) == answered
            found += answered
    assert found == wanted([query, OTHER], events)


def test_rows_from_before_the_change_meet_the_rows_of_then(tmp_path: Path) -> None:
    """Those that slack lets in, too."""
    job = job_of(DECLARE.replace("TIMESTAMP BY t", "TIMESTAMP BY t SLACK 5"), {"query": AT_ONCE}, 2, bounded=False)
    running = Simulated(job, {"q": [(1, "one"), (2, "two")]}, root=str(tmp_path))
    assert running.step({"s": [(10, 1, 0)]}, 0) == Counter()
    running.start({"q": [(1, "eins"), (2, "two")]})
    given = running.step({"s": [(8, 1, 0), (11, 2, 0), (12, 1, 0), (30, 1, 0)]}, 1)
    assert given == Counter([(8, "+", 1, "one"), (10, "+", 1, "one"), (11, "+", 2, "two"), (12, "+", 1, "eins")])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, tmp_path / "table.json")


class Table:
    """A table of one file; what reads it sees what is in it then."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark, self._path = spark, path

    def put(self, *rows: Row) -> None:
        self._path.write_text(json.dumps(rows))

    def break_off(self) -> None:
        self._path.write_text("[[1, ")

    def read(self) -> DataFrame:
        path = str(self._path)

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                found = json.loads(Path(path).read_text())
                columns = [pa.array([r[0] for r in found], pa.int64()), pa.array([r[1] for r in found], pa.string())]
                yield pa.RecordBatch.from_arrays(columns, names=["k", "name"])

        return self._spark.range(0, 1, 1, 1).mapInArrow(rows, "k BIGINT, name STRING")


@pytest.mark.parametrize(("shards", "is_new"), [(1, True), (3, True), (2, False)])
def test_each_start_reads_the_table(
    spark: SparkSession, tmp_path: Path, table: Table, shards: int, is_new: bool
) -> None:  # fmt: skip
    """Also that of answers which have been started before."""
    folder = Folder(tmp_path / "s", SCHEMA)

    def answers() -> DataFrame:
        given = {"s": folder.stream(spark, 1), "q": table.read()}
        return ps.sql(spark, NAMED, shards=shards, timestamps={"s": "t"}, streams=given)

    table.put((1, "one"), (2, "two"), (3, "three"))
    out = answers()
    for after, rows in (
        ([(1, "one"), (2, "two"), (3, "three")], [(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0)]),
        ([(1, "one"), (2, "zwei"), (4, "four")], [(5, 9, 0)]),
        ([(4, "four"), (2, "zwei"), (1, "one")], [(8, 9, 0)]),
        ([], [(10, 4, 0)]),
    ):
        table.put(*after)
        folder.add(rows)
        run(answers() if is_new else out, tmp_path)
    assert written(spark, tmp_path) == Counter([
        (1, "+", 1, 0, "one"), (2, "+", 2, 0, "two"), (3, "+", 3, 0, "three"),
        (5, "-", 2, 0, "two"), (5, "-", 3, 0, "three"), (5, "+", 2, 0, "zwei"), (5, "+", 4, 0, "four"),
        (9, "-", 1, 0, "one"), (9, "-", 2, 0, "zwei"), (9, "-", 4, 0, "four"),
    ])  # fmt: skip


def test_a_running_query_does_not_read_what_it_cannot_watch(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    table.put((1, "one"))
    out = ps.sql(spark, AT_ONCE, timestamps={"s": "t"}, s=folder.stream(spark, 1), q=table.read())
    folder.add([(1, 1, 0)])
    with started(out, tmp_path) as query:
        query.processAllAvailable()
        assert "penstock-static" not in {thread.name for thread in threading.enumerate()}
        table.put((1, "uno"))
        folder.add([(5, 1, 0)])
        query.processAllAvailable()
    folder.add([(9, 1, 0)])
    run(out, tmp_path)
    assert written(spark, tmp_path) == Counter([(1, "+", 1, "one"), (5, "+", 1, "one"), (9, "+", 1, "uno")])


@contextmanager
def started(out: DataFrame, path: Path) -> Iterator[StreamingQuery]:
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(path / "checkpoint"))
    query = writer.start(str(path / "out"))
    try:
        yield query
    finally:
        query.stop()
    for thread in threading.enumerate():
        if thread.name == "penstock-static":
            thread.join(60)
            assert not thread.is_alive(), "it ends with the query"


def noticed(path: Path, batch: int) -> None:
    """Wait until other rows are there for a micro-batch."""
    file, until = path / "checkpoint" / "penstock" / "relations" / f"{batch:012d}.parquet", time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < until, "nobody has read the table again"
        time.sleep(0.01)


@pytest.mark.parametrize(("shards", "kind"), [(1, "files"), (2, "files"), (1, "grouped"), (2, "refresh")])
def test_a_running_query_sees_other_rows(
    spark: SparkSession, tmp_path: Path, table: Table, shards: int, kind: str
) -> None:  # fmt: skip
    """From the micro-batch on that is begun next; what reads something else than files has to be read now and then."""
    folder, names = Folder(tmp_path / "s", SCHEMA), tmp_path / "q"
    names.mkdir()

    def put(*rows: Row) -> None:
        table.put(*rows)
        columns = {"k": pa.array([k for k, _ in rows], pa.int64()), "name": pa.array([name for _, name in rows])}
        pq.write_table(pa.table(columns), names / ".hidden")
        (names / ".hidden").rename(names / "part.parquet")

    put((1, "one"), (2, "two"))
    static = table.read() if kind == "refresh" else spark.read.parquet(str(names))
    given = {"s": folder.stream(spark, 1), "q": static}
    every = "20 milliseconds" if kind == "refresh" else None
    out = ps.sql(spark, AT_ONCE, shards=shards, timestamps={"s": "t"}, refresh=every, streams=given)
    # Spark's own duplicates: nobody tells us that this is started.
    whole = out.groupBy("ts", "op", "k", "name").count().drop("count") if kind == "grouped" else out
    with memory(whole, tmp_path) if kind == "grouped" else started(whole, tmp_path) as query:
        folder.add([(1, 1, 0), (2, 2, 0)])
        query.processAllAvailable()
        put((1, "uno"), (2, "two"), (3, "tre"))
        noticed(tmp_path, 1)
        folder.add([(5, 1, 0), (6, 2, 0), (7, 3, 0)])
        query.processAllAvailable()
        put((2, "two"))
        noticed(tmp_path, 2)
        folder.add([(9, 1, 0), (10, 2, 0)])
        query.processAllAvailable()
    found = multiset(spark.table("grouped")) if kind == "grouped" else written(spark, tmp_path)
    assert found == Counter([
        (1, "+", 1, "one"), (2, "+", 2, "two"), (5, "+", 1, "uno"), (6, "+", 2, "two"), (7, "+", 3, "tre"),
        (10, "+", 2, "two"),
    ])  # fmt: skip


@contextmanager
def memory(out: DataFrame, path: Path) -> Iterator[StreamingQuery]:
    writer = out.writeStream.format("memory").queryName("grouped").outputMode("complete")
    query = writer.option("checkpointLocation", str(path / "checkpoint")).start()
    try:
        yield query
    finally:
        query.stop()


class Heard(io.StringIO):
    """A place for what is printed that says when a text has come. ``capfd`` may lose what comes while it is read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text, self.event = text, threading.Event()

    def write(self, text: str) -> int:
        length = super().write(text)
        if self._text in self.getvalue():
            self.event.set()
        return length


def test_a_table_that_cannot_be_read_leaves_the_rows_as_they_are(
    spark: SparkSession, tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard("penstock: a static DataFrame could not be read again: ")
    monkeypatch.setattr(sys, "stderr", heard)
    folder = Folder(tmp_path / "s", SCHEMA)
    table.put((1, "one"))
    out = ps.sql(
        spark, AT_ONCE, timestamps={"s": "t"}, refresh="20 milliseconds", s=folder.stream(spark, 1), q=table.read()
    )
    with started(out, tmp_path) as query:
        folder.add([(1, 1, 0)])
        query.processAllAvailable()
        table.break_off()
        assert heard.event.wait(120), heard.getvalue()
        folder.add([(2, 1, 0)])
        query.processAllAvailable()
        table.put((1, "uno"))
        noticed(tmp_path, 2)
        folder.add([(4, 1, 0)])
        query.processAllAvailable()
    assert written(spark, tmp_path) == Counter([(1, "+", 1, "one"), (2, "+", 1, "one"), (4, "+", 1, "uno")])


def test_a_table_that_cannot_be_read_at_first_is_an_error(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    folder.add([(1, 1, 0)])
    table.break_off()
    out = ps.sql(spark, AT_ONCE, timestamps={"s": "t"}, s=folder.stream(spark, 1), q=table.read())
    with pytest.raises(PythonException, match="JSONDecodeError"):
        run(out, tmp_path)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_repeated_micro_batch_has_the_rows_that_it_had(
    spark: SparkSession, tmp_path: Path, table: Table, shards: int
) -> None:
    """Also if the table has changed meanwhile; a query that does not read it notices nothing."""
    folder = Folder(tmp_path / "s", SCHEMA)
    given: dict[int, list[Counter[object]]] = {}
    fails_at = 1

    def take(rows: DataFrame, batch: int) -> None:
        given.setdefault(batch, []).append(multiset(rows))
        if batch == fails_at:
            raise OSError("the network is away")

    def run_again() -> None:
        queries = {"named": AT_ONCE, "alone": "SELECT ISTREAM k, v FROM s [NOW]"}
        streams = {"s": folder.stream(spark, 1), "q": table.read()}
        pipeline = ps.pipeline(spark, queries, shards=shards, timestamps={"s": "t"}, streams=streams)
        outputs: dict[str, ps.Output] = {"named": take, "alone": str(tmp_path / "alone")}
        ps.await_end(pipeline.start(outputs, checkpoint=str(tmp_path / "c"), trigger={"availableNow": True}))

    table.put((1, "one"))
    folder.add([(1, 1, 0), (2, 2, 0)])
    run_again()
    table.put((1, "uno"), (2, "due"))
    folder.add([(5, 1, 0), (6, 2, 0)])
    with pytest.raises(Exception, match="the network is away"):
        run_again()
    fails_at = -1
    table.put((1, "eins"))
    folder.add([(9, 1, 0), (9, 2, 0)])
    run_again()
    second = Counter([(5, "+", 1, "uno"), (6, "+", 2, "due")])
    assert given == {0: [Counter([(1, "+", 1, "one")])], 1: [second, second], 2: [Counter([(9, "+", 1, "eins")])]}
    alone = multiset(spark.read.parquet(str(tmp_path / "alone")).drop("batch"))
    assert alone == Counter((t, "+", k, 0) for t, k in [(1, 1), (2, 2), (5, 1), (6, 2), (9, 1), (9, 2)])


def test_a_query_that_cannot_go_on_leaves_the_rows_alone(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    table.put((1, "one"))
    folder.add([(1, 1, 0)])
    given = {"s": folder.stream(spark, 1), "q": table.read()}
    run(ps.sql(spark, AT_ONCE, timestamps={"s": "t"}, streams=given), tmp_path)
    kept = sorted((tmp_path / "checkpoint" / "penstock" / "relations").iterdir())
    with pytest.raises(CheckpointError, match="this checkpoint is that of another query"):
        run(ps.sql(spark, NAMED, timestamps={"s": "t"}, streams=given), tmp_path)
    assert sorted((tmp_path / "checkpoint" / "penstock" / "relations").iterdir()) == kept


def test_what_is_grouped_by_spark_has_the_rows_of_its_start(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    folder = Folder(tmp_path / "s", SCHEMA)
    table.put((1, "one"))
    folder.add([(1, 1, 0), (2, 1, 0)])
    out = ps.sql(spark, AT_ONCE, timestamps={"s": "t"}, s=folder.stream(spark, 1), q=table.read())
    for rows, wanted in (("uno", {("uno", 2)}), ("eins", {("uno", 2), ("eins", 1)})):
        table.put((1, rows))
        with memory(out.groupBy("name").count(), tmp_path) as query:
            query.processAllAvailable()
            assert set(multiset(spark.table("grouped"))) == wanted
        folder.add([(4, 1, 0)])


def test_what_is_grouped_by_spark_is_refused_too(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    """By its tasks: nobody is there to be told when it starts."""
    folder = Folder(tmp_path / "s", SCHEMA)
    table.put((1, "one"))
    folder.add([(1, 1, 0)])
    given = {"s": folder.stream(spark, 1), "q": table.read()}
    out = ps.sql(spark, AT_ONCE, timestamps={"s": "t"}, streams=given)
    with memory(out.groupBy("name").count(), tmp_path) as query:
        query.processAllAvailable()
    folder.add([(2, 1, 0)])
    changed = ps.sql(spark, AT_ONCE + " WHERE v > 1", timestamps={"s": "t"}, streams=given)
    with (
        memory(changed.groupBy("name").count(), tmp_path) as query,
        pytest.raises(CheckpointError, match="this checkpoint is that of another query"),
    ):
        ps.await_end(query)
