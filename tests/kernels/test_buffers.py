"""Columns that are put together without Arrow's own kernels."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.kernels.buffers import in_turns


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, 2, 3]), pa.array([4, 5, 6])),
        (pa.array([0, 1, 2, 3]).slice(1), pa.array([4, 5, 6, 7]).slice(0, 3)),
        (pa.array([1, None, 3]), pa.array([4, 5, 6])),
        (pa.array([1.5, 2.5]), pa.array([float("inf"), None])),
        (pa.array(["a", None]), pa.array(["", "b"])),
        (pa.array([True, False]), pa.array([None, True])),
        (pa.array([1, 2], pa.int32()), pa.array([3, 4], pa.int32())),
        (pa.array([1, 2], pa.timestamp("us")), pa.array([3, 4], pa.timestamp("us"))),
    ],
)
def test_values_of_two_columns_in_turns(one: pa.Array, other: pa.Array) -> None:
    wanted = [value for pair in zip(one.to_pylist(), other.to_pylist(), strict=True) for value in pair]
    found = in_turns(one, other)
    found.validate(full=True)
    assert found.type == one.type
    assert found.to_pylist() == wanted
