"""Expressions and windows as CQL-like text, for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from penstock.model.schema import Clock, Schema
from penstock.model.types import STRING, DataType, Kind
from penstock.plan.nodes import AggregateCall, SortKey
from penstock.plan.window import (
    Generic,
    Now,
    PartitionRows,
    Range,
    Rows,
    Session,
    Unbounded,
    WindowSpec,
)
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound

_BINDING = {
    "or": 1, "and": 2, "not": 3,
    "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "is_not_distinct": 4, "is_null": 4, "in": 4, "like": 4,
    "ilike": 4,
    "||": 5, "+": 6, "-": 6, "*": 7, "/": 7, "div": 7, "%": 7, "neg": 8,
}  # fmt: skip
_WORDS = {"and": "AND", "or": "OR", "div": "DIV", "is_not_distinct": "IS NOT DISTINCT FROM"}
_ATOM = 9
_UNITS = ((86_400_000_000, "DAY"), (3_600_000_000, "HOUR"), (60_000_000, "MINUTE"), (1_000_000, "SECOND"),
          (1_000, "MILLISECOND"), (1, "MICROSECOND"))  # fmt: skip


def show_expr(expr: Expr, schema: Schema) -> str:
    """The expression with the schema's names for its columns.

    >>> from penstock.plan.nodes import Field
    >>> from penstock.model.types import BOOLEAN, INT
    >>> show_expr(Call(">", (Column(0, INT), Literal(5, INT)), BOOLEAN), (Field("a", INT),))
    'a > 5'
    """
    return _show(expr, [show_name(f.name) for f in schema])[0]


Names = Sequence[str]
"""What the columns of a row are called, quoted where need be."""


def show_with(expr: Expr, names: Names) -> str:
    """The expression with these names for its columns."""
    return _show(expr, names)[0]


def _show(expr: Expr, names: Names) -> tuple[str, int]:
    """The text, and how strongly its outermost operator binds."""
    match expr:
        case Column(index, _, name):
            return names[index] if index < len(names) else show_name(name), _ATOM
        case Literal(value, dtype):
            return show_literal(value, dtype), _ATOM
        case Call(function, args, _):
            return _call(function, args, names)
        case UserCall(function, args, _):
            return f"{show_name(function)}({_list(args, names)})", _ATOM
        case Case(branches, otherwise, _):
            whens = " ".join(f"WHEN {show_with(c, names)} THEN {show_with(r, names)}" for c, r in branches)
            return f"CASE {whens} ELSE {show_with(otherwise, names)} END", _ATOM
        case Cast(arg, dtype, safe, zone):
            clock = "" if zone == "UTC" else f" IN {show_literal(zone, STRING)}"
            return f"{'TRY_CAST' if safe else 'CAST'}({show_with(arg, names)} AS {dtype}{clock})", _ATOM
        case WindowBound(which, _):
            return f"window_{which}", _ATOM


def _call(function: str, args: tuple[Expr, ...], names: Names) -> tuple[str, int]:
    level = _BINDING.get(function)
    if level is None:
        return f"{show_name(function)}({_list(args, names)})", _ATOM

    def part(i: int, least: int) -> str:
        text, binds = _show(args[i], names)
        return text if binds >= least else f"({text})"

    match function:
        case "not":
            return f"NOT {part(0, level)}", level
        case "neg":
            return f"-{part(0, level + 1)}", level
        case "is_null":
            return f"{part(0, level + 1)} IS NULL", level
        case "in":
            return f"{part(0, level + 1)} IN ({_list(args[1:], names)})", level
        case "like" | "ilike":
            escape = args[2] if len(args) > 2 else Literal("", STRING)
            named = "" if escape == Literal("\\", STRING) else f" ESCAPE {_show(escape, names)[0]}"
            return f"{part(0, level + 1)} {function.upper()} {part(1, level + 1)}{named}", level
    first = part(0, level if level not in (4,) else level + 1)
    rest = [part(i, level + 1) for i in range(1, len(args))]
    return f" {_WORDS.get(function, function)} ".join([first, *rest]), level


def _list(args: tuple[Expr, ...], names: Names) -> str:
    return ", ".join(show_with(a, names) for a in args)


def show_name(name: str) -> str:
    """A name, quoted where it is not a plain word."""
    if re.fullmatch(r"[^\W\d]\w*", name):
        return name
    return '"' + name.replace('"', '""') + '"'


def show_literal(value: object, dtype: DataType) -> str:
    """A constant as it could stand in CQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, tuple):
        element = dtype.element or dtype
        return "ARRAY[" + ", ".join(show_literal(v, element) for v in value) + "]"
    if isinstance(value, int):
        if dtype.kind is Kind.INTERVAL:
            return show_duration(value, "timestamp")
        if dtype.kind in (Kind.DATE, Kind.TIMESTAMP):
            return _moment(value, dtype)
    if isinstance(value, Decimal | int | float):
        return str(value)
    return repr(value)


