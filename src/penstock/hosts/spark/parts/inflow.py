"""``FROM spark (…)``: the streaming query that appends what a source of Spark gives to the log of a stream.

    source ──▶ tasks: types, lateness, order, slots ──▶ files with rows ──▶ an entry of the stream's log
               (side by side, in the executors)                             (the driver, once for a micro-batch)

The rows of a micro-batch are read by several tasks at once, so they have no order of arrival of their own: they come in
order of their instants; of equal ones, by partition, and within one as the source gave them. A row is late if the
stream was further before the micro-batch. What a micro-batch consists of is in Spark's offset log, that it was taken is
in the stream's log: its entry has the number of the micro-batch as its key, so one that Spark makes again is not taken
twice. What Spark has planned or committed and the log does not have, as after a loss of power, in a backup, or where a
micro-batch failed, is planned anew.

Spark forces nothing to the disk. Before a micro-batch counts, all that Spark has written for it is forced; what a loss
of power leaves of later files is taken away before Spark reads it.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import secrets
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.catalog import SparkSource, StreamDef
from penstock.hosts.durable import rowfiles
from penstock.hosts.spark.described import describing, free_name
from penstock.hosts.spark.files import by_path, opened, paths
from penstock.hosts.spark.internals import is_unreachable, java_is_gone
from penstock.hosts.spark.job import FileColumn
from penstock.hosts.spark.keys import shard_of
from penstock.hosts.spark.parts.task import Failure, failure_of, raised
from penstock.hosts.spark.running import told
from penstock.hosts.spark.schemas import spark_schema
from penstock.hosts.spark.worker import RELEASE, check_release, settle
from penstock.ingest.files import Columns, RowsFile, Span
from penstock.ingest.keys import Key
from penstock.ingest.streams import Overtaken, StreamInput, Written
from penstock.model.batch import Batch, Instant
from penstock.model.errors import EngineError, InputError, PenstockError, StateError, StorageError, suggest
from penstock.model.names import find_name
from penstock.model.schema import arrow_schema
from penstock.model.types import Kind
from penstock.rows.apart import Bad, BadRow, apart_table
from penstock.rows.values import said
from penstock.storage.files import Disk
from penstock.storage.packing import packed, unpacked
from penstock.storage.shards import ROWS, SOURCES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.hosts.spark.parts.host import SparkHost

_PRODUCER = "spark"
_FILES = frozenset({"parquet", "orc", "json", "csv", "xml", "avro", "text"})
"""Formats of files, which Spark wants to be told the columns of."""
_TEXTS = frozenset({"json", "csv", "xml"})
"""Those of them that have texts, of which Spark makes values."""
_SCHEMA = "schema"
_WHOLE = "_penstock_text"
"""A column with the text of a record of which Spark could not make the values that it was told; NULL in others."""
_READING = frozenset({
    "mode", "columnnameofcorruptrecord", "timestampformat", "timestampntzformat", "dateformat", "locale",
})  # fmt: skip
"""Options that say how values are made of texts. Who says one of them has what Spark makes of it."""
_NUMBER = re.compile(r"\.?(\d+)(\.compact)?(\.crc)?")
"""Files of Spark's logs, and of their checksums."""
_REACHED = "logOffset"
"""In an offset of a source of files: the number of the last file of its log that belongs to it."""
_REPORT = pa.schema([("report", pa.binary())])


