"""What is done when a streaming query starts, and while it runs.

When it starts: its tasks are told where its checkpoint is, it is refused if it cannot go on from there, and the static
DataFrames beside its streams are read. Spark tells a task which micro-batch it belongs to, but not the checkpoint
location. A listener puts that into a local property of the thread that runs the query, which Spark hands to every task:
Spark calls listeners in that very thread before the first micro-batch, and Py4J comes back to it. Which job a query
runs, the listener finds in the query's plan, whatever has been made of the answers.

While it runs: a thread looks at static DataFrames now and then, and writes their rows into the checkpoint when they
have others. It does so while Spark begins no micro-batch, so all tasks of the next one have them, and those of earlier
ones have not. The thread ends with the query.

When it has ended, its inputs can be closed: Spark is given the plan of a micro-batch without rows, and the query is
started again for it alone. So the last answers go where the others went, once.
"""

from __future__ import annotations

import posixpath
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyarrow import fs
from pyspark.sql.streaming.listener import QueryStartedEvent
from pyspark.sql.streaming.query import StreamingQuery

from penstock.hosts.spark.begun import check, close, closes, ended
from penstock.hosts.spark.checkpoint import (
    CLOSES,
    PROPERTY,
    REFUSED,
    Packets,
    forget_unfinished,
    keep_relations,
    located,
)
from penstock.hosts.spark.internals import (
    QueryOf,
    Starts,
    between_micro_batches,
    checkpoint_root,
    files_of,
    mapped_in_arrow,
    not_left_out,
    number_of,
    plan_empty,
)
from penstock.hosts.spark.job import Job
from penstock.hosts.spark.running import error as meant
from penstock.model.errors import InputError
from penstock.model.types import TICKS_PER_SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_KNOWN = 1_024
"""Jobs that can be started: the last ones that were made."""
_TEMPORARY = re.compile(r"temporary-[0-9a-f-]{36}")
"""What Spark calls the checkpoint of a query that was given none; it removes it when the query has ended."""
_LOOK = 1.0
"""Seconds between two looks at the files of static DataFrames."""


@dataclass(frozen=True)
class Statics:
    """The static DataFrames of a job by the places of their sources, and how one is read, packed by shard.

    ``refresh``: how often they are looked at while a query runs, in ticks; None: files every second, others never.
    """

    frames: Mapping[int, DataFrame]
    read: Callable[[int], Packets]
    refresh: int | None = None


class _Run:
    """A streaming query with the rows that static DataFrames had when they were read last."""

    def __init__(self, location: str, statics: Statics) -> None:
        self._location, self._statics = location, statics
        self._files: dict[int, str | None] = {}
        self._packets: dict[int, Packets] = {}
        self._said = ""

    def look(self, between: Any = None) -> None:
        """Read what may have other rows, and write the rows if they are others, while ``between`` lasts."""
        files, packets = dict(self._files), dict(self._packets)
        for place, frame in self._statics.frames.items():
            found = files_of(frame)
            is_same = found == files.get(place, "") and (found is not None or self._statics.refresh is None)
            if not is_same:
                files[place], packets[place] = found, self._statics.read(place)
        if packets != self._packets:
            keep_relations(self._location, packets.values(), between or nullcontext())
        self._files, self._packets = files, packets

    def watch(self, query: StreamingQuery) -> None:
        """Look now and then as long as a query runs, if there is anything to see."""
        refresh = self._statics.refresh
        if refresh is None and not any(found is not None for found in self._files.values()):
            return
        every = max(0.001, _LOOK if refresh is None else refresh / TICKS_PER_SECOND)
        threading.Thread(target=self._keep_looking, args=(query, every), name="penstock-static", daemon=True).start()

    def _keep_looking(self, query: StreamingQuery, every: float) -> None:
        while True:
            try:
                if query.awaitTermination(every):  # type: ignore[arg-type]  # it takes parts of seconds
                    return
            except Exception:
                return  # the query has failed, or Java is gone
            try:
                self.look(between_micro_batches(query))
            except Exception as error:
                # Somebody may be writing the table. The query goes on with the rows that it has.
                said = str(meant(error) or error).partition("\n")[0]
                if query.isActive and said != self._said:
                    print(f"penstock: a static DataFrame could not be read again: {said}", file=sys.stderr, flush=True)
                    self._said = said


