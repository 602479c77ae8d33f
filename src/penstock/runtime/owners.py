"""The workers and threads that there are, and which cells each has.

Plug-in point: ``ARCHITECTURES`` maps a name to what makes an ``Arrangement`` of threads for a runtime. The pool that
000 compares with is in ``experiments``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from penstock.graph.vertex import Vertex
from penstock.runtime.control import Control
from penstock.runtime.station import Owner, Partition, Station
from penstock.runtime.strategy import Strategy
from penstock.runtime.threads import ThreadScheduler
from penstock.runtime.worker import OwnThread, Worker

Kind = Literal["direct", "graph", "operator", "hybrid"]
Key = tuple[object, ...]


class Way(Protocol):
    """What ``Settings`` say of how a cell is run."""

    @property
    def threads(self) -> int:
        """How many threads may share the work."""

    @property
    def how(self) -> Key:
        """What two cells have in common that one strategy can serve."""

    def new_strategy(self, *, prioritised: bool = False) -> Strategy:
        """``prioritised``: there may be rows that overtake."""


@dataclass(eq=False)
class Cell:
    """A partition to be. ``key`` names whoever runs it: cells with equal keys have one worker."""

    kind: Kind
    key: Key
    settings: Way
    vertices: list[Vertex] = field(default_factory=list)


class Arrangement(Protocol):
    """Gives cells to threads. Both calls come in a pause."""

    def assign(self, cells: Sequence[Cell], partitions: Mapping[int, Partition], stations: Sequence[Station]) -> None:
        """Give every cell but that of the thread that pushes to whom it belongs, and ``partitions`` (by the cell's
        ``id``) their owner. What was assigned before is not any more."""

    def stop(self) -> None:
        """End all threads."""


class Workers:
    """Each worker owns its cells. Threads that stay useful are kept when cells are assigned anew; the others are
    stopped here."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._own: dict[Key, OwnThread] = {}
        self._shared: tuple[int, ThreadScheduler] | None = None

    def assign(self, cells: Sequence[Cell], partitions: Mapping[int, Partition], stations: Sequence[Station]) -> None:
        own: dict[Key, list[Cell]] = {}
        shared: dict[Key, list[Cell]] = {}
        for cell in cells:
            if cell.kind != "direct":
                (shared if cell.kind == "hybrid" else own).setdefault(cell.key, []).append(cell)
        threads = max((cells[0].settings.threads for cells in shared.values()), default=0)
        ranks = {vertex.priority for mine in shared.values() for cell in mine for vertex in cell.vertices}
        if len(shared) <= threads and len(ranks) <= 1:  # a thread for each: nobody needs to decide who is next
            own |= shared
            shared = {}
        self._keep(own, threads if shared else 0)
        found = by_partition(stations)
        for key, mine in own.items():
            if key not in self._own:
                self._own[key] = OwnThread(Worker(_name(mine[0]), self._control.failed), self._control)
            worker = self._own[key].worker
            adopt(worker, mine, partitions, found)
            if not worker.idle:
                worker.waker()
        workers = []
        for mine in shared.values():
            workers.append(Worker(f"penstock-worker-1…{threads}", self._control.failed))
            adopt(workers[-1], mine, partitions, found)
        if workers:
            if self._shared is None:
                self._shared = threads, ThreadScheduler(self._control, threads)
            self._shared[1].adopt(workers)

    def stop(self) -> None:
        self._keep({}, 0)

    def _keep(self, own: Mapping[Key, object], threads: int) -> None:
        for key in self._own.keys() - own.keys():
            self._own.pop(key).stop()
        if self._shared is not None and self._shared[0] != threads:
            self._shared[1].stop()
            self._shared = None


ARCHITECTURES: dict[str, Callable[[Control], Arrangement]] = {"worker": Workers}


class Adopting(Owner, Protocol):
    """Who can be given stations."""

    def adopt(self, stations: Sequence[Station], strategy: Strategy) -> None:
        """Have these stations and no others, from now on."""


def by_partition(stations: Sequence[Station]) -> Mapping[int, list[Station]]:
    """The stations of each partition, by its ``id``."""
    found: dict[int, list[Station]] = {}
    for station in stations:
        found.setdefault(id(station.partition), []).append(station)
    return found


def adopt(
    owner: Adopting, cells: Sequence[Cell], partitions: Mapping[int, Partition], found: Mapping[int, list[Station]]
) -> None:
    """Give an owner the stations of some cells, with the strategy that is set for the first."""
    mine = [station for cell in cells for station in found.get(id(partitions[id(cell)]), ())]
    owner.adopt(mine, cells[0].settings.new_strategy(prioritised=any(s.lanes for s in mine)))
    for cell in cells:
        partitions[id(cell)].owner = owner


def _name(cell: Cell) -> str:
    if cell.kind == "graph":
        return "penstock-worker-graph"
    if cell.kind == "hybrid":
        return f"penstock-worker-partition-{cell.key[1]}"
    return f"penstock-worker-{cell.vertices[0].id}"
