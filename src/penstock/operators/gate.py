"""MASTER: changes wait for the next arrival on a master stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from penstock.kernels.gate import leaving_first, masters_before
from penstock.model.delta import MIN_TS, Delta, Ints, Step, concat, empty
from penstock.model.schema import Schema
from penstock.operators.evaluation import row_key_of
from penstock.operators.rows import rows_of
from penstock.operators.waiting import Waiting


class MasterGate(Waiting):
    """Stands behind a window or relation of a query with masters.

    Needs a clean delta straight from a window or relation, where a row's moment is its identity, and ``step.masters``.
    Promises the net changes between one master instant and the next, at that instant and with their own moments: a row
    that came and went in between is never seen. A change at a master's own instant is in time for it. What is there
    from the beginning passes as it is.

    Bounded by the net changes since the last master instant, up to a factor; they are forgotten when the next one
    comes.
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._key = row_key_of(schema)

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        assert step.masters is not None
        (delta,) = inputs
        master_ts, master_sub = step.masters
        if len(master_ts) and not self._waiting and len(delta) and delta.ts[0] != MIN_TS:
            return self._pass_on(delta, master_ts, master_sub)
        beginning = int(np.searchsorted(delta.ts, MIN_TS, side="right"))
        passed = delta.slice(0, beginning)
        if len(delta) > beginning:
            self._wait([*self._waiting, delta.slice(beginning, len(delta))])
        if not len(master_ts):
            if self._length > self._limit:
                self._first += self._length
                self._wait([self._net(concat(self._waiting))])
                self._looked_through()
            return passed
        return concat([passed, self._pass_on(concat([empty(self._taken), *self._waiting]), master_ts, master_sub)])

    def _pass_on(self, waiting: Delta, master_ts: Ints, master_sub: Ints) -> Delta:
        """What is in time for a master, at its instant; the rest waits."""
        target, leave_from_before, ordered = masters_before(
            waiting.ts, waiting.sub, waiting.sign, waiting.moment_ts, master_ts, master_sub
        )
        late = int(target.searchsorted(len(master_ts)))
        self._first += late
        self._wait([waiting.slice(late, len(waiting))] if late < len(waiting) else [])
        self._looked_through()
        due, target = (waiting, target) if late == len(waiting) else (waiting.slice(0, late), target[:late])
        cancelled = None if leave_from_before else self._cancelled(due, target)
        if cancelled is None and ordered:
            return due.at(master_ts[target], master_sub[target])
        kept = np.arange(late) if cancelled is None else np.flatnonzero(~cancelled)
        kept = leaving_first(target, due.sign, kept)
        target = target[kept]
        return due.take(kept).at(master_ts[target], master_sub[target])

    def _net(self, delta: Delta) -> Delta:
        cancelled = self._cancelled(delta, np.zeros(len(delta), np.int64))
        return delta if cancelled is None else delta.take(np.flatnonzero(~cancelled))

    def _cancelled(self, delta: Delta, target: Ints) -> npt.NDArray[np.bool_] | None:
        """Which rows came and went on the way to the same master instant; None where none did for certain."""
        if not len(delta) or delta.sign.min() > 0:
            return None
        cancelled = np.zeros(len(delta), np.bool_)
        order = np.lexsort((delta.moment_sub, delta.moment_ts, target))
        differs = np.zeros(len(delta), np.bool_)
        differs[0] = True
        for column in (target, delta.moment_ts, delta.moment_sub):
            differs[1:] |= column[order][1:] != column[order][:-1]
        first = np.flatnonzero(differs)
        sizes = np.diff(np.append(first, len(delta)))
        pairs = first[sizes == 2]
        pairs = pairs[(delta.sign[order[pairs]] > 0) & (delta.sign[order[pairs + 1]] < 0)]
        cancelled[order[pairs]] = True
        cancelled[order[pairs + 1]] = True
        # Rows that one statement put into a relation may have a moment in common; then values decide.
        for start, size in zip(first[sizes > 2].tolist(), sizes[sizes > 2].tolist(), strict=True):
            places = order[start : start + size]
            cancelled[places] = self._same_values(delta.take(places))
        return cancelled

    def _same_values(self, delta: Delta) -> list[bool]:
        keys = [self._key(row.values) for row in rows_of(delta)]
        came: Counter[Hashable] = Counter(k for k, s in zip(keys, delta.sign, strict=True) if s > 0)
        left: Counter[Hashable] = Counter(k for k, s in zip(keys, delta.sign, strict=True) if s < 0)
        gone = {1: came & left, -1: came & left}
        result = []
        for key, sign in zip(keys, delta.sign.tolist(), strict=True):
            result.append(gone[sign][key] > 0)
            gone[sign][key] -= 1
        return result
