"""The walk of a window join: both inputs in the order of their instants, pairs of stored rows out.

Each side keeps its rows in a ring, in the order in which they entered; they leave in that order too. Rows with the
same key form a chain from the newest to the oldest: ``keys[code, side]`` is the newest slot, ``following[slot]`` the
one that was the newest before it. Rows that leave are not unlinked: a link is followed only to a row that is older than
the one that has it, and a slot that was used again always holds a newer one.

With ends (rows say when they leave), rows whose ends are not in the order of their entering stay in the ring beyond
their end until they are the oldest; they are skipped, and when a probe meets them they lose their code and their place
in the chain, unless they are alone in it: a key has no rows when its chain is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from penstock.kernels import ordered
from penstock.kernels.ordered import GREATER_EQUAL, LESS, LESS_EQUAL, Ordered, without_counting
from penstock.model.delta import MAX_TS, Ints, Signs

_Function = TypeVar("_Function", bound=Callable[..., Any])

Slots = npt.NDArray[np.int32]
Keys = npt.NDArray[np.int32]
"""What both sides know of each key, together because fetching it is most of the work."""

LEFT_HEAD, RIGHT_HEAD, WAITING = 0, 1, 2
"""Places in what is known of a key: the newest row of each side, and whether it waits for release."""

HASH, ORDER, CROSS = 0, 1, 2
"""How partners are found: by key, by an inequality, or all are."""

TAIL, COUNT, CAPACITY, ENDS, SHIFT, IN_ORDER = 0, 1, 2, 3, 4, 5
"""Places in a side's ``meta``. ``IN_ORDER``: ends are in the order of entering, so all rows in the ring are alive."""

NO_ENDS, STORED, SHIFTED, NEVER = 0, 1, 2, 3
"""Where a row's end is: nowhere, in ``ends``, ``SHIFT`` after what stands in ``ends``, or beyond all time."""

LEFT, RIGHT, WRITTEN, STATUS, FIRST, SEEN = 0, 1, 2, 3, 4, 5
"""Places in the cursor: rows taken of each input, pairs written, why the walk stopped, the first waiting key, and
something that makes reading ahead not look useless to the compiler."""

_AHEAD = 64
_IN_CACHE = 1 << 13
"""So few keys are near anyway."""

LOST = -2
"""A row without a key has the code -1; one that lost its code c, ``LOST - c``, until the walk is over."""

NONE, NOT_WAITING = -1, -2
"""A key that lost its last row waits: it is released after the walk if it got no new one. ``keys[code, WAITING]`` is
the key that began to wait before it, ``NONE`` for the first of all."""

DONE, FULL, SHORT_OF_BLOCKS = 0, 1, 2


class Side(NamedTuple):
    """What the walk reads and writes of one side."""

    code: Slots
    following: Slots
    ends: Ints
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


def unknown(keys: int) -> Keys:
    """What is known of keys without rows."""
    fresh = np.full((keys, 3), -1, np.int32)
    fresh[:, WAITING] = NOT_WAITING
    return fresh


NO_KEYS = unknown(0)


def some(pairs: Pairs, chosen: slice | Ints) -> Pairs:
    """Some of the pairs."""
    ts, sub, sign, left, right = pairs
    return Pairs(ts[chosen], sub[chosen], sign[chosen], left[chosen], right[chosen])


def cursor() -> Ints:
    """Where a walk begins."""
    return np.array([0, 0, 0, DONE, NONE, 0], np.int64)


def near() -> Slots:
    """Room that the walk needs for itself."""
    return np.empty(_AHEAD, np.int32)


def room(size: int) -> Pairs:
    """Room for this many pairs."""
    return Pairs(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int8),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
    )


def _inlined(function: _Function) -> _Function:
    """Compile a function into those that call it: handing arrays over costs more than what it does."""
    options: dict[str, Any] = {"nogil": True, "cache": True, "_nrt": False, "forceinline": True}
    return numba.njit(**options)(function)  # type: ignore[no-any-return]


