"""A benchmark in a process of its own: what it says as it goes, how it ended.

The process leads a group of its own, so that Ctrl-C reaches only us and we end the group: the benchmark, its Java, its
workers. Two threads read what it says; both end with the process, whose pipes they hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.support.common import clock
from benchmarks.support.report import EVENTS

TICK = 0.25
"""Seconds after which somebody who watches sees that time passes."""
PATIENCE = 5.0
"""Seconds that a process has to end by itself."""
LAST = 40
"""Lines that are kept of what a process says besides its events."""

_TICKS = os.sysconf("SC_CLK_TCK")
"""Of processor time in a second."""

Event = dict[str, Any]


@dataclass
class Ended:
    """How a process ended. ``late``: it was stopped, as it took too long."""

    seconds: float
    code: int
    said: list[str] = field(default_factory=list)
    late: bool = False

    @property
    def error(self) -> str | None:
        """What went wrong, in a line."""
        if self.late:
            return f"stopped after {self.seconds:.0f} s"
        if self.code == 0:
            return None
        why = next((line.strip() for line in reversed(self.said) if line.strip()), "it said nothing")
        if self.code < 0:
            return f"ended by signal {signal.Signals(-self.code).name}: {why}"
        return why


def run(
    command: Sequence[str],
    heard: Callable[[Event], None],
    tick: Callable[[float], None] = lambda seconds: None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    limit: float | None = None,
) -> Ended:
    """Run a command to its end, or for ``limit`` seconds. ``heard`` is called with each event, ``tick`` with the
    seconds so far. Ctrl-C ends the process; KeyboardInterrupt is raised when all it had said is heard."""
    with _ctrl_c() as pressed:
        ended = _run(command, heard, tick, {**os.environ, **(environment or {}), EVENTS: "1"}, folder, limit, pressed)
    if pressed.is_set():
        raise KeyboardInterrupt
    return ended


@contextlib.contextmanager
def _ctrl_c() -> Iterator[threading.Event]:
    """Ctrl-C sets an event as long as this lasts: it must not hit a place where a process is only half started."""
    pressed = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    signal.signal(signal.SIGINT, lambda number, frame: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _run(
    command: Sequence[str], heard: Callable[[Event], None], tick: Callable[[float], None],
    environment: Mapping[str, str], folder: Path | None, limit: float | None, pressed: threading.Event,
) -> Ended:  # fmt: skip
    began = clock()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", cwd=folder, start_new_session=True, env=environment,
    )  # fmt: skip
    said: deque[str | None] = deque(maxlen=LAST)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    assert process.stdout is not None
    assert process.stderr is not None
    readers = [
        threading.Thread(target=_read, args=(process.stdout, lines.put), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, said.append), daemon=True),
    ]
    for reader in readers:
        reader.start()

    def take(line: str) -> None:
        event = _event(line)
        if event is not None:
            heard(event)
        elif line.strip():
            said.append(line)

    late = False
    try:
        while not late and not pressed.is_set():
            late = limit is not None and clock() - began > limit
            tick(clock() - began)
            try:
                line = lines.get(timeout=TICK)
            except queue.Empty:
                continue
            if line is None:
                process.wait()
                break
            take(line)
    finally:
        stop(process)
        for reader in readers:
            reader.join(PATIENCE)
        with contextlib.suppress(queue.Empty):  # what it had said before it was stopped
            while (line := lines.get_nowait()) is not None:
                take(line)
    return Ended(clock() - began, process.returncode, [line for line in said if line], late)


def _read(pipe: IO[str], take: Callable[[Any], None]) -> None:
    with contextlib.suppress(ValueError), pipe:
        for line in pipe:
            take(line.rstrip("\n"))
    take(None)


def _event(line: str) -> Event | None:
    """A line of JSON that says what it is, or None."""
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def stop(process: subprocess.Popen[str]) -> None:
    """End a process and all that it has started."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            _signal(process, what)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
    _signal(process, signal.SIGKILL)  # who of the group has outlived it


def _signal(process: subprocess.Popen[str], what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, what)


def processor_seconds(pid: int) -> float:
    """Processor time of a process and of those that it has waited for; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS
