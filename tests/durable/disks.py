"""Databases of the local engine on a disk in memory, which save when a test says so and never by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import penstock
from penstock.database.database import Database, core_of
from penstock.hosts.durable import keeper
from penstock.hosts.local.host import LocalHost
from penstock.hosts.options import Keeping
from penstock.storage.files import Files
from penstock.storage.store import Store, Sync

_NEVER = 1e6


@contextmanager
def quiet() -> Iterator[None]:
    """No database saves by itself that is opened meanwhile."""
    with patch.object(keeper, "SECONDS", _NEVER):
        yield


def opened(files: Files, clock: Callable[[], int], *, sync: Sync = "off") -> penstock.Database:
    """A database on such a disk."""

    def on_it(path: str | Path, *, sync: Sync = "off", quota: int | None = None) -> Store:
        return Store(files, sync=sync, quota=quota)

    with quiet(), patch.object(Store, "open", on_it):
        return Database("local", path=Path("disk"), clock=clock, keeping=Keeping(sync, functions=True))


def in_memory(clock: Callable[[], int]) -> penstock.Database:
    """A database that nothing interrupts."""
    return Database("local", clock=clock)


def host_of(db: penstock.Database) -> LocalHost:
    """What runs it."""
    host = core_of(db).host
    assert isinstance(host, LocalHost)
    return host


def save(db: penstock.Database, during: Callable[[], None] | None = None) -> None:
    """Save the state; ``during``: what happens when it has been taken and is not written yet."""
    if during is None:
        host_of(db).save()
        return
    before = Store.save
    once = [during]

    def saving(self: Store, number: int, state: object) -> None:
        if once:
            once.pop()()
        before(self, number, state)  # type: ignore[arg-type]

    with patch.object(Store, "save", saving):
        host_of(db).save()
    for left in once:  # there was nothing to save
        left()


@contextmanager
def still(db: penstock.Database) -> Iterator[None]:
    """Nothing is written meanwhile."""
    kept = host_of(db).kept
    assert kept is not None
    with kept.saver.still():
        yield
