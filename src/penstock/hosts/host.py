"""``Host`` and ``Runner``: all that a database knows of an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from penstock.catalog import FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.graph.view import GraphView, PartView
from penstock.hosts.meter import Meter
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.errors import EngineError
from penstock.model.waiting import Look
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query as Plan

if TYPE_CHECKING:
    from penstock.hosts.registered import Registered
    from penstock.runtime.storage.storage import Storage


@dataclass(frozen=True)
class QuerySettings:
    """What a query may be told besides its text."""

    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    strict: bool = False


class Answers(Protocol):
    """Answers as the runner has them; only it can make a table of them, and does so when somebody looks."""

    def __len__(self) -> int:
        """How many there are."""


class Runner(Protocol):
    """One running query: rows, changes and progress in, answers out."""

    @property
    def ended(self) -> bool:
        """No further answer can come."""

    @property
    def failures(self) -> int:
        """How many values became NULL because computing them failed."""

    @property
    def last_failure(self) -> str | None:
        """What the last of them was."""

    def push(self, stream: str, batches: Sequence[Batch]) -> None:
        """Rows of a stream in order. Those that came before the query may be on disk: they are read when they are
        needed, one batch after the other."""

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes of a relation in order."""

    def progress(self, stream: str, at: Instant) -> None:
        """No more rows of the stream before ``at``."""

    def run(self) -> Answers | None:
        """The answers that have become certain."""

    def measure(self, meter: Meter, answers: Any, delivered: float, began: float) -> None:
        """What ``run`` gave last has been delivered; ``began``: when the call began that is under way."""

    def together(self, answers: Sequence[Any]) -> Answers:
        """What ``run`` gave several times, as one."""

    def table(self, answers: Sequence[Any]) -> pa.Table:
        """What ``run`` gave, one or several times, in order of delivery: ts, op, the columns. Also after ``close``."""

    def size(self, answers: Any) -> int:
        """Bytes of what ``run`` gave, about."""

    def delivered(self, answers: Sequence[Any], upto: int | None, notes: Mapping[str, object] | None = None) -> None:
        """The reader who is remembered has these answers now, and so all before a position, and notes this with it; or
        they had to go without that, then it is None."""

    def written(self) -> None:
        """Return when what ``delivered`` has said is as safe as was asked for. Without any lock."""

    def forget(self, answers: Sequence[Any]) -> None:
        """Nobody needs these answers any more."""

    def sizes(self) -> Mapping[str, StateSize]:
        """What is remembered, by operator."""

    def facts(self) -> Mapping[str, Any]:
        """What is to be known of it after a restart besides its state, as JSON has it."""

    def close(self) -> None:
        """Give everything back; called once, by the database."""


