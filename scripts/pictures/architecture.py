"""How Penstock is built, and how it works on Spark, on one screen: boxes in rows, and arrows between them."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.pictures.svg import Sheet

COLUMN, ROW, GAP, MARGIN = 82.0, 84.0, 34.0, 16.0


@dataclass(frozen=True)
class Box:
    """A place of the code: where it stands (column and how many of them, row), its name, and what it is for."""

    name: str
    about: tuple[str, ...]
    column: int
    span: int
    row: int
    outside: bool = False

    @property
    def left(self) -> float:
        return MARGIN + self.column * COLUMN

    @property
    def width(self) -> float:
        return self.span * COLUMN - 14

    @property
    def top(self) -> float:
        return 44 + self.row * ROW

    @property
    def height(self) -> float:
        return ROW - GAP


BOXES = (
    Box("a query", ("CQL, or a plan (JSON)",), 0, 3, 0, outside=True),
    Box("rows", ("push, files, heartbeats",), 3, 3, 0, outside=True),
    Box("answers", ("fetch, iterate, subscribe",), 6, 3, 0, outside=True),
    Box("cql/", ("parse, bind, type",), 0, 3, 1),
    Box("ingest/", ("instants, slack, late rows",), 3, 3, 1),
    Box("hosts/results.py", ("results not confirmed yet",), 6, 3, 1),
    Box("plan/", ("typed plan, rewritten by rules",), 0, 3, 2),
    Box("graph/", ("operators of all queries, equal parts once",), 3, 6, 2),
    Box("runtime/", ("virtual operators, buffers between them, workers, strategies, threads",), 3, 6, 3),
    Box("operators/", ("one relational operation each,", "over batches of changes"), 3, 3, 4),
    Box("kernels/", ("pure functions over columns,", "compiled"), 6, 3, 4),
    Box("reference/", ("the meaning: every answer", "computed from scratch"), 0, 3, 4),
    Box("hosts/reference.py", ("checks the others",), 0, 3, 5),
    Box("hosts/local/", ("in this process",), 3, 3, 5),
    Box("hosts/spark/", ("micro-batches, tasks",), 6, 3, 5),
    Box("storage/", ("logs of streams and results, records, states of operators",), 3, 6, 6),
)
ARROWS = (
    ("a query", "cql/"), ("cql/", "plan/"), ("plan/", "graph/"), ("rows", "ingest/"),
    ("ingest/", "graph/"), ("graph/", "hosts/results.py"), ("hosts/results.py", "answers"), ("graph/", "runtime/"),
    ("runtime/", "operators/"), ("operators/", "kernels/"), ("plan/", "reference/"), ("hosts/local/", "storage/"),
    ("hosts/spark/", "storage/"),
)  # fmt: skip


SPARK = (
    Box("push", ("rows",), 0, 3, 0, outside=True),
    Box("fetch, subscribe", ("each answer once",), 4, 3, 0, outside=True),
    Box("log of the stream", ("on disk before", "push returns"), 0, 3, 1),
    Box("log of results", ("a micro-batch counts when", "its entry is here"), 4, 3, 1),
    Box("streaming source", ("offset: up to which entry", "the next micro-batch goes"), 0, 3, 2),
    Box("foreachBatch", ("what each shard reports:", "answers, and its state after it"), 4, 3, 2),
    Box("a task for each shard", ("state before, operators as on local,", "state after and answers"), 0, 7, 3),
)
SPARK_ARROWS = (
    ("push", "log of the stream"), ("log of the stream", "streaming source"),
    ("streaming source", "a task for each shard"), ("a task for each shard", "foreachBatch"),
    ("foreachBatch", "log of results"), ("log of results", "fetch, subscribe"),
)  # fmt: skip


def draw() -> str:
    """The parts of the code."""
    return _picture(
        "How Penstock is built: from queries and rows to answers",
        "database/ puts it together, with one lock; catalog.py knows what has been declared",
        BOXES,
        ARROWS,
        "hosts/ run it: the same answers on every engine",
    )


def on_spark() -> str:
    """What happens to rows of a database on Spark."""
    return _picture(
        "A database on Spark: from a push to an answer",
        "connect(\"some/directory\"): all of it is kept there",
        SPARK,
        SPARK_ARROWS,
        "a part of the queries is one streaming query; what dies before its entry is written is made again",
    )


def _picture(
    title: str, head: str, places: tuple[Box, ...], arrows: tuple[tuple[str, str], ...], foot: str
) -> str:
    sheet = Sheet(title)
    sheet.text(MARGIN, 24, head, "faint")
    boxes = {box.name: box for box in places}
    for start, end in arrows:
        _arrow(sheet, boxes[start], boxes[end])
    for box in places:
        sheet.rect(box.left, box.top, box.width, box.height, "bar rim" if box.outside else "panel rim", 6)
        lift = 5 * (len(box.about) - 1)
        middle = box.left + box.width / 2
        sheet.text(middle, box.top + 21 - lift, box.name, "strong middle" if box.outside else "mono strong middle")
        for i, line in enumerate(box.about):
            sheet.text(middle, box.top + 37 - lift + 12 * i, line, "small faint middle")
    sheet.text(MARGIN, max(box.top + box.height for box in places) + 20, foot, "faint")
    sheet.width = max(sheet.width, MARGIN + 6.3 * max(len(head), len(foot)))
    return sheet.document()


def _arrow(sheet: Sheet, start: Box, end: Box) -> None:
    """Level between neighbours, upright otherwise, in the middle of the narrower one."""
    if start.row == end.row:
        y = start.top + start.height / 2
        sheet.arrow([(start.left + start.width, y), (end.left, y)])
        return
    narrow = min(start, end, key=lambda box: box.span)
    x = narrow.left + narrow.width / 2
    down = start.row < end.row
    sheet.arrow(
        [(x, start.top + start.height), (x, end.top)] if down else [(x, start.top), (x, end.top + end.height)]
    )
