"""Where the state of a streaming query is, which version of it counts, and what a worker may remember.

Under the checkpoint location of the Spark query:

    penstock/shard-00002-of-00004/    a ``StateStore``; version ``b`` is the state after micro-batch ``b``
    penstock/late/<stream>/           late rows, a Parquet file for each micro-batch and shard that had some
    penstock/apart/<stream>/          rows that do not fit, a Parquet file for each micro-batch and task that had some

Micro-batch ``b`` starts from version ``b - 1`` and nothing else, so it can be tried again, anywhere, as often as it
takes. A worker keeps the shards it has worked on, because loading costs. What it kept counts only if it is, by the
number of the attempt that wrote it, the very state that is stored as version ``b - 1``, or one that this goes on from:
Spark gives the micro-batches of a shard to any worker, so most are a few behind. Then the shard takes in what the
versions in between have changed.

Spark tells a task which micro-batch it belongs to, but not the checkpoint location. A listener puts that into a local
property of the thread that runs the query, which Spark hands to every task: Spark calls listeners in that very thread
before the first micro-batch, and Py4J comes back to it.
"""

from __future__ import annotations

import posixpath
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql.streaming.listener import JStreamingQueryListener, QueryStartedEvent, StreamingQueryListener

from penstock.hosts.spark.internals import java_session
from penstock.hosts.spark.internals import jvm as jvm_of
from penstock.hosts.spark.job import Job
from penstock.hosts.spark.shard import Shard
from penstock.hosts.spark.worker import unsettle
from penstock.model.errors import CheckpointError, EngineError
from penstock.storage.versions import StateStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "penstock.checkpoint"
_BATCH = "streaming.sql.batchId"
_KEPT = 8
"""Shards that one worker process remembers: its memory is bounded by so many states, the last ones it worked on."""
_FORGET_EVERY = 8
"""Old versions are removed once in so many micro-batches."""
_SHARD = re.compile(r"shard-\d+-of-(\d+)")


# -- in the driver ------------------------------------------------------------------------------------


class _Telling(StreamingQueryListener):
    """Tells the tasks of each streaming query of a session where its checkpoint is."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        session: Any = java_session(self._spark)
        jvm: Any = jvm_of(self._spark)
        query = session.streams().get(jvm.java.util.UUID.fromString(str(event.id)))
        self._spark.sparkContext.setLocalProperty(_PROPERTY, query.streamingQuery().resolvedCheckpointRoot())

    def onQueryProgress(self, event: object) -> None:
        pass

    def onQueryTerminated(self, event: object) -> None:
        pass

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = jvm_of(self._spark)
        return jvm.PythonStreamingQueryListenerWrapper(_Unread(self))


class _Unread(JStreamingQueryListener):
    """Java's side of a listener that only wants to know what has started.

    PySpark's own fetches all that an event says from Java, value by value: for a small micro-batch that is more work
    than the micro-batch.
    """

    def onQueryProgress(self, jevent: object) -> None:
        pass

    def onQueryIdle(self, jevent: object) -> None:
        pass

    def onQueryTerminated(self, jevent: object) -> None:
        pass


_told: dict[int, _Telling] = {}


def tell_tasks(spark: SparkSession) -> None:
    """From now on tasks of streaming queries that this session starts know their checkpoint location."""
    session: Any = java_session(spark)
    key = hash((id(spark.sparkContext), session.hashCode()))
    if key not in _told:
        _told[key] = _Telling(spark)
        spark.streams.addListener(_told[key])


# -- in a worker --------------------------------------------------------------------------------------


def here() -> tuple[str, int]:
    """Checkpoint location and number of the micro-batch of the running task."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH)
    root = None if context is None else context.getLocalProperty(_PROPERTY)
    if batch is None or root is None:
        raise EngineError(
            "this task of a streaming query does not know its checkpoint location",
            hint="start the query in the Spark session that its DataFrames belong to",
        )
    return root, int(batch)


def located(location: str) -> tuple[fs.FileSystem, str]:
    """File system and path of a location as Spark writes it."""
    if location.startswith("file:"):
        return fs.LocalFileSystem(), "/" + location.removeprefix("file:").lstrip("/")
    if "://" not in location:
        return fs.LocalFileSystem(), location
    scheme, rest = location.split("://", 1)
    # What Hadoop calls s3a is s3 to everybody else.
    uri = f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError) as e:
        raise CheckpointError(
            f"{location}: files cannot be kept there: {e}", hint="pyarrow knows file, hdfs, s3, gs and abfs"
        ) from e
    return found


_kept: OrderedDict[tuple[str, str], tuple[int, Shard, StateStore]] = OrderedDict()
"""By job and folder: version, the shard after it, and the store that it came from or went to."""


def forget_all() -> None:
    """Make this process one that has not worked on any shard."""
    _kept.clear()


