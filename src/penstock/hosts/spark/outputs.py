"""The answers of a pipeline, each query's to a place of its own, each answer once.

    folder/batch=000000000012/part-00003.parquet      what shard 3 answered in micro-batch 12

Spark repeats a micro-batch that it does not know to have ended. A micro-batch has a folder, and a shard has a file in
it, so what is repeated replaces what was there. Tasks write under names that readers pass over (``_…``); the driver
gives the files their names when the last task is done. All queries are written in one pass over the answers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql import DataFrame

from penstock.hosts.spark.checkpoint import located
from penstock.hosts.spark.schemas import spark_schema
from penstock.model.errors import EngineError, InputError, there_are

Output = str | Callable[[DataFrame, int], object]
"""A folder, or what is to be done with the answers of a micro-batch, given its number."""

BATCH = "batch"
"""The column that Spark makes of the names of the folders."""
_WRITTEN = "query STRING, file STRING, part STRING"
# Types that Parquet does not have are kept by Spark in a note of its own.
_NOTE = "org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True)
class Written:
    """The function of a task: its answers into a file for each query; gives the names of the files."""

    folders: Mapping[str, str]
    schemas: Mapping[str, pa.Schema]
    batch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        part, attempt = f"part-{context.partitionId():05d}.parquet", uuid.uuid4().hex
        writers: dict[str, tuple[str, pq.ParquetWriter]] = {}
        try:
            for batch in batches:
                self._write(batch, writers, f"_{attempt}-{part}")
            for _, writer in writers.values():
                writer.close()
        except OSError as e:
            raise EngineError(
                f"micro-batch {self.batch} could not write its answers: {e}",
                hint="make room, or mend what is said there, and start the query again: it goes on where it was",
            ) from e
        names = [(query, file, part) for query, (file, _) in writers.items()]
        columns = [pa.array([row[i] for row in names], pa.string()) for i in range(3)]
        yield pa.RecordBatch.from_arrays(columns, ["query", "file", "part"])

    def _write(self, batch: pa.RecordBatch, writers: dict[str, tuple[str, pq.ParquetWriter]], name: str) -> None:
        table = pa.Table.from_batches([batch])
        for query in pc.unique(batch.column("query")).to_pylist():
            if query not in self.folders:
                continue
            schema = noted(self.schemas[query])
            if query not in writers:
                filesystem, folder = batch_folder(self.folders[query], self.batch)
                filesystem.create_dir(folder, recursive=True)
                writers[query] = (name, pq.ParquetWriter(f"{folder}/{name}", schema, filesystem=filesystem))
            # Queries share columns whose names differ in case alone.
            places = {column.lower(): i for i, column in enumerate(table.column_names)}
            mine = table.filter(pc.equal(table.column("query"), query))
            mine = mine.select([places[name.lower()] for name in schema.names]).rename_columns(schema.names)
            writers[query][1].write_table(mine.cast(schema))


def noted(schema: pa.Schema) -> pa.Schema:
    """The schema with what Spark would note about it."""
    return schema.with_metadata({_NOTE: spark_schema(schema).json()})


def batch_folder(folder: str, batch: int) -> tuple[fs.FileSystem, str]:
    """Where the answers of a micro-batch are."""
    filesystem, path = located(folder)
    return filesystem, f"{path.rstrip('/')}/{BATCH}={batch:012d}"


class Writing:
    """What ``foreachBatch`` calls."""

    def __init__(
        self, outputs: Mapping[str, Output], schemas: Mapping[str, pa.Schema], of: Callable[[str, DataFrame], DataFrame]
    ) -> None:
        self._schemas, self._of = schemas, of
        self._folders = {query: to for query, to in outputs.items() if isinstance(to, str)}
        self._calls = {query: to for query, to in outputs.items() if not isinstance(to, str)}

    def __call__(self, answers: DataFrame, batch: int) -> None:
        if not self._calls:
            self._write(answers, batch)
            return
        # Each pass over the answers would compute them once more.
        answers.persist()
        try:
            # Also where there is no folder: every shard must take part in every micro-batch.
            self._write(answers, batch)
            for query, call in self._calls.items():
                call(self._of(query, answers), batch)
        finally:
            answers.unpersist()

    def _write(self, answers: DataFrame, batch: int) -> None:
        rows = answers.mapInArrow(Written(self._folders, self._schemas, batch), _WRITTEN).collect()
        for query, folder in self._folders.items():
            self._name(query, folder, batch, {row.file: row.part for row in rows if row.query == query})

    def _name(self, query: str, folder: str, batch: int, files: Mapping[str, str]) -> None:
        filesystem, path = batch_folder(folder, batch)
        for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            if info.base_name not in files:
                filesystem.delete_file(info.path)
        for file, part in files.items():
            filesystem.move(f"{path}/{file}", f"{path}/{part}")
        if batch == 0 and not files:
            # So that there is something to read, with columns, before the first answer.
            filesystem.create_dir(path, recursive=True)
            schema = noted(self._schemas[query])
            pq.write_table(schema.empty_table(), f"{path}/part-00000.parquet", filesystem=filesystem)


def checked(outputs: Mapping[str, Output], schemas: Mapping[str, pa.Schema], *, streaming: bool) -> None:
    """Refuse what cannot be started."""
    if not streaming:
        raise EngineError(
            "the DataFrames of this pipeline are static, so there is nothing to start",
            hint="read `answers`, or the answers of a query by its name",
        )
    if not outputs:
        raise InputError("a pipeline needs at least one output", hint=there_are([*map(repr, schemas)]))
    for query, to in outputs.items():
        if query not in schemas:
            raise InputError(f"no query `{query}`", hint=there_are(schemas))
        if isinstance(to, str) and BATCH in map(str.lower, schemas[query].names):
            raise InputError(
                f"query `{query}` has a column `{BATCH}`, which is the name of the folders of micro-batches",
                hint="rename it with AS",
            )
        if not isinstance(to, str) and not callable(to):
            raise InputError(f"the output of query `{query}` is {to!r}", hint="give a folder or a function")
    folders = [to.rstrip("/") for to in outputs.values() if isinstance(to, str)]
    twice = [f for f in folders if folders.count(f) > 1]
    if twice:
        raise InputError(f"two queries have the folder {twice[0]!r}", hint="give each its own")
