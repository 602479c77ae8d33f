"""Five filters and a projection on Spark: ours against plain Spark, which judges no lateness.

    python -m benchmarks.spark_select [--quick] [--scale X] [--rows N] [--batches N]

A stream of ``--rows`` rows in ``--batches`` Parquet files, one for each micro-batch, and the same files as one table.
Both sides take turns in one session (local[2]), after 50 small micro-batches each; the best of the rounds counts, since
what else the machine does only adds. Number and sum of the answers must be the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock.spark as ps
from benchmarks.compare import plain_spark
from benchmarks.compare.jobs import JOBS
from benchmarks.compare.spark import schema, sources
from benchmarks.support.files import write
from benchmarks.support.on_spark import run, session, warm_up
from benchmarks.support.report import Report, amount, best, options

ROUNDS = 12


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int)
    args = parser.parse_args()
    job = JOBS["filters"]
    (text,) = job.queries.values()
    rows = args.rows or amount(args, 2_000_000, 100_000)
    report = Report("spark_select")
    spark, few = session(), warm_up(args)

    def ours(**frames: DataFrame) -> DataFrame:
        return ps.sql(spark, text, streams=frames)

    sides: tuple[Callable[..., DataFrame], ...] = (ours, plain_spark.filters)
    with tempfile.TemporaryDirectory() as folder:
        warm, data = Path(folder, "warm"), Path(folder, "data")
        write(warm / "s", job.tables(200 * few)["s"], few)
        tables = job.tables(rows)
        write(data / "s", tables["s"], args.batches or (2 if args.quick else 8))
        wanted = job.expected(tables)

        def busy(side: Callable[..., DataFrame]) -> float:
            found = run(lambda: side(**sources(spark, data)), side.__name__, checksum=job.checksum)
            if (found.answers, found.checksum) != wanted:
                raise SystemExit(f"{side.__name__}: {found.answers} answers, {wanted.answers} were right")
            return found.busy

        for side in sides:
            run(lambda made=side: made(**sources(spark, warm)), "warm-up")  # type: ignore[misc]
        streamed = [min(seconds) for seconds in zip(*([busy(s) for s in sides] for _ in range(ROUNDS)), strict=True)]
        table = spark.read.schema(schema(data, "s")).parquet(str(data / "s"))

        frames = [side(s=table).agg(F.count("*"), F.sum("x").cast("double")) for side in sides]

        def summed(frame: DataFrame) -> None:
            found = frame.first()
            if found is None or tuple(found) != wanted:
                raise SystemExit(f"{found} of the table, {wanted} were right")

        at_once = best(lambda: summed(frames[0]), lambda: summed(frames[1]), rounds=ROUNDS)
    report.add("select: rows/s of a stream", rows / streamed[0])
    report.add("select: speed against plain Spark, a stream", streamed[1] / streamed[0], 1.0)
    report.add("select: rows/s of a table", rows / at_once[0])
    report.add("select: speed against plain Spark, a table", at_once[1] / at_once[0])
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