class Versions:
    """The state of one shard during one micro-batch."""

    def __init__(self, job: Job, shard: int, location: str, batch: int) -> None:
        self._job, self._shard, self._batch = job, shard, batch
        self._fs, path = located(location)
        self._root = posixpath.join(path, "penstock")
        self._folder = f"{self._root}/shard-{shard:05d}-of-{job.shards:05d}"
        self._store = StateStore(self._folder, self._fs, query=job.fingerprint)
        self.is_new = batch == 0
        self.written = 0
        """Bytes of state that ``commit`` wrote."""

    def open(self) -> Shard:
        """The shard as the micro-batch before left it; a fresh one for the first."""
        # Whatever happens in this micro-batch, what is kept now is not the state after it.
        kept = _kept.pop((self._job.id, self._folder), None)
        if kept is not None and self._goes_on_from(*kept):
            self._store = kept[2]
            return kept[1]
        if kept is not None:
            unsettle()
        shard = Shard(self._job, self._job.part_of(self._shard))
        if self._batch == 0:
            return shard
        state = self._store.load(self._batch - 1)
        if state is None:
            raise self._missing()
        shard.load(state)
        return shard

    def _goes_on_from(self, version: int, shard: Shard, store: StateStore) -> bool:
        """Make a shard that was kept the state before this micro-batch, if it is that or one that it came from."""
        if version >= self._batch - 1:
            return version == self._batch - 1 and store.holds(version)
        state = store.follow(self._batch - 1)
        if state is None:
            return False
        shard.catch_up(state)
        return True

    def commit(self, shard: Shard) -> None:
        """Make this the state after the micro-batch."""
        before = self._store.written
        try:
            self._store.commit(self._batch, shard.save())
        except OSError as e:
            raise self._unwritten(e, "its state") from e
        self.written = self._store.written - before
        if self._batch % _FORGET_EVERY == 0:
            self._store.forget(self._batch - 1)
        _kept[self._job.id, self._folder] = (self._batch, shard, self._store)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
            unsettle()

    def keep_late(self, late: Mapping[str, pa.Table]) -> None:
        """Write late rows where ``penstock.spark.late`` finds them; a second attempt writes the same files.

        Readers pass over names with ``_``, so they see no half of a file. Of the parts that read a stream the first one
        writes; only where ``idle`` makes a difference between them does each write its own.
        """
        part = self._job.part_of(self._shard)
        for stream, rows in late.items():
            if self._job.idle is None and part is not next(p for p in self._job.parts if stream in p.reads):
                continue
            try:
                _write(self._fs, late_folder(self._root, stream), f"{self._batch:012d}-{self._shard:05d}.parquet", rows)
            except OSError as e:
                raise self._unwritten(e, f"late rows of `{stream}`") from e

    def _unwritten(self, error: OSError, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._folder}: micro-batch {self._batch} could not write {what}: {error}",
            hint="make room, or mend what is said there, and start the query again: it goes on where it was",
        )

    def _missing(self) -> CheckpointError:
        found = self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        counts = {int(m[1]) for m in (_SHARD.fullmatch(f.base_name) for f in found) if m}
        if counts and self._job.shards not in counts:
            return CheckpointError(
                f"{self._root}: the query was started with {min(counts)} shards, now it has {self._job.shards}",
                hint=f"say shards={min(counts)}, or use another checkpoint location",
            )
        return CheckpointError(
            f"{self._folder}: there is no state of micro-batch {self._batch - 1}",
            hint="the checkpoint is that of another query, or files are lost, or a function of foreachBatch did not "
            "read all answers: use another checkpoint location",
        )


def keep_apart(location: str, batch: int, stream: str, task: int, apart: Sequence[pa.Table]) -> None:
    """Write rows that do not fit where ``penstock.spark.apart`` finds them; a second attempt writes the same files."""
    rows = pa.concat_tables(apart) if apart else None
    if rows is None or not len(rows):
        return
    system, path = located(location)
    folder = apart_folder(posixpath.join(path, "penstock"), stream)
    try:
        _write(system, folder, f"{batch:012d}-{task:05d}.parquet", rows)
    except OSError as e:
        raise CheckpointError(
            f"{folder}: micro-batch {batch} could not write rows apart of `{stream}`: {e}",
            hint="make room, or mend what is said there, and start the query again: it goes on where it was",
        ) from e


def _write(system: fs.FileSystem, folder: str, name: str, rows: pa.Table) -> None:
    """A Parquet file that is there whole or not at all."""
    system.create_dir(folder, recursive=True)
    pq.write_table(rows, f"{folder}/_{name}", filesystem=system)
    system.move(f"{folder}/_{name}", f"{folder}/{name}")


def apart_folder(root: str, stream: str) -> str:
    """Where the rows apart of a stream are."""
    return f"{root}/apart/{stream}"


def late_folder(root: str, stream: str) -> str:
    """Where the late rows of a stream are."""
    return f"{root}/late/{stream}"
