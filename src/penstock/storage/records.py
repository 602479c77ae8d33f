"""Small records, each a file that appears under its number in one step and is never changed.

    catalog/00000000000000000012-0000000003.json

A record is there or it is not. Behind its number stands the epoch of its writer: what a former owner writes when
another process has opened the directory has a greater number than all that counted then, and is not read.

Numbers are those of the database's entries, so others lie between them; whether one is missing is found out where all
entries are read in order.

Bounded by: ``forget``, which is told of numbers that a saved state covers.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from penstock.model.errors import StorageError
from penstock.storage.files import Files
from penstock.storage.log import check_epoch

_NAME = re.compile(r"(\d{20})-(\d{10})\.json")
Record = dict[str, Any]
BLOCK = 4096
"""Bytes of the disk that a small file takes."""


class Records:
    """The records under a folder. ``epoch``: that of the process which writes more. ``owner``: the newest epoch that
    has been recorded, and ``sealed`` the number of the last entry when it began."""

    def __init__(self, files: Files, folder: str, *, epoch: int, owner: int, sealed: int) -> None:
        self._files, self._folder, self._epoch = files, folder, epoch
        self._names: dict[int, str] = {}
        for name in files.names(folder):
            if match := _NAME.fullmatch(name):
                number, writer = int(match[1]), int(match[2])
                check_epoch(f"{files.name}/{folder}/{name}", writer, owner)
                if writer == owner or number <= sealed:
                    self._names[number] = name
        self.numbers = sorted(self._names)
        """The numbers of the records, ascending."""

    @property
    def bytes(self) -> int:
        """How much of the disk they take, about."""
        return BLOCK * len(self.numbers)

    def read(self, after: int = 0) -> Iterator[tuple[int, Record]]:
        """The records with numbers greater than this, in order."""
        for number in [n for n in self.numbers if n > after]:
            yield number, read_record(self._files, self.path(number))

    def add(self, number: int, record: Record, *, sync: bool) -> None:
        """Make a record; StorageError if it is there already. If it raises anything else, ``undo`` it."""
        self._names[number] = f"{number:020d}-{self._epoch:010d}.json"
        put_record(self._files, self.path(number), record, sync=sync)
        self.numbers.append(number)

    def undo(self, number: int) -> None:
        """Let there be no record with this number, which ``add`` may have made."""
        if number in self._names:
            self._files.remove(self.path(number))
            del self._names[number]
        self.numbers = [n for n in self.numbers if n != number]

    def forget(self, upto: int) -> None:
        """Remove records that every kept state covers."""
        for number in [n for n in self.numbers if n <= upto]:
            with contextlib.suppress(OSError):  # one that stays is covered by the saved state
                self._remove(number)

    def cut(self, after: int) -> None:
        """Records with numbers greater than this do not count; and this lasts, as the others do."""
        for number in [n for n in self.numbers if n > after]:
            self._remove(number)
        for number in self.numbers:
            self._files.sync(self.path(number))
        self._files.sync_folder(self._folder)

    def _remove(self, number: int) -> None:
        self.numbers.remove(number)
        self._files.remove(f"{self._folder}/{self._names.pop(number)}")

    def path(self, number: int) -> str:
        """Where a record is."""
        return f"{self._folder}/{self._names[number]}"


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
