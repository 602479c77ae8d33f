"""The functions on TIMESTAMP, DATE and INTERVAL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import BindError, suggest
from penstock.functions import operators
from penstock.functions.coerce import convert, is_text
from penstock.functions.signature import (
    Function,
    Resolver,
    argument,
    check_arity,
    constant_text,
    entry,
    typed,
    wrong_type,
)
from penstock.plan.expr import Call, Cast, Expr, Literal
from penstock.scalar.context import RowError
from penstock.scalar.dates import INTERVAL_PARTS, PARTS, TRUNC_UNITS, UNITS, strftime
from penstock.scalar.zones import UTC, checked
from penstock.types import BIGINT, DATE, DOUBLE, STRING, TIMESTAMP, Kind


def _unit(name: str, text: str, known: Iterable[str]) -> Literal:
    unit = UNITS.get(text.lower(), text.lower())
    if unit not in known:
        raise BindError(f"`{name}` has no unit `{text}`", hint=suggest(text, known))
    return Literal(unit, STRING)


def _extract(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    return _part(name, constant_text(name, args, 0, "a unit"), args, 1)


def _part(name: str, part: str, args: Sequence[Expr], position: int) -> Expr:
    arg = args[position]
    if arg.type.kind is Kind.INTERVAL:
        unit = _unit(name, part, (*INTERVAL_PARTS, "epoch"))
        return Call("interval_part", (unit, arg), DOUBLE if unit.value == "epoch" else BIGINT)
    unit = _unit(name, part, PARTS)
    ticks = argument(name, args, position, TIMESTAMP)
    return Call("extract", (unit, ticks), DOUBLE if unit.value == "epoch" else BIGINT)


def _named_part(part: str) -> Resolver:
    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, 1)
        return _part(name, part, args, 0)

    return resolve


def _date_trunc(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    unit = _unit(name, constant_text(name, args, 0, "a unit"), TRUNC_UNITS)
    return Call("date_trunc", (unit, argument(name, args, 1, TIMESTAMP)), TIMESTAMP)


def _date_diff(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 3)
    if len(args) == 2:
        end, start = (argument(name, args, i, TIMESTAMP) for i in range(2))
        unit = Literal("day", STRING)
    else:
        unit = _unit(name, constant_text(name, args, 0, "a unit"), TRUNC_UNITS)
        start, end = (argument(name, args, i, TIMESTAMP) for i in (1, 2))
    return Call("date_diff", (unit, start, end), BIGINT)


def _moved(operator: str) -> Resolver:
    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 2, 2)
        start = convert(args[0], DATE) if is_text(args[0]) else args[0]
        if start.type.kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.NULL):
            raise wrong_type(name, 0, 2, "DATE or TIMESTAMP", start.type)
        if start.type.kind is Kind.NULL:
            start = convert(start, DATE)
        return (operators.add if operator == "+" else operators.subtract)(operator, (start, args[1]))

    return resolve


def _add_months(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    ticks, months = argument(name, args, 0, TIMESTAMP), argument(name, args, 1, BIGINT)
    moved = Call("add_months", (ticks, months), TIMESTAMP)
    return Cast(moved, DATE) if args[0].type.kind is Kind.DATE else moved


def _as_date(name: str, args: Sequence[Expr]) -> Expr:
    if args[0].type.kind is Kind.TIMESTAMP:
        return Cast(args[0], DATE)
    return argument(name, args, 0, DATE)


def _last_day(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    return Call("last_day", (_as_date(name, args),), DATE)


def _to_timestamp(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 2)
    if len(args) == 2:
        return Call("to_timestamp", tuple(argument(name, args, i, STRING) for i in range(2)), TIMESTAMP)
    if args[0].type.kind is Kind.DATE:
        return convert(args[0], TIMESTAMP)
    return Cast(argument(name, args, 0, STRING), TIMESTAMP)


def _to_date(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 2)
    if len(args) == 2:
        return Call("to_date", tuple(argument(name, args, i, STRING) for i in range(2)), DATE)
    if args[0].type.kind is Kind.TIMESTAMP:
        return Cast(args[0], DATE)
    return Cast(argument(name, args, 0, STRING), DATE)


def _strftime(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    ticks, pattern = argument(name, args, 0, TIMESTAMP), argument(name, args, 1, STRING)
    if isinstance(pattern, Literal) and isinstance(pattern.value, str):
        try:
            strftime(0, pattern.value)
        except RowError as e:
            raise BindError(str(e)) from None
    return Call("strftime", (ticks, pattern), STRING)


def _by_clocks(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    ticks, zone = argument(name, args, 0, TIMESTAMP), argument(name, args, 1, STRING)
    if isinstance(zone, Literal) and isinstance(zone.value, str):
        zone = Literal(checked(zone.value, BindError), STRING)
        if zone.value == UTC:
            return ticks
    return Call(name, (ticks, zone), TIMESTAMP)


def _to_ticks(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    arg = args[0] if args[0].type.kind is Kind.INTERVAL else argument(name, args, 0, TIMESTAMP)
    return Cast(arg, BIGINT)


def _from_ticks(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    return Cast(argument(name, args, 0, BIGINT), TIMESTAMP)


_PART_DOCS: dict[str, tuple[str, tuple[str, ...]]] = {
    "year": ("the year; 0 is 1 BC", ()),
    "quarter": ("1 to 4", ()),
    "month": ("1 to 12", ()),
    "week": ("ISO 8601 week, 1 to 53", ("weekofyear",)),
    "day": ("day of the month; of an INTERVAL its whole days", ("dayofmonth",)),
    "dayofweek": ("1 is Sunday, 7 is Saturday", ("dow",)),
    "isodow": ("1 is Monday, 7 is Sunday", ()),
    "dayofyear": ("1 to 366", ("doy",)),
    "hour": ("0 to 23", ()),
    "minute": ("0 to 59", ()),
    "second": ("0 to 59, without fraction", ()),
    "millisecond": ("milliseconds since the beginning of the minute", ()),
    "microsecond": ("microseconds since the beginning of the minute", ()),
    "epoch": ("seconds since 1970-01-01, of an INTERVAL its length in seconds", ()),
}


def _named(part: str) -> Function:
    doc, aliases = _PART_DOCS[part]
    takes = "TIMESTAMP|INTERVAL" if part in INTERVAL_PARTS or part == "epoch" else "TIMESTAMP"
    gives = "DOUBLE" if part == "epoch" else "BIGINT"
    return entry(f"{part}(t {takes}) -> {gives}", doc, _named_part(part), *aliases)


TIME: tuple[Function, ...] = (
    entry("extract(unit, t TIMESTAMP|INTERVAL) -> BIGINT",
          "a part of t, also written EXTRACT(unit FROM t); the units are the functions below",
          _extract, "date_part"),
    *(_named(part) for part in _PART_DOCS),
    entry("date_trunc(unit, t TIMESTAMP) -> TIMESTAMP",
          "the beginning of the microsecond … hour, day, week (Monday), month, quarter or year", _date_trunc),
    entry("date_diff(unit, start TIMESTAMP, end TIMESTAMP) -> BIGINT",
          "how many beginnings of the unit are passed; date_diff(end, start) counts days",
          _date_diff, "datediff"),
    entry("date_add(t DATE|TIMESTAMP, by INT|INTERVAL) -> DATE or TIMESTAMP",
          "t + by: days on a DATE, or an INTERVAL", _moved("+")),
    entry("date_sub(t DATE|TIMESTAMP, by INT|INTERVAL) -> DATE or TIMESTAMP", "t - by", _moved("-")),
    entry("add_months(t DATE|TIMESTAMP, n BIGINT) -> same",
          "the same day n months later, or the last of that month", _add_months),
    entry("last_day(d DATE|TIMESTAMP) -> DATE", "the last day of the month", _last_day),
    entry("make_date(year BIGINT, month BIGINT, day BIGINT) -> DATE", "a day that does not exist fails",
          typed("make_date", (BIGINT, BIGINT, BIGINT), DATE)),
    entry("make_timestamp(year BIGINT, month BIGINT, day BIGINT, hour BIGINT, minute BIGINT,"
          " second DOUBLE) -> TIMESTAMP",
          "a moment that does not exist fails",
          typed("make_timestamp", (BIGINT, BIGINT, BIGINT, BIGINT, BIGINT, DOUBLE), TIMESTAMP)),
    entry("to_timestamp(text STRING[, format STRING]) -> TIMESTAMP",
          "ISO 8601, or by Python's strptime format; other texts fail", _to_timestamp, "strptime"),
    entry("to_date(text STRING[, format STRING]) -> DATE",
          "YYYY-MM-DD, or by Python's strptime format; other texts fail", _to_date),
    entry("strftime(t TIMESTAMP, format STRING) -> STRING",
          "t by a format of %Y %m %d %H %M %S %f and the like; always in English", _strftime, "date_format"),
    entry("from_utc_timestamp(t TIMESTAMP, zone STRING) -> TIMESTAMP",
          "what clocks of the zone show at t, shown as if it were UTC", _by_clocks),
    entry("to_utc_timestamp(t TIMESTAMP, zone STRING) -> TIMESTAMP",
          "when clocks of the zone show what t is in UTC", _by_clocks),
    entry("current_timezone() -> STRING", "the time zone in which the query is bound",
          typed("current_timezone", (), STRING)),
    entry("to_ticks(t TIMESTAMP|INTERVAL) -> BIGINT", "microseconds, since 1970-01-01 for a TIMESTAMP",
          _to_ticks),
    entry("from_ticks(n BIGINT) -> TIMESTAMP", "the moment n microseconds after 1970-01-01", _from_ticks),
)  # fmt: skip