@_inlined
def _end(meta: Ints, ends: Ints, slot: int) -> int:
    kind = meta[ENDS]
    if kind == STORED:
        return int(ends[slot])
    if kind == SHIFTED:
        return int(ends[slot] + meta[SHIFT])
    return MAX_TS


@_inlined
def _age(meta: Ints, slot: int) -> int:
    """How many rows of the ring are older."""
    place = int(slot - meta[TAIL])
    return place if place >= 0 else int(place + meta[CAPACITY])


@_inlined
def _newest(meta: Ints) -> int:
    """The slot behind the newest row."""
    slot = int(meta[TAIL] + meta[COUNT])
    return slot if slot < meta[CAPACITY] else int(slot - meta[CAPACITY])


@_inlined
def _pop(meta: Ints, code: Slots, keys: Keys, me: int, first: int) -> int:
    """The oldest row leaves. A key that then has no rows on either side becomes the first that waits for release."""
    slot = int(meta[TAIL])
    key = code[slot]
    if key >= 0 and len(keys) > 0 and keys[key, me] == slot:
        keys[key, me] = -1
        if keys[key, 1 - me] < 0 and keys[key, WAITING] == NOT_WAITING:
            keys[key, WAITING] = first
            first = int(key)
    slot += 1
    meta[TAIL] = slot if slot < meta[CAPACITY] else 0
    meta[COUNT] -= 1
    return first


@_inlined
def _enter(meta: Ints, code: Slots, following: Slots, keys: Keys, me: int) -> None:
    """The row behind the newest one becomes the newest."""
    slot = _newest(meta)
    meta[COUNT] += 1
    key = code[slot]
    if key >= 0 and len(keys) > 0:
        following[slot] = keys[key, me]
        keys[key, me] = slot


@_inlined
def _probe_key(
    meta: Ints, code: Slots, following: Slots, ends: Ints, keys: Keys, side: int, key: int, now: int, slot: int,
    mine: Slots, theirs: Slots, k: int,
) -> int:  # fmt: skip
    """Partners of ``slot`` by key, from place k of the output on. The new k, or -1 if the output is full."""
    before, current = -1, int(keys[key, side])
    if meta[IN_ORDER] != 0:
        tail, capacity = meta[TAIL], meta[CAPACITY]
        age = capacity
        while current >= 0:
            older = current - tail
            if older < 0:
                older += capacity
            if older >= age:
                return k
            if k == len(mine):
                return -1
            mine[k] = slot
            theirs[k] = current
            k += 1
            age = older
            current = int(following[current])
        return k
    while current >= 0:
        follower = following[current]
        if follower >= 0 and _age(meta, follower) >= _age(meta, current):
            follower = -1
        if _end(meta, ends, current) > now:
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
                keys[key, side] = follower
            code[current] = LOST - code[current]
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


@_inlined
def _probe(
    how: int, code: Slots, slot: int, now: int, meta: Ints, their_code: Slots, following: Slots, ends: Ints,
    keys: Keys, side: int, mine: Slots, theirs: Slots, k: int,
) -> int:  # fmt: skip
    """Partners of the row at ``slot`` of one side on the other, ``side``, whose state follows ``now``."""
    if code[slot] < 0:
        return k
    if how == HASH:
        return _probe_key(meta, their_code, following, ends, keys, side, code[slot], now, slot, mine, theirs, k)
    return _probe_all(meta, ends, now, slot, mine, theirs, k)


@_inlined
def _stamp(ts: Ints, sub: Ints, sign: Signs, start: int, stop: int, now: int, then: int, change: int) -> None:
    for k in range(start, stop):
        ts[k] = now
        sub[k] = then
        sign[k] = change


