"""A graph that was saved, and restored from that, goes on as if nothing had happened."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal as OneOf

import experiments  # noqa: F401 - more of everything
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.graph.graph import Graph, Past
from penstock.graph.saving import restore, save
from penstock.hosts.host import QuerySettings
from penstock.hosts.local import host
from penstock.hosts.local.runner import GraphRunner
from penstock.model.errors import CheckpointError
from penstock.plan.nodes import Join, Query, transform
from penstock.storage.versions import StateStore
from tests.budget import examples
from tests.generated.language import Case
from tests.generated.lives import Life, Lived, counted, lives
from tests.generated.lives import lived as lived_with_relations
from tests.generated.running import comparable
from tests.graph import test_law
from tests.graph.saving import Restarts, graph_of, held, named, restarts, shape
from tests.state.programs import plan
from tests.state.test_early import found, parts, rows

RELAXED = [
    HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture
]  # fmt: skip
What = OneOf["nothing", "save", "restart"]
whats = st.lists(st.sampled_from(["nothing", "nothing", "save", "restart", "restart"]), max_size=40)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after every push for operators that have become the same; functions are told apart by name."""
    monkeypatch.setattr(host, "CONVERGE_EVERY", 1)

    def runner(self: host.LocalHost, query: Query, schema: pa.Schema, chosen: QuerySettings) -> GraphRunner:
        return GraphRunner(self, query, schema, replace(chosen, functions=named(chosen.functions)))

    monkeypatch.setattr(host.LocalHost, "runner", runner)


def turns(todo: Sequence[What], restarts: Restarts) -> Callable[[penstock.Database], None]:
    """Do the next of these things with the graph each time."""
    left = list(todo)

    def after(db: penstock.Database) -> None:
        what = left.pop(0) if left else "nothing"
        if what == "save":
            restarts.save(db)
        elif what == "restart":
            restarts.restart(db)

    return after


def sharing(db: penstock.Database) -> list[object]:
    """What there is in the graph now."""
    return [(v.id, v.kind, sorted(v.users), v.touched, v.state, held(v)) for v in graph_of(db).vertices.values()]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=RELAXED)
@given(life=lives(), todo=whats)
def test_databases_with_relations(life: Life, todo: list[What]) -> None:
    threads = any(step in ("configure graph", "configure operator") for step in life.steps)
    looks: list[list[object]] = [[], []]

    def lived(look: list[object], step: Callable[[penstock.Database], object]) -> Lived:
        def after(db: penstock.Database) -> None:
            step(db)
            look.append(None if threads else sharing(db))  # threads may be changing it

        return lived_with_relations(life, "local", after=after)

    straight = lived(looks[0], lambda db: None)
    with restarts() as again:
        saved = lived(looks[1], turns(todo, again))
    if threads:
        assert counted(saved) == counted(straight), str(life)
    else:
        assert saved == straight, str(life)
        assert looks[1] == looks[0], str(life)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=RELAXED)
@given(life=test_law.lives(), todo=whats)
def test_databases_that_are_run_in_every_way(life: tuple[Case, list[test_law.Event]], todo: list[What]) -> None:
    case, events = life
    with restarts() as again:
        saved = test_law.lived("local", case, events, turns(todo, again))
    assert saved == test_law.lived("reference", case, events), f"{case}\n  {events}"


