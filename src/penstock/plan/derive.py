"""Facts derived from a plan: is it monotonic, who needs retractions, how can it be split over shards, how far back do
its windows reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from penstock.model.batch import Instant
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
from penstock.plan.window import (
    Generic,
    Now,
    PartitionRows,
    Range,
    Rows,
    Session,
    Unbounded,
    WindowSpec,
    answered_at,
    exists,
    is_bounded,
    is_reverse,
)
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


# -- how far windows reach ---------------------------------------------------------------------------------
#
# Rules 1.6, 1.7 and 4.6 of docs/concepts/semantics.md say it in words. Everything here errs on one side: an instant
# that is given as the last one at which answers may lack something is never too early.

Missing = Mapping[str, Instant]
"""By stream, the greatest instant of its rows that a query is not given."""
_BY_MOMENT = frozenset({"first", "last", "collect"})
"""Aggregates that tell rows apart by when they came."""


def touched_until(query: Query, missing: Missing) -> Instant:
    """The last instant at which answers may be others than with the rows that are missing; -inf: at none."""
    return _until(query, missing, named=False)


def named_until(query: Query, missing: Missing) -> Instant:
    """The same where rows came before the query: only windows with bounds that are instants claim to hold them. What
    slides holds what the query has seen, which is all that it says."""
    return _until(query, missing, named=True)


def reverse_needs(query: Query) -> Iterator[tuple[Generic, dict[str, Instant]]]:
    """The windows here and inside that go back in time; and by stream, from which instant on they need its rows. -inf:
    how far back that is depends on the rows."""
    for node in walk(query):
        if isinstance(node, Window) and isinstance(node.spec, Generic):
            spec = node.spec
            if spec.unit == "time" and is_reverse(spec) and exists(spec, 0):
                yield spec, _needs(node.input, lowest(spec))


def lowest(spec: Generic) -> Instant:
    """The earliest beginning of windows that are reverse."""
    if spec.hop_low >= 0:
        return spec.begin
    counts: list[int] = []
    if spec.end_query is not None:
        counts.append((spec.begin - spec.end_query) // -spec.hop_low)
    if spec.hop_low > spec.hop_high:  # they close up
        counts.append(-((spec.begin - spec.end) // (spec.hop_low - spec.hop_high)) - 1)
    return spec.begin + min(counts) * spec.hop_low if counts else -math.inf


def _needs(node: Node, since: Instant) -> dict[str, Instant]:
    """By stream, from which instant on its rows matter for what a node has from an instant on."""
    match node:
        case StreamScan():
            return {node.stream: since}
        case Query() if (elements := _elements(node)) is not None:
            return _needs(elements, since)
        case Query() if node.masters:
            since = -math.inf
        case Window():
            since -= _length(node.spec)
    found: dict[str, Instant] = {}
    for child in inputs(node):
        for stream, at in _needs(child, since).items():
            found[stream] = min(found.get(stream, math.inf), at)
    return found


def _length(spec: WindowSpec) -> Instant:
    """For how many ticks a row matters at most; infinite where that depends on the rows."""
    match spec:
        case Now():
            return 1
        case Range():
            return spec.size + (spec.slide or 0)
        case Generic() if spec.unit == "time" and spec.hop_low == spec.hop_high >= 0:
            return spec.end - spec.begin
    return math.inf


def _until(node: Node, missing: Missing, *, named: bool) -> Instant:
    """``named``: no window with bounds that are instants is above the node."""
    match node:
        case StreamScan():
            return -math.inf if named else missing.get(node.stream, -math.inf)
        case Query() if (elements := _elements(node)) is not None:
            return _until(elements, missing, named=named)
        case Query():
            found = _until(node.input, missing, named=named)
            # The next answer at a master instant is compared with one that lacked something, whenever it comes.
            return math.inf if found > -math.inf and node.masters and node.output != "rstream" else found
        case Window():
            is_named = isinstance(node.spec, Generic) and node.spec.unit == "time"
            found = _until(node.input, missing, named=named and not is_named)
            return -math.inf if found == -math.inf else _lets_go(node.spec, found)
        case Aggregate() if any(a.function in _BY_MOMENT for a in node.aggregates) and not _is_window(node.input):
            # Rows that a query has made itself came when something changed, perhaps long ago.
            return math.inf if _until(node.input, missing, named=named) > -math.inf else -math.inf
    return max((_until(child, missing, named=named) for child in inputs(node)), default=-math.inf)


def _lets_go(spec: WindowSpec, last: Instant) -> Instant:
    """The last instant at which a window may lack rows that should have come up to an instant."""
    if not (isinstance(spec, Generic) and spec.unit == "time"):
        return last + _length(spec)
    if is_reverse(spec) or spec.hop_high <= 0:
        begin = lowest(spec) if is_reverse(spec) else spec.begin
        return spec.end if exists(spec, 0) and begin <= last else -math.inf
    found: Instant
    if spec.hop_low <= 0 or last == math.inf:
        found = -math.inf if spec.hop_low == 0 and spec.begin > last else math.inf
    else:
        number = (int(last) - spec.begin) // spec.hop_low
        found = answered_at(spec, number) if number >= 0 or spec.from_first else -math.inf
    return found if spec.end_query is None else min(found, spec.end_query)


def _elements(query: Query) -> Node | None:
    """The stream of whose elements each makes an answer by itself when it comes: conditions and expressions over one
    window of which only what enters is asked."""
    if query.output != "istream" or query.masters:
        return None
    node = query.input
    while isinstance(node, Filter | Project | Prioritise):
        node = node.input
    if not isinstance(node, Window):
        return None
    match node.spec:
        case Unbounded() | Now() | PartitionRows() | Rows(slide=1) | Range(slide=None):
            return node.input
    return None


def _is_window(node: Node) -> bool:
    while isinstance(node, Filter | Project | Prioritise):
        node = node.input
    return isinstance(node, Window)
