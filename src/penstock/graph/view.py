"""The graph as it is at a moment, as plain data: what ``db.graph()`` gives, and what pictures are
drawn from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from penstock.graph import draw
from penstock.graph.latency import Latency
from penstock.model.shown import as_html, as_text


@dataclass(frozen=True)
class OperatorView:
    """One operator. Times in seconds; None where nothing has been measured yet. ``selectivity``, ``cost`` and
    ``interarrival`` are of the last seconds: what happened 5 s before the last elements counts half.

    ``kind``: source, relation, filter, window, gate, join, aggregate, …, emit, query. ``label``: one line for people.
    ``queries``: the names of those that need it. ``state``: ready, running, suspended or stopped. ``partition``: the
    number of the virtual operator it belongs to. ``saved``: bytes that it need not hold since it is composed with its
    neighbour.
    """

    id: int
    kind: str
    label: str
    queries: tuple[str, ...]
    state: str
    priority: int
    partition: int
    calls: int
    elements_in: int
    elements_out: int
    selectivity: float | None
    cost: float | None
    interarrival: float | None
    rows: int
    bytes: int
    saved: int = 0


@dataclass(frozen=True)
class BufferView:
    """A queue on an edge: what its reader has not taken yet, the most that ever waited, how many messages went through,
    and how many elements overtook others. ``spilled``, ``spilled_bytes``: how much of what waits is on disk.
    ``dropped``: rows that the reader will not get, since their stream says so. ``lag``: seconds since the first of what
    waits came."""

    elements: int
    bytes: int
    peak: int
    passed: int
    overtook: int = 0
    spilled: int = 0
    spilled_bytes: int = 0
    dropped: int = 0
    lag: float | None = None


@dataclass(frozen=True)
class EdgeView:
    """``buffer`` is None where the sender calls the receiver directly."""

    source: int
    target: int
    port: int
    buffer: BufferView | None = None


@dataclass(frozen=True)
class PartitionView:
    """A virtual operator: its operators, who runs it and how. ``worker``: None is the thread that pushes."""

    id: int
    operators: tuple[int, ...]
    worker: str | None
    strategy: str | None
    priority: int
    capacity: float | None


@dataclass(frozen=True)
class PartView:
    """A part: queries that share micro-batches on Spark; ``batches`` of these count. ``rows``, ``rows_per_second``,
    ``answers_per_second`` and ``seconds`` are of the last one since the database was opened, None before it.
    ``waiting``, ``waiting_rows``: entries of logs that it has not taken, and the rows in them."""

    part: int
    queries: tuple[str, ...]
    priority: int
    batches: int
    rows: int | None
    rows_per_second: float | None
    answers_per_second: float | None
    seconds: float | None
    waiting: int
    waiting_rows: int


@dataclass(frozen=True)
class QueryView:
    """A registered query: the operator that hands its answers over, how it is, and how long its results take."""

    name: str
    text: str
    operator: int
    priority: int
    status: str
    answered: int
    latency: Latency = field(default_factory=Latency)


@dataclass(frozen=True)
class WindowMemory:
    """One window over a stream.

    ``operator``: its number in the graph. ``kind``: rows, time, partition or unbounded; ``size`` in rows or
    microseconds. ``passing``: ``all`` (every change goes on at once), and for queries with MASTER ``master`` (the
    stream is one) or ``smart``. ``rows``: those it needs. Of these, ``passed`` have been passed on and ``waiting`` have
    not; ``leaving`` have left, but the plan has them until a master element arrives. ``bytes``: its part of what the
    stream's windows hold; a row that several need is split among them.
    """

    operator: int
    queries: tuple[str, ...]
    label: str
    kind: str
    size: int | None
    passing: str
    rows: int
    passed: int
    waiting: int
    leaving: int
    bytes: int


@dataclass(frozen=True)
class StreamMemory:
    """The windows over one stream. ``rows``: those that they hold together, and those that are leaving; ``bytes``: in
    memory for them."""

    stream: str
    rows: int
    bytes: int
    windows: tuple[WindowMemory, ...]


@dataclass(frozen=True)
class QueryMemory:
    """The part of the bytes that is for a query."""

    name: str
    bytes: int


@dataclass(frozen=True)
class MemoryView:
    """What windows hold: the bytes of queries add up to those of streams, and those of its windows to a stream's."""

    streams: tuple[StreamMemory, ...]
    queries: tuple[QueryMemory, ...]

    @property
    def bytes(self) -> int:
        """In all."""
        return sum(q.bytes for q in self.queries)

    def text(self) -> str:
        """For people."""
        return draw.memory_text(self)

    def json(self, indent: int | None = 2) -> str:
        """For programs: the fields of this view, in their order."""
        return json.dumps(self.to_json(), indent=indent, ensure_ascii=False)

    def to_json(self) -> dict[str, Any]:
        """What :meth:`json` writes, as plain dictionaries and lists."""
        return draw.to_json(self)

    def __str__(self) -> str:
        return self.text()

    _repr_pretty_ = as_text
    _repr_html_ = as_html


@dataclass(frozen=True)
class DropView:
    """How many rows of a stream were dropped since the database was opened, since it says so; a row that two readers
    will not get counts twice."""

    stream: str
    rows: int


@dataclass(frozen=True)
class GraphView:
    """All of it. ``threading``: direct, graph, operator, hybrid; or how the host calls what it does. ``dropped``: of
    those streams that have dropped rows, how many."""

    engine: str
    threading: str
    workers: int
    operators: tuple[OperatorView, ...]
    edges: tuple[EdgeView, ...]
    partitions: tuple[PartitionView, ...]
    queries: tuple[QueryView, ...]
    memory: MemoryView = MemoryView((), ())
    dropped: tuple[DropView, ...] = ()

    def text(self) -> str:
        """For people with a terminal of 100 columns."""
        return draw.text(self)

    def json(self, indent: int | None = 2) -> str:
        """For programs: the fields of this view, in their order."""
        return json.dumps(self.to_json(), indent=indent, ensure_ascii=False)

    def to_json(self) -> dict[str, Any]:
        """What :meth:`json` writes, as plain dictionaries and lists."""
        return draw.to_json(self)

    def mermaid(self) -> str:
        """A Mermaid flowchart."""
        return draw.mermaid(self)

    def svg(self) -> str:
        """A picture, the text of an SVG file."""
        return draw.svg(self)

    def __str__(self) -> str:
        return self.text()

    _repr_pretty_ = as_text
    _repr_html_ = as_html
