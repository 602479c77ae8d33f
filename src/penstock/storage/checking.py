"""Is a directory sound? Every checksum is computed anew, and every number looked for. Nothing is changed.

It needs no lock: another process may have the directory open. What that one is writing at the moment is no damage, nor
what it removes because a saved state covers it. Of what tasks of engine ``spark`` have left, only that is looked at
which an opening would need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from penstock.model.errors import StorageError
from penstock.storage.owners import holder
from penstock.storage.reading import Reading
from penstock.storage.records import Record, read_record
from penstock.storage.segments import Segment
from penstock.storage.shards import (
    SHARDS,
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
from penstock.storage.store import FORMAT, HEAD, log_name, read_code

_LOOKS = 5
"""How often a directory is looked at whose owner changes what is being looked at."""
_PAUSE = 0.2
PARTS = ("streams", "relations", "deliveries", "results", "catalog", "functions", "state", "epochs", SHARDS, SOURCES)


@dataclass(frozen=True, order=True)
class Damage:
    """A file that is not as it was written, or that is missing."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass
class Report:
    """What is in a directory."""

    path: str
    format: int = FORMAT
    epoch: int = 0
    open_in: str | None = None
    """The process that has it open."""
    last: int = 0
    """The number of the last entry."""
    entries: int = 0
    """How many entries there are in logs and records."""
    behind: int = 0
    """How many of them are not in a saved state."""
    versions: int = 0
    saved: int = 0
    """The number of the last entry that is in a saved state."""
    saved_at: float | None = None
    """When that was saved."""
    bytes: dict[str, int] = field(default_factory=dict)
    state: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the newest saved state says in JSON."""
    records: list[Record] = field(default_factory=list)
    """The records since."""
    code: set[str] = field(default_factory=set)
    """The files of functions' code that are as they were written."""
    damage: list[Damage] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def check(path: str | Path) -> Report:
    """Verify a directory; StorageError if it is no database, or of another format."""
    report = _look(path)
    for _ in range(_LOOKS):
        if report is not None and not (report.damage and report.open_in):
            return report
        # What was found may be the work of a process that goes on: it must be there again.
        time.sleep(_PAUSE)
        before, report = report, _look(path)
        if before is not None and report is not None:
            again = set(before.damage)
            stays = [d for d in report.damage if d in again]
            if stays or not report.damage:
                report.damage = stays
                return report
    if report is None:
        raise StorageError(f"{path}: it is being opened again and again", hint="try again later")
    return report


def _look(path: str | Path) -> Report | None:
    """One look; None if another process has become the owner meanwhile."""
    try:
        look = _Look(Reading(path))
        look.all()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    return look.report if look.reading.is_of_the_same_owner else None


