"""A database in an object store: no rename, no append, no lock, no sync, no memory map."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

import penstock
from penstock.model.errors import InputError, StorageError
from penstock.operators.state import Piece, Saved
from penstock.storage import objects, owners
from penstock.storage.backup import backup
from penstock.storage.checking import check
from penstock.storage.objects import Objects, filesystem_at, joined, root_of
from penstock.storage.owners import Lease, holder
from penstock.storage.store import Store
from tests.storage.bucket import Bucket, Held
from tests.storage.test_store import ROWS, rows, told

DB = "s3://bucket/db"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Where ``DB`` is."""
    found = Bucket()
    monkeypatch.setattr(objects, "_filesystem", lambda scheme, root: (fs.PyFileSystem(found), "bucket"))
    return found


@given(st.integers(0, 2**32))
def test_what_was_written_is_there_in_its_order(seed: int) -> None:
    chosen, files = random.Random(seed), Held()
    written: list[tuple[int, str]] = []
    for _ in range(4):
        store = Store(files)
        _, items = store.recover()
        saved = store.saved
        assert [(number, kind) for number, kind, _, _ in told(items)] == [w for w in written if w[0] > saved]
        store.begin()
        log = store.log("streams", "a", ROWS)
        for _ in range(chosen.randrange(6)):
            what = chosen.choice(["rows", "record", "save"])
            if what == "rows":
                written.append((store.append(log, rows(chosen.randrange(5)), {}), "streams"))
            elif what == "record":
                written.append((store.record({"kind": "declare"}), "catalog"))
            else:
                pieces = (Piece("rows", rows(100)), Piece("again", rows(100)))
                store.save(store.rolled(), {"op": Saved({"n": store.number}, pieces)})
                store.forget()
        files = files.killed()


def test_an_entry_that_cannot_be_put_is_not_there() -> None:
    files = Held()
    store = Store(files)
    _, items = store.recover()
    assert not list(items)
    store.begin()
    log = store.log("streams", "a", ROWS)
    store.append(log, rows(1), {})
    files.bucket.broken = {"bucket/db/streams"}
    with pytest.raises(StorageError, match="the store does not answer"):
        store.append(log, rows(2), {})
    files.bucket.broken = set()
    assert store.append(log, rows(3), {}) == 2
    again = Store(files.killed())
    assert [len(found[3]) for found in told(again.recover()[1])] == [1, 3]  # type: ignore[arg-type]


def test_a_database_of_the_local_engine_is_kept_in_it(bucket: Bucket, tmp_path: Path) -> None:
    with penstock.connect(DB, engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        db.query("SELECT ISTREAM sum(v) AS total FROM s [ROWS 2]", name="sums")
        db.push("s", [(1, 10), (2, 20)])
        db.push("s", [(3, 30)])
    assert not check(DB).damage
    assert backup(DB, tmp_path / "copy") > 0
    for place in (DB, tmp_path / "copy"):
        with penstock.connect(place, engine="local") as db:
            db.push("s", [(4, 40)])
            assert db.queries["sums"].fetch().column("total").to_pylist() == [10, 30, 50, 70]
    with penstock.connect(DB, engine="local") as db:
        assert db.queries["sums"].fetch().num_rows == 0
    assert not [name for name in bucket.objects if name.startswith("bucket/db/owner/")]


def test_a_second_database_is_refused(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.connect(DB, engine="local"):
        assert holder(Objects(DB)) is not None
        with pytest.raises(StorageError, match=f"{DB} is open in this process already"):
            penstock.connect(DB, engine="local")
        pid, parent = os.getpid(), os.getppid()
        monkeypatch.setattr(os, "getpid", lambda: parent)
        with pytest.raises(StorageError, match=f"{DB} is open in another process \\(process {pid} on "):
            penstock.connect(DB, engine="local")
    penstock.connect(DB, engine="local").close()
    assert holder(Objects(DB)) is None


@pytest.mark.parametrize("ended", [True, False])
def test_a_process_that_was_killed_is_not_waited_for_where_that_is_known(ended: bool, bucket: Bucket) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    who = {"pid": process.pid, "host": "here", "since": "then", "machine": owners._machine()}
    Objects(DB).replace("owner/other.json", json.dumps(who).encode())
    if ended:
        process.kill()
        process.wait()
        penstock.connect(DB, engine="local").close()
    else:
        with pytest.raises(StorageError, match="wait 20 seconds"):
            penstock.connect(DB, engine="local")
        process.kill()
        process.wait()


def test_a_lease_that_was_not_renewed_has_lapsed_for_both(bucket: Bucket) -> None:
    now = [1_000.0]
    with patch("penstock.storage.owners.time.monotonic", lambda: now[0]):
        db = penstock.connect(DB, engine="local")
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        db.push("s", [(1, 10)])
        bucket.broken = {"bucket/db/owner"}
        now[0] += owners.LEASE + 1
        with pytest.raises(StorageError, match="was not renewed for 20 seconds"):
            db.push("s", [(2, 20)])
        bucket.broken = set()
        bucket.skew = owners.LEASE + 10  # the store's clock is what counts
        other = penstock.connect(DB, engine="local")
        assert other.stream("s").given == 1
        other.push("s", [(3, 30)])
        with pytest.raises(StorageError):
            db.push("s", [(4, 40)])
        db.close()
        other.close()
        with penstock.connect(DB, engine="local") as last:
            assert last.stream("s").given == 2


def test_of_two_processes_that_come_together_at_most_one_has_it(bucket: Bucket) -> None:
    barrier, had = threading.Barrier(4), list[Lease]()

    def come() -> None:
        barrier.wait()
        try:
            had.append(Lease(Objects(DB)))
        except StorageError:
            return

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(had) <= 1
    for lease in had:
        lease.release()


def test_addresses() -> None:
    assert root_of("s3://bucket/db/") == "s3://bucket/db"
    assert root_of("db") == Path("db")
    assert joined("s3://bucket/db?region=x", "shards/a") == "s3://bucket/db/shards/a?region=x"
    assert joined(Path("db"), "shards/a") == "db/shards/a"
    _, path = filesystem_at("s3://bucket/a/db?region=eu-west-1&endpoint_override=localhost:1")
    assert path == "bucket/a/db"
    with pytest.raises(InputError, match=r"an address begins with s3://, gs://"):
        root_of("ftp://somewhere/db")


def test_large_pieces_of_a_state_are_put_whole(bucket: Bucket) -> None:
    store = Store.open(DB)
    list(store.recover()[1])
    store.begin()
    table = pa.table({"v": range(400_000), "w": range(400_000)})
    store.append(store.log("streams", "a", ROWS), rows(1), {})
    store.save(store.rolled(), {"op": Saved({}, (Piece("a", table), Piece("b", table.append_column("x", table["v"]))))})
    store.close()
    store = Store.open(DB)
    state, _ = store.recover()
    assert state is not None
    assert state["op"].tables["b"].num_rows == 400_000
    store.close()
