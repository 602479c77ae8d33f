"""How rows, changes, declarations, functions and queries look in the store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.catalog import Catalog, FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.cql.declarations import parse_type
from penstock.graph.sources import whole_columns
from penstock.ingest.files import Columns, RowsFile, Span, held
from penstock.ingest.keys import Key
from penstock.ingest.streams import Came, StreamInput
from penstock.model.amounts import Bound
from penstock.model.batch import Batch, Instant
from penstock.model.errors import InputError, PenstockError, QueryFailed
from penstock.model.schema import Schema, arrow_schema
from penstock.plan.meanings import NUMBER
from penstock.rows.apart import SCHEMA
from penstock.scalar.zones import UTC
from penstock.storage.segments import record_batches

Record = dict[str, Any]
_INSTANT = pa.int64()
_IN_TIME = pa.array([False] * 65_536)
_FEW = 1024
"""Rows of which each column is made one piece, which queries want anyway."""
_FURTHER = [("_ts", pa.int64()), ("_late", pa.bool_())]
PRIORITY, _ARRIVAL = "_priority", "_arrival"
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Slots:
    """The slot of each row that an entry gives, of so many, by key columns; without columns any row is in any."""

    columns: Columns
    of: Ints
    count: int


class Division(NamedTuple):
    """Where the rows of a slot are in an entry that is divided: by which columns, how many of its frames come before
    those of the first slot, how many frames each slot has; and the instant of the last row."""

    columns: Columns
    before: int
    frames: tuple[int, ...]
    last: int


def rows_schema(definition: StreamDef, *, turns: bool, numbered: bool = False) -> pa.Schema:
    """Of the log of a stream: its columns by their place, the instant, and whether a row came too late; where rows may
    have one, their priority. ``turns``: rows whose turn has come follow those that came, with their numbers, where
    these may not be the same. ``numbered``: rows have their numbers, since they may be divided."""
    columns = [pa.field(f"c{i}", f.type) for i, f in enumerate(arrow_schema(definition.schema))]
    more = [pa.field(*f) for f in _FURTHER]
    if definition.priority is not None:
        more.append(pa.field(PRIORITY, pa.int64()))
    if numbered or (turns and definition.slack):
        more.append(pa.field(_ARRIVAL, pa.int64()))
    return pa.schema([*columns, *more])


def rows_table(
    came: Came | None, turn: Batch, schema: pa.Schema, *, turns: bool
) -> pa.Table | pa.RecordBatch | None:
    """Rows as they are logged: those that came, and with ``turns`` those whose turn has come."""
    # Arrow makes a new list of names each time it is asked.
    names = schema.names if len(schema) > len(turn.schema) + len(_FURTHER) else ()
    parts: list[pa.RecordBatch] = []
    if came is not None:
        count = len(came.ts)
        if came.late is None:
            late = _IN_TIME.slice(0, count) if count <= len(_IN_TIME) else pa.array(np.zeros(count, np.bool_))
        else:
            late = pa.array(came.late)
        more = [pa.Array.from_buffers(_INSTANT, count, [None, pa.py_buffer(np.ascontiguousarray(came.ts))]), late]
        if PRIORITY in names:
            more.append(_given(came.priority, count))
        if _ARRIVAL in names:
            more.append(pa.array(np.arange(came.arrival, came.arrival + count, dtype=np.int64)))
        if came.table is turn.table and count <= _FEW:
            parts.append(pa.RecordBatch.from_arrays([*whole_columns(turn), *more], schema=schema))
        elif len(batches := came.table.to_batches()) == 1:
            parts.append(pa.RecordBatch.from_arrays([*batches[0].columns, *more], schema=schema))
        else:
            whole = pa.Table.from_arrays([*came.table.columns, *more], schema=schema)
            if not turns:
                return whole
            parts += whole.combine_chunks().to_batches()
    if turns and len(turn):
        more = [pa.array(turn.ts), pa.array(np.zeros(len(turn), np.bool_))]
        if PRIORITY in names:
            more.append(_given(turn.priority, len(turn)))
        more.append(pa.array(turn.arrival))
        parts += pa.Table.from_arrays([*turn.table.columns, *more], schema=schema).combine_chunks().to_batches()
    if len(parts) > 1:
        return pa.Table.from_batches(parts)
    return parts[0] if parts else None


def _given(priority: np.ndarray[Any, np.dtype[np.int64]] | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.int64()) if priority is None else pa.array(priority)


def divided(
    rows: pa.Table | pa.RecordBatch, turn: Batch, slots: Slots, most: int
) -> tuple[list[pa.RecordBatch], Division]:
    """The frames of an entry, of at most about ``most`` bytes each, so that who works on a slot reads the rows of that
    slot and no others. The first has no rows: what is said of them is read by all. Rows that came follow, where those
    whose turn has come are other ones."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    came = len(table) - len(slots.of)
    # Numbers of two bytes are sorted by counting.
    order = np.argsort(slots.of.astype(np.uint16) if slots.count < 1 << 16 else slots.of, kind="stable")
    given = table.slice(came).combine_chunks().take(pa.array(order))
    ends = np.concatenate(([0], np.cumsum(np.bincount(slots.of, minlength=slots.count)))).tolist()
    pieces = [table.slice(0, came), *(given.slice(start, stop - start) for start, stop in pairwise(ends))]
    frames = [list(record_batches(piece, most)) if len(piece) else [] for piece in pieces]
    first = pa.RecordBatch.from_pylist([], table.schema)
    counts = tuple(map(len, frames))
    division = Division(slots.columns, 1 + counts[0], counts[1:], int(turn.ts[-1]))
    return [first, *chain.from_iterable(frames)], division


