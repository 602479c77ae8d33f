"""Where the state of a streaming query is, and which version of it counts.

Under the checkpoint location of the Spark query:

    penstock/shard-00002-of-00004/    a ``StateStore``; version ``b`` is the state after micro-batch ``b``
    penstock/job.json                 what the query is (``begun``)
    penstock/late/<stream>/           late rows, a Parquet file for each micro-batch and shard that had some
    penstock/apart/<stream>/          rows that do not fit, a Parquet file for each micro-batch and task that had some
    penstock/relations/<b>.parquet    the rows of relations from micro-batch ``b`` on, packed by shard

Micro-batch ``b`` starts from version ``b - 1`` and nothing else; ``shard`` says what a worker may remember of it.

Relations are read when a query is started, and while it runs (``lives``). Their rows count from the first micro-batch
on that Spark has not written an offset for: no task can have worked on it. All others, also one that has to be
repeated, have the rows that they had. A shard compares the rows with those in its state, and what differs is a change.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext

from penstock.hosts.spark.begun import note, numbers
from penstock.hosts.spark.job import Job
from penstock.hosts.spark.rows import RowFeed, RowShard
from penstock.model.errors import CheckpointError, EngineError
from penstock.storage.versions import StateStore

Packets = Mapping[int, Mapping[str, list[bytes]]]
"""Packets of relations by shard and name."""
PROPERTY = "penstock.checkpoint"
"""The checkpoint location of a streaming query, for its tasks."""
REFUSED = "penstock.refused"
"""Why a streaming query must not run, for its tasks."""
CLOSES = "penstock.closes"
"""The micro-batch with which the inputs of a streaming query end, for its tasks."""
_BATCH = "streaming.sql.batchId"
_FORGET_EVERY = 8
"""Old versions are removed once in so many micro-batches."""
_KEPT_ROWS = re.compile(r"_?(\d+)-\d+\.parquet")
"""Late rows or rows apart: the micro-batch, and the shard or task that found them."""
_SHARD = re.compile(r"shard-\d+-of-(\d+)")


# -- in the driver ------------------------------------------------------------------------------------


def keep_relations(location: str, relations: Iterable[Packets], between: AbstractContextManager[None]) -> None:
    """Write the rows of relations where the first micro-batch that has not been begun finds them.

    Spark begins none while ``between`` lasts.
    """
    system, path = located(location)
    folder = _relations_folder(posixpath.join(path, "penstock"))
    packets = [
        (shard, name, packet)
        for given in relations
        for shard, mine in given.items()
        for name, some in mine.items()
        for packet in some
    ]
    columns = zip(*packets, strict=True) if packets else ((), (), ())
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, _PACKETS, strict=True)], schema=_PACKETS)
    try:
        system.create_dir(folder, recursive=True)
        pq.write_table(table, f"{folder}/_next", filesystem=system, row_group_size=1)
        with between:
            begun = max(numbers(system, posixpath.join(path, "offsets")), default=-1)
            for file in system.get_file_info(fs.FileSelector(folder)):
                # Micro-batch ``begun`` may have to be repeated.
                if file.base_name not in ("_next", _relations_file(begun)):
                    system.delete_file(file.path)
            system.move(f"{folder}/_next", f"{folder}/{_relations_file(begun + 1)}")
    except OSError as e:
        raise CheckpointError(
            f"{folder}: the rows of relations could not be written: {e}",
            hint="make room, or mend what is said there, and start the query again: it goes on where it was",
        ) from e


def forget_unfinished(location: str) -> None:
    """Take away the late rows and rows apart of micro-batches that have not ended: those are made again, and other
    tasks than before may find the rows."""
    system, path = located(location)
    last = max(numbers(system, posixpath.join(path, "commits")), default=-1)
    for folder in ("late", "apart"):
        selector = fs.FileSelector(posixpath.join(path, "penstock", folder), allow_not_found=True, recursive=True)
        for file in system.get_file_info(selector):
            number = _KEPT_ROWS.fullmatch(file.base_name)
            if number is not None and int(number[1]) > last:
                system.delete_file(file.path)


# -- in a worker --------------------------------------------------------------------------------------


def here() -> tuple[str, int]:
    """Checkpoint location and number of the micro-batch of the running task."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH)
    root = None if context is None else context.getLocalProperty(PROPERTY)
    refused = None if context is None else context.getLocalProperty(REFUSED)
    if refused is not None:
        raise CheckpointError(refused)
    if batch is None or root is None:
        raise EngineError(
            "this task of a streaming query does not know its checkpoint location",
            hint="start the query in the Spark session that its DataFrames belong to",
        )
    return root, int(batch)


