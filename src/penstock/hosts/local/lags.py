"""Queries that fall behind: how far they are, and what becomes of those that are too far."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from penstock.graph.graph import Graph, Member
from penstock.graph.sources import Source, Ticks
from penstock.graph.vertices import OperatorVertex
from penstock.model.amounts import Bound, shown
from penstock.model.errors import QueryFailed
from penstock.runtime.run import Runtime
from penstock.runtime.settings import Settings

_log = logging.getLogger("penstock")

Suspend = Callable[[str], None]
Stop = Callable[[str, QueryFailed], None]


class Lags:
    """What queries may lag, by name. What waits counts for a query where it waits for an operator that no other query
    needs.

    One that was suspended and goes on is let go on until it has caught up. Bounded by the queries.
    """

    def __init__(self, graph: Graph, runtime: Runtime, suspend: Suspend, stop: Stop) -> None:
        self._graph, self._runtime = graph, runtime
        self._suspend, self._stop = suspend, stop
        self.bounds: dict[str, tuple[Bound, str]] = {}
        self._known: set[str] = set()

    def become(self, settings: Settings, queries: Collection[str]) -> None:
        """These are the queries, and what is set for them."""
        self.bounds = {}
        if settings.lag is None and not any("lag" in own for own in settings.queries.values()):
            return
        for name in queries:
            own = settings.of_query(name)
            if own.lag_bound is not None:
                self.bounds[name] = own.lag_bound, own.on_lag
        self._known &= self.bounds.keys()

    def resumed(self, names: Collection[str]) -> None:
        """Queries, or operators that they need, go on: they may catch up."""
        self._known |= self.bounds.keys() & names

    def check(self) -> None:
        """Look at all that have a limit. Called under the database's lock."""
        for name, (bound, way) in list(self.bounds.items()):
            member = self._graph.members.get(name)
            if member is None:
                continue
            own = alone(member, name)
            ids = {v.id for v in own}
            rows, bytes = self._runtime.room.waiting(ids)
            if not _exceeds(bound, rows, bytes):
                self._known.discard(name)
                continue
            if way == "suspend" and name in self._known:
                continue
            with self._runtime.paused(own):  # perhaps what waits has been taken meanwhile
                rows, bytes = self._runtime.room.waiting(ids)
                if not _exceeds(bound, rows, bytes):
                    continue
                said = f"{rows:,} rows ({shown(bytes)}) wait for it, more than lag = '{bound}' allows"
                if way == "suspend":
                    self._known.add(name)
                    if not any(map(self._runtime.is_held, own)):
                        _log.warning("query %s is suspended (RESUME QUERY %s lets it go on): %s", name, name, said)
                        self._suspend(name)
            if way == "stop":
                hint = "what waited is gone with it; give it more room, or less to do"
                self._stop(name, QueryFailed(f"query `{name}` fell behind: {said}", hint=hint))


def _exceeds(bound: Bound, rows: int, bytes: int) -> bool:
    return rows > bound.rows if bound.rows is not None else bytes > (bound.bytes or 0)


def alone(member: Member, name: str) -> list[OperatorVertex]:
    """The operators that only this query needs, except those where rows come in."""
    return [v for v in member.vertices if v.users == {name} and not isinstance(v, Source | Ticks)]


def front(member: Member, name: str) -> set[int]:
    """Where rows come to the operators that only this query needs."""
    own = alone(member, name)
    ids = {v.id for v in own}
    return {v.id for v in own if any(e.source.id not in ids for e in v.inputs)}


def suspended(graph: Graph, runtime: Runtime) -> Mapping[str, bool]:
    """For each query, whether one of the operators that only it needs is suspended."""
    return {name: any(map(runtime.is_held, alone(member, name))) for name, member in graph.members.items()}
