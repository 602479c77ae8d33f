"""Every function that DuckDB has too is asked the same questions there.

``DIFFERENCES`` is the whole list of what is meant to differ, each with the reason, and each must still
occur: docs/reference/functions.md tells it to users.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from penstock import functions, scalar
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    REAL,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
)
from penstock.scalar.expr import Column, Expr, Literal

DAY = 86_400_000_000
NAN, INF = math.nan, math.inf
PRICE = decimal(9, 2)

VALUES: dict[DataType, list[object]] = {
    BOOLEAN: [None, True, False],
    INT: [None, 0, 1, -1, 7, -7, 12345, 2**31 - 1, -(2**31)],
    BIGINT: [None, 0, 1, -1, 3, -3, 10**9, 2**53 + 1, 2**63 - 1, -(2**63)],
    REAL: [None, 0.0, 0.5, -1.5, 16777216.0, NAN, INF],
    DOUBLE: [None, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 2.675, 1234.5678, 1e-300, 1e300, 0.1, NAN,
             INF, -INF],
    PRICE: [None, Decimal("0.00"), Decimal("1.25"), Decimal("-1.25"), Decimal("2.50"), Decimal("9999999.99"),
            Decimal("-0.01")],
    STRING: [None, "", " ", "a", "abc", "  padded  ", "Ünïcödé", "e\u0301te\u0301", "ß", "日本語", "a😀b", "a%b_c\\d",
             "a,b,,c", "tab\tline\nend", "ABCabc", "0x1F"],
    BINARY: [None, b"", b"abc", b"\x00\xff"],
    DATE: [None, 0, -1, 59, 11016, 19782, 19783, 18627, -25567, 2932896],
    TIMESTAMP: [None, 0, -1, 1, 1_709_164_800_000_000, 1_709_210_096_789_012, 1_703_980_799_999_999, -DAY * 25_567,
                1_582_934_400_000_000, 1_072_915_200_000_000],
    INTERVAL: [None, 0, 1, -1, 3_600_000_000, 90_061_000_001, -90_061_000_001],
}  # fmt: skip
SMALL: dict[DataType, list[object]] = {
    BIGINT: [None, -7, -2, -1, 0, 1, 2, 3, 5, 40],
    STRING: [None, "", "a", "b", "bc", ",", "%", "😀", "\u0301"],
}
DUCK_TYPES = {
    BOOLEAN: "BOOLEAN", INT: "INTEGER", BIGINT: "BIGINT", REAL: "FLOAT", DOUBLE: "DOUBLE", PRICE: "DECIMAL(9,2)",
    STRING: "VARCHAR", BINARY: "BLOB", DATE: "DATE", TIMESTAMP: "TIMESTAMP",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Our function on columns of these types, and DuckDB's words for it; a text is a constant argument."""

    function: str
    args: tuple[DataType | str | int, ...]
    sql: str
    small: bool = True

    @property
    def id(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"

    @property
    def types(self) -> list[DataType]:
        return [a for a in self.args if isinstance(a, DataType)]


def plain(names: str, *args: DataType) -> list[Case]:
    marks = ", ".join(f"{{{i}}}" for i in range(len(args)))
    return [Case(n, args, f"{n}({marks})") for n in names.split()]


def infix(names: str, *args: DataType) -> list[Case]:
    return [Case(n, args, f"{{0}} {n} {{1}}", small=False) for n in names.split()]


CASES = [
    *(c for t in (INT, BIGINT, DOUBLE, PRICE, REAL) for c in plain("abs", t)),
    *(c for t in (INT, DOUBLE, PRICE) for c in plain("ceil floor trunc round", t)),
    Case("round", (DOUBLE, BIGINT), "round({0}, {1}::INT)"),
    *plain("sqrt cbrt exp ln log10 log2 sin cos tan asin acos atan degrees radians", DOUBLE),
    Case("power", (DOUBLE, DOUBLE), "power({0}, {1})"),
    Case("atan2", (DOUBLE, DOUBLE), "atan2({0}, {1})"),
    Case("log", (DOUBLE, DOUBLE), "log({0}, {1})"),
    Case("sign", (INT,), "sign({0})"),
    Case("is_nan", (DOUBLE,), "isnan({0})"),
    Case("is_inf", (DOUBLE,), "isinf({0})"),
    Case("is_finite", (DOUBLE,), "isfinite({0})"),
    *infix("+ - *", INT, INT),
    *infix("+ - *", BIGINT, BIGINT),
    *infix("+ - *", DOUBLE, DOUBLE),
    *infix("+ - *", REAL, REAL),
    *infix("+ - *", PRICE, PRICE),
    *infix("+ - *", INT, DOUBLE),
    *infix("/", DOUBLE, DOUBLE),
    *infix("/ %", BIGINT, BIGINT),
    *infix("%", DOUBLE, DOUBLE),
    *infix("%", PRICE, PRICE),
    Case("div", (BIGINT, BIGINT), "{0} // {1}", small=False),
    Case("neg", (INT,), "-{0}"),
    *(c for t in (BOOLEAN, INT, DOUBLE, REAL, PRICE, STRING, BINARY, DATE, TIMESTAMP)
      for c in infix("= <> < <= > >=", t, t)),
    *infix("= <", INT, DOUBLE),
    *infix("= <", INT, PRICE),
    *infix("= <", DATE, TIMESTAMP),
    *infix("and or", BOOLEAN, BOOLEAN),
    Case("not", (BOOLEAN,), "NOT {0}"),
    Case("is_null", (STRING,), "{0} IS NULL"),
    Case("is_not_distinct", (DOUBLE, DOUBLE), "{0} IS NOT DISTINCT FROM {1}", small=False),
    Case("in", (INT, INT, INT), "{0} IN ({1}, {2})", small=False),
    *plain("coalesce nullif greatest least", DOUBLE, DOUBLE),
    *plain("greatest least", STRING, STRING),
    *plain("lower upper length trim ltrim rtrim reverse ascii md5 sha256 hex", STRING),
    *plain("hex", BINARY),
    *plain("hex", BIGINT),
    *plain("unhex", STRING),
    Case("btrim", (STRING, STRING), "trim({0}, {1})"),
    Case("trim leading", (STRING, STRING), "ltrim({0}, {1})"),
    Case("trim trailing", (STRING, STRING), "rtrim({0}, {1})"),
    *(Case(f, (STRING,), f"{f}({{0}})") for f in ("unicode", "ord")),
    *plain("left right repeat", STRING, BIGINT),
    Case("substr", (STRING, BIGINT), "substring({0}, {1})"),
    Case("substr", (STRING, BIGINT, BIGINT), "substring({0}, {1}, {2})"),
    *(Case(f, (STRING, BIGINT, STRING), f"{f}({{0}}, {{1}}::INT, {{2}})") for f in ("lpad", "rpad")),
    *plain("replace", STRING, STRING, STRING),
    *plain("strpos starts_with ends_with contains", STRING, STRING),
    *plain("split_part", STRING, STRING, BIGINT),
    *plain("concat concat_ws", STRING, STRING, STRING),
    *infix("||", STRING, STRING),
    Case("like", (STRING, STRING), "{0} LIKE {1}"),
    *(Case(f, (STRING, p), f"{{0}} {f} '{p}'") for f in ("like", "ilike")
      for p in ("a%", "%b_c%", "A_", "ü%", "%", "_", "%\u0301%", "")),
    Case("like", (STRING, "%#%b#_%", "#"), "{0} LIKE '%#%b#_%' ESCAPE '#'"),
    Case("like", (STRING, "%b\\_c%"), "{0} LIKE '%b\\_c%'"),
    *(Case("regexp_like", (STRING, p), f"regexp_matches({{0}}, '{p}')") for p in ("^a", "b+", "[^,]", "(?i)ABC")),
    Case("regexp_replace", (STRING, "[a-c]+", "<$0>"), "regexp_replace({0}, '[a-c]+', '<\\0>', 'g')"),
    Case("regexp_extract", (STRING, "(a)(.)", 2), "regexp_extract({0}, '(a)(.)', 2)"),
    Case("regexp_extract", (STRING, "[a-z]+", 0), "regexp_extract({0}, '[a-z]+')"),
    Case("regexp_extract", (STRING, "([a-z]+) *"), "regexp_extract({0}, '([a-z]+) *')"),
    Case("chr", (BIGINT,), "chr({0}::INT)"),
    Case("date_part", ("second", TIMESTAMP), "date_part('second', {0})"),
    Case("log", (DOUBLE,), "log({0})"),
    *plain("year quarter month week day dayofyear hour minute second millisecond microsecond epoch isodow", TIMESTAMP),
    *plain("year month day week dayofyear last_day", DATE),
    Case("dayofweek", (TIMESTAMP,), "dayofweek({0})"),
    *(Case("date_trunc", (u, TIMESTAMP), f"date_trunc('{u}', {{0}})")
      for u in ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")),
    *(Case("date_diff", (u, TIMESTAMP, TIMESTAMP), f"date_diff('{u}', {{0}}, {{1}})", small=False)
      for u in ("second", "minute", "hour", "day", "month", "quarter", "year", "week")),
    Case("+ months", (TIMESTAMP, BIGINT), "{0} + to_months({1}::INT)"),
    Case("make_date", (BIGINT, BIGINT, BIGINT), "make_date({0}, {1}, {2})"),
    *(Case("strftime", (TIMESTAMP, f), f"strftime({{0}}, '{f}')")
      for f in ("%Y-%m-%d %H:%M:%S.%f", "%a %A %b %B %j %u %w %I %p %y %%", "%G-%V")),
    *infix("-", TIMESTAMP, TIMESTAMP),
    *infix("-", DATE, DATE),
    *infix("+ -", DATE, INT),
]  # fmt: skip
CASTS = [(STRING, BOOLEAN), (STRING, INT), (STRING, DOUBLE), (BOOLEAN, STRING), (INT, STRING), (BIGINT, STRING),
         (PRICE, STRING), (DATE, STRING), (TIMESTAMP, STRING), (INT, DOUBLE), (BIGINT, INT), (BIGINT, DOUBLE),
         (INT, BOOLEAN), (BOOLEAN, INT), (DOUBLE, STRING), (DOUBLE, INT), (PRICE, INT), (PRICE, DOUBLE),
         (DOUBLE, PRICE),
         (DOUBLE, REAL), (DATE, TIMESTAMP), (TIMESTAMP, DATE), (STRING, DATE), (STRING, TIMESTAMP),
         (STRING, PRICE)]  # fmt: skip
TEXTS: list[object] = [None, "", " 1 ", "1.5", "-2.5", "1e3", ".5", "5.", "abc", "true", "NO", "t", "0", "nan", "-inf",
         "Infinity",
         "2147483648", "1_000", "2024-02-29", "2023-02-29", "1969-12-31", "2024-02-29 12:34:56.789", "2024-02-29T12:34",
         "2024-02-29 12:34:56+02:00", "2024-02-29T12:34:56Z", "2024-2-9", "24:00", "99999999.99", "1.005",
         "-1.005"]  # fmt: skip


Row = tuple[object, ...]
When = Callable[[Row, object, object], bool]


def _no_value(row: Row, ours: object, theirs: object) -> bool:
    return ours is None and isinstance(theirs, float) and not math.isfinite(theirs)


def _by_zero(row: Row, ours: object, theirs: object) -> bool:
    return row[1] == 0 and ours is None


_TO_DATES = ("+", "-", "make_date")
# Function, reason, and the rows on which the answers differ.
DIFFERENCES: list[tuple[str, str, When]] = [
    *((f, "no value is NULL, not NaN or an infinity", _no_value)
      for f in ("sqrt", "ln", "log10", "log2", "sin", "cos", "tan", "asin", "acos", "power")),
    ("log", "no value is NULL, not NaN or an infinity; a base of 0 has none",
     lambda row, ours, theirs: ours is None),
    ("/", "division by zero is NULL", _by_zero),
    ("%", "division by zero is NULL", _by_zero),
    ("%", "the remainder of the least BIGINT by -1 is 0",
     lambda row, ours, theirs: row == (-(2**63), -1) and ours == 0),
    ("like", "a backslash escapes, without ESCAPE too",
     lambda row, ours, theirs: ours is True and "b_c" in str(row[0])),
    ("upper", "Unicode's full mapping, which may lengthen", lambda row, ours, theirs: row == ("ß",)),
    ("reverse", "code points are reversed, not graphemes", lambda row, ours, theirs: "\u0301" in str(row[0])),
    ("power", "1 to an infinite power is NaN", lambda row, ours, theirs: row[0] in (1.0, -1.0) and ours != ours),
    ("atan2", "-0.0 counts as 0.0", lambda row, ours, theirs: 0.0 in row),
    ("is_nan", "NULL is not NaN", lambda row, ours, theirs: row == (None,) and ours is False),
    *((f, "for a negative number", lambda row, ours, theirs: row[1] < 0 and ours == "") for f in ("left", "right")),
    ("substr", "a start of 0 is the first character", lambda row, ours, theirs: row[1] == 0),
    ("chr", "of 256 characters, the one of the last byte",
     lambda row, ours, theirs: isinstance(row[0], int) and not 0 <= row[0] < 256),
    ("regexp_extract", "group 1 of the first match", lambda row, ours, theirs: str(theirs).rstrip() == ours),
    ("date_part", "a second has its fraction",
     lambda row, ours, theirs: isinstance(ours, Decimal) and int(ours) == theirs),
    ("log", "the natural logarithm", lambda row, ours, theirs: len(row) == 1),
    ("substr", "a negative length gives nothing",
     lambda row, ours, theirs: ours == "" and isinstance(row[2], int) and row[2] < 0),
    ("lpad", "nothing to fill with leaves the text as it is", lambda row, ours, theirs: row[2] == ""),
    ("rpad", "nothing to fill with leaves the text as it is", lambda row, ours, theirs: row[2] == ""),
    ("split_part", "there is no part 0", lambda row, ours, theirs: row[2] == 0 and ours is None),
    ("split_part", "an empty separator separates nothing", lambda row, ours, theirs: row[1] == ""),
    ("concat", "NULL when an argument is NULL, as ||", lambda row, ours, theirs: None in row and ours is None),
    ("dayofweek", "1 is Sunday, not 0",
     lambda row, ours, theirs: isinstance(theirs, int) and ours == theirs + 1),
    ("date_diff", "whole units that lie between",
     lambda row, ours, theirs: isinstance(ours, int) and isinstance(theirs, int) and abs(ours - theirs) == 1),
    *((name, "a DATE is of the years 1 to 9999", lambda row, ours, theirs: ours is None) for name in _TO_DATES),
    ("STRING to BOOLEAN", "blanks around the text are ignored", lambda row, ours, theirs: row == (" 1 ",)),
    ("STRING to INT", "only integers are read, nothing is rounded", lambda row, ours, theirs: ours is None),
    ("STRING to DOUBLE", "digits have no separators", lambda row, ours, theirs: row == ("1_000",)),
    ("STRING to DECIMAL(9, 2)", "digits have no separators", lambda row, ours, theirs: row == ("1_000",)),
    ("DOUBLE to INT", "the fraction is cut off", lambda row, ours, theirs: int(str(theirs)) - int(str(ours)) == 1),
    ("DECIMAL(9, 2) to INT", "the fraction is cut off",
     lambda row, ours, theirs: int(str(theirs)) - int(str(ours)) == 1),
    ("DOUBLE to REAL", "beyond REAL is infinity", lambda row, ours, theirs: row == (1e300,) and ours == INF),
    ("STRING to DATE", "only YYYY-MM-DD is read, and no infinity", lambda row, ours, theirs: ours is None),
    ("STRING to TIMESTAMP", "months and days have two digits; there is no infinity",
     lambda row, ours, theirs: ours is None),
    ("STRING to TIMESTAMP", "the instant that is meant", lambda row, ours, theirs: "+02:00" in str(row[0])),
]  # fmt: skip


def expression(case: Case) -> Expr:
    places = itertools.count()
    args: list[Expr] = []
    for arg in case.args:
        match arg:
            case DataType():
                args.append(Column(next(places), arg))
            case str():
                args.append(Literal(arg, STRING))
            case int():
                args.append(Literal(arg, BIGINT))
    return functions.resolve(case.function, args)


def rows_of(case: Case) -> list[tuple[object, ...]]:
    types = case.types
    lists = [VALUES[t] if i == 0 or not case.small else SMALL.get(t, VALUES[t]) for i, t in enumerate(types)]
    return list(itertools.product(*lists))


DUCKDB = duckdb.connect()


def ask_duckdb(sql: str, types: list[DataType], rows: list[tuple[object, ...]], result: DataType) -> list[object]:
    columns = [scalar.to_arrow([r[i] for r in rows], t) for i, t in enumerate(types)]
    table = pa.table([pa.array(range(len(rows))), *columns], names=["i", *(f"c{i}" for i in range(len(types)))])
    text = sql.format(*(f"c{i}" for i in range(len(types))))
    with DUCKDB.cursor() as con:
        con.register("t", table)
        found = con.sql(f"SELECT TRY({text}) AS r FROM t ORDER BY i").to_arrow_table().column("r")
    if pa.types.is_interval(found.type):
        return [
            None if v is None else (v.months * 30 + v.days) * DAY + v.nanoseconds // 1000 for v in found.to_pylist()
        ]
    if result in (INT, BIGINT):
        found = found.cast(pa.int64())
        return list(found.to_pylist())
    if pa.types.is_decimal(found.type) or pa.types.is_integer(found.type):
        return list(found.to_pylist())
    return scalar.to_python(found, result)


def same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isfinite(a) and math.isfinite(b):
        return math.isclose(a, b, rel_tol=1e-14, abs_tol=1e-300)
    return scalar.hashable(a) == scalar.hashable(b)


SEEN: set[int] = set()


def check(name: str, expr: Expr, rows: list[Row], theirs: list[object]) -> None:
    for row, their in zip(rows, theirs, strict=True):
        ours = scalar.evaluate(expr, row, scalar.Context())
        if same(ours, their):
            continue
        known = [i for i, (f, _, when) in enumerate(DIFFERENCES) if f == name and when(row, ours, their)]
        assert known, f"{name} on {row}: {ours!r}, but DuckDB says {their!r}"
        SEEN.update(known)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_function_agrees_with_duckdb(case: Case) -> None:
    expr = expression(case)
    rows = rows_of(case)
    check(case.function, expr, rows, ask_duckdb(case.sql, case.types, rows, expr.type))


@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
def test_cast_agrees_with_duckdb(source: DataType, target: DataType) -> None:
    rows: list[Row] = [(v,) for v in (TEXTS if source == STRING else VALUES[source])]
    theirs = ask_duckdb(f"CAST({{0}} AS {DUCK_TYPES[target]})", [source], rows, target)
    check(f"{source} to {target}", functions.cast(Column(0, source), target), rows, theirs)


def test_every_difference_is_real_and_documented() -> None:
    differing = {name for name, _, _ in DIFFERENCES}
    for case in CASES:
        if case.function in differing:
            test_function_agrees_with_duckdb(case)
    for source, target in CASTS:
        if f"{source} to {target}" in differing:
            test_cast_agrees_with_duckdb(source, target)
    unseen = [DIFFERENCES[i][:2] for i in range(len(DIFFERENCES)) if i not in SEEN]
    assert not unseen
    text = (Path(__file__).parents[2] / "docs" / "reference" / "functions.md").read_text().replace("\\|", "|")
    assert not [reason for _, reason, _ in DIFFERENCES if reason not in text]
