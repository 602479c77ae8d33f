"""What the tasks of a micro-batch are told, and what they say back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import penstock.model.errors as errors
from penstock.hosts.spark.job import Split, split_of
from penstock.hosts.spark.live.frames import Frame
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.errors import PenstockError, QueryFailed
from penstock.model.schema import Schema, arrow_schema
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query, declared_scans, reads_streams, relation_scans


@dataclass(frozen=True)
class Definition:
    """A query as workers run it: written once, read by every worker that meets it.

    ``changes``, ``rows`` and ``progress`` are what it is given before its first frame: relations as they are, the
    history that streams retain, and how far they are. ``apart``: it is not given that history, as others are.
    """

    id: str
    plan: Query
    schema: pa.Schema
    functions: Mapping[str, Callable[..., object]]
    strict: bool
    changes: Mapping[str, Sequence[Change]]
    rows: Mapping[str, Sequence[Batch]]
    progress: Mapping[str, float]
    apart: bool = False

    @property
    def sources(self) -> dict[str, Schema]:
        """The columns of each stream and relation that it reads."""
        return {scan.name: scan.schema for scan in declared_scans(self.plan)}


def live_split(plan: Query) -> Split:
    """How a query is spread over slots; rows of a relation need a key for it."""
    if not reads_streams(plan):
        return Split(None, "relations alone: each change is an instant for all of it")
    split = split_of(plan)
    if split.anywhere and relation_scans(plan):
        return Split(None, "the rows of a stored relation have no key here")
    return split


@dataclass(frozen=True)
class Assigned:
    """A query in a micro-batch. ``slot``: where it runs, None: in all. It reads frames from number ``start`` on.

    ``origin``: the part and the micro-batch whose state it goes on from, if that is not the one before this.
    ``ahead``: it has had the prioritised rows of frames up to this number.
    """

    id: str
    slot: int | None
    start: int
    origin: tuple[int, int] | None = None
    ahead: int = 0


@dataclass(frozen=True)
class Plan:
    """A micro-batch of a part: ``number`` is used once, ``base`` is the number of the one whose state it goes on from.

    ``forget``: what only micro-batches with lower numbers need is removed.
    """

    root: str
    number: int
    base: int | None
    slots: int
    queries: tuple[Assigned, ...]
    frames: Mapping[str, Sequence[Frame]]
    """By name of the stream or relation, in order."""
    part: int = 0
    forget: int | None = None
    early: Mapping[str, Sequence[Frame]] = field(default_factory=dict)
    """Later frames of streams, of which only the prioritised rows are taken."""

    @property
    def rows(self) -> int:
        """Rows and changes of all frames."""
        return sum(f.rows for frames in self.frames.values() for f in frames)

    @property
    def count(self) -> int:
        """How many frames it takes."""
        return sum(map(len, self.frames.values()))


def state_folder(root: Path, part: int) -> Path:
    """Where the slots of a part have their state; that of the first part has been there before there were others."""
    return root / "state" / f"part-{part}" if part else root / "state"


@dataclass(frozen=True)
class Failure:
    """Why a query failed: the error as it was, or its text where it cannot be sent."""

    kind: str
    message: str
    hint: str | None = None


def raised(failure: Failure) -> Exception:
    """The error that a worker met, as one of this process."""
    kind = getattr(errors, failure.kind, None) if failure.kind else None
    if isinstance(kind, type) and issubclass(kind, PenstockError):
        return kind(failure.message, hint=failure.hint)
    return QueryFailed(failure.message)


@dataclass(frozen=True)
class Outcome:
    """What a micro-batch gave for one query in one slot."""

    rows: int = 0
    file: str = ""
    ended: bool = False
    failures: int = 0
    last_failure: str | None = None
    error: Failure | None = None
    seconds: float = 0.0
    sizes: Mapping[str, StateSize] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What a slot did, with seconds for getting its state, for the operators, and for storing state and answers."""

    slot: int
    outcomes: Mapping[str, Outcome]
    rows: int
    opening: float
    working: float
    storing: float
    written: int


_EXTRA = (("_arrival", pa.int64()), ("_priority", pa.int64()))
STAMP = "_ts"


def rows_schema(schema: Schema) -> pa.Schema:
    """How the rows of a stream are logged: with their instant, number and priority."""
    fields = [*arrow_schema(schema), pa.field(STAMP, pa.int64())]
    return pa.schema([*fields, *(pa.field(n, t) for n, t in _EXTRA)])


def changes_schema(schema: Schema) -> pa.Schema:
    """How the changes of a relation are logged."""
    more = [("_ts", pa.int64()), ("_sign", pa.int8()), ("_number", pa.int64()), ("_group", pa.int64())]
    return pa.schema([*arrow_schema(schema), *(pa.field(n, t) for n, t in more)])


def logged_rows(batch: Batch) -> pa.RecordBatch:
    """Rows of a stream for its log."""
    priority = pa.nulls(len(batch), pa.int64()) if batch.priority is None else pa.array(batch.priority)
    columns = [c.combine_chunks() for c in batch.table.columns]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(batch.ts), pa.array(batch.arrival), priority], schema=rows_schema(batch.schema)
    )


def rows_logged(schema: Schema, batches: Sequence[pa.RecordBatch]) -> Batch:
    """The rows of several frames as one batch."""
    table = pa.Table.from_batches(batches, rows_schema(schema)).combine_chunks()
    count = len(schema)
    ts, arrival = (table.column(i).to_numpy() for i in (count, count + 1))
    priority = table.column(count + 2)
    names = [f.name for f in schema]
    data = pa.Table.from_arrays(table.columns[:count], names=names).cast(arrow_schema(schema))
    if priority.null_count == len(priority):
        return Batch(schema, data, ts, arrival)
    # Pushes without a prioritised row are logged without priorities.
    return Batch(schema, data, ts, arrival, priority.fill_null(0).to_numpy())
