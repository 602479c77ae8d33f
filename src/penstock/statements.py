"""What each statement of CQL does to a database. A statement that fails leaves the database as it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import pyarrow as pa
from sqlglot import exp

from penstock import functions, scalar
from penstock.amounts import Bound, parse_bound
from penstock.apart import OnError, Unknown
from penstock.catalog import EVERYTHING, RelationDef, StreamDef, ViewDef
from penstock.cql import ast
from penstock.cql.durations import interval_ticks, parse_duration
from penstock.cql.expressions import ExpressionBinder, as_priority, bind_type, declared_names, identifier
from penstock.cql.plain_values import PlainRows, PlainValues
from penstock.cql.queries import bind_query
from penstock.cql.scope import Scope
from penstock.cql.text import format_statement, parse, parse_rows, position_of
from penstock.errors import BindError, CatalogError, InputError, PenstockError, QueryFailed, suggest
from penstock.ingest import counted
from penstock.io.literals import plain_columns
from penstock.io.times import TimeForm
from penstock.io.values import is_whole
from penstock.names import find_name
from penstock.plan.expr import Call, Cast, Expr
from penstock.plan.meanings import changed_in_text
from penstock.plan.nodes import JOIN_PRIORITIES, Clock, Field, Schema, with_join_priority
from penstock.plan.nodes import Query as Plan
from penstock.query import QueryOptions, Start, check_start, retain_example
from penstock.relations import At, RelationStore
from penstock.results import Result, counts_aside, query_started, rows_into
from penstock.scalar.zones import checked as checked_zone
from penstock.show import describe, show
from penstock.types import BIGINT, BOOLEAN, TIMESTAMP, DataType, Kind, common_type
from penstock.values import to_arrow, to_instant, to_rows

if TYPE_CHECKING:
    from penstock.database import Database

T = TypeVar("T")


def run_script(db: Database, text: str) -> list[Result]:
    """Run the statements of a text in order."""
    return [_run(db, statement.tree, text) for statement in parse(text)]


def declare(db: Database, name: str, text: str, position: int | None, meanings: int) -> None:
    """Declare again what a definition says that was declared before, at the position that it had.

    ``meanings``: the number of meanings that its functions had then. A view or stream of a query that would mean
    something else now, or that cannot be bound any more, becomes a name that the catalog refuses.
    """
    if position is not None:
        db.catalog.skip_positions(position)
    is_query = position is None
    try:
        tree = parse(text)[0].tree
        is_query |= tree.args.get("expression") is not None
        if is_query:
            _check_meanings(db, tree, meanings)
        if not isinstance(tree, ast.CreateQuery):
            _run(db, tree, text)
            return
        # The stream that a query writes into; the query itself is another matter.
        plan, reads = bind_query(tree.expression, db.catalog)
        db.add_stream(
            StreamDef(name, plan.schema, db.catalog.next_position, plan.clock, query=plan, reads=reads, text=text)
        )
    except PenstockError as error:
        if not is_query:
            raise
        db.catalog.refuse(name, "view" if position is None else "stream", error.message)


def _check_meanings(db: Database, tree: exp.Expr, number: int) -> None:
    """Refuse a query that calls a function whose meaning has changed since a number of meanings."""
    for node in tree.walk():
        call = ast.function_call(node) if isinstance(node, exp.Anonymous) else None
        if call is None or call.name in db.catalog.functions:
            continue
        if (what := changed_in_text(call.name, [a.sql() for a in call.args], number)) is not None:
            raise BindError(f"`{call.name}` has another meaning now: {what}")


def plan_of_text(db: Database, text: str) -> tuple[Plan, frozenset[str]]:
    """The plan of a text that is one query, and the names it reads."""
    statements = parse(text)
    if len(statements) != 1:
        raise BindError(f"one query is needed, the text has {len(statements)} statements")
    tree = statements[0].tree
    if isinstance(tree, ast.CreateQuery):
        tree = tree.expression
    if type(tree) in _STATEMENTS:
        raise BindError("a query is needed, not a statement", hint="use execute for statements").at(
            position_of(tree), text
        )
    return _located(text, tree, lambda: bind_query(tree, db.catalog))


def parse_type(text: str) -> DataType:
    """The type that a text like ``DECIMAL(10, 2)`` names."""
    tree = parse(f"CREATE STREAM t (c {text})")[0].tree
    return bind_type(tree.args["columns"][0].args["kind"])


def _located(text: str, tree: exp.Expr, action: Callable[[], T]) -> T:
    try:
        return action()
    except PenstockError as error:
        # What the catalog says is about the name that the statement is about.
        named = isinstance(error, CatalogError | InputError) and isinstance(tree.this, exp.Identifier)
        raise error.at(position_of(tree.this if named else tree), text) from None
    except RecursionError:
        raise BindError("the statement is nested too deeply").at(position_of(tree), text) from None


def _run(db: Database, tree: exp.Expr, text: str) -> Result:
    action = _STATEMENTS.get(type(tree), _bare_query)
    return _located(text, tree, lambda: action(db, tree))


# -- declarations -------------------------------------------------------------------------------------


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


def _create_stream(db: Database, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    if tree.args.get("exists") and db.catalog.kind_of(name) == "stream":
        return Result("done", f"stream {name} is there already")
    db.catalog.check_free(name)
    position = db.catalog.next_position
    if tree.expression is not None:
        _options(tree, {})
        plan, reads = bind_query(tree.expression, db.catalog)
        _check_is_stream(plan, name)
        schema = plan.schema
        db.add_stream(
            StreamDef(name, schema, position, plan.clock, query=plan, reads=reads, text=format_statement(tree))
        )
        return Result("done", f"stream {name} created")
    schema = _columns(tree.args["columns"])
    scope = Scope()
    scope.add(name, "stream", schema)
    clock, column = _timestamp_by(tree.args.get("timestamp_by"), schema, name)
    slack = _slack(tree.args.get("slack"), clock)
    priority = _priority(db, tree.args.get("priority_by"), scope)
    known: dict[str, Parser] = {"retain": _retain_option(clock), "buffer": _amount_option}
    known |= {"overflow": _overflow_option, "time": _time_option, "zone": _zone_option}
    options = _options(tree, {**known, "on_error": _on_error_option, "unknown": _unknown_option})
    for option in ("time", "zone"):
        if option in options and all(f.type != TIMESTAMP for f in schema):
            hint = "declare the column TIMESTAMP"
            raise BindError(f"stream `{name}` has no TIMESTAMP, so `{option}` means nothing", hint=hint)
    form = replace(options.get("time", TimeForm("")), zone=options.get("zone", db.zone))
    if "zone" in options and form.counts:
        raise BindError(
            f"`time` is '{form.text}' since 1970 in all zones, so `zone` means nothing", hint="leave `zone` out"
        )
    if priority is not None and options.get("overflow"):
        raise BindError(
            f"stream `{name}` has priorities, so its oldest rows cannot be dropped",
            hint="leave out PRIORITY BY or `overflow`",
        )
    db.add_stream(
        StreamDef(
            name, schema, position, clock, column, slack, priority, options.get("retain", 0), options.get("buffer"),
            options.get("overflow", False), None if form == TimeForm("") else form, options.get("on_error", "refuse"),
            options.get("unknown"), text=format_statement(tree),
        )
    )  # fmt: skip
    return Result("done", f"stream {name} created")


def _check_is_stream(plan: Plan, name: str) -> None:
    if plan.output == "changes":
        raise BindError(
            f"the rows of this query come and go, so it is no stream `{name}`",
            hint="write SELECT ISTREAM (or DSTREAM, RSTREAM)",
        )


def _timestamp_by(node: exp.Expr | None, schema: Schema, name: str) -> tuple[Clock, str | None]:
    if node is None:
        return "timestamp", None
    found = schema[_place(node, schema, f"stream `{name}`")]
    if found.type == TIMESTAMP:
        return "timestamp", found.name
    if found.type == BIGINT:
        return "ticks", found.name
    raise BindError(
        f"TIMESTAMP BY `{found.name}` is {found.type}", hint="it takes a TIMESTAMP, or a BIGINT that counts ticks"
    ).at(position_of(node), None)


def _place(node: exp.Expr, schema: Schema, where: str) -> int:
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


def _priority(db: Database, node: exp.Expr | None, scope: Scope) -> Expr | None:
    if node is None:
        return None
    return as_priority(ExpressionBinder(db.catalog, scope, aggregates_allowed="PRIORITY BY").bind(node), node)


def _create_relation(db: Database, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    if tree.args.get("exists") and db.catalog.kind_of(name) == "relation":
        return Result("done", f"relation {name} is there already")
    db.catalog.check_free(name)
    schema = _columns(tree.args["columns"])
    _options(tree, {})
    key = tuple(_place(node, schema, f"relation `{name}`") for node in tree.args.get("key") or [])
    definition = RelationDef(name, schema, db.catalog.next_position, key, format_statement(tree))
    db.add_relation(RelationStore(definition))
    return Result("done", f"relation {name} created")


def _create_view(db: Database, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    replaces = bool(tree.args.get("replace")) and db.catalog.kind_of(name) == "view"
    if not replaces:
        db.catalog.check_free(name)
    plan, reads = bind_query(tree.expression, db.catalog)
    if name in reads:
        raise BindError(f"view `{name}` would contain itself")
    view = ViewDef(name, tree.expression.copy(), plan.schema, reads, format_statement(tree))
    db.replace_view(view)
    return Result("done", f"view {name} {'replaced' if replaces else 'created'}")


def _drop(db: Database, tree: exp.Expr) -> Result:
    name, kind = identifier(tree.this), tree.args["kind"].lower()
    if kind == "query":
        return _stop(db, tree)
    there = db.catalog.kind_of(name)
    if there is None and tree.args.get("exists"):
        return Result("done", f"there was no {kind} {name}")
    if there is None:
        raise db.catalog.unknown(name)
    if there != kind:
        raise CatalogError(f"`{name}` is a {there}, not a {kind}", hint=f"DROP {there.upper()} {name}")
    db.drop(name)
    return Result("done", f"{kind} {name} dropped")


# -- queries ----------------------------------------------------------------------------------------------


def _bare_query(db: Database, tree: exp.Expr) -> Result:
    plan, reads = bind_query(tree, db.catalog)
    return query_started(db.register(plan, reads, text=format_statement(tree)))


def _create_query(db: Database, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    into = tree.args.get("into")
    target = identifier(into) if into is not None else None
    if tree.args.get("exists") and name in db.queries:
        return Result("query", f"query {name} is there already", query=db.queries[name])
    if name in db.queries:
        raise CatalogError(f"there is a query `{name}` already", hint="STOP QUERY it, or use another name")
    if into is not None:
        try:
            db.catalog.check_free(identifier(into))
        except CatalogError as error:
            raise error.at(position_of(into), None) from None
    plan, reads = bind_query(tree.expression, db.catalog)
    if target is not None:
        _check_is_stream(plan, target)
    known = {"priority": _priority_option, "latency": _duration_option, "strict": _boolean_option}
    given = _options(tree, {**known, "start": _start_option, "join_priority": _join_priority_option})
    plan = with_join_priority(plan, given.pop("join_priority", "max"))
    text = format_statement(tree)
    if target is not None:
        db.add_stream(
            StreamDef(target, plan.schema, db.catalog.next_position, plan.clock, query=plan, reads=reads, text=text)
        )
    try:
        query = db.register(plan, reads, name=name, options=replace(QueryOptions(), **given), text=text)
    except PenstockError:
        if target is not None:
            db.drop(target)
        raise
    return query_started(query)


def _stop(db: Database, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    if name not in db.queries and tree.args.get("exists"):
        return Result("done", f"there was no query {name}")
    text = db.queries[name].text if name in db.queries else ""
    db.stop_query(name)
    left = [s.name for s in db.catalog.streams.values() if text and s.text == text]
    return Result("done", f"query {name} stopped" + "".join(f"; DROP STREAM {s} removes its stream" for s in left))


def _explain(db: Database, tree: exp.Expr) -> Result:
    name = tree.args["format"]
    what = tree.this
    if isinstance(what, exp.Identifier):
        query = identifier(what)
        if query not in db.queries:
            raise CatalogError(f"no query `{query}`", hint=suggest(query, db.queries) or "none is registered")
        text = db.explain(query, name)
    else:
        if isinstance(what, ast.CreateQuery):
            what = what.expression
        text = db.explain_tree(what, name)
    # A plan object is one value; what people read comes line by line.
    lines = [text] if name.upper() == "JSON" else text.splitlines()
    return Result("table", text, pa.table({"plan": lines}))


# -- options ----------------------------------------------------------------------------------------------

Parser = Callable[[str, exp.Expr], Any]


def _options(tree: exp.Expr, known: Mapping[str, Parser]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for option in tree.args.get("options") or []:
        name = identifier(option.this)
        try:
            if name not in known:
                hint = "there is " + ", ".join(f"`{k}`" for k in known) if known else "there are none here"
                raise BindError(f"no option `{name}`", hint=hint)
            if name in values:
                raise BindError(f"option `{name}` stands twice")
            values[name] = known[name](name, option.expression)
        except PenstockError as error:
            raise error.at(position_of(option), None) from None
    return values


def _priority_option(name: str, node: exp.Expr) -> int:
    if not (isinstance(node, exp.Literal) and node.name.isdigit() and len(node.name) == 1):
        raise BindError(f"`{name}` is a whole number from 0 to 9")
    return int(node.name)


def _join_priority_option(name: str, node: exp.Expr) -> str:
    if not isinstance(node, exp.Literal) or node.name not in JOIN_PRIORITIES:
        raise BindError(f"`{name}` is one of {', '.join(repr(p) for p in JOIN_PRIORITIES)}")
    return node.name


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


_on_error_option, _unknown_option = _one_of(OnError), _one_of(Unknown)


def _zone_option(name: str, node: exp.Expr) -> str:
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise BindError(f"`{name}` is {node.sql()}", hint="write for example zone = 'Europe/Vienna'")
    return checked_zone(node.name, BindError)


def _boolean_option(name: str, node: exp.Expr) -> bool:
    if not isinstance(node, exp.Boolean):
        raise BindError(f"`{name}` is true or false")
    return bool(node.this)


# -- data -------------------------------------------------------------------------------------------------


def _constant(db: Database, node: exp.Expr, wanted: DataType, what: str) -> object:
    bound = ExpressionBinder(db.catalog, Scope()).bind(_of_many_digits(node) if wanted.is_float else node)
    if bound.type != wanted:
        is_text = bound.type.kind is Kind.STRING and wanted.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL)
        same_family = bound.type.is_numeric and wanted.is_numeric
        if not (is_text or same_family or common_type(bound.type, wanted) == wanted):
            raise BindError(f"{what} is {wanted}, this is {bound.type}").at(position_of(node), None)
        given, bound = scalar.fold(bound), _converted(bound, wanted, db.zone)
        number = given.value if given is not None else None
        if wanted.is_integer and isinstance(number, float | Decimal) and not is_whole(number):
            text = format_statement(node)
            raise BindError(
                f"{what} is {wanted}, {number} is not a whole number",
                hint=f"write round({text}), or CAST({text} AS {wanted}) to cut the fraction off",
            ).at(position_of(node), None)
    value = scalar.fold(bound)
    if value is None:
        raise BindError(f"`{format_statement(node)}` is not a constant {wanted}").at(position_of(node), None)
    return value.value


def _of_many_digits(node: exp.Expr) -> exp.Expr:
    """A number that is too long to be exact, as a DOUBLE; anything else as it is."""
    number = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(number, exp.Literal) or number.is_string or not re.fullmatch(r"[\d.]{39,}", number.name):
        return node
    longer = node.copy()
    (longer.this if isinstance(node, exp.Neg) else longer).set("this", f"{number.name}e0")
    return longer


def _converted(value: Expr, wanted: DataType, zone: str) -> Expr:
    """A constant, or a column of them, as the type of the column that it goes into."""
    return functions.in_zone(Cast(value, wanted), zone, [value])


def _inserted(db: Database, rows: Sequence[exp.Expr], names: list[str], types: list[DataType]) -> list[pa.Array]:
    """The columns of VALUES."""
    if isinstance(rows[0], PlainRows):
        values: PlainValues = rows[0].this
        convert = partial(_converted, zone=db.zone)
        columns = plain_columns(values, types, convert) if values.width == len(names) else None
        if columns is not None:
            return columns
        rows = parse_rows(values)
    given: list[list[object]] = [[] for _ in names]
    for row in rows:
        if len(row.expressions) != len(names):
            counts = f"{counted(len(row.expressions), 'value')} for {counted(len(names), 'column')}"
            raise BindError(counts, hint=", ".join(f"`{n}`" for n in names)).at(position_of(row), None)
        for column, node, dtype, name in zip(given, row.expressions, types, names, strict=True):
            column.append(_constant(db, node, dtype, f"`{name}`"))
    return [to_arrow(column, dtype) for column, dtype in zip(given, types, strict=True)]


def _at(db: Database, node: exp.Expr | None) -> At | None:
    if node is None:
        return None
    bound = ExpressionBinder(db.catalog, Scope()).bind(node)
    wanted = BIGINT if bound.type.is_integer else TIMESTAMP
    value = _constant(db, node, wanted, "AT")
    if not isinstance(value, int):
        raise BindError("AT needs an instant").at(position_of(node), None)
    return At(to_instant(value), wanted == TIMESTAMP)


def _insert(db: Database, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    kind = db.catalog.kind_of(name)
    if kind not in ("stream", "relation"):
        raise db.catalog.unknown(name) if kind is None else InputError(f"`{name}` is a view, nothing can be put in")
    schema = db.catalog.streams[name].schema if kind == "stream" else db.catalog.relations[name].schema
    columns = tree.args.get("columns") or []
    names = [schema[_place(c, schema, f"{kind} `{name}`")].name for c in columns] or [f.name for f in schema]
    if len(set(names)) < len(names):
        raise BindError("a column stands twice in INSERT")
    types = {f.name: f.type for f in schema}
    columns = dict(zip(names, _inserted(db, tree.args["rows"], names, [types[n] for n in names]), strict=True))
    count = len(columns[names[0]])
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type.arrow) for f in schema]
    table = pa.Table.from_arrays(arrays, names=[f.name for f in schema])
    if kind == "relation":
        at, rows = _at(db, tree.args.get("at")), to_rows(table, schema)
        db.change_relation(name, lambda store, when: store.insert(rows, when), at)
    else:
        if tree.args.get("at") is not None:
            raise BindError("AT goes with relations; a stream takes its instants from its rows")
        before = counts_aside(db, name)
        db.push(name, table)
        return rows_into(db, name, count, before)
    return Result("done", f"{counted(count, 'row')} into {name}")


def _row_binder(db: Database, definition: RelationDef) -> ExpressionBinder:
    scope = Scope()
    scope.add(definition.name, "relation", definition.schema)
    return ExpressionBinder(db.catalog, scope, aggregates_allowed="a change of a relation")


def _user_functions(db: Database) -> scalar.Context:
    return scalar.Context(functions={n: f.call for n, f in db.catalog.functions.items()}, strict=True)


def _relation_of(db: Database, tree: exp.Expr) -> RelationDef:
    name = identifier(tree.this)
    if name in db.catalog.streams:
        raise CatalogError(f"`{name}` is a stream: what has happened cannot be changed", hint="only relations can")
    return db.catalog.relation(name)


def _update(db: Database, tree: exp.Expr) -> Result:
    definition = _relation_of(db, tree)
    binder = _row_binder(db, definition)
    assign: dict[int, Expr] = {}
    for node in tree.args["assignments"]:
        column = node.this.this if isinstance(node.this, exp.Column) else node.this
        place = _place(column, definition.schema, f"relation `{definition.name}`")
        field = definition.schema[place]
        assign[place] = _assigned(binder.bind(node.expression), field.type, field.name, node.expression, db.zone)
    where = _where(binder, tree)
    context = _user_functions(db)
    at = _at(db, tree.args.get("at"))
    with _nothing_changed():
        changed = db.change_relation(
            definition.name, lambda store, when: store.update(where, assign, when, context), at
        )
    return Result("done", f"{counted(changed // 2, 'row')} of {definition.name} updated")


def _assigned(value: Expr, wanted: DataType, column: str, node: exp.Expr, zone: str) -> Expr:
    try:
        if not (value.type.is_numeric and wanted.is_numeric) and functions.coerce(value, wanted) is None:
            hint = functions.how_to_convert(value.type, wanted)
            raise BindError(f"`{column}` is {wanted}, this is {value.type}", hint=hint)
        if wanted.is_integer and not value.type.is_integer and value.type.is_numeric:
            value = Call("integer", (value,), value.type)
        return functions.in_zone(functions.cast(value, wanted), zone, [value])
    except PenstockError as error:
        raise error.at(position_of(node), None) from None


@contextmanager
def _nothing_changed() -> Iterator[None]:
    """A value that cannot be computed refuses the whole change."""
    try:
        yield
    except QueryFailed as failed:
        raise InputError(failed.message, hint="no row has been changed") from None


def _delete(db: Database, tree: exp.Expr) -> Result:
    definition = _relation_of(db, tree)
    where = _where(_row_binder(db, definition), tree)
    context = _user_functions(db)
    at = _at(db, tree.args.get("at"))
    with _nothing_changed():
        changed = db.change_relation(
            definition.name, lambda store, when: store.delete(where, when, context), at
        )
    return Result("done", f"{counted(changed, 'row')} of {definition.name} deleted")


def _where(binder: ExpressionBinder, tree: exp.Expr) -> Expr | None:
    node = tree.args.get("where")
    if node is None:
        return None
    bound = binder.condition(node.this if isinstance(node, exp.Where) else node, "WHERE")
    assert bound.type == BOOLEAN
    return bound


_STATEMENTS: Mapping[type[exp.Expr], Callable[[Database, exp.Expr], Result]] = {
    ast.CreateStream: _create_stream,
    ast.CreateRelation: _create_relation,
    ast.CreateView: _create_view,
    ast.CreateQuery: _create_query,
    ast.StopQuery: _stop,
    ast.DropObject: _drop,
    ast.ShowObjects: show,
    ast.DescribeObject: describe,
    ast.Explain: _explain,
    ast.InsertInto: _insert,
    ast.UpdateRelation: _update,
    ast.DeleteFrom: _delete,
}
