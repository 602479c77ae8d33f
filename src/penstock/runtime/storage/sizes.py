"""What a message takes in memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.message import Data
from penstock.model.delta import Delta

MESSAGE = 512
"""What a message takes besides its rows, and what is kept in memory of one that is on disk: about so many bytes."""
COLUMN = 768
"""What a column of a message takes besides its values."""
ARRIVAL, CHANGE = 24, 33
"""Bytes of a row besides its columns: instant and priority, or instant, moment and sign."""


class Measure:
    """What messages of one sender take in memory, quickly: only columns of values of different length are looked at."""

    __slots__ = ("_columns", "_fixed", "_known", "_varying")

    def __init__(self) -> None:
        self._known: object = None
        self._columns = self._fixed = 0
        self._varying: tuple[int, ...] = ()

    def __call__(self, data: Data) -> int:
        """Bytes."""
        if data.schema is not self._known:
            self._learn(data)
        rows = len(data.ts)
        found = self._columns + self._fixed * rows
        if rows:
            for i in self._varying:
                found += data.columns[i].nbytes
        return found

    def _learn(self, data: Data) -> None:
        fixed, varying = CHANGE if isinstance(data, Delta) else ARRIVAL, []
        for i, column in enumerate(data.columns):
            if _is_fixed(column.type):
                fixed += max(column.type.bit_width // 8, 1)
            else:
                varying.append(i)
        self._known, self._fixed, self._varying = data.schema, fixed, tuple(varying)
        self._columns = MESSAGE + COLUMN * len(data.columns)


def row_bytes(data: Data) -> int:
    """About what rows take that overtake; the same whenever it is asked, and for the parts as for the whole."""
    found = len(data.ts) * (2 * CHANGE + 16 * len(data.columns))
    for column in data.columns:
        if not _is_fixed(column.type):
            found += _length(column)
    return found


def _length(column: pa.Array) -> int:
    """What varies in a column: the letters of texts, the values of arrays."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        values = column.flatten()
        return 16 * len(values) + (0 if _is_fixed(values.type) else _length(values))
    if pa.types.is_null(column.type):
        return 0
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _is_fixed(type: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type) or pa.types.is_decimal(type))
