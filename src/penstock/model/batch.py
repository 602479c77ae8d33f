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

_FEW = 1024
"""Rows of which a second copy may stay in memory, where the table has them in several pieces."""


@dataclass(slots=True, eq=False)
class Batch:
    """Rows of one stream in order of (ts, arrival), with what every element has."""

    schema: Schema
    table: pa.Table
    ts: np.ndarray[Any, np.dtype[np.int64]]
    arrival: np.ndarray[Any, np.dtype[np.int64]]
    priority: np.ndarray[Any, np.dtype[np.int64]] | None = None
    _columns: tuple[pa.Array, ...] | None = field(default=None, init=False, repr=False)

    @property
    def columns(self) -> tuple[pa.Array, ...]:
        """The columns of the table, each in one piece. Of a few rows they are looked up once."""
        # Not by to_batches: it lets go of the interpreter, and to get it back takes long where others are at work.
        found = self._columns
        if found is None:
            whole = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in self.table.columns]
            found = tuple(whole)
            if len(self.ts) <= _FEW:
                self._columns = found
        return found

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
