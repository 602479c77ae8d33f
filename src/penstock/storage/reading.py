"""A directory as ``check`` and ``backup`` read it: nothing is changed, and its owner may go on meanwhile.

The owner adds at the ends of logs, puts new files and removes old ones. Entries are written in the order of their
numbers, so a reader that has seen one finds all before it, unless a saved state covers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.model.errors import StorageError
from penstock.storage.files import Disk, Files
from penstock.storage.log import counts
from penstock.storage.objects import Root, files_at, root_of
from penstock.storage.records import Record, Records, read_record
from penstock.storage.segments import Frame, Segment
from penstock.storage.states import States
from penstock.storage.store import EPOCH, FORMAT, HEAD, KINDS, check_kind


class _Copying(Disk):
    """Reads bytes instead of mapping files: one that is cut off meanwhile must not end the process."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        with open(self.path(path), "rb") as file:
            file.seek(start)
            return pa.py_buffer(file.read() if length is None else file.read(length))


@dataclass(frozen=True)
class Part:
    """A segment of a log. ``end``: where it was sealed; None if its owner may add to it."""

    folder: str
    name: str
    end: int | None

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"


_NAME_IT = "name the directory of a database"


class Reading:
    """What is in a directory now. StorageError if it is no database, or of another format."""

    def __init__(self, root: Root) -> None:
        self.root = root_of(root)
        self.files = files_at(self.root)
        """For files that are never changed."""
        self.growing: Files = _Copying(self.root) if self.files.appends else self.files
        """For the others."""
        try:
            if isinstance(self.root, Path) and not self.root.exists():
                raise StorageError(f"{root}: there is no such directory", hint=_NAME_IT)
            if isinstance(self.root, Path) and not self.root.is_dir():
                raise StorageError(f"{root} is not a directory", hint=_NAME_IT)
            check_kind(self.files, _NAME_IT)
        except OSError as error:
            raise StorageError(f"{root}: cannot be read: {error}") from error
        self._check_head()
        self.epochs = sorted(int(m[1]) for m in map(EPOCH.fullmatch, self.files.names("epochs")) if m)
        self.epoch = self.epochs[-1] if self.epochs else 0
        """That of the owner, or of the last one."""

    def _check_head(self) -> None:
        if HEAD not in self.files.names(""):
            if self.files.names("epochs") or self.files.folders("streams"):
                return  # it is damaged, which is said where it is read
            raise StorageError(f"{self.root}: there is no database in it", hint=_NAME_IT)
        try:
            head = read_record(self.files, HEAD)
        except StorageError:
            return
        if head.get("penstock") != "database" or head.get("format") != FORMAT:
            raise StorageError(
                f"{self.root}: written in format {head.get('format')}; this release reads format {FORMAT}",
                hint="use the release of Penstock that wrote it",
            )

    def opened(self) -> Record:
        """What the owner, or the last one, wrote when he opened it."""
        return read_record(self.files, f"epochs/{self.epoch:010d}.json") if self.epoch else {}

    @property
    def is_of_the_same_owner(self) -> bool:
        """Whether no other process has opened it since this object was made."""
        found = [int(m[1]) for m in map(EPOCH.fullmatch, self.files.names("epochs")) if m]
        return max(found, default=0) == self.epoch

    def is_gone(self, path: str) -> bool:
        """Whether a file is not there any more."""
        try:
            self.files.size(path)
        except FileNotFoundError:
            return True
        return False

    def folders(self) -> list[str]:
        """Those of the logs."""
        return [f"{kind}/{folder}" for kind in KINDS for folder in self.files.folders(kind)]

    def parts(self, opened: Record) -> Iterator[Part]:
        """The segments of all logs that count."""
        for folder in self.folders():
            sealed: dict[str, int] = opened.get("ends", {}).get(folder, {})
            for name in self.files.names(folder):
                if counts(f"{folder}/{name}", self.epoch, sealed):
                    yield Part(folder, name, sealed.get(name))

    def segment(self, part: Part) -> Segment:
        """A segment, as far as it has been written."""
        return Segment(self.growing, part.path, part.end)

    def frames(self, part: Part, *, same_boot: bool, verify: bool) -> tuple[list[Frame], Segment]:
        """The whole frames of a segment; none if it has been removed meanwhile."""
        try:
            segment = self.segment(part)
            return list(segment.frames(same_boot=same_boot, verify=verify)), segment
        except StorageError:
            if self.is_gone(part.path):
                return [], Segment(_Nothing(""), part.path)
            raise

    def records(self, opened: Record) -> Records:
        """The records that there are."""
        return Records(self.files, "catalog", epoch=self.epoch, owner=self.epoch, sealed=opened.get("number", 0))

    def states(self, opened: Record) -> States:
        """The versions that there are."""
        sealed = opened.get("versions", ())
        return States(self.files, "state", epoch=self.epoch, owner=self.epoch, sealed=sealed)

    def newest(self, opened: Record, *, same_boot: bool) -> int:
        """The greatest number that can be seen: all before it are there, or covered by a saved state."""
        found = max((v[0] for v in self.states(opened).versions), default=0)
        found = max([found, *self.records(opened).numbers])
        for part in self.parts(opened):
            frames, _ = self.frames(part, same_boot=same_boot, verify=False)
            found = max([found, *(f.number for f in frames)])
        return found

    def size(self, path: str) -> int:
        """Bytes of a file or folder."""
        return self.files.used(path)


class _Nothing(Disk):
    """Empty files."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        return pa.py_buffer(b"")
