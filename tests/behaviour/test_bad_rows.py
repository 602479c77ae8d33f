"""Rows of any shape and size: what is refused is refused with an error of ours, and then nothing has happened."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import Database
from penstock.database.database import core_of
from penstock.database.play import play
from tests.behaviour.test_bad_input import state

DECLARED = """
CREATE STREAM s (t BIGINT, i INT, n DOUBLE, d DECIMAL(5, 2), b BOOLEAN, g STRING, day DATE, at TIMESTAMP, gap INTERVAL,
  y BINARY) TIMESTAMP BY t;
CREATE STREAM tt (at TIMESTAMP, g STRING) TIMESTAMP BY at;
CREATE RELATION r (k BIGINT, g STRING) KEY (k);
CREATE QUERY qs AS SELECT * FROM s;
CREATE QUERY qt AS SELECT * FROM tt;
CREATE QUERY qr AS SELECT * FROM r;
"""
GOOD = (5, 1, 1.5, Decimal("1.50"), True, "x", date(2024, 1, 1), datetime(2024, 1, 1), timedelta(hours=1), b"y")
NAMES = ("t", "i", "n", "d", "b", "g", "day", "at", "gap", "y")


class Spoiled(Exception):
    """What the objects of these tests raise."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


def _raise(*_: object) -> Any:
    raise Spoiled


def _object(*methods: str) -> object:
    """An object whose methods raise, and which has no representation."""
    return type("Odd", (), {"__repr__": _raise, "__str__": _raise} | dict.fromkeys(methods, _raise))()


class OddZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        raise Spoiled

    dst = tzname = _raise


class OddMapping(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        raise Spoiled

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


class OddSequence(Sequence[Any]):
    def __getitem__(self, at: Any) -> Any:
        raise Spoiled

    def __len__(self) -> int:
        return len(NAMES)


ODD: list[Any] = [
    _object(), _object("__index__", "__float__", "__int__"), _object("__eq__", "__hash__", "__bool__"),
    _object("__len__", "__iter__"), _object("__array__"), _object("__arrow_array__"), _object("isoformat"),
    datetime.min, datetime.max, datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))), datetime(2024, 1, 1, tzinfo=OddZone()),
    datetime(2024, 1, 1, tzinfo=UTC), date.min, date.max, timedelta.min, timedelta.max, timedelta(days=10**8),
    np.datetime64("NaT"), np.datetime64(2**62, "s"), np.timedelta64(2**62, "s"), np.float32(1.5), np.int8(3),
    np.bool_(True), np.str_("x"), np.array([1, 2]), np.array(5), np.void(b"x"), pd.NaT, pd.NA, pd.Timestamp.max,
    pd.Timestamp("2024-01-01", tz="Europe/Oslo"), pd.Timedelta.max, pd.Interval(0, 1), 2**31, -(2**63), 2**63, 2**64,
    10**5000, 1e400, -0.0, math.nan, 1.5, 5.0, Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"),
    Decimal("1e999999"), Decimal("-0.001"), Decimal(3), True, None, "", "x", "\ud800", "x" * 100_000, "2024-01-01",
    "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "1 hour", "99999999999 days", "1e5", "NaN", b"", b"\xff",
    bytearray(b"x"), memoryview(b"x"), [], (), {}, [1], {"a": 1}, [[]], set(), frozenset(), range(3), object, len,
    Ellipsis, NotImplemented, 1j, pa.scalar(1), pa.array([1]), pl.Series([1]), pl.Series([{"t": 1}]), pd.Series([1]),
    pl.DataFrame({"a": [1]}), pl.LazyFrame({"a": [1]}), Spoiled(), iter([]),
]  # fmt: skip


