"""Whole lives of databases with stored relations: several of them, queries over relations alone, streams over
relations, changes with and without instants, streams that begin and end, queries that come and go.

A life is a list of steps, written as they are in the docs, so that one that fails can be read and kept as it is.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

import penstock
from penstock.database.database import core_of
from penstock.hosts import history
from penstock.testing import Clock
from penstock.testing.steps import ClockAt, read_step
from tests.generated.running import comparable
from tests.graph.schedules import place

BEGIN = 10**15
"""What the clock says first."""
RELATIONS = ["CREATE RELATION a (k INT, x INT)", "CREATE RELATION b (k INT, y INT)"]
STREAMS = [
    "CREATE STREAM s (t BIGINT, k INT, v INT) TIMESTAMP BY t{more}",
    "CREATE STREAM r (t BIGINT, k INT, w INT) TIMESTAMP BY t{more}",
]
STAMPED = "CREATE STREAM u (k INT, z INT)"
DERIVED = [
    "CREATE STREAM d AS SELECT {emit} k, x FROM a",
    "CREATE STREAM e AS SELECT {emit} a.k AS k, x + y AS xy FROM a, b WHERE a.k = b.k",
    "CREATE STREAM f AS SELECT {emit} d.k AS k, count(*) AS n FROM d {window} GROUP BY d.k",
    "CREATE STREAM g AS SELECT {emit} s.k AS k, v, x FROM s {window} LEFT JOIN a ON s.k = a.k",
    "CREATE STREAM h AS SELECT {emit} d.k AS k, y FROM d {window}, b WHERE d.k = b.k",
]
OVER = ["d", "d", "e", "f", "g", "h"]
SLIDING = ["[ROWS 1]", "[ROWS 3]", "[RANGE 3]", "[RANGE 8]", "[NOW]", "", "[RANGE 4 SLIDE 2]"]
BOUNDED = [
    "[TUMBLING 4]", "[HOPPING 6 EVERY 3]", "[BEGIN WINDOW 0 END WINDOW 3 HOP SIZE (3, 3) END QUERY 12]",
    "[BEGIN WINDOW 6 END WINDOW 8 HOP SIZE (-2, -2) END QUERY 2]",
]  # fmt: skip


@dataclass(frozen=True)
class Life:
    """What a database lives through. ``query NAME: text`` adds a query, ``restart`` opens it again where that can be,
    ``configure WAY`` sets the threading of the local engine, ``place 0 2 …`` gives its operators in turn to virtual
    operators of these numbers; the rest is as in ``penstock.testing.steps``."""

    declare: tuple[str, ...]
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(["", *(f"  {line}" for line in (*self.declare, *self.steps))])

    @property
    def queries(self) -> list[str]:
        """The names of all queries that come."""
        return [s.split(" ", 2)[1].rstrip(":") for s in self.steps if s.startswith("query ")]

    def without(self, name: str) -> Life:
        """The same life, in which a query never came."""
        gone = tuple(f"{what} QUERY {name}" for what in ("STOP", "SUSPEND", "RESUME", "ALTER"))
        return replace(self, steps=tuple(s for s in self.steps if not s.startswith((f"query {name}: ", *gone))))


Lived = tuple[dict[str, list[tuple[object, ...]]], list[str]]
"""The answers of each query in order, what those of each may lack, and what was refused."""


def lived(
    life: Life,
    engine: str,
    *,
    fetch: bool = False,
    shards: int | None = None,
    after: Callable[[penstock.Database], object] = lambda db: None,
) -> Lived:
    """Live it. ``fetch``: after every step. ``after``: what to do then."""
    found: dict[str, list[tuple[object, ...]]] = {}
    queries: dict[str, penstock.Query] = {}
    refused: list[str] = []
    clock = Clock(BEGIN)
    options: dict[str, Any] = {"engine": engine, "clock": clock}
    with ExitStack() as stack:
        stack.enter_context(patch.object(history, "MEMORY", 100))
        if engine == "spark":
            options |= {"path": stack.enter_context(tempfile.TemporaryDirectory()), "shards": shards, "trigger": 3600}
        db = penstock.connect(**options)
        stack.callback(lambda: db.close())

        def take() -> None:
            for name, query in queries.items():
                table = query.fetch()
                rows = zip(*(c.to_pylist() for c in table.columns), strict=True)
                found.setdefault(name, []).extend(tuple(comparable(v) for v in row) for row in rows)

        for number, line in enumerate((*life.declare, *life.steps)):
            kind, _, rest = line.partition(" ")
            try:
                if kind == "query":
                    name, _, text = rest.partition(": ")
                    queries[name] = db.query(text, name=name)
                elif kind == "restart":
                    if engine != "spark":
                        begin_anew(db)
                    else:
                        db.close()
                        db = penstock.connect(**options)
                        queries = {name: db.queries[name] for name in queries if name in db.queries}
                elif kind == "configure":
                    if engine == "local":
                        db.configure(threading=rest)
                elif kind == "place":
                    place(db, [int(number) for number in rest.split()])
                elif kind in ("SUSPEND", "RESUME", "ALTER"):
                    with suppress(penstock.StateError):  # workers may or may not have seen that it has ended
                        db.execute(line)
                elif kind == "STOP":
                    take()
                    queries.pop(rest.split()[-1], None)
                    db.execute(line)
                elif kind.isupper():
                    db.execute(line)
                else:
                    step = read_step(line)
                    if isinstance(step, ClockAt):
                        clock.set(step.at)
                    step.do(db)
            except penstock.PenstockError as error:
                refused.append(f"{number}: {error.one_line}")
            if fetch:
                take()
            after(db)
        take()
        for name, query in queries.items():
            if query.incomplete:
                found[f"{name} lacks"] = [(m.since, m.until, m.reason) for m in query.incomplete]
    return found, refused


def begin_anew(db: penstock.Database) -> None:
    """Streams are idle from now on, as those of a database that is opened again."""
    for source in core_of(db).inputs.values():
        source.since = db.clock() if source.definition.idle else None


def counted(lived: Lived) -> tuple[dict[str, Counter[tuple[object, ...]]], list[str]]:
    """Without the order of answers within an instant, which engines are free in."""
    found, refused = lived
    return {name: Counter(rows) for name, rows in found.items()}, refused


class _Writer:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names: list[str] = []
        self.now = {"s": self.number(-3, 3), "r": self.number(-3, 3)}
        self.given = -3
        self.time = BEGIN

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def number(self, least: int = 0, most: int = 3) -> int:
        return self.draw(st.integers(least, most))

    def declarations(self) -> list[str]:
        more = [
            "", "", "", " SLACK 2", " WITH (retain = '5 us')", " WITH (idle = '3 us')",
            " WITH (retain = 7, history = 'disk')",
        ]  # fmt: skip
        first = [*RELATIONS, *(s.format(more=self.pick(more)) for s in STREAMS)]
        if self.chance(15):
            first.append(STAMPED)
        first = self.draw(st.permutations(first))
        if self.chance(15):
            first = [text for text in first if text.startswith("CREATE RELATION")]
        emits = ["ISTREAM", "ISTREAM", "ISTREAM", "RSTREAM", "DSTREAM"]
        found = list(first)
        for text in DERIVED:
            if not (" FROM s " in text and not any("STREAM s " in f for f in first)):
                found.append(text.format(emit=self.pick(emits), window=self.pick(SLIDING)))
        self.names = [f.split()[2] for f in found]
        return found

    # -- queries ------------------------------------------------------------------------------------

    def source(self, bounded: str | None) -> str:
        relations = ["a", "b", "a", "b", "(SELECT k, count(*) AS c FROM a GROUP BY k)", "(SELECT DISTINCT k FROM b)"]
        streams = [n for n in ["s", "r", "u", *OVER, "s", "d"] if n in self.names]
        if bounded is None and self.chance(50):
            return self.pick(relations)
        window = bounded if bounded is not None and self.chance(80) else self.pick(SLIDING)
        if self.chance(20):
            return f"(SELECT ISTREAM k FROM {self.pick(['a', 'b', 'd [ROWS 2]'])}) {window}"
        name = self.pick(streams) if streams else "d"
        if name == "u":
            window = "[ROWS 2]"
        return f"{name} {window}"

    def query(self) -> str:
        bounded = self.pick(BOUNDED) if self.chance(15) else None
        sources = [self.source(bounded) for _ in range(self.number(1, 3))]
        text = f"{sources[0]} AS q0"
        for i, source in enumerate(sources[1:], 1):
            how = self.pick([",", "JOIN", "JOIN", "LEFT JOIN", "FULL JOIN"])
            text += f", {source} AS q{i}" if how == "," else f" {how} {source} AS q{i} ON q0.k = q{i}.k"
        keys = ", ".join(f"q{i}.k AS k{i}" for i in range(len(sources)))
        emit = "" if bounded else self.pick(["", "", "ISTREAM ", "RSTREAM ", "DSTREAM "])
        what = self.pick([keys, keys, "count(*) AS n", f"{keys.split(',')[0]}, count(*) AS n"])
        tail = " GROUP BY q0.k" if what.endswith("n") and "k0" in what else ""
        if self.chance(15):
            tail = f" WHERE q0.k {self.pick(['', 'NOT '])}IN (SELECT k FROM {self.pick(['a', 'b'])})" + tail
        masters = [f"q{i}" for i, source in enumerate(sources) if source[0] not in "ab("]
        if masters and bounded is None and self.chance(30):
            tail += f" MASTER {self.pick(masters)}"
        return f"SELECT {emit}{what} FROM {text}{tail}"

    # -- steps --------------------------------------------------------------------------------------

    def change(self) -> str:
        name = self.pick(["a", "b"])
        value = "x" if name == "a" else "y"
        at = ""
        if self.chance(25):
            newest = max([*self.now.values(), self.given])
            self.given = newest + self.number(-1, 6) if self.chance(80) else self.number(-3, 40)
            at = f" AT {self.given}"
        match self.number(0, 9):
            case 0:
                return f"DELETE FROM {name} WHERE k = {self.number()}{at}"
            case 1:
                return f"UPDATE {name} SET {value} = {value} + 1 WHERE k = {self.number()}{at}"
            case 2:
                return f"INSERT INTO {name} VALUES ({self.number()}, 1), ({self.number()}, 2){at}"
        return f"INSERT INTO {name} VALUES ({self.number()}, {self.number()}){at}"

    def steps(self) -> list[str]:
        now = self.now
        found: list[str] = []
        running: list[str] = []
        resting: list[str] = []
        count = 0
        streams = [n for n in ("s", "r") if n in self.names]
        for _ in range(self.number(3, 22)):
            kind = self.pick(
                ["change"] * 6 + ["rows"] * 4 + ["query"] * 3 + ["heartbeat", "stop", "rare", "time", "rest"]
            )
            name = self.pick(streams) if streams else ""
            if kind == "change":
                found.append(self.change())
            elif kind == "query" and count < 5:
                count += 1
                running.append(f"n{count}")
                found.append(f"query n{count}: {self.query()}")
            elif kind == "stop" and running:
                gone = running.pop(self.number(0, len(running) - 1))
                if gone in resting:
                    found.append(f"RESUME QUERY {gone}")
                    resting.remove(gone)
                found.append(f"STOP QUERY {gone}")
            elif kind == "rest" and running:
                one = self.pick(running)
                if self.chance(30):
                    found.append(f"ALTER QUERY {one} SET (priority = {self.number(0, 9)}, latency = '5 ms')")
                elif one in resting:
                    found.append(f"RESUME QUERY {one}")
                    resting.remove(one)
                else:
                    found.append(f"SUSPEND QUERY {one}")
                    resting.append(one)
            elif kind == "rows" and name:
                rows = []
                for _ in range(self.number(1, 2)):
                    now[name] += self.draw(st.sampled_from([0, 1, 1, 2, 5]))
                    rows.append(f"({now[name]}, {self.number()}, {self.number()})")
                found.append(f"{name}: {', '.join(rows)}")
            elif kind == "heartbeat" and name:
                now[name] += self.number(0, 6)
                found.append(f"{name}: heartbeat {now[name]}")
            elif kind == "time":
                self.time += self.number(1, 9)
                found.append(f"clock {self.time}")
            elif kind == "rare":
                rare = [f"{name}: close"] if name else []
                rare += [" ".join(["place", *(str(self.number()) for _ in range(self.number(1, 5)))])] * 2
                rare += ["restart", "configure graph", "configure operator", "configure hybrid", "configure direct"]
                if "u" in self.names:
                    rare += [f"u: ({self.number()}, 1)"] * 4
                else:
                    rare.append(STAMPED)
                found.append(self.pick(rare))
                if found[-1] == STAMPED:
                    self.names.append("u")
        if self.chance(70):
            found += [f"{n}: close" for n in streams]
            if self.chance(30):
                found.append(self.change())
        return [*found, *(f"RESUME QUERY {name}" for name in resting)]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """The life of a database whose relations matter."""
    writer = _Writer(draw)
    declare = writer.declarations()
    return Life(tuple(declare), tuple(writer.steps()))
