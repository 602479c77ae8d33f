"""Supply layers that are compared with the runtime's: they change when, never what."""

from __future__ import annotations

import functools
import threading
from collections import deque
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.support.common import database
from experiments.papers.architectures import MORE, TABLE, Configuration
from experiments.supply import (
    LinkedBuffer,
    LinkedQueue,
    LockedBuffer,
    MonitoredBuffer,
    SignalledWorker,
    SwappedBuffer,
    SwappedQueue,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.database.database import core_of
from penstock.hosts.local.host import LocalHost
from penstock.runtime.buffer import Buffer
from penstock.runtime.storage.line import Line

KINDS: dict[str, type[Buffer]] = {
    "V1": MonitoredBuffer, "synch": LockedBuffer, "V2": Buffer, "linked": LinkedBuffer, "swapped": SwappedBuffer,
}  # fmt: skip


@functools.cache
def answers(how: Configuration | None) -> list[tuple[int, ...]]:
    values = np.random.default_rng(1).integers(0, 101, 400)
    with database("gen1", "gen2") as db:
        query = db.query("SELECT ISTREAM a.v, b.v FROM gen1 [ROWS 5] AS a, gen2 [ROWS 5] AS b WHERE a.v < b.v")
        if how is not None:
            host = core_of(db).host
            assert isinstance(host, LocalHost)
            db.configure(**how.settings)
            made = {type(buffer) for buffer in host.runtime.all_buffers.values()}
            assert made == {KINDS[how.supply]}
            owners = {type(buffer.station.owner) for buffer in host.runtime.all_buffers.values()}
            assert (owners == {SignalledWorker}) == (how.supply == "V1" and how.architecture == "worker")
        for i, value in enumerate(values):
            db.push("gen1" if i % 2 == 0 else "gen2", pa.table({"ts": [i], "v": [int(value)]}))
        found = query.fetch()
    return list(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


@pytest.mark.parametrize("how", [*TABLE, *MORE], ids=lambda how: how.name)
def test_every_configuration_answers_the_same(how: Configuration) -> None:
    assert answers(how) == answers(None)


# -- queues -----------------------------------------------------------------------------------------------

QUEUES = [LinkedQueue, SwappedQueue]


@pytest.mark.parametrize("kind", QUEUES)
@given(steps=st.lists(st.sampled_from(["put", "take", "put back"])))
def test_a_queue_is_a_deque(kind: type[LinkedQueue], steps: list[str]) -> None:
    queue, expected = kind.on(Line()), deque[Any]()
    taken: list[Any] = []
    for i, step in enumerate(steps):
        if step == "put":
            entry: Any = (object(), i, float(i), 0)
            queue.append(entry)
            expected.append(entry)
        elif step == "take" and expected:
            taken.append(expected.popleft())
            assert queue.popleft() is taken[-1]
        elif step == "put back" and taken:
            queue.appendleft(taken[-1])
            expected.appendleft(taken.pop())
        assert len(queue) == len(expected)
        assert bool(queue) == bool(expected)
        assert list(queue) == queue.copy() == list(expected)
        if expected:
            assert queue[0] is expected[0]
            assert queue[-1] is expected[-1]
        else:
            with pytest.raises(IndexError):
                queue[0]


@pytest.mark.parametrize("kind", QUEUES)
def test_threads_put_and_take_at_the_same_time(kind: type[LinkedQueue]) -> None:
    senders, each = (1, 5_000) if kind is LinkedQueue else (3, 2_000)
    queue = kind.on(Line())

    def send(sender: int) -> None:
        for i in range(each):
            queue.append(cast(Any, (object(), sender, float(i), 0)))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    for thread in threads:
        thread.start()
    last = dict.fromkeys(range(senders), -1.0)
    count = 0
    while count < senders * each:
        if queue:
            _, sender, number, _ = queue.popleft()
            assert number == last[sender] + 1
            last[sender] = number
            count += 1
    for thread in threads:
        thread.join()
    assert not queue
