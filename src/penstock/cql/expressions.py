"""From expressions of the text to bound, typed expressions.

Aggregates and sub-queries do not become expressions at once: each gets a *placeholder* column, and the query
that owns the expression puts the real column in its place when it has built the aggregate, or has attached
the sub-query to its plan.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock import functions
from penstock.cql.ast import function_call
from penstock.cql.durations import interval_parts
from penstock.cql.names import written_name
from penstock.cql.scope import OUTER, Scope
from penstock.cql.text import format_statement, parse, position_of
from penstock.model.durations import UNITS_OF_TIME, shortened
from penstock.model.errors import BindError, PenstockError, typo
from penstock.model.names import Names
from penstock.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    REAL,
    STRING,
    TIMESTAMP,
    DataType,
    Kind,
    common_type,
    decimal,
)
from penstock.plan.nodes import AggregateCall
from penstock.scalar import fold
from penstock.scalar.expr import Cast, Column, Expr, Literal, UserCall, WindowBound, in_pairs, transform, walk
from penstock.scalar.numbers import negate

if TYPE_CHECKING:
    from penstock.catalog import Catalog
    from penstock.cql.subqueries import SubQuery

# What is deeper than that may exceed Python's stack where it is optimized or evaluated.
_DEEPEST = 200
# Where placeholders live above the indices of real columns (and above ``scope.OUTER``).
AGGREGATE = 10_000_000
SUBQUERY = 20_000_000
INNER = 30_000_000

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "div", exp.Mod: "%",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.And: "and", exp.Or: "or", exp.DPipe: "||",
}  # fmt: skip
_TYPES: dict[str, DataType] = {
    "BOOLEAN": BOOLEAN, "TINYINT": INT, "SMALLINT": INT, "INT": INT, "BIGINT": BIGINT, "FLOAT": REAL,
    "REAL": REAL, "DOUBLE": DOUBLE, "VARCHAR": STRING, "TEXT": STRING, "CHAR": STRING, "NVARCHAR": STRING,
    "BINARY": BINARY, "VARBINARY": BINARY, "DATE": DATE, "TIMESTAMP": TIMESTAMP, "DATETIME": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP, "INTERVAL": INTERVAL,
}  # fmt: skip
_TYPE_NAMES = "BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, INTERVAL"


def identifier(node: exp.Expr) -> str:
    """A name as the catalog knows it: folded to lower case unless quoted."""
    name = node.name
    return name if node.args.get("quoted") else name.lower()


def declared_names(nodes: Sequence[exp.Expr]) -> list[str]:
    """The names of new columns, in the case in which they are written; two that differ only so as ``identifier``."""
    names = Names(node.name for node in nodes)
    twice = Counter(node.name for node in nodes)
    return [
        identifier(node) if twice[node.name] > 1 or names.case_matters(node.name) else node.name for node in nodes
    ]


def bind_type(node: exp.Expr) -> DataType:
    """The type that a column definition or a cast names."""
    if not isinstance(node, exp.DataType):
        node = node.find(exp.DataType) or node
    this = node.this
    if isinstance(this, exp.Interval):
        return INTERVAL
    name = getattr(this, "value", str(this)).upper()
    if name in ("DECIMAL", "NUMERIC"):
        for given in node.expressions:
            if not re.fullmatch(r"\d{1,2}", given.name):
                hint = "write DECIMAL(10, 2)"
                error = BindError(f"a DECIMAL has 1 to 38 digits, not {shortened(given.name)}", hint=hint)
                raise error.at(position_of(given), None)
        numbers = [int(given.name) for given in node.expressions]
        precision, scale = [*numbers, 0][:2] if numbers else (18, 6)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise BindError(f"DECIMAL({precision}, {scale}) does not exist", hint="1 to 38 digits, scale within")
        return decimal(precision, scale)
    if name in _TYPES:
        return _TYPES[name]
    raise BindError(f"no type `{node.sql()}`", hint=f"there are {_TYPE_NAMES}")


def as_priority(bound: Expr, tree: exp.Expr) -> Expr:
    """What stands behind PRIORITY BY as a number."""
    if bound.type.kind is Kind.BOOLEAN:
        return Cast(bound, BIGINT)
    if not bound.type.is_numeric:
        raise BindError(f"PRIORITY BY needs a number or a condition, this is {bound.type}").at(position_of(tree), None)
    return bound


@dataclass
class ExpressionBinder:
    """Binds the expressions of one query block against its scope."""

    catalog: Catalog
    scope: Scope
    bind_subquery: Callable[[exp.Expr, Scope], SubQuery] | None = None
    aggregates_allowed: str | None = None  # why not, or None where they are
    aggregates: list[AggregateCall] = field(default_factory=list)
    subqueries: list[SubQuery] = field(default_factory=list)
    _inside_aggregate: bool = False
    _depth: int = 0

    def bind(self, node: exp.Expr) -> Expr:
        """The bound expression; errors point at the closest place in the text."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                hint = "compute a part of it in a FROM sub-query"
                raise BindError(f"the expression is nested more than {_DEEPEST} times", hint=hint)
            return self._bind(node)
        except PenstockError as error:
            raise error.at(position_of(node), None) from None
        finally:
            self._depth -= 1

    def condition(self, node: exp.Expr, clause: str) -> Expr:
        """A bound expression that must be BOOLEAN."""
        bound = self.bind(node)
        if bound.type.kind is Kind.NULL:
            return Literal(None, BOOLEAN)
        if bound.type.kind is not Kind.BOOLEAN:
            raise BindError(f"{clause} needs a BOOLEAN, this is {bound.type}").at(position_of(node), None)
        return bound

    def _call(self, name: str, *args: Expr) -> Expr:
        return functions.resolve(name, list(args), self.catalog.zone)

    def _bind(self, node: exp.Expr) -> Expr:
        if isinstance(node, exp.And | exp.Or):
            return self._connected(node)
        if (operator := _BINARY.get(type(node))) is not None:
            return self._binary(operator, node)
        match node:
            case exp.Paren():
                return self.bind(node.this)
            case exp.Alias():
                return self.bind(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal():
                return _literal(node)
            case exp.Boolean():
                return Literal(bool(node.this), BOOLEAN)
            case exp.Null():
                return Literal(None, NULL)
            case exp.Interval():
                months, ticks = interval_parts(node)
                if months:
                    raise BindError(
                        "an INTERVAL of months can only be added to a DATE or TIMESTAMP",
                        hint="write for example at + INTERVAL '1' MONTH",
                    )
                return Literal(ticks, INTERVAL)
            case exp.Neg():
                return self._negated(node)
            case exp.Not():
                return self._not(node)
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ():
                return self._call("is_not_distinct", self.bind(node.this), self.bind(node.expression))
            case exp.NullSafeNEQ():
                same = self._call("is_not_distinct", self.bind(node.this), self.bind(node.expression))
                return self._call("not", same)
            case exp.Between():
                value = self.bind(node.this)
                low, high = self.bind(node.args["low"]), self.bind(node.args["high"])
                return self._call("and", self._call(">=", value, low), self._call("<=", value, high))
            case exp.In():
                return self._in(node)
            case exp.Exists():
                return self._attach("exists", node.this, None)
            case exp.Subquery():
                return self._attach("scalar", node, None)
            case exp.Select() | exp.SetOperation():
                return self._attach("scalar", node, None)
            case exp.Like() | exp.ILike() | exp.Escape():
                return self._like(node)
            case exp.Case():
                return self._case(node)
            case exp.Cast():
                return self._cast(node)
            case exp.AtTimeZone():
                return self._at_time_zone(node)
            case exp.Bracket():
                return self._call("element_at", self.bind(node.this), self.bind(node.expressions[0]))
            case exp.Trim():
                characters = node.expression or exp.Literal.string(" ")
                return self._call(f"trim {node.args['position'].lower()}", self.bind(node.this), self.bind(characters))
            case exp.Star():
                raise BindError("`*` stands for columns only in SELECT and count(*)")
        if (call := function_call(node)) is not None:
            return self._function(node, call.name, call.args, call.distinct, call.star, call.filter)
        raise BindError(f"`{node.sql()}` is not an expression of CQL")

    def _connected(self, node: exp.Expr) -> Expr:
        """A chain of AND or of OR, which may be long."""
        kind, parts = type(node), []
        while type(node) is kind:
            parts.append(node.expression)
            node = node.this
        bound = [self.bind(part) for part in (node, *reversed(parts))]
        return in_pairs(bound, lambda a, b: self._call(_BINARY[kind], a, b))

    def _binary(self, operator: str, node: exp.Expr) -> Expr:
        right = node.expression
        sign = -1 if isinstance(right, exp.Neg) else 1
        inner = right.this if sign < 0 else right
        if operator in ("+", "-") and isinstance(inner, exp.Interval):
            months, ticks = interval_parts(inner)
            if months:
                by = sign if operator == "+" else -sign
                moved = self._call("+ months", self.bind(node.this), Literal(by * months, INT))
                return self._call("+", moved, Literal(by * ticks, INTERVAL)) if ticks else moved
        return self._call(operator, self.bind(node.this), self.bind(right))

    def _column(self, node: exp.Column) -> Expr:
        if isinstance(node.this, exp.Star):
            raise BindError("`*` stands for columns only in SELECT and count(*)")
        name = identifier(node.this)
        table = node.args.get("table")
        qualifier = identifier(table) if table is not None else None
        bound = self.scope.window_bound
        if name in ("window_start", "window_end") and bound is not None:
            items = [i for i in self.scope.items if qualifier in (None, i.alias)]
            if items and not any(i.find(name) for i in items):
                return WindowBound("start" if name == "window_start" else "end", bound)
        try:
            return self.scope.resolve(name, qualifier)
        except BindError as error:
            unknown = qualifier is not None and not self.scope.knows(qualifier)
            if qualifier is None and node.this.args.get("quoted"):
                error.hint = f"a text is in single quotes: '{name}'" + (f"; {error.hint}" if error.hint else "")
            raise error.at(position_of(node.args["table"] if unknown else node.this), None) from None

    def _negated(self, node: exp.Neg) -> Expr:
        arg = self.bind(node.this)
        if isinstance(arg, Literal) and arg.type.is_numeric and arg.value is not None:
            assert isinstance(arg.value, int | float | Decimal)
            if arg.type.is_integer or (arg.type == decimal(19, 0) and arg.value == 2**63):
                return _integer(-int(arg.value))
            return replace(arg, value=negate(arg.value))
        return self._call("neg", arg)

    def _not(self, node: exp.Not) -> Expr:
        return self._call("not", self.bind(node.this))

    def _is(self, node: exp.Is) -> Expr:
        value = self.bind(node.this)
        what = node.expression
        if isinstance(what, exp.Null):
            return self._call("is_null", value)
        return self._call("is_not_distinct", value, Literal(bool(what.this), BOOLEAN))

    def _in(self, node: exp.In) -> Expr:
        query = node.args.get("query")
        if query is not None:
            return self._attach("in", query, self.bind(node.this))
        needle = self.bind(node.this)
        return self._call("in", needle, *(self.bind(item) for item in node.expressions))

    def _like(self, node: exp.Expr) -> Expr:
        escape = None
        if isinstance(node, exp.Escape):
            escape = self.bind(node.expression)
            node = node.this
        args = [self.bind(node.this), self.bind(node.expression)]
        if escape is not None:
            args.append(escape)
        return self._call("ilike" if isinstance(node, exp.ILike) else "like", *args)

    def _case(self, node: exp.Case) -> Expr:
        operand = self.bind(node.this) if node.this is not None else None
        conditions, results = [], []
        for branch in node.args["ifs"]:
            if operand is None:
                conditions.append(self.condition(branch.this, "WHEN"))
            else:
                conditions.append(self._call("=", operand, self.bind(branch.this)))
            results.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        results.append(self.bind(default) if default is not None else Literal(None, NULL))
        bound = functions.case(list(zip(conditions, results[:-1], strict=True)), results[-1])
        return functions.in_zone(bound, self.catalog.zone, [*conditions, *results])

    def _cast(self, node: exp.Cast) -> Expr:
        target = bind_type(node.to)
        arg = self.bind(node.this)
        bound = functions.cast(arg, target, safe=isinstance(node, exp.TryCast))
        bound = functions.in_zone(bound, self.catalog.zone, [arg])
        if isinstance(arg, Literal) and isinstance(bound, Cast) and not bound.safe:
            folded = fold(bound)
            if folded is None:
                raise BindError(functions.why_not(bound, arg))
            return folded
        return bound

    def _at_time_zone(self, node: exp.AtTimeZone) -> Expr:
        """The instant at which clocks here show what those of the zone show at the one that is given."""
        shown = self._call("from_utc_timestamp", self.bind(node.this), self.bind(node.args["zone"]))
        return self._call("to_utc_timestamp", shown, Literal(self.catalog.zone, STRING))

    def _function(
        self, node: exp.Expr, name: str, args: list[exp.Expr], distinct: bool, star: bool, where: exp.Expr | None
    ) -> Expr:
        if functions.is_aggregate(name) and name not in self.catalog.functions:
            return self._aggregate(name, args, distinct, star, where)
        if not functions.is_scalar(name) and name not in self.catalog.functions:
            raise self._no_function(name, None if distinct or star or where is not None else args)
        if distinct or star or where is not None:
            raise BindError(f"`{name}` is not an aggregate", hint="DISTINCT, * and FILTER go with aggregates")
        named = name == "extract" or (name in ("date_diff", "datediff", "timestampdiff") and len(args) == 3)
        if named and args and isinstance(args[0], exp.Literal | exp.Var | exp.Column):
            bound = [Literal(args[0].name.lower(), STRING), *(self.bind(a) for a in args[1:])]
            return self._call(name, *bound)
        try:
            bound = [self.bind(a) for a in args]
        except BindError as error:
            unit = args[0].name.lower()
            if error.unknown == (unit, None) and unit in UNITS_OF_TIME:
                called = f"{name}('{unit}', …)"
                raise BindError(f"the unit of `{name}` is a text", hint=f"write {called}").at(
                    error.position, None
                ) from None
            raise
        if (user := self.catalog.functions.get(name)) is not None:
            return self._user_call(name, bound, user.args, user.returns)
        return self._call(name, *bound)

    def _no_function(self, name: str, args: list[exp.Expr] | None) -> BindError:
        hint: str | None = "SHOW FUNCTIONS lists all"
        if name in functions.ELSEWHERE:
            hint = functions.ELSEWHERE[name]
        elif functions.is_foreign(name):
            hint = None if args is None else self._instead(name, args)
        elif meant := typo(name, [*functions.names(), *functions.AGGREGATES, *self.catalog.functions]):
            hint = f"did you mean `{meant}`?"
        return BindError(f"no function `{name}`", hint=hint)

    def _instead(self, name: str, args: list[exp.Expr]) -> str | None:
        """The hint for a call of another system's function, if what it says can be written here."""
        texts = [_operand(a) for a in args]
        if (window := functions.window_of(name, texts)) is not None:
            return self._window_instead(name, window)
        # Where others take a text for a time, here it is cast.
        as_times = [
            f"CAST({text} AS TIMESTAMP)" if self._is_text(a) else text for a, text in zip(args, texts, strict=True)
        ]
        for written in (texts, as_times):
            same = functions.instead(name, written)
            if same is not None and self._binds(same):
                return f"write {same}"
        return None

    def _window_instead(self, name: str, window: str) -> str:
        streams = [i.alias for i in self.scope.items if i.what == "stream"]
        only = streams[0] if len(self.scope.items) == 1 and streams and streams[0] in self.catalog.streams else None
        behind = f"[{window}] behind the stream in FROM" if only is None else f"FROM {written_name(only)} [{window}]"
        bound = functions.instead(name, [])
        if bound is None:
            return f"write {behind}"
        return f"write {bound}" if self.scope.window_bound is not None else f"write {bound}, and {behind}"

    def _is_text(self, node: exp.Expr) -> bool:
        try:
            return not isinstance(node, exp.Literal) and self.bind(node).type == STRING
        except BindError:
            return False

    def _binds(self, text: str) -> bool:
        """Whether an expression can be written here."""
        try:
            self.bind(parse(f"SELECT {text} FROM s")[0].tree.expressions[0])
        except PenstockError:
            return False
        return True

    def _user_call(self, name: str, args: list[Expr], wanted: tuple[DataType, ...], returns: DataType) -> Expr:
        if len(args) != len(wanted):
            raise BindError(f"function `{name}` takes {len(wanted)} arguments, got {len(args)}")
        cast: list[Expr] = []
        for i, (arg, target) in enumerate(zip(args, wanted, strict=True)):
            if arg.type != target and common_type(arg.type, target) != target:
                raise BindError(f"argument {i + 1} of `{name}` is {arg.type}, it takes {target}", hint="CAST it")
            cast.append(functions.in_zone(functions.convert(arg, target), self.catalog.zone, [arg]))
        return UserCall(name, tuple(cast), returns)

    def _aggregate(self, name: str, args: list[exp.Expr], distinct: bool, star: bool, where: exp.Expr | None) -> Expr:
        if self.aggregates_allowed is not None:
            hint = "use HAVING or a sub-query" if self.aggregates_allowed == "WHERE" else "use a sub-query"
            raise BindError(f"aggregate `{name}` in {self.aggregates_allowed}", hint=hint)
        if self._inside_aggregate:
            raise BindError(f"aggregate `{name}` inside an aggregate", hint="use a sub-query")
        self._inside_aggregate = True
        try:
            bound = [] if star else [self.bind(a) for a in args]
            condition = self.condition(where, "FILTER") if where is not None else None
        finally:
            self._inside_aggregate = False
        for part in [*bound, *([condition] if condition is not None else [])]:
            if any(isinstance(e, Column) and e.index >= SUBQUERY for e in walk(part)):
                raise BindError("a sub-query inside an aggregate", hint="compute it in a FROM sub-query")
            if any(isinstance(e, Column) and OUTER <= e.index < AGGREGATE for e in walk(part)):
                raise BindError("an aggregate over a column of the enclosing query")
        call = functions.resolve_aggregate(name, bound, distinct, condition, self.catalog.zone)
        if call not in self.aggregates:
            self.aggregates.append(call)
        return Column(AGGREGATE + self.aggregates.index(call), call.type, name)

    def _attach(self, kind: str, query: exp.Expr, operand: Expr | None) -> Expr:
        if self.bind_subquery is None:
            raise BindError("a sub-query cannot stand here", hint="put it in WHERE, HAVING or FROM")
        sub = self.bind_subquery(query, self.scope)
        sub = replace(sub, kind=kind, operand=operand)
        if kind == "in":
            if len(sub.outputs) != 1:
                raise BindError(f"IN needs a sub-query of one column, this has {len(sub.outputs)}")
            # resolve() brings both sides to one type, and complains where there is none
            assert operand is not None
            right = inner_columns(sub.outputs[0])
            compare = self._call("=", operand, right)
            sub = replace(sub, compare=compare)
            kind_type = BOOLEAN
        elif kind == "scalar":
            if len(sub.outputs) != 1:
                raise BindError(f"a sub-query used as a value has one column, this has {len(sub.outputs)}")
            if not sub.single_row:
                raise BindError(
                    "a sub-query used as a value must have at most one row",
                    hint="aggregate without GROUP BY, or add LIMIT 1",
                )
            kind_type = sub.outputs[0].type
        else:
            kind_type = BOOLEAN
        self.subqueries.append(sub)
        return Column(SUBQUERY + len(self.subqueries) - 1, kind_type, "sub-query")


def inner_columns(expr: Expr) -> Expr:
    """Mark the columns of a sub-query's own rows, so that they can mix with those of the query around it."""
    return transform(
        expr, lambda e: replace(e, index=e.index + INNER) if isinstance(e, Column) and e.index < OUTER else e
    )


_WHOLE = re.compile(r"[0-9]+")
_POINT = re.compile(r"[0-9]+\.[0-9]*|\.[0-9]+")
_EXPONENT = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+")
_DIGITS = 38


def _operand(node: exp.Expr) -> str:
    """The text of an expression, in parentheses where an operator around it could pull it apart."""
    text = format_statement(node)
    return text if isinstance(node, exp.Column | exp.Literal | exp.Anonymous | exp.Interval) else f"({text})"


def _literal(node: exp.Literal) -> Expr:
    return Literal(node.name, STRING) if node.is_string else number(node.name)


def number(text: str) -> Literal:
    """The constant that a number in a text is: whole, exact with a decimal point, DOUBLE with an exponent."""
    if _EXPONENT.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise BindError(f"the number {shortened(text)} is out of range of DOUBLE")
        return Literal(value, DOUBLE)
    whole = _WHOLE.fullmatch(text)
    if not whole and not _POINT.fullmatch(text):
        raise BindError(f"`{shortened(text)}` is not a number", hint="write for example 12, 0.5 or 1e6")
    before, _, after = text.partition(".")
    digits = before.lstrip("0") + after
    if len(digits) > _DIGITS:
        hint = f"at most {_DIGITS} are exact; with an exponent (…e0) it is a DOUBLE"
        raise BindError(f"the number {shortened(text)} has {len(digits)} digits", hint=hint)
    if whole:
        return _integer(int(digits or "0"))
    return Literal(Decimal(text), decimal(len(digits), len(after)))


def _integer(value: int) -> Literal:
    if -(2**31) <= value < 2**31:
        return Literal(value, INT)
    if -(2**63) <= value < 2**63:
        return Literal(value, BIGINT)
    return Literal(Decimal(value), decimal(max(19, len(str(abs(value)))), 0))
