"""Messages as record batches, and back: only the rows are written, the rest of a message stays in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.message import Data
from penstock.model.delta import Arrivals, Delta, Ints
from penstock.model.schema import Schema

_OPTIONAL = ("priority", "end")


def batch_of(data: Data) -> pa.RecordBatch:
    """Rows as one batch: the columns by their place, then instants and what else rows have."""
    names = [f"c{i}" for i in range(len(data.columns))]
    arrays = list(data.columns)
    further = ("ts", "sub", "sign", "moment_ts", "moment_sub") if isinstance(data, Delta) else ("ts", "sub")
    for name in (*further, *_OPTIONAL):
        column = getattr(data, name, None)
        if column is not None:
            names.append(name)
            arrays.append(pa.array(column))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def data_of(batch: pa.RecordBatch, schema: Schema) -> Data:
    """The rows of a batch."""
    names = batch.schema.names
    count = names.index("ts")
    columns = tuple(batch.columns[:count])
    more: dict[str, Any] = {name: _numbers(batch.column(i + count)) for i, name in enumerate(names[count:])}
    return Delta(schema, columns, **more) if "sign" in more else Arrivals(schema, columns, **more)


def _numbers(column: pa.Array) -> Ints | npt.NDArray[np.int8]:
    found: Ints = column.to_numpy()
    return found
