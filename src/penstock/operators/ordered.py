"""A bag kept in order: the least, the greatest, the n-th, and everything between two places."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

from penstock.scalar.order import OrderKey

T = TypeVar("T")

_LEAST, _MOST = 256, 1024
"""A chunk is cut in two when it grows beyond the second, and joins its neighbour below the first."""


class SortedBag(Generic[T]):
    """Items that compare with ``<``, equal ones kept as often as added.

    Adding and removing is a binary search and a move within one short chunk; the n-th item is found by the lengths of
    the chunks.
    """

    __slots__ = ("_chunks", "_greatest", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        ordered: list[Any] = sorted(items)
        size = (_LEAST + _MOST) // 2
        self._chunks: list[list[Any]] = [ordered[i : i + size] for i in range(0, len(ordered), size)]
        self._greatest: list[Any] = [chunk[-1] for chunk in self._chunks]
        self._length = len(ordered)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for chunk in self._chunks:
            yield from chunk

    def __getitem__(self, place: int) -> T:
        """The item at a place counted from 0; -1 is the greatest."""
        if place < 0:
            place += self._length
        if not 0 <= place < self._length:
            raise IndexError(place)
        for chunk in self._chunks:
            if place < len(chunk):
                return chunk[place]  # type: ignore[no-any-return]
            place -= len(chunk)
        raise IndexError(place)

    @property
    def least(self) -> T:
        return self._chunks[0][0]  # type: ignore[no-any-return]

    @property
    def greatest(self) -> T:
        return self._greatest[-1]  # type: ignore[no-any-return]

    def add(self, item: T) -> None:
        self._length += 1
        if not self._chunks:
            self._chunks.append([item])
            self._greatest.append(item)
            return
        # What is not less than the greatest, as time mostly is, goes to the end.
        at = min(bisect_right(self._greatest, item), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, item)
        if len(chunk) > _MOST:
            half = len(chunk) // 2
            self._chunks.insert(at + 1, chunk[half:])
            self._greatest.insert(at + 1, chunk[-1])
            del chunk[half:]
        self._greatest[at] = chunk[-1]

    def remove(self, item: T) -> None:
        """Take one item equal to this out; ``KeyError`` where there is none."""
        at = bisect_left(self._greatest, item)
        if at == len(self._chunks):
            raise KeyError(item)
        chunk = self._chunks[at]
        place = bisect_left(chunk, item)
        if chunk[place] != item:
            raise KeyError(item)
        self._delete(at, place)

    def pop_least(self) -> T:
        item = self.least
        self._delete(0, 0)
        return item

    def pop_greatest(self) -> T:
        item = self.greatest
        self._delete(len(self._chunks) - 1, len(self._chunks[-1]) - 1)
        return item

    def from_(self, bound: object) -> Iterator[T]:
        """The items not less than ``bound``, in order."""
        at = bisect_left(self._greatest, bound)
        if at < len(self._chunks):
            chunk = self._chunks[at]
            yield from islice(chunk, bisect_left(chunk, bound), None)
            for chunk in islice(self._chunks, at + 1, None):
                yield from chunk

    def before(self, bound: object) -> Iterator[T]:
        """The items less than ``bound``, in order."""
        at = bisect_left(self._greatest, bound)
        for chunk in islice(self._chunks, at):
            yield from chunk
        if at < len(self._chunks):
            chunk = self._chunks[at]
            yield from islice(chunk, bisect_left(chunk, bound))

    def _delete(self, at: int, place: int) -> None:
        self._length -= 1
        chunk = self._chunks[at]
        del chunk[place]
        if not chunk:
            del self._chunks[at], self._greatest[at]
            return
        self._greatest[at] = chunk[-1]
        if len(chunk) < _LEAST and at + 1 < len(self._chunks) and len(self._chunks[at + 1]) < _LEAST:
            chunk += self._chunks[at + 1]
            self._greatest[at] = chunk[-1]
            del self._chunks[at + 1], self._greatest[at + 1]


class Reversed:
    """Sorts the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: Reversed) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and bool(self.key == other.key)

    __hash__ = None  # type: ignore[assignment]


def value_of(key: OrderKey) -> object:
    """The value of which this is the ``order_key``."""
    if key[0] == 0:
        return None
    if key[0] == 2:
        return float("nan")
    value = key[1]
    return tuple(value_of(v) for v in value) if isinstance(value, tuple) else value
