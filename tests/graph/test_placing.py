"""From measured costs to partitions, again and again."""

from __future__ import annotations

from typing import cast

from penstock.graph.vertices import OperatorVertex
from penstock.hosts.local.placing import Placing
from tests.runtime.fakes import Map, chain


def test_only_what_lasts_moves_buffers() -> None:
    """To move them stops all workers, so one look at a burst is not enough."""
    fakes = [Map(1), Map(2)]
    chain(*fakes)
    vertices = [cast(OperatorVertex, fake) for fake in fakes]
    placing = Placing()

    def asked(seconds: float) -> bool:
        """As if each operator had worked so long on each of a million elements."""
        for fake in fakes:
            fake.stats.elements_in = fake.stats.elements_out = 1_000_000
            fake.stats.busy = int(seconds * 1e15)
            fake.stats.until = fake.stats.since + 1_000_000_000
        return placing.changes(vertices, "stall-avoiding")

    assert len(set(placing.partitions(vertices, "stall-avoiding").values())) == 1
    assert not asked(0.0)
    assert not asked(10.0)  # too slow for one thread, but perhaps not for long
    assert not asked(0.0)
    assert not asked(10.0)
    assert asked(10.0)
    assert len(set(placing.partitions(vertices, "stall-avoiding").values())) == 2
