"""Histograms against exact percentiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.latency import BUCKETS, LEAST, Histogram, buckets, middle
from tests import budget

times = st.floats(0.0, 10_000.0) | st.floats(0.0, 1e-3)
batches = st.lists(st.lists(times, min_size=1, max_size=40), min_size=1, max_size=6)
MOST = 2 ** (1 / 8)


def of(seconds: list[float], weight: float = 1.0) -> Histogram:
    found = Histogram()
    found.add(np.array(seconds), np.full(len(seconds), weight))
    return found


def exact(seconds: list[float], part: float) -> float:
    """The least of these than which this part is not greater."""
    return sorted(seconds)[max(0, int(np.ceil(part * len(seconds) - 1e-9)) - 1)]


@settings(max_examples=budget.examples(300), deadline=None)
@given(batches, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_histograms_that_are_added_have_the_percentiles_of_all_times(batches: list[list[float]], part: float) -> None:
    together = sum((of(batch) for batch in batches), Histogram())
    found, wanted = together.quantile(part), exact([s for batch in batches for s in batch], part)
    assert found is not None
    if wanted < LEAST:
        assert found == 0.0
    else:
        assert wanted / MOST <= found <= wanted * MOST


@settings(max_examples=budget.examples(200), deadline=None)
@given(batches, batches)
def test_what_has_faded_counts_less(old: list[list[float]], new: list[list[float]]) -> None:
    """Faded by a half, every old time counts as often as half of a new one."""
    before, after = [s for b in old for s in b], [s for b in new for s in b]
    histogram = of(before)
    histogram.fade(0.5)
    histogram.add(np.array(after), np.ones(len(after)))
    twice = of([*before, *after, *after])
    assert histogram.weights * 2 == pytest.approx(twice.weights)
    assert histogram.quantile(0.5) == twice.quantile(0.5)


@given(st.integers(1, BUCKETS - 2))
def test_a_bucket_has_its_middle(bucket: int) -> None:
    assert buckets(np.array([middle(bucket)])).tolist() == [bucket]


def test_the_ends() -> None:
    assert Histogram().quantile(0.5) is None
    assert buckets(np.array([-1.0, 0.0, 1e-9, 1e9])).tolist() == [0, 0, 0, BUCKETS - 1]
