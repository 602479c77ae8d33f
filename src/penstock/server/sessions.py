"""Who is connected."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

from penstock.model.errors import LimitExceeded
from penstock.server.session import Protocol, Session


class Sessions:
    """The sessions that are open, at most ``most``. HTTP has no end of a session: the same credential from the same
    address is the same one, and those that were used least lately make room."""

    def __init__(self, most: int, idle: float, clock: Callable[[], int]) -> None:
        self._most, self._idle, self._clock = most, int(idle * 1_000_000), clock
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}
        self._http: OrderedDict[tuple[str, str, str], tuple[str, int]] = OrderedDict()
        """User, credential and address → the session and when it was used last, the least lately used first."""

    def open(
        self, user: str, protocol: Protocol, remote: str, *, admin: bool, token: str | None, token_id: str | None,
        expires: int | None,
    ) -> Session:  # fmt: skip
        now = self._clock()
        key = (user, token_id or "", remote)
        with self._lock:
            if protocol == "http" and key in self._http:
                found = self._open[self._http[key][0]]
                self._http[key] = found.id, now
                self._http.move_to_end(key)
                if found.admin == admin:
                    return found
                self._end(found)
            while self._http and (
                len(self._open) >= self._most or next(iter(self._http.values()))[1] < now - self._idle
            ):
                self._end(self._open[next(iter(self._http.values()))[0]])
            if len(self._open) >= self._most:
                hint = "the setting `sessions` bounds them"
                raise LimitExceeded(f"there are {self._most} sessions already", hint=hint)
            made = Session(
                secrets.token_hex(8), user, protocol, remote, admin, token, token_id, expires, now
            )
            self._open[made.id] = made
            if protocol == "http":
                self._http[key] = made.id, now
            return made

    def close(self, session: Session) -> None:
        with self._lock:
            self._end(session)

    def _end(self, session: Session) -> None:
        self._open.pop(session.id, None)
        for key in [key for key, (id, _) in self._http.items() if id == session.id]:
            del self._http[key]

    @property
    def all(self) -> list[Session]:
        with self._lock:
            return list(self._open.values())
