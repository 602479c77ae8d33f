"""The directory of a database: who has it, its logs, its records and the versions of its state.

    penstock.json          what this is, and in which format
    owner                  locked by the process that has it open; says which one
    epochs/0000000003.json who opened it, and where the logs ended then
    catalog/…              records: declarations, queries, functions (``records``)
    streams/NAME/… relations/NAME/… deliveries/… results/…   logs (``log``)
    state/…                versions of the state (``states``)
    shards/…               of engine ``spark``: what its tasks are told and remember (``shards``)
    spark/…                checkpoints of Spark's streaming queries; nothing of them is needed after a restart

Every entry of a log and every record has a number; numbers have no gaps. So ``recover`` takes the newest version of the
state and all entries behind it in their order, and knows if one is missing.

Each opening takes a new epoch, which names the ends of all logs, the versions of the state and the number of the last
entry. What an earlier owner, or a process of his, writes after that is never read. Everything up to that number was on
the disk then; and each entry says up to which number all were when it was written. So after a loss of power it is known
whether an entry is missing because it had not reached the disk, or because a file is damaged or gone.

What is acknowledged survives the process. What survives a loss of power, ``sync`` says. ``off``: the last saved state,
and of what came later as much as the system has written by then, up to the first entry that it has not.
``group``: everything acknowledged; small pushes of several threads are taken as one, with one sync. ``always``: the
same, but each push is taken by itself.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from penstock.model.amounts import shown
from penstock.model.errors import InputError, StorageError
from penstock.operators.state import LoadedState, State
from penstock.storage.files import Files
from penstock.storage.log import Entry, Known, Log, Rows
from penstock.storage.names import NAME, file_name, is_shortened, name_of
from penstock.storage.objects import Root, files_at
from penstock.storage.owners import Owner, own
from penstock.storage.records import BLOCK, Record, Records, put_record, read_record
from penstock.storage.states import States
from penstock.storage.syncing import Syncing

FORMAT = 1
Sync = Literal["off", "group", "always"]
HEAD = "penstock.json"
EPOCH = re.compile(r"(\d{10})\.json")
KINDS = ("streams", "relations", "deliveries", "results")
_OWN = frozenset({HEAD, "owner", "epochs", "catalog", "functions", "state", "shards", "spark", *KINDS})
_OLDER = ("journal", "lock")
"""What there is in the directory of a database of release 0.1."""


@dataclass(frozen=True)
class Item:
    """An entry of a log or a record, as it is read again."""

    number: int
    kind: str
    name: str
    meta: Mapping[str, Any]
    rows: pa.Table | None = None


def checked_sync(sync: str) -> Sync:
    """One of the three ways."""
    for known in get_args(Sync):
        if sync == known:
            return known  # type: ignore[no-any-return]
    raise InputError(f"sync is {sync!r}", hint="it is 'off', 'group' or 'always'")


class Store:
    """An open directory. Any thread may write; entries count in the order of their numbers. ``save`` is called by one
    thread at a time.

    Bounded by: what is declared; on disk by two versions of the state and the entries since the older one, and by
    ``quota``: what is new is refused when it would not fit in ``quota`` bytes. What makes room is not: deliveries,
    records of what is dropped and stopped, and versions of the state.
    """

    def __init__(
        self, files: Files, *, sync: Sync = "off", owner: Owner | None = None, quota: int | None = None
    ) -> None:
        self.files, self.sync_way, self.quota = files, sync, quota
        self._owner, self._process = owner, os.getpid()
        self._mutex = threading.RLock()
        """Guards numbers and logs. Nothing else is waited for with it but the disk."""
        self._logs: dict[tuple[str, str], Log] = {}
        self._leftover: Callable[[], None] | None = None
        """What is to be undone before anything else is written: the number was refused, and something has it."""
        self._failed: StorageError | None = None
        """What makes it impossible to write any more."""
        self._syncing = Syncing(self)
        before = self._begin()
        self._sealed: dict[str, dict[str, int]] = before.get("ends", {})
        self._unsure = before.get("sync", "off") == "off"
        """Whether the last owner left it to the system when to write."""
        self._same_boot = before.get("boot", files.boot) == files.boot
        before_epoch = before.get("epoch", 0)
        self.epoch = before_epoch + 1
        self._safe: int = before.get("number", 0)
        """Entries up to this number are on the disk for sure, or were."""
        self._trouble: StorageError | None = None
        """What is wrong that may have cost an entry."""
        self.records = Records(files, "catalog", epoch=self.epoch, owner=before_epoch, sealed=self._safe)
        self.states = States(files, "state", epoch=self.epoch, owner=before_epoch, sealed=before.get("versions", ()))
        self.number = 0
        """The number of the last entry."""
        self.saved = 0
        """That of the last one that is in a saved state."""
        self.bytes_since = 0
        """Bytes of the entries since then, about."""
        self.pressed = False
        """Whether something has been refused for the quota since a save began."""
        self.refused = 0
        """How often something has been."""
        self._logged = 0
        """Bytes of all logs."""
        self._shards = 0
        """Bytes of files that tasks have written, about: as they were when a state was saved, and what came since. It
        is known where there is a quota."""
        self.is_read = False
        """Whether entries that a saved state covers are still to be read by others: so they are on the disk when it
        is."""

    # -- opening --------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Root, *, sync: Sync = "off", quota: int | None = None) -> Store:
        """Open a directory, or make it; StorageError if another process has it, or it is something else."""
        files = files_at(path)
        try:
            if isinstance(path, Path) and path.exists() and not path.is_dir():
                raise StorageError(f"{path} is not a directory", hint="use an empty directory, or a new one")
            check_kind(files)
            owner = own(files)
        except OSError as error:
            raise StorageError(f"{path}: cannot be opened: {error}") from error
        try:
            return cls(files, sync=sync, owner=owner, quota=quota)
        except OSError as error:
            owner.release()
            raise StorageError(f"{path}: cannot be opened: {error}") from error
        except BaseException:
            owner.release()
            raise

    def _begin(self) -> Record:
        """See what is there; gives the record of the newest epoch."""
        names = self.files.names("")
        if HEAD not in names:
            if self.files.names("epochs") or self.files.folders("streams"):
                raise StorageError(
                    f"{self.files.name}/{HEAD}: missing, so it is not known in which format the rest is",
                    hint="restore the directory from a backup",
                )
            for folder in ("epochs", "catalog", "state"):
                self.files.make(folder)
            # Last: before it is there, nothing is.
            put_record(self.files, HEAD, {"penstock": "database", "format": FORMAT}, sync=True)
        head = read_record(self.files, HEAD)
        if head.get("penstock") != "database" or head.get("format") != FORMAT:
            raise StorageError(
                f"{self.files.name}: written in format {head.get('format')}; this release reads format {FORMAT}",
                hint="open it with the release of Penstock that wrote it, or use another directory",
            )
        newest = self._newest_epoch()
        return read_record(self.files, f"epochs/{newest:010d}.json") if newest else {}

    def _newest_epoch(self) -> int:
        return max((int(m[1]) for m in map(EPOCH.fullmatch, self.files.names("epochs")) if m), default=0)

    def recover(self) -> tuple[LoadedState | None, Iterator[Item]]:
        """The newest state that can be read, and all entries behind it in order; then ``begin`` is to be called.

        StorageError if something is missing or damaged. After a restart of the machine the entries end where the first
        one was lost that had not been forced to the disk.
        """
        logs: dict[tuple[str, str], Log] = {}
        for kind in KINDS:
            for folder in self.files.folders(kind):
                name = log_name(self.files, f"{kind}/{folder}")
                if name is not None:
                    logs[kind, name] = self._opened((kind, name), None)
        self._logs = logs
        self._safe = max([self._safe, *(log.safe for log in logs.values())])
        self._trouble = next((log.torn for log in logs.values() if log.torn is not None), None)
        state: LoadedState | None = None
        for version in reversed(self.states.versions):
            try:
                state = self.states.load(version)
                self.states.verify()
                self.saved = version[0]
                break
            except StorageError as error:
                state, self._trouble = None, error
                self.states.versions.remove(version)
        self.number = self.saved
        return state, self._items(self.saved)

    def _items(self, after: int) -> Iterator[Item]:
        ways: list[Iterator[Item]] = [_of_log(kind, name, log, after) for (kind, name), log in self._logs.items()]
        ways.append(self._recorded(after))
        for item in heapq.merge(*ways, key=lambda i: i.number):
            if item.number != self.number + 1:
                if self._same_boot:
                    raise self._missing(f"; the next one is {item.number}")
                break  # it was not on the disk when the power went; what follows it does not count
            self.number = item.number
            yield item
        if self.number < self._safe:
            raise self._missing(f", though entries up to {self._safe} had reached the disk")

    def _missing(self, why: str) -> StorageError:
        """An entry is not there, though it counts."""
        return self._trouble or StorageError(
            f"{self.files.name}: entry {self.number + 1} is missing{why}",
            hint="`penstock check` says what is damaged; restore the directory from a backup",
        )

    def check_entries(self, after: int) -> None:
        """StorageError if an entry behind this one is missing that the saved state covers, and others are to read."""
        found = {number for log in self._logs.values() for number in log.numbers(after)}
        found |= set(self.records.numbers)
        gone = next((n for n in range(after + 1, self.saved + 1) if n not in found), None)
        if gone is not None:
            raise self._trouble or StorageError(
                f"{self.files.name}: entry {gone} is missing, which queries have not read",
                hint="`penstock check` says what is damaged; restore the directory from a backup",
            )

    def _recorded(self, after: int) -> Iterator[Item]:
        try:
            for number, record in self.records.read(after):
                yield Item(number, "catalog", "", record)
        except StorageError as error:
            if self._same_boot or not self._unsure:
                raise
            self._trouble = error  # it may not have been on the disk when the power went

    def begin(self) -> None:
        """Everything that counts has been read: from here on this process is the owner. StorageError if it cannot be
        written."""
        try:
            self._become_owner()
        except OSError as error:
            raise self._full(error) from error

    def _become_owner(self) -> None:
        for log in self._logs.values():
            log.cut(self.number)
            log.sync(log.dirty())  # the epoch says that they end there
        for folder in (*(kind for kind in KINDS if self.files.folders(kind)), ""):
            self.files.sync_folder(folder)
        self.records.cut(self.number)
        ends = {_folder(key): dict(log.ends) for key, log in self._logs.items()}
        record: Record = {
            "epoch": self.epoch, "boot": self.files.boot, "sync": self.sync_way, "ends": ends, "number": self.number,
            "versions": self.states.names, "pid": os.getpid(), "host": socket.gethostname(), "opened": time.time(),
        }  # fmt: skip
        put_record(self.files, f"epochs/{self.epoch:010d}.json", record, sync=True)
        self._safe = self.number
        for folder in ("", "epochs", "catalog", "functions", "state"):
            self.files.tidy(folder)
        for name in self.files.names("epochs"):
            match = EPOCH.fullmatch(name)
            if match and int(match[1]) < self.epoch - 1:
                with contextlib.suppress(OSError):
                    self.files.remove(f"epochs/{name}")
        self.states.forget()
        self._measure()

    # -- writing --------------------------------------------------------------------------------------

    def log(self, kind: str, name: str, schema: pa.Schema) -> Log:
        """The log of something; it is made if there is none."""
        key = kind, name
        with self._mutex:
            found = self._logs.get(key)
            try:
                if found is None:
                    self._make(key)
                    found = self._logs[key] = self._opened(key, schema)
            except OSError as error:
                raise self._full(error) from error
            found.use(schema)
            return found

    def known(self, kind: str, name: str) -> Log | None:
        """The log of something, if there is one."""
        return self._logs.get((kind, name))

    def logs(self, kind: str) -> list[Log]:
        """All logs of a kind, those included that will be forgotten with the next state that is saved."""
        with self._mutex:
            return [log for (of, _), log in self._logs.items() if of == kind]

    def _make(self, key: tuple[str, str]) -> None:
        folder = _folder(key)
        self.files.make(folder, sync=self.sync_way != "off")
        if is_shortened(folder) and NAME not in self.files.names(folder):
            put_record(self.files, f"{folder}/{NAME}", {"name": key[1]}, sync=True)

    def _opened(self, key: tuple[str, str], schema: pa.Schema | None) -> Log:
        folder = _folder(key)
        return Log(
            self.files, folder, schema, epoch=self.epoch, owner=self.epoch - 1, sealed=self._sealed.get(folder, {}),
            same_boot=self._same_boot,
        )  # fmt: skip

    def append(
        self, log: Log, rows: Rows | None, meta: Mapping[str, Any], *, new: bool = False
    ) -> int:
        """Put an entry into a log; gives its number. If it raises, there is none. ``new``: the quota counts."""
        with self._mutex:
            self.check()
            self._check_leftover()
            try:
                limited = new and self.quota is not None
                safe = max(self._safe, self.saved, self._syncing.done)
                grown = log.append(self.number + 1, rows, meta, self._admit if limited else None, safe=safe)
                self.number += 1
                self.bytes_since += grown
                self._logged += grown
            except BaseException as error:
                self._undone(log.settle)
                if log.last > self.number:  # interrupted just before it counted
                    self.number += 1
                if isinstance(error, OSError):
                    raise self._full(error) from error
                raise
            return self.number

    def _undone(self, undo: Callable[[], None]) -> None:
        """Let nothing be left of what was stopped half-way. If that cannot be now, it is tried again before anything
        else is written."""
        self._leftover = undo
        with contextlib.suppress(OSError):
            undo()
            self._leftover = None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left in the directory of what was stopped half-way."""
        return self._leftover is None

    def _check_leftover(self) -> None:
        if self._leftover is not None:
            try:
                self._leftover()
            except OSError as error:
                raise self._full(error) from error
            self._leftover = None

    def record(self, record: Record, *, new: bool = False) -> int:
        """Make a record; gives its number. If it raises, there is no such record. ``new``: the quota counts."""
        with self._mutex:
            self.check()
            self._check_leftover()
            self._check_owner()
            if new:
                self._admit(BLOCK)
            number = self.number + 1
            try:
                self.records.add(number, record, sync=self.sync_way != "off")
                self.number = number
            except StorageError:
                raise
            except BaseException as error:
                if self.number < number:
                    self._undone(lambda: self.records.undo(number))
                if isinstance(error, OSError):
                    raise self._full(error) from error
                raise
            self.bytes_since += BLOCK
            return self.number

    def put_code(self, name: str, code: bytes) -> None:
        """Keep the code of a function, apart from everything else: it is run only by connect(functions=True)."""
        self.check()
        self._admit(len(code))
        try:
            self.files.make("functions", sync=True)
            path = code_path(name)
            self.files.remove(path)  # of one that was never recorded
            self.files.put(path, [b"%08x\n" % zlib.crc32(code), code], sync=True)
        except OSError as error:
            raise self._full(error) from error

    def code(self, name: str) -> bytes:
        """The code of a function."""
        return read_code(self.files, code_path(name))

    def forget_code(self, used: Collection[str]) -> None:
        """Remove the code of all functions but these."""
        paths = set(map(code_path, used))
        for name in self.files.names("functions"):
            if f"functions/{name}" not in paths:
                with contextlib.suppress(OSError):
                    self.files.remove(f"functions/{name}")

    def remove_code(self, names: Iterable[str]) -> None:
        """Remove the code of these functions. A file that cannot be removed goes with the next opening."""
        for name in names:
            with contextlib.suppress(OSError):
                self.files.remove(code_path(name))

    def drop(self, kind: str, name: str) -> None:
        """A log is not needed any more; what it has is forgotten with the next state that is saved."""
        with self._mutex:
            log = self._logs.get((kind, name))
            if log is not None:
                log.dropped = True

    def wait(self, number: int) -> None:
        """Return when everything up to an entry is as safe as ``sync`` says. Without the lock."""
        if self.sync_way != "off":
            self._syncing.wait(number)

    def begin_sync(self) -> None:
        """Let the disk begin with what ``wait`` will wait for."""
        if self.sync_way != "off":
            self._syncing.begin()

    # -- the state ------------------------------------------------------------------------------------

    def rolled(self) -> int:
        """The state is about to be taken: logs begin new segments, so that older ones can go. Gives the number of the
        last entry before that."""
        with self._mutex:
            for log in self._logs.values():
                log.roll()
            self.bytes_since = 0
            return self.number

    def save(self, number: int, state: State) -> None:
        """Store the state after an entry. Without the lock."""
        self.check()
        self._check_owner()
        if self.sync_way != "off":
            self._syncing.wait(number)
        try:
            if self.is_read and self.sync_way == "off":
                self._force(number)
            self.states.save(number, state)
        except OSError as error:
            raise self._full(error) from error
        self.states.measure()

    def _force(self, number: int) -> None:
        """Force the entries up to a number to the disk."""
        with self._mutex:
            logs = self.dirty()[1]
            records = [self.records.path(n) for n in self.records.numbers if self.saved < n <= number]
        for log, dirty in logs:
            log.sync(dirty)
        for path in records:
            self.files.sync(path)
        if records:
            self.files.sync_folder("catalog")

    def forget(self, needed: int | None = None) -> None:
        """Forget the entries that all kept versions of the state cover. ``needed``: those with numbers greater than
        this are to be read by others still."""
        self._check_owner()
        versions = self.states.versions
        if not versions:
            return
        upto = versions[0][0] if needed is None else min(versions[0][0], needed)
        with self._mutex:
            self.saved = versions[-1][0]
            for key, log in list(self._logs.items()):
                if log.dropped and log.last <= upto:
                    del self._logs[key]
                    with contextlib.suppress(OSError):
                        self.files.remove_folder(_folder(key))
                else:
                    log.forget(upto)
            self.records.forget(upto)
            self._logged = sum(log.bytes for log in self._logs.values())
        self._measure_shards()

    # -- the quota ------------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Bytes of logs, records, versions of the state and what tasks have written."""
        return self._logged + self._shards + self.states.bytes + self.records.bytes

    @property
    def oldest(self) -> int:
        """The number of the older saved state that is kept; 0 if there is none."""
        return self.states.versions[0][0] if self.states.versions else 0

    @property
    def may_shrink(self) -> bool:
        """Whether there would be fewer bytes in logs and records if the state were saved once more."""
        versions = self.states.versions
        return not versions or versions[0][0] < self.number

    def _measure(self) -> None:
        self._logged = sum(log.bytes for log in self._logs.values())
        self.states.measure()
        self._measure_shards()

    def _measure_shards(self) -> None:
        if self.quota is not None:
            self._shards = self.files.used("shards")

    def grew(self, bytes: int) -> None:
        """Tasks have written so much."""
        self._shards += bytes

    def _admit(self, bytes: int) -> None:
        if self.quota is None or self.used + bytes <= self.quota:
            return
        self.pressed = True
        self.refused += 1
        raise StorageError(
            f"{self.files.name}: the quota is {shown(self.quota)}, {shown(self.used)} are used, and this "
            f"takes {shown(bytes)}",
            hint="nothing of it has been taken; fetch results that wait, stop queries or drop streams, then try again "
            "in some seconds, or connect with a larger quota",
        )

    # -- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let another process have it."""
        if self.sync_way != "off" and self._failed is None:
            with contextlib.suppress(StorageError):
                self._syncing.wait(self.number)
        self.files.close()
        if self._owner is not None:
            self._owner.release()
            self._owner = None

    def fail(self, error: StorageError) -> None:
        """Nothing can be written any more."""
        self._failed = error

    def check(self) -> None:
        """Raise what makes it impossible to write, if something does."""
        if self._failed is not None:
            raise self._failed
        if os.getpid() != self._process:
            raise StorageError(
                f"{self.files.name} was opened by process {self._process}, from which this one was forked",
                hint="use the database there, or let processes be spawned and not forked",
            )

    def _check_owner(self) -> None:
        """Fail if another process has opened the directory, which the lock does not keep out on every disk."""
        try:
            newest = self._newest_epoch()
        except OSError as error:
            raise self._full(error) from error
        if newest > self.epoch:
            failure = StorageError(
                f"{self.files.name}: another process has opened it (epoch {newest}, this is {self.epoch})",
                hint="use the directory there; what this process has taken since does not count",
            )
            self.fail(failure)
            raise failure

    def dirty(self) -> tuple[int, list[tuple[Log, list[tuple[Known, int]]]]]:
        """The number of the last entry, and what of the logs is not on the disk for sure."""
        with self._mutex:
            return self.number, [(log, found) for log in self._logs.values() if (found := log.dirty())]

    def _full(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self.files.name}: cannot be written: {error.strerror or error}",
            hint="nothing of this has been taken; make room, or see that it can be written, and try again",
        )


