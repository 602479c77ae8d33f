"""Filters that Spark applies in its sources, where they mean the same there.

Only rows that no query wants are left out, and only where nobody can tell. That a row of a stream came is news even if
it is filtered out: it says how far the stream is, so that others are late and windows end. So filters go into the
tables beside streams; and into tables read as streams, which have no late rows, if no window ends and no instant of
evaluation depends on rows that are filtered out.

What may be asked is on the list of ``native``. The query keeps its own filter, so a part of a condition may be taken
alone.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.hosts.spark.job import Source
from penstock.hosts.spark.native import Native
from penstock.hosts.spark.schemas import spark_name
from penstock.plan.nodes import Query
from penstock.plan.reading import conditions_above, shows_no_trace


def pushed(
    frame: DataFrame, source: Source, plans: Sequence[Query], *, bounded: bool, clock_face: bool
) -> Column | None:
    """What Spark may ask of a row of this source, None: nothing. The frame has the columns of the source."""
    if source.is_stream and not bounded:
        return None
    native = Native(frame, clock_face)
    of_scans: list[Column] = []
    for plan in plans:
        found = list(conditions_above(plan, source.name, []))
        if found and not shows_no_trace(plan):
            return None
        for parts in found:
            taken = [c for c in map(native.column, parts) if c is not None]
            if not taken:
                return None
            of_scans.append(reduce(operator.and_, taken))
    if not of_scans:
        return None
    wanted = reduce(operator.or_, of_scans)
    # A row without a timestamp is an error, wanted or not.
    return wanted if source.timestamp is None else wanted | F.col(spark_name(frame.columns[source.timestamp])).isNull()
