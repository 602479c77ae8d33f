"""Random declarations, streams and queries over the whole language, as CQL text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import strategies as st

Row = tuple[object, ...]

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, g STRING, v DOUBLE, n INT) TIMESTAMP BY t{slack_s}{priority_s};
CREATE STREAM r (t BIGINT, k BIGINT, w DOUBLE, h STRING) TIMESTAMP BY t{slack_r}{priority_r};
CREATE RELATION q (k BIGINT, name STRING);
CREATE STREAM d AS SELECT ISTREAM k, v FROM s [ROWS 2] WHERE v > 0;
CREATE VIEW big AS SELECT k, g, v FROM s [RANGE 6] WHERE k > 1;
"""
COLUMNS = {
    "s": [("k", "num"), ("g", "text"), ("v", "num"), ("n", "num")],
    "r": [("k", "num"), ("w", "num"), ("h", "text")],
    "q": [("k", "num"), ("name", "text")],
    "d": [("k", "num"), ("v", "num")],
    "big": [("k", "num"), ("g", "text"), ("v", "num")],
}


@dataclass(frozen=True)
class Case:
    """A generated database and query."""

    declare: str
    query: str
    streams: dict[str, list[Row]]
    relation: list[tuple[int, str, Row]] = field(default_factory=list)
    beginning: list[Row] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.query}\n  s={self.streams['s']}\n  r={self.streams['r']}\n  q={self.beginning} {self.relation}"


numbers = st.sampled_from([None, 0, 1, 2, 3, 5])
# Multiples of 1/4: sums of few of them are exact in any order.
doubles = st.sampled_from([None, 0.0, -0.0, 0.25, 1.5, 2.0, -1.25, 7.75, math.nan])
texts = st.sampled_from([None, "", "a", "b", "ä", "日本"])


@st.composite
def instants(draw: st.DrawFn, size: int, slack: int) -> list[int]:
    """Mostly increasing instants with ties and gaps, out of order within slack, now and then beyond it."""
    now, out = draw(st.integers(-3, 3)), []
    for _ in range(size):
        now += draw(st.sampled_from([0, 0, 1, 1, 2, 3, 25]))
        back = draw(st.integers(0, slack + 1)) if slack else draw(st.sampled_from([0] * 9 + [1]))
        out.append(now - back)
    return out


@st.composite
def stream_rows(draw: st.DrawFn, name: str, slack: int, most: int = 14) -> list[Row]:
    """Elements of one of the streams in order of arrival."""
    size = draw(st.integers(0, most))
    rows: list[Row] = []
    for t in draw(instants(size, slack)):
        if name == "s":
            rows.append((t, draw(numbers), draw(texts), draw(doubles), draw(numbers)))
        else:
            rows.append((t, draw(numbers), draw(doubles), draw(texts)))
    return rows


SLIDING = [
    "", "[ROWS 1]", "[ROWS 3]", "[RANGE 4]", "[RANGE 9]", "[NOW]", "[RANGE UNBOUNDED]", "[ROWS 3 SLIDE 2]",
    "[RANGE 6 SLIDE 3]", "[RANGE 3 SLIDE 5]", "[PARTITION BY k ROWS 2]",
]  # fmt: skip
BOUNDED = [
    "[TUMBLING 5]", "[HOPPING 8 EVERY 3]", "[HOPPING 2 EVERY 5]",
    "[BEGIN WINDOW 0 END WINDOW 5 HOP SIZE (5, 5) END QUERY 30]",
    "[BEGIN WINDOW 0 END WINDOW 5 HOP SIZE (0, 5)]", "[BEGIN WINDOW 2 END WINDOW 9]",
    "[BEGIN WINDOW 10 END WINDOW 16 HOP SIZE (-4, -4) END QUERY 0]",
    "[BEGIN WINDOW 1 TUPLE END WINDOW 3 TUPLES HOP SIZE (2, 2)]",
    "[BEGIN WINDOW 1 TUPLE END WINDOW 2 TUPLES HOP SIZE (0, 1) END QUERY 6 TUPLES]",
]  # fmt: skip
SESSIONS = ["[SESSION GAP 3]", "[PARTITION BY k SESSION GAP 4]"]


