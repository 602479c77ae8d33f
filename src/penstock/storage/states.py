"""Versions of the state of a database: immutable pieces in segments, and a record for each version.

    state/00000000000000004711-0000000003-12.version     which pieces make up the version, and what is plain JSON
    state/00000000000000004711-0000000003-12-0.segment   pieces that were new in it

A version's number is that of the last entry that is in it; behind it stand the epoch of who wrote it and how many he
had tried to write. Pieces are
Arrow tables; the version's record has their schemas and where each is. A piece that a later version has too is not
written again, except where it keeps a file on the disk that is otherwise of no use.

A version is there when its record is, which is written last; all of it is forced to the disk before anything that it
covers is forgotten. The last two are kept, with the logs since the older one: should the newest be damaged, the one
before it and the logs say the same.

Bounded by: twice the pieces of a version, and the pieces of the version before it.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa

from penstock.model.errors import StorageError
from penstock.operators.state import Loaded, LoadedState, State
from penstock.storage.files import Bytes, Files
from penstock.storage.records import Record, put_record, read_record
from penstock.storage.segments import Segment, frame_bytes, head_bytes, record_batches

_VERSION = re.compile(r"(\d{20})-(\d{10})-(\d+)\.version")
Version = tuple[int, int, int]
"""Number, epoch, attempt."""
_LARGE = 1 << 20
"""A piece of so many bytes has a file of its own."""
_MOST = 1 << 30
"""A frame has at most about so many bytes."""
KEPT = 2
_EMPTY = pa.schema([])


@dataclass(frozen=True)
class Place:
    """Where a piece is: the frames of a file from a byte on, of the schema with this number."""

    file: str
    start: int
    bytes: int
    rows: int
    schema: int


class States:
    """The versions under a folder. Used by one thread at a time."""

    def __init__(self, files: Files, folder: str, *, epoch: int) -> None:
        self._files, self._folder, self._epoch = files, folder, epoch
        self.versions = self._found()
        """The versions there are, ascending; those that somebody writes who is not the owner any
        more do not come in."""
        self._verified: set[Place] = set()
        """Pieces of which every byte has been looked at, since the version was loaded."""
        self._attempts = 0
        self._unsaved: dict[str, dict[str, pa.Table]] = {}
        """Tables of saves that failed; they are written by the next one."""
        self._places: dict[str, dict[str, Place]] = {}
        self._schemas: list[pa.Schema] = []
        self._sizes: dict[str, int] = {}
        """Bytes of the files that the last version has pieces in."""
        self.written = 0
        """Bytes written since it was opened."""
        self.bytes = 0
        """How large all versions are, as far as ``measure`` has seen."""

    def _found(self) -> list[Version]:
        found = map(_VERSION.fullmatch, self._files.names(self._folder))
        return sorted((int(m[1]), int(m[2]), int(m[3])) for m in found if m)

    def save(self, number: int, state: State) -> None:
        """Make this state the version of this number, then forget older ones. If it fails, what was there is there."""
        schemas: list[pa.Schema] = []
        places: dict[str, dict[str, Place]] = {}
        self._attempts += 1
        version = number, self._epoch, self._attempts
        name = _name(version)
        small = _Writer(self._files, f"{self._folder}/{name}.segment", self._epoch, number, schemas)
        made: list[_Writer] = []
        wasted = self._wasted(state)
        try:
            for path, saved in state.items():
                of_path = places.setdefault(path, {})
                for piece in saved.pieces:
                    table = piece.table
                    if table is None:
                        table = self._unsaved.get(path, {}).get(piece.name)
                    if table is None:
                        known = self._places[path][piece.name]
                        if known.file not in wasted:
                            schema = _number_of(self._schemas[known.schema], schemas)
                            of_path[piece.name] = Place(known.file, known.start, known.bytes, known.rows, schema)
                            continue
                        table = self.read(known, self._schemas)
                    if table.nbytes >= _LARGE:
                        writer = _Writer(
                            self._files, f"{self._folder}/{name}-{len(made)}.segment", self._epoch, number, schemas
                        )
                        made.append(writer)
                    else:
                        writer = small
                    of_path[piece.name] = writer.add(table)
            written = [w for w in (*made, small) if w.finish()]
            if written:
                self._files.sync_folder(self._folder)
            self._put(version, state, places, schemas)
        except BaseException:
            for writer in (*made, small):
                writer.remove()
            self._keep(state)
            raise
        self._unsaved = {}
        self.written += sum(w.size for w in written)
        sizes = {w.file: w.size for w in written}
        used = {p.file for of_path in places.values() for p in of_path.values()}
        self._sizes = {f: s for f, s in {**self._sizes, **sizes}.items() if f in used}
        self._places, self._schemas = places, schemas
        self._verified.clear()
        self.forget()

    def _keep(self, state: State) -> None:
        """Have the tables of a save that failed for the next one: operators count them as saved."""
        for path, saved in state.items():
            before = self._unsaved.get(path, {})
            tables = {p.name: p.table if p.is_new else before.get(p.name) for p in saved.pieces}
            self._unsaved[path] = {name: table for name, table in tables.items() if table is not None}
        self._unsaved = {path: tables for path, tables in self._unsaved.items() if path in state}

    def _wasted(self, state: State) -> set[str]:
        """Files of which less than half is of use from now on."""
        used: dict[str, int] = {}
        for path, saved in state.items():
            for piece in saved.pieces:
                known = self._places.get(path, {}).get(piece.name)
                if not piece.is_new and known is not None:
                    used[known.file] = used.get(known.file, 0) + known.bytes
        return {file for file, bytes in used.items() if 2 * bytes < self._sizes.get(file, 0)}

    def _put(
        self, version: Version, state: State, places: dict[str, dict[str, Place]], schemas: list[pa.Schema]
    ) -> None:
        record: Record = {
            "version": version,
            "schemas": [base64.b64encode(s.serialize()).decode() for s in schemas],
            "state": {
                path: [saved.meta, {name: list(asdict(p).values()) for name, p in places[path].items()}]
                for path, saved in state.items()
            },
        }
        put_record(self._files, self.path(version), record, sync=True)
        self.versions.append(version)

    def path(self, version: Version) -> str:
        """Where the record of a version is."""
        return f"{self._folder}/{_name(version)}.version"

    def load(self, version: Version) -> LoadedState:
        """The state of a version. Tables are opened, and every byte of them verified, when they are asked for."""
        record = read_record(self._files, self.path(version))
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(s))) for s in record["schemas"]]
        places = {
            path: {name: Place(*p) for name, p in of_path.items()} for path, (_, of_path) in record["state"].items()
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
        path = f"{self._folder}/{place.file}"
        segment = Segment(self._files, path)
        schema = schemas[place.schema]
        found: list[pa.RecordBatch] = []
        rows = 0
        for frame in segment.frames_at(place.start, place.start + place.bytes, verify=place not in self._verified):
            batch = segment.batch(frame, schema)[1]
            rows += batch.num_rows
            found.append(batch)
        if rows != place.rows:
            raise StorageError(f"{self._files.name}/{path}: damaged, {rows} rows instead of {place.rows}")
        self._verified.add(place)
        return pa.Table.from_batches(found, schema)

    @property
    def files(self) -> set[str]:
        """The files that the version which was loaded or saved last has pieces in."""
        return {place.file for of_path in self._places.values() for place in of_path.values()}

    def forget(self, keep: int = KEPT) -> None:
        """Remove all but the last versions, and files that none of these has pieces in."""
        gone, self.versions = self.versions[:-keep], self.versions[-keep:]
        for version in gone:
            with contextlib.suppress(OSError):
                self._files.remove(self.path(version))
        used = self.files
        for version in self.versions:
            with contextlib.suppress(StorageError):
                record = read_record(self._files, self.path(version))
                used |= {p[0] for _, of_path in record["state"].values() for p in of_path.values()}
        for name in self._files.names(self._folder):
            if name.endswith(".segment") and name not in used:
                with contextlib.suppress(OSError):
                    self._files.remove(f"{self._folder}/{name}")

    def measure(self) -> None:
        """See how large the versions are that there are."""
        total = 0
        for name in self._files.names(self._folder):
            with contextlib.suppress(FileNotFoundError):
                total += self._files.size(f"{self._folder}/{name}")
        self.bytes = total


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
        if not self.size:
            head = head_bytes(self._epoch, self._number, _EMPTY)
            self._content.append(head)
            self.size = len(head)
        start = self.size
        for batch in record_batches(table, _MOST):
            parts, length = frame_bytes(self._number, 0, batch, {}, synced=0)
            self._content += parts
            self.size += length
        place = Place(self.file, start, self.size - start, table.num_rows, _number_of(table.schema, self._schemas))
        if self.size - self._begun >= _LARGE:
            self._flush()
        return place

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
