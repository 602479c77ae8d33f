"""A job without Spark: tasks called one after the other, packets passed on by hand.

It lets thousands of generated cases through the code that runs in the workers; that Spark calls this code as it is
called here is what the tests with a session show.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock
from penstock.cql.declarations import plan_of_text
from penstock.hosts.spark import checkpoint, shard
from penstock.hosts.spark.gather import Gather
from penstock.hosts.spark.job import Job, RunQuery, Source, parts_of, reads
from penstock.hosts.spark.scatter import Scatter
from penstock.ingest.streams import StreamInput
from penstock.plan.answers import answer_schema
from penstock.plan.optimize import optimize
from penstock.rows.given import as_table
from tests.generated.language import Case, Row
from tests.generated.running import comparable

Rows = Mapping[str, Sequence[Row]]


def job_of(declare: str, queries: Mapping[str, str], shards: int, *, bounded: bool) -> Job:
    """The job of queries over declared streams and relations."""
    with penstock.connect(engine="reference") as db:
        db.execute(declare)
        plans = {name: optimize(plan_of_text(db.catalog, text)[0]) for name, text in queries.items()}
        read = {name for plan in plans.values() for name in reads(plan)}
        sources: list[tuple[int, Source]] = []
        for s in db.catalog.streams.values():
            if s.name in read:
                place = next(i for i, f in enumerate(s.schema) if f.name == s.timestamp_by)
                sources.append((s.position, Source(s.name, s.schema, place, s.clock, s.slack)))
        sources += [(r.position, Source(r.name, r.schema)) for r in db.catalog.relations.values() if r.name in read]
        runs = [RunQuery(name, plan, answer_schema(plan)) for name, plan in plans.items()]
    return Job(tuple(s for _, s in sorted(sources, key=lambda s: s[0])), parts_of(runs, shards), bounded)


class Processes:
    """Worker processes that take turns: what one of them remembers, the others do not."""

    def __init__(self) -> None:
        self._memories: dict[int, dict[Any, Any]] = {}

    @contextmanager
    def chosen(self, number: int) -> Iterator[None]:
        """What is done meanwhile, this process does."""
        before = dict(shard._remembered)
        shard.forget_all()
        shard._remembered.update(self._memories.get(number, {}))
        try:
            yield
        finally:
            self._memories[number] = dict(shard._remembered)
            shard.forget_all()
            shard._remembered.update(before)


class Simulated:
    """Runs the tasks of a job; ``partitions``: tasks for each source, ``seed``: in which order packets arrive."""

    def __init__(self, job: Job, beginning: Rows, *, partitions: int = 1, root: str = "", seed: int = 0) -> None:
        self._job, self._partitions, self._root = job, partitions, root
        self._random = random.Random(seed)
        self._beginning = beginning
        schemas = {q.name: q.schema for p in job.parts for q in p.queries}
        self._gather = Gather(job, schemas, next(iter(schemas.values())))
        self._is_related = not job.bounded and any(not s.is_stream for s in job.sources)
        if self._is_related:
            self.start(beginning)

    def start(self, beginning: Rows) -> None:
        """Start the streaming query, again if it has been started before, with these rows in relations."""
        relations: dict[int, dict[str, list[bytes]]] = {}
        for packet in self._packets(beginning, streams=False):
            name = self._job.sources[packet["source"]].name
            if packet["rows"] is not None:
                relations.setdefault(packet["shard"], {}).setdefault(name, []).append(packet["rows"])
        checkpoint.keep_relations(self._root, [relations], nullcontext())

    def step(self, rows: Rows, batch: int = 0) -> Counter[object]:
        """The answers of a micro-batch, or of everything."""
        if self._is_related:  # Spark has planned it
            (Path(self._root) / "offsets").mkdir(exist_ok=True)
            (Path(self._root) / "offsets" / str(batch)).touch()
        packets = list(self._packets(rows, streams=True))
        if self._job.bounded:
            packets += self._packets(self._beginning, streams=False)
        self._random.shuffle(packets)
        found: Counter[object] = Counter()
        for number in range(self._job.shards):
            mine = pa.RecordBatch.from_pylist([p for p in packets if p["shard"] == number], schema=_PACKETS)
            where = None if self._job.bounded else (self._root, batch)
            for answers in self._gather.answer(iter([mine]), number, where):
                columns = [c.to_pylist() for c in answers.columns]
                if "op" not in answers.schema.names:  # then Spark adds it
                    columns.insert(1, ["+"] * answers.num_rows)
                found.update(tuple(comparable(v) for v in row) for row in zip(*columns, strict=True))
        return found

    def _packets(self, rows: Rows, *, streams: bool) -> Iterator[dict[str, Any]]:
        for i, source in enumerate(self._job.sources):
            if source.is_stream != streams:
                continue
            mine = list(rows.get(source.name, ()))
            size = max(1, -(-len(mine) // self._partitions))
            for task in range(self._partitions):
                table = as_table(mine[task * size : (task + 1) * size], source.schema, source.name)
                for packets in Scatter(self._job, i).pack(iter(table.to_batches()), task):
                    yield from packets.to_pylist()


_PACKETS = pa.schema([
    ("shard", pa.int32()), ("source", pa.int32()), ("task", pa.int32()), ("number", pa.int32()),
    ("newest", pa.int64()), ("rows", pa.binary()),
])  # fmt: skip


def without_late(case: Case) -> Case:
    """The case without the rows that are late in the order in which they stand."""
    streams: dict[str, list[Row]] = {}
    with penstock.connect(engine="reference") as db:
        db.execute(case.declare)
        for name, rows in case.streams.items():
            gate = StreamInput(db.catalog.stream(name), lambda: 0)
            streams[name] = []
            for row in rows:
                before = gate.late.count
                gate.push([row])
                if gate.late.count == before:
                    streams[name].append(row)
    return Case(case.declare, case.query, streams, [], case.beginning)
