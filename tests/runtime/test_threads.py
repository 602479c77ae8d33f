"""Threads: how many there are, that they stand still, settle and end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.errors import StateError
from penstock.runtime.control import Control
from penstock.runtime.run import Runtime
from penstock.runtime.strategies import strategy
from penstock.runtime.threads import SLICE, ThreadScheduler
from penstock.runtime.wakeup import EventWakeup, LockWakeup, wakeup
from penstock.runtime.worker import REST, OwnThread, Worker
from tests.runtime.fakes import THREADED, Map, Sink, Source, chain, link, message, pipeline
from tests.runtime.stations import Rig

EACH = {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({"threading": "direct"}, 0),
        ({"threading": "direct", "architecture": "pool"}, 0),
        ({"threading": "graph"}, 1),
        ({"threading": "graph", "architecture": "pool", "workers": 5}, 1),
        ({"threading": "operator"}, 3),
        ({"threading": "operator", "architecture": "pool", "workers": 5}, 5),
        ({"threading": "hybrid", "workers": 2}, 2),
        ({"threading": "hybrid", "workers": 9}, 3),
    ],
)
def test_as_many_threads_as_asked_for(
    runtimes: Callable[..., Runtime], settings: dict[str, Any], threads: int
) -> None:
    runtime = runtimes(**settings)
    source, vertices, sink = pipeline()
    before = set(threading.enumerate())
    runtime.place(vertices, [source], EACH)
    started = [t for t in threading.enumerate() if t not in before]
    assert runtime.threads == len(started) == threads
    assert all(t.daemon and t.name.startswith("penstock-worker-") for t in started)
    source.send(message([(1, 0, 7)]))
    runtime.settle()
    assert sink.rows == {0: [(1, 0, 7)]}
    assert len(runtime.buffers) == (3 if threads else 0)


def test_threads_stay_when_the_graph_grows(runtimes: Callable[..., Runtime]) -> None:
    runtime = runtimes(threading="operator")
    source, vertices, sink = pipeline()
    before = set(threading.enumerate())
    runtime.place(vertices, [source], {})
    started = set(threading.enumerate()) - before
    more = Sink(4)
    link(vertices[1], more)
    runtime.place([*vertices, more], [source], {})
    assert started < set(threading.enumerate()) - before
    source.send(message([(1, 0, 7)]))
    runtime.settle()
    assert sink.rows == more.rows == {0: [(1, 0, 7)]}


def test_what_waits_for_an_operator_that_is_gone_is_gone(runtimes: Callable[..., Runtime]) -> None:
    runtime = runtimes(threading="operator")
    source, vertices, sink = pipeline()
    more = Sink(4)
    link(vertices[1], more)
    runtime.place([*vertices, more], [source], {})
    runtime.suspend(more)
    source.send(message([(1, 0, 7)]))
    runtime.settle()
    edge = vertices[1].outputs.pop()
    runtime.place(vertices, [source], {})
    source.send(message([(2, 0, 8)]))
    runtime.settle()
    assert sink.rows == {0: [(1, 0, 7), (2, 0, 8)]}
    assert more.rows == {}
    assert edge.buffer is None


@pytest.mark.parametrize("settings", THREADED)
def test_pause_waits_for_what_is_being_worked_on(
    runtimes: Callable[..., Runtime], settings: dict[str, Any]
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        go_on.wait()

    runtime = runtimes(**settings)
    source, vertices, sink = pipeline(work)
    runtime.place(vertices, [source], EACH)
    source.send(message([(1, 0, 0)]))
    inside.wait()
    seen: list[int] = []

    def pause() -> None:
        with runtime.paused():
            seen.append(len(sink.rows[0]))
            source.send(message([(2, 0, 0)]))
            seen.append(len(sink.rows[0]))

    pauser = threading.Thread(target=pause)
    pauser.start()
    assert seen == []
    go_on.set()
    pauser.join()
    assert seen == [1, 1]
    runtime.settle()
    assert len(sink.rows[0]) == 2


@pytest.mark.parametrize("settings", THREADED)
def test_settle_and_pause_from_within_a_worker(runtimes: Callable[..., Runtime], settings: dict[str, Any]) -> None:
    """A subscriber's call may ask for anything; what cannot be is refused, and nothing stands still for ever."""
    refused: list[str] = []

    def call() -> None:
        runtime.settle()
        with pytest.raises(StateError) as error, runtime.paused():
            pass
        refused.append(error.value.message)
        with pytest.raises(StateError) as error:
            runtime.place([], [], {})
        refused.append(error.value.message)

    runtime = runtimes(**settings)
    source, vertices, sink = pipeline(call)
    runtime.place(vertices, [source], EACH)
    source.send(message([(1, 0, 0)]))
    runtime.settle()
    assert len(sink.rows[0]) == 1
    assert refused == ["the graph cannot be changed from within a worker"] * 2


