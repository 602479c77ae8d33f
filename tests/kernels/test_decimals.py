"""DECIMAL in columns: the values of ``scalar``, and no row computed by itself where the numbers fit 64 bits."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernels.test_expressions import DEC, FRACTION, WIDE, check, columns_of, signatures, values_of

from penstock import functions
from penstock.kernels.expressions import RowErrors, compile_expr
from penstock.kernels.rowwise import RowWise
from penstock.model.types import BIGINT, DOUBLE, INT, NULL, REAL, STRING, DataType, Kind, decimal
from penstock.model.values import to_arrow, to_python
from penstock.scalar.expr import Cast, Column, Expr, Literal

DECIMALS = (DEC, FRACTION, WIDE)
NAMES = ("+", "-", "*", "%", "div", "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "greatest", "least", "in",
         "=", "<", "nullif", "coalesce")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_decimals(name: str) -> None:
    found = [s for s in signatures(name) if any(t in DECIMALS for t in s) and len(s) <= 2]

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def on(data: st.DataObject) -> None:
        types = data.draw(st.sampled_from(found))
        length = data.draw(st.integers(1, 6))
        columns: list[list[object]] = [[None] * length]
        column_types: list[DataType] = [NULL]
        args: list[Expr] = []
        for dtype in types:
            assert isinstance(dtype, DataType)
            if name in ("round", "trunc") and args:
                args.append(Literal(data.draw(st.integers(-20, 20)), BIGINT))
            elif data.draw(st.integers(0, 2)) == 0:
                args.append(Literal(data.draw(values_of(dtype)), dtype))
            else:
                args.append(Column(len(columns), dtype))
                columns += data.draw(columns_of([dtype], length))
                column_types.append(dtype)
        check(functions.resolve(name, args), columns, column_types)

    on()


TARGETS = (INT, BIGINT, REAL, DOUBLE, STRING, *DECIMALS, decimal(3, 1), decimal(38, 20), decimal(18, 0))


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("source", [INT, BIGINT, *DECIMALS], ids=str)
def test_casts_of_decimals(source: DataType, target: DataType) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def on(data: st.DataObject) -> None:
        columns = data.draw(columns_of([source], data.draw(st.integers(1, 6))))
        check(Cast(Column(0, source), target), columns, [source])

    if source != target:
        on()


INTS, LONGS, DECS = Column(0, INT), Column(1, BIGINT), Column(2, DEC)


def dec(text: str) -> Literal:
    value = Decimal(text)
    scale = -int(value.as_tuple().exponent)
    return Literal(value, decimal(max(len(value.as_tuple().digits), scale), scale))


def call(name: str, *args: Expr) -> Expr:
    return functions.resolve(name, args)


COLUMNAR: dict[str, Expr] = {
    "i * 1.5": call("*", INTS, dec("1.5")),
    "l * 1.5": call("*", LONGS, dec("1.5")),
    "l + 0.25": call("+", LONGS, dec("0.25")),
    "1 - 0.5 * i": call("-", Literal(1, INT), call("*", dec("0.5"), INTS)),
    "i % 0.5": call("%", INTS, dec("0.5")),
    "i div 0.5": call("div", INTS, dec("0.5")),
    "i > 1.5": call(">", INTS, dec("1.5")),
    "l = 2.5": call("=", LONGS, dec("2.5")),
    "l in (1.5, 2)": call("in", LONGS, dec("1.5"), Literal(2, INT)),
    "l in many": call("in", LONGS, *(dec(f"{n}.5") for n in range(8))),
    "i * 1.5 / 3": call("/", call("*", INTS, dec("1.5")), Literal(3, INT)),
    "sqrt(l * 0.5)": call("sqrt", call("*", LONGS, dec("0.5"))),
    "round(i * 1.25, 1)": call("round", call("*", INTS, dec("1.25")), Literal(1, INT)),
    "trunc(d, 1)": call("trunc", DECS, Literal(1, INT)),
    "floor(d)": call("floor", DECS),
    "ceil(l * 0.1)": call("ceil", call("*", LONGS, dec("0.1"))),
    "abs(i - 0.5)": call("abs", call("-", INTS, dec("0.5"))),
    "sign(d)": call("sign", DECS),
    "greatest(i, 0.5)": call("greatest", INTS, dec("0.5")),
    "coalesce(i, 0.5)": call("coalesce", INTS, dec("0.5")),
    "nullif(d, 0.5)": call("nullif", DECS, dec("0.5")),
    "d = 0.5": call("=", DECS, dec("0.5")),
    "d > i": call(">", DECS, INTS),
    "d::STRING": Cast(DECS, STRING),
    "d::INT": Cast(DECS, INT),
    "d::DECIMAL(8, 1)": Cast(DECS, decimal(8, 1)),
    "d * d * d * d * d": call("*", call("*", call("*", call("*", DECS, DECS), DECS), DECS), DECS),
}


@pytest.mark.parametrize("expr", COLUMNAR.values(), ids=list(COLUMNAR))
def test_is_computed_in_columns(expr: Expr, monkeypatch: pytest.MonkeyPatch) -> None:
    columns: list[list[object]] = [
        [1, None, -7, 2**31 - 1],
        [10**12, 3, None, -5],
        [Decimal("0.50"), Decimal("-3.25"), Decimal("12.00"), None],
    ]
    check(expr, columns, [INT, BIGINT, DEC])

    def refuse(*_: Any) -> None:
        raise AssertionError("row by row")

    monkeypatch.setattr(RowWise, "_on", refuse)
    arrays = [to_arrow(c, t) for c, t in zip(columns, (INT, BIGINT, DEC), strict=True)]
    found: pa.Array = compile_expr(expr, {})(arrays, 4, RowErrors())
    assert len(to_python(found, expr.type)) == 4
    assert expr.type.kind is not Kind.NULL
