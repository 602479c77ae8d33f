"""Prioritised rows may overtake others, and no answer is another one for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event as Signal
from typing import Any
from unittest.mock import patch

import experiments  # noqa: F401 - more modes
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.graph import operators
from penstock.runtime import run
from penstock.runtime.lanes import LANES
from tests.budget import examples
from tests.graph.schedules import working_after_pauses

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT, p BIGINT) TIMESTAMP BY t SLACK 0 PRIORITY BY p;
CREATE STREAM r (t BIGINT, k BIGINT, w BIGINT, p BIGINT) TIMESTAMP BY t PRIORITY BY p;
CREATE STREAM d AS SELECT ISTREAM s.k, s.v FROM s [RANGE 5], r [RANGE 5] WHERE s.k = r.k;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
INSERT INTO names VALUES (0, 'zero'), (1, 'one');
"""
SHAPES = [
    "SELECT v FROM s WHERE k > 0",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [RANGE {b}] WHERE s.k = r.k",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [RANGE {b}] WHERE s.k = r.k AND s.v < r.w",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [RANGE {b}] WHERE s.v < r.w",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [RANGE UNBOUNDED] WHERE s.k + 1 = r.k",
    "SELECT s.v, r.w FROM s, r WHERE s.k = r.k",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [NOW]",
    "SELECT ISTREAM x.v, y.v AS z, r.w FROM s [RANGE {a}] AS x, s [RANGE {b}] AS y, r [RANGE 4]"
    " WHERE x.k = y.k AND y.k = r.k",
    "SELECT v FROM s UNION ALL SELECT w FROM r",
    "ISTREAM(SELECT v, k FROM s [RANGE {a}] UNION ALL SELECT w, k FROM r [RANGE {b}])",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [RANGE {b}] WHERE s.k = r.k PRIORITY BY s.v - 2",
    "SELECT v FROM s WHERE k > 0 PRIORITY BY v % 3",
    "SELECT s.v, r.w FROM s [RANGE {a}], r [RANGE {b}] WHERE s.k = r.k",
    "SELECT ISTREAM s.v, r.w FROM s [ROWS 2], r [RANGE {b}] WHERE s.k = r.k",
    "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE {a}] GROUP BY k",
    "SELECT DISTINCT v FROM s [ROWS 3]",
    "SELECT s.v, r.w FROM s [RANGE {a}] LEFT JOIN r [RANGE {b}] ON s.k = r.k",
    "SELECT v FROM d",
    "SELECT count(*) AS n FROM d [ROWS 3]",
    "SELECT ISTREAM s.v, d.v AS x FROM s [RANGE {a}], d [RANGE {b}] WHERE s.k = d.k",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [RANGE {b}] WHERE s.k = r.k MASTER r",
    "SELECT ISTREAM s.v, name FROM s [RANGE {a}], names WHERE s.k = names.k",
    "SELECT ISTREAM s.v / (s.k - 1) AS x, name FROM s [NOW] LEFT JOIN names ON s.k = names.k AND s.v > 1",
    "SELECT ISTREAM s.v, name FROM names RIGHT JOIN s [RANGE {a}] ON s.v > names.k WHERE name > 'p'",
    "SELECT ISTREAM s.v, name FROM s [RANGE {a}] FULL JOIN names ON s.k = names.k",
    "SELECT ISTREAM s.v, r.w, name FROM s [RANGE {a}], r [RANGE {b}], names WHERE s.k = r.k AND r.k = names.k",
    "SELECT ISTREAM s.v, name, r.w FROM s [RANGE {a}], names, r [NOW] WHERE s.k = names.k AND s.v = r.w",
    "SELECT ISTREAM s.v, r.w, name FROM s, r [ROWS 2], names WHERE s.k = names.k AND s.v < r.w",
    "SELECT ISTREAM s.v, r.w FROM s [RANGE {a}], r [ROWS 2] WHERE s.v < r.w",
    "SELECT ISTREAM s.v, n FROM s [NOW], (SELECT k, count(*) AS n FROM r [RANGE {b}] GROUP BY k) AS c WHERE s.k = c.k",
    "SELECT ISTREAM x.v, r.w, y.v AS z, name FROM s [RANGE {a}] AS x, r [RANGE {b}], s [RANGE 4] AS y, names"
    " WHERE x.k = r.k AND r.k = y.k AND y.k = names.k",
    "SELECT s.v, name FROM s [RANGE {a}], names WHERE s.k = names.k",
    "SELECT ISTREAM name, count(*) AS n FROM s [RANGE {a}], names WHERE s.k = names.k GROUP BY name",
    "SELECT ISTREAM s.v, x.name, y.name AS other FROM s [RANGE {a}], names x, names y WHERE s.k = x.k AND s.v = y.k",
]


