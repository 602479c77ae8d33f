"""MASTER: naive and smart execution give the reference's answers, whatever else is different."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import penstock
from penstock.errors import InputError
from penstock.hosts.local.program import Programs
from penstock.ingest import Batch
from penstock.operators.rows import rows_of
from penstock.plan.nodes import Query, QueryStream, RelationScan, StreamScan, bounded_window, sources
from penstock.plan.optimize import optimize
from penstock.reference import INFINITY, Change, Element, evaluate
from penstock.reference_windows import value_key
from penstock.values import to_arrow
from tests.generated.language import Case, cases
from tests.generated.running import answers, comparable
from tests.strategies import R, S, Inputs, inputs, queries

RELAXED = list(HealthCheck)


def batch(scan: StreamScan, elements: Sequence[Element]) -> Batch:
    columns = {
        f.name: to_arrow([e.row[i] for e in elements], f.type) for i, f in enumerate(scan.schema)
    }
    ts, arrival = ([getattr(e, name) for e in elements] for name in ("ts", "arrival"))
    return Batch(scan.schema, pa.table(columns), np.array(ts, np.int64), np.array(arrival, np.int64))


def run(query: Query, given: Inputs, turns: Sequence[tuple[int, int]], *, naive: bool) -> Counter[Hashable]:
    """The answers, when the streams take turns with so many elements."""
    program = Programs({"q": query}, {}, naive=naive)
    for name, changes in given.relations.items():
        program.change(name, changes)
    pending = {scan.stream: list(given.streams[scan.stream]) for scan in (R, S)}
    found: Counter[Hashable] = Counter()

    def taken() -> None:
        deltas = program.run()["q"]
        assert isinstance(deltas, list), deltas
        for delta in deltas:
            for ts, sign, row in zip(delta.ts.tolist(), delta.sign.tolist(), rows_of(delta), strict=True):
                found[ts, "+" if sign > 0 else "-", value_key(row.values)] += 1

    for which, count in turns:
        scan = (R, S)[which]
        elements = pending[scan.stream][:count]
        del pending[scan.stream][:count]
        program.push(scan.stream, batch(scan, elements))
        if elements:
            program.progress(scan.stream, elements[-1].ts)
        taken()
    for scan in (R, S):
        program.push(scan.stream, batch(scan, pending[scan.stream]))
        program.progress(scan.stream, INFINITY)
    taken()
    return found


@settings(max_examples=400, suppress_health_check=RELAXED)
@given(queries(), inputs(), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), max_size=8), st.data())
def test_naive_and_smart_are_the_reference(
    query: Query, given: Inputs, turns: list[tuple[int, int]], data: st.DataObject
) -> None:
    assume(bounded_window(query) is None)
    streams = [n for n in sources(query) if not isinstance(n, RelationScan)]
    names = sorted({n.name if isinstance(n, QueryStream) else n.stream for n in streams})
    assume(names)
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    query = optimize(replace(query, masters=tuple(chosen)))
    wanted = Counter((a.ts, a.op, value_key(a.row)) for a in evaluate(query, given.streams, given.relations))
    assert run(query, given, turns, naive=False) == wanted
    assert run(query, given, turns, naive=True) == wanted
