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
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from penstock.graph.programs import Programs
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
from penstock.model.batch import Batch
from penstock.model.delta import Delta, concat, merge
from penstock.model.errors import CheckpointError, PenstockError
from penstock.model.schema import Schema
from penstock.operators.state import Loaded, LoadedState, Piece, Saved, State, under
from penstock.plan.nodes import functions_called
from penstock.storage.versions import StateStore

_KEPT = 64
_SLOT = "slot"
"""Where the state of a family says whose it is."""


class Slot:
    """The running queries of one slot of a part, as they are after micro-batch ``number``.

    Queries that began together, with the same rows, are a family: one graph, in which what is equal in them is there
    once.
    """

    def __init__(self, root: str, part: int, index: int, slots: int) -> None:
        self._index, self._slots = index, slots
        self._root = Path(root)
        self._store = self._store_of(part)
        self._families: dict[str, _Family] = {}
        self._brought: dict[str, LoadedState] = {}
        """Of families that have come from elsewhere, and are not stored here yet, the state that they brought."""
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
        """Families that run here take in what has changed, if they are still those that began then; others load."""
        here, self._families = self._families, {}
        wanted = {q.id: q for q in queries if q.origin is None}
        for name, of_family in _families(state).items():
            members = {id: wanted[id] for id in of_family[_SLOT].meta["queries"] if id in wanted}
            if not members:
                continue
            family = here.get(name)
            if family is not None and set(family.members) >= set(members):
                for id in set(family.members) - set(members):
                    family.remove(id)
                family.programs.catch_up(of_family)
            else:
                family = _Family({id: self._definition(id) for id in members})
                family.programs.load(of_family)
            family.fed = of_family[_SLOT].meta["fed"]
            self._families[name] = family
        self.number = number

    def step(self, plan: Plan) -> dict[str, Outcome]:
        """The micro-batch: what each query of this slot gave."""
        mine = {q.id: q for q in plan.queries if q.slot is None or q.slot == self._index}
        for name, family in list(self._families.items()):
            for id in [id for id in family.members if id not in mine or mine[id].origin is not None]:
                family.remove(id)
            if not family.members:
                del self._families[name]
        for id, query in mine.items():
            if query.origin is not None:
                name = f"{plan.number}.{id}"
                self._families[name] = self._brought_from(*query.origin, id, name)
        self._begin(plan, mine)
        inputs = Inputs(plan.frames, plan.early)
        outcomes: dict[str, Outcome] = {}
        for name, family in list(self._families.items()):
            try:
                outcomes |= self._advance(family, mine, plan, inputs)
            except Exception as error:
                outcomes |= {id: Outcome(error=_failure(error)) for id in family.members}
            for id in [id for id in family.members if outcomes[id].error is not None]:
                family.remove(id)
            if not family.members:
                del self._families[name]
        self.number = plan.number
        return outcomes

    def save(self) -> int:
        """Store the state; gives how many bytes were new."""
        assert self.number is not None, "a slot is saved after a step"
        state: State = {}
        for name, family in self._families.items():
            saved = family.programs.save()
            if name in self._brought:
                saved = _with_tables(saved, self._brought[name])
            known = Saved({"queries": sorted(family.members), "fed": family.fed})
            state |= under(f"family {name}", {_SLOT: known, **saved})
        before = self._store.written
        self._store.commit(self.number, state)
        self._brought.clear()
        return self._store.written - before

    def forget(self, before: int) -> None:
        """Remove what only micro-batches with lower numbers need."""
        self._store.forget(before)

    def _begin(self, plan: Plan, mine: Mapping[str, Assigned]) -> None:
        """Queries that are new here, with those that begin with the same rows."""
        running = {id for family in self._families.values() for id in family.members}
        alike: dict[object, dict[str, Definition]] = {}
        for id, query in mine.items():
            if id not in running:
                definition = self._definition(id)
                alike.setdefault(_company(definition, query), {})[id] = definition
        unfed = {
            _company(first, mine[first.id]): family
            for family in self._families.values()
            for first in [next(iter(family.members.values()))]
            if not family.fed
        }
        for number, (company, definitions) in enumerate(alike.items()):
            family = unfed.get(company)
            if family is not None and not any(d.rows or d.changes for d in definitions.values()):
                for definition in definitions.values():
                    family.add(definition)
                continue
            family = _Family(definitions)
            family.begin(mine[next(iter(definitions))].slot, self._index, self._slots)
            self._families[f"{plan.number}.{number}"] = family

    def _advance(self, family: _Family, mine: Mapping[str, Assigned], plan: Plan, inputs: Inputs) -> dict[str, Outcome]:
        programs = family.programs
        query = mine[next(iter(family.members))]
        before = {id: programs.busy(id) for id in family.members}
        # Changes first: a stream that this closes was open when they were made.
        for name, changes in inputs.changes({n: family.sources[n] for n in family.relations}, query.start):
            family.fed = True
            if query.slot is None:
                keys = family.split.keys or {}
                changes = my_changes(changes, family.sources[name], keys, name, self._index, self._slots)
            if changes:
                programs.change(name, changes)
        for name, schema in family.sources.items():
            early = inputs.early(name, schema, query)
            if early is not None:
                family.fed = True
                early = self._share(family, query, inputs, early, name)
                if len(early):
                    programs.push_early(name, early)
            if name not in plan.frames or name in family.relations:
                continue
            family.fed = True
            for batch, give in zip(inputs.in_turn(name, schema, query), (programs.push, programs.reach), strict=True):
                if batch is not None and len(batch):
                    furthest = int(batch.ts[-1])
                    batch = self._share(family, query, inputs, batch, name)
                    if len(batch):
                        give(name, batch)
                    # Shards without the last row know as well how far the stream is.
                    programs.progress(name, furthest)
            for progress in inputs.progress(name, query.start):
                programs.progress(name, progress)
        outcomes: dict[str, Outcome] = {}
        for id, answers in programs.run().items():
            if isinstance(answers, Exception):
                outcomes[id] = Outcome(error=_failure(answers))
                continue
            rows = sum(map(len, answers))
            file = self._write(id, plan.number, _in_order(answers)) if rows else ""
            failures, last = programs.failures(id)
            outcomes[id] = Outcome(
                rows, file, programs.ended(id), failures, last, sizes=programs.size_of(id),
                seconds=programs.busy(id) - before[id],
            )  # fmt: skip
        return outcomes

    def _share(self, family: _Family, query: Assigned, inputs: Inputs, batch: Batch, name: str) -> Batch:
        if query.slot is not None:
            return batch
        return inputs.share(batch, name, family.split, self._index, self._slots)

    def _brought_from(self, part: int, number: int, id: str, name: str) -> _Family:
        """A query by itself, with the state that it has in another part."""
        found = _families(self._store_of(part).load(number) or {}).values()
        of_family = next((f for f in found if id in f[_SLOT].meta["queries"]), None)
        if of_family is None:
            raise _missing(self._root, number, self._index)
        family = _Family({id: self._definition(id)})
        family.programs.load(of_family)
        family.fed = True
        self._brought[name] = of_family
        return family

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


