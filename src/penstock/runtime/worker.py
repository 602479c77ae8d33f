"""A worker: it owns stations, and one thread at a time runs it.

Everything that a worker owns is touched by the thread that runs it. Others only add to its instructions, which are
served before anything else: that something has come to a station is the most frequent one (000, section 4.2).
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from penstock.graph.vertex import Vertex
from penstock.runtime.control import LOOK, Control, Thread
from penstock.runtime.station import Station
from penstock.runtime.strategy import Strategy

Instruction = Callable[[], None]
Clock = Callable[[], float]


def admit(strategy: Strategy, station: Station) -> bool:
    """A station says that it has something to do: the strategy gets it, unless it is not so, or it has it."""
    if station.ready:
        return False
    if not station.available():
        station.signalled = False
        if not station.available():  # what came before this line is seen here; what comes later is signalled again
            return False
        station.signalled = True
    station.ready = True
    strategy.available(station)
    return True


def release(strategy: Strategy, station: Station, rows: int) -> None:
    """A station has had its turn."""
    more = station.available()
    if not more:
        station.ready = station.signalled = False
        if station.available():
            more = station.ready = station.signalled = True
    strategy.served(station, rows, more)


def serve(station: Station, strategy: Strategy, limit: int | None, clock: Clock, failed: Failed) -> int:
    """Give a station its turn; measured where a turn has a time."""
    timed = strategy.seconds(station) is not None
    start = clock() if timed else 0.0
    try:
        rows = station.serve(limit, strategy.train, strategy.apart)
    except Exception as error:
        failed(station.vertex, error)
        station.give_up()
        return 0
    if timed and rows:
        cost = (clock() - start) / rows
        station.cost = cost if station.cost is None else 0.7 * station.cost + 0.3 * cost
    return rows


REST = 0.002
"""Seconds for which a worker that has done everything rests at most."""


def rest(worked: float) -> float:
    """For how many seconds a worker that has done everything leaves the interpreter to those who give it more: twice as
    long as it has worked. It would begin with every single row otherwise, and a turn costs as much for one as for ten.
    """
    return min(2 * worked, REST)


Failed = Callable[[Vertex | None, Exception], None]


class Worker:
    """The worker without its thread. ``waker`` is called when an instruction comes from outside.

    ``halted``: it stands, whatever there is to do, while all others may go on.
    """

    def __init__(self, name: str, failed: Failed, clock: Clock = time.perf_counter) -> None:
        self.name = name
        self.stations: Sequence[Station] = ()
        self.waker: Callable[[], None] = _nobody
        self._instructions: deque[Station | Instruction] = deque()  # bounded: a station once, and what callers wait for
        self._strategy: Strategy | None = None
        self._failed, self._clock = failed, clock
        self.halted = False
        self.busy = threading.Lock()  # held while working, and by who has halted it

    @property
    def strategy_name(self) -> str:
        return self._strategy.name if self._strategy is not None else ""

    @property
    def priority(self) -> int:
        """That of the most important operator."""
        return max((s.vertex.priority for s in self.stations), default=0)

    def adopt(self, stations: Sequence[Station], strategy: Strategy) -> None:
        """Own these stations and no others, from now on. Called while nobody runs the worker, but others may put
        something in front of its stations: whoever tells the owner of before has put it before this one looks."""
        self.stations, self._strategy = stations, strategy
        strategy.assign(stations)
        for station in stations:
            station.owner, station.ready, station.signalled = self, False, True
            admit(strategy, station)

    def retire(self) -> None:
        """Own nothing any more. Called while nobody runs the worker."""
        self.stations, self._strategy = (), None

    def available(self, station: Station, local: bool) -> None:
        """The signal from a buffer; from another thread it goes through the instructions."""
        if local:
            assert self._strategy is not None
            admit(self._strategy, station)
        else:
            self.instruct(station)

    def instruct(self, instruction: Station | Instruction) -> None:
        """Have something done by the thread of the worker before anything else. Callable from any thread."""
        self._instructions.append(instruction)
        self.waker()

    def reorder(self) -> None:
        """Operators have other priorities. Called by the thread of the worker."""
        if self._strategy is not None:
            self._strategy.reordered()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self.halted or (not self._instructions and not self._strategy)

    def halt(self) -> None:
        self.halted = True

    def go_on(self) -> None:
        self.halted = False
        if not self.idle:
            self.waker()

    def locks(self) -> list[threading.RLock]:
        partitions = {station.partition for station in self.stations}
        return [partition.lock for partition in partitions if partition.lock is not None]

    def choose_by(self, strategy: Strategy) -> None:
        """Have another strategy for the same stations. Called by the thread of the worker, between two turns."""
        self._strategy = strategy
        strategy.assign(self.stations)
        for station in self.stations:
            station.ready, station.signalled = False, True
            admit(strategy, station)

    def step(self, now: float) -> bool:
        """Serve the instructions, then one station. False: there was no station to serve."""
        instructions = self._instructions
        while instructions:
            instruction = instructions.popleft()
            if not isinstance(instruction, Station):
                instruction()
            elif instruction.owner is self:  # else it was sent to the owner of before
                assert self._strategy is not None
                admit(self._strategy, instruction)
        strategy = self._strategy
        station = None if strategy is None else strategy.choose(now)
        if strategy is None or station is None:
            return False
        rows = serve(station, strategy, strategy.limit(station), self._clock, self._failed)
        release(strategy, station, rows)
        return True

    def run(self, thread: Thread, control: Control, until: float | None = None) -> bool:
        """Steps until nothing is left, time is over, or the thread or the worker is asked to come to an end."""
        if self.halted or not self.busy.acquire(blocking=False):
            return False
        try:
            clock, turns = self._clock, 0
            now = clock()
            while not (thread.hurried or self.halted) and (until is None or now < until) and self.step(now):
                turns += 1
                if not turns % LOOK and control.watched:
                    control.notify()
                now = clock()
            return turns > 0
        finally:
            self.busy.release()


def _nobody() -> None:
    """A worker without a thread is woken by nobody."""


class OwnThread:
    """A worker with a thread of its own."""

    def __init__(self, worker: Worker, control: Control, clock: Clock = time.perf_counter) -> None:
        self.worker, self._control, self._clock = worker, control, clock
        self._rests = 0.0  # until when
        self.thread = control.start(self, worker.name)
        worker.waker = self._wake

    def _wake(self) -> None:
        if self._clock() >= self._rests:  # else it looks by itself
            self.thread.wake()

    def work(self, thread: Thread) -> bool:
        began = self._clock()
        worked = self.worker.run(thread, self._control)
        end = self._clock()
        self._rests = end + rest(end - began) if worked and not self._control.watched else end
        return worked

    def sleeps(self, thread: Thread) -> float:
        while (left := self._rests - self._clock()) > 0 and not thread.hurried:
            time.sleep(left)
        self._rests = 0.0  # from now on an instruction wakes the thread
        return math.inf if self.worker.idle else 0.0

    def stop(self) -> None:
        self.thread.stop()
