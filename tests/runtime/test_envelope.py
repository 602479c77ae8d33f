"""The lower envelope against its definition."""

from __future__ import annotations

import doctest
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime import envelope
from penstock.runtime.envelope import Segment, lower_envelope

# Numbers whose sums, products and differences are exact, so that ties are ties.
EXACT_COSTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
EXACT_SELECTIVITIES = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
EXACT_PATHS = st.lists(st.tuples(EXACT_COSTS, EXACT_SELECTIVITIES), max_size=8)
PATHS = st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 4)), max_size=30)


def definition(path: list[tuple[float, float]]) -> list[Segment]:
    """From each point the steepest line to a later point; of equal ones the lowest end if they are vertical, then
    the furthest."""
    points = [(0.0, 1.0)]
    for cost, selectivity in path:
        t, r = points[-1]
        points.append((t + cost * r, r * selectivity))

    def steepness(i: int, j: int) -> float:
        (t, r), (later, less) = points[i], points[j]
        if later > t:
            return (r - less) / (later - t)
        return 0.0 if r == less else math.inf if r > less else -math.inf

    segments, i = [], 0
    while i < len(path):

        def rank(j: int, i: int = i) -> tuple[float, float, int]:
            steep = steepness(i, j)
            return steep, -points[j][1] if steep == math.inf else 0.0, j

        j = max(range(i + 1, len(points)), key=rank)
        segments.append(Segment(i, j, steepness(i, j)))
        i = j
    return segments


@given(EXACT_PATHS)
def test_as_defined(path: list[tuple[float, float]]) -> None:
    assert lower_envelope([c for c, _ in path], [s for _, s in path]) == definition(path)


@given(PATHS)
def test_segments_cover_the_path_and_get_less_steep(path: list[tuple[float, float]]) -> None:
    segments = lower_envelope([c for c, _ in path], [s for _, s in path])
    ends = [0, *(s.stop for s in segments)]
    assert [s.start for s in segments] == ends[:-1]
    assert ends[-1] == len(path)
    assert all(a.steepness > b.steepness for a, b in pairwise(segments))
    assert not any(math.isnan(s.steepness) for s in segments)


@given(PATHS)
def test_no_operator_lies_below_the_envelope(path: list[tuple[float, float]]) -> None:
    points = [(0.0, 1.0)]
    for cost, selectivity in path:
        points.append((points[-1][0] + cost * points[-1][1], points[-1][1] * selectivity))
    for segment in lower_envelope([c for c, _ in path], [s for _, s in path]):
        t, r = points[segment.start]
        for later, left in points[segment.start : segment.stop + 1]:
            if math.isfinite(segment.steepness):
                line = r - segment.steepness * (later - t)
                assert left >= line - 1e-9 * (r + abs(line) + left)


def test_two_groups_as_in_the_comparison_of_fifo_and_chain() -> None:
    """001 §6.6: the projection goes with the selection behind it; the expensive selection stands alone."""
    first, second = lower_envelope([2.7e-6, 530e-9, 2.0], [1.0, 9e-4, 0.3])
    assert (first.start, first.stop, second.start, second.stop) == (0, 2, 2, 3)
    assert first.steepness == pytest.approx((1 - 9e-4) / 3.23e-6)
    assert second.steepness == pytest.approx(0.7 / 2.0)


@pytest.mark.parametrize(
    ("costs", "selectivities", "expected"),
    [
        ([], [], []),
        ([0.0], [0.5], [Segment(0, 1, math.inf)]),
        ([0.0], [2.0], [Segment(0, 1, -math.inf)]),
        ([0.0], [1.0], [Segment(0, 1, 0.0)]),
        ([1.0, 1.0], [2.0, 0.25], [Segment(0, 2, 0.5 / 3.0)]),  # the second pays for the first
        ([1.0, 1.0], [0.5, 2.0], [Segment(0, 1, 0.5), Segment(1, 2, -1.0)]),
        ([1.0, 5.0, 5.0], [0.0, 1.0, 0.5], [Segment(0, 3, 1.0)]),  # nothing comes to the last two
    ],
)
def test_at_the_edges(costs: list[float], selectivities: list[float], expected: list[Segment]) -> None:
    assert lower_envelope(costs, selectivities) == expected


@pytest.mark.parametrize(
    ("costs", "selectivities"), [([1.0], []), ([-1.0], [1.0]), ([1.0], [math.nan]), ([math.inf], [1.0])]
)
def test_what_is_no_path_is_refused(costs: list[float], selectivities: list[float]) -> None:
    with pytest.raises(ValueError, match=r"selectivities"):
        lower_envelope(costs, selectivities)


def test_products_that_overflow_do_not() -> None:
    assert not any(math.isnan(s.steepness) for s in lower_envelope([1e300] * 9, [1e300] * 9))


def test_doctest() -> None:
    assert doctest.testmod(envelope).failed == 0
