"""Server-sent events: exactly once over cuts, many subscribers, slow ones, the end of queries, sessions and servers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.server.http import events, protocol
from tests.budget import examples
from tests.server.over_http import Events, Served, served


@pytest.fixture
def server() -> Iterator[Served]:
    with served() as found:
        found.sql("CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t", "CREATE QUERY q AS SELECT t, k FROM s")
        yield found


def push(to: Served, *numbers: int, k: int | None = None) -> None:
    with to.client() as client:
        pushed = client.post("/api/streams/s/rows", json=[[n, n if k is None else k] for n in numbers])
        assert pushed.status_code == 200, pushed.text


def request(to: Served, path: str, version: str = "1.1") -> bytes:
    return f"GET {path} HTTP/{version}\r\nHost: x\r\nAuthorization: Bearer {to.token}\r\n\r\n".encode()


def test_one_event_for_each_change_whose_id_is_the_next_position(server: Served) -> None:
    push(server, 1, 2)
    reader = Events(server, "/api/queries/q/answers?from=start")
    assert reader.rows(2) == [(1, {"ts": 1, "op": "+", "t": 1, "k": 1}), (2, {"ts": 2, "op": "+", "t": 2, "k": 2})]
    push(server, 3)
    assert [(position, row["t"]) for position, row in reader.rows(1)] == [(3, 3)]
    reader.cut()


def test_a_subscriber_without_a_position_begins_now(server: Served) -> None:
    push(server, 1)
    reader = Events(server, "/api/queries/q/answers")
    assert next(iter(reader)) == {"retry": "1000"}
    push(server, 2)
    assert [row["t"] for _, row in reader.rows(1)] == [2]
    reader.cut()


@settings(max_examples=examples(10))
@given(batches=st.lists(st.integers(1, 5), min_size=1, max_size=8), cuts=st.lists(st.integers(1, 6), max_size=6))
def test_resuming_after_cuts_gives_every_result_once(batches: list[int], cuts: list[int]) -> None:
    with served() as server:
        server.sql("CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t", "CREATE QUERY q AS SELECT t, k FROM s")
        total = sum(batches)
        with ThreadPoolExecutor(1) as pool:

            def write() -> None:
                at = 0
                for count in batches:
                    push(server, *range(at, at + count))
                    at += count

            writing = pool.submit(write)
            found: list[int] = []
            last: int | None = 0
            for count in [*cuts, total]:
                wanted = min(count, total - len(found))
                if not wanted:
                    break
                reader = Events(server, "/api/queries/q/answers", last=last)
                rows = reader.rows(wanted)
                reader.cut()
                found += [row["k"] for _, row in rows]
                last = rows[-1][0]
            writing.result()
        assert found == list(range(total))


def test_events_go_on_after_the_server_was_started_again(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.sql("CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t", "CREATE QUERY q AS SELECT t, k FROM s")
        with server.client() as client:
            client.post("/api/subscriptions", json={"name": "mine", "query": "q", "start": "start"})
        push(server, 1, 2, 3)
        reader = Events(server, "/api/subscriptions/mine/answers")
        assert [row["k"] for _, row in reader.rows(2)] == [1, 2]
        with server.client() as client:
            client.post("/api/subscriptions/mine/confirm", json={"position": 2})
        reader.cut()
    with served(tmp_path / "db") as server:
        push(server, 4)
        reader = Events(server, "/api/subscriptions/mine/answers")
        assert [(position, row["k"]) for position, row in reader.rows(2)] == [(3, 3), (4, 4)]
        reader.cut()


def test_fifty_subscribers_of_five_queries(server: Served) -> None:
    for i in range(5):
        server.sql(f"CREATE QUERY q{i} AS SELECT t, k FROM s WHERE k % 5 = {i}")
    readers = [(i % 5, Events(server, f"/api/queries/q{i % 5}/answers?from=start")) for i in range(50)]
    for at in range(0, 200, 10):
        push(server, *range(at, at + 10))
    for i, reader in readers:
        assert [row["k"] for _, row in reader.rows(40)] == list(range(i, 200, 5))
        reader.cut()
    push(server, 1_000)  # to connections that are gone
    assert Events(server, "/api/queries/q0/answers?from=40").rows(1)[0][1]["k"] == 1_000


def test_the_bytes_of_an_event_are_made_once_for_all(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = events.events

    def counted(table: object, start: int) -> bytes:
        made.append(start)
        return make(table, start)

    monkeypatch.setattr(events, "events", counted)
    readers = [Events(server, "/api/queries/q/answers?from=start") for _ in range(10)]
    for reader in readers:
        assert next(iter(reader)) == {"retry": "1000"}
    for number in range(3):
        push(server, number)
        for reader in readers:
            assert [row["k"] for _, row in reader.rows(1)] == [number]
    assert made == [0, 1, 2]
    for reader in readers:
        reader.cut()


def test_a_subscriber_that_does_not_read_slows_nobody_and_is_told_what_it_missed(server: Served) -> None:
    server.sql("CREATE STREAM w (t BIGINT, x STRING) TIMESTAMP BY t",
               "CREATE QUERY big AS SELECT t, x FROM w WITH (results = '300 KB')")  # fmt: skip
    slow = Events(server, "/api/queries/big/answers?from=start")
    quick = Events(server, "/api/queries/big/answers?from=start")
    seen, wide = 0, "x" * 10_000
    with server.client() as client:
        for i in range(0, 2_000, 10):
            client.post("/api/streams/w/rows", json=[[n, wide] for n in range(i, i + 10)])
            assert [row["t"] for _, row in quick.rows(10)] == list(range(i, i + 10))
    told = None
    for event in slow:
        if event.get("event") == "problem":
            told = json.loads(event["data"])
        elif "data" in event:
            assert json.loads(event["data"])["t"] == seen
            seen += 1
    assert told is not None, "the response ended without a word"
    assert told["code"] == "PS206"
    assert told["first"] > seen
    quick.cut()


def test_a_client_that_takes_nothing_is_let_go(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STUCK_SECONDS", 0.2)
    server.sql("CREATE STREAM w (t BIGINT, x STRING) TIMESTAMP BY t", "CREATE QUERY big AS SELECT t, x FROM w")
    with server.client() as client:
        for i in range(20):
            client.post("/api/streams/w/rows", json=[[i, "x" * 1_000_000]])
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(server.address)
        stuck.sendall(request(server, "/api/queries/big/answers?from=0&limit=20"))
        until = time.monotonic() + 60
        while _open(server) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _open(server)


def _open(server: Served) -> bool:
    """Whether a connection to the server is still served."""
    with server.client() as client:
        found = client.get("/metrics").text
    return 'path="/api/queries/{query}/answers",status="200"' not in found


def test_comments_keep_a_silent_connection(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE", 0.05)
    with socket.create_connection(server.address, timeout=60) as raw:
        raw.sendall(request(server, "/api/queries/q/answers"))
        found = b""
        while found.count(b"\r\n:\n\n\r\n") < 2:
            found += raw.recv(4096)


def test_a_client_of_http_1_0(server: Served) -> None:
    push(server, 1)
    with socket.create_connection(server.address, timeout=60) as raw:
        raw.sendall(request(server, "/api/queries/q/answers?from=start", "1.0"))
        found = b""
        while b'"k": 1}\n\n' not in found:
            found += raw.recv(4096)
        push(server, 2)
        while b'"k": 2}\n\n' not in found:
            found += raw.recv(4096)
    assert b"\r\n\r\nretry: 1000\n\nid: 1\ndata: " in found


@pytest.mark.parametrize("how", ["stopped", "failed"])
def test_the_end_of_a_query_ends_its_events(server: Served, how: str) -> None:
    server.sql("CREATE QUERY e AS SELECT 1 / k AS x FROM s WITH (strict = TRUE)")
    reader = Events(server, "/api/queries/e/answers?from=start")
    push(server, 1)
    assert [row["x"] for _, row in reader.rows(1)] == [1]
    if how == "stopped":
        server.sql("STOP QUERY e")
    else:
        push(server, 2, k=0)
    last = list(reader)[-1]
    assert last["event"] == "end"
    told = json.loads(last["data"])
    assert told["how"].startswith(how)
    assert told["next"] == 1


def test_who_comes_again_after_the_end_is_told_to_stay_away(server: Served) -> None:
    server.sql("CREATE QUERY e AS SELECT 1 / k AS x FROM s WITH (strict = TRUE)")
    push(server, 1)
    push(server, 2, k=0)
    with server.client() as client:
        again = client.get("/api/queries/e/answers", headers={"Last-Event-ID": "1", "Accept": "text/event-stream"})
        assert again.status_code == 204
        wrong = client.get("/api/queries/e/answers", headers={"Last-Event-ID": "x", "Accept": "text/event-stream"})
        assert wrong.status_code == 400


def test_who_may_not_read_any_more_gets_no_more(server: Served) -> None:
    token = server.token_of("eve")
    server.sql("GRANT READ ON QUERY q TO eve")
    mine, hers = Events(server, "/api/queries/q/answers"), Events(server, "/api/queries/q/answers", token=token)
    push(server, 1)
    assert [row["k"] for _, row in hers.rows(1)] == [row["k"] for _, row in mine.rows(1)] == [1]
    server.sql("REVOKE READ ON QUERY q FROM eve")
    push(server, 2)
    assert [row["k"] for _, row in mine.rows(1)] == [2]
    events_of_hers = list(hers)
    assert [event.get("event") for event in events_of_hers] == ["problem"]
    assert json.loads(events_of_hers[0]["data"])["code"] in ("PS401", "PS103")
    mine.cut()


def test_the_end_of_the_server_ends_responses(tmp_path: Path) -> None:
    with served() as server:
        server.sql("CREATE STREAM s (t BIGINT, k BIGINT) TIMESTAMP BY t", "CREATE QUERY q AS SELECT t, k FROM s")
        readers = [Events(server, "/api/queries/q/answers") for _ in range(5)]
        for reader in readers:
            assert next(iter(reader)) == {"retry": "1000"}
    for reader in readers:
        assert list(reader) == []  # the response is complete: the client may come again
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-http")]
