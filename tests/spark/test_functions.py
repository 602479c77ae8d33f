"""Every function that Spark has too is asked the same questions there.

``DIFFERENCES`` is the whole list of what is meant to differ, each with the reason, and each must still occur:
docs/reference/functions.md has the same table. Spark runs with ANSI mode off, which gives NULL where ANSI mode raises.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import functions, scalar
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    REAL,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    array,
)
from penstock.rows.times import FIRST, LAST
from penstock.scalar.expr import Column, Expr
from penstock.scalar.patterns import LETTERS
from tests.scalar.test_aggregates import aggregate
from tests.scalar.test_second_opinion import (
    CASES,
    CASTS,
    DAY,
    PRICE,
    TEXTS,
    VALUES,
    Case,
    Row,
    expression,
    rows_of,
    same,
)

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "functions.md"
LEAP = 1_709_210_096_789_012

INTS = array(INT)
ARRAYS: list[object] = [None, (), (1,), (1, 2, 3), (1, None, 3), (None,)]
MORE: dict[DataType, list[object]] = {
    **VALUES,
    STRING: [*VALUES[STRING], "ΣΑΣ", "İ", "ǆ", "ŉ", "a\r\nb\rc\u2028d", "x1y22", "(a)", "$1", "\\"],
    DATE: [*VALUES[DATE], 18320, 18321, 18321 + 1461, 19753, 19782 - 29, -719162, 2932895],
    TIMESTAMP: [*VALUES[TIMESTAMP], LEAP - 29 * DAY, LEAP - 30 * DAY + 1, LEAP + 366 * DAY, -62_135_596_800_000_000,
                253_402_300_799_999_999],
    BINARY: VALUES[BINARY],
    INTS: ARRAYS,
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One of our functions, bound, and Spark's words for it."""

    name: str
    expr: Expr
    sql: str
    types: tuple[DataType, ...]
    rows: tuple[Row, ...]


def constant(value: object) -> str:
    """In Spark's words; braces are doubled, because columns are put in by ``format``."""
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")
        return f"'{text}'"
    return str(value)


def question(name: str, args: Sequence[DataType | str | int], sql: str = "", rows: Sequence[Row] = ()) -> Question:
    """``sql`` without words: a call of that name."""
    case = Case(name, tuple(args), "")
    places = itertools.count()
    words = ", ".join(f"{{{next(places)}}}" if isinstance(a, DataType) else constant(a) for a in args)
    asked = tuple(rows) or tuple(itertools.product(*(MORE[t] if len(case.types) < 2 else VALUES.get(t, MORE[t])
                                                      for t in case.types)))  # fmt: skip
    return Question(name, expression(case), sql or f"{name}({words})", tuple(case.types), asked)


# What is asked in other words than in test_second_opinion, or not of Spark.
_OWN = {"round", "trunc", "log", "trim", "split_part", "regexp_replace", "regexp_extract", "make_date", "date_diff",
        "strftime", "div", "in", "neg", "like", "ilike", "is_not_distinct"}  # fmt: skip
_INFIX = {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "and", "or", "||"}

