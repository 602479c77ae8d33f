"""From the statements that declare something, and a catalog, to definitions; nothing is changed by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, get_args

from sqlglot import exp

from penstock import functions
from penstock.catalog import (
    ALTERABLE,
    EVERYTHING,
    Catalog,
    FunctionDef,
    HistoryIn,
    OnLag,
    QueryOptions,
    RelationDef,
    SparkSource,
    Start,
    StreamDef,
    ViewDef,
    retain_example,
)
from penstock.cql import ast
from penstock.cql.durations import interval_ticks
from penstock.cql.expressions import ExpressionBinder, as_priority, bind_type, declared_names, identifier
from penstock.cql.queries import bind_query
from penstock.cql.scope import Scope
from penstock.cql.text import format_statement, parse, position_of
from penstock.model.amounts import Bound, parse_bound
from penstock.model.durations import parse_duration
from penstock.model.errors import BindError, CatalogError, InputError, PenstockError, suggest, there_are, typo
from penstock.model.names import find_name
from penstock.model.schema import Clock, Field, Schema
from penstock.model.types import BIGINT, TIMESTAMP, DataType
from penstock.plan.meanings import changed_in_text
from penstock.plan.nodes import JOIN_PRIORITIES, PRIORITIES, PairPriority, with_join_priority
from penstock.plan.nodes import Query as Plan
from penstock.rows.apart import OnError, Unknown
from penstock.rows.times import TimeForm
from penstock.scalar.expr import Expr, is_pure
from penstock.scalar.zones import checked as checked_zone

T = TypeVar("T")
Definition = StreamDef | RelationDef | ViewDef


def definition(tree: exp.Expr, catalog: Catalog) -> Definition | None:
    """What a statement declares, of its name at the catalog's next position; None if it declares nothing."""
    match tree:
        case ast.CreateStream():
            return _stream(tree, catalog)
        case ast.CreateRelation():
            return _relation(tree, catalog)
        case ast.CreateView():
            return _view(tree, catalog)
    return None


def definition_again(text: str, name: str, position: int | None, meanings: int, catalog: Catalog) -> Definition | None:
    """What a text declares that was declared before, at the position that it had.

    ``meanings``: the number of meanings that its functions had then. A view or stream of a query that would mean
    something else now, or that cannot be bound any more, becomes a name that the catalog refuses: then None.
    """
    if position is not None:
        catalog.skip_positions(position)
    is_query = position is None
    try:
        tree = parse(text)[0].tree
        is_query |= tree.args.get("expression") is not None
        if is_query:
            _check_meanings(catalog, tree, meanings)
        if not isinstance(tree, ast.CreateQuery):
            return located(text, tree, lambda: definition(tree, catalog))
        # The stream that a query writes into; the query itself is another matter.
        plan, reads, _ = query_of(tree, catalog)
        return stream_of_query(name, plan, reads, text, catalog)
    except PenstockError as error:
        if not is_query:
            raise
        catalog.refuse(name, "view" if position is None else "stream", error.message)
        return None


def declared_in(text: str, catalog: Catalog) -> None:
    """Put what the statements of a text declare into a catalog; other statements are refused."""
    for statement in parse(text):
        tree = statement.tree
        found = located(text, tree, lambda tree=tree: definition(tree, catalog))  # type: ignore[misc]
        match found:
            case None:
                hint = "CREATE STREAM, CREATE RELATION and CREATE VIEW are"
                raise BindError("this is no declaration", hint=hint).at(position_of(tree), text)
            case ViewDef():
                catalog.replace_view(found)
            case _:
                catalog.add(found)


def query_of(tree: ast.CreateQuery, catalog: Catalog) -> tuple[Plan, frozenset[str], QueryOptions]:
    """What ``CREATE QUERY`` registers, and the names that it reads."""
    plan, reads = bind_query(tree.expression, catalog)
    plan, options = with_options(plan, tree, catalog)
    return plan, reads, options


def stream_of_query(name: str, plan: Plan, reads: frozenset[str], text: str, catalog: Catalog) -> StreamDef:
    """A stream of the answers of a query."""
    return StreamDef(name, plan.schema, catalog.next_position, plan.clock, query=plan, reads=reads, text=text)


