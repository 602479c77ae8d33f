"""The walk of a window join: both inputs in the order of their instants, pairs of stored rows out.

Each side keeps its rows in a ring, in the order in which they entered; they leave in that order too. Rows with the
same key form a chain from the newest to the oldest: ``heads[code]`` is the newest slot, ``following[slot]`` the one
that was the newest before it. Rows that leave are not unlinked: a link is followed only to a row that is older than
the one that has it, and a slot that was used again always holds a newer one.

With ends (rows say when they leave), rows whose ends are not in the order of their entering stay in the ring beyond
their end until they are the oldest; they are skipped, and when a probe meets them they lose their code and their place
in the chain, unless they are alone in it: a key has no rows when its chain is empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from penstock.delta import MAX_TS, Ints, Signs
from penstock.kernels import ordered
from penstock.kernels.ordered import GREATER_EQUAL, LESS, LESS_EQUAL, Ordered, without_counting

Slots = npt.NDArray[np.int32]

HASH, ORDER, CROSS = 0, 1, 2
"""How partners are found: by key, by an inequality, or all are."""

TAIL, COUNT, CAPACITY, ENDS, SHIFT, IN_ORDER = 0, 1, 2, 3, 4, 5
"""Places in a side's ``meta``. ``IN_ORDER``: ends are in the order of entering, so all rows in the ring are alive."""

NO_ENDS, STORED, SHIFTED, NEVER = 0, 1, 2, 3
"""Where a row's end is: nowhere, in ``ends``, ``SHIFT`` after what stands in ``ends``, or beyond all time."""

LEFT, RIGHT, WRITTEN, STATUS, FIRST, SEEN = 0, 1, 2, 3, 4, 5
"""Places in the cursor: rows taken of each input, pairs written, why the walk stopped, the first waiting key, and
something that makes reading ahead not look useless to the compiler."""

_AHEAD = 128

NONE, NOT_WAITING = -1, -2
"""A key that lost its last row waits: it is released after the walk if it got no new one. ``waiting[code]`` is the key
that began to wait before it, ``NONE`` for the first of all."""

DONE, FULL, SHORT_OF_BLOCKS = 0, 1, 2


class Side(NamedTuple):
    """What the walk reads and writes of one side."""

    code: Slots
    following: Slots
    ends: Ints
    heads: Slots
    value: Ints
    meta: Ints
    tree: Ordered


class Changes(NamedTuple):
    """When the rows of an input enter or leave."""

    ts: Ints
    sub: Ints
    sign: Signs


class Pairs(NamedTuple):
    """Where the walk writes."""

    ts: Ints
    sub: Ints
    sign: Signs
    left: Slots
    right: Slots


def some(pairs: Pairs, chosen: slice | Ints) -> Pairs:
    """Some of the pairs."""
    ts, sub, sign, left, right = pairs
    return Pairs(ts[chosen], sub[chosen], sign[chosen], left[chosen], right[chosen])


def cursor() -> Ints:
    """Where a walk begins."""
    return np.array([0, 0, 0, DONE, NONE, 0], np.int64)


def room(size: int) -> Pairs:
    """Room for this many pairs."""
    return Pairs(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int8),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
    )


@without_counting
def _end(meta: Ints, ends: Ints, slot: int) -> int:
    kind = meta[ENDS]
    if kind == STORED:
        return int(ends[slot])
    if kind == SHIFTED:
        return int(ends[slot] + meta[SHIFT])
    return MAX_TS


@without_counting
def _age(meta: Ints, slot: int) -> int:
    """How many rows of the ring are older."""
    place = int(slot - meta[TAIL])
    return place if place >= 0 else int(place + meta[CAPACITY])


@without_counting
def _newest(meta: Ints) -> int:
    """The slot behind the newest row."""
    slot = int(meta[TAIL] + meta[COUNT])
    return slot if slot < meta[CAPACITY] else int(slot - meta[CAPACITY])


@without_counting
def _pop(meta: Ints, code: Slots, heads: Slots, other_heads: Slots, waiting: Slots, first: int) -> int:
    """The oldest row leaves. A key that then has no rows on either side becomes the first that waits for release."""
    slot = int(meta[TAIL])
    key = code[slot]
    if key >= 0 and len(heads) > 0 and heads[key] == slot:
        heads[key] = -1
        if other_heads[key] < 0 and waiting[key] == NOT_WAITING:
            waiting[key] = first
            first = int(key)
    slot += 1
    meta[TAIL] = slot if slot < meta[CAPACITY] else 0
    meta[COUNT] -= 1
    return first


