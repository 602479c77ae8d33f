"""Between the schemas of DataFrames and those of CQL.

A Spark TIMESTAMP is an instant and a TIMESTAMP_NTZ is what a clock shows; both are microseconds here, the first in UTC.
Answers have the kind that the inputs have, and TIMESTAMP where those have both or none; beside instants, clocks are
those of the session's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StringType, StructType, TimestampNTZType, TimestampType, VariantType
from pyspark.sql.types import DataType as SparkType

from penstock.catalog import Unread
from penstock.hosts.spark.internals import in_arrow, in_spark
from penstock.model.errors import InputError, suggest
from penstock.model.names import Names
from penstock.model.schema import Clock, Field, Schema
from penstock.model.types import BIGINT, TIMESTAMP, DataType, Kind, from_arrow
from penstock.model.values import with_zone

USUAL_NAMES = ("ts", "at", "timestamp", "event_time")
"""A column of such a name says when a row happened, where several columns or none are TIMESTAMP."""
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Columns:
    """The columns of a DataFrame that CQL can read.

    ``unread`` are the others, with their types. ``timestamps``: are they instants, what a clock shows, or both.
    """

    schema: Schema
    unread: Mapping[str, SparkType]
    timestamps: Literal["none", "instants", "clock", "both"] = "none"


def columns_of(schema: StructType, where: str) -> Columns:
    """What of a DataFrame's schema can be declared."""
    fields: list[Field] = []
    unread: dict[str, SparkType] = {}
    there: dict[str, str] = {}
    for field in schema.fields:
        other = there.setdefault(field.name.lower(), field.name)
        if other is not field.name:
            raise InputError(
                f"{where}: the columns `{other}` and `{field.name}` differ in case only", hint="rename one of them"
            )
        dtype = _cql_type(field.dataType)
        if dtype is None:
            unread[field.name] = field.dataType
        else:
            fields.append(Field(field.name, dtype))
    kinds = {type(f.dataType) for f in schema.fields}
    instants, clock = TimestampType in kinds, TimestampNTZType in kinds
    return Columns(
        tuple(fields), unread,
        "both" if instants and clock else "instants" if instants else "clock" if clock else "none",
    )  # fmt: skip


def _cql_type(dtype: SparkType) -> DataType | None:
    try:
        found = from_arrow(in_arrow(dtype))
    except Exception:  # pyspark raises an error of its own for each type that Arrow does not have
        return None
    return None if found is None or found.kind is Kind.NULL else found


_FIELDS = 3
"""Fields of a struct that a hint names; the others are written likewise."""


def unread_of(columns: Columns, name: str) -> Unread | None:
    """The columns of the DataFrame ``name`` that CQL cannot read, with code that makes readable ones of them."""
    if not columns.unread:
        return None
    taken = {name.lower() for name in (*(f.name for f in columns.schema), *columns.unread)}
    parts, has_map = ["'*'"], False
    for column, dtype in columns.unread.items():
        for expression, alias in _readable(spark_name(column), dtype):
            fresh = alias
            while fresh.lower() in taken:
                fresh += "_"
            taken.add(fresh.lower())
            parts.append(repr(f"{expression} AS {spark_name(fresh)}"))
        has_map |= _by_key(dtype)
    dropped = ", ".join(repr(column) for column in columns.unread)
    keys = " with your keys for 'key'" if has_map else ""
    return Unread(
        {column: dtype.simpleString() for column, dtype in columns.unread.items()},
        f"to read what is in them, give {name}=df.selectExpr({', '.join(parts)}).drop({dropped}){keys}",
    )


def _readable(path: str, dtype: SparkType) -> list[tuple[str, str]]:
    """Expressions of Spark for what is in a value that CQL cannot read, each with a name for it."""
    alias = path.replace("`", "").replace(".", "_")
    if isinstance(dtype, StructType):
        fields = dtype.fields[:_FIELDS]
        found = [(f"{path}.{spark_name(f.name)}", f"{alias}_{f.name}", f.dataType) for f in fields]
        return [
            (field, name) if _cql_type(kind) is not None else (_as_text(field, kind), name)
            for field, name, kind in found
        ]
    if _by_key(dtype):
        assert isinstance(dtype, MapType)
        value = f"{path}['key']"
        is_read = _cql_type(dtype.valueType) is not None
        return [(value if is_read else _as_text(value, dtype.valueType), f"{alias}_key")]
    return [(_as_text(path, dtype), f"{alias}_text")]


def _by_key(dtype: SparkType) -> bool:
    return isinstance(dtype, MapType) and isinstance(dtype.keyType, StringType)


def _as_text(value: str, dtype: SparkType) -> str:
    nested = isinstance(dtype, StructType | MapType | ArrayType | VariantType)
    return f"to_json({value})" if nested else f"CAST({value} AS STRING)"


def spark_name(name: str) -> str:
    """A name as Spark's SQL takes it."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def timestamp_column(columns: Columns, chosen: str | None, stream: str) -> tuple[str, Clock]:
    """The column that says when a row happened, and whether it counts microseconds or plain ticks."""
    types = {f.name: f.type for f in columns.schema}
    if chosen is not None:
        name = Names(types).given(chosen) or chosen
        if name not in types:
            raise InputError(f"stream `{stream}`: no column `{chosen}`", hint=suggest(name, types))
        if types[name] not in (TIMESTAMP, BIGINT):
            raise InputError(
                f"stream `{stream}`: the timestamp `{chosen}` is {types[name]}",
                hint="it takes a TIMESTAMP, or a BIGINT that counts ticks",
            )
    else:
        stamps = [n for n, t in types.items() if t == TIMESTAMP]
        named = (Names(types).given(n) for n in USUAL_NAMES)
        usual = [n for n in named if n is not None and types[n] in (TIMESTAMP, BIGINT)]
        found = stamps if len(stamps) == 1 else [n for n in usual if n in stamps] or usual
        if not found:
            raise InputError(
                f"stream `{stream}`: which column says when a row happened? There is {_listed(columns.schema)}",
                hint=f"say timestamps={{{stream!r}: …}}" if TIMESTAMP in types.values() or BIGINT in types.values()
                else "it is a TIMESTAMP, or a BIGINT that counts ticks: CAST one to that in the DataFrame",
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
    return in_spark(schema)


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with zones as in ``schema``; only types change, no value does."""
    if table.schema.equals(schema):
        return table
    return pa.Table.from_arrays([c.cast(f.type) for c, f in zip(table.columns, schema, strict=True)], schema=schema)
