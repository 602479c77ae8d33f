"""What a database has declared: put into the catalog, and told to the host, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.catalog import Catalog, FunctionDef, RelationDef, StreamDef, ViewDef
from penstock.hosts.history import History
from penstock.hosts.host import Host
from penstock.hosts.registered import Registered
from penstock.ingest.instants import Instants
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.errors import CatalogError, PenstockError
from penstock.runtime.storage.storage import Storage


class Declaring:
    """The part of ``Core`` that declares. All calls come under the lock."""

    catalog: Catalog
    clock: Callable[[], int]
    host: Host
    inputs: dict[str, StreamInput]
    relations: dict[str, RelationStore]
    history: dict[str, History]
    queries: dict[str, Registered]
    instants: Instants
    _stamped: tuple[str, ...]
    _idle: tuple[str, ...]
    _disk: Storage | None = None
    """Of an engine that has none. ``close`` removes its files."""

    def disk(self) -> Storage:
        """Where rows go that streams retain and that memory does not keep."""
        found = self.host.abilities().disk()
        if found is None:
            found = self._disk = self._disk or Storage()
        return found

    def add_stream(self, definition: StreamDef) -> None:
        """Declare a stream; one that is not derived gets an input."""
        self._add(definition)
        if not definition.derived:
            self.inputs[definition.name] = StreamInput(definition, self.clock)
            if definition.timestamp_by is None:
                self._stamped = (*self._stamped, definition.name)
            elif definition.idle:
                self._idle = (*self._idle, definition.name)
            if definition.retain:
                self.history[definition.name] = History(definition, self.disk)

    def add_relation(self, store: RelationStore) -> None:
        """Declare a relation."""
        self._add(store.definition)
        self.relations[store.definition.name] = store

    def _add(self, definition: StreamDef | RelationDef) -> None:
        """Let the catalog have it, if the host takes it."""
        position = self.catalog.next_position

        def undo() -> None:
            self.catalog.remove(definition.name)
            self.catalog.skip_positions(position)

        self.catalog.add(definition)
        self._declared(definition, undo)

    def replace_view(self, view: ViewDef) -> None:
        """Declare a view, in the place of one of the same name."""
        before = dict(self.catalog.views)
        self.catalog.replace_view(view)
        self._declared(view, lambda: self.catalog.restore_views(before))

    def put(self, definition: StreamDef | RelationDef | ViewDef) -> None:
        """Declare something."""
        match definition:
            case StreamDef():
                self.add_stream(definition)
            case RelationDef():
                self.add_relation(RelationStore(definition))
            case ViewDef():
                self.replace_view(definition)

    def add_function(self, definition: FunctionDef) -> None:
        """Let queries call a function of the user's."""
        before = self.catalog.functions.get(definition.name)
        self.catalog.add_function(definition)
        self._declared(definition, lambda: self.catalog.restore_function(definition.name, before))

    def _declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef, undo: Callable[[], None]) -> None:
        """Let the host know; if it cannot take it, nothing has been declared."""
        try:
            self.host.declared(definition)
        except PenstockError:
            undo()
            raise

    def drop(self, name: str) -> None:
        """Forget a stream, relation or view that nothing uses."""
        users = [f"query `{q.name}`" for q in self.queries.values() if name in q.reads and q.status == "running"]
        users += [f"stream `{s.name}`" for s in self.catalog.streams.values() if name in s.reads]
        users += [f"view `{v.name}`" for v in self.catalog.views.values() if name in v.reads]
        if users:
            raise CatalogError(f"`{name}` is used by {', '.join(users)}", hint="stop or drop those first")
        self.catalog.check_there(name)
        self.host.dropped(name)
        self.catalog.remove(name)
        self.instants.dropping(name)
        tables: tuple[dict[str, Any], ...] = (self.inputs, self.relations, self.history)
        for table in tables:
            table.pop(name, None)
        self._stamped = tuple(other for other in self._stamped if other != name)
        self._idle = tuple(other for other in self._idle if other != name)
