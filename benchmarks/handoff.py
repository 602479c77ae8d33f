"""Hand-off of batches: from a worker to the next, and between operators that call each other.

    python -m benchmarks.handoff [--quick] [--scale X] [--batches N] [--rate N]

A thread pushes small batches at a steady rate into a graph of two workers. Each hand-off is measured from the moment
the sender puts the batch to the moment the operator of the other worker has it. The ways in which a thread can be
woken are compared in the same setting; the fastest one that does not spin is what the runtime uses.
"""

from __future__ import annotations

import itertools
import os
import queue
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import experiments  # noqa: F401 - the pool
import numpy as np

from benchmarks.support.report import Report, amount, options, progress
from penstock.graph.message import Data, Mark, Message
from penstock.graph.statistics import Statistics
from penstock.graph.vertex import Edge, State
from penstock.model.delta import Arrivals
from penstock.operators.base import NOTHING, StateSize
from penstock.runtime.run import Runtime
from penstock.runtime.settings import Settings
from penstock.runtime.wakeup import EventWakeup, LockWakeup

BAR = 20.0
ROUNDS = 5
"""The best of so many rounds counts: on a machine that others use, a round says more about them."""
clock = time.perf_counter


class Pass:
    """An operator that passes on, and notes how long the batch was on its way."""

    kind = "pass"
    overtakable = sets_priority = foretells = looks_across = False

    def __init__(self, id: int) -> None:
        self.id, self.label, self.priority = id, f"pass {id}", 5
        self.state: State = "ready"
        self.stats = Statistics()
        self.inputs: list[Edge] = []
        self.outputs: list[Edge] = []
        self.sent = 0.0
        self.times: list[float] = []

    def take(self, port: int, message: Message) -> None:
        now = clock()
        self.times.append(now - message.mark.newest)
        message = Message(message.data, Mark(message.mark.frontier, message.mark.progress, clock()))
        for edge in self.outputs:
            edge.send(message)

    def take_early(self, port: int, data: Data) -> None:
        raise AssertionError("nothing overtakes here")

    def size(self) -> StateSize:
        return NOTHING


def batch(i: int) -> Message:
    """Ten rows; ``newest`` carries the moment of sending."""
    ts = np.full(10, i, np.int64)
    return Message(Arrivals((), (), ts, np.arange(10)), Mark((i + 1, 0), float(i + 1), clock()))


def paced(count: int, rate: float, send: Callable[[int], None]) -> tuple[float, float]:
    """Call at a steady rate, sleeping in between; gives the rate that was reached, and processors used meanwhile."""
    start, busy = clock(), time.process_time()
    for i in range(count):
        ahead = start + i / rate - clock()
        if ahead > 0:
            time.sleep(ahead)
        send(i)
    wall = clock() - start
    return count / wall, (time.process_time() - busy) / wall


def path(length: int) -> list[Pass]:
    vertices = [Pass(i) for i in range(length)]
    for a, b in itertools.pairwise(vertices):
        edge = Edge(a, b, 0)
        a.outputs.append(edge)
        b.inputs.append(edge)
    return vertices


