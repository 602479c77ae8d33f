"""``penstock serve`` as a process of its own, with a protocol for tests in the place of PostgreSQL's: a line with a
token and a statement in, a line of JSON out.

    python -m tests.server.process serve DIR …
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from penstock import PenstockError
from penstock.server import life
from penstock.server.service import Service
from penstock.server.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


class Lines:
    """A ``Listener``. With PENSTOCK_TEST_STUCK it does not end by itself."""

    def start(self, service: Service, settings: Settings) -> str:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    token, _, text = line.decode().strip().partition(" ")
                    try:
                        session = service.login_token(token, protocol="python", remote="test")
                        said: dict[str, Any] = {"said": [o.message for o in service.execute(session, text)]}
                        service.logout(session)
                    except PenstockError as error:
                        said = {"error": type(error).__name__, "why": str(error)}
                    self.wfile.write(json.dumps(said).encode() + b"\n")

        self._server = socketserver.ThreadingTCPServer((settings.host, settings.postgres or 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return "{}:{}".format(*self._server.server_address[:2])

    def stop(self, deadline: float) -> None:
        if os.environ.get("PENSTOCK_TEST_STUCK"):
            threading.Event().wait()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Process:
    """A server in a process of its own, which ends with the block."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        clean = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.process", *arguments], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean | environment,
        )  # fmt: skip
        self.banner: list[str] = []

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def started(self) -> Process:
        """Returns when clients can connect."""
        assert self.process.stdout is not None
        while not any("PostgreSQL" in line for line in self.banner):
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"it has ended: {self.process.communicate()[1]}")
            self.banner.append(line.rstrip("\n"))
        return self

    @property
    def token(self) -> str | None:
        found = re.search(r"pst_[\w-]+", "\n".join(self.banner))
        return None if found is None else found[0]

    @property
    def address(self) -> tuple[str, int]:
        found = re.search(r"PostgreSQL +(\S+):(\d+)", "\n".join(self.banner))
        assert found is not None
        return found[1], int(found[2])

    def run(self, token: str | None, text: str) -> Any:
        with socket.create_connection(self.address, 60) as connection, connection.makefile("rw") as file:
            file.write(f"{token} {text}\n")
            file.flush()
            return json.loads(file.readline())

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Tell it to end; the exit code and what it said on the error output."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=240)
        return self.process.returncode, errors


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has just ended
            below.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += below.get(each, [])
    return found


def listening(pid: int) -> set[str]:
    """The addresses, with ports, of all sockets on which a process or one below it listens."""
    inodes: set[str] = set()
    for each in tree(pid):
        with suppress(OSError):  # it has just ended
            for link in Path(f"/proc/{each}/fd").iterdir():
                with suppress(OSError):  # it has just been closed
                    if (target := os.readlink(link)).startswith("socket:["):
                        inodes.add(target[8:-1])
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # LISTEN
                host, port = fields[1].split(":")
                raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8))
                family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
                found.add(f"{socket.inet_ntop(family, raw)} {int(port, 16)}")
    return found


if __name__ == "__main__":
    from penstock.cli.main import main

    stand_in = ModuleType(life.MODULES["postgres"])
    stand_in.listener = Lines  # type: ignore[attr-defined]
    sys.modules[life.MODULES["postgres"]] = stand_in
    sys.exit(main())
