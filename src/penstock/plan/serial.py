"""JSON form of plans: ``{"penstock_plan": 1, "query": {"node": "Query", "input": {…}, …}}``.

The number is that of the meanings (``plan.meanings``) that its functions have: 1 unless one of them has changed.
Every object says what it is (``node``, ``window``, ``expr``) and has the fields of the class of that name;
types are written as in CQL. Reading checks what the classes themselves do not: a plan that comes back
from ``from_json`` is well typed and its columns exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from penstock.model.errors import PlanError, suggest
from penstock.model.schema import Field, Schema
from penstock.model.types import DataType
from penstock.plan import meanings
from penstock.plan.nodes import (
    JOIN_PRIORITIES,
    PRIORITIES,
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    Join,
    Node,
    PairPriority,
    Prioritise,
    Project,
    Query,
    QueryStream,
    RelationScan,
    SemiJoin,
    SetOp,
    SortKey,
    StreamScan,
    TopN,
    Window,
    bounded_windows,
    is_stream,
    streams,
)
from penstock.plan.serial_expr import (
    Json,
    Reader,
    condition_from_json,
    expect,
    expr_from_json,
    expr_to_json,
    type_from_json,
)
from penstock.plan.steps import below_steps
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
from penstock.scalar.expr import Expr, Literal, is_pure

AGGREGATES: dict[str, tuple[int, ...]] = {
    "count": (0, 1), "sum": (1,), "avg": (1,), "min": (1,), "max": (1,), "stddev": (1,), "stddev_pop": (1,),
    "variance": (1,), "var_pop": (1,), "first": (1,), "last": (1,), "quantile": (2,), "collect": (1,),
}  # fmt: skip
"""The numbers of arguments of each aggregate function."""
_WINDOWS: dict[str, type[WindowSpec]] = {
    w.__name__: w for w in (Unbounded, Now, Rows, PartitionRows, Range, Generic, Session)
}
_NODES = (
    "StreamScan", "RelationScan", "QueryStream", "Window", "Filter", "Project", "Join", "SemiJoin",
    "Aggregate", "Distinct", "Prioritise", "SetOp", "TopN",
)  # fmt: skip


def to_json(query: Query) -> Json:
    """The plan as JSON values; ``from_json`` gives an equal plan."""
    found = node_to_json(query)
    return {"penstock_plan": meanings.number_of(found), "query": found}


def from_json(obj: object, *, whatever_it_meant: bool = False, meant: object = None) -> Query:
    """The plan that a JSON object describes; PlanError says at which path it is wrong.

    An ``annotations`` field at the top, as ``explain_json`` writes it, is not looked at. A plan with a function whose
    meaning has changed is refused, unless it is only to be looked at and not to be run. ``meant``: the part of the plan
    that has the meanings of its number, by default all of it.
    """
    top = Reader(obj, "plan")
    version = top.take("penstock_plan")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= meanings.NUMBER:
        raise PlanError(f"plan.penstock_plan: version {version!r} is not known; this is version {meanings.NUMBER}")
    top.take("annotations", None)
    tree = top.take("query")
    query = _query(tree, "query")
    if not whatever_it_meant and (changed := meanings.changed_in_plan(meant or tree, version)) is not None:
        name, what = changed
        raise PlanError(
            f"`{name}` has another meaning than in version {version} of plans: {what}",
            hint=f"write the query anew, or `penstock_plan: {meanings.NUMBER}` if this is what is meant",
        )
    top.done()
    return query


_OMITTED = {"priority": "max", "hidden": 0, "ordered": False, "reuse": True}
"""Fields that are not written where they have these values."""


def node_to_json(node: Node) -> Json:
    """One node with everything below it."""
    return {"node": type(node).__name__, **_fields_to_json(node)}


def _fields_to_json(part: Any) -> Json:
    values = {f.name: getattr(part, f.name) for f in fields(part)}
    return {name: _to_json(v) for name, v in values.items() if name not in _OMITTED or v != _OMITTED[name]}


def _to_json(value: Any) -> Any:
    """A value of a field of a node."""
    if isinstance(value, Node):
        return node_to_json(value)
    if isinstance(value, Expr):
        return expr_to_json(value)
    if isinstance(value, PairPriority):
        return expr_to_json(value.by)
    if isinstance(value, WindowSpec):
        return {"window": type(value).__name__, **_fields_to_json(value)}
    if isinstance(value, AggregateCall | SortKey | Field):
        return _fields_to_json(value)
    if isinstance(value, DataType):
        return str(value)
    if isinstance(value, tuple):
        return [_to_json(v) for v in value]
    return value


def _query(value: object, path: str) -> Query:
    obj = Reader(value, path)
    obj.one_of("node", ("Query",))
    below = _relation(obj, "input")
    output = obj.one_of("output", ("istream", "dstream", "rstream", "changes", "windows"))
    masters = obj.items("masters", lambda v, p: expect(v, str, p, "the name of a stream"), [])
    clock = obj.one_of("clock", ("timestamp", "ticks"), "timestamp")
    hidden = obj.integer("hidden", 0, least=0)
    if hidden and hidden >= len(below.schema):
        raise PlanError(f"{path}: `hidden` is {hidden} of {len(below.schema)} columns", hint="at least one is shown")
    query = Query(below, output, masters, clock, hidden, obj.flag("ordered", False))
    obj.done()
    _check_query(query, path)
    return query


def _check_query(query: Query, path: str) -> None:
    names = {s.name for s in streams(query)}
    for i, master in enumerate(query.masters):
        if master not in names:
            raise PlanError(f"{path}.masters[{i}]: no stream `{master}` in the query", hint=suggest(master, names))
    bounded = [window.spec for window in bounded_windows(query)]
    if len(set(bounded)) > 1:
        raise PlanError(f"{path}: the bounded windows of a query have to be the same")
    if len(bounded) > 1 and isinstance(bounded[0], Session):
        raise PlanError(f"{path}: a query has at most one Session window, not {len(bounded)}")
    if bounded and query.output != "windows":
        raise PlanError(f"{path}.output: with a bounded window it has to be `windows`, not `{query.output}`")
    if query.output == "windows" and not bounded:
        raise PlanError(f"{path}.output: `windows` needs a bounded window (Generic or Session) below")
    if bounded and query.masters:
        raise PlanError(f"{path}.masters: a query with a bounded window has none")


def _relation(obj: Reader, name: str) -> Node:
    """An input that has to be a relation: streams become one by a window."""
    node = _node(obj.take(name), obj.at(name))
    if is_stream(below_steps(node)):
        raise PlanError(f"{obj.at(name)}: a stream where a relation is expected; put a Window above it")
    return node


def _stream(obj: Reader, name: str) -> Node:
    node = _node(obj.take(name), obj.at(name))
    below = below_steps(node)
    if not is_stream(below):
        raise PlanError(f"{obj.at(name)}: a Window is on a stream, not on a {type(below).__name__}")
    return node


def _node(value: object, path: str) -> Node:
    obj = Reader(value, path)
    kind = obj.one_of("node", _NODES)
    node: Node
    match kind:
        case "StreamScan":
            schema = obj.items("schema", field_from_json)
            clock = obj.one_of("clock", ("timestamp", "ticks"))
            node = StreamScan(obj.text("stream"), schema, obj.integer("position", least=0), clock)
        case "RelationScan":
            schema = obj.items("schema", field_from_json)
            node = RelationScan(obj.text("relation"), schema, obj.integer("position", least=0))
        case "QueryStream":
            node = _query_stream(obj)
        case "Window":
            below = _stream(obj, "input")
            spec = _window(obj.take("spec"), obj.at("spec"), len(below.schema))
            node = Window(below, spec, obj.flag("retractions", True), obj.flag("reuse", True))
        case "Filter":
            below = _node(obj.take("input"), obj.at("input"))
            node = Filter(below, condition_from_json(obj.take("predicate"), obj.at("predicate"), below.schema))
        case "Project":
            below = _node(obj.take("input"), obj.at("input"))
            exprs = obj.items("exprs", lambda v, p: expr_from_json(v, p, below.schema))
            node = Project(below, exprs, _names(obj, len(exprs)))
        case "Join":
            node = _join(obj)
        case "SemiJoin":
            node = _semi_join(obj)
        case "Aggregate":
            node = _aggregate(obj)
        case "Distinct":
            node = Distinct(_relation(obj, "input"))
        case "Prioritise":
            below = _relation(obj, "input")
            by = expr_from_json(obj.take("by"), obj.at("by"), below.schema)
            if not by.type.is_numeric:
                raise PlanError(f"{obj.at('by')}: a priority is a number, this is {by.type}")
            node = Prioritise(below, by)
        case "SetOp":
            node = _set_operation(obj)
        case _:
            below = _relation(obj, "input")
            keys = obj.items("keys", lambda v, p: _sort_key(v, p, below.schema))
            limit = None if (given := obj.take("limit", None)) is None else _count(given, obj.at("limit"))
            node = TopN(below, keys, limit, obj.integer("offset", 0, least=0))
    obj.done()
    return node


def field_from_json(value: object, path: str) -> Field:
    """One column of a schema."""
    obj = Reader(value, path)
    field = Field(obj.text("name"), type_from_json(obj.take("type"), obj.at("type")))
    obj.done()
    return field


def _names(obj: Reader, count: int) -> tuple[str, ...]:
    names = obj.items("names", lambda v, p: expect(v, str, p, "a name"))
    if len(names) != count:
        raise PlanError(f"{obj.at('names')}: {len(names)} names for {count} columns")
    return names


def _count(value: object, path: str) -> int:
    number = expect(value, int, path, "a whole number")
    if number < 0:
        raise PlanError(f"{path}: {number} is too small; it has to be at least 0")
    return number


def _query_stream(obj: Reader) -> QueryStream:
    query = _query(obj.take("query"), obj.at("query"))
    if query.output == "changes":
        raise PlanError(f"{obj.at('query')}.output: a stream has no retractions, so it cannot be `changes`")
    return QueryStream(obj.text("name"), query, obj.integer("position", least=0))


def _window(value: object, path: str, width: int) -> WindowSpec:
    obj = Reader(value, path)

    def keys(default: object = ...) -> tuple[int, ...]:
        found = obj.items("keys", _count, default)
        for i, key in enumerate(found):
            if key >= width:
                raise PlanError(f"{obj.at('keys')}[{i}]: column {key} of {width}; they count from 0")
        return found

    spec: WindowSpec
    match obj.one_of("window", tuple(_WINDOWS)):
        case "Unbounded":
            spec = Unbounded()
        case "Now":
            spec = Now()
        case "Rows":
            spec = Rows(obj.integer("size", least=1), obj.integer("slide", 1, least=1))
        case "PartitionRows":
            spec = PartitionRows(keys(), obj.integer("size", least=1))
        case "Range":
            size, slide = obj.integer("size", least=1), obj.take("slide", None)
            if slide is not None and _count(slide, obj.at("slide")) == 0:
                raise PlanError(f"{obj.at('slide')}: 0 is too small; it has to be at least 1")
            spec = Range(size, None if slide is None else _count(slide, obj.at("slide")))
        case "Session":
            spec = Session(obj.integer("gap", least=1), keys([]))
        case _:
            spec = _generic(obj)
    obj.done()
    return spec


def _generic(obj: Reader) -> Generic:
    unit = obj.one_of("unit", ("time", "tuples"))
    begin, end = obj.integer("begin"), obj.integer("end")
    if end < begin or (unit == "time" and end == begin):
        raise PlanError(f"{obj.at('end')}: {end} is before the begin {begin}; a window needs a positive size")
    if unit == "tuples" and begin < 1:
        raise PlanError(f"{obj.at('begin')}: {begin} is too small; row numbers count from 1")
    last = obj.take("end_query", None)
    return Generic(
        unit,
        begin,
        end,
        obj.integer("hop_low"),
        obj.integer("hop_high"),
        None if last is None else expect(last, int, obj.at("end_query"), "a whole number"),
        obj.flag("from_first", False),
    )


def _pairs(obj: Reader, left: Schema, right: Schema) -> tuple[tuple[Expr, Expr], ...]:
    def pair(value: object, path: str) -> tuple[Expr, Expr]:
        items = expect(value, list, path, "a pair of expressions")
        if len(items) != 2:
            raise PlanError(f"{path}: a pair of expressions is expected, not {len(items)}")
        a = expr_from_json(items[0], f"{path}[0]", left)
        b = expr_from_json(items[1], f"{path}[1]", right)
        if a.type != b.type:
            raise PlanError(f"{path}: the sides of a key have types {a.type} and {b.type}; cast one of them")
        return a, b

    return obj.items("keys", pair, [])


def _condition(obj: Reader, name: str, schema: Schema) -> Expr | None:
    value = obj.take(name, None)
    return None if value is None else condition_from_json(value, obj.at(name), schema)


def _join(obj: Reader) -> Join:
    kind = obj.one_of("kind", ("inner", "left", "right", "full"))
    left, right = _relation(obj, "left"), _relation(obj, "right")
    keys = _pairs(obj, left.schema, right.schema)
    residual = _condition(obj, "residual", left.schema + right.schema)
    return Join(kind, left, right, keys, residual, _pair_priority(obj))


def _pair_priority(obj: Reader) -> str | PairPriority:
    value = obj.take("priority", "max")
    if isinstance(value, str) and value in JOIN_PRIORITIES:
        return value
    if isinstance(value, str):
        known = ", ".join(JOIN_PRIORITIES)
        raise PlanError(f"{obj.at('priority')}: {value!r} is not known", hint=f"there are {known}, or an expression")
    by = expr_from_json(value, obj.at("priority"), PRIORITIES)
    if not by.type.is_numeric or not is_pure(by):
        raise PlanError(f"{obj.at('priority')}: a priority is a number, without functions of your own")
    return PairPriority(by)


def _semi_join(obj: Reader) -> SemiJoin:
    kind = obj.one_of("kind", ("semi", "anti", "mark"))
    left, right = _relation(obj, "left"), _relation(obj, "right")
    both = left.schema + right.schema
    keys = _pairs(obj, left.schema, right.schema)
    return SemiJoin(kind, left, right, keys, _condition(obj, "residual", both), _condition(obj, "compare", both))


def _aggregate(obj: Reader) -> Aggregate:
    below = _relation(obj, "input")
    keys = obj.items("keys", lambda v, p: expr_from_json(v, p, below.schema))
    calls = obj.items("aggregates", lambda v, p: _call(v, p, below.schema))
    return Aggregate(below, keys, calls, _names(obj, len(keys) + len(calls)))


def _call(value: object, path: str, schema: Schema) -> AggregateCall:
    obj = Reader(value, path)
    function = obj.one_of("function", tuple(AGGREGATES))
    args = obj.items("args", lambda v, p: expr_from_json(v, p, schema))
    if len(args) not in AGGREGATES[function]:
        wanted = " or ".join(str(n) for n in AGGREGATES[function])
        raise PlanError(f"{obj.at('args')}: {function} takes {wanted} arguments, not {len(args)}")
    if function == "quantile" and not isinstance(args[1], Literal):
        raise PlanError(f"{obj.at('args')}[1]: the fraction of quantile has to be a literal")
    dtype = type_from_json(obj.take("type"), obj.at("type"))
    distinct, where = obj.flag("distinct", False), _condition(obj, "where", schema)
    obj.done()
    return AggregateCall(function, args, dtype, distinct, where)


def _set_operation(obj: Reader) -> SetOp:
    kind, all_ = obj.one_of("kind", ("union", "except", "intersect")), obj.flag("all", False)
    left, right = _relation(obj, "left"), _relation(obj, "right")
    if [f.type for f in left.schema] != [f.type for f in right.schema]:
        what = f"({_types(left.schema)}) and ({_types(right.schema)})"
        raise PlanError(f"{obj.path}: the sides of {kind.upper()} have types {what}; they have to be the same")
    return SetOp(kind, all_, left, right)


def _types(schema: Iterable[Field]) -> str:
    return ", ".join(str(f.type) for f in schema)


def _sort_key(value: object, path: str, schema: Schema) -> SortKey:
    obj = Reader(value, path)
    expr = expr_from_json(obj.take("expr"), obj.at("expr"), schema)
    key = SortKey(expr, obj.flag("descending", False), obj.flag("nulls_first", True))
    obj.done()
    return key
