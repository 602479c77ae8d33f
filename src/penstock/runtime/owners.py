"""The workers and threads that there are, and which cells each has.

Plug-in point: ``ARCHITECTURES`` maps a name to what makes an ``Arrangement`` of threads for a runtime. The pool that
000 compares with is in ``experiments``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from penstock.graph.vertex import Vertex
from penstock.runtime.control import Control
from penstock.runtime.station import Owner, Partition, Station
from penstock.runtime.strategy import Strategy
from penstock.runtime.threads import ThreadScheduler
from penstock.runtime.worker import Failed, Instruction, OwnThread, Worker

Kind = Literal["direct", "graph", "operator", "hybrid"]
Key = tuple[object, ...]
Told = tuple[Worker, Instruction]
"""A worker, and what it is to do before anything else."""


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
    """A virtual operator to be. ``key`` names the partition that it is in: cells with equal keys have one worker."""

    kind: Kind
    key: Key
    settings: Way
    vertices: list[Vertex] = field(default_factory=list)


class Arrangement(Protocol):
    """Gives cells to threads."""

    def assign(self, cells: Sequence[Cell], partitions: Mapping[int, Partition], stations: Sequence[Station]) -> None:
        """Give every cell but that of the thread that pushes to whom it belongs, and ``partitions`` (by the cell's
        ``id``) their owner. What was assigned before is not any more. Comes in a pause, of all or of those whose cells
        change; the others keep what they have."""

    def keeps(self, before: Sequence[Cell], now: Sequence[Cell]) -> bool:
        """Whether owners whose cells do not change may go on while the others are assigned theirs."""

    def adjust(self, cells: Sequence[tuple[Cell, Cell]]) -> list[Told] | None:
        """Run cells, each as it was and as it is from now on, in another way, while the threads go on: gives what
        workers are to be told. None: they have to be assigned anew. This call comes without a pause."""

    def stop(self) -> None:
        """End all threads. Comes in a pause."""


class Workers:
    """Each worker owns its cells. Threads that stay useful are kept when cells are assigned anew; the others are
    stopped here. ``make``: what makes a worker."""

    make: Callable[[str, Failed], Worker] = Worker

    def __init__(self, control: Control) -> None:
        self._control = control
        self._own: dict[Key, OwnThread] = {}
        self._sharing: dict[Key, Worker] = {}
        self._shared: tuple[int, ThreadScheduler] | None = None

    def assign(self, cells: Sequence[Cell], partitions: Mapping[int, Partition], stations: Sequence[Station]) -> None:
        own, shared, threads = _divided(cells)
        self._keep(own, shared, threads)
        found = by_partition(stations)
        for key, mine in own.items():
            if key not in self._own:
                self._own[key] = OwnThread(self._new(_name(mine[0])), self._control)
            self._assign(self._own[key].worker, mine, partitions, found)
        for key, mine in shared.items():
            if self._shared is None:
                self._shared = threads, ThreadScheduler(self._control, threads)
            if key not in self._sharing:
                self._sharing[key] = self._new(_shared_name(key, threads))
                self._shared[1].adopt(self._sharing[key])
            self._assign(self._sharing[key], mine, partitions, found)

    def _new(self, name: str) -> Worker:
        worker = self.make(name, self._control.failed)
        self._control.halt(worker)
        return worker

    def _assign(
        self,
        worker: Worker,
        cells: Sequence[Cell],
        partitions: Mapping[int, Partition],
        found: Mapping[int, list[Station]],
    ) -> None:
        if self._control.is_halted(worker):
            adopt(worker, cells, partitions, found)
            if not worker.idle:
                worker.waker()

    def keeps(self, before: Sequence[Cell], now: Sequence[Cell]) -> bool:
        return _divided(before)[2] == _divided(now)[2]

    def adjust(self, cells: Sequence[tuple[Cell, Cell]]) -> list[Told] | None:
        own, shared, threads = _divided([now for _, now in cells])
        keys = {before.key: now.key for before, now in cells}
        if {keys[key] for key in self._own} != own.keys() or (threads > 0) != (self._shared is not None):
            return None
        self._own = {keys[key]: thread for key, thread in self._own.items()}
        self._sharing = {keys[key]: worker for key, worker in self._sharing.items()}
        if self._shared is not None and self._shared[0] != threads:
            self._shared = threads, self._shared[1]
            self._shared[1].resize(threads)
            for key, worker in self._sharing.items():
                worker.name = _shared_name(key, threads)
        changed = {now.key for before, now in cells if before.settings.how != now.settings.how}
        workers = {**self._sharing, **{key: thread.worker for key, thread in self._own.items()}}
        ways = {key: mine[0].settings for key, mine in (own | shared).items()}
        return [(workers[key], partial(_choose, workers[key], ways[key])) for key in changed & ways.keys()]

    def stop(self) -> None:
        self._keep({}, {}, 0)

    def _keep(self, own: Mapping[Key, object], shared: Mapping[Key, object], threads: int) -> None:
        for key in self._own.keys() - own.keys():
            gone = self._own.pop(key)
            gone.worker.retire()
            gone.stop()
        ends = self._shared is not None and self._shared[0] != threads
        for key in self._sharing.keys() - (set() if ends else shared.keys()):
            self._sharing.pop(key).retire()
        if ends and self._shared is not None:
            self._shared[1].stop()
            self._shared = None


ARCHITECTURES: dict[str, Callable[[Control], Arrangement]] = {"worker": Workers}


def _divided(cells: Sequence[Cell]) -> tuple[dict[Key, list[Cell]], dict[Key, list[Cell]], int]:
    """Cells by who runs them: a thread of its own, or some that all of these share; and how many that are."""
    own: dict[Key, list[Cell]] = {}
    shared: dict[Key, list[Cell]] = {}
    for cell in cells:
        if cell.kind != "direct":
            (shared if cell.kind == "hybrid" else own).setdefault(cell.key, []).append(cell)
    threads = max((cells[0].settings.threads for cells in shared.values()), default=0)
    ranks = {vertex.priority for mine in shared.values() for cell in mine for vertex in cell.vertices}
    if len(shared) <= threads and len(ranks) <= 1:  # a thread for each: nobody needs to decide who is next
        return own | shared, {}, 0
    return own, shared, threads


def _choose(worker: Worker, way: Way) -> None:
    """Done by the worker itself."""
    worker.choose_by(way.new_strategy(prioritised=any(s.lanes for s in worker.stations)))


def _shared_name(key: Key, threads: int) -> str:
    return f"penstock-worker-partition-{key[1]}" if key[0] == "partition" else f"penstock-worker-1…{threads}"


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
        return f"penstock-worker-partition-{cell.key[1]}"  # a number, or the name that a user has given
    return f"penstock-worker-{cell.vertices[0].id}"
