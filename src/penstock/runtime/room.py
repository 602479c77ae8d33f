"""Whether there is room in the buffers of a runtime, and who takes it up."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.graph.vertex import Vertex

if TYPE_CHECKING:
    from penstock.runtime.run import Runtime


class Room:
    """Questions about what waits in a runtime. Remembers nothing."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def has(self, sources: Collection[Vertex], bytes: int) -> bool:
        """Whether so much more can be pushed into these: always if it comes into no buffer, or if a stream drops its
        oldest rows and nothing is too much elsewhere."""
        runtime = self._runtime
        lines = [line for source in sources for line in runtime.waiting_lines.entrance(source, runtime.is_pushed)]
        if not lines:
            return True
        if all(line.dropping for line in lines):
            return not any(line.crowded and not line.dropping for line in runtime.storage.lines)
        return runtime.storage.has_room(bytes)

    def awaited(self) -> set[int]:
        """The sources that must be given something before what waits for another input can be worked on."""
        buffers, found, seen = self._runtime.all_buffers, set[int](), set[int]()
        todo = [
            buffer.edge
            for station in self._runtime.stations
            if not station.held and any(b.queue for b in station.buffers) and not station.passable()
            for buffer in station.buffers
            if not buffer.queue
        ]
        while todo:
            sender = todo.pop().source
            if sender.id not in seen:
                seen.add(sender.id)
                if not sender.inputs:
                    found.add(sender.id)
                todo += [e for e in sender.inputs if e not in buffers or not buffers[e].queue]
        return found

    def waiting(self, vertices: Collection[int]) -> tuple[int, int]:
        """Rows and bytes that wait for these operators, by their numbers."""
        rows = bytes = 0
        for edge, buffer in self._runtime.all_buffers.items():
            if edge.target.id in vertices and buffer.queue:
                rows += buffer.waiting
                bytes += buffer.bytes
        return rows, bytes

    def slowest(self) -> tuple[Vertex, int] | None:
        """The operator in front of which the most bytes wait, and how many rows."""
        buffers = self._runtime.all_buffers.copy()
        waits = [(buffer.bytes, edge) for edge, buffer in buffers.items() if buffer.queue]
        if not waits:
            return None
        edge = max(waits, key=lambda found: found[0])[1]
        return edge.target, buffers[edge].waiting
