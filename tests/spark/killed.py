"""A program that is killed and started again: streaming queries over folders, into Parquet.

    python -m tests.spark.killed ROOT

One query of ``ps.sql`` into Spark's Parquet sink, and a pipeline into a folder for each query. When all files have been
read it leaves ``ROOT/joined.parquet``, what a reader of the sink finds, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock.spark as ps
from penstock.model.schema import Field
from penstock.model.types import BIGINT

SCHEMA = tuple(Field(name, BIGINT) for name in ("t", "k", "v"))
JOIN = "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 40] a LEFT JOIN r [RANGE 30] b ON a.k = b.k"
QUERIES = {
    "sliding": "SELECT ISTREAM k, sum(v) AS total, max(v) AS most FROM s [RANGE 50] GROUP BY k",
    "last": "SELECT ISTREAM k, count(*) AS n FROM s [ROWS 7] GROUP BY k",
    "both": "SELECT ISTREAM a.v AS x, b.v AS y FROM s [RANGE 20] a JOIN r [RANGE 20] b ON a.k = b.k",
}


def main(root: Path) -> None:
    spark = ps.session("local[2,4]", settings={"spark.sql.shuffle.partitions": "2"})
    reader = spark.readStream.schema("t BIGINT, k BIGINT, v BIGINT").option("maxFilesPerTrigger", 1)
    streams = {name: reader.parquet(str(root / name)) for name in ("s", "r")}
    times = dict.fromkeys(streams, "t")
    joined = ps.sql(spark, JOIN, shards=2, timestamps=times, streams=streams)
    writer = joined.writeStream.format("parquet").option("checkpointLocation", str(root / "sql"))
    one = writer.trigger(availableNow=True).start(str(root / "out"))
    pipeline = ps.pipeline(spark, QUERIES, shards=2, timestamps=times, streams=streams)
    outputs: dict[str, ps.Output] = {name: str(root / name) for name in QUERIES}
    other = pipeline.start(outputs, checkpoint=str(root / "pipeline"), trigger={"availableNow": True})
    if not ps.await_end(one):
        other.stop()
    elif ps.await_end(other):
        rows = spark.read.parquet(str(root / "out")).collect()
        names = ("ts", "op", "k", "x", "y")
        pq.write_table(pa.table({n: pa.array([r[n] for r in rows]) for n in names}), root / "joined.parquet")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