def _moment(value: int, dtype: DataType) -> str:
    try:
        if dtype.kind is Kind.DATE:
            return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        return f"TIMESTAMP '{at.replace(tzinfo=None)}'"
    except OverflowError:
        return f"CAST({value} AS {dtype})"


def show_duration(ticks: int, clock: Clock) -> str:
    """A duration in the largest unit that is exact; streams that count ticks have bare numbers."""
    if clock == "ticks":
        return str(ticks)
    size, unit = next((s, u) for s, u in _UNITS if ticks % s == 0) if ticks else (1_000_000, "SECOND")
    count = ticks // size
    return f"{count} {unit}{'' if count == 1 else 'S'}"


def show_window(spec: WindowSpec, names: Names, clock: Clock) -> str:
    """The window as in CQL, in brackets."""
    match spec:
        case Unbounded():
            text = "RANGE UNBOUNDED"
        case Now():
            text = "NOW"
        case Rows(size, slide):
            text = f"ROWS {size}" + (f" SLIDE {slide}" if slide != 1 else "")
        case PartitionRows(keys, size):
            text = f"PARTITION BY {_keys(keys, names)} ROWS {size}"
        case Range(size, slide):
            text = f"RANGE {show_duration(size, clock)}"
            text += f" SLIDE {show_duration(slide, clock)}" if slide is not None else ""
        case Session(gap, keys):
            text = f"PARTITION BY {_keys(keys, names)} " if keys else ""
            text += f"SESSION GAP {show_duration(gap, clock)}"
        case Generic():
            text = _generic(spec, clock)
    return f"[{text}]"


def _keys(keys: tuple[int, ...], names: Names) -> str:
    return ", ".join(names[k] for k in keys)


def _generic(spec: Generic, clock: Clock) -> str:
    if spec.from_first and spec.begin == 0 and spec.hop_low == spec.hop_high:
        size = show_duration(spec.end, clock)
        if spec.hop_low == spec.end and spec.end_query is None:
            return f"TUMBLING {size}"
        if spec.end_query is None:
            return f"HOPPING {size} EVERY {show_duration(spec.hop_low, clock)}"
    unit = " TUPLES" if spec.unit == "tuples" else ""

    def size_of(n: int) -> str:
        return str(n) if unit else show_duration(n, clock)

    def at(n: int) -> str:
        if unit or clock == "ticks":
            return f"{n}{unit}"
        return _moment(n, DataType(Kind.TIMESTAMP))

    text = f"BEGIN WINDOW {at(spec.begin)} END WINDOW {at(spec.end)}"
    text += f" HOP SIZE ({size_of(spec.hop_low)}, {size_of(spec.hop_high)})"
    return text + (f" END QUERY {at(spec.end_query)}" if spec.end_query is not None else "")


def show_aggregate(call: AggregateCall, names: Names) -> str:
    """An aggregate as it would be written."""
    inside = _list(call.args, names) or "*"
    text = f"{call.function}({'DISTINCT ' if call.distinct else ''}{inside})"
    return text + (f" FILTER (WHERE {show_with(call.where, names)})" if call.where is not None else "")


def show_sort_key(key: SortKey, names: Names) -> str:
    """An ORDER BY key; NULLS is named where it is not the default."""
    text = show_with(key.expr, names) + (" DESC" if key.descending else "")
    if key.nulls_first == key.descending:
        text += " NULLS FIRST" if key.nulls_first else " NULLS LAST"
    return text
