"""What the tasks of a micro-batch are told, and what they say back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import penstock.model.errors as errors
from penstock.graph.programs import Counts
from penstock.hosts.durable.forms import Division
from penstock.hosts.meter import Sample
from penstock.hosts.spark.job import Split, split_of
from penstock.ingest.files import Span
from penstock.model.batch import Instant
from penstock.model.errors import PenstockError, QueryFailed
from penstock.operators.base import StateSize
from penstock.plan.nodes import Query, reads_streams, relation_scans
from penstock.storage.log import Place

Base = tuple[int, str]
"""A stored state: the number of its micro-batch, and the attempt at it that counts."""


@dataclass(frozen=True)
class Frame:
    """An entry of the log of a stream or relation: its number, where it is, how many rows it gives (of them so many
    prioritised ones), and how far the stream is after it. ``spans``: rows in files whose turn comes with it; then these
    numbers are about right.

    ``urgent``: how many prioritised rows came with it and wait for slack; ``held``: the files that such rows are in, if
    they are in files. ``waited``: how many of the ``prioritised`` rows came with an earlier entry. ``division``: where
    the rows of each slot are."""

    number: int
    kind: Literal["rows", "changes"]
    place: Place
    rows: int
    prioritised: int = 0
    progress: Instant = 0
    closed: bool = False
    spans: tuple[Span, ...] = ()
    urgent: int = 0
    held: tuple[Span, ...] = ()
    waited: int = 0
    division: Division | None = None

    @property
    def fresh(self) -> int:
        """How many prioritised rows came with it."""
        return self.prioritised - self.waited + self.urgent

    def within(self, most: int) -> Frame:
        """The same, without its content if that has more bytes than this."""
        return self if len(self.place.content) <= most else replace(self, place=self.place._replace(content=b""))

    @property
    def furthest(self) -> Instant:
        """None of its rows is later, where they are in files or divided."""
        if self.division is not None:
            return self.division.last
        return max((span.furthest for span in self.spans), default=-math.inf)


def live_split(plan: Query) -> Split:
    """How a query is spread over slots; rows of a relation need a key for it."""
    if not reads_streams(plan):
        return Split(None, "relations alone: each change is an instant for all of it")
    split = split_of(plan)
    if split.anywhere and relation_scans(plan):
        return Split(None, "the rows of a stored relation have no key here")
    return split


@dataclass(frozen=True)
class Assigned:
    """A query in a micro-batch. ``slot``: where it runs, None: in all. It reads entries from number ``start`` on.

    ``origin``: the part, and the state of this slot there, that it goes on from, if that is not the state before this
    micro-batch. ``ahead``: it has had the prioritised rows of entries up to this number.
    """

    id: str
    slot: int | None
    start: int
    origin: tuple[int, Base] | None = None
    ahead: int = 0


@dataclass(frozen=True)
class Moved:
    """What a query in a part has that the others have not: see ``Assigned``; ``origin`` has the states of all slots."""

    start: int
    origin: tuple[int, Mapping[int, Base]] | None
    ahead: int


@dataclass(frozen=True)
class Task:
    """The share of one slot in a micro-batch of a part.

    ``version`` is the number of the micro-batch, ``base`` the state that it goes on from. ``program`` names the file
    that lists the queries; ``moved`` has what is particular to some of them. ``forget``: what only micro-batches with
    lower numbers need is removed. ``careful``: entry by entry, because a query fails on one of them; ``verdicts``:
    queries that end before an entry.
    """

    root: str
    part: int
    slot: int
    slots: int
    version: int
    base: Base | None
    program: str
    frames: Mapping[str, Sequence[Frame]]
    """By name of the stream or relation, in order."""
    early: Mapping[str, Sequence[Frame]] = field(default_factory=dict)
    """Frames of streams of which prioritised rows are taken before their turn: of later frames all, of those in
    ``frames`` the ones that wait for slack."""
    start: int = 0
    ahead: int = 0
    moved: Mapping[str, Moved] = field(default_factory=dict)
    forget: int | None = None
    careful: bool = False
    verdicts: Mapping[str, int] = field(default_factory=dict)
    session: str = ""
    """Of which opening of the directory it is. Another directory may have been there before, under the same name: what
    a process remembers of its files is no use."""

    def assigned(self, program: Mapping[str, int | None]) -> dict[str, Assigned]:
        """The queries that have a share in this slot."""
        found: dict[str, Assigned] = {}
        for id, slot in program.items():
            if slot is not None and slot != self.slot:
                continue
            own = self.moved.get(id)
            if own is None:
                found[id] = Assigned(id, slot, self.start, None, self.ahead)
                continue
            origin = None if own.origin is None else (own.origin[0], own.origin[1][self.slot])
            found[id] = Assigned(id, slot, own.start, origin, own.ahead)
        return found

    @cached_property
    def numbers(self) -> list[int]:
        """The numbers of its entries, ascending."""
        return sorted({f.number for frames in self.frames.values() for f in frames})

    @property
    def rows(self) -> int:
        """Rows and changes of all frames."""
        return sum(f.rows for frames in self.frames.values() for f in frames)


@dataclass(frozen=True)
class Failure:
    """Why a query failed: the error as it was, or its text where it cannot be sent. ``entry``: on which entry, 0 if
    that is not known."""

    kind: str
    message: str
    hint: str | None = None
    entry: int = 0


def failure_of(error: Exception, entry: int = 0) -> Failure:
    """An error as it is sent."""
    if isinstance(error, PenstockError):
        known = next(kind for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
        return Failure(known.__name__, error.message, error.hint, entry)
    return Failure("", f"{type(error).__name__}: {error}", None, entry)


def raised(failure: Failure) -> Exception:
    """The error that a worker met, as one of this process."""
    kind = getattr(errors, failure.kind, None) if failure.kind else None
    if isinstance(kind, type) and issubclass(kind, PenstockError):
        return kind(failure.message, hint=failure.hint)
    return QueryFailed(failure.message)


@dataclass(frozen=True)
class Given:
    """Answers of one query from one slot: the bytes, or the file that has them, how many, and their checksum."""

    rows: int
    size: int
    payload: bytes = b""
    file: str = ""
    crc: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a micro-batch gave for one query in one slot."""

    given: Given | None = None
    ended: bool = False
    failures: int = 0
    last_failure: str | None = None
    error: Failure | None = None
    seconds: float = 0.0
    sizes: Mapping[str, StateSize] = field(default_factory=dict)
    counts: Sequence[Counts] = ()
    """What its operators have counted in the micro-batch."""
    sample: Sample | None = None
    """The instants of its answers, as far as they are measured."""

    @property
    def rows(self) -> int:
        return 0 if self.given is None else self.given.rows


@dataclass(frozen=True)
class Spent:
    """Seconds of a slot: for getting its state, reading entries, finding its rows among them, the operators, and for
    storing answers and state."""

    opening: float
    reading: float
    splitting: float
    working: float
    answering: float
    storing: float

    @property
    def seconds(self) -> float:
        """All of them."""
        return self.opening + self.reading + self.splitting + self.working + self.answering + self.storing


@dataclass(frozen=True)
class Report:
    """What a slot did, and the state that it left. ``missed``: its process did not remember the state that it goes on
    from, but an earlier one, from which it caught up, or none, and it was loaded."""

    slot: int
    version: int
    attempt: str
    outcomes: Mapping[str, Outcome]
    rows: int
    spent: Spent
    written: int
    missed: Literal["", "caught up", "loaded"] = ""


@dataclass(frozen=True)
class Trouble:
    """Why a slot could not do its share, if it could say so: the files, not a query, are to blame."""

    slot: int
    version: int
    failure: Failure
