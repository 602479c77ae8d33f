"""Adjacent projections become one, and one that changes nothing goes."""

from __future__ import annotations

from collections import Counter

from penstock.plan.nodes import Node, Project, Query
from penstock.plan.scope import all_columns, names_of, on_nodes
from penstock.scalar.expr import Column, Literal, is_pure, substitute, walk


def merge_projects(query: Query) -> Query:
    """Compute directly what was computed in steps, unless that would compute something twice."""
    return on_nodes(query, merge)


def merge(node: Node) -> Node:
    """One step of ``merge_projects``, at this node."""
    if not isinstance(node, Project):
        return node
    below = node.input
    if isinstance(below, Project) and _may_merge(node, below):
        exprs = tuple(substitute(e, below.exprs) for e in node.exprs)
        return merge(Project(below.input, exprs, node.names))
    if node.exprs == all_columns(below.schema) and node.names == names_of(below.schema):
        return below
    return node


def _may_merge(outer: Project, inner: Project) -> bool:
    if not all(is_pure(e) for e in (*outer.exprs, *inner.exprs)):
        return False
    uses = Counter(e.index for expr in outer.exprs for e in walk(expr) if isinstance(e, Column))
    return all(n < 2 or isinstance(inner.exprs[i], Column | Literal) for i, n in uses.items())
