"""Slots of a database in processes that take turns: what one remembers counts only as far as it is the stored state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.cql.declarations import plan_of_text
from penstock.hosts.spark.live import slot
from penstock.hosts.spark.live.frames import Frame, Kind, Log, Marks, packed
from penstock.hosts.spark.live.plan import Assigned, Definition, Outcome, Plan, logged_rows
from penstock.hosts.spark.live.slot import read_answers, run_slot, write_definition
from penstock.model.batch import Batch
from penstock.model.errors import CheckpointError
from penstock.model.values import to_python
from penstock.plan.answers import answer_schema
from penstock.plan.nodes import Query
from penstock.plan.optimize import optimize
from tests.state.programs import DECLARE, SCHEMA

_Answers = Counter[object]


class Slots:
    """One slot of a database whose micro-batches are made by processes with memories of their own."""

    def __init__(self, root: Path, *queries: str) -> None:
        self._root = root
        self._memories: dict[int, dict[Any, Any]] = {}
        self._log = Log(root / "streams" / "s")
        self._plans: dict[str, Query] = {}
        self._frames = 0
        with penstock.connect(engine="reference") as db:
            db.execute(DECLARE)
            for i, text in enumerate(queries):
                self._plans[f"q{i}"] = optimize(plan_of_text(db.catalog, text)[0])
        for id, plan in self._plans.items():
            definition = Definition(id, plan, answer_schema(plan), {}, False, {}, {}, {})
            write_definition(root / "queries" / id / "definition", definition)

    def frame(self, start: int, rows: int) -> Frame:
        number = np.arange(start, start + rows, dtype=np.int64)
        table = pa.table({"t": number, "k": number % 7, "v": (number * 31 % 17).astype(np.float64)})
        self._frames += 1
        marks = Marks(progress=start + rows - 1, newest=start + rows - 1, arrivals=start + rows)
        payload = packed(logged_rows(Batch(SCHEMA, table, number, number)))
        return self._log.append(Kind.ROWS, self._frames, payload, rows, marks)

    @contextmanager
    def _process(self, which: int) -> Iterator[None]:
        slot.forget_all()
        slot._kept.update(self._memories.get(which, {}))
        try:
            yield
        finally:
            self._memories[which] = dict(slot._kept)
            slot.forget_all()

    def run(
        self, process: int, number: int, base: int | None, frame: Frame, ids: Sequence[str] = ("q0",)
    ) -> dict[str, _Answers]:
        """What each query gives in a micro-batch."""
        queries = tuple(Assigned(id, 0, 0) for id in ids)
        with self._process(process):
            report = run_slot(Plan(str(self._root), number, base, 1, queries, {"s": [frame]}), 0)
        return {id: self._answers(id, outcome) for id, outcome in report.outcomes.items()}

    def _answers(self, id: str, outcome: Outcome) -> _Answers:
        assert outcome.error is None, outcome.error
        if not outcome.file:
            return Counter()
        plan = self._plans[id]
        delta = read_answers(plan.schema, [self._root / "queries" / id / outcome.file])
        columns = [to_python(c, f.type) for c, f in zip(delta.columns, delta.schema, strict=True)]
        return Counter(zip(delta.ts.tolist(), delta.sign.tolist(), *columns, strict=True))


GROUPS = "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 40] GROUP BY k"
ROWS = "SELECT t, k, v FROM s [RANGE 1000000]"


def in_turns(root: Path, turns: Sequence[int], text: str = GROUPS) -> list[_Answers]:
    slots = Slots(root, text)
    found = []
    for i, process in enumerate(turns):
        found.append(slots.run(process, i + 1, i or None, slots.frame(10 * i, 10))["q0"])
    return found


def test_turns_do_not_show(tmp_path: Path) -> None:
    turns = [0, 1, 2, 2, 1, 0, 0, 2, 1, 1, 1, 1, 0, 2] * 2
    wanted = in_turns(tmp_path / "one", [0] * len(turns))
    assert in_turns(tmp_path / "turns", turns) == wanted
    assert all(wanted)


def test_who_is_behind_reads_what_has_changed(tmp_path: Path) -> None:
    """It goes on even if what was written before is gone, where one that loads cannot."""
    slots = Slots(tmp_path, ROWS)
    for i in range(4):
        slots.run(min(i, 1), i + 1, i or None, slots.frame(10 * i, 10))
    (old,) = tmp_path.glob(f"state/slot-*/pieces/{1:012d}-*")
    old.unlink()
    frame = slots.frame(40, 10)
    with pytest.raises(CheckpointError, match="a piece of the saved state is missing"):
        slots.run(2, 5, 4, frame)
    assert sum(slots.run(0, 5, 4, frame)["q0"].values()) == 10


def test_a_micro_batch_that_did_not_count_is_not_gone_on_from(tmp_path: Path) -> None:
    """Process 0 made micro-batch 2; then the driver heard of a failure elsewhere and made 3 and 4 from 1."""
    slots, straight = Slots(tmp_path / "a", GROUPS), Slots(tmp_path / "b", GROUPS)
    slots.run(0, 1, None, slots.frame(0, 10))
    slots.run(0, 2, 1, slots.frame(10, 25))
    slots.run(1, 3, 1, slots.frame(10, 10))
    slots.run(1, 4, 3, slots.frame(20, 10))
    given = slots.run(0, 5, 4, slots.frame(30, 10))
    base = None
    for number, start in ((1, 0), (3, 10), (4, 20), (5, 30)):
        wanted = straight.run(0, number, base, straight.frame(start, 10))
        base = number
    assert given == wanted


def test_queries_come_and_go_while_a_process_is_behind(tmp_path: Path) -> None:
    """One that was stopped and begun again has a state of its own; what is remembered of the first one is no use."""
    slots, straight = Slots(tmp_path / "a", GROUPS, ROWS), Slots(tmp_path / "b", GROUPS, ROWS)
    running = [("q0",), ("q0", "q1"), ("q1",), ("q0", "q1"), ("q0",), ("q0", "q1")]
    for i, ids in enumerate(running):
        process = 0 if i in (0, 1, 5) else 1
        given = slots.run(process, i + 1, i or None, slots.frame(10 * i, 10), ids)
        assert given == straight.run(0, i + 1, i or None, straight.frame(10 * i, 10), ids), f"micro-batch {i + 1}"
        assert all(given.values())
