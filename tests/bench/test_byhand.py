"""Operators that are written by hand for systems that have none, against the jobs' own numbers."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.compare import runner
from benchmarks.compare.jobs import Tally
from benchmarks.compare.runner import Comparison
from benchmarks.peers import byhand
from benchmarks.peers.byhand import Data, Hopping, Join, Latencies, Sliding


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    folder = tmp_path_factory.mktemp("data")
    comparison = Comparison(0.1, ["sliding", "join", "hopping"])
    runner.prepare(comparison, folder)
    return comparison, folder


def by_hand(data: Data) -> Tally:
    found = byhand.Tally()
    if data.job == "sliding":
        slides: dict[int, Sliding] = {}
        for t, k, v in (row for some in data.rows("s") for row in some):
            found.add(sum(slides.setdefault(k, Sliding(data.window)).add(t, v)))
    elif data.job == "hopping":
        hops: dict[int, Hopping] = {}
        ended = []
        for t, k, v in (row for some in data.rows("s", 7) for row in some if row[1] >= 0):
            ended += hops.setdefault(k, Hopping(data.window, data.hop)).add(t, v)
        for hop in hops.values():
            ended += hop.until()
        for _, n, m in ended:
            found.add(n + m)
    else:
        joins: dict[int, Join] = {}
        for side, stream in enumerate("rs"):
            for t, k, v in (row for some in data.rows(stream) for row in some):
                for both in joins.setdefault(k, Join(data.window)).add(side, t, v):
                    found.add(both)
    return Tally(found.answers, found.checksum)


@pytest.mark.parametrize("name", ["sliding", "hopping"])
def test_by_hand_gives_the_same(name: str, made: tuple[Comparison, Path]) -> None:
    comparison, folder = made
    assert by_hand(Data(str(folder / name))).same(comparison.expected[name])


def test_pairs_by_hand() -> None:
    join = Join(10)
    assert join.add(0, 1, 100) == []
    assert join.add(1, 2, 7) == [107]
    assert join.add(1, 11, 8) == []  # ten apart
    assert join.add(0, 12, 200) == [208]
    assert join.add(0, 20, 300) == [308]
    assert join.add(1, 21, 1) == [201, 301]


def test_a_pair_by_hand_in_any_order_of_streams(made: tuple[Comparison, Path]) -> None:
    """Rows of a side are in order; how the sides are mixed does not matter as long as nobody is a window ahead."""
    comparison, folder = made
    data = Data(str(folder / "join"))
    joins: dict[int, Join] = {}
    found = byhand.Tally()
    for several in zip(data.rows("r", 50), data.rows("s", 50), strict=True):
        for side, some in enumerate(several):
            for t, k, v in some:
                for both in joins.setdefault(k, Join(data.window)).add(side, t, v):
                    found.add(both)
    assert Tally(found.answers, found.checksum).same(comparison.expected["join"])


def test_the_folder_of_a_job(made: tuple[Comparison, Path]) -> None:
    _, folder = made
    data = Data(str(folder / "join"))
    assert Path(data.csv("s")).is_file()
    assert Path(data.csv("s", names=False)).is_file()
    assert sum(map(len, data.rows("r"))) == data.rows_of_stream
    with pytest.raises(AttributeError):
        data.nothing  # noqa: B018


def test_latencies_of_the_second_half() -> None:
    waits = Latencies(1_000, 4)
    waits.begin()
    waits.came = [waits.start + 9, waits.start + 9, waits.start + 0.003, waits.start + 0.005]
    assert {name: round(value, 6) for name, value in waits.middle().items()} == {"p50": 2.0, "p99": 2.0}


def test_rows_come_when_they_are_due() -> None:
    pieces = list(byhand.paced(1_000, 10))
    assert pieces[0][0] == 0
    assert pieces[-1][1] == 10
    assert all(before[1] == after[0] for before, after in pairwise(pieces))


def test_what_a_script_says(
    made: tuple[Comparison, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sliding(data: Data) -> dict[str, object]:
        found = byhand.Tally()
        found.add(5.0)
        return byhand.result(found, 1.5, "note")

    _, folder = made
    monkeypatch.setattr(sys, "argv", ["x", str(folder / "sliding")])
    byhand.main([sliding], {}, 2.0)
    byhand.main([], {"sliding": "it has none"}, 2.0)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "event": "measured", "job": "sliding", "start_up": 2.0, "answers": 1, "checksum": 5.0, "note": "note",
        "seconds": 1.5,
    }  # fmt: skip
    assert second == {"event": "measured", "job": "sliding", "why": "it has none"}
