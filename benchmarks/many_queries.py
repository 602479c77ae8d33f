"""Many queries over one stream on the local engine: against ten of them, and against as many of plain Spark.

    python -m benchmarks.many_queries [--quick] [--scale X] [--rows N] [--batches N] [--queries N] [--rounds N]
                                      [--without-spark]

Every query is ``SELECT * FROM s WHERE k = c AND v > t`` with constants of its own; ``k`` has 100 values, and about
half of the rows pass the threshold. The rows are in ``--batches`` Parquet files; each is read and pushed, and all
answers are fetched at the end. The first ratio is that of the speeds, counted from the first file, of all queries and
of the first ten; both take turns. The same without reading, from tables in memory, is printed beside it. The second
ratio compares with a streaming query of Spark for each (local[2], the same files, one for each micro-batch, into a
sink that only counts, after a warm-up), counted on both sides from the first query's start. Every query must give as
many answers as numpy counts.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from benchmarks.compare import plain_spark
from benchmarks.support.files import write
from benchmarks.support.on_spark import run, session, stream, warm_up
from benchmarks.support.report import Report, amount, options, progress

KEYS = 100
FEW = 10
SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v DOUBLE"
_DECLARE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts"


def table(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    ts = pa.array(np.arange(rows) * 100).view(pa.timestamp("us"))
    return pa.table({"ts": ts, "k": random.integers(0, KEYS, rows), "v": random.random(rows)})


def constants(i: int) -> tuple[int, float]:
    """The key of a query, and its threshold."""
    return i % KEYS, round(0.4 + 0.2 * (i * 37 % KEYS) / KEYS, 3)


def condition(i: int) -> str:
    key, threshold = constants(i)
    return f"k = {key} AND v > {threshold}"


def counted(data: pa.Table, queries: int) -> list[int]:
    """How many answers each query has."""
    k, v = data["k"].to_numpy(), data["v"].to_numpy()
    return [int(np.count_nonzero((k == key) & (v > t))) for key, t in map(constants, range(queries))]


def ours(batches: Sequence[Path | pa.Table], wanted: list[int]) -> tuple[float, float]:
    """Seconds until all queries have all answers: from the first query's start, and from the first batch."""
    with penstock.connect(engine="local") as db:
        db.execute(_DECLARE)
        began = time.perf_counter()
        queries = [db.query(f"SELECT * FROM s WHERE {condition(i)}") for i in range(len(wanted))]
        gc.collect()  # what was left behind before is not part of it
        first = time.perf_counter()
        for batch in batches:
            db.push("s", pq.read_table(batch) if isinstance(batch, Path) else batch)
        found = [q.fetch().num_rows for q in queries]
        end = time.perf_counter()
    if found != wanted:
        raise SystemExit(f"answers differ: ours {found}, counted {wanted}")
    return end - began, end - first


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--rounds", type=int, help="turns of all queries and of ten")
    parser.add_argument("--without-spark", action="store_true", help="only the first ratio")
    args = parser.parse_args()
    rows = args.rows or amount(args, 1_000_000)
    queries = args.queries or (12 if args.quick else 100)
    rounds = args.rounds or (1 if args.quick else 5)
    report = Report("many_queries")
    data = table(rows)
    wanted = counted(data, queries)
    size = -(-rows // args.batches)
    tables = [data.slice(start, size) for start in range(0, rows, size)]
    ours(tables[:1], counted(tables[0], queries))
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder, "data"), data, args.batches)
        paths = sorted(Path(files).glob("*.parquet"))
        many, few, many_tables, few_tables = [], [], [], []
        for turn in range(rounds):
            progress(f"turn {turn + 1} of {rounds}")
            few.append(ours(paths, wanted[:FEW]))
            many.append(ours(paths, wanted))
            few_tables.append(ours(tables, wanted[:FEW]))
            many_tables.append(ours(tables, wanted))
        whole, pushed = (min(column) for column in zip(*many, strict=True))
        ten = min(seconds for _, seconds in few)
        in_memory, ten_in_memory = (min(s for _, s in turns) for turns in (many_tables, few_tables))
        report.add("many queries: answers", sum(wanted))
        report.add(f"many queries: million rows a second, {FEW} queries", rows / ten / 1e6)
        report.add(f"many queries: million rows a second, {queries} queries", rows / pushed / 1e6)
        report.add(f"many queries: speed of {queries} against that of {FEW}", ten / pushed, 0.5)
        report.add(f"many queries: million rows a second, {FEW} queries, in memory", rows / ten_in_memory / 1e6)
        report.add(f"many queries: million rows a second, {queries} queries, in memory", rows / in_memory / 1e6)
        report.add(f"many queries: speed of {queries} against that of {FEW}, in memory", ten_in_memory / in_memory)
        if not args.without_spark:
            against_spark(report, folder, files, wanted, whole, warm_up(args))
    report.finish()


def against_spark(report: Report, folder: str, files: Path, wanted: list[int], seconds: float, warm_up: int) -> None:
    """As many queries of plain Spark, against ``seconds``."""
    spark = session()
    warm = write(Path(folder, "warm"), table(1_000 * warm_up), warm_up)
    run(lambda: stream(spark, warm, SCHEMA).where(condition(0)), "spark: warm-up")
    conditions = [condition(i) for i in range(len(wanted))]
    spent, found = plain_spark.queries(spark, files, SCHEMA, conditions, ("ts", "k", "v"))
    spark.stop()
    if found != wanted:
        raise SystemExit(f"answers differ: Spark's {found}, counted {wanted}")
    report.add(f"many queries: ours, seconds for {len(wanted)} queries", seconds)
    report.add(f"many queries: Spark's own, seconds for {len(wanted)} queries", spent)
    report.add("many queries: speed against as many queries of Spark", spent / seconds, 20)


if __name__ == "__main__":
    main()
