"""A registered query, as engines see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from penstock.catalog import QueryOptions, StreamDef
from penstock.hosts.host import Runner
from penstock.hosts.meter import Meter
from penstock.hosts.results import BOUND, Results
from penstock.hosts.subscribers import Subscribers
from penstock.model.amounts import Bound
from penstock.model.change import Dating
from penstock.model.errors import PenstockError, QueryFailed
from penstock.plan.empty import every_window
from penstock.plan.nodes import Query as Plan
from penstock.plan.nodes import relation_scans, stream_scans
from penstock.plan.serial import to_json
from penstock.plan.waiting import Waits, waits
from penstock.plan.window import Generic

Status = Literal["running", "suspended", "ended", "stopped", "failed"]


@dataclass(frozen=True)
class Before:
    """Rows of a stream that came before a query and that it was not given."""

    rows: int
    arrivals: int
    """How many rows the stream had been given, late ones and those that waited for slack included."""


@dataclass(frozen=True)
class Over:
    """What is known of a query that is over, without its results."""

    name: str
    status: Status
    ended: int | None
    """In microseconds since 1970, by the clock of the machine; None where no process saw it end."""
    answers: int
    text: str
    error: str | None = None
    """Of one that failed: the code, and what was wrong."""

    @property
    def how(self) -> str:
        """How it ended, for people."""
        match self.status:
            case "stopped":
                return "it was stopped"
            case "ended":
                return "no further answer can come"
        return self.error or ""


KEPT = 100
"""Queries that were stopped and are still listed."""


class Registered:
    """One query: what it was registered with, what runs it, what it has given.

    ``lock`` guards its results, its status, which changes under the database's lock too, and its subscribers. Whoever
    needs both takes the database's lock first. No table is built under it and nothing is called that users have
    written, so those who read wait for nobody.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        schema: pa.Schema,
        runner: Runner,
        reads: frozenset[str],
        options: QueryOptions,
        text: str,
        lock: threading.RLock,
        meter: Meter,
        kept: Bound = BOUND,
    ) -> None:
        """``kept``: what of its results is kept for readers, where its options do not say it."""
        self.name, self.plan, self.schema, self.runner = name, plan, schema, runner
        self.reads, self.options, self.text = reads, options, text
        self.lock, self.meter = lock, meter
        self.results = Results(name, plan, runner, options.results, lock, kept)
        self.status: Status = "running"
        """``running`` of a query that is suspended, too: its place is kept."""
        self.suspended = False
        self.error: PenstockError | None = None
        self.ended: int | None = None
        """When it ended, if it has and a process saw it: see ``Over``."""
        self.over: Over | None = None
        """What stays listed of it once it has been stopped; ``Keeper`` writes it down with that."""
        self.interrupted = False
        """Whether it was stopped half-way, and is whole in its directory."""
        self.versions: Mapping[str, int] = {}
        """The versions of the functions that it calls, where the database is kept."""
        self.placement: Mapping[str, Any] = {}
        """Where its host works on it, where that is written down with it."""
        self.into: StreamDef | None = None
        """The derived stream that was declared with it; ``Keeper`` writes both down in one record."""
        self.dating = Dating()
        """Of a query without streams, the instants of the changes that it has been given."""
        self.before: Mapping[str, Before] = {}
        self.subscribers = Subscribers(name, self.results, lock)
        self.changed = threading.Condition(lock)
        """Word of new results, and of the end."""
        self.listeners: tuple[Callable[[], None], ...] = ()
        """Told of the same, under ``lock``: they wait for nobody. Bounded by who listens: a server's feed."""

    def at_end(self, now: int) -> Over:
        """What is known of it if it ends now, where it has not before."""
        running = self.status == "running"
        error = None if self.error is None else f"{self.error.code}: {self.error.one_line}"
        return Over(
            self.name, "stopped" if running else self.status, now if running else self.ended, self.answered, self.text,
            error,
        )  # fmt: skip

    @property
    def shown_status(self) -> Status:
        """Its status, for people."""
        return "suspended" if self.suspended and self.status == "running" else self.status

    @property
    def answered(self) -> int:
        """How many results it has given."""
        return self.results.next

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The declared streams that rows must be pushed into for this query."""
        return frozenset(scan.stream for scan in stream_scans(self.plan))

    @cached_property
    def plan_json(self) -> dict[str, Any]:
        """The plan as it is written down."""
        return to_json(self.plan)

    @cached_property
    def every_window(self) -> tuple[tuple[Generic, frozenset[str]], ...]:
        """The windows of which each is answered, also without rows, and the streams that end them."""
        return tuple(every_window(self.plan))

    @cached_property
    def waits(self) -> Waits:
        """What it may wait for that time alone brings."""
        return waits(self.plan)

    @cached_property
    def relations(self) -> frozenset[str]:
        """The stored relations that the query reads."""
        return frozenset(scan.relation for scan in relation_scans(self.plan))

    def failure(self, error: Exception) -> PenstockError:
        """What is told of an error that ended the query."""
        if isinstance(error, PenstockError):
            error.message = f"query `{self.name}`: {error.message}"
            return error
        failure = QueryFailed(f"query `{self.name}` failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        return failure
