"""Rows as DataFrames, and answers as multisets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.hosts.spark.schemas import spark_schema
from penstock.model.schema import Schema, arrow_schema
from penstock.rows.given import as_table
from tests.generated.language import Row
from tests.generated.running import comparable


def schema_of(declare: str, name: str) -> Schema:
    """The columns of a declared stream or relation."""
    with penstock.connect(engine="reference") as db:
        db.execute(declare)
        return (db.catalog.streams.get(name) or db.catalog.relation(name)).schema


def frame(spark: SparkSession, schema: Schema, rows: Sequence[Row]) -> DataFrame:
    """A table in one partition, so that its rows have an order."""
    return spark.createDataFrame(list(rows), spark_schema(arrow_schema(schema))).coalesce(1)


def multiset(answers: DataFrame) -> Counter[object]:
    """The rows of a DataFrame."""
    return Counter(tuple(comparable(v) for v in row) for row in answers.collect())


class Folder:
    """A folder of Parquet files that Spark reads as a stream, in the order in which they are added."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path, self._schema, self._files = path, schema, 0
        path.mkdir(parents=True)

    def add(self, rows: Sequence[Row]) -> None:
        """One more file."""
        table: pa.Table = as_table(rows, self._schema, "file")
        path = self.path / f"part-{self._files:05d}.parquet"
        hidden = path.with_name(f".{path.name}")
        pq.write_table(table, hidden)
        # Spark reads files by age, to the second in places.
        os.utime(hidden, (1_700_000_000 + 10 * self._files,) * 2)
        hidden.rename(path)
        self._files += 1

    def stream(self, spark: SparkSession, per_batch: int) -> DataFrame:
        """The files as a stream, so many for each micro-batch."""
        reader = spark.readStream.schema(spark_schema(arrow_schema(self._schema)))
        return reader.option("maxFilesPerTrigger", per_batch).parquet(str(self.path))
