"""Cutting and joining batches of elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.model.delta import Arrivals, priorities
from penstock.model.schema import Schema


def sliced(arrivals: Arrivals, start: int, stop: int) -> Arrivals:
    """The elements from ``start`` to before ``stop``, without copying."""
    priority = None if arrivals.priority is None else arrivals.priority[start:stop]
    columns = tuple(c.slice(start, stop - start) for c in arrivals.columns)
    return Arrivals(arrivals.schema, columns, arrivals.ts[start:stop], arrivals.sub[start:stop], priority)


def joined(schema: Schema, parts: Sequence[Arrivals]) -> Arrivals:
    """Arrivals one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.empty(0, np.int64)
        return Arrivals(schema, tuple(pa.array([], f.type.arrow) for f in schema), none, none)
    columns = tuple(pa.concat_arrays([p.columns[i] for p in parts]) for i in range(len(schema)))
    ts = np.concatenate([p.ts for p in parts])
    return Arrivals(schema, columns, ts, np.concatenate([p.sub for p in parts]), priorities(parts))
