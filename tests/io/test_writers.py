"""Files out: every format reads back as it was, and failure leaves nothing behind."""

from __future__ import annotations

import io
import json
import tempfile
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.io.readers import read_batches
from penstock.io.writers import OutputFormat, format_for, open_writer
from penstock.model.errors import InputError
from penstock.model.schema import Field
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    REAL,
    STRING,
    TIMESTAMP,
    array,
    decimal,
)
from penstock.rows.text import plain

SCHEMA = (
    Field("flag", BOOLEAN),
    Field("i", INT),
    Field("n", BIGINT),
    Field("r", REAL),
    Field("x", DOUBLE),
    Field("d", decimal(10, 3)),
    Field("s", STRING),
    Field("raw", BINARY),
    Field("day", DATE),
    Field("at", TIMESTAMP),
    Field("gap", INTERVAL),
    Field("many", array(DOUBLE)),
)
ROWS: list[tuple[object, ...]] = [
    (
        True, 1, 2**62, 0.1, 0.1, Decimal("1.500"), 'a "b", c\n', b"\x00\xff", date(2024, 1, 1),
        datetime(2024, 1, 1, 12, 0, 0, 5), timedelta(hours=30, microseconds=7), [1.5, None],
    ),
    (
        False, -1, 0, float("inf"), 1e300, Decimal("-0.001"), "", b"", date(1969, 1, 1),
        datetime(1969, 1, 1), -timedelta(seconds=1), [],
    ),
    (None,) * 12,
]  # fmt: skip


def sample() -> pa.Table:
    columns = zip(zip(*ROWS, strict=True), SCHEMA, strict=True)
    return pa.table({field.name: pa.array(values, field.type.arrow) for values, field in columns})


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.arrow", "t.arrows"])
def test_what_is_written_reads_back_equal(tmp_path: Path, name: str) -> None:
    path, table = tmp_path / "new" / name, sample()
    format = format_for(path)
    assert format is not None
    with open_writer(path, format, table.schema) as writer:
        writer.write(table.slice(0, 1))
        writer.write(table.slice(1))
    assert pa.concat_tables(read_batches(path, SCHEMA)).combine_chunks().equals(table.combine_chunks())
    assert [p.name for p in path.parent.iterdir()] == [name]


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.floats(allow_nan=False)), min_size=1))
def test_csv_and_json_text_read_back_equal(rows: list[tuple[str | None, float | None]]) -> None:
    schema = (Field("s", STRING), Field("x", DOUBLE))
    strings, numbers = zip(*rows, strict=True)
    table = pa.table({"s": pa.array(strings, pa.string()), "x": pa.array(numbers, pa.float64())})
    with tempfile.TemporaryDirectory() as folder:
        for name in ("t.csv", "t.jsonl"):
            path = Path(folder) / name
            with open_writer(path, "csv" if name == "t.csv" else "json", table.schema) as writer:
                writer.write(table)
            assert [r for t in read_batches(path, schema) for r in t.to_pylist()] == table.to_pylist()


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "arrow", "table"])
def test_a_failed_run_leaves_no_file(tmp_path: Path, format: OutputFormat) -> None:
    old = tmp_path / "t.out"
    old.write_text("old")
    writer = open_writer(old, format, sample().schema)
    writer.write(sample())
    writer.abort()
    assert [p.name for p in tmp_path.iterdir()] == ["t.out"]
    assert old.read_text() == "old"


def test_without_rows_there_is_a_header_still(tmp_path: Path) -> None:
    for name in ("t.csv", "t.jsonl", "t.parquet", "t.arrow"):
        format = format_for(tmp_path / name)
        assert format is not None
        with open_writer(tmp_path / name, format, sample().schema):
            pass
        assert list(read_batches(tmp_path / name, SCHEMA)) == []
    assert (tmp_path / "t.csv").read_text() == "flag,i,n,r,x,d,s,raw,day,at,gap,many\n"


def test_csv_header_once_and_streamed() -> None:
    out = io.StringIO()
    table = pa.table({"ts": [1], "op": ["+"], "v": [2.0]})
    writer = open_writer(out, "csv", table.schema)
    writer.write(table)
    assert out.getvalue() == "ts,op,v\n1,+,2.0\n"
    writer.write(table)
    writer.close()
    assert out.getvalue() == "ts,op,v\n1,+,2.0\n1,+,2.0\n"


def test_json_lines_are_json() -> None:
    out = io.StringIO()
    at = pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))
    table = pa.table({"at": at, "x": [float("nan")], "é": ["ü"]})
    with open_writer(out, "json", table.schema) as writer:
        writer.write(table)
    assert json.loads(out.getvalue()) == {"at": "2024-01-01T00:00:00", "x": "NaN", "é": "ü"}


def test_table_is_aligned_and_escapes_what_would_break_it() -> None:
    out = io.StringIO()
    table = pa.table({"ts": [1, 22222], "op": ["+", "-"], "s": ["a\nb", None]})
    with open_writer(out, "table", table.schema) as writer:
        writer.write(table)
    assert out.getvalue().splitlines() == [
        "   ts  op  s",
        "-----  --  ----",
        "    1  +   a\\nb",
        "22222  -   NULL",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_binary_formats_are_not_for_terminals_and_tables_have_colour_there() -> None:
    schema = pa.schema([("op", pa.string())])
    with pytest.raises(InputError, match="a terminal cannot show this format; give --output a file"):
        open_writer(Terminal(), "parquet", schema)
    out = Terminal()
    with open_writer(out, "table", schema) as writer:
        writer.write(pa.table({"op": ["-"]}))
    assert "\x1b[31m-" in out.getvalue()


def test_arrow_in_a_pipe_is_the_stream_format() -> None:
    binary = io.BytesIO()
    out = io.TextIOWrapper(binary)
    table = pa.table({"a": [1, 2]})
    with open_writer(out, "arrow", table.schema) as writer:
        writer.write(table)
    assert pa.ipc.open_stream(binary.getvalue()).read_all().equals(table)


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        open_writer(tmp_path / "file" / "t.csv", "csv", sample().schema)


def test_times_far_away_are_written_as_times() -> None:
    column = pa.chunked_array([pa.array([0, None, 1717156800000000000, -(2**62)]).cast(pa.timestamp("us"))])
    assert plain(column) == ["1970-01-01T00:00:00", None, "56384-07-14T00:00:00", "-144169-06-28T09:59:32.612096"]
