"""Answers as a DataFrame whose jobs say what query they are of, and whose writers start it as ``lives`` wants it."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.hosts.spark.described import DESCRIPTION, describing, free_name
from penstock.hosts.spark.internals import FrameOf
from penstock.hosts.spark.lives import started

_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


def _telling(method: Any) -> Any:
    """A method whose jobs have the title of the answers as their description, unless the caller has set one."""

    @wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        context = self._title_of.sparkSession.sparkContext
        if context.getLocalProperty(DESCRIPTION) is not None:
            return method(self, *args, **kwargs)
        with describing(context, self._title_of.title):
            return method(self, *args, **kwargs)

    return told


def _derived(method: Any) -> Any:
    """A method whose DataFrame has the title of the answers too."""

    @wraps(method)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        return Answers(method(self, *args, **kwargs), self.title)

    return made


class Answers(FrameOf):
    """Answers whose jobs say what query they are of: ``title``. It is the name of streaming queries that write them.

    So do jobs of what ``select``, ``where`` and the like make of them. What comes from ``groupBy`` or from SQL over a
    temporary view is a DataFrame as any other; its plan still has the title.
    """

    def __init__(self, frame: Any, title: str) -> None:
        super().__init__(frame)
        self.title = title

    @property
    def _title_of(self) -> Answers:
        return self

    alias = _derived(FrameOf.alias)
    coalesce = _derived(FrameOf.coalesce)
    crossJoin = _derived(FrameOf.crossJoin)
    distinct = _derived(FrameOf.distinct)
    drop = _derived(FrameOf.drop)
    dropDuplicates = _derived(FrameOf.dropDuplicates)
    drop_duplicates = dropDuplicates
    filter = _derived(FrameOf.filter)
    join = _derived(FrameOf.join)
    limit = _derived(FrameOf.limit)
    orderBy = _derived(FrameOf.orderBy)
    repartition = _derived(FrameOf.repartition)
    select = _derived(FrameOf.select)
    selectExpr = _derived(FrameOf.selectExpr)
    sort = _derived(FrameOf.sort)
    toDF = _derived(FrameOf.toDF)
    union = _derived(FrameOf.union)
    unionByName = _derived(FrameOf.unionByName)
    where = _derived(FrameOf.where)
    withColumn = _derived(FrameOf.withColumn)
    withColumnRenamed = _derived(FrameOf.withColumnRenamed)
    withColumns = _derived(FrameOf.withColumns)

    collect = _telling(FrameOf.collect)
    count = _telling(FrameOf.count)
    foreach = _telling(FrameOf.foreach)
    foreachPartition = _telling(FrameOf.foreachPartition)
    head = _telling(FrameOf.head)
    isEmpty = _telling(FrameOf.isEmpty)
    show = _telling(FrameOf.show)
    tail = _telling(FrameOf.tail)
    take = _telling(FrameOf.take)
    toArrow = _telling(FrameOf.toArrow)
    toLocalIterator = _telling(FrameOf.toLocalIterator)
    toPandas = _telling(FrameOf.toPandas)

    @property
    def write(self) -> DataFrameWriter:
        return _TableWriter(self)

    @property
    def writeStream(self) -> DataStreamWriter:
        return _Writer(self, self.title)


class _TableWriter(DataFrameWriter):
    def __init__(self, answers: Answers) -> None:
        super().__init__(answers)
        self._title_of = answers

    csv = _telling(DataFrameWriter.csv)
    insertInto = _telling(DataFrameWriter.insertInto)
    jdbc = _telling(DataFrameWriter.jdbc)
    json = _telling(DataFrameWriter.json)
    orc = _telling(DataFrameWriter.orc)
    parquet = _telling(DataFrameWriter.parquet)
    save = _telling(DataFrameWriter.save)
    saveAsTable = _telling(DataFrameWriter.saveAsTable)
    text = _telling(DataFrameWriter.text)
    xml = _telling(DataFrameWriter.xml)


class _Writer(DataStreamWriter):
    def __init__(self, answers: Any, name: str) -> None:
        super().__init__(answers)
        self._ours: str | None = name
        self._session = answers.sparkSession

    def queryName(self, queryName: str) -> DataStreamWriter:
        self._ours = None
        return super().queryName(queryName)

    def format(self, source: str) -> DataStreamWriter:
        if source == "memory":  # whose table has the name
            self._ours = None
        return super().format(source)

    def start(
        self, path: str | None = None, format: str | None = None, outputMode: str | None = None,
        partitionBy: Any = None, queryName: str | None = None, **options: Any,
    ) -> StreamingQuery:  # fmt: skip
        self._name(format, queryName)
        start = super().start
        again = partial(start, path, format, outputMode, partitionBy, queryName, **options)
        return started(self._session, self, again)

    def toTable(
        self, tableName: str, format: str | None = None, outputMode: str | None = None, partitionBy: Any = None,
        queryName: str | None = None, **options: Any,
    ) -> StreamingQuery:  # fmt: skip
        self._name(format, queryName)
        start = super().toTable
        again = partial(start, tableName, format, outputMode, partitionBy, queryName, **options)
        return started(self._session, self, again)

    def _name(self, format: str | None, given: str | None) -> None:
        # Where the session has a place for checkpoints, a query's name is that of its folder, and so more than a name.
        if self._ours is None or given is not None or format == "memory" or self._session.conf.get(_CHECKPOINTS, None):
            return
        super().queryName(free_name(self._session, self._ours))
