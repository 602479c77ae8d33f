"""Parts of a database on Spark: who is in which, that none waits for another, and that all ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock
from penstock.hosts.options import SparkOptions
from penstock.hosts.spark.parts import host, load
from penstock.hosts.spark.parts.cluster import Cluster
from penstock.hosts.spark.parts.gate import Gate, Waiter, chosen
from penstock.hosts.spark.parts.grouping import Member, Settings, crowding, groups, placed
from penstock.hosts.spark.parts.host import SparkHost
from penstock.hosts.spark.parts.inflow import Inflow
from penstock.hosts.spark.parts.load import Load
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.task import Report, Task, Trouble
from tests.spark.direct import Direct, directly, host_of

S = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"
open_gate = threading.Event()
"""``blocked`` waits for it; workers of these tests are threads of this process."""
is_blocked = threading.Event()


def blocked(v: float) -> float:
    is_blocked.set()
    assert open_gate.wait(60)
    return v


@pytest.fixture(autouse=True)
def without_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    open_gate.clear()
    is_blocked.clear()
    if "spark" in request.fixturenames:
        yield
        return
    with directly():
        yield


def opened(folder: Path, **options: object) -> penstock.Database:
    db = penstock.connect(folder / "db", engine="spark", functions=True, **options)  # type: ignore[arg-type]
    if not db.catalog.streams:
        db.execute(S)
    return db


def query(db: penstock.Database, name: str, text: str, priority: int = 5) -> penstock.Query:
    db.execute(f"CREATE QUERY {name} AS {text} WITH (priority = {priority})")
    return db.queries[name]


def values(table: pa.Table, column: str) -> list[object]:
    return table.column(column).to_pylist()  # type: ignore[no-any-return]


def parts(db: penstock.Database) -> list[set[str]]:
    """The queries of each part, as EXPLAIN tells them."""
    found: list[set[str]] = []
    for name in db.queries:
        line = next(x for x in db.explain(name).splitlines() if x.startswith("virtual operator"))
        _, _, others = line.partition("with ")
        group = {name, *(o.strip("`") for o in others.split(", ") if o)}
        if group not in found:
            found.append(group)
    return found


def threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("penstock-part")}


# -- who is in which part -----------------------------------------------------------------------------

members = st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12).map(
    lambda some: [Member(f"q{i}", p, apart) for i, (p, apart) in enumerate(some)]
)


@given(members, st.sampled_from(["direct", "graph", "operator", "hybrid"]), st.data())
def test_every_query_is_in_one_part(some: list[Member], threading: str, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, 12))
    wanted = groups(some, Settings(threading), most)
    assert sorted(id for group in wanted for id in group) == sorted(m.id for m in some)
    assert len(wanted) <= most
    now = {m.id: data.draw(st.integers(0, 3)) for m in some if data.draw(st.booleans())}
    found = placed(wanted, now, 4)
    assert {frozenset(id for id in found if found[id] == part) for part in found.values()} == set(
        map(frozenset, wanted)
    )
    assert placed(wanted, found, 100) == found, "who is where it should be stays"


def test_groups_by_setting() -> None:
    some = [Member("a", 5), Member("b", 9), Member("c", 5), Member("d", 5, apart=True)]
    assert groups(some, Settings("direct"), 4) == [("a", "b", "c", "d")]
    assert groups(some, Settings("hybrid"), 4) == [("a", "c"), ("b",), ("d",)]
    alone = [("a",), ("b",), ("c",), ("d",)]
    assert groups(some, Settings("operator"), 4) == groups(some, Settings("graph"), 4) == alone
    assert groups(some, Settings("operator"), 3) == [("a", "d"), ("b",), ("c",)]
    assert (Settings("graph", 4).at_once, Settings("operator", 4).at_once, Settings().at_once) == (1, 4, None)


def test_few_queries_move() -> None:
    assert placed([("a", "b", "c")], {"a": 1, "b": 2, "c": 2}, 9) == {"a": 2, "b": 2, "c": 2}
    assert placed([("a",), ("b",), ("new",)], {"a": 1, "b": 1}, 9) == {"a": 1, "b": 9, "new": 10}


def test_who_makes_others_wait() -> None:
    costs = {"a": 1.0, "slow": 8.0, "b": 1.0}
    assert crowding(costs, 12.0, 2) == []
    assert crowding(costs, 5.0, 2) == ["slow"]
    assert crowding(costs, 1.5, 2) == ["slow", "a"]
    assert crowding(costs, 0.5, 2) == [], "it does not keep pace without all of them either"
    assert crowding(dict.fromkeys("abcdefgh", 1.0), 3.0, 2) == [], "none of many is to blame"
    assert crowding({"alone": 8.0}, 1.0, 2) == []


def test_load_is_measured_over_a_while() -> None:
    measured = Load(0.0)
    measured.arrived(100)
    for _ in range(10):
        measured.worked(10, {"a": 0.1, "slow": 0.9})
    assert measured.crowding(1.0, ["a", "slow"], 2) == [], "too soon to say"
    assert measured.crowding(8.0, ["a", "slow"], 2) == ["slow"]
    assert measured.crowding(20.0, ["a", "slow"], 2) == [], "a new while has begun"


def test_who_is_next() -> None:
    low, high, later = Waiter(0, 0.0), Waiter(9, 0.5), Waiter(9, 1.0)
    assert chosen([low, high]) is high
    assert chosen([low, later]) is low, "nobody waits for ever"
    assert chosen([later, high]) is high


def test_so_many_at_once() -> None:
    gate = Gate(1)
    entered: list[int] = []

    def enter(priority: int) -> None:
        assert gate.enter(priority, lambda: False)
        entered.append(priority)
        gate.leave()

    assert gate.enter(5, lambda: False)
    assert not gate.enter(5, lambda: True)
    waiting = [threading.Thread(target=enter, args=(p,)) for p in (1, 8)]
    for thread in waiting:
        thread.start()
    while len(gate._waiting) < 2:
        time.sleep(0.001)
    assert entered == []
    gate.leave()
    for thread in waiting:
        thread.join(60)
    assert entered == [8, 1]


# -- settings -----------------------------------------------------------------------------------------


def test_settings_move_queries(tmp_path: Path) -> None:
    with opened(tmp_path, shards=4) as db:
        for name, priority in (("a", 5), ("b", 9), ("c", 5)):
            query(db, name, "SELECT k, sum(v) AS t FROM s [ROWS 3] GROUP BY k", priority)
        assert parts(db) == [{"a", "c"}, {"b"}]
        db.push("s", [(1, 1, 1.0)])
        for setting, wanted in (
            ("direct", [{"a", "b", "c"}]),
            ("operator", [{"a"}, {"b"}, {"c"}]),
            ("graph", [{"a"}, {"b"}, {"c"}]),
            ("hybrid", [{"a", "c"}, {"b"}]),
        ):
            db.configure(threading=setting)
            assert parts(db) == wanted
            db.push("s", [(2, 1, 2.0)])
        for name in "abc":
            assert values(db.queries[name].fetch(), "t") == [1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 6.0]
        db.configure(threading="operator", workers=1)
    with opened(tmp_path) as db:
        assert parts(db) == [{"a"}, {"b"}, {"c"}]
        query(db, "d", "SELECT v FROM s")
        assert {"d"} in parts(db), "settings are kept"


def test_settings_that_are_none(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        with pytest.raises(penstock.InputError, match=r"threading is 'fast'; .*direct, graph, operator, hybrid"):
            db.configure(threading="fast")
        with pytest.raises(penstock.InputError, match=r"no setting `strategy` .* `threading`, `workers` and `mode`"):
            db.configure(strategy="fifo")
        with pytest.raises(penstock.InputError, match=r"no setting `experiments` .* engine='local'"):
            db.configure(experiments={"masters": "naive"})
        with pytest.raises(penstock.InputError, match="`wokers` on Spark; there are `threading`, `workers` and `mode`"):
            db.configure(wokers=2)
        with pytest.raises(penstock.InputError, match=r"mode is 'fast'; there are strong, direct, normal"):
            db.configure(mode="fast")
        for workers in (0, "two", 1.5, True):
            with pytest.raises(penstock.InputError, match=r"workers is .*; give a number from 1 on"):
                db.configure(workers=workers)
    with pytest.raises(penstock.StateError, match="closed"):
        db.configure(threading="direct")
    with (
        penstock.connect(engine="reference") as db,
        pytest.raises(penstock.EngineError, match="engine `reference` has nothing to configure"),
    ):
        db.configure(threading="direct")


@pytest.mark.parametrize("trigger", ["push", None])
def test_a_subscriber_may_configure(tmp_path: Path, trigger: str | None) -> None:
    with opened(tmp_path, trigger=trigger) as db:
        heard: list[str] = []

        def listen(table: pa.Table) -> None:
            db.configure(threading="operator")
            heard.append(db.graph().threading)

        query(db, "q", "SELECT v FROM s").subscribe(listen)
        db.push("s", [(1, 1, 1.0)])
        db.settle()
        assert heard == ["operator"]


def test_explain_names_part_pool_and_buffers(tmp_path: Path) -> None:
    with opened(tmp_path, shards=2) as db:
        query(db, "a", "SELECT v FROM s WHERE v > 1")
        query(db, "b", "SELECT v FROM s [ROWS 2]")
        query(db, "alarm", "SELECT v FROM s WHERE v > 9", 9)
        told = db.explain("a").splitlines()[-5:]
        assert told == [
            "virtual operator: part 0, with `b`",
            "threading: hybrid (a part for each priority, and one for a query that would make the others wait)",
            "priority 5: FAIR pool penstock-5",
            "stream buffers: log of s",
            "spark: 2 shards, any row in any: rows do not meet each other",
        ]
        assert "virtual operator: part 1, alone" in db.explain("alarm")
        assert "priority 9: FAIR pool penstock-9" in db.explain("alarm")


def test_the_graph_shows_parts(tmp_path: Path) -> None:
    with opened(tmp_path, trigger=3600) as db:
        for name, priority in (("a", 5), ("b", 5), ("alarm", 9)):
            query(db, name, f"SELECT v FROM s WHERE v > {priority}", priority)
        db.settle()
        db.push("s", [(1, 1, 1.0), (2, 1, 2.0)])
        view = db.graph()
        assert (view.threading, [(p.id, p.priority) for p in view.partitions]) == ("hybrid", [(0, 5), (1, 9)])
        by_id = {q.operator: q.name for q in view.queries}
        assert [{by_id[o] for o in p.operators if o in by_id} for p in view.partitions] == [{"a", "b"}, {"alarm"}]
        assert max(e.buffer.elements for e in view.edges if e.buffer is not None) == 2
        assert "alarm" in view.text()


def test_parts_say_what_they_took_last_and_what_waits(tmp_path: Path) -> None:
    with opened(tmp_path, trigger=3600) as db:
        query(db, "a", "SELECT v FROM s")
        query(db, "b", "SELECT v FROM s WHERE v > 1")
        query(db, "alarm", "SELECT v FROM s WHERE v > 5", 9)
        abilities = host_of(db).abilities()
        first = abilities.part_views()
        assert [(p.part, p.queries, p.priority) for p in first] == [(0, ("a", "b"), 5), (1, ("alarm",), 9)]
        assert {(p.batches, p.rows, p.rows_per_second, p.seconds) for p in first} == {(0, None, None, None)}
        db.push("s", [(1, 1, 1.0), (2, 1, 2.0)])
        db.settle()
        db.push("s", [(3, 1, 1.0)])
        db.push("s", [(4, 1, 1.0), (5, 1, 1.0)])
        made = {row["part"]: row for row in db.metrics().to_pylist()}
        for part in abilities.part_views():
            last = made[part.part]
            assert (part.rows, part.seconds, part.batches) == (2, last["seconds"], last["number"])
            assert part.rows_per_second == 2 / last["seconds"]
            assert part.answers_per_second == (3 if part.part == 0 else 0) / last["seconds"]
            assert (part.waiting, part.waiting_rows) == (2, 3)


def test_metrics_say_which_part(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        query(db, "a", "SELECT v FROM s")
        query(db, "b", "SELECT v FROM s", 9)
        db.push("s", [(1, 1, 1.0)])
        found = db.metrics().select(["part", "frames", "answers"]).to_pylist()
        assert sorted(tuple(row.values()) for row in found) == [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]


def test_of_parts_that_wait_the_urgent_one_is_next(tmp_path: Path) -> None:
    with opened(tmp_path, shards=3, trigger=0) as db:
        db.create_function("blocked", blocked, args=["DOUBLE"], returns="DOUBLE")
        db.execute("CREATE STREAM first (t BIGINT, v DOUBLE) TIMESTAMP BY t")
        query(db, "before", "SELECT blocked(v) AS v FROM first", 0)
        query(db, "patient", "SELECT v FROM s", 4)
        query(db, "urgent", "SELECT v FROM s", 9)
        db.settle()
        db.configure(workers=1)
        db.push("first", [(1, 1.0)])
        assert is_blocked.wait(60)
        db.push("s", [(1, 1, 1.0)])
        while len(host_of(db).parts.gate._waiting) < 2:
            time.sleep(0.001)
        open_gate.set()
        db.settle()
        assert [row["part"] for row in db.metrics().to_pylist() if row["frames"]] == [0, 2, 1]


# -- none waits for another ---------------------------------------------------------------------------


def test_a_slow_query_delays_nobody_in_another_part(tmp_path: Path) -> None:
    with opened(tmp_path, trigger=0) as db:
        db.create_function("blocked", blocked, args=["DOUBLE"], returns="DOUBLE")
        slow = query(db, "slow", "SELECT blocked(v) AS v FROM s", 5)
        alarm = query(db, "alarm", "SELECT k, sum(v) AS t FROM s [RANGE 100] GROUP BY k", 9)
        for i in range(5):
            db.push("s", [(i, 1, 1.0)])
            assert values(alarm.fetch(), "t")[-1] == i + 1
        assert is_blocked.wait(60)
        assert slow.fetch(wait=False).num_rows == 0
        # Another query comes, and parts that do not need the slow one change.
        other = query(db, "other", "SELECT v FROM s", 9)
        db.push("s", [(5, 1, 7.0)])
        assert values(other.fetch(), "v") == [7.0]
        open_gate.set()
        assert values(slow.fetch(), "v") == [1.0, 1.0, 1.0, 1.0, 1.0, 7.0]
        # Behind is not lost: it joins those that are further.
        db.configure(threading="direct")
        db.push("s", [(6, 1, 8.0)])
        assert (values(slow.fetch(), "v"), values(other.fetch(), "v")) == ([8.0], [8.0])
        assert values(alarm.fetch(), "t")[-1] == 20.0


def test_a_query_that_is_to_answer_soon_does_not_wait_for_the_trigger(tmp_path: Path) -> None:
    for _ in range(2):  # the second time from the directory
        with opened(tmp_path, trigger=3600) as db:
            if not db.queries:
                query(db, "patient", "SELECT v FROM s", 1)
                db.execute("CREATE QUERY soon AS SELECT v FROM s WITH (latency = '10 ms')")
                db.settle()
            answered = threading.Event()

            def tell(answers: pa.Table, told: threading.Event = answered) -> None:
                told.set()

            db.queries["soon"].subscribe(tell)
            db.push("s", [(1, 1, 1.0)])
            assert answered.wait(60)
            assert db.queries["patient"].fetch(wait=False).num_rows == 0


def test_who_is_behind_reads_on_where_it_was(tmp_path: Path) -> None:
    """A query moves into a part that is further; that part goes back, and nobody gets anything twice."""
    with opened(tmp_path, trigger=3600, batch_rows=1) as db:
        behind, ahead = (query(db, n, "SELECT v FROM s", p) for n, p in (("behind", 1), ("ahead", 9)))
        for i in range(4):
            db.push("s", [(i, 1, float(i))])
        assert values(ahead.fetch(), "v") == [0.0, 1.0, 2.0, 3.0]
        assert behind.fetch(wait=False).num_rows == 0
        db.configure(threading="direct")
        assert parts(db) == [{"behind", "ahead"}]
    with opened(tmp_path, trigger=3600, batch_rows=1) as db:
        db.push("s", [(4, 1, 4.0)])
        assert values(db.queries["behind"].fetch(), "v") == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert values(db.queries["ahead"].fetch(), "v") == [4.0]


def test_a_query_comes_back_to_a_part_that_has_not_worked_meanwhile(tmp_path: Path) -> None:
    """What that part remembers of it is old."""
    with opened(tmp_path, shards=1) as db:
        db.execute("CREATE STREAM r (t BIGINT) TIMESTAMP BY t")
        query(db, "other", "SELECT t FROM r")
        q = query(db, "q", "SELECT ISTREAM count(*) AS n FROM s [ROWS 1000]")
        found: list[object] = []
        for i in range(12):
            db.configure(threading=("direct", "operator")[i % 2])
            db.push("s", [(i, 1, 1.0)])
            found += values(q.fetch(), "n")
        assert found == list(range(1, 13))


class TwoCores(Direct):
    """However many shards there are."""

    def __init__(self, options: SparkOptions) -> None:
        super().__init__(options)
        self.known_cores = 2


def test_there_are_no_more_parts_than_cores(tmp_path: Path) -> None:
    with directly(TwoCores), opened(tmp_path, shards=8) as db:
        for name, priority in (("a", 1), ("b", 5), ("c", 9), ("d", 9)):
            query(db, name, "SELECT v FROM s", priority)
        assert len(parts(db)) == 2
        for setting in ("operator", "graph", "hybrid", "direct", "operator"):
            db.configure(threading=setting)
            assert len(parts(db)) == (1 if setting == "direct" else 2)
        db.push("s", [(1, 1, 1.0)])
        db.settle()
        assert [values(db.queries[name].fetch(), "v") for name in "abcd"] == [[1.0]] * 4
        query(db, "e", "SELECT v FROM s")
        assert len(parts(db)) == 2


def test_a_directory_comes_to_a_machine_with_fewer_cores(tmp_path: Path) -> None:
    with opened(tmp_path, shards=8) as db:
        db.configure(threading="operator")
        for name in "abcd":
            query(db, name, "SELECT k, sum(v) AS t FROM s [ROWS 3] GROUP BY k")
        db.push("s", [(1, 1, 1.0)])
        assert len(parts(db)) == 4
    with directly(TwoCores), opened(tmp_path) as db:
        assert len(parts(db)) == 2
        db.push("s", [(2, 1, 2.0)])
        assert [values(db.queries[name].fetch(), "t")[-1] for name in "abcd"] == [3.0] * 4


class Costly(Direct):
    """Says that one query took long."""

    def run(self, part: Part, tasks: Sequence[Task]) -> list[Report | Trouble]:
        costly = next(iter(part.queries))
        reports: list[Report | Trouble] = []
        for report in super().run(part, tasks):
            assert isinstance(report, Report)
            outcomes = {id: replace(o, seconds=60.0 * (id == costly)) for id, o in report.outcomes.items()}
            reports.append(replace(report, outcomes=outcomes))
        return reports


def test_a_query_that_makes_others_wait_gets_a_part_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "WINDOW", 0.0)
    with directly(Costly), opened(tmp_path) as db:
        for name in ("costly", "b"):
            query(db, name, "SELECT k, count(*) AS n FROM s [ROWS 100] GROUP BY k")
        for i in range(load.BATCHES):
            db.push("s", [(i, 1, 1.0)])
        assert parts(db) == [{"costly"}, {"b"}]
        db.push("s", [(100, 1, 1.0)])
        for q in db.queries.values():
            assert values(q.fetch(), "n")[-1] == load.BATCHES + 1
    with opened(tmp_path) as db:
        assert {"costly"} in parts(db), "also after a restart"
        db.configure(threading="hybrid")
        assert parts(db) == [{"costly", "b"}], "measured anew"


def test_a_query_that_makes_others_wait_stays_where_no_core_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Costly, TwoCores):
        pass

    monkeypatch.setattr(load, "WINDOW", 0.0)
    with directly(Full), opened(tmp_path) as db:
        for name, priority in (("costly", 5), ("b", 5), ("alarm", 9)):
            query(db, name, "SELECT k, count(*) AS n FROM s [ROWS 100] GROUP BY k", priority)
        for i in range(2 * load.BATCHES):
            db.push("s", [(i, 1, 1.0)])
        assert parts(db) == [{"costly", "b"}, {"alarm"}]
        db.queries["alarm"].stop()
        for i in range(2 * load.BATCHES):
            db.push("s", [(100 + i, 1, 1.0)])
        assert parts(db) == [{"costly"}, {"b"}]


# -- all ends -----------------------------------------------------------------------------------------


def test_threads_and_state_end_with_their_part(tmp_path: Path) -> None:
    before = threads()
    folder = tmp_path / "db" / "shards"
    with opened(tmp_path, trigger=0, shards=4) as db:
        for name in "abcd":
            query(db, name, "SELECT v FROM s")
        db.configure(threading="operator")
        db.push("s", [(1, 1, 1.0)])
        db.settle()
        assert len(threads() - before) == 4
        db.queries["b"].stop()
        db.configure(threading="direct")
        for thread in [t for t in threads() - before if not t.name.endswith("part-0")]:
            thread.join(60)
        assert [t.name for t in threads() - before] == ["penstock-part-0"]
        db.push("s", [(2, 1, 2.0)])
        db.settle()
        assert len(list(folder.glob("part-*"))) == 4, "a saved state may need them"
        for i in range(3):
            db.push("s", [(3 + i, 1, 2.0)])
            db.settle()
            host_of(db).save()
        assert [p.name for p in folder.glob("part-*")] == ["part-0"]
    assert threads() == before


def test_closing_while_parts_wait_for_their_turn(tmp_path: Path) -> None:
    before = threads()
    db = opened(tmp_path, trigger=0)
    db.configure(threading="operator", workers=1)
    db.create_function("blocked", blocked, args=["DOUBLE"], returns="DOUBLE")
    for name in "abc":
        query(db, name, "SELECT blocked(v) AS v FROM s")
    db.push("s", [(1, 1, 1.0)])
    assert is_blocked.wait(60)
    closing = threading.Thread(target=db.close)
    closing.start()
    while not db.closed:
        time.sleep(0.001)
    open_gate.set()
    closing.join(60)
    assert not closing.is_alive()
    assert threads() == before
    with opened(tmp_path, trigger=0) as db:
        for name in "abc":
            assert values(db.queries[name].fetch(), "v") == [1.0]


def test_a_failing_query_stops_no_other(tmp_path: Path) -> None:
    def picky(v: float) -> float:
        if v > 2:
            raise ValueError("too much")
        return v

    with opened(tmp_path, trigger=0) as db:
        db.create_function("picky", picky, args=["DOUBLE"], returns="DOUBLE")
        db.configure(threading="operator")
        db.execute("CREATE QUERY bad AS SELECT picky(v) AS v FROM s WITH (strict = true)")
        good = query(db, "good", "SELECT v FROM s")
        for i in range(5):
            db.push("s", [(i, 1, float(i))])
        assert values(good.fetch(), "v") == [0.0, 1.0, 2.0, 3.0, 4.0]
        bad = db.queries["bad"]
        assert values(bad.fetch(), "v") == [0.0, 1.0, 2.0]
        with pytest.raises(penstock.QueryFailed, match="too much"):
            bad.fetch()


class Streamless(Cluster):
    """Notes which parts have a streaming query."""

    asked: set[str]
    streams = threading.Event()
    """A part that rested has one."""

    def begin(self, host: SparkHost) -> None:
        self.asked = set()

    def _streamed(self, part: Part | Inflow) -> None:
        assert isinstance(part, Part)
        self.asked.add(f"{part.id} {'rests' if part.rests else 'works'}")
        if part.id == 1:
            self.streams.set()
        part.retry.wait()


def test_a_part_that_rests_has_no_streaming_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "Cluster", Streamless)
    with opened(tmp_path, trigger=0, shards=2, master="local[2]") as db:
        for name in "ab":
            query(db, name, "SELECT v FROM s")
        db.execute("SUSPEND QUERY b")
        assert [part.rests for part in host_of(db).parts] == [False, True]
        db.push("s", [(1, 1, 1.0)])
        db.execute("ALTER QUERY b SET (priority = 5)")
        assert not Streamless.streams.is_set()
        host_of(db).parts.settings = Settings("operator")
        db.execute("RESUME QUERY b")
        assert Streamless.streams.wait(60), "it works from here on"
        cluster = host_of(db).cluster
        assert isinstance(cluster, Streamless)
    assert {"0 works", "1 works"} <= cluster.asked
    assert "1 rests" not in cluster.asked


# -- on Spark itself ----------------------------------------------------------------------------------


def test_pools_and_the_end_of_a_long_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    started = str(tmp_path / "started")

    def endless(v: float) -> float:
        import time

        open(started, "w").close()
        time.sleep(600)
        return v

    before = threads()
    with opened(tmp_path, trigger=0) as db:
        db.create_function("endless", endless, args=["DOUBLE"], returns="DOUBLE")
        alarm = query(db, "alarm", "SELECT v FROM s", 9)
        db.push("s", [(1, 1, 1.0)])
        assert values(alarm.fetch(), "v") == [1.0]
        assert "priority 9: FAIR pool penstock-9 with weight 512" in db.explain("alarm")
        slow = query(db, "slow", "SELECT endless(v) AS v FROM s [ROWS 1]", 0)
        db.push("s", [(2, 1, 2.0)])
        while not Path(started).exists():
            time.sleep(0.01)
        assert values(alarm.fetch(), "v") == [2.0]
        stopped = {t for t in threads() - before if t.name == "penstock-part-1"}
        slow.stop()
        for thread in stopped:
            thread.join(60)
        assert [t.is_alive() for t in stopped] == [False]
        Path(started).unlink()
        query(db, "again", "SELECT endless(v) AS v FROM s [ROWS 1]", 0)
        db.push("s", [(3, 1, 3.0)])
        while not Path(started).exists():
            time.sleep(0.01)
        assert values(alarm.fetch(), "v") == [3.0]
    assert threads() == before


def test_suspended_queries_have_a_part_of_their_own() -> None:
    some = [Member("a", 5), Member("b", 5, suspended=True), Member("c", 9), Member("d", 1, suspended=True)]
    for way in ("direct", "hybrid", "graph", "operator"):
        *working, resting = groups(some, Settings(way), 4)
        assert resting == ("b", "d")
        assert sorted(id for group in working for id in group) == ["a", "c"]
    assert groups(some, Settings("direct"), 1) == [("a", "c"), ("b", "d")], "it is one more than there may be"
