"""The store on the disk of the system: who has a directory, what is refused, and names and sizes at their limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.database.database import core_of
from penstock.model.errors import StorageError
from penstock.storage import files, log
from penstock.storage.files import Disk
from penstock.storage.names import file_name, is_shortened, name_of
from penstock.storage.records import put_record
from penstock.storage.store import Item, Store

ROWS = pa.schema([("v", pa.int64()), ("name", pa.string())])
STREAM = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"


def rows(n: int, start: int = 0) -> pa.Table:
    return pa.table({"v": range(start, start + n), "name": [f"ü{i}" for i in range(n)]}, schema=ROWS)


def opened(path: Path) -> tuple[Store, list[Item]]:
    store = Store.open(path)
    try:
        _, items = store.recover()
        found = list(items)
        store.begin()
    except BaseException:
        store.close()
        raise
    return store, found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found, _ = opened(tmp_path / "db")
    yield found
    found.close()


def again(store: Store, path: Path) -> list[Item]:
    store.close()
    new, items = opened(path)
    new.close()
    return items


# -- who has it -----------------------------------------------------------------------------------------------


def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    code = (
        "import sys, penstock\ndb = penstock.connect(sys.argv[1], engine='local')\nprint('open', flush=True)\ninput()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        with pytest.raises(penstock.StorageError) as caught:
            penstock.connect(tmp_path, engine="local")
        assert f"{tmp_path} is open in another process (process {process.pid} on " in caught.value.message
        assert caught.value.hint == "close it there, or use another directory"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    penstock.connect(tmp_path, engine="local").close()  # who is dead has nothing


def test_a_second_database_of_the_same_process_is_refused(tmp_path: Path) -> None:
    with penstock.connect(tmp_path, engine="local"), pytest.raises(penstock.StorageError) as caught:
        penstock.connect(tmp_path, engine="local")
    assert caught.value.message == f"{tmp_path} is open in this process already"
    assert caught.value.hint == "close() that database first, or use another directory"
    penstock.connect(tmp_path, engine="local").close()


# -- what is refused ------------------------------------------------------------------------------------------


def refused(path: Path) -> StorageError:
    before = sorted(p.name for p in path.iterdir()) if path.is_dir() else None
    with pytest.raises(penstock.StorageError) as caught:
        penstock.connect(path, engine="local")
    assert (sorted(p.name for p in path.iterdir()) if path.is_dir() else None) == before
    return caught.value


def test_a_directory_of_release_0_1(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "lock").write_text("")
    error = refused(tmp_path)
    assert error.message == f"{tmp_path}: a database of release 0.1, which this release does not open"
    assert "open it with release 0.1" in str(error.hint)


def test_a_directory_of_a_newer_format(tmp_path: Path) -> None:
    put_record(Disk(tmp_path), "penstock.json", {"penstock": "database", "format": 7}, sync=False)
    (tmp_path / "owner").write_text("")
    error = refused(tmp_path)
    assert error.message == f"{tmp_path}: written in format 7; this release reads format 1"
    assert "the release of Penstock that wrote it" in str(error.hint)


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    error = refused(tmp_path)
    assert error.message == f"{tmp_path} is not empty and not a database: it has `letter.txt`"
    assert error.hint == "use an empty directory, or a new one"


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    error = refused(tmp_path / "file")
    assert error.message == f"{tmp_path}/file is not a directory"
    assert error.hint == "use an empty directory, or a new one"
    assert "cannot be opened: " in refused(tmp_path / "file" / "below").message


def test_a_directory_without_its_head(tmp_path: Path) -> None:
    with penstock.connect(tmp_path, engine="local") as db:
        db.execute(STREAM)
        db.push("s", [(1, 1)])
    (tmp_path / "penstock.json").unlink()
    assert refused(tmp_path).message.startswith(f"{tmp_path}/penstock.json: missing")


def test_a_place_where_nothing_can_be_made() -> None:
    error = refused(Path("/proc/penstock"))
    assert error.message.startswith("/proc/penstock: cannot be opened: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    penstock.connect(tmp_path / "db", engine="local").close()
    (tmp_path / "db").chmod(0o500)
    try:
        assert "Permission denied" in refused(tmp_path / "db").message
    finally:
        (tmp_path / "db").chmod(0o700)


def test_no_permission_to_write_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.connect(tmp_path, engine="local") as db:
        db.execute(STREAM)
        real = os.open

        def denied(path: str | Path, flags: int, mode: int = 0o777) -> int:
            if "streams" in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, flags, mode)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", denied)
            with pytest.raises(penstock.StorageError, match="cannot be written: Permission denied") as caught:
                db.push("s", [(1, 1)])
        assert "nothing of this has been taken" in str(caught.value.hint)
        db.push("s", [(1, 1)])
        assert db.stream("s").given == 1


def test_a_directory_that_vanishes(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with penstock.connect(path, engine="local") as db:
        db.execute(f"{STREAM}; CREATE STREAM other (t BIGINT) TIMESTAMP BY t")
        db.push("s", [(1, 1)])
        shutil.rmtree(path)
        with pytest.raises(penstock.StorageError, match="No such file or directory"):
            db.execute("CREATE STREAM third (t BIGINT) TIMESTAMP BY t")
        assert "third" not in db.catalog.streams
        with pytest.raises(penstock.StorageError, match="No such file or directory"):
            core_of(db).host.abilities().save()
        assert db.stream("s").given == 1


# -- names ----------------------------------------------------------------------------------------------------

_NAMES = [
    ".", "..", "...", "a/b", "/etc/passwd", "../../up", "%2E%2E", "a%b", "a=b", "a@1", "owner", "ß", "流れ" * 60,
    "a" * 5_000, "a" * 4_999 + "b", "🌊" * 100, "a b\tc\n", "-", "~", "A", "a", "name.json", "x.segment",
]  # fmt: skip


def test_logs_have_names_of_every_kind(store: Store, tmp_path: Path) -> None:
    for i, name in enumerate(_NAMES):
        store.append(store.log("streams", name, ROWS), rows(1, i), {})
        store.put_code(f"{name}@1", name.encode())
    assert {store.code(f"{name}@1").decode() for name in _NAMES} == set(_NAMES)
    store.forget_code([f"{name}@1" for name in _NAMES[1:]])
    with pytest.raises(StorageError, match="missing"):
        store.code(f"{_NAMES[0]}@1")
    assert store.code(f"{_NAMES[1]}@1") == _NAMES[1].encode()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["db"]
    found = again(store, tmp_path / "db")
    assert [(item.name, item.kind) for item in found] == [(name, "streams") for name in _NAMES]
    found = opened(tmp_path / "db")[1]  # sealed by an epoch
    assert [item.name for item in found] == _NAMES


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(min_size=1, max_size=3))
def test_no_two_names_have_one_file(name: str, end: str) -> None:
    for one in (name, name * 100):
        file = file_name(one)
        assert len(file.encode()) <= 255 - len(".0123456789abcdef.part")
        assert file not in (".", "..")
        assert "/" not in file
        assert is_shortened(file) or name_of(file) == one
        assert end.encode(errors="ignore") == b"" or file_name(one + end.encode(errors="ignore").decode()) != file


def test_a_long_name_whose_record_is_gone_is_missed(store: Store, tmp_path: Path) -> None:
    store.append(store.log("streams", "a" * 300, ROWS), rows(1), {})
    store.close()
    (record,) = (tmp_path / "db" / "streams").glob("*/name.json")
    assert json.loads(record.read_text().partition("\n")[2]) == {"name": "a" * 300}
    record.unlink()
    with pytest.raises(StorageError, match=r"name\.json: missing"):
        opened(tmp_path / "db")


def test_streams_have_long_names_in_a_database(tmp_path: Path) -> None:
    names = ["a" * 300, "ü" * 120, "x/y", ".."]
    with penstock.connect(tmp_path / "db", engine="local") as db:
        for name in names:
            db.execute(f'CREATE STREAM "{name}" (t BIGINT) TIMESTAMP BY t')
            db.push(name, [(1,)])
    with penstock.connect(tmp_path / "db", engine="local") as db:
        assert [db.stream(name).given for name in names] == [1] * len(names)
        db.push(names[0], [(2,)])
        for name in names[1:]:
            db.execute(f'DROP STREAM "{name}"')
        core_of(db).host.abilities().save()
    with penstock.connect(tmp_path / "db", engine="local") as db:
        assert list(db.catalog.streams) == names[:1]
        assert db.stream(names[0]).given == 2
    assert [p.name for p in tmp_path.iterdir()] == ["db"]


# -- sizes ----------------------------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_more_logs_than_files_are_kept_open(store: Store, tmp_path: Path) -> None:
    before = open_files()
    logs = [store.log("streams", f"s{i}", ROWS) for i in range(150)]
    for turn in range(3):
        for i, one in enumerate(logs):
            store.append(one, rows(1, 1_000 * turn + i), {})
    assert open_files() - before <= files._OPEN
    found = again(store, tmp_path / "db")
    assert open_files() <= before
    assert [item.rows.column("v").to_pylist() for item in found if item.rows is not None] == [
        [1_000 * turn + i] for turn in range(3) for i in range(150)
    ]


def test_a_push_that_is_too_large_for_one_frame_has_several_and_counts_whole(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "FRAME_BYTES", 2_000)
    one = store.log("streams", "s", ROWS)
    table = rows(2_000)
    store.append(one, table, {"key": ["a", 1]})
    store.append(one, rows(1), {})
    (segment,) = (tmp_path / "db" / "streams" / "s").iterdir()
    assert segment.read_bytes().count(b"FRAM") > 10
    items = again(store, tmp_path / "db")
    assert [(item.number, item.meta) for item in items] == [(1, {"key": ["a", 1]}), (2, {})]
    assert items[0].rows is not None
    assert items[0].rows.equals(table)
    # Without its last frame, nothing of it was acknowledged.
    content = segment.read_bytes()
    second, first = content.rindex(b"FRAM"), content.rindex(b"FRAM", 0, content.rindex(b"FRAM"))
    shutil.rmtree(tmp_path / "db" / "epochs")
    (tmp_path / "db" / "epochs").mkdir()
    put_record(Disk(tmp_path / "db"), "epochs/0000000001.json", {"epoch": 1, "ends": {}}, sync=False)
    for end in (second, first):
        with segment.open("r+b") as file:
            file.truncate(end)
        reopened = Store.open(tmp_path / "db")
        try:
            assert len(list(reopened.recover()[1])) == (1 if end == second else 0)
        finally:
            reopened.close()


def test_rows_in_thousands_of_pieces(tmp_path: Path) -> None:
    table = pa.concat_tables(pa.table({"t": [i], "v": [i]}) for i in range(3_000))
    assert table.column("v").num_chunks == 3_000
    with penstock.connect(tmp_path, engine="local") as db:
        db.execute(STREAM)
        db.push("s", table)
        db.query("SELECT count(*) AS n FROM s", name="q", start="now")
        assert db.stream("s").given == 3_000
    with penstock.connect(tmp_path, engine="local") as db:
        assert db.stream("s").given == 3_000


def test_a_write_of_many_parts_that_the_system_takes_in_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, parts, at: real(file, [bytes(parts[0])[:7]], at))
    disk = Disk(tmp_path)
    parts = [bytes([i % 256]) * (i % 20) for i in range(3_000)]
    end = disk.append("file", 0, parts)
    disk.close()
    assert (tmp_path / "file").read_bytes() == b"".join(parts)
    assert end == sum(map(len, parts))
