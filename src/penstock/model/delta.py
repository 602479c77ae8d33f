"""The central object: a batch of changes to a relation, in order of instants.

An *instant* is a pair ``(ts, sub)``, compared lexicographically. ``sub`` is 0 for what happens at ``ts`` by time
alone (rows leaving, slides, windows ending), and otherwise the place of the arrival among those at ``ts`` (see
``arrival_sub``); so the total order of elements is the order of instants, and every row of a batch says by itself
when it counts. What exists before the first instant is at ``BEGINNING``.

A row's *moment* is the instant of the last element that made it. For a row straight from a window the moment is
the row's identity: no two elements of a query have the same.

Laws, which every operator keeps and the tests check:

- *Order*: rows are sorted by instant; within an instant, rows that leave (sign -1) stand before rows that enter (+1).
- *Clean*: within an instant no row both leaves and enters.
- *Split*: processing a batch in pieces, cut between any two instants, gives the same rows as processing it whole.
- *Snapshot*: the sum of all output up to an instant is the relational operator applied to the sums of all inputs up to
  that instant.
- *Complete*: after ``process`` with a frontier, no later output lies before that frontier.
- *Forgetting*: an operator keeps only what a later change can still touch; each says in its contract what that is.

Nobody changes a batch once it is made. It is not frozen only because making frozen objects takes three times as long,
and a single row passes through several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.schema import Schema

Ints = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]

MIN_TS = -(2**63)
MAX_TS = 2**63 - 1
BEGINNING = (MIN_TS, 0)
"""The instant of what is there before anything happens."""
NEVER = (MAX_TS, 0)
"""The frontier when nothing can come any more."""

_ARRIVAL_BITS = 44
_BESIDE = 33
"""Bytes that every change carries besides its values."""


def arrival_sub(rank: int, arrival: Ints | int) -> Any:
    """``sub`` of an arrival: ``rank`` is the place of its source among the query's sources in catalog order."""
    return ((rank + 1) << _ARRIVAL_BITS) + arrival


def arrived(sub: Ints) -> tuple[Ints, Ints]:
    """The ranks and arrivals that ``arrival_sub`` was given; rank -1 for what happens by time alone."""
    return (sub >> _ARRIVAL_BITS) - 1, sub & ((1 << _ARRIVAL_BITS) - 1)


Instant = tuple[int, int]


@dataclass(slots=True, eq=False)
class Step:
    """One step of a virtual operator: all operators are called once, with everything before ``frontier``.

    ``masters`` (ts, sub): with MASTER, the instants of evaluation of this step; None without.
    ``window``: start and end of the bounded window being answered.
    """

    frontier: Instant
    masters: tuple[Ints, Ints] | None = None
    window: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Delta:
    """Changes in order; ``columns`` are the payload, one Arrow array for each field of ``schema``.

    ``end``: in a plan where nobody needs retractions, rows that enter say themselves at which ``ts`` they leave by
    time alone (``MAX_TS``: never), and no rows that leave follow. None where rows that leave are part of the batch.
    """

    schema: Schema
    columns: tuple[pa.Array, ...]
    ts: Ints
    sub: Ints
    sign: Signs
    moment_ts: Ints
    moment_sub: Ints
    priority: Ints | None = None
    end: Ints | None = None

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, indices: npt.NDArray[Any]) -> Delta:
        """The rows at these places, in this order."""
        where = pa.array(indices)
        return Delta(
            self.schema,
            tuple([c.take(where) for c in self.columns]),
            self.ts[indices],
            self.sub[indices],
            self.sign[indices],
            self.moment_ts[indices],
            self.moment_sub[indices],
            None if self.priority is None else self.priority[indices],
            None if self.end is None else self.end[indices],
        )

    def slice(self, start: int, stop: int) -> Delta:
        """The rows from ``start`` to before ``stop``, without copying."""
        return Delta(
            self.schema,
            tuple([c.slice(start, stop - start) for c in self.columns]),
            self.ts[start:stop],
            self.sub[start:stop],
            self.sign[start:stop],
            self.moment_ts[start:stop],
            self.moment_sub[start:stop],
            None if self.priority is None else self.priority[start:stop],
            None if self.end is None else self.end[start:stop],
        )

    def at(self, ts: Ints, sub: Ints) -> Delta:
        """The same changes at other instants."""
        return Delta(
            self.schema, self.columns, ts, sub, self.sign, self.moment_ts, self.moment_sub, self.priority, self.end
        )

    def with_columns(self, schema: Schema, columns: Sequence[pa.Array]) -> Delta:
        """The same changes of other payload."""
        return replace(self, schema=schema, columns=tuple(columns))

    @property
    def nbytes(self) -> int:
        """Bytes of the payload and of what every change carries."""
        return int(sum(c.nbytes for c in self.columns)) + _BESIDE * len(self)


