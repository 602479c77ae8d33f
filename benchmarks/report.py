"""What every benchmark prints: a line for each result with its bar, and last one JSON line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Report:
    """Collects results. ``bar`` None: reported only. ``below``: the bar is an upper limit."""

    benchmark: str
    results: list[dict[str, object]] = field(default_factory=list)

    def add(self, name: str, value: float, bar: float | None = None, *, below: bool = False, note: str = "") -> None:
        """One result; ``ok`` says whether it meets its bar."""
        ok = bar is None or (value <= bar if below else value >= bar)
        self.results.append({"name": name, "value": round(value, 4), "bar": bar, "ok": ok})
        sign = "" if bar is None else f"  (bar {'≤' if below else '≥'} {bar:g}: {'ok' if ok else 'MISSED'})"
        print(f"{name:58s} {value:12,.3f}{sign}{'  ' + note if note else ''}", flush=True)

    def finish(self) -> None:
        """The line for programs."""
        print(json.dumps({"benchmark": self.benchmark, "results": self.results}))


def timed(action: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def best(*actions: Callable[[], object], rounds: int = 3) -> list[float]:
    """The shortest time of each action; the actions take turns, so that a slow moment hits all of them."""
    times = [[timed(action) for action in actions] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def progress(text: str) -> None:
    """Say what is going on, where somebody watches."""
    if sys.stderr.isatty():
        print(f"… {text}", file=sys.stderr, flush=True)
