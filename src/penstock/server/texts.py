"""Rows as clients send them (JSON, JSON lines, CSV, Arrow IPC), read as the stream or relation declares them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import pyarrow as pa
import pyarrow.ipc

from penstock.database.core import Core
from penstock.database.play import CHANGE_COLUMNS, input_name
from penstock.io.csv_input import read_csv
from penstock.io.files import Format, Piece
from penstock.io.json_input import read_json, read_json_array
from penstock.io.readers import row_sieve
from penstock.model.errors import InputError, LimitExceeded
from penstock.rows.apart import Rows, Sieve
from penstock.rows.times import TimeForm

RowsFormat = Literal["json", "ndjson", "csv", "arrow"]


def rows_of(core: Core, name: str, format: RowsFormat, data: bytes, most: int) -> Rows | pa.Table:
    """The rows of a text for a stream or relation, all at once; ``most``: how many there may be.

    A row that does not fit is refused with all the others, or goes where the stream's ``on_error`` says.
    """
    name = input_name(core.catalog, name)
    if format == "arrow":
        return _arrow(data, most)
    is_relation = name in core.catalog.relations
    sieve = _sieve(core, name)
    found = _together(_pieces(format, data, sieve), sieve, most)
    return found.table if is_relation else found


def _sieve(core: Core, name: str) -> Sieve:
    if name in core.catalog.relations:
        schema, check = core.catalog.relations[name].schema, core.relations[name].check
        where, time = f"relation `{name}`", TimeForm("", core.zone)
        return row_sieve(where, schema, extra=CHANGE_COLUMNS, time=time, check=check, options=False, unknown="refuse")
    stream = core.catalog.streams[name]
    not_null = frozenset({stream.timestamp_by} if stream.timestamp_by else ())
    return row_sieve(
        f"stream `{name}`", stream.schema, not_null=not_null, time=stream.time, on_error=stream.on_error,
        unknown=stream.unknown or "refuse", check=core.input(name).check,
    )  # fmt: skip


def _pieces(format: RowsFormat, data: bytes, sieve: Sieve) -> Iterable[Rows]:
    if not data.strip():
        return ()  # no rows, whatever the format says of an empty file
    match format:
        case "csv":
            return read_csv(Piece(sieve.where, Format.CSV, data, whole=True), sieve)
        case "ndjson":
            return read_json(Piece(sieve.where, Format.JSON, data, whole=True), sieve, 65_536)
        case _:
            return (read_json_array(data, sieve),)


def _together(pieces: Iterable[Rows], sieve: Sieve, most: int) -> Rows:
    tables, apart, count = [], [], 0
    stopped: InputError | None = None
    for rows in pieces:
        tables.append(rows.table)
        apart += [replace(bad, at=bad.at + count) for bad in rows.apart]
        count += len(rows)
        _check_count(count, most)
        stopped = rows.stopped
    table = pa.concat_tables(tables, promote_options="permissive") if tables else sieve.nothing
    return Rows(table, tuple(apart), stopped)


def _arrow(data: bytes, most: int) -> pa.Table:
    """The table of an IPC stream. What a client says of offsets and lengths is checked before it is believed."""
    try:
        with pa.ipc.open_stream(data) as reader:
            check_names(reader.schema)
            batches, count = [], 0
            for batch in reader:
                count += batch.num_rows
                _check_count(count, most)
                batch.validate(full=True)
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, MemoryError) as problem:
        said = str(problem).splitlines() or [type(problem).__name__]
        raise InputError(f"the rows cannot be read as an Arrow IPC stream: {said[0]}") from None


def json_of(data: bytes) -> object:
    """What a client has written in JSON; ValueError, RecursionError.

    JSON can say half a character (``\\ud800``), and UTF-8 cannot. It is refused here, not where it is stored or sent.
    """
    text = data.decode("utf-8-sig")
    found: object = json.loads(text)
    if "\\u" in text:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text in it has half a character") from None
    return found


def check_names(schema: pa.Schema) -> None:
    """Refuse columns of a client whose names are not UTF-8: Arrow reads them, and fails where Python asks for them."""
    try:
        for field in schema:
            _names(field)
    except UnicodeDecodeError:
        raise InputError("the name of a column, or of its time zone, is not in UTF-8") from None


def _names(field: pa.Field) -> tuple[str, str | None]:
    """All names in a field; those inside of it are read, too."""
    for i in range(field.type.num_fields):
        _names(field.type.field(i))
    return field.name, field.type.tz if pa.types.is_timestamp(field.type) else None


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise LimitExceeded(f"these are more than {most} rows", hint="send them in several batches")
