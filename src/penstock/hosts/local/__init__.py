"""The local host: the operators of a query called directly in the thread that pushes.

Answers are there as soon as ``push`` returns. A runner holds its query's operators and their state; ``close``
forgets them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.delta import Delta, concat
from penstock.hosts import QuerySettings
from penstock.hosts.local.program import Program
from penstock.ingest import Batch, Instant
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, State
from penstock.plan.nodes import Query
from penstock.reference import Change
from penstock.scalar import Context

_OPS = pa.array(["-", "+"])
_PLUS = pa.array(["+"] * 65_536)


class LocalRunner:
    """Runs one query's program."""

    def __init__(self, query: Query, schema: pa.Schema, settings: QuerySettings) -> None:
        self._query = query
        self._schema = schema
        self._errors = Context(functions=settings.functions, strict=settings.strict)
        self._program: Program | None = Program(query, settings.functions, self._errors)
        self._ended = False

    @property
    def ended(self) -> bool:
        return self._ended or (self._program is not None and self._program.ended)

    @property
    def failures(self) -> int:
        return self._errors.failures

    @property
    def last_failure(self) -> str | None:
        return self._errors.last_failure

    def push(self, stream: str, batch: Batch) -> None:
        self._running.push(stream, batch)

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self._running.change(relation, changes)

    def progress(self, stream: str, at: Instant) -> None:
        self._running.progress(stream, at)

    def run(self) -> Delta | None:
        deltas = self._running.run()
        if not deltas:
            return None
        return deltas[0] if len(deltas) == 1 else concat(deltas)

    def together(self, answers: Sequence[Delta]) -> Delta:
        return concat(answers)

    def table(self, answers: Sequence[Delta]) -> pa.Table:
        if not answers:
            return self._schema.empty_table()
        # Many small pieces are slow to work with; few large ones are not worth a copy.
        if len(answers) > 1 and sum(map(len, answers)) < 1_000 * len(answers):
            answers = [concat(answers)]
        tables = [answers_as_table(delta, self._schema, self._query) for delta in answers]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def delivered(self, answers: Sequence[Delta], notes: Mapping[str, object] | None = None) -> None:
        pass

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
        self._ended = self._program is not None and self._program.ended
        self._program = None

    @property
    def _running(self) -> Program:
        assert self._program is not None, "the database lets no closed runner work"
        return self._program


def answers_as_table(delta: Delta, schema: pa.Schema, query: Query) -> pa.Table:
    """Answers as they are delivered: ts, op, the columns; those of higher priority first."""
    if delta.priority is not None and delta.priority.any():
        delta = delta.take(np.argsort(-delta.priority, kind="stable"))
    ts = pa.array(delta.ts).view(schema.field(0).type)
    if len(delta) <= len(_PLUS) and (query.output != "changes" or delta.sign.min() > 0):
        op = _PLUS.slice(0, len(delta))
    else:
        op = _OPS.take(pa.array((delta.sign > 0).astype(np.int8)))
    return pa.Table.from_arrays([ts, op, *delta.columns], schema=schema)