class _Family:
    """Queries in a slot that began together and are given the same rows; their definitions by id."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.members = dict(definitions)
        first = next(iter(definitions.values()))
        functions = first.functions if functions_called(first.plan) else {}
        self.programs = Programs({id: d.plan for id, d in definitions.items()}, functions, strict=first.strict)
        self.split = live_split(first.plan)
        self.sources = {name: schema for d in definitions.values() for name, schema in d.sources.items()}
        self.relations = frozenset(name for d in definitions.values() for name in d.changes)
        self.fed = bool(self.relations) or any(d.rows for d in definitions.values())
        """Whether they have had anything but how far their streams are; others that begin now are another family."""

    def add(self, definition: Definition) -> None:
        """Another query that begins with them."""
        self.members[definition.id] = definition
        self.sources |= definition.sources
        self.programs.add(definition.id, definition.plan, definition.progress)

    def remove(self, id: str) -> None:
        """Go on without a query."""
        del self.members[id]
        self.programs.remove(id)

    def begin(self, slot: int | None, index: int, slots: int) -> None:
        """Give the queries what was there when they were registered, which is the same for all."""
        keys = self.split.keys or {}
        changes = {name: some for d in self.members.values() for name, some in d.changes.items()}
        rows = {name: some for d in self.members.values() for name, some in d.rows.items()}
        progress = {name: at for d in self.members.values() for name, at in d.progress.items()}
        for name, some in changes.items():
            mine = some if slot is not None else my_changes(some, self.sources[name], keys, name, index, slots)
            if mine:
                self.programs.change(name, mine)
        for name, batches in rows.items():
            for batch in batches:
                mine_too = batch if slot is not None else share_of(batch, self.split, name, index, slots)
                if len(mine_too):
                    self.programs.push(name, mine_too)
                self.programs.progress(name, int(batch.ts[-1]))
        for name, at in progress.items():
            self.programs.progress(name, at)
        self.programs.begin()


def _company(definition: Definition, query: Assigned) -> object:
    """Equal for queries that begin together with the same rows, and may share what they do with them.

    They read frames from the same number on, so that nothing happened between their registrations. Functions come with
    each query anew, and nobody knows whether they are the same.
    """
    if functions_called(definition.plan):
        return query.id
    split = live_split(definition.plan)
    keys = None if split.keys is None else tuple(sorted(split.keys.items()))
    return (query.start, query.slot, split.anywhere, keys, definition.strict, definition.apart)


def _in_order(answers: Sequence[Delta]) -> Delta:
    """Answers as one; those that are before their place go back to it, as among the answers of other slots."""
    found = concat(answers)
    ts, sub = found.ts, found.sub
    ordered = (ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (sub[1:] >= sub[:-1]))
    return found if ordered.all() else found.take(np.lexsort((sub, ts)))


def _families(state: LoadedState) -> dict[str, LoadedState]:
    """What a slot has stored of each of its families, by name."""
    found: dict[str, dict[str, Loaded]] = {}
    for path, loaded in state.items():
        kind, _, rest = path.partition(" ")
        name, _, inside = rest.partition("/")
        if kind == "family":
            found.setdefault(name, {})[inside] = loaded
    return dict(found)


def _missing(root: Path, number: int, index: int) -> CheckpointError:
    return CheckpointError(
        f"{root}: the state of micro-batch {number} is missing in slot {index}",
        hint="files are lost: restore the directory from a copy",
    )


def _with_tables(saved: State, brought: LoadedState) -> State:
    """With the tables of all pieces, for a store that has none of them."""
    return {
        path: Saved(of_path.meta, tuple(
            piece if piece.is_new else Piece(piece.name, brought[path].tables[piece.name])
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
