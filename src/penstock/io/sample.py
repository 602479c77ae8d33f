"""What columns data have, of what types: from the first rows of a file, or from a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql.names import written_names
from penstock.io.arrow_input import arrow_schema
from penstock.io.csv_input import csv_header, csv_line
from penstock.io.files import Format, Piece, Source, input_files, on_disk, open_text
from penstock.io.json_input import LOOK_AHEAD, json_objects
from penstock.io.odd_texts import decimal_commas, odd_text
from penstock.io.readers import read_batches
from penstock.io.time_forms import could_be_time
from penstock.model.errors import InputError
from penstock.model.schema import Field
from penstock.model.types import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, DataType, Kind, decimal, from_arrow
from penstock.rows.apart import OnError
from penstock.rows.columns import bad_value
from penstock.rows.values import BadValue, convert_json, convert_text, is_value

ROWS = LOOK_AHEAD
"""So many rows of a file are looked at."""

_NO_TYPE = "for which CREATE has no type"
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_PADDED = r"^\s*[+-]?0\d"
"""Numbers with zeros in front, such as postal codes, are texts."""


class Sample:
    """The columns of some data that CQL has types for, their first rows, and what is left out and why."""

    def __init__(
        self,
        fields: Sequence[Field],
        rows: pa.Table,
        left_out: Sequence[str],
        whole: bool,
        *,
        typed: bool = False,
        remarks: Sequence[str] = (),
    ) -> None:
        self.fields = tuple(fields)
        self.rows = rows
        self.left_out = tuple(left_out)
        self.whole = whole
        """Whether these rows are all there are."""
        self.typed = typed
        """Whether the data know types themselves: their times are times, and no texts."""
        self.remarks = tuple(remarks)
        """Why columns are texts that could be thought to be more."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [f.name for f in self.fields]


def sample_file(path: Source, on_error: OnError = "refuse") -> Sample:
    """The columns of a file, or of the files in a folder. Errors are ``InputError``.

    ``on_error``: records that cannot be read are refused, or the others are looked at.
    """
    format, files = input_files(path)
    if format is Format.CSV:
        return _of_texts(path, files, on_error)
    if format is Format.JSON:
        return _of_objects(files, on_error)
    schema = arrow_schema(on_disk(files[0]), format)
    fields, left_out = _typed(schema)
    rows = _first(path, fields, on_error)
    return Sample(fields, rows, left_out, rows.num_rows < ROWS, typed=True)


def sample_table(table: pa.Table, left_out_before: Sequence[str] = ()) -> Sample:
    """The columns of a table. Texts stay texts, whatever stands in them."""
    fields, left_out = _typed(table.schema)
    left_out = [*left_out_before, *left_out]
    head = table.select([i for i, name in enumerate(table.column_names) if name in {f.name for f in fields}])
    return Sample(fields, head, left_out, True, typed=True)


def _typed(schema: pa.Schema) -> tuple[list[Field], list[str]]:
    fields = []
    left_out = _twice(schema.names)
    times = Counter(schema.names)
    for column in schema:
        dtype = from_arrow(column.type)
        if times[column.name] > 1:
            continue
        if dtype is None or dtype.kind is Kind.ARRAY:
            left_out.append(f"column `{column.name}` holds {column.type if dtype is None else dtype}, {_NO_TYPE}")
        else:
            fields.append(Field(column.name, STRING if dtype.kind is Kind.NULL else dtype))
    return fields, left_out


def _twice(names: Sequence[str]) -> list[str]:
    twice = sorted((name, count) for name, count in Counter(names).items() if count > 1)
    return [f"column `{name}` is there {count} times" for name, count in twice]


def _first(path: Source, fields: Sequence[Field], on_error: OnError) -> pa.Table:
    """The first rows of a file as these types."""
    found, missing = [], ROWS
    with closing(read_batches(path, tuple(fields), batch_rows=ROWS, on_error=on_error)) as batches:
        for batch in batches:
            found.append(batch.slice(0, missing))
            missing -= found[-1].num_rows
            if not missing:
                break
    if not found:
        return pa.schema([(f.name, f.type.arrow) for f in fields]).empty_table()
    return pa.concat_tables(found)


def _of_texts(path: Source, files: Sequence[Source], on_error: OnError) -> Sample:
    names = csv_header(files[0])
    if any(names) and all(not name or is_value(name, DOUBLE) or could_be_time(name) for name in names):
        raise InputError(
            f"the first line of {files[0]} looks like data; a header line with the names of the columns is needed"
        )
    left_out = _twice(names)
    if "" in names:
        left_out.append("a column has no name in the header line")
    once = [name for name, count in Counter(names).items() if name and count == 1]
    texts = _first(path, [Field(name, STRING) for name in once], on_error)
    fields = [Field(name, _of_text(texts[name])) for name in texts.column_names]
    rows = pa.table([convert_text(_whole(texts[f.name]), f.type) for f in fields], names=texts.column_names)
    return Sample(fields, rows, left_out, _is_all(path, len(rows)), remarks=_why_texts(texts, fields, files))


