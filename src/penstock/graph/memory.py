"""What the windows of a graph hold, by stream and by query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise

from penstock.graph.operators import SmartWindowed, Windowed
from penstock.graph.sources import Source
from penstock.graph.vertices import OperatorVertex
from penstock.graph.view import MemoryView, QueryMemory, StreamMemory, WindowMemory
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.smart import SmartWindow
from penstock.operators.stored import StoredWindow
from penstock.operators.window_store import WindowStore
from penstock.plan.window import Now, PartitionRows, Range, Rows, WindowSpec

_TRIES = 4


def memory_view(vertices: Iterable[OperatorVertex]) -> MemoryView:
    """As it is now; while workers are at work, numbers may be a call apart from each other."""
    windows = [v for v in vertices if isinstance(v, Windowed) and not v.stateless]
    shared: dict[WindowStore, list[Windowed]] = {}
    by_stream: dict[str, list[WindowMemory]] = {}
    rows: dict[str, int] = {}
    for vertex in windows:
        name = _stream(vertex)
        by_stream.setdefault(name, [])
        rows.setdefault(name, 0)
        if isinstance(vertex.window, StoredWindow):
            shared.setdefault(vertex.window.inside.store, []).append(vertex)
        else:
            own = vertex.size()
            by_stream[name].append(_window(vertex, own.rows, own.bytes))
            rows[name] += own.rows
    for store, users in shared.items():
        parts = store.parts()
        weights = [parts.get(v.window.inside, 0.0) for v in users if isinstance(v.window, StoredWindow)]
        for vertex, size in zip(users, split(store.nbytes, weights), strict=True):
            left = _left(vertex)
            by_stream[_stream(vertex)].append(_window(vertex, _inside(vertex), size + left.bytes))
            rows[_stream(vertex)] += left.rows
        rows[_stream(users[0])] += store.rows
    streams = tuple(
        StreamMemory(name, rows[name], sum(w.bytes for w in found), tuple(sorted(found, key=lambda w: w.operator)))
        for name, found in sorted(by_stream.items())
    )
    queries: dict[str, int] = {}
    for stream in streams:
        for window in stream.windows:
            for name, size in zip(window.queries, split(window.bytes, [1.0] * len(window.queries)), strict=True):
                queries[name] = queries.get(name, 0) + size
    return MemoryView(streams, tuple(QueryMemory(name, size) for name, size in sorted(queries.items())))


def split(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to the weights, which add up to the total."""
    whole = sum(weights)
    if not whole:
        return [total, *[0] * (len(weights) - 1)] if weights else []
    bounds = [0]
    bounds += [round(total * part / whole) for part in accumulate(weights)]
    return [b - a for a, b in pairwise(bounds)]


def _window(vertex: Windowed, rows: int, size: int) -> WindowMemory:
    kind, length = _kind(vertex.spec)
    passed, waiting, leaving = rows, 0, 0
    if isinstance(vertex.window, SmartWindow):
        passed, waiting, leaving = vertex.window.passed, vertex.window.waiting, vertex.window.leaving
    return WindowMemory(
        vertex.id, tuple(sorted(vertex.users)), vertex.label, kind, length, _passing(vertex), rows, passed, waiting,
        leaving, size,
    )  # fmt: skip


def _kind(spec: WindowSpec) -> tuple[str, int | None]:
    match spec:
        case Rows(size):
            return "rows", size
        case Range(size):
            return "time", size
        case Now():
            return "time", 1
        case PartitionRows(_, size):
            return "partition", size
    return "unbounded", None


def _passing(vertex: Windowed) -> str:
    if not isinstance(vertex, SmartWindowed):
        return "all"
    own, *masters = (edge.source for edge in vertex.inputs)
    while own not in masters and own.inputs:
        own = own.inputs[0].source
    return "master" if own in masters else "smart"


def _inside(vertex: Windowed) -> int:
    assert isinstance(vertex.window, StoredWindow)
    return len(vertex.window.inside)


def _left(vertex: Windowed) -> StateSize:
    window = vertex.window
    if isinstance(window, SmartWindow):
        for _ in range(_TRIES):
            with suppress(RuntimeError):  # it changed while it was looked at
                return window.left()
    return NOTHING


def _stream(vertex: OperatorVertex) -> str:
    """The name of the stream that a window is over."""
    below = vertex
    while below.kind != "stream" and below.inputs:
        source = below.inputs[0].source
        assert isinstance(source, OperatorVertex)
        below = source
    return below.stream if isinstance(below, Source) else below.label.removeprefix("stream ")
