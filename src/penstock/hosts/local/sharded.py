"""Queries that come from Spark, in this process: as many programs as they have shards there, each with its own rows.

They are not part of the graph that other queries share, and are evaluated in the thread that pushes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.graph.programs import GraphPrograms, Programs
from penstock.hosts.host import QuerySettings
from penstock.hosts.spark.parts.feed import Share
from penstock.hosts.spark.parts.task import live_split
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import Delta, concat, merge
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, Saved, State, below, under
from penstock.plan.nodes import Query, declared_scans, functions_called

KIND = "kind"
"""Where the state of a shard says whether it is that of a graph."""


def shard_path(number: int, slot: int) -> str:
    """Where the state of a query's shard is."""
    return f"shards/{number}-{slot}"


class Shards:
    """The programs of one query. ``slot``: the one that it has to itself, None: it is in all ``slots``."""

    def __init__(
        self, id: str, number: int, slot: int | None, slots: int, plan: Query, settings: QuerySettings,
        state: LoadedState,
    ) -> None:  # fmt: skip
        self.id, self.slot, self._number, self._slots = id, slot, number, slots
        self._split = live_split(plan)
        self._schemas = {scan.name: scan.schema for scan in declared_scans(plan)}
        functions = settings.functions if functions_called(plan) else {}
        self._programs: dict[int, Programs] = {}
        for i in range(slots) if slot is None else [slot]:
            found = below(shard_path(number, i), state)
            if found[KIND].meta["graph"]:
                self._programs[i] = GraphPrograms(found, {id: (plan, settings.functions)})
            else:
                self._programs[i] = Programs({id: plan}, functions, strict=settings.strict)
                self._programs[i].load(found)

    def push(self, stream: str, batch: Batch) -> None:
        """Rows of a stream, in order."""
        for i, programs in self._programs.items():
            mine = self._share(stream, i).rows(batch)
            if len(mine):
                programs.push(stream, mine)
            programs.progress(stream, int(batch.ts[-1]))

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes of a relation, in order."""
        for i, programs in self._programs.items():
            mine = self._share(relation, i).changes(changes, self._schemas[relation])
            if mine:
                programs.change(relation, mine)

    def _share(self, name: str, slot: int) -> Share:
        return Share.of(self._split, name, self.slot, slot, self._slots)

    def progress(self, stream: str, at: Instant) -> None:
        """No more rows of a stream before ``at``."""
        for programs in self._programs.values():
            programs.progress(stream, at)

    def run(self) -> Delta | None:
        """The answers that have become certain."""
        found: list[Delta] = []
        for programs in self._programs.values():
            answers = programs.run()[self.id]
            if isinstance(answers, Exception):
                raise answers
            if answers:
                found.append(concat(answers))
        together = merge(found) if found else None
        return together if together is not None and len(together) else None

    @property
    def ended(self) -> bool:
        """No answer can come any more."""
        return all(programs.ended(self.id) for programs in self._programs.values())

    def failures(self) -> tuple[int, str | None]:
        """How many values became NULL because computing them failed, and what the last of them was."""
        found = [programs.failures(self.id) for programs in self._programs.values()]
        return sum(count for count, _ in found), next((last for _, last in found if last), None)

    def sizes(self) -> Mapping[str, StateSize]:
        """What is remembered, by operator."""
        found: dict[str, StateSize] = {}
        for programs in self._programs.values():
            for name, size in programs.size_of(self.id).items():
                found[name] = found.get(name, StateSize(0, 0)) + size
        return found

    def save(self) -> State:
        """All that is remembered."""
        state: State = {}
        for i, programs in self._programs.items():
            kind = Saved({"graph": isinstance(programs, GraphPrograms)})
            state |= under(shard_path(self._number, i), {KIND: kind, **programs.save()})
        return state
