"""Scripted sources: what arrives on several streams, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pandas as pd

from penstock.cql.splitting import split
from penstock.database.database import Database
from penstock.database.play import input_name
from penstock.kernels.buffers import integers
from penstock.model.errors import InputError
from penstock.rows.given import as_table, frame_as_table
from penstock.rows.times import to_instant
from penstock.testing.clock import Clock, Duration, to_ticks
from penstock.testing.opening import connect
from penstock.testing.player import Batches, Moment, Player
from penstock.testing.steps import Call, ClockAt, Close, Fail, Heartbeat, Push, Statement, Step, read_step


@dataclass(frozen=True)
class _Entry:
    """A step as it was written: ``at`` its time of arrival, if said; ``follows``: it comes after the one before it."""

    step: Step
    at: int | None = None
    every: int = 0
    delay: int = 0
    follows: bool = False


class Script:
    """Rows, heartbeats and ends of streams on one time line.

    A row with a timestamp of its own arrives at that instant, or together with the row of its stream that was written
    before it, if that comes later: rows of a stream arrive in the order in which they are written. With ``delay`` they
    come so much later and others come first; with ``at`` they come then, and the next ``every`` so much later. What
    says no time comes with what was written before it.

    ``declare`` are statements that ``open`` runs. A script can be played as often as one likes; it grows only by what
    is written into it.
    """

    def __init__(self, declare: str = "") -> None:
        self.declare = declare
        self._entries: list[_Entry] = []

    @classmethod
    def read(cls, text: str) -> Script:
        """A script from statements that end with ``;`` and steps of one line each, see ``penstock.testing.steps``.

        Everything happens in the order in which it is written; CREATE statements are the declarations.
        """
        script = cls()
        pending = ""
        for line in text.splitlines():
            if not pending and (not line.strip() or line.strip().startswith("--")):
                continue
            if not pending and _is_step(line.strip()):
                script._add(read_step(line.strip()), follows=True)
                continue
            statements, pending = split(f"{pending}{line}\n")
            for statement in statements:
                if statement.lstrip().upper().startswith("CREATE") and not script._entries:
                    script.declare += statement
                else:
                    script._add(Statement(statement), follows=True)
            pending = pending if pending.strip() else ""
        if pending:
            raise InputError(f"the statement `{pending.strip().splitlines()[0]}` does not end", hint="it needs a ;")
        return script

    # -- writing ------------------------------------------------------------------------------------

    def rows(
        self, name: str, rows: object, *, at: object = None, every: Duration = 0, delay: Duration = 0
    ) -> Script:
        """Rows for a stream or relation, in whatever form ``push`` takes them; as they are now, even if they change."""
        if at is None and every:
            raise InputError("`every` goes with `at`", hint="say when the first row arrives")
        if to_ticks(every) < 0:
            raise InputError(f"`every` is {every!r}, and time does not go back", hint="write the rows in another order")
        return self._add(Push(name, _copied(rows)), at, to_ticks(every), to_ticks(delay))

    def heartbeat(self, stream: str, promise: object, *, at: object = None) -> Script:
        """No more rows before ``promise``; it arrives at that instant, or ``at`` another."""
        return self._add(Heartbeat(stream, promise), at)

    def close(self, stream: str, *, at: object = None) -> Script:
        """The end of a stream, right after all that was written for it, or ``at`` an instant."""
        return self._add(Close(stream), at)

    def execute(self, text: str, *, at: object = None) -> Script:
        """Run a statement."""
        return self._add(Statement(text), at)

    def call(self, function: Callable[[Database], object], *, at: object = None) -> Script:
        """Call a function with the database, for example to look at something."""
        return self._add(Call(function), at)

    def clock(self, at: object) -> Script:
        """Let the clock be at an instant, though nothing arrives."""
        return self._add(ClockAt(at), at)

    def fail(self, error: BaseException | type[BaseException], *, at: object = None) -> Script:
        """The source fails: playing raises this. A player can go on behind it."""
        return self._add(Fail(error if isinstance(error, BaseException) else error()), at)

    def _add(
        self, step: Step, at: object = None, every: int = 0, delay: int = 0, *, follows: bool = False
    ) -> Script:
        self._entries.append(_Entry(step, None if at is None else to_instant(at), every, delay, follows))
        return self

    # -- playing ------------------------------------------------------------------------------------

    def open(self, engine: str | None = None, *, clock: Clock | None = None, **settings: Any) -> Database:
        """A database with a simulated clock in which everything is declared; see ``penstock.testing.connect``."""
        db = connect(engine=engine, clock=clock, **settings)
        if self.declare.strip():
            db.execute(self.declare)
        return db

    def player(self, db: Database, *, batch: Batches = None) -> Player:
        """Something that plays the script step by step. What it plays must be declared."""
        return Player(db, _moments(db, self._entries), batch)

    def play(self, db: Database, *, batch: Batches = None, until: object = None, close: bool = False) -> Player:
        """Play everything, or what arrives ``until`` an instant (included); the player goes on from there.

        ``close``: then close all streams, so that every answer is there.
        """
        player = self.player(db, batch=batch)
        if until is None:
            player.rest()
        else:
            player.until(until)
        if close:
            for stream in list(db.catalog.streams.values()):
                if not stream.derived:
                    db.close_stream(stream.name)
        return player

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Script of {len(self._entries)} entries>"


def _moments(db: Database, entries: Sequence[_Entry]) -> list[Moment]:
    """What the entries say, in the order in which it arrives."""
    found: list[Moment] = []
    reached: dict[str, int] = {}
    """How far a stream is, of what was written without a delay."""
    latest: dict[str, int] = {}
    last: int | None = None
    for entry in entries:
        step, at = entry.step, entry.at
        match step:
            case Push(given):
                name = input_name(db.catalog, given)
                whens, moments = _arrivals(db, entry, last, reached)
                found += moments
                known = [w for w in whens if w is not None]
                last = whens[-1] if whens else last
                if known:
                    latest[name] = max(latest.get(name, known[-1]), *known)
                continue
            case Heartbeat(given, promise) if at is None and not entry.follows:
                stream = input_name(db.catalog, given)
                at = reached[stream] = max(to_instant(promise), reached.get(stream, to_instant(promise)))
                latest[stream] = max(latest.get(stream, at), at)
            case Close(given) if at is None and not entry.follows:
                at = latest.get(input_name(db.catalog, given), last)
            case ClockAt(when):
                at = to_instant(when)
        last = last if at is None else at
        found.append(Moment(last, step, timed=isinstance(step, ClockAt)))
    return sorted(found, key=lambda m: -(2**62) if m.at is None else m.at)


def _arrivals(
    db: Database, entry: _Entry, last: int | None, reached: dict[str, int]
) -> tuple[list[int | None], list[Moment]]:
    """When the rows of an entry arrive, and the moments of it."""
    assert isinstance(entry.step, Push)
    name = input_name(db.catalog, entry.step.name)
    if name in db.catalog.relations:
        at = last if entry.at is None else entry.at
        return [at], [Moment(at, Push(name, entry.step.rows, entry.at))]
    stream = db.catalog.streams[name]
    table = as_table(entry.step.rows, stream.schema, f"script, stream `{name}`", time=stream.time)
    n = table.num_rows
    whens: list[int | None]
    if entry.at is not None:
        if stream.timestamp_by is None and not isinstance(db.clock, Clock):
            raise InputError(
                f"the script says when rows of `{name}` arrive, and the database goes by the wall clock",
                hint="open it with connect(clock=Clock())",
            )
        whens = [entry.at + i * entry.every for i in range(n)]
    elif stream.timestamp_by is None or entry.follows:
        whens = [last] * n
    else:
        if table[stream.timestamp_by].null_count:
            raise InputError(f"script, stream `{name}`: the timestamp `{stream.timestamp_by}` of a row is NULL")
        own = [int(t) + entry.delay for t in integers(table[stream.timestamp_by].combine_chunks())]
        known = [reached[name]] if name in reached and not entry.delay else []
        in_order = list(accumulate([*known, *own], max))[len(known) :]
        if in_order and not entry.delay:
            reached[name] = in_order[-1]
        whens = [*in_order]
    timed = entry.at is not None and stream.timestamp_by is None
    return whens, [Moment(when, Push(name, table.slice(i, 1)), name, timed) for i, when in enumerate(whens)]


def _copied(rows: object) -> object:
    """Rows that do not change when those of the caller do."""
    if frame_as_table(rows) is not None:  # of these, only a DataFrame of pandas can change
        return rows.copy() if isinstance(rows, pd.DataFrame) else rows
    return deepcopy(list(rows) if isinstance(rows, Iterator) else rows)


def _is_step(line: str) -> bool:
    head = line.split(None, 1)[0]
    return head.endswith(":") or head == "clock"