def division_of(meta: Mapping[str, Any]) -> Division | None:
    """How an entry is divided, if it is."""
    if (found := meta.get("divided")) is None:
        return None
    columns, before, frames, last = found
    return Division(tuple(columns), before, tuple(frames), last)


def turn_of(meta: Mapping[str, Any], rows: pa.Table, schema: Schema) -> Batch:
    """The rows of a logged entry whose turn came with it, in order."""
    if "turn" in meta:
        rows = rows.slice(len(rows) - meta["turn"])
    if "divided" in meta:
        order = np.lexsort((rows.column(_ARRIVAL).to_numpy(), rows.column("_ts").to_numpy()))
        rows = rows.take(pa.array(order))
    return batch_of(meta, rows, schema)


def urgent_of(meta: Mapping[str, Any], rows: pa.Table, schema: Schema) -> Batch:
    """The prioritised rows that came with a logged entry and wait for slack behind it."""
    batch = batch_of(meta, rows.slice(0, len(rows) - meta.get("turn", 0)), schema)
    priority = np.zeros(len(batch), np.int64) if batch.priority is None else batch.priority
    return batch.take(np.flatnonzero((priority > 0) & (batch.ts > instant_again(meta["p"]))))


def batch_of(meta: Mapping[str, Any], rows: pa.Table, schema: Schema) -> Batch:
    """The rows of a logged entry, or some of them, that did not come too late."""
    declared = arrow_schema(schema)
    rows = rows.combine_chunks()
    table = pa.Table.from_arrays(rows.columns[: len(declared)], schema=declared)
    ts = rows.column("_ts").to_numpy()
    if _ARRIVAL in rows.column_names:
        arrival = rows.column(_ARRIVAL).to_numpy()
    else:
        arrival = np.arange(meta.get("a", 0), meta.get("a", 0) + len(ts), dtype=np.int64)
    priority = None
    if PRIORITY in rows.column_names and rows.column(PRIORITY).null_count < len(ts):
        priority = rows.column(PRIORITY).fill_null(0).to_numpy()
    batch = Batch(schema, table, ts, arrival, priority)
    late = rows.column("_late").to_numpy()
    return batch.take(np.flatnonzero(~late)) if late.any() else batch