def _check_meanings(catalog: Catalog, tree: exp.Expr, number: int) -> None:
    """Refuse a query that calls a function whose meaning has changed since a number of meanings."""
    for node in tree.walk():
        call = ast.function_call(node) if isinstance(node, exp.Anonymous) else None
        if call is None or call.name in catalog.functions:
            continue
        if (what := changed_in_text(call.name, [a.sql() for a in call.args], number)) is not None:
            raise BindError(f"`{call.name}` has another meaning now: {what}")


def plan_of_text(catalog: Catalog, text: str) -> tuple[Plan, frozenset[str]]:
    """The plan of a text that is one query, and the names it reads."""
    statements = parse(text)
    if len(statements) != 1:
        raise BindError(f"one query is needed, the text has {len(statements)} statements")
    tree = statements[0].tree
    if isinstance(tree, ast.CreateQuery):
        tree = tree.expression
    if isinstance(tree, ast.STATEMENTS):
        raise BindError("a query is needed, not a statement", hint="use execute for statements").at(
            position_of(tree), text
        )
    return located(text, tree, lambda: bind_query(tree, catalog))


def planned_text(catalog: Catalog, text: str) -> tuple[Plan, QueryOptions]:
    """The plan of a text that is one query, or ``CREATE QUERY`` of one, and how it is to be run."""
    plan, _ = plan_of_text(catalog, text)
    tree = parse(text)[0].tree
    if not isinstance(tree, ast.CreateQuery):
        return plan, QueryOptions()
    return located(text, tree, lambda: with_options(plan, tree, catalog))


def parse_type(text: str) -> DataType:
    """The type that a text like ``DECIMAL(10, 2)`` names."""
    tree = parse(f"CREATE STREAM t (c {text})")[0].tree
    return bind_type(tree.args["columns"][0].args["kind"])


def located(text: str, tree: exp.Expr, action: Callable[[], T]) -> T:
    """Let an error say where in a text it happened."""
    try:
        return action()
    except PenstockError as error:
        # What the catalog says is about the name that the statement is about.
        named = isinstance(error, CatalogError | InputError) and isinstance(tree.this, exp.Identifier)
        raise error.at(position_of(tree.this if named else tree), text) from None
    except RecursionError:
        raise BindError("the statement is nested too deeply").at(position_of(tree), text) from None


def function_def(
    name: str, function: Callable[..., object], args: Sequence[str | DataType], returns: str | DataType
) -> FunctionDef:
    """A function of the user's, checked."""
    if isinstance(args, str):
        raise CatalogError(f"args is a list of types, not {args!r}", hint=f"write args=[{args!r}]")
    if not callable(function):
        raise CatalogError(f"{function!r} cannot be called", hint="give a Python function")
    if not name.isidentifier():
        raise CatalogError(f"`{name}` cannot be the name of a function", hint="use letters, digits and _")
    if name.lower() in functions.SCALARS or functions.is_aggregate(name.lower()):
        raise CatalogError(f"there is a built-in function `{name.lower()}`", hint="use another name")
    types = tuple(a if isinstance(a, DataType) else parse_type(a) for a in args)
    result = returns if isinstance(returns, DataType) else parse_type(returns)
    return FunctionDef(name.lower(), types, result, function)


def _columns(nodes: list[exp.Expr]) -> Schema:
    fields: list[Field] = []
    names: set[str] = set()
    for node, name in zip(nodes, declared_names([node.this for node in nodes]), strict=True):
        if name in names:
            raise BindError(f"column `{name}` stands twice").at(position_of(node), None)
        names.add(name)
        kind = node.args.get("kind")
        if kind is None:
            raise BindError(f"column `{name}` needs a type").at(position_of(node), None)
        if node.args.get("constraints"):
            raise BindError(f"column `{name}`: there are no column constraints").at(position_of(node), None)
        try:
            fields.append(Field(name, bind_type(kind)))
        except PenstockError as error:
            raise error.at(position_of(node), None) from None
    if not fields:
        raise BindError("at least one column is needed")
    return tuple(fields)


