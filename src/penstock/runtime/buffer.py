"""The queue on an edge between two partitions.

One thread puts, one thread takes, at the same time and without a lock: appending to and taking from a deque are
single steps of the interpreter, and every count is written by one side only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.delta import Instant
from penstock.graph.message import Message, join, split
from penstock.graph.vertex import Edge
from penstock.graph.view import BufferView

if TYPE_CHECKING:
    from penstock.runtime.station import Partition, Station

Entry = tuple[Message, int, float, int]
"""A message, its number in order of entry into the runtime, the time of entry, the highest priority of its rows.
What an operator sends because of a message has the number and the time of that message."""


class Buffer:
    """First in, first out. Bounded by what is pushed and not yet worked on.

    ``register``: the frontier of the last message that was taken, None before the first.
    """

    __slots__ = (
        "came",
        "edge",
        "local",
        "numbers",
        "passed",
        "peak",
        "producer",
        "queue",
        "ranked_in",
        "ranked_out",
        "register",
        "station",
        "went",
    )

    def __init__(self, edge: Edge, numbers: Iterator[int], station: Station) -> None:
        self.edge, self.numbers, self.station = edge, numbers, station
        self.producer: Partition | None = None  # None: the thread that pushes
        self.local = False  # whether one worker has both ends
        self.queue: deque[Entry] = deque()
        self.register: Instant | None = None
        self.came = self.peak = self.ranked_in = 0  # elements; written by who puts
        self.went = self.passed = self.ranked_out = 0  # written by who takes

    def put(self, message: Message) -> None:
        """Add a message, and tell the station unless it knows that there is something."""
        producer = self.producer
        if producer is None:
            number, entered = next(self.numbers), time.perf_counter()
        else:
            number, entered = producer.number, producer.entered
        data = message.data
        self.came += len(data)
        if self.came - self.went > self.peak:
            self.peak = self.came - self.went
        rank = 0 if data.priority is None else _rank(message)
        if rank:
            self.ranked_in += 1
        self.queue.append((message, number, entered, rank))
        station = self.station
        if not station.signalled:
            station.signalled = True
            station.tell(self.local)

    def take(self, limit: int | None = None, train: bool = False, upto: Instant | None = None) -> Message:
        """The first message, or as much of it as ``limit`` elements.

        As a train: all that wait now, as one, up to ``limit`` elements, and as far as the one before it in the train
        does not go beyond ``upto``.
        """
        queue = self.queue
        message, number, entered, rank = queue[0]
        rest = None
        if limit is not None and len(message.data) > limit:
            message, rest = split(message, limit)
        if rest is None:
            queue.popleft()
            self.passed += 1
            if rank:
                self.ranked_out += 1
        else:
            left = _rank(rest) if rank else 0
            queue[0] = rest, number, entered, left
            if rank and not left:
                self.ranked_out += 1
        if train and rest is None and queue:
            message = self._train(message, limit, upto)
        self.went += len(message.data)
        self.register = message.mark.frontier
        return message

    def _train(self, first: Message, limit: int | None, upto: Instant | None) -> Message:
        queue = self.queue
        cars, rows = [first], len(first.data)
        for _ in range(len(queue)):  # not what comes while this goes on
            message, _, _, rank = queue[0]
            rows += len(message.data)
            if (limit is not None and rows > limit) or (
                upto is not None and len(message.data) and cars[-1].mark.frontier > upto
            ):
                break
            queue.popleft()
            self.passed += 1
            if rank:
                self.ranked_out += 1
            cars.append(message)
        return join(cars)

    @property
    def waiting(self) -> int:
        """Elements."""
        return self.came - self.went

    @property
    def rank(self) -> int:
        """The highest priority of the elements that wait."""
        if self.ranked_in == self.ranked_out:
            return 0
        return max((entry[3] for entry in self.queue.copy()), default=0)

    def view(self) -> BufferView:
        """The numbers for people; the bytes are counted only now."""
        waiting = self.queue.copy()
        return BufferView(
            sum(len(entry[0]) for entry in waiting), sum(entry[0].nbytes for entry in waiting), self.peak, self.passed
        )


def _rank(message: Message) -> int:
    priority = message.data.priority
    return int(priority.max()) if priority is not None and len(priority) else 0
