"""Streams whose rows Spark reads: from where, what becomes of rows that do not fit, and what is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count, repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.database.database import core_of
from penstock.storage.backup import backup
from penstock.storage.checking import check
from penstock.testing import crash_copy
from tests.generated.language import Row
from tests.spark.direct import directly, host_of
from tests.spark.test_inflow_generated import micro_batch

COLUMNS = "(t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"
SUMS = "SELECT ISTREAM k, sum(v) AS total FROM s [RANGE 5] GROUP BY k"


class Files:
    """Parquet files that appear in one step, each with another time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._count = 0

    def add(self, *rows: tuple[int | None, int, float]) -> None:
        self._count += 1
        hidden = self.folder / f".{self._count}"
        columns = {name: list(column) for name, column in zip("tkv", zip(*rows, strict=True), strict=True)}
        schema = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])
        pq.write_table(pa.table(columns, schema), hidden)
        hidden.rename(self.folder / f"{self._count}.parquet")

    def source(self, more: str = "") -> str:
        return f"FROM spark (format = 'parquet', path = '{self.folder}', trigger = '20 ms'{more})"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "in")


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[penstock.Database]:
    with penstock.connect(tmp_path / "db", engine="spark") as found:
        yield found


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < until, "nothing happens"
        threading.Event().wait(0.01)


def given(db: penstock.Database, rows: int) -> None:
    """Wait until the stream has been given so many rows."""
    wait_until(lambda: db.stream("s").given >= rows or db.stream("s").source != "running")
    assert db.stream("s").source == "running"


def totals(query: penstock.Query) -> list[object]:
    return [row["total"] for row in query.fetch().to_pylist()]


def test_files_that_appear_are_read_once_also_after_a_restart(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    files.add((1, 1, 1.0), (2, 1, 2.0), (4, 2, 5.0))
    with penstock.connect(tmp_path / "db", engine="spark", sync="group") as db:
        db.execute(f"CREATE STREAM s {COLUMNS} {files.source()}")
        sums = db.query(SUMS, name="sums")
        given(db, 3)
        assert totals(sums) == [1.0, 3.0, 5.0]
        assert any(q.name == "db stream s" for q in spark.streams.active)
    files.add((3, 1, 9.0), (6, 1, 4.0))
    with penstock.connect(tmp_path / "db", engine="spark") as db:
        given(db, 5)
        # At 6 the row of 1 has left the window, and 3 was late.
        assert totals(db.queries["sums"]) == [2.0, 6.0]
        assert db.late("s").to_pylist() == [{"t": 3, "k": 1, "v": 9.0}]
        backup(tmp_path / "db", tmp_path / "copy")
    assert not check(tmp_path / "copy").damage
    files.add((7, 2, 1.0))
    for place in ("db", "copy"):
        with penstock.connect(tmp_path / place, engine="spark") as db:
            given(db, 6)
            assert totals(db.queries["sums"]) == [4.0, 6.0], place


def test_a_source_is_not_for_all_engines_and_takes_no_pushes(db: penstock.Database, files: Files) -> None:
    statement = f"CREATE STREAM s {COLUMNS} {files.source()}"
    for engine in ("local", "reference"):
        with penstock.connect(engine=engine) as other:
            with pytest.raises(penstock.EngineError, match="does not read spark"):
                other.execute(statement)
            other.execute(f"CREATE STREAM s {COLUMNS}")  # the name is free
    db.execute(statement)
    with pytest.raises(penstock.InputError, match="none can be pushed"):
        db.push("s", [(1, 1, 1.0)])
    with pytest.raises(penstock.InputError, match="none can be pushed"):
        db.execute("INSERT INTO s VALUES (1, 1, 1.0)")


def test_what_spark_makes_of_its_columns(db: penstock.Database, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "1.txt").write_text("1 2.5\n3 0.5\n")
    db.execute(f"""CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t FROM spark (
        format = 'text', path = '{tmp_path / "lines"}',
        columns = 'CAST(split(value, " ")[0] AS BIGINT) AS T, CAST(split(value, " ")[1] AS DOUBLE) AS v, 1 AS x')""")
    found = db.query("SELECT t, v FROM s")
    given(db, 2)
    assert [tuple(row.values())[2:] for row in found.fetch().to_pylist()] == [(1, 2.5), (3, 0.5)]


def test_rows_that_are_stamped_on_arrival_come_at_one_instant(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "db", engine="spark", clock=lambda: 77) as db:
        db.execute("CREATE STREAM s (value BIGINT) FROM spark (format = 'rate', rowsPerSecond = 50, numPartitions = 3)")
        found = db.query("SELECT value FROM s")
        given(db, 20)
        table = found.fetch()
        assert set(table.column("ts").cast(pa.int64()).to_pylist()) == {77}
        values = table.column("value").to_pylist()
        assert sorted(values) == list(range(len(values)))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("format = 'nowhere'", "Spark cannot read its source"),
        ("format = 'rate'", "has no column `t`; there are `timestamp`, `value`"),
        ("format = 'rate', columns = 'nothing AS t'", "Spark cannot read its source"),
        ("format = 'rate', columns = 'SELECT FROM'", "Spark cannot read its source"),
        ("format = 'json', path = '/tmp', schema = 't BIGINTT'", "Unsupported data type"),
        ("format = 'json', path = '/tmp', columns = 'a AS t'", "say also what Spark is to read: FROM spark (schema = "),
    ],
)
def test_a_source_that_cannot_be_read_says_why(db: penstock.Database, source: str, said: str) -> None:
    db.execute(f"CREATE STREAM s {COLUMNS} FROM spark ({source})")
    wait_until(lambda: str(db.stream("s").source).startswith("stopped"))
    assert said in str(db.stream("s").source)
    db.execute("DROP STREAM s")  # nothing stands in the way