class Writer:
    """Writes one query; every choice is drawn."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def pick(self, options: list[str]) -> str:
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    # -- expressions -----------------------------------------------------------------------------

    def column(self, scope: list[tuple[str, str]], kind: str) -> str | None:
        names = [n for n, k in scope if k == kind]
        return self.pick(names) if names else None

    def number(self, scope: list[tuple[str, str]], depth: int = 2) -> str:
        column = self.column(scope, "num")
        choice = self.draw(st.integers(0, 9)) if depth else 0
        if column is None or choice == 9:
            return self.pick(["0", "1", "2", "1.5", "CAST(NULL AS BIGINT)"])
        if choice < 5:
            return column
        left, right = self.number(scope, depth - 1), self.number(scope, depth - 1)
        return self.pick([
            f"({left} + {right})", f"({left} - {right})", f"({left} * {right})", f"({left} / {right})",
            f"({left} % {right})", f"abs({left})", f"coalesce({left}, {right})", f"(-{left})",
            f"CASE WHEN {left} > {right} THEN {left} ELSE {right} END", f"length({self.text(scope, 0)})",
            f"greatest({left}, {right})", f"nullif({left}, {right})", f"CAST({left} AS BIGINT)",
        ])  # fmt: skip

    def text(self, scope: list[tuple[str, str]], depth: int = 1) -> str:
        column = self.column(scope, "text")
        if column is None:
            return self.pick(["'a'", "'b'"])
        if depth == 0 or self.chance(70):
            return column
        return self.pick(
            [f"upper({column})", f"({column} || 'x')", f"coalesce({column}, 'none')", f"substr({column}, 1, 1)"]
        )

    def condition(self, scope: list[tuple[str, str]], depth: int = 2) -> str:
        choice = self.draw(st.integers(0, 11)) if depth else self.draw(st.integers(0, 5))
        number = self.number(scope, 1)
        match choice:
            case 0 | 1 | 2:
                return f"{number} {self.pick(['<', '<=', '>', '>=', '=', '<>'])} {self.number(scope, 1)}"
            case 3:
                return f"{self.text(scope)} = {self.text(scope)}"
            case 4:
                return f"{number} IS {self.pick(['', 'NOT '])}NULL"
            case 5:
                return f"{number} IN (0, 1, 2)"
            case 6:
                return f"{number} BETWEEN 0 AND 3"
            case 7:
                return f"{self.text(scope)} LIKE 'a%'"
            case 8:
                return f"NOT ({self.condition(scope, depth - 1)})"
            case 9:
                return f"{number} IS DISTINCT FROM {self.number(scope, 1)}"
        return f"({self.condition(scope, depth - 1)} {self.pick(['AND', 'OR'])} {self.condition(scope, depth - 1)})"

    def subcondition(self, alias_scope: list[tuple[str, str]]) -> str:
        """A condition with a sub-query."""
        number = self.number(alias_scope, 0)
        window = self.pick(["[ROWS 2]", "[RANGE 5]", "[NOW]"])
        negate = self.pick(["", "NOT "])
        return self.pick([
            f"{number} {negate}IN (SELECT x.k FROM r {window} x WHERE x.w > 0)",
            f"{number} {negate}IN (SELECT k FROM q)",
            f"{negate}EXISTS (SELECT 1 FROM r {window} x WHERE x.k = {number})",
            f"{number} > (SELECT avg(x.w) FROM r {window} x)",
            f"({number} IN (SELECT x.k FROM r {window} x) OR {self.condition(alias_scope, 0)})",
        ])  # fmt: skip

    # -- sources ---------------------------------------------------------------------------------

    def source(self, alias: str, window: str | None = None) -> tuple[str, list[tuple[str, str]]]:
        """(text of an entry of FROM, its columns)."""
        kind = self.draw(st.integers(0, 11))
        if window is not None:
            kind = min(kind, 9)
        if kind < 7:
            name = self.pick(["s", "r"])
            return f"{name} {window if window is not None else self.pick(SLIDING)} {alias}", self.scoped(alias, name)
        if kind == 7:
            own = window if window is not None else self.pick(["", "[ROWS 2]", "[RANGE 4]"])
            return f"d {own} {alias}", self.scoped(alias, "d")
        if kind == 8:
            own = window if window is not None else self.pick(["[ROWS 2]", "[RANGE 5]", ""])
            emit = self.pick(["ISTREAM", "DSTREAM", "RSTREAM"])
            inner = f"SELECT {emit} k, v, g FROM s {self.pick(SLIDING[1:])} WHERE {self.condition(COLUMNS['s'], 1)}"
            return f"({inner}) {own} {alias}", [(f"{alias}.k", "num"), (f"{alias}.v", "num"), (f"{alias}.g", "text")]
        if kind == 9:
            if window is not None:
                return f"s {window} {alias}", self.scoped(alias, "s")
            inner = f"SELECT k, count(*) AS c, max(v) AS m FROM s {self.pick(SLIDING)} GROUP BY k"
            return f"({inner}) {alias}", [(f"{alias}.k", "num"), (f"{alias}.c", "num"), (f"{alias}.m", "num")]
        name = "q" if kind == 10 else "big"
        return f"{name} {alias}", self.scoped(alias, name)

    def scoped(self, alias: str, name: str) -> list[tuple[str, str]]:
        return [(f"{alias}.{c}", k) for c, k in COLUMNS[name]]

    def from_clause(self, bounded: bool) -> tuple[str, list[tuple[str, str]]]:
        if bounded:
            window = self.pick(BOUNDED)
            text, scope = self.source("a", window)
            if self.chance(30):
                other, more = self.source("b", window) if self.chance(50) else self.source("b")
                text += f" {self.pick(['JOIN', 'LEFT JOIN'])} {other} ON a.k = b.k"
                scope += more
            elif self.chance(25):
                text, scope = self.source("a", self.pick(SESSIONS))
                if "k" not in [n.split(".")[1] for n, _ in scope]:
                    text, scope = "s [SESSION GAP 3] a", self.scoped("a", "s")
            return text, scope
        text, group = self.source("a")
        first, apart = "a", list[tuple[str, str]]()
        joins = self.draw(st.sampled_from([0, 0, 0, 1, 1, 2]))
        for alias in ["b", "c"][:joins]:
            other, more = self.source(alias)
            kind = self.pick(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", ","])
            if kind == ",":
                # What is joined behind a comma does not see what stands before it.
                text += f", {other}"
                first, apart, group = alias, apart + group, more
                continue
            on = f"{first}.k = {alias}.k"
            if self.chance(30):
                on += f" AND {self.condition(group + more, 0)}"
            elif self.chance(15):
                on = f"{self.column(group, 'num')} < {self.column(more, 'num')}"
            text += f" {kind} {other} ON {on}"
            if kind not in ("SEMI JOIN", "ANTI JOIN"):
                group = group + more
        return text, apart + group

    # -- queries ---------------------------------------------------------------------------------

    def aggregate(self, scope: list[tuple[str, str]]) -> str:
        number, text = self.number(scope, 1), self.text(scope, 0)
        return self.pick([
            "count(*)", f"count({number})", f"sum({number})", f"avg({number})", f"min({number})", f"max({text})",
            f"count(DISTINCT {number})", f"sum({number}) FILTER (WHERE {self.condition(scope, 0)})", f"first({number})",
            f"last({text})", f"collect({number})", f"median({number})", f"variance({number})", f"max({number})",
        ])  # fmt: skip

    def select(self, bounded: bool, emit: str, tail: bool) -> str:
        source, scope = self.from_clause(bounded)
        where = ""
        if self.chance(50):
            where = f" WHERE {self.condition(scope)}"
            if self.chance(30) and not bounded:
                where += f" AND {self.subcondition(scope)}"
        group = having = ""
        if self.chance(40):
            keys = [self.number(scope, 0) if self.chance(70) else self.text(scope, 0)] if self.chance(70) else []
            keys = [k for k in keys if "." in k]
            items = [f"{k} AS g{i}" for i, k in enumerate(keys)]
            items += [f"{self.aggregate(scope)} AS x{i}" for i in range(self.draw(st.integers(1, 2)))]
            if keys:
                group = f" GROUP BY {', '.join(keys)}"
            if self.chance(25):
                having = f" HAVING {self.pick(['count(*) > 1', 'count(*) <= 2', f'max({self.number(scope, 0)}) > 1'])}"
            names = [i.rsplit(" AS ", 1)[1] for i in items]
            distinct = ""
        else:
            items = [f"{self.number(scope)} AS x0"]
            if self.chance(60):
                items.append(f"{self.text(scope)} AS x1")
            if bounded and self.chance(50):
                items.append("window_start AS x2, window_end AS x3")
            names = ["x0"]
            distinct = "DISTINCT " if self.chance(20) else ""
        order = ""
        if tail and self.chance(20):
            order = f" ORDER BY {names[0]}{self.pick(['', ' DESC'])} LIMIT {self.draw(st.integers(1, 3))}"
        priority = f" PRIORITY BY {self.number(scope, 1)}" if self.chance(10) else ""
        return f"SELECT {emit}{distinct}{', '.join(items)} FROM {source}{where}{group}{having}{order}{priority}"


@st.composite
def queries(draw: st.DrawFn) -> str:
    """The text of a query."""
    w = Writer(draw)
    shape = draw(st.integers(0, 9))
    if shape == 9:
        operation = w.pick(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"])
        left = f"SELECT k, g FROM s {w.pick(SLIDING)} WHERE {w.condition(COLUMNS['s'], 1)}"
        right = f"SELECT k, h FROM r {w.pick(SLIDING)}"
        emit = w.pick(["", "ISTREAM", "DSTREAM", "RSTREAM"])
        whole = f"{left} {operation} {right}"
        return f"{emit}({whole})" if emit else whole
    bounded = shape >= 7
    emit = w.pick(["", "ISTREAM ", "ISTREAM ", "DSTREAM ", "RSTREAM "]) if not bounded else ""
    text = w.select(bounded, emit, tail=True)
    if not bounded and w.chance(25):
        masters = [name for name in ("s", "r") if f" {name} " in text.split(" FROM ", 1)[1].split("(")[0]]
        if masters:
            text += f" MASTER {w.pick([*masters, ', '.join(masters)])}"
    return text


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A query with its declarations and data."""
    slack_s, slack_r = draw(st.sampled_from([0, 0, 2])), draw(st.sampled_from([0, 0, 3]))
    priorities = st.sampled_from(["", "", " PRIORITY BY k", " PRIORITY BY k > 1"])
    declare = DECLARE.format(
        slack_s=f" SLACK {slack_s}" if slack_s else "", slack_r=f" SLACK {slack_r}" if slack_r else "",
        priority_s=draw(priorities), priority_r=draw(priorities),
    )  # fmt: skip
    streams = {"s": draw(stream_rows("s", slack_s)), "r": draw(stream_rows("r", slack_r))}
    beginning: list[Row] = [(draw(numbers), draw(texts)) for _ in range(draw(st.integers(0, 3)))]
    present: list[Row] = list(beginning)
    relation: list[tuple[int, str, Row]] = []
    at = 0
    for _ in range(draw(st.integers(0, 4))):
        at += draw(st.integers(0, 6)) if relation else draw(st.integers(1, 6))
        leaves = bool(present) and draw(st.booleans())
        if leaves:
            relation.append((at, "-", present.pop(draw(st.integers(0, len(present) - 1)))))
        else:
            row: Row = (draw(numbers), draw(texts))
            present.append(row)
            relation.append((at, "+", row))
    return Case(declare, draw(queries()), streams, relation, beginning)
