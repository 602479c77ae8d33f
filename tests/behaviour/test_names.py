"""Columns keep the case in which they are declared; names are found in any case."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cli.shell import Shell
from penstock.cql.expressions import identifier
from penstock.database.database import core_of
from penstock.database.play import play
from penstock.testing import assert_answers, assert_state
from tests.spark.direct import directly

DECLARED = """
CREATE STREAM s (T BIGINT, deviceId STRING, Value DOUBLE) TIMESTAMP BY t;
CREATE RELATION rooms (DEVICEID STRING, roomName STRING) KEY (deviceid);
CREATE VIEW hot AS SELECT DeviceID, value AS Heat FROM s WHERE VALUE > 1;
CREATE STREAM d AS SELECT deviceID, Value * 2 AS twiceAsMuch FROM s;
"""

NAMES = {
    "SELECT * FROM s": ["T", "deviceId", "Value"],
    "SELECT DEVICEID, value FROM s": ["deviceId", "Value"],
    "SELECT s.deviceid FROM S": ["deviceId"],
    'SELECT "deviceId" FROM s': ["deviceId"],
    'SELECT "deviceid" FROM s': ["deviceId"],
    'SELECT "DEVICEID", s."VALUE" FROM s': ["deviceId", "Value"],
    'SELECT "roomName", "DEVICEID" FROM s CROSS JOIN rooms': ["roomName", "DEVICEID"],
    "SELECT value AS myValue, deviceid AS MYDEVICE FROM s": ["myValue", "MYDEVICE"],
    'SELECT value AS "my Value" FROM s': ["my Value"],
    "SELECT deviceid, max(VALUE) AS maxValue FROM s GROUP BY DEVICEID HAVING count(*) > 0": ["deviceId", "maxValue"],
    "SELECT upper(deviceid) AS Dev FROM s GROUP BY DEV": ["Dev"],
    "SELECT * FROM s JOIN rooms USING (DeviceId)": ["deviceId", "T", "Value", "roomName"],
    "SELECT deviceid, ROOMNAME FROM s FULL JOIN rooms USING (deviceid)": ["deviceId", "roomName"],
    "SELECT * FROM s, rooms": ["T", "deviceId", "Value", "DEVICEID_2", "roomName"],
    "SELECT * FROM hot": ["deviceId", "Heat"],
    "SELECT * FROM d": ["deviceId", "twiceAsMuch"],
    "SELECT TWICEASMUCH FROM D [ROWS 2]": ["twiceAsMuch"],
    "SELECT * FROM (SELECT value AS v, T FROM s) AS q (theValue)": ["theValue", "T"],
    "WITH q AS (SELECT value AS theValue FROM s) SELECT thevalue FROM q": ["theValue"],
    "SELECT Value FROM s UNION ALL SELECT t FROM s": ["Value"],
    "SELECT value AS V, t AS v FROM s": ["V", "v_2"],
    'SELECT value AS "V", t AS "v" FROM s': ["V", "v"],
    "SELECT value AS TS, t AS Op FROM s": ["TS_2", "Op_2"],
    "SELECT value FROM s [PARTITION BY DEVICEID ROWS 2] WHERE DeviceId IN (SELECT deviceid FROM rooms)": ["Value"],
    "SELECT value AS myValue FROM s ORDER BY MYVALUE LIMIT 2": ["myValue"],
    "SELECT window_start AS Begin, count(*) AS N FROM s [TUMBLING 5] GROUP BY Window_Start": ["Begin", "N"],
}  # fmt: skip


@pytest.mark.parametrize("text", NAMES)
def test_names_of_answers(text: str) -> None:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARED)
        assert db.query(text).schema.names[2:] == NAMES[text]


def test_on_every_engine(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARED)
        db.execute("INSERT INTO rooms (ROOMNAME, deviceid) VALUES ('hall', 'a')")
        db.execute("UPDATE rooms SET RoomName = 'attic' WHERE DeviceID = 'a'")
        joined = db.query("SELECT * FROM s JOIN rooms USING (deviceid)")
        total = db.query("SELECT deviceid, sum(value) AS totalValue FROM s GROUP BY deviceid")
        derived = db.query("SELECT deviceid, twiceasmuch FROM d")
        db.push("s", [{"t": 1, "DEVICEID": "a", "value": 1.0}, {"T": 2, "deviceId": "a", "Value": 2.0}])
        db.push("s", pd.DataFrame({"VALUE": [4.0], "t": [3], "DeviceID": ["b"]}))
        db.push("s", pa.table({"value": [5.0], "t": [4], "deviceid": ["b"]}))
        db.execute("INSERT INTO s (VALUE, T, DeviceId) VALUES (0.5, 5, 'c')")
        assert joined.fetch().to_pylist() == [
            {"ts": t, "op": "+", "T": t, "deviceId": "a", "Value": float(t), "roomName": "attic"} for t in (1, 2)
        ]
        assert total.current().to_pylist() == [
            {"deviceId": "a", "totalValue": 3.0},
            {"deviceId": "b", "totalValue": 9.0},
            {"deviceId": "c", "totalValue": 0.5},
        ]
        assert derived.fetch().column_names == ["ts", "op", "deviceId", "twiceAsMuch"]
        db.push("s", [{"T": 0, "deviceId": "late", "Value": 2.0}])
        assert db.late("s").to_pylist() == [{"T": 0, "deviceId": "late", "Value": 2.0}]


def test_show_and_describe() -> None:
    out = io.StringIO()
    with penstock.connect(engine="local") as db:
        db.execute(DECLARED)
        db.query("SELECT deviceid, value AS theValue FROM s", name="q")
        for name, columns in {
            "s": ["T", "deviceId", "Value"], "rooms": ["DEVICEID", "roomName"], "hot": ["deviceId", "Heat"],
            "d": ["deviceId", "twiceAsMuch"], "q": ["deviceId", "theValue"],
        }.items():  # fmt: skip
            table = db.execute(f"DESCRIBE {name}").table
            assert table is not None
            assert table["column"].to_pylist() == columns
        shown = str(db.execute("SHOW STREAMS"))
        assert "T BIGINT, deviceId STRING, Value DOUBLE  T " in shown
        Shell(db, out).feed("\\d s")
        assert "deviceId" in out.getvalue()


def test_columns_that_differ_only_in_case(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute('CREATE STREAM s (t BIGINT, "a" INT, "A" INT, B INT) TIMESTAMP BY t')
        query = db.query('SELECT *, a AS low, A AS low2, "A" AS high, b FROM s')
        db.push("s", [{"t": 1, "a": 2, "A": 3, "b": 4}])
        assert query.fetch().to_pylist() == [
            {"ts": 1, "op": "+", "t": 1, "a": 2, "A": 3, "B": 4, "low": 2, "low2": 2, "high": 3, "B_2": 4}
        ]
        # A name without quotes is in lower case where case matters.
        db.execute('CREATE STREAM r (A INT, "A" INT)')
        assert [f.name for f in db.catalog.streams["r"].schema] == ["a", "A"]
        for columns in ("A INT, a INT", 'A INT, "a" INT'):
            with pytest.raises(penstock.BindError, match="column `a` stands twice"):
                db.execute(f"CREATE STREAM x ({columns})")


def test_names_that_mean_nothing_or_two_things() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARED)
        with pytest.raises(penstock.BindError, match=r"no column `DeviceIds` in stream `s`.*did you mean `deviceId`"):
            db.query('SELECT "DeviceIds" FROM s')
        with pytest.raises(penstock.BindError, match=r"`DeviceId` could mean `s.DeviceId`, `rooms.DeviceId`"):
            db.query('SELECT "DeviceId" FROM s, rooms')
        with pytest.raises(penstock.BindError, match=r"`deviceid` could mean `s.deviceid`, `rooms.deviceid`"):
            db.query("SELECT deviceID FROM s, rooms")
        for rows in ([{"T": 1, "deviceId": "a", "DEVICEID": "b", "Value": 1.0}],
                     pa.table({"T": [1], "deviceId": ["a"], "deviceid": ["b"], "Value": [1.0]})):  # fmt: skip
            with pytest.raises(penstock.InputError, match="column `deviceId` is there twice; case makes no difference"):
                db.push("s", rows)
        assert db.stream("s").given == 0


def test_a_relation_whose_own_column_is_called_ts() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE RELATION r (TS STRING, OP STRING)")
        db.push("r", [{"ts": "x", "op": "y"}])
        assert core_of(db).relations["r"].rows == [("x", "y")]


def test_declared_from_data(tmp_path: Path) -> None:
    frame = pd.DataFrame({"eventTime": [datetime(2024, 5, 1)], "deviceId": ["a"], "Value": [1.5]})
    (tmp_path / "x.csv").write_text("eventTime,deviceId,Value\n2024-05-01 00:00:00,a,1.5\n")
    for data in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), tmp_path / "x.csv"):
        with penstock.connect(engine="local") as db:
            db.declare("x", data, timestamp="EVENTTIME", load=True)
            query = db.query("SELECT EventTime, DEVICEID, value AS V FROM x")
            assert query.current().to_pylist() == [{"eventTime": datetime(2024, 5, 1), "deviceId": "a", "V": 1.5}]


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "table"])
def test_writers(tmp_path: Path, format: str) -> None:
    (tmp_path / "x.csv").write_text("eventTime,deviceId\n2024-05-01 00:00:00,a\n")
    out = tmp_path / "out"
    text = "SELECT DEVICEID, count(*) AS nRows FROM x GROUP BY deviceid"
    args = ["query", text, str(tmp_path / "x.csv"), "--final", "--format", format, "--output", str(out)]
    assert CliRunner().invoke(app, [*args, "--quiet"], catch_exceptions=False).exit_code == 0
    match format:
        case "parquet":
            names = pq.read_table(out).column_names
        case "json":
            names = list(json.loads(out.read_text()))
        case _:
            names = out.read_text().splitlines()[0].replace(",", " ").split()
    assert names == ["deviceId", "nRows"]


def test_expected_answers_in_any_case() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARED)
        for expected in (
            [{"DEVICEID": "a", "sum": 2.0}],
            pa.table({"deviceid": ["a"], "Sum": [2.0]}),
            pd.DataFrame({"DeviceId": ["a"], "SUM": [2.0]}),
            "deviceid  SUM\na  2.0",
        ):
            query = db.query("SELECT deviceid, value AS Sum FROM s")
            state = db.query("SELECT deviceid, value AS Sum FROM s [ROWS 1]")
            db.push("s", [(db.stream("s").given, "a", 2.0)])
            assert_answers(query, expected)
            assert_state(state, expected)


def test_a_database_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once names were folded when they were declared: queries of then keep the names that they had."""
    with directly():
        with monkeypatch.context() as patched:
            patched.setattr("penstock.cql.declarations.declared_names", lambda nodes: [identifier(n) for n in nodes])
            with penstock.connect(tmp_path, engine="spark") as db:
                db.execute(DECLARED.replace("TIMESTAMP BY t", "TIMESTAMP BY t WITH (retain = '10 us')"))
                db.query("SELECT deviceid, sum(value) AS total FROM s GROUP BY deviceid", name="old")
                db.push("s", [(1, "a", 1.0)])
                assert db.queries["old"].schema.names[2:] == ["deviceid", "total"]
        with penstock.connect(tmp_path, engine="spark") as db:
            new = db.query("SELECT deviceid, sum(value) AS total FROM s GROUP BY deviceid")
            db.push("s", [(2, "a", 2.0)])
            assert new.current().to_pylist() == [{"deviceId": "a", "total": 3.0}]
            assert db.queries["old"].current().to_pylist() == [{"deviceid": "a", "total": 3.0}]
            assert db.query("SELECT * FROM hot").schema.names[2:] == ["deviceId", "Heat"]


