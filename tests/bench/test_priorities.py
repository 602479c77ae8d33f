"""The experiment of 004 §5: its plan, its clock, and how its claims are judged."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from experiments.papers import priorities
from experiments.papers.priorities import MODES, NAMES
from experiments.papers.priorities_plan import SOURCES, Prioritise, build, perform

from penstock.runtime.run import PUSHED, Runtime
from penstock.runtime.settings import Settings
from tests.bench.test_claims import made_priorities


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


def changed(
    prioritised: dict[tuple[str, str], float] | None = None, took: dict[tuple[str, str], float] | None = None
) -> list[str]:
    """The claims that fail if some latencies or run times are these times those of ``normal``."""
    good = made_priorities(True)
    points = []
    for p in good.rounds[0].points:
        key = p.strategy, p.mode
        if key in (prioritised or {}):
            p = dataclasses.replace(p, prioritised=p.every * (prioritised or {})[key])
        if key in (took or {}):
            p = dataclasses.replace(p, took=p.took * (took or {})[key])
        points.append(p)
    one = dataclasses.replace(good.rounds[0], points=tuple(points))
    return [c.claim for c in priorities.check(dataclasses.replace(good, rounds=(one,) * 5)) if c.holds is False]


def test_strategies_must_gain() -> None:
    losing = {(name, mode): 1.1 for name in NAMES[:6] for mode in ("direct", "weak")}
    assert changed(losing)[0].startswith("almost every strategy gains")
    (failure,) = changed({(name, "direct"): 0.7 for name in NAMES[:3]})
    assert failure.startswith("direct gains at least as much")
    assert changed({(name, "direct"): 0.7 for name in NAMES[:2]}) == []


def test_highest_priority_must_gain_most_and_much() -> None:
    assert changed({("round-robin", "direct"): 0.01}) == ["highest priority with direct gains most"]
    (failure,) = changed({(f"highest-priority{train}", "direct"): 0.2 for train in ("", "+")})
    assert "a factor of 10" in failure


def test_run_times_must_stay_but_for_the_two_that_look_at_everything() -> None:
    assert changed(took={(name, "weak"): 1.4 for name in priorities.LOOKS}) == []
    (failure,) = changed(took={("min-cost+", "weak"): 1.15})
    assert failure.startswith("modes leave run times")
    slow = {("round-robin", mode): 9.0 for mode in MODES}
    assert changed(took=slow) == ["highest priority and biggest queue without trains take longest"]
    slower = {("round-robin+", mode): 3.0 for mode in MODES}
    assert "trains have shorter runs, in every strategy" in changed(took=slower)


def test_priorities_in_a_plan_have_a_tenth_each() -> None:
    found, counts = np.unique(priorities.chances(100, 3, range(6, 11)), return_counts=True)
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == {0: 50, **dict.fromkeys(range(6, 11), 10)}
