"""A reader's place among what an operator has sent."""

from __future__ import annotations

from collections import deque

from penstock.graph.message import Message
from penstock.model.errors import SpillError
from penstock.runtime.storage.line import Line
from penstock.runtime.storage.node import Node
from penstock.runtime.storage.trim import trim

Entry = tuple[Node, int, float, int]
"""A message, its number in order of entry into the runtime, the time of entry, the highest priority of its rows.
What an operator sends because of a message has the number and the time of that message."""


class Queue(deque[Entry]):
    """What one reader has not taken yet, first in, first out. One thread puts, one thread takes.

    ``dropped``: rows that the reader will not get. ``broken``: what waits cannot be read, so
    nothing is added any more. ``early_in``, ``early_out``: bytes of rows that overtake, which wait elsewhere.
    """

    line: Line
    dropped = 0
    early_in = 0  # written by who puts
    early_out = 0  # written by who takes
    broken = False

    @property
    def early(self) -> int:
        """Bytes of rows that overtake."""
        return self.early_in - self.early_out

    @staticmethod
    def of(line: Line) -> Queue:
        """A new reader of what is added to a line from now on."""
        queue = Queue()
        queue.line = line
        line.join(queue)
        return queue

    def move(self, line: Line) -> None:
        """Read what is added to another line from now on; what waits still comes first."""
        if line is not self.line:
            self.line.leave(self)
            self.line = line
            line.join(self)

    def put(self, message: Message, number: int, entered: float, rank: int) -> None:
        """Add a message to the end."""
        line = self.line
        node = line.add(message)
        if self.broken:
            node.release()
        else:
            self.append((node, number, entered, rank))
        if line.dropping:
            trim(line)

    def taken(self) -> Entry:
        """Remove the first. Called only where there is one; whoever drops the oldest leaves the last."""
        line = self.line
        if not line.dropping:
            return self.popleft()
        with line.lock:
            return self.popleft()

    def put_back(self, entry: Entry) -> None:
        """Something that was taken, or what remains of it, is the first again."""
        line = self.line
        if not line.dropping:
            self.appendleft(entry)
            return
        with line.lock:
            self.appendleft(entry)

    def read(self, entry: Entry) -> Message:
        """The message of one that has been taken. If it cannot be read, it is there again, and whoever wants to take it
        hears of it; then ``purge`` is to be called, since nothing more can be taken here."""
        try:
            return entry[0].read()
        except SpillError:
            self.put_back(entry)
            self.broken = True
            raise

    def purge(self) -> None:
        """Let all that waits go."""
        while self:
            self.taken()[0].release()

    def leave(self) -> None:
        """Nobody reads here any more."""
        self.purge()
        self.line.leave(self)
