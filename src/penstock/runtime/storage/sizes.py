"""What a message takes in memory."""

from __future__ import annotations

import pyarrow as pa

from penstock.delta import Delta
from penstock.graph.message import Data

MESSAGE = 512
"""What a message takes besides its rows, and what is kept in memory of one that is on disk: about so many bytes."""
COLUMN = 768
"""What a column of a message takes besides its values."""
ARRIVAL, CHANGE = 24, 33
"""Bytes of a row besides its columns: instant and priority, or instant, moment and sign."""


FEW = 256
"""Rows of a message that is worth measuring by itself."""
EVERY = 32
"""Of so many small messages one is measured; what varies in the others is taken to be the same for each row."""


class Measure:
    """What messages of one sender take in memory, quickly: only columns of values of different length are looked at."""

    __slots__ = ("_average", "_columns", "_count", "_fixed", "_known", "_varying")

    def __init__(self) -> None:
        self._known: object = None
        self._columns = self._fixed = self._count = 0
        self._varying: tuple[int, ...] = ()
        self._average = 0.0

    def __call__(self, data: Data) -> int:
        """Bytes."""
        if data.schema is not self._known:
            self._learn(data)
        rows = len(data.ts)
        found = self._columns + self._fixed * rows
        return found + self._vary(data, rows) if self._varying and rows else found

    def _vary(self, data: Data, rows: int) -> int:
        self._count -= 1
        if rows < FEW and self._count > 0:
            return int(self._average * rows)
        self._count = EVERY
        found = sum([int(data.columns[i].nbytes) for i in self._varying])
        self._average = found / rows
        return found

    def _learn(self, data: Data) -> None:
        fixed, varying = CHANGE if isinstance(data, Delta) else ARRIVAL, []
        for i, column in enumerate(data.columns):
            if _is_fixed(column.type):
                fixed += max(column.type.bit_width // 8, 1)
            else:
                varying.append(i)
        self._known, self._fixed, self._varying = data.schema, fixed, tuple(varying)
        self._columns, self._count = MESSAGE + COLUMN * len(data.columns), 0


def row_bytes(data: Data) -> int:
    """About what rows take that overtake; the same whenever it is asked, and for the parts as for the whole."""
    return len(data.ts) * (2 * CHANGE + 16 * len(data.columns))


def _is_fixed(type: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type) or pa.types.is_decimal(type))
