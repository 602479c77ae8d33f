"""Declarations for data that are not simple: what is guessed, what is left out, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pytest

import penstock
from penstock.database.database import core_of
from penstock.database.declare import declaration
from penstock.database.play import play


def declared(tmp_path: Path, text: str, name: str = "s.csv", **options: Any) -> str:
    (tmp_path / name).write_text(text)
    return str(declaration("s", tmp_path / name, **options))


def answered(tmp_path: Path, text: str, name: str = "s.csv", **options: Any) -> list[tuple[Any, ...]]:
    """What SELECT * gives over a file that has been declared by itself."""
    script = declared(tmp_path, text, name, **options)
    with penstock.connect(engine="local") as db:
        db.execute(script)
        query = db.query("SELECT * FROM s")
        play(core_of(db), {"s": tmp_path / name})
        return [tuple(row.values())[2:] for row in query.fetch().to_pylist()]


def test_arrays_are_left_out(tmp_path: Path) -> None:
    assert answered(tmp_path, '{"t": 1, "a": [1, 2]}\n{"t": 2, "a": []}\n', "s.jsonl") == [(1,), (2,)]
    assert "-- left out: column `a` holds arrays, objects" in declared(tmp_path, '{"t": 1, "a": [1]}\n', "s.jsonl")
    found = str(declaration("s", pa.table({"t": [1], "a": [[1, 2]]})))
    assert found.splitlines()[0] == "-- left out: column `a` holds ARRAY<BIGINT>, for which CREATE has no type"
    with penstock.connect(engine="local") as db:
        db.execute(found)


def test_times_finer_than_a_microsecond() -> None:
    times = pa.array([1717156800_000_000_999, 1717156799_000_000_001], pa.timestamp("ns"))
    assert "TIMESTAMP BY at SLACK 1 SECOND" in str(declaration("s", pa.table({"at": times})))
    assert "TIMESTAMP BY at" in str(declaration("s", pd.DataFrame({"at": pd.to_datetime([1], unit="ns")})))


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_times_out_of_range(unit: str, tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array([None, 0, 2**62], pa.timestamp(unit))})
    with pytest.raises(penstock.InputError, match=f"row 3, column `at`: {2**62} {unit} since 1970 is out"):
        declaration("s", rows)
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP)")
        with pytest.raises(penstock.InputError, match=rf"row 3, column `at`: '{2**62} {unit} since 1970' is not"):
            db.push("s", rows)
    with pa.ipc.new_file(tmp_path / "s.arrow", rows.schema) as file:
        file.write(rows)
    with pytest.raises(penstock.InputError, match=r"s.arrow, row 3, column `at`: .* is out of the range"):
        declaration("s", tmp_path / "s.arrow")


@pytest.mark.parametrize("data", [
    lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]),
    lambda: pd.DataFrame({"a": [1, "x", None]}),
])  # fmt: skip
def test_frames_that_are_no_tables(data: Callable[[], pd.DataFrame]) -> None:
    with pytest.raises(penstock.InputError, match="the DataFrame cannot be read as a table: "):
        declaration("s", data())
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (a BIGINT)")
        with pytest.raises(penstock.InputError, match="the DataFrame cannot be read as a table: "):
            db.push("s", data())


def test_columns_that_are_there_twice() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["t", "a", "a"])
    assert str(declaration("s", rows)) == (
        "-- left out: column `a` is there 2 times\nCREATE STREAM s (t BIGINT) TIMESTAMP BY t;\n"
    )


def test_numbers_and_names_that_json_can_write(tmp_path: Path) -> None:
    with pytest.raises(penstock.InputError, match=r"s.jsonl, line 2, column `a`: 1000.* is not a DOUBLE"):
        declared(tmp_path, '{"a": 1.5}\n{"a": 1' + "0" * 400 + "}\n", "s.jsonl")
    found = declared(tmp_path, '{"a": 1, "\\ud800": 2}\n', "s.jsonl")
    assert "-- left out: the name '\\ud800' of a column is no text\n" in found


def test_a_long_number_is_no_time(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(f"at\n{'9' * 5_000}\n")
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at")
        with pytest.raises(penstock.InputError, match="line 2, column `at`"):
            play(core_of(db), {"s": tmp_path / "s.csv"})


def test_remarks_stay_comments() -> None:
    bad = "x\nDROP STREAM s;\r\u2028"
    rows = pa.table({"t": pa.array([1]), bad: pa.array([{"a": 1}])})
    lines = str(declaration("s", rows)).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("-- left out: column `x DROP STREAM s;")
    rows = pa.table({bad + " time": pa.array([2_000_000_000, None, 1_000_000_000])})
    found = declaration("s", rows)
    remarks = found.warnings + found.remarks
    assert len(remarks) == 3
    assert all(remark.isprintable() for remark in remarks)


def test_seconds_with_a_fraction(tmp_path: Path) -> None:
    text = "ts,n\n1700000000.5,1\n1700000001,2\n"
    assert "WITH (time = 'seconds')" in declared(tmp_path, text)
    assert [str(at) for at, _ in answered(tmp_path, text)] == ["2023-11-14 22:13:20.500000", "2023-11-14 22:13:21"]
    rows = pa.table({"ts": [1700000000.5, float("nan")]})
    assert "no column tells the time" in str(declaration("s", rows))
    assert "WITH (time = 'seconds')" in str(declaration("s", rows.slice(0, 1), timestamp="ts"))


@pytest.mark.parametrize(("name", "text"), [
    ("s.csv", "date,n\n20240131,1\n20240201,2\n"),
    ("s.jsonl", '{"date": 20240131, "n": 1}\n{"date": 20240201, "n": 2}\n'),
])  # fmt: skip
def test_days_that_are_numbers(tmp_path: Path, name: str, text: str) -> None:
    assert [str(at) for at, _ in answered(tmp_path, text, name)] == ["2024-01-31 00:00:00", "2024-02-01 00:00:00"]
    assert "-- `date` is read as '%Y%m%d'\n" in declared(tmp_path, text, name)
    assert "time =" not in declared(tmp_path, text.replace("20240131", "20240199"), name)
    assert "'%Y%m%d%H%M%S'" in str(declaration("s", pa.table({"t": [20240131235959]})))


def test_a_column_of_texts_orders_although_there_are_times(tmp_path: Path) -> None:
    text = "seen,at\n2024-03-31 10:00,31.03.2024 11:00\n2024-03-31 09:00,31.03.2024 12:00\n"
    assert [(seen, at.hour) for seen, at in answered(tmp_path, text, timestamp="at")] == [
        ("2024-03-31 10:00", 11), ("2024-03-31 09:00", 12),
    ]  # fmt: skip
    rows = pd.DataFrame({"seen": pd.to_datetime(["2024-03-31"]), "at": ["31.03.2024 11:00"]})
    found = str(declaration("s", rows, timestamp="at"))
    assert "(seen TIMESTAMP, at TIMESTAMP) TIMESTAMP BY at WITH (time = '%d.%m.%Y %H:%M')" in found
    with penstock.connect(engine="local") as db:
        db.execute(found)
        query = db.query("SELECT seen FROM s")
        db.push("s", rows)
        assert str(query.fetch()["seen"][0]) == "2024-03-31 00:00:00"


@pytest.mark.parametrize(("options", "message"), [
    ({"slack": "5 seconds"}, "no column that tells the time, so there is no order for slack; name a column"),
    ({"key": ["n"], "slack": "5 seconds"}, "a relation, which takes no timestamp, slack or on_error"),
    ({"key": ["n"], "timestamp": "n"}, "`s` has a key, so it is a relation"),
])  # fmt: skip
def test_options_without_effect_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(penstock.InputError) as caught:
        declared(tmp_path, "n\n1\n", **options)
    assert message in str(caught.value)


def test_progress_far_away_is_shown() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at")
        for instant, shown in [(0, "1970-01-01 00:00:00"), (2**60, f"{2**60} microseconds since 1970")]:
            db.heartbeat("s", instant)
            found = db.execute("SHOW STREAMS").table
            assert found is not None
            assert found["progress"].to_pylist() == [shown]
