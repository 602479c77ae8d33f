"""``penstock run --database`` on Spark is killed, or stopped by Ctrl-C, again and again, and started with the same
command: its files have every answer once, and it never hangs.

``make kills`` kills it 50 times and stops it 50 times; the ordinary run of the tests does neither, since each start of
Spark takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.killed_run import COMMAND, begin, check, grow
from tests.spark.processes import await_end, await_orphans, kill, program
from tests.spark.test_kills import KILLS, SEED, happened

MOMENTS = (
    "db/streams/*/*.segment", "db/spark/*/offsets/[0-9]*", "db/shards/part-*/*/pieces/*", "db/results/*/*.segment",
    "db/spark/*/commits/[0-9]*", "out/*.csv",
)  # fmt: skip
_STARTS = 8.0
"""Seconds within which a run is mostly struck that is not struck at a moment."""


class Runs:
    """Runs one after the other, each with more rows than the one before."""

    def __init__(self, root: Path, stack: contextlib.ExitStack, chosen: random.Random) -> None:
        self._root, self._stack, self._chosen = root, stack, chosen
        self._grown = 0
        self.log = root / "log"
        begin(root)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a run, also while processes of the one before live on."""
        self.log.write_bytes(b"")
        arguments = (self._root, *COMMAND, *options)
        noise = str(self._root / "spark.log")
        return self._stack.enter_context(
            program("tests.spark.killed_run", *arguments, log=self.log, PENSTOCK_SPARK_LOG=noise)
        )

    def grow(self, *, whole: bool = False) -> None:
        """More rows come; the last of them may lack its end."""
        self._grown += 1
        grow(self._root, self._grown, missing=0 if whole else self._chosen.randrange(4))

    def begun(self) -> tuple[subprocess.Popen[bytes], str]:
        """A run at some moment of its life, which may be over; in words, where it is."""
        self.grow()
        follows = self._chosen.random() < 0.5
        process = self.start("--follow" if follows else "--keep-open")
        if self._chosen.random() < 0.4:
            seconds = _STARTS * self._chosen.random()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            return process, f"after {seconds:.1f} s"
        moment = self._chosen.choice(MOMENTS)
        for _ in range(self._chosen.randint(1, 4)):
            before = happened(self._root, moment)
            self._until(lambda: happened(self._root, moment) > before, process)  # noqa: B023
            if follows:
                self.grow()
        if follows and self._chosen.random() < 0.3:  # all is done
            lengths = -1
            while lengths != (lengths := happened(self._root, "out/*.csv")):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.5)
            moment = "idle"
        return process, f"{moment}, {'follows' if follows else 'ends'}"

    def finish(self) -> None:
        """Play the files to their ends, and compare all answers."""
        self.grow(whole=True)
        assert await_end(self.start(), self.log, 600) == 0, self.said()
        check(self._root)

    def said(self) -> str:
        return self.log.read_text()[-6000:]

    def _until(self, happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + 20  # nothing more may happen there
        while not happened() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)


@pytest.mark.skipif(KILLS == 1, reason="it takes minutes: make kills runs it")
@pytest.mark.timeout(600 + 120 * KILLS)  # a busy machine needs a minute to start Spark again
@pytest.mark.xdist_group("killed")
def test_a_run_that_is_killed_again_and_again(tmp_path: Path) -> None:
    chosen = random.Random(SEED + 3)
    kills = 0
    with contextlib.ExitStack() as stack:
        runs = Runs(tmp_path, stack, chosen)
        while kills < KILLS:
            process, where = runs.begun()
            if process.poll() is None:
                kill(process, chosen.choice(("all", "driver and Java", "driver")))
                kills += 1
            else:
                assert process.returncode == 0, f"{where}\n{runs.said()}"
        runs.finish()


@pytest.mark.skipif(KILLS == 1, reason="it takes minutes: make kills runs it")
@pytest.mark.timeout(600 + 240 * KILLS)
@pytest.mark.xdist_group("killed")
def test_a_run_that_is_stopped_again_and_again(tmp_path: Path) -> None:
    chosen = random.Random(SEED + 4)
    ends = Counter[int]()
    with contextlib.ExitStack() as stack:
        runs = Runs(tmp_path, stack, chosen)
        while ends.total() < KILLS:
            process, where = runs.begun()
            if process.poll() is None:
                # A terminal tells all processes of the group.
                (os.killpg if chosen.random() < 0.5 else os.kill)(process.pid, signal.SIGINT)
                code = await_end(process, runs.log, 240)
                # Before Penstock hears of signals, Python ends by this one.
                assert code in (0, 130, -signal.SIGINT), f"{where}: {code}\n{runs.said()}"
                assert code != 130 or "Traceback" not in runs.said(), f"{where}\n{runs.said()}"
                ends[code] += 1
                print(f"{where}: {code}", flush=True)  # shown where the test fails, or with -s
                await_orphans(process)
            else:
                assert process.returncode == 0, f"{where}\n{runs.said()}"
        runs.finish()
    print(ends)
