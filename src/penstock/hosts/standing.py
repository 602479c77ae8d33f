"""The rows of an answer as it stands, put together from its changes."""

from __future__ import annotations

from copy import copy
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.schema import arrow_schema
from penstock.model.values import to_arrow, to_rows
from penstock.operators.evaluation import order_keys
from penstock.operators.topn import place_of
from penstock.plan.nodes import Query as Plan
from penstock.plan.order import order_of
from penstock.scalar import Context, hashable

_TOGETHER = 1 << 16
"""Changes that may wait to be added up, besides twice the rows of the answer."""
_BYTES = 8 << 20
"""Bytes of such changes, besides twice those of the answer."""
_TABLES = 64
"""Tables that are kept apart; more are put together."""


class Standing:
    """Changes are kept as they come and added up when somebody looks, or when they are more than twice the answer."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        keys = order_of(plan)
        self._place = None if keys is None else place_of(keys, Context())
        self._changes: list[pa.Table] = []
        """Columns, and ``sign``: how often a row comes, or goes."""
        self._content: object = None
        self._count = 0
        self._bytes = 0
        self._least = 0, 0
        """How many there were, and their bytes, when they had last been added up."""

    @property
    def content(self) -> object:
        """Another object whenever the changes are others."""
        return self._content

    def changes(self) -> pa.Table:
        """What it has been given, as far as that has not been added up."""
        if not self._changes:
            return pa.table({})
        return pa.concat_tables(self._changes)

    def restored(self, changes: pa.Table) -> object:
        """Be what ``changes`` was of; gives its ``content``."""
        if changes.num_columns:
            self._add(changes)
            self._least = self._count, self._bytes
        return self._content

    def copy(self) -> Standing:
        """The same rows, on their own."""
        found = copy(self)
        found._changes = list(self._changes)
        return found

    def put(self, changes: pa.Table, until: int | None = None) -> None:
        """The next changes of the answer, with hidden columns; those after an instant, in ticks, are left out."""
        if until is not None:
            changes = changes.filter(pc.less_equal(changes["ts"].cast(pa.int64()), until))
        if not changes.num_rows:
            return
        sign = pc.if_else(pc.equal(changes["op"], "+"), 1, -1).cast(pa.int64())
        columns = changes.columns[2 : 2 + len(self._plan.schema)]
        names = [f"c{i}" for i in range(len(columns))]
        self._add(pa.table([*columns, sign], names=[*names, "sign"]))
        rows, bytes = self._least
        if self._count > _TOGETHER + 2 * rows or self._bytes > _BYTES + 2 * bytes:
            self._add_up()

    def _add(self, table: pa.Table) -> None:
        if len(self._changes) >= _TABLES:
            self._changes = [pa.concat_tables(self._changes).combine_chunks()]
        self._changes.append(table)
        self._content = table
        self._count += table.num_rows
        self._bytes += table.nbytes

    def _add_up(self) -> None:
        """Leave out what came and went."""
        together = pa.concat_tables(self._changes)
        names = together.column_names[:-1]
        try:
            numbered = together.append_column("number", pa.array(range(together.num_rows), pa.int64()))
            summed = numbered.group_by(names, use_threads=False).aggregate([("sign", "sum"), ("number", "min")])
        except pa.ArrowNotImplementedError:  # lists are no keys to Arrow
            together = self._counted(together)
        else:
            left = summed.filter(pc.not_equal(summed["sign_sum"], 0)).sort_by("number_min")
            together = left.select([*names, "sign_sum"]).rename_columns([*names, "sign"])
        together = together.combine_chunks()
        self._changes, self._count, self._bytes = [together], together.num_rows, together.nbytes
        self._content = together
        self._least = self._count, self._bytes

    def _counted(self, together: pa.Table) -> pa.Table:
        held = self._held(together)
        columns = [to_arrow([row[i] for row, _ in held], f.type) for i, f in enumerate(self._plan.schema)]
        return pa.table([*columns, pa.array([times for _, times in held], pa.int64())], names=together.column_names)

    def _held(self, changes: pa.Table) -> list[list[Any]]:
        """Each row and how often it is there, those first that came first."""
        found: dict[object, list[Any]] = {}
        rows = to_rows(changes.select(range(changes.num_columns - 1)), self._plan.schema)
        for times, row in zip(changes["sign"].to_pylist(), rows, strict=True):
            key = hashable(row)
            held = found.setdefault(key, [row, 0])
            held[1] += times
            if not held[1]:
                del found[key]
        return list(found.values())

    def table(self) -> pa.Table:
        """The rows in the order that the query asks for; where it asks for none, those first that came first."""
        held = self._held(pa.concat_tables(self._changes)) if self._changes else []
        rows = [row for row, times in held for _ in range(times)]
        if (place := self._place) is not None:
            rows.sort(key=lambda row: (place(row), order_keys(row)))
        shown = self._plan.shown
        columns = [to_arrow([row[i] for row in rows], field.type) for i, field in enumerate(shown)]
        return pa.table(columns, schema=arrow_schema(shown))
