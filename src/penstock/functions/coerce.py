"""Conversions that need no CAST in the text.

A type widens (INT to BIGINT to DECIMAL to DOUBLE, DATE to TIMESTAMP); NULL becomes any type; a text
constant becomes what it is compared with or given for. A STRING column never converts by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.errors import BindError
from penstock.model.types import BOOLEAN, NULL, DataType, Kind, common_type
from penstock.scalar.casts import CASTS, can_cast, cast_value, is_zoned
from penstock.scalar.context import RowError
from penstock.scalar.expr import Case, Cast, Expr, Literal

_FROM_TEXT = {Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.DECIMAL, Kind.DATE,
              Kind.TIMESTAMP, Kind.INTERVAL}  # fmt: skip


def is_text(expr: Expr) -> bool:
    """A constant text, which adapts to its surroundings."""
    return isinstance(expr, Literal) and expr.type.kind is Kind.STRING


# Casts between numbers (True) and times, which mean seconds in Spark, and nothing in PostgreSQL and DuckDB.
_UNITLESS: dict[tuple[Kind | bool, Kind | bool], str] = {
    (True, Kind.TIMESTAMP): "timestamp_seconds(…), timestamp_millis(…) or timestamp_micros(…)",
    (Kind.TIMESTAMP, True): "unix_seconds(…), unix_millis(…) or unix_micros(…)",
    (True, Kind.INTERVAL): "… * INTERVAL '1' SECOND",
    (Kind.INTERVAL, True): "epoch(…) for seconds or to_ticks(…) for microseconds",
}


def _unitless(source: DataType, target: DataType) -> str | None:
    return _UNITLESS.get((source.is_integer or source.kind, target.is_integer or target.kind))


def how_to_convert(source: DataType, target: DataType) -> str | None:
    """What to write in a query to convert one type to the other."""
    if (instead := _unitless(source, target)) is not None:
        return f"write {instead}"
    return f"write CAST(… AS {target})" if can_cast(source, target) else None


def cast(expr: Expr, dtype: DataType, *, safe: bool = False) -> Expr:
    """An explicit CAST or TRY_CAST; raises where the types do not convert."""
    if (instead := _unitless(expr.type, dtype)) is not None:
        what = f"CAST of {expr.type} to {dtype} does not say the unit of the number, which is seconds in Spark"
        raise BindError(what, hint=f"write {instead}")
    if not can_cast(expr.type, dtype):
        targets = sorted(k.value for k in CASTS.get(expr.type.kind, ()) if not _unitless(expr.type, DataType(k)))
        hint = f"{expr.type} converts to {', '.join(targets)}" if targets else None
        raise BindError(f"cannot CAST {expr.type} to {dtype}", hint=hint)
    return expr if expr.type == dtype else Cast(expr, dtype, safe)


def convert(expr: Expr, dtype: DataType) -> Expr:
    """The expression in a type it is known to widen to; constants are converted at once.

    Those for which a time zone matters are converted by ``in_zone``.
    """
    if expr.type == dtype:
        return expr
    if isinstance(expr, Literal):
        try:
            value = cast_value(expr.value, expr.type, dtype)
            return Cast(expr, dtype) if is_zoned(expr.type, dtype) else Literal(value, dtype)
        except RowError as e:
            if is_text(expr):
                raise BindError(str(e)) from None
    return Cast(expr, dtype)


def coerce(expr: Expr, dtype: DataType) -> Expr | None:
    """The expression as ``dtype`` where that needs no CAST, else None."""
    if is_text(expr) and dtype.kind in _FROM_TEXT:
        return convert(expr, dtype)
    if expr.type == dtype or common_type(expr.type, dtype) == dtype:
        return convert(expr, dtype)
    return None


def unify(exprs: Sequence[Expr], doing: str = "combine") -> list[Expr]:
    """All brought to one type. ``doing`` completes the message "cannot … A with B"."""
    typed = [e for e in exprs if not is_text(e)]
    target = NULL
    for e in typed:
        found = common_type(target, e.type)
        if found is None:
            raise _mismatch(target, e.type, doing)
        target = found
    texts = [e for e in exprs if is_text(e)]
    if texts and target.kind is Kind.NULL:
        target = texts[0].type
    if texts and target.kind is not Kind.STRING and target.kind not in _FROM_TEXT:
        raise _mismatch(target, texts[0].type, doing)
    return [convert(e, target) for e in exprs]


def _mismatch(left: DataType, right: DataType, doing: str) -> BindError:
    if right.kind is Kind.STRING and left.kind is not Kind.STRING:
        hint = how_to_convert(right, left)
    else:
        hint = how_to_convert(left, right)
    return BindError(f"cannot {doing} {left} with {right}", hint=hint)


def case(branches: Sequence[tuple[Expr, Expr]], otherwise: Expr | None = None) -> Case:
    """CASE with BOOLEAN conditions and results of one type."""
    conditions = []
    for condition, _ in branches:
        found = coerce(condition, BOOLEAN)
        if found is None:
            raise BindError(f"a condition of CASE is a BOOLEAN, got {condition.type}")
        conditions.append(found)
    last = Literal(None, NULL) if otherwise is None else otherwise
    *results, last = unify([*(r for _, r in branches), last], "combine in one CASE")
    return Case(tuple(zip(conditions, results, strict=True)), last, last.type)
