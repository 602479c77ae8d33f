"""What a statement gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.io.table_text import table_text
from penstock.query import Query
from penstock.shown import as_text


@dataclass(frozen=True)
class Result:
    """What a statement gave: a line for people, and a table or a query where there is one."""

    kind: Literal["done", "table", "query"]
    message: str
    table: pa.Table | None = None
    query: Query | None = None

    def __str__(self) -> str:
        return self.message if self.table is None else table_text(self.table).rstrip("\n")

    _repr_pretty_ = as_text

    def _repr_html_(self) -> str:
        from penstock.notebook import html

        return html.result(self)
