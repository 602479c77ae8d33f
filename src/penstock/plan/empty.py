"""Windows without rows: which have no answer, so that engines may pass over them, and how many may end at once."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plan.derive import is_empty
from penstock.plan.nodes import Node, Query, bounded_window, bounded_windows, stream_scans, walk
from penstock.plan.window import Generic, is_bounded

MOST = 1_000_000
"""Windows that a row, heartbeat or change may end where each of them is answered."""
TOO_MANY = 10 * MOST
"""Windows in one step of an engine, which may have many rows, at which a query fails."""


def passes_empty(query: Query) -> bool:
    """Whether windows without rows have no answer and can be found without looking at each: GROUP BY and the like."""
    spec = bounded_window(query)
    regular = isinstance(spec, Generic) and spec.unit == "time" and spec.hop_low == spec.hop_high > 0
    return regular and is_empty(query.input, lambda window: is_bounded(window.spec))


def every_window(query: Query) -> Iterator[tuple[Generic, frozenset[str]]]:
    """The windows of time, here and inside, of which each is answered, and the declared streams that end them."""
    for node in walk(query):
        if isinstance(node, Query):
            spec = bounded_window(node)
            if isinstance(spec, Generic) and spec.unit == "time" and spec.hop_high > 0 and not passes_empty(node):
                over = frozenset(name for window in bounded_windows(node) for name in _streams(window))
                yield spec, over or _streams(query)


def _streams(node: Node) -> frozenset[str]:
    return frozenset(scan.stream for scan in stream_scans(node))
