"""A copy of a directory that is consistent, though its owner may go on meanwhile.

The copy has the newest saved state and all entries behind it, up to the last one that there was when it was begun.
First it is seen up to which number there are entries, then everything up to there is copied, nothing behind it.
Segments are copied as far as they count, with an epoch of the copy's own that says where they end. Should the owner
remove something before it is copied, because a newer state covers it, the copy is begun again with that state.

Of a directory of engine ``spark`` the copy has entries from the first one on that a query has still to read, and of
``shards/`` what the queries need that run after the last entry. Of the checkpoints of sources it has the commits as
they were before, and the offsets as they are after: so every micro-batch that is in a log has its offset, and what
Spark has committed is in the log.

A copy is a directory like any other. The file that makes it one is written last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.model.errors import StorageError
from penstock.storage.files import Disk
from penstock.storage.names import NAME
from penstock.storage.objects import Root
from penstock.storage.reading import Reading
from penstock.storage.records import Record, put_record, read_record
from penstock.storage.shards import (
    SOURCES,
    Result,
    Shards,
    Verifying,
    needed_entry,
    parked_files,
    results_files,
    results_in,
    rows_files,
)
from penstock.storage.store import FORMAT, HEAD

_TRIES = 10
_PAUSE = 0.1
_FOLDERS = ("epochs", "catalog", "state")


class _Moved(Exception):
    """The owner has removed what was to be copied."""


class _Unwritten(Exception):
    """The machine was restarted, and entries behind the last one do not count."""

    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.last = last


def backup(source: str | Path, target: str | Path) -> int:
    """Copy a directory; gives the number of the last entry in the copy. Everything acknowledged before is in it.

    StorageError if the source is no database or damaged, or if there is something in the target.
    """
    reading = Reading(source)
    to = Path(target)
    try:
        _check_target(reading.root, to)
        made = _made(to)
    except OSError as error:
        raise StorageError(f"{to}: cannot be written: {error.strerror or error}") from error
    try:
        for _ in range(_TRIES):
            try:
                return _copied(source, to, None)
            except _Moved:
                time.sleep(_PAUSE)
        raise StorageError(
            f"{source}: files are removed faster than they can be copied", hint="try again when less is pushed"
        )
    except BaseException as error:
        with contextlib.suppress(OSError):
            _emptied(to)
            for folder in made:
                folder.rmdir()
        if isinstance(error, OSError):
            raise StorageError(
                f"{to}: the copy cannot be written: {error.strerror or error}", hint="nothing of it is left there"
            ) from error
        raise


def _copied(source: str | Path, to: Path, most: int | None) -> int:
    _emptied(to)
    files = Disk(to)
    try:
        return _Copy(Reading(source), files).all(most)
    except _Unwritten as end:
        files.close()
        return _copied(source, to, end.last)
    finally:
        files.close()


def _check_target(source: Root, to: Path) -> None:
    if to.exists() and not to.is_dir():
        raise StorageError(f"{to} is not a directory", hint="name an empty directory, or one that is not there yet")
    if to.is_dir() and (there := sorted(e.name for e in to.iterdir())):
        raise StorageError(
            f"{to} is not empty: it has `{there[0]}`", hint="name an empty directory, or one that is not there yet"
        )
    if isinstance(source, Path) and to.resolve().is_relative_to(source.resolve()):
        raise StorageError(f"{to} is in the directory that is copied", hint="name one elsewhere")


def _made(to: Path) -> list[Path]:
    """Make a directory; gives those that were not there, the innermost first."""
    made = [folder for folder in (to, *to.parents) if not folder.exists()]
    to.mkdir(parents=True, exist_ok=True)
    return made


def _emptied(to: Path) -> None:
    for entry in to.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


class _Copy:
    def __init__(self, reading: Reading, to: Disk) -> None:
        self._from, self._to = reading, to
        self._folders = {"", *_FOLDERS}
        self._safe = 0
        """Entries up to this number were on the disk for sure."""
        self._saved: dict[str, Mapping[str, Any]] = {}
        """What the saved state says in JSON, by path."""
        self._recorded: dict[int, Record] = {}
        self._results: list[Result] = []
        self._rows: set[tuple[str, int]] = set()
        """Files with rows of streams."""

    def all(self, most: int | None) -> int:
        """Copy what has numbers up to ``most``; gives the last one."""
        reading = self._from
        read_record(reading.files, HEAD)
        opened = reading.opened()
        same_boot = opened.get("boot", reading.files.boot) == reading.files.boot
        self._safe = opened.get("number", 0)
        last = reading.newest(opened, same_boot=same_boot) if most is None else most
        for folder in _FOLDERS:
            self._to.make(folder)
        self._checkpoints(commits=True)
        saved, version = self._state(opened)
        last = max(last, saved)  # one that has been saved meanwhile
        covered = needed_entry(self._saved, saved)
        ends, found = self._logs(opened, same_boot, covered, last)
        found |= self._records(opened, covered, last)
        for name in reading.files.names("functions"):
            self._file(f"functions/{name}")
        gone = self._missing(opened, saved, range(covered + 1, last + 1), found)
        if gone is not None and (same_boot or gone <= max(self._safe, saved)):
            raise StorageError(
                f"{reading.root}: entry {gone} is missing",
                hint="`penstock check` says what is damaged",
            )
        if gone is not None:  # it had not reached the disk when the machine was restarted: those behind do not count
            raise _Unwritten(gone - 1)
        self._shards(opened, saved)
        self._checkpoints(commits=False)
        self._sealed(opened, ends, last, version)
        return last

    def _state(self, opened: Record) -> tuple[int, str | None]:
        """Copy the newest version; gives its number and its name."""
        states = self._from.states(opened)
        if not states.versions:
            return 0, None
        version = states.versions[-1]
        path = states.path(version)
        try:
            self._saved = {name: one.meta for name, one in states.load(version).items()}
            states.verify()
        except StorageError:
            if self._from.is_gone(path):
                raise _Moved from None
            raise
        for file in sorted(states.files):
            self._file(f"state/{file}")
        self._file(path)
        return version[0], states.names[-1]

    def _logs(
        self, opened: Record, same_boot: bool, covered: int, last: int
    ) -> tuple[dict[str, dict[str, int]], set[int]]:
        """Copy the segments that have entries behind those that are not needed; gives where each ends, and the
        numbers."""
        reading = self._from
        ends: dict[str, dict[str, int]] = {}
        numbers: set[int] = set()
        for part in reading.parts(opened):
            frames, segment = reading.frames(part, same_boot=same_boot, verify=True)
            wanted = [f for f in frames if f.number <= last]
            self._safe = max([self._safe, *(f.safe for f in wanted)])  # others may have come since ``last`` was seen
            if not wanted or wanted[-1].number <= covered:
                continue
            if part.folder.startswith("results/"):
                self._results += results_in(segment, wanted)
            if part.folder.startswith("streams/"):
                self._rows |= {file for f in wanted if f.number > covered for file in rows_files(segment.meta(f))}
            numbers |= {f.number for f in wanted}
            end = wanted[-1].stop
            if part.folder not in ends and NAME in reading.files.names(part.folder):
                self._file(f"{part.folder}/{NAME}")
            self._folder(part.folder)
            self._to.append(part.path, 0, [segment.bytes_to(end)])
            self._to.sync(part.path)
            ends.setdefault(part.folder, {})[part.name] = end
        return ends, numbers

    def _records(self, opened: Record, covered: int, last: int) -> set[int]:
        records = self._from.records(opened)
        found = {n for n in records.numbers if covered < n <= last}
        for number in sorted(found):
            path = records.path(number)
            self._file(path)
            self._recorded[number] = read_record(self._to, path)
        return found

    def _shards(self, opened: Record, saved: int) -> None:
        """Copy the definitions of queries, the states of slots and the results in files that are needed."""
        shards, verifying = Shards(self._saved), Verifying(self._from.files)
        results = [result for result in self._results if result.number > saved]
        behind = {n: r for n, r in self._recorded.items() if n > saved} | {r.number: dict(r.meta) for r in results}
        for number in sorted(behind):
            shards.again(number, behind[number])
        paths: set[str] = set()
        try:
            for id in shards.queries:
                paths.update(verifying.definition(id))
            for state in shards.states:
                paths.update(verifying.needed(state))
            answers = {*results_files(self._saved), *(file for result in results for file in result.files)}
            paths.update(verifying.answers(*file) for file in answers)
            paths.update(verifying.rows(*file) for file in {*self._rows, *parked_files(self._saved)})
        except StorageError:
            if self._is_newer(opened, saved):
                raise _Moved from None
            raise
        for path in sorted(paths):
            self._file(path)

    def _checkpoints(self, *, commits: bool) -> None:
        """Copy the commits of sources, or all else of their checkpoints."""
        files = self._from.files

        def copy(folder: str) -> None:
            for name in files.names(folder):
                with contextlib.suppress(_Moved):  # Spark removes what is old
                    self._file(f"{folder}/{name}")
            for name in files.folders(folder):
                copy(f"{folder}/{name}")

        for source in files.folders(SOURCES):
            for name in files.folders(f"{SOURCES}/{source}"):
                if (name == "commits") is commits:
                    copy(f"{SOURCES}/{source}/{name}")
            if not commits and "metadata" in files.names(f"{SOURCES}/{source}"):
                self._file(f"{SOURCES}/{source}/metadata")

    def _file(self, path: str) -> None:
        """Copy a file that is never changed."""
        self._folder(os.path.dirname(path))
        try:
            self._to.append(path, 0, [self._from.files.read(path)])
        except FileNotFoundError:
            raise _Moved from None
        self._to.sync(path)

    def _folder(self, folder: str) -> None:
        self._to.make(folder)
        while folder:
            self._folders.add(folder)
            folder = os.path.dirname(folder)

    def _missing(self, opened: Record, saved: int, wanted: range, found: set[int]) -> int | None:
        """The first entry that was not found, though the owner has not removed it for a newer state."""
        if not self._from.is_of_the_same_owner:
            raise _Moved
        numbers = range(wanted.start, max(wanted.stop, self._safe + 1))
        gone = next((n for n in numbers if n not in found), None)
        if gone is not None and self._is_newer(opened, saved):
            raise _Moved
        return gone

    def _is_newer(self, opened: Record, saved: int) -> bool:
        """Whether there is a newer state or another owner, so that files may have been removed."""
        if not self._from.is_of_the_same_owner:
            return True
        versions = self._from.states(opened).versions
        return bool(versions) and versions[-1][0] > saved

    def _sealed(self, opened: Record, ends: dict[str, dict[str, int]], last: int, version: str | None) -> None:
        """Say where the logs end, and make a database of it."""
        if opened:
            # Without the boot: all of it is on the disk, so nothing may be missing, wherever it is opened.
            record = {k: v for k, v in opened.items() if k != "boot"}
            record |= {"ends": ends, "number": last, "versions": [] if version is None else [version]}
            put_record(self._to, f"epochs/{self._from.epoch:010d}.json", record, sync=True)
        for folder in sorted(self._folders, reverse=True):
            self._to.sync_folder(folder)
        put_record(self._to, HEAD, {"penstock": "database", "format": FORMAT}, sync=True)
