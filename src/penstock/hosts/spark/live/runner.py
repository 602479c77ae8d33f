"""A query of a database on Spark, as the database holds it: what it was given at its start, and answers that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.graph.answers import answers_as_table, ordered
from penstock.hosts.host import QuerySettings
from penstock.hosts.spark.live.slot import read_answers
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import concat
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query, declared_scans

if TYPE_CHECKING:
    from penstock.hosts.spark.live.host import SparkHost
    from penstock.hosts.spark.live.part import Part


@dataclass(frozen=True)
class StoredAnswers:
    """Answers in files: by micro-batch, in order, the files of its slots. They are read when somebody looks."""

    batches: tuple[tuple[int, tuple[Path, ...]], ...]
    rows: int

    def __len__(self) -> int:
        return self.rows


class SparkRunner:
    """The driver's side of one query. The operators are in the slots."""

    def __init__(self, host: SparkHost, id: str, plan: Query, schema: pa.Schema) -> None:
        self.id, self.plan, self.schema = id, plan, schema
        self._host = host
        self.changes: dict[str, list[Change]] = {}
        self.rows: dict[str, list[Batch]] = {}
        self.starting: dict[str, float] = {}
        self.settings = QuerySettings()
        self.priority = 5
        self.latency: int | None = None
        """Ticks after which it is to answer at the latest."""
        self.part: Part | None = None
        """Where it is worked on; None when it is over."""
        self.ended = False
        self.failures = 0
        self.last_failure: str | None = None
        self.reported: Mapping[int, Mapping[str, StateSize]] = {}

    @cached_property
    def reads(self) -> frozenset[str]:
        """The streams and relations whose logs it reads."""
        return frozenset(scan.name for scan in declared_scans(self.plan))

    # What a query is given before its first frame.

    def push(self, stream: str, batch: Batch) -> None:
        self.rows.setdefault(stream, []).append(batch)

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self.changes.setdefault(relation, []).extend(changes)

    def progress(self, stream: str, at: Instant) -> None:
        self.starting[stream] = at

    def run(self) -> None:
        """Answers come from micro-batches."""

    def together(self, answers: Sequence[StoredAnswers]) -> StoredAnswers:
        return StoredAnswers(tuple(b for some in answers for b in some.batches), sum(map(len, answers)))

    def table(self, answers: Sequence[StoredAnswers]) -> pa.Table:
        deltas = [ordered(read_answers(self.plan.schema, paths)) for some in answers for _, paths in some.batches]
        if not deltas:
            return self.schema.empty_table()
        if len(deltas) > 1 and sum(map(len, deltas)) < 1_000 * len(deltas):
            deltas = [concat(deltas)]
        return pa.concat_tables([answers_as_table(d, self.schema, self.plan) for d in deltas])

    def size(self, answers: StoredAnswers) -> int:
        return sum(path.stat().st_size for _, paths in answers.batches for path in paths)

    def facts(self) -> Mapping[str, object]:
        return {}

    def delivered(
        self, answers: Sequence[StoredAnswers], upto: int | None, notes: Mapping[str, object] | None = None
    ) -> None:
        batches = [number for some in answers for number, _ in some.batches]
        if batches or notes:
            self._host.delivered(self.id, max(batches, default=0), notes or {})

    def written(self) -> None:
        pass

    def forget(self, answers: Sequence[StoredAnswers]) -> None:
        for path in (path for some in answers for _, paths in some.batches for path in paths):
            path.unlink(missing_ok=True)

    def sizes(self) -> dict[str, StateSize]:
        found: dict[str, StateSize] = {}
        for sizes in self.reported.values():
            for name, size in sizes.items():
                found[name] = found.get(name, StateSize(0, 0)) + size
        return found

    def close(self) -> None:
        self._host.end(self)
