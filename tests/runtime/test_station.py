"""Which input is next (000, algorithm 1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.run import waits_for
from penstock.runtime.station import Partition, Station
from tests.runtime.fakes import Map, Merge, Sink, Source, closing, link, message
from tests.runtime.stations import Rig


def join(inputs: int = 2) -> tuple[Rig, Station, Merge]:
    merge = Merge(1)
    for i in range(inputs):
        link(Source(10 + i), merge)
    rig = Rig(merge)
    return rig, rig.stations[1], merge


def served(station: Station) -> int:
    buffer = station.next()
    assert buffer is not None
    port = buffer.edge.port
    station.serve()
    return port


def test_lowest_first_when_all_have_something() -> None:
    rig, station, merge = join()
    for ts in (10, 20):
        rig.put(1, message([(ts, 0, 0)]), 0)
    for ts in (5, 15):
        rig.put(1, message([(ts, 0, 0)]), 1)
    assert [served(station) for _ in range(3)] == [1, 0, 1]
    assert merge.order == [1, 0, 1]


def test_held_back_while_an_empty_input_lags() -> None:
    rig, station, _ = join()
    rig.put(1, message([(10, 0, 0)], 11), 0)
    rig.put(1, message([(5, 0, 0)], 6), 1)
    assert [served(station), served(station)] == [1, 0]
    rig.put(1, message([(20, 0, 0)], 21), 0)
    assert not station.available()  # input 1 is known to 6 only, input 0 to 11
    rig.put(1, message([], 8), 1)
    assert served(station) == 1
    assert not station.available()
    rig.put(1, message([], 12), 1)
    assert [served(station), served(station)] == [1, 0]


def test_equal_instants_on_both_inputs_all_pass() -> None:
    rig, station, _ = join()
    for port in (0, 1, 0, 1):
        rig.put(1, message([(7, 0, port)], 7), port)
    for _ in range(4):
        served(station)
    assert not station.available()


def test_progress_alone_always_passes() -> None:
    rig, station, _ = join()
    rig.put(1, message([], 5), 1)
    served(station)
    rig.put(1, message([], 50), 0)
    assert served(station) == 0
    rig.put(1, message([], 60), 0)
    assert served(station) == 0


def test_an_input_that_has_never_said_anything_holds_nobody_back() -> None:
    rig, station, _ = join()
    for ts in (1, 2, 3):
        rig.put(1, message([(ts, 0, 0)]), 0)
    assert [served(station) for _ in range(3)] == [0, 0, 0]


def test_a_closed_input_holds_nobody_back() -> None:
    rig, station, _ = join()
    rig.put(1, closing(), 1)
    served(station)
    rig.put(1, message([(1, 0, 0)]), 0)
    rig.put(1, message([(9, 0, 0)]), 0)
    assert [served(station), served(station)] == [0, 0]


def test_a_suspended_station_is_not_available() -> None:
    rig, station, _ = join(1)
    rig.put(1, message([(1, 0, 0)]))
    assert station.available()
    station.held = True
    assert not station.available()
    assert station.next() is None


def test_trains_stop_where_the_other_input_will_be() -> None:
    rig, station, merge = join()
    for ts in range(10):
        rig.put(1, message([(ts, 0, 0)], ts + 1), 0)
    rig.put(1, message([(3, 1, 0)], 4), 1)
    assert station.serve(train=True) == 5  # the fifth is taken when input 0 is known to 4, as far as input 1 will be
    assert station.serve(train=True) == 1
    assert merge.order == [0, 1]


steps = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 2)), max_size=30
)  # port, how far its frontier moves, rows


@given(steps, st.booleans(), st.integers(2, 3))
def test_what_is_held_back_could_not_have_changed_anything(
    moves: list[tuple[int, int, int]], train: bool, inputs: int
) -> None:
    """When nothing is available, the operator has sent all that it would have, had everything been passed on."""
    rig, station, merge = join(inputs)
    sink = Sink(2)
    link(merge, sink)
    direct, direct_sink = Merge(3), Sink(4)
    for i in range(inputs):
        link(Source(20 + i), direct)
    link(direct, direct_sink)
    known = [0] * inputs
    for number, (port, ahead, rows) in enumerate(moves):
        port %= inputs
        begin = known[port]
        known[port] += ahead
        sent = [(begin + i * ahead // max(rows, 1), number, number + i) for i in range(rows)] if ahead else []
        sent.sort()
        rig.put(1, message(sent, known[port]), port)
        direct.take(port, message(sent, known[port]))
        if number % 3 == 2:
            while station.available():
                station.serve(train=train)
            assert sink.rows.get(0, []) == direct_sink.rows.get(0, [])
    assert not merge.errors


def test_all_that_entered_before_is_waited_for_also_behind_newer_ones() -> None:
    """Behind operators that were not served in order of entry, numbers are not in order either."""
    rig, station, _ = join(1)
    producer = station.buffers[0].producer = Partition(9)
    for number in (7, 3):
        producer.number = number
        rig.put(1, message([(number == 3, 0, 0)], 1))
    assert [waits_for(station, before) for before in (2, 3, 4, 8)] == [False, False, True, True]


def test_the_state_is_running_only_during_a_turn() -> None:
    states: list[str] = []
    sink = Sink(1, lambda: states.append(sink.state))
    rig = Rig(sink)
    rig.put(1, message([(1, 0, 0)]))
    rig.stations[1].serve()
    assert (states, sink.state) == (["running"], "ready")


def test_a_stopped_operator_stays_stopped() -> None:
    def stop() -> None:
        sink.state = "stopped"

    sink = Sink(1, stop)
    rig = Rig(sink)
    rig.put(1, message([(1, 0, 0)]))
    rig.stations[1].serve()
    assert sink.state == "stopped"


def test_answers_have_the_number_of_what_caused_them() -> None:
    first, second = Map(1), Map(2)
    link(Source(0), first)
    link(first, second)
    rig = Rig(first, second)
    rig.put(1, message([(1, 0, 0)]))
    rig.put(1, message([(2, 0, 0)]))
    rig.stations[1].serve()
    rig.stations[1].serve()
    assert [entry[1] for entry in rig.stations[2].buffers[0].queue] == [0, 1]
