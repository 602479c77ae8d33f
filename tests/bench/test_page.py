"""The page of the docs with what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from experiments.papers.report import EXPERIMENTS
from scripts import benchmarks as page

WHERE = {"penstock": "1.2", "python": "3.11", "processors": 2, "load": 1.5}
OWN = {
    "benchmark": "own", "size": "quick", "machine": WHERE, "figures": ["bench.png"],
    "benchmarks": [{"name": "join", "results": [
        {"name": "speed", "value": 1234.5, "bar": 2.0, "ok": True, "below": False},
        {"name": "time", "value": 3.0, "bar": 2.0, "ok": False, "below": True},
        {"name": "rows", "value": 3.0, "bar": None, "ok": True, "below": False},
    ]}],
}  # fmt: skip
BASE = {"rows": 1_000, "seconds": 2.0, "p50": 1.0, "p99": 3.0, "same": True, "note": "", "why": ""}
COMPARE = {
    "benchmark": "compare", "scale": 1.0, "machine": WHERE, "figures": [],
    "jobs": [
        {"name": name, "title": "something", "rows": 1_000, "expected": {"answers": 7}, "systems": [
            {**BASE, "system": "A", "against plain Spark": 4.0}, {**BASE, "system": "B", "why": "it has none"},
            {**BASE, "system": "C", "against plain Spark": None, "same": False},
        ]} for name in ("filters", "latency")
    ],
}  # fmt: skip


def test_tables_and_figures_are_put_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# P\n\n<!-- compare -->\nold\n<!-- end of compare -->\nbetween\n<!-- own --><!-- end of own -->\n"
    for name, report in {"one": OWN, "two": COMPARE}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps(report))
    (tmp_path / "one" / "bench.png").write_bytes(b"png")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "PICTURES", tmp_path / "pictures" / "new")
    page.PAGE.write_text(text)
    page.main([str(tmp_path / "one"), str(tmp_path / "two")])
    found = page.PAGE.read_text().splitlines()
    assert "| join | speed | 1,234 | ≥ 2 | met |" in found
    assert "| join | time | 3 | ≤ 2 | missed |" in found
    assert not any("rows | 3" in line for line in found)
    assert "| A | 2.00 | 500 | 4.00 × | equal |  |" in found
    assert "| A | 1.00 | 3.00 | 4.00 × | equal |  |" in found
    assert "| B | – | – | – | – | it has none |" in found
    assert "| C | 2.00 | 500 | – | different |  |" in found
    assert "![Benchmarks against their bars](../pictures/benchmarks/bench.png)" in found
    assert "old" not in found
    assert "between" in found
    assert sum("kept the machine busy" in line for line in found) == 2
    assert (tmp_path / "pictures" / "new" / "bench.png").read_bytes() == b"png"
    again = page.PAGE.read_text()
    page.main([str(tmp_path / "one"), str(tmp_path / "two")])
    assert page.PAGE.read_text() == again


def test_the_page_has_a_place_for_both() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.placed(page.placed(text, "own", "x"), "compare", "y").count("<!-- ") == 4
    with pytest.raises(SystemExit, match="no place"):
        page.placed("nothing", "own", "x")


def test_claims_are_put_into_the_page_about_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [
        {"claim": "a | b", "metric": "count", "holds": True, "detail": "1"},
        {"claim": "c", "metric": "latency", "holds": None, "detail": "few rounds"},
    ]
    one = {"name": "x", "title": "T", "seconds": 3.2, "disturbed": 2, "rounds": 5, "claims": claims}
    report = {"benchmark": "papers", "machine": {**WHERE, "time": "2026-01-02T03:04:05Z"}, "experiments": [one]}
    (tmp_path / "report.json").write_text(json.dumps(report))
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(page, "EXPERIMENTS", tmp_path / "experiments.md")
    page.PAGE.write_text("# P\n")
    page.EXPERIMENTS.write_text("# E\n\n<!-- papers -->\nold\n<!-- end of papers -->\n")
    page.main([str(tmp_path)])
    found = page.EXPERIMENTS.read_text()
    assert "Measured on 2026-01-02" in found
    assert "1 claims hold, 0 do not, 1 were not judged. Other processes disturbed 2 of 5 rounds." in found
    assert "| a \\| b | count | holds | 1 |" in found
    assert "| c | latency | not judged | few rounds |" in found
    assert "\nold\n" not in found


def test_the_page_about_experiments_has_every_experiment() -> None:
    text = page.EXPERIMENTS.read_text(encoding="utf-8")
    report = text[text.index("<!-- papers -->") : text.index("<!-- end of papers -->")]
    assert [name for name in EXPERIMENTS if f"(`{name}`, " not in report] == []
