"""The jobs: data, queries, and what all answers together come to, computed without a stream.

Whoever runs a job gives the number of its answers and their checksum, a sum over all of them. Averages are of integers,
so that systems differ in no more than the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

SECOND = 1_000_000
GAP = 1_000
"""Microseconds between two rows: 1,000 in a second of event time, as not all systems count in less than that."""
START = 1_700_000_000 * SECOND
WINDOW = 10 * SECOND
QUERIES = 100
RATE = 1_000
LIMITS = {"a": 0.998, "b": 0.996, "c": 0.994, "d": 0.992, "e": 0.990}
Ints = np.ndarray[Any, np.dtype[np.int64]]
Tables = Mapping[str, pa.Table]


class Tally(NamedTuple):
    """How many answers, and a sum over them."""

    answers: int
    checksum: float

    def same(self, other: Tally) -> bool:
        """Sums of fractions may differ in their last digits."""
        return self.answers == other.answers and math.isclose(self.checksum, other.checksum, rel_tol=1e-9)


@dataclass(frozen=True)
class Job:
    """``rows`` in each stream at scale 1, in so many ``files``. ``queries``: CQL by name; ``checksum``: of an answer,
    in SQL; ``counts``: which answers count, in SQL, where a query gives more than other systems do."""

    name: str
    title: str
    rows: int
    files: int
    tables: Callable[[int], Tables]
    queries: Mapping[str, str]
    checksum: str
    expected: Callable[[Tables], Tally]
    counts: str = "true"


def _times(rows: int, late: int = 0, gap: int = GAP) -> Ints:
    return START + np.arange(rows, dtype=np.int64) * gap + late


def _table(ts: Ints, **columns: Any) -> pa.Table:
    return pa.table({"ts": pa.array(ts).view(pa.timestamp("us")), **columns})


def times(table: pa.Table) -> Ints:
    """Microseconds."""
    return np.asarray(table["ts"].combine_chunks().view(pa.int64()))


# -- filters ----------------------------------------------------------------------------------------------


def _filter_tables(rows: int) -> Tables:
    random = np.random.default_rng(1)
    columns = {name: random.random(rows) for name in LIMITS}
    return {"s": _table(_times(rows), **columns, v=random.integers(0, 1_000, rows))}


def _filter_answers(tables: Tables) -> Tally:
    table = tables["s"]
    kept = np.logical_and.reduce([table[name].to_numpy() < limit for name, limit in LIMITS.items()])
    return Tally(int(kept.sum()), float((table["v"].to_numpy()[kept] * 2 + 1).sum()))


# -- sliding aggregate ------------------------------------------------------------------------------------


def _keyed(keys: int) -> Callable[[int], Tables]:
    def tables(rows: int) -> Tables:
        random = np.random.default_rng(2)
        return {"s": _table(_times(rows), k=random.integers(0, keys, rows), v=random.integers(0, 1_000, rows))}

    return tables


def _sliding_answers(tables: Tables, window: int = WINDOW) -> Tally:
    """For every row: count and average of its key's rows of the last ten seconds."""
    table = tables["s"]
    ts, k, v = times(table), table["k"].to_numpy(), table["v"].to_numpy()
    apart = int(ts[-1]) - START + 2 * window  # keys are further apart than any two instants of one key
    places = k * apart + (ts - START)
    order = np.argsort(places)
    places, sums = places[order], np.concatenate([[0], np.cumsum(v[order])])
    first = np.searchsorted(places, places - window, side="right")
    first = np.maximum(first, np.searchsorted(places, k[order] * apart, side="left"))
    last = np.arange(len(places)) + 1
    count = last - first
    return Tally(len(ts), float((count + (sums[last] - sums[first]) / count).sum()))


# -- join -------------------------------------------------------------------------------------------------


