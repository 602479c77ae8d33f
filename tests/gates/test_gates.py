"""What ``make coverage`` counts, and that it fails where too little is run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from coverage import Coverage
from scripts import coverage_report

from tests import budget

PART = "def half(x):\n    if x:\n        return x / 2\n    print('nothing')\n    return 0\n\n\nhalf(4)\n"


def run(folder: Path, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a module of six lines, two of which are not reached, as tests would; the least share is given."""
    (folder / "pyproject.toml").write_text(f"[tool.coverage.report]\nfail_under = {least}\n")
    (folder / "part.py").write_text(PART)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("COVERAGE_FILE", raising=False)
    outer = Coverage.current()
    if outer is not None:
        outer.stop()
    inner = Coverage(include=[str(folder / "part.py")])
    spec = importlib.util.spec_from_file_location("part", folder / "part.py")
    assert spec is not None
    assert spec.loader is not None
    with inner.collect():
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    inner.save()
    if outer is not None:
        outer.start()


def test_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, 60, monkeypatch)
    assert coverage_report.main() == 0
    said = capsys.readouterr()
    assert "     2   67 %  part.py: 4-5\n" in said.out
    assert "coverage: 66.67 % of 6 lines; at least 60 %" in said.out
    assert not said.err


def test_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, 70, monkeypatch)
    assert coverage_report.main() == 1
    assert capsys.readouterr().err == "error: tests run too little of the package: 66.67 % is less than 70 %\n"


def test_nothing_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COVERAGE_FILE", raising=False)
    assert coverage_report.main() == 2
    assert "run `make coverage`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "text"),
    [([7], "7"), ([3, 4, 5, 9], "3-5, 9"), ([1, 3], "1, 3")],
)
def test_lines_are_shortened(lines: list[int], text: str) -> None:
    assert coverage_report.spans(lines) == text


def test_a_long_list_is_cut_between_two_numbers() -> None:
    text = coverage_report.spans(list(range(1, 400, 2)))
    assert text.endswith(", …")
    assert len(text) <= coverage_report.WIDTH + 3
    assert text.startswith("1, 3, 5, ")


def test_a_share_of_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SHARE", 0.1)
    assert [budget.examples(n) for n in (1, 100, 250)] == [1, 10, 25]
    assert budget.paired("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    monkeypatch.setattr(budget, "SHARE", 1.0)
    assert budget.examples(250) == 250
    assert budget.paired("ab", [1, 2]) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
