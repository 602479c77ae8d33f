"""Where prioritised rows wait: each mode gives them in its order, and none is lost between two threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from experiments.lanes import OneList, TwoLists, Weak
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.lanes import LANES, Entry, Lane, Levels
from tests.runtime.fakes import message

STRONG = [Levels, OneList, TwoLists]


def entry(number: int, rank: int) -> Entry:
    return message([(number, 0, number)], priority=rank).data, number, float(number), rank


def drained(lane: Lane) -> list[int]:
    found = []
    while lane:
        found.append(lane.take()[1])
    return found


puts = st.lists(st.integers(1, 4), max_size=20)


@pytest.mark.parametrize("make", STRONG)
@given(ranks=puts)
def test_the_highest_first_and_of_equals_the_first(make: Callable[[], Lane], ranks: Sequence[int]) -> None:
    lane = make()
    for number, rank in enumerate(ranks):
        lane.put(entry(number, rank))
    assert lane.rank == max(ranks, default=0)
    assert drained(lane) == sorted(range(len(ranks)), key=lambda i: (-ranks[i], i))
    assert lane.rank == 0


@given(ranks=puts)
def test_weak_is_the_last_first(ranks: Sequence[int]) -> None:
    lane = Weak()
    for number, rank in enumerate(ranks):
        lane.put(entry(number, rank))
    assert drained(lane) == list(range(len(ranks)))[::-1]


@pytest.mark.parametrize("make", sorted(set(LANES.values()), key=str))
@given(steps=st.lists(st.one_of(st.integers(1, 3), st.just(0), st.just(-1)), max_size=30))
def test_what_is_there_can_be_seen(make: Callable[[], Lane], steps: Sequence[int]) -> None:
    """Puts of a priority, 0: a message without priority is put behind, -1: the next is taken."""
    lane, there, ordinary = make(), set[int](), 0
    for number, step in enumerate(steps):
        if step > 0:
            lane.put(entry(number, step))
            there.add(number)
        elif step == 0:
            lane.ordinary(1)
            ordinary += 1
        elif lane:
            there.remove(lane.take()[1])
        elif ordinary:
            lane.ordinary(-1)
            ordinary -= 1
        assert {e[1] for e in lane} == there
        assert bool(lane) == bool(there)


@pytest.mark.parametrize("make", sorted(set(LANES.values()), key=str))
def test_one_puts_while_another_takes(make: Callable[[], Lane]) -> None:
    lane, taken, count = make(), list[int](), 3_000
    put = threading.Event()

    def putting() -> None:
        for number in range(count):
            lane.put(entry(number, 1 + number % 5))
        put.set()

    thread = threading.Thread(target=putting)
    thread.start()
    while not put.is_set() or lane:
        if lane:
            taken.append(lane.take()[1])
    thread.join()
    assert sorted(taken) == list(range(count))
