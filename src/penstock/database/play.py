"""Playing files into a database: relations whole, then the streams side by side."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.catalog import Catalog
from penstock.io.files import Leave
from penstock.io.live import Arrivals, LiveText
from penstock.io.readers import read_rows, row_sieve
from penstock.model.errors import InputError, suggest
from penstock.model.schema import Field, arrow_schema
from penstock.model.types import BIGINT, STRING, TIMESTAMP
from penstock.rows.apart import BadRow, OnError, Rows
from penstock.rows.times import TimeForm

if TYPE_CHECKING:
    from penstock.database.core import Core

CHANGE_COLUMNS = (Field("ts", BIGINT), Field("ts", TIMESTAMP), Field("op", STRING))
"""What the file of a relation that changes over time has besides its columns; ``ts`` is ticks or a time."""


Input = Path | LiveText
"""A file or folder, or a text that comes bit by bit."""
_LOOK = 1.0
"""Seconds after which ``on_idle`` is called again where streams move on with the clock, though nothing arrives."""


def play(
    core: Core,
    inputs: Mapping[str, Input],
    *,
    on_progress: Callable[[str, int], None] | None = None,
    on_read: Callable[[str, int], None] | None = None,
    on_idle: Callable[[], None] = lambda: None,
    arrivals: Arrivals | None = None,
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
    end is not read but told about. ``on_read`` hears how many rows of a file have been read before any is pushed.

    Texts that come bit by bit tell ``arrivals``. Rows of them are pushed when they come, whichever stream is least far;
    where such a stream is, the others wait. ``on_idle`` is called before it waits. One that refuses rows which do not
    fit stops at the first of them, since those before it have been taken. ``arrivals.stop`` ends everything after the
    rows that have been taken, and closes no stream.
    """
    report = on_progress or (lambda name, rows: None)
    arrivals = arrivals or Arrivals()
    done = done or {}
    stopped: dict[str, InputError] = {}
    named = {input_name(core.catalog, given): path for given, path in inputs.items()}
    over = [name for name in named if name in core.catalog.streams and core.input(name).progress == math.inf]
    relations = [name for name in named if name in core.catalog.relations]
    with ExitStack() as stack:
        streams: dict[str, Generator[Rows, None, None]] = {}
        live: dict[str, Callable[[], Generator[Rows, None, None]]] = {}
        names = {text: name for name, text in named.items() if isinstance(text, LiveText)}
        for name in (name for name in named if name not in over and name not in relations):
            source = named[name]
            if isinstance(source, LiveText):
                live[name] = _as_it_comes(core, name, source, chunk_rows, done.get(name, 0))
                continue
            read = None if on_read is None else partial(on_read, name)
            found = stream_rows(core, name, source, chunk_rows, leave, read)
            streams[name] = stack.enter_context(closing(_after(found, done.get(name, 0))))
        for name in relations:
            report(name, done[name] if done.get(name) else load_relation(core, name, named[name]))
        for name in over:
            report(name, done.get(name, 0))
        pushed = {name: done.get(name, 0) for name in (*streams, *live)}

        def push(name: str, rows: Rows) -> bool:
            """Whether the input goes on."""
            try:
                core.push(name, rows)
            except BadRow as bad:
                if bad is not rows.stopped:
                    raise
                stopped[name] = bad
            pushed[name] += len(rows)
            report(name, pushed[name])
            return rows.stopped is None

        def end(name: str) -> None:
            if close and (streams or live or close_last):
                core.close_stream(name)
            report(name, pushed[name])

        def next_news() -> LiveText | None:
            """A text with news; waits for it if one of those is least far, or there is nothing else to do."""
            text = arrivals.next()
            if text is not None or not live or arrivals.stopped or _least(core, (*streams, *live)) in streams:
                return text
            on_idle()
            while not arrivals.wait(_LOOK if core.follows_clock else None):
                on_idle()
            return arrivals.next()

        while (streams or live) and not arrivals.stopped:
            text = next_news()
            if arrivals.stopped:
                break
            if text is not None and names[text] in live:
                name = names[text]
                for rows in live[name]():
                    if not push(name, rows):
                        del live[name]
                        break
                if text.over and live.pop(name, None) is not None:
                    end(name)
            elif text is not None:
                arrivals.taken(text)  # it has stopped, or is a relation
            elif streams:
                name = _least(core, streams)
                chunk = next(streams[name], None)
                if chunk is None:
                    del streams[name]
                    end(name)
                elif not push(name, chunk):
                    del streams[name]
    return stopped


