"""How rows, changes, declarations, functions and queries look in the store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.catalog import Catalog, FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.cql.declarations import parse_type
from penstock.ingest.keys import Key
from penstock.ingest.streams import Came, StreamInput
from penstock.model.amounts import Bound
from penstock.model.batch import Batch, Instant
from penstock.model.errors import InputError, PenstockError, QueryFailed
from penstock.model.schema import Schema, arrow_schema
from penstock.plan.meanings import NUMBER
from penstock.rows.apart import SCHEMA
from penstock.scalar.zones import UTC

Record = dict[str, Any]
_IN_TIME = pa.array([False] * 65_536)
_FURTHER = [("_ts", pa.int64()), ("_late", pa.bool_())]


def rows_schema(schema: Schema) -> pa.Schema:
    """Of the log of a stream: its columns by their place, the instant, and whether a row came too late."""
    columns = [pa.field(f"c{i}", f.type) for i, f in enumerate(arrow_schema(schema))]
    return pa.schema([*columns, *(pa.field(*f) for f in _FURTHER)])


def rows_table(came: Came, schema: pa.Schema) -> pa.Table | pa.RecordBatch:
    """Rows as they are logged."""
    count = len(came.ts)
    if came.late is None:
        late = _IN_TIME.slice(0, count) if count <= len(_IN_TIME) else pa.array(np.zeros(count, np.bool_))
    else:
        late = pa.array(came.late)
    columns = came.table.columns
    if all(c.num_chunks == 1 for c in columns):
        return pa.RecordBatch.from_arrays([*(c.chunk(0) for c in columns), pa.array(came.ts), late], schema=schema)
    return pa.Table.from_arrays([*columns, pa.array(came.ts), late], schema=schema)


def rows_meta(source: StreamInput, came: Came | None) -> Record:
    """What is said with them: how far the stream is now."""
    meta: Record = {"p": instant(source.progress), "n": instant(source.newest_row)}
    if source.closed:
        meta["closed"] = True
    if came is not None:
        meta["a"] = came.arrival
        if came.apart is not None:
            meta["apart"] = came.apart.to_pydict()
        if came.key is not None:
            meta["key"] = came.key
    return meta


def came_again(meta: Mapping[str, Any], rows: pa.Table, schema: Schema) -> Came | None:
    """Rows as they came."""
    if "a" not in meta:
        return None
    declared = arrow_schema(schema)
    rows = rows.combine_chunks()
    columns = [rows.column(i) for i in range(len(declared))]
    table = pa.Table.from_arrays(columns, schema=declared)
    late = rows.column("_late").to_numpy()
    apart = meta.get("apart")
    return Came(
        table, rows.column("_ts").to_numpy(), meta["a"], late if late.any() else None,
        None if apart is None else pa.table(apart, schema=SCHEMA), key_again(meta),
    )  # fmt: skip


def key_again(meta: Mapping[str, Any]) -> Key | None:
    """What the producer called an entry."""
    key = meta.get("key")
    return None if key is None else (key[0], key[1])


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
