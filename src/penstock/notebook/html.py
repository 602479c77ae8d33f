"""Databases, queries, plans, graphs and tables as HTML: by themselves, without scripts, in light and dark notebooks.

Nothing that is shown is taken: looking at a query leaves its answers where they are.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from functools import singledispatch

import pyarrow as pa

from penstock.cql.keywords import KEYWORDS
from penstock.database.database import Database, core_of
from penstock.database.query import Query
from penstock.database.results import Result
from penstock.graph.draw.common import count, size
from penstock.graph.view import GraphView, MemoryView
from penstock.model.errors import PenstockError
from penstock.model.names import counted
from penstock.plan.explanation import Explanation
from penstock.rows.text import is_numeric, plain

ROWS = 20
"""So many rows of a table are shown; of more, the first and the last."""
WAITING = 10
"""So many of the answers of a query are shown, the last ones."""
TEXT = 2_000
"""So many characters of a value or text are shown."""

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"padding:2px 8px;text-align:left;border:0;border-bottom:{_LINE};background:none;white-space:pre"
_HEAD = f"{_CELL};font-weight:bold"
_FAINT = "opacity:.65"
_CODE = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:90%"
_COLORS = {
    "running": "#2f8f5b", "ended": "#808080", "stopped": "#808080", "failed": "#d04437", "+": "#2f8f5b", "-": "#d04437",
}  # fmt: skip
_WORDS = frozenset(KEYWORDS)
_TOKEN = re.compile(r"""('(?:[^']|'')*'|"[^"]*"|`[^`]*`)|(--[^\n]*|/\*.*?\*/)|([A-Za-z_]\w*)""", re.DOTALL)


def text(value: object) -> str:
    """Escaped, cut where it is very long, without characters that HTML does not have."""
    shown = str(value)
    shown = shown if len(shown) <= TEXT else f"{shown[:TEXT]}…"
    return html.escape("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown))


def tag(name: str, *inner: str, style: str = "") -> str:
    """An element around what is HTML already."""
    styled = f' style="{html.escape(style)}"' if style else ""
    return f"<{name}{styled}>{''.join(inner)}</{name}>"


def box(*parts: str) -> str:
    """What a notebook shows."""
    return tag("div", *parts, style="line-height:1.5;max-width:100%;overflow-x:auto")


def faint(said: str) -> str:
    return tag("span", text(said), style=_FAINT)


def cql(source: str) -> str:
    """CQL with its words, texts and comments marked."""
    parts, at = list[str](), 0
    source = source if len(source) <= TEXT else f"{source[:TEXT]}…"
    for found in _TOKEN.finditer(source):
        parts.append(text(source[at : found.start()]))
        quoted, comment, word = found.groups()
        if quoted is not None:
            parts.append(tag("span", text(quoted), style="color:#b8862f"))
        elif comment is not None:
            parts.append(faint(comment))
        else:
            parts.append(tag("b", text(word)) if word.upper() in _WORDS else text(word))
        at = found.end()
    return tag("pre", *parts, text(source[at:]), style=f"{_CODE};margin:4px 0;background:none;color:inherit")


# -- tables -----------------------------------------------------------------------------------------------


def grid(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] | None = None) -> str:
    """A table of cells that are HTML already."""
    sides = ["right" if r else "left" for r in right or [False] * len(names)]
    head = [tag("th", text(n), style=f"{_HEAD};text-align:{s}") for n, s in zip(names, sides, strict=True)]
    body = [
        tag("tr", *(tag("td", c, style=f"{_CELL};text-align:{s}") for c, s in zip(row, sides, strict=True)),
            style="background:none")
        for row in rows
    ]  # fmt: skip
    return tag(
        "table", tag("thead", tag("tr", *head)), tag("tbody", *body),
        style=f"border-collapse:collapse;border:0;margin:4px 0;{_CODE};color:inherit",
    )  # fmt: skip


def table(shown: pa.Table, most: int = ROWS) -> str:
    """An Arrow table; where it is long, its first and last rows."""
    return box(_table(shown, most), faint(_counts(shown)))


def _counts(shown: pa.Table) -> str:
    return f"{counted(shown.num_rows, 'row')}, {counted(shown.num_columns, 'column')}"


