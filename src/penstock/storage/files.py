"""Files as the store needs them: written at their end, or put in place whole; and what is forced to the disk.

``Files`` is all that the rest of the package knows of a disk, so that tests can put one in its place that forgets,
fails or is full. Three promises, which an object store can keep too where ``append`` is not used:

- ``put`` makes a whole file appear under a name that is free, or does nothing;
- ``append`` adds all of what it is given, or leaves bytes that ``Log`` cuts off;
- what ``sync`` of a file and of its folder have returned for is there after a loss of power.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa

from penstock.storage.aio import FlyingSync

Bytes: TypeAlias = bytes | memoryview | pa.Buffer
_OPEN = 128
"""Files that a disk keeps open for writing; the one that was written longest ago is closed."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
_PARTS, _SHORT = 4, 4096
"""Parts and bytes that are written as one: to copy them costs less than to look at each."""
PART = ".part"
"""How the names of files end that are not finished."""


class Files(Protocol):
    """A folder of files. Paths are relative to it, with ``/``. Everything may raise OSError."""

    appends: bool
    """Whether ``append`` lasts at once, also where there is something already. If not, logs ``put`` each entry, and
    what is appended is there when ``sync`` returns."""

    @property
    def name(self) -> str:
        """Where it is, for messages."""

    @property
    def boot(self) -> str:
        """Another one after a restart of the machine: what was not synced before it may be gone in part."""

    def put(self, path: str, content: Sequence[Bytes], *, sync: bool = False) -> None:
        """Make a file with this content; FileExistsError if the name is taken. ``sync``: it, and its name, last. If it
        raises anything else, the file may be there or not."""

    def append(self, path: str, size: int, content: Sequence[Bytes]) -> int:
        """Add to a file that has this size, or make it if that is 0; gives the new size. If it raises, the size is what
        it was, or what is behind it is cut off by the next one that appends."""

    def cut(self, path: str, size: int) -> None:
        """Let a file end there; it is made if it is not there."""

    def sync(self, path: str) -> None:
        """Force the content of a file to the disk."""

    def sync_later(self, path: str) -> Callable[[], None]:
        """Begin to force the content of a file to the disk. What it gives returns when that is done, or raises OSError;
        after an interrupt it can be called again. A disk may do all of it only then."""

    def sync_folder(self, path: str) -> None:
        """Force the names in a folder to the disk."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        """Bytes of a file; fewer if it ends before."""

    def size(self, path: str) -> int:
        """Its bytes."""

    def changed(self, path: str) -> float:
        """When it was written, in seconds."""

    def used(self, path: str) -> int:
        """The bytes of a file, or of all files in a folder and in those in it; 0 if it is not there."""

    def names(self, path: str) -> list[str]:
        """The files in a folder, without those that were never finished; none if there is no such folder."""

    def tidy(self, path: str) -> None:
        """Remove the files of a folder that were never finished."""

    def folders(self, path: str) -> list[str]:
        """The folders in a folder."""

    def make(self, path: str, *, sync: bool = False) -> None:
        """Make a folder and those around it, if they are not there. ``sync``: they last."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all in it, if it is there."""

    def close(self) -> None:
        """Close what is open."""


