"""004 §5: latencies of prioritised and of other elements, by strategy and by the mode of the buffers.

Simulated operators, sixty of them up to nine deep, run by one thread (``priorities_plan``). Three elements in ten have
one of the priorities 8, 9 and 10. Elements come at a constant rate, more than one thread can do, so that queues build
up as they did for the paper: at a rate 1.3 times what round robin does when it never waits.

Lists for prioritised rows are compared by themselves besides, since what they cost does not show in a plan; and mode
``strong2`` with one to nine priorities in the plan, each of which a tenth of the elements has. All times are of the one
thread that works, so other processes change little.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.support.common import Others, Say, figure, geometric, logarithmic, mean, median, quiet, rounds, save

from experiments.papers.judging import ANSWERS, PROCESSOR, THREAD_CLOCK, Claim, Metric, below, judged, least
from experiments.papers.priorities_plan import Ints, Run, build, perform
from penstock.model.delta import Arrivals
from penstock.runtime.lanes import LANES
from penstock.runtime.settings import Settings

TITLE = "004 §5: prioritised elements"
MODES = ("normal", "direct", "weak", "strong", "strong1", "strong2")
STRATEGIES = ("round-robin", "min-cost", "min-latency", "biggest-queue", "highest-priority")
NAMES = tuple(name + train for name in STRATEGIES for train in ("", "+"))
PRIORITIES = (8, 9, 10)
EACH = 0.1
"""The part of the elements that has each of the priorities."""
LOAD = 1.3
"""Elements that come for each that one thread can do, by round robin without trains."""
LEVELS = (3, 30, 300)
WAITING = 1_000
"""How many levels, and how many prioritised rows wait, where lists are compared by themselves."""
SHOWN = ("direct", "weak", "strong")
"""The modes of Figure 4, and the best of the paper's third kind."""
PLANS = (1, 3, 6, 9)
"""Priorities in a plan, where ``strong2`` is compared."""
PLANNED = ("round-robin", "round-robin+", "highest-priority+")
LOOKS = ("highest-priority", "biggest-queue")
"""Strategies that look at all buffers; without trains, at every element."""
_ELEMENTS = 160
_PUTS = 2_000
_BUDGET = 100.0


@dataclass(frozen=True)
class Point:
    """A strategy and a mode: mean latencies in seconds of answers with and without priority, of all, and of each
    priority; and seconds until all was done."""

    strategy: str
    mode: str
    prioritised: float
    ordinary: float
    every: float
    levels: tuple[float, ...]
    took: float


@dataclass(frozen=True)
class Kept:
    """Seconds to put a prioritised row into a list and to take one out, where so many levels are among those that
    wait."""

    mode: str
    levels: int
    seconds: float


@dataclass(frozen=True)
class Planned:
    """So many priorities in a plan: the mean latency of prioritised elements in mode ``strong2`` and in ``strong``, in
    times of that in ``normal``."""

    strategy: str
    priorities: int
    strong2: float
    strong: float


@dataclass(frozen=True)
class Round:
    """One round of everything."""

    points: tuple[Point, ...]
    kept: tuple[Kept, ...]
    planned: tuple[Planned, ...]

    def of(self, strategy: str, mode: str) -> Point:
        return next(p for p in self.points if (p.strategy, p.mode) == (strategy, mode))

    def change(self, strategy: str, mode: str, field: str = "prioritised") -> float:
        """Against mode ``normal``: 0.5 is half of it."""
        now, before = (getattr(self.of(strategy, m), field) for m in (mode, "normal"))
        return float(now / max(before, 1e-9))


@dataclass(frozen=True)
class Priorities:
    """All of it. ``gap``: seconds from one element to the next. ``answers``: of every run, in order; ``others``: for
    each round, processors that other processes kept busy."""

    operators: int
    depth: int
    elements: int
    gap: float
    others: tuple[float | None, ...]
    answers: frozenset[tuple[int, ...]]
    rounds: tuple[Round, ...]

    @property
    def typical(self) -> Round:
        """The median of each number."""
        points = [_middle(own) for own in zip(*(r.points for r in self.rounds), strict=True)]
        kept = [
            Kept(own[0].mode, own[0].levels, median([k.seconds for k in own]))
            for own in zip(*(r.kept for r in self.rounds), strict=True)
        ]
        planned = [
            Planned(
                own[0].strategy, own[0].priorities, median([p.strong2 for p in own]), median([p.strong for p in own])
            )
            for own in zip(*(r.planned for r in self.rounds), strict=True)
        ]
        return Round(tuple(points), tuple(kept), tuple(planned))


