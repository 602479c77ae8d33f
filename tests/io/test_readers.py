"""Files in: what is read, and what each kind of broken file is told."""

from __future__ import annotations

import gzip
import sys
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import pytest

from penstock.io.csv_input import _parsed
from penstock.io.readers import read_batches
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
    DataType,
    array,
    decimal,
)

KV = (Field("k", BIGINT), Field("v", DOUBLE))


def read(path: Path, schema: tuple[Field, ...] = KV, **options: Any) -> list[dict[str, Any]]:
    return [row for table in read_batches(path, schema, **options) for row in table.to_pylist()]


def put(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def error(path: Path, schema: tuple[Field, ...] = KV, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path, schema, **options)
    return str(caught.value)


# -- CSV ------------------------------------------------------------------------------------------------


def test_csv_has_been_read_when_arrow_has_let_go_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of Arrow that still holds it when the process ends aborts the process."""
    arrow, held = pa.csv.open_csv, []

    def slow(file: object, **options: Any) -> object:
        held.append(file)
        threading.Timer(0.2, held.clear).start()
        return arrow(file, **options)

    monkeypatch.setattr(pa.csv, "open_csv", slow)
    assert read(put(tmp_path / "s.csv", "k,v\n1,2\n")) == [{"k": 1, "v": 2.0}]
    assert not held
    assert "'x' is not a BIGINT" in error(put(tmp_path / "s.csv", "k,v\nx,2\n"))
    assert not held


def test_csv_columns_go_by_name_whatever_the_case_and_others_are_ignored(tmp_path: Path) -> None:
    path = put(tmp_path / "s.csv", "V,noise,K\n1.5,x,1\n,y,2\n")
    assert read(path) == [{"k": 1, "v": 1.5}, {"k": 2, "v": None}]


def test_names_that_differ_in_case_are_told_apart_if_all_are_declared(tmp_path: Path) -> None:
    path = put(tmp_path / "s.csv", "K,k,v\n1,2,3\n")
    assert read(path, (Field("k", BIGINT), Field("K", BIGINT))) == [{"k": 2, "K": 1}]
    assert error(path) == f"{path}: column `k` is there 2 times; case makes no difference in names"


def test_column_that_is_there_twice(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", "w,w\n1,2\n")
    assert error(path, (Field("W", BIGINT),)) == f"{path}: column `W` is there 2 times"


def test_missing_column_says_what_there_is_and_what_was_meant(tmp_path: Path) -> None:
    path = put(tmp_path / "s.csv", "k,temprature\n1,2\n")
    message = error(path, (Field("k", BIGINT), Field("temperature", DOUBLE)))
    assert message == (
        f"{path}: no column `temperature`; the file has `k`, `temprature`; did you mean `temprature`?"
    )


def test_bad_value_names_file_line_column_and_value(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i}.5\n" for i in range(15))
    path = put(tmp_path / "sensors.csv", f"k,v\n{rows}15,abc\n16,1\n")
    assert error(path) == f"{path}, line 17, column `v`: 'abc' is not a DOUBLE"


def test_line_numbers_count_lines_inside_quotes_and_blank_lines(tmp_path: Path) -> None:
    schema = (Field("note", STRING), Field("k", BIGINT))
    path = put(tmp_path / "s.csv", 'note,k\n"two\nlines",1\n\n"and\nthree\nmore",2\nx,oops\n')
    assert ", line 8, column `k`: 'oops' is not a BIGINT" in error(path, schema)


def test_line_number_far_into_a_file_of_many_blocks(tmp_path: Path) -> None:
    rows = 400_000
    body = "".join(f"{i},{i}.25\n" for i in range(rows))
    path = put(tmp_path / "big.csv", f"k,v\n{body}7,bad\n")
    assert f", line {rows + 2}, column `v`: 'bad'" in error(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k,v\n1,2\n3\n", "line 3: 1 field where the header has 2"),
        ("k,v\n1,2,3\n", "line 2: 3 fields where the header has 2"),
        ('k,v\n1,2\n3,"4\n5,6\n', "line 3: a quote is opened and never closed"),
        (b"k,v\n1,2\n3,\xff\n", "line 3: the text is not UTF-8"),
    ],
)
def test_broken_csv_says_the_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = put(tmp_path / "s.csv", text)
    assert error(path) == f"{path}, {said}"


def test_the_first_thing_wrong_is_reported(tmp_path: Path) -> None:
    assert "line 2, column `k`" in error(put(tmp_path / "s.csv", "k,v\nx,1\n3\n"))


def test_an_empty_csv_file_is_an_error_a_header_alone_is_not(tmp_path: Path) -> None:
    path = put(tmp_path / "s.csv", "")
    assert error(path) == f"{path} is empty: a CSV file needs a header line"
    for text in ("k,v\n", "k,v", "k,v\n\n\n", "\ufeffk,v\r\n"):
        assert read(put(tmp_path / "h.csv", text)) == []


def test_empty_field_is_null_and_quoted_empty_string_is_a_string(tmp_path: Path) -> None:
    schema = (Field("a", STRING), Field("b", BIGINT))
    path = put(tmp_path / "s.csv", 'a,b\n,""\n"",1\n')
    assert read(path, schema) == [{"a": None, "b": None}, {"a": "", "b": 1}]


def test_last_line_may_lack_its_end_and_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    assert read(put(tmp_path / "s.csv", "k,v\r\n1,2\r\n3,4")) == [{"k": 1, "v": 2.0}, {"k": 3, "v": 4.0}]


def test_tabs_and_compression_go_by_suffix(tmp_path: Path) -> None:
    assert read(put(tmp_path / "s.tsv", "k\tv\n1\t2\n")) == [{"k": 1, "v": 2.0}]
    path = put(tmp_path / "s.csv.gz", gzip.compress(b"k,v\n1,2\n3,x\n"))
    assert ", line 3, column `v`: 'x' is not a DOUBLE" in error(path)


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        (BOOLEAN, "TRUE", True),
        (BOOLEAN, "0", False),
        (INT, " 7 ", 7),
        (BIGINT, "+5", 5),
        (BIGINT, "-9223372036854775808", -(2**63)),
        (REAL, "0.5", 0.5),
        (DOUBLE, "1e3", 1000.0),
        (DOUBLE, "-inf", float("-inf")),
        (decimal(5, 2), "1.5", Decimal("1.50")),
        (decimal(5, 2), "12e1", Decimal("120.00")),
        (decimal(38, 0), "9" * 38, Decimal("9" * 38)),
        (STRING, " 7 ", " 7 "),
        (BINARY, "häh", "häh".encode()),
        (BINARY, "0xCAfe", b"\xca\xfe"),
        (DATE, "2024-02-29", date(2024, 2, 29)),
        (TIMESTAMP, "2024-01-01", datetime(2024, 1, 1)),
        (TIMESTAMP, "2024-01-01 10:30", datetime(2024, 1, 1, 10, 30)),
        (TIMESTAMP, "2024-01-01T10:00:00.123456789", datetime(2024, 1, 1, 10, 0, 0, 123456)),
        (TIMESTAMP, "2024-01-01T10:00:00+02:00", datetime(2024, 1, 1, 8)),
        (TIMESTAMP, "1969-12-31T23:59:59.5z", datetime(1969, 12, 31, 23, 59, 59, 500000)),
        (INTERVAL, "1 hour 30 minutes", timedelta(hours=1.5)),
        (INTERVAL, "00:10:00", timedelta(minutes=10)),
        (INTERVAL, "-2 days 01:00:00.25", -timedelta(days=2, hours=1, milliseconds=250)),
        (INTERVAL, "1500000", timedelta(seconds=1.5)),
        (array(BIGINT), "[1, null]", [1, None]),
    ],
)
def test_texts_that_are_values(tmp_path: Path, dtype: DataType, text: str, value: object) -> None:
    quoted = '"' + text.replace('"', '""') + '"' if "," in text else text
    path = put(tmp_path / "s.csv", f"x,pad\n{quoted},\n,\n")
    (table,) = read_batches(path, (Field("x", dtype),))
    assert table.schema.field("x").type == dtype.arrow
    assert table["x"].to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("dtype", "text", "said"),
    [
        (BOOLEAN, "yes", "'yes' is not a BOOLEAN; write true or false"),
        (INT, "2147483648", "'2147483648' is out of the range of INT"),
        (INT, "1.0", "'1.0' is not an INT"),
        (BIGINT, "0x1F", "'0x1F' is not a BIGINT"),
        (BIGINT, "1_000", "'1_000' is not a BIGINT"),
        (DOUBLE, "1_000", "'1_000' is not a DOUBLE"),
        (decimal(5, 2), "1.239", "'1.239' does not fit DECIMAL(5, 2)"),
        (decimal(5, 2), "1234", "'1234' does not fit DECIMAL(5, 2)"),
        (decimal(5, 2), "1e9999999", "'1e9999999' does not fit DECIMAL(5, 2)"),
        (decimal(5, 2), "NaN", "'NaN' is not a DECIMAL(5, 2)"),
        (BINARY, "0xabc", "'0xabc' is not a BINARY"),
        (DATE, "2023-02-29", "'2023-02-29' is not a DATE; write it as 2024-05-31"),
        (TIMESTAMP, "17:00", "'17:00' is not a TIMESTAMP; write ISO 8601, such as 2024-05-31T12:00:00Z"),
        (TIMESTAMP, "1700000000", "'1700000000' is not a TIMESTAMP"),
        (INTERVAL, "soon", "'soon' is not an INTERVAL"),
        (INTERVAL, "5 moons", "'5 moons' is not an INTERVAL"),
        (array(BIGINT), "[1", "'[1' is not an ARRAY<BIGINT>"),
    ],
)
def test_texts_that_are_no_values(tmp_path: Path, dtype: DataType, text: str, said: str) -> None:
    path = put(tmp_path / "s.csv", f"x,pad\n{text},\n")
    assert error(path, (Field("x", dtype),)).startswith(f"{path}, line 2, column `x`: {said}")


def test_zones_may_differ_from_row_to_row(tmp_path: Path) -> None:
    path = put(tmp_path / "s.csv", "x\n2024-01-01T10:00:00Z\n2024-01-01T10:00:00\n2024-01-01T10:00:00-0130\n")
    hours = [row["x"] for row in read(path, (Field("x", TIMESTAMP),))]
    assert hours == [datetime(2024, 1, 1, 10), datetime(2024, 1, 1, 10), datetime(2024, 1, 1, 11, 30)]


def test_null_in_the_ordering_column_says_the_line(tmp_path: Path) -> None:
    said = "line 3, column `k`: NULL may not stand in the column that orders the stream"
    path = put(tmp_path / "s.csv", "k,v\n1,1\n,2\n")
    assert error(path, not_null=frozenset({"k"})) == f"{path}, {said}"
    path = put(tmp_path / "s.jsonl", '{"k": 1, "v": 1}\n\n{"v": 2}\n')
    assert error(path, not_null=frozenset({"k"})) == f"{path}, {said}"


def test_batches_have_no_more_rows_than_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path / "s.csv", "k,v\n" + "1,1\n" * 10)
    assert [t.num_rows for t in read_batches(path, KV, batch_rows=4)] == [4, 4, 2]
    path = put(tmp_path / "s.jsonl", '{"k": 1, "v": 1}\n' * 10)
    assert [t.num_rows for t in read_batches(path, KV, batch_rows=4)] == [4, 4, 2]


# -- JSON lines -----------------------------------------------------------------------------------------


def test_json_lines(tmp_path: Path) -> None:
    path = put(tmp_path / "s.jsonl", '{"K": 1, "v": 2, "other": [{}]}\n\n{"v": "2.5", "k": null}\n{"k": 3}\n')
    assert read(path) == [{"k": 1, "v": 2.0}, {"k": None, "v": 2.5}, {"k": 3, "v": None}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"k": 1, "v"}', 'column 13: broken JSON: Expecting \':\' delimiter; a JSON lines file'),
        ("[1, 2]", ": an object is expected on each line, this is an array"),
        ("7", ": an object is expected on each line, this is a number"),
        ('{"k": true, "v": 1}', "column `k`: True is not a BIGINT"),
        ('{"k": 1.5, "v": 1}', "column `k`: 1.5 is not a BIGINT"),
        ('{"k": 9223372036854775808, "v": 1}', "`k`: 9223372036854775808 is out of the range of BIGINT"),
        ('{"k": 1, "v": {"w": 2}}', "column `v`: {'w': 2} is not a DOUBLE"),
        ('{"k": 1, "v": "warm"}', "column `v`: 'warm' is not a DOUBLE"),
    ],
)
def test_broken_json_says_the_line(tmp_path: Path, line: str, said: str) -> None:
    path = put(tmp_path / "s.jsonl", '{"k": 1, "v": 1.0}\n\n' + line + "\n")
    message = error(path)
    assert message.startswith(f"{path}, line 3")
    assert said in message


def test_json_column_that_no_object_has(tmp_path: Path) -> None:
    path = put(tmp_path / "s.json", '{"k": 1, "w": 1}\n')
    assert error(path) == f"{path}: no column `v`; the file has `k`, `w`"
    assert read(put(tmp_path / "empty.json", "")) == []


def test_json_values(tmp_path: Path) -> None:
    schema = (
        Field("b", BOOLEAN),
        Field("d", decimal(20, 2)),
        Field("t", TIMESTAMP),
        Field("i", INTERVAL),
        Field("s", STRING),
        Field("l", array(DOUBLE)),
    )
    path = put(
        tmp_path / "s.jsonl",
        '{"b": true, "d": 123456789012345678.91, "t": "2024-01-01T00:00Z", "i": "2 s", "s": "ü", "l": [1]}\n'
        '{"b": "false", "d": "1", "t": 1000000, "i": 5, "s": "", "l": null}\n',
    )
    assert [list(row.values()) for row in read(path, schema)] == [
        [True, Decimal("123456789012345678.91"), datetime(2024, 1, 1), timedelta(seconds=2), "ü", [1.0]],
        [False, Decimal("1.00"), datetime(1970, 1, 1, 0, 0, 1), timedelta(microseconds=5), "", None],
    ]


def test_json_string_that_is_no_unicode(tmp_path: Path) -> None:
    path = put(tmp_path / "s.jsonl", '{"s": "\\ud800"}\n')
    assert "line 1, column `s`" in error(path, (Field("s", STRING),))


# -- Parquet and Arrow ----------------------------------------------------------------------------------


def write_parquet(path: Path, table: pa.Table) -> Path:
    pa.parquet.write_table(table, path)
    return path


def write_ipc(path: Path, table: pa.Table, *, stream: bool = False) -> Path:
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def typed_files(folder: Path, table: pa.Table) -> list[Path]:
    return [
        write_parquet(folder / "s.parquet", table),
        write_ipc(folder / "s.arrow", table),
        write_ipc(folder / "t.arrow", table, stream=True),
    ]


def test_typed_files_are_brought_to_the_declared_types(tmp_path: Path) -> None:
    at = [datetime(2024, 1, 1, 12, tzinfo=UTC), None, datetime(2024, 1, 2, tzinfo=UTC)]
    table = pa.table(
        {
            "junk": [1, 2, 3],
            "AT": pa.array(at, pa.timestamp("ns", "Europe/Berlin")),
            "k": pa.array([1, 2, None], pa.int16()),
            "v": pa.array([1, 2, 3], pa.int64()),
            "s": pa.array(["x", "y", "x"]).dictionary_encode(),
            "d": pa.array([1, 2, 3], pa.int64()),
        }
    )
    schema = (
        Field("at", TIMESTAMP),
        Field("k", BIGINT),
        Field("v", DOUBLE),
        Field("s", STRING),
        Field("d", decimal(6, 2)),
    )
    for path in typed_files(tmp_path, table):
        assert [list(row.values()) for row in read(path, schema)] == [
            [datetime(2024, 1, 1, 12), 1, 1.0, "x", Decimal("1.00")],
            [None, 2, 2.0, "y", Decimal("2.00")],
            [datetime(2024, 1, 2), None, 3.0, "x", Decimal("3.00")],
        ]


def test_typed_files_say_the_row(tmp_path: Path) -> None:
    for path in typed_files(tmp_path, pa.table({"k": [1.0, 2.0, 2.0, 2.5]})):
        said = f"{path}, row 4, column `k`: 2.5 is not a BIGINT; round it first, or declare the column as DOUBLE"
        assert error(path, (Field("k", BIGINT),)) == said


def test_typed_files_of_another_type_altogether(tmp_path: Path) -> None:
    for path in typed_files(tmp_path, pa.table({"k": [True]})):
        assert error(path, (Field("k", BIGINT),)) == f"{path}: column `k` holds bool, which is not BIGINT"


def test_ticks_and_times(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([5], pa.int64()), "b": pa.array([7], pa.timestamp("us"))})
    path = write_parquet(tmp_path / "s.parquet", table)
    assert read(path, (Field("a", TIMESTAMP), Field("b", BIGINT))) == [
        {"a": datetime(1970, 1, 1, 0, 0, 0, 5), "b": 7}
    ]


@pytest.mark.parametrize("name", ["s.parquet", "s.arrow"])
def test_files_that_are_not_what_they_are_called(tmp_path: Path, name: str) -> None:
    assert "cannot be read as" in error(put(tmp_path / name, "k,v\n1,2\n"))
    assert "is empty" in error(put(tmp_path / name, ""))


# -- paths ----------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_order_of_names(tmp_path: Path) -> None:
    put(tmp_path / "b.csv", "k,v\n2,2\n")
    put(tmp_path / "a.csv", "v,k\n1,1\n")
    put(tmp_path / "_SUCCESS", "")
    put(tmp_path / ".hidden.csv", "x\n")
    assert [row["k"] for row in read(tmp_path)] == [1, 2]


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    assert "there is no file or folder" in error(tmp_path / "none.csv")
    assert "has no files in it" in error(tmp_path)
    put(tmp_path / "a.csv", "k,v\n")
    put(tmp_path / "b.jsonl", "")
    assert "mixes formats: a.csv and b.jsonl" in error(tmp_path)
    (tmp_path / "deeper").mkdir()
    assert "has a folder in it, deeper" in error(tmp_path)
    assert "is in no format that its name tells; names end in .csv" in error(put(tmp_path / "data.xls", "k"))
    assert "is in no format" in error(put(tmp_path / "s.parquet.gz", "k"))


def test_a_missing_path_is_found_before_reading(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_batches(tmp_path / "none.csv", KV)


# -- extra columns --------------------------------------------------------------------------------------

CHANGES = (Field("ts", BIGINT), Field("ts", TIMESTAMP), Field("op", STRING))


@pytest.mark.parametrize(
    ("text", "dtype"), [("5", pa.int64()), ("2024-01-01T00:00:00", pa.timestamp("us"))]
)
def test_extra_columns_come_along_when_they_are_there(tmp_path: Path, text: str, dtype: pa.DataType) -> None:
    path = put(tmp_path / "r.csv", f"ts,k,v,op\n{text},1,1,+\n")
    (table,) = read_batches(path, KV, extra=CHANGES)
    assert table.column_names == ["k", "v", "ts", "op"]
    assert table.schema.field("ts").type == dtype
    assert read(put(tmp_path / "s.csv", "k,v\n1,1\n"), extra=CHANGES) == [{"k": 1, "v": 1.0}]


def test_extra_column_that_fits_no_type(tmp_path: Path) -> None:
    path = put(tmp_path / "r.jsonl", '{"ts": "noon", "k": 1, "v": 1}\n')
    assert "line 1, column `ts`: 'noon' is not a TIMESTAMP" in error(path, extra=CHANGES)


def test_a_declared_column_is_not_an_extra_one(tmp_path: Path) -> None:
    path = put(tmp_path / "r.csv", "ts,op\nx,y\n")
    assert read(path, (Field("ts", STRING), Field("op", STRING)), extra=CHANGES) == [{"ts": "x", "op": "y"}]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
def test_columns_may_be_separated_by_other_characters(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f'"a, b"{delimiter}c\n"1{delimiter}2"{delimiter}3\n')
    (table,) = read_batches(path, (Field("a, b", STRING), Field("c", BIGINT)))
    assert table.to_pylist() == [{"a, b": f"1{delimiter}2", "c": 3}]


def test_a_comma_in_a_number_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a;b\n1;21,5\n")
    with pytest.raises(InputError, match=r"line 2, column `b`: '21,5' is not a DOUBLE; .*as a point: 21.5"):
        list(read_batches(path, (Field("a", BIGINT), Field("b", DOUBLE))))


def test_threads_of_arrow_hold_no_object_of_python_after_csv_was_read() -> None:
    """A thread that lets go of one while the interpreter ends aborts the process."""
    for _ in range(1_000):
        data = b"1,2\n" * 1_000
        before = sys.getrefcount(data)
        assert len(_parsed(data, 2, [0, 1], ",")) == 1_000
        assert sys.getrefcount(data) == before
