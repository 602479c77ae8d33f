"""Small records, each a file that appears under its number in one step and is never changed.

    catalog/00000000000000000012.json

A record is there or it is not. Numbers are those of the database's entries, so others lie between them; whether one is
missing is found out where all entries are read in order.

Bounded by: ``forget``, which is told of numbers that a saved state covers.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator
from typing import Any

from penstock.model.errors import StorageError
from penstock.storage.files import Files

Record = dict[str, Any]
BLOCK = 4096
"""Bytes of the disk that a small file takes."""


class Records:
    """The records under a folder."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        found = (n.removesuffix(".json") for n in files.names(folder) if n.endswith(".json"))
        self.numbers = sorted(int(n) for n in found if n.isdecimal())
        """Those that are there, ascending."""

    @property
    def bytes(self) -> int:
        """How much of the disk they take, about."""
        return BLOCK * len(self.numbers)

    def read(self, after: int = 0) -> Iterator[tuple[int, Record]]:
        """The records with numbers greater than this, in order."""
        for number in [n for n in self.numbers if n > after]:
            yield number, read_record(self._files, self._path(number))

    def add(self, number: int, record: Record, *, sync: bool) -> None:
        """Make a record; StorageError if another process has."""
        put_record(self._files, self._path(number), record, sync=sync)
        self.numbers.append(number)

    def forget(self, upto: int) -> None:
        """Nobody needs records with numbers up to this."""
        self._remove([n for n in self.numbers if n <= upto])

    def cut(self, after: int) -> None:
        """Records with numbers greater than this do not count."""
        self._remove([n for n in self.numbers if n > after])

    def _remove(self, numbers: list[int]) -> None:
        for number in numbers:
            with contextlib.suppress(OSError):  # one that stays is covered by the saved state
                self._files.remove(self._path(number))
        gone = set(numbers)
        self.numbers = [n for n in self.numbers if n not in gone]

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"


def put_record(files: Files, path: str, record: Record, *, sync: bool) -> None:
    """Put a record in place, with its checksum; StorageError if the name is taken."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
    try:
        files.put(path, [b"%08x\n" % zlib.crc32(text), text, b"\n"], sync=sync)
    except FileExistsError:
        raise StorageError(
            f"{files.name}/{path}: another process has written it", hint="use the directory there"
        ) from None


def read_record(files: Files, path: str) -> Record:
    """A record as it was put; StorageError if it is not."""
    try:
        text = files.read(path).to_pybytes()
    except FileNotFoundError:
        raise StorageError(f"{files.name}/{path}: missing", hint="restore the directory from a backup") from None
    except OSError as error:
        raise StorageError(f"{files.name}/{path}: cannot be read: {error}") from error
    crc, _, rest = text.partition(b"\n")
    try:
        sound = int(crc, 16) == zlib.crc32(rest[:-1]) and rest.endswith(b"\n")
        record: Record = json.loads(rest) if sound else {}
    except ValueError:
        sound = False
    if not sound:
        raise StorageError(
            f"{files.name}/{path}: damaged, its checksum is not what was written",
            hint="`penstock check` says what else is damaged; restore the directory from a backup",
        )
    return record
