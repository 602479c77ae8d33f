"""Prioritised rows in front of operators: how many at once and before what, without threads."""

from __future__ import annotations

import threading
from typing import cast

import experiments  # noqa: F401 - more modes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.message import BEGIN, Data, Message
from penstock.model.delta import Arrivals
from penstock.runtime.buffer import Buffer
from penstock.runtime.lanes import LANES, Entry, Levels
from penstock.runtime.run import Runtime
from penstock.runtime.settings import Settings
from penstock.runtime.station import Partition, Station
from penstock.runtime.strategies import strategy
from penstock.runtime.worker import Worker
from tests.runtime.fakes import SCHEMA, Fake, Map, Sink, Source, chain, link, message
from tests.runtime.stations import Rig

STRONG = ("strong", "strong1", "strong2")


def entry(number: int, rank: int) -> Entry:
    return message([(number, 0, 0)], priority=rank).data, number, float(number), rank


moves = st.lists(st.none() | st.integers(1, 5), max_size=40)  # None: take; else put a row of this priority


@given(moves, st.sampled_from([*STRONG, "weak"]))
def test_rank_and_oldest_are_those_of_what_waits(moves: list[int | None], mode: str) -> None:
    lane, waiting = LANES[mode](), dict[int, int]()
    for number, rank in enumerate(moves):
        if rank is not None:
            waiting[number] = rank
            lane.put(entry(number, rank))
        elif waiting:
            del waiting[lane.take()[1]]
        assert lane.rank == max(waiting.values(), default=0)
        if waiting:
            assert lane.oldest[0] == min(waiting)


def test_a_level_of_which_nothing_waits_is_forgotten() -> None:
    """There may be as many priorities as rows."""
    lane = Levels()
    for number in range(100):
        lane.put(entry(number, number + 1))
        lane.take()
    assert not lane._of
    assert not lane._heap


class Overtaken(Fake):
    """Notes what comes, and whether it comes early."""

    overtakable = True

    def __init__(self, id: int) -> None:
        super().__init__(id)
        self.came: list[tuple[str, list[int]]] = []

    def work(self, port: int, message: Message) -> None:
        self.came.append(("ordinary", message.data.ts.tolist()))

    def take_early(self, port: int, data: Data) -> None:
        if (int(data.ts[0]), int(data.sub[0])) < self._known.get(port, BEGIN.frontier):
            self.errors.append("a message came before a row that overtook it")
        self.came.append(("early", data.ts.tolist()))


def ranked(*ranks: int, first: int = 0) -> Message:
    """A message with a row of each of these priorities."""
    ts = np.arange(first, first + len(ranks))
    made = message([(int(t), 0, 0) for t in ts], int(ts[-1]) + 1)
    data = made.data
    return Message(Arrivals(SCHEMA, data.columns, data.ts, data.sub, np.array(ranks)), made.mark)


def overtaking(mode: str, ports: int = 1) -> tuple[Station, Overtaken]:
    vertex = Overtaken(1)
    for i in range(ports):
        link(Source(10 + i), vertex)
    station = Rig(vertex).stations[1]
    station.lanes = True
    for buffer in station.buffers:
        buffer.overtaking(mode)
    return station, vertex


@pytest.mark.parametrize("mode", ["weak", *STRONG])
def test_a_train_has_all_that_overtake_and_then_all_others(mode: str) -> None:
    station, vertex = overtaking(mode)
    station.buffers[0].put(ranked(0, 2, 0, 1))
    station.buffers[0].put(ranked(1, 0, first=4))
    assert station.serve(train=True) == 6
    assert vertex.came == [("early", [1, 3, 4]), ("ordinary", [0, 2, 5])]
    assert not station.available()


@pytest.mark.parametrize("mode", STRONG)
def test_a_train_that_is_kept_apart_has_one_priority(mode: str) -> None:
    station, vertex = overtaking(mode)
    station.buffers[0].put(ranked(0, 2, 0, 1))
    station.buffers[0].put(ranked(1, 2, first=4))
    assert [station.serve(train=True, apart=True) for _ in range(3)] == [2, 2, 2]
    assert vertex.came == [("early", [1, 5]), ("early", [3, 4]), ("ordinary", [0, 2])]


def test_without_trains_a_turn_is_one_entry() -> None:
    station, vertex = overtaking("strong")
    for first in (0, 1, 2):
        station.buffers[0].put(ranked(first, first=first))
    assert station.serve() == 1
    assert vertex.came == [("early", [2])]


def test_a_train_of_rows_that_overtake_is_limited() -> None:
    station, vertex = overtaking("strong")
    for first in range(5):
        station.buffers[0].put(ranked(1, first=first))
    assert station.serve(limit=3, train=True) == 3
    assert vertex.came == [("early", [0, 1, 2])]