# -- functions, failures, priorities, mirrored joins ------------------------------------------------

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, w BIGINT) TIMESTAMP BY t PRIORITY BY w;
CREATE RELATION q (k BIGINT, x BIGINT);
CREATE STREAM d AS SELECT ISTREAM s.k AS k, v + w AS v FROM s [RANGE 4], r [ROWS 3] WHERE s.k = r.k;
"""
TEXTS = [
    "SELECT k, twice(v) AS x FROM s [{a}]",
    "SELECT k, 6 / v AS x FROM s [{a}] WHERE k < 3",
    "SELECT k, twice(sum(v)) AS x FROM s [{a}] GROUP BY k",
    "SELECT s.k, v, w FROM s [{a}] JOIN r [{b}] ON s.k = r.k",
    "SELECT s.k, w, v FROM r [{b}] JOIN s [{a}] ON r.k = s.k",
    "SELECT ISTREAM s.k, v, w FROM s [RANGE 5] JOIN r [RANGE 3] ON s.k = r.k AND v <= w",
    "SELECT ISTREAM s.k, w, v FROM r [RANGE 3] JOIN s [RANGE 5] ON s.k = r.k AND w >= v",
    "SELECT s.k, w, v FROM r [{b}] LEFT JOIN s [{a}] ON twice(r.k) = s.k",
    "SELECT s.k, w, v FROM s [{a}] RIGHT JOIN r [{b}] ON s.k = twice(r.k)",
    "SELECT 6 / (v - w) AS x FROM s [{a}] JOIN r [{b}] ON 6 / s.k = 6 / r.k",
    "SELECT k, count(*) AS n FROM s [TUMBLING 3] WHERE twice(v) > 2 GROUP BY k",
    "SELECT s.k, x, 4 / x AS y FROM s [{a}] LEFT JOIN q ON s.k = q.k",
    "SELECT k, sum(x) AS x FROM q GROUP BY k",
    "SELECT d.k, v FROM d [{a}]",
    "SELECT s.k, d.v FROM s [{a}], d [{b}] WHERE s.k = d.k MASTER d",
    "SELECT v, w FROM s [{a}], r [{b}] WHERE s.k = r.k MASTER s",
    "SELECT v FROM s [{a}] WHERE v > 1 UNION SELECT w FROM r [{b}]",
    "SELECT ISTREAM k, v FROM s [{a}] ORDER BY twice(v) DESC, k LIMIT 2",
    "SELECT v FROM s WHERE k = 1",
    "SELECT v FROM s WHERE k = 2",
    "SELECT v FROM s WHERE k = 3",
    "SELECT v FROM s WHERE 6 / k > 2",
]
WINDOWS = ["ROWS 2", "ROWS 4", "RANGE 3", "RANGE 6", "NOW", "RANGE 4 SLIDE 2", "PARTITION BY k ROWS 1"]
OPTIONS = ["", "", "", " WITH (strict = true)", " WITH (priority = 8)", " WITH (start = 'now')"]


@dataclass(frozen=True)
class Add:
    name: str
    text: str


@dataclass(frozen=True)
class Stop:
    name: str


@dataclass(frozen=True)
class Rows:
    stream: str
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Say:
    """A heartbeat; without an instant, the stream is closed."""

    stream: str
    at: int | None


Event = Add | Stop | Rows | Say


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Queries of a few kinds, so that they meet, come and go while rows arrive."""
    texts = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
    windows = draw(st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=2))
    events: list[Event] = []
    running: list[str] = []
    now = {"s": 0, "r": 0}
    few = st.integers(0, 3)
    for number in range(draw(st.integers(4, 30))):
        kind = draw(st.sampled_from(["add", "add", "rows", "rows", "rows", "rows", "change", "say", "stop"]))
        stream = draw(st.sampled_from(["s", "r"]))
        if kind == "add" and len(running) < 6:
            text = draw(st.sampled_from(texts))
            text = text.format(a=draw(st.sampled_from(windows)), b=draw(st.sampled_from(windows)))
            running.append(f"n{number}")
            options = draw(st.sampled_from(OPTIONS))
            events.append(Add(running[-1], f"CREATE QUERY {running[-1]} AS {text}{options}"))
        elif kind == "stop" and running:
            events.append(Stop(running.pop(draw(st.integers(0, len(running) - 1)))))
        elif kind == "say":
            now[stream] += draw(st.integers(0, 5))
            events.append(Say(stream, None if draw(st.integers(0, 9)) == 0 else now[stream]))
        elif kind == "change":
            events.append(Rows("q", ((draw(few), draw(few)),)))
        else:
            given = []
            for _ in range(draw(st.integers(1, 3))):
                now[stream] += draw(st.integers(0, 2))
                given.append((now[stream], draw(few), draw(few)))
            events.append(Rows(stream, tuple(given)))
    return events


