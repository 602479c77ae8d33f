"""What is measured: latencies, rates, and the answers to a burst."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.demo.clock import SimulatedClock
from penstock.demo.figures import LATEST, Burst, Latencies, Meter, Pushes, Rate


def answers(*ts: int) -> pa.Table:
    return pa.table({"ts": pa.array(ts, pa.int64()), "op": ["+"] * len(ts), "n": pa.array(ts, pa.int64())})


def test_quantiles_are_those_of_the_numbers_within_five_percent() -> None:
    numbers = np.random.default_rng(1).lognormal(-5, 1.5, 10_000)
    found = Latencies()
    for part in np.array_split(numbers, 7):
        found.add(part)
    for share in (0.01, 0.5, 0.99):
        assert found.quantile(share) == pytest.approx(np.quantile(numbers, share), rel=0.05)
    assert len(found) == 10_000
    assert found.longest == numbers.max()


def test_there_is_no_quantile_of_nothing() -> None:
    assert Latencies().quantile(0.5) is None
    assert Latencies().longest is None


def test_a_rate_is_of_the_last_seconds() -> None:
    rate = Rate()
    for second in range(10):
        rate.note(float(second), 100)
    assert rate.total == 1_000
    assert rate.a_second(9.0, since=0.0) == pytest.approx(400 / 3)
    assert rate.a_second(30.0, since=0.0) == 0
    rate.note(31.0, 5)
    assert rate.a_second(31.5, since=30.5) == 5


def test_an_answer_counts_from_the_last_push_that_it_needed() -> None:
    pushes = Pushes(["a", "b"])
    pushes.note("a", 10, 1.0)
    pushes.note("b", 10, 2.0)
    pushes.note("a", 20, 3.0)
    ts = np.array([5, 10, 15])
    assert pushes.latest(["a"], ts).tolist() == [1.0, 3.0, 3.0]
    # b has not passed 10: what came nevertheless did not need it.
    assert pushes.latest(["a", "b"], ts).tolist() == [2.0, 3.0, 3.0]
    assert pushes.latest(["a"], np.array([20])).tolist() == [3.0]


def test_alarms_are_compared_with_their_neighbours() -> None:
    burst = Burst(100, 200, rows=50, alarms=np.array([150]), others=3)
    assert burst.compared().alarm_longest is None
    assert burst.add(np.array([99, 150, 200]), np.array([9.0, 0.01, 9.0])).tolist() == [False, True, False]
    first = burst.compared()
    assert (first.answered, first.alarm_longest, first.neighbours, first.done) == (1, 0.01, None, False)
    burst.add(np.array([110, 148, 190]), np.array([0.1, 0.5, 0.9]))
    found = burst.compared()
    assert found.done
    assert (found.rows, found.alarms, found.others) == (50, 1, 3)
    assert (found.alarm_longest, found.neighbours, found.other_longest) == (0.01, 0.5, 0.9)
    assert burst.compared() is found


def test_a_meter_keeps_the_newest_answers_and_leaves_the_burst_out_of_its_latencies() -> None:
    clock, pushes = SimulatedClock(), Pushes(["s"])
    meter = Meter(clock.now, ["s"], pushes)
    meter.burst = Burst(100, 200, rows=1, alarms=np.array([150]), others=0)
    pushes.note("s", 1_000, 0.0)
    clock.sleep(0.5)
    meter(answers(*range(50, 50 + LATEST)))
    clock.sleep(1.5)
    meter(answers(150))
    found = meter.read(since=0.0)
    assert found.answers == LATEST + 1
    assert found.latest is not None
    assert found.latest["n"].to_pylist() == [*range(51, 50 + LATEST), 150]
    assert found.p50 == pytest.approx(0.5, rel=0.05)
    assert found.p99 == pytest.approx(0.5, rel=0.05)
    assert found.burst is not None
    assert found.burst.alarm_longest == 2.0
    meter.reset(300)
    meter(answers(299))
    assert meter.read(since=0.0).answers == 0
    meter(answers(299, 300, 301))
    assert meter.read(since=0.0).answers == 2
