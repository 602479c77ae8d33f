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

from benchmarks.support.common import Claim, Others, Say, clock, disturbed, machine, quiet

from experiments.papers import (
    architectures,
    buffering,
    designated,
    hybrid,
    join,
    placement,
    priorities,
    scaling,
    threading_modes,
)
from penstock.model.errors import InputError, suggest

LIMIT = 120.0
"""Seconds that an experiment may take at scale 1."""


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
    "threading": Experiment(threading_modes.TITLE, threading_modes.run, threading_modes.check, threading_modes.draw),
    "scaling": Experiment(scaling.TITLE, scaling.run, scaling.check, scaling.draw),
    "hybrid": Experiment(hybrid.TITLE, hybrid.run, hybrid.check, hybrid.draw),
    "placement": Experiment(placement.TITLE, placement.run, placement.check, placement.draw),
    "buffers": Experiment(buffering.TITLE, buffering.run, buffering.check, buffering.draw),
    "join": Experiment(join.TITLE, join.run, join.check, join.draw),
    "priorities": Experiment(priorities.TITLE, priorities.run, priorities.check, priorities.draw),
    "designated": Experiment(designated.TITLE, designated.run, designated.check, designated.draw),
}


@dataclass(frozen=True)
class Outcome:
    """One experiment that was run. ``others``: processors that other processes kept busy meanwhile."""

    name: str
    title: str
    seconds: float
    others: float | None
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
    experiment = EXPERIMENTS[name]
    others, begun = Others(), clock()
    results = experiment.run(scale, say)
    seconds, busy = clock() - begun, others.processors
    figures = () if folder is None else tuple(experiment.draw(results, folder))
    return Outcome(name, experiment.title, seconds, busy, tuple(experiment.check(results)), figures, results)


def text(outcome: Outcome) -> str:
    """For people."""
    head = f"{outcome.title}  ({outcome.name}, {outcome.seconds:.0f} s)"
    found = [head, "=" * len(head)]
    if disturbed(outcome.others):
        found.append(f"other processes kept {outcome.others:.1f} processors busy meanwhile")
    for claim, holds, detail in outcome.claims:
        found.append(f"  {'holds         ' if holds else 'DOES NOT HOLD '} {claim}")
        found += textwrap.wrap(detail, 118, initial_indent=" " * 17, subsequent_indent=" " * 17)
    found += [f"  figure         {path}" for path in outcome.figures]
    return "\n".join(found) + "\n"


def line(outcomes: Sequence[Outcome]) -> str:
    """For programs: one line of JSON. A claim that holds has the value 1."""
    results: list[dict[str, object]] = []
    for outcome in outcomes:
        seconds = round(outcome.seconds, 1)
        results.append({"name": f"{outcome.name}: seconds", "value": seconds, "bar": LIMIT, "ok": seconds <= LIMIT})
        for claim, holds, _ in outcome.claims:
            results.append({"name": f"{outcome.name}: {claim}", "value": int(holds), "bar": 1, "ok": holds})
    return json.dumps({"benchmark": "papers", "results": results}, ensure_ascii=False)


def write(outcomes: Sequence[Outcome], scale: float, path: Path) -> None:
    """``report.json``: what was measured, the claims, and where."""
    report = {
        "benchmark": "papers",
        "scale": scale,
        "machine": machine(),
        "experiments": [
            {
                "name": outcome.name,
                "title": outcome.title,
                "seconds": round(outcome.seconds, 2),
                "processors_of_others": None if outcome.others is None else round(outcome.others, 2),
                "claims": [c._asdict() for c in outcome.claims],
                "figures": [figure.name for figure in outcome.figures],
                "results": _plain(dataclasses.asdict(outcome.results)),
            }
            for outcome in outcomes
        ],
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
