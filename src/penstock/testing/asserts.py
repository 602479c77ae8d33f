"""What a test asks of answers."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import pyarrow as pa

from penstock.catalog import Functions
from penstock.database.query import Query, take, visible
from penstock.hosts.standing import Standing
from penstock.model.errors import InputError, StateError
from penstock.model.names import counted
from penstock.rows.given import frame_as_table, is_of_spark
from penstock.rows.times import to_instant
from penstock.scalar.zones import UTC
from penstock.testing.compare import difference
from penstock.testing.expected import read_expected, rows_of
from penstock.testing.matching import Tolerance
from penstock.testing.player import Batches
from penstock.testing.script import Script

__tracebackhide__ = True
"""pytest shows the test that failed, not the lines of this module."""

Answer = tuple[Any, ...]
"""ts, op, then the values of the columns, as plain Python values."""


def answers(query: Query) -> list[Answer]:
    """The answers since the last call (or fetch), each as ``(ts, op, …)``."""
    return _tuples(_take(_checked(query)))


def assert_answers(
    query: object, expected: object, *, rel: float = 1e-9, abs: float = 1e-12, ordered: bool = True
) -> None:
    """The answers since the last look are these, all of them.

    ``expected``: a list of tuples or dicts, a DataFrame, an Arrow table, or a table as text. ``ts`` and ``op`` may be
    left out: without ``op`` all rows are ones that enter. The order of rows within an instant does not matter; that of
    instants does, unless ``ordered`` is false (streams with PRIORITY BY). Floating-point numbers may differ by ``rel``
    of their size, or by ``abs``. A missing number of pandas stands for NULL and for NaN.

    ``query``: a query, whose answers are taken as ``fetch`` does, or a table of answers: what was fetched, a DataFrame
    of pandas or polars, or what ``ps.sql`` gives for static DataFrames. Of the latter, Spark does not keep the order.
    """
    if isinstance(query, Query):
        name, table = f"answers of `{query.name}`", _take(query)
    else:
        name, table = "answers", _read_table(query)
        ordered = ordered and not is_of_spark(query)
    if table.column_names[:2] != ["ts", "op"]:
        raise InputError(f"this is no table of answers: its columns are {', '.join(table.column_names)}")
    wanted = read_expected(expected, table.schema)
    found = difference(rows_of(table), wanted, Tolerance(rel, abs), ordered=ordered)
    if found is not None:
        raise AssertionError(f"{name}: {found}")


def snapshot(query: Query, *, at: object = None) -> list[Answer]:
    """The rows of a query's relation as they are now, or as they were after all that happened until an instant.

    All answers so far are taken and put together, so fetch them only with the functions of this module.
    """
    return _tuples(_state(_checked(query), at))


def assert_state(
    query: Query, expected: object, *, at: object = None, rel: float = 1e-9, abs: float = 1e-12
) -> None:
    """The rows of a query's relation, as ``snapshot`` gives them, are these, in any order."""
    table = _state(_checked(query), at)
    wanted = read_expected(expected, query.schema, marks=False)
    found = difference(rows_of(table), wanted, Tolerance(rel, abs), ordered=False)
    if found is not None:
        when = "" if at is None else f" at {at}"
        raise AssertionError(f"rows of `{query.name}`{when}: {found}")


@overload
def assert_same_answers(
    script: Script, query: str, *, engines: Sequence[str] = ..., batches: Sequence[Batches] = ...,
    functions: Functions | None = ..., rel: float = ..., abs: float = ...,
) -> list[Answer]: ...  # fmt: skip


@overload
def assert_same_answers(
    script: Script, query: Mapping[str, str], *, engines: Sequence[str] = ..., batches: Sequence[Batches] = ...,
    functions: Functions | None = ..., rel: float = ..., abs: float = ...,
) -> dict[str, list[Answer]]: ...  # fmt: skip


