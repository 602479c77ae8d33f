"""What a strategy chooses among: an operator with buffers in front of it."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

from penstock.graph.message import Data
from penstock.graph.vertex import Vertex
from penstock.model.delta import Instant
from penstock.runtime.buffer import Buffer

AGEING = 0.1
"""Seconds: what has waited so much longer goes before what has a priority higher by one, so nothing starves."""
LET_IN = 256
"""Elements of an input that an operator takes in at most for the sake of rows that overtake at another one."""


class Partition:
    """A virtual operator: operators without a buffer between them. One thread runs it at a time.

    ``turns`` is odd while that thread works on the message with ``number``. ``lock``: where others may hand rows over
    directly, whoever works here has it.
    """

    __slots__ = ("entered", "id", "lock", "number", "owner", "turns", "vertices")

    def __init__(self, id: int, vertices: Sequence[Vertex] = ()) -> None:
        self.id, self.vertices = id, list(vertices)
        self.owner: Owner | None = None  # None: the thread that pushes
        self.number, self.entered, self.turns = 0, 0.0, 0
        self.lock: threading.RLock | None = None

    @property
    def priority(self) -> int:
        return max((v.priority for v in self.vertices), default=0)


class Owner(Protocol):
    """Who has stations worked on: a worker, or another arrangement of threads."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def strategy_name(self) -> str:
        """How it chooses."""

    def available(self, station: Station, local: bool) -> None:
        """There may be something to do; ``local``: said by the thread that runs the station's partition."""


