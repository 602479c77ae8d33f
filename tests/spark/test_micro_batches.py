"""Micro-batches of a part as Spark asks for them: made again in part or altogether, with queries that fail, and told to
a reader in another process."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.hosts.spark.parts import part as parts
from penstock.hosts.spark.parts.definitions import write_program
from penstock.hosts.spark.parts.inflow import Inflow
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.source import PartReader
from penstock.hosts.spark.parts.talk import Talk
from penstock.hosts.spark.parts.task import Report, Task, Trouble
from penstock.hosts.spark.parts.working import task_of, told
from penstock.testing import crash_copy
from tests.budget import examples
from tests.spark.direct import Direct, directly, host_of

S = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t"
SUMS = "SELECT ISTREAM k, sum(v) AS total FROM s [RANGE 1000] GROUP BY k"


class Manual(Direct):
    """Makes micro-batches when a test says so."""

    def start(self, part: Part | Inflow) -> None:
        pass


@pytest.fixture
def manual() -> Iterator[None]:
    with directly(Manual):
        yield


def opened(path: Path | None, **options: object) -> penstock.Database:
    return penstock.connect(path, engine="spark", **{"shards": 2, "trigger": 0, **options})  # type: ignore[arg-type]


def begun(path: Path, **options: object) -> penstock.Database:
    db = opened(path, **options)
    db.execute(S)
    db.query(SUMS, name="sums")
    db.query("SELECT v FROM s", name="all")
    return db


def part_of(db: penstock.Database) -> Part:
    (found,) = host_of(db).parts
    return found


def tasks_of(contents: Sequence[bytes]) -> list[Task]:
    return [task_of(content) for content in contents]


def done(db: penstock.Database, contents: Sequence[bytes]) -> list[Report | Trouble]:
    """What Spark's tasks say."""
    cluster = host_of(db).cluster
    assert isinstance(cluster, Manual)
    return cluster.run(next(iter(host_of(db).parts)), tasks_of(contents))


def made(db: penstock.Database) -> None:
    """One micro-batch."""
    part = part_of(db)
    assert part.record(done(db, part.contents(part.next_offset(part.offset))))


def taken(db: penstock.Database, name: str, column: str) -> list[object]:
    found: list[object] = db.queries[name].fetch(wait=False).column(column).to_pylist()
    return found


# -- what Spark makes again ---------------------------------------------------------------------------


def test_asking_again_for_the_tasks_changes_nothing(tmp_path: Path, manual: None) -> None:
    with begun(tmp_path) as db:
        db.push("s", [(1, 1, 1), (2, 2, 2)])
        part = part_of(db)
        end = part.next_offset(part.offset)
        assert part.contents(end) == part.contents(end)


@pytest.mark.parametrize("priority", ["", " PRIORITY BY v - 5"])
def test_a_micro_batch_that_is_planned_again_consists_of_the_same(tmp_path: Path, manual: None, priority: str) -> None:
    """Also when more rows, prioritised ones too, have come since."""
    with opened(tmp_path, batch_rows=2) as db:
        db.execute(S + priority)
        db.query("SELECT v FROM s", name="all")
        for i in range(4):
            db.push("s", [(i, 1, i)])
        db.push("s", [(4, 1, 6)])
        part = part_of(db)
        end = part.next_offset(part.offset)
        before = tasks_of(part.contents(end))
        db.push("s", [(5, 1, 7)])
        part.interrupted()
        again = tasks_of(part.contents(end))
        assert again == before
        assert bool(again[0].early) == bool(priority)
        assert part.record(done(db, part.contents(end)))
        assert sorted(map(str, taken(db, "all", "v"))) == (["0", "1", "6"] if priority else ["0", "1"])


def test_a_micro_batch_that_counts_gives_nothing_again(tmp_path: Path, manual: None) -> None:
    with begun(tmp_path) as db:
        part = part_of(db)
        start = part.offset
        db.push("s", [(1, 1, 1), (2, 2, 2)])
        end = part.next_offset(start)
        reports = done(db, part.contents(end))
        assert part.record(reports)
        # Spark did not hear that it counts: it makes it again, or is told the same reports again.
        assert part.contents(end) == []
        assert part.record([])
        assert part.record(reports)
        assert part.next_offset(start) == end == part.offset
        assert taken(db, "all", "v") == [1, 2]
        assert taken(db, "all", "v") == []
        copy = crash_copy(db, tmp_path / "copy")
        db.push("s", [(3, 1, 5)])
        made(db)
        assert taken(db, "sums", "total") == [1, 2, 6]
    with opened(copy) as db:
        part = part_of(db)
        assert part.next_offset(start)["batch"] == end["batch"], "a checkpoint of before knows less"
        assert part.contents(end) == []
        db.push("s", [(3, 1, 5)])
        made(db)
        assert taken(db, "sums", "total") == [1, 2, 6]
        assert taken(db, "all", "v") == [5]