@pytest.mark.parametrize("settings", THREADED)
def test_a_worker_of_one_runtime_settles_another(
    runtimes: Callable[..., Runtime], settings: dict[str, Any]
) -> None:
    other = runtimes(threading="graph")
    far_source, far_vertices, far_sink = pipeline()
    other.place(far_vertices, [far_source], {})
    seen: list[int] = []

    def call() -> None:
        far_source.send(message([(1, 0, 0)]))
        other.settle()
        seen.append(len(far_sink.rows[0]))

    runtime = runtimes(**settings)
    source, vertices, _ = pipeline(call)
    runtime.place(vertices, [source], EACH)
    source.send(message([(1, 0, 0)]))
    runtime.settle()
    assert seen == [1]


@pytest.mark.parametrize("settings", THREADED)
def test_settle_ends_while_others_go_on_pushing(runtimes: Callable[..., Runtime], settings: dict[str, Any]) -> None:
    runtime = runtimes(**settings)
    source, vertices, sink = pipeline()
    runtime.place(vertices, [source], EACH)
    pushed, enough = [0], threading.Event()

    def push() -> None:
        while not enough.is_set():
            source.send(message([(pushed[0], 0, 0)]))
            pushed[0] += 1

    def settle() -> None:
        for _ in range(20):
            before = pushed[0]
            runtime.settle()
            short.append(len(sink.rows.get(0, [])) < before)

    short: list[bool] = []
    threads = [threading.Thread(target=settle) for _ in range(3)]
    pusher = threading.Thread(target=push)
    for thread in (pusher, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    enough.set()
    pusher.join()
    runtime.settle()
    assert not any(short)
    assert len(short) == 60
    assert len(sink.rows[0]) == pushed[0]


@pytest.mark.parametrize("settings", THREADED)
def test_close_in_the_middle_of_a_batch(runtimes: Callable[..., Runtime], settings: dict[str, Any]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        go_on.wait()

    runtime = runtimes(**settings)
    source, vertices, sink = pipeline(work)
    runtime.place(vertices, [source], EACH)
    for ts in range(5):
        source.send(message([(ts, 0, 0)]))
        inside.wait()
    settled = threading.Thread(target=runtime.settle)
    settled.start()
    closers = [threading.Thread(target=runtime.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    settled.join()  # does not wait for the batch
    go_on.set()
    for closer in closers:
        closer.join()
    assert runtime.threads == 0
    assert len(sink.rows[0]) == 1
    with pytest.raises(StateError, match="closed"):
        runtime.place(vertices, [source], {})


@pytest.mark.parametrize("settings", THREADED)
def test_close_from_within_a_worker(runtimes: Callable[..., Runtime], settings: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    runtime = runtimes(**settings)
    source, vertices, _ = pipeline(lambda: runtime.close())
    runtime.place(vertices, [source], EACH)
    source.send(message([(1, 0, 0)]))
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert runtime.threads == 0


def test_close_in_a_pause(runtimes: Callable[..., Runtime]) -> None:
    before = set(threading.enumerate())
    runtime = runtimes(threading="operator")
    source, vertices, _ = pipeline()
    runtime.place(vertices, [source], {})
    with runtime.paused():
        runtime.close()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert runtime.threads == 0


def test_an_unexpected_error_reaches_the_handler(
    runtimes: Callable[..., Runtime], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(value: int) -> int:
        if value == 1:
            raise RuntimeError("unexpected")
        return value

    failures: list[tuple[object, str]] = []
    runtime = runtimes(lambda v, error: failures.append((v, str(error))), threading="operator", strategy="fifo")
    source, broken, sink = Source(0), Map(1, fail), Sink(2)
    chain(source, broken, sink)
    runtime.place([broken, sink], [source], {})
    for ts in range(3):
        source.send(message([(ts, 0, ts)]))
    runtime.settle()
    assert failures == [(broken, "unexpected")]
    assert "unexpected error in operator 1 (Map 1)" in caplog.text
    assert sink.rows == {0: [(0, 0, 0), (2, 0, 2)]}


def test_an_error_of_the_runtime_itself_ends_it(
    runtimes: Callable[..., Runtime], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[tuple[object, str]] = []
    runtime = runtimes(lambda vertex, error: failures.append((vertex, str(error))), threading="graph")
    source, vertices, _ = pipeline()
    runtime.place(vertices, [source], {})

    def broken(self: object, now: float) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("penstock.runtime.strategy.ByKey.choose", broken)
    source.send(message([(1, 0, 0)]))
    runtime.settle()
    assert failures == [(None, "a bug")]
    assert "a bug" in caplog.text


@pytest.mark.parametrize("kind", [LockWakeup, EventWakeup])
def test_a_wake_up_is_not_lost(kind: type[LockWakeup | EventWakeup]) -> None:
    made = kind()
    made.wait(0.001)  # nobody wakes it
    made.wake()
    made.wake()
    made.wait()
    woken = threading.Thread(target=made.wait, daemon=True)
    woken.start()
    made.wake()
    woken.join(30)
    assert not woken.is_alive()


def test_only_some_threads_get_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventWakeup, "open", EventWakeup.MOST)
    assert isinstance(wakeup(), LockWakeup)


class Beside:
    """Two workers and some threads, with a clock that stands. The turn of the first has ``begun`` and lasts until
    ``go_on``; ``ran``: the second has had its turn. ``close`` ends the threads."""

    def __init__(self, first: int, second: int, threads: int = 2) -> None:
        self.now, self.ran, self.go_on = 0.0, threading.Event(), threading.Event()
        self.begun = threading.Event()

        def long(value: int) -> int:
            self.begun.set()
            self.go_on.wait(5)
            return value

        def short(value: int) -> int:
            self.ran.set()
            return value

        self._rig, self._control = Rig(Map(1, long, priority=first), Map(2, short, priority=second)), Control()
        scheduler = ThreadScheduler(self._control, threads, clock=lambda: self.now)
        for id in (1, 2):
            worker = Worker(str(id), self._control.failed, clock=lambda: self.now)
            worker.adopt([self._rig.stations[id]], strategy("fifo"))
            scheduler.adopt(worker)
        self.put(1)
        assert self.begun.wait(5)

    def put(self, id: int) -> None:
        self._rig.put(id, message([(1, 0, 0)]))

    def close(self) -> None:
        self.go_on.set()
        self._control.close()


@pytest.mark.parametrize(("since", "beside"), [(0.0, False), (1.0, True)])
def test_nobody_begins_beside_a_more_important_one_that_has_just_begun(since: float, beside: bool) -> None:
    """Nine against one: after eight times ``AGEING`` it does not matter any more."""
    with contextlib.closing(Beside(9, 1)) as two:
        two.now = since
        two.put(2)
        assert two.ran.wait(5 if beside else 0.2) == beside
        two.go_on.set()
        assert two.ran.wait(5)


@pytest.mark.parametrize(("since", "beside"), [(0.0, False), (2 * SLICE, True)])
def test_a_more_important_one_lets_a_turn_end_that_does_not_last_long(since: float, beside: bool) -> None:
    with contextlib.closing(Beside(1, 9)) as two:
        two.put(2)
        assert not two.ran.wait(0.1), "the turn has just begun"
        two.now = since
        assert two.ran.wait(5 if beside else 0.1) == beside
        two.go_on.set()
        assert two.ran.wait(5)


def test_a_worker_with_a_thread_of_its_own_rests_too() -> None:
    now, begun, go_on, control = 0.0, threading.Event(), threading.Event(), Control()

    def long(value: int) -> int:
        begun.set()
        go_on.wait(5)
        return value

    rig = Rig(Map(1, long))
    worker = Worker("1", control.failed, clock=lambda: now)
    worker.adopt([rig.stations[1]], strategy("fifo"))
    own = OwnThread(worker, control, clock=lambda: now)
    try:
        rig.put(1, message([(1, 0, 0)]))
        assert begun.wait(5)
        begun.clear()
        now = REST / 4  # so long it has worked
        go_on.set()
        while not own.thread.asleep:
            time.sleep(0.001)
        rig.put(1, message([(2, 0, 0)]))
        assert not begun.wait(0.1)
        now = REST
        assert begun.wait(5)
    finally:
        go_on.set()
        control.close()


def test_a_pause_that_ends_a_rest_loses_no_row() -> None:
    now, control, taken = 0.0, Control(), threading.Semaphore(0)

    def take(value: int) -> int:
        nonlocal now
        now += REST  # so long it works, and then the clock stands: only the pause ends the rest
        taken.release()
        return value

    rig = Rig(Map(1, take))
    worker = Worker("1", control.failed, clock=lambda: now)
    worker.adopt([rig.stations[1]], strategy("fifo"))
    own = OwnThread(worker, control, clock=lambda: now)
    try:
        rig.put(1, message([(1, 0, 0)]))
        assert taken.acquire(timeout=5)
        while not own.thread.asleep:
            time.sleep(0.001)
        with control.paused():
            time.sleep(0.1)  # the thread sees the pause
            rig.put(1, message([(2, 0, 0)]))
        assert taken.acquire(timeout=5)
    finally:
        control.close()


def test_who_has_done_everything_rests_before_it_begins_again() -> None:
    """Twice as long as it has worked: rows that come one by one are worked on together."""
    with contextlib.closing(Beside(5, 5, threads=1)) as two:
        two.now = REST / 4  # so long it has worked
        two.begun.clear()
        two.put(2)
        two.go_on.set()
        assert two.ran.wait(5), "another one does not wait for it"
        two.put(1)
        assert not two.begun.wait(0.1)
        two.now = REST
        assert two.begun.wait(5)
