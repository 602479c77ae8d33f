"""Buffers come and go while rows are on their way, some of them ahead of their place: no answer is another one.

The interleaving is chosen: a worker stands in a function of a query while rows wait behind it, and after every pause
the workers work off all that they can before the thread that paused them does anything else.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts.local import placing
from penstock.hosts.local.host import LocalHost
from penstock.runtime import run
from penstock.runtime.worker import Worker
from tests.graph.schedules import working_after_pauses

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT, p BIGINT) TIMESTAMP BY t PRIORITY BY p;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
INSERT INTO names VALUES (0, 'zero'), (1, 'one');
"""
QUERIES = {
    "counted": "SELECT k, count(*) AS n, sum(v) AS m FROM s [ROWS 3] GROUP BY k",
    "named": "SELECT ISTREAM s.v, name FROM s [RANGE 5], names WHERE s.k = names.k",
    "paired": "SELECT ISTREAM x.v, y.v AS w FROM s [RANGE 3] AS x, s [RANGE 4] AS y WHERE x.k = y.k",
}
FIRST = [(1, 0, 1, 0)]
WAITING = [[(2, 1, 2, 0), (3, 0, 3, 9), (4, 1, 4, 0)], [(5, 0, 5, 2), (6, 1, 6, 0), (7, 1, 7, 9), (8, 0, 8, 0)]]
LAST = [(9, 0, 9, 0), (20, 1, 10, 0)]
Answers = dict[str, Counter[object]]
Move = Callable[[penstock.Database], object]


@dataclass
class Schedule:
    """Where the worker stands until the first pause."""

    at_work: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def stand(self, v: int) -> int:
        """Called by a worker with the first row of all."""
        self.at_work.set()
        self.goes_on.wait()
        return v


def answers(db: penstock.Database) -> Answers:
    found: Answers = {}
    for name, query in db.queries.items():
        table = query.fetch()
        found[name] = Counter(zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True))
    return found


def lived(engine: str, before: Move, move: Move, after: Move) -> Answers:
    schedule = Schedule()
    with penstock.connect(engine=engine) as db:
        if engine == "local":
            db.configure(threading="hybrid", workers=2)
        else:
            schedule.goes_on.set()
        db.execute(DECLARE)
        db.create_function("stand", schedule.stand, args=["BIGINT"], returns="BIGINT")
        db.query("SELECT stand(v) AS v FROM s", name="standing")
        for name, text in QUERIES.items():
            db.query(text, name=name)
        before(db)
        db.push("s", FIRST)
        schedule.at_work.wait()
        for rows in WAITING:
            db.push("s", rows)
        with working_after_pauses(db, schedule.goes_on.set):
            move(db)
        schedule.goes_on.set()
        db.push("s", LAST)
        db.settle()
        after(db)
        db.close_stream("s")
        return answers(db)


def nothing(db: penstock.Database) -> None:
    """So it begins, or ends."""


def configured(**settings: Any) -> Move:
    """Another way to run the graph; the reference has only one."""

    def configure(db: penstock.Database) -> None:
        if isinstance(host := core_of(db).host, LocalHost):
            db.configure(**settings)
            assert host.runtime.settings.threading == settings.get("threading", "hybrid")

    return configure


def placed_again(db: penstock.Database) -> None:
    """Every operator is measured to be so slow that it is a virtual operator of its own."""
    if not isinstance(host := core_of(db).host, LocalHost):
        return
    before = len(host.runtime.all_buffers)
    for vertex in host.graph.vertices.values():
        vertex.stats.busy += 10**12
        vertex.stats.elements_in += 10
    for _ in range(2):
        host._place_again()
    assert len(host.runtime.all_buffers) > before


def suspend(db: penstock.Database) -> None:
    for name in QUERIES:
        db.execute(f"SUSPEND QUERY {name}")


def resume(db: penstock.Database) -> None:
    for name in QUERIES:
        db.execute(f"RESUME QUERY {name}")


def query(db: penstock.Database) -> None:
    for name, text in QUERIES.items():
        db.query(text, name=f"{name} too")
    db.query("SELECT v FROM s WHERE k >= 0", name="younger")


