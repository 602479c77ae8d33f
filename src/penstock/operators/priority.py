"""The priority of a row that is made of two."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.delta import Ints

_COMBINED: Mapping[str, Callable[[Ints, Ints], Ints]] = {"max": np.maximum, "min": np.minimum, "sum": np.add}
_COMBINED_ONE: Mapping[str, Callable[[int, int], int]] = {"max": max, "min": min, "sum": lambda a, b: a + b}


def combined(how: str, left: Ints | None, right: Ints | None, count: int) -> Ints | None:
    """The priorities of so many pairs; None stands for rows without any."""
    if left is None and right is None:
        return None
    none = np.zeros(count, np.int64)
    return _COMBINED[how](none if left is None else left, none if right is None else right)


def combined_one(how: str, left: int, right: int) -> int:
    """The priority of one pair."""
    return _COMBINED_ONE[how](left, right)