def row_bytes(types: Sequence[pa.DataType]) -> int:
    """``nbytes`` of one change whose values have these types, all of fixed width."""
    return int(sum(-(-kind.bit_width // 8) for kind in types)) + _BESIDE


def empty(schema: Schema) -> Delta:
    """No changes."""
    none = np.empty(0, np.int64)
    columns = tuple(pa.array([], f.type.arrow) for f in schema)
    return Delta(schema, columns, none, none, np.empty(0, np.int8), none, none)


def concat(deltas: Sequence[Delta]) -> Delta:
    """Deltas of one schema, one after the other; the caller keeps the order."""
    parts = [d for d in deltas if len(d)]
    if len(parts) <= 1:
        return parts[0] if parts else deltas[0]
    return Delta(
        parts[0].schema,
        tuple(pa.concat_arrays([d.columns[i] for d in parts]) for i in range(len(parts[0].columns))),
        np.concatenate([d.ts for d in parts]),
        np.concatenate([d.sub for d in parts]),
        np.concatenate([d.sign for d in parts]),
        np.concatenate([d.moment_ts for d in parts]),
        np.concatenate([d.moment_sub for d in parts]),
        priorities(parts),
        None if parts[0].end is None else np.concatenate([d.end for d in parts if d.end is not None]),
    )


def priorities(parts: Sequence[Delta | Arrivals]) -> Ints | None:
    """The priorities of batches one after the other; None where no batch has any."""
    if all(p.priority is None for p in parts):
        return None
    return np.concatenate([p.priority if p.priority is not None else np.zeros(len(p), np.int64) for p in parts])


def merge(deltas: Sequence[Delta]) -> Delta:
    """Deltas of one schema in one order: by instant, rows that leave first, otherwise as given."""
    together = concat(deltas)
    if sum(1 for d in deltas if len(d)) <= 1:
        return together
    return together.take(np.lexsort((together.sign, together.sub, together.ts)))


@dataclass(slots=True, eq=False)
class Arrivals:
    """New elements of one source in order: what a window takes. ``sub`` is ``arrival_sub`` of each."""

    schema: Schema
    columns: tuple[pa.Array, ...]
    ts: Ints
    sub: Ints
    priority: Ints | None = field(default=None)

    def __len__(self) -> int:
        return len(self.ts)


def sliced(arrivals: Arrivals, start: int, stop: int) -> Arrivals:
    """The elements from ``start`` to before ``stop``, without copying."""
    priority = None if arrivals.priority is None else arrivals.priority[start:stop]
    columns = tuple(c.slice(start, stop - start) for c in arrivals.columns)
    return Arrivals(arrivals.schema, columns, arrivals.ts[start:stop], arrivals.sub[start:stop], priority)


def joined(schema: Schema, parts: Sequence[Arrivals]) -> Arrivals:
    """Arrivals one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.empty(0, np.int64)
        return Arrivals(schema, tuple(pa.array([], f.type.arrow) for f in schema), none, none)
    columns = tuple(pa.concat_arrays([p.columns[i] for p in parts]) for i in range(len(schema)))
    ts = np.concatenate([p.ts for p in parts])
    return Arrivals(schema, columns, ts, np.concatenate([p.sub for p in parts]), priorities(parts))