@pytest.mark.parametrize(
    ("before", "move", "after"),
    [
        pytest.param(nothing, suspend, resume, id="suspend"),
        pytest.param(suspend, resume, nothing, id="resume"),
        pytest.param(nothing, query, nothing, id="query"),
        pytest.param(nothing, configured(threading="graph"), nothing, id="graph"),
        pytest.param(configured(threading="graph"), configured(threading="hybrid"), nothing, id="hybrid"),
        pytest.param(configured(threading="operator"), configured(threading="direct"), nothing, id="direct"),
        pytest.param(nothing, configured(mode="normal"), nothing, id="normal"),
        pytest.param(configured(mode="direct"), configured(threading="operator"), nothing, id="operator"),
        pytest.param(nothing, placed_again, nothing, id="placed again"),
    ],
)
@pytest.mark.parametrize("long", [0, run.LONG])
def test_rows_ahead_of_their_place_are_answered_once_while_buffers_come_and_go(
    before: Move, move: Move, after: Move, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LONG", long)
    found = lived("local", before, move, after)
    assert found == lived("reference", before, move, after)


@pytest.mark.parametrize(
    ("way", "settings"),
    [
        ("hybrid", {"workers": 3}),
        ("hybrid", {"workers": 1}),
        ("hybrid", {"mode": "normal"}),
        ("hybrid", {"memory": 0, "disk": "1 GB"}),
        ("operator", {"query": "younger", "strategy": "chain-flush"}),
        ("operator", {"query": "younger", "mode": "direct"}),
        ("operator", {"query": "younger", "mode": "normal", "strategy": "weighted-round-robin+"}),
    ],
)
def test_settings_that_move_no_buffer_change_while_a_worker_stands(way: str, settings: dict[str, Any]) -> None:
    """A pause would wait for the worker, which here stands until the setting has changed."""
    schedule = Schedule()
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.create_function("stand", schedule.stand, args=["BIGINT"], returns="BIGINT")
        db.query("SELECT stand(v) AS v FROM s", name="standing", priority=1)
        db.query("SELECT v FROM s WHERE k >= 0", name="younger")
        db.configure(threading=way, workers=2)
        db.push("s", FIRST)
        schedule.at_work.wait()
        db.push("s", WAITING[0])
        changing = threading.Thread(target=lambda: db.configure(**settings), daemon=True)
        changing.start()
        changing.join(60)
        stands = changing.is_alive()
        schedule.goes_on.set()
        changing.join()
        assert not stands, "it waited for the worker"
        db.push("s", WAITING[1])
        for name in ("standing", "younger"):
            found = db.queries[name].fetch()["v"].to_pylist()
            assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_query_is_resumed_while_another_worker_stands() -> None:
    """What waits for it is worked off by its own worker, and the buffer in front of it goes when it is not needed."""
    schedule = Schedule()
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE + "CREATE STREAM d AS SELECT k, v FROM s WHERE k >= 0")
        db.create_function("stand", lambda v: schedule.stand(v) if v > 10 else v, args=["BIGINT"], returns="BIGINT")
        db.query("SELECT stand(v) AS v FROM s", name="standing", priority=1)
        db.query("SELECT v FROM d", name="other")
        resting = db.query("SELECT v + 1 AS w FROM d", name="resting")
        db.configure(threading="hybrid", workers=2)
        resting.suspend()
        for rows in (FIRST, *WAITING):
            db.push("s", rows)
        db.settle()
        db.push("s", [(9, 0, 11, 0)])
        schedule.at_work.wait()
        resuming = threading.Thread(target=resting.resume, daemon=True)
        resuming.start()
        resuming.join(60)
        stands = resuming.is_alive()
        schedule.goes_on.set()
        resuming.join()
        assert not stands, "it waited for the worker"
        assert sorted(resting.fetch()["w"].to_pylist()) == [2, 3, 4, 5, 6, 7, 8, 9, 12]
        host = core_of(db).host
        assert isinstance(host, LocalHost)
        assert buffers_inside(host)
        host._place_again()
        assert not buffers_inside(host)


def set_apart(db: penstock.Database) -> None:
    """The operators of one query are measured to be so slow that each is a virtual operator of its own."""
    host = core_of(db).host
    assert isinstance(host, LocalHost)
    before = len(host.runtime.partitions())
    for vertex in host.graph.members["resting"].vertices:
        vertex.stats.busy += 10**12
        vertex.stats.elements_in += 10
    with core_of(db).lock:
        for _ in range(2):
            host._place_again()
    assert len(host.runtime.partitions()) > before


def resting(db: penstock.Database) -> int:
    """An operator that only one query needs, behind one that it shares."""
    return next(o.id for o in db.graph().operators if o.kind == "window" and o.queries == ("resting",))


CHANGES: dict[str, Move] = {
    "suspend": lambda db: db.execute("SUSPEND QUERY resting"),
    "operator": lambda db: db.suspend(resting(db)),
    "placed again": set_apart,
    "query": lambda db: db.query("SELECT w + 1 AS w FROM elsewhere", name="younger"),
    "stop": lambda db: db.queries["resting"].stop(),
    "threading": lambda db: db.configure(threading="operator", query="resting"),
}
RUNS = [{"threading": "hybrid", "workers": 2}, {"threading": "hybrid", "workers": 20}, {"threading": "operator"}]


