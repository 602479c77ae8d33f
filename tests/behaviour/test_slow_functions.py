"""A Python function that takes its time holds those who change something, and nobody who reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.graph.answers import DeltaAnswers

STREAM = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
LONG = 40
"""Seconds after which a test has failed."""


def values(table: pa.Table) -> list[object]:
    return list(table["v"].to_pylist())


def at_once(call: Callable[[], Any]) -> Any:
    """What a call gives; it has failed if it waits for what is held in the test."""
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(call()), daemon=True)
    thread.start()
    thread.join(LONG / 4)
    assert given, "it waits"
    return given[0]


class Held:
    """A function for queries that does not return for the value 0 until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, value: int) -> int:
        if value == 0 and not self.go.is_set():
            self.entered.set()
            assert self.go.wait(LONG)
        return value

    @contextmanager
    def during(self, call: Callable[[], object]) -> Iterator[None]:
        """While a thread is in a call that calls the function; afterwards both return."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(call)
            try:
                assert self.entered.wait(LONG)
                yield
            finally:
                self.go.set()
            done.result(LONG)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.go.set()


@pytest.fixture(name="db", params=["local", "reference"])
def direct(request: pytest.FixtureRequest, held: Held) -> Iterator[penstock.Database]:
    with penstock.connect(engine=request.param) as db:
        db.create_function("held", held, args=["BIGINT"], returns="BIGINT")
        db.execute(STREAM)
        yield db


def test_nobody_who_reads_waits_for_a_function(db: penstock.Database, held: Held) -> None:
    slow = db.query("SELECT held(v) AS v FROM s", name="slow")
    other = db.query("SELECT v FROM s [ROWS 2] ORDER BY v LIMIT 5", name="other")
    db.push("s", [(1, 1), (2, 2)])
    heard: list[object] = []
    with held.during(lambda: db.push("s", [(3, 0)])):
        for query in (slow, other):
            assert at_once(partial(getattr, query, "waiting")) == 2
            assert at_once(partial(getattr, query, "status")) == "running"
            assert at_once(partial(getattr, query, "answered")) == 2
            assert values(at_once(query.peek)) == [1, 2]
            at_once(partial(query.subscribe, lambda table: heard.extend(values(table)), position=0))
            assert at_once(partial(query.wait, 0.01)) is False
        assert heard == [1, 2, 1, 2]
        assert values(at_once(lambda: next(iter(slow)))) == [1, 2]
        assert values(at_once(lambda: slow.fetch(wait=False))) == []
        assert values(at_once(slow.fetch)) == []
        assert values(at_once(other.ranking)) == [1, 2]
        assert values(at_once(other.current)) == [1, 2]
        assert values(at_once(lambda: other.fetch(wait=False))) == [1, 2]
        assert at_once(lambda: list(db.queries)) == ["slow", "other"]
        assert at_once(lambda: db.stream("s").given) in (2, 3)
    assert values(slow.fetch()) == [0]
    assert values(other.current()) == [0, 2]
    assert heard[4:] == [0, *values(other.fetch())]


def test_an_iteration_hears_at_once_of_what_a_function_held(db: penstock.Database, held: Held) -> None:
    query = db.query("SELECT held(v) AS v FROM s")
    with held.during(lambda: db.push("s", [(1, 0)])), ThreadPoolExecutor(1) as pool:
        batch = pool.submit(lambda: next(iter(query)))
        assert not batch.done()
        held.go.set()
        assert values(batch.result(LONG)) == [0]


def test_who_pushes_waits_and_takes_nothing_twice(db: penstock.Database, held: Held) -> None:
    query = db.query("SELECT held(v) AS v FROM s")
    with ThreadPoolExecutor(1) as pool, held.during(lambda: db.push("s", [(1, 0)])):
        second = pool.submit(lambda: db.push("s", [(2, 5)]))
        assert values(at_once(lambda: query.fetch(wait=False))) == []
        held.go.set()
        second.result(LONG)
    assert values(query.fetch()) == [0, 5]


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_time_that_passes_is_no_reason_to_wait(engine: str, held: Held) -> None:
    now = [1_000]
    with penstock.connect(engine=engine, clock=lambda: now[0]) as db:
        db.create_function("held", held, args=["BIGINT"], returns="BIGINT")
        db.execute("CREATE STREAM a (v BIGINT)")
        slow = db.query("SELECT held(v) AS v FROM a")
        query = db.query("SELECT count(*) AS v FROM a [TUMBLING 1 SECOND]")
        db.push("a", [(1,)])
        with held.during(lambda: db.push("a", [(0,)])):
            now[0] += 1_000_000
            assert values(at_once(lambda: slow.fetch(wait=False))) == [1]
            assert values(at_once(lambda: query.fetch(wait=False))) == []
            assert at_once(lambda: query.wait(0.2)) is False
        assert values(query.fetch()) == [2]


@pytest.mark.parametrize("look", ["current", "peek"])
def test_nobody_waits_while_a_table_is_built(monkeypatch: pytest.MonkeyPatch, held: Held, look: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        query = db.query("SELECT v FROM s [ROWS 2]")
        db.push("s", [(1, 1), (2, 2)])
        table = DeltaAnswers.table

        def slowly(self: DeltaAnswers, answers: Any) -> pa.Table:
            if threading.current_thread().name.startswith("ThreadPool"):
                held(0)
            return table(self, answers)

        monkeypatch.setattr(DeltaAnswers, "table", slowly)
        with held.during(getattr(query, look)):
            at_once(partial(db.push, "s", [(3, 3)]))
            assert at_once(lambda: query.waiting) == 4
            assert values(at_once(query.fetch)) == [1, 2, 1, 3]
            at_once(partial(db.push, "s", [(4, 4)]))
        assert values(query.current()) == [3, 4]


def test_what_stands_is_the_sum_whoever_looks_and_drops_meanwhile() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        db.execute("CREATE QUERY q AS SELECT v FROM s [ROWS 3] WITH (results = '10 rows')")
        query, over, heard = db.queries["q"], threading.Event(), list[object]()
        everything = db.query("SELECT v FROM s [ROWS 3]")
        everything.subscribe(lambda table: heard.extend(values(table)))
        instants = count()

        def push(first: int) -> None:
            for i in range(first, first + 150):
                db.push("s", [(1, i)])

        def look() -> int:
            while not over.is_set():
                found = values(query.current())
                assert len(found) == len(set(found)) <= 3
                query.peek()
                with suppress(penstock.ResultsGone):
                    query.fetch(wait=False)
                next(instants)
            return next(instants)

        with ThreadPoolExecutor(4) as pool:
            looking = [pool.submit(look) for _ in range(2)]
            pushing = [pool.submit(push, 1_000 * n) for n in range(2)]
            for each in pushing:
                each.result(LONG)
            over.set()
            assert max(each.result(LONG) for each in looking) > 2
        db.settle()
        assert everything.trouble is None
        assert query.answered == len(heard) == 597
        assert heard == values(everything.fetch()), "in the order of their positions"
        standing: list[object] = []
        for value in heard:
            (standing.remove if value in standing else standing.append)(value)
        assert sorted(values(query.current()), key=str) == sorted(standing, key=str)


CALLS: dict[str, Callable[[penstock.Database], object]] = {
    "push": lambda db: db.push("s", [(5, 50)]),
    "query": lambda db: db.query("SELECT v FROM s"),
    "statement": lambda db: db.execute("CREATE QUERY more AS SELECT v FROM s"),
    "declaration": lambda db: db.execute("CREATE STREAM x (t BIGINT) TIMESTAMP BY t"),
    "insert": lambda db: db.execute("INSERT INTO r VALUES (1)"),
    "stop": lambda db: db.queries["q"].stop(),
    "stop statement": lambda db: db.execute("STOP QUERY q"),
    "configure": lambda db: db.configure(threading="direct"),
    "heartbeat": lambda db: db.heartbeat("s", 9),
    "close_stream": lambda db: db.close_stream("s"),
    "function": lambda db: db.create_function("g", lambda: 1, args=[], returns="BIGINT"),
    "late": lambda db: db.late("s"),
    "settle": lambda db: db.settle(),
    "graph": lambda db: db.graph(),
    "wait": lambda db: db.queries["q"].wait(1.0),
    "close": lambda db: db.close(),
}


@pytest.mark.parametrize("how", ["direct", "graph", "hybrid"])
@pytest.mark.parametrize("call", CALLS)
def test_a_function_cannot_change_the_database_that_calls_it(call: str, how: str) -> None:
    told: list[str] = []

    def calling(value: int) -> int:
        if value == 1:
            with pytest.raises(penstock.StateError, match="a function that a query calls cannot do this") as refused:
                CALLS[call](db)
            told.append(str(refused.value.hint))
        return value

    with penstock.connect(engine="local") as db:
        db.configure(threading=how)
        db.create_function("calling", calling, args=["BIGINT"], returns="BIGINT")
        db.execute(STREAM)
        db.execute("CREATE RELATION r (k BIGINT) KEY (k)")
        query, plain = db.query("SELECT calling(v) AS v FROM s", name="q"), db.query("SELECT v FROM s")
        db.push("s", [(1, 1), (2, 2)])
        db.push("s", [(3, 3)])
        assert values(query.fetch()) == values(plain.fetch()) == [1, 2, 3]
        assert told
        assert "subscribe to the query" in told[0]
        assert db.stream("s").given == 3
        assert list(db.queries) == ["q", plain.name]
        assert list(db.catalog.streams) == ["s"]


def test_a_function_that_pushes_and_does_not_mind_fails_its_query_alone() -> None:
    with penstock.connect(engine="local") as db:
        db.create_function("f", lambda v: db.push("s", [(v, v)]), args=["BIGINT"], returns="BIGINT")
        db.execute(STREAM)
        query, plain = db.query("SELECT f(v) AS v FROM s"), db.query("SELECT v FROM s")
        db.push("s", [(1, 1)])
        with pytest.raises(penstock.QueryFailed, match="function `f` raised StateError: a function that a query calls"):
            query.fetch()
        db.push("s", [(2, 2)])
        assert values(plain.fetch()) == [1, 2]


def test_a_change_of_a_relation_calls_functions_that_cannot_change_anything() -> None:
    with penstock.connect(engine="local") as db:
        db.create_function("f", lambda v: db.push("r", [(v,)]), args=["BIGINT"], returns="BIGINT")
        db.execute("CREATE RELATION r (k BIGINT) KEY (k); INSERT INTO r VALUES (1)")
        with pytest.raises(penstock.InputError, match="a function that a query calls cannot do this"):
            db.execute("DELETE FROM r WHERE f(k) = 1")
        db.push("r", [(2,)])
        assert sorted(db.query("SELECT k AS v FROM r").current()["v"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("how", ["direct", "graph"])
def test_a_function_may_read_results_and_subscribe(how: str) -> None:
    seen: list[object] = []
    heard: list[object] = []

    def reading(value: int) -> int:
        if value == 2:
            seen.extend(values(plain.peek()))
            seen.extend(values(plain.fetch()))
            plain.subscribe(echo, position=1)
        return value

    def echo(table: pa.Table) -> None:
        heard.extend(values(table))
        if heard == [2]:
            db.push("s", [(9, 9)])

    with penstock.connect(engine="local") as db:
        db.create_function("reading", reading, args=["BIGINT"], returns="BIGINT")
        db.execute(STREAM)
        db.configure(threading=how)
        plain = db.query("SELECT v FROM s")
        db.push("s", [(1, 1)])
        db.settle()
        query = db.query("SELECT reading(v) AS v FROM s")
        db.push("s", [(2, 2)])
        db.settle()
        db.settle()
        assert seen[:2] == [1, 1]
        assert heard == [2, 9]
        assert values(query.fetch()) == [2, 9]
        assert plain.trouble is None


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_the_clock_is_asked_without_a_lock_and_stamps_never_go_back(engine: str) -> None:
    entered, go = threading.Event(), threading.Event()
    now = count(1_000)

    def clock() -> int:
        found = next(now)
        if threading.current_thread().name.startswith("ThreadPool"):
            entered.set()
            assert go.wait(LONG)
        return found

    with penstock.connect(engine=engine, clock=clock) as db, ThreadPoolExecutor(1) as pool:
        db.execute("CREATE STREAM a (v BIGINT); CREATE STREAM b (v BIGINT)")
        query = db.query("SELECT v FROM a")
        db.push("a", [(1,)])
        slow = pool.submit(db.push, "a", [(2,)])
        try:
            assert entered.wait(LONG)
            at_once(partial(db.push, "b", [(0,)]))
            at_once(partial(db.push, "a", [(3,)]))
        finally:
            go.set()
        slow.result(LONG)
        found = query.fetch()
        assert values(found) == [1, 3, 2]
        stamps = found["ts"].cast(pa.int64()).to_pylist()
        assert stamps == sorted(stamps)
        assert stamps[2] == stamps[1]
        assert db.stream("a").late == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_after_an_interrupt_in_a_callback_the_other_subscribers_hear_too(engine: str, rows: int) -> None:
    heard: list[object] = []
    later: list[object] = []

    def interrupted(table: pa.Table) -> None:
        if values(table)[0] == 1:
            raise KeyboardInterrupt

    with penstock.connect(engine=engine, trigger="push" if engine == "spark" else None) as db:
        db.execute(STREAM)
        query, other = db.query("SELECT v FROM s"), db.query("SELECT v + 10 AS v FROM s")
        query.subscribe(interrupted)
        query.subscribe(lambda table: heard.extend(values(table)))
        other.subscribe(lambda table: later.extend(values(table)))
        with pytest.raises(KeyboardInterrupt):
            db.push("s", [(i, i) for i in range(1, rows + 1)])
        assert heard == list(range(1, rows + 1))
        db.settle()
        assert later == [v + 10 for v in range(1, rows + 1)]
        assert query.status == "running"
        db.push("s", [(9, 9)])
        assert heard[-1] == 9


def test_what_a_callback_pushed_is_told_before_its_interrupt_is_raised() -> None:
    heard: list[object] = []
    told: list[object] = []

    def interrupted(table: pa.Table) -> None:
        told.extend(values(table))
        if told == [1]:
            db.push("s", [(2, 2)])
            raise KeyboardInterrupt

    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        query = db.query("SELECT v FROM s")
        query.subscribe(interrupted)
        query.subscribe(lambda table: heard.extend(values(table)))
        with pytest.raises(KeyboardInterrupt):
            db.push("s", [(1, 1)])
        assert told == heard == [1, 2]


@pytest.mark.parametrize("statement", ["INSERT INTO r VALUES (7)", "CREATE QUERY p AS SELECT v FROM r", "STOP QUERY q"])
def test_statements_call_subscribers_when_they_have_given_the_lock_back(statement: str) -> None:
    done: list[bool] = []

    def wait(table: pa.Table) -> None:
        thread = threading.Thread(target=db.push, args=("s", [(1, 1)]), daemon=True)
        thread.start()
        thread.join(LONG / 2)
        done.append(not thread.is_alive())

    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        db.execute("CREATE RELATION r (v BIGINT) KEY (v); INSERT INTO r VALUES (1)")
        query = db.query("SELECT v FROM r", name="q")
        if statement.startswith("INSERT"):
            query.subscribe(wait)
        else:
            query.subscribe(wait, position=0)
        db.execute(statement)
        assert done == [True]
