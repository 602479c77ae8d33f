"""Calling subscribers: in order, one call at a time for each query, and never under a lock.

Whoever has news for a query's subscribers calls ``call``. One thread at a time does so for a query; another that comes
meanwhile leaves its results to it and goes on, so nobody waits for a callback that may wait for them. A callback may
push, query, settle, stop and close: who is in a callback waits for no other. Where an engine works in threads of its
own, so do the subscribers of each query: the thread is started with the first result that comes so, and ended with the
query.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from itertools import count

import pyarrow as pa

from penstock.hosts.results import Results
from penstock.model.errors import ResultsGone

_log = logging.getLogger("penstock")
_numbers = count(1)


class _Inside(threading.local):
    """Of a thread: how many callbacks it is in."""

    depth = 0


_inside = _Inside()


def in_callback() -> bool:
    """Whether a subscriber's callback calls."""
    return _inside.depth > 0


class Subscription:
    """A callback that is called with every batch of results of a query, until ``cancel``."""

    def __init__(self, owner: Subscribers, callback: Callable[[pa.Table], object]) -> None:
        self._owner, self.callback = owner, callback
        self.reader = f"subscription {next(_numbers)}"

    def cancel(self) -> None:
        """Call it no more. A call that is under way goes on."""
        self._owner.remove(self)


class Subscribers:
    """Those of one query. Bounded by their number; what they have not been told of is the query's ``Results``."""

    def __init__(self, name: str, results: Results, lock: threading.RLock) -> None:
        """``name``: that of the query. The query itself is not known here: without a cycle its results are freed as
        soon as nobody has it."""
        self._name, self._results = name, results
        self.trouble: str | None = None
        """What the last callback that raised has raised."""
        self._lock = lock
        self._shown: Callable[[pa.Table], pa.Table] = lambda table: table
        self.all: tuple[Subscription, ...] = ()
        """Those who are told, in the order in which they came."""
        self._turn = threading.Condition()
        """Guards who is calling, and tells those who wait for it."""
        self._caller: int | None = None
        self._again = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(
        self, callback: Callable[[pa.Table], object], position: int | None, shown: Callable[[pa.Table], pa.Table]
    ) -> Subscription:
        """Call this from a position on, or with what comes next."""
        found = Subscription(self, callback)
        with self._lock:
            self._results.add_reader(found.reader, position)
            self._shown = shown
            self.all = (*self.all, found)
        return found

    def remove(self, subscription: Subscription) -> None:
        """Call this no more."""
        with self._lock:
            self.all = tuple(s for s in self.all if s is not subscription)
        self._results.remove_reader(subscription.reader)

    def wake(self) -> bool:
        """There is news, and nobody of whom it can be expected to call: let the thread do it, if it has not ended."""
        with self._lock:
            if not self.all or self._closed:
                return False
            if self._thread is None:
                name = f"penstock-subscribers-{self._name}"
                self._thread = threading.Thread(target=self._keep_calling, name=name, daemon=True)
                self._thread.start()
            self._wake.set()
            return True

    def _keep_calling(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            last = self._closed  # what came before that is told
            try:
                self.call()
            except BaseException:
                # Also what a callback raises to end a program: it ends no thread but its own.
                _log.exception("a subscriber of query %s raised", self._name)
                self._wake.set()
                continue
            if last:
                return

    def call(self, *, wait: bool = False) -> None:
        """Call all with what they have not been told of. ``wait``: until another thread that is doing so is done, but
        not in a callback, for which that thread may be waiting.

        What interrupts a callback is raised when everybody has been told everything; a second Ctrl-C at once.
        """
        if not self.all:
            return
        mine = threading.get_ident()
        if self._caller == mine:
            return  # a callback has pushed: the call that it is in goes on with what has come
        interrupts: list[BaseException] = []
        try:
            with self._turn:
                if self._caller is not None and (not wait or _inside.depth):
                    self._again = True
                    return
                while self._caller is not None:
                    self._turn.wait()
                self._caller = mine
            while self._called(interrupts):
                pass
        finally:
            with self._turn:
                if self._caller == mine:
                    self._caller = None
                    self._turn.notify_all()
        if interrupts:
            raise interrupts[0]

    def _called(self, interrupts: list[BaseException]) -> bool:
        """Call each subscriber once; False if there was nothing more to tell."""
        with self._turn:
            self._again = False
        told = False
        for subscription in self.all:
            try:
                told |= self._told(subscription)
            except BaseException as error:
                if interrupts and isinstance(error, KeyboardInterrupt):
                    raise
                interrupts[:] = interrupts or [error]
                told = True
        if told:
            return True
        with self._turn:
            if self._again:
                return True
            # From here on whoever has news finds that nobody calls.
            self._caller = None
            self._turn.notify_all()
            return False

    def _told(self, subscription: Subscription) -> bool:
        results = self._results
        try:
            with self._lock:
                if subscription not in self.all:
                    return False
                found = results.read(subscription.reader, one=True)
        except ResultsGone as gone:
            self._complain(gone)
            return True
        if not found[0]:
            return False
        _inside.depth += 1
        try:
            subscription.callback(self._shown(results.table(found)))
        except Exception as error:
            # The rows have been taken; the thread that pushed them cannot do anything about a subscriber.
            self._complain(error)
        finally:
            _inside.depth -= 1
            results.confirm(subscription.reader, found[2])
        return True

    def _complain(self, error: Exception) -> None:
        trace = "".join(traceback.format_exception(error))
        self.trouble = f"a subscriber raised {type(error).__name__}: {error}\n{trace}"
        _log.error("a subscriber raised; it stays subscribed to query %s", self._name, exc_info=error)

    def close(self) -> None:
        """Tell what is to be told, and end the thread; who is in a callback does not wait for that."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is None:
            self.call()
            return
        self._wake.set()
        if not _inside.depth:
            thread.join()
