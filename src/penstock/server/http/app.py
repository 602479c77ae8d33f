"""From a request to a response: who asks, what it may send, what it gets when something is wrong, a line in the log."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.model import tracing
from penstock.model.errors import LimitExceeded, LoginFailed, PenstockError
from penstock.server.holding import Hold
from penstock.server.http.problems import HttpProblem, Told, plain_problem, response_of
from penstock.server.http.routing import Endpoint, Router
from penstock.server.service import Service
from penstock.server.session import Session
from penstock.server.settings import Settings
from penstock.server.stop import Stop
from penstock.server.texts import json_of
from penstock.server.watching import Requests

T = TypeVar("T")

LOG = logging.getLogger("penstock.server.http")
WORKERS = 16
"""Threads for what a request asks the service; more requests wait for one."""
QUICK = 4
"""Threads for what takes no time: logins, so that they do not wait for work, and reading results."""
BODY_SECONDS = 30.0
"""Until a body is there: so long, and a second more for each ``BODY_RATE`` bytes that have come."""
BODY_RATE = 16_384
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"content-security-policy",
     b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
     b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
]  # fmt: skip
_TLS = (b"strict-transport-security", b"max-age=31536000")
_SMALL = 65_536
"""Bytes of a response that are not counted."""
_NUMBER = re.compile(r"[0-9]{1,18}")


class Site:
    """What all requests of one listener share."""

    def __init__(self, service: Service, settings: Settings, router: Router, requests: Requests) -> None:
        self.service, self.settings, self.router, self.requests = service, settings, router, requests
        self.work = ThreadPoolExecutor(WORKERS, "penstock-http")
        self.quick = ThreadPoolExecutor(QUICK, "penstock-http-quick")
        self.streams: set[Callable[[], object]] = set()
        """What ends each response that has no end of its own. One for each such response."""
        self.stops: set[Stop] = set()
        """Of statements that run: one for each request."""
        self.closing = False

    def close_streams(self) -> None:
        """Let responses without an end come to one: the server ends. In the loop."""
        self.closing = True
        for end in list(self.streams):
            end()

    def close(self) -> None:
        """Give plain SELECTs up, wait for what else the threads do, and end them."""
        for stop in list(self.stops):
            stop.set()
        self.work.shutdown(wait=True, cancel_futures=True)
        self.quick.shutdown(wait=True, cancel_futures=True)


class Call:
    """A request of a client that has said who it is, if it had to."""

    def __init__(self, site: Site, scope: Scope, receive: Receive, send: Send, id: str) -> None:
        self.site, self.scope, self.id = site, scope, id
        self.service, self.settings = site.service, site.settings
        self.headers = Headers(scope=scope)
        self._receive, self._send = receive, send
        self._session: Session | None = None
        self.names: dict[str, str] = {}
        """The parts of the path that stand for names."""
        self._query: dict[str, str] | None = None
        self.hold: Hold | None = None
        """The memory that the body, and after it the response, counts for."""

    @property
    def session(self) -> Session:
        assert self._session is not None, "an open endpoint asks for nobody"
        return self._session

    @property
    def user(self) -> str | None:
        """Who asks, if that is known."""
        return None if self._session is None else self._session.user

    @property
    def remote(self) -> str:
        """The address of the client."""
        client = self.scope.get("client")
        return str(client[0]) if client else "?"

    async def log_in(self) -> None:
        """Find out who asks; LoginFailed if the credential is none, or wrong."""
        given = self.headers.get("authorization", "")
        scheme, _, rest = given.partition(" ")
        match scheme.lower():
            case "bearer":
                login = self.service.login_token
                credentials: tuple[str, ...] = (rest.strip(),)
            case "basic":
                login, credentials = self.service.login, _basic(rest.strip())  # type: ignore[assignment]
            case _:
                raise LoginFailed("no credential was given", hint="send `Authorization: Bearer` and a token")
        self._session = await self.quick(login, *credentials, protocol="http", remote=self.remote)

    async def ask(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """What a function of the service gives, called in a thread for work, with the session."""
        session = self.session
        loop = asyncio.get_running_loop()
        context = copy_context()  # of the request's span
        work = partial(context.run, function, session, *args, **options)
        return await loop.run_in_executor(self.site.work, work)

    async def ask_while_there(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """The same for a function that takes a ``stop``: it is set, and ClientGone is raised, when the client has gone.
        The body has been read before."""
        stop = Stop()
        work = asyncio.ensure_future(self.ask(function, *args, stop=stop, **options))
        gone = asyncio.ensure_future(self._gone())
        self.site.stops.add(stop)
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.add_done_callback(_forgotten)
                raise ClientGone
            return work.result()
        finally:
            self.site.stops.discard(stop)
            stop.set()
            gone.cancel()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def quick(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """What a function gives that takes no time but may wait for a lock."""
        return await asyncio.get_running_loop().run_in_executor(self.site.quick, lambda: function(*args, **options))

    # -- what the client sent -------------------------------------------------------------------------

    def name(self, key: str) -> str:
        """A part of the path."""
        return self.names[key]

    def parameter(self, key: str) -> str | None:
        """A parameter of the query string."""
        if self._query is None:
            text = self.scope["query_string"].decode("latin-1")
            try:
                pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
            except ValueError:
                raise HttpProblem(400, "the query string cannot be read as UTF-8 parameters") from None
            self._query = dict(pairs)
        return self._query.get(key)

    def known(self, *keys: str) -> None:
        """Refuse parameters that the endpoint does not have."""
        self.parameter("")
        for key in self._query or ():
            if key not in keys:
                there = f"there are {', '.join(keys)}" if keys else "there is none"
                raise HttpProblem(400, f"there is no parameter `{key}` here", hint=there)

    def number(self, key: str, default: int, least: int, most: int) -> int:
        """A parameter that is a whole number."""
        text = self.parameter(key)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise HttpProblem(400, f"parameter `{key}` is not a whole number from {least} to {most}")
        return int(text)

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """A parameter that is one of some words."""
        text = self.parameter(key)
        if text is not None and text not in choices:
            raise HttpProblem(400, f"parameter `{key}` is none of {', '.join(choices)}")
        return default if text is None else text

    @property
    def media_type(self) -> str:
        """What the client says its body is."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def body(self) -> bytes:
        """The whole body, if it is not too large and comes in time."""
        most = self.settings.body
        length = self.headers.get("content-length")
        if length is not None and int(length) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size, more = 0, True
        hold = self.hold = self.service.holding.hold(self.session.user)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while more:
            try:
                async with asyncio.timeout_at(began + BODY_SECONDS + size / BODY_RATE):
                    message = await self._receive()
            except TimeoutError:
                raise HttpProblem(408, "the body did not come in time", headers={"Connection": "close"}) from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise _too_large(most)
            try:
                hold.grow(len(part))
            except LimitExceeded as error:
                raise Told(error, 429, {"Connection": "close"}) from None
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def json(self, *keys: str) -> dict[str, Any]:
        """The body as an object of JSON with some of these keys."""
        if self.media_type not in ("application/json", ""):
            raise HttpProblem(415, "the body is not said to be JSON", hint="Content-Type: application/json")
        return object_of(await self.body(), keys)

    # -- responses without an end ---------------------------------------------------------------------

    @property
    def send(self) -> Send:
        return self._send