def _table(shown: pa.Table, most: int) -> str:
    right = [is_numeric(dtype) for dtype in shown.schema.types]
    if shown.num_rows <= most:
        rows = _rows(shown)
    else:
        head = (most + 1) // 2
        left = shown.num_rows - most
        gap = [[faint(f"… {left:,} more" if i == 0 else "…") for i in range(shown.num_columns)]]
        rows = [*_rows(shown.slice(0, head)), *gap, *_rows(shown.slice(head + left))]
    return grid(shown.column_names, rows, right)


def _rows(shown: pa.Table) -> list[list[str]]:
    columns = []
    for name, column in zip(shown.column_names, shown.columns, strict=True):
        cells = plain(column, separator=" ")
        columns.append([_cell(cell, is_op=name == "op") for cell in cells])
    return [list(row) for row in zip(*columns, strict=True)]


def _cell(cell: str | None, *, is_op: bool) -> str:
    if cell is None:
        return tag("i", "NULL", style=_FAINT)
    if is_op and cell in _COLORS:
        return tag("b", text(cell), style=f"color:{_COLORS[cell]}")
    return text(cell)


# -- queries and databases --------------------------------------------------------------------------------


def status(name: str) -> str:
    return tag("b", text(name), style=f"color:{_COLORS.get(name, 'inherit')}")


def query(shown: Query) -> str:
    """What a query is, how it is, and the last answers that wait; of ORDER BY … LIMIT the answer as it stands."""
    waiting = shown.waiting
    said = [counted(shown.answered, "answer"), f"{count(waiting)} of them not fetched yet"]
    if shown.status == "running":
        sizes = list(shown.state.values())
        said.append(f"remembers {counted(sum(s.rows for s in sizes), 'row')}, {size(sum(s.bytes for s in sizes))}")
    if shown.failures:
        said.append(f"{counted(shown.failures, 'value')} NULL because computing failed: {shown.last_failure}")
    parts = [
        tag("div", "query ", tag("b", text(shown.name)), " · ", status(shown.status)),
        cql(shown.text) if shown.text else "",
        tag("div", faint("; ".join(said))),
    ]
    if shown.note is not None and not shown.answered:
        parts.append(tag("div", faint(shown.note)))
    if shown.trouble is not None:
        parts.append(tag("pre", text(shown.trouble), style=f"{_CODE};color:{_COLORS['failed']};background:none"))
    ranking: pa.Table | None = None
    try:
        last = shown.peek(WAITING)
        ranking = shown.ranking()
    except (OSError, PenstockError):  # the files of a database that is closed
        last = shown.schema.empty_table()
        parts.append(faint("the answers that waited are gone with the database"))
    if ranking is not None and ranking.num_rows:
        parts += [_table(ranking, ROWS), faint("the answer as it stands, in its order")]
    elif last.num_rows:
        parts.append(_table(last, WAITING))
        if waiting > last.num_rows:
            parts.append(faint(f"the last {last.num_rows} of {count(waiting)} answers that wait"))
    return box(*parts)


def database(shown: Database) -> str:
    """What is declared and what is running, all at one time: meanwhile nobody declares or stops anything."""
    with core_of(shown).lock:
        return _database(shown)


def _database(shown: Database) -> str:
    catalog = shown.catalog
    state = "closed" if shown.closed else "open"
    parts = [tag("div", "database on engine ", tag("b", text(shown.engine)), " · ", text(state))]
    if catalog.streams:
        rows = [
            [text(s.name), _schema(s.schema), text(s.timestamp_by or ("a query" if s.derived else "arrival")),
             *_input(shown, s.name, s.derived)]
            for s in catalog.streams.values()
        ]  # fmt: skip
        right = [False, False, False, True, True, False]
        parts.append(grid(["stream", "columns", "instants from", "rows", "late", "complete up to"], rows, right))
    if catalog.relations:
        rows = [[text(r.name), _schema(r.schema), _held(shown, r.name)] for r in catalog.relations.values()]
        parts.append(grid(["relation", "columns", "rows"], rows, [False, False, True]))
    if catalog.views:
        parts.append(grid(["view", "columns"], [[text(v.name), _schema(v.schema)] for v in catalog.views.values()]))
    if shown.queries:
        rows = [
            [text(q.name), status(q.status), count(q.answered), count(q.waiting), text(" ".join(q.text.split()))]
            for q in shown.queries.values()
        ]
        right = [False, False, True, True, False]
        parts.append(grid(["query", "status", "answers", "not fetched", "text"], rows, right))
    if len(parts) == 1:
        parts.append(faint("nothing is declared yet"))
    return box(*parts)


def _schema(schema: Iterable[object]) -> str:
    return text(", ".join(f"{f.name} {f.type}" for f in schema))  # type: ignore[attr-defined]


