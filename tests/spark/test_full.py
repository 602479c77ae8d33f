"""There is no room for what tasks write: the attempt fails, and nothing is lost, comes twice or is left behind."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.storage import files
from penstock.storage.versions import StateStore
from tests.conftest import ON_CLUSTER, ROOT
from tests.spark.direct import directly, host_of

DECLARE = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t"
QUERIES = {
    "sums": "SELECT k, sum(v) AS v FROM s [RANGE 20] GROUP BY k",
    "wide": "SELECT ISTREAM repeat('x', 9000) AS x, v FROM s",
}


def rows(i: int) -> list[tuple[int, int, int]]:
    return [(10 * i + j, j % 3, i * j) for j in range(10)]


def answered(db: penstock.Database, pushes: int) -> dict[str, Counter[str]]:
    """What all queries give, also where they have to be asked again."""
    for i in range(pushes):
        db.push("s", rows(i))
    return {name: Counter(map(repr, fetched(query))) for name, query in db.queries.items()}


def fetched(query: penstock.Query) -> list[dict[str, object]]:
    for _ in range(2):
        try:
            return list(query.fetch().to_pylist())
        except penstock.PenstockError as error:
            if os.strerror(errno.ENOSPC) not in error.message:
                raise
    raise AssertionError("there was no room once only")


def wanted(pushes: int) -> dict[str, Counter[str]]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        for name, text in QUERIES.items():
            db.query(text, name=name)
        return answered(db, pushes)


def read(folder: Path) -> str:
    """All bytes of a log, as far as they are text."""
    return "".join(path.read_bytes().decode("latin-1") for path in sorted(folder.rglob("*.segment")))


class Writes:
    """Counts what is written under ``shards/``; the one with number ``fails`` finds room for half of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.fails = 0, 0
        put, disk = StateStore._put, files.Disk.put

        def of_state(store: StateStore, path: str, parts: Sequence[pa.Buffer | bytes]) -> None:
            if self.has_room():
                return put(store, path, parts)
            put(store, path, [bytes(part)[: len(part) // 2] for part in parts])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def of_disk(where: files.Disk, path: str, content: Sequence[files.Bytes], *, sync: bool = False) -> None:
            if not path.startswith("shards/") or self.has_room():
                return disk(where, path, content, sync=sync)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(StateStore, "_put", of_state)
        monkeypatch.setattr(files.Disk, "put", of_disk)

    def has_room(self) -> bool:
        self.count += 1
        return self.count != self.fails


def test_any_write_of_a_task_may_find_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, fail, pushes = Writes(monkeypatch), 1, 3
    right = wanted(pushes)
    with directly(many=8192):
        while writes.fails <= writes.count:
            root = tmp_path / str(fail)
            with penstock.connect(root, engine="spark", shards=2, batch_rows=10, trigger=0) as db:
                db.execute(DECLARE)
                for name, text in QUERIES.items():
                    db.query(text, name=name)
                writes.count, writes.fails = 0, fail
                assert answered(db, pushes) == right, fail
                done = db.metrics().num_rows
                named = re.findall(r"shards/answers/[-0-9a-f]+\.arrow", read(root / "results"))
                assert len(os.listdir(root / "shards" / "answers")) == len(named), "others are of attempts that failed"
                for slot in (root / "shards").glob("part-*/slot-*"):
                    assert len(list(slot.glob("manifest-*"))) == done
                    assert len(list(slot.glob("pieces/*"))) <= done
            fail += 1
    assert fail > 8, "every kind of file was one that did not fit"


@pytest.mark.skipif(not ON_CLUSTER, reason="one of those that `make cluster` runs")
@pytest.mark.timeout(900)
def test_a_disk_that_is_full_under_a_cluster(tmp_path: Path) -> None:
    """A file system of some megabytes, which only the processes of the test see."""
    if subprocess.run(["unshare", "-Urm", "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system of his own")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    run = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-m", "tests.spark.full_live", str(tmp_path)], cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    assert json.loads(run.stdout.splitlines()[-1]) == [sorted(answers.elements()) for answers in wanted(9).values()]


def test_the_quota_counts_what_tasks_write_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """Rows are refused because of the state of slots; once it is smaller, what is older goes without a micro-batch."""
    text = "SELECT ISTREAM k, max(x) AS x FROM w [RANGE 100] GROUP BY k"
    with directly(), penstock.connect(tmp_path, engine="spark", shards=2, trigger="push", quota="2 MB") as db:
        db.execute("CREATE STREAM w (t BIGINT, k BIGINT, x STRING) TIMESTAMP BY t")
        query = db.query(text, name="q")
        store = host_of(db).kept.keeper.store

        def push(t: int) -> None:
            db.push("w", [(t, i, f"{t} {i} " * 500) for i in range(20)])

        def fill() -> None:
            for t in range(100):
                push(t)

        with pytest.raises(penstock.StorageError, match="the quota is 2 MB"):
            fill()
        assert db.stream("w").given > 60
        logs = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file() and "shards" not in p.parts)
        assert logs < 2_000_000, "others than tasks have not used it up"
        for t in range(1_000, 40_000, 1_000):
            query.fetch()
            db.heartbeat("w", t)  # nothing of what was before is in the window any more
            try:
                push(t)
            except penstock.StorageError:
                host_of(db).save()  # as it does by itself, some seconds later
                push(t)
        host_of(db).save()
        used = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
        assert used < 2_600_000
        assert abs(store.used - used) < 400_000
