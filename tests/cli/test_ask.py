"""``penstock query`` and ``penstock declare``: data files as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main

READINGS = """at,room,temperature
2024-05-01 10:00:00,kitchen,21.5
2024-05-01 10:00:40,kitchen,22.5
2024-05-01 10:00:20,bath,24.0
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("readings.csv").write_text(READINGS)
    Path("rooms.csv").write_text("room,floor\nkitchen,0\nbath,1\n")


def test_a_query_over_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT room, temperature FROM readings WHERE temperature > 22;", "readings.csv"]) == 0
    printed = capsys.readouterr()
    answers = [line.split()[2:] for line in printed.out.splitlines()[2:]]
    assert answers == [["+", "bath", "24.0"], ["+", "kitchen", "22.5"]]
    assert printed.err.startswith(
        "penstock: readings.csv: rows are out of order by up to 20 seconds; "
        "SLACK 20 SECONDS is used, so that none is late\n"
    )
    assert "rows in   readings 3" in printed.err


def test_several_files_names_and_keys(capsys: pytest.CaptureFixture[str]) -> None:
    text = "SELECT ISTREAM floor, temperature FROM r [NOW] JOIN rooms USING (room)"
    assert main(["query", text, "r=readings.csv", "rooms.csv", "--key", "rooms=room", "--format", "csv", "-q"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [line.split(",")[2:] for line in printed.out.splitlines()] == [
        ["floor", "temperature"], ["0", "21.5"], ["1", "24.0"], ["0", "22.5"],
    ]  # fmt: skip


def test_a_forgotten_key_is_said_even_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    text = "SELECT ISTREAM floor, temperature FROM readings [NOW] JOIN rooms USING (room)"
    assert main(["query", text, "readings.csv", "rooms.csv", "-q", "--engine", "local"]) == 0
    stamped, clocks = capsys.readouterr().err.splitlines()
    assert stamped == (
        "penstock: rooms.csv: no column tells the time, so rows are stamped when they arrive; "
        "--timestamp rooms=COLUMN names one, --key rooms=COLUMN makes it a relation to look up in"
    )
    assert "so that they hardly ever meet; if `rooms` is to look up in, say --key rooms=COLUMN" in clocks
    assert main(["query", "SELECT floor FROM rooms", "readings.csv", "rooms.csv", "-q", "--engine", "local"]) == 0
    assert "meet" not in capsys.readouterr().err


def test_without_slack_rows_are_late(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["query", "SELECT room FROM readings", "readings.csv", "--slack", "0 seconds", "--late", "late"]
    assert main([*arguments, "--output", "found.csv"]) == 0
    assert "late rows readings 1" in capsys.readouterr().err
    assert Path("late/readings.csv").read_text().count("bath") == 1
    assert Path("found.csv").read_text().count("kitchen") == 2


def test_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["declare", "readings.csv", "rooms.csv", "--slack", "readings=1 minute", "--key", "rooms=room"]) == 0
    assert capsys.readouterr().out == (
        "CREATE STREAM readings (at TIMESTAMP, room STRING, temperature DOUBLE) TIMESTAMP BY at SLACK 1 minute;\n"
        "CREATE RELATION rooms (room STRING, floor BIGINT) KEY (room);\n"
    )
    Path("2024 june.data.csv").write_text("a\n1\n")
    assert main(["declare", "2024 june.data.csv"]) == 0
    remark, statement = capsys.readouterr().out.splitlines()
    assert remark.startswith("-- no column tells the time, so rows are stamped when they arrive; --timestamp _2024")
    assert statement == "CREATE STREAM _2024_june (a BIGINT);"


def test_a_path_with_an_equals_sign(capsys: pytest.CaptureFixture[str]) -> None:
    Path("year=2024").mkdir()
    Path("year=2024/r.csv").write_text("a\n1\n")
    assert main(["declare", "year=2024/r.csv", "n=year=2024/r.csv"]) == 0
    found = capsys.readouterr().out
    assert "CREATE STREAM r (a BIGINT);" in found
    assert "CREATE STREAM n (a BIGINT);" in found


def test_options_without_a_name_are_for_the_streams(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["declare", "readings.csv", "rooms.csv", "--key", "rooms=room", "--slack"]
    assert main([*arguments, "1 minute", "--timestamp", "at"]) == 0
    assert "TIMESTAMP BY at SLACK 1 minute;\nCREATE RELATION rooms" in capsys.readouterr().out
    assert main([*arguments, "rooms=1 minute"]) == 2
    said = "`rooms` has a key, so it is a relation, which takes no timestamp, slack or on_error"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    (["SELECT x FROM readings", "readings.csv"], "the query, line 1, column 8: no column `x` in stream `readings`"),
    (["readings.csv", "SELECT room FROM readings WHERE room = 'a'"], "the query comes first, then the files"),
    (["SELECT 1", "none.csv"], "there is no file or folder none.csv"),
    (["SELECT 1", "=readings.csv"], "is neither a PATH nor NAME=PATH"),
    (["SELECT 1", "readings.csv", "Readings=rooms.csv"], "`Readings` is there twice"),
    (["SELECT 1", "readings.csv", "--timestamp", "x=at"], "--timestamp x=at: write NAME=… with one of readings"),
    (["SELECT 1", "readings.csv", "--timestamp", "when"], "readings.csv has no column `when`"),
    (["SELECT 1", "readings.csv", "--key", "room"], "--key room: write NAME=… with one of readings"),
    (["SELECT 1", "readings.csv", "--slack", "soon"], "soon"),
])  # fmt: skip
def test_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_answer_as_it_stands_after_the_last_row(capsys: pytest.CaptureFixture[str]) -> None:
    text = "SELECT room, avg(temperature) AS mean FROM readings [RANGE 1 HOUR] GROUP BY room"
    assert main(["query", text, "readings.csv", "--final"]) == 0
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()[2:]] == [["bath", "24.0"], ["kitchen", "22.0"]]
    assert "answers   q1 2" in printed.err
    assert main(["query", text, "readings.csv", "--final", "--output", "x.jsonl"]) == 0
    assert Path("x.jsonl").read_text().count("\n") == 2
    assert main(["query", text, "readings.csv", "--final", "--output", "x"]) == 2
    Path("none.csv").write_text("at,v\n")
    capsys.readouterr()
    assert main(["query", "SELECT v FROM none", "none.csv", "--final", "-q"]) == 0
    assert capsys.readouterr().out.split() == ["v", "-"]


def test_rows_that_do_not_fit_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.csv"
    path.write_text("at,v\n2024-01-01T10:00:00,1\n,2\n2024-01-01T10:00:02,3,x\n2024-01-01T10:00:03,4\n")
    asked = ["query", "SELECT sum(v) AS total FROM r", str(path), "--format", "csv", "--final"]
    assert main(asked) == 2
    assert "line 4: 3 fields where the header has 2" in capsys.readouterr().err
    assert main([*asked, "--on-error", "apart"]) == 0
    out, err = capsys.readouterr()
    assert out == "total\n5\n"
    assert "apart     r 2" in err
    assert "has NULLs" not in err
    assert main([*asked, "--on-error", "r=never"]) == 2
    assert "on_error is 'never'; it is one of 'refuse', 'stop', 'apart'" in capsys.readouterr().err
    assert main(["declare", str(path), "--on-error", "stop"]) == 0
    assert "WITH (on_error = 'stop')" in capsys.readouterr().out