@pytest.mark.parametrize("train", [False, True])
def test_no_message_comes_before_rows_that_overtook_it(train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread puts right after it was looked whether rows overtake."""
    station, vertex = overtaking("strong", ports=2)
    left, right = station.buffers
    left.put(ranked(0, first=5))
    early = Station.early
    put = [(left, ranked(7, 0, first=6)), (right, ranked(7, 0))]

    def meanwhile(self: Station) -> Buffer | None:
        found = early(self)
        while put:
            buffer, late = put.pop()
            buffer.put(late)
        return found

    monkeypatch.setattr(Station, "early", meanwhile)
    station.serve(train=train)
    assert not put
    right.put(message([], 9))
    while station.available():
        station.serve(train=train)
    assert sorted(ts for _, came in vertex.came for ts in came) == [0, 1, 5, 6, 7]
    assert vertex.errors == []


@pytest.mark.parametrize("mode", LANES)
def test_the_rank_of_a_buffer_is_that_of_what_waits(mode: str) -> None:
    station, _ = overtaking(mode)
    (buffer,) = station.buffers
    seen: list[int] = []
    for ranks in ((0, 3), (5, 0), (0, 0)):
        buffer.put(ranked(*ranks, first=2 * len(seen)))
        seen.append(buffer.rank)
    while station.available():
        seen.append(buffer.rank)
        station.serve(limit=1)
    assert seen[:3] == [3, 5, 5]
    assert buffer.rank == 0
    if mode == "normal":  # 0, 3, 5, 0, 0, 0 one by one
        assert seen[3:] == [5, 5, 5, 0, 0, 0]


class Prioritising(Map):
    sets_priority = True


def test_what_is_to_be_given_a_priority_may_have_the_highest() -> None:
    source, other, first, second, sink = Source(0), Source(1), Prioritising(2), Map(3), Sink(4)
    chain(source, first, sink)
    link(other, second)
    runtime = Runtime(Settings(threading="graph"))
    try:
        runtime.place([first, second, sink], [source, other], {}, Settings(threading="graph"))
        stations = {s.vertex.id: s for s in runtime.stations}
        assert {id: s.unknown for id, s in stations.items()} == {2: True, 3: False, 4: False}
    finally:
        runtime.close()


def test_highest_priority_works_first_on_what_is_to_be_given_a_priority() -> None:
    setting, other = Map(1), Map(2)
    rig = Rig(setting, other)
    rig.stations[1].unknown = True
    chosen = strategy("highest-priority")
    worker = Worker("test", lambda vertex, error: None)
    worker.adopt(rig.all, chosen)
    for ts in range(2):
        rig.put(2, message([(ts, 0, 0)], priority=9))
        rig.put(1, message([(ts, 0, 0)]))
    turns = []
    while worker.step(0.0):
        turns.append((setting.stats.calls, other.stats.calls))
    assert turns == [(1, 0), (2, 0), (2, 1), (2, 2)]


class Moving:
    """A lock that is free when the station behind it has just become another virtual operator's."""

    def __init__(self, station: Station) -> None:
        self.station, self.held = station, 0

    def acquire(self, blocking: bool = True) -> bool:
        self.station.partition = Partition(9, [self.station.vertex])
        self.held += 1
        return True

    def release(self) -> None:
        self.held -= 1


def test_nothing_is_handed_over_to_a_virtual_operator_that_has_changed() -> None:
    sink = Overtaken(1)
    station = Rig(sink).stations[1]
    lock = Moving(station)
    station.partition.lock = cast(threading.RLock, lock)
    assert not station.hand_over(0, ranked(9).data, 0, 0.0)
    assert (sink.came, lock.held) == ([], 0)


class Caller(Fake):
    """Passes on, and calls those of its successors that had no buffer when it was last told to look."""

    overtakable = True

    def look(self) -> None:
        self.called = [edge for edge in self.outputs if edge.buffer is None]

    def work(self, port: int, message: Message) -> None:
        for edge in self.outputs:
            if edge in self.called:
                edge.target.take(edge.port, message)
            else:
                edge.send(message)

    def take_early(self, port: int, data: Data) -> None:
        for edge in self.outputs:
            edge.send_early(data)


def test_nothing_passes_rows_that_overtook_it_while_buffers_are_moved() -> None:
    """The buffer in front of the caller is drained, and one behind it is new."""
    source, caller, last = Source(0), Caller(1), Overtaken(2)
    chain(source, caller, last)
    runtime = Runtime(Settings(threading="graph"))
    try:
        direct = {1: Settings(), 2: Settings()}
        runtime.place([caller, last], [source], {}, Settings(), direct, overtaken=[0, 1])
        caller.look()
        runtime.suspend(caller)
        source.send(ranked(0, 5, 0))
        runtime._held.clear()  # what resuming does, but with other settings at the same time
        caller.state = "ready"
        runtime.place([caller, last], [source], {}, Settings(), {2: Settings(threading="graph")}, overtaken=[0, 1])
        caller.look()
        runtime.settle()
        assert last.came == [("early", [1]), ("ordinary", [0, 2])]
        assert not last.errors
    finally:
        runtime.close()
