"""The rows of an answer as it stands, put together from its changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StateError
from penstock.plan.derive import is_monotonic
from penstock.plan.nodes import Query as Plan
from penstock.scalar.order import hashable
from penstock.values import to_arrow, to_rows


class Standing:
    """Holds each row of the answer, with how often it is there: as many as the answer has."""

    def __init__(self, name: str, plan: Plan, schema: pa.Schema) -> None:
        if plan.output != "changes" and not (plan.output == "istream" and is_monotonic(plan.input)):
            once = "its windows are answered once each, when they end: every answer is the last word"
            raise StateError(
                f"the answers of `{name}` are a stream, there is none that stands",
                hint=once if plan.output == "windows" else f"leave {plan.output.upper()} out of the query",
            )
        self.changes = 0
        """How many have been taken."""
        self._plan = plan
        self._schema = pa.schema(list(schema)[2:])
        self._rows: dict[object, list[Any]] = {}

    def take(self, changes: pa.Table, until: int | None = None) -> None:
        """Take the next changes of the answer; those after an instant, in ticks, are left out."""
        self.changes += changes.num_rows
        if until is not None:
            changes = changes.filter(pc.less_equal(changes["ts"].cast(pa.int64()), until))
        rows = to_rows(changes.select(range(2, changes.num_columns)), self._plan.schema)
        for op, row in zip(changes["op"].to_pylist(), rows, strict=True):
            key = hashable(row)
            held = self._rows.setdefault(key, [row, 0])
            held[1] += 1 if op == "+" else -1
            if not held[1]:
                del self._rows[key]

    def table(self) -> pa.Table:
        """The rows, those first that have been there longest."""
        rows = [row for row, times in self._rows.values() for _ in range(times)]
        columns = [to_arrow([row[i] for row in rows], field.type) for i, field in enumerate(self._plan.schema)]
        return pa.table(columns, schema=self._schema)
