"""From window brackets of the text to window specifications."""

from __future__ import annotations

from sqlglot import exp

from penstock.cql.ast import StreamWindow
from penstock.cql.durations import interval_ticks
from penstock.cql.expressions import ExpressionBinder, identifier
from penstock.cql.scope import Scope
from penstock.cql.text import position_of
from penstock.model.durations import parse_duration
from penstock.model.errors import BindError, PenstockError, suggest
from penstock.model.names import find_name
from penstock.model.schema import Clock, Schema
from penstock.model.types import TIMESTAMP, Kind
from penstock.plan.window import Generic, Now, PartitionRows, Range, Rows, Session, Unbounded, WindowSpec
from penstock.scalar import fold
from penstock.scalar.expr import Cast, Literal


def bind_window(
    node: StreamWindow, schema: Schema, clock: Clock, where: str, expressions: ExpressionBinder
) -> WindowSpec:
    """The window that brackets describe, over a stream with this schema and clock.

    ``where`` names the stream in messages; ``expressions`` binds the constants.
    """
    try:
        return _Binder(schema, clock, where, expressions).window(node)
    except PenstockError as error:
        raise error.at(position_of(node), None) from None


class _Binder:
    def __init__(self, schema: Schema, clock: Clock, where: str, expressions: ExpressionBinder) -> None:
        self.schema, self.clock, self.where = schema, clock, where
        self.constants = ExpressionBinder(expressions.catalog, Scope())

    def window(self, node: StreamWindow) -> WindowSpec:
        kind, args = node.args["kind"], node.args
        keys = tuple(self._key(c) for c in args.get("partition_by") or [])
        match kind:
            case "unbounded":
                return Unbounded()
            case "now":
                return Now()
            case "rows":
                size = self._count(args["size"], "ROWS")
                if keys:
                    if args.get("slide") is not None:
                        raise BindError("PARTITION BY … ROWS has no SLIDE")
                    return PartitionRows(keys, size)
                slide = args.get("slide")
                return Rows(size, self._count(slide, "SLIDE") if slide is not None else 1)
            case "session":
                return Session(self._duration(args["gap"], "GAP"), keys)
        if keys:
            raise BindError(f"PARTITION BY does not go with {kind.upper()}", hint="it goes with ROWS and SESSION")
        match kind:
            case "range":
                slide = args.get("slide")
                size = self._duration(args["size"], "RANGE")
                return Range(size, self._duration(slide, "SLIDE") if slide is not None else None)
            case "tumbling":
                size = self._duration(args["size"], "TUMBLING")
                return Generic("time", 0, size, size, size, from_first=True)
            case "hopping":
                size, hop = self._duration(args["size"], "HOPPING"), self._duration(args["slide"], "EVERY")
                return Generic("time", 0, size, hop, hop, from_first=True)
        return self._generic(node)

    def _generic(self, node: StreamWindow) -> Generic:
        args = node.args
        tuples = bool(args.get("tuples"))
        instant = self._tuple_number if tuples else self._instant
        begin = instant(args["begin"], "BEGIN WINDOW")
        end = instant(args["end"], "END WINDOW")
        hop = self._whole if tuples else self._any_duration
        low = hop(args["hop_low"], "HOP SIZE") if args.get("hop_low") is not None else 0
        high = hop(args["hop_high"], "HOP SIZE") if args.get("hop_high") is not None else 0
        until = args.get("end_query")
        end_query = instant(until, "END QUERY") if until is not None else None
        if end < begin or (end == begin and not tuples):
            hint = "the first window goes from BEGIN WINDOW to END WINDOW"
            raise BindError("END WINDOW is not after BEGIN WINDOW", hint=hint).at(position_of(args["end"]), None)
        reverse = high < 0 or (high == 0 and low < 0)
        if reverse and end_query is None and high >= low:
            raise BindError("a reverse window needs END QUERY", hint="it says how far back to go")
        if end_query is not None and not reverse and end_query < end:
            raise BindError("END QUERY comes before the end of the first window, so nothing would be answered")
        if end_query is not None and reverse and end_query > begin:
            raise BindError("END QUERY of a reverse window comes after the begin of its first window")
        return Generic("tuples" if tuples else "time", begin, end, low, high, end_query)

    def _key(self, column: exp.Expr) -> int:
        name = identifier(column.this if isinstance(column, exp.Column) else column)
        if (place := find_name(name, [f.name for f in self.schema])) is not None:
            return place
        hint = suggest(name, (f.name for f in self.schema))
        raise BindError(f"no column `{name}` in {self.where}", hint=hint).at(position_of(column), None)

    def _constant(self, node: exp.Expr, clause: str) -> Literal:
        value = fold(self.constants.bind(node))
        if value is None or value.value is None:
            raise BindError(f"{clause} needs a constant").at(position_of(node), None)
        return value

    def _whole(self, node: exp.Expr, clause: str) -> int:
        value = self._constant(node, clause)
        if not value.type.is_integer:
            raise BindError(f"{clause} needs a whole number of rows, not {value.type}").at(position_of(node), None)
        return int(value.value)  # type: ignore[call-overload, no-any-return]

    def _count(self, node: exp.Expr, clause: str) -> int:
        number = self._whole(node, clause)
        if number <= 0:
            raise BindError(f"{clause} must be at least 1, this is {number}").at(position_of(node), None)
        return number

    def _tuple_number(self, node: exp.Expr, clause: str) -> int:
        number = self._whole(node, clause)
        if number < 1:
            raise BindError(f"{clause}: tuples are numbered from 1, this is {number}").at(position_of(node), None)
        return number

    def _any_duration(self, node: exp.Expr, clause: str) -> int:
        sign, inner = 1, node
        while isinstance(inner, exp.Neg | exp.Paren):
            sign = -sign if isinstance(inner, exp.Neg) else sign
            inner = inner.this
        try:
            if isinstance(inner, exp.Interval):
                return sign * interval_ticks(inner)
            if isinstance(inner, exp.Literal) and inner.is_string:
                return sign * parse_duration(inner.name)
            value = self._constant(inner, clause)
            if value.type.kind is Kind.INTERVAL:
                return sign * int(value.value)  # type: ignore[call-overload, no-any-return]
            if value.type.is_integer:
                if self.clock == "ticks" or value.value == 0:
                    return sign * int(value.value)  # type: ignore[call-overload, no-any-return]
                raise BindError(
                    f"{clause} {value.value} needs a unit, because {self.where} has a TIMESTAMP clock",
                    hint=f"write for example {clause} {value.value} SECONDS",
                )
            raise BindError(f"{clause} needs a length of time, not {value.type}")
        except PenstockError as error:
            raise error.at(position_of(node), None) from None

    def _duration(self, node: exp.Expr, clause: str) -> int:
        ticks = self._any_duration(node, clause)
        if ticks >= 2**62:
            raise BindError(f"{clause} is longer than time itself", hint="use RANGE UNBOUNDED").at(
                position_of(node), None
            )
        if ticks <= 0:
            example = f"{clause} 10" if self.clock == "ticks" else f"{clause} 10 SECONDS"
            raise BindError(f"{clause} must be longer than nothing", hint=f"write for example {example}").at(
                position_of(node), None
            )
        return ticks

    def _instant(self, node: exp.Expr, clause: str) -> int:
        value = self._constant(node, clause)
        if self.clock == "ticks":
            if not value.type.is_integer:
                raise BindError(
                    f"{clause} needs a number of ticks, because {self.where} counts ticks; this is {value.type}"
                ).at(position_of(node), None)
            return int(value.value)  # type: ignore[call-overload, no-any-return]
        instant = value
        if value.type.kind in (Kind.STRING, Kind.DATE):
            instant = fold(Cast(value, TIMESTAMP, zone=self.constants.catalog.zone)) or value
        if instant.type.kind is not Kind.TIMESTAMP or instant.value is None:
            raise BindError(
                f"{clause} needs a TIMESTAMP, because {self.where} has a TIMESTAMP clock",
                hint=f"write for example {clause} TIMESTAMP '2024-05-01 10:00:00'",
            ).at(position_of(node), None)
        return int(instant.value)  # type: ignore[call-overload, no-any-return]
