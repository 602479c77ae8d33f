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
from tests.spark.killed import FILTER, JOIN, QUERIES, SCHEMA
from tests.spark.processes import JAVA, Struck, await_orphans, command, kill, program, session_of, signal_orphans

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
    "answers written": "../out/*/part-*",
    "answers of a pipeline written": "../sliding/batch=*/*",
    "answers named": "../sliding/batch=*/part-*",
    "sink has committed": "../out/*/_spark_metadata/[0-9]*",
    "ended": "commits/[0-9]*",
}


def files(root: Path, pattern: str) -> set[str]:
    places = [root] if pattern.startswith("../") else [*(root / "sql").glob("*"), root / "pipeline"]
    return {str(p) for place in places for p in place.glob(pattern.removeprefix("../"))}


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes] | None, log: Path) -> None:
    """``process``: has to live on."""
    until = time.monotonic() + 400
    while not happened():
        assert process is None or process.poll() is None, f"ended by itself\n{log.read_text()[-4000:]}"
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


class Drivers:
    """Drivers that are killed and started again at once, while what they have started may live on: Java, executors and
    Python workers in the middle of a micro-batch. Some of it stops at the kill and goes on when the next driver works.
    """

    def __init__(self, stack: contextlib.ExitStack, chosen: random.Random, module: str, root: Path, *more: int) -> None:
        self._stack, self._chosen = stack, chosen
        self._module, self._arguments = module, (root, *more)
        self._killed: list[subprocess.Popen[bytes]] = []
        self.log = root / "log"

    def start(self) -> subprocess.Popen[bytes]:
        return self._stack.enter_context(program(self._module, *self._arguments, log=self.log))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        what: Struck = self._chosen.choice(("all", "driver and Java", "driver", "driver"))
        if what == "driver" and self._chosen.random() < 0.5:
            signal_orphans(process, signal.SIGSTOP)
        kill(process, what)
        self._killed.append(process)

    def goes_on(self) -> None:
        """The driver that was started last works: what was stopped goes on."""
        for process in self._killed[-1:]:
            signal_orphans(process, signal.SIGCONT)

    def end(self) -> None:
        """The last driver ends in order; what the others left has ended, or does so by itself."""
        process = self.start()
        self.goes_on()
        assert process.wait(600) == 0, self.log.read_text()[-4000:]
        for killed in self._killed:
            await_orphans(killed)


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
    with contextlib.ExitStack() as stack:
        drivers = Drivers(stack, chosen, "tests.spark.killed", tmp_path)
        for i in range(KILLS + 1) if KILLS > 1 else [random.getrandbits(1)]:  # by default one of the two
            # Ctrl-C first: it must leave no less.
            moment = "ended" if i == 0 else chosen.choice(list(MOMENTS))
            nth, delay = chosen.randint(1, 3), chosen.choice([0, 0, chosen.random() / 20, chosen.random() / 2])
            before = files(tmp_path, MOMENTS[moment])
            process = drivers.start()
            wait_for(lambda: len(files(tmp_path, MOMENTS[moment]) - before) >= nth, process, log)  # noqa: B023
            drivers.goes_on()
            time.sleep(delay)
            if i == 0:
                os.kill(process.pid, signal.SIGINT)
                assert process.wait(120) == 0, log.read_text()[-4000:]
                said = re.search(r"penstock: stopped after micro-batch (\d+); (.*)", log.read_text())
                assert said is not None, log.read_text()[-4000:]
                checkpoint = tmp_path / "sql" / "joined"
                assert said[2] == f"start it again with the checkpoint location file:{checkpoint} to go on"
                assert (checkpoint / "commits" / said[1]).exists()
            else:
                drivers.kill(process)
            assert not (tmp_path / "filtered.parquet").exists(), f"it had ended before kill {i} ({moment}, {nth})"
        drivers.end()
    for name, text in (("joined", JOIN), ("filtered", FILTER)):
        found = pq.read_table(tmp_path / f"{name}.parquet").to_pylist()
        assert Counter(tuple(row.values()) for row in found) == wanted(text, rows), name
    for name, text in QUERIES.items():
        table = ds.dataset(tmp_path / name, partitioning="hive").to_table().drop_columns(["batch"])
        given = Counter(tuple(row.values()) for row in table.to_pylist())
        if name == "both":  # pairs need not wait until both streams are as far
            assert wanted(text, rows) <= given <= wanted(text, rows, closed=True), name
        else:
            assert given == wanted(text, rows), name
        assert not list((tmp_path / name).rglob("_*")), "what a killed attempt wrote is gone"
    for query, shards in (("sql/joined", 2), ("sql/filtered", 2), ("pipeline", 3)):
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


