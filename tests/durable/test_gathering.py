"""Threads that push one row each with ``sync='group'``: they share what it takes to be safe, and nothing else."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock.database.database import core_of
from penstock.database.gathering import _Push, _State
from penstock.model.errors import InputError, PenstockError, StorageError
from penstock.storage.store import Sync
from penstock.testing import Clock
from tests.durable.disks import opened
from tests.durable.living import BEGIN
from tests.storage.forgetful import Forgetful

THREADS, COUNT = 12, 40
S = "CREATE STREAM s (k INT, n INT)"
ALL = "SELECT ISTREAM k, n FROM s [ROWS 1]"


@dataclass
class Slow(Forgetful):
    """A disk on which a sync takes until ``go`` is set. ``lost``: then it fails."""

    go: threading.Event = field(default_factory=threading.Event)
    began: threading.Event = field(default_factory=threading.Event)
    waits: threading.Event = field(default_factory=threading.Event)
    """Somebody waits for a sync."""
    syncs: int = 0
    lost: bool = False

    def __post_init__(self) -> None:
        self.go.set()

    def sync_later(self, path: str) -> Callable[[], None]:
        self.began.set()
        return partial(self.sync, path)

    def sync(self, path: str) -> None:
        self.waits.set()
        assert self.go.wait(60)
        self.syncs += 1
        if self.lost:
            raise OSError(5, "Input/output error")
        super().sync(path)


def by_threads(work: Callable[[int], None], count: int = THREADS) -> tuple[list[threading.Thread], list[BaseException]]:
    """Threads that work, and what they raise."""
    failures: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads, failures


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def waiting(db: penstock.Database, count: int) -> None:
    """Return when so many threads wait for the one that leads."""
    gathering, end = core_of(db)._gathering, time.monotonic() + 60
    while len(gathering._pushes) < count:
        assert time.monotonic() < end, f"{len(gathering._pushes)} wait instead of {count}"
        time.sleep(0.001)


def values(query: penstock.Query) -> list[tuple[int, int]]:
    return [(row["k"], row["n"]) for row in query.fetch().to_pylist()]


def test_each_thread_hears_of_its_own_rows_only(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    with penstock.connect(tmp_path / "db", engine="local", sync="group") as db:
        db.execute(S)
        query = db.query(ALL, name="q")
        query.subscribe(lambda table: heard.extend((row["k"], row["n"]) for row in table.to_pylist()))

        def push(thread: int) -> None:
            for i in range(COUNT):
                if (thread + i) % 7 == 0:
                    with pytest.raises(InputError, match=f"row 1, column `n`: 'wrong {thread}' is not an INT"):
                        db.push("s", [{"k": thread, "n": f"wrong {thread}"}])
                else:
                    db.push("s", [(thread, i)] if i % 5 == 0 else [{"k": thread, "n": i}])

        threads, failures = by_threads(push)
        joined(threads)
        assert not failures, failures
    wanted = [(k, n) for k in range(THREADS) for n in range(COUNT) if (k + n) % 7]
    assert sorted(heard) == wanted, "every row that was acknowledged, once"
    for k in range(THREADS):
        assert [n for thread, n in heard if thread == k] == [n for thread, n in wanted if thread == k], "in its order"


def test_threads_that_wait_for_the_disk_share_a_sync() -> None:
    files = Slow()
    with opened(files, Clock(BEGIN), sync="group") as db:
        db.execute(S)
        query = db.query(ALL, name="q")
        db.push("s", [(-1, -1)])
        files.go.clear()
        before = files.syncs
        threads, failures = by_threads(lambda i: db.push("s", [(i, i)]))
        waiting(db, THREADS - 1)
        files.go.set()
        joined(threads)
        assert not failures, failures
        assert files.syncs == before + 2, "that of the first, and one of all the others"
        assert sorted(values(query)) == [(-1, -1), *((i, i) for i in range(THREADS))]
        lost = files.power_lost(random.Random(1))
    with opened(lost, Clock(BEGIN), sync="group") as db:
        assert db.stream("s").given == THREADS + 1


def test_a_sync_that_fails_acknowledges_nobody() -> None:
    files = Slow()
    db = opened(files, Clock(BEGIN), sync="group")
    db.execute(S)
    db.push("s", [(-1, -1)])
    files.go.clear()
    threads, failures = by_threads(lambda i: db.push("s", [(i, i)]))
    waiting(db, THREADS - 1)
    files.lost = True
    files.go.set()
    joined(threads)
    assert len(failures) == THREADS
    assert all(isinstance(error, StorageError) for error in failures), failures
    with pytest.raises(StorageError, match="forced to the disk"):
        db.push("s", [(1, 1)])
    db.close()


def test_a_thread_that_is_interrupted_while_it_waits_takes_its_rows_back() -> None:
    files = Slow()
    with opened(files, Clock(BEGIN), sync="group") as db:
        db.execute(S)
        query = db.query(ALL, name="q")
        db.push("s", [(-1, -1)])
        files.go.clear()
        threads, failures = by_threads(lambda i: db.push("s", [(i, i)]), 3)
        waiting(db, 2)
        main = threading.get_ident()

        def interrupt() -> None:
            waiting(db, 3)
            signal.pthread_kill(main, signal.SIGINT)

        other = threading.Thread(target=interrupt)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background
        try:
            other.start()
            with pytest.raises(KeyboardInterrupt):
                db.push("s", [(9, 9)])
            other.join()
        finally:
            signal.signal(signal.SIGINT, before)
        files.go.set()
        joined(threads)
        assert not failures, failures
        db.push("s", [(4, 4)])  # nobody waits for the thread that has left
        assert sorted(values(query)) == [(-1, -1), (0, 0), (1, 1), (2, 2), (4, 4)]


def test_a_leader_that_is_interrupted_while_the_disk_works_leaves_nobody_behind() -> None:
    files = Slow()
    with opened(files, Clock(BEGIN), sync="group") as db:
        db.execute(S)
        query = db.query(ALL, name="q")
        db.push("s", [(-1, -1)])
        files.go.clear()
        files.waits.clear()
        main = threading.get_ident()
        threads: list[threading.Thread] = []
        failures: list[BaseException] = []

        def interrupt() -> None:
            assert files.waits.wait(60)  # the main thread leads, and its row is taken
            found = by_threads(lambda i: db.push("s", [(i, i)]), 3)
            threads.extend(found[0])
            waiting(db, 3)
            signal.pthread_kill(main, signal.SIGINT)
            failures.extend(found[1])

        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            db.push("s", [(9, 9)])
        other.join()
        files.go.set()
        joined(threads)
        assert not failures, failures
        assert sorted(values(query)) == [(-1, -1), (0, 0), (1, 1), (2, 2), (9, 9)]
        lost = files.power_lost(random.Random(1))
    with opened(lost, Clock(BEGIN), sync="group") as db:
        assert db.stream("s").given == 5


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("place", [0, 3])
def test_an_interrupt_while_threads_are_woken_leaves_nobody_behind(
    place: int, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, real = Slow(), _Push.wake
    places = iter(range(1000))

    def wake(push: _Push) -> None:
        is_it = push.state is _State.SAFE and next(places) == place  # the first is woken by the leader
        if not is_it or moment == "after":
            real(push)
        if is_it:
            raise KeyboardInterrupt

    with opened(files, Clock(BEGIN), sync="group") as db:
        db.execute(S)
        query = db.query(ALL, name="q")
        db.push("s", [(-1, -1)])
        files.go.clear()
        threads, failures = by_threads(lambda i: db.push("s", [(i, i)]))
        waiting(db, THREADS - 1)
        monkeypatch.setattr(_Push, "wake", wake)
        files.go.set()
        joined(threads)
        assert [type(error) for error in failures] == [KeyboardInterrupt], "the thread that was interrupted"
        db.push("s", [(99, 99)])
        assert sorted(values(query)) == [(-1, -1), *((i, i) for i in range(THREADS)), (99, 99)]


BEGAN: list[threading.Event] = []


def when_it_syncs(k: int) -> int:
    """A function that queries call, which returns when a sync has begun."""
    assert all(event.wait(30) for event in BEGAN)
    return k


@pytest.mark.parametrize("sync", ["group", "always"])
def test_queries_are_evaluated_while_the_disk_works(sync: Sync) -> None:
    files = Slow()
    with opened(files, Clock(BEGIN), sync=sync) as db:
        db.execute(S)
        db.create_function("when_it_syncs", when_it_syncs, args=["INT"], returns="INT")
        query = db.query("SELECT ISTREAM when_it_syncs(k) AS k, n FROM s [ROWS 1]", name="q")
        files.began.clear()
        BEGAN[:] = [files.began]
        db.push("s", [(1, 2)])
        assert values(query) == [(1, 2)]


def test_no_subscriber_hears_of_rows_before_they_are_on_the_disk() -> None:
    files = Slow()
    heard: list[int] = []
    with opened(files, Clock(BEGIN), sync="group") as db:
        db.execute(S)
        query = db.query(ALL, name="q")
        query.subscribe(lambda table: heard.append(files.syncs))
        before = files.syncs
        threads, failures = by_threads(lambda i: db.push("s", [(i, i)]))
        joined(threads)
        assert not failures, failures
        assert heard
        assert min(heard) > before
        files.lost, told = True, len(heard)
        with pytest.raises(StorageError, match="forced to the disk"):
            db.push("s", [(1, 1)])
        assert len(heard) == told


def test_threads_that_push_into_several_streams() -> None:
    files = Slow()
    with opened(files, Clock(BEGIN), sync="group") as db:
        db.execute(f"{S}; CREATE STREAM u (k INT)")
        one, two = db.query(ALL, name="q"), db.query("SELECT ISTREAM k FROM u [ROWS 1]", name="p")
        files.go.clear()
        threads, failures = by_threads(lambda i: db.push("s", [(i, i)]) if i % 2 else db.push("u", [(i,)]))
        waiting(db, THREADS - 1)
        files.go.set()
        joined(threads)
        assert not failures, failures
        assert sorted(values(one)) == [(i, i) for i in range(1, THREADS, 2)]
        assert sorted(two.fetch()["k"].to_pylist()) == list(range(0, THREADS, 2))


def test_a_database_that_is_closed_meanwhile_says_so() -> None:
    files = Slow()
    db = opened(files, Clock(BEGIN), sync="group")
    db.execute(S)
    files.go.clear()
    threads, failures = by_threads(lambda i: db.push("s", [(i, i)]))
    waiting(db, THREADS - 1)
    closing = threading.Thread(target=db.close)
    closing.start()
    while not core_of(db).closed:
        time.sleep(0.001)
    files.go.set()
    joined([*threads, closing])
    assert len(failures) == THREADS - 1, "the first had been taken"
    assert all(isinstance(error, PenstockError) and "closed" in str(error) for error in failures), failures


def test_a_subscriber_may_push(tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "db", engine="local", sync="group") as db:
        db.execute(S)
        query = db.query("SELECT ISTREAM k, n FROM s [ROWS 1] WHERE k > 0", name="q")
        query.subscribe(lambda table: db.push("s", [(0, 1)]))
        db.push("s", [(1, 1)])
        assert db.stream("s").given == 2


def test_results_that_may_count_as_delivered_are_handed_out() -> None:
    files = Slow()
    db = opened(files, Clock(BEGIN), sync="group")
    db.execute("CREATE STREAM s (k BIGINT, n INT) TIMESTAMP BY k")
    query = db.query(ALL, name="q")
    db.push("s", [(1, 2)])
    files.lost = True
    assert values(query) == [(1, 2)], "the disk fails after it is written down that they are delivered"
    with pytest.raises(StorageError, match="forced to the disk"):
        db.push("s", [(3, 4)])
    db.close()
    files.lost = False
    with opened(files, Clock(BEGIN), sync="group") as db:
        assert values(db.queries["q"]) == []


def test_a_stream_by_its_name_in_another_case(tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "db", engine="local", sync="group") as db:
        db.execute(S)
        query = db.query(ALL, name="q")
        threads, failures = by_threads(lambda i: db.push("S" if i % 2 else "s", [(i, i)]))
        joined(threads)
        assert not failures, failures
        assert sorted(values(query)) == [(i, i) for i in range(THREADS)]
