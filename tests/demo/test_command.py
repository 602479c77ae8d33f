"""``penstock demo`` as somebody calls it."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from penstock.cli.main import main
from penstock.demo import script
from penstock.demo.plain import fitting
from penstock.demo.run import PROFILES, Run, Show
from penstock.demo.scenario import Scenario
from penstock.demo.terminal import Terminal
from penstock.model.errors import EngineError

NAMES = list(script.abouts())


def summary(out: str) -> dict[str, int]:
    """How many answers each query has in the table at the end."""
    lines = out[out.index("\nquery   ") :].splitlines()[2:8]
    return {line.split()[0]: int(line.split()[2].replace(",", "")) for line in lines}


def test_in_a_pipe_it_is_lines_and_ends_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--engine", "local", "--seconds", "1"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    found = summary(out)
    assert list(found) == NAMES
    assert all(found.values())
    assert "In a burst of 300,000 readings at once the 3 alarms" in out
    assert "penstock demo --cql" in out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_output_that_has_few_characters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(self: Run, show: Show) -> None:
        show(replace(self.snapshot(look=True), seconds=60.0))

    out = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(Run, "play", short)
    assert main(["demo", "--engine", "local"]) == 0
    out.seek(0)
    said = out.read()
    assert "=n=>: queue" in said or encoding == "utf-8"
    assert "═n═▶: queue" in said or encoding != "utf-8"
    assert list(summary(said)) == NAMES


@pytest.mark.parametrize(
    ("line", "encoding", "written"),
    [("5 µs ▶ 漢", "ascii", "5 us > ?"), ("5 µs", "latin-1", "5 µs"), ("▶ 漢", "utf-8", "▶ 漢"), ("═", None, "═")],
)
def test_characters_that_an_output_has(line: str, encoding: str | None, written: str) -> None:
    assert fitting(line, encoding) == written


def test_on_spark(
    spark: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = PROFILES["spark"]
    small = replace(usual, scenario=Scenario(readings=8, burst=3_000, chunk=1_000))
    monkeypatch.setitem(PROFILES, "spark", small)
    assert main(["demo", "--engine", "spark", "--seconds", "1"]) == 0
    out = capsys.readouterr().out
    assert "Spark has started" in out
    found = summary(out)
    assert list(found) == NAMES
    assert any(found.values())
    assert "engine spark: " in out


def test_without_java_it_says_what_works_without(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(master: str) -> None:
        raise EngineError("Java was not found", hint="install it")

    monkeypatch.setattr("penstock.hosts.spark.session.session", refused)
    assert main(["demo", "--engine", "spark"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("penstock: error: Java was not found; install it; `penstock demo --engine local`")
    assert "\n" not in said


def test_who_interrupts_it_gets_the_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Run, show: Show) -> None:
        show(self.snapshot())
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "play", interrupted)
    assert main(["demo", "--engine", "local"]) == 130
    out = capsys.readouterr().out
    assert "The run ended before the burst." in out
    assert list(summary(out)) == NAMES


def test_the_cql_can_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--cql"]) == 0
    assert capsys.readouterr().out == script.text()


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_it_lasts_a_second_at_least(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", seconds]) == 2
    assert "--seconds" in capsys.readouterr().err


def test_a_terminal_that_can_do_nothing_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal(Console(force_terminal=True)).is_able
    monkeypatch.setenv("TERM", "xterm")
    assert Terminal(Console(force_terminal=True)).is_able
    assert not Terminal(Console(force_terminal=False)).is_able
    assert not Terminal(Console(file=io.TextIOWrapper(io.BytesIO(), "ascii"), force_terminal=True)).is_able
