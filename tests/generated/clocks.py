"""Lives of databases whose streams move on with a clock: stamped on arrival, or declared ``WITH (idle = …)``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hypothesis import strategies as st

import penstock
from penstock.testing import Clock
from tests.generated.running import comparable

BEGIN = datetime(2024, 1, 1)
STREAMS = [
    "CREATE STREAM u (k INT)",
    "CREATE STREAM w (k INT)",
    "CREATE STREAM s (at TIMESTAMP, k INT) TIMESTAMP BY at{slack} WITH (idle = '{idle} seconds')",
    "CREATE STREAM r (at TIMESTAMP, k INT) TIMESTAMP BY at",
    "CREATE RELATION a (k INT)",
]
DERIVED = [
    "CREATE STREAM d AS SELECT ISTREAM {one}.k AS k, count(*) AS n FROM {one} {window} GROUP BY {one}.k",
    "CREATE STREAM d AS SELECT {emit} {one}.k AS k FROM {one} {window}, {two} {other} WHERE {one}.k = {two}.k",
    "CREATE STREAM d AS SELECT {emit} k FROM a",
]
SLIDING = [
    "[RANGE 2 SECONDS]", "[RANGE 5 SECONDS]", "[ROWS 2]", "[NOW]", "[RANGE 4 SECONDS SLIDE 2 SECONDS]",
    "[RANGE 1 SECOND SLIDE 3 SECONDS]", "[ROWS 2 SLIDE 2]", "",
]  # fmt: skip
BOUNDED = ["[TUMBLING 4 SECONDS]", "[HOPPING 6 SECONDS EVERY 3 SECONDS]", "[SESSION GAP 3 SECONDS]"]


@dataclass(frozen=True)
class Step:
    """``push`` a row, which has an instant, in seconds, where the stream has one; ``pass`` seconds; ``change`` the
    relation; or ``query``, ``heartbeat``, ``close``."""

    kind: str
    name: str = ""
    value: int = 0
    text: str = ""


@dataclass(frozen=True)
class Life:
    declare: tuple[str, ...]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(["", *self.declare, *map(str, self.steps)])


def at(seconds: int) -> datetime:
    """An instant."""
    return BEGIN + timedelta(seconds=seconds)


def do(db: penstock.Database, clock: Clock, step: Step) -> None:
    """Do a step; what is refused is left out."""
    try:
        match step.kind:
            case "query":
                db.query(step.text, name=step.name)
            case "push":
                stamped = db.catalog.streams[step.name].timestamp_by is None
                db.push(step.name, [(step.value % 2,)] if stamped else [(at(step.value), step.value % 2)])
            case "change":
                db.execute(step.text)
            case "heartbeat":
                db.heartbeat(step.name, at(step.value))
            case "close":
                db.close_stream(step.name)
            case "pass":
                clock.advance(timedelta(seconds=step.value))
    except penstock.PenstockError:
        pass


def lived(
    life: Life, engine: str, path: str | None = None, after: Callable[[penstock.Database], object] = lambda db: None
) -> dict[str, Counter[object]]:
    """All answers of each query, when all streams have been closed. ``after``: what to do before that."""
    clock = Clock(BEGIN)
    with penstock.connect(path, engine=engine, clock=clock) as db:
        for text in life.declare:
            db.execute(text)
        for step in life.steps:
            do(db, clock, step)
        after(db)
        for name, stream in db.catalog.streams.items():
            if not stream.derived:
                db.close_stream(name)
        return answers(db)


def answers(db: penstock.Database) -> dict[str, Counter[object]]:
    """What the queries have answered."""
    found: dict[str, Counter[object]] = {}
    for name, query in db.queries.items():
        table = query.fetch()
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        found[name] = Counter(tuple(comparable(v) for v in row) for row in rows)
    return found


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """The life of a database whose clock matters."""

    def pick(options: Sequence[str]) -> str:
        return draw(st.sampled_from(options))

    def number(least: int, most: int) -> int:
        return draw(st.integers(least, most))

    names = ["u", "w", "s", "r"]
    slack = pick(["", "", " SLACK 2 SECONDS"])
    declare = [text.format(slack=slack, idle=number(1, 3)) for text in draw(st.permutations(STREAMS))]
    one, two = draw(st.permutations(names))[:2]
    emit = pick(["ISTREAM", "ISTREAM", "DSTREAM", "RSTREAM"])
    declare.append(pick(DERIVED).format(emit=emit, one=one, two=two, window=pick(SLIDING), other=pick(SLIDING)))

    def query() -> str:
        bounded = number(0, 5) == 0
        over = pick(["u", "w", "s", "d"])
        sources = [f"{over} {pick(BOUNDED if bounded else SLIDING)}"]
        for _ in range(number(0, 1) + number(0, 1)):
            name = pick(["u", "w", "s", "r", "d", "a"])
            sources.append("a" if name == "a" else f"{name} {pick(SLIDING)}")
        if bounded and "SESSION" in sources[0]:
            del sources[1:]
        text = ", ".join(f"{source} AS q{i}" for i, source in enumerate(sources))
        where = " AND ".join(f"q0.k = q{i}.k" for i in range(1, len(sources)))
        what = pick(["q0.k", "count(*) AS n", "q0.k, count(*) AS n"])
        emit = "" if bounded else pick(["", "", "ISTREAM ", "DSTREAM ", "RSTREAM "])
        group = " GROUP BY q0.k" if "," in what else ""
        streams = [f"q{i}" for i, source in enumerate(sources) if source != "a"]
        master = f" MASTER {pick(streams)}" if not bounded and number(0, 3) == 0 else ""
        return f"SELECT {emit}{what} FROM {text}{' WHERE ' + where if where else ''}{group}{master}"

    steps = [Step("query", "q0", text=query())]
    now, passed = {"s": 0, "r": 0}, 0
    for i in range(number(5, 20)):
        kind = pick(["push"] * 5 + ["pass"] * 4 + ["change", "heartbeat", "query", "close"])
        name = pick(names)
        if kind in ("push", "heartbeat"):
            if name in now:
                now[name] = max(now[name], passed) + number(-1, 3)
            elif kind == "heartbeat":
                continue
            steps.append(Step(kind, name, now.get(name, number(0, 2))))
        elif kind == "pass":
            steps.append(Step("pass", "", number(1, 6)))
            passed += steps[-1].value
        elif kind == "change":
            later = f" AT TIMESTAMP '{at(number(0, 20))}'" if number(0, 2) == 0 else ""
            steps.append(Step("change", text=f"INSERT INTO a VALUES ({number(0, 1)}){later}"))
        elif kind == "query" and i < 6:
            steps.append(Step("query", f"q{i + 1}", text=query()))
        elif kind == "close" and number(0, 2) == 0:
            steps.append(Step("close", name))
    return Life(tuple(declare), (*steps, Step("pass", "", number(1, 8))))
