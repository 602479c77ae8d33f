"""What a database on Spark keeps in its directory: large results, what a loss of power takes; and it does not grow."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.hosts.durable import keeper
from penstock.hosts.spark import shard
from penstock.hosts.spark.parts import part as parts
from penstock.storage.files import Disk
from penstock.storage.segments import Segment
from penstock.storage.store import Store
from penstock.testing import crash_copy
from tests.budget import examples
from tests.spark.direct import directly, host_of, step

S = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t"
WIDE = "SELECT ISTREAM repeat('x', 10000) AS x, v FROM s"


@pytest.fixture(autouse=True)
def without_spark() -> Iterator[None]:
    """The state is saved when a test says so."""
    with directly(many=8192), patch.object(keeper, "SECONDS", 1e6):
        yield


def opened(path: Path, **options: object) -> penstock.Database:
    return penstock.connect(path, engine="spark", **{"trigger": "push", "shards": 2, **options})  # type: ignore[arg-type]


def answers(path: Path) -> list[Path]:
    return sorted((path / "shards" / "answers").glob("*"))


# -- large results --------------------------------------------------------------------------------------


def rows(start: int, count: int) -> list[tuple[int, int, int]]:
    return [(i, i % 3, i) for i in range(start, start + count)]


def numbers(query: penstock.Query) -> list[int]:
    table = query.fetch()
    assert set(map(len, table.column("x").to_pylist())) <= {10_000}
    found: list[int] = table.column("v").to_pylist()
    return found


@pytest.mark.parametrize("saves", [0, 1, 3])
def test_large_results_are_there_after_a_restart(tmp_path: Path, saves: int) -> None:
    with opened(tmp_path / "db") as db:
        db.execute(S)
        db.query(WIDE, name="q")
        db.push("s", rows(0, 20))
        assert answers(tmp_path / "db")
        for i in range(saves):
            host_of(db).save()
            db.push("s", rows(20 + i, 1))
        copies = [crash_copy(db, tmp_path / "killed"), tmp_path / "db"]
    wanted = list(range(20 + saves))
    for path in copies:
        with opened(path) as db:
            assert numbers(db.queries["q"]) == wanted
        with opened(path) as db:
            assert numbers(db.queries["q"]) == []
            db.push("s", rows(50, 10))
            assert numbers(db.queries["q"]) == list(range(50, 60))


def test_files_of_large_results_go_when_no_saved_state_names_them(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(S)
        taken, waiting = (db.query(WIDE, name=name) for name in ("taken", "waiting"))
        for i in range(6):
            db.push("s", rows(20 * i, 20))
            assert numbers(taken) == list(range(20 * i, 20 * i + 20))
            host_of(db).save()
            assert len(answers(tmp_path)) <= i + 1 + 3, "those that wait, and those since the older saved state"
        for i in range(3):
            db.heartbeat("s", 1000 + i)
            host_of(db).save()
        assert len(answers(tmp_path)) == 6, "those that wait"
        assert numbers(waiting) == list(range(120)), "who has not read them has them still"
        for i in range(3):
            db.heartbeat("s", 2000 + i)
            host_of(db).save()
        assert answers(tmp_path) == []
    with opened(tmp_path) as db:
        assert numbers(db.queries["waiting"]) == []


def test_a_large_result_of_an_attempt_that_came_to_nothing_goes_too(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(S)
        db.query(WIDE, name="q")
        (tmp_path / "shards" / "answers").mkdir(exist_ok=True)
        (tmp_path / "shards" / "answers" / "0-1-0-abcdefabcdef-0.arrow").write_bytes(b"x")
        db.push("s", rows(0, 2))
        for i in range(3):
            db.push("s", rows(2 + i, 1))
            host_of(db).save()
        assert [p.name for p in answers(tmp_path) if "abcdefabcdef" in p.name] == []
        assert numbers(db.queries["q"]) == list(range(5))


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_large_result_that_is_lost_is_named(tmp_path: Path, how: str) -> None:
    with opened(tmp_path / "db") as db:
        db.execute(S)
        db.query(WIDE, name="q")
        db.push("s", rows(0, 20))
        copy = crash_copy(db, tmp_path / "copy")
    (file,) = answers(copy)
    if how == "gone":
        file.unlink()
        said = f"{file.name}: results cannot be read"
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        said = f"{file.name}: damaged"
    with opened(copy) as db:
        with pytest.raises(penstock.StorageError, match=said):
            db.queries["q"].fetch()
        other = db.query("SELECT v FROM s", name="other")  # goes on
        db.push("s", rows(20, 1))
        assert other.fetch().num_rows == 1


# -- a loss of power ------------------------------------------------------------------------------------

DECLARE = f"""
{S} SLACK 3;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
"""
QUERIES = {
    "joined": "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 10] a LEFT JOIN r [RANGE 8] b ON a.k = b.k",
    "last": "SELECT ISTREAM k, count(*) AS n, max(v) AS most FROM s [ROWS 7] GROUP BY k",
    "named": "SELECT ISTREAM name, s.v FROM s [NOW], names WHERE s.k = names.k",
    "hops": "SELECT k, sum(v) AS total FROM r [HOPPING 9 EVERY 4] GROUP BY k",
}


def power_lost(path: Path, store: Store, chosen: random.Random) -> None:
    """Take from a copy of a directory what may not have been on the disk."""
    files = Disk(path)
    for log in store._logs.values():
        for known in log._segments:
            where = f"{log.folder}/{known.name}"
            if known.synced >= known.size or chosen.random() < 0.3:
                continue
            starts = [frame.start for frame in Segment(files, where).frames() if frame.start >= known.synced]
            cut = chosen.choice([known.synced, *starts])
            content = (path / where).read_bytes()
            (path / where).write_bytes(content[: cut + chosen.choice([0, 0, 10, 70])] if cut else b"")
            if not cut:
                (path / where).unlink()
    for name in files.names("catalog"):
        if store.sync_way == "off" and int(name.partition("-")[0]) > store.saved and chosen.random() < 0.3:
            (path / "catalog" / name).unlink()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from("sr"), st.lists(st.integers(0, 5), min_size=1, max_size=5)),
        st.tuples(st.just("push"), st.sampled_from("sr"), st.lists(st.integers(0, 5), min_size=1, max_size=5)),
        st.tuples(st.just("change"), st.integers(0, 2), st.sampled_from("abc")),
        st.tuples(st.just("configure"), st.sampled_from(["direct", "operator", "hybrid"]), st.none()),
        st.tuples(st.just("save"), st.none(), st.none()),
        st.tuples(st.just("step"), st.integers(0, 3), st.none()),
    ),
    min_size=3,
    max_size=14,
)


class Life:
    """Rows and changes with the numbers that producers give them: who sends them again gives the same."""

    def __init__(self, todo: list[tuple[str, object, object]]) -> None:
        self.pushes: list[tuple[str, list[tuple[object, ...]]]] = []
        self.todo: list[tuple[str, object]] = []
        times = {"s": 0, "r": 0}
        for what, one, two in todo:
            if what == "push":
                assert isinstance(one, str)
                assert isinstance(two, list)
                made: list[tuple[object, ...]] = []
                for delta in two:
                    times[one] += delta
                    back = delta % 3 if one == "s" else 0
                    made.append((times[one] - back, delta * 7 % 3, delta * 5 % 11))
                self.pushes.append((one, made))
                self.todo.append(("push", len(self.pushes) - 1))
            elif what == "change":
                at = max(times.values()) + 1
                self.pushes.append(("names", [{"k": len(self.pushes), "name": two, "ts": at, "op": "+"}]))  # type: ignore[list-item]
                self.todo.append(("push", len(self.pushes) - 1))
            else:
                self.todo.append((what, one))

    def push(self, db: penstock.Database, number: int) -> None:
        name, rows = self.pushes[number]
        if name == "names" and not rows:
            return
        db.push(name, rows, key=("producer", number))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(todo=steps, seed=st.integers(0, 2**32), more=steps, sync=st.sampled_from(["off", "group"]))
def test_after_a_loss_of_power_micro_batches_are_made_again(
    tmp_path_factory: pytest.TempPathFactory, todo: list[tuple[str, object, object]], seed: int,
    more: list[tuple[str, object, object]], sync: str,
) -> None:  # fmt: skip
    """Entries, records and results that had not reached the disk are gone. What producers send again, with the same
    keys, is taken if it was lost; every result is there once."""
    folder = tmp_path_factory.mktemp("power")
    life = Life([*todo, ("push", "s", [1, 2]), *more])
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        for name, text in QUERIES.items():
            db.query(text, name=name)
        for number in range(len(life.pushes)):
            life.push(db, number)
        for name in "sr":
            db.close_stream(name)
        wanted = {n: Counter(tuple(r.values()) for r in q.fetch().to_pylist()) for n, q in db.queries.items()}

    def lived(db: penstock.Database, some: list[tuple[str, object]]) -> None:
        for what, one in some:
            if what == "push":
                assert isinstance(one, int)
                life.push(db, one)
            elif what == "configure":
                db.configure(threading=str(one))
            elif what == "save":
                host_of(db).save()
            elif what == "step":
                assert isinstance(one, int)
                step(db, one)

    options = {"trigger": 3600, "batch_rows": 4, "shards": 3}
    half = len(todo)
    with opened(folder / "db", sync=sync, **options) as db:
        db.execute(DECLARE)
        for name, text in QUERIES.items():
            db.query(text, name=name)
        db.settle()
        host_of(db).save()
        lived(db, life.todo[:half])
        copy = crash_copy(db, folder / "copy")
        power_lost(copy, host_of(db).kept.keeper.store, random.Random(seed))
    with patch.object(Disk, "boot", "another"), opened(copy, sync=sync, **options) as db:
        lived(db, [(what, one) for what, one in life.todo[:half] if what == "push"])
        lived(db, life.todo[half:])
        for name in "sr":
            db.close_stream(name)
        found = {n: Counter(tuple(r.values()) for r in q.fetch().to_pylist()) for n, q in db.queries.items()}
    assert found == wanted
    shutil.rmtree(folder)


def test_rows_before_a_saved_state_that_no_micro_batch_has_taken_survive_a_loss_of_power(tmp_path: Path) -> None:
    with opened(tmp_path / "db", trigger=3600) as db:
        db.execute(S)
        db.query("SELECT v FROM s", name="q")
        db.settle()
        for i in range(3):
            db.push("s", rows(i, 1))
        host_of(db).save()
        copy = crash_copy(db, tmp_path / "copy")
        store = host_of(db).kept.keeper.store
        for log in store._logs.values():
            for known in log._segments:
                with (copy / log.folder / known.name).open("r+b") as file:
                    file.truncate(known.synced)
    with patch.object(Disk, "boot", "another"), opened(copy) as db:
        assert db.queries["q"].fetch().column("v").to_pylist() == [0, 1, 2]


def test_what_spark_has_written_down_is_not_needed(tmp_path: Path) -> None:
    """Nor does it disturb, however a loss of power has left it."""
    with opened(tmp_path / "db") as db:
        db.execute(S)
        db.query("SELECT v FROM s", name="q")
        db.push("s", rows(0, 3))
        copy = crash_copy(db, tmp_path / "copy")
    left = copy / "spark" / "1-part-0" / "offsets"
    left.mkdir(parents=True)
    (left / "0").write_text("v1\n{")
    with opened(copy) as db:
        assert not left.exists()
        db.push("s", rows(3, 1))
        assert db.queries["q"].fetch().column("v").to_pylist() == [0, 1, 2, 3]


# -- nothing grows --------------------------------------------------------------------------------------


def held(path: Path) -> tuple[int, int]:
    """Files and their bytes."""
    files = [f for f in path.rglob("*") if f.is_file()]
    return len(files), sum(f.stat().st_size for f in files)


def test_a_directory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_FORGET_EVERY", 4)
    with opened(tmp_path) as db:
        db.execute(S)
        db.query("SELECT k, avg(v) AS m FROM s [RANGE 20] GROUP BY k", name="q")
        wide = db.query(WIDE, name="wide")
        sizes: list[tuple[int, int]] = []
        for i in range(180):
            db.push("s", [(10 * i + j, j % 3, 1) for j in range(10)])
            db.queries["q"].fetch()
            wide.fetch()
            if i % 5 == 4:
                host_of(db).save()
            if i % 60 == 59:
                sizes.append(held(tmp_path))
        for count, size in sizes[1:]:
            assert count <= sizes[0][0] + 8
            assert size <= 1.3 * sizes[0][1]


def test_nothing_stays_of_queries_and_parts_that_are_no_more(tmp_path: Path) -> None:
    def rounds(db: penstock.Database, start: int, count: int) -> None:
        for i in range(start, start + count):
            for j, text in enumerate((WIDE, "SELECT k, sum(v) AS v FROM s [RANGE 30] GROUP BY k", "SELECT v FROM s")):
                db.execute(f"CREATE QUERY q{i}_{j} AS {text} WITH (priority = {(i + j) % 9})")
            db.push("s", rows(20 * i, 20))
            db.configure(threading=("operator", "direct", "hybrid")[i % 3])
            db.push("s", rows(20 * i, 20)[-1:])
            for j in range(3):
                db.queries[f"q{i}_{j}"].stop()
            host_of(db).save()

    def there(path: Path) -> Counter[str]:
        found: Counter[str] = Counter()
        for file in path.rglob("*"):
            if file.is_file():
                found[str(file.relative_to(path)).split("/")[0]] += 1
                if "shards" in file.parts:
                    found["/".join(file.relative_to(path).parts[:2]).rstrip("0123456789")] += 1
        return found

    with opened(tmp_path, shards=3) as db:
        db.execute(S)
        db.query("SELECT k, count(*) AS n FROM s [ROWS 9] GROUP BY k", name="stays")
        rounds(db, 0, 4)
        few, size = there(tmp_path), held(tmp_path)[1]
        rounds(db, 4, 8)
        many = there(tmp_path)
        assert {name: n for name, n in many.items() if n > few[name] + 4} == {}, f"{few} {many}"
        assert held(tmp_path)[1] <= 1.5 * size
        for i in range(3):
            db.push("s", rows(400 + i, 1))
            host_of(db).save()
        kept = {f.name for f in (tmp_path / "shards" / "queries").iterdir()}
        assert len(kept) == 2, "what one query is, and what it was given first"
        assert len(list((tmp_path / "shards" / "programs").iterdir())) == len(list(host_of(db).parts))
        assert len(list((tmp_path / "shards").glob("part-*"))) == len(list(host_of(db).parts))
        before = db.queries["stays"].fetch().num_rows
        assert before > 0
    with opened(tmp_path, shards=3) as db:
        db.push("s", rows(500, 1))
        assert db.queries["stays"].fetch().num_rows > 0


def test_the_state_of_slots_is_forgotten_when_no_saved_state_needs_it(tmp_path: Path) -> None:
    with opened(tmp_path, shards=1) as db:
        db.execute(S)
        q = db.query("SELECT ISTREAM sum(v) AS total FROM s [ROWS 3]", name="q")
        for i in range(40):
            db.push("s", rows(i, 1))
            if i % 4 == 3:
                host_of(db).save()
        q.fetch()
        folder = tmp_path / "shards" / "part-0"
        manifests = sorted(folder.glob("*/manifest-*.json"))
        assert len(manifests) <= 4 + 4 + parts._FORGET_EVERY
        versions = {json.loads(m.read_text())["state"]["version"] for m in manifests}
        assert part_version(db) in versions
        copy = crash_copy(db, tmp_path / "copy")
    shard.forget_all()
    with opened(copy, shards=1) as db:
        db.push("s", rows(40, 1))
        assert db.queries["q"].fetch().column("total").to_pylist() == [38 + 39 + 40]


def part_version(db: penstock.Database) -> int:
    (found,) = host_of(db).parts
    return found.version
