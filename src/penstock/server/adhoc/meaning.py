"""Which functions an ad-hoc SELECT may call, and how each gets the value that it has in CQL.

These tables are the whole list; what is in none of them is refused by name.

    COMPUTED    CQL's own kernels compute it, as functions of DuckDB that take and give Arrow
    NATIVE      DuckDB's function or operator has the same values, or the macro beside it has
    TYPED       macros that look at the type of an argument
    AGGREGATES  CQL's accumulators compute it from a list, unless DuckDB's has the same values
    BEYOND      CQL has no such function; DuckDB's meaning holds
    REFUSED     CQL has it, an ad-hoc SELECT does not, and what to write instead

A value that fails in CQL (overflow, division by zero, a bad CAST) is NULL here too, or ends the statement with an error
where DuckDB's TRY cannot be used: beside an aggregate or a sub-query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock import functions
from penstock.functions import AGGREGATES as CQL_AGGREGATES
from penstock.functions import SCALARS
from penstock.kernels.expressions import compile_expr
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
)
from penstock.operators.accumulators import accumulator
from penstock.scalar import Context
from penstock.scalar.expr import Cast, Column, Expr, Literal, walk
from penstock.scalar.numbers import fit
from penstock.server.adhoc.guards import GUARDS

Signature = tuple[DataType, ...]
Compute = Callable[..., pa.Array]

_S, _N, _D, _T = STRING, BIGINT, DOUBLE, TIMESTAMP

COMPUTED: dict[str, tuple[Signature, ...]] = {
    **dict.fromkeys(("sqrt", "cbrt", "exp", "ln", "log10", "log2", "sin", "cos", "tan", "asin", "acos", "atan",
                     "degrees", "radians", "is_nan", "is_inf", "is_finite"), ((_D,),)),
    "power": ((_D, _D),),
    "atan2": ((_D, _D),),
    "log": ((_D,), (_D, _D)),
    **dict.fromkeys(("lower", "upper", "length", "trim", "ltrim", "rtrim", "reverse", "ascii", "unicode", "unhex",
                     "encode"), ((_S,),)),
    "chr": ((_N,),),
    "decode": ((BINARY,),),
    "btrim": ((_S,), (_S, _S)),
    "substr": ((_S, _N), (_S, _N, _N)),
    "replace": ((_S, _S, _S),),
    "left": ((_S, _N),),
    "right": ((_S, _N),),
    "lpad": ((_S, _N), (_S, _N, _S)),
    "rpad": ((_S, _N), (_S, _N, _S)),
    "repeat": ((_S, _N),),
    **dict.fromkeys(("strpos", "position", "starts_with", "ends_with", "contains", "regexp_like"), ((_S, _S),)),
    "split_part": ((_S, _S, _N),),
    "regexp_replace": ((_S, _S, _S),),
    "regexp_extract": ((_S, _S), (_S, _S, _N)),
    "make_date": ((_N, _N, _N),),
    "make_timestamp": ((_N, _N, _N, _N, _N, _D),),
    "to_timestamp": ((_S,), (_S, _S)),
    "to_date": ((_S,), (_S, _S)),
    "strptime": ((_S, _S),),
    "timestamp_millis": ((_N,),),
    "timestamp_micros": ((_N,),),
    "from_ticks": ((_N,),),
    "like": ((_S, _S), (_S, _S, _S)),
    "ilike": ((_S, _S), (_S, _S, _S)),
}  # fmt: skip
"""Functions with one type for each argument, by their number of arguments."""

DATED: dict[str, tuple[Signature, ...]] = {
    **dict.fromkeys(("year", "quarter", "month", "week", "day", "dayofweek", "isodow", "dayofyear", "hour", "minute",
                     "second", "millisecond", "microsecond", "epoch", "unix_seconds", "unix_millis", "unix_micros",
                     "to_ticks", "last_day"), ((_T,),)),
    "strftime": ((_T, _S),),
    "date_format": ((_T, _S),),
    "from_utc_timestamp": ((_T, _S),),
    "to_utc_timestamp": ((_T, _S),),
    "add_months": ((_T, _N),),
}  # fmt: skip
"""As COMPUTED, with a DATE or a TIMESTAMP as first argument."""

UNITS: dict[str, tuple[int, ...]] = {"date_trunc": (1,), "extract": (1,), "date_diff": (1, 2)}
"""Functions whose first argument is a unit, which stands in the text, and which of the others are of time."""

EITHER: dict[str, tuple[DataType, ...]] = {
    "md5": (STRING, BINARY),
    "sha256": (STRING, BINARY),
    "octet_length": (STRING, BINARY),
    "hex": (STRING, BINARY, BIGINT),
}
"""Functions of one argument that has one of several types."""

NATIVE: dict[str, str | None] = {
    **dict.fromkeys(("+", "-", "*", "abs", "trunc", "greatest", "least", "coalesce", "nullif",
                     "if", "ifnull", "concat_ws", "pi"), None),
    "/": "(a, b) AS a / nullif(b, 0)",
    "%": "(a, b) AS coalesce(TRY(a % nullif(b, 0)), CASE WHEN b = -1 AND a IS NOT NULL THEN b - b END)",
    "sign": "(a) AS CASE WHEN isnan(CAST(a AS DOUBLE)) THEN CAST(a AS DOUBLE) ELSE sign(a) END",
    "||": "(a, b) AS cql_text(a) || cql_text(b)",
    "current_timezone": None,
    "now": "() AS CAST(now() AS TIMESTAMP)",
    "today": "() AS CAST(CAST(now() AS TIMESTAMP) AS DATE)",
}  # fmt: skip
"""DuckDB's own; a macro where the values would differ otherwise."""

