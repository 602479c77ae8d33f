"""From the values of ``PRIORITY BY`` to priorities."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.delta import Ints
from penstock.model.schema import HIGHEST_PRIORITY as HIGHEST


def priority_of(value: object) -> int:
    """That of one value."""
    if not isinstance(value, int | float | Decimal) or value != value or value <= 0:
        return 0
    return int(min(value, HIGHEST))


def priorities_of(values: pa.Array) -> Ints:
    """Whole numbers, what is behind the point cut off; NULL, NaN and what is below 0 is 0."""
    if values.null_count == len(values):
        return np.zeros(len(values), np.int64)
    if pa.types.is_boolean(values.type) or pa.types.is_integer(values.type):
        found = pc.fill_null(values, False if pa.types.is_boolean(values.type) else 0)
        numbers = found.cast(pa.int64()).to_numpy(zero_copy_only=False)
    else:
        known = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        numbers = np.nan_to_num(known, nan=0.0, posinf=HIGHEST, neginf=0.0)
        numbers = np.clip(numbers, 0, HIGHEST).astype(np.int64)
    return np.asarray(np.clip(numbers, 0, HIGHEST), np.int64)
