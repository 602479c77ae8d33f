"""Cutting state into pieces, so that a save costs what has changed and a state has few pieces.

``RowPieces`` is for rows that are numbered in order, appended at one end and forgotten at the other. ``KeyedPieces`` is
for entries that come, change and go. Both are logs: a save adds one piece with what is new. Once there are ``_FAN``
pieces of about the same size at the end of the log, they are written as one, so an entry is written again at most
once for each power of ``_FAN`` between a save and the whole, and there are ``_FAN`` pieces for each such power.

Neither keeps the tables: what is written again is asked from the operator, which has it. ``Tracked`` holds entries that
are plain objects, and makes tables of them when they are written, while the operator goes on.

An operator that has the state of an earlier save takes in what a later one has besides (``catch_up``): rows with
numbers from the old head on, entries that changed since; each entry says in which save it last did. Pieces are
written by later saves alone, so this reads no more than they wrote, however long ago the rest of a piece was.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, takewhile
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.model.delta import Ints
from penstock.operators.state import Content, Loaded, Piece, Saved, with_meta

T = TypeVar("T")

_FAN = 8
BLOCK = 1 << 18
"""Rows of a piece of ``RowPieces``, at most."""
_LARGE = 1 << 18
"""Rows from which a piece is not written again to have fewer: a save that merges does not take long, and there is a
piece for each hundred thousand rows or so."""
_ID, _SAVE = "_id", "_save"
_NO_IDS: Ints = np.empty(0, np.int64)


def _tier(rows: int) -> int:
    """Pieces of one tier are about as large."""
    return (max(rows, 1).bit_length() - 1) // 3


def merged(sizes: Sequence[int]) -> int:
    """How many of the last pieces become one, the last being new."""
    count, total = 1, sizes[-1]
    while True:
        reach, more = count, total
        while reach < len(sizes) and _tier(sizes[-reach - 1]) <= _tier(total) and more < _LARGE:
            reach += 1
            more += sizes[-reach]
        if reach - count + 1 < _FAN:
            return count
        count, total = reach, more


@dataclass
class _Range:
    name: str
    start: int
    stop: int


class RowPieces:
    """The pieces of rows with numbers from ``tail`` to before ``head``, both of which only grow.

    A piece is forgotten when all its rows are before the tail. Rows that get other numbers must get numbers from the
    head on: they are then written again. Pieces end where the numbers are multiples of ``BLOCK``, and all rows between
    two of these become one: so operators that keep the same rows keep the same pieces, which are stored once.
    """

    def __init__(self) -> None:
        self._ranges: list[_Range] = []
        self._named = 0

    def save(self, tail: int, head: int, rows: Callable[[int, int], Content]) -> Saved:
        """``rows`` gives the rows with numbers from its first argument to before its second."""
        ranges = [r for r in self._ranges if r.stop > tail]
        tables: dict[str, Content] = {}
        start = ranges[-1].stop if ranges else tail
        while start < head:
            block = start - start % BLOCK
            stop = min(head, block + BLOCK)
            ranges.append(_Range("", start, stop))
            here = [r.stop - r.start for r in ranges if r.start >= block]
            count = merged(here) if stop % BLOCK else len(here)
            first = max(tail, ranges[-count].start)
            for gone in ranges[-count:]:
                tables.pop(gone.name, None)
            ranges[-count:] = [_Range(f"{self._named}", first, stop)]
            self._named += 1
            tables[ranges[-1].name] = rows(first, stop)
            start = stop
        self._ranges = ranges
        meta = {"tail": tail, "head": head, "named": self._named, "starts": [r.start for r in ranges]}
        return Saved(meta, tuple(Piece(r.name, tables.get(r.name)) for r in ranges))

    def load(self, state: Loaded) -> tuple[int, int, list[pa.Table]]:
        """(tail, head, tables of the rows between them)."""
        tail, head, starts = state.meta["tail"], state.meta["head"], state.meta["starts"]
        self._named = state.meta["named"]
        bounds = pairwise([*starts, head])
        self._ranges = [_Range(name, *bound) for name, bound in zip(state.tables, bounds, strict=True)]
        found = [state.tables[r.name].slice(max(0, tail - r.start)) for r in self._ranges]
        return tail, head, [t for t in found if t.num_rows]

    def catch_up(self, state: Loaded, tail: int, head: int) -> tuple[int, list[pa.Table]]:
        """(how many of the oldest of the rows from ``tail`` to before ``head`` are no more, tables of those behind).

        The rows that there are then have numbers from ``state.meta["tail"]`` on.
        """
        first = max(head, state.meta["tail"])
        names, starts = list(state.tables), state.meta["starts"]
        self._named = state.meta["named"]
        self._ranges = [_Range(n, *b) for n, b in zip(names, pairwise([*starts, state.meta["head"]]), strict=True)]
        new = [r for r in self._ranges if r.stop > first]
        return min(head, state.meta["tail"]) - tail, [state.tables[r.name].slice(max(0, first - r.start)) for r in new]


@dataclass
class _Entries:
    """Ids of one piece, ascending; ``gone`` are those that it says are no more.

    ``saves``: of each of the ids and then of each that is gone, the save in which it became so.
    """

    name: str
    ids: Ints
    gone: Ints
    saves: Ints

    @property
    def size(self) -> int:
        return len(self.ids) + len(self.gone)


class KeyedPieces:
    """The pieces of entries that have ids; an id is never used again.

    Of an entry in several pieces the last counts. Everything is written again once there is more that does not count
    than there is that does. Remembers the ids in each piece, and in which save each was written first as it is.
    """

    def __init__(self) -> None:
        self._pieces: list[_Entries] = []
        self._named = 0
        self._saves = 0

    def save(self, changed: Ints, gone: Ints, live: int, table: Callable[[Ints], Content]) -> Saved:
        """What makes up the state now.

        ``changed``: ids that are new or other than at the last save; ``gone``: those that were in it and are no more.
        ``live``: how many entries there are. ``table`` gives entries, one row for each of these ids in their order.
        """
        pieces = self._pieces
        tables: dict[str, Content] = {}
        if len(changed) or len(gone):
            self._saves += 1
            changed, gone = _ascending(changed), _ascending(gone)
            saves = np.full(len(changed) + len(gone), self._saves, np.int64)
            pieces = [*pieces, _Entries("", changed, gone, saves)]
            count = merged([p.size for p in pieces])
            if sum(p.size for p in pieces) > 2 * live + 64:
                count = len(pieces)
            piece = _one(pieces[-count:], f"{self._named}", first=count == len(pieces))
            self._named += 1
            pieces = [*pieces[:-count], piece] if piece.size else pieces[:-count]
            if piece.size:
                tables[piece.name] = _with_ids(table(piece.ids), piece)
        self._pieces = pieces
        meta = {"named": self._named, "saves": self._saves}
        return Saved(meta, tuple(Piece(p.name, tables.get(p.name)) for p in pieces))

    def load(self, state: Loaded) -> tuple[Ints, pa.Table | None]:
        """The ids of all entries, ascending, and a row for each; None where nothing was ever saved."""
        self._named, self._saves = state.meta["named"], state.meta["saves"]
        found: list[tuple[Ints, pa.Table]] = []
        over = _NO_IDS
        tables = {name: state.tables[name] for name in state.tables}
        self._pieces = [_entries(name, table) for name, table in tables.items()]
        for piece, table in zip(self._pieces[::-1], list(tables.values())[::-1], strict=True):
            rows = np.arange(len(piece.ids)) if not len(over) else np.flatnonzero(~np.isin(piece.ids, over))
            found.append((piece.ids[rows], _some(table, rows)))
            over = np.concatenate([over, piece.ids, piece.gone])
        if not found:
            return _NO_IDS, None
        return _in_order(found)

    def catch_up(self, state: Loaded, there: Callable[[], Ints]) -> tuple[Ints, Ints, pa.Table | None]:
        """What differs from the last save or load: (ids that are no more, ids that are new or others, their rows).

        ``there`` gives the ids that there are now; it is asked only if everything has been written again since.
        """
        known = {p.name: p for p in self._pieces}
        before, names = self._saves, list(state.tables)
        self._named, self._saves = state.meta["named"], state.meta["saves"]
        self._pieces, found = [], []
        gone, over = [_NO_IDS], _NO_IDS
        for name in names:
            if name in known:
                self._pieces.append(known[name])
                continue
            table = state.tables[name]
            piece = _entries(name, table)
            self._pieces.append(piece)
            found.append((piece, table))
        parts: list[tuple[Ints, pa.Table]] = []
        for piece, table in found[::-1]:
            n = len(piece.ids)
            rows = np.flatnonzero(piece.saves[:n] > before)
            if len(over):
                rows = rows[~np.isin(piece.ids[rows], over)]
            left = piece.gone[piece.saves[n:] > before]
            parts.append((piece.ids[rows], _some(table, rows)))
            over = np.concatenate([over, piece.ids[rows], left])
            gone.append(left)
        if known and (not names or names[0] not in known):
            # Who writes everything does not say what is gone.
            now, had = np.concatenate([_NO_IDS, *(p.ids for p in self._pieces)]), there()
            gone.append(had[~np.isin(had, now)])
        parts = [part for part in parts if len(part[0])]
        return _ascending(np.concatenate(gone)), *(_in_order(parts) if parts else (_NO_IDS, None))


def _ascending(ids: Ints) -> Ints:
    """In order, each once. ``np.unique`` hashes them, which takes ten times as long."""
    if (ids[1:] > ids[:-1]).all():
        return ids
    found = np.sort(ids)
    return found[np.concatenate(([True], found[1:] > found[:-1]))]


def _one(pieces: Sequence[_Entries], name: str, *, first: bool) -> _Entries:
    """The last pieces as one; if they are all there are, nothing needs to be said of what is gone."""
    if len(pieces) == 1 and not (first and len(pieces[0].gone)):
        return _Entries(name, pieces[0].ids, pieces[0].gone, pieces[0].saves)
    # Newest first, so that of equal ids the first one found is the last written; what is gone stays so.
    newest = pieces[::-1]
    gone, at = np.unique(np.concatenate([p.gone for p in newest]), return_index=True)
    gone_saves = np.concatenate([p.saves[len(p.ids) :] for p in newest])[at]
    ids, at = np.unique(np.concatenate([p.ids for p in newest]), return_index=True)
    saves = np.concatenate([p.saves[: len(p.ids)] for p in newest])[at]
    if len(gone):
        there = ~np.isin(ids, gone, assume_unique=True)
        ids, saves = ids[there], saves[there]
    if first:
        return _Entries(name, ids, _NO_IDS, saves)
    return _Entries(name, ids, gone, np.concatenate([saves, gone_saves]))


def _with_ids(content: Content, piece: _Entries) -> Content:
    """What an entry is, and behind the entries those that are gone; the saves of these are negative."""
    if callable(content):
        return lambda: _with_ids(content(), piece)
    table = content
    live, gone = len(piece.ids), len(piece.gone)
    saves = piece.saves
    if gone:
        nothing = [pa.nulls(gone, f.type) for f in table.schema]
        table = pa.concat_tables([table, pa.Table.from_arrays(nothing, names=table.column_names)])
        saves = np.concatenate([saves[:live], -saves[live:]])
    table = table.append_column(_ID, pa.array(np.concatenate([piece.ids, piece.gone])))
    return table.append_column(_SAVE, pa.array(saves))


def _entries(name: str, table: pa.Table) -> _Entries:
    """The ids of a piece."""
    # Copies: what is remembered of a piece does not keep its table in memory.
    ids, saves = table.column(_ID).to_numpy().copy(), table.column(_SAVE).to_numpy()
    live = int(np.count_nonzero(saves > 0))
    return _Entries(name, ids[:live], ids[live:], np.abs(saves))


def _in_order(parts: Sequence[tuple[Ints, pa.Table]]) -> tuple[Ints, pa.Table]:
    """Parts, in each of which ids ascend, as one."""
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([i for i, _ in parts])
    order = np.argsort(ids)
    return ids[order], pa.concat_tables([t for _, t in parts]).take(pa.array(order)).combine_chunks()


def _some(table: pa.Table, rows: Ints) -> pa.Table:
    """Rows of a piece, without what is said of their ids."""
    table = table.drop_columns([_ID, _SAVE])
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        return table.slice(int(rows[0]), len(rows))
    return table.take(pa.array(rows))


class Tracked(Generic[T]):
    """Entries that are plain objects, by id, ascending; notes what changes from the first save on.

    Before the first save, and if there is none, nothing is noted.

    ``table`` makes a row for each of some entries, ``entries`` makes entries of these rows. For entries that change,
    ``frozen`` gives what ``table`` wants of one instead: what it is now, as something that does not change. A table is
    made when it is written. Until then an entry that is about to change is frozen first.
    """

    def __init__(
        self,
        table: Callable[[list[Any]], pa.Table],
        entries: Callable[[pa.Table], Iterable[T]],
        frozen: Callable[[T], object] | None = None,
    ) -> None:
        self.entries: dict[int, T] = {}
        self._table, self._made, self._frozen = table, entries, frozen
        self._pieces = KeyedPieces()
        self._next = 0
        self._saved = 0  # ids below this were there at the last save, or before it
        self._changed: set[int] = set()
        self._gone: set[int] = set()
        self._picture: Callable[[], _Picture[T] | None] = _no_picture

    def add(self, entry: T) -> int:
        """An entry comes; its id."""
        id = self._next
        self.entries[id] = entry
        self._next = id + 1
        return id

    def change(self, id: int) -> None:
        """An entry is about to change."""
        if id < self._saved and id not in self._changed:
            picture = self._picture()
            if picture is not None:
                picture.freeze(id, self.entries[id])
            self._changed.add(id)

    def remove(self, id: int) -> None:
        """An entry goes."""
        del self.entries[id]
        if id < self._saved:
            self._changed.discard(id)
            self._gone.add(id)

    def save(self) -> Saved:
        """What makes up the state now."""
        self._finish()
        changed: Iterable[int] = self.entries
        if self._saved:
            changed = chain(self._changed, takewhile(self._saved.__le__, reversed(self.entries)))
        changed, gone = np.fromiter(changed, np.int64), np.fromiter(self._gone, np.int64)
        saved = self._pieces.save(changed, gone, len(self.entries), self._taken)
        self._saved = self._next
        self._changed, self._gone = set(), set()
        return with_meta(saved, next=self._next)

    def _taken(self, ids: Ints) -> Content:
        numbers = ids.tolist()
        if len(numbers) == len(self.entries):
            entries = list(self.entries.values())
        else:
            entries = [self.entries[id] for id in numbers]
        picture = _Picture(numbers, entries, self._table, self._frozen)
        self._picture = weakref.ref(picture)
        return picture.table

    def _finish(self) -> None:
        """Make the table of the last save now if it is still to be made: what changes is noted for the next one."""
        picture = self._picture()
        if picture is not None:
            picture.table()
        self._picture = _no_picture

    def load(self, state: Loaded) -> list[tuple[int, T]]:
        """All entries in order."""
        ids, table = self._pieces.load(state)
        self._next = self._saved = state.meta["next"]
        if table is not None:
            self.entries = dict(zip(ids.tolist(), self._made(table), strict=True))
        return list(self.entries.items())

    def catch_up(
        self, state: Loaded, update: Callable[[T, T], None] = lambda entry, saved: None
    ) -> tuple[list[tuple[int, T]], list[tuple[int, T]]]:
        """The entries that are no more, and those that are new, in order.

        ``update`` makes an entry that is there and has changed since what another one, of the later state, is.
        """
        self._finish()
        gone, ids, table = self._pieces.catch_up(state, lambda: np.fromiter(self.entries, np.int64, len(self.entries)))
        self._next = self._saved = state.meta["next"]
        lost = [(id, self.entries.pop(id)) for id in gone.tolist() if id in self.entries]
        came: list[tuple[int, T]] = []
        if table is not None:
            for id, entry in zip(ids.tolist(), self._made(table), strict=True):
                if id in self.entries:
                    update(self.entries[id], entry)
                else:
                    self.entries[id] = entry
                    came.append((id, entry))
        return lost, came


def _no_picture() -> None:
    return None


_AT_ONCE = 1024
"""Entries that become rows of a table together. One that is about to change waits until these are frozen."""


class _Picture(Generic[T]):
    """Entries as they were at a save, until their table has been made. ``table`` may be called by any thread."""

    def __init__(
        self,
        ids: list[int],
        entries: list[T],
        table: Callable[[list[Any]], pa.Table],
        frozen: Callable[[T], object] | None,
    ) -> None:
        self._ids, self._entries, self._rows, self._frozen = ids, entries, table, frozen
        self._made: pa.Table | None = None
        self._making = threading.Lock()
        self._lock = threading.Lock()
        """Guards what follows, and entries while they are being frozen."""
        self._before: dict[int, object] = {}
        """Entries that have changed since, as they were."""
        self._passed = -1
        """Entries up to this id have been frozen."""

    def freeze(self, id: int, entry: T) -> None:
        """An entry that may be in the picture is about to change."""
        if self._frozen is not None:
            with self._lock:
                if id > self._passed:
                    self._before[id] = self._frozen(entry)

    def table(self) -> pa.Table:
        """A row for each entry as it was."""
        with self._making:
            if self._made is None:
                starts = range(0, max(len(self._ids), 1), _AT_ONCE)
                self._made = pa.concat_tables([self._some(start, start + _AT_ONCE) for start in starts])
                self._ids, self._entries, self._before = [], [], {}
            return self._made

    def _some(self, start: int, stop: int) -> pa.Table:
        ids, entries, frozen = self._ids[start:stop], self._entries[start:stop], self._frozen
        if frozen is None:
            return self._rows(entries)
        with self._lock:
            before = self._before
            rows = [before[i] if i in before else frozen(e) for i, e in zip(ids, entries, strict=True)]
            self._passed = ids[-1] if ids else -1
        return self._rows(rows)


class Whole:
    """State that is small, or other as a whole whenever it changes: one piece."""

    def __init__(self) -> None:
        self._named = 0
        self._last: object = None

    def save(self, content: object, table: Callable[[], Content]) -> Saved:
        """Written if ``content`` is not the very object of the last save."""
        if content is self._last:
            return Saved({"named": self._named}, (Piece(f"{self._named}"),))
        self._named += 1
        self._last = content
        return Saved({"named": self._named}, (Piece(f"{self._named}", table()),))

    def load(self, state: Loaded, content: Callable[[pa.Table], T]) -> T:
        """What ``content`` makes of the table."""
        self._named = state.meta["named"]
        made = content(state.tables[f"{self._named}"])
        self._last = made
        return made

    def catch_up(self, state: Loaded, content: Callable[[pa.Table], T]) -> T | None:
        """What ``content`` makes of the table; None if it is that of the last save or load."""
        return None if state.meta["named"] == self._named else self.load(state, content)
