"""The rows of one input of a join, found again by identity and by what the other side asks for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap

from penstock.model.schema import Schema
from penstock.operators.evaluation import Reader, Values
from penstock.operators.ordered import SortedBag
from penstock.operators.pieces import Tracked
from penstock.operators.rows import Row
from penstock.operators.shapes import INT, Record, row_of
from penstock.operators.state import Loaded, Saved
from penstock.scalar import order_key
from penstock.scalar.expr import Call, Expr, columns, conjuncts, remap
from penstock.scalar.order import OrderKey


class Entry:
    """A row that is there now. ``matches`` and ``unknown`` count the other side's rows where somebody needs to know."""

    __slots__ = ("alive", "key", "matches", "number", "row", "unknown")

    def __init__(self, row: Row, matches: int = 0, unknown: int = 0) -> None:
        self.row = row
        self.key: Hashable = None
        self.number = 0
        self.matches = matches
        self.unknown = unknown
        self.alive = True

    def frozen(self) -> tuple[Row, int, int]:
        """What it is made of."""
        return self.row, self.matches, self.unknown


class Side:
    """Rows by key; a key of None, which equals nothing, is in no bucket.

    ``identity`` makes a row's values a dict key. Rows that leave are found by values and moment; equal rows of
    one moment are interchangeable.
    """

    def __init__(
        self, schema: Schema, key: Callable[[Values], Hashable], identity: Callable[[Values], Hashable]
    ) -> None:
        self.schema = schema
        self._key = key
        self._identity = identity
        self._entries: dict[Hashable, list[Entry]] = {}
        self._buckets: dict[Hashable, dict[int, Entry]] = {}
        shape = Record(row_of(schema), INT, INT)
        self._all = Tracked(shape.table, lambda table: starmap(Entry, shape.entries(table)), Entry.frozen)

    def __len__(self) -> int:
        return len(self._all.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._all.entries.values())

    def entry(self, row: Row) -> Entry:
        """What a row would be here; it is not."""
        entry = Entry(row)
        entry.key = self._key(row.values)
        return entry

    def add(self, row: Row) -> Entry:
        entry = Entry(row)
        self._put(self._all.add(entry), entry)
        return entry

    def _put(self, number: int, entry: Entry) -> None:
        row = entry.row
        entry.number = number
        entry.key = self._key(row.values)
        self._entries.setdefault((self._identity(row.values), row.moment), []).append(entry)
        self._index(entry)

    def changes(self, entry: Entry) -> None:
        """The counts of an entry are about to change."""
        self._all.change(entry.number)

    def save(self) -> Saved:
        return self._all.save()

    def load(self, state: Loaded) -> None:
        for number, entry in self._all.load(state):
            self._put(number, entry)

    def catch_up(self, state: Loaded) -> tuple[list[Entry], list[Entry]]:
        """The entries that are no more, and those that are new."""

        def update(entry: Entry, saved: Entry) -> None:
            entry.matches, entry.unknown = saved.matches, saved.unknown

        gone, came = self._all.catch_up(state, update)
        for _, entry in gone:
            identity = (self._identity(entry.row.values), entry.row.moment)
            self._drop(identity, self._entries[identity].index(entry))
        for number, entry in came:
            self._put(number, entry)
        return [entry for _, entry in gone], [entry for _, entry in came]

    def remove(self, row: Row) -> Entry:
        """The entry of a row that leaves, which is no longer here."""
        return self._take((self._identity(row.values), row.moment), -1)

    def discard(self, entry: Entry) -> None:
        """Forget this very entry."""
        identity = (self._identity(entry.row.values), entry.row.moment)
        self._take(identity, self._entries[identity].index(entry))

    def _take(self, identity: Hashable, place: int) -> Entry:
        entry = self._drop(identity, place)
        self._all.remove(entry.number)
        return entry

    def _drop(self, identity: Hashable, place: int) -> Entry:
        same = self._entries[identity]
        entry = same.pop(place)
        if not same:
            del self._entries[identity]
        entry.alive = False
        self._unindex(entry)
        return entry

    def _index(self, entry: Entry) -> None:
        if entry.key is not None:
            self._buckets.setdefault(entry.key, {})[entry.number] = entry

    def _unindex(self, entry: Entry) -> None:
        if entry.key is not None:
            bucket = self._buckets[entry.key]
            del bucket[entry.number]
            if not bucket:
                del self._buckets[entry.key]

    def candidates(self, key: Hashable) -> Iterable[Entry]:
        """The rows that a row of the other side with this key may match."""
        return self._buckets.get(key, {}).values()


@dataclass(frozen=True)
class Inequality:
    """``left function right``, the sides over rows of their own."""

    function: str
    left: Expr
    right: Expr


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class OrderedSide(Side):
    """Rows in the order of one expression; NULL, which compares with nothing, is not among them.

    A key of the other side finds the rows x with ``key function x``.
    """

    def __init__(
        self, schema: Schema, read: Reader, function: str, identity: Callable[[Values], Hashable]
    ) -> None:
        def key(values: Values) -> OrderKey | None:
            value = read(values)
            return None if value is None else order_key(value)

        super().__init__(schema, key, identity)
        self._ordered: SortedBag[tuple[OrderKey, int, Entry]] = SortedBag()
        self._function = function

    def _index(self, entry: Entry) -> None:
        if isinstance(entry.key, tuple):
            self._ordered.add((entry.key, entry.number, entry))

    def _unindex(self, entry: Entry) -> None:
        if isinstance(entry.key, tuple):
            self._ordered.remove((entry.key, entry.number, entry))

    def candidates(self, key: Hashable) -> Iterable[Entry]:
        if key is None:
            return []
        # A pair with only the key sorts before all entries of that key, one with an endless number after them.
        match self._function:
            case "<":
                found = self._ordered.from_((key, float("inf")))
            case "<=":
                found = self._ordered.from_((key,))
            case ">":
                found = self._ordered.before((key,))
            case _:
                found = self._ordered.before((key, float("inf")))
        return [entry for _, _, entry in found]


def inequality(residual: Expr | None, split: int) -> tuple[Inequality | None, list[Expr]]:
    """The first conjunct that compares an expression of the left row with one of the right row, and the others."""
    parts = conjuncts(residual)
    for i, part in enumerate(parts):
        if isinstance(part, Call) and part.function in _MIRRORED:
            a, b = part.args
            function = part.function
            if _is_right(a, split) and _is_left(b, split):
                a, b, function = b, a, _MIRRORED[function]
            if _is_left(a, split) and _is_right(b, split):
                return Inequality(function, a, remap(b, lambda c: c - split)), parts[:i] + parts[i + 1 :]
    return None, parts


def mirrored(function: str) -> str:
    """The comparison seen from the other side."""
    return _MIRRORED[function]


def _is_left(expr: Expr, split: int) -> bool:
    read = columns(expr)
    return bool(read) and max(read) < split


def _is_right(expr: Expr, split: int) -> bool:
    read = columns(expr)
    return bool(read) and min(read) >= split
