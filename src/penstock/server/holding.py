"""What the server holds in memory for clients: answers that they have not taken, cursors, rows on their way in."""

from __future__ import annotations

import threading
from collections import Counter, deque

from penstock.model.amounts import shown
from penstock.model.errors import LimitExceeded


class Holding:
    """Counts bytes, for each user and for all. Bounded by: a count for each user that holds something.

    ``most``: bytes for all users, ``of_user``: bytes for one.
    """

    def __init__(self, most: int, of_user: int) -> None:
        self._most, self._of_user = most, of_user
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._returned: deque[tuple[str, int]] = deque()
        """What was given back and is not counted yet. The interpreter may give back at any moment, also while this
        thread has the lock, so nothing but ``append`` happens then."""

    def hold(self, user: str, size: int = 0) -> Hold:
        """A share of the memory for a user, which begins with ``size`` bytes; LimitExceeded."""
        made = Hold(self, user)
        made.grow(size)
        return made

    def of(self, user: str) -> int:
        """Bytes that are held for a user."""
        with self._lock:
            self._settle()
            return self._held[user]

    def take(self, user: str, size: int) -> None:
        with self._lock:
            self._settle()
            own, all = self._held[user], self._held.total()
            if own + size > self._of_user:
                raise LimitExceeded(
                    f"the server holds {shown(own)} in memory for user `{user}`, and this would be {shown(size)} more",
                    hint="close cursors, read answers that wait, ask for less; the setting `user_memory` allows "
                    f"{shown(self._of_user)}",
                )
            if all + size > self._most:
                raise LimitExceeded(
                    f"the server holds {shown(all)} in memory for its clients, and this would be {shown(size)} more",
                    hint=f"try again later, or ask for less; the setting `held_memory` allows {shown(self._most)}",
                )
            if size:
                self._held[user] += size

    def give_back(self, user: str, size: int) -> None:
        self._returned.append((user, size))

    def _settle(self) -> None:
        while self._returned:
            user, size = self._returned.popleft()
            self._held[user] -= size
            if not self._held[user]:
                del self._held[user]


class Hold:
    """Bytes that are held for one user. They are given back by ``release``, or when nothing refers to this any more: so
    who holds the rows holds this with them."""

    def __init__(self, holding: Holding, user: str) -> None:
        self._holding, self._user = holding, user
        self._size = 0

    def grow(self, size: int) -> None:
        """Hold ``size`` bytes more; LimitExceeded where that is too much, and nothing has changed."""
        self._holding.take(self._user, size)
        self._size += size

    def release(self) -> None:
        """Hold nothing; it can grow again."""
        size, self._size = self._size, 0
        if size:
            self._holding.give_back(self._user, size)

    def __del__(self) -> None:
        self.release()
