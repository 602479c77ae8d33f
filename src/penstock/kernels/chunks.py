"""Rows that keep their numbers, for several who look at them: what ``store.RowQueue`` is for one."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from penstock.kernels.store import FAN, WHOLE, Piece, can_join, join


class Chunks:
    """Rows by number, which stays; appended at the end, dropped from the front."""

    def __init__(self) -> None:
        self._chunks: list[Piece] = []
        self._starts: list[int] = []
        self._last = [0, 0]  # how many pieces of each tier stand at the end
        self.first = self.end = 0
        """The number of the first row, and the one after the last."""

    @property
    def nbytes(self) -> int:
        """Bytes held: O(chunks)."""
        return sum(c.held for c in self._chunks)

    def append(self, piece: Piece) -> None:
        """Rows with the next numbers."""
        n = len(piece.ts)
        self._starts.append(self.end)
        self.end += n
        small, middle = self._last
        if n < FAN:
            self._chunks.append(piece)
            small += 1
            if small == FAN:
                self._join_last(small)
                small, middle = 0, middle + 1
        elif n < WHOLE:
            self._chunks.append(piece if small else piece.own())
            if small:
                self._join_last(small + 1)
            small, middle = 0, middle + 1
        else:
            if small + middle > 1:
                start = self._starts.pop()
                self._join_last(small + middle)
                self._starts.append(start)
            self._chunks.append(piece.own())
            small = middle = 0
        if middle == FAN:
            self._join_last(middle)
            middle = 0
        self._last = [small, middle]

    def put_in_front(self, piece: Piece) -> None:
        """Rows with the numbers before the first."""
        if not len(piece.ts):
            return
        if self._chunks:
            self._chunks[0] = self._chunks[0].slice(self.first - self._starts[0], len(self._chunks[0].ts))
            self._starts[0] = self.first
        self.first -= len(piece.ts)
        self._chunks.insert(0, piece.own())
        self._starts.insert(0, self.first)

    def _join_last(self, count: int) -> None:
        pieces = self._chunks[-count:]
        if count > 1 and can_join(pieces):
            if count == len(self._chunks):
                pieces[0] = pieces[0].slice(self.first - self._starts[0], len(pieces[0].ts))
                self._starts[0] = self.first
            self._chunks[-count:] = [join(pieces)]
            del self._starts[-count + 1 :]

    def drop_before(self, number: int) -> None:
        """Rows before this number go."""
        self.first = number
        gone = bisect_right(self._starts, number) - 1 if number < self.end else len(self._chunks)
        if gone > 0:
            del self._chunks[:gone], self._starts[:gone]
            small, middle = self._last
            left = len(self._chunks)
            if small + middle > left:
                self._last = [min(small, left), max(0, left - small)]
        if self._chunks:
            taken, chunk = number - self._starts[0], self._chunks[0]
            if taken > WHOLE and 2 * taken > len(chunk.ts):
                self._chunks[0] = chunk.slice(taken, len(chunk.ts)).own()
                self._starts[0] = number

    def between(self, start: int, stop: int) -> list[Piece]:
        """The rows with numbers from ``start`` to before ``stop``, which are there."""
        if start >= stop:
            return []
        chunks, starts = self._chunks, self._starts
        # Mostly the rows are at one end.
        i = 0 if len(starts) == 1 or start < starts[1] else bisect_right(starts, start) - 1
        found: list[Piece] = []
        while start < stop:
            first, chunk = starts[i], chunks[i]
            until = min(stop, first + len(chunk.ts))
            found.append(chunk.slice(start - first, until - first))
            start = until
            i += 1
        return found

    def until(self, ts: int, start: int, stop: int) -> int:
        """The number of the first row from ``start`` to before ``stop`` that is after ``ts``, else ``stop``."""
        chunks, starts = self._chunks, self._starts
        i = 0 if len(starts) == 1 or start < starts[1] else bisect_right(starts, start) - 1
        if chunks[i].ts[start - starts[i]] > ts:
            return start
        while i < len(chunks) and starts[i] < stop:
            first, at = starts[i], chunks[i].ts
            if at[-1] > ts:
                return min(stop, first + int(np.searchsorted(at, ts, "right")))
            i += 1
        return stop

    def instant(self, number: int) -> tuple[int, int]:
        """When a row came."""
        i = -1 if number >= self._starts[-1] else bisect_right(self._starts, number) - 1
        place = number - self._starts[i]
        return int(self._chunks[i].ts[place]), int(self._chunks[i].sub[place])

    def find(self, instant: tuple[int, int]) -> int:
        """The number of the first row that is not before an instant."""
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            if self.instant(middle) < instant:
                low = middle + 1
            else:
                high = middle
        return low
