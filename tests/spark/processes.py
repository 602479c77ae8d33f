"""Programs of these tests as processes of their own, and how to be rid of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT


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


def kill(process: subprocess.Popen[bytes], *, workers: bool = True) -> None:
    """Kill a program with its Java and, unless told otherwise, its Python workers, which have a group of their own."""
    for pid in session_of(process.pid) if workers else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def session_of(leader: int) -> list[int]:
    """The processes that a program started, and those that they did."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which may have anything in it: state, parent, group, session.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    found.append(int(entry.name))
    return found
