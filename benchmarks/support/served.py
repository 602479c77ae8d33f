"""``penstock serve`` in a process of its own that can be killed with everything below it, and a connection to it that
breaks when it hurts most."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.support.places import ROOT, python_path

PATIENCE = 600.0
"""Seconds for what must come to an end: Spark starts slowly on a machine that has other things to do."""

_END = 120.0
"""Seconds in which a server that was told to end has ended; it cuts everything off after its ``grace``."""


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def below(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it has just ended
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


class Served:
    """A server on a directory, always on the same ports. ``close`` ends it."""

    def __init__(self, directory: Path, engine: str, *more: str, errors: Path, postgres: bool = False) -> None:
        self.http, self.flight = free_port(), free_port()
        self.postgres = free_port() if postgres else None
        self._command = [
            sys.executable, "-m", "penstock", "serve", str(directory), "--engine", engine, "--http", str(self.http),
            "--flight", str(self.flight), "--postgres", str(self.postgres or "off"), *more,
        ]  # fmt: skip
        self._errors = errors
        self._process: subprocess.Popen[str] | None = None
        self.token = ""
        self.said = ""
        """On its standard output, after the banner."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it has been started"
        return self._process.pid

    def start(self) -> None:
        """Start it; clients may connect later."""
        environment = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
        environment["PYTHONPATH"] = python_path()
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Return when clients can connect."""
        assert self._process is not None, "it has been started"
        assert self._process.stdout is not None
        said = ""
        while "HTTP  " not in said:
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server has ended: {self._errors.read_text()[-4000:]}")
            said += line
        found = re.search(r"#token=(\S+)", said)
        if found is not None:
            self.token = found[1]

    def kill(self) -> None:
        """SIGKILL for the process and all below it: Spark's Java and its Python workers are in other groups."""
        assert self._process is not None, "it has been started"
        for pid in below(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell it to end; its exit code, when it has. A RuntimeError if it does not."""
        assert self._process is not None, "it has been started"
        self._process.send_signal(number)
        try:
            self.said = self._process.communicate(timeout=_END)[0]
        except subprocess.TimeoutExpired as late:
            self.kill()
            said = f"{late.output!r} {self._errors.read_text()[-4000:]}"
            raise RuntimeError(f"the server has not ended; it said {said}") from None
        return self._process.returncode

    def close(self) -> None:
        """SIGTERM; what has not ended after a minute is killed."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request; a RuntimeError where it is refused."""
        connection = HTTPConnection("127.0.0.1", self.http, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {text!r}")
        return json.loads(text) if text else None

    def sql(self, text: str) -> Any:
        return self.ask("POST", "/api/sql", {"sql": text})["results"]

    # -- what it uses ---------------------------------------------------------------------------------

    @property
    def processor(self) -> float:
        """Seconds of processor time so far, with what is below it."""
        ticks = 0
        for pid in below(self.pid):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """Megabytes of the server's own process in memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    @property
    def files(self) -> int:
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


class Cutting:
    """A way to a port of the server that sometimes breaks between commit and acknowledgement: what a client sends gets
    through, and when the server answers with ``mark`` both connections are closed instead. One thread for each
    connection, which ends with it; ``close`` ends all."""

    def __init__(self, port: int, mark: bytes, share: float, chance: random.Random) -> None:
        self._to, self._mark, self._share, self._chance = port, mark, share, chance
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.cuts = 0
        self._over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._over:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._to), timeout=10)
        except OSError:
            client.close()  # the server is away
            return
        with client, server, contextlib.suppress(OSError):
            while not self._over:
                ready, _, _ = select.select([client, server], [], [], 1.0)
                for each in ready:
                    data = each.recv(65536)
                    if not data:
                        return
                    if each is server and self._mark in data and self._chance.random() < self._share:
                        self.cuts += 1
                        return
                    (client if each is server else server).sendall(data)

    def close(self) -> None:
        self._over = True
        self._listening.close()


def until(there: Any, seconds: float = PATIENCE) -> None:
    """Wait for what others do; a RuntimeError if it takes too long."""
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise RuntimeError("it takes too long")
        time.sleep(0.02)
