"""A program that is killed and started again: streaming queries over folders, into Parquet.

    python -m tests.spark.killed ROOT

Two queries of ``ps.sql`` into Spark's Parquet sink, and a pipeline into a folder for each query. When all files have
been read it leaves ``ROOT/joined.parquet`` and ``ROOT/filtered.parquet``, what readers of the sinks find, and ends.
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
FILTER = "SELECT k, v FROM s WHERE v % 3 = 1"
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
    sql = {"joined": JOIN, "filtered": FILTER}
    started = []
    for name, text in sql.items():
        read = {n: frame for n, frame in streams.items() if n == "s" or name == "joined"}
        found = ps.sql(spark, text, shards=2, timestamps=dict.fromkeys(read, "t"), streams=read)
        writer = found.writeStream.format("parquet").option("checkpointLocation", str(root / "sql" / name))
        started.append(writer.trigger(availableNow=True).start(str(root / "out" / name)))
    pipeline = ps.pipeline(spark, QUERIES, shards=2, timestamps=times, streams=streams)
    outputs: dict[str, ps.Output] = {name: str(root / name) for name in QUERIES}
    other = pipeline.start(outputs, checkpoint=str(root / "pipeline"), trigger={"availableNow": True})
    if not all(map(ps.await_end, started)):
        for query in (*started, other):
            query.stop()
    elif ps.await_end(other):
        for name in sql:
            rows = spark.read.parquet(str(root / "out" / name)).collect()
            columns = {n: [r[n] for r in rows] for n in ("ts", "op", "k", "x", "y", "v") if n in rows[0]}
            pq.write_table(pa.table(columns), root / f"{name}.parquet")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