@without_counting
def _touch(meta: Ints, code: Slots, pending: int, keys: Keys, other: int, following: Slots, near: Slots) -> int:
    """Read what the next rows will need: one by one each would wait for memory, here the waits overlap.

    ``following`` is that of the other side. Of the ``pending`` changes some are rows that leave, so the last slots
    looked at may hold anything. ``near`` is room for what has been read.
    """
    seen, n = 0, min(_AHEAD, pending)
    slot = _newest(meta)
    for i in range(n):
        key = code[slot]
        near[i] = keys[key, other] if 0 <= key < len(keys) else -1
        slot += 1
        if slot == meta[CAPACITY]:
            slot = 0
    for _ in range(2):
        for i in range(n):
            if 0 <= near[i] < len(following):
                near[i] = following[near[i]]
                seen += near[i]
    slot = int(meta[TAIL])
    for _ in range(min(_AHEAD, meta[COUNT])):
        key = code[slot]
        if key >= 0:
            seen += keys[key, other]
        slot += 1
        if slot == meta[CAPACITY]:
            slot = 0
    return seen


@without_counting
def walk(
    how: int, operator: int, mirrored: int, emit_leaving: bool, left: Side, right: Side, keys: Keys,
    lefts: Changes, rights: Changes, cursor: Ints, out: Pairs, near: Slots, until: int, until_: int,
) -> None:  # fmt: skip
    """Take changes from where the cursor stands until all are taken or the output is full.

    Rows that enter have been put into the ring behind the newest one. At each instant rows leave first, of both
    sides, then left rows enter, then right ones, so each pair is met once. Stopping is possible before any row:
    what is left of an instant is then what its later parts would have been.

    No left row whose end is after ``until`` leaves by its end, and no right row whose end is after ``until_``: the
    other side, which is behind, may still have partners for it.
    """
    code, following, ends, value, meta, tree = left
    code_, following_, ends_, value_, meta_, tree_ = right
    ts, sub, sign = lefts
    ts_, sub_, sign_ = rights
    out_ts, out_sub, out_sign, out_left, out_right = out
    i, j, k, first = cursor[LEFT], cursor[RIGHT], cursor[WRITTEN], cursor[FIRST]
    n, m = len(ts), len(ts_)
    by_order = how == ORDER
    status = DONE
    touched, touched_ = i, j
    if how != HASH or len(keys) <= _IN_CACHE:
        touched, touched_ = n, m
    while status == DONE and (i < n or j < m):
        if touched <= i < n:
            touched = i + _AHEAD
            cursor[SEEN] = _touch(meta, code, n - i, keys, RIGHT_HEAD, following_, near)
        if touched_ <= j < m:
            touched_ = j + _AHEAD
            cursor[SEEN] = _touch(meta_, code_, m - j, keys, LEFT_HEAD, following, near)
        if j == m or (i < n and (ts[i] < ts_[j] or (ts[i] == ts_[j] and sub[i] <= sub_[j]))):
            now, then = ts[i], sub[i]
        else:
            now, then = ts_[j], sub_[j]
        while meta[COUNT] > 0 and _end(meta, ends, meta[TAIL]) <= min(now, until):
            if by_order:
                _take_out(tree, meta, code, value)
            first = _pop(meta, code, keys, LEFT_HEAD, first)
        while meta_[COUNT] > 0 and _end(meta_, ends_, meta_[TAIL]) <= min(now, until_):
            if by_order:
                _take_out(tree_, meta_, code_, value_)
            first = _pop(meta_, code_, keys, RIGHT_HEAD, first)

        while i < n and ts[i] == now and sub[i] == then and sign[i] < 0:
            if emit_leaving:
                if by_order:
                    k_ = _probe_order(
                        operator, code, value, meta[TAIL], now, meta_, ends_, tree_, out_left, out_right, k
                    )
                else:
                    k_ = _probe(
                        how, code, meta[TAIL], now, meta_, code_, following_, ends_, keys, RIGHT_HEAD, out_left,
                        out_right, k,
                    )  # fmt: skip
                if k_ < 0:
                    status = FULL
                    break
                _stamp(out_ts, out_sub, out_sign, k, k_, now, then, -1)
                k = k_
            if by_order:
                _take_out(tree, meta, code, value)
            first = _pop(meta, code, keys, LEFT_HEAD, first)
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
                        how, code_, meta_[TAIL], now, meta, code, following, ends, keys, LEFT_HEAD, out_right,
                        out_left, k,
                    )  # fmt: skip
                if k_ < 0:
                    status = FULL
                    break
                _stamp(out_ts, out_sub, out_sign, k, k_, now, then, -1)
                k = k_
            if by_order:
                _take_out(tree_, meta_, code_, value_)
            first = _pop(meta_, code_, keys, RIGHT_HEAD, first)
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
                k_ = _probe(
                    how, code, slot, now, meta_, code_, following_, ends_, keys, RIGHT_HEAD, out_left, out_right, k
                )
            if k_ < 0:
                status = FULL
                break
            _stamp(out_ts, out_sub, out_sign, k, k_, now, then, 1)
            k = k_
            _enter(meta, code, following, keys, LEFT_HEAD)
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
                k_ = _probe(
                    how, code_, slot, now, meta, code, following, ends, keys, LEFT_HEAD, out_right, out_left, k
                )
            if k_ < 0:
                status = FULL
                break
            _stamp(out_ts, out_sub, out_sign, k, k_, now, then, 1)
            k = k_
            _enter(meta_, code_, following_, keys, RIGHT_HEAD)
            if by_order and code_[slot] >= 0:
                ordered.insert(tree_, value_[slot], slot)
            j += 1
    cursor[LEFT], cursor[RIGHT], cursor[WRITTEN], cursor[STATUS], cursor[FIRST] = i, j, k, status, first


