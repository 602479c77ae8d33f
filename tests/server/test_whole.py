"""A server with all three protocols: in a process of its own with psql and curl, and in this one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import penstock
from penstock.server import life, tls
from penstock.server.http import protocol
from penstock.server.settings import Settings
from tests.server import over_http
from tests.server.pg import until
from tests.server.process import ROOT, listening

DECLARE = "CREATE STREAM s (t BIGINT) TIMESTAMP BY t; CREATE QUERY q AS SELECT ISTREAM t FROM s [NOW]"


@contextmanager
def started(directory: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``penstock serve`` and its banner."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
    ports = ["--http", "0", "--flight", "0", "--postgres", "0"]
    command = [sys.executable, "-m", "penstock", "serve", str(directory), "--engine", "local", *ports, *more]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, env=clean) as process:
        try:
            assert process.stdout is not None
            banner = ""
            while "PostgreSQL" not in banner:
                line = process.stdout.readline()
                assert line, "it has ended"
                banner += line
            yield process, banner
        finally:
            if process.poll() is None:
                process.kill()


def port(banner: str, name: str) -> int:
    found = re.search(rf"{name} +\S+?:(\d+)(?:/|\s|$)", banner)
    assert found is not None, banner
    return int(found[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("encrypted", [False, True])
def test_it_ends_when_it_is_told_while_clients_of_all_protocols_are_connected(
    tmp_path: Path, number: signal.Signals, encrypted: bool
) -> None:
    """And does so by itself: after ``grace`` seconds it would be cut off, with another exit code."""
    directory = tmp_path / "plant"
    with started(directory, "--grace", "60", *(["--tls-self-signed"] if encrypted else [])) as (process, banner):
        token = re.search(r"pst_[\w-]+", banner)
        assert token is not None
        cert = directory / tls.CERT
        url = f"http{'s' if encrypted else ''}://127.0.0.1:{port(banner, 'HTTP')}"
        with penstock.connect(url, token=token[0], ca=str(cert) if encrypted else None) as db:
            db.execute(DECLARE)
            db.push("s", pa.table({"t": [1]}))
            told: list[int] = []
            db.queries["q"].subscribe(lambda table: told.extend(table.column("t").to_pylist()), position=0)
            until(lambda: told == [1])
            curl, psql = shutil.which("curl"), shutil.which("psql")
            assert curl is not None
            assert psql is not None
            clients = [
                subprocess.Popen(
                    [curl, "-skN", "-H", f"Authorization: Bearer {token[0]}", f"{url}/api/queries/q/answers"],
                    stdout=subprocess.PIPE,
                ),
                subprocess.Popen(
                    [psql, "-h", "127.0.0.1", "-p", str(port(banner, "PostgreSQL")), "-U", "admin", "plant", "-c",
                     "COPY (SUBSCRIBE q) TO STDOUT"], env={**os.environ, "PGPASSWORD": token[0]},
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                ),
            ]  # fmt: skip
            assert clients[0].stdout is not None
            assert clients[0].stdout.readline() == b"retry: 1000\n"
            until(lambda: "postgres" in db.execute("SELECT protocol FROM sys.sessions").table.column(0).to_pylist())  # type: ignore[union-attr]
            assert directory.stat().st_mode & 0o077 == 0, "what is in it is for who runs the server"
            assert {where.split()[0] for where in listening(process.pid)} <= {"127.0.0.1", "::ffff:127.0.0.1"}
            process.send_signal(number)
            assert process.wait(55) == 0
            for client in clients:
                client.communicate()


def presented(address: str, *, postgres: bool = False) -> str:
    """The certificate that a server shows."""
    host, _, number = address.rpartition(":")
    with socket.create_connection((host, int(number)), timeout=30) as plain:
        if postgres:
            plain.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
            assert plain.recv(1) == b"S"
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        with context.wrap_socket(plain) as held:
            found = held.getpeercert(binary_form=True)
            assert found is not None
            return ssl.DER_cert_to_PEM_cert(found)


def test_the_certificate_is_read_again_by_all_protocols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "_LOOK", 0.05)
    server = life.Server(str(tmp_path), Settings(engine="local", http=0, flight=0, postgres=0, tls_self_signed=True))
    server.start()
    cert, key = tmp_path / tls.CERT, tmp_path / tls.KEY
    try:

        def shown() -> set[str]:
            where = server.addresses
            return {presented(where["http"]), presented(where["flight"]), presented(where["postgres"], postgres=True)}

        def every(wanted: str) -> bool:
            try:
                return shown() == {wanted}
            except OSError:  # Flight listens anew
                return False

        first = cert.read_text()
        assert shown() == {first}
        cert.write_text("nonsense")
        server.reload()
        assert shown() == {first}, "the one before it stays"
        cert.unlink()
        key.unlink()
        tls.prepared(Settings(tls_self_signed=True), tmp_path)
        until(lambda: every(cert.read_text()))
        assert cert.read_text() != first
        host, _, number = server.addresses["postgres"].rpartition(":")
        with pytest.raises(psycopg.OperationalError, match="TLS only"):
            psycopg.connect(host=host, port=int(number), user="admin", password=server.token, sslmode="disable")
    finally:
        server.stop()


def test_a_certificate_that_is_none_is_found_before_the_server_starts(tmp_path: Path) -> None:
    made = tls.prepared(Settings(engine="local", tls_self_signed=True), tmp_path)
    assert life.problems(made) == []
    (tmp_path / tls.KEY).write_text("no key")
    (problem,) = life.problems(made)
    assert "are not a certificate and its key" in problem


def test_a_client_that_takes_a_long_answer_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STUCK_SECONDS", 0.5)
    looks = []
    taking = protocol.PatientProtocol._taking

    def look(self: protocol.PatientProtocol, before: int) -> None:
        looks.append(before)
        taking(self, before)

    monkeypatch.setattr(protocol.PatientProtocol, "_taking", look)
    with over_http.served() as to, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        slow.connect(to.address)
        body = b"SELECT range AS n FROM range(3000000)"
        head = f"POST /api/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {to.token}\r\nConnection: close\r\n"
        head += f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
        slow.sendall(head.encode() + body)
        size, rest, pauses = 0, b"", [12_000_000, 8_000_000]
        while data := slow.recv(65536):
            size, rest = size + len(data), (rest + data)[-10:]
            if pauses and size > pauses[-1]:
                pauses.pop()
                seen = len(looks)
                until(lambda seen=seen: len(looks) > seen)  # type: ignore[misc]
        assert rest.endswith(b"]]}]}")
        assert len(looks) >= 3
