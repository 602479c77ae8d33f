"""Spans of OpenTelemetry: what follows from what, from a request to the answer; and nothing of it where it is off."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import InputError
from penstock.hosts.options import SparkOptions
from penstock.model import tracing
from penstock.server import life
from penstock.server.service import Service
from penstock.server.settings import Settings
from tests.server.over_http import Events, served
from tests.server.process import ROOT

export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


class Spans:
    """What was exported so far."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[Any]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def above(self, span: Any) -> list[str]:
        """The names of the spans from a span up to the first."""
        known = {each.context.span_id: each for each in self._exporter.get_finished_spans()}
        found: list[str] = [span.name]
        while span.parent is not None and span.parent.span_id in known:
            span = known[span.parent.span_id]
            found.append(span.name)
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    from penstock.server import tracing as otel

    exporter = memory.InMemorySpanExporter()
    made = otel.start(export.SimpleSpanProcessor(exporter))
    yield Spans(exporter)
    otel.stop(made)


CLIENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_from_a_request_to_the_answer(spans: Spans) -> None:
    with served() as server, server.client() as client:
        server.sql("CREATE STREAM s (v BIGINT)", "CREATE QUERY q AS SELECT v FROM s WHERE v > 1")
        (plan,) = spans.named("plan")
        assert plan.attributes["penstock.query"] == "q"
        kinds = [span.attributes["penstock.kind"] for span in spans.named("statement")]
        assert kinds == ["CREATE STREAM", "CREATE QUERY"]
        events = Events(server, "/api/queries/q/answers?from=start")
        said = client.post("/api/streams/s/rows", json=[{"v": 1}, {"v": 2}], headers={"traceparent": CLIENTS})
        assert said.status_code == 200
        assert events.rows(1)[0][1]["v"] == 2
        events.cut()
        answer = spans.named("answer")[-1]
        (push,) = spans.named("push")
        assert push.attributes["penstock.protocol"] == "http"
        assert push.context.trace_id == answer.context.trace_id == int(CLIENTS.split("-")[1], 16), "the client's trace"
        (evaluation,) = spans.named("evaluation")
        assert evaluation.attributes["penstock.rows"] == 2
        assert answer.parent.span_id == evaluation.context.span_id
        assert evaluation.parent.span_id == push.context.span_id
    assert spans.above(plan) == ["plan", "statement", "request"], "a request's span ends after its response"


def test_spans_have_no_words_of_a_client(spans: Spans) -> None:
    kinds = {
        "hunter2": "other", "'hunter2'": "other", "CREATE hunter2": "CREATE", "ALTER 'hunter2'": "ALTER",
        "CREATE USER eve PASSWORD 'hunter2 hunter2'": "CREATE USER",
    }  # fmt: skip
    with served() as server, server.client() as client:
        for text in kinds:
            client.post("/api/sql", json={"sql": text})
        found = spans.named("statement")
        assert [each.attributes["penstock.kind"] for each in found] == list(kinds.values())
    requests = spans.named("request")
    assert len(requests) == len(kinds)
    assert not any("hunter2" in str(each.to_json()).lower() for each in (*found, *requests))


def test_a_reader_that_finds_nothing_makes_no_spans(spans: Spans) -> None:
    with served() as server, server.client() as client:
        server.sql("CREATE STREAM s (v BIGINT)", "CREATE QUERY q AS SELECT v FROM s", "INSERT INTO s VALUES (1)")
        for position, count in ((0, 1), (1, 0), (1, 0)):
            page = client.get("/api/queries/q/answers", params={"from": position, "limit": 10})
            assert len(page.json()["rows"]) == count
        assert [each.attributes["penstock.position"] for each in spans.named("answer")] == [0]


def test_what_fails_is_marked_and_quotes_nothing(spans: Spans) -> None:
    with served() as server, server.client() as client:
        assert client.post("/api/sql", json={"sql": "CREATE USER x PASSWORD 'secret' nonsense"}).status_code == 400
        (failed,) = spans.named("statement")
        assert not failed.status.is_ok
        assert "secret" not in failed.to_json()


def test_a_micro_batch_follows_from_the_push(spans: Spans, tmp_path: Path) -> None:
    with penstock.Database("spark", path=tmp_path, options=SparkOptions(inline=True, trigger=0.0)) as db:
        service = Service(db, Settings())
        token = service.access.first_start()
        assert token is not None
        session = service.login_token(token, protocol="python", remote="test")
        service.execute(session, "CREATE STREAM s (v BIGINT); CREATE QUERY q AS SELECT v FROM s")
        feed = service.feed(session, "q")
        service.push(session, "s", [{"v": 7}])
        assert feed.wait_blocking(0, 60)
        assert feed.read(0).table.column("v").to_pylist() == [7]
        service.close()
    answer = spans.named("answer")[-1]
    assert spans.above(answer) == ["answer", "micro-batch", "log", "push"]


def test_lines_of_the_log_have_the_trace(spans: Spans) -> None:
    record = logging.LogRecord("penstock.server", logging.INFO, "", 0, "something", (), None)
    form = life._Json()
    assert "trace" not in json.loads(form.format(record))
    with tracing.span("request"):
        assert json.loads(form.format(record))["trace"] == tracing.trace_id()


def test_nothing_is_imported_while_it_is_off(tmp_path: Path) -> None:
    code = (
        "import sys; from penstock.server import life; from penstock.server.settings import Settings\n"
        f"server = life.Server({str(tmp_path / 'db')!r}, Settings(engine='local', http=0, flight=0, postgres=0))\n"
        "server.start(); server.stop()\n"
        "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"
    with tracing.span("push", rows=1):
        assert tracing.current() is None
    assert tracing.span("push") is tracing.span("answer"), "one empty block for all"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "penstock.server.tracing", raising=False)
    with pytest.raises(InputError, match="traces need the Python package `opentelemetry`") as refused:
        life.traced(Settings(traces="http://127.0.0.1:4318"))
    assert refused.value.hint == "pip install 'penstock[tracing]'"
