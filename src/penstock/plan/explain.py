"""Plans for people and tools: a text tree, JSON and Mermaid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.model.schema import Clock, Schema
from penstock.plan.cost import Costs, estimate
from penstock.plan.derive import is_monotonic, partitioning
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
    Prioritise,
    Project,
    Query,
    QueryStream,
    RelationScan,
    SemiJoin,
    SetOp,
    StreamScan,
    TopN,
    Window,
    bounded_window,
    declared_scans,
    inputs,
    streams,
    windows,
)
from penstock.plan.serial import to_json
from penstock.plan.serial_expr import Json
from penstock.plan.show import (
    show_aggregate,
    show_expr,
    show_name,
    show_sort_key,
    show_window,
    show_with,
)
from penstock.scalar.expr import Column, Expr

__all__ = [
    "escape_mermaid",
    "explain_json",
    "explain_mermaid",
    "explain_text",
    "explain_tree",
    "show_expr",
    "show_node",
]

_SEMI = {"semi": "SemiJoin", "anti": "AntiJoin", "mark": "MarkJoin"}


def show_node(node: Node) -> str:
    """One node in one line, without its inputs."""
    match node:
        case StreamScan():
            return f"Stream {show_name(node.stream)}({_fields(node.schema)})"
        case RelationScan():
            return f"Relation {show_name(node.relation)}({_fields(node.schema)})"
        case QueryStream():
            return f"QueryStream {show_name(node.name)}"
        case Window(_, spec, retractions):
            silent = "" if retractions else " without retractions"
            fresh = "" if node.reuse else " from nothing"
            return f"Window {show_window(spec, _names(node), _clock(node))}{silent}{fresh}"
        case Filter():
            return f"Filter {show_with(node.predicate, _names(node))}"
        case Project(below, exprs, names):
            known = _names(below)
            shown = (_named(e, n, known) for e, n in zip(exprs, names, strict=True))
            return f"Project {', '.join(shown)}"
        case Join() | SemiJoin():
            return _join(node)
        case Aggregate():
            return _aggregate(node)
        case Distinct():
            return "Distinct"
        case Prioritise():
            return f"Prioritise by {show_with(node.by, _names(node))}"
        case SetOp(kind, all_, _, _):
            return f"{kind.capitalize()}{' all' if all_ else ''}"
        case TopN(below, keys, limit, offset):
            text = "TopN" + (f" {limit}" if limit is not None else "") + (f" offset {offset}" if offset else "")
            shown = (show_sort_key(k, _names(below)) for k in keys)
            return text + (f" by {', '.join(shown)}" if keys else "")
        case Query(_, output, masters, _):
            return f"Query {output}" + (f" master {', '.join(map(show_name, masters))}" if masters else "")


def explain_text(query: Query, *, costs: bool = False) -> str:
    """The plan as a tree, then what was derived from it; ``costs`` adds estimates to every node."""
    lines = list(_tree(query, "", "", Costs() if costs else None))
    lines += ["", *(f"{name}: {text}" for name, text in _facts(query))]
    if costs:
        cost = estimate(query)
        lines.append(f"cost: {cost.rate:,.0f} answers/s, {cost.state_rows:,.0f} rows kept, {cost.work:,.0f} steps/s")
    return "\n".join(lines)


def explain_tree(query: Query) -> Iterator[str]:
    """The lines of the tree alone."""
    return _tree(query, "", "")


def explain_json(query: Query) -> Json:
    """The plan's JSON form, which ``from_json`` accepts, with what was derived under ``annotations``."""
    cost = estimate(query)
    split = partitioning(query)
    keys = None
    if split.keys is not None:
        keys = [{"source": k.source, "columns": list(k.columns)} for k in split.keys]
    notes = {name.replace(" ", "_"): text for name, text in _facts(query)}
    return to_json(query) | {
        "annotations": {
            **notes,
            "partitioning": {"keys": keys, "reason": split.reason or None, "anywhere": split.anywhere},
            "monotonic": is_monotonic(query.input),
            "cost": {"rate": cost.rate, "state_rows": cost.state_rows, "work": cost.work},
        }
    }


def explain_mermaid(query: Query) -> str:
    """A flowchart with rows flowing down: sources on top, the query at the bottom."""
    nodes: list[str] = []
    edges: list[str] = []

    def draw(node: Node) -> str:
        below = [draw(child) for child in inputs(node)]
        name = f"n{len(nodes)}"
        left, right = ("[(", ")]") if isinstance(node, StreamScan | RelationScan) else ("[", "]")
        nodes.append(f'    {name}{left}"{escape_mermaid(show_node(node))}"{right}')
        edges.extend(f"    {child} --> {name}" for child in below)
        return name

    draw(query)
    return "\n".join(["flowchart TD", *nodes, *edges])


def escape_mermaid(text: str) -> str:
    """Mermaid reads ``#34;`` as a character; whatever could end a label or be markup is written so."""
    kept = " .,:+-*/%=_'"
    return "".join(c if c.isalnum() or c in kept or ord(c) > 127 else f"#{ord(c)};" for c in text)


