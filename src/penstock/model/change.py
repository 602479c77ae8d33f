"""Changes of stored relations, and when those happen that no instant was said for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

CHANGES = ""
"""A name that no stream has. Its progress says how many changes were made before any instant was named."""


@dataclass(frozen=True)
class Change:
    """A row put into a relation (sign +1) or taken out (-1).

    Changes of one ``ts`` and ``group`` are one instant. ``ts`` None: made before any instant was named; then ``group``
    is its place among all such changes of the database.
    """

    ts: int | None
    sign: int
    row: tuple[object, ...]
    arrival: int
    group: int = 0


@dataclass
class Dating:
    """Changes of relations as instants of a query without streams.

    Each that comes after the beginning of the query is after the one before. Where no instant has been named, they are
    counted; ``earlier``: how many there were before the query.
    """

    begun: bool = False
    earlier: int = 0
    last: int = 0
    """The instant of the last change; at first 0, at which the query is evaluated for the first time."""

    def dated(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Changes of a relation at their instants, in order."""
        if not self.begun:
            self.last = max([self.last, *(c.ts for c in changes if c.ts is not None)])
            return changes
        found: list[Change] = []
        before: Change | None = None
        for change in changes:
            if before is None or (change.ts, change.group) != (before.ts, before.group):
                at = change.group - self.earlier if change.ts is None else change.ts
                self.last = max(self.last + 1, at)
            before = change
            found.append(replace(change, ts=self.last))
        return found
