"""What all pictures of the graph share: numbers for people, and the order in which data flows."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

if TYPE_CHECKING:
    from penstock.graph.latency import Latency
    from penstock.graph.view import GraphView, OperatorView, PartitionView

UNKNOWN = "–"
DEFAULT_PRIORITY = 5
_DURATIONS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def count(number: int) -> str:
    """A number of elements: exact as long as it is short.

    >>> count(12_345), count(1_234_567), count(9_999_999)
    ('12,345', '1.23M', '10.0M')
    """
    if abs(number) < 1_000_000:
        return f"{number:,}"
    return _three(number / 1e6, "M") if abs(number) < 999_500_000 else _three(number / 1e9, "G")


def short(number: int) -> str:
    """A number in at most five characters, up to 999 G."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g}{unit}" if abs(number) < 999.5 * factor else f"{number / factor:.0f}{unit}"
    return str(number)


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it; negative ones too.

    >>> duration(0.00123), duration(-2.5e-6), duration(None)
    ('1.23 ms', '-2.50 µs', '–')
    """
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if math.isinf(seconds):
        return "∞" if seconds > 0 else "-∞"
    for factor, unit in _DURATIONS:
        if abs(seconds) >= 0.9995 * factor:
            return _three(seconds / factor, f" {unit}")
    return "0 s" if abs(seconds) < 1e-12 else f"{seconds * 1e9:.2g} ns"


def size(bytes: int) -> str:
    """An amount of memory.

    >>> size(812), size(1_500_000)
    ('812 B', '1.50 MB')
    """
    if bytes < 1000:
        return f"{bytes} B"
    for factor, unit in ((1e3, "KB"), (1e6, "MB"), (1e9, "GB")):
        if bytes < 999.5 * factor:
            return _three(bytes / factor, f" {unit}")
    return _three(bytes / 1e12, " TB")


def _three(number: float, unit: str) -> str:
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f}{unit}"


def one_line(text: str) -> str:
    """The text without line ends and other characters that move the pen."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def fit(text: str, cells: int) -> str:
    """The text in at most so many columns, … where it is cut."""
    if cell_len(text) <= cells:
        return text
    return chop_cells(text, cells - 1)[0].rstrip() + "…" if cells > 1 else "…"


def what(operator: OperatorView) -> str:
    """The label in one line, without the kind where it begins with that: the kind is shown anyhow."""
    label = one_line(operator.label)
    first, _, rest = label.partition(" ")
    return rest if rest and first.casefold() == operator.kind.casefold() else label


def flow_order(view: GraphView) -> list[OperatorView]:
    """Operators so that senders come before receivers; where both orders will do, the older operator first."""
    operators = {operator.id: operator for operator in view.operators}
    missing = dict.fromkeys(operators, 0)
    targets: dict[int, list[int]] = {id: [] for id in operators}
    for edge in view.edges:
        missing[edge.target] += 1
        targets[edge.source].append(edge.target)
    ready = sorted(id for id, senders in missing.items() if not senders)
    order = []
    while ready:
        id = heapq.heappop(ready)
        order.append(operators[id])
        for target in targets[id]:
            missing[target] -= 1
            if not missing[target]:
                heapq.heappush(ready, target)
    return order


def by_partition(view: GraphView) -> list[tuple[PartitionView | None, list[OperatorView]]]:
    """Virtual operators in order of data flow, each with its operators in that order; None: in none that is known."""
    partitions = {partition.id: partition for partition in view.partitions}
    members: dict[int, list[OperatorView]] = {}
    for operator in flow_order(view):
        members.setdefault(operator.partition, []).append(operator)
    return [(partitions.get(id), operators) for id, operators in members.items()]


def partition_title(partition: PartitionView) -> str:
    """One line about a virtual operator."""
    parts = [
        f"virtual operator {partition.id}",
        "in the pushing thread" if partition.worker is None else worker_name(partition.worker),
    ]
    if partition.strategy is not None:
        parts.append(one_line(partition.strategy))
    if partition.priority != DEFAULT_PRIORITY:
        parts.append(f"priority {partition.priority}")
    if partition.capacity is not None:
        parts.append(f"capacity {duration(partition.capacity)}")
    return " · ".join(parts)


def worker_name(worker: str) -> str:
    """Which worker: the name of its thread, less what all of them have in front."""
    name = one_line(worker).removeprefix("penstock-")
    return name if name.startswith("worker") else f"worker {name}"


def graph_title(view: GraphView) -> str:
    """One line about all of it."""
    parts = [
        f"engine {one_line(view.engine)}",
        f"threading {one_line(view.threading)}",
        _number(view.workers, "worker"),
        _number(len(view.queries), "query", "queries"),
        _number(len(view.operators), "operator"),
        _number(len(view.partitions), "virtual operator"),
    ]
    return " · ".join(parts)


def answers(n: int) -> str:
    """How many."""
    return _number(n, "answer")


def took(latency: Latency) -> str:
    """How long results take; empty if there is none yet."""
    if not latency.count:
        return ""
    return f"p50 {duration(latency.p50)} · p99 {duration(latency.p99)}"


def remembered(operator: OperatorView) -> str:
    """What an operator has in memory; empty if that is nothing."""
    return f"{_number(operator.rows, 'row')}, {size(operator.bytes)}" if operator.rows or operator.bytes else ""


def _number(n: int, one: str, several: str | None = None) -> str:
    return f"{count(n)} {one if n == 1 else several or one + 's'}"
