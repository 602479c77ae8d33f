"""The runtime of a database: buffers, workers and strategies around a graph of operators.

It decides when an operator works, never what comes out: on every edge messages arrive in the order in which they were
sent, none is lost and none comes twice, whatever is changed meanwhile.

Whoever pushes and whoever changes the graph must not do so at the same time; the database's lock sees to that.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from penstock.graph.vertex import Edge, Vertex
from penstock.graph.view import BufferView, PartitionView
from penstock.model.errors import StateError
from penstock.model.waiting import Look
from penstock.runtime.buffer import BUFFERS, Buffer
from penstock.runtime.control import Control, OnError
from penstock.runtime.layout import Layout, lay_out
from penstock.runtime.lines import BoundOf, Lines
from penstock.runtime.owners import ARCHITECTURES
from penstock.runtime.placement import Node, capacity
from penstock.runtime.room import Room
from penstock.runtime.settings import Settings
from penstock.runtime.station import Partition, Station
from penstock.runtime.storage.storage import Storage
from penstock.runtime.worker import Instruction, Worker

LOOK_AGAIN = 0.5
"""Seconds after which a push that waits for another thread's looks again: a thread that ends tells nobody."""
PUSHED = 0
"""The number of the partition that is run by the thread that pushes."""
TRIES = 3
TURN = 8_192
"""The most elements at once where prioritised rows may come."""
LONG, MANY = 16, 2_048
"""The most messages and elements that are worked off in a pause; a buffer with more stays until it has fewer."""
Moved = Callable[[Collection[int]], object]
"""Called in a pause when buffers have been moved, with the numbers of the operators that nobody runs meanwhile."""


