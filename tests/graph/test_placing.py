"""From measured costs to partitions, again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from penstock.graph.vertices import OperatorVertex
from penstock.hosts.local.placing import Placing
from penstock.runtime.settings import Settings
from tests.runtime.fakes import Map, chain

HYBRID = Settings(threading="hybrid")


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
        return placing.changes(vertices, HYBRID, {})

    assert len(set(placing.partitions(vertices, HYBRID, {}).values())) == 1
    assert not asked(0.0)
    assert not asked(10.0)  # too slow for one thread, but perhaps not for long
    assert not asked(0.0)
    assert not asked(10.0)
    assert asked(10.0)
    assert len(set(placing.partitions(vertices, HYBRID, {}).values())) == 2


def test_chain_keeps_its_segments_apart() -> None:
    """An operator that releases much for its cost is a segment: those behind it must not be called from it."""
    fakes = [Map(1), Map(2), Map(3)]
    chain(*fakes)
    for fake in fakes:
        fake.stats.elements_in = fake.stats.elements_out = 1_000
        fake.stats.busy, fake.stats.until = 1_000_000, fake.stats.since + 10**12
    fakes[0].stats.elements_out = 10
    vertices = [cast(OperatorVertex, fake) for fake in fakes]
    placing = Placing()
    assert placing.partitions(vertices, HYBRID, {}) == {1: 0, 2: 0, 3: 0}
    for name in ("chain-flush", "chain-flush+"):
        assert placing.partitions(vertices, replace(HYBRID, strategy=name), {}) == {1: 0, 2: 1, 3: 1}
    own = {3: replace(HYBRID, strategy="chain-flush")}
    assert placing.partitions(vertices, HYBRID, own) == {1: 0, 2: 0, 3: 0}, "only one of them goes by Chain"
    asked = replace(HYBRID, strategy="chain-flush", queues={(1, 2): False})
    assert placing.partitions(vertices, asked, {}) == {1: 0, 2: 0, 3: 0}, "a user knows better"
