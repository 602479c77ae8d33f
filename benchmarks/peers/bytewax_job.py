"""The jobs in bytewax: rows of Python; state for each key in ``stateful_flat_map``."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

began = time.perf_counter()

import bytewax.operators as op  # noqa: E402
import pyarrow.parquet  # noqa: E402, F401
from byhand import Data, Hopping, Join, Latencies, Sliding, Tally, clock, main, result  # noqa: E402
from bytewax.dataflow import Dataflow  # noqa: E402
from bytewax.inputs import DynamicSource, StatelessSourcePartition  # noqa: E402
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # noqa: E402
from bytewax.testing import run_main  # noqa: E402

LOADED = time.perf_counter() - began
BY_HAND = "operator written by hand, in stateful_flat_map"


class Batches(StatelessSourcePartition):
    def __init__(self, batches):
        self.batches = iter(batches)

    def next_batch(self):
        return next(self.batches)  # StopIteration is the end


class Rows(DynamicSource):
    """Lists of rows, from files."""

    def __init__(self, batches):
        self.batches = batches

    def build(self, step_id, worker_index, worker_count):
        return Batches(self.batches)


class Adding(StatelessSinkPartition):
    def __init__(self, take):
        self.take = take

    def write_batch(self, items):
        self.take(items)


class Sink(DynamicSink):
    """Gives lists of answers to a function."""

    def __init__(self, take):
        self.take = take

    def build(self, step_id, worker_index, worker_count):
        return Adding(self.take)


def adding(found: Tally):
    def take(items):
        found.answers += len(items)
        found.checksum += sum(items)

    return take


def timed(flow: Dataflow) -> float:
    start = clock()
    run_main(flow)
    return clock() - start


def filters(data: Data) -> dict[str, object]:
    found, flow = Tally(), Dataflow("filters")
    rows = op.input("in", flow, Rows(data.rows("s")))
    for at, (name, limit) in enumerate(data.limits.items(), 1):
        rows = op.filter(name, rows, lambda row, at=at, limit=limit: row[at] < limit)
    op.output("out", op.map("project", rows, lambda row: row[6] * 2 + 1), Sink(adding(found)))
    return result(found, timed(flow), "rows of Python")


def sliding(data: Data, source=None, take=None) -> dict[str, object]:
    found, flow = Tally(), Dataflow("sliding")

    def step(state, row):
        state = state or Sliding(data.window)
        n, m = state.add(row[0], row[2])
        return state, (n + m,)

    rows = op.input("in", flow, source or Rows(data.rows("s")))
    keyed = op.key_on("key", rows, lambda row: str(row[1]))
    answers = op.map("value", op.stateful_flat_map("slide", keyed, step), lambda pair: pair[1])
    op.output("out", answers, Sink(take(found) if take else adding(found)))
    return result(found, timed(flow), BY_HAND)


def hopping(data: Data) -> dict[str, object]:
    found, flow = Tally(), Dataflow("hopping")
    states = []

    def step(state, row):
        if state is None:
            state = Hopping(data.window, data.hop)
            states.append(state)
        return state, [n + m for _, n, m in state.add(row[0], row[2])]

    rows = op.filter("some", op.input("in", flow, Rows(data.rows("s"))), lambda row: row[1] >= 0)
    keyed = op.key_on("key", rows, lambda row: str(row[1]))
    answers = op.map("value", op.stateful_flat_map("hop", keyed, step), lambda pair: pair[1])
    op.output("out", answers, Sink(adding(found)))
    seconds = timed(flow)
    for state in states:
        for _, n, m in state.until():
            found.add(n + m)
    return result(found, seconds, BY_HAND)


def join(data: Data) -> dict[str, object]:
    found, flow = Tally(), Dataflow("join")

    def step(state, row):
        state = state or Join(data.window)
        return state, state.add(*row)

    sides = [
        op.map(f"side {name}", op.input(name, flow, Rows(data.rows(name))),
               lambda row, side=side: (str(row[1]), (side, row[0], row[2])))
        for side, name in enumerate("rs")
    ]  # fmt: skip
    answers = op.map("value", op.stateful_flat_map("join", op.merge("both", *sides), step), lambda pair: pair[1])
    op.output("out", answers, Sink(adding(found)))
    return result(found, timed(flow), BY_HAND)


def queries(data: Data) -> dict[str, object]:
    found, flow = Tally(), Dataflow("queries")
    start = clock()
    rows = op.input("in", flow, Rows(data.rows("s")))
    for i in range(data.queries):
        chosen = op.filter(f"filter {i}", rows, lambda row, i=i: row[1] % 100 == i and row[2] >= i)
        op.output(f"out {i}", op.map(f"number {i}", chosen, lambda row, i=i: i + 1), Sink(adding(found)))
    run_main(flow)
    return result(found, clock() - start, "rows of Python, a branch for each query")


class Due(StatelessSourcePartition):
    """Rows when they are due."""

    def __init__(self, rows, rate, waits):
        self.rows, self.rate, self.waits, self.done = rows, rate, waits, 0
        waits.begin()

    def next_batch(self):
        first = self.done
        if first >= len(self.rows):
            raise StopIteration
        self.done = min(len(self.rows), int((clock() - self.waits.start) * self.rate) + 1)
        return self.rows[first : self.done]

    def next_awake(self):
        ahead = self.waits.start + self.done / self.rate - clock()
        return None if ahead <= 0 else datetime.now(timezone.utc) + timedelta(seconds=ahead)  # noqa: UP017


class Live(DynamicSource):
    def __init__(self, *about):
        self.about = about

    def build(self, step_id, worker_index, worker_count):
        return Due(*self.about)


def latency(data: Data) -> dict[str, object]:
    waits = Latencies(data.rate, data.rows_of_stream)

    def take(found: Tally):
        add = adding(found)

        def answered(items):
            waits.came.extend([clock()] * len(items))
            add(items)

        return answered

    rows = [row for some in data.rows("s") for row in some]
    measured = sliding(data, Live(rows, data.rate, waits), take)
    del measured["seconds"]
    return {**measured, **waits.middle()}


if __name__ == "__main__":
    main([filters, sliding, join, hopping, queries, latency], {}, LOADED)