WITH = ["", "", " WITH (ordered = TRUE)", " WITH (join_priority = 5 * left_priority - right_priority)"]


@dataclass(frozen=True)
class Push:
    stream: str
    rows: Sequence[tuple[int, int, int, int]]


@dataclass(frozen=True)
class Hold:
    """From here on rows wait in front of an operator, until the next time."""

    operator: int


@dataclass(frozen=True)
class Register:
    """From here on there is a query."""

    text: str


@dataclass(frozen=True)
class Change:
    """A statement about the relation."""

    text: str


@dataclass(frozen=True)
class Beat:
    """A stream is as far as this, or over."""

    stream: str
    at: int | None


CHANGES = [
    "INSERT INTO names VALUES ({n}, 'new')",
    "DELETE FROM names WHERE k = {k}",
    "UPDATE names SET name = 'changed {n}' WHERE k = {k}",
]
Event = Push | Hold | Register | Change | Beat


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, list[Event]]:
    """How much slack ``s`` has, and what happens."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    queries = [shape.format(a=draw(st.integers(1, 9)), b=draw(st.integers(1, 9))) for shape in shapes]
    queries = [text + draw(st.sampled_from(WITH)) for text in queries]
    now = {"s": 0, "r": 0}
    slack = draw(st.sampled_from([0, 0, 3, 10]))
    events: list[Event] = []
    for _ in range(draw(st.integers(1, 14))):
        if draw(st.integers(0, 3)) == 0:
            events.append(Hold(draw(st.integers(0, 40))))
            continue
        if draw(st.integers(0, 7)) == 0:
            text = draw(st.sampled_from(CHANGES))
            if draw(st.booleans()):  # maybe before rows that wait for slack, or too late
                text += f" AT {max(now.values(), default=0) + draw(st.integers(-slack, 2))}"
            events.append(Change(text.format(n=len(events) + 2, k=draw(st.integers(0, 3)))))
            continue
        stream = draw(st.sampled_from([name for name in ("s", "r") if name in now] or ["s"]))
        if stream not in now:
            break
        if draw(st.integers(0, 5)) == 0:
            further = draw(st.sampled_from([0, 1, 7, None]))
            events.append(Beat(stream, None if further is None else now[stream] + further))
            now[stream] += further or 0
            if further is None:
                del now[stream]
            continue
        rows = []
        for _ in range(draw(st.integers(0, 6))):
            now[stream] += draw(st.sampled_from([0, 0, 1, 1, 2, 6]))
            back = draw(st.integers(0, slack + 1)) if stream == "s" and slack else 0
            k, v, p = draw(st.tuples(st.integers(0, 2), st.integers(0, 5), st.sampled_from([0, 0, 0, 1, 7])))
            rows.append((now[stream] - back, k, v, p))
        events.append(Push(stream, rows))
    for text in queries:
        events.insert(draw(st.sampled_from([0, 0, 0, len(events) // 2, len(events)])), Register(text))
    return slack, events


def lived(
    engine: str, slack: int, events: Sequence[Event], config: dict[str, Any], *, patient: bool = False
) -> dict[str, Counter[object]]:
    """All answers. ``patient``: after each pause the workers work as long as they can."""
    with penstock.connect(engine=engine) as db, working_after_pauses(db) if patient else nullcontext():
        db.execute(DECLARE.replace("SLACK 0", f"SLACK {slack}"))
        if engine == "local":
            db.configure(**config)
        held: int | None = None
        for event in events:
            match event:
                case Register(text):
                    db.execute(f"CREATE QUERY q{len(db.queries)} AS {text}")
                case Change(text):
                    with suppress(penstock.InputError):  # any engine refuses it before the first row of a stream
                        db.execute(text)
                case Push(stream, rows):
                    db.push(stream, rows)
                case Beat(stream, None):
                    db.close_stream(stream)
                case Beat(stream, int(at)):
                    db.heartbeat(stream, at)
                case Hold(number) if engine == "local":
                    let_go(db, held)
                    operators = [o.id for o in db.graph().operators if o.kind != "source"]
                    held = operators[number % len(operators)] if operators else None
                    if held is not None:
                        with suppress(penstock.CatalogError):  # its queries have ended meanwhile
                            db.suspend(held)
        let_go(db, held)
        for stream in ("s", "r"):
            if Beat(stream, None) not in events:
                db.close_stream(stream)
        return {name: counted(query.fetch()) for name, query in db.queries.items()}


def let_go(db: penstock.Database, held: int | None) -> None:
    if held is not None:
        with suppress(penstock.CatalogError):  # its queries have ended
            db.resume(held)


def counted(table: pa.Table) -> Counter[object]:
    return Counter(zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True))


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    life=lives(),
    mode=st.sampled_from(sorted(LANES)),
    config=st.sampled_from(
        [
            {"threading": "direct"},
            {"threading": "graph"},
            {"threading": "graph", "strategy": "highest-priority", "experiments": {"quantum": 1}},
            {"threading": "operator"},
            {"threading": "hybrid", "workers": 2},
            {"threading": "operator", "workers": 2, "experiments": {"architecture": "pool"}},
        ]
    ),
    ahead=st.sampled_from([0, 1, 3, operators.AHEAD]),
    patient=st.booleans(),
    long=st.sampled_from([0, 1, run.LONG]),
)
def test_answers_are_the_same(
    life: tuple[int, list[Event]], mode: str, config: dict[str, Any], ahead: int, patient: bool, long: int
) -> None:
    given = {**config, "mode": mode}
    with patch.object(operators, "AHEAD", ahead), patch.object(run, "LONG", long):
        found = lived("local", *life, given, patient=patient)
    assert found == lived("reference", *life, {}), f"{life}"


JOIN = "SELECT ISTREAM s.v, r.w FROM s [RANGE 100], r [RANGE 100] WHERE s.k = r.k"


@pytest.fixture
def db() -> penstock.Database:
    db = penstock.connect(engine="local")
    db.execute(DECLARE)
    return db


def intake(db: penstock.Database, stream: str) -> int:
    return next(o.id for o in db.graph().operators if o.kind == "intake" and stream in o.label.split())


def test_the_answers_are_weakly_ordered(db: penstock.Database) -> None:
    """An answer without priority comes after all that are earlier in time; any other may come before them."""
    db.execute(f"CREATE QUERY q AS {JOIN} WITH (ordered = TRUE)")
    query = db.queries["q"]
    tables: list[pa.Table] = []
    query.subscribe(tables.append)
    db.push("r", [(0, k, k, 0) for k in range(3)])
    db.push("s", [(0, 9, 0, 0)])
    db.suspend(intake(db, "s"))
    for t in range(1, 60, 3):
        db.push("s", [(t, t % 3, t, 0), (t + 1, t % 3, t + 1, t % 5), (t + 2, 1, t + 2, 0)])
        db.push("r", [(t + 2, 1, t, 0)])
    db.resume(intake(db, "s"))
    db.close_stream("s")
    db.close_stream("r")
    query.fetch()
    found = [(ts, v) for table in tables for ts, v in zip(*(table[c].to_pylist() for c in ("ts", "v")), strict=True)]
    ordinary = {t for t in range(60) if not (t % 3 == 2 and (t - 1) % 5)}
    overtook = 0
    for i, (ts, v) in enumerate(found):
        later = [t for t, _ in found[i + 1 :]]
        if v in ordinary:
            assert all(t >= ts for t in later), "something earlier came after an answer without priority"
        else:
            overtook += any(t < ts for t in later)
    assert overtook > 5


def pairs(db: penstock.Database, name: str) -> list[tuple[int, int, int]]:
    return [(row["ts"], row["v"], row["w"]) for row in db.queries[name].fetch().to_pylist()]


def test_a_join_does_not_wait_for_the_stream_that_is_behind(db: penstock.Database) -> None:
    """An ordered query gives the pairs of prioritised rows at once, any other all of them."""
    db.execute(f"CREATE QUERY free AS {JOIN}; CREATE QUERY ordered AS {JOIN} WITH (ordered = TRUE)")
    db.push("r", [(1, 1, 70, 0)])
    db.push("s", [(50, 1, 1, 0)])
    assert (pairs(db, "free"), pairs(db, "ordered")) == ([(50, 1, 70)], [])
    db.push("s", [(60, 1, 2, 5)])
    assert (pairs(db, "free"), pairs(db, "ordered")) == ([(60, 2, 70)], [(60, 2, 70)])
    db.push("r", [(20, 1, 71, 0)])
    assert (sorted(pairs(db, "free")), pairs(db, "ordered")) == ([(50, 1, 71), (60, 2, 71)], [(60, 2, 71)])
    db.heartbeat("r", 55)
    assert (pairs(db, "free"), pairs(db, "ordered")) == ([], [(50, 1, 70), (50, 1, 71)])
    db.push("r", [(155, 1, 72, 0)])
    assert (pairs(db, "free"), pairs(db, "ordered")) == ([(155, 2, 72)], [(155, 2, 72)])


@pytest.mark.parametrize(
    "above",
    [
        "SELECT v, w FROM d2",
        "SELECT last(v) AS v, max(w) AS w FROM d2 [ROWS 3]",
        "SELECT ISTREAM s.v, r.w FROM s [RANGE 100], r [RANGE 100] WHERE s.k = r.k MASTER r",
    ],
)
def test_what_needs_the_order_of_a_join_waits_for_it(db: penstock.Database, above: str) -> None:
    db.execute(f"CREATE STREAM d2 AS {JOIN}; CREATE QUERY free AS {JOIN}; CREATE QUERY above AS {above}")
    with penstock.connect(engine="reference") as other:
        other.execute(f"{DECLARE}; CREATE STREAM d2 AS {JOIN}; CREATE QUERY above AS {above}")
        for stream, row in [
            ("r", (1, 1, 70, 0)), ("s", (50, 1, 1, 0)), ("s", (60, 1, 2, 5)), ("r", (20, 1, 71, 0)),
            ("s", (61, 1, 3, 0)), ("r", (60, 1, 72, 0)), ("r", (99, 1, 73, 3)),
        ]:  # fmt: skip
            db.push(stream, [row])
            other.push(stream, [row])
            assert counted(db.queries["above"].fetch()) == counted(other.queries["above"].fetch())
    assert len(pairs(db, "free")) == 12


SLACK = DECLARE.replace("SLACK 0", "SLACK 100")


def values(db: penstock.Database, name: str) -> list[int]:
    return [row["v"] for row in db.queries[name].fetch().to_pylist()]


def test_a_prioritised_row_does_not_wait_for_slack() -> None:
    """Filters and joins take it at once, a count at its place, and a query that comes meanwhile gets it once, too."""
    with penstock.connect(engine="local") as db:
        db.execute(SLACK)
        db.execute(f"""CREATE QUERY filter AS SELECT v FROM s WHERE k > 0; CREATE QUERY pairs AS {JOIN};
                       CREATE QUERY count AS SELECT ISTREAM count(*) AS v FROM s [RANGE 50]""")
        db.push("r", [(0, 1, 70, 0)])
        db.push("s", [(10, 1, 1, 0), (20, 1, 2, 5)])
        assert [values(db, name) for name in ("filter", "pairs", "count")] == [[2], [2], []]
        db.execute("CREATE QUERY younger AS SELECT v FROM s WHERE k > 0")
        assert values(db, "younger") == [2]
        db.push("s", [(15, 1, 3, 7)])
        assert [values(db, name) for name in ("filter", "pairs", "count", "younger")] == [[3], [3], [], [3]]
        db.push("s", [(200, 1, 4, 0)])
        assert [values(db, name) for name in ("filter", "younger")] == [[1], [1]]
        assert values(db, "count") == [1, 2, 3, 2, 1, 0]
        db.push("r", [(60, 9, 0, 0)])
        assert values(db, "pairs") == [1]
        db.close_stream("s")
        assert [values(db, name) for name in ("filter", "younger")] == [[4], [4]]


@pytest.mark.parametrize("engine", ["reference", "local"])
def test_a_prioritised_row_waits_for_slack_where_a_relation_may_still_change_before_it(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(SLACK)
        query = db.query("SELECT ISTREAM s.v, name FROM s [RANGE 100], names WHERE s.k = names.k")
        db.push("s", [(1, 0, 1, 0)])
        db.heartbeat("s", 2)
        assert query.fetch()["name"].to_pylist() == ["zero"]
        db.push("s", [(20, 1, 2, 9)])
        db.execute("UPDATE names SET name = 'changed' WHERE k = 1 AT 10")
        db.heartbeat("s", 30)
        assert query.fetch()["name"].to_pylist() == ["changed"]


def test_with_mode_normal_prioritised_rows_wait_for_slack_like_others() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(SLACK)
        db.configure(mode="normal")
        db.execute("CREATE QUERY filter AS SELECT v FROM s WHERE k > 0")
        db.push("s", [(10, 1, 1, 0), (20, 1, 2, 5)])
        assert values(db, "filter") == []
        db.execute("CREATE QUERY younger AS SELECT v FROM s WHERE k > 0")
        db.configure(mode="strong")
        db.push("s", [(30, 1, 3, 5)])
        assert values(db, "filter") == [3]
        db.push("s", [(150, 1, 4, 0)])
        assert (values(db, "filter"), values(db, "younger")) == ([2, 1], [3, 2, 1])


def test_a_join_lets_no_more_than_some_rows_in_ahead(db: penstock.Database) -> None:
    """Rows beyond that wait for the other stream, but not those that are prioritised."""
    db.execute(f"CREATE QUERY free AS {JOIN}")
    db.push("r", [(1, 1, 70, 0)])
    with patch.object(operators, "AHEAD", 2):
        db.push("s", [(10, 1, 1, 0), (11, 1, 2, 0)])
        db.push("s", [(12, 1, 3, 0)])
        db.push("s", [(13, 1, 4, 9)])
        assert pairs(db, "free") == [(10, 1, 70), (11, 2, 70), (13, 4, 70)]
        db.heartbeat("r", 11)
        assert pairs(db, "free") == []
        db.push("r", [(40, 1, 71, 0)])
    assert sorted(pairs(db, "free")) == [(12, 3, 70), *((40, v, 71) for v in (1, 2, 3, 4))]


def test_a_join_gives_the_pairs_of_an_early_row_before_its_place(db: penstock.Database) -> None:
    query = db.query(JOIN)
    db.push("r", [(0, 1, 70, 0), (1, 2, 71, 0)])
    db.push("s", [(5, 9, 0, 0)])
    db.heartbeat("r", 10)
    db.suspend(intake(db, "s"))
    db.push("s", [(6, 2, 1, 0), (7, 1, 2, 3)])
    db.push("r", [(50, 1, 72, 0)])
    assert query.fetch().num_rows == 0
    early = [e.buffer for e in db.graph().edges if e.buffer is not None and e.buffer.overtook]
    assert sum(b.overtook for b in early) == 1
    db.resume(intake(db, "s"))
    assert query.fetch().select(["v", "w"]).to_pylist() == [{"v": 2, "w": w} for w in (70, 72)] + [{"v": 1, "w": 71}]
    db.push("s", [(60, 9, 0, 0)])
    assert query.fetch().num_rows == 0


@pytest.mark.parametrize("threading", ["graph", "operator"])
def test_an_early_row_is_answered_from_a_stored_relation(db: penstock.Database, threading: str) -> None:
    """If it has not changed since the last row in order. An aggregate above the same join waits for its place."""
    db.execute("""
        CREATE QUERY inner_join AS SELECT ISTREAM s.v, name FROM s [RANGE 100], names WHERE s.k = names.k AND s.v > 0;
        CREATE QUERY left_join AS SELECT ISTREAM s.v, name FROM s [NOW] LEFT JOIN names ON s.k = names.k;
        CREATE QUERY counted AS
            SELECT ISTREAM count(*) AS v FROM s [RANGE 100], names WHERE s.k = names.k AND s.v > 0""")
    heard: dict[str, list[int]] = {name: [] for name in db.queries}

    def hear(name: str, table: pa.Table) -> None:
        heard[name].extend(table["v"].to_pylist())

    for name, query in db.queries.items():
        query.subscribe(partial(hear, name))
    db.configure(threading=threading)
    db.push("s", [(1, 1, 1, 0)])
    db.settle()
    db.suspend(intake(db, "s"))
    db.push("s", [(t, t % 2, t, 0) for t in range(2, 6)])
    db.push("s", [(6, 0, 6, 9), (7, 7, 7, 9)])
    db.resume(intake(db, "s"))
    db.settle()
    assert heard["inner_join"] == [1, 6, 2, 3, 4, 5]
    assert heard["left_join"] == [1, 6, 7, 2, 3, 4, 5]
    assert heard["counted"] == [1, 2, 3, 4, 5, 6]
    db.suspend(intake(db, "s"))
    db.push("s", [(8, 1, 8, 0)])
    db.execute("DELETE FROM names WHERE k = 1")
    db.push("s", [(20, 1, 20, 9), (21, 0, 21, 9)])
    db.resume(intake(db, "s"))
    db.settle()
    assert sorted(heard["inner_join"][6:]) == [8, 21]


LOOKED_UP = {
    "inner": ("s [RANGE 100], names WHERE s.k = names.k", 1),
    "left": ("s [NOW] LEFT JOIN names ON s.k = names.k", 1),
    "unbounded": ("s, names WHERE s.k = names.k", 1),
    "streams first": ("s [RANGE 100], r [RANGE 10], names WHERE s.k = r.k AND r.k = names.k", 2),
    "relation first": ("s [RANGE 100], names, r [RANGE 10] WHERE s.k = names.k AND s.k = r.k", 2),
    "by order": ("s [RANGE 100], r [RANGE 10], names WHERE s.v < r.w AND s.k = names.k", 2),
    "rows": ("s, r [ROWS 2], names WHERE s.k = names.k AND s.v < r.w", 2),
    "no relation": ("s [NOW], r [ROWS 2] WHERE s.k = r.k", 2),
}
"""What is read, and how many answers the alarm has."""


@pytest.mark.parametrize("joined", LOOKED_UP)
@pytest.mark.parametrize("threading", ["graph", "operator"])
def test_an_alarm_is_answered_from_a_stored_relation_before_rows_that_came_earlier(
    db: penstock.Database, threading: str, joined: str
) -> None:
    """Also with other streams that have reached it. The alarm's answers are delivered while the row in front of it is
    still worked on. Of answers that are delivered together the alarm's would be the first anyway."""
    told, release = Signal(), Signal()
    heard: list[list[int]] = []

    def slow(v: int) -> int:
        if v in range(2, 6):
            release.wait(60)
        return v

    def hear(answers: pa.Table) -> None:
        heard.append(answers["v"].to_pylist())
        told.set()

    db.create_function("slow", slow, returns="BIGINT", args=("BIGINT",))
    tables, answers = LOOKED_UP[joined]
    query = db.query(f"SELECT ISTREAM slow(s.v) AS v FROM {tables}")
    db.configure(threading=threading)
    db.push("s", [(1, 7, 1, 0)])
    if " r " in tables:
        db.push("r", [(2, 0, 70, 0), (2, 1, 71, 0)])
    db.settle()
    query.fetch()
    query.subscribe(hear)
    db.suspend(intake(db, "s"))
    db.push("s", [(8 + v, v % 2, v, 0) for v in range(2, 6)])
    db.push("s", [(20, 0, 6, 9)])
    if " r " in tables:
        db.push("r", [(15, 0, 72, 0), (16, 0, 73, 0), (25, 0, 74, 0)])
        db.settle()
    try:
        db.resume(intake(db, "s"))
        assert told.wait(20), "the alarm waits for the rows in front of it"
        assert heard == [[6] * answers]
    finally:
        release.set()
    db.settle()
    assert {v for some in heard[1:] for v in some} >= {2, 3}
    assert [v for some in heard for v in some].count(6) == answers


