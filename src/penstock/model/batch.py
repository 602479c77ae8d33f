"""Rows of a stream on their way to queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.model.schema import Schema

Instant = int | float
"""Ticks, or ±infinity."""


@dataclass(slots=True, eq=False)
class Batch:
    """Rows of one stream in order of (ts, arrival), with what every element has."""

    schema: Schema
    table: pa.Table
    ts: np.ndarray[Any, np.dtype[np.int64]]
    arrival: np.ndarray[Any, np.dtype[np.int64]]
    priority: np.ndarray[Any, np.dtype[np.int64]] | None = None
    columns: tuple[pa.Array, ...] | None = field(default=None, init=False, repr=False)
    """Those of the table, each in one piece, once ``graph.sources.whole_columns`` has looked them up."""

    def __len__(self) -> int:
        return len(self.ts)

    def slice(self, start: int, length: int) -> Batch:
        """Rows one after the other."""
        stop = start + length
        priority = None if self.priority is None else self.priority[start:stop]
        table = self.table.slice(start, length)
        return Batch(self.schema, table, self.ts[start:stop], self.arrival[start:stop], priority)

    def take(self, indices: np.ndarray[Any, Any]) -> Batch:
        """The rows at these places."""
        priority = None if self.priority is None else self.priority[indices]
        return Batch(self.schema, self.table.take(pa.array(indices)), self.ts[indices], self.arrival[indices], priority)


def concat(batches: Sequence[Batch]) -> Batch:
    """Batches one after the other."""
    priority = None
    if any(b.priority is not None for b in batches):
        parts = [b.priority if b.priority is not None else np.zeros(len(b), np.int64) for b in batches]
        priority = np.concatenate(parts)
    return Batch(
        batches[0].schema,
        pa.concat_tables([b.table for b in batches]),
        np.concatenate([b.ts for b in batches]),
        np.concatenate([b.arrival for b in batches]),
        priority,
    )
