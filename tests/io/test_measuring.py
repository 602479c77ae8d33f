"""What is measured of a stream as its rows come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.ingest.measuring import Measuring
from penstock.model.batch import Batch
from penstock.model.schema import Field
from penstock.model.types import BIGINT, STRING
from penstock.plan.cost import SAMPLE

SCHEMA = (Field("t", BIGINT), Field("v", BIGINT))


def came(measuring: Measuring, batches: int, rows: int, step: int, since: int = 0, value: int | None = None) -> int:
    """Let rows come, ``step`` ticks apart; gives how many there are now."""
    for i in range(batches):
        numbers = np.arange(since + i * rows, since + (i + 1) * rows)
        values = numbers if value is None else np.full(rows, value)
        table = pa.table({"t": numbers * step, "v": values})
        arrivals = since + (i + 1) * rows
        if arrivals >= measuring.next:
            measuring.take(arrivals, int(numbers[-1] * step), Batch(SCHEMA, table, numbers * step, numbers))
    return since + batches * rows


@pytest.mark.parametrize(("batches", "rows"), [(1, 100_000), (100, 1_000), (20_000, 1), (3, 20)])
def test_rates_and_samples_whatever_the_batches(batches: int, rows: int) -> None:
    measuring = Measuring()
    came(measuring, batches, rows, step=50)
    found = measuring.measured(SCHEMA)
    assert found is not None
    assert found.rate == pytest.approx(20_000, rel=0.05)
    assert found.sample is not None
    sample = found.sample()
    assert min(SAMPLE, batches * rows) <= len(sample) <= SAMPLE
    assert len(set(sample)) == len(sample)


@pytest.mark.parametrize("rows", [1, 100, 10_000])
def test_the_newest_rows_count(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.ingest.measuring.THINNEST", 256)  # of more rows a test takes long
    measuring = Measuring()
    since = came(measuring, 200_000 // rows, rows, step=100, value=0)
    came(measuring, 200_000 // rows, rows, step=100, since=since, value=1)
    found = measuring.measured(SCHEMA)
    assert found is not None
    assert found.sample is not None
    ones = sum(bool(v) for _, v in found.sample())
    assert ones > 0.9 * SAMPLE


def test_a_sample_does_not_follow_a_pattern_in_the_rows() -> None:
    measuring = Measuring()
    for i in range(100_000):
        if i + 1 >= measuring.next:
            table = pa.table({"t": [i], "v": [i % 256]})
            measuring.take(i + 1, i, Batch(SCHEMA, table, np.array([i]), np.array([i])))
    found = measuring.measured(SCHEMA)
    assert found is not None
    assert found.sample is not None
    assert len({v for _, v in found.sample()}) > 150


def test_nothing_is_known_at_first_and_no_rate_of_one_instant() -> None:
    measuring = Measuring()
    assert measuring.measured(SCHEMA) is None
    came(measuring, 1, 1, step=1)
    found = measuring.measured(SCHEMA)
    assert found is not None
    assert found.rate is None


def test_large_rows_are_not_kept_by_the_hundred() -> None:
    schema = (Field("v", STRING),)
    measuring = Measuring()
    for i in range(100):
        table = pa.table({"v": ["x" * (1 << 20)]})
        measuring.take(i + 1, i, Batch(schema, table, np.array([i]), np.array([i])))
    found = measuring.measured(schema)
    assert found is not None
    assert found.sample is not None
    assert 1 <= len(found.sample()) <= 5


def test_the_table_that_rows_came_in_is_let_go() -> None:
    before = pa.total_allocated_bytes()
    measuring = Measuring()
    large = pa.table({"t": np.arange(1_000_000).copy(), "v": pa.array(list(range(1_000_000)))})
    part = large.slice(10, 1)
    measuring.take(1, 10, Batch(SCHEMA, part, np.array([10]), np.array([0])))
    del large, part
    assert pa.total_allocated_bytes() - before < 1 << 20
