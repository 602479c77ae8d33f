"""Stations without threads, for tests of who chooses what."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from penstock.graph.message import Message
from penstock.runtime.buffer import Buffer
from penstock.runtime.station import Partition, Station
from tests.runtime.fakes import Fake, Source, link


class Rig:
    """A station in front of each operator, with a buffer on every edge. What is put from outside is numbered in order
    and has entered at the time ``now``."""

    def __init__(self, *vertices: Fake) -> None:
        self.numbers = itertools.count()
        self.stations: dict[int, Station] = {}
        for vertex in vertices:
            if not vertex.inputs:
                link(Source(1000 + vertex.id), vertex)
            station = Station(vertex, Partition(vertex.id, [vertex]))
            for edge in vertex.inputs:
                buffer = Buffer(edge, self.numbers, station)
                known = self.stations.get(edge.source.id)
                buffer.producer, buffer.local = (None, False) if known is None else (known.partition, True)
                edge.buffer = buffer
                station.buffers.append(buffer)
            self.stations[vertex.id] = station

    @property
    def all(self) -> Sequence[Station]:
        return list(self.stations.values())

    def put(self, id: int, message: Message, port: int = 0) -> None:
        self.stations[id].buffers[port].put(message)
