"""The runtime with its threads: whatever is chosen and changed, what comes out is what direct calls give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import experiments  # noqa: F401 - more strategies, and the pool
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.vertex import Vertex
from penstock.model.delta import NEVER
from penstock.runtime import run
from penstock.runtime.owners import ARCHITECTURES
from penstock.runtime.run import PUSHED, Runtime
from penstock.runtime.settings import THREADING, Settings
from penstock.runtime.strategies import names
from tests.budget import examples
from tests.runtime.fakes import Fake, Map, Merge, Row, Sink, Source, link, message

MAPS = (lambda v: v, lambda v: v + 1, lambda v: v if v % 3 else None, lambda v: None)


@dataclass(frozen=True)
class Plan:
    """A random graph: for each operator what it is, and who sends to it; sources come first."""

    sources: int
    operators: tuple[tuple[int, tuple[int, ...]], ...]

    def build(self) -> tuple[list[Source], list[Fake], list[Sink]]:
        sources = [Source(i) for i in range(self.sources)]
        known: list[Fake] = list(sources)
        for i, (kind, senders) in enumerate(self.operators, self.sources):
            fake: Fake = Map(i, MAPS[kind]) if len(senders) == 1 else Merge(i)
            for sender in senders:
                link(known[sender], fake)
            known.append(fake)
        sinks = []
        for fake in list(known):
            if not fake.outputs:
                sinks.append(Sink(len(known)))
                link(fake, sinks[-1])
                known.append(sinks[-1])
        return sources, known[self.sources :], sinks


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    sources = draw(st.integers(1, 3))
    operators = []
    for i in range(draw(st.integers(1, 7))):
        senders = draw(st.lists(st.integers(0, sources + i - 1), min_size=1, max_size=3))
        operators.append((draw(st.integers(0, 3)), tuple(senders)))
    return Plan(sources, tuple(operators))


ways = st.builds(
    Settings,
    threading=st.sampled_from(THREADING),
    strategy=st.sampled_from(names()),
    workers=st.integers(1, 3),
    quantum=st.sampled_from([None, 1, 2, 5, 1e-6, "5 ms"]),
    architecture=st.sampled_from(sorted(ARCHITECTURES)),
    latency=st.sampled_from([1e-9, 10.0]),
)
pushes = st.tuples(st.just("push"), st.integers(0, 2), st.integers(0, 6), st.integers(0, 3))
moves = st.lists(
    pushes
    | pushes
    | pushes
    | st.tuples(st.just("place"), ways, st.lists(st.integers(0, 3), min_size=20, max_size=20), st.none() | ways)
    | st.tuples(st.just("move"), st.integers(0, 20), st.integers(0, 4))
    | st.tuples(st.just("adjust"), st.sampled_from(names()), st.integers(1, 3), st.sampled_from([None, 1, 5]))
    | st.tuples(st.sampled_from(["settle", "pause"]))
    | st.tuples(st.sampled_from(["suspend", "resume"]), st.integers(0, 20)),
    max_size=40,
)


class Pusher:
    """Pushes rows into the sources of two graphs at once."""

    def __init__(self, *sources: list[Source]) -> None:
        self.sources = sources
        self.known = [0] * len(sources[0])
        self.count = 0

    def push(self, which: int, ahead: int, rows: int) -> None:
        which %= len(self.known)
        begin = self.known[which]
        self.known[which] += ahead
        sent: list[Row] = []
        for i in range(rows if ahead else 0):
            self.count += 1
            sent.append((begin + i * ahead // rows, self.count, self.count))
        for sources in self.sources:
            sources[which].send(message(sent, self.known[which]))

    def close(self) -> None:
        for sources in self.sources:
            for source in sources:
                source.send(message([], NEVER))


def answers(sinks: list[Sink]) -> list[dict[int, list[Row]]]:
    return [{port: rows for port, rows in sink.rows.items() if rows} for sink in sinks]


@settings(max_examples=examples(200))
@given(plans(), ways, moves, st.sampled_from([0, run.LONG]))
def test_never_what_only_when(plan: Plan, first: Settings, moves: list[tuple[Any, ...]], long: int) -> None:
    with patch.object(run, "LONG", long):
        check(plan, first, moves)


def check(plan: Plan, first: Settings, moves: list[tuple[Any, ...]]) -> None:
    failures: list[tuple[Vertex | None, Exception]] = []
    sources, vertices, sinks = plan.build()
    plain_sources, _, plain_sinks = plan.build()
    runtime = Runtime(first, lambda vertex, error: failures.append((vertex, error)))
    runtime.place(vertices, sources, {})
    pusher = Pusher(sources, plain_sources)
    held: set[int] = set()
    partition_of: dict[int, int] = {}
    own: dict[int, Settings] | None = None
    try:
        for kind, *what in moves:
            if kind == "push":
                pusher.push(*what)
            elif kind == "place":
                way, numbers, other = what
                partition_of = {v.id: numbers[v.id % 20] for v in vertices}
                own = {v.id: other for v in vertices if v.id % 2} if other is not None else None
                runtime.place(vertices, sources, partition_of, way, own)
            elif kind == "move":
                which, number = what
                partition_of = {**partition_of, vertices[which % len(vertices)].id: number}
                runtime.place(vertices, sources, partition_of, settings_of=own)
            elif kind == "adjust":
                strategy, workers, quantum = what
                way = replace(runtime.settings, strategy=strategy, workers=workers, quantum=quantum)
                if runtime.adjust(way, {}):
                    own = None
                    assert {p.strategy for p in runtime.partitions() if p.worker} <= {strategy}
            elif kind == "pause":
                with runtime.paused(), runtime.paused():
                    others = [v for v in vertices if runtime.partition_of[v.id] != PUSHED]
                    before = [v.stats.calls for v in others]
                    pusher.push(0, 1, 1)
                    assert before == [v.stats.calls for v in others]
            elif kind == "settle":
                runtime.settle()
                if not held:
                    assert answers(sinks) == answers(plain_sinks)
            else:
                vertex = vertices[what[0] % len(vertices)]
                if kind == "suspend" and vertex.id not in held:
                    held.add(vertex.id)
                    runtime.suspend(vertex)
                elif kind == "resume" and vertex.id in held:
                    held.remove(vertex.id)
                    runtime.resume(vertex)
        for vertex in vertices:
            if vertex.id in held:
                runtime.resume(vertex)
        pusher.close()
        runtime.settle()
        assert answers(sinks) == answers(plain_sinks)
        assert all(not view.elements for view in runtime.buffers.values())
    finally:
        runtime.close()
    assert runtime.threads == 0
    assert failures == []
    assert [v.errors for v in vertices if v.errors] == []
