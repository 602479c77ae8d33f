"""How many windows end at once: what would make too many of them be answered is refused, before anything is taken.

Rule 4.1 of docs/concepts/semantics.md says it in words. It is decided from what comes in, for all engines alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from penstock.catalog import QueryOptions
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change, Dating
from penstock.model.errors import InputError
from penstock.plan.empty import MOST
from penstock.plan.nodes import Query as Plan
from penstock.plan.window import Generic


class Earlier(Protocol):
    """Rows of a stream that came before a query."""

    @property
    def arrivals(self) -> int:
        """How many rows the stream had been given."""


class Query(Protocol):
    """What matters here of a registered query."""

    name: str
    plan: Plan
    dating: Dating
    options: QueryOptions

    @property
    def before(self) -> Mapping[str, Earlier]:
        """Rows that came before it and that it was not given."""

    @property
    def relations(self) -> frozenset[str]:
        """The relations that it reads."""

    @property
    def every_window(self) -> tuple[tuple[Generic, frozenset[str]], ...]:
        """The windows of which each is answered, also without rows, and the streams that end them."""


def check_rows(query: Query, before: StreamInput, after: StreamInput, batch: Batch) -> None:
    """Refuse what moves a stream on so far that too many windows of a query would end. ``batch``: its rows."""
    name = after.definition.name
    if after.definition.timestamp_by is None:
        return  # the clock goes on as it does
    for spec, streams in query.every_window:
        if name in streams:
            known = query.before.get(name)
            begun = before.newest_row > -math.inf and (known is None or before.arrivals > known.arrivals)
            since = before.progress if begun or not spec.from_first else -math.inf
            if since == -math.inf:
                oldest = [int(batch.ts[0])] if len(batch) else [span.file.oldest for span in after.spans]
                since = min(oldest, default=since)
            upto = before.named if after.closed else after.progress
            _check(query, spec, f"stream `{name}`", since, upto, after.closed)


def check_past(query: Query, streams: Mapping[str, StreamInput], first: Callable[[str], Instant]) -> None:
    """The same for what a new query begins with. ``first``: the instant of the first row of a stream that is retained,
    infinite if there is none."""
    for spec, names in query.every_window:
        for name in sorted(names):
            source = streams[name]
            oldest = first(name) if query.options.start != "now" else math.inf
            since = oldest if oldest < math.inf else -math.inf
            _check(query, spec, f"stream `{name}`", since, source.named, source.closed)


def check_beginning(query: Query, changes: Iterable[Change]) -> None:
    """The same for the changes that a new query without streams begins with."""
    instants = [0 if change.ts is None else change.ts for change in changes]
    for spec, _ in query.every_window if instants else ():
        since = min(instants) if spec.from_first else -math.inf
        _check(query, spec, "changes of relations", since, max(instants), False)


def check_change(query: Query, stores: Mapping[str, RelationStore], at: Instant) -> None:
    """The same for a change of a relation that a query without streams reads."""
    begun = any(stores[name].changes for name in query.relations)
    for spec, _ in query.every_window:
        since = query.dating.last if begun or not spec.from_first else -math.inf
        _check(query, spec, "the change", since, at, False)


def _check(query: Query, spec: Generic, what: str, since: Instant, upto: Instant, closed: bool) -> None:
    if spec.end_query is not None:
        upto = spec.end_query if closed else min(upto, spec.end_query)
    if not spec.from_first:
        since = max(since, spec.end)
    if not (math.isfinite(since) and math.isfinite(upto)):
        return
    windows = (int(upto) - int(since)) // spec.hop_high
    if windows > MOST:
        raise InputError(
            f"{what}: from {int(since)} to {int(upto)} there are {windows} windows of query `{query.name}`, and each of"
            f" them would be answered; at most {MOST} may end at once",
            hint="with GROUP BY a window without rows has no answer; or use longer windows",
        )
