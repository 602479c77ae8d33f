"""schemathesis against the OpenAPI document: whatever clients send, the server answers, and as the document says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from penstock.server.http.openapi import document
from penstock.server.http.routes import ENDPOINTS
from tests.budget import examples
from tests.server.over_http import Served, served

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.checks")

SCHEMA = schemathesis.openapi.from_dict(document(ENDPOINTS))
ENDLESS = ("answers", "subscriptionAnswers")
"""Without ``limit`` their responses may have no end."""
CHECKS = [
    checks.not_a_server_error,
    *checks.CHECKS.get_by_names([
        "status_code_conformance", "content_type_conformance", "response_schema_conformance",
        "response_headers_conformance", "unsupported_method",
    ]),
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as found:
        found.sql("CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t", "CREATE QUERY q AS SELECT t, v FROM s",
                  "CREATE RELATION r (a STRING, b BIGINT) KEY (a)", "INSERT INTO s VALUES (1, 0.5)")  # fmt: skip
        yield found


THERE = {"stream": "s", "query": "q", "relation": "r", "table": "queries", "subscription": "mine"}


@SCHEMA.parametrize()  # type: ignore[untyped-decorator]
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_clients_send(case: Any, server: Served) -> None:
    id = case.operation.definition.raw["operationId"]
    if id in ENDLESS:
        case.query = {**(case.query or {}), "limit": "1", "format": "json"}
        case.query.pop("wait", None)
    case.path_parameters = {
        key: THERE[key] if len(str(value)) % 2 else value for key, value in (case.path_parameters or {}).items()
    }
    headers = {"Authorization": f"Bearer {server.token}"}
    case.call_and_validate(base_url=server.url, headers=headers, checks=CHECKS, timeout=60)
