"""Expressions that are Spark's own: the list of those that cannot fail there and mean the same.

``LISTED`` and ``CASTS`` are the whole list, with columns, constants and CASE. Where a value does not exist (an
overflow, a division by zero) both sides give NULL. Spark takes conditions on the list as filters in its sources
(``pushdown``). A query over a table that is nothing but such filters and a projection on the list needs no Python
worker at all.

A streaming query stays in the workers. That a row is late depends on all rows of earlier micro-batches, which Spark
does not tell its expressions, and to ask a worker about each row costs more than the filters do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, ShortType, TimestampNTZType
from pyspark.sql.types import DataType as SparkType

from penstock.hosts.spark.job import Source
from penstock.hosts.spark.scatter import ends_of
from penstock.hosts.spark.schemas import spark_arrow, spark_name, spark_schema
from penstock.model.types import DataType, Kind
from penstock.plan.nodes import Query
from penstock.plan.reading import filters_and_projection
from penstock.rows.times import OUT_OF_RANGE
from penstock.scalar import expr as ex
from penstock.scalar.expr import Expr

_INTEGERS = frozenset({Kind.INT, Kind.BIGINT})
_NUMBERS = _INTEGERS | {Kind.DOUBLE}
_ORDERED = _NUMBERS | {Kind.BOOLEAN, Kind.REAL, Kind.DECIMAL, Kind.STRING, Kind.DATE, Kind.TIMESTAMP}


@dataclass(frozen=True)
class Same:
    """A function whose arguments, all of one type of these kinds, give the same value in Spark."""

    kinds: frozenset[Kind]
    spark: Callable[..., Column]


LISTED: Mapping[str, Same] = {
    "and": Same(frozenset({Kind.BOOLEAN}), operator.and_),
    "or": Same(frozenset({Kind.BOOLEAN}), operator.or_),
    "not": Same(frozenset({Kind.BOOLEAN}), operator.invert),
    "=": Same(_ORDERED, operator.eq),
    "<>": Same(_ORDERED, operator.ne),
    "<": Same(_ORDERED, operator.lt),
    "<=": Same(_ORDERED, operator.le),
    ">": Same(_ORDERED, operator.gt),
    ">=": Same(_ORDERED, operator.ge),
    "is_null": Same(frozenset(Kind), lambda a: a.isNull()),
    "is_not_distinct": Same(_ORDERED, lambda a, b: a.eqNullSafe(b)),
    "in": Same(_ORDERED, lambda a, *items: a.isin(*items)),
    "coalesce": Same(_ORDERED, F.coalesce),
    "nullif": Same(_ORDERED, F.nullif),
    "+": Same(_NUMBERS, F.try_add),
    "-": Same(_NUMBERS, F.try_subtract),
    "*": Same(_NUMBERS, F.try_multiply),
    "/": Same(frozenset({Kind.DOUBLE}), F.try_divide),
    "%": Same(_INTEGERS, F.try_mod),
    "||": Same(frozenset({Kind.STRING}), F.concat),
}
"""By the canonical name of the function."""
CASTS: Mapping[Kind, frozenset[Kind]] = {
    Kind.INT: frozenset({Kind.BIGINT, Kind.DOUBLE, Kind.STRING}),
    Kind.BIGINT: frozenset({Kind.DOUBLE, Kind.STRING}),
    Kind.REAL: frozenset({Kind.DOUBLE}),
}
"""Conversions that cannot fail."""


@dataclass(frozen=True)
class Native:
    """Expressions over the columns of a DataFrame, for Spark. ``clock_face``: TIMESTAMP is what a clock shows."""

    frame: DataFrame
    clock_face: bool

    def column(self, expr: Expr) -> Column | None:
        """The expression for Spark, None where it is not on the list."""
        match expr:
            case ex.Column(index=index):
                return self._of(index, expr.type)
            case ex.Literal():
                return self._constant(expr)
            case ex.Call("is_null", (ex.Column(index=index),)):
                # Whatever the type: NULL is NULL.
                return F.col(spark_name(self.frame.columns[index])).isNull()
            case ex.Call(function=name, args=args) if name in LISTED:
                if len({a.type for a in args}) > 1 or args[0].type.kind not in LISTED[name].kinds:
                    return None
                values = self.columns(args)
                if values is None:
                    return None
                found = LISTED[name].spark(*values)
                # Spark adds up the constants of nested sums and products first, and a sum outside decides whether one
                # inside may overflow. It does not look behind a shift.
                return F.shiftleft(found, 0) if expr.type.is_integer and name in ("+", "*") else found
            case ex.Case(branches, otherwise, dtype):
                parts = self.columns([part for branch in branches for part in branch] + [otherwise])
                if parts is None or any(e.type != dtype for e in (*(e for _, e in branches), otherwise)):
                    return None
                chain = F.when(parts[0], parts[1])
                for i in range(2, len(parts) - 1, 2):
                    chain = chain.when(parts[i], parts[i + 1])
                return chain.otherwise(parts[-1])
            case ex.Cast(arg=arg, type=dtype) if dtype.kind in CASTS.get(arg.type.kind, ()):
                value = self.column(arg)
                return None if value is None else value.cast(self.type(dtype))
        return None

    def columns(self, exprs: Sequence[Expr]) -> list[Column] | None:
        """All of the expressions, None where one is not on the list."""
        found = [self.column(e) for e in exprs]
        given = [c for c in found if c is not None]
        return given if len(given) == len(found) else None

    def type(self, dtype: DataType) -> SparkType:
        """The type that answers have in Spark."""
        schema = spark_arrow(pa.schema([("c", dtype.arrow)]), clock_face=self.clock_face)
        return spark_schema(schema).fields[0].dataType

    def _of(self, place: int, dtype: DataType) -> Column | None:
        field, wanted = self.frame.schema.fields[place], self.type(dtype)
        column = F.col(spark_name(field.name))
        if field.dataType == wanted:
            return column
        widened = isinstance(field.dataType, ByteType | ShortType) and dtype.kind is Kind.INT
        # Clocks that are not those of UTC have been made instants before.
        if widened or (isinstance(field.dataType, TimestampNTZType) and dtype.kind is Kind.TIMESTAMP):
            return column.cast(wanted)
        return None

    def _constant(self, literal: ex.Literal) -> Column | None:
        value: Any = literal.value
        if literal.type.kind not in _ORDERED:
            return None
        if value is None:
            return F.lit(None).cast(self.type(literal.type))
        if literal.type.kind is Kind.DATE:
            return F.date_from_unix_date(F.lit(value))
        if literal.type.kind is not Kind.TIMESTAMP:
            return F.lit(value).cast(self.type(literal.type))
        if not self.clock_face:
            return F.timestamp_micros(F.lit(value).cast("bigint"))
        try:
            face = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        except OverflowError:
            return None
        return F.expr(f"TIMESTAMP_NTZ'{face.year:04d}-{face:%m-%d %H:%M:%S.%f}'")


def whole(frame: DataFrame, source: Source, plan: Query, names: Sequence[str], *, clock_face: bool) -> DataFrame | None:
    """The answers of a query over one table, by Spark alone; None where that is not on the list.

    ``frame`` has the columns of the source, and the rows that ``pushdown`` leaves; ``names`` are those of the answers.
    """
    found = filters_and_projection(plan)
    if found is None or source.timestamp is None:
        return None
    conditions, exprs = found
    native = Native(frame, clock_face)
    values = native.columns(exprs)
    dtype = source.schema[source.timestamp].type
    time = native.columns([ex.Column(source.timestamp, dtype), *(ex.Literal(end, dtype) for end in ends_of(source))])
    if native.columns(conditions) is None or values is None or time is None:
        return None
    ts, first, last = time
    mark = F.expr("IF(true, '+', NULL)")
    shown = [c.alias(name) for c, name in zip([ts, mark, *values], names, strict=True)]
    return frame.where(_fitting(source, ts, first, last)).select(*shown)


def _fitting(source: Source, ts: Column, first: Column, last: Column) -> Column:
    """The rows that fit; the others are left out or an error, as in ``scatter.fitting``."""
    assert source.timestamp is not None
    fits = (ts >= first) & (ts <= last)
    if source.on_error == "apart":
        return fits
    name = source.schema[source.timestamp].name
    out = OUT_OF_RANGE if source.clock == "timestamp" else "is out of range"
    said = F.when(ts.isNull(), f"the timestamp `{name}` of a row is NULL").otherwise(f"a timestamp in `{name}` {out}")
    hint = f"leave such rows out, as in df.where('{name} IS NOT NULL'), or say on_error='apart'"
    # As a worker would say it, for ``running.error``.
    text = F.concat(F.lit(f"\npenstock.model.errors.InputError: stream `{source.name}`: "), said, F.lit(f"; {hint}\n"))
    return F.coalesce(F.when(fits, True), F.raise_error(text).cast("boolean"))