@without_counting
def _enter(meta: Ints, code: Slots, following: Slots, heads: Slots) -> None:
    """The row behind the newest one becomes the newest."""
    slot = _newest(meta)
    meta[COUNT] += 1
    key = code[slot]
    if key >= 0 and len(heads) > 0:
        following[slot] = heads[key]
        heads[key] = slot


@without_counting
def _probe_key(
    meta: Ints, code: Slots, following: Slots, ends: Ints, heads: Slots, key: int, now: int, slot: int,
    mine: Slots, theirs: Slots, k: int,
) -> int:  # fmt: skip
    """Partners of ``slot`` by key, from place k of the output on. The new k, or -1 if the output is full."""
    all_alive = meta[IN_ORDER] != 0
    before, current = -1, heads[key]
    while current >= 0:
        follower = following[current]
        if follower >= 0 and _age(meta, follower) >= _age(meta, current):
            follower = -1
        if all_alive or _end(meta, ends, current) > now:
            if k == len(mine):
                return -1
            mine[k] = slot
            theirs[k] = current
            k += 1
            before = current
        elif before >= 0 or follower >= 0:
            if before >= 0:
                following[before] = follower
            else:
                heads[key] = follower
            code[current] = -1
        current = follower
    return k


@without_counting
def _probe_all(meta: Ints, ends: Ints, now: int, slot: int, mine: Slots, theirs: Slots, k: int) -> int:
    all_alive = meta[IN_ORDER] != 0
    current = meta[TAIL]
    for _ in range(meta[COUNT]):
        if all_alive or _end(meta, ends, current) > now:
            if k == len(mine):
                return -1
            mine[k] = slot
            theirs[k] = current
            k += 1
        current += 1
        if current == meta[CAPACITY]:
            current = 0
    return k


@without_counting
def _probe_order(
    operator: int, code: Slots, value: Ints, slot: int, now: int, meta: Ints, ends: Ints, tree: Ordered, mine: Slots,
    theirs: Slots, k: int,
) -> int:  # fmt: skip
    """Partners whose value x fulfils ``value[slot] operator x``."""
    if code[slot] < 0:
        return k
    all_alive = meta[IN_ORDER] != 0
    upward = operator in (LESS, LESS_EQUAL)
    place, index = ordered.find(tree, value[slot], operator in (LESS, GREATER_EQUAL))
    first = place if upward else 0
    last = tree.meta[ordered.COUNT] if upward else min(place + 1, tree.meta[ordered.COUNT])
    for p in range(first, last):
        block = tree.order[p]
        start = index if upward and p == place else 0
        stop = index if not upward and p == place else tree.lengths[block]
        if k + stop - start > len(mine):
            return -1
        for q in range(start, stop):
            partner = tree.slots[block, q]
            if all_alive or _end(meta, ends, partner) > now:
                mine[k] = slot
                theirs[k] = partner
                k += 1
    return k


@without_counting
def _probe(
    how: int, code: Slots, slot: int, now: int, meta: Ints, their_code: Slots, following: Slots, ends: Ints,
    heads: Slots, mine: Slots, theirs: Slots, k: int,
) -> int:  # fmt: skip
    """Partners of the row at ``slot`` of one side on the other side, whose state follows ``now``."""
    if code[slot] < 0:
        return k
    if how == HASH:
        return _probe_key(meta, their_code, following, ends, heads, code[slot], now, slot, mine, theirs, k)
    return _probe_all(meta, ends, now, slot, mine, theirs, k)


@without_counting
def _stamp(ts: Ints, sub: Ints, sign: Signs, start: int, stop: int, now: int, then: int, change: int) -> None:
    for k in range(start, stop):
        ts[k] = now
        sub[k] = then
        sign[k] = change


@without_counting
def _touch(
    meta: Ints, code: Slots, pending: int, heads: Slots, other_heads: Slots, other_following: Slots, reach: int
) -> int:
    """Read what the next rows will need: one by one each would wait for memory, here the waits overlap.

    Of the ``pending`` changes some are rows that leave, so the last slots looked at may hold anything.
    """
    seen = 0
    slot = _newest(meta)
    for _ in range(min(reach, pending)):
        key = code[slot]
        if 0 <= key < len(heads):
            partner = other_heads[key]
            seen += heads[key] + (other_following[partner] if partner >= 0 else 0)
        slot += 1
        if slot == meta[CAPACITY]:
            slot = 0
    slot = int(meta[TAIL])
    for _ in range(min(reach, meta[COUNT])):
        key = code[slot]
        if key >= 0:
            seen += heads[key] + other_heads[key]
        slot += 1
        if slot == meta[CAPACITY]:
            slot = 0
    return seen