@pytest.fixture(autouse=True)
def as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are taken to cost what other operators do: only what a test measures moves buffers."""
    monkeypatch.setattr(placing, "PYTHON", placing.COLUMNAR)


def begun(db: penstock.Database, stand: Callable[[int], int], **settings: Any) -> None:
    """Two queries share operators over a stream that the query with the function does not read."""
    db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
    db.execute("CREATE STREAM elsewhere (t BIGINT, w BIGINT) TIMESTAMP BY t")
    db.execute("CREATE STREAM d AS SELECT w FROM elsewhere WHERE w >= 0")
    db.create_function("stand", stand, args=["BIGINT"], returns="BIGINT")
    db.query("SELECT stand(v) AS v FROM s", name="standing")
    for i in range(3):
        priority = 3 + i if settings.get("workers") == 2 else 5  # then threads take turns with virtual operators
        db.query(f"SELECT v + {i} AS v FROM s WHERE v > {i}", name=f"beside {i}", priority=priority)
    db.query("SELECT w FROM d", name="other")
    db.query("SELECT sum(w) AS w FROM d [ROWS 2]", name="resting")
    db.configure(**settings)


@pytest.mark.parametrize("settings", RUNS, ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_buffers_are_moved_while_another_worker_stands(change: str, settings: dict[str, Any]) -> None:
    """A pause of all would wait for the worker, which here stands until the change has been made and rows that came
    after it have been answered."""
    if change == "placed again" and settings["threading"] != "hybrid":
        pytest.skip("only hybrid threading places operators by what was measured")
    schedule, answered = Schedule(), threading.Event()
    with penstock.connect(engine="local") as db:
        begun(db, schedule.stand, **settings)
        db.queries["other"].subscribe(lambda rows: answered.set() if 40 in rows["w"].to_pylist() else None)
        db.push("elsewhere", [(1, 10), (2, 20)])
        db.settle()
        db.push("s", [(1, 1)])
        schedule.at_work.wait()
        db.push("elsewhere", [(3, 30)])
        changing = threading.Thread(target=CHANGES[change], args=(db,), daemon=True)
        changing.start()
        changing.join(60)
        stands = changing.is_alive()
        if not stands:
            db.push("elsewhere", [(4, 40)])
            assert answered.wait(60)
        schedule.goes_on.set()
        changing.join()
        assert not stands, "it waited for the worker"
        assert db.queries["standing"].fetch()["v"].to_pylist() == [1]
        assert db.queries["other"].fetch()["w"].to_pylist() == [10, 20, 30, 40]
        if change in ("suspend", "operator"):
            db.execute("RESUME QUERY resting") if change == "suspend" else db.resume(resting(db))
        if change != "stop":
            changes = db.queries["resting"].fetch()
            signs = [1 if op == "+" else -1 for op in changes["op"].to_pylist()]
            assert sum(s * w for s, w in zip(signs, changes["w"].to_pylist(), strict=True)) == 70


@pytest.mark.parametrize("settings", RUNS[:2], ids=str)
@pytest.mark.parametrize("change", ["suspend", "placed again"])
def test_a_worker_that_is_not_concerned_works_in_the_pause(
    change: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause waits for a worker, which stands until another one has worked on rows that had not been begun."""
    schedule, halted, worked = Schedule(), threading.Event(), threading.Event()
    gate = threading.Event()
    halt = Worker.halt

    def halting(worker: Worker) -> None:
        halt(worker)
        halted.set()

    def beside(v: int) -> int:
        if v == 1:
            gate.wait()
        else:
            worked.set()
        return v

    with penstock.connect(engine="local") as db:
        begun(db, beside, **settings)
        db.create_function("slow", schedule.stand, args=["BIGINT"], returns="BIGINT")
        db.query("SELECT slow(w) AS w FROM d", name="slow")
        db.configure(strategy="fifo")  # one batch after the other
        for rows in ([(1, 1)], [(2, 2)]):
            db.push("s", rows)
        db.push("elsewhere", [(1, 10)])
        schedule.at_work.wait()
        monkeypatch.setattr(Worker, "halt", halting)
        changing = threading.Thread(target=CHANGES[change], args=(db,), daemon=True)
        changing.start()
        try:
            assert halted.wait(60)
            gate.set()
            assert worked.wait(60)
            assert changing.is_alive()
        finally:
            gate.set()
            schedule.goes_on.set()
            changing.join()
        assert db.queries["standing"].fetch()["v"].to_pylist() == [1, 2]
        assert db.queries["slow"].fetch()["w"].to_pylist() == [10]


def buffers_inside(host: LocalHost) -> list[tuple[int, int]]:
    """The edges with a buffer whose ends are in one virtual operator."""
    of = host.runtime.partition_of
    ends = [(edge.source.id, edge.target.id) for edge in host.runtime.buffers]
    return [(a, b) for a, b in ends if of[a] == of[b]]
