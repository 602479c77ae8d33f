"""CREATE STREAM and CREATE RELATION of names that are DataFrames: what is declared is what they must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.catalog import Catalog, StreamDef
from penstock.cql import ast
from penstock.cql.declarations import declared_in
from penstock.cql.expressions import identifier
from penstock.cql.text import format_statement, parse
from penstock.hosts.spark.schemas import columns_of, spark_name, unread_of
from penstock.model.errors import InputError, suggest
from penstock.model.names import Names
from penstock.model.schema import Schema
from penstock.rows.apart import OnError, Unknown


@dataclass(frozen=True)
class Declared:
    """DataFrames in the order and with the columns in which they are declared, those that are not after them.

    ``relations`` are the names that are declared so; ``rest`` are the other statements.
    """

    frames: Mapping[str, DataFrame]
    relations: frozenset[str]
    timestamps: Mapping[str, str]
    slack: Mapping[str, int]
    on_error: Mapping[str, OnError]
    rest: str


def declared(text: str, frames: Mapping[str, DataFrame]) -> Declared:
    """Check DataFrames against their declarations, where they have one."""
    rest: list[str] = []
    found: dict[str, DataFrame] = {}
    catalog = Catalog()
    for statement in parse(text):
        tree = statement.tree
        name = identifier(tree.this) if isinstance(tree, ast.CreateStream | ast.CreateRelation) else ""
        if name not in frames or tree.args.get("expression") is not None:
            rest.append(format_statement(tree))
            continue
        declared_in(format_statement(tree), catalog)
        known = catalog.streams.get(name)
        _check_kind(name, known, frames)
        schema = catalog.relation(name).schema if known is None else known.schema
        found[name] = _chosen(name, schema, frames[name], None if known is None else known.unknown)
    streams = catalog.streams.values()
    return Declared(
        {**found, **frames, **found},
        frozenset(catalog.relations),
        {s.name: s.timestamp_by for s in streams if s.timestamp_by is not None},
        {s.name: s.slack for s in streams},
        {s.name: s.on_error for s in streams},
        # Statements with nothing but declarations of DataFrames leave nothing to run.
        ";\n".join(rest),
    )


def _check_kind(name: str, known: StreamDef | None, frames: Mapping[str, DataFrame]) -> None:
    if known is None:
        if frames[name].isStreaming:
            raise InputError(f"relation `{name}` is a streaming DataFrame", hint="declare it with CREATE STREAM")
        return
    if not frames[name].isStreaming and any(f.isStreaming for f in frames.values()):
        raise InputError(
            f"stream `{name}` is a static DataFrame, and others are streaming",
            hint="read it with readStream, or declare it with CREATE RELATION",
        )
    if known.timestamp_by is None:
        raise InputError(
            f"stream `{name}` has no TIMESTAMP BY: rows of a DataFrame do not say when they arrived",
            hint="name the column that says when a row happened",
        )


def _chosen(name: str, schema: Schema, frame: DataFrame, unknown: Unknown | None) -> DataFrame:
    there = columns_of(frame.schema, f"DataFrame `{name}`")
    if unknown == "refuse":
        declared = Names(f.name for f in schema)
        for other in (*(f.name for f in there.schema), *there.unread):
            if declared.given(other) is None:
                raise InputError(
                    f"DataFrame `{name}` has a column `{other}`, which is not declared",
                    hint=suggest(other, [f.name for f in schema]),
                )
    types: dict[str, Any] = {f.name: f.type for f in there.schema}
    types |= {column: dtype.simpleString().upper() for column, dtype in there.unread.items()}
    known, unread = Names(types), unread_of(there, name)
    columns = []
    for field in schema:
        column = known.given(field.name)
        if column is None:
            raise InputError(
                f"DataFrame `{name}` has no column `{field.name}`, which is declared", hint=suggest(field.name, types)
            )
        if (was := types[column]) != field.type:
            raise InputError(
                f"column `{field.name}` of DataFrame `{name}` is {was}, and declared {field.type}",
                hint=unread.hint if unread and column in there.unread else f"cast it, or declare it {was}",
            )
        columns.append(F.col(spark_name(column)).alias(field.name))
    return frame.select(*columns)
