"""A queue on an edge: order, counts, parts and trains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.buffer import Buffer
from tests.runtime.fakes import Map, Row, closing, message, rows_of
from tests.runtime.stations import Rig


def one() -> Buffer:
    rig = Rig(Map(1))
    return rig.stations[1].buffers[0]


batches = st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=12).map(
    lambda sizes: [  # messages whose instants go on where the last one ended, some instants with several rows
        [(100 * i + 10 * j, 0, k) for j, n in enumerate(sizes_of) for k in range(n)] for i, sizes_of in enumerate(sizes)
    ]
)


@given(batches, st.none() | st.integers(1, 6), st.booleans())
def test_everything_comes_out_in_order(parts: list[list[Row]], limit: int | None, train: bool) -> None:
    buffer = one()
    for i, rows in enumerate(parts):
        buffer.put(message(rows, 100 * (i + 1)))
    got: list[Row] = []
    marks = []
    while buffer.queue:
        taken = buffer.take(limit, train)
        rows = rows_of(taken)
        assert all(r[:2] < taken.mark.frontier for r in rows)
        instants = [r[:2] for r in rows]
        assert limit is None or len(rows) <= limit or instants[limit - 1] == instants[-1]
        got += rows
        marks.append(taken.mark.frontier)
        assert buffer.register == taken.mark.frontier
        assert buffer.waiting == sum(map(len, parts)) - len(got) == buffer.view().elements
    assert got == [r for rows in parts for r in rows]
    assert marks == sorted(marks)
    assert not parts or marks[-1] == (100 * len(parts), 0)
    view = buffer.view()
    assert (view.passed, view.peak, view.bytes) == (len(parts), sum(map(len, parts)), 0)


def test_a_train_joins_all_that_waits() -> None:
    buffer = one()
    for i in range(5):
        buffer.put(message([(i, 0, i)]))
    assert len(buffer.take(train=True)) == 5
    assert not buffer.queue


def test_a_train_stops_at_the_quantum() -> None:
    buffer = one()
    for i in range(5):
        buffer.put(message([(10 * i, 0, 0), (10 * i + 1, 0, 0)]))
    assert [len(buffer.take(5, train=True)) for _ in range(3)] == [4, 4, 2]


def test_a_train_does_not_go_beyond_what_other_inputs_will_reach() -> None:
    buffer = one()
    for i in range(5):
        buffer.put(message([(i, 0, i)], i + 1))
    assert len(buffer.take(train=True, upto=(2, 0))) == 3


def test_numbers_go_over_all_buffers() -> None:
    rig = Rig(Map(1), Map(2))
    for id in (1, 2, 2, 1):
        rig.put(id, message([(id, 0, 0)]))
    numbers = {id: [entry[1] for entry in rig.stations[id].buffers[0].queue] for id in (1, 2)}
    assert numbers == {1: [0, 3], 2: [1, 2]}


def test_bytes_are_those_of_what_waits() -> None:
    buffer = one()
    first, second = message([(0, 0, 1), (1, 0, 2)]), message([(2, 0, 3)])
    buffer.put(first)
    alone = buffer.view().bytes
    assert alone >= first.nbytes
    buffer.put(second)
    both = buffer.view().bytes
    assert both >= first.nbytes + second.nbytes
    buffer.take()
    assert buffer.view().bytes == both - alone


@pytest.mark.parametrize("limit", [None, 1])
def test_rank_is_the_highest_priority_that_waits(limit: int | None) -> None:
    buffer = one()
    assert buffer.rank == 0
    buffer.put(message([(0, 0, 0), (1, 0, 0)], priority=3))
    buffer.put(message([(2, 0, 0)], priority=7))
    buffer.put(closing())
    ranks = []
    while buffer.queue:
        ranks.append(buffer.rank)
        buffer.take(limit)
    assert ranks == ([7, 7, 0] if limit is None else [7, 7, 7, 0])
    assert buffer.rank == 0
