"""Pushes of several threads at once, where it takes long until one is safe.

One thread leads: it takes the rows of all threads that wait as one, and forces them to the disk with one sync; the
others wait for it. Each push counts for itself all the same: when the rows cannot be taken together, each thread pushes
its own.

The threads of the last round are likely to push again, so the next leader waits for them; not longer than a sync takes,
and never where one thread pushes alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, auto
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeGuard

from penstock.catalog import StreamDef
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.database.core import Core

_SMALL = 64
"""Rows of a push that is taken together with others."""
_MOST = 1024
"""Pushes that are taken together."""
_PATIENCE = 0.0005
"""Seconds for which a leader waits for the threads of the last round: about what a sync takes."""
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, Decimal, date, datetime, timedelta})
"""Values that run no code of the user's when they are read."""


def is_plain(rows: object) -> TypeGuard[list[Any]]:
    """Whether rows may be read together with others, by another thread: a few dicts or tuples of plain values."""
    if type(rows) is not list or len(rows) > _SMALL:
        return False
    for row in rows:
        if type(row) is not dict and type(row) is not tuple:
            return False
        values: Iterable[object] = row.values() if type(row) is dict else row
        for value in values:
            if type(value) not in _PLAIN:
                return False
    return True


class _State(Enum):
    WAITING = auto()
    LEADS = auto()
    """Its thread is to lead."""
    GONE = auto()
    """Its thread was interrupted."""
    ALONE = auto()
    """Its thread has to push by itself."""
    TAKEN = auto()
    """The rows are taken, but may not be safe."""
    SAFE = auto()


class _Push:
    """Rows that a thread gives."""

    __slots__ = ("definition", "name", "next", "rows", "state", "woken")

    def __init__(self, name: str, definition: StreamDef, rows: list[Any]) -> None:
        self.name, self.definition, self.rows = name, definition, rows
        self.state = _State.WAITING
        self.next: _Push | None = None
        """The one whose thread this one's wakes."""
        self.woken = threading.Lock()
        self.woken.acquire()

    def wake(self) -> None:
        """Let its thread go on. Twice is once."""
        with suppress(RuntimeError):
            self.woken.release()

    def wake_next(self) -> None:
        """Called by its thread when that goes on. Doing it again after an interrupt changes nothing."""
        if self.next is not None:
            self.next.wake()
            self.next = None


class Gathering:
    """Threads that push small batches. Bounded by their number."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._guard = threading.Lock()
        """Guards the rest. Nothing is waited for with it."""
        self._pushes: list[_Push] = []
        """The pushes that wait, in their order."""
        self._led = False
        """Whether a thread leads, or has been told to."""
        self._last = 1
        """Pushes of the last round."""
        self._enough: threading.Lock | None = None
        """Released when as many wait as in the last round."""

    def push(self, name: str, definition: StreamDef, rows: list[Any]) -> bool:
        """Push together with the threads that do so now. False: the caller has to push by itself. Without the lock."""
        self._core.check_outside()
        mine = _Push(name, definition, rows)
        with self._guard:
            if self._led:
                self._pushes.append(mine)
                if self._enough is not None and len(self._pushes) >= self._last - 1:
                    self._enough.release()
                    self._enough = None
            else:
                self._led = True
                mine.state = _State.LEADS
        try:
            if mine.state is not _State.LEADS:
                mine.woken.acquire()
                mine.wake_next()
            if mine.state is _State.LEADS:
                self._lead(mine)
        except BaseException:
            with self._guard:
                leads, mine.state = mine.state is _State.LEADS, _State.GONE
            mine.wake_next()
            if leads:
                self._hand_over()
            raise
        if mine.state is _State.TAKEN:
            self._core.after()
        elif mine.state is _State.SAFE:
            self._core.call_subscribers()
        return mine.state is not _State.ALONE

    def _lead(self, mine: _Push) -> None:
        """Take what there is, wake the others and let the next thread lead."""
        together = [mine]
        state = [_State.ALONE]
        try:
            with suppress(PenstockError):  # each thread hears why, when it pushes its own or waits until they are safe
                self._gather(mine, together)
                self._take(mine, [row for push in together for row in push.rows], state)
            self._wake(together[1:], state[0])
        except BaseException:
            self._wake(together[1:], state[0])  # again, where that was stopped half-way
            raise
        self._hand_over()  # first: should an interrupt come now, two threads lead, which does no harm
        mine.state = state[0]

    def _take(self, mine: _Push, rows: list[Any], state: list[_State]) -> None:
        """Take rows; ``state`` says how far that came, whatever is raised."""
        core = self._core
        source = core.input(mine.name)
        read, now = source.read(rows), core.now()
        with core.holding():
            core.check_open()
            before = core.inputs.get(mine.name)
            try:
                core.admit(mine.name, mine.definition, read, rows, now)
            finally:
                if core.inputs.get(mine.name) is not before:
                    state[0] = _State.TAKEN
        if state[0] is _State.TAKEN:
            core.host.after()
            state[0] = _State.SAFE

    def _gather(self, mine: _Push, together: list[_Push]) -> None:
        """Add the pushes into the same stream that wait."""
        missing = None
        with self._guard:
            if len(self._pushes) < self._last - 1:
                self._enough = missing = threading.Lock()
                missing.acquire()
        if missing is not None:
            missing.acquire(timeout=_PATIENCE)
        left: list[_Push] = []
        with self._guard:
            self._enough = None
            for push in self._pushes:
                same = push.name == mine.name and push.definition is mine.definition
                if push.state is _State.WAITING:
                    (together if same and len(together) < _MOST else left).append(push)
            self._pushes = left  # an interrupt before it wakes them with the others, and they are left out then
            self._last = len(together)

    def _wake(self, pushes: Sequence[_Push], state: _State) -> None:
        """Wake the first thread; each one wakes the next. All at once would only wait for the interpreter."""
        with self._guard:
            left = [push for push in pushes if push.state is not _State.GONE]
            for push, following in zip_longest(left, left[1:]):
                push.state, push.next = state, following
        if left:
            left[0].wake()

    def _hand_over(self) -> None:
        """Let the thread lead that has waited longest."""
        with self._guard:
            while self._pushes:
                push = self._pushes[0]
                leads = push.state in (_State.WAITING, _State.LEADS)  # told already, where that was stopped half-way
                if leads:
                    push.state = _State.LEADS
                    push.wake()
                del self._pushes[0]
                if leads:
                    return
            self._led = False
