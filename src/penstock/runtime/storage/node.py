"""One message that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.graph.message import Mark, Message, chosen, cut
from penstock.model.delta import Instant
from penstock.runtime.storage.files import Place, Segment

if TYPE_CHECKING:
    from penstock.runtime.storage.line import Line


class Node:
    """A message that waits. ``left``: how many times it is still to be taken.

    ``message`` is None while it is on disk only; ``disk``: where that is.
    """

    __slots__ = ("disk", "left", "line", "message", "rows", "size")

    def __init__(self, line: Line, message: Message, rows: int, size: int, left: int) -> None:
        self.line = line
        self.message: Message | None = message
        self.rows = rows
        self.size = size
        self.left = left
        self.disk: Spilled | None = None

    def __len__(self) -> int:
        return self.rows

    @property
    def whole(self) -> Node:
        """The message of which this is the rest; itself if it is none."""
        return self

    @property
    def mark(self) -> Mark:
        """How far the sender is."""
        message = self.message
        if message is not None:
            return message.mark
        assert self.disk is not None
        return self.disk.mark

    @property
    def first(self) -> Instant:
        """The instant of the first row; of a message without rows, its frontier."""
        message = self.message
        if message is not None:
            return message.first
        assert self.disk is not None
        return self.disk.first

    @property
    def last(self) -> int:
        """The time of the last row; there is one."""
        message = self.message
        if message is not None:
            return int(message.data.ts[-1])
        assert self.disk is not None
        return self.disk.last

    @property
    def nbytes(self) -> int:
        """Bytes of what waits, about."""
        return self.size

    def read(self) -> Message:
        """The message, from disk if it is there."""
        message = self.message
        return self.line.load(self) if message is None else message

    def rest(self, message: Message) -> Node:
        """What remains of this when some of it has been taken."""
        return Rest(self, message)

    def release(self) -> None:
        """Somebody has taken it."""
        line = self.line
        if line.shared or line.disk_count:
            line.release(self)
        else:
            line.rows_out += self.rows
            line.bytes_out += self.size


class Rest(Node):
    """What remains of a message, for one reader. As long as it waits, so does the whole."""

    __slots__ = ("_whole",)

    def __init__(self, node: Node, message: Message) -> None:
        super().__init__(node.line, message, len(message.data), 0, 1)
        self._whole = node.whole

    @property
    def whole(self) -> Node:
        return self._whole

    @property
    def nbytes(self) -> int:
        return self._whole.size * self.rows // max(self._whole.rows, 1)

    def release(self) -> None:
        self._whole.release()


class Part(Node):
    """The last rows of a message whose first rows were dropped; it takes the place of the whole. The others are
    in memory as long as they are no more than these: ``held`` counts both."""

    __slots__ = ("held",)
    held: int

    def __init__(self, node: Node, message: Message, keep: int, left: int) -> None:
        data, count = message.data, len(message.data)
        held = node.held if isinstance(node, Part) else count
        if 2 * keep < held:
            data, held = chosen(data, np.arange(count - keep, count)), keep
        else:
            data = cut(data, count - keep, count)
        self.held = held
        super().__init__(node.line, Message(data, message.mark), keep, node.size * keep // max(count, 1), left)


class Spilled(NamedTuple):
    """Where the rows of a message are, and what one must know of them while they are there."""

    segment: Segment
    place: Place
    mark: Mark
    first: Instant
    last: int
