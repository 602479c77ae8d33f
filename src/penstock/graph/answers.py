"""Answers as the local operators have them, and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model.delta import Delta, concat, priorities
from penstock.plan.nodes import Query

_OPS = pa.array(["-", "+"])
_PLUS = pa.array(["+"] * 65_536)


class DeltaAnswers:
    """The part of a ``Runner`` that is about answers it has given."""

    def __init__(self, query: Query, schema: pa.Schema) -> None:
        self._query, self._schema = query, schema

    def together(self, answers: Sequence[Delta | pa.Table]) -> Delta | pa.Table:
        deltas = [a for a in answers if isinstance(a, Delta)]
        return concat(deltas) if len(deltas) == len(answers) else self.table(answers)

    def table(self, answers: Sequence[Delta | pa.Table]) -> pa.Table:
        """Answers as they are delivered; those from before a restart are tables already."""
        if not answers:
            return self._schema.empty_table()
        deltas = [a for a in answers if isinstance(a, Delta)]
        # Many small pieces are slow to work with; few large ones are not worth a copy.
        if len(deltas) == len(answers) > 1 and sum(map(len, deltas)) < 1_000 * len(deltas):
            answers = [_shown(deltas)]
        tables = [
            answers_as_table(a, self._schema, self._query) if isinstance(a, Delta) else a for a in answers
        ]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def facts(self) -> Mapping[str, Any]:
        return {}

    def size(self, answers: Delta | pa.Table) -> int:
        return int(answers.nbytes)

    def forget(self, answers: Sequence[Delta | pa.Table]) -> None:
        pass

    def written(self) -> None:
        pass

    def delivered(
        self, answers: Sequence[Delta | pa.Table], upto: int | None, notes: Mapping[str, object] | None = None
    ) -> None:
        pass


def _shown(answers: Sequence[Delta]) -> Delta:
    """Answers one after the other, with no more than what is shown of them."""
    ts = np.concatenate([d.ts for d in answers])
    sign = np.concatenate([d.sign for d in answers])
    columns = tuple([pa.concat_arrays([d.columns[i] for d in answers]) for i in range(len(answers[0].columns))])
    return Delta(answers[0].schema, columns, ts, ts, sign, ts, ts, priorities(answers))


def ordered(delta: Delta) -> Delta:
    """Answers in the order in which they are delivered: those of higher priority first. They have none any more."""
    if delta.priority is None:
        return delta
    found = delta.take(np.argsort(-delta.priority, kind="stable")) if delta.priority.any() else delta
    return replace(found, priority=None)


def answers_as_table(delta: Delta, schema: pa.Schema, query: Query) -> pa.Table:
    """Answers as they are delivered: ts, op, the columns; those of higher priority first."""
    delta = ordered(delta)
    ts = pa.array(delta.ts).view(schema.field(0).type)
    if not len(delta) or query.output != "changes" or delta.sign.min() > 0:
        op = _PLUS.slice(0, len(delta)) if len(delta) <= len(_PLUS) else pa.repeat("+", len(delta))
    else:
        op = _OPS.take(pa.array((delta.sign > 0).astype(np.int8)))
    return pa.Table.from_arrays([ts, op, *delta.columns], schema=schema)
