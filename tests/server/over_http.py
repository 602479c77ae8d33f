"""A server that listens on loopback, and clients for it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

import penstock
from penstock.server.http.listener import listener
from penstock.server.service import Service
from penstock.server.settings import Settings


@dataclass
class Served:
    """A server, and what an administrator needs to ask it something."""

    service: Service
    url: str
    token: str
    now: list[int]
    """The time of the server's clock for tokens, in microseconds; tests move it."""

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.rpartition("//")[2].rsplit(":", 1)
        return host, int(port)

    def client(self, token: str | None = None) -> httpx.Client:
        """A client with a token, by default the administrator's."""
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=False)

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """What each statement gave."""
        found: list[dict[str, Any]] = []
        with self.client() as client:
            for text in statements:
                response = client.post("/api/sql", json={"sql": text})
                assert response.status_code == 200, response.text
                found += response.json()["results"]
        return found

    def token_of(self, user: str, lifetime: str = "") -> str:
        """A new user with a token."""
        expires = f" EXPIRES '{lifetime}'" if lifetime else ""
        made = self.sql(f"CREATE USER {user}", f"CREATE TOKEN {user}_token FOR {user}{expires}")
        return str(made[-1]["rows"][0][0])


@contextmanager
def served(path: Path | None = None, **settings: Any) -> Iterator[Served]:
    """A server on the local engine; with a path its database stays there."""
    given = Settings(engine="local", http=0, flight=None, postgres=None, **settings)
    now = [time.time_ns() // 1_000]
    with penstock.connect(path, engine="local") as db:
        service = Service(db, given, clock=lambda: now[0])
        token = service.access.first_start() or service.access.recover()
        http = listener()
        try:
            scheme = "https" if given.tls_cert is not None else "http"
            yield Served(service, f"{scheme}://{http.start(service, given)}", token, now)
        finally:
            http.stop(time.monotonic() + 10)
            service.close()


class Events:
    """A client of server-sent events that can be cut off at any byte."""

    def __init__(self, to: Served, path: str, *, token: str | None = None, last: int | None = None) -> None:
        self._socket = socket.create_connection(to.address, timeout=60)
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token or to.token}\r\n"
        head += "Accept: text/event-stream\r\n" + (f"Last-Event-ID: {last}\r\n" if last is not None else "") + "\r\n"
        self._socket.sendall(head.encode())
        self._rest = b""
        self.head = self._until(b"\r\n\r\n")
        self.status = int(self.head.split()[1])

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError(self._rest)
            self._rest += data
        found, _, self._rest = self._rest.partition(mark)
        return found

    def _chunk(self) -> bytes:
        size = int(self._until(b"\r\n"), 16)
        while len(self._rest) < size + 2:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError(self._rest)
            self._rest += data
        found, self._rest = self._rest[:size], self._rest[size + 2 :]
        return found

    def __iter__(self) -> Iterator[dict[str, str]]:
        """Events as the fields that they have; ends with the response."""
        text = b""
        while chunk := self._chunk():
            text += chunk
            while b"\n\n" in text:
                event, _, text = text.partition(b"\n\n")
                fields = dict(line.split(": ", 1) for line in event.decode().split("\n") if ": " in line)
                if fields:
                    yield fields

    def rows(self, count: int) -> list[tuple[int, dict[str, Any]]]:
        """The next results: the position behind each, and its row."""
        found: list[tuple[int, dict[str, Any]]] = []
        for event in self:
            if "data" in event:
                assert "event" not in event, event
                found.append((int(event["id"]), json.loads(event["data"])))
            if len(found) == count:
                break
        return found

    def cut(self) -> None:
        """End the connection without a word."""
        self._socket.close()


def path_of(kind: str, name: str, *more: str) -> str:
    """The path of a thing of any name."""
    return "/".join(["/api", kind, quote(name, safe=""), *more])
