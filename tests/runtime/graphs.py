"""Random graphs with numbers, for placement."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from penstock.runtime.placement import Node, PlacementGraph, capacity


@st.composite
def graphs(draw: st.DrawFn, least: int = 1, most: int = 20, missing: bool = True) -> PlacementGraph:
    """Each node sends to later ones; the numbers of nodes are in no order."""
    count = draw(st.integers(least, most))
    ids = draw(st.permutations(range(100, 100 + count)))

    def number(strategy: st.SearchStrategy[float]) -> st.SearchStrategy[float | None]:
        return st.none() | strategy if missing else strategy

    nodes = tuple(
        Node(
            id,
            draw(number(st.sampled_from([0.0, 0.5, 1.0, 4.0]) | st.floats(0, 10))),
            draw(number(st.sampled_from([0.0, 1.0, 8.0, 64.0]) | st.floats(0, 200))),
            draw(number(st.sampled_from([0.0, 0.5, 1.0, 3.0]) | st.floats(0, 2))),
        )
        for id in ids
    )
    edges = []
    for target in range(1, count):
        for source in draw(st.lists(st.integers(0, target - 1), max_size=3)):
            edges.append((ids[source], ids[target]))
    return PlacementGraph(nodes, tuple(draw(st.permutations(edges))))


def path_graph(nodes: list[Node]) -> PlacementGraph:
    """A path in the order given."""
    return PlacementGraph(tuple(nodes), tuple((a.id, b.id) for a, b in pairwise(nodes)))


def members(placement: dict[int, int]) -> dict[int, set[int]]:
    """The operators of each partition."""
    partitions: dict[int, set[int]] = {}
    for id, partition in placement.items():
        partitions.setdefault(partition, set()).add(id)
    return partitions


def connected(graph: PlacementGraph, part: set[int]) -> bool:
    """Whether one can go from each operator to each other along edges inside the part, in any direction."""
    reached = {next(iter(part))}
    while True:
        more = {b for a, b in graph.edges if a in reached} | {a for a, b in graph.edges if b in reached}
        if not (more & part) - reached:
            return reached == part
        reached |= more & part


def fewest(graph: PlacementGraph) -> int:
    """The least number of connected partitions, none of several operators with a negative capacity; by trying all."""
    nodes = list(graph.known.values())
    fits = [False] * (1 << len(nodes))
    for subset in range(1, len(fits)):
        part = [node for i, node in enumerate(nodes) if subset >> i & 1]
        fits[subset] = len(part) == 1 or (capacity(part) >= 0 and connected(graph, {node.id for node in part}))
    best = [0] + [len(nodes)] * (len(fits) - 1)
    for subset in range(1, len(fits)):
        lowest = subset & -subset
        chosen = subset
        while chosen:
            if chosen & lowest and fits[chosen]:
                best[subset] = min(best[subset], best[subset & ~chosen] + 1)
            chosen = (chosen - 1) & subset
    return best[-1]
