"""Checksums of texts in an array, against zlib's."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.checksums import crc32_each

TEXTS = st.lists(st.none() | st.text(max_size=12), max_size=8)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@given(values=TEXTS, skipped=st.integers(0, 3))
def test_each_is_that_of_zlib(kind: pa.DataType, values: list[str | None], skipped: int) -> None:
    texts = pa.array(values, pa.string()).cast(kind).slice(skipped)
    found = crc32_each(texts).tolist()
    assert len(found) == len(texts)
    for text, crc in zip(values[skipped:], found, strict=True):
        if text is not None:
            assert crc == zlib.crc32(text.encode())