def _tree(node: Node, first: str, rest: str, costs: Costs | None = None) -> Iterator[str]:
    text = first + " ".join(show_node(node).splitlines())
    if costs is not None:
        e = costs.node(node)
        text += f"  (~{e.rate:,.0f}/s, {e.rows:,.0f} rows)"
    yield text
    below = inputs(node)
    for i, child in enumerate(below):
        last = i == len(below) - 1
        yield from _tree(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), costs)


def _fields(schema: Schema) -> str:
    return ", ".join(show_name(f.name) for f in schema)


def _named(expr: Expr, name: str, names: Sequence[str]) -> str:
    text = show_with(expr, names)
    return text if text == show_name(name) else f"{text} AS {show_name(name)}"


def _names(*nodes: Node) -> list[str]:
    """The columns of the nodes' rows side by side; equal names are told apart by source, then by position."""
    origins = [origin for node in nodes for origin in _origins(node)]
    plain = [show_name(name) for _, name in origins]
    full = [f"{show_name(source)}.{p}" if source else p for (source, _), p in zip(origins, plain, strict=True)]
    shown = [p if plain.count(p) == 1 else f for p, f in zip(plain, full, strict=True)]
    return [n if shown.count(n) == 1 else f"{n}#{i}" for i, n in enumerate(shown)]


def _origins(node: Node) -> list[tuple[str | None, str]]:
    """For each column the source it comes from under its own name, if it does, and its name."""
    match node:
        case StreamScan() | RelationScan() | QueryStream():
            return [(node.name, f.name) for f in node.schema]
        case Join():
            return _origins(node.left) + _origins(node.right)
        case SemiJoin():
            return _origins(node.left) + [(None, f.name) for f in node.schema[len(node.left.schema) :]]
        case Project(below, exprs, names):
            known = _origins(below)
            read = [known[e.index] if isinstance(e, Column) else (None, "") for e in exprs]
            return [o if o[1] == n else (None, n) for o, n in zip(read, names, strict=True)]
        case Window() | Filter() | Distinct() | Prioritise() | TopN():
            found = _origins(node.input)
            return found + [(None, f.name) for f in node.schema[len(found) :]]
    return [(None, f.name) for f in node.schema]


def _source_name(node: Node) -> str | None:
    while isinstance(node, Window | Filter | Project | Distinct | Prioritise):
        node = node.input
    return node.name if isinstance(node, StreamScan | RelationScan | QueryStream) else None


def _join(node: Join | SemiJoin) -> str:
    text = f"Join {node.kind}" if isinstance(node, Join) else _SEMI[node.kind]
    both = _names(node.left, node.right)
    split = len(node.left.schema)
    keys = [f"{show_with(a, both[:split])} = {show_with(b, both[split:])}" for a, b in node.keys]
    if keys:
        text += f" on {', '.join(keys)}"
    if node.residual is not None:
        text += f" where {show_with(node.residual, both)}"
    if isinstance(node, SemiJoin) and node.compare is not None:
        text += f" comparing {show_with(node.compare, both)}"
    return text


def _aggregate(node: Aggregate) -> str:
    known = _names(node.input)
    calls = [show_aggregate(c, known) for c in node.aggregates]
    names = node.names[len(node.keys) :]
    shown = [f"{c} AS {show_name(n)}" for c, n in zip(calls, names, strict=True)]
    text = "Aggregate" + (f" {', '.join(shown)}" if shown else "")
    keys = [_named(k, n, known) for k, n in zip(node.keys, node.names, strict=False)]
    return text + (f" by {', '.join(keys)}" if keys else "")


def _clock(node: Node) -> Clock:
    return next((stream.clock for stream in streams(node)), "timestamp")


def _facts(query: Query) -> Iterator[tuple[str, str]]:
    yield "instants", _instants(query)
    yield "output", _OUTPUTS[query.output]
    yield "partitioning", _partitioning_text(query)
    yield "retractions", _retractions_text(query)


_OUTPUTS = {
    "istream": "rows that enter the answer",
    "dstream": "rows that leave the answer",
    "rstream": "the whole answer at every instant",
    "changes": "rows that enter (+) and leave (-) the answer",
    "windows": "the answer of each window at its end",
}


def _instants(query: Query) -> str:
    if query.masters:
        return f"arrivals on {', '.join(map(show_name, query.masters))}"
    if bounded_window(query) is not None:
        return "the end of each window"
    if not streams(query):
        return "every change of a relation"
    return "every change of a window or relation"


def _partitioning_text(query: Query) -> str:
    split = partitioning(query)
    if split.keys is None:
        return f"none, so one shard: {split.reason}"
    if split.anywhere:
        return "any: rows do not meet each other"
    leaves = declared_scans(query)
    shown = (
        f"{show_name(key.source)} by {', '.join(show_name(leaf.schema[c].name) for c in key.columns)}"
        for key, leaf in zip(split.keys, leaves, strict=True)
    )
    return "; ".join(shown)


def _retractions_text(query: Query) -> str:
    told = [n for n in windows(query, into_queries=True) if n.retractions]
    if not told:
        return "nobody needs to know when rows leave"
    shown = [f"{_source_name(n) or 'query'} {show_window(n.spec, _names(n), _clock(n))}" for n in told]
    return f"needed from {', '.join(shown)}"
