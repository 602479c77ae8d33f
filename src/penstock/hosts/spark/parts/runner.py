"""A query of a database on Spark, as the database holds it: what it was given at its start, and answers that wait."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.graph.answers import answers_as_table, ordered
from penstock.graph.programs import Counts
from penstock.graph.statistics import Statistics
from penstock.hosts.host import QuerySettings
from penstock.hosts.meter import Meter
from penstock.hosts.results import Filed
from penstock.hosts.spark.job import Split
from penstock.hosts.spark.parts.slot import read_answers
from penstock.hosts.spark.parts.task import Moved, live_split
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.delta import concat
from penstock.model.errors import StorageError
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query, declared_scans
from penstock.storage.objects import joined

if TYPE_CHECKING:
    from penstock.hosts.spark.parts.host import SparkHost
    from penstock.hosts.spark.parts.part import Part


_AHEAD = 64 << 20
"""Bytes of answers of a query that are kept in memory before their reader asks for them."""


@dataclass(frozen=True)
class Content:
    """Answers of one slot: their bytes, or the file that has them, which is read when they are asked for; how many
    bytes these are, and the checksum that they must have."""

    size: int
    crc: int
    data: pa.Buffer | None = None
    file: str = ""


@dataclass
class Stored(Filed):
    """Answers as the slots have written them: by micro-batch, in order. They are read when a reader asks for them, or
    while one waits for what follows."""

    batches: tuple[tuple[Content, ...], ...]
    rows: int
    tables: list[pa.Table] | None = None
    """The answers, if ``prepare`` has read them; they stay until every reader has them."""

    def __len__(self) -> int:
        return self.rows

    @cached_property
    def record(self) -> list[Any] | None:
        """The number of answers, and file, checksum and bytes of each slot's, by micro-batch."""
        if not all(content.file for batch in self.batches for content in batch):
            return None
        return [self.rows, [[[c.file, c.crc, c.size] for c in batch] for batch in self.batches]]


