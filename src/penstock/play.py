"""Playing files into a database: relations whole, then the streams side by side."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.apart import BadRow, Rows
from penstock.errors import InputError, suggest
from penstock.io.files import Leave
from penstock.io.readers import read_batches, read_rows
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
) -> dict[str, InputError]:
    """Feed every input to the end and close its stream, or with ``close_last`` false all but the last that ends.

    Without ``close`` streams stay open, for rows that come later. A file of a stream that refuses rows which do not fit
    is read to its end before anything is taken of any. One with ``on_error = 'stop'`` is read up to the first such row,
    and its stream stays open, since nobody knows what comes next; gives what is wrong with these rows, by stream.

    The next chunk always comes from the stream that is least far, so that little waits for the others.
    ``on_progress`` hears the name of an input and how many of its rows have been pushed, after each push. ``done``: so
    many rows of an input have been pushed before. ``leave``: files of streams may be growing; a last line without its
    end is not read but told about.
    """
    report = on_progress or (lambda name, rows: None)
    done = done or {}
    stopped: dict[str, InputError] = {}
    named = {input_name(db, given): path for given, path in inputs.items()}
    over = [name for name in named if name in db.catalog.streams and db.progress(name) == math.inf]
    relations = [name for name in named if name in db.catalog.relations]
    with ExitStack() as stack:
        streams = {}
        for name in (name for name in named if name not in over and name not in relations):
            found = stream_rows(db, name, named[name], chunk_rows, leave)
            streams[name] = stack.enter_context(closing(_after(found, done.get(name, 0))))
        for name in relations:
            report(name, done[name] if done.get(name) else load_relation(db, name, named[name]))
        for name in over:
            report(name, done.get(name, 0))
        pushed = {name: done.get(name, 0) for name in streams}
        while streams:
            name = min(streams, key=lambda n: (db.progress(n), db.catalog.streams[n].position))
            chunk = next(streams[name], None)
            if chunk is None:
                del streams[name]
                if close and (streams or close_last):
                    db.close_stream(name)
            else:
                try:
                    db.push(name, chunk)
                except BadRow as bad:
                    if bad is not chunk.stopped:
                        raise
                    stopped[name] = bad
                    del streams[name]
                pushed[name] += len(chunk)
            report(name, pushed[name])
    return stopped


def stream_rows(
    db: Database, name: str, path: Path, chunk_rows: int = 65_536, leave: Leave | None = None
) -> Generator[Rows, None, None]:
    """The rows of a file for a stream. Where a row that does not fit is refused, so is the file: it is read to its end
    before the first rows are given."""
    stream = db.catalog.streams[name]
    ordering = frozenset({stream.timestamp_by} if stream.timestamp_by else ())

    def opened() -> Generator[Rows, None, None]:
        return read_rows(
            path, stream.schema, batch_rows=chunk_rows, not_null=ordering, time=stream.time, leave=leave,
            on_error=stream.on_error, unknown=stream.unknown or "ignore", check=db._row_check(name),
        )  # fmt: skip

    return _read_before(opened) if stream.on_error == "refuse" else opened()


_AHEAD = 64 << 20
"""Bytes of rows that are kept while a file is read to its end, so that small files are read once."""


def _read_before(opened: Callable[[], Generator[Rows, None, None]]) -> Generator[Rows, None, None]:
    """The rows of a file that has been read to its end once, or its InputError."""
    kept: deque[Rows] = deque()
    size = count = 0
    all_kept = True
    with closing(opened()) as found:
        for rows in found:
            size += rows.table.nbytes
            all_kept = all_kept and size <= _AHEAD
            if all_kept:
                kept.append(rows)
                count += len(rows)
    return _again(kept, None if all_kept else opened, count)


def _again(
    kept: deque[Rows], opened: Callable[[], Generator[Rows, None, None]] | None, count: int
) -> Generator[Rows, None, None]:
    while kept:
        yield kept.popleft()
    if opened is not None:
        with closing(_after(opened(), count)) as rest:
            yield from rest


def _after(batches: Generator[Rows, None, None], count: int) -> Generator[Rows, None, None]:
    """The batches without the first ``count`` rows."""
    with closing(batches):
        for batch in batches:
            if count < len(batch) or batch.stopped is not None:
                yield batch.slice(min(count, len(batch)), len(batch))
            count = max(0, count - len(batch))


def load_relation(db: Database, name: str, path: Path) -> int:
    """Push the rows, or changes, of a relation's file; how many there were.

    They go in as one batch, because the changes of one ``ts`` are one instant.
    """
    batches = list(read_batches(path, db.catalog.relations[name].schema, extra=CHANGE_COLUMNS))
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
