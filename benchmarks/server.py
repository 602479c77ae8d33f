"""A server under load, under kills and under bytes that nobody would send.

    python -m benchmarks.server [--quick] [--scale X] [--only PART …] [--engine local|spark] [--seconds N] [--kills N]
        [--messages N]

``load``: 500 subscribers of server-sent events over 50 queries, and 20 writers that send 1,000 rows a second in
requests of 50, each row for one of the queries: about 10,000 events a second go out. The server, the subscribers and
the writers are processes of their own, so the server's processor time is its own; it is on the local engine. One more
subscriber never reads. Each subscriber checks that positions follow each other without a gap; the time from the request
of a row to its event is measured by clients on the same machine.

``pushes``: pushes of one row and of 50,000 rows, and a fetch, through the Python client, by Flight and over HTTP, and
with the same calls in process.

``kills``: ``penstock serve`` is killed with SIGKILL at random moments, with all processes below it, while clients push
and read over all protocols; see ``benchmarks.support.kills``. Rows that were acknowledged and results that were read
are there once, and results are those of the reference. ``--engine spark`` kills it with its Spark.

``fuzz``: 100,000 random and changed messages to the PostgreSQL port, before and after the login, and as many to that of
Flight SQL; see ``benchmarks.support.fuzz``.

The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.support import fuzz as fuzzing
from benchmarks.support import kills as killing
from benchmarks.support.report import Report, amount, options, progress

PARTS = ("load", "pushes", "kills", "fuzz")
QUERIES = 50
ROWS = 50
WRITERS = 20
EACH = 10
"""Subscribers of a query."""
SPLIT = 2
"""Processes of subscribers."""
_EVENT = re.compile(rb"id: (\d+)\ndata: (\{[^\n]*\})\n\n")
_IDLE = 10.0
"""Seconds of watching a server that has nothing to do."""


class Server:
    """A server in a process of its own; ended by ``close``."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.server", "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        self.host, port = told["address"].rsplit(":", 1)
        self.port, self.token = int(port), told["token"]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        connection = HTTPConnection(self.host, self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {text!r}")
        return json.loads(text) if text else None

    @property
    def processor(self) -> float:
        """Seconds of processor time so far."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """Megabytes in memory."""
        with open(f"/proc/{self._process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve() -> None:
    """The process of the server: until its standard input ends."""
    import penstock
    from penstock.server.http.listener import listener
    from penstock.server.service import Service
    from penstock.server.settings import Settings

    settings = Settings(engine="local", http=0, flight=None, postgres=None, sessions=2_000)
    with penstock.connect(engine="local") as db:
        service = Service(db, settings)
        token = service.access.first_start()
        http = listener()
        print(json.dumps({"address": http.start(service, settings), "token": token}), flush=True)
        sys.stdin.read()
        http.stop(time.monotonic() + 5)


# -- clients ------------------------------------------------------------------------------------------


class _Subscriber(asyncio.Protocol):
    """Reads events, and asks for nothing but that no position is missing."""

    def __init__(self, request: bytes, latencies: list[float]) -> None:
        self._request, self._latencies = request, latencies
        self._rest = b""
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.next: int | None = None
        self.count = self.gaps = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now = time.time()
        text = self._rest + data
        if not self.begun.done() and b"retry:" in text:
            self.begun.set_result(None)
        end = 0
        for found in _EVENT.finditer(text):
            position = int(found[1])
            self.gaps += self.next is not None and position != self.next + 1
            self.next, end = position, found.end()
            self.count += 1
            if self.count % 8 == 0:
                self._latencies.append(now - json.loads(found[2])["sent"])
        self._rest = text[end:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.begun.done():
            self.begun.set_exception(ConnectionError(self._rest[:200]))


def _get(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def subscribers(host: str, port: int, token: str, which: list[int], pipe: Connection) -> None:
    """A process with a connection for each entry of ``which``, the number of its query."""

    async def run() -> None:
        loop, latencies = asyncio.get_running_loop(), list[float]()
        all: list[tuple[int, _Subscriber]] = []
        for query in which:
            request = _get(f"/api/queries/q{query}/answers?from=start", token)
            _, each = await loop.create_connection(partial(_Subscriber, request, latencies), host, port)
            await each.begun
            all.append((query, each))
        pipe.send("ready")
        expected: dict[int, int] = await loop.run_in_executor(None, pipe.recv)
        until = time.monotonic() + 20
        while any(each.count < expected[query] for query, each in all) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        lost = sum(max(0, expected[query] - each.count) for query, each in all)
        more = sum(max(0, each.count - expected[query]) for query, each in all)
        pipe.send((sum(each.count for _, each in all), lost, more, sum(each.gaps for _, each in all), latencies))

    asyncio.run(run())


def writers(host: str, port: int, token: str, seconds: float, pipe: Connection) -> None:
    """A process with all writers; each sends a request every second, one after the other."""

    async def write(number: int, began: float) -> tuple[int, list[float]]:
        reader, writer = await asyncio.open_connection(host, port)
        count, took = 0, []
        while (at := began + count + number / WRITERS) < began + seconds:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            now = time.time()
            body = json.dumps([{"k": k, "n": count, "writer": number, "sent": now} for k in range(ROWS)]).encode()
            writer.write(
                f"POST /api/streams/s/rows HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
                f"Idempotency-Key: w{number}:{count}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode() + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            found = re.search(rb"content-length: (\d+)", head)
            assert found is not None
            await reader.readexactly(int(found[1]))
            took.append(time.time() - now)
            count += 1
        writer.close()
        return count, took

    async def run() -> None:
        began = time.monotonic() + 0.2
        done = await asyncio.gather(*(write(i, began) for i in range(WRITERS)))
        took = [t for _, some in done for t in some]
        pipe.send((sum(count for count, _ in done), took, time.monotonic() - began))

    asyncio.run(run())


def _part(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def load(report: Report, seconds: float) -> None:
    """The load of the documentation of this module."""
    server = Server()
    try:
        server.ask("POST", "/api/sql", {"sql": "CREATE STREAM s (k BIGINT, n BIGINT, writer BIGINT, sent DOUBLE)"})
        for i in range(QUERIES):
            cql = f"SELECT n, writer, sent FROM s WHERE k = {i}"
            server.ask("POST", "/api/queries", {"name": f"q{i}", "cql": cql, "options": {"results": "4 MB"}})
        spawned = multiprocessing.get_context("spawn")
        which = [i % QUERIES for i in range(QUERIES * EACH)]
        readers = []
        for part in range(SPLIT):
            ours, theirs = spawned.Pipe()
            given = (server.host, server.port, server.token, which[part::SPLIT], theirs)
            process = spawned.Process(target=subscribers, args=given, daemon=True)
            process.start()
            readers.append((process, ours))
        for _, pipe in readers:
            assert pipe.recv() == "ready"
        idle = socket.create_connection((server.host, server.port))
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(_get("/api/queries/q0/answers", server.token))
        memory, used, began = server.memory, server.processor, time.monotonic()
        ours, theirs = spawned.Pipe()
        writing = spawned.Process(
            target=writers, args=(server.host, server.port, server.token, seconds, theirs), daemon=True
        )
        writing.start()
        requests, took, lasted = ours.recv()
        for _, pipe in readers:
            pipe.send(dict.fromkeys(range(QUERIES), requests))
        found = [pipe.recv() for _, pipe in readers]
        wall, used = time.monotonic() - began, server.processor - used
        grown = server.memory - memory
        events, lost, more, gaps = (sum(each[i] for each in found) for i in range(4))
        latencies = [value for each in found for value in each[4]]
        report.add("server: rows a second in", requests * ROWS / lasted)
        report.add("server: events a second out", events / lasted)
        report.add("server: events lost, doubled or out of order", lost + more + gaps, 0, below=True)
        report.add("server: milliseconds from request to event, p50", 1e3 * statistics.median(latencies))
        report.add("server: milliseconds from request to event, p99", 1e3 * _part(latencies, 0.99))
        report.add("server: milliseconds of a request with 50 rows, p50", 1e3 * statistics.median(took))
        report.add("server: milliseconds of a request with 50 rows, p99", 1e3 * _part(took, 0.99))
        report.add("server: processor seconds a second", used / wall, note="of the server alone")
        report.add("server: megabytes more than before", grown, 300, below=True)
        time.sleep(1.0)
        used, began = server.processor, time.monotonic()
        time.sleep(_IDLE)
        share = (server.processor - used) / (time.monotonic() - began)
        report.add("server: share of a core while nothing comes", share, 0.03, below=True, note="with the subscribers")
        idle.close()
        for process, _ in readers:
            process.join(10)
    finally:
        server.close()


# -- the Python client ----------------------------------------------------------------------------------


def pushes(report: Report, quick: bool) -> None:
    """The same calls through the client and in process, each on a durable database with ``sync = group``."""
    import penstock

    for way in ("flight", "HTTP", "in process"):
        with tempfile.TemporaryDirectory() as folder:
            if way == "in process":
                with penstock.connect(folder, engine="local", sync="group") as db:
                    _pushes(report, db, way, quick)
                continue
            command = [sys.executable, "-m", "penstock", "serve", folder, "--engine", "local", "--http", "0"]
            command += ["--flight", "0" if way == "flight" else "off", "--postgres", "off"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                banner = ""
                while "/api" not in banner:
                    banner += process.stdout.readline()
                token, url = re.search(r"pst_[\w-]+", banner), re.search(r"HTTP +(\S+)/api", banner)
                assert token is not None
                assert url is not None
                with penstock.connect(url[1], token=token[0]) as db:
                    _pushes(report, db, way, quick)
                process.terminate()


def _pushes(report: Report, db: Any, way: str, quick: bool) -> None:
    import pyarrow as pa

    db.execute("CREATE STREAM s (t BIGINT, v DOUBLE, g STRING) TIMESTAMP BY t")
    query = db.query("SELECT ISTREAM t, v FROM s [NOW]", name="each", results="200 MB")
    t = 0

    def took(size: int, times: int) -> float:
        nonlocal t
        found = []
        for _ in range(times):
            rows = pa.table({"t": range(t, t + size), "v": [1.0] * size, "g": ["abcdefgh"] * size})
            t += size
            began = time.perf_counter()
            db.push("s", rows)
            found.append(time.perf_counter() - began)
        return statistics.median(found)

    took(1, 20)
    report.add(f"server: milliseconds to push one row, {way}", 1e3 * took(1, 50 if quick else 300))
    report.add(f"server: rows a second in pushes of 50,000, {way}", 50_000 / took(50_000, 5 if quick else 20))
    db.settle()
    began = time.perf_counter()
    count = query.fetch().num_rows
    report.add(f"server: results a second in one fetch, {way}", count / (time.perf_counter() - began))


def kills(report: Report, engine: str, number: int) -> None:
    """Kill a server that often."""
    with tempfile.TemporaryDirectory() as folder:
        found = killing.load(Path(folder), engine, number, random.Random(4), say=progress)
    for text in found.wrong:
        print(f"wrong: {text}", file=sys.stderr)
    report.add(f"kills of {engine}: kills", found.kills)
    report.add(f"kills of {engine}: rows acknowledged", found.rows)
    report.add(f"kills of {engine}: results read", found.results)
    report.add(f"kills of {engine}: connections cut between commit and acknowledgement", found.cuts)
    report.add(f"kills of {engine}: rows and results lost, doubled or wrong", len(found.wrong), 0, below=True)
    report.add(f"kills of {engine}: seconds until clients are served again, p50", statistics.median(found.away))
    report.add(f"kills of {engine}: seconds until clients are served again, most", max(found.away))


def fuzz(report: Report, messages: int) -> None:
    """Send that many messages to each of the binary protocols."""
    for protocol in ("postgres", "flight"):
        with tempfile.TemporaryDirectory() as folder:
            found = fuzzing.run(Path(folder), protocol, messages, random.Random(4), progress)
        report.add(f"fuzz of {protocol}: messages", found.messages, note=f"{found.refused:,} ended with an error")
        report.add(f"fuzz of {protocol}: errors that the server did not foresee", found.unforeseen, 0, below=True)
        report.add(f"fuzz of {protocol}: megabytes more than after a tenth", found.megabytes, 200, below=True)
        report.add(f"fuzz of {protocol}: threads more than after a tenth", found.threads, 16, below=True)
        report.add(f"fuzz of {protocol}: open files more than after a tenth", found.files, 16, below=True)
        report.add(f"fuzz of {protocol}: sessions left", found.sessions, 0, below=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--engine", choices=["local", "spark"], default="local", help="of the server that is killed")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--messages", type=int, help="of the fuzz, for each protocol")
    parser.add_argument("--seconds", type=float, help="of the load")
    parser.add_argument("--serve", action="store_true", help="be the server; for the benchmark itself")
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    report = Report("server")
    if "load" in given.only:
        load(report, given.seconds or (10.0 if given.quick else 60.0))
    if "pushes" in given.only:
        pushes(report, given.quick)
    if "kills" in given.only:
        kills(report, given.engine, given.kills or amount(given, 20 if given.engine == "local" else 4, 2))
    if "fuzz" in given.only:
        fuzz(report, given.messages or amount(given, 100_000, 2_000))
    report.finish()


if __name__ == "__main__":
    main()
