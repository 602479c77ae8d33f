"""What Spark's UI says of our jobs: the names and the texts of the queries that they work for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"
_LONG = 1_000
"""Characters of a description, and of the name of a streaming query: Spark says it with every micro-batch."""


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


def _short(text: str) -> str:
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


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