FAILING = frozenset({"+", "-", "*", "abs", "trunc"})
"""Of NATIVE, what may fail on a row: it is NULL then."""

TYPED: dict[str, str] = {
    "round": (
        "(a DOUBLE) AS cql_round_double(a, 0), (a BIGINT) AS a, (a INTEGER) AS a, (a DOUBLE, n) AS"
        " cql_round_double(a, n), (a BIGINT, n) AS cql_round_bigint(a, n), (a INTEGER, n) AS cql_round_int(a, n),"
        " (a DECIMAL(38, 10)) AS error('{round}'), (a DECIMAL(38, 10), n) AS error('{round}')"
    ),
    "ceil": "(a BIGINT) AS a, (a INTEGER) AS a, (a) AS ceil(a)",
    "floor": "(a BIGINT) AS a, (a INTEGER) AS a, (a) AS floor(a)",
}
OF_DOUBLE: dict[str, str] = {"round": "cql_round_double", "ceil": "ceil", "floor": "floor"}
"""Of TYPED, the way for a DOUBLE."""
_ROUND = "ad hoc, `round` takes INT, BIGINT or DOUBLE; write round(CAST(… AS DOUBLE), n)"
_AVG = "ad hoc, `avg` takes numbers that are not DECIMAL; write avg(CAST(… AS DOUBLE))"

MACROS = (
    "cql_text(x) AS CASE typeof(x) WHEN 'DOUBLE' THEN cql_cast_text_double(TRY_CAST(x AS DOUBLE))"
    " WHEN 'TIMESTAMP' THEN cql_cast_text_timestamp(TRY_CAST(x AS TIMESTAMP))"
    " WHEN 'DATE' THEN cql_cast_text_date(TRY_CAST(x AS DATE)) WHEN 'BLOB' THEN cql_decode_1(TRY_CAST(x AS BLOB))"
    " WHEN 'INTERVAL' THEN error('ad hoc, an INTERVAL has no text; write epoch(…), its seconds')"
    " ELSE CAST(x AS VARCHAR) END",
    # The first argument is only looked at for its type; the others are the aggregates over it.
    "cql_sum(x DOUBLE, s, l, c) AS cql_sum_list(l), (x INTEGER, s, l, c) AS TRY_CAST(s AS BIGINT), (x BIGINT, s, l, c)"
    " AS TRY_CAST(s AS BIGINT), (x HUGEINT, s, l, c) AS TRY_CAST(s AS BIGINT), (x DECIMAL(38, 10), s, l, c) AS s",
    "cql_avg(x DOUBLE, s, l, c) AS cql_avg_list(l), (x INTEGER, s, l, c) AS cql_ratio(CAST(s AS VARCHAR), c),"
    " (x BIGINT, s, l, c) AS cql_ratio(CAST(s AS VARCHAR), c),"
    " (x HUGEINT, s, l, c) AS cql_ratio(CAST(s AS VARCHAR), c),"
    f" (x DECIMAL(38, 10), s, l, c) AS error('{_AVG}')",
    *(f"cql_{name}{ways.replace('{round}', _ROUND)}" for name, ways in TYPED.items()),
    "cql_remainder_any(a, b) AS a % nullif(b, 0)",
)