def _least(core: Core, names: Iterable[str]) -> str:
    return min(names, key=lambda name: (core.input(name).progress, core.catalog.streams[name].position))


def _as_it_comes(
    core: Core, name: str, text: LiveText, chunk_rows: int, done: int
) -> Callable[[], Generator[Rows, None, None]]:
    """What gives the rows of a text that have come, each time that it is called; not the first ``done``."""
    sieve = row_sieve(
        text.where, core.catalog.streams[name].schema, **_reading(core, name) | {"on_error": _stopping(core, name)}
    )
    left = done

    def rows() -> Generator[Rows, None, None]:
        nonlocal left
        for some in text.rows(sieve, chunk_rows):
            taken = min(left, len(some))
            left -= taken
            if taken < len(some) or some.stopped is not None:
                yield some.slice(taken, len(some))

    return rows


def _stopping(core: Core, name: str) -> OnError:
    on_error = core.catalog.streams[name].on_error
    return "stop" if on_error == "refuse" else on_error


def _reading(core: Core, name: str) -> dict[str, Any]:
    """How rows of a stream are read."""
    stream = core.catalog.streams[name]
    return {
        "not_null": frozenset({stream.timestamp_by} if stream.timestamp_by else ()),
        "time": stream.time,
        "on_error": stream.on_error,
        "unknown": stream.unknown or "ignore",
        "check": core.input(name).check,
    }


def stream_rows(
    core: Core, name: str, path: Path, chunk_rows: int = 65_536, leave: Leave | None = None,
    on_read: Callable[[int], None] | None = None,
) -> Generator[Rows, None, None]:  # fmt: skip
    """The rows of a file for a stream. Where a row that does not fit is refused, so is the file: it is read to its end
    before the first rows are given; ``on_read`` hears how many have been read so far."""
    stream = core.catalog.streams[name]
    how = _reading(core, name)

    def opened() -> Generator[Rows, None, None]:
        return read_rows(path, stream.schema, batch_rows=chunk_rows, leave=leave, **how)

    return _read_before(opened, on_read) if stream.on_error == "refuse" else opened()


_AHEAD = 64 << 20
"""Bytes of rows that are kept while a file is read to its end, so that small files are read once."""


def _read_before(
    opened: Callable[[], Generator[Rows, None, None]], on_read: Callable[[int], None] | None
) -> Generator[Rows, None, None]:
    """The rows of a file that has been read to its end once, or its InputError."""
    kept: deque[Rows] = deque()
    size = count = seen = 0
    all_kept = True
    with closing(opened()) as found:
        for rows in found:
            size += rows.table.nbytes
            seen += len(rows)
            if on_read is not None:
                on_read(seen)
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


def load_relation(core: Core, name: str, given: Input) -> int:
    """Push the rows, or changes, of a relation's file; how many there were.

    They go in as one batch, because the changes of one ``ts`` are one instant.
    """
    rows = relation_file(core, name, given)
    if rows.num_rows:
        core.push(name, rows)
    return int(rows.num_rows)


def relation_file(core: Core, name: str, given: Input) -> pa.Table:
    """The rows, or changes, of a relation's file."""
    schema = core.catalog.relations[name].schema
    source = given.whole() if isinstance(given, LiveText) else given
    check, time = core.relations[name].check, TimeForm("", core.zone)
    found = read_rows(source, schema, extra=CHANGE_COLUMNS, time=time, check=check, options=False)
    batches = [rows.table for rows in found]
    return pa.concat_tables(batches) if batches else arrow_schema(schema).empty_table()


def input_name(catalog: Catalog, given: str) -> str:
    """The declared name that the name of an input means: the same, or the only one that differs in case."""
    streams, relations = catalog.streams, catalog.relations
    known = [*streams, *relations]
    found = [given] if given in known else [name for name in known if name.lower() == given.lower()]
    if len(found) != 1:
        fillable = [name for name in known if name in relations or not streams[name].derived]
        raise InputError(f"there is no stream or relation `{given}`", hint=suggest(given, fillable))
    name = found[0]
    if name in streams and streams[name].derived:
        raise InputError(f"stream `{name}` is derived from a query and takes no input")
    return name
