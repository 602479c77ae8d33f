"""Which columns and types files have, and the statements that declare them."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.database.database import core_of
from penstock.database.declare import declaration
from penstock.database.play import play
from penstock.io.sample import sample_file


def columns(path: Path) -> dict[str, str]:
    return {f.name: str(f.type) for f in sample_file(path).fields}


@pytest.mark.parametrize(("values", "wanted"), [
    (["1", "-2", "", " 3 "], "BIGINT"),
    (["1", "2.5", "1e3"], "DOUBLE"),
    (["true", "False", ""], "BOOLEAN"),
    (["0", "1"], "BIGINT"),
    (["2024-05-01", "2024-05-02"], "DATE"),
    (["2024-05-01", "2024-05-02T10:00"], "TIMESTAMP"),
    (["2024-05-01 10:00:00", "2024-05-01T10:00:00.5Z"], "TIMESTAMP"),
    (["01234", "56789"], "STRING"),
    (["+49", "0049"], "STRING"),
    (["0.5", "0"], "DOUBLE"),
    (["00:30", "01:00"], "STRING"),
    (["05/01/2024"], "STRING"),
    (["", ""], "STRING"),
    (["9223372036854775808", "1"], "DECIMAL(38, 0)"),
    (["1" * 39], "STRING"),
    (["0x1F"], "STRING"),
    (["a", "1"], "STRING"),
])  # fmt: skip
def test_types_of_texts(tmp_path: Path, values: list[str], wanted: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text("c,d\n" + "".join(f"{value},x\n" for value in values))
    assert columns(path) == {"c": wanted, "d": "STRING"}


@pytest.mark.parametrize(("values", "wanted"), [
    ([1, None, 2], "BIGINT"),
    ([1, 2.5], "DOUBLE"),
    ([True, False], "BOOLEAN"),
    (["2024-05-01T10:00:00Z"], "TIMESTAMP"),
    (["12", "13"], "STRING"),
    ([2**64], "DECIMAL(38, 0)"),
    ([None], "STRING"),
])  # fmt: skip
def test_types_of_json(tmp_path: Path, values: list[object], wanted: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"c": value}) + "\n" for value in values))
    assert columns(path) == {"c": wanted}


def test_what_has_no_type_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"t": 1, "o": {"a": 1}}\n{"t": 2, "m": 1, "n": 3}\n{"m": "x"}\n')
    found = declaration("x", path)
    assert found.statement == "CREATE STREAM x (t BIGINT, n BIGINT) TIMESTAMP BY t"
    assert [warning.split(" ")[3] for warning in found.warnings[:2]] == ["`o`", "`m`"]
    assert "NULLs" in found.warnings[2]


def test_columns_that_cannot_be_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,,a,from,Größe,two words,t\n1,2,3,4,5,6,7\n")
    found = declaration("select", path)
    assert found.statement == (
        'CREATE STREAM "select" ("from" BIGINT, Größe BIGINT, "two words" BIGINT, t BIGINT) TIMESTAMP BY t'
    )
    with penstock.connect(engine="local") as db:
        db.execute(found.statement)
        query = db.query('SELECT größe, "from" FROM "select"')
        play(core_of(db), {"select": path})
        assert query.fetch()["Größe"].to_pylist() == [5]


def test_names_that_differ_in_case_only() -> None:
    table = pa.table({"t": [1, 2], "T": [3, 4], "v": [5, 6]})
    with penstock.connect(engine="local") as db:
        remark, statement = db.declare("s", table).splitlines()
        assert remark == "-- `t` is taken for the time of a row; it could be `T` too"
        assert statement == 'CREATE STREAM s ("t" BIGINT, "T" BIGINT, v BIGINT) TIMESTAMP BY "t";'
        query = db.query('SELECT "T" FROM s')
        db.push("s", table)
        assert query.fetch()["T"].to_pylist() == [3, 4]


def test_parquet_arrow_and_folders(tmp_path: Path) -> None:
    table = pa.table({
        "at": pa.array([1, 2], pa.timestamp("ms", "Europe/Berlin")), "n": pa.array([1, 2], pa.int16()),
        "s": pa.array(["a", "b"]).dictionary_encode(), "m": pa.array([{"x": 1}, None]),
    })  # fmt: skip
    (tmp_path / "parts").mkdir()
    pa.parquet.write_table(table, tmp_path / "parts" / "1.parquet")
    pa.parquet.write_table(table, tmp_path / "parts" / "2.parquet")
    with pa.ipc.new_stream(tmp_path / "x.arrow", table.schema) as stream:
        stream.write(table)
    with pa.ipc.new_file(tmp_path / "y.arrow", table.schema) as file:
        file.write(table)
    for name in ("parts", "x.arrow", "y.arrow"):
        assert columns(tmp_path / name) == {"at": "TIMESTAMP", "n": "INT", "s": "STRING"}
        assert sample_file(tmp_path / name).left_out[0].startswith("column `m` holds struct")
    (tmp_path / "z.parquet").write_bytes(b"")
    with pytest.raises(penstock.InputError, match="is empty: Parquet"):
        sample_file(tmp_path / "z.parquet")


@pytest.mark.parametrize(("header", "wanted"), [
    ("id,at", "at"), ("at,ts", "ts"), ("created_at,id", "created_at"), ("id,noted", "noted"),
])  # fmt: skip
def test_the_column_that_orders_is_guessed(tmp_path: Path, header: str, wanted: str) -> None:
    path = tmp_path / "x.csv"
    first, second = ("2024-05-01 10:00:00" if name not in ("id",) else "7" for name in header.split(","))
    path.write_text(f"{header}\n{first},{second}\n")
    assert declaration("x", path).statement.endswith(f"TIMESTAMP BY {wanted}")


def test_data_without_time(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    assert declaration("x", path) == declaration("x", pd.DataFrame({"a": [1], "b": [2]}))
    assert str(declaration("x", path)) == (
        "-- no column tells the time, so rows are stamped when they arrive\nCREATE STREAM x (a BIGINT, b BIGINT);\n"
    )
    assert declaration("x", path, timestamp="A").statement.endswith("TIMESTAMP BY a")


def test_slack_is_as_far_as_rows_are_out_of_order(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("at,v\n2024-05-01 10:00:10,1\n2024-05-01 10:00:08.3,2\n2024-05-01 10:00:12,3\n")
    assert declaration("x", path).statement.endswith("TIMESTAMP BY at SLACK 2 SECONDS")
    assert declaration("x", path, slack="1 minute").statement.endswith("TIMESTAMP BY at SLACK 1 minute")
    path.write_text("t,v\n10,1\n7,2\n")
    assert declaration("x", path).statement.endswith("TIMESTAMP BY t SLACK 3")


@pytest.mark.parametrize(("second", "unit"), [
    (1_714_557_600, "seconds"), (1_714_557_600_000, "milliseconds"), (1_714_557_600_000_000_000, "nanoseconds"),
])  # fmt: skip
def test_numbers_that_look_like_other_units(tmp_path: Path, second: int, unit: str) -> None:
    table = pa.table({"ts": [second], "v": [1]})
    found = declaration("x", table)
    assert found.remarks == (f"`ts` is taken for {unit} since 1970",)
    assert found.statement.endswith(f"TIMESTAMP BY ts WITH (time = '{unit}')")
    with penstock.connect(engine="local") as db:
        db.declare("x", table)
        times = db.query("SELECT ts FROM x")
        db.push("x", table)
        assert times.fetch()["ts"].to_pylist() == [datetime(2024, 5, 1, 10)]
    assert not declaration("x", pa.table({"ts": [1_714_557_600_000_000]})).remarks


@pytest.mark.parametrize(("texts", "pattern"), [
    (["01.05.2024 10:00", "01.05.2024 10:05"], "%d.%m.%Y %H:%M"),
    (["05/31/2024"], "%m/%d/%Y"),
    (["31.05.24"], "%d.%m.%y"),
    (["2024/05/01 10:00:00"], "%Y/%m/%d %H:%M:%S"),
    (["31.05.2024 10:00:00.250"], "%d.%m.%Y %H:%M:%S.%f"),
    (["5/31/2024 1:05:00 PM"], "%m/%d/%Y %I:%M:%S %p"),
    (["20240501T100000", "20240501T100001"], "%Y%m%dT%H%M%S"),
    (["01/May/2024:10:00:00 +0200"], "%d/%b/%Y:%H:%M:%S %z"),
])  # fmt: skip
def test_texts_that_are_times(texts: list[str], pattern: str) -> None:
    found = declaration("x", pa.table({"v": ["a"] * len(texts), "seen": texts}))
    assert found.remarks == (f"`seen` is read as '{pattern}'",)
    assert not found.warnings
    fields = "(v STRING, seen TIMESTAMP)"
    assert found.statement == f"CREATE STREAM x {fields} TIMESTAMP BY seen WITH (time = '{pattern}')"


def test_days_and_months_that_could_change_places() -> None:
    found = declaration("x", pa.table({"at": ["01/02/2024"]}))
    assert found.warnings == ("`at` is read as '%d/%m/%Y'; it could be '%m/%d/%Y' too",)


def test_texts_that_are_no_times() -> None:
    found = declaration("x", pa.table({"at": ["home", None], "when": pa.nulls(2, pa.string())}))
    assert found.stamped
    assert "stamped" in found.warnings[0]
    assert declaration("x", pa.table({"at": ["", ""], "v": ["", "2024-05-01"]})).stamped
    assert declaration("x", pa.table({"at": ["2024-05-01", "home"]})).stamped


@pytest.mark.parametrize(("rows", "clause"), [
    ("Datum;Wert\n01.05.2024 10:00;1\n", "TIMESTAMP BY Datum WITH (time = '%d.%m.%Y %H:%M')"),
    ("Betrag;Buchungstag\n7;02.05.2024\n", "TIMESTAMP BY Buchungstag WITH (time = '%d.%m.%Y')"),
    ("zeit,v\n1714557600000,1\n", "TIMESTAMP BY zeit WITH (time = 'milliseconds')"),
    ("day,v\n2024-05-01,1\n", "TIMESTAMP BY day"),
    ("v,tag\n1,2024-05-01\n", "TIMESTAMP BY tag"),
    ("Zeit;T\n2024/05/01 10:00;21\n2024/05/01 10:01;20\n", "TIMESTAMP BY Zeit WITH (time = '%Y/%m/%d %H:%M')"),
    ("T;tag\n21;2024-05-01\n20;2024-05-02\n", "TIMESTAMP BY tag"),
    ("t;born\n1;1984-05-01\n2;1970-05-02\n", "TIMESTAMP BY t"),
    ("deleted_at,made\n,2024-05-01 10:00\n2024-05-01 10:00,2024-05-01 10:00\n", "TIMESTAMP BY made"),
    ("customer_id,v\n1714557600,1\n", ")"),
    ("points,v\n1714557600,1\n9714557600,1\n", ")"),
    ("seen,v\n1714557600,1\n,1\n", ")"),
    ("born,v\n,1\n2024-05-01,1\n", ")"),
])  # fmt: skip
def test_times_are_found_whatever_they_are_called(tmp_path: Path, rows: str, clause: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(rows)
    found = declaration("x", path)
    assert found.statement.endswith(clause)
    assert found.stamped == (clause == ")")
    if not found.stamped:
        with penstock.connect(engine="reference") as db:
            db.execute(found.statement)
            query = db.query("SELECT * FROM x")
            play(core_of(db), {"x": path})
            assert query.fetch().num_rows == rows.count("\n") - 1


def test_of_several_times_the_first(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("Anfang,Ende\n01.05.2024,02.05.2024\n")
    found = declaration("x", path)
    assert found.remarks[0] == "`Anfang` is taken for the time of a row; it could be `Ende` too"
    assert found.statement.endswith("(Anfang TIMESTAMP, Ende STRING) TIMESTAMP BY Anfang WITH (time = '%d.%m.%Y')")


def test_texts_of_tables_that_are_times(tmp_path: Path) -> None:
    table = pa.table({"zeit": ["2024-05-01 10:00", "2024-05-01T10:05:00Z"], "v": ["a", "b"]})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    wanted = "CREATE STREAM x (zeit TIMESTAMP, v STRING) TIMESTAMP BY zeit;\n"
    for data in (table, table.to_pandas(), pl.from_arrow(table), tmp_path / "x.parquet"):
        for timestamp in (None, "zeit"):
            assert str(declaration("x", data, timestamp=timestamp)) == wanted
    with penstock.connect(engine="local") as db:
        db.declare("x", table.to_pandas(), timestamp="zeit")
        query = db.query("SELECT v FROM x")
        db.push("x", table.to_pandas())
        assert query.fetch()["ts"].to_pylist() == [datetime(2024, 5, 1, 10), datetime(2024, 5, 1, 10, 5)]


@pytest.mark.parametrize(("rows", "remarks"), [
    ("hum\n\n1\n2.5\nNA\n-3\n", (
        "`hum` is STRING because line 5 has 'NA', which is no number; "
        "CAST(nullif(hum, 'NA') AS DOUBLE) makes numbers of the others",
    )),
    ('"two\nwords",v\n"",1\n"a\nb",2\n"c",it\'s\n', (
        "`v` is STRING because line 6 has \"it's\", which is no number; "
        "CAST(nullif(v, 'it''s') AS DOUBLE) makes numbers of the others",
    )),
    ("seen\n2024-05-01\n2024-05-01 10:00\n?\n", ("`seen` is STRING because line 4 has '?', which is no time",)),
    ("v\n1\na\n2\nb\n", ()),
    ("zip\n01234\n01235\nNA\n", ()),
    ("Betrag;v\n1.234,56;1\n-7,5;1\n10;1\n", (
        "`Betrag` has decimal commas: CAST(replace(replace(Betrag, '.', ''), ',', '.') AS DECIMAL(12, 2)) "
        "makes numbers of them",
    )),
])  # fmt: skip
def test_why_columns_are_texts(tmp_path: Path, rows: str, remarks: tuple[str, ...]) -> None:
    path = tmp_path / "x.csv"
    path.write_text(rows)
    assert declaration("x", path).remarks == remarks


def test_why_columns_are_texts_in_folders(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", "none"), ("c", 2)):
        (tmp_path / f"{name}.csv").write_text(f"v\n{value}\n")
    assert "because b.csv, line 2, has 'none'" in declaration("x", tmp_path).remarks[0]


def test_a_field_that_is_longer_than_python_likes(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"a,v\n{'b' * 200_000},1\nb,2\nb,NA\n")
    assert "`v` is STRING because line 4 has 'NA'" in declaration("x", tmp_path / "x.csv").remarks[0]


@pytest.mark.parametrize("line", ["1,2.5,", "2024-05-01 10:00,3", "01.05.2024;7"])
def test_a_header_that_looks_like_data(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{line}\n{line}\n")
    with pytest.raises(penstock.InputError, match=r"the first line of .*x\.csv looks like data; a header line with"):
        declaration("x", path)


def test_a_form_is_that_of_all_times_of_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("sent,seen\n2024-05-01 10:00,02.05.2024\n")
    found = declaration("x", path, timestamp="seen")
    assert found.remarks[1] == "`sent` stays STRING: WITH (time = …) is for all times of a stream"
    with penstock.connect(engine="reference") as db:
        db.execute(found.statement)
        query = db.query("SELECT sent FROM x")
        play(core_of(db), {"x": path})
        assert query.fetch()["sent"].to_pylist() == ["2024-05-01 10:00"]


def test_dates_order_streams_as_times() -> None:
    table = pa.table({"day": pa.array([19_000, 19_001], pa.date32())})
    assert declaration("x", table, timestamp="day").statement == "CREATE STREAM x (day TIMESTAMP) TIMESTAMP BY day"


def test_many_columns_have_a_line_each() -> None:
    table = pa.table({f"a_long_name_{i}": [Decimal("1.5")] for i in range(9)})
    statement = declaration("x", table).statement
    assert len(statement.splitlines()) == 11
    with penstock.connect(engine="reference") as db:
        db.execute(statement)


def test_declaring_in_a_database() -> None:
    moments = pd.to_datetime(["2024-05-01 10:00:00", "2024-05-01 10:00:05"])
    frame = pd.DataFrame({"at": moments, "room": ["a", "b"], "v": [1.0, 2.0]})
    with penstock.connect(engine="local") as db:
        assert db.declare("r", frame) == "CREATE STREAM r (at TIMESTAMP, room STRING, v DOUBLE) TIMESTAMP BY at;\n"
        db.declare("rooms", pl.DataFrame({"room": ["a"], "floor": [1]}), key="room")
        assert db.catalog.relations["rooms"].key == (0,)
        query = db.query("SELECT ISTREAM r.room, floor FROM r [NOW], rooms WHERE r.room = rooms.room")
        db.push("rooms", pl.DataFrame({"room": ["a"], "floor": [1]}))
        db.push("r", frame)
        assert [tuple(row.values())[2:] for row in query.fetch().to_pylist()] == [("a", 1)]


@pytest.mark.parametrize(("data", "options", "message"), [
    (7, {}, "`x` cannot be declared from the int; give the path of a file, or a table"),
    (pa.table({"m": pa.array([{"x": 1}])}), {}, "has no columns that could be declared"),
    (pa.table({"a": ["x"]}), {"timestamp": "b"}, "the Table has no column `b`; there is `a`"),
    (pa.table({"a": ["x"]}), {"timestamp": "a"}, "column `a` of the Table holds STRING, which is no time"),
    (pa.table({"a": ["x"]}), {"key": ["k"]}, "the Table has no column `k`"),
    ("nowhere.csv", {}, "there is no file or folder nowhere.csv"),
])  # fmt: skip
def test_what_cannot_be_declared(data: object, options: dict[str, Any], message: str) -> None:
    with penstock.connect(engine="reference") as db:
        with pytest.raises(penstock.InputError) as caught:
            db.declare("x", data, **options)
        assert message in str(caught.value)
        assert not db.catalog.streams


def test_an_empty_file_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n")
    with pytest.raises(penstock.InputError, match="has no rows to tell columns from"):
        sample_file(path)


@pytest.mark.parametrize("text", ['[{"t": 1}, {"t": 2}]', '\ufeff [\n  {"t": 1}\n]\n'])
def test_an_array_of_objects(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(penstock.InputError, match="this is a JSON array, one object on each line is needed; jq"):
        sample_file(path)


def test_a_header_alone_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    assert columns(path) == {"a": "STRING", "b": "STRING"}


def test_only_the_first_rows_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("t\n" + "\n".join(map(str, range(100_001))) + "\nx\n")
    assert "first 100,000 rows" in declaration("x", path).remarks[0]


@given(st.lists(st.tuples(
    st.one_of(st.none(), st.integers(-(2**70), 2**70)), st.one_of(st.none(), st.floats(allow_nan=False)),
    st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"))), st.booleans(),
), max_size=8))  # fmt: skip
def test_what_was_declared_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, ...]]
) -> None:
    path = tmp_path_factory.mktemp("sample") / "x.csv"
    pd.DataFrame(rows, columns=list("abcd"), dtype=object).assign(t=np.arange(len(rows))).to_csv(path, index=False)
    with penstock.connect(engine="reference") as db:
        db.declare("x", path)
        query = db.query("SELECT * FROM x")
        play(core_of(db), {"x": path})
        assert query.fetch().num_rows == len(rows)


@given(st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=6), st.integers(0, 20))
def test_with_so_much_more_slack_no_row_is_late(pushes: list[list[int]], slack: int) -> None:
    def late(slack: int) -> tuple[int, int]:
        with penstock.connect(engine="reference") as db:
            db.execute(f"CREATE STREAM s (t BIGINT) TIMESTAMP BY t SLACK {slack}")
            for rows in pushes:
                db.push("s", [(t,) for t in rows])
            return db.stream("s").late, db.stream("s").lateness

    count, behind = late(slack)
    assert (count == 0) == (behind == 0)
    assert late(slack + behind) == (0, 0)
    assert not count or late(slack + behind - 1)[0] > 0
