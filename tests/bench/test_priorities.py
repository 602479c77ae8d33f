"""The experiment of 004 §5: its plan, its clock, and how its claims are judged."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from benchmarks.support.common import Claim
from experiments.papers import priorities
from experiments.papers.priorities import LEVELS, MODES, NAMES, Kept, Point, Priorities
from experiments.papers.priorities_plan import SOURCES, Prioritise, build, perform

from penstock.runtime.run import PUSHED, Runtime
from penstock.runtime.settings import Settings


def test_the_plan_is_as_the_paper_says() -> None:
    plan = build(priorities.chances(40, 1))
    assert len(plan.sources) + len(plan.operators) == 60
    assert plan.depth == 9
    assert len({v.id for v in (*plan.sources, *plan.operators)}) == 60
    runtime = Runtime()
    try:
        plan.place(runtime, Settings(threading="graph"))
        assert runtime.threads == 1
        buffers = runtime.buffers
        for vertex in plan.operators:
            for edge in vertex.inputs:
                behind = edge.source in plan.sources or isinstance(edge.source, Prioritise)
                assert (edge in buffers) == (behind or len(vertex.inputs) == 2)
        assert all(runtime.partition_of[source.id] == PUSHED for source in plan.sources)
    finally:
        runtime.close()


def test_a_tenth_has_each_priority() -> None:
    found, counts = np.unique(priorities.chances(200, 3), return_counts=True)
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == {0: 140, 8: 20, 9: 20, 10: 20}


@pytest.mark.parametrize("strategy", ["round-robin", "highest-priority+"])
def test_all_modes_have_the_same_answers(strategy: str) -> None:
    ranks = priorities.chances(60, 2)
    answers = [
        np.sort(perform(ranks, 5e-4, Settings(threading="graph", strategy=strategy, mode=mode)).answers).tolist()
        for mode in MODES
    ]
    assert answers[0]
    assert all(own == answers[0] for own in answers)


def test_elements_come_when_they_are_due_also_if_nothing_is_left_to_do() -> None:
    """An hour passes at once."""
    ranks = priorities.chances(4 * SOURCES, 2)
    done = perform(ranks, 3600.0, Settings(threading="graph", strategy="fifo"))
    assert done.took >= 3600 * (len(ranks) - 1)
    assert (done.latencies >= 0).all()
    assert (done.latencies < 3600).all()


def test_answers_without_backlog_come_in_the_order_of_elements() -> None:
    done = perform(priorities.chances(20, 2), 3600.0, Settings(threading="graph", strategy="fifo", mode="direct"))
    at = done.answers * 3600.0 + done.latencies
    assert (np.diff(done.answers[np.argsort(at, kind="stable")]) >= 0).all()


# -- claims -----------------------------------------------------------------------------------------------


def made(
    prioritised: dict[tuple[str, str], float] | None = None, took: dict[tuple[str, str], float] | None = None
) -> Priorities:
    """As the paper has it, but for what is given: latencies and run times against ``normal``."""
    latency = {"normal": 1.0, "direct": 0.3, "weak": 0.5, "strong": 0.5, "strong1": 1.5, "strong2": 0.6}
    points = []
    for name in NAMES:
        slow = name in priorities.LOOKS
        for mode in MODES:
            ratio = 1.0 if name.startswith("min-latency") else latency[mode]
            if name.startswith("highest-priority") and mode == "direct":
                ratio = 0.02
            ratio = (prioritised or {}).get((name, mode), ratio)
            base = 0.8 if name.startswith("min-latency") else 2.0 if slow else 1.0
            base *= 0.5 if name.endswith("+") else 1.0
            time = base * (took or {}).get((name, mode), 1.0)
            points.append(Point(name, mode, ratio * base, base, base, (ratio * base,) * 3, time))
    kept = [Kept(mode, n, s) for n in LEVELS for mode, s in (("strong", 1e-6), ("strong1", 3e-6), ("strong2", 2e-6))]
    return Priorities(1, 60, 9, 100, 1e-3, 10, tuple(points), tuple(kept))


def failed(results: Priorities) -> list[str]:
    claims = priorities.check(results)
    assert all(isinstance(claim, Claim) and claim.detail for claim in claims)
    return [claim.claim for claim in claims if not claim.holds]


def test_all_claims_hold_of_what_the_paper_found() -> None:
    assert failed(made()) == []


def test_strategies_must_gain() -> None:
    losing = {(name, mode): 1.1 for name in NAMES[:6] for mode in ("direct", "weak")}
    assert failed(made(losing))[0].startswith("almost every strategy gains")
    (failure,) = failed(made({(name, "direct"): 0.7 for name in NAMES[:3]}))
    assert failure.startswith("direct gains at least as much")
    assert failed(made({(name, "direct"): 0.7 for name in NAMES[:2]})) == []


def test_highest_priority_must_gain_most_and_much() -> None:
    assert failed(made({("round-robin", "direct"): 0.01})) == ["highest priority with direct gains most"]
    weaker = {(f"highest-priority{train}", "direct"): 0.2 for train in ("", "+")}
    (failure,) = failed(made(weaker))
    assert "a factor of 10" in failure


def test_run_times_must_stay_but_for_the_two_that_look_at_everything() -> None:
    assert failed(made(took={(name, "weak"): 1.4 for name in priorities.LOOKS})) == []
    (failure,) = [c for c in priorities.check(made(took={("min-cost+", "weak"): 1.15})) if not c.holds]
    assert failure.claim.startswith("modes leave run times")
    assert "min-cost+ weak 1.15" in failure.detail
    slow = {("round-robin", mode): 9.0 for mode in MODES}
    assert failed(made(took=slow)) == ["highest priority and biggest queue without trains take longest"]
    slower = {("round-robin+", mode): 3.0 for mode in MODES}
    assert any(claim.startswith("trains are better") for claim in failed(made(took=slower)))


def test_lists_are_compared_at_every_number_of_levels() -> None:
    good = made()
    kept = [dataclasses.replace(k, seconds=9.0) if (k.mode, k.levels) == ("strong", 300) else k for k in good.kept]
    (failure,) = failed(dataclasses.replace(good, kept=tuple(kept)))
    assert failure.startswith("a list for each level costs less")
    assert failed(dataclasses.replace(good, answers=None)) == ["every run has the same answers"]
