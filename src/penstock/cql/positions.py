"""Places in a text, counted as ``str.splitlines`` does, the way errors are drawn."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, islice

from sqlglot import exp

from penstock.model.errors import Position

_KEY = "position"
_LEAST = 4_096
"""Characters looked through at once."""


class Lines:
    """Where the lines of a text begin; each part of it is looked through once, as far as it is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begins = [0]
        self._known = 0

    def position(self, start: int, end: int) -> Position:
        """The place of ``text[start:end]``; what goes on to the next line is cut at the end of the first."""
        if start >= self._known:
            self._look(start + 1)
        line = bisect_right(self._begins, start)
        first_line = (self._text[start:end].splitlines() or [""])[0]
        return Position(line, start - self._begins[line - 1] + 1, max(1, len(first_line)))

    def _look(self, upto: int) -> None:
        """Find the lines that begin before a place, and some more."""
        upto = max(upto, self._known + _LEAST)
        if self._text[upto - 1 : upto + 1] == "\r\n":
            upto += 1
        piece = self._text[self._known : upto]
        # The caret shows whether the last line has an end.
        lines = (piece + "^").splitlines(keepends=True)
        self._begins += islice(accumulate(map(len, lines), initial=self._known), 1, len(lines))
        self._known = upto


def position_at(text: str, start: int, end: int) -> Position:
    """The place of ``text[start:end]``, for a text of which one place is asked."""
    return Lines(text).position(start, end)


def record_positions(tree: exp.Expr, lines: Lines) -> None:
    """Note line, column and length on every node that came from a token.

    sqlglot only knows the column where a token ends, which is no help for one that spans lines.
    """
    for node in tree.walk():
        start, end = node.meta_get("start"), node.meta_get("end")
        if start is not None and end is not None:
            node.meta[_KEY] = lines.position(start, end + 1)


def position_of(node: exp.Expr) -> Position | None:
    """Where the node stands in its text: its own place, or that of the first node below that has one."""
    for candidate in node.dfs():
        position = candidate.meta_get(_KEY)
        if isinstance(position, Position):
            return position
    return None
