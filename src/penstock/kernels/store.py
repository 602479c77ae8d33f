"""Rows kept in order of arrival: appended at the end, taken from the front or by number.

Rows lie in chunks of Arrow columns. What comes in pieces smaller than a chunk is put together sixty-four pieces
at a time, in two tiers, so a row is copied at most three times, a step touches few objects, and the memory is that
of the columns: rows already taken are never more than the larger of a tier and what is left of their chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.kernels.buffers import gather
from penstock.model.delta import Ints

FAN = 64
"""Pieces put together at a time."""
WHOLE = FAN * FAN
"""Rows from which a piece is a chunk that is left as it is."""
_TOO_LONG = 1 << 28
"""Bytes of a column beyond which pieces stay apart: offsets of strings have 31 bits."""


class Piece(NamedTuple):
    """Some rows: payload and moments."""

    columns: tuple[pa.Array, ...]
    ts: Ints
    sub: Ints
    priority: Ints | None

    def slice(self, start: int, stop: int) -> Piece:
        if start == 0 and stop == len(self.ts):
            return self
        n = stop - start
        return Piece(
            tuple([c.slice(start, n) for c in self.columns]),
            self.ts[start:stop],
            self.sub[start:stop],
            None if self.priority is None else self.priority[start:stop],
        )

    def take(self, indices: Ints) -> Piece:
        return Piece(
            tuple([gather(c, indices) for c in self.columns]),
            self.ts[indices],
            self.sub[indices],
            None if self.priority is None else self.priority[indices],
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rows themselves."""
        priority = 0 if self.priority is None else self.priority.nbytes
        return int(sum(c.nbytes for c in self.columns)) + self.ts.nbytes + self.sub.nbytes + priority

    @property
    def held(self) -> int:
        """Bytes that stay in memory because of these rows; a small piece soon becomes part of a larger one."""
        if len(self.ts) < FAN:
            return self.nbytes
        arrays = [self.ts, self.sub] + ([] if self.priority is None else [self.priority])
        around = sum(a.nbytes if a.base is None else getattr(a.base, "nbytes", a.nbytes) for a in arrays)
        return int(sum(c.get_total_buffer_size() for c in self.columns)) + int(around)

    def own(self) -> Piece:
        """The same rows, in memory of their own if what they are part of is much larger."""
        if self.held <= 1.25 * self.nbytes + 4096:
            return self
        everything = pa.array(np.arange(len(self.ts)))
        priority = None if self.priority is None else self.priority.copy()
        return Piece(tuple([c.take(everything) for c in self.columns]), self.ts.copy(), self.sub.copy(), priority)


def join(pieces: Sequence[Piece]) -> Piece:
    """Pieces one after the other as one."""
    if len(pieces) == 1:
        return pieces[0]
    priority = None
    if any(p.priority is not None for p in pieces):
        priority = np.concatenate([np.zeros(len(p.ts), np.int64) if p.priority is None else p.priority for p in pieces])
    return Piece(
        tuple([pa.concat_arrays(list(parts)) for parts in zip(*[p.columns for p in pieces], strict=True)]),
        np.concatenate([p.ts for p in pieces]),
        np.concatenate([p.sub for p in pieces]),
        priority,
    )


def can_join(pieces: Sequence[Piece]) -> bool:
    """Whether pieces are not too long to be one."""
    rows = sum(len(p.ts) for p in pieces)
    return rows < WHOLE or sum(p.nbytes for p in pieces) <= _TOO_LONG