class Dice(random.Random):
    """What comes of a seed: Hypothesis itself would show the values, which some of them do not bear."""

    def value(self) -> Any:
        made = (
            lambda: self.choice(ODD), lambda: self.randrange(-(2**65), 2**65), lambda: self.choice([1, -1, 7]),
            lambda: self.uniform(-1e9, 1e9), lambda: datetime.min + self.random() * (datetime.max - datetime.min),
        )  # fmt: skip
        return self.choice([lambda: self.choice(ODD), self.choice(made)])()

    def row(self, number: int) -> Any:
        """A good row, or one in which something is not."""
        row: Any = [5 + number, *GOOD[1:]]
        for _ in range(self.choice([0, 1, 1, 2])):
            row[self.randrange(len(row))] = self.value()
        shape = self.randrange(12)
        if shape == 0:
            return self.value()
        if shape == 1:
            return [*row[: self.randrange(len(row) + 1)], self.value()]
        if shape == 2:
            return self.choice([OddMapping(), OddSequence()])
        if shape < 6:
            found: dict[Any, Any] = {self.choice([name, name.upper()]): v for name, v in zip(NAMES, row, strict=True)}
            if not self.randrange(3):
                found[self.choice([*NAMES, "x", 5, None, _object()])] = self.value()
            if not self.randrange(3):
                found.pop(self.choice(NAMES), None)
            return found
        return tuple(row) if shape < 9 else row

    def rows(self) -> list[Any]:
        return [self.row(number) for number in range(self.randrange(1, 5))]

    def table(self) -> object:
        """A table of Arrow or others, in which columns may be anything."""
        good = [[5, 6], *([value, value] for value in GOOD[1:])]
        columns = [pa.array(v, t) for v, t in zip(good, TYPES, strict=True)]
        for _ in range(self.choice([0, 1, 1, 2])):
            columns[self.randrange(len(columns))] = self.choice(COLUMNS)
        names = list(NAMES)
        if not self.randrange(4):
            names[self.randrange(len(names))] = self.choice([*NAMES, "T", "x", ""])
        found = pa.table(columns, names=names)
        try:
            match self.randrange(9):
                case 0:
                    return found.to_pandas()
                case 1:
                    return pl.from_arrow(found)
                case 2:
                    return found.to_batches()[0]
        except Exception:  # the others cannot hold it
            pass
        return found

    def csv(self) -> bytes:
        """CSV, more or less."""
        lines = [",".join(self.choices(FIELDS, k=self.choice([3, 4, 4, 4, 5]))) for _ in range(self.randrange(7))]
        text = "t,v,g,at\n" + self.choice(["\n", "\r\n", "\n\n"]).join(lines) + self.choice(["", "\n"])
        return text.encode(self.choice(["latin-1", "utf-8"]), "replace")


dice = st.integers(0, 2**64).map(Dice)


def _raising(found: list[Any]) -> Iterator[Any]:
    yield from found
    raise Spoiled


def _invalid_text() -> pa.Array:
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])


COLUMNS = [
    pa.array([5, 6]), pa.array([5, None]), pa.array([2**62, 2**63 - 1]), pa.array([1, 2], pa.uint64()),
    pa.array([2**63, 2**64 - 1], pa.uint64()), pa.array([1.0, 2.5]), pa.array([1.0, math.nan]), pa.array([True, False]),
    pa.array(["a", "b"]), pa.array(["2024-01-01", "soon"]), pa.array(["a", "b"]).dictionary_encode(), _invalid_text(),
    _invalid_text().cast(pa.binary()), _invalid_text().cast(pa.large_binary()).view(pa.large_string()),
    pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32()), pa.array([0, 1], pa.int32()).view(pa.date32()),
    pa.array([-(2**62), 2**62]).view(pa.date64()), pa.array([-(2**63), 2**63 - 1]).view(pa.timestamp("us")),
    pa.array([-(2**63), 2**63 - 1]).view(pa.timestamp("s")), pa.array([0, 2**63 - 1]).view(pa.timestamp("ns", "UTC")),
    pa.array([0, 2**63 - 1]).view(pa.duration("s")), pa.array([0, 5]).view(pa.duration("us")),
    pa.array([0, 5]).view(pa.time64("us")), pa.array([0, 5], pa.int32()).view(pa.time32("s")), pa.nulls(2),
    pa.array([Decimal("1.5"), Decimal("123456.5")]), pa.array([[1], [2]]), pa.array([{"a": 1}, None]),
    pa.array([b"a", b"bc"], pa.large_binary()), pa.array(["a", "b"], pa.string_view()),
    pa.array(np.array([1.5, 2], np.float16)),
    pa.array([(1, 2, 3), (1, 2, 3)], pa.month_day_nano_interval()),
]  # fmt: skip


