"""Walking changes and master instants side by side; both are sorted."""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.delta import Ints, Signs


@njit(nogil=True, cache=True)
def masters_before(ts: Ints, sub: Ints, master_ts: Ints, master_sub: Ints) -> Ints:
    """For each change, how many master instants lie before it."""
    result = np.empty(len(ts), np.int64)
    m = 0
    for i in range(len(ts)):
        while m < len(master_ts) and (master_ts[m] < ts[i] or (master_ts[m] == ts[i] and master_sub[m] < sub[i])):
            m += 1
        result[i] = m
    return result


@njit(nogil=True, cache=True)
def leaving_first(target: Ints, sign: Signs, kept: Ints) -> Ints:
    """The kept changes in order of their target, those that leave before those that enter, otherwise as they were."""
    result = np.empty(len(kept), np.int64)
    n = start = 0
    while start < len(kept):
        stop = start
        while stop < len(kept) and target[kept[stop]] == target[kept[start]]:
            stop += 1
        for wanted in (-1, 1):
            for i in range(start, stop):
                if sign[kept[i]] == wanted:
                    result[n] = kept[i]
                    n += 1
        start = stop
    return result


@njit(nogil=True, cache=True)
def in_order(target: Ints, sign: Signs) -> bool:
    """Whether the changes of each target stand with those that leave first already."""
    for i in range(1, len(target)):  # noqa: SIM110 (compiled)
        if target[i] == target[i - 1] and sign[i] < sign[i - 1]:
            return False
    return True
