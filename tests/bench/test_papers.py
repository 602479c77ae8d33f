"""``penstock bench papers``: the experiments at a tiny scale, the report, the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.support import common
from experiments.papers import architectures, designated, hybrid, join, priorities, threading_modes
from experiments.papers import report as papers
from experiments.papers.judging import Claim, multiset
from experiments.papers.report import EXPERIMENTS, Outcome

from penstock.cli.main import main
from penstock.model.errors import InputError, StateError

TINY = 0.01


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny scale is about time, not about the number of configurations."""
    monkeypatch.setattr(architectures, "RATES", (20_000, 30_000))
    monkeypatch.setattr(designated, "RATES", (1_000, 5_000))
    monkeypatch.setattr(designated, "ANALYSED", ((2, 1), (2, 20)))
    monkeypatch.setattr(join, "RATES", (1_600, 8_000, float("inf")))
    monkeypatch.setattr(priorities, "PLANS", (1, 9))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    said: list[str] = []
    outcome = papers.perform(name, TINY, tmp_path, said.append)
    assert said
    assert outcome.claims
    assert all(claim.detail for claim in outcome.claims)
    assert [c.claim for c in outcome.claims if c.metric == "answers" and not c.holds] == []
    assert outcome.figures
    for figure in outcome.figures:
        assert figure.parent == tmp_path
        assert figure.read_bytes().startswith(b"\x89PNG")
    papers.write([outcome], TINY, tmp_path / "report.json")
    (written,) = json.loads((tmp_path / "report.json").read_text())["experiments"]
    assert written["name"] == name
    assert [c["holds"] for c in written["claims"]] == [c.holds for c in outcome.claims]
    assert sorted(written["figures"]) == sorted(p.name for p in tmp_path.glob("*.png"))


# -- what is measured -------------------------------------------------------------------------------------


def test_every_way_answers_the_same() -> None:
    """A difference in time says something only about equal work."""
    found = []
    for settings in threading_modes.WAYS.values():
        with common.database("s") as db:
            query = db.query(threading_modes.selections())
            db.configure(**settings)
            for table in common.batches(np.arange(1_000), 10):
                db.push("s", table)
            found.append(multiset(query.fetch()))
    assert 900 < sum(found[0].values()) < 1_000
    assert all(own == found[0] for own in found)


def test_queries_of_the_scaling_experiment_share_nothing_but_the_stream() -> None:
    with common.database("s") as db:
        for i in range(3):
            db.query(threading_modes.selections(i))
        shared = {operator.kind for operator in db.graph().operators if len(operator.queries) > 1}
    assert shared == {"source", "intake"}


def test_elements_of_the_hybrid_experiment_come_in_two_bursts() -> None:
    times = hybrid.arrival_times(70_000, 8.0, 1)
    assert len(times) == 700
    assert times == sorted(times)
    assert times.count(0.0) == 100
    assert times.count(4.0) >= 200
    assert times[-1] == 8.0
    assert times != hybrid.arrival_times(70_000, 8.0, 2)
    values = hybrid._values(1, 70_000)
    assert (values < 9_000).sum() == 63
    assert (values[-2_000:] >= 9_000).all()


# -- rounds and noise -------------------------------------------------------------------------------------


def test_rounds_fit_into_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(common, "clock", lambda: now[0])

    def made(budget: float, each: float, least: int = 1) -> int:
        count = 0
        for _ in common.rounds(budget, 5, least):
            count += 1
            now[0] += each
        return count

    assert made(10, 3) == 3
    assert made(10, 20) == 1
    assert made(10, 0.1) == 5
    assert made(10, 3, 4) == 4
    assert made(10, 20, 7) == 7


# -- the command ------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "folder"
    assert main(["bench", "papers", "--only", "placement", "--scale", "0.01", "--output", str(folder)]) == 0
    captured = capsys.readouterr()
    *text, last = captured.out.splitlines()
    assert text[0].startswith("001 §6.7")
    line = json.loads(last)
    assert line["benchmark"] == "papers"
    assert {"name", "value", "bar", "ok"} == set(line["results"][0])
    assert (folder / "001-figure-11-capacities.png").exists()
    assert json.loads((folder / "report.json").read_text())["machine"]["processors"] >= 1
    assert captured.err == ""  # progress is for terminals


def test_an_unknown_experiment_lists_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "papers", "--only", "placment"]) == 2
    error = capsys.readouterr().err
    assert "did you mean `placement`?" in error
    assert all(name in error for name in EXPERIMENTS)


def test_names_choose_and_keep_their_order() -> None:
    assert papers.chosen([]) == list(EXPERIMENTS)
    assert papers.chosen(["join", "threading"]) == ["threading", "join"]
    with pytest.raises(InputError, match="unknown experiment"):
        papers.chosen(["join", "x"])


def test_without_matplotlib_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(StateError, match="matplotlib"):
        common.check_matplotlib()
    command = ["bench", "papers", "--only", "placement", "--scale", "0.01", "--output", str(tmp_path / "o")]
    assert main(command) == 1
    assert "pip install" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
    assert main([*command, "--no-figures"]) == 0
    assert [p.name for p in (tmp_path / "o").iterdir()] == ["report.json"]


def test_what_does_not_hold_and_what_is_not_judged_is_seen_in_the_text() -> None:
    claims = Claim("a", "count", True, "1"), Claim("b", "latency", False, "because"), Claim("c", "latency", None, "few")
    busy = SimpleNamespace(others=(0.0, 1.5, None))
    outcome = Outcome("x", "Title", 1.0, claims, (), busy)
    text = papers.text(outcome)
    assert "holds          a  [count]" in text
    assert "DOES NOT HOLD  b  [latency]" in text
    assert "not judged     c  [latency]" in text
    assert "because" in text
    assert "disturbed 1 of 3 rounds" in text
    assert papers.summary([outcome]) == "1 claims hold, 1 do not, 1 were not judged"
    assert [r["ok"] for r in json.loads(papers.line([outcome]))["results"]] == [True, True, False]
