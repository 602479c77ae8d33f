"""Rows of files that are read when they are answered: what footers tell, shares of tasks, and the answers; without
Spark."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.hosts.spark import footers
from penstock.hosts.spark.direct import Direct
from penstock.hosts.spark.footers import RowGroup, shared, told, unread
from penstock.hosts.spark.gather import Gather
from penstock.hosts.spark.job import FileColumn, Job, Source
from penstock.hosts.spark.shard import forget_all
from penstock.model.errors import EngineError, InputError
from tests.spark.simulated import job_of

DECLARE = """
CREATE STREAM r (t BIGINT, v BIGINT) TIMESTAMP BY t{r};
CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t;
"""
QUERIES = {"odd": "SELECT v, v * 2 AS w FROM r WHERE v % 2 = 1", "few": "SELECT v + 1 AS v FROM s WHERE v < 30"}
COLUMNS = (FileColumn("t", pa.int64()), FileColumn("v", pa.int64()))
Given = tuple[int | None, int]


@dataclass(frozen=True)
class File:
    """A file to be written: rows, how many stand in a row group, and whether its footer tells of times."""

    stream: str
    rows: Sequence[Given]
    group: int = 1_000
    tells: bool = True


def by_files(shards: int, *, slack: str = "", on_error: Any = "refuse") -> Job:
    job = job_of(DECLARE.format(r=slack), QUERIES, shards, bounded=False)
    return replace(job, sources=tuple(replace(s, files=COLUMNS, on_error=on_error) for s in job.sources))


def write(folder: Path, name: str, file: File) -> str:
    table = pa.table(
        [[r[i] for r in file.rows] for i in range(2)], schema=pa.schema([(c.name, c.type) for c in COLUMNS])
    )
    path = folder / f"{name}.parquet"
    pq.write_table(table, path, row_group_size=file.group, write_statistics=file.tells)
    return str(path)


def listed(paths: Sequence[tuple[int, str]], share: int) -> pa.RecordBatch:
    """New files of sources as Spark gives them to the task of a share."""
    rows = [{"source": number, "task": 0, "c0": path, "share": share} for number, path in paths]
    kinds = {"source": pa.int32(), "task": pa.int32(), "c0": pa.string(), "share": pa.int64()}
    return pa.RecordBatch.from_pylist(rows, pa.schema(kinds))


def answered(job: Job, batches: Sequence[Sequence[File]], folder: Path) -> Counter[Any]:
    """What the tasks of each micro-batch give, by query; each task is done by a process that remembers nothing."""
    schemas = {q.name: q.schema for p in job.parts for q in p.queries}
    output = pa.schema([("query", pa.string()), *{f.name: f for s in schemas.values() for f in s}.values()])
    task = Direct(Gather(job, schemas, output, named=True), tuple(range(len(job.sources))), ((0,),) * len(job.sources))
    names = [s.name for s in job.sources]
    found: Counter[Any] = Counter()
    for batch, files in enumerate(batches):
        paths = [(names.index(f.stream), write(folder, f"{batch}-{i}", f)) for i, f in enumerate(files)]
        for place in range(job.shards if job.side_by_side else 1):
            forget_all()
            for piece in task.answer(iter([listed(paths, place)]), str(folder), batch, place):
                found.update(tuple(sorted(row.items(), key=str)) for row in piece.to_pylist())
    return found


def kept(folder: Path, what: str) -> Counter[Any]:
    files = sorted((folder / "penstock" / what).rglob("*.parquet"))
    return Counter(
        (f.parent.name, *row.values()) for f in files for row in pq.read_table(f, partitioning=None).to_pylist()
    )


def groups(*sizes: int) -> list[RowGroup]:
    return [RowGroup("f", i, 0, n, i, i) for i, n in enumerate(sizes)]


@given(sizes=st.lists(st.integers(1, 40), max_size=12), shares=st.integers(1, 7))
def test_each_row_is_in_one_share(sizes: list[int], shares: int) -> None:
    read = [
        (g.number, row)
        for i in range(shares)
        for g in shared(groups(*sizes), i, shares)
        for row in range(g.since, g.until)
    ]
    assert read == [(i, row) for i, n in enumerate(sizes) for row in range(n)]


def test_small_row_groups_are_not_read_twice_and_a_large_one_by_all() -> None:
    found = [[(g.number, g.since, g.until) for g in shared(groups(10, 11, 9, 10), i, 2)] for i in range(2)]
    assert found == [[(0, 0, 10), (1, 0, 11)], [(2, 0, 9), (3, 0, 10)]]
    assert [[(g.since, g.until) for g in shared(groups(90), i, 3)] for i in range(3)] == [
        [(0, 30)],
        [(30, 60)],
        [(60, 90)],
    ]


@pytest.mark.parametrize(
    ("file", "is_told"),
    [
        (File("r", [(1, 1), (2, 2)]), True),
        (File("r", []), True),
        (File("r", [(1, 1), (3, 2)], tells=False), True),
        (File("r", [(1, 1), (None, 2)], tells=False), False),
        (File("r", [(1, 1), (None, 2)]), False),
        (File("r", [(2**62, 1)]), False),
    ],
    ids=["plain", "no rows", "no statistics", "NULL without", "a time that is NULL", "a time out of range"],
)
def test_what_footers_tell(tmp_path: Path, file: File, is_told: bool) -> None:
    path = write(tmp_path, "f", file)
    found, left = told([path], by_files(1).sources[0])
    assert (sum(g.rows for g in found), left) == ((len(file.rows), []) if is_told else (0, [path]))


def test_milliseconds_are_told_in_ticks(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": pa.array([5, 7], pa.timestamp("ms"))}), tmp_path / "f.parquet")
    source = Source("r", (by_files(1).sources[0].schema[0],), 0, files=(FileColumn("t", pa.timestamp("us")),))
    (group,), _ = told([str(tmp_path / "f.parquet")], source)
    assert (group.first, group.last) == (5_000, 7_000)


def test_a_footer_that_is_wrong_is_named(tmp_path: Path) -> None:
    source = by_files(1).sources[0]
    (group,), _ = told([write(tmp_path, "f", File("r", [(5, 1), (6, 2)]))], source)
    with pytest.raises(InputError, match=r"f\.parquet: it has rows of other times than .*; write the file again"):
        list(unread([replace(group, last=5)], source).tables())


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many at a time: a micro-batch of large files must not be in memory at once."""
    monkeypatch.setattr(footers, "ROWS_AT_ONCE", 4)
    source = by_files(1).sources[0]
    files = [
        write(tmp_path, name, File("r", [(i, i) for i in range(since, since + 6)]))
        for name, since in (("f", 0), ("g", 6))
    ]
    tables = unread(shared(told(files, source)[0], 0, 1), source).tables()
    assert next(tables).column("v").to_pylist() == [0, 1, 2, 3]
    Path(files[1]).unlink()
    with pytest.raises(FileNotFoundError):
        next(tables)