def join_tables(rows: int, keys: int = 5_000, gap: int = 2 * GAP) -> Tables:
    """Two streams whose rows take turns; a last row of no key lets time pass for all others."""
    random = np.random.default_rng(3)
    found = {}
    for name, late in (("r", 0), ("s", gap // 2)):
        ts, of_keys = _times(rows, late, gap), random.integers(0, keys, rows)
        ts[-1] += 10 * gap
        of_keys[-1] = -1 if late else -2
        found[name] = _table(ts, k=of_keys, v=random.integers(0, 1_000, rows))
    return found


def join_answers(tables: Tables, window: int = WINDOW) -> Tally:
    """Every pair of one key that is less than a window apart; the checksum adds both values."""
    (r_ts, r_keys, r_v), (s_ts, s_keys, s_v) = (
        (times(tables[n]) - START, tables[n]["k"].to_numpy() + 2, tables[n]["v"].to_numpy()) for n in "rs"
    )
    apart = int(max(r_ts.max(), s_ts.max())) + 3 * window
    places = s_keys * apart + s_ts
    order = np.argsort(places)
    places, sums = places[order], np.concatenate([[0], np.cumsum(s_v[order])])
    first = np.searchsorted(places, r_keys * apart + r_ts - window, side="right")
    last = np.searchsorted(places, r_keys * apart + r_ts + window, side="left")
    return Tally(int((last - first).sum()), float((r_v * (last - first) + sums[last] - sums[first]).sum()))


# -- hopping aggregate ------------------------------------------------------------------------------------


HOPPING_KEYS = 100


def hopping_tables(rows: int) -> Tables:
    """The last rows are of no key, in steps of a minute: they let time pass, so that all windows end."""
    (table,) = _keyed(HOPPING_KEYS)(rows).values()
    ts, keys = times(table).copy(), table["k"].to_numpy().copy()
    ts[-2:] += [60 * SECOND, 120 * SECOND]
    keys[-2:] = -1
    return {"s": _table(ts, k=keys, v=table["v"])}


def _hopping_answers(tables: Tables) -> Tally:
    table = tables["s"]
    kept = table["k"].to_numpy() >= 0
    second = (times(table)[kept] - START) // SECOND
    k, v = table["k"].to_numpy()[kept], table["v"].to_numpy()[kept]
    seconds, hops = int(second[-1]) + 1, WINDOW // SECOND
    shape = seconds, HOPPING_KEYS
    cell = second * HOPPING_KEYS + k
    count, total = (np.bincount(cell, weights=w, minlength=shape[0] * shape[1]).reshape(shape) for w in (None, v))
    answers, checksum = 0, 0.0
    for end in range(1, seconds + hops):
        n, of = (cells[max(0, end - hops) : end].sum(axis=0) for cells in (count, total))
        some = n > 0
        answers += int(some.sum())
        checksum += float((n[some] + of[some] / n[some]).sum())
    return Tally(answers, checksum)


# -- many queries -----------------------------------------------------------------------------------------


def condition(i: int) -> str:
    """Of the i-th query, as SQL and CQL write it."""
    return f"k % 100 = {i} AND v >= {i}"


def _many_answers(tables: Tables) -> Tally:
    k, v = tables["s"]["k"].to_numpy() % 100, tables["s"]["v"].to_numpy()
    counts = [int(np.count_nonzero((k == i) & (v >= i))) for i in range(QUERIES)]
    return Tally(sum(counts), float(sum((i + 1) * n for i, n in enumerate(counts))))


_ALL = " AND ".join(f"{name} < {limit}" for name, limit in LIMITS.items())
# Half a gap less than ten seconds holds the same rows, and no row leaves at the instant at which one comes.
_LAST = f"RANGE {WINDOW - GAP // 2} MICROSECONDS"
_AT_A_ROW = f"unix_micros(CAST(ts AS TIMESTAMP)) % {GAP} = 0"
SLIDING = "SELECT ISTREAM k, count(*) AS n, avg(v) AS m FROM s [{}] GROUP BY k"
JOIN = "SELECT ISTREAM r.k, r.v AS x, s.v AS y FROM r [RANGE 10 SECONDS] JOIN s [RANGE 10 SECONDS] ON r.k = s.k"
HOPPING = "SELECT k, count(*) AS n, avg(v) AS m FROM s [HOPPING 10 SECONDS EVERY 1 SECOND] GROUP BY k"

JOBS = {
    job.name: job
    for job in (
        Job("filters", "five filters and a projection", 1_000_000, 4, _filter_tables,
            {"q": f"SELECT v * 2 + 1 AS x FROM s WHERE {_ALL}"}, "x", _filter_answers),
        Job("sliding", "count and average of a key's last 10 s, for every row", 200_000, 4, _keyed(1_000),
            {"q": SLIDING.format(_LAST)}, "n + m", _sliding_answers, _AT_A_ROW),
        Job("join", "pairs of two streams, one key, less than 10 s apart", 200_000, 4, join_tables,
            {"q": JOIN}, "x + y", join_answers),
        Job("hopping", "count and average by key of 10 s, every second", 400_000, 4, hopping_tables,
            {"q": HOPPING}, "n + m", _hopping_answers, "k >= 0"),
        Job("queries", f"{QUERIES} queries with a filter each over one stream", 200_000, 2, _keyed(1_000),
            {f"q{i}": f"SELECT k, v FROM s WHERE {condition(i)}" for i in range(QUERIES)},
            "CAST(substr(query, 2) AS INT) + 1", _many_answers),
        Job("latency", f"sliding average, {RATE:,} rows/s one by one: ms to the answer", 10_000, 1,
            _keyed(100), {"q": SLIDING.format(_LAST)}, "n + m", _sliding_answers, _AT_A_ROW),
    )
}  # fmt: skip
