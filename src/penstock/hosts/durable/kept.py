"""An engine with a directory: what is written down when, what is saved, and how it all begins again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from penstock.hosts.core import Core
from penstock.hosts.durable import rowfiles
from penstock.hosts.durable.forms import Slots
from penstock.hosts.durable.keeper import Keeper, Saver
from penstock.hosts.durable.opening import Opening
from penstock.hosts.durable.picture import Picture
from penstock.hosts.host import QuerySettings
from penstock.hosts.options import Keeping
from penstock.hosts.registered import Registered
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.errors import StateError, StorageError
from penstock.operators.identity import Named
from penstock.operators.state import LoadedState, State
from penstock.scalar.zones import UTC
from penstock.storage.log import Log
from penstock.storage.objects import Root
from penstock.storage.shards import ANSWERS, PROGRAMS, QUERIES, ROWS, rows_files
from penstock.storage.store import Item, Store


class Host(Protocol):
    """What is asked of an engine that has a directory."""

    zone_is_free: bool
    """Whether nobody has said which time zone the database has: then it is that of its directory."""

    def restored(self, state: LoadedState, queries: Mapping[str, tuple[Registered, Mapping[str, Any]]]) -> None:
        """Go on with the queries of a database that was saved, from what ``taken`` had given."""

    def again(self, item: Item) -> None:
        """Do again what an entry of the engine's own says."""

    def taken(self) -> State:
        """What its operators remember; nothing is under way then. Under the lock."""

    def needed(self) -> int | None:
        """The number of the last entry that it does not read any more; None: it reads none. Under the lock."""


class Kept:
    """The directory of a database. Its thread, which saves the state, is stopped by ``close``."""

    def __init__(self, path: Root, core: Core, host: Host, keeping: Keeping, *, turns: bool = False) -> None:
        """``turns``: see ``Keeper``."""
        self._core, self._host, self.root = core, host, path
        self._trusted = keeping.functions
        self.keeper = Keeper(Store.open(path, sync=keeping.sync, quota=keeping.quota_bytes), core, turns=turns)
        self._picture = Picture(self.keeper, core)
        self._saver: Saver | None = None
        self.writing: set[str] = set()
        """How the names of files begin that are being written: no entry names them yet."""
        self._writing = ("", "", 0)
        """What is written down: kind, name, and the number of the last entry of its log before."""
        self._named: dict[str, int] = {}
        """Files with rows of streams, and the number of the last entry that names each. Bounded by what saved states
        and entries behind them need."""

    def open(self) -> None:
        """Take up what the directory has."""
        keeper, catalog = self.keeper, self._core.catalog
        asked = None if self._host.zone_is_free else catalog.zone
        first = catalog.zone
        try:
            Opening(
                keeper, self._picture, self._core, self._host.restored, self._host.again, trusted=self._trusted
            ).open()
            is_new = not keeper.store.number
            if asked is not None and (catalog.zone != asked or (is_new and asked != UTC)):
                catalog.zone = asked
                keeper.zone(asked)
            elif is_new and first != UTC:
                keeper.zone(first)
        except OSError as error:
            keeper.store.close()
            raise StorageError(f"{self.root}: cannot be opened: {error}") from error
        except BaseException:
            keeper.store.close()
            raise

    def begin(self) -> None:
        """Save the state from now on."""
        self._name_files()
        self._saver = Saver(self.keeper, self._core, self._taken, self._needed)

    def named(self, settings: QuerySettings) -> QuerySettings:
        """With functions that are told from others of their names."""
        if isinstance(settings.functions, Named):
            return settings
        versions = {name: f"{name}@{version}" for name, version in self.keeper.functions.items()}
        return replace(settings, functions=Named(settings.functions, versions))

    @property
    def gathers(self) -> bool:
        """Whether those who write at the same time share what it takes to be safe."""
        return self.keeper.store.sync_way == "group"

    def rows(self, source: StreamInput, turn: Batch, slots: Slots | None = None) -> Log | None:
        """Write down what a stream has taken in, with the rows whose turn has come: see ``Keeper.rows``."""
        self._begin("streams", source.definition.name)
        log = self.keeper.rows(source, turn, slots)
        new = () if source.came is None else source.came.files
        if new or source.spans:
            self._named |= {file.path: self.keeper.store.number for file in (*(s.file for s in source.spans), *new)}
        if log is not None:
            if new:
                self.keeper.store.grew(sum(file.size for file in new))
            self.keeper.store.begin_sync()  # queries are evaluated meanwhile
        return log

    def released(self, source: StreamInput) -> Batch:
        """The rows of files whose turn has come."""
        return rowfiles.read(self.keeper.store.files, source.spans, source.definition.schema)

    def changes(self, relation: RelationStore, changes: Sequence[Change]) -> Log | None:
        """Write down changes of a relation: see ``Keeper.changes``."""
        self._begin("relations", relation.definition.name)
        return self.keeper.changes(relation, changes)

    def _begin(self, kind: str, name: str) -> None:
        self._writing = kind, name, self.keeper.last(kind, name)

    @property
    def is_written(self) -> bool:
        """Whether what was to be written down last is in its log, though that was interrupted."""
        kind, name, before = self._writing
        return self.keeper.last(kind, name) > before

    def after(self) -> None:
        """The lock has been given back: return when what was written is as safe as was asked for."""
        if not self.keeper.again:
            self.keeper.wait()
            if self._saver is not None:
                self._saver.look()

    @property
    def saver(self) -> Saver:
        """What saves the state."""
        if self._saver is None:
            raise StateError("the database is closed", hint="connect again")
        return self._saver

    def _name_files(self) -> None:
        """Find the files that entries name which are still needed, those of dropped streams too. Others are removed
        when the next state has been saved: the one that there is may have rows of a dropped stream that waited."""
        store, after = self.keeper.store, self._passed(self._host.needed())
        for folder in (ROWS, ANSWERS, PROGRAMS, QUERIES):
            store.files.tidy(folder)  # tasks may have been killed
        for log in store.logs("streams") if store.files.names(ROWS) else ():
            for number, _, meta, _ in log.places(after):
                self._named |= {path: number for path, _ in rows_files(meta)}

    def _needed(self) -> int | None:
        needed = self._host.needed()
        self._forget_files(needed)
        return needed

    def _passed(self, needed: int | None) -> int:
        """The last entry that nothing needs any more."""
        oldest = self.keeper.store.oldest
        return oldest if needed is None else min(needed, oldest)

    def _forget_files(self, needed: int | None) -> None:
        """Remove files with rows that no entry which is needed names, and of which no rows wait."""
        files, upto = self.keeper.store.files, self._passed(needed)
        self._named = {path: number for path, number in self._named.items() if number > upto}
        used = {file.path for source in self._core.inputs.values() for file in source.parked} | self._named.keys()
        for name in files.names(ROWS):
            if f"{ROWS}/{name}" not in used and not name.startswith(tuple(self.writing)):
                with contextlib.suppress(OSError):
                    files.remove(f"{ROWS}/{name}")

    def _taken(self) -> State:
        operators = self._host.taken()
        self.keeper.forget_functions()
        return self._picture.taken(operators)

    def close(self) -> None:
        """Save what has happened, and let another process have the directory."""
        try:
            if self._saver is not None:
                self._saver.close()
        finally:
            self.keeper.again = self.keeper.closed = True
            self.keeper.store.close()