def rows_meta(source: StreamInput, came: Came | None, turn: Batch, *, turns: bool) -> Record:
    """What is said with them: how far the stream is now. Of prioritised rows: how many have their turn (``h``), how
    many of these came before (``w``), and how many have come and wait for slack (``u``)."""
    meta: Record = {"p": instant(source.progress), "n": instant(source.newest_row)}
    if turns and source.definition.slack:
        meta["turn"] = len(turn)
    if turn.priority is not None and (prioritised := int(np.count_nonzero(turn.priority))):
        meta["h"] = prioritised
        if turns and (waited := source.waited(turn)):
            meta["w"] = waited
    if turns and (urgent := source.urgent_came()) is not None:
        meta["u"] = len(urgent)
    if source.closed:
        meta["closed"] = True
    if came is not None:
        meta["a"] = came.arrival
        if came.late is not None:
            meta["late"] = int(np.count_nonzero(came.late))
        if came.apart is not None:
            meta["apart"] = came.apart.to_pydict()
        if came.key is not None:
            meta["key"] = came.key
        parked = [file.record() for file in came.files if file.oldest > source.progress]
        if parked:
            meta["parks"] = parked
    if source.spans:
        meta["spans"] = [[s.file.record(), instant(s.after), instant(s.upto)] for s in source.spans]
        meta["h"] = sum(s.file.prioritised for s in source.spans)
        meta["w"] = sum(s.file.prioritised for s in source.spans if s.after > -math.inf)
    return meta


def spans_again(meta: Mapping[str, Any]) -> tuple[Span, ...]:
    """The rows of files whose turn came with an entry."""
    spans = meta.get("spans", ())
    return tuple(Span(RowsFile.of(file), instant_again(after), instant_again(upto)) for file, after, upto in spans)


def held_again(meta: Mapping[str, Any]) -> tuple[Span, ...]:
    """The rows of files that came with an entry and wait for slack behind it, of files with prioritised rows."""
    return held(_files_again(meta), instant_again(meta["p"]))


def came_again(meta: Mapping[str, Any], rows: pa.Table, schema: Schema) -> Came | None:
    """Rows as they came."""
    if "a" not in meta:
        return None
    declared = arrow_schema(schema)
    rows = rows.slice(0, len(rows) - meta.get("turn", 0)).combine_chunks()
    if "divided" in meta and "turn" not in meta:
        rows = rows.take(pa.array(np.argsort(rows.column(_ARRIVAL).to_numpy())))
    columns = [rows.column(i) for i in range(len(declared))]
    table = pa.Table.from_arrays(columns, schema=declared)
    late = rows.column("_late").to_numpy()
    apart = meta.get("apart")
    return Came(
        table, rows.column("_ts").to_numpy(), meta["a"], late if late.any() else None,
        None if apart is None else pa.table(apart, schema=SCHEMA), key_again(meta), None, _files_again(meta),
    )  # fmt: skip


def _files_again(meta: Mapping[str, Any]) -> tuple[RowsFile, ...]:
    """The files that came with an entry."""
    found = [span.file for span in spans_again(meta) if span.after == -math.inf]
    return tuple(sorted([*found, *map(RowsFile.of, meta.get("parks", ()))], key=lambda file: file.arrival))


def key_again(meta: Mapping[str, Any]) -> Key | None:
    """What the producer called an entry."""
    key = meta.get("key")
    return None if key is None else (key[0], key[1])


def as_logged(batch: Batch) -> pa.Table:
    """Rows with their instants, and their priorities if one has one."""
    columns = [pa.field(f"c{i}", f.type) for i, f in enumerate(arrow_schema(batch.schema))]
    more = [("_ts", pa.array(batch.ts))]
    if batch.priority is not None:
        more.append((PRIORITY, pa.array(batch.priority)))
    schema = pa.schema([*columns, *((name, pa.int64()) for name, _ in more)])
    return pa.Table.from_arrays([*batch.table.columns, *(column for _, column in more)], schema=schema)