def test_an_alarm_waits_for_streams_that_are_behind_where_a_relation_may_still_change_before_it() -> None:
    """Its own stream does not count any more when it is closed."""
    found = []
    for engine in ("reference", "local"):
        with penstock.connect(engine=engine) as db:
            db.execute(DECLARE)
            tables = "s [RANGE 500], names, r [RANGE 500] WHERE s.k = names.k AND s.k = r.k"
            query = db.query(f"SELECT ISTREAM s.v, r.w, name FROM {tables}")
            db.push("s", [(1, 9, 0, 0)])
            db.push("r", [(5, 1, 70, 0)])
            held = intake(db, "s") if engine == "local" else None
            if held is not None:
                db.suspend(held)
            db.push("s", [(50, 1, 1, 0)])
            db.push("s", [(100, 1, 2, 9)])
            if held is not None:
                db.resume(held)
            db.close_stream("s")
            db.execute("DELETE FROM names WHERE k = 1")
            db.push("r", [(200, 0, 71, 0)])
            found.append(counted(query.fetch()))
    assert found == [Counter(), Counter()]


def test_joins_forget_early_rows_when_time_has_passed_them(db: penstock.Database) -> None:
    query = db.query(JOIN)
    db.suspend(intake(db, "s"))
    db.push("s", [(t, t % 3, t, 1) for t in range(300)])
    db.resume(intake(db, "s"))
    assert sum(size.rows for size in query.state.values()) >= 300
    db.push("r", [(1_000, 1, 1, 0)])
    db.push("s", [(1_000, 1, 1, 0)])
    db.push("r", [(1_001, 1, 2, 0)])
    rows = sum(size.rows for size in query.state.values())
    assert rows < 10


