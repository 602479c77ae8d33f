"""The part of a database's work that one task does: its share of every query, for one micro-batch.

A slot opens the state that the micro-batch before left, gives every query the frames that are its own, and stores the
answers and the new state before it says that it is done. It writes only files that no other micro-batch names, so
whether a micro-batch counts is decided by the driver alone, afterwards.

A worker process remembers the slots it has worked on (at most ``_KEPT``, which bounds its memory) and the definitions
of their queries. What it remembers counts only if it is the very state that is stored under the number that is asked
for, or one that this goes on from: then it takes in what has changed since.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import cloudpickle

from penstock.delta import Delta, merge
from penstock.errors import CheckpointError, PenstockError
from penstock.hosts import QuerySettings
from penstock.hosts.local import LocalRunner
from penstock.hosts.spark.job import Split
from penstock.hosts.spark.keys import shard_of
from penstock.hosts.spark.live.frames import Frame, mapped, payload, unpacked
from penstock.hosts.spark.live.plan import (
    Assigned,
    Definition,
    Failure,
    Outcome,
    Plan,
    Report,
    changes_schema,
    live_split,
    rows_logged,
    rows_schema,
)
from penstock.hosts.spark.worker import unsettle
from penstock.ingest import Batch
from penstock.operators.state import LoadedState, Saved, State, below, under
from penstock.plan.nodes import Schema
from penstock.reference import Change
from penstock.state import StateStore
from penstock.values import to_arrow, to_rows

_KEPT = 8
_SLOT = "slot"
"""Where a query's state says what the slot knows of it."""
_BLOCK_BITS = 12
"""Rows that may go anywhere are spread over slots in blocks of 2 to the power of this."""


class Slot:
    """The running queries of one slot, as they are after micro-batch ``number``."""

    def __init__(self, root: str, index: int, slots: int) -> None:
        self._index, self._slots = index, slots
        self._root = Path(root)
        self._store = StateStore(str(self._root / "state" / f"slot-{index:05d}-of-{slots:05d}"))
        self._running: dict[str, _Running] = {}
        self.number: int | None = None

    def holds(self, number: int | None) -> bool:
        """Is this the state that is stored as that of this micro-batch?"""
        return number is not None and self.number == number and self._store.holds(number)

    def goes_on_from(self, number: int | None, queries: Sequence[Assigned]) -> bool:
        """Become the slot that was stored, if this is it or one that it goes on from."""
        if self.holds(number):
            return True
        if number is None or self.number is None or number <= self.number:
            return False
        state = self._store.follow(number)
        if state is None:
            return False
        self._take(number, queries, state)
        return True

    def load(self, number: int, queries: Sequence[Assigned]) -> None:
        """Become, from a fresh one, the slot that was stored."""
        state = self._store.load(number)
        if state is None:
            raise CheckpointError(
                f"{self._root}: the state of micro-batch {number} is missing in slot {self._index}",
                hint="files are lost: restore the directory from a copy",
            )
        self._take(number, queries, state)

    def _take(self, number: int, queries: Sequence[Assigned], state: LoadedState) -> None:
        """Queries that run here take in what has changed, if they are still those that began then; others load."""
        here, self._running = self._running, {}
        for query in queries:
            of_query = below(f"query {query.id}", state)
            if not of_query:
                continue
            began = of_query[_SLOT].meta["began"]
            running = here.get(query.id)
            if running is not None and running.began == began:
                running.runner.catch_up(of_query)
            else:
                running = _Running(self._definition(query.id), began)
                running.runner.load(of_query)
            self._running[query.id] = running
        self.number = number

    def step(self, plan: Plan) -> dict[str, Outcome]:
        """The micro-batch: what each query of this slot gave."""
        mine = {q.id: q for q in plan.queries if q.slot is None or q.slot == self._index}
        for id in [id for id in self._running if id not in mine]:
            del self._running[id]
        inputs = _Inputs(plan.frames)
        outcomes: dict[str, Outcome] = {}
        for id, query in mine.items():
            try:
                outcomes[id] = self._advance(id, query, plan, inputs)
            except Exception as error:
                self._running.pop(id, None)
                outcomes[id] = Outcome(error=_failure(error))
        self.number = plan.number
        return outcomes

    def save(self) -> int:
        """Store the state; gives how many bytes were new."""
        assert self.number is not None, "a slot is saved after a step"
        state: State = {}
        for id, running in self._running.items():
            state |= under(f"query {id}", {_SLOT: Saved({"began": running.began}), **running.runner.save()})
        before = self._store.written
        self._store.commit(self.number, state)
        return self._store.written - before

    def forget(self, before: int) -> None:
        """Remove what only micro-batches with lower numbers need."""
        self._store.forget(before)

    def _advance(self, id: str, query: Assigned, plan: Plan, inputs: _Inputs) -> Outcome:
        running = self._running.get(id)
        if running is None:
            running = self._running[id] = _Running(self._definition(id), plan.number)
            running.begin(query.slot, self._index, self._slots)
        runner = running.runner
        if runner.ended:
            return Outcome(ended=True, failures=runner.failures, last_failure=runner.last_failure)
        for name, schema in running.sources.items():
            if name not in plan.frames:
                continue
            if name in running.relations:
                changes = inputs.changes(name, schema, query.start)
                if query.slot is None:
                    changes = _my_changes(changes, schema, running.split.keys or {}, name, self._index, self._slots)
                if changes:
                    runner.change(name, changes)
                continue
            batch = inputs.rows(name, schema, query.start)
            if batch is not None and len(batch):
                furthest = int(batch.ts[-1])
                if query.slot is None:
                    batch = inputs.share(batch, name, running.split, self._index, self._slots)
                if len(batch):
                    runner.push(name, batch)
                # Shards without the last row know as well how far the stream is.
                runner.progress(name, furthest)
            progress = inputs.progress(name, query.start)
            if progress is not None:
                runner.progress(name, progress)
        answers = runner.run()
        file = "" if answers is None or not len(answers) else self._write(id, plan.number, answers)
        return Outcome(
            0 if answers is None else len(answers), file, runner.ended, runner.failures, runner.last_failure,
            sizes=runner.sizes(),
        )  # fmt: skip

    def _write(self, id: str, number: int, answers: Delta) -> str:
        name = f"{number}-{self._index}-{uuid.uuid4().hex[:12]}.arrow"
        folder = self._root / "queries" / id
        with pa.OSFile(str(folder / name), "wb") as sink:
            table = answers_table(answers)
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        return name

    def _definition(self, id: str) -> Definition:
        key = (str(self._root), id)
        found = _definitions.get(key)
        if found is None:
            found = read_definition(self._root / "queries" / id / "definition")
            _definitions[key] = found
            while len(_definitions) > _KEPT * 128:
                _definitions.popitem(last=False)
        return found


