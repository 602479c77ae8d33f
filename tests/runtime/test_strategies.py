"""What each strategy chooses, without threads, against the obvious."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from experiments.strategies import latencies, positions
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InputError
from penstock.runtime import paths
from penstock.runtime.station import AGEING, Station
from penstock.runtime.strategies import names, strategy
from penstock.runtime.strategy import BRIEF, REFRESH, Quantum, Strategy
from penstock.runtime.worker import Worker
from tests.runtime.fakes import Fake, Map, Sink, Source, chain, link, message
from tests.runtime.stations import Rig


class Trial:
    """A worker that is stepped by hand; ``ran`` are the operators in the order of their turns."""

    def __init__(self, chosen: Strategy, *vertices: Fake) -> None:
        self.strategy = chosen
        self.rig = Rig(*vertices)
        self.vertices = vertices
        self.worker = Worker("test", _raise)
        self.worker.adopt(self.rig.all, chosen)
        self.ts = 0

    def put(self, id: int, rows: int = 1, priority: int | None = None) -> None:
        sent = [(self.ts + i, 0, 0) for i in range(rows)]
        self.ts += rows
        self.rig.put(id, message(sent, self.ts, priority))

    def step(self, now: float = 0.0) -> int | None:
        before = [v.stats.calls for v in self.vertices]
        if not self.worker.step(now):
            return None
        (ran,) = [v.id for v, calls in zip(self.vertices, before, strict=True) if v.stats.calls > calls]
        return ran

    def all(self, now: float = 0.0) -> list[int]:
        ran = []
        while (id := self.step(now)) is not None:
            ran.append(id)
        return ran


def _raise(vertex: object, error: Exception) -> None:
    raise error


def measured(vertex: Fake, cost: float, selectivity: float = 1.0) -> Fake:
    """As if it had been seen at work."""
    vertex.stats.elements_in, vertex.stats.elements_out = 1_000_000, int(1_000_000 * selectivity)
    vertex.stats.busy = int(cost * 1e9 * 1_000_000)
    return vertex


# -- against the obvious choice ---------------------------------------------------------------------------

moves = st.lists(
    st.none() | st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3)), max_size=40
)  # None is a turn; else a message: where, rows, priority


def number(station: Station) -> float:
    return station.oldest[0]


OBVIOUS: dict[str, Callable[[Station], tuple[float, ...]]] = {
    "fifo": lambda s: (s.oldest[1] - AGEING * s.vertex.priority, number(s)),
    "biggest-queue": lambda s: (-sum(len(e[0]) for b in s.buffers for e in b.queue), number(s)),
    "highest-priority": lambda s: (
        -max(int(p.max()) for b in s.buffers for e in b.queue if (p := e[0].read().data.priority) is not None),
        s.oldest[1] - AGEING * s.vertex.priority,
        number(s),
    ),
    # 1 releases half in a second, 2 nothing at all, 3 nine tenths in three seconds, 4 a tenth in a tenth
    "chain": lambda s: (-[0.5, 0.0, 0.3, 1.0][s.vertex.id - 1] * (s.vertex.priority + 1), number(s)),
    "min-latency": lambda s: ([1.0, 0.5, 3.0, 0.1][s.vertex.id - 1], number(s)),
}  # fmt: skip


@pytest.mark.parametrize("name", OBVIOUS)
@given(moves)
def test_least_first(name: str, moves: list[tuple[int, int, int] | None]) -> None:
    costs = [(1.0, 0.5), (0.5, 1.0), (3.0, 0.1), (0.1, 0.9)]
    fakes = [measured(Map(i + 1, priority=[5, 9, 5, 0][i]), c, s) for i, (c, s) in enumerate(costs)]
    trial = Trial(strategy(name), *fakes)
    for move in [*moves, *[None] * len(moves)]:
        if move is not None:
            trial.put(*move)
            continue
        ready = [s for s in trial.rig.all if s.available()]
        expected = min(ready, key=OBVIOUS[name]).vertex.id if ready else None
        assert trial.step() == expected
    assert trial.step() is None


@given(moves)
def test_round_robin(moves: list[tuple[int, int, int] | None]) -> None:
    trial = Trial(strategy("round-robin"), *[Map(i) for i in range(1, 5)])
    turn: list[int] = []
    waiting = dict.fromkeys(range(1, 5), 0)
    for move in [*moves, *[None] * len(moves)]:
        if move is not None:
            trial.put(move[0], move[1])
            waiting[move[0]] += 1
            if move[0] not in turn:
                turn.append(move[0])
        elif turn:
            first = turn.pop(0)
            waiting[first] -= 1
            assert trial.step() == first
            if waiting[first]:
                turn.append(first)
    assert trial.step() is None


@given(moves, st.floats(0.5, 5))
def test_chain_flush(moves: list[tuple[int, int, int] | None], limit: float) -> None:
    """Every move takes a second."""
    steep = {1: 0.25, 2: 1.0, 3: 0.5, 4: 0.75}
    trial = Trial(strategy("chain-flush", latency=limit), *[measured(Map(i), 1.0, 1 - s) for i, s in steep.items()])
    for now, move in enumerate([*moves, *[None] * len(moves)]):
        if move is not None:
            trial.put(move[0], move[1])
            buffer = trial.rig.stations[move[0]].buffers[0]
            content, n, _, rank = buffer.queue.pop()
            buffer.queue.append((content, n, float(now), rank))
            continue
        ready = [s for s in trial.rig.all if s.available()]
        late = [s for s in ready if now > s.oldest[1] + limit]
        expected = None
        if late:
            expected = min(late, key=lambda s: s.oldest[1]).vertex.id
        elif ready:
            expected = min(ready, key=lambda s: (-steep[s.vertex.id], number(s))).vertex.id
        assert trial.step(float(now)) == expected


# -- one by one -------------------------------------------------------------------------------------------


def pipeline(name: str, **more: float) -> Trial:
    first, second, third = Map(1), Map(2), Sink(3)
    chain(Source(0), first, second, third)
    return Trial(strategy(name, **more), first, second, third)  # type: ignore[arg-type]


def test_fifo_follows_an_element_to_the_end() -> None:
    trial = pipeline("fifo")
    trial.put(1)
    trial.put(1)
    assert trial.all() == [1, 2, 3, 1, 2, 3]


def entered(trial: Trial, id: int, at: float) -> None:
    """The last message in front of an operator has entered then."""
    queue = trial.rig.stations[id].buffers[0].queue
    content, n, _, rank = queue.pop()
    queue.append((content, n, at, rank))


@pytest.mark.parametrize("name", ["fifo", "fifo+", "highest-priority", "highest-priority+"])
@pytest.mark.parametrize(("since", "order"), [(0.5, [2, 1]), (0.9, [1, 2])])
def test_priority_counts_as_waiting_so_that_nothing_starves(name: str, since: float, order: list[int]) -> None:
    trial = Trial(strategy(name), Map(1, priority=1), Map(2, priority=9))
    for id, at in ((1, 1.0 - since), (2, 1.0)):
        buffer = trial.rig.stations[id].buffers[0]
        buffer.station.signalled = True  # it is told when the time of entry is right
        trial.put(id)
        entered(trial, id, at)
        trial.worker.instruct(buffer.station)
    assert trial.all() == order


@pytest.mark.parametrize("name", ["fifo", "chain"])
def test_operators_that_wait_are_put_in_order_anew_when_priorities_change(name: str) -> None:
    fakes = [measured(Map(i, priority=5), 1.0, 0.5) for i in (1, 2)]
    trial = Trial(strategy(name), *fakes)
    trial.put(1)
    trial.put(2)
    trial.put(1)
    assert trial.step() == 1  # from now on both are with the strategy
    fakes[0].priority, fakes[1].priority = (0, 9)
    trial.worker.instruct(trial.worker.reorder)
    assert trial.all() == [2, 1]


def test_a_query_that_asks_for_less_latency_is_flushed_earlier_and_never_later() -> None:
    fakes = [measured(Map(i), 1.0, 1 - steep) for i, steep in ((1, 0.9), (2, 0.5), (3, 0.1))]
    trial = Trial(strategy("chain-flush", latency=2.0), *fakes)
    trial.rig.stations[3].latency, trial.rig.stations[2].latency = 0.5, 60.0
    for id in (1, 2, 3):
        station = trial.rig.stations[id]
        station.signalled = True
        trial.put(id)
        entered(trial, id, 0.0)
        trial.worker.instruct(station)
    assert trial.step(1.0) == 3  # though it releases least
    assert trial.all(3.0) == [1, 2]


def test_round_robin_spreads() -> None:
    trial = pipeline("round-robin")
    trial.put(1)
    trial.put(1)
    assert trial.all() == [1, 2, 1, 3, 2, 3]


def test_min_cost_sweeps_from_the_sources_on() -> None:
    trial = pipeline("min-cost+")
    for _ in range(3):
        trial.put(1)
    assert trial.step() == 1
    trial.put(1)
    assert trial.all() == [2, 3, 1, 2, 3]  # what came meanwhile waits for the next sweep


def test_min_cost_on_the_plan_of_004() -> None:
    """1, 2 and 3 have data; 4 takes from 1, 5 from 3 and 4: senders before receivers."""
    fakes = [Map(i) for i in range(1, 4)]
    fourth, fifth = Map(4), Sink(5)
    for i, fake in enumerate(fakes):
        link(Source(10 + i), fake)
    link(fakes[0], fourth)
    link(fakes[2], fifth)
    link(fourth, fifth)
    trial = Trial(strategy("min-cost"), *fakes, fourth, fifth)
    for id in (3, 2, 1):
        trial.put(id)
    ran = trial.all()
    assert ran.index(1) < ran.index(4) < ran.index(5)
    assert ran.index(3) < ran.index(5)
    assert sorted(ran) == [1, 2, 3, 4, 5, 5]


def test_min_latency_finishes_what_is_nearest_to_an_answer() -> None:
    trial = pipeline("min-latency")
    trial.put(1)
    trial.put(1)
    assert trial.step() == 1
    assert trial.all() == [2, 3, 1, 2, 3]


def test_flow_works_until_nothing_is_left_and_suspends() -> None:
    trial = pipeline("flow")
    for _ in range(3):
        trial.put(1)
    states = [(trial.step(), trial.vertices[0].state) for _ in range(3)]
    assert states == [(1, "ready"), (1, "ready"), (1, "suspended")]
    trial.put(1)
    assert trial.all() == [2, 2, 2, 1, 3, 3, 3, 2, 3]
    assert [v.state for v in trial.vertices] == ["suspended"] * 3


def test_weighted_round_robin_gives_turns_by_priority() -> None:
    fakes = [Map(1, priority=0), Map(2, priority=5), Map(3, priority=9)]
    trial = Trial(strategy("weighted-round-robin", Quantum(elements=6)), *fakes)
    for _ in range(30):
        for fake in fakes:
            trial.put(fake.id)
    assert [trial.step() for _ in range(17)] == [1, *[2] * 6, *[3] * 10]
    assert trial.step() == 1


def test_chain_prefers_the_segment_that_releases_most() -> None:
    """A filter that lets nothing through, behind one that lets all through, makes a steep segment of both."""
    first, second = measured(Map(1), 1.0, 1.0), measured(Map(2), 1.0, 0.0)
    third = measured(Map(3), 1.0, 0.6)
    chain(Source(0), first, second)
    trial = Trial(strategy("chain"), first, second, third)
    trial.put(3)
    trial.put(1)
    assert trial.all() == [1, 2, 3]


def test_chain_looks_at_the_statistics_again() -> None:
    low, high = measured(Map(1), 1.0, 0.9), measured(Map(2), 1.0, 0.5)
    trial = Trial(strategy("chain"), low, high)
    for _ in range(2):
        trial.put(1)
        trial.put(2)
    assert trial.step(0.0) == 2
    measured(low, 1.0, 0.1)
    assert trial.all(REFRESH + 0.1) == [1, 1, 2]


def test_a_quantum_of_time_becomes_elements_by_measured_cost() -> None:
    times = iter([i * 1.0 for i in range(100)])  # each turn takes a second
    fake = measured(Map(1), 0.1)
    rig = Rig(fake)
    worker = Worker("test", _raise, clock=lambda: next(times))
    worker.adopt(rig.all, strategy("fifo+", Quantum(seconds=0.5)))
    rig.put(1, message([(i, 0, 0) for i in range(100)]))
    before = fake.stats.elements_in
    worker.step(0.0)
    assert fake.stats.elements_in - before == 5  # half a second at a tenth for each
    assert rig.stations[1].cost == pytest.approx(0.2)
    before = fake.stats.elements_in
    worker.step(0.0)
    assert fake.stats.elements_in - before == 2


def test_turns_of_less_urgent_operators_are_short_in_time() -> None:
    times = iter([i * 0.1 for i in range(100)])  # each turn takes a tenth of a second
    fake = measured(Map(1), BRIEF / 10)
    rig = Rig(fake)
    rig.stations[1].brief = True
    worker = Worker("test", _raise, clock=lambda: next(times))
    worker.adopt(rig.all, strategy("fifo+"))
    taken = []
    for _ in range(2):
        rig.put(1, message([(i, 0, 0) for i in range(100)]))
        before = fake.stats.elements_in
        worker.step(0.0)
        taken.append(fake.stats.elements_in - before)
    assert taken == [10, 1], "as many as fit into the time; at least one"
    rig.stations[1].brief = False
    before = fake.stats.elements_in
    worker.step(0.0)
    assert fake.stats.elements_in - before == 189, "all that wait"


@pytest.mark.parametrize("name", names())
def test_every_strategy_serves_everything(name: str) -> None:
    trial = pipeline(name)
    for rows in (3, 1, 2):
        trial.put(1, rows)
    ran = trial.all()
    sink = trial.vertices[2]
    assert isinstance(sink, Sink)
    assert len(sink.rows[0]) == 6
    assert len(ran) == (3 if name.endswith("+") else 9)
    assert trial.worker.idle


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(InputError, match=r"did you mean `round-robin`.*min-latency.*\+ for trains"):
        strategy("round-robbin")
    with pytest.raises(InputError, match=r"unknown strategy 'xyz'; the strategies are fifo, .*flow"):
        strategy("xyz")


# -- what is derived from the graph -----------------------------------------------------------------------


def test_latency_is_that_of_the_nearest_end() -> None:
    a, b, c, d = (measured(Map(i), cost) for i, cost in enumerate((1.0, 2.0, 10.0, 1.0)))
    link(a, b, c)
    link(b, d)
    assert latencies([a]) == {0: 4.0, 1: 3.0, 2: 10.0, 3: 1.0}


def test_steepness_is_the_best_of_all_paths() -> None:
    shared, keeps, drops = measured(Map(1), 1.0, 1.0), measured(Map(2), 1.0, 1.0), measured(Map(3), 1.0, 0.0)
    link(shared, keeps, drops)
    assert paths.steepness([shared]) == {1: 0.5, 2: 0.0, 3: 0.5}


def test_what_comes_to_a_query_leaves_the_graph() -> None:
    """Else whatever only passes on would wait until nothing else is left to do."""
    drops, keeps, end = measured(Map(1), 0.1, 0.5), measured(Map(2), 9.0, 1.0), measured(Map(3), 1.0, 1.0)
    chain(drops, keeps, end)
    assert paths.steepness([drops]) == pytest.approx({1: 5.0, 2: 0.0, 3: 0.0})
    end.kind = "query"
    assert paths.steepness([drops]) == pytest.approx({1: 5.0, 2: 0.1, 3: 0.1})


def test_many_paths_do_not_take_forever() -> None:
    """Sixty layers of two, each sending to both of the next: 2**60 paths."""
    layers = [[Map(10 * i + j) for j in range(2)] for i in range(60)]
    for before, after in itertools.pairwise(layers):
        for vertex in before:
            link(vertex, *after)
    found = paths.steepness(layers[0])
    assert found.keys() == {v.id for layer in layers for v in layer}
    assert all(math.isfinite(s) for s in found.values())
    places = positions(layers[0])
    assert all(places[e.source.id] < places[e.target.id] for layer in layers for v in layer for e in v.outputs)
