"""The aggregates: one row of the table for each, and ``resolve_aggregate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.functions.coerce import coerce, convert
from penstock.functions.signature import Function, argument, check_arity, wrong_type
from penstock.functions.zones import in_zone
from penstock.model.errors import BindError
from penstock.model.types import BIGINT, BOOLEAN, DOUBLE, INT, Kind, array, decimal
from penstock.plan.nodes import AggregateCall
from penstock.scalar.expr import Call, Expr, Literal
from penstock.scalar.zones import UTC

_Resolve = Callable[[str, Sequence[Expr], bool], AggregateCall]


def _count(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
    if distinct:
        check_arity(name, len(args), 1, None)
    else:
        check_arity(name, len(args), 0, 1)
    return AggregateCall("count", tuple(args), BIGINT, distinct)


def _count_if(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
    check_arity(name, len(args), 1, 1)
    if distinct:
        raise BindError(f"`{name}` counts rows and takes no DISTINCT")
    return AggregateCall("count", (), BIGINT, where=argument(name, args, 0, BOOLEAN))


def _summable(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    arg = args[0]
    if arg.type.kind is Kind.NULL:
        return convert(arg, INT)
    if not arg.type.is_numeric and arg.type.kind is not Kind.INTERVAL:
        raise wrong_type(name, 0, 1, "number or INTERVAL", arg.type)
    return arg


def _sum(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
    arg = _summable(name, args)
    result = arg.type
    if arg.type.is_integer:
        result = BIGINT
    elif arg.type.is_float:
        result = DOUBLE
    elif arg.type.kind is Kind.DECIMAL:
        assert arg.type.precision is not None
        assert arg.type.scale is not None
        result = decimal(arg.type.precision + 10, arg.type.scale)
    return AggregateCall("sum", (arg,), result, distinct)


def _avg(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
    arg = _summable(name, args)
    result = DOUBLE
    if arg.type.kind is Kind.DECIMAL:
        assert arg.type.precision is not None
        assert arg.type.scale is not None
        result = decimal(arg.type.precision + 4, arg.type.scale + 4)
    elif arg.type.kind is Kind.INTERVAL:
        result = arg.type
    return AggregateCall("avg", (arg,), result, distinct)


def _chosen(call: str) -> _Resolve:
    """One of the group's values, of whatever type."""

    def resolve(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
        check_arity(name, len(args), 1, 1)
        return AggregateCall(call, tuple(args), args[0].type, distinct)

    return resolve


def _spread(call: str) -> _Resolve:
    def resolve(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
        check_arity(name, len(args), 1, 1)
        return AggregateCall(call, (argument(name, args, 0, DOUBLE),), DOUBLE, distinct)

    return resolve


def _median(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
    check_arity(name, len(args), 1, 1)
    value = argument(name, args, 0, DOUBLE)
    return AggregateCall("quantile", (value, Literal(0.5, DOUBLE)), DOUBLE, distinct)


def _quantile(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
    check_arity(name, len(args), 2, 2)
    value = argument(name, args, 0, DOUBLE)
    fraction = coerce(args[1], DOUBLE)
    value_of = fraction.value if isinstance(fraction, Literal) else None
    if fraction is None or not isinstance(value_of, float) or not 0 <= value_of <= 1:
        raise BindError(f"`{name}` takes a constant from 0 to 1 as argument 2")
    return AggregateCall("quantile", (value, fraction), DOUBLE, distinct)


def _collect(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
    check_arity(name, len(args), 1, 1)
    return AggregateCall("collect", tuple(args), array(args[0].type), distinct)


def _boolean(call: str) -> _Resolve:
    def resolve(name: str, args: Sequence[Expr], distinct: bool) -> AggregateCall:
        check_arity(name, len(args), 1, 1)
        return AggregateCall(call, (argument(name, args, 0, BOOLEAN),), BOOLEAN, distinct)

    return resolve


def _entry(signature: str, doc: str, resolve: _Resolve, *aliases: str) -> tuple[Function, _Resolve]:
    return Function(signature.partition("(")[0], signature, doc, aliases, "aggregates"), resolve


_ENTRIES = (
    _entry("count(*) or (x) or (DISTINCT x, …) -> BIGINT",
           "rows; rows where x is not NULL; distinct combinations without NULL", _count),
    _entry("count_if(condition BOOLEAN) -> BIGINT", "rows for which the condition is TRUE",
           _count_if, "countif"),
    _entry("sum(x NUMBER|INTERVAL) -> BIGINT, DOUBLE, DECIMAL or INTERVAL",
           "exact for integers and DECIMAL, where overflow fails; exactly rounded for REAL and DOUBLE", _sum),
    _entry("avg(x NUMBER|INTERVAL) -> DOUBLE, DECIMAL or INTERVAL",
           "the exact sum by the count; a DECIMAL has four more digits", _avg, "mean"),
    _entry("min(x) -> same", "the least in value order", _chosen("min")),
    _entry("max(x) -> same", "the greatest in value order; NaN is greatest", _chosen("max")),
    _entry("stddev(x DOUBLE) -> DOUBLE", "sample standard deviation; NULL for fewer than two",
           _spread("stddev"), "stddev_samp"),
    _entry("stddev_pop(x DOUBLE) -> DOUBLE", "population standard deviation", _spread("stddev_pop")),
    _entry("variance(x DOUBLE) -> DOUBLE", "sample variance; NULL for fewer than two", _spread("variance"),
           "var_samp"),
    _entry("var_pop(x DOUBLE) -> DOUBLE", "population variance", _spread("var_pop")),
    _entry("first(x) -> same", "x of the earliest row, NULL too", _chosen("first"), "first_value"),
    _entry("last(x) -> same", "x of the latest row, NULL too", _chosen("last"), "last_value"),
    _entry("median(x DOUBLE) -> DOUBLE", "percentile(x, 0.5)", _median),
    _entry("percentile(x DOUBLE, fraction) -> DOUBLE", "exact, with linear interpolation between neighbours",
           _quantile, "quantile_cont"),
    _entry("collect(x) -> ARRAY", "the values that are not NULL, earliest first", _collect, "collect_list",
           "array_agg", "list"),
    _entry("bool_and(x BOOLEAN) -> BOOLEAN", "whether all are TRUE", _boolean("min"), "every"),
    _entry("bool_or(x BOOLEAN) -> BOOLEAN", "whether one is TRUE", _boolean("max"), "any"),
)  # fmt: skip

AGGREGATES: dict[str, Function] = {f.name: f for f, _ in _ENTRIES}
_RESOLVERS: dict[str, _Resolve] = {n: r for f, r in _ENTRIES for n in (f.name, *f.aliases)}


def is_aggregate(name: str) -> bool:
    """Whether the name, in lower case, is that of an aggregate."""
    return name in _RESOLVERS


def resolve_aggregate(
    name: str, args: Sequence[Expr], distinct: bool = False, where: Expr | None = None, zone: str = UTC
) -> AggregateCall:
    """The typed call of an aggregate, by clocks of the zone; ``where`` is its FILTER. ``count(*)`` has no arguments."""
    found = _RESOLVERS.get(name)
    if found is None:
        raise BindError(f"no aggregate `{name}`")
    call = found(name, args, distinct)
    call = replace(call, args=tuple(in_zone(arg, zone, args) for arg in call.args))
    if where is None:
        return call
    condition = coerce(where, BOOLEAN)
    if condition is None:
        raise BindError(f"FILTER takes a BOOLEAN, got {where.type}")
    both = condition if call.where is None else Call("and", (condition, call.where), BOOLEAN)
    return AggregateCall(call.function, call.args, call.type, call.distinct, both)