def run(scale: float = 1.0, say: Say = quiet, seed: int = 5) -> Priorities:
    """All strategies and modes take turns with the same elements."""
    elements = max(20, round(_ELEMENTS * min(scale, 1.0)))
    priorities = chances(elements, seed)
    plan = build(priorities)
    say("what round robin can do")
    first = _settings("round-robin", "normal")
    gap = median([perform(priorities, 0.0, first).took for _ in range(3)]) / elements / LOAD
    made: list[Round] = []
    others: list[float | None] = []
    answers: set[tuple[int, ...]] = set()
    for i in rounds(_BUDGET * scale, 7, least(scale)):
        busy, points = Others(), []
        for strategy in NAMES:
            for mode in MODES:
                say(f"round {i + 1}: {strategy}, {mode}")
                done = perform(priorities, gap, _settings(strategy, mode))
                answers.add(tuple(np.sort(done.answers).tolist()))
                points.append(_point(strategy, mode, done, priorities))
        say(f"round {i + 1}: lists of prioritised rows, and priorities in a plan")
        kept = [Kept(mode, n, _kept(mode, n)) for n in LEVELS for mode in ("strong", "strong1", "strong2")]
        planned = [_plan(strategy, n, elements, gap, seed) for strategy in PLANNED for n in PLANS]
        made.append(Round(tuple(points), tuple(kept), tuple(planned)))
        others.append(busy.processors)
    operators = len(plan.sources) + len(plan.operators)
    return Priorities(operators, plan.depth, elements, gap, tuple(others), frozenset(answers), tuple(made))


def chances(elements: int, seed: int, levels: Sequence[int] = PRIORITIES) -> Ints:
    """The priorities of elements: as many of each as there should be, anywhere."""
    priorities = np.zeros(elements, np.int64)
    part = round(EACH * elements)
    for i, priority in enumerate(levels):
        priorities[i * part : (i + 1) * part] = priority
    return np.random.default_rng(seed).permutation(priorities)


def _settings(strategy: str, mode: str) -> Settings:
    return Settings(threading="graph", strategy=strategy, mode=mode)


def _point(strategy: str, mode: str, done: Run, priorities: Ints) -> Point:
    priority = priorities[done.answers]

    def of(*those: int) -> float:
        return float(done.latencies[np.isin(priority, those)].mean())

    every = float(done.latencies.mean())
    return Point(strategy, mode, of(*PRIORITIES), of(0), every, tuple(of(p) for p in PRIORITIES), done.took)


def _middle(own: Sequence[Point]) -> Point:
    def of(field: str) -> float:
        return median([getattr(p, field) for p in own])

    levels = tuple(median(column) for column in zip(*(p.levels for p in own), strict=True))
    return Point(own[0].strategy, own[0].mode, of("prioritised"), of("ordinary"), of("every"), levels, of("took"))


def _plan(strategy: str, levels: int, elements: int, gap: float, seed: int) -> Planned:
    """Latencies with so many priorities in the plan."""
    priorities = chances(elements, seed, range(10 - levels + 1, 11))
    found = {}
    for mode in ("normal", "strong2", "strong"):
        done = perform(priorities, gap, _settings(strategy, mode))
        found[mode] = float(done.latencies[priorities[done.answers] > 0].mean())
    return Planned(strategy, levels, *(found[mode] / max(found["normal"], 1e-9) for mode in ("strong2", "strong")))


