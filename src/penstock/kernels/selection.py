"""Some of the rows of a batch: the same rows are taken from many columns, so how to take them is found out once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Data = npt.NDArray[Any]

# So few rows are taken by mask faster than the places of those that stay are found.
_FEW = 256


class Selection:
    """The rows where ``mask`` is set; ``count`` of them."""

    __slots__ = ("_arrow", "_indices", "count", "mask")

    def __init__(self, mask: Bools, count: int | None = None) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask)) if count is None else count
        self._indices: Data | None = None
        self._arrow: pa.Array | None = None

    def of(self, values: Data) -> Data:
        """These rows of an array."""
        if len(values) < _FEW:
            return values[self.mask]
        if self._indices is None:
            self._indices = self.mask.nonzero()[0]
        return values.take(self._indices)

    def of_arrow(self, array: pa.Array) -> pa.Array:
        """These rows of an Arrow array."""
        if self._arrow is None:
            self._arrow = pa.array(self.mask)
        return array.filter(self._arrow)

    def narrowed(self, further: Selection) -> Selection:
        """Of these rows, only the further ones."""
        mask = self.mask.copy()
        mask[self.mask] = further.mask
        return Selection(mask, further.count)
