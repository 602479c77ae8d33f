"""A server that is killed under load again and again, and clients that go on.

    writers     push rows with keys: over HTTP, over Flight, with the Python client, each also over a connection that
                breaks between commit and acknowledgement
    readers     take results from positions: server-sent events with Last-Event-ID, a named subscription that is
                confirmed, an endless stream of Flight, the Python client's subscribe

One more client asks again and again for what stands. A writer sends a batch until it is acknowledged, then the next. In
the end every row is there once, each reader has had every result of its query once, and results are those of the
reference for the rows in the order they were taken.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

import penstock
from benchmarks.support.served import PATIENCE, Cutting, Served, until
from penstock.storage.packing import unpacked

BATCH = 4
"""Rows of a batch."""
PAUSE = 0.05
"""Seconds between an acknowledgement and the next batch of a writer."""
CUT = 0.05
"""The share of acknowledgements that are cut off, on connections that break."""
COLUMNS = "producer STRING, n BIGINT, k BIGINT, v BIGINT"
QUERIES = {
    "every": "SELECT producer, n, k, v FROM s",
    "sums": "SELECT k, count(*) AS c, sum(v) AS total FROM s [ROWS 20] GROUP BY k",
    "recent": "SELECT producer, count(*) AS c FROM s [RANGE 1 SECOND] GROUP BY producer",
}
_AWAY = (OSError, HTTPException, flight.FlightError, pa.ArrowException, penstock.EngineError)
"""What a client gets while the server is away, or its connection breaks."""
_FIRST = 3_000
"""Rows of which the reference says what they give."""
_MARK = b'"rows"'
"""Stands in every acknowledgement of rows."""


def _row(producer: str, n: int) -> dict[str, object]:
    return {"producer": producer, "n": n, "k": n % 5, "v": n * 7 % 101}


@dataclass
class Found:
    """What became of it."""

    kills: int = 0
    rows: int = 0
    """Acknowledged."""
    results: int = 0
    """That readers have had."""
    cuts: int = 0
    """Connections that broke between commit and acknowledgement."""
    wrong: list[str] = field(default_factory=list)
    """Rows and results that are lost, doubled or others."""
    away: list[float] = field(default_factory=list)
    """Seconds from each kill until a server takes clients again."""


class Client:
    """A thread that does something again and again until it is told to end; what breaks its connection, it survives."""

    def __init__(self, name: str, step: Callable[[], object], over: threading.Event) -> None:
        self.name, self._step, self._over = name, step, over
        self.broken = 0
        self.failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._step()
            except _AWAY:
                self.broken += 1
                self._over.wait(0.05)
            except Exception as error:
                self.failed = error
                return

    def join(self) -> None:
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise RuntimeError(f"{self.name} does not end")


# -- writers ------------------------------------------------------------------------------------------


class Writer:
    """Sends batches one after the other; ``send`` gives whether one was acknowledged, or raises."""

    def __init__(self, name: str, over: threading.Event) -> None:
        self.name, self._over = name, over
        self.acknowledged = 0
        """Batches."""

    def step(self) -> None:
        """A batch that was begun is sent until it is acknowledged, also when the load is over."""
        rows = [_row(self.name, self.acknowledged * BATCH + i) for i in range(BATCH)]
        self.send(rows, self.acknowledged)
        self.acknowledged += 1
        self._over.wait(PAUSE)

    def send(self, rows: list[dict[str, object]], sequence: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End its connection."""


class HttpWriter(Writer):
    def __init__(self, name: str, over: threading.Event, port: int, token: str) -> None:
        super().__init__(name, over)
        self._port, self._token = port, token
        self._connection: HTTPConnection | None = None

    def send(self, rows: list[dict[str, object]], sequence: int) -> None:
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {
            "Authorization": f"Bearer {self._token}", "Content-Type": "application/json",
            "Idempotency-Key": f"{self.name}:{sequence}",
        }  # fmt: skip
        try:
            self._connection.request("POST", "/api/streams/s/rows", json.dumps(rows), headers)
            response = self._connection.getresponse()
            text = response.read()
        except BaseException:
            self._connection.close()
            self._connection = None
            raise
        if response.status == 503:
            raise ConnectionError("the server ends")
        if response.status != 200 or json.loads(text)["rows"] != len(rows):
            raise AssertionError(f"{response.status} {text!r}")


