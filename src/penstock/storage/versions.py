"""Where the state of a query is kept: immutable pieces in files, and a small manifest for each version.

    root/manifest-000000000012.json          which pieces make up version 12, and the JSON values
    root/pieces/000000000012-1f0c….pieces    the small pieces that were new in it, one after the other
    root/pieces/000000000012-1f0c…-3.arrow   a large piece that was new in it

Pieces are Arrow IPC files, not compressed, so that they can be memory-mapped. A file of small ones is there as long as
a version has one of them.

A file is written once, under a name nobody else can choose, and then only read. A version is there when its manifest
is, which appears under its name in one step. So whoever is stopped anywhere leaves all earlier versions as they were,
and two attempts at one version cannot mix: the manifest is that of one of them.

A manifest also says from which versions, by which attempts, its own goes on: whoever has one of these in memory need
only take in what has changed since.

Where attempts are told apart, each has a manifest of its own, ``manifest-000000000012-1f0c….json``: who loads a version
says which attempt at it counts.

``sync``: a version is on the disk when ``commit`` returns. Without it nothing is forced to the disk: that costs 5 to 10
ms a file, and Spark does not do it for its own checkpoints either; what a loss of power takes away is noticed by its
checksum, which every reader verifies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.model.errors import CheckpointError
from penstock.operators.state import Loaded, LoadedState, State
from penstock.plan.nodes import Query
from penstock.plan.serial import to_json
from penstock.storage.objects import filesystem_at

FORMAT = 5
"""Of manifests and of what operators put into pieces; a state of another format is refused."""

_MANIFEST = re.compile(r"manifest-(\d+)(?:-[0-9a-f]+)?\.json")
_OLD = re.compile(r"manifest-(\d+)(?:-[0-9a-f]+)?\.json(\..+\.part)?$")
_PIECE = re.compile(r"(\d+)-[0-9a-f]+(-\d+\.arrow|\.pieces)")
_SMALL = 1 << 20
"""Pieces of at most this many bytes share a file with others of their version."""
_ALIGNED = 64
_LINEAGE = 32
"""Versions before its own that a manifest names; who has an older one in memory loads everything."""


def fingerprint(query: Query) -> str:
    """Equal for equal plans, and for no others; but for the case of names, which state has none of."""
    text = json.dumps(_folded(to_json(query)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _folded(part: Any, inside: str = "") -> Any:
    if isinstance(part, dict):
        return {key: _folded(value, key) for key, value in part.items()}
    if isinstance(part, list):
        return [_folded(value, inside) for value in part]
    return folded_name(part) if inside in ("name", "names") and isinstance(part, str) else part


def folded_name(name: str) -> str:
    """The name of a column in lower case; a text like ``COUNT(*)``, of which one may be made, stays as it is."""
    return name.lower() if name.isidentifier() else name


@dataclass(frozen=True)
class PieceFile:
    """Where a piece is, and the checksum of its bytes."""

    file: str
    start: int
    rows: int
    bytes: int
    crc: int

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> PieceFile:
        """As manifests have it; older ones say more."""
        return cls(*(stored[name] for name in ("file", "start", "rows", "bytes", "crc")))


class StateStore:
    """The versions of one query's state (or of one shard of it) under a directory.

    ``query`` is the ``fingerprint`` of the query: state of another one is refused. A store goes on from the version
    that it loaded or committed last: pieces that a state lists without a table are those of that version.
    """

    def __init__(
        self, root: str, filesystem: fs.FileSystem | None = None, *, query: str = "", attempts: bool = False,
        sync: bool = False,
    ) -> None:  # fmt: skip
        """``attempts``: attempts at a version are told apart. ``sync``: what is committed is on the disk."""
        self._attempts, self._sync = attempts, sync
        if filesystem is None:
            filesystem, root = filesystem_at(root)
        self._fs: fs.FileSystem = filesystem
        self._root = root.rstrip("/")
        self._query = query
        self._made = False
        self._begun: list[str] = []
        """Files of the attempt that is under way, as long as no manifest can name them."""
        self._current: dict[str, dict[str, PieceFile]] = {}
        self._lineage: list[list[Any]] = []  # [version, attempt], the last one is that of _current
        self.written = 0
        """Bytes of the pieces written by this store."""

    @property
    def root(self) -> str:
        """The directory."""
        return self._root

    @property
    def version(self) -> int | None:
        """What was loaded or committed last, None if nothing was."""
        return self._lineage[-1][0] if self._lineage else None

    def commit(self, version: int, state: State) -> str:
        """Make this state the one of the version; gives the name of the attempt. If it fails, the state of an earlier
        version must be loaded; where there was no room, nothing is left of it."""
        if not self._made:
            self._fs.create_dir(f"{self._root}/pieces", recursive=True)
            self._made = True
        attempt = uuid.uuid4().hex
        self._begun.clear()
        try:
            return self._committed(version, state, attempt)
        except OSError:
            for path in self._begun:
                with contextlib.suppress(OSError):
                    self._delete(path)
            raise

    def _committed(self, version: int, state: State, attempt: str) -> str:
        files: dict[str, dict[str, PieceFile]] = {}
        small = _Small(f"{version:012d}-{attempt}.pieces")
        count = 0
        for path, saved in state.items():
            of_path: dict[str, PieceFile] = {}
            for piece in saved.pieces:
                table = piece.table
                if table is not None:
                    data = _bytes_of(table)
                    if data.size <= _SMALL:
                        of_path[piece.name] = small.add(table.num_rows, data)
                        continue
                    file = f"{version:012d}-{attempt}-{count}.arrow"
                    self._write(file, [data])
                    of_path[piece.name] = _piece(file, 0, table.num_rows, data)
                    count += 1
                    continue
                known = self._current.get(path, {}).get(piece.name)
                if known is None:
                    raise CheckpointError(
                        f"{self._root}: piece `{piece.name}` of `{path}` was saved elsewhere",
                        hint="a store goes on from the version that it loaded or committed last",
                    )
                of_path[piece.name] = known
            files[path] = of_path
        if small.parts:
            self._write(small.file, small.parts)
        operators = {
            path: {"meta": saved.meta, "pieces": {name: vars(f) for name, f in files[path].items()}}
            for path, saved in state.items()
        }
        lineage = [*self._lineage, [version, attempt]][-_LINEAGE - 1 :]
        content = {
            "format": FORMAT, "version": version, "query": self._query, "lineage": lineage, "operators": operators
        }  # fmt: skip
        self._write_manifest(version, content, attempt)
        self._current, self._lineage = files, lineage
        return attempt

    def load(self, version: int, attempt: str = "", *, verify: bool = False) -> LoadedState | None:
        """The state of a version, None if there is none. Pieces are opened, and every byte of them looked at, when they
        are asked for; ``verify``: now.
        """
        content = self._manifest(version, attempt)
        return None if content is None else self._take(version, content, verify=verify)

    def follow(self, version: int, attempt: str = "") -> LoadedState | None:
        """The state of a version that goes on from what this store committed or loaded last; None if it does not.

        The version is that of this store's lineage only if its manifest names the very attempt that this store has:
        a version tried again elsewhere is another one, and so is all that goes on from it.
        """
        content = self._manifest(version, attempt)
        if content is None or not self._lineage or self._lineage[-1] not in content["lineage"][:-1]:
            return None
        return self._take(version, content)

    def _take(self, version: int, content: dict[str, Any], *, verify: bool = False) -> LoadedState:
        if content["query"] != self._query:
            raise CheckpointError(
                f"{self._manifest_path(version, content['lineage'][-1][1])}: this is the state of another query",
                hint="use another directory for the changed query, or run the query that it belongs to",
            )
        files = {
            path: {name: PieceFile.of(f) for name, f in operator["pieces"].items()}
            for path, operator in content["operators"].items()
        }
        opened = _Opened(self._fs, f"{self._root}/pieces")
        if verify:
            for pieces in files.values():
                for file in pieces.values():
                    opened.read(file)
        self._current, self._lineage = files, content["lineage"]
        return {
            path: Loaded(operator["meta"], _Tables(opened, files[path]))
            for path, operator in content["operators"].items()
        }

    def files(self, version: int, attempt: str, known: set[PieceFile]) -> list[str]:
        """The files of a version under the store's directory, its manifest first; none if that is not there. Every byte
        of its pieces is looked at, but of those that are ``known``, which are more afterwards."""
        content = self._manifest(version, attempt)
        if content is None:
            return []
        opened = _Opened(self._fs, f"{self._root}/pieces")
        found = {PieceFile.of(f) for o in content["operators"].values() for f in o["pieces"].values()}
        for piece in sorted(found - known, key=lambda p: (p.file, p.start)):
            opened.read(piece)
        known |= found
        manifest = self._manifest_path(version, attempt).rpartition("/")[2]
        return [manifest, *sorted({f"pieces/{piece.file}" for piece in found})]

    def holds(self, version: int, attempt: str = "") -> bool:
        """Is what is stored as this version what this store committed or loaded last, and not another attempt?"""
        if self._attempts:
            return self._lineage[-1:] == [[version, attempt]]
        content = self._manifest(version)
        return content is not None and content["lineage"][-1:] == self._lineage[-1:]

    def versions(self) -> list[int]:
        """The versions there are, ascending."""
        return sorted({int(m[1]) for m in map(_MANIFEST.fullmatch, self._names(self._root)) if m})

    def forget(self, before: int) -> None:
        """Remove older versions, and pieces that no other version has.

        Pieces that were written for a version from ``before`` on stay: an attempt at it may be under way.
        """
        used: set[str] = set()
        for name in self._names(self._root):
            match = _MANIFEST.fullmatch(name)
            content = self._read(f"{self._root}/{name}") if match and int(match[1]) >= before else None
            if content is not None:
                used |= {f["file"] for o in content["operators"].values() for f in o["pieces"].values()}
        used |= {f.file for pieces in self._current.values() for f in pieces.values()}
        for name in self._names(self._root):
            # Manifests that were not finished too.
            match = _OLD.match(name)
            if match and int(match[1]) < before:
                self._delete(f"{self._root}/{name}")
        for name in self._names(f"{self._root}/pieces"):
            match = _PIECE.fullmatch(name)
            if match and int(match[1]) < before and name not in used:
                self._delete(f"{self._root}/pieces/{name}")

    def discard(self, version: int, attempt: str) -> None:
        """Remove an attempt that does not count, where attempts are told apart."""
        self._delete(self._manifest_path(version, attempt))
        for name in self._names(f"{self._root}/pieces"):
            if name.startswith(f"{version:012d}-{attempt}"):
                self._delete(f"{self._root}/pieces/{name}")

    # -- files --------------------------------------------------------------------------------------

    def _write(self, name: str, parts: Sequence[pa.Buffer | bytes]) -> None:
        self._put(f"{self._root}/pieces/{name}", parts)
        self.written += sum(map(len, parts))

    def _put(self, path: str, parts: Sequence[pa.Buffer | bytes]) -> None:
        self._begun.append(path)
        with self._fs.open_output_stream(path) as out:
            for part in parts:
                out.write(part)
        if self._sync:
            self._force(path)

    def _force(self, path: str) -> None:
        """Force a file or folder to the disk, where the files are those of a disk."""
        if isinstance(self._fs, fs.LocalFileSystem):
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def _manifest_path(self, version: int, attempt: str) -> str:
        return f"{self._root}/manifest-{version:012d}{f'-{attempt}' if self._attempts else ''}.json"

    def _write_manifest(self, version: int, content: dict[str, Any], attempt: str) -> None:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        whole = f'{{"crc":{zlib.crc32(text.encode())},"state":{text}}}'
        path = self._manifest_path(version, attempt)
        if self._sync:
            self._force(f"{self._root}/pieces")
        if self._attempts and not isinstance(self._fs, fs.LocalFileSystem):
            self._put(path, [whole.encode()])  # an object is there in one step, and nobody else has its name
            return
        self._put(f"{path}.{attempt}.part", [whole.encode()])
        self._begun.clear()
        self._replace(f"{path}.{attempt}.part", path)
        if self._sync:
            self._force(self._root)

    def _replace(self, source: str, target: str) -> None:
        """Move a file over another. Object stores copy, and show all of a file or none; HDFS wants the place free."""
        try:
            self._fs.move(source, target)
        except OSError:
            if self._fs.get_file_info(target).type != fs.FileType.File:
                raise
            self._fs.delete_file(target)
            self._fs.move(source, target)

    def _manifest(self, version: int, attempt: str = "") -> dict[str, Any] | None:
        return self._read(self._manifest_path(version, attempt))

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            with self._fs.open_input_stream(path) as source:
                text = source.read()
        except FileNotFoundError:
            return None
        except OSError as e:
            raise CheckpointError(f"{path}: the manifest of the saved state cannot be read: {e}") from e
        try:
            whole = json.loads(text)
            content: dict[str, Any] = whole["state"]
            start = text.index(b'"state":') + len(b'"state":')
            sound = zlib.crc32(text[start:-1]) == whole["crc"]
        except (ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise CheckpointError(f"{path}: damaged, its checksum is not what was written", hint=LOST)
        if content["format"] != FORMAT:
            raise CheckpointError(
                f"{path}: written in format {content['format']}, this is format {FORMAT}",
                hint="go on with the release of Penstock that wrote it, or start in an empty directory",
            )
        return content

    def _names(self, folder: str) -> list[str]:
        found = self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return [f.base_name for f in found if f.type == fs.FileType.File]

    def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(path)


LOST = "load an earlier version, or start again in an empty directory"
"""What is to be done where the state of a query over DataFrames is damaged."""


def _bytes_of(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _piece(file: str, start: int, rows: int, data: pa.Buffer) -> PieceFile:
    return PieceFile(file, start, rows, data.size, zlib.crc32(data))


class _Small:
    """Pieces for one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.parts: list[pa.Buffer | bytes] = []
        self._size = 0

    def add(self, rows: int, data: pa.Buffer) -> PieceFile:
        gap = -self._size % _ALIGNED
        if gap:
            self.parts.append(bytes(gap))
        piece = _piece(self.file, self._size + gap, rows, data)
        self.parts.append(data)
        self._size = piece.start + piece.bytes
        return piece


