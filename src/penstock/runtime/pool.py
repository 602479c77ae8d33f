"""The basic worker pool (000, section 3.2): one queue of available stations, from which any worker takes the next.

Everything about the queue is behind one lock, since all workers and all senders use it. It is here to be compared
with workers that own their stations.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from penstock.runtime.control import LOOK, Control, Thread
from penstock.runtime.station import Partition, Station
from penstock.runtime.strategy import Strategy
from penstock.runtime.worker import Failed, admit, release, serve

Clock = Callable[[], float]


class PoolQueue:
    """The queue without its threads. Two workers never have stations of one partition at the same time."""

    def __init__(self, failed: Failed, clock: Clock = time.perf_counter) -> None:
        self.name = "penstock-worker-pool"
        self.waker: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._strategy: Strategy | None = None
        self._failed, self._clock = failed, clock

    @property
    def strategy_name(self) -> str:
        return self._strategy.name if self._strategy is not None else ""

    def adopt(self, stations: Sequence[Station], strategy: Strategy) -> None:
        """Have these stations and no others, from now on. Called while nobody works."""
        self._strategy = strategy
        strategy.assign(stations)
        for station in stations:
            station.owner, station.ready, station.signalled = self, False, True
            station.partition.busy, station.partition.blocked = False, []
        for station in stations:
            admit(strategy, station)

    def available(self, station: Station, local: bool) -> None:
        """The signal from a buffer."""
        assert self._strategy is not None
        with self._lock:
            new = admit(self._strategy, station)
        if new:
            self.waker()

    def __len__(self) -> int:
        """How many stations wait for a worker."""
        return len(self._strategy) if self._strategy is not None else 0

    def step(self, now: float) -> bool:
        """Take the next station whose partition nobody runs, and give it its turn. False: there was none."""
        strategy = self._strategy
        assert strategy is not None
        with self._lock:
            station = self._next(strategy, now)
            if station is None:
                return False
            station.partition.busy = True
            limit = strategy.limit(station)
        rows = serve(station, strategy, limit, self._clock, self._failed)
        with self._lock:
            release(strategy, station, rows)
            self._unblock(strategy, station.partition)
        return True

    def _next(self, strategy: Strategy, now: float) -> Station | None:
        while (station := strategy.choose(now)) is not None and station.partition.busy:
            station.partition.blocked.append(station)
        return station

    @staticmethod
    def _unblock(strategy: Strategy, partition: Partition) -> None:
        partition.busy = False
        for station in partition.blocked:
            strategy.available(station)
        partition.blocked.clear()


class Pool:
    """The queue and a number of threads that serve it."""

    def __init__(self, queue: PoolQueue, control: Control, threads: int, clock: Clock = time.perf_counter) -> None:
        self.queue, self._control, self._clock = queue, control, clock
        self._lock = threading.Lock()
        self._idle: list[Thread] = []
        self._threads = [control.start(self, f"penstock-worker-{i + 1}") for i in range(threads)]
        queue.waker = self._wake

    def _wake(self) -> None:
        with self._lock:
            thread = self._idle.pop() if self._idle else None
        if thread is not None:
            thread.wake()

    def work(self, thread: Thread) -> bool:
        turns = 0
        while not thread.hurried and self.queue.step(self._clock()):
            turns += 1
            if not turns % LOOK and self._control.watched:
                self._control.notify()
        return turns > 0

    def sleeps(self, thread: Thread) -> bool:
        with self._lock:
            if thread not in self._idle:
                self._idle.append(thread)
        return not self.queue

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()