class _Running:
    """A query in a slot; it ``began`` in the micro-batch with this number."""

    def __init__(self, definition: Definition, began: int) -> None:
        self.definition, self.began = definition, began
        self.runner = LocalRunner(
            definition.plan, definition.schema, QuerySettings(definition.functions, definition.strict)
        )
        self.split = live_split(definition.plan)
        self.sources = definition.sources
        self.relations = frozenset(definition.changes)

    def begin(self, slot: int | None, index: int, slots: int) -> None:
        """Give it what was there when it was registered."""
        given = self.definition
        keys = self.split.keys or {}
        for name, changes in given.changes.items():
            mine = changes if slot is not None else _my_changes(changes, self.sources[name], keys, name, index, slots)
            if mine:
                self.runner.change(name, mine)
        for name, batches in given.rows.items():
            for batch in batches:
                mine_too = batch if slot is not None else _share(batch, self.split, name, index, slots)
                if len(mine_too):
                    self.runner.push(name, mine_too)
                self.runner.progress(name, int(batch.ts[-1]))
        for name, progress in given.progress.items():
            self.runner.progress(name, progress)


class _Inputs:
    """The frames of a micro-batch, each read once however many queries want it."""

    def __init__(self, frames: Mapping[str, Sequence[Frame]]) -> None:
        self._frames = frames
        self._files: dict[str, memoryview] = {}
        self._rows: dict[tuple[str, int], Batch | None] = {}
        self._changes: dict[tuple[str, int], list[Change]] = {}
        self._shares: dict[object, Batch] = {}

    def progress(self, name: str, start: int) -> float | None:
        """How far a stream is after the last of its frames."""
        last = self._frames[name][-1]
        return last.marks.progress if last.number >= start else None

    def rows(self, name: str, schema: Schema, start: int) -> Batch | None:
        """The rows of the frames from number ``start`` on."""
        frames = [f for f in self._frames[name] if f.number >= start and f.rows]
        if not frames:
            return None
        key = (name, frames[0].number)
        if key not in self._rows:
            self._rows[key] = rows_logged(schema, list(self._read(frames, rows_schema(schema))))
        return self._rows[key]

    def changes(self, name: str, schema: Schema, start: int) -> list[Change]:
        """The changes of the frames from number ``start`` on."""
        frames = [f for f in self._frames[name] if f.number >= start]
        if not frames:
            return []
        key = (name, frames[0].number)
        if key not in self._changes:
            read = self._read(frames, changes_schema(schema))
            self._changes[key] = [change for batch in read for change in changes_of(schema, batch)]
        return self._changes[key]

    def share(self, batch: Batch, name: str, split: Split, index: int, slots: int) -> Batch:
        """The rows of a batch that belong to a slot."""
        key = (id(batch), None if split.anywhere else (split.keys or {})[name])
        if key not in self._shares:
            self._shares[key] = _share(batch, split, name, index, slots)
        return self._shares[key]

    def _read(self, frames: Sequence[Frame], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for frame in frames:
            if frame.path not in self._files or len(self._files[frame.path]) < frame.end:
                self._files[frame.path] = mapped(frame.path)
            yield unpacked(payload(self._files[frame.path], frame), schema)


def _share(batch: Batch, split: Split, name: str, index: int, slots: int) -> Batch:
    if split.anywhere:
        mine: npt.NDArray[np.bool_] = (batch.arrival >> _BLOCK_BITS) % slots == index
    else:
        assert split.keys is not None, "a query without a key runs in one slot"
        mine = shard_of([batch.table.column(c).combine_chunks() for c in split.keys[name]], slots) == index
    return batch if mine.all() else batch.take(np.flatnonzero(mine))


def _my_changes(
    changes: Sequence[Change], schema: Schema, keys: Mapping[str, tuple[int, ...]], name: str, index: int, slots: int
) -> list[Change]:
    if not changes:
        return []
    columns = [to_arrow([c.row[i] for c in changes], schema[i].type) for i in keys[name]]
    mine = shard_of(columns, slots) == index
    return [change for change, is_mine in zip(changes, mine.tolist(), strict=True) if is_mine]


# -- files --------------------------------------------------------------------------------------------


def changes_batch(schema: Schema, changes: Sequence[Change]) -> pa.RecordBatch:
    """Changes of a relation for its log."""
    columns = [to_arrow([c.row[i] for c in changes], f.type) for i, f in enumerate(schema)]
    more = [
        pa.array([c.ts for c in changes], pa.int64()), pa.array([c.sign for c in changes], pa.int8()),
        pa.array([c.arrival for c in changes], pa.int64()), pa.array([c.group for c in changes], pa.int64()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays([*columns, *more], schema=changes_schema(schema))


def changes_of(schema: Schema, batch: pa.RecordBatch) -> list[Change]:
    """The changes of ``changes_batch``."""
    table = pa.Table.from_batches([batch])
    rows = to_rows(table.select(list(range(len(schema)))), schema)
    more = [table.column(len(schema) + i).to_pylist() for i in range(4)]
    return [Change(t, s, row, a, g) for row, t, s, a, g in zip(rows, *more, strict=True)]


def answers_table(delta: Delta) -> pa.Table:
    """Answers with all that is needed to put those of several slots in order."""
    columns = {f"c{i}": column for i, column in enumerate(delta.columns)}
    columns |= {"ts": pa.array(delta.ts), "sub": pa.array(delta.sub), "sign": pa.array(delta.sign)}
    if delta.priority is not None:
        columns["priority"] = pa.array(delta.priority)
    return pa.table(columns)


def read_answers(schema: Schema, paths: Sequence[Path]) -> Delta:
    """The answers of one micro-batch, of all slots, in order."""
    found: list[Delta] = []
    for path in paths:
        try:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise CheckpointError(f"{path}: these answers cannot be read: {error}") from None
        ts, sub, sign = (table.column(n).combine_chunks().to_numpy() for n in ("ts", "sub", "sign"))
        columns = tuple(table.column(f"c{i}").combine_chunks() for i in range(len(schema)))
        priority = table.column("priority").to_numpy() if "priority" in table.column_names else None
        found.append(Delta(schema, columns, ts, sub, sign, ts, sub, priority))
    return merge(found)


def write_definition(path: Path, definition: Definition) -> None:
    """Put a query where workers find it, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(pickled(definition))
    part.rename(path)


def pickled(value: object) -> bytes:
    """A value with the functions in it, those of no module too."""
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def read_definition(path: Path) -> Definition:
    """The query that was put there."""
    try:
        found: Definition = pickle.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: this worker does not see the query",
            hint="on a cluster the directory of the database must be one that all machines share",
        ) from None
    return found


# -- in a worker --------------------------------------------------------------------------------------

_definitions: OrderedDict[tuple[str, str], Definition] = OrderedDict()
_kept: OrderedDict[tuple[str, int, int], Slot] = OrderedDict()


def forget_all() -> None:
    """Make this process one that has not worked on any slot."""
    _kept.clear()
    _definitions.clear()


def run_slot(plan: Plan, index: int) -> Report:
    """Do a slot's share of a micro-batch."""
    began = time.perf_counter()
    key = (plan.root, index, plan.slots)
    # Whatever happens now, what is kept is not the state after this micro-batch.
    slot = _kept.pop(key, None)
    if slot is None or not slot.goes_on_from(plan.base, plan.queries):
        if slot is not None:
            unsettle()
        slot = Slot(plan.root, index, plan.slots)
        if plan.base is not None:
            slot.load(plan.base, plan.queries)
    opened = time.perf_counter()
    outcomes = slot.step(plan)
    worked = time.perf_counter()
    written = slot.save()
    if plan.base is not None and plan.number % 8 == 0:
        slot.forget(plan.base)
    _kept[key] = slot
    while len(_kept) > _KEPT:
        _kept.popitem(last=False)
        unsettle()
    rows = sum(f.rows for frames in plan.frames.values() for f in frames)
    done = time.perf_counter()
    return Report(index, outcomes, rows, opened - began, worked - opened, done - worked, written)


def _failure(error: Exception) -> Failure:
    if isinstance(error, PenstockError):
        return Failure(type(error).__name__, error.message, error.hint)
    return Failure("", f"{type(error).__name__}: {error}")
