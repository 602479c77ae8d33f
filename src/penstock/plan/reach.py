"""How far windows reach: which rows of the past they need, and how long rows that are missing make a difference.

Rules 1.6, 1.7 and 4.6 of docs/concepts/semantics.md say it in words. Everything here errs on one side: an instant that
is given as the last one at which answers may lack something is never too early.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from penstock.model.batch import Instant
from penstock.plan.nodes import (
    Aggregate,
    Filter,
    Node,
    Prioritise,
    Project,
    Query,
    StreamScan,
    Window,
    inputs,
    walk,
)
from penstock.plan.window import (
    Generic,
    Now,
    PartitionRows,
    Range,
    Rows,
    Unbounded,
    WindowSpec,
    answered_at,
    exists,
    is_reverse,
)

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
