"""What is said of a snapshot, on a terminal and elsewhere."""

from __future__ import annotations

from penstock.demo.figures import Compared
from penstock.demo.snapshot import QueryFigures, Snapshot
from penstock.graph.draw.common import count, duration, size

ABOUT = "Penstock demo: eight wind turbines and five houses send readings; six queries are kept up to date."
HEAD = ("query", "rows in", "rows/s", "answers", "answers/s", "p50", "p99", "memory")
"""The columns of figures."""
NOTE = (
    "p50, p99: from push to answer; calls for readings of the burst are not in them, but in the sentence below. "
    "memory: what a query remembers, also what it shares."
)
NEXT = (
    ("penstock demo --cql", "the streams and queries of this demo, to copy and change"),
    ("penstock sql", "a shell for queries of your own"),
    ("docs/index.md", "a tutorial, how-to guides, and the whole language"),
)
"""Where to go from here."""


def cells(query: QueryFigures) -> tuple[str, ...]:
    """The figures of a query, in the order of ``HEAD``."""
    return (
        query.name, count(query.rows), f"{query.rows_a_second:,.0f}", count(query.answers),
        f"{query.answers_a_second:,.0f}", duration(query.p50), duration(query.p99), size(query.memory),
    )  # fmt: skip


def compared(burst: Compared | None) -> str:
    """How long the alarms of the burst took, and how long the others; empty if there is nothing to say yet."""
    if burst is None or burst.alarm_longest is None:
        return ""
    some = f"{burst.alarms_answered} of " if burst.alarms_answered < burst.alarms else ""
    said = f"alarms: {some}{burst.alarms} answered within {duration(burst.alarm_longest)}"
    if burst.other_longest is None or not burst.done:
        return f"{said}; other readings of the burst still wait"
    return (
        f"{said}; readings next to them after {duration(burst.neighbours)}, "
        f"the last one after {duration(burst.other_longest)}"
    )


def verdict(burst: Compared | None) -> str:
    """The burst in one sentence, at the end."""
    if burst is None:
        return "The run ended before the burst."
    came = f"In a burst of {burst.rows:,} readings at once"
    if burst.alarm_longest is None or burst.alarms_answered < burst.alarms:
        return f"{came} not all alarms had been answered when the run ended."
    alarms = f"the {burst.alarms} alarms in its middle"
    within = f"answered within {duration(burst.alarm_longest)}"
    if not burst.done or burst.neighbours is None:
        return f"{came} {alarms} were {within}; when the run ended, others still waited."
    times = burst.neighbours / max(burst.alarm_longest, 1e-6)
    did = "overtook what waited and were" if times >= 1.5 else "were"
    longer = f", {times:,.0f} times as long" if times >= 1.5 else ""
    return (
        f"{came} {alarms} {did} {within}; ordinary readings next to them took {duration(burst.neighbours)}{longer}, "
        f"the slowest {duration(burst.other_longest)}."
    )


def title(snapshot: Snapshot) -> str:
    """Which engine, how far, and how much has come."""
    return (
        f"{snapshot.engine} · {count(snapshot.rows)} rows, {snapshot.rows_a_second:,.0f}/s"
        f" · {count(snapshot.waiting)} wait"
    )


def ended(snapshot: Snapshot) -> str:
    """The whole run in a line."""
    return f"engine {snapshot.engine}: {snapshot.rows:,} rows in {snapshot.seconds:.0f} seconds"
