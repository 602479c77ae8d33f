"""Databases whose graph is saved now and then, and goes on in another one that is restored from what was saved."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import penstock
from penstock.database.database import core_of
from penstock.graph.graph import Graph
from penstock.graph.saving import restore, save
from penstock.graph.sharing import raised
from penstock.graph.vertices import OperatorVertex
from penstock.hosts.local.host import LocalHost
from penstock.operators.identity import Functions, Named
from penstock.storage.versions import StateStore


class Restarts:
    """The graph of a database, saved and restored. A store lives as long as the graph that goes on with it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._store = StateStore(folder)
        self._version = 0

    def save(self, db: penstock.Database) -> None:
        """Commit what the graph remembers."""
        host = _host(db)
        db.settle()
        if host.runtime.holds:
            return  # rows wait in front of an operator that is suspended
        with host.runtime.paused():
            self._version += 1
            self._store.commit(self._version, save(host.graph))
            self._store.forget(self._version)

    def restart(self, db: penstock.Database) -> None:
        """Go on with another graph."""
        host = _host(db)
        self.save(db)
        if host.runtime.holds:
            return
        if host._changed:
            host._tidy()
        with host.runtime.paused():
            self._store = StateStore(self._folder)
            state = self._store.load(self._version, verify=True)
            assert state is not None
            graph = Graph(host._told)
            runners = host._runners
            plans = {n: (raised(r.plan, r.raised), anew(r.settings.functions)) for n, r in runners.items()}
            restore(graph, state, plans)
            assert list(graph.members) == list(host.graph.members)
            was, now = shape(host.graph), shape(graph)
            assert now == was, [(a, b) for a, b in zip(was, now, strict=True) if a != b]
            graph.buffered = host.graph.buffered
            host.graph = host._admission._graph = host._lags._graph = host._resting._graph = graph
            for name, runner in runners.items():
                runner.sink = graph.members[name].sink
        host._tidy()


def _host(db: penstock.Database) -> LocalHost:
    host = core_of(db).host
    assert isinstance(host, LocalHost)
    return host


def graph_of(db: penstock.Database) -> Graph:
    return _host(db).graph


def named(functions: Functions) -> Named:
    """Functions as they are told apart in every process."""
    return Named(functions, {name: f"{name}@1" for name in functions})


def anew(functions: Functions) -> Named:
    """The functions of another process: others, of the same names."""

    def other(call: Callable[..., object]) -> Callable[..., object]:
        return lambda *args: call(*args)

    return named({name: other(f) for name, f in functions.items()})


@contextmanager
def restarts() -> Iterator[Restarts]:
    with tempfile.TemporaryDirectory() as folder:
        yield Restarts(folder)


def held(vertex: OperatorVertex) -> int | None:
    """How many rows an operator holds. One that has stopped holds nothing that matters; bounded windows forget whole
    batches, which other than those that came are read back."""
    return None if vertex.state == "stopped" or vertex.kind == "windows" else vertex.size().rows


def shape(graph: Graph) -> list[object]:
    """What there is: operators, their inputs and users, how far they are, and how many rows they hold."""
    return [
        (
            v.id, v.kind, v.label, [e.source.id for e in v.inputs], [(e.target.id, e.port, e.since) for e in v.outputs],
            sorted(v.users), v.priority, v.touched, dict(v.start), v.mark.plain(), v.sent.plain(), v.quiet,
            graph.is_kept(v), v.state == "stopped", held(v),
            None if v.errors is None else (v.errors.failures, v.errors.last_failure),
        )
        for v in graph.vertices.values()
    ]  # fmt: skip
