"""The server over HTTP: what is asked of it, by whom, and what it says when something is wrong."""

from __future__ import annotations

import base64
import io
import itertools
import json
import logging
import queue
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from logging.handlers import QueueHandler
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.ipc
import pytest

from penstock.server.http import listener, protocol
from penstock.server.http.openapi import document
from penstock.server.http.routes import ENDPOINTS
from penstock.server.throttle import EVERY
from penstock.storage.packing import packed
from tests.server.over_http import Served, path_of, served

STREAM = {
    "name": "s", "timestamp_by": "t",
    "columns": [{"name": "t", "type": "BIGINT"}, {"name": "v", "type": "DOUBLE"}],
}  # fmt: skip
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def server() -> Iterator[Served]:
    with served() as found:
        yield found


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", "x", path)


# -- who may ask --------------------------------------------------------------------------------------

CLOSED = [each for each in ENDPOINTS if not each.open]


def test_nothing_but_health_and_pages_answers_without_a_credential(server: Served) -> None:
    expired = server.token_of("guest", "1 minute")
    server.now[0] += 61_000_000
    wrong = base64.b64encode(b"admin:wrong").decode()
    credentials = [None, "Bearer nonsense", f"Bearer {expired}", f"Basic {wrong}", "Basic ???", "Digest x", "Bearer"]
    with httpx.Client(base_url=server.url) as client:
        for each in CLOSED:
            for credential in credentials:
                server.now[0] += EVERY  # or wrong passwords would not be looked at any more
                headers = {} if credential is None else {"Authorization": credential}
                response = client.request(each.method, filled(each.path), headers=headers)
                assert response.status_code == 401, (each.method, each.path, credential)
                assert response.headers["www-authenticate"].startswith("Bearer")
                assert response.json()["code"] == "PS402"
        unknown = client.get("/api/nothing/here")
        assert unknown.status_code == 401
        for each in ENDPOINTS:
            if each.open:
                assert client.request(each.method, each.path).status_code == 200


def test_a_token_and_a_password_let_in(server: Served) -> None:
    server.sql("CREATE USER ann PASSWORD 'correct horse'")
    for auth in (("admin", server.token), ("ann", "correct horse")):
        found = httpx.get(f"{server.url}/api/me", auth=auth).json()
        assert found["user"] == auth[0]
        assert found["admin"] is (auth[0] == "admin")


def test_a_withdrawn_token_is_refused_at_once(server: Served) -> None:
    token = server.token_of("bob")
    with server.client(token) as client:
        assert client.get("/api/streams").status_code == 200
        server.sql("DROP TOKEN bob_token")
        assert client.get("/api/streams").status_code == 401


def test_what_a_user_may_not_read_is_not_there(server: Served, client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "hidden", "cql": "SELECT t FROM s"})
    with server.client(server.token_of("carl")) as carl:
        assert carl.get("/api/streams").json() == {"streams": []}
        assert carl.get("/api/queries").json() == {"queries": []}
        query = "/api/queries/hidden"
        for path in ("/api/streams/s", query, f"{query}/answers", f"{query}/current", f"{query}/explain"):
            there, not_there = carl.get(path), carl.get(path.replace("hidden", "nothing").replace("/s", "/n"))
            assert there.status_code == not_there.status_code == 404
            assert "hint" not in there.json() or "hidden" not in there.json()["hint"]
        assert carl.post("/api/streams/s/rows", json=[[1, 1.0]]).status_code == 404
        assert carl.post("/api/streams", json={**STREAM, "name": "mine"}).status_code == 403
        assert carl.get("/api/settings").status_code == 403
        assert carl.patch("/api/settings", json={"settings": {"workers": 2}}).status_code == 403
        server.sql("GRANT WRITE ON STREAM s TO carl")
        assert carl.post("/api/streams/s/rows", json=[[1, 1.0]]).json()["rows"] == 1


# -- streams and rows ---------------------------------------------------------------------------------


