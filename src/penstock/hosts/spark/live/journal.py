"""What a database on disk remembers besides rows: declarations, functions, queries and their parts, micro-batches,
deliveries.

The journal is a log of JSON records. ``Model`` is what they add up to: whoever opens a database reads them all, and
writes them again as the few that say the same. So the journal is bounded by what there is plus what happened since it
was opened, and by ``_REWRITE`` records in a long run.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.hosts.spark.live.frames import Kind, Log, Marks, mapped, payload
from penstock.model.errors import CheckpointError, EngineError
from penstock.scalar.zones import UTC

FORMAT = 3
_READ = (1, 2, FORMAT)
"""Formats that can be read; in the first one all queries are in one part, and before this one no rows overtake."""
_REWRITE = 20_000
"""Records after which the journal is written again."""

Record = dict[str, Any]


@dataclass
class QueryRecord:
    """A registered query: what it was told at its start, and what became of it."""

    start: Record
    first: int
    """It reads frames from this number on."""
    part: int
    origin: tuple[int, int] | None = None
    """The part and micro-batch with its state, until its own part has stored it."""
    apart: bool = False
    """It has been found to make others wait."""
    ahead: int = 0
    """It has had the prioritised rows of frames up to this number."""
    status: str = "running"
    error: Record | None = None
    answered: int = 0
    failures: int = 0
    last_failure: str | None = None
    waiting: dict[int, list[list[Any]]] = field(default_factory=dict)
    """Answers nobody has had: by micro-batch, files and their rows."""


@dataclass
class PartRecord:
    """Of a part the last micro-batch that counts; frames up to ``upto`` are in it or an earlier one."""

    batch: int | None = None
    upto: int = 0


@dataclass
class Model:
    """What the records of a journal say."""

    slots: int = 0
    epoch: int = 0
    declared: dict[str, Record] = field(default_factory=dict)
    next_position: int = 0
    functions: dict[str, Record] = field(default_factory=dict)
    queries: dict[str, QueryRecord] = field(default_factory=dict)
    query_count: int = 0
    parts: dict[int, PartRecord] = field(default_factory=dict)
    """Those that have a query."""
    next_part: int = 0
    upto: int = 0
    """The last frame that any part has taken."""
    settings: Record = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    """Queries that have had their first micro-batch."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What users of the database have noted."""
    zone: str = UTC
    """The time zone in which queries are bound; each that is there has been bound in its own."""

    def take(self, record: Record) -> None:
        """Apply one record."""
        match record["kind"]:
            case "database":
                new = Model(slots=record["slots"], epoch=record["epoch"], next_part=record.get("next_part", 0))
                new.upto, new.settings = record.get("upto", 0), record.get("settings", {})
                self.__dict__.update(new.__dict__)
            case "zone":
                self.zone = record["zone"]
            case "epoch":
                self.epoch = record["epoch"]
            case "declare":
                self.declared.pop(record["name"], None)
                self.declared[record["name"]] = record
                self.next_position = max(self.next_position, record["next_position"])
            case "drop":
                self.declared.pop(record["name"], None)
            case "function":
                self.functions[record["name"]] = record
            case "query":
                part = record.get("part", 0)
                self.queries[record["id"]] = QueryRecord(record, record["start"], part)
                self._part(part)
                self.query_count = max(self.query_count, record["count"])
            case "state":
                known = self.queries[record["id"]]
                known.status, known.error, known.answered = record["status"], record["error"], record["answered"]
                known.failures, known.last_failure = record["failures"], record["last_failure"]
                known.waiting = {int(n): files for n, files in record["waiting"].items()}
                if record["started"]:
                    self.started.add(record["id"])
                self._placed(record["id"], record)
            case "stop":
                self.queries.pop(record["id"], None)
                self.started.discard(record["id"])
                self._forget_parts()
            case "part":
                self.parts[record["part"]] = PartRecord(record["batch"], record["upto"])
            case "moves":
                self.settings = record.get("settings", self.settings)
                for id, what in record["queries"].items():
                    self._placed(id, what)
                for part, upto in record["parts"].items():
                    self._part(int(part)).upto = upto
                self._forget_parts()
            case "batch":
                self._batch(record)
            case "delivered":
                known_query = self.queries.get(record["id"])
                if known_query is not None:
                    known_query.waiting = {n: f for n, f in known_query.waiting.items() if n > record["upto"]}
                self.notes |= record.get("notes", {})
            case "notes":
                self.notes |= record["notes"]
            case other:
                raise CheckpointError(
                    f"the journal has a record `{other}`, which this release does not know",
                    hint="go on with the release of Penstock that wrote it",
                )

    def _part(self, part: int) -> PartRecord:
        self.next_part = max(self.next_part, part + 1)
        return self.parts.setdefault(part, PartRecord())

    def _placed(self, id: str, what: Record) -> None:
        known = self.queries.get(id)
        if known is None or "part" not in what:
            return
        known.part, known.first, known.apart = what["part"], what["first"], what["apart"]
        known.origin = None if what["origin"] is None else (what["origin"][0], what["origin"][1])
        known.ahead = what.get("ahead", 0)
        self._part(known.part)

    def _forget_parts(self) -> None:
        used = {known.part for known in self.queries.values()}
        self.parts = {part: record for part, record in self.parts.items() if part in used}

    def _batch(self, record: Record) -> None:
        part = self._part(record.get("part", 0))
        part.batch, part.upto = record["number"], record["upto"]
        self.upto = max(self.upto, record["upto"])
        for id, what in record["queries"].items():
            known = self.queries.get(id)
            if known is None:
                continue
            self.started.add(id)
            known.origin = None
            known.ahead = max(known.ahead, record.get("ahead", 0))
            known.status, known.error = what.get("status", "running"), what.get("error")
            known.failures, known.last_failure = what.get("failures", 0), what.get("last_failure")
            if what.get("files"):
                known.waiting[record["number"]] = what["files"]
                known.answered += sum(rows for _, rows in what["files"])

    def records(self) -> Iterable[Record]:
        """The fewest records that say the same."""
        yield {
            "kind": "database", "format": FORMAT, "slots": self.slots, "epoch": self.epoch, "upto": self.upto,
            "next_part": self.next_part, "settings": self.settings,
        }  # fmt: skip
        if self.zone != UTC:
            yield {"kind": "zone", "zone": self.zone}
        for record in self.declared.values():
            yield {**record, "next_position": self.next_position}
        yield from self.functions.values()
        if self.notes:
            yield {"kind": "notes", "notes": self.notes}
        for id, query in self.queries.items():
            yield {**query.start, "count": self.query_count}
            yield {
                "kind": "state", "id": id, "status": query.status, "error": query.error, "answered": query.answered,
                "failures": query.failures, "last_failure": query.last_failure, "waiting": query.waiting,
                "started": id in self.started, **placing(query),
            }  # fmt: skip
        for part, known in self.parts.items():
            yield {"kind": "part", "part": part, "batch": known.batch, "upto": known.upto}


