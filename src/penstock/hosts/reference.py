"""The reference evaluator as a host: exact, slow, for small data and for checking the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.hosts.host import Abilities, QuerySettings
from penstock.hosts.inprocess import InProcess
from penstock.hosts.meter import Meter, sampled
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import arrival_sub
from penstock.model.types import BIGINT, STRING, TIMESTAMP
from penstock.model.values import to_arrow, to_rows
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query
from penstock.reference.evaluator import Answer, Element, Evaluator
from penstock.scalar import Context


class ReferenceHost(InProcess):
    """Every query by itself, in the thread that pushes."""

    def runner(self, query: Query, schema: pa.Schema, settings: QuerySettings) -> ReferenceRunner:
        return ReferenceRunner(query, schema, settings)

    def abilities(self) -> Abilities:
        return Abilities("reference")


class ReferenceRunner:
    """Feeds an ``Evaluator`` with the rows of batches."""

    def __init__(self, query: Query, schema: pa.Schema, settings: QuerySettings) -> None:
        self._query = query
        self._schema = schema
        self._context = Context(functions=settings.functions, strict=settings.strict)
        self._evaluator = Evaluator(query, self._context)
        self._priorities: list[int] = []
        """Those of the answers that ``run`` gave last."""

    @property
    def ended(self) -> bool:
        return self._evaluator.ended

    @property
    def failures(self) -> int:
        return self._context.failures

    @property
    def last_failure(self) -> str | None:
        return self._context.last_failure

    def push(self, stream: str, batches: Sequence[Batch]) -> None:
        for batch in batches:
            rows = to_rows(batch.table, batch.schema)
            priorities = [0] * len(batch) if batch.priority is None else batch.priority.tolist()
            elements = zip(batch.ts.tolist(), rows, batch.arrival.tolist(), priorities, strict=True)
            self._evaluator.push(stream, (Element(*e) for e in elements))

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self._evaluator.change(relation, changes)

    def progress(self, stream: str, at: Instant) -> None:
        self._evaluator.progress(stream, at)

    def run(self) -> list[Answer] | None:
        answers = self._evaluator.run()
        self._priorities = sorted((a.priority for a in answers), reverse=True)
        if any(a.priority for a in answers):
            answers = [replace(a, priority=0) for a in sorted(answers, key=lambda a: -a.priority)]
        return answers or None

    def measure(self, meter: Meter, answers: list[Answer], delivered: float, began: float) -> None:
        subs = [0 if a.cause is None else int(arrival_sub(*a.cause)) for a in answers]
        ts, sub, priority = (np.array(of, np.int64) for of in ([a.ts for a in answers], subs, self._priorities))
        meter.note(delivered, began, sampled(ts, sub, priority))

    def together(self, answers: Sequence[list[Answer]]) -> list[Answer]:
        return [answer for some in answers for answer in some]

    def table(self, answers: Sequence[list[Answer]]) -> pa.Table:
        return pa.concat_tables([self._schema.empty_table(), *map(self._table, answers)])

    def _table(self, answers: list[Answer]) -> pa.Table:
        clock = BIGINT if self._query.clock == "ticks" else TIMESTAMP
        columns = [to_arrow([a.ts for a in answers], clock), to_arrow([a.op for a in answers], STRING)]
        for i, field in enumerate(self._query.schema):
            columns.append(to_arrow([a.row[i] for a in answers], field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def size(self, answers: list[Answer]) -> int:
        return 100 * len(answers) * (1 + len(self._query.schema))

    def written(self) -> None:
        pass

    def forget(self, answers: Sequence[list[Answer]]) -> None:
        pass

    def facts(self) -> Mapping[str, object]:
        return {}

    def delivered(
        self, answers: Sequence[list[Answer]], upto: int | None, notes: Mapping[str, object] | None = None
    ) -> None:
        pass

    def sizes(self) -> dict[str, StateSize]:
        return {}

    def close(self) -> None:
        self._evaluator = Evaluator(self._query, self._context)
