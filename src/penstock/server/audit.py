"""The audit log: who declared, granted, stopped what; a JSON object on each line, the oldest first."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from penstock.server.session import Session

FILE = "audit.jsonl"
REFUSED = "refused.jsonl"
"""What was refused has a file of its own: however much it is, it pushes nothing out of the other."""
_log = logging.getLogger("penstock.audit")


class Audit:
    """Lines into a file, which is begun anew when it is ``most`` bytes long; the one before it is kept with ``.1``. So
    it is bounded by twice that. Without a file the lines go to the logger ``penstock.audit``."""

    def __init__(
        self, path: Path | None, most: int, clock: Callable[[], int] = lambda: time.time_ns() // 1_000
    ) -> None:
        self._path, self._most, self._clock = path, most, clock
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        self._size = 0

    def write(self, who: Session | str, what: str, **facts: object) -> None:
        """One line; ``what``: ``statement``, ``login``, ``denied`` …"""
        by: dict[str, object] = {"user": who} if isinstance(who, str) else {
            "user": who.user, "session": who.id, "protocol": who.protocol, "remote": who.remote,
        }  # fmt: skip
        line = json.dumps({"at": _instant(self._clock()), **by, "what": what, **facts}, ensure_ascii=False, default=str)
        if self._path is None:
            _log.info("%s", line)
            return
        with self._lock:
            try:
                self._append(self._path, line + "\n")
            except OSError as problem:
                _log.error("the audit log cannot be written: %s; %s", problem, line)

    def _append(self, path: Path, line: str) -> None:
        if self._file is None:
            # Only who runs the server may read who is there.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._file, self._size = os.fdopen(handle, "a", encoding="utf-8"), path.stat().st_size
        if self._size and self._size + len(line.encode()) > self._most:
            self._file.close()
            self._file = None
            path.replace(path.with_name(path.name + ".1"))
            self._append(path, line)
            return
        self._file.write(line)
        self._file.flush()
        self._size += len(line.encode())

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def _instant(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:06}Z"