class Runtime:
    """Starts without threads and without a graph. ``on_error`` is told of exceptions that no operator expected; it is
    called in the thread in which they happened. Whoever made the runtime closes it. ``spill``: where the directory for
    what exceeds the memory is made. ``bound_of``: the stream whose rows an operator sends as they came, if it does, and
    how what waits of them is bounded."""

    def __init__(
        self,
        settings: Settings | None = None,
        on_error: OnError | None = None,
        spill: Path | None = None,
        bound_of: BoundOf | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.storage = Storage(spill)
        self.storage.configure(*self.settings.budgets)
        self.waiting_lines = Lines(self.storage, bound_of)
        self.room = Room(self)
        self._new_buffer = BUFFERS[self.settings.buffer]()
        self._control = Control(on_error)
        self._arrangement = ARCHITECTURES[self.settings.architecture](self._control)
        self._numbers = itertools.count()
        self._graph: tuple[Sequence[Vertex], Collection[Vertex], Mapping[int, int], Mapping[int, Settings]]
        self._graph = ((), (), {}, {})
        self._layout = lay_out((), (), {}, self.settings, {})
        self.all_buffers: dict[Edge, Buffer] = {}  # as many as edges
        self._partitions = [Partition(PUSHED)]  # in the order of the cells of the layout
        self._partition_of: dict[int, int] = {}
        self.stations: list[Station] = []  # senders before receivers
        self._held: set[int] = set()  # suspended from outside
        self._overtaken: frozenset[int] = frozenset()
        self._modes: dict[int, str] = {}  # of buffers in front of operators for which another one is set
        self._placed = 0  # odd while buffers are being moved

    # -- the graph ----------------------------------------------------------------------------------------

    def place(
        self,
        vertices: Sequence[Vertex],
        sources: Collection[Vertex],
        partition_of: Mapping[int, int],
        settings: Settings | None = None,
        settings_of: Mapping[int, Settings] | None = None,
        overtaken: Collection[int] = (),
        held: Collection[int] | None = None,
        moved: Moved | None = None,
    ) -> None:
        """Run this graph from now on, in this way. ``sources`` send from the thread that pushes. ``partition_of`` is
        needed for hybrid threading; an operator that is not in it is a partition of its own. ``settings_of``: the
        operators for which other settings hold. ``overtaken``: those among whose results there may be prioritised rows
        that may be handed on before their place. ``held``: those that rest, by default the same as before.

        What waits in front of operators that are gone is gone with them. Workers to which nothing changes go on.
        """
        self._check_open()
        settings = settings or self.settings
        same = (settings.buffer, settings.architecture) == (self.settings.buffer, self.settings.architecture)
        with self._control.paused(() if same else None):
            self._become(settings)
            self.storage.configure(*self.settings.budgets)
            self._graph = (list(vertices), list(sources), dict(partition_of), dict(settings_of or {}))
            self._overtaken = frozenset(overtaken)
            self._modes = {id: mode for id, mode in self._modes.items() if id in {v.id for v in vertices}}
            self._held = (self._held if held is None else set(held)) & {v.id for v in vertices}
            self._rebuild(moved)

    def let_go(self) -> None:
        """The thread that pushes runs everything: hold no operators, which may have been removed since ``place``."""
        if self._graph[0] or self._graph[1]:
            self._graph = ((), (), {}, {})
            self._rebuild()

    def _become(self, settings: Settings) -> None:
        before, self.settings = self.settings, settings
        if before.buffer != settings.buffer:
            self._new_buffer = BUFFERS[settings.buffer]()
        if before.architecture != settings.architecture:
            self._arrangement.stop()
            self._arrangement = ARCHITECTURES[settings.architecture](self._control)

    def _rebuild(self, moved: Moved | None = None) -> None:
        """Lay out the graph as it is set. Workers pause whose stations or buffers change, and all others go on."""
        vertices, sources, partition_of, settings_of = self._graph
        layout = lay_out(vertices, sources, partition_of, self.settings, settings_of)
        buffered = {edge for vertex in layout.order for edge in self._buffered(layout, vertex)}
        with self._control.paused(self._concerned(layout, buffered)):
            self._placed += 1
            try:
                self._wire(layout, buffered)
            finally:
                self._placed += 1
            if moved is not None:
                moved({v.id for p in self._partitions if self._is_at_rest(p) for v in p.vertices})
        self._control.notify()

    def _buffered(self, layout: Layout, vertex: Vertex) -> list[Edge]:
        """The inputs of an operator in front of which there is to be a buffer."""
        cell, held = layout.cell_of[vertex.id], vertex.id in self._held
        stays = cell is not layout.cells[0]  # a worker is there to work off what waits
        return [
            edge
            for edge in layout.senders(vertex)
            if held
            or layout.cell_of[edge.source.id] is not cell
            or (stays and _is_long(self.all_buffers.get(edge)))
        ]

    def _concerned(self, layout: Layout, buffered: Collection[Edge]) -> Collection[Worker] | None:
        """The workers for which it makes a difference that this layout becomes the one there is; None: all threads."""
        before, partitions = self._layout, self._partitions
        owners = {cell.key: p.owner for cell, p in zip(before.cells, partitions, strict=True) if p.owner is not None}
        if not self._arrangement.keeps(before.cells, layout.cells):
            return None
        kept = {v.id for cell in layout.kept(before).values() for v in cell.vertices}
        ids = {v.id for v in (*before.order, *layout.order)} - kept
        ids |= {s.vertex.id for s in self.stations if s.held != (s.vertex.id in self._held)}
        for edge in self.all_buffers.keys() ^ buffered:
            ids |= {edge.source.id, edge.target.id}
            line = self.waiting_lines.known(edge.source)
            if line is not None and not line.shared:  # its reader lets messages go as the only one
                ids |= {e.target.id for e in edge.source.outputs if e in self.all_buffers}
        for edge, buffer in self.all_buffers.items():
            if edge in buffered and not buffer.overtakes(self._mode(edge, self.settings, self._graph[3])):
                ids |= {edge.source.id, edge.target.id}
        keys = {cells[id].key for cells in (before.cell_of, layout.cell_of) for id in ids & cells.keys()}
        return {owner for key in keys if isinstance(owner := owners.get(key), Worker)}

    def _is_at_rest(self, partition: Partition) -> bool:
        """Whether no worker runs a partition in this pause."""
        return partition.owner is None or self._control.is_halted(partition.owner)

    def _wire(self, layout: Layout, buffered: Collection[Edge]) -> None:
        """Called in a pause of those who are concerned. What belongs to others stays as it is, and so does what they
        know of it: they go on putting into buffers, and telling stations that they have."""
        was = {id(cell): p for cell, p in zip(self._layout.cells, self._partitions, strict=True)}
        partitions = {new: was[id(cell)] for new, cell in layout.kept(self._layout).items()}
        for i, cell in enumerate(layout.cells, PUSHED):
            partitions.setdefault(id(cell), Partition(i, cell.vertices)).id = i
        runs = {v.id: partitions[id(layout.cell_of[v.id])] for v in layout.order}
        pushing = partitions[id(layout.cells[0])]
        settings_of = self._graph[3]
        known = {station.vertex: station for station in self.stations}
        before, self.all_buffers, stations = self.all_buffers, {}, list[Station]()
        self.waiting_lines.begin()
        for vertex in layout.order:
            station = known.pop(vertex, None) or Station(vertex, runs[vertex.id])
            station.latency = settings_of.get(vertex.id, self.settings).limit
            buffers = []
            for edge in layout.senders(vertex):
                if edge in buffered:
                    buffer = before.get(edge) or self._new_buffer(edge, self._numbers, station)
                    producer = runs[edge.source.id]
                    buffer.producer = None if producer is pushing else producer
                    buffer.queue.move(self.waiting_lines.of(edge.source))
                    self.all_buffers[edge] = buffer
                    buffers.append(buffer)
            if buffers:
                stations.append(station)
            if self._is_at_rest(runs[vertex.id]):
                self._arrange(station, runs[vertex.id], buffers)
        for station in known.values():
            station.owner, station.buffers = None, []
        self.stations, self._partitions = stations, [partitions[id(cell)] for cell in layout.cells]
        self._shorten()
        self._partition_of = {id: partition.id for id, partition in runs.items()}
        for vertex in layout.order:
            for edge in vertex.inputs:
                if edge in before and edge not in self.all_buffers and edge.source.id in runs:
                    self._drain(before[edge], runs[vertex.id])
        for edge in before.keys() - self.all_buffers.keys():
            edge.buffer = None
            before[edge].queue.leave()
        for edge, buffer in self.all_buffers.items():
            edge.buffer = buffer  # not before: senders know this edge as one without, for rows of any kind
        self.waiting_lines.end()
        self._layout = layout
        self._arrangement.assign(layout.cells, partitions, stations)
        for buffer in self.all_buffers.values():
            owner = None if buffer.producer is None else buffer.producer.owner
            buffer.local = owner is not None and owner is buffer.station.owner

    def _arrange(self, station: Station, partition: Partition, buffers: list[Buffer]) -> None:
        """Let a station that nobody works on have these buffers; who owns it is told later."""
        vertex, held = station.vertex, station.vertex.id in self._held
        station.owner, station.ready, station.signalled = None, False, True  # nobody to tell yet
        station.partition, station.buffers, station.held = partition, buffers, held
        for buffer in buffers:
            buffer.station = station
            mode = self._mode(buffer.edge, self.settings, self._graph[3])
            if not buffer.overtakes(mode):
                buffer.overtaking(mode)
            if buffer.mode == "direct" and partition.lock is None:
                lock = threading.RLock()
                self._control.hold(lock)
                partition.lock = lock
        station.lanes = any(buffer.lane is not None for buffer in buffers)
        station.unknown = any(v.sets_priority for v in partition.vertices)
        if vertex.state != "stopped" and held != (vertex.state == "suspended"):
            vertex.state = "suspended" if held else "ready"

    def _shorten(self) -> None:
        """Turns are short where something may come that must not wait for them."""
        highest = max((station.vertex.priority for station in self.stations), default=0)
        for station in self.stations:
            station.turn = TURN if station.lanes else None
            station.brief = station.vertex.priority < highest

    def _drain(self, buffer: Buffer, partition: Partition) -> None:
        """Everything that waits is worked on here. All that could still be put has been, since buffers are drained
        from the sources on."""
        edge = buffer.edge
        buffer.station = Station(edge.target, partition)  # the other one may still have other buffers
        buffer.station.buffers.append(buffer)
        while buffer.lane and not self._control.closed:
            rows, partition.number, partition.entered, _ = buffer.take_early()
            try:
                edge.target.take_early(edge.port, rows)
            except Exception as error:
                self._control.failed(edge.target, error)
        while buffer.queue and not self._control.closed:
            _, partition.number, partition.entered, _ = buffer.queue[0]
            try:
                message = buffer.take()
                edge.target.take(edge.port, message)
            except Exception as error:
                self._control.failed(edge.target, error)
                if buffer.queue.broken:
                    buffer.queue.purge()
        edge.buffer = None

    def paused(self, vertices: Iterable[Vertex] | None = None) -> AbstractContextManager[None]:
        """Inside, no worker does anything, so the graph may be changed; if ``vertices`` are given, only the workers
        stand that run these, and only that part of the graph may be changed. Waits for what is being worked on. May be
        entered again by the same thread, and not by a worker."""
        if vertices is None:
            return self._control.paused()
        placed = [self._partitions[self._partition_of[v.id]] for v in vertices if v.id in self._partition_of]
        owners = {partition.owner for partition in placed if partition.owner is not None}
        workers = {owner for owner in owners if isinstance(owner, Worker)}
        return self._control.paused(workers if len(workers) == len(owners) else None)

    # -- operators ----------------------------------------------------------------------------------------

    def suspend(self, vertex: Vertex) -> None:
        """Let an operator work no more until ``resume``; what comes waits in front of it."""
        if vertex.state == "stopped" or vertex.id in self._held:
            state = "stopped" if vertex.state == "stopped" else "suspended already"
            raise StateError(f"operator {vertex.id} ({vertex.label}) is {state}")
        self.hold(self._held | {vertex.id})

    def resume(self, vertex: Vertex) -> None:
        """Let a suspended operator work again."""
        if vertex.state == "stopped" or vertex.id not in self._held:
            state = "stopped for good" if vertex.state == "stopped" else "not suspended"
            raise StateError(f"operator {vertex.id} ({vertex.label}) is {state}", hint="only suspended ones resume")
        self.hold(self._held - {vertex.id})

    def hold(self, ids: Collection[int], moved: Moved | None = None) -> None:
        """Let these operators rest, and no others. Returns when they do.

        A worker is told through its instructions where an operator has buffers in front of it and needs them, or goes
        on and something waits in them. Else the workers that run such operators pause while buffers are put there or
        taken away, and ``moved`` is called in that pause. All others go on.
        A sender that still called its successor past a new buffer would overtake its own early rows, which are in it.
        """
        self._check_open()
        held = set(ids)
        changed = held ^ self._held
        stations = {station.vertex.id: station for station in self.stations if station.vertex.id in changed}
        owners = [self._instructed(stations.get(id), id in held) for id in changed]
        if self._control.pausing or any(owner is None for owner in owners):
            with self._control.paused(()):
                before, self._held, placed = self._held, held, self._placed
                try:
                    self._rebuild(moved)
                except BaseException:
                    self._held = before if self._placed == placed else held
                    raise
            return
        self._held = held
        told = [(owner, partial(_rest, stations[id], id in held)) for owner, id in zip(owners, changed, strict=True)]
        self._tell([(owner, instruction) for owner, instruction in told if owner is not None])

    def _instructed(self, station: Station | None, rests: bool) -> Worker | None:
        """The worker that can be told to let an operator rest or go on: all that comes to it is in buffers, each of
        which is of use when it goes on."""
        if station is None or not isinstance(station.owner, Worker):
            return None
        inside = [edge for edge in station.vertex.inputs if edge.source.id in self._partition_of]
        buffers = [self.all_buffers.get(edge) for edge in inside]
        stays = all(b is not None and (rests or b.is_apart or b.queue or b.lane) for b in buffers)
        return station.owner if stays else None

    @property
    def has_spare(self) -> bool:
        """Whether a buffer inside a partition has nearly been worked off: ``place`` takes it away."""
        return any(not (b.station.held or b.is_apart or _is_long(b)) for b in self.all_buffers.values())

    def _tell(self, instructions: Sequence[tuple[Worker, Instruction]]) -> None:
        """Have workers do something before anything else; returns when they have."""
        done = [threading.Event() for _ in instructions]
        for (worker, instruction), event in zip(instructions, done, strict=True):
            worker.instruct(partial(_carry_out, instruction, event))
        for event in done:
            while not event.wait(LOOK_AGAIN) and not self._control.closed:
                pass

    def reorder(self) -> None:
        """Operators have other priorities: strategies look at them again. Workers are told through their
        instructions."""
        self._shorten()
        for worker in {station.owner for station in self.stations if isinstance(station.owner, Worker)}:
            worker.instruct(worker.reorder)

    def adjust(self, settings: Settings, settings_of: Mapping[int, Settings]) -> bool:
        """Run the same graph with other settings if nobody has to pause for that: no buffer comes or goes, and no
        operator gets another worker. Workers that are to choose in another way are told through their instructions;
        returns when they do. False: ``place`` is needed, and nothing has changed."""
        self._check_open()
        if not settings.adjusts(self.settings) or self._control.pausing:
            return False
        layout = lay_out(*self._graph[:3], settings, settings_of)
        modes = {buffer: self._mode(edge, settings, settings_of) for edge, buffer in self.all_buffers.items()}
        direct = [b.station for b, mode in modes.items() if mode == "direct" and b.station.partition.lock is None]
        if not layout.is_like(self._layout) or not all(b.is_like(mode) for b, mode in modes.items()):
            return False
        if not all(isinstance(station.owner, Worker) for station in direct):
            return False
        told = self._arrangement.adjust(list(zip(self._layout.cells, layout.cells, strict=True)))
        if told is None:
            return False
        self._become(settings)
        self._layout, self._graph = layout, (*self._graph[:3], dict(settings_of))
        self.storage.configure(*settings.budgets)
        for station in self.stations:
            station.latency = settings_of.get(station.vertex.id, settings).limit
        told += [(station.owner, partial(_lock, station)) for station in direct if isinstance(station.owner, Worker)]
        self._tell(told)
        for buffer, mode in modes.items():
            buffer.mode = mode or "normal"
        return True

    def _mode(self, edge: Edge, settings: Settings, settings_of: Mapping[int, Settings]) -> str | None:
        """How rows overtake in a buffer; None: there are none that do."""
        if edge.source.id not in self._overtaken:
            return None
        return self._modes.get(edge.target.id) or settings_of.get(edge.target.id, settings).mode

    def overtake(self, vertex: Vertex, mode: str) -> None:
        """How rows overtake in the buffers in front of an operator, whatever is set for all."""
        self._modes[vertex.id] = mode
        if not self.adjust(self.settings, self._graph[3]):
            self._rebuild()

    # -- waiting and ending -------------------------------------------------------------------------------

    def watching(self) -> AbstractContextManager[Callable[[], None]]:
        """For a push that waits for room: what returns when there may be some."""
        return self._control.watching(LOOK_AGAIN)

    def rows_in(self) -> int:
        """Rows that have ever been put into buffers."""
        return sum(line.rows_in for line in self.storage.lines)

    def changed(self) -> None:
        """Something has changed that nobody of the threads has done."""
        if self._control.watched:
            self._control.notify()

    @property
    def inside(self) -> bool:
        """Whether the caller is one of the threads."""
        return self._control.inside

    def settle(self, ids: Collection[int] | None = None, look: Look | None = None) -> None:
        """Return when everything that was put so far has been worked on, except what must wait for another input or
        in front of a suspended operator. ``ids``: by these operators; those that send to one of them are among them.
        A worker, and a thread that has paused workers, cannot wait: there it returns at once. ``look`` may give it
        up."""
        control = self._control
        if not self.stations or control.inside or control.pausing:
            return
        number = next(self._numbers)
        if not self._settled(number, ids):
            control.until(lambda: self._settled(number, ids), look)

    @property
    def stuck(self) -> bool:
        """Whether nothing is under way: what waits does so for another input, or in front of a suspended operator."""
        return self._settled(next(self._numbers))

    def _settled(self, number: int, ids: Collection[int] | None = None) -> bool:
        """Whether nothing that entered before this number is under way.

        Looks from the sources on: what a station has passed on is then in front of one that is looked at later. A
        partition that had a turn meanwhile is looked at again.
        """
        placed = self._placed
        if placed % 2:
            return False
        for station in self.stations:
            if ids is not None and station.vertex.id not in ids:
                continue
            for _ in range(TRIES):
                turns = station.partition.turns
                if turns % 2 and station.partition.number < number:
                    return False
                try:
                    if waits_for(station, number):
                        return False
                except IndexError:  # taken meanwhile
                    continue
                if station.partition.turns == turns:
                    break
            else:
                return False
        return placed == self._placed

    def close(self) -> None:
        """End all threads, after what each is working on; what waits is dropped. May be called again, and by anybody;
        those who wait for the runtime to settle go on."""
        self._control.close()
        if not self._control.threads:  # those that end later find what they need
            for buffer in self.all_buffers.values():
                buffer.queue.purge()
                buffer.lane = None
        self.storage.close()

    def _check_open(self) -> None:
        if self._control.closed:
            raise StateError("the runtime is closed")

    # -- numbers ------------------------------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return self._control.threads

    @property
    def idle(self) -> bool:
        """Whether nothing waits anywhere."""
        return not any(buffer.queue or buffer.lane for buffer in self.all_buffers.values())

    def is_pushed(self, vertex: Vertex) -> bool:
        """Whether an operator is run by the thread that pushes."""
        return self._partition_of.get(vertex.id, PUSHED) == PUSHED

    def is_held(self, vertex: Vertex) -> bool:
        """Whether an operator is suspended from outside."""
        return vertex.id in self._held

    @property
    def holds(self) -> bool:
        """Whether some operator is suspended."""
        return bool(self._held)

    @property
    def buffers(self) -> dict[Edge, BufferView]:
        """What waits where."""
        return {edge: buffer.view() for edge, buffer in self.all_buffers.copy().items()}

    @property
    def partition_of(self) -> Mapping[int, int]:
        """The partition of each operator; ``PUSHED`` is that of the thread that pushes."""
        return self._partition_of

    def partitions(self) -> tuple[PartitionView, ...]:
        """The virtual operators as they are run now."""
        return tuple(_view(partition) for partition in self._partitions if partition.vertices)


def _rest(station: Station, held: bool) -> None:
    """Done by the worker that owns the station."""
    station.held = held
    if station.vertex.state != "stopped":
        station.vertex.state = "suspended" if held else "ready"
    if not held:
        station.signalled = True
        station.tell(local=True)


def _is_long(buffer: Buffer | None) -> bool:
    """Whether so much waits there that a worker is to work it off, not the thread that has paused all."""
    return buffer is not None and (len(buffer.queue) > LONG or buffer.waiting > MANY)


def _lock(station: Station) -> None:
    """Done by the worker that owns the station: from now on others may hand rows over while it does not work."""
    if station.partition.lock is None:
        station.partition.lock = threading.RLock()


def _carry_out(instruction: Instruction, done: threading.Event) -> None:
    try:
        instruction()
    finally:
        done.set()


def waits_for(station: Station, number: int) -> bool:
    """Whether something that entered before this number can be worked on."""
    if station.lanes and not station.held:
        for buffer in station.buffers:
            if buffer.lane is not None and any(entry[1] < number for entry in buffer.lane):
                return True
    for buffer in station.passable():
        if buffer.queue[0][1] < number or any(entry[1] < number for entry in buffer.queue.copy()):
            return True
    return False


def _view(partition: Partition) -> PartitionView:
    vertices, owner = partition.vertices, partition.owner
    measured = [v for v in vertices if v.stats.interarrival is not None]
    left = capacity([Node(v.id, v.stats.cost, v.stats.interarrival) for v in measured]) if measured else None
    return PartitionView(
        partition.id,
        tuple(v.id for v in vertices),
        None if owner is None else owner.name,
        None if owner is None else owner.strategy_name,
        partition.priority,
        left,
    )
