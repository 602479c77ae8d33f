"""A hopping aggregate on Spark: ours against Spark's own window with a watermark.

    python -m benchmarks.spark_hopping [--quick] [--scale X] [--rows N] [--batches N]

Count and average by key of the last 10 seconds, every second, over a stream of ``--rows`` rows, 10,000 in a second of
event time, 400,000 in a micro-batch, 1,000 keys; both sides read the same files in one session (local[2]), after 50
small micro-batches. The windows that both sides have closed must hold the same answers; a last row lets time pass for
the others.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import penstock.spark as ps
from benchmarks.compare import plain_spark
from benchmarks.compare.jobs import HOPPING
from benchmarks.support.files import write
from benchmarks.support.on_spark import Made, collected, median_ms, session, stream, warm_up, warmed
from benchmarks.support.report import Report, amount, options, progress

SCHEMA = "ts TIMESTAMP_NTZ, k BIGINT, v DOUBLE"
KEYS = 1_000


def table(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    ts = np.arange(rows, dtype=np.int64) * 100 + 1_700_000_000_000_000
    ts[-1] += 60_000_000
    stamps = pa.array(ts).view(pa.timestamp("us"))
    return pa.table({"ts": stamps, "k": random.integers(0, KEYS, rows), "v": random.random(rows).round(3)})


def sides(spark: SparkSession, folder: Path) -> dict[str, Made]:
    def ours() -> DataFrame:
        return ps.sql(spark, HOPPING, s=stream(spark, folder, SCHEMA))

    return {"ours": ours, "spark": lambda: plain_spark.hopping(stream(spark, folder, SCHEMA))}


def answers(side: Made) -> dict[tuple[object, object], tuple[object, float]]:
    """Count and average by end of the window and key."""
    return {(t, k): (n, m) for t, op, k, n, m in collected(side) if op == "+"}  # type: ignore[misc]


def _same(one: tuple[object, float], other: tuple[object, float]) -> bool:
    """Averages are sums in another order."""
    return one[0] == other[0] and math.isclose(one[1], other[1], rel_tol=1e-9)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int)
    args = parser.parse_args()
    rows = args.rows or amount(args, 4_000_000, 200_000)
    batches = args.batches or (4 if args.quick else 10)
    report = Report("spark_hopping")
    spark, few = session(), warm_up(args)
    with tempfile.TemporaryDirectory() as folder:
        warm = sides(spark, write(Path(folder, "warm"), table(2_000 * few), few))
        data = sides(spark, write(Path(folder, "data"), table(rows), batches))
        before, theirs, after = (warmed(warm[name], data[name], name) for name in ("ours", "spark", "ours"))
        progress("comparing the answers")
        some = sides(spark, write(Path(folder, "some"), table(200_000), 4))
        mine, wanted = answers(some["ours"]), answers(some["spark"])
    ends = {end for end, _ in mine} & {end for end, _ in wanted}
    keys = {key for key in mine.keys() | wanted.keys() if key[0] in ends}
    none = (0, math.nan)
    other = [k for k in keys if not _same(mine.get(k, none), wanted.get(k, none))]
    if not ends or other:
        said = [(key, mine.get(key), wanted.get(key)) for key in other[:3]]
        raise SystemExit(f"{len(other)} answers differ in {len(ends)} windows: {said}")
    ours = statistics.mean([before.busy, after.busy])
    report.add("hopping: windows compared, the same on both sides", len(ends))
    report.add("hopping: ours, ms for a micro-batch", statistics.mean(map(median_ms, (before.each, after.each))))
    report.add("hopping: Spark's own, ms for a micro-batch", median_ms(theirs.each))
    report.add("hopping: ours, rows/s", rows / ours)
    report.add("hopping: speed against Spark's own", theirs.busy / ours, 3)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
