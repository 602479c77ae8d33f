"""Nothing grows without end: after three times as many rounds there are no more files, bytes or objects."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import pyarrow as pa
import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts import standing
from penstock.hosts.trimming import Trimming
from penstock.ingest import keys
from penstock.model.errors import StorageError
from penstock.rows import apart
from penstock.storage.states import States
from penstock.testing import Clock
from tests.durable.disks import host_of, in_memory, opened, save
from tests.durable.living import BEGIN
from tests.storage.forgetful import Forgetful

ROUNDS = 12
START = 1_000_000
"""The first instant: all others have as many digits."""
S = "CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t"
ONE = "CREATE QUERY one AS SELECT"
Round = Callable[[penstock.Database, int], object]


def rows(turn: int, count: int = 20) -> list[tuple[int, int]]:
    return [(START + turn * count + i, i) for i in range(count)]


def plus(by: int, k: int) -> int:
    return k + by


def slack(db: penstock.Database, turn: int) -> None:
    db.push("s", rows(turn)[::-1])


def pushed(db: penstock.Database, turn: int) -> None:
    db.push("s", rows(turn))


def late(db: penstock.Database, turn: int) -> None:
    db.push("s", [*rows(turn), *((1, i) for i in range(20))])


def misfits(db: penstock.Database, turn: int) -> None:
    db.push("s", [*rows(turn), *((START, "no number") for _ in range(20))])


def keyed(db: penstock.Database, turn: int) -> None:
    for i, row in enumerate(rows(turn)):
        db.push("s", [row], key=(f"till {i % 7}", 1_000 + turn * 20 + i))


def relation(db: penstock.Database, turn: int) -> None:
    db.push("s", rows(turn))
    db.execute(f"INSERT INTO r VALUES ({100 + turn}, {turn % 10})")
    db.execute(f"UPDATE r SET v = v + 1 WHERE k = {100 + turn}")
    db.execute(f"DELETE FROM r WHERE k = {100 + turn}")


def fetched(db: penstock.Database, turn: int) -> None:
    db.push("s", rows(turn))
    db.queries["one"].transfer(lambda table: {"taken": table.num_rows})
    db.note(turn=turn % 10)


def stopped(db: penstock.Database, turn: int) -> None:
    for i in range(3):
        db.execute(f"CREATE QUERY q{i} AS SELECT k, count(*) AS n FROM s [ROWS {5 + i}] WHERE k < {i + 9} GROUP BY k")
    db.push("s", rows(turn))
    for i in range(3):
        db.queries[f"q{i}"].stop()


def declared(db: penstock.Database, turn: int) -> None:
    db.execute(f"CREATE OR REPLACE VIEW v AS SELECT k FROM s [ROWS {10 + turn % 10}]")
    db.execute("CREATE STREAM passing (t BIGINT, k BIGINT) TIMESTAMP BY t")
    db.push("passing", rows(turn))
    db.execute("DROP STREAM passing")


def functions(db: penstock.Database, turn: int) -> None:
    for i in range(2):
        db.create_function("f", partial(plus, i), args=["BIGINT"], returns="BIGINT")
    query = db.query("SELECT ISTREAM f(k) AS y FROM s [NOW]", name="calls")
    db.push("s", rows(turn))
    query.stop()


def switched(db: penstock.Database, turn: int) -> None:
    for way in ("graph", "operator", "hybrid", "direct"):
        db.configure(threading=way)
        stopped(db, 4 * turn + len(way))


CASES: dict[str, tuple[str, Round]] = {
    "slack": (f"{S} SLACK 30", slack),
    "late": (S, late),
    "misfits": (f"{S} WITH (on_error = 'apart')", misfits),
    "retain": (f"{S} WITH (retain = 50)", pushed),
    "window": (f"{S}; {ONE} ISTREAM count(*) AS n FROM s [ROWS 30] WITH (results = '9 rows')", pushed),
    "keys": (S, keyed),
    "relation": (
        f"{S}; CREATE RELATION r (k BIGINT, v BIGINT) KEY (k); "
        f"{ONE} ISTREAM r.v AS v FROM s [NOW], r WHERE s.k = r.k WITH (results = '9 rows')",
        relation,
    ),
    "results nobody fetches": (f"{S}; {ONE} ISTREAM k FROM s [NOW] WITH (results = '40 rows')", pushed),
    "an answer that stands": (f"{S}; {ONE} k FROM s [ROWS 7] WITH (results = '40 rows')", pushed),
    "deliveries": (f"{S}; {ONE} ISTREAM k FROM s [NOW]", fetched),
    "stopped queries": (S, stopped),
    "declarations": (S, declared),
    "functions": (S, functions),
    "threading": (S, switched),
}  # fmt: skip


def on_disk(files: Forgetful) -> dict[str, tuple[int, int]]:
    """Files of each kind, and their bytes."""
    found: dict[str, tuple[int, int]] = {}
    for path, file in files.now.items():
        kind = path.partition("/")[0]
        count, bytes = found.get(kind, (0, 0))
        found[kind] = count + 1, bytes + len(file.now)
    return found


def in_process() -> Counter[str]:
    """How many objects there are of each of our classes."""
    gc.collect()
    found: Counter[str] = Counter()
    for kind, count in Counter(map(type, gc.get_objects())).items():  # few kinds, a million objects
        if str(kind.__module__).startswith("penstock."):
            found[kind.__qualname__] += count
    return found


def assert_no_more(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> None:
    for kind, (count, bytes) in after.items():
        had, had_bytes = before.get(kind, (0, 0))
        assert count <= had, (kind, before, after)
        # Numbers become longer, and where a file is less than half of use differs from save to save.
        assert bytes <= 1.25 * had_bytes + 256, (kind, before, after)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of what is kept for users that few rounds reach."""
    monkeypatch.setattr(apart, "KEPT", 50)
    monkeypatch.setattr(keys, "SEQUENCES", 10)
    monkeypatch.setattr(standing, "_TOGETHER", 50)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", CASES)