TYPES = [
    pa.int64(), pa.int32(), pa.float64(), pa.decimal128(5, 2), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"),
    pa.duration("us"), pa.binary(),
]  # fmt: skip
FIELDS = ["1", "2", "3", "", "x", "1.5", '"', '""', '"a"', '"a\nb"', "2024-01-01", "\xff", "9" * 30, 'a"b', "é", '"a']


def answers(db: Database) -> dict[str, list[Any]]:
    """What all queries say, in Python's values."""
    return {name: query.fetch().to_pylist() for name, query in db.queries.items()}


def check(engine: str, push: Callable[[Database], object]) -> None:
    """A push is taken, or refused with an error of ours; then the database goes on as one without it."""
    with penstock.connect(engine=engine) as db, penstock.connect(engine=engine) as other:
        for each in (db, other):
            each.execute(DECLARED)
            answers(each)
        before = state(db)
        try:
            push(db)
        except penstock.PenstockError as error:
            str(error)
            assert state(db)[-2:] == before[-2:]  # type: ignore[index]
            for each in (db, other):
                each.push("s", [GOOD])
                each.push("tt", [(datetime(2024, 1, 1), "x")])
                each.push("r", [(1, "x")])
            assert answers(db) == answers(other)
        else:
            answers(db)


ENGINES = pytest.mark.parametrize("engine", ["reference", "local"])


@ENGINES
@given(dice=dice)
def test_rows_of_anything(engine: str, dice: Dice) -> None:
    found = dice.rows()
    check(engine, lambda db: db.push("s", dice.choice([found, found, iter(found), _raising(found)])))


@ENGINES
@given(dice=dice)
def test_tables_of_anything(engine: str, dice: Dice) -> None:
    found = dice.table()
    check(engine, lambda db: db.push("s", found))
    with penstock.connect(engine=engine) as db:
        options = "WITH (on_error = 'apart', unknown = 'ignore')"
        db.execute(DECLARED.replace("TIMESTAMP BY t;", f"TIMESTAMP BY t {options};"))
        with contextlib.suppress(penstock.InputError):  # of the whole table
            db.push("s", found)
            assert len(answers(db)["qs"]) + db.apart("s").num_rows == db.stream("s").given == 2


LITERALS = [
    "5", "-1", "9223372036854775807", "9223372036854775808", "1" + "0" * 400, "1.5", "1e400", "-1e-400", "NULL", "TRUE",
    "'x'", "''", "'2024-01-01'", "'soon'", "DATE '9999-12-31'", "DATE '0001-01-01'", "TIMESTAMP '9999-12-31 23:59:59'",
    "TIMESTAMP '0001-01-01 00:00:00'", "INTERVAL 1 DAY", "INTERVAL 99999999 DAYS", "INTERVAL 999999999999999999 DAYS",
    "X'ff'", "1 / 0", "0.1 + 0.2", "CAST('x' AS INT)", "t", "upper('x')", "9999999999 * 9999999999", "(SELECT 1)",
    "DATE '9999-12-31' + INTERVAL 99999 DAYS", "TIMESTAMP '0001-01-01 00:00:00' - INTERVAL 1 DAY",
]  # fmt: skip
FITTING = ["5", "1", "1.5", "1.50", "TRUE", "'x'", "DATE '2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00'",
           "INTERVAL 1 HOUR", "NULL"]  # fmt: skip


