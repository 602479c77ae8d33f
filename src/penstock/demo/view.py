"""A snapshot on a terminal of any size, as rich shows it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.demo import tree, words
from penstock.demo.snapshot import Event, QueryFigures, Snapshot
from penstock.graph.draw.common import duration, fit

_WIDE, _SIDE = 150, 84
"""From so many columns on, the graph stands beside the queries, in at most so many."""
_NARROW = 72
"""Columns that all figures need."""
_MOST = 6
"""Answers of a query that are shown at most."""
_STYLES = {
    "stream": "bold green", "queue": "dim", "busy": "bold yellow", "virtual": "magenta", "operator": "",
    "shared": "bold cyan", "query": "bold cyan", "branch": "dim",
}  # fmt: skip


class View:
    """A snapshot that fills the screen it is drawn on."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield screen(self._snapshot, options.max_width, options.height or options.max_height)


def screen(snapshot: Snapshot, width: int, height: int) -> Group:
    """All of it in so many columns and lines."""
    head, now = _header(snapshot, width), _now(snapshot, width)
    room = height - 1 - len(now)
    if width >= _WIDE:
        side = min(_SIDE, width // 2 - 5)
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=width - side - 1, no_wrap=True)
        grid.add_column(width=side, no_wrap=True)
        queries = _queries(snapshot, width - side - 2, room)
        beside = [*_graph(snapshot, side, room - 12), Text(), *_happened(snapshot, side)]
        grid.add_row(Group(*queries), Group(*beside[:room]))
        return Group(head, *now, grid)
    drawn = 0 if snapshot.graph is None else len(tree.tree(snapshot.graph))
    graph = _graph(snapshot, width, room - 1 - 3 * len(snapshot.queries))
    if len(graph) <= drawn:
        graph = _graph(snapshot, width, room - 1 - 2 * len(snapshot.queries))
    return Group(head, *now, *_queries(snapshot, width, room - len(graph)), *graph)


def summary(snapshot: Snapshot) -> Group:
    """What remains on the terminal at the end."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(words.HEAD):
        if name not in ("rows/s", "answers/s"):
            table.add_column(name, justify="left" if number == 0 else "right", style="bold cyan" if not number else "")
    for query in snapshot.queries:
        table.add_row(*(c for n, c in zip(words.HEAD, words.cells(query), strict=True) if not n.endswith("/s")))
    following = Table.grid(padding=(0, 2, 0, 0))
    for command, does in words.NEXT:
        following.add_row(Text(command, "bold green"), does)
    return Group(
        Text(words.ended(snapshot), "bold"), Text(),
        table, Text(words.NOTE, "dim"), Text(),
        Text(words.verdict(snapshot.burst), "bold yellow"), Text(), following,
    )  # fmt: skip


def introduction(abouts: Sequence[tuple[str, str, str]]) -> Group:
    """The queries in words, to be read while the engine starts."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    for name, kind, sentence in abouts:
        table.add_row(name, Text.assemble((kind, "bold"), ": ", sentence))
    return Group(Text(words.ABOUT, "bold"), Text(), table, Text())


def _header(snapshot: Snapshot, width: int) -> Text:
    bar = 10 if width < 100 else 24
    done = min(bar, round(bar * snapshot.seconds / max(snapshot.lasts, 1e-9)))
    line = Text.assemble(
        ("Penstock demo ", "bold"), ("━" * done, "green"), ("━" * (bar - done), "dim"),
        f" {min(snapshot.seconds, snapshot.lasts):.0f} of {snapshot.lasts:.0f} s · ", words.title(snapshot),
    )  # fmt: skip
    line.truncate(width, overflow="ellipsis")
    return line


def _now(snapshot: Snapshot, width: int) -> list[Text]:
    """What is happening, and how alarms fared in the burst; always as many lines."""
    event = snapshot.events[-1] if snapshot.events else None
    said = Text("" if event is None else fit(event.text, width), _event_style(event))
    compared = words.compared(snapshot.burst)
    wrapped = list(Text(compared, "yellow").wrap(Console(width=width), width)) if compared else []
    lines = 1 if width >= 100 else 2
    return [said, *wrapped[:lines], *[Text()] * (lines - len(wrapped))]


def _event_style(event: Event | None) -> str:
    if event is None:
        return ""
    return "bold yellow" if "burst" in event.text else "bold red" if "down" in event.text else "bold"


