"""The rows of an answer as it stands, put together from its changes."""

from __future__ import annotations

from copy import copy
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import StateError
from penstock.model.values import to_arrow, to_rows, with_zone
from penstock.operators.evaluation import order_keys
from penstock.operators.topn import place_of
from penstock.plan.nodes import Query as Plan
from penstock.plan.order import order_of, stands
from penstock.scalar import Context, hashable


class Standing:
    """Holds each row of the answer, with how often it is there: as many as the answer has."""

    def __init__(self, name: str, plan: Plan, schema: pa.Schema) -> None:
        if not stands(plan):
            once = "its windows are answered once each, when they end: every answer is the last word"
            raise StateError(
                f"the answers of `{name}` are a stream, there is none that stands",
                hint=once if plan.output == "windows" else f"leave {plan.output.upper()} out of the query",
            )
        self.changes = 0
        """How many have been taken."""
        self._plan = plan
        self._schema = pa.schema(list(schema)[2 : 2 + len(plan.shown)])
        keys = order_of(plan)
        self._place = None if keys is None else place_of(keys, Context())
        self._rows: dict[object, list[Any]] = {}

    def copy(self) -> Standing:
        """The same rows, on their own."""
        found = copy(self)
        found._rows = {key: list(held) for key, held in self._rows.items()}
        return found

    def take(self, changes: pa.Table, until: int | None = None) -> None:
        """Take the next changes of the answer, with hidden columns; those after an instant, in ticks, are left out."""
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
        """The rows in the order that the query asks for; where it asks for none, those first that came first."""
        rows = [row for row, times in self._rows.values() for _ in range(times)]
        if (place := self._place) is not None:
            rows.sort(key=lambda row: (place(row), order_keys(row)))
        columns = [to_arrow([row[i] for row in rows], field.type) for i, field in enumerate(self._plan.shown)]
        return pa.table(columns, schema=with_zone(self._schema, None)).cast(self._schema)