def twice(x: int | None) -> int | None:
    if x is not None and x > 5:
        raise ValueError("that is too much")
    return None if x is None else 2 * x


def told(events: Sequence[Event], after: Callable[[penstock.Database], object]) -> list[object]:
    """All that can be seen from outside after each event."""
    seen: list[object] = []
    with penstock.connect(engine="local") as db:
        db.create_function("twice", twice, args=["BIGINT"], returns="BIGINT")
        db.execute(DECLARE)
        queries: dict[str, penstock.Query] = {}
        for event in events:
            with suppress(penstock.InputError, penstock.StateError):
                match event:
                    case Add(name, text):
                        db.execute(text)
                        queries[name] = db.queries[name]
                    case Stop(name):
                        queries[name].stop()
                    case Rows(stream, rows):
                        db.push(stream, list(rows))
                    case Say(stream, None):
                        db.close_stream(stream)
                    case Say(stream, at):
                        db.heartbeat(stream, at)
            after(db)
            seen.append((event, sharing(db)))
            for name, query in queries.items():
                answers: list[tuple[object, ...]] = []
                with suppress(penstock.QueryFailed):
                    answers = [*zip(*(c.to_pylist() for c in query.fetch().columns), strict=True)]
                why = None if query.error is None else (str(query.error), query.error.__notes__[:1])
                state = (query.status, why, query.failures, query.last_failure)
                seen.append((name, state, [tuple(map(comparable, row)) for row in answers]))
    return seen


@settings(max_examples=examples(200), deadline=None, suppress_health_check=RELAXED)
@given(events=histories(), todo=whats)
def test_functions_failures_and_sharing(events: list[Event], todo: list[What]) -> None:
    with restarts() as again:
        saved = told(events, turns(todo, again))
    assert saved == told(events, lambda db: None)


# -- rows that come early, and failures that nobody has heard of yet --------------------------------

EARLY = (
    "SELECT t, k FROM s WHERE v > 0.5",
    "SELECT ISTREAM a.t, b.v FROM s [RANGE 30] a, r [RANGE 20] b WHERE a.k = b.k",
    "SELECT ISTREAM a.t, b.v FROM r [RANGE 20] b, s [RANGE 30] a WHERE a.k = b.k",
    "SELECT ISTREAM a.t, b.v FROM s [RANGE 8] a, r [RANGE 8] b WHERE a.k < b.k",
    "SELECT a.t, b.v FROM s [RANGE 30] a LEFT JOIN r [RANGE 20] b ON a.k = b.k",
    "SELECT k, sum(v) AS v FROM s [ROWS 5] GROUP BY k",
    "SELECT k, count(*) AS n FROM s [HOPPING 20 EVERY 10] GROUP BY k",
    "SELECT 1 / (CAST(t AS BIGINT) % 37) AS x FROM s",
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=RELAXED)
@given(data=st.data())
def test_early_rows(data: st.DataObject) -> None:
    plans = {text: plan(text) for text in EARLY}
    least = transform(plans[EARLY[1]], lambda n: replace(n, priority="min") if isinstance(n, Join) else n)
    assert isinstance(least, Query)
    plans["least"] = least
    ahead = data.draw(st.sampled_from([10, 40]))
    with tempfile.TemporaryDirectory() as folder:
        store = StateStore(folder)
        straight, saved = Graph(), Graph()
        chosen: dict[str, Query] = {}
        reached = 0
        for version, at in enumerate(range(0, 120, 10), 1):
            name = data.draw(st.sampled_from(sorted(plans)))
            if name not in chosen and data.draw(st.booleans()):
                chosen[name] = plans[name]
                strict = name == EARLY[-1]
                past = Past(progress={"s": at - 1, "r": at - 1} if at else {})
                for graph in (straight, saved):
                    graph.add(name, plans[name], {}, strict=strict, past=past)
                    graph.wire()
            elif chosen and data.draw(st.integers(0, 5)) == 0:
                gone = data.draw(st.sampled_from(sorted(chosen)))
                del chosen[gone]
                for graph in (straight, saved):
                    graph.remove(gone)
                    graph.wire()
            for graph in (straight, saved):
                feed(graph, at, reached, at + 10 + ahead)
            reached = at + 10 + ahead
            compare(straight, saved)
            if data.draw(st.booleans()):
                store.commit(version, save(saved))
                if data.draw(st.booleans()):
                    store = StateStore(folder)
                    state = store.load(version)
                    assert state is not None
                    graph = Graph()
                    restore(graph, state, {name: (plan, {}) for name, plan in chosen.items()})
                    assert shape(graph) == shape(saved)
                    saved = graph
        for graph in (straight, saved):
            for stream in ("s", "r"):
                graph.progress(stream, math.inf)
            graph.flush()
        compare(straight, saved)


