"""Parquet and Arrow IPC (file and stream): typed columns, brought to the declared types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from penstock.io.files import Format
from penstock.model.errors import InputError
from penstock.rows.apart import Rows, Sieve, sifted_file
from penstock.rows.columns import Target, bad_value, check_texts, match, whole
from penstock.rows.values import BadValue, convert_arrow

_IPC_FILE_MAGIC = b"ARROW1"


def arrow_schema(path: Path, format: Format) -> pa.Schema:
    """The columns of a Parquet or Arrow file."""
    try:
        if format is Format.PARQUET:
            return pa.parquet.read_schema(path)
        with pa.memory_map(str(path)) as source:
            return _open_ipc(source).schema
    except (pa.ArrowInvalid, OSError) as problem:
        raise _unreadable(path, "Parquet" if format is Format.PARQUET else "Arrow", problem) from None


def read_parquet(path: Path, sieve: Sieve, batch_rows: int) -> Iterator[Rows]:
    """Rows of the wanted columns, read row group by row group."""
    try:
        with pa.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            columns = _usable(schema, sieve, path)
            names = [schema.names[at] for _, at in columns]
            yield from _typed(path, file.iter_batches(batch_rows, columns=names), columns, sieve, by_name=True)
    except (pa.ArrowInvalid, OSError) as problem:
        raise _unreadable(path, "Parquet", problem) from None


def read_ipc(path: Path, sieve: Sieve) -> Iterator[Rows]:
    """Rows of the wanted columns, as batched in the file."""
    try:
        with pa.memory_map(str(path)) as source:
            reader = _open_ipc(source)
            if isinstance(reader, pa.RecordBatchFileReader):
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                batches = iter(reader)
            yield from _typed(path, batches, _usable(reader.schema, sieve, path), sieve, by_name=False)
    except (pa.ArrowInvalid, OSError) as problem:
        raise _unreadable(path, "Arrow", problem) from None


def _open_ipc(source: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    is_file = source.read(len(_IPC_FILE_MAGIC)) == _IPC_FILE_MAGIC
    source.seek(0)
    return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


def _unreadable(path: Path, format: str, problem: Exception) -> InputError:
    if path.stat().st_size == 0:
        return InputError(f"{path} is empty: {format} files have a schema even without rows")
    return InputError(f"{path} cannot be read as {format}: {str(problem).splitlines()[0]}")


def _usable(schema: pa.Schema, sieve: Sieve, path: Path) -> list[tuple[Target, int]]:
    columns = match(schema.names, sieve.targets, path, sieve.unknown)
    for target, at in columns:
        held = schema.field(at).type
        fitting = tuple(t for t in target.types if target.takes(held, t))
        if not fitting:
            raise InputError(f"{path}: column `{target.name}` holds {held}, which is not {target.types[0]}")
        target.types = fitting
    return columns


def _typed(
    path: Path, batches: Iterator[pa.RecordBatch], columns: list[tuple[Target, int]], sieve: Sieve, *, by_name: bool
) -> Iterator[Rows]:
    def read(some: pa.Table) -> pa.Table:
        arrays = []
        for position, (target, at) in enumerate(columns):
            column = some.column(position if by_name else at)
            check_texts(column, target.name, str(path))
            try:
                arrays.append(target.convert(whole(column), convert_arrow))
            except BadValue as bad:
                raise bad_value(path, bad.index, target.name, bad) from None
        return pa.table(arrays, names=[target.name for target, _ in columns])

    def sift(batch: pa.RecordBatch, before: int) -> Rows:
        return sifted_file(pa.Table.from_batches([batch]), read, sieve, lambda row: f"row {before + row + 1}")

    before = 0
    for batch in batches:
        found = sift(batch, before)
        yield found
        if found.stopped is not None:
            return
        before += batch.num_rows
