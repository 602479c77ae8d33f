"""One SELECT, answered by a DuckDB that sees nothing but the tables it is given."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import BindError, CqlSyntaxError, PenstockError, QueryFailed
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    RANGES,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    from_arrow,
)
from penstock.server.adhoc import guards, meaning
from penstock.server.adhoc.tree import Node, Statement, macro_name
from penstock.server.stop import Stop, given_up, interrupted

_WINDOW = re.compile(
    r"\[\s*(RANGE|ROWS|NOW|PARTITION|BEGIN|TUMBLING|HOPPING|SESSION|UNBOUNDED|FORWARD|REVERSE|LANDMARK)\b",
    re.IGNORECASE,
)
_SHORT, _TEXTS = 20_000, 200
"""Texts that are remembered with what DuckDB made of them: how long, and how many."""
_NAME = re.compile(r"\bat\b(?!\s+time\s+zone\b)", re.IGNORECASE)
"""A usual name of a column, which DuckDB takes for a keyword."""
_ONLY = "only SELECT, WITH and VALUES are answered ad hoc"


class AdHoc:
    """Answers SELECTs one by one, on any thread.

    ``memory`` (as DuckDB writes it) and ``threads`` bound all statements together; a statement that has not ended at
    its deadline, or after ``seconds``, fails. ``zone`` is that of the database, ``most`` bounds the
    bytes of an answer.
    """

    def __init__(
        self,
        *,
        memory: str = "512MB",
        threads: int = 2,
        seconds: float = 30.0,
        zone: str = "UTC",
        most: int = 256_000_000,
    ) -> None:
        self._seconds = seconds
        self._zone = zone
        self._most = most
        self._lock = threading.Lock()
        self._remembered = lru_cache(maxsize=_TEXTS)(self._ask)
        self._declared: dict[object, str] = {}  # bounded by the functions, types and units that there are
        self._base = duckdb.connect(":memory:", config={
            "memory_limit": memory, "threads": threads, "python_enable_replacements": False,
            "python_scan_all_frames": False, "autoinstall_known_extensions": False,
            "autoload_known_extensions": False, "allow_community_extensions": False,
            "allow_unsigned_extensions": False, "temp_directory": "", "max_temp_directory_size": "0KB",
            "default_null_order": "nulls_first_on_asc_last_on_desc", "error_on_division_by_zero": False,
        })  # fmt: skip
        self._base.execute("SET TimeZone = 'UTC'")
        self._base.execute("SET preserve_insertion_order = true")
        self._base.execute("SET enable_external_access = false")
        self._prepare()
        self._base.execute("SET lock_configuration = true")

    def close(self) -> None:
        self._base.close()

    def select(
        self,
        sql: str,
        tables: Mapping[str, Callable[[], pa.Table]],
        parameters: Sequence[object] = (),
        deadline: float | None = None,
        stop: Stop | None = None,
        room: Callable[[int], None] = lambda size: None,
    ) -> pa.Table:
        """The answer; of the tables those that the text names are made. ``deadline`` is of ``time.monotonic``; ``stop``
        ends the statement at once; ``room`` is called with the bytes of each batch of the answer, and may refuse it."""
        try:
            return self._run(sql, tables, parameters, deadline, "", stop or Stop(), room)
        except RecursionError:
            raise guards.too_deep() from None

    def describe(
        self, sql: str, tables: Mapping[str, Callable[[], pa.Table]], stop: Stop | None = None
    ) -> tuple[list[DataType | None], pa.Schema]:
        """The types of the parameters, as far as they are known (None: any), and the columns of the answer."""
        try:
            found = self._run(sql, tables, None, None, "LIMIT 0", stop or Stop())
        except RecursionError:
            raise guards.too_deep() from None
        return [None] * self._parse(sql).parameters, found.schema

    def _run(
        self,
        sql: str,
        tables: Mapping[str, Callable[[], pa.Table]],
        parameters: Sequence[object] | None,
        deadline: float | None,
        limit: str,
        stop: Stop,
        room: Callable[[int], None] = lambda size: None,
    ) -> pa.Table:
        seconds = self._seconds if deadline is None else max(0.0, deadline - time.monotonic())
        deadline = time.monotonic() + seconds
        statement = self._parse(sql)
        given = [None] * statement.parameters if parameters is None else list(parameters)
        if len(given) != statement.parameters:
            raise BindError(f"the statement has {statement.parameters} parameters, got {len(given)} values")
        # The names first: a table is made only where the statement may be run.
        named = Statement(
            statement.text, json.loads(json.dumps(statement.tree)), self._declare, self._written, self._zone
        ).rewrite(tables)
        made: dict[str, pa.Table] = {}
        for name in named:
            if stop.is_set:
                raise given_up()
            made[name] = tables[name]()
        statement.reals = frozenset(
            f.name.lower() for t in made.values() for f in t.schema if pa.types.is_float32(f.type)
        )
        seen = statement.rewrite(tables)
        with self._base.cursor() as connection:
            for name, table in made.items():
                connection.register(seen[name], _given(table))
            text = self._written(statement.tree)
            if limit:
                text = f"SELECT * FROM ({text}) {limit}"
            try:
                with interrupted(connection, deadline - time.monotonic(), stop):
                    found = guards.fetched(connection.sql(text, params=given), self._most, room)
            except (duckdb.Error, pa.ArrowException, OSError) as e:  # the latter while the rows are read
                if stop.is_set:
                    raise given_up() from None
                raise self._explained(e, statement, seconds) from None
            return _taken(found)

    def _parse(self, sql: str) -> Statement:
        guards.check_text(sql)
        found = self._serialized(sql)
        if found["error"] and (quoted := _quoted(sql)) != sql:
            guards.check_text(quoted)
            again = self._serialized(quoted)
            if not again["error"]:
                sql, found = quoted, again
        nothing = Statement(sql, {"named_param_map": []}, self._declare, self._written, self._zone)
        if found["error"]:
            if found.get("error_type") != "parser":
                raise CqlSyntaxError(_ONLY).at(nothing.position(0), sql)
            if (window := _WINDOW.search(guards.blanked(sql))) is not None:
                at = nothing.position(len(sql[: window.start()].encode()))
                hint = f"write CREATE QUERY … AS {_short(sql)}"
                raise BindError("a window makes a query continuous, and this SELECT is answered once", hint=hint).at(
                    at, sql
                )
            at = nothing.position(int(found.get("position") or 0))
            if "max_expression_depth" in str(found["error_message"]):
                raise guards.too_deep()
            raise CqlSyntaxError(str(found["error_message"])).at(at, sql)
        if len(found["statements"]) != 1:
            raise CqlSyntaxError(f"one statement at a time, got {len(found['statements'])}")
        return Statement(sql, found["statements"][0], self._declare, self._written, self._zone)

    def _serialized(self, sql: str) -> dict[str, Any]:
        parsed = self._asked("json_serialize_sql", sql)
        guards.check_tree(parsed)
        found: dict[str, Any] = json.loads(parsed)
        return found

    def _written(self, tree: Node) -> str:
        """The text of a parsed statement."""
        return self._asked("json_deserialize_sql", json.dumps({"error": False, "statements": [tree]}))

    def _asked(self, function: str, text: str) -> str:
        """What DuckDB makes of a text: it is asked once about a short one."""
        return (self._remembered if len(text) < _SHORT else self._ask)(function, text)

    def _ask(self, function: str, text: str) -> str:
        with self._base.cursor() as connection:
            row = connection.execute(f"SELECT {function}(?)", [text]).fetchone()
        assert row is not None
        return str(row[0])

    def _explained(self, error: Exception, statement: Statement, seconds: float) -> PenstockError:
        message = str(error).split("\nLINE ")[0].split("\nCandidate")[0].strip()
        message = re.sub(r"^[A-Z][A-Za-z ]+ Error: ", "", message)
        message = re.sub(r"^Python exception occurred while executing the UDF: \w+: ", "", message)
        if "max_expression_depth" in message:
            return guards.too_deep()
        if isinstance(error, duckdb.InterruptException) or "INTERRUPT" in message:
            return QueryFailed(f"the SELECT did not end within {seconds:.3g} s", hint="ask for less, or CREATE QUERY")
        if isinstance(error, duckdb.OutOfMemoryException) or str(error).startswith("Out of Memory"):
            return QueryFailed("the SELECT needs more memory than it may have", hint="ask for less, or CREATE QUERY")
        if isinstance(error, duckdb.BinderException | duckdb.CatalogException | duckdb.ParserException):
            bound = BindError(message)
            if (found := re.search(r'[Cc]olumn (?:named )?"([^"]+)"', message)) is not None:
                place = statement.columns.get(found.group(1).lower())
                bound.at(
                    None if place is None else statement.position(place, len(found.group(1).encode())), statement.text
                )
            return bound
        return QueryFailed(message)

    # CQL's functions as functions of DuckDB

    def _prepare(self) -> None:
        for source in (DOUBLE, TIMESTAMP, DATE):
            self._create(
                f"cql_cast_text_{source.kind.value.lower()}", [source], *meaning.cast(source, STRING, self._zone)
            )
        self._declare("decode", (BINARY,))
        for source in (DOUBLE, BIGINT, INT):
            self._create(
                f"cql_round_{source.kind.value.lower()}",
                [source, BIGINT],
                *meaning.call("round", (source, BIGINT), "UTC"),
            )
        for name in (*meaning.LISTED, *meaning.CHOSEN):
            types = ["DOUBLE[]", "DOUBLE"] if name == "percentile" else ["DOUBLE[]"]
            self._base.create_function(
                f"cql_{name}_list", meaning.of_list(name), types, "DOUBLE", type="arrow", null_handling="special"
            )  # type: ignore[call-overload]
        self._base.create_function(
            "cql_ratio", meaning.ratio, ["VARCHAR", "BIGINT"], "DOUBLE", type="arrow", null_handling="special"
        )  # type: ignore[call-overload]
        for macro in meaning.MACROS:
            self._base.execute(f"CREATE MACRO {macro}")
        for name, way in meaning.NATIVE.items():
            if way is not None:
                self._base.execute(f"CREATE MACRO {macro_name(name)}{way}")

    def _create(self, name: str, types: Sequence[DataType], compute: meaning.Compute, result: DataType) -> None:
        self._base.create_function(
            name, compute, [meaning.duck_type(t) for t in types], meaning.duck_type(result), type="arrow",
            null_handling="special",
        )  # type: ignore[call-overload]  # fmt: skip

    def _declare(
        self,
        name: str,
        signature: meaning.Signature | None,
        unit: str | None = None,
        *,
        overloads: tuple[int, ...] = (),
        target: DataType | None = None,
    ) -> str:
        """DuckDB's name of a function of CQL, which is made when it is first asked for."""
        key = (name, signature, unit, overloads, target)
        with self._lock:
            if key not in self._declared:
                self._declared[key] = self._make(name, signature, unit, overloads, target)
            return self._declared[key]

    def _make(
        self,
        name: str,
        signature: meaning.Signature | None,
        unit: str | None,
        overloads: tuple[int, ...],
        target: DataType | None,
    ) -> str:
        if target is not None:
            return self._make_cast(target)
        if signature is None:
            ways = []
            for dtype in meaning.EITHER[name]:
                inner = f"cql_{name}_{dtype.kind.value.lower()}"
                self._create(inner, [dtype], *meaning.call(name, (dtype,), self._zone))
                ways.append(f"(a {meaning.duck_type(dtype)}) AS {inner}(a)")
            self._base.execute(f"CREATE MACRO cql_{name}{', '.join(ways)}")
            return f"cql_{name}"
        compute, result = meaning.call(name, signature, self._zone, unit)
        plain = "_".join(["cql", name, *([re.sub(r"\W", "_", unit)] if unit else []), str(len(signature))])
        if not overloads:
            self._create(plain, signature, compute, result)
            return plain
        return self._make_timed(name, signature, unit, overloads, f"{plain}_typed")

    def _make_timed(
        self, name: str, signature: meaning.Signature, unit: str | None, overloads: tuple[int, ...], macro: str
    ) -> str:
        """A way for a DATE, one for a TIMESTAMP, and for what has one, DuckDB's for an INTERVAL."""
        names = [f"a{i}" for i in range(len(signature))]
        ways = []
        for count in range(2 ** len(overloads)):
            types = list(signature)
            for bit, at in enumerate(overloads):
                types[at] = DATE if count >> bit & 1 else TIMESTAMP
            inner = f"{macro}_{count}"
            self._create(inner, types, *meaning.call(name, tuple(types), self._zone, unit))
            shown = ", ".join(
                f"{n} {meaning.duck_type(types[i])}" if i in overloads else n for i, n in enumerate(names)
            )
            ways.append(f"({shown}) AS {inner}({', '.join(names)})")
        if name == "epoch":
            ways.append("(a0 INTERVAL) AS epoch(a0)")
        self._base.execute(f"CREATE MACRO {macro}{', '.join(ways)}")
        return macro

    def _make_cast(self, target: DataType) -> str:
        """A macro for CAST to a type, and one, ``…_any``, for aggregates, whose type DuckDB does not tell macros."""
        base = "cql_cast_" + re.sub(r"\W+", "_", str(target)).lower()
        duck = meaning.duck_type(target)
        sources = {
            Kind.BOOLEAN: (STRING,), Kind.DOUBLE: (STRING,), Kind.INT: (STRING, BOOLEAN),
            Kind.BIGINT: (STRING, BOOLEAN),
            Kind.DECIMAL: (STRING, DOUBLE), Kind.DATE: (STRING, TIMESTAMP), Kind.TIMESTAMP: (STRING, DATE),
            Kind.BINARY: (STRING,), Kind.STRING: (),
        }[target.kind]  # fmt: skip
        rest = f"TRY_CAST(trunc(a) AS {duck})" if target.is_integer else f"TRY_CAST(a AS {duck})"
        ways = []
        for source in sources:
            inner = f"{base}_{source.kind.value.lower()}"
            self._create(inner, [source], *meaning.cast(source, target, self._zone))
            ways.append(f"(a {meaning.duck_type(source)}) AS {inner}(a)")
        if target.kind is Kind.DECIMAL:
            ways += [f"(a {t}) AS TRY_CAST(a AS {duck})" for t in ("INTEGER", "BIGINT", "HUGEINT")]
        self._base.execute(f"CREATE MACRO {base}{', '.join([*ways, f'(a) AS {rest}'])}")
        self._base.execute(f"CREATE MACRO {base}_any(a) AS {rest}")
        return base


