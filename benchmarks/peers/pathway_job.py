"""The jobs in Pathway: tables from CSV files, with its own temporal joins and windows."""

from __future__ import annotations

import time

began = time.perf_counter()

import pathway as pw  # noqa: E402
from byhand import Data, Latencies, Tally, clock, main, paced, result  # noqa: E402

LOADED = time.perf_counter() - began


class Row(pw.Schema):
    ts: int
    k: int
    v: int


class Wide(pw.Schema):
    ts: int
    a: float
    b: float
    c: float
    d: float
    e: float
    v: int


def read(data: Data, stream: str = "s", schema: type[pw.Schema] = Row) -> pw.Table:
    return pw.io.csv.read(data.csv(stream), schema=schema, mode="static")


def counted(*tables: pw.Table, start: float | None = None, note: str = "") -> dict[str, object]:
    """Run, and count the answers in Pathway: a table has a column ``c``, what an answer adds to the checksum."""
    found = Tally()
    last: dict[int, tuple[int, float]] = {}

    def changed(at):
        def change(key, row, time, is_addition):
            if is_addition:
                last[at] = (row["n"], row["c"])

        return change

    for at, table in enumerate(tables):
        pw.io.subscribe(table.reduce(n=pw.reducers.count(), c=pw.reducers.sum(pw.this.c)), changed(at))
    start = clock() if start is None else start
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = clock() - start
    found.answers = sum(n for n, _ in last.values())
    found.checksum = float(sum(c for _, c in last.values()))
    return result(found, seconds, note)


def filters(data: Data) -> dict[str, object]:
    table = read(data, schema=Wide)
    for name, limit in data.limits.items():
        table = table.filter(table[name] < limit)
    return counted(table.select(c=table.v * 2 + 1))


def slid(data: Data, table: pw.Table) -> pw.Table:
    """Every row with those of its key in the window that it ends."""
    other = table.copy()
    near = pw.temporal.interval(-(data.window // 1_000 - 1), 0)
    pairs = table.interval_join_inner(other, table.ts, other.ts, near, table.k == other.k).select(
        row=table.id, ts=table.ts, v=other.v
    )
    return pairs.groupby(pairs.row, pairs.ts).reduce(
        pairs.ts, n=pw.reducers.count(), m=pw.reducers.avg(pairs.v)
    )


def sliding(data: Data) -> dict[str, object]:
    answers = slid(data, read(data))
    return counted(answers.select(c=answers.n + answers.m), note="interval_join of the stream with itself")


def join(data: Data) -> dict[str, object]:
    r, s = read(data, "r"), read(data, "s")
    most = data.window // 1_000 - 1
    near = pw.temporal.interval(-most, most)
    pairs = r.interval_join_inner(s, r.ts, s.ts, near, r.k == s.k)
    return counted(pairs.select(c=r.v + s.v))


def hopping(data: Data) -> dict[str, object]:
    table = read(data)
    table = table.filter(table.k >= 0)
    hops = pw.temporal.sliding(hop=data.hop // 1_000, duration=data.window // 1_000)
    answers = table.windowby(table.ts, window=hops, instance=table.k).reduce(
        n=pw.reducers.count(), m=pw.reducers.avg(pw.this.v)
    )
    return counted(answers.select(c=answers.n + answers.m))


def queries(data: Data) -> dict[str, object]:
    start = clock()
    table = read(data)
    tables = []
    for i in range(data.queries):
        chosen = table.filter((table.k % 100 == i) & (table.v >= i))
        tables.append(chosen.select(c=0 * chosen.v + i + 1))
    return counted(*tables, start=start)


def latency(data: Data) -> dict[str, object]:
    waits, found = Latencies(data.rate, data.rows_of_stream), Tally()
    rows = [row for some in data.rows("s") for row in some]
    first = rows[0][0]
    came: dict[int, float] = {}

    class Source(pw.io.python.ConnectorSubject):
        def run(self) -> None:
            waits.begin()
            for start, end in paced(data.rate, len(rows)):
                for t, k, v in rows[start:end]:
                    self.next(ts=t // 1_000, k=k, v=v)
                self.commit()

    def change(key, row, time, is_addition):
        at = row["ts"] - first // 1_000
        if is_addition:
            came[at] = clock()
            found.add(row["n"] + row["m"])
        else:
            found.answers -= 1
            found.checksum -= row["n"] + row["m"]

    pw.io.subscribe(slid(data, pw.io.python.read(Source(), schema=Row)), change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    waits.came = [came[i] for i in range(len(rows))]
    return result(found, None, "interval_join of the stream with itself", **waits.middle())


if __name__ == "__main__":
    main([filters, sliding, join, hopping, queries, latency], {}, LOADED)