def _happened(snapshot: Snapshot, width: int) -> list[Text]:
    """All events, and how long answers to the burst took, as bars."""
    lines = [_rule("what happened", width)]
    for event in snapshot.events:
        lines.append(Text(fit(f"{event.seconds:5.1f} s  {event.text}", width), _event_style(event)))
    burst = snapshot.burst
    if burst is None or burst.alarm_longest is None or burst.other_longest is None or burst.neighbours is None:
        return lines
    lines += [Text(), _rule("answers to the readings of the burst, after", width)]
    bars = (
        ("alarms, the slowest", burst.alarm_longest, "bold green"),
        ("readings next to them", burst.neighbours, "yellow"),
        ("the last reading so far" if not burst.done else "the last reading", burst.other_longest, "yellow"),
    )
    most = max(seconds for _, seconds, _ in bars)
    for name, seconds, style in bars:
        cells = max(1, round((width - 36) * seconds / most))
        lines.append(Text.assemble(f"{name:<24}", ("█" * cells, style), f" {duration(seconds)}"))
    return lines


def _queries(snapshot: Snapshot, width: int, room: int) -> list[Text]:
    """The figures of each query and below them, as there is room, what it answers and its newest answers; as many lines
    as there is room for."""
    chosen = [i for i in range(len(words.HEAD)) if width >= _NARROW or words.HEAD[i] not in ("rows in", "answers")]
    rows = [[words.cells(query)[i] for i in chosen] for query in snapshot.queries]
    head = [words.HEAD[i] for i in chosen]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    steady = [max(w, 7) for w in widths]
    if sum(steady) + 2 * len(steady) <= width:
        widths = steady
    lines = [_figures(head, widths, "bold", "bold", width)]
    each = (room - 1) // max(1, len(snapshot.queries))
    for query, row in zip(snapshot.queries, rows, strict=True):
        lines.append(_figures(row, widths, "bold cyan", "", width))
        lines += _below(query, width, min(each - 1, 2 + _MOST))
    return [*lines[: max(room, 1)], *[Text()] * (room - len(lines))]


def _figures(row: Sequence[str], widths: Sequence[int], first: str, others: str, width: int) -> Text:
    line = Text(no_wrap=True).append(f"{row[0]:<{widths[0]}}", first)
    for cell, cells in zip(row[1:], widths[1:], strict=True):
        line.append(f"  {cell:>{cells}}", others)
    line.truncate(width)
    return line


def _below(query: QueryFigures, width: int, lines: int) -> list[Text]:
    """In so many lines: the newest answer; with more, what the query is; with still more, more answers."""
    if lines < 1:
        return []
    found = [Text(fit(f"  {query.kind}: {query.sentence}", width), "italic dim")] if lines > 1 else []
    shown = max(1, min(_MOST, lines - 1 - (lines > 3)))
    latest = query.latest[-shown:][::-1] or ("no answer yet",)
    for number, answer in enumerate(latest):
        mark, style = (" ", "dim") if number else ("▸", "")
        found.append(Text(fit(f"  {mark} {answer}", width), style))
    return [*found, *[Text()] * (lines - len(found))]


def _graph(snapshot: Snapshot, width: int, room: int) -> list[Text]:
    """The query graph in at most so many lines: all of it, with a line for each virtual operator if there is room for
    that, too; or the tree of one stream; or only the virtual operators."""
    view = snapshot.graph
    if view is None or room < 2:
        return []
    title = "query graph"
    drawn, rest, most = tree.tree(view), tree.compact(view), room - 1
    if most > len(drawn) + len(rest):
        drawn = [*drawn, [], *rest]
    elif most < len(drawn):
        drawn = tree.largest(view)
        title = "query graph, in part"
    if most < len(drawn):
        drawn = rest if most >= len(rest) else [*rest[: most - 1], [(f"… and {len(rest) - most + 1} more", "branch")]]
    size = f"{len(view.operators)} operators, {len(view.partitions)} virtual operators (#)"
    return [_rule(f"{title}: {size}; ═n═▶ n wait", width), *(_pieces(line, width) for line in drawn)]


def _pieces(line: tree.Line, width: int) -> Text:
    found = Text(no_wrap=True)
    for piece, kind in line:
        found.append(piece, _STYLES[kind])
    found.truncate(width, overflow="ellipsis")
    return found


def _rule(title: str, width: int) -> Text:
    said = f"── {fit(title, max(1, width - 4))} "
    return Text(said + "─" * max(0, width - len(said)), "blue")