def test_a_directory_and_its_process_do_not_grow_with_what_passes(case: str) -> None:
    declare, one = CASES[case]
    files = Forgetful()
    with opened(files, Clock(BEGIN)) as db:
        db.execute(declare)
        most: list[dict[str, tuple[int, int]]] = []
        objects: list[Counter[str]] = []
        turn = 0
        for rounds in (ROUNDS, 2 * ROUNDS):
            peak: dict[str, tuple[int, int]] = {}
            for _ in range(rounds):
                one(db, turn)
                save(db)
                turn += 1
                for kind, (count, bytes) in on_disk(files).items():
                    known = peak.get(kind, (0, 0))
                    peak[kind] = max(count, known[0]), max(bytes, known[1])
            most.append(peak)
            objects.append(in_process())
        assert_no_more(most[0], most[1])
        more = objects[1] - objects[0]
        assert sum(more.values()) <= ROUNDS, more  # fewer than one for a round


def test_epochs_do_not_grow_with_openings() -> None:
    files, clock = Forgetful(), Clock(BEGIN)
    found = []
    for rounds in (ROUNDS, 2 * ROUNDS):
        for turn in range(rounds):
            with opened(files, clock) as db:
                db.note(turn=turn % 10)
        found.append(on_disk(files))
    assert_no_more(found[0], found[1])
    assert found[1]["epochs"][0] == 2


def test_saves_that_fail_leave_no_files_and_keep_no_more_for_the_next_one() -> None:
    files = Forgetful()

    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    with opened(files, Clock(BEGIN)) as db:
        db.execute(f"{S}; {ONE} ISTREAM k FROM s [ROWS 9] WITH (results = '9 rows')")
        found, kept = [], []
        directory = host_of(db)._kept
        assert directory is not None
        states = directory.keeper.store.states
        turn = 0
        for rounds in (ROUNDS, 2 * ROUNDS):
            for _ in range(rounds):
                pushed(db, turn)
                turn += 1
                with patch.object(States, "_put", full), pytest.raises(StorageError):
                    save(db)
            found.append(on_disk(files).get("state", (0, 0)))
            kept.append(sum(len(tables) for tables in states._unsaved.values()))
        assert found == [(0, 0), (0, 0)]
        assert kept[1] <= kept[0] + 2, kept
        save(db)
        assert not states._unsaved


def test_what_a_stopped_query_had_is_freed_without_a_collection_of_cycles() -> None:
    shapes = [
        "SELECT k, sum(k) AS x FROM s [RANGE 1000] GROUP BY k",
        "SELECT ISTREAM k FROM s [NOW] WHERE k > 1",
        "SELECT ISTREAM a.k AS k FROM s [ROWS 10] AS a, s [ROWS 5] AS b WHERE a.k = b.k",
    ]
    with in_memory(Clock(BEGIN)) as db:
        db.execute(S)
        stays = db.query("SELECT ISTREAM k FROM s [NOW] WHERE k > 2", name="stays")
        for times in range(2):
            if times:  # nor does the runtime hold what it once ran
                db.configure(threading="graph")
                db.configure(threading="direct")
            for turn, text in enumerate(shapes):
                gc.collect()
                gc.disable()
                try:
                    query = db.query(text)
                    db.push("s", rows(turn, 1))
                    registered = core_of(db).queries[query.name]
                    member = host_of(db).graph.members[query.name]
                    alone = [v for v in member.vertices if v.users == {query.name}]
                    watched = [weakref.ref(o) for o in (registered, registered.results, *alone)]
                    query.stop()
                    del query, registered, member, alone
                    db.push("s", rows(10 + turn, 1))  # who calls whom is seen anew
                    assert not [ref() for ref in watched if ref() is not None], (times, text)
                finally:
                    gc.enable()
        assert stays.status == "running"


def test_free_memory_goes_back_when_a_query_stops_but_not_all_the_time() -> None:
    now, calls = [0.0], []

    def trim(pad: int) -> int:
        calls.append(now[0])
        now[0] += 0.05
        return pad

    trimming = Trimming(trim, lambda: now[0])
    done = []
    for _ in range(200):
        done.append(trimming.trim())
        now[0] += 0.1
    assert 2 <= len(calls) == sum(done) <= 6  # 1 % of 20 seconds
    assert not Trimming(None).trim()


def test_a_database_that_forgets_a_query_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def trim(pad: int) -> int:
        calls.append(pad)
        return 1

    monkeypatch.setattr("penstock.hosts.local.host.TRIMMING", Trimming(trim, lambda: 0.0))
    with in_memory(Clock(BEGIN)) as db:
        db.execute(S)
        query = db.query("SELECT ISTREAM k FROM s [NOW]")
        db.push("s", pa.table({"t": [START], "k": [1]}))
        assert not calls
        query.stop()
        assert calls == [0]
