"""The plan of 004 §5: operators that only simulate work, about sixty of them in six queries over four sources.

Each is configured with the time that an element takes and with its selectivity; which elements pass is the same in
every run, so every run has the same answers. Instants say nothing here and nobody waits for marks, as in the paper:
what is measured is overtaking in buffers and nothing else.

There is a buffer behind each source, behind each operator that sets priorities, and in front of each binary operator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.graph.message import Data, Mark, Message, chosen
from penstock.graph.statistics import Statistics
from penstock.graph.vertex import Edge, State
from penstock.model.delta import Arrivals
from penstock.operators.base import NOTHING, StateSize
from penstock.runtime.run import Runtime
from penstock.runtime.settings import Settings

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

SOURCES = 4
QUERIES = ((0, 1), (1, 2), (2, 3), (3, 0), (0, 1, 2), (2, 3, 0))
"""The sources of each query. Of three, two are combined first."""
PRIORITISE, CHEAP, DEAR = 2e-6, 15e-6, 150e-6
"""Seconds that an element takes where priorities are set, in other operators with one input, and in those with two."""
SOME, MOST = 0.95, 0.9
"""Selectivities: of the first selection of an input, and of the last of a query."""
_LOOK = 0.005
"""Seconds after which it is looked whether nothing is left to do; only the next element depends on it."""
_SAME = Mark((0, 0), 0.0, 0.0)


class Feed:
    """Has sources send their elements, one every ``gap`` seconds, from the sources in turn.

    The clock is the processor time of the thread that works: other processes do not disturb it. When nothing is left to
    do it goes on to the next element. Operators look whether an element is due when they have worked, so elements come
    as if by themselves, and they have come when they were due.
    """

    def __init__(self, elements: int, gap: float, push: Callable[[int], None]) -> None:
        self.elements, self.gap = elements, gap
        self.next, self.now = 0, 0.0
        self.over = threading.Event()  # all have come
        self._push, self._begun = push, 0.0

    def look(self) -> None:
        """Called by the thread that works, after it has."""
        self.now = now = time.thread_time() - self._begun
        while self.next < self.elements and self.next * self.gap <= now:
            self._push(self.next)
            self._pushed()

    def skip(self) -> None:
        """Nothing is left to do: go on to the next element. Called by another thread."""
        element = self.next
        self._begun -= element * self.gap - self.now
        self._pushed()
        self._push(element)

    def _pushed(self) -> None:
        self.next += 1
        if self.next == self.elements:
            self.over.set()


class Simulated:
    """An operator that takes ``cost`` seconds for each element and lets those through that ``passes`` names, or all.
    Each element stands for itself, so it may be worked on before its place."""

    kind = "simulated"
    overtakable = True
    foretells = looks_across = False
    sets_priority = False
    feed: Feed

    def __init__(self, label: str, cost: float, passes: Flags | None = None) -> None:
        self.id, self.label, self.priority = -1, label, 5
        self.cost, self.passes = cost, passes
        self.state: State = "ready"
        self.stats = Statistics()
        self.inputs: list[Edge] = []
        self.outputs: list[Edge] = []

    def take(self, port: int, message: Message) -> None:
        if len(message.data):  # else only a mark is left of it
            data = self.work(message.data)
            if len(data):
                message = Message(data, _SAME)
                for edge in self.outputs:
                    edge.send(message)

    def take_early(self, port: int, data: Data) -> None:
        data = self.work(data)
        if len(data):
            for edge in self.outputs:
                edge.send_early(data)

    def work(self, data: Data) -> Data:
        """What passes, after the time it takes."""
        until = time.thread_time() + len(data) * self.cost
        stats = self.stats
        stats.calls += 1
        stats.elements_in += len(data)
        passing = data
        if self.passes is not None:
            passed = self.passes[data.ts]
            if not passed.all():
                passing = chosen(data, np.flatnonzero(passed))
        stats.elements_out += len(passing)
        while time.thread_time() < until:
            pass
        self.feed.look()
        return passing

    def size(self) -> StateSize:
        return NOTHING


class Prioritise(Simulated):
    """Sets the priority of each element."""

    sets_priority = True

    def __init__(self, priorities: Ints) -> None:
        super().__init__("prioritise", PRIORITISE)
        self.priorities = priorities

    def work(self, data: Data) -> Data:
        assert isinstance(data, Arrivals), "it comes from a source"
        priority = self.priorities[data.ts]
        return super().work(
            Arrivals(data.schema, data.columns, data.ts, data.sub, priority if priority.any() else None)
        )


class Sink(Simulated):
    """Notes which elements came, and when. Bounded by the answers of a run."""

    def __init__(self) -> None:
        super().__init__("sink", 0.0)
        self.came: list[tuple[Ints, float]] = []

    def work(self, data: Data) -> Data:
        self.feed.look()
        self.came.append((data.ts, self.feed.now))
        return data


@dataclass
class Plan:
    """``buffered``: the operators in front of which there is a buffer."""

    sources: list[Simulated] = field(default_factory=list)
    operators: list[Simulated] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    buffered: set[int] = field(default_factory=set)

    @property
    def depth(self) -> int:
        """Operators on the longest path, sources and sinks included."""
        depths = dict.fromkeys((s.id for s in self.sources), 1)
        for operator in self.operators:  # senders come first
            depths[operator.id] = 1 + max(depths[edge.source.id] for edge in operator.inputs)
        return max(depths.values())

    def place(self, runtime: Runtime, settings: Settings) -> None:
        """One thread, with buffers where the plan has them: an operator without one is called directly."""
        called = settings.changed(threading="direct")
        runtime.place(
            self.operators, self.sources, {}, settings,
            {operator.id: called for operator in self.operators if operator.id not in self.buffered},
            [operator.id for operator in self.operators],
        )  # fmt: skip

    def push(self, element: int) -> None:
        """Have the next source send an element."""
        source = element % SOURCES
        one = Arrivals((), (), np.array([element]), np.array([source]))
        self.sources[source].outputs[0].send(Message(one, _SAME))


def build(priorities: Ints) -> Plan:
    """The plan for so many elements, in which these are their priorities."""
    plan, chance = Plan(), np.random.default_rng(4)

    def add(operator: Simulated, *senders: Simulated) -> Simulated:
        operator.id = len(plan.sources) + len(plan.operators)
        for port, sender in enumerate(senders):
            edge = Edge(sender, operator, port)
            sender.outputs.append(edge)
            operator.inputs.append(edge)
        (plan.operators if senders else plan.sources).append(operator)
        return operator

    def buffered(operator: Simulated, *senders: Simulated) -> Simulated:
        plan.buffered.add(add(operator, *senders).id)
        return operator

    def select(selectivity: float, sender: Simulated) -> Simulated:
        return add(Simulated(f"select {selectivity}", CHEAP, chance.random(len(priorities)) < selectivity), sender)

    def project(sender: Simulated) -> Simulated:
        return add(Simulated("project", CHEAP), sender)

    def combine(left: Simulated, right: Simulated) -> Simulated:
        return buffered(Simulated("combine", DEAR), left, right)

    known = []
    for _ in range(SOURCES):
        prioritised = buffered(Prioritise(priorities), add(Simulated("source", 0.0)))
        known.append(buffered(Simulated("project", CHEAP), prioritised))
    for inputs in QUERIES:
        first, second, *third = [select(SOME, known[i]) for i in inputs]
        if third:
            result = combine(project(combine(first, second)), third[0])
        else:
            result = project(combine(project(first), project(second)))
        sink = Sink()
        add(sink, select(MOST, result))
        plan.sinks.append(sink)
    return plan


@dataclass(frozen=True)
class Run:
    """One run. ``answers``: the elements of the answers; ``latencies``: of each, from when it was due; ``took``: until
    all was done. In seconds of the thread that works."""

    answers: Ints
    latencies: Floats
    took: float


def perform(priorities: Ints, gap: float, settings: Settings) -> Run:
    """Elements come one by one from the sources in turn, one every ``gap`` seconds."""
    plan, runtime = build(priorities), Runtime(settings)
    feed = Feed(len(priorities), gap, plan.push)
    for operator in plan.operators:
        operator.feed = feed
    try:
        plan.place(runtime, settings)
        while not feed.over.is_set():
            pushed = feed.next
            if runtime.idle:
                runtime.settle()
                if feed.next == pushed:  # else some have come meanwhile
                    feed.skip()
            else:
                feed.over.wait(_LOOK)
        runtime.settle()
    finally:
        runtime.close()
    came = [answer for sink in plan.sinks for answer in sink.came]
    answers = np.concatenate([elements for elements, _ in came])
    at = np.repeat([at for _, at in came], [len(e) for e, _ in came])
    return Run(answers, at - gap * answers, feed.now)