def _stream(tree: exp.Expr, catalog: Catalog) -> StreamDef:
    name = identifier(tree.this)
    catalog.check_free(name)
    if tree.expression is not None:
        parse_options(tree, {})
        plan, reads = bind_query(tree.expression, catalog)
        check_is_stream(plan, name)
        return stream_of_query(name, plan, reads, format_statement(tree), catalog)
    schema = _columns(tree.args["columns"])
    scope = Scope()
    scope.add(name, "stream", schema)
    clock, column = _timestamp_by(tree.args.get("timestamp_by"), schema, name)
    slack = _slack(tree.args.get("slack"), clock)
    priority = _priority(catalog, tree.args.get("priority_by"), scope)
    known: dict[str, Parser] = {"retain": _retain_option(clock), "buffer": _amount_option}
    known |= {"overflow": _overflow_option, "time": _time_option, "zone": _zone_option, "idle": _duration_option}
    known |= {"history": _history_option}
    options = parse_options(tree, {**known, "on_error": _on_error_option, "unknown": _unknown_option})
    for option in ("time", "zone"):
        if option in options and all(f.type != TIMESTAMP for f in schema):
            hint = "declare the column TIMESTAMP"
            raise BindError(f"stream `{name}` has no TIMESTAMP, so `{option}` means nothing", hint=hint)
    form = replace(options.get("time", TimeForm("")), zone=options.get("zone", catalog.zone))
    if "zone" in options and form.counts:
        raise BindError(
            f"`time` is '{form.text}' since 1970 in all zones, so `zone` means nothing", hint="leave `zone` out"
        )
    if column is None and "idle" in options:
        raise BindError(
            f"stream `{name}` is stamped on arrival, so the clock moves it anyway",
            hint="leave `idle` out, or say TIMESTAMP BY",
        )
    if "history" in options and "retain" not in options:
        hint = f"add it, for example {retain_example(clock).removesuffix(')')}, history = '{options['history']}')"
        raise BindError(f"stream `{name}` retains nothing without `retain`, so `history` means nothing", hint=hint)
    if priority is not None and options.get("overflow"):
        raise BindError(
            f"stream `{name}` has priorities, so its oldest rows cannot be dropped",
            hint="leave out PRIORITY BY or `overflow`",
        )
    return StreamDef(
        name, schema, catalog.next_position, clock, column, slack, priority, options.get("retain", 0),
        options.get("buffer"), options.get("overflow", False), options.get("history", "memory"),
        None if form == TimeForm("") else form, options.get("on_error", "refuse"),
        options.get("unknown"), _source(tree.args.get("source"), name, options), text=format_statement(tree),
        idle=options.get("idle", 0),
    )  # fmt: skip


def _source(node: ast.SourceOf | None, name: str, options: Mapping[str, Any]) -> SparkSource | None:
    """``FROM spark (…)``: options of ours, and behind them those of Spark's format as they are."""
    if node is None:
        return None
    try:
        if identifier(node.this) != "spark":
            other = identifier(node.this)
            raise BindError(f"stream `{name}`: there is no source `{other}`", hint="there is FROM spark (…)")
        given: dict[str, str] = {}
        for option in node.args["options"]:
            key = option.this.name  # as it is written: Spark looks at names without their case, not at all values
            if key.lower() in {k.lower() for k in given}:
                raise BindError(f"option `{key}` stands twice").at(position_of(option), None)
            given[key] = _option_text(key, option.expression)
        own = {key.lower(): given.pop(key) for key in list(given) if key.lower() in ("format", "columns", "trigger")}
        if "format" not in own:
            raise BindError(
                f"stream `{name}`: FROM spark needs a format",
                hint="write for example FROM spark (format = 'parquet', path = '…')",
            )
        if options.get("on_error") == "stop":
            raise BindError(
                f"stream `{name}`: Spark reads rows side by side, so none of them are before one that does not fit",
                hint="write on_error = 'apart', or leave it out",
            )
        trigger = SparkSource.trigger
        if "trigger" in own:
            ticks = parse_duration(own["trigger"])
            if ticks <= 0:
                raise BindError("`trigger` is a length of time", hint="write for example trigger = '100 ms'")
            trigger = ticks / 1e6
        return SparkSource(own["format"], tuple(given.items()), own.get("columns"), trigger)
    except PenstockError as error:
        raise error.at(position_of(node), None) from None


