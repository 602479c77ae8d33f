"""A sync that begins before anybody waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.model.errors import StorageError
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


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
