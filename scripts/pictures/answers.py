"""From rows to answers: a stream, what a window holds of it, and what a query says about that, from one run."""

from __future__ import annotations

from dataclasses import dataclass

import penstock
from scripts.pictures.svg import Sheet

ROWS = ((1, 10), (3, 20), (4, 30), (6, 40))
LAST = 9
LEFT, UNIT = 150.0, 54.0
WINDOW = "[RANGE 4]"
SUM = f"SELECT sum(v) AS total FROM s {WINDOW}"

_KINDS = {"ISTREAM": "what enters", "DSTREAM": "what leaves", "RSTREAM": "all of it, again"}


@dataclass(frozen=True)
class Change:
    """An answer: at an instant a value enters or leaves."""

    at: int
    op: str
    value: object


def changes(*texts: str, engine: str = "local") -> list[list[Change]]:
    """What each query answers."""
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        queries = [db.query(text) for text in texts]
        db.push("s", ROWS)
        db.heartbeat("s", LAST)
        return [[Change(*row.values()) for row in query.fetch().to_pylist()] for query in queries]


def lives(found: list[Change]) -> list[tuple[int, int, object]]:
    """(from, until, value) of what was in the answer."""
    open_, closed = dict[object, int](), list[tuple[int, int, object]]()
    for change in found:
        if change.op == "+":
            open_[change.value] = change.at
        else:
            closed.append((open_.pop(change.value), change.at, change.value))
    closed += [(at, LAST, value) for value, at in open_.items()]
    return sorted(((a, b, v) for a, b, v in closed if a < b), key=lambda life: life[:2])


def _x(at: float) -> float:
    return LEFT + at * UNIT


def _grid(sheet: Sheet, top: float, bottom: float) -> None:
    for at in range(LAST + 1):
        sheet.line([(_x(at), top), (_x(at), bottom)], "grid")
        sheet.text(_x(at), bottom + 14, str(at), "small faint middle")
    sheet.text(14, bottom + 14, "instants", "small faint")


def _track(sheet: Sheet, y: float, name: str, about: str) -> None:
    sheet.text(14, y, name, "strong")
    sheet.text(14, y + 15, about, "small faint")


def _rows(sheet: Sheet, y: float) -> None:
    for at, value in ROWS:
        sheet.rect(_x(at) - 12, y - 10, 24, 20, "one", 10)
        sheet.text(_x(at), y + 4, str(value), "onto small strong middle")


def _said(sheet: Sheet, found: list[Change], top: float) -> float:
    """Answers below each other at their instants; gives where they end."""
    place: dict[int, int] = {}
    for change in found:
        line = place[change.at] = place.get(change.at, -1) + 1
        style = "plus" if change.op == "+" else "minus"
        sheet.text(_x(change.at), top + 14 * line, f"{change.op} {change.value}", f"mono small strong middle {style}")
    return top + 14 * max(place.values(), default=0)


def up_to_date() -> str:
    """A stream, a window, an answer that is kept up to date, and the stream of its changes."""
    inside, total = changes(f"SELECT v FROM s {WINDOW}", SUM)
    sheet = Sheet("Rows arrive, a window holds some of them, and the answer of a query follows")
    sheet.text(14, 24, SUM, "mono strong")
    _grid(sheet, 44, 276)
    _track(sheet, 64, "stream s", "rows at instants")
    _rows(sheet, 66)
    _track(sheet, 108, f"window {WINDOW}", "rows of the last 4")
    for i, (start, end, value) in enumerate(lives(inside)):
        top = 96 + i * 22
        sheet.rect(_x(start), top, (end - start) * UNIT, 18, "bar rim", 4)
        sheet.text(_x(start) + 8, top + 13, str(value), "small strong")
    _track(sheet, 208, "answer", "sum of the window")
    for start, end, value in lives(total):
        sheet.rect(_x(start), 194, (end - start) * UNIT, 26, "panel rim", 4)
        sheet.text((_x(start) + _x(end)) / 2, 212, str(value), "strong middle")
    _track(sheet, 252, "answers", "+ enters, - leaves")
    _said(sheet, total, 250)
    sheet.width = _x(LAST) + 20
    return sheet.document()


def relation_to_stream() -> str:
    """What ISTREAM, DSTREAM and RSTREAM tell of the same answer."""
    texts = [f"SELECT {kind} v FROM s {WINDOW}" for kind in _KINDS]
    inside, *told = changes(f"SELECT v FROM s {WINDOW}", *texts)
    sheet = Sheet("ISTREAM gives rows that enter the answer, DSTREAM those that leave, RSTREAM all of it")
    sheet.text(14, 24, f"SELECT … v FROM s {WINDOW}", "mono strong")
    places, bottom = [], 196.0
    for found in told:
        places.append(bottom)
        most = max(sum(1 for change in found if change.at == c.at) for c in found)
        bottom += max(most * 14, 28) + 16
    _grid(sheet, 44, bottom - 6)
    _track(sheet, 64, "stream s", "rows at instants")
    _rows(sheet, 66)
    _track(sheet, 108, "answer", "rows of the last 4")
    for i, (start, end, value) in enumerate(lives(inside)):
        top = 96 + i * 22
        sheet.rect(_x(start), top, (end - start) * UNIT, 18, "bar rim", 4)
        sheet.text(_x(start) + 8, top + 13, str(value), "small strong")
    for (kind, about), found, y in zip(_KINDS.items(), told, places, strict=True):
        _track(sheet, y + 4, kind, about)
        _said(sheet, found, y + 2)
    sheet.width = _x(LAST) + 20
    return sheet.document()
