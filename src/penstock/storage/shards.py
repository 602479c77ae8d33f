"""What engine ``spark`` keeps beside logs, records and saved states: where it is, and what of it a directory needs.

    shards/queries/ID.json     the plan of a query, and what its tasks are told besides
    shards/queries/ID.past     what it is given before its first entry
    shards/programs/….json     the queries of a part; each owner writes its own
    shards/answers/….arrow     results that are too large for the log of results
    shards/rows/….segment      rows of streams that Spark's executors have read from a source
    shards/part-N/slot-…/      what a slot of a part remembers (``versions``)

Tasks write files under names that nobody else can choose, and most of what they write counts later or never: what does
is named by the newest saved state and the entries behind it. ``Shards`` reads these as an opening does, and knows then
which queries run, and which states of slots they go on from. Nothing else under ``shards/`` is needed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.model.errors import CheckpointError, StorageError
from penstock.storage.files import Files
from penstock.storage.objects import joined
from penstock.storage.records import read_record
from penstock.storage.segments import Frame, Segment
from penstock.storage.versions import PieceFile, StateStore

SHARDS = "shards"
SOURCES = "sources"
"""Checkpoints of the streaming queries that read the sources of streams, by the position of the stream."""
QUERIES, PROGRAMS, ANSWERS, ROWS = f"{SHARDS}/queries", f"{SHARDS}/programs", f"{SHARDS}/answers", f"{SHARDS}/rows"
PART = re.compile(r"part-(\d+)")
"""Folders in ``SHARDS`` with the states of a part."""
PARTS = "parts"
"""Where the host's state has the parts."""
_PARTS = f"graph/{PARTS}"
"""The same in a saved state."""
RESULTS = pa.schema([
    ("query", pa.string()), ("rows", pa.int64()), ("payload", pa.large_binary()), ("file", pa.string()),
    ("crc", pa.int64()), ("size", pa.int64()),
])  # fmt: skip
"""Of the log of results: a row for each query and slot that gave something; ``file`` where it is not ``payload``."""
RESTORE = "`penstock check` says what else is damaged; restore the directory from a backup"
"""What is to be done where a file of a database is damaged."""


def definition_path(id: str) -> str:
    """Where the plan of a query is."""
    return f"{QUERIES}/{id}.json"


def past_path(id: str) -> str:
    """Where it is what a query is given before its first entry."""
    return f"{QUERIES}/{id}.past"


def part_folder(part: int) -> str:
    """Where the slots of a part have their states."""
    return f"{SHARDS}/part-{part}"


def slot_folder(part: int, slot: int, slots: int) -> str:
    """Where one of the slots has them."""
    return f"{part_folder(part)}/slot-{slot:05d}-of-{slots:05d}"


