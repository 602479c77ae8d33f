"""The local engine with a directory: what is written down when, what is saved, and how it all begins again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.graph.saving import save
from penstock.hosts.core import Core
from penstock.hosts.durable.keeper import Keeper, Saver
from penstock.hosts.durable.opening import Opening
from penstock.hosts.durable.picture import Picture
from penstock.hosts.host import QuerySettings
from penstock.hosts.options import LocalOptions
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.change import Change
from penstock.model.errors import StateError, StorageError
from penstock.operators.identity import Named
from penstock.operators.state import State
from penstock.storage.store import Store

if TYPE_CHECKING:
    from penstock.hosts.local.host import LocalHost


class Kept:
    """The directory of a database on the local engine. Its thread, which saves the state, is stopped by ``close``."""

    def __init__(self, path: Path, core: Core, host: LocalHost, options: LocalOptions) -> None:
        self._core, self._host, self.root = core, host, path
        self._trusted = options.functions
        self.keeper = Keeper(Store.open(path, sync=options.sync, quota=options.quota_bytes), core)
        self._picture = Picture(self.keeper, core)
        self._saver: Saver | None = None
        self._writing = ("", "", 0)
        """What is written down: kind, name, and the number of the last entry of its log before."""

    def open(self) -> None:
        """Take up what the directory has."""
        keeper, catalog = self.keeper, self._core.catalog
        asked = None if self._host.zone_is_free else catalog.zone
        try:
            Opening(keeper, self._picture, self._core, self._host.restored, trusted=self._trusted).open()
            if asked is not None and catalog.zone != asked:
                catalog.zone = asked
                keeper.zone(asked)
        except OSError as error:
            keeper.store.close()
            raise StorageError(f"{self.root}: cannot be opened: {error}") from error
        except BaseException:
            keeper.store.close()
            raise
        self._saver = Saver(keeper, self._core, self._taken)

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

    def rows(self, source: StreamInput) -> None:
        """Write down what a stream has taken in."""
        self._begin("streams", source.definition.name)
        self.keeper.rows(source)

    def changes(self, relation: RelationStore, changes: Sequence[Change]) -> None:
        """Write down changes of a relation."""
        self._begin("relations", relation.definition.name)
        self.keeper.changes(relation, changes)

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

    def _taken(self) -> State:
        self._host.settled()
        for query in self._core.running():
            self._core.advance(query)
        self.keeper.forget_functions()
        return self._picture.taken(save(self._host.graph))

    def close(self) -> None:
        """Save what has happened, and let another process have the directory."""
        try:
            if self._saver is not None:
                self._saver.close()
        finally:
            self.keeper.again = self.keeper.closed = True
            self.keeper.store.close()