LISTED: dict[str, str] = {
    "stddev": "stddev",
    "stddev_pop": "stddev_pop",
    "variance": "variance",
    "var_pop": "var_pop",
    "median": "median",
    "percentile": "percentile",
}
"""Aggregates that CQL's accumulators compute from the list of values."""

CHOSEN: dict[str, str] = {"sum": "cql_sum", "avg": "cql_avg"}
"""Aggregates whose way depends on the type."""

AGGREGATES: dict[str, str] = {
    "count": "count",
    "count_star": "count_star",
    "count_if": "count_if",
    "min": "min",
    "max": "max",
    "bool_and": "bool_and",
    "bool_or": "bool_or",
}
"""Aggregates of DuckDB with the same values."""

BEYOND = frozenset({
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value",
    "last_value", "nth_value", "string_agg", "arg_min", "arg_max", "any_value", "list_value", "struct_pack", "row",
    "grouping", "typeof", "unnest",
})  # fmt: skip
"""CQL has no function of these names with this meaning."""

AGGREGATES_BEYOND = frozenset({"string_agg", "arg_min", "arg_max", "any_value", "list", "grouping"})

TABLES = frozenset({"range", "generate_series", "unnest"})
"""Functions that give rows and reach nothing outside of the statement."""

_NO_ORDER = "rows have no order in an ad-hoc SELECT; write arg_min(x, ts) or arg_max(x, ts)"
_ROWS = "it gives rows: write FROM {}(…); a list of them could not be given up while it is made"
REFUSED: dict[str, str] = {
    "range": _ROWS.format("range"),
    "generate_series": _ROWS.format("generate_series"),
    "first": _NO_ORDER,
    "last": _NO_ORDER,
    "collect": "rows have no order in an ad-hoc SELECT; write string_agg(x, ',' ORDER BY ts)",
    "timestamp_seconds": "write timestamp_millis(n * 1000)",
    "date_add": "write t + by",
    "date_sub": "write t - by",
    "cardinality": "ad hoc, arrays are only read as a whole",
    "element_at": "ad hoc, arrays are only read as a whole",
    "array_contains": "ad hoc, arrays are only read as a whole",
    "list_contains": "ad hoc, arrays are only read as a whole",
    "array_join": "ad hoc, arrays are only read as a whole",
    "//": "write CAST(trunc(a / b) AS BIGINT)",
    "^": "write power(a, b)",
    "**": "write power(a, b)",
}
"""Names of CQL, or of DuckDB's operators, and what to write instead."""

CANONICAL: dict[str, str] = {
    **{alias: f.name for f in (*SCALARS.values(), *CQL_AGGREGATES.values()) for alias in f.aliases},
    "mod": "%",
    "concat": "||",
    "nvl": "ifnull",
    "iff": "if",
    "date_part": "extract",
    "countif": "count_if",
    "any_value": "any_value",
    "max_by": "arg_max",
    "min_by": "arg_min",
    "~~": "like",
    "~~*": "ilike",
    "like_escape": "like",
    "ilike_escape": "ilike",
    "list": "collect",
    "position": "strpos",  # DuckDB's parser has exchanged the arguments of POSITION(search IN text)
    "locate": "position",
    "current_timestamp": "now",
    "get_current_timestamp": "now",
    "current_date": "today",
}
"""Other names, and the name in these tables."""

NEGATED: dict[str, str] = {
    "!~~": "like",
    "!~~*": "ilike",
    "not_like_escape": "like",
    "not_ilike_escape": "ilike",
}
"""What DuckDB calls NOT LIKE and its kin."""

DUCK_TYPES: dict[Kind, str] = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT: "INTEGER",
    Kind.BIGINT: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "VARCHAR",
    Kind.BINARY: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}

