"""One query by itself as a runner: what the tests of saving and loading restart."""


from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.graph.answers import DeltaAnswers
from penstock.graph.programs import Program
from penstock.hosts.host import QuerySettings
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import Delta, concat
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, State
from penstock.plan.nodes import Query
from penstock.scalar import Context


class LocalRunner(DeltaAnswers):
    """Runs one query's program."""

    def __init__(self, query: Query, schema: pa.Schema, settings: QuerySettings) -> None:
        super().__init__(query, schema)
        self._errors = Context(functions=settings.functions, strict=settings.strict)
        self._program: Program | None = Program(query, settings.functions, self._errors)
        self._ended = False

    @property
    def ended(self) -> bool:
        return self._ended or (self._program is not None and self._program.over)

    @property
    def failures(self) -> int:
        return self._errors.failures

    @property
    def last_failure(self) -> str | None:
        return self._errors.last_failure

    def push(self, stream: str, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._running.push(stream, batch)

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self._running.change(relation, changes)

    def progress(self, stream: str, at: Instant) -> None:
        self._running.progress(stream, at)

    def run(self) -> Delta | None:
        deltas = self._running.answers()
        if not deltas:
            return None
        return deltas[0] if len(deltas) == 1 else concat(deltas)

    def sizes(self) -> dict[str, StateSize]:
        return {} if self._program is None else self._program.size()

    def save(self) -> State:
        """All that the query remembers: what is new since the last save, and the names of the rest."""
        return self._running.save()

    def load(self, state: LoadedState) -> None:
        """Go on, before anything was pushed, from what a runner of the same query saved."""
        self._running.load(state)

    def catch_up(self, state: LoadedState) -> None:
        """Go on, after a save or load, from a later state of the same query that goes on from that one."""
        self._running.catch_up(state)

    def close(self) -> None:
        self._ended = self._program is not None and self._program.over
        self._program = None

    @property
    def _running(self) -> Program:
        assert self._program is not None, "the database lets no closed runner work"
        return self._program
