"""Dropping the oldest rows of a stream that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph.message import Message
from penstock.model.errors import SpillError
from penstock.runtime.storage.line import Line
from penstock.runtime.storage.node import Node, Part

if TYPE_CHECKING:
    from penstock.runtime.storage.queue import Queue


def trim(line: Line) -> None:
    """Let the oldest rows go until what waits is within the bound, or what came last has found room. Of each reader
    the last message stays, if without rows: it says how far the sender is."""
    while line.recent is None and _is_too_much(line):
        with line.lock:
            found = [q for q in line.readers if len(q) > 1 or (q and _can_cut(line, q[0][0]))]
            if not found:
                return
            whole = min(found, key=lambda q: q[0][1])[0][0].whole
            holders = [q for q in found if q[0][0].whole is whole]
            keep = min(_kept(line, whole), max(q[0][0].rows for q in holders))
            message = _seen(line, whole) if keep or any(len(q) == 1 for q in holders) else None
            if message is None:
                keep, holders = 0, [q for q in holders if len(q) > 1]
            _leave_gap(line, message, holders, keep)
            rows = _cut(line, whole, message, holders, keep)
        for _ in holders:
            whole.release()
        if rows and line.storage is not None:
            line.storage.dropped(line, rows)
        if keep or not holders:
            return


def _leave_gap(line: Line, message: Message | None, holders: list[Queue], keep: int) -> None:
    """Say which instants will lack rows, while nobody can take later ones."""
    lost = [node for node in (q[0][0] for q in holders) if node.rows > keep]
    if lost and line.storage is not None:
        last = int(message.data.ts[-keep - 1]) if keep and message is not None else max(node.last for node in lost)
        line.storage.leaves_gap(line, min(node.first[0] for node in lost), last)


def _is_too_much(line: Line) -> bool:
    bound, storage = line.bound, line.storage
    if bound is not None and bound.rows is not None:
        return line.rows_in - line.rows_out > bound.rows
    if bound is not None and bound.bytes is not None:
        return line.bytes_in - line.bytes_out > bound.bytes
    return line.crowded and storage is not None and storage.is_exceeded


def _can_cut(line: Line, node: Node) -> bool:
    """Whether the first rows of a message can be dropped alone."""
    return line.bound is not None and node.rows > 0 and node.line is line


def _kept(line: Line, node: Node) -> int:
    """Of the oldest message, how many rows may stay."""
    bound = line.bound
    if bound is None or not _can_cut(line, node):
        return 0
    if bound.rows is not None:
        return max(node.rows - (line.rows_in - line.rows_out - bound.rows), 0)
    room = node.size - (line.bytes_in - line.bytes_out - (bound.bytes or 0))
    return max(room * node.rows // max(node.size, 1), 0)


def _seen(line: Line, node: Node) -> Message | None:
    """The message of a node; None if it cannot be read."""
    try:
        return line.read(node) if node.message is None else node.message
    except SpillError:
        return None  # whoever takes it will say so


def _cut(line: Line, node: Node, message: Message | None, holders: list[Queue], keep: int) -> int:
    """Let those for whom a message is the first have no more of it than its last rows; the last message of each
    stays, if without rows. Gives how many rows were dropped."""
    dropped = 0
    staying = [q for q in holders if keep or len(q) == 1]
    part: Node | None = None
    if staying and message is not None:
        part = Part(node, message, keep, len(staying))
        line.rows_in += part.rows
        line.bytes_in += part.size
    for queue in holders:
        entry = queue[0]
        rows = entry[0].rows
        if part is None or not (keep or len(queue) == 1):
            queue.popleft()
            lost = rows
        elif rows > keep:
            queue[0] = (part, *entry[1:])
            lost = rows - keep
        else:
            queue[0] = (part.rest(entry[0].read()), *entry[1:])
            lost = 0
        queue.dropped += lost
        dropped += lost
    return dropped
