"""What hosts that work in this process have in common: nothing is kept on disk, so there is little to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.hosts import QuerySettings, Runner
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.plan.nodes import Query as Plan
from penstock.scalar.zones import UTC

if TYPE_CHECKING:
    from penstock.catalog import FunctionDef, RelationDef, StreamDef, ViewDef
    from penstock.database.database import Database
    from penstock.database.query import Query
    from penstock.ingest.relations import RelationStore


class InProcess:
    """A host whose queries have each their own runner, and work in the thread that pushes."""

    may_refuse = False

    def __init__(self, database: Database) -> None:
        self._database = database
        self._closed = False

    def zone(self) -> str:
        return UTC

    def open(self) -> None:
        pass

    def runner(self, query: Plan, schema: pa.Schema, settings: QuerySettings) -> Runner:
        raise NotImplementedError

    def begin(self, query: Query) -> None:
        pass

    def admits(self, source: StreamInput, rows: pa.Table, *, alone: bool) -> bool:
        return True

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Query]) -> None:
        name = source.definition.name
        for query in readers:
            if len(batch):
                query._runner.push(name, batch)
            query._runner.progress(name, source.progress)

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Query]) -> None:
        for query in readers:
            query._runner.change(relation.definition.name, changes)

    def work(self, queries: Sequence[Query]) -> None:
        # Every query has its answers before anybody is called back.
        for due in [query._advance() for query in queries]:
            self._database.notify(due)

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        pass

    def dropped(self, name: str) -> None:
        pass

    def finishing(self, query: Query) -> None:
        pass

    def stopped(self, query: Query) -> None:
        pass

    def late_taken(self, source: StreamInput) -> None:
        pass

    def apart_taken(self, source: StreamInput) -> None:
        pass

    def after(self) -> None:
        pass

    def settle(self, query: Query | None = None) -> None:
        pass

    def configured(self) -> None:
        pass

    def notes(self) -> dict[str, Any]:
        return {}

    def note(self, notes: Mapping[str, object]) -> None:
        pass

    def metrics(self) -> pa.Table:
        apart = self.apart()
        return pa.table({"stream": pa.array(apart, pa.string()), "apart": pa.array(apart.values(), pa.int64())})

    def apart(self) -> dict[str, int]:
        """How many rows of which streams did not fit and were kept apart."""
        inputs = self._database._inputs
        return {name: source.apart.count for name, source in inputs.items() if source.apart.count}

    def explain(self, plan: Plan, query: Query | None = None) -> str:
        return ""

    def close(self) -> None:
        self._closed = True
