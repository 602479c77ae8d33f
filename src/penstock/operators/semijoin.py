"""Rows of the left input by whether rows of the right input match: EXISTS and IN."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.model.delta import Delta, Step
from penstock.operators.base import StateSize
from penstock.operators.evaluation import (
    Errors,
    Evaluation,
    Functions,
    Values,
    equality_key_of,
    reader,
    row_key_of,
)
from penstock.operators.pieces import Tracked
from penstock.operators.rows import Changes, Output, Row, by_instant, size_of
from penstock.operators.shapes import INT, OneOrNone, Record, keys_of
from penstock.operators.sides import Entry, Side
from penstock.operators.state import Loaded, Saved, together
from penstock.plan.nodes import SemiJoin
from penstock.plan.scope import equality
from penstock.scalar import Context
from penstock.scalar.expr import Expr, conjuncts

_Mark = bool | None


class GeneralSemiJoin:
    """Semi, anti and mark join; see ``plan.nodes.SemiJoin``.

    Needs clean deltas of both inputs. Promises that a left row comes and goes with its own moment and priority, and,
    while it stays, only where its mark after an instant is not what it was before.

    Where a right row is a candidate by its keys alone, and ``compare`` is absent or one equality, the right side is
    only counted (how many rows of each key and value, how many NULL), and a change touches just the left rows whose
    mark it turns. Otherwise each left row counts the right rows that compare TRUE and NULL, and a right row looks at
    all left rows with its key.

    Bounded by the rows of both inputs; a row is forgotten when it leaves.
    """

    def __init__(self, node: SemiJoin, functions: Functions, errors: Errors) -> None:
        self.node = node
        self._evaluation = Evaluation(functions, errors)
        compared = _compared(node)
        self._right: _Counted | _Compared
        if compared is None:
            self._right = _Compared(node, self._evaluation)
        else:
            self._right = _Counted(node, compared, self._evaluation)

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        self._evaluation.begin(step)
        output = Output(self.node.schema)
        for instant, (left, right) in by_instant(inputs):
            leaving: list[Row] = []
            entering: list[Row] = []
            for row, before, after in self._right.change(left, right):
                if before is not _ABSENT and (shown := self._shown(row, before)) is not None:
                    leaving.append(shown)
                if after is not _ABSENT and (shown := self._shown(row, after)) is not None:
                    entering.append(shown)
            output.add(instant, leaving, entering)
        return output.delta()

    def size(self) -> StateSize:
        left, right = self._right.rows
        return size_of(left, self.node.left.schema) + size_of(right, self.node.right.schema)

    def save(self) -> Saved:
        return self._right.save()

    def load(self, state: Loaded) -> None:
        self._right.load(state)

    def catch_up(self, state: Loaded) -> None:
        self._right.catch_up(state)

    def _shown(self, row: Row, mark: object) -> Row | None:
        match self.node.kind:
            case "mark":
                return row._replace(values=(*row.values, mark))
            case "semi":
                return row if mark is True else None
            case "anti":
                return row if mark is False else None


_ABSENT = object()
_Turn = tuple[Row, object, object]
"""A left row, its mark before and after; ``_ABSENT`` where it was or is not there. The two differ."""


def _compared(node: SemiJoin) -> tuple[tuple[Expr, Expr], ...] | None:
    """What ``compare`` equates, if counting is enough."""
    if node.residual is not None:
        return None
    parts = conjuncts(node.compare)
    if node.compare is None:
        return ()
    pair = equality(parts[0], len(node.left.schema)) if len(parts) == 1 else None
    return None if pair is None else (pair,)


@dataclass
class _Bucket:
    """How many rows of one key have which value, the one compared; None stands for NULL."""

    left: dict[Hashable, int] = field(default_factory=dict)
    right: dict[Hashable, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.left or self.right)

    def mark(self, value: Hashable) -> _Mark:
        if value is None:
            return None if self.right else False
        if value in self.right:
            return True
        return None if None in self.right else False


def _add(counts: dict[Hashable, int], value: Hashable, by: int) -> None:
    now = counts.get(value, 0) + by
    if now:
        counts[value] = now
    else:
        counts.pop(value, None)


class _Counted:
    """The right side as counts."""

    def __init__(self, node: SemiJoin, compared: tuple[tuple[Expr, Expr], ...], evaluation: Evaluation) -> None:
        keys = tuple(node.keys)
        entering, leaving = evaluation.entering, evaluation.leaving
        left_key = equality_key_of([k for k, _ in keys], entering)
        left_value = equality_key_of([v for v, _ in compared], entering)

        def both(values: Values) -> Hashable:
            return left_key(values), left_value(values)

        self._left = Side(node.left.schema, both, row_key_of(node.left.schema))
        self._keys = [equality_key_of([k for _, k in keys], c) for c in (entering, leaving)]
        self._values = [equality_key_of([v for _, v in compared], c) for c in (entering, leaving)]
        self._buckets: dict[Hashable, _Bucket] = {}
        self._known_only = node.kind == "semi"
        self._right_rows = 0
        self._shape = Record(keys_of(k.type for _, k in keys), OneOrNone(keys_of(v.type for _, v in compared)), INT)
        self._saved = Tracked(self._shape.table, self._counted, self._frozen)
        self._ids: dict[tuple[Hashable, Hashable], int] = {}

    @property
    def rows(self) -> tuple[int, int]:
        return len(self._left), self._right_rows

    def save(self) -> Saved:
        return together(left=self._left.save(), right=self._saved.save())

    def _frozen(self, pair: tuple[Hashable, Hashable]) -> tuple[Hashable, Hashable, int]:
        key, value = pair
        return key, value, self._buckets[key].right[value]

    def load(self, state: Loaded) -> None:
        self._left.load(state.part("left"))
        for entry in self._left:
            key, value = _key_and_value(entry)
            if key is not None:
                _add(self._buckets.setdefault(key, _Bucket()).left, value, 1)

        for id, pair in self._saved.load(state.part("right")):
            self._ids[pair] = id

    def catch_up(self, state: Loaded) -> None:
        gone, came = self._left.catch_up(state.part("left"))
        for entries, by in ((came, 1), (gone, -1)):
            for entry in entries:
                key, value = _key_and_value(entry)
                if key is not None:
                    _add(self._buckets.setdefault(key, _Bucket()).left, value, by)
        # A pair may be there again under another id.
        lost, new = self._saved.catch_up(state.part("right"))
        for id, pair in lost:
            if self._ids[pair] == id:
                del self._ids[pair]
        self._ids.update((pair, id) for id, pair in new)
        for _, (key, value) in lost:
            if (key, value) not in self._ids:
                self._right_rows -= self._buckets[key].right.pop(value)
        for key in {_key_and_value(entry)[0] for entry in gone} | {key for _, (key, _) in lost}:
            if key in self._buckets:
                self._clean(key)

    def _counted(self, table: pa.Table) -> Iterator[tuple[Hashable, Hashable]]:
        for key, value, count in self._shape.entries(table):
            right = self._buckets.setdefault(key, _Bucket()).right
            self._right_rows += count - right.get(value, 0)
            right[value] = count
            yield key, value

    def change(self, left: Changes, right: Changes) -> Iterator[_Turn]:
        for row in left.leaving:
            key, value = _key_and_value(self._left.remove(row))
            yield row, self._mark(key, value), _ABSENT
            if key is not None:
                _add(self._buckets[key].left, value, -1)
                self._clean(key)
        yield from self._count(right)
        for row in left.entering:
            key, value = _key_and_value(self._left.add(row))
            yield row, _ABSENT, self._mark(key, value)
            if key is not None:
                _add(self._buckets.setdefault(key, _Bucket()).left, value, 1)

    def _mark(self, key: Hashable, value: Hashable) -> _Mark:
        bucket = self._buckets.get(key) if key is not None else None
        return False if bucket is None else bucket.mark(value)

    def _clean(self, key: Hashable) -> None:
        if not self._buckets[key]:
            del self._buckets[key]

    def _count(self, right: Changes) -> Iterator[_Turn]:
        """Count the right rows of an instant, and turn the left rows that were there and stay."""
        steps: dict[Hashable, dict[Hashable, int]] = {}
        for by, rows, context in ((-1, right.leaving, 1), (1, right.entering, 0)):
            for row in rows:
                key = self._keys[context](row.values)
                value = self._values[context](row.values)
                if key is not None:
                    self._right_rows += by
                    of_key = steps.setdefault(key, {})
                    of_key[value] = of_key.get(value, 0) + by
        for key, of_key in steps.items():
            bucket = self._buckets.setdefault(key, _Bucket())
            before = {v: bucket.mark(v) for v in self._affected(bucket, of_key)}
            for value, by in of_key.items():
                self._add_right(bucket, (key, value), by)
            for value, mark in before.items():
                after = bucket.mark(value)
                if after is not mark:
                    for entry in self._left.candidates((key, value)):
                        yield entry.row, mark, after
            self._clean(key)

    def _add_right(self, bucket: _Bucket, pair: tuple[Hashable, Hashable], by: int) -> None:
        id = self._ids.get(pair)
        if id is not None:
            self._saved.change(id)
        _add(bucket.right, pair[1], by)
        there = pair[1] in bucket.right
        if there and id is None:
            self._ids[pair] = self._saved.add(pair)
        elif id is not None and not there:
            self._saved.remove(id)
            del self._ids[pair]

    def _affected(self, bucket: _Bucket, of_key: dict[Hashable, int]) -> Iterable[Hashable]:
        """The left values whose mark these counts may turn."""
        if not self._known_only:
            nulls = bucket.right.get(None, 0)
            if (nulls == 0) != (nulls + of_key.get(None, 0) == 0):
                return list(bucket.left)
        found = [v for v in of_key if v in bucket.left]
        if not self._known_only and None in bucket.left and None not in of_key:
            found.append(None)
        return found


def _key_and_value(entry: Entry) -> tuple[Hashable, Hashable]:
    assert isinstance(entry.key, tuple)
    return entry.key[0], entry.key[1]


class _Compared:
    """Both sides as rows; each left row counts what it compares with."""

    def __init__(self, node: SemiJoin, evaluation: Evaluation) -> None:
        entering, leaving = evaluation.entering, evaluation.leaving
        left, right = node.left.schema, node.right.schema
        self._left = Side(left, equality_key_of([k for k, _ in node.keys], entering), row_key_of(left))
        self._right = Side(right, equality_key_of([k for _, k in node.keys], entering), row_key_of(right))
        self._verdicts = _verdict(node, entering), _verdict(node, leaving)

    @property
    def rows(self) -> tuple[int, int]:
        return len(self._left), len(self._right)

    def save(self) -> Saved:
        return together(left=self._left.save(), right=self._right.save())

    def load(self, state: Loaded) -> None:
        self._left.load(state.part("left"))
        self._right.load(state.part("right"))

    def catch_up(self, state: Loaded) -> None:
        self._left.catch_up(state.part("left"))
        self._right.catch_up(state.part("right"))

    def change(self, left: Changes, right: Changes) -> Iterator[_Turn]:
        for row in left.leaving:
            yield row, _mark(self._left.remove(row)), _ABSENT
        before: dict[Entry, _Mark] = {}
        for row in right.leaving:
            self._count(self._right.remove(row), -1, before)
        for row in right.entering:
            self._count(self._right.add(row), 1, before)
        for entry, mark in before.items():
            after = _mark(entry)
            if after is not mark:
                yield entry.row, mark, after
        for row in left.entering:
            entry = self._left.add(row)
            for other in self._right.candidates(entry.key):
                _tell(entry, self._verdicts[0](row.values + other.row.values), 1)
            yield row, _ABSENT, _mark(entry)

    def _count(self, right: Entry, by: int, before: dict[Entry, _Mark]) -> None:
        verdict_of = self._verdicts[0 if by > 0 else 1]
        values = right.row.values
        for entry in self._left.candidates(right.key):
            verdict = verdict_of(entry.row.values + values)
            if verdict is not False:
                before.setdefault(entry, _mark(entry))
                self._left.changes(entry)
                _tell(entry, verdict, by)


def _mark(entry: Entry) -> _Mark:
    return True if entry.matches else None if entry.unknown else False


def _tell(entry: Entry, verdict: object, by: int) -> None:
    if verdict is True:
        entry.matches += by
    elif verdict is None:
        entry.unknown += by


def _verdict(node: SemiJoin, context: Context) -> Callable[[Values], object]:
    """What a pair with equal keys says: FALSE also where the right row is no candidate."""
    residual = None if node.residual is None else reader(node.residual, context)
    compare = None if node.compare is None else reader(node.compare, context)

    def of(pair: Values) -> object:
        if residual is not None and residual(pair) is not True:
            return False
        return True if compare is None else compare(pair)

    return of
