"""Shorter turns for threads, while one of them does long work in the background.

A thread that wants the interpreter waits until the one that has it waits for something, or at most for Python's switch
interval, 5 ms: twenty times as long as a push takes. While a state is being written that interval is shorter.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_BRIEF = 0.0002
"""Seconds of a turn: a switch costs some 30 µs."""
_guard = threading.Lock()
_inside = 0
_before = 0.0


@contextmanager
def brief_turns() -> Iterator[None]:
    """Let threads take turns more often. The interval is one for the whole process: who leaves last sets it back."""
    global _inside, _before
    with _guard:
        if not _inside:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, _BRIEF))
        _inside += 1
    try:
        yield
    finally:
        with _guard:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_before)