def test_declare_list_and_drop_a_stream(client: httpx.Client) -> None:
    made = client.post("/api/streams", json={**STREAM, "slack": 5, "options": {"retain": 100}})
    assert made.status_code == 201
    assert made.headers["location"] == "/api/streams/s"
    assert [(c["name"], c["type"]) for c in made.json()["columns"]] == [("t", "BIGINT"), ("v", "DOUBLE")]
    assert "SLACK 5" in made.json()["definition"]
    assert client.get("/api/streams").json()["streams"] == [client.get("/api/streams/s").json()]
    again = client.post("/api/streams", json=STREAM)
    assert (again.status_code, again.json()["code"]) == (409, "PS103")
    assert client.delete("/api/streams/s").status_code == 204
    assert client.get("/api/streams/s").status_code == 404
    assert client.delete("/api/streams/s").status_code == 404


@pytest.mark.parametrize("change", [
    {"name": ""}, {"name": 3}, {"columns": []}, {"columns": [{"name": "a"}]},
    {"columns": [{"name": "a", "type": "INTT"}]}, {"columns": [{"name": "a", "type": "INT); DROP STREAM s; --"}]},
    {"options": {"re tain": 1}}, {"options": {"retain": []}}, {"nothing": 1}, {"timestamp_by": "w"},
], ids=str)  # fmt: skip
def test_a_bad_declaration_is_refused_and_leaves_nothing(client: httpx.Client, change: dict[str, Any]) -> None:
    refused = client.post("/api/streams", json={**STREAM, **change})
    assert refused.status_code == 400, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert client.get("/api/streams").json() == {"streams": []}


def arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


ROWS = {
    "application/json": b'[{"t": 1, "v": 0.5}, [2, null]]',
    "application/x-ndjson": b'{"t": 1, "v": 0.5}\n{"t": 2, "v": null}\n',
    "text/csv": b"v,t\n0.5,1\n,2\n",
    ARROW: arrow(pa.table({"t": [1, 2], "v": pa.array([0.5, None], pa.float64())})),
}
BAD = {
    "application/json": (b'[{"t": 1, "v": 0.5}, {"t": "x", "v": 1}]', "row 2", "t"),
    "application/x-ndjson": (b'{"t": 1, "v": 0.5}\n{"t": 2, "v": true}\n', "line 2", "v"),
    "text/csv": (b"t,v\n1,0.5\n2,a\n", "line 3", "v"),
    ARROW: (arrow(pa.table({"t": pa.array([1, None], pa.int64()), "v": [0.5, 1.0]})), "row 2", "t"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_in_every_format(client: httpx.Client, kind: str) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "q", "cql": "SELECT t, v FROM s"})
    pushed = client.post("/api/streams/s/rows", content=ROWS[kind], headers={"Content-Type": kind})
    assert pushed.json() == {"rows": 2, "apart": 0, "late": 0}
    page = client.get("/api/queries/q/answers?limit=10").json()
    assert page["rows"] == [{"ts": 1, "op": "+", "t": 1, "v": 0.5}, {"ts": 2, "op": "+", "t": 2, "v": None}]


@pytest.mark.parametrize("kind", BAD)
def test_a_batch_with_a_bad_row_is_refused_whole_with_its_place(client: httpx.Client, kind: str) -> None:
    client.post("/api/streams", json=STREAM)
    body, place, column = BAD[kind]
    refused = client.post("/api/streams/s/rows", content=body, headers={"Content-Type": kind})
    told = refused.json()
    assert (refused.status_code, told["code"]) == (400, "PS201")
    assert place in told["detail"]
    assert f"`{column}`" in told["detail"]
    assert client.get("/api/streams/s").json()["given"] == 0


@pytest.mark.parametrize(("kind", "body"), [
    ("application/json", b"[]"), ("application/json", b""), ("application/x-ndjson", b"\n"), ("text/csv", b"t,v\n"),
    ("text/csv", b""), (ARROW, arrow(pa.table({"t": pa.array([], pa.int64()), "v": pa.array([], pa.float64())}))),
])  # fmt: skip
def test_empty_batches(client: httpx.Client, kind: str, body: bytes) -> None:
    client.post("/api/streams", json=STREAM)
    pushed = client.post("/api/streams/s/rows", content=body, headers={"Content-Type": kind})
    assert pushed.json() == {"rows": 0, "apart": 0, "late": 0}


