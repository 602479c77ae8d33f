"""Ctrl-C at any moment of a run: it leaves no lock behind for which closing the database would wait for ever."""

from __future__ import annotations

import random
import signal
import threading
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

import penstock
from penstock.cli.inputs import stoppable
from penstock.hosts.durable import keeper
from penstock.io.live import Arrivals
from tests.budget import examples
from tests.spark.direct import directly


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
    with pytest.raises(KeyboardInterrupt), stoppable(Arrivals(), follow=False):
        lock.acquire()
        with condition:
            assert lock.locked()
            threading.Event().wait()
    assert not lock.locked()


def test_nothing_is_raised_where_it_would_be_lost() -> None:
    class Removed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), stoppable(Arrivals(), follow=False):
        Removed()
        threading.Event().wait()


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_database_can_be_closed_after_an_interrupt_at_any_moment(tmp_path: Path, engine: str) -> None:
    chance = random.Random(3)
    main = threading.get_ident()
    taken: list[int] = []
    with directly() if engine == "spark" else nullcontext(), patch.object(keeper, "SECONDS", 0.02):
        for _ in range(examples(120)):
            over = threading.Event()

            def interrupt(seconds: float, over: threading.Event = over) -> None:
                if not over.wait(seconds):
                    signal.pthread_kill(main, signal.SIGINT)

            with pytest.raises(KeyboardInterrupt), stoppable(Arrivals(), follow=False):
                with penstock.connect(tmp_path / "db", engine=engine) as db:
                    if not db.queries:
                        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
                        db.query("SELECT t FROM s", name="q")
                    thread = threading.Thread(target=interrupt, args=(0.1 * chance.random() ** 2,))
                    thread.start()
                    i = db.stream("s").given
                    while True:
                        db.push("s", [(i,)])
                        i += 1
                        db.queries["q"].transfer(lambda table: taken.extend(table.column("t").to_pylist()), wait=False)
            over.set()
            thread.join()
        with penstock.connect(tmp_path / "db", engine=engine) as db:
            taken += db.queries["q"].fetch().column("t").to_pylist()
            assert sorted(set(taken)) == list(range(db.stream("s").given))