def test_a_row_that_does_not_fit_stops_the_source_or_is_kept_apart(db: penstock.Database, files: Files) -> None:
    files.add((1, 1, 1.0), (None, 1, 2.0), (2, 1, 4.0))
    db.execute(f"CREATE STREAM s {COLUMNS} {files.source()}")
    wait_until(lambda: str(db.stream("s").source).startswith("stopped"))
    assert "the timestamp `t` is NULL; mend the source and open the database again" in str(db.stream("s").source)
    assert db.stream("s").given == 0
    db.execute("DROP STREAM s")
    db.execute(f"CREATE STREAM s {COLUMNS} {files.source()} WITH (on_error = 'apart')")
    sums = db.query(SUMS)
    given(db, 3)
    assert totals(sums) == [1.0, 5.0]
    (bad,) = db.apart("s").to_pylist()
    assert "NULL" in str(bad)


class Texts:
    """Files of texts that a stream ``s`` has its rows from, and what becomes of them."""

    def __init__(self, db: penstock.Database, folder: Path) -> None:
        self._db, self.folder = db, folder
        self._count = 0
        folder.mkdir(exist_ok=True)

    def add(self, *lines: str) -> None:
        self._count += 1
        (self.folder / f".{self._count}").write_text("".join(f"{line}\n" for line in lines))
        (self.folder / f".{self._count}").rename(self.folder / f"{self._count}.txt")

    def stream(self, columns: str, options: str = "format = 'csv'", more: str = "on_error = 'apart'") -> penstock.Query:
        source = f"{options}, path = '{self.folder}', trigger = '20 ms'"
        self._db.execute(f"CREATE STREAM s ({columns}) TIMESTAMP BY t FROM spark ({source}) WITH ({more})")
        return self._db.query("SELECT * FROM s", name="q")

    def rows(self, query: penstock.Query, count: int) -> list[tuple[object, ...]]:
        wait_until(lambda: self._db.stream("s").given >= count)
        return [tuple(row.values())[2:] for row in query.fetch().to_pylist()]


