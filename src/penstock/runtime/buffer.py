"""The queue on an edge between two partitions.

One thread puts, one thread takes, at the same time and without a lock: appending to and taking from a deque are
single steps of the interpreter, and every count is written by one side only. What waits, in memory or on disk, is the
matter of ``penstock.runtime.storage``.

Plug-in point: ``BUFFERS`` maps a name to what a runtime calls once to get a maker of buffers; buffers with locks, to
compare with, are in ``experiments``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.graph.early import in_order, is_prioritised, parted_early
from penstock.graph.message import Data, Message, dropped_rows, join, split
from penstock.graph.vertex import Edge
from penstock.graph.view import BufferView
from penstock.model.delta import Instant
from penstock.model.errors import SpillError
from penstock.runtime.lanes import LANES, Lane, Ranks
from penstock.runtime.lanes import Entry as LaneEntry
from penstock.runtime.storage.line import Line
from penstock.runtime.storage.queue import Entry, Queue
from penstock.runtime.storage.sizes import row_bytes

if TYPE_CHECKING:
    from penstock.runtime.station import Partition, Station

TRAIN = 2_000_000
"""Bytes of a train, about: it is a copy of what waits."""
FEW = 4
"""So many priorities of rows that have come together are told apart."""


class Buffer:
    """First in, first out, except that prioritised rows overtake where there is a ``lane`` for them. Bounded by what is
    pushed and not yet worked on; how much of that is in memory is bounded by the line and the storage of the queue.
    What overtakes counts there, but stays in memory.

    ``register``: the frontier of the last message that was taken, None before the first. ``mode``: how rows
    overtake; ``direct``: they are handed over at once where nobody else is at work.
    """

    __slots__ = (
        "came",
        "edge",
        "lane",
        "local",
        "mode",
        "numbers",
        "overtook",
        "passed",
        "peak",
        "producer",
        "queue",
        "ranks",
        "register",
        "station",
        "went",
    )

    def __init__(self, edge: Edge, numbers: Iterator[int], station: Station) -> None:
        self.edge, self.numbers, self.station = edge, numbers, station
        self.producer: Partition | None = None  # None: the thread that pushes
        self.local = False  # whether one worker has both ends
        self.queue = Queue.of(Line())
        self.register: Instant | None = None
        self.lane: Lane | None = None
        self.mode = "normal"
        self.came = self.peak = self.overtook = 0  # elements; written by who puts
        self.went = self.passed = 0  # written by who takes
        self.ranks = Ranks()

    def put(self, message: Message) -> None:
        """Add a message, and tell the station unless it knows that there is something."""
        number, entered = self._entry()
        data = message.data
        if self.lane is not None:
            if self.mode != "normal" and not self.edge.source.foretells and is_prioritised(data):
                early, message = self.queue.line.parted(message, by_level=self.lane.by_level)
                data, since = message.data, self.edge.since
                for rank, rows in early:
                    if since is not None:
                        rows = dropped_rows(rows, since)
                    if len(rows):
                        self._overtake((rows, number, entered, rank))
            self.lane.ordinary(1)
        self.came += len(data)
        rank = 0 if data.priority is None else _rank(message)
        if rank:
            self.ranks.put(rank)
        self.queue.put(message, number, entered, rank)
        waiting = self.came - self.went - self.queue.dropped
        if waiting > self.peak:
            self.peak = waiting
        station = self.station
        if not station.signalled:
            station.signalled = True
            station.tell(self.local)

    def overtakes(self, mode: str | None) -> bool:
        """Whether prioritised rows overtake in this way; None: whether there are none."""
        return (self.lane is None) == (mode is None) and self.mode == (mode or "normal")

    def overtaking(self, mode: str | None) -> None:
        """Let prioritised rows overtake in this way from now on; None: there will be none. Called while nobody puts or
        takes.
        """
        before = self.lane
        self.mode = mode or "normal"
        self.lane = None if mode is None else LANES[mode]()
        if self.lane is not None:
            self.lane.ordinary(len(self.queue))
        while before:
            entry = before.take()
            if self.lane is None:
                self.lane = LANES[self.mode]()
            self.lane.put(entry)

    def is_like(self, mode: str | None) -> bool:
        """Whether rows that overtake in this way wait as those do that are there, so that ``mode`` may change while
        both sides work."""
        if self.lane is None or mode is None:
            return mode is None or self.mode == mode
        return LANES[mode] is LANES[self.mode]

    def put_early(self, data: Data) -> None:
        """Rows that have overtaken others before go on doing so."""
        number, entered = self._entry()
        assert self.lane is not None, "where one buffer lets rows overtake, those behind it do"
        if data.priority is None:  # results of a join that does not wait
            self._overtake((data, number, entered, 0))
            return
        # Rows of many priorities have come together, and stay so: apart they would soon be one by one.
        if not self.lane.by_level or len(data) == 1 or len(np.unique(data.priority)) > FEW:
            self._overtake((data, number, entered, int(data.priority.max())))
            return
        for rank, rows in parted_early(data):
            self._overtake((rows, number, entered, rank))

    def _entry(self) -> tuple[int, float]:
        """Number and time of entry of what is put now."""
        producer = self.producer
        if producer is None:
            return next(self.numbers), time.perf_counter()
        return producer.number, producer.entered

    def _overtake(self, entry: LaneEntry) -> None:
        rows, number, entered, _ = entry
        lane, station = self.lane, self.station
        assert lane is not None
        self.overtook += len(rows)
        direct = self.mode == "direct" and self.producer is not None  # whoever pushes is not kept
        if direct and station.hand_over(self.edge.port, rows, number, entered):
            return
        self.came += len(rows)
        self.queue.early_in += row_bytes(rows)
        lane.put(entry)
        if not station.signalled:
            station.signalled = True
            station.tell(self.local)

    def take_early(self, limit: int | None = None, train: bool = False, apart: bool = False) -> LaneEntry:
        """The next rows of those that overtake; there are some. As a train: all that wait, but none after ``limit``
        elements; ``apart``: and where priorities are told apart, none of another one."""
        lane = self.lane
        assert lane is not None
        entry = lane.take()
        if train and lane:
            entry = _early_train(entry, lane, limit, apart and lane.by_level)
        self.went += len(entry[0])
        self.queue.early_out += row_bytes(entry[0])
        return entry

    def take(
        self, limit: int | None = None, train: bool = False, upto: Instant | None = None, known: int | None = None
    ) -> Message:
        """The first message, or as much of it as ``limit`` elements.

        As a train: all that wait now, as one, up to ``limit`` elements, and as far as the one before it in the train
        does not go beyond ``upto``. ``known``: of so many messages nothing overtakes any more; others are left.
        """
        queue = self.queue
        node, number, entered, rank = queue.taken() if queue.line.dropping else queue.popleft()
        message = node.message
        if message is None or self.edge.since is not None:
            message = self._read((node, number, entered, rank))
        rest = None
        if limit is not None and len(message.data) > limit:
            message, rest = split(message, limit)
        if rest is None:
            node.release()
            self.went += node.rows
            self.passed += 1
            if rank:
                self.ranks.take(rank)
        else:
            left = _rank(rest) if rank else 0
            queue.put_back((node.rest(rest), number, entered, left))
            self.went += node.rows - len(rest.data)
            if rank:
                self.ranks.take(rank, left)
        passed = self.passed
        if train and rest is None and queue:
            most = len(queue) if known is None else known - 1  # not what comes while this goes on
            message = self._train(message, node.size, limit, upto, most)
        if self.lane is not None:
            self.lane.ordinary(passed - self.passed - (rest is None))
        self.register = message.mark.frontier
        return message

    def _train(self, first: Message, size: int, limit: int | None, upto: Instant | None, most: int) -> Message:
        queue = self.queue
        cars, rows = [first], len(first.data)
        while queue and most:
            node = queue[0][0]
            rows += node.rows
            size += node.size
            if (
                (limit is not None and rows > limit)
                or size > TRAIN
                or (upto is not None and node.rows and cars[-1].mark.frontier > upto)
            ):
                break
            entry = queue.taken()
            try:
                cars.append(self._read(entry))
            except SpillError:
                break  # the next one to take meets it
            node, _, _, rank = entry
            node.release()
            self.went += node.rows
            self.passed += 1
            if rank:
                self.ranks.take(rank)
            most -= 1
        return join(cars)

    def _read(self, entry: Entry) -> Message:
        message = self.queue.read(entry)
        return message if self.edge.since is None else self.edge.due(message)

    @property
    def is_apart(self) -> bool:
        """Whether its two sides are in different partitions."""
        return self.producer is not self.station.partition

    @property
    def waiting(self) -> int:
        """Elements."""
        return self.came - self.went - self.queue.dropped

    @property
    def bytes(self) -> int:
        """Bytes of what waits, in memory and on disk."""
        line = self.queue.line
        if len(line.readers) == 1:  # nearly always: nothing needs to be added up
            return line.bytes_in - line.bytes_out + self.queue.early
        return sum(entry[0].nbytes for entry in self.queue.copy()) + self.queue.early

    @property
    def rank(self) -> int:
        """The highest priority of the elements that wait."""
        lane = self.lane
        return (0 if lane is None else lane.rank) or self.ranks.highest

    def view(self) -> BufferView:
        """The numbers for people."""
        entries = self.queue.copy()
        waiting = [entry[0] for entry in entries]
        on_disk = [node for node in waiting if node.disk is not None]
        early = [] if self.lane is None else [entry[0] for entry in self.lane]
        return BufferView(
            sum(map(len, waiting)) + sum(map(len, early)),
            sum(node.nbytes for node in waiting) + sum(map(row_bytes, early)), self.peak, self.passed, self.overtook,
            sum(map(len, on_disk)), sum(node.nbytes for node in on_disk), self.queue.dropped,
            time.perf_counter() - entries[0][2] if entries else None,
        )  # fmt: skip


def _rank(message: Message) -> int:
    priority = message.data.priority
    return int(priority.max()) if priority is not None and len(priority) else 0


def _early_train(first: LaneEntry, lane: Lane, limit: int | None, apart: bool) -> LaneEntry:
    rows, number, entered, rank = first
    cars, count = [rows], len(rows)
    while lane and (limit is None or count < limit) and (not apart or lane.rank == rank):
        rows, its_number, its_entered, its_rank = lane.take()
        number, entered, rank = min(number, its_number), min(entered, its_entered), max(rank, its_rank)
        cars.append(rows)
        count += len(rows)
    return (in_order(cars) if len(cars) > 1 else first[0]), number, entered, rank


NewBuffer = Callable[[Edge, Iterator[int], "Station"], Buffer]
BUFFERS: dict[str, Callable[[], NewBuffer]] = {"lock-free": lambda: Buffer}
