"""Shards, micro-batches, partitions and lost memory never show in the answers; without Spark."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.hosts.spark import shard
from penstock.model.errors import CheckpointError
from tests.behaviour.test_examples import CASES
from tests.budget import examples
from tests.generated.language import Case, Row, cases
from tests.generated.regressions import REGRESSIONS
from tests.generated.running import answers, comparable
from tests.spark.simulated import Processes, Simulated, job_of, without_late

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def at_once(case: Case, shards: int, partitions: int = 1, seed: int = 0) -> Counter[object]:
    job = job_of(case.declare, {"query": case.query}, shards, bounded=True)
    return Simulated(job, {"q": case.beginning}, partitions=partitions, seed=seed).step(case.streams)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=RELAXED)
@given(cases(), st.sampled_from([1, 2, 5]), st.sampled_from([1, 3]), st.integers(0, 99))
def test_a_table_gives_what_the_stream_gives(case: Case, shards: int, partitions: int, seed: int) -> None:
    case = without_late(case)
    assert at_once(case, shards, partitions, seed) == answers(case, "reference"), str(case)


@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda c: c.query[:60])
def test_cases_that_once_failed_elsewhere(case: Case) -> None:
    case = without_late(case)
    for shards in (1, 2, 5):
        assert at_once(case, shards) == answers(case, "reference")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_examples(case: object, shards: int) -> None:
    from tests.behaviour.cases import Case as Example

    assert isinstance(case, Example)
    streams: dict[str, list[Row]] = {}
    for name, row in case.rows:
        streams.setdefault(name, []).append(row)
    job = job_of(case.declare, {"query": case.query}, shards, bounded=True)
    wanted = Counter(tuple(comparable(v) for v in (ts, op, *row)) for ts, op, row in case.answers)
    assert Simulated(job, {}).step(streams) == wanted


@settings(max_examples=examples(120), deadline=None, suppress_health_check=RELAXED)
@given(cases(), st.sampled_from([1, 2, 5]), st.data())
def test_micro_batches_do_not_show(case: Case, shards: int, data: st.DataObject) -> None:
    """Whatever is in a micro-batch, tried once or twice, in a worker that remembers everything or nothing."""
    case = without_late(case)
    job = job_of(case.declare, {"query": case.query}, shards, bounded=False)
    left = {name: list(rows) for name, rows in case.streams.items()}
    found: Counter[object] = Counter()
    with tempfile.TemporaryDirectory() as root:
        running = Simulated(job, {"q": case.beginning}, root=root)
        batch = 0
        while batch == 0 or any(left.values()):
            now: dict[str, list[Row]] = {}
            for name, rows in left.items():
                n = data.draw(st.integers(0, 6))
                now[name], left[name] = rows[:n], rows[n:]
            given = running.step(now, batch)
            if data.draw(st.booleans()):
                shard.forget_all()
            if data.draw(st.booleans()):
                assert running.step(now, batch) == given, "a second attempt gives the same"
            found += given
            batch += 1
    assert found == answers(case, "reference", close=False), str(case)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=RELAXED)
@given(cases(), st.sampled_from([1, 2, 5]), st.data())
def test_it_does_not_show_which_process_a_micro_batch_is_in(case: Case, shards: int, data: st.DataObject) -> None:
    """Three processes, each of which remembers what it worked on, and now and then one that remembers nothing."""
    case = without_late(case)
    job = job_of(case.declare, {"query": case.query}, shards, bounded=False)
    left = {name: list(rows) for name, rows in case.streams.items()}
    found: Counter[object] = Counter()
    processes = Processes()
    with tempfile.TemporaryDirectory() as root:
        running = Simulated(job, {"q": case.beginning}, root=root)
        batch = 0
        while batch == 0 or any(left.values()):
            now: dict[str, list[Row]] = {}
            for name, rows in left.items():
                n = data.draw(st.integers(0, 3))
                now[name], left[name] = rows[:n], rows[n:]
            with processes.chosen(data.draw(st.integers(0, 2))):
                given = running.step(now, batch)
            if data.draw(st.integers(0, 5)) == 0:
                with processes.chosen(data.draw(st.integers(0, 3))):
                    assert running.step(now, batch) == given, "a second attempt gives the same"
            found += given
            batch += 1
    assert found == answers(case, "reference", close=False), str(case)


DECLARE = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 3"
QUERY = "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 40] GROUP BY k"


def steps(count: int) -> list[dict[str, list[Row]]]:
    return [{"s": [(10 * i + j, (i + j) % 4, i * j % 7) for j in range(10)]} for i in range(count)]


def test_a_process_that_is_behind_reads_what_has_changed() -> None:
    """It goes on even if all that was written before it was left is gone, where one that loads cannot."""
    job = job_of(DECLARE, {"query": "SELECT t, k, v FROM s [RANGE 1000000]"}, 1, bounded=False)
    processes = Processes()
    with tempfile.TemporaryDirectory() as root:
        running = Simulated(job, {}, root=root)
        for batch, rows in enumerate(steps(4)):
            with processes.chosen(0 if batch == 0 else 1):
                given = running.step(rows, batch)
                assert given
        (old,) = Path(root).glob(f"penstock/shard-*/pieces/{0:012d}-*")
        old.unlink()
        with processes.chosen(2), pytest.raises(CheckpointError, match="a piece of the saved state is missing"):
            running.step(steps(5)[4], 4)
        with processes.chosen(0):
            assert len(running.step(steps(5)[4], 4)) == 10


def test_another_attempt_is_not_gone_on_from() -> None:
    """A process whose micro-batch Spark tried again elsewhere has a state that nothing goes on from.

    Here the second attempt had other rows in it, which a source that can be read again does not do; so it shows.
    """
    rows = steps(5)
    job = job_of(DECLARE, {"query": QUERY}, 1, bounded=False)
    processes = Processes()
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as straight:
        running, wanted = Simulated(job, {}, root=root), Simulated(job, {}, root=straight)
        other = [rows[0], {"s": rows[1]["s"][:4]}, *rows[2:]]
        for chosen, step, batch in [(0, rows, 0), (0, rows, 1), (1, other, 1), (1, rows, 2), (1, rows, 3)]:
            with processes.chosen(chosen):
                running.step(step[batch], batch)
        with processes.chosen(0):
            given = running.step(rows[4], 4)
        with processes.chosen(3):
            for batch in range(4):
                wanted.step(other[batch], batch)
            assert given == wanted.step(other[4], 4)


def test_a_process_that_was_ahead_starts_again() -> None:
    """The driver goes back to an earlier micro-batch after a failure; who had gone on knows too much."""
    rows = steps(5)
    job = job_of(DECLARE, {"query": QUERY}, 1, bounded=False)
    processes = Processes()
    with tempfile.TemporaryDirectory() as root:
        running = Simulated(job, {}, root=root)
        with processes.chosen(0):
            given = [running.step(rows[batch], batch) for batch in range(5)]
            assert [running.step(rows[batch], batch) for batch in (3, 4)] == given[3:]


def test_rows_that_waited_do_not_come_twice() -> None:
    """The rows of one shard wait for slack until rows of another one say how far the stream is."""
    job = job_of(DECLARE, {"query": QUERY}, 2, bounded=False)
    processes = Processes()
    instants = [0, *range(10, 120, 10), 900]
    batches: list[list[Row]] = [[(at, at // 10 % 5, at)] for at in instants]
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as straight:
        running, wanted = Simulated(job, {}, root=root), Simulated(job, {}, root=straight)
        for batch, rows in enumerate(batches):
            with processes.chosen(batch % 2):
                given = running.step({"s": rows}, batch)
            with processes.chosen(2):
                assert given == wanted.step({"s": rows}, batch)


FILTERED = "SELECT v * 2 + 1 AS x, k FROM s WHERE v < 6 AND k <> 2"


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 9)), max_size=8), max_size=6),
    st.sampled_from([0, 3]),
    st.sampled_from([1, 3]),
)
def test_lateness_is_judged_whatever_is_filtered_out(
    batches: list[list[tuple[int, int, int]]], slack: int, shards: int
) -> None:  # fmt: skip
    """Rows that no answer has say how far the stream is, and are late as others are."""
    declare = f"CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK {slack}"
    job = job_of(declare, {"query": FILTERED}, shards, bounded=False)
    found: Counter[object] = Counter()
    in_time: list[tuple[int, int, int]] = []
    late: Counter[tuple[int, ...]] = Counter()
    newest = -100
    with tempfile.TemporaryDirectory() as root:
        running = Simulated(job, {}, root=root)
        for batch, rows in enumerate(batches):
            found += running.step({"s": rows}, batch)
            late.update(row for row in rows if row[0] < newest - slack)
            in_time += sorted((row for row in rows if row[0] >= newest - slack), key=lambda row: row[0])
            newest = max([newest, *(row[0] for row in rows)])
        files = Path(root).glob("penstock/late/s/*.parquet")
        assert Counter(tuple(row.values()) for f in files for row in pq.read_table(f).to_pylist()) == late
    assert found == answers(Case(declare, FILTERED, {"s": list(in_time)}, [], []), "reference", close=False)
