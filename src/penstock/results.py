"""What a statement gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.query import Query


@dataclass(frozen=True)
class Result:
    """What a statement gave: a line for people, and a table or a query where there is one."""

    kind: Literal["done", "table", "query"]
    message: str
    table: pa.Table | None = None
    query: Query | None = None
