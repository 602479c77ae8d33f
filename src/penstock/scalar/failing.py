"""Which expressions have a value on every row."""

from __future__ import annotations

from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, walk

# Cheap on any row, and without failures: computing these where nobody asked cannot be noticed.
_HARMLESS = frozenset({"and", "or", "not", "=", "<>", "<", "<=", ">", ">=", "is_null", "is_not_distinct", "in",
                       "nullif", "greatest", "least", "coalesce", "is_nan", "is_inf", "is_finite"})  # fmt: skip


def can_fail(expr: Expr) -> bool:
    """False where the expression surely has a value on every row."""
    return any(not _harmless(e) for e in walk(expr))


def _harmless(expr: Expr) -> bool:
    match expr:
        case Column() | Literal() | Case():
            return True
        case Call():
            return expr.function in _HARMLESS or _is_of_floats(expr)
        case Cast(arg, dtype, _):
            return arg.type.is_integer and dtype.is_float
    return False


def _is_of_floats(call: Call) -> bool:
    """Arithmetic of floats has a value on every row."""
    return call.function in ("+", "-", "*", "neg", "abs") and call.type.is_float