class FlightWriter(Writer):
    def __init__(self, name: str, over: threading.Event, port: int, token: str) -> None:
        super().__init__(name, over)
        self._address = f"grpc://127.0.0.1:{port}"
        self._options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        self._call: tuple[Any, Any, Any] | None = None

    def send(self, rows: list[dict[str, object]], sequence: int) -> None:
        batch = pa.RecordBatch.from_pylist(rows)
        try:
            if self._call is None:
                client = flight.connect(self._address)
                path = flight.FlightDescriptor.for_path("s")
                self._call = (client, *client.do_put(path, batch.schema, self._options))
            _, writer, answers = self._call
            writer.write_with_metadata(batch, json.dumps({"key": [self.name, sequence]}).encode())
            said = answers.read()
            if said is None:
                raise ConnectionError("the call has ended")
            if json.loads(said.to_pybytes())["rows"] != len(rows):
                raise AssertionError(said.to_pybytes())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._call is not None:
            client, writer, _ = self._call
            self._call = None
            with contextlib.suppress(*_AWAY):
                writer.close()
            client.close()


class ClientWriter(Writer):
    """The Python client's ``push``, which has keys of its own and sends again by itself."""

    def __init__(self, name: str, over: threading.Event, url: str, token: str) -> None:
        super().__init__(name, over)
        self._db = penstock.connect(url, token=token)

    def send(self, rows: list[dict[str, object]], sequence: int) -> None:
        self._db.push("s", rows, key=(self.name, sequence))


# -- readers ------------------------------------------------------------------------------------------


class Reader:
    """What came, by position."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.rows: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def take(self, start: int, rows: list[dict[str, Any]]) -> None:
        if start != len(self.rows):
            self.wrong.append(f"{self.query}: position {start} came where {len(self.rows)} was expected")
        self.rows += rows

    def step(self) -> None:
        """Read for a while, from where it is."""
        raise NotImplementedError

    def end(self) -> None:
        """Wait for no more results: its thread ends."""


class EventsReader(Reader):
    """Server-sent events; goes on with Last-Event-ID."""

    def __init__(self, query: str, served: Served, over: threading.Event) -> None:
        super().__init__(query)
        self._served, self._over = served, over

    def step(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._served.http, timeout=5)
        headers = {"Authorization": f"Bearer {self._served.token}", "Last-Event-ID": str(len(self.rows))}
        try:
            connection.request("GET", f"/api/queries/{self.query}/answers", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ConnectionError(response.status)
            event: dict[str, str] = {}
            while not self._over.is_set() and (line := response.readline()):
                name, colon, value = line.decode().rstrip("\n").partition(": ")
                if colon:
                    event[name] = value
                elif "data" in event and "event" not in event:
                    self.take(int(event["id"]) - 1, [json.loads(event["data"])])
                    event = {}
                elif not name:
                    event = {}
        finally:
            connection.close()


class NamedReader(Reader):
    """A named subscription: pages of what is not confirmed, stored, then confirmed. What was stored before a
    confirmation was lost comes again, at positions that it has."""

    def __init__(self, query: str, served: Served) -> None:
        super().__init__(query)
        self._served = served

    def step(self) -> None:
        page = self._served.ask("GET", "/api/subscriptions/mine/answers?limit=100&wait=1")
        start, rows = int(page["start"]), page["rows"]
        if start > len(self.rows):
            self.wrong.append(f"{self.query}: the subscription goes on at {start}, {len(self.rows)} were stored")
        known = len(self.rows) - start
        if rows[:known] != self.rows[start : start + known]:
            self.wrong.append(f"{self.query}: results from {start} on are others than before")
        if known < len(rows):
            self.take(len(self.rows), rows[known:])
        if rows:
            self._served.ask("POST", "/api/subscriptions/mine/confirm", {"position": len(self.rows)})


class FlightReader(Reader):
    """An endless stream of Flight; goes on from a position."""

    def __init__(self, query: str, served: Served, over: threading.Event) -> None:
        super().__init__(query)
        self._served, self._over = served, over
        self._reader: Any = None

    def step(self) -> None:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {self._served.token}".encode())])
        ticket = flight.Ticket(json.dumps({"changes": self.query, "from": len(self.rows)}).encode())
        with flight.connect(f"grpc://127.0.0.1:{self._served.flight}") as client:
            reader = self._reader = client.do_get(ticket, options)
            try:
                while not self._over.is_set():
                    chunk = reader.read_chunk()
                    stop = json.loads(chunk.app_metadata.to_pybytes())["position"]
                    self.take(stop - chunk.data.num_rows, chunk.data.to_pylist())
            except StopIteration:
                raise ConnectionError("the stream has ended") from None
            finally:
                reader.cancel()

    def end(self) -> None:
        if self._reader is not None:
            self._reader.cancel()


class ClientReader(Reader):
    """The Python client's ``subscribe``, which goes on by itself."""

    def __init__(self, query: str, served: Served) -> None:
        super().__init__(query)
        self._db = penstock.connect(served.url, token=served.token)
        self._subscription = self._db.queries[query].subscribe(self._called, position=0)

    def _called(self, table: pa.Table) -> None:
        self.take(len(self.rows), table.to_pylist())

    def step(self) -> None:
        time.sleep(0.1)

    def end(self) -> None:
        self._subscription.cancel()
        self._db.close()


