"""000 §7: latencies of a join's results under the configurations of Table 1.

Two sources push single elements in turn at the same rate, four times that of the paper. Windows of 500 elements are
full when it begins. A result's latency counts from the push that lets it be known: the one after its later element,
since until then an earlier element of the other source might come.

Without grouping every edge has a buffer; with grouping the placement decides, by what the operators cost. Version 2 of
the supply layer is the runtime's own; version 1, ``synch`` and the queues of §5 are in ``supply``. The paper's table
does not tell CF5V2 and CF6V2 apart: here the first has one worker, the second one for each operator. A pool has two.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from benchmarks.support.common import (
    Others,
    Say,
    clock,
    database,
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

from experiments.papers.judging import (
    LATENCY,
    PROCESSOR,
    SWITCHES,
    Claim,
    Metric,
    alike,
    below,
    judged,
    least,
    multiset,
    same_answers,
)

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.query import Query

TITLE = "000 §7: worker architectures and supply layers"
WINDOW = 500
RATES = (5_000, 30_000)
"""Elements in a minute from each source, in the paper; it also has 1,000 to 25,000."""
FASTER = 4
"""The rates here are so many times those of the paper, so that the highest is more than a worker can do."""
QUERY = (
    f"SELECT ISTREAM a.v, b.v FROM gen1 [ROWS {WINDOW}] AS a, gen2 [ROWS {WINDOW}] AS b WHERE a.v < 50 AND a.v < b.v"
)
_LASTS = 0.2
_COUNT = 60
"""Elements that are pushed at most."""
_WARM = 20
_BUDGET = 90.0
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
        buffer, signals = SUPPLY[self.supply]
        return {
            "threading": "hybrid" if self.grouping else self.threading,
            "strategy": self.scheduler,
            "workers": self.workers,
            "experiments": {
                "architecture": signals if self.architecture == "worker" else self.architecture,
                "buffer": buffer,
            },
        }


SUPPLY = {
    "V2": ("lock-free", "worker"),
    "V1": ("monitored", "signalled"),
    "synch": ("synch", "worker"),
    "linked": ("linked", "worker"),
    "swapped": ("swapped", "worker"),
}
"""The buffer, and the worker where it is not a pool."""
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
    *(Configuration(f"CF6 {queue}", _CF, False, queue, "worker", None) for queue in ("synch", "linked", "swapped")),
    *(Configuration(f"{n} workers", _CF, True, "V2", "worker", n) for n in (2, 4)),
    *(Configuration(f"pool of {n}", _CF, False, "V2", "pool", n) for n in (1, 4)),
)
WORKERS = ("CF2V2", "2 workers", "4 workers")
POOLS = ("pool of 1", "pool of 4")


@dataclass(frozen=True)
class Point:
    """A value for each round. ``latency``: of results in seconds, the median of the round. ``rate``: elements in a
    minute from each source, as in the paper. ``cpu``: processor time for each of them. ``switches``: how often a thread
    had to wait, for each of them."""

    configuration: str
    rate: int
    latency: tuple[float, ...]
    cpu: tuple[float, ...]
    switches: tuple[float, ...]
    threads: int
    partitions: int


@dataclass(frozen=True)
class Latencies:
    """All points. ``lock``: seconds to take and give back a lock that is free. ``message``: seconds that an element
    takes from end to end if nothing is between the operators. ``others``: for each round, processors that other
    processes kept busy. ``answers``: of every configuration, to the same elements."""

    others: tuple[float | None, ...]
    lock: float
    message: float
    points: tuple[Point, ...]
    answers: tuple[Counter[Hashable], ...]

    def of(self, configuration: str) -> list[Point]:
        return [p for p in self.points if p.configuration == configuration]

    def typical(self, field: str, *configurations: str) -> list[float]:
        """For each round, the geometric mean over all rates."""
        points = [p for name in configurations for p in self.of(name)]
        return [geometric(values) for values in zip(*(getattr(p, field) for p in points), strict=True)]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 7) -> Latencies:
    """All configurations take turns with the same elements."""
    lasts = _LASTS * min(scale, 1.0)
    values = np.random.default_rng(seed).integers(0, 101, 100_000)
    found: dict[tuple[str, int], list[_Measured]] = {}
    others: list[float | None] = []
    for i in rounds(_BUDGET * scale, 9, least(scale)):
        busy = Others()
        for rate in RATES:
            for configuration in (*TABLE, *MORE):
                say(f"round {i + 1}: {rate:,} in a minute, {configuration.name}")
                measured = _measure(configuration, values, rate, lasts)
                found.setdefault((configuration.name, rate), []).append(measured)
        others.append(busy.processors)
    points = []
    for (name, rate), own in found.items():
        latency, cpu, switches, *_ = zip(*own, strict=True)
        points.append(Point(name, rate, latency, cpu, switches, *own[-1][3:]))
    answers = tuple(_answers(configuration, values) for configuration in (*TABLE, *MORE))
    return Latencies(tuple(others), _lock(), _message(values), tuple(points), answers)


def _measure(how: Configuration, values: np.ndarray[Any, Any], rate: int, lasts: float) -> _Measured:
    gap = 60 / (rate * FASTER) / 2
    count = max(4, min(_COUNT, round(lasts / gap)))
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


def _answers(how: Configuration, values: np.ndarray[Any, Any]) -> Counter[Hashable]:
    """All answers to some elements, pushed as fast as possible."""
    with database("gen1", "gen2") as db:
        query = _filled(db, values)
        db.configure(**how.settings)
        _push(db, values, 0, _WARM, 0.0, clock())
        return multiset(query.fetch())


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
    """The paper's findings, over all rates, and of processor time what this project adds."""
    typical, others = results.typical, results.others

    def shown(metric: Metric, names: Sequence[str]) -> str:
        field, factor, unit = _FIELDS[metric]
        return ", ".join(f"{name} {factor * median(typical(field, name)):.2f}" for name in names) + unit

    def less(text: str, metric: Metric, few: tuple[str, ...], many: tuple[str, ...], factor: float = 1.0) -> Claim:
        field = _FIELDS[metric][0]
        return below(
            text,
            metric,
            typical(field, *few),
            typical(field, *many),
            others,
            shown(metric, (*few, *many)),
            factor=factor,
        )

    pools, owned, composed = ("CF1", "CF3"), ("CF4V1", "CF5V2"), ("CF2V1", "CF2V2")
    more = [
        tuple(b / max(a, 1e-12) for a, b in zip(typical("switches", few), typical("switches", many), strict=True))
        for few, many in (POOLS, (WORKERS[0], WORKERS[-1]))
    ]
    locks = f"a lock takes {1e9 * results.lock:.0f} ns, an element {1e6 * results.message:.0f} µs from end to end"
    return [
        same_answers(
            "all configurations have the same answers",
            results.answers,
            f"{len(results.answers)} configurations, {sum(results.answers[0].values()):,} answers",
        ),
        less("workers that own their operators have lower latencies than the pool", LATENCY, owned, pools),
        less("workers that own composed operators have lower latencies than the pool", LATENCY, composed, pools),
        less("a worker's threads wait less often than those of a pool", SWITCHES, owned, pools),
        alike(
            "latencies with one to four workers are almost the same",
            LATENCY,
            [typical("latency", name) for name in WORKERS],
            1.5,
            others,
            shown(LATENCY, WORKERS),
        ),
        below(
            "four threads make workers wait more often by less than they make a pool",
            SWITCHES,
            more[1],
            more[0],
            others,
            shown(SWITCHES, (*POOLS, *WORKERS)),
        ),
        less("composed operators lower latencies", LATENCY, ("CF2V2",), ("CF5V2",)),
        less("version 2 of the supply layer has lower latencies than version 1", LATENCY, ("CF5V2",), ("CF4V1",)),
        less("buffers without locks halve latencies", LATENCY, ("CF6V2",), ("CF6 synch",), 0.5),
        judged(
            "a queue for one sender is as fast as one for many",
            LATENCY,
            [
                0.8 < a / b < 1.25
                for a, b in zip(typical("latency", "CF6 linked"), typical("latency", "CF6 swapped"), strict=True)
            ],
            others,
            shown(LATENCY, ("CF6V2", "CF6 linked", "CF6 swapped")),
        ),
        less("with version 1 composed operators have higher latencies", LATENCY, ("CF4V1",), ("CF2V1",)),
        less(
            "(not the paper's) workers that own their operators need less of processors than the pool",
            PROCESSOR,
            owned,
            pools,
        ),
        Claim(
            *(
                found := less(
                    "(not the paper's) version 2 needs less of processors than version 1",
                    PROCESSOR,
                    ("CF5V2",),
                    ("CF4V1",),
                )
            )[:3],
            f"{found.detail}; {locks}",
        ),
    ]


_FIELDS: Mapping[Metric, tuple[str, float, str]] = {
    LATENCY: ("latency", 1e3, " ms"),
    PROCESSOR: ("cpu", 1e3, " ms of processors for an element"),
    SWITCHES: ("switches", 1.0, " waits for an element"),
}
FIGURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "11": ("the worker pool and workers that own operators", ("CF1", "CF3", "RR1", "RR2", "CF2V2", "CF4V1")),
    "12": ("the number of workers", (*WORKERS, *POOLS)),
    "13": ("stream buffers, with a worker for each operator", ("CF6V2", "CF6 synch", "CF6 linked", "CF6 swapped")),
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
            lines(
                ax,
                {
                    _label(described[name]): (
                        [FASTER * p.rate for p in results.of(name)],
                        [1e3 * median(getattr(p, field)) for p in results.of(name)],
                    )
                    for name in names
                },
            )
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
