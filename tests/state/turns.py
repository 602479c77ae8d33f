"""A local runner whose steps are made by several processes in turn, each of which remembers the state it left."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyarrow import fs

from penstock.hosts.host import QuerySettings
from penstock.hosts.meter import Meter
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import Delta
from penstock.operators.base import StateSize
from penstock.operators.state import State
from penstock.plan.nodes import Query
from penstock.storage.versions import StateStore, fingerprint
from tests.state.alone import LocalRunner


class TurnsRunner:
    """After each run the state is committed, and the process that ``turns`` names next goes on from it.

    It catches up from what it remembers; one that has nothing loads. When ``turns`` are used up the last one goes on.
    """

    def __init__(
        self, query: Query, schema: pa.Schema, settings: QuerySettings, turns: Sequence[int], *, mapped: bool = True
    ) -> None:
        self._make = partial(LocalRunner, query, schema, settings)
        self._query = fingerprint(query)
        self._folder = tempfile.TemporaryDirectory()
        self._mapped = mapped
        self._turns = list(turns)
        self._now = 0
        self._processes: dict[int, tuple[LocalRunner, StateStore]] = {0: (self._make(), self._open())}
        self._version = 0
        self.caught_up = 0

    def _open(self) -> StateStore:
        if self._mapped:
            return StateStore(self._folder.name, query=self._query)
        return StateStore("state", fs.SubTreeFileSystem(self._folder.name, fs.LocalFileSystem()), query=self._query)

    @property
    def _runner(self) -> LocalRunner:
        return self._processes[self._now][0]

    @property
    def ended(self) -> bool:
        return self._runner.ended

    @property
    def failures(self) -> int:
        return self._runner.failures

    @property
    def last_failure(self) -> str | None:
        return self._runner.last_failure

    def push(self, stream: str, batches: Sequence[Batch]) -> None:
        self._runner.push(stream, batches)

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self._runner.change(relation, changes)

    def progress(self, stream: str, at: Instant) -> None:
        self._runner.progress(stream, at)

    def together(self, answers: Sequence[Delta]) -> Delta:
        return self._runner.together(answers)

    def table(self, answers: Sequence[Delta]) -> pa.Table:
        return self._runner.table(answers)

    def size(self, answers: Delta) -> int:
        return answers.nbytes

    def written(self) -> None:
        pass

    def measure(self, meter: Meter, answers: Delta, delivered: float, began: float) -> None:
        pass  # these tests ask for no latency

    def forget(self, answers: Sequence[Delta]) -> None:
        pass

    def delivered(
        self, answers: Sequence[Delta], upto: int | None, notes: Mapping[str, object] | None = None
    ) -> None:
        pass

    def run(self) -> Delta | None:
        answers = self._runner.run()
        if self._turns:
            self._version += 1
            runner, store = self._processes[self._now]
            store.commit(self._version, runner.save())
            store.forget(self._version)
            self._now = self._turns.pop(0)
            self._bring_up(self._now)
        return answers

    def _bring_up(self, which: int) -> None:
        fresh, fresh_store = self._make(), self._open()
        state = fresh_store.load(self._version)
        assert state is not None
        fresh.load(state)
        if which not in self._processes:
            self._processes[which] = fresh, fresh_store
            return
        runner, store = self._processes[which]
        if store.holds(self._version):
            return
        state = store.follow(self._version)
        assert state is not None
        runner.catch_up(state)
        self.caught_up += 1
        sizes = [{name: size.rows for name, size in r.sizes().items()} for r in (runner, fresh)]
        assert sizes[0] == sizes[1]
        assert contents(runner.save()) == contents(fresh.save())

    def sizes(self) -> dict[str, StateSize]:
        return self._runner.sizes()

    def close(self) -> None:
        for runner, _ in self._processes.values():
            runner.close()
        self._folder.cleanup()


def contents(state: State) -> dict[str, object]:
    """All that a save says except what is in its pieces.

    And except how many keys a join knows: rows that have ended and wait to be the oldest may have lost theirs or not.
    """
    return {
        path: (
            {name: value for name, value in saved.meta.items() if name != "keys"},
            [(p.name, p.table is None) for p in saved.pieces],
        )
        for path, saved in state.items()
    }