class Inflow:
    """See above. A thread of ``Cluster`` runs it until the stream is dropped or closed, or the database is."""

    def __init__(self, host: SparkHost, definition: StreamDef) -> None:
        assert definition.source is not None
        self._host, self._source = host, definition.source
        self.definition = definition
        self.over = False
        self.busy = False
        """A micro-batch is under way."""
        self.version = 0
        """Micro-batches taken since the database was opened."""
        self.retry = threading.Event()
        self.problem: PenstockError | None = None
        """Why it does not go on, or why the last attempt failed."""
        self._reads_files = True
        """Whether tasks may read files themselves, which is faster: none was found that Spark would read otherwise."""
        self._columns: tuple[FileColumn, ...] | None = None
        """What they read of files; None: Spark reads."""
        self._has_texts = False
        """Rows have the column ``_WHOLE``."""
        self.failed: Exception | None = None
        """What the micro-batch raised that ended the streaming query."""
        self._forced: frozenset[str] = frozenset()
        """The files of the checkpoint that are on the disk; none before the first micro-batch of a streaming query."""

    @property
    def label(self) -> str:
        return f"stream `{self.definition.name}`"

    @property
    def thread(self) -> str:
        """The name of the thread that runs it."""
        return f"penstock-stream-{self.definition.name}"

    @property
    def status(self) -> str:
        """In words, for users."""
        if self.over:
            return "closed" if self.problem is None else f"stopped: {self.problem.one_line}"
        return "running" if self.problem is None else f"trying again: {self.problem.one_line}"

    @property
    def gives_up(self) -> bool:
        return self.over or self._host.stopping

    def attempt_failed(self, problem: PenstockError) -> None:
        """It is tried again, unless that is no use: the rows or the declaration are to blame."""
        self.problem = problem
        if isinstance(problem, InputError):
            # Where tasks read files themselves, Spark may know better what to make of one.
            self.over, self._reads_files = self._columns is None, False
        self.retry.clear()

    def interrupted(self) -> None:
        """It was stopped half-way: it is tried again."""
        self.retry.clear()

    def end(self) -> None:
        """Go on no more."""
        self.over = True
        self.retry.set()

    # -- starting -------------------------------------------------------------------------------------

    def started(self, spark: SparkSession) -> StreamingQuery:
        """The streaming query, from where the stream's log ends."""
        root = self._host.root
        assert isinstance(root, Path), "it was not declared otherwise"
        place = root / SOURCES / str(self.definition.position)
        self.failed, self._forced = None, frozenset()
        self.agree(place)
        name = free_name(spark, f"{root.name} stream {self.definition.name}")
        writer = self._frame(spark).writeStream.queryName(name).foreachBatch(self._take)
        writer = writer.trigger(processingTime=f"{round(1000 * self._source.trigger)} milliseconds")
        return writer.option("checkpointLocation", place.as_uri()).start()

    def _frame(self, spark: SparkSession) -> DataFrame:
        """The rows of the source, with the columns of the stream."""
        source, schema = self._source, self.definition.schema
        options = dict(source.options)
        columns = next((options.pop(key) for key in list(options) if key.lower() == _SCHEMA), None)
        given = {key.lower(): value for key, value in options.items()}
        is_told = source.format.lower() in _FILES and columns is None and source.columns is None
        self._has_texts = is_told and source.format.lower() in _TEXTS and _READING.isdisjoint(given)
        if self._has_texts:
            options["columnNameOfCorruptRecord"] = _WHOLE
        try:
            reader = spark.readStream.format(source.format).options(**options)
            if columns is not None:
                reader = reader.schema(columns)
            elif is_told:
                told_of = self._of_texts() if self._has_texts else spark_schema(arrow_schema(schema))
                if source.format.lower() == "csv" and given.get("header", "").strip().lower() == "true":
                    told_of = _as_in_header(spark, options, told_of)
                    # Otherwise Spark does not look at the names in files.
                    reader = reader.option("enforceSchema", given.get("enforceschema", "false"))
                reader = reader.schema(told_of)
            frame = reader.load()
            if source.columns is not None:
                frame = spark.sql(f"SELECT {source.columns} FROM {{source}}", source=frame)
        except Exception as error:
            if java_is_gone() or is_unreachable(error):
                raise
            said = f"{self.label}: Spark cannot read its source: {told(error)}"
            if "PATH_NOT_FOUND" in str(error):
                raise EngineError(said, hint="it is tried again: make the folder, or put the files there") from error
            raise InputError(said, hint=_hint(source, columns)) from error
        there = [name for name in frame.columns if name != _WHOLE]
        places = [find_name(f.name, there) for f in schema]
        for f, place in zip(schema, places, strict=True):
            if place is None:
                raise InputError(
                    f"{self.label}: its source ({source.format}) has no column `{f.name}`",
                    hint=f"{suggest(f.name, there) or 'it has ' + ', '.join(there)}; "
                    "FROM spark (columns = '…') takes Spark's SQL, such as 'CAST(value AS STRING) AS line'",
                )
        names = [there[place] for place in places if place is not None]
        names += [_WHOLE] if self._has_texts else []
        found = by_path(spark, frame, names) if self._reads_files else None
        listed, self._columns = (None, None) if found is None else found
        return frame.select(*(frame[name] for name in names)) if listed is None else listed

    def _of_texts(self) -> StructType:
        """What Spark is to make of texts. Times stay texts, or numbers where the declaration has them counted: Penstock
        knows what they mean."""
        counts = self.definition.time is not None and self.definition.time.counts
        times = LongType() if counts else StringType()
        told = zip(self.definition.schema, spark_schema(arrow_schema(self.definition.schema)).fields, strict=True)
        fields = [StructField(s.name, times if f.type.kind is Kind.TIMESTAMP else s.dataType) for f, s in told]
        return StructType([*fields, StructField(_WHOLE, StringType())])

    def agree(self, place: Path) -> None:
        """Let Spark go on behind the last micro-batch that the log has. It makes again the last one that it has planned
        and no other, so those that it has planned since are taken away from it, all of them. Files that were not forced
        may be torn: those are taken away too, and the checksums of the others, which may be."""
        with self._host.changed:
            last = self._host.core.inputs[self.definition.name].keys.newest(_PRODUCER)
        done = -1 if last is None else last
        for path in _numbered(place / "offsets", done + 1):
            path.unlink()
        for path in _numbered(place / "commits", done):
            if path.suffix == ".crc" or last is None or path.name != str(last) or not _is_whole(path):
                path.unlink()
        if last is not None and not (place / "offsets" / str(last)).exists():
            raise StorageError(
                f"{place}: what micro-batch {last} of {self.label} consists of is lost",
                hint="restore the directory from a backup, or drop the stream and declare it again",
            )
        for log in (place / "sources").glob("*"):
            for path in _numbered(log, _reached(place, last) + 1):
                if path.suffix == ".crc" or not _is_whole(path):
                    path.unlink()
        (place / ".metadata.crc").unlink(missing_ok=True)
        if place.exists() and not _is_whole(place / "metadata", head=0):
            # The id of the streaming query, which is in no other file. Spark refuses offsets without one.
            (place / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    # -- a micro-batch --------------------------------------------------------------------------------

    def _take(self, frame: DataFrame, batch: int) -> None:
        """The function of ``foreachBatch``. If the log does not have the micro-batch, it raises: Spark must not count
        it as done, since it lets sources remove what they have given (``cleanSource``)."""
        try:
            self._try(frame, batch)
        except Exception as error:
            self.failed = error
            raise

    def _try(self, frame: DataFrame, batch: int) -> None:
        work = self.begin(batch)
        if work is None:
            if self._host.stopping:
                raise StateError("the database is being closed")
            return
        reports: list[Report] | None = None
        try:
            with describing(frame.sparkSession.sparkContext, f"penstock: rows of {self.label} from {self._source}"):
                reports = [pickle.loads(row["report"]) for row in frame.mapInArrow(work, "report BINARY").collect()]
            self.force()
        finally:
            self.finish(work, batch, reports)

    def begin(self, batch: int) -> Work | None:
        """What the tasks of a micro-batch are to do; None if it was taken before, or the stream takes no more.
        ``finish`` must follow."""
        host, definition = self._host, self.definition
        now = host.core.now()
        with host.changed:
            source = host.core.inputs.get(definition.name)
            if self.gives_up or source is None or source.definition is not definition or source.closed:
                self.end()
                host.cluster.stop(self)
                return None
            if source.keys.has((_PRODUCER, batch), source.where):
                return None
            work = Work(
                RELEASE, str(host.root), host.epoch, f"{definition.position}-{batch}-{secrets.token_hex(6)}-",
                definition, source.progress, source.arrivals, now, tuple(host.splits_of(definition.name)), host.slots,
                self._columns, self._has_texts,
            )  # fmt: skip
            host.kept.writing.add(work.prefix)
            self.busy = True
        return work

    def finish(self, work: Work, batch: int, reports: Sequence[Report] | None) -> None:
        """Take what tasks have written; nothing if they have failed. From here on it counts."""
        host = self._host
        try:
            if reports is not None:
                self._finish(work, (_PRODUCER, batch), _written(reports))
                self.version += 1
                self.problem = None
        finally:
            with host.changed:
                host.kept.writing.discard(work.prefix)
                self.busy = False
                host.changed.notify_all()

    def _finish(self, work: Work, key: Key, written: Written) -> None:
        while True:
            try:
                self._host.core.take_written(self.definition.name, self.definition, written, work.now, key)
                return
            except Overtaken as found:
                if found.progress == math.inf:
                    return  # it was closed
                written = work.without_late(written, found.progress)

    def force(self) -> None:
        """What the micro-batch consists of is on the disk before it counts, and that Spark has committed the one
        before: a saved state may have it, whatever ``sync`` says."""
        files = Disk(self._host.root)
        try:
            is_first = not self._forced
            self._forced = frozenset(_forced(files, f"{SOURCES}/{self.definition.position}", self._forced))
            for folder in (SOURCES, "") if is_first else ():
                files.sync_folder(folder)
        finally:
            files.close()


def _forced(files: Disk, folder: str, before: Set[str]) -> Iterator[str]:
    """Force all files and folders in a folder, except ``before``; gives all of them. No file changes
    after it has got its name."""
    found = {f"{folder}/{name}" for name in files.names(folder)}
    inside = {f"{folder}/{name}" for name in files.folders(folder)}
    for path in found - before:
        with suppress(FileNotFoundError):  # Spark removes what is old at any time
            files.sync(path)
    for path in inside:
        yield from _forced(files, path, before)
    if not found | inside <= before:
        files.sync_folder(folder)
    yield from found | inside


def _numbered(folder: Path, first: float) -> list[Path]:
    """The files of one of Spark's logs from a number on, and of their checksums."""
    found = ((path, _NUMBER.fullmatch(path.name)) for path in folder.glob("*"))
    return [path for path, match in found if match and int(match[1]) >= first]


def _is_whole(path: Path, head: int = 1) -> bool:
    """Whether a file is there, as Spark writes its logs: JSON by lines, behind ``head`` lines with the version."""
    try:
        lines = path.read_bytes().splitlines()[head:]
        for line in lines:
            json.loads(line)
    except (OSError, ValueError):
        return False
    return bool(lines)


def _reached(place: Path, last: int | None) -> float:
    """The number up to which the logs of sources are on the disk, since the micro-batches up to ``last`` have them."""
    if last is None:
        return -1
    try:
        return int(json.loads((place / "offsets" / str(last)).read_bytes().splitlines()[-1])[_REACHED])
    except (ValueError, TypeError, KeyError, IndexError):
        return math.inf  # other sources write their logs once, at the very beginning


def _written(reports: Sequence[Report]) -> Written:
    for report in reports:
        if report.failure is not None:
            raise raised(report.failure)
    reports = sorted(reports, key=lambda r: r.partition)
    late = [unpacked(r.late) for r in reports if r.late]
    apart = [unpacked(r.apart) for r in reports if r.apart]
    return Written(
        [r.file for r in reports if r.file is not None],
        pa.concat_tables(late) if late else None, pa.concat_tables(apart) if apart else None,
    )  # fmt: skip


def forget_sources(root: Path, positions: set[int]) -> None:
    """Remove the checkpoints of streams that are not there any more."""
    for path in (root / SOURCES).glob("*"):
        if not path.name.isdigit() or int(path.name) not in positions:
            shutil.rmtree(path, ignore_errors=True)


def _as_in_header(spark: SparkSession, options: Mapping[str, str], told: StructType) -> StructType:
    """The columns in the order of the header of CSV files, with what else the files have; as they are told if there is
    no file yet. Spark takes columns of CSV by their place."""
    try:
        header = spark.read.format("csv").options(**options).load().columns
    except Exception as error:
        if java_is_gone() or is_unreachable(error):
            raise
        header = []  # the stream says what is wrong
    if not header:
        return told
    places = [find_name(name, told.names) for name in header]
    found = zip(header, places, strict=True)
    fields = [StructField(name, StringType()) if place is None else told.fields[place] for name, place in found]
    return StructType([*fields, *(f for f in told.fields if f.name == _WHOLE)])


def _hint(source: SparkSource, schema: str | None) -> str:
    if source.format.lower() in _FILES and source.columns is not None and schema is None:
        return "with `columns` say also what Spark is to read: FROM spark (schema = 'name TYPE, …')"
    return f"the options of format {source.format} go into FROM spark (format = '{source.format}', …)"


_BROKEN = "a record does not fit the columns: a value is none of its type, or there are too few or too many fields"
_MEND = (
    "mend the source and open the database again, or declare the stream with WITH (on_error = 'apart'), which keeps "
    "such rows apart"
)


# -- in a worker --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What a task has written: rows that came in time, as a file; others as Arrow streams."""

    partition: int
    file: RowsFile | None = None
    late: bytes = b""
    apart: bytes = b""
    failure: Failure | None = None


@dataclass(frozen=True)
class Work:
    """What a task does with its rows. ``progress``: how far the stream was. ``splits``: by which columns queries split
    it, over so many ``slots``."""

    release: str
    root: str
    epoch: int
    prefix: str
    definition: StreamDef
    progress: Instant
    arrivals: int
    now: int | None
    splits: tuple[Columns, ...]
    slots: int
    files: tuple[FileColumn, ...] | None = None
    """What is read of files, where their paths come in the place of rows."""
    has_texts: bool = False
    """Whether the last column is ``_WHOLE``."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function of ``mapInArrow``."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        try:
            check_release(self.release)
            report = self.done(partition, list(batches) if self.files is None else self._read(batches, self.files))
        except PenstockError as error:
            report = Report(partition, failure=failure_of(error))
        settle()
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], schema=_REPORT)

    def _read(self, batches: Iterator[pa.RecordBatch], columns: tuple[FileColumn, ...]) -> list[pa.RecordBatch]:
        try:
            return list(opened(paths(batches), columns))
        except InputError as error:
            raise InputError(error.message, hint="Spark reads the files from here on") from None

    def done(self, partition: int, batches: Sequence[pa.RecordBatch]) -> Report:
        """Write the rows of a partition."""
        if not any(batch.num_rows for batch in batches):
            return Report(partition)
        source = StreamInput(self.definition, lambda: 0, self.progress, _arrivals=self.arrivals)
        table, broken = pa.Table.from_batches(batches), list[Bad]()
        if self.has_texts:
            table, broken = self._sorted(table)
        try:
            read = source.read(table)
        except BadRow as error:
            error.hint = "; ".join(filter(None, (error.hint, _MEND)))
            raise
        rows, late = source.sorted_out(read.table, self.now)
        file: RowsFile | None = None
        if len(rows):
            file = self._file(partition, rows)
        bad = [*broken, *read.apart]
        apart = apart_table(bad) if bad else None
        return Report(partition, file, _packed(late), _packed(apart))

    def _sorted(self, table: pa.Table) -> tuple[pa.Table, list[Bad]]:
        """The rows of which Spark could make values, and the others."""
        texts = table.column(_WHOLE)
        broken = texts.drop_null().to_pylist()
        rows = table.drop_columns(_WHOLE)
        if not broken:
            return rows, []
        if self.definition.on_error != "apart":
            raise InputError(f"stream `{self.definition.name}`: {_BROKEN}: {said(broken[0])}", hint=_MEND)
        place = f"stream `{self.definition.name}`"
        return rows.filter(texts.is_null()), [Bad(place, None, _BROKEN, text) for text in broken]

    def _file(self, partition: int, rows: Batch) -> RowsFile:
        splits = {
            columns: shard_of([rows.table.column(c).combine_chunks() for c in columns], self.slots)
            for columns in self.splits
        }
        path = f"{ROWS}/{self.prefix}{partition}-{secrets.token_hex(4)}.segment"
        return rowfiles.write(Disk(self.root), path, rows, splits, self.slots, epoch=self.epoch)

    def without_late(self, written: Written, progress: Instant) -> Written:
        """The same where somebody has said meanwhile that the stream is as far as this."""
        late, files = [] if written.late is None else [written.late], []
        for partition, file in enumerate(written.files):
            if file.oldest < progress:
                rows = rowfiles.read(Disk(self.root), [Span(file, -math.inf, math.inf)], self.definition.schema)
                behind = rows.ts < progress
                late.append(rows.table.filter(pa.array(behind)))
                if not behind.all():
                    files.append(self._file(partition, rows.take(np.flatnonzero(~behind))))
            else:
                files.append(file)
        return replace(written, files=files, late=pa.concat_tables(late) if late else None)


def _packed(table: pa.Table | None) -> bytes:
    return b"" if table is None else packed(table)
