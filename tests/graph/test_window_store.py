"""Windows over one input hold their rows in one store."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.graph.memory import split
from penstock.graph.view import StreamMemory
from penstock.hosts.local import host, placing
from penstock.kernels.store import Piece
from penstock.model.delta import Arrivals, Step
from penstock.model.schema import Field
from penstock.model.types import BIGINT
from penstock.operators.state import Loaded
from penstock.operators.stored import RowsWindow
from penstock.operators.window_store import LAG, Share, WindowStore
from tests.budget import examples
from tests.generated.language import Case, stream_rows
from tests.graph.test_law import Add, Event, Push, Stop, configurations, lived

RELAXED = list(HealthCheck)
DECLARE = """
CREATE STREAM a (t BIGINT, x BIGINT) TIMESTAMP BY t;
CREATE STREAM b (t BIGINT, x BIGINT) TIMESTAMP BY t;
"""


@pytest.fixture
def db() -> Iterator[penstock.Database]:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        yield db


def held(db: penstock.Database, stream: str = "a") -> StreamMemory:
    (found,) = (s for s in db.graph().memory.streams if s.stream == stream)
    return found


# -- queries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_a_master_and_a_smart_window_hold_what_the_larger_one_needs(db: penstock.Database, late: bool) -> None:
    db.query("SELECT ISTREAM a.x FROM a [ROWS 50], b [ROWS 1] WHERE a.x = b.x MASTER a", name="one")
    for t in range(30 if late else 0):
        db.push("a", [(t, t)])
    db.query("SELECT ISTREAM a.x FROM a [ROWS 100], b [ROWS 1] WHERE a.x = b.x MASTER b", name="two")
    for t in range(30, 500):
        db.push("a", [(t, t)])
        if t % 40 == 0:
            db.push("b", [(t, t)])
        if t % 7 == 0 and t > 200:
            db.heartbeat("b", t + 1)
            small, large = held(db).windows
            # Those that the plan has until a master arrives are not in the store.
            assert held(db).rows == 100 + large.leaving
            assert (small.passing, small.size, small.rows) == ("master", 50, 50)
            assert (large.passing, large.size, large.rows) == ("smart", 100, 100)
            assert large.passed + large.waiting == 100
            # A master element counts once no row of `a` can come before it any more.
            assert large.leaving == (t % 40 or 40)
    db.push("b", [(500, 0)])
    db.heartbeat("a", 501)
    assert held(db).rows == 100


def test_bytes_are_split_among_those_who_need_them(db: penstock.Database) -> None:
    for size in (10, 20, 20, 40):
        db.query(f"SELECT sum(x) AS s FROM a [ROWS {size}]", name=f"q{len(db.queries)}")
    db.push("a", pa.table({"t": range(10_000), "x": range(10_000)}))
    memory = db.graph().memory
    stream = held(db)
    assert stream.rows == 40
    assert sum(w.bytes for w in stream.windows) == stream.bytes == memory.bytes == sum(q.bytes for q in memory.queries)
    assert stream.bytes < 40 * 8 * 4 + 8192, "not those of the batch they came with"
    by_size = {w.size: w.bytes for w in stream.windows}
    # Ten rows belong to four, ten to three, twenty to one; the two of size 20 are one window.
    assert by_size[10] < by_size[20] < by_size[40]
    bytes_of = {q.name: q.bytes for q in memory.queries}
    assert abs(bytes_of["q1"] - bytes_of["q2"]) <= 1
    assert memory.to_json()["streams"][0]["rows"] == 40
    assert "a: 40 rows" in memory.text()


def test_a_row_of_several_windows_is_held_until_the_last_lets_go(db: penstock.Database) -> None:
    for window in ("ROWS 3", "ROWS 30", "RANGE 5", "NOW"):
        db.query(f"SELECT sum(x) AS s FROM a [{window}]", name=window)
    for t in range(100):
        db.push("a", [(t, t)])
    assert held(db).rows == 30
    db.queries["ROWS 30"].stop()
    assert held(db).rows == 5
    db.queries["RANGE 5"].stop()
    assert held(db).rows == 3
    db.push("a", [(1000, 1)])
    assert held(db).rows == 3


def test_windows_forget(db: penstock.Database) -> None:
    """Also while no master element comes for a long time."""
    db.query("SELECT ISTREAM a.x FROM a [ROWS 10], b [ROWS 1] WHERE a.x = b.x MASTER b")
    db.query("SELECT ISTREAM a.x FROM a [RANGE 5], b [ROWS 1] WHERE a.x = b.x MASTER b")
    db.push("a", [(t, t) for t in range(20)])
    db.push("b", [(19, 1)])
    db.heartbeat("b", 1_000_000)
    for t in range(20, 5020, 50):
        db.push("a", [(i, i) for i in range(t, t + 50)])
        stream = held(db)
        assert stream.rows == 10 + sum(w.leaving for w in stream.windows)
        assert [w.leaving for w in stream.windows] == [10, 5]
        assert [w.passed for w in stream.windows] == [0, 0]
    assert stream.bytes < 20_000


def test_a_window_that_never_lets_go_holds_what_it_has_not_passed_on(db: penstock.Database) -> None:
    query = db.query("SELECT ISTREAM a.x FROM a, b [NOW] MASTER b")
    db.push("a", [(t, t) for t in range(10)])
    db.heartbeat("b", 10)
    (window,) = held(db).windows
    assert (window.kind, window.rows, window.waiting) == ("unbounded", 10, 10)
    db.push("b", [(10, 0)])
    db.heartbeat("a", 11)
    assert held(db).rows == 0
    assert query.fetch().num_rows == 10


@pytest.mark.parametrize("masters", ["", " MASTER a", " MASTER b", " MASTER a, b"])
def test_a_query_that_is_given_the_past_shares_it(masters: str) -> None:
    """It brings rows that the others have forgotten."""

    def run(engine: str) -> tuple[list[object], int]:
        with penstock.connect(engine=engine) as db:
            db.execute("CREATE STREAM a (t BIGINT, x BIGINT) TIMESTAMP BY t WITH (retain = '50 us')")
            db.execute("CREATE STREAM b (t BIGINT, x BIGINT) TIMESTAMP BY t WITH (retain = '50 us')")
            found = []
            for i, size in enumerate((3, 30, 10, 1)):
                text = f"SELECT a.x, count(*) AS n FROM a [ROWS {size}], b [ROWS 2] GROUP BY a.x{masters}"
                found.append(db.query(text))
                for t in range(40 * i, 40 * i + 40, 4):
                    db.push("a", [(u, u % 4) for u in range(t, t + 3)])
                    db.push("b", [(t + 2, t)])
            rows = held(db).rows - sum(w.leaving for w in held(db).windows) if engine == "local" else 0
            return [q.fetch().sort_by([("ts", "ascending"), ("x", "ascending")]).to_pylist() for q in found], rows

    answers, rows = run("local")
    assert 30 <= rows <= 31, "a row may wait for the other stream"
    wanted, _ = run("reference")
    assert [sorted(map(repr, a)) for a in answers] == [sorted(map(repr, a)) for a in wanted]  # type: ignore[call-overload]


WINDOWS = ("ROWS 1", "ROWS 2", "ROWS 5", "ROWS 1000", "RANGE 0.000001", "RANGE 3", "RANGE 20", "NOW", "RANGE UNBOUNDED")
SHAPES = (
    "SELECT k, v FROM s [{0}]",
    "SELECT ISTREAM s.k, w FROM s [{0}], r [{1}] WHERE s.k = r.k",
    "SELECT s.k, count(*) AS n FROM s [{0}], r [{1}] GROUP BY s.k",
    "SELECT s.k, w FROM s [{0}] LEFT JOIN r [{1}] ON s.k = r.k",
)
DECLARED = """
CREATE STREAM s (t BIGINT, k BIGINT, g STRING, v DOUBLE, n INT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, w DOUBLE, h STRING) TIMESTAMP BY t;
CREATE RELATION q (k BIGINT, name STRING);
"""


@st.composite
def lives(draw: st.DrawFn) -> tuple[Case, list[Event]]:
    """Queries of many windows over two streams come and go while rows arrive."""
    streams = {name: draw(stream_rows(name, 0)) for name in ("s", "r")}
    case = Case(DECLARED, "", streams)
    pending = {name: list(rows) for name, rows in streams.items() if rows}
    events: list[Event] = []
    running: list[str] = []
    number = 0
    while pending or number < 3:
        kind = draw(st.sampled_from(["push", "push", "push", "add", "add", "stop", "configure"]))
        if kind == "add" and number < 6:
            sizes = [draw(st.sampled_from(WINDOWS)).replace("0.000001", "1") for _ in range(2)]
            text = draw(st.sampled_from(SHAPES)).format(*sizes)
            if draw(st.booleans()):
                text += " MASTER " + draw(st.sampled_from(["s", "r", "s, r"] if " r " in text else ["s"]))
            running.append(f"n{number}")
            events.append(Add(f"n{number}", text))
            number += 1
        elif kind == "stop" and len(running) > 1:
            events.append(Stop(running.pop(draw(st.integers(0, len(running) - 1)))))
        elif kind == "configure":
            events.append(draw(configurations()))
        elif pending:
            name = draw(st.sampled_from(sorted(pending)))
            n = draw(st.integers(0, len(pending[name])))
            events.append(Push(name, pending[name][:n]))
            pending[name] = pending[name][n:]
            if not pending[name]:
                del pending[name]
    return case, events


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after every push for operators that have become the same."""
    monkeypatch.setattr(host, "CONVERGE_EVERY", 1)


