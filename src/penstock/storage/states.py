"""Versions of the state of a database: immutable pieces in segments, and a record for each version.

    state/00000000000000004711-0000000003-12.version     which pieces make up the version, and what is plain JSON
    state/00000000000000004711-0000000003-12-0.segment   pieces that were new in it

A version's number is that of the last entry that is in it; behind it stand its writer's epoch and the count of that
writer's saves. Pieces are Arrow tables; the version's record has their schemas and where each is. A piece that a
later version has too is not written again, except where it keeps a file on the disk that is otherwise of no use.

A large piece is stored by columns. Operators keep the same rows, and rows often have their instant in a column: a
column that another one of the version equals is stored once, and whole numbers that rise evenly, as the numbers of rows
do, are not stored at all but by where they begin and by how much they rise.

A version is there when its record is, which is written last; all of it is forced to the disk before anything that it
covers is forgotten. The last two are kept, with the logs since the older one: should the newest be damaged, the one
before it and the logs say the same.

Bounded by: twice the pieces of a version, and the pieces of the version before it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.model.errors import StorageError
from penstock.operators.state import Loaded, LoadedState, State
from penstock.storage.files import Bytes, Files
from penstock.storage.log import check_epoch
from penstock.storage.records import Record, put_record, read_record
from penstock.storage.segments import Segment, frame_bytes, head_bytes, record_batches

_VERSION = re.compile(r"(\d{20})-(\d{10})-(\d+)\.version")
_OF_EPOCH = re.compile(r"\d{20}-(\d{10})-")
Version = tuple[int, int, int]
"""Number, epoch, attempt."""
_LARGE = 1 << 20
"""A piece of this many bytes is stored by columns."""
_FILE = 16 << 20
"""Bytes from which on large pieces go into another file, so that what is of no use any more can be removed."""
_MOST = 1 << 30
"""A frame has at most about this many bytes."""
_STEP = 1 << 32
"""By how much numbers rise at most, to be stored as rising: so none of what is computed is too large."""
_RUN = 1 << 16
KEPT = 2
_EMPTY = pa.schema([])


@dataclass(frozen=True)
class Part:
    """The frames of a file from a byte on. Without a file: whole numbers that begin at ``start``, each greater than the
    one before it by ``bytes``."""

    file: str
    start: int
    bytes: int


@dataclass(frozen=True)
class Place:
    """Where a piece is: its rows, the number of its schema, and one part, or one for each column."""

    rows: int
    schema: int
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, rows: int, schema: int, parts: Iterable[tuple[str, int, int]]) -> Place:
        """A place as records have it."""
        return cls(rows, schema, tuple(Part(*part) for part in parts))

    @property
    def files(self) -> set[str]:
        """The files that its parts are in."""
        return {part.file for part in self.parts if part.file}


class States:
    """The versions under a folder. Used by one thread at a time."""

    def __init__(
        self, files: Files, folder: str, *, epoch: int, owner: int | None = None, sealed: Collection[str] = ()
    ) -> None:
        """``epoch``: that of the process which saves more. ``owner``: the newest epoch that has been recorded, and
        ``sealed`` the versions that there were when it began; None: all versions count."""
        self._files, self._folder, self._epoch = files, folder, epoch
        self.versions = self._found(owner, sealed)
        """The versions that count, ascending."""
        self._verified: set[Part] = set()
        """Parts of which every byte has been looked at, since the version was loaded."""
        self._attempts = 0
        self._unsaved: dict[str, dict[str, pa.Table]] = {}
        """Tables of saves that failed; they are written by the next one."""
        self._places: dict[str, dict[str, Place]] = {}
        self._schemas: list[pa.Schema] = []
        self._known: _Known = {}
        """The columns that the last version has."""
        self._sizes: dict[str, int] = {}
        """Bytes of the files that the last version has pieces in."""
        self.written = 0
        """Bytes written since it was opened."""
        self.bytes = 0
        """How large all versions are, as far as ``measure`` has seen."""

    def _found(self, owner: int | None, sealed: Collection[str]) -> list[Version]:
        found: list[Version] = []
        for name in self._files.names(self._folder):
            if match := _VERSION.fullmatch(name):
                number, epoch, attempt = int(match[1]), int(match[2]), int(match[3])
                if owner is not None:
                    check_epoch(f"{self._files.name}/{self._folder}/{name}", epoch, owner)
                if owner is None or epoch == owner or name in sealed:
                    found.append((number, epoch, attempt))
        return sorted(found)

    @property
    def names(self) -> list[str]:
        """The names of the versions that count."""
        return [f"{_name(version)}.version" for version in self.versions]

    def save(self, number: int, state: State) -> None:
        """Make this state the version of this number, then forget older ones. If it fails, what was there is there."""
        schemas: list[pa.Schema] = []
        places: dict[str, dict[str, Place]] = {}
        self._attempts += 1
        version = number, self._epoch, self._attempts
        name = _name(version)
        made: list[_Writer] = []

        def writer(which: str) -> _Writer:
            path = f"{self._folder}/{name}{which}.segment"
            return _Writer(self._files, path, self._epoch, number, schemas)

        small = writer("")
        wasted = self._wasted(state)
        known_columns = {key: part for key, part in self._known.items() if part.file not in wasted}
        try:
            for path, saved in state.items():
                of_path = places.setdefault(path, {})
                for piece in saved.pieces:
                    table = piece.table
                    if table is None:
                        table = self._unsaved.get(path, {}).get(piece.name)
                    if table is None:
                        known = self._places[path][piece.name]
                        if wasted.isdisjoint(known.files):
                            schema = _number_of(self._schemas[known.schema], schemas)
                            of_path[piece.name] = replace(known, schema=schema)
                            continue
                        table = self.read(known, self._schemas)
                    if table.nbytes < _LARGE:
                        of_path[piece.name] = small.add(table)
                        continue
                    if not made or made[-1].size >= _FILE:
                        made.append(writer(f"-{len(made)}"))
                    of_path[piece.name] = made[-1].add_columns(table, known_columns)
            written = [w for w in (*made, small) if w.finish()]
            if written:
                self._files.sync_folder(self._folder)
            self._put(version, state, places, schemas)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.remove(self.path(version))  # first: a version whose pieces are gone must not be there
                for begun in (*made, small):
                    begun.remove()
            self.versions = [v for v in self.versions if v != version]
            self.keep(state)
            raise
        self._unsaved = {}
        self.written += sum(w.size for w in written)
        sizes = {w.file: w.size for w in written}
        used = {file for of_path in places.values() for p in of_path.values() for file in p.files}
        self._sizes = {f: s for f, s in {**self._sizes, **sizes}.items() if f in used}
        self._places, self._schemas = places, schemas
        stored = {part for of_path in places.values() for place in of_path.values() for part in place.parts}
        self._known = {key: part for key, part in known_columns.items() if part in stored}
        self._verified.clear()
        self.forget()

    def keep(self, state: State) -> None:
        """Have the tables of a save that failed, or was not begun, for the next one: operators count them as saved."""
        for path, saved in state.items():
            before = self._unsaved.get(path, {})
            tables = {p.name: p.table if p.is_new else before.get(p.name) for p in saved.pieces}
            self._unsaved[path] = {name: table for name, table in tables.items() if table is not None}
        self._unsaved = {path: tables for path, tables in self._unsaved.items() if path in state}

    def _wasted(self, state: State) -> set[str]:
        """Files of which less than half is of use from now on."""
        parts: set[Part] = set()
        for path, saved in state.items():
            for piece in saved.pieces:
                known = self._places.get(path, {}).get(piece.name)
                if not piece.is_new and known is not None:
                    parts |= {part for part in known.parts if part.file}
        used: dict[str, int] = {}
        for part in parts:
            used[part.file] = used.get(part.file, 0) + part.bytes
        return {file for file, bytes in used.items() if 2 * bytes < self._sizes.get(file, 0)}

    def _put(
        self, version: Version, state: State, places: dict[str, dict[str, Place]], schemas: list[pa.Schema]
    ) -> None:
        record: Record = {
            "version": version,
            "schemas": [base64.b64encode(s.serialize()).decode() for s in schemas],
            "state": {
                path: [saved.meta, {name: _listed(p) for name, p in places[path].items()}]
                for path, saved in state.items()
            },
        }
        put_record(self._files, self.path(version), record, sync=True)
        self.versions = [*self.versions, version]

    def path(self, version: Version) -> str:
        """Where the record of a version is."""
        return f"{self._folder}/{_name(version)}.version"

    def load(self, version: Version) -> LoadedState:
        """The state of a version. Tables are opened, and every byte of them verified, when they are asked for."""
        record = read_record(self._files, self.path(version))
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(s))) for s in record["schemas"]]
        places = {
            path: {name: Place.of(*p) for name, p in of_path.items()} for path, (_, of_path) in record["state"].items()
        }
        self._places, self._schemas = places, schemas
        self._verified.clear()
        self._sizes = {}
        for file in self.files:
            with contextlib.suppress(FileNotFoundError):  # found out when it is read
                self._sizes[file] = self._files.size(f"{self._folder}/{file}")
        return {path: Loaded(meta, _Tables(self, places[path], schemas)) for path, (meta, _) in record["state"].items()}

    def meta(self, version: Version, path: str) -> Record:
        """What is plain JSON under a path of a version."""
        found: Record = read_record(self._files, self.path(version))["state"][path][0]
        return found

    def read(self, place: Place, schemas: list[pa.Schema]) -> pa.Table:
        """A piece, every byte of it verified the first time."""
        schema = schemas[place.schema]
        if len(place.parts) != len(schema):
            return pa.Table.from_batches(self._batches(place.parts[0], place.rows, schema), schema)
        columns: list[pa.ChunkedArray] = []
        for part, f in zip(place.parts, schema, strict=True):
            if not part.file:
                columns.append(_numbers(part, place.rows, f.type))
                continue
            alone = pa.schema([f])  # the bytes are the same, whatever type they were stored as
            columns.append(pa.Table.from_batches(self._batches(part, place.rows, alone), alone).column(0))
        return pa.Table.from_arrays(columns, schema=schema)

    def _batches(self, part: Part, rows: int, schema: pa.Schema) -> list[pa.RecordBatch]:
        path = f"{self._folder}/{part.file}"
        segment = Segment(self._files, path)
        verify = part not in self._verified
        frames = list(segment.frames_at(part.start, part.start + part.bytes, verify=verify))
        found = [segment.batch(frame, schema)[1] for frame in frames]
        if (count := sum(batch.num_rows for batch in found)) != rows:
            raise StorageError(f"{self._files.name}/{path}: damaged, {count} rows instead of {rows}")
        self._verified.add(part)
        if len(schema) == 1:
            self._known[rows, part.bytes, *(frame.crc for frame in frames)] = part
        return found

    def verify(self) -> None:
        """Look at every byte of the version that was loaded last; StorageError if one is not what was written."""
        for of_path in self._places.values():
            for place in of_path.values():
                schema = self._schemas[place.schema]
                whole = len(place.parts) != len(schema)
                for part, f in zip(place.parts, [None] if whole else schema, strict=True):
                    if part.file and part not in self._verified:
                        self._batches(part, place.rows, schema if f is None else pa.schema([f]))

    @property
    def files(self) -> set[str]:
        """The files that the version which was loaded or saved last has pieces in."""
        return {file for of_path in self._places.values() for place in of_path.values() for file in place.files}

    def forget(self, keep: int = KEPT) -> None:
        """Remove all but the last versions, and files that none of these has pieces in."""
        self.versions = self.versions[-keep:]
        kept = set(self.names)
        for name in self._files.names(self._folder):
            if name.endswith(".version") and name not in kept and self._may_remove(name):
                with contextlib.suppress(OSError):
                    self._files.remove(f"{self._folder}/{name}")
        used = self.files
        for version in self.versions:
            with contextlib.suppress(StorageError):
                record = read_record(self._files, self.path(version))
                used |= {
                    f for _, of_path in record["state"].values() for p in of_path.values() for f in Place.of(*p).files
                }
        for name in self._files.names(self._folder):
            if name.endswith(".segment") and name not in used and self._may_remove(name):
                with contextlib.suppress(OSError):
                    self._files.remove(f"{self._folder}/{name}")

    def _may_remove(self, name: str) -> bool:
        """Whether a file is not of a later owner."""
        match = _OF_EPOCH.match(name)
        return match is not None and int(match[1]) <= self._epoch

    def measure(self) -> None:
        """See how large the versions are that there are."""
        total = 0
        for name in self._files.names(self._folder):
            with contextlib.suppress(FileNotFoundError):
                total += self._files.size(f"{self._folder}/{name}")
        self.bytes = total


_Known = dict[tuple[int, ...], Part]
"""The columns that are stored, by their rows, bytes and checksums."""
_PARTS = 3
"""Of a frame: head, rows, what fills it up."""


def _whole_number(kind: pa.DataType) -> pa.DataType:
    """The type whose values have the same bits, where times are whole numbers."""
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) else kind


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same bits as values of another type."""
    return column if column.type == kind else pa.chunked_array([c.view(kind) for c in column.chunks], kind)


