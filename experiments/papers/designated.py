"""002 §9: a join that is answered when a master element arrives, naively and with smart windows.

The query of the paper's figure 1 over two streams: ``stream1`` brings 5,000 elements in a second of stream time, the
master ``stream2`` from 1,000 to 5,000. They are pushed as fast as possible, in the order of their times, one by one and
in batches of 10 ms of stream time. The paper's windows have two rows; the same is done with ten.

*Tuples* are all that operators behind the windows are given; what naive execution needs to tell rows apart (kind
``identity``) is not counted, since the paper's elements have an identifier anyway. *Seconds* are what these operators
and the windows took, identity included; *processor* what all of it took of processors.

The paper's analysis (§7.3) says when smart windows pay: rows that come and go between two master elements never leave
the window. With k of them for each master element and a window of n rows, min(k, n) get in and as many out, instead of
k: so the other stream's window gives min(1, n / k) of what it gives naively, and smart windows pay where k is greater
than n.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from benchmarks.support.common import Others, Say, figure, lines, median, quiet, rounds, save

import penstock
from experiments.papers.judging import (
    ANSWERS,
    COUNT,
    ELAPSED,
    PROCESSOR,
    Claim,
    below,
    judged,
    least,
    multiset,
)

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.graph.view import GraphView

TITLE = "002 §9: designated events"
RATES = (1_000, 2_000, 3_000, 4_000, 5_000)
"""Elements of the master stream in a second."""
OTHER = 5_000
SIZES = (2, 10)
KEYS = 4
WAYS = ("naive", "smart")
_BATCH = 10_000
"""Microseconds of stream time that are pushed together."""
_SECONDS = {"single": 0.05, "batches": 0.3}
"""Of stream time, at scale 1."""
ANALYSED = tuple((rows, k) for rows in (2, 10, 50) for k in (1, 5, 20, 100))
"""Rows of the window, and elements of the other stream for each master element."""
_MASTERS = 20
_NEAR = 0.1
"""The analysis may be off by so much, since windows are empty at first."""
_BUDGET = 40.0


@dataclass(frozen=True)
class Point:
    """One rate of the master stream. ``pushed``: single or batches. ``tuples``, and for each round ``seconds`` and
    ``processor``: see above, for each second of stream time."""

    pushed: str
    rows: int
    rate: int
    way: str
    tuples: float
    seconds: tuple[float, ...]
    processor: tuple[float, ...]


@dataclass(frozen=True)
class Analysed:
    """What the other stream's window gives, smart in times of naive, where there are ``k`` of its elements for each
    master element: as the paper's analysis says, and as it is. ``processor``: of each round, smart in times of
    naive."""

    rows: int
    k: int
    estimate: float
    measured: float
    processor: tuple[float, ...]


@dataclass(frozen=True)
class Designated:
    """What was measured, and for how many seconds of stream time. ``others``: for each round, processors that other
    processes kept busy. ``answers``: naive and smart, of each configuration."""

    single: float
    batches: float
    others: tuple[float | None, ...]
    points: tuple[Point, ...]
    analysed: tuple[Analysed, ...]
    answers: tuple[tuple[Counter[Hashable], ...], ...]

    def of(self, pushed: str, rows: int, way: str) -> list[Point]:
        """A point for each rate."""
        return [p for p in self.points if (p.pushed, p.rows, p.way) == (pushed, rows, way)]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 9) -> Designated:
    """Both ways take turns with the same elements."""
    length = {pushed: max(0.02, seconds * min(scale, 1.0)) for pushed, seconds in _SECONDS.items()}
    _measure("naive", 2, 1_000, 0.02, "single", seed)  # compiles what is compiled
    found: dict[tuple[str, int, int, str], Point] = {}
    given: dict[tuple[str, int, int, str], Counter[Hashable]] = {}
    analysed: dict[tuple[int, int], Analysed] = {}
    others: list[float | None] = []
    for i in rounds(_BUDGET * scale, 7, least(scale)):
        busy = Others()
        for pushed in _SECONDS:
            for rows in SIZES:
                for rate in RATES:
                    say(f"round {i + 1}: {pushed}, [ROWS {rows}], master at {rate:,} in a second")
                    for way in WAYS:
                        key = pushed, rows, rate, way
                        point, given[key] = _measure(way, rows, rate, length[pushed], pushed, seed)
                        found[key] = _added(found[key], point) if key in found else point
        for rows, k in ANALYSED:
            say(f"round {i + 1}: analysis, [ROWS {rows}], {k} for each master element")
            one = _analyse(rows, k)
            before = analysed.get((rows, k), replace(one, processor=()))
            analysed[rows, k] = replace(before, processor=before.processor + one.processor)
        others.append(busy.processors)
    answers = [
        tuple(given[pushed, rows, rate, way] for way in WAYS) for pushed in _SECONDS for rows in SIZES for rate in RATES
    ]
    return Designated(
        length["single"],
        length["batches"],
        tuple(others),
        tuple(found.values()),
        tuple(analysed.values()),
        tuple(answers),
    )


def _added(before: Point, now: Point) -> Point:
    """With one more round."""
    return replace(before, seconds=before.seconds + now.seconds, processor=before.processor + now.processor)


def query(rows: int) -> str:
    """Figure 1, with windows of that many rows. Not ISTREAM: the join would not tell of pairs that leave, which it must
    in the naive scheme."""
    return (
        f"SELECT stream1.x, y FROM stream1 [ROWS {rows}], stream2 [ROWS {rows}] "
        "WHERE stream1.x = stream2.x MASTER stream2"
    )


def _measure(way: str, rows: int, rate: int, seconds: float, pushed: str, seed: int) -> tuple[Point, Counter[Hashable]]:
    with _streams(way) as db:
        asked = db.query(query(rows))
        elements = list(_arrivals(np.random.default_rng(seed), rate, seconds, pushed))
        begun = time.process_time()
        for stream, table in elements:
            db.push(stream, table)
        processor = (time.process_time() - begun) / seconds
        tuples, taken = _work(db.graph())
        return Point(pushed, rows, rate, way, tuples / seconds, (taken / seconds,), (processor,)), multiset(
            asked.fetch()
        )


def _streams(way: str) -> Database:
    db = penstock.connect(engine="local")
    db.execute("CREATE STREAM stream1 (t BIGINT, x BIGINT, y BIGINT) TIMESTAMP BY t")
    db.execute("CREATE STREAM stream2 (t BIGINT, x BIGINT) TIMESTAMP BY t")
    db.configure(experiments={"masters": way})
    return db


def _analyse(rows: int, k: int) -> Analysed:
    """Between two master elements k of the other stream come, as one batch."""
    gives, processor = {}, {}
    for way in WAYS:
        with _streams(way) as db:
            db.query(query(rows))
            begun = time.process_time()
            for i in range(_MASTERS):
                first = i * (k + 1)
                ones = np.arange(first, first + k)
                db.push("stream1", pa.table({"t": ones, "x": ones % KEYS, "y": ones}))
                db.push("stream2", pa.table({"t": [first + k], "x": [i % KEYS]}))
            db.heartbeat("stream1", _MASTERS * (k + 1))
            db.heartbeat("stream2", _MASTERS * (k + 1))
            processor[way] = time.process_time() - begun
            view = db.graph()
        window, _ = sorted((o for o in view.operators if o.kind == "window"), key=lambda o: o.id)  # that of stream1
        gives[way] = window.elements_out
    estimate = min(1.0, rows / k)
    return Analysed(rows, k, estimate, gives["smart"] / gives["naive"], (processor["smart"] / processor["naive"],))


def _arrivals(chance: np.random.Generator, rate: int, seconds: float, pushed: str) -> Iterator[tuple[str, pa.Table]]:
    """Elements at regular times, in the order of these; those of the master stream stand between the others."""
    first, second = round(OTHER * seconds), round(rate * seconds)
    one = pa.table(
        {
            "t": np.arange(first) * (1_000_000 // OTHER),
            "x": chance.integers(0, KEYS, first),
            "y": np.arange(first),
        }
    )
    two = pa.table(
        {
            "t": (np.arange(second) * (1_000_000 / rate)).astype(np.int64) + 1,
            "x": chance.integers(0, KEYS, second),
        }
    )
    step = 1 if pushed == "single" else _BATCH
    cuts: list[tuple[int, int, str, pa.Table]] = []
    for number, (name, table) in enumerate((("stream1", one), ("stream2", two))):
        batch = table["t"].to_numpy() // step
        starts = np.flatnonzero(np.diff(batch, prepend=-1))
        stops = np.append(starts[1:], len(table))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            cuts.append((int(batch[start]), number, name, table.slice(start, stop - start)))
    for _, _, name, table in sorted(cuts, key=lambda c: c[:2]):
        yield name, table


def _work(view: GraphView) -> tuple[int, float]:
    """Tuples that operators behind the windows were given, and seconds of these and the windows."""
    operators = {o.id: o for o in view.operators}
    behind = {o.id for o in view.operators if o.kind == "window"}
    edges = sorted(view.edges, key=lambda e: e.target)
    while more := {e.target for e in edges if e.source in behind and e.target not in behind}:
        behind |= more
    counted = [e for e in edges if e.source in behind and operators[e.target].kind not in ("identity", "query")]
    tuples = sum(operators[e.source].elements_out for e in counted)
    seconds = sum((operators[i].cost or 0.0) * operators[i].elements_in for i in behind)
    return tuples, seconds


def check(results: Designated) -> list[Claim]:
    """What is claimed, whether it holds here, and the numbers."""
    others = results.others
    claims = [
        judged(
            "both ways have the same answers in every configuration",
            ANSWERS,
            [bool(a) and a == b for a, b in results.answers],
            (),
            f"{len(results.answers)} configurations, {sum(sum(a.values()) for a, _ in results.answers):,} answers",
        ),
    ]
    slower = [i for i, rate in enumerate(RATES) if rate < OTHER]
    for rows in SIZES:
        tuples = [b.tuples / a.tuples for a, b in _ways(results, "single", rows)]
        claims.append(
            judged(
                f"[ROWS {rows}]: fewer tuples with smart windows whenever the master is slower",
                COUNT,
                [tuples[i] < 1 for i in slower],
                (),
                _shown(tuples),
            )
        )
        claims.append(
            judged(
                f"[ROWS {rows}]: the numbers of tuples come closer as the rates meet",
                COUNT,
                [b > a - 0.02 for a, b in pairwise(tuples)] + [tuples[-1] > tuples[0]],
                (),
                _shown(tuples),
            )
        )
        for pushed, how in (("single", "one by one"), ("batches", "in batches")):
            for metric, field, what in (
                (ELAPSED, "seconds", "less time"),
                (PROCESSOR, "processor", "less of processors"),
            ):
                ratios = _ratios(results, pushed, rows, field)
                worst = [max(own) for own in zip(*(ratios[i] for i in slower), strict=True)]
                more = "" if metric is ELAPSED else "(not the paper's) "
                claims.append(
                    below(
                        f"{more}[ROWS {rows}], pushed {how}: {what} with smart windows whenever the master is slower",
                        metric,
                        worst,
                        [1.0] * len(worst),
                        others,
                        _shown([median(r) for r in ratios]),
                    )
                )
    times = _ratios(results, "single", SIZES[0], "seconds")
    claims.append(
        below(
            f"[ROWS {SIZES[0]}], pushed one by one: the times come closer as the rates meet",
            ELAPSED,
            times[0],
            times[-1],
            others,
            _shown([median(r) for r in times]),
        )
    )
    shown = ", ".join(f"{a.rows} rows, k = {a.k}: {a.measured:.2f} ({a.estimate:.2f})" for a in results.analysed)
    claims.append(
        judged(
            "smart windows give what the analysis says: min(1, rows / k) of what they give naively",
            COUNT,
            [abs(a.measured - a.estimate) <= _NEAR for a in results.analysed],
            (),
            f"measured (analysis): {shown}",
        )
    )
    pays = [a for a in results.analysed if a.k >= 10 * a.rows]
    claims.append(
        below(
            "(not the paper's) where k is ten times the rows and more, less of processors is needed",
            PROCESSOR,
            [max(own) for own in zip(*(a.processor for a in pays), strict=True)],
            [1.0] * len(others),
            others,
            ", ".join(f"{a.rows} rows, k = {a.k}: {median(a.processor):.2f}" for a in results.analysed) + " times",
        )
    )
    return claims


def _ways(results: Designated, pushed: str, rows: int) -> list[tuple[Point, Point]]:
    return list(zip(results.of(pushed, rows, "naive"), results.of(pushed, rows, "smart"), strict=True))


def _ratios(results: Designated, pushed: str, rows: int, what: str) -> list[list[float]]:
    """Smart against naive, for each rate, and of that for each round."""
    return [
        [y / x for x, y in zip(getattr(a, what), getattr(b, what), strict=True)]
        for a, b in _ways(results, pushed, rows)
    ]


def _shown(ratios: list[float]) -> str:
    parts = (f"{r:.2f} at {rate:,}" for r, rate in zip(ratios, RATES, strict=True))
    return f"smart against naive: {', '.join(parts)}"


def draw(results: Designated, folder: Path) -> list[Path]:
    """Figures 12 and 13: time and tuples over the rate of the master stream."""
    found = []
    for what, name, title, label in (
        ("seconds", "002-figure-12-time.png", "cf. Figure 12", "operators' seconds for a second of stream time"),
        ("tuples", "002-figure-13-tuples.png", "cf. Figure 13", "tuples for a second of stream time"),
    ):
        made, axes = figure(f"{TITLE} ({title})", 2, width=11)
        for ax, pushed in zip(axes, _SECONDS, strict=True):
            lines(
                ax,
                {
                    f"{way}, [ROWS {rows}]": ([p.rate for p in own], [_one(getattr(p, what)) for p in own])
                    for rows in SIZES
                    for way in WAYS
                    if (own := results.of(pushed, rows, way))
                },
            )
            ax.set_xlabel("elements of the master stream in a second")
            ax.set_ylabel(label)
            ax.set_ylim(bottom=0)
            ax.set_title("pushed one by one" if pushed == "single" else "pushed in batches of 10 ms", fontsize=10)
        found.append(save(made, folder / name))
    return found


def _one(value: float | tuple[float, ...]) -> float:
    return median(value) if isinstance(value, tuple) else value
