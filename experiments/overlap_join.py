"""The join of two streams in windows that overlap, each window answered as a whole.

Two ways of computing the same answers, to be compared. *Without reuse* every window is joined from scratch: its rows
are taken again, whether or not an earlier window had them. *With reuse* a row is taken once: the tables of rows by key
stay, less what is before the next window, and pairs of which both rows lie in a later window too are kept for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from experiments.overlap import take
from penstock.kernels.intern import Interner
from penstock.model.delta import Ints
from penstock.model.types import DataType
from penstock.plan.window import Generic

_NONE: Ints = np.empty(0, np.int64)


@dataclass
class Work:
    """What has been done: rows put into their table, lookups in the other one, and the most rows and pairs that were
    remembered at a time."""

    rows: int = 0
    probes: int = 0
    peak_rows: int = 0
    peak_pairs: int = 0


@dataclass(frozen=True)
class WindowPairs:
    """The pairs of one window, as row numbers of the left and the right stream, both from 0."""

    start: int
    end: int
    left: Ints
    right: Ints

    def __len__(self) -> int:
        return len(self.left)


class _Input:
    """The rows of one stream that a window may still need: their places (ts or tuple number), and the table of them.

    ``places``, ``codes`` and ``following`` begin with row number ``first``.
    """

    def __init__(self) -> None:
        self.first = 0
        self.places = self.codes = self.following = _NONE
        self.heads = np.full(16, -1, np.int64)

    @property
    def count(self) -> int:
        return self.first + len(self.places)

    def add(self, places: Ints, codes: Ints) -> None:
        self.places = np.concatenate([self.places, places])
        self.codes = np.concatenate([self.codes, codes])
        self.following = np.concatenate([self.following, np.empty(len(codes), np.int64)])

    def cover(self, codes: int) -> None:
        if codes > len(self.heads):
            self.heads = np.concatenate([self.heads, np.full(codes, -1, np.int64)])

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Row numbers from … to before … of the places start <= place < end."""
        low, high = np.searchsorted(self.places, [start, end])
        return self.first + int(low), self.first + max(int(low), int(high))

    def take(self, rows: tuple[int, int], other: _Input, other_low: int) -> tuple[Ints, Ints]:
        """Pairs of these rows with the rows in the other table; afterwards they are in this one."""
        return take(
            *rows, self.codes, self.following, self.first, self.heads,
            other.following, other.first, other.heads, other_low,
        )  # fmt: skip

    def forget(self, before: int) -> Ints:
        """Rows with a lower number are not needed any more; gives their codes."""
        n = max(0, before - self.first)
        gone = self.codes[:n]
        self.first += n
        self.places, self.codes, self.following = self.places[n:], self.codes[n:], self.following[n:]
        return gone