@settings(max_examples=examples(40), suppress_health_check=RELAXED)
@given(life=lives())
def test_queries_that_come_and_go_have_their_answers(eager: None, life: tuple[Case, list[Event]]) -> None:
    case, events = life
    assert lived("local", case, events) == lived("reference", case, events), f"{case}\n  {events}"


@pytest.mark.parametrize("threading", ["direct", "hybrid"])
def test_smart_windows_of_different_age_become_one(
    eager: None, db: penstock.Database, threading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless workers come between them and their joins. Measured costs decide that; here every operator costs nothing,
    so that they never do."""
    monkeypatch.setattr(placing, "cost", lambda vertex: 0.0)
    text = "SELECT ISTREAM a.x, b.x AS y FROM a [ROWS 3], b [RANGE 4] WHERE a.x = b.x MASTER b"
    db.configure(threading=threading)
    older = db.query(text)
    for t in range(20):
        db.push("a", [(t, t % 2)])
        db.push("b", [(t, t % 3)])
    younger = db.query(text)
    assert sum(o.kind == "window" for o in db.graph().operators) == 4
    for t in range(20, 60):
        db.push("a", [(t, t % 2)])
        db.push("b", [(t, t % 3)])
        db.settle()
    assert sum(o.kind == "window" for o in db.graph().operators) == 2
    for t in range(60, 80):
        db.push("a", [(t, t % 2)])
        db.push("b", [(t, t % 3)])
    late = [[row for row in q.fetch().to_pylist() if row["ts"] >= 60] for q in (older, younger)]
    assert late[0] == late[1] != []


# -- the store by itself --------------------------------------------------------------------------------------


def piece(start: int, stop: int) -> Piece:
    number = np.arange(start, stop)
    return Piece((pa.array(number),), number // 3, number + 1, None)


def numbers(share: Share) -> list[int]:
    return [i for p in share.between(0, len(share)) for i in p.columns[0].to_pylist()]


class Window:
    """Gets rows from some number on, and keeps the last few."""

    def __init__(self, store: WindowStore, first: int, size: int) -> None:
        self.share, self.first, self.next, self.size = store.share(), first, first, size

    def take(self, count: int) -> None:
        self.share.put(piece(self.next, self.next + count))
        self.next += count
        self.share.first(max(0, len(self.share) - self.size))

    @property
    def wanted(self) -> list[int]:
        return list(range(max(self.first, self.next - self.size), self.next))


@settings(max_examples=examples(100))
@given(st.data())
def test_a_store_is_what_each_window_would_have(data: st.DataObject) -> None:
    store = WindowStore()
    windows: list[Window] = []
    reached = 0
    draw = data.draw
    for _ in range(draw(st.integers(1, 40))):
        kind = draw(st.sampled_from(["take"] * 8 + ["come", "come", "past", "go"]))
        if kind in ("come", "past") or not windows:
            past = draw(st.integers(0, reached)) if kind == "past" else 0
            windows.append(Window(store, reached - past, draw(st.sampled_from([1, 2, 5, 100, 5000]))))
        elif kind == "go":
            windows.pop(draw(st.integers(0, len(windows) - 1))).share.release()
        else:
            window = draw(st.sampled_from(windows))
            window.take(draw(st.sampled_from([0, 1, 1, 2, 63, 64, 200, 5000])))
            reached = max(reached, window.next)
        for window in windows:
            assert numbers(window.share) == window.wanted
            assert window.share.until(10**9) == len(window.share)
    parts = store.parts()
    assert sum(parts.values()) == pytest.approx(store.rows)
    own = [w for w in windows if w.share.store is store]
    own = [w for w in own if len(w.share) or store.chunks.end - w.share.head <= LAG]
    assert store.rows == (store.chunks.end - min(w.share.tail for w in own) if own else 0)
    for window in windows:
        window.share.release()
    assert store.rows == store.nbytes == 0


@pytest.mark.parametrize("sizes", [(50, 100), (100, 50), (7, 3000)])
def test_windows_that_are_loaded_share_again(sizes: tuple[int, int]) -> None:
    schema = (Field("v", BIGINT),)
    store = WindowStore()
    tables: list[dict[str, pa.Table]] = [{}, {}]
    windows = [RowsWindow(schema, size) for size in sizes]
    for window in windows:
        window.use(store)
    for start in range(0, 4000, 40):
        rows = piece(start, start + 40)
        for window, own in zip(windows, tables, strict=True):
            window.process(Arrivals(schema, rows.columns, rows.ts, rows.sub), Step((start, 0)))
            states = window.save()
            own |= {p.name: p.table for p in states.pieces if p.table is not None}
    again = WindowStore()
    for size, window, own in zip(sizes, windows, tables, strict=True):
        saved, loaded = window.save(), RowsWindow(schema, size)
        loaded.use(again)
        loaded.load(Loaded(saved.meta, {p.name: own[p.name] for p in saved.pieces}))
        assert numbers(loaded.inside) == list(range(4000 - size, 4000))
    assert again.rows == store.rows == max(sizes)


def test_rows_that_are_not_the_same_are_held_apart() -> None:
    store = WindowStore()
    one, two = store.share(), store.share()
    one.put(piece(0, 10))
    other = piece(0, 10)._replace(sub=np.arange(10) + 5)
    two.put(other)
    two.put(piece(20, 30))
    assert two.store is not store
    assert (len(one), len(two)) == (10, 20)
    assert numbers(two) == [*range(10), *range(20, 30)]


def test_threads_may_take_the_same_rows_at_their_own_pace() -> None:
    store = WindowStore()
    windows = [Window(store, 0, size) for size in (1, 7, 100, 5000)]
    problems: list[Any] = []

    def work(window: Window, seed: int) -> None:
        chance = random.Random(seed)
        try:
            while window.next < 20_000:
                window.take(min(chance.choice([1, 3, 70, 900]), 20_000 - window.next))
                assert numbers(window.share) == window.wanted
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(w, i)) for i, w in enumerate(windows)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert all(w.share.store is store for w in windows)
    assert store.rows == 5000


def test_shares_add_up() -> None:
    assert split(100, [1.0, 1.0, 1.0]) == [33, 34, 33]
    assert split(7, [0.0, 0.0]) == [7, 0]
    assert split(0, []) == []


@pytest.mark.parametrize("held", [0, 5])
def test_a_window_that_does_not_take_its_rows_does_not_make_others_hold_them(held: int) -> None:
    store = WindowStore()
    running, resting = Window(store, 0, 10), Window(store, 0, 5)
    resting.take(held)
    while running.next < 300_000:
        running.take(1_000)
    assert store.rows < LAG + 2_000
    while resting.next < 300_000:
        resting.take(1_000)
        assert numbers(resting.share) == resting.wanted
    assert numbers(running.share) == running.wanted
    assert resting.share.store.rows + (0 if resting.share.store is store else store.rows) <= 15