@without_counting
def walk(
    how: int, operator: int, mirrored: int, emit_leaving: bool, left: Side, right: Side, waiting: Slots,
    lefts: Changes, rights: Changes, cursor: Ints, out: Pairs,
) -> None:  # fmt: skip
    """Take changes from where the cursor stands until all are taken or the output is full.

    Rows that enter have been put into the ring behind the newest one. At each instant rows leave first, of both
    sides, then left rows enter, then right ones, so each pair is met once. Stopping is possible before any row:
    what is left of an instant is then what its later parts would have been.
    """
    code, following, ends, heads, value, meta, tree = left
    code_, following_, ends_, heads_, value_, meta_, tree_ = right
    ts, sub, sign = lefts
    ts_, sub_, sign_ = rights
    out_ts, out_sub, out_sign, out_left, out_right = out
    i, j, k, first = cursor[LEFT], cursor[RIGHT], cursor[WRITTEN], cursor[FIRST]
    n, m = len(ts), len(ts_)
    by_order = how == ORDER
    status = DONE
    touched = i + j
    while status == DONE and (i < n or j < m):
        if how == HASH and i + j >= touched and n + m > _AHEAD:
            touched = i + j + _AHEAD
            cursor[SEEN] = _touch(meta, code, n - i, heads, heads_, following_, _AHEAD)
            cursor[SEEN] += _touch(meta_, code_, m - j, heads_, heads, following, _AHEAD)
        if j == m or (i < n and (ts[i] < ts_[j] or (ts[i] == ts_[j] and sub[i] <= sub_[j]))):
            now, then = ts[i], sub[i]
        else:
            now, then = ts_[j], sub_[j]
        while meta[COUNT] > 0 and _end(meta, ends, meta[TAIL]) <= now:
            if by_order:
                _take_out(tree, meta, code, value)
            first = _pop(meta, code, heads, heads_, waiting, first)
        while meta_[COUNT] > 0 and _end(meta_, ends_, meta_[TAIL]) <= now:
            if by_order:
                _take_out(tree_, meta_, code_, value_)
            first = _pop(meta_, code_, heads_, heads, waiting, first)

        while i < n and ts[i] == now and sub[i] == then and sign[i] < 0:
            if emit_leaving:
                if by_order:
                    k_ = _probe_order(
                        operator, code, value, meta[TAIL], now, meta_, ends_, tree_, out_left, out_right, k
                    )
                else:
                    k_ = _probe(
                        how, code, meta[TAIL], now, meta_, code_, following_, ends_, heads_, out_left, out_right, k
                    )
                if k_ < 0:
                    status = FULL
                    break
                _stamp(out_ts, out_sub, out_sign, k, k_, now, then, -1)
                k = k_
            if by_order:
                _take_out(tree, meta, code, value)
            first = _pop(meta, code, heads, heads_, waiting, first)
            i += 1
        if status != DONE:
            break
        while j < m and ts_[j] == now and sub_[j] == then and sign_[j] < 0:
            if emit_leaving:
                if by_order:
                    k_ = _probe_order(
                        mirrored, code_, value_, meta_[TAIL], now, meta, ends, tree, out_right, out_left, k
                    )
                else:
                    k_ = _probe(
                        how, code_, meta_[TAIL], now, meta, code, following, ends, heads, out_right, out_left, k
                    )
                if k_ < 0:
                    status = FULL
                    break
                _stamp(out_ts, out_sub, out_sign, k, k_, now, then, -1)
                k = k_
            if by_order:
                _take_out(tree_, meta_, code_, value_)
            first = _pop(meta_, code_, heads_, heads, waiting, first)
            j += 1
        if status != DONE:
            break
        while i < n and ts[i] == now and sub[i] == then:
            slot = _newest(meta)
            if by_order and tree.meta[ordered.FREE] == 0:
                status = SHORT_OF_BLOCKS
                break
            if by_order:
                k_ = _probe_order(operator, code, value, slot, now, meta_, ends_, tree_, out_left, out_right, k)
            else:
                k_ = _probe(how, code, slot, now, meta_, code_, following_, ends_, heads_, out_left, out_right, k)
            if k_ < 0:
                status = FULL
                break
            _stamp(out_ts, out_sub, out_sign, k, k_, now, then, 1)
            k = k_
            _enter(meta, code, following, heads)
            if by_order and code[slot] >= 0:
                ordered.insert(tree, value[slot], slot)
            i += 1
        if status != DONE:
            break
        while j < m and ts_[j] == now and sub_[j] == then:
            slot = _newest(meta_)
            if by_order and tree_.meta[ordered.FREE] == 0:
                status = SHORT_OF_BLOCKS
                break
            if by_order:
                k_ = _probe_order(mirrored, code_, value_, slot, now, meta, ends, tree, out_right, out_left, k)
            else:
                k_ = _probe(how, code_, slot, now, meta, code, following, ends, heads, out_right, out_left, k)
            if k_ < 0:
                status = FULL
                break
            _stamp(out_ts, out_sub, out_sign, k, k_, now, then, 1)
            k = k_
            _enter(meta_, code_, following_, heads_)
            if by_order and code_[slot] >= 0:
                ordered.insert(tree_, value_[slot], slot)
            j += 1
    cursor[LEFT], cursor[RIGHT], cursor[WRITTEN], cursor[STATUS], cursor[FIRST] = i, j, k, status, first


