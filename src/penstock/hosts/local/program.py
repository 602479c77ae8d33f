"""A query running in this process: inputs in the total order, operators called directly, answers out.

A ``Program`` is one virtual operator: no queue inside. Each ``run`` releases the elements whose turn has come
(everything before the frontier, the least bound of all inputs), calls every operator once, and gives the answers.
A query used as a stream inside another is a program of its own whose answers are pushed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.delta import BEGINNING, NEVER, Delta, Instant
from penstock.hosts.local.body import Body, Feed
from penstock.hosts.local.bounded_body import BoundedBody
from penstock.hosts.local.inputs import RelationInput, StreamInput
from penstock.hosts.local.sliding_body import SlidingBody
from penstock.ingest import Batch
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, Saved, State, below, under
from penstock.plan.nodes import Query, QueryStream, RelationScan, StreamScan, bounded_window, sources, walk
from penstock.reference import Change
from penstock.scalar import Context


class Program:
    """One query and the queries it reads as streams."""

    def __init__(
        self,
        query: Query,
        functions: Mapping[str, Callable[..., object]],
        errors: Context,
        *,
        as_stream: bool = False,
    ) -> None:
        self.query = query
        self._errors = errors
        leaves = {leaf.position: leaf for leaf in sources(query)}
        ranks = {position: rank for rank, position in enumerate(sorted(leaves))}
        self._streams: dict[int, StreamInput] = {}
        self._relations: dict[int, RelationInput] = {}
        self._nested: dict[int, Program] = {}
        self._positions: dict[str, list[int]] = {}
        for position, leaf in leaves.items():
            if isinstance(leaf, RelationScan):
                self._relations[position] = RelationInput(leaf.schema, ranks[position])
                self._positions.setdefault(leaf.relation, []).append(position)
                continue
            self._streams[position] = StreamInput(leaf.schema, ranks[position])
            if isinstance(leaf, QueryStream):
                self._nested[position] = Program(leaf.query, functions, errors, as_stream=True)
            else:
                self._positions.setdefault(leaf.stream, []).append(position)
        self._answered: dict[int, int] = {}
        self._reads_streams = any(isinstance(n, StreamScan) for n in walk(query))
        self._frontier: Instant = BEGINNING
        self._begun = False
        if bounded_window(query) is None:
            self._body: Body = SlidingBody(query, functions, errors, as_stream)
        else:
            self._body = BoundedBody(query, functions, errors, as_stream)

    # -- in -----------------------------------------------------------------------------------------

    def push(self, stream: str, batch: Batch) -> None:
        """Elements of a declared stream, in order."""
        for position in self._positions.get(stream, ()):
            columns = _columns(batch.table)
            self._streams[position].push(columns, batch.ts, batch.arrival, batch.priority)
        for nested in self._nested.values():
            nested.push(stream, batch)

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes of a relation, in order."""
        for position in self._positions.get(relation, ()):
            self._relations[position].push(changes)
        for nested in self._nested.values():
            nested.change(relation, changes)

    def progress(self, stream: str, at: float) -> None:
        """No more elements of a declared stream before ``at``."""
        for position in self._positions.get(stream, ()):
            self._streams[position].advance(at)
        for nested in self._nested.values():
            nested.progress(stream, at)

    # -- out ----------------------------------------------------------------------------------------

    def run(self) -> list[Delta]:
        """Do all that progress allows; gives the answers, as batches of rows with their instant and sign."""
        for position, nested in self._nested.items():
            self._pull(position, nested)
        if self._body.ended:
            return []
        frontier = min((s.bound for s in self._streams.values()), default=NEVER)
        if frontier <= self._frontier and self._begun and self._streams:
            return []
        first: list[Delta] = []
        if not self._begun and not self._streams:
            # A query over stored relations alone is answered at once for what they have, then for what changes.
            first = self._step(_AFTER_BEGINNING)
        return first + self._step(frontier)

    def _step(self, frontier: Instant) -> list[Delta]:
        feed = Feed(
            frontier,
            {p: s.release(frontier) for p, s in self._streams.items()},
            {p: r.release(frontier) for p, r in self._relations.items()},
            self._closed_at(),
        )
        self._frontier = frontier
        self._begun = True
        return self._body.step(feed)

    def _pull(self, position: int, nested: Program) -> None:
        """Take over the answers of a query behind a ``QueryStream``."""
        target = self._streams[position]
        for delta in nested.run():
            number = self._answered.get(position, 0)
            arrival = np.arange(number, number + len(delta), dtype=np.int64)
            self._answered[position] = number + len(delta)
            target.push(delta.columns, delta.ts, arrival, delta.priority)
        target.newest = max(target.newest, nested.reached)
        if nested.completed > -math.inf:
            target.progress = max(target.progress, nested.completed)

    def _deciding(self) -> list[StreamInput]:
        """The inputs that say when there can be no more instants of evaluation."""
        chosen = self._body.deciding
        return [self._streams[p] for p in chosen] if chosen else list(self._streams.values())

    def _closed_at(self) -> float | None:
        deciding = self._deciding()
        if deciding and all(s.closed for s in deciding):
            return max(s.newest for s in deciding)
        return None

    @property
    def ended(self) -> bool:
        """No answer can come any more."""
        if self._body.ended:
            return True
        if self._frontier != NEVER and not self._body.deciding:
            return False
        deciding = self._deciding()
        return self._reads_streams and bool(deciding) and all(s.closed for s in deciding) and self._drained()

    def _drained(self) -> bool:
        if self._frontier == NEVER:
            return True
        # Inputs that only feed sliding windows may still be open when the bounded ones are done.
        return self._body.deciding != () and self._body.next_instant(self._closed_at()) is None and not any(
            self._streams[p].waiting for p in self._body.deciding
        )

    @property
    def completed(self) -> float:
        """How far the answers are: none before this instant will come."""
        if self.ended:
            return math.inf
        return min((s.progress for s in self._streams.values()), default=math.inf)

    @property
    def reached(self) -> float:
        """The furthest instant that progress has named or a window has ended at; closing names none."""
        named = max((s.newest for s in self._deciding()), default=-math.inf)
        last = self._body.last_window
        if last is None:
            return named
        return last if self._body.ended else max(named, last)

    # -- state --------------------------------------------------------------------------------------

    def save(self) -> State:
        """All that is remembered; see ``operators.state``."""
        state: State = {}
        for position, stream in self._streams.items():
            state[f"input {position}"] = stream.save()
        for position, relation in self._relations.items():
            state[f"input {position}"] = relation.save()
        for position, nested in self._nested.items():
            state |= under(f"stream {position}", nested.save())
        state |= under("body", self._body.save())
        answered = {f"{position}": count for position, count in self._answered.items()}
        state["program"] = Saved({
            "answered": answered, "frontier": list(self._frontier), "begun": self._begun,
            "failures": self._errors.failures, "last_failure": self._errors.last_failure,
        })  # fmt: skip
        return state

    def load(self, state: LoadedState) -> None:
        """Go on, in a fresh program, from what a program of the same query saved."""
        for position, stream in self._streams.items():
            stream.load(state[f"input {position}"])
        for position, relation in self._relations.items():
            relation.load(state[f"input {position}"])
        for position, nested in self._nested.items():
            nested.load(below(f"stream {position}", state))
        self._body.load(below("body", state))
        self._load_meta(state)

    def catch_up(self, state: LoadedState) -> None:
        """Go on from a later state; this program has done nothing since it saved, or loaded, one that it goes on from.

        Costs what has changed in between; afterwards the program is as one that has loaded the state. If it fails, the
        program is of no use.
        """
        for position, stream in self._streams.items():
            stream.catch_up(state[f"input {position}"])
        for position, relation in self._relations.items():
            relation.catch_up(state[f"input {position}"])
        for position, nested in self._nested.items():
            nested.catch_up(below(f"stream {position}", state))
        self._body.catch_up(below("body", state))
        self._load_meta(state)

    def _load_meta(self, state: LoadedState) -> None:
        meta = state["program"].meta
        self._answered = {int(position): count for position, count in meta["answered"].items()}
        ts, sub = meta["frontier"]
        self._frontier, self._begun = (ts, sub), meta["begun"]
        # Operators have computed keys of their rows again; what failed had been counted.
        self._errors.failures, self._errors.last_failure = meta["failures"], meta["last_failure"]

    def size(self) -> dict[str, StateSize]:
        """What is remembered, by operator."""
        sizes = self._body.sizes()
        for nested in self._nested.values():
            for name, size in nested.size().items():
                sizes[name] = sizes.get(name, StateSize(0, 0)) + size
        return sizes


_AFTER_BEGINNING: Instant = (BEGINNING[0], BEGINNING[1] + 1)


def _columns(table: pa.Table) -> list[pa.Array]:
    """The columns of a table, each in one piece."""
    batches = table.to_batches()
    if len(batches) == 1:
        columns: list[pa.Array] = batches[0].columns
        return columns
    return [column.combine_chunks() for column in table.columns]