def placing(query: QueryRecord) -> Record:
    """What the journal says of the part of a query."""
    placed = {"part": query.part, "first": query.first, "origin": query.origin, "apart": query.apart}
    return {**placed, "ahead": query.ahead} if query.ahead else placed


class Journal:
    """The journal of one database, for one process at a time."""

    def __init__(self, root: Path, *, slots: int, sync: bool) -> None:
        self._folder = root / "journal"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(root)
        self._log = Log(self._folder, sync=sync)
        self.model = Model(slots=slots)
        self._number = 0
        self._count = 0
        is_new = True
        for frame in self._log.read():
            is_new = False
            record = json.loads(bytes(payload(mapped(frame.path), frame)))
            if record["kind"] == "database" and record["format"] not in _READ:
                raise CheckpointError(
                    f"{root}: written in format {record['format']}, this is format {FORMAT}",
                    hint="go on with the release of Penstock that wrote it, or start in an empty directory",
                )
            self.model.take(record)
            self._number = frame.number
        self.is_new = is_new
        self.model.epoch += 1
        self.rewrite()

    def add(self, record: Record) -> None:
        """Make something known for good."""
        self._append(record)
        self.model.take(record)
        if self._count > _REWRITE:
            self.rewrite()

    def rewrite(self) -> None:
        """Say all there is in as few records as possible, in the place of all records so far."""
        self._log.begin_anew(self._number + 1)
        for record in list(self.model.records()):
            self._append(record)
        self._log.replace()
        self._count = 0

    def close(self) -> None:
        """Let another process have the database."""
        self._log.close()
        os.close(self._lock)

    def _append(self, record: Record) -> None:
        self._number += 1
        self._count += 1
        text = json.dumps(record, separators=(",", ":")).encode()
        self._log.append(Kind.RECORD, self._number, text, 1, Marks())


def _locked(root: Path) -> int:
    """Make sure that nobody else has the database open; given back when the process ends, however it does."""
    file = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(file, 32, 0).decode(errors="replace").strip()
        os.close(file)
        raise EngineError(
            f"{root} is open in another process" + (f" ({holder})" if holder else ""),
            hint="close it there, or use another directory",
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}".encode(), 0)
    return file


def packed_bytes(data: bytes) -> str:
    """Bytes in JSON."""
    return base64.b64encode(data).decode()


def unpacked_bytes(text: str) -> bytes:
    """What ``packed_bytes`` had."""
    return base64.b64decode(text)