@without_counting
def enter_all(side: Side, count: int) -> None:
    """So many rows behind the newest one enter, without looking for partners; the order is not told of them."""
    for _ in range(count):
        _enter(side.meta, side.code, side.following, side.heads)


@without_counting
def _take_out(tree: Ordered, meta: Ints, code: Slots, value: Ints) -> None:
    """The oldest row leaves the order."""
    if code[meta[TAIL]] >= 0:
        ordered.remove_first(tree, value[meta[TAIL]])


@without_counting
def expire(how: int, side: Side, other_heads: Slots, now: int, waiting: Slots, cursor: Ints) -> None:
    """Rows that have ended leave, as far as they are the oldest."""
    code, _, ends, heads, value, meta, tree = side
    first = cursor[FIRST]
    while meta[COUNT] > 0 and _end(meta, ends, meta[TAIL]) <= now:
        if how == ORDER:
            _take_out(tree, meta, code, value)
        first = _pop(meta, code, heads, other_heads, waiting, first)
    cursor[FIRST] = first


@without_counting
def wait(codes: Slots, heads: Slots, other_heads: Slots, waiting: Slots, cursor: Ints) -> None:
    """Codes of rows that were forgotten wait for release if no row has them."""
    first = cursor[FIRST]
    for code in codes:
        if code >= 0 and heads[code] < 0 and other_heads[code] < 0 and waiting[code] == NOT_WAITING:
            waiting[code] = first
            first = code
    cursor[FIRST] = first


@numba.njit(nogil=True, cache=True)
def without_rows(waiting: Slots, cursor: Ints, heads: Slots, other_heads: Slots) -> Ints:
    """Those of the waiting codes that still no row has; none waits any more."""
    count, code = 0, cursor[FIRST]
    while code >= 0:
        count += 1
        code = waiting[code]
    found = np.empty(count, np.int64)
    count, code = 0, cursor[FIRST]
    while code >= 0:
        follower = waiting[code]
        waiting[code] = NOT_WAITING
        if heads[code] < 0 and other_heads[code] < 0:
            found[count] = code
            count += 1
        code = follower
    cursor[FIRST] = NONE
    return found[:count]


@numba.njit(nogil=True, cache=True)
def moved_slots(side: Side, now: int, everything: bool) -> Slots:
    """For each slot its number when the rows that are alive are put together, oldest first; -1 for the others."""
    moved = np.full(side.meta[CAPACITY], -1, np.int32)
    slot, n = side.meta[TAIL], 0
    for _ in range(side.meta[COUNT]):
        if everything or _end(side.meta, side.ends, slot) > now:
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
        if _end(side.meta, side.ends, slot) <= now:
            found[n] = slot
            n += 1
        slot += 1
        if slot == side.meta[CAPACITY]:
            slot = 0
    return found[:n]


@without_counting
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
    meta, ends, meta_, ends_ = left.meta, left.ends, right.meta, right.ends
    found = np.empty(len(left_slots), np.int64)
    for k in range(len(found)):
        found[k] = min(_end(meta, ends, left_slots[k]), _end(meta_, ends_, right_slots[k]))
    return found
