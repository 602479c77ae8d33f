"""The rows of COPY: from text, CSV and binary into a table, and back.

All rows of a COPY FROM become one batch, so a bad row refuses the whole and the error names its line and column.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from penstock.model.errors import InputError, LimitExceeded
from penstock.model.types import Kind, from_arrow
from penstock.rows.values import BadValue, convert_text
from penstock.server.postgres import types
from penstock.server.postgres.statements import CopyOptions
from penstock.server.postgres.values import decode

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_UNESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPE = str.maketrans({"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"})
_Cells = list[str | None]


# -- in ------------------------------------------------------------------------------------------------


def to_table(data: bytes, schema: pa.Schema, options: CopyOptions, name: str, most: int) -> pa.Table:
    """The rows that a client has sent, with the columns of ``schema``. ``most``: how many may come at once."""
    if options.format == "binary":
        return _from_binary(data, schema, name, most)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"COPY {name}, line {line}: the text is not UTF-8") from None
    lines, rows = _csv(text, options, name) if options.format == "csv" else _text(text, options)
    if options.header and rows:
        del lines[0], rows[0]
    if len(rows) > most:
        raise LimitExceeded(f"COPY {name}: {len(rows)} rows; at most {most} come at once", hint="send them in parts")
    width = len(schema)
    for line, row in zip(lines, rows, strict=True):
        if len(row) != width:
            names = ", ".join(f"`{n}`" for n in schema.names)
            raise InputError(f"COPY {name}, line {line}: {len(row)} values for {width} columns", hint=names)
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    arrays = [_column(list(column), field, lines, name) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(cells: _Cells, field: pa.Field, lines: Sequence[int], name: str) -> pa.Array:
    dtype = from_arrow(field.type)
    assert dtype is not None, "columns of streams have types of CQL"
    where = f"COPY {name}, line {{}}, column `{field.name}`"
    if dtype.kind not in _OWN_FORMS:
        if dtype.kind is not Kind.STRING and "" in cells:
            line = lines[cells.index("")]
            raise InputError(
                f"{where.format(line)}: an empty text is not of type {dtype}",
                hint="NULL is \\N in text, nothing in CSV",
            )
        try:
            return convert_text(pa.array(cells, pa.string()), dtype).cast(field.type)
        except BadValue as bad:
            raise InputError(f"{where.format(lines[bad.index])}: {bad}", hint=bad.hint) from None
    oid = types.of_cql(dtype)[0]
    values: list[object] = []
    for line, cell in zip(lines, cells, strict=True):
        found = None if cell is None else decode(cell.encode(), oid, 0, where.format(line))
        values.append(found)
    return _array(values, field.type)


_OWN_FORMS = frozenset({Kind.BOOLEAN, Kind.BINARY, Kind.INTERVAL, Kind.ARRAY})
"""Kinds that PostgreSQL writes in another way than Penstock's files."""


def _array(values: Sequence[object], arrow: pa.DataType) -> pa.Array:
    return pa.array([_without_zone(v) for v in values], arrow)


