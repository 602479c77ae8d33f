"""The jobs in streamz: data frames where its streams carry them, rows and hand-written operators where they do not."""

from __future__ import annotations

import time

began = time.perf_counter()

import pandas  # noqa: E402, F401
from byhand import Data, Hopping, Join, Latencies, Sliding, Tally, clock, main, paced, result  # noqa: E402
from streamz import Stream  # noqa: E402

LOADED = time.perf_counter() - began
BY_HAND = "operator written by hand"


def filters(data: Data) -> dict[str, object]:
    source, found = Stream(), Tally()

    def keep(frame):
        for name, limit in data.limits.items():
            frame = frame[frame[name] < limit]
        return frame["v"] * 2 + 1

    def add(x):
        found.answers += len(x)
        found.checksum += float(x.sum())

    source.map(keep).sink(add)
    start = clock()
    for table in data.tables("s"):
        source.emit(table.to_pandas())
    return result(found, clock() - start, "data frames, one for each file")


def keyed(data: Data, source: Stream, make):
    """A state for each key, which a row goes to."""
    states: dict[int, object] = {}

    def step(row):
        state = states.get(row[1])
        if state is None:
            state = states[row[1]] = make()
        return state.add(row[0], row[2])

    return source.map(step)


def sliding(data: Data) -> dict[str, object]:
    source, found = Stream(), Tally()
    keyed(data, source, lambda: Sliding(data.window)).sink(lambda a: found.add(a[0] + a[1]))
    start = clock()
    for rows in data.rows("s"):
        for row in rows:
            source.emit(row)
    return result(found, clock() - start, BY_HAND)


def hopping(data: Data) -> dict[str, object]:
    source, found = Stream(), Tally()
    states: dict[int, Hopping] = {}

    def step(row):
        t, k, v = row
        if k not in states:
            states[k] = Hopping(data.window, data.hop)
        return states[k].add(t, v)

    source.filter(lambda row: row[1] >= 0).map(step).flatten().sink(lambda a: found.add(a[1] + a[2]))
    start = clock()
    for rows in data.rows("s"):
        for row in rows:
            source.emit(row)
    for state in states.values():
        for _, n, m in state.until():
            found.add(n + m)
    return result(found, clock() - start, BY_HAND)


def join(data: Data) -> dict[str, object]:
    sides, found = (Stream(), Stream()), Tally()
    states: dict[int, Join] = {}

    def step(side, row):
        t, k, v = row
        if k not in states:
            states[k] = Join(data.window)
        return states[k].add(side, t, v)

    pairs = Stream()
    for side, source in enumerate(sides):
        source.map(lambda row, side=side: step(side, row)).flatten().connect(pairs)
    pairs.sink(found.add)
    start = clock()
    for of_r, of_s in zip(data.rows("r"), data.rows("s"), strict=True):
        for r, s in zip(of_r, of_s, strict=True):
            sides[0].emit(r)
            sides[1].emit(s)
    return result(found, clock() - start, BY_HAND)


def queries(data: Data) -> dict[str, object]:
    source, found = Stream(), Tally()
    start = clock()

    def add(x, i):
        found.answers += len(x)
        found.checksum += (i + 1) * len(x)

    for i in range(data.queries):
        chosen = source.map(lambda frame, i=i: frame[(frame["k"] % 100 == i) & (frame["v"] >= i)][["k", "v"]])
        chosen.sink(add, i)
    for table in data.tables("s"):
        source.emit(table.to_pandas())
    return result(found, clock() - start, "data frames, one for each file")


def latency(data: Data) -> dict[str, object]:
    source, found = Stream(), Tally()
    waits = Latencies(data.rate, data.rows_of_stream)

    def answered(answer):
        waits.came.append(clock())
        found.add(answer[0] + answer[1])

    keyed(data, source, lambda: Sliding(data.window)).sink(answered)
    rows = [row for some in data.rows("s") for row in some]
    waits.begin()
    for first, last in paced(data.rate, len(rows)):
        for row in rows[first:last]:
            source.emit(row)
    return result(found, None, BY_HAND, **waits.middle())


if __name__ == "__main__":
    main([filters, sliding, join, hopping, queries, latency], {}, LOADED)
