"""Random sessions: what a user types and pushes, right or wrong, in an order that nobody planned.

Names come from a small pool, so statements meet declarations that are there, that are not there yet and that are gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.generated.language import Row, doubles, numbers, queries, texts


@dataclass(frozen=True)
class Say:
    """Execute a statement."""

    text: str


@dataclass(frozen=True)
class Push:
    """Push rows into a stream or a relation."""

    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Beat:
    """A heartbeat of a stream."""

    name: str
    at: int


@dataclass(frozen=True)
class Close:
    """Close a stream."""

    name: str


@dataclass(frozen=True)
class Pass:
    """Let time pass on the clock of the database."""

    ticks: int


@dataclass(frozen=True)
class Fetch:
    """Fetch the results of a query."""

    query: str


Step = Say | Push | Beat | Close | Pass | Fetch

STREAMS = {
    "s": "t BIGINT, k BIGINT, g STRING, v DOUBLE, n INT",
    "r": "t BIGINT, k BIGINT, w DOUBLE, h STRING",
    "at": "t TIMESTAMP, k BIGINT",
    "now": "k BIGINT, g STRING",
}
RELATIONS = {"q": "k BIGINT, name STRING", "p": "k BIGINT, name STRING"}
DERIVED = {
    "d": "SELECT ISTREAM k, v FROM s [ROWS 2] WHERE v > 0",
    "e": "SELECT ISTREAM k, name FROM q",
    "f": "SELECT ISTREAM q.k, p.name FROM q, p WHERE q.k = p.k",
}
VIEWS = {
    "big": "SELECT k, g, v FROM s [RANGE 6] WHERE k > 1",
    "both": "SELECT k, name FROM q UNION ALL SELECT k, name FROM p",
}
NAMES = [*STREAMS, *RELATIONS, *DERIVED, *VIEWS]
QUERIES = ["one", "two", "three", "four", "five"]
SEEDS = [
    "SELECT k, name FROM q", "SELECT q.k, p.name FROM q, p WHERE q.k = p.k", "SELECT count(*) AS n FROM q",
    "SELECT ISTREAM k FROM q EXCEPT SELECT k FROM p", "SELECT k FROM e", "SELECT count(*) AS n FROM e [ROWS 2]",
    "SELECT ISTREAM s.k, e.name FROM s [ROWS 2], e [ROWS 3] MASTER e", "SELECT k, name FROM f [RANGE 5]",
    "SELECT count(*) AS n FROM r [ROWS 1], q", "SELECT s.k, q.name FROM s [RANGE 5] LEFT JOIN q ON s.k = q.k",
    "SELECT k FROM both", "SELECT name, count(*) AS n FROM both GROUP BY name", "SELECT k FROM at [RANGE 4 SECONDS]",
    "SELECT g, count(*) AS n FROM now [RANGE 3 SECONDS] GROUP BY g", "SELECT now.k, q.name FROM now [ROWS 2], q",
    "SELECT ISTREAM at.k FROM at [ROWS 2], now [ROWS 1] MASTER now", "SELECT k FROM (SELECT ISTREAM k FROM p) [ROWS 2]",
    "SELECT k FROM s [NOW] UNION ALL SELECT k FROM e [NOW]", "SELECT e.k, d.v FROM e [RANGE 9], d [ROWS 2]",
]  # fmt: skip
WORDS = [
    "SELECT", "FROM", "WHERE", "AS", "JOIN", "LEFT", "ON", "USING", "GROUP", "BY", "ORDER", "LIMIT", "OFFSET",
    "NOW", "ROWS", "RANGE", "NULL", "IS", "NOT", "AND", "OR", "IN", "BETWEEN", "LIKE", "CASE", "END", "WITH", "AT",
    "INTO", "VALUES", "MASTER", "ISTREAM", "DISTINCT", "UNION", "INTERVAL", "TIMESTAMP", "ANTI", "SEMI", "WINDOW",
    "FOR", "LATERAL", "TUMBLING", "k", "t", "s", "q", "count", "(", ")", "[", "]", ",", "=", "<", "*", ".",
    "-", "+", "'", '"', "0", "1", "1.5", "1e9", "9223372036854775808", "::", "||", '\\', "'a'", "'2024-05-01'", "ß",
    '\x00',
]  # fmt: skip

small = st.integers(-2, 12)


def _name(draw: st.DrawFn, pool: list[str]) -> str:
    return draw(st.sampled_from(pool))


def _create(draw: st.DrawFn, known: set[str]) -> str:
    exists = draw(st.sampled_from(["", "", "IF NOT EXISTS "]))
    kind = draw(st.sampled_from(["stream", "stream", "relation", "relation", "derived", "view"]))
    if kind == "relation":
        name = _name(draw, list(RELATIONS))
        return f"CREATE RELATION {exists}{name} ({RELATIONS[name]}){draw(st.sampled_from(['', '', ' KEY (k)']))}"
    if kind == "derived":
        name = _name(draw, [n for n in DERIVED if n in known])
        return f"CREATE STREAM {exists}{name} AS {DERIVED[name]}"
    if kind == "view":
        name = _name(draw, [n for n in VIEWS if n in known])
        return f"CREATE {draw(st.sampled_from(['', 'OR REPLACE ']))}VIEW {name} AS {VIEWS[name]}"
    name = _name(draw, [n for n in STREAMS if n in known])
    text = f"CREATE STREAM {exists}{name} ({STREAMS[name]})"
    if name == "now":
        return text
    slack = " SLACK 2 SECONDS" if name == "at" else " SLACK 2"
    text += f" TIMESTAMP BY t{draw(st.sampled_from(['', '', slack]))}"
    text += draw(st.sampled_from(["", "", " PRIORITY BY k"]))
    return text + draw(st.sampled_from(["", "", " WITH (retain = '5 us')"]))


def _change(draw: st.DrawFn, known: set[str]) -> str:
    name = _name(draw, list(RELATIONS))
    then = f"{draw(small)}" if "s" in known else f"TIMESTAMP '2024-01-01 00:00:0{draw(st.integers(0, 9))}'"
    at = draw(st.sampled_from(["", "", "", f" AT {then}"]))
    kind = draw(st.sampled_from(["insert", "insert", "insert", "update", "delete"]))
    where = draw(
        st.sampled_from(["", f" WHERE k = {draw(st.integers(0, 3))}", " WHERE name IS NULL", " WHERE k / 0 = 1"])
    )
    if kind == "insert":
        row = st.tuples(st.sampled_from(["0", "1", "2", "3", "NULL"]), st.sampled_from(["'a'", "'b'", "NULL", "'ß'"]))
        rows = draw(st.lists(row, min_size=1, max_size=3))
        return f"INSERT INTO {name} VALUES {', '.join(f'({k}, {text})' for k, text in rows)}{at}"
    if kind == "update":
        value = draw(st.sampled_from(["k = k + 1", "name = 'c'", "k = NULL", "name = name || 'x', k = 1"]))
        return f"UPDATE {name} SET {value}{where}{at}"
    return f"DELETE FROM {name}{where}{at}"


def _spoil(draw: st.DrawFn, text: str) -> str:
    """Change a word or two of a statement."""
    words = re.findall(r"\w+|'[^']*'|[^\w\s]", text)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(words) - 1))
        match draw(st.sampled_from(["drop", "twice", "swap", "put", "replace"])):
            case "drop" if len(words) > 1:
                del words[place]
            case "twice":
                words.insert(place, words[place])
            case "swap" if place:
                words[place - 1], words[place] = words[place], words[place - 1]
            case "put":
                words.insert(place, draw(st.sampled_from(WORDS)))
            case _:
                words[place] = draw(st.sampled_from(WORDS))
    return " ".join(words)


def _query(draw: st.DrawFn, there: set[str]) -> str:
    """A query; of ready ones mostly one whose inputs are there."""
    ready = [q for q in SEEDS if all(n in there for n in re.findall(r"\w+", q) if n in NAMES)]
    if ready and draw(st.integers(0, 9)) < 6:
        return draw(st.sampled_from(ready))
    return draw(st.sampled_from(SEEDS)) if draw(st.integers(0, 9)) == 0 else draw(queries())


def _create_query(draw: st.DrawFn, there: set[str]) -> str:
    into = draw(st.sampled_from([""] * 15 + [" INTO made"]))
    options = draw(st.sampled_from([""] * 5 + [" WITH (strict = TRUE)", " WITH (priority = 9)"]))
    return f"CREATE QUERY {_name(draw, QUERIES)} AS {_query(draw, there)}{into}{options}"


def _statement(draw: st.DrawFn, there: set[str], known: set[str]) -> str:
    """A statement, now and then with a mistake in it."""
    match draw(st.sampled_from(["query"] * 6 + ["change"] * 8 + ["create", "stop", "drop", "show", "rest"])):
        case "create":
            text = _create(draw, known)
        case "query":
            text = _create_query(draw, there)
        case "change":
            text = _change(draw, known)
        case "stop":
            text = f"STOP QUERY {_name(draw, QUERIES)}"
        case "rest":
            what = draw(st.sampled_from(["SUSPEND QUERY {}", "RESUME QUERY {}", "ALTER QUERY {} SET (priority = 8)"]))
            text = what.format(_name(draw, QUERIES))
        case "drop":
            kinds = ["STREAM", "RELATION", "VIEW"]
            text = (
                f"DROP {draw(st.sampled_from(kinds))} {draw(st.sampled_from(['', 'IF EXISTS ']))}{_name(draw, NAMES)}"
            )
        case _:
            shown = ["SHOW STREAMS", "SHOW RELATIONS", "SHOW QUERIES", "SHOW VIEWS", f"DESCRIBE {_name(draw, NAMES)}"]
            shown.append(f"DESCRIBE QUERY {_name(draw, QUERIES)}")
            text = draw(st.sampled_from([*shown, f"EXPLAIN (FORMAT JSON) {_query(draw, there)}"]))
    return _spoil(draw, text) if draw(st.integers(0, 99)) < 10 else text


def _push(draw: st.DrawFn) -> Push:
    """Rows that are mostly in order; their times are those since the step before."""
    name = _name(draw, ["s"] * 4 + ["r"] * 4 + ["at", "now"] * 2 + ["q", "q", "p", "p", "d"])
    rows: list[Row] = []
    now = draw(st.integers(-1, 2))
    for _ in range(draw(st.integers(0, 5))):
        now += draw(st.sampled_from([0, 0, 1, 2, -1]))
        match name:
            case "s":
                rows.append((now, draw(numbers), draw(texts), draw(doubles), draw(numbers)))
            case "r":
                rows.append((now, draw(numbers), draw(doubles), draw(texts)))
            case "at":
                rows.append((now, draw(numbers)))
            case _:
                rows.append((draw(numbers), draw(texts)))
    if rows and draw(st.integers(0, 19)) == 0:
        spoiled = list(rows[-1])
        spoiled[draw(st.integers(0, len(spoiled) - 1))] = draw(st.sampled_from([None, "nonsense", 2**70, b"\xff", 1.5]))
        rows[-1] = tuple(spoiled) if draw(st.booleans()) else tuple(spoiled[:-1])
    return Push(name, tuple(rows))


@st.composite
def _steps(draw: st.DrawFn, there: set[str], known: set[str]) -> Step:
    match draw(st.sampled_from(["say"] * 30 + ["push"] * 18 + ["fetch"] * 6 + ["beat"] * 3 + ["pass"] * 3 + ["close"])):
        case "say":
            return Say(_statement(draw, there, known))
        case "push":
            return _push(draw)
        case "beat":
            return Beat(_name(draw, ["s", "r", "at", "now", "d", "q"]), draw(st.integers(-1, 9)))
        case "pass":
            return Pass(draw(st.sampled_from([0, 1, 1_000_000, 4_000_000])))
        case "fetch":
            return Fetch(_name(draw, QUERIES))
    return Close(_name(draw, ["s", "r", "at", "now", "d"]))


def _later(step: Step, by: int) -> Step:
    """The step with its times counted from the beginning of the session."""
    match step:
        case Beat(name, at):
            return Beat(name, at + by)
        case Push("s" | "r" as name, rows):
            return Push(name, tuple((r[0] + by, *r[1:]) if isinstance(r[0], int) else r for r in rows if r))
        case Push("at", rows):
            seconds = ((max(r[0] + by, 0), r) if isinstance(r[0], int) else (None, r) for r in rows if r)
            return Push(
                "at", tuple(r if at is None else (f"2024-01-01 00:00:{at % 60:02}", *r[1:]) for at, r in seconds)
            )
    return step


@st.composite
def sessions(draw: st.DrawFn) -> list[Step]:
    """Declarations, most of those that there are, a query or two, then whatever comes.

    All streams of a session have one kind of clock: where both are declared, the kind of a relation is that of the
    queries that read it, and so they notice each other.
    """
    known = set(NAMES) - draw(st.sampled_from([{"at", "now"}, {"s", "r", "d", "big"}]))
    there = known - draw(st.sets(st.sampled_from(NAMES), max_size=2))
    clocks = {n: "" if n == "now" else " TIMESTAMP BY t" for n in STREAMS}
    inputs = [f"CREATE STREAM {n} ({c}){clocks[n]}" for n, c in STREAMS.items() if n in there]
    inputs += [f"CREATE RELATION {n} ({c})" for n, c in RELATIONS.items() if n in there]
    begin = list(draw(st.permutations(inputs)))
    begin += [f"CREATE STREAM {n} AS {q}" for n, q in DERIVED.items() if n in there]
    begin += [f"CREATE VIEW {n} AS {q}" for n, q in VIEWS.items() if n in there]
    begin += [_create_query(draw, there) for _ in range(draw(st.integers(0, 2)))]
    pace = st.sampled_from([0, 0, 1, 1, 3])
    then = draw(st.lists(st.tuples(pace, _steps(there, known)), min_size=9, max_size=30))
    base = draw(st.integers(-2, 3))
    steps: list[Step] = [Say(text) for text in begin]
    for passed, step in then:
        base += passed
        steps.append(_later(step, base))
    return steps
