"""Facts derived from a plan: is it monotonic, who needs retractions, how can it be split over shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal as OneOf

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
    inputs,
    map_inputs,
    streams,
    walk,
    windows,
)
from penstock.plan.window import Generic, Now, PartitionRows, Range, Rows, Session, Unbounded, is_bounded
from penstock.scalar.expr import Call, Column, Expr, conjuncts


def is_monotonic(node: Node) -> bool:
    """True where a row that is in the relation can never leave it.

    A stored relation may be updated, so it is never monotonic.
    """
    match node:
        case StreamScan() | QueryStream():
            return True
        case RelationScan():
            return False
        case Window(_, spec, _):
            return isinstance(spec, Unbounded)
        case Filter() | Project() | Distinct() | Prioritise() | Query():
            return is_monotonic(node.input)
        case Join(kind, left, right, _, _):
            return kind == "inner" and is_monotonic(left) and is_monotonic(right)
        case SemiJoin(kind, left, right, _, _, _):
            return kind == "semi" and is_monotonic(left) and is_monotonic(right)
        case Aggregate(below, keys, aggregates, _):
            return bool(keys) and not aggregates and is_monotonic(below)
        case SetOp(kind, _, left, right):
            return kind != "except" and is_monotonic(left) and is_monotonic(right)
        case TopN(below, _, limit, offset):
            return limit is None and offset == 0 and is_monotonic(below)


def is_silent(node: Node) -> bool:
    """True where the relation is surely empty while all windows are, whatever stored relations hold.

    Only then may a rewrite delay the first instant of evaluation: elsewhere (a global aggregate, a stored
    relation's own rows) there is an answer at the first instant even if no row came through.
    """
    return is_empty(node, lambda window: True)


def is_empty(node: Node, empty: Callable[[Window], bool]) -> bool:
    """True where the relation is surely empty while those windows are for which ``empty`` says so."""
    match node:
        case Window():
            return empty(node)
        case StreamScan() | QueryStream() | RelationScan():
            return False
        case Filter() | Project() | Distinct() | Prioritise() | TopN() | Query():
            return is_empty(node.input, empty)
        case Aggregate():
            return bool(node.keys) and is_empty(node.input, empty)
        case Join(kind, left, right) | SetOp(kind, _, left, right) | SemiJoin(kind, left, right):
            sides = is_empty(left, empty), is_empty(right, empty)
            match kind:
                case "inner" | "intersect" | "semi":
                    return any(sides)
                case "left" | "except" | "anti" | "mark":
                    return sides[0]
                case "right":
                    return sides[1]
                case "full" | "union":
                    return all(sides)


def begins_with_rows(node: Node) -> bool:
    """Whether there may be rows in the relation before the first element."""
    found = walk(node, into_queries=False)
    return any(isinstance(n, RelationScan) or (isinstance(n, Aggregate) and not n.keys) for n in found)


def mark_windows(query: Query) -> Query:
    """The query with ``Window.retractions`` set where somebody needs to know that rows leave.

    With masters a row may have left again before the instant at which it would have been answered, so even
    ISTREAM has to know. Sub-queries used as streams are left as they are: each is a query of its own.
    """
    needed = query.output != "istream" or bool(query.masters)
    return replace(query, input=_mark(query.input, needed, stateful=False))


def _mark(node: Node, needed: bool, *, stateful: bool) -> Node:
    """``stateful``: rows are kept above, so their end must be known: at entry, or by a retraction."""
    match node:
        case StreamScan() | RelationScan() | QueryStream():
            return node
        case Window(_, spec, _):
            match spec:
                case Unbounded():
                    retractions = False
                case Range() | Now():
                    retractions = needed
                case Rows() | PartitionRows():
                    retractions = needed or stateful
                case Generic() | Session():
                    return node
            return node if node.retractions == retractions else replace(node, retractions=retractions)
    passed = passes_on(node)
    needed, stateful = needed or passed == "other", stateful or passed == "pairs"
    return map_inputs(node, lambda child: _mark(child, needed, stateful=stateful))


def passes_on(node: Node) -> OneOf["rows", "pairs", "other"]:
    """What a node makes of a row that comes in: itself or nothing, pairs with it, or something that depends on others.

    Sources and windows pass on rows.
    """
    match node:
        case StreamScan() | RelationScan() | QueryStream() | Window() | Filter() | Project() | Prioritise():
            return "rows"
        case SetOp(kind="union", all=True):
            return "rows"
        case Join(kind="inner"):
            return "pairs"
        case Join() | SemiJoin() | Aggregate() | Distinct() | SetOp() | TopN() | Query():
            return "other"


def needs_retractions(query: Query) -> tuple[bool, ...]:
    """For each window of the query itself, in the order of ``walk``: must leaving rows be reported?"""
    return tuple(window.retractions for window in windows(mark_windows(query)))


@dataclass(frozen=True)
class SourceKey:
    """The positions in a source's rows that decide their shard."""

    source: str
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Partitioning:
    """How the sources of a plan can be split so that each shard is evaluated alone.

    ``keys`` has one entry for each source in the order of ``walk``, also those inside sub-queries; None means
    it cannot be split, and ``reason`` says why. ``anywhere``: rows may go to any shard, so no key is named.
    Values that are equal as keys (NULL and NULL, NaN and NaN, -0.0 and 0.0) must go to the same shard.
    """

    keys: tuple[SourceKey, ...] | None
    reason: str = ""
    anywhere: bool = False


class _Impossible(Exception):
    """Why there is no partitioning."""


@dataclass(frozen=True)
class _Slot:
    """One column of every leaf below, such that rows that meet agree on its value."""

    leaves: tuple[tuple[int, int], ...]
    visible: frozenset[int]
    """Positions of the node's output that carry the value."""


@dataclass(frozen=True)
class _Shards:
    slots: tuple[_Slot, ...]
    anywhere: bool


def partitioning(query: Query) -> Partitioning:
    """The partitioning of a query: the columns on which everything that meets must agree."""
    leaves: list[str] = []
    try:
        shards = _query(query, leaves)
    except _Impossible as why:
        return Partitioning(None, str(why))
    if shards.anywhere:
        return Partitioning(tuple(SourceKey(name, ()) for name in leaves), anywhere=True)
    columns = [tuple(dict(slot.leaves)[i] for slot in shards.slots) for i in range(len(leaves))]
    return Partitioning(tuple(SourceKey(n, c) for n, c in zip(leaves, columns, strict=True)))


def _query(query: Query, leaves: list[str]) -> _Shards:
    if query.masters:
        names = {s.name for s in streams(query)}
        at_own_arrivals = query.output == "istream" and is_monotonic(query.input)
        if not (at_own_arrivals and names == set(query.masters)):
            raise _Impossible(f"an arrival on {', '.join(query.masters)} (MASTER) is an instant for all rows")
    elif query.output == "rstream":
        raise _Impossible("RSTREAM gives the whole answer at every instant of any row")
    if query.output == "windows" and not all(_in_bounded(query.input)):
        raise _Impossible("the ends of the bounded window are instants for the other inputs too")
    shards = _shards(query.input, leaves)
    if not is_silent(query.input) and streams(query):
        raise _Impossible("rows of a stored relation are answers from the first instant of any row on")
    return shards


def _in_bounded(node: Node, inside: bool = False) -> Iterator[bool]:
    if isinstance(node, StreamScan | RelationScan | QueryStream):
        yield inside
        return
    inside = inside or (isinstance(node, Window) and is_bounded(node.spec))
    for child in inputs(node):
        yield from _in_bounded(child, inside)


def _shards(node: Node, leaves: list[str]) -> _Shards:
    match node:
        case StreamScan() | RelationScan():
            leaf = len(leaves)
            leaves.append(node.name)
            slots = (_Slot(((leaf, i),), frozenset([i])) for i in range(len(node.schema)))
            return _Shards(tuple(slots), True)
        case QueryStream():
            return _query(node.query, leaves)
        case Query():
            return _query(node, leaves)
        case Window():
            return _window(node, _shards(node.input, leaves))
        case Filter() | Prioritise():
            return _shards(node.input, leaves)
        case Project(below, exprs, _):
            return _renamed(_shards(below, leaves), exprs)
        case Join() | SemiJoin():
            return _join(node, _shards(node.left, leaves), _shards(node.right, leaves))
        case Aggregate(below, keys, _, _):
            shards = _shards(below, leaves)
            if not keys:
                raise _Impossible("an aggregate without GROUP BY is over all rows")
            return _visible(_renamed(shards, keys), "no GROUP BY key is a plain column of every source")
        case Distinct():
            return _visible(_shards(node.input, leaves), "no column that DISTINCT compares is a source's own")
        case TopN(below, _, limit, offset):
            shards = _shards(below, leaves)
            if limit is not None or offset:
                raise _Impossible(f"LIMIT {limit} counts the rows of the whole answer")
            return _visible(shards, "no column of the ordered rows is a source's own")
        case SetOp():
            return _set_operation(node, _shards(node.left, leaves), _shards(node.right, leaves))


def _visible(shards: _Shards, reason: str) -> _Shards:
    """Only what the rows themselves carry can tell which of them meet."""
    slots = tuple(s for s in shards.slots if s.visible)
    if not slots:
        raise _Impossible(reason)
    return _Shards(slots, False)


def _renamed(shards: _Shards, exprs: Iterable[Expr]) -> _Shards:
    plain = [(e.index, i) for i, e in enumerate(exprs) if isinstance(e, Column)]
    slots = (replace(s, visible=frozenset(i for old, i in plain if old in s.visible)) for s in shards.slots)
    return replace(shards, slots=tuple(slots))


def _window(node: Window, shards: _Shards) -> _Shards:
    match node.spec:
        case Unbounded() | Now() | Range():
            return shards
        case Generic(unit="time"):
            return shards
        case Rows(size, _):
            raise _Impossible(f"ROWS {size} counts the rows of the whole stream")
        case Generic():
            raise _Impossible("a window in TUPLES counts the rows of the whole stream")
        case PartitionRows(keys, _):
            slots = tuple(s for s in shards.slots if s.visible & set(keys))
            text = "PARTITION BY … ROWS"
        case Session(_, keys):
            if not keys:
                raise _Impossible("a SESSION without PARTITION BY is over the whole stream")
            slots = tuple(s for s in shards.slots if s.visible & set(keys))
            text = "the SESSION"
    if not slots:
        raise _Impossible(f"the keys of {text} do not decide where the rows below it go")
    return _Shards(slots, False)


def _join(node: Join | SemiJoin, left: _Shards, right: _Shards) -> _Shards:
    pairs = list(node.keys)
    if isinstance(node, SemiJoin) and node.kind == "semi":
        pairs += _equalities(node.compare, len(node.left.schema))
    offset = len(node.left.schema)
    merged: list[_Slot] = []
    for a, b in pairs:
        if not (isinstance(a, Column) and isinstance(b, Column) and a.type == b.type):
            continue
        for x in left.slots:
            for y in right.slots:
                if a.index in x.visible and b.index in y.visible:
                    shown: set[int] = set()
                    if isinstance(node, SemiJoin) or node.kind in ("inner", "left"):
                        shown |= x.visible
                    if isinstance(node, Join) and node.kind in ("inner", "right"):
                        shown |= {i + offset for i in y.visible}
                    merged.append(_Slot(x.leaves + y.leaves, frozenset(shown)))
    if not merged:
        kind = "the join" if isinstance(node, Join) else "IN or EXISTS"
        raise _Impossible(f"{kind} has no equality of plain columns that partition both sides")
    return _Shards(tuple(dict.fromkeys(merged)), False)


def _equalities(condition: Expr | None, offset: int) -> Iterator[tuple[Expr, Expr]]:
    for part in conjuncts(condition):
        if isinstance(part, Call) and part.function == "=":
            a, b = part.args
            if isinstance(a, Column) and isinstance(b, Column):
                if b.index < offset:
                    a, b = b, a
                if a.index < offset <= b.index:
                    yield a, replace(b, index=b.index - offset)


def _set_operation(node: SetOp, left: _Shards, right: _Shards) -> _Shards:
    stateless = node.kind == "union" and node.all
    slots = [
        _Slot(x.leaves + y.leaves, x.visible & y.visible)
        for x in left.slots
        for y in right.slots
        if x.visible & y.visible
    ]
    if not slots and stateless and left.slots and right.slots:
        slots = [_Slot(left.slots[0].leaves + right.slots[0].leaves, frozenset())]
    if not slots:
        name = node.kind.upper() + (" ALL" if node.all else "")
        raise _Impossible(f"no column of {name} is a source's own on both sides")
    return _Shards(tuple(slots), stateless and left.anywhere and right.anywhere)
