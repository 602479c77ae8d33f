"""What goes wrong in one query stays there, and threads end when they should."""

from __future__ import annotations

import contextlib
import threading

import pytest

import penstock
from penstock.runtime.settings import THREADING

DECLARE = "CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t"


def picky(value: int) -> int:
    if value == 13:
        raise RuntimeError("thirteen")
    return value


_before: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Databases that other tests have left open are nobody's concern here."""
    _before.clear()
    _before.update(threading.enumerate())


def workers() -> list[str]:
    found = (t for t in threading.enumerate() if t not in _before)
    return [t.name for t in found if t.name.startswith("penstock")]


def left() -> list[str]:
    """The threads that do not end."""
    for thread in set(threading.enumerate()) - _before:
        if thread.name.startswith("penstock"):
            thread.join(30)
    return workers()


@pytest.mark.parametrize("way", THREADING)
def test_an_operator_that_raises_stops_the_queries_that_need_it(way: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.create_function("picky", picky, args=["BIGINT"], returns="BIGINT")
        db.configure(threading=way)
        bad = db.query("SELECT picky(a) AS b FROM s WHERE a > 0", name="bad")
        also = db.query("SELECT sum(picky(a)) AS b FROM s WHERE a > 0", name="also")
        good = db.query("SELECT a FROM s WHERE a > 0", name="good")
        db.push("s", [(1, 1)])
        db.settle()
        db.push("s", [(i, i) for i in range(2, 40)])
        db.push("s", [(41, 41)])
        assert good.fetch()["a"].to_pylist() == [*range(1, 40), 41]
        assert (good.status, bad.status, also.status) == ("running", "failed", "failed")
        assert bad.trouble is not None
        assert "thirteen" in bad.trouble
        assert "query `bad`" in bad.trouble
        assert "query `also`" not in bad.trouble
        assert "picky" in bad.trouble  # the operator, and the traceback
        assert "a=13" in bad.trouble  # the element
        assert "line" in bad.trouble
        assert bad.fetch()["b"].to_pylist()[:1] == [1]
        with pytest.raises(penstock.QueryFailed, match="thirteen"):
            bad.fetch()
        # Only what the others need is left.
        assert {q for o in db.graph().operators for q in o.queries} == {"good"}
        again = db.query("SELECT picky(a) AS b FROM s WHERE a > 0", name="again")
        db.push("s", [(50, 50)])
        assert again.fetch()["b"].to_pylist() == [50]
    assert workers() == []


def test_a_group_of_filters_goes_on_without_the_one_that_raises() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.create_function("picky", picky, args=["BIGINT"], returns="BIGINT")
        queries = [db.query(f"SELECT a FROM s WHERE a = {i}") for i in range(10, 16)]
        bad = db.query("SELECT a FROM s WHERE picky(a) = a")
        db.push("s", [(i, i) for i in range(30)])
        assert [q.fetch()["a"].to_pylist() for q in queries] == [[i] for i in range(10, 16)]
        assert bad.status == "failed"
        assert "a=13" in (bad.trouble or "")


@pytest.mark.parametrize("way", ["graph", "operator", "hybrid"])
def test_closing_in_the_middle_of_a_batch_ends_all_threads(way: str) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(value: int) -> int:
        began.set()
        go_on.wait()
        return value

    db = penstock.connect(engine="local")
    db.execute(DECLARE)
    db.create_function("slow", slow, args=["BIGINT"], returns="BIGINT")
    db.query("SELECT slow(a) AS b FROM s")
    db.configure(threading=way)
    db.push("s", [(1, 1)])
    assert began.wait(30)
    closing = threading.Thread(target=db.close)
    closing.start()
    go_on.set()
    closing.join(30)
    assert not closing.is_alive()
    assert workers() == []


@pytest.mark.parametrize("way", ["graph", "operator", "hybrid"])
def test_stopping_a_query_in_the_middle_of_a_batch(way: str) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(value: int) -> int:
        began.set()
        go_on.wait()
        return value

    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.create_function("slow", slow, args=["BIGINT"], returns="BIGINT")
        slowly = db.query("SELECT slow(a) AS b FROM s")
        fast = db.query("SELECT a FROM s")
        db.configure(threading=way)
        db.push("s", [(1, 1), (2, 2)])
        assert began.wait(30)
        stopping = threading.Thread(target=slowly.stop)
        stopping.start()
        go_on.set()
        stopping.join(30)
        assert not stopping.is_alive()
        db.push("s", [(3, 3)])
        assert fast.fetch()["a"].to_pylist() == [1, 2, 3]


BAD = {
    "threading": ({"threading": "many"}, "direct, graph, operator, hybrid"),
    "strategy": ({"strategy": "fio"}, "fifo"),
    "setting": ({"thread": "graph"}, "threading"),
    "workers": ({"workers": 0}, "1 or more"),
    "quantum": ({"experiments": {"quantum": "soon"}}, "10 seconds"),
    "query": ({"query": "nobody", "threading": "graph"}, "none is registered"),
    "of a query": ({"query": "q", "workers": 3}, "threading"),
    "placement": ({"experiments": {"placement": "anywhere"}}, "stall-avoiding"),
}


@pytest.mark.parametrize(("settings", "told"), BAD.values(), ids=BAD)
def test_bad_settings_say_what_would_be_right(settings: dict[str, object], told: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        if settings.get("query") == "q":
            db.query("SELECT a FROM s", name="q")
        with pytest.raises(penstock.PenstockError) as caught:
            db.configure(**settings)  # type: ignore[arg-type]
        assert told in str(caught.value)
        assert db.graph().threading == "direct"
        assert workers() == []


def test_a_part_of_the_graph_may_be_run_in_another_way() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        direct = db.query("SELECT a FROM s WHERE a > 1", name="direct")
        apart = db.query("SELECT count(*) AS n FROM s [ROWS 3]", name="apart")
        db.configure(query="apart", threading="operator", strategy="fifo")
        db.push("s", [(1, 1), (2, 2)])
        workers_of = {p.id: p.worker for p in db.graph().partitions}
        run_by = {o.kind: workers_of[o.partition] for o in db.graph().operators if o.queries == ("apart",)}
        assert run_by["aggregate"] is not None
        assert direct.fetch()["a"].to_pylist() == [2]
        assert apart.fetch()["n"].to_pylist()[-1] == 2
        apart.stop()
        db.push("s", [(3, 3)])
        assert direct.fetch()["a"].to_pylist() == [3]


def test_subscribers_are_called_while_workers_work() -> None:
    seen: list[int] = []
    done = threading.Event()

    def take(table: object) -> None:
        seen.extend(table.column("a").to_pylist())  # type: ignore[attr-defined]
        if len(seen) == 100:
            done.set()

    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.configure(threading="hybrid", workers=2)
        db.query("SELECT a FROM s").subscribe(take)
        for i in range(100):
            db.push("s", [(i, i)])
        assert done.wait(30)
    assert seen == list(range(100))


def test_a_suspended_operator_waits_and_goes_on() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        q, other = db.query("SELECT a FROM s WHERE a > 1"), db.query("SELECT a + 1 AS b FROM s")
        (filter,) = [o for o in db.graph().operators if o.kind == "filter"]
        db.suspend(filter.id)
        db.push("s", [(i, i) for i in range(5)])
        (edge,) = [e for e in db.graph().edges if e.target == filter.id]
        assert edge.buffer is not None
        assert edge.buffer.elements == 5
        assert {o.id: o.state for o in db.graph().operators}[filter.id] == "suspended"
        assert q.fetch().num_rows == 0
        assert other.fetch().num_rows == 5
        with pytest.raises(penstock.PenstockError, match="suspended already"):
            db.suspend(filter.id)
        db.resume(filter.id)
        assert q.fetch()["a"].to_pylist() == [2, 3, 4]
        with pytest.raises(penstock.PenstockError, match="not suspended"):
            db.resume(filter.id)
        with pytest.raises(penstock.PenstockError, match="no operator 999"):
            db.suspend(999)


def test_a_query_over_a_shared_join_that_is_behind_one_of_its_streams() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("""CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
                         CREATE STREAM r (t BIGINT, k BIGINT, w DOUBLE) TIMESTAMP BY t""")
        db.configure(threading="graph")
        db.push("s", [(1000, 1, 1.0)])
        joined = "r.w + 1 AS x, s.v FROM s [RANGE 5] RIGHT JOIN r [RANGE 6] ON s.k = r.k"
        db.query(f"SELECT {joined}")
        leaving = db.query(f"SELECT DSTREAM {joined}")
        db.push("r", [(5, 1, 1.0), (7, 1, 2.0), (30, 1, 3.0)])
        found = [tuple(row.values()) for row in leaving.fetch().to_pylist()]
        assert found == [(11, "+", 2.0, None), (13, "+", 3.0, None)]


@pytest.mark.parametrize("way", ["graph", "operator", "hybrid"])
def test_closing_from_a_subscriber(way: str) -> None:
    for _ in range(20):
        db = penstock.connect(engine="local")
        db.execute(DECLARE)
        db.configure(threading=way)
        q = db.query("SELECT a FROM s")
        other = db.query("SELECT a + 1 AS b FROM s")
        q.subscribe(lambda _, db=db: db.close())  # type: ignore[misc]
        db.push("s", [(1, 1)])
        with contextlib.suppress(penstock.PenstockError):
            other.fetch()
        db.close()
        assert left() == []  # who is called back cannot wait for the thread that calls


@pytest.mark.parametrize("way", THREADING)
def test_what_was_pushed_before_a_stop_is_answered(way: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.configure(threading=way)
        q = db.query("SELECT a, count(*) AS n FROM s [ROWS 5] GROUP BY a")
        db.push("s", [(i, i % 3) for i in range(2_000)])
        q.stop()
        assert q.fetch().num_rows > 2_000


def test_answers_come_to_a_new_subscriber_in_order() -> None:
    go_on, seen = threading.Event(), []

    def slow(value: int) -> int:
        if value == 2:
            go_on.wait()
        return value

    def take(table: object) -> None:
        values = table.column("b").to_pylist()  # type: ignore[attr-defined]
        if values == [1]:
            go_on.set()
        seen.extend(values)

    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.create_function("slow", slow, args=["BIGINT"], returns="BIGINT")
        db.configure(threading="graph")
        q = db.query("SELECT slow(a) AS b FROM s")
        db.push("s", [(1, 1)])
        db.settle()
        db.push("s", [(2, 2)])
        q.subscribe(take, position=0)
        db.settle()
    assert seen == [1, 2]


def test_settings_of_a_query_go_with_it() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        for i in range(5):
            db.query(f"SELECT a + {i} AS b FROM s", name=f"q{i}")
        db.configure(query="q0", threading="operator")
        db.push("s", [(1, 1)])
        assert len(workers()) > 1
        db.queries["q0"].stop()
        assert left() == []
        again = db.query("SELECT a AS b FROM s", name="q0")
        for i in range(2, 50):
            db.push("s", [(i, i)])
            assert again.fetch(wait=False)["b"].to_pylist() == [i]


def test_subscribers_may_configure() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        ways = iter(["direct", "operator", "graph", "direct", "hybrid", "direct"] * 5)
        q, other = db.query("SELECT a FROM s"), db.query("SELECT a + 1 AS b FROM s")
        q.subscribe(lambda _: db.configure(threading=next(ways)))
        found = []
        for i in range(30):
            db.push("s", [(i, i)])
            db.settle()
            found += other.fetch()["b"].to_pylist()
        found += other.fetch()["b"].to_pylist()
        assert found == list(range(1, 31))


def test_sources_are_not_suspended() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.query("SELECT a FROM s")
        (source,) = [o for o in db.graph().operators if o.kind == "source"]
        with pytest.raises(penstock.PenstockError, match="where rows come in"):
            db.suspend(source.id)


def test_a_suspended_query_is_left_alone_by_others() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        one = db.query("SELECT a, count(*) AS n FROM s [RANGE 10] WHERE a <> 1 GROUP BY a")
        (window,) = [o for o in db.graph().operators if o.kind == "window"]
        db.suspend(window.id)
        two = db.query("SELECT a, count(*) AS n FROM s [RANGE 10] WHERE a <> 2 GROUP BY a")
        db.push("s", [(1, 1), (2, 2), (3, 3)])
        assert one.fetch().num_rows == 0
        assert two.fetch()["a"].to_pylist() == [1, 3]
        db.resume(window.id)
        assert one.fetch()["a"].to_pylist() == [2, 3]
