"""Tuple supply layers of 000 §4 and §5 to compare with the runtime's own buffers, which need no lock (version 2).

Importing this module adds ``synch`` and ``monitored`` to ``penstock.runtime.buffer.BUFFERS``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator

from penstock.graph.message import Message
from penstock.graph.vertex import Edge
from penstock.model.delta import Instant
from penstock.runtime.buffer import BUFFERS, Buffer
from penstock.runtime.station import Station


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


class MonitoredBuffer(Buffer):
    """Version 1 (000 §4.1): the operator's monitor is entered where a signal may be due, that is to put into an empty
    buffer, and to take while one of the operator's buffers has no more than one message."""

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


BUFFERS.update({"synch": lambda: LockedBuffer, "monitored": Monitored})
