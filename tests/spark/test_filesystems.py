"""State on file systems that are not a disk, and attempts that die at any of their calls; without Spark."""

from __future__ import annotations

import random
import re
from collections import Counter
from contextlib import nullcontext
from statistics import mean

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import penstock
from penstock.hosts.spark import checkpoint, shard
from penstock.model.errors import CheckpointError
from penstock.storage.versions import StateStore
from tests.generated.language import Row
from tests.generated.running import comparable
from tests.spark.filesystems import Around, Calls, Hdfs, Killed, ObjectStore, full
from tests.spark.simulated import Simulated, job_of

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 4;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 4;
"""
JOIN = "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 9] a LEFT JOIN r [RANGE 7] b ON a.k = b.k"
SUMS = "SELECT ISTREAM k, sum(v) AS total, max(v) AS most FROM s [RANGE 12] GROUP BY k"
Batches = list[dict[str, list[Row]]]


def made(seed: int, batches: int, size: int) -> Batches:
    """Micro-batches of two streams, in order."""
    chosen = random.Random(seed)
    return [
        {
            name: sorted((chosen.randrange(10 * i, 10 * i + 10), chosen.randrange(3), i) for _ in range(size))
            for name in ("s", "r")
        }
        for i in range(batches)
    ]


def wanted(query: str, batches: Batches) -> Counter[object]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        q = db.query(query)
        for name in ("s", "r"):
            db.push(name, [row for batch in batches for row in batch[name]])
        return Counter(tuple(comparable(v) for v in row.values()) for row in q.fetch().to_pylist())


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[fs.FileSystem, Calls]:
    """A file system in memory that behaves as asked for, in place of every checkpoint location."""
    calls = Calls()
    found = fs.PyFileSystem(request.param(fs._MockFileSystem(), calls))
    monkeypatch.setattr(checkpoint, "located", lambda location: (found, location))
    shard.forget_all()
    return found, calls


@pytest.mark.parametrize(("store", "query"), [(Around, SUMS), (ObjectStore, SUMS), (Hdfs, JOIN)], indirect=["store"])
def test_an_attempt_may_die_at_any_call(store: tuple[fs.FileSystem, Calls], query: str) -> None:
    """One attempt after the other dies one call later, until one lives; then the next micro-batch."""
    filesystem, calls = store
    batches = made(1, 10, 3)
    job = job_of(DECLARE, {"query": query}, 2, bounded=False)
    running = Simulated(job, {}, root="c")
    found: Counter[object] = Counter()
    deaths = 0
    for i, batch in enumerate(batches):
        # Old versions are removed in the ninth.
        for at in range(1, 1000) if i in (0, 1, 5, 8) else ():
            calls.count, calls.fail_at = 0, at
            try:
                given = running.step(batch, i)
            except Killed:
                deaths += 1
                if at % 2:
                    shard.forget_all()
                continue
            if calls.count < at:
                break
            # What died was a call whose failure nobody minds, or the last one: the attempt lived.
        else:
            calls.fail_at = None
            given = running.step(batch, i)
        found += given
    assert found == wanted(query, batches)
    assert deaths > 40
    for folder in ("c/penstock/shard-00000-of-00002", "c/penstock/shard-00001-of-00002"):
        names = [f.base_name for f in filesystem.get_file_info(fs.FileSelector(folder, recursive=True))]
        versions = StateStore(folder, filesystem).versions()
        assert versions == [7, 8, 9]
        manifests = b"".join(
            filesystem.open_input_stream(f"{folder}/manifest-{v:012d}.json").read() for v in versions
        ).decode()
        for name in names:
            number = re.match(r"(?:manifest-)?(\d+)", name)
            assert number is None or int(number[1]) >= 7 or name in manifests, name


@pytest.mark.parametrize("store", [Around], indirect=True)
@pytest.mark.parametrize("call", ["open", "write", "move"])
def test_an_attempt_that_was_given_up_ends_after_others(store: tuple[fs.FileSystem, Calls], call: str) -> None:
    """A worker that nobody waits for any more stores its state when the query is further already."""
    _, calls = store
    batches = made(5, 30, 3)
    running = Simulated(job_of(DECLARE, {"query": JOIN}, 1, bounded=False), {}, root="c")
    found: Counter[object] = Counter()

    def others() -> None:
        for number in (i, i + 1):
            found.update(running.step(batches[number], number))

    calls.meanwhile = others
    for i in range(0, len(batches), 3):
        calls.meanwhile_at = call
        running.step(batches[i], i)
        assert calls.meanwhile_at == ""
        found += running.step(batches[i + 2], i + 2)
    assert found == wanted(JOIN, batches)


@pytest.mark.parametrize("store", [Around], indirect=True)
def test_a_full_disk_is_named_and_the_query_goes_on_when_there_is_room(store: tuple[fs.FileSystem, Calls]) -> None:
    _, calls = store
    calls.error = full
    batches = made(2, 6, 4)
    running = Simulated(job_of(DECLARE, {"query": SUMS}, 1, bounded=False), {}, root="c")
    found: Counter[object] = Counter()
    for i, batch in enumerate(batches):
        for nth in (2, 3):
            calls.count, calls.fail_at = 0, nth
            with pytest.raises(CheckpointError, match="No space left on device") as caught:
                running.step(batch, i)
            assert str(caught.value) == (
                f"c/penstock/shard-00000-of-00001: micro-batch {i} could not write its state: [Errno 28] No space left "
                "on device; make room, or mend what is said there, and start the query again: it goes on where it was"
            )
        calls.fail_at = None
        found += running.step(batch, i)
    assert found == wanted(SUMS, batches)


@pytest.mark.parametrize("store", [Around], indirect=True)
def test_the_state_of_a_steady_stream_does_not_grow(store: tuple[fs.FileSystem, Calls]) -> None:
    filesystem, _ = store
    running = Simulated(job_of(DECLARE, {"query": JOIN}, 2, bounded=False), {}, root="c")
    chosen = random.Random(3)
    counts: list[int] = []
    for i, batch in enumerate(made(4, 160, 3)):
        running.step(batch, i)
        if chosen.random() < 0.3:
            # An attempt that is repeated, by a worker that remembers nothing.
            shard.forget_all()
            running.step(batch, i)
        if i % 8 == 0:
            # Old versions have just been removed.
            counts.append(len(filesystem.get_file_info(fs.FileSelector("c", recursive=True))))
    # What grows all the time is three times as much in the second half.
    assert mean(counts[10:]) <= 1.5 * mean(counts[1:10]), counts


@pytest.mark.parametrize("store", [Around], indirect=True)
def test_late_rows_are_kept_once_however_many_queries_read_them(store: tuple[fs.FileSystem, Calls]) -> None:
    filesystem, calls = store
    queries = {"per key": "SELECT k, sum(v) AS n FROM s [RANGE 9] GROUP BY k", "all": "SELECT v FROM s [ROWS 3]"}
    job = job_of(DECLARE, queries, 2, bounded=False)
    assert len(job.parts) == 2
    running = Simulated(job, {}, root="c")
    running.step({"s": [(10, 1, 1), (30, 2, 2)]}, 0)
    late = {"s": [(24, 1, 3), (25, 2, 4), (26, 3, 5), (31, 1, 6)]}
    for fail_at in (1, 2, 3, 4, None):
        # Attempts that die, some of them halfway through the file.
        calls.count, calls.fail_at = 0, fail_at
        with nullcontext() if fail_at is None else pytest.raises(Killed):
            running.step(late, 1)
    found = pq.read_table("c/penstock/late/s", filesystem=filesystem).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(24, 1, 3), (25, 2, 4)]


def test_a_place_that_pyarrow_does_not_know() -> None:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.located("gopher://there/checkpoint")
    assert str(caught.value).startswith("gopher://there/checkpoint: files cannot be kept there: ")
    assert str(caught.value).endswith("; pyarrow knows file, hdfs, s3, gs and abfs")
