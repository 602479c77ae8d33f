"""Opening a directory: the saved state, and all that happened since, done again in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from penstock.catalog import FunctionDef
from penstock.graph.relations import changes_from
from penstock.hosts.core import Core
from penstock.hosts.durable import forms
from penstock.hosts.durable.keeper import Keeper
from penstock.hosts.durable.picture import Picture, declare_again
from penstock.hosts.registered import Over, Registered
from penstock.hosts.results import DEFAULT
from penstock.ingest.streams import StreamInput
from penstock.model.errors import PenstockError, PlanError, StorageError
from penstock.operators.identity import Named
from penstock.operators.state import LoadedState, below
from penstock.plan.meanings import changed_in_plan
from penstock.plan.serial import from_json
from penstock.storage.store import Item

Graph = Callable[[LoadedState, Mapping[str, tuple[Registered, Mapping[str, Any]]]], None]
"""Takes the state of the operators, and the queries with what was saved of each."""


class Opening:
    """Makes an empty database what a directory says. ``trusted``: the code of functions that it has may be run."""

    def __init__(
        self, keeper: Keeper, picture: Picture, core: Core, graph: Graph, own: Callable[[Item], None], *, trusted: bool
    ) -> None:
        """``own``: takes entries of which only the host knows what they are."""
        self._keeper, self._picture, self._core, self._graph, self._own = keeper, picture, core, graph, own
        self._trusted = trusted
        self._functions: dict[str, FunctionDef] = {}

    def open(self) -> None:
        """Do so; from here on everything is written down."""
        keeper, store = self._keeper, self._keeper.store
        state, items = store.recover()
        if state is not None:
            facts = state["database"].meta
            self._core.catalog.zone = facts["zone"]
            for record in facts["known"].values():
                self._known(record)
            keeper.functions.update(facts["functions"])
            for name, version in keeper.functions.items():
                self._core.catalog.add_function(self._functions[f"{name}@{version}"])
            self._picture.restored(state, self._queries)
        over = [query for query in self._core.queries.values() if query.status != "running"]
        for item in items:
            try:
                self._again(item)
            except StorageError:
                raise
            except PenstockError as error:
                raise StorageError(
                    f"{store.files.name}: entry {item.number} ({item.kind} {item.name}) is refused: {error.one_line}",
                    hint="open it with the release of Penstock that wrote it",
                ) from error
        for query in self._core.queries.values():
            if query.status != "running" and query not in over:
                query.ended = None  # some time before this process began
        store.begin()
        self._forget_code()
        keeper.again = False

    def _forget_code(self) -> None:
        """Let go of code that neither queries, kept states nor records name."""
        store, used = self._keeper.store, set(self._keeper.known)
        try:
            for version in store.states.versions:
                used |= store.states.meta(version, "database")["known"].keys()
            for _, record in store.records.read():
                if record["kind"] == "function":
                    used.add(f"{record['name']}@{record['version']}")
        except StorageError:
            return  # a version or record cannot be read: all code is kept
        store.forget_code(used)

    # -- what happened --------------------------------------------------------------------------------

    def _again(self, item: Item) -> None:
        match item.kind:
            case "streams":
                self._rows(item)
            case "relations":
                assert item.rows is not None
                schema = self._core.relations[item.name].definition.schema
                meta = item.meta
                self._core.changed_again(
                    item.name, changes_from(schema, item.rows), meta["clock"], meta["times"], forms.key_again(meta)
                )
            case "deliveries":
                self._keeper.notes |= item.meta.get("notes", {})
                # One that was stopped can still be read; what was read then does not matter any more.
                for query in self._core.queries.values():
                    if query.runner.facts()["number"] == item.meta.get("query"):
                        if "rows" in item.meta and not query.results.has_confirmed(DEFAULT, item.meta["upto"]):
                            query.results.put_first(item.meta["rows"])
                        query.results.confirm(DEFAULT, item.meta["upto"])
            case "results":
                self._own(item)
            case _ if item.meta["kind"] == "parts":
                self._own(item)
            case _:
                self._record(item.meta)

    def _rows(self, item: Item) -> None:
        source, meta = self._core.inputs[item.name], item.meta
        if "taken" in meta:
            if meta["taken"] == "late":
                source.take_late()
            else:
                source.take_apart()
            return
        if "dropped" in meta:
            self._core.lacking(item.name, *meta["dropped"])
            return
        assert item.rows is not None
        came = forms.came_again(meta, item.rows, source.definition.schema)
        progress, newest = forms.instant_again(meta["p"]), forms.instant_again(meta["n"])
        closed = meta.get("closed", False)
        spans = forms.spans_again(meta)
        self._core.again(
            item.name,
            partial(StreamInput.again, came=came, progress=progress, newest=newest, closed=closed, spans=spans),
        )

    def _record(self, record: Mapping[str, Any]) -> None:
        core, keeper = self._core, self._keeper
        match record["kind"]:
            case "declare":
                declare_again(core, record)
                keeper.declare(dict(record))
            case "drop":
                core.drop(record["name"])
                keeper.drop(record["name"])
            case "function":
                definition = self._known(record)
                keeper.functions[definition.name] = record["version"]
                core.catalog.add_function(definition)
            case "zone":
                core.catalog.zone = record["zone"]
            case "query":
                if "into" in record:
                    self._record(record["into"])
                core.query_count = record["count"]
                core.start(self._made(record))
            case "stop":
                core.stop(core.queries[record["name"]], Over(**record["over"]) if "over" in record else None)
            case "alter":
                core.alter_again(record["name"], forms.options_again(record["options"]), record["suspended"])
            case other:
                raise StorageError(
                    f"there is a record `{other}`, which this release does not know",
                    hint="open it with the release of Penstock that wrote it",
                )

    # -- queries and functions ------------------------------------------------------------------------

    def _known(self, record: Mapping[str, Any]) -> FunctionDef:
        store = self._keeper.store
        if not self._trusted:
            raise StorageError(
                f"{store.files.name}: the database calls Python functions, such as `{record['name']}`",
                hint="connect(…, functions=True) runs their code, which is in the directory: do so if you trust it",
            )
        name = f"{record['name']}@{record['version']}"
        definition = forms.function_again(record, store.code(name))
        self._functions[name] = definition
        self._keeper.known[name] = dict(record)
        return definition

    def _made(self, record: Mapping[str, Any]) -> Registered:
        plan, running = record["plan"], record.get("status", "running") == "running"
        changed = changed_in_plan(plan["query"], plan["penstock_plan"])
        versions = record.get("functions", {})
        calls = {name: self._functions[f"{name}@{version}"].call for name, version in versions.items()}
        functions = Named(calls, {name: f"{name}@{version}" for name, version in versions.items()})
        query = self._core.made(
            record["name"], from_json(plan, whatever_it_meant=True), functions, frozenset(record["reads"]),
            forms.options_again(record["options"]), record["text"],
        )  # fmt: skip
        query.versions = dict(versions)
        query.placement = record.get("placement", {})
        query.suspended = record.get("suspended", False)
        if query.suspended:
            query.meter.look_up()  # what comes waits for a later call
        if running and changed is not None:
            name, what = changed
            query.status, query.error = (
                "failed",
                PlanError(
                    f"query `{query.name}`: `{name}` has another meaning than when the query was stored: {what}",
                    hint="stop it and register it anew; answers that it gave before can be fetched",
                ),
            )
        return query

    def _queries(self, records: Iterable[Mapping[str, Any]], state: LoadedState) -> None:
        queries: dict[str, tuple[Registered, Mapping[str, Any]]] = {}
        for record in records:
            query = self._made(record)
            failed = query.error
            self._picture.query_again(query, record, state[f"query {query.name}"])
            if failed is not None:
                query.status, query.error = "failed", failed
            self._core.restore(query)
            queries[query.name] = query, record
        self._graph(below("graph", state), queries)
