"""Results that tasks of engine ``spark`` have put into files: saved states name the files and have no copy of them."""

from __future__ import annotations

import builtins
import gc
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.database.database import core_of
from penstock.hosts.results import DEFAULT, Filed, Results
from penstock.hosts.spark.parts import part
from penstock.operators.pieces import RowPieces
from penstock.operators.state import Loaded
from penstock.storage.files import Disk
from penstock.storage.shards import RESULTS
from tests.budget import examples
from tests.spark.direct import directly, host_of

ROWS = 2_000
"""Of a push: enough for a file."""


def connect(path: Path) -> penstock.Database:
    """Micro-batches begin when somebody waits for them."""
    return penstock.connect(path, engine="spark", shards=2, trigger=3600)


def saved(db: penstock.Database) -> None:
    core_of(db).host.abilities().save()


def begun(db: penstock.Database) -> penstock.Query:
    db.execute("CREATE STREAM s (t BIGINT, k BIGINT, x STRING) TIMESTAMP BY t")
    return db.query("SELECT ISTREAM t, x, count(*) AS n FROM s [NOW] GROUP BY t, k, x", name="q")


def push(db: penstock.Database, at: int, rows: int = ROWS) -> None:
    db.push("s", [(at, i, f"{at} {i} " * 20) for i in range(rows)])
    db.settle()
    saved(db)


def expected(at: int, rows: int = ROWS) -> list[tuple[int, str]]:
    return [(at, f"{at} {i} " * 20) for i in range(rows)]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(table.column("t").to_pylist(), table.column("x").to_pylist(), strict=True))


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_a_saved_state_has_no_copy_of_them(tmp_path: Path) -> None:
    with directly(), connect(tmp_path / "db") as db:
        begun(db)
        for at in range(1, 5):
            push(db, at)
        in_files, in_state = size(tmp_path / "db/shards/answers"), size(tmp_path / "db/state")
        assert in_files > 4 * ROWS * 60
        assert in_state < in_files / 10


def test_they_stay_until_they_are_read_and_no_longer(tmp_path: Path) -> None:
    with directly(), connect(tmp_path / "db") as db:
        query = begun(db)
        for at in range(1, 6):
            push(db, at)
        shutil.copytree(tmp_path / "db", tmp_path / "killed")
        assert rows_of(query.fetch()) == sorted(row for at in range(1, 6) for row in expected(at))
        for at in (6, 7):
            push(db, at, rows=1)  # the two saved states that are kept do not name them
        assert not list((tmp_path / "db/shards/answers").iterdir())
    with directly(), connect(tmp_path / "killed") as db:
        found = db.queries["q"].fetch()
        assert rows_of(found) == sorted(row for at in range(1, 6) for row in expected(at))


def test_between_small_results_that_the_log_has(tmp_path: Path) -> None:
    with directly(), connect(tmp_path / "db") as db:
        begun(db)
        wanted: list[tuple[int, str]] = []
        for at in range(1, 8):
            rows = 1 if at % 2 else ROWS
            push(db, at, rows)
            wanted += sorted(expected(at, rows))
        shutil.copytree(tmp_path / "db", tmp_path / "killed")
    with directly(), connect(tmp_path / "killed") as db:
        found = db.queries["q"].fetch()
        in_order = found.column("t").to_pylist()
        assert in_order == sorted(in_order)
        assert rows_of(found) == wanted


def test_the_other_engine_has_them_as_rows(tmp_path: Path) -> None:
    with directly(), connect(tmp_path / "db") as db:
        begun(db)
        for at in (1, 2):
            push(db, at)
    with penstock.connect(tmp_path / "db", engine="local") as db:
        assert rows_of(db.queries["q"].fetch()) == sorted([*expected(1), *expected(2)])


CHANGES = "SELECT t, x, count(*) AS n FROM s [NOW] GROUP BY t, k, x"


def damaged(path: Path) -> None:
    """Change a byte in each file with results."""
    for file in (path / "shards/answers").iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


def test_damaged_results_of_a_query_are_its_own_trouble(tmp_path: Path) -> None:
    """They go one after the other because more comes than is kept, and the answer that stands would have them."""
    path, rounds = tmp_path / "db", 70
    with directly(), connect(path) as db:
        begun(db).stop()
        db.execute(f"CREATE QUERY c AS {CHANGES} WITH (results = '6000 rows')")
        push(db, 1)
    damaged(path)
    with directly(), connect(path) as db:
        changes, other = db.queries["c"], db.query("SELECT ISTREAM t, x FROM s WHERE k >= 0", name="other")
        for at in range(2, rounds):
            push(db, at, rows=600)
        assert rows_of(other.fetch()) == sorted(row for at in range(2, rounds) for row in expected(at, 600))
        with pytest.raises(penstock.StateError, match=r"as it stands is not known: .* damaged, the checksum"):
            changes.current()
        with pytest.raises(penstock.ResultsGone):
            changes.fetch()
        assert changes.fetch().num_rows > 0
        for at in range(rounds, rounds + 3):
            push(db, at, rows=1)
            changes.fetch()
            other.fetch()
        assert not list((path / "shards/answers").iterdir()), "nothing waits for what cannot be read"


