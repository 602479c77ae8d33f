"""The simulated clock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

import penstock
from penstock.testing import Clock, answers, connect


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_it_stands_still_until_it_is_moved() -> None:
    clock = Clock("2024-05-01 10:00")
    assert (clock.now, clock()) == (datetime(2024, 5, 1, 10), 1_714_557_600_000_000)
    clock.advance("5 seconds")
    clock.advance(timedelta(seconds=1))
    clock.advance(7)
    assert clock.now == datetime(2024, 5, 1, 10, 0, 6, 7)
    clock.set("2024-05-01T11:00")
    assert repr(clock) == "<Clock 2024-05-01 11:00:00>"


@pytest.mark.parametrize(
    ("move", "told"),
    [
        (lambda c: c.set("2023-12-31"), "does not go back"),
        (lambda c: c.advance("-1 seconds"), "does not go back"),
        (lambda c: c.advance(1.5), "'5 seconds'"),
        (lambda c: c.advance(True), "not a length of time"),
        (lambda c: c.advance("soon"), "not a length of time"),
        (lambda c: c.advance(2**70), "out of range"),
        (lambda c: c.set(2**62), "out of range"),
    ],
)
def test_where_it_cannot_go(move: object, told: str) -> None:
    clock = Clock("2024-01-01")
    with pytest.raises(penstock.PenstockError, match=told):
        move(clock)  # type: ignore[operator]
    assert clock.now == datetime(2024, 1, 1)


def test_times_that_no_datetime_has() -> None:
    clock = Clock(2**61)
    clock.advance(1)
    assert clock() == 2**61 + 1
    assert repr(clock) == f"<Clock {2**61 + 1} microseconds since 1970>"
    with pytest.raises(penstock.InputError, match=r"the years 1 to 9999; clock\(\) gives microseconds"):
        _ = clock.now
    with pytest.raises(penstock.InputError, match=f"at {2**61 + 1} microseconds since 1970 and does not go back"):
        clock.advance(-1)


def test_threads_that_advance_it_together(switching: None) -> None:
    clock = Clock(0)

    def advancing() -> None:
        for _ in range(5_000):
            clock.advance(1)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(advancing) for _ in range(4)]:
            done.result()
    assert clock() == 20_000


def test_rows_get_its_time_and_windows_empty_with_it(engine: str) -> None:
    clock = Clock("2024-05-01 10:00")
    with connect(engine=engine, clock=clock) as db:
        db.execute("CREATE STREAM s (a BIGINT)")
        q = db.query("SELECT a FROM s [RANGE 2 SECONDS]")
        db.push("s", [(1,)])
        clock.advance("1 second")
        db.push("s", [(2,)])
        clock.advance("10 seconds")
        second = timedelta(seconds=1)
        start = datetime(2024, 5, 1, 10)
        assert answers(q) == [
            (start, "+", 1), (start + second, "+", 2), (start + 2 * second, "-", 1), (start + 3 * second, "-", 2),
        ]  # fmt: skip


def test_subscribers_hear_what_time_alone_changes() -> None:
    clock = Clock()
    db = connect(clock=clock)
    db.execute("CREATE STREAM s (a BIGINT)")
    heard: list[str] = []
    db.query("SELECT a FROM s [RANGE 2 SECONDS]").subscribe(lambda table: heard.extend(table["op"].to_pylist()))
    db.push("s", [(1,)])
    clock.advance("1 second")
    assert heard == ["+"]
    clock.advance("1 second")
    assert heard == ["+", "-"]
    db.close()
    clock.advance("1 second")


def test_a_database_has_its_own_clock_if_none_is_given() -> None:
    with connect() as db:
        assert db.engine == "local"
        assert isinstance(db.clock, Clock)