TYPE_NAMES: dict[str, DataType] = {
    **dict.fromkeys(("boolean", "bool"), BOOLEAN),
    **dict.fromkeys(("integer", "int", "int4", "signed"), INT),
    **dict.fromkeys(("bigint", "int8", "long"), BIGINT),
    **dict.fromkeys(("double", "float8", "double precision"), DOUBLE),
    **dict.fromkeys(("varchar", "text", "string", "char", "bpchar"), STRING),
    **dict.fromkeys(("blob", "binary", "bytea", "varbinary"), BINARY),
    "date": DATE,
    **dict.fromkeys(("timestamp", "datetime", "timestamp without time zone"), TIMESTAMP),
}
"""What a type is called in a CAST; DECIMAL(p, s) too."""


def duck_type(dtype: DataType) -> str:
    """DuckDB's name of a type."""
    if dtype.kind is Kind.DECIMAL:
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    return DUCK_TYPES[dtype.kind]


def call(name: str, signature: Signature, zone: str, unit: str | None = None) -> tuple[Compute, DataType]:
    """CQL's function over Arrow columns of these types, by clocks of the zone."""
    args: list[Expr] = [Column(i, t) for i, t in enumerate(signature)]
    if unit is not None:
        args.insert(0, Literal(unit, STRING))
    return compute(functions.resolve(name, args, zone), GUARDS.get(name))


def cast(source: DataType, target: DataType, zone: str) -> tuple[Compute, DataType]:
    """CQL's CAST over an Arrow column."""
    return compute(Cast(Column(0, source), target, zone=zone))


def compute(expr: Expr, guard: Callable[[Sequence[pa.Array]], None] | None = None) -> tuple[Compute, DataType]:
    """A function of Arrow columns that has the values of the expression; where it fails, NULL."""
    compiled = compile_expr(expr, {})
    wanted = [e.type.arrow for e in _columns(expr)]

    def run(*columns: pa.ChunkedArray) -> pa.Array:
        arrays = [_one(c, t) for c, t in zip(columns, wanted, strict=True)]
        if guard is not None:
            guard(arrays)
        return compiled(arrays, len(arrays[0]), Context())

    return _ARITIES[len(wanted)](run), expr.type


# DuckDB counts the parameters of a Python function.
_ARITIES: dict[int, Callable[[Compute], Compute]] = {
    1: lambda run: lambda a: run(a),
    2: lambda run: lambda a, b: run(a, b),
    3: lambda run: lambda a, b, c: run(a, b, c),
    6: lambda run: lambda a, b, c, d, e, f: run(a, b, c, d, e, f),
}


def _columns(expr: Expr) -> list[Column]:
    found = {e.index: e for e in walk(expr) if isinstance(e, Column)}
    return [found[i] for i in sorted(found)]


def _one(column: pa.ChunkedArray | pa.Array, wanted: pa.DataType) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return array if array.type == wanted else array.cast(wanted)


def of_list(name: str) -> Compute:
    """CQL's aggregate of a list of DOUBLE, which DuckDB has gathered; a second column is its fraction."""

    def run(lists: pa.ChunkedArray, *fractions: pa.ChunkedArray) -> pa.Array:
        given = fractions[0].to_pylist() if fractions else None
        found: list[object] = []
        for i, values in enumerate(lists):
            args: list[Expr] = [Column(0, DOUBLE)]
            if given is not None:
                args.append(Literal(given[i], DOUBLE))
            aggregate = functions.resolve_aggregate(name, args)
            group = accumulator(aggregate)
            rest = tuple(a.value for a in aggregate.args[1:] if isinstance(a, Literal))
            kept = values.values.drop_null().to_numpy() if values.is_valid else ()
            if name in CHOSEN and len(kept) and np.isfinite(kept).all():
                try:
                    total = math.fsum(kept)
                    found.append(total / len(kept) if name == "avg" else total)
                    continue
                except OverflowError:  # of an intermediate result
                    pass
            for value in kept:
                group.add((float(value), *rest), (0, 0))
            found.append(fit(group.value(), aggregate.type))
        return pa.array(found, pa.float64())

    return _ARITIES[2 if name == "percentile" else 1](run)


def ratio(sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """The quotient of a whole number, as a text, and a count, rounded once."""
    pairs = zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    return pa.array([None if s is None or not c else int(s) / c for s, c in pairs], pa.float64())
