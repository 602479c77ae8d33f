"""Named subscriptions: a name, a query, and the first result that its reader has not confirmed. Durable: notes of the
database, one for each, so that a confirmation writes one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.model.errors import CatalogError, LimitExceeded

NOTE = "server.subscription."
"""Followed by a number. Numbers are used again, so there are never more notes than subscriptions at a time."""


@dataclass(frozen=True)
class Named:
    """``position``: the first result that is not confirmed."""

    name: str
    query: str
    owner: str
    position: int
    number: int

    @property
    def note(self) -> dict[str, Any]:
        return {"name": self.name, "query": self.query, "owner": self.owner, "position": self.position}


class Subscriptions:
    """All of them, at most ``most``. What is changed is written down first. Looking takes no lock: who looks may have
    the database's."""

    def __init__(
        self, notes: Mapping[str, Any], save: Callable[[Mapping[str, Any]], None], most: int
    ) -> None:
        """``notes``: all that the database has. ``save``: notes something more."""
        self._save, self._most = save, most
        self._lock = threading.RLock()
        """One changes something at a time; saving takes the database's lock with it."""
        self._named: Mapping[str, Named] = {
            found["name"]: Named(**found, number=int(key.removeprefix(NOTE)))
            for key, found in notes.items()
            if key.startswith(NOTE) and found is not None
        }
        """Replaced as a whole."""

    @property
    def all(self) -> list[Named]:
        return list(self._named.values())

    def get(self, name: str) -> Named | None:
        return self._named.get(name)

    def create(self, name: str, query: str, owner: str, position: int) -> Named:
        with self._lock:
            if name in self._named:
                raise CatalogError(f"there is a subscription `{name}` already", hint="use another name")
            if len(self._named) >= self._most:
                raise LimitExceeded(
                    f"there are {self._most} subscriptions already", hint="the setting `subscriptions` bounds them"
                )
            taken = {each.number for each in self._named.values()}
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            made = Named(name, query, owner, position, number)
            self._write(made)
            return made

    def confirm(self, name: str, position: int) -> Named:
        """It has every result before a position; one that it has confirmed already changes nothing."""
        with self._lock:
            found = self._named[name]
            if position > found.position:
                found = replace(found, position=position)
                self._write(found)
            return found

    def _write(self, made: Named) -> None:
        self._save({f"{NOTE}{made.number}": made.note})
        self._named = {**self._named, made.name: made}

    def drop(self, *names: str) -> None:
        with self._lock:
            gone = [self._named[name] for name in names if name in self._named]
            if gone:
                self._save({f"{NOTE}{each.number}": None for each in gone})
                self._named = {name: each for name, each in self._named.items() if each not in gone}