def _forgotten(work: asyncio.Future[Any]) -> None:
    """Nobody hears what became of it."""
    if not work.cancelled():
        work.exception()


class ClientGone(Exception):
    """The client has ended the connection before its request was complete."""


def object_of(body: bytes, keys: Sequence[str]) -> dict[str, Any]:
    """An object of JSON that has some of these keys and no others; without keys, any."""
    try:
        found = json_of(body)
    except UnicodeDecodeError:
        raise HttpProblem(400, "the body is not JSON: it is not in UTF-8") from None
    except (ValueError, RecursionError) as problem:
        said = str(problem) if isinstance(problem, ValueError) else "it is nested too deep"
        raise HttpProblem(400, f"the body is not JSON: {said}") from None
    if not isinstance(found, dict):
        hint = f"it has the keys {', '.join(keys)}" if keys else None
        raise HttpProblem(400, "the body is not an object of JSON", hint=hint)
    for key in found:
        if keys and key not in keys:
            raise HttpProblem(400, f"there is no key `{key}` here", hint=f"there are {', '.join(keys)}")
    return found


def _too_large(most: int) -> HttpProblem:
    hint = "send less at a time; setting `body` says how much"
    return HttpProblem(413, f"the body is larger than {most} bytes", hint=hint, headers={"Connection": "close"})


