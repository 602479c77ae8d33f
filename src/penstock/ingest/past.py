"""Rows that came before a query and that it is not given: what that makes of its windows.

Rules 1.6 and 4.6 of docs/concepts/semantics.md say it in words. It is decided from what came in, for all engines alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from penstock.catalog import QueryOptions
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Instant
from penstock.model.errors import BindError
from penstock.model.names import counted
from penstock.model.schema import Clock
from penstock.plan.derive import named_until, reverse_needs
from penstock.plan.nodes import Query as Plan
from penstock.plan.show import show_duration

Missing = Callable[[str], Instant]
"""The greatest instant of a row of a stream that a query which comes now is not given; -inf: it is given all."""


def check_reach(plan: Plan, options: QueryOptions, streams: Mapping[str, StreamInput], missing: Missing) -> None:
    """Refuse windows that go back in time to rows that are not there any more."""
    for _, needs in reverse_needs(plan):
        for name, since in needs.items():
            lost = missing(name)
            if math.isfinite(since) and since <= lost:
                stream = streams[name]
                raise _refused(stream, int(since), int(lost), at_start=options.start == "now")


def lacking(plan: Plan, inputs: frozenset[str], missing: Missing) -> tuple[Instant, str]:
    """Up to which instant answers of a new query may lack rows from before it, and why; -inf: none does."""
    lost = {name: at for name in sorted(inputs) if (at := missing(name)) > -math.inf}
    until = named_until(plan, lost) if lost else -math.inf
    # How far back windows that are reverse reach may depend on the rows of others.
    if any(lost.get(name, -math.inf) >= since for _, needs in reverse_needs(plan) for name, since in needs.items()):
        until = max(until, *(spec.end for spec, _ in reverse_needs(plan)))
    names = " and ".join(f"`{name}`" for name in lost)
    return until, f"rows of stream {names} that came before the query are not retained"


def _refused(source: StreamInput, since: int, lost: int, *, at_start: bool) -> BindError:
    stream, clock = source.definition, source.definition.clock
    kept = "retains none" if not stream.retain else f"retains the last {_kept(stream.retain, clock)}"
    if at_start:
        kept = "is read from now on"
    needed = _length(max(1, int(source.named) - since), clock)
    hint = f"declare the stream WITH (retain = {needed}) or more, before its rows come; 'all' keeps every row"
    if stream.history == "memory":
        hint += ", and history = 'disk' keeps on disk what memory does not"
    if at_start:
        hint = f"leave start = 'now' out; where the stream does not retain enough, {hint}"
    return BindError(
        f"the windows go back to {_shown(since, clock)}, and stream `{stream.name}` {kept}: its rows up to "
        f"{_shown(lost, clock)} are not there any more",
        hint=f"{hint}; or register the query before them",
    )


def _shown(at: int, clock: Clock) -> str:
    return str(at) if clock == "ticks" else f"{str(np.datetime64(at, 'us')).replace('T', ' ')} UTC"


def _kept(ticks: int, clock: Clock) -> str:
    return counted(ticks, "tick") if clock == "ticks" else _length(ticks, clock)


def _length(ticks: int, clock: Clock) -> str:
    """A length of time as ``retain`` takes it, not shorter."""
    return str(ticks) if clock == "ticks" else f"'{show_duration(-(-ticks // 1_000_000) * 1_000_000, clock).lower()}'"