class _Look:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.report = Report(str(reading.root), epoch=reading.epoch, open_in=holder(reading.files))
        self._opened: Record = {}
        self._same_boot = True
        self._safe = 0
        """Entries up to this number were on the disk for sure."""
        self._torn: StorageError | None = None
        """What is wrong at the end of a segment, where a restart of the machine explains it."""
        self._numbers: set[int] = set()
        self._recorded: dict[int, Record] = {}
        self._results: dict[int, Result] = {}
        self._rows: dict[int, list[tuple[str, int]]] = {}
        """Of entries, the files with rows that they name."""
        self._oldest = 0
        """The number of the oldest saved state."""

    def all(self) -> None:
        reading, report = self.reading, self.report
        self._try(HEAD, lambda: read_record(reading.files, HEAD))
        for epoch in reading.epochs:
            name = f"epochs/{epoch:010d}.json"
            self._try(name, lambda name=name: read_record(reading.files, name))  # type: ignore[misc]
        if not reading.epochs and any(reading.files.names(folder) for folder in reading.folders()):
            self._damaged("epochs", "it is empty, so it is not known which entries count")
        if not any(d.file.startswith("epochs") for d in report.damage):
            self._opened = reading.opened()
            self._same_boot = self._opened.get("boot", reading.files.boot) == reading.files.boot
            self._safe = self._opened.get("number", 0)
            for look in (self._entries, self._versions, self._shards):
                try:
                    look()
                except StorageError as error:  # files of an owner of whom nothing is known
                    self._found(error, "epochs")
        for name in reading.files.names("functions"):
            path = f"functions/{name}"
            if self._try(path, lambda path=path: read_code(reading.files, path)):  # type: ignore[misc]
                report.code.add(path)
        report.bytes = {part: reading.size(part) for part in PARTS}
        report.entries = len(self._numbers)
        report.behind = sum(n > report.saved for n in self._numbers)
        report.last = max(self._numbers | {report.saved})

    def _entries(self) -> None:
        reading = self.reading
        try:
            horizon = reading.newest(self._opened, same_boot=self._same_boot)
        except StorageError:
            horizon = 0  # something is damaged, which is found again now
        broken = len(self.report.damage)
        for folder in reading.folders():
            self._try(folder, lambda folder=folder: log_name(reading.files, folder))  # type: ignore[misc]
        for part in reading.parts(self._opened):
            try:
                frames, segment = reading.frames(part, same_boot=self._same_boot, verify=True)
                self._numbers |= {f.number for f in frames}
                # Entries behind the horizon say more than has been seen: another log may have been read before.
                self._safe = max([self._safe, *(f.safe for f in frames if f.number <= horizon)])
                self._torn = self._torn or segment.torn
                if part.folder.startswith("results/"):
                    self._results |= {result.number: result for result in results_in(segment, frames)}
                if part.folder.startswith("streams/"):
                    self._rows |= {f.number: found for f in frames if (found := rows_files(segment.meta(f)))}
            except StorageError as error:
                self._found(error, part.path)
        records = reading.records(self._opened)
        for number in records.numbers:
            path = records.path(number)
            record = self._try(path, lambda path=path: read_record(reading.files, path))  # type: ignore[misc]
            if record is not None:
                self._recorded[number] = record
                self._numbers.add(number)
        if len(self.report.damage) == broken:
            self._gaps(self._covered(), horizon)

    def _covered(self) -> int:
        """Entries up to this one need not be there."""
        states = self.reading.states(self._opened)
        found: list[int] = []
        for version in states.versions:
            try:
                metas = {path: one.meta for path, one in states.load(version).items()}
            except StorageError:
                found.append(version[0])  # it is damaged, which is found again, or gone
                continue
            found.append(needed_entry(metas, version[0]))
            if found[-1] < version[0]:
                self._safe = max(self._safe, version[0])  # what is still to be read was on the disk when it was saved
        return min(found, default=0)

    def _gaps(self, covered: int, horizon: int) -> None:
        gone = next((n for n in range(covered + 1, max(horizon, self._safe) + 1) if n not in self._numbers), None)
        if gone is None:
            return
        if gone <= self._safe and self._torn is not None:
            self._found(self._torn, ".")
        elif gone <= self._safe:
            self._damaged(".", f"entry {gone} is missing, though entries up to {self._safe} had reached the disk")
        elif self._same_boot:
            self._damaged(".", f"entry {gone} is missing, and there are later ones")
        else:
            self.report.remarks.append(
                f"the machine was restarted; entry {gone} had not reached the disk, so those behind it do not count"
            )
            self._numbers = {n for n in self._numbers if n < gone}
            for behind in (self._recorded, self._results):
                for number in [n for n in behind if n >= gone]:
                    del behind[number]

    def _versions(self) -> None:
        reading, report = self.reading, self.report
        states = reading.states(self._opened)
        self._oldest = states.versions[0][0] if states.versions else 0
        for version in states.versions:
            path = states.path(version)
            try:
                loaded = states.load(version)
                for file in states.files:
                    if Segment(reading.files, f"state/{file}").head() is None:
                        raise StorageError(f"{reading.files.name}/state/{file}: damaged, it has no head")
                states.verify()
                at = reading.files.changed(path)
            except FileNotFoundError:
                continue
            except StorageError as error:
                if not reading.is_gone(path):
                    self._found(error, path)
                continue
            report.versions += 1
            report.saved, report.saved_at = version[0], at
            report.state = {name: one.meta for name, one in loaded.items()}
        report.records = [record for number, record in sorted(self._recorded.items()) if number > report.saved]

    def _shards(self) -> None:
        """What the saved state and the entries behind it name."""
        if self._oldest and not self.report.versions:
            return  # no state can be read, so it is not known what is needed
        shards, verifying = Shards(self.report.state), Verifying(self.reading.files)
        behind = self._recorded | {n: dict(r.meta) for n, r in self._results.items()}
        for number in sorted(n for n in behind if n > self.report.saved):
            shards.again(number, behind[number])
        needed = needed_entry(self.report.state, self.report.saved)
        rows = {file for number, files in self._rows.items() if number > needed for file in files}
        answers = {file for result in self._results.values() if result.number > self._oldest for file in result.files}
        looks: list[Callable[[], object]] = [
            *(partial(verifying.rows, *file) for file in sorted({*rows, *parked_files(self.report.state)})),
            *(partial(verifying.definition, id) for id in shards.queries),
            *(partial(verifying.needed, state) for state in shards.states),
            *(partial(verifying.state, state) for state in shards.earlier),
            *(partial(verifying.answers, *file) for file in sorted({*answers, *results_files(self.report.state)})),
        ]  # fmt: skip
        for look in looks:
            try:
                look()
            except StorageError as error:
                self._found(error, SHARDS)

    def _try(self, path: str, read: Callable[[], Any]) -> Any:
        """What ``read`` gives; None if it is damaged, or gone meanwhile."""
        try:
            return read()
        except StorageError as error:
            if path == HEAD or not self.reading.is_gone(path):
                self._found(error, path)
            return None

    def _found(self, error: StorageError, path: str) -> None:
        message = error.message.removeprefix(f"{self.reading.files.name}/")
        file, _, what = message.partition(": ")
        self._damaged(*((file, what) if what else (path, message)))

    def _damaged(self, file: str, what: str) -> None:
        if all(damage.file != file for damage in self.report.damage):
            self.report.damage.append(Damage(file, what))
