"""Leave out the columns of sources that no query reads, so that Spark need not read them either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.plan.nodes import Filter, Node, Project, Query, RelationScan, StreamScan, inputs, with_inputs
from penstock.scalar.expr import columns, remap

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
            found[_name(node)] = found.get(_name(node), frozenset()) | read
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
            places = kept[_name(node)]
            narrow = replace(node, schema=tuple(node.schema[i] for i in places))
            return narrow, {old: new for new, old in enumerate(places)}
        case Filter(below, predicate):
            below, moved = _narrow(below, kept)
            return Filter(below, remap(predicate, moved)), moved
        case Project(below, exprs, names):
            below, moved = _narrow(below, kept)
            return Project(below, tuple(remap(e, moved) for e in exprs), names), _unmoved(node)
        case _:
            return with_inputs(node, tuple(_narrow(child, kept)[0] for child in inputs(node))), _unmoved(node)


def _unmoved(node: Node) -> dict[int, int]:
    return {i: i for i in range(len(node.schema))}


def _name(scan: StreamScan | RelationScan) -> str:
    return scan.stream if isinstance(scan, StreamScan) else scan.relation
