"""002 §9: a join that is answered when a master element arrives, naively and with smart windows.

The query of the paper's figure 1 over two streams: ``stream1`` brings 5,000 elements in a second of stream time, the
master ``stream2`` from 1,000 to 5,000. They are pushed as fast as possible, in the order of their times, one by one and
in batches of 10 ms of stream time. The paper's windows have two rows; the same is done with ten.

*Tuples* are all that operators behind the windows are given; what naive execution needs to tell rows apart (kind
``identity``) is not counted, since the paper's elements have an identifier anyway. *Seconds* are what these operators
and the windows took, identity included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from benchmarks.support.common import Claim, Say, figure, lines, quiet, rounds, save

import penstock

if TYPE_CHECKING:
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
_SECONDS = {"single": 0.1, "batches": 0.5}
"""Of stream time, at scale 1."""
_BUDGET = 8.0


@dataclass(frozen=True)
class Point:
    """One rate of the master stream. ``pushed``: single or batches. ``tuples`` and ``seconds``, the shortest of all
    rounds: see above, for each second of stream time."""

    pushed: str
    rows: int
    rate: int
    way: str
    tuples: float
    seconds: float
    answers: int


@dataclass(frozen=True)
class Designated:
    """What was measured, and for how many seconds of stream time."""

    single: float
    batches: float
    points: tuple[Point, ...]

    def of(self, pushed: str, rows: int, way: str) -> list[Point]:
        """A point for each rate."""
        return [p for p in self.points if (p.pushed, p.rows, p.way) == (pushed, rows, way)]


def run(scale: float = 1.0, say: Say = quiet, seed: int = 9) -> Designated:
    """Both ways take turns with the same elements."""
    length = {pushed: max(0.02, seconds * min(scale, 1.0)) for pushed, seconds in _SECONDS.items()}
    _measure("naive", 2, 1_000, 0.02, "single", seed)  # compiles what is compiled
    found: dict[tuple[str, int, int, str], list[Point]] = {}
    for i in rounds(_BUDGET * scale, 5):
        for pushed in _SECONDS:
            for rows in SIZES:
                for rate in RATES:
                    say(f"round {i + 1}: {pushed}, [ROWS {rows}], master at {rate:,} in a second")
                    for way in WAYS:
                        point = _measure(way, rows, rate, length[pushed], pushed, seed)
                        found.setdefault((pushed, rows, rate, way), []).append(point)
    points = tuple(
        Point(*key, own[0].tuples, min(p.seconds for p in own), own[0].answers) for key, own in found.items()
    )
    return Designated(length["single"], length["batches"], points)


def query(rows: int) -> str:
    """Figure 1, with windows of that many rows. Not ISTREAM: the join would not tell of pairs that leave, which it must
    in the naive scheme."""
    return (
        f"SELECT stream1.x, y FROM stream1 [ROWS {rows}], stream2 [ROWS {rows}] "
        "WHERE stream1.x = stream2.x MASTER stream2"
    )


def _measure(way: str, rows: int, rate: int, seconds: float, pushed: str, seed: int) -> Point:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM stream1 (t BIGINT, x BIGINT, y BIGINT) TIMESTAMP BY t")
        db.execute("CREATE STREAM stream2 (t BIGINT, x BIGINT) TIMESTAMP BY t")
        db.configure(experiments={"masters": way})
        asked = db.query(query(rows))
        chance = np.random.default_rng(seed)
        for stream, table in _arrivals(chance, rate, seconds, pushed):
            db.push(stream, table)
        tuples, taken = _work(db.graph())
        return Point(pushed, rows, rate, way, tuples / seconds, taken / seconds, asked.fetch().num_rows)


def _arrivals(
    chance: np.random.Generator, rate: int, seconds: float, pushed: str
) -> Iterator[tuple[str, pa.Table]]:
    """Elements at regular times, in the order of these; those of the master stream stand between the others."""
    first, second = round(OTHER * seconds), round(rate * seconds)
    one = pa.table({
        "t": np.arange(first) * (1_000_000 // OTHER), "x": chance.integers(0, KEYS, first), "y": np.arange(first),
    })  # fmt: skip
    two = pa.table({
        "t": (np.arange(second) * (1_000_000 / rate)).astype(np.int64) + 1, "x": chance.integers(0, KEYS, second),
    })  # fmt: skip
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
    counted = [
        e for e in edges if e.source in behind and operators[e.target].kind not in ("identity", "query")
    ]
    tuples = sum(operators[e.source].elements_out for e in counted)
    seconds = sum((operators[i].cost or 0.0) * operators[i].elements_in for i in behind)
    return tuples, seconds


def check(results: Designated) -> list[Claim]:
    """What is claimed, whether it holds here, and the numbers."""
    claims: list[Claim] = []
    same = all(
        a.answers == b.answers and a.answers
        for pushed in _SECONDS for rows in SIZES
        for a, b in zip(results.of(pushed, rows, "naive"), results.of(pushed, rows, "smart"), strict=True)
    )  # fmt: skip
    claims.append(Claim("both give the same number of answers", same, f"{len(results.points) // 2} configurations"))
    for rows in SIZES:
        for pushed in _SECONDS:
            ratios = _ratios(results, pushed, rows, "tuples")
            if pushed == "single":
                slower = [r for r, rate in zip(ratios, RATES, strict=True) if rate < OTHER]
                claims.append(Claim(
                    f"[ROWS {rows}]: fewer tuples with smart windows whenever the master is slower",
                    all(r < 1 for r in slower), _shown(ratios),
                ))  # fmt: skip
                rising = all(b > a - 0.02 for a, b in pairwise(ratios))
                claims.append(Claim(
                    f"[ROWS {rows}]: the numbers of tuples come closer as the rates meet",
                    rising and ratios[-1] > ratios[0], _shown(ratios),
                ))  # fmt: skip
            times = _ratios(results, pushed, rows, "seconds")
            slower = [t for t, rate in zip(times, RATES, strict=True) if rate < OTHER]
            how = "one by one" if pushed == "single" else "in batches"
            claims.append(Claim(
                f"[ROWS {rows}], pushed {how}: less time with smart windows whenever the master is slower",
                all(t < 1 for t in slower), _shown(times),
            ))  # fmt: skip
    times = _ratios(results, "single", SIZES[0], "seconds")
    claims.append(Claim(
        f"[ROWS {SIZES[0]}], pushed one by one: the times come closer as the rates meet", times[-1] > times[0],
        _shown(times),
    ))  # fmt: skip
    return claims


def _ratios(results: Designated, pushed: str, rows: int, what: str) -> list[float]:
    """Smart against naive, for each rate."""
    naive, smart = results.of(pushed, rows, "naive"), results.of(pushed, rows, "smart")
    return [getattr(b, what) / getattr(a, what) for a, b in zip(naive, smart, strict=True)]


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
            lines(ax, {
                f"{way}, [ROWS {rows}]": ([p.rate for p in own], [getattr(p, what) for p in own])
                for rows in SIZES for way in WAYS if (own := results.of(pushed, rows, way))
            })  # fmt: skip
            ax.set_xlabel("elements of the master stream in a second")
            ax.set_ylabel(label)
            ax.set_ylim(bottom=0)
            ax.set_title("pushed one by one" if pushed == "single" else "pushed in batches of 10 ms", fontsize=10)
        found.append(save(made, folder / name))
    return found