def test_a_share_begins_far_behind_the_beginning_of_a_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footers, "ROWS_AT_ONCE", 3)
    source = by_files(1).sources[0]
    groups, _ = told([write(tmp_path, "f", File("r", [(i, i) for i in range(20)]))], source)
    found = [table.column("v").to_pylist() for i in range(3) for table in unread(shared(groups, i, 3), source).tables()]
    assert [v for some in found for v in some] == list(range(20))


def test_small_row_groups_and_files_are_answered_together(tmp_path: Path) -> None:
    source = by_files(1).sources[0]
    files = [write(tmp_path, str(n), File("r", [(n, v) for v in range(30)], group=2)) for n in range(5)]
    assert [len(table) for table in unread(shared(told(files, source)[0], 1, 2), source).tables()] == [76]


def test_a_file_that_has_become_shorter_is_named(tmp_path: Path) -> None:
    source = by_files(1).sources[0]
    path = write(tmp_path, "f", File("r", [(1, i) for i in range(10)]))
    rows = unread(told([path], source)[0], source)
    write(tmp_path, "f", File("r", [(1, 1), (1, 2)]))
    with pytest.raises(
        InputError, match=r"f\.parquet: it has 8 rows less than its footer told of; write the file again"
    ):
        list(rows.tables())


rows_of = st.lists(st.tuples(st.integers(0, 30) | st.none(), st.integers(0, 60)), max_size=12)
file = st.builds(File, st.sampled_from("rs"), rows_of, st.integers(1, 5), st.booleans())
lives = st.lists(st.lists(file, max_size=4), min_size=1, max_size=4)


@given(batches=lives, shards=st.integers(1, 4), slack=st.sampled_from(["", " SLACK 3"]))
def test_answers_late_rows_and_rows_apart_are_those_of_one_task_that_reads_everything_first(
    batches: list[list[File]], shards: int, slack: str
) -> None:
    many, one = by_files(shards, slack=slack, on_error="apart"), by_files(1, slack=slack, on_error="apart")
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        found = answered(many, batches, Path(a))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Job, "reads_later", lambda job, source: False)
            assert found == answered(one, batches, Path(b))
        for what in ("late", "apart"):
            assert kept(Path(a), what) == kept(Path(b), what)


def test_late_rows_of_another_task_s_share_and_rows_apart(tmp_path: Path) -> None:
    """The first micro-batch's last row is in the second share; it makes rows of both shares late."""
    job = by_files(2, on_error="apart")
    assert job.side_by_side
    first = [File("r", [(1, 1), (2, 3), (3, 5), (9, 7)])]
    second = [File("r", [(8, 9), (9, 11), (10, 13), (4, 15)]), File("r", [(None, 17), (11, 19)])]
    found = answered(job, [first, second], tmp_path)
    assert sorted(dict(row)["v"] for row in found.elements()) == [1, 3, 5, 7, 11, 13, 19]
    assert {row[:3] for row in kept(tmp_path, "late")} == {("r", 8, 9), ("r", 4, 15)}
    assert kept(tmp_path, "apart").total() == 1


def test_a_task_takes_no_files_of_another_share(tmp_path: Path) -> None:
    job = by_files(2)
    schemas = {q.name: q.schema for p in job.parts for q in p.queries}
    task = Direct(Gather(job, schemas, next(iter(schemas.values()))), (0, 1), ((0,), (0,)))
    given = listed([(0, write(tmp_path, "f", File("r", [(1, 1)])))], share=1)
    with pytest.raises(EngineError, match="share 0 was given files for another one; Spark has made another join"):
        list(task.answer(iter([given]), str(tmp_path), 0, 0))
