"""SHOW and DESCRIBE: looking around in a database."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from penstock import functions
from penstock.cql.expressions import identifier
from penstock.database.results import Result
from penstock.model.batch import Instant
from penstock.model.errors import CatalogError, suggest
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
                {"query": q.name, "status": q.shown_status, "answers": str(q.answered), "text": q.text}
                for q in core.queries.values()
            ]
        case _:
            known = {**functions.SCALARS, **functions.AGGREGATES}
            rows = [{"function": n, "signature": f.signature, "meaning": f.doc} for n, f in sorted(known.items())]
            rows += [
                {
                    "function": f.name,
                    "signature": f"{f.name}({', '.join(map(str, f.args))}) → {f.returns}",
                    "meaning": "yours",
                }
                for f in catalog.functions.values()
            ]
    kind = tree.args["kind"].lower()
    names = _COLUMNS.get(kind, ("function", "signature", "meaning"))
    table = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in names})
    return Result("table", f"{len(rows)} {kind}", table)


_COLUMNS = {
    "streams": ("stream", "columns", "timestamp by", "kind", "progress", "late", "apart"),
    "relations": ("relation", "columns", "rows"),
    "views": ("view", "text"),
    "queries": ("query", "status", "answers", "text"),
}


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


def _shown(schema: Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def describe(core: Core, tree: exp.Expr) -> Result:
    name = identifier(tree.this)
    catalog = core.catalog
    schema: Schema
    match catalog.kind_of(name):
        case "stream":
            schema, note = catalog.streams[name].schema, catalog.streams[name].text
        case "relation":
            schema, note = catalog.relations[name].schema, catalog.relations[name].text
        case "view":
            schema, note = catalog.views[name].schema, catalog.views[name].text
        case _:
            if name not in core.queries:
                raise CatalogError(
                    f"no stream, relation, view or query `{name}`",
                    hint=suggest(name, [*catalog.names(), *core.queries]),
                )
            query = core.queries[name]
            remark = core.host.remark(query)
            schema, note = query.plan.shown, query.text + (f"\n-- {remark}" if remark else "")
    table = pa.table({"column": [f.name for f in schema], "type": [str(f.type) for f in schema]})
    return Result("table", note, table)
