"""The rows of an answer as it stands, put together from its changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StateError
from penstock.plan.derive import is_monotonic
from penstock.plan.nodes import Query as Plan
from penstock.scalar.order import hashable
from penstock.values import with_zone


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
        self._shown = pa.schema(list(schema)[2:])
        # Python takes the same time of day before and after clocks are put back for equal: instants have no zone here.
        self._schema = with_zone(self._shown, None)
        self._rows: dict[object, list[Any]] = {}

    def take(self, changes: pa.Table, until: int | None = None) -> None:
        """Take the next changes of the answer; those after an instant, in ticks, are left out."""
        self.changes += changes.num_rows
        if until is not None:
            changes = changes.filter(pc.less_equal(changes["ts"].cast(pa.int64()), until))
        columns = [c.cast(t).to_pylist() for c, t in zip(changes.columns[2:], self._schema.types, strict=True)]
        rows = zip(*columns, strict=True) if columns else ((),) * changes.num_rows
        for op, row in zip(changes["op"].to_pylist(), rows, strict=True):
            key = hashable(_frozen(row))
            held = self._rows.setdefault(key, [row, 0])
            held[1] += 1 if op == "+" else -1
            if not held[1]:
                del self._rows[key]

    def table(self) -> pa.Table:
        """The rows, those first that have been there longest."""
        rows = [row for row, times in self._rows.values() for _ in range(times)]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.table(arrays, schema=self._schema).cast(self._shown)


def _frozen(value: Any) -> Any:
    """A value with its arrays as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
