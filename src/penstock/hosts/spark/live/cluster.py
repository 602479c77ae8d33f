"""Spark for a database: started in the background, shared by all databases of the process, stopped with it."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from penstock.hosts.options import SparkOptions
from penstock.hosts.spark.internals import active_context, scala_context
from penstock.hosts.spark.live.parts import pool, weight
from penstock.hosts.spark.live.plan import Plan, Report
from penstock.hosts.spark.live.slot import run_slot
from penstock.hosts.spark.session import MASTER, TIME_ZONE, check_java, session, session_zone
from penstock.hosts.spark.worker import settle
from penstock.model.errors import CheckpointError, EngineError, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("penstock")
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_starting = threading.Lock()
_QUIET = 0.5
"""Seconds that starting may take before somebody at a terminal is told."""


class _Thread(threading.local):
    """What is known of a thread: whether it is one of ours, and with which pool and group."""

    owned: bool = False
    label: tuple[int, str, str, int] | None = None


class Cluster:
    """Runs micro-batches. Spark is started by a thread that ends when it is there."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._master = options.master or MASTER
        self._session: SparkSession | None = None
        self._problem: PenstockError | None = None
        self._begun = False
        self._ready = threading.Event()
        self._thread = _Thread()
        if active_context() is None:
            try:
                check_java()
            except EngineError as error:
                error.hint = f"{error.hint}; engine='local' needs no Java"
                raise

    @property
    def cores(self) -> int:
        """How many tasks run side by side."""
        running = _running()
        if running is not None:
            return int(running.sparkContext.defaultParallelism)
        local = _LOCAL.fullmatch(self._master)
        if local is None:
            return int(self.session().sparkContext.defaultParallelism)
        if local[1] == "*":
            return len(os.sched_getaffinity(0))
        return int(local[1] or 1)

    @property
    def zone(self) -> str:
        """The time zone of the session, of the one that runs or of the one that will be started."""
        return session_zone(_running(), self._options.spark.get(TIME_ZONE))

    def begin(self) -> None:
        """Start Spark, if nobody has, without waiting for it."""
        if self._begun:
            return
        self._begun = True
        threading.Thread(target=self._start, name="penstock-spark-start", daemon=True).start()

    def session(self) -> SparkSession:
        """The session; waits for it, and says so on a terminal."""
        if not self._ready.is_set():
            self.begin()
            self._wait()
        if self._problem is not None:
            raise self._problem
        assert self._session is not None, "a start ends in a session or a problem"
        return self._session

    def run(self, plan: Plan, priority: int, group: str, title: str) -> list[Report]:
        """Let each slot do its share, in the pool of a priority and a group of jobs; Spark's UI shows the title."""
        context = self.session().sparkContext
        try:
            with self._labelled(context, priority, group, title):
                tasks = context.parallelize(range(plan.slots), plan.slots).mapPartitionsWithIndex(_Task(plan))
                found: list[Report | Exception] = tasks.collect()
        except Exception as error:
            raise EngineError(
                f"Spark could not do a micro-batch: {_said(error)}", hint="nothing is lost: it can be done again"
            ) from error
        for report in found:
            if isinstance(report, Exception):
                raise report
        return [report for report in found if isinstance(report, Report)]

    def cancel(self, group: str) -> None:
        """End what runs in a group of jobs, if anything does."""
        if self._session is not None:
            try:
                self._session.sparkContext.cancelJobGroup(group)
            except Exception as error:  # Spark is gone, and with it the jobs
                _log.debug("nothing to cancel: %s", _said(error))

    def scheduling(self, priority: int) -> str:
        """In words, where jobs of a priority run."""
        name = pool(priority)
        running = self._session or _running()
        if running is None:
            return f"FAIR pool {name} with weight {weight(priority)}"
        context = running.sparkContext
        mode = context.getConf().get("spark.scheduler.mode", "FIFO")
        if mode != "FAIR":
            return f"no pool: Spark was started with spark.scheduler.mode={mode}, so jobs run in order"
        found = scala_context(context).getPoolForName(name)
        return f"FAIR pool {name} with weight {found.get().weight() if found.isDefined() else 1}"

    def own_thread(self) -> None:
        """Nothing but micro-batches of one part runs in this thread."""
        self._thread.owned = True

    @contextmanager
    def _labelled(self, context: SparkContext, priority: int, group: str, title: str) -> Iterator[None]:
        """Jobs of this thread are in the pool and the group; afterwards as before, in a thread of the caller's."""
        label = (priority, group, title, id(context))
        if self._thread.owned and self._thread.label == label:
            yield
            return
        java = scala_context(context)
        before = None if self._thread.owned else java.getLocalProperties().clone()
        context.setLocalProperty("spark.scheduler.pool", pool(priority))
        context.setJobGroup(group, title, interruptOnCancel=True)
        try:
            yield
        finally:
            if before is not None:
                java.setLocalProperties(before)
            else:
                self._thread.label = label

    def _start(self) -> None:
        with _starting:
            try:
                self._session = session(self._master, settings=self._options.spark)
            except PenstockError as error:
                self._problem = error
            except Exception as error:
                self._problem = EngineError(f"Spark did not start: {_said(error)}")
            self._ready.set()

    def _wait(self) -> None:
        if self._ready.wait(_QUIET) or not sys.stderr.isatty():
            self._ready.wait()
            return
        began = time.monotonic() - _QUIET
        while not self._ready.wait(0.25):
            seconds = time.monotonic() - began
            print(f"\rpenstock: starting Spark ({self._master}) … {seconds:.0f} s", end="", file=sys.stderr, flush=True)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class _Task:
    """The function of a task."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, index: int, _: Iterable[Any]) -> Iterator[Report | Exception]:
        try:
            yield run_slot(self._plan, index)
            settle()
        except CheckpointError as error:
            # Trying again would not help, and Spark would bury the words.
            yield error


def _running() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _said(error: Exception) -> str:
    """The line that tells most of what Spark said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"(?:[\w.]+(?:Error|Exception)): ", line)]
    return (told or lines or [type(error).__name__])[-1 if told else 0]
