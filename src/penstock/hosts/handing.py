"""A directory written by one engine, for the other: the state of the operators in its form, as another version of the
database's state.

The engine that wrote it has done all that its logs say, and has saved that; nothing else changes: streams, relations
and results stay as they are. From the local engine each query goes to one shard of Spark, since what its operators
remember is not cut by key; queries that are registered afterwards have all shards. From Spark each query keeps its
shards, which the local engine works on one after the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.graph.graph import Graph
from penstock.graph.programs import Programs
from penstock.graph.saving import only, save
from penstock.hosts.local.host import SLOTS
from penstock.hosts.local.sharded import KIND, shard_path
from penstock.hosts.spark.parts.definitions import Past, write_definition
from penstock.hosts.spark.parts.grouping import Settings
from penstock.hosts.spark.parts.runner import bases_again, bases_json, moved_again
from penstock.hosts.spark.parts.slot import FAMILY, families, store_of
from penstock.hosts.spark.parts.task import Base
from penstock.model.errors import StorageError
from penstock.operators.state import LoadedState, Piece, Saved, State, below, under
from penstock.plan.nodes import functions_called, relation_scans
from penstock.plan.serial import from_json
from penstock.storage.objects import Root, files_at
from penstock.storage.shards import PART, PARTS, SHARDS, part_folder
from penstock.storage.store import Store


def _saved(store: Store) -> tuple[int, LoadedState]:
    version = store.states.versions[-1] if store.states.versions else (0, 0, 0)
    if version[0] != store.number:
        raise StorageError(f"{store.files.name}: the state is not saved", hint="try again")
    return version[0], store.states.load(version)


def _carried(state: LoadedState) -> State:
    """What both engines read, which is not written again."""
    return {
        path: Saved(dict(loaded.meta), tuple(Piece(name) for name in loaded.tables))
        for path, loaded in state.items() if not path.startswith("graph/")
    }  # fmt: skip


def _whole(state: LoadedState) -> State:
    """A state with the tables of all its pieces."""
    return {
        path: Saved(dict(loaded.meta), tuple(Piece(name, loaded.tables[name]) for name in loaded.tables))
        for path, loaded in state.items()
    }  # fmt: skip


def _records(state: LoadedState) -> dict[str, Mapping[str, Any]]:
    return {name: state[f"query {name}"].meta["query"] for name in state["database"].meta["order"]}


def to_spark(store: Store, root: Root, slots: int) -> None:
    """Let Spark go on from what the local engine has saved. ``slots``: shards, where Spark has not said how many."""
    number, state = _saved(store)
    graph, found = below("graph", state), _carried(state)
    slots = graph[SLOTS].meta["slots"] if SLOTS in graph else slots
    files = files_at(root)
    used = [int(m[1]) for m in map(PART.fullmatch, files.folders(SHARDS)) if m]
    part = max(used, default=-1) + 1
    slot_of: dict[str, int | None] = {}
    ids: dict[str, str] = {}
    for name, record in _records(state).items():
        facts, running = record["runner"], record["status"] == "running"
        shards = facts.get("shards")
        ids[name] = uuid.uuid4().hex[:12] if shards is None else shards["id"]
        slot_of[name] = len(slot_of) % slots if shards is None else shards["slot"]
        if running:
            plan = from_json(record["plan"])
            write_definition(
                files, ids[name], record["plan"], versions=record.get("functions", {}),
                strict=record["options"]["strict"], apart=record["options"]["start"] == "now", progress={}, schemas={},
                past=Past({}, {}), shared=facts["raised"], relations={s.relation for s in relation_scans(plan)},
            )  # fmt: skip
        more = {
            "placement": {"id": ids[name], "part": part, "slot": slot_of[name], "first": number + 1},
            "runner": {"number": facts["number"], "part": part if running else None, "started": True, "apart": False},
        }  # fmt: skip
        before = found[f"query {name}"]
        found[f"query {name}"] = Saved({**before.meta, "query": {**record, **more}}, before.pieces)
    running_names = [name for name, record in _records(state).items() if record["status"] == "running"]
    bases: dict[int, Base] = {}
    for i in range(slots):
        own = _slot_state(state, graph, i, running_names, ids, slot_of)
        bases[i] = 1, store_of(str(root), part, i, slots).commit(1, own)
    queries = [ids[name] for name in running_names]
    found[f"graph/{PARTS}"] = Saved({
        "next": part + 1, "settings": asdict(Settings()), "slots": slots,
        "parts": [[part, 1, number, 0, bases_json(bases)]] if running_names else [],
        "needs": {"entry": number, "versions": {str(part): 1}, "queries": queries},
    })  # fmt: skip
    store.states.save(number, found)


def _slot_state(
    state: LoadedState, graph: LoadedState, slot: int, names: list[str], ids: Mapping[str, str],
    slot_of: Mapping[str, int | None],
) -> State:  # fmt: skip
    records = _records(state)
    found: State = {}
    own = {name: ids[name] for name in names if "shards" not in records[name]["runner"] and slot_of[name] == slot}
    if own:
        known = Saved({"queries": sorted(own.values()), "fed": True, "graph": True})
        found |= under("family graph", {FAMILY: known, **_whole(only(graph, own))})
    for name in names:
        facts = records[name]["runner"]
        if "shards" in facts and slot_of[name] in (None, slot):
            inside = below(shard_path(facts["number"], slot), graph)
            known = Saved({"queries": [ids[name]], "fed": True, "graph": inside[KIND].meta["graph"]})
            rest = {path: loaded for path, loaded in inside.items() if path != KIND}
            found |= under(f"family {ids[name]}", {FAMILY: known, **_whole(rest)})
    return found


def to_local(store: Store, root: Root) -> None:
    """Let the local engine go on from what Spark's parts have saved, which have nothing left to do."""
    number, state = _saved(store)
    facts, found = state[f"graph/{PARTS}"].meta, _carried(state)
    slots = facts["slots"]
    bases = {id: bases_again(of_part) for id, _, _, _, of_part in facts["parts"]}
    found |= under("graph", {**save(Graph()), SLOTS: Saved({"slots": slots})})
    for name, record in _records(state).items():
        runner, placement = record["runner"], record["placement"]
        id, slot = placement["id"], placement["slot"]
        own = {"number": runner["number"], "raised": []}
        if record["status"] == "running":
            own["shards"] = {"id": id, "slot": slot}
            moved = moved_again(runner["moved"]) if "moved" in runner else None
            part, of_part = runner["part"], bases[runner["part"]]
            if moved is not None and moved.origin is not None:
                part, of_part = moved.origin[0], dict(moved.origin[1])
            for i in range(slots) if slot is None else [slot]:
                inside = _shard(str(root), part, i, slots, of_part[i], id, record)
                found |= under("graph", under(shard_path(runner["number"], i), inside))
        before = found[f"query {name}"]
        query = {key: value for key, value in record.items() if key != "placement"}
        found[f"query {name}"] = Saved({**before.meta, "query": {**query, "runner": own}}, before.pieces)
    store.states.save(number, found)


def _shard(root: str, part: int, slot: int, slots: int, base: Base, id: str, record: Mapping[str, Any]) -> State:
    """What a query remembers in one slot."""
    state = store_of(root, part, slot, slots).load(*base)
    of_family = next((f for f in families(state or {}).values() if id in f[FAMILY].meta["queries"]), None)
    if of_family is None:
        raise StorageError(
            f"{root}/{part_folder(part)}: the state of query `{record['name']}` is missing in slot {slot}",
            hint="restore the directory from a backup",
        )
    is_graph = of_family[FAMILY].meta["graph"]
    if is_graph:
        mine = only(of_family, {id: id})
    else:
        plan = from_json(record["plan"])
        alone = Programs({id: plan}, dict.fromkeys(functions_called(plan), str), strict=record["options"]["strict"])
        mine = alone.own(of_family)
    return {KIND: Saved({"graph": is_graph}), **_whole(mine)}