def _without_zone(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return [_without_zone(v) for v in value] if isinstance(value, list) else value


def _text(text: str, options: CopyOptions) -> tuple[list[int], list[_Cells]]:
    """Lines of fields between delimiters; a backslash takes the meaning from the sign behind it, or gives it one."""
    lines: list[int] = []
    rows: list[_Cells] = []
    joined: str | None = None
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        line = line.removesuffix("\r")
        if joined is not None:
            line, joined = f"{joined}\n{line}", None
        if line == "\\.":
            break
        if (len(line) - len(line.rstrip("\\"))) % 2:  # an escaped end of line belongs to the value
            joined = line
            continue
        lines.append(number)
        rows.append(_fields(line, options))
    return lines, rows


def _fields(line: str, options: CopyOptions) -> _Cells:
    if "\\" not in line:
        return [None if cell == options.null else cell for cell in line.split(options.delimiter)]
    pattern = re.compile(
        rf"((?:\\.|[^\\{re.escape(options.delimiter)}])*)({re.escape(options.delimiter)}|$)", re.DOTALL
    )
    cells: _Cells = []
    at = 0
    while True:
        match = pattern.match(line, at)
        assert match is not None, "a line ends with a delimiter or with its end"
        cells.append(None if match[1] == options.null else _UNESCAPE.sub(_meant, match[1]))
        if not match[2]:
            return cells
        at = match.end()


def _meant(match: re.Match[str]) -> str:
    sign = match[1]
    if sign[0] == "x" and len(sign) > 1:
        return chr(int(sign[1:], 16))
    if sign[0] in "01234567":
        return chr(int(sign, 8) & 255)
    return _ESCAPED.get(sign, sign)


def _csv(text: str, options: CopyOptions, name: str) -> tuple[list[int], list[_Cells]]:
    """A field in quotes is a text, also if it looks like NULL."""
    delimiter, quote, escape = map(re.escape, (options.delimiter, options.quote, options.escape))
    inside = rf"(?:[^{quote}]|{escape}{quote})*" if quote == escape else rf"(?:[^{quote}{escape}]|{escape}.)*"
    field = re.compile(
        rf"(?:{quote}({inside}){quote}|([^{delimiter}{quote}\r\n]*))({delimiter}|\r\n|\n|\r|\Z)", re.DOTALL
    )
    undo = re.compile(rf"{escape}(.)", re.DOTALL)
    lines: list[int] = []
    rows: list[_Cells] = []
    row: _Cells = []
    at, line = 0, 1
    first = line
    while at < len(text) or row:
        match = field.match(text, at)
        if match is None:
            raise InputError(f"COPY {name}, line {line}: a quote stands where none can, or is not closed")
        quoted, bare, closing = match.groups()
        row.append(undo.sub(r"\1", quoted) if quoted is not None else None if bare == options.null else bare)
        line += text.count("\n", at, match.end())
        at = match.end()
        if closing != options.delimiter:
            if bare == "\\." and len(row) == 1:
                break
            lines.append(first)
            rows.append(row)
            row, first = [], line
    return lines, rows


def _from_binary(data: bytes, schema: pa.Schema, name: str, most: int) -> pa.Table:
    dtypes = [from_arrow(f.type) for f in schema]
    columns: list[list[object]] = [[] for _ in schema]
    try:
        if not data.startswith(_SIGNATURE):
            raise InputError(f"COPY {name}: the rows do not begin as PostgreSQL's binary format does")
        (extension,) = struct.unpack_from("!I", data, 15)
        at, row = 19 + extension, 0
        while (count := struct.unpack_from("!h", data, at)[0]) != -1:
            row += 1
            at += 2
            if count != len(columns):
                raise InputError(f"COPY {name}, row {row}: {count} values for {len(columns)} columns")
            if row > most:
                raise LimitExceeded(f"COPY {name}: at most {most} rows come at once", hint="send them in parts")
            for column, dtype, field in zip(columns, dtypes, schema, strict=True):
                (length,) = struct.unpack_from("!i", data, at)
                at += 4
                if length == -1:
                    column.append(None)
                    continue
                assert dtype is not None
                where = f"COPY {name}, row {row}, column `{field.name}`"
                if not 0 <= length <= len(data) - at:
                    raise InputError(f"{where}: the value is longer than what was sent")
                column.append(decode(data[at : at + length], types.of_cql(dtype)[0], 1, where))
                at += length
    except struct.error:
        raise InputError(f"COPY {name}: the rows end in the middle of one") from None
    arrays = []
    for column, dtype, field in zip(columns, dtypes, schema, strict=True):
        assert dtype is not None
        try:
            arrays.append(_array(column, field.type))
        except (pa.ArrowInvalid, OverflowError) as error:
            raise InputError(f"COPY {name}, column `{field.name}`: {error}") from None
    return pa.Table.from_arrays(arrays, schema=schema)


# -- out -----------------------------------------------------------------------------------------------


def begin(schema: pa.Schema, options: CopyOptions) -> bytes:
    """What stands before the rows."""
    if options.format == "binary":
        return _SIGNATURE + struct.pack("!II", 0, 0)
    return _line([_cell(n, options) for n in schema.names], options) if options.header else b""


def end(options: CopyOptions) -> bytes:
    """What stands behind the rows."""
    return struct.pack("!h", -1) if options.format == "binary" else b""


def rows_out(table: pa.Table, options: CopyOptions) -> list[bytes]:
    """Each row as it goes out."""
    if options.format == "binary":
        head = struct.pack("!h", table.num_columns)
        cells = [
            [_NULL if v is None else struct.pack("!i", len(v)) + v for v in types.as_binary(c)] for c in table.columns
        ]
        return [head + b"".join(row) for row in zip(*cells, strict=True)]
    texts = [[_cell(v, options) for v in types.texts(c)] for c in table.columns]
    return [_line(row, options) for row in zip(*texts, strict=True)]


_NULL = struct.pack("!i", -1)


def _cell(value: str | None, options: CopyOptions) -> str:
    if value is None:
        return options.null
    if options.format == "text":
        found = value.translate(_ESCAPE)
        return found if options.delimiter == "\t" else found.replace(options.delimiter, "\\" + options.delimiter)
    plain = value != options.null and not any(c in (options.delimiter, options.quote, "\n", "\r") for c in value)
    if plain and value != "\\.":
        return value
    escaped = value.replace(options.escape, options.escape * 2) if options.escape != options.quote else value
    return options.quote + escaped.replace(options.quote, options.escape + options.quote) + options.quote


def _line(cells: Sequence[str], options: CopyOptions) -> bytes:
    return (options.delimiter.join(cells) + "\n").encode()
