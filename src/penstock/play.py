"""Playing files into a database: relations whole, then the streams side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import InputError, suggest
from penstock.io.files import Leave
from penstock.io.readers import read_batches
from penstock.io.times import TimeForm
from penstock.plan.nodes import Field
from penstock.types import BIGINT, STRING, TIMESTAMP

if TYPE_CHECKING:
    from penstock.database import Database

CHANGE_COLUMNS = (Field("ts", BIGINT), Field("ts", TIMESTAMP), Field("op", STRING))
"""What the file of a relation that changes over time has besides its columns; ``ts`` is ticks or a time."""


def play(
    db: Database,
    inputs: Mapping[str, Path],
    *,
    on_progress: Callable[[str, int], None] | None = None,
    chunk_rows: int = 4_096,
    done: Mapping[str, int] | None = None,
    close: bool = True,
    close_last: bool = True,
    leave: Leave | None = None,
) -> None:
    """Feed every input to the end and close its stream, or with ``close_last`` false all but the last that ends.

    Without ``close`` streams stay open, for rows that come later.

    The next chunk always comes from the stream that is least far, so that little waits for the others.
    ``on_progress`` hears the name of an input and how many of its rows have been pushed, after each push. ``done``: so
    many rows of an input have been pushed before. ``leave``: files of streams may be growing; a last line without its
    end is not read but told about.
    """
    report = on_progress or (lambda name, rows: None)
    done = done or {}
    streams = {}
    for given, path in inputs.items():
        name = input_name(db, given)
        if name in db.catalog.relations:
            report(name, done[name] if done.get(name) else load_relation(db, name, path))
        elif db.progress(name) == math.inf:
            report(name, done.get(name, 0))
        else:
            stream = db.catalog.streams[name]
            ordering = frozenset({stream.timestamp_by} if stream.timestamp_by else ())
            batches = read_batches(
                path, stream.schema, batch_rows=chunk_rows, not_null=ordering, time=stream.time, leave=leave
            )
            streams[name] = _after(batches, done.get(name, 0))
    pushed = {name: done.get(name, 0) for name in streams}
    while streams:
        name = min(streams, key=lambda n: (db.progress(n), db.catalog.streams[n].position))
        chunk = next(streams[name], None)
        if chunk is None:
            del streams[name]
            if close and (streams or close_last):
                db.close_stream(name)
        else:
            db.push(name, chunk)
            pushed[name] += chunk.num_rows
        report(name, pushed[name])


def _after(batches: Iterator[pa.Table], count: int) -> Iterator[pa.Table]:
    """The batches without the first ``count`` rows."""
    for batch in batches:
        if count < batch.num_rows:
            yield batch.slice(count)
        count = max(0, count - batch.num_rows)


def load_relation(db: Database, name: str, path: Path) -> int:
    """Push the rows, or changes, of a relation's file; how many there were.

    They go in as one batch, because the changes of one ``ts`` are one instant.
    """
    schema, time = db.catalog.relations[name].schema, TimeForm("", db.zone)
    batches = list(read_batches(path, schema, extra=CHANGE_COLUMNS, time=time))
    if not batches:
        return 0
    rows = pa.concat_tables(batches)
    db.push(name, rows)
    return int(rows.num_rows)


def input_name(db: Database, given: str) -> str:
    """The declared name that the name of an input means: the same, or the only one that differs in case."""
    streams, relations = db.catalog.streams, db.catalog.relations
    known = [*streams, *relations]
    found = [given] if given in known else [name for name in known if name.lower() == given.lower()]
    if len(found) != 1:
        fillable = [name for name in known if name in relations or not streams[name].derived]
        raise InputError(f"there is no stream or relation `{given}`", hint=suggest(given, fillable))
    name = found[0]
    if name in streams and streams[name].derived:
        raise InputError(f"stream `{name}` is derived from a query and takes no input")
    return name
