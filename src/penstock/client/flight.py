"""Tables by Arrow Flight, where the server offers it: the fast way for rows in and results out.

Nothing depends on it. A call that does not reach the server by Flight is made over HTTP instead: pushes have keys and
readers have positions, so it does not matter which way a call went, nor whether it went twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from penstock.client.transport import told_error
from penstock.model.errors import PenstockError

_AGAIN = 5.0
"""Seconds after which Flight is tried again that did not answer."""
_FIRST = 3.0
"""Seconds in which it has to answer the first time."""
_OURS = b"penstock.page"
"""Where the metadata of a page's schema says what it is."""
T = TypeVar("T")


@dataclass(frozen=True)
class Page:
    """Results from position ``start`` on; ``ended``: how the query ended, if it has."""

    start: int
    table: pa.Table
    ended: str | None


class Unreachable(Exception):
    """Flight does not answer, or is not there: the call is for HTTP."""


class Flight:
    """One client of Flight for all threads. ``where`` gives the address, or None where the server has no Flight; it is
    asked again after the server did not answer."""

    def __init__(self, where: Callable[[], str | None], credential: str, ca: str | None, patience: float) -> None:
        self._where, self._ca, self._patience = where, ca, patience
        self._header = (b"authorization", credential.encode())
        self._guard = threading.Lock()
        self._client: Any = None
        self._not_before = 0.0
        """Of ``time.monotonic``: when to look for a client again."""
        self._closed = False

    def push(self, name: str, table: pa.Table, key: tuple[str, int]) -> None:
        """Rows into a stream or relation, all or none; Unreachable where they may or may not have arrived."""
        (batch,) = table.combine_chunks().to_batches() or [None]
        if batch is None:
            raise Unreachable  # a call without a batch says nothing

        def put(flight: Any, client: Any) -> None:
            descriptor = flight.FlightDescriptor.for_path(name)
            writer, answers = client.do_put(descriptor, batch.schema, self._options(flight, self._patience))
            with writer:
                writer.write_with_metadata(batch, json.dumps({"key": list(key)}).encode())
                writer.done_writing()
                done = answers.read()
            if done is None:
                raise Unreachable

        self._call(put)

    def page(self, query: str, position: int | str, limit: int, wait: float) -> Page:
        """Results of a query from a position on, which may have to be waited for."""
        ticket = {"page": query, "from": position, "limit": limit, "wait": wait}

        def get(flight: Any, client: Any) -> Page:
            options = self._options(flight, self._patience + wait)
            return _page(client.do_get(flight.Ticket(json.dumps(ticket).encode()), options).read_all())

        return self._call(get)

    def _options(self, flight: Any, seconds: float) -> Any:
        return flight.FlightCallOptions(headers=[self._header], timeout=seconds)

    def _call(self, call: Callable[[Any, Any], T]) -> T:
        flight, client = self._ready()
        try:
            return call(flight, client)
        except (pa.ArrowException, OSError, StopIteration) as problem:
            error = _told(problem)
            if error is not None:
                raise error from None
            self._lost(client)
            raise Unreachable from problem

    def _ready(self) -> tuple[Any, Any]:
        """pyarrow.flight and a client that has answered once. One thread connects; for others, the call is for HTTP."""
        with self._guard:
            if self._closed or (self._client is None and time.monotonic() < self._not_before):
                raise Unreachable
            try:
                import pyarrow.flight as flight  # some builds of pyarrow are without it
            except ImportError:
                self._not_before = float("inf")
                raise Unreachable from None
            if self._client is not None:
                return flight, self._client
            self._not_before = time.monotonic() + _AGAIN
        made = self._connected(flight)
        with self._guard:
            if self._client is None and not self._closed:
                self._client = made
            found = self._client
        if found is not made:  # another thread was faster, or it has been closed
            made.close()
        if found is None:
            raise Unreachable
        return flight, found

    def _connected(self, flight: Any) -> Any:
        where = self._where()
        if where is None:
            raise Unreachable
        try:
            trusted = {} if self._ca is None else {"tls_root_certs": _read(self._ca)}
            client = flight.connect(where, **trusted)
            list(client.do_action("health", flight.FlightCallOptions(timeout=_FIRST)))
        except (pa.ArrowException, OSError) as problem:
            raise Unreachable from problem
        return client

    def _lost(self, client: Any) -> None:
        with self._guard:
            if self._client is client:
                self._client = None
                self._not_before = time.monotonic() + _AGAIN

    def close(self) -> None:
        with self._guard:
            self._closed, client, self._client = True, self._client, None
        if client is not None:
            client.close()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _page(table: pa.Table) -> Page:
    metadata: dict[bytes, bytes] = dict(table.schema.metadata or {})
    said: Mapping[str, Any] = json.loads(metadata.pop(_OURS))
    return Page(said["start"], table.replace_schema_metadata(metadata or None), said["ended"])


def _told(problem: BaseException) -> PenstockError | None:
    """The error that the server tells, as it would be raised in the process; None: it tells nothing."""
    try:
        told = json.loads(getattr(problem, "extra_info", b"") or b"null")
    except ValueError:
        return None
    if not isinstance(told, dict) or told.get("ending"):
        return None
    return told_error(told.get("code"), told)