def test_pairs_may_have_another_priority(db: penstock.Database) -> None:
    db.execute(f"CREATE QUERY lowest AS {JOIN} WITH (join_priority = 'min')")
    db.execute(f"CREATE QUERY highest AS {JOIN}")
    db.execute(f"CREATE QUERY both AS {JOIN} WITH (join_priority = 'sum')")
    db.push("r", [(0, 0, 70, 5), (0, 1, 71, 0)])
    db.push("s", [(1, 1, 1, 9), (2, 0, 2, 4), (3, 0, 3, 5)])
    db.heartbeat("r", 10)
    order = {name: query.fetch()["v"].to_pylist() for name, query in db.queries.items()}
    assert order == {"lowest": [3, 2, 1], "highest": [1, 2, 3], "both": [3, 1, 2]}


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_the_priority_of_a_pair_may_be_an_expression(engine: str) -> None:
    """Of the rows' priorities; the sides keep their names where a join is shared the other way round."""
    turned = "SELECT ISTREAM s.v, r.w FROM r [RANGE 100], s [RANGE 100] WHERE s.k = r.k"
    outer = "SELECT ISTREAM s.v, r.w FROM s [RANGE 100] LEFT JOIN r [RANGE 100] ON s.k = r.k"
    with penstock.connect(engine=engine) as db:
        db.execute(f"""{DECLARE}
            CREATE QUERY left_first AS {JOIN} WITH (join_priority = 10 * left_priority + right_priority);
            CREATE QUERY right_first AS {JOIN} WITH (join_priority = 10 * right_priority + left_priority);
            CREATE QUERY turned AS {turned} WITH (join_priority = 10 * left_priority + right_priority);
            CREATE QUERY outer_join AS {outer} WITH (join_priority = 10 * left_priority + right_priority);
            CREATE QUERY last AS {JOIN} WITH (join_priority = CASE WHEN left_priority > 5 THEN NULL ELSE 1 END)""")
        db.push("r", [(0, 0, 70, 5), (0, 1, 71, 0)])
        db.push("s", [(1, 1, 1, 9), (2, 0, 2, 4), (3, 0, 3, 5)])
        db.heartbeat("r", 10)
        order = {name: query.fetch()["v"].to_pylist() for name, query in db.queries.items()}
        assert order["left_first"] == order["outer_join"] == [1, 3, 2]
        assert order["right_first"] == order["turned"] == [3, 2, 1]
        assert order["last"] == [2, 3, 1]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("'most'", "`join_priority` is one of 'max', 'min', 'sum'; or an expression, as in join_priority = left"),
        ("priority + 1", "no column `priority`"),
        ("sum(left_priority)", "sum"),
        ("upper('a')", "needs a number or a condition"),
    ],
)
def test_what_is_no_priority_of_a_pair_is_refused(db: penstock.Database, by: str, message: str) -> None:
    with pytest.raises(penstock.PenstockError) as caught:
        db.execute(f"CREATE QUERY q AS {JOIN} WITH (join_priority = {by})")
    assert message in str(caught.value)
    assert not db.queries


