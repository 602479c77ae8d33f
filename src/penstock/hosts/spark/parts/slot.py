"""What one task does: its share of every query of a part, for one micro-batch.

A slot opens the state that the micro-batch before left, gives every query the entries that are its own, and stores the
answers and the new state before it says that it is done. It writes only files that no other attempt names, so whether a
micro-batch counts, and which attempt at it, is decided by the database alone, afterwards. A query that comes from
another part brings the state that it had there, which is stored here with the first micro-batch.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.programs import Counts, GraphPrograms, Programs
from penstock.hosts.meter import Sample, sampled
from penstock.hosts.spark.parts.definitions import Definition, FunctionError, read_definition, read_past, read_program
from penstock.hosts.spark.parts.feed import Inputs, Share
from penstock.hosts.spark.parts.task import (
    Assigned,
    Base,
    Failure,
    Given,
    Outcome,
    Report,
    Spent,
    Task,
    Trouble,
    failure_of,
    live_split,
)
from penstock.hosts.spark.shard import Memory, Shard
from penstock.kernels.merging import end_to_end, places, put
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.delta import Delta, Ints, concat, priorities
from penstock.model.errors import CheckpointError, StorageError
from penstock.model.schema import Schema
from penstock.operators.base import StateSize
from penstock.operators.state import Loaded, LoadedState, Piece, Saved, State, under
from penstock.plan.nodes import functions_called
from penstock.storage.objects import files_at, joined
from penstock.storage.packing import gathered, packed, unpacked
from penstock.storage.shards import ANSWERS, RESTORE, slot_folder
from penstock.storage.versions import LOST, StateStore

_INLINE = 64 << 10
"""Answers of at most this many bytes go with the report; more go into a file."""
_FIRST = b"first"
"""In the metadata of a table of answers: the instant that theirs are counted from."""
FAMILY = "slot"
"""Where the state of a family says whose it is."""


@dataclass
class _Gave:
    """What a query has given so far in a micro-batch."""

    answers: list[Delta] = field(default_factory=list)
    error: Failure | None = None
    ended: bool = False
    failures: tuple[int, str | None] = (0, None)
    seconds: float = 0.0
    sizes: Mapping[str, StateSize] = field(default_factory=dict)
    counts: list[Counts] = field(default_factory=list)

    def count(self, before: Sequence[Counts], now: Sequence[Counts]) -> None:
        """Its operators have counted so much more."""
        had = self.counts or [(0, 0, 0, 0)] * len(now)
        self.counts = [
            (had[0] + now[0] - before[0], had[1] + now[1] - before[1], had[2] + now[2] - before[2],
             had[3] + now[3] - before[3])
            for had, before, now in zip(had, before, now, strict=True)
        ]  # fmt: skip


@dataclass(frozen=True)
class Segments:
    """The feed of a slot: a task, which names segments by path, the queries that have a share in it, and what is in the
    segments."""

    task: Task
    queries: Mapping[str, Assigned]
    inputs: Inputs


class Slot(Shard[Segments, dict[str, _Gave]]):
    """The running queries of one slot of a part.

    Queries that began together, with the same rows, are a family: one graph, in which what is equal in them is there
    once.
    """

    def __init__(self, root: str, index: int, slots: int) -> None:
        self._root, self._index, self._slots = root, index, slots
        self._families: dict[str, _Family] = {}
        self._brought: dict[str, LoadedState] = {}
        """Of families that have come from elsewhere, and are not stored here yet, the state that they brought."""

    def take(self, state: LoadedState, feed: Segments, *, is_fresh: bool) -> None:
        """Families that run here take in what has changed, if they are still those that began then; others load."""
        here, self._families = self._families, {}
        wanted = {id for id, query in feed.queries.items() if query.origin is None}
        for name, of_family in families(state).items():
            members = [id for id in of_family[FAMILY].meta["queries"] if id in wanted]
            if not members:
                continue
            family = here.get(name)
            if family is not None and set(family.members) >= set(members):
                for id in set(family.members) - set(members):
                    family.remove(id)
                family.programs.catch_up(of_family)
            else:
                family = self._loaded(members, of_family)
            family.fed = of_family[FAMILY].meta["fed"]
            self._families[name] = family

    def step(self, feed: Segments) -> dict[str, _Gave]:
        """The micro-batch: what each query of this slot gave."""
        task, queries, inputs = feed.task, feed.queries, feed.inputs
        for name, family in list(self._families.items()):
            self._without(name, [i for i in family.members if i not in queries or queries[i].origin is not None])
        for id, query in queries.items():
            if query.origin is not None:
                name = f"{task.version}.{id}"
                self._families[name] = self._brought_from(*query.origin, id, name)
        failed = self._begin(task, queries)
        gave = {id: _Gave() for family in self._families.values() for id in family.members}
        gave |= {id: _Gave(error=failure) for id, failure in failed.items()}
        if not task.careful:
            self._advance_all(inputs, queries, gave, 0)
            return gave
        # What is given before the first entry, and then each entry as if it had come alone.
        for number in (0, *task.numbers):
            for name, family in list(self._families.items()):
                self._without(name, [id for id in family.members if 0 < task.verdicts.get(id, 0) <= number])
            self._advance_all(inputs.only(number), queries, gave, number)
        return gave

    def _advance_all(
        self, inputs: Inputs, queries: Mapping[str, Assigned], gave: Mapping[str, _Gave], number: int
    ) -> None:
        for name, family in list(self._families.items()):
            try:
                self._advance(family, queries, inputs, gave, number)
            except Exception as error:
                if isinstance(error, OSError | StorageError | CheckpointError):
                    raise
                for id in family.members:
                    gave[id].error = failure_of(error, number)
            self._without(name, [id for id in family.members if gave[id].error is not None])

    def _without(self, name: str, ids: Sequence[str]) -> None:
        """Go on without some queries of a family."""
        family = self._families[name]
        for id in ids:
            family.remove(id)
        if not family.members:
            del self._families[name]

    def save(self) -> State:
        """What all families remember."""
        state: State = {}
        for name, family in self._families.items():
            saved = family.programs.save()
            if name in self._brought:
                saved = _with_tables(saved, self._brought[name])
            is_graph = isinstance(family.programs, GraphPrograms)
            known = Saved({"queries": sorted(family.members), "fed": family.fed, "graph": is_graph})
            state |= under(f"family {name}", {FAMILY: known, **saved})
        self._brought.clear()
        return state

    def _begin(self, task: Task, queries: Mapping[str, Assigned]) -> dict[str, Failure]:
        """Let queries begin that are new here, each with its company; gives the failures of queries whose functions
        cannot be loaded."""
        running = {id for family in self._families.values() for id in family.members}
        alike: dict[object, dict[str, Definition]] = {}
        failed: dict[str, Failure] = {}
        for id, query in queries.items():
            if id not in running:
                try:
                    definition = read_definition(self._root, id)
                except FunctionError as error:
                    failed[id] = failure_of(error)
                    continue
                alike.setdefault(_company(definition, query), {})[id] = definition
        if not alike:
            return failed
        unfed = {
            _company(first, queries[first.id]): family
            for family in self._families.values()
            for first in [next(iter(family.members.values()))]
            if not family.fed
        }
        for number, (company, definitions) in enumerate(alike.items()):
            family = unfed.get(company)
            pasts = {id: read_past(self._root, definition) for id, definition in definitions.items()}
            if family is not None and not any(p.rows or p.changes for p in pasts.values()):
                for definition in definitions.values():
                    family.add(definition)
                continue
            family = _Family(definitions)
            family.fed = any(p.rows or p.changes for p in pasts.values())
            changes = {name: some for p in pasts.values() for name, some in p.changes.items()}
            rows = {name: some for p in pasts.values() for name, some in p.rows.items()}
            family.begin(changes, rows, queries[next(iter(definitions))].slot, self._index, self._slots)
            self._families[f"{task.version}.{number}"] = family
        return failed

    def _advance(
        self, family: _Family, queries: Mapping[str, Assigned], inputs: Inputs, gave: Mapping[str, _Gave], number: int
    ) -> None:
        programs = family.programs
        query = queries[next(iter(family.members))]
        before = {id: (programs.busy(id), programs.counted(id)) for id in family.members}
        # Changes first: a stream that this closes was open when they were made.
        for name, changes in inputs.changes({n: family.sources[n] for n in family.relations}, query.start):
            family.fed = True
            changes = family.share(name, query.slot, self._index, self._slots).changes(changes, family.sources[name])
            if changes:
                programs.change(name, changes)
        shares = {name: family.share(name, query.slot, self._index, self._slots) for name in family.sources}
        for name, schema in family.sources.items():
            if not inputs.has(name) or name in family.relations:
                continue
            family.fed, share = True, shares[name]
            batches, had = inputs.in_turn(name, schema, query, share)
            for batch in batches:
                programs.push(name, batch)
                if batch is not batches[-1]:
                    programs.progress(name, int(batch.ts[-1]))
                    programs.flush(name)
            if had is not None and len(had):
                programs.reach(name, had)
            # Shards without the last row know as well how far the stream is.
            furthest = inputs.furthest(name, schema, query.start)
            if furthest > -math.inf:
                programs.progress(name, furthest)
            for progress in inputs.progress(name, query.start):
                if progress > -math.inf:
                    programs.progress(name, progress)
        ahead = {name: inputs.early(name, schema, query, shares[name]) for name, schema in family.sources.items()}
        found = {name: early for name, early in ahead.items() if early is not None}
        if found:
            family.fed = True
            for name in family.sources:
                programs.flush(name)  # those that overtake see all whose turn it is
        for name, early in found.items():
            if len(early.rows):
                programs.push_early(name, early.rows, early.reached)
        for id, answers in programs.run().items():
            mine = gave[id]
            if isinstance(answers, Exception):
                mine.error = failure_of(answers, number)
                continue
            mine.answers += answers
            mine.ended, mine.failures, mine.sizes = programs.ended(id), programs.failures(id), programs.size_of(id)
            mine.seconds += programs.busy(id) - before[id][0]
            mine.count(before[id][1], programs.counted(id))

    def _brought_from(self, part: int, base: Base, id: str, name: str) -> _Family:
        """A query by itself, with the state that it has in another part."""
        found = families(store_of(self._root, part, self._index, self._slots).load(*base) or {}).values()
        of_family = next((f for f in found if id in f[FAMILY].meta["queries"]), None)
        if of_family is None:
            raise _missing(self._root, base[0], self._index)
        family = self._loaded([id], of_family)
        family.fed = True
        self._brought[name] = of_family
        return family

    def _loaded(self, members: Sequence[str], state: LoadedState) -> _Family:
        """Queries with what they remember, which several may share with others."""
        definitions = {id: read_definition(self._root, id) for id in members}
        if state[FAMILY].meta.get("graph"):
            return _Family(definitions, GraphPrograms(state, {id: d.raised for id, d in definitions.items()}))
        family = _Family(definitions)
        family.programs.load(state)
        return family


def store_of(root: str, part: int, slot: int, slots: int) -> StateStore:
    """Where a slot of a part has its state."""
    return StateStore(joined(root, slot_folder(part, slot, slots)), attempts=True, sync=True)


class _Family:
    """Queries in a slot that began together and are given the same rows; their definitions by id."""

    def __init__(self, definitions: Mapping[str, Definition], programs: Programs | None = None) -> None:
        self.members = dict(definitions)
        first = next(iter(definitions.values()))
        functions = first.functions if functions_called(first.plan) else {}
        self.programs = programs or Programs(
            {id: d.plan for id, d in definitions.items()}, functions, strict=first.strict
        )
        self.split = live_split(first.plan)
        self.sources = {name: schema for d in definitions.values() for name, schema in d.sources.items()}
        self.relations = frozenset(name for d in definitions.values() for name in d.relations)
        self.fed = False
        """Whether they have had anything but how far their streams are; others that begin now are another family."""

    def add(self, definition: Definition) -> None:
        """Another query that begins with them."""
        self.members[definition.id] = definition
        self.sources |= definition.sources
        self.programs.add(definition.id, definition.plan, definition.progress)

    def share(self, name: str, slot: int | None, index: int, slots: int) -> Share:
        """Which rows or changes of a stream or relation they take in a slot. ``slot``: the only one they run in."""
        return Share.of(self.split, name, slot, index, slots)

    def remove(self, id: str) -> None:
        """Go on without a query."""
        del self.members[id]
        self.programs.remove(id)

    def begin(
        self, changes: Mapping[str, Sequence[Change]], rows: Mapping[str, Sequence[Batch]], slot: int | None,
        index: int, slots: int,
    ) -> None:  # fmt: skip
        """Give the queries what was there when they were registered, which is the same for all."""
        progress = {name: at for d in self.members.values() for name, at in d.progress.items()}
        for name, some in changes.items():
            mine = self.share(name, slot, index, slots).changes(some, self.sources[name])
            if mine:
                self.programs.change(name, mine)
        for name, batches in rows.items():
            for batch in batches:
                mine_too = self.share(name, slot, index, slots).rows(batch)
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


def families(state: LoadedState) -> dict[str, LoadedState]:
    """What a slot has stored of each of its families, by name."""
    found: dict[str, dict[str, Loaded]] = {}
    for path, loaded in state.items():
        kind, _, rest = path.partition(" ")
        name, _, inside = rest.partition("/")
        if kind == "family":
            found.setdefault(name, {})[inside] = loaded
    return dict(found)


def _missing(root: str, version: int, index: int) -> CheckpointError:
    return CheckpointError(
        f"{root}: the state of micro-batch {version} is missing in slot {index}",
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


# -- answers ------------------------------------------------------------------------------------------


def answers_table(answers: Sequence[Delta]) -> pa.Table:
    """Answers with all that is needed to put those of several slots in order. Those that are before their place go back
    to it."""
    found = [delta for delta in answers if len(delta)]
    ends = ((last.ts[-1], last.sub[-1], next.ts[0], next.sub[0]) for last, next in pairwise(found))
    if not (all(map(_is_in_order, found)) and all((t, s) <= (u, v) for t, s, u, v in ends)):
        whole = concat(found)
        found = [whole.take(np.lexsort((whole.sub, whole.ts)))]
    columns = {f"c{i}": pa.chunked_array([delta.columns[i] for delta in found]) for i in range(len(found[0].columns))}
    first = int(found[0].ts[0])
    columns["ts"] = _short([delta.ts - first for delta in found])
    columns["sub"] = _short([delta.sub for delta in found])
    columns["sign"] = pa.chunked_array([pa.array(delta.sign) for delta in found])
    if any(delta.priority is not None for delta in found):
        columns["priority"] = pa.chunked_array([pa.array(p) for p in map(_priorities, found)])
    return pa.table(columns, metadata={_FIRST: str(first)})


def _short(runs: Sequence[Ints]) -> pa.ChunkedArray:
    """Numbers in as few bytes as hold all of them."""
    least, most = min(int(run.min()) for run in runs), max(int(run.max()) for run in runs)
    kinds: list[type[np.signedinteger[Any]]] = [np.int8, np.int16, np.int32, np.int64]
    kind = next(k for k in kinds if np.iinfo(k).min <= least <= most <= np.iinfo(k).max)
    return pa.chunked_array([pa.array(run.astype(kind, copy=False)) for run in runs])


def _is_in_order(delta: Delta) -> bool:
    ts, sub = delta.ts, delta.sub
    return bool(((ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (sub[1:] >= sub[:-1]))).all())


def _priorities(delta: Delta) -> npt.NDArray[np.int64]:
    return np.zeros(len(delta), np.int64) if delta.priority is None else delta.priority


def read_answers(schema: Schema, contents: Sequence[pa.Buffer]) -> Delta:
    """The answers of one micro-batch, of all slots, in order: their instants, signs, priorities and columns."""
    tables = [unpacked(content) for content in contents]
    own = ([c.to_numpy() for t in tables for c in t.column(name).chunks] for name in ("ts", "sub", "sign"))
    ts, sub, sign = end_to_end(next(own), np.int64), end_to_end(next(own), np.int64), end_to_end(next(own), np.int8)
    start = 0
    for t in tables:
        ts[start : start + len(t)] += int(t.schema.metadata[_FIRST])
        start += len(t)
    priority = None
    if any("priority" in t.column_names for t in tables):
        given = (t.column("priority").to_numpy() if "priority" in t.column_names else np.zeros(len(t), np.int64)
                 for t in tables)  # fmt: skip
        priority = np.concatenate(list(given))
    runs = [[chunk for t in tables for chunk in t.column(f"c{i}").chunks] for i in range(len(schema))]
    if len(tables) == 1:
        return Delta(schema, tuple(map(pa.concat_arrays, runs)), ts, ts, sign, ts, ts, priority)
    where = places(ts, sub, sign, np.cumsum([len(t) for t in tables]))
    ts, sign = put([ts], where), put([sign], where)
    priority = None if priority is None else put([priority], where)
    columns = tuple(_in_place(chunks, where) for chunks in runs)
    return Delta(schema, columns, ts, ts, sign, ts, ts, priority)


def _in_place(chunks: Sequence[pa.Array], where: npt.NDArray[np.int64]) -> pa.Array:
    kind = chunks[0].type
    if (pa.types.is_integer(kind) or pa.types.is_float64(kind)) and not any(c.null_count for c in chunks):
        return pa.array(put([c.to_numpy() for c in chunks], where), kind)
    order = np.empty(len(where), np.int64)
    order[where] = np.arange(len(where))
    return pa.concat_arrays(chunks).take(pa.array(order))


def _sample(answers: Sequence[Delta]) -> Sample | None:
    found = [delta for delta in answers if len(delta)]
    if not found:
        return None
    ts, sub = (np.concatenate(of) for of in ([d.ts for d in found], [d.sub for d in found]))
    return sampled(ts, sub, priorities(found))


def _given(root: str, name: str, answers: Sequence[Delta]) -> Given | None:
    """Answers for the report, or in a file that it names."""
    rows = sum(map(len, answers))
    if not rows:
        return None
    table = answers_table(answers)
    if table.nbytes <= _INLINE:
        content = packed(table)
        return Given(rows, len(content), content, "", zlib.crc32(content))
    pieces = gathered(table)
    file = f"{ANSWERS}/{name}.arrow"
    files = files_at(root)
    files.make(ANSWERS, sync=True)
    files.put(file, pieces, sync=True)
    crc = reduce(lambda crc, piece: zlib.crc32(piece, crc), pieces, 0)
    return Given(rows, sum(len(memoryview(piece)) for piece in pieces), b"", file, crc)


# -- in a worker --------------------------------------------------------------------------------------

def run_task(task: Task, memory: Memory | None = None) -> Report | Trouble:
    """Do a slot's share of a micro-batch."""
    try:
        return _run(task, memory)
    except (OSError, StorageError, CheckpointError, FunctionError) as error:
        # Spark would try again at once, and bury the words.
        failure = failure_of(error)
        if failure.hint == LOST:
            failure = replace(failure, hint=RESTORE)
        return Trouble(task.slot, task.version, failure)