@ENGINES
@given(dice=dice)
def test_literals_of_anything(engine: str, dice: Dice) -> None:
    rows = []
    for _ in range(dice.randrange(1, 4)):
        row = list(FITTING)
        for _ in range(dice.randrange(3)):
            row[dice.randrange(len(row))] = dice.choice(LITERALS)
        rows.append(f"({', '.join(row[: dice.choice([10, 10, 10, 9])])})")
    check(engine, lambda db: db.execute(f"INSERT INTO s VALUES {', '.join(rows)}"))


@ENGINES
@given(dice=dice)
def test_anything_for_rows(engine: str, dice: Dice) -> None:
    name, rows, at = dice.choice(["s", "tt", "r"]), dice.value(), dice.choice([None, dice.value()])
    check(engine, lambda db: db.push(name, rows, at=at))


@ENGINES
@given(dice=dice)
def test_any_time(engine: str, dice: Dice) -> None:
    at, g = dice.value(), dice.value()
    check(engine, lambda db: db.push("tt", [(at, g)]))
    check(engine, lambda db: db.push("r", [{"k": 1, "g": "x", "ts": at, "op": g}]))
    check(engine, lambda db: db.heartbeat("tt", at))


@ENGINES
@pytest.mark.parametrize("on_error", ["stop", "apart"])
@given(dice=dice)
def test_what_does_not_fit_is_told_row_by_row(engine: str, on_error: str, dice: Dice) -> None:
    """With ``apart`` nothing is refused, with ``stop`` what is before it stays; both as if rows came by themselves."""
    found = dice.rows()
    declared = DECLARED.replace("TIMESTAMP BY t;", f"TIMESTAMP BY t WITH (on_error = '{on_error}');")
    with penstock.connect(engine=engine) as db, penstock.connect(engine=engine) as single:
        db.execute(declared)
        single.execute(DECLARED)
        bad = 0
        for row in found:
            try:
                single.push("s", [row])
            except penstock.InputError:
                bad += 1
                if on_error == "stop":
                    break
        stops = bad and on_error == "stop"
        with pytest.raises(penstock.InputError, match="kept") if stops else contextlib.nullcontext():
            db.push("s", found)
        assert str(answers(db)) == str(answers(single))
        assert db.stream("s").apart == (bad if on_error == "apart" else 0)
        apart = db.apart("s").to_pylist()
        assert len(apart) == db.stream("s").apart
        assert all(row["reason"] and row["row"] is not None for row in apart)


SCRIPT = """CREATE STREAM f (t BIGINT, v DOUBLE, g STRING, at TIMESTAMP) TIMESTAMP BY t{};"""


@given(dice=dice)
def test_files_of_anything(tmp_path_factory: pytest.TempPathFactory, dice: Dice) -> None:
    """Refused, stopped or kept apart: the three agree on what is good and what is the first that is not."""
    path = tmp_path_factory.mktemp("files") / "f.csv"
    path.write_bytes(dice.csv())
    got: dict[str, list[Any]] = {}
    said: dict[str, str | None] = {}
    for on_error in ("refuse", "stop", "apart"):
        with penstock.connect(engine="local") as db:
            db.execute(SCRIPT.format(f" SLACK 1000 WITH (on_error = '{on_error}')"))
            query = db.query("SELECT t, v, g, at FROM f")
            try:
                stopped = play(core_of(db), {"f": path}, close=False)
            except penstock.InputError as error:
                stopped = {"f": error}
            said[on_error] = stopped["f"].message if stopped else None
            db.close_stream("f")
            got[on_error] = query.fetch().to_pylist()
            apart = db.apart("f").to_pylist()
    assert said["refuse"] == said["stop"]
    assert said["apart"] is None
    assert bool(apart) == (said["stop"] is not None)
    if said["refuse"] is None:
        assert str(got["refuse"]) == str(got["stop"]) == str(got["apart"])
    else:
        assert got["refuse"] == []
        assert apart[0]["place"] in (said["stop"] or "")




