"""A sync that begins before anybody waits for it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from penstock.model.errors import StorageError
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

    def sync(self, path: str) -> None:
        self.began.set()
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


def syncers() -> int:
    return sum(thread.name == "penstock-syncer" for thread in threading.enumerate())


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


def test_the_thread_that_syncs_ends_with_the_store() -> None:
    files, before = Held(), syncers()
    files.go.set()
    store = opened(files)
    assert syncers() == before, "nobody has asked"
    store.append(store.log("streams", "s", ROWS.schema), ROWS, {})
    store.begin_sync()
    assert syncers() == before + 1
    store.close()
    assert syncers() == before
