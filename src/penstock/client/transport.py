"""Requests to a server: connections that are kept, errors that are raised as in the process, and trying again.

A request whose repetition changes nothing is sent again when the connection breaks, until the server answers or
``patience`` is over: the server may be starting again. Any other is sent again only if the server cannot have had it.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from penstock.model import errors
from penstock.model.errors import EngineError, PenstockError, Position, ResultsGone
from penstock.storage.packing import unpacked

ARROW = "application/vnd.apache.arrow.stream"
_KEPT = 8
"""Connections that are kept for the next request."""
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds before each attempt after the first; the last one before all further ones."""


@dataclass(frozen=True)
class Reply:
    """What the server has answered."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def table(self) -> pa.Table:
        return unpacked(self.body)


def path(*parts: str) -> str:
    """A path below ``/api``; parts may be any names."""
    return "/api/" + "/".join(quote(part, safe="") for part in parts)


class Transport:
    """Requests from any thread. Bounded by ``_KEPT`` connections that are kept, and one for each request under way."""

    def __init__(
        self, url: str, *, token: str | None, user: str | None, password: str | None, ca: str | None, patience: float
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise EngineError(f"{url!r} is not the address of a server", hint="such as http://127.0.0.1:7070")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._host, self._port = parts.hostname, parts.port
        self.host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self._context = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        if token is None and parts.fragment.startswith("token="):
            token = parts.fragment.removeprefix("token=")
        user, password = user or parts.username, password or parts.password
        if token is None and user is None:
            raise EngineError(f"{self.url} wants to know who asks", hint="give a token=…, or a user=… and password=…")
        basic = b64encode(f"{user}:{password or ''}".encode()).decode()
        self.ca = ca
        self.credential = f"Basic {basic}" if token is None else f"Bearer {token}"
        self.patience = patience
        self._idle: list[http.client.HTTPConnection] = []
        self._guard = threading.Lock()
        self.closed = False

    def get(self, where: str, **parameters: object) -> Reply:
        return self.ask("GET", where, parameters=parameters, again=True)

    def post(self, where: str, given: object = None, *, again: bool = False, **parameters: object) -> Reply:
        body = b"" if given is None else json.dumps(given).encode()
        kind = {} if given is None else {"Content-Type": "application/json"}
        return self.ask("POST", where, body, kind, parameters=parameters, again=again)

    def ask(
        self, method: str, where: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *,
        parameters: Mapping[str, object] | None = None, wait: float = 0.0, again: bool = False,
    ) -> Reply:  # fmt: skip
        """Send a request. ``wait``: seconds that the server may wait before it answers; ``again``: sending it twice
        does no harm."""
        query = urlencode({k: str(v) for k, v in (parameters or {}).items() if v is not None})
        target = f"{where}?{query}" if query else where
        said = {"Authorization": self.credential, **(headers or {})}
        end = time.monotonic() + self.patience
        attempt = 0
        while True:
            if self.closed:
                raise errors.StateError("the database is closed")
            sent = [False]
            try:
                reply = self._once(method, target, body, said, wait, sent)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise EngineError(
                        f"{self.url}: its certificate is not trusted: {error.verify_message}",
                        hint="ca=… names the file with the certificate of the server, or of who signed it",
                    ) from error
                if (sent[0] and not again) or time.monotonic() >= end:
                    raise self._lost(error, sent=sent[0] and method != "GET") from error
            else:
                if reply.status < 400:
                    return reply
                told = error_of(reply)
                if reply.status != 503 or not (again or _is_turned_away(reply)) or time.monotonic() >= end:
                    raise told
            time.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1

    def _once(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], wait: float, sent: list[bool]
    ) -> Reply:
        connection, is_kept = self._connection(wait)
        try:
            try:
                response = self._sent(connection, method, target, body, headers, sent)
            except (OSError, http.client.HTTPException):
                if not is_kept:
                    raise
                # The server closes connections that were idle for long. If it had closed this one before the request
                # came, there is no answer at all; a new one shows what is the matter.
                connection.close()
                if sent[0] and method != "GET":
                    raise
                sent[0] = False
                connection = self._new(wait)
                response = self._sent(connection, method, target, body, headers, sent)
            reply = Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        except BaseException:
            connection.close()
            raise
        self._keep(connection, response)
        return reply

    @staticmethod
    def _sent(
        connection: http.client.HTTPConnection, method: str, target: str, body: bytes, headers: Mapping[str, str],
        sent: list[bool],
    ) -> http.client.HTTPResponse:  # fmt: skip
        if connection.sock is None:
            connection.connect()
        sent[0] = True
        connection.request(method, target, body or None, dict(headers))
        return connection.getresponse()

    def _connection(self, wait: float) -> tuple[http.client.HTTPConnection, bool]:
        while True:
            with self._guard:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._new(wait), False
            if kept.sock is not None and not select.select([kept.sock], [], [], 0)[0]:
                kept.sock.settimeout(self.patience + wait)
                return kept, True
            kept.close()  # the server has closed it: it closes connections that are idle

    def _new(self, wait: float) -> http.client.HTTPConnection:
        seconds = self.patience + wait
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=self._context)

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._guard:
            if not response.will_close and not self.closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _lost(self, error: Exception, *, sent: bool) -> EngineError:
        why = str(error) or type(error).__name__
        if sent:
            hint = "the request was sent: it may have been carried out; look before you send it again"
            return EngineError(f"the connection to {self.url} broke: {why}", hint=hint)
        hint = "is the server running? `penstock serve DIR` starts one"
        return EngineError(f"{self.url} does not answer: {why}", hint=hint)

    def close(self) -> None:
        """Close what is kept; requests under way end by themselves."""
        with self._guard:
            self.closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _is_turned_away(reply: Reply) -> bool:
    """Whether the server has done nothing, since it starts or ends; what it could not do has a code of ours."""
    try:
        return str(reply.json().get("code", "")) == "HTTP503"
    except (ValueError, AttributeError):
        return False


def error_of(reply: Reply) -> PenstockError:
    """The error that a response tells, as it would be raised in the process."""
    try:
        told = reply.json()
        kind = told.get("error")
    except (ValueError, AttributeError):
        return EngineError(f"the server answered {reply.status}, and what came with it is no problem of Penstock's")
    other = errors.InputError if reply.status in (400, 413, 415, 422) else EngineError
    return told_error(kind, {"detail": f"the server answered {reply.status}", **told}, other)


def told_error(
    name: object, told: Mapping[str, Any], other: type[PenstockError] = EngineError
) -> PenstockError:
    """The error of a class, with what a server tells of it; ``other``: the class where there is none of this name."""
    kind = getattr(errors, str(name), None)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        kind = other
    place = told.get("position")
    position = None if place is None else Position(place["line"], place["column"], place["length"])
    found: PenstockError = kind(
        str(told.get("detail")), hint=told.get("hint"), position=position, text=told.get("text")
    )
    if isinstance(found, ResultsGone):
        found.first = told.get("first")
    return found
