"""The plan that a query is run with, and how it is explained."""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.catalog import QueryOptions
from penstock.hosts.core import Core
from penstock.model.errors import BindError
from penstock.plan.alternatives import chosen
from penstock.plan.comparison import compare, comparison_json, comparison_text
from penstock.plan.cost import Measured
from penstock.plan.explanation import Explanation
from penstock.plan.nodes import Query as Plan
from penstock.plan.nodes import relation_scans, stream_scans, with_reuse
from penstock.plan.order import carrying_order


def planned(core: Core, plan: Plan, options: QueryOptions) -> Plan:
    """The plan that a query is run with: it stays the same, also after a restart."""
    plan = carrying_order(plan)
    if options.optimise:
        return chosen(plan, figures(core, plan), options.reuse, prioritised=_is_prioritised(core, plan))
    return plan if options.reuse is None else with_reuse(plan, options.reuse)


def figures(core: Core, plan: Plan) -> Mapping[str, Measured]:
    """What has been measured of the streams and relations that a plan reads."""
    found = {scan.stream: core.inputs[scan.stream].measured() for scan in stream_scans(plan)}
    found |= {scan.relation: core.relations[scan.relation].measured() for scan in relation_scans(plan)}
    return {name: measured for name, measured in found.items() if measured is not None}


def _is_prioritised(core: Core, plan: Plan) -> bool:
    """Whether rows of a stream that a plan reads may overtake others."""
    return any(core.catalog.stream(scan.stream).priority is not None for scan in stream_scans(plan))


def compared(core: Core, plan: Plan, format: str, because: str | None, reuse: bool | None = None) -> str:
    """The alternatives of a plan, for people, or for programs. ``because``: why it is run as it is, if it is."""
    if format.lower() not in ("text", "json"):
        raise BindError(f"alternatives have no format `{format}`", hint="there are text, json")
    found = compare(plan, figures(core, plan), because, reuse, prioritised=_is_prioritised(core, plan))
    if format.lower() == "text":
        return Explanation(comparison_text(found))
    return json.dumps(comparison_json(found), indent=2, ensure_ascii=False)


def compared_options(core: Core, plan: Plan, options: QueryOptions, format: str) -> str:
    """The alternatives of a plan that is not registered."""
    if options.optimise:
        return compared(core, carrying_order(plan), format, None, options.reuse)
    return compared(core, planned(core, plan, options), format, "optimise = FALSE")
