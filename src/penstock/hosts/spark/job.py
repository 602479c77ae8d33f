"""What the workers are sent: what is read, what is run, and how rows are split over shards.

Shards are numbered through all parts of a job: shard ``i`` of the job is the Spark partition ``i`` behind the shuffle.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from penstock.model.schema import Clock, Schema
from penstock.plan.derive import partitioning
from penstock.plan.nodes import Query, declared_scans
from penstock.plan.reading import remembers_nothing
from penstock.rows.apart import OnError
from penstock.storage.versions import fingerprint, folded_name

Columns = tuple[int, ...]


@dataclass(frozen=True)
class FileColumn:
    """A column that is read: its name in the files, and its type as Spark would give it."""

    name: str
    type: pa.DataType


@dataclass(frozen=True)
class Source:
    """A DataFrame that is read, with the columns that some query needs.

    ``timestamp``: the place of the column that says when a row happened; None for a relation.
    """

    name: str
    schema: Schema
    timestamp: int | None = None
    clock: Clock = "timestamp"
    slack: int = 0
    on_error: OnError = "refuse"
    files: tuple[FileColumn, ...] | None = None
    """What is read of Parquet files, where paths come in the place of rows."""

    @property
    def is_stream(self) -> bool:
        return self.timestamp is not None


@dataclass(frozen=True)
class RunQuery:
    """A query as workers run it. ``schema``: of its answers, as Penstock has them. ``text``: for people."""

    name: str
    plan: Query
    schema: pa.Schema
    text: str = ""


@dataclass(frozen=True)
class Split:
    """How a query's sources are split; ``keys`` is None where they are not, and ``reason`` says why.

    ``anywhere``: no two rows meet, so any split will do.
    """

    keys: Mapping[str, Columns] | None
    reason: str = ""
    anywhere: bool = False


@dataclass(frozen=True)
class Part:
    """Queries whose sources are split alike, over the shards ``first`` … ``first + shards - 1``."""

    queries: tuple[RunQuery, ...]
    split: Split
    first: int
    shards: int

    @cached_property
    def reads(self) -> frozenset[str]:
        """The sources that some query of the part reads."""
        return frozenset(name for q in self.queries for name in reads(q.plan))

    @cached_property
    def remembers_nothing(self) -> bool:
        """Whether every query answers each row by itself."""
        return all(remembers_nothing(q.plan) for q in self.queries)


@dataclass(frozen=True)
class Job:
    """Everything a worker needs to know.

    ``bounded``: all rows come at once and the streams end. ``idle``: an input that is further than this behind the
    furthest is taken to be that far; None: the others wait for it.
    """

    sources: tuple[Source, ...]
    parts: tuple[Part, ...]
    bounded: bool
    idle: int | None = None
    strict: bool = False
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of this very job: two with the same fingerprint may differ in what their functions do."""

    @property
    def shards(self) -> int:
        return sum(p.shards for p in self.parts)

    @cached_property
    def only_new(self) -> bool:
        """Whether every answer is marked ``+``, so that Spark writes the mark itself."""
        return all(q.plan.output != "changes" for p in self.parts for q in p.queries)

    def reads_later(self, source: Source) -> bool:
        """Whether rows of files are read where they are answered, and not before: nobody keeps one of them."""
        readers = [p for p in self.parts if source.name in p.reads]
        return source.files is not None and all(p.remembers_nothing for p in readers)

    @cached_property
    def side_by_side(self) -> bool:
        """Whether tasks need not tell each other anything: every stream is read later, by shards of one part."""
        return (
            not self.bounded
            and len(self.parts) == 1
            and self.parts[0].shards > 1
            and all(s.is_stream and self.reads_later(s) for s in self.sources)
        )

    def part_of(self, shard: int) -> Part:
        """The part that a shard belongs to."""
        return next(p for p in self.parts if p.first <= shard < p.first + p.shards)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for jobs that can go on from each other's state."""
        facts = [
            [
                [s.name, [[folded_name(f.name), str(f.type)] for f in s.schema], s.timestamp, s.slack]
                for s in self.sources
            ],
            [[p.first, p.shards, [[q.name, fingerprint(q.plan)] for q in p.queries]] for p in self.parts],
            self.idle,
        ]
        return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()


def reads(plan: Query) -> list[str]:
    """The sources of a plan, in the order of ``walk``."""
    return [scan.name for scan in declared_scans(plan)]


def split_of(plan: Query) -> Split:
    """How a query can be split. A source that is read twice must be split in one way for both."""
    found = partitioning(plan)
    if found.keys is None:
        return Split(None, found.reason)
    if found.anywhere:
        return Split({}, anywhere=True)
    columns: dict[str, list[Columns]] = {}
    for key in found.keys:
        columns.setdefault(key.source, []).append(key.columns)
    count = len(found.keys[0].columns)
    alike = [i for i in range(count) if all(len({c[i] for c in several}) == 1 for several in columns.values())]
    if not alike:
        twice = next(name for name, several in columns.items() if len(set(several)) > 1)
        return Split(None, f"`{twice}` is read more than once, by different keys")
    return Split({name: tuple(several[0][i] for i in alike) for name, several in columns.items()})


def parts_of(queries: Sequence[RunQuery], shards: int) -> tuple[Part, ...]:
    """Queries that can be split alike share a part, so that what they read is sent once."""
    groups: list[tuple[Split, list[RunQuery]]] = []
    anywhere: list[RunQuery] = []
    for query in queries:
        split = split_of(query.plan)
        if split.anywhere:
            anywhere.append(query)
            continue
        for i, (known, members) in enumerate(groups):
            both = _united(known, split)
            if both is not None:
                groups[i] = (both, [*members, query])
                break
        else:
            groups.append((split, [query]))
    for query in anywhere:
        home = next((m for s, m in groups if s.keys is not None and set(reads(query.plan)) <= set(s.keys)), None)
        if home is not None:
            home.append(query)
            continue
        free = next((m for s, m in groups if s.anywhere), None)
        if free is not None:
            free.append(query)
        else:
            groups.append((Split({}, anywhere=True), [query]))
    parts: list[Part] = []
    first = 0
    for split, members in groups:
        count = 1 if split.keys is None else shards
        order = sorted(members, key=queries.index)
        parts.append(Part(tuple(order), split, first, count))
        first += count
    return tuple(parts)


def _united(one: Split, other: Split) -> Split | None:
    if one.keys is None or other.keys is None:
        return one if one.keys is other.keys else None
    if one.anywhere or other.anywhere or any(one.keys.get(n, c) != c for n, c in other.keys.items()):
        return None
    return replace(one, keys={**one.keys, **other.keys})
