"""Between the schemas of DataFrames and those of CQL.

A Spark TIMESTAMP is an instant and a TIMESTAMP_NTZ is what a clock shows; both are microseconds here, the first in UTC.
Answers have the kind that the inputs have, and TIMESTAMP where those have both or none; beside instants, clocks are
those of the session's time zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from penstock.errors import InputError, suggest
from penstock.plan.nodes import Clock, Field, Schema
from penstock.types import BIGINT, TIMESTAMP, DataType, Kind, from_arrow
from penstock.values import with_zone

USUAL_NAMES = ("ts", "at", "timestamp", "event_time")
"""A column of such a name says when a row happened, where several columns or none are TIMESTAMP."""


@dataclass(frozen=True)
class Columns:
    """The columns of a DataFrame that CQL can read.

    ``spark`` are their names there; CQL folds names to lower case, as Spark does when it compares them.
    ``unread`` are the others, with their types. ``timestamps``: are they instants, what a clock shows, or both.
    """

    schema: Schema
    spark: Mapping[str, str]
    unread: Mapping[str, str]
    timestamps: Literal["none", "instants", "clock", "both"] = "none"


def columns_of(schema: StructType, where: str) -> Columns:
    """What of a DataFrame's schema can be declared."""
    fields: list[Field] = []
    spark: dict[str, str] = {}
    unread: dict[str, str] = {}
    for field in schema.fields:
        name = field.name.lower()
        if name in spark or name in unread:
            raise InputError(
                f"{where}: the columns `{spark.get(name, name)}` and `{field.name}` differ in case only",
                hint="rename one of them",
            )
        dtype = _cql_type(field.dataType)
        if dtype is None:
            unread[name] = field.dataType.simpleString()
        else:
            fields.append(Field(name, dtype))
            spark[name] = field.name
    kinds = {type(f.dataType) for f in schema.fields}
    instants, clock = TimestampType in kinds, TimestampNTZType in kinds
    return Columns(
        tuple(fields), spark, unread,
        "both" if instants and clock else "instants" if instants else "clock" if clock else "none",
    )  # fmt: skip


def _cql_type(dtype: SparkType) -> DataType | None:
    try:
        found = from_arrow(to_arrow_type(dtype, timezone="UTC"))
    except Exception:  # pyspark raises an error of its own for each type that Arrow does not have
        return None
    return None if found is None or found.kind is Kind.NULL else found


def timestamp_column(columns: Columns, chosen: str | None, stream: str) -> tuple[str, Clock]:
    """The column that says when a row happened, and whether it counts microseconds or plain ticks."""
    types = {f.name: f.type for f in columns.schema}
    if chosen is not None:
        name = chosen.lower()
        if name not in types:
            raise InputError(f"stream `{stream}`: no column `{chosen}`", hint=suggest(name, types))
        if types[name] not in (TIMESTAMP, BIGINT):
            raise InputError(
                f"stream `{stream}`: the timestamp `{chosen}` is {types[name]}",
                hint="it takes a TIMESTAMP, or a BIGINT that counts ticks",
            )
    else:
        stamps = [n for n, t in types.items() if t == TIMESTAMP]
        usual = [n for n in USUAL_NAMES if types.get(n) in (TIMESTAMP, BIGINT)]
        found = stamps if len(stamps) == 1 else [n for n in usual if n in stamps] or usual
        if not found:
            raise InputError(
                f"stream `{stream}`: which column says when a row happened? There is {_listed(columns.schema)}",
                hint=f"say timestamps={{{stream!r}: …}}",
            )
        name = found[0]
    return name, "timestamp" if types[name] == TIMESTAMP else "ticks"


def _listed(schema: Sequence[Field]) -> str:
    return ", ".join(f"`{f.name}` {f.type}" for f in schema)


def spark_arrow(schema: pa.Schema, *, clock_face: bool) -> pa.Schema:
    """The Arrow schema in which answers are handed to Spark."""
    return schema if clock_face else with_zone(schema, "UTC")


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of a DataFrame of answers."""
    return from_arrow_schema(schema)


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with zones as in ``schema``; only types change, no value does."""
    if table.schema.equals(schema):
        return table
    return pa.Table.from_arrays([c.cast(f.type) for c, f in zip(table.columns, schema, strict=True)], schema=schema)