def _run(task: Task, memory: Memory | None) -> Report:
    began = time.perf_counter()
    queries = task.assigned(read_program(task.root, task.program))
    inputs = Inputs(task.root, task.frames, task.early, task.session)
    feed = Segments(task, queries, inputs)
    slot = Slot.open(
        store_of(task.root, task.part, task.slot, task.slots), task.base, feed,
        lambda: Slot(task.root, task.slot, task.slots), lambda version: _missing(task.root, version, task.slot),
        memory=memory,
    )  # fmt: skip
    opened = time.perf_counter()
    gave = slot.step(feed)
    worked = time.perf_counter()
    unique = f"{task.part}-{task.version}-{task.slot}-{os.urandom(6).hex()}"
    try:
        outcomes = {
            id: Outcome(
                _given(task.root, f"{unique}-{i}", g.answers), g.ended, *g.failures, g.error, g.seconds, g.sizes,
                g.counts, _sample(g.answers),
            )
            for i, (id, g) in enumerate(gave.items())
        }  # fmt: skip
        answered = time.perf_counter()
        attempt, written = slot.commit(task.version)
    except OSError:
        for i in range(len(gave)):
            with contextlib.suppress(OSError):
                files_at(task.root).remove(f"{ANSWERS}/{unique}-{i}.arrow")  # no report names it
        raise
    if task.forget is not None:
        slot.store.forget(task.forget)
    done = time.perf_counter()
    spent = Spent(
        opened - began, inputs.reading, inputs.splitting, worked - opened - inputs.reading - inputs.splitting,
        answered - worked, done - answered,
    )  # fmt: skip
    return Report(task.slot, task.version, attempt, outcomes, task.rows, spent, written, slot.missed)
