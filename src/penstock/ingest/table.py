"""The rows of a stored relation by number, indexes that find them, and a change of them that is made aside."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.model.types import DataType, Kind, as_decimal
from penstock.scalar import Context, evaluate, fold, hashable
from penstock.scalar.expr import Call, Cast, Column, Expr, children, conjuncts, transform
from penstock.scalar.failing import can_fail

Row = tuple[object, ...]
Key = tuple[object, ...]
_MOST = 4
"""So many indexes are kept besides the one by which a row is told from others."""
_PLAIN = Context()


class Index:
    """The numbers of rows by what they have in some columns, ascending. It has one entry for each row of its table, and
    forgets it with the row. To add or remove what is there or gone already changes nothing."""

    def __init__(self, of: Iterable[Expr]) -> None:
        self.of = tuple(of)
        self._places = [e.index for e in self.of if isinstance(e, Column)]
        self._numbers: dict[Key, int | OrderedDict[int, None]] = {}

    def key(self, row: Row) -> Key:
        """What a row has in the columns; equal where ``=`` says so, and for two NULL."""
        if len(self._places) == len(self.of):
            return tuple([hashable(row[i]) for i in self._places])
        return tuple([hashable(evaluate(e, row, _PLAIN)) for e in self.of])

    def numbers(self, key: Key) -> Iterable[int]:
        """The rows that have this."""
        found = self._numbers.get(key, ())
        return (found,) if isinstance(found, int) else found

    def __contains__(self, key: Key) -> bool:
        return key in self._numbers

    def first(self, key: Key) -> int | None:
        """The first of them, if there is one."""
        return next(iter(self.numbers(key)), None)

    def add(self, key: Key, number: int) -> None:
        """A row comes, with a number above those that have the same."""
        there = self._numbers.setdefault(key, number)
        if isinstance(there, OrderedDict):
            there[number] = None
        elif there != number:
            self._numbers[key] = OrderedDict.fromkeys((there, number))

    def remove(self, key: Key, number: int) -> None:
        """A row goes."""
        there = self._numbers.get(key)
        if isinstance(there, OrderedDict):
            there.pop(number, None)
            if not there:
                del self._numbers[key]
        elif there == number:
            del self._numbers[key]


class Table:
    """Rows by number: a row that comes later has a greater one. ``identity``: the columns that say which row is meant.

    It holds the rows until they are taken out. An index is made when a statement first needs it; of those over other
    columns than the identity it keeps the ``_MOST`` that were used last.
    """

    def __init__(self, identity: Sequence[Expr]) -> None:
        self.rows: dict[int, Row] = {}
        self.touched: set[int] | None = None
        """The rows that came or went since the state was last saved; None before the first save."""
        self._identity = tuple(identity)
        self._by_identity: Index | None = None
        self._others: OrderedDict[frozenset[Expr], Index] = OrderedDict()

    @property
    def identity(self) -> Index:
        """The index over the identity."""
        if self._by_identity is None:
            self._by_identity = self._made(self._identity)
        return self._by_identity

    def matching(self, where: Expr | None) -> Iterable[Row]:
        """Rows among which are all that meet a condition, in order; all rows, if evaluating it could fail on one."""
        asked = _equalities(where)
        if not asked:
            return self.rows.values()
        index = self.identity if asked.keys() >= set(self._identity) else self._index(frozenset(asked))
        return [self.rows[n] for n in index.numbers(tuple(hashable(asked[e]) for e in index.of))]

    def _index(self, of: frozenset[Expr]) -> Index:
        if of not in self._others:
            self._others[of] = self._made(of)
        self._others.move_to_end(of)
        while len(self._others) > _MOST:
            self._others.popitem(last=False)
        return self._others[of]

    def _made(self, of: Iterable[Expr]) -> Index:
        index = Index(of)
        for number, row in self.rows.items():
            index.add(index.key(row), number)
        return index

    def write(self, gone: Mapping[int, Row], came: Mapping[int, Row]) -> None:
        """Take rows out and put rows in. Where this is interrupted, to do it again does the rest."""
        indexes = [*self._others.values(), *([] if self._by_identity is None else [self._by_identity])]
        if self.touched is not None:
            self.touched.update(gone, came)
        for number, row in gone.items():
            for index in indexes:
                index.remove(index.key(row), number)
            self.rows.pop(number, None)
        for number, row in came.items():
            self.rows[number] = row
            for index in indexes:
                index.add(index.key(row), number)


class Draft:
    """A change of a table in the making, which leaves the table as it is. ``next``: the number of its first new row."""

    def __init__(self, table: Table, next: int) -> None:
        self.gone: dict[int, Row] = {}
        self.came: dict[int, Row] = {}
        self.next = next
        self._table = table
        self._new: Index | None = None
        """The rows that came, by identity; made when it is first needed."""
        self._left: dict[Key, Iterator[int]] = {}
        """Of what has been taken out, the rows of the table that are equal and still there."""

    def has(self, row: Row) -> bool:
        """Whether there is a row of the same identity, in a table that has no two of them."""
        new = self._indexed()
        key = new.key(row)
        return key in new or (key not in self._left and key in self._table.identity)

    def put(self, row: Row) -> int:
        """A row comes; its number."""
        number, self.next = self.next, self.next + 1
        self.came[number] = row
        if self._new is not None:
            self._new.add(self._new.key(row), number)
        return number

    def take(self, row: Row) -> tuple[int, Row] | None:
        """The first row of the same identity goes, if there is one."""
        new = self._indexed()
        key = new.key(row)
        if key not in self._left:
            self._left[key] = iter(self._table.identity.numbers(key))
        number = next(self._left[key], None)
        if number is not None:
            self.gone[number] = self._table.rows[number]
            return number, self.gone[number]
        number = new.first(key)
        if number is None:
            return None
        new.remove(key, number)
        return number, self.came.pop(number)

    def _indexed(self) -> Index:
        if self._new is None:
            self._new = Index(self._table.identity.of)
            for number, row in self.came.items():
                self._new.add(self._new.key(row), number)
        return self._new


def _equalities(where: Expr | None) -> dict[Expr, object]:
    """Columns with the constants that a condition asks them to be equal to; none, if evaluating it can fail."""
    if where is None or can_fail(transform(where, _without_widening)):
        return {}
    found: dict[Expr, object] = {}
    for part in conjuncts(where):
        if isinstance(part, Call) and part.function == "=":
            for column, other in (part.args, part.args[::-1]):
                inner = column.arg if isinstance(column, Cast) else column
                constant = fold(other)
                if isinstance(inner, Column) and constant is not None:
                    found[column] = constant.value
    return found


def _without_widening(expr: Expr) -> Expr:
    """An expression that fails where this one does, without what is constant and numbers in a wider type."""
    if isinstance(expr, Cast) and _widens(expr.arg.type, expr.type):
        return Column(0, expr.type)
    return (fold(expr) or expr) if children(expr) else expr


def _widens(source: DataType, target: DataType) -> bool:
    """Whether every number of a type has a value in the other."""
    if not (source.is_numeric and target.is_numeric):
        return False
    if target.is_float or source.is_float:
        return target.kind is Kind.DOUBLE
    if target.is_integer:
        return source.kind is Kind.INT
    (digits, scale), (most, finest) = ((t.precision or 0, t.scale or 0) for t in (as_decimal(source), target))
    return scale <= finest and digits - scale <= most - finest