class Disk:
    """Files of the system. Bounded by ``_OPEN`` open files, and one for each sync that is under way. Any thread may
    call it, one at a time for one file."""

    appends = True

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()
        self._opened: OrderedDict[str, int] = OrderedDict()
        self._flying: dict[FlyingSync, tuple[str | None, int]] = {}
        """The syncs under way, each with its file. The system writes into them, so they must not be forgotten. The path
        is None where the file has been removed meanwhile."""
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        return str(self._root)

    @property
    def boot(self) -> str:
        try:
            return BOOT.read_text().strip()
        except OSError:
            return ""  # not known: as if the machine had not been restarted

    def path(self, path: str) -> Path:
        """Where a file is."""
        return self._root / path

    def put(self, path: str, content: Sequence[Bytes], *, sync: bool = False) -> None:
        target = self.path(path)
        part = target.with_name(f"{target.name}.{secrets.token_hex(8)}{PART}")
        linked = False
        try:
            file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            try:
                write(file, 0, content)
                if sync:
                    os.fsync(file)
            finally:
                os.close(file)
            os.link(part, target)
            linked = True
            if sync:
                self.sync_folder(os.path.dirname(path))
        except BaseException:
            if linked:
                target.unlink()  # should that fail too, who asked for it looks whether it is there
            raise
        finally:
            with contextlib.suppress(OSError):
                part.unlink()

    def append(self, path: str, size: int, content: Sequence[Bytes]) -> int:
        file = self._taken(path)
        try:
            return write(file, size, content)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(file, size)
            raise
        finally:
            self._given_back(path, file)

    def cut(self, path: str, size: int) -> None:
        file = self._taken(path)
        try:
            os.ftruncate(file, size)
        finally:
            self._given_back(path, file)

    def sync(self, path: str) -> None:
        file = self._taken(path, make=False)
        try:
            os.fdatasync(file)
        finally:
            self._given_back(path, file)

    def sync_later(self, path: str) -> Callable[[], None]:
        file = self._taken(path, make=False)
        flying = FlyingSync(file)
        with self._guard:
            self._flying[flying] = path, file
        if flying.begin():
            return partial(self._landed, flying)
        self._put_back(flying)
        return partial(self.sync, path)

    def _landed(self, flying: FlyingSync) -> None:
        """Return when a sync is done; its file can be closed then."""
        try:
            flying.wait()
        except OSError:
            self._put_back(flying)
            raise
        self._put_back(flying)

    def _put_back(self, flying: FlyingSync) -> None:
        with self._guard:
            path, file = self._flying.pop(flying, (None, None))
            spare = file if path is None or file is None else self._spare(path, file)
        if spare is not None:
            os.close(spare)

    def sync_folder(self, path: str) -> None:
        file = os.open(self.path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        with pa.memory_map(str(self.path(path))) as file:
            size = file.size()
            if start >= size:
                return pa.py_buffer(b"")
            file.seek(start)
            return file.read_buffer(size - start if length is None else min(length, size - start))

    def size(self, path: str) -> int:
        return self.path(path).stat().st_size

    def changed(self, path: str) -> float:
        return self.path(path).stat().st_mtime

    def used(self, path: str) -> int:
        if self.path(path).is_file():
            return self.size(path)
        found = 0
        for entry in self._entries(path):
            if entry.is_dir(follow_symlinks=False):
                found += self.used(f"{path}/{entry.name}")
            else:
                with contextlib.suppress(FileNotFoundError):  # it has just been removed
                    found += entry.stat().st_size
        return found

    def names(self, path: str) -> list[str]:
        return [e.name for e in self._entries(path) if e.is_file() and not e.name.endswith(PART)]

    def tidy(self, path: str) -> None:
        for entry in self._entries(path):
            if entry.is_file() and entry.name.endswith(PART):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)

    def folders(self, path: str) -> list[str]:
        return [e.name for e in self._entries(path) if e.is_dir()]

    def _entries(self, path: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path(path)) as found:
                return sorted(found, key=lambda e: e.name)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make(self, path: str, *, sync: bool = False) -> None:
        if self.path(path).is_dir():
            return
        self.path(path).mkdir(parents=True, exist_ok=True)
        while sync and path:
            path = os.path.dirname(path)
            self.sync_folder(path)

    def remove(self, path: str) -> None:
        self._close(path)
        self.path(path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        for entry in self._entries(path):
            if entry.is_dir(follow_symlinks=False):
                self.remove_folder(f"{path}/{entry.name}")
            else:
                self.remove(f"{path}/{entry.name}")
        with contextlib.suppress(FileNotFoundError):
            self.path(path).rmdir()

    def close(self) -> None:
        for flying in list(self._flying):
            with contextlib.suppress(OSError):  # the caller that began it is gone
                self._landed(flying)
        for path in list(self._opened):
            self._close(path)

    def _taken(self, path: str, *, make: bool = True) -> int:
        with self._guard:
            file = self._opened.pop(path, None)
        if file is None:
            file = os.open(self.path(path), (os.O_CREAT if make else 0) | os.O_RDWR | os.O_CLOEXEC, 0o644)
        return file

    def _given_back(self, path: str, file: int) -> None:
        with self._guard:
            spare = self._spare(path, file)
        if spare is not None:
            os.close(spare)

    def _spare(self, path: str, file: int) -> int | None:
        """Keep a file open; gives the one that is to be closed for it. Under the guard."""
        spare = self._opened.pop(path, None)
        self._opened[path] = file
        if spare is None and len(self._opened) > _OPEN:
            spare = self._opened.popitem(last=False)[1]
        return spare

    def _close(self, path: str) -> None:
        with self._guard:
            file = self._opened.pop(path, None)
            for flying, (its, its_file) in self._flying.items():
                if its == path:
                    self._flying[flying] = None, its_file
        if file is not None:
            os.close(file)


def write(file: int, at: int, content: Sequence[Bytes]) -> int:
    """Write at a place; gives where it ends."""
    if len(content) <= _PARTS and sum(map(len, content)) <= _SHORT:
        whole = b"".join(content)
        written = os.pwrite(file, whole, at)
        at, content = at + written, [whole[written:]]
    left = [memoryview(part).cast("B") for part in content if len(part)]
    while left:
        written = os.pwritev(file, left[:64], at)
        at += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
    return at
