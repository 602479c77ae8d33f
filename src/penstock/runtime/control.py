"""What the threads of a runtime share: when they stand still, when they end, who waits for them."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.graph.vertex import Vertex
from penstock.model.errors import StateError
from penstock.model.waiting import LOOK_SECONDS, Look
from penstock.runtime.storage.files import EndedError
from penstock.runtime.wakeup import LockWakeup, Wakeup, wakeup

logger = logging.getLogger("penstock.runtime")

OnError = Callable[[Vertex | None, Exception], None]
LOOK = 32
"""After so many turns those who wait for the runtime to settle look whether it has."""


class Body(Protocol):
    """What a thread does."""

    def work(self, thread: Thread) -> bool:
        """Work until nothing is left, or ``thread.hurried``. False: there was nothing."""

    def sleeps(self, thread: Thread) -> float:
        """The thread is about to sleep: for how many seconds at most, which may be infinite; 0 if there is something
        to do after all."""


class Halting(Protocol):
    """What can stand still by itself, whichever thread runs it."""

    busy: threading.Lock
    """Held by the thread that runs it, and during a pause by the thread that has paused it."""

    def halt(self) -> None:
        """Come to the end of what is being worked on, and begin with nothing."""

    def go_on(self) -> None:
        """The pause is over."""

    def locks(self) -> Iterable[AbstractContextManager[object]]:
        """What other threads hold that work on what belongs to it."""


class Control:
    """One for each runtime. ``hurry`` asks all threads to come to the end of what they do."""

    def __init__(self, on_error: OnError | None = None) -> None:
        self.hurry = False
        self.closed = False
        self._on_error = on_error
        self._gate = threading.RLock()  # held during a pause
        self._depth = 0
        self._pauser: int | None = None
        self._everybody = False  # whether the pause is one of all threads
        self._halted: set[Halting] = set()  # else it is one of these
        self._held = contextlib.ExitStack()  # what ends with the pause
        self._threads: list[Thread] = []  # those that run; they leave by themselves
        self._lock = threading.Lock()
        self._waiters: tuple[Wakeup, ...] = ()

    def failed(self, vertex: Vertex | None, error: Exception) -> None:
        """An exception that nobody expected."""
        if isinstance(error, EndedError):
            return
        where = "a worker" if vertex is None else f"operator {vertex.id} ({vertex.label})"
        logger.error("unexpected error in %s: %s", where, error, exc_info=error)
        if self._on_error is not None:
            try:
                self._on_error(vertex, error)
            except Exception:
                logger.exception("the handler of errors failed")

    # -- threads ------------------------------------------------------------------------------------------

    def start(self, body: Body, name: str) -> Thread:
        """A thread that does this until it is stopped, or all are."""
        thread = Thread(self, body, name)
        with self._lock:
            self._threads.append(thread)
        thread.start()
        return thread

    def ended(self, thread: Thread) -> None:
        with self._lock:
            self._threads.remove(thread)
        self.notify()

    @property
    def inside(self) -> bool:
        """Whether the caller is one of the threads."""
        thread = threading.current_thread()
        return isinstance(thread, Thread) and thread.control is self

    @property
    def threads(self) -> int:
        return len(self._threads)

    @contextlib.contextmanager
    def paused(self, some: Iterable[Halting] | None = None) -> Iterator[None]:
        """Inside, no thread works; or, if ``some`` are given, none works for them, and all others go on. It waits for
        what is being worked on. What is paused in a pause stands until the outer one ends."""
        if self.inside:
            raise StateError(
                "the graph cannot be changed from within a worker",
                hint="do it in a thread of your own, not in a function that a query calls",
            )
        with self._gate:
            self._depth += 1
            self._pauser = threading.get_ident()
            try:
                if some is None:
                    self._halt_threads()
                else:
                    self.halt(*some)
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._pauser = None
                    self._held.close()

    def _halt_threads(self) -> None:
        if self._everybody:
            return
        self._everybody = self.hurry = True
        self._held.callback(self._go_on)
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.busy.acquire()
            self._held.callback(thread.busy.release)

    def _go_on(self) -> None:
        self._everybody, self.hurry = False, self.closed

    def halt(self, *some: Halting) -> None:
        """In a pause: let these stand, too, until it ends."""
        new = [one for one in some if one not in self._halted]
        for one in new:
            self._halted.add(one)
            self._held.callback(self._halted.discard, one)
            self._held.callback(one.go_on)
            one.halt()
        for one in new:
            one.busy.acquire()
            self._held.callback(one.busy.release)
        for one in new:
            for lock in one.locks():
                self._held.enter_context(lock)

    def hold(self, lock: AbstractContextManager[object]) -> None:
        """In a pause: have a lock until it ends."""
        self._held.enter_context(lock)

    def is_halted(self, one: object) -> bool:
        """Whether it stands in this pause."""
        return self._everybody or one in self._halted

    def stand(self) -> None:
        """Called by a thread: wait for the end of a pause."""
        if not self.closed:
            with self._gate:
                pass

    @property
    def pausing(self) -> bool:
        """Whether the caller itself has paused all threads, or some."""
        return self._pauser == threading.get_ident()

    def close(self) -> None:
        """End all threads, and wait until they have ended; a worker does not wait for others, which may wait for it."""
        self.closed = self.hurry = True
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.stop()
        self.notify()
        if self.pausing or self.inside:
            return  # they end when the pause does, or when what is being worked on is done
        for thread in threads:
            thread.join()
        with self._gate:
            pass  # whoever has paused some of them comes to an end, too

    # -- those who wait -----------------------------------------------------------------------------------

    @property
    def watched(self) -> bool:
        return bool(self._waiters)

    def notify(self) -> None:
        """Something may have changed for those who wait."""
        for waiter in self._waiters:
            waiter.wake()

    def until(self, done: Callable[[], bool], look: Look | None = None) -> None:
        """Return once this holds, which is looked at whenever a thread runs out of work; or when all end. ``look`` may
        give it up."""
        with self.watching(math.inf if look is None else LOOK_SECONDS) as wait:
            while not self.closed and not done():
                if look is not None:
                    look()
                wait()

    @contextlib.contextmanager
    def watching(self, seconds: float = math.inf) -> Iterator[Callable[[], None]]:
        """Gives what returns when something may have changed since the last call, or since the beginning; at the latest
        after some ``seconds``, by default never without."""
        waiter = LockWakeup()
        with self._lock:
            self._waiters += (waiter,)
        try:
            yield lambda: None if self.closed else waiter.wait(seconds)
        finally:
            with self._lock:
                self._waiters = tuple(w for w in self._waiters if w is not waiter)


class Thread(threading.Thread):
    """Works, sleeps when nothing is left, stands still during a pause. Stopped by ``stop`` or by the control."""

    def __init__(self, control: Control, body: Body, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.control, self.body = control, body
        self.busy = threading.Lock()  # held while working
        self.asleep = False
        self._stopped = False
        self._wakeup = wakeup()

    @property
    def hurried(self) -> bool:
        """Whether to come to an end after what is being worked on."""
        return self.control.hurry or self._stopped

    def stop(self) -> None:
        self._stopped = True
        self._wakeup.wake()

    def wake(self) -> None:
        """There is something to do."""
        if self.asleep:
            self.asleep = False
            self._wakeup.wake()

    def run(self) -> None:
        control = self.control
        try:
            while not self._stopped and not control.closed:
                if control.hurry:
                    control.stand()
                    continue
                with self.busy:
                    self.body.work(self)
                if self.hurried:
                    continue
                self.asleep = True
                if (seconds := self.body.sleeps(self)) > 0:
                    control.notify()
                    self._wakeup.wait(seconds)
                self.asleep = False
        except Exception as error:  # of the runtime itself: nothing of it can be trusted any more
            control.failed(None, error)
            control.closed = control.hurry = True
        finally:
            self._wakeup = LockWakeup()  # whoever refers to the other still may use it; its file is closed then
            control.ended(self)
