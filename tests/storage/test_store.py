"""The store on its own: what was acknowledged is there again, whatever happened in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import StorageError
from penstock.operators.state import Piece, Saved
from penstock.storage.store import Item, Store, Sync
from tests.storage.forgetful import Forgetful

ROWS = pa.schema([("v", pa.int64()), ("name", pa.string())])


def rows(n: int, start: int = 0) -> pa.Table:
    return pa.table({"v": range(start, start + n), "name": [f"ü{i}" for i in range(n)]}, schema=ROWS)


def told(items: Iterator[Item]) -> list[tuple[int, str, str, object]]:
    return [(i.number, i.kind, i.name, i.meta if i.rows is None else i.rows.to_pylist()) for i in items]


def opened(files: Forgetful, sync: Sync = "off") -> tuple[Store, object, list[tuple[int, str, str, object]]]:
    store = Store(files, sync=sync)
    state, items = store.recover()
    found = told(items)
    store.begin()
    meta = None if state is None else {path: dict(s.meta) for path, s in state.items()}
    return store, meta, found


def test_what_was_written_is_there_in_its_order() -> None:
    files = Forgetful()
    store, _, found = opened(files)
    assert found == []
    a, b = store.log("streams", "a", ROWS), store.log("streams", "ß b", ROWS)
    store.record({"kind": "declare", "name": "a"})
    store.append(a, rows(3), {})
    store.append(b, rows(1), {"at": 4})
    store.append(a, None, {"closed": True})
    _, _, found = opened(files.killed())
    assert [(n, kind, name) for n, kind, name, _ in found] == [
        (1, "catalog", ""), (2, "streams", "a"), (3, "streams", "ß b"), (4, "streams", "a"),
    ]  # fmt: skip
    assert found[1][3] == rows(3).to_pylist()


@given(st.data())
def test_a_flipped_byte_is_told_and_never_taken_for_the_end(data: st.DataObject) -> None:
    files = Forgetful()
    store, *_ = opened(files)
    log = store.log("streams", "a", ROWS)
    store.record({"kind": "declare", "name": "a"})
    for i in range(4):
        store.append(log, rows(3, i), {})
    store.save(3, {"x": Saved({"n": 3}, (Piece("0", rows(5)),))})
    path = data.draw(st.sampled_from(sorted(p for p in files.now if "penstock" not in p)))
    at = data.draw(st.integers(0, 1 << 20)) % files.size(path)
    before = opened(files.killed())[1:]
    files.now[path].now[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        after = opened(files.killed())[1:]
    except StorageError:
        return
    # Bytes that nobody reads: between frames, or of what a saved state covers.
    assert after[1] == before[1] or after[0] is None


@pytest.mark.parametrize("sync", ["off", "group", "always"])
@given(seed=st.integers(0, 2**32))
def test_after_a_loss_of_power_what_was_acknowledged_is_there(sync: Sync, seed: int) -> None:
    chance = random.Random(seed)
    files = Forgetful()
    expected: list[object] = []
    saved: tuple[int, object] | None = None
    for _ in range(chance.randint(1, 4)):
        store, state, found = opened(files, sync)
        if sync != "off":
            after = 0 if saved is None else saved[0]
            got = {n: content for n, *_, content in found}
            for n, content in enumerate(expected, 1):
                if n > after:
                    assert got.get(n) == content
                elif n in got:
                    assert got[n] == content
            if saved is not None:
                assert state is not None
        expected = expected[: store.number] if sync == "off" else expected
        while len(expected) < store.number:  # written, and not acknowledged
            expected.append({n: content for n, *_, content in found}[len(expected) + 1])
        logs = [store.log("streams", name, ROWS) for name in ("a", "b")]
        for _ in range(chance.randint(0, 12)):
            what = chance.random()
            if what < 0.6:
                table = rows(chance.randint(0, 40), chance.randint(0, 99))
                number = store.append(chance.choice(logs), table, {})
                expected.append(table.to_pylist())
                store.wait(number)
            elif what < 0.8:
                record = {"n": chance.randint(0, 9)}
                store.record(record)
                expected.append(record)
            elif store.number > store.saved:
                store.rolled()
                store.save(store.number, {"x": Saved({"n": store.number}, (Piece(str(store.number), rows(5)),))})
                saved = store.number, None
                store.forget()
        files = files.power_lost(chance) if chance.random() < 0.7 else files.killed()


@given(seed=st.integers(0, 2**32), full=st.booleans())
def test_what_cannot_be_written_is_refused_and_nothing_else_is_lost(seed: int, full: bool) -> None:
    chance = random.Random(seed)
    files = Forgetful()
    store, *_ = opened(files)
    logs = [store.log("streams", name, ROWS) for name in ("a", "b")]
    kept: list[object] = []
    refused = 0
    for i in range(20):
        if chance.random() < 0.3:
            files.room, files.broken = (chance.randint(0, 300), None) if full else (None, chance.randint(0, 1))
        table = rows(chance.randint(0, 9), i)
        try:
            if chance.random() < 0.2:
                store.rolled()
                store.save(store.number, {"x": Saved({}, (Piece(str(i), rows(50)),))})
                store.forget()
            else:
                store.append(chance.choice(logs), table, {})
                kept.append(table.to_pylist())
        except StorageError:
            refused += 1
        files.room = files.broken = None
    store, _, found = opened(files.killed())
    assert store.number == len(kept)
    assert [content for *_, content in found] == kept[len(kept) - len(found) :]


def test_a_save_that_failed_is_made_good_by_the_next() -> None:
    files = Forgetful()
    store, *_ = opened(files)
    store.record({})
    files.room = 10
    with pytest.raises(StorageError, match="No space left"):
        store.save(1, {"x": Saved({}, (Piece("0", rows(5)),))})
    files.room = None
    store.record({})
    store.save(2, {"x": Saved({}, (Piece("0"), Piece("1", rows(2))))})
    state, _ = Store(files.killed()).recover()
    assert state is not None
    assert [state["x"].tables[n].num_rows for n in state["x"].tables] == [5, 2]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_tables_without_columns_have_their_rows(count: int) -> None:
    files = Forgetful()
    store, *_ = opened(files)
    store.record({})
    store.save(1, {"x": Saved({}, (Piece("0", rows(count).select([])),))})
    state, _ = Store(files.killed()).recover()
    assert state is not None
    assert state["x"].tables["0"].num_rows == count


def test_what_a_dead_owner_still_writes_is_never_read() -> None:
    files = Forgetful()
    old, *_ = opened(files)
    log = old.log("streams", "a", ROWS)
    old.append(log, rows(1), {})
    new, _, found = opened(files)
    assert len(found) == 1
    old.append(log, rows(2), {})  # into its own segment, behind what the new owner has seen
    new_log = new.log("streams", "a", ROWS)
    new.append(new_log, rows(3), {})
    *_, found = opened(files.killed())
    assert [len(content) for *_, content in found] == [1, 3]  # type: ignore[arg-type]


def test_a_missing_segment_is_missed() -> None:
    files = Forgetful()
    store, *_ = opened(files)
    log = store.log("streams", "a", ROWS)
    store.append(log, rows(1), {})
    store.rolled()
    store.append(log, rows(2), {})
    first = min(p for p in files.now if p.startswith("streams/"))
    del files.now[first]
    with pytest.raises(StorageError, match="entry 1 is missing"):
        opened(files.killed())


def test_logs_shrink_with_saved_states_and_states_with_their_pieces() -> None:
    files = Forgetful()
    store, *_ = opened(files)
    log = store.log("streams", "a", ROWS)
    sizes = []
    for i in range(40):
        store.append(log, rows(100, i), {})
        store.record({"i": i})
        store.rolled()
        store.save(store.number, {"x": Saved({}, (Piece(str(i), rows(100)),))})
        store.forget()
        sizes.append(sum(len(f.now) for f in files.now.values()))
    assert max(sizes[20:]) <= 1.1 * max(sizes[:10])
    assert len(files.now) < 20


def test_a_sync_that_is_interrupted_is_made_good_by_the_next() -> None:
    files = Forgetful()
    store, *_ = opened(files, "group")
    number = store.append(store.log("streams", "a", ROWS), rows(1), {})
    sync = files.sync_later

    def interrupted(path: str) -> Callable[[], None]:
        raise KeyboardInterrupt

    files.sync_later = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        store.wait(number)
    files.sync_later = sync  # type: ignore[method-assign]
    store.wait(number)
    *_, found = opened(files.power_lost(random.Random(1)), "group")
    assert [n for n, *_ in found] == [1]


def test_after_a_sync_that_failed_nothing_is_acknowledged() -> None:
    files = Forgetful()
    store, *_ = opened(files, "group")
    log = store.log("streams", "a", ROWS)
    number = store.append(log, rows(1), {})
    files.broken = 0
    with pytest.raises(StorageError, match="cannot be forced to the disk"):
        store.wait(number)
    files.broken = None
    with pytest.raises(StorageError, match="cannot be forced to the disk"):
        store.wait(number)
    with pytest.raises(StorageError, match="cannot be forced to the disk"):
        store.append(log, rows(1), {})


@pytest.mark.parametrize("read", [True, False])
def test_entries_that_others_are_to_read_are_on_the_disk_when_the_state_is(read: bool) -> None:
    lost = 0
    for seed in range(20):
        files = Forgetful()
        store, *_ = opened(files)
        log = store.log("streams", "a", ROWS)
        store.record({"kind": "declare", "name": "a"})
        for i in range(5):
            store.append(log, rows(100, i), {})
        store.record({"kind": "declare", "name": "b"})
        store.is_read = read
        store.save(store.rolled(), {"x": Saved({})})
        store.forget(0)
        store.append(log, rows(1), {})
        after = files.power_lost(random.Random(seed))
        again, _, _ = opened(after)
        assert again.saved == 7
        try:
            again.check_entries(0)
        except StorageError:
            lost += 1
    assert (lost == 0) == read
