"""Streams that are stamped on arrival move on with the clock."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from penstock.hosts.registered import Registered
from penstock.ingest.streams import StreamInput


class Ticking(ABC):
    """The part of ``Core`` that asks the clock."""

    closed: bool
    inputs: dict[str, StreamInput]
    lock: threading.RLock
    stopwatch: Callable[[], float]
    began: float | None
    _changer: int | None
    _stamped: tuple[str, ...]

    @property
    @abstractmethod
    def is_inside(self) -> bool:
        """Whether a function that a query calls is what asks."""

    @abstractmethod
    def after(self) -> None:
        """Let the host work and subscribers be called."""

    @abstractmethod
    def now(self) -> int | None:
        """What the clock says, if a stream is stamped by it."""

    @abstractmethod
    def stamp_idle(self, source: StreamInput | None, now: int | None) -> None:
        """Streams stamped on arrival move on with the clock."""

    def tick(self, query: Registered | None = None, *, wait: bool = True) -> None:
        """Let streams that are stamped on arrival move on with the clock, though nothing arrives. Without the lock.

        ``query``: if it reads one of them; otherwise there is nothing to wait for. ``wait``: also while another thread
        changes something; who does not wait leaves it to the next call.
        """
        if not any(self._ticks(name) for name in self._stamped if query is None or name in query.inputs):
            return
        if self.is_inside:
            return  # a function reads: time moves on with the call that it is in, and the next
        now, began = self.now(), self.stopwatch()
        if not self.lock.acquire(blocking=wait):
            return
        try:
            if self.closed:
                return
            self._changer, self.began = threading.get_ident(), began
            self.stamp_idle(None, now)
        finally:
            self._changer = None
            self.lock.release()
        self.after()

    def _ticks(self, name: str) -> bool:
        """Whether time moves a stream that is stamped on arrival: it has begun, and is not closed."""
        source = self.inputs.get(name)
        return source is not None and not source.closed and source.progress > -math.inf

    def is_ticking(self, query: Registered) -> bool:
        """Whether time moves a query, or will as soon as rows have come. Without the lock."""
        found = (self.inputs.get(name) for name in self._stamped if name in query.inputs)
        return any(source is not None and not source.closed for source in found)
