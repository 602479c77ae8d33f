"""The files of a database as objects of a store (S3, Google, Azure), through pyarrow: put whole, read in ranges,
listed, removed. They are never renamed, appended to, locked, forced to a disk or mapped into memory.

    connect("s3://bucket/folder")
    connect("s3://bucket/folder?endpoint_override=localhost:9000&scheme=http")

An object is there, whole, when ``put`` returns, and lasts. That a name is taken is looked up before: no two processes
write the same name, because names have the epoch of the one that is the owner (``owners``), or are drawn.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from penstock.model.errors import InputError
from penstock.storage.files import Bytes, Disk, Files

_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
Root = Path | str
"""Where a database is: a directory, or the address of a folder in an object store."""


def root_of(path: str | Path) -> Root:
    """What a user has named."""
    text = str(path)
    if "://" not in text:
        return Path(path)
    if text.partition("://")[0] not in _SCHEMES:
        raise InputError(
            f"{text} is neither a directory nor in an object store",
            hint=f"an address begins with {', '.join(f'{s}://' for s in _SCHEMES)}",
        )
    return text.rstrip("/")


def files_at(root: Root) -> Files:
    """The files of a database."""
    return Objects(root) if isinstance(root, str) and "://" in root else Disk(root)


def joined(root: Root, path: str) -> str:
    """The address of something under a root."""
    base, mark, options = str(root).partition("?")
    return f"{base}/{path}{mark}{options}"


@lru_cache(maxsize=16)
def _filesystem(scheme: str, root: str) -> tuple[fs.FileSystem, str]:
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"{root}: {error}", hint="name a directory, or a folder in an object store, such as s3://bucket/db"
        ) from None
    return found


def filesystem_at(root: str) -> tuple[fs.FileSystem, str]:
    """A file system, and the path in it."""
    if "://" not in root:
        return fs.LocalFileSystem(), root
    # Connections are shared by all that a process asks of one store.
    base, mark, options = root.partition("?")
    scheme, _, path = base.partition("://")
    bucket, _, inside = path.partition("/")
    found, start = _filesystem(scheme, f"{scheme}://{bucket}/{mark}{options}")
    return found, f"{start.rstrip('/')}/{inside}".rstrip("/")


class Objects:
    """See above. Bounded by: what is appended and not synced, in memory. Any thread may call it."""

    appends = False

    def __init__(self, root: str, filesystem: fs.FileSystem | None = None) -> None:
        """``filesystem``: where ``root`` is a path in it."""
        self.name = root
        self._fs, self._root = (filesystem, root) if filesystem is not None else filesystem_at(root)
        self._growing: dict[str, list[Bytes]] = {}
        self._mutex = threading.Lock()
        self.guard: Callable[[], None] | None = None
        """Raises OSError if this process must not write any more: asked before and after it does."""

    @property
    def boot(self) -> str:
        return ""  # what has been put lasts, whatever machine is restarted

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _info(self, path: str) -> fs.FileInfo:
        return self._fs.get_file_info(self._path(path))

    def put(self, path: str, content: Sequence[Bytes], *, sync: bool = False) -> None:
        if self._info(path).type == fs.FileType.File:
            raise FileExistsError(path)
        self._write(path, content)

    def replace(self, path: str, content: bytes) -> None:
        """Make an object with this content, also where there is one."""
        self._write(path, [content])

    def _write(self, path: str, content: Sequence[Bytes]) -> None:
        guard = self.guard
        if guard is not None:
            guard()
        with self._fs.open_output_stream(self._path(path), compression=None) as out:
            out.write(b"".join(content))
        if guard is not None:
            guard()

    def append(self, path: str, size: int, content: Sequence[Bytes]) -> int:
        with self._mutex:
            there = self._growing.setdefault(path, [])
            assert sum(map(len, there)) == size, "an object grows only until it is put"
            there += [bytes(part) for part in content]
            return sum(map(len, there))

    def cut(self, path: str, size: int) -> None:
        raise OSError(f"{path}: an object cannot be cut")  # logs have one entry in each

    def sync(self, path: str) -> None:
        with self._mutex:
            content = self._growing.get(path)
        if content is not None:
            self.put(path, content)
            with self._mutex:
                self._growing.pop(path, None)

    def sync_later(self, path: str) -> Callable[[], None]:
        return partial(self.sync, path)

    def sync_folder(self, path: str) -> None:
        """Names last."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        with self._mutex:
            growing = self._growing.get(path)
        if growing is not None:
            whole = b"".join(growing)
            return pa.py_buffer(whole[start:] if length is None else whole[start : start + length])
        with self._fs.open_input_file(self._path(path)) as file:
            size = file.size()
            if start >= size:
                return pa.py_buffer(b"")
            file.seek(start)
            return file.read_buffer(size - start if length is None else min(length, size - start))

    def size(self, path: str) -> int:
        found = self._info(path)
        if found.type != fs.FileType.File:
            raise FileNotFoundError(path)
        return int(found.size)

    def changed(self, path: str) -> float:
        found = self._info(path)
        if found.type != fs.FileType.File:
            raise FileNotFoundError(path)
        return float(found.mtime_ns) / 1e9

    def used(self, path: str) -> int:
        found = self._info(path)
        if found.type == fs.FileType.File:
            return int(found.size)
        return sum(info.size for info in self._listed(path, recursive=True) if info.type == fs.FileType.File)

    def times(self, path: str) -> dict[str, float]:
        """When the objects in a folder were put, in seconds by the store's clock."""
        return {
            f"{path}/{info.base_name}": info.mtime_ns / 1e9
            for info in self._listed(path) if info.type == fs.FileType.File
        }  # fmt: skip

    def names(self, path: str) -> list[str]:
        return sorted(info.base_name for info in self._listed(path) if info.type == fs.FileType.File)

    def folders(self, path: str) -> list[str]:
        return sorted(info.base_name for info in self._listed(path) if info.type == fs.FileType.Directory)

    def _listed(self, path: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._path(path), allow_not_found=True, recursive=recursive)
        return list(self._fs.get_file_info(selector))

    def tidy(self, path: str) -> None:
        """Nothing is ever unfinished."""

    def make(self, path: str, *, sync: bool = False) -> None:
        """A folder is there when there is something in it."""

    def remove(self, path: str) -> None:
        with self._mutex:
            growing = self._growing.pop(path, None)
        if growing is None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(self._path(path))

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_dir(self._path(path))

    def close(self) -> None:
        """Nothing is open."""
