"""Places in a text, counted as ``str.splitlines`` does, the way errors are drawn."""

from __future__ import annotations

from sqlglot import exp

from penstock.errors import Position

_KEY = "position"


def position_at(text: str, start: int, end: int) -> Position:
    """The place of ``text[start:end]``; what goes on to the next line is cut at the end of the first."""
    before = (text[:start] + "^").splitlines()
    first_line = (text[start:end].splitlines() or [""])[0]
    return Position(len(before), len(before[-1]), max(1, len(first_line)))


def record_positions(tree: exp.Expr, text: str) -> None:
    """Note line, column and length on every node that came from a token.

    sqlglot only knows the column where a token ends, which is no help for one that spans lines.
    """
    for node in tree.walk():
        start, end = node.meta_get("start"), node.meta_get("end")
        if start is not None and end is not None:
            node.meta[_KEY] = position_at(text, start, end + 1)


def position_of(node: exp.Expr) -> Position | None:
    """Where the node stands in its text: its own place, or that of the first node below that has one."""
    for candidate in node.dfs():
        position = candidate.meta_get(_KEY)
        if isinstance(position, Position):
            return position
    return None
