"""Queries over sliding windows: every operator is called once a step with what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.delta import BEGINNING, Delta, Instant, Ints, Step
from penstock.hosts.local.body import Feed
from penstock.operators.base import StateSize
from penstock.operators.build import Leaf, build
from penstock.operators.emit import Emit, delivery_keys
from penstock.operators.gate import MasterGate
from penstock.operators.state import LoadedState, State, with_meta
from penstock.plan.nodes import Query, QueryStream, StreamScan, sources
from penstock.scalar import Context


class SlidingBody:
    """The operators of a query whose answer changes with its inputs, or at the arrivals of master streams."""

    deciding: tuple[int, ...] = ()
    ended = False
    last_window: float | None = None

    def __init__(
        self, query: Query, functions: Mapping[str, Callable[..., object]], errors: Context, as_stream: bool
    ) -> None:
        istream = query.output == "istream"
        self._tree = build(query.input, functions, errors, insertions_only=istream, gated=bool(query.masters))
        keys = () if as_stream else delivery_keys(query)
        self._emit = Emit(query, ordered=as_stream, keys=keys, functions=functions)
        self._gates = [MasterGate(leaf.schema) for leaf in self._tree.leaves] if query.masters else None
        self._masters = [s.position for s in sources(query) if _name(s) in query.masters]
        self._has_streams = any(isinstance(s, StreamScan | QueryStream) for s in sources(query))
        self._begun = False

    def next_instant(self, closed_at: float | None) -> Instant | None:
        return None

    def step(self, feed: Feed) -> list[Delta]:
        masters: tuple[Ints, Ints] | None = None
        if self._gates is not None:
            arrived = [(feed.streams[p].ts, feed.streams[p].sub) for p in self._masters]
            masters = _sorted_instants(arrived, strictly_ordered=True)
        step = Step(feed.frontier, masters)
        deltas = [self._leaf(leaf, feed, step) for leaf in self._tree.leaves]
        instants: tuple[Ints, Ints]
        if self._gates is not None and masters is not None:
            deltas = [gate.process([d], step) for gate, d in zip(self._gates, deltas, strict=True)]
            instants = masters
        elif self._emit.needs_instants:
            instants = _sorted_instants([(d.ts, d.sub) for d in deltas])
            if not self._begun and not self._has_streams:
                instants = (np.zeros(1, np.int64), np.zeros(1, np.int64))
        else:
            instants = _NONE
        self._begun = True
        answers = self._emit.process([self._tree.process(deltas, step)], step, instants)
        return [answers] if len(answers) else []

    def _leaf(self, leaf: Leaf, feed: Feed, step: Step) -> Delta:
        if leaf.operator is None:
            return feed.relations[leaf.position]
        return leaf.operator.process(leaf.arrivals(feed.streams[leaf.position]), step)

    def save(self) -> State:
        gates = {f"gate {i}": gate.save() for i, gate in enumerate(self._gates or ())}
        emit = with_meta(self._emit.save(), stepped=self._begun)
        return {**self._tree.save(), **gates, "emit": emit}

    def load(self, state: LoadedState) -> None:
        self._tree.load(state)
        for i, gate in enumerate(self._gates or ()):
            gate.load(state[f"gate {i}"])
        self._emit.load(state["emit"])
        self._begun = state["emit"].meta["stepped"]

    def catch_up(self, state: LoadedState) -> None:
        self._tree.catch_up(state)
        for i, gate in enumerate(self._gates or ()):
            gate.catch_up(state[f"gate {i}"])
        self._emit.catch_up(state["emit"])
        self._begun = state["emit"].meta["stepped"]

    def sizes(self) -> dict[str, StateSize]:
        return {**self._tree.sizes(), "emit": self._emit.size()}


def _name(source: object) -> str:
    if isinstance(source, StreamScan):
        return source.stream
    return source.name if isinstance(source, QueryStream) else ""


def _sorted_instants(parts: list[tuple[Ints, Ints]], *, strictly_ordered: bool = False) -> tuple[Ints, Ints]:
    """The distinct instants of several lists, in order, without the beginning."""
    if len(parts) == 1 and strictly_ordered:
        return parts[0]
    ts = np.concatenate([p[0] for p in parts]) if parts else _NONE[0]
    sub = np.concatenate([p[1] for p in parts]) if parts else _NONE[1]
    if not len(ts):
        return _NONE
    order = np.lexsort((sub, ts))
    ts, sub = ts[order], sub[order]
    keep = np.ones(len(ts), bool)
    keep[1:] = (ts[1:] != ts[:-1]) | (sub[1:] != sub[:-1])
    keep &= ts != BEGINNING[0]
    return ts[keep], sub[keep]


_NONE: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))