def _option_text(name: str, node: exp.Expr) -> str:
    match node:
        case exp.Literal():
            return str(node.name)
        case exp.Boolean():
            return str(bool(node.this)).lower()
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return f"-{number.name}"
    raise BindError(f"`{name}` is {node.sql()}", hint="write a text, a number, TRUE or FALSE")


def check_is_stream(plan: Plan, name: str) -> None:
    """Refuse a query whose rows come and go where a stream is needed."""
    if plan.output == "changes":
        raise BindError(
            f"the rows of this query come and go, so it is no stream `{name}`",
            hint="write SELECT ISTREAM (or DSTREAM, RSTREAM)",
        )


def _timestamp_by(node: exp.Expr | None, schema: Schema, name: str) -> tuple[Clock, str | None]:
    if node is None:
        return "timestamp", None
    found = schema[place_of(node, schema, f"stream `{name}`")]
    if found.type == TIMESTAMP:
        return "timestamp", found.name
    if found.type == BIGINT:
        return "ticks", found.name
    raise BindError(
        f"TIMESTAMP BY `{found.name}` is {found.type}", hint="it takes a TIMESTAMP, or a BIGINT that counts ticks"
    ).at(position_of(node), None)


def place_of(node: exp.Expr, schema: Schema, where: str) -> int:
    """The place of the column that a name means."""
    place = find_name(name := identifier(node), (f.name for f in schema))
    if place is None:
        hint = suggest(name, (f.name for f in schema))
        raise BindError(f"no column `{name}` in {where}", hint=hint).at(position_of(node), None)
    return place


def _slack(node: exp.Expr | None, clock: Clock) -> int:
    if node is None:
        return 0
    negative = isinstance(node, exp.Neg)
    length = node.this if negative else node
    ticks = _duration(length)
    counts = clock == "ticks" and isinstance(length, exp.Literal) and re.fullmatch(r"\d{1,18}", length.name)
    if ticks is None and counts:
        ticks = int(length.name)
    if ticks is None:
        hint = "write for example SLACK 2 SECONDS"
        raise BindError("SLACK needs a length of time", hint=hint).at(position_of(node), None)
    if negative and ticks > 0:
        hint = "it says how far back a row may be"
        raise BindError("SLACK cannot be negative", hint=hint).at(position_of(node), None)
    return ticks


def _duration(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Interval):
        return interval_ticks(node)
    if isinstance(node, exp.Literal) and node.is_string:
        return parse_duration(node.name)
    return None


def _priority(catalog: Catalog, node: exp.Expr | None, scope: Scope) -> Expr | None:
    if node is None:
        return None
    return as_priority(ExpressionBinder(catalog, scope, aggregates_allowed="PRIORITY BY").bind(node), node)


def _relation(tree: exp.Expr, catalog: Catalog) -> RelationDef:
    name = identifier(tree.this)
    catalog.check_free(name)
    schema = _columns(tree.args["columns"])
    parse_options(tree, {})
    key = tuple(place_of(node, schema, f"relation `{name}`") for node in tree.args.get("key") or [])
    return RelationDef(name, schema, catalog.next_position, key, format_statement(tree))


def _view(tree: exp.Expr, catalog: Catalog) -> ViewDef:
    name = identifier(tree.this)
    if not (tree.args.get("replace") and catalog.kind_of(name) == "view"):
        catalog.check_free(name)
    plan, reads = bind_query(tree.expression, catalog)
    if name in reads:
        raise BindError(f"view `{name}` would contain itself")
    return ViewDef(name, tree.expression.copy(), plan.schema, reads, format_statement(tree))


# -- options ----------------------------------------------------------------------------------------------

