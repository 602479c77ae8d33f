"""A program on a cluster of separate processes: a master, two workers, an executor for each.

    python -m tests.spark.cluster ROOT

Queries of several kinds over streams of files, into folders. The workers find another Penstock than this one, so this
one must be sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import penstock.spark as ps

QUERIES = {
    "both": "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 40] a LEFT JOIN r [RANGE 30] b ON a.k = b.k",
    "sliding": "SELECT ISTREAM k, sum(v) AS total, max(v) AS most FROM s [RANGE 50] GROUP BY k",
    "last": "SELECT ISTREAM k, count(*) AS n FROM s [ROWS 7] GROUP BY k",
    "hops": "SELECT k, count(*) AS n, sum(v) AS total FROM s [HOPPING 30 EVERY 10] GROUP BY k",
}


def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import penstock

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"path": [penstock.__file__]})


def main(root: Path) -> None:
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = ps.session("local-cluster[2,1,1024]", settings=settings)
    reader = spark.readStream.schema("t BIGINT, k BIGINT, v BIGINT").option("maxFilesPerTrigger", 1)
    streams = {name: reader.parquet(str(root / name)) for name in ("s", "r")}
    pipeline = ps.pipeline(spark, QUERIES, shards=3, timestamps=dict.fromkeys(streams, "t"), streams=streams)
    outputs: dict[str, ps.Output] = {name: str(root / name) for name in QUERIES}
    query = pipeline.start(outputs, checkpoint=str(root / "checkpoint"), trigger={"availableNow": True})
    assert ps.await_end(query)
    paths = {row.path for row in spark.range(4).mapInArrow(found, "path STRING").collect()}
    (root / "paths").write_text("\n".join(paths))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