@dataclass(frozen=True)
class _Known:
    """A job that can be started."""

    job: Job
    statics: Statics


_known: OrderedDict[str, _Known] = OrderedDict()
"""By the name that Spark has for the answers; the last ``_KNOWN``. Older ones fail if they have static DataFrames."""
_refused: OrderedDict[str, Exception] = OrderedDict()
"""Why a query must not run, by the id of the run, until its starter asks; at most ``_KNOWN``."""


def know(answers: DataFrame, job: Job, statics: Statics) -> None:
    """Streaming queries that have these answers in their plans run this job."""
    _known[mapped_in_arrow(answers)[0]] = _Known(job, statics)
    while len(_known) > _KNOWN:
        _known.popitem(last=False)


class Started(QueryOf):
    """A streaming query that writes answers, and how to start it again for one micro-batch."""

    def __init__(self, query: StreamingQuery, again: Callable[[], StreamingQuery]) -> None:
        super().__init__(query)
        self.again = again


def started(spark: SparkSession, writer: DataStreamWriter, start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a streaming query, unless it cannot go on from its checkpoint."""

    def again() -> StreamingQuery:
        writer.trigger(once=True)
        return started(spark, writer, start)

    with not_left_out(spark):
        query = start()
    error = _refused.pop(str(query.runId), None)
    if error is not None:
        query.stop()
        raise error
    return Started(query, again)


def close_inputs(query: StreamingQuery) -> StreamingQuery | None:
    """The inputs of a query that has ended end here: the query again, for one micro-batch with what waited for more.

    It writes where the others were written. None if there is nothing to close.
    """
    if not isinstance(query, Started):
        raise InputError(
            "this query was not started by the writer of answers",
            hint="start it with answers.writeStream, or with Pipeline.start",
        )
    system, path = located(checkpoint_root(query))
    if _TEMPORARY.fullmatch(posixpath.basename(path)) or system.get_file_info(path).type == fs.FileType.NotFound:
        raise InputError("this query has no checkpoint location, so it cannot be closed", hint="give it one")
    last = ended(system, path)
    if last is None or closes(system, path) == last:
        return None
    # The micro-batch without rows comes first: without the word about the end it does no harm.
    plan_empty(query, last)
    close(system, path, last + 1)
    return query.again()


class _Telling(Starts):
    """Prepares each streaming query of a session that runs a job of ours."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query = self.session.streams.get(str(event.id))
        assert query is not None, "it has started"
        root = checkpoint_root(query)
        context = self.session.sparkContext
        context.setLocalProperty(PROPERTY, root)
        try:
            _prepare(query, root)
            last = closes(*located(root))
            if last is not None:
                context.setLocalProperty(CLOSES, str(last))
        except Exception as error:
            found = meant(error) or error
            context.setLocalProperty(REFUSED, str(found))
            _refused[str(event.runId)] = found
            while len(_refused) > _KNOWN:
                _refused.popitem(last=False)


def _prepare(query: StreamingQuery, root: str) -> None:
    """Before the first micro-batch: see whether a query can go on from its checkpoint, and read static DataFrames."""
    found = (_known.get(name) for name in mapped_in_arrow(query))
    for known in (k for k in found if k is not None):
        check(known.job, *located(root))
        forget_unfinished(root)
        if known.statics.frames:
            run = _Run(root, known.statics)
            run.look()
            run.watch(query)


_told: dict[int, _Telling] = {}


def tell_tasks(spark: SparkSession) -> None:
    """From now on tasks of streaming queries that this session starts know their checkpoint location."""
    key = hash((id(spark.sparkContext), number_of(spark)))
    if key not in _told:
        _told[key] = _Telling(spark)
        spark.streams.addListener(_told[key])
