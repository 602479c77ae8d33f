"""From texts and DataFrames to a job, and from a job to a DataFrame of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from penstock.catalog import Catalog, Functions, RelationDef, StreamDef, Unread
from penstock.cql.declarations import declared_in, function_def, plan_of_text
from penstock.hosts.spark.answers import Answers
from penstock.hosts.spark.checkpoint import Packets
from penstock.hosts.spark.described import described, describing
from penstock.hosts.spark.direct import Direct, is_direct, one_door
from penstock.hosts.spark.files import by_path
from penstock.hosts.spark.gather import Gather
from penstock.hosts.spark.internals import check_classic, is_classic
from penstock.hosts.spark.job import Job, Part, RunQuery, Source, parts_of, reads
from penstock.hosts.spark.lives import Statics, know, tell_tasks
from penstock.hosts.spark.metrics import reports_of
from penstock.hosts.spark.native import whole
from penstock.hosts.spark.pushdown import pushed
from penstock.hosts.spark.scatter import PACKETS, RowsApart, Scatter
from penstock.hosts.spark.schemas import (
    Columns,
    columns_of,
    spark_arrow,
    spark_name,
    spark_schema,
    timestamp_column,
    unread_of,
)
from penstock.hosts.spark.session import check_release, session_zone
from penstock.model.errors import BindError, CqlSyntaxError, InputError, PenstockError, there_are
from penstock.plan.answers import answer_schema
from penstock.plan.nodes import Query
from penstock.plan.optimize import optimize
from penstock.plan.reading import narrowed, used
from penstock.rows.apart import SCHEMA, OnError
from penstock.scalar.zones import UTC


@dataclass(frozen=True)
class Settings:
    """What may be said besides texts and DataFrames; lengths of time in ticks."""

    shards: int | None = None
    timestamps: Mapping[str, str] = field(default_factory=dict)
    slack: Mapping[str, int] = field(default_factory=dict)
    idle: int | None = None
    declare: str = ""
    functions: Functions = field(default_factory=dict)
    files: bool = True
    on_error: Mapping[str, OnError] = field(default_factory=dict)
    refresh: int | None = None


@dataclass(frozen=True)
class Compiled:
    """A job with the DataFrames that it reads. ``schemas``: of the answers as Spark gets them.

    ``wanted``: what Spark asks of the rows of a source before anybody else sees them. ``title``: the queries in words.
    ``by_spark``: the answers of the only query, where Spark gives them without a worker.
    """

    job: Job
    frames: tuple[DataFrame, ...]
    schemas: Mapping[str, pa.Schema]
    wanted: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    by_spark: DataFrame | None = None
    refresh: int | None = None


def compiled(
    spark: SparkSession,
    texts: Mapping[str, str],
    streams: Mapping[str, DataFrame],
    relations: Mapping[str, DataFrame],
    settings: Settings,
) -> Compiled:
    """Bind queries over DataFrames; what no query reads is not asked from them."""
    check_classic(spark)
    check_release()
    if not is_classic(spark):
        raise InputError(
            f"the first argument is a {type(spark).__name__} and no Spark session", hint="ps.session() gives one"
        )
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"query `{name}` is a {type(text).__name__}", hint="give the text of a query")
    frames = {**streams, **relations}
    given = {name: columns_of(frame.schema, f"DataFrame `{name}`") for name, frame in frames.items()}
    unknown = [n for n in (*settings.timestamps, *settings.slack, *settings.on_error) if n not in streams]
    if unknown:
        raise InputError(f"there is no stream `{unknown[0]}`", hint=there_are([*map(repr, streams)]))
    everything = {name: _source(name, found, name in streams, settings) for name, found in given.items()}
    faces = {found.timestamps for found in given.values()} - {"none"}
    # What a clock shows has no zone; beside instants it is what clocks of the session show, as Spark has it.
    zone = UTC if faces == {"clock"} else session_zone(spark)
    plans = _bound(texts, everything, given, settings, zone)
    read = [used(plan) for plan in plans.values()]
    unread = [name for name in frames if not any(name in one for one in read)]
    if unread:
        raise InputError(f"no query reads `{unread[0]}`", hint="leave it out")
    kept = {name: _kept(source, read) for name, source in everything.items()}
    needed = {name: _narrowed(source, kept[name]) for name, source in everything.items()}
    plans = {name: narrowed(plan, kept) for name, plan in plans.items()}
    queries = [RunQuery(name, plan, answer_schema(plan), texts[name]) for name, plan in plans.items()]
    streaming = [name for name, frame in streams.items() if frame.isStreaming]
    shards = settings.shards if settings.shards is not None else _usual_shards(spark, bool(streaming))
    if not isinstance(shards, int) or shards < 1:
        raise InputError(f"shards is {shards!r}", hint="give a whole number, at least one")
    chosen: list[DataFrame] = []
    for i, (name, source) in enumerate(needed.items()):
        frame = frames[name].select(*(F.col(spark_name(f.name)) for f in source.schema))
        clocks = [f.name for f in frame.schema.fields if zone != UTC and isinstance(f.dataType, TimestampNTZType)]
        chosen.append(frame.withColumns({column: F.col(spark_name(column)).cast("timestamp") for column in clocks}))
        if name in streaming and settings.files and not clocks:
            found = by_path(spark, frames[name], [f.name for f in source.schema])
            if found is not None:
                chosen[i], needed[name] = found[0], replace(source, files=found[1])
    job = Job(
        tuple(needed.values()),
        parts_of(queries, shards),
        bounded=not streaming,
        idle=settings.idle,
        functions={name.lower(): call for name, (call, _, _) in settings.functions.items()},
    )
    face = faces == {"clock"}
    wanted: dict[str, str] = {}
    for i, (name, source) in enumerate(needed.items()):
        condition = pushed(chosen[i], source, list(plans.values()), bounded=job.bounded, clock_face=face)
        if condition is not None:
            chosen[i] = chosen[i].where(condition)
            wanted[name] = str(condition).removeprefix("Column<'").removesuffix("'>")
    schemas = {q.name: spark_arrow(q.schema, clock_face=face) for q in queries}
    by_spark = None
    if job.bounded and len(queries) == len(chosen) == 1:
        (only,), (schema,) = queries, schemas.values()
        by_spark = whole(chosen[0], job.sources[0], only.plan, schema.names, clock_face=face)
    return Compiled(job, tuple(chosen), schemas, wanted, described(texts), by_spark, settings.refresh)


def answers(spark: SparkSession, what: Compiled, *, named: bool) -> DataFrame:
    """The answers of a job; ``named``: with a column that says of which query, and the columns of all queries."""
    if what.by_spark is not None and not named:
        return Answers(what.by_spark, what.title)
    job = what.job
    output = _all_columns(what.schemas) if named else next(iter(what.schemas.values()))
    if not job.bounded:
        tell_tasks(spark)
    reports = None if job.bounded else reports_of(spark)
    gather = Gather(job, what.schemas, output, named, reports, what.title)
    if is_direct(job):
        rows, sources, places = one_door(job, what.frames)
        threads = max(1, _threads(spark) // job.shards) if job.side_by_side else _threads(spark)
        return _answered(rows, Direct(gather, sources, places, threads), output, what)
    packets = [
        _numbered(frame).mapInArrow(Scatter(job, i), PACKETS)
        for i, frame in enumerate(what.frames)
        if job.bounded or job.sources[i].is_stream
    ]
    together = reduce(DataFrame.union, packets).repartitionById(job.shards, F.col("shard"))
    return _answered(together, gather, output, what)


def _answered(rows: DataFrame, task: Direct | Gather, output: pa.Schema, what: Compiled) -> DataFrame:
    """The answers that a task gives for each partition."""
    found = _marked(rows, task, output, what.job)
    if what.job.bounded:
        return Answers(found, what.title)
    know(found, what.job, _statics(what))
    return Answers(found, what.title)


def _marked(rows: DataFrame, task: Direct | Gather, output: pa.Schema, job: Job) -> DataFrame:
    if not job.only_new:
        return rows.mapInArrow(task, spark_schema(output))
    given = rows.mapInArrow(task, spark_schema(output.remove(output.get_field_index("op"))))
    # Spark takes a constant column as one that is never NULL, and answers have none such.
    mark = F.expr("IF(true, '+', NULL)").alias("op")
    return given.select(*(mark if f.name == "op" else spark_name(f.name) for f in output))


def apart_of(frame: DataFrame, stream: str, timestamp: str | None) -> DataFrame:
    """The rows of a table that do not fit, where it is read as a stream that keeps such rows apart."""
    found = columns_of(frame.schema, f"DataFrame `{stream}`")
    settings = Settings(timestamps={} if timestamp is None else {stream: timestamp}, on_error={stream: "apart"})
    source = _source(stream, found, True, settings)
    chosen = frame.select(*(F.col(spark_name(f.name)) for f in source.schema))
    return _numbered(chosen).mapInArrow(RowsApart(source), spark_schema(SCHEMA))


def explained(what: Compiled) -> str:
    """How the queries are spread over shards, and why; what Spark filters for them."""
    spread = [f"{q.name}: {_spread(part, what.job)}" for part in what.job.parts for q in part.queries]
    if what.by_spark is not None:
        spread = ["Spark runs the whole query by itself: no Python worker sees a row"]
    filtered = [f"Spark reads of `{n}` only rows with {c}" for n, c in what.wanted.items()]
    by_files = [f"workers read the Parquet files of `{s.name}` themselves" for s in what.job.sources if s.files]
    return "\n".join([*spread, *filtered, *by_files])


def _spread(part: Part, job: Job) -> str:
    if part.split.keys is None:
        return f"1 shard: {part.split.reason}"
    if part.split.anywhere:
        return f"{part.shards} shards, any row in any: rows do not meet each other"
    names = {s.name: s.schema for s in job.sources}
    keys = (f"{n} by {', '.join(names[n][c].name for c in cs)}" for n, cs in part.split.keys.items())
    return f"{part.shards} shards: {'; '.join(keys)}"


def _threads(spark: SparkSession) -> int:
    """The cores of an executor."""
    context = spark.sparkContext
    is_local = str(context.master).partition("[")[0] == "local"
    return int(context.defaultParallelism if is_local else context.getConf().get("spark.executor.cores", "1"))


def _usual_shards(spark: SparkSession, streaming: bool) -> int:
    """A shard keeps two cores busy while it streams: Spark reads and writes what a Python process works on."""
    cores = spark.sparkContext.defaultParallelism
    return max(1, cores // 2) if streaming else cores


def _statics(what: Compiled) -> Statics:
    """Tables beside streams, whose rows go through the driver: Spark cannot put a table beside streams."""

    def read(place: int) -> Packets:
        packets = _numbered(frames[place]).mapInArrow(Scatter(what.job, place), PACKETS).where("rows IS NOT NULL")
        with describing(packets.sparkSession.sparkContext, f"relations of {what.title}"):
            rows = packets.collect()
        found: dict[int, dict[str, list[bytes]]] = {}
        for row in sorted(rows, key=lambda r: (r.task, r.number)):
            found.setdefault(row.shard, {}).setdefault(what.job.sources[place].name, []).append(bytes(row.rows))
        return found

    frames = {i: what.frames[i] for i, source in enumerate(what.job.sources) if not source.is_stream}
    return Statics(frames, read, what.refresh)


def _source(name: str, found: Columns, is_stream: bool, settings: Settings) -> Source:
    if not is_stream:
        return Source(name, found.schema)
    column, clock = timestamp_column(found, settings.timestamps.get(name), name)
    place = next(i for i, f in enumerate(found.schema) if f.name == column)
    return Source(name, found.schema, place, clock, settings.slack.get(name, 0), settings.on_error.get(name, "refuse"))


def _kept(source: Source, read: Sequence[Mapping[str, frozenset[int]]]) -> tuple[int, ...]:
    places = frozenset[int]().union(*(one.get(source.name, ()) for one in read))
    if source.timestamp is not None:
        places |= {source.timestamp}
    return tuple(sorted(places)) or (0,)


def _narrowed(source: Source, kept: tuple[int, ...]) -> Source:
    place = None if source.timestamp is None else kept.index(source.timestamp)
    return replace(source, schema=tuple(source.schema[i] for i in kept), timestamp=place)


def _bound(
    texts: Mapping[str, str], sources: Mapping[str, Source], given: Mapping[str, Columns], settings: Settings, zone: str
) -> dict[str, Query]:
    unread = {name: unread_of(found, name) for name, found in given.items()}
    catalog = Catalog(zone)
    for source in sources.values():
        position = catalog.next_position
        if source.timestamp is None:
            catalog.add(RelationDef(source.name, source.schema, position, unread=unread[source.name]))
            continue
        column = source.schema[source.timestamp].name
        catalog.add(StreamDef(
            source.name, source.schema, position, source.clock, column, source.slack, unread=unread[source.name]
        ))  # fmt: skip
    for name, (call, args, returns) in settings.functions.items():
        catalog.add_function(function_def(name, call, args, returns))
    try:
        declared_in(settings.declare, catalog)
        plans = {name: optimize(plan_of_text(catalog, text)[0]) for name, text in texts.items()}
    except PenstockError as error:
        dotted = [f.name for found in given.values() for f in found.schema if "." in f.name]
        raise _explaining(error, unread, dotted, texts) from None
    for name, plan in plans.items():
        pushed = [r for r in reads(plan) if r not in sources]
        if pushed:
            raise BindError(f"`{pushed[0]}` in query `{name}` has no DataFrame", hint=f"say {pushed[0]}=…")
    return plans


def _explaining(
    error: PenstockError, given: Mapping[str, Unread | None], dotted: Sequence[str], texts: Mapping[str, str]
) -> PenstockError:
    """A column that is there is not simply missing: CQL may not have its type, or its name may have a dot."""
    message = error.message.lower()
    lowered = [text.lower() for text in texts.values()]
    for name in dotted:
        low = name.lower()
        bare = any(low in text and f'"{low}"' not in text for text in lowered)
        if bare and (f"no `{low.split('.')[0]}` in from" in message or isinstance(error, CqlSyntaxError)):
            error.hint = f'the column whose name has a dot is written "{name}"'
    for source, unread in given.items():
        for column, dtype in unread.columns.items() if unread is not None else ():
            missing = message.startswith("no ") and f"`{column.lower()}`" in message
            # source.struct.field is more than CQL reads as a name.
            deeper = isinstance(error, CqlSyntaxError) and any(f".{column.lower()}." in text for text in lowered)
            if missing or deeper:
                assert unread is not None
                error.hint = f"`{column}` of `{source}` is {dtype} in Spark, which CQL does not have; {unread.hint}"
    return error


def _numbered(frame: DataFrame) -> DataFrame:
    """The columns under plain names: mapInArrow looks them up without quoting them."""
    return frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))


def _all_columns(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of all queries, one for names that differ in case alone: Spark does not tell them apart."""
    fields: dict[str, pa.Field] = {"query": pa.field("query", pa.string())}
    owner: dict[str, str] = {}
    for query, schema in schemas.items():
        for f in schema:
            name = f.name.lower()
            if name == "query" or fields.setdefault(name, f).type != f.type:
                other = "the name of the query" if name == "query" else f"{fields[name].type} in `{owner[name]}`"
                raise BindError(
                    f"the column `{f.name}` is {f.type} in query `{query}` and {other}", hint="rename it with AS"
                )
            owner.setdefault(name, query)
        if len({f.name.lower() for f in schema}) < len(schema):
            raise BindError(
                f"columns of query `{query}` differ in case only, which Spark does not mind", hint="rename one with AS"
            )
    return pa.schema(list(fields.values()))
