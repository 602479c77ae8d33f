"""A sync that begins before anybody waits for it."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.model.errors import StorageError
from penstock.storage import log, syncing
from penstock.storage.aio import FlyingSync
from penstock.storage.files import Disk
from penstock.storage.store import Store
from tests.storage.forgetful import Forgetful

ROWS = pa.table({"k": [1]})


@dataclass
class Held(Forgetful):
    """A disk on which a sync takes until ``go`` is set. ``error``: then it fails with this number."""

    go: threading.Event = field(default_factory=threading.Event)
    began: threading.Event = field(default_factory=threading.Event)
    syncs: int = 0
    error: int = 0

    def sync_later(self, path: str) -> Callable[[], None]:
        self.began.set()
        return partial(self.sync, path)

    def sync(self, path: str) -> None:
        assert self.go.wait(60)
        self.syncs += 1
        if self.error:
            raise OSError(self.error, "it fails")
        super().sync(path)


def opened(files: Held) -> Store:
    store = Store(files, sync="group")
    _, items = store.recover()
    assert not list(items)
    store.begin()
    return store


def test_a_sync_that_has_begun_is_the_one_that_is_waited_for() -> None:
    files = Held()
    store = opened(files)
    number = store.append(store.log("streams", "s", ROWS.schema), ROWS, {})
    store.begin_sync()
    assert files.began.wait(60)
    store.begin_sync()  # one is under way, and it does not wait for that
    files.go.set()
    store.wait(number)
    assert files.syncs == 1
    store.close()


def test_what_is_written_after_a_sync_began_needs_another() -> None:
    files = Held()
    store = opened(files)
    log = store.log("streams", "s", ROWS.schema)
    store.append(log, ROWS, {})
    store.begin_sync()
    assert files.began.wait(60)
    number = store.append(log, ROWS, {})
    files.go.set()
    store.wait(number)
    assert files.syncs == 2
    store.close()


def test_a_sync_that_fails_before_it_is_waited_for_is_not_forgotten() -> None:
    files = Held(error=5)
    files.go.set()
    store = opened(files)
    log = store.log("streams", "s", ROWS.schema)
    number = store.append(log, ROWS, {})
    store.begin_sync()
    files.began.wait(60)
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot be forced to the disk: it fails"):
            store.wait(number)
    assert files.syncs == 1, "another sync that succeeds would say nothing"
    with pytest.raises(StorageError, match="cannot be forced to the disk"):
        store.append(log, ROWS, {})
    store.close()


def test_a_sync_that_begins_does_not_cover_what_is_written_later_on_a_real_disk(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "db", sync="group")) as store:
        _, items = store.recover()
        assert not list(items)
        store.begin()
        log = store.log("streams", "s", ROWS.schema)
        for _ in range(3):
            store.append(log, ROWS, {})
            store.begin_sync()
            number = store.append(log, ROWS, {})
            store.wait(number)
            assert not log.dirty()


def test_an_interrupt_while_it_waits_leaves_the_sync_to_the_next_thread() -> None:
    class Interrupted(Held):
        def sync(self, path: str) -> None:
            if not self.syncs:
                self.syncs += 1
                raise KeyboardInterrupt
            super().sync(path)

    files = Interrupted()
    files.go.set()
    store = opened(files)
    number = store.append(store.log("streams", "s", ROWS.schema), ROWS, {})
    store.begin_sync()
    with pytest.raises(KeyboardInterrupt):
        store.wait(number)
    store.wait(number)
    assert files.syncs == 2
    store.close()


def test_files_are_open_no_longer_than_their_syncs(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.append("a", 0, [b"1"])
    before = open_files()
    for size in range(1, 50):
        landed = disk.sync_later("a")
        disk.append("a", size, [b"1"])  # with another descriptor: the first is not given back yet
        landed()
        landed()
    assert open_files() == before
    disk.sync_later("a")
    disk.close()
    assert open_files() == before - 1


def test_a_sync_of_the_system_says_why_it_failed() -> None:
    reading, writing = os.pipe()
    try:
        flying = FlyingSync(writing)  # a pipe cannot be synced
        assert flying.begin()
        for _ in range(2):
            with pytest.raises(OSError, match="Invalid argument"):
                flying.wait()
    finally:
        os.close(reading)
        os.close(writing)


def test_a_forked_process_syncs_files_of_its_own(tmp_path: Path) -> None:
    with closing(Disk(tmp_path)) as disk:
        disk.append("a", 0, [b"1"])
        disk.sync_later("a")()  # the thread of the system is there now, and a forked process does not have it
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # ends it, if the sync does not
            try:
                own = Disk(tmp_path)
                own.append("b", 0, [b"1"])
                own.sync_later("b")()
                os._exit(7)
            finally:
                os._exit(8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_file_that_is_removed_during_its_sync_is_not_kept_open(tmp_path: Path) -> None:
    with closing(Disk(tmp_path)) as disk:
        before = open_files()
        disk.append("a", 0, [b"old"])
        landed = disk.sync_later("a")
        disk.remove("a")
        disk.append("a", 0, [b"new"])
        landed()
        assert open_files() == before + 1
        disk.append("a", 3, [b"!"])
        assert disk.read("a").to_pybytes() == b"new!"


def test_too_many_open_files_do_not_become_more_by_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Few(Disk):
        fails = False

        def _taken(self, path: str, *, make: bool = True) -> int:
            if self.fails and "streams/s2" in path:
                raise OSError(errno.EMFILE, "too many open files")
            return super()._taken(path, make=make)

    monkeypatch.setattr(syncing, "_BETWEEN", 0)
    monkeypatch.setattr(log, "SEGMENT", 1)  # a segment for each entry
    files = Few(tmp_path)
    with closing(Store(files, sync="group")) as store:
        _, items = store.recover()
        assert not list(items)
        store.begin()
        for name in ("s1", "s2", "s3"):
            for _ in range(2):
                number = store.append(store.log("streams", name, ROWS.schema), ROWS, {})
        before = open_files()
        files.fails = True
        for _ in range(3):
            store.begin_sync()
            with pytest.raises(StorageError, match="cannot be forced to the disk now"):
                store.wait(number)
        assert open_files() == before
        files.fails = False
        store.wait(number)
        assert not store.dirty()[1]


def test_of_several_errors_that_of_the_disk_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bad(Held):
        def sync(self, path: str) -> None:
            self.error = errno.EMFILE if path.endswith(f"/{first.name}") else errno.EIO
            super().sync(path)

    monkeypatch.setattr(syncing, "_BETWEEN", 0)

    files = Bad()
    files.go.set()
    store = opened(files)
    known = store.log("streams", "s", ROWS.schema)
    store.append(known, ROWS, {})
    ((first, _),) = known.dirty()
    known.roll()
    number = store.append(known, ROWS, {})
    with pytest.raises(StorageError, match="cannot be forced to the disk: it fails"):
        store.wait(number)
    store.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
