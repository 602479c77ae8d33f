"""Tuple supply layers and stream buffers of 000 §4 and §5, to compare with the runtime's own.

The runtime's own is version 2 (§4.2): a sender's signal goes through the worker's instruction queue, so what a worker
owns is touched by its thread alone, and buffers need no lock. Here are

- version 1 (§4.1, ``signalled`` and ``monitored``): a sender enters the operator's monitor to put into an empty buffer,
  and the signal *available* changes the worker's scheduler queue in the sender's thread; so that queue has a lock, too,
- ``synch``: a lock around every operation of a buffer,
- ``linked`` (§5.1, Algorithm 3): a linked list with a dummy node, for one thread that puts and one that takes,
- ``swapped`` (§5.1, after Michael and Scott): the same for any number of them, by compare-and-swap.

Importing this module adds the buffers to ``penstock.runtime.buffer.BUFFERS`` and ``signalled`` to
``penstock.runtime.owners.ARCHITECTURES``.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

from penstock.graph.message import Message
from penstock.graph.vertex import Edge
from penstock.model.delta import Instant
from penstock.runtime.buffer import BUFFERS, Buffer
from penstock.runtime.owners import ARCHITECTURES, Workers
from penstock.runtime.station import Station
from penstock.runtime.storage.line import Line
from penstock.runtime.storage.queue import Entry, Queue
from penstock.runtime.worker import Failed, Worker, admit, release, serve


class LockedBuffer(Buffer):
    """``synch``: everything is done under the buffer's lock."""

    __slots__ = ("_lock",)

    def __init__(self, edge: Edge, numbers: Iterator[int], station: Station) -> None:
        super().__init__(edge, numbers, station)
        self._lock = threading.Lock()

    def put(self, message: Message) -> None:
        with self._lock:
            super().put(message)

    def take(
        self, limit: int | None = None, train: bool = False, upto: Instant | None = None, known: int | None = None
    ) -> Message:
        with self._lock:
            return super().take(limit, train, upto, known)


# -- version 1 --------------------------------------------------------------------------------------------


class MonitoredBuffer(Buffer):
    """Version 1 (000 §4.1): the operator's monitor is entered where a signal may be due, that is to put into an empty
    buffer, and to take while one of the operator's buffers has no more than one message (``minSize`` of Algorithm
    2)."""

    __slots__ = ("_monitor",)

    def __init__(self, edge: Edge, numbers: Iterator[int], station: Station, monitor: threading.Lock) -> None:
        super().__init__(edge, numbers, station)
        self._monitor = monitor

    def put(self, message: Message) -> None:
        if self.queue:
            super().put(message)
        else:
            with self._monitor:
                super().put(message)

    def take(
        self, limit: int | None = None, train: bool = False, upto: Instant | None = None, known: int | None = None
    ) -> Message:
        if min(len(buffer.queue) for buffer in self.station.buffers) > 1:
            return super().take(limit, train, upto, known)
        with self._monitor:
            return super().take(limit, train, upto, known)


class Monitored:
    """Makes buffers of version 1, with one monitor for each operator. Bounded by the operators of one experiment."""

    def __init__(self) -> None:
        self._monitors: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def __call__(self, edge: Edge, numbers: Iterator[int], station: Station) -> Buffer:
        return MonitoredBuffer(edge, numbers, station, self._monitors[edge.target.id])


