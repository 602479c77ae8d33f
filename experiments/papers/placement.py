"""001 §6.7: how well three constructions of virtual operators use what time there is between elements."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.common import Say, figure, lines, quiet, save

from experiments.papers.judging import COUNT, PROCESSOR, Claim, judged
from experiments.placements import average_capacities, chains, segments
from penstock.runtime.placement import Node, Placement, PlacementGraph, stall_avoiding

TITLE = "001 §6.7: constructions of virtual operators"
CONSTRUCTIONS: dict[str, Callable[[PlacementGraph], Placement]] = {
    "stall-avoiding": stall_avoiding,
    "simplified segment": segments,
    "chain": chains,
}
SIZES = (10, 20, 50, 100, 200, 500, 1000)
_GRAPHS = 20
"""Graphs of each size at scale 1."""


@dataclass(frozen=True)
class Point:
    """Averages over the graphs of one size. Capacities in seconds; ``seconds`` to construct one placement."""

    nodes: int
    construction: str
    negative: float
    positive: float
    negatives: float
    partitions: float
    seconds: float


@dataclass(frozen=True)
class Placements:
    """What was measured: a point for each size and construction."""

    graphs: int
    points: tuple[Point, ...]

    def average(self, construction: str) -> Point:
        """Over all graphs; there are as many of each size."""
        own = [p for p in self.points if p.construction == construction]

        def mean(name: str) -> float:
            return math.fsum(getattr(p, name) for p in own) / len(own)

        nodes = round(mean("nodes"))
        return Point(nodes, construction, *map(mean, ("negative", "positive", "negatives", "partitions", "seconds")))


def random_graph(chance: random.Random, nodes: int) -> PlacementGraph:
    """A graph of that many operators in which data flows from a tenth of them, the sources, to the others.

    Three of ten operators have two inputs. Elements come to a source each 1 to 100 ms, and what comes further on
    follows from selectivities of 0.1 to 1. A cost is 1 µs to 10 ms; all magnitudes are equally likely.
    """
    sources = max(1, nodes // 10)
    made, edges = [], []
    for id in range(nodes):
        comes = 10 ** chance.uniform(-3, -1) if id < sources else None
        made.append(Node(id, 10 ** chance.uniform(-6, -2), comes, chance.uniform(0.1, 1.0)))
        if id >= sources:
            senders = chance.sample(range(id), min(id, 2 if chance.random() < 0.3 else 1))
            edges += [(sender, id) for sender in senders]
    return PlacementGraph(tuple(made), tuple(edges))


def run(scale: float = 1.0, say: Say = quiet, seed: int = 67) -> Placements:
    """Construct placements for seeded random graphs of 10 to 1000 operators, 20 of each size at scale 1."""
    count = max(3, round(_GRAPHS * scale))
    points = []
    for size in SIZES:
        graphs = [random_graph(random.Random(f"{seed} {size} {i}"), size) for i in range(count)]
        for graph in graphs:
            _ = graph.known  # what all constructions share is in nobody's time
        for name, construct in CONSTRUCTIONS.items():
            say(f"{count} graphs of {size} operators: {name}")
            begun = time.process_time()
            placements = [construct(graph) for graph in graphs]
            seconds = (time.process_time() - begun) / count
            used = [average_capacities(g, p) for g, p in zip(graphs, placements, strict=True)]
            points.append(
                Point(
                    size,
                    name,
                    math.fsum(u.negative for u in used) / count,
                    math.fsum(u.positive for u in used) / count,
                    sum(u.negatives for u in used) / count,
                    sum(len(set(p.values())) for p in placements) / count,
                    seconds,
                )
            )
    return Placements(count, tuple(points))


def check(results: Placements) -> list[Claim]:
    """What is claimed, whether it holds here, and the numbers."""
    overall = {name: results.average(name) for name in CONSTRUCTIONS}
    detail = ", ".join(f"{name} {1e3 * p.negative:.3f} ms" for name, p in overall.items())
    by_size = {(p.nodes, p.construction): p.negative for p in results.points}
    worse = [
        size for size in SIZES if by_size[size, "stall-avoiding"] < max(by_size[size, name] for name in CONSTRUCTIONS)
    ]
    slowest = max(results.points, key=lambda p: p.seconds)
    return [
        judged(
            "the stall-avoiding placement has the least negative capacity, on average over all graphs",
            COUNT,
            [overall["stall-avoiding"].negative == max(p.negative for p in overall.values())],
            (),
            detail,
        ),
        judged(
            "(not the paper's) the stall-avoiding placement has the least negative capacity at every size",
            COUNT,
            [not worse],
            (),
            f"not at {', '.join(map(str, worse))} operators" if worse else f"{len(SIZES)} sizes of 10 to 1000",
        ),
        judged(
            "(not the paper's) the stall-avoiding placement has the fewest virtual operators that fall behind",
            COUNT,
            [overall["stall-avoiding"].negatives == min(p.negatives for p in overall.values())],
            (),
            ", ".join(f"{name} {p.negatives:.1f} of {p.partitions:.1f}" for name, p in overall.items()),
        ),
        judged(
            "(not the paper's) a placement takes less than a second, at every size",
            PROCESSOR,
            [all(p.seconds < 1 for p in results.points if p.nodes == size) for size in SIZES],
            [None] * len(SIZES),
            f"{1e3 * slowest.seconds:.0f} ms for {slowest.nodes} operators ({slowest.construction})",
        ),
    ]


def draw(results: Placements, folder: Path) -> list[Path]:
    """Figure 11: negative and positive capacities of the constructions over all graphs, and by size."""
    made, (negative, positive, by_size) = figure(f"{TITLE} (cf. Figure 11)", 3, width=13, height=4.5)
    overall = [results.average(name) for name in CONSTRUCTIONS]
    names = list(CONSTRUCTIONS)
    negative.bar(names, [1e3 * p.negative for p in overall], color="#c0504d")
    negative.set_ylabel("average negative capacity [ms]")
    negative.set_title("virtual operators that fall behind", fontsize=10)
    positive.bar(names, [1e3 * p.positive for p in overall], color="#4f81bd")
    positive.set_ylabel("average positive capacity [ms]")
    positive.set_title("virtual operators that keep pace", fontsize=10)
    for bars in (negative, positive):
        bars.tick_params(axis="x", labelsize=8)
    series = {name: [p for p in results.points if p.construction == name] for name in names}
    lines(by_size, {n: ([p.nodes for p in own], [1e3 * p.negative for p in own]) for n, own in series.items()})
    by_size.set_xscale("log")
    by_size.set_xlabel("operators")
    by_size.set_ylabel("average negative capacity [ms]")
    by_size.set_title(f"by size; {results.graphs} random graphs each", fontsize=10)
    return [save(made, folder / "001-figure-11-capacities.png")]
