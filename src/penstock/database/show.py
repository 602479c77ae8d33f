"""SHOW and DESCRIBE: looking around in a database."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from penstock import functions
from penstock.catalog import Catalog
from penstock.cql.expressions import identifier
from penstock.cql.plan_objects import signature
from penstock.database import definitions
from penstock.database.results import Result
from penstock.graph.draw.common import duration
from penstock.hosts.registered import Over, Registered
from penstock.model.batch import Instant
from penstock.model.errors import CatalogError, suggest
from penstock.model.names import counted
from penstock.model.schema import Clock, Schema
from penstock.rows.text import plain

if TYPE_CHECKING:
    from penstock.database.core import Core


def show(core: Core, tree: exp.Expr) -> Result:
    catalog = core.catalog
    match tree.args["kind"]:
        case "STREAMS":
            rows = [
                {
                    "stream": s.name,
                    "columns": _shown(s.schema),
                    "timestamp by": s.timestamp_by or ("" if s.derived else "arrival"),
                    "kind": "derived" if s.derived else "declared",
                    "progress": "" if s.derived else _progress(core.inputs[s.name].progress, s.clock, core.zone),
                    "late": "" if s.derived else str(core.inputs[s.name].late.count),
                    "apart": "" if s.derived else str(core.inputs[s.name].apart.count),
                }
                for s in catalog.streams.values()
            ]
        case "RELATIONS":
            rows = [
                {"relation": r.name, "columns": _shown(r.schema), "rows": str(core.relations[r.name].size)}
                for r in catalog.relations.values()
            ]
        case "VIEWS":
            rows = [{"view": v.name, "text": v.text} for v in catalog.views.values()]
        case "QUERIES":
            rows = [
                {
                    "query": q.name,
                    "status": q.shown_status,
                    "answers": str(q.answered),
                    "latency p50": _seconds(latency.p50),
                    "latency p99": _seconds(latency.p99),
                    "waiting p99": _seconds(latency.waiting_p99),
                    "incomplete": _incomplete(q, core.zone),
                    "text": q.text,
                }
                for q in core.queries.values()
                for latency in [q.meter.latency]
            ]
            if tree.args.get("all"):
                over = {q.name: _ending(core, q.at_end(0)) for q in core.queries.values() if q.status != "running"}
                rows = [{**row, **over.get(row["query"], {})} for row in rows]
                rows += [
                    {"query": o.name, "status": o.status, "answers": str(o.answers), "text": o.text}
                    | _ending(core, o)
                    for o in core.over.values()
                ]
        case _:
            table = _functions(catalog)
            return Result("table", counted(table.num_rows, "function"), table)
    kind = tree.args["kind"].lower()
    columns = [*_COLUMNS[kind], *(("ended", "how") if tree.args.get("all") else ())]
    return Result("table", counted(len(rows), *_ONE[kind]), _table(rows, columns))


def _ending(core: Core, over: Over) -> dict[str, str]:
    """When a query ended, and how."""
    return {"ended": "" if over.ended is None else _progress(over.ended, "timestamp", core.zone), "how": over.how}


def _functions(catalog: Catalog, name: str | None = None) -> pa.Table:
    """All functions, or those of one name."""
    known = {**functions.SCALARS, **functions.AGGREGATES}
    rows = [{"function": n, "signature": f.signature, "meaning": f.doc} for n, f in sorted(known.items())]
    rows += [
        {"function": f.name, "signature": signature(f), "meaning": "yours"} for f in catalog.functions.values()
    ]
    return _table([r for r in rows if name in (None, r["function"])], ("function", "signature", "meaning"))


def _table(rows: Sequence[Mapping[str, str]], names: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array([row.get(name, "") for row in rows], pa.string()) for name in names})


_COLUMNS = {
    "streams": ("stream", "columns", "timestamp by", "kind", "progress", "late", "apart"),
    "relations": ("relation", "columns", "rows"),
    "views": ("view", "text"),
    "queries": ("query", "status", "answers", "latency p50", "latency p99", "waiting p99", "incomplete", "text"),
}

_ONE = {"streams": ("stream",), "relations": ("relation",), "views": ("view",), "queries": ("query", "queries")}


_SHOWN = 2**59
"""Ticks around 1970 that are shown as dates: some 18,000 years."""


def _progress(instant: Instant, clock: Clock, zone: str) -> str:
    """Up to where a stream is complete, for people."""
    if math.isinf(instant):
        return "closed" if instant > 0 else ""
    if clock == "ticks":
        return str(instant)
    if not -_SHOWN < instant < _SHOWN:
        return f"{instant} microseconds since 1970"
    return str(plain(pa.chunked_array([pa.array([int(instant)], pa.timestamp("us", zone))]), separator=" ")[0])


def _incomplete(query: Registered, zone: str) -> str:
    """Which results lack something, a line for each stretch."""
    return "\n".join(m.said(partial(_progress, clock=query.plan.clock, zone=zone)) for m in query.results.marks.all)


def _seconds(measured: float | None) -> str:
    return "" if measured is None else duration(measured)


def _shown(schema: Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def describe(core: Core, tree: exp.Expr) -> Result:
    """The columns of something that is declared, how it is, and the statement that declares it."""
    name, kind, catalog = identifier(tree.this), (tree.args.get("kind") or "").lower(), core.catalog
    there = catalog.kind_of(name)
    schema: Schema
    if there is not None and kind in ("", there):
        found = catalog.streams.get(name) or catalog.relations.get(name) or catalog.views.get(name)
        if found is None:
            raise catalog.unknown(name)  # it can only be dropped
        schema, state, definition = found.schema, f"{there} {name}", definitions.of_catalog(core, found)
    elif name in core.queries and kind in ("", "query"):
        query = core.queries[name]
        facts = (query.shown_status, counted(query.answered, "answer"), core.host.remark(query))
        state = f"query {name}: {', '.join(filter(None, facts))}"
        schema, definition = query.plan.shown, definitions.of_query(query, catalog)
    elif kind in ("", "function") and (table := _functions(catalog, name.lower())).num_rows:
        yours = catalog.functions.get(name.lower())
        return Result(
            "table", f"function {name.lower()}", table, note=None if yours is None else definitions.of_function(yours)
        )
    else:
        raise _nothing(core, name, kind, there)
    table = pa.table({"column": [f.name for f in schema], "type": [str(f.type) for f in schema]})
    return Result("table", state, table, note=definition)


def _nothing(core: Core, name: str, kind: str, there: str | None) -> CatalogError:
    """The error for a name that nothing has, or nothing of the kind that is asked for."""
    if there is not None:
        return CatalogError(f"`{name}` is a {there}, not a {kind}", hint=f"DESCRIBE {there.upper()} {name}")
    known = {"": [*core.catalog.names(), *core.queries, *core.catalog.functions], "query": [*core.queries]}
    known["function"] = [*functions.SCALARS, *functions.AGGREGATES, *core.catalog.functions]
    what = kind or "stream, relation, view, query or function"
    return CatalogError(f"no {what} `{name}`", hint=suggest(name, known.get(kind, core.catalog.names())))