def _kept(mode: str, levels: int) -> float:
    """Processor time, the least of several. In front of as many elements without priority."""
    one = Arrivals((), (), np.array([0]), np.array([0]), np.array([1]))
    ranks = np.random.default_rng(levels).integers(1, levels + 1, WAITING + _PUTS).tolist()
    lane = LANES[mode]()
    lane.ordinary(WAITING)
    for i in range(WAITING):
        lane.put((one, i, 0.0, ranks[i]))
    took = []
    for begin in range(WAITING, WAITING + _PUTS, _PUTS // 10):
        begun = time.thread_time()
        for i in range(begin, begin + _PUTS // 10):
            lane.put((one, i, 0.0, ranks[i]))
            if lane and lane.rank:
                lane.take()
        took.append(time.thread_time() - begun)
    return min(took) / (_PUTS // 10)


# -- claims -----------------------------------------------------------------------------------------------

ALMOST = 0.8
"""Almost all are at least so many of them."""
FACTOR = 10.0
WITHIN = 0.1
CHANCE = 1.05
"""What is no more than so many times something else is no more than that."""


Fact = tuple[str, Metric, bool, str]
"""A claim, its metric, whether a round agrees with it, and its numbers."""


def check(results: Priorities) -> list[Claim]:
    """What the paper says of Figure 4 and of its other tests, judged round by round; the numbers are medians."""
    rounds, others = [_facts(r) for r in results.rounds], results.others
    claims = [
        judged(
            "every run has the same answers",
            ANSWERS,
            [len(results.answers) == 1, all(results.answers)],
            (),
            f"{results.operators} operators, {results.depth} deep, {len(NAMES) * len(MODES)} ways",
        ),
    ]
    for (claim, metric, _, detail), *agrees in zip(_facts(results.typical), *rounds, strict=True):
        claims.append(judged(claim, metric, [agreed for _, _, agreed, _ in agrees], others, detail))
    for strategy in PLANNED:
        few, many = (
            [p.strong2 for r in results.rounds for p in r.planned if (p.strategy, p.priorities) == (strategy, n)]
            for n in (PLANS[0], PLANS[-1])
        )
        shown = ", ".join(
            f"{p.priorities}: {p.strong2:.2f} (a list for each level {p.strong:.2f})"
            for p in results.typical.planned
            if p.strategy == strategy
        )
        claims.append(
            below(
                f"strong2 gains less the more priorities a plan has, with {strategy}",
                THREAD_CLOCK,
                few,
                many,
                others,
                f"of the latency in normal mode, by priorities: {shown}",
            )
        )
    return claims


def _facts(results: Round) -> list[Fact]:
    change, of = results.change, results.of
    gains = {(s, m): change(s, m) for s in NAMES for m in ("direct", "weak")}
    won = [s for s in NAMES if change(s, "direct") <= CHANCE * change(s, "weak")]
    lost = [s for s in NAMES if s not in won]
    best = min(((s, m) for s in NAMES for m in MODES if m != "normal"), key=lambda way: change(*way))
    directly = [change(s, "direct") for s in ("highest-priority", "highest-priority+")]
    calm = [s for s in NAMES if s not in LOOKS]
    runs = {(s, m): change(s, m, "took") for s in calm for m in SHOWN}
    changed = [f"{s} {m} {c:.2f}" for (s, m), c in runs.items() if abs(c - 1) > WITHIN]
    looking = [mean([of(s, m).took for m in ("normal", *SHOWN)]) for s in LOOKS]
    rest = {s: mean([of(s, m).took for m in ("normal", *SHOWN)]) for s in calm}
    return [
        (
            "almost every strategy gains latency for prioritised elements, with direct and weak",
            THREAD_CLOCK,
            sum(c < 1 for c in gains.values()) >= ALMOST * len(gains),
            _list(results, NAMES, ("direct", "weak")),
        ),
        (
            "direct gains at least as much as weak in almost every strategy",
            THREAD_CLOCK,
            len(won) >= ALMOST * len(NAMES),
            f"in {len(won)} of {len(NAMES)}" + (f", not in {', '.join(lost)}" if lost else ""),
        ),
        (
            "highest priority with direct gains most",
            THREAD_CLOCK,
            best in {("highest-priority", "direct"), ("highest-priority+", "direct")},
            f"the most has {' '.join(best)}: {1 / change(*best):,.0f} times",
        ),
        (
            f"highest priority with direct gains a factor of {FACTOR:.0f} at least",
            THREAD_CLOCK,
            min(directly) <= 1 / FACTOR,
            f"{1 / directly[0]:,.0f} times, with trains {1 / directly[1]:,.0f} times",
        ),
        *_trains(results),
        (
            f"modes leave run times as they are, within {WITHIN:.0%}, but for highest priority and biggest queue "
            "without trains",
            PROCESSOR,
            not changed,
            ", ".join(changed) or f"from {min(runs.values()):.2f} to {max(runs.values()):.2f} of those in normal mode",
        ),
        (
            "highest priority and biggest queue without trains take longest",
            PROCESSOR,
            min(looking) > max(rest.values()),
            ", ".join(f"{s} {t:.2f} s" for s, t in zip(LOOKS, looking, strict=True))
            + f", others up to {max(rest.values()):.2f} s",
        ),
        (
            "min-latency gains next to nothing",
            THREAD_CLOCK,
            all(gains[s, m] > 0.8 for s in ("min-latency", "min-latency+") for m in ("direct", "weak")),
            _list(results, ("min-latency", "min-latency+"), ("direct", "weak")),
        ),
        _best_of_all(results),
        *_lists(results),
    ]


def _list(results: Round, names: Collection[str], modes: Sequence[str]) -> str:
    changes = [f"{s} {' and '.join(f'{results.change(s, m):.2g}' for m in modes)}" for s in names]
    return f"of the latency in normal mode, {' and '.join(modes)}: " + ", ".join(changes)


def _trains(results: Round) -> list[Fact]:
    def typical(strategy: str, field: str) -> float:
        return geometric([getattr(results.of(strategy, mode), field) for mode in ("normal", *SHOWN)])

    found: list[Fact] = []
    for metric, field, what in (
        (THREAD_CLOCK, "every", "lower latencies over all elements"),
        (PROCESSOR, "took", "shorter runs"),
    ):
        ratios = {s: typical(f"{s}+", field) / typical(s, field) for s in STRATEGIES}
        shown = ", ".join(f"{s} {ratio:.2f}" for s, ratio in ratios.items())
        found.append(
            (
                f"trains have {what}, in every strategy",
                metric,
                max(ratios.values()) < 1,
                f"{shown} of what it is without",
            )
        )
    return found


def _best_of_all(results: Round) -> Fact:
    every = {train: {s + train: results.of(s + train, "normal").every for s in STRATEGIES} for train in ("", "+")}
    return (
        "min-latency has the best latency over all elements, among those with and among those without trains",
        THREAD_CLOCK,
        all(own[f"min-latency{train}"] <= CHANCE * min(own.values()) for train, own in every.items()),
        ", ".join(f"{s} {1e3 * latency:.0f} ms" for own in every.values() for s, latency in own.items())
        + "; in trains an element waits for its train, whatever works next",
    )


def _lists(results: Round) -> list[Fact]:
    levels = [geometric([results.of(s, "strong").levels[i] for s in NAMES]) for i in range(len(PRIORITIES))]
    kept = {(k.mode, k.levels): k.seconds for k in results.kept}
    shown = "; ".join(
        f"{n} levels {', '.join(f'{1e6 * kept[m, n]:.1f}' for m in ('strong', 'strong1', 'strong2'))} µs"
        for n in LEVELS
    )
    multiplied = [results.change(s, "strong1") / results.change(s, "strong") for s in NAMES]
    return [
        (
            "three priorities have nearly the same latencies, although strong order tells them apart",
            THREAD_CLOCK,
            max(levels) < 1.25 * min(levels),
            ", ".join(f"{p}: {1e3 * latency:.1f} ms" for p, latency in zip(PRIORITIES, levels, strict=True)),
        ),
        (
            "strong order in one list multiplies latencies",
            THREAD_CLOCK,
            geometric(multiplied) > 1.5,
            f"{geometric(multiplied):.2f} times those with a list for each level; up to a hundred rows wait here, "
            "and finding a place among them takes microseconds",
        ),
        (
            "(not the paper's) a list for each level costs less than one list and than two",
            PROCESSOR,
            all(kept["strong", n] < min(kept["strong1", n], kept["strong2", n]) for n in LEVELS),
            f"a row in and out where {WAITING:,} wait, a list for each level, one list, two: {shown}",
        ),
    ]


# -- figures ----------------------------------------------------------------------------------------------


def draw(results: Priorities, folder: Path) -> list[Path]:
    """Figure 4, and the run times, of which the paper has none."""
    more, found = (
        f"{results.operators} operators, {results.elements:,} elements, rounds: {len(results.rounds)}",
        results.typical,
    )
    drawn, axes = figure(f"{TITLE}: latency against normal mode (cf. Figure 4)\n{more}", 2, width=14, height=6)
    for ax, field, what in zip(axes, ("prioritised", "ordinary"), ("prioritised", "other"), strict=True):
        _bars(ax, {mode: [found.change(s, mode, field) for s in NAMES] for mode in SHOWN}, 1.0)
        ax.axhline(1, color="black", linewidth=1)
        logarithmic(ax.yaxis)
        ax.set_ylabel(f"latency of {what} elements, normal mode = 1")
    latency = save(drawn, folder / "004-figure-04-latency.png")
    drawn, (ax,) = figure(f"{TITLE}: run times\n{more}", width=10, height=6)
    _bars(ax, {mode: [found.of(s, mode).took for s in NAMES] for mode in MODES})
    ax.axhline(results.elements * results.gap, color="grey", linestyle="--", linewidth=1)
    ax.set_ylabel("run time [s]; dashed: the last element comes")
    return [latency, save(drawn, folder / "004-run-times.png")]


def _bars(ax: Any, series: dict[str, list[float]], bottom: float = 0.0) -> None:
    """Bars side by side for each strategy, from ``bottom`` up or down."""
    width = 0.8 / len(series)
    for i, (name, values) in enumerate(series.items()):
        at = [x + (i - (len(series) - 1) / 2) * width for x in range(len(values))]
        ax.bar(at, [value - bottom for value in values], width, bottom, label=name)
    ax.set_xticks(range(len(NAMES)), NAMES, rotation=45, ha="right")
    ax.legend(fontsize=8)