# -- all of it ----------------------------------------------------------------------------------------


def load(
    directory: Path, engine: str, kills: int, chance: random.Random, *, longest: float = 2.0, say: Callable[[str], None]
) -> Found:
    """Kill a server ``kills`` times, mostly within ``longest`` seconds after its first results."""
    found = Found()
    served = Served(directory / "db", engine, errors=directory / "errors")
    served.start()
    served.wait()
    closing: list[Callable[[], object]] = []
    try:
        served.sql(f"CREATE STREAM s ({COLUMNS})")
        for name, text in QUERIES.items():
            served.sql(f"CREATE QUERY {name} AS {text} WITH (results = '200 MB')")
        served.sql("CREATE SUBSCRIPTION mine FOR sums FROM START")
        writing, reading = threading.Event(), threading.Event()
        broken = [Cutting(port, _MARK, CUT, random.Random(chance.random())) for port in (served.http, served.flight)]
        closing += [each.close for each in broken]
        token = served.token
        writers: list[Writer] = [
            HttpWriter("http", writing, served.http, token), HttpWriter("http cut", writing, broken[0].port, token),
            FlightWriter("flight", writing, served.flight, token),
            FlightWriter("flight cut", writing, broken[1].port, token),
            ClientWriter("client", writing, served.url, token),
            ClientWriter("client cut", writing, f"http://127.0.0.1:{broken[0].port}", token),
        ]  # fmt: skip
        called = ClientReader("recent", served)
        closing.append(called.end)
        readers = [
            EventsReader("every", served, reading), EventsReader("recent", served, reading),
            NamedReader("sums", served), FlightReader("every", served, reading), FlightReader("sums", served, reading),
            called,
        ]  # fmt: skip
        clients = [Client(each.name, each.step, writing) for each in writers]
        asking = Client("a client that asks", lambda: _ask(served), writing)
        watching = [Client(f"reader of {each.query}", each.step, reading) for each in readers]
        for number in range(kills):
            had = len(readers[0].rows)
            if chance.random() < 0.7:  # results have come since the last kill
                until(lambda had=had: len(readers[0].rows) > had)
            time.sleep(longest * chance.random())
            _kill(served, chance, found)
            say(f"kill {number + 1} of {kills}")
        until(lambda: all(each.cuts for each in broken))
        writing.set()
        for client in [*clients, asking]:
            client.join()
        for writer in writers:
            writer.close()
        _finish(served, writers, readers, found)
        reading.set()
        for reader in readers:
            reader.end()
        for client in watching:
            client.join()
        every = [*clients, asking, *watching]
        found.wrong += [f"{c.name}: {type(c.failed).__name__}: {c.failed}" for c in every if c.failed]
        found.wrong += [text for reader in readers for text in reader.wrong]
        found.cuts = sum(each.cuts for each in broken)
        return found
    finally:
        for close in closing:
            close()
        served.close()


def _kill(served: Served, chance: random.Random, found: Found) -> None:
    """Kill the server and start it again; sometimes also while it starts."""
    began = time.monotonic()
    served.kill()
    found.kills += 1
    served.start()
    if chance.random() < 0.25:
        time.sleep(chance.random())
        served.kill()
        found.kills += 1
        served.start()
    served.wait()
    found.away.append(time.monotonic() - began)


