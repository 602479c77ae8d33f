"""Several runs of changes, each in order, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.delta import Ints

T = TypeVar("T", bound=np.generic)
_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_SIGNS = nb.types.Array(nb.int8, 1, "C", readonly=True)


@nb.njit(nb.int64[::1](_READ, _READ, _SIGNS, _READ), nogil=True, cache=True)
def places(ts: Ints, sub: Ints, sign: npt.NDArray[np.int8], ends: Ints) -> Ints:
    """Where each row of runs, laid end to end, stands when they are sorted by instant; rows that leave first, otherwise
    as given.

    ``ends``: where each run ends. Each must be in order by ``ts`` and ``sub``.
    """
    runs = len(ends)
    heads = np.zeros(runs, np.int64)
    for r in range(1, runs):
        heads[r] = ends[r - 1]
    result = np.empty(len(ts), np.int64)
    for at in range(len(ts)):
        best = -1
        for r in range(runs):
            i = heads[r]
            if i == ends[r]:
                continue
            if best < 0:
                best = r
                continue
            j = heads[best]
            if ts[i] < ts[j] or (ts[i] == ts[j] and (sub[i] < sub[j] or (sub[i] == sub[j] and sign[i] < sign[j]))):
                best = r
        result[heads[best]] = at
        heads[best] += 1
    return result


def end_to_end(runs: Sequence[npt.NDArray[Any]], kind: type[T]) -> npt.NDArray[T]:
    """The values of runs, one run behind the other."""
    found: npt.NDArray[T] = np.concatenate(runs, out=_room(sum(map(len, runs)), kind))
    return found


def _room(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array for many values, in pages of the usual size: numpy asks the system for large ones, and on a virtual
    machine the system took longer to find them than ``put`` takes to fill them."""
    kind = np.dtype(dtype)
    return np.frombuffer(pa.allocate_buffer(count * kind.itemsize, memory_pool=pa.system_memory_pool()), kind)


def put(runs: Sequence[npt.NDArray[T]], where: Ints) -> npt.NDArray[T]:
    """The values of runs at the places that ``places`` gave."""
    found = _room(len(where), runs[0].dtype)
    start = 0
    for run in runs:
        found[where[start : start + len(run)]] = run
        start += len(run)
    return found
