"""Pushes of several threads at once, where it takes long until one is safe.

While one thread waits for the disk, others gather behind it; the next one takes the rows of all of them as one. Each
push counts for itself all the same: one that is refused is refused alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog import StreamDef
from penstock.model.errors import PenstockError
from penstock.rows.apart import Rows

if TYPE_CHECKING:
    from penstock.database.core import Core

_SMALL = 64
"""Rows of a push that is taken together with others."""


def is_small(rows: Rows) -> bool:
    """Whether rows may be taken together with those of others."""
    return len(rows.table) <= _SMALL and not rows.apart


@dataclass(slots=True, eq=False)
class _Push:
    """Rows that a thread gives. ``done``: they have been taken or refused, or the thread has given up."""

    name: str
    definition: StreamDef
    read: Rows
    done: bool = False
    error: PenstockError | None = None


class Gathering:
    """Threads that push small batches. Bounded by their number."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pushes: deque[_Push] = deque()
        self._turn = threading.Condition()
        self._leading = False

    def push(self, name: str, definition: StreamDef, read: Rows, rows: object, now: int | None) -> bool:
        """Push, together with those who do so now; False if there is no room. Without the lock."""
        core = self._core
        core.check_outside()
        mine = _Push(name, definition, read)
        self._pushes.append(mine)
        try:
            with self._turn:
                while self._leading and not mine.done:
                    self._turn.wait()
                if not mine.done:
                    self._leading = True
        except BaseException:
            mine.done = True  # the thread is interrupted: nobody takes its rows any more
            raise
        if mine.done:
            core.after()
            if mine.error is not None:
                raise mine.error
            return True
        try:
            with core.holding():
                core.check_open()
                taken = self._take(mine, rows, now)
            core.host.after()
        finally:
            mine.done = True
            with self._turn:
                self._leading = False
                self._turn.notify_all()
        core.after()
        return taken

    def _take(self, mine: _Push, rows: object, now: int | None) -> bool:
        core, others = self._core, self._waiting_with(mine)
        if not others:
            return core.admit(mine.name, mine.definition, mine.read, rows, now)
        before = core.inputs.get(mine.name)
        together = [mine, *others]
        try:
            whole = Rows(pa.concat_tables([push.read.table for push in together]))
            return core.admit(mine.name, mine.definition, whole, whole.table, now)
        except PenstockError:
            for push in together:
                try:
                    core.admit(mine.name, mine.definition, push.read, push.read.table, now)
                except PenstockError as error:
                    push.error = error
                push.done = True
        finally:
            if core.inputs.get(mine.name) is not before:  # else, after an interrupt, they are left to their threads
                for push in others:
                    push.done = True
        if mine.error is not None:
            raise mine.error
        return True

    def _waiting_with(self, mine: _Push) -> Sequence[_Push]:
        """The pushes into the same stream that wait, in their order, without the caller's own."""
        found: list[_Push] = []
        left: list[_Push] = []
        while self._pushes:
            push = self._pushes.popleft()
            same = push.name == mine.name and push.definition is mine.definition
            if not push.done and push is not mine:
                (found if same else left).append(push)
        self._pushes.extendleft(reversed(left))
        return found
