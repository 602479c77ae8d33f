"""How a claim is judged: by the metric that it names, in at least five rounds, with a sign test.

Ways that are compared take turns in every round, so a round gives one comparison. A claim holds if so many rounds agree
with it that chance would do so in at most one of twenty cases. Beside the order stands the magnitude: the median of the
rounds' ratios, and the least and the greatest.

Other processes on the machine change elapsed times and latencies: rounds that they disturb do not count for such a
metric. Processor time and counts stay. Where fewer than five rounds are left, the claim is *not judged*, whatever other
metrics say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from benchmarks.support.common import disturbed, median

ROUNDS = 5
SIGNIFICANCE = 0.05


class Metric(NamedTuple):
    """What a claim is about. ``disturbed``: other processes change it. ``exact``: it is the same in every round, so one
    round says all."""

    name: str
    disturbed: bool = False
    exact: bool = False


ELAPSED = Metric("elapsed time", disturbed=True)
LATENCY = Metric("latency", disturbed=True)
RATE = Metric("rows taken in a second", disturbed=True)
WAITING = Metric("elements that wait", disturbed=True)
THREAD_CLOCK = Metric("latency by the clock of the thread that works")
PROCESSOR = Metric("processor time")
SWITCHES = Metric("waits of threads")
COUNT = Metric("count", exact=True)
ANSWERS = Metric("answers", exact=True)


class Claim(NamedTuple):
    """What is claimed, by which metric it is judged, whether it holds here (None: not judged), and the numbers."""

    claim: str
    metric: str
    holds: bool | None
    detail: str


Others = Sequence[float | None]
"""For each round, how many processors other processes kept busy meanwhile; None where nobody can tell."""


def least(scale: float) -> int:
    """Rounds that are needed: below scale 1 one, which judges nothing but counts."""
    return ROUNDS if scale >= 1 else 1


def sign_test(agreeing: int, rounds: int) -> float:
    """The chance that at least so many of the rounds agree if each does or does not by the toss of a coin.

    >>> sign_test(5, 5)
    0.03125
    """
    return math.fsum(math.comb(rounds, k) for k in range(agreeing, rounds + 1)) / math.ldexp(1.0, rounds)


def judged(claim: str, metric: Metric, agrees: Sequence[bool], others: Others, detail: str) -> Claim:
    """Judge a claim by whether each round agrees with it."""
    if metric.exact:
        return Claim(claim, metric.name, bool(agrees) and all(agrees), detail)
    counted = [
        agreed for agreed, busy in zip(agrees, others, strict=True) if not (metric.disturbed and disturbed(busy))
    ]
    if len(counted) < ROUNDS:
        lost = len(agrees) - len(counted)
        why = f"{len(counted)} rounds count, {ROUNDS} are needed"
        return Claim(claim, metric.name, None, f"{detail}; {why}" + (f"; {lost} were disturbed" if lost else ""))
    chance = sign_test(sum(counted), len(counted))
    said = f"{sum(counted)} of {len(counted)} rounds agree (p = {chance:.3f})"
    return Claim(claim, metric.name, chance <= SIGNIFICANCE, f"{detail}; {said}")


def below(
    claim: str,
    metric: Metric,
    less: Sequence[float],
    more: Sequence[float],
    others: Others,
    shown: str = "",
    *,
    factor: float = 1.0,
) -> Claim:
    """The first is less than ``factor`` times the second, round by round."""
    agrees = [a < factor * b for a, b in zip(less, more, strict=True)]
    return judged(claim, metric, agrees, others, "; ".join(part for part in (shown, magnitude(less, more)) if part))


def alike(
    claim: str, metric: Metric, ways: Sequence[Sequence[float]], limit: float, others: Others, shown: str = ""
) -> Claim:
    """In a round the greatest of all ways is less than ``limit`` times the least."""
    spread = [max(own) / max(min(own), 1e-12) for own in zip(*ways, strict=True)]
    said = f"the greatest is {_range(spread)} times the least"
    return judged(claim, metric, [s < limit for s in spread], others, "; ".join(p for p in (shown, said) if p))


def same_answers(claim: str, ways: Iterable[Counter[Hashable]], detail: str) -> Claim:
    """All ways have the same answers, each as often, and there are some."""
    first, *more = ways
    return judged(claim, ANSWERS, [bool(first), *(own == first for own in more)], (), detail)


def multiset(table: pa.Table) -> Counter[Hashable]:
    """The answers of a query, each with how often it was given, in whatever order."""
    columns = [table[name].to_pylist() for name in table.column_names]
    return Counter(zip(*columns, strict=True))


def magnitude(less: Sequence[float], more: Sequence[float]) -> str:
    """The first in times the second."""
    return f"{_range([a / max(b, 1e-12) for a, b in zip(less, more, strict=True)])} times"


def _range(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def poisson(chance: np.random.Generator, count: int, rate: float) -> list[float]:
    """When each of ``count`` elements comes, in seconds: so many in a second on average, at random (001 §6.2)."""
    return list(np.cumsum(chance.exponential(1 / rate, count)).tolist()) if rate < math.inf else [0.0] * count
