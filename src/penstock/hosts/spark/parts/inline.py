"""What stands in the place of Spark where there is none: a thread for each part, in this process, does its tasks.

It is for handing a directory over to another engine, which needs no Java; tests put their cases through it. ``close``
ends the threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.hosts.options import SparkOptions
from penstock.hosts.spark.parts.inflow import Inflow
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.slot import run_task
from penstock.hosts.spark.parts.task import Report, Task, Trouble
from penstock.hosts.spark.parts.working import task_of
from penstock.hosts.spark.shard import Memory
from penstock.model.errors import EngineError, PenstockError
from penstock.scalar.zones import UTC

if TYPE_CHECKING:
    from penstock.hosts.spark.parts.host import SparkHost


class Inline:
    """See above. It is asked what ``Cluster`` is asked."""

    def __init__(self, options: SparkOptions) -> None:
        self.cores = 2
        self.known_cores: int | None = 2
        self.zone = UTC
        self._threads: list[threading.Thread] = []
        self._memory = Memory()

    def begin(self, host: SparkHost) -> None:
        """There is nothing to start."""

    def scheduling(self, priority: int) -> str:
        """In words, where jobs of a priority run."""
        return "in this process"

    def start(self, part: Part | Inflow) -> None:
        """Let a part work. Sources of Spark are not read here."""
        if isinstance(part, Inflow):
            return
        thread = threading.Thread(target=self._keep_working, args=(part,), name=part.thread, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self, part: Part | Inflow) -> None:
        """Let a part that has given up see it."""
        if isinstance(part, Part):
            part.wake(hurry=True)

    def close(self) -> None:
        """Wait for all threads."""
        for thread in self._threads:
            thread.join()

    def _keep_working(self, part: Part) -> None:
        offset = part.offset
        while not part.gives_up:
            try:
                end = part.next_offset(offset)
                if end == offset:
                    continue
                reports = self.run(part, [task_of(content) for content in part.contents(end)])
                while not part.record(reports):
                    reports = self.run(part, [task_of(content) for content in part.again()])
                offset = end
            except PenstockError as error:
                part.attempt_failed(error)
                offset = part.offset
            except Exception as error:
                part.attempt_failed(EngineError(f"a micro-batch failed: {type(error).__name__}: {error}"))
                offset = part.offset

    def run(self, part: Part, tasks: Sequence[Task]) -> list[Report | Trouble]:
        """Do the tasks of a micro-batch."""
        return [run_task(task, self._memory) for task in tasks]
