"""The workers, pools and threads that there are, and which cells each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.runtime.control import Control
from penstock.runtime.layout import Cell
from penstock.runtime.pool import Pool, PoolQueue
from penstock.runtime.station import Partition, Station
from penstock.runtime.strategy import Strategy
from penstock.runtime.threads import ThreadScheduler
from penstock.runtime.worker import OwnThread, Worker

Key = tuple[object, ...]


class Owners:
    """Threads that stay useful are kept when cells are assigned anew; the others are stopped here."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._own: dict[Key, OwnThread] = {}
        self._pools: dict[Key, Pool] = {}
        self._shared: tuple[int, ThreadScheduler] | None = None

    def assign(self, cells: Sequence[Cell], partitions: Mapping[int, Partition], stations: Sequence[Station]) -> None:
        """Give every cell but that of the thread that pushes to whom it belongs. Called in a pause."""
        own: dict[Key, list[Cell]] = {}
        shared: dict[Key, list[Cell]] = {}
        pooled: dict[Key, list[Cell]] = {}
        for cell in cells:
            settings = cell.settings
            if cell.kind == "direct":
                continue
            if settings.architecture == "pool":
                threads = 1 if cell.kind == "graph" else settings.threads
                pooled.setdefault(("pool", threads, *settings.how), []).append(cell)
            else:
                (shared if cell.kind == "hybrid" else own).setdefault(cell.key, []).append(cell)
        threads = max((cells[0].settings.threads for cells in shared.values()), default=0)
        if len(shared) <= threads:  # a thread for each: nobody needs to decide who is next
            own |= shared
            shared = {}
        self._stop(own, pooled, threads if shared else 0)
        found: dict[int, list[Station]] = {}
        for station in stations:
            found.setdefault(id(station.partition), []).append(station)

        def of(cells: Sequence[Cell]) -> list[Station]:
            return [s for cell in cells for s in found.get(id(partitions[id(cell)]), ())]

        for key, mine in own.items():
            if key not in self._own:
                self._own[key] = OwnThread(Worker(_name(mine[0]), self._control.failed), self._control)
            worker = self._own[key].worker
            worker.adopt(of(mine), _strategy(mine[0], of(mine)))
            if not worker.idle:
                worker.waker()
            _owned(worker, mine, partitions)
        workers = []
        for mine in shared.values():
            worker = Worker(f"penstock-worker-1…{threads}", self._control.failed)
            worker.adopt(of(mine), _strategy(mine[0], of(mine)))
            _owned(worker, mine, partitions)
            workers.append(worker)
        if workers:
            if self._shared is None:
                self._shared = threads, ThreadScheduler(self._control, threads)
            self._shared[1].adopt(workers)
        for key, mine in pooled.items():
            if key not in self._pools:
                count = key[1]
                assert isinstance(count, int)
                self._pools[key] = Pool(PoolQueue(self._control.failed), self._control, count)
            queue = self._pools[key].queue
            queue.adopt(of(mine), _strategy(mine[0], of(mine)))
            _owned(queue, mine, partitions)
            for _ in range(len(queue)):
                queue.waker()

    def _stop(self, own: Mapping[Key, object], pooled: Mapping[Key, object], threads: int) -> None:
        for key in self._own.keys() - own.keys():
            self._own.pop(key).stop()
        for key in self._pools.keys() - pooled.keys():
            self._pools.pop(key).stop()
        if self._shared is not None and self._shared[0] != threads:
            self._shared[1].stop()
            self._shared = None


def _strategy(cell: Cell, stations: Sequence[Station]) -> Strategy:
    return cell.settings.new_strategy(prioritised=any(s.lanes for s in stations))


def _owned(owner: Worker | PoolQueue, cells: Sequence[Cell], partitions: Mapping[int, Partition]) -> None:
    for cell in cells:
        partitions[id(cell)].owner = owner


def _name(cell: Cell) -> str:
    if cell.kind == "graph":
        return "penstock-worker-graph"
    if cell.kind == "hybrid":
        return f"penstock-worker-partition-{cell.key[1]}"
    return f"penstock-worker-{cell.vertices[0].id}"