READ = {
    "yyyy-MM-dd": ("2024-02-29", "2023-02-29", "2024-2-9", " 2024-02-29", "10000-01-01", "0000-01-01", "+12024-01-01"),
    "yyyy-MM-dd HH:mm": ("2024-02-29 12:34", "2024-02-29 24:00", "2024-02-29 12:60", "2024-02-29"),
    "dd/MM/yyyy": ("29/02/2024", "1/2/2024", "31/04/2024"),
    "d/M/yy": ("1/2/24", "29/2/24", "29/2/23", "1/13/24", "-1/2/24"),
    "yyyyMMdd": ("20240229", "202402", "120240229"),
    "yyyyMMddHHmmssSSS": ("20240229123456789",),
    "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]": (
        "2024-02-29T12:34:56", "2024-02-29T12:34:56.7", "2024-02-29T12:34:56.789012Z", "2024-02-29T12:34:56+02:00",
        "2024-02-29t12:34:56-05:30"),
    "d MMM yyyy h:mm a": ("29 Feb 2024 1:05 pm", "29 FEB 2024 12:00 AM", "1 May 2024 13:00 PM", "1 Foo 2024 1:00 AM"),
    "d MMMM y G": ("1 May 44 BC", "1 january 2024 AD"),
    "yyyy-DDD": ("2024-060", "2023-366"),
    "k:m:s.SSS": ("24:0:1.5", "0:0:0.0", "1:2:3.1234"),
    "K a": ("0 PM", "12 PM"),
    "HH:mm:ssx": ("12:34:56+02", "12:34:56+0230", "12:34:56Z"),
    "HH:mm:ssZ": ("12:34:56+0200", "12:34:56-0000"),
    "HH:mm:ssXXXXX": ("12:34:56+02:00:30", "12:34:56Z"),
    "HH:mm:ssZZZZ": ("12:34:56GMT+02:00", "12:34:56GMT"),
}  # fmt: skip
TIMES = (
    "2024-02-29", "2024-02-29 12:34:56", "2024-2-9", "2024-02", "2024-2", "2024", "2024-02-29T12:34:56Z",
    "2024-02-29 12:34", "2024-02-29 12", "2024-2-9 1:2:3", "2024-02-29T12:34:56.7", "2024-02-29 12:34:56.789012345",
    "2024-02-29 12:34:56.", "2024-02-29 12:34:56+02:00", "2024-02-29 12:34:56 Europe/Vienna",
    "2024-02-29 12:34:56+2:5", "2024-02-29 12:34:56.5-05:30", "2024-02-29 12:34:56 UTC", "2024-02-29 12:34:56GMT+1",
    "2024-02-29 12:34:56+0230", "2024-02-29 12:34Z", "2024-02-29Z", "2024-02-29 abc", "2024-02-29Tabc", "2024-02-29 ",
    " \t2024-02-29\n", "2024-02-29T", "2024-02-30", "2023-02-29", "2024-13", "2024-00-10", "2024-", "2024-02-",
    "2024-02-29-", "2024-002-29", "2024-02-029", "202", "02024-02-29", "+2024-02-29", "-2024-02-29", "12024-01-01",
    "1234567-01-01", "20240229", "2024/02/29", "2024-02-29 24:00:00", "2024-02-29 12:60:00", "2024-02-29 12:34:60",
    "2024-02-29 12:34:056", "2024-02-29 12:34:56 Foo", "2024-02-29 12:34:56,5", "2024-02-29 12:34:56.5.5",
    "2024-02-29  12:34:56", "12:34:56", "T12:34", "9:5", "", " ", "abc", "٢٠٢٤-02-29", "2024-02-29\u00a0",
    "2024-02-29 12:34:56+25:00", "2024-02-29 12:34:56Z\x7f", "2024-02-29t12:34:56", "2024-02-29 12:34:56 PST",
    "0001-01-01", "9999-12-31 23:59:59.999999", "0000-01-01", "10000-01-01", "2024-02-29 12:34:56 z", "1-1-1",
)  # fmt: skip
"""Texts without a pattern."""
REGEXPS = ("^a", "b+", "[^,]", "(?i)ABC", r"\d+", r"\w+", "(?s).+", "^.*$", "a.c", "b$", r"\p{Alpha}\s*",
           r"(?<n>a)\k<n>?", r"\Qa%\E", r"[\]\-a]", "(a|b)*+", "(?m)^b", r"c\Z", r"e\z", r"\x61", r"\bline\b", r"\R",
           "(?i:B)", r"\P{Punct}$", r"\h|\v", "a{1,2}", r"(a)\1?", r"[^\p{Digit}x]+")  # fmt: skip


def questions(known: set[str]) -> Iterator[Question]:
    for case in CASES:
        f = functions.SCALARS.get(case.function)
        if case.function in _INFIX:
            yield Question(case.function, expression(case), case.sql, tuple(case.types), tuple(rows_of(case)))
        elif f is not None and f.name not in _OWN:
            for name in {f.name, *f.aliases} & known:
                yield question(name, case.args, rows=rows_of(case) if len(case.types) > 1 else ())
    yield from _numbers()
    yield from _texts()
    yield from _times()
    yield from _arrays()


