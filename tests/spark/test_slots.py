"""Slots of a database in processes that take turns: what one remembers counts only as far as it is the stored state."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock
from penstock.catalog import StreamDef
from penstock.cql.declarations import plan_of_text
from penstock.hosts.durable import forms
from penstock.hosts.spark import shard
from penstock.hosts.spark.parts.definitions import Past, forget_all, read_definition, write_definition, write_program
from penstock.hosts.spark.parts.slot import read_answers, run_task
from penstock.hosts.spark.parts.task import Base, Frame, Outcome, Report, Task, Trouble
from penstock.hosts.spark.shard import Memory
from penstock.model.errors import CheckpointError
from penstock.model.values import to_python
from penstock.plan.nodes import Query
from penstock.plan.optimize import optimize
from penstock.plan.serial import to_json
from penstock.storage.files import Disk
from penstock.storage.log import Log
from tests.state.programs import DECLARE, SCHEMA

_Answers = Counter[object]


class Slots:
    """One slot of a database whose micro-batches are made by processes with memories of their own."""

    def __init__(self, root: Path, *queries: str) -> None:
        self.root = root
        self._files = Disk(root)
        self._memories: dict[int, Memory] = {}
        self._plans: dict[str, Query] = {}
        self._programs: dict[tuple[str, ...], str] = {}
        with penstock.connect(engine="reference") as db:
            db.execute(DECLARE)
            stream: StreamDef = db.catalog.streams["s"]
            for i, text in enumerate(queries):
                self._plans[f"q{i}"] = optimize(plan_of_text(db.catalog, text)[0])
        self._files.make("streams/s")
        self._log = Log(
            self._files, "streams/s", forms.rows_schema(stream, turns=True), epoch=1, owner=0, sealed={}, same_boot=True
        )  # fmt: skip
        for id, plan in self._plans.items():
            write_definition(
                self._files, id, to_json(plan), versions={}, strict=False, apart=False, progress={},
                schemas={"s": SCHEMA}, past=Past({}, {}),
            )  # fmt: skip

    def frame(self, start: int, rows: int) -> Frame:
        """An entry of the log."""
        number = np.arange(start, start + rows, dtype=np.int64)
        columns = [number, number % 7, (number * 31 % 17).astype(np.float64), number, np.zeros(rows, bool)]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self._log.schema, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=self._log.schema)
        self._log.append(self._log.last + 1, table, {"p": start + rows - 1, "n": start + rows - 1, "a": start})
        return Frame(self._log.last, "rows", self._log.place, rows, 0, start + rows - 1)

    def _program(self, ids: tuple[str, ...]) -> str:
        if ids not in self._programs:
            self._programs[ids] = f"0-1-{len(self._programs)}"
            write_program(self._files, self._programs[ids], dict.fromkeys(ids, 0))
        return self._programs[ids]

    def task(self, version: int, base: Base | None, frame: Frame, ids: Sequence[str] = ("q0",)) -> Task:
        """A micro-batch with one entry."""
        return Task(str(self.root), 0, 0, 1, version, base, self._program(tuple(ids)), {"s": [frame]})

    def told(self, process: int, task: Task) -> Report | Trouble:
        """What a process says of a task."""
        forget_all()
        memory = self._memories.setdefault(process, Memory())
        found: Report | Trouble = pickle.loads(pickle.dumps(run_task(pickle.loads(pickle.dumps(task)), memory)))
        return found

    def run(
        self, process: int, version: int, base: Base | None, frame: Frame, ids: Sequence[str] = ("q0",)
    ) -> tuple[dict[str, _Answers], Base]:
        """What each query gives in a micro-batch, and the state that it leaves."""
        report = self.told(process, self.task(version, base, frame, ids))
        assert isinstance(report, Report), report
        return self.answers(report.outcomes), (report.version, report.attempt)

    def answers(self, outcomes: Mapping[str, Outcome]) -> dict[str, _Answers]:
        """What queries gave."""
        return {id: self._answers(id, outcome) for id, outcome in outcomes.items()}

    def _answers(self, id: str, outcome: Outcome) -> _Answers:
        assert outcome.error is None, outcome.error
        given = outcome.given
        if given is None:
            return Counter()
        content = self._files.read(given.file) if given.file else pa.py_buffer(given.payload)
        delta = read_answers(self._plans[id].schema, [content])
        columns = [to_python(c, f.type) for c, f in zip(delta.columns, delta.schema, strict=True)]
        return Counter(zip(delta.ts.tolist(), delta.sign.tolist(), *columns, strict=True))


GROUPS = "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 40] GROUP BY k"
ROWS = "SELECT t, k, v FROM s [RANGE 1000000]"


def in_turns(root: Path, turns: Sequence[int], text: str = GROUPS) -> list[_Answers]:
    slots = Slots(root, text)
    found, base = [], None
    for i, process in enumerate(turns):
        given, base = slots.run(process, i + 1, base, slots.frame(10 * i, 10))
        found.append(given["q0"])
    return found


def test_turns_do_not_show(tmp_path: Path) -> None:
    turns = [0, 1, 2, 2, 1, 0, 0, 2, 1, 1, 1, 1, 0, 2] * 2
    wanted = in_turns(tmp_path / "one", [0] * len(turns))
    assert in_turns(tmp_path / "turns", turns) == wanted
    assert all(wanted)


def test_who_is_behind_reads_what_has_changed(tmp_path: Path) -> None:
    """It goes on even if what was written before is gone, where one that loads cannot."""
    slots = Slots(tmp_path, ROWS)
    base = None
    for i in range(4):
        _, base = slots.run(min(i, 1), i + 1, base, slots.frame(10 * i, 10))
    (old,) = tmp_path.glob(f"shards/part-0/slot-*/pieces/{1:012d}-*")
    old.unlink()
    frame = slots.frame(40, 10)
    said = slots.told(2, slots.task(5, base, frame))
    assert isinstance(said, Trouble)
    assert said.failure.kind == CheckpointError.__name__
    assert "a piece of the saved state is missing" in said.failure.message
    assert sum(slots.run(0, 5, base, frame)[0]["q0"].values()) == 10


def test_an_attempt_that_did_not_count_is_not_gone_on_from(tmp_path: Path) -> None:
    """Process 0 made micro-batch 2; then the driver heard of a failure elsewhere, and 1 made it with fewer rows."""
    slots, straight = Slots(tmp_path / "a", GROUPS), Slots(tmp_path / "b", GROUPS)
    _, first = slots.run(0, 1, None, slots.frame(0, 10))
    slots.run(0, 2, first, slots.frame(10, 25))
    _, second = slots.run(1, 2, first, slots.frame(10, 10))
    _, third = slots.run(1, 3, second, slots.frame(20, 10))
    given, _ = slots.run(0, 4, third, slots.frame(30, 10))
    base = None
    for i in range(4):
        wanted, base = straight.run(0, i + 1, base, straight.frame(10 * i, 10))
    assert given == wanted


def test_an_attempt_that_was_made_twice_counts_once(tmp_path: Path) -> None:
    """Both leave a state; whichever the driver heard of is gone on from, by any process."""
    straight = in_turns(tmp_path / "straight", [0] * 4)
    for chosen in range(2):
        slots = Slots(tmp_path / str(chosen), GROUPS)
        base = None
        for i in range(4):
            frame = slots.frame(10 * i, 10)
            attempts = [slots.run(process, i + 1, base, frame) for process in (0, 1)]
            given, base = attempts[(chosen + i) % 2]
            assert given["q0"] == straight[i]


def test_queries_come_and_go_while_a_process_is_behind(tmp_path: Path) -> None:
    """One that was stopped and begun again has a state of its own; what is remembered of the first one is no use."""
    slots, straight = Slots(tmp_path / "a", GROUPS, ROWS), Slots(tmp_path / "b", GROUPS, ROWS)
    running = [("q0",), ("q0", "q1"), ("q1",), ("q0", "q1"), ("q0",), ("q0", "q1")]
    base = other = None
    for i, ids in enumerate(running):
        process = 0 if i in (0, 1, 5) else 1
        given, base = slots.run(process, i + 1, base, slots.frame(10 * i, 10), ids)
        wanted, other = straight.run(0, i + 1, other, straight.frame(10 * i, 10), ids)
        assert given == wanted, f"micro-batch {i + 1}"
        assert all(given.values())


def test_a_worker_that_does_not_see_the_directory_says_so(tmp_path: Path) -> None:
    slots = Slots(tmp_path, GROUPS)
    task = slots.task(1, None, slots.frame(0, 10))
    (tmp_path / "shards" / "queries" / "q0.json").unlink()
    said = slots.told(0, task)
    assert isinstance(said, Trouble)
    assert "this worker does not see the query" in said.failure.message
    assert "all machines share" in str(said.failure.hint)


def test_definitions_and_slots_that_a_process_remembers_are_bounded(tmp_path: Path) -> None:
    slots = Slots(tmp_path, GROUPS)
    frame = slots.frame(0, 10)
    memory = Memory()
    for part in range(shard._KEPT + 3):
        task = Task(str(tmp_path), part, 0, 1, 1, None, slots.task(1, None, frame).program, {"s": [frame]})
        assert isinstance(run_task(task, memory), Report)
    assert len(memory) == shard._KEPT
    assert read_definition(str(tmp_path), "q0") is read_definition(str(tmp_path), "q0")
