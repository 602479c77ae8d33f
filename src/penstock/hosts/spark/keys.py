"""The shard of a row: a hash of its key that is the same in every process, release and machine.

Equal as keys means the same hash: NULL and NULL, NaN and NaN, -0.0 and 0.0. Columns that are compared have one type,
so nothing is promised across types.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.checksums import crc32_each
from penstock.scalar import hashable

Hashes = npt.NDArray[np.uint64]
_NULL = np.uint64(0x9E3779B97F4A7C15)


def shard_of(columns: Sequence[pa.Array], shards: int) -> npt.NDArray[np.int64]:
    """The shard of each row, from the columns of its key."""
    hashes = _hash(columns[0])
    for column in columns[1:]:
        hashes = _mixed(hashes * np.uint64(31) + _hash(column))
    return (hashes % np.uint64(shards)).astype(np.int64)


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of the input decides about every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash(column: pa.Array) -> Hashes:
    hashes = _values(column)
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _values(column: pa.Array) -> Hashes:
    t = column.type
    if pa.types.is_floating(t):
        numbers = pc.fill_null(column, 0.0).cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        return _mixed(np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64))
    if pa.types.is_integer(t) or pa.types.is_boolean(t):
        return _mixed(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64))
    if pa.types.is_temporal(t):
        counted = column.view(pa.int32() if t.bit_width == 32 else pa.int64())
        return _values(counted)
    if pa.types.is_nested(t):
        texts = [repr(hashable(_tuple(v))).encode() for v in column.to_pylist()]
        return _mixed(np.fromiter(map(zlib.crc32, texts), np.uint64, len(texts)))
    return _mixed(crc32_each(column.cast(pa.string()) if pa.types.is_decimal(t) else column))


def _tuple(value: object) -> object:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