@without_counting
def peek(
    how: int, operator: int, code: Slots, value: Ints, ts: Ints, side: Side, keys: Keys, head: int, cursor: Ints,
    mine: Slots, theirs: Slots,
) -> None:  # fmt: skip
    """Partners on a side of rows that are not of this walk: those that have not ended by the time of the row, which may
    be ahead of all that the walk has come to. Nothing is changed.

    ``cursor[LEFT]`` rows have been looked at so far; it stops before a row for whose partners there is no room.
    """
    r, k = cursor[LEFT], 0
    _, following, ends, _, meta, tree = side
    room, status = len(mine), DONE
    while r < len(ts) and status == DONE:
        before, now = k, ts[r]
        if code[r] < 0:
            r += 1
            continue
        if how == HASH:
            current, age = keys[code[r], head], meta[CAPACITY]
            while current >= 0 and _age(meta, current) < age:
                if _end(meta, ends, current) > now:
                    if k == room:
                        status = FULL
                        break
                    mine[k], theirs[k] = r, current
                    k += 1
                age = _age(meta, current)
                current = following[current]
        elif how == ORDER:
            upward = operator in (LESS, LESS_EQUAL)
            place, index = ordered.find(tree, value[r], operator in (LESS, GREATER_EQUAL))
            first = place if upward else 0
            last = tree.meta[ordered.COUNT] if upward else min(place + 1, tree.meta[ordered.COUNT])
            for p in range(first, last):
                block = tree.order[p]
                start = index if upward and p == place else 0
                stop = index if not upward and p == place else tree.lengths[block]
                for q in range(start, stop):
                    if _end(meta, ends, tree.slots[block, q]) > now and status == DONE:
                        if k == room:
                            status = FULL
                        else:
                            mine[k], theirs[k] = r, tree.slots[block, q]
                            k += 1
        else:
            current = meta[TAIL]
            for _ in range(meta[COUNT]):
                if _end(meta, ends, current) > now:
                    if k == room:
                        status = FULL
                        break
                    mine[k], theirs[k] = r, current
                    k += 1
                current += 1
                if current == meta[CAPACITY]:
                    current = 0
        if status == DONE:
            r += 1
        else:
            k = before
    cursor[LEFT], cursor[WRITTEN], cursor[STATUS] = r, k, status


