"""Playing what a script says into a database."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.database.database import Database
from penstock.model.errors import InputError
from penstock.rows.times import to_instant
from penstock.testing.clock import Clock, shown
from penstock.testing.steps import Fail, Push, Step

Batches = int | str | random.Random | None
"""How rows are put together: at most so many in a push; ``"random"`` or a ``Random``: cut and mixed at random, each
stream in its own order; None: as many as can be."""


@dataclass(frozen=True)
class Moment:
    """Something that arrives: ``at`` when, None before everything that says when. A row is a table of one row.

    ``timed``: the script says that it is that time then, on the clock.
    """

    at: int | None
    step: Step
    stream: str | None = None
    timed: bool = False


class Player:
    """Plays what a script says, once, from its beginning to its end.

    A push that is refused is tried again by the next call; an error that the script says is not.
    """

    def __init__(self, db: Database, moments: Sequence[Moment], batch: Batches) -> None:
        self._db, self._moments, self._batch = db, list(moments), _checked(batch)
        self._next = 0
        self._due: list[Moment] = []
        """Pushes that have been put together and not been made."""
        stamped = any(s.timestamp_by is None and not s.derived for s in db.catalog.streams.values())
        self._clock = db.clock if isinstance(db.clock, Clock) else None
        self._by_time = stamped and self._clock is not None
        """The clock decides about instants: what arrives at different times is pushed apart."""

    @property
    def done(self) -> bool:
        """Nothing is left."""
        return not self._due and self._next == len(self._moments)

    def step(self) -> Step | None:
        """Let the next row, or whatever is next, arrive; gives it, or None at the end."""
        if self.done:
            return None
        if not self._due:
            self._due = [self._moments[self._next]]
            self._next += 1
        moment = self._due[0]
        self._do_due(1)
        return moment.step

    def until(self, at: object) -> None:
        """Play what arrives until an instant, included; then it is that time."""
        last = to_instant(at)
        later = (i for i, m in enumerate(self._moments) if i >= self._next and m.at is not None and m.at > last)
        self._play(next(later, len(self._moments)))
        if self._clock is not None and self._clock() < last:
            self._clock.set(last)
        self._db.heartbeat()

    def rest(self) -> None:
        """Play all that is left."""
        self._play(len(self._moments))

    def _play(self, end: int) -> None:
        self._do_due(len(self._due))
        while self._next < end:
            first, stop = self._moments[self._next], self._next + 1
            while stop < end and self._together(first, self._moments[stop]):
                stop += 1
            found, self._next = self._moments[self._next : stop], stop
            self._due = self._arranged(found)
            self._do_due(len(self._due))

    def _together(self, first: Moment, other: Moment) -> bool:
        return first.stream is not None and other.stream is not None and not (self._by_time and first.at != other.at)

    def _arranged(self, rows: Sequence[Moment]) -> list[Moment]:
        """Rows of several streams as pushes; anything else is alone, and stays as it is."""
        if rows[0].stream is None:
            return list(rows)
        streams: dict[str, list[Moment]] = {}
        for row in rows:
            streams.setdefault(str(row.stream), []).append(row)
        if isinstance(self._batch, random.Random):
            return _mixed(streams, self._batch)
        if self._batch is None:
            return [_one(found) for found in streams.values()]
        place = {id(row): i for i, row in enumerate(rows)}
        chunks = [
            found[i : i + self._batch] for found in streams.values() for i in range(0, len(found), self._batch)
        ]
        return [_one(chunk) for chunk in sorted(chunks, key=lambda c: place[id(c[-1])])]

    def _do_due(self, count: int) -> None:
        for _ in range(count):
            moment = self._due[0]
            if moment.at is not None and self._clock is not None:
                if self._clock() < moment.at:
                    self._clock.set(moment.at)
                elif moment.timed and self._clock() > moment.at:
                    what = "a time" if moment.stream is None else f"when rows of `{moment.stream}` arrive"
                    raise InputError(
                        f"the script says {what}, {shown(moment.at)}, and the clock is at {shown(self._clock())}",
                        hint=f"begin before that: script.open(clock=Clock({_written(moment.at)}))",
                    )
            if not isinstance(moment.step, Fail):
                moment.step.do(self._db)
            self._due.pop(0)
            if isinstance(moment.step, Fail):
                moment.step.do(self._db)


def _checked(batch: Batches) -> int | random.Random | None:
    if batch == "random":
        return random.Random(0)
    if batch is None or isinstance(batch, random.Random):
        return batch
    if isinstance(batch, int) and not isinstance(batch, bool) and batch >= 1:
        return batch
    raise InputError(f"batch is {batch!r}", hint="give a number of rows, 'random', a random.Random, or None")


def _one(rows: Sequence[Moment]) -> Moment:
    """Rows of one stream as one push."""
    if len(rows) == 1:
        return rows[0]
    tables = [row.step.rows for row in rows if isinstance(row.step, Push)]
    timed = any(row.timed for row in rows)
    return Moment(rows[-1].at, Push(str(rows[0].stream), pa.concat_tables(tables)), rows[0].stream, timed)


def _written(at: int) -> str:
    """An instant as a test writes it."""
    text = shown(at)
    return str(at) if text.endswith("1970") else repr(text)


def _mixed(streams: dict[str, list[Moment]], chance: random.Random) -> list[Moment]:
    """Rows cut into pushes at random, the streams mixed at random, each in its own order."""
    left = [list(found) for found in streams.values()]
    pushes = []
    while left:
        found = chance.choice(left)
        size = chance.randint(1, len(found))
        pushes.append(_one(found[:size]))
        del found[:size]
        left = [some for some in left if some]
    return pushes
