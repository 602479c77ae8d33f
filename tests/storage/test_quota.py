"""A directory that may not become larger than was said."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.database.database import core_of
from penstock.model.errors import StorageError
from penstock.operators.state import Piece, Saved
from penstock.storage.store import Store
from tests.storage.forgetful import Forgetful

ROWS = pa.schema([("v", pa.int64())])
STREAM = "CREATE STREAM s (t BIGINT, v STRING) TIMESTAMP BY t"


def rows(n: int) -> pa.Table:
    return pa.table({"v": range(n)}, schema=ROWS)


def opened(files: Forgetful, quota: int | None) -> Store:
    store = Store(files, quota=quota)
    _, items = store.recover()
    for _ in items:
        pass
    store.begin()
    return store


def test_what_would_go_over_is_refused_whole_and_said_so() -> None:
    files = Forgetful()
    store = opened(files, 20_000)
    log = store.log("streams", "a", ROWS)
    store.append(log, rows(1_000), {}, new=True)
    before = {path: bytes(file.now) for path, file in files.now.items()}
    with pytest.raises(StorageError) as caught:
        store.append(log, rows(2_000), {}, new=True)
    assert caught.value.message.startswith("disk: the quota is 20 KB, 8.")
    assert "and this takes 16." in caught.value.message
    assert "drop streams" in str(caught.value.hint)
    assert "a larger quota" in str(caught.value.hint)
    assert {path: bytes(file.now) for path, file in files.now.items()} == before
    store.append(log, rows(500), {}, new=True)
    assert store.number == 2


def test_what_makes_room_goes_on() -> None:
    files = Forgetful()
    store = opened(files, 9_000)
    log = store.log("streams", "a", ROWS)
    store.append(log, rows(1_000), {}, new=True)
    with pytest.raises(StorageError, match="quota"):
        store.record({"kind": "declare"}, new=True)
    with pytest.raises(StorageError, match="quota"):
        store.put_code("f@1", b"x" * 1_000)
    store.append(log, None, {"taken": "late"})
    store.record({"kind": "stop"})
    for _ in range(2):
        store.rolled()
        store.save(store.number, {"x": Saved({}, (Piece("0", rows(100)),))})
        store.forget()
    assert store.used < 5_000
    store.append(log, rows(400), {}, new=True)


def test_use_is_the_same_after_a_restart() -> None:
    files = Forgetful()
    store = opened(files, None)
    log = store.log("streams", "a", ROWS)
    store.append(log, rows(1_000), {}, new=True)
    store.record({"kind": "declare"})
    store.rolled()
    store.save(2, {"x": Saved({}, (Piece("0", rows(100)),))})
    store.append(log, rows(1_000), {})
    again = opened(files.killed(), 10)
    assert again.used == store.used
    with pytest.raises(StorageError, match="quota is 10 bytes"):
        again.append(again.log("streams", "a", ROWS), rows(1), {}, new=True)


def test_a_database_that_is_full_refuses_rows_and_gives_what_it_has(tmp_path: Path) -> None:
    with penstock.connect(tmp_path, engine="local", quota="300 KB") as db:
        db.execute(f"{STREAM}; CREATE STREAM other (t BIGINT) TIMESTAMP BY t; CREATE RELATION r (k BIGINT) KEY (k)")
        db.query("SELECT ISTREAM v FROM s", name="q")

        def fill() -> None:
            for t in range(1_000):
                db.push("s", [(t, f"{t} " * 2_000)], key=("p", t))

        with pytest.raises(penstock.StorageError, match="the quota is 300 KB") as caught:
            fill()
        taken = db.stream("s").given
        assert taken > 10
        store = core_of(db).host._kept.keeper.store  # type: ignore[attr-defined]
        store.quota = 1  # the state may have been saved meanwhile, and there be room
        assert str(tmp_path) in caught.value.message
        for refused in (
            lambda: db.push("r", [(i,) for i in range(5_000)]),
            lambda: db.push("s", [(1_000, "x" * 20_000)]),
            lambda: db.execute("CREATE STREAM third (t BIGINT) TIMESTAMP BY t"),
            lambda: db.query("SELECT v FROM s"),
        ):
            with pytest.raises(penstock.StorageError, match="quota"):
                refused()
        assert db.stream("s").given == taken
        assert list(db.queries) == ["q"]
        assert "third" not in db.catalog.streams
        db.heartbeat("s", 1_000)
        db.execute("DELETE FROM r")
        db.execute("DROP STREAM other")
        answers = db.queries["q"].fetch()
        assert answers.num_rows == taken
        store.quota = 300_000
        # Nobody needs the rows any more: there is room as soon as the state has been saved.
        pushed_in_time(db, 2_000, taken)
        db.queries["q"].stop()
    with penstock.connect(tmp_path, engine="local", quota="300 KB") as db:
        assert db.stream("s").given == taken + 1


def pushed_in_time(db: penstock.Database, t: int, sequence: int) -> None:
    for _ in range(100):
        try:
            db.push("s", [(t, "x")], key=("p", sequence))
            return
        except penstock.StorageError:
            time.sleep(0.1)
    pytest.fail("there is no room")


def test_logs_are_saved_away_before_the_quota_is_reached(tmp_path: Path) -> None:
    with penstock.connect(tmp_path, engine="local", quota="1 MB") as db:
        db.execute(STREAM)
        for t in range(200):
            for _ in range(100):
                try:
                    db.push("s", [(t, "x" * 20_000)])
                    break
                except penstock.StorageError:
                    time.sleep(0.05)
            else:
                pytest.fail("there is no room")
        core_of(db).host.abilities().save()
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) < 1_200_000


def test_what_is_refused_while_a_state_is_saved_asks_for_another_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save may have come too late to make room for it."""
    with penstock.connect(tmp_path / "db", engine="local", quota="200 KB") as db:
        db.execute(STREAM)
        db.push("s", [(1, "x")])
        host, save = core_of(db).host.abilities(), Store.save
        refused: list[StorageError] = []
        stores: set[Store] = set()

        def saved(self: Store, *given: Any) -> Any:
            stores.add(self)
            if not refused:
                with pytest.raises(StorageError, match="the quota is") as caught:
                    db.push("s", [(2, "x" * 300_000)])
                refused.append(caught.value)
            return save(self, *given)

        monkeypatch.setattr(Store, "save", saved)
        host.save()
        assert refused
        (store,) = stores
        assert store.pressed
        db.push("s", [(3, "x")])
        host.save()
        assert not store.pressed


@pytest.mark.parametrize("quota", ["much", -1, 1.5, True])
def test_a_quota_that_is_none(tmp_path: Path, quota: Any) -> None:
    with pytest.raises(penstock.InputError, match="quota is ") as caught:
        penstock.connect(tmp_path / "db", engine="local", quota=quota)
    assert "512 MB" in str(caught.value.hint)
    assert not (tmp_path / "db").exists()


def test_a_quota_for_nothing(tmp_path: Path) -> None:
    with pytest.raises(penstock.InputError, match="no directory that it could bound"):
        penstock.connect(engine="local", quota="1 GB")
    with pytest.raises(penstock.EngineError, match="reference"):
        penstock.connect(tmp_path / "db", engine="reference", quota="1 GB")


@pytest.mark.parametrize("settings", [{"sync": "group"}, {"sync": True}, {"sync": "always"}, {"functions": True}])
def test_what_is_said_of_a_directory_that_is_not_there(settings: dict[str, Any]) -> None:
    with pytest.raises(penstock.InputError, match="there is no directory that it could be about"):
        penstock.connect(engine="local", **settings)
    penstock.connect(engine="local", sync="off", functions=False).close()