def batch_table(batch: Batch) -> pa.Table:
    """Rows of a stream as pieces of the state have them."""
    columns = [pa.field(f"c{i}", f.type) for i, f in enumerate(arrow_schema(batch.schema))]
    schema = pa.schema([*columns, ("_ts", pa.int64()), ("_arrival", pa.int64()), ("_priority", pa.int64())])
    count = len(batch)
    priority = pa.nulls(count, pa.int64()) if batch.priority is None else pa.array(batch.priority)
    return pa.Table.from_arrays(
        [*batch.table.columns, pa.array(batch.ts), pa.array(batch.arrival), priority], schema=schema
    )


def batch_again(table: pa.Table, schema: Schema) -> Batch:
    """What ``batch_table`` had."""
    table = table.combine_chunks()
    declared = arrow_schema(schema)
    rows = pa.Table.from_arrays(table.columns[: len(declared)], schema=declared)
    priority = table.column("_priority")
    return Batch(
        schema, rows, table.column("_ts").to_numpy(), table.column("_arrival").to_numpy(),
        None if priority.null_count else priority.to_numpy(),
    )  # fmt: skip


def instant(at: Instant) -> int | str:
    """An instant in JSON."""
    return str(at) if isinstance(at, float) and not math.isfinite(at) else int(at)


def instant_again(at: int | str) -> Instant:
    """What ``instant`` had."""
    return float(at) if isinstance(at, str) else at


def declared(definition: StreamDef | RelationDef | ViewDef, catalog: Catalog) -> Record:
    """A declaration as a record: its text, bound again when the directory is opened."""
    record: Record = {
        "kind": "declare", "name": definition.name, "text": definition.text, "next": catalog.next_position,
        "position": None if isinstance(definition, ViewDef) else definition.position, "meanings": NUMBER,
    }  # fmt: skip
    if not isinstance(definition, RelationDef) and definition.reads:
        record["reads"] = sorted(definition.reads)
    return record if catalog.zone == UTC else {**record, "zone": catalog.zone}


def function_record(definition: FunctionDef, version: int) -> Record:
    """A function without its code."""
    return {
        "kind": "function", "name": definition.name, "version": version,
        "args": [str(t) for t in definition.args], "returns": str(definition.returns),
    }  # fmt: skip


def code_of(definition: FunctionDef) -> bytes:
    """The code of a function; InputError if it cannot be stored."""
    from pyspark import cloudpickle  # takes its time, and few have functions

    try:
        found: bytes = cloudpickle.dumps(definition.call)  # type: ignore[no-untyped-call]
        return found
    except Exception as error:
        raise InputError(
            f"function `{definition.name}` cannot be stored with the database: {error}",
            hint="it must not hold files, locks or connections",
        ) from None


def function_again(record: Mapping[str, Any], code: bytes) -> FunctionDef:
    """A function with its code, which is run from here on."""
    from pyspark import cloudpickle

    args = tuple(parse_type(t) for t in record["args"])
    return FunctionDef(record["name"], args, parse_type(record["returns"]), cloudpickle.loads(code))


def options_json(options: QueryOptions) -> Record:
    """What stands in ``WITH (…)`` of a query."""
    return asdict(options)


def options_again(stored: Mapping[str, Any]) -> QueryOptions:
    """What ``options_json`` had."""
    results = stored.get("results")
    return QueryOptions(**{**stored, "results": None if results is None else Bound(**results)})


def our_error(error: Exception) -> PenstockError:
    """What stopped a query."""
    return error if isinstance(error, PenstockError) else QueryFailed(f"{type(error).__name__}: {error}")