def test_of_two_attempts_the_first_that_is_heard_of_counts(tmp_path: Path, manual: None) -> None:
    """Tasks that Spark runs twice, because one seemed to be lost, leave two states."""
    with begun(tmp_path) as db:
        part = part_of(db)
        for i in range(4):
            db.push("s", [(i, i % 2, 1)])
            contents = part.contents(part.next_offset(part.offset))
            attempts = [done(db, contents) for _ in range(3)]
            assert part.record(attempts[1])
            assert part.record(attempts[0])
            assert part.record(attempts[2])
        assert taken(db, "all", "v") == [1, 1, 1, 1]
        assert taken(db, "sums", "total") == [1, 1, 2, 2]


def test_tasks_of_another_opening_are_not_heard_of(tmp_path: Path, manual: None) -> None:
    """Workers of a driver that was killed may go on for a while."""
    with begun(tmp_path / "db") as db:
        db.push("s", [(1, 1, 1)])
        part = part_of(db)
        contents = part.contents(part.next_offset(part.offset))
        copy = crash_copy(db, tmp_path / "copy")
    with opened(copy) as db:
        db.push("s", [(2, 1, 10)])
        part = part_of(db)
        mine = part.contents(part.next_offset(part.offset))
        done(db, [told(replace(task, root=str(copy))) for task in tasks_of(contents)])
        assert part.record(done(db, mine))
        assert taken(db, "sums", "total") == [1, 11]


class Unlucky(Direct):
    """Some attempts come to nothing: before, between or after their tasks."""

    seed = 1
    left = 0

    def run(self, part: Part, tasks: Sequence[Task]) -> list[Report | Trouble]:
        if not tasks or not Unlucky.left:
            return super().run(part, tasks)
        Unlucky.left -= 1
        super().run(part, tasks[: Unlucky.left % (len(tasks) + 1)])
        raise OSError("an executor is lost")


@pytest.mark.parametrize("times", [1, 2, 3, 5])
def test_tasks_that_fail_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(parts, "_FIRST", 0.01)
    with directly(Unlucky), begun(tmp_path) as db:
        db.settle()
        for i in range(4):
            Unlucky.left = times if i in (1, 3) else 0
            db.push("s", [(i, i % 2, 1)])
            heard = 0
            while host_of(db).parts.get(0).has_work():  # type: ignore[union-attr]
                try:
                    db.settle()
                except penstock.EngineError as error:
                    assert "an executor is lost" in error.message  # noqa: PT017
                    heard += 1
            assert heard <= times // 2, "one attempt that fails is forgiven"
        assert taken(db, "all", "v") == [1, 1, 1, 1]
        assert taken(db, "sums", "total") == [1, 1, 2, 2]


