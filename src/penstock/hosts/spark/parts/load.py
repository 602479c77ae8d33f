"""What is measured of a part: how soon rows come, and what each query takes for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.hosts.spark.parts.grouping import crowding

WINDOW = 5.0
"""Seconds over which is measured: a push of many rows at once is no reason to divide a part."""
BATCHES = 8
"""Micro-batches that are measured at least."""


class Load:
    """Counts of a part since an instant. Bounded by: its queries."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._arrived = 0
        self._taken = 0
        self._batches = 0
        self._seconds: dict[str, float] = {}

    def arrived(self, rows: int) -> None:
        """Rows have come to the part."""
        self._arrived += rows

    def worked(self, rows: int, seconds: Mapping[str, float]) -> None:
        """A micro-batch has taken rows, and each query so many seconds for them."""
        self._taken += rows
        self._batches += 1
        for id, spent in seconds.items():
            self._seconds[id] = self._seconds.get(id, 0.0) + spent

    def crowding(self, now: float, queries: Collection[str], most: int) -> list[str]:
        """At the end of a window: which of its queries, at most so many, must go for the part to keep pace."""
        if now - self._since < WINDOW or self._batches < BATCHES:
            return []
        found: list[str] = []
        if self._arrived and self._taken:
            costs = {id: self._seconds.get(id, 0.0) / self._taken for id in queries}
            found = crowding(costs, (now - self._since) / self._arrived, most)
        self.__init__(now)  # type: ignore[misc]
        return found
