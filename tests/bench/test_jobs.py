"""The jobs of ``penstock bench compare``: their answers against loops, on the local engine, on Spark."""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from benchmarks.compare import local, plain_spark
from benchmarks.compare import spark as sides
from benchmarks.compare.jobs import GAP, JOBS, LIMITS, QUERIES, SECOND, START, WINDOW, Tables, Tally, times
from benchmarks.support.files import write
from pyspark.sql import SparkSession

Row = tuple[int, int, int]


def rows(tables: Tables, stream: str = "s") -> list[Row]:
    found = tables[stream]
    return list(zip(times(found).tolist(), found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def by_loops(name: str, tables: Tables) -> Tally:
    """The answers, one by one, as slowly as they are defined."""
    if name == "filters":
        kept = [r for r in tables["s"].to_pylist() if all(r[c] < limit for c, limit in LIMITS.items())]
        return Tally(len(kept), sum(2 * r["v"] + 1 for r in kept))
    if name == "join":
        pairs = [
            (x, y)
            for t, k, x in rows(tables, "r")
            for u, m, y in rows(tables, "s")
            if k == m and abs(t - u) < WINDOW
        ]
        return Tally(len(pairs), sum(x + y for x, y in pairs))
    given = rows(tables)
    if name == "queries":
        hits = [i + 1 for i in range(QUERIES) for _, k, v in given if k % 100 == i and v >= i]
        return Tally(len(hits), sum(hits))
    if name == "hopping":
        windows: dict[tuple[int, int], list[int]] = {}
        for t, k, v in given:
            for i in range(WINDOW // SECOND):
                if k >= 0:
                    windows.setdefault((t // SECOND - i, k), []).append(v)
        return Tally(len(windows), sum(len(w) + sum(w) / len(w) for w in windows.values()))
    checksum = 0.0
    for t, k, _ in given:
        near = [v for u, m, v in given if m == k and t - WINDOW < u <= t]
        checksum += len(near) + sum(near) / len(near)
    return Tally(len(given), checksum)


def slower(rows: pa.Table) -> pa.Table:
    """Fifty times as much time between two rows."""
    ts = times(rows)
    return rows.set_column(0, "ts", pa.array((ts - START) * 50 + START).view(pa.timestamp("us")))


@pytest.fixture(scope="module")
def tiny() -> dict[str, Tables]:
    """Few rows, spread over half a minute, so that windows end."""
    found: dict[str, Tables] = {}
    for name, job in JOBS.items():
        tables = job.tables(600)
        found[name] = {stream: slower(rows) for stream, rows in tables.items()}
    return found


@pytest.mark.parametrize("name", JOBS)
def test_what_is_expected_is_what_loops_find(name: str, tiny: dict[str, Tables]) -> None:
    assert JOBS[name].expected(tiny[name]).same(by_loops(name, tiny[name]))


@pytest.mark.parametrize("name", [name for name in JOBS if name != "latency"])
def test_the_local_engine_gives_all_answers(name: str, tiny: dict[str, Tables], tmp_path: Path) -> None:
    job = JOBS[name]
    for stream, rows in tiny[name].items():
        write(tmp_path / stream, rows, job.files)
    seconds, found = local.run(job, tmp_path)
    assert found.same(by_loops(name, tiny[name]))
    assert seconds > 0


def test_tallies_differ_where_answers_do() -> None:
    assert Tally(2, 1.0).same(Tally(2, 1.0 + 1e-12))
    assert not Tally(2, 1.0).same(Tally(3, 1.0))
    assert not Tally(2, 1.0).same(Tally(2, 1.1))


def test_rows_are_handed_over_when_they_are_due() -> None:
    taken: list[int] = []
    due = local.paced(20, lambda first, last: taken.extend(range(first, last)), rate=1_000)
    assert taken == list(range(20))
    assert [round((b - a) * 1_000) for a, b in pairwise(due)] == [1] * 19


def test_latency_is_of_every_row_but_the_first_ones(tmp_path: Path) -> None:
    job = JOBS["latency"]
    tables = job.tables(200)
    write(tmp_path / "s", tables["s"], 1)
    waited, found = local.latency(job, tmp_path, skip=50)
    assert len(waited) == 150
    assert min(waited) > 0
    assert found.same(job.expected(tables))
    half, most = local.middle(waited)
    assert half <= most


# -- Spark ------------------------------------------------------------------------------------------------


def test_both_sides_on_spark_give_all_answers(spark: SparkSession, tmp_path: Path) -> None:
    job = JOBS["filters"]
    tables = job.tables(1_000)
    for stream, rows in tables.items():
        write(tmp_path / stream, rows, 1)
    for side in (sides.ours, sides.plain):
        found = side(spark, job, tmp_path)
        assert Tally(found.answers, found.checksum).same(job.expected(tables))
        assert len(found.each) == 1


@dataclass
class State:
    """Of a key, as Spark keeps it."""

    get: tuple[bytes] = (b"",)
    exists: bool = False

    def update(self, now: tuple[bytes]) -> None:
        self.get, self.exists = now, True


def test_the_state_of_plain_spark(tiny: dict[str, Tables]) -> None:
    """Rows of a micro-batch may come in any order."""
    found: list[tuple[int, float]] = []
    states: dict[int, State] = {}
    given = pd.DataFrame(rows(tiny["sliding"]), columns=["t", "k", "v"])
    for start in range(0, len(given), 200):
        for key, frame in given[start : start + 200][::-1].groupby("k"):
            state = states.setdefault(key, State())
            for out in plain_spark.slide((key,), iter([frame]), state, WINDOW):
                found += zip(out["n"], out["m"], strict=True)
    assert Tally(len(found), sum(n + m for n, m in found)).same(by_loops("sliding", tiny["sliding"]))
    assert max(len(state.get[0]) for state in states.values()) <= 16 * 10


def test_rows_over_a_socket() -> None:
    due: list[float] = []
    with sides.served(["a\n", "b\n"], due) as port, closing(socket.create_connection(("127.0.0.1", port))) as peer:
        got = b""
        while len(got) < 4:
            got += peer.recv(10)
    assert got == b"a\nb\n"
    assert len(due) == 2


def test_a_row_is_a_gap_after_the_one_before() -> None:
    for job in JOBS.values():
        steps = {name: set((times(t)[1:-3] - times(t)[:-4]).tolist()) for name, t in job.tables(50).items()}
        assert all(step in ({GAP}, {2 * GAP}) for step in steps.values())
