"""Ctrl-C at any moment of a run: it leaves no lock behind for which closing the database would wait for ever."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.budget import examples
from tests.spark.direct import directly

import penstock
from penstock.cli.inputs import stoppable
from penstock.hosts.durable import keeper
from penstock.hosts.spark.parts.backlog import Backlog
from penstock.hosts.spark.parts.task import Frame
from penstock.io.live import Arrivals


class Interrupting:
    """A lock; Ctrl-C comes when it has just been taken, while the main thread is still inside ``threading``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acquire, self.release, self.locked = self._lock.acquire, self._lock.release, self._lock.locked
        self.__enter__ = partial(signal.raise_signal, signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_nothing_is_raised_where_a_lock_would_stay_held() -> None:
    lock = Interrupting()
    condition = threading.Condition(lock)  # type: ignore[arg-type]

    def wait() -> None:
        lock.acquire()
        with condition:
            assert lock.locked()
            threading.Event().wait(60)

    assert interrupted(wait)
    assert not lock.locked()


def test_nothing_is_raised_where_it_would_be_lost() -> None:
    class Removed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def wait() -> None:
        Removed()
        threading.Event().wait(60)

    assert interrupted(wait)


def interrupted(work: Callable[[], None]) -> bool:
    """Do something as commands do; whether it was interrupted."""
    try:
        with stoppable(Arrivals(), follow=False):
            work()
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("has_rows", [False, True])
def test_rows_whose_push_is_interrupted_when_they_are_in_the_log_are_answered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_rows: bool
) -> None:
    """The interrupt comes before the part has the rows, or when it has them."""
    with directly():
        with penstock.connect(tmp_path, engine="spark", shards=2) as db:
            db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
            query = db.query("SELECT t FROM s", name="q")
            add = Backlog.add
            interrupts = [KeyboardInterrupt()]

            def interrupting(self: Backlog, name: str, frame: Frame) -> None:
                if has_rows or not interrupts:
                    add(self, name, frame)
                while interrupts:
                    raise interrupts.pop()

            monkeypatch.setattr(Backlog, "add", interrupting)
            with pytest.raises(KeyboardInterrupt):
                db.push("s", [(1,)])
            assert db.stream("s").given == 1
            db.push("s", [(2,)])
            assert query.fetch().column("t").to_pylist() == [1, 2]
            db.push("s", [(3,)])
        with penstock.connect(tmp_path, engine="spark") as db:
            assert db.queries["q"].fetch().column("t").to_pylist() == [3]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_database_can_be_closed_after_an_interrupt_at_any_moment(tmp_path: Path, engine: str) -> None:
    chance = random.Random(3)
    main = threading.get_ident()
    taken: list[int] = []

    def work(seconds: float, over: threading.Event) -> None:
        def interrupt() -> None:
            if not over.wait(seconds):
                signal.pthread_kill(main, signal.SIGINT)

        with penstock.connect(tmp_path / "db", engine=engine) as db:
            if not db.queries:
                db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
                db.query("SELECT t FROM s", name="q")
            threading.Thread(target=interrupt).start()
            i = db.stream("s").given
            while True:
                db.push("s", [(i,)])
                i += 1
                db.queries["q"].transfer(lambda table: taken.extend(table.column("t").to_pylist()), wait=False)

    with directly() if engine == "spark" else nullcontext(), patch.object(keeper, "SECONDS", 0.02):
        for _ in range(examples(80)):
            over = threading.Event()
            assert interrupted(partial(work, 0.1 * chance.random() ** 2, over))
            over.set()
        with penstock.connect(tmp_path / "db", engine=engine) as db:
            taken += db.queries["q"].fetch().column("t").to_pylist()
            assert sorted(set(taken)) == list(range(db.stream("s").given))