def _numbers() -> Iterator[Question]:
    for digits in (-2, -1, 0, 1, 2, 5):
        for dtype in (INT, BIGINT, DOUBLE, REAL, PRICE):
            yield question("round", (dtype, digits))
    yield question("div", (BIGINT, BIGINT), "{0} div {1}")
    yield question("in", (INT, INT, INT), "{0} IN ({1}, {2})")
    yield question("neg", (INT,), "-{0}")
    yield question("is_not_distinct", (DOUBLE, DOUBLE), "{0} <=> {1}")
    yield question("log", (DOUBLE,))
    yield question("log", (DOUBLE, DOUBLE))
    for name in ("mod",):
        for dtype in (INT, DOUBLE, PRICE):
            yield question(name, (dtype, dtype))
    yield question("pi", (), rows=[()])
    for name in ("sign", "signum"):
        for dtype in (DOUBLE, PRICE):
            yield question(name, (dtype,))
    for name in ("ifnull", "nvl"):
        yield question(name, (STRING, STRING))
    yield question("if", (BOOLEAN, INT, INT))


def _texts() -> Iterator[Question]:
    for name in ("char_length", "character_length", "octet_length", "ascii", "md5", "hex"):
        yield question(name, (STRING,))
    yield question("btrim", (STRING, STRING))
    for side, name in (("both", "trim"), ("leading", "ltrim"), ("trailing", "rtrim")):
        yield question(f"trim {side}", (STRING, STRING), f"trim({side} {{1}} FROM {{0}})")
        yield question(name, (STRING,))
    for name in ("position", "locate"):
        yield question(name, (STRING, STRING))
    yield question("split_part", (STRING, STRING, BIGINT), "CASE WHEN {2} <> 0 THEN split_part({0}, {1}, int({2})) END",
                   rows_of(Case("split_part", (STRING, STRING, BIGINT), "")))  # fmt: skip
    for name in ("regexp_like", "regexp", "rlike"):
        for pattern in REGEXPS:
            yield question(name, (STRING, pattern))
    for pattern, new in (("[a-c]+", "<$0>"), ("(a)(.)", "$2$1"), ("(?<n>.)b", r"${n}\$\\"), ("x*", "-"),
                         ("(a)|b", "[$1]"), (r"(\d)", "$11")):  # fmt: skip
        yield question("regexp_replace", (STRING, pattern, new))
    for pattern, group in (("(a)(.)", 2), ("(a)(.)", 0), ("(a)|b", 1)):
        yield question("regexp_extract", (STRING, pattern, group))
    yield question("regexp_extract", (STRING, "([a-z]+)"))
    letters = [("ς", "Σ"), ("ſ", "S"), ("İ", "i\u0307"), ("Σ", "σ"), ("Ä", "ä"), ("ß", "SS"), ("K", "k")]
    yield replace(question("ilike", (STRING, STRING), "{0} ILIKE {1}", rows=letters), name="ilike of letters")
    yield question("chr", (INT,))
    yield question("char", (INT,))
    yield question("encode", (STRING,), "encode({0}, 'UTF-8')")
    yield question("decode", (BINARY,), "decode({0}, 'UTF-8')", [(None,), (b"",), (b"abc",), ("ä😀".encode(),)])


