"""The logs of a database on Spark: buffers between whoever pushes and the parts, which read at their own positions."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from penstock.hosts.spark.live.frames import Frame, Kind, Log, Marks, packed
from penstock.hosts.spark.live.inputs import changes_batch
from penstock.hosts.spark.live.plan import logged_rows
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.schema import Clock

CLOCKS: tuple[Clock | None, ...] = (None, "ticks", "timestamp")
"""The kinds of clocks of a relation by their number in its log."""
TIMES = len(CLOCKS)
"""What is added to that number where instants have been given as times."""


class Logs:
    """One log for each stream, its late rows, its rows apart, and each relation. Frames of all are numbered through.

    Bounded by: what is declared, and on disk by ``forget``.
    """

    def __init__(self, root: Path, *, sync: bool) -> None:
        self._root, self._sync = root, sync
        self._logs: dict[str, Log] = {}
        self._known: dict[str, tuple[int, int, int]] = {}
        self.next_frame = 1

    def log(self, kind: str, name: str) -> Log:
        """The log of a stream (``streams``, ``late``, ``apart``) or relation (``relations``)."""
        key = f"{kind}/{_quoted(name)}"
        found = self._logs.get(key)
        if found is None:
            found = self._logs[key] = Log(self._root / key, sync=self._sync)
            found.resume()
        return found

    def known(self, name: str, arrivals: int, late: int, apart: int) -> None:
        """How much of a stream is in its logs already."""
        self._known[name] = (arrivals, late, apart)

    def rows(self, source: StreamInput, batch: Batch) -> Frame:
        """Log rows of a stream whose turn has come, before them those that do not fit, are late or have to wait."""
        name = source.definition.name
        arrivals, late, apart = self._known.get(name, (0, 0, 0))
        new_apart = source.apart.since(apart)
        new_late = source.late.since(late)
        waiting = source.waiting_since(arrivals)
        if new_apart is not None:
            self._append_apart(source, new_apart)
        if new_late is not None:
            rows = _one_batch(new_late)
            self._append("late", name, Kind.LATE, packed(rows), len(rows), source)
        if waiting is not None:
            rows = logged_rows(waiting)
            self._append("streams", name, Kind.WAITING, packed(rows), len(rows), source)
        ranked = 0 if batch.priority is None else int(np.count_nonzero(batch.priority))
        frame = self._append("streams", name, Kind.ROWS, packed(logged_rows(batch)), len(batch), source, ranked)
        self._known[name] = (source.arrivals, source.late.count, source.apart.count)
        return frame

    def changes(self, relation: RelationStore, changes: Sequence[Change]) -> Frame:
        """Log changes of a relation; the place for how many rows were late says of which kind its instants are."""
        definition = relation.definition
        rows = packed(changes_batch(definition.schema, changes))
        marks = Marks(late=CLOCKS.index(relation.clock) + TIMES * relation.times)
        frame = self.log("relations", definition.name).append(Kind.CHANGES, self.next_frame, rows, len(changes), marks)
        self.next_frame += 1
        return frame

    def drop(self, name: str) -> None:
        """What had this name is no more."""
        for kind in ("streams", "relations", "late", "apart"):
            self._remove(kind, name)
        self._known.pop(name, None)

    def late_taken(self, name: str) -> None:
        """Somebody has the late rows of a stream."""
        if f"late/{_quoted(name)}" in self._logs:
            self._remove("late", name)

    def apart_taken(self, source: StreamInput) -> None:
        """Somebody has the rows apart of a stream; how many there were is noted in their place."""
        name = source.definition.name
        if f"apart/{_quoted(name)}" in self._logs and self.log("apart", name).files():
            self.log("apart", name).begin_anew(self.next_frame)
            self._append_apart(source, source.apart.table)
            self.log("apart", name).replace()

    def _append_apart(self, source: StreamInput, rows: pa.Table) -> None:
        """Rows apart; the place for how many were late says how many of these there have been."""
        marks = Marks(late=source.apart.count)
        data = packed(_one_batch(rows))
        self.log("apart", source.definition.name).append(Kind.APART, self.next_frame, data, len(rows), marks)
        self.next_frame += 1

    def forget(self, sources: Iterable[StreamInput], oldest: int) -> None:
        """Remove files of streams with older frames only, unless a new query will ask for them."""
        for source in sources:
            if not source.waiting and not source.definition.retain:
                self.log("streams", source.definition.name).forget(oldest)

    def close(self) -> None:
        """Give the files back."""
        for log in self._logs.values():
            log.close()

    def _remove(self, kind: str, name: str) -> None:
        log = self._logs.pop(f"{kind}/{_quoted(name)}", None)
        if log is not None:
            log.close()
        shutil.rmtree(self._root / kind / _quoted(name), ignore_errors=True)

    def _append(
        self, kind: str, name: str, what: Kind, rows: pa.Buffer, count: int, source: StreamInput, ranked: int = 0
    ) -> Frame:
        marks = Marks(source.progress, source.newest_row, source.arrivals, source.late.count, source.closed)
        frame = self.log(kind, name).append(what, self.next_frame, rows, count, marks, ranked)
        self.next_frame += 1
        return frame


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    found = rows.combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], rows.schema)


def _quoted(name: str) -> str:
    """A name as that of a folder."""
    return quote(name, safe="")
