"""An object store in memory: whole objects are put, read, listed and removed; nothing else can be done with them."""

from __future__ import annotations

import io
import random
import time
from collections import Counter
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.storage.objects import Objects


class Bucket(fs.FileSystemHandler):  # type: ignore[misc]
    """Objects by name, and when each was put. ``skew``: seconds by which its clock is ahead."""

    def __init__(self, objects: dict[str, tuple[bytes, float]] | None = None) -> None:
        self.objects = dict(objects or {})
        self.skew = 0.0
        self.broken: set[str] = set()
        """Beginnings of names that cannot be put now."""
        self.read: Counter[str] = Counter()
        """How often each was asked for."""

    def get_type_name(self) -> str:
        return "bucket"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        if path in self.objects:
            content, at = self.objects[path]
            return fs.FileInfo(path, fs.FileType.File, size=len(content), mtime_ns=int(at * 1e9))
        inside = any(name.startswith(f"{path}/") for name in self.objects)
        return fs.FileInfo(path, fs.FileType.Directory if inside else fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        start = f"{selector.base_dir}/"
        below = [name[len(start) :] for name in list(self.objects) if name.startswith(start)]
        found = {rest if selector.recursive else rest.partition("/")[0] for rest in below}
        return [self._info(f"{start}{rest}") for rest in sorted(found)]

    def open_input_file(self, path: str) -> Any:
        if path not in self.objects:
            raise FileNotFoundError(path)
        self.read[path] += 1
        return pa.BufferReader(self.objects[path][0])

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: object) -> Any:
        if path.startswith(tuple(self.broken)):
            raise OSError(5, "the store does not answer")
        return pa.PythonFile(_Put(self, path), mode="w")

    def create_dir(self, path: str, recursive: bool) -> None:
        """A folder is there when there is something in it."""

    def delete_file(self, path: str) -> None:
        if self.objects.pop(path, None) is None:
            raise FileNotFoundError(path)

    def delete_dir(self, path: str) -> None:
        for name in [name for name in self.objects if name.startswith(f"{path}/")]:
            del self.objects[name]

    def _refused(self, *_: object, **__: object) -> Any:
        raise AssertionError("an object store cannot do this")

    delete_dir_contents = delete_root_dir_contents = move = copy_file = open_append_stream = _refused


class _Put(io.BytesIO):
    """An object that is there when all of it is."""

    def __init__(self, bucket: Bucket, path: str) -> None:
        super().__init__()
        self._bucket, self._path = bucket, path

    def close(self) -> None:
        if not self.closed:
            self._bucket.objects[self._path] = self.getvalue(), time.time() + self._bucket.skew
        super().close()


class Held(Objects):
    """The files of a database in such a store."""

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket or Bucket()
        super().__init__("bucket/db", fs.PyFileSystem(self.bucket))

    def killed(self) -> Held:
        """What the next process finds after this one was killed."""
        return Held(Bucket(self.bucket.objects))

    def power_lost(self, chance: random.Random) -> Held:
        """What is there after a loss of power: all of it."""
        return self.killed()
