"""Answers as a DataFrame whose jobs say what query they are of, and whose writers start it as ``lives`` wants it."""

from __future__ import annotations

from functools import wraps
from typing import Any

from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.hosts.spark.described import DESCRIPTION, describing, free_name
from penstock.hosts.spark.internals import java_frame
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


class Answers(DataFrame):
    """Answers whose jobs say what query they are of: ``title``. It is the name of streaming queries that write them.

    So do jobs of what ``select``, ``where`` and the like make of them. What comes from ``groupBy`` or from SQL over a
    temporary view is a DataFrame as any other; its plan still has the title.
    """

    def __init__(self, frame: Any, title: str) -> None:
        super().__init__(java_frame(frame), frame.sparkSession)
        self.title = title

    @property
    def _title_of(self) -> Answers:
        return self

    alias = _derived(DataFrame.alias)
    coalesce = _derived(DataFrame.coalesce)
    crossJoin = _derived(DataFrame.crossJoin)
    distinct = _derived(DataFrame.distinct)
    drop = _derived(DataFrame.drop)
    dropDuplicates = _derived(DataFrame.dropDuplicates)
    drop_duplicates = dropDuplicates
    filter = _derived(DataFrame.filter)
    join = _derived(DataFrame.join)
    limit = _derived(DataFrame.limit)
    orderBy = _derived(DataFrame.orderBy)
    repartition = _derived(DataFrame.repartition)
    select = _derived(DataFrame.select)
    selectExpr = _derived(DataFrame.selectExpr)
    sort = _derived(DataFrame.sort)
    toDF = _derived(DataFrame.toDF)
    union = _derived(DataFrame.union)
    unionByName = _derived(DataFrame.unionByName)
    where = _derived(DataFrame.where)
    withColumn = _derived(DataFrame.withColumn)
    withColumnRenamed = _derived(DataFrame.withColumnRenamed)
    withColumns = _derived(DataFrame.withColumns)

    collect = _telling(DataFrame.collect)
    count = _telling(DataFrame.count)
    foreach = _telling(DataFrame.foreach)
    foreachPartition = _telling(DataFrame.foreachPartition)
    head = _telling(DataFrame.head)
    isEmpty = _telling(DataFrame.isEmpty)
    show = _telling(DataFrame.show)
    tail = _telling(DataFrame.tail)
    take = _telling(DataFrame.take)
    toArrow = _telling(DataFrame.toArrow)
    toLocalIterator = _telling(DataFrame.toLocalIterator)
    toPandas = _telling(DataFrame.toPandas)

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
        return started(self, lambda: start(path, format, outputMode, partitionBy, queryName, **options))

    def toTable(
        self, tableName: str, format: str | None = None, outputMode: str | None = None, partitionBy: Any = None,
        queryName: str | None = None, **options: Any,
    ) -> StreamingQuery:  # fmt: skip
        self._name(format, queryName)
        start = super().toTable
        return started(self, lambda: start(tableName, format, outputMode, partitionBy, queryName, **options))

    def _name(self, format: str | None, given: str | None) -> None:
        # Where the session has a place for checkpoints, a query's name is that of its folder, and so more than a name.
        if self._ours is None or given is not None or format == "memory" or self._spark.conf.get(_CHECKPOINTS, None):
            return
        super().queryName(free_name(self._spark, self._ours))
