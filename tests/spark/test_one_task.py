"""A job in one task, and what a worker keeps of what it is sent; without Spark."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.hosts.spark import rows as shard_of_rows
from penstock.hosts.spark.direct import Direct
from penstock.hosts.spark.gather import Gather
from penstock.hosts.spark.job import Job
from penstock.hosts.spark.shard import forget_all
from penstock.hosts.spark.worker import RELEASE, Sent, received
from penstock.rows.given import as_table
from tests.generated.language import Row
from tests.generated.running import comparable
from tests.spark.simulated import Simulated, job_of

DECLARE = """
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
"""
JOIN = "SELECT r.k, r.v AS x, s.v AS y FROM r [ROWS 4] LEFT JOIN s [RANGE 7] ON r.k = s.k"
LAST = "SELECT ISTREAM v FROM r [ROWS 1]"


def direct(job: Job) -> Direct:
    schemas = {q.name: q.schema for p in job.parts for q in p.queries}
    gather = Gather(job, schemas, next(iter(schemas.values())))
    return Direct(gather, tuple(range(len(job.sources))), ((0, 1, 2),) * len(job.sources))


def batches(job: Job, pieces: Sequence[tuple[int, int, Sequence[Row]]]) -> list[pa.RecordBatch]:
    """One batch with all pieces, each of a source and a task."""
    tables = []
    for source, task, rows in pieces:
        given = as_table(list(rows), job.sources[source].schema, "s")
        tags = [pa.array([n] * len(rows), pa.int32()) for n in (source, task)]
        tables.append(pa.Table.from_arrays([*tags, *given.columns], names=list("abcde")))
    found: list[pa.RecordBatch] = pa.concat_tables(tables).combine_chunks().to_batches()
    return found


def counted(answers: Sequence[pa.RecordBatch]) -> Counter[object]:
    rows = (row for a in answers for row in zip(*(c.to_pylist() for c in a.columns), strict=True))
    return Counter(tuple(comparable(v) for v in row) for row in rows)


def rows(seed: int, n: int, since: int) -> list[Row]:
    chosen = random.Random(seed)
    return [(since + i, chosen.randrange(3), chosen.randrange(100)) for i in range(n)]


def test_rows_are_in_the_order_of_the_source_whichever_way_they_come(tmp_path: Path) -> None:
    # All at one instant: which is the last one says the order of the tasks, and of rows within them.
    job = job_of(DECLARE, {"q": LAST}, 1, bounded=False)
    pieces = [(0, 1, [(5, 0, 30), (5, 0, 40)]), (0, 0, [(5, 0, 10)]), (0, 2, [(5, 0, 50)]), (0, 0, [(5, 0, 20)])]
    answers = list(direct(job).answer(iter(batches(job, pieces)), str(tmp_path), 0))
    assert [v for a in answers for v in a.column("v").to_pylist()] == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("remembered", [True, False])
def test_state_is_stored_though_spark_wants_no_more_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    """Where answers are made while Spark takes earlier ones, too: the second micro-batch knows what was late."""
    monkeypatch.setattr(shard_of_rows, "ROWS_AT_ONCE", 2)
    job = job_of(DECLARE, {"q": "SELECT v FROM r WHERE v <> 3"}, 1, bounded=False)
    task, first = direct(job), [(0, 0, [(10 + v, 0, v) for v in range(9)])]
    answers = task.answer(iter(batches(job, first)), str(tmp_path), 0)
    assert next(answers).column("v").to_pylist() == [0, 1]
    answers.close()  # type: ignore[attr-defined]
    if not remembered:
        forget_all()
    second = [(0, 0, [(17, 0, 70), (18, 0, 80), (19, 0, 3), (19, 0, 90)])]
    found = list(task.answer(iter(batches(job, second)), str(tmp_path), 1))
    assert [v for a in found for v in a.column("v").to_pylist()] == [80, 90]
    again = list(task.answer(iter(batches(job, first)), str(tmp_path), 0))
    assert [v for a in again for v in a.column("v").to_pylist()] == [0, 1, 2, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("first", ["one task", "shuffle"])
def test_a_query_goes_on_in_one_task_where_it_was_with_a_shuffle_and_back(tmp_path: Path, first: str) -> None:
    job = job_of(DECLARE, {"q": JOIN}, 1, bounded=False)
    one, apart = direct(job), Simulated(job, {}, partitions=2, root=str(tmp_path / "mixed"))
    alone = Simulated(job, {}, root=str(tmp_path / "alone"))
    found: Counter[object] = Counter()
    wanted: Counter[object] = Counter()
    for batch in range(6):
        given = {"r": rows(batch, 5, 10 * batch), "s": rows(100 + batch, 5, 10 * batch)}
        if (batch % 2 == 0) == (first == "one task"):
            pieces = [(i, 0, given[s.name]) for i, s in enumerate(job.sources)]
            found += counted(list(one.answer(iter(batches(job, pieces)), str(tmp_path / "mixed"), batch)))
        else:
            found += apart.step(given, batch)
        wanted += alone.step(given, batch)
        forget_all()
    assert found == wanted
    assert sum(wanted.values()) > 30


@dataclass(frozen=True, eq=False)
class Example(Sent):
    """Something that is sent."""

    _each_time = ("task",)
    plan: list[int]
    task: int


def test_what_is_sent_again_is_not_built_again() -> None:
    sent = pickle.dumps(Example([1, 2], 7))
    one, two = pickle.loads(sent), pickle.loads(sent)
    assert one is two
    assert (one.plan, one.task) == ([1, 2], 7)
    assert pickle.loads(pickle.dumps(Example([1, 2], 8))) is not one


def test_what_belongs_to_a_task_is_that_of_the_last_one() -> None:
    number, content = Example([3], 1)._sent
    kept = received(RELEASE, number, content, {"task": 1})
    assert received(RELEASE, number, content, {"task": 2}) is kept
    assert kept.task == 2
