"""Databases on Spark without Spark: the tasks of a micro-batch are called one after the other in this process.

It lets thousands of cases through logs, slots, journal and restarts; that Spark calls the slots as they are called here
is what the tests with a session show.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.hosts.options import SparkOptions
from penstock.hosts.spark.live import host, slot
from penstock.hosts.spark.live.plan import Plan, Report


class Direct:
    """In the place of ``Cluster``. ``processes``: so many workers take turns at random, each with its own memory."""

    processes = 2
    seed = 0

    def __init__(self, options: SparkOptions) -> None:
        self.cores = 2
        self.zone = "UTC"
        self._random = random.Random(self.seed)
        self._memories: list[slot.Memory] = [slot.Memory() for _ in range(self.processes)]

    def begin(self) -> None:
        pass

    def own_thread(self) -> None:
        pass

    def cancel(self, group: str) -> None:
        pass

    def scheduling(self, priority: int) -> str:
        return f"FAIR pool penstock-{priority}"

    def run(self, plan: Plan, priority: int, group: str, title: str) -> list[Report]:
        reports: list[Report] = []
        for index in range(plan.slots):
            # A worker does one task at a time; if there are more tasks, there are more workers.
            memory = slot.Memory()
            if self._memories:
                memory = self._memories.pop(self._random.randrange(len(self._memories)))
            try:
                sent: Plan = pickle.loads(pickle.dumps(plan))
                reports.append(pickle.loads(pickle.dumps(slot.run_slot(sent, index, memory))))
            finally:
                self._memories.append(memory)
        return reports


@contextmanager
def directly() -> Iterator[None]:
    """Databases that are opened inside need no Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "Cluster", Direct)
        yield