@without_counting
def enter_all(side: Side, keys: Keys, me: int, count: int, cursor: Ints) -> None:
    """So many rows behind the newest one enter, without looking for partners; the order is not told of them.

    What is known of the keys of the next ones is read before it is needed: one by one each would wait for memory.
    """
    meta, code = side.meta, side.code
    for start in range(0, count, _AHEAD):
        slot, seen, n = _newest(meta), 0, min(_AHEAD, count - start)
        if len(keys) > _IN_CACHE:
            for i in range(n):
                key = code[(slot + i) % meta[CAPACITY]]
                if key >= 0:
                    seen += keys[key, me]
        for _ in range(n):
            _enter(meta, code, side.following, keys, me)
        cursor[SEEN] = seen


@without_counting
def put_in_order(side: Side, start: int) -> int:
    """The order is told of the rows of which ``start`` or more are older; how far it came before it had no room."""
    code, _, _, value, meta, tree = side
    for age in range(start, meta[COUNT]):
        slot = (meta[TAIL] + age) % meta[CAPACITY]
        if code[slot] >= 0:
            if tree.meta[ordered.FREE] == 0:
                return age
            ordered.insert(tree, value[slot], slot)
    return int(meta[COUNT])


@without_counting
def _take_out(tree: Ordered, meta: Ints, code: Slots, value: Ints) -> None:
    """The oldest row leaves the order."""
    if code[meta[TAIL]] >= 0:
        ordered.remove_first(tree, value[meta[TAIL]])


@without_counting
def expire(how: int, side: Side, keys: Keys, me: int, now: int, cursor: Ints) -> None:
    """Rows that have ended leave, as far as they are the oldest."""
    code, _, ends, value, meta, tree = side
    first = cursor[FIRST]
    while meta[COUNT] > 0 and _end(meta, ends, meta[TAIL]) <= now:
        if how == ORDER:
            _take_out(tree, meta, code, value)
        first = _pop(meta, code, keys, me, first)
    cursor[FIRST] = first


@without_counting
def leave(how: int, side: Side, keys: Keys, me: int, count: int, cursor: Ints) -> None:
    """So many of the oldest rows leave."""
    code, _, _, value, meta, tree = side
    first = cursor[FIRST]
    for _ in range(count):
        if how == ORDER:
            _take_out(tree, meta, code, value)
        first = _pop(meta, code, keys, me, first)
    cursor[FIRST] = first


@without_counting
def _without_rows(keys: Keys, code: int) -> bool:
    return bool(keys[code, LEFT_HEAD] < 0 and keys[code, RIGHT_HEAD] < 0)


@without_counting
def wait(codes: Slots, keys: Keys, cursor: Ints) -> None:
    """Codes of rows that were forgotten wait for release if no row has them."""
    first = cursor[FIRST]
    for code in codes:
        if code >= 0 and _without_rows(keys, code) and keys[code, WAITING] == NOT_WAITING:
            keys[code, WAITING] = first
            first = code
    cursor[FIRST] = first


@numba.njit(nogil=True, cache=True)
def without_rows(keys: Keys, cursor: Ints) -> Ints:
    """Those of the waiting codes that still no row has; none waits any more."""
    count, code = 0, cursor[FIRST]
    while code >= 0:
        count += 1
        code = keys[code, WAITING]
    found = np.empty(count, np.int64)
    count, code = 0, cursor[FIRST]
    while code >= 0:
        follower = keys[code, WAITING]
        keys[code, WAITING] = NOT_WAITING
        if _without_rows(keys, code):
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
def chain(code: Slots, keys: Keys, me: int, count: int, following: Slots) -> None:
    """Link the rows at 0 … count-1, oldest first, into the chains of their keys."""
    keys[:, me] = -1
    for slot in range(count):
        if code[slot] >= 0:
            following[slot] = keys[code[slot], me]
            keys[code[slot], me] = slot


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
