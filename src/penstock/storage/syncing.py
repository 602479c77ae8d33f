"""Threads that wait until what they wrote is on the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.errors import StorageError
from penstock.storage.log import MOMENTARY, Known, Log

if TYPE_CHECKING:
    from penstock.storage.store import Store

_MOST_TRIES, _BETWEEN = 20, 0.05
"""How often, and after how many seconds, it is tried again then."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A sync of everything up to an entry: for each log that needs it what returns when its segments are there."""

    number: int
    logs: Sequence[tuple[Log, Sequence[tuple[Known, int]], Callable[[], None] | None]]


class Syncing:
    """Threads that wait for the disk: one of them syncs for all whose entries are there by then.

    A thread that has something else to do before it waits calls ``begin``: the system syncs meanwhile, and the first
    thread that waits takes that sync over.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = threading.Condition()
        """Guards the rest. Nothing is waited for with it but a change of the rest."""
        self._busy = False
        """Whether a thread begins a sync, or waits for one."""
        self._begun: _Begun | None = None
        """The sync that is under way, and for which no thread waits."""
        self.done = 0
        """Entries up to this number are on the disk."""

    def begin(self) -> None:
        """Let a sync begin. If one is under way, nothing happens: the thread that waits syncs then."""
        with self._turn:
            if self._busy or self._begun is not None:
                return
            self._busy = True
        begun = None
        try:
            with suppress(OSError):  # it is tried again by the thread that waits, which hears of it
                number, todo = self._store.dirty()
                begun = _Begun(number, [(log, dirty, log.begin_sync(dirty)) for log, dirty in todo])
        finally:
            self._free(begun, 0)

    def wait(self, number: int) -> None:
        """Return when everything up to an entry is on the disk."""
        while self.done < number:
            with self._turn:
                while self.done < number and self._busy:
                    self._turn.wait()
                if self.done >= number:
                    return
                self._store.check()  # after a sync that failed, another one that succeeds says nothing
                self._busy = True
                begun, self._begun = self._begun, None
            self._finish(begun)

    def _finish(self, begun: _Begun | None) -> None:
        """Return when a sync is over. None: one that begins now."""
        store, upto = self._store, 0
        try:
            if begun is None:
                now, todo = store.dirty()
                begun = _Begun(now, [(log, dirty, None) for log, dirty in todo])
            for log, dirty, finish in begun.logs:
                self._sync(log, dirty, finish)
            upto, begun = begun.number, None
        except OSError as error:
            if error.errno in MOMENTARY:
                raise StorageError(
                    f"{store.files.name}: cannot be forced to the disk now: {error.strerror}",
                    hint="what was given has been taken and survives the process; it reaches the disk with the next "
                    "call, once fewer files are open",
                ) from error
            begun = None
            # What the system could not write it may have given up: nobody knows what is on the disk.
            failure = StorageError(
                f"{store.files.name}: cannot be forced to the disk: {error.strerror or error}",
                hint="open the database again: what was acknowledged before is there",
            )
            store.fail(failure)
            raise failure from error
        finally:
            self._free(begun, upto)  # what is not over is taken over by the next thread that waits

    def _free(self, begun: _Begun | None, upto: int) -> None:
        with self._turn:
            self._begun = begun
            self.done = max(self.done, upto)
            self._busy = False
            self._turn.notify_all()

    def _sync(self, log: Log, dirty: Sequence[tuple[Known, int]], finish: Callable[[], None] | None) -> None:
        for left in reversed(range(_MOST_TRIES)):
            try:
                (finish or log.begin_sync(dirty))()
                return
            except OSError as error:
                if error.errno not in MOMENTARY or not left:
                    raise
            finish = None
            time.sleep(_BETWEEN)
