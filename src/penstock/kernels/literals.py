"""Rows of plain literals, cut into fields in one pass over their characters: see ``cql.plain_values``."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from penstock.model.delta import Ints

# How a field is written: a number or word, a text, or a text with the name of its type before it.
BARE, TEXT, DATE, TIMESTAMP = range(4)
# How a piece of text ends: behind the last row, within rows, or with something that is no row of plain literals.
DONE, MORE, OTHER = range(3)
# What ``cut`` tells: how the piece ends, the bytes that its whole rows take, their number, their width, and the bytes
# of their fields.
ENDS, TAKEN, ROWS, WIDTH, CONTENT, TOLD = range(6)

_QUOTE, _OPEN, _COMMA, _CLOSE, _MINUS, _PLUS, _POINT, _E = b"'(,)-+.e"
_NAME_OF_DATE = np.frombuffer(b"date", np.uint8)
_NAME_OF_TIMESTAMP = np.frombuffer(b"timestamp", np.uint8)
_WORDS = tuple(np.frombuffer(word, np.uint8) for word in (b"null", b"true", b"false"))


@nb.njit(nogil=True, cache=True)
def _after_blanks(data: Any, at: int) -> int:
    while at < len(data) and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@nb.njit(nogil=True, cache=True)
def _after_digits(data: Any, at: int) -> int:
    while at < len(data) and 48 <= data[at] <= 57:
        at += 1
    return at


@nb.njit(nogil=True, cache=True)
def _after_number(data: Any, at: int) -> int:
    """The end of the number that begins here; the same place where none does. One at the end may not be whole."""
    first = at
    if data[at] == _MINUS:
        at += 1
    whole = at
    at = _after_digits(data, at)
    digits = at - whole
    if at < len(data) and data[at] == _POINT:
        fraction = at + 1
        at = _after_digits(data, fraction)
        digits += at - fraction
    if digits and at < len(data) and data[at] | 0x20 == _E:
        at += 1
        if at < len(data) and (data[at] == _PLUS or data[at] == _MINUS):
            at += 1
        exponent = at
        at = _after_digits(data, at)
        digits = at - exponent
    return at if digits or at >= len(data) else first


@nb.njit(nogil=True, cache=True)
def _after_word(data: Any, at: int) -> int:
    """The end of NULL, TRUE or FALSE; the same place where none of them begins here."""
    for word in _WORDS:
        i = 0
        while i < len(word) and at + i < len(data) and data[at + i] | 0x20 == word[i]:
            i += 1
        if i == len(word) or at + i == len(data):
            return at + i
    return at


@nb.njit(nogil=True, cache=True)
def _after_name(data: Any, at: int, name: Any) -> int:
    """The place of the quote behind the name of a type, maybe beyond the end; ``at`` where they are not there."""
    for i in range(len(name)):
        if at + i >= len(data):
            return len(data)
        if data[at + i] | 0x20 != name[i]:
            return at
    end = _after_blanks(data, at + len(name))
    return end if end >= len(data) or data[end] == _QUOTE else at


_READ = nb.types.Array(nb.uint8, 1, "C", readonly=True)


@nb.njit(nb.void(_READ, nb.int64, nb.uint8[::1], nb.int32[::1], nb.uint8[::1], nb.int64[::1]), nogil=True, cache=True)
def cut(data: Any, width: int, content: Any, offsets: Any, forms: Any, told: Ints) -> None:
    """Cut the rows with which ``data`` begins; ``width`` 0: the first row tells it.

    ``content`` has the characters of all fields without quotes, ``offsets`` where each field ends in it, ``forms`` how
    it is written. Rows that are not whole do not count.
    """
    n, at, fields, written = len(data), 0, 0, 0
    told[ENDS], told[TAKEN], told[ROWS], told[CONTENT] = MORE, 0, 0, 0
    offsets[0] = 0
    while True:
        at = _after_blanks(data, at)
        if at >= n:
            return
        if data[at] != _OPEN:
            told[ENDS] = OTHER
            return
        count = 0
        while True:
            at = _after_blanks(data, at + 1)
            if at >= n:
                return
            form, first = data[at] | 0x20, at
            if form == ord("d"):
                at = _after_name(data, at, _NAME_OF_DATE)
            elif form == ord("t"):
                at = _after_name(data, at, _NAME_OF_TIMESTAMP)
            if at >= n:
                return
            if data[at] == _QUOTE:
                forms[fields] = TEXT if at == first else DATE if form == ord("d") else TIMESTAMP
                at += 1
                while at < n:
                    if data[at] == _QUOTE:
                        at += 1
                        if at >= n or data[at] != _QUOTE:
                            break
                    content[written] = data[at]
                    written += 1
                    at += 1
            else:
                forms[fields] = BARE
                at = _after_number(data, first)
                if at == first:
                    at = _after_word(data, first)
                if at == first:
                    told[ENDS] = OTHER
                    return
                for i in range(first, at):
                    content[written] = data[i]
                    written += 1
            at = _after_blanks(data, at)
            if at >= n:
                return
            fields += 1
            count += 1
            offsets[fields] = written
            if data[at] == _CLOSE:
                break
            if data[at] != _COMMA:
                told[ENDS] = OTHER
                return
        if width == 0:
            width = count
        elif count != width:
            told[ENDS] = OTHER
            return
        behind = at + 1
        at = _after_blanks(data, behind)
        if at < n and data[at] == _COMMA:
            told[TAKEN], told[ROWS], told[CONTENT], told[WIDTH] = at + 1, told[ROWS] + 1, written, width
            at += 1
            continue
        # At the end of the piece the caller knows whether a comma can follow.
        if at < n:
            told[ENDS], told[TAKEN], told[ROWS], told[CONTENT], told[WIDTH] = (
                DONE, behind, told[ROWS] + 1, written, width
            )  # fmt: skip
        return
