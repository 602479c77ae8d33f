"""What Spark's UI says of our jobs: the names and the texts of the queries that they work for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.graph.draw.common import count, duration, short

DESCRIPTION = "spark.job.description"
_LONG = 1_000
"""Characters of a description, and of the name of a streaming query: Spark says it with every micro-batch."""
_NAMES = 200
"""Characters of names in front of a description."""


def described(texts: Mapping[str, str]) -> str:
    """Queries by name in one line, the last ones as a number if there are many."""
    parts = [f"{name}: {' '.join(text.split())}" if text else name for name, text in texts.items()]
    if len(parts) == 1:
        return _short(parts[0])
    said, left = "", _LONG
    for i, part in enumerate(parts):
        left -= len(part) + 2
        if i and left < 0:
            return f"{_short(said)}; and {len(parts) - i} more"
        said = part if not i else f"{said}; {part}"
    return _short(said)


def following(names: Iterable[str], last: str, texts: str) -> str:
    """The same after a micro-batch. Names and ``last``, what that took, stand in front: lists of jobs in Spark's UI
    show some 70 characters."""
    return _short(f"{_short(', '.join(names), _NAMES)} · {last} · {texts}")


def taking(rows: int, answers: int, seconds: float) -> str:
    """What a micro-batch took.

    >>> taking(500, 1_250, 0.4)
    'last: 500 rows in 400 ms, 1.25k rows/s, 3.12k answers/s'
    """
    speeds = (short(round(n / seconds)) for n in (rows, answers))
    taken = f"{count(rows)} {'row' if rows == 1 else 'rows'}"
    return "last: {} in {}, {} rows/s, {} answers/s".format(taken, duration(seconds), *speeds)


def _short(text: str, most: int = _LONG) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


@contextmanager
def describing(context: SparkContext, text: str) -> Iterator[None]:
    """Jobs of this thread have a description; afterwards as before."""
    before = context.getLocalProperty(DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it


def free_name(spark: SparkSession, wanted: str) -> str:
    """A name that no streaming query has."""
    taken = {query.name for query in spark.streams.active}
    number, found = 1, wanted
    while found in taken:
        number += 1
        found = f"{wanted} ({number})"
    return found