def feed(graph: Graph, at: int, reached: int, until: int) -> None:
    """Ten rows of each stream in order, and before that those with a priority from ``reached`` to ``until``."""
    for seed, name in enumerate(("s", "r")):
        graph.push_early(name, parts(rows(seed, max(reached, at), until))[1])
        rest, had = parts(rows(seed, at, at + 10))
        graph.push(name, rest)
        graph.reach(name, had)
        graph.progress(name, at + 9)
    graph.flush()


def compare(straight: Graph, saved: Graph) -> None:
    """Both have given the same, and are the same."""
    for name, member in straight.members.items():
        other = saved.members[name].sink
        assert found(member.sink.taken()) == found(other.taken()), name
        assert member.sink.ended == other.ended
        assert repr(member.sink.error) == repr(other.error)
        assert getattr(member.sink.error, "__notes__", []) == getattr(other.error, "__notes__", [])
        assert straight.failures(name) == saved.failures(name)
    assert shape(straight) == shape(saved)


# -- single ones ------------------------------------------------------------------------------------


def test_a_join_whose_maker_is_gone_is_made_the_other_way_round() -> None:
    one, other = (f"SELECT s.k, s.v, r.v AS w FROM {sources} WHERE s.k = r.k" for sources in ("s, r", "r, s"))
    graph = Graph()
    graph.add("one", plan(one), {}, past=Past())
    graph.add("other", plan(other), {}, past=Past())
    assert sum(v.kind == "join" for v in graph.vertices.values()) == 1
    graph.remove("one")
    graph.wire()
    again = restored(graph, {"other": (plan(other), {})})
    assert shape(again) == shape(graph)
    for running in (graph, again):
        feed(running, 0, 0, 0)
    compare(graph, again)


def test_state_of_another_plan_is_refused() -> None:
    graph = Graph()
    graph.add("n", plan("SELECT k FROM s [ROWS 3]"), {}, past=Past())
    graph.wire()
    with pytest.raises(CheckpointError, match="no window"):
        restored(graph, {"n": (plan("SELECT k FROM s [ROWS 4]"), {})})
    with pytest.raises(CheckpointError, match="query `n`, of which there is no plan"):
        restored(graph, {})


def test_a_save_writes_what_is_new() -> None:
    graph = Graph()
    for i, window in enumerate(("ROWS 50000", "ROWS 40000", "RANGE 60000")):
        graph.add(f"n{i}", plan(f"SELECT k, count(*) AS n FROM s [{window}] GROUP BY k"), {}, past=Past())
    graph.wire()
    with tempfile.TemporaryDirectory() as folder:
        store = StateStore(folder)
        number = 0
        written: list[int] = []
        for version, count in enumerate((60_000, 100, 100), 1):
            graph.push("s", rows(0, number, number + count))
            graph.flush()
            number += count
            for member in graph.members.values():
                member.sink.taken()
            store.commit(version, save(graph))
            written.append(store.written)
        assert written[2] - written[0] < written[0] / 20


def restored(graph: Graph, queries: dict[str, tuple[Query, dict[str, Callable[..., object]]]]) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        StateStore(folder).commit(1, save(graph))
        state = StateStore(folder).load(1)
        assert state is not None
        again = Graph()
        restore(again, state, queries)
        return again
