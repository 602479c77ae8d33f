"""The experiments of the papers by name, and the report about them."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.common import Say, clock, disturbed, machine, quiet

from experiments.papers import (
    architectures,
    buffering,
    decoupling,
    designated,
    estimate,
    hybrid,
    join,
    placement,
    priorities,
    scaling,
    threading_modes,
)
from experiments.papers.judging import ROUNDS, SIGNIFICANCE, Claim
from penstock.model.errors import InputError, suggest

LIMIT = 900.0
"""Seconds that all experiments together may take at scale 1."""
VERDICTS: Mapping[bool | None, str] = {True: "holds", False: "DOES NOT HOLD", None: "not judged"}


@dataclass(frozen=True)
class Experiment:
    """``run(scale, say)`` measures, ``check(results)`` compares with the claims, ``draw(results, folder)`` makes
    figures and gives their paths."""

    title: str
    run: Callable[[float, Say], Any]
    check: Callable[[Any], Sequence[Claim]]
    draw: Callable[[Any, Path], Sequence[Path]]


EXPERIMENTS: Mapping[str, Experiment] = {
    "architectures": Experiment(architectures.TITLE, architectures.run, architectures.check, architectures.draw),
    "decoupling": Experiment(decoupling.TITLE, decoupling.run, decoupling.check, decoupling.draw),
    "threading": Experiment(threading_modes.TITLE, threading_modes.run, threading_modes.check, threading_modes.draw),
    "scaling": Experiment(scaling.TITLE, scaling.run, scaling.check, scaling.draw),
    "hybrid": Experiment(hybrid.TITLE, hybrid.run, hybrid.check, hybrid.draw),
    "placement": Experiment(placement.TITLE, placement.run, placement.check, placement.draw),
    "buffers": Experiment(buffering.TITLE, buffering.run, buffering.check, buffering.draw),
    "join": Experiment(join.TITLE, join.run, join.check, join.draw),
    "estimate": Experiment(estimate.TITLE, estimate.run, estimate.check, estimate.draw),
    "priorities": Experiment(priorities.TITLE, priorities.run, priorities.check, priorities.draw),
    "designated": Experiment(designated.TITLE, designated.run, designated.check, designated.draw),
}


@dataclass(frozen=True)
class Outcome:
    """One experiment that was run."""

    name: str
    title: str
    seconds: float
    claims: tuple[Claim, ...]
    figures: tuple[Path, ...]
    results: Any


def chosen(names: Sequence[str]) -> list[str]:
    """These experiments, or all if there is no name."""
    for name in names:
        if name not in EXPERIMENTS:
            close = suggest(name, EXPERIMENTS) or ""
            every = f"the experiments are {', '.join(EXPERIMENTS)}"
            hint = f"{close} {every}" if close.startswith("did") else every
            raise InputError(f"unknown experiment `{name}`", hint=hint)
    return [name for name in EXPERIMENTS if not names or name in names]


def perform(name: str, scale: float, folder: Path | None, say: Say = quiet) -> Outcome:
    """Run one experiment; figures are drawn where there is a folder for them."""
    experiment, begun = EXPERIMENTS[name], clock()
    results = experiment.run(scale, say)
    figures = () if folder is None else tuple(experiment.draw(results, folder))
    return Outcome(name, experiment.title, clock() - begun, tuple(experiment.check(results)), figures, results)


def busy(outcome: Outcome) -> tuple[int, int]:
    """How many of its rounds other processes disturbed, and how many there were."""
    others = getattr(outcome.results, "others", ())
    return sum(map(disturbed, others)), len(others)


def text(outcome: Outcome) -> str:
    """For people."""
    head = f"{outcome.title}  ({outcome.name}, {outcome.seconds:.0f} s)"
    found = [head, "=" * len(head)]
    lost, rounds = busy(outcome)
    if lost:
        found.append(f"other processes disturbed {lost} of {rounds} rounds; these do not count for times and latencies")
    for claim, metric, holds, detail in outcome.claims:
        found.append(f"  {VERDICTS[holds]:14} {claim}  [{metric}]")
        found += textwrap.wrap(detail, 118, initial_indent=" " * 17, subsequent_indent=" " * 17)
    found += [f"  figure         {path}" for path in outcome.figures]
    return "\n".join(found) + "\n"


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many claims hold, do not, and were not judged."""
    held = [claim.holds for outcome in outcomes for claim in outcome.claims]
    return f"{held.count(True)} claims hold, {held.count(False)} do not, {held.count(None)} were not judged"


def line(outcomes: Sequence[Outcome]) -> str:
    """For programs: one line of JSON. A claim that holds has the value 1; one that was not judged is left out."""
    seconds = round(sum(outcome.seconds for outcome in outcomes), 1)
    results: list[dict[str, object]] = [{"name": "seconds", "value": seconds, "bar": LIMIT, "ok": seconds <= LIMIT}]
    for outcome in outcomes:
        for claim in outcome.claims:
            if claim.holds is not None:
                name, value = f"{outcome.name}: {claim.claim}", int(claim.holds)
                results.append({"name": name, "value": value, "bar": 1, "ok": claim.holds})
    return json.dumps({"benchmark": "papers", "results": results}, ensure_ascii=False)


def write(outcomes: Sequence[Outcome], scale: float, path: Path) -> None:
    """``report.json``: what was measured, the claims, and where."""
    report = {
        "benchmark": "papers",
        "scale": scale,
        "machine": machine(),
        "judged": {"rounds": ROUNDS, "significance": SIGNIFICANCE},
        "experiments": [
            {
                "name": outcome.name,
                "title": outcome.title,
                "seconds": round(outcome.seconds, 2),
                "disturbed": busy(outcome)[0],
                "rounds": busy(outcome)[1],
                "claims": [c._asdict() for c in outcome.claims],
                "figures": [figure.name for figure in outcome.figures],
                "results": _numbers(outcome.results),
            }
            for outcome in outcomes
        ],
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _numbers(results: Any) -> dict[str, Any]:
    """All that was measured, without the answers, which are many."""
    names = [field.name for field in dataclasses.fields(results) if not field.name.startswith("answers")]
    return {name: _plain(getattr(results, name)) for name in names}


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    if dataclasses.is_dataclass(value):
        return _numbers(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