Parser = Callable[[str, exp.Expr], Any]


def with_options(plan: Plan, tree: exp.Expr, catalog: Catalog) -> tuple[Plan, QueryOptions]:
    """``WITH (…)`` of a query: the plan with the priority of its joins and the order of its answers as they are asked
    for, and how it is run. What is not said stays as it is."""
    given = parse_options(tree, _query_parsers(catalog))
    join_priority, ordered = given.pop("join_priority", None), given.pop("ordered", None)
    if join_priority is not None:
        plan = with_join_priority(plan, join_priority)
    if ordered is not None:
        plan = replace(plan, ordered=ordered)
    return plan, replace(QueryOptions(), **given)


def altered_options(tree: exp.Expr, options: QueryOptions) -> QueryOptions:
    """The options of a query after ``ALTER QUERY … SET (…)``. NULL takes one back."""
    known, asked = _query_parsers(Catalog()), {identifier(option.this): option for option in tree.args["options"]}
    for name in known.keys() - set(ALTERABLE):
        if name in asked:
            hint = f"it says what the query is: stop it and create it anew; {_named(ALTERABLE)} can change"
            raise BindError(f"`{name}` of a query cannot change", hint=hint).at(position_of(asked[name]), None)
    return replace(options, **parse_options(tree, {name: _or_null(known[name]) for name in ALTERABLE}))


def options_tree(given: Mapping[str, object]) -> exp.Expr:
    """Options as Python values, in the form of ``WITH (…)``. One that is None stands for NULL."""
    nodes = [ast.Option(this=exp.to_identifier(name), expression=_option_node(name, v)) for name, v in given.items()]
    return ast.AlterQuery(this=exp.to_identifier("query"), options=nodes)


def _option_node(name: str, value: object) -> exp.Expr:
    match value:
        case str() if name == "join_priority" and "_priority" in value:  # an expression, in CQL
            chosen: list[exp.Expr] = parse(f"SELECT {value} FROM pair")[0].tree.expressions
            return chosen[0]
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case int() | float():
            return exp.Literal.number(str(value))
        case timedelta():
            return exp.Literal.string(f"{value // timedelta(microseconds=1)} microseconds")
    return exp.Literal.string(str(value))


def _query_parsers(catalog: Catalog) -> dict[str, Parser]:
    return {
        "priority": _priority_option, "latency": _duration_option, "strict": _boolean_option, "start": _start_option,
        "lag": _lag_option, "on_lag": _on_lag_option, "results": _amount_option,
        "join_priority": _join_priority_option(catalog), "ordered": _boolean_option,
        "optimise": _boolean_option, "reuse": _boolean_option,
    }  # fmt: skip


def _or_null(parser: Parser) -> Parser:
    """NULL: what an option is where nothing is said."""
    return lambda name, node: getattr(QueryOptions(), name) if isinstance(node, exp.Null) else parser(name, node)


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def check_start(value: str, what: str) -> Start:
    """Where a query may start."""
    match value:
        case "now" | "retained":
            return value
    hint = "'retained': with the rows that its streams retain; 'now': with the next ones"
    raise BindError(f"{what} is 'now' or 'retained', not {value!r}", hint=hint)


def parse_options(tree: exp.Expr, known: Mapping[str, Parser]) -> dict[str, Any]:
    """What stands in ``WITH (…)``."""
    values: dict[str, Any] = {}
    for option in tree.args.get("options") or []:
        name = identifier(option.this)
        try:
            if name not in known:
                raise BindError(f"no option `{name}`", hint=_options_hint(name, known))
            if name in values:
                raise BindError(f"option `{name}` stands twice")
            values[name] = known[name](name, option.expression)
        except PenstockError as error:
            raise error.at(position_of(option), None) from None
    return values


def _options_hint(name: str, known: Collection[str]) -> str:
    if (match := typo(name, known)) is not None:
        return f"did you mean `{match}`?"
    return there_are([f"`{option}`" for option in known]) if known else "there are none here"