class Station:
    """An operator and the buffers in front of it.

    ``signalled``: the owner knows, or is being told, that there may be something to do. Whoever puts sets it after
    the message is there; the owner takes it back before it looks a last time: so no message is overlooked.
    ``ready``: the strategy has it, or it is being worked on. ``held``: suspended from outside. ``turn``: the most
    elements at once, where rows may come that must not wait long.
    """

    __slots__ = ("brief", "buffers", "cost", "held", "lanes", "latency", "owner", "partition", "ready", "signalled",
                 "turn", "unknown", "vertex")

    def __init__(self, vertex: Vertex, partition: Partition) -> None:
        self.vertex, self.partition = vertex, partition
        self.owner: Owner | None = None
        self.buffers: list[Buffer] = []
        self.lanes = False  # whether rows may overtake in some buffer
        self.turn: int | None = None
        self.brief = False  # whether another is more urgent, so that turns last a few milliseconds
        self.unknown = False  # whether what waits here is given its priorities in this partition
        self.signalled, self.ready, self.held = False, False, False
        self.cost: float | None = None  # seconds for one element, what is called directly included
        self.latency = math.inf  # seconds for which nothing is to wait, where its queries say so

    def tell(self, local: bool) -> None:
        """The signal *available*."""
        if self.owner is not None:
            self.owner.available(self, local)

    def early(self) -> Buffer | None:
        """The buffer in which the row of the highest priority waits that overtakes."""
        if self.held or not self.lanes:
            return None
        found = [b for b in self.buffers if b.lane]
        if len(found) <= 1:
            return found[0] if found else None
        return max(found, key=_rank)

    def hand_over(self, port: int, rows: Data, number: int, entered: float) -> bool:
        """Have the operator work on rows at once, in the thread that has them; False where somebody is at work."""
        partition, vertex = self.partition, self.vertex
        lock = partition.lock
        if lock is None or not lock.acquire(blocking=False):
            return False
        before = partition.number, partition.entered
        try:
            if self.held or self.partition is not partition:  # it has changed before the lock was there
                return False
            partition.number, partition.entered = number, entered
            vertex.take_early(port, rows)
        finally:
            partition.number, partition.entered = before
            lock.release()
        return True

    def passable(self) -> list[Buffer]:
        """The buffers whose first message may be taken now.

        A message with rows waits where the operator knows this input further than an empty one: it could only be
        put aside there. An empty input of which nothing is known holds nobody back, and neither does one without a
        buffer: what is called directly has no queue to wait in.
        """
        if self.held:
            return []
        buffers = self.buffers
        if len(buffers) == 1:
            return buffers if buffers[0].queue else []
        full: list[Buffer] = []
        floor: Instant | None = None
        for buffer in buffers:
            register = buffer.register
            if buffer.queue:
                full.append(buffer)
            elif register is not None and (floor is None or register < floor):
                floor = register
        if floor is None:
            return full
        return [b for b in full if b.register is None or b.register <= floor or not b.queue[0][0].rows]

    def next(self) -> Buffer | None:
        """Of those that may be taken, the one with the lowest first instant."""
        buffers = self.buffers
        if len(buffers) == 1:
            return buffers[0] if buffers[0].queue and not self.held else None
        buffers = self.passable()
        if len(buffers) > 1:
            return min(buffers, key=_first)
        return buffers[0] if buffers else None

    def available(self) -> bool:
        """Whether there is something to do."""
        if self.lanes and self.early() is not None:
            return True
        buffers = self.buffers
        if len(buffers) == 1:
            return not self.held and bool(buffers[0].queue)
        return bool(self.passable())

    @property
    def waiting(self) -> int:
        """Elements in front of it."""
        return sum(b.waiting for b in self.buffers)

    @property
    def rank(self) -> int:
        """The highest priority of the elements in front of it."""
        buffers = self.buffers
        return buffers[0].rank if len(buffers) == 1 else max([b.rank for b in buffers])

    @property
    def urgency(self) -> tuple[float, float]:
        """What is worked on first where nothing else counts, the least first: the time of entry of what waits longest,
        each priority counting as much as ``AGEING`` seconds of waiting; and the number of that."""
        number, entered = self.oldest
        return entered - AGEING * self.vertex.priority, number

    @property
    def oldest(self) -> tuple[float, float]:
        """Number and time of entry of the first message in front of it that entered first."""
        if len(self.buffers) == 1 and not self.lanes and (queue := self.buffers[0].queue):
            return queue[0][1:3]
        first: list[tuple[float, float]] = [b.queue[0][1:3] for b in self.buffers if b.queue]
        first += [b.lane.oldest for b in self.buffers if b.lane]
        return min(first, default=(0, math.inf))

    def serve(self, limit: int | None = None, train: bool = False, apart: bool = False) -> int:
        """Take the next message, or some of it or several, and have the operator work on it. Gives the elements
        taken. Called only where ``available`` holds, by the thread that runs the partition.

        Rows that overtake come first. With them a turn is over, unless it is a train: then all that wait follow, if
        they are not to be kept ``apart``.
        """
        with self.partition.lock or _NOBODY:
            if not self.lanes:
                return self._serve(limit, train)
            known = {b: len(b.queue) for b in self.buffers}  # what overtakes them is there, or has been taken
            ahead, rows = self.early(), 0
            if ahead is not None and (apart or not train):
                return self._serve_early(ahead, known, limit, train, apart)
            if ahead is not None:
                rows = sum([self._serve_early(b, known, limit, train, apart) for b in self.buffers if b.lane])
                if self.early() is not None:
                    return rows
            return rows + self._serve(limit, train, known)

    def _serve_early(
        self, buffer: Buffer, known: dict[Buffer, int], limit: int | None, train: bool, apart: bool
    ) -> int:
        partition, vertex = self.partition, self.vertex
        if vertex.looks_across:
            self._let_in([b for b in self.buffers if b is not buffer and not b.lane], known)
        partition.number = -1  # older than anything, until it is known
        partition.turns += 1
        rows, partition.number, partition.entered, _ = buffer.take_early(limit, train, apart)
        try:
            if vertex.state != "stopped":
                vertex.state = "running"
            vertex.take_early(buffer.edge.port, rows)
        finally:
            if vertex.state == "running":
                vertex.state = "ready"
            partition.turns += 1
        return len(rows)

    def _let_in(self, buffers: Sequence[Buffer], known: dict[Buffer, int]) -> None:
        """What waits in buffers goes into the operator, where rows that overtake meet it, unless it is much."""
        partition = self.partition
        for buffer in buffers:
            if buffer.waiting > LET_IN:
                continue
            partition.turns += 1
            try:
                for _ in range(known[buffer]):
                    _, partition.number, partition.entered, _ = buffer.queue[0]
                    known[buffer] -= 1
                    self.vertex.take(buffer.edge.port, buffer.take())
            finally:
                partition.turns += 1

    def _serve(self, limit: int | None, train: bool, known: Mapping[Buffer, int] | None = None) -> int:
        buffer = self.next()
        if buffer is None or (known is not None and not known[buffer]):
            return 0  # what there was has been handed over, or what there is came just now
        upto = None
        if train and len(self.buffers) > 1:
            upto = min((_reach(b) for b in self.buffers if b is not buffer and _known(b)), default=None)
        partition, vertex = self.partition, self.vertex
        _, partition.number, partition.entered, _ = buffer.queue[0]
        partition.turns += 1
        try:
            message = buffer.take(limit, train, upto, None if known is None else known[buffer])
            if vertex.state != "stopped":
                vertex.state = "running"
            vertex.take(buffer.edge.port, message)
        finally:
            if vertex.state == "running":
                vertex.state = "ready"
            partition.turns += 1
        return len(message.data)

    def give_up(self) -> None:
        """What waits and cannot be read is let go; called when that has been said."""
        for buffer in self.buffers:
            if buffer.queue.broken:
                buffer.queue.purge()


_NOBODY = nullcontext()


def _rank(buffer: Buffer) -> int:
    return buffer.rank


def _first(buffer: Buffer) -> Instant:
    return buffer.queue[0][0].first


def _known(buffer: Buffer) -> bool:
    return bool(buffer.queue) or buffer.register is not None


def _reach(buffer: Buffer) -> Instant:
    """How far an input will be known once everything that waits is taken."""
    if buffer.queue:
        return buffer.queue[-1][0].mark.frontier
    assert buffer.register is not None
    return buffer.register