def test_a_reader_hears_of_what_goes_wrong_and_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was pushed is lost meanwhile, and a restart goes on with it."""
    monkeypatch.setattr(parts, "_FIRST", 0.01)
    Unlucky.left = 10**6
    try:
        with directly(Unlucky), begun(tmp_path) as db:
            db.push("s", [(1, 1, 1)])
            with pytest.raises(penstock.EngineError, match="an executor is lost"):
                db.queries["all"].fetch()
            db.push("s", [(2, 1, 2)])
            assert db.queries["all"].status == "running"
    finally:
        Unlucky.left = 0
    with directly(), opened(tmp_path) as db:
        assert db.queries["all"].fetch().column("v").to_pylist() == [1, 2]
        assert db.queries["sums"].fetch().column("total").to_pylist() == [1, 3]


def test_queries_move_when_a_micro_batch_that_has_begun_is_over(tmp_path: Path, manual: None) -> None:
    """It may have begun for Spark, which has not asked for its tasks yet."""
    with begun(tmp_path) as db:
        db.push("s", [(1, 1, 1)])
        part = part_of(db)
        end = part.next_offset(part.offset)
        moving = threading.Thread(target=lambda: db.configure(threading="operator"), daemon=True)
        moving.start()
        until = time.monotonic() + 60
        while not host_of(db).parts.held:  # nobody is told of it
            assert time.monotonic() < until
            threading.Event().wait(0.001)
        contents: list[Sequence[bytes]] = []
        asking = threading.Thread(target=lambda: contents.append(part.contents(end)), daemon=True)
        asking.start()
        asking.join(60)
        assert part.record(done(db, contents[0]))
        moving.join(60)
        assert not moving.is_alive()
        assert len(list(host_of(db).parts)) == 2
        assert taken(db, "all", "v") == [1]


def test_a_query_that_is_stopped_while_a_micro_batch_has_it_is_not_forgotten_before_that_is_over(
    tmp_path: Path, manual: None
) -> None:
    with begun(tmp_path) as db:
        db.push("s", [(1, 1, 1)])
        part = part_of(db)
        contents = part.contents(part.next_offset(part.offset))
        db.queries["sums"].stop()
        for _ in range(3):
            db.note(saved=True)
            host_of(db).save()
        assert part.record(done(db, contents))
        assert taken(db, "all", "v") == [1]
        db.push("s", [(2, 1, 2)])
        assert part.record(done(db, part.contents(part.next_offset(part.offset))))
        for _ in range(3):
            db.note(saved=True)
            host_of(db).save()
        assert len(list((tmp_path / "shards/queries").glob("*.json"))) == 1


# -- what Spark takes for done -------------------------------------------------------------------------


def test_what_spark_takes_for_done_and_does_not_count_is_made_again(tmp_path: Path, manual: None) -> None:
    """``foreachBatch`` returned, so Spark has committed the offset. To Spark an equal one is nothing new."""
    with begun(tmp_path) as db:
        db.push("s", [(1, 1, 1)])
        part = part_of(db)
        offset = part.offset
        for _ in range(3):
            end = part.next_offset(offset)
            assert json.dumps(end) != json.dumps(offset)
            reports = done(db, part.contents(end))
            part.interrupted()
            assert part.record(reports), "nothing is to be done instead"
            offset = end
        end = part.next_offset(offset)
        assert json.dumps(end) != json.dumps(offset)
        assert part.record(done(db, part.contents(end)))
        assert taken(db, "all", "v") == [1]
        assert part.failed == 0, "users hear of nothing"


def test_what_is_planned_otherwise_meanwhile_is_not_recorded(
    tmp_path: Path, manual: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of an end of Spark before are said to have done what was planned after it."""
    with begun(tmp_path) as db:
        part = part_of(db)
        made(db)
        db.push("s", [(1, 1, 1)])
        reports = done(db, part.contents(part.next_offset(part.offset)))
        ends: list[dict[str, int]] = []

        def synced(number: int) -> None:
            """Syncing takes so long that Spark has been started again meanwhile."""
            part.cut_off()
            part.interrupted()
            db.push("s", [(2, 1, 2)])
            ends.append(part.next_offset(part.offset))

        with monkeypatch.context() as patch:
            patch.setattr(host_of(db), "safe", synced)
            assert part.record(reports)
        assert taken(db, "all", "v") == []
        assert part.record(done(db, part.contents(ends[0])))
        assert taken(db, "all", "v") == [1, 2]


