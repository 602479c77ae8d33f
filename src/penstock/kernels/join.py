"""The walk of a window join: both inputs in the order of their instants, pairs of stored rows out.

Each side keeps its rows in a ring, in the order in which they entered; they leave in that order too. Rows with the same
key form a chain from the newest to the oldest: ``heads[code]`` is the newest slot, ``next[slot]`` the one before it. Rows
that leave are not unlinked: a link is followed only to a row that is older than the one that has it, and a slot that was
used again always holds a newer one.

With ends (rows say when they leave), rows whose ends are not in the order of their entering stay in the ring beyond
their end until they are the oldest; they are skipped, and when a probe meets them they lose their code and their place
in the chain, unless they are alone in it: a key has no rows when its chain is empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from penstock.delta import MAX_TS, Ints
from penstock.kernels import ordered
from penstock.kernels.ordered import GREATER_EQUAL, LESS, LESS_EQUAL, Ordered

Slots = npt.NDArray[np.int32]

HASH, ORDER, CROSS = 0, 1, 2
"""How partners are found: by key, by an inequality, or all are."""

TAIL, COUNT, CAPACITY, ENDS, SHIFT, IN_ORDER = 0, 1, 2, 3, 4, 5
"""Places in a side's ``meta``. ``IN_ORDER``: ends are in the order of entering, so all rows in the ring are alive."""

NO_ENDS, STORED, SHIFTED, NEVER = 0, 1, 2, 3
"""Where a row's end is: nowhere, in ``ends``, ``SHIFT`` after what stands in ``ends``, or beyond all time."""

LEFT, RIGHT, WRITTEN, STATUS = 0, 1, 2, 3
"""Places in the cursor: rows taken of each input, pairs written, and why the walk stopped."""

DONE, FULL, SHORT_OF_BLOCKS = 0, 1, 2


class Side(NamedTuple):
    """What the walk reads and writes of one side."""

    code: Slots
    next: Slots
    ends: Ints
    heads: Slots
    value: Ints
    meta: Ints
    tree: Ordered


class Changes(NamedTuple):
    """When the rows of an input enter or leave."""

    ts: Ints
    sub: Ints
    sign: npt.NDArray[np.int8]


class Pairs(NamedTuple):
    """Where the walk writes."""

    ts: Ints
    sub: Ints
    sign: npt.NDArray[np.int8]
    left: Slots
    right: Slots


def room(size: int) -> Pairs:
    """Room for this many pairs."""
    return Pairs(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int8),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
    )


@numba.njit(nogil=True, cache=True, inline="always")
def _end(side: Side, slot: int) -> int:
    kind = side.meta[ENDS]
    if kind == STORED:
        return int(side.ends[slot])
    if kind == SHIFTED:
        return int(side.ends[slot] + side.meta[SHIFT])
    return MAX_TS


@numba.njit(nogil=True, cache=True, inline="always")
def _age(side: Side, slot: int) -> int:
    """How many rows of the ring are older."""
    place = int(slot - side.meta[TAIL])
    return place if place >= 0 else int(place + side.meta[CAPACITY])


@numba.njit(nogil=True, cache=True)
def _pop(how: int, side: Side, other: Side, released: Slots, count: int) -> tuple[Slots, int]:
    """The oldest row leaves; a key that then has no rows on either side is noted in ``released``."""
    slot = side.meta[TAIL]
    code = side.code[slot]
    if code >= 0:
        if how == HASH:
            if side.heads[code] == slot:
                side.heads[code] = -1
                if other.heads[code] < 0:
                    if count == len(released):
                        released = np.concatenate((released, np.empty(count + 64, np.int32)))
                    released[count] = code
                    count += 1
        elif how == ORDER:
            ordered.remove_first(side.tree, side.value[slot])
    slot += 1
    side.meta[TAIL] = slot if slot < side.meta[CAPACITY] else 0
    side.meta[COUNT] -= 1
    return released, count


@numba.njit(nogil=True, cache=True)
def _expire(how: int, side: Side, other: Side, now: int, released: Slots, count: int) -> tuple[Slots, int]:
    while side.meta[COUNT] > 0 and _end(side, side.meta[TAIL]) <= now:
        released, count = _pop(how, side, other, released, count)
    return released, count


@numba.njit(nogil=True, cache=True)
def _probe_key(side: Side, code: int, now: int, slot: int, mine: Slots, theirs: Slots, k: int) -> int:
    """Partners of ``slot`` on ``side``, from place k of the output on. The new k, or -1 if the output is full."""
    all_alive = side.meta[IN_ORDER] != 0
    before, current = -1, side.heads[code]
    while current >= 0:
        follower = side.next[current]
        if follower >= 0 and _age(side, follower) >= _age(side, current):
            follower = -1
        if all_alive or _end(side, current) > now:
            if k == len(mine):
                return -1
            mine[k] = slot
            theirs[k] = current
            k += 1
            before = current
        elif before >= 0 or follower >= 0:
            if before >= 0:
                side.next[before] = follower
            else:
                side.heads[code] = follower
            side.code[current] = -1
        current = follower
    return k


