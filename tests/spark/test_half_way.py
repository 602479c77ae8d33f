"""What is stopped half-way, or finds too few threads, files or bytes, leaves a database on Spark whole.

Tasks run in this process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts.spark.parts import definitions, runner
from penstock.hosts.spark.parts.host import SparkHost
from penstock.hosts.spark.parts.inflow import Inflow
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.talk import Talk
from penstock.model.errors import CheckpointError, EngineError, QueryFailed, StorageError
from penstock.storage.log import Log
from penstock.storage.store import Store
from penstock.testing import crash_copy
from tests.spark.direct import Direct, directly, host_of

STREAM = "CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t"


# -- queries that move --------------------------------------------------------------------------------


class Threadless(Direct):
    """There is no thread for some of the parts that are to start."""

    missing = 0

    def start(self, part: Part | Inflow) -> None:
        if Threadless.missing:
            Threadless.missing -= 1
            raise RuntimeError("can't start new thread")
        super().start(part)


def counting(db: penstock.Database) -> None:
    db.execute(STREAM)
    for name in "abc":
        db.query("SELECT count(*) AS n FROM s [RANGE 100]", name=name)
    db.push("s", [(1, 1.0)])
    db.settle()


def fetched(db: penstock.Database) -> dict[str, list[int]]:
    """What each count has become."""
    found = {name: query.fetch().to_pylist() for name, query in db.queries.items()}
    return {name: [row["n"] for row in rows if row["op"] == "+"] for name, rows in found.items()}


def all_of(*numbers: int) -> dict[str, list[int]]:
    return {name: list(numbers) for name in "abc"}


def test_settings_change_where_there_is_no_thread_to_change_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def starting(self: threading.Thread) -> None:
        if self.name == "penstock-configuring":
            raise RuntimeError("can't start new thread")
        start(self)

    with directly(), penstock.connect(tmp_path, engine="spark", shards=4) as db:
        counting(db)
        monkeypatch.setattr(threading.Thread, "start", starting)
        db.configure(threading="operator")
        assert len(list(host_of(db).parts)) == 3


@pytest.mark.parametrize("missing", [1, 2])
def test_a_part_that_there_was_no_thread_for_is_started_later(tmp_path: Path, missing: int) -> None:
    with directly(Threadless):
        with penstock.connect(tmp_path / "db", engine="spark", shards=4) as db:
            counting(db)
            Threadless.missing = missing
            if missing > 1:
                with pytest.raises(EngineError, match="no thread can be started: can't start new thread; allow more"):
                    db.configure(threading="operator")
            else:
                db.configure(threading="operator")
            assert [list(part.queries) for part in host_of(db).parts if len(part.queries) != 1] == []
            db.push("s", [(2, 1.0)])
            db.push("s", [(3, 1.0)])
            db.settle()
            crash_copy(db, tmp_path / "copy")
            assert fetched(db) == all_of(1, 2, 3)
        for name, first in (("copy", [1, 2, 3]), ("db", [])):
            with penstock.connect(tmp_path / name, engine="spark", shards=4) as db:
                db.push("s", [(4, 1.0)])
                assert fetched(db) == all_of(*first, 4)


def test_an_interrupt_leaves_no_move_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    divided = SparkHost.divided
    main = threading.get_ident()

    def interrupting(self: SparkHost, record: Any) -> None:
        divided(self, record)
        monkeypatch.undo()
        signal.pthread_kill(main, signal.SIGINT)

    with directly():
        with penstock.connect(tmp_path / "db", engine="spark", shards=4) as db:
            counting(db)
            monkeypatch.setattr(SparkHost, "divided", interrupting)
            with pytest.raises(KeyboardInterrupt):
                db.configure(threading="operator")
            for i in (2, 3):
                db.push("s", [(i, 1.0)])
            db.settle()
            crash_copy(db, tmp_path / "copy")
            assert fetched(db) == all_of(1, 2, 3)
        with penstock.connect(tmp_path / "copy", engine="spark", shards=4) as db:
            assert fetched(db) == all_of(1, 2, 3)


class Silent(Direct):
    """No part has a thread: a test asks in the place of Spark."""

    def start(self, part: Part | Inflow) -> None:
        pass


class Late:
    """A lock; something happens just before it is taken for the first time."""

    def __init__(self, lock: threading.Condition, happens: Callable[[], None]) -> None:
        self._lock, self._happens = lock, [happens]

    def __enter__(self) -> object:
        while self._happens:
            self._happens.pop()()
        return self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def test_a_micro_batch_that_is_interrupted_when_it_is_asked_for_again_counts_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directly(Silent), penstock.connect(tmp_path, engine="spark", shards=2, trigger=0) as db:
        db.execute(STREAM)
        db.configure(threading="operator", workers=1)
        db.query("SELECT v FROM s", name="a")
        db.query("SELECT v FROM s", name="b")
        db.push("s", [(1, 1.0)])
        first, second = host_of(db).parts
        gate = host_of(db).parts.gate
        start = first.offset
        assert first.next_offset(start) != start
        monkeypatch.setattr(host_of(db), "changed", Late(host_of(db).changed, first.interrupted))
        assert first._entered(start) is not None
        turn = threading.Event()

        def enter() -> None:
            assert gate.enter(5, lambda: False)
            turn.set()

        thread = threading.Thread(target=enter)
        thread.start()
        assert not turn.wait(0.2)  # one is at work, and no other may be
        first.interrupted()
        assert turn.wait(30)
        gate.leave()
        thread.join()
        assert second.next_offset(second.offset) != second.offset
        second.interrupted()


# -- functions ----------------------------------------------------------------------------------------


@pytest.fixture
def twice() -> Callable[[float], float]:
    """A function of a module that this process has, and workers have not."""
    module = ModuleType("only_in_driver")
    exec("def twice(v):\n    return v * 2\n", module.__dict__)
    found: Callable[[float], float] = module.twice
    found.__module__ = module.__name__
    sys.modules[module.__name__] = module
    return found


def test_a_function_that_workers_cannot_load_fails_its_query_alone(
    tmp_path: Path, twice: Callable[[float], float]
) -> None:
    with directly(), penstock.connect(tmp_path, engine="spark", functions=True, shards=2, trigger=0) as db:
        db.execute(STREAM)
        db.create_function("twice", twice, args=["DOUBLE"], returns="DOUBLE")
        other = db.query("SELECT ISTREAM v FROM s", name="other")
        db.push("s", [(1, 1.0)])
        db.settle()
        query = db.query("SELECT ISTREAM twice(v) AS w FROM s", name="q")
        del sys.modules["only_in_driver"]
        db.push("s", [(2, 2.0)])
        with pytest.raises(QueryFailed, match=r"function `twice` cannot be loaded .*only_in_driver.*; set PYTHONPATH"):
            query.fetch()
        db.push("s", [(3, 3.0)])
        assert other.fetch().column("v").to_pylist() == [1.0, 2.0, 3.0]
        assert query.status == "failed"


def test_a_query_that_has_begun_waits_for_its_function(tmp_path: Path, twice: Callable[[float], float]) -> None:
    """Its state is not given up because a machine lacks a module."""
    with directly(), penstock.connect(tmp_path, engine="spark", functions=True, shards=2, trigger=0) as db:
        db.execute(STREAM)
        db.create_function("twice", twice, args=["DOUBLE"], returns="DOUBLE")
        query = db.query("SELECT sum(twice(v)) AS w FROM s [RANGE 100]", name="q")
        db.push("s", [(1, 1.0)])
        assert query.fetch().column("w").to_pylist() == [2.0]
    module = sys.modules.pop("only_in_driver")
    with directly():
        sys.modules["only_in_driver"] = module  # this process has it
        with penstock.connect(tmp_path, engine="spark", functions=True, trigger=0) as db:
            del sys.modules["only_in_driver"]
            definitions.forget_all()
            db.push("s", [(2, 2.0)])
            with pytest.raises(QueryFailed, match="function `twice` cannot be loaded"):
                db.queries["q"].fetch()
            assert db.queries["q"].status == "running"
            sys.modules["only_in_driver"] = module
            assert db.queries["q"].fetch().column("w").to_pylist()[-1] == 6.0
    del sys.modules["only_in_driver"]


# -- files and bytes ----------------------------------------------------------------------------------


def in_shards(root: Path) -> int:
    """Files that tasks have written."""
    return sum(path.is_file() for kind in ("answers", "part-*") for path in (root / "shards").rglob(f"{kind}/**/*"))


@pytest.mark.parametrize("what", ["results", "sync"])
def test_what_tasks_wrote_for_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The log of results finds no room, or rows cannot be forced to the disk."""
    append, begin, fails = Log.append, Log.begin_sync, [False]

    def appending(self: Log, *args: Any, **more: Any) -> int:
        if fails[0] and what == "results" and self.folder.startswith("results"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(self, *args, **more)

    def beginning(self: Log, dirty: Any) -> Any:
        if fails[0] and what == "sync" and self.folder.startswith("streams"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return begin(self, dirty)

    monkeypatch.setattr(Log, "append", appending)
    monkeypatch.setattr(Log, "begin_sync", beginning)
    db = penstock_on(tmp_path, sync="group")
    with directly(many=8192, inline=0), db() as opened:
        opened.execute(STREAM)
        query = opened.query("SELECT ISTREAM v FROM s", name="q")
        opened.push("s", [(i, 1.0) for i in range(20)])
        assert len(query.fetch()) == 20
        before = in_shards(tmp_path)
        fails[0] = True
        for i in range(4):
            with contextlib.suppress(StorageError):
                opened.push("s", [(100 + i, 1.0)])
            with pytest.raises(StorageError):
                query.fetch()
        part = next(iter(host_of(opened).parts))
        assert part.failed >= 4
        assert in_shards(tmp_path) <= before
        fails[0] = False
    with directly(many=8192, inline=0), db() as opened:
        assert opened.queries["q"].fetch().column("v").to_pylist() == [1.0] * (opened.stream("s").given - 20)


def penstock_on(root: Path, **options: Any) -> Callable[[], penstock.Database]:
    return lambda: penstock.connect(root, engine="spark", shards=2, trigger=0, **options)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_save_that_was_not_begun_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    save, fails = Store.save, [False]

    def saving(self: Store, *args: Any) -> None:
        if fails[0]:
            raise StorageError("too many open files")
        save(self, *args)

    monkeypatch.setattr(Store, "save", saving)
    with directly():
        with penstock.connect(tmp_path, engine=engine) as db:
            db.execute("CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t SLACK 5 WITH (retain = '1 h')")
            query = db.query("SELECT count(*) AS n FROM s [RANGE 10]", name="q")
            for step in range(4):
                db.push("s", [(20 * step + i, 1.0) for i in range(20)])
                query.fetch()
                fails[0] = step == 1
                if fails[0]:
                    with pytest.raises(StorageError, match="too many"):
                        core_of(db).host.abilities().save()
                else:
                    core_of(db).host.abilities().save()
        with penstock.connect(tmp_path, engine=engine) as db:
            assert db.stream("s").given == 80
            db.push("s", [(200, 1.0)])
            db.close_stream("s")
            assert db.queries["q"].fetch().column("n").to_pylist()[-4:] == [0, 1, 1, 0]


def test_state_that_is_damaged_is_restored_from_a_backup(tmp_path: Path) -> None:
    with directly(), penstock.connect(tmp_path, engine="spark", shards=2) as db:
        db.execute(STREAM)
        db.query("SELECT sum(v) AS v FROM s [RANGE 20]", name="q")
        db.push("s", [(i, 1.0) for i in range(20)])
    for path in tmp_path.glob("shards/part-*/slot-*/pieces/*"):
        path.write_bytes(path.read_bytes()[:-100])
    with directly(), penstock.connect(tmp_path, engine="spark", trigger=0) as db:
        db.push("s", [(30, 1.0)])
        with pytest.raises(CheckpointError, match=r"damaged.*; `penstock check` says .*; restore the directory"):
            db.queries["q"].fetch()


def test_results_are_kept_for_their_reader_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for the answer as it stands reads what nobody has fetched; it stays in files."""
    monkeypatch.setattr(runner, "_AHEAD", 10_000)
    with directly(inline=0), penstock.connect(tmp_path, engine="spark", shards=1) as db:
        db.execute(STREAM)
        query = db.query("SELECT v FROM s [ROWS 1]", name="q")
        for step in range(8):
            db.push("s", [(100 * step + i, float(step)) for i in range(100)])
            assert query.current().column("v").to_pylist() == [float(step)]
        unread = core_of(db).queries["q"].results.unconfirmed()
        kept = [table for some in unread if isinstance(some, runner.Stored) for table in some.tables or ()]
        assert len(unread) == 8
        assert 0 < sum(table.nbytes for table in kept) < 30_000
        assert len(query.fetch()) == 1_599


def test_a_result_that_is_gone_was_given_to_another_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread waits for more and reads what there is, another one has it, and its file goes."""
    answers = SparkHost.answers
    there, goes_on = threading.Event(), threading.Event()

    def slow(self: SparkHost, file: str) -> Any:
        if threading.current_thread().name == "slow":
            there.set()
            goes_on.wait(30)
        return answers(self, file)

    monkeypatch.setattr(SparkHost, "answers", slow)
    said: list[object] = []
    with directly(inline=0), penstock.connect(tmp_path, engine="spark", shards=2) as db:
        db.execute(STREAM)
        query = db.query("SELECT ISTREAM v FROM s", name="q")

        def fetch() -> None:
            try:
                said.append(len(query.fetch()))
            except Exception as error:
                said.append(error)

        db.push("s", [(i, 1.0) for i in range(5)])
        db.settle()
        thread = threading.Thread(target=fetch, name="slow")
        thread.start()
        assert there.wait(30)
        assert len(query.fetch()) == 5
        for i in range(1, 4):
            db.push("s", [(10 * i, 1.0)])
            query.fetch()
            host_of(db).save()
        goes_on.set()
        thread.join()
        assert said == [0]


# -- readers ------------------------------------------------------------------------------------------


class Answering:
    def next_offset(self, start: dict[str, int]) -> dict[str, int]:
        return {"batch": 1}

    def contents(self, end: dict[str, int]) -> list[bytes]:
        return []


def asked(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(path)
        try:
            connection.sendall(b'{"part": 0, "ask": "offset", "start": {"batch": 0}}\n')
            return connection.recv(1_000)
        except ConnectionError:
            return b""


@pytest.mark.parametrize("lacks", ["files", "threads"])
def test_readers_are_let_in_again_where_one_could_not_be(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    failed = threading.Event()

    class Listening:
        """A socket that could not let a reader in."""

        def __init__(self, found: socket.socket) -> None:
            self._found = found

        def accept(self) -> Any:
            if not failed.is_set():
                failed.set()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return self._found.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._found, name)

    if lacks == "files":
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", lambda kind, made=socket.socket: Listening(made(kind)))
            talk = Talk(lambda part: Answering())
    else:
        talk = Talk(lambda part: Answering())
        start = threading.Thread.start

        def starting(self: threading.Thread) -> None:
            if self.name == "penstock-talk" and not failed.is_set():
                failed.set()
                raise RuntimeError("can't start new thread")
            start(self)

        monkeypatch.setattr(threading.Thread, "start", starting)
        assert asked(talk.path) == b""  # the reader sees that nobody answers
    assert failed.wait(30)
    assert asked(talk.path) == b'{"said": {"batch": 1}}\n'
    began = time.monotonic()
    talk.close()
    assert time.monotonic() - began < 30