class SparkRunner:
    """The database's side of one query. The operators are in the slots."""

    def __init__(self, host: SparkHost, plan: Query, schema: pa.Schema, settings: QuerySettings) -> None:
        self.plan, self.schema, self.settings = plan, schema, settings
        self._host = host
        self.id = ""
        """By which tasks know it; once it has begun."""
        self.number = 0
        """What tells its query from others of its name."""
        self.changes: dict[str, list[Change]] = {}
        self.rows: dict[str, Sequence[Batch]] = {}
        self.starting: dict[str, Instant] = {}
        self.slot: int | None = None
        """The slot that it has to itself; None: it is in all."""
        self.priority = 5
        self.latency: int | None = None
        """Ticks after which it is to answer at the latest."""
        self.suspended = False
        self.part: Part | None = None
        """Where it is worked on; None when it is over."""
        self.started = False
        """Whether a micro-batch has had it."""
        self.moved: Moved | None = None
        """From where it reads, if that is not where its part is."""
        self.apart = False
        """It was found to make others wait."""
        self.ended = False
        self.failures = 0
        self.last_failure: str | None = None
        self.reported: dict[int, Mapping[str, StateSize]] = {}
        self.stats: list[Statistics] = []
        """What slots have counted since the directory was opened, for each of its operators in the order in which a
        graph makes them."""

    @cached_property
    def reads(self) -> frozenset[str]:
        """The streams and relations whose logs it reads."""
        return frozenset(scan.name for scan in declared_scans(self.plan))

    @cached_property
    def split(self) -> Split:
        """How it is spread over slots."""
        return live_split(self.plan)

    # What a query is given before its first entry.

    def push(self, stream: str, batches: Sequence[Batch]) -> None:
        self.rows[stream] = batches

    def change(self, relation: str, changes: Sequence[Change]) -> None:
        self.changes.setdefault(relation, []).extend(changes)

    def progress(self, stream: str, at: Instant) -> None:
        self.starting[stream] = at

    def run(self) -> None:
        """Answers come from micro-batches."""

    def measure(self, meter: Meter, answers: Stored, delivered: float, began: float) -> None:
        """Micro-batches measure their answers: ``Part``."""

    def together(self, answers: Sequence[Stored | pa.Table]) -> Stored | pa.Table:
        stored = [a for a in answers if isinstance(a, Stored)]
        if len(stored) < len(answers):
            return self.table(answers)
        return Stored(tuple(b for some in stored for b in some.batches), sum(map(len, stored)))

    def table(self, answers: Sequence[Stored | pa.Table]) -> pa.Table:
        """Answers as they are delivered; those from before a restart are tables already."""
        tables: list[pa.Table] = []
        for some in answers:
            if not isinstance(some, Stored):
                tables.append(some)
                continue
            tables += self._read(some) if some.tables is None else some.tables
        if not tables:
            return self.schema.empty_table()
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def stored(self, files: Sequence[Any]) -> Stored:
        rows, batches = files
        return Stored(tuple(tuple(self._host.filed(*of_slot) for of_slot in batch) for batch in batches), rows)

    def prepare(self, answers: Sequence[Stored | pa.Table]) -> None:
        """Read answers before their reader asks for them, the first ``_AHEAD`` bytes. Without the lock: another thread
        may have had them meanwhile, and their files may be gone. What cannot be read is left to the reader."""
        room = _AHEAD
        for some in answers:
            if isinstance(some, Stored):
                room -= self.size(some)
                if room < 0:
                    return
                if some.tables is None:
                    with contextlib.suppress(StorageError):
                        some.tables = self._read(some)

    def _read(self, some: Stored) -> list[pa.Table]:
        deltas = [ordered(read_answers(self.plan.schema, list(map(self._bytes, b)))) for b in some.batches]
        if len(deltas) > 1 and len(some) < 1_000 * len(deltas):
            deltas = [concat(deltas)]
        return [answers_as_table(d, self.schema, self.plan) for d in deltas]

    def _bytes(self, content: Content) -> pa.Buffer:
        data = self._host.answers(content.file) if content.data is None else content.data
        if zlib.crc32(data) != content.crc:
            raise StorageError(
                f"{joined(self._host.root, content.file)}: damaged, the checksum of these results is not what was "
                "written",
                hint="`penstock check` says what else is damaged; restore the directory from a backup",
            )
        return data

    def size(self, answers: Stored | pa.Table) -> int:
        if isinstance(answers, Stored):
            return sum(content.size for batch in answers.batches for content in batch)
        return int(answers.nbytes)

    def facts(self) -> Mapping[str, Any]:
        moved = self.moved
        found: dict[str, Any] = {
            "number": self.number, "part": None if self.part is None else self.part.id, "started": self.started,
            "apart": self.apart,
        }  # fmt: skip
        if moved is not None:
            found["moved"] = moved_json(moved)
        return found

    def resume(self, facts: Mapping[str, Any], failures: tuple[int, str | None], *, ended: bool) -> None:
        """Be the runner of a query that had come so far before a restart."""
        self.number, self.started, self.apart = facts["number"], facts.get("started", True), facts.get("apart", False)
        self.moved = moved_again(facts["moved"]) if "moved" in facts else None
        self.failures, self.last_failure = failures
        self.ended = ended

    def delivered(
        self, answers: Sequence[Stored | pa.Table], upto: int | None, notes: Mapping[str, object] | None = None
    ) -> None:
        if upto is not None:
            self._host.delivered(self, upto, notes)

    def written(self) -> None:
        self._host.written()

    def forget(self, answers: Sequence[Stored | pa.Table]) -> None:
        pass  # what is in files goes when the state is saved

    def count(self, slots: Sequence[Sequence[Counts]]) -> None:
        """The operators of each slot have counted so much more in a micro-batch."""
        now = time.perf_counter_ns()
        for counts in slots:
            if len(self.stats) != len(counts):
                self.stats = [Statistics() for _ in counts]
            for stats, (calls, came, left, busy) in zip(self.stats, counts, strict=True):
                stats.add(calls, came, left, busy, now)

    def sizes(self) -> dict[str, StateSize]:
        found: dict[str, StateSize] = {}
        for sizes in self.reported.values():
            for name, size in sizes.items():
                found[name] = found.get(name, StateSize(0, 0)) + size
        return found

    def close(self) -> None:
        self._host.end(self)


def moved_json(moved: Moved) -> dict[str, Any]:
    """As JSON has it."""
    origin = moved.origin
    return {
        "start": moved.start, "ahead": moved.ahead,
        "origin": None if origin is None else [origin[0], bases_json(origin[1])],
    }  # fmt: skip


def moved_again(stored: Mapping[str, Any]) -> Moved:
    """What ``moved_json`` had."""
    origin = stored["origin"]
    return Moved(stored["start"], None if origin is None else (origin[0], bases_again(origin[1])), stored["ahead"])


def bases_json(bases: Mapping[int, tuple[int, str]]) -> list[list[Any]]:
    """The states of slots, as JSON has them."""
    return [[slot, *base] for slot, base in sorted(bases.items())]


def bases_again(stored: Sequence[Sequence[Any]]) -> dict[int, tuple[int, str]]:
    """What ``bases_json`` had."""
    return {slot: (version, attempt) for slot, version, attempt in stored}