def _input(db: Database, name: str, derived: bool) -> list[str]:
    if derived or db.closed:
        return ["", "", ""]
    known = db.stream(name)
    if not math.isfinite(known.progress):
        return [count(known.given), count(known.late), "the end" if known.progress > 0 else ""]
    dtype = pa.int64() if db.catalog.streams[name].clock == "ticks" else pa.timestamp("us", db.zone)
    (at,) = plain(pa.chunked_array([pa.array([int(known.progress)], dtype)]), separator=" ")
    return [count(known.given), count(known.late), text(at)]


def _held(db: Database, name: str) -> str:
    return "" if db.closed else count(core_of(db).relations[name].size)


def result(shown: Result) -> str:
    """What a statement gave."""
    if shown.query is not None:
        return query(shown.query)
    if shown.table is None:
        return box(text(shown.message), *([] if shown.note is None else [tag("div", faint(shown.note))]))
    if shown.table.column_names == ["plan"]:
        return plan(shown.message)
    note = [] if shown.note is None else [cql(shown.note)]
    return box(_table(shown.table, 200), faint(_counts(shown.table)), *note)


# -- plans, graphs, memory --------------------------------------------------------------------------------


def plan(shown: str) -> str:
    """A plan as a tree of boxes, and below it what was derived from it. Another text is shown as it is."""
    tree, _, facts = shown.partition("\n\n")
    lines = [re.fullmatch(r"([│└├─ ]*)(.*)", line) for line in tree.split("\n")]
    found = [(len(m[1]) // 3, m[2]) for m in lines if m is not None]
    steps = all(depth <= (found[i - 1][0] + 1 if i else 0) for i, (depth, _) in enumerate(found))
    if not facts or not steps or any(not said for _, said in found):
        return box(tag("pre", text(shown), style=f"{_CODE};background:none;color:inherit"))
    parts: list[str] = []
    for i, (depth, said) in enumerate(found):
        kind, _, rest = said.partition(" ")
        inside = f"border:{_LINE};border-radius:4px;padding:1px 8px;display:inline-block;{_CODE}"
        node = tag("div", tag("b", text(kind)), " ", text(rest), style=inside)
        following = found[i + 1][0] if i + 1 < len(found) else 0
        parts.append(f'<li style="list-style:none;margin:3px 0">{node}')
        if following > depth:
            parts.append(f'<ul style="margin:0 0 0 10px;padding:0 0 0 16px;border-left:{_LINE}">')
        else:
            parts.append("</li>" + "</ul></li>" * (depth - following))
    rows = [[tag("b", text(name)), text(said)] for name, _, said in (f.partition(": ") for f in facts.split("\n"))]
    below = [tag("tr", *(tag("td", c, style=f"{_CELL};white-space:normal") for c in row)) for row in rows]
    style = f"border-collapse:collapse;border:0;margin:6px 0;{_CODE}"
    return box(f'<ul style="margin:0;padding:0">{"".join(parts)}</ul>', tag("table", tag("tbody", *below), style=style))


def graph(shown: GraphView) -> str:
    """The picture of the graph."""
    return box(shown.svg())


def memory(shown: MemoryView) -> str:
    """What windows hold, by stream and by query."""
    rows = []
    for stream in shown.streams:
        rows.append([tag("b", text(stream.stream)), "", count(stream.rows), size(stream.bytes), ""])
        rows += [
            ["", text(f"{w.operator} {w.label}"), count(w.rows), size(w.bytes), text(", ".join(w.queries))]
            for w in stream.windows
        ]
    parts = [tag("div", "windows hold ", tag("b", size(shown.bytes)))]
    if rows:
        parts.append(grid(["stream", "window", "rows", "bytes", "for"], rows, [False, False, True, True, False]))
    if shown.queries:
        parts.append(grid(["query", "bytes"], [[text(q.name), size(q.bytes)] for q in shown.queries], [False, True]))
    return box(*parts)


def failure(error: PenstockError) -> str:
    """An error, with the place in the text."""
    return f"{type(error).__name__} {error.code}: {error}"


@singledispatch
def of(thing: object) -> str:
    """What a notebook shows of a thing."""
    raise TypeError(f"a {type(thing).__name__} is not shown in notebooks")


of.register(Database)(database)
of.register(Query)(query)
of.register(Result)(result)
of.register(Explanation)(plan)
of.register(GraphView)(graph)
of.register(MemoryView)(memory)
