"""The graph as a Mermaid flowchart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph.draw.common import (
    answers,
    by_partition,
    count,
    duration,
    fit,
    one_line,
    partition_title,
    remembered,
    what,
)
from penstock.plan.explain import escape_mermaid

if TYPE_CHECKING:
    from penstock.graph.view import GraphView, OperatorView

_LABEL = 60
_ENDS = {"source": ("[(", ")]"), "relation": ("[(", ")]"), "query": ("([", "])")}


def mermaid(view: GraphView) -> str:
    """A flowchart from sources on the left to queries on the right; virtual operators are its subgraphs.

    The name of a node is ``o`` and the operator's number.
    """
    lines = ["flowchart LR"]
    for partition, operators in by_partition(view):
        nodes = [f"        {_node(operator)}" for operator in operators]
        if partition is not None:
            nodes.insert(0, f'    subgraph v{partition.id}["{escape_mermaid(partition_title(partition))}"]')
            nodes.append("    end")
        lines += nodes
    kinds = {operator.id: operator.kind for operator in view.operators}
    for i, query in enumerate(view.queries):
        if kinds.get(query.operator) != "query":
            text = f"{fit(one_line(query.name), _LABEL)}: {answers(query.answered)}"
            lines.append(f'    q{i}(["{escape_mermaid(text)}"])')
    for edge in view.edges:
        if edge.buffer is None:
            lines.append(f"    o{edge.source} --> o{edge.target}")
        else:
            lines.append(f'    o{edge.source} -.->|"{count(edge.buffer.elements)} waiting"| o{edge.target}')
    for i, query in enumerate(view.queries):
        if kinds.get(query.operator) not in (None, "query"):
            lines.append(f"    o{query.operator} --> q{i}")
    return "\n".join(lines)


def _node(operator: OperatorView) -> str:
    left, right = _ENDS.get(operator.kind, ("[", "]"))
    numbers = f"{count(operator.elements_in)} → {count(operator.elements_out)}"
    if operator.cost is not None:
        numbers += f", {duration(operator.cost)}"
    if kept := remembered(operator):
        numbers += f", {kept}"
    said = [f"{operator.kind} {operator.id}", fit(what(operator), _LABEL), numbers]
    return f'o{operator.id}{left}"{"<br/>".join(escape_mermaid(part) for part in said)}"{right}'