def ends_with(batch: int) -> bool:
    """Whether the inputs of the running task end with this micro-batch."""
    context = TaskContext.get()
    last = None if context is None else context.getLocalProperty(CLOSES)
    if last is not None and batch > int(last):
        raise CheckpointError(
            f"rows have come after the inputs of this query were closed with micro-batch {last}",
            hint="use another checkpoint location, whose query reads everything from the beginning",
        )
    return last is not None and batch == int(last)


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


class Versions:
    """The state of one shard during one micro-batch."""

    def __init__(self, job: Job, shard: int, location: str, batch: int) -> None:
        self._job, self._shard, self._batch = job, shard, batch
        self._fs, self._path = located(location)
        self._root = posixpath.join(self._path, "penstock")
        self._folder = f"{self._root}/shard-{shard:05d}-of-{job.shards:05d}"
        self.is_new = batch == 0

    def relations(self) -> Mapping[str, list[bytes]] | None:
        """The rows that relations have from this micro-batch on, packed; None where they stay as they were."""
        reads = self._job.part_of(self._shard).reads
        names = [s.name for s in self._job.sources if not s.is_stream and s.name in reads]
        file = f"{_relations_folder(self._root)}/{_relations_file(self._batch)}"
        if not names:
            return None
        if self._fs.get_file_info(file).type == fs.FileType.NotFound:
            if self.is_new:
                raise EngineError(f"{file}: the rows of static DataFrames are missing", hint="call ps.sql again")
            return None
        mine = pq.read_table(file, filesystem=self._fs, partitioning=None, filters=[("shard", "=", self._shard)])
        found: dict[str, list[bytes]] = {name: [] for name in names}
        for name, rows in zip(mine.column("name").to_pylist(), mine.column("rows").to_pylist(), strict=True):
            found[name].append(rows)
        return found

    def open(self, feed: RowFeed) -> RowShard:
        """The shard as the micro-batch before left it; a fresh one for the first."""
        job, base = self._job, None if self.is_new else (self._batch - 1, "")
        store = StateStore(self._folder, self._fs, query=job.fingerprint)
        return RowShard.open(
            store, base, feed, lambda: RowShard(job, job.part_of(self._shard)), self._missing, owner=job.id
        )

    def commit(self, shard: RowShard) -> int:
        """Make this the state after the micro-batch; gives how many bytes were written."""
        try:
            written = shard.commit(self._batch)[1]
            if self._batch == self._shard == 0:
                note(self._job, self._fs, self._path)
        except OSError as e:
            raise self._unwritten(e, "its state") from e
        if self._batch % _FORGET_EVERY == 0:
            shard.store.forget(self._batch - 1)
        return written

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

    def _missing(self, version: int) -> CheckpointError:
        found = self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        counts = {int(m[1]) for m in (_SHARD.fullmatch(f.base_name) for f in found) if m}
        if counts and self._job.shards not in counts:
            return CheckpointError(
                f"{self._root}: the query was started with {min(counts)} shards, now it has {self._job.shards}",
                hint=f"say shards={min(counts)}, or use another checkpoint location",
            )
        return CheckpointError(
            f"{self._folder}: there is no state of micro-batch {version}",
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


_PACKETS = pa.schema([("shard", pa.int32()), ("name", pa.string()), ("rows", pa.binary())])


def _relations_folder(root: str) -> str:
    return f"{root}/relations"


def _relations_file(batch: int) -> str:
    return f"{batch:012d}.parquet"


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
