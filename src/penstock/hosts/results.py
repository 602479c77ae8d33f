"""What a query has given: results by position, and readers that are each at a place of their own.

A result's position is its number, from 0. A reader confirms how far it is; results stay until every reader has
confirmed them. ``fetch`` and iteration are the reader ``default``, which is there from the beginning; each subscription
is another one. Beyond a bound the oldest results go: a reader that had not confirmed them is told once which are gone,
and goes on with those that are there. Nobody who pushes ever waits for a reader.

The answer as it stands is the sum of all results. Those that have gone are kept as far as later ones have not taken
them back, so ``current`` takes nothing from any reader.

The lock is held for a look at what is there, never while tables are built or results are added up: those who add up
have a turn of their own.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.hosts.host import Answers, Runner
from penstock.hosts.incomplete import Marks
from penstock.hosts.standing import Standing, Sum
from penstock.model.amounts import Bound
from penstock.model.errors import ResultsGone, StateError, StorageError
from penstock.model.names import counted
from penstock.plan.nodes import Query as Plan
from penstock.plan.order import stands

DEFAULT = "default"
"""The reader of ``fetch`` and of iterations."""
BOUND = Bound(bytes=512_000_000)
"""What is kept for readers of a query that says nothing else."""
_FEW = 64
_OVERHEAD = 1_000
"""Bytes that an entry takes besides its results."""
_UNREADABLE = 64
"""Entries that may have gone and cannot be read."""
_log = logging.getLogger("penstock")


class Filed(ABC):
    """Answers that the host has in files of its own. A saved state names the files and has no copy of the answers."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @property
    @abstractmethod
    def record(self) -> list[Any] | None:
        """The files, as JSON has them; None if some of the answers are not in a file."""


@runtime_checkable
class Filing(Protocol):
    """A runner that gives such answers."""

    def stored(self, files: Sequence[Any]) -> Filed:
        """The answers whose ``record`` this was."""


@dataclass(slots=True)
class _Entry:
    """Results that came together; ``start`` is the position of the first, ``number`` what it is saved under: how many
    results before it were saved as rows."""

    start: int
    answers: Answers
    size: int
    number: int
    table: pa.Table | None = None
    """Of one that has gone: the results as a reader had them, until they are in the answer that stands."""

    @property
    def stop(self) -> int:
        return self.start + len(self.answers)

    @property
    def record(self) -> list[Any] | None:
        """The files that have the results, if a saved state only names them."""
        return self.answers.record if isinstance(self.answers, Filed) else None

    @property
    def saved(self) -> int:
        """How many results a saved state has as rows."""
        return len(self.answers) if self.record is None else 0


@dataclass(frozen=True)
class Unread:
    """What a saved state has of results: those from position ``first`` to before ``next``. Of these it has as rows the
    ones with numbers from ``tail`` to before ``head``; the others are in ``files``, by position."""

    first: int
    next: int
    tail: int
    head: int
    files: list[tuple[int, list[Any]]]


def digests(table: pa.Table) -> list[int]:
    """A number for each result, by which to know it again in another process."""
    return [
        int.from_bytes(hashlib.blake2b(repr(tuple(row.values())).encode(), digest_size=7).digest())
        for row in table.to_pylist()
    ]


def _instants(answers: Any) -> npt.NDArray[np.int64]:
    """When results are, in ticks; where rows are dropped, results are of these kinds."""
    found: npt.NDArray[np.int64] = (
        np.asarray(answers.column(0).cast(pa.int64())) if isinstance(answers, pa.Table) else answers.ts
    )
    return found