def _quoted(sql: str) -> str:
    """The text with names in quotes that CQL takes without them."""
    at, parts = 0, []
    for name in _NAME.finditer(guards.blanked(sql)):
        parts += [sql[at : name.start()], f'"{name.group()}"']
        at = name.end()
    return "".join([*parts, sql[at:]])


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 60 else f"{text[:60]}…"


def _given(table: pa.Table) -> pa.Table:
    """A table as DuckDB computes with it: REAL as DOUBLE, an instant without a zone."""
    columns = []
    for column, field in zip(table.columns, table.schema, strict=True):
        if pa.types.is_float32(field.type):
            column = column.cast(pa.float64())
        elif pa.types.is_timestamp(field.type) and field.type.tz:
            column = column.cast(pa.timestamp("us", field.type.tz)).cast(pa.timestamp("us"))
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _taken(table: pa.Table) -> pa.Table:
    """The answer in types of CQL; what has none becomes a text."""
    columns = []
    for i, column in enumerate(table.columns):
        kind = column.type
        if pa.types.is_decimal(kind) and kind.scale == 0 and kind.precision == 38:
            column = _whole(column)
        elif kind == pa.month_day_nano_interval():
            column = _ticks(column, table.column_names[i])
        elif pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us"))
        else:
            known = from_arrow(kind)
            if known is None:
                column = pa.chunked_array(
                    [pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())]
                )
            elif known.kind is not Kind.NULL and known.arrow != kind:
                column = column.cast(known.arrow)
        columns.append(_in_range(column))
    return pa.table(columns, names=table.column_names) if columns else table


def _in_range(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A DATE or TIMESTAMP outside of the years 1 to 9999 is NULL, as everywhere in CQL."""
    known = from_arrow(column.type)
    if known is None or known.kind not in (Kind.DATE, Kind.TIMESTAMP) or not len(column):
        return column
    least, greatest = RANGES[known.kind]
    counted = column.cast(pa.int32() if known.kind is Kind.DATE else pa.int64())
    inside = pc.and_(pc.greater_equal(counted, least), pc.less_equal(counted, greatest))
    return pc.if_else(inside, column, pa.scalar(None, column.type))


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """What DuckDB counts in 128 bits, as BIGINT where it fits."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _ticks(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    found: list[int | None] = []
    for value in column.to_pylist():
        if value is not None and value.months:
            raise QueryFailed(f"column `{name}` is an INTERVAL of months, which have no length")
        found.append(None if value is None else value.days * 86_400_000_000 + value.nanoseconds // 1000)
    return pa.chunked_array([pc.cast(pa.array(found, pa.int64()), pa.duration("us"))])