def test_a_pair_without_priority_waits_for_its_place(db: penstock.Database) -> None:
    db.execute(f"CREATE QUERY lowest AS {JOIN} WITH (join_priority = 'min', ordered = TRUE)")
    query = db.queries["lowest"]
    db.push("r", [(0, 1, 70, 0)])
    db.push("s", [(1, 9, 0, 0)])
    db.heartbeat("r", 10)
    db.suspend(intake(db, "s"))
    db.push("s", [(2, 1, 1, 0), (3, 1, 2, 9), (4, 1, 3, 0)])
    db.resume(intake(db, "s"))
    assert query.fetch()["v"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("mode", LANES)
def test_the_mode_may_be_set_for_one_operator(db: penstock.Database, mode: str) -> None:
    query = db.query("SELECT v FROM s WHERE k > 0")
    db.configure(mode=mode, experiments={"operator": intake(db, "s")})
    db.suspend(intake(db, "s"))
    db.push("s", [(1, 1, 1, 0), (2, 1, 2, 0)])
    db.push("s", [(3, 1, 3, 5)])
    db.push("s", [(4, 1, 4, 9)])
    (buffer,) = [e.buffer for e in db.graph().edges if e.buffer is not None]
    assert buffer.overtook == (0 if mode == "normal" else 2)
    assert buffer.elements == 4
    db.resume(intake(db, "s"))
    assert query.fetch()["v"].to_pylist() == [4, 3, 1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "strog"}, "mode is 'strog'; did you mean `strong`?"),
        ({"experiments": {"operator": 0}, "mode": "none"}, "mode is 'none'"),
        ({"experiments": {"operator": 999}, "mode": "weak"}, "there is no operator 999"),
        ({"experiments": {"operator": 0}, "threading": "graph"}, "only the `mode`"),
        ({"experiments": {"operator": 0}}, "only the `mode`"),
    ],
)
def test_what_is_not_a_mode_is_refused(db: penstock.Database, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(penstock.PenstockError) as caught:
        db.configure(**settings)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["SELECT v FROM s WHERE k > 0", "SELECT count(*) AS v FROM s"])
def test_a_query_that_begins_while_a_row_is_ahead_of_its_place_has_it_once(text: str) -> None:
    """The row waits for slack, and in front of a query that rests: the other one has operators of its own."""
    found = []
    for engine in ("reference", "local"):
        with penstock.connect(engine=engine) as db:
            db.execute("CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT, p BIGINT) TIMESTAMP BY t SLACK 3 PRIORITY BY p")
            resting = db.query("SELECT v FROM s WHERE k > 0")
            resting.suspend()
            db.push("s", [(61, 1, 5, 9)])
            later = db.query(text)
            db.push("s", [(62, 1, 6, 9)])
            db.heartbeat("s", 200)
            resting.resume()
            found.append([sorted(map(repr, q.fetch().to_pylist())) for q in (resting, later)])
    assert found[1] == found[0]

