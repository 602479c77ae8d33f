"""The driver is killed again and again and started from its checkpoint: nothing lost, nothing twice, nothing left over.

It is stopped by Ctrl-C first. ``make kills`` kills 50 times; the ordinary run of the tests kills a database once, and
stops or kills a streaming query once.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.storage.versions import StateStore
from tests.generated.language import Row
from tests.spark import killed_live
from tests.spark.frames import Folder
from tests.spark.killed import JOIN, QUERIES, SCHEMA
from tests.spark.processes import kill, program

KILLS = int(os.environ.get("PENSTOCK_KILLS", "1"))
SEED = int(os.environ.get("PENSTOCK_SEED", "4"))
DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
"""

# When a micro-batch writes what: its offsets, state, the sink's files, and last that it has ended.
MOMENTS = {
    "offsets written": "offsets/[0-9]*",
    "a piece of state written": "penstock/shard-*/pieces/*",
    "a manifest begun": "penstock/shard-*/manifest-*",
    "the state of a shard stored": "penstock/shard-*/manifest-*.json",
    "answers written": "../out/part-*",
    "answers of a pipeline written": "../sliding/batch=*/*",
    "answers named": "../sliding/batch=*/part-*",
    "sink has committed": "../out/_spark_metadata/[0-9]*",
    "ended": "commits/[0-9]*",
}


def files(root: Path, pattern: str) -> set[str]:
    places = [root] if pattern.startswith("../") else [root / "sql", root / "pipeline"]
    return {str(p) for place in places for p in place.glob(pattern.removeprefix("../"))}


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 400
    while not happened():
        assert process.poll() is None, f"ended by itself\n{log.read_text()[-4000:]}"
        assert time.monotonic() < until, f"nothing happens\n{log.read_text()[-4000:]}"
        time.sleep(0.002)


def made(seed: int, n: int) -> list[Row]:
    """No two rows at one time: Spark may read files of one micro-batch in any order, and kills put files together."""
    chosen = random.Random(seed)
    return [(3 * i + chosen.randrange(3), chosen.randrange(5), chosen.randrange(100)) for i in range(n)]


def wanted(query: str, rows: dict[str, list[Row]], *, closed: bool = False) -> Counter[object]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        q = db.query(query)
        for name in ("s", "r"):
            db.push(name, rows[name])
        for name in ("s", "r") if closed else ():
            db.close_stream(name)
        return Counter(tuple(row.values()) for row in q.fetch().to_pylist())


