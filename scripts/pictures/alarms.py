"""Alarms under a burst: in which order answers come when rows keep their order, and when alarms overtake.

Rows wait in front of a suspended operator, so that the burst is there as a whole before anything is worked on; what is
drawn is the order in which a subscriber hears answers.
"""

from __future__ import annotations

import penstock
from scripts.pictures.svg import Sheet

BURST = 24
ALARMS = (9, 16, 22)
"""Which rows of the burst, counted from 1, are alarms."""
LEFT, UNIT = 190.0, 26.0


def heard(clause: str) -> list[int]:
    """The rows of the burst in the order in which their answers come; ``clause``: of the stream's declaration."""
    with penstock.connect(engine="local") as db:
        db.execute(f"CREATE STREAM sensors (t BIGINT, device BIGINT, alarm BIGINT) TIMESTAMP BY t {clause}")
        db.execute("CREATE STREAM people (t BIGINT, device BIGINT, name STRING) TIMESTAMP BY t")
        query = db.query(
            "SELECT ISTREAM s.t AS number, p.name FROM sensors [RANGE 100] AS s, people [RANGE 1000] AS p "
            "WHERE s.device = p.device"
        )
        order: list[int] = []
        query.subscribe(lambda answers: order.extend(answers["number"].to_pylist()))
        db.configure(threading="graph")
        db.push("people", [(0, device, f"guard {device}") for device in range(3)])
        db.heartbeat("people", 1000)
        db.settle()
        intake = next(o.id for o in db.graph().operators if o.kind == "intake" and o.label == "stream sensors")
        db.suspend(intake)
        for number in range(1, BURST + 1):
            db.push("sensors", [(number, number % 3, int(number in ALARMS))])
        db.resume(intake)
        db.settle()
    return order


def _x(place: int) -> float:
    return LEFT + place * UNIT


def _line(sheet: Sheet, y: float, name: str, about: str, order: list[int]) -> None:
    sheet.text(14, y, name, "strong")
    sheet.text(14, y + 15, about, "small faint")
    for place, number in enumerate(order):
        sheet.dot(_x(place), y, str(number), "alarm" if number in ALARMS else "one")


def draw() -> str:
    """Three lines: what came, and what was heard in two modes."""
    came = list(range(1, BURST + 1))
    orders = (
        ("rows as they came", "numbered; alarms are red", came),
        ("answers, in order", "without PRIORITY BY", heard("")),
        ("answers, alarms first", "PRIORITY BY alarm", heard("PRIORITY BY alarm")),
    )
    sheet = Sheet("A burst of rows with three alarms: alarms overtake, and the answers are the same")
    sheet.text(14, 24, "CREATE STREAM sensors (…) TIMESTAMP BY t PRIORITY BY alarm", "mono strong")
    tops = (66.0, 156.0, 246.0)
    for above, below, y in zip(orders, orders[1:], tops, strict=False):
        for number in ALARMS:
            start, end = above[2].index(number), below[2].index(number)
            sheet.curve((_x(start), y + 8), (_x(end), y + 82), "s-alarm")
    for (name, about, order), y in zip(orders, tops, strict=True):
        _line(sheet, y, name, about, order)
    last, first = (max(orders[i][2].index(number) for number in ALARMS) + 1 for i in (1, 2))
    same = "the same answers" if sorted(orders[1][2]) == sorted(orders[2][2]) else "other answers"
    sheet.text(14, 290, f"the last alarm is answer number {first} instead of {last}; {same}, in another order", "faint")
    sheet.width = _x(BURST)
    return sheet.document()
