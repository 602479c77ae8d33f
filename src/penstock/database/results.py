"""What a statement gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from penstock.database.core import Core
from penstock.database.query import Query
from penstock.io.table_text import table_text
from penstock.model.names import counted
from penstock.model.shown import as_html, as_text
from penstock.rows.apart import apart_reason

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Result:
    """What a statement gave: a line for people, and a table or a query where there is one.

    ``note``: what people should know besides. ``count``: how many rows were put in, changed or deleted.
    ``script``: what all statements of the text gave, this the last.
    """

    kind: Literal["done", "table", "query"]
    message: str
    table: pa.Table | None = None
    query: Query | None = None
    note: str | None = None
    count: int | None = None
    script: tuple[Result, ...] = ()

    def __str__(self) -> str:
        shown = self.message if self.table is None else table_text(self.table).rstrip("\n")
        return "\n".join(filter(None, (shown, self.note)))

    _repr_pretty_ = as_text
    _repr_html_ = as_html


def query_started(query: Query) -> Result:
    """What a statement that registers a query gives."""
    return Result("query", f"query {query.name} started", query=query, note=query.note)


def counts_aside(core: Core, stream: str) -> tuple[int, int]:
    """How many rows of a stream were kept apart, and how many came too late."""
    source = core.input(stream)
    return source.apart.count, source.late.count


def rows_into(core: Core, stream: str, count: int, before: tuple[int, int]) -> Result:
    """What putting ``count`` rows into a stream gave; ``before``: ``counts_aside`` before that."""
    apart, late = (now - then for now, then in zip(counts_aside(core, stream), before, strict=True))
    notes = []
    if apart:
        kept = core.input(stream).apart.since(before[0])
        why = f" ({apart_reason(kept)})" if kept is not None and len(kept) else ""
        notes.append(f"{counted(apart, 'row')} {'does' if apart == 1 else 'do'} not fit and went apart{why}")
    if late:
        notes.append(f"{counted(late, 'row')} came too late and {'is' if late == 1 else 'are'} in no answer")
    said = f"{counted(count - apart, 'row')} into {stream}"
    return Result("done", said, note="; ".join(notes) or None, count=count - apart)
