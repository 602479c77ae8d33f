"""Programs of these tests as processes of their own, and how to be rid of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tests.conftest import ROOT

Struck = Literal["all", "driver and Java", "driver"]
"""What is killed of a program."""
JAVA = "pyspark-shell"
"""What the command line of a driver's Java has in it."""
_PATIENCE = 120
"""Seconds that orphans have on a busy machine; on a quiet one they need two."""


@contextlib.contextmanager
def program(module: str, *arguments: object, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running module of these tests, in a session of its own; what is left of it at the end is killed."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)], stdout=out, stderr=out, start_new_session=True,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": paths, **environment}, preexec_fn=interruptible,
        )  # fmt: skip
    try:
        yield process
    finally:
        kill(process)


def interruptible() -> None:
    """In a process to be: hear Ctrl-C, also where whoever runs the tests does not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def kill(process: subprocess.Popen[bytes], what: Struck = "all") -> None:
    """Kill a program: with all that it started; with its Java, but without the Python workers, which have groups of
    their own; or alone, so that Java and its workers are orphans."""
    for pid in session_of(process.pid) if what == "all" else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if what == "driver":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def signal_orphans(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to all that a program started, but not to itself."""
    for pid in session_of(process.pid):
        if pid != process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def await_orphans(process: subprocess.Popen[bytes]) -> None:
    """Wait until all that a killed program left has ended, which it has to do by itself."""
    until = time.monotonic() + _PATIENCE
    while left := session_of(process.pid):
        assert time.monotonic() < until, f"orphans live on: {[command(pid) for pid in left]}"
        time.sleep(0.05)


def await_end(process: subprocess.Popen[bytes], log: Path, seconds: float) -> int:
    """The exit code of a program that ends by itself. One that hangs says where: Java at SIGQUIT, and Python at
    SIGUSR1, for which it has to have a handler of ``faulthandler``."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        for pid in session_of(process.pid):
            if JAVA in command(pid):
                os.kill(pid, signal.SIGQUIT)
        process.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)  # while they write
        raise AssertionError(f"it does not end\n{log.read_text()[-60_000:]}") from None


def session_of(leader: int) -> list[int]:
    """The processes that a program started, and those that they did, and itself; not those that have ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which may have anything in it: state, parent, group, session.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def command(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""
