"""Spark for a database: started in the background, shared by all databases of the process, and the streaming queries
that the parts of the database are, and those that feed its streams (``inflow``).

A thread for each of them starts its streaming query and waits for its end. If that fails, the thread starts it again,
each time after a longer pause; if Java is gone, with another Java. ``close`` ends the threads. A micro-batch of a part
that fails ends no streaming query: the next micro-batch is the same again. If several in a row fail, the streaming
query ends and is started again, in case that it is itself to blame.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from penstock.hosts.options import SparkOptions
from penstock.hosts.spark.described import described, describing, following, free_name, taking
from penstock.hosts.spark.internals import (
    active_context,
    check_classic,
    forget_java,
    is_over,
    java_is_gone,
    pool_weight,
)
from penstock.hosts.spark.parts.grouping import pool, weight
from penstock.hosts.spark.parts.inflow import Inflow
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.source import BEGIN, NAME, PART, SOCKET, PartSource
from penstock.hosts.spark.parts.working import said, worked
from penstock.hosts.spark.running import error as meaning
from penstock.hosts.spark.running import is_dead, is_to_blame, told
from penstock.hosts.spark.session import MASTER, TIME_ZONE, check_java, check_release, session, session_zone
from penstock.model.errors import EngineError, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.hosts.spark.parts.host import SparkHost

_log = logging.getLogger("penstock")
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_starting = threading.Lock()
_registering = threading.Lock()
"""Held while a streaming query gets its source. Spark writes to the environment of a registered source when a streaming
query starts, without a lock: if two used one source at once, tasks could not read it (OptionalDataException)."""
_QUIET = 0.5
"""Seconds that starting may take before somebody at a terminal is told."""
_SAID = 0.25
"""Seconds after which that is said again."""
_FIRST, _LONGEST = 0.2, 30.0
"""Seconds before an attempt that failed is made again, the first time and at most."""
_ATTEMPTS = 4
"""Micro-batches in a row that may fail before the streaming query is started again."""
_GRACE = 1.0
"""Seconds that closing lets micro-batches end by themselves."""
_LOOKS, _LOOK = 10, 0.05
"""How often it is looked whether Java has ended, where something failed that asked it, and seconds in between."""
_NAME = 200
"""Characters of the name of a streaming query."""
_LAST = 10.0
"""Seconds after which closing waits no longer for Spark."""


class Cluster:
    """Runs the streaming queries of a database. Spark is started by a thread that ends when it is there."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._master = options.master or MASTER
        self._session: SparkSession | None = None
        self._problem: PenstockError | None = None
        self._cores: int | None = None
        """The cores that Spark had when the last streaming query was started, once it is known."""
        self._begun = False
        self._ready = threading.Event()
        self._host: SparkHost | None = None
        self._threads: dict[Part | Inflow, threading.Thread] = {}
        self._queries: dict[Part | Inflow, StreamingQuery] = {}
        self._stopping: list[threading.Thread] = []
        self._guard = threading.Lock()
        """Guards the three of them. Nothing is waited for with it."""
        check_release()
        check_classic(_running())
        if active_context() is None:
            try:
                check_java()
            except EngineError as error:
                error.hint = f"{error.hint}; engine='local' needs no Java"
                raise

    @property
    def cores(self) -> int:
        """How many tasks run side by side; waits for Spark where that is not known before."""
        found = self.known_cores
        if found is None:
            started = self.session()
            assert started is not None, "nobody has given up"
            found = self._cores = int(started.sparkContext.defaultParallelism)
        return found

    @property
    def known_cores(self) -> int | None:
        """The same, if it is known without waiting for Spark."""
        if self._cores is None:
            running, local = _running(), _LOCAL.fullmatch(self._master)
            if running is not None:
                self._cores = int(running.sparkContext.defaultParallelism)
            elif local is not None:
                self._cores = len(os.sched_getaffinity(0)) if local[1] == "*" else int(local[1] or 1)
        return self._cores

    @property
    def zone(self) -> str:
        """The time zone of the session, of the one that runs or of the one that will be started."""
        return session_zone(_running(), self._options.spark.get(TIME_ZONE))

    def begin(self, host: SparkHost) -> None:
        """Start Spark for a database, without waiting for it."""
        self._host = host
        self._begin()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._start, name="penstock-spark-start", daemon=True).start()

    def session(self, gives_up: Callable[[], bool] = lambda: False) -> SparkSession | None:
        """The session; waits for it, and says so on a terminal. None if the caller has given up meanwhile. If Spark did
        not start, the next call starts it again."""
        if not self._ready.is_set():
            self._begin()
            self._wait(gives_up)
        problem, self._problem = self._problem, None
        if problem is not None:
            self._begun = False
            self._ready.clear()
            raise problem
        return self._session

    # -- streaming queries ----------------------------------------------------------------------------

    def start(self, part: Part | Inflow) -> None:
        """Let a part work, or a stream be fed, in a thread that ends with it."""
        thread = threading.Thread(target=self._supervise, args=(part,), name=part.thread, daemon=True)
        with self._guard:
            self._threads[part] = thread
        thread.start()

    def stop(self, part: Part | Inflow) -> None:
        """Let a streaming query end, without waiting for it."""
        with self._guard:
            query = self._queries.pop(part, None)
            if query is None:
                return
            thread = threading.Thread(target=_stopped, args=(query,), name="penstock-stopping", daemon=True)
            self._stopping = [*(t for t in self._stopping if t.is_alive()), thread]
        thread.start()

    def close(self) -> None:
        """End all streaming queries and threads. Micro-batches that do not end within a second are given up: they are
        made again when the database is opened again."""
        host = self._host
        if host is None:
            return
        with self._guard:
            parts = list(self._threads)
        with host.changed:
            until = time.monotonic() + _GRACE
            while any(part.busy for part in parts) and time.monotonic() < until:
                host.changed.wait(until - time.monotonic())
        for part in parts:
            part.retry.set()
            self.stop(part)
        with self._guard:
            threads = [*self._threads.values(), *self._stopping]
        until = time.monotonic() + _LAST
        for thread in threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def _supervise(self, part: Part | Inflow) -> None:
        """The thread of a streaming query, which goes on until the part gives up."""
        pause, version = _FIRST, part.version
        while not part.gives_up:
            if isinstance(part, Part) and not part.is_needed():
                break
            problem = self._streamed(part)
            if part.gives_up:
                break
            pause = _FIRST if part.version != version else min(2 * pause, _LONGEST)
            version = part.version
            if problem is None:
                part.interrupted()  # who waits for results goes on waiting
                continue
            part.attempt_failed(problem)
            what = "it is given up" if part.gives_up else f"it goes on in {pause:.1f} s"
            _log.warning("%s: %s; %s", part.label, problem.one_line.removeprefix(f"{part.label}: "), what)
            if not part.gives_up:
                part.retry.wait(pause)
        with self._guard:
            self._threads.pop(part, None)
            self._queries.pop(part, None)

    def _streamed(self, part: Part | Inflow) -> PenstockError | None:
        """Let a streaming query work until it ends; gives why it did, None if Spark is to be started again."""
        query, place = None, None
        try:
            spark = self.session(lambda: part.gives_up)
            if spark is None:
                return None
            if isinstance(part, Inflow):
                query = part.started(spark)
            else:
                place = self._checkpoint(part)
                query = self._started(spark, part, place)
            if query is None:
                return None
            with self._guard:
                self._queries[part] = query
            if part.gives_up:
                self.stop(part)
            query.awaitTermination()
            return EngineError("its streaming query was stopped by somebody else")
        except Exception as error:
            why = error if not isinstance(part, Inflow) or part.failed is None else part.failed
            return None if self._lost_java(why) else _meant(why)
        finally:
            with self._guard:
                self._queries.pop(part, None)
            if query is not None:
                _stopped(query)  # it may be Python alone that has lost it
            if isinstance(part, Part) and place is not None:
                part.cut_off()
                shutil.rmtree(place, ignore_errors=True)

    def attempt_failed(self, part: Part, error: Exception) -> None:
        """A micro-batch could not be made. Called in the thread of the streaming query, which goes on: the next
        micro-batch is this one again."""
        if self._is_about_java(error):
            part.interrupted()  # the streaming query ends too
            return
        problem = _meant(error)
        part.attempt_failed(problem)
        _log.warning("%s: %s; the micro-batch is made again", part.label, problem.message)
        if is_to_blame(error) and self._host is not None:
            self._host.ended_process(part, problem, lives=self._lives())

    def _lives(self) -> bool:
        """Whether Spark does tasks that do nothing, as many as a micro-batch has. Otherwise it loses processes whatever
        they do."""
        assert self._host is not None, "it began"
        slots = self._host.slots
        try:
            assert self._session is not None, "a micro-batch failed in it"
            self._session.sparkContext.parallelize(range(slots), slots).foreach(_nothing)
        except Exception as error:
            _log.warning("Spark cannot do tasks that do nothing: %s", told(error))
            return False
        return True

    def _checkpoint(self, part: Part) -> Path:
        """Where the next streaming query of a part has its checkpoint. An earlier one may have committed there what
        does not count, and the database knows up to where the part is."""
        host = self._host
        assert host is not None, "it began"
        return host.checkpoints / f"{host.epoch}-part-{part.id}-{part.attempt}"

    def _started(self, spark: SparkSession, part: Part, place: Path) -> StreamingQuery | None:
        host = self._host
        assert host is not None, "it began"
        context = spark.sparkContext
        # In this thread: the thread of the streaming query has what it has.
        part.pool, self._cores = part.priority, int(context.defaultParallelism)
        context.setLocalProperty("spark.scheduler.pool", pool(part.pool))
        reader = spark.readStream.format(NAME).option(SOCKET, host.socket).option(PART, str(part.id))
        with _registering:
            if part.gives_up:
                return None  # its queries have moved on while others were started
            spark.dataSource.register(PartSource)
            frame = reader.option(BEGIN, part.begin).load()
        with host.changed:
            ids = set(part.queries)
            names = [q.name for q in host.core.running() if getattr(q.runner, "id", None) in ids]
        # Queries come and go while it runs; the descriptions of its jobs have those that there are.
        label = f"{PurePosixPath(host.root).name} part {part.id}{': ' if names else ''}{', '.join(names)}"
        name = free_name(spark, label[:_NAME])
        writer = frame.writeStream.queryName(name).foreachBatch(_Sink(part, self))
        return writer.option("checkpointLocation", place.as_uri()).start()

    def texts(self, part: Part) -> dict[str, str]:
        """The queries of a part by name, for Spark's UI."""
        host = self._host
        assert host is not None, "it began"
        with host.changed:
            ids = set(part.queries)
            return {q.name: q.text for q in host.core.running() if getattr(q.runner, "id", None) in ids}

    def _is_about_java(self, error: Exception) -> bool:
        """Whether an error means that Java has ended, or is about to. The text of an error is not enough: a
        micro-batch that fails for another reason would be made again at once, and no user would hear of it."""
        for _ in range(0 if isinstance(error, PenstockError) or is_dead(error) else _LOOKS):
            if java_is_gone():
                return True
            time.sleep(_LOOK)  # what was asked of it may fail before it has ended
        session = self._session
        return java_is_gone() or (session is not None and is_over(session))

    def _lost_java(self, error: Exception) -> bool:
        """Whether an error means that Java has ended, or Spark in it; then the next session has another one."""
        self._is_about_java(error)
        with _starting:
            gone = java_is_gone()
            if gone:
                forget_java()
            # Another database may have started another one meanwhile.
            replaced = self._session is not None and active_context() is not self._session.sparkContext
            if self._session is not None and not gone and not replaced and is_over(self._session):
                with suppress(Exception):
                    self._session.stop()  # Python has to hear of it
                replaced = True
            if gone or replaced:
                self._session, self._begun = None, False
                self._ready.clear()
            return gone or replaced

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
        return f"FAIR pool {name} with weight {pool_weight(context, name)}"

    def _start(self) -> None:
        with _starting:
            try:
                if java_is_gone():
                    forget_java()
                self._session = session(self._master, settings=self._options.spark)
            except PenstockError as error:
                self._problem = error
            except Exception as error:
                self._problem = EngineError(f"Spark did not start: {told(error)}")
            self._ready.set()

    def _wait(self, gives_up: Callable[[], bool]) -> None:
        if self._ready.wait(_QUIET):
            return
        began = time.monotonic() - _QUIET
        while not self._ready.wait(_SAID) and not gives_up():
            seconds = time.monotonic() - began
            if not sys.stderr.isatty():
                continue
            print(f"\rpenstock: starting Spark ({self._master}) … {seconds:.0f} s", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _meant(error: Exception) -> PenstockError:
    """What an error of Spark means."""
    if isinstance(error, PenstockError):
        return error
    problem = meaning(error)
    if problem is None:
        problem = EngineError(f"Spark could not do a micro-batch: {told(error)}")
    if problem.hint is None or is_dead(error):
        problem.hint = "nothing is lost: the micro-batch is made again"
    return problem


class _Sink:
    """The function of ``foreachBatch``: lets Spark do the tasks, and the part record what they say."""

    def __init__(self, part: Part, cluster: Cluster) -> None:
        self._part, self._cluster = part, cluster
        self._failed = 0
        """Micro-batches in a row that have failed."""
        self._ids: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self._title = ""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        part, context = self._part, frame.sparkSession.sparkContext
        try:
            ids = tuple(part.queries)
            if ids != self._ids:
                texts = self._cluster.texts(part) or {part.label: ""}
                self._ids, self._names, self._title = ids, tuple(texts), described(texts)
            last = part.last
            took = "" if last is None else taking(last.rows + last.early, last.answers, last.seconds)
            with describing(context, following(self._names, took, self._title) if took else self._title):
                reports = [said(bytes(row["report"])) for row in frame.collect()]
                while not part.record(reports):
                    tasks = context.parallelize(part.again(), len(reports))
                    reports = [said(content) for content in tasks.map(_again).collect()]
            self._failed = 0
        except Exception as error:
            if part.gives_up:
                return
            self._failed += 1
            if self._failed >= _ATTEMPTS and not is_dead(error) and not isinstance(error, PenstockError):
                raise  # it may be to blame: the thread that supervises it says why, and starts it again
            self._cluster.attempt_failed(part, error)


def _nothing(number: int) -> None:
    """A task that is not to blame for anything."""


def _again(content: bytes) -> bytes:
    found: bytes = worked(content).column(1)[0].as_py()
    return found


def _stopped(query: Any) -> None:
    try:
        query.stop()
    except Exception as error:  # Spark is gone, and with it the query
        _log.debug("nothing to stop: %s", told(error))


def _running() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
