"""The CRC-32 of each of many texts, as ``zlib.crc32`` gives it."""

from __future__ import annotations

import zlib

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.delta import Ints

_BYTES = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_ENDS = nb.types.Array(nb.int64, 1, "C", readonly=True)
_TABLE = np.array([zlib.crc32(bytes([i ^ 0xFF])) ^ 0xFF000000 for i in range(256)], np.uint32)
"""What a byte alone makes of the checksum."""


@nb.njit(nb.uint64[::1](_BYTES, _ENDS), nogil=True, cache=True)
def _crc32(data: npt.NDArray[np.uint8], ends: Ints) -> npt.NDArray[np.uint64]:
    result = np.empty(len(ends) - 1, np.uint64)
    for i in range(len(result)):
        crc = np.uint32(0xFFFFFFFF)
        for at in range(ends[i], ends[i + 1]):
            crc = np.uint32(crc >> np.uint32(8)) ^ _TABLE[(crc ^ data[at]) & np.uint32(0xFF)]
        result[i] = crc ^ np.uint32(0xFFFFFFFF)
    return result


def crc32_each(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """Of each text or byte string in an array; of a NULL, any."""
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    _, ends, data = texts.buffers()
    if ends is None:
        return np.zeros(len(texts), np.uint64)
    ends = np.frombuffer(ends, np.int64 if wide else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return _crc32(content, ends.astype(np.int64))
