"""A smart window gives what a window and a gate behind it give, and holds no more than it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.delta import NEVER, Arrivals, Delta, Instant, Step
from penstock.model.schema import Field
from penstock.model.types import BIGINT
from penstock.operators.gate import MasterGate
from penstock.operators.smart import SmartWindow, build_smart, is_smart
from penstock.operators.state import Loaded
from penstock.operators.window import build_window
from penstock.plan.window import Now, PartitionRows, Range, Rows, Unbounded, WindowSpec
from tests.budget import examples

SCHEMA = (Field("v", BIGINT),)
SPECS = (Rows(1), Rows(2), Rows(7), Rows(1000), Range(1), Range(3), Range(2**62), Now(), Unbounded())
OWN, MASTER = 1, 2
"""Where elements of the stream, and of a master stream, stand among those of one time."""


class Pair:
    """Both ways, with the same elements."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.smart = build_smart(spec, SCHEMA)
        self.window, self.gate = build_window(spec, SCHEMA, "changes"), MasterGate(SCHEMA)
        self.tables: dict[str, pa.Table] = {}

    def process(self, arrivals: Arrivals, step: Step) -> tuple[Delta, Delta]:
        return self.smart.process(arrivals, step), self.gate.process([self.window.process(arrivals, step)], step)

    def save(self) -> Loaded:
        saved = self.smart.save()
        self.tables |= {p.name: p.table for p in saved.pieces if p.table is not None}
        return Loaded(saved.meta, {p.name: self.tables[p.name] for p in saved.pieces})


def arrivals(elements: list[tuple[int, int]]) -> Arrivals:
    ts, sub = (np.array([e[i] for e in elements], np.int64) for i in (0, 1))
    return Arrivals(SCHEMA, (pa.array(sub),), ts, sub, None)


def listed(delta: Delta) -> list[Counter[Hashable]]:
    """The changes of each instant; the order of those that leave, and of those that enter, does not matter."""
    values = delta.columns[0].to_pylist()
    rows = list(zip(delta.ts.tolist(), delta.sub.tolist(), delta.sign.tolist(), values,
                    delta.moment_ts.tolist(), delta.moment_sub.tolist(), strict=True))  # fmt: skip
    order = [r[:3] for r in rows]
    assert order == sorted(order)
    found: dict[Instant, Counter[Hashable]] = {}
    for row in rows:
        found.setdefault(row[:2], Counter())[row] += 1
    return list(found.values())


def size(smart: SmartWindow) -> tuple[int, int, int]:
    return len(smart.inside), smart.passed, smart.leaving


@settings(max_examples=examples(300))
@given(
    st.sampled_from(SPECS),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([OWN, OWN, MASTER, 3])), max_size=40),
    st.lists(st.integers(0, 40)),
    st.sets(st.integers(0, 40)),
)
def test_it_is_a_window_and_a_gate(
    spec: WindowSpec, gaps: list[tuple[int, int]], cuts: list[int], saves: set[int]
) -> None:
    """3: an element of the stream which is a master itself."""
    now, events = 0, []
    for number, (gap, kind) in enumerate(gaps):
        now += gap
        events.append(((now, number + 1), kind))
    pair = Pair(spec)
    follower = build_smart(spec, SCHEMA)
    saved = False
    places = sorted({*(c for c in cuts if c <= len(events)), 0, len(events)})
    for start, stop in zip(places, [*places[1:], len(events)], strict=True):
        part = events[start:stop]
        frontier = events[stop][0] if stop < len(events) else NEVER
        masters = [at for at, kind in part if kind in (MASTER, 3)]
        at = np.array(masters, np.int64).reshape(-1, 2)
        own = arrivals([at for at, kind in part if kind in (OWN, 3)])
        step = Step(frontier, (np.ascontiguousarray(at[:, 0]), np.ascontiguousarray(at[:, 1])))
        smart, both = pair.process(own, step)
        assert listed(smart) == listed(both)
        if start in saves:
            state = pair.save()
            if saved:
                follower.catch_up(state)
            else:
                follower.load(state)
                saved = True
            assert size(follower) == size(pair.smart)
            # One goes on from what the other has saved.
            pair.smart = build_smart(spec, SCHEMA)
            pair.smart.load(state)
            assert size(pair.smart) == size(follower)


@pytest.mark.parametrize("spec", [Rows(2), Range(2), Now()])
def test_what_comes_and_goes_between_masters_is_not_kept(spec: WindowSpec) -> None:
    smart = build_smart(spec, SCHEMA)
    none = np.empty(0, np.int64)
    smart.process(arrivals([(0, 1), (0, 2)]), Step((0, 4), (np.array([0]), np.array([3]))))
    inside = len(smart.inside)
    for t in range(1, 3000):
        assert not len(smart.process(arrivals([(t, t + 3)]), Step((t + 1, 0), (none, none))))
        assert len(smart.inside) <= 3
        assert smart.leaving <= inside
    assert (smart.passed, smart.leaving) == (0, inside)
    assert smart.size().rows == len(smart.inside) + inside
    out = smart.process(arrivals([]), Step((3000, 2), (np.array([3000]), np.array([1]))))
    assert (out.sign < 0).sum() == inside
    assert smart.leaving == 0


def test_others_need_a_gate() -> None:
    for spec in (Rows(3, 2), Range(4, 2), PartitionRows((0,), 1)):
        assert not is_smart(spec)
        with pytest.raises(ValueError, match="gate"):
            build_smart(spec, SCHEMA)
