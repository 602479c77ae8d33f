"""The state of groups as rows of one flat array, and the loop that takes changes in and gives changed groups out.

A group is one row of ``ints``: what every group has first, the values of the row given out last, the numbers of each
argument, and what is seldom needed; what a change touches lies close together, because fetching it is most of the work.
``sums`` is the same memory read as doubles. Everything given out is an int64: doubles by their bits, with one NaN and
one zero.

Sums of doubles are kept as a sum, the sum of its rounding errors, and the sum of theirs; the result is rounded once.
It is the exactly rounded sum unless values cancel that are some 2**100 times what is left, or a partial sum exceeds
the range of doubles. NaN and infinities are counted and not added, so they can leave again. Sums of integers and of
DECIMAL, whose values are whole numbers of 128 bits themselves, have 128 bits.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from penstock.model.delta import MIN_TS, Ints

# What every group has first. The bits of ``NULLS`` say which values given out last were NULL, and ``GIVEN`` whether any
# were given out.
ROWS, MARK, NULLS, MOMENT_TS, MOMENT_SUB, FIXED = range(6)
GIVEN = np.int64(1) << 62
# What every group has last: the moment given out last, and how many rows have entered and left.
GIVEN_TS, GIVEN_SUB, ENTERED, LEFT, RARE = range(5)
# What an argument of a group has: a count, and then a sum of integers; or how many are not finite, a sum as three
# doubles, and which those are; or the ends of a queue.
COUNT = 0
LOW, HIGH = 1, 2
SPECIAL, SUM, NAN, POSITIVE, NEGATIVE = 1, 2, 5, 6, 7
HEAD, TAIL = 1, 2
# Kinds of arguments.
COUNTED, INTEGER, DOUBLE, WIDE, QUEUED, BEST = range(6)
WIDTHS = (1, 3, 8, 3, 3, 3)
# What is given out. Of 128 bits the low half is one value and the high half another, by the next number.
GIVE_ROWS, GIVE_COUNT, GIVE_SUM, GIVE_AVERAGE, GIVE_DOUBLE_SUM, GIVE_DOUBLE_AVERAGE, GIVE_FIRST = range(7)
GIVE_WIDE_SUM, GIVE_HIGH_SUM, GIVE_WIDE_AVERAGE, GIVE_HIGH_AVERAGE = range(7, 11)
# Places in ``state``: rows written, instants so far, failures, groups emptied, which values are NULL in some row
# written, and of the nodes of queues the first free one and how many were ever used.
OUT, MARKS, FAILURES, EMPTIED, NULLED, FREE, FRESH, PLACES = range(8)

_NO_NODE = NO_NODE = -1


@nb.njit(nogil=True, cache=True, inline="always")
def _two_sum(a: float, b: float) -> tuple[float, float]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@nb.njit(nogil=True, cache=True)
def _rounded(s0: float, s1: float, s2: float) -> float:
    """The sum of the three, rounded once."""
    a, b = _two_sum(s1, s2)
    h, c = _two_sum(s0, a)
    m, d = _two_sum(c, b)
    h, m = _two_sum(h, m)
    # m may be exactly half of h's last place; then what is beyond it decides.
    if (m > 0.0 and d > 0.0) or (m < 0.0 and d < 0.0):
        y = m * 2.0
        x = h + y
        if x - h == y:
            return x
    return h


@nb.njit(nogil=True, cache=True)
def _quotient(high: int, low: int, n: int) -> float:
    """A 128-bit integer by a count, rounded once."""
    if high == low >> 63 and -(1 << 53) <= low <= (1 << 53):
        return low / n
    negative = high < 0
    h, l = np.uint64(high), np.uint64(low)  # noqa: E741
    if negative:
        l = ~l + np.uint64(1)  # noqa: E741
        h = ~h + (np.uint64(1) if l == np.uint64(0) else np.uint64(0))
    # Enough bits for a double and one more, by shifting the dividend: it stays below 2**127.
    bits, counted = 0, n
    while counted > 0:
        bits, counted = bits + 1, counted >> 1
    length = 0
    a, b = h, l
    while a > np.uint64(0) or b > np.uint64(0):
        b = (b >> np.uint64(1)) | (a << np.uint64(63))
        a = a >> np.uint64(1)
        length += 1
    shift = max(0, bits + 56 - length)
    for _ in range(shift):
        h = (h << np.uint64(1)) | (l >> np.uint64(63))
        l = l << np.uint64(1)  # noqa: E741
    divisor, rest, qh, ql = np.uint64(n), np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(128):
        word = h if i < 64 else l
        bit = (word >> np.uint64(63 - i % 64)) & np.uint64(1)
        rest = (rest << np.uint64(1)) | bit
        qh = (qh << np.uint64(1)) | (ql >> np.uint64(63))
        ql = ql << np.uint64(1)
        if rest >= divisor:
            rest -= divisor
            ql |= np.uint64(1)
    sticky = rest > np.uint64(0)
    exponent = -shift
    while qh > np.uint64(0) or ql >= np.uint64(1 << 54):
        sticky = sticky or (ql & np.uint64(1)) > np.uint64(0)
        ql = (ql >> np.uint64(1)) | (qh << np.uint64(63))
        qh = qh >> np.uint64(1)
        exponent += 1
    # 54 bits are left: the last is the half.
    half = (ql & np.uint64(1)) > np.uint64(0)
    whole = np.int64(ql >> np.uint64(1))
    if half and (sticky or whole & 1):
        whole += 1
    result = math.ldexp(float(whole), exponent + 1)
    return -result if negative else result


@nb.njit(nogil=True, cache=True)
def _decimal_average(high: int, low: int, n: int) -> tuple[Any, Any]:
    """A 128-bit integer by a count, with four more digits, rounded half away from zero: its low and its high half."""
    negative = high < 0
    h, l = np.uint64(high), np.uint64(low)  # noqa: E741
    if negative:
        l = ~l + np.uint64(1)  # noqa: E741
        h = ~h + (np.uint64(1) if l == np.uint64(0) else np.uint64(0))
    divisor, rest, qh, ql = np.uint64(n), np.uint64(0), np.uint64(0), np.uint64(0)
    if h == np.uint64(0):
        ql, rest = l // divisor, l % divisor
    else:
        for i in range(128):
            word = h if i < 64 else l
            rest = (rest << np.uint64(1)) | ((word >> np.uint64(63 - i % 64)) & np.uint64(1))
            qh = (qh << np.uint64(1)) | (ql >> np.uint64(63))
            ql = ql << np.uint64(1)
            if rest >= divisor:
                rest -= divisor
                ql |= np.uint64(1)
    # What is left is less than the count, so that four more digits of it are within 64 bits.
    more, half = np.uint64(10_000), np.uint64(0xFFFF_FFFF)
    digits, rest = rest * more // divisor, rest * more % divisor
    if rest * np.uint64(2) >= divisor:
        digits += np.uint64(1)
    first = (ql & half) * more
    second = (ql >> np.uint64(32)) * more + (first >> np.uint64(32))
    low_half = ((second & half) << np.uint64(32)) | (first & half)
    high_half = qh * more + (second >> np.uint64(32))
    total = low_half + digits
    if total < low_half:
        high_half += np.uint64(1)
    if negative:
        total = ~total + np.uint64(1)
        high_half = ~high_half + (np.uint64(1) if total == np.uint64(0) else np.uint64(0))
    return np.int64(total), np.int64(high_half)


@nb.njit(nogil=True, cache=True)
def _bits(value: float) -> Any:
    if value != value:
        return np.int64(0x7FF8_0000_0000_0000)
    return np.float64(value + 0.0).view(np.int64)


@nb.njit(nogil=True, cache=True)
def _free_first(at: int, g: Any, ints: Any, links: Any, state: Ints) -> None:
    node = ints[g, at + HEAD]
    following = links[node, 0]
    links[node, 0] = state[FREE]
    state[FREE] = node
    ints[g, at + HEAD] = following
    if following >= 0:
        links[following, 1] = _NO_NODE
    else:
        ints[g, at + TAIL] = _NO_NODE


@nb.njit(nogil=True, cache=True)
def _queue(
    key: int, kind: int, at: int, g: Any, ints: Any, entered: int, keys: Ints, numbers: Ints, links: Any, state: Ints
) -> None:
    """A value enters: those before it that are not less can never be first again."""
    empty = ints[g, at + COUNT] == 1
    if kind == BEST and not empty:
        node = ints[g, at + HEAD]
        keys[node] = min(keys[node], key)
        return
    tail = np.int64(_NO_NODE) if empty else ints[g, at + TAIL]
    while tail >= 0 and keys[tail] >= key:
        before = np.int64(links[tail, 1])
        links[tail, 0] = state[FREE]
        state[FREE] = tail
        tail = before
    node = state[FREE]
    if node >= 0:
        state[FREE] = links[node, 0]
    else:
        node = state[FRESH]
        state[FRESH] += 1
    keys[node] = key
    numbers[node] = entered
    links[node, 0] = _NO_NODE
    links[node, 1] = tail
    if tail >= 0:
        links[tail, 0] = node
    else:
        ints[g, at + HEAD] = node
    ints[g, at + TAIL] = node


_READ = nb.types.Array(nb.int64, 1, "C", readonly=True)
_READ_SIGNS = nb.types.Array(nb.int8, 1, "C", readonly=True)
_LINE, _TABLE = nb.int64[::1], nb.int64[:, ::1]
_RUN = nb.void(
    nb.int64, nb.int64, nb.boolean, nb.boolean, nb.int64, _READ, _READ, _READ_SIGNS, _READ, _READ, _READ, _TABLE,
    _TABLE, nb.float64[:, ::1], nb.boolean[:, ::1], _READ, _READ, _READ, _READ, _TABLE, nb.float64[:, ::1], _LINE,
    _LINE, nb.int32[:, ::1], _LINE, _LINE, _LINE, _TABLE, nb.int8[::1], _TABLE, nb.uint8[:, ::1], _LINE,
)  # fmt: skip


@nb.njit(_RUN, nogil=True, cache=True)
def run(
    start: int, stop: int, keyed: bool, leaving: bool, compared: int, ts: Ints, sub: Ints, sign: Any, codes: Ints,
    moment_ts: Ints, moment_sub: Ints, data: Any, highs: Any, doubles: Any, valid: Any, kinds: Ints, places: Ints,
    ops: Ints, args: Ints, ints: Any, sums: Any, keys: Ints, numbers: Ints, links: Any, touched: Ints, touched_by: Ints,
    emptied: Ints, head: Any, signs: Any, values: Any, nulls: Any, state: Ints,
) -> None:  # fmt: skip
    """Take the changes from ``start`` to before ``stop`` in, which are whole instants; write what changed.

    Of the values given out the first ``compared`` decide whether a row has changed. Without keys, the row over nothing
    is given at the beginning. Handing arrays to another function costs more than most of this work, so the common
    path is one function.
    """
    outs, arguments = len(ops), len(kinds)
    rare = ints.shape[1] - RARE
    computed = np.empty(outs, np.int64)
    queues = len(keys) > 0
    i, out, mark, failures, empty = start, state[OUT], state[MARKS], 0, state[EMPTIED]
    nulled = state[NULLED]
    begin = not keyed and mark == 0
    while i < stop or begin:
        mark += 1
        count = 0
        if begin:
            now, now_sub = np.int64(MIN_TS), np.int64(0)
            touched[0], count, begin = 0, 1, False
            ints[0, MARK], touched_by[0] = mark, -1
        else:
            now, now_sub = ts[i], sub[i]

        # Every row of the instant enters or leaves its group.
        while i < stop and ts[i] == now and sub[i] == now_sub:
            g = codes[i]
            change = np.int64(sign[i])
            if ints[g, MARK] != mark:
                ints[g, MARK] = mark
                touched[count], touched_by[count] = g, i
                count += 1
            for a in range(arguments):
                if not valid[a, i]:
                    continue
                kind, at = kinds[a], places[a]
                number = ints[g, at + COUNT] + change
                ints[g, at + COUNT] = number
                if kind == DOUBLE:
                    x = doubles[a, i]
                    if x - x == 0.0:
                        s, e = _two_sum(sums[g, at + SUM], x * change)
                        sums[g, at + SUM] = s
                        s, e = _two_sum(sums[g, at + SUM + 1], e)
                        sums[g, at + SUM + 1] = s
                        sums[g, at + SUM + 2] += e
                    else:
                        ints[g, at + SPECIAL] += change
                        ints[g, at + (NAN if x != x else POSITIVE if x > 0.0 else NEGATIVE)] += change
                    if number == ints[g, at + SPECIAL]:
                        sums[g, at + SUM] = sums[g, at + SUM + 1] = sums[g, at + SUM + 2] = 0.0
                elif kind in (INTEGER, WIDE):
                    low, n = ints[g, at + LOW], data[a, i]
                    above = highs[a, i] if kind == WIDE else np.int64(-1 if n < 0 else 0)
                    if change > 0:
                        ints[g, at + LOW] = low + n
                        ints[g, at + HIGH] += above + (1 if np.uint64(low + n) < np.uint64(low) else 0)
                    else:
                        ints[g, at + LOW] = low - n
                        ints[g, at + HIGH] -= above + (1 if np.uint64(low) < np.uint64(n) else 0)
                elif kind >= QUEUED:
                    if change > 0:
                        _queue(data[a, i], kind, at, g, ints, ints[g, rare + ENTERED], keys, numbers, links, state)
                    elif number == 0 or (kind == QUEUED and numbers[ints[g, at + HEAD]] == ints[g, rare + LEFT]):
                        _free_first(at, g, ints, links, state)
            if change > 0:
                ints[g, MOMENT_TS], ints[g, MOMENT_SUB] = moment_ts[i], moment_sub[i]
            if queues:
                ints[g, rare + (ENTERED if change > 0 else LEFT)] += 1
            ints[g, ROWS] += change
            i += 1

        # Groups whose row is another now; old rows are written first.
        entering = 0
        for t in range(count):
            g = touched[t]
            old_bits = ints[g, NULLS]
            exists, was = ints[g, ROWS] > 0 or not keyed, old_bits & GIVEN > 0
            differs = exists != was
            null_bits = GIVEN
            if exists:
                for o in range(outs):
                    op, at = ops[o], args[o]
                    value, null = np.int64(0), False
                    if op == GIVE_ROWS:
                        value = ints[g, ROWS]
                    elif op == GIVE_COUNT:
                        value = ints[g, at + COUNT]
                    elif ints[g, at + COUNT] == 0:
                        null = True
                    elif op >= GIVE_DOUBLE_SUM and op <= GIVE_DOUBLE_AVERAGE:
                        if ints[g, at + SPECIAL] == 0:
                            total = _rounded(sums[g, at + SUM], sums[g, at + SUM + 1], sums[g, at + SUM + 2])
                        elif ints[g, at + NAN] > 0 or (ints[g, at + POSITIVE] > 0 and ints[g, at + NEGATIVE] > 0):
                            total = np.nan
                        else:
                            total = np.inf if ints[g, at + POSITIVE] > 0 else -np.inf
                        value = _bits(total if op == GIVE_DOUBLE_SUM else total / ints[g, at + COUNT])
                    elif op == GIVE_FIRST:
                        value = keys[ints[g, at + HEAD]]
                    elif op == GIVE_WIDE_SUM:
                        value = ints[g, at + LOW]
                    elif op == GIVE_HIGH_SUM:
                        value = ints[g, at + HIGH]
                    elif op >= GIVE_WIDE_AVERAGE:
                        lower, upper = _decimal_average(ints[g, at + HIGH], ints[g, at + LOW], ints[g, at + COUNT])
                        value = lower if op == GIVE_WIDE_AVERAGE else upper
                    elif op == GIVE_AVERAGE:
                        value = _bits(_quotient(ints[g, at + HIGH], ints[g, at + LOW], ints[g, at + COUNT]))
                    elif ints[g, at + HIGH] == ints[g, at + LOW] >> 63:
                        value = ints[g, at + LOW]
                    else:
                        null = True
                        failures += 1
                    computed[o] = value
                    if null:
                        null_bits |= np.int64(1) << np.int64(o)
                    if o < compared and (value != ints[g, FIXED + o] or null != (((old_bits >> o) & 1) > 0)):
                        differs = True
            if ints[g, ROWS] == 0:
                ints[g, rare + ENTERED] = ints[g, rare + LEFT] = 0
                ints[g, MOMENT_TS], ints[g, MOMENT_SUB] = MIN_TS, 0
                emptied[empty] = g
                empty += 1
            if not differs:
                continue
            if was and leaving:
                nulled |= old_bits
                head[0, out], head[1, out], head[2, out] = touched_by[t], now, now_sub
                head[3, out], head[4, out], signs[out] = ints[g, rare + GIVEN_TS], ints[g, rare + GIVEN_SUB], -1
                for o in range(outs):
                    values[o, out], nulls[o, out] = ints[g, FIXED + o], (old_bits >> o) & 1
                out += 1
            ints[g, NULLS] = null_bits if exists else 0
            if exists:
                for o in range(outs):
                    ints[g, FIXED + o] = computed[o]
                nulled |= null_bits
                if leaving:
                    ints[g, rare + GIVEN_TS], ints[g, rare + GIVEN_SUB] = ints[g, MOMENT_TS], ints[g, MOMENT_SUB]
                touched[entering], touched_by[entering] = g, touched_by[t]
                entering += 1
        for t in range(entering):
            g = touched[t]
            head[0, out], head[1, out], head[2, out] = touched_by[t], now, now_sub
            head[3, out], head[4, out], signs[out] = ints[g, MOMENT_TS], ints[g, MOMENT_SUB], 1
            for o in range(outs):
                values[o, out], nulls[o, out] = ints[g, FIXED + o], (ints[g, NULLS] >> o) & 1
            out += 1
    state[OUT], state[MARKS], state[EMPTIED], state[NULLED] = out, mark, empty, nulled
    state[FAILURES] += failures


def new_state() -> npt.NDArray[np.int64]:
    """``state`` before the first change."""
    state = np.zeros(PLACES, np.int64)
    state[FREE] = _NO_NODE
    return state
