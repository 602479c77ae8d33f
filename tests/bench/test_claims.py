"""How claims are judged: of every experiment, measurements with which all claims hold and some with which all fail."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from experiments.papers import (
    architectures,
    buffering,
    decoupling,
    designated,
    estimate,
    hybrid,
    join,
    judging,
    placement,
    priorities,
    scaling,
    threading_modes,
)
from experiments.papers.judging import COUNT, LATENCY, PROCESSOR, Claim, below, judged
from experiments.papers.report import EXPERIMENTS

Values = tuple[float, ...]
Answers = Counter[Hashable]
QUIET = (0.0,) * 5
BUSY = (1.5,) * 5
SAME: Answers = Counter({(1, 2): 3, (2, 2): 1})
OTHER: Answers = Counter({(1, 2): 1, (2, 2): 3})
"""As many answers, but not the same."""


def five(value: float) -> Values:
    """Five rounds, each a little different."""
    return tuple(value * (1 + 0.001 * i) for i in range(5))


# -- made-up measurements ---------------------------------------------------------------------------------


def made_architectures(good: bool, others: Values = QUIET) -> architectures.Latencies:
    names = [c.name for c in (*architectures.TABLE, *architectures.MORE)]
    if good:
        latency = {"CF1": 9, "CF3": 8, "CF2V1": 4, "CF2V2": 1.5, "CF4V1": 3.5, "CF5V2": 2, "CF6V2": 3, "CF6 synch": 7}
        cpu = {"CF1": 9, "CF3": 8, "CF4V1": 4, "CF5V2": 3}
        switches = {"CF1": 9, "CF3": 8, "CF4V1": 2, "CF5V2": 2, "pool of 1": 1, "pool of 4": 5}
    else:
        latency = {"CF1": 1, "CF3": 1, "CF2V1": 2, "CF2V2": 9, "CF4V1": 3, "CF5V2": 4, "CF6V2": 3, "CF6 synch": 5,
                   "CF6 linked": 3, "4 workers": 90}  # fmt: skip
        cpu = {"CF4V1": 4, "CF5V2": 5}
        switches = {"CF4V1": 2, "CF5V2": 2, "CF2V2": 1, "4 workers": 8}
    more = dict.fromkeys(architectures.WORKERS[1:], 1.6) if good else {}
    points = tuple(
        architectures.Point(
            n, 1, five({**more, **latency}.get(n, 1.0)), five(cpu.get(n, 1.0)), five(switches.get(n, 1.0)), 1, 1
        )
        for n in names
    )
    return architectures.Latencies(others, 1e-7, 1e-4, points, (SAME, SAME if good else OTHER))


def made_decoupling(good: bool, others: Values = QUIET) -> decoupling.Decoupling:
    rate = {"direct": 900.0, "hybrid": 4_000.0} if good else {"direct": 3_990.0, "hybrid": 2_000.0}
    needs = {"direct": 9e-4, "hybrid": 1e-4} if good else {"direct": 1e-4, "hybrid": 9e-4}
    return decoupling.Decoupling(1.0, others, tuple(
        decoupling.Taken(name, way, five(rate[way]), (7,) * 5, five(needs[way]))
        for name in decoupling.JOINS for way in decoupling.WAYS
    ))  # fmt: skip


def made_threading(good: bool, others: Values = QUIET) -> threading_modes.Times:
    seconds = {"DI": 1.0, "OTS": 2.0, "GTS Chain": 3.0, "GTS FIFO": 3.1, "OTS in trains": 0.5}
    if not good:
        seconds = {"DI": 5.0, "OTS": 3.0, "GTS Chain": 1.0, "GTS FIFO": 2.0, "OTS in trains": 4.0}
    bent = 1 if good else 3
    points = [
        threading_modes.Point(way, m, five(s * m * (bent if m == 200 else 1)), five(s * m))
        for way, s in seconds.items()
        for m in (100, 200)
    ]
    return threading_modes.Times(100, others, tuple(points), (SAME, SAME if good else OTHER))


def made_scaling(good: bool, others: Values = QUIET) -> scaling.Scaling:
    pairs = ((1, 1.1), (2, 3), (3, 6)) if good else ((1, 3), (20, 40), (300, 290))
    points = [
        scaling.Point(10**i, way, 0, five(seconds), five(seconds))
        for i, pair in enumerate(pairs)
        for way, seconds in zip(scaling.COMPARED, pair, strict=True)
    ]
    return scaling.Scaling(100, others, tuple(points), (SAME, SAME if good else OTHER))


def made_hybrid(good: bool, others: Values = QUIET) -> hybrid.Curves:
    def curve(way: str, finished: float, waiting: int, answered: float) -> hybrid.Curve:
        return hybrid.Curve(way, ((0.0, waiting), (9.0, waiting), (11.0, 10**9)), ((0.0, 0), (answered, 5)), finished)

    fifo = curve("GTS FIFO", 16, 10_000, 8)
    chain, hmts = (
        (curve("GTS Chain", 16.5, 3_000, 12), curve("HMTS", 11, 2_900, 6))
        if good
        else (curve("GTS Chain", 20, 11_000, 7), curve("HMTS", 17, 13_000, 9))
    )
    return hybrid.Curves(10, 10.0, others, (chain, fifo, hmts) * 5, (SAME, SAME if good else OTHER))


def made_placement(good: bool, others: Values = QUIET) -> placement.Placements:
    points = []
    for size in placement.SIZES:
        for name in placement.CONSTRUCTIONS:
            best = (name == "stall-avoiding") is good
            points.append(
                placement.Point(
                    size, name, -1.0 if best else -2.0, 1.0, 1.0 if best else 2.0, 5.0, 0.1 if good else 2.0
                )
            )
    return placement.Placements(3, tuple(points))


def made_buffers(good: bool, others: Values = QUIET) -> buffering.Buffering:
    points = []
    for i, size in enumerate(buffering.SIZES):
        spilled = max(0, 100 * (i - 1)) if good else 50 * (6 - i) * (i > 1)
        value = 1.0 + spilled / 100 if good else 3.0 - spilled / 1000
        points.append(buffering.Point(size, five(value), five(value), five(value), spilled))
    return buffering.Buffering(10, others, tuple(points), (SAME, SAME if good else OTHER))


def made_join(good: bool, others: Values = QUIET) -> join.Joins:
    if good:
        fed = [(9.0, 1.0, 1.0), (4.0, 2.0, 5.0), (2.0, 4.0, 20.0), (2.0, 8.0, 40.0), (2.0, 9.0, 50.0)]
        ways = [(10.0, 9.0, 9.0, 110), (10.0, 8.0, 8.0, 120), (10.0, 6.0, 7.0, 130), (10.0, 3.0, 6.0, 140)]
    else:
        fed = [(2.0, 9.0, 50.0), (2.0, 2.0, 5.0), (9.0, 4.0, 20.0), (2.0, 8.0, 40.0), (3.0, 1.0, 1.0)]
        ways = [(10.0, 9.0, 9.0, 110), (10.0, 9.5, 8.0, 90), (20.0, 9.6, 7.0, 130), (10.0, 11.0, 12.0, 90)]
    overlapped = []
    for overlap, (without, seconds, response, remembered) in zip(join.OVERLAPS, ways, strict=True):
        overlapped += [
            join.Overlapped(overlap, False, five(without), five(without), five(10.0), (100,) * 5),
            join.Overlapped(overlap, True, five(seconds), five(seconds), five(response), (remembered,) * 5),
        ]
    return join.Joins(
        100, others, tuple(join.Fed(100.0 * (i + 1), *map(five, f)) for i, f in enumerate(fed)), others,
        tuple(overlapped),
        (SAME, SAME if good else OTHER), ((SAME, SAME if good else OTHER),) * len(join.OVERLAPS),
    )  # fmt: skip


def made_estimate(good: bool, others: Values = QUIET) -> estimate.Gains:
    gains = [
        estimate.Gain(*windows, five(0.05), five(0.01 if good else 0.2), five(0.06 if good else 0.1))
        for windows in estimate.WINDOWS
    ]
    return estimate.Gains(others, tuple(gains), ((SAME, SAME if good else OTHER),) * len(gains))


def made_designated(good: bool, others: Values = QUIET) -> designated.Designated:
    points = []
    for pushed in ("single", "batches"):
        for rows in designated.SIZES:
            for i, rate in enumerate(designated.RATES):
                ratio = 0.5 + 0.1 * i if good else 1.5 - 0.1 * i
                points += [
                    designated.Point(pushed, rows, rate, "naive", 100, five(1.0), five(1.0)),
                    designated.Point(pushed, rows, rate, "smart", 100 * ratio, five(ratio), five(ratio)),
                ]
    analysed = [
        designated.Analysed(
            rows, k, min(1.0, rows / k), min(1.0, rows / k) + (0 if good else 0.5), five(0.5 if good else 2)
        )
        for rows, k in designated.ANALYSED
    ]
    return designated.Designated(
        0.1, 0.5, others, tuple(points), tuple(analysed), ((SAME, SAME if good else OTHER),) * 4
    )  # fmt: skip


def made_priorities(good: bool, others: Values = QUIET) -> priorities.Priorities:
    """As the paper has it, or the contrary of all of it."""
    latency = {"normal": 1.0, "direct": 0.3, "weak": 0.5, "strong": 0.5, "strong1": 1.5, "strong2": 0.6}
    if not good:
        latency = {"normal": 1.0, "direct": 1.3, "weak": 1.1, "strong": 1.1, "strong1": 1.1, "strong2": 0.6}
    points = []
    for name in priorities.NAMES:
        for mode in priorities.MODES:
            ratio = (1.0 if good else 0.5) if name.startswith("min-latency") else latency[mode]
            if name.startswith("min-latency") and mode == "normal":
                ratio = 1.0
            if good and name.startswith("highest-priority") and mode == "direct":
                ratio = 0.02
            base = 2.0 if name in priorities.LOOKS else 1.0
            if name.startswith("min-latency"):
                base = 0.8 if good else 3.0
            base *= (0.5 if good else 1.5) if name.endswith("+") else 1.0
            time = base * (1.0 if good or mode == "normal" else 1.4)
            levels = (ratio * base, ratio * base, ratio * base * (1 if good else 2))
            points.append(priorities.Point(name, mode, ratio * base, base, base, levels, time))
    costs = (
        {"strong": 1e-6, "strong1": 3e-6, "strong2": 2e-6}
        if good
        else {"strong": 4e-6, "strong1": 3e-6, "strong2": 2e-6}
    )
    kept = tuple(priorities.Kept(mode, n, s) for n in priorities.LEVELS for mode, s in costs.items())
    planned = tuple(
        priorities.Planned(s, n, 0.1 * n if good else 1 / n, 0.1) for s in priorities.PLANNED for n in priorities.PLANS
    )
    one = priorities.Round(tuple(points), kept, planned)
    answers = frozenset({(1, 1, 2)} if good else {(1, 1, 2), (1, 2, 2)})
    return priorities.Priorities(60, 9, 100, 1e-3, others, answers, (one,) * 5)


MADE: dict[str, Callable[..., Any]] = {
    "architectures": made_architectures,
    "decoupling": made_decoupling,
    "threading": made_threading,
    "scaling": made_scaling,
    "hybrid": made_hybrid,
    "placement": made_placement,
    "buffers": made_buffers,
    "join": made_join,
    "estimate": made_estimate,
    "priorities": made_priorities,
    "designated": made_designated,
}


def verdicts(claims: Sequence[Claim]) -> dict[str, bool | None]:
    assert all(claim.detail and claim.metric for claim in claims)
    found = {claim.claim: claim.holds for claim in claims}
    assert len(found) == len(claims), "every claim says something else"
    return found


def test_every_experiment_has_made_up_measurements() -> None:
    assert set(MADE) == set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_claim_holds_of_some_measurements(name: str) -> None:
    found = verdicts(EXPERIMENTS[name].check(MADE[name](True)))
    assert [claim for claim, holds in found.items() if holds is not True] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_claim_fails_of_others(name: str) -> None:
    found = verdicts(EXPERIMENTS[name].check(MADE[name](False)))
    assert [claim for claim, holds in found.items() if holds is not False] == []


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "placement"])
@pytest.mark.parametrize("good", [True, False])
def test_on_a_busy_machine_times_are_not_judged_and_nothing_else_stands_for_them(name: str, good: bool) -> None:
    for claim in EXPERIMENTS[name].check(MADE[name](good, BUSY)):
        disturbed = claim.metric in {
            m.name for m in vars(judging).values() if isinstance(m, judging.Metric) and m.disturbed
        }
        assert claim.holds is (None if disturbed else good), claim.claim


# -- judging ----------------------------------------------------------------------------------------------


def test_five_of_five_rounds_are_enough_and_four_of_five_are_not() -> None:
    assert judged("c", PROCESSOR, [True] * 5, QUIET, "d").holds is True
    assert judged("c", PROCESSOR, [True] * 4 + [False], QUIET, "d").holds is False
    assert judged("c", PROCESSOR, [True] * 8 + [False], (0.0,) * 9, "d").holds is True
    assert judged("c", PROCESSOR, [True] * 4, (0.0,) * 4, "d").holds is None
    assert "5 are needed" in judged("c", PROCESSOR, [True] * 4, (0.0,) * 4, "d").detail


def test_the_sign_test() -> None:
    assert judging.sign_test(5, 5) == 1 / 32
    assert judging.sign_test(0, 5) == 1
    assert judging.sign_test(7, 8) == 9 / 256


def test_disturbed_rounds_do_not_count_for_latencies() -> None:
    others = (0.0, 1.5, 0.0, None, 0.0, 0.1)
    agrees = [True, False, True, True, True, True]
    assert judged("c", LATENCY, agrees, others, "d").holds is True
    assert judged("c", PROCESSOR, agrees, others, "d").holds is False
    assert judged("c", LATENCY, agrees, (*others[:5], 0.9), "d").holds is None


def test_counts_need_no_rounds() -> None:
    assert judged("c", COUNT, [True], (), "d").holds is True
    assert judged("c", COUNT, [True, False], (), "d").holds is False
    assert judged("c", COUNT, [], (), "d").holds is False


def test_magnitudes_stand_beside_the_order() -> None:
    claim = below("c", PROCESSOR, [1, 2, 3, 4, 5], [2, 4, 6, 8, 20], QUIET)
    assert claim.holds is True
    assert claim.detail.startswith("0.5 (0.25 to 0.5) times")


def test_answers_are_compared_as_multisets() -> None:
    table = pa.table({"ts": [1, 2, 2], "v": [5, 6, 6]})
    assert judging.multiset(table) == judging.multiset(table.take([2, 0, 1]))
    assert judging.multiset(table) != judging.multiset(pa.table({"ts": [1, 1, 2], "v": [5, 5, 6]}))
    nothing: Answers = Counter()
    assert judging.same_answers("c", (nothing, nothing), "d").holds is False


def test_poisson_arrivals_have_their_rate() -> None:
    times = judging.poisson(np.random.default_rng(1), 10_000, 50.0)
    gaps = np.diff(times)
    assert (gaps > 0).all()
    assert 190 < times[-1] < 210
    assert 0.9 < gaps.std() / gaps.mean() < 1.1  # of an exponential distribution they are equal
    assert judging.poisson(np.random.default_rng(1), 3, math.inf) == [0.0, 0.0, 0.0]


def test_the_papers_estimate() -> None:
    """By hand: 3 · 0.1 + 4 / 12 + 0.5 · ((4 + 1 + 4 + 2) · 2 / 6 + 2) · 1 · 0.2."""
    assert estimate.estimate(3, 0.1, 2.0, 4.0, (1.0, 1.0), 0.5, 0.2) == pytest.approx(
        0.3 + 4 / 12 + 0.5 * ((5 + 6) * 2 / 6 + 2) * 0.2
    )


# -- single claims ----------------------------------------------------------------------------------------


def failing(claims: Sequence[Claim]) -> list[str]:
    return [claim.claim for claim in claims if claim.holds is False]


def test_one_way_that_is_slower_fails_its_own_claim_only() -> None:
    good = made_threading(True)
    slow = tuple(
        replace(p, seconds=tuple(9 * s for s in p.seconds)) if p.way == "OTS" else p for p in good.points
    )  # fmt: skip
    assert failing(threading_modes.check(replace(good, points=slow))) == ["OTS takes less time than GTS"]


def test_single_steps_back_do_not_count_against_growth() -> None:
    def scaled(*pairs: tuple[float, float]) -> scaling.Scaling:
        return replace(made_scaling(True), points=tuple(
            scaling.Point(10**i, way, 0, five(seconds), five(seconds))
            for i, pair in enumerate(pairs) for way, seconds in zip(scaling.COMPARED, pair, strict=True)
        ))  # fmt: skip

    assert failing(scaling.check(scaled((1, 1.1), (2, 3), (3, 6), (4, 9), (5, 11), (6, 11.9)))) == []
    assert any("gap in time" in claim for claim in failing(scaling.check(scaled((1, 1.1), (2, 5), (3, 4)))))