def rows_files(meta: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The files with rows that an entry of a stream's log names, and their sizes."""
    found = [*(span[0] for span in meta.get("spans", ())), *meta.get("parks", ())]
    return [(file["path"], file["size"]) for file in found]


def parked_files(state: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Those of which rows wait for slack. ``state``: what a saved state says in JSON, by path."""
    return [
        (file["path"], file["size"])
        for path, meta in state.items() if path.startswith("stream ")
        for file in meta["input"].get("parked", ())
    ]  # fmt: skip


def results_files(state: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, int]]:
    """The files with results that readers have not confirmed, and their checksums. ``state``: as above."""
    return [
        (file, crc)
        for path, meta in state.items() if path.startswith("query ")
        for _, (_, batches) in meta["query"].get("files", ())
        for batch in batches
        for file, crc, *_ in batch
    ]  # fmt: skip


def needed_entry(state: Mapping[str, Mapping[str, Any]], number: int) -> int:
    """Entries behind this one are still to be read, though the saved state with this number covers them. ``state``:
    what it says in JSON, by path."""
    facts = state.get(_PARTS)
    return number if facts is None else min(number, facts["needs"]["entry"])


@dataclass(frozen=True, order=True)
class SlotState:
    """The state that a slot left after a micro-batch (``version``), by the attempt that counts."""

    part: int
    slot: int
    slots: int
    version: int
    attempt: str

    @property
    def folder(self) -> str:
        return slot_folder(self.part, self.slot, self.slots)


@dataclass(frozen=True)
class Result:
    """An entry of the log of results: its number, what it says, and the files that it names with their checksums."""

    number: int
    meta: Mapping[str, Any]
    files: tuple[tuple[str, int], ...]


def results_in(segment: Segment, frames: Sequence[Frame]) -> Iterator[Result]:
    """The entries of a segment of the log of results."""
    head = segment.head() if frames else None
    meta: Mapping[str, Any] | None = None
    files: list[tuple[str, int]] = []
    for frame in frames:
        assert head is not None, "there are frames behind it"
        said, batch = segment.batch(frame, head.schema)
        meta = said if meta is None else meta
        files += ((file, crc) for file, crc in zip(*_columns(batch), strict=True) if file)
        if frame.last:
            yield Result(frame.number, meta, tuple(files))
            meta, files = None, []


def _columns(batch: pa.RecordBatch) -> tuple[list[str], list[int]]:
    return batch.column("file").to_pylist(), batch.column("crc").to_pylist()


_Bases = Sequence[Sequence[Any]]
"""Slot, version and attempt of the states of a part."""


@dataclass
class _Running:
    """A query: the number of its record, its part, and where its state is if that is in another part."""

    name: str
    number: int
    part: int
    origin: tuple[int, _Bases] | None


class Shards:
    """What a saved state and the entries behind it name. ``state``: what it says in JSON, by path; none: no state has
    been saved."""

    def __init__(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        facts = state.get(_PARTS, {})
        self._slots: int = facts.get("slots", 0)
        self._bases: dict[int, _Bases] = {}
        self._queries: dict[str, _Running] = {}
        self._named: set[SlotState] = set()
        for id, _, _, _, bases in facts.get("parts", ()):
            self._now_at(id, bases)
        for path, meta in state.items() if facts else ():
            if path.startswith("query ") and meta["query"]["status"] == "running":
                record, runner = meta["query"], meta["query"]["runner"]
                found = _Running(record["name"], runner["number"], runner["part"], _origin(runner.get("moved")))
                self._queries[record["placement"]["id"]] = found

    def again(self, number: int, meta: Mapping[str, Any]) -> None:
        """Take in what an entry of the log of results or a record says; they come in the order of their numbers."""
        match meta.get("kind"):
            case None:
                self._micro_batch(meta)
            case "parts":
                self._slots = meta.get("slots", self._slots)
                self._queries.pop(meta["failed"][0] if "failed" in meta else "", None)
                for id, to, moved in meta.get("moves", ()):
                    if (query := self._queries.pop(id, None)) is not None:
                        self._add(id, _Running(query.name, query.number, to, _origin(moved)))
            case "query" if "placement" in meta:
                placement = meta["placement"]
                self._add(placement["id"], _Running(meta["name"], number, placement["part"], None))
            case "stop":
                self._queries = {id: q for id, q in self._queries.items() if q.name != meta["name"]}

    def _add(self, id: str, query: _Running) -> None:
        if all(other.part != query.part for other in self._queries.values()):
            self._bases.pop(query.part, None)  # a part that was empty begins anew
        self._queries[id] = query

    def _micro_batch(self, meta: Mapping[str, Any]) -> None:
        self._now_at(meta["part"], meta["bases"])
        for query in self._queries.values():
            if query.part == meta["part"] and query.number <= meta["known"]:
                query.origin = None
        for id, said in meta.get("queries", {}).items():
            if "error" in said or said.get("ended"):
                self._queries.pop(id, None)

    def _now_at(self, part: int, bases: _Bases) -> None:
        self._bases[part] = bases
        self._named |= self._states(part, bases)

    def _states(self, part: int, bases: _Bases) -> set[SlotState]:
        return {SlotState(part, slot, self._slots, version, attempt) for slot, version, attempt in bases}

    @property
    def queries(self) -> list[str]:
        """The ids of the queries that run."""
        return sorted(self._queries)

    @property
    def states(self) -> list[SlotState]:
        """The states that their next micro-batches go on from."""
        found: set[SlotState] = set()
        for query in self._queries.values():
            found |= self._states(query.part, self._bases.get(query.part, ()))
            if query.origin is not None:
                found |= self._states(*query.origin)
        return sorted(found)

    @property
    def earlier(self) -> list[SlotState]:
        """States that have been named and are not needed any more, unless a loss of power takes the last entries."""
        parts = {query.part for query in self._queries.values()}
        return sorted({state for state in self._named if state.part in parts} - set(self.states))


def _origin(moved: Mapping[str, Any] | None) -> tuple[int, _Bases] | None:
    return None if moved is None or moved["origin"] is None else (moved["origin"][0], moved["origin"][1])


class Verifying:
    """Reads files under ``shards/``; StorageError if a byte that counts is not what was written."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._stores: dict[str, tuple[StateStore, set[PieceFile]]] = {}
        """Of each slot, the pieces that have been looked at."""

    def definition(self, id: str) -> list[str]:
        """The files of a query's definition."""
        record = read_record(self._files, definition_path(id))
        for _ in Segment(self._files, past_path(id), record["past"]).frames():
            pass
        return [definition_path(id), past_path(id)]

    def state(self, state: SlotState) -> list[str]:
        """The files of a slot's state; none if its manifest is not there."""
        if state.folder not in self._stores:
            root = joined(self._files.name, state.folder)
            self._stores[state.folder] = StateStore(root, attempts=True), set()
        store, known = self._stores[state.folder]
        try:
            return [f"{state.folder}/{file}" for file in store.files(state.version, state.attempt, known)]
        except CheckpointError as error:
            raise StorageError(error.message, hint=RESTORE) from error

    def needed(self, state: SlotState) -> list[str]:
        """The files of a slot's state, which must be there."""
        found = self.state(state)
        if not found:
            name = f"{state.folder}/manifest-{state.version:012d}-{state.attempt}.json"
            raise StorageError(f"{self._files.name}/{name}: missing", hint=RESTORE)
        return found

    def rows(self, file: str, size: int) -> str:
        """A file with rows of a stream."""
        for _ in Segment(self._files, file, size).frames():
            pass
        return file

    def answers(self, file: str, crc: int) -> str:
        """A file with results."""
        try:
            content = self._files.read(file)
        except FileNotFoundError:
            raise StorageError(f"{self._files.name}/{file}: missing", hint=RESTORE) from None
        except OSError as error:
            raise StorageError(f"{self._files.name}/{file}: cannot be read: {error}") from error
        if zlib.crc32(content) != crc:
            said = f"{self._files.name}/{file}: damaged, its checksum is not what was written"
            raise StorageError(said, hint=RESTORE)
        return file
