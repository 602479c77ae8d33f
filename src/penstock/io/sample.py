"""What columns data have, of what types: from the first rows of a file, or from a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.io.arrow_input import arrow_schema
from penstock.io.csv_input import csv_header
from penstock.io.files import Format, input_files, open_text
from penstock.io.json_input import LOOK_AHEAD, json_objects
from penstock.io.readers import read_batches
from penstock.io.values import BadValue, convert_json, convert_text
from penstock.plan.nodes import Field
from penstock.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    array,
    decimal,
    from_arrow,
)

ROWS = LOOK_AHEAD
"""So many rows of a file are looked at."""

_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_PADDED = r"^\s*[+-]?0\d"
"""Numbers with zeros in front, such as postal codes, are texts."""


class Sample:
    """The columns of some data that CQL has types for, their first rows, and what is left out and why."""

    def __init__(self, fields: Sequence[Field], rows: pa.Table, left_out: Sequence[str], whole: bool) -> None:
        self.fields = tuple(fields)
        self.rows = rows
        self.left_out = tuple(left_out)
        self.whole = whole
        """Whether these rows are all there are."""


def sample_file(path: Path) -> Sample:
    """The columns of a file, or of the files in a folder. Errors are ``InputError``."""
    format, files = input_files(path)
    if format is Format.CSV:
        return _of_texts(path, files)
    if format is Format.JSON:
        return _of_objects(files)
    schema = arrow_schema(files[0], format)
    fields, left_out = _typed(schema)
    rows = _first(path, fields)
    return Sample(fields, rows, left_out, rows.num_rows < ROWS)


def sample_table(table: pa.Table) -> Sample:
    """The columns of a table. Texts stay texts, whatever stands in them."""
    fields, left_out = _typed(table.schema)
    head = table.select([i for i, name in enumerate(table.column_names) if name in {f.name for f in fields}])
    return Sample(fields, head, left_out, True)


def _typed(schema: pa.Schema) -> tuple[list[Field], list[str]]:
    fields, left_out = [], []
    for column in schema:
        dtype = from_arrow(column.type)
        if dtype is None:
            left_out.append(f"column `{column.name}` holds {column.type}, for which there is no type")
        else:
            fields.append(Field(column.name, STRING if dtype.kind is Kind.NULL else dtype))
    return fields, left_out


def _first(path: Path, fields: Sequence[Field]) -> pa.Table:
    """The first rows of a file as these types."""
    found, missing = [], ROWS
    for batch in read_batches(path, tuple(fields), batch_rows=ROWS):
        found.append(batch.slice(0, missing))
        missing -= found[-1].num_rows
        if not missing:
            break
    if not found:
        return pa.schema([(f.name, f.type.arrow) for f in fields]).empty_table()
    return pa.concat_tables(found)


def _of_texts(path: Path, files: Sequence[Path]) -> Sample:
    names = csv_header(files[0])
    twice = {name for name in names if names.count(name) > 1}
    left_out = [f"column `{name}` is there {names.count(name)} times" for name in sorted(twice)]
    if "" in names:
        left_out.append("a column has no name in the header line")
    texts = _first(path, [Field(name, STRING) for name in names if name and name not in twice])
    fields = [Field(name, _of_text(texts[name])) for name in texts.column_names]
    rows = pa.table([convert_text(_whole(texts[f.name]), f.type) for f in fields], names=texts.column_names)
    return Sample(fields, rows, left_out, rows.num_rows < ROWS)


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


def _of_objects(files: Sequence[Path]) -> Sample:
    rows = list(islice(_objects(files), ROWS))
    names = list(dict.fromkeys(key for row in rows for key in row))
    if not rows:
        raise InputError(f"{files[0]} has no rows to tell columns from")
    fields, left_out, columns = [], [], []
    for name in names:
        values = [row.get(name) for row in rows]
        dtype = _of_json(values)
        if dtype is None:
            left_out.append(f"column `{name}` holds objects or values of several kinds, for which there is no type")
            continue
        fields.append(Field(name, dtype))
        columns.append(convert_json(values, dtype))
    return Sample(fields, pa.table(columns, names=[f.name for f in fields]), left_out, len(rows) < ROWS)


def _objects(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        with open_text(path) as source:
            for _, row in json_objects(source, path, exact=False):
                yield row


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
        found = _of_text(pa.chunked_array([pa.array(present, pa.string())]))
        return found if found.kind in (Kind.DATE, Kind.TIMESTAMP) else STRING
    if kinds == {list}:
        return _of_arrays(present)
    return None


def _of_arrays(arrays: Sequence[list[Any]]) -> DataType | None:
    element = _of_json([value for values in arrays for value in values])
    return None if element is None else array(element)

