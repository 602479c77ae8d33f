"""Hosts run queries. A database talks to each through ``Runner`` and knows no more about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import EngineError
from penstock.ingest import Batch, Instant
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query
from penstock.reference import Change


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

    def sizes(self) -> Mapping[str, StateSize]:
        """What is remembered, by operator."""

    def close(self) -> None:
        """Give everything back; called once, by the database."""


def _reference(query: Query, schema: pa.Schema, settings: QuerySettings) -> Runner:
    from penstock.hosts.reference import ReferenceRunner

    return ReferenceRunner(query, schema, settings)


def _local(query: Query, schema: pa.Schema, settings: QuerySettings) -> Runner:
    from penstock.hosts.local import LocalRunner

    return LocalRunner(query, schema, settings)


ENGINES: Mapping[str, Callable[[Query, pa.Schema, QuerySettings], Runner]] = {
    "reference": _reference,
    "local": _local,
}
DEFAULT_ENGINE = "local"


def runner(engine: str, query: Query, schema: pa.Schema, settings: QuerySettings) -> Runner:
    """A new runner for a query on the engine of that name."""
    check_engine(engine)
    return ENGINES[engine](query, schema, settings)


def check_engine(engine: str) -> None:
    """Refuse an engine that is not there."""
    if engine not in ENGINES:
        raise EngineError(f"no engine `{engine}`", hint="there is " + ", ".join(f"`{e}`" for e in ENGINES))