def _rising(column: pa.ChunkedArray) -> Part | None:
    """Whole numbers that rise evenly, by where they begin and by how much."""
    count = len(column)
    if column.type != pa.int64() or column.null_count or count < 2:
        return None
    first, last = column[0].as_py(), column[count - 1].as_py()
    step = column[1].as_py() - first
    if first + step * (count - 1) != last or abs(step) > _STEP:
        return None
    at = first
    for chunk in column.chunks:
        for start in range(0, len(chunk), _RUN):
            values = chunk.slice(start, _RUN).to_numpy()
            if not np.array_equal(values, at + step * np.arange(len(values))):
                return None
            at += step * len(values)
    return Part("", first, step)


def _numbers(part: Part, count: int, kind: pa.DataType) -> pa.ChunkedArray:
    """What ``_rising`` saw."""
    values = np.arange(count, dtype=np.int64)
    if part.bytes != 1:
        values *= part.bytes
    if part.start:
        values += part.start
    return _as(pa.chunked_array([pa.array(values)]), kind)


def _listed(place: Place) -> list[object]:
    """A place as records have it."""
    return [place.rows, place.schema, [[part.file, part.start, part.bytes] for part in place.parts]]


class _Writer:
    """A file of pieces."""

    def __init__(self, files: Files, path: str, epoch: int, number: int, schemas: list[pa.Schema]) -> None:
        self._files, self._path, self._epoch, self._number = files, path, epoch, number
        self._schemas = schemas
        self.file = path.rpartition("/")[2]
        self.size = 0
        self._content: list[Bytes] = []
        self._begun = 0

    def add(self, table: pa.Table) -> Place:
        """Write a piece whole."""
        return Place(table.num_rows, _number_of(table.schema, self._schemas), (self._put(table),))

    def add_columns(self, table: pa.Table, known: _Known) -> Place:
        """Write the columns of a piece that are not known."""
        parts: list[Part] = []
        for column in table.columns:
            part = _rising(_as(column, _whole_number(column.type)))
            parts.append(part or self._put(pa.Table.from_arrays([column], names=[""]), known))
        return Place(table.num_rows, _number_of(table.schema, self._schemas), tuple(parts))

    def _put(self, table: pa.Table, known: _Known | None = None) -> Part:
        if not self.size:
            head = head_bytes(self._epoch, self._number, _EMPTY)
            self._content.append(head)
            self.size = len(head)
        content: list[Bytes] = []
        size, crcs = 0, list[int]()
        for batch in record_batches(table, _MOST):
            parts, length, crc = frame_bytes(self._number, 0, batch, {}, safe=0)
            content += parts
            size += length
            crcs.append(crc)
        if known is not None:
            key = table.num_rows, size, *crcs
            if (part := known.get(key)) is not None:
                if part.file == self.file:
                    self._flush()
                if self._is_there(part, content):
                    return part
            known[key] = Part(self.file, self.size, size)
        part = Part(self.file, self.size, size)
        self._content += content
        self.size += size
        if self.size - self._begun >= _LARGE:
            self._flush()
        return part

    def _is_there(self, part: Part, content: Sequence[Bytes]) -> bool:
        """Whether a part has these bytes; the entry number in the heads of its frames does not matter."""
        path = f"{os.path.dirname(self._path)}/{part.file}"
        try:
            there = memoryview(self._files.read(path, part.start, part.bytes))
        except OSError:
            return False
        at = 0
        for i, bytes in enumerate(content):
            size = len(bytes)
            if i % _PARTS and there[at : at + size] != memoryview(bytes):
                return False
            at += size
        return at == len(there)

    def _flush(self) -> None:
        self._begun = self._files.append(self._path, self._begun, self._content)
        self._content.clear()

    def finish(self) -> bool:
        """Write what is left; False if there was nothing at all."""
        if not self.size:
            return False
        self._flush()
        self._files.sync(self._path)
        return True

    def remove(self) -> None:
        if self.size:
            with contextlib.suppress(OSError):
                self._files.remove(self._path)


def _name(version: Version) -> str:
    number, epoch, attempt = version
    return f"{number:020d}-{epoch:010d}-{attempt}"


def _number_of(schema: pa.Schema, schemas: list[pa.Schema]) -> int:
    for i, known in enumerate(schemas):
        if known.equals(schema):
            return i
    schemas.append(schema)
    return len(schemas) - 1


class _Tables(Mapping[str, pa.Table]):
    """The tables of pieces, each opened when it is asked for."""

    def __init__(self, states: States, places: dict[str, Place], schemas: list[pa.Schema]) -> None:
        self._states, self._places, self._schemas = states, places, schemas

    def __getitem__(self, name: str) -> pa.Table:
        return self._states.read(self._places[name], self._schemas)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
