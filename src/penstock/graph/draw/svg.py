"""The graph as a picture that needs nothing else: one SVG file.

Sources are on the left. Virtual operators are shaded, a buffer is a small queue on its line with what waits in it,
and everything says more when the pointer rests on it. Text never leaves its box: it is cut by columns of a
fixed-width font, and clipped should a font be wider than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from rich.cells import chop_cells

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
    short,
    size,
    took,
    what,
    worker_name,
)
from penstock.graph.draw.layout import Box, Layout, layout
from penstock.graph.draw.style import (
    BETWEEN,
    BUFFERED_STUB,
    CELLS,
    CHARACTER,
    HEAD,
    INSET,
    LINE,
    MARGIN,
    PORT,
    QUEUE,
    SMALL,
    SPACING,
    STUB,
    STYLE,
    WIDTH,
    stripe,
)

if TYPE_CHECKING:
    from penstock.graph.view import BufferView, GraphView, OperatorView, PartitionView, QueryView

_LABEL_LINES = 2


@dataclass(frozen=True)
class _Item:
    """A box with text: (class, text) for each line, and what the pointer gets to see."""

    id: str
    group: int | None
    stripe: str
    state: str
    rows: tuple[tuple[str, str], ...]
    tip: str


@dataclass(frozen=True)
class _Wire:
    source: str
    target: str
    buffer: BufferView | None
    tip: str


def svg(view: GraphView) -> str:
    """The picture, with colours for light and for dark surroundings."""
    kinds = {operator.id: operator.kind for operator in view.operators}
    hands_over = {q.operator: q for q in view.queries if kinds.get(q.operator) == "query"}
    groups = by_partition(view)
    items = [
        _operator(o, None if partition is None else partition.id, hands_over.get(o.id))
        for partition, operators in groups
        for o in operators
    ]
    wires = [
        _Wire(f"o{e.source}", f"o{e.target}", e.buffer, f"from {e.source} to input {e.port} of {e.target}")
        for e in view.edges
    ]
    for i, query in enumerate(view.queries):
        if kinds.get(query.operator, "query") != "query":  # nobody stands for it but its name
            items.append(_query(query, f"q{i}"))
            wires.append(_Wire(f"o{query.operator}", f"q{i}", None, f"answers of {one_line(query.name)}"))
    comes_in: dict[str, list[_Wire]] = {item.id: [] for item in items}
    for wire in wires:
        comes_in[wire.target].append(wire)
    height = {
        i.id: max(len(i.rows) * LINE + 10, (len(comes_in[i.id]) + 1) * PORT if comes_in[i.id][1:] else 0)
        for i in items
    }
    placed = layout(
        [Box(item.id, item.group, height[item.id]) for item in items],
        [(wire.source, wire.target) for wire in wires],
        SPACING,
    )
    picture = _Picture(placed, height, wires)
    frames = [picture.frame(partition) for partition, _ in groups if partition is not None]
    lines, queues = picture.wires(comes_in)
    return picture.document(graph_title(view), [*frames, *lines, *queues, *map(picture.box, items)])


def _operator(operator: OperatorView, group: int | None, query: QueryView | None) -> _Item:
    """A box for an operator; ``query`` if it hands over the answers of that one."""
    label = what(operator)
    marks = "" if operator.priority == DEFAULT_PRIORITY else f" p{operator.priority}"
    marks += "" if operator.state in ("ready", "running") else f" {operator.state}"
    marks += f" ×{len(operator.queries)}" if len(operator.queries) > 1 else ""
    head = f"{fit(one_line(operator.kind), CELLS - len(marks) - len(str(operator.id)) - 1)} {operator.id}{marks}"
    rows = [("faint", head)]
    if query is not None and one_line(query.name) not in label:
        rows.append(("strong", fit(one_line(query.name), CELLS)))
    rows += [("strong", part) for part in _wrapped(label)]
    flow = f"{count(operator.elements_in)} → {count(operator.elements_out)}"
    rows.append(("", fit(flow if operator.cost is None else f"{flow} · {duration(operator.cost)}", CELLS)))
    if kept := remembered(operator):
        rows.append(("", fit(kept, CELLS)))
    if query is not None:
        rows += [_answers(query), *_took(query)]
    color = stripe(operator.kind, keeps=bool(kept))
    return _Item(f"o{operator.id}", group, color, operator.state, tuple(rows), _tip(operator))


def _tip(operator: OperatorView) -> str:
    said = [
        f"{operator.kind} {operator.id}: {operator.label}",
        f"{operator.state}, priority {operator.priority}, for {', '.join(operator.queries) or 'no query'}",
        f"{operator.calls:,} calls, {operator.elements_in:,} elements in, {operator.elements_out:,} out",
        f"cost {duration(operator.cost)}, one comes each {duration(operator.interarrival)}",
        f"remembers {operator.rows:,} rows, {size(operator.bytes)}",
    ]
    if operator.saved:
        said.append(f"saves {size(operator.saved)}")
    return "\n".join(said)


def _query(query: QueryView, id: str) -> _Item:
    rows = (("faint", "query"), ("strong", fit(one_line(query.name), CELLS)), _answers(query), *_took(query))
    tip = f"{query.name}: {query.status}, priority {query.priority}\n{query.text}"
    return _Item(id, None, "query", "ready", rows, tip)


def _answers(query: QueryView) -> tuple[str, str]:
    fine = query.status == "running"
    said = answers(query.answered)
    return ("faint" if fine else "trouble", fit(said if fine else f"{one_line(query.status)}, {said}", CELLS))


def _took(query: QueryView) -> list[tuple[str, str]]:
    latency = query.latency
    said = [took(latency), f"waited p99 {duration(latency.waiting_p99)}" if latency.waiting_p99 else ""]
    return [("faint", fit(line, CELLS)) for line in said if line]


def _wrapped(label: str) -> list[str]:
    """The label in up to two lines, broken at a space if there is one late enough."""
    lines: list[str] = []
    while label and len(lines) < _LABEL_LINES - 1 and (first := chop_cells(label, CELLS)[0]) != label:
        space = first.rfind(" ") if not label[len(first) :].startswith(" ") else len(first)
        end = space if space > len(first) // 2 else len(first)
        lines.append(label[:end])
        label = label[end:].lstrip()
    return [*lines, fit(label, CELLS)]


class _Picture:
    """Shapes at the places that the layout gives."""

    def __init__(self, placed: Layout, height: dict[str, float], wires: list[_Wire]) -> None:
        self._placed, self._height = placed, height
        self._stub = [STUB] * max(placed.columns, 1)
        for wire in wires:
            if wire.buffer is not None:
                self._stub[placed.boxes[wire.target][0]] = BUFFERED_STUB
        self._left = [MARGIN + SPACING.frame]
        for stub in self._stub[1:]:
            self._left.append(self._left[-1] + WIDTH + BETWEEN + stub - STUB)

    def frame(self, partition: PartitionView) -> str:
        """A virtual operator. Its title stays above the first column, since lines may cross it further right."""
        first, last, top, height = self._placed.groups[partition.id]
        x, y = self._left[first] - SPACING.frame, HEAD + top
        width = self._left[last] + WIDTH + SPACING.frame - x
        title = _text(x + SPACING.frame, y + 14, "small faint", fit(_short_title(partition), int(WIDTH / SMALL)))
        return (
            f'<g><title>{_xml(partition_title(partition))}</title><rect class="frame" x="{x:g}" y="{y:g}" '
            f'width="{width:g}" height="{height:g}" rx="6"/>{title}</g>'
        )

    def box(self, item: _Item) -> str:
        """An operator or a query."""
        column, top = self._placed.boxes[item.id]
        height = self._height[item.id]
        rows = "".join(_text(INSET, 16 + i * LINE, *row) for i, row in enumerate(item.rows))
        return (
            f'<svg class="{item.state}" x="{self._left[column]:g}" y="{HEAD + top:g}" width="{WIDTH:g}" '
            f'height="{height:g}" overflow="hidden"><title>{_xml(item.tip)}</title>'
            f'<rect class="box" x=".5" y=".5" width="{WIDTH - 1:g}" height="{height - 1:g}" '
            f'rx="{12 if item.id.startswith("q") else 6}"/>'
            f'<rect class="{item.stripe}" x="1" y="6" width="4" height="{height - 12:g}" rx="2"/>{rows}</svg>'
        )

    def wires(self, comes_in: dict[str, list[_Wire]]) -> tuple[list[str], list[str]]:
        """Lines, and the queues on them. Those into one box arrive in the order in which they come along."""
        lines: list[str] = []
        queues: list[str] = []
        for target, wires in comes_in.items():
            column, top = self._placed.boxes[target]
            end, begin = self._left[column], self._left[column] - self._stub[column]
            paths = sorted(((self._along(wire), wire) for wire in wires), key=lambda p: p[0][-1][1])
            for i, (points, wire) in enumerate(paths):
                y = HEAD + top + self._height[target] * (i + 1) / (len(paths) + 1)
                lines.append(
                    f'<g><title>{_xml(wire.tip)}</title>'
                    f'<path class="line" d="{_curve([*points, (begin, y), (end - 6, y)])}"/>'
                    f'<path class="tip" d="M{end:g},{y:g}l-8,-4v8z"/></g>'
                )
                if wire.buffer is not None:
                    queues.append(_queue(begin + 2, y, wire.buffer))
        return lines, queues

    def _along(self, wire: _Wire) -> list[tuple[float, float]]:
        """Where a line is straight: from its sender through its lanes."""
        column, top = self._placed.boxes[wire.source]
        points = [(self._left[column] + WIDTH, HEAD + top + self._height[wire.source] / 2)]
        for lane, middle in self._placed.lanes[wire.source, wire.target]:
            points += [(self._left[lane], HEAD + middle), (self._left[lane] + WIDTH, HEAD + middle)]
        return points

    def document(self, title: str, body: list[str]) -> str:
        """All of it; ``body`` from back to front."""
        width = max(self._left[-1] + WIDTH + SPACING.frame, MARGIN + len(title) * CHARACTER) + MARGIN
        height = HEAD + self._placed.height + MARGIN
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock-graph" width="{width:g}" '
                f'height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="img">',
                f"<title>{_xml(title)}</title><style>{STYLE}</style>",
                f'<rect class="ground" width="{width:g}" height="{height:g}"/>',
                _text(MARGIN, 18, "faint", title),
                *body,
                "</svg>",
            ]
        )


def _short_title(partition: PartitionView) -> str:
    parts = [
        f"VO {partition.id}",
        "pushing thread" if partition.worker is None else worker_name(partition.worker),
        one_line(partition.strategy or ""),
        "" if partition.capacity is None else duration(partition.capacity),
    ]
    return " · ".join(part for part in parts if part)


def _curve(points: list[tuple[float, float]]) -> str:
    """Straight through columns, bent between them."""
    path = f"M{points[0][0]:g},{points[0][1]:g}"
    for i in range(1, len(points)):
        (x, y), (to, down) = points[i - 1], points[i]
        if i % 2 == 0:
            path += f"H{to:g}"
        else:
            middle = (x + to) / 2
            path += f"C{middle:g},{y:g} {middle:g},{down:g} {to:g},{down:g}"
    return path


def _queue(x: float, y: float, buffer: BufferView) -> str:
    width, height = QUEUE
    tip = (
        f"{buffer.elements:,} elements waiting, {size(buffer.bytes)}"
        f"{f', {size(buffer.spilled_bytes)} of it on disk' if buffer.spilled else ''}; "
        f"at most {buffer.peak:,}; {buffer.passed:,} messages passed"
        f"{f'; {buffer.dropped:,} dropped' if buffer.dropped else ''}"
    )
    said = short(buffer.elements)
    indent = (width - len(said) * SMALL) / 2
    return (
        f'<g><title>{_xml(tip)}</title><rect class="queue" x="{x:g}" y="{y - height / 2:g}" width="{width:g}" '
        f'height="{height:g}" rx="2"/>{_text(x + indent, y + 3, "small", said)}</g>'
    )


def _text(x: float, y: float, style: str, said: str) -> str:
    style = f' class="{style}"' if style else ""
    return f'<text{style} x="{x:g}" y="{y:g}">{_xml(said)}</text>'


def _xml(text: str) -> str:
    """Escaped, without the characters that XML does not have."""
    kept = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    return escape(kept, {'"': "&quot;"})
