"""Queries over bounded windows: one answer for each window, when it ends.

Two ways give the same answers. *Fresh*: the operators start from nothing for every window and take all its rows.
*Reuse*: they keep their state from window to window and take only the rows that the next one adds and loses; the
result is kept and given whole at each end. Where both are possible (``plan.reuse``) the plan says which it is: reuse
pays where windows overlap much, else it takes each row twice and keeps a result that is soon another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from penstock.model.delta import MIN_TS, Arrivals, Delta, Instant, Step, concat, empty
from penstock.operators.base import StateSize
from penstock.operators.bounded import Ended, GenericEnds, SessionEnds, WindowEnds, entering
from penstock.operators.build import Leaf, Tree, build
from penstock.operators.emit import Emit
from penstock.operators.fast_aggregate import FastAggregate
from penstock.operators.gate import MasterGate
from penstock.operators.pieces import Whole
from penstock.operators.state import LoadedState, Saved, State
from penstock.operators.stateless import FilterProject
from penstock.operators.tables import delta_of, delta_table, from_number, number
from penstock.plan.empty import passes_empty
from penstock.plan.nodes import Query
from penstock.plan.order import delivery_keys
from penstock.plan.reuse import reuses, without_bound_keys
from penstock.plan.steps import steps_of
from penstock.plan.window import Generic, Session
from penstock.scalar import Context


@dataclass(slots=True, eq=False)
class Feed:
    """Everything of all inputs before ``frontier`` that has not been fed before, by position of the source.

    ``closed_at``: once the inputs that decide are closed, the furthest instant they had named before.
    """

    frontier: Instant
    streams: Mapping[int, Arrivals]
    relations: Mapping[int, Delta]
    closed_at: float | None


class BoundedBody:
    """The operators of a query that is answered at the ends of windows."""

    def __init__(
        self, query: Query, functions: Mapping[str, Callable[..., object]], errors: Context, as_stream: bool
    ) -> None:
        self._functions, self._errors, self._as_stream = functions, errors, as_stream
        plan = without_bound_keys(query.input)
        top, below = steps_of(plan)
        self._node = below
        self._top = FilterProject(top, below.schema, functions, errors) if top else None
        self._tree = self._build()
        bounded = [leaf for leaf in self._tree.leaves if leaf.bounded]
        spec = bounded[0].node.spec  # type: ignore[union-attr]
        self.deciding = tuple(dict.fromkeys(leaf.position for leaf in bounded))
        self._ends: WindowEnds
        if isinstance(spec, Session):
            self._ends = SessionEnds(spec, bounded[0].schema)
        else:
            assert isinstance(spec, Generic)
            self._ends = GenericEnds(spec, [leaf.schema for leaf in bounded], passes_empty=passes_empty(query))
        self._gates = {i: MasterGate(leaf.schema) for i, leaf in enumerate(self._tree.leaves) if not leaf.bounded}
        self._contents: dict[int, Delta] = {i: empty(self._tree.leaves[i].schema) for i in self._gates}
        self._reuse = reuses(query)
        self._relation = Query(below, "rstream", (), query.clock)
        self._emit = Emit(self._relation)
        self._answer = replace(query, input=plan, output="istream")
        self._keys = () if as_stream else delivery_keys(self._answer)
        self._before: tuple[tuple[int, int], ...] = tuple((0, 0) for _ in bounded)
        self.last_window: float | None = float("-inf")
        self._nothing: Delta | None = None
        self._pieces = {i: Whole() for i in self._gates}

    def _build(self) -> Tree:
        return build(self._node, self._functions, lambda: self._errors, insertions_only=False)

    @property
    def ended(self) -> bool:
        return self._ends.ended

    def next_instant(self, closed_at: float | None) -> Instant | None:
        return self._ends.next_instant(closed_at)

    def step(self, feed: Feed) -> list[Delta]:
        self._ends.take([leaf.arrivals(feed.streams[leaf.position]) for leaf in self._tree.leaves if leaf.bounded])
        windows = self._ends.due(feed.frontier, feed.closed_at)
        others = self._others(feed, windows)
        answers: list[Delta] = []
        for i, window in enumerate(windows):
            changes = {leaf: parts[i] for leaf, parts in others.items()}
            delta = self._of_nothing(window)
            if delta is None:
                delta = self._incremental(window, changes) if self._reuse else self._fresh(window, changes)
            answers.append(self._finish(delta, window))
            self.last_window = window.instant[0]
        self._ends.forget()
        return [a for a in answers if len(a)]

    def _of_nothing(self, window: Ended) -> Delta | None:
        """The result of a window without rows, which is the same for all of them; None where the window may have rows.

        A gap in a stream can be millions of empty windows long.
        """
        if self._gates or window.rows is not None or any(low < high for low, high in window.ranges):
            return None
        if self._reuse and any(low < high for low, high in self._before):
            return None
        if self._nothing is None:
            self._nothing = self._incremental(window, {}) if self._reuse else self._fresh(window, {})
        self._before = window.ranges
        return self._nothing

    def _others(self, feed: Feed, windows: list[Ended]) -> dict[int, list[Delta]]:
        """What sliding windows and relations change from one end to the next, for each end."""
        instants = sorted({w.instant for w in windows})
        masters = (np.array([t for t, _ in instants], np.int64), np.array([s for _, s in instants], np.int64))
        step = Step(feed.frontier, masters)
        result: dict[int, list[Delta]] = {}
        for i, gate in self._gates.items():
            leaf = self._tree.leaves[i]
            delta = gate.process([self._sliding(leaf, feed, step)], step)
            parts: list[Delta] = []
            used = 0
            for window in windows:
                upto = _upto(delta, window.instant)
                parts.append(_at(delta.slice(used, upto), window.instant))
                used = upto
            result[i] = parts
        return result

    def _sliding(self, leaf: Leaf, feed: Feed, step: Step) -> Delta:
        if leaf.operator is None:
            # What is there from the beginning waits for the first end like everything else.
            delta = feed.relations[leaf.position]
            return delta.at(np.maximum(delta.ts, MIN_TS + 1), delta.sub)
        return leaf.operator.process(leaf.arrivals(feed.streams[leaf.position]), step)

    def _fresh(self, window: Ended, changes: dict[int, Delta]) -> Delta:
        """The whole result from nothing but the rows of the window and what the others hold."""
        for i, delta in changes.items():
            self._contents[i] = _at(_present(concat([self._contents[i], delta])), window.instant)
        tree, bounded = self._build(), 0
        leaves: list[Delta] = []
        for i, leaf in enumerate(tree.leaves):
            if leaf.bounded:
                leaves.append(entering(self._rows(bounded, window), window.instant))
                bounded += 1
            else:
                leaves.append(self._contents[i])
        return self._whole(tree, Emit(self._relation), leaves, window)

    def _whole(self, tree: Tree, emit: Emit, leaves: list[Delta], window: Ended) -> Delta:
        step = Step((window.instant[0], window.instant[1] + 1), None, (window.start, window.end))
        changes = tree.process(leaves, step)
        last = tree.stages[tree.root].operator if tree.root >= 0 else None
        if isinstance(last, FastAggregate):
            return last.content(window.instant)  # it has the whole result; nobody else need keep it
        if not self._reuse and (changes.sign > 0).all():
            return replace(changes, end=None)  # nothing was there before and nothing has left
        instants = (np.array([window.instant[0]], np.int64), np.array([window.instant[1]], np.int64))
        return emit.process([changes], step, instants)

    def _rows(self, bounded: int, window: Ended) -> Arrivals:
        if window.rows is not None:
            return window.rows
        assert isinstance(self._ends, GenericEnds)
        return self._ends.logs[bounded].rows(*window.ranges[bounded])

    def _incremental(self, window: Ended, changes: dict[int, Delta]) -> Delta:
        """The whole result from the one before and what the window adds and loses."""
        assert isinstance(self._ends, GenericEnds)
        leaves: list[Delta] = []
        bounded = 0
        for i, leaf in enumerate(self._tree.leaves):
            if not leaf.bounded:
                leaves.append(changes[i])
                continue
            log = self._ends.logs[bounded]
            (low, high), (new_low, new_high) = self._before[bounded], window.ranges[bounded]
            gone = entering(log.rows(low, min(high, new_low)), window.instant, -1)
            came = entering(log.rows(max(high, new_low), new_high), window.instant)
            leaves.append(concat([gone, came]))
            bounded += 1
        self._before = window.ranges
        return self._whole(self._tree, self._emit, leaves, window)

    def _finish(self, delta: Delta, window: Ended) -> Delta:
        if not len(delta):
            return delta
        delta = _at(delta, window.instant)
        if self._top is not None:
            delta = self._top.process([delta], Step(window.instant, None, (window.start, window.end)))
        return self._order(delta, window)

    def _order(self, delta: Delta, window: Ended) -> Delta:
        """The answers of one window as they are delivered: in value order as elements, else by ORDER BY."""
        if not (self._as_stream or self._keys):
            return delta
        emit = Emit(self._answer, ordered=self._as_stream, keys=self._keys, functions=self._functions)
        instants = (np.array([window.instant[0]], np.int64), np.array([window.instant[1]], np.int64))
        return emit.process([delta], Step(window.instant), instants)

    def save(self) -> State:
        state = {**self._tree.save(), "windows": self._ends.save(), "emit": self._emit.save()}
        for i, gate in self._gates.items():
            state[f"gate {i}"] = gate.save()
            state[f"content {i}"] = self._pieces[i].save(self._contents[i], partial(delta_table, self._contents[i]))
        last = None if self.last_window is None else number(self.last_window)
        state["answered"] = Saved({"before": [list(b) for b in self._before], "last": last})
        return state

    def load(self, state: LoadedState) -> None:
        self._tree.load(state)
        self._ends.load(state["windows"])
        self._emit.load(state["emit"])
        for i, gate in self._gates.items():
            gate.load(state[f"gate {i}"])
            schema = self._tree.leaves[i].schema
            self._contents[i] = self._pieces[i].load(state[f"content {i}"], partial(delta_of, schema))
        self._load_meta(state)

    def catch_up(self, state: LoadedState) -> None:
        self._tree.catch_up(state)
        self._ends.catch_up(state["windows"])
        self._emit.catch_up(state["emit"])
        for i, gate in self._gates.items():
            gate.catch_up(state[f"gate {i}"])
            schema = self._tree.leaves[i].schema
            content = self._pieces[i].catch_up(state[f"content {i}"], partial(delta_of, schema))
            if content is not None:
                self._contents[i] = content
        self._load_meta(state)

    def _load_meta(self, state: LoadedState) -> None:
        answered = state["answered"].meta
        self._before = tuple((low, high) for low, high in answered["before"])
        self.last_window = None if answered["last"] is None else from_number(answered["last"])

    def sizes(self) -> dict[str, StateSize]:
        return {**self._tree.sizes(), "windows": self._ends.size(), "emit": self._emit.size()}


def _upto(delta: Delta, instant: Instant) -> int:
    """How many changes are at or before an instant."""
    low = int(np.searchsorted(delta.ts, instant[0], "left"))
    high = int(np.searchsorted(delta.ts, instant[0], "right"))
    return low + int(np.searchsorted(delta.sub[low:high], instant[1], "right"))


def _at(delta: Delta, instant: Instant) -> Delta:
    """The same changes, all at one instant, rows that leave first."""
    if not len(delta):
        return delta
    n = len(delta)
    moved = Delta(
        delta.schema, delta.columns, np.full(n, instant[0], np.int64), np.full(n, instant[1], np.int64),
        delta.sign, delta.moment_ts, delta.moment_sub, delta.priority,
    )  # fmt: skip
    return moved if (delta.sign > 0).all() else moved.take(np.argsort(moved.sign, kind="stable"))


def _present(delta: Delta) -> Delta:
    """The rows of a window or relation that have entered and not left; a row's moment is its identity."""
    if (delta.sign > 0).all():
        return delta
    order = np.lexsort((delta.sign, delta.moment_sub, delta.moment_ts))
    ts, sub = delta.moment_ts[order], delta.moment_sub[order]
    new = np.ones(len(order), bool)
    new[1:] = (ts[1:] != ts[:-1]) | (sub[1:] != sub[:-1])
    sums = np.add.reduceat(delta.sign[order], np.flatnonzero(new))
    last = np.append(np.flatnonzero(new)[1:], len(order)) - 1
    return delta.take(np.sort(order[last[sums > 0]]))

