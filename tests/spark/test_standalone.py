"""A database on Spark's standalone cluster, in separate processes, any of which may be killed: nothing lost, nothing
twice. The executors do not have this Penstock: it is sent.

``make cluster`` kills 10 times; the ordinary run of the tests kills processes of ``local`` and ``local-cluster`` alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ON_CLUSTER
from tests.spark import killed_live
from tests.spark.processes import JAVA, Struck, command, kill, program, session_of
from tests.spark.standalone import EXECUTOR, PYTHON, Standalone, standalone
from tests.spark.test_kills import LIVE_MOMENTS, SEED, STORED, happened, wait_for

KILLS = int(os.environ.get("PENSTOCK_KILLS", "10"))
MOMENTS = ("rows are in the log", "a piece of state written", "a micro-batch counts")
KINDS = ("executor", "driver", "python worker", "java of the driver", "machine")


@pytest.mark.skipif(not ON_CLUSTER, reason="it takes minutes: make cluster runs it")
@pytest.mark.timeout(1200)  # a busy machine needs minutes to start Spark again and again
@pytest.mark.xdist_group("killed")
def test_a_database_on_a_cluster_whose_processes_are_killed(tmp_path: Path) -> None:
    chosen = random.Random(SEED + 2)
    count, log = 8 * KILLS + 4, tmp_path / "log"
    own = other_penstock(tmp_path)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(standalone(tmp_path / "cluster", own))
        process: subprocess.Popen[bytes] | None = None

        def driver() -> subprocess.Popen[bytes]:
            return stack.enter_context(
                program("tests.spark.killed_live", tmp_path, count, log=log, PENSTOCK_MASTER=cluster.master, **own)
            )

        for i in range(KILLS):
            kind = KINDS[i % len(KINDS)]
            process = process or driver()
            begun = happened(tmp_path, STORED)
            wait_for(lambda: happened(tmp_path, STORED) > begun, process, log)  # noqa: B023
            moment = LIVE_MOMENTS[chosen.choice(MOMENTS)]
            before = happened(tmp_path, moment)
            wait_for(lambda: happened(tmp_path, moment) > before, process, log)  # noqa: B023
            if kind == "driver":
                what: Struck = chosen.choice(("all", "driver"))
                kill(process, what)  # the executors live on for a while, or Java too
                process = None
            else:
                strike(kind, cluster, process, chosen)
            assert not (tmp_path / "done").exists(), f"it had ended before kill {i} ({kind})"
        process = process or driver()
        assert process.wait(600) == 0, log.read_text()[-4000:]
        assert list((tmp_path / "tmp" / f"penstock-{os.getuid()}").iterdir()), "the executors use what was sent"
    killed_live.check(tmp_path, count)


def strike(kind: str, cluster: Standalone, driver: subprocess.Popen[bytes], chosen: random.Random) -> None:
    """Kill something of a cluster while a database goes on."""
    if kind == "machine":
        cluster.add()
        cluster.lose(1)
        return
    if kind == "java of the driver":
        found = [pid for pid in session_of(driver.pid) if JAVA in command(pid)]
    else:
        found = cluster.pids(EXECUTOR if kind == "executor" else PYTHON)
    assert found, kind
    for pid in found if kind == "java of the driver" else [chosen.choice(found)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def other_penstock(path: Path) -> dict[str, str]:
    """The environment of executors whose Python has another Penstock, and which leave their files here."""
    (path / "tmp").mkdir()
    other = path / "other" / "penstock"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('this is another Penstock')\n")
    python = path / "python"
    # What Spark runs beside the driver finds what the driver does.
    python.write_text(
        f'#!/bin/sh\nif [ -n "$SPARK_EXECUTOR_DIRS" ]; then export PYTHONPATH="{other.parent}:$PYTHONPATH"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return {"PYSPARK_PYTHON": str(python), "TMPDIR": str(path / "tmp")}