def test_results_that_cannot_be_read_now_are_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read when a micro-batch counts, so no query lacks anything."""
    with directly(), connect(tmp_path / "db") as db:
        query, other = begun(db), db.query("SELECT ISTREAM t, x FROM s WHERE k >= 0", name="other")
        files = host_of(db).files
        read = files.read

        def refused(path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
            if path.startswith("shards/answers/"):
                raise OSError(24, "Too many open files")
            return read(path, start, length)

        monkeypatch.setattr(files, "read", refused)
        push(db, 1)
        with pytest.raises(penstock.StorageError, match="Too many open files"):
            query.fetch()
        monkeypatch.setattr(files, "read", read)
        assert rows_of(query.fetch()) == sorted(expected(1))
        assert rows_of(other.fetch()) == sorted(expected(1))


def test_opening_reads_no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be more files than a process can map."""
    with directly(), connect(tmp_path / "db") as db:
        begun(db)
        for at in range(1, 5):
            push(db, at)
    seen: list[str] = []
    read = Disk.read

    def looked(disk: Disk, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        seen.append(path)
        return read(disk, path, start, length)

    monkeypatch.setattr(Disk, "read", looked)
    with directly(), connect(tmp_path / "db") as db:
        assert not [path for path in seen if path.startswith("shards/answers/")]
        assert rows_of(db.queries["q"].fetch()) == sorted(row for at in range(1, 5) for row in expected(at))
    assert [path for path in seen if path.startswith("shards/answers/")]


def test_a_query_that_is_stopped_is_still_read(tmp_path: Path) -> None:
    with directly(), connect(tmp_path / "db") as db:
        query = begun(db)
        other = db.query("SELECT ISTREAM t FROM s", name="other")
        push(db, 1)
        other.fetch()
        query.stop()
        for at in (2, 3, 4):
            push(db, at, rows=1)  # saved states that do not know the query any more
            other.fetch()
        assert rows_of(query.fetch()) == sorted(expected(1))
        del query
        gc.collect()
        for at in (5, 6, 7):
            push(db, at, rows=1)
            other.fetch()
        assert not list((tmp_path / "db/shards/answers").iterdir())


def test_a_directory_of_an_earlier_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither entries nor saved states said how large files are."""
    path = tmp_path / "db"
    with monkeypatch.context() as before, directly(), connect(path) as db:
        before.setattr(part, "RESULTS", RESULTS.remove(RESULTS.get_field_index("size")))
        before.setattr(part, "zip", lambda *of, strict: builtins.zip(*of, strict=False), raising=False)
        begun(db)
        push(db, 1)
        db.push("s", [(2, 1, "in the log alone"), *((2, i, f"2 {i} " * 20) for i in range(ROWS))])
        db.settle()
        shutil.copytree(path, tmp_path / "killed")
    with directly(), connect(tmp_path / "killed") as db:
        assert db.queries["q"].fetch().num_rows == 2 * ROWS + 1


# -- Results alone ------------------------------------------------------------------------------------


class InFile(Filed):
    """Numbers that are in a file."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def record(self) -> list[Any]:
        return self.numbers


class Runner:
    """Gives answers whose table has one column."""

    def table(self, answers: Sequence[Any]) -> pa.Table:
        tables = [pa.table({"n": pa.array(a.numbers, pa.int64())}) if isinstance(a, InFile) else a for a in answers]
        return pa.concat_tables(tables) if tables else pa.table({"n": pa.array([], pa.int64())})

    def together(self, answers: Sequence[Any]) -> pa.Table:
        return self.table(answers)

    def size(self, answers: Any) -> int:
        return 8 * len(answers)

    def delivered(self, answers: Sequence[Any], upto: int | None, notes: Any = None) -> None:
        pass

    def written(self) -> None:
        pass

    def forget(self, answers: Sequence[Any]) -> None:
        pass


class Plan:
    output = "istream"


def results() -> Results:
    return Results("q", Plan(), Runner(), None, threading.RLock())  # type: ignore[arg-type]


def read(of: Results) -> list[int]:
    with of._lock:
        found = of.read(DEFAULT)
    table = of.table(found)
    of.give_up(DEFAULT)
    numbers: list[int] = table.column("n").to_pylist()
    return numbers


steps = st.one_of(
    st.tuples(st.just("rows"), st.integers(1, 4)),
    st.tuples(st.just("file"), st.integers(1, 4)),
    st.tuples(st.just("confirm"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["save", "restart", "copy"]), st.just(0)),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(steps, max_size=40))
def test_a_restart_gives_back_what_was_not_confirmed(taken: list[tuple[str, int]]) -> None:
    now, pieces = results(), RowPieces()
    disk: dict[str, pa.Table] = {}
    given_, confirmed = 0, 0
    for step, count in [*taken, ("restart", 0)]:
        match step:
            case "rows" | "file":
                numbers = range(given_, given_ + count)
                now.append(InFile(numbers) if step == "file" else pa.table({"n": pa.array(numbers, pa.int64())}))
                given_ += count
            case "confirm":
                confirmed = min(given_, confirmed + count)
                now.confirm(DEFAULT, confirmed)
            case "copy":
                now.copy()
                assert not now.files()
            case _:
                unread = now.unread(None)
                state = pieces.save(unread.tail, unread.head, now.rows)
                for piece in state.pieces:
                    if piece.content is not None:
                        disk[piece.name] = piece.content() if callable(piece.content) else piece.content
                places = now.places()
                if step == "restart":
                    now, pieces = results(), RowPieces()
                    there = {piece.name: disk[piece.name] for piece in state.pieces}
                    tail, head, tables = pieces.load(Loaded(state.meta, there))
                    assert (tail, head) == (unread.tail, unread.head)
                    now.restored(unread, tables, [InFile(n) for _, n in unread.files], None, unread.first, places)
        assert read(now) == list(range(confirmed, given_))
        assert now.waiting() == given_ - confirmed
        assert now.next == given_
