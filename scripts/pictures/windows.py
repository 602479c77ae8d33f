"""What each window holds, drawn from answers: a query with the window runs, and the picture shows what it said.

Sliding windows are asked `SELECT row FROM s [window]`: rows enter and leave the answer as they enter and leave the
window. Bounded windows are asked for `window_start` and `window_end` too, and answer once, when they end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import penstock
from scripts.pictures.svg import Sheet

START = datetime(2024, 5, 1, 10)
LAST = 15
ROWS = (("a", 1, 1), ("b", 2, 2), ("c", 3, 1), ("d", 5, 1), ("e", 6, 2), ("f", 9, 1), ("g", 10, 1), ("h", 13, 2))
"""(name, second, house): the same rows in every picture."""


@dataclass(frozen=True)
class Window:
    """One picture. ``ticks``: over a stream that counts ticks, for windows that name instants."""

    name: str
    text: str
    means: str
    bounded: bool = False
    ticks: bool = False
    keys: bool = False


WINDOWS = (
    Window("rows", "[ROWS 3]", "the last three rows"),
    Window("rows-slide", "[ROWS 3 SLIDE 2]", "the last three rows, renewed at every second row"),
    Window("partition-rows", "[PARTITION BY house ROWS 1]", "the last row of each house", keys=True),
    Window("range", "[RANGE 4 SECONDS]", "the rows of the last four seconds"),
    Window("range-slide", "[RANGE 4 SECONDS SLIDE 2 SECONDS]", "the rows of the last four, renewed every two seconds"),
    Window("now", "[NOW]", "the row of this instant, which is gone the next"),
    Window("unbounded", "[RANGE UNBOUNDED]", "all rows so far; also without any window"),
    Window("tumbling", "[TUMBLING 5 SECONDS]", "windows one after the other, answered when they end", bounded=True),
    Window(
        "hopping", "[HOPPING 6 SECONDS EVERY 3 SECONDS]", "windows that overlap, answered when they end", bounded=True
    ),
    Window(
        "session", "[SESSION GAP 3 SECONDS]", "rows less than 3 seconds apart, answered when they stop", bounded=True
    ),
    Window(
        "partition-session",
        "[PARTITION BY house SESSION GAP 4 SECONDS]",
        "sessions of each house by itself",
        bounded=True,
        keys=True,
    ),
    Window(
        "landmark",
        "[BEGIN WINDOW 2 END WINDOW 5 HOP SIZE (0, 3) END QUERY 14]",
        "landmark: the beginning stays, the end moves on",
        bounded=True,
        ticks=True,
    ),
    Window(
        "forward",
        "[BEGIN WINDOW 2 END WINDOW 6 HOP SIZE (2, 2) END QUERY 14]",
        "forward: both ends move on",
        bounded=True,
        ticks=True,
    ),
    Window(
        "reverse",
        "[BEGIN WINDOW 9 END WINDOW 13 HOP SIZE (-3, -3) END QUERY 1]",
        "reverse: both ends go back; all is known, and answered, at 13",
        bounded=True,
        ticks=True,
    ),
    Window("snapshot", "[BEGIN WINDOW 2 END WINDOW 10]", "snapshot: one window, one answer", bounded=True, ticks=True),
    Window(
        "tuples",
        "[BEGIN WINDOW 1 TUPLE END WINDOW 4 TUPLES HOP SIZE (2, 2)]",
        "rows by number: 1 to 4, 3 to 6 and so on",
        bounded=True,
        ticks=True,
    ),
)


@dataclass(frozen=True)
class Held:
    """What was in the window at an instant, or, with ``bounds``, in the window that was answered then."""

    at: float
    rows: tuple[str, ...]
    bounds: tuple[float, float] | None = None


def run(window: Window, engine: str = "local") -> list[Held]:
    """What the window held at each second, or each bounded window when it was answered, from the answers of a query."""
    with penstock.connect(engine=engine) as db:
        clock = "BIGINT" if window.ticks else "TIMESTAMP"
        db.execute(f"CREATE STREAM s (at {clock}, name STRING, house BIGINT) TIMESTAMP BY at")
        more = ", window_start, window_end" if window.bounded else ""
        query = db.query(f"SELECT name{more} FROM s {window.text}")
        db.push("s", [(_instant(second, window), name, house) for name, second, house in ROWS])
        db.heartbeat("s", _instant(LAST, window))
        answers = [tuple(row.values()) for row in query.fetch().to_pylist()]
    return list(_bounded(answers, window) if window.bounded else _sliding(answers))


def _instant(second: int, window: Window) -> object:
    return second if window.ticks else START + timedelta(seconds=second)


def _second(value: object) -> float:
    if isinstance(value, datetime):
        return (value - START) / timedelta(seconds=1)
    assert isinstance(value, int)
    return value


def _sliding(answers: list[tuple[object, ...]]) -> Iterator[Held]:
    changes = [(_second(ts), op, str(name)) for ts, op, name in answers]
    inside: dict[str, None] = {}
    for at in range(1, LAST):
        while changes and changes[0][0] <= at:
            _, op, name = changes.pop(0)
            if op == "+":
                inside[name] = None
            else:
                del inside[name]
        yield Held(at, tuple(sorted(inside)))


def _bounded(answers: list[tuple[object, ...]], window: Window) -> Iterator[Held]:
    """Answers of one window are those with its bounds, and with its key where sessions have one."""
    house = {name: house for name, _, house in ROWS}
    found: dict[tuple[float, float, float, int], list[str]] = {}
    for ts, _, name, start, end in answers:
        key = house[str(name)] if window.keys else 0
        if "TUPLE" in window.text:  # bounds are row numbers, both inclusive
            start, end = ROWS[int(str(start)) - 1][1], ROWS[int(str(end)) - 1][1]
        found.setdefault((_second(ts), _second(start), _second(end), key), []).append(str(name))
    for (at, start, end, _), names in found.items():
        yield Held(at, tuple(sorted(names)), (start, end))


# -- drawing ----------------------------------------------------------------------------------------------

LEFT, UNIT, LINE, TOP = 118.0, 31.0, 22.0, 74.0


def _x(second: float) -> float:
    return LEFT + second * UNIT


def draw(window: Window) -> str:
    """The picture of one window."""
    held = run(window)
    sheet = Sheet(f"{window.text}: {window.means}")
    sheet.text(14, 24, window.text, "mono strong")
    sheet.text(14, 42, window.means, "faint")
    bottom = TOP + 16 + LINE * len(held)
    for second in range(LAST + 1):
        sheet.line([(_x(second), TOP + 10), (_x(second), bottom)], "grid")
        sheet.text(_x(second), bottom + 14, str(second), "small faint middle")
    sheet.text(14, bottom + 14, "ticks" if window.ticks else "seconds", "small faint")
    sheet.text(14, TOP + 4, "rows", "faint")
    sheet.text(_x(LAST) + 20, TOP + 4, "in the window" if window.bounded else "the window holds", "faint")
    colors = {name: "two" if window.keys and house == 2 else "one" for name, _, house in ROWS}
    seconds = {name: second for name, second, _ in ROWS}
    for name, second, house in ROWS:
        sheet.dot(_x(second), TOP, name, colors[name], f"row {name} of house {house} at {second}")
    for i, now in enumerate(held):
        y = TOP + 16 + LINE * (i + 0.5)
        _bar(sheet, now, y, seconds)
        for name in now.rows:
            sheet.dot(_x(seconds[name]), y, name, colors[name])
        sheet.text(14, y + 4, f"{'answered ' if window.bounded else ''}at {now.at:g}", "mono small")
        sheet.text(_x(LAST) + 20, y + 4, " ".join(now.rows) or "nothing", "mono" if now.rows else "faint small")
    if window.keys:
        sheet.text(_x(LAST), 24, "house 1", "one strong end")
        sheet.text(_x(LAST), 42, "house 2", "two strong end")
    sheet.width = _x(LAST) + 140
    return sheet.document()


def _bar(sheet: Sheet, now: Held, y: float, seconds: dict[str, int]) -> None:
    """From the first row inside to now, or from bound to bound; a mark where the answer is."""
    start, end = (seconds[now.rows[0]] if now.rows else now.at), now.at
    if now.bounds is not None:
        start, end = max(now.bounds[0], -0.5), now.bounds[1]
    if now.bounds is not None:
        sheet.rect(_x(start), y - 10, (end - start) * UNIT, 20, "bar rim", 4)
    elif now.rows:  # a little more, so that the first row is inside
        sheet.rect(_x(start) - 10, y - 10, (end - start) * UNIT + 10, 20, "bar rim", 4)
    sheet.line([(_x(now.at), y - 10), (_x(now.at), y + 10)], "line")
