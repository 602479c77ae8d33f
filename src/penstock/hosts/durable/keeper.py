"""What a database writes down before it counts, so that nothing acknowledged is lost when its process ends.

Rows go into the log of their stream, changes into that of their relation; declarations, functions and queries become
records, deliveries an entry of their own log. Each has its number, and what happened is what the numbers say:
``Opening`` does all of it again from the last saved state on.

A thread saves the state from time to time (``Saver``), so that there is little to do again and logs can be forgotten.

Bounded by: the streams and relations; on disk by what ``storage.store`` says.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from penstock.catalog import FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.graph.relations import changes_schema, changes_table
from penstock.hosts.core import Core
from penstock.hosts.durable import forms
from penstock.hosts.registered import Registered
from penstock.hosts.trimming import TRIMMING
from penstock.hosts.turns import brief_turns
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.errors import PenstockError, StateError
from penstock.operators.state import State
from penstock.plan.nodes import functions_called
from penstock.storage.log import FRAME_BYTES, Log, Rows
from penstock.storage.store import Store

_log = logging.getLogger("penstock")
_NOTHING: pa.Schema = pa.schema([])
SECONDS = 5.0
"""So long after the first entry that is not in a saved state another one is saved."""
BYTES = 64 << 20
"""Or when they have this many bytes."""
_PRESSED = 1.0
"""Seconds between states that are saved because the quota is used up."""
_GIVE_WAY = 0.001
"""Seconds for threads that have waited for the lock: else the interpreter lets them wait for what follows, too."""
_PATIENCE = 60.0
"""Seconds after which a save that failed is tried again at the latest."""


class Keeper:
    """The directory of one database. All calls but ``delivered``, ``noted`` and ``wait`` come under the database's
    lock."""

    def __init__(self, store: Store, core: Core, *, turns: bool) -> None:
        """``turns``: logs are read by others, who need to know the rows whose turn has come."""
        self.store, self._core, self.turns = store, core, turns
        store.is_read = turns
        self.again = True
        """What happened before is being done again: it is written down already."""
        self.closed = False
        """Nothing is written down any more."""
        self._logs: dict[str, Log] = {}
        self.declarations: list[forms.Record] = []
        """What is declared, in its order; with what a view was before, where others that are there mean that."""
        self.functions: dict[str, int] = {}
        """The version of each function that queries which come now call."""
        self.known: dict[str, forms.Record] = {}
        """The functions whose code is kept: those, and older ones that queries call."""
        self._uncalled: dict[str, int] = {}
        """Code that is not needed any more, and by which entry that was so: older saved states may need it."""
        self.notes: dict[str, Any] = {}
        self._noting = threading.Lock()
        """Guards the notes, which come without the database's lock, and are written down when they are there."""
        self.changed = threading.Event()
        """There is something that is not in the saved state."""
        self.division: forms.Division | None = None
        """How the rows are divided that were written down last."""

    # -- what happens ---------------------------------------------------------------------------------

    def rows(self, source: StreamInput, turn: Batch, slots: forms.Slots | None = None) -> Log | None:
        """Write down what a stream has just taken in; gives the log that has it, None if one had it before. ``turn``:
        the rows whose turn has come. ``slots``: those who read them each want the rows of a slot."""
        if self.again:
            return None
        log = self._stream(source)
        came = source.came
        if source.spans:
            turn = source.nothing  # they are in files already
        turns = self.turns and source.definition.slack > 0
        if slots is not None:
            log.use(forms.rows_schema(source.definition, turns=turns, numbered=True))
        rows: Rows | None = forms.rows_table(came, turn, log.schema, turns=turns)
        meta = forms.rows_meta(source, came, turn, turns=self.turns)
        self.division = None
        if slots is not None and not isinstance(rows, list | None):
            rows, self.division = forms.divided(rows, turn, slots, FRAME_BYTES)
            meta["divided"] = self.division
        self._append(log, rows, meta, new=came is not None)
        return log

    def _stream(self, source: StreamInput) -> Log:
        definition = source.definition
        return self._log("streams", definition.name, lambda: forms.rows_schema(definition, turns=self.turns))

    def changes(self, relation: RelationStore, changes: Sequence[Change]) -> Log | None:
        """Write down changes of a relation; gives the log that has them, None if there is nothing to write down."""
        if self.again or not (changes or relation.key):
            return None
        schema = relation.definition.schema
        log = self._log("relations", relation.definition.name, lambda: changes_schema(schema))
        meta: dict[str, Any] = {"clock": relation.clock, "times": relation.times}
        if relation.key is not None:
            meta["key"] = relation.key
        self._append(log, changes_table(schema, changes), meta, new=any(c.sign > 0 for c in changes))
        return log

    def results(self, rows: pa.Table, meta: Mapping[str, Any]) -> int:
        """Write down what a micro-batch gave; gives the number of the entry."""
        return self._append(self._log("results", "default", lambda: rows.schema), rows, meta)

    def divided(self, record: forms.Record) -> None:
        """Write down how queries are divided from now on."""
        self._record({"kind": "parts", **record})

    def taken(self, source: StreamInput, what: str) -> None:
        """A user has taken the late rows of a stream, or those kept apart."""
        if not self.again:
            self._append(self._stream(source), None, {"taken": what})

    def dropped_rows(self, source: StreamInput, first: int, last: int) -> None:
        """Rows of a stream between two instants have been dropped: results lack them, whatever happens."""
        if not self.again:
            self._append(self._stream(source), None, {"dropped": [first, last]})

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        """Something was declared."""
        if self.again:
            return
        if isinstance(definition, FunctionDef):
            self.forget_functions()
            used = [record["version"] for record in self.known.values() if record["name"] == definition.name]
            version = max(used, default=0) + 1
            record = forms.function_record(definition, version)
            self.store.put_code(f"{definition.name}@{version}", forms.code_of(definition))
            self._record(record, new=True)
            self.functions[definition.name] = version
            self.known[f"{definition.name}@{version}"] = record
        else:
            record = forms.declared(definition, self._core.catalog)
            self._record(record, new=True)
            self.declare(record)

    def dropped(self, name: str) -> None:
        """Something was dropped."""
        if not self.again:
            self._record({"kind": "drop", "name": name})
            self.drop(name)

    def declare(self, record: forms.Record) -> None:
        """Count something as declared; a view may have been before."""
        self._declare([*self.declarations, record])

    def _declare(self, records: Sequence[forms.Record]) -> None:
        """Keep of these what is there, and what that was declared with."""
        found: list[forms.Record] = []
        read: dict[str, bool] = {}  # names that stand behind: whether something reads them as they were before that
        for record in reversed(records):
            if read.get(record["name"], True):
                found.append(record)
                read[record["name"]] = False
                read |= dict.fromkeys(record.get("reads", ()), True)
        self.declarations[:] = reversed(found)

    def forget_functions(self) -> None:
        """Let go of functions that have a newer version, or were dropped, and that no query calls."""
        used = {f"{name}@{version}" for name, version in self.functions.items()}
        for query in self._core.queries.values():
            used |= {f"{name}@{version}" for name, version in query.versions.items()}
        self._uncalled |= dict.fromkeys(self.known.keys() - used, self.store.number)
        self.known = {name: record for name, record in self.known.items() if name in used}

    def forget_code(self) -> None:
        """Remove the code of such functions, unless a saved state or an entry behind it calls them."""
        oldest = self.store.oldest
        gone = [name for name, number in self._uncalled.items() if number <= oldest]
        self.store.remove_code(gone)
        for name in gone:
            del self._uncalled[name]

    def drop(self, name: str) -> None:
        """Count something as dropped: what it has had is not needed any more once the state is saved."""
        self._declare([r for r in self.declarations if r["name"] != name])
        for kind in ("streams", "relations"):
            self._logs.pop(f"{kind}/{name}", None)
            self.store.drop(kind, name)

    def registered(self, query: Registered) -> int:
        """A query is about to begin; gives the number that tells it from others of its name."""
        if not self.again:
            query.versions = self.versions(query)
            record = self.query_record(query)
            if query.into is None:
                return self._record(record, new=True)
            made = forms.declared(query.into, self._core.catalog)
            number = self._record({**record, "into": made}, new=True)  # both, or none
            self.declare(made)
            query.into = None
            return number
        return self.store.number

    def versions(self, query: Registered) -> dict[str, int]:
        """The functions that a query calls, as they are now."""
        called = functions_called(query.plan)
        return {name: version for name, version in self.functions.items() if name in called}

    def query_record(self, query: Registered) -> forms.Record:
        """All that a query was registered with."""
        record: forms.Record = {
            "kind": "query", "name": query.name, "plan": query.plan_json, "text": query.text,
            "reads": sorted(query.reads), "options": forms.options_json(query.options), "count": self._core.query_count,
        }  # fmt: skip
        if query.suspended:
            record["suspended"] = True
        if query.versions:
            record["functions"] = dict(query.versions)
        return {**record, "placement": dict(query.placement)} if query.placement else record

    def zone(self, zone: str) -> None:
        """The database has another time zone from now on."""
        self._record({"kind": "zone", "zone": zone})

    def stopped(self, query: Registered) -> None:
        """A query is no more."""
        if not self.again:
            over = {} if query.over is None else {"over": asdict(query.over)}
            self._record({"kind": "stop", "name": query.name, **over})

    def altered(self, query: Registered, options: QueryOptions, suspended: bool) -> None:
        """A query has other options from now on, rests or goes on."""
        if not self.again:
            more = {"options": forms.options_json(options), "suspended": suspended}
            self._record({"kind": "alter", "name": query.name, **more})

    def delivered(
        self, query: int, upto: int, notes: Mapping[str, object] | None, rows: Sequence[int] | None = None
    ) -> None:
        """The reader ``default`` of the query with this number has all results before ``upto``. ``rows``: the
        digests of the results that it was given last, where they come again in another order."""
        if self.closed:
            raise StateError(
                "the database was closed while results were being read, so it is not written down that they were",
                hint="they come again when the directory is opened",
            )
        if not self.again:
            meta = {"query": query, "upto": upto}
            self._deliver(meta if rows is None else {**meta, "rows": [*rows]}, notes)

    def note(self, notes: Mapping[str, object]) -> None:
        """Keep something that users have noted."""
        self._deliver({}, notes)

    def _deliver(self, meta: dict[str, Any], notes: Mapping[str, object] | None) -> None:
        log = self._log("deliveries", "default", lambda: _NOTHING)
        with self._noting:
            self._append(log, None, {**meta, "notes": dict(notes)} if notes else meta)
            self.notes |= notes or {}

    def noted(self) -> dict[str, Any]:
        """All notes that have been written down."""
        with self._noting:
            return dict(self.notes)

    def _log(self, kind: str, name: str, schema: Callable[[], pa.Schema]) -> Log:
        key = f"{kind}/{name}"
        found = self._logs.get(key)
        if found is None:
            found = self._logs[key] = self.store.log(kind, name, schema())
        return found

    def last(self, kind: str, name: str) -> int:
        """The number of the last entry of a log; 0 if there is none."""
        found = self._logs.get(f"{kind}/{name}")
        return 0 if found is None else found.last

    def _append(
        self, log: Log, rows: Rows | None, meta: Mapping[str, Any], *, new: bool = False
    ) -> int:
        number = self.store.append(log, rows, meta, new=new)
        self.changed.set()
        return number

    def _record(self, record: forms.Record, *, new: bool = False) -> int:
        number = self.store.record(record, new=new)
        self.changed.set()
        return number

    def wait(self) -> None:
        """Return when everything written so far is as safe as was asked for. Without the lock."""
        self.store.wait(self.store.number)


