"""Spark's standalone cluster: a master and workers, each a process of its own, on the loopback address.

    with standalone(folder) as cluster:
        penstock.connect(folder / "db", master=cluster.master)

Processes that a cluster starts are in the session of one of its own, so that they can be found and killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from tests.conftest import ROOT
from tests.spark.processes import command, session_of

_SPARK = Path(pyspark.__file__).parent
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java that lives for minutes does not earn back what its second compiler costs."""
_PATIENCE = 120
SETTINGS = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": _JAVA, "spark.cores.max": "2"}
"""Of a session on it."""
EXECUTOR, PYTHON = "CoarseGrainedExecutorBackend", "pyspark.daemon"
"""What the command lines of processes have in them."""


class Standalone:
    """A cluster that runs; ``folder`` has its logs and the files of its executors."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self, workers: int, cores: int = 1) -> None:
        """Start the master, and workers that have found it."""
        self._run("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
        for _ in range(workers):
            self.add(cores)
        for i in range(1, workers + 1):
            self._said(f"worker-{i}", "(Successfully registered) with master")

    def add(self, cores: int = 1) -> None:
        """Start another worker, without waiting for it."""
        self._run(
            f"worker-{len(self._processes)}", "worker.Worker", "--host", "127.0.0.1", "--port", "0",
            "--webui-port", "0", "--cores", str(cores), "--memory", "1g", "--work-dir", str(self._folder / "work"),
            self.master,
        )  # fmt: skip

    def lose(self, worker: int) -> None:
        """A worker dies with all that it has started, as a machine does."""
        _kill(self._processes[worker])

    def pids(self, what: str) -> list[int]:
        """Processes of its workers whose command line has this in it."""
        found = [pid for process in self._processes[1:] for pid in session_of(process.pid)]
        return [pid for pid in found if what in command(pid)]

    def close(self) -> None:
        """Kill all of it."""
        for process in reversed(self._processes):
            _kill(process)

    def _run(self, name: str, kind: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(
                [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments], stdout=log,
                stderr=log, cwd=self._folder, env=self._environment, start_new_session=True,
            ))  # fmt: skip

    def _said(self, name: str, pattern: str) -> str:
        until = time.monotonic() + _PATIENCE
        while True:
            text = (self._folder / f"{name}.log").read_text()
            found = re.search(pattern, text)
            if found is not None:
                return found[1]
            assert time.monotonic() < until, text[-4000:]
            assert all(p.poll() is None for p in self._processes), text[-4000:]
            time.sleep(0.05)


@contextlib.contextmanager
def standalone(
    folder: Path, environment: Mapping[str, str] | None = None, *, workers: int = 2, cores: int = 1
) -> Iterator[Standalone]:
    """A cluster. ``environment``: of its executors, which otherwise find this Penstock, and these tests, where this
    process does. ``cores``: of each worker."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {
        "SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _JAVA, "SPARK_LOCAL_DIRS": str(folder / "local"), "PYTHONPATH": paths,
    }  # fmt: skip
    cluster = Standalone(folder, {**os.environ, **own, **(environment or {})})
    try:
        cluster.start(workers, cores)
        yield cluster
    finally:
        cluster.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    for pid in [*session_of(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
