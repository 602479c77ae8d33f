"""One store for the rows of all windows over one input.

Every window over an input has a *share* of its store: the rows with numbers from ``tail`` to before ``head``. So
windows of different sizes and ages, of different queries, hold a row once. A row goes when it is before every tail.

The windows of one input are worked on by different threads, at different times and in batches that are cut differently.
Whoever comes first puts rows in; who comes later finds them there by their instants. All get the same rows in the same
order, except that a window does not get what came before it; should rows ever not be those that are there, or the
window be far behind the others, it goes on with a store of its own, and holds what it holds by itself.

Bounded by the rows that the windows hold, and those that the first of them has taken and the last has not, as far as
these are not too many.
"""

from __future__ import annotations

import threading
from bisect import bisect_right

import numpy as np

from penstock.kernels.store import Chunks, Piece
from penstock.model.delta import Instant
from penstock.operators.base import StateSize

LAG = 65_536
"""A window that is so many rows behind the others goes on with a store of its own."""


class WindowStore:
    """The rows, by number, and who needs them. Shares lock it for as long as they look at it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.chunks = Chunks()
        self.shares: list[Share] = []

    def share(self) -> Share:
        """A window comes: what is put in from now on is for it, and no rows from before unless it brings them."""
        with self.lock:
            share = Share(self, self.chunks.end)
            self.shares.append(share)
        return share

    @property
    def rows(self) -> int:
        """How many rows are held for somebody."""
        return self.chunks.end - self.chunks.first

    @property
    def nbytes(self) -> int:
        """Bytes in memory because of them: O(chunks)."""
        with self.lock:
            return self.chunks.nbytes

    def parts(self) -> dict[Share, float]:
        """How many rows each share answers for: a row that several need is split among them."""
        with self.lock:
            return self._parts()

    def _parts(self) -> dict[Share, float]:
        ordered = sorted([s for s in self.shares if s.head > s.tail or not self._lags(s)], key=lambda s: s.tail)
        parts: dict[Share, float] = {}
        total = 0.0
        for i, share in enumerate(ordered):
            # Rows from this tail to the next are needed by those whose tails stand before.
            until = ordered[i + 1].tail if i + 1 < len(ordered) else self.chunks.end
            total += (until - share.tail) / (i + 1)
            parts[share] = -total + (until - share.tail) / (i + 1)
        return {share: total + before for share, before in parts.items()}

    def bytes_of(self, share: Share) -> int:
        """The part of the bytes that is for a share; the parts of all add up to the whole, but for rounding."""
        with self.lock:
            if not self.rows:
                return 0
            return round(self.chunks.nbytes * self._parts().get(share, 0.0) / self.rows)

    def put(self, share: Share, piece: Piece) -> bool:
        """Rows that a window gets next, which may be there already; False if they do not go with those that are."""
        n = len(piece.ts)
        chunks = self.chunks
        empty = chunks.end == chunks.first
        if empty:  # so are all shares
            share.tail = share.head = chunks.end
        if share.head == chunks.end and (len(self.shares) == 1 or empty or self._is_new(piece)):
            chunks.append(piece)
            share.head += n
            return True
        first = (int(piece.ts[0]), int(piece.sub[0]))
        known = 0 if empty else _until(piece, chunks.instant(chunks.end - 1))  # so many of them may be there
        if share.head > share.tail or empty:
            at = share.head
        else:
            at = chunks.find(first)
            if at == chunks.first and chunks.instant(at) != first:
                return self._put_in_front(share, piece, known)
        if at + known > chunks.end or (known < n and at + known != chunks.end) or not self._has(at, piece, known):
            return False
        if known < n:
            chunks.append(piece.slice(known, n))
        before = share.tail
        if share.head == share.tail:
            share.tail = at
        share.head = at + n
        self.forget(before)
        return True

    def _is_new(self, piece: Piece) -> bool:
        """Whether rows come after all that are there."""
        return (piece.ts[0], piece.sub[0]) > self.chunks.instant(self.chunks.end - 1)

    def _put_in_front(self, share: Share, piece: Piece, known: int) -> bool:
        """Rows that begin before all that are there, and go on with these."""
        n, chunks = len(piece.ts), self.chunks
        older = _until(piece, chunks.instant(chunks.first), including=False)
        there, behind = piece.slice(older, known), piece.slice(known, n)
        if older == known or not self._has(chunks.first, there, known - older):
            return False
        if len(behind.ts):
            if chunks.first + known - older != chunks.end:
                return False
            chunks.append(behind)
        share.tail = chunks.first - older
        share.head = share.tail + n
        chunks.put_in_front(piece.slice(0, older))
        return True

    def _has(self, at: int, piece: Piece, count: int) -> bool:
        """Whether the first rows of a piece are those with numbers from ``at`` on."""
        for part in self.chunks.between(at, at + count):
            n = len(part.ts)
            if not (np.array_equal(part.ts, piece.ts[:n]) and np.array_equal(part.sub, piece.sub[:n])):
                return False
            piece = piece.slice(n, len(piece.ts))
        return True

    def forget(self, tail: int) -> None:
        """A share whose tail was this needs less now."""
        chunks, shares = self.chunks, self.shares
        many = len(shares) > 1 and chunks.end - chunks.first > LAG
        if tail > chunks.first and not many:
            return
        if many:
            for share in [s for s in shares if s.head > s.tail == chunks.first and self._lags(s)]:
                share.part()
            least = min([s.tail for s in shares if not self._lags(s)], default=chunks.end)
        else:
            least = shares[0].tail if len(shares) == 1 else min([s.tail for s in shares], default=chunks.end)
        if least > chunks.first:
            chunks.drop_before(least)

    def _lags(self, share: Share) -> bool:
        """Whether many more rows are held for a share than it needs, because it does not take them."""
        return self.chunks.end - share.head > max(LAG, 2 * len(share))


class Locked:
    """A store whose lock is held until the end of a block."""

    __slots__ = ("_store",)

    def __init__(self, store: WindowStore) -> None:
        self._store = store

    def __enter__(self) -> WindowStore:
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.lock.release()


class Share:
    """What one window needs of a store. Counts and places are those of its own rows, the oldest being 0.

    ``taken``: how many rows it had and has not any more.
    """

    __slots__ = ("head", "store", "tail", "taken")

    def __init__(self, store: WindowStore, at: int) -> None:
        self.store = store
        self.tail = self.head = at
        self.taken = 0

    def __len__(self) -> int:
        return self.head - self.tail

    def put(self, piece: Piece) -> None:
        """The next rows."""
        if not len(piece.ts):
            return
        with self._locked() as store:
            if store.put(self, piece):
                return
            self.part()
            store.forget(store.chunks.first)
        self.store.put(self, piece)

    def part(self) -> None:
        """Go on with a store of its own. Whoever calls has the lock of the one that there is."""
        store = self.store
        rows = store.chunks.between(self.tail, self.head) if len(self) else []
        store.shares.remove(self)
        own = WindowStore()
        own.shares.append(self)
        self.tail = self.head = 0
        for piece in rows:
            own.put(self, piece)
        self.store = own

    def _locked(self) -> Locked:
        """Its store, locked; another share may make it another one until then."""
        while True:
            store = self.store
            store.lock.acquire()
            if store is self.store:
                return Locked(store)
            store.lock.release()

    def first(self, count: int) -> list[Piece]:
        """Take so many of the oldest rows."""
        if not count:
            return []
        with self._locked() as store:
            before = self.tail
            found = store.chunks.between(before, before + count)
            self.tail = before + count
            self.taken += count
            store.forget(before)
        return found

    def first_until(self, ts: int) -> list[Piece]:
        """Take the oldest rows, those that are not after ``ts``."""
        if self.tail == self.head:
            return []
        with self._locked() as store:
            before, chunks = self.tail, store.chunks
            stop = chunks.until(ts, before, self.head)
            if stop == before:
                return []
            found = chunks.between(before, stop)
            self.tail = stop
            self.taken += stop - before
            store.forget(before)
        return found

    def drop(self, count: int) -> None:
        """So many of the oldest rows are not needed any more."""
        with self._locked() as store:
            before = self.tail
            self.tail = before + count
            self.taken += count
            store.forget(before)

    def between(self, start: int, stop: int) -> list[Piece]:
        """Rows, which stay."""
        if start >= stop:
            return []
        with self._locked() as store:
            return store.chunks.between(self.tail + start, self.tail + stop)

    def until(self, ts: int) -> int:
        """How many of the rows are not after ``ts``."""
        if self.head == self.tail:
            return 0
        with self._locked() as store:
            return store.chunks.until(ts, self.tail, self.head) - self.tail

    def release(self) -> None:
        """The window is gone."""
        with self._locked() as store:
            if self in store.shares:
                store.shares.remove(self)
                store.forget(store.chunks.first)

    def size(self) -> StateSize:
        """Its rows, and its part of the bytes."""
        return StateSize(len(self), self.store.bytes_of(self))


def _until(piece: Piece, instant: Instant, *, including: bool = True) -> int:
    """How many rows are before an instant, or at it."""
    ts, sub = instant
    low = int(np.searchsorted(piece.ts, ts, "left"))
    high = int(np.searchsorted(piece.ts, ts, "right"))
    return bisect_right(piece.sub, sub if including else sub - 1, low, high)
