"""A local runner that is stopped and started again from its saved state now and then."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal as OneOf

import pyarrow as pa
from pyarrow import fs

from penstock.hosts.host import QuerySettings
from penstock.hosts.meter import Meter
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import Delta
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query
from penstock.storage.versions import StateStore, fingerprint
from tests.state.alone import LocalRunner

Event = OneOf["nothing", "save", "restart", "retry", "forget"]
_Call = Callable[[LocalRunner], None]


class RestartingRunner:
    """After each run something happens, as ``events`` says in turn (then nothing more).

    ``save`` commits; ``restart`` commits and goes on in a fresh runner, with a fresh store, from what was committed;
    ``forget`` does so after older versions were removed. ``retry``: the next step is made in a runner that dies, after
    it has committed, and again from the version before it.
    """

    def __init__(
        self, query: Query, schema: pa.Schema, settings: QuerySettings, events: Sequence[Event], *, mapped: bool = True
    ) -> None:
        self._make = partial(LocalRunner, query, schema, settings)
        self._query = fingerprint(query)
        self._folder = tempfile.TemporaryDirectory()
        self._mapped = mapped
        self._events = list(events)
        self._store = self._open()
        self._runner = self._make()
        self._version = 0
        self._retried = False
        self._calls: list[_Call] = []

    def _open(self) -> StateStore:
        if self._mapped:
            return StateStore(self._folder.name, query=self._query)
        return StateStore("state", fs.SubTreeFileSystem(self._folder.name, fs.LocalFileSystem()), query=self._query)

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
        self._call(lambda r: r.push(stream, batches))

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self._call(lambda r: r.change(relation, changes))

    def progress(self, stream: str, at: Instant) -> None:
        self._call(lambda r: r.progress(stream, at))

    def _call(self, call: _Call) -> None:
        self._calls.append(call)
        call(self._runner)

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
        if self._retried:
            self._retried = False
            self._runner.run()
            self._store.commit(self._version + 1, self._runner.save())
            self._load()
            for call in self._calls:
                call(self._runner)
        answers = self._runner.run()
        self._calls = []
        event = self._events.pop(0) if self._events else "nothing"
        if event != "nothing":
            self._version += 1
            self._store.commit(self._version, self._runner.save())
            if event == "forget":
                self._store.forget(self._version)
            if event != "save":
                self._load()
            self._retried = event == "retry"
        return answers

    def _load(self) -> None:
        self._store = self._open()
        state = self._store.load(self._version)
        assert state is not None
        self._runner = self._make()
        self._runner.load(state)

    def sizes(self) -> dict[str, StateSize]:
        return self._runner.sizes()

    def close(self) -> None:
        self._runner.close()
        self._folder.cleanup()
