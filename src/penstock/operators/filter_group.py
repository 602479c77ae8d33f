"""Filters and projections over one input, worked on together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.buffers import column, gather
from penstock.kernels.filter_conditions import Between, Condition, condition, has_keys
from penstock.kernels.filter_index import FilterIndex
from penstock.kernels.vectors import DTYPES
from penstock.model.delta import Arrivals, Delta, Ints, Step
from penstock.model.schema import Schema
from penstock.model.types import DataType
from penstock.operators.stateless import FilterProject

Outcome = Delta | Arrivals | Exception
"""What a member gives, or what it raised."""
_TOGETHER = 1 << 14
"""Rows that are copied together for several members: what stays in the cache, and is freed soon if one member keeps
its part."""


class _Member:
    """One operator of the group.

    ``rest`` is what is left of it on the rows that the index found. It ``takes`` these columns, of schema ``taken``:
    those it ``picks``, if that is all it does, else all, of which only those it ``reads`` have to be there. With each
    stands the constant that it is the ``same`` as on all these rows, if there is one; these are not read.
    """

    def __init__(self, operator: FilterProject, schema: Schema) -> None:
        self.operator, self._schema = operator, schema
        found = [(i, condition(e, schema)) for i, e in enumerate(operator.conditions)]
        self._places = [i for i, c in found if c is not None]
        self.conditions: list[Condition] = [c for _, c in found if c is not None]
        self.number = -1
        self.nothing: Delta | Arrivals | None = None
        self._known: tuple[int, ...] | None = None

    def knowing(self, number: int, known: tuple[int, ...]) -> None:
        """This is member ``number`` of the index, which answers these of the conditions."""
        self.number = number
        if known != self._known:
            self._known = known
            self.rest = self.operator.knowing([self._places[i] for i in known])
            self.picks, self.reads = self.rest.picks, self.rest.reads
            self.takes = range(len(self._schema)) if self.picks is None else self.picks
            self.taken = self._schema if self.picks is None else self.operator.schema
            same = {c.column: k for i in known if (k := self._constant(c := self.conditions[i])) is not None}
            self.reads = tuple([i for i in self.reads if i not in same])
            self.same = [(i, same.get(i)) for i in self.takes]

    def _constant(self, condition: Condition) -> _Constant | None:
        """What a column is that has to equal one value; floats that are equal need not be the same."""
        dtype = self._schema[condition.column].type
        if isinstance(condition, Between) or len(condition.values) != 1 or not has_keys(dtype) or dtype.is_float:
            return None
        (key,) = condition.values
        return _Constant(key, dtype)


class _Constant:
    """One value on as many rows as a batch had so far, and up to twice as many."""

    def __init__(self, key: object, dtype: DataType) -> None:
        self._key, self._type = key, dtype
        self._array: pa.Array = pa.array([], dtype.arrow)

    def slice(self, start: int, count: int) -> pa.Array:
        """The value ``count`` times; where does not matter."""
        if count > len(self._array):
            values = np.full(2 * count, self._key, DTYPES[self._type.kind])
            self._array = column(values, None, self._type.arrow)
        return self._array.slice(0, count)


class _Nobody:
    """A column that nobody reads."""

    def slice(self, start: int, count: int) -> None:
        return None


_NOBODY = _Nobody()


class FilterGroup:
    """A group of ``FilterProject`` over inputs with this schema.

    Promises: every member gives what it gives by itself (rows, order, failures in its own ``errors``), also what it
    raises, which keeps nobody else from working. Members whose first filter compares columns with constants are found
    through an index over all of them, unless that filter can fail: it then has to see every row. The rows of all
    these members are copied together; what members give are slices of that, or computed from it.
    Remembers nothing of its input; bounded by its members.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._members: dict[int, _Member] = {}
        self._indexed: list[_Member] = []
        self._index: FilterIndex | None = None
        self._changed = False

    def __len__(self) -> int:
        return len(self._members)

    def add(self, key: int, member: FilterProject) -> None:
        """A new member; it sees the batches from now on. The key is not in use."""
        assert key not in self._members
        self._members[key] = _Member(member, self._schema)
        self._changed = True

    def remove(self, key: int) -> None:
        """Take a member out."""
        del self._members[key]
        self._changed = True

    def _rebuild(self) -> None:
        """The index over the members there are now."""
        self._indexed = [m for m in self._members.values() if m.conditions]
        conditions = [m.conditions for m in self._indexed]
        self._index = FilterIndex(self._schema, conditions) if conditions else None
        for number, member in enumerate(self._indexed):
            assert self._index is not None
            member.knowing(number, self._index.known[number])
        self._changed = False

    def process(self, data: Delta | Arrivals, step: Step) -> list[tuple[int, Outcome]]:
        """What each member gives, in the order they were added; for a member that raises, the exception."""
        if self._changed:
            self._rebuild()
        if step.window is not None and isinstance(data, Delta):
            for member in self._members.values():
                member.operator.enter_window(step.window)
        if not len(data):
            return [(key, _nothing(m, data)) for key, m in self._members.items()]
        found = None
        if self._index is not None:
            found = _Found(data, *self._index.select(data.columns, len(data)), self._indexed)
        results: list[tuple[int, Outcome]] = []
        for key, member in self._members.items():
            if found is None or member.number < 0:
                results.append((key, _tried(member.operator, data, step)))
                continue
            part = found.part(member)
            if part is None:
                results.append((key, _nothing(member, data)))
            elif member.picks is None:
                results.append((key, _tried(member.rest, part, step)))
            else:
                results.append((key, part))
        return results


