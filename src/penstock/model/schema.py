"""Columns, and what every element has besides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.model.types import DataType


@dataclass(frozen=True)
class Field:
    """A column of a schema."""

    name: str
    type: DataType


Schema = tuple[Field, ...]
Clock = Literal["timestamp", "ticks"]
HIGHEST_PRIORITY = 2**53
"""More makes no difference."""


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of rows with these columns."""
    return pa.schema([pa.field(f.name, f.type.arrow) for f in schema])