class SignalledWorker(Worker):
    """A worker of version 1: the thread that puts tells its scheduler queue, which therefore has a lock."""

    def __init__(self, name: str, failed: Failed, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(name, failed, clock)
        self._scheduled = threading.RLock()  # a station that is served tells others of the same worker

    def available(self, station: Station, local: bool) -> None:
        assert self._strategy is not None
        with self._scheduled:
            new = admit(self._strategy, station)
        if new and not local:
            self.waker()

    def step(self, now: float) -> bool:
        while self._instructions:
            instruction = self._instructions.popleft()
            assert not isinstance(instruction, Station), "signals do not go through the instructions"
            instruction()
        strategy = self._strategy
        assert strategy is not None
        with self._scheduled:
            station = strategy.choose(now)
            if station is None:
                return False
            limit = strategy.limit(station)
        rows = serve(station, strategy, limit, self._clock, self._failed)
        with self._scheduled:
            release(strategy, station, rows)
        return True


class SignalledWorkers(Workers):
    """Workers of version 1 that own their operators."""

    make = SignalledWorker


# -- queues -----------------------------------------------------------------------------------------------


class _Node:
    """``link`` has the next node, once there is one: ``setdefault`` of a dictionary is one step of the interpreter, and
    so the compare-and-swap that many senders need."""

    __slots__ = ("item", "link", "number")

    def __init__(self, item: Entry | None) -> None:
        self.item, self.number = item, 0
        self.link: dict[None, _Node] = {}


class LinkedQueue(Queue):
    """Algorithm 3: a linked list that begins with a dummy node. Putting changes only the tail, taking only the head, so
    one thread that puts and one that takes never meet. Bounded as ``Queue`` is. What is put back is kept in front of
    the list by the thread that takes."""

    def __init__(self) -> None:
        super().__init__()
        self._head = self._tail = _Node(None)
        self._back: list[Entry] = []
        self._taken = 0

    @classmethod
    def on(cls, line: Line) -> LinkedQueue:
        queue = cls()
        queue.line = line
        line.join(queue)
        return queue

    def append(self, entry: Entry, /) -> None:
        node, tail = _Node(entry), self._tail
        node.number = tail.number + 1
        tail.link[None] = node
        self._tail = node

    def popleft(self) -> Entry:
        self._taken += 1
        if self._back:
            return self._back.pop()
        self._head = self._head.link[None]
        entry, self._head.item = self._head.item, None
        assert entry is not None, "it is taken once"
        return entry

    def appendleft(self, entry: Entry, /) -> None:
        self._taken -= 1
        self._back.append(entry)

    @property
    def last(self) -> _Node:
        """The last node."""
        return self._tail

    def __len__(self) -> int:
        return self.last.number - self._taken

    def __bool__(self) -> bool:
        return len(self) > 0

    def __getitem__(self, index: int, /) -> Entry:  # type: ignore[override]
        if index == 0 and self._back:
            return self._back[-1]
        node = self._head.link.get(None) if index == 0 else self.last
        if node is not None and node.item is not None:
            return node.item
        if self._back:
            return self._back[0]
        raise IndexError(index)

    def __iter__(self) -> Iterator[Entry]:
        yield from reversed(self._back.copy())
        node = self._head
        while (following := node.link.get(None)) is not None:
            node = following
            if node.item is not None:
                yield node.item

    def copy(self) -> list[Entry]:  # type: ignore[override]
        return list(self)


class SwappedQueue(LinkedQueue):
    """After Michael and Scott: any number of threads may put. The next node is set by compare-and-swap; a sender that
    finds it set goes on from there. The tail may lag, so whoever needs the last node goes on from the tail."""

    def append(self, entry: Entry, /) -> None:
        node = _Node(entry)
        while True:
            tail = self.last
            node.number = tail.number + 1
            if tail.link.setdefault(None, node) is node:
                self._tail = node
                return

    @property
    def last(self) -> _Node:
        node = self._tail
        while (following := node.link.get(None)) is not None:
            node = following
        return node


class LinkedBuffer(Buffer):
    """A buffer on the queue of Algorithm 3."""

    __slots__ = ()
    queues: type[LinkedQueue] = LinkedQueue

    def __init__(self, edge: Edge, numbers: Iterator[int], station: Station) -> None:
        super().__init__(edge, numbers, station)
        line = self.queue.line
        line.leave(self.queue)
        self.queue = self.queues.on(line)


class SwappedBuffer(LinkedBuffer):
    """A buffer on the queue of Michael and Scott."""

    __slots__ = ()
    queues = SwappedQueue


BUFFERS.update(
    {
        "synch": lambda: LockedBuffer,
        "monitored": Monitored,
        "linked": lambda: LinkedBuffer,
        "swapped": lambda: SwappedBuffer,
    }
)
ARCHITECTURES["signalled"] = SignalledWorkers
