"""The demo at a moment, as plain data: all that is shown comes from here."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.demo.figures import Compared
from penstock.graph.view import GraphView


@dataclass(frozen=True)
class QueryFigures:
    """One query. ``rows``, ``rows_a_second``: of the streams that it reads. Latencies in seconds, from push to answer;
    None without answers. ``memory``: bytes that it remembers. ``latest``: its newest answers as text, newest last."""

    name: str
    kind: str
    sentence: str
    rows: int
    rows_a_second: float
    answers: int
    answers_a_second: float
    p50: float | None
    p99: float | None
    memory: int
    latest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Event:
    """Something that happened, so many seconds after the start."""

    seconds: float
    text: str


@dataclass(frozen=True)
class Snapshot:
    """All of it. ``seconds`` since the start, of ``lasts``; ``rows`` of all streams; ``waiting``: rows in queues."""

    engine: str
    seconds: float
    lasts: float
    rows: int
    rows_a_second: float
    waiting: int
    queries: tuple[QueryFigures, ...]
    events: tuple[Event, ...]
    burst: Compared | None
    graph: GraphView | None