def _why_texts(texts: pa.Table, fields: Sequence[Field], files: Sequence[Source]) -> list[str]:
    """Remarks on columns of texts that nearly are numbers or times."""
    remarks = []
    strings = [field for field in fields if field.type == STRING]
    written = dict(zip(texts.column_names, written_names(texts.column_names), strict=True)) if strings else {}
    for field in strings:
        column, name = _whole(texts[field.name]), written[field.name]
        if (digits := decimal_commas(column)) is not None:
            recipe = f"CAST(replace(replace({name}, '.', ''), ',', '.') AS DECIMAL(12, {digits}))"
            remarks.append(f"`{field.name}` has decimal commas: {recipe} makes numbers of them")
        elif (odd := odd_text(column)) is not None:
            place = f"row {odd.row + 1}"
            if found := csv_line(files, odd.row):
                place = f"line {found[1]}" if len(files) == 1 else f"{on_disk(found[0]).name}, line {found[1]},"
            remark = f"`{field.name}` is STRING because {place} has {_short(odd.text)}, which is no {odd.among}"
            if odd.among == "number" and odd.text.isprintable() and len(odd.text) <= 40:
                quoted = odd.text.replace("'", "''")
                remark += f"; CAST(nullif({name}, '{quoted}') AS DOUBLE) makes numbers of the others"
            remarks.append(remark)
    return remarks


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:40])[:-1] + "…'"


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _of_text(column: pa.ChunkedArray) -> DataType:
    """The narrowest type that all texts of a column are values of."""
    texts = _whole(column)
    texts = texts.filter(pc.not_equal(texts, "")).drop_null()
    if not len(texts):
        return STRING
    words = pc.unique(pc.utf8_lower(pc.utf8_trim_whitespace(texts)))
    if len(words) <= 2 and set(words.to_pylist()) <= {"true", "false"}:
        return BOOLEAN
    padded = pc.any(pc.match_substring_regex(texts, _PADDED)).as_py()
    for dtype in (DATE, TIMESTAMP) if padded else (BIGINT, DOUBLE, DATE, TIMESTAMP):
        if dtype == DOUBLE and all(_INTEGER.fullmatch(text) for text in texts.to_pylist()):
            digits = pc.max(pc.utf8_length(texts)).as_py()
            return decimal(38, 0) if digits <= 38 else STRING
        try:
            convert_text(texts, dtype)
        except BadValue:
            continue
        return dtype
    return STRING


def _of_objects(files: Sequence[Source], on_error: OnError) -> Sample:
    found = list(islice(_objects(files, on_error), ROWS))
    if not found:
        raise InputError(f"{files[0]} has no rows to tell columns from")
    fields, left_out, columns = [], [], []
    for name in dict.fromkeys(key for _, _, row in found for key in row):
        values = [row.get(name) for _, _, row in found]
        if not _is_text(name):
            left_out.append(f"the name {name!a} of a column is no text")
            continue
        dtype = _of_json(values)
        if dtype is None:
            left_out.append(f"column `{name}` holds arrays, objects or values of several kinds, {_NO_TYPE}")
            continue
        fields.append(Field(name, dtype))
        try:
            columns.append(convert_json(values, dtype))
        except BadValue as bad:
            path, line, _ = found[bad.index]
            raise bad_value(path, bad.index, name, bad, f"line {line}") from None
    return Sample(fields, pa.table(columns, names=[f.name for f in fields]), left_out, _is_all(files[0], len(found)))


def _is_all(path: Source, rows: int) -> bool:
    """Whether so many first rows are all there are."""
    return rows < ROWS and not (isinstance(path, Piece) and not path.whole)


def _is_text(text: str) -> bool:
    """Whether UTF-8 has it: JSON can spell half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _objects(files: Sequence[Source], on_error: OnError) -> Iterator[tuple[Source, int, dict[str, Any]]]:
    for path in files:
        with open_text(path) as source:
            for line, row in json_objects(source, path, exact=False, on_error=on_error):
                yield path, line, row


def _of_json(values: Sequence[Any]) -> DataType | None:
    """The type of what JSON has for a column; None where there is none that fits all."""
    present = [value for value in values if value is not None]
    kinds = set(map(type, present))
    if not kinds:
        return STRING
    if kinds == {bool}:
        return BOOLEAN
    if kinds == {int}:
        low, high = min(present), max(present)
        fits = low >= -(2**63) and high < 2**63
        return BIGINT if fits else decimal(38, 0) if max(-low, high) < 10**38 else None
    if kinds <= {int, float}:
        return DOUBLE
    if kinds == {str}:
        if not all(map(_is_text, present)):
            return STRING
        found = _of_text(pa.chunked_array([pa.array(present, pa.string())]))
        return found if found.kind in (Kind.DATE, Kind.TIMESTAMP) else STRING
    return None