@numba.njit(nogil=True, cache=True)
def _probe_all(side: Side, now: int, slot: int, mine: Slots, theirs: Slots, k: int) -> int:
    all_alive = side.meta[IN_ORDER] != 0
    current = side.meta[TAIL]
    for _ in range(side.meta[COUNT]):
        if all_alive or _end(side, current) > now:
            if k == len(mine):
                return -1
            mine[k] = slot
            theirs[k] = current
            k += 1
        current += 1
        if current == side.meta[CAPACITY]:
            current = 0
    return k


@numba.njit(nogil=True, cache=True)
def _probe_order(
    side: Side, value: int, operator: int, now: int, slot: int, mine: Slots, theirs: Slots, k: int
) -> int:
    """Partners whose value x fulfils ``value operator x``."""
    tree = side.tree
    all_alive = side.meta[IN_ORDER] != 0
    upward = operator == LESS or operator == LESS_EQUAL
    place, index = ordered.find(tree, value, operator == LESS or operator == GREATER_EQUAL)
    first = place if upward else 0
    last = tree.meta[ordered.COUNT] if upward else min(place + 1, tree.meta[ordered.COUNT])
    for p in range(first, last):
        block = tree.order[p]
        start = index if upward and p == place else 0
        stop = index if not upward and p == place else tree.lengths[block]
        if k + stop - start > len(mine):
            return -1
        if all_alive:
            for q in range(start, stop):
                mine[k] = slot
                theirs[k] = tree.slots[block, q]
                k += 1
        else:
            for q in range(start, stop):
                if _end(side, tree.slots[block, q]) > now:
                    mine[k] = slot
                    theirs[k] = tree.slots[block, q]
                    k += 1
    return k


@numba.njit(nogil=True, cache=True)
def _probe(
    how: int, operator: int, side: Side, other: Side, now: int, slot: int, mine: Slots, theirs: Slots, k: int
) -> int:
    """Partners of the row at ``slot`` of ``side`` on the other side."""
    code = side.code[slot]
    if code < 0:
        return k
    if how == HASH:
        return _probe_key(other, code, now, slot, mine, theirs, k)
    if how == ORDER:
        return _probe_order(other, side.value[slot], operator, now, slot, mine, theirs, k)
    return _probe_all(other, now, slot, mine, theirs, k)


@numba.njit(nogil=True, cache=True)
def _enter(how: int, side: Side) -> None:
    """The row that was put behind the newest one becomes part of the ring."""
    slot = side.meta[TAIL] + side.meta[COUNT]
    if slot >= side.meta[CAPACITY]:
        slot -= side.meta[CAPACITY]
    side.meta[COUNT] += 1
    code = side.code[slot]
    if code >= 0:
        if how == HASH:
            side.next[slot] = side.heads[code]
            side.heads[code] = slot
        elif how == ORDER:
            ordered.insert(side.tree, side.value[slot], slot)


@numba.njit(nogil=True, cache=True)
def _stamp(out: Pairs, start: int, stop: int, ts: int, sub: int, sign: int) -> None:
    for k in range(start, stop):
        out.ts[k] = ts
        out.sub[k] = sub
        out.sign[k] = sign


@numba.njit(nogil=True, cache=True)
def _take(
    how: int, operator: int, side: Side, other: Side, changes: Changes, i: int, ts: int, sub: int, sign: int, emit: bool,
    out: Pairs, mine: Slots, theirs: Slots, k: int, released: Slots, count: int,
) -> tuple[int, int, int, Slots, int]:  # fmt: skip
    """All changes of one sign of one input at one instant. Stops before the first whose pairs find no room."""
    status = DONE
    while i < len(changes.ts) and changes.ts[i] == ts and changes.sub[i] == sub and changes.sign[i] == sign:
        if how == ORDER and side.tree.meta[ordered.FREE] == 0:
            status = SHORT_OF_BLOCKS
            break
        if emit:
            slot = side.meta[TAIL]
            if sign > 0:
                slot += side.meta[COUNT]
                if slot >= side.meta[CAPACITY]:
                    slot -= side.meta[CAPACITY]
            n = _probe(how, operator, side, other, ts, slot, mine, theirs, k)
            if n < 0:
                status = FULL
                break
            _stamp(out, k, n, ts, sub, sign)
            k = n
        if sign > 0:
            _enter(how, side)
        else:
            released, count = _pop(how, side, other, released, count)
        i += 1
    return status, i, k, released, count