class Host(Protocol):
    """What runs the queries of one database. All calls but ``after``, ``settle``, ``room``, ``inside`` and ``close``
    come under the database's lock.

    This is what every engine is. What only some can do (be configured, show a graph, suspend operators, keep notes) is
    in ``Abilities``.
    """

    @property
    def combines(self) -> bool:
        """Whether small pushes of several threads are better taken as one: to take them costs more than they do."""

    @property
    def on_its_own(self) -> bool:
        """Whether results come from threads of the host, when no call that gives rows is under way."""

    @property
    def inside(self) -> bool:
        """Whether the caller is a thread in which the host works, so that a user's function has called. Whoever has the
        database's lock may be waiting for it."""

    @property
    def pace(self) -> float:
        """Seconds between two moves of streams by the clock, which it would work on apart."""

    def results_lock(self) -> threading.RLock:
        """What guards the results of a new query: see ``Registered``."""

    def zone(self) -> str:
        """The time zone of a database that is told none."""

    def open(self) -> None:
        """Take up what is stored; called once, when the database is ready for it."""

    def runner(self, query: Plan, schema: pa.Schema, settings: QuerySettings) -> Runner:
        """Something that runs a query; it is given relations, history and progress, and then ``begin`` is called."""

    def begin(self, query: Registered) -> None:
        """A query has been given all that it starts from. If it raises, there is no such query."""

    def admits(self, source: StreamInput, rows: pa.Table) -> bool:
        """Whether rows can be taken now; False: they can be soon, so ask again. Raises if nobody would make room."""

    def room(self) -> AbstractContextManager[Callable[[], None]]:
        """For those whose rows were not admitted: what returns when there may be room. Without the lock."""

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Registered]) -> None:
        """Rows of a stream whose turn has come, and its progress. If it raises PenstockError, nothing was taken."""

    def released(self, source: StreamInput) -> Batch:
        """The rows of files whose turn has come (``spans``), as far as ``deliver`` or later queries need them."""

    def reached(
        self, source: StreamInput, batch: Batch, readers: Sequence[Registered]
    ) -> Literal["none", "some", "all"]:
        """After ``deliver`` was interrupted: which operators have what came. ``none``: it has been made as if it had
        never come. ``some``: of those that remember it, some may have it and some not."""

    @property
    def wrote(self) -> bool:
        """After ``change`` was interrupted: whether it counts."""

    @property
    def keeps(self) -> bool:
        """Whether a query that was interrupted while it worked goes on when the database is opened again."""

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Registered]) -> None:
        """Changes of a relation. If it raises PenstockError, nothing has been taken."""

    def work(self, queries: Sequence[Registered]) -> None:
        """There is something to do for these queries."""

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        """Something was added to the catalog."""

    def dropped(self, name: str) -> None:
        """Something was removed from the catalog."""

    def finishing(self, query: Registered) -> None:
        """A query is about to be stopped: the last moment for results that can be had soon. Without the lock."""

    def leaving(self, query: Registered) -> None:
        """A query is about to be stopped for good. If it raises, it is not."""

    def stopped(self, query: Registered) -> None:
        """A query has been stopped, and its name is free."""

    def altering(self, query: Registered, options: QueryOptions, suspended: bool) -> None:
        """A query that runs is about to have other options, to rest or to go on. If it raises, it is not."""

    def altered(self, query: Registered, before: QueryOptions) -> None:
        """It has; these were its options."""

    def late_taken(self, source: StreamInput) -> None:
        """A user has taken the late rows of a stream."""

    def apart_taken(self, source: StreamInput) -> None:
        """A user has taken the rows of a stream that were kept apart."""

    def after(self) -> None:
        """The lock has been given back after something was done."""

    def settle(self, query: Registered | None = None, look: Look | None = None) -> None:
        """Return when everything given so far has been worked on, for a query or for all; ``look`` may give it up."""

    def metrics(self) -> pa.Table:
        """What the last pieces of work took."""

    def remark(self, query: Registered) -> str | None:
        """What the host cannot do of what a query asks for."""

    def explain(self, plan: Plan, query: Registered | None = None) -> str:
        """What the host adds to the explanation of a plan, and of the query that runs it; empty: nothing."""

    def abilities(self) -> Abilities:
        """What it can do besides; EngineError says what it cannot."""

    def close(self) -> None:
        """Give everything back."""


class Abilities:
    """What engines may or may not do. Each call is refused here, in the name of the engine that lacks it."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Work in another way from now on: when results come changes, not which."""
        raise EngineError(f"engine `{self._engine}` has nothing to configure", hint="use engine='local' or 'spark'")

    def configured(self) -> None:
        """Return when it works in the way it was told. Without the lock."""

    def view(self) -> GraphView:
        """The graph of all queries, as it is now."""
        raise EngineError(f"engine `{self._engine}` has no graph", hint="use engine='local' or 'spark'")

    def part_views(self) -> tuple[PartView, ...]:
        """The parts into which queries are divided, where these have micro-batches of their own."""
        return ()

    def suspend(self, operator: int) -> None:
        """Let an operator of the graph work no more, until ``resume``."""
        raise EngineError(f"engine `{self._engine}` has no operators to suspend", hint="use engine='local'")

    def resume(self, operator: int) -> None:
        """Let it go on."""
        self.suspend(operator)

    def check_source(self, definition: StreamDef) -> None:
        """Refuse a stream with a source that the engine cannot read."""
        raise EngineError(
            f"stream `{definition.name}`: engine `{self._engine}` does not read {definition.source}",
            hint="use engine='spark', or leave FROM out and push the rows",
        )

    def source_status(self, name: str) -> str:
        """Of a stream with a source: whether it is read, in words."""
        return f"not read: the engine is `{self._engine}`"

    def note_dropped(self) -> None:
        """Let queries know of rows that have been dropped. Without the lock."""

    def disk(self) -> Storage | None:
        """Where it puts what memory does not keep, if it does so itself."""
        return None

    def check_keys(self) -> None:
        """Refuse pushes with keys where these would not be remembered as long as the rows."""

    def save(self) -> None:
        """Save the state now, where there is a directory; else it is saved now and then. Without the lock."""

    def hand_over(self, shards: int) -> None:
        """Save the state so that the other engine with a directory goes on from it: nothing else is done here any more.
        ``shards``: how many there are on Spark, where it has not said so. Without the lock."""
        raise EngineError(f"engine `{self._engine}` keeps nothing on disk", hint="use engine='local' or 'spark'")

    def notes(self) -> dict[str, Any]:
        """What has been noted."""
        return {}

    def note(self, notes: Mapping[str, object]) -> None:
        """Note something (JSON) with the database."""
