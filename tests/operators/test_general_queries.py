"""Whole random queries through the general operators, over what the reference's windows hold at each instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from penstock.model.delta import BEGINNING, Delta, Instant, Ints, Step
from penstock.operators.emit import Emit
from penstock.operators.rows import rows_of
from penstock.plan.nodes import Query, RelationScan, StreamScan, Window, bounded_window, walk
from penstock.plan.optimize import optimize
from penstock.plan.order import delivery_keys
from penstock.reference.evaluator import INFINITY, Answer, Evaluator, _Input
from penstock.reference.windows import value_key
from penstock.scalar import Context, order_key
from tests.budget import examples
from tests.operators.general import Contents, History, Tree, frontier, pieces
from tests.strategies import Inputs, inputs, queries

Line = tuple[int, str, Hashable]


class Recorder(Evaluator):
    """Notes what the leaves hold at every instant, and at which of them the query is evaluated."""

    def __init__(self, query: Query, *, as_stream: bool = False) -> None:
        super().__init__(query, as_stream=as_stream)
        leaves = [n for n in walk(query, into_queries=False) if isinstance(n, Window | RelationScan)]
        self.leaves = {id(n): n for n in leaves}
        self.history = History({key: n.schema for key, n in self.leaves.items()})
        self.evaluated: list[Instant] = []

    def contents(self) -> Contents:
        return {
            key: list(self._relations[n.position] if isinstance(n, RelationScan) else self._sliding[key].rows)
            for key, n in self.leaves.items()
        }

    def begin(self) -> None:
        self.history.instants.append(BEGINNING)
        self.history.contents.append(self.contents())

    def _instant(self, now: int, changed: bool, arrived: _Input | None) -> None:
        last = self.history.instants[-1]
        self.history.instants.append((now, last[1] + 1 if last[0] == now else 0))
        self.history.contents.append(self.contents())
        super()._instant(now, changed, arrived)

    def _evaluate(self, now: int) -> None:
        # Without streams the reference evaluates once before any instant.
        if self.history.instants[-1] == BEGINNING:
            self.history.instants.append((0, 0))
            self.history.contents.append(self.contents())
        self.evaluated.append(self.history.instants[-1])
        super()._evaluate(now)


def _record(query: Query, given: Inputs, *, as_stream: bool) -> tuple[Recorder, list[Answer]]:
    recorder = Recorder(query, as_stream=as_stream)
    for name, changes in given.relations.items():
        recorder.change(name, changes)
    recorder.begin()
    for name, elements in given.streams.items():
        recorder.push(name, elements)
    for node in walk(query):
        if isinstance(node, StreamScan):
            recorder.progress(node.stream, INFINITY)
    return recorder, recorder.run()


def _columns(instants: list[Instant]) -> tuple[Ints, Ints]:
    return np.array([t for t, _ in instants], np.int64), np.array([s for _, s in instants], np.int64)


def _answers(query: Query, recorder: Recorder, cuts: list[int], *, ordered: bool) -> list[Delta]:
    tree = Tree(query.input, Context(), gated=bool(query.masters))
    keys = () if ordered else delivery_keys(query)
    emit = Emit(query, ordered=ordered, keys=keys)
    history = recorder.history
    result = []
    for start, stop in pieces(len(history.instants), cuts):
        within = set(history.instants[start:stop])
        evaluated = _columns([i for i in recorder.evaluated if i in within])
        step = Step(frontier(history, stop), evaluated if query.masters else None)
        delta = tree.process(history.deltas(start, stop), step)
        result.append(emit.process([delta], step, evaluated))
    return result


def _line(ts: int, op: str, values: tuple[object, ...]) -> Line:
    return ts, op, value_key(values)


def _lines(deltas: list[Delta]) -> list[Line]:
    found = []
    for delta in deltas:
        for ts, sign, row in zip(delta.ts.tolist(), delta.sign.tolist(), rows_of(delta), strict=True):
            found.append(_line(ts, "+" if sign > 0 else "-", row.values))
    return found


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(queries(), inputs(), st.lists(st.integers(0, 30), max_size=12), st.booleans(), st.booleans())
def test_queries(query: Query, given: Inputs, cuts: list[int], rewritten: bool, ordered: bool) -> None:
    assume(bounded_window(query) is None)
    if rewritten:
        query = optimize(query)
    recorder, answers = _record(query, given, as_stream=ordered)
    found = _lines(_answers(query, recorder, cuts, ordered=ordered))
    expected = [_line(a.ts, a.op, a.row) for a in answers]
    assert Counter(found) == Counter(expected)
    if ordered and query.output != "changes":
        assert [_sortable(line) for line in found] == [_sortable(line) for line in expected]


def _sortable(line: Line) -> object:
    return line[0], line[1], order_key(line[2])
