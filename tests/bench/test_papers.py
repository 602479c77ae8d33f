"""``penstock bench papers``: the experiments at a tiny scale, the report, the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.support import common
from benchmarks.support.common import Claim
from experiments.papers import architectures, designated, hybrid, join, scaling, threading_modes
from experiments.papers import report as papers
from experiments.papers.report import EXPERIMENTS, Outcome

from penstock.cli.main import main
from penstock.model.errors import InputError, StateError

TINY = 0.01


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny scale is about time, not about the number of configurations."""
    monkeypatch.setattr(architectures, "RATES", (20_000, 30_000))
    monkeypatch.setattr(designated, "RATES", (1_000, 5_000))
    monkeypatch.setattr(join, "RATES", (1_600, 8_000, float("inf")))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    said: list[str] = []
    outcome = papers.perform(name, TINY, tmp_path, said.append)
    assert said
    assert outcome.claims
    assert all(claim.detail for claim in outcome.claims)
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
    counts = set()
    for settings in threading_modes.WAYS.values():
        with common.database("s") as db:
            query = db.query(threading_modes.selections())
            db.configure(**settings)
            for table in common.batches(np.arange(1_000), 10):
                db.push("s", table)
            counts.add(query.fetch().num_rows)
    (count,) = counts
    assert 900 < count < 1_000


def test_queries_of_the_scaling_experiment_share_nothing_but_the_stream() -> None:
    with common.database("s") as db:
        for i in range(3):
            db.query(threading_modes.selections(i))
        shared = {operator.kind for operator in db.graph().operators if len(operator.queries) > 1}
    assert shared == {"source", "intake"}


def test_elements_of_the_hybrid_experiment_come_in_two_bursts() -> None:
    times = hybrid._arrivals(70_000, 8.0)
    assert len(times) == 700
    assert times == sorted(times)
    assert times.count(0.0) == 100
    assert times.count(4.0) >= 200
    assert times[-1] == 8.0
    values = hybrid._values(1, 70_000)
    assert (values < 9_000).sum() == 63
    assert (values[-2_000:] >= 9_000).all()


# -- claims -----------------------------------------------------------------------------------------------


def holds(claims: list[Claim]) -> list[bool]:
    return [claim.holds for claim in claims]


def times(di: float, ots: float, gts: float, others: float | None = 0.0, cpu: float = 1.0) -> threading_modes.Times:
    seconds = {"DI": di, "OTS": ots, "GTS Chain": gts, "GTS FIFO": 1.1 * gts, "OTS in trains": ots}
    return threading_modes.Times(1, 100, others, tuple(
        threading_modes.Point(way, m, s * m, cpu * s * m) for way, s in seconds.items() for m in (100, 200)
    ))  # fmt: skip


def test_claims_about_threading() -> None:
    assert holds(threading_modes.check(times(1, 2, 3))) == [True] * 5
    assert holds(threading_modes.check(times(3, 2, 1))) == [False, False, False, True, True]
    (failed,) = [c for c in threading_modes.check(times(1, 4, 3)) if not c.holds]
    assert failed.claim == "OTS takes less time than GTS"
    assert "processors busy" in failed.detail


def test_where_others_disturb_processor_time_is_compared() -> None:
    def point(way: str, seconds: float, cpu: float) -> threading_modes.Point:
        return threading_modes.Point(way, 100, seconds, cpu)

    points = (point("DI", 3, 1), *(point(way, 2, 2) for way in threading_modes.WAYS if way != "DI"))
    assert not threading_modes.check(threading_modes.Times(1, 100, 0.0, points))[0].holds
    assert not threading_modes.check(threading_modes.Times(1, 100, None, points))[0].holds
    assert threading_modes.check(threading_modes.Times(1, 100, 1.5, points))[0].holds


def scaled(*pairs: tuple[float, float]) -> scaling.Scaling:
    return scaling.Scaling(100, 0.0, tuple(
        scaling.Point(10**i, way, 0, seconds, seconds, 1)
        for i, pair in enumerate(pairs)
        for way, seconds in zip(scaling.COMPARED, pair, strict=True)
    ))  # fmt: skip


