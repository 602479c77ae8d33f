"""An ordered multiset of (value, slot) whose oldest members leave first.

Sorted blocks of at most ``BLOCK`` entries, and the list of the blocks in order. Entering and leaving move at most one
block and, where a block is split, emptied or merged, the list of blocks; finding a bound is two binary searches.
Equal values stand in the order in which they entered, so the oldest row, the only one that may leave, is the first
among its equals and is found by its value alone.

Values are int64; ``buffers.ordered`` maps every type that has an order of numbers to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

_Function = TypeVar("_Function", bound=Callable[..., Any])


def without_counting(function: _Function) -> _Function:
    """Compile a function that allocates nothing: it need not count references to the arrays it is given, which would
    cost more than what it does."""
    return numba.njit(nogil=True, cache=True, _nrt=False)(function)  # type: ignore[call-overload, no-any-return]


BLOCK = 128
COUNT, FREE = 0, 1

LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = 0, 1, 2, 3
MIRRORED = (GREATER, GREATER_EQUAL, LESS, LESS_EQUAL)


class Ordered(NamedTuple):
    """``order[:meta[COUNT]]`` are the blocks in use, ``free[:meta[FREE]]`` the others."""

    values: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    order: npt.NDArray[np.int32]
    free: npt.NDArray[np.int32]
    meta: npt.NDArray[np.int64]


def create(blocks: int) -> Ordered:
    """Nothing, with room for this many blocks."""
    return Ordered(
        np.empty((blocks, BLOCK), np.int64),
        np.empty((blocks, BLOCK), np.int32),
        np.zeros(blocks, np.int32),
        np.empty(blocks, np.int32),
        np.arange(blocks, dtype=np.int32),
        np.array([0, blocks], np.int64),
    )


def nbytes(tree: Ordered) -> int:
    """Bytes held."""
    return tree.values.nbytes + tree.slots.nbytes + tree.lengths.nbytes + tree.order.nbytes + tree.free.nbytes


def resized(tree: Ordered, blocks: int) -> Ordered:
    """The same content with other room; the blocks in use keep their order and become the first ones."""
    new = create(blocks)
    used = tree.order[: tree.meta[COUNT]]
    n = len(used)
    new.values[:n], new.slots[:n], new.lengths[:n] = tree.values[used], tree.slots[used], tree.lengths[used]
    new.order[:n] = np.arange(n)
    new.free[: blocks - n] = np.arange(n, blocks)
    new.meta[:] = n, blocks - n
    return new


def load(values: npt.NDArray[np.int64], slots: npt.NDArray[np.int32]) -> Ordered:
    """Of rows given oldest first."""
    order = np.argsort(values, kind="stable")
    fill = BLOCK * 3 // 4
    used = -(-len(order) // fill)
    tree = create(used + used // 4 + 2)
    for block in range(used):
        part = order[block * fill : (block + 1) * fill]
        tree.values[block, : len(part)], tree.slots[block, : len(part)] = values[part], slots[part]
        tree.lengths[block] = len(part)
    tree.order[:used] = np.arange(used)
    tree.free[: len(tree.order) - used] = np.arange(used, len(tree.order))
    tree.meta[:] = used, len(tree.order) - used
    return tree


@without_counting
def find(tree: Ordered, value: int, after: bool) -> tuple[int, int]:
    """(place in the order, index in the block) of the first entry >= value; > value with ``after``."""
    low, high = 0, tree.meta[COUNT]
    while low < high:
        middle = (low + high) >> 1
        block = tree.order[middle]
        last = tree.values[block, tree.lengths[block] - 1]
        if last < value or (after and last == value):
            low = middle + 1
        else:
            high = middle
    if low == tree.meta[COUNT]:
        return low, 0
    block = tree.order[low]
    a, b = 0, tree.lengths[block]
    while a < b:
        middle = (a + b) >> 1
        x = tree.values[block, middle]
        if x < value or (after and x == value):
            a = middle + 1
        else:
            b = middle
    return low, a


@without_counting
def _open(tree: Ordered, place: int) -> int:
    """A new, empty block at this place of the order."""
    tree.meta[FREE] -= 1
    block = int(tree.free[tree.meta[FREE]])
    for k in range(tree.meta[COUNT], place, -1):
        tree.order[k] = tree.order[k - 1]
    tree.order[place] = block
    tree.meta[COUNT] += 1
    tree.lengths[block] = 0
    return block


@without_counting
def _close(tree: Ordered, place: int) -> None:
    tree.free[tree.meta[FREE]] = tree.order[place]
    tree.meta[FREE] += 1
    tree.meta[COUNT] -= 1
    for k in range(place, tree.meta[COUNT]):
        tree.order[k] = tree.order[k + 1]


@without_counting
def _move(tree: Ordered, source: int, start: int, target: int) -> None:
    """Entries of a block from ``start`` on go to the end of another."""
    n = tree.lengths[target]
    for k in range(start, tree.lengths[source]):
        tree.values[target, n] = tree.values[source, k]
        tree.slots[target, n] = tree.slots[source, k]
        n += 1
    tree.lengths[target] = n
    tree.lengths[source] = start


@without_counting
def insert(tree: Ordered, value: int, slot: int) -> None:
    """Enter after all entries of equal value. At least one block must be free."""
    place, index = find(tree, value, True)
    if place == tree.meta[COUNT]:
        if place == 0:
            _open(tree, 0)
        else:
            place -= 1
            index = tree.lengths[tree.order[place]]
    block = tree.order[place]
    if tree.lengths[block] == BLOCK:
        second = _open(tree, place + 1)
        _move(tree, block, BLOCK // 2, second)
        if index > BLOCK // 2:
            block = second
            index -= BLOCK // 2
    n = tree.lengths[block]
    for k in range(n, index, -1):
        tree.values[block, k] = tree.values[block, k - 1]
        tree.slots[block, k] = tree.slots[block, k - 1]
    tree.values[block, index] = value
    tree.slots[block, index] = slot
    tree.lengths[block] = n + 1


@without_counting
def remove_first(tree: Ordered, value: int) -> None:
    """The oldest entry of this value leaves."""
    place, index = find(tree, value, False)
    block = tree.order[place]
    n = tree.lengths[block] - 1
    for k in range(index, n):
        tree.values[block, k] = tree.values[block, k + 1]
        tree.slots[block, k] = tree.slots[block, k + 1]
    tree.lengths[block] = n
    if n == 0:
        _close(tree, place)
    elif n < BLOCK // 4 and place + 1 < tree.meta[COUNT]:
        follower = tree.order[place + 1]
        if n + tree.lengths[follower] <= BLOCK // 2:
            _move(tree, follower, 0, block)
            _close(tree, place + 1)


@without_counting
def renumber(tree: Ordered, moved: npt.NDArray[np.int32]) -> None:
    """Slots are called otherwise: ``moved`` says how, by their old number."""
    for place in range(tree.meta[COUNT]):
        block = tree.order[place]
        for k in range(tree.lengths[block]):
            tree.slots[block, k] = moved[tree.slots[block, k]]
