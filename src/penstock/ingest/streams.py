"""The way into a stream: rows of any shape become typed batches in time order; late ones are set apart.

What is decided here (types, instants, order within slack, lateness, arrival numbers) is decided once for a
stream, whatever engine runs the queries. ``StreamInput`` holds only the rows that wait for slack: those less
than ``slack`` older than the newest. It forgets a row when it hands it on. Late rows, and rows that do not fit where
``on_error = 'apart'``, are kept until the user takes them, or the newest ``apart.KEPT`` of each; how many there were is
kept for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog import StreamDef
from penstock.ingest.files import RowsFile, Span, cut
from penstock.ingest.keys import Key, Keys
from penstock.ingest.measuring import Measuring
from penstock.ingest.stamps import FULL, Stamps
from penstock.kernels.batch import RowErrors
from penstock.kernels.buffers import integers
from penstock.kernels.expressions import CompiledExpr, compile_expr
from penstock.kernels.priority import priorities_of
from penstock.model.batch import Batch, Instant, concat
from penstock.model.errors import InputError, StateError
from penstock.model.names import counted
from penstock.model.schema import Field, arrow_schema
from penstock.model.types import Kind
from penstock.plan.cost import Measured
from penstock.rows.apart import SCHEMA, BadRow, Kept, Rows, apart_table, row_text, sifted
from penstock.rows.columns import check_texts
from penstock.rows.given import RowNames, check_begin, given, typed
from penstock.rows.times import FIRST, LAST, OUT_OF_RANGE, unit_of

_LIMIT = 2**62


@dataclass(slots=True, eq=False)
class Came:
    """Rows as a stream took them in: what was decided of them then, to be kept and to be had again.

    ``arrival``: the number of the first of them; those that do not fit come after the others. ``late``: which of them
    came too late, None if none did. ``key``: what their producer calls them. ``priority``: None if none has one.
    ``files``: with them came the rows that are in these; of such rows only those that came too late are in the table.
    """

    table: pa.Table
    ts: np.ndarray[Any, np.dtype[np.int64]]
    arrival: int
    late: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    apart: pa.Table | None = None
    key: Key | None = None
    priority: np.ndarray[Any, np.dtype[np.int64]] | None = None
    files: tuple[RowsFile, ...] = ()


@dataclass(frozen=True)
class Written:
    """Rows that others have written into files, and those that came too late or do not fit."""

    files: Sequence[RowsFile] = ()
    late: pa.Table | None = None
    apart: pa.Table | None = None


class Overtaken(Exception):
    """Somebody has moved a stream on, or closed it, since its rows were written into files: some of them are late."""

    def __init__(self, progress: Instant) -> None:
        super().__init__(f"the stream is at {progress}")
        self.progress = progress


@dataclass
class StreamInput:
    """The input side of one declared stream."""

    definition: StreamDef
    clock: Callable[[], int]
    progress: Instant = -math.inf
    lateness: int = 0
    """Ticks by which the latest of the late rows came too late, of those since this object is there."""
    closed: bool = False
    since: int | None = None
    """Of a stream that the clock moves when nothing comes (``idle``): from when on nothing has come, on the clock."""
    passed: Instant = -math.inf
    """The greatest instant of a row whose turn has come."""
    _arrivals: int = 0
    _newest: Instant = -math.inf
    _promised: Instant = -math.inf
    """Of a closed stream: its progress before it was closed."""
    _waiting: Batch | None = None
    came: Came | None = None
    """The rows that were taken in last."""
    keys: Keys = field(default_factory=Keys)
    """Those of what was taken in."""
    parked: tuple[RowsFile, ...] = ()
    """Files of which rows wait for slack."""
    spans: tuple[Span, ...] = ()
    """The rows of files whose turn has come with what was taken in last."""
    stamps: Stamps = field(default_factory=Stamps)
    """When it was given what; copies have the same."""
    measuring: Measuring = field(default_factory=Measuring)
    """How many rows come, and some of them; copies have the same."""
    late: Kept = field(init=False)
    """Rows that came too late."""
    apart: Kept = field(init=False, default=Kept(SCHEMA))
    """Rows that do not fit."""

    def __post_init__(self) -> None:
        self.late = Kept(self._arrow)

    @cached_property
    def _names(self) -> RowNames:
        return RowNames(self.definition.schema)

    @cached_property
    def _dates(self) -> list[Field]:
        """Columns of times, but for the one that orders the stream."""
        stream = self.definition
        return [f for f in stream.schema if f.type.kind in _DAYS and f.name != stream.timestamp_by]

    @cached_property
    def _arrow(self) -> pa.Schema:
        return arrow_schema(self.definition.schema)

    @property
    def where(self) -> str:
        """The stream, for messages."""
        return f"stream `{self.definition.name}`"

    @property
    def waiting(self) -> int:
        """Rows that wait for slack to pass; of those in files, at most."""
        return (0 if self._waiting is None else len(self._waiting)) + sum(file.rows for file in self.parked)

    @property
    def named(self) -> Instant:
        """The greatest instant ever seen, or promised by a heartbeat or the clock."""
        return max(self._newest, self._promised if self.closed else self.progress)

    @property
    def newest(self) -> Instant:
        """The same as long as the stream is open; a closed one names no instant any more."""
        return -math.inf if self.closed else self.named

    @property
    def promised(self) -> Instant:
        """Of a closed stream: its progress before it was closed."""
        return self._promised

    @property
    def held(self) -> Batch | None:
        """The rows that wait for slack to pass."""
        return self._waiting

    @property
    def newest_row(self) -> Instant:
        """The greatest instant of a row."""
        return self._newest

    @property
    def arrivals(self) -> int:
        """How many rows have come, with those that were late or did not fit."""
        return self._arrivals

    @property
    def is_moved(self) -> bool:
        """Whether the clock moves it. One with ``idle`` that has not begun has nothing from which to go on."""
        if self.closed:
            return False
        return self.definition.timestamp_by is None or (self.definition.idle > 0 and self.progress > -math.inf)

    def reach(self, now: int) -> Instant:
        """How far it is if nothing comes until the clock says this."""
        if not self.is_moved:
            return self.progress
        if self.definition.timestamp_by is None:
            return max(self.progress, now)
        since = now if self.since is None else self.since
        return self.progress + max(0, now - since - self.definition.idle)

    def reached_at(self, at: Instant) -> float:
        """What the clock says when it is as far as this."""
        if at <= self.progress or self.definition.timestamp_by is None:
            return at if at > self.progress else -math.inf
        return math.inf if self.since is None else self.since + self.definition.idle + at - self.progress

    def urgent(self, arrivals: int = 0) -> Batch | None:
        """The prioritised rows that wait for slack, of those that came after so many others."""
        waiting = self._waiting
        if waiting is None or waiting.priority is None:
            return None
        found = np.flatnonzero((waiting.arrival >= arrivals) & (waiting.priority > 0))
        return waiting.take(found) if len(found) else None

    def urgent_came(self) -> Batch | None:
        """Those of them that were taken in last."""
        return None if self.came is None else self.urgent(self.came.arrival)

    def waited(self, turn: Batch) -> int:
        """How many prioritised rows of those whose turn has come were taken in before the last."""
        if turn.priority is None:
            return 0
        first = self._arrivals if self.came is None else self.came.arrival
        return int(np.count_nonzero(turn.priority[turn.arrival < first]))

    def restore(
        self,
        progress: Instant,
        newest: Instant,
        arrivals: int,
        closed: bool,
        waiting: Sequence[Batch],
        late: Kept,
        apart: Kept,
        promised: Instant = -math.inf,
        keys: Keys | None = None,
        parked: tuple[RowsFile, ...] = (),
        passed: Instant | None = None,
    ) -> None:
        """Be what an input of the same stream was."""
        self._promised, self.parked = promised, parked
        self.keys = keys or Keys()
        self.progress, self._newest, self._arrivals, self.closed = progress, newest, arrivals, closed
        self._waiting = concat(waiting) if waiting else None
        self.late, self.apart = late, apart
        if passed is None:  # saved before it was known
            rows = arrivals - late.count - apart.count - self.waiting
            passed = min(newest, progress) if rows else -math.inf
        self.passed = passed

    def read(self, rows: object) -> Rows:
        """Rows as given by a user, in the declared types. Nothing of the stream changes, so no lock is needed.

        What becomes of a row that does not fit is said in the declaration; where it is refused, or reading stops at the
        first row, an InputError is raised.
        """
        on_error, begun = self.definition.on_error, self._arrivals > self.apart.count
        if isinstance(rows, Rows):  # of a file, whose reader has asked ``check``
            return replace(rows, table=self._read(rows.table, True))
        found = given(rows, self.definition.schema, self.where)
        if on_error == "refuse":
            return Rows(self._read(found, begun))
        tables, bad = sifted(found, self._read, on_error, begun=begun)
        table = pa.concat_tables([self._arrow.empty_table(), *tables])
        if on_error == "apart":
            return Rows(table, tuple(b.bad(row_text(found, b.row)) for b in bad))
        if not bad:
            return Rows(table)
        kept = f"the {counted(len(table), 'row')} before it {'is' if len(table) == 1 else 'are'} kept"
        bad[0].hint = f"{bad[0].hint}; {kept}" if bad[0].hint else kept
        return Rows(table, (), bad[0])

    def _read(self, rows: pa.Table | list[Any], begun: bool) -> pa.Table:
        """Rows in the declared types; ``begun``: a row has come before them."""
        stream = self.definition
        if isinstance(rows, pa.Table) and rows.schema.equals(self._arrow):
            table = rows
            for column, f in zip(table.columns, stream.schema, strict=True):
                if f.type.kind in (Kind.STRING, Kind.ARRAY):
                    check_texts(column, f.name, self.where)
        else:
            plain = stream.time is None or stream.time.is_iso
            if not begun and stream.timestamp_by is not None and plain and stream.clock == "timestamp":
                # Of the first row only: what counts from a beginning of its own comes through every range later.
                check_begin(rows, stream.timestamp_by, stream.schema, self.where)
            table = typed(rows, stream.schema, self.where, time=stream.time, unknown=stream.unknown or "refuse",
                          names=self._names)  # fmt: skip
        self.check(table)
        return table

    def __copy__(self) -> StreamInput:
        """Another one that has come as far. Every push makes one: what ``copy`` does by itself is slow."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def check_pushed(self) -> None:
        """Refuse rows from anywhere but the stream's source, if it has one."""
        if self.definition.source is not None:
            raise InputError(
                f"{self.where} has its rows from {self.definition.source}, so none can be pushed",
                hint="declare another stream for them",
            )

    def check(self, table: pa.Table) -> None:
        """BadRow if a time in rows of the declared types is NULL where it orders them, or out of range."""
        stream = self.definition
        if stream.timestamp_by is not None:
            self._check_instants(table.column(stream.timestamp_by))
        if self._dates:
            check_calendar(table, self._dates, self.where)

    def stamp(self, began: float) -> None:
        """What was taken in last came with a call at this time of the database's stopwatch."""
        log = self.stamps.log
        log.extend((began, self._arrivals, max(self._newest, self.progress), self.progress))
        if len(log) >= FULL:
            self.stamps.thin()

    def push(self, rows: object, now: int | None = None, key: Key | None = None) -> Batch:
        """Take rows in; give back those whose turn has come, in order. ``rows`` may be what ``read`` gave. ``now``:
        what the clock said when they came, if it has been asked already. ``key``: one that ``keys`` does not have."""
        if self.closed:
            raise StateError(f"{self.where} is closed", hint="rows cannot follow close_stream")
        read = rows if isinstance(rows, Rows) else self.read(rows)
        table = read.table
        ts = self._instants(table, now)
        stamped = self.definition.timestamp_by is None  # then all have one instant, which is not late
        in_order = stamped or len(ts) <= 1 or bool((ts[1:] >= ts[:-1]).all())
        priority = self._priorities(table)
        apart = apart_table(read.apart) if read.apart else None
        self.came = Came(table, ts, self._arrivals, None, apart, key, priority)
        if len(table) or read.apart:
            self._heard(now)
        if key is not None:
            self.keys = self.keys.plus(key)
        arrival = np.arange(self._arrivals, self._arrivals + len(ts), dtype=np.int64)
        self._arrivals += len(table) + len(read.apart)
        if apart is not None:
            self.apart = self.apart.plus(apart)
        batch = Batch(self.definition.schema, table, ts, arrival, priority)
        if len(ts) == 0:
            if self.definition.timestamp_by is None and self.progress > -math.inf:
                self.progress = max(self.progress, self.clock() if now is None else now)
            return batch
        slack, last = self.definition.slack, int(ts[-1])
        if not in_order or (not stamped and ts[0] < self.progress):
            newest = np.maximum.accumulate(ts)
            floor = -_LIMIT if self.progress == -math.inf else int(self.progress)
            so_far = np.concatenate(([np.int64(floor)], np.maximum(newest[:-1] - slack, floor)))
            late = ts < so_far
            last = int(newest[-1])
            if late.any():
                self.lateness = max(self.lateness, int((so_far - ts)[late].max()))
                self.late = self.late.plus(table.filter(pa.array(late)))
                self.came = replace(self.came, late=late)
                batch = batch.take(np.flatnonzero(~late))
        self._newest = max(self._newest, last)
        self.progress = max(self.progress, last - slack)
        return self._release(batch)

    def take(self, written: Written, now: int | None = None, key: Key | None = None) -> Batch:
        """Take in rows that are in files. They came at once, so a row is late if the stream was further before; if one
        in a file is, ``Overtaken`` is raised. Gives back nothing: ``spans`` are the rows whose turn has come."""
        is_ordered = self.definition.timestamp_by is not None
        if self.closed or (is_ordered and any(file.oldest < self.progress for file in written.files)):
            raise Overtaken(self.progress)
        self._heard(now)
        late = self._arrow.empty_table() if written.late is None else written.late
        ts, start, before = self._instants(late, now), self._arrivals, self.progress
        self._arrivals += len(late) + (0 if written.apart is None else len(written.apart))
        files: list[RowsFile] = []
        for file in written.files:
            files.append(replace(file, arrival=self._arrivals))
            if not is_ordered:  # others may have moved the stream on since it was written
                at = self._stamp(now)
                files[-1] = replace(files[-1], oldest=at, newest=at)
            self._arrivals += file.rows
        self.came = Came(late, ts, start, np.ones(len(late), np.bool_) if len(late) else None, written.apart, key,
                         self._priorities(late), tuple(files))  # fmt: skip
        if key is not None:
            self.keys = self.keys.plus(key)
        if written.apart is not None:
            self.apart = self.apart.plus(written.apart)
        if len(late):
            self.late = self.late.plus(late)
            self.lateness = max(self.lateness, int(self.progress) - int(ts.min()))
        if files:
            self._newest = max(self._newest, *(file.newest for file in files))
            self.progress = max(self.progress, self._newest - self.definition.slack)
        self.spans, self.parked = cut(self.parked, files, before, self.progress)
        return self.nothing

    def sorted_out(self, table: pa.Table, now: int | None) -> tuple[Batch, pa.Table | None]:
        """Of rows of the declared types that come at once: those in time, in order, and those that are late. Nothing of
        the stream changes."""
        ts = self._instants(table, now)
        rows, late = Batch(self.definition.schema, table, ts, np.arange(len(ts)), self._priorities(table)), None
        if (behind := ts < self.progress).any():
            late, rows = table.filter(pa.array(behind)), rows.take(np.flatnonzero(~behind))
        if not (rows.ts[1:] >= rows.ts[:-1]).all():
            rows = rows.take(np.argsort(rows.ts, kind="stable"))
        rows.table = rows.table.combine_chunks()
        return rows, late

    def again(
        self, came: Came | None, progress: Instant, newest: Instant, closed: bool, spans: tuple[Span, ...] = ()
    ) -> Batch:
        """Take in what was taken in before: nothing is decided anew. Gives back the rows whose turn came then."""
        if closed and not self.closed:
            self._promised = self.progress
        new = () if came is None else came.files
        self.parked = tuple(file for file in (*self.parked, *new) if file.newest > progress)
        self.progress, self._newest, self.closed, self.came, self.spans = progress, newest, closed, came, spans
        if came is None:
            return self._release(None)
        if came.key is not None:
            self.keys = self.keys.plus(came.key)
        arrival = np.arange(came.arrival, came.arrival + len(came.ts), dtype=np.int64)
        self._arrivals = came.arrival + len(came.ts) + (0 if came.apart is None else len(came.apart))
        self._arrivals += sum(file.rows for file in came.files)
        if came.apart is not None:
            self.apart = self.apart.plus(came.apart)
        batch = Batch(self.definition.schema, came.table, came.ts, arrival, self._priorities(came.table))
        if came.late is not None:
            self.late = self.late.plus(came.table.filter(pa.array(came.late)))
            batch = batch.take(np.flatnonzero(~came.late))
        return self._release(batch)

    def _heard(self, now: int | None) -> None:
        """Something has come."""
        if self.definition.idle:
            self.since = self.clock() if now is None else now

    def move(self, now: int) -> Batch:
        """The clock says this, and nothing has come."""
        since = now - self.definition.idle if self.reach(now) > self.progress else self.since
        batch = self.heartbeat(self.reach(now), now)
        self.since = since
        return batch

    def heartbeat(self, at: Instant, now: int | None = None) -> Batch:
        """No more rows before ``at`` will come. ``now``: what the clock says, where a user says so."""
        self._heard(now)
        if self.closed:
            raise StateError(f"stream `{self.definition.name}` is closed", hint="its progress is infinite already")
        before, self.progress, self.came = self.progress, max(self.progress, at), None
        self.spans, self.parked = cut(self.parked, (), before, self.progress)
        return self._release(None)

    def close(self) -> Batch:
        """No more rows will come at all."""
        self.closed, self.progress, self._promised, self.came = True, math.inf, self.progress, None
        self.spans, self.parked = cut(self.parked, (), self._promised, self.progress)
        return self._release(None)

    def take_late(self) -> pa.Table:
        """The late rows since the last call."""
        rows, self.late = self.late.table, self.late.taken()
        return rows

    def take_apart(self) -> pa.Table:
        """The rows apart since the last call."""
        rows, self.apart = self.apart.table, self.apart.taken()
        return rows

    def pass_on(self, batch: Batch) -> None:
        """The turn of these rows has come, or of those in ``spans``."""
        self.passed = max([self.passed, *(span.furthest for span in self.spans), *batch.ts[-1:].tolist()])
        if self._arrivals >= self.measuring.next:
            self.measuring.take(self._arrivals, self._newest, batch)

    def measured(self) -> Measured | None:
        """What is known of how many rows come, and of what is in them; None if nothing is."""
        return self.measuring.measured(self.definition.schema)

    def _instants(self, table: pa.Table, now: int | None) -> np.ndarray[Any, np.dtype[np.int64]]:
        column = self.definition.timestamp_by
        if column is None:
            return np.full(len(table), self._stamp(now), np.int64)
        values = table.column(column)
        return integers(values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())

    def _stamp(self, now: int | None) -> int:
        """The instant of rows that are stamped on arrival."""
        now = self.clock() if now is None else now
        return max(now, -_LIMIT if self.progress == -math.inf else int(self.progress))

    def _check_instants(self, values: pa.ChunkedArray) -> None:
        """BadRow if a time that orders the stream is NULL or out of range."""
        column = self.definition.timestamp_by
        if values.null_count:
            row = pc.index(pc.is_null(values), True).as_py()
            raise BadRow(self.where, row, f"the timestamp `{column}` is NULL", column=column, named=False)
        ends = (FIRST, LAST) if self.definition.clock == "timestamp" else (1 - _LIMIT, _LIMIT - 1)
        if (found := _outside(values, ends)) is None:
            return
        row, value = found
        if ends != (FIRST, LAST):
            reason, unit = f"the timestamp {value} is out of range", None
        else:
            reason, unit = f"the timestamp {value} {OUT_OF_RANGE}", unit_of(value)
        hint = f"if it counts {unit} since 1970, declare the stream so: WITH (time = '{unit}')" if unit else None
        raise BadRow(self.where, row, reason, column=column, hint=hint, named=False)

    def _priorities(self, table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        if self._priority is None or not len(table):
            return None
        columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
        return priorities_of(self._priority(columns, len(table), RowErrors()))

    @cached_property
    def _priority(self) -> CompiledExpr | None:
        found = self.definition.priority
        return None if found is None else compile_expr(found, {})

    @property
    def nothing(self) -> Batch:
        """No rows."""
        return Batch(self.definition.schema, self._arrow.empty_table(), _NONE, _NONE)

    def _release(self, batch: Batch | None) -> Batch:
        if self.definition.slack == 0 and self._waiting is None:
            return batch if batch is not None else self.nothing
        parts = [b for b in (self._waiting, batch) if b is not None and len(b)]
        if not parts:
            return self.nothing
        everything = concat(parts)
        everything = everything.take(np.argsort(everything.ts, kind="stable"))
        ready = int(np.searchsorted(everything.ts, self.progress, side="right"))
        ready = len(everything) if self.progress == math.inf else ready
        rest = everything.take(np.arange(ready, len(everything)))
        self._waiting = rest if len(rest) else None
        return everything.take(np.arange(ready))


_DAYS = {Kind.TIMESTAMP: (FIRST, LAST), Kind.DATE: (-719_162, 2_932_896)}
"""The years 1 to 9999, which all times are in, as they are stored."""


def check_calendar(table: pa.Table, schema: Sequence[Field], where: str) -> None:
    """BadRow if a DATE or TIMESTAMP in rows of the declared types is not in the years 1 to 9999."""
    for f in schema:
        if f.type.kind in _DAYS and (found := _outside(table.column(f.name), _DAYS[f.type.kind])) is not None:
            row, value = found
            unit = "days" if f.type.kind is Kind.DATE else "microseconds"
            reason = f"{value} {unit} since 1970 {OUT_OF_RANGE.replace('TIMESTAMP', str(f.type))}"
            raise BadRow(where, row, reason, column=f.name)


def _outside(column: pa.ChunkedArray, ends: tuple[int, int]) -> tuple[int, int] | None:
    """The first row whose value is not between two others, and the value."""
    stored = pa.int32() if column.type == pa.date32() else pa.int64()
    counts = pa.chunked_array([chunk.view(stored) for chunk in column.chunks], stored)
    least, greatest = pc.min_max(counts).as_py().values()
    if least is None or (least >= ends[0] and greatest <= ends[1]):
        return None
    wrong = pc.or_(pc.less(counts, ends[0]), pc.greater(counts, ends[1]))
    row = pc.index(wrong, True).as_py()
    return row, counts[row].as_py()


_NONE: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, np.int64)
