"""Waiting that can be given up: for clients of a server, whose time is over or who have gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Look = Callable[[], None]
"""Is called every ``LOOK_SECONDS`` seconds by a thread that waits, without locks, and raises to give up the waiting."""
LOOK_SECONDS = 0.1


def take(lock: threading.RLock, look: Look | None) -> None:
    """Acquire a lock."""
    while not lock.acquire(timeout=-1 if look is None else LOOK_SECONDS):
        if look is not None:
            look()


@contextmanager
def taken(lock: threading.RLock, look: Look | None) -> Iterator[None]:
    """With a lock."""
    take(lock, look)
    try:
        yield
    finally:
        lock.release()
