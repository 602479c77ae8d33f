"""What windows need row by row: what enters and leaves in one order, and the rows of each key as chains."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from penstock.model.delta import Ints

Numbers = npt.NDArray[np.int32]

_LAST, _GONE = -1, -2
_FEWEST = 1024


_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)


@nb.njit(nb.int64[::1](_READ, _READ), nogil=True, cache=True)
def order(entering: Ints, leaving: Ints) -> Ints:
    """The order that sorts ``leaving`` and then ``entering``, laid end to end.

    Both ascend and say when; what leaves goes before what enters at the same time.
    """
    n, m = len(leaving), len(entering)
    result = np.empty(n + m, np.int64)
    i = j = 0
    for at in range(n + m):
        if i < n and (j == m or leaving[i] <= entering[j]):
            result[at] = i
            i += 1
        else:
            result[at] = n + j
            j += 1
    return result


@nb.njit(nb.int64(_READ, nb.int64, nb.int64, nb.int32[:, ::1], nb.int32[::1], nb.int64[::1]), nogil=True, cache=True)
def _link(codes: Ints, size: int, first: int, ends: Numbers, following: Numbers, pushed: Ints) -> int:
    """Hang rows ``first``, … on the chains of their keys; ``pushed`` is the row that each pushes out, or -1."""
    out = 0
    for i in range(len(codes)):
        key, row = codes[i], np.int32(first + i)
        following[row] = _LAST
        if ends[key, 2] > 0:
            following[ends[key, 1]] = row
        else:
            ends[key, 0] = row
        ends[key, 1] = row
        if ends[key, 2] == size:
            oldest = ends[key, 0]
            ends[key, 0] = following[oldest]
            following[oldest] = _GONE
            pushed[i] = oldest
            out += 1
        else:
            ends[key, 2] += 1
            pushed[i] = -1
    return out


class Chains:
    """Up to ``size`` rows of each key; twelve bytes a key and four a row."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ends = np.zeros((_FEWEST, 3), np.int32)  # of each key: first row, last row, rows
        self._following = np.zeros(_FEWEST, np.int32)
        self._rows = 0
        self.gone = 0

    def add(self, codes: Ints, keys: int) -> Ints:
        """The next rows, by the codes of their keys, all below ``keys``; the row each pushes out, or -1."""
        if keys > len(self._ends):
            more = np.zeros((max(keys, 2 * len(self._ends)) - len(self._ends), 3), np.int32)
            self._ends = np.concatenate([self._ends, more])
        rows = self._rows + len(codes)
        if rows > len(self._following):
            longer = np.zeros(max(rows, len(self._following) + len(self._following) // 2), np.int32)
            longer[: self._rows] = self._following[: self._rows]
            self._following = longer
        pushed = np.empty(len(codes), np.int64)
        self.gone += _link(codes, self._size, self._rows, self._ends, self._following, pushed)
        self._rows = rows
        return pushed

    def compact(self) -> Ints:
        """Number the rows that are left from 0; what their numbers were."""
        following = self._following[: self._rows]
        (keep,) = np.nonzero(following != _GONE)
        number = np.empty(self._rows + 1, np.int32)
        number[keep] = np.arange(len(keep), dtype=np.int32)
        number[-1] = _LAST  # the number of _LAST
        self._following = number[following[keep]]
        used = self._ends[:, 2] > 0
        self._ends[used, :2] = number[self._ends[used, :2]]
        self._rows, self.gone = len(keep), 0
        return keep

    @property
    def nbytes(self) -> int:
        return self._ends.nbytes + self._following.nbytes
