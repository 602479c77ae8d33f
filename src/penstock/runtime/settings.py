"""How the graph is run: what ``db.configure`` takes."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from penstock.model.amounts import Bound, parse_bound, parse_bytes
from penstock.model.durations import parse_duration
from penstock.model.errors import BindError, InputError, suggest
from penstock.runtime.lanes import MODES
from penstock.runtime.strategies import check_name, strategy
from penstock.runtime.strategy import Quantum, Strategy

THREADING = ("direct", "graph", "operator", "hybrid")
ARCHITECTURES = ("worker", "pool")
PLACEMENTS = ("stall-avoiding", "segment", "chain")
AUTO = "auto"
"""The strategy ``highest-priority+`` where prioritised rows may come, ``fifo+`` elsewhere."""
MASTERS = ("smart", "naive")
WHEN_FULL = ("block", "raise")
ON_LAG = ("suspend", "stop")
PER_QUERY = ("threading", "strategy", "quantum", "latency", "mode", "lag", "on_lag")


@dataclass(frozen=True)
class Settings:
    """All of it; every field is checked.

    ``threading``: direct (no threads: whoever pushes does the work), graph (one thread, a buffer on every edge),
    operator (a thread and a buffer for each operator), hybrid (placement decides where buffers are, some threads run
    the partitions). ``workers``: threads of hybrid and of a pool; None: as many as there are processors.
    ``quantum``: how much an operator does in one turn: elements as int, seconds as float, or a text such as '5 ms'.
    ``latency``: the limit of chain-flush in seconds, or a text. ``mode``: how prioritised rows overtake in buffers, one
    of ``MODES``. ``masters``: how queries with MASTER that are registered from now on work: smart (windows pass on what
    has changed when a master element arrives) or naive (everything is worked on, and answers are compared when one
    does).

    ``memory``: bytes of what waits in buffers that may be in memory, or a text such as '512 MB'; more goes to disk.
    ``disk``: the same for that; None: as much as there is room for. ``when_full``: with both reached, a push blocks
    until there is room, or raises. ``read_ahead``: what is on disk is read again when so many percent of the memory
    are empty. ``lag``: how far a query may fall behind, rows or bytes as a text; ``on_lag``: what becomes of one that
    does: suspend or stop.

    ``queries``: what is different for some queries, by name: threading, strategy, quantum, latency, mode, lag, on_lag.
    """

    threading: str = "direct"
    strategy: str = AUTO
    workers: int | None = None
    quantum: int | float | str | None = None
    architecture: str = "worker"
    placement: str = "stall-avoiding"
    latency: float | str = 0.1
    mode: str = "strong"
    masters: str = "smart"
    memory: int | str | None = "512 MB"
    disk: int | str | None = None
    when_full: str = "block"
    read_ahead: float = 50.0
    lag: str | None = None
    on_lag: str = "suspend"
    queries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _one_of("threading", self.threading, THREADING)
        if self.strategy != AUTO:
            check_name(self.strategy)
        _one_of("architecture", self.architecture, ARCHITECTURES)
        _one_of("placement", self.placement, PLACEMENTS)
        _one_of("mode", self.mode, MODES)
        _one_of("masters", self.masters, MASTERS)
        if self.workers is not None and (
            not isinstance(self.workers, int) or isinstance(self.workers, bool) or self.workers < 1
        ):
            raise InputError(f"workers is {self.workers!r}", hint="it is a number of threads, 1 or more, or None")
        _quantum(self.quantum)
        _seconds("latency", self.latency)
        _one_of("when_full", self.when_full, WHEN_FULL)
        _one_of("on_lag", self.on_lag, ON_LAG)
        if isinstance(self.read_ahead, bool) or not isinstance(self.read_ahead, int | float) or not (
            0 <= self.read_ahead <= 100
        ):
            raise InputError(f"read_ahead is {self.read_ahead!r}", hint="it is a percentage, from 0 to 100")
        _ = self.budgets, self.lag_bound
        for name in self.queries:
            self.of_query(name)

    def changed(self, **changes: Any) -> Settings:
        """The same with other values, by name."""
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                raise InputError(f"there is no setting `{name}`", hint=_hint(name, known))
        return replace(self, **changes)

    def of_query(self, name: str) -> Settings:
        """What holds for a query."""
        own = self.queries.get(name)
        if not own:
            return self
        for key in own:
            if key not in PER_QUERY:
                raise InputError(f"`{key}` cannot be set for the query `{name}` alone", hint=_hint(key, PER_QUERY))
        return replace(self, **own, queries={})

    def of_queries(self, names: Collection[str]) -> Settings:
        """What holds for an operator that these queries share: their own settings where they agree, else the common
        ones."""
        own = [self.of_query(name) for name in names]
        return own[0] if own and all(s == own[0] for s in own) else self

    @cached_property
    def threads(self) -> int:
        """How many threads hybrid and a pool have."""
        return self.workers or os.cpu_count() or 1

    @property
    def budgets(self) -> tuple[int | None, int | None, float]:
        """Bytes in memory and on disk, None: no limit; and when to read ahead."""
        memory = None if self.memory is None else parse_bytes("memory", self.memory)
        return memory, None if self.disk is None else parse_bytes("disk", self.disk), self.read_ahead

    @cached_property
    def lag_bound(self) -> Bound | None:
        """How far a query may fall behind."""
        return None if self.lag is None else parse_bound("lag", self.lag)

    @property
    def how(self) -> tuple[object, ...]:
        """What two parts of the graph have in common that one strategy can serve."""
        return (self.strategy, _quantum(self.quantum), _seconds("latency", self.latency))

    def new_strategy(self, *, prioritised: bool = False) -> Strategy:
        """As it is set here; ``prioritised``: there may be rows that overtake."""
        name = self.strategy
        if name == AUTO:
            name = "highest-priority+" if prioritised else "fifo+"
        return strategy(name, _quantum(self.quantum), _seconds("latency", self.latency))


def _one_of(name: str, value: object, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise InputError(f"{name} is {value!r}", hint=_hint(str(value), valid))


def _hint(given: str, valid: Collection[str]) -> str:
    close = suggest(given, valid) or ""
    every = f"there is {', '.join(valid)}"
    return f"{close} {every}" if close.startswith("did") else every


def _quantum(value: object) -> Quantum | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise InputError(f"quantum is {value}", hint="an operator must get 1 element at least")
        return Quantum(elements=value)
    return Quantum(seconds=_seconds("quantum", value))


def _seconds(name: str, value: object) -> float:
    if isinstance(value, str):
        try:
            value = parse_duration(value) / 1e6
        except BindError as error:
            raise InputError(f"{name}: {error.message}", hint=error.hint) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        more = "a number of elements, " if name == "quantum" else ""
        raise InputError(f"{name} is {value!r}", hint=f"it is {more}seconds as a number above 0, or a text like '5 ms'")
    return float(value)
