"""The state of a database as pieces, taken while nothing is under way, and a database made of it again.

    database            what is declared, in the order in which it was; functions, notes, counters
    stream NAME         how far a stream is, the rows that wait for slack, are late or apart
    history NAME        the rows that a stream retains
    relation NAME       the rows of a relation, and the changes that are still to come for some
    query NAME          what a query was registered with and what became of it; the results that wait for readers
    graph/…             what the operators remember

Taking it costs what is new since it was taken last, and a little for everything that there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.cql.declarations import definition_again
from penstock.graph.relations import numbered_changes, numbered_from
from penstock.graph.saving import error_json, error_of
from penstock.hosts.core import Core
from penstock.hosts.durable import forms
from penstock.hosts.durable.keeper import Keeper
from penstock.hosts.history import History
from penstock.hosts.incomplete import Incomplete, plain
from penstock.hosts.registered import Before, Over, Registered
from penstock.hosts.results import Filing, Unread
from penstock.hosts.standing import Standing, Sum
from penstock.ingest.files import RowsFile
from penstock.ingest.keys import Keys
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch, Instant, concat
from penstock.model.change import Dating
from penstock.model.delta import Ints
from penstock.model.errors import PenstockError, StorageError
from penstock.model.schema import Schema, arrow_schema
from penstock.model.values import to_arrow, to_rows
from penstock.operators.pieces import KeyedPieces, RowPieces, Whole
from penstock.operators.state import Content, Loaded, LoadedState, Saved, State, together, under, with_meta
from penstock.rows.apart import SCHEMA, Kept
from penstock.scalar.zones import UTC

_Input = tuple["_Slack", RowPieces, RowPieces, Whole]
"""Of a stream: rows that wait for slack, rows that came late, rows apart, keys."""
_Relation = tuple[KeyedPieces, RowPieces, Whole]
"""Of a relation: rows, changes to come, keys."""
_Results = tuple[RowPieces, RowPieces]
"""Of a query: results that wait for readers, the answer as it stands."""
_P = TypeVar("_P")


class _Known(Generic[_P]):
    """The pieces of streams, relations or queries by name. What is dropped and declared again under its name is not
    what it was: it has pieces of its own. Bounded by what there was when the state was taken last."""

    def __init__(self, new: Callable[[], _P]) -> None:
        self._new = new
        self._known: dict[str, tuple[object, _P]] = {}

    def of(self, name: str, owner: object) -> _P:
        """The pieces of the owner, who has this name: a declaration, since what it declares is another object with
        each change, or a query."""
        found = self._known.get(name)
        if found is None or found[0] is not owner:
            found = self._known[name] = owner, self._new()
        return found[1]

    def keep(self, names: Container[str]) -> None:
        """Forget all but these."""
        for name in [n for n in self._known if n not in names]:
            del self._known[name]


class Picture:
    """Takes the state of a database, and gives it back. Bounded by what is declared and registered."""

    def __init__(self, keeper: Keeper, core: Core) -> None:
        self._keeper, self._core = keeper, core
        self._inputs: _Known[_Input] = _Known(_new_input)
        self._history: _Known[RowPieces] = _Known(RowPieces)
        self._relations: _Known[_Relation] = _Known(lambda: (KeyedPieces(), RowPieces(), Whole()))
        self._results: _Known[_Results] = _Known(lambda: (RowPieces(), RowPieces()))

    # -- taking ---------------------------------------------------------------------------------------

    def taken(self, operators: State) -> State:
        """The state of the database, of which operators remember this. Under the lock."""
        core = self._core
        state: State = {"database": Saved(self._database())}
        for name, source in core.inputs.items():
            state[f"stream {name}"] = self._stream(name, source)
        for name, history in core.history.items():
            state[f"history {name}"] = self._retained(name, history)
        for name, store in core.relations.items():
            state[f"relation {name}"] = self._relation(name, store)
        for name, query in core.queries.items():
            state[f"query {name}"] = self._query(query)
        self._inputs.keep(core.inputs)
        self._history.keep(core.history)
        self._relations.keep(core.relations)
        self._results.keep(core.queries)
        return state | under("graph", operators)

    def _database(self) -> forms.Record:
        core, keeper = self._core, self._keeper
        return {
            # Copies: it is written while others declare more.
            "declared": [*keeper.declarations],
            "functions": dict(keeper.functions),
            "known": dict(keeper.known),
            "next": core.catalog.next_position,
            "count": core.query_count,
            "notes": keeper.noted(),
            "zone": core.catalog.zone,
            "counted": core.instants.counted,
            "passed": {clock: forms.instant(at) for clock, at in core.instants.gone.items()},
            "order": list(core.queries),
            "over": [asdict(over) for over in core.over.values()],
        }

    def _stream(self, name: str, source: StreamInput) -> Saved:
        waiting, late, apart, keys = self._inputs.of(name, source.definition)
        meta: dict[str, Any] = {
            "progress": forms.instant(source.progress), "newest": forms.instant(source.newest_row),
            "promised": forms.instant(source.promised), "arrivals": source.arrivals, "closed": source.closed,
            "passed": forms.instant(source.passed),
        }  # fmt: skip
        if source.parked:
            meta["parked"] = [file.record() for file in source.parked]
        parts = together(
            waiting=waiting.save(source.nothing if source.held is None else source.held),
            late=_kept(late, source.late),
            apart=_kept(apart, source.apart),
            keys=keys.save(source.keys, source.keys.table),
        )
        return with_meta(parts, input=meta)

    def _retained(self, name: str, history: History) -> Saved:
        pieces = self._history.of(name, self._core.inputs[name].definition)
        tail, kept = history.head - history.rows, history.kept

        def rows(start: int, stop: int) -> Content:
            return lambda: forms.batch_table(concat(list(kept.between(start - tail, stop - tail))))

        saved = pieces.save(tail, history.head, rows)
        return with_meta(saved, gone=forms.instant(history.gone))

    def _relation(self, name: str, store: RelationStore) -> Saved:
        rows, later, keys = self._relations.of(name, store.definition)
        schema = store.definition.schema
        touched, there = store.touched()
        changed = np.array([n for n in touched if n in there], np.int64)
        gone = np.array([n for n in touched if n not in there], np.int64)
        waiting, passed = store.later, store.passed

        def table(ids: Ints) -> Content:
            return partial(_rows_table, schema, [there[n] for n in ids.tolist()])

        def changes(start: int, stop: int) -> Content:
            return partial(numbered_changes, schema, list(islice(waiting, start - passed, stop - passed)))

        parts = together(
            rows=rows.save(changed, gone, len(there), table),
            later=later.save(passed, passed + len(waiting), changes),
            keys=keys.save(store.keys, store.keys.table),
        )
        return with_meta(parts, relation=store.facts())

    def _query(self, query: Registered) -> Saved:
        pieces, summed = self._results.of(query.name, query)
        results = query.results
        results.add_up()
        record = self._keeper.query_record(query)
        record |= {
            "status": query.status, "ended": query.ended,
            "error": None if query.error is None else error_json(query.error),
            "failures": [query.runner.failures, query.runner.last_failure],
            "dating": asdict(query.dating),
            "before": {name: asdict(b) for name, b in query.before.items()},
            "runner": query.runner.facts(),
        }
        with query.lock:
            record["incomplete"] = plain(results.marks.all)
            kept, record["summed"] = results.kept()
            record["places"] = results.places()
            unread = results.unread(kept)
            waiting = pieces.save(unread.tail, unread.head, results.rows)
        record |= {"first": unread.first, "next": unread.next}
        if unread.files:
            record["files"] = unread.files
        if kept is None:
            return with_meta(together(waiting=waiting), query=record)
        standing = summed.save(kept.first, kept.first + kept.length, lambda *of: partial(kept.rows, *of))
        return with_meta(together(waiting=waiting, standing=standing), query=record)

    # -- giving back ----------------------------------------------------------------------------------

    def restored(self, state: LoadedState, queries: Callable[[Iterable[Mapping[str, Any]], LoadedState], None]) -> None:
        """Make an empty database what the state says. ``queries`` makes the runners of the running ones."""
        core, keeper = self._core, self._keeper
        facts = state["database"].meta
        for record in facts["declared"]:
            declare_again(core, record)
        core.catalog.skip_positions(facts["next"])
        core.query_count = facts["count"]
        core.instants.counted = facts["counted"]
        core.instants.gone.update({clock: forms.instant_again(at) for clock, at in facts["passed"].items()})
        core.over.update({over["name"]: Over(**over) for over in facts.get("over", ())})
        keeper.declarations[:] = facts["declared"]
        keeper.notes.update(facts["notes"])
        for name, source in core.inputs.items():
            if f"stream {name}" in state:
                self._stream_again(name, source, state[f"stream {name}"])
        for name in core.history:
            if f"history {name}" in state:
                self._retained_again(name, core.history[name], state[f"history {name}"])
        for name, store in core.relations.items():
            if f"relation {name}" in state:
                self._relation_again(name, store, state[f"relation {name}"])
                core.catalog.given_times = core.catalog.given_times or store.timed
        queries((state[f"query {name}"].meta["query"] for name in facts["order"]), state)

    def _retained_again(self, name: str, history: History, state: Loaded) -> None:
        pieces, source = self._history.of(name, self._core.inputs[name].definition), self._core.inputs[name]
        tail, head, tables = pieces.load(state)
        gone: Instant = -math.inf
        if "gone" in state.meta:
            gone = forms.instant_again(state.meta["gone"])
        elif tail:  # saved before it was known
            gone = min(source.passed, source.progress - source.definition.retain - 1)
        batches = (forms.batch_again(table, source.definition.schema) for table in tables)
        history.restore(batches, head, gone, source.progress)

    def _stream_again(self, name: str, source: StreamInput, state: Loaded) -> None:
        waiting, late, apart, keys = self._inputs.of(name, source.definition)
        meta, schema = state.meta["input"], source.definition.schema
        source.restore(
            forms.instant_again(meta["progress"]), forms.instant_again(meta["newest"]), meta["arrivals"],
            meta["closed"], waiting.load(state.part("waiting"), schema),
            _kept_again(late, arrow_schema(schema), state.part("late")),
            _kept_again(apart, SCHEMA, state.part("apart")), forms.instant_again(meta["promised"]),
            keys.load(state.part("keys"), Keys.of), tuple(map(RowsFile.of, meta.get("parked", ()))),
            forms.instant_again(meta["passed"]) if "passed" in meta else None,
        )  # fmt: skip

    def _relation_again(self, name: str, store: RelationStore, state: Loaded) -> None:
        rows, later, keys = self._relations.of(name, store.definition)
        schema = store.definition.schema
        ids, table = rows.load(state.part("rows"))
        passed, _, tables = later.load(state.part("later"))
        there = {} if table is None else dict(zip(ids.tolist(), to_rows(table, schema), strict=True))
        changes = [change for t in tables for change in numbered_from(schema, t)]
        store.restore(state.meta["relation"], there, changes, passed)
        store.keys = keys.load(state.part("keys"), Keys.of)
        store.untouched()

    def query_again(self, query: Registered, record: Mapping[str, Any], state: Loaded) -> None:
        """Give a query back what became of it, and the results that wait."""
        query.dating = Dating(**record["dating"])
        query.before = {name: Before(**b) for name, b in record["before"].items()}
        query.status, query.ended = record["status"], record.get("ended")
        query.error = None if record["error"] is None else forms.our_error(error_of(record["error"]))
        query.results.marks.all = tuple(Incomplete(**mark) for mark in record.get("incomplete", ()))
        pieces, summed = self._results.of(query.name, query)
        tail, head, tables = pieces.load(state.part("waiting"))
        files = record.get("files", [])
        unread = Unread(record.get("first", tail), record.get("next", head), tail, head, files)
        runner = query.runner
        found = [runner.stored(record) for _, record in files] if isinstance(runner, Filing) else []
        standing: Standing | None = None
        if "standing" in state.meta:
            standing = Standing(query.plan)
            start, stop, parts = summed.load(state.part("standing"))
            standing.restored(Sum(start, stop - start, tuple(parts), record["summed"]))
        query.results.restored(unread, tables, found, standing, record["summed"], record["places"])


class _Slack:
    """Rows that wait for slack, as entries whose ids are the numbers of their arrival."""

    def __init__(self) -> None:
        self._pieces = KeyedPieces()
        self._saved: Ints = np.empty(0, np.int64)
        """The ids at the last save, ascending."""

    def save(self, held: Batch) -> Saved:
        order = np.argsort(held.arrival)
        ids = held.arrival[order]
        new, gone = (np.setdiff1d(a, b, assume_unique=True) for a, b in ((ids, self._saved), (self._saved, ids)))
        self._saved = ids

        def table(some: Ints) -> Content:
            places = order[np.searchsorted(ids, some)]
            return lambda: forms.batch_table(held.take(places))

        return self._pieces.save(new, gone, len(ids), table)

    def load(self, state: Loaded, schema: Schema) -> list[Batch]:
        self._saved, table = self._pieces.load(state)
        if not len(self._saved):
            return []
        batch = forms.batch_again(table, schema)
        return [batch.take(np.argsort(batch.ts, kind="stable"))]


def _new_input() -> _Input:
    return _Slack(), RowPieces(), RowPieces(), Whole()


def _kept(pieces: RowPieces, kept: Kept) -> Saved:
    """Rows that nobody has taken; their numbers are how many there were before."""
    tail = kept.count - sum(map(len, kept.tables))
    return pieces.save(tail, kept.count, lambda start, stop: lambda: kept.table.slice(start - tail, stop - start))


def _kept_again(pieces: RowPieces, schema: pa.Schema, state: Loaded) -> Kept:
    _, count, tables = pieces.load(state)
    return Kept(schema, tuple(tables), count)


def _rows_table(schema: Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = [to_arrow([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
    return pa.Table.from_arrays(columns, names=[f"c{i}" for i in range(len(schema))])


def declare_again(core: Core, record: Mapping[str, Any]) -> None:
    """Declare what a record says, as it was bound then."""
    zone, core.catalog.zone = core.catalog.zone, record.get("zone", UTC)
    try:
        found = definition_again(record["text"], record["name"], record["position"], record["meanings"], core.catalog)
        if found is not None:
            core.put(found)
        core.catalog.skip_positions(max(core.catalog.next_position, record["next"]))
    except PenstockError as error:
        raise StorageError(
            f"`{record['name']}` of this database is refused by this release: {error.one_line}",
            hint="drop it with the release of Penstock that wrote it, or use another directory",
        ) from error
    finally:
        core.catalog.zone = zone
