"""Ctrl-C at any moment of a run: it leaves no lock behind for which closing the database would wait for ever."""

from __future__ import annotations

import io
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
from penstock.cli.main import main
from penstock.cli.shell import Shell
from penstock.database.core import Core
from penstock.database.database import core_of, run_script
from penstock.database.results import Result
from penstock.hosts.durable import keeper
from penstock.hosts.spark.parts.backlog import Backlog
from penstock.hosts.spark.parts.task import Frame
from penstock.ingest.measuring import Measuring
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

    def wait(cores: list[Core]) -> None:
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

    def wait(cores: list[Core]) -> None:
        Removed()
        threading.Event().wait(60)

    assert interrupted(wait)


def interrupted(work: Callable[[list[Core]], None]) -> bool:
    """Do something as commands do; whether it was interrupted."""
    try:
        with stoppable(Arrivals(), follow=False) as cores:
            work(cores)
    except KeyboardInterrupt:
        return True
    return False


def test_the_shell_leaves_no_lock_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends it where statements come from a pipe; the statement that runs has an end before that."""
    ran: list[str] = []

    def feed(self: Shell, line: str) -> None:
        lock = Interrupting()
        lock.acquire()
        with threading.Condition(lock):  # type: ignore[arg-type]
            ran.append(line)
        assert not lock.locked()
        threading.Event().wait(60)

    monkeypatch.setattr(Shell, "feed", feed)
    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW STREAMS;\n"))
    before = signal.getsignal(signal.SIGINT)
    assert main(["sql", "--engine", "local", "--database", str(tmp_path)]) == 130
    assert ran == ["SHOW STREAMS;"]
    assert signal.getsignal(signal.SIGINT) is before


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
def test_an_interrupt_waits_for_the_end_of_a_push_and_a_second_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """The rows are in the log, and the stream does not know yet."""
    ends: list[str] = []
    interrupts: list[int] = []

    def take(self: Measuring, *_: object) -> None:
        while interrupts:
            signal.raise_signal(interrupts.pop())
            for _round in range(1_000):
                pass  # Python calls handlers at the end of a round
        ends.append("push")

    monkeypatch.setattr(Measuring, "take", take)

    def push(cores: list[Core]) -> None:
        with penstock.connect(tmp_path / str(len(interrupts)), engine=engine) as db:
            cores.append(core_of(db))
            db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
            db.push("s", [(1,)])
            threading.Event().wait(60)

    with directly():
        interrupts.append(signal.SIGINT)
        assert interrupted(push)
        assert ends == ["push"]
        interrupts += [signal.SIGINT, signal.SIGINT]
        assert interrupted(push)
        assert ends == ["push"]


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("is_done", [False, True])
def test_a_run_that_dies_at_a_statement_of_its_script_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int, is_done: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.cql").write_text(
        "CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t; CREATE RELATION r (k BIGINT, n BIGINT);"
        "INSERT INTO r VALUES (1, 10); CREATE VIEW v AS SELECT k FROM s;"
        "CREATE QUERY q AS SELECT ISTREAM v.k, n FROM v [NOW], r WHERE v.k = r.k;"
    )
    Path("s.csv").write_text("t,k\n1,1\n2,1\n")
    command = ["run", "q.cql", "--input", "s=s.csv", "--database", "db", "--output", "out", "--engine", "spark"]
    run, seen = run_script, list[str]()

    def dies(db: penstock.Database, text: str) -> list[Result]:
        seen.append(text)
        if len(seen) != which + 1:
            return run(db, text)
        if is_done:
            run(db, text)
        raise KeyboardInterrupt

    with directly():
        with monkeypatch.context() as patch:
            patch.setattr("penstock.cli.script.run_statements", dies)
            assert main(command) == 130
        assert main(command) == 0
    assert Path("out/q.csv").read_text().splitlines()[1:] == ["1,+,1,10", "2,+,1,10"]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_database_can_be_closed_after_an_interrupt_at_any_moment(tmp_path: Path, engine: str) -> None:
    chance = random.Random(3)
    main = threading.get_ident()
    taken: list[int] = []

    def work(seconds: float, over: threading.Event, cores: list[Core]) -> None:
        def interrupt() -> None:
            if not over.wait(seconds):
                signal.pthread_kill(main, signal.SIGINT)

        with penstock.connect(tmp_path / "db", engine=engine) as db:
            cores.append(core_of(db))
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
