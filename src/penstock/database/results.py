"""What a statement gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.database.query import Query
from penstock.io.table_text import table_text
from penstock.model.shown import as_html, as_text


@dataclass(frozen=True)
class Result:
    """What a statement gave: a line for people, and a table or a query where there is one.

    ``note``: what people should know besides. ``script``: what all statements of the text gave, this the last.
    """

    kind: Literal["done", "table", "query"]
    message: str
    table: pa.Table | None = None
    query: Query | None = None
    note: str | None = None
    script: tuple[Result, ...] = ()

    def __str__(self) -> str:
        if self.table is not None:
            return table_text(self.table).rstrip("\n")
        return "\n".join(filter(None, (self.message, self.note)))

    _repr_pretty_ = as_text
    _repr_html_ = as_html


def query_started(query: Query) -> Result:
    """What a statement that registers a query gives."""
    return Result("query", f"query {query.name} started", query=query, note=query.note)
