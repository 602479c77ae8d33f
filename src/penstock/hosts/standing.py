"""The rows of an answer as it stands, put together from its changes."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

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


class Sum(NamedTuple):
    """Changes as they were at one time, in order: columns, and ``sign``, which is how often a row comes, or goes."""

    first: int = 0
    """The number of the first of them. What they add up to gets numbers of its own, behind all others."""
    length: int = 0
    tables: tuple[pa.Table, ...] = ()
    upto: int = 0
    """The position of the first result that is not among them."""

    def rows(self, start: int, stop: int) -> pa.Table:
        """The changes with these numbers."""
        return pa.concat_tables(self.tables).slice(start - self.first, stop - start)


class Standing:
    """Changes are kept as they come and added up when the answer is asked for, or when they are more than twice the
    answer. One thread at a time puts changes in; ``sum`` may be read by others meanwhile."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        keys = order_of(plan)
        self._place = None if keys is None else place_of(keys, Context())
        self.sum = Sum()
        """What has been put in, as far as it has not been added up; another object whenever that changes."""
        self._bytes = 0
        self._least = 0, 0
        """How many there were, and their bytes, when they had last been added up."""

    def restored(self, saved: Sum) -> None:
        """Be what this was the sum of."""
        self.sum, self._bytes = saved, sum(table.nbytes for table in saved.tables)
        self._least = saved.length, self._bytes

    def copy(self) -> Standing:
        """The same rows, on their own."""
        return copy(self)

    def put(self, changes: pa.Table, until: int | None = None, upto: int = 0) -> None:
        """The next changes of the answer, with hidden columns; those after an instant, in ticks, are left out.
        ``upto``: the position after them."""
        if until is not None:
            changes = changes.filter(pc.less_equal(changes["ts"].cast(pa.int64()), until))
        if not changes.num_rows:
            self.sum = self.sum._replace(upto=upto)
            return
        sign = pc.if_else(pc.equal(changes["op"], "+"), 1, -1).cast(pa.int64())
        columns = changes.columns[2 : 2 + len(self._plan.schema)]
        names = [f"c{i}" for i in range(len(columns))]
        table = pa.table([*columns, sign], names=[*names, "sign"])
        first, length, tables, _ = self.sum
        if len(tables) >= _TABLES:
            tables = (pa.concat_tables(tables).combine_chunks(),)
        found = Sum(first, length + table.num_rows, (*tables, table), upto)
        self._bytes += table.nbytes
        rows, bytes = self._least
        if found.length > _TOGETHER + 2 * rows or self._bytes > _BYTES + 2 * bytes:
            found = self._added_up(found)
        self.sum = found

    def _added_up(self, found: Sum) -> Sum:
        """Without what came and went."""
        together = pa.concat_tables(found.tables)
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
        self._bytes = together.nbytes
        self._least = together.num_rows, self._bytes
        return Sum(found.first + found.length, together.num_rows, (together,), found.upto)

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
        held = self._held(pa.concat_tables(self.sum.tables)) if self.sum.tables else []
        rows = [row for row, times in held for _ in range(times)]
        if (place := self._place) is not None:
            rows.sort(key=lambda row: (place(row), order_keys(row)))
        shown = self._plan.shown
        columns = [to_arrow([row[i] for row in rows], field.type) for i, field in enumerate(shown)]
        return pa.table(columns, schema=arrow_schema(shown))