@pytest.mark.timeout(1140 + 60 * KILLS)  # a busy machine needs a minute to start Spark again
@pytest.mark.xdist_group("killed")
def test_a_driver_that_is_killed_again_and_again(tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    count = 3 * KILLS + 10
    rows = {name: made(seed, 25 * count) for seed, name in enumerate(("s", "r"))}
    for name, of_stream in rows.items():
        folder = Folder(tmp_path / name, SCHEMA)
        for i in range(count):
            folder.add(of_stream[25 * i : 25 * (i + 1)])
    log = tmp_path / "log"
    for i in range(KILLS + 1) if KILLS > 1 else [random.getrandbits(1)]:  # by default one of the two
        # Ctrl-C first: it must leave no less.
        moment = "ended" if i == 0 else chosen.choice(list(MOMENTS))
        nth, delay = chosen.randint(1, 3), chosen.choice([0, 0, chosen.random() / 20, chosen.random() / 2])
        before = files(tmp_path, MOMENTS[moment])
        with program("tests.spark.killed", tmp_path, log=log) as process:
            wait_for(lambda: len(files(tmp_path, MOMENTS[moment]) - before) >= nth, process, log)  # noqa: B023
            time.sleep(delay)
            if i == 0:
                os.kill(process.pid, signal.SIGINT)
                assert process.wait(120) == 0, log.read_text()[-4000:]
                said = re.search(r"penstock: stopped after micro-batch (\d+); (.*)", log.read_text())
                assert said is not None, log.read_text()[-4000:]
                assert said[2] == f"start it again with the checkpoint location file:{tmp_path / 'sql'} to go on"
                assert (tmp_path / "sql" / "commits" / said[1]).exists()
            else:
                kill(process, workers=chosen.random() < 0.7)
        assert not (tmp_path / "joined.parquet").exists(), f"it had ended before kill {i} ({moment}, {nth})"
    with program("tests.spark.killed", tmp_path, log=log) as process:
        assert process.wait(600) == 0, log.read_text()[-4000:]
    found = pq.read_table(tmp_path / "joined.parquet").to_pylist()
    assert Counter(tuple(row.values()) for row in found) == wanted(JOIN, rows)
    for name, text in QUERIES.items():
        table = ds.dataset(tmp_path / name, partitioning="hive").to_table().drop_columns(["batch"])
        given = Counter(tuple(row.values()) for row in table.to_pylist())
        if name == "both":  # pairs need not wait until both streams are as far
            assert wanted(text, rows) <= given <= wanted(text, rows, closed=True), name
        else:
            assert given == wanted(text, rows), name
        assert not list((tmp_path / name).rglob("_*")), "what a killed attempt wrote is gone"
    for query, shards in (("sql", 2), ("pipeline", 3)):
        stores = sorted((tmp_path / query / "penstock").glob("shard-*"))
        assert len(stores) == shards
        last = max(int(p.name) for p in (tmp_path / query / "commits").iterdir() if p.name.isdigit())
        for store in stores:
            assert_nothing_left_over(store, last)


# What a database writes, and when: rows, Spark's offsets, state, what a micro-batch gave, Spark's commits, deliveries;
# now and then queries move, and the state of the whole is saved.
STORED = "db/shards/part-*/*/manifest-*.json"
LIVE_MOMENTS = {
    "rows are in the log": "db/streams/*/*.segment",
    "Spark has written an offset": "db/spark/*/offsets/[0-9]*",
    "a piece of state written": "db/shards/part-*/*/pieces/*",
    "the state of a slot stored": STORED,
    "large answers written": "db/shards/answers/*",
    "a micro-batch counts": "db/results/*/*.segment",
    "Spark has committed": "db/spark/*/commits/[0-9]*",
    "a source is read further": "db/sources/*/offsets/[0-9]*",
    "rows of a source are written": "db/shards/rows/*",
    "Spark has committed rows of a source": "db/sources/*/commits/[0-9]*",
    "queries have moved": "db/catalog/*",
    "the state is saved": "db/state/*",
    "answers delivered": "*.csv",
}


def happened(root: Path, pattern: str) -> int:
    """Grows with every file that is new or has grown."""
    newest = 0
    with contextlib.suppress(FileNotFoundError):  # a folder has just been removed: it is looked again soon
        for path in root.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, path.stat().st_mtime_ns)
    return newest


@pytest.mark.timeout(1140 + 60 * KILLS)  # a busy machine needs a minute to start Spark again
@pytest.mark.xdist_group("killed")
def test_a_database_that_is_killed_again_and_again(tmp_path: Path) -> None:
    chosen = random.Random(SEED + 1)
    count = 12 * KILLS + 20
    log = tmp_path / "log"
    for i in range(KILLS):
        moment = chosen.choice(list(LIVE_MOMENTS))
        with program("tests.spark.killed_live", tmp_path, count, log=log) as process:
            # Spark is there once the first state has been stored.
            begun = happened(tmp_path, STORED)
            wait_for(lambda: happened(tmp_path, STORED) > begun, process, log)  # noqa: B023
            for _ in range(chosen.randint(1, 4)):
                before = happened(tmp_path, LIVE_MOMENTS[moment])
                wait_for(lambda: happened(tmp_path, LIVE_MOMENTS[moment]) > before, process, log)  # noqa: B023
            time.sleep(chosen.choice([0, 0, chosen.random() / 50]))
            kill(process, workers=chosen.random() < 0.7)
        assert not (tmp_path / "done").exists(), f"it had ended before kill {i} ({moment})"
    with program("tests.spark.killed_live", tmp_path, count, log=log) as process:
        assert process.wait(600) == 0, log.read_text()[-4000:]
    killed_live.check(tmp_path, count)


def assert_nothing_left_over(folder: Path, last: int) -> None:
    """Old versions are removed at every eighth micro-batch, and with them all that belongs to none."""
    oldest = last // 8 * 8 - 1
    store = StateStore(str(folder))
    assert store.versions() == list(range(oldest, last + 1))
    used = "".join(path.read_text() for path in folder.glob("manifest-*.json"))
    for path in [*folder.glob("manifest*"), *folder.glob("pieces/*")]:
        version = int(re.findall(r"\d{12}", path.name)[0])
        assert version >= oldest or path.name in used, path
