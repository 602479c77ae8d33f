"""The time zone of functions and conversions: it is made a part of what they are resolved to.

So a bound query says by itself what it means, wherever and whenever it runs. What does not depend on a zone, and what
is in UTC, does not name one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.model.errors import BindError
from penstock.model.types import STRING, Kind
from penstock.scalar import fold
from penstock.scalar.casts import cast_value, is_zoned
from penstock.scalar.context import RowError
from penstock.scalar.dates import ZONED
from penstock.scalar.expr import Call, Cast, Expr, Literal, children, with_children
from penstock.scalar.zones import UTC


def in_zone(expr: Expr, zone: str, given: Sequence[Expr] = ()) -> Expr:
    """What something has been resolved to, by the clocks of a zone. ``given``: its arguments, which are so already."""
    return _in_zone(expr, zone, {id(arg) for arg in given})


def _in_zone(expr: Expr, zone: str, given: set[int]) -> Expr:
    if id(expr) in given or _of_days(expr, given):
        return expr
    args = children(expr)
    changed = tuple(_in_zone(arg, zone, given) for arg in args)
    if any(new is not old for new, old in zip(changed, args, strict=True)):
        expr = with_children(expr, changed)
    match expr:
        case Cast(arg, dtype, safe) if is_zoned(arg.type, dtype):
            expr = replace(expr, zone=zone)
            if isinstance(arg, Literal) and not safe:
                return _constant(expr, arg)
        case Call(function, args, _) if zone != UTC and len(args) == ZONED.get(function):
            if not (function == "extract" and isinstance(args[0], Literal) and args[0].value == "epoch"):
                return replace(expr, args=(*args, Literal(zone, STRING)))
    return expr


def _constant(expr: Cast, arg: Literal) -> Expr:
    found = fold(expr)
    if found is None and arg.type.kind is Kind.STRING:
        raise BindError(why_not(expr, arg))
    return expr if found is None else found


def why_not(expr: Cast, constant: Literal) -> str:
    """Why a constant cannot be cast."""
    try:
        cast_value(constant.value, constant.type, expr.type, expr.zone)
    except RowError as why:
        return str(why)
    return f"{repr(constant.value)[:50]} is not a {expr.type}"


def _of_days(expr: Expr, given: set[int]) -> bool:
    """Whether a function is on DATEs that were made TIMESTAMPs for it alone: a day is the same day in all zones."""
    match expr:
        case Cast(Call("add_months") as moved, dtype) if dtype.kind is Kind.DATE and id(moved) not in given:
            return _of_days(moved, given)
        case Call("date_trunc"):
            return False
        case Call(function, args, _) if function in ZONED:
            times = [arg for arg in args if arg.type.kind is Kind.TIMESTAMP]
            return bool(times) and all(
                isinstance(arg, Cast) and arg.arg.type.kind is Kind.DATE and id(arg) not in given for arg in times
            )
    return False
