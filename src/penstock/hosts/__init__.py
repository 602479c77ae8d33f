"""Hosts run queries. A database talks to each through ``Host`` and ``Runner`` and knows no more about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from penstock.graph.view import GraphView, MemoryView
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.errors import EngineError, InputError
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query as Plan

if TYPE_CHECKING:
    from penstock.catalog import FunctionDef, RelationDef, StreamDef, ViewDef
    from penstock.database.database import Database
    from penstock.database.query import Query
    from penstock.ingest.relations import RelationStore


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

    def push(self, stream: str, batch: Batch) -> None:
        """Rows of a stream in order."""

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes of a relation in order."""

    def progress(self, stream: str, at: Instant) -> None:
        """No more rows of the stream before ``at``."""

    def run(self) -> Answers | None:
        """The answers that have become certain."""

    def together(self, answers: Sequence[Any]) -> Answers:
        """What ``run`` gave several times, as one."""

    def table(self, answers: Sequence[Any]) -> pa.Table:
        """What ``run`` gave, one or several times, in order of delivery: ts, op, the columns. Also after ``close``."""

    def delivered(self, answers: Sequence[Any], notes: Mapping[str, object] | None = None) -> None:
        """Somebody has these answers now, and notes this with it."""

    def sizes(self) -> Mapping[str, StateSize]:
        """What is remembered, by operator."""

    def close(self) -> None:
        """Give everything back; called once, by the database."""


class Host(Protocol):
    """What runs the queries of one database. All calls but ``after``, ``settle`` and ``configured`` come under
    the database's lock."""

    may_refuse: bool
    """Whether rows and changes can be refused by the host; who gave them must then be able to take them back."""

    def zone(self) -> str:
        """The time zone of a database that is told none."""

    def open(self) -> None:
        """Take up what is stored; called once, when the database is ready for it."""

    def runner(self, query: Plan, schema: pa.Schema, settings: QuerySettings) -> Runner:
        """Something that runs a query; it is given relations, history and progress, and then ``begin`` is called."""

    def begin(self, query: Query) -> None:
        """A query has been given all that it starts from. If it raises, there is no such query."""

    def admits(self, source: StreamInput, rows: pa.Table, *, alone: bool) -> bool:
        """Whether rows can be taken now; False: they can be soon, so ask again. Raises if nobody would make room."""

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Query]) -> None:
        """Rows of a stream whose turn has come, and its progress. If it raises, nothing has been taken."""

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Query]) -> None:
        """Changes of a relation. If it raises, nothing has been taken."""

    def work(self, queries: Sequence[Query]) -> None:
        """There is something to do for these queries."""

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        """Something was added to the catalog."""

    def dropped(self, name: str) -> None:
        """Something was removed from the catalog."""

    def finishing(self, query: Query) -> None:
        """A query is about to be stopped: the last moment for answers that can be had soon."""

    def stopped(self, query: Query) -> None:
        """A query has been stopped, and its name is free."""

    def late_taken(self, source: StreamInput) -> None:
        """Somebody has taken the late rows of a stream."""

    def apart_taken(self, source: StreamInput) -> None:
        """Somebody has taken the rows of a stream that were kept apart."""

    def after(self) -> None:
        """The lock has been given back after something was done."""

    def settle(self, query: Query | None = None) -> None:
        """Return when everything given so far has been worked on, for a query or for all."""

    def notes(self) -> dict[str, Any]:
        """What has been noted."""

    def note(self, notes: Mapping[str, object]) -> None:
        """Note something (JSON) with the database."""

    def metrics(self) -> pa.Table:
        """What the last pieces of work took."""

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Work in another way from now on: when answers come changes, not which."""

    def configured(self) -> None:
        """Return when it works in the way it was told."""

    def view(self) -> GraphView:
        """The graph of all queries, as it is now."""

    def memory(self) -> MemoryView:
        """What windows hold, as it is now."""

    def suspend(self, operator: int) -> None:
        """Let an operator of the graph work no more, until ``resume``."""

    def resume(self, operator: int) -> None:
        """Let it go on."""

    def explain(self, plan: Plan, query: Query | None = None) -> str:
        """What the host adds to the explanation of a plan, and of the query that runs it; empty: nothing."""

    def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True)
class SparkOptions:
    """Settings of ``engine="spark"``.

    ``master``: as Spark names it. ``shards``: how many ways queries with a key are split; by default as many as
    Spark has cores. ``trigger``: seconds to collect rows before a micro-batch begins, or ``push``: every call returns
    when its answers are there. ``batch_rows``: at most so many rows in a micro-batch, if one push has not more.
    ``sync``: what is acknowledged survives the machine, not just the process. ``spark``: more settings for Spark.
    """

    master: str | None = None
    shards: int | None = None
    trigger: float | Literal["push"] | None = None
    batch_rows: int | None = None
    sync: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)


    def or_environment(self) -> SparkOptions:
        """With what ``PENSTOCK_MASTER`` and ``PENSTOCK_TRIGGER`` say where nothing else does."""
        said = os.environ.get("PENSTOCK_TRIGGER")
        try:
            trigger: float | Literal["push"] | None = "push" if said == "push" else float(said) if said else None
        except ValueError:
            raise InputError(f"PENSTOCK_TRIGGER is {said!r}", hint="give seconds, or 'push'") from None
        return replace(
            self,
            master=self.master or os.environ.get("PENSTOCK_MASTER") or None,
            trigger=trigger if self.trigger is None else self.trigger,
        )


@dataclass(frozen=True)
class LocalOptions:
    """Settings of ``engine="local"``: what may wait in buffers, see ``Settings``; and where the files are for what
    exceeds the memory, by default among the system's temporary files."""

    memory: int | str | None = "512 MB"
    disk: int | str | None = None
    when_full: str = "block"
    spill: str | Path | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.spill, str | Path | None):
            raise InputError(f"spill is {self.spill!r}", hint="it is a directory in which files can be made")


ENGINES = ("reference", "local", "spark")


def default_engine() -> str:
    """The engine where none is named: that of the environment variable ``PENSTOCK_ENGINE``, or Spark."""
    return os.environ.get("PENSTOCK_ENGINE") or "spark"


def host(engine: str, database: Database, path: Path | None, options: SparkOptions, local: LocalOptions) -> Host:
    """A new host for a database, on the engine of that name."""
    check_engine(engine)
    if engine != "local" and local != LocalOptions():
        raise EngineError(
            f"engine `{engine}` has no buffers in memory: memory, disk, when_full and spill belong to engine='local'",
            hint="on Spark, rows wait in the streams' logs on disk",
        )
    if engine == "spark":
        from penstock.hosts.spark.live.host import SparkHost

        return SparkHost(database, path, options.or_environment())
    if path is not None:
        raise EngineError(
            f"engine `{engine}` keeps nothing on disk", hint="use engine='spark', or leave the directory out"
        )
    if options != SparkOptions():
        raise EngineError(f"engine `{engine}` takes no settings", hint="they belong to engine='spark'")
    if engine == "local":
        from penstock.hosts.local.host import LocalHost

        return LocalHost(database, local)
    from penstock.hosts.reference import ReferenceHost

    return ReferenceHost(database)


def check_engine(engine: str) -> None:
    """Refuse an engine that is not there."""
    if engine not in ENGINES:
        raise EngineError(f"no engine `{engine}`", hint="there is " + ", ".join(f"`{e}`" for e in ENGINES))