@pytest.mark.parametrize(("kind", "body", "status"), [
    ("application/json", b"[1", 400), ("application/json", b"7", 400), ("application/json", b"[[1]]", 400),
    ("application/json", b"[" * 100_000, 400), ("application/json", b'[{"t": 1, "v": 1, "w": 2}]', 400),
    ("application/json", b'[{"t": 1, "t": 2, "v": 1}]', 400), ("application/json", b"\xff", 400),
    (ARROW, b"nonsense", 400), (ARROW, ROWS[ARROW][:-40], 400), ("image/png", b"x", 415),
    (ARROW, packed(pa.table([[1], [2]], pa.schema([pa.field(b"t", "i8"), pa.field(b"\xd8", "i8")]))), 400),
    (ARROW, pa.schema([("t", pa.struct([pa.field(b"\xd8", "i8")]))]).serialize().to_pybytes(), 400),
])  # fmt: skip
def test_bodies_that_are_no_rows(client: httpx.Client, kind: str, body: bytes, status: int) -> None:
    client.post("/api/streams", json=STREAM)
    refused = client.post("/api/streams/s/rows", content=body, headers={"Content-Type": kind})
    assert refused.status_code == status, refused.text
    assert client.get("/api/streams/s").json()["given"] == 0


def test_rows_that_are_sent_again_are_taken_once(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    for _ in range(3):
        pushed = client.post("/api/streams/s/rows", json=[[1, 1.0]], headers={"Idempotency-Key": "sensor:7:41"})
        assert pushed.status_code == 200
    assert client.get("/api/streams/s").json()["given"] == 1
    for key in ("no sequence", "a:b", ":", "a:-1", "a:" + "9" * 30):
        refused = client.post("/api/streams/s/rows", json=[[1, 1.0]], headers={"Idempotency-Key": key})
        assert refused.status_code == 400


def test_a_push_that_is_cut_between_commit_and_acknowledgement(server: Served, client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    body = b'[{"t": 1, "v": 1.0}]'
    head = (
        f"POST /api/streams/s/rows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        f"Content-Type: application/json\r\nIdempotency-Key: p:1\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    committed, acknowledge = threading.Event(), threading.Event()
    push = server.service.push_text

    def slowly(*args: Any, **options: Any) -> Any:
        found = push(*args, **options)
        committed.set()
        acknowledge.wait(30)
        return found

    server.service.push_text = slowly  # type: ignore[method-assign]
    with socket.create_connection(server.address) as cut:
        cut.sendall(head.encode() + body)
        assert committed.wait(30)
    server.service.push_text = push  # type: ignore[method-assign]
    acknowledge.set()
    assert client.get("/api/streams/s").json()["given"] == 1
    again = client.post("/api/streams/s/rows", content=body, headers={"Idempotency-Key": "p:1"})
    assert again.status_code == 200
    assert client.get("/api/streams/s").json()["given"] == 1


def test_names_of_any_letters(client: httpx.Client) -> None:
    name = 'Füße/im "Regen"? 100%#ü'
    assert client.post("/api/streams", json={**STREAM, "name": name}).status_code == 201
    assert client.get(path_of("streams", name)).json()["name"] == name
    assert client.post(path_of("streams", name, "rows"), json=[[1, 2.0]]).json()["rows"] == 1
    made = client.post("/api/queries", json={"name": name, "cql": 'SELECT t FROM "Füße/im ""Regen""? 100%#ü"'})
    assert made.status_code == 201, made.text
    assert client.get(made.headers["location"]).json()["name"] == name
    client.post(path_of("streams", name, "rows"), json=[[2, 2.0]])
    assert client.get(path_of("queries", name, "answers") + "?limit=5").json()["next"] == 1
    assert client.delete(path_of("queries", name)).json()["status"] == "stopped"
    assert client.delete(path_of("streams", name)).status_code == 204
    assert client.get("/api/streams/%FF%FE").status_code == 404


def test_late_rows_apart_heartbeats_and_the_end(client: httpx.Client) -> None:
    client.post("/api/streams", json={**STREAM, "options": {"on_error": "apart"}})
    pushed = client.post("/api/streams/s/rows", json=[[5, 1.0], [3, 1.0], ["x", 1.0]]).json()
    assert pushed == {"rows": 2, "apart": 1, "late": 1}
    assert client.post("/api/streams/s/late").json()["rows"] == [[3, 1.0]]
    assert client.post("/api/streams/s/apart").json()["rows"][0][1] == "t"
    assert client.post("/api/streams/s/heartbeat", json={"at": 9}).json()["progress"] == 9
    assert client.post("/api/streams/s/heartbeat", json={"at": None}).status_code == 400
    assert client.post("/api/streams/s/close").json()["closed"] is True
    refused = client.post("/api/streams/s/rows", json=[[10, 1.0]])
    assert (refused.status_code, refused.json()["code"]) == (409, "PS202")


def test_relations(client: httpx.Client) -> None:
    columns = [{"name": "room", "type": "STRING"}, {"name": "floor", "type": "INT"}]
    assert client.post("/api/relations", json={"name": "rooms", "columns": columns, "key": ["room"]}).status_code == 201
    assert client.post("/api/relations/rooms/rows", json=[["a", 1], ["b", 2]]).json()["rows"] == 2
    csv = {"Content-Type": "text/csv"}
    more = client.post("/api/relations/rooms/rows?at=7", content=b"room,floor\nc,3\n", headers=csv)
    assert more.status_code == 200
    assert client.post("/api/relations/rooms/rows", json=[["a", 4]]).json()["code"] == "PS201"
    found = client.get("/api/relations/rooms/rows").json()
    assert sorted(found["rows"]) == [["a", 1], ["b", 2], ["c", 3]]
    assert client.get("/api/relations/rooms/rows?format=csv").text.startswith("room,floor\n")
    assert client.get("/api/relations").json()["relations"][0]["key"] == ["room"]
    assert client.delete("/api/relations/rooms").status_code == 204
    assert client.get("/api/relations/rooms").status_code == 404


# -- queries ------------------------------------------------------------------------------------------


def test_the_life_of_a_query(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    cql = "SELECT count(*) AS n FROM s"
    made = client.post("/api/queries", json={"name": "q", "cql": cql, "options": {"priority": 7}})
    assert (made.status_code, made.json()["options"]["priority"]) == (201, 7)
    client.post("/api/streams/s/rows", json=[[1, 1.0], [2, 1.0]])
    assert client.get("/api/queries/q/current").json()["rows"] == [[2]]
    assert client.patch("/api/queries/q", json={"priority": 9}).json()["options"]["priority"] == 9
    assert client.patch("/api/queries/q", json={"start": "now"}).status_code == 400
    assert client.post("/api/queries/q/suspend").json()["status"] == "suspended"
    assert client.post("/api/queries/q/resume").json()["status"] == "running"
    for format in ("text", "json", "mermaid"):
        assert "s" in client.get(f"/api/queries/q/explain?format={format}").text
    assert client.post("/api/queries", json={"name": "q", "cql": "SELECT t FROM s"}).status_code == 409
    assert client.delete("/api/queries/q").json()["status"] == "stopped"
    assert client.get("/api/queries/q").json()["status"] == "stopped"
    assert [q["name"] for q in client.get("/api/queries").json()["queries"]] == ["q"]
    assert client.get("/api/queries?ended=false").json() == {"queries": []}


def test_a_query_from_a_plan_object(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    plan = client.post("/api/explain", json={"cql": "SELECT t FROM s WHERE v > 1", "format": "json"}).json()
    made = client.post("/api/queries", json={"plan": plan, "name": "p"})
    assert made.status_code == 201, made.text
    client.post("/api/streams/s/rows", json=[[1, 1.0], [2, 2.0]])
    assert [row["t"] for row in client.get("/api/queries/p/answers?limit=9").json()["rows"]] == [2]
    assert client.post("/api/queries", json={"plan": {"node": "no such"}}).json()["code"] == "PS104"


def test_an_error_in_a_text_has_its_place_and_a_hint(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    told = client.post("/api/queries", json={"cql": "SELECT tt FROM s"}).json()
    assert told["status"] == 400
    assert told["position"] == {"line": 1, "column": 8, "length": 2}
    assert "`t`" in told["hint"]
    told = client.post("/api/sql", json={"sql": "CREATE QUERY q AS SELECT t FORM s"}).json()
    assert (told["status"], told["code"], told["position"]["column"]) == (400, "PS101", 28)


def test_pages_of_answers(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "q", "cql": "SELECT t FROM s"})
    client.post("/api/streams/s/rows", json=[[i, 0.0] for i in range(10)])
    found, position = [], 0
    while position < 10:
        page = client.get(f"/api/queries/q/answers?from={position}&limit=3").json()
        assert page["start"] == position
        found += [row["t"] for row in page["rows"]]
        position = page["next"]
    assert found == list(range(10))
    response = client.get("/api/queries/q/answers?from=4", headers={"Accept": ARROW})
    with pa.ipc.open_stream(response.content) as reader:
        assert reader.read_all().column("t").to_pylist() == [4, 5, 6, 7, 8, 9]
    assert (response.headers["penstock-start"], response.headers["penstock-next"]) == ("4", "10")
    assert client.get("/api/queries/q/answers?from=now&limit=5").json()["rows"] == []
    ahead = client.get("/api/queries/q/answers?from=11&limit=5")
    assert (ahead.status_code, ahead.json()["code"]) == (409, "PS202")
    for wrong in ("from=x&limit=1", "limit=0", "limit=x", "limit=1&wait=61", "limit=1&other=2", "format=xml",
                  "format=events&limit=1"):  # fmt: skip
        assert client.get(f"/api/queries/q/answers?{wrong}").status_code == 400, wrong


def test_a_page_waits_for_its_first_result(server: Served, client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "q", "cql": "SELECT t FROM s"})
    found: list[Any] = []

    def ask() -> None:
        with server.client() as other:
            found.append(other.get("/api/queries/q/answers?from=0&wait=60").json()["rows"])

    asking = threading.Thread(target=ask)
    asking.start()
    client.post("/api/streams/s/rows", json=[[1, 0.0]])
    asking.join(60)
    assert [row["t"] for row in found[0]] == [1]


def test_results_that_are_gone(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "q", "cql": "SELECT t FROM s", "options": {"results": "1 KB"}})
    for i in range(200):
        client.post("/api/streams/s/rows", json=[[i, 0.0]])
    gone = client.get("/api/queries/q/answers?from=0&limit=10")
    assert (gone.status_code, gone.json()["code"]) == (410, "PS206")
    first = gone.json()["first"]
    assert 0 < first < 200
    assert client.get(f"/api/queries/q/answers?from={first}&limit=1").json()["rows"][0]["t"] == first
    assert client.get("/api/queries/q/answers?from=0").status_code == 410


def test_named_subscriptions(server: Served, client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "q", "cql": "SELECT t FROM s"})
    client.post("/api/streams/s/rows", json=[[1, 0.0]])
    made = client.post("/api/subscriptions", json={"name": "mine", "query": "q", "start": "start"})
    assert (made.status_code, made.json()["position"]) == (201, 0)
    assert client.post("/api/subscriptions", json={"name": "mine", "query": "q"}).status_code == 409
    assert client.post("/api/subscriptions", json={"name": "other", "query": "nothing"}).status_code == 404
    client.post("/api/streams/s/rows", json=[[2, 0.0]])
    page = client.get("/api/subscriptions/mine/answers?limit=1").json()
    assert [row["t"] for row in page["rows"]] == [1]
    assert client.post("/api/subscriptions/mine/confirm", json={"position": page["next"]}).json()["lag"] == 1
    assert [row["t"] for row in client.get("/api/subscriptions/mine/answers?limit=9").json()["rows"]] == [2]
    assert client.post("/api/subscriptions/mine/confirm", json={"position": 9}).status_code == 409
    assert client.post("/api/subscriptions/mine/confirm", json={"position": -1}).status_code == 400
    assert client.get("/api/subscriptions").json()["subscriptions"][0]["name"] == "mine"
    with server.client(server.token_of("dora")) as dora:
        assert dora.get("/api/subscriptions/mine").status_code == 404
    assert client.delete("/api/subscriptions/mine").status_code == 204
    assert client.get("/api/subscriptions/mine").status_code == 404


# -- statements, and looking around -------------------------------------------------------------------


def test_statements(client: httpx.Client) -> None:
    text = "CREATE STREAM s (a BIGINT); INSERT INTO s VALUES (1), (2); SHOW STREAMS"
    found = client.post("/api/sql", json={"sql": text})
    assert [each["tag"] for each in found.json()["results"]][:2] == ["CREATE STREAM", "INSERT 0 2"]
    assert found.json()["results"][2]["rows"][0][0] == "s"
    headers = {"Content-Type": "text/plain", "Accept": "text/csv"}
    plain = client.post("/api/sql", content="SHOW STREAMS", headers=headers)
    assert plain.text.startswith("stream,")
    assert client.post("/api/sql", json={"sql": 1}).status_code == 400
    assert client.post("/api/sql", json={"sql": "SHOW STREAMS", "parameters": {}}).status_code == 400
    assert client.post("/api/sql", content=b"x", headers={"Content-Type": "image/png"}).status_code == 415
    assert client.post("/api/sql?format=arrow", json={"sql": "CREATE STREAM u (a BIGINT)"}).status_code == 406


@pytest.mark.parametrize("asked", [
    {"sql": "SELECT '\ud800'"}, {"sql": 'CREATE STREAM "\udfff" (a BIGINT)'},
    {"sql": "INSERT INTO r VALUES (?)", "parameters": ["\ud800"]},
])  # fmt: skip
@pytest.mark.parametrize("escaped", [True, False])
def test_half_a_character_is_refused_and_stored_nowhere(
    client: httpx.Client, asked: dict[str, object], escaped: bool
) -> None:
    def ask(what: dict[str, object]) -> httpx.Response:
        body = json.dumps(what, ensure_ascii=escaped).encode(errors="surrogatepass")
        return client.post("/api/sql", content=body, headers={"Content-Type": "application/json"})

    ask({"sql": "CREATE RELATION r (a STRING) KEY (a)"})
    refused = ask(asked)
    assert refused.status_code == 400, refused.text
    assert "is not JSON" in refused.json()["detail"]
    found = ask({"sql": "SELECT a FROM r; SHOW STREAMS; SELECT '\N{GRINNING FACE}' AS face"})
    assert [each["rows"] for each in found.json()["results"]] == [[], [], [["\N{GRINNING FACE}"]]]


def test_the_graph_metrics_settings_and_tables_of_sys(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "q", "cql": "SELECT t FROM s"})
    assert client.get("/api/graph").json()["engine"] == "local"
    assert client.get("/api/graph?format=svg").text.startswith("<svg")
    assert client.get("/api/metrics?of=queries").json()["rows"][0][0] == "q"
    assert client.get("/api/settings").json()["engine"] == "local"
    assert "tls_key" not in client.get("/api/settings").json()
    assert client.patch("/api/settings", json={"settings": {"threading": "graph"}}).status_code == 204
    assert client.get("/api/graph").json()["threading"] == "graph"
    assert client.patch("/api/settings", json={"settings": {"threading": "nonsense"}}).status_code == 400
    assert client.patch("/api/settings", json={"settings": {}}).status_code == 400
    assert client.get("/api/sys/queries").json()["rows"]
    assert client.get("/api/sys/nothing").status_code == 404


def test_prometheus(client: httpx.Client) -> None:
    client.post("/api/streams", json=STREAM)
    client.post("/api/queries", json={"name": "q", "cql": "SELECT t FROM s"})
    client.post("/api/streams/s/rows", json=[[1, 0.0]])
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'penstock_stream_rows_total{stream="s"} 1.0', 'penstock_query_results_total{query="q"} 1.0',
        'penstock_queries{status="running"} 1.0', "penstock_ready 1.0", 'penstock_sessions{protocol="http"} 1.0',
        'penstock_http_requests_total{method="POST",path="/api/streams/{stream}/rows",status="200"} 1.0',
    ):  # fmt: skip
        assert line in found.text.splitlines()


