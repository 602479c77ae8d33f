"""What somebody sees who waits."""

from __future__ import annotations

import pytest
from benchmarks.support.watch import Watch, print_table

from penstock.cli.watch import clock


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Watch(2, terminal=False) as watch:
        watch.begin("join")
        watch.doing("warm-up")
        for seconds in (1.0, 14.9, 15.1, 16.0, 80.0):
            watch.tick(seconds)
        watch.end("3 results")
    assert capsys.readouterr().err.splitlines() == [
        "1 of 2  join: begins", "1 of 2  join: 0:15 warm-up", "1 of 2  join: 1:20 warm-up", "1 of 2  join: 3 results",
    ]  # fmt: skip


def test_on_a_terminal_a_line_changes(capsys: pytest.CaptureFixture[str]) -> None:
    with Watch(2, terminal=True) as watch:
        watch.begin("join")
        watch.doing("window [RANGE 1]")
        watch.tick(20.0)
        watch.end("3 results [all]")
        watch.begin("filter")
    error = capsys.readouterr().err
    assert "join: 3 results [all]" in error
    assert "begins" not in error


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", "1", "ok"), ("long name", "1,000", "MISSED")]
    print_table("Title", ("name", "value", ""), rows, right=(1,), terminal=False)
    assert capsys.readouterr().out.splitlines() == [
        "Title", "name       value", "---------  -----  ------", "a              1  ok", "long name  1,000  MISSED", "",
    ]  # fmt: skip
    print_table("Title", ("name", "value", ""), rows, right=(1,), terminal=True)
    out = capsys.readouterr().out
    assert "Title" in out
    assert all(cell in out for row in rows for cell in row)


def test_minutes_and_seconds() -> None:
    assert [clock(seconds) for seconds in (0.4, 61, 600)] == ["0:00", "1:01", "10:00"]