@numba.njit(nogil=True, cache=True)
def walk(
    how: int, operator: int, mirrored: int, emit_leaving: bool, left: Side, right: Side, lefts: Changes, rights: Changes,
    cursor: Ints, out: Pairs, released: Slots,
) -> Slots:  # fmt: skip
    """Take changes from where the cursor stands until all are taken or the output is full.

    Rows that enter have been put into the ring behind the newest one. At each instant rows leave first, of both
    sides, then left rows enter, then right ones, so each pair is met once. Stopping is possible before any row:
    what is left of an instant is then what its later parts would have been. Gives the keys that may have lost their last row.
    """
    i, j, k, count = cursor[LEFT], cursor[RIGHT], cursor[WRITTEN], 0
    status = DONE
    minus, plus = -1, 1
    while status == DONE and (i < len(lefts.ts) or j < len(rights.ts)):
        if j == len(rights.ts) or (
            i < len(lefts.ts)
            and (lefts.ts[i] < rights.ts[j] or (lefts.ts[i] == rights.ts[j] and lefts.sub[i] <= rights.sub[j]))
        ):
            ts, sub = lefts.ts[i], lefts.sub[i]
        else:
            ts, sub = rights.ts[j], rights.sub[j]
        released, count = _expire(how, left, right, ts, released, count)
        released, count = _expire(how, right, left, ts, released, count)
        status, i, k, released, count = _take(
            how, operator, left, right, lefts, i, ts, sub, minus, emit_leaving, out, out.left, out.right, k, released, count
        )
        if status == DONE:
            status, j, k, released, count = _take(
                how, mirrored, right, left, rights, j, ts, sub, minus, emit_leaving, out, out.right, out.left, k,
                released, count,
            )  # fmt: skip
        if status == DONE:
            status, i, k, released, count = _take(
                how, operator, left, right, lefts, i, ts, sub, plus, True, out, out.left, out.right, k, released, count
            )
        if status == DONE:
            status, j, k, released, count = _take(
                how, mirrored, right, left, rights, j, ts, sub, plus, True, out, out.right, out.left, k, released, count
            )
    cursor[LEFT], cursor[RIGHT], cursor[WRITTEN], cursor[STATUS] = i, j, k, status
    return released[:count]


@numba.njit(nogil=True, cache=True)
def expire(how: int, left: Side, right: Side, now: int, released: Slots) -> Slots:
    """Rows that have ended leave, as far as they are the oldest. Gives keys as ``walk`` does."""
    released, count = _expire(how, left, right, now, released, 0)
    released, count = _expire(how, right, left, now, released, count)
    return released[:count]


@numba.njit(nogil=True, cache=True)
def without_rows(candidates: Slots, left_heads: Slots, right_heads: Slots) -> Slots:
    """Those of the codes, each once, that no row has any more."""
    n = 0
    for code in candidates:
        if left_heads[code] == -1 and right_heads[code] == -1:
            left_heads[code] = -2
            candidates[n] = code
            n += 1
    for code in candidates[:n]:
        left_heads[code] = -1
    return candidates[:n]


@numba.njit(nogil=True, cache=True)
def moved_slots(side: Side, now: int, everything: bool) -> Slots:
    """For each slot its number when the rows that are alive are put together, oldest first; -1 for the others."""
    moved = np.full(side.meta[CAPACITY], -1, np.int32)
    slot, n = side.meta[TAIL], 0
    for _ in range(side.meta[COUNT]):
        if everything or _end(side, slot) > now:
            moved[slot] = n
            n += 1
        slot += 1
        if slot == side.meta[CAPACITY]:
            slot = 0
    return moved


@numba.njit(nogil=True, cache=True)
def ended_slots(side: Side, now: int) -> Slots:
    """The rows in the ring that are not alive, oldest first."""
    found = np.empty(side.meta[COUNT], np.int32)
    slot, n = side.meta[TAIL], 0
    for _ in range(side.meta[COUNT]):
        if _end(side, slot) <= now:
            found[n] = slot
            n += 1
        slot += 1
        if slot == side.meta[CAPACITY]:
            slot = 0
    return found[:n]


@numba.njit(nogil=True, cache=True)
def chain(code: Slots, heads: Slots, count: int, following: Slots) -> None:
    """Link the rows at 0 … count-1, oldest first, into the chains of their keys."""
    heads[:] = -1
    for slot in range(count):
        if code[slot] >= 0:
            following[slot] = heads[code[slot]]
            heads[code[slot]] = slot


@numba.njit(nogil=True, cache=True)
def latest(
    left: Slots, right: Slots, left_ts: Ints, left_sub: Ints, right_ts: Ints, right_sub: Ints
) -> tuple[Ints, Ints]:
    """The later of the moments of the rows of each pair."""
    n = len(left)
    ts, sub = np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        a, b = left[k], right[k]
        if left_ts[a] > right_ts[b] or (left_ts[a] == right_ts[b] and left_sub[a] > right_sub[b]):
            ts[k], sub[k] = left_ts[a], left_sub[a]
        else:
            ts[k], sub[k] = right_ts[b], right_sub[b]
    return ts, sub


@numba.njit(nogil=True, cache=True)
def first_end(left: Side, right: Side, left_slots: Slots, right_slots: Slots) -> Ints:
    """When each pair ends: with the first of its rows."""
    ends = np.empty(len(left_slots), np.int64)
    for k in range(len(ends)):
        ends[k] = min(_end(left, left_slots[k]), _end(right, right_slots[k]))
    return ends
