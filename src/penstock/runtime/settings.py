"""How the graph is run. ``asked`` says what of it ``db.configure`` takes."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from penstock.graph.masters import MASTERS, SMART
from penstock.model.amounts import Bound, parse_bound, parse_bytes
from penstock.model.durations import parse_duration
from penstock.model.errors import BindError, InputError, suggest, there_are
from penstock.runtime.buffer import BUFFERS
from penstock.runtime.lanes import LANES
from penstock.runtime.owners import ARCHITECTURES
from penstock.runtime.placement import PLACEMENTS
from penstock.runtime.strategies import check_name, strategy
from penstock.runtime.strategy import Quantum, Strategy

THREADING = ("direct", "graph", "operator", "hybrid")
AUTO = "auto"
"""The strategy ``highest-priority+`` where prioritised rows may come, ``fifo+`` elsewhere."""
MOST_WORKERS = 1_000
"""Threads that may share the work: where queries have different priorities, all of them are started."""
WHEN_FULL = ("block", "raise")
ON_LAG = ("suspend", "stop")
PER_QUERY = ("threading", "strategy", "mode", "quantum", "latency", "lag", "on_lag")
PLACING = ("threading", "architecture", "placement", "buffer", "partitions", "queues")
"""What decides which operators are run together, and how."""
USERS = ("threading", "workers", "strategy", "mode", "partitions", "queues", "memory", "disk")
"""What users set; the rest is for experiments, or said of a query or a database when it is made."""


@dataclass(frozen=True)
class Members:
    """What a partition has: operators, and those that only its queries need. ``strategy`` None: that of all."""

    queries: tuple[str, ...] = ()
    operators: tuple[int, ...] = ()
    strategy: str | None = None


@dataclass(frozen=True)
class Settings:
    """All of it; every field is checked.

    ``threading``: direct (no threads: whoever pushes does the work), graph (one thread, a buffer on every edge),
    operator (a thread and a buffer for each operator), hybrid (placement decides where buffers are, some threads run
    the partitions). ``workers``: threads of hybrid; None: as many as there are processors. ``strategy``: what works
    next, one of ``STRATEGIES``. ``mode``: how prioritised rows overtake in buffers, one of ``LANES``. ``memory``: bytes
    of what waits in buffers that may be in memory, or a text such as '512 MB'; more goes to disk. ``disk``: the same
    for that; None: as much as there is room for.

    Of hybrid: ``partitions``: by name, the names of queries and the numbers of operators that one worker runs, or
    ``{"of": [...], "strategy": "chain-flush"}``. ``queues``: by edge, as ``(3, 7)`` or ``"3-7"``, whether a buffer
    stands there, wherever placement would put one.

    For experiments: ``quantum``: how much an operator does in one turn: elements as int, seconds as float, or a text
    such as '5 ms'. ``architecture``, ``placement``, ``buffer``, ``masters``: one of ``ARCHITECTURES``, ``PLACEMENTS``,
    ``BUFFERS``, ``MASTERS``; the last two count for buffers and queries that come from then on. ``read_ahead``: what is
    on disk is read again when so many percent of the memory are empty.

    Said when something is made: ``latency``: the limit of chain-flush in seconds, or a text; of a query it counts where
    it is less than that of all. ``lag``: how far a query
    may fall behind, rows or bytes as a text; ``on_lag``: what becomes of one that does: suspend or stop.
    ``when_full``: with memory and disk reached, a push blocks until there is room, or raises.

    ``queries``: what is different for some queries, by name; of ``PER_QUERY``. ``worker``: the partition in which the
    operators are for which these settings hold.
    """

    threading: str = "direct"
    workers: int | None = None
    strategy: str = AUTO
    mode: str = "strong"
    memory: int | str | None = "512 MB"
    disk: int | str | None = None
    quantum: int | float | str | None = None
    architecture: str = "worker"
    placement: str = "stall-avoiding"
    buffer: str = "lock-free"
    masters: str = SMART
    read_ahead: float = 50.0
    latency: float | str = 0.1
    lag: str | None = None
    on_lag: str = "suspend"
    when_full: str = "block"
    partitions: Mapping[str, Sequence[str | int] | Mapping[str, Any]] = field(default_factory=dict)
    queues: Mapping[tuple[int, int] | str, bool] = field(default_factory=dict)
    queries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    worker: str | None = None

    @property
    def has_threads(self) -> bool:
        """Whether threads work, for all queries or for some."""
        own = (own.get("threading", "direct") for own in self.queries.values())
        return self.threading != "direct" or any(threading != "direct" for threading in own)

    @property
    def has_partitions(self) -> bool:
        """Whether placement decides where buffers are, for all queries or for some."""
        return self.threading == "hybrid" or any(own.get("threading") == "hybrid" for own in self.queries.values())

    def only_of(self, names: Container[str], operators: Container[int]) -> Settings:
        """Without what was set for other queries and operators: they are gone."""
        left = {name: own for name, own in self.queries.items() if name in names}
        edges: dict[tuple[int, int] | str, bool] = {
            (s, t): there for (s, t), there in self.edges.items() if s in operators and t in operators
        }
        found = {
            name: Members(tuple(q for q in of.queries if q in names), tuple(o for o in of.operators if o in operators),
                          of.strategy)
            for name, of in self.members.items()
        }  # fmt: skip
        if left == self.queries and edges == self.edges and found == self.members:
            return self
        partitions = {
            name: {"of": [*of.queries, *of.operators], "strategy": of.strategy}
            for name, of in found.items() if of.queries or of.operators
        }  # fmt: skip
        return replace(self, queries=left, queues=edges, partitions=partitions)

    @cached_property
    def members(self) -> dict[str, Members]:
        """What is in each partition."""
        return _members(self.partitions)

    @cached_property
    def edges(self) -> dict[tuple[int, int], bool]:
        """Where buffers are asked for, and where not."""
        return _edges(self.queues)

    def partition_of(self, operator: int, queries: Collection[str]) -> str | None:
        """The partition that an operator is in which these queries need: its own, or that of all of them."""
        names: set[str | None] = {name for name, of in self.members.items() if operator in of.operators}
        names = names or {next((n for n, of in self.members.items() if q in of.queries), None) for q in queries}
        return names.pop() if len(names) == 1 else None

    def of_operators(self, users: Mapping[int, Collection[str]]) -> dict[int, Settings]:
        """What holds for operators, by the queries that need each; empty if the same holds for all."""
        alike: dict[tuple[frozenset[str], str | None], Settings] = {}
        found: dict[int, Settings] = {}
        for operator, queries in users.items() if self.queries or self.partitions else ():
            place = frozenset(queries), self.partition_of(operator, queries)
            if place not in alike:
                alike[place] = self._within(*place)
            found[operator] = alike[place]
        return found

    def _within(self, queries: Collection[str], partition: str | None) -> Settings:
        own = self.of_queries(queries) if self.queries else self
        if partition is None or own.threading != "hybrid":
            return own
        return replace(own, worker=partition, strategy=self.members[partition].strategy or self.strategy, queries={})

    def __post_init__(self) -> None:
        _one_of("threading", self.threading, THREADING)
        if self.strategy != AUTO:
            check_name(self.strategy)
        _one_of("mode", self.mode, LANES)
        _one_of("architecture", self.architecture, ARCHITECTURES)
        _one_of("placement", self.placement, PLACEMENTS)
        _one_of("buffer", self.buffer, BUFFERS)
        _one_of("masters", self.masters, MASTERS)
        if self.workers is not None and (
            not isinstance(self.workers, int) or isinstance(self.workers, bool) or not 1 <= self.workers <= MOST_WORKERS
        ):
            hint = f"it is a number of threads, 1 or more and {MOST_WORKERS:,} at most, or None"
            raise InputError(f"workers is {self.workers!r}", hint=hint)
        _quantum(self.quantum)
        _seconds("latency", self.latency)
        _one_of("when_full", self.when_full, WHEN_FULL)
        _one_of("on_lag", self.on_lag, ON_LAG)
        if isinstance(self.read_ahead, bool) or not isinstance(self.read_ahead, int | float) or not (
            0 <= self.read_ahead <= 100
        ):
            raise InputError(f"read_ahead is {self.read_ahead!r}", hint="it is a percentage, from 0 to 100")
        _ = self.budgets, self.lag_bound, self.members, self.edges
        for name in self.queries:
            self.of_query(name)

    def adjusts(self, other: Settings) -> bool:
        """Whether the same operators have buffers in front of them as with others, of the same kind."""
        return all(getattr(self, name) == getattr(other, name) for name in PLACING) and all(
            self.of_query(name).threading == other.of_query(name).threading
            for name in self.queries.keys() | other.queries.keys()
        )

    def changed(self, **changes: Any) -> Settings:
        """The same with other values, by name."""
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                raise InputError(f"there is no setting `{name}`", hint=_hint(name, known))
        return replace(self, **changes)

    def changed_for(self, query: str, changes: Mapping[str, Any]) -> Settings:
        """The same with other values for what only this query needs."""
        own = {**self.queries.get(query, {}), **changes}
        return replace(self, queries={**self.queries, query: own})

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
        """How many threads hybrid has."""
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
        return (self.strategy, _quantum(self.quantum))

    @property
    def limit(self) -> float:
        """``latency`` in seconds."""
        return _seconds("latency", self.latency)

    def new_strategy(self, *, prioritised: bool = False) -> Strategy:
        """As it is set here; ``prioritised``: there may be rows that overtake."""
        name = self.strategy
        if name == AUTO:
            name = "highest-priority+" if prioritised else "fifo+"
        return strategy(name, _quantum(self.quantum), self.limit)


EXPERIMENTS = tuple(f.name for f in fields(Settings) if f.name not in (*USERS, "queries", "worker"))
_INSTEAD = {
    "lag": "say it of the query: CREATE QUERY … WITH (lag = '1000 rows')",
    "on_lag": "say it of the query: CREATE QUERY … WITH (lag = '1000 rows', on_lag = 'stop')",
    "latency": "say it of the query: CREATE QUERY … WITH (latency = '100 ms')",
    "when_full": "it is said when the database is made: penstock.connect(engine='local', when_full='raise')",
}


def asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What ``db.configure`` was given, by the names of ``Settings``: those of ``USERS`` as they are, the others in
    ``experiments``. There ``operator`` is the number of the operator that is meant."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "experiments":
            found |= _experiments(value)
        elif name in USERS:
            found[name] = value
        elif name in EXPERIMENTS or name == "operator":
            entry = f"for experiments: db.configure(experiments={{{name!r}: {value!r}}})"
            raise InputError(f"`{name}` is no setting of db.configure", hint=_INSTEAD.get(name, entry))
        else:
            raise InputError(f"there is no setting `{name}`", hint=_hint(name, USERS))
    return found


def _experiments(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"experiments is {given!r}", hint="it is a dictionary, such as {'quantum': 1000}")
    for name in given:
        if name in USERS:
            raise InputError(f"`{name}` is no experiment", hint=f"db.configure({name}={given[name]!r})")
        if name not in EXPERIMENTS and name != "operator":
            raise InputError(f"there is no experiment `{name}`", hint=_hint(str(name), (*EXPERIMENTS, "operator")))
    return given


_AS_PARTITIONS = "as in partitions={'fast': ['alarms'], 'slow': {'of': ['history', 7], 'strategy': 'chain-flush'}}"
_EDGE = re.compile(r" *([0-9]+) *- *([0-9]+) *")
_AS_QUEUES = "as in queues={(3, 7): True}; db.graph() has the numbers of operators"


def _members(partitions: object) -> dict[str, Members]:
    if not isinstance(partitions, Mapping):
        raise InputError(f"partitions is {partitions!r}", hint=f"it is a dictionary, {_AS_PARTITIONS}")
    found: dict[str, Members] = {}
    had: dict[object, str] = {}
    for name, given in partitions.items():
        more = dict(given) if isinstance(given, Mapping) else {"of": given}
        of, strategy = more.pop("of", None), more.pop("strategy", None)
        whole = isinstance(of, Sequence) and not isinstance(of, str)
        if not isinstance(name, str) or not name or more or not whole:
            raise InputError(f"the partition {name!r} is {given!r}", hint=f"it is a list, {_AS_PARTITIONS}")
        if strategy is not None and strategy != AUTO:
            check_name(strategy)
        for member in of:
            if isinstance(member, bool) or not isinstance(member, str | int):
                raise InputError(
                    f"in the partition `{name}` is {member!r}", hint="its members are names of queries and numbers of "
                    "operators",
                )  # fmt: skip
            if member in had:
                where = f"`{had[member]}`" if had[member] != name else "it"
                raise InputError(f"{member!r} is in the partition `{name}` and in {where}", hint="it has one place")
            had[member] = name
        found[name] = Members(
            tuple(m for m in of if isinstance(m, str)), tuple(m for m in of if isinstance(m, int)), strategy
        )
    return found


def _edges(queues: object) -> dict[tuple[int, int], bool]:
    if not isinstance(queues, Mapping):
        raise InputError(f"queues is {queues!r}", hint=f"it is a dictionary, {_AS_QUEUES}")
    found: dict[tuple[int, int], bool] = {}
    for edge, there in queues.items():
        match edge:
            case str() if (written := _EDGE.fullmatch(edge)) is not None:
                ends = int(written[1]), int(written[2])
            case (int(source), int(target)) if not isinstance(source, bool) and not isinstance(target, bool):
                ends = source, target
            case _:
                raise InputError(f"{edge!r} in queues is no edge", hint=_AS_QUEUES)
        if not isinstance(there, bool):
            raise InputError(f"queues says {there!r} of the edge {edge!r}", hint="True: a buffer is there; False: none")
        if found.setdefault(ends, there) is not there:
            raise InputError(f"queues says True and False of the edge {edge!r}", hint="give it once")
    return found


def _one_of(name: str, value: object, valid: Collection[str]) -> None:
    if value not in valid:
        raise InputError(f"{name} is {value!r}", hint=_hint(str(value), valid))


def _hint(given: str, valid: Collection[str]) -> str:
    close = suggest(given, valid) or ""
    every = there_are(valid)
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
