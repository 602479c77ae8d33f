"""The query graph in few lines: streams, what happens to their rows, where they wait, and which queries they get to.

Operators that change nothing worth a word (columns that are chosen, answers that are numbered) are left out, and so is
what only says that a master element has come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.graph.draw.common import by_partition, count, flow_order, one_line, what, worker_name
from penstock.graph.view import GraphView, OperatorView

Line = list[tuple[str, str]]
"""Pieces of text, each with what it is: ``stream``, ``queue``, ``busy`` (a queue in which rows wait), ``virtual``,
``operator``, ``shared``, ``query`` or ``branch``."""
_HIDDEN = ("project", "emit")
_ONE_INPUT = ("window", "gate", "emit")
"""Kinds whose further inputs are masters."""
_SHORTER: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r", Project .*"), ""),
    (re.compile(r" without retractions|, smart"), ""),
    (re.compile(r" AS \w+"), ""),
    (re.compile(r"(\d)\.0\b"), r"\1"),
    (re.compile(r"(\d+) ([SH])(?:ECOND|OUR)S?\b"), lambda found: f"{found[1]} {found[2].lower()}"),
)


@dataclass(frozen=True)
class _Way:
    """From an operator that is shown to the next one: whether rows wait between, how many, and whether they may."""

    target: int
    is_queue: bool
    waiting: int


def tree(view: GraphView) -> list[Line]:
    """All queries: a tree for each stream. A join stands where its first input gets to it, and is named at others."""
    return [line for lines in _trees(view) for line in lines]


def largest(view: GraphView) -> list[Line]:
    """Of these trees the one with most lines."""
    return max(_trees(view), key=len, default=[])


def _trees(view: GraphView) -> list[list[Line]]:
    operators = {o.id: o for o in view.operators}
    ways = {id: _ways(view, operators, id) for id, o in operators.items() if o.kind not in _HIDDEN}
    seen: set[int] = set()
    trees: list[list[Line]] = []
    reached = {way.target for found in ways.values() for way in found}
    for operator in flow_order(view):
        if operator.kind in ("source", "relation") and operator.id not in reached:
            trees.append([])
            _grow(operators, ways, seen, operator.id, [], "", trees[-1])
    return trees


def compact(view: GraphView) -> list[Line]:
    """A line for each virtual operator: who runs it, what waits in front of it, and for which queries."""
    lines: list[Line] = []
    entering: dict[int, list[int]] = {}
    place = {o.id: o.partition for o in view.operators}
    for edge in view.edges:
        if edge.buffer is not None:
            entering.setdefault(place[edge.target], []).append(edge.buffer.elements)
    for partition, operators in by_partition(view):
        if partition is None or partition.worker is None:
            continue  # what the thread that pushes does is to put rows into queues
        who = worker_name(partition.worker)
        queues = entering.get(partition.id, [])
        line: Line = [(f"#{partition.id}", "virtual"), (f" {who} · {_number(len(operators), 'operator')}", "branch")]
        if queues:
            waiting = sum(queues)
            said = f" · {_number(waiting, 'row')} in {_number(len(queues), 'queue')}"
            line.append((said, "busy" if waiting else "branch"))
        answered = [o for o in operators if o.kind == "query"]
        names = sorted({name for o in answered or operators for name in o.queries})
        lines.append([*line, (" · ", "branch"), (", ".join(names), "query")])
    return lines


def _ways(view: GraphView, operators: dict[int, OperatorView], start: int) -> list[_Way]:
    found: list[_Way] = []
    open_ways = [(start, False, 0)]
    while open_ways:
        at, is_queue, waiting = open_ways.pop(0)
        for edge in view.edges:
            target = operators[edge.target]
            if edge.source != at or (edge.port and target.kind in _ONE_INPUT):
                continue
            more = 0 if edge.buffer is None else edge.buffer.elements
            way = _Way(target.id, is_queue or edge.buffer is not None, waiting + more)
            if target.kind in _HIDDEN:
                open_ways.append((way.target, way.is_queue, way.waiting))
            elif all(way.target != known.target for known in found):
                found.append(way)
    return found


def _grow(
    operators: dict[int, OperatorView],
    ways: dict[int, list[_Way]],
    seen: set[int],
    id: int,
    line: Line,
    indent: str,
    lines: list[Line],
) -> None:
    """Add an operator to a line, and go on with those behind it."""
    while True:
        operator = operators[id]
        if operator.kind != "intake":
            line.append((_label(operator), _style(operator)))
        if id in seen:
            line.append((f" of {', '.join(operator.queries)}", "query"))
            lines.append(line)
            return
        if operator.kind in ("join", "union"):
            seen.add(id)
        following = ways[id]
        if len(following) != 1:
            break
        arrow, *tag = _arrow(operator, operators[following[0].target], following[0])
        if operator.kind != "intake":
            line += [arrow, *tag]
        elif tag:
            line += [(arrow[0].lstrip(), arrow[1]), *tag]
        id = following[0].target
    if len(operator.queries) > 1 and operator.kind not in ("source", "relation", "intake"):
        line.append((f"  shared by {len(operator.queries)}", "shared"))
    lines.append(line)
    for number, way in enumerate(following):
        is_last = number == len(following) - 1
        arrow, *tag = _arrow(operator, operators[way.target], way)
        branch: Line = [(indent + ("└" if is_last else "├"), "branch"), (arrow[0].lstrip(), arrow[1]), *tag]
        _grow(operators, ways, seen, way.target, branch, indent + ("   " if is_last else "│  "), lines)


def _arrow(sender: OperatorView, receiver: OperatorView, way: _Way) -> Line:
    found: Line = [(" ─ ", "branch")]
    if way.is_queue:
        found = [(f" ═{count(way.waiting)}═▶ ", "busy" if way.waiting else "queue")]
    if way.is_queue or sender.partition != receiver.partition:
        found.append((f"#{receiver.partition} ", "virtual"))
    return found


def _style(operator: OperatorView) -> str:
    return {"source": "stream", "relation": "stream", "query": "query"}.get(operator.kind, "operator")


def _label(operator: OperatorView) -> str:
    if operator.kind in ("join", "gate"):
        return "⋈" if operator.kind == "join" else "gate"
    label = one_line(what(operator)).removeprefix("stream ")
    for pattern, instead in _SHORTER:
        label = pattern.sub(instead, label)
    return label


def _number(n: int, one: str) -> str:
    return f"{count(n)} {one}{'' if n == 1 else 's'}"


def text(lines: Sequence[Line]) -> list[str]:
    """Without what the pieces are."""
    return ["".join(piece for piece, _ in line).rstrip() for line in lines]
