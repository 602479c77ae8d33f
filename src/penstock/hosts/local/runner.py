"""A query of the graph, as the database holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.graph.answers import DeltaAnswers, ordered
from penstock.graph.graph import Past
from penstock.graph.operators import Staged
from penstock.graph.programs import sizes
from penstock.graph.sharing import Demand
from penstock.graph.sink import Sink
from penstock.hosts.host import QuerySettings
from penstock.hosts.meter import QUICK, Meter, sampled
from penstock.hosts.registered import Registered
from penstock.hosts.results import digests
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import Delta, concat, row_bytes
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState
from penstock.plan.nodes import Query, stream_scans
from penstock.plan.window import WindowSpec

if TYPE_CHECKING:
    from penstock.hosts.local.host import LocalHost
    from penstock.hosts.local.sharded import Shards


class GraphRunner(DeltaAnswers):
    """What it is given before ``Host.begin`` is its past; afterwards the host feeds the graph."""

    def __init__(self, host: LocalHost, plan: Query, schema: pa.Schema, settings: QuerySettings) -> None:
        super().__init__(plan, schema)
        self.plan, self.settings = plan, settings
        self.past = Past()
        self.had_past = False
        """Whether it was given rows or changes from before its registration."""
        self.wants: list[Demand] = []
        self.raised: set[tuple[str, int, WindowSpec]] = set()
        """Windows that are not its own, but hold all rows for several queries."""
        self.sink: Sink | None = None
        self.name = ""
        """That of its query, once it has begun."""
        self.number = 0
        """Of a database with a directory: what tells its query from others of that name."""
        self.shards: Shards | None = None
        """Of a query that comes from Spark: it is not in the graph."""
        self._host = host
        self._ranked: Delta | None = None
        """The answers that ``run`` gave last, in their order, if some have priorities; until they are measured."""
        self._ended = False
        self._threaded = False
        """Whether a join that does not wait has been run by workers: its results came in an order of their own."""
        self._failures: tuple[int, str | None] = (0, None)

    @property
    def ended(self) -> bool:
        sink = self.sink
        if self.shards is not None:
            return self.shards.ended
        # A worker may be adding answers: it says that it has ended after the last of them.
        return self._ended or (sink is not None and sink.ended and not sink.answers)

    def may_share_with(self, other: GraphRunner) -> bool:
        """Whether both want a window for which the other query may be put together anew."""
        return not {want.window for want in self.wants}.isdisjoint(want.window for want in other.wants)

    @property
    def has_more(self) -> bool:
        """Whether ``run`` has something to give or to raise."""
        return self.sink is not None and (bool(self.sink.answers) or self.sink.error is not None)

    @property
    def failures(self) -> int:
        return self._counted()[0]

    @property
    def last_failure(self) -> str | None:
        return self._counted()[1]

    def _counted(self) -> tuple[int, str | None]:
        sink = self.sink
        if self.shards is not None:
            self._failures = self.shards.failures()
        if sink is not None:
            graph, name = self._host.graph, sink.query
            with suppress(KeyError):  # somebody else has just stopped the query
                self._failures = (graph.failures(name), graph.last_failure(name))
        return self._failures

    def facts(self) -> Mapping[str, Any]:
        if self.shards is not None:
            return {"number": self.number, "raised": [], "shards": {"id": self.shards.id, "slot": self.shards.slot}}
        return {"number": self.number, "raised": [i for i, want in enumerate(self.wants) if want.window in self.raised]}

    def resume(self, failures: tuple[int, str | None], *, ended: bool) -> None:
        """Be the runner of a query that had come so far before a restart."""
        self._failures, self._ended = (failures[0], failures[1]), ended

    def delivered(
        self, answers: Sequence[Delta | pa.Table], upto: int | None, notes: Mapping[str, object] | None = None
    ) -> None:
        if upto is not None:
            # Where rows overtake others, results come in another order when it is all done again.
            rows = digests(self.table(answers)) if self._host.keeps and self._reorders else None
            self._host.delivered(self, upto, notes, rows)

    @property
    def _reorders(self) -> bool:
        """Whether the order of results is that of the threads, or of the settings of then."""
        graph = self._host.graph
        if not self._prioritised and not self._threaded and graph.buffered:
            member = graph.members.get(self.name)
            self._threaded = member is not None and any(isinstance(v, Staged) and v.eager for v in member.vertices)
        return self._prioritised or self._threaded

    @cached_property
    def _prioritised(self) -> bool:
        streams = self._host.core.catalog.streams
        return any(streams[scan.stream].priority is not None for scan in stream_scans(self.plan))

    def written(self) -> None:
        self._host.after()

    @cached_property
    def _width(self) -> int | None:
        """Bytes of a result, if all have the same."""
        types = [f.type.arrow for f in self.plan.schema]
        return row_bytes(types) if all(map(pa.types.is_primitive, types)) else None

    def push(self, stream: str, batches: Sequence[Batch]) -> None:
        self.past.rows[stream] = batches

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self.past.changes[relation] = changes

    def progress(self, stream: str, at: Instant) -> None:
        self.past.progress[stream] = at

    def size(self, answers: Delta | pa.Table) -> int:
        # Arrow takes its time to say how large a column is, and every push asks.
        return int(answers.nbytes) if self._width is None else len(answers) * self._width

    def run(self) -> Delta | None:
        """The answers that workers, or whoever pushed, have left here."""
        if self.shards is not None:
            answers = self.shards.run()
            return None if answers is None else self._urgent_first(answers)
        sink = self.sink
        assert sink is not None, "the database lets no closed runner work"
        deltas = sink.taken()
        if self._host.runtime.storage.gaps:
            self._host.tell_dropped()  # these may be the first that lack something
        if deltas:
            together = deltas[0] if len(deltas) == 1 else concat(deltas)
            return together if together.priority is None else self._urgent_first(together)
        if sink.error is not None:
            raise sink.error
        return None

    def _urgent_first(self, answers: Delta) -> Delta:
        self._ranked = None if answers.priority is None else answers
        return ordered(answers)

    def measure(self, meter: Meter, answers: Delta, delivered: float, began: float) -> None:
        buffered = self._host.graph.buffered
        if meter.plain and self._ranked is None and not buffered:
            meter.quick.extend((delivered, began, len(answers.ts)))
            if len(meter.quick) >= QUICK:
                meter.fold()
            return
        given, self._ranked = answers if self._ranked is None else self._ranked, None
        meter.note(delivered, None if buffered else began, sampled(given.ts, given.sub, given.priority))

    def sizes(self) -> Mapping[str, StateSize]:
        if self.shards is not None:
            return self.shards.sizes()
        sink = self.sink
        member = None if sink is None else self._host.graph.members.get(sink.query)
        return {} if member is None else sizes(member.vertices)

    def close(self) -> None:
        if self.shards is not None:
            self._ended = self.shards.ended
            self._counted()
            self.shards = None
        if self.sink is not None:
            self._ended = self.sink.ended
            self._counted()
            sink, self.sink = self.sink, None
            self._host.end(self, sink)


def sharded(queries: Sequence[Registered]) -> Iterator[Shards]:
    """Of queries that come from Spark: their shards."""
    for query in queries:
        if isinstance(query.runner, GraphRunner) and query.runner.shards is not None:
            yield query.runner.shards


def shards_of(runner: GraphRunner, facts: Mapping[str, Any], slots: int, state: LoadedState) -> Shards:
    """The shards of a query that comes from Spark."""
    from penstock.hosts.local.sharded import Shards  # few databases come from Spark

    return Shards(facts["id"], runner.number, facts["slot"], slots, runner.plan, runner.settings, state)
