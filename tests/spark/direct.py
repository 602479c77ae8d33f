"""Databases on Spark without Spark: what Spark asks of a part is asked by a thread, and its tasks are done there.

It lets thousands of cases through logs, slots and restarts; that Spark asks as it is asked here is what the tests with
a session show.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts.options import SparkOptions
from penstock.hosts.spark.parts import host, slot
from penstock.hosts.spark.parts.inline import Inline
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.task import Report, Task, Trouble
from penstock.hosts.spark.shard import Memory


class Direct(Inline):
    """In the place of ``Cluster``. ``processes``: so many workers take turns at random, each with its own memory."""

    processes = 2
    seed = 0

    def __init__(self, options: SparkOptions) -> None:
        super().__init__(options)
        self.known_cores = None  # as if Spark had as many as there are shards
        self._random = random.Random(self.seed)
        self._memories: list[Memory] = [Memory() for _ in range(self.processes)]
        self._guard = threading.Lock()

    def scheduling(self, priority: int) -> str:
        return f"FAIR pool penstock-{priority}"

    def run(self, part: Part, tasks: Sequence[Task]) -> list[Report | Trouble]:
        reports: list[Report | Trouble] = []
        for task in tasks:
            # A worker does one task at a time; if there are more tasks, there are more workers.
            with self._guard:
                memory = Memory()
                if self._memories:
                    memory = self._memories.pop(self._random.randrange(len(self._memories)))
            try:
                reports.append(pickle.loads(pickle.dumps(slot.run_task(task, memory))))
            finally:
                with self._guard:
                    self._memories.append(memory)
        return reports


@contextmanager
def directly(kind: type[Direct] = Direct, *, many: int = 2, inline: int | None = None) -> Iterator[None]:
    """Databases that are opened inside need no Spark. ``many``: rows from which on a push is divided among slots;
    ``inline``: bytes of answers up to which tasks report them and put them into no file."""
    with pytest.MonkeyPatch.context() as patch:
        if inline is not None:
            patch.setattr(slot, "_INLINE", inline)
        patch.setattr(host, "Cluster", kind)
        patch.setattr(host, "_MANY", many)
        patch.setattr(host, "_MANY_OF_SLOT", 0)
        yield


def host_of(db: penstock.Database) -> host.SparkHost:
    """What runs a database on Spark."""
    found = core_of(db).host
    assert isinstance(found, host.SparkHost)
    return found


def step(db: penstock.Database, which: int = 0) -> None:
    """Let one of the parts make one micro-batch, if it has anything to do. Where ``trigger`` is long, it makes no other
    by itself."""
    owner = host_of(db)
    found = list(owner.parts)
    if not found:
        return
    part = found[which % len(found)]
    with owner.changed:
        before, failed = part.version, part.failed
        if not part.has_work():
            return
        part.wake(hurry=True)
        assert owner.changed.wait_for(lambda: part.version > before or part.failed > failed, 60), "it makes none"
        if part.version == before and part.problem is not None:
            raise part.problem
