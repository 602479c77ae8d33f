"""Functions on numbers, and those that choose among values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.functions import operators
from penstock.functions.coerce import case, unify
from penstock.functions.signature import Function, Resolver, argument, check_arity, entry, number, typed
from penstock.functions.temporal import trunc_date
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, DataType, Kind, decimal
from penstock.scalar.expr import Call, Expr, Literal


def _same_number(call: str) -> Resolver:
    """One number in, one of the same type out."""

    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, 1)
        arg = number(name, args, 0, INT)
        return Call(call, (arg,), arg.type)

    return resolve


def _sign(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    arg = number(name, args, 0, INT)
    return Call("sign", (arg,), arg.type if arg.type.is_float else INT)


def _whole(call: str) -> Resolver:
    """ceil and floor: a DECIMAL loses its scale, and may gain a digit."""

    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, 1)
        arg = number(name, args, 0, INT)
        return Call(call, (arg,), _digits(arg.type, keep_scale=False))

    return resolve


def _digits(dtype: DataType, *, keep_scale: bool) -> DataType:
    if dtype.kind is not Kind.DECIMAL:
        return dtype
    assert dtype.precision is not None
    assert dtype.scale is not None
    if keep_scale:
        return decimal(dtype.precision + 1, dtype.scale)
    return decimal(dtype.precision - dtype.scale + 1, 0)


def _rounding(call: str) -> Resolver:
    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, 2)
        arg = number(name, args, 0, INT)
        digits = argument(name, args, 1, BIGINT) if len(args) == 2 else Literal(0, BIGINT)
        return Call(call, (arg, digits), _digits(arg.type, keep_scale=call == "round"))

    def truncating(name: str, args: Sequence[Expr]) -> Expr:
        bound = resolve(name, args)
        assert isinstance(bound, Call)
        return Call(call, bound.args, bound.args[0].type)

    return resolve if call == "round" else truncating


def _trunc(name: str, args: Sequence[Expr]) -> Expr:
    """Of a DATE or TIMESTAMP as in Spark, of a number as in PostgreSQL and DuckDB."""
    times = bool(args) and args[0].type.kind in (Kind.DATE, Kind.TIMESTAMP)
    return (trunc_date if times else _rounding("trunc"))(name, args)


def _log(name: str, args: Sequence[Expr]) -> Expr:
    """Of one argument the natural logarithm."""
    return (typed("ln", (DOUBLE,), DOUBLE) if len(args) == 1 else typed("log", (DOUBLE, DOUBLE), DOUBLE))(name, args)


def _pi(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 0, 0)
    return Literal(math.pi, DOUBLE)


def _extreme(call: str) -> Resolver:
    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, None)
        bound = unify(args, "compare")
        return Call(call, tuple(bound), bound[0].type)

    return resolve


def _if(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 3)
    condition = argument(name, args, 0, BOOLEAN)
    return case([(condition, args[1])], args[2] if len(args) == 3 else None)


def _ifnull(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    return operators.coalesce(name, args)


NUMBERS: tuple[Function, ...] = (
    entry("abs(x NUMBER) -> same", "x without its sign", _same_number("abs")),
    entry("sign(x NUMBER) -> INT or same", "-1, 0 or 1; REAL and DOUBLE keep their type, NaN stays NaN",
          _sign, "signum"),
    entry("ceil(x NUMBER) -> same", "the least whole number not below x", _whole("ceil"), "ceiling"),
    entry("floor(x NUMBER) -> same", "the greatest whole number not above x", _whole("floor")),
    entry("round(x NUMBER[, digits BIGINT]) -> same",
          "x, as it is written, rounded half away from zero to digits after the point; negative digits round before it",
          _rounding("round")),
    entry("trunc(x NUMBER[, digits BIGINT]) -> same",
          "x cut off toward zero, digits as in round; trunc(d, 'month') is the first DATE of the month",
          _trunc, "truncate"),
    entry("sqrt(x DOUBLE) -> DOUBLE", "square root; negative x fails", typed("sqrt", (DOUBLE,), DOUBLE)),
    entry("cbrt(x DOUBLE) -> DOUBLE", "cube root", typed("cbrt", (DOUBLE,), DOUBLE)),
    entry("exp(x DOUBLE) -> DOUBLE", "e to the power of x", typed("exp", (DOUBLE,), DOUBLE)),
    entry("ln(x DOUBLE) -> DOUBLE", "natural logarithm; x <= 0 fails", typed("ln", (DOUBLE,), DOUBLE)),
    entry("log10(x DOUBLE) -> DOUBLE", "logarithm to base 10; x <= 0 fails",
          typed("log10", (DOUBLE,), DOUBLE)),
    entry("log2(x DOUBLE) -> DOUBLE", "logarithm to base 2; x <= 0 fails", typed("log2", (DOUBLE,), DOUBLE)),
    entry("log([base DOUBLE, ]x DOUBLE) -> DOUBLE", "ln(x), or ln(x) / ln(base); base 1, and either <= 0, fail", _log),
    entry("power(x DOUBLE, y DOUBLE) -> DOUBLE", "x to the power of y; negative x with fractional y fails",
          typed("power", (DOUBLE, DOUBLE), DOUBLE), "pow"),
    entry("mod(x NUMBER, y NUMBER) -> common", "x % y: the remainder, with the sign of x; y = 0 fails",
          operators.modulo),
    entry("sin(x DOUBLE) -> DOUBLE", "sine; infinite x fails", typed("sin", (DOUBLE,), DOUBLE)),
    entry("cos(x DOUBLE) -> DOUBLE", "cosine; infinite x fails", typed("cos", (DOUBLE,), DOUBLE)),
    entry("tan(x DOUBLE) -> DOUBLE", "tangent; infinite x fails", typed("tan", (DOUBLE,), DOUBLE)),
    entry("asin(x DOUBLE) -> DOUBLE", "arc sine; x outside -1 … 1 fails", typed("asin", (DOUBLE,), DOUBLE)),
    entry("acos(x DOUBLE) -> DOUBLE", "arc cosine; x outside -1 … 1 fails", typed("acos", (DOUBLE,), DOUBLE)),
    entry("atan(x DOUBLE) -> DOUBLE", "arc tangent", typed("atan", (DOUBLE,), DOUBLE)),
    entry("atan2(y DOUBLE, x DOUBLE) -> DOUBLE", "angle of the point (x, y)",
          typed("atan2", (DOUBLE, DOUBLE), DOUBLE)),
    entry("degrees(x DOUBLE) -> DOUBLE", "radians to degrees", typed("degrees", (DOUBLE,), DOUBLE)),
    entry("radians(x DOUBLE) -> DOUBLE", "degrees to radians", typed("radians", (DOUBLE,), DOUBLE)),
    entry("pi() -> DOUBLE", "3.141592653589793", _pi),
    entry("is_nan(x DOUBLE) -> BOOLEAN", "whether x is NaN", typed("is_nan", (DOUBLE,), BOOLEAN), "isnan"),
    entry("is_inf(x DOUBLE) -> BOOLEAN", "whether x is infinite",
          typed("is_inf", (DOUBLE,), BOOLEAN), "isinf"),
    entry("is_finite(x DOUBLE) -> BOOLEAN", "whether x is neither NaN nor infinite",
          typed("is_finite", (DOUBLE,), BOOLEAN), "isfinite"),
)  # fmt: skip

CHOICE: tuple[Function, ...] = (
    entry("coalesce(a, b, …) -> common", "the first that is not NULL; the rest is not looked at",
          operators.coalesce),
    entry("ifnull(a, b) -> common", "a, or b where a is NULL", _ifnull, "nvl"),
    entry("nullif(a, b) -> common", "NULL where a = b, else a", operators.nullif),
    entry("if(condition BOOLEAN, a[, b]) -> common", "a where the condition is TRUE, else b (or NULL)",
          _if, "iff"),
    entry("greatest(a, b, …) -> common", "the greatest in value order (NaN is); NULLs are left out",
          _extreme("greatest")),
    entry("least(a, b, …) -> common", "the least in value order; NULLs are left out", _extreme("least")),
)  # fmt: skip