def test_the_reader_of_a_streaming_query_that_has_ended_is_told_of_nothing(
    tmp_path: Path, manual: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its question may wait still when the next one asks. What it were told, nobody would do."""
    monkeypatch.setattr(parts, "_PATIENCE", 1e5)
    with begun(tmp_path) as db:
        part, gate = part_of(db), host_of(db).parts.gate
        made(db)
        db.configure(workers=1)
        old = part.offset
        found: list[dict[str, int]] = []
        assert gate.enter(9, lambda: False), "another part works"
        db.push("s", [(1, 1, 1)])
        waits = threading.Thread(target=lambda: found.append(part.next_offset(old)), daemon=True)
        waits.start()
        with gate._changed:
            assert gate._changed.wait_for(lambda: gate._waiting, 60)
        part.cut_off()
        waits.join(60)
        assert found == [old]
        gate.leave()
        assert part.next_offset(old) == old
        end = part.next_offset(part.offset)
        assert end["batch"] == part.version + 1
        assert part.contents({**end, "attempt": old["attempt"]}) == []
        assert part.record(done(db, part.contents(end)))
        assert gate._inside == 0
        assert taken(db, "all", "v") == [1]


HAPPENINGS = (
    "push", "query", "stop", "made", "forgotten", "interrupted", "failed", "ended", "refused", "refused again",
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(HAPPENINGS), max_size=20))
def test_an_offset_is_new_where_there_is_work_and_the_same_where_there_is_none(some: list[str]) -> None:
    """Whatever happened before. It is four numbers, however many streams and queries there are."""
    refusals = 0
    def written(*args: Any) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise OSError("no room")
        write_program(*args)

    with pytest.MonkeyPatch.context() as patch, directly(Manual):
        patch.setattr(parts, "write_program", written)
        patch.setattr(parts, "_PATIENCE", 0.01)  # not 0: parts of databases that other tests left open wait as long
        for name in ("_FIRST", "_LONGEST"):
            patch.setattr(parts, name, 0.0)
        with opened(None, shards=1) as db:
            db.execute(S)
            db.query("SELECT v FROM s", name="q")
            part = part_of(db)
            offset = json.loads(part.begin)
            """The last one that Spark has committed."""
            for number, what in enumerate([*some, "made"]):
                if what == "push":
                    db.push("s", [(number, 1, number)])
                elif what == "query":
                    db.query(f"SELECT v FROM s WHERE v > {number}")
                elif what == "stop" and db.queries:
                    db.queries[next(iter(db.queries))].stop()
                refusals, part._program = int(what == "refused"), ({}, "")
                end = part.next_offset(offset)
                assert (json.dumps(end) != json.dumps(offset)) == part.has_work()
                assert list(end) == ["batch", "upto", "ahead", "attempt"]
                assert all(type(value) is int and 0 <= value < 2**63 for value in end.values())
                if what == "failed":
                    part.attempt_failed(penstock.EngineError("no luck"))
                elif what == "ended":
                    part.cut_off()
                    part.interrupted()
                    offset = json.loads(part.begin)
                elif end != offset and what in ("made", "forgotten", "refused", "refused again"):
                    if what == "refused again":
                        part.interrupted()
                        refusals, part._program = 1, ({}, "")
                    reports = done(db, part.contents(end))
                    if what == "forgotten":
                        part.interrupted()
                    assert part.record(reports)
                    offset = json.loads(json.dumps(end))
                else:
                    part.interrupted()
            assert not part.has_work()
            assert json.dumps(part.next_offset(offset)) == json.dumps(offset)


# -- queries that fail --------------------------------------------------------------------------------

Row = tuple[int, int, int]


def picky(v: int) -> int:
    if v < 0:
        raise ValueError(f"no {v}")
    return v


PICKY = {
    "keyed": "SELECT ISTREAM k, sum(picky(v)) AS v FROM s [RANGE 1000] GROUP BY k",
    "rows": "SELECT picky(v) AS v FROM s",
    "last": "SELECT ISTREAM count(*) AS v FROM s [ROWS 4] WHERE picky(v) >= 0",
    "other": "SELECT ISTREAM k, sum(picky(v - 3)) AS v FROM s [RANGE 1000] GROUP BY k",
}
FINE = "SELECT ISTREAM k, sum(v) AS v FROM s [RANGE 1000] GROUP BY k"


Given = tuple[str, str, Counter[object]]
"""How a query is, why it failed, and what it has given."""


def answered(path: Path | None, engine: str, pushes: Sequence[Sequence[Row]], **options: object) -> dict[str, Given]:
    """What each query has given, and how it is."""
    with penstock.connect(path, engine=engine, **options) as db:  # type: ignore[arg-type]
        db.execute(S)
        db.create_function("picky", picky, args=["BIGINT"], returns="BIGINT")
        for name, text in PICKY.items():
            db.execute(f"CREATE QUERY {name} AS {text} WITH (strict = true)")
        db.query(FINE, name="fine")
        for rows in pushes:
            db.push("s", list(rows))
        db.settle()
        return {
            name: (q.status, str(q.error), Counter(tuple(r.values()) for r in q.peek(10**6).to_pylist()))
            for name, q in db.queries.items()
        }


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    deltas=st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=4), max_size=6),
    bad=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=3),
    shards=st.integers(1, 4),
    batch_rows=st.sampled_from([3, 1000]),
)
def test_what_came_before_the_entry_on_which_a_query_fails_is_answered(
    deltas: list[list[tuple[int, int]]], bad: list[tuple[int, int]], shards: int, batch_rows: int
) -> None:
    """However many entries a micro-batch has, and over however many slots it is split, it is as with one entry at a
    time; and others go on."""
    pushes: list[list[Row]] = []
    at = 0
    for i, some in enumerate(deltas):
        pushes.append([])
        for j, (step, value) in enumerate(some):
            at += step
            pushes[-1].append((at, value, -1 - value if (i, j) in bad else 3 + value))
    options = {"shards": shards, "batch_rows": batch_rows}
    with directly():
        found = answered(None, "spark", pushes, trigger=3600, **options)
        assert found == answered(None, "spark", pushes, trigger="push", shards=1)
    wanted = answered(None, "reference", pushes)
    assert found["fine"] == wanted["fine"]
    for name in PICKY:
        assert found[name][:2] == wanted[name][:2], name


def test_a_query_that_fails_in_one_slot_gives_no_later_answers_of_others(tmp_path: Path) -> None:
    pushes = [[(i, k, -1 if (i, k) == (2, 1) else 1) for k in range(6)] for i in range(5)]
    with directly():
        found = answered(tmp_path, "spark", pushes, trigger=3600, shards=3)
    status, said, given = found["keyed"]
    assert status == "failed"
    assert "no -1" in said
    assert given == Counter((i, "+", k, i + 1) for i in range(2) for k in range(6))
    status, _, given = found["fine"]
    assert status == "running"
    assert given.total() == 5 * 6


def test_how_a_query_failed_is_known_after_a_restart(tmp_path: Path) -> None:
    pushes = [[(i, k, -1 if (i, k) == (2, 1) else 1) for k in range(6)] for i in range(5)]
    with directly():
        before = answered(tmp_path, "spark", pushes, trigger=3600, shards=3)
        with penstock.connect(tmp_path, engine="spark", functions=True, trigger="push") as db:
            again = {
                name: (q.status, str(q.error), Counter(tuple(r.values()) for r in q.peek(10**6).to_pylist()))
                for name, q in db.queries.items()
            }
            assert again == before
            db.push("s", [(9, 1, 100)])
            assert db.queries["fine"].fetch().column("v").to_pylist()[-1] == 3 + 100
            assert db.queries["keyed"].status == "failed"


# -- what a reader hears ------------------------------------------------------------------------------


def test_while_nothing_happens_the_offset_is_the_same(
    tmp_path: Path, manual: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark compares them as text."""
    monkeypatch.setattr(parts, "_PATIENCE", 0.01)
    with begun(tmp_path) as db:
        talk = Talk(host_of(db).parts.get)
        try:
            reader = PartReader(talk.path, part_of(db).id, part_of(db).begin)
            offset = reader.initialOffset()
            limit = reader.getDefaultReadLimit()
            for i in range(3):
                if i < 2:
                    db.push("s", [(i, 1, 1)])
                end = reader.latestOffset(offset, limit)
                if i < 2:
                    assert json.dumps(end) != json.dumps(offset)
                    tasks = [p.value for p in reader.partitions(offset, end)]
                    assert part_of(db).record(done(db, tasks))
                offset = json.loads(json.dumps(end))
                assert json.dumps(reader.latestOffset(offset, limit)) == json.dumps(offset)
                assert [json.dumps(part_of(db).offset), part_of(db).begin] == [json.dumps(offset)] * 2
                assert reader.partitions(offset, offset) == []
            again = pickle.loads(pickle.dumps(reader))
            assert json.dumps(again.latestOffset(offset, limit)) == json.dumps(offset)
        finally:
            talk.close()


def test_an_offset_does_not_grow_with_streams_and_queries(tmp_path: Path, manual: None) -> None:
    with opened(tmp_path) as db:
        db.execute(S)
        db.query("SELECT v FROM s")
        db.push("s", [(1, 1, 1)])
        part = part_of(db)
        few = part.next_offset(part.offset)
        part.interrupted()
        for i in range(40):
            db.execute(f"CREATE STREAM s{i} (t BIGINT, v BIGINT) TIMESTAMP BY t")
            for j in range(3):
                db.query(f"SELECT v FROM s{i} WHERE v > {j}")
            db.push(f"s{i}", [(1, 1)])
        many = part.next_offset(part.offset)
        assert many["upto"] > few["upto"]
        assert many.keys() == few.keys()
        assert all(type(value) is int for value in many.values())
        assert len(json.dumps(dict.fromkeys(many, 2**63))) < 4096


def test_a_reader_of_a_database_that_is_closed_ends(tmp_path: Path, manual: None) -> None:
    with begun(tmp_path) as db:
        reader = PartReader(host_of(db).socket, part_of(db).id, part_of(db).begin)
        offset = reader.initialOffset()
        db.push("s", [(1, 1, 1)])
        reader.latestOffset(offset, reader.getDefaultReadLimit())
    with pytest.raises(ConnectionError):
        reader.latestOffset(offset, reader.getDefaultReadLimit())


def test_a_reader_of_a_part_that_is_no_more_hears_of_nothing(tmp_path: Path, manual: None) -> None:
    with begun(tmp_path) as db:
        reader = PartReader(host_of(db).socket, 77, part_of(db).begin)
        offset = reader.initialOffset()
        assert reader.latestOffset(offset, reader.getDefaultReadLimit()) == offset
        assert reader.partitions(offset, offset) == []


def test_a_reader_hears_why_it_is_not_told(tmp_path: Path, manual: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(tmp_path) as db:
        reader = PartReader(host_of(db).socket, part_of(db).id, part_of(db).begin)
        offset = reader.initialOffset()
        monkeypatch.setattr(part_of(db), "next_offset", lambda start: start["what"])
        with pytest.raises(RuntimeError, match=r"cannot say what a micro-batch consists of: KeyError: 'what'"):
            reader.latestOffset(offset, reader.getDefaultReadLimit())
        monkeypatch.undo()
        assert reader.latestOffset(offset, reader.getDefaultReadLimit())["batch"] == 1, "it may ask again"


def test_users_hear_why_a_micro_batch_cannot_be_planned_again(
    tmp_path: Path, manual: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes one again, and there is no room for the program."""
    with begun(tmp_path) as db:
        reader = PartReader(host_of(db).socket, part_of(db).id, part_of(db).begin)
        db.push("s", [(1, 1, 1)])
        part = part_of(db)
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        part.interrupted()
        part._program = ({}, "")

        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(parts, "write_program", full)
            assert reader.partitions(reader.initialOffset(), end) == []
        assert part.record([]), "Spark takes it for done"
        with pytest.raises(penstock.StorageError, match="No space left on device"):
            raise part.problem or AssertionError
        part.wake(hurry=True)
        again = reader.latestOffset(end, reader.getDefaultReadLimit())
        assert part.record(done(db, [p.value for p in reader.partitions(end, again)]))
        assert taken(db, "all", "v") == [1]


_IMPORTS = """
import sys
import pyspark.sql.datasource, pyspark.sql.streaming.datasource
before = set(sys.modules)
import penstock.hosts.spark.parts.source
print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - {"penstock"} - sys.stdlib_module_names))
"""


def test_the_reader_is_light() -> None:
    """Spark starts a process for each part that only asks."""
    source = str(Path(penstock.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", _IMPORTS], env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert run.stdout.strip() == "[]"


def test_who_waits_for_rows_is_woken(tmp_path: Path, manual: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that asks is told of rows when they come, not when it would have asked again."""
    monkeypatch.setattr(parts, "_PATIENCE", 1e5)
    with begun(tmp_path) as db:
        made(db)
        part = part_of(db)
        found: list[dict[str, int]] = []
        waits = threading.Thread(target=lambda: found.append(part.next_offset(part.offset)), daemon=True)
        waits.start()
        db.push("s", [(1, 1, 1)])
        waits.join(60)
        assert [end["batch"] for end in found] == [part.version + 1]
        part.interrupted()
        last = threading.Thread(target=lambda: found.append(part.next_offset(found[0])), daemon=True)
        host_of(db).parts.held = frozenset({part.id})  # nothing may begin: it waits
        last.start()
    last.join(60)
    assert not last.is_alive(), "closing ends it"
