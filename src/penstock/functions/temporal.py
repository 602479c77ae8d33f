"""The functions on TIMESTAMP, DATE and INTERVAL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.functions import operators
from penstock.functions.coerce import convert, is_text
from penstock.functions.signature import (
    Function,
    Resolver,
    argument,
    check_arity,
    constant_text,
    entry,
    number,
    typed,
    wrong_type,
)
from penstock.model.errors import BindError, suggest
from penstock.model.types import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP, Kind, decimal
from penstock.scalar.calendar import SECOND
from penstock.scalar.context import RowError
from penstock.scalar.dates import INTERVAL_PARTS, PARTS, TRUNC_NAMES, TRUNC_UNITS, UNITS, strftime
from penstock.scalar.expr import Call, Cast, Expr, Literal
from penstock.scalar.patterns import PatternError, pattern_of
from penstock.scalar.zones import UTC, checked


def _unit(name: str, text: str, known: Iterable[str], names: Mapping[str, str] = UNITS) -> Literal:
    unit = names.get(text.lower(), text.lower())
    if unit not in known:
        raise BindError(f"`{name}` has no unit `{text}`", hint=suggest(text, known))
    return Literal(unit, STRING)


def _extract(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    part = constant_text(name, args, 0, "a unit")
    if UNITS.get(part.lower()) != "second":
        return _part(name, part, args, 1)
    interval = args[1].type.kind is Kind.INTERVAL
    arg = args[1] if interval else argument(name, args, 1, TIMESTAMP)
    return Call("interval_seconds" if interval else "seconds", (arg,), decimal(8, 6))


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
    unit = _unit(name, constant_text(name, args, 0, "a unit"), TRUNC_UNITS, TRUNC_NAMES)
    return Call("date_trunc", (unit, argument(name, args, 1, TIMESTAMP)), TIMESTAMP)


def trunc_date(name: str, args: Sequence[Expr]) -> Expr:
    """The first DATE of a unit that is longer than a day."""
    check_arity(name, len(args), 2, 2)
    known = [u for u in TRUNC_UNITS if u in ("week", "month", "quarter", "year")]
    unit = _unit(name, constant_text(name, args, 1, "a unit"), known, TRUNC_NAMES)
    return Cast(Call("date_trunc", (unit, convert(args[0], TIMESTAMP)), TIMESTAMP), DATE)


def _date_diff(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 3)
    if len(args) == 2:
        end, start = (_as_date(name, args, i) for i in range(2))
        return convert(Call("-", (end, start), INT), BIGINT)
    unit = _unit(name, constant_text(name, args, 0, "a unit"), TRUNC_UNITS)
    return Call("timestampdiff", (unit, *(argument(name, args, i, TIMESTAMP) for i in (1, 2))), BIGINT)


def _moved(operator: str) -> Resolver:
    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 2, 2)
        start = convert(args[0], DATE) if is_text(args[0]) else args[0]
        if start.type.kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.NULL):
            raise wrong_type(name, 0, 2, "DATE or TIMESTAMP", start.type)
        if start.type.kind is Kind.NULL:
            start = convert(start, DATE)
        if start.type.kind is Kind.TIMESTAMP and args[1].type.is_integer:
            start = Cast(start, DATE)
        return (operators.add if operator == "+" else operators.subtract)(operator, (start, args[1]))

    return resolve


def _add_months(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    return operators.add_months(name, (_as_date(name, args), argument(name, args, 1, BIGINT)))


def _as_date(name: str, args: Sequence[Expr], position: int = 0) -> Expr:
    if args[position].type.kind is Kind.TIMESTAMP:
        return Cast(args[position], DATE)
    return argument(name, args, position, DATE)


def _last_day(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    return Call("last_day", (_as_date(name, args),), DATE)


def _parsed(name: str, args: Sequence[Expr]) -> Expr:
    text, pattern = argument(name, args, 0, STRING), argument(name, args, 1, STRING)
    _check_pattern(name, pattern, reading=True)
    return Call("parse_timestamp", (text, pattern), TIMESTAMP)


def _check_pattern(name: str, pattern: Expr, *, reading: bool) -> None:
    """A pattern that stands in the query is checked at once."""
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        return
    try:
        pattern_of(pattern.value, reading)
    except PatternError as e:
        other = "strptime" if reading else "strftime"
        hint = f"patterns with % are those of `{other}`" if "%" in pattern.value else None
        raise BindError(f"'{pattern.value}' is not a pattern of `{name}`: {e}", hint=hint) from None


def _to_timestamp(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 2)
    if len(args) == 2:
        return _parsed(name, args)
    if args[0].type.kind in (Kind.DATE, Kind.TIMESTAMP):
        return convert(args[0], TIMESTAMP)
    return Call("read_timestamp", (argument(name, args, 0, STRING),), TIMESTAMP)


def _to_date(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 2)
    if len(args) == 2:
        return Cast(_parsed(name, args), DATE)
    if args[0].type.kind in (Kind.DATE, Kind.TIMESTAMP):
        return args[0] if args[0].type.kind is Kind.DATE else Cast(args[0], DATE)
    return Call("read_date", (argument(name, args, 0, STRING),), DATE)


def _date_format(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    ticks, pattern = argument(name, args, 0, TIMESTAMP), argument(name, args, 1, STRING)
    _check_pattern(name, pattern, reading=False)
    return Call("date_format", (ticks, pattern), STRING)


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


def _timestamp_of(ticks: int) -> Resolver:
    """A number of units of so many ticks since 1970 as a TIMESTAMP."""

    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, 1)
        arg = number(name, args, 0, BIGINT) if ticks == SECOND else argument(name, args, 0, BIGINT)
        return Cast(convert(operators.multiply("*", (arg, Literal(ticks, BIGINT))), BIGINT), TIMESTAMP)

    return resolve


def _units_since(unit: str, ticks: int) -> Resolver:
    """How many whole units of so many ticks have passed since 1970."""

    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, 1)
        begin = Call("date_trunc", (Literal(unit, STRING), argument(name, args, 0, TIMESTAMP)), TIMESTAMP)
        return Call("div", (Cast(begin, BIGINT), Literal(ticks, BIGINT)), BIGINT)

    return resolve


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
    entry("extract(unit, t TIMESTAMP|INTERVAL) -> BIGINT, for a second DECIMAL(8, 6)",
          "a part of t, also written EXTRACT(unit FROM t); the units are those below; a second has its fraction",
          _extract, "date_part"),
    *(_named(part) for part in _PART_DOCS),
    entry("date_trunc(unit, t TIMESTAMP) -> TIMESTAMP",
          "the beginning of the microsecond … hour, day, week (Monday), month, quarter or year", _date_trunc),
    entry("date_diff(unit, start TIMESTAMP, end TIMESTAMP) -> BIGINT",
          "how many whole units lie between; date_diff(end, start) counts the days from one DATE to the other",
          _date_diff, "datediff", "timestampdiff"),
    entry("date_add(t DATE|TIMESTAMP, by INT|INTERVAL) -> DATE or TIMESTAMP",
          "t + by: so many days after the day of t, a DATE; or an INTERVAL after t", _moved("+")),
    entry("date_sub(t DATE|TIMESTAMP, by INT|INTERVAL) -> DATE or TIMESTAMP", "t - by", _moved("-")),
    entry("add_months(d DATE|TIMESTAMP, n BIGINT) -> DATE",
          "the same day n months later, or the last of that month", _add_months),
    entry("last_day(d DATE|TIMESTAMP) -> DATE", "the last day of the month", _last_day),
    entry("make_date(year BIGINT, month BIGINT, day BIGINT) -> DATE", "a day that does not exist fails",
          typed("make_date", (BIGINT, BIGINT, BIGINT), DATE)),
    entry("make_timestamp(year BIGINT, month BIGINT, day BIGINT, hour BIGINT, minute BIGINT,"
          " second DOUBLE) -> TIMESTAMP",
          "a moment that does not exist fails; second 60 is the next minute",
          typed("make_timestamp", (BIGINT, BIGINT, BIGINT, BIGINT, BIGINT, DOUBLE), TIMESTAMP)),
    entry("to_timestamp(text STRING[, pattern STRING]) -> TIMESTAMP",
          "YYYY-MM-DD HH:MM:SS as Spark reads it, or by one of Spark's patterns; other texts fail", _to_timestamp),
    entry("to_date(text STRING[, pattern STRING]) -> DATE",
          "YYYY-MM-DD and what follows as Spark reads it, or by one of Spark's patterns; other texts fail", _to_date),
    entry("date_format(t TIMESTAMP, pattern STRING) -> STRING",
          "t by one of Spark's patterns, like yyyy-MM-dd HH:mm", _date_format),
    entry("strptime(text STRING, format STRING) -> TIMESTAMP",
          "text by a format of Python's strptime, like %Y-%m-%d; other texts fail",
          typed("strptime", (STRING, STRING), TIMESTAMP)),
    entry("strftime(t TIMESTAMP, format STRING) -> STRING",
          "t by a format of %Y %m %d %H %M %S %f and the like; always in English", _strftime),
    entry("timestamp_seconds(n NUMBER) -> TIMESTAMP", "the moment n seconds after 1970-01-01",
          _timestamp_of(SECOND)),
    entry("timestamp_millis(n BIGINT) -> TIMESTAMP", "the moment n milliseconds after 1970-01-01",
          _timestamp_of(SECOND // 1000)),
    entry("timestamp_micros(n BIGINT) -> TIMESTAMP", "the moment n microseconds after 1970-01-01",
          _timestamp_of(1)),
    entry("unix_seconds(t TIMESTAMP) -> BIGINT", "whole seconds since 1970-01-01", _units_since("second", SECOND)),
    entry("unix_millis(t TIMESTAMP) -> BIGINT", "whole milliseconds since 1970-01-01",
          _units_since("millisecond", SECOND // 1000)),
    entry("unix_micros(t TIMESTAMP) -> BIGINT", "microseconds since 1970-01-01", _units_since("microsecond", 1)),
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
