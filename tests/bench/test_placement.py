"""The experiment with constructions of virtual operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from experiments.papers import placement
from experiments.papers.placement import CONSTRUCTIONS, SIZES, Placements


@pytest.fixture(scope="module")
def results() -> Placements:
    return placement.run(0.1)


def test_a_point_for_each_size_and_construction(results: Placements) -> None:
    assert {(p.nodes, p.construction) for p in results.points} == {(s, c) for s in SIZES for c in CONSTRUCTIONS}
    assert all(p.negative <= 0 <= p.positive for p in results.points)


def test_the_same_seed_gives_the_same_numbers(results: Placements) -> None:
    def numbers(of: Placements) -> list[tuple[float, ...]]:
        return [(p.negative, p.positive, p.negatives, p.partitions) for p in of.points]

    assert numbers(placement.run(0.1)) == numbers(results)
    assert numbers(placement.run(0.1, seed=1)) != numbers(results)


def test_the_claim_holds(results: Placements) -> None:
    claim, _, holds, detail = placement.check(results)[0]
    assert "least negative capacity" in claim
    assert holds, detail


def test_a_claim_can_fail(results: Placements) -> None:
    worse = tuple(
        replace(p, negative=10 * p.negative - 1) if p.construction == "stall-avoiding" else p for p in results.points
    )
    checked = placement.check(replace(results, points=worse))
    assert [claim.holds for claim in checked[:2]] == [False, False]
    assert "not at 10, 20" in checked[1].detail


def test_the_figure_is_a_picture(results: Placements, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (path,) = placement.draw(results, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
