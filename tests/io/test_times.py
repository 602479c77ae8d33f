"""Times that are not written as ISO 8601, from files and from rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from tests.spark.direct import directly

import penstock
from penstock.database.database import core_of
from penstock.database.play import play
from penstock.hosts.spark.job import Source
from penstock.hosts.spark.scatter import fitting, newest_of
from penstock.io.readers import read_batches
from penstock.model.schema import Field
from penstock.model.types import TIMESTAMP

NOON = datetime(2024, 5, 31, 12)
FORMS: list[tuple[str, Any]] = [
    ("seconds", 1717156800), ("milliseconds", 1717156800000), ("us", 1717156800000000),
    ("nanosecond", 1717156800000000999), ("%d.%m.%Y %H:%M", "31.05.2024 12:00"),
    ("%Y%m%d %H%M%S%z", "20240531 140000+0200"),
]  # fmt: skip


def database(form: str, more: str = "") -> penstock.Database:
    db = penstock.connect(engine="local")
    db.execute(f"CREATE STREAM s (at TIMESTAMP, n BIGINT{more}) TIMESTAMP BY at WITH (time = '{form}')")
    return db


def pushed(form: str, *values: Any) -> list[Any]:
    with database(form) as db:
        query = db.query("SELECT at FROM s")
        db.push("s", [(value, 0) for value in values])
        return list(query.fetch()["at"].to_pylist())


def played(form: str, path: Path) -> list[Any]:
    with database(form) as db:
        query = db.query("SELECT at FROM s")
        play(core_of(db), {"s": path})
        assert not db.stream("s").late
        return list(query.fetch()["at"].to_pylist())


@pytest.mark.parametrize(("form", "value"), FORMS)
def test_rows_and_tables(form: str, value: Any) -> None:
    assert pushed(form, value, value) == [NOON] * 2
    with database(form) as db:
        query = db.query("SELECT at FROM s")
        db.push("s", pd.DataFrame({"at": [value], "n": [0]}))
        db.push("s", pa.table({"at": pa.array([value, value]).dictionary_encode(), "n": [0, 0]}))
        db.push("s", pa.table({"at": pa.chunked_array([pa.array([value])]), "n": [0]}))
        assert query.fetch()["at"].to_pylist() == [NOON] * 4


@pytest.mark.parametrize(("form", "value"), FORMS)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files(form: str, value: Any, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"s.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(pa.table({"at": [value], "n": [0]}), path)
    elif kind == "csv":
        path.write_text(f"at,n\n{value},0\n{value},\n")
    else:
        path.write_text(pa.table({"at": [value], "n": [0]}).to_pandas().to_json(orient="records", lines=True))
    assert set(played(form, path)) == {NOON}


def test_times_that_are_times_stay_what_they_are() -> None:
    zoned = NOON.replace(tzinfo=UTC)
    assert pushed("seconds", NOON, zoned, date(2024, 6, 1)) == [NOON, NOON, datetime(2024, 6, 1)]
    with database("seconds") as db:
        query = db.query("SELECT at FROM s")
        db.execute("INSERT INTO s VALUES ('2024-05-31 12:00:00', 1)")
        db.push("s", pa.table({"at": pa.array([NOON], pa.timestamp("ms", "Europe/Oslo")), "n": [0]}))
        assert query.fetch()["at"].to_pylist() == [NOON, NOON]


def test_fractions_and_times_before_1970() -> None:
    half = NOON.replace(microsecond=500_000)
    assert pushed("seconds", 1717156800.5, "1717156800.5") == [half, half]
    assert pushed("nanoseconds", -1, 1) == [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1)]
    assert pushed("nanoseconds", "-1", 1.0)[0] == datetime(1969, 12, 31, 23, 59, 59, 999999)


def test_values_of_numpy() -> None:
    half = NOON.replace(microsecond=500_000)
    assert pushed("seconds", np.int64(1717156800), np.float64(1717156800.5)) == [NOON, half]
    assert pushed("seconds", np.datetime64(NOON, "ns"), np.datetime64("2024-06-01")) == [NOON, datetime(2024, 6, 1)]


def test_null_is_null(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("at,n,seen\n1717156800,0,\n1717156801,0,1717156800\n")
    with database("seconds", ", seen TIMESTAMP") as db:
        query = db.query("SELECT seen FROM s")
        play(core_of(db), {"s": path})
        assert query.fetch()["seen"].to_pylist() == [None, NOON]
    with database("seconds") as db, pytest.raises(penstock.InputError, match="NULL"):
        db.push("s", [(None, 1)])


@pytest.mark.parametrize(("form", "value", "message"), [
    ("seconds", "noon", "row 2, column `at`: 'noon' is not a number of seconds, as WITH (time = 'seconds') says"),
    ("seconds", True, "True is not a number of seconds"),
    ("seconds", 10**17, "is out of the range of TIMESTAMP"),
    ("seconds", 2**70, "is out of the range of TIMESTAMP"),
    ("seconds", 10**12, "looks like milliseconds since 1970, but WITH (time = 'seconds') was said in CREATE STREAM"),
    ("seconds", "1717156800000.5", "'1717156800000.5' looks like milliseconds since 1970, but"),
    ("milliseconds", 1717156800000000, "looks like microseconds since 1970, but"),
    ("microseconds", 1717156800000000000, "looks like nanoseconds since 1970, but"),
    ("seconds", 10**15, "looks like microseconds since 1970"),
    ("seconds", -(10**14), "is out of the range of TIMESTAMP, the years 1 to 9999"),
    ("seconds", "1_700_000_000", "'1_700_000_000' is not a number of seconds"),
    ("seconds", [0, [1], 0], "is not a number of seconds"),
    ("seconds", np.bool_(True), "is not a number of seconds"),
    ("seconds", np.datetime64(10**15, "s"), "is not a number of seconds"),
    ("seconds", float("nan"), "nan is not a number of seconds"),
    ("%d.%m.%Y", "2024-05-31", "'2024-05-31' is not written as WITH (time = '%d.%m.%Y') says"),
    ("%d.%m.%Y", 5, "5 is not written as WITH (time = '%d.%m.%Y') says"),
])  # fmt: skip
def test_values_of_another_form_are_refused(form: str, value: Any, message: str) -> None:
    with pytest.raises(penstock.InputError) as caught:
        pushed(form, "31.05.2024" if "%" in form else 1717156800, value)
    assert message in str(caught.value)


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("at,n\n31.05.2024 12:00,1\n31.05.2024 12:00,1\n31/05/2024,1\n")
    with pytest.raises(penstock.InputError, match=r"line 4, column `at`: '31/05/2024' is not written as"):
        played("%d.%m.%Y %H:%M", path)


@pytest.mark.parametrize(("form", "message"), [
    ("'fortnights'", "`time` is 'fortnights', which names no day of a year; it is seconds, milliseconds"),
    ("'%H:%M'", "which names no day of a year"),
    ("'%d.%m.'", "which names no day of a year"),
    ("'%Q'", "`time` is"),
    ("'%Y-%M-%d'", "which names no day of a year (%M are minutes, %m is the month)"),
    ("'%Y %d'", "which names no day of a year"),
    ("'%Y-%%d'", "which names no day of a year"),
    ("'%y %j%%'", None),
    ("'%d.%m.%Y %d'", "`time` is '%d.%m.%Y %d'; it is seconds"),
    ("5", "`time` is 5; write for example time = 'milliseconds'"),
])  # fmt: skip
def test_forms_that_are_none(form: str, message: str | None) -> None:
    if message is None:
        with database(form.strip("'")):
            return
    with penstock.connect(engine="local") as db, pytest.raises(penstock.BindError) as caught:
        db.execute(f"CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at WITH (time = {form})")
    assert message in str(caught.value)


def test_a_stream_that_has_no_time_to_read() -> None:
    with penstock.connect(engine="local") as db, pytest.raises(penstock.BindError, match="declare the column"):
        db.execute("CREATE STREAM s (at BIGINT) TIMESTAMP BY at WITH (time = 'seconds')")


@pytest.mark.parametrize(("number", "unit"), [
    (1717156800, "seconds"), (1717156800000, "milliseconds"), (1717156800000000000, "nanoseconds"),
])  # fmt: skip
def test_numbers_in_files_are_not_taken_for_microseconds_if_they_look_otherwise(
    number: int, unit: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(f'{{"at": {number}}}\n')
    pa.parquet.write_table(pa.table({"at": [number]}), tmp_path / "s.parquet")
    (tmp_path / "s.csv").write_text(f"at\n{number}\n")
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at")
        for kind in ("jsonl", "parquet", "csv"):
            with pytest.raises(penstock.InputError, match=rf"WITH \(time = '{unit}'\)"):
                play(core_of(db), {"s": path.with_suffix(f".{kind}")})
    path.write_text('{"at": 1717156800000000, "n": 1}\n')
    assert played("microseconds", path) == [NOON]


def test_only_the_first_number_of_a_file_is_looked_at(tmp_path: Path) -> None:
    """Microseconds from a beginning of their own come through where seconds since 1970 lie; batches do not matter."""
    lines = "".join(f'{{"at": {i * 10**6}}}\n' for i in range(1_003))
    (tmp_path / "s.jsonl").write_text('{"at": null}\n' + lines)
    schema = (Field("at", TIMESTAMP),)
    assert sum(t.num_rows for t in read_batches(tmp_path / "s.jsonl", schema, batch_rows=1_001)) == 1_004
    (tmp_path / "s.jsonl").write_text('{"at": null}\n{"at": 1717156800}\n')
    with pytest.raises(penstock.InputError, match=r"line 2, column `at`: 1717156800 looks like seconds"):
        list(read_batches(tmp_path / "s.jsonl", schema))


@pytest.mark.parametrize("rows", [
    [(1717156800, 0)], [{"at": 1717156800, "n": 0}], {"at": 1717156800, "n": 0},
    pd.DataFrame({"at": [1717156800], "n": [0]}), pa.table({"at": [1717156800], "n": [0]}),
])  # fmt: skip
def test_the_first_number_that_is_pushed_must_look_like_microseconds(rows: Any) -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP, n BIGINT) TIMESTAMP BY at")
        with pytest.raises(penstock.InputError, match="stream `s`, row 1, column `at`: 1717156800 looks like seconds"):
            db.push("s", rows)
        with pytest.raises(penstock.InputError, match="1 value for 2 columns"):
            db.push("s", [(0,)])
        query = db.query("SELECT at FROM s")
        db.push("s", [(0, 0)])
        db.push("s", rows)
        assert query.fetch()["at"].to_pylist() == [datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 28, 37, 156800)]


def test_a_decimal_comma_that_is_pushed() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (v DOUBLE)")
        with pytest.raises(penstock.InputError, match="'1,5' is not a DOUBLE; write the decimal point as a point"):
            db.push("s", [("1,5",)])


def test_numbers_of_another_unit_than_the_declared_one(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("at,n\n1717156800,0\n1717156800000,0\n")
    with pytest.raises(penstock.InputError, match=r"line 3, column `at`: '1717156800000' looks like milliseconds"):
        played("seconds", path)


def test_times_that_order_are_in_the_years_1_to_9999() -> None:
    far = pa.array([0, 1717156800000000000]).cast(pa.timestamp("us"))
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at")
        coarse = pa.array([1717156800000000], pa.timestamp("ms"))
        tables = [pa.table({"at": column}) for column in (far, far[::-1], coarse)]
        for rows in (*tables, [(0,), (1717156800000000000,)]):
            with pytest.raises(penstock.InputError, match="timestamp 1717156800000000000 is out of the range") as no:
                db.push("s", rows)
            assert "if it counts nanoseconds since 1970" in str(no.value)
        query = db.query("SELECT at FROM s")
        db.push("s", [(datetime.min,), (datetime.max,)])
        assert query.fetch()["at"].to_pylist() == [datetime.min, datetime.max]


def test_times_of_data_frames_are_in_the_years_1_to_9999() -> None:
    source = Source("s", (Field("at", TIMESTAMP),), timestamp=0)
    at = pa.array([0, 10**18]).cast(pa.timestamp("us"))
    assert newest_of(pa.table({"at": at[:1]}), source) == 0
    with pytest.raises(penstock.InputError, match="stream `s`: a timestamp in `at` is out of the range of TIMESTAMP"):
        fitting(pa.table({"at": at}), source)


def test_an_empty_record_batch(tmp_path: Path) -> None:
    rows = pa.record_batch({"at": pa.array([0, 1])})
    with pa.ipc.new_file(tmp_path / "s.arrow", rows.schema) as file:
        for batch in (rows.slice(0, 0), rows, rows.slice(0, 0)):
            file.write(batch)
    assert sum(t.num_rows for t in read_batches(tmp_path / "s.arrow", (Field("at", TIMESTAMP),))) == 2


def test_a_stream_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with directly():
        with penstock.connect(tmp_path / "db", engine="spark") as db:
            db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at WITH (time = 'seconds')")
            db.query("SELECT at FROM s", name="q")
        with penstock.connect(tmp_path / "db", engine="spark") as db:
            db.push("s", [(1717156800,)])
            assert db.queries["q"].fetch()["at"].to_pylist() == [NOON]
