"""Where the readers of Spark's streaming queries ask: a socket of this machine that only this user may use.

A thread for each reader answers it, and ends when the reader is gone or with ``close``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Offset = dict[str, int]
_PAUSE = 0.1
"""Seconds until a reader is let in again, where one could not be."""


class Asked(Protocol):
    """A part, as its reader asks it."""

    def next_offset(self, start: Offset) -> Offset:
        """Up to where the next micro-batch goes; ``start`` if there is none within a second."""

    def contents(self, end: Offset) -> Sequence[bytes]:
        """The tasks of the micro-batch that goes up to there."""


class Talk:
    """Answers readers; ``part`` gives a part by its number, None if it is not there."""

    def __init__(self, part: Callable[[int], Asked | None]) -> None:
        self._part = part
        self._folder = tempfile.mkdtemp(prefix="penstock-")  # nobody else may look into it
        self.path = f"{self._folder}/readers"
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._thread = threading.Thread(target=self._accept, name="penstock-talk", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                self._closing.wait(_PAUSE)  # if it is not closed, there are too many open files
                continue
            thread = threading.Thread(target=self._talk, args=(connection,), name="penstock-talk", daemon=True)
            with self._guard:
                self._connections[thread] = connection
            try:
                thread.start()
            except RuntimeError:  # there are too many threads: the reader is told by the end of the connection
                with self._guard:
                    del self._connections[thread]
                connection.close()

    def _talk(self, connection: socket.socket) -> None:
        # A reader that goes away while it is answered needs no answer.
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as file:
            for line in file:
                file.write(json.dumps(_answer(self._part, json.loads(line))).encode() + b"\n")
                file.flush()
        with self._guard:
            self._connections.pop(threading.current_thread(), None)

    def close(self) -> None:
        """Answer nobody any more."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        with self._guard:
            connections = dict(self._connections)
        for thread, connection in connections.items():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def _answer(part: Callable[[int], Asked | None], asked: dict[str, Any]) -> dict[str, object]:
    """What is said, or why it cannot be said: the reader raises it, so that Spark and the user hear of it."""
    try:
        found = part(asked["part"])
        if asked["ask"] == "offset":
            return {"said": asked["start"] if found is None else found.next_offset(asked["start"])}
        contents = () if found is None else found.contents(asked["end"])
        return {"said": [base64.b64encode(content).decode() for content in contents]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
