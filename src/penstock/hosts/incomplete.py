"""What results lack, and where that is said: on each batch that is handed out, and in the description of the query.

A stretch of instants says when answers may be others than they would be with the rows that are missing. Which results
are in it follows from their instants, so it is the same for every reader, on every engine and after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FLAG, REASON = b"penstock.incomplete", b"penstock.incomplete.reason"
SINCE, UNTIL = b"penstock.incomplete.since", b"penstock.incomplete.until"
MOST = 64
"""Stretches of a query that are told apart; more become one."""


@dataclass(frozen=True)
class Incomplete:
    """Results from ``since`` to ``until``, both included, in ticks, may lack something; None: from the beginning, or
    for good. ``position``: that of the first result after rows were dropped, if it has come; results before it may be
    missing. ``reason``: what is missing, and why."""

    since: int | None
    until: int | None
    reason: str
    position: int | None = None
    latest: int | None = field(default=None, repr=False)
    """The position of the first result after the last gap that is in it."""
    after: int | None = field(default=None, repr=False)
    """Where that gap begins, until such a result has come."""

    def __str__(self) -> str:
        return self.said(str)

    def said(self, instant: Callable[[int], str]) -> str:
        """For people; ``instant``: how instants are shown."""
        since = "from the first one" if self.since is None else f"from {instant(self.since)}"
        return f"results {since} {'on' if self.until is None else f'to {instant(self.until)}'}: {self.reason}"

    def has(self, instants: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these instants are in it."""
        found = np.ones(len(instants), np.bool_)
        if self.since is not None:
            found &= instants >= self.since
        return found if self.until is None else found & (instants <= self.until)

    @property
    def places(self) -> tuple[int | None, ...]:
        """Positions of results before which others may be missing."""
        return self.position, self.latest

    def covers(self, at: float) -> bool:
        return (self.since is None or self.since <= at) and (self.until is None or at <= self.until)


def between(since: float, until: float, reason: str) -> Incomplete:
    """A stretch of instants, which may be infinite; where it begins, results may be missing."""
    begin = int(since) if math.isfinite(since) else None
    return Incomplete(begin, int(until) if math.isfinite(until) else None, reason, after=begin)


def plain(marks: Sequence[Incomplete]) -> list[dict[str, Any]]:
    """As JSON."""
    return [asdict(mark) for mark in marks]


class Marks:
    """Those of one query. Bounded by ``MOST``. Touched under the lock of the query's results."""

    def __init__(self) -> None:
        self.all: tuple[Incomplete, ...] = ()

    def add(self, new: Incomplete) -> None:
        """One more stretch, or more of one."""
        for i, known in enumerate(self.all):
            if known.reason == new.reason and _touch(known, new):
                self.all = (*self.all[:i], _joined(known, new), *self.all[i + 1 :])
                return
        self.all = (*self.all, new)
        if len(self.all) > MOST:
            first, second, *others = self.all
            self.all = (_joined(first, second), *others)

    @property
    def is_waiting(self) -> bool:
        """Whether the first result after a gap has not come."""
        return any(mark.after is not None for mark in self.all)

    def met(self, position: int, instants: npt.NDArray[np.int64]) -> None:
        """Results have come: the first after each gap is known then."""

        def met(mark: Incomplete) -> Incomplete:
            if mark.since is not None and mark.position is None:
                mark = replace(mark, position=_first(position, instants, mark.since))
            if mark.after is not None and (at := _first(position, instants, mark.after)) is not None:
                mark = replace(mark, latest=at, after=None)
            return mark

        self.all = tuple(map(met, self.all))

    def of(self, start: int, instants: npt.NDArray[np.int64]) -> list[Incomplete]:
        """Those that results from a position on have to do with."""
        stop = start + len(instants)
        return [
            mark for mark in self.all
            if bool(mark.has(instants).any()) or any(p is not None and start <= p < stop for p in mark.places)
        ]  # fmt: skip

    def flagged(self, table: pa.Table, start: int) -> pa.Table:
        """Results from a position on, with a flag in the metadata of their schema if they may lack something."""
        if not table.num_rows:
            return table
        found = self.of(start, np.asarray(table.column(0).cast(pa.int64())))
        return flagged(table, found)


def flagged(table: pa.Table, marks: Sequence[Incomplete]) -> pa.Table:
    """A table with what its rows may lack."""
    if not marks:
        return table
    said: dict[bytes, str] = {FLAG: "true", REASON: "; ".join(dict.fromkeys(mark.reason for mark in marks))}
    since, until = [mark.since for mark in marks], [mark.until for mark in marks]
    if None not in since:
        said[SINCE] = str(min(s for s in since if s is not None))
    if None not in until:
        said[UNTIL] = str(max(u for u in until if u is not None))
    return with_flag(table, {**(table.schema.metadata or {}), **{k: v.encode() for k, v in said.items()}})


def with_flag(table: pa.Table, metadata: Mapping[bytes, bytes] | None) -> pa.Table:
    """A table with what another one says of itself."""
    return table.replace_schema_metadata(metadata) if metadata else table


def _first(position: int, instants: npt.NDArray[np.int64], since: int) -> int | None:
    """The position of the first result that is not before an instant, of those from a position on."""
    found = np.flatnonzero(instants >= since)
    return position + int(found[0]) if len(found) else None


def _touch(a: Incomplete, b: Incomplete) -> bool:
    """Whether nothing is between them."""
    first, second = sorted((a, b), key=lambda mark: -math.inf if mark.since is None else mark.since)
    return first.until is None or second.since is None or second.since <= first.until + 1


def _joined(a: Incomplete, b: Incomplete) -> Incomplete:
    since = None if a.since is None or b.since is None else min(a.since, b.since)
    until = None if a.until is None or b.until is None else max(a.until, b.until)
    reasons = list(dict.fromkeys([*a.reason.split("; "), *b.reason.split("; ")]))
    places = [mark.position for mark in (a, b) if mark.position is not None]
    after = a.after if b.after is None else b.after
    return Incomplete(since, until, "; ".join(reasons), min(places, default=None), a.latest, after)
