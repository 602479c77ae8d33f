"""Sliding windows against the windows of the reference: same rows at the same instants, however the input is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.delta import MAX_TS, NEVER, Arrivals, Delta, Instant, Step, arrival_sub
from penstock.model.schema import Field
from penstock.model.types import BIGINT, DOUBLE, STRING
from penstock.model.values import to_arrow, to_python
from penstock.operators.window import Mode, build_window
from penstock.plan.window import Now, PartitionRows, Range, Rows, Session, Unbounded, WindowSpec
from penstock.reference.windows import Row, sliding
from penstock.scalar import hashable
from tests.budget import examples

Draw = Callable[[st.SearchStrategy[Any]], Any]
Change = tuple[Instant, int, object, Instant, int]

SCHEMA = (Field("k", BIGINT), Field("x", STRING), Field("d", DOUBLE))
_KEYS = st.sampled_from([1, 2, 1, None])
_TEXTS = st.sampled_from(["a", "bb", "", None])
_DOUBLES = st.sampled_from([1.5, 0.0, -0.0, float("nan"), None])
_SPECS: list[WindowSpec] = [
    Unbounded(), Now(), Rows(1), Rows(3), Rows(3, 2), Rows(2, 5), Rows(2, 2), PartitionRows((0,), 1),
    PartitionRows((2,), 2), PartitionRows((1, 2, 0), 1), Range(1), Range(4), Range(4, 3), Range(2, 5), Range(6, 3),
    Range(5, 5),
]  # fmt: skip


def arrivals(ts: Sequence[int], rows: Sequence[tuple[object, ...]], first: int, priority: bool = False) -> Arrivals:
    columns = tuple(to_arrow([r[i] for r in rows], f.type) for i, f in enumerate(SCHEMA))
    numbers = np.arange(first, first + len(ts))
    ranks = numbers % 3 if priority else None
    return Arrivals(SCHEMA, columns, np.array(ts, np.int64), arrival_sub(0, numbers), ranks)


def listed(delta: Delta) -> list[Change]:
    """Changes as plain values, in the order of the delta."""
    columns = [to_python(c, f.type) for c, f in zip(delta.columns, delta.schema, strict=True)]
    priority = [0] * len(delta) if delta.priority is None else delta.priority.tolist()
    return [
        ((int(delta.ts[i]), int(delta.sub[i])), int(delta.sign[i]), hashable(tuple(c[i] for c in columns)),
         (int(delta.moment_ts[i]), int(delta.moment_sub[i])), priority[i])
        for i in range(len(delta))
    ]  # fmt: skip


def expected(spec: WindowSpec, ts: Sequence[int], rows: Sequence[tuple[object, ...]], priority: bool) -> list[Change]:
    """What the reference's window says, instant by instant, until nothing happens any more."""
    window = sliding(spec)
    changes: list[Change] = []
    before: dict[object, Row] = {}

    def instant(at: Instant) -> None:
        nonlocal before
        now = {r.id: r for r in window.rows}
        for sign, some, others in ((-1, before, now), (1, now, before)):
            for identity, r in some.items():
                if identity not in others:
                    moment = (r.ts, int(arrival_sub(0, r.moment[2])))
                    changes.append((at, sign, hashable(r.values), moment, r.priority))
        before = now

    for number, (t, values) in enumerate(zip(ts, rows, strict=True)):
        while (now := window.next_time()) is not None and now <= t:
            window.pass_time(now)
            instant((now, 0))
        window.take(Row(number, values, (t, 0, number), number % 3 if priority else 0))
        instant((t, int(arrival_sub(0, number))))
    while (now := window.next_time()) is not None:
        window.pass_time(now)
        instant((now, 0))
    return changes


@st.composite
def inputs(draw: Draw) -> tuple[list[int], list[tuple[object, ...]]]:
    ts = sorted(draw(st.lists(st.integers(-6, 20), max_size=14)))
    return ts, [(draw(_KEYS), draw(_TEXTS), draw(_DOUBLES)) for _ in ts]


def run(
    spec: WindowSpec, mode: Mode, ts: Sequence[int], rows: Sequence[tuple[object, ...]], cuts: Sequence[int],
    priority: bool = False,
) -> list[Change]:  # fmt: skip
    """All output, with the input cut before these rows; the last step comes at the end of time."""
    window = build_window(spec, SCHEMA, mode)
    changes: list[Change] = []
    bounds = [0, *sorted(cuts), len(ts)]
    for a, b in pairwise(bounds):
        frontier = (ts[b], int(arrival_sub(0, b))) if b < len(ts) else NEVER
        out = listed(window.process(arrivals(ts[a:b], rows[a:b], a, priority), Step(frontier)))
        assert all(change[0] < frontier for change in out), "nothing beyond the frontier"
        changes += out
    assert [c[:2] for c in changes] == sorted(c[:2] for c in changes), "in order, what leaves first"
    return changes


