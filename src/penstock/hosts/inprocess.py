"""What hosts that work in this process have in common: nothing is kept on disk, so there is little to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import pyarrow as pa

from penstock.catalog import FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.hosts.core import Core
from penstock.hosts.host import Abilities, QuerySettings, Runner
from penstock.hosts.registered import Registered
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.waiting import Look
from penstock.plan.nodes import Query as Plan
from penstock.scalar.zones import UTC


class InProcess:
    """A host whose queries have each their own runner, and work in the thread that pushes."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.closed = False

    @property
    def combines(self) -> bool:
        return False

    @property
    def on_its_own(self) -> bool:
        return False

    @property
    def inside(self) -> bool:
        return False

    @property
    def pace(self) -> float:
        return 0.005

    def results_lock(self) -> threading.RLock:
        return threading.RLock()

    def zone(self) -> str:
        return UTC

    def open(self) -> None:
        pass

    def runner(self, query: Plan, schema: pa.Schema, settings: QuerySettings) -> Runner:
        raise NotImplementedError

    def begin(self, query: Registered) -> None:
        pass

    def admits(self, source: StreamInput, rows: pa.Table) -> bool:
        return True

    def room(self) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Registered]) -> None:
        name = source.definition.name
        for query in readers:
            if len(batch):
                query.runner.push(name, [batch])
            query.runner.progress(name, source.progress)

    def released(self, source: StreamInput) -> Batch:
        return source.nothing  # what has files has a directory

    def reached(
        self, source: StreamInput, batch: Batch, readers: Sequence[Registered]
    ) -> Literal["none", "some", "all"]:
        return "some"

    @property
    def wrote(self) -> bool:
        return True

    @property
    def keeps(self) -> bool:
        return False

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Registered]) -> None:
        for query in readers:
            query.runner.change(relation.definition.name, changes)

    def work(self, queries: Sequence[Registered]) -> None:
        for query in queries:
            if not query.suspended:  # what comes waits in its runner
                self.core.advance(query)

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        pass

    def dropped(self, name: str) -> None:
        pass

    def finishing(self, query: Registered) -> None:
        pass

    def leaving(self, query: Registered) -> None:
        pass

    def stopped(self, query: Registered) -> None:
        pass

    def altering(self, query: Registered, options: QueryOptions, suspended: bool) -> None:
        pass

    def altered(self, query: Registered, before: QueryOptions) -> None:
        self.work([query])

    def late_taken(self, source: StreamInput) -> None:
        pass

    def apart_taken(self, source: StreamInput) -> None:
        pass

    def after(self) -> None:
        pass

    def settle(self, query: Registered | None = None, look: Look | None = None) -> None:
        pass

    def metrics(self) -> pa.Table:
        apart = self.core.apart()
        return pa.table({"stream": pa.array(apart, pa.string()), "apart": pa.array(apart.values(), pa.int64())})

    def remark(self, query: Registered) -> str | None:
        return None

    def explain(self, plan: Plan, query: Registered | None = None) -> str:
        return ""

    def abilities(self) -> Abilities:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True
