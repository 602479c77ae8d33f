"""Walking changes and master instants side by side; both are sorted."""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.model.delta import Ints, Signs


@njit(nogil=True, cache=True)
def masters_before(
    ts: Ints, sub: Ints, sign: Signs, moment_ts: Ints, master_ts: Ints, master_sub: Ints
) -> tuple[Ints, bool, bool]:
    """For each change, how many master instants lie before it.

    Also whether all rows that leave came before the first that enters, so that none of them came in these changes, and
    whether those that go to one master stand with the leaving ones first already.
    """
    result = np.empty(len(ts), np.int64)
    m = 0
    last_left, first_came = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    ordered = True
    for i in range(len(ts)):
        while m < len(master_ts) and (master_ts[m] < ts[i] or (master_ts[m] == ts[i] and master_sub[m] < sub[i])):
            m += 1
        result[i] = m
        if sign[i] < 0:
            last_left = max(last_left, moment_ts[i])
            if i > 0 and result[i - 1] == m and sign[i - 1] > 0:
                ordered = False
        else:
            first_came = min(first_came, moment_ts[i])
    return result, last_left < first_came, ordered


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
def counts_until(ts: Ints, sub: Ints, master_ts: Ints, master_sub: Ints) -> Ints:
    """For each master instant, how many rows are not after it."""
    result = np.empty(len(master_ts), np.int64)
    n = 0
    for m in range(len(master_ts)):
        while n < len(ts) and (ts[n] < master_ts[m] or (ts[n] == master_ts[m] and sub[n] <= master_sub[m])):
            n += 1
        result[m] = n
    return result


@njit(nogil=True, cache=True)
def first_above(bounds: Ints, start: int, stop: int) -> Ints:
    """For each number from ``start`` to before ``stop``, how many of the ascending bounds are not above it."""
    result = np.empty(stop - start, np.int64)
    n = 0
    for i in range(start, stop):
        while n < len(bounds) and bounds[n] <= i:
            n += 1
        result[i - start] = n
    return result


@njit(nogil=True, cache=True)
def counts_not_after(ts: Ints, last: Ints) -> Ints:
    """For each of some times, which ascend, how many rows are not after it."""
    result = np.empty(len(last), np.int64)
    n = 0
    for i in range(len(last)):
        while n < len(ts) and ts[n] <= last[i]:
            n += 1
        result[i] = n
    return result
