"""Every function of an ad-hoc SELECT has the value that it has in CQL; every other function of CQL is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import functions, scalar
from penstock.functions import AGGREGATES, SCALARS
from penstock.model.errors import PenstockError, QueryFailed
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    RANGES,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    decimal,
)
from penstock.reference.aggregates import compute
from penstock.scalar.expr import Column, Expr, Literal
from penstock.server.adhoc import AdHoc, meaning
from tests.budget import examples

PRICE = decimal(9, 2)
ADHOC = AdHoc()
NAN, INF = math.nan, math.inf

_whole = st.sampled_from([0, 1, -1, 2, -2, 7, -7, 10, 40, 255, 256, 12345])
_texts = st.one_of(
    st.sampled_from([
        "", " ", "a", "abc", "  padded  ", "Ünïcödé", "e\u0301te\u0301", "ß", "İ", "ΜΆΪΟΣ", "日本語", "a😀b",
        "a%b_c\\d", "a,b,,c", "tab\tline\nend", "0x1F", "1.5", " 1 ", "-2", "1e3", "1_000", "true", "NO", "nan",
        "2024-02-29",
        "2024-02-29 12:34:56.789", "2024-02-29T12:34:56+02:00", "2024-2-9", "%Y-%m-%d", "yyyy-MM-dd", "$1",
        "UTC", "Europe/Vienna",
    ]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6),
)  # fmt: skip
VALUES: dict[DataType, st.SearchStrategy[object]] = {
    BOOLEAN: st.booleans(),
    INT: st.one_of(_whole, st.integers(*RANGES[Kind.INT])),
    BIGINT: st.one_of(_whole, st.integers(*RANGES[Kind.BIGINT])),
    DOUBLE: st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 2.675, 1.005, NAN, INF, -INF, 1e300, 1e-300]), st.floats()
    ),
    PRICE: st.decimals("-9999999.99", "9999999.99", places=2),
    STRING: _texts,
    BINARY: st.binary(max_size=4),
    DATE: st.one_of(st.sampled_from([0, -1, 59, 19782]), st.integers(*RANGES[Kind.DATE])),
    TIMESTAMP: st.one_of(st.sampled_from([0, -1, 1_709_164_800_000_000]), st.integers(*RANGES[Kind.TIMESTAMP])),
    INTERVAL: st.integers(-(10**15), 10**15),
}  # fmt: skip
SMALL = st.one_of(_whole, st.integers(-50, 50))


@dataclass(frozen=True)
class Case:
    """A function of CQL on columns of these types (a text is a constant), and how an ad-hoc SELECT writes it."""

    function: str
    args: tuple[DataType | str, ...]
    sql: str
    small: bool = False
    """Whole numbers behind the first argument are small: they are lengths."""

    @property
    def id(self) -> str:
        return f"{self.sql} of {', '.join(map(str, self.args))}"

    @property
    def types(self) -> list[DataType]:
        return [a for a in self.args if isinstance(a, DataType)]


def called(name: str, *args: DataType | str, small: bool = False) -> Case:
    places = iter(range(9))
    written = ", ".join(f"'{a}'" if isinstance(a, str) else f"{{{next(places)}}}" for a in args)
    return Case(name, args, f"{name}({written})", small)


def infix(name: str, *args: DataType, sql: str | None = None) -> Case:
    return Case(name, args, sql or f"{{0}} {name} {{1}}")


PATTERNS = ("^a", "[a-c]+", "(b|,)", "(a)(.)", "(?i)ABC", r"\d", "e.t", "x*", "$")
UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
CASES = [
    *(called(n, *s, small=True) for n, ways in meaning.COMPUTED.items()
      if n not in ("like", "ilike", "position") and not n.startswith("regexp_") for s in ways),
    *(called("regexp_like", STRING, p) for p in PATTERNS),
    called("regexp_extract", STRING, "(a)(.)", BIGINT, small=True),
    *(called("regexp_extract", STRING, p) for p in PATTERNS if p[0] == "(" and p[1] != "?"),
    *(called("regexp_replace", STRING, p, "<$0>") for p in PATTERNS),
    *(called(n, t, *s[1:], small=True) for n, (s,) in meaning.DATED.items() for t in (TIMESTAMP, DATE)),
    *(called(n, u, TIMESTAMP) for n in ("date_trunc", "date_part") for u in (*UNITS, "millisecond", "microsecond")),
    *(called("date_part", u, TIMESTAMP) for u in ("dow", "isodow", "doy", "epoch")),
    *(called("date_diff", u, TIMESTAMP, TIMESTAMP) for u in UNITS),
    *(called(n, t) for n, types in meaning.EITHER.items() for t in types),
    *(called(n, t) for n in ("abs", "ceil", "floor", "trunc", "sign") for t in (INT, BIGINT, DOUBLE, PRICE)),
    *(called("round", t) for t in (INT, BIGINT, DOUBLE)),
    *(called("round", t, BIGINT, small=True) for t in (INT, BIGINT, DOUBLE)),
    *(called(n, t, t) for n in ("greatest", "least", "coalesce", "nullif", "ifnull")
      for t in (INT, DOUBLE, STRING, TIMESTAMP, PRICE)),
    called("if", BOOLEAN, INT, BIGINT),
    called("concat_ws", STRING, STRING, DOUBLE, INT),
    called("concat", STRING, BIGINT, PRICE),
    *(infix(o, a, b) for o in ("+", "-", "*")
      for a, b in ((INT, INT), (BIGINT, BIGINT), (INT, BIGINT), (DOUBLE, DOUBLE), (INT, DOUBLE),
                   (PRICE, PRICE), (PRICE, INT), (PRICE, DOUBLE))),
    *(infix(o, a, b) for o in ("/", "%") for a, b in ((INT, INT), (BIGINT, BIGINT), (DOUBLE, DOUBLE), (BIGINT, INT))),
    infix("%", PRICE, PRICE),
    *(infix("neg", t, sql="-{0}") for t in (INT, BIGINT, DOUBLE, PRICE)),
    infix("-", TIMESTAMP, TIMESTAMP), infix("-", DATE, DATE), infix("+", DATE, INT), infix("-", DATE, INT),
    infix("+", TIMESTAMP, INTERVAL), infix("-", TIMESTAMP, INTERVAL), infix("+", INTERVAL, INTERVAL),
    *(infix("||", a, b) for a, b in ((STRING, STRING), (STRING, DOUBLE), (DATE, STRING), (TIMESTAMP, STRING),
                                  (BOOLEAN, STRING), (INT, PRICE))),
    *(infix(o, t, t) for o in ("=", "<>", "<", "<=", ">", ">=")
      for t in (BOOLEAN, INT, BIGINT, DOUBLE, PRICE, STRING, BINARY, DATE, TIMESTAMP, INTERVAL)),
    *(infix(o, a, b) for o in ("=", "<")
      for a, b in ((INT, DOUBLE), (BIGINT, PRICE), (DATE, TIMESTAMP), (INT, BIGINT))),
    infix("is_not_distinct", DOUBLE, DOUBLE, sql="{0} IS NOT DISTINCT FROM {1}"),
    infix("and", BOOLEAN, BOOLEAN), infix("or", BOOLEAN, BOOLEAN), infix("not", BOOLEAN, sql="NOT {0}"),
    infix("is_null", STRING, sql="{0} IS NULL"), infix("in", INT, INT, INT, sql="{0} IN ({1}, {2})"),
    infix("like", STRING, STRING), infix("ilike", STRING, STRING),
    *(Case("like", (STRING, p), f"{{0}} LIKE '{p}'") for p in ("a%", "%b\\_c%", "_")),
    Case("position", (STRING, STRING), "position({0} IN {1})"),
]  # fmt: skip
CASTS = [
    *((STRING, t) for t in (BOOLEAN, INT, BIGINT, DOUBLE, PRICE, DATE, TIMESTAMP, BINARY)),
    *((t, STRING) for t in (BOOLEAN, INT, BIGINT, DOUBLE, PRICE, DATE, TIMESTAMP, BINARY)),
    (INT, DOUBLE), (BIGINT, INT), (BIGINT, DOUBLE), (INT, BOOLEAN), (BOOLEAN, INT), (DOUBLE, INT), (DOUBLE, BIGINT),
    (PRICE, INT), (PRICE, DOUBLE), (DOUBLE, PRICE), (BIGINT, PRICE), (DATE, TIMESTAMP), (TIMESTAMP, DATE),
]  # fmt: skip


def column(case: Case, at: int, dtype: DataType) -> st.SearchStrategy[object]:
    return SMALL if case.small and at and dtype == BIGINT else VALUES[dtype]


def answers(sql: str, types: list[DataType], rows: list[tuple[object, ...]], result: DataType) -> list[object]:
    columns = [scalar.to_arrow([r[i] for r in rows], t) for i, t in enumerate(types)]
    table = pa.table([pa.array(range(len(rows))), *columns], names=["i", *(f"c{i}" for i in range(len(types)))])
    text = sql.format(*(f"c{i}" for i in range(len(types))))
    found = ADHOC.select(f"SELECT {text} AS r FROM t ORDER BY i", {"t": lambda: table}).column("r")
    if result.is_numeric:
        return list(found.to_pylist())
    return scalar.to_python(found, result)


def same(ours: object, theirs: object, exact: bool = True) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float) and math.isfinite(ours) and not exact:
        return math.isclose(ours, theirs, rel_tol=1e-15)
    return scalar.hashable(ours) == scalar.hashable(theirs)


def check(sql: str, expr: Expr, types: list[DataType], rows: list[tuple[object, ...]]) -> None:
    theirs = answers(sql, types, rows, expr.type)
    for row, their in zip(rows, theirs, strict=True):
        ours = scalar.evaluate(expr, row, scalar.Context())
        assert same(ours, their), f"{sql} on {row}: {their!r}, but CQL says {ours!r}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_function_has_the_value_of_cql(case: Case) -> None:
    types = case.types
    places = iter(range(len(types)))
    args: list[Expr] = [Literal(a, STRING) if isinstance(a, str) else Column(next(places), a) for a in case.args]
    expr = functions.resolve(case.function, args)
    row = st.tuples(*(st.one_of(st.none(), column(case, i, t)) for i, t in enumerate(types)))

    @settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(row, min_size=1, max_size=30))
    def run(rows: list[tuple[object, ...]]) -> None:
        check(case.sql, expr, types, rows)

    run()


@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
def test_cast_has_the_value_of_cql(source: DataType, target: DataType) -> None:
    name = {"STRING": "VARCHAR", "BINARY": "BLOB"}.get(str(target), str(target))
    row = st.tuples(st.one_of(st.none(), VALUES[source]))

    @settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(row, min_size=1, max_size=30))
    def run(rows: list[tuple[object, ...]]) -> None:
        check(f"CAST({{0}} AS {name})", functions.cast(Column(0, source), target), [source], rows)

    run()


ALL = (INT, BIGINT, DOUBLE, PRICE)
AGGREGATED = [
    *(("count", t) for t in (*ALL, STRING)),
    *(("sum", t) for t in ALL),
    *(("avg", t) for t in (INT, BIGINT, DOUBLE)),
    *((n, t) for n in ("min", "max") for t in (*ALL, STRING, TIMESTAMP, BOOLEAN)),
    *((n, t) for n in ("stddev", "stddev_pop", "variance", "var_pop", "median") for t in (INT, DOUBLE)),
    ("bool_and", BOOLEAN), ("bool_or", BOOLEAN), ("count_if", BOOLEAN),
]  # fmt: skip


@pytest.mark.parametrize("distinct", [False, True], ids=["", "distinct"])
@pytest.mark.parametrize(("name", "dtype"), AGGREGATED, ids=str)
def test_aggregate_has_the_value_of_cql(name: str, dtype: DataType, distinct: bool) -> None:
    if distinct and name in ("count_if", "bool_and", "bool_or"):
        return
    call = functions.resolve_aggregate(name, [Column(0, dtype)], distinct)
    only = call.where is not None

    @settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.one_of(st.none(), VALUES[dtype]), max_size=30))
    def run(values: list[object]) -> None:
        typed = [scalar.evaluate(a, (v,), scalar.Context()) for v in values for a in call.args[:1]] or [None] * len(
            values
        )
        taken = [v for v in values if v is True] if only else typed
        rest = tuple(a.value for a in call.args[1:] if isinstance(a, Literal))
        ours = compute(call, [((i,), () if only else (v, *rest)) for i, v in enumerate(taken)])
        table = pa.table({"v": scalar.to_arrow(values, dtype)})
        found = ADHOC.select(f"SELECT {name}({'DISTINCT ' * distinct}v) AS r FROM t", {"t": lambda: table}).column("r")
        theirs = found.to_pylist()[0] if call.type.is_numeric else scalar.to_python(found, call.type)[0]
        assert same(ours, theirs), f"{name} of {values}: {theirs!r}, but CQL says {ours!r}"

    run()


def test_percentile() -> None:
    table = pa.table({"v": [1, 2, 4, None], "g": ["a", "a", "b", "b"]})
    found = ADHOC.select("SELECT percentile(v, 0.25), quantile_cont(v, 0.5) FROM t", {"t": lambda: table})
    assert found.to_pylist() == [{"percentile": 1.5, "quantile_cont": 2.0}]


LISTED = {*meaning.COMPUTED, *meaning.DATED, *meaning.UNITS, *meaning.EITHER, *meaning.NATIVE, *meaning.TYPED,
          *meaning.LISTED, *meaning.CHOSEN, *meaning.AGGREGATES}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*SCALARS, *AGGREGATES}))
def test_every_function_of_cql_is_computed_or_refused(name: str) -> None:
    listed = meaning.CANONICAL.get(name, name) in LISTED
    assert listed != (name in meaning.REFUSED)


@pytest.mark.parametrize("name", sorted(n for n in meaning.REFUSED if n.isidentifier()))
def test_what_is_refused_says_so(name: str) -> None:
    with pytest.raises(PenstockError, match=name) as caught:
        ADHOC.select(f"SELECT {name}(1, 2)", {})
    assert caught.value.hint


@pytest.mark.parametrize("sql", ["SELECT avg(v) FROM t", "SELECT round(v, 1) FROM t"])
def test_decimals_that_would_differ_are_refused(sql: str) -> None:
    table = pa.table({"v": [Decimal("1.25")]})
    with pytest.raises(QueryFailed, match="CAST"):
        ADHOC.select(sql, {"t": lambda: table})


def test_clocks_of_the_zone() -> None:
    vienna = AdHoc(zone="Europe/Vienna")
    table = pa.table({"t": pa.array([1_709_164_800_000_000], pa.timestamp("us")), "d": pa.array([19782], pa.date32())})
    text = "SELECT hour(t), hour(d), date_trunc('day', t), CAST(t AS VARCHAR), CAST(d AS TIMESTAMP) FROM t"
    found = vienna.select(text, {"t": lambda: table})
    zone = "Europe/Vienna"
    ticks, day = Literal(1_709_164_800_000_000, TIMESTAMP), Literal(19782, DATE)
    calls = [functions.resolve("hour", [ticks], zone), functions.resolve("hour", [day], zone),
             functions.resolve("date_trunc", [Literal("day", STRING), ticks], zone)]  # fmt: skip
    ours = [scalar.evaluate(c, (), scalar.Context()) for c in calls]
    theirs = [scalar.to_python(found.column(i), c.type)[0] for i, c in enumerate(calls)]
    assert ours == theirs
    assert found.column(3).to_pylist() == ["2024-02-29 01:00:00"]
