"""An operator in the graph: it takes messages, works, and calls its successors.

Passing a message on is a call of ``take`` (direct interoperability). Where an edge has a buffer, the message is put
there instead and somebody else calls ``take`` later. A vertex is touched by one thread at a time: whoever runs its
partition.
"""

from __future__ import annotations

from typing import Literal, Protocol

from penstock.graph.message import Data, Message, dropped_before, dropped_rows
from penstock.graph.statistics import Statistics
from penstock.model.delta import Instant
from penstock.operators.base import StateSize

State = Literal["ready", "running", "suspended", "stopped"]


class Receiver(Protocol):
    """Where a sender puts its messages if not into the next vertex itself."""

    def put(self, message: Message) -> None:
        """Take a message over; called by the sender's thread, in order."""

    def put_early(self, data: Data) -> None:
        """Take prioritised rows over that are before their place in the order."""


class Edge:
    """From a vertex to an input of another. ``buffer`` is set and removed only while nobody runs either end.

    ``since``: rows before this instant are not for the receiver; it was attached when they had been given already.
    """

    __slots__ = ("buffer", "port", "since", "source", "target")

    def __init__(self, source: Vertex, target: Vertex, port: int) -> None:
        self.source, self.target, self.port = source, target, port
        self.buffer: Receiver | None = None
        self.since: Instant | None = None

    def send(self, message: Message) -> None:
        if self.buffer is not None:
            self.buffer.put(message)
            return
        self.target.take(self.port, message if self.since is None else self.due(message))

    def due(self, message: Message) -> Message:
        """What of a message is for the receiver. Called by whoever hands it over: the sender, or who takes from the
        buffer, where all readers have the same message."""
        since = self.since
        if since is None:
            return message
        if message.mark.frontier >= since:
            self.since = None
        return dropped_before(message, since)

    def send_early(self, data: Data) -> None:
        since = self.since
        if since is not None:
            data = dropped_rows(data, since)
            if not len(data):
                return
        if self.buffer is None:
            self.target.take_early(self.port, data)
        else:
            self.buffer.put_early(data)


class Vertex(Protocol):
    """What the runtime needs of an operator in the graph."""

    id: int
    kind: str
    label: str
    priority: int
    state: State
    stats: Statistics
    inputs: list[Edge]
    outputs: list[Edge]
    sets_priority: bool
    """Whether its rows have priorities that those that came in did not have."""
    foretells: bool
    """Whether what it sends early comes again at its place."""

    @property
    def looks_across(self) -> bool:
        """Whether it answers rows before their place from what has come in at another input."""

    def take(self, port: int, message: Message) -> None:
        """Work on a message that came in at an input, and send on what follows from it. Never raises: an operator
        that fails stops its queries and nothing else."""

    @property
    def overtakable(self) -> bool:
        """Whether what it sends may be handed on before its place in the order."""

    def take_early(self, port: int, data: Data) -> None:
        """Work on prioritised rows before their place in the order, or keep them until their place is reached."""

    def size(self) -> StateSize:
        """What is remembered."""