def workers(report: Report, count: int, rate: float) -> None:
    """Through the runtime: from the thread that pushes to a worker, and from that to the next."""
    cases = (
        ("own threads", Settings(threading="operator", strategy="fifo")),
        ("thread scheduler", Settings(threading="hybrid", strategy="fifo", workers=2)),
        ("pool", Settings(threading="operator", strategy="fifo", architecture="pool", workers=2)),
    )
    for name, settings in cases:
        pushed, handed, late, reached, processors = (
            min(column)
            for column in zip(*[round_of(settings, count // ROUNDS, rate) for _ in range(ROUNDS)], strict=True)
        )
        bar = BAR if name == "own threads" else None
        note = f"{reached:,.0f} batches/s, {processors:.2f} processors"
        report.add(f"{name}: pushing thread to worker, median µs", pushed, bar, below=True, note=note)
        report.add(f"{name}: worker to worker, median µs", handed, bar, below=True)
        report.add(f"{name}: worker to worker, 90th percentile µs", late)


def round_of(settings: Settings, count: int, rate: float) -> tuple[float, float, float, float, float]:
    """Medians from the thread that pushes and between workers, 90th percentile, rate, processors."""
    progress(f"{settings.architecture}, {settings.threading}")
    vertices = path(4 if settings.threading == "hybrid" else 3)  # hybrid: more partitions than threads
    runtime = Runtime(settings)
    runtime.place(vertices[1:], vertices[:1], {v.id: v.id for v in vertices})
    (edge,) = vertices[0].outputs
    reached, processors = paced(count, rate, lambda i: edge.send(batch(i)))
    runtime.settle()
    runtime.close()
    return micro(vertices[1].times), micro(vertices[2].times), micro(vertices[2].times, 0.9), reached, processors


def direct(report: Report, count: int) -> None:
    """Operators that call each other, against as many plain calls."""
    vertices = path(11)
    message = batch(0)
    (edge,) = vertices[0].outputs

    def call(depth: int) -> None:
        """What ``Pass.take`` does, without the edge."""
        vertices[0].times.append(clock() - message.mark.newest)
        Message(message.data, Mark(message.mark.frontier, message.mark.progress, clock()))
        if depth:
            call(depth - 1)

    def per_call(action: Callable[[], None]) -> float:
        times = []
        for _ in range(count // 10):
            start = clock()
            action()
            times.append((clock() - start) / 10)
        return statistics.median(times) * 1e6

    plain, edges = per_call(lambda: call(9)), per_call(lambda: edge.send(message))
    report.add("fused: µs for an operator and its edge", edges)
    report.add("fused: what the edge adds to a plain call, µs", edges - plain)


# -- ways to wake a thread --------------------------------------------------------------------------------


class Handoff(Protocol):
    """One thread waits, another wakes it."""

    def wake(self) -> None: ...

    def wait(self) -> None: ...


class SimpleQueueWakeup:
    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        self._queue.put(None)

    def wait(self) -> None:
        self._queue.get()


class ConditionWakeup:
    def __init__(self) -> None:
        self._condition, self._set = threading.Condition(), False

    def wake(self) -> None:
        with self._condition:
            self._set = True
            self._condition.notify()

    def wait(self) -> None:
        with self._condition:
            while not self._set:
                self._condition.wait()
            self._set = False


class SpinWakeup:
    """Look a while, giving the processor away in between, then sleep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        self._lock.release()

    def wait(self) -> None:
        for _ in range(50):
            if self._lock.acquire(blocking=False):
                return
            time.sleep(0)
        self._lock.acquire()


def ways(report: Report, count: int, rate: float) -> None:
    """The same put and take, woken in different ways, at two switch intervals of the interpreter."""
    kinds: list[type[Handoff]] = [LockWakeup, SimpleQueueWakeup, ConditionWakeup, SpinWakeup]
    if hasattr(os, "eventfd"):
        kinds.append(EventWakeup)
    usual = sys.getswitchinterval()
    for interval in (usual, 2e-5):
        sys.setswitchinterval(interval)
        for kind in kinds:
            progress(kind.__name__)
            median, processors = woken(kind(), count, rate)
            name = f"{kind.__name__}, switch interval {interval * 1e6:g} µs: median µs"
            report.add(name, median, note=f"{processors:.2f} processors")
    sys.setswitchinterval(usual)


def woken(wakeup: Handoff, count: int, rate: float) -> tuple[float, float]:
    waiting: deque[float | None] = deque()
    times: list[float] = []
    state = {"asleep": False}

    def consume() -> None:
        while True:
            while waiting:
                sent = waiting.popleft()
                if sent is None:
                    return
                times.append(clock() - sent)
            state["asleep"] = True
            if not waiting:
                wakeup.wait()
            state["asleep"] = False

    def send(moment: float | None) -> None:
        waiting.append(moment)
        if state["asleep"]:
            state["asleep"] = False
            wakeup.wake()

    thread = threading.Thread(target=consume)
    thread.start()
    _, processors = paced(count, rate, lambda i: send(clock()))
    send(None)
    thread.join()
    return micro(times), processors


def micro(times: list[float], share: float = 0.5) -> float:
    return sorted(times)[int(len(times) * share)] * 1e6


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--batches", type=int)
    parser.add_argument("--rate", type=float, default=10_000)
    arguments = parser.parse_args()
    batches = arguments.batches or amount(arguments, 20_000, 3_000)
    report = Report("handoff")
    workers(report, batches, arguments.rate)
    direct(report, batches)
    ways(report, batches // 2, arguments.rate)
    report.finish()


if __name__ == "__main__":
    main()
