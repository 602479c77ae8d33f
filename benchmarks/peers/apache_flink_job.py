"""The jobs in Flink's SQL, from Python: streaming mode, CSV files as bounded streams, watermarks a second behind."""

from __future__ import annotations

import time

began = time.perf_counter()

from byhand import Data, Tally, clock, main, result  # noqa: E402
from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: E402

KEYED = "ts BIGINT, k BIGINT, v BIGINT"


def environment() -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": "2",
        "table.exec.mini-batch.enabled": "true",  # counts at the end tell of each change otherwise
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "10000",
        "table.local-time-zone": "UTC",
    }.items():
        made.get_config().set(name, value)
    made.execute_sql("SELECT count(*) FROM (VALUES (1), (2))").wait()  # what a first job starts is started now
    return made


flink = environment()
LOADED = time.perf_counter() - began


def declare(data: Data, stream: str, columns: str = KEYED) -> None:
    flink.execute_sql(f"""
        CREATE TABLE {stream} (
            {columns}, t AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR t AS t - INTERVAL '1' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = '{data.csv(stream, names=False)}', 'format' = 'csv')""")


def counted(answers: str, note: str = "") -> dict[str, object]:
    """Run a query with a column ``c``, what an answer adds to the checksum, and count the answers in Flink."""
    start = clock()
    n, c = 0, 0.0
    with flink.execute_sql(f"SELECT count(*) AS n, sum(CAST(c AS DOUBLE)) AS c FROM ({answers})").collect() as changes:
        for change in changes:
            if change.get_row_kind().name in ("INSERT", "UPDATE_AFTER"):
                n, c = change[0], change[1]
    found = Tally()
    found.answers, found.checksum = n, c
    return result(found, clock() - start, note)


def filters(data: Data) -> dict[str, object]:
    declare(data, "s", ", ".join(["ts BIGINT", *(f"{name} DOUBLE" for name in data.limits), "v BIGINT"]))
    where = " AND ".join(f"{name} < {limit}" for name, limit in data.limits.items())
    return counted(f"SELECT v * 2 + 1 AS c FROM s WHERE {where}")


def sliding(data: Data) -> dict[str, object]:
    declare(data, "s")
    # Its windows hold the row that is as old as they are long; ours do not.
    over = f"PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '{data.window / 1e6 - 0.001:.3f}' SECOND(2, 3) PRECEDING"
    over += " AND CURRENT ROW"
    return counted(f"SELECT count(*) OVER w + avg(CAST(v AS DOUBLE)) OVER w AS c FROM s WINDOW w AS ({over})", "OVER")


def join(data: Data) -> dict[str, object]:
    for stream in "rs":
        declare(data, stream)
    near = f"INTERVAL '{data.window / 1e6 - 0.001:.3f}' SECOND(2, 3)"
    return counted(
        f"SELECT r.v + s.v AS c FROM r JOIN s ON r.k = s.k AND r.t BETWEEN s.t - {near} AND s.t + {near}",
        "interval join",
    )


def hopping(data: Data) -> dict[str, object]:
    declare(data, "s")
    hop, size = (f"INTERVAL '{ticks // 1_000_000}' SECOND" for ticks in (data.hop, data.window))
    return counted(f"""
        SELECT count(*) + avg(CAST(v AS DOUBLE)) AS c FROM HOP(TABLE s, DESCRIPTOR(t), {hop}, {size})
        WHERE k >= 0 GROUP BY window_start, window_end, k""", "HOP")


def queries(data: Data) -> dict[str, object]:
    declare(data, "s")
    query = "SELECT CAST({} AS BIGINT) AS c FROM s WHERE k % 100 = {} AND v >= {}"
    parts = [query.format(i + 1, i, i) for i in range(data.queries)]
    return counted(" UNION ALL ".join(parts), "one job of all queries, which share their source")


if __name__ == "__main__":
    lacking = {"latency": "it reads no rows from Python one by one; a source for them is a Java program or a server"}
    main([filters, sliding, join, hopping, queries], lacking, LOADED)
