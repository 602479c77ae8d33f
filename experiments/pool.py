"""The basic worker pool (000, section 3.2): one queue of available stations, from which any worker takes the next.

Everything about the queue is behind one lock, since all workers and all senders use it. It is here to be compared
with workers that own their stations. Importing this module adds ``pool`` to
``penstock.runtime.owners.ARCHITECTURES``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.runtime.control import LOOK, Control, Thread
from penstock.runtime.owners import ARCHITECTURES, Cell, Key, Told, adopt, by_partition
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
        self._blocked: dict[Partition, list[Station]] = {}
        """The partitions that somebody runs, and stations of them that wait until that ends."""
        self._failed, self._clock = failed, clock

    @property
    def strategy_name(self) -> str:
        return self._strategy.name if self._strategy is not None else ""

    def adopt(self, stations: Sequence[Station], strategy: Strategy) -> None:
        """Have these stations and no others, from now on. Called while nobody works."""
        self._strategy, self._blocked = strategy, {}
        strategy.assign(stations)
        for station in stations:
            station.owner, station.ready, station.signalled = self, False, True
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
            self._blocked[station.partition] = []
            limit = strategy.limit(station)
        rows = serve(station, strategy, limit, self._clock, self._failed)
        with self._lock:
            release(strategy, station, rows)
            self._unblock(strategy, station.partition)
        return True

    def _next(self, strategy: Strategy, now: float) -> Station | None:
        while (station := strategy.choose(now)) is not None and station.partition in self._blocked:
            self._blocked[station.partition].append(station)
        return station

    def _unblock(self, strategy: Strategy, partition: Partition) -> None:
        for station in self._blocked.pop(partition):
            strategy.available(station)


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

    def sleeps(self, thread: Thread) -> float:
        with self._lock:
            if thread not in self._idle:
                self._idle.append(thread)
        return 0.0 if self.queue else math.inf

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()


class Pools:
    """A pool for the cells of each strategy. One with the same strategy and threads is kept when cells are assigned
    anew."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._pools: dict[Key, Pool] = {}

    def assign(self, cells: Sequence[Cell], partitions: Mapping[int, Partition], stations: Sequence[Station]) -> None:
        pooled: dict[tuple[int, Key], list[Cell]] = {}
        for cell in cells:
            if cell.kind != "direct":
                threads = 1 if cell.kind == "graph" else cell.settings.threads
                pooled.setdefault((threads, cell.settings.how), []).append(cell)
        self._keep(pooled)
        found = by_partition(stations)
        for key, mine in pooled.items():
            if key not in self._pools:
                self._pools[key] = Pool(PoolQueue(self._control.failed), self._control, key[0])
            queue = self._pools[key].queue
            adopt(queue, mine, partitions, found)
            for _ in range(len(queue)):
                queue.waker()

    def keeps(self, before: Sequence[Cell], now: Sequence[Cell]) -> bool:
        """Any thread may be at work on any cell."""
        return False

    def adjust(self, cells: Sequence[tuple[Cell, Cell]]) -> list[Told] | None:
        """Threads and strategies belong to a pool as it is made."""
        ways = [(before.settings, now.settings) for before, now in cells if now.kind != "direct"]
        return [] if all((a.how, a.threads) == (b.how, b.threads) for a, b in ways) else None

    def stop(self) -> None:
        self._keep({})

    def _keep(self, pooled: Mapping[tuple[int, Key], object]) -> None:
        for key in self._pools.keys() - pooled.keys():
            self._pools.pop(key).stop()


ARCHITECTURES["pool"] = Pools