class Saver:
    """The thread that saves the state: when much has happened since, or some time after something has.

    It is stopped by ``close``. While nothing happens it waits.
    """

    def __init__(
        self, keeper: Keeper, core: Core, taken: Callable[[], State], needed: Callable[[], int | None]
    ) -> None:
        """``taken`` gives the state; it is called under the lock, when nothing is under way. ``needed``: the number of
        the last entry that nobody reads any more, if others read the logs."""
        self._keeper, self._core, self._taken, self._needed = keeper, core, taken, needed
        self._wake = threading.Event()
        self._closed = False
        self._not_before = 0.0
        self._one = threading.Lock()
        self._spoilt = False
        """Whether the state cannot be taken any more."""
        self.trouble: PenstockError | None = None
        """Why the last save failed, if it did."""
        self._thread = threading.Thread(target=self._keep_saving, name="penstock-saver", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Entries have been added, or refused for the quota."""
        store = self._keeper.store
        if store.bytes_since > (BYTES if store.quota is None else min(BYTES, store.quota // 4)):
            self._wake.set()
        elif store.pressed and store.may_shrink and time.monotonic() > self._not_before:
            self._keeper.changed.set()
            self._wake.set()

    def _keep_saving(self) -> None:
        keeper = self._keeper
        pause = SECONDS
        while True:
            keeper.changed.wait()
            if not self._closed:
                self._wake.wait(pause)
            if self._closed:
                return
            self._wake.clear()
            try:
                self.save()
                pause = SECONDS
            except PenstockError as error:
                pause = min(2 * pause, _PATIENCE)
                _log.warning("the state cannot be saved, which is tried again in %.0f s: %s", pause, error.one_line)
            except Exception:
                pause = _PATIENCE
                _log.exception("the state cannot be saved")

    def save(self, *, again: bool = False) -> None:
        """Save the state as it is now; ``again``: also if nothing has been written down since. Without the lock."""
        store = self._keeper.store
        with self._one:
            pressed, refused = store.pressed, store.refused
            self._not_before = time.monotonic() + _PRESSED
            self._save(again=again)
            if pressed and store.may_shrink:
                self._save(again=True)  # lets the logs go that only the version before needs
            store.pressed = store.refused > refused  # this save may have come too late for what was refused meanwhile
        TRIMMING.trim()  # of the tables that were written

    def _save(self, *, again: bool = False) -> None:
        store, keeper = self._keeper.store, self._keeper
        with self._core.lock:
            keeper.changed.clear()
            if self._closed:
                keeper.changed.set()  # the thread, which may be the one that is here, is to see that it is over
            if store.number == store.saved and not again:
                return
            if self._spoilt or any(query.interrupted for query in self._core.queries.values()):
                return  # the last saved state and the logs have all of it
            number = store.rolled()
            try:
                state = self._taken()
            except BaseException:
                # Operators count what was taken of them as saved, though it is not: the next state would lack it.
                self._spoilt = True
                _log.error(
                    "taking the state was stopped half-way, so none is saved any more; nothing is lost, the logs have "
                    "all of it: close the database and open it again"
                )
                raise
        try:
            time.sleep(_GIVE_WAY)
            with brief_turns():  # pushes go on meanwhile
                store.save(number, state)
        except BaseException as error:
            store.states.keep(state)
            keeper.changed.set()
            if isinstance(error, PenstockError):
                self.trouble = error
            raise
        with self._core.lock:
            store.forget(self._needed())
            keeper.forget_code()
        self.trouble = None

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is written into the directory meanwhile but deliveries and notes."""
        with self._one, self._core.lock:
            yield

    def close(self) -> None:
        """End the thread, and save what has happened since."""
        self._closed = True
        self._keeper.changed.set()
        self._wake.set()
        self._thread.join()
        try:
            self.save()
        except PenstockError as error:
            # Nothing is lost: it is in the logs.
            _log.warning("the state was not saved on closing: %s", error.one_line)
