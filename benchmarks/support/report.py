"""What a benchmark says: a line for each result with its bar, and last one JSON line. What all of them can be asked:
``--quick`` and ``--scale``.

In a process that ``penstock bench`` has started the same is said in lines of JSON, as soon as it is known.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

EVENTS = "PENSTOCK_BENCH_EVENTS"
"""Set in the environment of a benchmark whose lines another process reads."""


@dataclass(frozen=True)
class Result:
    """A number that was measured. ``bar`` None: reported only. ``below``: the bar is an upper limit."""

    name: str
    value: float
    bar: float | None = None
    ok: bool = True
    below: bool = False
    note: str = ""

    @property
    def margin(self) -> float | None:
        """How many times better than its bar: 1 just meets it."""
        if self.bar is None:
            return None
        good, less = (self.bar, self.value) if self.below else (self.value, self.bar)
        return good / less if less else float("inf")

    @property
    def said(self) -> str:
        """The bar, in words."""
        return "" if self.bar is None else f"{'≤' if self.below else '≥'} {self.bar:g}"

    def line(self) -> dict[str, object]:
        """What a program needs of it."""
        return {"name": self.name, "value": self.value, "bar": self.bar, "ok": self.ok}


@dataclass
class Report:
    """Collects results and says them."""

    benchmark: str
    results: list[Result] = field(default_factory=list)

    def add(self, name: str, value: float, bar: float | None = None, *, below: bool = False, note: str = "") -> None:
        """One result; ``ok`` says whether it meets its bar."""
        ok = bar is None or (value <= bar if below else value >= bar)
        result = Result(name, round(value, 4), bar, ok, below, note)
        self.results.append(result)
        if told():
            tell("result", **asdict(result))
            return
        sign = "" if bar is None else f"  (bar {result.said}: {'ok' if ok else 'MISSED'})"
        print(f"{name:58s} {value:12,.3f}{sign}{'  ' + note if note else ''}", flush=True)

    def finish(self) -> None:
        """The line for programs."""
        print(json.dumps({"benchmark": self.benchmark, "results": [r.line() for r in self.results]}), flush=True)


def told() -> bool:
    """Whether another process reads what is said."""
    return bool(os.environ.get(EVENTS))


def tell(event: str, **about: object) -> None:
    """Say something to the process that reads it."""
    print(json.dumps({"event": event, **about}), flush=True)


def progress(text: str) -> None:
    """Say what is going on, where somebody watches."""
    if told():
        tell("doing", text=text)
    elif sys.stderr.isatty():
        print(f"… {text}", file=sys.stderr, flush=True)


# -- sizes ------------------------------------------------------------------------------------------------


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data, to see it run; bars are not for this size")
    parser.add_argument("--scale", type=float, default=1.0, help="how much data; bars are for 1, the usual")
    return parser


def amount(arguments: argparse.Namespace, usual: int, quick: int | None = None, least: int = 1) -> int:
    """So many rows or rounds for this size. ``quick`` is by default a tenth."""
    if arguments.quick:
        return max(least, usual // 10 if quick is None else quick)
    return max(least, round(usual * float(arguments.scale)))


# -- times ------------------------------------------------------------------------------------------------


def timed(action: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def best(*actions: Callable[[], object], rounds: int = 3) -> list[float]:
    """The shortest time of each action; the actions take turns, so that a slow moment hits all of them."""
    times = [[timed(action) for action in actions] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]
