"""The thread scheduler (001, level 3): some threads run many workers, the most important first.

Who waits gets more important with time, so nobody starves: a worker that has waited ``AGEING`` seconds longer goes
before one whose priority is higher by one.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from penstock.runtime.control import Control, Thread
from penstock.runtime.worker import Worker

AGEING = 0.01
SLICE = 0.005
"""Seconds for which a worker runs before others get their turn; never in the middle of a message."""

T = TypeVar("T")


class Turns(Generic[T]):
    """Who is next, by priority and waiting time. Since all wait at the same speed, the order of two never changes."""

    def __init__(self, ageing: float = AGEING) -> None:
        self._ageing = ageing
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0

    def add(self, item: T, priority: int, now: float) -> None:
        self._count += 1
        heapq.heappush(self._heap, (now - priority * self._ageing, self._count, item))

    def next(self) -> T | None:
        return heapq.heappop(self._heap)[2] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._heap)


class ThreadScheduler:
    """A fixed number of threads. A worker is run by one of them at a time: it is in the turns, or with a thread, or
    has nothing to do."""

    def __init__(self, control: Control, threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._control, self._clock = control, clock
        self._lock = threading.Lock()
        self._turns: Turns[Worker] = Turns()
        self._scheduled: set[Worker] = set()
        self._idle: list[Thread] = []
        self._threads = [control.start(self, f"penstock-worker-{i + 1}") for i in range(threads)]

    def adopt(self, workers: Sequence[Worker]) -> None:
        """Run these and no others, from now on. Called while nobody works."""
        with self._lock:
            self._turns.clear()
            self._scheduled.clear()
        for worker in workers:
            worker.waker = lambda worker=worker: self.schedule(worker)  # type: ignore[misc]
            if not worker.idle:
                self.schedule(worker)

    def schedule(self, worker: Worker) -> None:
        """The worker has something to do."""
        if worker in self._scheduled:  # whoever runs it looks again after taking it out
            return
        with self._lock:
            if worker in self._scheduled:
                return
            self._scheduled.add(worker)
            self._turns.add(worker, worker.priority, self._clock())
            thread = self._idle.pop() if self._idle else None
        if thread is not None:
            thread.wake()

    def work(self, thread: Thread) -> bool:
        worked = False
        while not thread.hurried:
            with self._lock:
                worker = self._turns.next()
            if worker is None:
                break
            worker.run(thread, self._control, self._clock() + SLICE)
            with self._lock:
                self._scheduled.discard(worker)
            if not worker.idle:
                self.schedule(worker)
            elif self._control.watched:
                self._control.notify()
            worked = True
        return worked

    def sleeps(self, thread: Thread) -> bool:
        with self._lock:
            if self._turns:
                return False
            if thread not in self._idle:
                self._idle.append(thread)
            return True

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()
