"""Rows out of order: how far a stream is after each of them, and which come too late; from one run."""

from __future__ import annotations

from dataclasses import dataclass

import penstock
from scripts.pictures.svg import Sheet

INSTANTS = (2, 4, 3, 6, 5, 3, 9, 8, 6, 10)
"""Of the rows, as they arrive."""
SLACK = 2
LEFT, TOP, UNIT, STEP = 100.0, 56.0, 54.0, 24.0
HIGHEST = 11


@dataclass(frozen=True)
class Arrival:
    """A row that came: its instant, how far the stream was after it, and which rows were given to queries then."""

    at: int
    progress: int
    is_late: bool
    released: tuple[int, ...]


def run(engine: str = "local") -> list[Arrival]:
    """What became of each row."""
    with penstock.connect(engine=engine) as db:
        db.execute(f"CREATE STREAM s (t BIGINT) TIMESTAMP BY t SLACK {SLACK}")
        query = db.query("SELECT t FROM s")
        found: list[Arrival] = []
        for at in INSTANTS:
            before = db.stream("s").late
            db.push("s", [(at,)])
            released = tuple(query.fetch()["t"].to_pylist())
            found.append(Arrival(at, int(db.stream("s").progress), db.stream("s").late > before, released))
        return found


def _x(number: float) -> float:
    return LEFT + number * UNIT


def _y(at: float) -> float:
    return TOP + (HIGHEST - at) * STEP


def draw() -> str:
    """Instants upwards, arrivals to the right, and the progress of the stream as a line."""
    arrivals = run()
    sheet = Sheet(f"Rows out of order with SLACK {SLACK}: progress, and rows that come too late")
    sheet.text(14, 24, f"CREATE STREAM s (t BIGINT) TIMESTAMP BY t SLACK {SLACK}", "mono strong")
    last = len(arrivals)
    for at in range(HIGHEST + 1):
        sheet.line([(_x(0) - 20, _y(at)), (_x(last), _y(at))], "grid")
        sheet.text(LEFT - 28, _y(at) + 4, str(at), "small faint end")
    sheet.text(14, _y(HIGHEST) + 4, "instant", "small faint")
    steps: list[tuple[float, float]] = []
    for i, row in enumerate(arrivals):
        steps += [(_x(i), _y(row.progress)), (_x(i + 1), _y(row.progress))]
    sheet.line(steps, "line")
    sheet.text(_x(last) + 8, _y(arrivals[-1].progress) + 4, "progress", "faint")
    for i, row in enumerate(arrivals):
        tip = f"row at {row.at}: {'late' if row.is_late else f'progress is {row.progress}'}"
        sheet.dot(_x(i), _y(row.at), str(row.at), "alarm" if row.is_late else "one", tip)
    bottom = _y(0) + 26
    for i, row in enumerate(arrivals):
        sheet.text(_x(i), bottom, f"{i + 1}.", "small faint middle")
        said = "late" if row.is_late else ", ".join(map(str, row.released)) or "–"
        sheet.text(_x(i), bottom + 20, said, f"mono small strong middle{' minus' if row.is_late else ''}")
    sheet.text(14, bottom, "arrives", "small faint")
    sheet.text(14, bottom + 20, "goes on", "small faint")
    sheet.width = _x(last) + 70
    return sheet.document()
