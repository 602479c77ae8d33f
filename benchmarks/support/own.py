"""The project's own benchmarks: which there are, running one, and the report about them.

A benchmark is a module of the folder ``benchmarks``. The first line of its docstring says what it measures.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.support import processes
from benchmarks.support.places import ROOT, python_path
from benchmarks.support.processes import Event
from benchmarks.support.report import Result
from penstock.model.errors import InputError, suggest

PACKAGE = "benchmarks"
INSTALL = "pip install 'penstock[bench]'"


@dataclass
class Outcome:
    """One benchmark that was run, or as far as it came. ``error`` says why it did not come to its end."""

    name: str
    title: str
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)
    error: str | None = None


def home() -> Path:
    """The folder that holds the package of benchmarks."""
    return ROOT


@cache
def benchmarks() -> dict[str, str]:
    """Each benchmark with what it measures; those without Spark first, as they are short."""
    found = {}
    for path in sorted((home() / PACKAGE).glob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if said and not path.stem.startswith("_"):
            found[path.stem] = said.splitlines()[0].rstrip(".").replace("``", "")
    return dict(sorted(found.items(), key=lambda item: item[0].startswith("spark")))


def chosen(names: Sequence[str]) -> list[str]:
    """These benchmarks, or all if there is no name."""
    every = benchmarks()
    for name in names:
        if name not in every:
            close = suggest(name, every) or ""
            listed = f"the benchmarks are {', '.join(every)}"
            raise InputError(
                f"unknown benchmark `{name}`", hint=f"{close} {listed}" if close.startswith("did") else listed
            )
    return [name for name in every if not names or name in names]


def perform(
    name: str,
    size: Sequence[str],
    outcome: Outcome,
    doing: Callable[[str], None],
    tick: Callable[[float], None] = lambda seconds: None,
) -> None:
    """Run a benchmark in a process of its own; ``outcome`` has its results as soon as they are known."""

    def heard(event: Event) -> None:
        match event.get("event"):
            case "doing":
                doing(str(event["text"]))
            case "result":
                outcome.results.append(Result(**{key: value for key, value in event.items() if key != "event"}))

    def ticking(seconds: float) -> None:
        outcome.seconds = seconds
        tick(seconds)

    where = home()
    ended = processes.run(
        [sys.executable, "-m", f"{PACKAGE}.{name}", *size], heard, ticking, folder=where,
        environment={"PYTHONPATH": python_path(where)},
    )  # fmt: skip
    outcome.seconds, outcome.error = ended.seconds, ended.error
    if ended.error is not None and ended.error.startswith("ModuleNotFoundError"):
        outcome.error = f"{ended.error}; {INSTALL}"


# -- the report -------------------------------------------------------------------------------------------


def rows(outcome: Outcome, missed: str) -> list[tuple[str, str, str, str]]:
    """Name, value, bar, and whether it is met, for each result; ``missed`` is the word for one that is not."""
    words = {(False, True): "ok", (False, False): missed}
    return [
        (name, f"{r.value:,.3f}", r.said, words.get((r.bar is None, r.ok), "")) for name, r in named(outcome)
    ]


def named(outcome: Outcome) -> list[tuple[str, Result]]:
    """Results by what tells them apart within the benchmark."""
    return [(r.name.removeprefix(f"{outcome.name.replace('_', ' ')}: "), r) for r in outcome.results]


def line(outcomes: Sequence[Outcome]) -> str:
    """For programs: one line of JSON, with whether each benchmark came to its end."""
    results = []
    for outcome in outcomes:
        whole = outcome.error is None
        results.append({"name": f"{outcome.name}: finished", "value": int(whole), "bar": 1, "ok": whole})
        results += [{**result.line(), "name": f"{outcome.name}: {name}"} for name, result in named(outcome)]
    return json.dumps({"benchmark": "own", "results": results}, ensure_ascii=False)


def write(
    outcomes: Sequence[Outcome], size: str, where: dict[str, object], figures: Sequence[Path], path: Path
) -> None:
    """``report.json``: what was measured, and where."""
    report = {
        "benchmark": "own",
        "size": size,
        "machine": where,
        "figures": [figure.name for figure in figures],
        "benchmarks": [
            {
                "name": outcome.name,
                "title": outcome.title,
                "seconds": round(outcome.seconds, 2),
                "error": outcome.error,
                "results": [asdict(result) for result in outcome.results],
            }
            for outcome in outcomes
        ],
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
