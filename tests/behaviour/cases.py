"""A case of the behavioural suite: declarations, a query, elements, and the answers it must give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import penstock

Row = tuple[object, ...]
Answer = tuple[int, str, Row]


@dataclass(frozen=True)
class Case:
    """``rows`` are (stream, row) in order of pushing; ``answers`` are (ts, op, row), a multiset per ts."""

    name: str
    declare: str
    query: str
    rows: Sequence[tuple[str, Row]]
    answers: Sequence[Answer]


def run(engine: str, declare: str, query: str, rows: Sequence[tuple[str, Row]], *, one_by_one: bool) -> list[Answer]:
    """The answers of a query over elements, every stream closed at the end."""
    with penstock.connect(engine=engine) as db:
        db.execute(declare)
        q = db.query(query)
        if one_by_one:
            for name, row in rows:
                db.push(name, [row])
        else:
            for name in db.catalog.streams:
                mine = [row for n, row in rows if n == name]
                if mine:
                    db.push(name, mine)
        for stream in db.catalog.streams.values():
            if not stream.derived:
                db.close_stream(stream.name)
        table = q.fetch()
        names = table.column_names
        return [
            (r[0], r[1], tuple(r[2:]))
            for r in zip(*(table.column(i).to_pylist() for i in range(len(names))), strict=True)
        ]


def same(got: Sequence[Answer], wanted: Sequence[Answer]) -> bool:
    """Equal as multisets of (instant, op, row)."""
    return Counter(map(repr, got)) == Counter(map(repr, wanted))
