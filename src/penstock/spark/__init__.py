"""Penstock for Spark: DataFrames in, a DataFrame of answers out.

    import penstock.spark as ps

    out = ps.sql(spark, "SELECT ISTREAM b.auction, p.name FROM bids [ROWS 100] b JOIN people [RANGE 10 MINUTES] p "
                 "ON b.bidder = p.id", bids=bids_df, people=people_df)
    out.writeStream.format("parquet").option("checkpointLocation", …).start(…)

Streaming DataFrames are streams, and static ones beside them are relations. Where all are static, those that are not
in ``relations`` are streams that have ended: the answers are those that the same query gives while the rows arrive.
The answers have the columns ``ts``, ``op`` (``+`` or ``-``) and those of the query.

A streaming query can be stopped, killed and started again with its checkpoint location; ``await_end`` waits for one,
``metrics`` says what its micro-batches cost, ``late`` which rows came too late, ``apart`` which did not fit, and
``error`` what its failure means.

Owns: the library for Spark users.
Must not know: how a job runs. Enter at: ``sql``, ``pipeline``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.catalog import Functions
from penstock.hosts.spark.awaiting import await_end
from penstock.hosts.spark.checkpoint import apart_folder, late_folder, located
from penstock.hosts.spark.compile import Settings, answers, apart_of, compiled, explained
from penstock.hosts.spark.declared import declared
from penstock.hosts.spark.described import free_name
from penstock.hosts.spark.metrics import MicroBatch, metrics, waiting
from penstock.hosts.spark.outputs import Output, Writing, checked
from penstock.hosts.spark.rows import Waiting
from penstock.hosts.spark.running import error
from penstock.hosts.spark.schemas import spark_name
from penstock.hosts.spark.session import session
from penstock.hosts.spark.ship import ship
from penstock.model.durations import parse_duration
from penstock.model.errors import InputError, there_are
from penstock.model.types import TICKS_PER_SECOND
from penstock.plan.explain import explain_text
from penstock.rows.apart import OnError

__all__ = [
    "Duration", "MicroBatch", "Output", "Pipeline", "Waiting", "apart", "await_end", "error", "explain", "late",
    "metrics", "pipeline", "session", "ship", "sql", "waiting",
]  # fmt: skip

Duration = int | str | timedelta
"""Ticks (microseconds), a text like ``2 seconds``, or a timedelta."""


def sql(
    spark: SparkSession,
    query: str,
    *,
    shards: int | None = None,
    timestamps: Mapping[str, str] | None = None,
    slack: Duration | Mapping[str, Duration] = 0,
    idle: Duration | None = None,
    on_error: OnError | Mapping[str, OnError] = "refuse",
    refresh: Duration | None = None,
    relations: Mapping[str, DataFrame] | None = None,
    declare: str = "",
    functions: Functions | None = None,
    files: bool = True,
    streams: Mapping[str, DataFrame] | None = None,
    **dataframes: DataFrame,
) -> DataFrame:
    """The answers of one query.

    ``timestamps`` names the column of a stream that says when a row happened; without it that is its only TIMESTAMP,
    or one called ts, at, timestamp or event_time. A row of a later micro-batch may be older than rows of earlier ones
    by up to ``slack``; what is older still is set apart (see ``late``). ``shards``: into how many parts the work is
    split, where the query has a key for it. ``idle``: an input that is further behind the others than this does not
    hold them up. ``on_error``: with ``apart``, rows whose time is NULL or out of range are kept apart (see ``apart``),
    otherwise they end the query; for all streams, or by name. ``refresh``: how often static DataFrames beside streams
    are looked at while the query runs; without it those that are files every second, others only at the start.
    ``declare``: statements that come before the query, such as CREATE VIEW; what CREATE STREAM and CREATE RELATION say
    of a DataFrame must be so. ``streams`` are more DataFrames, for names that are arguments here or not known when the
    call is written. ``files``: workers may read plain folders of Parquet files themselves, which is faster than getting
    their rows from Spark. ``functions``: Python functions that the query calls, as
    ``{"name": (function, ["BIGINT"], "DOUBLE")}``.
    """
    given = _given(
        dataframes, streams, relations, shards, timestamps, slack, idle, on_error, refresh, declare, functions,
        files,
    )  # fmt: skip
    return answers(spark, compiled(spark, {"query": query}, *given), named=False)


def explain(
    spark: SparkSession,
    query: str,
    *,
    shards: int | None = None,
    timestamps: Mapping[str, str] | None = None,
    slack: Duration | Mapping[str, Duration] = 0,
    idle: Duration | None = None,
    on_error: OnError | Mapping[str, OnError] = "refuse",
    refresh: Duration | None = None,
    relations: Mapping[str, DataFrame] | None = None,
    declare: str = "",
    functions: Functions | None = None,
    files: bool = True,
    streams: Mapping[str, DataFrame] | None = None,
    **dataframes: DataFrame,
) -> str:
    """The plan of a query, and how it is spread over shards; the arguments are those of ``sql``."""
    given = _given(
        dataframes, streams, relations, shards, timestamps, slack, idle, on_error, refresh, declare, functions,
        files,
    )  # fmt: skip
    what = compiled(spark, {"query": query}, *given)
    return f"{explain_text(what.job.parts[0].queries[0].plan)}\n{explained(what)}"


class Pipeline:
    """Several queries that read each source once, as one Spark query.

    ``answers`` has a column ``query``, then ``ts``, ``op`` and the columns of all queries by name; columns that a query
    does not have are NULL.
    """

    def __init__(self, answers: DataFrame, schemas: Mapping[str, pa.Schema], title: str) -> None:
        self.answers = answers
        self._schemas = schemas
        self._title = title

    def __getitem__(self, query: str) -> DataFrame:
        """The answers of one query alone."""
        return self.of(query, self.answers)

    def of(self, query: str, answers: DataFrame) -> DataFrame:
        """The answers of one query out of a part of ``answers``, as ``foreachBatch`` gives it."""
        if query not in self._schemas:
            raise InputError(f"no query `{query}`", hint=there_are(self._schemas))
        names = [spark_name(c) for c in self._schemas[query].names]
        return answers.where(answers["query"] == query).select(*names)

    def start(
        self,
        outputs: Mapping[str, Output],
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> StreamingQuery:
        """Start one streaming query that gives the answers of each query to its output, each answer once.

        An output is a folder for Parquet files, or a function of a DataFrame and the number of the micro-batch. In a
        folder there is one for each micro-batch, which Spark reads as a column ``batch``. A function may be called
        again for a micro-batch that did not end, with the same answers. Answers of queries without output are dropped.
        ``trigger``: the arguments of Spark's ``trigger``, as in ``{"availableNow": True}``. ``name``: of the streaming
        query, in Spark's UI too; by default the names and texts of the queries.
        """
        checked(outputs, self._schemas, streaming=self.answers.isStreaming)
        name = name or free_name(self.answers.sparkSession, self._title)
        writer = self.answers.writeStream.queryName(name).foreachBatch(Writing(outputs, self._schemas, self.of))
        writer = writer.option("checkpointLocation", checkpoint)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        return writer.start()


def pipeline(
    spark: SparkSession,
    queries: Mapping[str, str],
    *,
    shards: int | None = None,
    timestamps: Mapping[str, str] | None = None,
    slack: Duration | Mapping[str, Duration] = 0,
    idle: Duration | None = None,
    on_error: OnError | Mapping[str, OnError] = "refuse",
    refresh: Duration | None = None,
    relations: Mapping[str, DataFrame] | None = None,
    declare: str = "",
    functions: Functions | None = None,
    files: bool = True,
    streams: Mapping[str, DataFrame] | None = None,
    **dataframes: DataFrame,
) -> Pipeline:
    """Several queries over the same DataFrames; the arguments are those of ``sql``."""
    if not _mapping(queries, "queries", "'high': 'SELECT …'"):
        raise InputError("a pipeline needs at least one query")
    given = _given(
        dataframes, streams, relations, shards, timestamps, slack, idle, on_error, refresh, declare, functions,
        files,
    )  # fmt: skip
    what = compiled(spark, queries, *given)
    return Pipeline(answers(spark, what, named=True), what.schemas, what.title)


def late(spark: SparkSession, checkpoint: str, stream: str) -> DataFrame | None:
    """The rows that came too late for a stream of a streaming query, None if there were none so far.

    They have the columns that the query reads.
    """
    return _kept(spark, late_folder(f"{checkpoint.rstrip('/')}/penstock", stream.lower()))


def apart(
    spark: SparkSession, where: str | DataFrame, stream: str, *, timestamp: str | None = None
) -> DataFrame | None:
    """The rows of a stream that do not fit, where ``on_error='apart'``: ``place``, ``column``, ``reason`` and ``row``.

    ``where``: the checkpoint location of a streaming query (None if there were no such rows so far), or the DataFrame
    that was given to one over tables, whose ``timestamp`` is found as by ``sql``.
    """
    if isinstance(where, str):
        return _kept(spark, apart_folder(f"{where.rstrip('/')}/penstock", stream.lower()))
    if where.isStreaming:
        raise InputError(f"stream `{stream}` is a streaming DataFrame", hint="give the checkpoint location")
    return apart_of(where, stream, timestamp)


def _kept(spark: SparkSession, folder: str) -> DataFrame | None:
    """Rows that tasks have written to a folder, if there are any."""
    filesystem, path = located(folder)
    if not filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        return None
    return spark.read.parquet(folder)


def _given(
    dataframes: Mapping[str, DataFrame],
    streams: Mapping[str, DataFrame] | None,
    relations: Mapping[str, DataFrame] | None,
    shards: int | None,
    timestamps: Mapping[str, str] | None,
    slack: Duration | Mapping[str, Duration],
    idle: Duration | None,
    on_error: OnError | Mapping[str, OnError],
    refresh: Duration | None,
    declare: str,
    functions: Functions | None,
    files: bool,
) -> tuple[dict[str, DataFrame], dict[str, DataFrame], Settings]:
    """Streams, relations and settings, under the names that CQL knows them by."""
    named = _frames(dataframes, _mapping(streams, "streams", "'bids': bids_df"))
    tables = _frames(_mapping(relations, "relations", "'people': people_df"))
    for name, frame in tables.items():
        if name in named:
            raise InputError(f"`{name}` is given twice, as a relation too")
        if frame.isStreaming:
            raise InputError(f"relation `{name}` is a streaming DataFrame", hint="give it as a stream")
    if not isinstance(declare, str):
        raise InputError(f"declare is a {type(declare).__name__}", hint="give statements in one text, with ; between")
    if not named and not tables:
        raise InputError("there is no DataFrame to read", hint="give them by name, as in bids=bids_df")
    said = declared(declare, {**named, **tables})
    for name in tables:
        if name in said.timestamps:
            raise InputError(f"`{name}` is given as a relation and declared as a stream")
    is_table = {*tables, *said.relations}
    if any(frame.isStreaming for frame in named.values()):
        is_table |= {name for name, frame in named.items() if not frame.isStreaming}
    flowing = {name: frame for name, frame in said.frames.items() if name not in is_table}
    each = slack if isinstance(slack, Mapping) else dict.fromkeys(flowing, slack) if slack else {}
    stamps = _mapping(timestamps, "timestamps", "'bids': 'at'")
    faults: dict[str, OnError] = {}
    if isinstance(on_error, Mapping):
        faults = {name.lower(): what for name, what in on_error.items()}
    elif on_error != "refuse":
        faults = dict.fromkeys(flowing, on_error)
    for name, what in {**said.on_error, **faults}.items():
        if what not in ("refuse", "apart"):
            why = ": rows of a DataFrame have no order to stop in" if what == "stop" else ""
            raise InputError(f"stream `{name}`: on_error is {what!r}{why}", hint="it is 'refuse' or 'apart'")
    settings = Settings(
        shards,
        {**said.timestamps, **{name.lower(): column for name, column in stamps.items()}},
        {**said.slack, **{name.lower(): _ticks(length, "slack") for name, length in each.items()}},
        None if idle is None else _ticks(idle, "idle"),
        said.rest,
        _functions(functions),
        files,
        {**said.on_error, **faults},
        None if refresh is None else _ticks(refresh, "refresh"),
    )
    return flowing, {name: frame for name, frame in said.frames.items() if name in is_table}, settings


_OPTIONS = tuple(name for name, p in inspect.signature(sql).parameters.items() if p.kind is p.KEYWORD_ONLY)


def _frames(*given: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """DataFrames under the names that CQL knows them by."""
    found: dict[str, DataFrame] = {}
    for name, frame in (item for some in given for item in some.items()):
        if not isinstance(frame, DataFrame):
            raise _no_frame(name, frame)
        if name.lower() in found:
            raise InputError(f"`{name}` is given twice", hint="CQL folds names to lower case")
        found[name.lower()] = frame
    return found


def _no_frame(name: str, value: object) -> InputError:
    """What to say where something else is given in the place of a DataFrame."""
    close = get_close_matches(name, _OPTIONS, 1)
    if close:
        return InputError(f"there is no option `{name}`", hint=f"did you mean `{close[0]}`?")
    is_arrow = isinstance(value, pa.Table) or type(value).__module__.startswith("pandas")
    if is_arrow or hasattr(value, "to_arrow"):
        made = name if is_arrow else f"{name}.to_arrow()"
        return InputError(
            f"`{name}` is a {type(value).__name__} of {type(value).__module__.split('.')[0]} and no DataFrame of Spark",
            hint=f"give {name}=spark.createDataFrame({made})",
        )
    return InputError(
        f"`{name}` is a {type(value).__name__} and no DataFrame of Spark, and there is no option of that name",
        hint=f"the options are {', '.join(_OPTIONS)}",
    )


T = TypeVar("T")


def _mapping(given: Mapping[str, T] | None, option: str, example: str) -> Mapping[str, T]:
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{option} is a {type(given).__name__}", hint=f"give a dict, as in {{{example}}}")
    return given or {}


def _functions(given: Functions | None) -> Functions:
    example = "(function, ['BIGINT'], 'DOUBLE')"
    found = _mapping(given, "functions", f"'twice': {example}")
    for name, entry in found.items():
        if not isinstance(entry, tuple) or len(entry) != 3:
            raise InputError(
                f"function `{name}` is given without its types",
                hint=f"give the function, the types of its arguments and of what it returns: "
                f"functions={{{name!r}: {example}}}",
            )
    return found


def _ticks(length: Duration, what: str) -> int:
    if isinstance(length, timedelta):
        ticks: int | None = (length.days * 86_400 + length.seconds) * TICKS_PER_SECOND + length.microseconds
    elif isinstance(length, str):
        ticks = parse_duration(length)
    else:
        ticks = length if isinstance(length, int) else None
    if ticks is None or ticks < 0:
        raise InputError(f"{what} is {length!r}", hint="give a length of time, as in '2 seconds'")
    return ticks
