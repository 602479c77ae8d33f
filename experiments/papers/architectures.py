"""000 §7: latencies of a join's results under the configurations of Table 1.

Two sources push single elements in turn at the same rate, four times that of the paper. Windows of 500 elements are
full when it begins. A result's latency counts from the push that lets it be known: the one after its later element,
since until then an earlier element of the other source might come.

Without grouping every edge has a buffer; with grouping the placement decides, by what the operators cost. Version 2 of
the supply layer is the runtime's own; version 1 and ``synch`` are in ``supply``. The paper's table does not tell CF5V2
and CF6V2 apart: here the first has one worker, the second one for each operator. A pool has two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from benchmarks.support.common import (
    Claim,
    Others,
    Say,
    clock,
    database,
    disturbed,
    figure,
    geometric,
    lines,
    logarithmic,
    median,
    quiet,
    rounds,
    save,
    wait_until,
)

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.query import Query

TITLE = "000 §7: worker architectures and supply layers"
WINDOW = 500
RATES = (1_000, 5_000, 15_000, 30_000)
"""Elements in a minute from each source, in the paper."""
FASTER = 4
"""The rates here are so many times those of the paper, so that the highest is more than a worker can do."""
QUERY = (
    f"SELECT ISTREAM a.v, b.v FROM gen1 [ROWS {WINDOW}] AS a, gen2 [ROWS {WINDOW}] AS b WHERE a.v < 50 AND a.v < b.v"
)
_LASTS = 0.3
_LEAST, _MOST = 12, 300
"""Elements that are pushed at least and at most, whatever the rate."""
_WARM = 20
_CLEARLY = 0.9
"""Locks are so cheap here that a smaller difference is chance."""
_BUDGET = 85.0
_Measured = tuple[float, float, float, int, int]


@dataclass(frozen=True)
class Configuration:
    """A row of Table 1, and how it is set here."""

    name: str
    scheduler: str
    grouping: bool
    supply: str
    architecture: str
    workers: int | None = None
    threading: str = "operator"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "threading": "hybrid" if self.grouping else self.threading,
            "strategy": self.scheduler,
            "workers": self.workers,
            "experiments": {"architecture": self.architecture, "buffer": SUPPLY[self.supply]},
        }


SUPPLY = {"V2": "lock-free", "V1": "monitored", "synch": "synch"}
_CF, _RR = "chain-flush", "round-robin"
TABLE = (
    Configuration("CF1", _CF, False, "synch", "pool", 2),
    Configuration("CF2V1", _CF, True, "V1", "worker", 1),
    Configuration("CF2V2", _CF, True, "V2", "worker", 1),
    Configuration("CF3", _CF, False, "V1", "pool", 2),
    Configuration("CF4V1", _CF, False, "V1", "worker", 1, "graph"),
    Configuration("CF5V2", _CF, False, "V2", "worker", 1, "graph"),
    Configuration("CF6V2", _CF, False, "V2", "worker", None, "operator"),
    Configuration("RR1", _RR, False, "synch", "pool", 2),
    Configuration("RR2", _RR, False, "V1", "pool", 2),
)
MORE = (
    Configuration("CF6 synch", _CF, False, "synch", "worker", None, "operator"),
    *(Configuration(f"{n} workers", _CF, True, "V2", "worker", n) for n in (2, 3, 4)),
    *(Configuration(f"pool of {n}", _CF, False, "V2", "pool", n) for n in (1, 2, 3, 4)),
)
WORKERS = ("CF2V2", "2 workers", "3 workers", "4 workers")
POOLS = ("pool of 1", "pool of 2", "pool of 3", "pool of 4")


@dataclass(frozen=True)
class Point:
    """Latency of results in seconds: the median of all results of a round, and of that the median of the rounds.
    ``rate``: elements in a minute from each source, as in the paper. ``cpu``: processor time for each of them.
    ``switches``: how often a thread had to wait, for each of them."""

    configuration: str
    rate: int
    latency: float
    cpu: float
    switches: float
    threads: int
    partitions: int


@dataclass(frozen=True)
class Latencies:
    """All points. ``lock``: seconds to take and give back a lock that is free. ``message``: seconds that an element
    takes from end to end if nothing is between the operators. ``others``: processors that other processes kept busy."""

    rounds: int
    others: float | None
    lock: float
    message: float
    points: tuple[Point, ...]

    def of(self, configuration: str) -> list[Point]:
        return [p for p in self.points if p.configuration == configuration]

    def typical(self, *configurations: str) -> float:
        """Over all rates: the latency, or where other processes disturbed that, the processor time."""
        points = [p for name in configurations for p in self.of(name)]
        return geometric([p.cpu if disturbed(self.others) else p.latency for p in points])


def run(scale: float = 1.0, say: Say = quiet, seed: int = 7) -> Latencies:
    """All configurations take turns with the same elements."""
    lasts = _LASTS * min(scale, 1.0)
    values = np.random.default_rng(seed).integers(0, 101, 100_000)
    found: dict[tuple[str, int], list[_Measured]] = {}
    count, others = 0, Others()
    for i in rounds(_BUDGET * scale, 7):
        for rate in RATES:
            for configuration in (*TABLE, *MORE):
                say(f"round {i + 1}: {rate:,} in a minute, {configuration.name}")
                measured = _measure(configuration, values, rate, lasts)
                found.setdefault((configuration.name, rate), []).append(measured)
        count = i + 1
    points = []
    for (name, rate), own in found.items():
        latency, cpu, switches = (median([f[i] for f in own]) for i in range(3))
        points.append(Point(name, rate, latency, cpu, switches, *own[-1][3:]))
    return Latencies(count, others.processors, _lock(), _message(values), tuple(points))


def _measure(how: Configuration, values: np.ndarray[Any, Any], rate: int, lasts: float) -> _Measured:
    gap = 60 / (rate * FASTER) / 2
    count = max(4, round(_LEAST * lasts / _LASTS), min(_MOST, round(lasts / gap)))
    with database("gen1", "gen2") as db:
        query = _filled(db, values)
        db.configure(**how.settings)
        # What the placement and Chain go by is measured at the rate that follows.
        _push(db, values, 0, _WARM, gap, clock())
        db.configure(**how.settings)
        query.fetch()
        latencies: list[np.ndarray[Any, Any]] = []
        begun = clock() + 0.02 - _WARM * gap

        def answered(table: pa.Table) -> None:
            ts = table["ts"].to_numpy().astype(np.int64)
            latencies.append(clock() - begun - (ts + 1) * gap)

        query.subscribe(answered)
        cpu, waits = time.process_time(), _waits()
        _push(db, values, _WARM, count + 2, gap, begun)
        db.settle()
        cpu, waits = ((now - before) / (count + 2) for now, before in ((time.process_time(), cpu), (_waits(), waits)))
        view = db.graph()
    return float(np.median(np.concatenate(latencies))), cpu, waits, view.workers, len(view.partitions)


def _push(db: Database, values: np.ndarray[Any, Any], before: int, count: int, gap: float, begun: float) -> None:
    """Single elements in turn, after so many before; the one with ``ts`` t comes t gaps after ``begun``."""
    ones = [pa.table({"ts": [t], "v": [int(values[t % len(values)])]}) for t in range(before + 1, before + count + 1)]
    for t, one in enumerate(ones, before + 1):
        wait_until(begun + t * gap)
        db.push("gen1" if t % 2 else "gen2", one)


def _filled(db: Database, values: np.ndarray[Any, Any]) -> Query:
    """The query, after both windows have been filled and the pairs of that answered."""
    query = db.query(QUERY)
    for name, part in (("gen1", values[:WINDOW]), ("gen2", values[WINDOW : 2 * WINDOW])):
        db.push(name, pa.table({"ts": np.zeros(WINDOW, np.int64), "v": part}))
        db.heartbeat(name, 1)
    query.fetch()
    return query


def _waits() -> float:
    """How often threads of this process have had to wait so far; 0 where the system does not count it."""
    try:
        import resource
    except ImportError:
        return 0.0
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)


def _lock() -> float:
    lock, n = threading.Lock(), 20_000
    begun = time.process_time()
    for _ in range(n):
        with lock:
            pass
    return (time.process_time() - begun) / n


def _message(values: np.ndarray[Any, Any]) -> float:
    with database("gen1", "gen2") as db:
        _filled(db, values)
        cpu = time.process_time()
        _push(db, values, 0, 200, 0.0, clock())
        return (time.process_time() - cpu) / 200


def check(results: Latencies) -> list[Claim]:
    """The paper's findings, over all rates."""
    kind = " ms of processors for an element" if disturbed(results.others) else " ms"

    def shown(*names: str) -> str:
        return ", ".join(f"{name} {1e3 * results.typical(name):.2f}" for name in names) + kind

    typical = results.typical
    own = [typical(name) for name in WORKERS]
    locks = (
        f"a lock takes {1e9 * results.lock:.0f} ns, an element {1e6 * results.message:.0f} µs from end to end, so what "
        "is locked hardly matters here"
    )
    most = f"the operators alone take {1e6 * results.message:.0f} µs for an element, whoever runs them"

    def switches(*names: str) -> float:
        return geometric([p.switches for name in names for p in results.of(name)])

    def claim(text: str, holds: bool, names: tuple[str, ...], why: str = "") -> Claim:
        return Claim(text, holds, shown(*names) + (f"; {why}" if why and not holds else ""))

    return [
        claim(
            "workers that own their operators have lower latencies than the pool",
            typical("CF4V1", "CF5V2") < typical("CF1", "CF3"),
            ("CF4V1", "CF5V2", "CF1", "CF3"),
            most,
        ),
        claim(
            "workers that own composed operators have lower latencies than the pool",
            typical("CF2V1", "CF2V2") < typical("CF1", "CF3"),
            ("CF2V1", "CF2V2", "CF1", "CF3"),
            most,
        ),
        Claim(
            "a pool switches more often between threads than a worker",
            switches("CF1", "CF3") > switches("CF4V1", "CF5V2"),
            ", ".join(f"{name} {switches(name):.1f}" for name in ("CF1", "CF3", "CF4V1", "CF5V2")) + " for an element",
        ),
        claim("latencies with one to four workers are almost the same", max(own) < 1.5 * min(own), WORKERS),
        Claim(
            "more threads make a pool switch more often than they make workers that own operators",
            switches(POOLS[-1]) / switches(POOLS[0]) > 1.2 * switches(WORKERS[-1]) / switches(WORKERS[0]),
            ", ".join(f"{name} {switches(name):.1f}" for name in (*POOLS, *WORKERS)) + " for an element",
        ),
        claim("composed operators lower latencies", typical("CF2V2") < typical("CF5V2"), ("CF2V2", "CF5V2")),
        claim(
            "version 2 of the supply layer has lower latencies than version 1",
            typical("CF5V2") < _CLEARLY * typical("CF4V1"),
            ("CF5V2", "CF4V1"),
            locks,
        ),
        claim(
            "buffers without locks have lower latencies than those with",
            typical("CF6V2") < _CLEARLY * typical("CF6 synch"),
            ("CF6V2", "CF6 synch"),
            locks,
        ),
        claim(
            "with version 1 composed operators have higher latencies",
            _CLEARLY * typical("CF2V1") > typical("CF4V1"),
            ("CF2V1", "CF4V1"),
            f"they have fewer buffers, not more, and {locks}",
        ),
    ]


FIGURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "11": ("the worker pool and workers that own operators", ("CF1", "CF3", "RR1", "RR2", "CF2V2", "CF4V1")),
    "12": ("the number of workers", (*WORKERS, *POOLS)),
    "13": ("stream buffers, with a worker for each operator", ("CF6V2", "CF6 synch")),
    "14": ("versions one and two of the supply layer", ("CF4V1", "CF5V2")),
    "15": ("composed operators", ("CF2V1", "CF4V1", "CF2V2", "CF5V2")),
}


def draw(results: Latencies, folder: Path) -> list[Path]:
    """Figures 11 to 15."""
    described = {c.name: c for c in (*TABLE, *MORE)}
    made = []
    for number, (what, names) in FIGURES.items():
        drawn, axes = figure(f"{TITLE}\n{what} (cf. Figure {number})", 2, width=12, height=5.5)
        for ax, field, label in zip(
            axes, ("latency", "cpu"), ("median latency of results [ms]", "processor time per element [ms]"), strict=True
        ):
            lines(ax, {
                _label(described[name]): ([FASTER * p.rate for p in results.of(name)],
                                          [1e3 * getattr(p, field) for p in results.of(name)])
                for name in names
            })  # fmt: skip
            ax.set_xlabel("elements per minute from each source")
            ax.set_ylabel(label)
            ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
            ax.get_legend().remove()
        logarithmic(axes[0].yaxis)
        axes[1].set_ylim(bottom=0)
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
        made.append(save(drawn, folder / f"000-figure-{number}-latency.png"))
    return made


def _label(c: Configuration) -> str:
    if c.name in (*WORKERS[1:], *POOLS):
        return f"{c.name}: {c.scheduler}, {'grouped, ' if c.grouping else ''}{c.supply}"
    workers = "a worker per operator" if c.workers is None else f"{c.workers} worker{'s' if c.workers > 1 else ''}"
    how = f"pool of {c.workers}" if c.architecture == "pool" else workers
    return f"{c.name}: {c.scheduler}, {'grouped, ' if c.grouping else ''}{c.supply}, {how}"