def _basic(given: str) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""
    if not colon:
        raise LoginFailed("the credential cannot be read", hint="Basic: base64 of user, colon and password")
    return user, password


def app(site: Site) -> ASGIApp:
    """The ASGI application of a site."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the listener has neither websockets nor a lifespan"
        began, id = time.perf_counter(), secrets.token_hex(8)
        status = 0
        extra = [*_HEADERS, (b"x-request-id", id.encode())]
        if scope["scheme"] == "https":
            extra.append(_TLS)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                said = {name.lower() for name, _ in message["headers"]}
                more = [each for each in extra if each[0] not in said]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        call = Call(site, scope, receive, sending, id)
        endpoint: Endpoint | None = None
        trace: str | None = None
        try:
            with tracing.span("request", parent=call.headers.get("traceparent"), request=id, method=scope["method"]):
                trace = tracing.trace_id()
                endpoint, response = await _answer(call)
                if response is not None:
                    await response(scope, receive, sending)
                    if call.hold is not None:  # until the client has taken most of it
                        await scope["state"]["connection"].flow.drain()
        except ClientGone:
            pass
        finally:
            if call.hold is not None:
                call.hold.release()
            seconds = time.perf_counter() - began
            route = endpoint.path if endpoint is not None else "other"
            site.requests.add(scope["method"], route, status, seconds)
            facts = {
                "request": id, "user": call.user, "remote": call.remote, "status": status, "route": route,
                "seconds": round(seconds, 6), **call.names, **({} if trace is None else {"trace": trace}),
            }  # fmt: skip
            LOG.info("%s %s %s", scope["method"], route, status, extra={"facts": facts})

    return serve


async def _answer(call: Call) -> tuple[Endpoint | None, Response | None]:
    """The endpoint that was meant, and what to send; None where the endpoint has sent it itself."""
    site, scope = call.site, call.scope
    endpoint: Endpoint | None = None
    try:
        path = scope.get("raw_path", b"").decode("ascii", "replace") or "/"
        found = site.router.find(path)
        if found is None or not found.open:
            await call.log_in()
        if found is None:
            raise HttpProblem(404, "there is nothing at this path", hint="GET /api/openapi.json lists what there is")
        method = scope["method"]
        endpoint = found.methods.get("GET" if method == "HEAD" and found.open else method)
        if endpoint is None:
            allowed = ", ".join(sorted(found.methods))
            raise HttpProblem(405, f"{method} is not for this path", hint=allowed, headers={"Allow": allowed})
        try:
            call.names = {key: unquote(part, errors="strict") for key, part in found.names.items()}
        except UnicodeDecodeError:
            raise HttpProblem(404, "the path is not UTF-8") from None
        response = await endpoint.run(call)
        if response is not None and call.user is not None and len(response.body) > _SMALL:
            call.hold = call.service.holding.hold(call.user, len(response.body))
        return endpoint, response
    except PenstockError as error:
        return endpoint, response_of(error, call.id)
    except Told as told:
        return endpoint, response_of(told.error, call.id, status=told.status, headers=told.headers)
    except HttpProblem as problem:
        return endpoint, plain_problem(
            problem.status, problem.detail, call.id, hint=problem.hint, headers=problem.headers
        )
    except ClientGone:
        raise
    except Exception:
        LOG.exception("request %s failed", call.id, extra={"facts": {"request": call.id}})
        return endpoint, plain_problem(500, "the server failed; its log says why", call.id)
