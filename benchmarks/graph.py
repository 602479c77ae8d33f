"""What the graph costs: passing a batch on, and counting what operators do.

    python -m benchmarks.graph [--quick] [--scale X] [--rounds N]

*Passing on*: a message through a path of operators that do nothing, against calling the same number of plain Python
methods; and the edge itself against calling the receiver directly.
*Counting*: batches through a query with measured operators, and with operators that count nothing; both take turns,
and the processor's time counts.
*Threads*: two queries over a stream each, in one thread and by two workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.report import Report, amount, options, progress
from penstock.graph.message import Data, Mark, Message, least
from penstock.graph.sources import Intake, Source
from penstock.graph.vertex import Edge
from penstock.graph.vertices import OperatorVertex
from penstock.model.delta import NEVER
from penstock.model.schema import Field
from penstock.model.types import BIGINT

QUERY = "SELECT k, avg(v) AS a, count(*) AS n FROM s [RANGE 10000] WHERE v > 0.1 GROUP BY k"


class _Plain:
    """A method that calls the next one."""

    def __init__(self, following: _Plain | None) -> None:
        self.following = following

    def take(self, port: int, message: Message) -> None:
        if self.following is not None:
            self.following.take(port, message)


def passing(report: Report, rounds: int) -> None:
    length, repeat = 50, 2_000
    source = Source("s", (Field("a", BIGINT),), 0)
    path: list[OperatorVertex] = [Intake(source) for _ in range(length)]
    for a, b in pairwise(path):
        edge = Edge(a, b, 0)
        a.outputs.append(edge)
        b.inputs.append(edge)
        a.direct, a.alone = [(b.take, 0)], []
    plain: _Plain | None = None
    for _ in range(length):
        plain = _Plain(plain)
    assert plain is not None
    message = Message(source.nothing, Mark((1, 1), 1, 1))
    through = _least(lambda: path[0].take(0, message), repeat // 10, rounds) / length
    called = _least(lambda: plain.take(0, message), repeat, rounds) / length
    # What stands around the operator's own work: to be handed a message, and to hand one on.
    alone, last = Intake(source), Intake(source)
    alone.direct, alone.alone = [(last.take, 0)], []
    pair = _least(lambda: alone.send(source.nothing, message.mark), repeat * 10, rounds)
    silent = Intake(source)
    silent.alone = []
    single = _least(lambda: silent.send(source.nothing, message.mark), repeat * 10, rounds)
    received = _least(lambda: last.take(0, message), repeat * 10, rounds)
    handed = max(pair - single - received, 0.0)
    report.add("graph: µs for an operator that does nothing, counted", through * 1e6)
    report.add("graph: µs for a Python method", called * 1e6)
    report.add("graph: µs to hand a batch to the next operator", handed * 1e6)
    report.add("graph: handing over against a Python call", handed / called, 1.0, below=True)


def _least(call: Callable[[], object], repeat: int, rounds: int) -> float:
    """Seconds for one call."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(repeat):
            call()
        found.append((time.perf_counter() - began) / repeat)
    return min(found)


def uncounted_take(self: OperatorVertex, port: int, message: Message) -> None:
    """``OperatorVertex.take`` without counting."""
    if self.state == "stopped":
        return
    mark = message.mark
    inputs: Sequence[Data]
    if self.ports is None:
        inputs = (message.data,)
    else:
        self.ports[port].add(message)
        mark = least([p.mark for p in self.ports])
        if mark.frontier <= self.mark.frontier and not (len(message.data) and mark.frontier == NEVER):
            return
        inputs = [p.release(mark.frontier) for p in self.ports]
    try:
        out = self.work(inputs, mark)
    except Exception as error:
        self.failed(error, inputs)
        return
    self.mark = self.sent = mark
    if len(out) or not self.quiet or mark.frontier == NEVER:
        sent = Message(out, mark)
        for take, number in self.direct:
            take(number, sent)
        for edge in self.alone:
            edge.send(sent)
        if self.together is not None:
            self.together.take(sent)


def worked(rows: int, batches: int) -> float:
    """Seconds of the processor for a query over batches."""
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t")
        query = db.query(QUERY)
        tables = []
        random = np.random.default_rng(1)
        for i in range(batches):
            t = np.arange(i * rows, (i + 1) * rows)
            tables.append(pa.table({"t": t, "k": t % 100, "v": random.random(rows)}))
        for table in tables[: batches // 5]:
            db.push("s", table)
        query.fetch()
        began = time.process_time()
        for table in tables[batches // 5 :]:
            db.push("s", table)
        return time.process_time() - began


def counting(report: Report, rounds: int, quick: bool) -> None:
    counted_take = OperatorVertex.take
    for rows, batches in ((1_000, 400), (10_000, 80)):
        found: dict[Callable[..., None], list[float]] = {counted_take: [], uncounted_take: []}
        for i in range(2 * rounds):
            progress(f"counting, batches of {rows}: turn {i + 1} of {2 * rounds}")
            for take in list(found) if i % 2 else list(found)[::-1]:
                OperatorVertex.take = take  # type: ignore[method-assign]
                try:
                    found[take].append(worked(rows, batches // (4 if quick else 1)))
                finally:
                    OperatorVertex.take = counted_take  # type: ignore[method-assign]
        share = min(found[counted_take]) / min(found[uncounted_take]) - 1
        report.add(f"graph: share of time for counting, batches of {rows:,}", max(share, 0.0), 0.02, below=True)


def two_streams(rows: int, batches: int, **settings: Any) -> float:
    """Seconds for two queries over a stream each."""
    with penstock.connect(engine="local") as db:
        queries = []
        for name in "sr":
            db.execute(f"CREATE STREAM {name} (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t")
            queries.append(db.query(QUERY.replace("FROM s", f"FROM {name}")))
        db.configure(**settings)
        random = np.random.default_rng(1)
        t = np.arange(rows * batches)
        table = pa.table({"t": t, "k": t % 100, "v": random.random(len(t))})
        began = time.perf_counter()
        for start in range(0, len(t), rows):
            for name in "sr":
                db.push(name, table.slice(start, rows))
        db.settle()
        return time.perf_counter() - began


def threads(report: Report, rounds: int, quick: bool) -> None:
    for rows, batches in ((1_000, 400), (10_000, 80), (100_000, 16)):
        count = max(batches // (4 if quick else 1), 2)
        alone, both = [], []
        for i in range(rounds):
            progress(f"threads, batches of {rows}: turn {i + 1} of {rounds}")
            alone.append(two_streams(rows, count, threading="graph"))
            both.append(two_streams(rows, count, threading="hybrid", workers=2))
        report.add(f"graph: two workers against one, batches of {rows:,}", min(alone) / min(both))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    report = Report("graph")
    rounds = args.rounds or amount(args, 7, 1)
    passing(report, rounds)
    counting(report, rounds, args.quick)
    threads(report, max(rounds // 2, 1), args.quick)
    report.finish()


if __name__ == "__main__":
    main()
