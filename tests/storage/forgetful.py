"""A disk in memory that forgets at a loss of power whatever was not synced, in part or altogether."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from penstock.storage.files import Bytes

_PAGE = 512


@dataclass
class _File:
    now: bytearray
    safe: bytes = b""


@dataclass
class Forgetful:
    """Files that keep what was synced. ``room``: bytes that may still be written, then the disk is full. ``broken``: so
    many calls that write succeed, and each one after them fails."""

    appends = True
    now: dict[str, _File] = field(default_factory=dict)
    safe: dict[str, _File] = field(default_factory=dict)
    """The names that are on the disk for sure."""
    room: int | None = None
    broken: int | None = None
    name: str = "disk"
    boots: int = 0
    calls: int = 0
    made: set[str] = field(default_factory=set)
    """Folders whose names may not be on the disk: what is in them goes with them."""

    @property
    def boot(self) -> str:
        return f"boot {self.boots}"

    def _write(self, bytes: int) -> None:
        self.calls += 1
        if self.broken is not None:
            self.broken -= 1
            if self.broken < 0:
                raise OSError(errno.EIO, "Input/output error")
        if self.room is not None:
            self.room -= bytes
            if self.room < 0:
                self.room = 0
                raise OSError(errno.ENOSPC, "No space left on device")

    def put(self, path: str, content: Sequence[Bytes], *, sync: bool = False) -> None:
        data = b"".join(bytes(c) for c in content)
        self._write(len(data))
        if path in self.now:
            raise FileExistsError(path)
        self.now[path] = file = _File(bytearray(data))
        if sync:
            file.safe = bytes(file.now)
            self.safe[path] = file
            self._held(os.path.dirname(path))

    def append(self, path: str, size: int, content: Sequence[Bytes]) -> int:
        data = b"".join(bytes(c) for c in content)
        file = self.now.setdefault(path, _File(bytearray()))
        try:
            self._write(len(data))
        except OSError:
            del file.now[size:]
            raise
        file.now[size:] = data
        return len(file.now)

    def cut(self, path: str, size: int) -> None:
        self._write(0)
        del self.now.setdefault(path, _File(bytearray())).now[size:]

    def sync(self, path: str) -> None:
        self._write(0)
        if path not in self.now:
            raise FileNotFoundError(path)
        self.now[path].safe = bytes(self.now[path].now)

    def sync_later(self, path: str) -> Callable[[], None]:
        if path not in self.now:
            raise FileNotFoundError(path)
        return partial(self._sync_of, path, bytes(self.now[path].now))

    def _sync_of(self, path: str, content: bytes) -> None:
        """What the file had when its sync began is on the disk; what came since may not be."""
        self._write(0)
        if path not in self.now:
            raise FileNotFoundError(path)
        if len(content) > len(self.now[path].safe):
            self.now[path].safe = content

    def sync_folder(self, path: str) -> None:
        self._write(0)
        for name in [n for n in {*self.now, *self.safe} if os.path.dirname(n) == path]:
            if name in self.now:
                self.safe[name] = self.now[name]
            else:
                self.safe.pop(name, None)
        self._held(path)

    def _held(self, path: str) -> None:
        """The names in a folder are on the disk."""
        self.made = {name for name in self.made if os.path.dirname(name) != path}

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        if path not in self.now:
            raise FileNotFoundError(path)
        data = bytes(self.now[path].now)
        return pa.py_buffer(data[start:] if length is None else data[start : start + length])

    def size(self, path: str) -> int:
        if path not in self.now:
            raise FileNotFoundError(path)
        return len(self.now[path].now)

    def changed(self, path: str) -> float:
        return 0.0

    def used(self, path: str) -> int:
        return sum(len(file.now) for name, file in self.now.items() if name == path or name.startswith(f"{path}/"))

    def names(self, path: str) -> list[str]:
        return sorted(os.path.basename(n) for n in self.now if os.path.dirname(n) == path)

    def tidy(self, path: str) -> None:
        """Nothing here is ever unfinished."""

    def folders(self, path: str) -> list[str]:
        start = f"{path}/"
        return sorted({n[len(start) :].split("/")[0] for n in self.now if n.startswith(start) and n.count("/") > 1})

    def make(self, path: str, *, sync: bool = False) -> None:
        folders = [path[:i] for i, c in enumerate(path) if c == "/"] + [path]
        self.made |= {
            f for f in folders if not sync and not any(n.startswith(f"{f}/") for n in {*self.now, *self.safe})
        }

    def remove(self, path: str) -> None:
        self._write(0)
        self.now.pop(path, None)

    def remove_folder(self, path: str) -> None:
        for name in [n for n in self.now if n.startswith(f"{path}/")]:
            self.remove(name)

    def close(self) -> None:
        pass

    def killed(self) -> Forgetful:
        """What the next process finds after this one was killed: all that was written."""
        files = {n: _File(bytearray(f.now), f.safe) for n, f in self.now.items()}
        return Forgetful(files, {n: files[n] for n in self.safe if n in files}, boots=self.boots, made=set(self.made))

    def power_lost(self, chance: random.Random) -> Forgetful:
        """What is there after a loss of power: what was synced, and of the rest what chance will have."""
        found: dict[str, _File] = {}
        gone = tuple(f"{folder}/" for folder in sorted(self.made) if chance.random() < 0.5)
        for name in sorted({*self.now, *self.safe}):
            if name.startswith(gone):
                continue
            file = self.now.get(name) or self.safe[name]
            named, still = name in self.safe, name in self.now
            if (named and still) or chance.random() < 0.5:
                found[name] = _File(bytearray(_left(file, chance)))
        for file in found.values():
            file.safe = bytes(file.now)
        return Forgetful(found, dict(found), boots=self.boots + 1)


def _left(file: _File, chance: random.Random) -> bytes:
    """What is left of a file: its pages, each as it was synced, as it was last, or empty."""
    now, safe = bytes(file.now), file.safe
    if now == safe:
        return now
    if chance.random() < 0.3:
        return safe
    size = chance.randint(min(len(now), len(safe)), max(len(now), len(safe)))
    pages = []
    for at in range(0, size, _PAGE):
        old, new = safe[at : at + _PAGE], now[at : at + _PAGE]
        if old == new[: len(old)] and len(old) == len(new):
            pages.append(new)
        else:
            kept = old.ljust(len(new), b"\0") if chance.random() < 0.5 else new
            pages.append(kept[: size - at])
    left = b"".join(pages)[:size]
    # What was synced of a file stays, as far as it has not been cut off since.
    keep = next((i for i, (a, b) in enumerate(zip(now, safe, strict=False)) if a != b), min(len(now), len(safe)))
    return safe[:keep] + left[keep:]
