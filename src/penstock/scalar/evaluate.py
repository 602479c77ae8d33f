"""An expression on one row.

Failures are counted where they happen. CASE and COALESCE look only at what they need; AND and OR look at
both sides, so whether a failure beside them is counted does not depend on the order of evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from penstock.model.errors import QueryFailed
from penstock.scalar import numbers
from penstock.scalar.casts import cast_value
from penstock.scalar.context import Context, RowError
from penstock.scalar.dates import DATES
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound, children
from penstock.scalar.foreign import from_user, to_user
from penstock.scalar.numbers import fit, in_domain
from penstock.scalar.order import compare, order_key
from penstock.scalar.strings import STRINGS, concat_ws


def logical_and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def logical_or(a: bool | None, b: bool | None) -> bool | None:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def is_in(needle: object, *items: object) -> bool | None:
    if needle is None:
        return None
    if any(item is not None and compare(needle, item) == 0 for item in items):
        return True
    return None if any(item is None for item in items) else False


def nullif(a: object, b: object) -> object:
    return None if a is not None and b is not None and compare(a, b) == 0 else a


def greatest(*values: object) -> object:
    return max((v for v in values if v is not None), key=order_key, default=None)


def least(*values: object) -> object:
    return min((v for v in values if v is not None), key=order_key, default=None)


# Functions that see NULL; every other one gives NULL when an argument is NULL.
NULL_AWARE: dict[str, Callable[..., object]] = {
    "and": logical_and,
    "or": logical_or,
    "is_null": lambda a: a is None,
    "is_not_distinct": lambda a, b: compare(a, b) == 0,
    "in": is_in,
    "nullif": nullif,
    "greatest": greatest,
    "least": least,
    "concat_ws": concat_ws,
    "is_nan": lambda a: a is not None and a != a,
}

_STRICT: dict[str, Callable[..., object]] = {
    "not": lambda a: not a,
    "=": lambda a, b: compare(a, b) == 0,
    "<>": lambda a, b: compare(a, b) != 0,
    "<": lambda a, b: compare(a, b) < 0,
    "<=": lambda a, b: compare(a, b) <= 0,
    ">": lambda a, b: compare(a, b) > 0,
    ">=": lambda a, b: compare(a, b) >= 0,
    "+": numbers.add,
    "-": numbers.subtract,
    "*": numbers.multiply,
    "/": numbers.divide,
    "div": numbers.integer_divide,
    "%": numbers.remainder,
    "neg": numbers.negate,
    "scale_interval": numbers.scale_interval,
    "divide_interval": numbers.divide_interval,
    "abs": numbers.absolute,
    "sign": numbers.sign,
    "ceil": numbers.ceil,
    "floor": numbers.floor,
    "integer": numbers.integer,
    "round": numbers.round_to,
    "trunc": numbers.trunc_to,
    "exp": numbers.exp,
    "power": numbers.power,
    "log": numbers.logarithm,
    "cbrt": math.cbrt,
    "sqrt": in_domain("sqrt", math.sqrt),
    "ln": in_domain("ln", math.log),
    "log10": in_domain("log10", math.log10),
    "log2": in_domain("log2", math.log2),
    "sin": in_domain("sin", math.sin),
    "cos": in_domain("cos", math.cos),
    "tan": in_domain("tan", math.tan),
    "asin": in_domain("asin", math.asin),
    "acos": in_domain("acos", math.acos),
    "atan": math.atan,
    "atan2": numbers.angle,
    "degrees": math.degrees,
    "radians": math.radians,
    "is_inf": math.isinf,
    "is_finite": math.isfinite,
    **STRINGS,
    **DATES,
}

# Every name that a ``Call`` may have.
BUILTINS: frozenset[str] = frozenset({"coalesce", *NULL_AWARE, *_STRICT})


def evaluate(expr: Expr, row: Sequence[object], context: Context) -> object:
    """The value of the expression on the row; where it fails, NULL, and the context knows."""
    match expr:
        case Column(index=index):
            return row[index]
        case Literal(value=value):
            return value
        case Call():
            return _call(expr, row, context)
        case Case(branches, otherwise, _):
            for condition, result in branches:
                if evaluate(condition, row, context) is True:
                    return evaluate(result, row, context)
            return evaluate(otherwise, row, context)
        case Cast(arg, dtype, safe, zone):
            value = evaluate(arg, row, context)
            try:
                return cast_value(value, arg.type, dtype, zone)
            except RowError as e:
                return None if safe else context.fail(f"CAST: {e}")
        case UserCall():
            return _user_call(expr, row, context)
        case WindowBound(which, _):
            if context.window is None:
                raise QueryFailed(f"window_{which} outside of a window that has bounds")
            return context.window[0 if which == "start" else 1]


def _call(expr: Call, row: Sequence[object], context: Context) -> object:
    if expr.function == "coalesce":
        for arg in expr.args:
            value = evaluate(arg, row, context)
            if value is not None:
                return value
        return None
    values = [evaluate(arg, row, context) for arg in expr.args]
    function = NULL_AWARE.get(expr.function)
    if function is None:
        if any(v is None for v in values):
            return None
        function = _STRICT[expr.function]
    try:
        return fit(function(*values), expr.type)
    except RowError as e:
        return context.fail(f"{expr.function}: {e}")


def _user_call(expr: UserCall, row: Sequence[object], context: Context) -> object:
    values = [evaluate(arg, row, context) for arg in expr.args]
    function = context.functions.get(expr.function)
    if function is None:
        raise QueryFailed(f"there is no Python function `{expr.function}`")
    try:
        given = [to_user(v, arg.type) for v, arg in zip(values, expr.args, strict=True)]
        try:
            result = function(*given)
        except Exception as error:
            shown = ", ".join(map(repr, given))
            raise QueryFailed(
                f"function `{expr.function}` raised {type(error).__name__}: {error}, called with ({shown})",
                hint="catch it in the function and return None where the value should be NULL",
            ) from error
        return from_user(result, expr.type)
    except RowError as e:
        return context.fail(f"{expr.function}: {e}")


def fold(expr: Expr) -> Literal | None:
    """The expression as a constant; None where it needs a row, a window or user code, or would fail."""
    if not _is_constant(expr):
        return None
    try:
        return Literal(evaluate(expr, (), Context(strict=True)), expr.type)
    except QueryFailed:
        return None


def _is_constant(expr: Expr) -> bool:
    if isinstance(expr, Column | UserCall | WindowBound):
        return False
    return all(_is_constant(child) for child in children(expr))
