"""The keys of a window join: what rows of both sides with equal keys have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels import join as kernel
from penstock.kernels.intern import Interner
from penstock.model.delta import Ints
from penstock.model.types import DataType, Kind
from penstock.scalar.expr import Column, Expr

_FEW = 1024
"""Room for more keys is given back when none is left."""


class JoinKeys:
    """Codes of keys, and for each code the newest row of each side; NULL is no key, and -1 its code.

    Bounded by the most keys that had rows at one time, until there are none; a key is forgotten with its last row.
    """

    def __init__(self, types: Sequence[DataType]) -> None:
        self._types = types
        self._interner = Interner(types, nulls_match=False)
        self.known: kernel.Keys = kernel.unknown(16)

    def encode(self, columns: Sequence[pa.Array], length: int) -> Ints:
        """The codes of rows that enter; there is room for what will be known of them."""
        codes = self._interner.encode(columns, length)
        have, needed = len(self.known), self._interner.capacity
        if needed > have:
            self.known = np.concatenate([self.known, kernel.unknown(max(needed, have + have // 8) - have)])
        return codes

    def lookup(self, columns: Sequence[pa.Array], length: int) -> Ints:
        """The codes of rows, -1 for keys that nobody has."""
        return self._interner.lookup(columns, length)

    def reserve(self, count: int) -> None:
        """Room for so many keys, before there are any."""
        self._interner.reserve(count)
        self.known = kernel.unknown(max(count, len(self.known)))

    @property
    def count(self) -> int:
        """How many keys there are."""
        return self._interner.live

    def column(self, codes: kernel.Slots, key: int) -> pa.Array:
        """The values of this column of the keys, NULL for -1."""
        return self._interner.decode(codes.astype(np.int64))[key]

    def release(self, cursor: Ints, dropped: Sequence[kernel.Slots]) -> None:
        """Forget those keys that wait, or whose rows were dropped, and that have no rows."""
        for codes in dropped:
            kernel.wait(codes, self.known, cursor)
        if cursor[kernel.FIRST] != kernel.NONE:
            gone = kernel.without_rows(self.known, cursor)
            if len(gone):
                self._interner.release(gone)

    def trim(self) -> None:
        """Give back what was needed for more keys, if there are none."""
        if self._interner.live == 0 and self._interner.capacity > _FEW:
            self._interner = Interner(self._types, nulls_match=False)
            self.known = kernel.unknown(16)

    @property
    def nbytes(self) -> int:
        return self._interner.nbytes + self.known.nbytes


def kept_by_key(keys: Sequence[Expr]) -> dict[int, int]:
    """Columns of a side that need not be kept because a column of the key, whose place is given, is the same.

    Equal doubles may be different ones, as 0.0 and -0.0 are.
    """
    found: dict[int, int] = {}
    for place, key in enumerate(keys):
        if isinstance(key, Column) and not key.type.is_float and key.type.kind is not Kind.NULL:
            found.setdefault(key.index, place)
    return found
