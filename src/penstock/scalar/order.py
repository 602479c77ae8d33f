"""The value order (NULL first, then ascending, NaN greatest) and equality as used for keys."""

from __future__ import annotations

from enum import Enum


class _Special(Enum):
    NAN = "NaN"


NAN = _Special.NAN
"""What ``hashable`` makes of NaN."""

OrderKey = tuple[object, ...]


def order_key(value: object) -> OrderKey:
    """A tuple that sorts as the value does; strings go by code point, arrays element by element."""
    if value is None:
        return (0,)
    if isinstance(value, float) and value != value:
        return (2,)
    if isinstance(value, tuple):
        return (1, tuple(order_key(v) for v in value))
    return (1, value)


def compare(left: object, right: object) -> int:
    """-1, 0 or 1 in the value order; -0.0 and 0.0 are the same, and so are two NaN."""
    a, b = order_key(left), order_key(right)
    return 0 if a == b else -1 if a < b else 1


def hashable(value: object) -> object:
    """A dict key that is equal for equal values: NaN = NaN, -0.0 = 0.0, also inside arrays and rows."""
    if isinstance(value, float):
        return _Special.NAN if value != value else value
    if isinstance(value, tuple):
        return tuple(hashable(v) for v in value)
    return value