@pytest.fixture
def texts(db: penstock.Database, tmp_path: Path) -> Texts:
    return Texts(db, tmp_path / "in")


def at(hour: int, second: int = 0) -> datetime:
    return datetime(2024, 5, 1, hour, 0, second)


def test_times_in_texts_are_what_they_are_when_they_are_pushed(db: penstock.Database, texts: Texts) -> None:
    texts.add("1,2024-05-01 10:00:00", "2,2024-05-01T10:00:01Z", "3,2024-05-01 12:00:02+02:00", "4,soon", "5,")
    query = texts.stream("t BIGINT, at TIMESTAMP")
    assert texts.rows(query, 5) == [(1, at(10)), (2, at(10, 1)), (3, at(10, 2)), (5, None)]
    (bad,) = db.apart("s").to_pylist()
    assert (bad["column"], bad["reason"]) == ("at", "'soon' is not a TIMESTAMP")
    assert bad["row"] == '{"t": 4, "at": "soon"}'


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("2024-05-01 12:00:00", "zone = 'Europe/Vienna'"),
        ("1714557600000", "time = 'milliseconds'"),
        ("01.05.2024 10.00", "time = '%d.%m.%Y %H.%M'"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_times_in_texts_are_written_as_the_declaration_says(texts: Texts, text: str, more: str, form: str) -> None:
    value = text if text.isdigit() else f'"{text}"'
    texts.add(f"{text},1" if form == "csv" else f'{{"t": {value}, "a": 1}}')
    query = texts.stream("t TIMESTAMP, a BIGINT", f"format = '{form}'", more)
    assert texts.rows(query, 1) == [(at(10), 1)]


def test_records_that_do_not_fit_are_kept_apart_as_they_were(db: penstock.Database, texts: Texts) -> None:
    texts.add("1,abc", "2,5", "3", "4,7,more", "5,99999999999999999999", "6,")
    assert texts.rows(texts.stream("t BIGINT, a BIGINT"), 6) == [(2, 5), (6, None)]
    bad = db.apart("s").to_pylist()
    assert [b["row"] for b in bad] == ["1,abc", "3", "4,7,more", "5,99999999999999999999"]
    assert all(b["reason"].startswith("a record does not fit the columns") for b in bad)


def test_lines_of_json_that_are_broken_are_kept_apart_as_they_were(db: penstock.Database, texts: Texts) -> None:
    texts.add('{"t": 1, "a": 3}', '{"t": 2, "a": "x"}', "{broken", '{"a": 1, "t": 3, "other": 1}')
    query = texts.stream("t BIGINT, a BIGINT", "format = 'json'")
    assert texts.rows(query, 4) == [(1, 3), (3, 1)]
    assert [b["row"] for b in db.apart("s").to_pylist()] == ['{"t": 2, "a": "x"}', "{broken"]


def test_a_record_that_does_not_fit_stops_the_source_with_its_text(db: penstock.Database, texts: Texts) -> None:
    texts.add("1,5", "2,abc")
    texts.stream("t BIGINT, a BIGINT", more="retain = '1 s'")
    wait_until(lambda: str(db.stream("s").source).startswith("stopped"))
    said = str(db.stream("s").source)
    assert "does not fit the columns" in said
    assert "'2,abc'; mend the source and open the database again" in said
    assert "on_error = 'apart'" in said
    assert db.stream("s").given == 0


def test_who_says_how_texts_are_read_has_what_spark_makes_of_them(texts: Texts) -> None:
    texts.add("1,01/05/2024 10:00:00", "2,x")
    options = "format = 'csv', timestampNTZFormat = 'dd/MM/yyyy HH:mm:ss'"
    assert texts.rows(texts.stream("t BIGINT, at TIMESTAMP", options), 2) == [(1, at(10)), (2, None)]


def test_columns_of_csv_are_those_of_its_header(db: penstock.Database, texts: Texts) -> None:
    query = texts.stream("t BIGINT, a BIGINT, b BIGINT", "format = 'csv', header = 'true'")
    texts.add("B,t,more,a", "100,1,x,7")  # another order than the one that it began with
    assert texts.rows(query, 1) == [(1, 7, 100)]
    texts.add("B,t,more,a", "101,2,x,8")
    assert texts.rows(query, 2) == [(2, 8, 101)]


def test_a_header_without_a_column_is_said(db: penstock.Database, texts: Texts) -> None:
    texts.add("t,other", "1,2")
    texts.stream("t BIGINT, a BIGINT", "format = 'csv', header = 'true'")
    wait_until(lambda: str(db.stream("s").source).startswith("stopped"))
    assert "its source (csv) has no column `a`; there are `other`, `t`" in str(db.stream("s").source)


def test_a_folder_that_is_not_there_yet_is_waited_for(db: penstock.Database, tmp_path: Path) -> None:
    texts = Texts(db, tmp_path / "in")
    texts.folder.rmdir()
    query = texts.stream("t BIGINT")
    wait_until(lambda: "it is tried again" in str(db.stream("s").source))
    texts.folder.mkdir()
    texts.add("1")
    assert texts.rows(query, 1) == [(1,)]


def test_a_file_that_spark_must_read_is_read_by_spark(db: penstock.Database, files: Files) -> None:
    files.add((1, 1, 1.0))
    db.execute(f"CREATE STREAM s {COLUMNS} {files.source()}")
    sums = db.query(SUMS)
    given(db, 1)
    # Spark makes 64 bits of 32.
    pq.write_table(pa.table({"t": [2], "k": pa.array([1], pa.int32()), "v": [2.0]}), files.folder / ".x")
    (files.folder / ".x").rename(files.folder / "x.parquet")
    wait_until(lambda: db.stream("s").given >= 2 or "stopped" in str(db.stream("s").source))
    assert totals(sums) == [1.0, 3.0]
    files.add((3, 1, 4.0))
    wait_until(lambda: db.stream("s").given >= 3)
    assert totals(sums) == [7.0]


def test_a_stream_that_is_declared_again_reads_from_the_beginning(db: penstock.Database, files: Files) -> None:
    files.add((1, 1, 1.0))
    for _ in range(2):
        db.execute(f"CREATE STREAM s {COLUMNS} {files.source()}")
        given(db, 1)
        inflow = host_of(db).inflows["s"]
        db.execute("DROP STREAM s")
        wait_until(lambda done=inflow: done.over and not done.busy)  # type: ignore[misc]
    assert "s" not in db.catalog.streams


def test_a_closed_stream_takes_no_more_files(db: penstock.Database, files: Files) -> None:
    files.add((1, 1, 1.0))
    db.execute(f"CREATE STREAM s {COLUMNS} SLACK 10 {files.source()}")
    sums = db.query(SUMS)
    given(db, 1)
    assert totals(sums) == []  # it waits for slack
    db.close_stream("s")
    assert totals(sums) == [1.0]
    files.add((2, 1, 1.0))
    wait_until(lambda: db.stream("s").source == "closed")
    assert db.stream("s").given == 1


def test_a_new_query_begins_with_the_rows_that_the_stream_retains(db: penstock.Database, files: Files) -> None:
    files.add((1, 1, 1.0), (9, 1, 2.0), (12, 1, 3.0))
    db.execute(f"CREATE STREAM s {COLUMNS} {files.source()} WITH (retain = 5)")
    given(db, 3)
    late = db.query("SELECT t, v FROM s")
    assert [row["t"] for row in late.fetch().to_pylist()] == [9, 12]


def test_only_the_rows_of_a_slot_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where queries split a stream by a key, its files are split in the same way."""
    from penstock.storage.segments import Segment

    read: list[int] = []
    batch = Segment.batch

    def counted(self: Segment, frame, schema):  # type: ignore[no-untyped-def]
        if "/rows/" in f"/{frame.path}":
            read.append(frame.rows)
        return batch(self, frame, schema)

    with directly(), penstock.connect(tmp_path / "db", engine="spark", shards=4, trigger="push") as db:
        db.execute(f"CREATE STREAM s {COLUMNS} FROM spark (format = 'rate')")
        sums = db.query(SUMS)
        monkeypatch.setattr(Segment, "batch", counted)
        micro_batch(db, "s", 0, [(i, i % 16, 1.0) for i in range(300)])
        assert len(totals(sums)) == 300
        assert sum(read) == 300, "each row once, by the slot that it belongs to"


def test_files_that_are_not_needed_any_more_are_removed(tmp_path: Path) -> None:
    with directly(), penstock.connect(tmp_path / "db", engine="spark", shards=2, trigger="push") as db:
        db.execute(f"CREATE STREAM s {COLUMNS} SLACK 3 FROM spark (format = 'rate')")
        sums = db.query(SUMS)
        rows = tmp_path / "db" / "shards" / "rows"
        for i in range(12):
            micro_batch(db, "s", i, [(2 * i, 1, 1.0), (2 * i + 1, 1, 1.0)])
            (rows / f"0-{i}-orphan.segment").touch()
            host_of(db).save()
        assert len(list(rows.iterdir())) < 12
        db.close_stream("s")
        assert len(totals(sums)) > 20


def test_a_commit_of_spark_that_the_log_does_not_have_is_made_again(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    """As after a loss of power that took the end of the log."""
    files.add((1, 1, 1.0))
    with penstock.connect(tmp_path / "db", engine="spark") as db:
        db.execute(f"CREATE STREAM s {COLUMNS} {files.source()}")
        db.query(SUMS, name="sums")
        given(db, 1)
        backup(tmp_path / "db", tmp_path / "before")
        for i in range(2, 5):
            files.add((i, 1, 2.0))
            given(db, i)
    checkpoint = tmp_path / "db" / "sources" / "0"
    wait_until(lambda: (checkpoint / "commits" / "3").exists())
    (checkpoint / "commits" / "0").write_bytes(b"")
    (checkpoint / "commits" / ".0.crc").unlink()
    for path in (tmp_path / "before" / "sources" / "0").rglob("*"):
        if path.is_file():
            path.unlink()
    (tmp_path / "before" / "sources" / "0").rename(tmp_path / "old")
    checkpoint.rename(tmp_path / "before" / "sources" / "0")
    with penstock.connect(tmp_path / "before", engine="spark") as db:
        given(db, 4)
        assert totals(db.queries["sums"]) == [1.0, 3.0, 5.0, 7.0]


def test_what_is_closed_or_stamped_while_a_micro_batch_is_written(tmp_path: Path) -> None:
    now = 100
    with directly(), penstock.connect(tmp_path / "db", engine="spark", trigger="push", clock=lambda: now) as db:
        db.execute("CREATE STREAM s (v BIGINT) FROM spark (format = 'rate'); CREATE STREAM r (v BIGINT)")
        sums = db.query("SELECT ISTREAM sum(v) AS total FROM s [RANGE 50 MICROSECONDS]")
        micro_batch(db, "s", 0, [(1,)])

        def later() -> None:
            nonlocal now
            now = 200
            db.push("r", [(0,)])

        micro_batch(db, "s", 1, [(2,), (3,)], later)
        found = sums.fetch()
        assert found.column("total").to_pylist() == [1, None, 2, 5]
        assert found.column("ts").cast(pa.int64()).to_pylist() == [100, 150, 200, 200]
        micro_batch(db, "s", 2, [(4,)], lambda: db.close_stream("s"))
        assert db.stream("s").given == 3
        assert db.stream("s").source == "closed"
    with directly(), penstock.connect(tmp_path / "db", engine="spark") as db:
        assert db.stream("s").source == "closed"


def test_files_of_a_dropped_stream_are_there_as_long_as_they_are_named(tmp_path: Path) -> None:
    with directly():
        with penstock.connect(tmp_path / "db", engine="spark", trigger="push") as db:
            declaration = f"CREATE STREAM s {COLUMNS} SLACK 3 FROM spark (format = 'rate') WITH (retain = 5)"
            db.execute(declaration)
            micro_batch(db, "s", 0, [(1, 1, 1.0), (5, 1, 1.0), (6, 1, 1.0)])
            host_of(db).save()
            micro_batch(db, "s", 1, [(9, 1, 1.0)])
            db.execute("DROP STREAM s")
            db.execute(declaration)
            crash_copy(db, tmp_path / "killed")
        with penstock.connect(tmp_path / "killed", engine="spark", trigger="push") as db:
            crash_copy(db, tmp_path / "twice")
            assert not check(tmp_path / "twice").damage
            backup(tmp_path / "twice", tmp_path / "copy")
            host_of(db).save()
            micro_batch(db, "s", 0, [(1, 1, 1.0)])
            for _ in range(2):
                db.heartbeat("s", 100)
                host_of(db).save()
            assert not list((tmp_path / "killed" / "shards" / "rows").iterdir())
        for place in ("twice", "copy"):
            with penstock.connect(tmp_path / place, engine="local") as db:
                assert db.stream("s").given == 0


def test_what_a_killed_task_was_writing_is_removed(tmp_path: Path) -> None:
    for _ in range(2):
        with directly(), penstock.connect(tmp_path / "db", engine="spark"):
            for kind in ("rows", "answers", "programs", "queries"):
                folder = tmp_path / "db" / "shards" / kind
                folder.mkdir(parents=True, exist_ok=True)
                assert not list(folder.iterdir())
                (folder / "0-0-half-0-ab.1234.part").touch()


def test_rows_are_counted_against_the_quota_before_a_state_is_saved(tmp_path: Path) -> None:
    with directly(), penstock.connect(tmp_path / "db", engine="spark", trigger="push", quota="1 MB") as db:
        db.execute(f"CREATE STREAM s {COLUMNS} FROM spark (format = 'rate')")
        rows: list[list[Row]] = [[(2000 * i + j, j, 1.0) for j in range(2000)] for i in range(40)]
        with pytest.raises(penstock.StorageError, match="quota"):
            list(map(micro_batch, repeat(db), repeat("s"), count(), rows))


def test_a_micro_batch_that_the_log_does_not_have_is_none_that_spark_has_made(
    db: penstock.Database, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has given a source may remove."""
    files.add((1, 1, 1.0))
    core, failing = core_of(db), threading.Event()
    take = core.take_written
    failures: list[object] = []

    def refused(*args: object) -> object:
        if failing.is_set() and len(failures) < 3:
            failures.append(args)
            files.add((10 + len(failures), 1, 1.0))
            raise penstock.StorageError("the disk is full")
        return take(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(core, "take_written", refused)
    source = files.source(", cleanSource = 'delete'")
    db.execute(f"CREATE STREAM s {COLUMNS} {source}")
    rows = db.query("SELECT t FROM s")
    given(db, 1)
    failing.set()
    files.add((2, 1, 1.0))
    wait_until(lambda: db.stream("s").given >= 5)
    assert [row["t"] for row in rows.fetch().to_pylist()] == [1, 2, 11, 12, 13]


def test_an_offset_that_is_lost_is_said(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    files.add((1, 1, 1.0))
    with penstock.connect(tmp_path / "db", engine="spark") as db:
        db.execute(f"CREATE STREAM s {COLUMNS} {files.source()}")
        given(db, 1)
    (tmp_path / "db" / "sources" / "0" / "offsets" / "0").unlink()
    with penstock.connect(tmp_path / "db", engine="spark") as db:
        wait_until(lambda: "consists of is lost" in str(db.stream("s").source))
        assert "drop the stream and declare it again" in str(db.stream("s").source)