def _tried(operator: FilterProject, data: Delta | Arrivals, step: Step) -> Outcome:
    try:
        return operator.process([data], step) if isinstance(data, Delta) else operator.process_arrivals(data)
    except Exception as problem:
        return problem


def _nothing(member: _Member, like: Delta | Arrivals) -> Delta | Arrivals:
    """No rows of what a member gives; made anew only where batches are not as they were."""
    known = member.nothing
    if (
        known is None
        or type(known) is not type(like)
        or (known.priority is None) != (like.priority is None)
        or (isinstance(known, Delta) and isinstance(like, Delta) and (known.end is None) != (like.end is None))
    ):
        none = np.empty(0, np.int64)
        priority = None if like.priority is None else none
        schema = member.operator.schema
        columns = tuple([pa.array([], f.type.arrow) for f in schema])
        if isinstance(like, Delta):
            end = None if like.end is None else none
            known = Delta(schema, columns, none, none, np.empty(0, np.int8), none, none, priority, end)
        else:
            known = Arrivals(schema, columns, none, none, priority)
        member.nothing = known
    return known


class _Found:
    """The rows of a batch that the index found, by member; those of some members at a time are copied together.

    ``rows`` of member ``i`` are those from ``bounds[i]`` to ``bounds[i + 1]``. Members are asked for in order.
    """

    def __init__(self, data: Delta | Arrivals, rows: Ints, bounds: list[int], members: Sequence[_Member]) -> None:
        self._data, self._rows, self._bounds, self._members = data, rows, bounds, members
        self._enter_only = isinstance(data, Delta) and bool(np.minimum.reduce(data.sign) > 0)
        self._start = self._stop = 0
        # Often the instants of elements stand in a column, too.
        self._is_ts = {i for i, c in enumerate(data.columns) if _same_memory(c, data.ts)}

    def part(self, member: _Member) -> Delta | Arrivals | None:
        """The rows of a member, with the columns it picks, else those it reads of all; None where it has no rows."""
        start, stop = self._bounds[member.number], self._bounds[member.number + 1]
        if start == stop:
            return None
        if stop > self._stop:
            self._copy(member.number)
        first, count = start - self._start, stop - start
        some = slice(first, first + count)
        copied = self._columns
        columns = tuple([(copied[i] if k is None else k).slice(first, count) for i, k in member.same])
        ts, sub = self._ts[some], self._sub[some]
        priority = None if self._priority is None else self._priority[some]
        if isinstance(self._data, Arrivals):
            return Arrivals(member.taken, columns, ts, sub, priority)
        return Delta(
            member.taken,
            columns,
            ts,
            sub,
            self._sign[:count] if self._enter_only else self._sign[some],
            ts if self._moment_ts is self._ts else self._moment_ts[some],
            sub if self._moment_sub is self._sub else self._moment_sub[some],
            priority,
            None if self._end is None else self._end[some],
        )

    def _copy(self, number: int) -> None:
        """Copy the rows of this member, and of those after it as long as they are few together."""
        start = self._start = self._bounds[number]
        beyond = max(number + 1, bisect_right(self._bounds, start + _TOGETHER) - 1)
        self._stop = self._bounds[beyond]
        rows, data = self._rows[start : self._stop], self._data
        needed: set[int] = set()
        for i in range(number, beyond):
            if self._bounds[i] < self._bounds[i + 1]:
                needed.update(self._members[i].reads)
        self._ts, self._sub = data.ts.take(rows), data.sub.take(rows)
        self._columns: list[pa.Array | _Nobody] = [_NOBODY] * len(data.columns)
        for i in needed:
            array = data.columns[i]
            self._columns[i] = column(self._ts, None, array.type) if i in self._is_ts else gather(array, rows)
        self._priority = None if data.priority is None else data.priority.take(rows)
        if isinstance(data, Delta):
            self._sign = data.sign if self._enter_only else data.sign.take(rows)
            self._moment_ts = self._ts if data.moment_ts is data.ts else data.moment_ts.take(rows)
            self._moment_sub = self._sub if data.moment_sub is data.sub else data.moment_sub.take(rows)
            self._end = None if data.end is None else data.end.take(rows)


def _same_memory(array: pa.Array, values: Ints) -> bool:
    """Whether a column is the same 64-bit integers as these values, because it stands where they stand."""
    kind = array.type
    if not pa.types.is_primitive(kind) or kind.bit_width != 64 or array.null_count or not values.flags.c_contiguous:
        return False
    data = array.buffers()[1]
    return data is not None and data.address + 8 * array.offset == values.__array_interface__["data"][0]
