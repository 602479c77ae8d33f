"""What a query begins with: rows from before it that streams retain, and what is said of those that they do not."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial

from penstock.catalog import Catalog, retain_example
from penstock.hosts.history import History
from penstock.hosts.incomplete import between
from penstock.hosts.registered import Before, Registered
from penstock.ingest.flood import check_past
from penstock.ingest.past import check_reach, lacking
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Instant
from penstock.model.errors import BindError
from penstock.plan.derive import touched_until
from penstock.plan.nodes import Query as Plan
from penstock.plan.nodes import stream_scans


class Beginning(ABC):
    """The part of ``Core`` that knows the past. All calls come under the lock."""

    catalog: Catalog
    inputs: dict[str, StreamInput]
    history: dict[str, History]

    @abstractmethod
    def readers(self, stream: str) -> list[Registered]:
        """The running queries that rows of a stream are for."""

    def check_past(self, query: Registered) -> None:
        """Refuse a query that would begin with too many windows, or whose windows go back further than its streams."""
        check_past(query, self.inputs, self._first_retained)
        check_reach(query.plan, query.options, self.inputs, partial(self._missing, query))

    def note_past(self, query: Registered) -> None:
        """Note with a new query what it is not given."""
        query.before = self._rows_before(query)
        until, why = lacking(query.plan, query.inputs, partial(self._missing, query))
        if until > -math.inf:
            query.results.marks.add(between(-math.inf, until, why))

    def _missing(self, query: Registered, stream: str) -> Instant:
        """The greatest instant of a row of a stream that a query which begins now is not given."""
        past = self.history.get(stream)
        return self.inputs[stream].passed if past is None or query.options.start == "now" else past.forgotten

    def _first_retained(self, stream: str) -> Instant:
        return self.history[stream].retained.first if stream in self.history else math.inf

    def lacking(self, stream: str, first: Instant, last: Instant) -> None:
        why = f"rows of stream `{stream}` were dropped, since there was no room for them (overflow = 'drop oldest')"
        for query in self.readers(stream):
            until = touched_until(query.plan, {stream: last})
            if until >= first:
                with query.lock:
                    query.results.marks.add(between(first, until, why))

    def check_retained(self, plan: Plan) -> None:
        """Refuse a query that is to start with what streams retain which do not."""
        for node in stream_scans(plan):
            if not self.catalog.stream(node.stream).retain:
                raise BindError(
                    f"stream `{node.stream}` retains no rows that the query could start with",
                    hint=f"declare it {retain_example(node.clock)}",
                )

    def _rows_before(self, query: Registered) -> dict[str, Before]:
        """The rows that streams have had and do not retain; of those that wait for slack the query will hear."""
        if query.options.start == "now":
            return {}
        found: dict[str, Before] = {}
        for name in sorted(query.inputs):
            source = self.inputs[name]
            rows = source.arrivals - source.late.count - source.apart.count - source.waiting
            if rows and not source.definition.retain:
                found[name] = Before(rows, source.arrivals)
        return found