OUTSIDE = {
    "number": [(1, 2**62, None)],
    "date32": pa.table({"k": [1], "at": pa.nulls(1), "day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}),
    "date64": pa.table({"k": [1], "at": pa.nulls(1), "day": pa.array([86_400_000 * 2**30], pa.date64())}),
    "us": pa.table({"k": [1], "at": pa.array([2**62], pa.timestamp("us")), "day": pa.nulls(1, pa.date32())}),
    "s": pa.table({"k": [1], "at": pa.array([-(2**40)], pa.timestamp("s")), "day": pa.nulls(1, pa.date32())}),
    "farthest day as time": pa.table(
        {"k": [1], "at": pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), "day": pa.nulls(1)}
    ),
    "day as time": pa.table({"k": [1], "at": pa.array([2**24], pa.int32()).cast(pa.date32()), "day": pa.nulls(1)}),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_relations_take_times_of_the_years_1_to_9999(case: str, engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE RELATION r (k INT, at TIMESTAMP, day DATE)")
        query = db.query("SELECT * FROM r")
        with pytest.raises(penstock.InputError, match=r"^relation `r`, row 1, column `(at|day)`: .*since 1970"):
            db.push("r", OUTSIDE[case])
        db.push("r", [(2, datetime.max, date.min)])
        assert [row["k"] for row in query.fetch().to_pylist()] == [2]


@pytest.mark.parametrize("case", ["date32", "date64", "us", "s", "day as time", "farthest day as time"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_first_time_of_a_file_may_be_out_of_range(case: str, suffix: str, tmp_path: Path) -> None:
    table, path = OUTSIDE[case], tmp_path / f"r.{suffix}"
    pq.write_table(table, path) if suffix == "parquet" else pa.feather.write_feather(table, str(path))
    with penstock.connect() as db:
        db.execute("CREATE RELATION r (k INT, at TIMESTAMP, day DATE)")
        query = db.query("SELECT * FROM r")
        with pytest.raises(penstock.InputError, match=r"r\.\w+, row 1, column `(at|day)`: .* out of the range of"):
            play(core_of(db), {"r": path})
        assert query.fetch().num_rows == 0
        by = "k" if case.startswith("date") else "at"
        for on_error in ("refuse", "apart", "stop"):
            kinds = "k BIGINT, at TIMESTAMP, day DATE"
            db.execute(f"CREATE STREAM {on_error} ({kinds}) TIMESTAMP BY {by} WITH (on_error = '{on_error}')")
        with pytest.raises(penstock.InputError, match="out of the range of"):
            play(core_of(db), {"refuse": path})
        assert "out of the range of" in str(play(core_of(db), {"stop": path})["stop"])
        play(core_of(db), {"apart": path})
        [bad] = db.apart("apart").to_pylist()
        assert "out of the range of" in bad["reason"]
        assert "since 1970" in bad["row"]
        if case == "us":
            assert "TIMESTAMP BY at" in db.declare("d", path)


def test_a_date64_within_a_day_is_said_to_be_one() -> None:
    with penstock.connect() as db:
        db.execute("CREATE RELATION r (k INT, day DATE)")
        with pytest.raises(penstock.InputError, match="column `day`: it is not a whole number of days"):
            db.push("r", pa.table({"k": [1], "day": pa.array([2**62], pa.date64())}))


class OddList(list[Any]):
    __iter__ = _raise


class OddRow(dict[str, Any]):
    items = _raise


@pytest.mark.parametrize("rows", [OddList([(datetime(2024, 1, 1), "x")]), [OddRow()], (OddRow(),)])
def test_lists_and_rows_that_raise(rows: object) -> None:
    with penstock.connect() as db:
        db.execute(DECLARED)
        for name in ("s", "tt", "r"):
            with pytest.raises(penstock.InputError, match=r"(OddList|OddRow) raised Spoiled"):
                db.push(name, rows)
            db.push(name, [])
