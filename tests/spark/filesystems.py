"""File systems that are not a disk: object stores, HDFS, disks that are full, and processes that die at any call."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import fs


class Killed(Exception):
    """The process that asked for this is gone."""


class Around(fs.FileSystemHandler):  # type: ignore[misc]
    """Calls of another file system; ``before`` is told of each that changes something, and may raise."""

    def __init__(self, inner: fs.FileSystem, before: Callable[[str], None] = lambda call: None) -> None:
        self.inner, self.before = inner, before

    def get_type_name(self) -> str:
        return "around"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self.inner.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        return self.inner.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.before("create_dir")
        self.inner.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self.inner.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self.inner.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.before("delete_file")
        self.inner.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self.before("move")
        self.inner.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self.inner.copy_file(src, dest)

    def open_input_stream(self, path: str) -> Any:
        return self.inner.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self.inner.open_input_file(path)

    def open_output_stream(self, path: str, metadata: object) -> Any:
        self.before("open")
        return pa.PythonFile(_Out(self.inner.open_output_stream(path), self.before), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> Any:
        raise NotImplementedError


class _Out:
    """A file being written; if writing fails, half of it is there."""

    def __init__(self, inner: Any, before: Callable[[str], None]) -> None:
        self._inner, self._before = inner, before
        self.closed = False

    def write(self, data: bytes) -> int:
        try:
            self._before("write")
        except Exception:
            self._inner.write(data[: len(data) // 2])
            self._inner.close()
            raise
        self._inner.write(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._inner.close()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class ObjectStore(Around):
    """Has no rename: moving is copying and deleting, and a process may die in between."""

    def move(self, src: str, dest: str) -> None:
        self.before("copy")
        self.inner.copy_file(src, dest)
        self.before("delete")
        self.inner.delete_file(src)


class Hdfs(Around):
    """A rename does not replace a file."""

    def move(self, src: str, dest: str) -> None:
        self.before("move")
        if self.inner.get_file_info(dest).type != fs.FileType.NotFound:
            raise OSError(errno.EIO, "rename failed", dest)
        self.inner.move(src, dest)


class Calls:
    """Counts calls, fails at the one asked for, and lets others do something before the next of a kind."""

    def __init__(self) -> None:
        self.count = 0
        self.fail_at: int | None = None
        self.error: Callable[[], Exception] = Killed
        self.meanwhile_at = ""
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self, call: str) -> None:
        self.count += 1
        if call == self.meanwhile_at:
            self.meanwhile_at = ""
            self.meanwhile()
        if self.fail_at is not None and self.count == self.fail_at:
            raise self.error()


def full() -> Exception:
    """What a full disk says."""
    return OSError(errno.ENOSPC, "No space left on device")
