"""``WITH (on_error = …)`` and ``WITH (unknown = …)``: what becomes of rows that do not fit."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock import Database
from penstock.cli.shell import Shell
from penstock.database.database import core_of
from penstock.database.play import play
from penstock.rows import apart

ROWS = [
    (1, 1.0, "a"), (2, "warm", "b"), (None, 3.0, "c"), (4, 4.0), (5, 5.0, "e", 5), {"t": 6, "v": 6.0}, (7, 7.0, "g"),
]  # fmt: skip


def declared(engine: str, options: str, path: Path | None = None) -> Database:
    db = penstock.connect(path, engine=engine)
    db.execute(f"CREATE STREAM s (t BIGINT, v DOUBLE, g STRING) TIMESTAMP BY t WITH ({options})")
    db.query("SELECT t, v, g FROM s", name="q")
    return db


def taken(db: Database) -> list[int]:
    found: list[int] = db.queries["q"].fetch()["t"].to_pylist()
    return found


def test_refused_is_the_default(engine: str) -> None:
    for options in ("on_error = 'refuse'", "retain = '1 day'"):
        with declared(engine, options) as db:
            with pytest.raises(penstock.InputError) as caught:
                db.push("s", ROWS)
            assert str(caught.value) == "stream `s`, row 4: 2 values for 3 columns"
            assert taken(db) == []
            assert (db.stream("s").given, db.stream("s").apart) == (0, 0)


def test_apart(engine: str) -> None:
    with declared(engine, "on_error = 'apart'") as db:
        db.push("s", ROWS)
        assert taken(db) == [1, 7]
        assert (db.stream("s").given, db.stream("s").apart, db.stream("s").late) == (7, 5, 0)
        assert db.execute("SHOW STREAMS").table["apart"].to_pylist() == ["5"]  # type: ignore[index]
        apart = db.apart("s").to_pylist()
        assert [(row["place"], row["column"], row["reason"]) for row in apart] == [
            ("row 2", "v", "'warm' is not a DOUBLE"),
            ("row 3", "t", "the timestamp `t` is NULL"),
            ("row 4", None, "2 values for 3 columns"),
            ("row 5", None, "4 values for 3 columns"),
            ("row 6", None, "column `g` is missing; None means NULL"),
        ]
        assert [json.loads(row["row"]) for row in apart] == [
            [2, "warm", "b"], [None, 3.0, "c"], [4, 4.0], [5, 5.0, "e", 5], {"t": 6, "v": 6.0},
        ]  # fmt: skip
        assert db.apart("s").num_rows == 0
        assert db.stream("s").apart == 5
        db.push("s", pa.table({"t": [8, None, 10], "v": [8.0, 9.0, 10.0], "g": ["x", "y", None]}))
        assert taken(db) == [8, 10]
        assert [json.loads(row) for row in db.apart("s")["row"].to_pylist()] == [{"t": None, "v": 9.0, "g": "y"}]
        db.execute("INSERT INTO s VALUES (NULL, 1.0, 'x'), (11, 11.0, 'x')")
        assert taken(db) == [11]
        assert db.stream("s").apart == 7
        told = db.metrics()["apart"].to_pylist()
        assert told[-1:] == [7]


def test_stop(engine: str) -> None:
    with declared(engine, "on_error = 'stop'") as db:
        with pytest.raises(penstock.InputError) as caught:
            db.push("s", ROWS)
        assert str(caught.value) == "stream `s`, row 2, column `v`: 'warm' is not a DOUBLE; the 1 row before it is kept"
        assert taken(db) == [1]
        assert (db.stream("s").given, db.stream("s").apart) == (1, 0)
        db.push("s", [(8, 8.0, "h")])  # only the push has stopped
        assert taken(db) == [8]
        with pytest.raises(penstock.InputError, match="the timestamp `t` is NULL; the 1 row before it is kept"):
            db.execute("INSERT INTO s VALUES (9, 1.0, 'x'), (NULL, 1.0, 'x'), (10, 1.0, 'x')")
        assert taken(db) == [9]


def test_what_is_wrong_with_a_whole_table_is_refused(engine: str) -> None:
    with declared(engine, "on_error = 'apart'") as db:
        for table in ({"t": [1], "v": [1.0]}, {"t": [1], "v": ["x"], "g": ["x"]}, {"t": [1], "v": [1.0], "w": ["x"]}):
            with pytest.raises(penstock.InputError):
                db.push("s", pa.table(table))
        assert (db.stream("s").given, db.stream("s").apart) == (0, 0)


def test_unknown_fields(engine: str) -> None:
    rows = [{"t": 1, "v": 1.0, "g": "a", "w": 5}]
    for options, error in [("retain = '1 s'", True), ("unknown = 'refuse'", True), ("unknown = 'ignore'", False)]:
        for some in (rows, pa.Table.from_pylist(rows)):
            with declared(engine, options) as db:
                if error:
                    with pytest.raises(penstock.InputError, match="no column `w`"):
                        db.push("s", some)
                else:
                    db.push("s", some)
                assert taken(db) == ([] if error else [1])
    with declared(engine, "on_error = 'apart', unknown = 'refuse'") as db:
        db.push("s", [*rows, {"T": 2, "v": 1.0, "G": "x"}, {"t": 3, "T": 3, "v": 1.0, "g": "x"}])
        assert taken(db) == [2]
        assert [row["reason"].split(";")[0] for row in db.apart("s").to_pylist()] == [
            "no column `w`", "column `t` is there twice",
        ]  # fmt: skip


@pytest.mark.parametrize(("option", "said"), [
    ("on_error = 'ignore'", "`on_error` is 'ignore'; it is one of 'refuse', 'stop', 'apart'"),
    ("on_error = 5", "`on_error` is 5; it is one of 'refuse', 'stop', 'apart'"),
    ("unknown = 'apart'", "`unknown` is 'apart'; it is one of 'refuse', 'ignore'"),
])  # fmt: skip
def test_options_that_are_none(option: str, said: str) -> None:
    with penstock.connect(engine="local") as db, pytest.raises(penstock.BindError, match="on") as caught:
        db.execute(f"CREATE STREAM s (t BIGINT) WITH ({option})")
    assert caught.value.one_line == f"line 1, column 34: {said}"


def test_rows_that_look_like_another_unit_are_apart_until_one_does_not() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at WITH (on_error = 'apart')")
        db.push("s", [(1_700_000_000,), (1_700_000_000_000_000,), (1_700_000_000_000_001,)])
        assert db.stream("s").given == 3
        (bad,) = db.apart("s").to_pylist()
        assert bad["place"] == "row 1"
        assert "looks like seconds since 1970" in bad["reason"]


def test_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert apart.KEPT == 100_000, "as the docs say"
    kept, push = 1_000, 200
    monkeypatch.setattr(apart, "KEPT", kept)
    with declared("local", "on_error = 'apart'") as db:
        for start in range(0, kept + push, push):
            db.push("s", [(None, float(i), "x") for i in range(start, start + push)])
        assert db.stream("s").apart == kept + push
        rows = [json.loads(row)[1] for row in db.apart("s")["row"].to_pylist()]
        assert rows == [float(i) for i in range(push, kept + push)]


def test_rows_are_read_without_the_lock() -> None:
    """A generator may take its time, and ask the database meanwhile, from another thread too."""
    with declared("local", "on_error = 'refuse'") as db:
        def rows() -> Iterator[tuple[int, float, str]]:
            for i in range(3):
                other = threading.Thread(target=db.stream, args=("s",))
                other.start()
                other.join(60)
                assert not other.is_alive()
                yield (i, 1.0, "x")

        db.push("s", rows())
        assert taken(db) == [0, 1, 2]


def test_rows_apart_survive_a_restart(tmp_path: Path) -> None:
    from tests.spark.direct import directly

    with directly():
        with declared("spark", "on_error = 'apart'", tmp_path / "db") as db:
            db.push("s", ROWS)
            db.push("s", [(None, 1.0, "x")])
        with penstock.connect(tmp_path / "db", engine="spark") as db:
            assert (db.stream("s").given, db.stream("s").apart) == (8, 6)
            assert db.apart("s")["place"].to_pylist() == [*(f"row {i}" for i in range(2, 7)), "row 1"]
            db.push("s", [(8, 8.0, "x"), (9, 9.0)])
            assert taken(db) == [1, 7, 8]
        with penstock.connect(tmp_path / "db", engine="spark") as db:
            # What somebody has taken does not come again, but is counted.
            assert db.stream("s").apart == 7
            assert db.apart("s")["row"].to_pylist() == ["[9, 9.0]"]
        with penstock.connect(tmp_path / "db", engine="spark") as db:
            assert (db.stream("s").apart, db.apart("s").num_rows) == (7, 0)


# -- files ----------------------------------------------------------------------------------------------

FILES = {
    "s.csv": 't,v,g\n1,1.0,a\n2,warm,b\n,3.0,c\n4,4.0\n5,5.0,e,x\n6,6.0,""\n7,7.0,"a\nb"\n8,8.0,"open\n9,9.0,\n',
    "s.jsonl": '{"t": 1, "v": 1, "g": "a"}\n{"t": 2, "v": "warm", "g": ""}\n{"v": 3, "g": ""}\n{"t": 4\n[5]\n'
    '{"t": 6, "v": 6, "g": ""}\n{"t": 7, "v": 7, "g": "a\\nb"}\n\n{"t": 1e30}\n{"t": 9, "v": 9}\n',
}


def test_files_apart(tmp_path: Path) -> None:
    reasons = {
        "s.csv": ["line 3", "line 4", "line 5", "line 6", "line 10"],
        "s.jsonl": ["line 2", "line 3", "line 4, column 1", "line 5", "line 9"],
    }
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        with declared("local", "on_error = 'apart'") as db:
            assert play(core_of(db), {"s": tmp_path / name}) == {}
            assert db.queries["q"].fetch().select(["t", "g"]).to_pylist() == [
                {"t": 1, "g": "a"}, {"t": 6, "g": ""}, {"t": 7, "g": "a\nb"}, {"t": 9, "g": None},
            ]  # fmt: skip
            assert db.stream("s").given == 9
            assert db.apart("s")["place"].to_pylist() == [f"{tmp_path / name}, {line}" for line in reasons[name]]


def test_files_stop(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        with declared("local", "on_error = 'stop'") as db:
            stopped = play(core_of(db), {"s": tmp_path / name})["s"]
            line = 3 if name == "s.csv" else 2
            said = f"{tmp_path / name}, line {line}, column `v`: 'warm' is not a DOUBLE; the rows before it are kept"
            assert str(stopped) == said
            assert taken(db) == [1]
            assert db.stream("s").progress == 1  # it has not ended


def test_files_that_are_refused_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.csv").write_text("t,v,g\n" + "1,1.0,x\n" * 5_000 + f"{2**62},1.0,x\n")
    (tmp_path / "good.csv").write_text("t,v,g\n1,1.0,x\n")
    for ahead in (64 << 20, 0):
        monkeypatch.setattr("penstock.database.play._AHEAD", ahead)
        with declared("local", "on_error = 'refuse'") as db:
            db.execute("CREATE STREAM r (t BIGINT, v DOUBLE, g STRING) TIMESTAMP BY t")
            with pytest.raises(penstock.InputError) as caught:
                play(core_of(db), {"r": tmp_path / "good.csv", "s": tmp_path / "s.csv"}, chunk_rows=1_000)
            assert str(caught.value) == f"{tmp_path}/s.csv, line 5002: the timestamp {2**62} is out of range"
            assert (db.stream("s").given, db.stream("r").given) == (0, 0)
            play(core_of(db), {"s": tmp_path / "good.csv"})
            assert taken(db) == [1]


def test_files_with_unknown_columns(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("t,v,g,w\n1,1.0,x,y\n")
    (tmp_path / "s.jsonl").write_text('{"t": 1, "v": 1, "g": "x"}\n{"t": 2, "v": 1, "g": "x", "w": 1}\n')
    with declared("local", "on_error = 'refuse'") as db:
        play(core_of(db), {"s": tmp_path / "s.csv"})
        assert taken(db) == [1]
    with declared("local", "on_error = 'apart', unknown = 'refuse'") as db:
        with pytest.raises(penstock.InputError, match=r"s.csv: no column `w` is declared"):
            play(core_of(db), {"s": tmp_path / "s.csv"})
        play(core_of(db), {"s": tmp_path / "s.jsonl"})
        assert taken(db) == [1]
        assert db.apart("s")["reason"].to_pylist() == ["no column `w`; there are `g`, `t`, `v`"]


def test_typed_files(tmp_path: Path) -> None:
    table = pa.table({"t": [1, None, 3, 2**62], "v": [1.0, 2.0, 3.0, 4.0], "g": ["a", "b", "c", "d"]})
    with pa.ipc.new_file(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    with declared("local", "on_error = 'apart'") as db:
        play(core_of(db), {"s": tmp_path / "s.arrow"})
        assert taken(db) == [1, 3]
        assert db.apart("s")["place"].to_pylist() == [f"{tmp_path}/s.arrow, row {i}" for i in (2, 4)]


def test_insert_tells_of_rows_that_were_not_taken(engine: str, tmp_path: Path) -> None:
    with declared(engine, "on_error = 'apart'") as db:
        done = db.execute("INSERT INTO s VALUES (5, 1.0, 'a'), (NULL, 2.0, 'b'), (3, 3.0, 'c')")
        assert done.message == "2 rows into s"
        assert done.note == (
            "1 row does not fit and went apart (row 2, column `t`: the timestamp `t` is NULL); "
            "1 row came too late and is in no answer"
        )
        assert str(done) == f"{done.message}\n{done.note}"
        assert "went apart" in done._repr_html_()
        db.apart("s")
        assert db.execute("INSERT INTO s VALUES (6, 1.0, 'a')").note is None
        path = tmp_path / "s.csv"
        path.write_text("t,v,g\n7,1,a\nx,1,a\nNULL,1,a\n")
        said = io.StringIO()
        Shell(db, said).feed(f"\\load s {path}")
        assert "1 row into s\n2 rows do not fit" in said.getvalue()
        assert f"went apart ({path}, line 3, column `t`: 'x' is not a BIGINT)" in said.getvalue()
