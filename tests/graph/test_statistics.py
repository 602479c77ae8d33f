"""Averages of operators that fade."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.graph.statistics import HALF_LIFE, Statistics
from tests import budget

SECOND = 1_000_000_000
Call = tuple[float, int, int, int]
"""Seconds since the call before, elements in and out, busy nanoseconds."""

calls = st.lists(
    st.tuples(st.floats(0.0, 20.0), st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 10**9)),
    min_size=1, max_size=60,
)  # fmt: skip


def told(stats: Statistics, some: list[Call]) -> list[int]:
    """Count calls as an operator does; gives when they were."""
    times = [stats.until + round(at * SECOND) for at in accumulate(call[0] for call in some)]
    for now, (_, came, left, busy) in zip(times, some, strict=True):
        stats.add(1, came, left, busy, now)
    return times


@settings(max_examples=budget.examples(200), deadline=None)
@given(calls)
def test_an_average_is_that_of_exponential_decay(some: list[Call]) -> None:
    """Calls of a sixteenth of the half-life have one weight, so each weight is off by so much of a halving at most."""
    stats = Statistics()
    times = told(stats, some)
    weights = [0.5 ** ((times[-1] - at) / SECOND / HALF_LIFE) for at in times]
    most = 2 ** (1 / 16) * 1.0001
    came = sum(w * call[1] for w, call in zip(weights, some, strict=True))
    for found, place in ((stats.selectivity, 2), (stats.cost, 3)):
        exact = sum(w * call[place] for w, call in zip(weights, some, strict=True)) / came
        exact *= 1e-9 if place == 3 else 1
        assert found is not None
        assert exact / most**2 <= found <= exact * most**2 or found == pytest.approx(exact, abs=1e-12)


@settings(max_examples=budget.examples(100), deadline=None)
@given(calls, calls)
def test_what_is_saved_goes_on(before: list[Call], after: list[Call]) -> None:
    one, other = Statistics(), Statistics()
    told(one, before)
    other.load(one.save())
    assert (other.calls, other.elements_in, other.elements_out, other.busy) == (
        one.calls, one.elements_in, one.elements_out, one.busy,
    )  # fmt: skip
    assert other.selectivity == pytest.approx(one.selectivity)
    one.fade(one.until)
    other.fade(other.until)
    told(one, after)
    told(other, after)
    assert other.selectivity == pytest.approx(one.selectivity)
    assert other.cost == pytest.approx(one.cost)


def test_averages_that_were_saved_without_fading_are_of_a_lifetime() -> None:
    stats = Statistics()
    stats.load([3, 100, 25, 1_000, SECOND])
    assert stats.selectivity == 0.25
    assert stats.cost == pytest.approx(1e-8)


def test_a_selectivity_is_what_it_is_now() -> None:
    stats = Statistics()
    told(stats, [(0.1, 100, 0, 0)] * 1000)
    told(stats, [(0.1, 100, 100, 0)] * 600)
    assert stats.elements_out / stats.elements_in < 0.4
    assert stats.selectivity is not None
    assert stats.selectivity > 0.99


def test_an_operator_to_which_nothing_comes_keeps_its_averages() -> None:
    stats = Statistics()
    told(stats, [(1.0, 10, 5, 10_000)])
    told(stats, [(100_000.0, 1, 1, 0)])
    assert (stats.selectivity, stats.cost) == (1.0, 0.0)
    assert stats.interarrival == pytest.approx(100_000.0)


def test_operators_of_a_database_fade(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that let nothing through lets everything through now."""
    now = [0]
    monkeypatch.setattr("penstock.graph.vertices._clock", lambda: now[0])
    monkeypatch.setattr("penstock.graph.statistics.time.perf_counter_ns", lambda: now[0])
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        db.query("SELECT v FROM s WHERE v > 0")
        for i in range(100):
            now[0] += SECOND
            db.push("s", [(i, 0 if i < 50 else 1)])
        (chosen,) = [o for o in db.graph().operators if o.kind == "filter"]
        assert (chosen.elements_in, chosen.elements_out) == (100, 50)
        assert chosen.selectivity is not None
        assert chosen.selectivity > 0.99
        assert chosen.interarrival == pytest.approx(1.0)
