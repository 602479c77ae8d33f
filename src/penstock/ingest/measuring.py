"""What is measured of a stream as its rows come: how many there are in a second of its time, and a sample of them.

Of the first rows all are taken, later one of ``THINNEST`` on average, at places that do not follow from their numbers;
so the sample is of the newest two million rows at most, and what was before is forgotten.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.model.batch import Batch, Instant
from penstock.model.schema import Schema
from penstock.model.types import TICKS_PER_SECOND
from penstock.model.values import to_rows
from penstock.plan.cost import SAMPLE, Measured, Row

THINNEST = 4096
_BYTES = 4 << 20


class Measuring:
    """Of one stream. Written under the database's lock.

    Bounded: ``SAMPLE`` rows and those taken with the oldest of them, 4 MiB and the newest piece; and some 66 points.
    """

    __slots__ = ("_chance", "_every", "_last", "_points", "_rows", "_sample", "_since", "next")

    def __init__(self) -> None:
        self._chance = random.Random(1)
        self._every = 1
        """One row of this many is taken."""
        self.next = 0
        """How many rows have to have come before one is taken again."""
        self._last = 0
        self._since = 0
        """Rows that were taken since they are taken more seldom."""
        self._points: deque[tuple[int, Instant]] = deque()
        """How many rows had come up to which instant."""
        self._sample: deque[pa.Table] = deque()
        self._rows = 0

    def take(self, arrivals: int, newest: Instant, batch: Batch) -> None:
        """So many rows have come, up to this instant; the turn of some of them has come now. Called when there are at
        least ``next``."""
        if newest == -math.inf:
            return
        count = len(batch)
        if not self._points and count:
            self._points.append((arrivals - count, int(batch.ts[0])))
        self._note(arrivals, newest)
        wanted = min(SAMPLE, count, max(1, (arrivals - self._last) // self._every))
        if wanted:
            self._keep(batch.table, count, wanted)
        self._last = arrivals
        self.next = arrivals + 1 + self._chance.randrange(2 * self._every - 1)

    def _note(self, arrivals: int, newest: Instant) -> None:
        """So many rows had come up to this instant: one of at most 66 points over as many rows as the sample is of."""
        points, span = self._points, SAMPLE * self._every
        if len(points) > 1 and arrivals - points[-2][0] < span // 64:
            points.pop()
        points.append((arrivals, newest))
        while len(points) > 2 and arrivals - points[1][0] >= span:
            points.popleft()

    def _keep(self, table: pa.Table, count: int, wanted: int) -> None:
        jitter = np.array([self._chance.random() for _ in range(wanted)])
        # A copy, also where it is all of them: the table may be a small part of a large one.
        table = table.take(pa.array(((np.arange(wanted) + jitter) * (count / wanted)).astype(np.int64)))
        self._sample.append(table)
        self._rows += wanted
        self._since += wanted
        size = sum(part.nbytes for part in self._sample) if table.nbytes > _BYTES // SAMPLE else 0
        while len(self._sample) > 1 and (self._rows - len(self._sample[0]) >= SAMPLE or size > _BYTES):
            gone = self._sample.popleft()
            self._rows -= len(gone)
            size -= gone.nbytes
        if self._since >= SAMPLE // 8 and self._every < THINNEST:
            self._every, self._since = self._every * 2, 0

    def measured(self, schema: Schema) -> Measured | None:
        """What is known by now; None if nothing is."""
        if not self._points:
            return None
        tables = list(self._sample)
        return Measured(self._rate(), None, lambda: _rows(tables, schema))

    def _rate(self) -> float | None:
        (before, start), (now, end) = self._points[0], self._points[-1]
        return (now - before) / (end - start) * TICKS_PER_SECOND if end > start else None


def _rows(tables: Sequence[pa.Table], schema: Schema) -> list[Row]:
    return to_rows(pa.concat_tables(tables), schema)[-SAMPLE:] if tables else []
