"""The graph as text for a terminal of 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from penstock.graph.draw.common import (
    DEFAULT_PRIORITY,
    answers,
    by_partition,
    count,
    duration,
    fit,
    graph_title,
    one_line,
    partition_title,
    remembered,
    size,
    took,
    what,
)

if TYPE_CHECKING:
    from penstock.graph.latency import Latency
    from penstock.graph.view import BufferView, EdgeView, GraphView, OperatorView

WIDTH = 100
_FROM = 13
_KIND = 9
_NAMED = 5


def text(view: GraphView) -> str:
    """Queries, then virtual operators with their operators in order of data flow. Each operator is there once, and
    others refer to it by its number."""
    lines = [fit(graph_title(view), WIDTH)]
    lines += _queries(view)
    if view.dropped:
        lines += ["", "dropped"]
        lines += [fit(f"  {count(d.rows)} rows of stream {one_line(d.stream)}", WIDTH) for d in view.dropped]
    inputs: dict[int, list[EdgeView]] = {}
    for edge in sorted(view.edges, key=lambda e: (e.target, e.port, e.source)):
        inputs.setdefault(edge.target, []).append(edge)
    groups = by_partition(view)
    rows = {o.id: _row(o, inputs.get(o.id, [])) for _, operators in groups for o in operators}
    head = ["", "operator", "from", "in → out", "cost", "state"]
    widths = [max(cell_len(row[i]) for row in [head, *rows.values()]) for i in range(len(head))]
    widths[1] = min(widths[1], WIDTH - sum(widths) + widths[1] - 2 * len(head))
    if rows:
        lines += ["", _line(head, widths)]
    for partition, operators in groups:
        lines.append("operators" if partition is None else fit(partition_title(partition), WIDTH))
        for operator in operators:
            lines.append(_line(rows[operator.id], widths))
            for note in _notes(operator, inputs.get(operator.id, [])):
                lines.append(fit(" " * (widths[0] + 4) + note, WIDTH))
    return "\n".join(lines)


def _queries(view: GraphView) -> list[str]:
    if not view.queries:
        return ["", "no queries"]
    rows = []
    for query in view.queries:
        priority = "" if query.priority == DEFAULT_PRIORITY else f", priority {query.priority}"
        status = f"{one_line(query.status)}{priority}, {answers(query.answered)} by {query.operator}"
        rows.append((fit(one_line(query.name), 30), status, one_line(query.text)))
    names, states = (min(max(cell_len(row[i]) for row in rows), 50) for i in (0, 1))
    lines = ["", "queries"]
    for query, (name, status, written) in zip(view.queries, rows, strict=True):
        lines.append(fit(f"  {_pad(name, names)}  {_pad(fit(status, states), states)}  {written}".rstrip(), WIDTH))
        lines += [fit(f"    {said}", WIDTH) for said in _latency(query.latency)]
    return lines


def _latency(latency: Latency) -> list[str]:
    if not latency.count:
        return []
    levels = latency.priorities if len(latency.priorities) > 1 else {}
    said = [f"priority {level}: {_took(one)}" for level, one in levels.items()]
    return [f"latency {_took(latency)} · at most {duration(latency.max)}", *said]


def _took(latency: Latency) -> str:
    waited = (latency.waiting_p50, latency.waiting_p99)
    return took(latency) + (" · waited p50 {} · p99 {}".format(*map(duration, waited)) if latency.waiting_p99 else "")


def _row(operator: OperatorView, inputs: list[EdgeView]) -> list[str]:
    return [
        str(operator.id),
        f"{_pad(fit(one_line(operator.kind), _KIND), _KIND)} {what(operator)}".rstrip(),
        fit(", ".join(f"{e.source}{'*' if e.buffer else ''}" for e in inputs), _FROM),
        f"{count(operator.elements_in)} → {count(operator.elements_out)}",
        duration(operator.cost),
        remembered(operator),
    ]


def _notes(operator: OperatorView, inputs: list[EdgeView]) -> list[str]:
    said = []
    if len(operator.queries) > 1:
        named = ", ".join(map(one_line, operator.queries))
        said.append(f"shared by {named if len(operator.queries) <= _NAMED else f'{len(operator.queries)} queries'}")
    if operator.state != "ready":
        said.append(operator.state)
    if operator.priority != DEFAULT_PRIORITY:
        said.append(f"priority {operator.priority}")
    if operator.saved:
        said.append(f"saves {size(operator.saved)}")
    notes = ["; ".join(said)] if said else []
    for edge in inputs:
        if edge.buffer is not None:
            notes.append(_waiting(edge.source, edge.buffer))
    return notes


def _waiting(sender: int, buffer: BufferView) -> str:
    disk = f", {size(buffer.spilled_bytes)} on disk" if buffer.spilled else ""
    said = f"* {count(buffer.elements)} from {sender} waiting ({size(buffer.bytes)}{disk})"
    if buffer.elements and buffer.lag is not None and buffer.lag >= 1:
        said += f" for {duration(buffer.lag)}"
    said += f", at most {count(buffer.peak)}; {count(buffer.passed)} messages passed"
    return said + (f"; {count(buffer.dropped)} dropped" if buffer.dropped else "")


def _line(cells: list[str], widths: list[int]) -> str:
    id, what, senders, flow, cost, kept = cells
    parts = [
        " " * (widths[0] - len(id)) + id,
        _pad(fit(what, widths[1]), widths[1]),
        _pad(senders, widths[2]),
        " " * (widths[3] - cell_len(flow)) + flow,
        " " * (widths[4] - cell_len(cost)) + cost,
        kept,
    ]
    return ("  " + "  ".join(parts)).rstrip()


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