def test_claims_about_scaling() -> None:
    assert holds(scaling.check(scaled((1, 1.1), (2, 3), (3, 6)))) == [True, True, True]
    assert holds(scaling.check(scaled((1, 1.1), (2, 5), (3, 4)))) == [True, False, True]
    assert holds(scaling.check(scaled((1, 3), (20, 40), (300, 290)))) == [False, False, False]


def curve(way: str, finished: float, waiting: int, answered: float) -> hybrid.Curve:
    return hybrid.Curve(way, ((0.0, waiting), (9.0, waiting), (11.0, 10**9)), ((0.0, 0), (answered, 5)), finished)


def test_claims_about_hybrid() -> None:
    fifo = curve("GTS FIFO", 16, 10_000, 8)
    good = hybrid.Curves(10, 10.0, (curve("GTS Chain", 16.5, 3_000, 12), fifo, curve("HMTS", 11, 2_900, 6)))
    assert holds(hybrid.check(good)) == [True] * 6
    bad = hybrid.Curves(10, 10.0, (curve("GTS Chain", 20, 11_000, 7), fifo, curve("HMTS", 17, 13_000, 9)))
    assert holds(hybrid.check(bad)) == [False] * 6


def latencies(**of: float) -> architectures.Latencies:
    names = [c.name for c in (*architectures.TABLE, *architectures.MORE)]
    values = {n: of.get(n.replace(" ", "_"), 1.0) for n in names}
    points = tuple(architectures.Point(n, 1, value, 1.0, value, 1, 1) for n, value in values.items())
    return architectures.Latencies(1, 0.0, 1e-7, 1e-4, points)


def test_claims_about_architectures() -> None:
    good = latencies(CF1=9, CF3=8, CF2V1=4, CF2V2=2, CF4V1=3.5, CF5V2=3, CF6V2=3, CF6_synch=4, pool_of_4=2,
                     **{f"{n}_workers": 2.1 for n in (2, 3, 4)})  # fmt: skip
    assert holds(architectures.check(good)) == [True] * 9
    bad = latencies(CF1=1, CF3=1, CF2V1=4, CF2V2=4, CF4V1=4, CF5V2=4, CF6V2=3, CF6_synch=2,
                    **{"4_workers": 8.0})  # fmt: skip
    assert holds(architectures.check(bad)) == [False] * 9
    assert "a lock takes 100 ns, an element 100 µs" in architectures.check(bad)[6].detail


def joins(fed: list[tuple[float, float, float]], reused: list[tuple[float, int, int]]) -> join.Joins:
    return join.Joins(
        100,
        tuple(join.Fed(100.0 * (i + 1), *f) for i, f in enumerate(fed)),
        tuple(
            made
            for overlap, (seconds, remembered, work) in zip(join.OVERLAPS, reused, strict=False)
            for made in (
                join.Overlapped(overlap, False, 10.0, 2.0, 100, 1_000),
                join.Overlapped(overlap, True, seconds, seconds / 5, remembered, work),
            )
        ),
    )


def test_claims_about_joins() -> None:
    good = joins([(9, 1, 1), (4, 2, 5), (2, 4, 20), (2, 8, 40), (2, 9, 50)], [(9.5, 110, 900), (8, 130, 500)])
    assert holds(join.check(good)) == [True] * 9
    bad = joins([(2, 9, 50), (2, 2, 5), (9, 4, 20), (2, 8, 40), (3, 1, 1)], [(10, 110, 900), (12, 90, 1_500)])
    assert holds(join.check(bad)) == [False, False, False, False, True, False, False, False, False]


# -- rounds and noise -------------------------------------------------------------------------------------


def test_rounds_fit_into_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(common, "clock", lambda: now[0])

    def made(budget: float, each: float) -> int:
        count = 0
        for _ in common.rounds(budget, 5):
            count += 1
            now[0] += each
        return count

    assert made(10, 3) == 3
    assert made(10, 20) == 1
    assert made(10, 0.1) == 5


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


def test_a_claim_that_does_not_hold_is_seen_in_the_text() -> None:
    outcome = Outcome("x", "Title", 1.0, 1.5, (Claim("a", True, "1"), Claim("b", False, "because")), (), None)
    text = papers.text(outcome)
    assert "DOES NOT HOLD  b" in text
    assert "because" in text
    assert "other processes kept 1.5 processors busy" in text
    assert [r["ok"] for r in json.loads(papers.line([outcome]))["results"]] == [True, True, False]
