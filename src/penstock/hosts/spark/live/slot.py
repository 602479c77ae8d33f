"""What one task does: its share of every query of a part, for one micro-batch.

A slot opens the state that the micro-batch before left, gives every query the frames that are its own, and stores the
answers and the new state before it says that it is done. It writes only files that no other micro-batch names, so
whether a micro-batch counts is decided by the driver alone, afterwards. A query that comes from another part brings the
state that it had there, which is stored here with the first micro-batch.

A worker process remembers the slots it has worked on (at most ``_KEPT``, which bounds its memory) and the definitions
of their queries. What it remembers counts only if it is the very state that is stored under the number that is asked
for, or one that this goes on from: then it takes in what has changed since.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

from penstock.delta import Delta, merge
from penstock.errors import CheckpointError, PenstockError
from penstock.hosts import QuerySettings
from penstock.hosts.local import LocalRunner
from penstock.hosts.spark.live.inputs import Inputs, my_changes, share_of
from penstock.hosts.spark.live.plan import (
    Assigned,
    Definition,
    Failure,
    Outcome,
    Plan,
    Report,
    live_split,
    state_folder,
)
from penstock.hosts.spark.worker import unsettle
from penstock.operators.state import LoadedState, Piece, Saved, State, below, under
from penstock.plan.nodes import Schema
from penstock.state import StateStore

_KEPT = 64
_SLOT = "slot"
"""Where a query's state says what the slot knows of it."""


class Slot:
    """The running queries of one slot of a part, as they are after micro-batch ``number``."""

    def __init__(self, root: str, part: int, index: int, slots: int) -> None:
        self._index, self._slots = index, slots
        self._root = Path(root)
        self._store = self._store_of(part)
        self._running: dict[str, _Running] = {}
        self._brought: dict[str, LoadedState] = {}
        """Of queries that have come from elsewhere, and are not stored here yet, the state that they brought."""
        self.number: int | None = None

    def _store_of(self, part: int) -> StateStore:
        folder = state_folder(self._root, part) / f"slot-{self._index:05d}-of-{self._slots:05d}"
        return StateStore(str(folder))

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
            raise _missing(self._root, number, self._index)
        self._take(number, queries, state)

    def _take(self, number: int, queries: Sequence[Assigned], state: LoadedState) -> None:
        """Queries that run here take in what has changed, if they are still those that began then; others load."""
        here, self._running = self._running, {}
        for query in queries:
            of_query = below(f"query {query.id}", state)
            if not of_query or query.origin is not None:
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
        for id, query in mine.items():
            if query.origin is not None:
                self._running[id] = self._brought_from(*query.origin, id, plan.number)
        inputs = Inputs(plan.frames)
        outcomes: dict[str, Outcome] = {}
        for id, query in mine.items():
            began = time.perf_counter()
            try:
                outcome = self._advance(id, query, plan, inputs)
                outcomes[id] = replace(outcome, seconds=time.perf_counter() - began)
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
            saved = running.runner.save()
            if id in self._brought:
                saved = _with_tables(saved, self._brought[id])
            state |= under(f"query {id}", {_SLOT: Saved({"began": running.began}), **saved})
        before = self._store.written
        self._store.commit(self.number, state)
        self._brought.clear()
        return self._store.written - before

    def forget(self, before: int) -> None:
        """Remove what only micro-batches with lower numbers need."""
        self._store.forget(before)

    def _advance(self, id: str, query: Assigned, plan: Plan, inputs: Inputs) -> Outcome:
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
                    changes = my_changes(changes, schema, running.split.keys or {}, name, self._index, self._slots)
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

    def _brought_from(self, part: int, number: int, id: str, now: int) -> _Running:
        """A query with the state that it has in another part."""
        of_query = below(f"query {id}", self._store_of(part).load(number) or {})
        if not of_query:
            raise _missing(self._root, number, self._index)
        running = _Running(self._definition(id), now)
        running.runner.load(of_query)
        self._brought[id] = of_query
        return running

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
            mine = changes if slot is not None else my_changes(changes, self.sources[name], keys, name, index, slots)
            if mine:
                self.runner.change(name, mine)
        for name, batches in given.rows.items():
            for batch in batches:
                mine_too = batch if slot is not None else share_of(batch, self.split, name, index, slots)
                if len(mine_too):
                    self.runner.push(name, mine_too)
                self.runner.progress(name, int(batch.ts[-1]))
        for name, progress in given.progress.items():
            self.runner.progress(name, progress)


def _missing(root: Path, number: int, index: int) -> CheckpointError:
    return CheckpointError(
        f"{root}: the state of micro-batch {number} is missing in slot {index}",
        hint="files are lost: restore the directory from a copy",
    )


def _with_tables(saved: State, brought: LoadedState) -> State:
    """With the tables of all pieces, for a store that has none of them."""
    return {
        path: Saved(of_path.meta, tuple(
            piece if piece.table is not None else Piece(piece.name, brought[path].tables[piece.name])
            for piece in of_path.pieces
        ))
        for path, of_path in saved.items()
    }  # fmt: skip


# -- files --------------------------------------------------------------------------------------------


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
Memory = OrderedDict[tuple[str, int, int, int], Slot]
"""Slots that a process remembers, by database, part, index and number of slots."""
_kept: Memory = OrderedDict()


def forget_all() -> None:
    """Make this process one that has not worked on any slot."""
    _kept.clear()
    _definitions.clear()


def run_slot(plan: Plan, index: int, kept: Memory | None = None) -> Report:
    """Do a slot's share of a micro-batch."""
    began = time.perf_counter()
    kept = _kept if kept is None else kept
    key = (plan.root, plan.part, index, plan.slots)
    # Whatever happens now, what is kept is not the state after this micro-batch.
    slot = kept.pop(key, None)
    if slot is None or not slot.goes_on_from(plan.base, plan.queries):
        if slot is not None:
            unsettle()
        slot = Slot(plan.root, plan.part, index, plan.slots)
        if plan.base is not None:
            slot.load(plan.base, plan.queries)
    opened = time.perf_counter()
    outcomes = slot.step(plan)
    worked = time.perf_counter()
    written = slot.save()
    if plan.forget is not None:
        slot.forget(plan.forget)
    kept[key] = slot
    while len(kept) > _KEPT:
        kept.popitem(last=False)
        unsettle()
    done = time.perf_counter()
    return Report(index, outcomes, plan.rows, opened - began, worked - opened, done - worked, written)


def _failure(error: Exception) -> Failure:
    if isinstance(error, PenstockError):
        return Failure(type(error).__name__, error.message, error.hint)
    return Failure("", f"{type(error).__name__}: {error}")
