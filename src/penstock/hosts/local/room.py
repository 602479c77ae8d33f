"""Back-pressure: whether rows that are pushed find room, and what is said if they do not."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pyarrow as pa

from penstock.graph.graph import Graph
from penstock.graph.sources import Source
from penstock.hosts.options import LocalOptions
from penstock.ingest.streams import StreamInput
from penstock.model.amounts import shown
from penstock.model.errors import BufferFullError, InputError
from penstock.runtime.control import OnError
from penstock.runtime.lines import BoundOf
from penstock.runtime.run import Runtime
from penstock.runtime.settings import Settings
from penstock.runtime.storage.files import remove_leftovers
from penstock.runtime.storage.sizes import COLUMN, MESSAGE

_seen: set[Path] = set()
"""Where has been looked for leftovers; a process does so once."""


def runtime_of(options: LocalOptions, on_error: OnError, bound_of: BoundOf) -> Runtime:
    """A runtime with these budgets. Files of processes that are gone are removed."""
    settings = Settings(memory=options.memory, disk=options.disk, when_full=options.when_full)
    parent = Path(tempfile.gettempdir() if options.spill is None else options.spill)
    if options.spill is not None and not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise InputError(f"spill is {str(parent)!r}", hint="it is a directory in which files can be made")
    if parent not in _seen:
        _seen.add(parent)
        remove_leftovers(parent)
    return Runtime(settings, on_error, parent, bound_of)


class Admission:
    """Who may push now. Bounded by the streams: of each, which thread pushed last."""

    def __init__(self, graph: Graph, runtime: Runtime) -> None:
        self._graph, self._runtime = graph, runtime
        self._pushers: dict[str, int] = {}

    def admits(self, source: StreamInput, rows: pa.Table) -> bool:
        """Whether rows can be taken into a stream. False: not yet, but somebody is making room. Raises if nobody is, or
        if pushing must not wait."""
        runtime, name = self._runtime, source.definition.name
        if runtime.storage.memory is not None:
            self._pushers[name] = threading.get_ident()
        if runtime.storage.is_ample:
            return True
        size = _size(rows, len(source.definition.schema)) + MESSAGE + COLUMN * len(source.definition.schema)
        sources = self._graph.sources(name)
        if runtime.room.has(sources, size):
            return True
        stuck = runtime.stuck
        awaited = runtime.room.awaited() if stuck else set()
        if awaited & {s.id for s in sources}:
            return True  # it is what makes room
        if runtime.room.has(sources, size):
            return True  # meanwhile it has been worked off
        if runtime.settings.when_full == "block" and (not stuck or self._comes(awaited)):
            return False
        raise _refusal(runtime, name, size)

    def forget(self, stream: str) -> None:
        """A stream is no more."""
        self._pushers.pop(stream, None)

    def _comes(self, awaited: set[int]) -> bool:
        """Whether another thread has pushed into one of these, and may do so again."""
        others = {t.ident for t in threading.enumerate()} - {threading.get_ident()}
        streams = {v.stream for id in awaited if isinstance(v := self._graph.vertices.get(id), Source)}
        return any(self._pushers.get(stream) in others for stream in streams)


def _size(rows: pa.Table, columns: int) -> int:
    """Bytes, about: numbers take eight each, whatever they came as."""
    return max(int(rows.nbytes), 8 * columns * len(rows)) + 24 * len(rows)


def _refusal(runtime: Runtime, name: str, size: int) -> BufferFullError:
    said = f"stream `{name}`: there is no room for about {shown(size)}: {runtime.storage.text}"
    if runtime.storage.trouble is not None:
        said += f", where nothing more can be written ({runtime.storage.trouble})"
    slowest = runtime.room.slowest()
    if slowest is not None:
        vertex, rows = slowest
        said += f"; most waits for operator {vertex.id} ({vertex.label}): {rows:,} rows"
        if runtime.is_held(vertex):
            said += ", which is suspended"
    if runtime.settings.when_full == "block":
        said += "; nobody would make room"
    return BufferFullError(
        said,
        hint="nothing of this push was taken; push it again when there is room, "
        "resume what is suspended or stop what is slow, or give more (db.configure(memory=…, disk=…))",
    )
