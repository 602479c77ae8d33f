"""Directories of engine ``spark``: ``penstock check`` finds what is damaged, and a backup loses nothing."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli.main import main
from penstock.database.database import core_of
from penstock.hosts.durable import keeper
from penstock.hosts.durable.contents import surveyed
from penstock.hosts.spark.parts.definitions import forget_all
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.task import Report, Task, Trouble
from penstock.storage import backup as copying
from penstock.storage.backup import backup
from tests.budget import examples
from tests.spark.direct import Direct, directly, host_of

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 3;
CREATE STREAM texts (t BIGINT, k BIGINT, x STRING) TIMESTAMP BY t;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
CREATE QUERY sums AS SELECT k, sum(v) AS total FROM s [RANGE 20] GROUP BY k;
CREATE QUERY latest AS SELECT ISTREAM v FROM s [ROWS 5] WHERE v > 2;
CREATE QUERY named AS SELECT ISTREAM name, s.v FROM s [NOW], names WHERE s.k = names.k;
CREATE QUERY large AS SELECT t, x FROM texts;
"""
LATE = "SELECT name, count(*) AS n FROM s [RANGE 30], names WHERE s.k = names.k GROUP BY name"


def twice(x: int) -> int:
    return 2 * x


def saved(db: penstock.Database) -> None:
    core_of(db).host.abilities().save()


def connect(path: Path, **settings: Any) -> penstock.Database:
    """Micro-batches begin when somebody waits for them."""
    return penstock.connect(path, engine="spark", shards=2, trigger=3600, functions=True, **settings)


def push(db: penstock.Database, at: int) -> None:
    """Some rows of each stream, of which some wait for slack, and results that are too large for the log."""
    db.push("s", [(at + i - i % 3, i % 3, i) for i in range(8)])
    db.push("texts", [(at, i, f"{i} {at} " * 60) for i in range(200)])


def filled(db: penstock.Database) -> None:
    """Two saved states, entries that queries have not read in front of the newer one, and all kinds of entries behind
    it: results in files, a query that is new, one that was stopped, and queries that have changed parts."""
    db.execute(DECLARE)
    db.create_function("twice", twice, args=["BIGINT"], returns="BIGINT")
    db.query("SELECT twice(v) AS two FROM s [NOW]", name="doubled")
    db.query("SELECT v FROM s", name="short")
    db.push("names", [(0, "none"), (1, "one")])
    push(db, 0)
    db.settle()
    saved(db)
    push(db, 10)
    db.settle()
    db.queries["sums"].fetch()
    push(db, 20)
    saved(db)
    db.configure(threading="operator")
    push(db, 30)
    db.settle()
    db.queries["short"].stop()
    db.query(LATE, name="late")
    push(db, 40)
    db.configure(threading="hybrid")
    db.push("names", [(2, "two")])
    push(db, 50)


def everything(db: penstock.Database) -> dict[str, object]:
    db.settle()
    found: dict[str, object] = {name: db.stream(name).given for name in ("s", "texts")}
    found["names"] = sorted(map(str, core_of(db).relations["names"].rows))
    for name, query in db.queries.items():
        found[f"query {name}"] = query.status, sorted(map(str, query.fetch().to_pylist()))
    return found


def opened(path: Path) -> dict[str, object]:
    with directly(), connect(path) as db:
        return everything(db)


