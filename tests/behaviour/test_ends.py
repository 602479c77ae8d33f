"""How calls end when something interrupts them, and that those who read much do not hold up others."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import penstock

STREAM = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"


def calls(action: Callable[[], object]) -> int:
    """How many calls of Python functions and of comprehensions' steps an action makes, about: its lines."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("text", ["SELECT v FROM s [ROWS 1000]", "SELECT ISTREAM v FROM s"])
def test_fetching_many_batches_costs_as_much_as_they_are(text: str) -> None:
    def lines(batches: int) -> int:
        with penstock.connect(engine="local") as db:
            db.execute(STREAM)
            query = db.query(text)
            for i in range(batches):
                db.push("s", [(i, i * 70 + j) for j in range(70)])
            return calls(query.fetch)

    assert lines(400) < 3 * lines(200)


def test_a_database_that_was_interrupted_while_it_closed_is_closed() -> None:
    before = set(threading.enumerate())
    db = penstock.connect(engine="local")
    db.execute(STREAM)
    bad, good = db.query("SELECT v FROM s"), db.query("SELECT v FROM s")
    heard: list[int] = []

    def interrupts(table: pa.Table) -> None:
        raise KeyboardInterrupt

    db.push("s", [(1, 1)])
    db.configure(threading="graph")
    bad.subscribe(interrupts)
    good.subscribe(lambda table: heard.extend(table["v"].to_pylist()))
    db.push("s", [(2, 2)])
    good.fetch()
    db.close()
    assert (bad.status, good.status, heard) == ("stopped", "stopped", [2])
    assert not [t for t in threading.enumerate() if t.name.startswith("penstock") and t not in before]


def test_an_interrupt_in_a_callback_while_closing_leaves_nothing_open() -> None:
    db = penstock.connect(engine="local")
    db.execute(STREAM)
    bad, good = db.query("SELECT v FROM s"), db.query("SELECT v FROM s")
    entered, go = threading.Event(), threading.Event()

    def interrupts(table: pa.Table) -> None:
        entered.set()
        go.wait()
        raise SystemExit

    bad.subscribe(interrupts)

    def push() -> None:
        with pytest.raises(SystemExit):
            db.push("s", [(1, 1)])

    pushing = threading.Thread(target=push)
    pushing.start()
    entered.wait()
    db.push("s", [(2, 2)])  # left to the thread that is calling
    go.set()
    pushing.join()
    db.close()
    assert (bad.status, good.status) == ("stopped", "stopped")
    assert db.closed


@pytest.mark.parametrize("threading_", ["direct", "graph"])
def test_who_subscribes_beside_one_that_interrupts_hears_everything(threading_: str) -> None:
    db = penstock.connect(engine="local")
    db.execute(STREAM)
    query = db.query("SELECT v FROM s")
    db.configure(threading=threading_)
    heard: list[int] = []
    entered, go = threading.Event(), threading.Event()

    def interrupts(table: pa.Table) -> None:
        entered.set()
        go.wait()
        raise SystemExit

    query.subscribe(interrupts)
    query.subscribe(lambda table: heard.extend(table["v"].to_pylist()))

    def first() -> None:
        with contextlib.suppress(SystemExit):
            db.push("s", [(0, 0)])

    pushing = threading.Thread(target=first)
    pushing.start()
    entered.wait()
    for i in range(1, 5):
        db.push("s", [(i, i)])
        query.fetch()
    stopping = threading.Thread(target=query.stop)
    go.set()
    pushing.join()
    stopping.start()
    stopping.join()
    db.close()
    assert heard == [0, 1, 2, 3, 4]


def test_a_function_does_not_wait_for_a_reader_that_may_be_waiting_for_it() -> None:
    db = penstock.connect(engine="local")
    db.execute(STREAM)
    db.execute("CREATE STREAM o (t BIGINT, v BIGINT) TIMESTAMP BY t")
    query = db.query("SELECT v FROM s")
    writing, calling = threading.Event(), threading.Event()
    refused: list[str] = []

    def fetches(v: int) -> int:
        calling.set()
        writing.wait()
        try:
            query.fetch(wait=False)
        except penstock.StateError as error:
            refused.append(error.message)
        return v

    def write(table: pa.Table) -> None:
        writing.set()
        calling.wait()
        db.push("s", [(2, 2)])

    db.create_function("f", fetches, args=["BIGINT"], returns="BIGINT")
    db.query("SELECT f(v) AS v FROM o")
    db.push("s", [(1, 1)])
    threads = [
        threading.Thread(target=lambda: query.transfer(write)),
        threading.Thread(target=lambda: db.push("o", [(1, 1)])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["results of `q1` are being read by another thread, for which a function cannot wait"]
    assert query.fetch()["v"].to_pylist() == [2]
    db.close()
