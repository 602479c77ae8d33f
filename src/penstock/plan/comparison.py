"""The alternatives of a plan side by side, for people and tools: what each costs, which is run, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from penstock.plan.alternatives import Alternative, alternatives, choice
from penstock.plan.cost import Costs, Figure, Figures
from penstock.plan.explain import explain_tree, show_node
from penstock.plan.nodes import Query, walk
from penstock.plan.serial import to_json
from penstock.plan.serial_expr import Json


@dataclass(frozen=True)
class Comparison:
    """All alternatives, the cheapest first. ``reason``: why the chosen one is. ``figures``: of the nodes of that, with
    the line that shows each."""

    found: tuple[Alternative, ...]
    chosen: Alternative
    reason: str
    figures: tuple[tuple[str, Figure], ...]


def compare(
    query: Query,
    figures: Figures,
    because: str | None = None,
    reuse: bool | None = None,
    *,
    prioritised: bool = False,
) -> Comparison:
    """The alternatives of a plan. ``because``: why it is run as it is, if it is; for the rest see ``choice``."""
    costs = Costs(figures)
    found = alternatives(query, costs, reuse)
    if because is None:
        chosen, reason = choice(query, found, figures, reuse, prioritised=prioritised)
    else:
        chosen, reason = next(a for a in found if a.query == query), because
    assumed = {show_node(node): figure for node in walk(chosen.query) if (figure := costs.node(node).figure)}
    return Comparison(
        tuple(sorted(found, key=lambda a: (a.cost.total, a is not chosen))), chosen, reason, tuple(assumed.items())
    )


def comparison_text(compared: Comparison) -> str:
    """One after the other, the cheapest first, each with its tree; then the figures."""
    return "\n".join(_lines(compared))


def _lines(compared: Comparison) -> Iterator[str]:
    yield f"chosen: {compared.chosen.description} ({compared.reason})"
    for alternative in compared.found:
        cost = alternative.cost
        mark = "  <- chosen" if alternative is compared.chosen else ""
        yield ""
        yield f"{alternative.description}: cost {cost.total:,.0f}{mark}"
        yield f"  {cost.work:,.0f} steps/s, {cost.state_rows:,.0f} rows kept, {cost.rate:,.0f} answers/s"
        yield from (f"  {line}" for line in explain_tree(alternative.query))
    yield ""
    yield "figures of the chosen plan:"
    for node, figure in compared.figures:
        yield f"  {node}: {figure.text} ({'measured' if figure.measured else 'default, nothing has been measured'})"


def comparison_json(compared: Comparison) -> Json:
    """The same for programs. Each plan is one that ``from_json`` accepts."""
    return {
        "chosen": compared.chosen.description,
        "reason": compared.reason,
        "alternatives": [
            {"description": a.description, "cost": asdict(a.cost) | {"total": a.cost.total}, "plan": to_json(a.query)}
            for a in compared.found
        ],
        "figures": [{"node": node, **asdict(figure)} for node, figure in compared.figures],
    }