_COUNT = 100
"""Batches of a database whose driver lives on."""
# What runs beside a driver, by command lines; a Python process is a daemon or one that it has forked.
KINDS = {
    "java": JAVA,
    "worker": r"spark\.daemon pyspark\.worker",
    "all workers": r"spark\.daemon",
    "what Spark asks for the next micro-batch": "python_streaming_source_runner",
    "what reads a source": "plan_data_source_read|create_data_source",
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
    with contextlib.ExitStack() as stack:
        drivers = Drivers(stack, chosen, "tests.spark.killed_live", tmp_path, count)
        for i in range(KILLS):
            moment = chosen.choice(list(LIVE_MOMENTS))
            process = drivers.start()
            # Spark is there once the first state has been stored.
            begun = happened(tmp_path, STORED)
            wait_for(lambda: happened(tmp_path, STORED) > begun, process, drivers.log)  # noqa: B023
            drivers.goes_on()
            for _ in range(chosen.randint(1, 4)):
                before = happened(tmp_path, LIVE_MOMENTS[moment])
                wait_for(lambda: happened(tmp_path, LIVE_MOMENTS[moment]) > before, process, drivers.log)  # noqa: B023
            time.sleep(chosen.choice([0, 0, chosen.random() / 50]))
            drivers.kill(process)
            assert not (tmp_path / "done").exists(), f"it had ended before kill {i} ({moment})"
        drivers.end()
    killed_live.check(tmp_path, count)


@pytest.mark.skipif(KILLS == 1, reason="it takes minutes: make kills runs it")
@pytest.mark.timeout(1140 + 120 * KILLS)  # Java is started again after half of the kills
@pytest.mark.xdist_group("killed")
def test_a_database_whose_java_and_workers_are_killed_again_and_again(tmp_path: Path) -> None:
    """The driver lives on and goes on by itself."""
    chosen = random.Random(SEED + 5)
    kills = rounds = 0
    while kills < KILLS:
        root, rounds = tmp_path / str(rounds), rounds + 1
        root.mkdir()
        log = root / "log"
        with program("tests.spark.killed_live", root, _COUNT, log=log) as process:
            while process.poll() is None and kills < KILLS:
                kind, moment = chosen.choice(list(KINDS)), chosen.choice(list(LIVE_MOMENTS))
                # It works, with the Java that it has now.
                for pattern in (STORED, *[LIVE_MOMENTS[moment]] * chosen.randint(1, 3)):
                    before = happened(root, pattern)
                    wait_for(lambda: happened(root, pattern) > before or process.poll() is not None, None, log)  # noqa: B023
                time.sleep(chosen.choice([0, 0, chosen.random() / 50, chosen.random()]))
                found = [pid for pid in session_of(process.pid) if re.search(KINDS[kind], command(pid))]
                for pid in found if kind == "all workers" else [chosen.choice(found)] if found else []:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                kills += bool(found) and not (root / "done").exists()
                print(f"{rounds}, {kills}: {kind}, {moment}: {len(found)}", flush=True)  # shown if the test fails
            assert process.wait(600) == 0, log.read_text()[-4000:]
        killed_live.check(root, _COUNT)
    assert kills >= rounds, "each database lives through some"


def assert_nothing_left_over(folder: Path, last: int) -> None:
    """Old versions are removed at every eighth micro-batch, and with them all that belongs to none."""
    oldest = last // 8 * 8 - 1
    store = StateStore(str(folder))
    assert store.versions() == list(range(oldest, last + 1))
    used = "".join(path.read_text() for path in folder.glob("manifest-*.json"))
    for path in [*folder.glob("manifest*"), *folder.glob("pieces/*")]:
        version = int(re.findall(r"\d{12}", path.name)[0])
        assert version >= oldest or path.name in used, path