class _Opened:
    """The files of pieces of one version, each opened once; those with small pieces stay open as long as this lives."""

    def __init__(self, filesystem: fs.FileSystem, folder: str) -> None:
        self._fs, self._folder = filesystem, folder
        self._shared: dict[str, pa.Buffer] = {}

    def read(self, piece: PieceFile) -> pa.Table:
        path = f"{self._folder}/{piece.file}"
        file = self._shared.get(piece.file)
        if file is None:
            file = self._file(path)
            if piece.bytes <= _SMALL:
                self._shared[piece.file] = file
        if file.size < piece.start + piece.bytes or (piece.bytes > _SMALL and file.size != piece.bytes):
            raise CheckpointError(
                f"{path}: damaged, {file.size} bytes instead of {piece.start + piece.bytes}", hint=LOST
            )
        data = file.slice(piece.start, piece.bytes)
        if zlib.crc32(data) != piece.crc:
            raise CheckpointError(f"{path}: damaged, its checksum is not what was written", hint=LOST)
        try:
            return pa.ipc.open_file(data).read_all()
        except pa.ArrowInvalid as e:
            raise CheckpointError(f"{path}: damaged, {e}", hint=LOST) from e

    def _file(self, path: str) -> pa.Buffer:
        try:
            if isinstance(self._fs, fs.LocalFileSystem):
                return pa.memory_map(path).read_buffer()
            with self._fs.open_input_file(path) as source:
                return source.read_buffer()
        except FileNotFoundError:
            raise CheckpointError(f"{path}: a piece of the saved state is missing", hint=LOST) from None
        except OSError as e:
            raise CheckpointError(f"{path}: a piece of the saved state cannot be read: {e}") from e


class _Tables(Mapping[str, pa.Table]):
    """The tables of an operator's pieces, each opened when it is first asked for."""

    def __init__(self, opened: _Opened, files: dict[str, PieceFile]) -> None:
        self._opened, self._files = opened, files

    def __getitem__(self, name: str) -> pa.Table:
        return self._opened.read(self._files[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
