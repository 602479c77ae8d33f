"""Threads that wait until what they wrote is on the disk."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.model.errors import StorageError
from penstock.storage.log import Known, Log

if TYPE_CHECKING:
    from penstock.storage.store import Store

_MOMENTARY = frozenset({errno.EMFILE, errno.ENFILE, errno.EINTR})
"""Errors that say nothing of the disk: too many files are open."""
_MOST_TRIES, _BETWEEN = 20, 0.05
"""How often, and after how many seconds, it is tried again then."""


def _release(begun: threading.Lock | None) -> None:
    """Let the thread go on that waits for it. Twice is once."""
    if begun is not None and begun.locked():
        begun.release()


class Syncing:
    """Threads that wait for the disk: one of them syncs for all whose entries are there by then.

    A thread that has something else to do before it waits calls ``begin``: a thread of this object syncs meanwhile. It
    is there after the first such call, and is stopped by ``close``.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._begun: SimpleQueue[threading.Lock | None] = SimpleQueue()
        """Locks of callers of ``begin``, each released when the sync is about to begin; None ends the thread."""
        self.done = 0
        """Entries up to this number are on the disk."""

    def begin(self) -> None:
        """Let a sync begin. If one is under way, nothing happens: whoever waits syncs then. One thread at a time."""
        if self._busy or not self._begun.empty():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_syncing, name="penstock-syncer", daemon=True)
            self._thread.start()
        begun = threading.Lock()
        begun.acquire()
        self._begun.put(begun)
        # Without this the caller keeps the interpreter, and the sync begins when the caller waits for it.
        begun.acquire()

    def _keep_syncing(self) -> None:
        while (begun := self._begun.get()) is not None:
            with suppress(StorageError):  # the threads that wait hear of it
                self.wait(self._store.number, begun)
            _release(begun)

    def close(self) -> None:
        """End the thread, if there is one."""
        thread = self._thread
        if thread is not None:
            self._begun.put(None)
            thread.join()
            self._thread = None

    def wait(self, number: int, begun: threading.Lock | None = None) -> None:
        """Return when everything up to an entry is on the disk. ``begun``: released when the disk works, for the thread
        that lets it begin. It is not released before, or that thread would wait for the interpreter once more."""
        if self.done >= number:
            return
        store = self._store
        with self._turn:
            while self.done < number and self._busy:
                _release(begun)
                self._turn.wait()
            if self.done >= number:
                return
            store.check()  # after a sync that failed, another one that succeeds says nothing
            self._busy = True
        upto = 0
        try:
            number, todo = store.dirty()
            _release(begun)
            for log, dirty in todo:
                self._sync(log, dirty)
            upto = number
        except OSError as error:
            if error.errno in _MOMENTARY:
                raise StorageError(
                    f"{store.files.name}: cannot be forced to the disk now: {error.strerror}",
                    hint="what was given has been taken and survives the process; it reaches the disk with the next "
                    "call, once fewer files are open",
                ) from error
            # What the system could not write it may have given up: nobody knows what is on the disk.
            failure = StorageError(
                f"{store.files.name}: cannot be forced to the disk: {error.strerror or error}",
                hint="open the database again: what was acknowledged before is there",
            )
            store.fail(failure)
            raise failure from error
        finally:  # also after an interrupt: then the next one who waits syncs
            with self._turn:
                self.done = max(self.done, upto)
                self._busy = False
                self._turn.notify_all()

    def _sync(self, log: Log, dirty: Sequence[tuple[Known, int]]) -> None:
        for left in reversed(range(_MOST_TRIES)):
            try:
                log.sync(dirty)
                return
            except OSError as error:
                if error.errno not in _MOMENTARY or not left:
                    raise
            time.sleep(_BETWEEN)
