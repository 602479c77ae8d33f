"""Queries that are given other options while they run, that rest and go on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

from penstock.catalog import QueryOptions
from penstock.hosts.host import Host
from penstock.hosts.registered import Registered
from penstock.model.errors import StateError


class Altering(ABC):
    """The part of ``Core`` that changes queries which run."""

    host: Host
    queries: dict[str, Registered]

    @abstractmethod
    def changing(self, *, though_closed: bool = False) -> AbstractContextManager[None]:
        """With the lock; afterwards the host works and subscribers are called."""

    def alter(self, query: Registered, change: Callable[[QueryOptions], QueryOptions]) -> None:
        """Let a query have other options from now on; only those of ``ALTERABLE`` are others. Without the lock."""
        with self.changing():
            self._change(query, change(query.options), query.suspended)
        self.host.abilities().configured()

    def rest(self, query: Registered, *, suspended: bool) -> None:
        """Let a query rest, so that what comes waits for it, or go on where it is. Without the lock."""
        with self.changing():
            if query.status == "running" and query.suspended == suspended:
                if suspended:
                    hint = f"RESUME QUERY {query.name} lets it go on"
                    raise StateError(f"query `{query.name}` is suspended already", hint=hint)
                raise StateError(f"query `{query.name}` is not suspended", hint="only a suspended query can be resumed")
            self._change(query, query.options, suspended)
        self.host.abilities().configured()

    def alter_again(self, name: str, options: QueryOptions, suspended: bool) -> None:
        """A query was given other options, suspended or resumed before a restart."""
        self._change(self.queries[name], options, suspended)

    def _change(self, query: Registered, options: QueryOptions, suspended: bool) -> None:
        if query.status != "running" or self.queries.get(query.name) is not query:
            status = f"has {query.status}" if query.status in ("ended", "failed") else "is stopped"
            raise StateError(f"query `{query.name}` {status}", hint="only a query that runs can be changed")
        self.host.altering(query, options, suspended)  # from here on it counts
        before, query.options, query.suspended = query.options, options, suspended
        with query.lock:
            query.results.bind(options.results)
            query.changed.notify_all()
        self.host.altered(query, before)