def _times() -> Iterator[Question]:
    for letter, (counts, _) in LETTERS.items():
        for count in counts:
            yield question("date_format", (TIMESTAMP, letter * count))
    for pattern in ("yyyy-MM-dd HH:mm:ss.SSSSSS", "EEE, d MMM yyyy hh:mm a", "'it''s' yyyy G", "[yyyy][-MM]", "''''"):
        yield question("date_format", (TIMESTAMP, pattern))
        yield question("date_format", (DATE, pattern))
    texts = [(t,) for t in (*itertools.chain(*READ.values()), "", "abc", None)]
    for pattern in READ:
        yield question("to_timestamp", (STRING, pattern), rows=texts)
        yield question("to_date", (STRING, pattern), rows=texts)
    for unit in ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"):
        for name in ("date_diff", "datediff", "timestampdiff"):
            yield question(name, (unit, TIMESTAMP, TIMESTAMP), f"{name}({unit}, {{0}}, {{1}})")
    plural = question("date_trunc", ("milliseconds", TIMESTAMP))
    yield replace(plural, name="date_trunc of milliseconds")
    for unit in ("yyyy", "yy", "mm", "mon", "dd"):
        yield question("date_trunc", (unit, TIMESTAMP))
    for name in ("from_utc_timestamp", "to_utc_timestamp"):
        for zone in ("UTC", "+02:00", "Europe/Vienna", "Asia/Kolkata", "America/Sao_Paulo"):
            yield question(name, (TIMESTAMP, zone))
    for name in ("date_diff", "datediff"):
        for dtype in (DATE, TIMESTAMP):
            yield question(name, (dtype, dtype))
    for name in ("date_add", "date_sub"):
        for dtype in (DATE, TIMESTAMP):
            days = [(d, n) for d in MORE[dtype] for n in (None, 0, 1, -1, 366, -40_000)]
            yield question(name, (dtype, INT), rows=days)
    for dtype in (DATE, TIMESTAMP):
        months = [(d, n) for d in MORE[dtype] for n in (None, 0, 1, -1, 12, -12, 13, 600)]
        yield question("add_months", (dtype, INT), rows=months)
        for unit in ("week", "MM", "quarter", "year", "YYYY"):
            yield question("trunc", (dtype, unit))
        for name in ("last_day", "quarter", "dayofweek", "weekofyear"):
            yield question(name, (dtype,))
    for part in ("year", "quarter", "month", "week", "day", "dayofweek", "dow", "dow_iso", "doy", "hour", "minute",
                 "second"):  # fmt: skip
        yield question("extract", (part, TIMESTAMP), f"extract({part} FROM {{0}})")
        yield question("date_part", (part, TIMESTAMP))
    small = (None, 0, 1, 2, 12, 13, 29, 30, 31, -1)
    dates = list(itertools.product((None, 2023, 2024, 1900, 0, -4), small, small))
    yield question("make_date", (INT, INT, INT), rows=dates)
    clocks = itertools.product((None, 0, 23, 24), (0, 59, 60), (0.0, 1.5, 59.999999, 60.0, 60.5, -1.0))
    yield question("make_timestamp", (INT, INT, INT, INT, INT, DOUBLE), rows=[(2024, 2, 29, *c) for c in clocks])
    for text in TIMES:
        yield question("to_timestamp", (text,), rows=[()])
        yield question("to_date", (text,), rows=[()])
    yield question("to_timestamp", (STRING,), rows=[(t,) for t in (*TIMES, None)])
    yield question("to_date", (STRING,), rows=[(t,) for t in (*TIMES, None)])
    yield question("to_timestamp", (DATE,))
    yield question("to_date", (TIMESTAMP,))
    for name in ("timestamp_seconds", "timestamp_millis", "timestamp_micros"):
        yield question(name, (INT,))
    yield question("timestamp_seconds", (DOUBLE,), rows=[(v,) for v in (None, 0.0, 1.5, -1.5, 1e9, 0.1)])
    for name in ("unix_seconds", "unix_millis", "unix_micros"):
        yield question(name, (TIMESTAMP,))


def _arrays() -> Iterator[Question]:
    for name in ("cardinality", "size", "array_size"):
        yield question(name, (INTS,))
    rows = list(itertools.product(ARRAYS, (None, -3, -1, 1, 2, 3)))
    yield question("element_at", (INTS, INT), rows=rows)
    yield question("array_contains", (INTS, INT), rows=rows)
    yield question("array_join", (INTS, STRING), rows=list(itertools.product(ARRAYS, (None, "", ", "))))