@pytest.mark.parametrize("spec", _SPECS, ids=str)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_same_as_reference_however_cut(spec: WindowSpec, data: st.DataObject) -> None:
    ts, rows = data.draw(inputs())
    priority = data.draw(st.booleans())
    cuts = data.draw(st.lists(st.integers(0, len(ts)), max_size=5))
    truth = sorted(expected(spec, ts, rows, priority), key=repr)
    for cut in (cuts, [], list(range(len(ts)))):
        assert sorted(run(spec, "changes", ts, rows, cut, priority), key=repr) == truth
        entering = [c for c in truth if c[1] > 0]
        assert sorted(run(spec, "insert", ts, rows, cut, priority), key=repr) == entering


@pytest.mark.parametrize(("spec", "stay"), [(Range(4), 4), (Now(), 1), (Unbounded(), None)], ids=str)
def test_ends(spec: WindowSpec, stay: int | None) -> None:
    window = build_window(spec, SCHEMA, "ends")
    ts = [-(2**63) + 1, -3, 0, 7, MAX_TS - 2]
    out = window.process(arrivals(ts, [(1, "a", 1.0)] * 5, 0), Step(NEVER))
    assert out.end is not None
    assert out.end.tolist() == [MAX_TS if stay is None else min(t + stay, MAX_TS) for t in ts]
    assert out.sign.tolist() == [1] * 5
    assert window.size().bytes == 0


@pytest.mark.parametrize("spec", [Rows(3), PartitionRows((0,), 1), Range(4, 2)], ids=str)
def test_only_windows_by_time_have_ends(spec: WindowSpec) -> None:
    with pytest.raises(ValueError, match="no ends known in advance"):
        build_window(spec, SCHEMA, "ends")


def test_bounded_windows_have_no_changes() -> None:
    with pytest.raises(ValueError, match="answered at its end"):
        build_window(Session(5), SCHEMA, "changes")


@pytest.mark.parametrize("frontier", [(10, 0), (10, 1)])
def test_time_comes_out_as_soon_as_it_is_before_the_frontier(frontier: Instant) -> None:
    window = build_window(Range(10), SCHEMA, "changes")
    window.process(arrivals([0], [(1, "a", 1.0)], 0), Step((1, 0)))
    out = window.process(arrivals([], [], 1), Step(frontier))
    assert [c[:2] for c in listed(out)] == ([((10, 0), -1)] if frontier[1] else [])


def _batch(first: int, n: int, keys: int) -> Arrivals:
    numbers = np.arange(first, first + n)
    columns = (pa.array(numbers % keys), pa.array([f"row {i}" for i in numbers]), pa.array(numbers / 7))
    return Arrivals(SCHEMA, columns, numbers * 10, arrival_sub(0, numbers))


_KEPT = 20_000
_LARGE: list[WindowSpec] = [Range(10 * _KEPT), Rows(_KEPT), PartitionRows((0,), 20), Range(10 * _KEPT, 1000),
                            Rows(_KEPT, 100)]  # fmt: skip


@pytest.mark.parametrize("spec", _LARGE, ids=str)
@pytest.mark.parametrize("size", [7, 37, 700, 5_000, 70_000])
def test_state_is_bounded_by_the_columns_kept(spec: WindowSpec, size: int) -> None:
    """Rows taken out are the rows put in, through all the tiers of storage, and memory stays in its bound."""
    window = build_window(spec, SCHEMA, "changes")
    total = 70_000
    whole = _batch(0, total, _KEPT // 20)
    ones = np.ones(total, np.int64)
    inside = np.zeros(total, np.int64)
    for first in range(0, total, size):
        n = min(size, total - first)
        part = Arrivals(
            SCHEMA, tuple(c.slice(first, n) for c in whole.columns), whole.ts[first : first + n],
            whole.sub[first : first + n],
        )  # fmt: skip
        after = first + n
        out = window.process(part, Step((after * 10, int(arrival_sub(0, after)))))
        number = out.moment_sub - int(arrival_sub(0, 0))
        np.add.at(inside, number, out.sign.astype(np.int64))
        assert (np.round(out.columns[2].to_numpy() * 7).astype(np.int64) == number).all()
        assert out.columns[1].slice(0, 3).to_pylist() == [f"row {i}" for i in number[:3]]
    assert ((inside == 0) | (inside == ones)).all()
    size_now = window.size()
    waiting = 0 if not isinstance(spec, Range | Rows) or spec.slide in (None, 1) else size_now.rows - inside.sum()
    assert size_now.rows == inside.sum() + waiting
    assert abs(int(inside.sum()) - _KEPT) <= 1000
    kept = sum(c.slice(0, size_now.rows).nbytes for c in whole.columns) + 16 * size_now.rows
    assert size_now.bytes <= 2.5 * kept
