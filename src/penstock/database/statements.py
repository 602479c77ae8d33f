"""What each statement of CQL does to a database. A statement that fails leaves the database as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial

import pyarrow as pa
from sqlglot import exp

from penstock import functions, scalar
from penstock.catalog import QueryOptions, RelationDef, StreamDef
from penstock.cql import ast
from penstock.cql.declarations import (
    altered_options,
    check_is_stream,
    definition,
    located,
    place_of,
    query_of,
    stream_of_query,
)
from penstock.cql.expressions import ExpressionBinder, identifier
from penstock.cql.plain_values import PlainRows, PlainValues
from penstock.cql.queries import bind_query
from penstock.cql.scope import Scope
from penstock.cql.text import format_statement, parse, parse_rows, position_of
from penstock.database.core import Core
from penstock.database.literals import plain_columns
from penstock.database.planning import compared, compared_options, planned
from penstock.database.query import Query
from penstock.database.results import Result, counts_aside, query_started, rows_into
from penstock.database.show import describe, show
from penstock.hosts.registered import Registered
from penstock.ingest.relations import At
from penstock.model.errors import BindError, CatalogError, InputError, PenstockError, QueryFailed
from penstock.model.names import counted
from penstock.model.types import BIGINT, BOOLEAN, TIMESTAMP, DataType, Kind, common_type
from penstock.model.values import to_arrow, to_rows
from penstock.plan.explain import explain_json, explain_mermaid, explain_text
from penstock.plan.explanation import Explanation
from penstock.plan.nodes import Query as Plan
from penstock.rows.times import to_instant
from penstock.rows.values import is_whole
from penstock.scalar.expr import Call, Cast, Expr
from penstock.scalar.zones import UTC

Held = Callable[[Registered], Query]
"""What a user holds of a registered query."""


def run_statements(core: Core, text: str, held: Held) -> list[Result]:
    """Run the statements of a text in order. Without the lock, which each takes for itself."""
    core.check_open()
    return [_run(core, statement.tree, text, held) for statement in parse(text)]


def _run(core: Core, tree: exp.Expr, text: str, held: Held) -> Result:
    match tree:
        case ast.CreateQuery():
            return located(text, tree, lambda: _create_query(core, tree, held))
        case ast.StopQuery():
            return located(text, tree, lambda: _stop(core, tree))
        case ast.AlterQuery():
            return located(text, tree, lambda: _alter(core, tree))
        case ast.SuspendQuery() | ast.ResumeQuery():
            return located(text, tree, lambda: _rest(core, tree, suspended=isinstance(tree, ast.SuspendQuery)))
        case ast.InsertInto():
            return located(text, tree, lambda: _insert(core, tree))
        case ast.DropObject() if tree.args["kind"].lower() == "query":
            return located(text, tree, lambda: _stop(core, tree))
    action = _STATEMENTS.get(type(tree))
    if action is None:
        return located(text, tree, lambda: _bare_query(core, tree, held))
    with core.changing():
        return located(text, tree, lambda: action(core, tree))


# -- declarations -------------------------------------------------------------------------------------


_KINDS: Mapping[type[exp.Expr], str] = {
    ast.CreateStream: "stream", ast.CreateRelation: "relation", ast.CreateView: "view",
}  # fmt: skip


def _create(core: Core, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    kind = _KINDS[type(tree)]
    there = core.catalog.kind_of(name) == kind
    if there and tree.args.get("exists"):
        return Result("done", f"{kind} {name} is there already")
    found = definition(tree, core.catalog)
    assert found is not None, "these statements declare something"
    if isinstance(found, StreamDef) and found.source is not None:
        core.host.abilities().check_source(found)
    core.put(found)
    return Result("done", f"{kind} {name} {'replaced' if there else 'created'}")


def _drop(core: Core, tree: exp.Expr) -> Result:
    name, kind = identifier(tree.this), tree.args["kind"].lower()
    there = core.catalog.kind_of(name)
    if there is None and tree.args.get("exists"):
        return Result("done", f"there was no {kind} {name}")
    if there is None:
        raise core.catalog.unknown(name)
    if there != kind:
        raise CatalogError(f"`{name}` is a {there}, not a {kind}", hint=f"DROP {there.upper()} {name}")
    core.drop(name)
    return Result("done", f"{kind} {name} dropped")


# -- queries ----------------------------------------------------------------------------------------------


def _bare_query(core: Core, tree: exp.Expr, held: Held) -> Result:
    with core.changing():
        plan, reads = bind_query(tree, core.catalog)
        query = held(core.register(plan, reads, text=format_statement(tree)))
    return query_started(query)


def _create_query(core: Core, tree: ast.CreateQuery, held: Held) -> Result:
    name = identifier(tree.this)
    into = tree.args.get("into")
    target = identifier(into) if into is not None else None
    with core.changing():
        if name in core.queries:
            if tree.args.get("exists"):
                return Result("query", f"query {name} is there already", query=held(core.queries[name]))
            raise CatalogError(f"there is a query `{name}` already", hint="STOP QUERY it, or use another name")
        if target is not None and into is not None:
            try:
                core.catalog.check_free(target)
            except CatalogError as error:
                raise error.at(position_of(into), None) from None
        plan, reads, options = query_of(tree, core.catalog)
        if target is not None:
            check_is_stream(plan, target)
        text = format_statement(tree)
        made = None if target is None else stream_of_query(target, plan, reads, text, core.catalog)
        query = held(core.register(plan, reads, name=name, options=options, text=text, into=made))
    return query_started(query)


def _stop(core: Core, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    with core.changing():
        if name not in core.queries and tree.args.get("exists"):
            return Result("done", f"there was no query {name}")
        query = core.query(name)
        left = [s.name for s in core.catalog.streams.values() if query.text and s.text == query.text]
    core.stop(query)
    return Result("done", f"query {name} stopped" + "".join(f"; DROP STREAM {s} removes its stream" for s in left))


def _alter(core: Core, tree: exp.Expr) -> Result:
    query = core.query(identifier(tree.this))
    core.alter(query, partial(altered_options, tree))
    return Result("done", f"query {query.name} altered")


def _rest(core: Core, tree: exp.Expr, *, suspended: bool) -> Result:
    query = core.query(identifier(tree.this))
    core.rest(query, suspended=suspended)
    said = f"suspended; RESUME QUERY {query.name} lets it go on" if suspended else "resumed"
    return Result("done", f"query {query.name} {said}")


def explained(core: Core, plan: Plan, format: str, query: Registered | None = None) -> str:
    """A plan for people, or for programs."""
    match format.lower():
        case "text":
            zone = "" if core.zone == UTC else "zone: functions name theirs; TIMESTAMP '…' in a plan is in UTC"
            parts = (explain_text(plan), zone, core.host.explain(plan, query))
            return Explanation("\n".join(filter(None, parts)))
        case "json":
            return json.dumps(explain_json(plan), indent=2, ensure_ascii=False)
        case "mermaid":
            return explain_mermaid(plan)
    raise BindError(f"no format `{format}`", hint="there are text, json, mermaid")


def explained_query(core: Core, query: Registered, format: str, *, alternatives: bool) -> str:
    """The plan of a registered query."""
    if alternatives:
        return compared(core, query.plan, format, "the query was registered with it")
    return explained(core, query.plan, format, query)


def explained_plan(core: Core, plan: Plan, options: QueryOptions, format: str, *, alternatives: bool) -> str:
    """The plan that a query would be registered with."""
    if alternatives:
        return compared_options(core, plan, options, format)
    return explained(core, planned(core, plan, options), format)


def _explain(core: Core, tree: exp.Expr) -> Result:
    format, what, alternatives = tree.args["format"], tree.this, bool(tree.args.get("alternatives"))
    if isinstance(what, exp.Identifier):
        text = explained_query(core, core.query(identifier(what)), format, alternatives=alternatives)
    else:
        plan, _ = bind_query(what, core.catalog)
        text = explained_plan(core, plan, QueryOptions(), format, alternatives=alternatives)
    # A plan object is one value; what people read comes line by line.
    lines = [text] if format.upper() == "JSON" else text.splitlines()
    return Result("table", text, pa.table({"plan": lines}))


# -- data -------------------------------------------------------------------------------------------------


def _constant(core: Core, node: exp.Expr, wanted: DataType, what: str) -> object:
    bound = ExpressionBinder(core.catalog, Scope()).bind(_of_many_digits(node) if wanted.is_float else node)
    if bound.type != wanted:
        is_text = bound.type.kind is Kind.STRING and wanted.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL)
        same_family = bound.type.is_numeric and wanted.is_numeric
        if not (is_text or same_family or common_type(bound.type, wanted) == wanted):
            raise BindError(f"{what} is {wanted}, this is {bound.type}").at(position_of(node), None)
        given, bound = scalar.fold(bound), _converted(bound, wanted, core.zone)
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


def _inserted(core: Core, rows: Sequence[exp.Expr], names: list[str], types: list[DataType]) -> list[pa.Array]:
    """The columns of VALUES."""
    if isinstance(rows[0], PlainRows):
        values: PlainValues = rows[0].this
        convert = partial(_converted, zone=core.zone)
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
            column.append(_constant(core, node, dtype, f"`{name}`"))
    return [to_arrow(column, dtype) for column, dtype in zip(given, types, strict=True)]


def _at(core: Core, node: exp.Expr | None) -> At | None:
    if node is None:
        return None
    bound = ExpressionBinder(core.catalog, Scope()).bind(node)
    wanted = BIGINT if bound.type.is_integer else TIMESTAMP
    value = _constant(core, node, wanted, "AT")
    if not isinstance(value, int):
        raise BindError("AT needs an instant").at(position_of(node), None)
    return At(to_instant(value), wanted == TIMESTAMP)


def _insert(core: Core, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    with core.changing():
        kind, table = _rows_to_insert(core, tree, name)
        if kind == "relation":
            at, rows = _at(core, tree.args.get("at")), to_rows(table, core.catalog.relations[name].schema)
            core.change_relation(name, lambda store, when: store.insert(rows, when), at)
        elif tree.args.get("at") is not None:
            raise BindError("AT goes with relations; a stream takes its instants from its rows")
    if kind == "stream":
        before = counts_aside(core, name)
        core.push(name, table)
        return rows_into(core, name, table.num_rows, before)
    return Result("done", f"{counted(table.num_rows, 'row')} into {name}", count=table.num_rows)


def _rows_to_insert(core: Core, tree: exp.Expr, name: str) -> tuple[str, pa.Table]:
    """Whether rows go into a stream or a relation, and the rows with all columns that it has."""
    kind = core.catalog.kind_of(name)
    if kind not in ("stream", "relation"):
        raise core.catalog.unknown(name) if kind is None else InputError(f"`{name}` is a view, nothing can be put in")
    schema = core.catalog.streams[name].schema if kind == "stream" else core.catalog.relations[name].schema
    columns = tree.args.get("columns") or []
    names = [schema[place_of(c, schema, f"{kind} `{name}`")].name for c in columns] or [f.name for f in schema]
    if len(set(names)) < len(names):
        raise BindError("a column stands twice in INSERT")
    types = {f.name: f.type for f in schema}
    given = dict(zip(names, _inserted(core, tree.args["rows"], names, [types[n] for n in names]), strict=True))
    count = len(given[names[0]])
    arrays = [given[f.name] if f.name in given else pa.nulls(count, f.type.arrow) for f in schema]
    return kind, pa.Table.from_arrays(arrays, names=[f.name for f in schema])


def _row_binder(core: Core, definition: RelationDef) -> ExpressionBinder:
    scope = Scope()
    scope.add(definition.name, "relation", definition.schema)
    return ExpressionBinder(core.catalog, scope, aggregates_allowed="a change of a relation")


def _user_functions(core: Core) -> scalar.Context:
    return scalar.Context(functions={n: f.call for n, f in core.catalog.functions.items()}, strict=True)


def _relation_of(core: Core, tree: exp.Expr) -> RelationDef:
    name = identifier(tree.this)
    if name in core.catalog.streams:
        raise CatalogError(f"`{name}` is a stream: what has happened cannot be changed", hint="only relations can")
    return core.catalog.relation(name)


def _update(core: Core, tree: exp.Expr) -> Result:
    definition = _relation_of(core, tree)
    binder = _row_binder(core, definition)
    assign: dict[int, Expr] = {}
    for node in tree.args["assignments"]:
        column = node.this.this if isinstance(node.this, exp.Column) else node.this
        place = place_of(column, definition.schema, f"relation `{definition.name}`")
        field = definition.schema[place]
        assign[place] = _assigned(binder.bind(node.expression), field.type, field.name, node.expression, core.zone)
    where = _where(binder, tree)
    context = _user_functions(core)
    at = _at(core, tree.args.get("at"))
    with _nothing_changed():
        changed = core.change_relation(
            definition.name, lambda store, when: store.update(where, assign, when, context), at
        )
    return Result("done", f"{counted(changed // 2, 'row')} of {definition.name} updated", count=changed // 2)


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


def _delete(core: Core, tree: exp.Expr) -> Result:
    definition = _relation_of(core, tree)
    where = _where(_row_binder(core, definition), tree)
    context = _user_functions(core)
    at = _at(core, tree.args.get("at"))
    with _nothing_changed():
        changed = core.change_relation(
            definition.name, lambda store, when: store.delete(where, when, context), at
        )
    return Result("done", f"{counted(changed, 'row')} of {definition.name} deleted", count=changed)


def _where(binder: ExpressionBinder, tree: exp.Expr) -> Expr | None:
    node = tree.args.get("where")
    if node is None:
        return None
    bound = binder.condition(node.this if isinstance(node, exp.Where) else node, "WHERE")
    assert bound.type == BOOLEAN
    return bound


_STATEMENTS: Mapping[type[exp.Expr], Callable[[Core, exp.Expr], Result]] = {
    ast.CreateStream: _create,
    ast.CreateRelation: _create,
    ast.CreateView: _create,
    ast.DropObject: _drop,
    ast.ShowObjects: show,
    ast.DescribeObject: describe,
    ast.Explain: _explain,
    ast.UpdateRelation: _update,
    ast.DeleteFrom: _delete,
}
"""Statements that are done under the lock; the others take it for a part of what they do."""
