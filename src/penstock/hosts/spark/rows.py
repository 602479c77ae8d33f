"""A shard of a job over DataFrames: rows of a step in any order and progress in, answers out.

A step is a micro-batch, or all there is. Within a step rows have no order but that of time (ties: the order in which
the source gave them), so a row is late if it is behind the progress that its stream had made *before* the step: the
newest row of all earlier steps, of any shard, minus slack. A table that is read as a stream has one step, so nothing in
it is late.

A shard holds its programs' state, and of each stream the rows that are newer than its progress; those wait for slack.

Relations get other rows between steps. What differs is a change one tick after the newest row of all earlier steps, of
any stream that has the kind of clock of those it is read with; so all shards have it at one instant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.answers import DeltaAnswers
from penstock.graph.programs import Programs
from penstock.hosts.spark.job import Job, Part, Source, reads
from penstock.hosts.spark.shard import Shard
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.names import counted
from penstock.model.schema import arrow_schema
from penstock.model.values import to_rows
from penstock.operators.state import LoadedState, Piece, Saved, State, below, under
from penstock.operators.tables import from_number, number

Ticks = npt.NDArray[np.int64]
ROWS_AT_ONCE = 1 << 16
"""Rows that are answered at a time where queries remember nothing."""


@dataclass(frozen=True)
class Waiting:
    """What waits for more rows: rows of each stream for its slack, and at most so many in open windows.

    ``behind``: the streams that others are ahead of, whose answers wait for them. As a text it says all that in words.
    """

    slack: Mapping[str, int]
    windows: int
    behind: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.slack or self.windows or self.behind)

    def __str__(self) -> str:
        said = [f"{counted(n, 'row')} of `{stream}` for its slack" for stream, n in self.slack.items()]
        if self.windows:
            said.append(f"at most {counted(self.windows, 'row')} for the end of windows")
        return "; ".join(said + [f"other streams for rows of `{stream}`" for stream in self.behind])


@dataclass(frozen=True)
class Answers:
    """What a step gave: tables with the names of their queries, and the rows of each stream that came too late for it.

    Where queries remember nothing, a table is made when it is asked for: Spark takes one while the next is made.
    """

    tables: Iterable[tuple[str, pa.Table]]
    late: Mapping[str, pa.Table]


@dataclass(frozen=True)
class Unread:
    """Rows of a step that are read when they are answered: ``count`` rows, none before ``first``, which all fit."""

    count: int
    first: int
    tables: Callable[[], Iterator[pa.Table]]


@dataclass(frozen=True)
class RowFeed:
    """The rows of a step of each stream, in the order in which the source gave them, and ``newest`` of all shards.

    ``relations``: the rows that relations have from this step on; None: those they had. ``unread``: rows of streams
    that are still in their files.
    """

    rows: Mapping[str, Sequence[pa.Table]]
    newest: Mapping[str, int]
    relations: Mapping[str, Sequence[pa.Table]] | None = None
    ends: bool = False
    """Whether the streams end with this step."""
    unread: Mapping[str, Unread] = field(default_factory=dict)


class RowShard(Shard[RowFeed, Answers]):
    """The programs of one shard of one part."""

    def __init__(self, job: Job, part: Part) -> None:
        self._job = job
        self._queries = {q.name: DeltaAnswers(q.plan, q.schema) for q in part.queries}
        plans = {q.name: q.plan for q in part.queries}
        self._programs = Programs(plans, job.functions, strict=job.strict)
        # Where no query remembers a row, those that have the state see none.
        lazy = part.remembers_nothing
        self._by_themselves = Programs(plans, job.functions, strict=job.strict) if lazy else None
        self._streams = {s.name: _Stream(s) for s in job.sources if s.is_stream and s.name in part.reads}
        self._relations = {s.name: s for s in job.sources if not s.is_stream and s.name in part.reads}
        self._clock_of = {s.name: s.clock for s in job.sources if s.is_stream}
        self._readers = [frozenset(reads(q.plan)) for q in part.queries]
        self._named: dict[str, float] = {}  # by clock
        self._changes = 0

    @property
    def failures(self) -> int:
        """How many values became NULL because computing them failed."""
        return sum(self._programs.failures(name)[0] for name in self._queries)

    def _relate(self, rows: Mapping[str, Sequence[pa.Table]]) -> None:
        for name, source in self._relations.items():
            given = [row for table in rows.get(name, ()) for row in to_rows(table, source.schema)]
            found = self._programs.difference(name, given)
            self._changes += len(found)
            at = self._next_instant(name)
            changes = [Change(at, sign, row, i - self._changes) for i, (sign, row) in enumerate(found)]
            if changes:
                self._programs.change(name, changes)

    def _next_instant(self, relation: str) -> int | None:
        beside = {name for read in self._readers if relation in read for name in read} & self._clock_of.keys()
        clocks = {self._clock_of[name] for name in beside or self._clock_of}
        newest = max((self._named.get(clock, -math.inf) for clock in clocks), default=-math.inf)
        return None if newest == -math.inf else int(newest) + 1

    def step(self, feed: RowFeed) -> Answers:
        """The answers, and the rows that came too late for it."""
        if feed.relations is not None:
            self._relate(feed.relations)
        late: dict[str, pa.Table] = {}
        for name, last in feed.newest.items():
            clock = self._clock_of[name]
            self._named[clock] = max(self._named.get(clock, last), last)
        passing: list[tuple[str, Iterator[Batch]]] = []
        for name, stream in self._streams.items():
            rows, unread = feed.rows.get(name, ()), feed.unread.get(name)
            if unread is not None and self._by_themselves is not None and stream.lets_pass(unread):
                passing.append((name, stream.passing(unread)))
            elif unread is not None:
                rows = [*rows, *unread.tables()]
            late_rows = stream.take(rows, feed.newest.get(name))
            if len(late_rows):
                late[name] = late_rows
        if self._job.idle is not None:
            furthest = max((s.newest for s in self._streams.values()), default=-math.inf)
            for stream in self._streams.values():
                stream.progress = max(stream.progress, furthest - self._job.idle)
        return Answers(self._answered(passing, end=self._job.bounded or feed.ends), late)

    def _answered(self, passing: list[tuple[str, Iterator[Batch]]], *, end: bool) -> Iterable[tuple[str, pa.Table]]:
        released: list[tuple[str, Batch]] = []
        for name, stream in self._streams.items():
            batch = stream.release(end=end)
            released.append((name, batch))
            if len(batch) and self._by_themselves is None:
                self._programs.push(name, batch)
            if end:
                # How far the whole stream came decides which windows are answered when it ends.
                if stream.newest > -math.inf:
                    self._programs.progress(name, stream.newest)
                self._programs.progress(name, math.inf)
            elif stream.progress > -math.inf:
                self._programs.progress(name, stream.progress)
        given = list(self._given(self._programs))
        if self._by_themselves is None:
            return given
        return self._each(self._by_themselves, [*((name, iter([batch])) for name, batch in released), *passing])

    def _each(self, programs: Programs, released: list[tuple[str, Iterator[Batch]]]) -> Iterator[tuple[str, pa.Table]]:
        for name, batches in released:
            for batch in batches:
                for start in range(0, len(batch), ROWS_AT_ONCE):
                    programs.push(name, batch.slice(start, min(ROWS_AT_ONCE, len(batch) - start)))
                    yield from self._given(programs)

    def _given(self, programs: Programs) -> Iterator[tuple[str, pa.Table]]:
        for name, answers in programs.run().items():
            if isinstance(answers, Exception):
                raise answers
            if answers:
                yield name, self._queries[name].table(answers)

    def waiting(self) -> Waiting:
        """What more rows, or the end of the streams, will bring."""
        slack = {name: stream.waiting for name, stream in self._streams.items() if stream.waiting}
        furthest = max((s.progress for s in self._streams.values()), default=-math.inf)
        behind = tuple(name for name, stream in self._streams.items() if stream.progress < furthest)
        return Waiting(slack, self._programs.in_windows(), behind)

    def save(self) -> State:
        """All that a later step needs."""
        state: State = {f"input {name}": stream.save() for name, stream in self._streams.items()}
        if self._relations:
            named = {clock: number(at) for clock, at in self._named.items()}
            state["relations"] = Saved({"named": named, "changes": self._changes})
        return state | under("queries", self._programs.save())

    def take(self, state: LoadedState, feed: RowFeed, *, is_fresh: bool) -> None:
        """All of the state is for any feed."""
        queries = below("queries", state)
        if is_fresh:
            self._programs.load(queries)
        else:
            self._programs.catch_up(queries)
        for name, stream in self._streams.items():
            stream.load(state[f"input {name}"].meta, state[f"input {name}"].tables)
        if "relations" in state:
            meta = state["relations"].meta
            self._named = {clock: from_number(at) for clock, at in meta["named"].items()}
            self._changes = meta["changes"]
            return
        for name, stream in self._streams.items():  # saved when relations did not change
            clock = self._clock_of[name]
            self._named[clock] = max(self._named.get(clock, -math.inf), stream.newest)


class _Stream:
    """The rows of a stream on their way into a shard."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._schema = arrow_schema(source.schema)
        self.progress: float = -math.inf
        self.newest: float = -math.inf
        self.late = 0
        self._arrivals = 0
        self._waiting: pa.Table = self._schema.empty_table()
        self._saved: tuple[str, pa.Table] | None = None
        self._saves = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, tables: Sequence[pa.Table], newest: int | None) -> pa.Table:
        """The rows of a step and how far it goes; gives back the rows that are late."""
        rows = pa.concat_tables([self._schema.empty_table(), *tables])
        late = self._schema.empty_table()
        if self.progress > -math.inf and len(rows):
            behind = self._ticks(rows) < self.progress
            if behind.any():
                late, rows = rows.filter(pa.array(behind)), rows.filter(pa.array(~behind))
                self.late += len(late)
        if len(rows):
            self._waiting = pa.concat_tables([self._waiting, rows])
        if newest is not None:
            self.newest = max(self.newest, newest)
            self.progress = max(self.progress, newest - self._source.slack)
        return late

    def lets_pass(self, rows: Unread) -> bool:
        """Whether none of them is late, or has to wait for its turn."""
        return not self._source.slack and not len(self._waiting) and (rows.first >= self.progress or not rows.count)

    def passing(self, rows: Unread) -> Iterator[Batch]:
        """Rows whose turn it is, read when they are asked for."""
        since = self._arrivals
        self._arrivals += rows.count
        return self._passing(rows, since)

    def _passing(self, rows: Unread, since: int) -> Iterator[Batch]:
        for given in rows.tables():
            table, ts = self._in_order(given)
            arrival = np.arange(since, since + len(ts), dtype=np.int64)
            since += len(ts)
            yield Batch(self._source.schema, table.combine_chunks(), ts, arrival)

    def _in_order(self, table: pa.Table) -> tuple[pa.Table, Ticks]:
        ts = self._ticks(table)
        if len(ts) > 1 and not (ts[1:] >= ts[:-1]).all():
            order = np.argsort(ts, kind="stable")
            table, ts = table.take(pa.array(order)), ts[order]
        return table, ts

    def release(self, *, end: bool) -> Batch:
        """The rows whose turn has come, in order: those up to progress, or all."""
        table, ts = self._in_order(self._waiting)
        ready = len(ts) if end else int(np.searchsorted(ts, self.progress, side="right"))
        if ready or table is not self._waiting:
            self._waiting = table.slice(ready)
        arrival = np.arange(self._arrivals, self._arrivals + ready, dtype=np.int64)
        self._arrivals += ready
        return Batch(self._source.schema, table.slice(0, ready).combine_chunks(), ts[:ready], arrival)

    def save(self) -> Saved:
        pieces: tuple[Piece, ...] = ()
        if len(self._waiting):
            if self._saved is not None and self._saved[1] is self._waiting:
                pieces = (Piece(self._saved[0]),)
            else:
                self._saves += 1
                self._saved = (f"waiting {self._saves}", self._waiting)
                pieces = (Piece(*self._saved),)
        meta = {
            "progress": number(self.progress), "newest": number(self.newest), "arrivals": self._arrivals,
            "late": self.late, "saves": self._saves,
        }  # fmt: skip
        return Saved(meta, pieces)

    def load(self, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        self.progress, self.newest = from_number(meta["progress"]), from_number(meta["newest"])
        self._arrivals, self.late, self._saves = meta["arrivals"], meta["late"], meta["saves"]
        self._waiting, self._saved = self._schema.empty_table(), None
        for name, table in tables.items():
            table = table.rename_columns(self._schema.names)  # those saved may be in another case
            self._waiting, self._saved = table, (name, table)

    def _ticks(self, table: pa.Table) -> Ticks:
        assert self._source.timestamp is not None
        column = table.column(self._source.timestamp)
        chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        ticks: Ticks = chunk.view(pa.int64()).to_numpy()
        return ticks
