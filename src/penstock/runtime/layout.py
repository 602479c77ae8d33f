"""Which operators are run together, and by whom: a function of the graph and the settings, without threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.graph.vertex import Edge, Vertex
from penstock.runtime import paths
from penstock.runtime.owners import Cell
from penstock.runtime.settings import Settings


@dataclass(frozen=True)
class Layout:
    """``order``: all vertices, senders before receivers. ``cells``: the first is that of the thread that pushes."""

    order: list[Vertex]
    cells: list[Cell]
    cell_of: dict[int, Cell]

    def senders(self, vertex: Vertex) -> list[Edge]:
        """The inputs that come from within the graph."""
        return [e for e in vertex.inputs if e.source.id in self.cell_of]

    def is_like(self, other: Layout) -> bool:
        """Whether the same operators are run together, and the same cells by one worker."""

        def groups(cells: Sequence[Cell]) -> list[tuple[str, int, list[int]]]:
            first: dict[object, int] = {}
            return [(c.kind, first.setdefault(c.key, i), [v.id for v in c.vertices]) for i, c in enumerate(cells)]

        return groups(self.cells) == groups(other.cells)


    def kept(self, before: Layout) -> dict[int, Cell]:
        """The cells that are as they were in another layout: that of before, by the ``id`` of the one of now."""
        known = {_same(cell): cell for cell in before.cells}
        return {id(cell): known[_same(cell)] for cell in self.cells if _same(cell) in known}


def _same(cell: Cell) -> tuple[object, ...]:
    return cell.kind, cell.key, *map(id, cell.vertices)


def lay_out(
    vertices: Sequence[Vertex],
    sources: Collection[Vertex],
    partition_of: Mapping[int, int],
    settings: Settings,
    settings_of: Mapping[int, Settings],
) -> Layout:
    """An edge needs a buffer where its ends are in different cells.

    A cell is a virtual operator; those with equal keys are one partition, which one worker runs.

    Operators that are run directly go with the operators that send to them, if these are one cell; else one thread must
    be found for them, and they are run as if the threading were ``graph``.
    """
    members = {v.id for v in (*sources, *vertices)}
    order = [v for v in paths.ordered([*sources, *vertices]) if v.id in members]
    pushed = {v.id for v in sources}
    pushing = Cell("direct", ("direct",), settings)
    cells, cell_of, found = [pushing], dict[int, Cell](), dict[tuple[object, ...], Cell]()
    for vertex in order:
        own = settings_of.get(vertex.id, settings)
        kind = own.threading
        senders = {id(cell_of[e.source.id]): cell_of[e.source.id] for e in vertex.inputs if e.source.id in cell_of}
        called = kind == "hybrid" and _is_called(vertex, senders, pushing, settings)
        if vertex.id in pushed or (kind == "direct" and not senders) or called:
            cell = pushing
        elif kind == "direct" and len(senders) == 1:
            (cell,) = senders.values()
        elif kind == "hybrid" and vertex.id in partition_of:
            one = ("hybrid", partition_of[vertex.id], own.worker, *own.how)
            if one not in found:
                # Virtual operators of one partition have one worker, with buffers between them.
                key = one if own.worker is None else ("partition", own.worker, *own.how)
                found[one] = Cell("hybrid", key, own)
                cells.append(found[one])
            cell = found[one]
        else:
            key = ("graph", *own.how) if kind in ("graph", "direct") else (kind, vertex.id, *own.how)
            cell = Cell("graph" if kind == "direct" else kind, key, own)  # type: ignore[arg-type]
            cells.append(cell)
        cell.vertices.append(vertex)
        cell_of[vertex.id] = cell
    return Layout(order, cells, cell_of)


def _is_called(vertex: Vertex, senders: Mapping[int, Cell], pushing: Cell, settings: Settings) -> bool:
    """Whether the thread that pushes runs an operator because a user has taken the buffers in front of it away."""
    without = [settings.edges.get((e.source.id, vertex.id)) is False for e in vertex.inputs]
    return bool(without) and all(without) and all(cell is pushing for cell in senders.values())