def _finish(served: Served, writers: list[Writer], readers: list[Reader], found: Found) -> None:
    """Compare what is there with what was acknowledged, with what readers have had and with the reference."""
    served.ask("POST", "/api/settle", {})
    there = {name: _results(served, name) for name in QUERIES}
    stands = _asked(served)
    for reader in readers:
        wanted = there[reader.query].num_rows
        with contextlib.suppress(RuntimeError):  # what is missing is said below
            until(lambda reader=reader, wanted=wanted: len(reader.rows) >= wanted)
        found.results += len(reader.rows)
        shown = _as_json if isinstance(reader, EventsReader | NamedReader) else pa.Table.to_pylist
        if [*map(_plain, reader.rows[:wanted])] != [*map(_plain, shown(there[reader.query]))]:
            kind = type(reader).__name__
            had = len(reader.rows)
            found.wrong.append(f"{kind} of {reader.query} has other results than the query: {had}, {wanted}")
    every = there["every"].select(["producer", "n"]).to_pylist()
    taken = [(row["producer"], row["n"]) for row in every]
    for writer in writers:
        wanted = [(writer.name, n) for n in range(writer.acknowledged * BATCH)]
        found.rows += len(wanted)
        mine = [row for row in taken if row[0] == writer.name]
        # The last batch may have been taken though the writer was told to end before it heard of it.
        if mine[: len(wanted)] != wanted or len(mine) - len(wanted) not in (0, BATCH) or len(set(mine)) != len(mine):
            found.wrong.append(f"{writer.name}: {len(wanted)} rows were acknowledged, {len(mine)} were taken")
    found.wrong += _compared(there, stands)


def _ask(served: Served) -> None:
    """Ask while others push; a SELECT that the server gives up, since it is behind, is asked again."""
    try:
        _asked(served)
    except RuntimeError as error:
        if "did not end within" not in str(error):
            raise
        raise ConnectionError(str(error)) from None


def _asked(served: Served) -> list[tuple[Any, ...]]:
    """What stands now, by a plain SELECT."""
    rows = served.sql("SELECT k, c, total FROM sums ORDER BY k")[0]["rows"]
    time.sleep(0.1)
    return [tuple(row) for row in rows]


def _results(served: Served, query: str) -> pa.Table:
    """All results of a query, read once from the beginning."""
    tables: list[pa.Table] = []
    position, info = 0, served.ask("GET", f"/api/queries/{query}")
    while position < info["next"]:
        connection = HTTPConnection("127.0.0.1", served.http, timeout=PATIENCE)
        path = f"/api/queries/{query}/answers?from={position}&limit=50000&format=arrow"
        connection.request("GET", path, headers={"Authorization": f"Bearer {served.token}"})
        tables.append(unpacked(connection.getresponse().read()))
        connection.close()
        position += tables[-1].num_rows
    return pa.concat_tables(tables)


def _as_json(table: pa.Table) -> list[dict[str, Any]]:
    from penstock.server.http.shapes import row_objects

    return [json.loads(text) for text in row_objects(table)]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) for key, value in row.items()}


def _compared(there: dict[str, pa.Table], stands: list[tuple[Any, ...]]) -> list[str]:
    """What the rows of ``every`` give, in their order and at their times, in a process that nobody kills: all of them,
    and the first ones in the reference too, which would need hours for all."""
    rows = [
        {"at": row.pop("ts"), **{key: value for key, value in row.items() if key != "op"}}
        for row in there["every"].to_pylist()
    ]
    return _against("local", rows, there, stands) + _against("reference", rows[:_FIRST], there, None)


def _against(
    engine: str, rows: list[dict[str, Any]], there: dict[str, pa.Table], stands: list[tuple[Any, ...]] | None
) -> list[str]:
    wrong: list[str] = []
    with penstock.connect(engine=engine) as db:
        db.execute(f"CREATE STREAM s (at TIMESTAMP, {COLUMNS}) TIMESTAMP BY at")
        for name, text in QUERIES.items():
            db.query(text, name=name)
        db.push("s", rows)
        standing = sorted(tuple(row.values()) for row in db.queries["sums"].current().to_pylist())
        if stands is not None and stands != standing:
            wrong.append(f"sums: SELECT gives {stands}, with engine {engine} {standing} stand")
        # Windows that end later have been answered by the server's clock; of some rows the last instant may lack some.
        last = rows[-1]["at"] - timedelta(microseconds=0 if stands is not None else 1)
        for name in QUERIES:
            wanted = Counter(tuple(row.values()) for row in db.queries[name].fetch().to_pylist() if row["ts"] <= last)
            got = Counter(tuple(row.values()) for row in there[name].to_pylist() if row["ts"] <= last)
            if got != wanted:
                more, less = list((got - wanted).elements()), list((wanted - got).elements())
                wrong.append(f"{name}: not with {engine} {len(more)} {more[:2]}, missing {len(less)} {less[:2]}")
    return wrong
