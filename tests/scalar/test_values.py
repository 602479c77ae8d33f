"""Arrow to plain values and back."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    REAL,
    STRING,
    TIMESTAMP,
    DataType,
    array,
    decimal,
)
from penstock.scalar import hashable, to_arrow, to_python


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (BOOLEAN, [True, None, False]),
        (INT, [2**31 - 1, None, -(2**31)]),
        (BIGINT, [2**63 - 1, None, -(2**63)]),
        (REAL, [0.5, None, math.nan]),
        (DOUBLE, [0.1, None, math.nan, math.inf, -0.0]),
        (decimal(5, 2), [Decimal("1.25"), None, Decimal("-999.99")]),
        (STRING, ["", None, "a😀"]),
        (BINARY, [b"", None, b"\xff"]),
        (DATE, [-1, None, 2**31 - 1]),
        (TIMESTAMP, [-1, None, 2**63 - 1]),
        (INTERVAL, [-1, None, 2**63 - 1]),
        (array(TIMESTAMP), [(1, None), None, (), (3,)]),
        (array(array(INT)), [((1,), None), None, ((),)]),
        (NULL, [None, None]),
        (array(STRING), []),
    ],
    ids=str,
)
def test_round_trip(dtype: DataType, values: list[object]) -> None:
    arrow = to_arrow(values, dtype)
    assert arrow.type == dtype.arrow
    assert hashable(tuple(to_python(arrow, dtype))) == hashable(tuple(values))
    assert hashable(tuple(to_python(arrow.slice(1), dtype))) == hashable(tuple(values[1:]))
    twice = to_python(pa.chunked_array([arrow, arrow]), dtype)
    assert hashable(tuple(twice)) == hashable((*values, *values))


def test_real_is_rounded_to_32_bits() -> None:
    assert to_python(to_arrow([0.1, 1e300], REAL), REAL) == [0.10000000149011612, math.inf]


def test_other_arrow_types_are_read() -> None:
    assert to_python(pa.array(["a", "b", "a"]).dictionary_encode(), STRING) == ["a", "b", "a"]
    zoned = pa.array([3_600_000], pa.timestamp("ms", "Europe/Berlin"))
    assert to_python(zoned, TIMESTAMP) == [3_600_000_000]
    assert to_python(pa.array([1], pa.int8()), INT) == [1]
