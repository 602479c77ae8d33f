"""What waits in buffers when the state is saved: rows in front of operators that rest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa

from penstock.graph.graph import Graph
from penstock.graph.message import Data, Message, mark_of
from penstock.graph.vertex import Edge
from penstock.operators.state import Json, LoadedState, Piece, Saved, State
from penstock.runtime.run import Runtime
from penstock.runtime.storage.form import batch_of, data_of
from penstock.runtime.storage.node import Node

WAITING = "waiting"
"""The paths of a saved state under which rows are that waited."""


class Waiting:
    """Saves messages that wait, each once: a message that waited when the last state was saved is not written again.

    Bounded by: the messages that waited then, of each a name.
    """

    def __init__(self) -> None:
        self._names: dict[Edge, dict[int, tuple[Node, str]]] = {}

    def save(self, runtime: Runtime) -> State:
        """All that waits, by operator and input. Called while no worker works."""
        names, self._names = self._names, {}
        state: State = {}
        for edge, buffer in runtime.all_buffers.items():
            known, entries, pieces = names.get(edge, {}), list[Json](), list[Piece]()
            for rows in () if buffer.lane is None else [entry[0] for entry in buffer.lane]:
                entries.append([name := uuid.uuid4().hex, None])
                pieces.append(Piece(name, _table(rows)))
            for node, *_ in buffer.queue.copy():
                name = known[id(node)][1] if id(node) in known else ""
                if not len(node):
                    entries.append(["", [*node.mark.plain()]])
                    continue
                # On disk it may be gone when the state is written, so it is read now, once for all saves.
                content = None if name else _table(node.read().data)
                name = name or uuid.uuid4().hex
                self._names.setdefault(edge, {})[id(node)] = node, name
                entries.append([name, [*node.mark.plain()]])
                pieces.append(Piece(name, content))
            if entries:
                state[f"{WAITING}/{edge.target.id}/{edge.port}"] = Saved({"entries": entries}, tuple(pieces))
        return state


def put_back(graph: Graph, state: LoadedState) -> None:
    """Give operators what waited for them: into the buffers in front of them, or, of those without, to themselves."""
    for edge, early, message in _entries(graph, state):
        if early is not None:
            edge.send_early(early)
        elif message is not None:
            edge.send(message)


def _entries(graph: Graph, state: LoadedState) -> Iterator[tuple[Edge, Data | None, Message | None]]:
    for vertex in graph.in_order():
        for edge in vertex.inputs:
            saved = state.get(f"{WAITING}/{vertex.id}/{edge.port}")
            source = graph.vertices[edge.source.id]
            for name, mark in () if saved is None else saved.meta["entries"]:
                assert saved is not None, "it has entries"
                if not name:
                    yield edge, None, Message(source.nothing, mark_of(mark))
                    continue
                (batch,) = saved.tables[name].combine_chunks().to_batches()
                rows = data_of(batch, source.schema)
                yield (edge, rows, None) if mark is None else (edge, None, Message(rows, mark_of(mark)))


def _table(rows: Data) -> pa.Table:
    return pa.Table.from_batches([batch_of(rows)])