class Results:
    """The results of one query. Calls come under its lock, except those that say so, which take it themselves.

    Bounded by: what readers have not confirmed, at most ``bound``; and twice the rows of its answer, of a query whose
    rows come and go, and of any once ``current`` was called.
    """

    def __init__(
        self, name: str, plan: Plan, runner: Runner, bound: Bound | None, lock: threading.RLock,
        default: Bound = BOUND,
    ) -> None:  # fmt: skip
        """``default``: the bound where none is given."""
        self._name, self._plan, self._runner, self._default = name, plan, runner, default
        self._bound = bound or default
        self._lock = lock
        self._adding = threading.Lock()
        """Who adds up results has it, and waits for the other lock with it; who has that one does not wait for it."""
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self._readers: dict[str, int] = {DEFAULT: 0}
        self._reading: dict[object, tuple[int, int]] = {}
        """Readers that are being given results, from where to where."""
        self._leaving: list[_Entry] = []
        """What has gone and is being read, or is not in the answer that stands yet."""
        self._small = 0  # how many of the last entries are small
        self._standing = Standing(plan) if plan.output == "changes" else None
        self._summed = 0
        """Up to where results are in the answer that stands."""
        self._summing = 0
        """Up to where results are being added to it; 0 if none are."""
        self._lost: StorageError | None = None
        """Why results that have gone were not added to it, if they could not be read."""
        self.due = False
        """Whether something has gone that is to be added to it: ``add_up``."""
        self.marks = Marks()
        """What results may lack."""
        self.first = 0
        """The position of the oldest that is there."""
        self.next = 0
        """The position that the next one gets."""
        self._number = 0
        """The number that it is saved under: see ``_Entry``."""

    def bind(self, bound: Bound | None) -> None:
        """Keep so much for readers from the next results on; None: as where nothing is said."""
        self._bound = bound or self._default

    # -- in -------------------------------------------------------------------------------------------

    def append(self, answers: Answers) -> None:
        """New results."""
        size, count = self._runner.size(answers) + _OVERHEAD, len(answers)
        self._small = min(self._small, len(self._entries))
        if self._small >= _FEW:
            self._put_together()  # before the new one, which most readers are waiting for
        entry = _Entry(self.next, answers, size, self._number)
        self._entries.append(entry)
        self._number += entry.saved
        if self.marks.all and self.marks.is_waiting:
            self.marks.met(self.next, _instants(answers))
        self.next += count
        self._bytes += size
        self._small = self._small + 1 if count < _FEW else 0
        if self._exceeded():
            self._drop_oldest()

    def restore(self, answers: Sequence[Answers], given: int) -> None:
        """Results that were given before a restart and that ``default`` has not confirmed; ``given`` in all."""
        self.next = self.first = given - sum(map(len, answers))
        self._readers[DEFAULT] = self._summed = self.first
        if self.first:
            self._standing = None  # what is gone is not known
        for some in answers:
            self.append(some)

    def unread(self, kept: Sum | None) -> Unread:
        """From the first result on that ``default`` has not confirmed, or that has gone and is not in what is ``kept``
        yet. An entry in files is there as a whole."""
        first = max(self._readers[DEFAULT], self.first)
        first = first if kept is None else min(first, kept.upto)
        found = [e for e in chain(self._leaving, self._entries) if first < e.stop]
        files = [(e.start, record) for e in found if (record := e.record) is not None]
        tail = next((e.number + max(0, first - e.start) for e in found if e.saved), self._number)
        if files and files[0][0] < first:
            first = files[0][0]
        return Unread(first, self.next, tail, self._number, files)

    def rows(self, start: int, stop: int) -> Callable[[], pa.Table]:
        """What makes a table of the results that are saved under these numbers, which are there. It may be called
        without the lock."""
        there = (e for e in chain(self._leaving, self._entries) if e.saved)
        found = [e for e in there if e.number < stop and start < e.number + e.saved]
        first, answers = found[0].number, [e.answers for e in found]
        return lambda: self._runner.table(answers).slice(start - first, stop - start)

    def files(self) -> list[list[Any]]:
        """The files that the next saved state may name. Without the lock."""
        with self._lock:
            records = (entry.record for entry in chain(self._leaving, self._entries))
            return [record for record in records if record is not None]

    def copy(self) -> None:
        """Let the next saved state have all results as rows. Without the lock."""
        with self._lock:
            there = [*self._leaving, *self._entries]
            if all(e.record is None for e in there):
                return
            for entry in there:
                if entry.record is not None:
                    entry.answers = self._runner.table([entry.answers])
                entry.number = self._number
                self._number += entry.saved

    def kept(self) -> tuple[Sum | None, int]:
        """The answer as it stands, if it is kept, and up to where results are in it."""
        return (None, self._summed) if self._standing is None else (self._standing.sum, self._standing.sum.upto)

    def places(self) -> list[int]:
        """How far ``default`` is; and where so many rows are kept, and no more, what of them goes at once."""
        stops = [] if self._bound.rows is None else [e.stop for e in self._entries]
        return [self._readers[DEFAULT], *stops]

    def restored(
        self, unread: Unread, tables: Sequence[pa.Table], files: Sequence[Answers], standing: Standing | None,
        summed: int, places: Sequence[int],
    ) -> None:  # fmt: skip
        """Be what the results of this query were: ``unread`` says what of them was saved, ``tables`` are its rows,
        ``files`` the answers that its files have, and ``standing`` is the sum of those before. ``places``: as they
        were."""
        self.first = self.next = unread.first
        self._number = unread.tail
        self._standing, self._summed = standing, summed
        reader, *stops = places
        rows = deque(tables)
        for (start, _), answers in zip(unread.files, files, strict=True):
            self._rows_again(rows, start, stops)
            self.append(answers)
        self._rows_again(rows, unread.next, stops)
        self._readers[DEFAULT] = reader
        assert (self.next, self._number, len(rows)) == (unread.next, unread.head, 0), "as many as there were"

    def _rows_again(self, rows: deque[pa.Table], upto: int, stops: Sequence[int]) -> None:
        """Take results from the tables, up to a position. Those that went at once are one entry again."""
        while self.next < upto:
            some = [rows.popleft()]
            stop = next((s for s in stops if s > self.next), None)
            stop = min(upto, self.next + some[0].num_rows if stop is None else stop)
            while (count := sum(t.num_rows for t in some)) < stop - self.next:
                some.append(rows.popleft())
            if count > stop - self.next:
                rows.appendleft(some[-1].slice(some[-1].num_rows - (count - (stop - self.next))))
            self._append_apart(pa.concat_tables(some).slice(0, stop - self.next))

    def put_first(self, rows: Sequence[int]) -> None:
        """Let results that ``default`` has not confirmed, and that have these digests, come before the others: so they
        came before a restart, where rows had overtaken others. Without the lock."""
        with self._lock:
            start = max(self._readers[DEFAULT], self.first, self._summed)
            if start == self.next:
                return
            table = self._runner.table([e.answers for e in self._entries])
            wanted = Counter(rows)
            chosen, others = list(range(start - self.first)), list[int]()
            for i, digest in enumerate(digests(table.slice(start - self.first)), start - self.first):
                (chosen if wanted[digest] > 0 else others).append(i)
                wanted[digest] -= 1
            self._entries.clear()
            self._bytes = self._small = 0
            self.next = self.first
            self._append_apart(table.take(pa.array([*chosen, *others], pa.int64())))

    def _append_apart(self, table: pa.Table) -> None:
        """Results from before; what is in the answer that stands, and what is not, are two entries."""
        known = min(max(0, self._summed - self.next), table.num_rows)
        for some in (table.slice(0, known), table.slice(known)):
            if some.num_rows:
                self.append(some)

    def _put_together(self) -> None:
        """Make one of many small entries, or the interpreter would mind their number."""
        some = [self._entries[i] for i in range(-_FEW, 0)]
        start, bound = some[0].start, self._bound.rows
        places = [*self._readers.values(), *(stop for _, stop in self._reading.values()), self._summed]
        if any(start < place < self.next for place in places) or start < self._summing:
            return  # a reader is in between
        if bound and self.next - start > bound // 8:
            return  # it would be much of what is kept
        if any(e.record is not None for e in some):
            return  # a saved state may name their files
        if len({type(e.answers) for e in some}) > 1:
            return  # they would have to be read
        answers, size = self._runner.together([e.answers for e in some]), sum(e.size for e in some)
        together = _Entry(start, answers, size, some[0].number)
        together.size -= (_FEW - 1) * _OVERHEAD
        self._bytes -= (_FEW - 1) * _OVERHEAD
        for _ in range(_FEW):
            self._entries.pop()
        self._entries.append(together)
        self._small = 0

    def _exceeded(self) -> bool:
        bound = self._bound
        rows = self.next - self.first
        return rows > bound.rows if bound.rows is not None else self._bytes > (bound.bytes or 0)

    def _drop_oldest(self) -> None:
        """Forget whole entries; the newest one stays, whatever its size."""
        while len(self._entries) > 1 and self._exceeded():
            self._runner.delivered([self._entries[0].answers], None)
            self._leave(self._entries[0], None)
        self._clean()

    def _leave(self, entry: _Entry, table: pa.Table | None) -> None:
        """Let the oldest entry go; it stays until it is in the answer that stands, and ``_clean`` is called."""
        if self._standing is not None and self._summed < entry.stop:
            entry.table, self.due = table, True
        self._entries.popleft()
        self._bytes -= entry.size
        self.first = entry.stop
        self._leaving.append(entry)

    def _clean(self) -> None:
        """Forget for good what has gone and nobody is reading."""
        gone: list[_Entry] = []
        kept: list[_Entry] = []
        for entry in self._leaving:
            reading = any(start < entry.stop and entry.start < stop for start, stop in self._reading.values())
            needed = self._standing is not None and self._summed < entry.stop
            (kept if reading or needed else gone).append(entry)
        self._leaving = kept
        if gone:
            self._runner.forget([e.answers for e in gone])

    # -- readers --------------------------------------------------------------------------------------

    def add_reader(self, name: str, position: int | None) -> None:
        """A reader that begins at a position, or with the next result."""
        at = self.next if position is None else position
        if not self.first <= at <= self.next:
            there = f"from {self.first} to {self.next}" if self.first < self.next else f"only {self.next}, the next one"
            raise StateError(f"query `{self._name}` has no position {at} any more or yet", hint=f"there is {there}")
        self._readers[name] = at

    def remove_reader(self, name: str) -> None:
        """A reader that needs nothing any more. Without the lock."""
        with self._lock:
            if self._readers.pop(name, None) is not None:
                self.give_up(name)
                self._clear()
        self.add_up()

    def waiting(self, reader: str = DEFAULT) -> int:
        """How many results a reader has not confirmed."""
        return self.next - max(self._readers[reader], self.first)

    def unconfirmed(self) -> list[Answers]:
        """What ``default`` has not confirmed, for whoever prepares it. Without the lock."""
        with self._lock:
            return [e.answers for e in self._entries if e.stop > self._readers[DEFAULT]]

    def read(self, reader: str, *, one: bool = False) -> tuple[Sequence[Answers], int, int]:
        """What a reader has not confirmed, or the first entry of it: entries, how many of their first results it has
        had, and the position after them. ``ResultsGone`` once if some are not there any more."""
        position = self._readers[reader]
        if position < self.first:
            if reader == DEFAULT:
                self._runner.delivered([], self.first)
            self._readers[reader] = self.first
            raise self._gone(position, f" of reader `{reader}`", "the next call gives those that are there")
        if one and self._entries and position == self._entries[0].start:
            found = [self._entries[0]]
        else:
            found = []
            for entry in reversed(self._entries):
                if entry.stop <= position:
                    break
                found.append(entry)
            found = found[::-1][:1] if one else found[::-1]
        if not found:
            return [], 0, position
        self._reading[reader] = position, found[-1].stop
        return [e.answers for e in found], position - found[0].start, found[-1].stop

    def _gone(self, position: int, whose: str, advice: str) -> ResultsGone:
        lost = f"{counted(self.first - position, 'result')} (positions {position} to {self.first - 1})"
        kept = f"WITH (results = …) of the query says how much is kept for readers, now {self._bound}"
        error = ResultsGone(
            f"query `{self._name}`: {lost}{whose} are gone: more had come than are kept", hint=f"{advice}; {kept}"
        )
        error.first = self.first
        return error

    def at(self, position: int, most: int) -> pa.Table:
        """The results from a position on, at most ``most``; for no reader. ``ResultsGone`` if the first is not there
        any more. Without the lock."""
        look = object()
        with self._lock:
            if position < self.first:
                raise self._gone(position, "", f"position {self.first} is the first that is there")
            if position > self.next:
                raise StateError(f"query `{self._name}` has no position {position} yet", hint=f"{self.next} is next")
            stop = min(self.next, position + most)
            found: list[_Entry] = []
            for entry in reversed(self._entries):
                if entry.stop <= position:
                    break
                if entry.start < stop:
                    found.append(entry)
            self._reading[look] = position, stop
        try:
            table = self._runner.table([e.answers for e in reversed(found)])
        finally:
            self.give_up(look)
        return self.marks.flagged(table.slice(position - found[-1].start if found else 0, stop - position), position)

    def give_up(self, reader: object) -> None:
        """What ``read`` gave a reader has come to nothing. Also without the lock."""
        with self._lock:
            if self._reading.pop(reader, None) is not None:
                self._clean()

    def table(self, found: tuple[Sequence[Answers], int, int]) -> pa.Table:
        """What ``read`` gave as a table. Without the lock."""
        answers, skipped, stop = found
        table = self._runner.table(answers).slice(skipped)
        return self.marks.flagged(table, stop - table.num_rows) if self.marks.all else table

    def confirm(
        self, reader: str, upto: int, *, notes: Mapping[str, object] | None = None, table: pa.Table | None = None
    ) -> None:
        """A reader has all results before a position. ``notes``: kept with that; ``table``: those it has just had.
        Without the lock."""
        with self._lock:
            before = self._readers.get(reader)
            if before is None:
                return  # it has been removed meanwhile
            if reader == DEFAULT:
                read = takewhile(lambda e: e.stop <= upto, self._entries)
                some = [e.answers for e in read if before < e.stop]
                if some or notes:
                    self._runner.delivered(some, max(before, upto), notes)
            self._readers[reader] = max(before, upto)
            self._reading.pop(reader, None)
            self._clear(table if before == self.first else None)
        if reader == DEFAULT:
            self._runner.written()
        self.add_up()

    def has_confirmed(self, reader: str, upto: int) -> bool:
        """Whether a reader has confirmed all results before a position."""
        with self._lock:
            return self._readers.get(reader, -1) >= upto

    def _clear(self, table: pa.Table | None = None) -> None:
        """Let go what every reader has. ``table``: the results from the oldest on, as far as there is one of them."""
        least = min(self._readers.values(), default=self.next)
        at = 0
        while self._entries and self._entries[0].stop <= least:
            entry = self._entries[0]
            count = len(entry.answers)
            known = table is not None and at + count <= table.num_rows
            self._leave(entry, table.slice(at, count) if known and table is not None else None)
            at += count
        self._clean()

    def last(self, rows: int, reader: str = DEFAULT) -> pa.Table:
        """The last results that a reader has not confirmed; nothing is confirmed by it. Without the lock."""
        look = object()
        with self._lock:
            position = max(self._readers[reader], self.first)
            found: list[_Entry] = []
            count = 0
            for entry in reversed(self._entries):
                if count >= rows or entry.stop <= position:
                    break
                found.append(entry)
                count += len(entry.answers)
            most, stop = min(rows, self.next - position), self.next
            if found:
                self._reading[look] = found[-1].start, found[0].stop
        try:
            table = self._runner.table([e.answers for e in reversed(found)])
        finally:
            self.give_up(look)
        return self.marks.flagged(table.slice(max(0, table.num_rows - most)), stop - most)

    # -- the answer as it stands ----------------------------------------------------------------------

    def current(self, until: int | None = None) -> Standing:
        """The answer as it stands, on its own; results after an instant, in ticks, do not count if they are there.
        Without the lock, and by nobody who has it."""
        with self._adding:
            with self._lock:
                if self._standing is None:
                    self._check_known()
                    self._standing, self._summed = Standing(self._plan), 0  # from now on it is kept
                kept = self._standing
                gone, news = self._left(), [e for e in self._entries if e.start >= self._summed]
                self._summing = self.next
            try:
                self._put(kept, gone)
                if until is None:
                    self._put(kept, news)
                found = kept.copy()
                for entry in news if until is not None else ():
                    found.put(self._table_of(entry), until)
            finally:
                self._put_all()
        self.add_up()  # what has gone meanwhile
        return found

    def add_up(self) -> None:
        """Add what has gone to the answer that stands, if nobody else is doing so. Without the lock."""
        while self.due and self._adding.acquire(blocking=False):
            try:
                with self._lock:
                    kept, gone = self._standing, self._left()
                    self.due, self._summing = False, gone[-1].stop if gone else 0
                try:
                    if kept is not None:
                        self._put(kept, gone)
                        self._lost = None
                except StorageError as error:
                    self._unreadable(error)
                    return
                finally:
                    self._put_all()
            finally:
                self._adding.release()

    def _unreadable(self, error: StorageError) -> None:
        """What has gone cannot be read, so it is not in the answer that stands. The next call tries again, until so
        much has gone that this answer is given up."""
        with self._lock:
            is_new, self._lost = self._lost is None, error
            self.due = len(self._leaving) < _UNREADABLE
            if not self.due:
                self._standing = None
        if is_new or not self.due:
            what = "it is tried again" if self.due else "the answer as it stands is not kept any more"
            _log.warning("query `%s`: results that have gone cannot be read: %s; %s", self._name, error.one_line, what)

    def _left(self) -> list[_Entry]:
        """What has gone and is not in the answer that stands."""
        return [e for e in self._leaving if self._summed < e.stop]

    def _put(self, standing: Standing, entries: Sequence[_Entry]) -> None:
        for entry in entries:
            standing.put(self._table_of(entry), upto=entry.stop)
            self._summed = entry.stop

    def _put_all(self) -> None:
        with self._lock:
            self._summing = 0
            self._clean()

    def _table_of(self, entry: _Entry) -> pa.Table:
        return self._runner.table([entry.answers]) if entry.table is None else entry.table

    def _check_known(self) -> None:
        """Refuse what has no answer that stands, or of which some is gone."""
        if not stands(self._plan):
            once = "its windows are answered once each, when they end: every answer is the last word"
            raise StateError(
                f"the answers of `{self._name}` are a stream. There is no answer that stands",
                hint=once if self._plan.output == "windows" else f"leave {self._plan.output.upper()} out of the query",
            )
        if self._lost is not None:
            raise StateError(
                f"the answer of `{self._name}` as it stands is not known: {self._lost.message}",
                hint="go on with fetch or subscribe, or stop the query and register it again",
            )
        if self.first > 0:
            gone = f"the first {counted(self.first, 'result')} {'is' if self.first == 1 else 'are'} gone"
            if self._plan.output == "changes":
                raise StateError(
                    f"the answer of `{self._name}` as it stands is not known: {gone}, fetched before a restart",
                    hint="go on with fetch or subscribe, or stop the query and register it again",
                )
            raise StateError(
                f"the answer of `{self._name}` is all that it has ever given, and {gone}",
                hint="use fetch or subscribe; a window, as in FROM s [RANGE 1 HOUR], bounds what an answer is",
            )
