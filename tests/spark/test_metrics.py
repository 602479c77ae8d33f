"""What a micro-batch cost, put together from what its shards say; without Spark."""

from __future__ import annotations

from penstock.hosts.spark.metrics import MicroBatch, Report, together
from penstock.hosts.spark.rows import Waiting


def report(shard: int, part: int, rows: dict[str, int], began: float, ended: float, late: int = 0) -> Report:
    return Report("c", 3, shard, part, rows, {"s": late}, 10, began, ended, 0.25, 0.5, 100, Waiting({}, 0, ()))


def test_shards_of_a_micro_batch() -> None:
    """Shards 0 and 1 share the rows of s; shard 2, of another part, is sent all of them once more."""
    reports = [
        report(0, 0, {"s": 6, "r": 1}, 0.0, 1.0, late=2),
        report(1, 0, {"s": 4, "r": 2}, 0.5, 2.0),
        report(2, 2, {"s": 10}, 3.0, 3.5, late=2),
    ]
    assert together(3, 5.0, reports) == MicroBatch(
        number=3, rows={"s": 10, "r": 3}, late=2, answers=30, seconds=5.0, spark=2.5, kernels=0.75, state=1.5,
        written=300,
    )  # fmt: skip


def test_clocks_that_differ_do_not_make_time_negative() -> None:
    assert together(0, 1.0, [report(0, 0, {"s": 1}, 0.0, 2.0)]).spark == 0.0
