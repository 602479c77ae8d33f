"""What was acknowledged is there, or is said to be missing: whoever opened the directory, and however a call ended."""

from __future__ import annotations

import errno
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import penstock
from penstock.model.errors import StorageError
from penstock.operators.state import Piece, Saved
from penstock.storage import files as of_files
from penstock.storage import log as of_log
from penstock.storage import records as of_records
from penstock.storage import store as of_store
from penstock.storage.store import Store, Sync
from tests.storage.forgetful import Forgetful

ROWS = pa.schema([("v", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.table({"v": values}, schema=ROWS)


def opened(files: Forgetful, sync: Sync = "group") -> tuple[Store, list[object]]:
    store = Store(files, sync=sync)
    _, items = store.recover()
    found: list[object] = [i.meta if i.rows is None else (i.name, *i.rows["v"].to_pylist()) for i in items]
    store.begin()
    return store, found


def append(store: Store, name: str, value: int) -> None:
    store.wait(store.append(store.log("streams", name, ROWS), rows(value), {}))


def save(store: Store) -> None:
    number = store.rolled()
    store.save(number, {"x": Saved({"n": number}, (Piece(f"{number}", rows(number)),))})
    store.forget()


def restarted(files: Forgetful) -> Forgetful:
    """The disk after a restart of the machine that lost nothing."""
    found = files.killed()
    found.boots += 1
    return found


def gone(name: str) -> Callable[[Forgetful], None]:
    def do(files: Forgetful) -> None:
        for path in [p for p in files.now if name in p]:
            del files.now[path]

    return do


def flipped(name: str) -> Callable[[Forgetful], None]:
    def do(files: Forgetful) -> None:
        path = next(p for p in files.now if name in p)
        files.now[path].now[-70] ^= 1

    return do


@pytest.mark.parametrize("sync", ["group", "always"])
@pytest.mark.parametrize("damage", [gone("streams/a"), flipped("streams/a"), gone("catalog"), gone("state")])
@pytest.mark.parametrize("openings", [1, 2])
def test_damage_is_not_taken_for_a_loss_of_power(
    sync: Sync, damage: Callable[[Forgetful], None], openings: int
) -> None:
    files = Forgetful()
    store, _ = opened(files, sync)
    append(store, "b", 0)
    save(store)
    append(store, "b", 1)
    save(store)
    append(store, "b", 2)
    save(store)  # the first entries are only there
    append(store, "a", 3)
    store.record({"kind": "note"})
    for i in range(5):
        append(store, "b", i)
    for _ in range(openings - 1):
        _, found = opened(files, sync)
        assert len(found) == 7
    lost = restarted(files)
    damage(lost)
    with pytest.raises(StorageError):
        opened(lost, sync)
    _, found = opened(restarted(files), sync)
    assert len(found) == 7, "nothing was wrong but that"


def test_a_former_owner_neither_destroys_nor_says_anything() -> None:
    files = Forgetful()
    one, _ = opened(files)
    append(one, "a", 1)
    save(one)
    append(one, "a", 2)
    other, found = opened(files)  # as on a disk without locks
    assert found == [("a", 2)]
    append(other, "a", 3)
    save(other)
    append(other, "a", 4)
    before = {path: bytes(file.now) for path, file in files.now.items()}
    number = one.rolled()
    with pytest.raises(StorageError, match="another process has opened it"):
        one.save(number, {"x": Saved({"n": -1}, (Piece("0", rows(9)),))})
    with pytest.raises(StorageError, match="another process has opened it"):
        one.record({"kind": "note"})
    with pytest.raises(StorageError, match="another process has opened it"):
        append(one, "a", 5)
    assert {path: bytes(file.now) for path, file in files.now.items()} == before
    assert opened(files)[1] == [("a", 4)]


def test_versions_and_records_of_a_former_owner_do_not_count() -> None:
    files = Forgetful()
    one, _ = opened(files)
    append(one, "a", 1)
    other, _ = opened(files)
    with patch.object(Store, "_check_owner"):  # he looked just before the other came
        one.save(one.rolled(), {"x": Saved({"n": -1})})
        one.record({"kind": "stale"})
    append(other, "a", 2)
    found = Store(files, sync="group")
    state, items = found.recover()
    assert state is None
    assert [item.rows["v"].to_pylist() for item in items if item.rows is not None] == [[1], [2]]


@pytest.mark.parametrize("which", [slice(None), slice(-1, None)])
def test_epochs_that_are_lost_are_missed(which: slice) -> None:
    files = Forgetful()
    for i in range(3):
        append(opened(files)[0], "a", i)
    for path in sorted(p for p in files.now if p.startswith("epochs/"))[which]:
        del files.now[path]
    with pytest.raises(StorageError, match=r"epochs/\d+\.json is missing"):
        opened(files)


@dataclass
class Failing(Forgetful):
    """``fails``: of these calls, one raises, the next ones do not."""

    fails: str = ""
    error: int = errno.EMFILE

    def _fail(self, what: str) -> None:
        if self.fails == what:
            self.fails = ""
            raise OSError(self.error, os.strerror(self.error))

    def sync_folder(self, path: str) -> None:
        self._fail("sync_folder")
        super().sync_folder(path)

    def sync_later(self, path: str) -> Callable[[], None]:
        return partial(self.sync, path)

    def sync(self, path: str) -> None:
        self._fail("sync")
        super().sync(path)

    def put(self, path: str, content: Any, *, sync: bool = False) -> None:
        super().put(path, content)
        if sync:
            self._fail("put")  # it is there, but may not last
            super().sync(path)
            super().sync_folder(os.path.dirname(path))


def test_a_record_that_was_refused_is_not_there() -> None:
    files = Failing()
    store, _ = opened(files)
    store.record({"kind": "one"})
    files.fails = "put"
    with pytest.raises(StorageError, match="Too many open files"):
        store.record({"kind": "refused"})
    append(store, "a", 1)
    store.record({"kind": "two"})
    assert opened(files)[1] == [{"kind": "one"}, ("a", 1), {"kind": "two"}]


def test_a_version_that_was_refused_is_not_there() -> None:
    files = Failing()
    store, _ = opened(files)
    append(store, "a", 1)
    files.fails = "put"
    with pytest.raises(StorageError, match="Too many open files"):
        save(store)
    assert opened(files)[1] == [("a", 1)]
    assert not [p for p in files.now if p.startswith("state/")]


def test_too_many_open_files_are_waited_for() -> None:
    files = Failing()
    store, _ = opened(files)
    append(store, "a", 1)
    files.fails = "sync"
    append(store, "a", 2)
    files.fails, files.error = "sync", errno.EIO
    with pytest.raises(StorageError, match="Input/output error"):
        append(store, "a", 3)
    with pytest.raises(StorageError, match="Input/output error"):
        append(store, "a", 4)


def test_a_log_that_forgets_while_it_is_synced_syncs_the_rest() -> None:
    files = Forgetful()
    store, _ = opened(files)
    append(store, "a", 1)
    log = store.log("streams", "a", ROWS)
    log.roll()
    store.append(log, rows(2), {})
    log.roll()
    store.append(log, rows(3), {})
    before = Forgetful.sync

    def sync(self: Forgetful, path: str) -> None:
        log.forget(1)
        before(self, path)

    with patch.object(Forgetful, "sync", sync):
        store.wait(3)
    for path in sorted(p for p in files.now if p.startswith("streams"))[-2:]:
        assert files.now[path].safe == bytes(files.now[path].now), "it is on the disk"


def test_a_head_that_had_not_reached_the_disk_is_no_damage() -> None:
    wide = pa.schema([(f"column number {i}", pa.int64()) for i in range(300)])
    files = Forgetful()
    store, _ = opened(files, "off")
    append(store, "a", 1)
    store.append(store.log("streams", "w", wide), pa.table({n: [1] for n in wide.names}, schema=wide), {})
    lost = restarted(files)
    path = next(p for p in lost.now if "streams/w" in p)
    lost.now[path].now[4096:8192] = bytes(4096)
    assert opened(lost, "off")[1] == [("a", 1)]


def test_a_damaged_version_is_not_one_of_the_two_that_are_kept() -> None:
    files = Forgetful()
    store, _ = opened(files)
    for i in range(4):
        append(store, "a", i)
        save(store)
    newest = max(p for p in files.now if p.endswith(".version"))
    files.now[newest].now[20] ^= 1
    store, found = opened(files)
    assert found == [("a", 3)]
    append(store, "a", 4)
    save(store)
    newest = max(p for p in files.now if p.endswith(".version"))
    files.now[newest].now[20] ^= 1
    assert opened(files)[1] == [("a", 3), ("a", 4)]


_UNDOING = ("_undone", "settle", "undo", "remove", "cut", "fail")
"""A second interrupt, while the first one is made good, is not tried."""


@contextmanager
def interrupted(at: int) -> Iterator[list[int]]:
    """KeyboardInterrupt before a line of the store is run, the how many-th ``at`` says."""
    code = {module.__file__ for module in (of_files, of_log, of_records, of_store)}
    count = [0]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in code:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # The interpreter takes no signal between the end of a block and the release of its lock.
        if event == "line" and not line.startswith("with ") and frame.f_code.co_name not in _UNDOING:
            count[0] += 1
            if count[0] == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("what", ["append", "first append", "record"])
def test_an_interrupt_anywhere_leaves_no_gap_and_nothing_twice(tmp_path: Path, what: str) -> None:
    at, done = 0, False
    while not done:
        at += 1
        path = tmp_path / f"{at}"
        store = Store.open(path)
        store.recover()
        store.begin()
        append(store, "b", 0)
        if what == "append":
            append(store, "a", 1)
        with interrupted(at) as count:
            try:
                if what == "record":
                    store.record({"kind": "note"})
                else:
                    append(store, "a", 2)
                done = count[0] < at
            except KeyboardInterrupt:
                pass
        taken = store.number
        append(store, "b", 3)
        assert store.number == taken + 1
        store.close()
        again = Store.open(path)
        _, items = again.recover()
        assert [item.number for item in items] == list(range(1, taken + 2)), f"interrupted at line {at}"
        again.begin()
        again.close()
    assert at > 20


def test_a_forked_process_is_refused(tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "db", engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        db.push("s", [(1,)])
        child = os.fork()
        if not child:
            try:
                db.push("s", [(2,)])
            except StorageError as error:
                os._exit(7 if "from which this one was forked" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        db.push("s", [(3,)])
    with penstock.connect(tmp_path / "db", engine="local") as db:
        assert db.stream("s").given == 2


def test_what_is_left_of_a_first_opening_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.mkdir()
    (path / "penstock.json.0123456789abcdef.part").write_bytes(b"")
    with penstock.connect(path, engine="local"):
        assert not list(path.glob("*.part"))


def test_results_that_are_read_while_the_database_is_closed_come_again(tmp_path: Path) -> None:
    db = penstock.connect(tmp_path / "db", engine="local")
    db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
    query = db.query("SELECT ISTREAM t FROM s [ROWS 1]", name="q")
    db.push("s", [(1,), (2,)])

    def write(table: pa.Table) -> None:
        db.close()

    with pytest.raises(penstock.StateError, match="was closed while results were being read"):
        query.transfer(write)
    with penstock.connect(tmp_path / "db", engine="local") as db:
        assert db.queries["q"].fetch()["t"].to_pylist() == [1, 2]