@contextmanager
def copied(directory: Path) -> Iterator[Path]:
    copy = directory.with_name(f"{directory.name} copied")
    shutil.copytree(directory, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a process leaves it that is killed. Nobody may change it."""
    path = tmp_path_factory.mktemp("spark") / "db"
    with directly(), connect(path) as db:
        filled(db)
        shutil.copytree(path, path.with_name("killed"))
    return path.with_name("killed")


@pytest.fixture
def directory(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "db"))


@pytest.fixture(scope="module")
def wanted(killed: Path) -> dict[str, object]:
    with copied(killed) as copy:
        return opened(copy)


def files_of(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def flipped(path: Path, at: int = 0, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1 << bit
    path.write_bytes(content)


# -- check --------------------------------------------------------------------------------------------------


def test_a_sound_directory_is_described_and_not_changed(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(directory)
    assert main(["check", str(directory)]) == 0
    printed = capsys.readouterr().out
    assert "queries    6: sums, latest, named, large, doubled, late\n" in printed
    assert ", shards " in printed
    assert printed.endswith("sound\n")
    assert files_of(directory) == before
    report, _ = surveyed(directory)
    for part in ("results", "shards"):
        assert report.bytes[part] == sum(len(c) for f, c in before.items() if f.startswith(f"{part}/"))


def test_a_directory_has_all_kinds_of_files(killed: Path) -> None:
    """Otherwise the tests below say less than they seem to."""
    found = files_of(killed)
    for kind in (
        "results/default/", "shards/queries/", "shards/programs/", "shards/answers/", "shards/part-0/",
        "shards/part-1/", "streams/s/", "relations/names/", "catalog/", "functions/", "state/",
    ):  # fmt: skip
        assert any(f.startswith(kind) for f in found), kind
    from penstock.storage.reading import Reading

    reading = Reading(killed)
    states = reading.states(reading.opened())
    older, newer = (states.load(v)["graph/parts"].meta["needs"]["entry"] for v in states.versions)
    assert older == states.versions[0][0]
    assert newer < states.versions[1][0]  # entries that the state covers are still to be read


def test_a_flip_is_reported_or_does_not_matter(directory: Path, wanted: dict[str, object]) -> None:
    silent: list[str] = []
    for file in sorted(files_of(directory)):
        if file == "owner":
            continue
        for at in (0, -1 if file.endswith(".json") else 0):
            flipped(directory / file, at)
            damaged = [d.file for d in surveyed(directory)[0].damage]
            flipped(directory / file, at)
            if file in damaged:
                assert damaged == [file]
            else:
                assert not damaged
                silent.append(file)
    stopped = {f for f in silent if f.startswith("shards/queries/")}
    assert {f.rpartition(".")[2] for f in stopped} == {"json", "past"}
    assert len(stopped) == 2
    assert all(f.startswith(("shards/programs/", "shards/part-")) for f in silent if f not in stopped)
    for file in set(silent):
        flipped(directory / file)
    assert opened(directory) == wanted


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(data=st.data())
def test_what_check_finds_sound_opens(directory: Path, wanted: dict[str, object], data: st.DataObject) -> None:
    files = files_of(directory)
    file = data.draw(st.sampled_from(sorted(f for f in files if f != "owner" and files[f])))
    at, bit = data.draw(st.integers(0, 1 << 20)), data.draw(st.integers(0, 7))
    flipped(directory / file, at, bit)
    try:
        damage = surveyed(directory)[0].damage
        if damage:
            assert [d.file for d in damage] == [file]
        else:
            with copied(directory) as copy:
                assert opened(copy) == wanted
    finally:
        (directory / file).write_bytes(files[file])


def needed(directory: Path) -> list[str]:
    """Files under ``shards/`` of which a byte is missed."""
    found: list[str] = []
    for file in sorted(f for f in files_of(directory) if f.startswith("shards/")):
        flipped(directory / file)
        if surveyed(directory)[0].damage:
            found.append(file)
        flipped(directory / file)
    return found


def test_what_is_gone_or_shorter_is_missed(directory: Path) -> None:
    for file in needed(directory):
        content = (directory / file).read_bytes()
        (directory / file).write_bytes(content[:40])
        assert [d.file for d in surveyed(directory)[0].damage] == [file]
        (directory / file).unlink()
        damage = [str(d) for d in surveyed(directory)[0].damage]
        # A state that others have followed is forgotten at some time.
        assert not damage or (len(damage) == 1 and damage[0].startswith(f"{file}: ") and "missing" in damage[0])
        assert damage or "/manifest-" in file
        (directory / file).write_bytes(content)


def test_what_tasks_have_left_that_does_not_count_is_no_damage(directory: Path, wanted: dict[str, object]) -> None:
    slot = next((directory / "shards" / "part-0").iterdir())
    for path in (
        slot / f"manifest-{3:012d}-{'ab' * 16}.json", slot / f"manifest-{3:012d}-{'ab' * 16}.json.{'ab' * 16}.part",
        slot / "pieces" / f"{3:012d}-{'ab' * 16}.pieces", directory / "shards" / "answers" / "0-9-1-abcdef-0.arrow",
        directory / "shards" / "programs" / "0-9-9.json", directory / "shards" / "queries" / "abcdefabcdef.past",
    ):  # fmt: skip
        path.write_bytes(b"nothing")
    (directory / "spark" / "part-0" / "offsets").mkdir(parents=True)
    assert surveyed(directory)[0].damage == []
    assert opened(directory) == wanted


def test_an_entry_that_a_query_has_not_read_is_missed_though_the_saved_state_covers_it(directory: Path) -> None:
    report, _ = surveyed(directory)
    segments = sorted((directory / "streams" / "s").iterdir())
    gone = next(p for p in segments if int(p.name.partition("-")[0]) <= report.saved)
    assert gone != segments[-1]
    gone.unlink()
    entry = int(gone.name.partition("-")[0])
    damage = [str(d) for d in surveyed(directory)[0].damage]
    assert len(damage) == 1
    assert damage[0].startswith(f".: entry {entry} is missing")
    with pytest.raises(penstock.StorageError, match=r"entry \d+ is missing, which queries have not read"):
        opened(directory)


def test_without_the_newest_state_the_one_before_and_the_logs_say_the_same(
    directory: Path, wanted: dict[str, object]
) -> None:
    with directly(), connect(directory), copied(directory) as copy:  # opening has swept it
        max((copy / "state").glob("*.version")).unlink()
        assert surveyed(copy)[0].damage == []
        assert opened(copy) == wanted


@pytest.mark.parametrize("is_saved", [True, False])
@pytest.mark.parametrize(("engine", "other"), [("spark", "local"), ("local", "spark")])
def test_a_directory_of_one_engine_opens_with_the_other_and_is_sound(
    tmp_path: Path, engine: str, other: str, is_saved: bool
) -> None:
    for text in ("", "CREATE QUERY q AS SELECT v FROM s"):
        path = tmp_path / f"db {bool(text)}"
        with directly(), penstock.connect(path, engine=engine) as db:
            db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
            if text:
                db.execute(text)
            db.push("s", [(1, 1)])
            if not is_saved:
                path = Path(shutil.copytree(path, tmp_path / f"killed {bool(text)}"))
        for turn in (other, engine):
            with directly(), penstock.connect(path, engine=turn) as db:
                assert db.stream("s").given == 1
                assert [q.waiting for q in db.queries.values()] == ([1] if text else [])
            assert surveyed(path)[0].damage == []


def test_a_part_that_was_empty_goes_on_without_the_states_that_were_swept(tmp_path: Path) -> None:
    def killed(number: int) -> Path:
        return Path(shutil.copytree(tmp_path / f"db {number}", tmp_path / f"db {number + 1}"))

    with directly():
        with connect(tmp_path / "db 0") as db:
            db.configure(threading="operator")
            db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
            for name in ("a", "b"):
                db.query("SELECT sum(v) AS total FROM s [ROWS 9]", name=name)
            db.push("s", [(1, 1)])
            db.settle()
            db.queries["a"].stop()
            first = killed(0)
        with connect(first) as db:
            db.queries["b"].stop()
            second = killed(1)
        with connect(second) as db:
            db.query("SELECT sum(v) AS total FROM s [ROWS 9]", name="c")
            third = killed(2)
            assert surveyed(third)[0].damage == []
        with connect(third) as db:
            db.push("s", [(2, 2)])
            assert db.queries["c"].fetch().column("total").to_pylist()[-1] == 2


# -- copies -------------------------------------------------------------------------------------------------


def test_a_copy_says_the_same(directory: Path, wanted: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(directory)
    (directory / "spark").mkdir()
    (directory / "spark" / "offsets").write_text("x")
    copy, again = directory.with_name("copy"), directory.with_name("again")
    assert main(["backup", str(directory), str(copy)]) == 0
    assert "2 streams, 6 queries, all up to entry" in capsys.readouterr().out
    assert {f: c for f, c in files_of(directory).items() if f != "spark/offsets"} == before
    assert not (copy / "spark").exists()
    assert not (copy / "shards" / "programs").exists()
    assert main(["backup", str(copy), str(again)]) == 0
    assert opened(copy) == wanted
    assert opened(again) == wanted


def test_a_copy_goes_on_as_the_original_does(tmp_path: Path) -> None:
    """With results waiting in files, rows waiting for slack, and queries on their way to other parts."""
    with directly(), connect(tmp_path / "db") as db:
        filled(db)
        backup(tmp_path / "db", tmp_path / "copy")
        with connect(tmp_path / "copy") as copy:
            for one in (db, copy):
                push(one, 60)
                one.queries["latest"].stop()
                saved(one)
                push(one, 70)
            assert everything(copy) == everything(db)
        assert surveyed(tmp_path / "copy")[0].damage == []
        with connect(tmp_path / "copy") as copy:
            for one in (db, copy):
                push(one, 80)
            assert everything(copy) == everything(db)


def test_a_backup_in_the_place_of_the_original(tmp_path: Path) -> None:
    """Workers of the same session have read files of the same names."""
    path = tmp_path / "db"
    with directly():
        with penstock.connect(path, engine="spark", shards=2) as db:
            db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
            db.query("SELECT v FROM s", name="all")
            db.push("s", [(1, 1)])
            db.settle()
        backup(path, tmp_path / "copy")
        for v in (2, 3):
            with penstock.connect(path, engine="spark") as db:
                db.query(f"SELECT v + {v} AS more FROM s", name="more")
                db.push("s", [(2, v)])
                assert db.queries["more"].fetch().column("more").to_pylist() == [2 * v]
                assert db.queries["all"].fetch().column("v").to_pylist() == [1, v]
            shutil.rmtree(path)
            shutil.copytree(tmp_path / "copy", path)


def test_a_copy_is_begun_again_when_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with directly(), connect(tmp_path / "db") as db:
        filled(db)
        shards: Callable[..., None] = copying._Copy._shards
        tries: list[int] = []

        def late(copy: copying._Copy, *arguments: Any) -> None:
            tries.append(len(tries))
            if len(tries) == 1:
                for i in range(4):  # the states and results that the copy needs are forgotten
                    for j in range(8):
                        push(db, 60 + 10 * i + j)
                        db.settle()
                    saved(db)
            shards(copy, *arguments)

        monkeypatch.setattr(copying._Copy, "_shards", late)
        backup(tmp_path / "db", tmp_path / "copy")
        assert len(tries) == 2
        assert opened(tmp_path / "copy") == everything(db)


def test_a_copy_with_a_state_that_was_saved_meanwhile_has_the_entries_that_are_still_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directly(), connect(tmp_path / "db") as db:
        filled(db)
        state = copying._Copy._state

        def late(copy: copying._Copy, opened: Any) -> tuple[int, str | None]:
            push(db, 60)
            saved(db)
            return state(copy, opened)

        monkeypatch.setattr(copying._Copy, "_state", late)
        backup(tmp_path / "db", tmp_path / "copy")
        assert opened(tmp_path / "copy") == everything(db)


def test_a_damaged_directory_is_not_copied(directory: Path, tmp_path: Path) -> None:
    states = [f for f in needed(directory) if "/manifest-" in f]
    for kind, change in (
        (states[-1], Path.unlink), (states[-1], flipped),
        (min(f for f in needed(directory) if f.startswith("shards/queries/")), flipped),
    ):  # fmt: skip
        content = (directory / kind).read_bytes()
        change(directory / kind)
        with pytest.raises(penstock.StorageError, match=kind):
            backup(directory, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        (directory / kind).write_bytes(content)


# -- while the owner goes on ------------------------------------------------------------------------------------


class Busy:
    """A database to which threads push, from which one fetches, and whose queries come, go and change parts."""

    def __init__(self, db: penstock.Database) -> None:
        self._db = db
        self._over = threading.Event()
        self.pushed = self.fetched = 0
        """Rows that have been acknowledged, and results that have been returned."""
        self.fetching = threading.Lock()
        self.wrong: list[BaseException] = []
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t SLACK 2")
        db.execute("CREATE STREAM r (t BIGINT) TIMESTAMP BY t")
        db.query("SELECT v FROM s", name="rows")
        db.query("SELECT v % 4 AS k, count(*) AS n FROM s [ROWS 50] GROUP BY v % 4", name="counts")
        works = (self._push, self._fetch, self._change)
        self._threads = [threading.Thread(target=self._work, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def _work(self, work: Callable[[int], None]) -> None:
        i = 0
        while not self._over.is_set() and not self.wrong:
            try:
                work(i)
            except BaseException as error:
                self.wrong.append(error)
            i += 1

    def _push(self, i: int) -> None:
        rows = range(self.pushed, self.pushed + 1 + i % 40)
        self._db.push("s", [(v, v) for v in rows])
        self.pushed = rows.stop
        self._db.push("r", [(i,)])
        self._over.wait(0.005)

    def _fetch(self, i: int) -> None:
        with self.fetching:
            found = self._db.queries["rows"].fetch(wait=False).column("v").to_pylist()
            assert found == list(range(self.fetched, self.fetched + len(found)))
            self.fetched += len(found)
        self._over.wait(0.03)

    def _change(self, i: int) -> None:
        self._db.query("SELECT count(*) AS n FROM s [ROWS 10], r [NOW]", name=f"q{i}")
        self._db.configure(threading=("operator", "hybrid", "direct")[i % 3])
        if i >= 2:
            self._db.queries[f"q{i - 2}"].stop()
        self._over.wait(0.02)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        assert not self.wrong, self.wrong


@pytest.mark.parametrize("sync", ["off", "group"])
def test_while_threads_go_on_it_is_sound_and_copies_lose_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    monkeypatch.setattr(keeper, "SECONDS", 0.1)
    with directly(), penstock.connect(tmp_path / "db", engine="spark", shards=2, sync=sync) as db:
        busy = Busy(db)
        try:
            for i in range(6):
                report, _ = surveyed(tmp_path / "db")
                assert [str(d) for d in report.damage] == []
                pushed, fetched = busy.pushed, busy.fetched
                backup(tmp_path / "db", tmp_path / f"copy {i}")
                with busy.fetching:
                    latest = busy.fetched
                report, _ = surveyed(tmp_path / f"copy {i}")
                assert [str(d) for d in report.damage] == []
                with penstock.connect(tmp_path / f"copy {i}", engine="spark") as copy:
                    given = copy.stream("s").given
                    assert given >= pushed
                    copy.push("s", [(given + 10, given)])
                    copy.push("s", [(given + 20, given + 1)])
                    copy.settle()
                    assert all(q.status == "running" for q in copy.queries.values())
                    rows = copy.queries["rows"].fetch().column("v").to_pylist()
                    assert rows == list(range(rows[0], given + 1))
                    assert fetched <= rows[0] <= latest
                assert not busy.wrong
        finally:
            busy.stop()


def test_a_query_that_is_stopped_during_a_micro_batch_does_not_make_it_fail(tmp_path: Path) -> None:
    """Its definition goes with the next saved state, and other processes may not have read it yet."""
    stops: list[Callable[[], None]] = []

    class Stopping(Direct):
        def run(self, part: Part, tasks: Sequence[Task]) -> list[Report | Trouble]:
            while stops:
                stops.pop()()
            return super().run(part, tasks)

    with directly(Stopping), connect(tmp_path) as db:
        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        one, other = (db.query("SELECT t FROM s", name=name) for name in ("one", "other"))

        def stop() -> None:
            other.stop()
            for i in (2, 3):
                db.push("s", [(i,)])
                saved(db)
            forget_all()

        db.push("s", [(1,)])
        stops.append(stop)
        db.settle()
        assert one.fetch().column("t").to_pylist() == [1, 2, 3]
        assert [part.failed for part in host_of(db).parts] == [0]
        saved(db)
        db.push("s", [(4,)])
        saved(db)
        assert len(list((tmp_path / "shards" / "queries").glob("*.json"))) == 1, "it is gone in the end"
