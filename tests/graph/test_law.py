"""However the graph is shared, placed, threaded and scheduled, every query has the answers it has by itself."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import experiments  # noqa: F401 - more of everything
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.graph.masters import MASTERS
from penstock.hosts.local import host
from penstock.runtime.buffer import BUFFERS
from penstock.runtime.lanes import LANES
from penstock.runtime.owners import ARCHITECTURES
from penstock.runtime.placement import PLACEMENTS
from penstock.runtime.settings import THREADING
from penstock.runtime.strategies import STRATEGIES
from tests.budget import examples
from tests.generated.language import Case, Row, cases
from tests.generated.running import comparable
from tests.graph.schedules import place

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@dataclass(frozen=True)
class Push:
    stream: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Add:
    name: str
    text: str


@dataclass(frozen=True)
class Stop:
    name: str


@dataclass(frozen=True)
class Configure:
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rest:
    """Suspend an operator; an earlier one goes on."""

    number: int


@dataclass(frozen=True)
class Arrange:
    """Choose partitions of queries and operators, and where buffers stand: by chance, of those that there are."""

    seed: int


@dataclass(frozen=True)
class Place:
    """Have other virtual operators: see ``place``."""

    numbers: tuple[int, ...]


Event = Push | Add | Stop | Configure | Rest | Arrange | Place


def arranged(db: penstock.Database, chance: random.Random) -> dict[str, Any]:
    """Settings of ``db.configure``: some queries, operators and edges have a place."""
    graph = db.graph()
    inside = [o.id for o in graph.operators if o.kind not in ("source", "ticks")]
    partitions: dict[str, Any] = {}
    for member in [*(q.name for q in graph.queries if q.status == "running"), *inside]:
        if chance.random() < 0.4:
            partitions.setdefault(chance.choice("ab"), []).append(member)
    if "b" in partitions:
        strategy = chance.choice(sorted(STRATEGIES)) + chance.choice(["", "+"])
        partitions["b"] = {"of": partitions["b"], "strategy": strategy}
    edges = {(e.source, e.target): chance.random() < 0.5 for e in graph.edges if chance.random() < 0.4}
    return {"threading": "hybrid", "partitions": partitions, "queues": edges}


@st.composite
def configurations(draw: st.DrawFn) -> Configure:
    chosen: dict[str, Any] = {"threading": draw(st.sampled_from(THREADING))}
    if draw(st.booleans()):
        chosen["strategy"] = draw(st.sampled_from(sorted(STRATEGIES))) + draw(st.sampled_from(["", "+"]))
    chosen["workers"] = draw(st.integers(1, 3))
    chosen["mode"] = draw(st.sampled_from(sorted(LANES)))
    chosen["memory"] = draw(st.sampled_from([None, 0, 3_000, 8_000, "512 MB"]))
    chosen["experiments"] = {
        "architecture": draw(st.sampled_from(sorted(ARCHITECTURES))),
        "placement": draw(st.sampled_from(sorted(PLACEMENTS))),
        "buffer": draw(st.sampled_from(sorted(BUFFERS))),
        "masters": draw(st.sampled_from(sorted(MASTERS))),
        "read_ahead": draw(st.sampled_from([0, 50, 100])),
    }
    if draw(st.booleans()):
        chosen["experiments"]["quantum"] = draw(st.sampled_from([1, 2, 7, 0.001, None]))
    return Configure(chosen)


@st.composite
def lives(draw: st.DrawFn) -> tuple[Case, list[Event]]:
    """A database to which queries come and go while rows arrive and its settings change."""
    case = draw(cases())
    bound = draw(st.sampled_from([None, "0 rows", "1 row", "3 rows", "0 B", "2 KB", "5 KB"]))
    if bound is not None:
        declare = re.sub(r"(CREATE STREAM [sr] .*);", rf"\1 WITH (buffer = '{bound}');", case.declare)
        case = replace(case, declare=declare)
    texts = [case.query, *(draw(cases()).query for _ in range(draw(st.integers(0, 2))))]
    texts += [draw(st.sampled_from(texts)) for _ in range(draw(st.integers(0, 2)))]
    pending = {name: list(rows) for name, rows in case.streams.items() if rows}
    events: list[Event] = []
    adding = [Add(f"n{i}", text) for i, text in enumerate(texts)]
    together = draw(st.booleans())
    if together:
        events += adding
        adding = []
    running = [e.name for e in events if isinstance(e, Add)]
    while pending or adding:
        kinds = ["push", "push", "push", "add", "stop", "configure", "configure", "rest", "arrange", "place"]
        kind = draw(st.sampled_from(kinds))
        if kind == "add" and adding:
            running.append(adding[0].name)
            events.append(adding.pop(0))
        elif kind == "stop" and len(running) > 1 and draw(st.booleans()):
            events.append(Stop(running.pop(draw(st.integers(0, len(running) - 1)))))
        elif kind == "configure":
            events.append(draw(configurations()))
        elif kind == "arrange":
            events.append(Arrange(draw(st.integers(0, 2**31))))
        elif kind == "rest":
            events.append(Rest(draw(st.integers(0, 30))))
        elif kind == "place":
            events.append(Place(tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=7)))))
        elif pending:
            name = draw(st.sampled_from(sorted(pending)))
            n = draw(st.integers(0, len(pending[name])))
            events.append(Push(name, pending[name][:n]))
            pending[name] = pending[name][n:]
            if not pending[name]:
                del pending[name]
        elif adding:
            running.append(adding[0].name)
            events.append(adding.pop(0))
    return case, events


def lived(
    engine: str,
    case: Case,
    events: Sequence[Event],
    after: Callable[[penstock.Database], object] = lambda db: None,
) -> dict[str, Counter[object]]:
    """All answers of every query, those that were there when it was stopped included. ``after``: what to do after each
    event."""
    found: dict[str, Counter[object]] = {}
    with penstock.connect(engine=engine) as db:
        db.execute(case.declare)
        if case.beginning:
            db.push("q", list(case.beginning))
        resting: int | None = None
        changed = False
        for event in events:
            match event:
                case Push(stream, rows):
                    db.push(stream, rows)
                    if case.relation and not changed:
                        changed = True
                        with suppress(penstock.InputError):  # answers up to there have been given, on any engine
                            db.push("q", [{"k": r[0], "name": r[1], "ts": at, "op": op} for at, op, r in case.relation])
                case Add(name, text):
                    try:
                        db.query(text, name=name)
                    except penstock.BindError as refused:  # its windows go back to rows that are gone
                        found[name] = Counter([refused.message])
                case Stop(name) if name in db.queries:
                    query = db.queries[name]
                    if resting is not None:
                        db.resume(resting)
                        resting = None
                    db.settle()
                    query.stop()
                    found[name] = counted(query)
                case Configure(chosen) if engine != "reference":
                    db.configure(**chosen)
                case Arrange(seed) if engine != "reference":
                    # No buffer between partitions, or a query has ended meanwhile: nothing has changed.
                    with suppress(penstock.InputError, penstock.CatalogError):
                        db.configure(**arranged(db, random.Random(seed)))
                case Rest(number) if engine != "reference":
                    if resting is not None:
                        db.resume(resting)
                        resting = None
                    operators = [o.id for o in db.graph().operators if o.kind not in ("source", "ticks")]
                    if operators and number < 20:
                        with suppress(penstock.CatalogError):  # its query has ended meanwhile
                            db.suspend(operators[number % len(operators)])
                            resting = operators[number % len(operators)]
                case Place(numbers):
                    place(db, numbers)
            after(db)
        if resting is not None:
            db.resume(resting)
        for name in case.streams:
            db.close_stream(name)
        for name, query in db.queries.items():
            found[name] = counted(query)
            if engine != "reference":
                assert query.status in ("running", "ended")
    return found


def counted(query: penstock.Query) -> Counter[object]:
    table = query.fetch()
    rows = zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True)
    return Counter(tuple(comparable(v) for v in row) for row in rows)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after every push for operators that have become the same."""
    monkeypatch.setattr(host, "CONVERGE_EVERY", 1)


@settings(max_examples=examples(200), suppress_health_check=[*RELAXED, HealthCheck.function_scoped_fixture])
@given(life=lives())
def test_every_query_has_its_answers(life: tuple[Case, list[Event]]) -> None:
    case, events = life
    assert lived("local", case, events) == lived("reference", case, events), f"{case}\n  {events}"


@pytest.mark.parametrize("threading", THREADING)
def test_a_query_that_comes_late_sees_what_comes_after_it(threading: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        db.configure(threading=threading)
        first = db.query("SELECT count(*) AS n FROM s [ROWS 100] WHERE v >= 0")
        plain = db.query("SELECT v FROM s WHERE v >= 0")
        db.push("s", [(i, i) for i in range(50)])
        second = db.query("SELECT count(*) AS n FROM s [ROWS 100] WHERE v >= 0")
        other = db.query("SELECT v FROM s WHERE v >= 0")
        db.push("s", [(i, i) for i in range(50, 53)])
        assert first.fetch()["n"].to_pylist()[-1] == 53
        assert second.fetch()["n"].to_pylist()[-1] == 3
        assert plain.fetch()["v"].to_pylist() == list(range(53))
        assert other.fetch()["v"].to_pylist() == [50, 51, 52]
