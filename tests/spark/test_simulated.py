"""Shards, micro-batches, partitions and lost memory never show in the answers; without Spark."""

from __future__ import annotations

import tempfile
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.hosts.spark import checkpoint
from tests.behaviour.test_examples import CASES
from tests.generated.language import Case, Row, cases
from tests.generated.regressions import REGRESSIONS
from tests.generated.running import answers, comparable
from tests.spark.simulated import Simulated, job_of, without_late

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def at_once(case: Case, shards: int, partitions: int = 1, seed: int = 0) -> Counter[object]:
    job = job_of(case.declare, {"query": case.query}, shards, bounded=True)
    return Simulated(job, {"q": case.beginning}, partitions=partitions, seed=seed).step(case.streams)


@settings(max_examples=150, deadline=None, suppress_health_check=RELAXED)
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


@settings(max_examples=120, deadline=None, suppress_health_check=RELAXED)
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
                checkpoint.forget_all()
            if data.draw(st.booleans()):
                assert running.step(now, batch) == given, "a second attempt gives the same"
            found += given
            batch += 1
    assert found == answers(case, "reference", close=False), str(case)
