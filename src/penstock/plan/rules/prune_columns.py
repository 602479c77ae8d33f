"""Drop columns that nobody reads, before windows keep them.

Columns that decide what a row *is* stay: the outputs of an aggregate and the mark of IN belong to a row's
identity, so a change in them is a change of the answer even where a projection above hides it; DISTINCT, set
operations other than UNION ALL and ORDER BY … LIMIT compare whole rows. A sub-query used as a stream keeps
its columns too, because its simultaneous answers arrive in the order of their values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

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
    expressions,
    map_expressions,
)
from penstock.plan.rules.merge_projects import merge
from penstock.plan.scope import each_query
from penstock.plan.window import PartitionRows, Session, WindowSpec
from penstock.scalar.expr import Column, Expr, columns, is_pure, remap

Kept = tuple[int, ...]


def prune_columns(query: Query) -> Query:
    """Put a projection below each window (and above each relation) that has columns nobody reads."""
    return each_query(query, lambda q: replace(q, input=_exactly(q.input, _all(q.input))))


def _all(node: Node) -> frozenset[int]:
    return frozenset(range(len(node.schema)))


def _prune(node: Node, needed: frozenset[int]) -> tuple[Node, Kept]:
    """The node with fewer columns, and which of the old ones it still has (at least those needed)."""
    match node:
        case StreamScan() | QueryStream() | Query():
            return node, tuple(sorted(_all(node)))
        case RelationScan():
            wanted = needed or frozenset([0])
            return _narrow(node, tuple(sorted(_all(node))), wanted), tuple(sorted(wanted))
        case Window(below, spec, _):
            wanted = (needed | _keys(spec)) or frozenset([0])
            below = _exactly(below, wanted)
            kept = tuple(sorted(wanted))
            return replace(node, input=below, spec=_with_keys(spec, kept)), kept
        case Filter(below, predicate):
            below, kept = _prune(below, needed | columns(predicate))
            return Filter(below, _moved(predicate, kept)), kept
        case Prioritise(below, by):
            below, kept = _prune(below, needed | columns(by))
            return Prioritise(below, _moved(by, kept)), kept
        case Project():
            return _project(node, needed)
        case Join():
            return _join(node, needed)
        case SemiJoin():
            return _semi_join(node, needed)
        case Aggregate():
            below, kept = _prune(node.input, _read(expressions(node)))
            moved = map_expressions(node, lambda e: _moved(e, kept))
            return replace(moved, input=below), tuple(sorted(_all(node)))
        case SetOp(kind="union", all=True):
            wanted = needed or frozenset([0])
            left, right = _exactly(node.left, wanted), _exactly(node.right, wanted)
            return replace(node, left=left, right=right), tuple(sorted(wanted))
        case SetOp():
            left, right = _exactly(node.left, _all(node.left)), _exactly(node.right, _all(node.right))
            return replace(node, left=left, right=right), tuple(sorted(_all(node)))
        case Distinct() | TopN():
            below = _exactly(node.input, _all(node.input))
            return replace(node, input=below), tuple(sorted(_all(node)))


def _exactly(node: Node, wanted: frozenset[int]) -> Node:
    """The node with exactly the wanted columns, in their order."""
    pruned, kept = _prune(node, wanted)
    return _narrow(pruned, kept, wanted)


def _narrow(node: Node, kept: Kept, wanted: frozenset[int]) -> Node:
    if frozenset(kept) == wanted:
        return node
    positions = [i for i, old in enumerate(kept) if old in wanted]
    fields = [node.schema[i] for i in positions]
    exprs = tuple(Column(i, f.type, f.name) for i, f in zip(positions, fields, strict=True))
    return merge(Project(node, exprs, tuple(f.name for f in fields)))


def _moved(expr: Expr, kept: Kept) -> Expr:
    return remap(expr, {old: new for new, old in enumerate(kept)})


def _project(node: Project, needed: frozenset[int]) -> tuple[Node, Kept]:
    wanted = needed | {i for i, e in enumerate(node.exprs) if not is_pure(e)}
    kept_exprs = tuple(sorted(wanted or frozenset([0])))
    below, kept = _prune(node.input, _read(node.exprs[i] for i in kept_exprs))
    exprs = tuple(_moved(node.exprs[i], kept) for i in kept_exprs)
    return Project(below, exprs, tuple(node.names[i] for i in kept_exprs)), kept_exprs


def _read(exprs: Iterable[Expr | None]) -> frozenset[int]:
    return frozenset(c for e in exprs if e is not None for c in columns(e))


def _sides(node: Join | SemiJoin, over_both: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    split = len(node.left.schema)
    left = {i for i in over_both if i < split}
    right = {i - split for i in over_both if i >= split}
    for a, b in node.keys:
        left |= columns(a)
        right |= columns(b)
    return frozenset(left), frozenset(right)


def _join(node: Join, needed: frozenset[int]) -> tuple[Node, Kept]:
    residual = columns(node.residual) if node.residual is not None else frozenset()
    wanted_left, wanted_right = _sides(node, needed | residual)
    left, kept_left = _prune(node.left, wanted_left)
    right, kept_right = _prune(node.right, wanted_right)
    split = len(node.left.schema)
    kept = kept_left + tuple(i + split for i in kept_right)
    keys = tuple((_moved(a, kept_left), _moved(b, kept_right)) for a, b in node.keys)
    moved = None if node.residual is None else _moved(node.residual, kept)
    return Join(node.kind, left, right, keys, moved, node.priority), kept


def _semi_join(node: SemiJoin, needed: frozenset[int]) -> tuple[Node, Kept]:
    split = len(node.left.schema)
    over_both: set[int] = set()
    for condition in (node.residual, node.compare):
        if condition is not None:
            over_both |= columns(condition)
    # Position ``split`` is the mark above the join, but the first right column in its conditions.
    wanted_left, wanted_right = _sides(node, frozenset(over_both))
    left, kept_left = _prune(node.left, wanted_left | {i for i in needed if i < split})
    right, kept_right = _prune(node.right, wanted_right)
    both = kept_left + tuple(i + split for i in kept_right)
    keys = tuple((_moved(a, kept_left), _moved(b, kept_right)) for a, b in node.keys)
    residual, compare = (None if e is None else _moved(e, both) for e in (node.residual, node.compare))
    kept = (*kept_left, split) if node.kind == "mark" else kept_left
    return SemiJoin(node.kind, left, right, keys, residual, compare), kept


def _keys(spec: WindowSpec) -> frozenset[int]:
    return frozenset(spec.keys) if isinstance(spec, PartitionRows | Session) else frozenset()


def _with_keys(spec: WindowSpec, kept: Kept) -> WindowSpec:
    if isinstance(spec, PartitionRows | Session):
        return replace(spec, keys=tuple(kept.index(k) for k in spec.keys))
    return spec