def _casts() -> Iterator[Question]:
    for source, target in CASTS:
        rows: list[Row] = [(v,) for v in (TEXTS if source == STRING else VALUES[source])]
        to = {STRING: "STRING", REAL: "FLOAT"}.get(target, str(target))
        expr = functions.cast(Column(0, source), target)
        yield Question(f"{source} to {target}", expr, f"CAST({{0}} AS {to})", (source,), tuple(rows))


# -- what is meant to differ ------------------------------------------------------------------------------

When = Callable[[Row, object, object], bool]


@dataclass(frozen=True)
class Difference:
    """A row of the table in the documentation, and the answers that it is about."""

    what: str
    here: str
    spark: str
    why: str
    names: tuple[str, ...]
    when: When


def _no_number(row: Row, ours: object, theirs: object) -> bool:
    return ours is None and isinstance(theirs, int) and not isinstance(theirs, bool)


def _no_value(row: Row, ours: object, theirs: object) -> bool:
    return ours is None and isinstance(theirs, float) and not math.isfinite(theirs)


def _beyond(row: Sequence[object], ours: object, theirs: object) -> bool:
    """Whether Spark gives a DATE (in days) or TIMESTAMP (in ticks) outside the years 1 to 9999."""
    if ours is not None or not isinstance(theirs, int):
        return False
    is_day = abs(theirs) < 10**9
    first, last = (FIRST // DAY, LAST // DAY) if is_day else (FIRST, LAST)
    return not first <= theirs <= last


DIFFERENCES: list[Difference] = [
    Difference("a DATE or TIMESTAMP outside the years 1 to 9999", "NULL (counted)", "a value that few programs read",
               "Python, and what is written in Python, has no such dates",
               ("add_months", "date_add", "date_sub", "to_timestamp", "to_date", "last_day", "date_trunc", "trunc", "+",
                "-", "make_date", "make_timestamp", "timestamp_seconds", "timestamp_millis", "timestamp_micros",
                "from_utc_timestamp", "to_utc_timestamp", "STRING to DATE", "STRING to TIMESTAMP", "DATE to TIMESTAMP"),
               _beyond),
    Difference("overflow of integers, `abs(-2147483648)`", "NULL (counted)", "wraps around (ANSI mode: error)",
               "no number is better than a wrong one",
               ("+", "-", "*", "div", "neg", "abs", "round", "mod", "BIGINT to INT"), _no_number),
    Difference("CAST of 1e300 or NaN to INT", "NULL (counted)", "the nearest INT, 0 for NaN (ANSI mode: error)",
               "no number is better than a wrong one", ("DOUBLE to INT",), _no_number),
    Difference("`ceil(x)`, `floor(x)` of REAL and DOUBLE", "the same type: `3.0`",
               "BIGINT: `3`, and 9223372036854775807 for 1e300, 0 for NaN",
               "as in PostgreSQL and DuckDB; not every number has a BIGINT", ("ceil", "ceiling", "floor"),
               lambda row, ours, theirs: isinstance(row[0], float) and not abs(row[0]) < 2.0**63),
    Difference("`sqrt(-1)`, `asin(2)`, `sin` of infinity, `power(-8, 0.5)`", "NULL (counted)", "NaN",
               "NaN would go on into sums and keys unnoticed",
               ("sqrt", "sin", "cos", "tan", "asin", "acos", "power", "pow"), _no_value),
    Difference("`log(1, x)`", "NULL (counted)", "infinity or NaN", "it divides by zero, which is NULL", ("log",),
               _no_value),
    Difference("`DATE - DATE`", "INT, the days", "INTERVAL DAY", "as in PostgreSQL and DuckDB", ("-",),
               lambda row, ours, theirs: isinstance(theirs, timedelta) and theirs == timedelta(days=int(str(ours)))),
    Difference("CAST of DOUBLE to STRING", "`1e+300`, `nan`, `inf`", "`1.0E300`, `NaN`, `Infinity`",
               "as Python writes it", ("DOUBLE to STRING",),
               lambda row, ours, theirs: float(str(ours)) == float(str(theirs)) or row[0] != row[0]),
    Difference("CAST of `'1.5'` to INT", "NULL (counted)", "1 (ANSI mode: error)", "only integers are read",
               ("STRING to INT",), lambda row, ours, theirs: ours is None and "." in str(row[0])),
    Difference("CAST of `'2024-2-9'` to DATE or TIMESTAMP, of `'2024-02-29 12:00'` to DATE", "NULL (counted)",
               "2024-02-09; 2024-02-29", "a text has the form that its type is written in; `to_date` reads others",
               ("STRING to DATE", "STRING to TIMESTAMP"), lambda row, ours, theirs: ours is None),
    Difference("`to_timestamp('12:34')`", "NULL (counted)", "that time of the current day",
               "the answer does not depend on when it is computed", ("to_timestamp",),
               lambda row, ours, theirs: ours is None and isinstance(theirs, int) and theirs > 1_735_689_600_000_000),
    Difference("`to_timestamp('2024-02-29 12:34:56 PST')`, `JST`, …", "NULL (counted)", "some zone of these letters",
               "they mean several zones; write `America/Los_Angeles` or `-08:00`", ("to_timestamp",),
               lambda row, ours, theirs: ours is None and theirs == 1_709_238_896_000_000),
    Difference("`date_trunc('milliseconds', t)`, and other units in the plural or short", "a value", "NULL",
               "a unit has the same names everywhere", ("date_trunc of milliseconds",),
               lambda row, ours, theirs: theirs is None),
    Difference("`'ς' ILIKE 'Σ'`, `'ſ' ILIKE 'S'`, `'İ' ILIKE 'i̇'`", "TRUE; TRUE; FALSE", "FALSE; FALSE; TRUE",
               "simple case folding compares letter by letter, whatever stands around them", ("ilike of letters",),
               lambda row, ours, theirs: (ours, theirs) == (row[0] != "İ", row[0] == "İ")),
    Difference("`regexp_replace('😀', 'x*', '-')`", "`-😀-`: code points", "`-?-?-`: halves of UTF-16",
               "half a character is none", ("regexp_replace",), lambda row, ours, theirs: "😀" in str(row[0])),
    Difference("`sum` of BIGINT beyond its range", "NULL (counted)", "wraps around (ANSI mode: error)",
               "no number is better than a wrong one", ("sum",),
               lambda row, ours, theirs: ours is None and isinstance(theirs, int)),
    Difference("`sum`, `avg` of DOUBLE", "exactly rounded, whatever the order", "depends on the order",
               "the answer does not depend on how rows are divided", ("sum", "avg", "mean"),
               lambda row, ours, theirs: 1e16 in row),
]  # fmt: skip
# What cannot be asked in one query: what one side refuses, and types.
UNASKED = [
    ("`x / y` of DECIMAL", "DOUBLE", "DECIMAL", "as `/` of all other numbers; a quotient has no last digit"),
    ("`DATE + INTERVAL '1' DAY`", "TIMESTAMP", "DATE", "its type does not depend on how long the INTERVAL is"),
    ("`sign(x)` of an integer or DECIMAL", "INT: `-1`", "DOUBLE: `-1.0`", "a sign has no fraction"),
    ("`round(x, n)` of DECIMAL(p, s)", "DECIMAL(p + 1, s)", "DECIMAL(p - s + 1 + n, n)", "n need not be a constant"),
    ("`trim(a, b)`, `ltrim(a, b)`, `rtrim(a, b)`", "refused; `TRIM(LEADING b FROM a)`", "b without the characters of a",
     "PostgreSQL and DuckDB have the arguments the other way round"),
    ("CAST between numbers and TIMESTAMP or INTERVAL", "refused; `timestamp_seconds(n)`, `unix_millis(t)`", "seconds",
     "a number does not say its unit"),
    ("`values[1]`", "the first element", "the second element; `values[0]` is the first",
     "as in PostgreSQL, DuckDB and `element_at`"),
    ("`element_at(values, 0)`, `split_part(s, ',', 0)`", "NULL; NULL (counted)", "error", "a query goes on"),
    ("`element_at` beyond the end", "NULL", "NULL (ANSI mode: error)", "a query goes on"),
    ("`zzzz`, and reading `VV`, `z`, `O`", "refused when the query is bound", "names of time zones",
     "their names depend on the language of the machine"),
    ("Java's `\\p{L}`, `&&` in classes, `\\G`, `\\X`, `(?x)`, `(?u)`", "refused when the query is bound", "supported",
     "Python's `re` does not have them"),
    ("`collect_list`, `first`, `last`", "in the order of time", "in the order of processing",
     "the answer does not depend on how rows are divided"),
]  # fmt: skip


# -- asking -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(spark: SparkSession) -> SparkSession:
    """A session of its own on the same Java, with Spark's meaning and UTC, whatever other tests have set."""
    session = spark.newSession()
    for key, value in {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.sizeOfNull": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        # No `${…}` in texts, and no Java to compile for a few rows.
        "spark.sql.variable.substitute": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        session.conf.set(key, value)
    return session


def known_to(session: SparkSession) -> set[str]:
    return {row[0] for row in session.sql("SHOW FUNCTIONS").collect()}


def answers(session: SparkSession, group: Sequence[Question]) -> Iterator[list[object]]:
    """Spark's answers to questions about the same rows, in one query. Spark evaluates it where the rows are: no job."""
    types, rows = group[0].types, group[0].rows
    columns = [scalar.to_arrow([r[i] for r in rows], t) for i, t in enumerate(types)]
    # Spark reads a TIMESTAMP without a zone as one of another type.
    columns = [c.cast(pa.timestamp("us", "UTC")) if t == TIMESTAMP else c for c, t in zip(columns, types, strict=True)]
    names = [f"c{i}" for i in range(len(types))]
    frame = session.createDataFrame(pa.table([pa.array(range(len(rows))), *columns], names=["i", *names]))
    found = frame.selectExpr(*(f"{q.sql.format(*names)} AS r{i}" for i, q in enumerate(group))).toArrow()
    for q, column in zip(group, found.columns, strict=True):
        yield [_as_ours(v, q.expr.type) for v in _plain(column, q.expr.type)]


def _plain(column: pa.ChunkedArray, dtype: DataType) -> list[object]:
    if dtype.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.INTERVAL):
        return scalar.to_python(column.cast(dtype.arrow), dtype)
    return list(column.to_pylist())


def _as_ours(value: object, dtype: DataType) -> object:
    """The same number in our type: Spark has INT where we have BIGINT, and BIGINT or DOUBLE in a few other places."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if dtype.is_float:
            return float(value)
        return Decimal(value) if dtype.kind is Kind.DECIMAL else int(value)
    return value


def check(q: Question, theirs: list[object]) -> Iterator[str]:
    """Complaints about what differs and is not in the table; notes what is."""
    for row, their in zip(q.rows, theirs, strict=True):
        ours = scalar.evaluate(q.expr, row, scalar.Context())
        if same(ours, their):
            continue
        meant = [d for d in DIFFERENCES if q.name in d.names and d.when(row, ours, their)]
        if not meant:
            yield f"{q.sql} on {row}: {ours!r}, but Spark says {their!r}"
        SEEN.update(d.what for d in meant)


SEEN: set[str] = set()


def complaints(session: SparkSession, every: Sequence[Question]) -> list[str]:
    groups: dict[tuple[tuple[DataType, ...], str], list[Question]] = {}
    for q in every:
        groups.setdefault((q.types, repr(q.rows)), []).append(q)
    found = ((q, a) for group in groups.values() for q, a in zip(group, answers(session, group), strict=True))
    return [complaint for q, a in found for complaint in check(q, a)]


# Function, its argument type, and words for what Spark has only in other words.
AGGREGATES: list[tuple[str, DataType, str]] = [
    *((n, t, f"{n}(x)") for t in (DOUBLE, BIGINT, PRICE)
      for n in ("count", "sum", "avg", "mean", "min", "max", "first", "first_value", "last", "last_value", "median",
                "collect_list", "array_agg", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop")),
    *(("percentile", t, f"percentile(x, {f})") for t in (DOUBLE, BIGINT) for f in (0.0, 0.3, 1.0)),
    *((n, BOOLEAN, f"{n}(x)") for n in ("bool_and", "every", "bool_or", "any", "count_if")),
    *((n, STRING, f"{n}(x)") for n in ("count", "min", "max", "first", "last", "collect_list")),
]  # fmt: skip
GROUPS: dict[DataType, list[list[object]]] = {
    DOUBLE: [[None], [1.5], [1.0, 2.0, None, 4.0], [-1e3, 1e3, 5.0], [3.0, 1.0, 2.0, 2.0], [math.nan, 1.0, None],
             [0.0, math.inf], [1e16, 1.0, -1e16]],
    BIGINT: [[None], [5], [None, 1, 2, 4], [-3, 3], [2**63 - 1, 1]],
    PRICE: [[None], [Decimal("1.25")], [Decimal("1.00"), Decimal("1.00"), None, Decimal("0.00")], [Decimal("-0.01")]],
    BOOLEAN: [[None], [True, None], [False, None], [True, False], [True]],
    STRING: [[None], ["b", "a", None], ["😀", "\uffff"], ["", "a"]],
}  # fmt: skip


def aggregates(session: SparkSession) -> Iterator[str]:
    """What differs, from one query for each type."""
    for dtype, groups in GROUPS.items():
        calls = [(name, sql) for name, t, sql in AGGREGATES if t == dtype]
        rows = [(g, v) for g, values in enumerate(groups) for v in values]
        numbers, column = pa.array([g for g, _ in rows]), scalar.to_arrow([v for _, v in rows], dtype)
        table = pa.table([numbers, column], names=["g", "x"])
        frame = session.createDataFrame(table).coalesce(1)
        frame.createOrReplaceTempView("asked")
        words = ", ".join(f"{sql} AS r{i}" for i, (_, sql) in enumerate(calls))
        found = session.sql(f"SELECT {words} FROM asked GROUP BY g ORDER BY g").collect()
        for values, row in zip(groups, found, strict=True):
            for (name, sql), their in zip(calls, row, strict=True):
                share = re.search(r", ([0-9.]+)\)", sql)
                ours = aggregate(name, dtype, values, extra=float(share[1]) if share else None)
                got = tuple(their) if isinstance(their, list) else their
                if not same(ours, got if isinstance(got, tuple) else _as_ours(got, _type(ours))):
                    meant = [d for d in DIFFERENCES if name in d.names and d.when(tuple(values), ours, got)]
                    if not meant:
                        yield f"{sql} of {values}: {ours!r}, but Spark says {got!r}"
                    SEEN.update(d.what for d in meant)


def _type(value: object) -> DataType:
    return DOUBLE if isinstance(value, float) else PRICE if isinstance(value, Decimal) else BIGINT


# -- the tests --------------------------------------------------------------------------------------------


def test_functions_have_sparks_meaning(asked: SparkSession) -> None:
    """One test, so that every difference of the table can be looked for among all answers."""
    known = known_to(asked)
    every = [*questions(known), *_casts()]
    wrong = complaints(asked, every) + list(aggregates(asked))
    assert not wrong, "\n".join(wrong[:40])
    asked_of = {q.name for q in every} | {name for name, _, _ in AGGREGATES} | {"current_timezone"}  # in test_zones.py
    names = {n for f in (*functions.SCALARS.values(), *functions.AGGREGATES.values()) for n in (f.name, *f.aliases)}
    assert (names & known) - asked_of == set()
    assert [d.what for d in DIFFERENCES if d.what not in SEEN] == []


def test_the_documentation_has_the_same_table() -> None:
    text = DOCS.read_text(encoding="utf-8").split("\n## Differences from Spark\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    assert rows[1:] == [*((d.what, d.here, d.spark, d.why) for d in DIFFERENCES), *UNASKED]
