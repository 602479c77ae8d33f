"""The statements that declare what there is: what DESCRIBE gives.

Executed in an empty database of the same time zone, after what it reads, a statement declares the same thing. It is
made of what is there now, so it has the options that a query has now, and a name that was taken from elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.catalog import Catalog, FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.cql import ast
from penstock.cql.expressions import identifier
from penstock.cql.names import written_name
from penstock.cql.plan_objects import by_name
from penstock.cql.text import format_statement, parse
from penstock.model.amounts import Bound, written
from penstock.model.types import TIMESTAMP
from penstock.plan.nodes import has_join_priority
from penstock.plan.show import show_duration

if TYPE_CHECKING:
    from penstock.database.core import Core
    from penstock.hosts.registered import Registered


def of_catalog(core: Core, found: StreamDef | RelationDef | ViewDef) -> str:
    """The statement that declares a stream, relation or view."""
    tree = parse(found.text)[0].tree
    if isinstance(tree, ast.CreateQuery):  # the stream that a query writes into
        writer = next((q for q in core.queries.values() if q.text == found.text), None)
        if writer is not None:
            return of_query(writer, core.catalog)
    for said in ("exists", "replace"):
        if said in tree.args:
            tree.set(said, None)
    if isinstance(found, StreamDef) and _needs_zone(found, tree, core.zone):
        zone = ast.Option(this=exp.to_identifier("zone"), expression=exp.Literal.string(found.zone))
        tree.set("options", [*(tree.args.get("options") or []), zone])
    return format_statement(tree)


def _needs_zone(stream: StreamDef, tree: exp.Expr, zone: str) -> bool:
    """Whether a stream takes times in a zone that the database had when it was declared, and has no more."""
    said = any(identifier(option.this) == "zone" for option in tree.args.get("options") or [])
    counts = stream.time is not None and stream.time.counts
    times = any(f.type == TIMESTAMP for f in stream.schema)
    return stream.zone != zone and times and not (said or counts or stream.derived)


def of_query(query: Registered, catalog: Catalog) -> str:
    """The statement that registers a query."""
    join_priority: list[exp.Expr] = []
    into = None
    tree = parse(query.text)[0].tree if query.text else None
    said_in_python = not isinstance(tree, ast.CreateQuery) and has_join_priority(query.plan)
    if tree is not None and not said_in_python:
        if isinstance(tree, ast.CreateQuery):
            into = tree.args.get("into")
            if into is not None and not _is_of(query, catalog.streams.get(identifier(into))):
                into = None  # it has been dropped
            given = tree.args.get("options") or []
            join_priority = [option for option in given if identifier(option.this) == "join_priority"]
            tree = tree.expression
        if isinstance(tree, ast.PlanObject):
            tree = _plan(json.loads(tree.name))
    else:
        tree = _plan(query.plan_json)
    ordered = [ast.Option(this=exp.to_identifier("ordered"), expression=exp.true())] if query.plan.ordered else []
    options = [*join_priority, *ordered, *_options(query.options)]
    return format_statement(ast.CreateQuery(this=_name(query.name), expression=tree, into=into, options=options))


def _plan(plan: object) -> ast.PlanObject:
    return ast.PlanObject(this=exp.Literal.string(json.dumps(by_name(plan), ensure_ascii=False)))


def _is_of(query: Registered, stream: StreamDef | None) -> bool:
    return stream is not None and stream.text == query.text


def _name(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=written_name(name) != name or name != name.lower())


def _options(options: QueryOptions) -> list[exp.Expr]:
    """What differs from a query that says nothing."""
    usual = QueryOptions()
    return [
        ast.Option(this=exp.to_identifier(f.name), expression=_value(f.name, getattr(options, f.name)))
        for f in fields(options)
        if getattr(options, f.name) != getattr(usual, f.name)
    ]


def _value(name: str, value: object) -> exp.Expr:
    match value:
        case bool():
            return exp.Boolean(this=value)
        case int() if name == "latency":
            return exp.Literal.string(show_duration(value, "timestamp").lower())
        case int():
            return exp.Literal.number(value)
        case Bound():
            return exp.Literal.string(written(value))
    return exp.Literal.string(str(value))


def of_function(function: FunctionDef) -> str:
    """The call that declares a function of the user's; its code is Python's."""
    code = getattr(function.call, "__qualname__", type(function.call).__name__)
    args = ", ".join(f'"{t}"' for t in function.args)
    return f'db.create_function("{function.name}", {code}, args=[{args}], returns="{function.returns}")'
