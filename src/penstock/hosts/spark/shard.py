"""One shard of a job: rows of a step in any order and progress in, answers out.

A step is a micro-batch, or all there is. Within a step rows have no order but that of time (ties: the order in which
the source gave them), so a row is late if it is behind the progress that its stream had made *before* the step: the
newest row of all earlier steps, of any shard, minus slack. A table that is read as a stream has one step, so nothing in
it is late.

A shard holds its programs' state, and of each stream the rows that are newer than its progress; those wait for slack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.answers import DeltaAnswers
from penstock.graph.programs import Programs
from penstock.hosts.spark.job import Job, Part, Source
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.schema import arrow_schema
from penstock.model.values import to_rows
from penstock.operators.state import LoadedState, Piece, Saved, State, below, under
from penstock.operators.tables import from_number, number

Ticks = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Answers:
    """What a step gave: tables by query, and the rows of each stream that came too late for it."""

    tables: Mapping[str, pa.Table]
    late: Mapping[str, pa.Table]


class Shard:
    """The programs of one shard of one part."""

    def __init__(self, job: Job, part: Part) -> None:
        self._job = job
        self._queries = {q.name: DeltaAnswers(q.plan, q.schema) for q in part.queries}
        self._programs = Programs({q.name: q.plan for q in part.queries}, job.functions, strict=job.strict)
        self._streams = {s.name: _Stream(s) for s in job.sources if s.is_stream and s.name in part.reads}
        self._relations = {s.name: s for s in job.sources if not s.is_stream and s.name in part.reads}

    @property
    def failures(self) -> int:
        """How many values became NULL because computing them failed."""
        return sum(self._programs.failures(name)[0] for name in self._queries)

    def begin(self, rows: Mapping[str, Sequence[pa.Table]]) -> None:
        """The rows of relations, before the first step."""
        for name, source in self._relations.items():
            given = [row for table in rows.get(name, ()) for row in to_rows(table, source.schema)]
            changes = [Change(None, 1, row, i - len(given)) for i, row in enumerate(given)]
            self._programs.change(name, changes)

    def step(self, rows: Mapping[str, Sequence[pa.Table]], newest: Mapping[str, int]) -> Answers:
        """Rows of each stream, in the order in which the source gave them; ``newest`` of all shards, in this step."""
        late: dict[str, pa.Table] = {}
        for name, stream in self._streams.items():
            late_rows = stream.take(rows.get(name, ()), newest.get(name))
            if len(late_rows):
                late[name] = late_rows
        if self._job.idle is not None:
            furthest = max((s.newest for s in self._streams.values()), default=-math.inf)
            for stream in self._streams.values():
                stream.progress = max(stream.progress, furthest - self._job.idle)
        for name, stream in self._streams.items():
            batch = stream.release(end=self._job.bounded)
            if len(batch):
                self._programs.push(name, batch)
            if self._job.bounded:
                # How far the whole stream came decides which windows are answered when it ends.
                self._programs.progress(name, stream.newest)
                self._programs.progress(name, math.inf)
            elif stream.progress > -math.inf:
                self._programs.progress(name, stream.progress)
        tables: dict[str, pa.Table] = {}
        for name, answers in self._programs.run().items():
            if isinstance(answers, Exception):
                raise answers
            if answers:
                tables[name] = self._queries[name].table(answers)
        return Answers(tables, late)

    def save(self) -> State:
        """All that a later step needs."""
        state: State = {f"input {name}": stream.save() for name, stream in self._streams.items()}
        return state | under("queries", self._programs.save())

    def load(self, state: LoadedState) -> None:
        """Go on, in a fresh shard, from what one of the same job saved."""
        for name, stream in self._streams.items():
            stream.load(state[f"input {name}"].meta, state[f"input {name}"].tables)
        self._programs.load(below("queries", state))

    def catch_up(self, state: LoadedState) -> None:
        """Go on from a later state; this shard has done nothing since it saved, or loaded, one that it goes on from."""
        for name, stream in self._streams.items():
            stream.load(state[f"input {name}"].meta, state[f"input {name}"].tables)
        self._programs.catch_up(below("queries", state))


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

    def release(self, *, end: bool) -> Batch:
        """The rows whose turn has come, in order: those up to progress, or all."""
        table, ts = self._waiting, self._ticks(self._waiting)
        if len(ts) > 1 and not (ts[1:] >= ts[:-1]).all():
            order = np.argsort(ts, kind="stable")
            table, ts = table.take(pa.array(order)), ts[order]
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