def _of_log(kind: str, name: str, log: Log, after: int) -> Iterator[Item]:
    found: list[Entry] = []
    for entry in log.read(after):
        found.append(entry)
        if entry.last:
            rows = pa.Table.from_batches([e.rows for e in found])
            yield Item(entry.number, kind, name, found[0].meta, rows)
            found = []


def _folder(key: tuple[str, str]) -> str:
    return f"{key[0]}/{file_name(key[1])}"


def log_name(files: Files, folder: str) -> str | None:
    """Whose log is in a folder; None if nothing has been written there."""
    if not is_shortened(folder):
        return name_of(folder.rpartition("/")[2])
    names = files.names(folder)
    if not names:
        return None
    found: str = read_record(files, f"{folder}/{NAME}")["name"]
    return found


def code_path(name: str) -> str:
    """Where the code of a function is."""
    return f"functions/{file_name(name)}"


def read_code(files: Files, path: str) -> bytes:
    """The code of a function; StorageError if it is not what was written."""
    try:
        content: bytes = files.read(path).to_pybytes()
    except FileNotFoundError:
        raise StorageError(f"{files.name}/{path}: missing", hint="restore the directory from a backup") from None
    except OSError as error:
        raise StorageError(f"{files.name}/{path}: cannot be read: {error}") from error
    crc, _, code = content.partition(b"\n")
    if crc != b"%08x" % zlib.crc32(code):
        raise StorageError(
            f"{files.name}/{path}: damaged, its checksum is not what was written",
            hint="`penstock check` says what else is damaged; restore the directory from a backup",
        )
    return code


def check_kind(files: Files, hint: str = "use an empty directory, or a new one") -> None:
    """Refuse a directory that is something else; ``hint``: what would have been right."""
    root, names = files.name, sorted([*files.names(""), *files.folders("")])
    if HEAD in names:
        return
    if all(name in names for name in _OLDER):
        raise StorageError(
            f"{root}: a database of release 0.1, which this release does not open",
            hint="open it with release 0.1, or use another directory",
        )
    foreign = [name for name in names if name not in _OWN]
    if foreign:
        raise StorageError(f"{root} is not empty and not a database: it has `{foreign[0]}`", hint=hint)
