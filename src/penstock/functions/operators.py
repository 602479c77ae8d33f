"""The types of operators: what `+` means between which types, and what comparisons compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from penstock.functions.coerce import coerce, convert, is_text, unify
from penstock.functions.signature import Resolver, argument, check_arity, typed, wrong_type
from penstock.model.errors import BindError
from penstock.model.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    as_decimal,
    common_type,
    decimal,
)
from penstock.scalar.context import RowError
from penstock.scalar.expr import Call, Cast, Expr, Literal
from penstock.scalar.strings import like_parts

_TIMES = (Kind.TIMESTAMP, Kind.DATE)


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def comparison(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    left, right = args
    if left.type.is_integer:
        name, right = _whole_bound(name, right)
    elif right.type.is_integer:
        turned, left = _whole_bound(_FLIPPED.get(name, name), left)
        name = _FLIPPED.get(turned, turned)
    return Call(name, tuple(unify((left, right), "compare")), BOOLEAN)


def _whole_bound(name: str, bound: Expr) -> tuple[str, Expr]:
    """What a whole number is compared with: `i < 1.5` is `i <= 1`, which needs no DECIMAL."""
    value = bound.value if isinstance(bound, Literal) else None
    if not isinstance(value, Decimal) or not -(2**63) <= value < 2**63:
        return name, bound
    whole = math.floor(value)
    if whole != value:
        if name not in _FLIPPED:
            return name, bound
        name = "<=" if name in ("<", "<=") else ">"
    return name, Literal(whole, INT if -(2**31) <= whole < 2**31 else BIGINT)


def membership(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, None)
    return Call("in", tuple(unify(args, "compare")), BOOLEAN)


def is_null(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    return Call("is_null", tuple(args), BOOLEAN)


def concat(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    return Call("||", tuple(as_text(name, args, i) for i in range(2)), STRING)


def as_text(name: str, args: Sequence[Expr], position: int) -> Expr:
    """Text of whatever has a text; bytes and arrays are not meant to be read."""
    arg = args[position]
    if arg.type.kind in (Kind.BINARY, Kind.ARRAY):
        raise wrong_type(name, position, len(args), "STRING", arg.type)
    return convert(arg, STRING)


def _both_null(args: Sequence[Expr]) -> Sequence[Expr]:
    if all(a.type.kind is Kind.NULL for a in args):
        return [convert(a, INT) for a in args]
    return args


def _no_operator(name: str, left: Expr, right: Expr) -> BindError:
    hint = None
    kinds = {left.type.kind, right.type.kind}
    if Kind.STRING in kinds:
        hint = "write || to join texts, or CAST the text first" if name == "+" else "CAST the text first"
    elif Kind.TIMESTAMP in kinds and (left.type.is_numeric or right.type.is_numeric):
        hint = "write INTERVAL 1 SECOND, for example"
    return BindError(f"there is no `{name}` between {left.type} and {right.type}", hint=hint)


def _is_number(expr: Expr) -> bool:
    return expr.type.is_numeric or expr.type.kind is Kind.NULL


def _arithmetic(name: str, left: Expr, right: Expr) -> Expr | None:
    """Both sides numbers: in the wider type; DECIMAL widens so that no digit is lost, up to 38."""
    if not _is_number(left) or not _is_number(right):
        return None
    common = common_type(left.type, right.type)
    assert common is not None
    if common.kind is not Kind.DECIMAL:
        return Call(name, (convert(left, common), convert(right, common)), common)
    left, right = (convert(e, common if e.type.kind is Kind.NULL else _decimal_of(e)) for e in (left, right))
    return Call(name, (left, right), _decimal_result(name, left.type, right.type))


def _decimal_of(expr: Expr) -> DataType:
    """The DECIMAL that holds a number: of a constant as narrow as its digits."""
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return decimal(len(str(abs(expr.value))), 0)
    return as_decimal(expr.type)


def _decimal_result(name: str, a: DataType, b: DataType) -> DataType:
    assert a.precision is not None
    assert a.scale is not None
    assert b.precision is not None
    assert b.scale is not None
    if name == "*":
        return decimal(a.precision + b.precision + 1, a.scale + b.scale)
    scale = max(a.scale, b.scale)
    return decimal(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def add(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    left, right = _both_null(args)
    if right.type.kind in _TIMES and left.type.kind not in _TIMES:
        left, right = right, left
    return _shifted("+", left, right) or _arithmetic("+", left, right) or _raise("+", left, right)


def subtract(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    left, right = _both_null(args)
    times = left.type.kind in _TIMES, right.type.kind in _TIMES
    if times == (True, True):
        if left.type == right.type == DATE:
            return Call("-", (left, right), INT)
        return Call("-", (convert(left, TIMESTAMP), convert(right, TIMESTAMP)), INTERVAL)
    if times == (False, True):
        if left.type.kind is Kind.NULL:
            return subtract(name, (convert(left, right.type), right))
        raise _no_operator("-", left, right)
    return _shifted("-", left, right) or _arithmetic("-", left, right) or _raise("-", left, right)


def _shifted(name: str, left: Expr, right: Expr) -> Expr | None:
    """A point in time, or an interval, moved by an interval or by days."""
    if left.type.kind is Kind.DATE and right.type.is_integer:
        return Call(name, (left, convert(right, BIGINT)), DATE)
    if left.type.kind in _TIMES and right.type.kind in (Kind.INTERVAL, Kind.NULL):
        return Call(name, (convert(left, TIMESTAMP), convert(right, INTERVAL)), TIMESTAMP)
    if Kind.INTERVAL in (left.type.kind, right.type.kind) and not is_text(left) and not is_text(right):
        a, b = coerce(left, INTERVAL), coerce(right, INTERVAL)
        if a is not None and b is not None:
            return Call(name, (a, b), INTERVAL)
    return None


def _raise(name: str, left: Expr, right: Expr) -> Expr:
    raise _no_operator(name, left, right)


def multiply(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    left, right = _both_null(args)
    if right.type.kind is Kind.INTERVAL:
        left, right = right, left
    if left.type.kind is Kind.INTERVAL and _is_number(right):
        factor = convert(right, BIGINT if right.type.is_integer else DOUBLE)
        return Call("scale_interval", (left, factor), INTERVAL)
    return _arithmetic("*", left, right) or _raise("*", left, right)


def divide(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    left, right = args
    if left.type.kind is Kind.INTERVAL and _is_number(right):
        return Call("divide_interval", (left, convert(right, DOUBLE)), INTERVAL)
    if not _is_number(left) or not _is_number(right):
        raise _no_operator("/", left, right)
    return Call("/", (convert(left, DOUBLE), convert(right, DOUBLE)), DOUBLE)


def integer_divide(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    left, right = _both_null(args)
    if not _is_number(left) or not _is_number(right):
        raise _no_operator("DIV", left, right)
    return Call("div", tuple(unify((left, right))), BIGINT)


def modulo(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    left, right = _both_null(args)
    if not _is_number(left) or not _is_number(right):
        raise _no_operator("%", left, right)
    a, b = unify((left, right))
    return Call("%", (a, b), a.type)


def negate(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    (arg,) = _both_null(args)
    if not arg.type.is_numeric and arg.type.kind is not Kind.INTERVAL:
        raise BindError(f"there is no `-` before {arg.type}")
    return Call("neg", (arg,), arg.type)


def like(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 3)
    text, pattern, escape = (argument(name, [*args, Literal("\\", STRING)], i, STRING) for i in range(3))
    if isinstance(escape, Literal) and isinstance(escape.value, str):
        known = pattern.value if isinstance(pattern, Literal) and isinstance(pattern.value, str) else ""
        try:
            like_parts(known, escape.value)
        except RowError as e:
            twice = known + escape.value
            hint = f"write '{twice}' for the character itself" if len(escape.value) == 1 else "ESCAPE '' is none"
            raise BindError(str(e), hint=hint) from None
    return Call(name, (text, pattern, escape), BOOLEAN)


def add_months(name: str, args: Sequence[Expr]) -> Expr:
    """A DATE or TIMESTAMP moved by months, of the same type."""
    check_arity(name, len(args), 2, 2)
    ticks, months = argument(name, args, 0, TIMESTAMP), argument(name, args, 1, BIGINT)
    moved = Call("add_months", (ticks, months), TIMESTAMP)
    return Cast(moved, DATE) if args[0].type.kind is Kind.DATE else moved


def coalesce(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, None)
    bound = unify(args)
    return Call("coalesce", tuple(bound), bound[0].type)


def nullif(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    bound = unify(args, "compare")
    return Call("nullif", tuple(bound), bound[0].type)


# Operators, by the names of ``plan.expr``; TRIM by its side, and what is added as INTERVAL … MONTH. COALESCE and NULLIF
# are listed among the functions too.
OPERATORS: dict[str, Resolver] = {
    "and": typed("and", (BOOLEAN, BOOLEAN), BOOLEAN),
    "or": typed("or", (BOOLEAN, BOOLEAN), BOOLEAN),
    "not": typed("not", (BOOLEAN,), BOOLEAN),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "is_not_distinct"), comparison),
    "is_null": is_null,
    "in": membership,
    "like": like,
    "ilike": like,
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "div": integer_divide,
    "%": modulo,
    "neg": negate,
    "||": concat,
    "+ months": add_months,
    **{f"trim {side}": typed(call, (STRING, STRING), STRING)
       for side, call in (("both", "trim"), ("leading", "ltrim"), ("trailing", "rtrim"))},
}  # fmt: skip
