"""Errors as clients get them: ``application/problem+json`` (RFC 9457) with Penstock's code, position and hint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from penstock.model.errors import (
    AccessDenied,
    BufferFullError,
    CatalogError,
    CheckpointError,
    EngineError,
    LimitExceeded,
    LoginFailed,
    PenstockError,
    ResultsGone,
    SpillError,
    StateError,
    StorageError,
)
from penstock.rows.apart import BadRow
from penstock.server.throttle import Throttled

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="penstock", Basic realm="penstock", charset="UTF-8"'
_STATUS: Mapping[type[PenstockError], HTTPStatus] = {
    LoginFailed: HTTPStatus.UNAUTHORIZED,
    AccessDenied: HTTPStatus.FORBIDDEN,
    CatalogError: HTTPStatus.NOT_FOUND,
    LimitExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    StateError: HTTPStatus.CONFLICT,
    ResultsGone: HTTPStatus.GONE,
    BufferFullError: HTTPStatus.SERVICE_UNAVAILABLE,
    StorageError: HTTPStatus.INSUFFICIENT_STORAGE,
    SpillError: HTTPStatus.INSUFFICIENT_STORAGE,
    CheckpointError: HTTPStatus.INTERNAL_SERVER_ERROR,
    EngineError: HTTPStatus.NOT_IMPLEMENTED,
}
"""Of errors of a class, or of those above it; every other one is about what the client sent: 400."""
_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class HttpProblem(Exception):
    """What is wrong with a request as such: its method, type, size or parameters."""

    def __init__(self, status: int, detail: str, *, hint: str | None = None, headers: Mapping[str, str] = {}) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint, self.headers = status, detail, hint, headers


class Told(Exception):
    """An error with the status, and the headers, that it has here."""

    def __init__(self, error: PenstockError, status: int, headers: Mapping[str, str] = {}) -> None:
        super().__init__(error.message)
        self.error, self.status, self.headers = error, status, headers


def status_of(error: PenstockError) -> HTTPStatus:
    """The status of a response that says this error."""
    if isinstance(error, CatalogError) and error.position is not None:
        return HTTPStatus.BAD_REQUEST  # it is about a name in a text, and not about the one in the path
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), HTTPStatus.BAD_REQUEST)


def problem_of(error: PenstockError, status: int | None = None) -> dict[str, Any]:
    """The object that tells an error; also in the events of a response that has begun."""
    status = int(status_of(error)) if status is None else status
    kind = next(c for c in type(error).__mro__ if "code" in vars(c))
    found: dict[str, Any] = {
        "type": f"urn:penstock:error:{error.code}",
        "title": kind.__name__,
        "status": status,
        "detail": error.message,
        "code": error.code,
        "error": kind.__name__,
    }
    if error.hint:
        found["hint"] = error.hint
    if error.position is not None:
        where = error.position
        found["position"] = {"line": where.line, "column": where.column, "length": where.length}
    if error.text is not None and error.position is not None:
        found["text"] = error.text
    if isinstance(error, ResultsGone) and error.first is not None:
        found["first"] = error.first
    if isinstance(error, BadRow):
        found["row"] = {"number": error.row, "place": error.place, "column": error.column, "reason": error.reason}
    return found


def response_of(
    error: PenstockError, request: str, *, status: int | None = None, headers: Mapping[str, str] = {}
) -> Response:
    """The response that tells an error; ``request``: the number of the request in the log."""
    told = problem_of(error, status)
    more = dict(headers)
    if told["status"] == HTTPStatus.UNAUTHORIZED:
        more["WWW-Authenticate"] = CHALLENGE
    if told["status"] in _LATER:
        more.setdefault("Retry-After", str(error.seconds) if isinstance(error, Throttled) else "1")
    return _response({**told, "request": request}, more)


def plain_problem(
    status: int, detail: str, request: str, *, hint: str | None = None, headers: Mapping[str, str] = {}
) -> Response:
    """The response for what is wrong with a request as such."""
    told = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail,
            "code": f"HTTP{status}", "request": request}  # fmt: skip
    return _response(told if hint is None else {**told, "hint": hint}, dict(headers))


def _response(told: Mapping[str, Any], headers: dict[str, str]) -> Response:
    content = json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(content, told["status"], headers, MEDIA_TYPE)
