"""Workers, pool and thread scheduler without threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from experiments.pool import PoolQueue
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.vertex import Vertex
from penstock.runtime.buffer import Buffer
from penstock.runtime.control import Control, Thread
from penstock.runtime.station import Partition, Station
from penstock.runtime.strategies import strategy
from penstock.runtime.threads import Turns
from penstock.runtime.worker import Worker
from tests.runtime.fakes import Map, Merge, Sink, Source, chain, link, message
from tests.runtime.stations import Rig


class Watch:
    """Counts what a worker tells the world."""

    def __init__(self) -> None:
        self.woken = 0
        self.failures: list[tuple[Vertex | None, Exception]] = []

    def wake(self) -> None:
        self.woken += 1

    def failed(self, vertex: Vertex | None, error: Exception) -> None:
        self.failures.append((vertex, error))


def worker(rig: Rig, name: str = "fifo") -> tuple[Worker, Watch]:
    watch = Watch()
    made = Worker("test", watch.failed)
    made.waker = watch.wake
    made.adopt(rig.all, strategy(name))
    return made, watch


def test_instructions_come_first() -> None:
    sink = Sink(1)
    rig = Rig(sink)
    made, _ = worker(rig)
    rig.put(1, message([(1, 0, 0)]))
    seen: list[int] = []
    made.instruct(lambda: seen.append(sink.stats.calls))
    assert made.step(0.0)
    assert (seen, sink.stats.calls) == ([0], 1)


def test_a_worker_is_woken_once_until_it_has_looked() -> None:
    rig = Rig(Sink(1))
    made, watch = worker(rig)
    for ts in range(3):
        rig.put(1, message([(ts, 0, 0)]))
    assert watch.woken == 1
    while made.step(0.0):
        pass
    assert made.idle
    rig.put(1, message([(9, 0, 0)]))
    assert watch.woken == 2


def test_a_signal_to_the_owner_of_before_is_left() -> None:
    """A sender puts, and before it tells the worker of the station, that is another one."""
    sink = Sink(1)
    rig = Rig(sink)
    before, _ = worker(rig)
    station = rig.stations[1]
    station.signalled = True  # the sender has said so
    rig.put(1, message([(1, 0, 0)]))
    before.retire()
    now, _ = worker(rig)
    before.instruct(station)
    assert not before.step(0.0)
    assert sink.stats.calls == 0
    assert now.step(0.0)
    assert sink.stats.calls == 1
    before.instruct(station)
    rig.put(1, message([(2, 0, 0)]))
    assert not before.step(0.0)
    assert now.step(0.0)
    assert sink.stats.calls == 2


def test_a_worker_that_is_halted_begins_with_nothing() -> None:
    sink = Sink(1)
    rig = Rig(sink)
    made, watch = worker(rig)
    control = Control()
    thread = Thread(control, Looks(), "penstock-worker-test")
    with control.paused([made]):
        rig.put(1, message([(1, 0, 0)]))
        woken = watch.woken
        assert made.idle
        assert not made.run(thread, control)
        with control.paused([made]):
            assert control.is_halted(made)
        assert made.idle
    assert watch.woken == woken + 1
    assert made.run(thread, control)
    assert sink.stats.calls == 1


def test_local_buffers_wake_nobody() -> None:
    first, second = Map(1), Sink(2)
    chain(Source(0), first, second)
    rig = Rig(first, second)
    made, watch = worker(rig)
    rig.put(1, message([(1, 0, 0)]))
    assert made.step(0.0)
    assert made.step(0.0)
    assert (watch.woken, second.stats.calls) == (1, 1)


def test_what_waits_already_is_seen_when_stations_are_adopted() -> None:
    sink = Sink(1)
    rig = Rig(sink)
    rig.put(1, message([(1, 0, 0)]))
    made, _ = worker(rig)
    assert not made.idle
    assert made.step(0.0)
    assert sink.stats.calls == 1


def test_held_back_input_becomes_available_with_the_other() -> None:
    merge = Merge(1)
    link(Source(2), merge)
    link(Source(3), merge)
    rig = Rig(merge)
    made, _ = worker(rig)
    rig.put(1, message([], 5), 1)
    rig.put(1, message([(10, 0, 0)], 11), 0)
    rig.put(1, message([(20, 0, 0)], 21), 0)
    while made.step(0.0):
        pass
    assert merge.order == [1, 0]
    rig.put(1, message([], 11), 1)
    while made.step(0.0):
        pass
    assert merge.order == [1, 0, 1, 0]


def test_an_unexpected_error_is_reported_and_the_worker_goes_on() -> None:
    def fail(value: int) -> int:
        raise RuntimeError("unexpected")

    broken, sink = Map(1, fail), Sink(2)
    link(Source(0), broken)
    rig = Rig(broken, sink)
    made, watch = worker(rig)
    rig.put(1, message([(1, 0, 0)]))
    rig.put(2, message([(1, 0, 0)]))
    while made.step(0.0):
        pass
    assert [(v, str(e)) for v, e in watch.failures] == [(broken, "unexpected")]
    assert sink.stats.calls == 1
    assert broken.state == "ready"


@given(st.lists(st.none() | st.integers(1, 3), max_size=40), st.sampled_from(["fifo", "chain+", "flow", "min-cost"]))
def test_no_signal_is_lost(moves: list[int | None], name: str) -> None:
    """Whatever is put between which steps: a worker that is idle has nothing left."""
    first, second, third = Map(1), Merge(2), Sink(3)
    link(Source(0), first)
    link(first, second)
    link(Source(9), second)
    link(second, third)
    rig = Rig(first, second, third)
    made, _ = worker(rig, name)
    for ts, move in enumerate(moves):
        if move is None:
            made.step(float(ts))
        else:
            rig.put(min(move, 2), message([(ts, 0, 0)]), 1 if move == 2 else 0)
    while made.step(0.0):
        pass
    assert made.idle
    assert not any(s.available() for s in rig.all)


class Interrupted(Station):
    """Somebody puts a message just after the worker has looked."""

    __slots__ = ("then",)
    then: Callable[[], None] | None

    def available(self) -> bool:
        found = super().available()
        if not found and self.then is not None:
            then, self.then = self.then, None
            then()
        return found


@pytest.mark.parametrize("before", [1, 0])
def test_a_message_that_comes_while_the_worker_looks_is_seen(before: int) -> None:
    """After its last turn, and after a signal without a message: the sender believes that the worker knows."""
    sink = Sink(1)
    link(Source(0), sink)
    station = Interrupted(sink, Partition(1, [sink]))
    buffer = Buffer(sink.inputs[0], itertools.count(), station)
    station.buffers.append(buffer)
    station.then = None
    watch = Watch()
    made = Worker("test", watch.failed)
    made.adopt([station], strategy("fifo"))
    for ts in range(before):
        buffer.put(message([(ts, 0, 0)]))
    station.then = lambda: buffer.put(message([(5, 0, 0)]))
    station.signalled = True
    made.instruct(station)
    while made.step(0.0):
        pass
    assert sink.stats.calls == before + 1


class Looks:
    """The body of a thread that finds something just before it sleeps, and then ends."""

    def __init__(self) -> None:
        self.worked = 0

    def work(self, thread: Thread) -> bool:
        self.worked += 1
        if self.worked == 2:
            thread.stop()
        return True

    def sleeps(self, thread: Thread) -> float:
        assert thread.asleep
        return 0.0


def test_a_thread_looks_again_before_it_sleeps() -> None:
    body = Looks()
    thread = Control().start(body, "penstock-worker-test")
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert body.worked == 2


# -- the pool ---------------------------------------------------------------------------------------------


def test_two_workers_of_a_pool_never_share_a_partition() -> None:
    """A second worker asks while the first is at work: it gets another partition, or nothing."""
    asked: list[bool] = []
    first = Sink(1, lambda: asked.append(queue.step(0.0)))
    second, third = Sink(2), Sink(3)
    rig = Rig(first, second, third)
    shared = Partition(7, [first, second])
    rig.stations[1].partition = rig.stations[2].partition = shared
    queue = PoolQueue(Watch().failed)
    queue.adopt(rig.all, strategy("round-robin"))
    for id in (1, 2, 3):
        rig.put(id, message([(1, 0, 0)]))
    assert queue.step(0.0)
    assert asked == [True]
    assert [f.stats.calls for f in (first, second, third)] == [1, 0, 1]
    assert queue.step(0.0)
    assert second.stats.calls == 1
    assert not queue.step(0.0)


def test_a_pool_is_woken_for_each_station() -> None:
    watch = Watch()
    rig = Rig(Sink(1), Sink(2))
    queue = PoolQueue(watch.failed)
    queue.waker = watch.wake
    queue.adopt(rig.all, strategy("fifo"))
    for id in (1, 2, 1):
        rig.put(id, message([(id, 0, 0)], 9))
    assert watch.woken == 2


# -- the thread scheduler ---------------------------------------------------------------------------------


def test_the_most_important_is_next() -> None:
    turns: Turns[str] = Turns(ageing=1.0)
    for name, priority in (("low", 0), ("high", 9), ("middle", 5), ("high too", 9)):
        turns.add(name, priority, 0.0)
    assert [turns.next() for _ in range(5)] == ["high", "high too", "middle", "low", None]


def test_nobody_starves() -> None:
    """One of high priority asks for a turn again and again; the low one gets its turn after the ageing of nine."""
    turns: Turns[str] = Turns(ageing=1.0)
    turns.add("low", 0, 0.0)
    now = 0.0
    while True:
        turns.add("high", 9, now)
        if turns.next() == "low":
            break
        now += 0.5
    assert now == 9.0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=30))
def test_order_is_that_of_priority_with_age(entries: list[tuple[int, int]]) -> None:
    turns: Turns[int] = Turns(ageing=2.0)
    for i, (priority, now) in enumerate(sorted(entries, key=lambda e: e[1])):
        turns.add(i, priority, float(now))
    ranked = sorted(entries, key=lambda e: e[1])
    got = [ranked[i] for i in iter(turns.next, None)]
    later = 100.0
    effective = [p + (later - t) / 2.0 for p, t in got]
    assert effective == sorted(effective, reverse=True)
