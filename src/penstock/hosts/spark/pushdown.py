"""Filters that Spark applies in its sources, where they mean the same there.

Only rows that no query wants are left out, and only where nobody can tell. That a row of a stream came is news even if
it is filtered out: it says how far the stream is, so that others are late and windows end. So filters go into the
tables beside streams; and into tables read as streams, which have no late rows, if no window ends and no instant of
evaluation depends on rows that are filtered out.

Comparisons of one type are taken, but not of floating point numbers (Spark has NaN equal to itself), and AND, OR, NOT,
IN and IS NULL over them. The query keeps its own filter, so a part of a condition may be taken alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.hosts.spark.job import Source
from penstock.model.types import Kind
from penstock.plan.nodes import Query
from penstock.plan.reading import conditions_above, shows_no_trace
from penstock.scalar import expr as ex
from penstock.scalar.expr import Expr

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_SPARK = {
    Kind.BOOLEAN: ("boolean",), Kind.INT: ("tinyint", "smallint", "int"), Kind.BIGINT: ("bigint",),
    Kind.STRING: ("string",), Kind.DATE: ("date",), Kind.TIMESTAMP: ("timestamp", "timestamp_ntz"),
}  # fmt: skip
"""The types of Spark whose values are compared as ours are; DECIMAL is one too."""


def pushed(frame: DataFrame, source: Source, plans: Sequence[Query], *, bounded: bool) -> Column | None:
    """What Spark may ask of a row of this source, None: nothing. The frame has the columns of the source."""
    if source.is_stream and not bounded:
        return None
    of_scans: list[Column] = []
    for plan in plans:
        found = list(conditions_above(plan, source.name, []))
        if found and not shows_no_trace(plan):
            return None
        for parts in found:
            taken = [c for c in (_condition(part, frame) for part in parts) if c is not None]
            if not taken:
                return None
            of_scans.append(reduce(operator.and_, taken))
    if not of_scans:
        return None
    wanted = reduce(operator.or_, of_scans)
    # A row without a timestamp is an error, wanted or not.
    return wanted if source.timestamp is None else wanted | _of(frame, source.timestamp).isNull()


def _condition(expr: Expr, frame: DataFrame) -> Column | None:
    """The condition for Spark, None where it may not mean the same."""
    if not isinstance(expr, ex.Call):
        return _value(expr, frame, "boolean") if expr.type.kind is Kind.BOOLEAN else None
    name, args = expr.function, expr.args
    if name in ("and", "or", "not"):
        parts = [_condition(a, frame) for a in args]
        given = [p for p in parts if p is not None]
        if len(given) < len(parts):
            return None
        return ~given[0] if name == "not" else reduce(operator.and_ if name == "and" else operator.or_, given)
    if name == "is_null":
        # Whatever the type: NULL is NULL.
        return _of(frame, args[0].index).isNull() if isinstance(args[0], ex.Column) else None
    if name in _COMPARED or name in ("in", "is_not_distinct"):
        values = _alike(args, frame)
        if values is None:
            return None
        if name == "in":
            return values[0].isin(*values[1:])
        return values[0].eqNullSafe(values[1]) if name == "is_not_distinct" else _COMPARED[name](values[0], values[1])
    return None


def _alike(args: Sequence[Expr], frame: DataFrame) -> list[Column] | None:
    """Columns and literals of one type, of ours and of Spark's."""
    if len({a.type for a in args}) > 1:
        return None
    types = {frame.schema[a.index].dataType.simpleString() for a in args if isinstance(a, ex.Column)}
    kind = args[0].type.kind
    if len(types) > 1 and kind is not Kind.INT:
        return None
    dtype = next(iter(types), None)
    if dtype is None or not (dtype in _SPARK.get(kind, ()) or (kind is Kind.DECIMAL and dtype.startswith("decimal"))):
        return None
    values = [_value(a, frame, dtype) for a in args]
    given = [v for v in values if v is not None]
    return given if len(given) == len(values) else None


def _value(expr: Expr, frame: DataFrame, dtype: str) -> Column | None:
    if isinstance(expr, ex.Column):
        return _of(frame, expr.index)
    if not isinstance(expr, ex.Literal):
        return None
    value: Any = expr.value
    if value is None:
        return F.lit(None).cast(dtype)
    if expr.type.kind is Kind.DATE:
        return F.date_from_unix_date(F.lit(value))
    if expr.type.kind is not Kind.TIMESTAMP:
        return F.lit(value) if expr.type.kind is Kind.INT else F.lit(value).cast(dtype)
    if dtype == "timestamp":
        return F.timestamp_micros(F.lit(value).cast("bigint"))
    try:
        face = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    except OverflowError:
        return None
    return F.expr(f"TIMESTAMP_NTZ'{face.year:04d}-{face:%m-%d %H:%M:%S.%f}'")


def _of(frame: DataFrame, place: int) -> Column:
    return F.col(f"`{frame.columns[place].replace('`', '``')}`")
