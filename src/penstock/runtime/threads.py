"""The thread scheduler (001, level 3): some threads run many workers, the most important first.

Who waits gets more important with time, so nobody starves: a worker that has waited ``AGEING`` seconds longer goes
before one whose priority is higher by one.

Threads share one interpreter, so a worker takes time from those that run beside it. None begins beside a more important
one, therefore, unless that has been at work without a break for as long as it would have to wait for its turn. A more
important worker waits for the end of a turn that a less important one has begun, for at most ``SLICE`` seconds: each of
the two takes more rows at once then. One that has done everything rests (see ``rest``), for
``LEAST`` seconds or longer.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.runtime.control import Control, Thread
from penstock.runtime.station import AGEING
from penstock.runtime.worker import Worker, rest

SLICE = 0.01
"""Seconds for which a worker runs before others get their turn; never in the middle of a message."""
LEAST = 0.001
"""Seconds for which a worker that has done everything rests at least: with less, the one that shares its thread gets
through less than without priorities (``benchmarks/priorities.py``)."""

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

    def first(self) -> T | None:
        """Who is next, and stays."""
        return self._heap[0][2] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)


class ThreadScheduler:
    """A fixed number of threads. A worker is run by one of them at a time: it is in the turns, or with a thread, or
    has nothing to do."""

    def __init__(self, control: Control, threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._control, self._clock = control, clock
        self._lock = threading.Lock()
        self._turns: Turns[Worker] = Turns()
        self._scheduled: dict[Worker, float] = {}  # since when each has something to do without a break
        self._running: dict[Worker, float] = {}  # since when each has its turn
        self._resting: dict[Worker, float] = {}  # until when each worker without work rests
        self._idle: list[Thread] = []
        self._threads = [control.start(self, f"penstock-worker-{i + 1}") for i in range(threads)]

    def adopt(self, worker: Worker) -> None:
        """Run this one, too, from now on. Called while nobody runs it; when it is nobody's any more, it has nothing
        to do."""
        worker.waker = lambda: self.schedule(worker)

    def resize(self, threads: int) -> None:
        """Have this many threads from now on. Those that are too many end after what they are working on."""
        with self._lock:
            gone, self._threads = self._threads[threads:], self._threads[:threads]
            for thread in gone:
                thread.stop()
            self._idle = [thread for thread in self._idle if thread not in gone]
        first = len(self._threads) + 1
        self._threads += [self._control.start(self, f"penstock-worker-{i}") for i in range(first, threads + 1)]
        self._wake_helper()

    def _wake_helper(self) -> None:
        """Have a thread that sleeps do what is left by one that ends."""
        with self._lock:
            helper = self._helper(self._clock())
        if helper is not None:
            helper.wake()

    def schedule(self, worker: Worker) -> None:
        """The worker has something to do."""
        if worker in self._scheduled and self._clock() < self._resting.get(worker, math.inf):
            return  # the thread that runs it looks again after taking it out, or when it has rested
        with self._lock:
            now = self._clock()
            self._rested(now)
            if worker not in self._scheduled:
                self._scheduled[worker] = now
                self._turns.add(worker, worker.priority, now)
            thread = self._helper(now)
        if thread is not None:
            thread.wake()

    def work(self, thread: Thread) -> bool:
        worked = False
        with self._lock:
            if thread in self._idle:
                self._idle.remove(thread)  # its time was over, no thread has woken it
        while not thread.hurried:
            with self._lock:
                now = self._clock()
                worker = self._turns.next() if self._delay(now) <= 0 else None
                if worker is None:
                    break
                self._running[worker] = now
                helper = self._helper(now)
            if helper is not None:
                helper.wake()
            worker.run(thread, self._control, now + SLICE)
            with self._lock:
                del self._running[worker]
                end = self._clock()
                if not worker.idle:
                    self._turns.add(worker, worker.priority, end)
                elif not self._control.watched:
                    self._resting[worker] = end + max(LEAST, rest(end - now))
                else:
                    del self._scheduled[worker]
            if worker not in self._scheduled:
                if not worker.idle:  # an instruction came in between
                    self.schedule(worker)
                elif self._control.watched:
                    self._control.notify()
            worked = True
        if thread.hurried:
            self._wake_helper()
        return worked

    def _delay(self, now: float) -> float:
        """Seconds after which the next worker may run beside those that do, if nothing happens before; infinite if
        something has to. Under the lock."""
        others = self._rested(now)
        worker = self._turns.first()
        if worker is None:
            return others
        delay, mine = 0.0, worker.priority
        for other, began in self._running.items():
            ahead = other.priority - mine
            if now - self._scheduled[other] < AGEING * ahead:
                return others
            if ahead < 0:
                delay = max(delay, began + SLICE - now)
        return min(delay, others)

    def _rested(self, now: float) -> float:
        """Add workers to the turns that have rested and have something to do; seconds until another worker has rested,
        which may be infinite. Under the lock."""
        for worker in [w for w, until in self._resting.items() if until <= now]:
            del self._resting[worker]
            del self._scheduled[worker]
            if not worker.idle:
                self._scheduled[worker] = now
                self._turns.add(worker, worker.priority, now)
        return min(self._resting.values(), default=now + math.inf) - now

    def _helper(self, now: float) -> Thread | None:
        """A thread to wake, if one sleeps and there is something for it. Under the lock."""
        return self._idle.pop() if self._idle and self._delay(now) < math.inf else None

    def sleeps(self, thread: Thread) -> float:
        with self._lock:
            seconds = 0.0 if thread.hurried else self._delay(self._clock())
            if seconds > 0 and thread not in self._idle:
                self._idle.append(thread)
            return seconds

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()