class OverlapJoin:
    """Pairs of rows with equal keys in each of the windows that ``spec`` describes, the same on both streams.

    Needs: the rows of both streams in order; windows that move forward or stand (``hop_low`` and ``hop_high`` not
    negative, not ``from_first``). Promises: all pairs of a window when the window is complete, whether ``reuse`` or
    not. Bounded by the rows from the start of the next window on; with ``reuse`` also by the pairs among them. Both are
    forgotten when no later window has them.
    """

    def __init__(self, spec: Generic, keys: Sequence[DataType], *, reuse: bool) -> None:
        if spec.hop_low < 0 or spec.hop_high < 0 or spec.from_first:
            raise ValueError(f"{spec} does not move forward from a window that is known before its first row")
        self.spec, self.reuse = spec, reuse
        self.work = Work()
        self._interner = Interner(keys, nulls_match=False)
        self._inputs = (_Input(), _Input())
        self._uses = np.zeros(16, np.int64)
        self._progress = [spec.begin, spec.begin]
        self._index = 0
        self._done = (0, 0)
        self._pairs: tuple[Ints, Ints] = (_NONE, _NONE)

    @property
    def ended(self) -> bool:
        """No window follows."""
        start, end = self._bounds(self._index)
        if self._index > 0 and self.spec.hop_low == self.spec.hop_high == 0:
            return True
        return start >= end or (self.spec.end_query is not None and self._named_end(end) > self.spec.end_query)

    def process(
        self,
        left: tuple[Ints, Sequence[pa.Array]],
        right: tuple[Ints, Sequence[pa.Array]],
        progress: tuple[int, int] | None = None,
    ) -> list[WindowPairs]:
        """Take rows in, as (ts of each, key columns), and answer the windows that are complete then.

        ``progress``: no row of the left, of the right stream with a lower ts will follow; without it, the last ts
        of each. Windows in tuples do not need it.
        """
        for side, (ts, columns) in enumerate((left, right)):
            rows = self._inputs[side]
            numbers = np.arange(rows.count + 1, rows.count + 1 + len(ts), dtype=np.int64)
            codes = self._interner.encode(columns, len(ts))
            rows.add(ts if self.spec.unit == "time" else numbers, codes)
            self._use(codes[codes >= 0])
            if self.spec.unit == "tuples":
                self._progress[side] = rows.count + 1
            elif progress is not None:
                self._progress[side] = max(self._progress[side], progress[side])
            elif len(ts):
                self._progress[side] = max(self._progress[side], int(ts[-1]))
        return list(self._due())

    def _use(self, codes: Ints) -> None:
        capacity = self._interner.capacity
        for rows in self._inputs:
            rows.cover(capacity)
        if capacity > len(self._uses):
            self._uses = np.concatenate([self._uses, np.zeros(capacity, np.int64)])
        np.add.at(self._uses, codes, 1)

    def _bounds(self, i: int) -> tuple[int, int]:
        """Window i, half open in either unit."""
        spec = self.spec
        return spec.begin + i * spec.hop_low, spec.end + i * spec.hop_high + (spec.unit == "tuples")

    def _named_end(self, end: int) -> int:
        return end - (self.spec.unit == "tuples")

    def _due(self) -> Iterator[WindowPairs]:
        while not self.ended:
            start, end = self._bounds(self._index)
            if min(self._progress) < end:
                return
            a, b = self._inputs[0].between(start, end), self._inputs[1].between(start, end)
            pairs = self._reusing(a, b) if self.reuse else self._from_scratch(a, b)
            yield WindowPairs(start, self._named_end(end), *pairs)
            self._index += 1
            self._forget()

    def _from_scratch(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[Ints, Ints]:
        for rows in self._inputs:
            rows.heads.fill(-1)
        return self._join(a, b, (a[0], b[0]))

    def _reusing(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[Ints, Ints]:
        """What is kept of the windows before, and the pairs with a row that is new."""
        left, right = self._pairs
        inside = (left >= a[0]) & (right >= b[0])
        new = self._join(a, b, (max(a[0], self._done[0]), max(b[0], self._done[1])))
        self._done = max(a[1], self._done[0]), max(b[1], self._done[1])
        pairs = np.concatenate([left[inside], new[0]]), np.concatenate([right[inside], new[1]])
        start, _ = self._bounds(self._index + 1)
        later = (pairs[0] >= self._inputs[0].between(start, start)[0]) & (
            pairs[1] >= self._inputs[1].between(start, start)[0]
        )
        self._pairs = pairs[0][later], pairs[1][later]
        self.work.peak_pairs = max(self.work.peak_pairs, len(self._pairs[0]))
        return pairs

    def _join(self, a: tuple[int, int], b: tuple[int, int], new: tuple[int, int]) -> tuple[Ints, Ints]:
        """Pairs within the row numbers a and b that have a left row from new[0] on or a right row from new[1] on.

        Each new row is put into the table of its stream and looked up once in the other one.
        """
        one, other = self._inputs
        taken = a[1] - new[0] + b[1] - new[1]
        self.work.rows += taken
        self.work.probes += taken
        self.work.peak_rows = max(self.work.peak_rows, a[1] - a[0] + b[1] - b[0])
        left, right = one.take((new[0], a[1]), other, b[0])
        right_too, left_too = other.take((new[1], b[1]), one, a[0])
        return np.concatenate([left, left_too]), np.concatenate([right, right_too])

    def _forget(self) -> None:
        """Rows before the next window go, and keys that no row has any more."""
        start, _ = self._bounds(self._index)
        gone = np.concatenate([rows.forget(rows.between(start, start)[0]) for rows in self._inputs])
        gone = gone[gone >= 0]
        if len(gone):
            np.subtract.at(self._uses, gone, 1)
            unused = np.unique(gone[self._uses[gone] == 0])
            if len(unused):
                self._interner.release(unused)