def test_plan_objects_of_before() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARED)
        plan = db.explain("SELECT deviceid FROM s", "json").replace("deviceId", "deviceid")
        query = db.query(plan=plan)
        db.push("s", [(1, "a", 1.0)])
        assert query.fetch()["deviceid"].to_pylist() == ["a"]


def _file(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """A file of columns `t`, `V`, `v` in the format that its name says; a field that a row lacks is NULL."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        lines = [",".join(str(row.get(name, "")) for name in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_missing_field_is_not_that_of_another_case(suffix: str, tmp_path: Path) -> None:
    rows = [{"t": 1, "V": 1, "v": 5}, {"t": 2, "V": 7}, {"t": 3, "v": 8}]
    path = _file(tmp_path / f"s.{suffix}", rows)
    with penstock.connect() as db:
        db.execute('CREATE STREAM s (t BIGINT, "V" INT, v INT) TIMESTAMP BY t')
        query = db.query("SELECT * FROM s")
        play(core_of(db), {"s": path})
        assert [(row["V"], row["v"]) for row in query.fetch().to_pylist()] == [(1, 5), (7, None), (None, 8)]
    ran = CliRunner().invoke(app, ["query", 'SELECT "V" AS a, v AS b FROM s', str(path), "--format", "csv", "-q"])
    assert ran.stdout.splitlines() == ["ts,op,a,b", "1,+,1,5", "2,+,7,", "3,+,,8"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("on_error", ["refuse", "apart"])
def test_a_file_with_a_column_twice_is_refused(suffix: str, on_error: str, tmp_path: Path) -> None:
    path = _file(tmp_path / f"s.{suffix}", [{"t": 1, "V": 1, "v": 5}])
    with penstock.connect() as db:
        db.execute(f"CREATE STREAM s (t BIGINT, v INT) TIMESTAMP BY t WITH (on_error = '{on_error}')")
        with pytest.raises(penstock.InputError, match="column `v` is there 2 times; case makes no difference"):
            play(core_of(db), {"s": path})


@pytest.mark.parametrize("line", ['{"t":2,"V":1,"v":5}', '{"t":2,"v":1,"v":2}', '{"t":2,"v":1,"T":2}'])
def test_an_object_with_a_column_twice_is_a_bad_row(line: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(f'{{"t":1,"v":1,"x":1,"x":2}}\n{line}\n{{"T":3,"V":3,"o":{{"v":1,"v":2}}}}\n')
    with penstock.connect() as db:
        for on_error in ("refuse", "apart"):
            db.execute(f"CREATE STREAM {on_error} (t BIGINT, v INT) TIMESTAMP BY t WITH (on_error = '{on_error}')")
        query = db.query("SELECT * FROM apart")
        with pytest.raises(penstock.InputError, match=r"line 2: column `[tv]` is there twice"):
            play(core_of(db), {"refuse": path})
        play(core_of(db), {"apart": path})
        assert query.fetch()["v"].to_pylist() == [1, 3]
        [bad] = db.apart("apart").to_pylist()
        assert bad["row"].replace(" ", "") == line


@pytest.mark.parametrize("name", ['"ÄrgerÖ"', '"ärgerö"', '"ÄRGERÖ"', "ärgerö", "ÄRGERÖ", 's."ÄRGERÖ"'])
def test_a_quoted_column_is_found_in_any_case(name: str) -> None:
    with penstock.connect() as db:
        db.execute('CREATE STREAM s (t BIGINT, "ÄrgerÖ" INT) TIMESTAMP BY t')
        query = db.query(f"SELECT {name} FROM s [PARTITION BY {name.removeprefix('s.')} ROWS 1] WHERE {name} > 1")
        assert query.schema.names == ["ts", "op", "ÄrgerÖ"]
        db.push("s", [{"t": 1, "ÄRGERÖ": 7}])
        assert query.fetch()["ÄrgerÖ"].to_pylist() == [7]
