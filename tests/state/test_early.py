"""Rows that came before their place are part of the state, wherever they wait, and only as long as they do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.graph.message import BEGIN, Mark, Message
from penstock.graph.programs import Program
from penstock.graph.sources import Entry
from penstock.graph.vertex import Edge
from penstock.graph.vertices import OperatorVertex
from penstock.model.batch import Batch
from penstock.model.delta import Delta, empty
from penstock.model.values import to_python
from penstock.operators.saved_rows import SavedRows
from penstock.operators.state import Loaded, LoadedState
from penstock.plan.nodes import Join, Query, transform
from penstock.storage.versions import StateStore
from tests.state.programs import SCHEMA, plan, program

QUERIES = (
    "SELECT t, k FROM s WHERE v > 0.5",
    "SELECT ISTREAM a.t, b.v FROM s [RANGE 30] a, r [RANGE 20] b WHERE a.k = b.k",
    "SELECT ISTREAM a.t, b.v FROM s [RANGE 8] a, r [RANGE 8] b WHERE a.k < b.k",
    "SELECT ISTREAM a.t, b.v FROM s [RANGE 25] a, r [RANGE 20] b WHERE a.k = b.k",
    "SELECT a.t, b.v FROM s [RANGE 30] a LEFT JOIN r [RANGE 20] b ON a.k = b.k",
    "SELECT k, sum(v) AS v FROM s [ROWS 5] GROUP BY k",
    "SELECT k, count(*) AS n FROM s [HOPPING 20 EVERY 10] GROUP BY k",
)
LEAST = QUERIES[3]
"""Here a pair has the lower priority of its rows: one with an ordinary row waits although it has been made."""
ROWS = 120
_EARLY = ("/aside", "/early")


def rows(seed: int, start: int, stop: int) -> Batch:
    """Elements of a stream; every fifth or so has a priority."""
    number = np.arange(start, stop, dtype=np.int64)
    mixed = number * 2654435761 + seed * 40503
    table = pa.table({"t": number, "k": mixed // 7 % 4, "v": (mixed % 101 / 100).astype(np.float64)})
    return Batch(SCHEMA, table, number, number, np.where(number * 7 % 5 == seed, mixed % 3 + 1, 0))


def parts(batch: Batch) -> tuple[Batch, Batch]:
    """The rows without and with a priority."""
    assert batch.priority is not None
    return batch.take(np.flatnonzero(batch.priority == 0)), batch.take(np.flatnonzero(batch.priority))


def found(answers: Sequence[Delta]) -> Counter[object]:
    counted: Counter[object] = Counter()
    for delta in answers:
        columns = [to_python(c, f.type) for c, f in zip(delta.columns, delta.schema, strict=True)]
        counted.update(zip(delta.ts.tolist(), delta.sign.tolist(), *columns, strict=True))
    return counted


def fed(running: Program, at: int, step: int, ahead: int) -> Counter[object]:
    """Rows ``at``, … in order, and those with a priority of as many that are ``ahead`` of them."""
    for seed, name in enumerate(("s", "r")):
        for start in range(at if at == 0 else at + ahead, at + ahead + step, step):
            if 0 < start < ROWS:
                running.push_early(name, parts(rows(seed, max(start, step), start + step))[1])
        given = rows(seed, at, at + step)
        rest, had = parts(given) if at >= step else (given, None)
        running.push(name, rest)
        if had is not None:
            running.reach(name, had)
        running.progress(name, at + step - 1)
    return found(running.answers())


def straight(text: str) -> Counter[object]:
    running = program(plan(text))
    wanted: Counter[object] = Counter()
    for at in range(0, ROWS, 10):
        wanted += fed_in_order(running, at)
    return wanted + ended(running)


def ended(running: Program) -> Counter[object]:
    """What comes when no more rows do."""
    for name in ("s", "r"):
        running.progress(name, math.inf)
    return found(running.answers())


def fed_in_order(running: Program, at: int) -> Counter[object]:
    for seed, name in enumerate(("s", "r")):
        running.push(name, rows(seed, at, at + 10))
        running.progress(name, at + 9)
    return found(running.answers())


def waiting(state: Mapping[str, object]) -> list[str]:
    """The paths of rows that came early."""
    return [path for path in state if any(word in path for word in _EARLY)]


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("ahead", [10, 40])
@pytest.mark.parametrize("turns", [(0,), (0, 1), (0, 0, 1)])
def test_rows_that_wait_are_stored(text: str, ahead: int, turns: Sequence[int], tmp_path: Path) -> None:
    """Two processes take turns, and for each turn there is one that remembers nothing instead, now and then."""
    query = plan(text)
    if text == LEAST:
        changed = transform(query, lambda n: replace(n, priority="min") if isinstance(n, Join) else n)
        assert isinstance(changed, Query)
        query = changed
    runs: dict[int, tuple[Program, StateStore]] = {}
    answers: Counter[object] = Counter()
    waited = 0
    for number, at in enumerate(range(0, ROWS, 10), 1):
        who = turns[number % len(turns)]
        state: LoadedState | None = None
        if who in runs and number % 5:
            running, store = runs[who]
            if not store.holds(number - 1):
                state = store.follow(number - 1)
                assert state is not None
                running.catch_up(state)
        else:
            running, store = program(query), StateStore(str(tmp_path))
            if number > 1:
                state = store.load(number - 1)
                assert state is not None
                running.load(state)
        runs[who] = running, store
        answers += fed(running, at, 10, ahead)
        saved = running.save()
        waited += len(waiting(saved))
        store.commit(number, saved)
    answers += ended(running)
    assert answers == straight(text)
    assert bool(waited) == (text != QUERIES[0]), "where the order does not matter nothing waits"


def test_a_state_without_such_rows_says_nothing_of_them() -> None:
    """Neither before there are any, nor when they have had their turn."""
    running, ordered = program(plan(QUERIES[5])), program(plan(QUERIES[5]))
    seen = []
    for at in range(0, 30, 10):
        if at == 10:
            running.push_early("s", parts(rows(0, 20, 30))[1])
        given, had = parts(rows(0, at, at + 10)) if at == 20 else (rows(0, at, at + 10), None)
        running.push("s", given)
        if had is not None:
            running.reach("s", had)
        running.answers()
        saved = running.save()
        seen.append(waiting(saved))
        ordered.push("s", rows(0, at, at + 10))
        ordered.answers()
        if at != 10:
            wanted = ordered.save()
            assert {path: part.meta for path, part in saved.items()} == {p: part.meta for p, part in wanted.items()}
        else:
            ordered.save()
    assert [len(paths) for paths in seen] == [0, 1, 0]


def test_a_save_writes_rows_that_are_new() -> None:
    kept = SavedRows()
    written = []
    for i in range(4):
        kept.add(_changes(10 * i, 10 + i))
        saved = kept.save()
        written.append(sum(p.table.num_rows for p in saved.pieces if p.table is not None))
    kept.drop(15)
    saved = kept.save()
    assert written == [10, 11, 12, 13]
    assert all(piece.table is None for piece in saved.pieces)
    assert len(kept) == 31


def test_answers_that_are_elements_again_wait_too() -> None:
    """They are numbered in their order, of which those that came early are a part."""
    below = OperatorVertex("emit", "answers", SCHEMA)

    def entry() -> tuple[Entry, list[Message]]:
        made = Entry("stream", SCHEMA, 3)
        made.inputs.append(Edge(below, made, 0))
        sent: list[Message] = []
        made.direct = [(lambda _, message: sent.append(message), 0)]
        return made, sent

    first, sent = entry()
    first.take_early(0, _changes(7, 2))
    first.take(0, Message(_changes(0, 3), Mark((3, 0), 3, 3)))
    state = first.save()
    assert [len(m) for m in sent] == [3]
    second, sent = entry()
    tables = {path: {p.name: p.table for p in saved.pieces} for path, saved in state.items()}
    second.load({path: Loaded(saved.meta, tables[path]) for path, saved in state.items()})
    second.take(0, Message(_changes(3, 4), Mark((9, 0), 9, 9)))
    assert [m.data.ts.tolist() for m in sent] == [[3, 4, 5, 6, 7, 8]]
    assert second.aside is None
    assert waiting(second.save()) == []
    assert second.mark != BEGIN


def _changes(start: int, count: int) -> Delta:
    ts = np.arange(start, start + count, dtype=np.int64)
    none = np.zeros(count, np.int64)
    columns = (pa.array(ts), pa.array(ts), pa.array(ts.astype(np.float64)))
    return Delta(empty(SCHEMA).schema, columns, ts, none, np.ones(count, np.int8), ts, none, none + 1)
