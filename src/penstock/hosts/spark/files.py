"""Parquet files by their path: Spark says which files are new, workers read them.

Rows that come from Spark are made of Parquet in Java, row by row, and written as Arrow for Python, which takes several
times as long as the query. Where a stream is a plain folder of Parquet files, Spark is asked for the paths of new
files only, and workers read the columns themselves. Which files belong to a micro-batch, and what happens to them after
a restart, is Spark's business as before. Spark lists them as files of bytes: it does not open them, and its log of what
was read is the same.

It is done only where nobody can tell: a folder without folders in it (their names may be values), no option that says
how to read, columns of plain types, and files whose columns have exactly those types. A file that is found to be
otherwise later on ends the query with a word about it; it goes on from its checkpoint with ``files=False``.

Where no query remembers a row, the footers of the files take the place of the rows until they are answered
(``footers``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.hosts.spark.checkpoint import located
from penstock.hosts.spark.internals import in_arrow, new_files_of
from penstock.hosts.spark.job import FileColumn
from penstock.model.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHOOSING = frozenset({
    "path", "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "filenameonly", "maxfileage", "cleansource",
    "sourcearchivedir", "maxcachedfiles", "discardcachedinputratio", "pathglobfilter", "modifiedbefore",
    "modifiedafter",
})  # fmt: skip
"""Options that say which files are read and when, not how."""
_LISTED = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
"""What Spark has of a file of bytes."""
_LEGACY = (b"org.apache.spark.legacyINT96", b"org.apache.spark.legacyDateTime")
"""What Spark notes in files whose old dates mean something else."""


def by_path(
    spark: SparkSession, frame: DataFrame, columns: Sequence[str]
) -> tuple[DataFrame, tuple[FileColumn, ...]] | None:
    """The paths of files behind a streaming DataFrame, and what is read of them; None where Spark must read them."""
    options = _options(frame)
    if "path" not in options or spark.conf.get("spark.sql.caseSensitive") == "true":
        return None
    wanted: list[FileColumn] = []
    for name in columns:
        dtype = in_arrow(frame.schema[name].dataType)
        if not _is_plain(dtype):
            return None
        wanted.append(FileColumn(name, dtype))
    found = _first_file(options["path"])
    if found is None or _problem(found, wanted) is not None:
        return None
    paths = spark.readStream.format("binaryFile").schema(_LISTED).options(**options).load()
    # Spark passes over Parquet files without a byte.
    return paths.where("length > 0").select("path"), tuple(wanted)


def paths(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """The paths of files that come in the place of rows."""
    return [path for batch in batches for path in batch.column(0).to_pylist()]


def opened(files: Iterable[str], columns: Sequence[FileColumn]) -> Iterator[pa.RecordBatch]:
    """The rows of files, file by file."""
    for path in files:
        with parquet_file(path, columns) as (file, names):
            table = file.read(columns=names).select(names)
        yield from as_columns(table, columns).to_batches()


@contextmanager
def parquet_file(location: str, columns: Sequence[FileColumn]) -> Iterator[tuple[pq.ParquetFile, list[str]]]:
    """A file, and the names that the columns have in it."""
    filesystem, path = located(location)
    is_local = isinstance(filesystem, fs.LocalFileSystem)
    with pa.memory_map(path) if is_local else filesystem.open_input_file(path) as source:
        file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        problem = _problem(file, columns)
        if problem is not None:
            raise InputError(f"{path}: {problem}", hint="say files=False, and Spark reads the files")
        yield file, _names(file, columns)


def as_columns(table: pa.Table, columns: Sequence[FileColumn]) -> pa.Table:
    """Rows of a file, in the types that Spark would give."""
    arrays = [_as_spark(c, w.type) for c, w in zip(table.columns, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=[c.name for c in columns])


def _as_spark(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(wanted) and wanted.tz is not None and column.type.tz is None:
        # Spark's old way of writing instants (INT96) has no zone; it is UTC.
        return column.cast(pa.timestamp("us")).cast(wanted)
    return column.cast(wanted)


def _options(frame: DataFrame) -> dict[str, str]:
    """The folder that a DataFrame is nothing but the new Parquet files of, as ``path``, and how it is listed."""
    kind, options = new_files_of(frame) or ("", {})
    return options if kind == "parquet" and options.keys() <= _CHOOSING else {}


def _first_file(folder: str) -> pq.ParquetFile | None:
    """A file of a folder that has files only; None if it has none, or anything else."""
    try:
        filesystem, path = located(folder)
        found = filesystem.get_file_info(fs.FileSelector(path))
    except (OSError, ValueError, pa.ArrowException):
        return None
    seen = [f for f in found if not f.base_name.startswith(("_", "."))]
    if not seen or any(f.type != fs.FileType.File for f in seen):
        return None
    try:
        return pq.ParquetFile(min(f.path for f in seen), filesystem=filesystem, coerce_int96_timestamp_unit="us")
    except (OSError, pa.ArrowException):
        return None


def _problem(file: pq.ParquetFile, columns: Sequence[FileColumn]) -> str | None:
    """Why Spark might read something else in this file."""
    if any(key in (file.metadata.metadata or {}) for key in _LEGACY):
        return "its dates are those of an old Spark"
    schema = file.schema_arrow
    for column, name in zip(columns, _names(file, columns), strict=True):
        if name is None:
            return f"it has no column `{column.name}`, or several"
        if not _same(schema.field(name).type, column.type, file, name):
            return f"its column `{name}` is {schema.field(name).type}, not {column.type}"
    return None


def _names(file: pq.ParquetFile, columns: Sequence[FileColumn]) -> list[Any]:
    """The names of columns as the file has them; Spark does not mind their case."""
    by_name: dict[str, list[str]] = {}
    for name in file.schema_arrow.names:
        by_name.setdefault(name.lower(), []).append(name)
    found = (by_name.get(column.name.lower(), []) for column in columns)
    return [names[0] if len(names) == 1 else None for names in found]


def _same(have: pa.DataType, wanted: pa.DataType, file: pq.ParquetFile, name: str) -> bool:
    if pa.types.is_dictionary(have):
        have = have.value_type
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(have):
        paths = [file.schema.column(i).path for i in range(len(file.schema))]
        if file.schema.column(paths.index(name)).physical_type == "INT96":
            return wanted.tz is not None
        return have.unit in ("ms", "us") and (have.tz is None) == (wanted.tz is None)
    return have == wanted or bool(pa.types.is_string(wanted) and pa.types.is_large_string(have))


def _is_plain(dtype: pa.DataType) -> bool:
    kinds = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_date32,
        pa.types.is_timestamp, pa.types.is_decimal,
    )  # fmt: skip
    return any(is_kind(dtype) for is_kind in kinds)
