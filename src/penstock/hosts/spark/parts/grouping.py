"""Which queries of a database are worked on together: pure functions of queries, settings and what was measured.

A *part* is a virtual operator on Spark: the queries that share micro-batches, and with them a position in the logs, a
store of state, a thread and a pool of Spark's scheduler. The logs are the buffers in front of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.model.errors import InputError, there_are
from penstock.runtime.lanes import LANES

THREADING = {
    "direct": "all queries in one part",
    "graph": "every query in a part of its own, at most as many as cores, one micro-batch at a time",
    "operator": "every query in a part of its own, at most as many as cores, side by side",
    "hybrid": "a part for each priority, and one for a query that would make the others wait",
}
_INSTEAD = {
    "strategy": "Spark's own scheduler chooses what runs next; ",
    "experiments": "experiments are for engine='local'; ",
}
_SETTINGS = ("threading", "workers", "mode")
PRIORITIES = range(10)


@dataclass(frozen=True)
class Settings:
    """How queries are divided into parts, and how many parts work at once (None: all).

    ``mode``: how prioritised rows overtake. In the log of a stream they do or, with ``normal``, they do not; the other
    modes, which are those of the local engine, are alike here.
    """

    threading: str = "hybrid"
    workers: int | None = None
    mode: str = "strong"

    def with_(self, given: Mapping[str, object]) -> Settings:
        """With what somebody says instead."""
        found = self
        for name, value in given.items():
            if name == "threading":
                if value not in THREADING:
                    raise InputError(f"threading is {value!r}", hint=f"on Spark {there_are(THREADING)}")
                found = replace(found, threading=str(value))
            elif name == "workers":
                is_number = isinstance(value, int) and not isinstance(value, bool)
                if value is not None and (not is_number or int(str(value)) < 1):
                    raise InputError(f"workers is {value!r}", hint="give a number from 1 on, or None for no limit")
                found = replace(found, workers=None if value is None else int(str(value)))
            elif name == "mode":
                if value not in LANES:
                    raise InputError(f"mode is {value!r}", hint=there_are(LANES))
                found = replace(found, mode=str(value))
            else:
                told = _INSTEAD.get(name, "")
                known = f"{', '.join(f'`{setting}`' for setting in _SETTINGS[:-1])} and `{_SETTINGS[-1]}`"
                raise InputError(f"no setting `{name}` on Spark", hint=f"{told}there are {known}")
        return found

    @property
    def overtakes(self) -> bool:
        """Whether prioritised rows do not wait for their turn."""
        return self.mode != "normal"

    @property
    def at_once(self) -> int | None:
        """How many micro-batches may run side by side."""
        return 1 if self.threading == "graph" else self.workers


@dataclass(frozen=True)
class Member:
    """A query that is not over. ``apart``: it was found to make others wait. ``suspended``: it has no micro-batches."""

    id: str
    priority: int
    apart: bool = False
    suspended: bool = False


def groups(members: Sequence[Member], settings: Settings, most: int) -> list[tuple[str, ...]]:
    """The queries of each part, in the order in which their first ones were registered; at most ``most`` parts: each
    has a streaming query and a process, and more of them than cores let nobody wait less. Those that are suspended are
    in one more part, which rests."""
    found: dict[object, list[str]] = {}
    resting = tuple(member.id for member in members if member.suspended)
    for member in members:
        if member.suspended:
            continue
        key: object = None
        if settings.threading in ("graph", "operator") or (settings.threading == "hybrid" and member.apart):
            key = member.id
        elif settings.threading == "hybrid":
            key = member.priority
        found.setdefault(key, []).append(member.id)
    several = list(found.values())
    for i, ids in enumerate(several[most:]):
        several[i % most] += ids
    return [*(tuple(ids) for ids in several[:most]), *([resting] if resting else [])]


def placed(wanted: Iterable[Sequence[str]], now: Mapping[str, int], free: int) -> dict[str, int]:
    """The number of each query's part: as few queries as possible change theirs; new parts have numbers from ``free``.

    A group takes the part in which most of its queries are, the larger groups first.
    """
    wanted = list(wanted)
    overlaps = [
        (-count, i, part)
        for i, group in enumerate(wanted)
        for part, count in Counter(now[id] for id in group if id in now).items()
    ]
    chosen: dict[int, int] = {}
    for _, i, part in sorted(overlaps):
        if i not in chosen and part not in chosen.values():
            chosen[i] = part
    for i in range(len(wanted)):
        if i not in chosen:
            chosen[i], free = free, free + 1
    return {id: chosen[i] for i, group in enumerate(wanted) for id in group}


def crowding(costs: Mapping[str, float], interarrival: float, most: int) -> list[str]:
    """The queries that must leave a part so that it keeps pace, the costliest first; none if it does, or cannot.

    ``costs``: seconds of each query for a row that comes to the part; ``interarrival``: seconds from one row to the
    next. The capacity of a part is what is left of the second after the first. At most ``most`` queries leave: more
    parts than there are cores let nobody wait less.
    """
    capacity = interarrival - sum(costs.values())
    leaving: list[str] = []
    for id in sorted(costs, key=lambda id: -costs[id]):
        if capacity >= 0:
            return leaving
        leaving.append(id)
        capacity += costs[id]
        if len(leaving) > most or len(leaving) == len(costs):
            return []
    return leaving


def pool(priority: int) -> str:
    """The pool of Spark's scheduler for a priority."""
    return f"penstock-{priority}"


def weight(priority: int) -> int:
    """The weight of a pool: one priority more counts twice as much."""
    return int(2**priority)


def allocations() -> str:
    """The pools, as Spark's scheduler reads them; what others run counts like the middle priority."""
    pools = {"default": weight(5), **{pool(p): weight(p) for p in PRIORITIES}}
    lines = (
        f'  <pool name="{name}"><schedulingMode>FAIR</schedulingMode><weight>{w}</weight></pool>'
        for name, w in pools.items()
    )
    return "\n".join(('<?xml version="1.0"?>', "<allocations>", *lines, "</allocations>", ""))