def _priority_option(name: str, node: exp.Expr) -> int:
    if not (isinstance(node, exp.Literal) and node.name.isdigit() and len(node.name) == 1):
        raise BindError(f"`{name}` is a whole number from 0 to 9")
    return int(node.name)


def _join_priority_option(catalog: Catalog) -> Parser:
    def parse(name: str, node: exp.Expr) -> str | PairPriority:
        if isinstance(node, exp.Literal) and node.is_string:
            if node.name not in JOIN_PRIORITIES:
                known = ", ".join(repr(p) for p in JOIN_PRIORITIES)
                raise BindError(f"`{name}` is one of {known}", hint=_PAIRS)
            return node.name
        scope = Scope()
        scope.add("pair", "pair", PRIORITIES)
        by = as_priority(ExpressionBinder(catalog, scope, aggregates_allowed=f"`{name}`").bind(node), node)
        if not is_pure(by):
            raise BindError(f"`{name}` calls a function of yours", hint="use the functions that are built in")
        return PairPriority(by)

    return parse


_PAIRS = "or an expression, as in join_priority = left_priority + 2 * right_priority"


def _duration_option(name: str, node: exp.Expr) -> int:
    ticks = _duration(node)
    if ticks is None or ticks <= 0:
        raise BindError(f"`{name}` is a length of time", hint="write for example '100 ms'")
    return ticks


def _retain_option(clock: Clock) -> Parser:
    def parse(name: str, node: exp.Expr) -> int:
        if isinstance(node, exp.Literal) and node.is_string and node.name.strip().lower() == "all":
            return EVERYTHING
        ticks = _duration(node)
        if clock == "ticks" and isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            ticks = int(node.name)
        if ticks is None or not 0 < ticks < EVERYTHING:
            what = "a number of ticks" if clock == "ticks" else "a length of time"
            raise BindError(f"`{name}` is {what}, or 'all'", hint=f"write for example {retain_example(clock)}")
        return ticks

    return parse


def _start_option(name: str, node: exp.Expr) -> Start:
    return check_start(node.name if isinstance(node, exp.Literal) and node.is_string else node.sql(), f"`{name}`")


def _amount_option(name: str, node: exp.Expr) -> Bound:
    return parse_bound(f"`{name}`", node.name if isinstance(node, exp.Literal) and node.is_string else node.sql())


def _lag_option(name: str, node: exp.Expr) -> str:
    text = node.name if isinstance(node, exp.Literal) and node.is_string else node.sql()
    parse_bound(f"`{name}`", text)
    return text


def _overflow_option(name: str, node: exp.Expr) -> bool:
    if not (isinstance(node, exp.Literal) and " ".join(node.name.lower().split()) == "drop oldest"):
        hint = "write overflow = 'drop oldest', or leave it out: then nothing is dropped"
        raise BindError(f"`{name}` is {node.sql()}", hint=hint)
    return True


def _time_option(name: str, node: exp.Expr) -> TimeForm:
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise BindError(f"`{name}` is {node.sql()}", hint="write for example time = 'milliseconds'")
    return TimeForm.parse(node.name)


def _one_of(texts: Any) -> Parser:
    """An option that is one of the texts of a Literal type."""
    known = ", ".join(f"'{text}'" for text in get_args(texts))

    def parse(name: str, node: exp.Expr) -> str:
        if not (isinstance(node, exp.Literal) and node.is_string and node.name.lower() in get_args(texts)):
            raise BindError(f"`{name}` is {node.sql()}", hint=f"it is one of {known}")
        return str(node.name.lower())

    return parse


_on_error_option, _unknown_option, _on_lag_option = _one_of(OnError), _one_of(Unknown), _one_of(OnLag)
_history_option = _one_of(HistoryIn)


def _zone_option(name: str, node: exp.Expr) -> str:
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise BindError(f"`{name}` is {node.sql()}", hint="write for example zone = 'Europe/Vienna'")
    return checked_zone(node.name, BindError)


def _boolean_option(name: str, node: exp.Expr) -> bool:
    if not isinstance(node, exp.Boolean):
        raise BindError(f"`{name}` is true or false")
    return bool(node.this)
