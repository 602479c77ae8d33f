"""Who has the directory of a database: one process at a time.

On a disk the process locks the file ``owner``. Where nothing can be locked it has a lease: an object in ``owner/`` that
it renews, and that others find lapsed when it does not. Both keep a second process out; that nothing of a former owner
counts is what epochs are for (``store``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.model.errors import StorageError
from penstock.storage.files import BOOT, Disk, Files
from penstock.storage.objects import Objects

_TRIES, _PAUSE = 3, 0.02
"""How often it is tried to have a directory, and seconds in between."""
LEASE = 20.0
"""Seconds after which a lease has lapsed that was not renewed."""
_RENEWED = LEASE / 4
_GRAIN = 2.0
"""Seconds by which the instants of objects may be wrong: some stores round them."""


class Owner(Protocol):
    """That a process has a directory."""

    def release(self) -> None:
        """Let another process have it."""


def own(files: Files) -> Owner:
    """Have a directory; StorageError if another process has it."""
    if isinstance(files, Objects):
        return Lease(files)
    assert isinstance(files, Disk), "there are no others"
    _make(files.path(""))
    return Lock(files.path(""))


class Lock:
    """The lock of ``owner``; the system gives it back when the process ends, however it does."""

    def __init__(self, root: Path) -> None:
        self._file: int | None = _locked(root)
        self._process = os.getpid()

    def release(self) -> None:
        if self._file is not None:
            if os.getpid() == self._process:
                with contextlib.suppress(OSError):
                    fcntl.flock(self._file, fcntl.LOCK_UN)  # also for a process that was forked
            os.close(self._file)
            self._file = None


class Lease:
    """An object that this process renews. Instants of objects are those of the store's clock.

    What is written while the lease holds is found by whoever has it next: so ``Objects`` asks before and after it
    writes. A lease that has lapsed is lost for good. Its thread is stopped by ``release``.
    """

    def __init__(self, files: Objects) -> None:
        self._files = files
        self._path = f"owner/{secrets.token_hex(8)}.json"
        self._since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        self._renewed = 0.0
        self._lost = False
        self._over = threading.Event()
        self._renew()
        try:
            self._check_others()
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(self._path)
            raise
        files.guard = self.check
        self._thread = threading.Thread(target=self._keep_renewing, name="penstock-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """OSError if it has lapsed."""
        if self._lost or time.monotonic() - self._renewed > LEASE:
            self._lost = True
            raise OSError(errno.ESTALE, f"the lease of this process was not renewed for {LEASE:.0f} seconds")

    def release(self) -> None:
        self._over.set()
        self._thread.join()
        self._files.guard = None
        with contextlib.suppress(OSError):
            self._files.remove(self._path)

    def _renew(self) -> None:
        began = time.monotonic()
        self._files.replace(self._path, json.dumps({
            "pid": os.getpid(), "host": socket.gethostname(), "since": self._since, "machine": _machine()
        }).encode())  # fmt: skip
        self._renewed = began

    def _keep_renewing(self) -> None:
        while not self._over.wait(_RENEWED):
            with contextlib.suppress(OSError):  # it is tried again, until it has lapsed
                self.check()
                self._renew()

    def _check_others(self) -> None:
        """Two processes that come at the same time both write before they look: so at least one sees the other."""
        times = self._files.times("owner")
        now = times.pop(self._path)
        for path, at in times.items():
            try:
                who = json.loads(self._files.read(path).to_pybytes())
            except FileNotFoundError:
                continue
            if now - at > LEASE + _GRAIN or _is_dead(who):
                self._files.remove(path)
                continue
            raise _taken(self._files.name, who, f"; if it was killed, wait {LEASE:.0f} seconds")


def _machine() -> str:
    """Equal for processes that see each other's numbers."""
    try:
        return f"{BOOT.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return secrets.token_hex(8)


def _is_dead(who: Mapping[str, Any]) -> bool:
    """Whether it is known that a process has ended."""
    if who["machine"] != _machine():
        return False
    try:
        os.kill(who["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _make(root: Path) -> None:
    """Make a directory that lasts."""
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for folder in made:
        Disk(folder.parent).sync_folder("")


def _locked(root: Path) -> int:
    """Take the lock of ``owner``; the system gives it back when the process ends, however it does."""
    file = os.open(root / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    tries = _TRIES
    while not (taken := _take(file, fcntl.LOCK_EX)) and tries:
        if _take(file, fcntl.LOCK_SH):  # nobody has it: `holder` of another process looks
            fcntl.flock(file, fcntl.LOCK_UN)
        else:
            tries -= 1
        time.sleep(_PAUSE)
    if not taken:
        who = _holder(file)
        os.close(file)
        raise _taken(str(root), who)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    said = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode()
    os.ftruncate(file, 0)
    os.pwrite(file, said, 0)
    return file


def _take(file: int, lock: int) -> bool:
    """Take a lock, if that is possible at once; whether it was."""
    try:
        fcntl.flock(file, lock | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def holder(files: Files) -> str | None:
    """The process that has a directory open, for people; None if none has. It takes a shared lock for a moment."""
    if isinstance(files, Objects):
        recent = [path for path, at in files.times("owner").items() if time.time() - at < LEASE + _GRAIN]
        return _words(json.loads(files.read(recent[0]).to_pybytes())) if recent else None
    assert isinstance(files, Disk), "there are no others"
    try:
        file = os.open(files.path("owner"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _words(_holder(file)) or "another process"
    finally:
        os.close(file)
    return None


def _holder(file: int) -> Mapping[str, Any]:
    """What the process that has the lock says of itself; nothing if it has not said it yet."""
    try:
        who = json.loads(os.pread(file, 4096, 0))
    except ValueError:
        return {}
    return who if isinstance(who, dict) else {}


def _words(who: Mapping[str, Any]) -> str:
    return f"process {who['pid']} on {who['host']}, since {who['since']}" if who.keys() >= _SAID else ""


def _taken(name: str, who: Mapping[str, Any], if_killed: str = "") -> StorageError:
    """The error about a directory that is in use."""
    if who.get("pid") == os.getpid() and who.get("host") == socket.gethostname():
        return StorageError(
            f"{name} is open in this process already", hint="close() that database first, or use another directory"
        )
    said = _words(who)
    return StorageError(
        f"{name} is open in another process{f' ({said})' if said else ''}",
        hint=f"close it there, or use another directory{if_killed}",
    )


_SAID = {"pid", "host", "since"}
