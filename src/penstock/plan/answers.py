"""The answers of a query as a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.model.names import unique_names
from penstock.plan.nodes import Query


def answer_schema(plan: Query) -> pa.Schema:
    """The Arrow schema of a query's answers: ts, op, then the columns, hidden ones too, under unique names."""
    clock: Any = pa.int64() if plan.clock == "ticks" else pa.timestamp("us")
    names = unique_names([f.name for f in plan.schema], taken=("ts", "op"), exact=[True] * len(plan.schema))
    columns = [pa.field(n, f.type.arrow) for n, f in zip(names, plan.schema, strict=True)]
    return pa.schema([pa.field("ts", clock), pa.field("op", pa.string()), *columns])