class RowQueue:
    """First in, first out."""

    def __init__(self) -> None:
        self._chunks: deque[Piece] = deque()
        self._taken = 0  # rows of the first chunk
        self._rows = 0
        self._last = [0, 0]  # how many pieces of each tier stand at the end
        self.taken = 0
        """How many rows have been taken: the number of the first one, counted from 0."""

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes held: O(chunks)."""
        return sum(c.held for c in self._chunks)

    def append(self, piece: Piece) -> None:
        """Rows at the end; their ts do not go back."""
        n = len(piece.ts)
        if n == 0:
            return
        self._rows += n
        self._chunks.append(piece)
        small, middle = self._last
        if n < FAN:
            small += 1
            if small == FAN:
                self._join_last(small)
                small, middle = 0, middle + 1
        elif n < WHOLE:
            if small:
                self._join_last(small + 1)
            else:
                self._chunks[-1] = piece.own()
            small, middle = 0, middle + 1
        else:
            self._chunks[-1] = piece.own()
            if small + middle > 1:
                last = self._chunks.pop()
                self._join_last(small + middle)
                self._chunks.append(last)
            small = middle = 0
        if middle == FAN:
            self._join_last(middle)
            middle = 0
        self._last = [small, middle]

    def _join_last(self, count: int) -> None:
        """The last pieces become one."""
        whole = count == len(self._chunks)
        pieces = [self._chunks.pop() for _ in range(count)][::-1]
        if whole and self._taken:
            pieces[0] = pieces[0].slice(self._taken, len(pieces[0].ts))
            self._taken = 0
        if can_join(pieces):
            self._chunks.append(join(pieces))
        else:
            self._chunks.extend(pieces)

    def until(self, ts: int) -> list[Piece]:
        """Take the rows up to and including ``ts`` from the front."""
        taken: list[Piece] = []
        while self._chunks:
            chunk = self._chunks[0]
            n = len(chunk.ts)
            if chunk.ts[n - 1] <= ts:
                taken.append(chunk.slice(self._taken, n))
                self._drop_first()
                continue
            if chunk.ts[self._taken] <= ts:
                stop = int(np.searchsorted(chunk.ts, ts, "right"))
                taken.append(chunk.slice(self._taken, stop))
                self._skip(stop)
            break
        return taken

    def first(self, count: int) -> list[Piece]:
        """Take so many rows from the front."""
        taken: list[Piece] = []
        while count:
            chunk = self._chunks[0]
            here = len(chunk.ts) - self._taken
            if here <= count:
                taken.append(chunk.slice(self._taken, len(chunk.ts)))
                self._drop_first()
                count -= here
            else:
                stop = self._taken + count
                taken.append(chunk.slice(self._taken, stop))
                self._skip(stop)
                count = 0
        return taken

    def numbered(self, start: int, stop: int) -> Piece:
        """The rows with numbers from ``start`` to before ``stop``, which are there."""
        last = self.taken + self._rows
        found: list[Piece] = []
        for chunk in reversed(self._chunks):
            first = last - len(chunk.ts)
            if first < stop and last > start:
                found.append(chunk.slice(max(start - first, 0), min(stop, last) - first))
            last = first
            if first <= start:
                break
        return join(found[::-1])

    def instants(self) -> list[tuple[int, int]]:
        """When the rows came."""
        found = [i for c in self._chunks for i in zip(c.ts.tolist(), c.sub.tolist(), strict=True)]
        return found[self._taken :]

    def _drop_first(self) -> None:
        chunk = self._chunks.popleft()
        self._rows -= len(chunk.ts) - self._taken
        self.taken += len(chunk.ts) - self._taken
        self._taken = 0
        small, middle = self._last
        left = len(self._chunks)
        if small + middle > left:
            self._last = [min(small, left), max(0, left - small)]

    def _skip(self, stop: int) -> None:
        chunk = self._chunks[0]
        self._rows -= stop - self._taken
        self.taken += stop - self._taken
        self._taken = stop
        if stop > WHOLE and 2 * stop > len(chunk.ts):
            self._chunks[0] = chunk.slice(stop, len(chunk.ts)).own()
            self._taken = 0


class RowLog:
    """Rows by number, from 0; ``compact`` renumbers what is left."""

    def __init__(self) -> None:
        self._chunks: list[Piece] = []
        self._starts: list[int] = []
        self._last = [0, 0]
        self.rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes held: O(chunks)."""
        return sum(c.held for c in self._chunks)

    def append(self, piece: Piece) -> None:
        """Rows with the next numbers."""
        n = len(piece.ts)
        if n == 0:
            return
        self._chunks.append(piece)
        self._starts.append(self.rows)
        self.rows += n
        small, middle = self._last
        if n < FAN:
            small += 1
            if small == FAN:
                self._join_last(small)
                small, middle = 0, middle + 1
        else:
            self._chunks[-1] = piece.own()
            self._join_last(small + 1)
            small, middle = (0, middle + 1) if n < WHOLE else (0, 0)
        if middle == FAN:
            self._join_last(middle)
            middle = 0
        self._last = [small, middle]

    def _join_last(self, count: int) -> None:
        pieces = self._chunks[-count:]
        if count > 1 and can_join(pieces):
            self._chunks[-count:] = [join(pieces)]
            del self._starts[-count + 1 :]

    def between(self, start: int, stop: int) -> Piece:
        """The rows with numbers from ``start`` to before ``stop``, which are there."""
        found: list[Piece] = []
        for first, chunk in zip(reversed(self._starts), reversed(self._chunks), strict=True):
            if first < stop:
                found.append(chunk.slice(max(start - first, 0), min(stop - first, len(chunk.ts))))
            if first <= start:
                break
        return join(found[::-1])

    def take(self, numbers: Ints) -> Piece:
        """The rows with these numbers, in this order."""
        if len(numbers) == 1 or len(self._chunks) == 1:
            at = int(np.searchsorted(self._starts, numbers[0], "right")) - 1
            local = numbers - self._starts[at]
            if len(numbers) == 1:
                return self._chunks[at].slice(int(local[0]), int(local[0]) + 1)
            return self._chunks[at].take(local)
        starts = np.array(self._starts)
        chunk_of = np.searchsorted(starts, numbers, "right") - 1
        by_chunk = np.argsort(chunk_of, kind="stable")
        chunks, firsts = np.unique(chunk_of[by_chunk], return_index=True)
        bounds = [*firsts.tolist(), len(numbers)]
        parts = [
            self._chunks[c].take(numbers[by_chunk[bounds[i] : bounds[i + 1]]] - starts[c])
            for i, c in enumerate(chunks.tolist())
        ]
        back = np.empty(len(numbers), np.int64)
        back[by_chunk] = np.arange(len(numbers))
        return join(parts).take(back)

    def compact(self, keep: Ints) -> None:
        """Only the rows with these numbers, in ascending order, stay; they are renumbered from 0."""
        old, bounds = self._chunks, np.searchsorted(keep, [*self._starts, self.rows]).tolist()
        starts = self._starts
        self._chunks, self._starts, self._last, self.rows = [], [], [0, 0], 0
        waiting: list[Piece] = []
        for i, chunk in enumerate(old):
            numbers = keep[bounds[i] : bounds[i + 1]]
            if len(numbers):
                waiting.append(chunk.take(numbers - starts[i]))
            if waiting and (i == len(old) - 1 or sum(len(p.ts) for p in waiting) >= FAN * WHOLE):
                self.append(join(waiting))
                waiting = []


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
