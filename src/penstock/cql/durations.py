"""Lengths of time in a text, as ticks."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation, Overflow

from sqlglot import exp

from penstock.model.durations import MONTHS, MOST_MONTHS, TICKS, duration_parts, no_length, shortened, unit_name, whole
from penstock.model.errors import BindError


def interval_ticks(node: exp.Interval) -> int:
    """Ticks of an interval literal of fixed length."""
    months, ticks = interval_parts(node)
    if months:
        raise no_length("month")
    return ticks


def interval_parts(node: exp.Interval) -> tuple[int, int]:
    """(months, ticks) of an interval literal."""
    value, unit = node.this, node.args.get("unit")
    if unit is None:
        return duration_parts(str(value.this) if value is not None else "")
    sign = 1
    while isinstance(value, exp.Neg | exp.Paren):
        sign = -sign if isinstance(value, exp.Neg) else sign
        value = value.this
    if not isinstance(value, exp.Literal):
        raise BindError("an INTERVAL needs a constant number", hint="write for example INTERVAL '10' MINUTE")
    name = unit_name(unit.name)
    try:
        number = Decimal(value.name.strip())
    except (InvalidOperation, Overflow):
        raise BindError(f"'{shortened(value.name)}' is not a number of {name.lower()}s") from None
    number = number.copy_negate() if sign < 0 else number
    if name in MONTHS:
        return whole(number, MONTHS[name], f"{value.name} {name}", MOST_MONTHS), 0
    return 0, whole(number, TICKS[name], f"{value.name} {name}")
