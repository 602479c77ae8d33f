"""A real cluster, whose workers do not have this Penstock, and which loses an executor."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from tests.conftest import ON_CLUSTER
from tests.spark.cluster import QUERIES
from tests.spark.frames import Folder
from tests.spark.killed import SCHEMA
from tests.spark.processes import command, program, session_of
from tests.spark.standalone import EXECUTOR
from tests.spark.test_kills import made, wait_for, wanted
from tests.spark.test_standalone import other_penstock


@pytest.mark.skipif(not ON_CLUSTER, reason="it takes minutes on a busy machine: make cluster runs it")
@pytest.mark.timeout(1200)  # a busy machine needs minutes to start Spark again and again
@pytest.mark.xdist_group("killed")
def test_a_cluster_that_loses_an_executor(tmp_path: Path) -> None:
    rows = {name: made(seed, 200) for seed, name in enumerate(("s", "r"))}
    for name, of_stream in rows.items():
        folder = Folder(tmp_path / name, SCHEMA)
        for i in range(8):
            folder.add(of_stream[25 * i : 25 * (i + 1)])
    log = tmp_path / "log"
    with program("tests.spark.cluster", tmp_path, log=log, **workers(tmp_path)) as process:
        wait_for(lambda: (tmp_path / "checkpoint" / "commits" / "2").exists(), process, log)
        executors = [pid for pid in session_of(process.pid) if EXECUTOR in command(pid)]
        assert len(executors) == 2
        os.kill(executors[0], signal.SIGKILL)
        assert process.wait(400) == 0, log.read_text()[-4000:]
    for name, text in QUERIES.items():
        table = ds.dataset(tmp_path / name, partitioning="hive").to_table().drop_columns(["batch"])
        assert Counter(tuple(row.values()) for row in table.to_pylist()) == wanted(text, rows), name
    (path,) = (tmp_path / "paths").read_text().splitlines()
    assert path.startswith(f"{tmp_path}/tmp/penstock-{os.getuid()}/"), "workers use what was sent"


def workers(path: Path) -> dict[str, str]:
    """The environment of a cluster that leaves its files here, and whose Python has another Penstock."""
    (path / "home").mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (path / "home" / part.name).symlink_to(part)
    return {**other_penstock(path), "SPARK_HOME": str(path / "home")}