# -- requests as such ---------------------------------------------------------------------------------


def test_every_response_says_how_it_is_to_be_taken(client: httpx.Client) -> None:
    for path in ("/", "/health", "/api/streams", "/api/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert len(headers["x-request-id"]) == 16
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_the_page_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/").text
    for found in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert found.startswith(("/", "data:,"))
        if found.startswith("/") and found != "/":
            assert client.get(found).status_code == 200


def test_methods_types_and_paths_that_are_not_there(client: httpx.Client) -> None:
    wrong = client.put("/api/streams")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    assert client.get("/api/streams/").status_code == 404
    assert client.get("/api//streams").status_code == 404
    assert client.get("/api/streams?what=1").status_code == 400
    assert client.get("/api/queries", headers={"Accept": "image/png"}).status_code == 200
    assert client.post("/api/streams", content=b"a=1", headers={"Content-Type": "text/html"}).status_code == 415
    assert client.post("/api/queries", json=[1]).status_code == 400


def test_a_body_that_is_too_large_is_cut_off_early() -> None:
    with served(body=1_000) as server:
        server.sql("CREATE STREAM s (a STRING)")
        with server.client() as client:
            refused = client.post("/api/streams/s/rows", json=[["x" * 2_000]])
            assert (refused.status_code, refused.json()["code"]) == (413, "HTTP413")
        connection = HTTPConnection(*server.address, timeout=60)
        connection.putrequest("POST", "/api/streams/s/rows")
        for name, value in (("Authorization", f"Bearer {server.token}"), ("Transfer-Encoding", "chunked"),
                            ("Content-Type", "application/json")):  # fmt: skip
            connection.putheader(name, value)
        connection.endheaders()
        for _ in range(3):  # and the body goes on
            connection.send(b"190\r\n" + b"x" * 400 + b"\r\n")
        assert connection.getresponse().status == 413
        connection.close()


def test_too_many_rows_and_too_long_a_statement() -> None:
    with served(rows=2, statement=200) as server:
        server.sql("CREATE STREAM s (a BIGINT)")
        with server.client() as client:
            assert client.post("/api/streams/s/rows", json=[[1], [2], [3]]).status_code == 429
            assert client.post("/api/streams/s/rows", json=[[1], [2]]).status_code == 200
            assert client.post("/api/sql", json={"sql": "-- " + "x" * 200}).status_code == 429


def test_headers_that_do_not_come_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(listener, "KEEP_ALIVE_SECONDS", 1)
    with served() as server:
        for begun in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET"):
            with socket.create_connection(server.address, timeout=60) as slow:
                slow.sendall(begun)
                while slow.recv(4096):
                    pass


def test_bytes_that_are_not_http(server: Served) -> None:
    with socket.create_connection(server.address, timeout=60) as strange:
        strange.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert b" 400 " in strange.recv(4096)
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_failure_of_the_server_tells_nothing_but_its_number(
    server: Served, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(server.service, "streams", broken)
    failed = client.get("/api/streams")
    assert failed.status_code == 500
    assert "secret" not in failed.text
    assert failed.json()["request"] in caplog.text
    assert failed.json()["request"] == failed.headers["x-request-id"]


@pytest.fixture
def lines() -> Iterator[queue.SimpleQueue[Any]]:
    """The records that the HTTP server logs. It logs a request after its response, so tests wait for them."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    logger, handler = logging.getLogger("penstock.server.http"), QueueHandler(found)
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_a_line_of_the_log_has_request_user_and_query(client: httpx.Client, lines: queue.SimpleQueue[Any]) -> None:
    response = client.get("/api/queries/nothing")
    facts = (getattr(lines.get(timeout=60), "facts", {}) for _ in itertools.count())
    found = next(line for line in facts if line.get("request") == response.headers["x-request-id"])
    assert (found["user"], found["query"], found["status"], found["route"]) == (
        "admin", "nothing", 404, "/api/queries/{query}",
    )  # fmt: skip


def test_readiness_follows_the_service(server: Served) -> None:
    assert httpx.get(f"{server.url}/ready").json() == {"status": "ready", "ready": True}
    server.service.status = "stopping"
    assert httpx.get(f"{server.url}/ready").status_code == 503
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there")
def test_curl(server: Served) -> None:
    server.sql("CREATE STREAM s (a BIGINT)", "CREATE QUERY q AS SELECT a FROM s", "INSERT INTO s VALUES (7)")
    auth = f"Authorization: Bearer {server.token}"
    command = ["curl", "-sN", "--max-time", "2", "-H", auth, f"{server.url}/api/queries/q/answers?from=start"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert 'id: 1\ndata: {"ts": ' in found
    assert '"a": 7' in found


# -- the document -------------------------------------------------------------------------------------


def test_every_endpoint_has_its_entry(client: httpx.Client) -> None:
    told = client.get("/api/openapi.json").json()
    assert told == json.loads(json.dumps(document(ENDPOINTS)))
    entries = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert entries == {(each.method, each.path) for each in ENDPOINTS}
    ids = [entry["operationId"] for methods in told["paths"].values() for entry in methods.values()]
    assert len(ids) == len(set(ids))
