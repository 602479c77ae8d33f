"""What a plan reads of its sources: which columns, and which rows at the most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.plan.derive import is_silent
from penstock.plan.nodes import (
    Filter,
    Node,
    Project,
    Query,
    RelationScan,
    StreamScan,
    Window,
    bounded_windows,
    inputs,
    map_inputs,
    walk,
)
from penstock.plan.window import Now, Range, Unbounded
from penstock.scalar.expr import Column, Expr, columns, conjuncts, is_pure, remap, substitute

Kept = Mapping[str, tuple[int, ...]]
"""The places of the columns that are kept of each source."""


def used(query: Query) -> dict[str, frozenset[int]]:
    """The columns of each source that the query reads."""
    found: dict[str, frozenset[int]] = {}
    _collect(query, None, found)
    return found


def _collect(node: Node, needed: frozenset[int] | None, found: dict[str, frozenset[int]]) -> None:
    """``needed``: columns of the node that are read above it, None: all."""
    match node:
        case StreamScan() | RelationScan():
            read = frozenset(range(len(node.schema))) if needed is None else needed
            found[node.name] = found.get(node.name, frozenset()) | read
        case Project(below, exprs, _):
            _collect(below, frozenset[int]().union(*map(columns, exprs)), found)
        case Filter(below, predicate):
            _collect(below, None if needed is None else needed | columns(predicate), found)
        case _:
            for child in inputs(node):
                _collect(child, None, found)


def narrowed(query: Query, kept: Kept) -> Query:
    """The same query over sources that have only the columns kept; they must be at least those ``used``."""
    changed, _ = _narrow(query, kept)
    assert isinstance(changed, Query)
    return changed


def _narrow(node: Node, kept: Kept) -> tuple[Node, dict[int, int]]:
    """The node, and where its columns are now. Above the lowest projection they are where they were."""
    match node:
        case StreamScan() | RelationScan():
            places = kept[node.name]
            narrow = replace(node, schema=tuple(node.schema[i] for i in places))
            return narrow, {old: new for new, old in enumerate(places)}
        case Filter(below, predicate):
            below, moved = _narrow(below, kept)
            return Filter(below, remap(predicate, moved)), moved
        case Project(below, exprs, names):
            below, moved = _narrow(below, kept)
            return Project(below, tuple(remap(e, moved) for e in exprs), names), _unmoved(node)
        case _:
            return map_inputs(node, lambda child: _narrow(child, kept)[0]), _unmoved(node)


def _unmoved(node: Node) -> dict[int, int]:
    return {i: i for i in range(len(node.schema))}


def shows_no_trace(plan: Query) -> bool:
    """Does no answer tell that a row came which was filtered out right behind its source?"""
    queries = [node for node in walk(plan) if isinstance(node, Query)]
    return not bounded_windows(plan, into_queries=True) and all(
        not q.masters and q.output != "rstream" and is_silent(q.input) for q in queries
    )


def conditions_above(node: Node, name: str, above: list[Expr]) -> Iterator[list[Expr]]:
    """For each place where a source is read, the conditions right above it."""
    match node:
        case StreamScan() | RelationScan():
            if node.name == name:
                yield above
        case Filter(below, predicate):
            yield from conditions_above(below, name, [*above, *conjuncts(predicate)])
        case Project(below, exprs, _):
            yield from conditions_above(below, name, [substitute(part, exprs) for part in above])
        case _:
            for child in inputs(node):
                yield from conditions_above(child, name, [])


def filters_and_projection(plan: Query) -> tuple[list[Expr], list[Expr]] | None:
    """What a query asks of a row and gives for it, if every row is answered by itself when it comes."""
    if plan.output != "istream" or plan.masters or plan.hidden:
        return None
    conditions: list[Expr] = []
    exprs: list[Expr] = [Column(i, f.type) for i, f in enumerate(plan.schema)]
    node = plan.input
    while True:
        match node:
            case Filter(below, predicate):
                conditions = [*conjuncts(predicate), *conditions]
                node = below
            case Project(below, values, _):
                conditions = [substitute(c, values) for c in conditions]
                exprs = [substitute(e, values) for e in exprs]
                node = below
            case Window(below, Unbounded() | Now() | Range(slide=None), _):
                node = below
            case StreamScan():
                return conditions, exprs
            case _:
                return None


def remembers_nothing(plan: Query) -> bool:
    """Is every row answered by itself, for ever, by values that no user's function gives?"""
    found = filters_and_projection(plan)
    return (
        found is not None
        and all(isinstance(n.spec, Unbounded) for n in walk(plan) if isinstance(n, Window))
        and all(map(is_pure, (*found[0], *found[1])))
    )