def assert_same_answers(
    script: Script,
    query: str | Mapping[str, str],
    *,
    engines: Sequence[str] = ("reference", "local"),
    batches: Sequence[Batches] = (None, 1, "random"),
    functions: Functions | None = None,
    rel: float = 1e-9,
    abs: float = 1e-12,
) -> list[Answer] | dict[str, list[Answer]]:
    """A query, or several by name, gives the same answers on every engine, however its rows are put together.

    The script is played in a new database for each, to its end, and all streams are closed. Gives the answers, as the
    first engine gave them. ``functions``: Python functions that the query calls, as (function, args, returns).
    """
    queries = {"q": query} if isinstance(query, str) else dict(query)
    first: dict[str, pa.Table] | None = None
    first_run = ""
    for engine in engines:
        for batch in batches:
            run = f"engine {engine}, {_described(batch)}"
            found, ordered = _played(script, queries, engine, batch, functions or {})
            if first is None:
                first, first_run = found, run
                continue
            for name, table in found.items():
                diff = difference(rows_of(table), rows_of(first[name]), Tolerance(rel, abs), ordered=ordered)
                if diff is not None:
                    raise AssertionError(f"answers of `{name}` on {run} are not those on {first_run}: {diff}")
    if first is None:
        raise InputError("there is nothing to compare", hint="name at least one engine and one way to make batches")
    given = {name: _tuples(table) for name, table in first.items()}
    return given["q"] if isinstance(query, str) else given


def _played(
    script: Script, queries: Mapping[str, str], engine: str, batch: Batches, functions: Functions
) -> tuple[dict[str, pa.Table], bool]:
    with script.open(engine) as db:
        for name, (function, args, returns) in functions.items():
            db.create_function(name, function, args=args, returns=returns)
        running = {name: db.query(text, name=name) for name, text in queries.items()}
        script.play(db, batch=batch, close=True)
        ordered = all(stream.priority is None for stream in db.catalog.streams.values())
        return {name: query.fetch() for name, query in running.items()}, ordered


def _described(batch: Batches) -> str:
    if batch is None:
        return "all rows at once"
    return f"batches of {batch}" if isinstance(batch, int) else "batches at random"


# -- what has been answered so far ------------------------------------------------------------------------


@dataclass
class _Seen:
    """All answers of a query that went through this module. Bounded by the test that asks for them."""

    tables: list[pa.Table] = field(default_factory=list)
    count: int = 0


_seen: weakref.WeakKeyDictionary[Query, _Seen] = weakref.WeakKeyDictionary()


def _take(query: Query) -> pa.Table:
    seen = _seen.setdefault(query, _Seen())
    table = take(query)
    seen.tables.append(table)
    seen.count += table.num_rows
    return visible(query, table)


def _read_table(given: object) -> pa.Table:
    table = frame_as_table(given)
    if table is None:
        raise InputError(f"a {type(given).__name__} has no answers", hint="give a query, or a table of its answers")
    zones = {f.name: None if f.type.tz == UTC else f.type.tz for f in table.schema if pa.types.is_timestamp(f.type)}
    fields = [f.with_type(pa.timestamp("us", zones[f.name])) if f.name in zones else f for f in table.schema]
    return table.cast(pa.schema(fields))


def _checked(query: object) -> Query:
    if not isinstance(query, Query):
        raise InputError(
            f"this is no query of a database ({type(query).__name__}), so its rows are not known",
            hint="assert_answers takes a table of answers too",
        )
    return query


def _state(query: Query, at: object) -> pa.Table:
    if query.plan.output != "changes":
        raise InputError(
            f"query `{query.name}` gives {query.plan.output.upper()}, and not the changes of a relation",
            hint="use assert_answers, or ask for a query without ISTREAM, DSTREAM, RSTREAM and windows that end",
        )
    _take(query)
    seen = _seen[query]
    if query.answered != seen.count:
        raise StateError(
            f"{counted(query.answered - seen.count, 'answer')} of query `{query.name}` went elsewhere, so its rows are "
            "not known",
            hint="take answers with penstock.testing.answers or assert_answers, not with fetch or subscribe",
        )
    standing = Standing(query.plan)
    standing.put(pa.concat_tables(seen.tables), None if at is None else to_instant(at))
    rows, wanted = standing.table(), pa.schema(list(query.schema)[2:])
    return rows.rename_columns(wanted.names).cast(wanted)


def _tuples(table: pa.Table) -> list[Answer]:
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
