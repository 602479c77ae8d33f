"""The join in overlapping windows: the same pairs with and without reuse, and as many as the reference says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from experiments.overlap_join import OverlapJoin, WindowPairs
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.schema import Field
from penstock.model.types import BIGINT, INT
from penstock.plan.nodes import Join, Query, StreamScan, Window
from penstock.plan.window import Generic
from penstock.reference.evaluator import Element, evaluate
from penstock.scalar.expr import Column
from tests.budget import examples

SPECS = st.one_of(
    st.builds(
        Generic, st.just("time"), st.integers(0, 3), st.integers(4, 12), st.integers(0, 5), st.integers(1, 5),
        st.sampled_from([30, 60]),
    ),
    st.builds(
        Generic, st.just("tuples"), st.integers(1, 2), st.integers(2, 8), st.integers(0, 3), st.integers(1, 3),
        st.sampled_from([None, 15]),
    ),
)  # fmt: skip
Rows = list[tuple[int, int | None]]
STREAMS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 3, None])), max_size=25)


def stamped(rows: Rows) -> Rows:
    at, made = 0, []
    for gap, key in rows:
        at += gap
        made.append((at, key))
    return made


def batch(rows: Rows) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[pa.Array]]:
    return np.array([ts for ts, _ in rows], np.int64), [pa.array([k for _, k in rows], pa.int32())]


def run(
    spec: Generic, left: Rows, right: Rows, *, reuse: bool, step: int = 1000
) -> tuple[list[WindowPairs], OverlapJoin]:
    join = OverlapJoin(spec, [INT], reuse=reuse)
    found: list[WindowPairs] = []
    for i in range(0, max(len(left), len(right), 1), step):
        found += join.process(batch(left[i : i + step]), batch(right[i : i + step]))
    found += join.process(batch([]), batch([]), (10**6, 10**6))
    return found, join


def pairs_of(windows: list[WindowPairs]) -> list[Counter[tuple[int, int]]]:
    return [Counter(zip(w.left.tolist(), w.right.tolist(), strict=True)) for w in windows]


@settings(deadline=None, max_examples=examples(150))
@given(SPECS, STREAMS, STREAMS, st.integers(1, 7))
def test_reuse_changes_nothing_and_the_reference_agrees(spec: Generic, r: Rows, s: Rows, step: int) -> None:
    left, right = stamped(r), stamped(s)
    plain, _ = run(spec, left, right, reuse=False)
    reused, _ = run(spec, left, right, reuse=True, step=step)
    assert pairs_of(plain) == pairs_of(reused)
    assert [(w.start, w.end) for w in plain] == [(w.start, w.end) for w in reused]

    schema = (Field("k", INT), Field("n", BIGINT))
    scans = (StreamScan("r", schema, 0, "ticks"), StreamScan("s", schema, 1, "ticks"))
    node = Join("inner", Window(scans[0], spec), Window(scans[1], spec), ((Column(0, INT), Column(0, INT)),))
    streams = {
        name: [Element(ts, (k, i), i) for i, (ts, k) in enumerate(rows)] for name, rows in (("r", left), ("s", right))
    }
    answers = evaluate(Query(node, "windows", clock="ticks"), streams)
    assert Counter((a.row[1], a.row[3]) for a in answers) == sum(pairs_of(plain), Counter())


@pytest.mark.parametrize("overlap", [10, 50, 75])
def test_reuse_takes_each_row_once(overlap: int) -> None:
    size, windows = 400, 5
    hop = size * (100 - overlap) // 100
    spec = Generic("tuples", 1, size, hop, hop, size + hop * (windows - 1))
    n = size + hop * (windows - 1)
    rows: Rows = [(i, i % 50) for i in range(n)]
    plain, without = run(spec, rows, rows, reuse=False)
    reused, with_reuse = run(spec, rows, rows, reuse=True)
    assert pairs_of(plain) == pairs_of(reused)
    assert len(plain) == windows
    assert without.work.rows == without.work.probes == 2 * size * windows
    assert with_reuse.work.rows == with_reuse.work.probes == 2 * n
    assert without.work.peak_pairs == 0 < with_reuse.work.peak_pairs


def test_rows_and_keys_of_past_windows_are_forgotten() -> None:
    spec = Generic("time", 0, 10, 5, 5)
    join = OverlapJoin(spec, [INT], reuse=True)
    for t in range(0, 1000, 5):
        rows: Rows = [(t + i, t + i) for i in range(5)]
        join.process(batch(rows), batch(rows))
        assert all(len(side.places) <= 15 for side in join._inputs)
        assert join._interner.live <= 15


def test_windows_that_move_back_are_refused() -> None:
    with pytest.raises(ValueError, match="forward"):
        OverlapJoin(Generic("time", 0, 10, -5, -5, -100), [INT], reuse=True)
