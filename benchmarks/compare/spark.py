"""The jobs on Spark, in one session: with Penstock and without. Both are warmed up and read the same files."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import penstock.spark as ps
from benchmarks.compare import plain_spark
from benchmarks.compare.jobs import GAP, RATE, Job, Tally, condition
from benchmarks.compare.local import files, paced, streams
from benchmarks.support.on_spark import Made, Run, run, stream

_TYPES = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.timestamp("us"): "TIMESTAMP_NTZ"}
PLAIN: dict[str, Callable[..., DataFrame]] = {
    "filters": plain_spark.filters,
    "sliding": plain_spark.sliding,
    "join": plain_spark.join,
    "hopping": plain_spark.hopping,
}


def schema(folder: Path, name: str) -> str:
    """Of the files of a stream, for Spark."""
    return ", ".join(f"{field.name} {_TYPES[field.type]}" for field in pq.read_schema(files(folder, name)[0]))


def sources(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """The streams of a job, a file for each micro-batch."""
    return {name: stream(spark, folder / name, schema(folder, name)) for name in streams(folder)}


def with_penstock(spark: SparkSession, job: Job, folder: Path) -> Made:
    """The answers, as a stream of Spark."""
    if len(job.queries) > 1:
        return lambda: ps.pipeline(spark, job.queries, streams=sources(spark, folder)).answers
    (text,) = job.queries.values()
    return lambda: ps.sql(spark, text, streams=sources(spark, folder))


def ours(spark: SparkSession, job: Job, folder: Path) -> Run:
    return run(with_penstock(spark, job, folder), "Penstock on Spark", job.counts, job.checksum)


def plain(spark: SparkSession, job: Job, folder: Path, count: int | None = None) -> Run:
    """Without Penstock; of many queries the first ``count``."""
    if job.name == "queries":
        conditions = [condition(i) for i in range(count or len(job.queries))]
        seconds, answers = plain_spark.queries(spark, folder / "s", schema(folder, "s"), conditions)
        return Run([seconds], seconds, sum(answers), float(sum((i + 1) * n for i, n in enumerate(answers))))
    counts = "k >= 0" if job.name == "hopping" else "true"
    return run(lambda: PLAIN[job.name](**sources(spark, folder)), "plain Spark", counts, job.checksum)


# -- latency ----------------------------------------------------------------------------------------------


@contextmanager
def served(lines: list[str], due: list[float]) -> Iterator[int]:
    """Lines at a steady rate for whoever connects first; gives the port, and ``due`` the moment of each.

    The thread ends when all lines are sent or the other side is gone.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            try:
                with closing(server.accept()[0]) as peer:
                    due.extend(paced(len(lines), lambda a, b: peer.sendall("".join(lines[a:b]).encode())))
                    over.wait()
            except OSError:
                return

        over = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
    thread.join(5)


def latency(spark: SparkSession, folder: Path, skip: int, patience: float = 60.0) -> tuple[list[float], Tally]:
    """Of plain Spark: rows come over a socket, answers are taken from ``foreachBatch``. As for ``local.latency``."""
    table = pq.read_table(files(folder, "s")[0])
    ts = table["ts"].combine_chunks().view(pa.int64()).to_pylist()
    lines = [f"{t},{k},{v}\n" for t, k, v in zip(ts, table["k"].to_pylist(), table["v"].to_pylist(), strict=True)]
    came: dict[int, float] = {}
    sums = [0.0]
    done = threading.Event()

    def take(frame: DataFrame, _: int) -> None:
        rows = frame.select("t", "n", "m").collect()
        now = time.perf_counter()
        for t, n, m in rows:
            came[(t - ts[0]) // GAP] = now
            sums[0] += n + m
        if len(came) == len(lines):
            done.set()

    due: list[float] = []
    with served(lines, due) as port, tempfile.TemporaryDirectory() as checkpoint:
        text = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        parts = text.selectExpr("split(value, ',') AS p")
        rows = parts.selectExpr(
            "timestamp_micros(CAST(p[0] AS BIGINT)) AS ts", "CAST(p[1] AS BIGINT) AS k", "CAST(p[2] AS BIGINT) AS v"
        )
        writer = plain_spark.sliding(rows).writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        query = writer.start()
        done.wait(len(lines) / RATE + patience)
        query.stop()
    answered = [1000 * (came[row] - due[row]) for row in range(skip, len(due)) if row in came]
    return answered, Tally(len(came), sums[0])
